//! What a program finds in memory that reads all of one file after the other in no order, while nobody is beside it.

use super::TRANSFER_BYTES;
use crate::request::Channels;
use isonomia_policy::Access;
use isonomia_policy::device::read_ahead::short::{AROUND_BYTES, BLOCK_BYTES};
use isonomia_policy::device::read_ahead::{FileReads, Manner, Read};
use isonomia_units::{Bytes, JobId};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg32;
use std::ops::Range;

/// Orders that are tried, each of one file.
const ORDERS: u64 = 16;
/// Calls of one file: one with more has too many parts for a server to remember which were read.
const CALLS_MAX: u64 = 1 << 16;
/// What is in memory is in pages.
const PAGE_BYTES: u64 = 4096;

/// What the server does for the neighbours of what was read, for each call on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Neighbours {
    /// The part of the calls that waits for the device: more than 0, 1 at most.
    pub waiting: f64,
    /// Windows that are read ahead.
    pub windows: f64,
    /// Their bytes.
    pub ahead_bytes: f64,
    /// Bytes that are read with calls that wait, in the same requests.
    pub with_bytes: f64,
}

impl Neighbours {
    /// Where nothing is read ahead.
    pub const NONE: Self = Self { waiting: 1.0, windows: 0.0, ahead_bytes: 0.0, with_bytes: 0.0 };

    /// Of files of this length, by the rules of the server. What is read ahead is taken to be in memory before the next call
    /// begins. Of each only the first `calls_max` calls are made, or all. Whether the device
    /// [`is_slow`](isonomia_policy::device::read_ahead::short::SLOW). O(`ORDERS` · calls of a file).
    pub fn of_file(file: Bytes, call: Bytes, calls_max: u64, is_slow: bool) -> Self {
        let of_file = file.0 / call.0;
        let calls = of_file.min(calls_max);
        if calls < 2 || of_file > CALLS_MAX {
            return Self::NONE;
        }
        let mut all = File::default();
        for seed in 0..ORDERS {
            let mut order: Vec<u64> = (0..of_file).collect();
            order.shuffle(&mut Pcg32::seed_from_u64(seed));
            let in_memory = vec![false; file.0.div_ceil(PAGE_BYTES) as usize];
            let mut reads = File { in_memory, is_slow, ..File::default() };
            order.into_iter().take(calls as usize).for_each(|at| reads.call(at * call.0..(at + 1) * call.0));
            all.waiting += reads.waiting;
            all.windows += reads.windows;
            all.ahead_bytes += reads.ahead_bytes;
            all.with_bytes += reads.with_bytes;
        }
        let each = |sum: u64| sum as f64 / (ORDERS * calls) as f64;
        let (ahead_bytes, with_bytes) = (each(all.ahead_bytes), each(all.with_bytes));
        Self { waiting: each(all.waiting), windows: each(all.windows), ahead_bytes, with_bytes }
    }

    /// How many calls of so many bytes the device has the time for in a second, with what is read ahead of them. Where nothing is, the
    /// simulation itself tells.
    pub fn calls_per_s_max(&self, device: &Channels, call: Bytes) -> f64 {
        if self.windows == 0.0 && self.with_bytes == 0.0 {
            return f64::INFINITY;
        }
        let requests = call.0.div_ceil(TRANSFER_BYTES);
        let waited_bytes = call.0 + (self.with_bytes / self.waiting) as u64;
        let seconds = |bytes, count| device.time_on_channel(Access::ReadRandom, bytes, count).as_secs_f64();
        let of_channels = device.count.map_or(f64::INFINITY, |count| {
            let count = count.get();
            let read = requests as f64 * seconds(Bytes(waited_bytes / requests), count);
            let window = if self.windows > 0.0 {
                self.windows * seconds(Bytes((self.ahead_bytes / self.windows) as u64), count)
            } else {
                0.0
            };
            f64::from(count) / self.waiting.mul_add(read, window)
        });
        let of_bandwidth = device.bandwidth.map_or(f64::INFINITY, |bandwidth| {
            bandwidth.bytes_per_s() as f64 / self.waiting.mul_add(call.0 as f64, self.ahead_bytes + self.with_bytes)
        });
        of_channels.min(of_bandwidth)
    }
}

/// A file that is being read, and what came of it so far.
#[derive(Default)]
struct File {
    reads: FileReads,
    /// Of each page.
    in_memory: Vec<bool>,
    is_slow: bool,
    waiting: u64,
    windows: u64,
    ahead_bytes: u64,
    with_bytes: u64,
}

impl File {
    /// The program reads a range, which are several requests if it is long.
    fn call(&mut self, range: Range<u64>) {
        let starts = range.clone().step_by(TRANSFER_BYTES as usize);
        let transfers = starts.map(|start| start..range.end.min(start + TRANSFER_BYTES));
        let transfers: Vec<_> = transfers.map(|range| (self.pages(&range).iter().all(|page| *page), range)).collect();
        self.waiting += u64::from(!transfers.iter().all(|(is_in_memory, _)| *is_in_memory));
        for (is_from_memory, transfer) in transfers {
            if !is_from_memory {
                self.read_with(&transfer);
            }
            self.pages(&transfer).fill(true);
            let is_continued = transfer.start > range.start;
            let read = Read { job: JobId(0), range: transfer, is_from_memory, is_continued };
            let Some((ahead, _)) = self.reads.note(read, || Manner::AtOnce).ahead else { continue };
            // What lies behind the end of the file, or is in memory, takes nothing of the device.
            let pages = self.pages(&ahead);
            let bytes = pages.iter().filter(|page| !**page).count() as u64 * PAGE_BYTES;
            pages.fill(true);
            self.windows += u64::from(bytes > 0);
            self.ahead_bytes += bytes;
        }
    }

    /// What is read in the same request with a read that waits.
    fn read_with(&mut self, range: &Range<u64>) {
        let bytes = range.end - range.start;
        let part = |bytes: u64| range.start - range.start % bytes..range.start - range.start % bytes + bytes;
        let block = part(BLOCK_BYTES);
        if range.end > block.end || bytes > BLOCK_BYTES / 2 {
            return;
        }
        let mut cached = |part| self.pages(&part).iter().filter(|page| **page).count() as u64 * PAGE_BYTES;
        let (around_bytes, cached_bytes) = (cached(part(AROUND_BYTES)), cached(block.clone()));
        if let Some(read) = self.reads.block(around_bytes, bytes, self.is_slow, || Some(cached_bytes)) {
            let pages = self.pages(&block);
            let read_pages = pages.iter().filter(|page| read.is_dropped || !**page).count() as u64;
            pages.fill(true);
            self.with_bytes += (read_pages * PAGE_BYTES).saturating_sub(bytes);
        }
    }

    /// The pages of a range, as far as they are in the file.
    fn pages(&mut self, range: &Range<u64>) -> &mut [bool] {
        let len = self.in_memory.len();
        let [start, end] = [range.start / PAGE_BYTES, range.end.div_ceil(PAGE_BYTES)].map(|at| len.min(at as usize));
        &mut self.in_memory[start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_comes_from_the_device_once() {
        for (file, call) in [(16 << 20, 256 << 10), (16 << 20, 64 << 10), (32 << 20, 1 << 20), (16 << 20, 4 << 10)] {
            let [fast, slow] = [false, true].map(|is_slow| {
                let Neighbours { waiting, windows, ahead_bytes, with_bytes } =
                    Neighbours::of_file(Bytes(file), Bytes(call), u64::MAX, is_slow);
                assert!(waiting > 0.0 && waiting <= 1.0 && windows <= 1.0, "{call}: {waiting}, {windows}");
                // A call waits that finds some of its bytes only.
                let bytes = waiting.mul_add(call as f64, ahead_bytes + with_bytes) / call as f64;
                assert!((1.0..1.3).contains(&bytes), "{call}: {bytes} of what is read");
                bytes
            });
            // Where the device is slow what was dropped comes twice.
            assert!(if call == 4 << 10 { slow > fast + 0.1 } else { slow == fast }, "{call}: {fast}, {slow}");
        }
    }

    #[test]
    fn most_short_calls_find_what_was_read_with_others() {
        let of = |call: u64| Neighbours::of_file(Bytes(16 << 20), Bytes(call), u64::MAX, false);
        let (short, long) = (of(4 << 10), of(64 << 10));
        assert!(short.windows < 0.01 && (0.22..0.27).contains(&short.waiting), "{short:?}");
        assert!(long.with_bytes == 0.0, "{long:?}");
        // Who has read a tenth of it found nothing.
        let begun = Neighbours::of_file(Bytes(16 << 20), Bytes(4 << 10), 409, false);
        assert!(begun.waiting > 0.99 && begun.with_bytes < 200.0, "{begun:?}");
    }

    #[test]
    fn there_are_none_in_a_file_of_one_call_or_of_too_many() {
        for (file, call) in [(4096, 4096), (4095, 4096), (1 << 40, 4096)] {
            assert_eq!(Neighbours::of_file(Bytes(file), Bytes(call), u64::MAX, true), Neighbours::NONE);
        }
    }
}
