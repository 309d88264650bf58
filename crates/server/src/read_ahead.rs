//! Read-ahead: who reads a file from its beginning to its end finds the next bytes in memory.
//!
//! The host reads ahead for programs of its own by what each open file is asked for. Here many clients share one, and a part
//! of their requests is served only if the bytes are in memory, so the host sees no stream and every request waits for the
//! device. So the server looks for streams itself ([`FileReads`]), and has the target's engine read ahead of them. What the host
//! itself would read ahead of a stream is switched off ([`isonomia_store::StoreConfig::reads_as_asked`]): it would be read past
//! the arbiter, and others would wait and pay for it.
//!
//! # Who pays
//! The job whose stream it is. While others use the target, windows are small and are cut into *pieces*, each a request of
//! that job as any other: it waits for its turn in the arbiter, counts in the depth, and is charged for the device's time.
//! As many bytes that the job then finds in memory are paid for ([`Seen::paid_bytes`]). A read of what the device is reading
//! ahead already waits for that; it takes no slot of the depth, and had nothing of the device. While the job is alone, the host is told
//! of a whole window at once, past the arbiter: there is nobody whose time that could be.

use crate::advice::TimedAdvice;
use crate::pages::PagesOf;
use isonomia_policy::device::read_ahead::short::Block;
use isonomia_policy::device::read_ahead::{FileReads, Manner, Read, Seen};
use isonomia_units::{Bytes, JobId, Nanos};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts of the table, each with a lock of its own.
const PARTS: usize = 16;
/// Files that one part remembers at most; if there are more, it forgets all of them.
const FILES_MAX: usize = 1_024;
/// The host may take so long to drop the pages of a block on average.
const DROP_MAX: Nanos = Nanos::from_micros(60);

/// The streams of a target.
#[derive(Debug, Default)]
pub struct ReadAhead {
    parts: [Mutex<HashMap<PagesOf, FileReads>>; PARTS],
    /// Pieces that the device has, no more than it has requests in service.
    reading: Mutex<Vec<(PagesOf, Range<u64>)>>,
    /// How many of them there are, for those who need not look.
    reading_count: AtomicUsize,
    /// What dropping the pages of a block takes.
    drops: TimedAdvice,
}

/// A part of what is read ahead, as a request of the job whose stream it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// Of which file.
    pub of: PagesOf,
    /// Whose stream it is.
    pub job: JobId,
    /// Which bytes.
    pub range: Range<u64>,
    /// What it is worth: what the reads are not charged that find it in memory.
    pub work: Nanos,
}

impl Piece {
    /// How long it is.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.range.end - self.range.start)
    }
}

impl ReadAhead {
    fn reading(&self) -> MutexGuard<'_, Vec<(PagesOf, Range<u64>)>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device has a piece from now on.
    pub fn begins(&self, piece: &Piece) {
        let mut reading = self.reading();
        reading.push((piece.of, piece.range.clone()));
        self.reading_count.store(reading.len(), Ordering::Relaxed);
    }

    /// It is done with one.
    pub fn ends(&self, piece: &Piece) {
        let mut reading = self.reading();
        if let Some(at) = reading.iter().position(|(of, range)| *of == piece.of && *range == piece.range) {
            reading.swap_remove(at);
        }
        self.reading_count.store(reading.len(), Ordering::Relaxed);
    }

    /// Whether the device is reading both ends of a range of a file already: whoever wants it waits for that, and gives the
    /// device nothing to do.
    pub fn is_reading(&self, of: PagesOf, range: &Range<u64>) -> bool {
        if self.reading_count.load(Ordering::Relaxed) == 0 || range.is_empty() {
            return false;
        }
        let reading = self.reading();
        let has = |at: u64| reading.iter().any(|(other, piece)| *other == of && piece.contains(&at));
        has(range.start) && has(range.end - 1)
    }

    /// The block that is to be read with a short read of a file: see [`FileReads::block`].
    pub fn block(
        &self,
        of: PagesOf,
        around_bytes: u64,
        bytes: u64,
        may_drop: bool,
        cached_bytes: impl FnOnce() -> Option<u64>,
    ) -> Option<Block> {
        self.part(of).get_mut(&of)?.block(around_bytes, bytes, may_drop, cached_bytes)
    }

    /// Whether the host drops pages soon enough: where it asks all processors for those that they keep apart, it may take long.
    pub fn may_drop(&self) -> bool {
        self.drops.may_ask(DROP_MAX)
    }

    /// Has the host `drop` pages, and notes how long that takes.
    pub fn measure_drop(&self, drop: impl FnOnce()) {
        self.drops.measure(DROP_MAX, drop);
    }

    fn part(&self, of: PagesOf) -> MutexGuard<'_, HashMap<PagesOf, FileReads>> {
        self.parts[of.ino().0 as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A range of a file was read. `manner` is asked for how the window is brought to memory, if one is due.
    pub fn note(&self, of: PagesOf, read: Read, manner: impl FnOnce() -> Manner) -> Seen {
        let mut part = self.part(of);
        if part.len() >= FILES_MAX && !part.contains_key(&of) {
            part.clear();
        }
        part.entry(of).or_default().note(read, manner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::Ino;

    const PIECE: u64 = 64 << 10;

    fn file(number: u64) -> PagesOf {
        PagesOf::File(Ino(number))
    }

    #[test]
    fn files_have_streams_of_their_own_and_not_too_many_are_remembered() {
        let ahead = ReadAhead::default();
        let read = |number, at: u64| {
            let range = at * PIECE..(at + 1) * PIECE;
            let read = Read { job: JobId(1), range, is_from_memory: true, is_continued: false };
            ahead.note(file(number), read, || Manner::AtOnce).ahead
        };
        // What goes on in another file is no stream.
        assert!((0..100).all(|at| read(at, at).is_none()));
        assert!((1..4).any(|at| read(0, at).is_some()));
        for number in 0..2 * (PARTS * FILES_MAX) as u64 {
            read(number, 0);
        }
        assert!(ahead.parts.iter().all(|part| part.lock().unwrap().len() <= FILES_MAX));
    }

    #[test]
    fn what_the_device_has_begun_is_known() {
        let ahead = ReadAhead::default();
        let piece = |range| Piece { of: file(3), job: JobId(1), range, work: Nanos(1) };
        let (first, second) = (piece(0..2 * PIECE), piece(2 * PIECE..4 * PIECE));
        assert!(!ahead.is_reading(file(3), &(0..PIECE)));
        ahead.begins(&first);
        assert!(ahead.is_reading(file(3), &(PIECE..2 * PIECE)) && !ahead.is_reading(file(4), &(PIECE..2 * PIECE)));
        assert!(!ahead.is_reading(file(3), &(PIECE..3 * PIECE)), "a part of it waits for its turn");
        ahead.begins(&second);
        assert!(ahead.is_reading(file(3), &(PIECE..3 * PIECE)) && !ahead.is_reading(file(3), &(0..0)));
        ahead.ends(&first);
        assert!(!ahead.is_reading(file(3), &(PIECE..3 * PIECE)) && ahead.is_reading(file(3), &(3 * PIECE..4 * PIECE)));
    }
}
