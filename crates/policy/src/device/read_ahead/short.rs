//! What is read with a short read, in the same request of the device, for a job that is alone or pays for the time that it takes: whoever reads all
//! of a file in no order finds most of it in memory.
//!
//! A file has blocks of [`BLOCK_BYTES`]. When a read waits for the device, and at least 5/32 (80 KiB) of the [`AROUND_BYTES`] that it is in are in
//! memory, all of its block is read with it. Who reads all of a file by 4 KiB waits for a quarter of his reads, and finds
//! the others in memory.
//!
//! Pages of a block that are in memory part the missing ones into several requests of the device, two or three of them where a sixth of a file is in
//! memory. Where the device is [slow](SLOW) these pages are dropped first, so that the block is one request.
//!
//! Linux does something like it for programs of its own host: right behind pages that are in memory, and more of them than it asks for, a
//! read has as many again read (`page_cache_sync_ra`, `mm/readahead.c`). But what comes behind that is read when somebody comes there,
//! whatever a descriptor was told since: so it is not left to the host, which would go on while others use the device.
//!
//! # What is guaranteed
//! What is read with reads of a file, and not asked for, is at most [`AHEAD_PER_BYTE`] times the bytes that were served of it. Who reads a tenth of a file's pages
//! in no order has next to nothing read for nothing. Who reads a quarter of them has 2.8 times as many bytes read as he asks for, in fewer requests: that is
//! the worst, as who reads on finds them.

use super::AHEAD_PER_BYTE;
use isonomia_units::Nanos;

/// What is read at once: a block, which begins at a multiple of its length in an object.
pub const BLOCK_BYTES: u64 = 64 << 10;
/// What is around a read, beginning at a multiple of this length: what of it is in memory says how much of the file is read.
pub const AROUND_BYTES: u64 = 512 << 10;
/// So much of that is in memory at least before blocks are read.
const CACHED_BYTES_MIN: u64 = AROUND_BYTES / 32 * 5;
/// A device is slow if a small read takes more than this of its time, the requests that it serves at once divided between them: ten times what it
/// takes to drop pages.
pub const SLOW: Nanos = Nanos::from_micros(100);
/// No more than this of a block is dropped, to read it in one request.
const DROPPED_BYTES_MAX: u64 = BLOCK_BYTES / 2;
/// What may be read for what was read before is kept up to this.
const CREDIT_BYTES_MAX: u64 = 4 * BLOCK_BYTES;

/// A block that is read with a short read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Bytes that the device reads for it, besides those that are asked for.
    pub beside_bytes: u64,
    /// What is in memory of it is to be dropped first, and is among those bytes.
    pub is_dropped: bool,
}

/// What may be read with the short reads of a file.
#[derive(Debug, Default)]
pub(super) struct Credit {
    bytes: u64,
}

impl Credit {
    /// So many bytes were served.
    pub fn earn(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(AHEAD_PER_BYTE)).min(CREDIT_BYTES_MAX);
    }

    /// The block of a read of `bytes`, if it is read with it. `around_bytes` are in memory of what is around it, and `cached_bytes` of the block;
    /// with `may_drop` the device is [slow](SLOW), and these are dropped if they are few.
    pub fn take(
        &mut self,
        around_bytes: u64,
        bytes: u64,
        may_drop: bool,
        cached_bytes: impl FnOnce() -> Option<u64>,
    ) -> Option<Block> {
        if around_bytes < CACHED_BYTES_MIN {
            return None;
        }
        let cached_bytes = cached_bytes()?;
        let is_dropped = may_drop && (1..=DROPPED_BYTES_MAX).contains(&cached_bytes);
        let kept_bytes = if is_dropped { 0 } else { cached_bytes };
        let beside_bytes = BLOCK_BYTES.saturating_sub(kept_bytes.saturating_add(bytes));
        (1..=self.bytes).contains(&beside_bytes).then(|| {
            self.bytes -= beside_bytes;
            Block { beside_bytes, is_dropped }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    /// How many of these reads of a page waited for the device, and how many pages came to memory, as parts of their number.
    fn read(order: &[usize], pages: usize, may_drop: bool) -> (f64, f64) {
        let (mut credit, mut in_memory) = (Credit::default(), vec![false; pages]);
        let mut waited = 0;
        for &page in order {
            if !in_memory[page] {
                waited += 1;
                let part = |bytes: u64| {
                    let pages = (bytes / PAGE) as usize;
                    page - page % pages..page - page % pages + pages
                };
                let cached = |part: std::ops::Range<usize>| {
                    in_memory[part].iter().filter(|is_there| **is_there).count() as u64 * PAGE
                };
                let (around, block) = (part(AROUND_BYTES), part(BLOCK_BYTES));
                let taken = credit.take(cached(around), PAGE, may_drop, || Some(cached(block.clone())));
                let read = if taken.is_some() { block } else { page..page + 1 };
                in_memory[read].fill(true);
            }
            credit.earn(PAGE);
        }
        let asked = in_memory.iter().filter(|is_there| **is_there).count();
        [waited, asked].map(|count| count as f64 / order.len() as f64).into()
    }

    #[test]
    fn who_reads_all_of_a_file_finds_most_of_it_and_who_reads_little_has_nothing_read_for_nothing() {
        const PAGES: usize = 4096;
        // Every page once: the multiplier has no common divisor with their number.
        let order: Vec<usize> =
            (0..PAGES).map(|i| (i * 2_654_435_761) % PAGES).map(|i| (i * i + i) / 2 % PAGES).collect();
        let mut seen = order.clone();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), PAGES, "each page once");
        for may_drop in [false, true] {
            let (waited, asked) = read(&order, PAGES, may_drop);
            assert!(waited < 0.3 && asked == 1.0, "{waited}, {asked}");
            let (waited, asked) = read(&order[..PAGES / 50], PAGES, may_drop);
            assert!(waited == 1.0 && asked == 1.0, "{waited}, {asked}");
            let (waited, asked) = read(&order[..PAGES / 4], PAGES, may_drop);
            assert!(waited < 1.0 && asked < 3.0, "{waited}, {asked}");
        }
    }

    #[test]
    fn a_block_is_read_when_there_is_enough_around_it() {
        let missing = |around: u64, cached: Option<u64>| {
            let mut credit = Credit::default();
            credit.earn(BLOCK_BYTES);
            let block = credit.take(around, PAGE, false, || cached)?;
            assert!(!block.is_dropped);
            Some(block.beside_bytes)
        };
        assert_eq!(missing(CACHED_BYTES_MIN, Some(0)), Some(BLOCK_BYTES - PAGE));
        assert_eq!(missing(CACHED_BYTES_MIN, Some(3 * PAGE)), Some(BLOCK_BYTES - 4 * PAGE));
        assert_eq!(missing(CACHED_BYTES_MIN - PAGE, Some(0)), None, "too little is there");
        assert_eq!(missing(CACHED_BYTES_MIN, None), None, "the host does not tell");
        assert_eq!(missing(AROUND_BYTES, Some(BLOCK_BYTES - PAGE)), None, "there is nothing more of it");
        assert_eq!(Credit::default().take(AROUND_BYTES, PAGE, false, || Some(0)), None, "nothing was read before");
    }

    #[test]
    fn a_block_is_one_request_of_a_slow_device() {
        let taken = |cached: u64| {
            let mut credit = Credit::default();
            credit.earn(BLOCK_BYTES);
            let block = credit.take(AROUND_BYTES, PAGE, true, || Some(cached))?;
            assert_eq!(block.beside_bytes + credit.bytes, CREDIT_BYTES_MAX, "what is dropped is paid for again");
            Some((block.beside_bytes, block.is_dropped))
        };
        let all = BLOCK_BYTES - PAGE;
        assert_eq!(taken(0), Some((all, false)), "there is nothing to drop");
        assert_eq!(taken(PAGE), Some((all, true)));
        assert_eq!(taken(DROPPED_BYTES_MAX), Some((all, true)));
        assert_eq!(taken(DROPPED_BYTES_MAX + PAGE), Some((DROPPED_BYTES_MAX - 2 * PAGE, false)), "most of it is there");
        assert_eq!(taken(all), None, "nothing is missing but what is asked for");
    }

    proptest! {
        #[test]
        fn no_more_is_read_than_was_earned(
            calls in prop::collection::vec((0..=AROUND_BYTES, 0..=BLOCK_BYTES, 1..=BLOCK_BYTES, any::<bool>()), 1..200),
        ) {
            let (mut credit, mut served, mut taken) = (Credit::default(), 0, 0);
            for (around, cached, bytes, may_drop) in calls {
                taken += credit.take(around, bytes, may_drop, || Some(cached)).map_or(0, |block| block.beside_bytes);
                prop_assert!(taken <= served * AHEAD_PER_BYTE);
                credit.earn(bytes);
                served += bytes;
            }
        }
    }
}
