//! An indexed binary min-heap: the jobs that have something queued, by tag.

use isonomia_units::JobId;

/// Virtual time at which a job's next request starts, and the job that breaks a tie: the lowest id.
pub(crate) type Turn = (u128, JobId);

const ABSENT: u32 = u32::MAX;

/// Min-heap of turns that finds each slot's entry in O(1). O(log n) for every change.
#[derive(Default)]
pub(crate) struct Turns {
    heap: Vec<(Turn, u32)>,
    /// Where each slot's entry is in `heap`.
    places: Vec<u32>,
}

impl Turns {
    /// The slot with the smallest turn.
    pub(crate) fn first(&self) -> Option<(Turn, u32)> {
        self.heap.first().copied()
    }

    /// Inserts `slot`, or changes its turn.
    pub(crate) fn set(&mut self, slot: u32, turn: Turn) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, ABSENT);
        }
        let mut place = self.places[slot as usize] as usize;
        if place == ABSENT as usize {
            place = self.heap.len();
            self.heap.push((turn, slot));
        } else {
            self.heap[place].0 = turn;
        }
        self.settle(place);
    }

    /// Takes `slot` out, if it is in.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        let place = std::mem::replace(place, ABSENT);
        if place != ABSENT {
            self.heap.swap_remove(place as usize);
            if (place as usize) < self.heap.len() {
                self.settle(place as usize);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.places.clear();
    }

    /// Moves the entry at `start`, the only one out of order, to where it belongs.
    fn settle(&mut self, start: usize) {
        let moved = self.heap[start];
        let mut hole = start;
        while hole > 0 && moved < self.heap[(hole - 1) / 2] {
            self.fill(hole, (hole - 1) / 2);
            hole = (hole - 1) / 2;
        }
        loop {
            let left = 2 * hole + 1;
            if left >= self.heap.len() {
                break;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.heap[right] < self.heap[left] { right } else { left };
            if moved <= self.heap[child] {
                break;
            }
            self.fill(hole, child);
            hole = child;
        }
        self.heap[hole] = moved;
        self.places[moved.1 as usize] = hole as u32;
    }

    fn fill(&mut self, hole: usize, from: usize) {
        self.heap[hole] = self.heap[from];
        self.places[self.heap[hole].1 as usize] = hole as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_an_ordered_map(steps in proptest::collection::vec((0u32..12, proptest::option::of(0u128..9)), 0..80)) {
            let mut turns = Turns::default();
            let mut model = BTreeMap::new();
            for (slot, tag) in steps {
                match tag {
                    Some(tag) => { turns.set(slot, (tag, JobId(slot))); model.insert(slot, tag); }
                    None => { turns.remove(slot); model.remove(&slot); }
                }
                let first = model.iter().map(|(&slot, &tag)| ((tag, JobId(slot)), slot)).min();
                prop_assert_eq!(turns.first(), first);
            }
        }
    }
}
