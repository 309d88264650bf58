//! Which parts of a file were read: whoever reads all of a file in no order finds the neighbours of what he read before in memory.
//!
//! Linux does the same for a program of its own host: a read right behind pages that are in memory, and more of them than it asks
//! for, is taken for a part of a stream (`page_cache_sync_ra`, `mm/readahead.c`). Here it is what was read that counts, not what is in
//! memory, as much as is asked for is enough, and parts on both sides of the read are one. Of a file that is striped over several targets
//! each has the parts of its own stripes, which are too short for that.

use std::ops::Range;

/// Shorter reads are not noted: there are many of them, and what is saved with one is little.
pub const READ_BYTES_MIN: u64 = 64 << 10;
/// Parts that are remembered of a file; the shortest is forgotten if there are more.
const RUNS_MAX: usize = 64;

/// Parts of a file that were read, in their order, none of which touches the next.
#[derive(Debug, Default)]
pub struct History {
    runs: Vec<Range<u64>>,
}

impl History {
    /// A range was read. How many bytes before it were read already, and where what is read now ends, with what is known behind
    /// the range. In O(`RUNS_MAX`).
    ///
    /// If all of it was known, and came from the device all the same, the host has forgotten it, and so does this.
    pub fn note(&mut self, range: &Range<u64>, is_from_memory: bool) -> (u64, u64) {
        let first = self.runs.partition_point(|run| run.end < range.start);
        let behind = self.runs.partition_point(|run| run.start <= range.end);
        let touched = &self.runs[first..behind];
        let is_forgotten =
            !is_from_memory && touched.iter().any(|run| run.start <= range.start && range.end <= run.end);
        if is_forgotten {
            self.runs.clear();
            self.runs.push(range.clone());
            return (0, range.end);
        }
        let (start, end) = match touched {
            [] => (range.start, range.end),
            [a, .., b] => (a.start.min(range.start), b.end.max(range.end)),
            [a] => (a.start.min(range.start), a.end.max(range.end)),
        };
        self.runs.splice(first..behind, std::iter::once(start..end));
        if self.runs.len() > RUNS_MAX {
            let shortest = (0..self.runs.len()).min_by_key(|at| self.runs[*at].end - self.runs[*at].start);
            shortest.map(|at| self.runs.remove(at));
        }
        (range.start - start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_knows_what_a_bitmap_knows(reads in prop::collection::vec((0u64..64, 1u64..8, any::<bool>()), 1..100)) {
            let (mut history, mut bits) = (History::default(), [false; 80]);
            for (start, len, is_from_memory) in reads {
                let range = start..start + len;
                let block = |at: u64| at as usize;
                let is_forgotten = !is_from_memory && range.clone().all(|at| bits[block(at)]);
                if is_forgotten {
                    bits = [false; 80];
                }
                range.clone().for_each(|at| bits[block(at)] = true);
                let before = (0..start).rev().take_while(|at| bits[block(*at)]).count() as u64;
                let behind = (range.end..80).take_while(|at| bits[block(*at)]).count() as u64;
                prop_assert_eq!(history.note(&range, is_from_memory), (before, range.end + behind));
            }
        }
    }

    #[test]
    fn it_forgets_the_shortest_parts() {
        let mut history = History::default();
        history.note(&(1 << 40..(1 << 40) + 2), true);
        for i in 0..1_000 {
            history.note(&(2 * i..2 * i + 1), true);
        }
        assert_eq!(history.runs.len(), RUNS_MAX);
        assert_eq!(history.note(&((1 << 40) + 2..(1 << 40) + 3), true), (2, (1 << 40) + 3));
    }
}
