//! The count of a file's blocks, which is kept until the file changes.

use crate::error::StoreError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How many blocks a file takes, as far as it is known.
///
/// One word: a count below [`Space::TICKETS`], [`Space::UNKNOWN`], or in between the ticket of somebody who is counting.
/// A write in the meantime takes the ticket away, and the count with it.
pub(crate) struct Space(AtomicU64);

impl Space {
    const UNKNOWN: u64 = u64::MAX;
    const TICKETS: u64 = 1 << 63;

    /// As a record has it.
    pub fn of(blocks: u64) -> Self {
        Self(AtomicU64::new(if blocks < Self::TICKETS { blocks } else { Self::UNKNOWN }))
    }

    /// The blocks, if known.
    pub fn blocks(&self) -> Option<u64> {
        Some(self.0.load(Acquire)).filter(|blocks| *blocks < Self::TICKETS)
    }

    /// After every change of the objects.
    pub fn forget(&self) {
        if self.0.load(Relaxed) != Self::UNKNOWN {
            self.0.store(Self::UNKNOWN, Release);
        }
    }

    /// Somebody else has counted, and nothing has changed since.
    pub fn know(&self, blocks: u64) {
        self.0.store(blocks.min(Self::TICKETS - 1), Release);
    }

    /// Counts, and remembers the count unless the file was changed or somebody else began to count meanwhile.
    pub fn count(
        &self,
        counts: &AtomicU64,
        count: impl FnOnce() -> Result<u64, StoreError>,
    ) -> Result<u64, StoreError> {
        let ticket = Self::TICKETS | (counts.fetch_add(1, Relaxed) & (Self::TICKETS / 2 - 1));
        let has_ticket = self.0.compare_exchange(Self::UNKNOWN, ticket, AcqRel, Relaxed).is_ok();
        let counted = count();
        if has_ticket {
            let known = counted.as_ref().map_or(Self::UNKNOWN, |blocks| (*blocks).min(Self::TICKETS - 1));
            let _ = self.0.compare_exchange(ticket, known, AcqRel, Relaxed);
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_a_write_overtook_is_told_and_not_remembered() {
        let (space, counts) = (Space::of(8), AtomicU64::new(0));
        assert_eq!(space.blocks(), Some(8));
        space.forget();
        assert_eq!(space.blocks(), None);
        assert_eq!(space.count(&counts, || Ok(16)).unwrap(), 16);
        assert_eq!(space.blocks(), Some(16));
        space.forget();
        let counted = space.count(&counts, || {
            space.forget();
            Ok(24)
        });
        assert_eq!((counted.unwrap(), space.blocks()), (24, None));
        // Nor is it if somebody else began to count after that write.
        let counted = space.count(&counts, || {
            space.forget();
            assert_eq!(space.count(&counts, || Ok(40)).unwrap(), 40);
            space.forget();
            space.0.compare_exchange(Space::UNKNOWN, Space::TICKETS | 77, AcqRel, Relaxed).unwrap();
            Ok(32)
        });
        assert_eq!((counted.unwrap(), space.blocks()), (32, None));
        space.forget();
        assert!(space.count(&counts, || Err(StoreError::Stale)).is_err());
        assert_eq!(space.blocks(), None);
    }
}
