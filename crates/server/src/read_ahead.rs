//! Read-ahead: who reads a file from its beginning to its end finds the next bytes in memory.
//!
//! The host reads ahead for programs of its own by what each open file is asked for. Here many clients share one, and a part
//! of their requests is served only if the bytes are in memory, so the host sees no stream and every request waits for the
//! device. So the server looks for streams itself: reads that go on where others ended. When a stream was seen twice,
//! the target's engine has the host read a window ahead of it, which doubles up to [`WINDOW_BYTES_MAX`] as long as the stream
//! goes on.
//!
//! # What is guaranteed
//! Only reads that were served count. What is read ahead is at most [`AHEAD_PER_BYTE`] times the bytes that the reader was
//! served, whatever he does: so his turns, which the policy gives, bound it, and nobody is charged. Reads of pieces of a file in any order within [`NEAR_BYTES`] are one stream;
//! there are [`STREAMS_MAX`] of one file at most.

use isonomia_units::Ino;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The first window.
const WINDOW_BYTES_MIN: u64 = 512 << 10;
/// The largest.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// So many bytes are read ahead for each that was read, at most: some of them may be skipped, but reads of single bytes far
/// apart do not keep the device busy.
const AHEAD_PER_BYTE: u64 = 4;
/// A client has several requests under way, which may come in any order.
const NEAR_BYTES: u64 = 1 << 20;
/// Streams of one file.
const STREAMS_MAX: usize = 8;
/// Parts of the table, each with a lock of its own.
const PARTS: usize = 16;
/// Files that one part remembers at most; if there are more, it forgets all of them.
const FILES_MAX: usize = 1_024;

/// The streams of a target.
#[derive(Debug, Default)]
pub struct ReadAhead {
    parts: [Mutex<HashMap<Ino, Vec<Stream>>>; PARTS],
}

#[derive(Debug)]
struct Stream {
    /// Behind the last byte that was read.
    next: u64,
    /// Behind the last byte that was read ahead.
    ahead: u64,
    /// Nothing before the stream was seen again.
    window_bytes: u64,
    /// What may be read ahead for what was read, of which no more than one window is kept for later.
    credit_bytes: u64,
}

impl Stream {
    fn earn(&mut self, bytes: u64) {
        self.credit_bytes =
            self.credit_bytes.saturating_add(bytes.saturating_mul(AHEAD_PER_BYTE)).min(WINDOW_BYTES_MAX);
    }
}

impl ReadAhead {
    /// A range of a file was read. What is to be read ahead now.
    pub fn reads(&self, ino: Ino, range: Range<u64>) -> Option<Range<u64>> {
        let bytes = range.end.saturating_sub(range.start);
        let mut part = self.parts[ino.0 as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner);
        if part.len() >= FILES_MAX && !part.contains_key(&ino) {
            part.clear();
        }
        let streams = part.entry(ino).or_default();
        let Some(at) = streams.iter().position(|stream| stream.next.abs_diff(range.start) <= NEAR_BYTES) else {
            // The one that was used least recently goes.
            streams.truncate(STREAMS_MAX - 1);
            let mut stream = Stream { next: range.end, ahead: 0, window_bytes: 0, credit_bytes: 0 };
            stream.earn(bytes);
            streams.insert(0, stream);
            return None;
        };
        streams[..=at].rotate_right(1);
        let stream = &mut streams[0];
        stream.earn(bytes);
        let goes_on = range.end > stream.next;
        stream.next = stream.next.max(range.end);
        if !goes_on {
            return None;
        }
        if stream.window_bytes == 0 {
            stream.window_bytes = WINDOW_BYTES_MIN;
            return None;
        }
        let is_far_ahead = stream.ahead.saturating_sub(stream.next) > stream.window_bytes / 2;
        if is_far_ahead || stream.credit_bytes < WINDOW_BYTES_MIN {
            return None;
        }
        let from = stream.ahead.max(stream.next);
        stream.window_bytes = (stream.window_bytes * 2).min(WINDOW_BYTES_MAX);
        let end = stream.next.saturating_add(stream.window_bytes).min(from.saturating_add(stream.credit_bytes));
        stream.credit_bytes -= end - from;
        stream.ahead = end;
        Some(from..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = 64 << 10;

    #[test]
    fn a_stream_is_read_ahead_in_windows_that_grow() {
        let ahead = ReadAhead::default();
        let mut known = 0;
        let mut windows = Vec::new();
        for i in 0..1_000 {
            // Pairs in the wrong order, as they may come.
            let at = (i ^ 1) * PIECE;
            if let Some(range) = ahead.reads(Ino(3), at..at + PIECE) {
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
        let ahead = ReadAhead::default();
        for i in 0..1_000u64 {
            let at = i * 7_919 % 1_000 * (3 << 20);
            assert_eq!(ahead.reads(Ino(3), at..at + 4096), None);
        }
        // Nor is what is read again and again.
        for _ in 0..100 {
            assert_eq!(ahead.reads(Ino(4), 4096..8192), None);
        }
    }

    #[test]
    fn small_reads_far_apart_have_little_read_ahead() {
        for len in [1, 4096, PIECE] {
            let ahead = ReadAhead::default();
            let ranges = (0..1_000).filter_map(|i| ahead.reads(Ino(3), i * NEAR_BYTES..i * NEAR_BYTES + len));
            let bytes: u64 = ranges.map(|range| range.end - range.start).sum();
            assert!(bytes <= 1_000 * len * AHEAD_PER_BYTE, "{bytes} for 1000 times {len}");
        }
    }

    #[test]
    fn several_readers_of_a_file_have_streams_of_their_own() {
        let ahead = ReadAhead::default();
        let starts: Vec<u64> = (0..STREAMS_MAX as u64).map(|i| i << 30).collect();
        let mut found = [0; STREAMS_MAX];
        for i in 0..100 {
            for (start, found) in starts.iter().zip(&mut found) {
                *found += usize::from(ahead.reads(Ino(3), start + i * PIECE..start + (i + 1) * PIECE).is_some());
            }
        }
        assert!(found.iter().all(|found| *found >= 2), "{found:?}");
        for file in 0..2 * (PARTS * FILES_MAX) as u64 {
            ahead.reads(Ino(file), 0..1);
        }
        assert!(ahead.parts.iter().all(|part| part.lock().unwrap().len() <= FILES_MAX));
    }
}
