//! Which blocks of an object are being written at the moment.
//!
//! A writer claims its blocks, lets go of the lock while the host writes, and takes it again to store the entries. So
//! writes to different blocks of one object are under way at once, and who has claimed a block has it alone. Whatever
//! needs the whole object waits until nothing is written, and as long as it waits nobody begins.

use super::{Guarded, Sums, Writing};
use std::ops::Range;
use std::sync::{MutexGuard, PoisonError, TryLockError};

/// The claims on one object.
#[derive(Default)]
pub(super) struct Ranges {
    /// They have no block in common.
    written: Vec<Range<u64>>,
    /// Threads that wait for claims to end.
    waiting: usize,
    /// Those of them that wait for all.
    waiting_for_all: usize,
}

impl Ranges {
    fn overlap(&self, blocks: &Range<u64>) -> bool {
        self.written.iter().any(|written| written.start < blocks.end && blocks.start < written.end)
    }
}

/// A claim on some blocks of an object.
pub(crate) struct Claim<'s> {
    sums: &'s Sums,
    blocks: Range<u64>,
    is_ended: bool,
}

impl Sums {
    /// The right to change all of the object.
    pub fn lock(&self) -> Writing<'_> {
        let mut guarded = self.guarded();
        if !guarded.ranges.written.is_empty() {
            guarded.ranges.waiting_for_all += 1;
            guarded = self.wait_while(guarded, |ranges| !ranges.written.is_empty());
            guarded.ranges.waiting_for_all -= 1;
            // Those that it kept from beginning.
            self.is_written.notify_all();
        }
        self.writing(guarded)
    }

    /// The right to change `blocks`, while others are being written.
    pub fn lock_blocks(&self, blocks: &Range<u64>) -> Writing<'_> {
        let mut guarded = self.guarded();
        let must_wait = |ranges: &Ranges| ranges.waiting_for_all > 0 || ranges.overlap(blocks);
        if must_wait(&guarded.ranges) {
            guarded = self.wait_while(guarded, must_wait);
        }
        self.writing(guarded)
    }

    /// Whether somebody is writing to the object at the moment.
    pub fn is_being_written(&self) -> bool {
        !self.guarded().ranges.written.is_empty()
    }

    /// As [`Self::lock`], unless somebody else has a right to change anything.
    pub fn try_lock(&self) -> Option<Writing<'_>> {
        let guarded = match self.guarded.try_lock() {
            Ok(guarded) => guarded,
            Err(TryLockError::Poisoned(guarded)) => guarded.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        guarded.ranges.written.is_empty().then(|| self.writing(guarded))
    }

    fn guarded(&self) -> MutexGuard<'_, Guarded> {
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing<'s>(&'s self, guarded: MutexGuard<'s, Guarded>) -> Writing<'s> {
        Writing { sums: self, guarded, table: None }
    }

    fn wait_while<'s>(
        &'s self,
        mut guarded: MutexGuard<'s, Guarded>,
        must_wait: impl Fn(&Ranges) -> bool,
    ) -> MutexGuard<'s, Guarded> {
        guarded.ranges.waiting += 1;
        while must_wait(&guarded.ranges) {
            guarded = self.is_written.wait(guarded).unwrap_or_else(PoisonError::into_inner);
        }
        guarded.ranges.waiting -= 1;
        guarded
    }
}

impl<'s> Writing<'s> {
    /// Keeps the right to `blocks` only, which [`Sums::lock_blocks`] gave.
    pub fn claim(mut self, blocks: Range<u64>) -> Claim<'s> {
        debug_assert!(!self.guarded.ranges.overlap(&blocks));
        self.guarded.ranges.written.push(blocks.clone());
        Claim { sums: self.sums, blocks, is_ended: false }
    }
}

impl<'s> Claim<'s> {
    /// Back to what [`Sums::lock_blocks`] gave.
    pub fn lock(mut self) -> Writing<'s> {
        self.is_ended = true;
        let guarded = self.end();
        self.sums.writing(guarded)
    }

    fn end(&self) -> MutexGuard<'s, Guarded> {
        let mut guarded = self.sums.guarded();
        let ranges = &mut guarded.ranges;
        if let Some(at) = ranges.written.iter().position(|written| *written == self.blocks) {
            ranges.written.swap_remove(at);
        }
        if ranges.waiting > 0 {
            self.sums.is_written.notify_all();
        }
        guarded
    }
}

/// A claim of a thread that panicked keeps nobody waiting.
impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            drop(self.end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn blocks_are_claimed_apart_and_all_of_them_at_the_end() {
        let sums = Sums::default();
        let first = sums.lock_blocks(&(0..4)).claim(0..4);
        let other = sums.lock_blocks(&(4..6)).claim(4..6);
        assert!(sums.try_lock().is_none());
        let (said, hear) = mpsc::channel();
        std::thread::scope(|scope| {
            let sums = &sums;
            let all = said.clone();
            scope.spawn(move || {
                let writing = sums.lock();
                assert!(writing.guarded.ranges.written.is_empty());
                all.send("all").unwrap();
            });
            scope.spawn(move || {
                drop(sums.lock_blocks(&(3..5)).claim(3..5).lock());
                said.send("some").unwrap();
            });
            while sums.guarded().ranges.waiting < 2 {
                std::thread::yield_now();
            }
            drop(first.lock());
            assert!(hear.try_recv().is_err(), "both still wait for the other claim");
            drop(other);
        });
        let heard: Vec<&str> = hear.iter().collect();
        assert!(heard.len() == 2 && sums.guarded().ranges.waiting_for_all == 0, "{heard:?}");
        assert!(sums.try_lock().is_some());
    }
}
