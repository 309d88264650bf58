//! How much was written to each file since it was last put on stable storage: what an fsync of it has to flush.
//!
//! Whoever wrote it has been charged for bringing the bytes into memory. Flushing them is another piece of work, and is
//! charged to whoever asks for it; what was written back before ([`crate::write_back`]) is no part of it: its writer has
//! paid for that. On a capped target a write takes the emulated device's time, and
//! nothing is left to flush; and nothing ever is where the files are in memory.

use isonomia_store::WriteMode;
use isonomia_units::{Bytes, Ino};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What one fsync is charged for at most: of more than this the kernel has flushed the rest meanwhile.
const FLUSH_MAX: Bytes = Bytes(1 << 30);
/// Parts of the table, each with a lock of its own.
const PARTS: usize = 16;
/// Files that one part remembers at most; if there are more, it forgets all of them.
const FILES_MAX: usize = 4_096;

/// Bytes by file.
#[derive(Debug)]
pub struct Unsynced {
    /// Whether anything can be put on stable storage.
    has_storage: bool,
    parts: [Mutex<HashMap<Ino, u64>>; PARTS],
}

impl Unsynced {
    /// Of nothing yet. `has_storage` is false where files are in memory: then nothing is counted.
    pub fn new(has_storage: bool) -> Self {
        Self { has_storage, parts: Default::default() }
    }

    fn part(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, u64>> {
        self.parts[ino.0 as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes of `ino` were written.
    pub fn wrote(&self, ino: Ino, bytes: Bytes) {
        if !self.has_storage {
            return;
        }
        let mut part = self.part(ino);
        if part.len() >= FILES_MAX && !part.contains_key(&ino) {
            part.clear();
        }
        let unsynced = part.entry(ino).or_insert(0);
        *unsynced = unsynced.saturating_add(bytes.0);
    }

    /// The same of a write in this mode: what went past the page cache is on the device.
    pub fn wrote_as(&self, mode: WriteMode, ino: Ino, bytes: Bytes) {
        if mode == WriteMode::Usual {
            self.wrote(ino, bytes);
        }
    }

    /// So many bytes of `ino` were brought to the device, as far as it is known.
    pub fn written_back(&self, ino: Ino, bytes: Bytes) {
        if let Some(unsynced) = self.part(ino).get_mut(&ino) {
            *unsynced = unsynced.saturating_sub(bytes.0);
        }
    }

    /// What a flush of `ino` would bring to the device, as far as it is known.
    pub fn of(&self, ino: Ino) -> Bytes {
        Bytes(self.part(ino).get(&ino).copied().unwrap_or(0))
    }

    /// `ino` was put on stable storage: what that is charged for.
    pub fn synced(&self, ino: Ino) -> Bytes {
        Bytes(self.part(ino).remove(&ino).unwrap_or(0)).min(FLUSH_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_counts_what_was_written_since_the_last_one() {
        let unsynced = Unsynced::new(true);
        unsynced.wrote(Ino(1), Bytes(3));
        unsynced.wrote_as(WriteMode::Usual, Ino(1), Bytes(4));
        unsynced.wrote_as(WriteMode::Direct, Ino(1), Bytes(100));
        unsynced.wrote(Ino(17), Bytes(5));
        unsynced.wrote(Ino(17), Bytes(9));
        unsynced.written_back(Ino(17), Bytes(9));
        assert_eq!([1, 1, 17].map(|ino| unsynced.synced(Ino(ino))), [Bytes(7), Bytes(0), Bytes(5)]);
        unsynced.wrote(Ino(1), Bytes(u64::MAX));
        unsynced.wrote(Ino(1), Bytes(1));
        assert_eq!(unsynced.synced(Ino(1)), FLUSH_MAX);
    }

    #[test]
    fn files_that_are_never_flushed_take_a_bounded_room() {
        let unsynced = Unsynced::new(true);
        for file in 0..3 * FILES_MAX {
            unsynced.wrote(Ino((file * PARTS) as u64), Bytes(1));
        }
        assert!(unsynced.part(Ino(0)).len() <= FILES_MAX);
    }
}
