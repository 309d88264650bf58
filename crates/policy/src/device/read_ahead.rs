//! Which bytes a server reads ahead for whom: who reads a file from its beginning to its end finds the next ones in memory.
//!
//! Reads that go on where others ended are a stream. When one was seen twice, a window ahead of it is read, which doubles up to
//! [`WINDOW_BYTES_MAX`] as long as the stream goes on. While others use the device, windows are small and are cut into pieces, and
//! whose stream it is pays for them. Then little may be read for nothing, so a stream must skip little ([`LEFT_OUT_BYTES_MAX`]), or the latest
//! reads of the file must lie close together ([`LATEST_READS`]): in a small file all reads are near each other, also those in no order.
//!
//! Who reads all of a file in no order is known by what he has read before ([`history`]): a read right behind such a part has the
//! next bytes read ahead, about as many as that part is long. Only while the job is alone: half of them may be read for nothing.
//! Short reads have the block read that they are in, by what of it is in memory ([`short`]).
//!
//! # What is guaranteed
//! Only reads that were served count. What is read ahead is at most [`AHEAD_PER_BYTE`] times the bytes that the reader was
//! served, whatever he does. Reads of one job of pieces of a file in any order within [`NEAR_BYTES`] are one stream; there are
//! [`STREAMS_MAX`] of one file at most.

mod history;
pub mod short;

use super::chunks::PIECE_BYTES_MAX;
use history::History;
use isonomia_units::JobId;
use std::collections::VecDeque;
use std::ops::Range;

/// The first window.
const WINDOW_BYTES_MIN: u64 = PIECE_BYTES_MAX;
/// The largest.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// So many bytes are read ahead for each that was read, at most: some of them may be skipped, but reads of single bytes far
/// apart do not keep the device busy.
const AHEAD_PER_BYTE: u64 = 4;
/// A client has several requests under way, which may come in any order.
const NEAR_BYTES: u64 = 1 << 20;
/// A stream that has left out more than this is none for which others wait: half of what may come in any order. A new one is taken to have
/// left out as much, so that it must not leave out any more before it has read on.
const LEFT_OUT_BYTES_MAX: u64 = NEAR_BYTES / 2;
/// More left out is not remembered, so that who begins to read one piece behind the other is soon known.
const LEFT_OUT_BYTES_NOTED: u64 = 4 * LEFT_OUT_BYTES_MAX;
/// Many processes that read a file together, each the next piece, are several streams here, each of which leaves out what the others have read. So
/// others wait for their read-ahead, too, if so many reads in a row lie close together: …
const LATEST_READS: usize = 16;
/// … if the part of the file that these are in is no more than so many times what they read.
const SPREAD_MAX: u64 = 3;
/// A client brings what a program reads at once in pieces of this length, if it is longer, one behind the other.
const TRANSFER_PIECE_BYTES: u64 = 256 << 10;
/// That these follow each other for so long says nothing about what the program will read next.
const TRANSFER_BYTES: u64 = 1 << 20;
/// Streams of one file.
const STREAMS_MAX: usize = 8;
/// What was read of a file.
#[derive(Debug, Default)]
pub struct FileReads {
    /// The one that was used last comes first.
    streams: Vec<Stream>,
    /// The latest reads, in the order in which they came.
    latest: VecDeque<(JobId, Range<u64>)>,
    history: History,
    short: short::Credit,
}

/// How a window is brought to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// At once, past the arbiter: the job is alone.
    AtOnce,
    /// In pieces of so many bytes.
    InPieces(u64),
}

/// A range of a file that a job was served.
#[derive(Clone, Debug)]
pub struct Read {
    /// Whose read it was.
    pub job: JobId,
    /// Which bytes.
    pub range: Range<u64>,
    /// Whether they were in memory.
    pub is_from_memory: bool,
    /// Whether it is a later part of a call that is too long for one request. That it lies behind other parts of the call, which may
    /// have ended before, says nothing about what the program will read next.
    pub is_continued: bool,
}

/// What a read has to do with a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What is to be read ahead now, and how.
    pub ahead: Option<(Range<u64>, Manner)>,
    /// Bytes of the read that were paid for when they were read ahead.
    pub paid_bytes: u64,
}

#[derive(Debug)]
struct Stream {
    /// Whose it is.
    job: JobId,
    /// Behind the last byte that was read.
    next: u64,
    /// Bytes that were read.
    read_bytes: u64,
    /// Bytes that were passed over, less those that were read since: about what the stream has left out. Of one whose pieces come in any order
    /// all are read in the end; who reads here and there passes over more than he comes back to.
    left_out_bytes: u64,
    /// Behind the last byte that was read ahead.
    ahead: u64,
    /// Nothing before the stream was seen again.
    window_bytes: u64,
    /// What may be read ahead for what was read, of which no more than one window is kept for later.
    credit_bytes: u64,
    /// What was read ahead in pieces, and not found in memory yet.
    paid_bytes: u64,
}

impl Stream {
    fn new(job: JobId, next: u64) -> Self {
        let left_out_bytes = LEFT_OUT_BYTES_MAX;
        Self { job, next, read_bytes: 0, left_out_bytes, ahead: 0, window_bytes: 0, credit_bytes: 0, paid_bytes: 0 }
    }

    fn earn(&mut self, bytes: u64) {
        self.read_bytes = self.read_bytes.saturating_add(bytes);
        self.credit_bytes =
            self.credit_bytes.saturating_add(bytes.saturating_mul(AHEAD_PER_BYTE)).min(WINDOW_BYTES_MAX);
    }

    /// Whether a window is to be read ahead, now that a range was read.
    fn is_due(&mut self, range: &Range<u64>) -> bool {
        let (end, bytes) = (range.end, range.end.saturating_sub(range.start));
        let goes_on = end > self.next;
        let passed_bytes = range.start.saturating_sub(self.next);
        // Who passes over less than he reads is read ahead for, little of it for nothing.
        self.left_out_bytes = if passed_bytes > bytes {
            (self.left_out_bytes + passed_bytes).min(LEFT_OUT_BYTES_NOTED)
        } else {
            self.left_out_bytes.saturating_sub(bytes - passed_bytes)
        };
        self.next = self.next.max(end);
        let is_one_transfer = bytes >= TRANSFER_PIECE_BYTES && self.read_bytes <= TRANSFER_BYTES;
        if !goes_on || is_one_transfer {
            return false;
        }
        if self.window_bytes == 0 {
            self.window_bytes = WINDOW_BYTES_MIN;
            return false;
        }
        let is_far_ahead = self.ahead.saturating_sub(self.next) > self.window_bytes / 2;
        !is_far_ahead && self.credit_bytes >= WINDOW_BYTES_MIN
    }

    /// The next window.
    fn window(&mut self, manner: Manner) -> Range<u64> {
        let from = self.ahead.max(self.next);
        self.window_bytes = match manner {
            Manner::AtOnce => (self.window_bytes * 2).min(WINDOW_BYTES_MAX),
            Manner::InPieces(_) => PIECE_BYTES_MAX,
        };
        let end = self.next.saturating_add(self.window_bytes).min(from.saturating_add(self.credit_bytes)).max(from);
        self.credit_bytes -= end - from;
        self.ahead = end;
        if let Manner::InPieces(_) = manner {
            self.paid_bytes = self.paid_bytes.saturating_add(end - from).min(WINDOW_BYTES_MAX);
        }
        from..end
    }

    /// The next window of who reads all of a file in no order, and has read `known` of it: behind that, and no longer. None if most
    /// of it was read ahead already.
    fn window_behind(&self, known: &Range<u64>) -> Option<Range<u64>> {
        let bytes = (known.end - known.start).min(WINDOW_BYTES_MAX);
        let is_ahead = (known.end..=known.end.saturating_add(WINDOW_BYTES_MAX)).contains(&self.ahead);
        let from = if is_ahead { self.ahead } else { known.end };
        let end = known.end.saturating_add(bytes).min(from.saturating_add(self.credit_bytes));
        (from - known.end <= bytes / 2 && from < end).then_some(from..end)
    }

    /// Takes what was paid of a read of so many bytes.
    fn take_paid(&mut self, bytes: u64) -> u64 {
        let paid_bytes = self.paid_bytes.min(bytes);
        self.paid_bytes -= paid_bytes;
        paid_bytes
    }
}

impl FileReads {
    /// The block of a read of `bytes` that waits for the device, if it is to be read with it. `around_bytes` of what is around it are in memory, and
    /// `cached_bytes` of the block; with `may_drop` the device is [slow](short::SLOW), and these are dropped if they are few.
    pub fn block(
        &mut self,
        around_bytes: u64,
        bytes: u64,
        may_drop: bool,
        cached_bytes: impl FnOnce() -> Option<u64>,
    ) -> Option<short::Block> {
        self.short.take(around_bytes, bytes, may_drop, cached_bytes)
    }

    /// Whether the latest reads of the file were all of `job`, and lie close together.
    fn are_close(latest: &VecDeque<(JobId, Range<u64>)>, job: JobId) -> bool {
        if latest.len() < LATEST_READS || latest.iter().any(|(reader, _)| *reader != job) {
            return false;
        }
        let ranges = latest.iter().map(|(_, range)| range);
        let (mut from, mut to, mut bytes) = (u64::MAX, 0, 0_u64);
        for range in ranges {
            (from, to) = (from.min(range.start), to.max(range.end));
            bytes = bytes.saturating_add(range.end.saturating_sub(range.start));
        }
        to.saturating_sub(from) <= bytes.saturating_mul(SPREAD_MAX)
    }

    /// A range of the file was read. `manner` is asked for how the window is brought to memory, if one is due.
    /// O([`STREAMS_MAX`] + [`LATEST_READS`] + parts that are remembered).
    pub fn note(&mut self, read: Read, manner: impl FnOnce() -> Manner) -> Seen {
        let Self { streams, latest, history, short } = self;
        let Read { job, range, is_from_memory, is_continued } = read;
        if latest.len() >= LATEST_READS {
            latest.pop_front();
        }
        latest.push_back((job, range.clone()));
        let bytes = range.end.saturating_sub(range.start);
        short.earn(bytes);
        let is_part = |stream: &Stream| stream.job == job && stream.next.abs_diff(range.start) <= NEAR_BYTES;
        let at = streams.iter().position(is_part);
        match at {
            Some(at) => streams[..=at].rotate_right(1),
            None => {
                // The one that was used least recently goes.
                streams.truncate(STREAMS_MAX - 1);
                streams.insert(0, Stream::new(job, range.end));
            }
        }
        let stream = &mut streams[0];
        stream.earn(bytes);
        // What goes on where it ended last is a stream.
        let goes_on = at.is_some() && stream.next == range.start;
        let is_due = at.is_some() && stream.is_due(&range);
        let paid_bytes = if is_from_memory { stream.take_paid(bytes) } else { 0 };
        let is_noted = bytes >= history::READ_BYTES_MIN;
        let known = is_noted.then(|| history.note(&range, is_from_memory));
        // In the middle of what is in memory nothing is missing.
        let is_at_edge = |end: u64| !is_from_memory || end == range.end;
        let known =
            known.filter(|(before_bytes, end)| !goes_on && !is_continued && *before_bytes >= bytes && is_at_edge(*end));
        let behind = known.and_then(|(before_bytes, end)| stream.window_behind(&(range.start - before_bytes..end)));
        let ahead = if is_due {
            let manner = manner();
            let is_stream = stream.left_out_bytes <= LEFT_OUT_BYTES_MAX;
            (manner == Manner::AtOnce || is_stream || Self::are_close(latest, job))
                .then(|| (stream.window(manner), manner))
        } else if let Some(window) = behind
            && manner() == Manner::AtOnce
        {
            stream.credit_bytes -= window.end - window.start;
            stream.ahead = window.end;
            Some((window, Manner::AtOnce))
        } else {
            None
        };
        Seen { ahead: ahead.filter(|(range, _)| !range.is_empty()), paid_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg32;

    const PIECE: u64 = 64 << 10;

    fn note(reads: &mut FileReads, job: JobId, range: Range<u64>, is_from_memory: bool, manner: Manner) -> Seen {
        reads.note(Read { job, range, is_from_memory, is_continued: false }, || manner)
    }

    /// By a job that is alone.
    fn read(reads: &mut FileReads, range: Range<u64>) -> Option<Range<u64>> {
        note(reads, JobId(1), range, true, Manner::AtOnce).ahead.map(|(range, _)| range)
    }

    #[test]
    fn a_stream_is_read_ahead_in_windows_that_grow() {
        let mut reads = FileReads::default();
        let mut known = 0;
        let mut windows = Vec::new();
        for i in 0..1_000 {
            // Pairs in the wrong order, as they may come.
            let at = (i ^ 1) * PIECE;
            if let Some(range) = read(&mut reads, at..at + PIECE) {
                assert!(range.start >= known && range.end <= at + 2 * PIECE + WINDOW_BYTES_MAX, "{range:?}");
                known = range.end;
                windows.push(range.end - range.start);
            }
            assert!(i < 8 || known > at + PIECE, "{known} at {at}");
        }
        assert!(windows[0] < 2 * WINDOW_BYTES_MIN + PIECE && windows.len() < 40, "{windows:?}");
    }

    #[test]
    fn reads_here_and_there_are_no_stream() {
        let mut reads = FileReads::default();
        for i in 0..1_000u64 {
            let at = i * 7_919 % 1_000 * (3 << 20);
            assert_eq!(read(&mut reads, at..at + 4096), None);
        }
        // Nor is what is read again and again.
        let mut other = FileReads::default();
        for _ in 0..100 {
            assert_eq!(read(&mut other, 4096..8192), None);
        }
    }

    #[test]
    fn pieces_of_one_large_read_are_no_stream() {
        let mut reads = FileReads::default();
        let mut read_large =
            |at: u64| (0..4u64).any(|i| read(&mut reads, at + (i << 18)..at + ((i + 1) << 18)).is_some());
        assert!((0..100).all(|i| !read_large(i * 7_919 % 1_000 * (8 << 20))));
        // Large reads one behind the other are.
        assert!((0..8).any(|i| read_large((16 << 30) + (i << 20))));
    }

    #[test]
    fn parts_of_large_calls_that_end_in_any_order_are_no_reason_to_read_ahead() {
        for order in [[0u64, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let mut reads = FileReads::default();
            let mut part = |at: u64, part: u64| {
                let start = at + (part << 18);
                let range = start..start + (1 << 18);
                let read = Read { job: JobId(1), range, is_from_memory: false, is_continued: part > 0 };
                reads.note(read, || Manner::AtOnce).ahead
            };
            for i in 0..100 {
                let at = i * 7_919 % 1_000 * (8 << 20);
                let ahead: Vec<_> = order.into_iter().filter_map(|piece| part(at, piece)).collect();
                assert_eq!(ahead, [], "{order:?}, {i}");
            }
            // A call behind another one is, with whichever part the server learns of it.
            assert!(order.into_iter().any(|piece| part(1 << 20, piece).is_some()), "{order:?}");
        }
    }

    #[test]
    fn small_reads_far_apart_have_little_read_ahead() {
        for len in [1, 4096, PIECE] {
            let mut reads = FileReads::default();
            let ranges = (0..1_000).filter_map(|i| read(&mut reads, i * NEAR_BYTES..i * NEAR_BYTES + len));
            let bytes: u64 = ranges.map(|range| range.end - range.start).sum();
            assert!(bytes <= 1_000 * len * AHEAD_PER_BYTE, "{bytes} for 1000 times {len}");
        }
    }

    #[test]
    fn who_reads_all_of_a_file_in_no_order_has_neighbours_read_ahead() {
        let (mut reads, blocks, block) = (FileReads::default(), 64u64, 256 << 10);
        let mut read = |at: u64| note(&mut reads, JobId(1), at..at + block, false, Manner::AtOnce).ahead;
        let (mut in_memory, mut asked, mut ahead_bytes) = (vec![false; blocks as usize], 0, 0);
        for i in 0..blocks {
            let at = i * 37 % blocks;
            asked += u64::from(!in_memory[at as usize]);
            let Some((range, _)) = read(at * block) else { continue };
            ahead_bytes += range.end - range.start;
            (range.start / block..(range.end / block).min(blocks)).for_each(|at| in_memory[at as usize] = true);
        }
        assert!(asked <= blocks * 3 / 4, "{asked} of {blocks} waited for the device");
        assert!(ahead_bytes <= blocks * block * AHEAD_PER_BYTE, "{ahead_bytes}");
        // In the middle of what is in memory nothing is missing.
        let mut reads = FileReads::default();
        let mut read = |range| note(&mut reads, JobId(1), range, true, Manner::AtOnce).ahead;
        read(0..128 << 20);
        assert!((1..128u64).map(|i| (i * 9 % 128) << 20).all(|at| read(at..at + PIECE).is_none()));
        // Two neighbours, and others between them; while others use the target nothing is read for nothing.
        for (manner, is_due) in [(Manner::AtOnce, true), (Manner::InPieces(PIECE), false)] {
            let mut reads = FileReads::default();
            let mut read = |at: u64| note(&mut reads, JobId(1), at..at + PIECE, false, manner).ahead;
            let (first, second) = (8 << 30, (8 << 30) + PIECE);
            let others = (0..STREAMS_MAX as u64).map(|i| i << 28);
            assert!(std::iter::once(first).chain(others).all(|at| read(at).is_none()));
            assert_eq!(read(second).map(|(range, _)| range.start), is_due.then_some(second + PIECE));
        }
    }

    /// Blocks of `len` of the first `bytes` of a file, in an order in which each is before another one by chance.
    fn in_no_order(bytes: u64, len: u64, seed: u64) -> Vec<u64> {
        let mut offsets: Vec<u64> = (0..bytes / len).map(|at| at * len).collect();
        offsets.shuffle(&mut Pcg32::seed_from_u64(seed));
        offsets
    }

    /// What is read ahead while others use the target, of a job that reads these blocks.
    fn ahead_in_pieces(reads: &mut FileReads, offsets: &[u64], len: u64) -> u64 {
        let mut ahead_bytes = 0;
        for at in offsets {
            let seen = note(reads, JobId(1), *at..at + len, false, Manner::InPieces(PIECE));
            ahead_bytes += seen.ahead.map_or(0, |(range, _)| range.end - range.start);
        }
        ahead_bytes
    }

    #[test]
    fn while_others_wait_little_is_read_ahead_of_who_reads_a_small_file_in_no_order() {
        // Each read is near another one there.
        const BYTES: u64 = 16 << 20;
        for len in [4 << 10, PIECE, 128 << 10, 256 << 10] {
            let mut reads = FileReads::default();
            let ahead_bytes: u64 =
                (0..20).map(|pass| ahead_in_pieces(&mut reads, &in_no_order(BYTES, len, pass), len)).sum();
            assert!(ahead_bytes * 10 < 20 * BYTES, "{ahead_bytes} of {} bytes, reads of {len}", 20 * BYTES);
            // Who then reads it from its beginning to its end is read ahead for.
            let in_order: Vec<u64> = (0..BYTES / len).map(|at| at * len).collect();
            let ahead_bytes = ahead_in_pieces(&mut reads, &in_order, len);
            assert!(ahead_bytes * 4 > BYTES * 3, "{ahead_bytes} of {BYTES} bytes, reads of {len}");
        }
    }

    #[test]
    fn while_others_wait_a_stream_is_read_ahead_of_whose_pieces_come_in_any_order() {
        const BYTES: u64 = 256 << 20;
        for (len, window) in [(PIECE, 8 * PIECE), (256 << 10, 512 << 10), (4 << 10, 64 << 10)] {
            let windows = (0..BYTES / window).map(|at| (at * window, in_no_order(window, len, at)));
            let offsets: Vec<u64> =
                windows.flat_map(|(start, offsets)| offsets.into_iter().map(move |at| start + at)).collect();
            let ahead_bytes = ahead_in_pieces(&mut FileReads::default(), &offsets, len);
            assert!(ahead_bytes * 10 > BYTES * 9, "{ahead_bytes} of {BYTES} bytes, {len} in {window}");
        }
    }

    #[test]
    fn while_others_wait_a_file_is_read_ahead_of_which_many_processes_read_each_the_next_piece() {
        const READS: usize = 4_000;
        let cases =
            [(4, 256 << 10, 0.9), (8, PIECE, 0.9), (8, 256 << 10, 0.6), (16, PIECE, 0.9), (16, 256 << 10, 0.25)];
        for (processes, len, least) in cases {
            let mut random = Pcg32::seed_from_u64(1);
            let mut under_way: Vec<u64> = (0..processes).collect();
            let mut offsets = Vec::new();
            for next in processes..processes + READS as u64 {
                let ends = random.random_range(0..under_way.len());
                offsets.push(std::mem::replace(&mut under_way[ends], next) * len);
            }
            let ahead_bytes = ahead_in_pieces(&mut FileReads::default(), &offsets, len);
            let part = ahead_bytes as f64 / (READS as u64 * len) as f64;
            assert!(part >= least, "{part} of what {processes} processes read by {len}");
        }
    }

    #[test]
    fn while_others_wait_a_stream_is_read_ahead_that_leaves_out_less_than_it_reads() {
        for (len, stride) in [(60 << 10, PIECE), (252 << 10, 256 << 10), (PIECE, 2 * PIECE)] {
            let offsets: Vec<u64> = (0..1_000).map(|at| at * stride).collect();
            let ahead_bytes = ahead_in_pieces(&mut FileReads::default(), &offsets, len);
            assert!(ahead_bytes * 10 > 1_000 * stride * 9, "{ahead_bytes} bytes, {len} of {stride}");
            // Of who leaves out more than that, what he leaves out would be read.
            let ahead_bytes = ahead_in_pieces(&mut FileReads::default(), &offsets, stride / 4);
            assert!(ahead_bytes * 20 < 1_000 * stride, "{ahead_bytes} bytes, a quarter of {stride}");
        }
    }

    #[test]
    fn several_readers_of_a_file_have_streams_of_their_own() {
        let mut reads = FileReads::default();
        let starts: Vec<u64> = (0..STREAMS_MAX as u64).map(|i| i << 30).collect();
        let mut found = [0; STREAMS_MAX];
        for i in 0..100 {
            for (start, found) in starts.iter().zip(&mut found) {
                *found += usize::from(read(&mut reads, start + i * PIECE..start + (i + 1) * PIECE).is_some());
            }
        }
        assert!(found.iter().all(|found| *found >= 2), "{found:?}");
    }

    #[test]
    fn a_job_that_is_not_alone_has_small_windows_and_pays_for_each_byte_once() {
        let mut reads = FileReads::default();
        let (mut ahead_bytes, mut paid_bytes) = (0, 0);
        for i in 0..1_000 {
            let range = i * PIECE..(i + 1) * PIECE;
            let seen = note(&mut reads, JobId(1), range.clone(), true, Manner::InPieces(PIECE));
            if let Some((range, manner)) = seen.ahead {
                assert!(range.end - range.start <= PIECE_BYTES_MAX && manner == Manner::InPieces(PIECE), "{range:?}");
                ahead_bytes += range.end - range.start;
            }
            paid_bytes += seen.paid_bytes;
            // Another job's read of the same bytes is no part of the stream.
            let other = note(&mut reads, JobId(2), range, true, Manner::AtOnce);
            assert_eq!(other.paid_bytes, 0);
        }
        assert!(paid_bytes > 990 * PIECE && paid_bytes <= ahead_bytes, "{paid_bytes} of {ahead_bytes}");
        // Nor is it paid for again.
        let again = |_| note(&mut reads, JobId(1), 999 * PIECE..1_000 * PIECE, true, Manner::AtOnce).paid_bytes;
        let again_bytes: u64 = (0..1_000).map(again).sum();
        assert!(again_bytes <= PIECE_BYTES_MAX, "{again_bytes}");
        // A read that had to wait for the device is charged for it.
        let mut reads = FileReads::default();
        let mut waits = |i| note(&mut reads, JobId(1), i * PIECE..(i + 1) * PIECE, false, Manner::InPieces(PIECE));
        assert!((0..100).all(|i| waits(i).paid_bytes == 0));
    }
}
