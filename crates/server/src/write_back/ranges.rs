//! Ranges of a file that do not touch each other, in whole pages: what was written and is not on the device.

use std::collections::BTreeMap;
use std::ops::Range;

/// What the host writes back at least.
const PAGE_BYTES: u64 = 4096;

/// Ranges in whole pages.
#[derive(Debug, Default)]
pub struct Ranges {
    /// Begin and end. Between two of them there is at least one page.
    ends: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Ranges {
    /// Bytes in all of them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Adds the pages that `range` touches. How many bytes of them were not there.
    pub fn insert(&mut self, range: &Range<u64>) -> u64 {
        let mut start = range.start / PAGE_BYTES * PAGE_BYTES;
        let mut end = range.end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
        let mut known = 0;
        // Those that reach as far as this one, from the last to the first.
        while let Some((&first, &last)) = self.ends.range(..=end).next_back().filter(|(_, last)| **last >= start) {
            self.ends.remove(&first);
            known += last - first;
            (start, end) = (start.min(first), end.max(last));
        }
        self.ends.insert(start, end);
        let new = end - start - known;
        self.bytes += new;
        new
    }

    /// Takes out what begins at `from` or behind it, and if nothing does, what comes first: parts in their order, as long
    /// as `fits` says of their number and the bytes of all of them that they are not too much, and at least `bytes_min` of the
    /// first one. Empty only if there is nothing.
    pub fn take(&mut self, from: u64, bytes_min: u64, fits: impl Fn(u64, u64) -> bool) -> Vec<Range<u64>> {
        let mut parts = Vec::new();
        let mut bytes = 0;
        let mut at = if self.ends.range(from..).next().is_some() { from } else { 0 };
        while let Some((&start, &end)) = self.ends.range(at..).next() {
            let count = parts.len() as u64 + 1;
            let least = if parts.is_empty() { bytes_min } else { PAGE_BYTES };
            let pages = (end - start).div_ceil(PAGE_BYTES);
            // The most pages of this range that fit.
            let is_enough = |pages: u64| !fits(count, bytes + pages * PAGE_BYTES);
            let most = first_where(1..pages + 1, is_enough) - 1;
            let len = (most * PAGE_BYTES).max(if parts.is_empty() { least } else { 0 }).min(end - start);
            if len == 0 {
                break;
            }
            self.ends.remove(&start);
            if start + len < end {
                self.ends.insert(start + len, end);
            }
            parts.push(start..start + len);
            bytes += len;
            if start + len < end {
                break;
            }
            at = end;
        }
        self.bytes -= bytes;
        parts
    }

    /// Takes out all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The first number of `range` for which `is_so`, which is so for all that are greater; the end if there is none.
fn first_where(range: Range<u64>, is_so: impl Fn(u64) -> bool) -> u64 {
    let Range { mut start, mut end } = range;
    while start < end {
        let middle = start + (end - start) / 2;
        if is_so(middle) { end = middle } else { start = middle + 1 }
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_that_touch_become_one_and_count_once() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.insert(&(0..1)), 4096);
        assert_eq!(ranges.insert(&(100..4096)), 0, "the same page");
        assert_eq!(ranges.insert(&(8192..12_288)), 4096);
        assert_eq!(ranges.insert(&(4096..4097)), 4096);
        assert_eq!((ranges.count(), ranges.bytes()), (1, 12_288));
        ranges.clear();
        assert_eq!((ranges.count(), ranges.bytes()), (0, 0));
    }

    #[test]
    fn a_part_is_no_larger_than_what_fits_and_goes_on_where_the_last_one_ended() {
        let mut ranges = Ranges::default();
        ranges.insert(&(0..1 << 20));
        ranges.insert(&(2 << 20..3 << 20));
        let mut take_at_most = |from, least, most| {
            let taken = ranges.take(from, least, |count, bytes| count <= 1 && bytes <= most);
            taken.into_iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        assert_eq!(take_at_most(0, 4096, 64 << 10), [(0, 64 << 10)]);
        assert_eq!(take_at_most(2 << 20, 4096, 64 << 10), [(2 << 20, (2 << 20) + (64 << 10))]);
        assert_eq!(take_at_most(8 << 20, 128 << 10, 0), [(64 << 10, 192 << 10)], "from the beginning, the least");
        assert_eq!(take_at_most(0, 4096, u64::MAX), [(192 << 10, 1 << 20)]);
        assert_eq!(ranges.bytes(), (1 << 20) - (64 << 10));
    }

    proptest! {
        #[test]
        fn every_page_is_taken_exactly_once(
            steps in prop::collection::vec((0u64..64, 1u64..20, 0u64..4, 0u64..12, any::<bool>()), 1..200),
        ) {
            let mut ranges = Ranges::default();
            let mut model = BTreeSet::new();
            for (page, pages, count_max, pages_max, is_taken) in steps {
                if is_taken {
                    let fits = |count: u64, bytes: u64| count <= count_max && bytes <= pages_max * PAGE_BYTES;
                    let taken = ranges.take(page * PAGE_BYTES, PAGE_BYTES, fits);
                    prop_assert_eq!(taken.is_empty(), model.is_empty());
                    let bytes: u64 = taken.iter().map(|part| part.end - part.start).sum();
                    prop_assert!(taken.len() <= 1 || fits(taken.len() as u64, bytes));
                    prop_assert!(bytes <= PAGE_BYTES.max(pages_max * PAGE_BYTES));
                    for page in taken.into_iter().flat_map(|part| part.start / PAGE_BYTES..part.end / PAGE_BYTES) {
                        prop_assert!(model.remove(&page));
                    }
                } else {
                    let range = page * PAGE_BYTES + 7..(page + pages) * PAGE_BYTES - 7;
                    let before = model.len() as u64;
                    model.extend(page..page + pages);
                    prop_assert_eq!(ranges.insert(&range), (model.len() as u64 - before) * PAGE_BYTES);
                }
                prop_assert_eq!(ranges.bytes(), model.len() as u64 * PAGE_BYTES);
            }
        }
    }
}
