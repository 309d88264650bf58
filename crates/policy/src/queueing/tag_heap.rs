//! An indexed min-heap of jobs by tag.

use isonomia_units::JobId;

/// Virtual time at which a job's next request starts, and the job that breaks a tie: the lowest id.
pub(crate) type Tag<T = u128> = (T, JobId);

const ABSENT: u32 = u32::MAX;
/// Children of an entry: they lie side by side, so that a step down the heap costs two cache lines.
const BRANCHES: usize = 4;
/// The most entries that [`TagHeap::smallest`] gives.
pub(crate) const SMALLEST_MAX: usize = 8;

/// One job in the heap.
#[derive(Clone, Copy)]
struct Entry<T> {
    tag: T,
    job: JobId,
    slot: u32,
}

/// Min-heap of tags that finds each slot's entry in O(1). O(log n) for every change.
#[derive(Default)]
pub(crate) struct TagHeap<T = u128> {
    heap: Vec<Entry<T>>,
    /// Where each slot's entry is in `heap`.
    positions: Vec<u32>,
}

impl<T: Copy + Ord> Entry<T> {
    fn is_before(&self, other: &Self) -> bool {
        self.tag < other.tag || (self.tag == other.tag && self.job < other.job)
    }

    fn key(&self) -> (Tag<T>, u32) {
        ((self.tag, self.job), self.slot)
    }
}

impl<T: Copy + Ord> TagHeap<T> {
    /// The slot with the smallest tag.
    pub(crate) fn first(&self) -> Option<(Tag<T>, u32)> {
        self.heap.first().map(Entry::key)
    }

    /// The slots with the smallest tags, [`SMALLEST_MAX`] at most, in order.
    pub(crate) fn smallest(&self) -> impl Iterator<Item = (Tag<T>, u32)> {
        // Positions whose parents were all given, and which were not given themselves.
        let mut open = [0; 1 + SMALLEST_MAX * (BRANCHES - 1)];
        let mut open_len = usize::from(!self.heap.is_empty());
        let mut given = 0;
        std::iter::from_fn(move || {
            if given == SMALLEST_MAX {
                return None;
            }
            given += 1;
            let at =
                (0..open_len).reduce(|a, b| if self.heap[open[b]].is_before(&self.heap[open[a]]) { b } else { a })?;
            let position = open[at];
            open_len -= 1;
            open[at] = open[open_len];
            for child in BRANCHES * position + 1..(BRANCHES * (position + 1) + 1).min(self.heap.len()) {
                open[open_len] = child;
                open_len += 1;
            }
            Some(self.heap[position].key())
        })
    }

    /// Whether `slot` is in.
    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.positions.get(slot as usize).is_some_and(|&position| position != ABSENT)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Inserts `slot`, or changes its tag. O(1) if that is as it was.
    pub(crate) fn set(&mut self, slot: u32, key: Tag<T>) {
        if self.positions.len() <= slot as usize {
            self.positions.resize(slot as usize + 1, ABSENT);
        }
        let entry = Entry { tag: key.0, job: key.1, slot };
        let mut position = self.positions[slot as usize] as usize;
        if position == ABSENT as usize {
            position = self.heap.len();
            self.heap.push(entry);
        } else if self.heap[position].key().0 == key {
            return;
        }
        self.settle(position, entry);
    }

    /// Takes `slot` out, if it is in.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(position) = self.positions.get_mut(slot as usize) else { return };
        let position = std::mem::replace(position, ABSENT) as usize;
        if position != ABSENT as usize
            && let Some(last) = self.heap.pop()
            && position < self.heap.len()
        {
            self.settle(position, last);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.positions.clear();
    }

    /// Puts `moved` where it belongs, given that the entry at `hole` is free and the rest in order.
    fn settle(&mut self, mut hole: usize, moved: Entry<T>) {
        let start = hole;
        while hole > 0 {
            let parent = (hole - 1) / BRANCHES;
            if !moved.is_before(&self.heap[parent]) {
                break;
            }
            self.fill(hole, self.heap[parent]);
            hole = parent;
        }
        while hole >= start {
            let begin = BRANCHES * hole + 1;
            let end = (begin + BRANCHES).min(self.heap.len());
            let children = self.heap.get(begin..end).unwrap_or_default();
            let Some((at, least)) = children.iter().enumerate().reduce(|a, b| if b.1.is_before(a.1) { b } else { a })
            else {
                break;
            };
            if !least.is_before(&moved) {
                break;
            }
            self.fill(hole, *least);
            hole = begin + at;
        }
        self.fill(hole, moved);
    }

    fn fill(&mut self, hole: usize, entry: Entry<T>) {
        self.heap[hole] = entry;
        self.positions[entry.slot as usize] = hole as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_an_ordered_map(steps in proptest::collection::vec((0u32..40, proptest::option::of(0u128..9)), 0..120)) {
            let mut heap = TagHeap::<u128>::default();
            let mut model = BTreeMap::new();
            for (slot, tag) in steps {
                match tag {
                    Some(tag) => { heap.set(slot, (tag, JobId(slot))); model.insert(slot, tag); }
                    None => { heap.remove(slot); model.remove(&slot); }
                }
                let mut order: Vec<_> = model.iter().map(|(&slot, &tag)| ((tag, JobId(slot)), slot)).collect();
                order.sort();
                prop_assert_eq!(heap.first(), order.first().copied());
                order.truncate(SMALLEST_MAX);
                prop_assert_eq!(heap.smallest().collect::<Vec<_>>(), order);
                prop_assert!((0..40).all(|slot| heap.contains(slot) == model.contains_key(&slot)));
            }
        }
    }
}
