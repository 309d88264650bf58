//! How many changes of the database there were, and how many of them are on stable storage.
//!
//! Others may see a change, and rely on it, a moment before whoever makes it counts it as ended. So who wants all that he has seen on
//! stable storage counts from the beginning of changes, and a sync says of itself that it had all of them only if it
//! began while none was under way.

use crate::group_commit::Ticket;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

#[derive(Debug)]
pub(crate) struct ChangeCounts {
    begun: AtomicU64,
    ended: AtomicU64,
    synced: AtomicU64,
}

/// Changes that were committed before a moment: so many, and the first sync that begins after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Committed {
    pub changes: u64,
    pub ticket: Ticket,
}

/// A change that is under way until this is dropped.
#[must_use]
pub(crate) struct UnderWay<'a>(&'a ChangeCounts);

impl ChangeCounts {
    /// For a database of which it is not known how much of it is on stable storage.
    pub fn new() -> Self {
        Self { begun: AtomicU64::new(1), ended: AtomicU64::new(1), synced: AtomicU64::new(0) }
    }

    pub fn begin(&self) -> UnderWay<'_> {
        self.begun.fetch_add(1, SeqCst);
        UnderWay(self)
    }

    /// All that may be seen at this moment, for [`Self::are_synced`].
    pub fn begun(&self) -> u64 {
        self.begun.load(SeqCst)
    }

    /// Whether these changes are on stable storage; false where that is not known.
    pub fn are_synced(&self, changes: u64) -> bool {
        self.synced.load(SeqCst) >= changes
    }

    /// The changes that a sync has which begins now, for [`Self::note_synced`]; none if one is under way.
    pub fn ended(&self) -> Option<u64> {
        // In this order: those that have begun later are not among those that have ended.
        let ended = self.ended.load(SeqCst);
        (self.begun.load(SeqCst) == ended).then_some(ended)
    }

    pub fn note_synced(&self, changes: u64) {
        self.synced.fetch_max(changes, SeqCst);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sync(counts: &ChangeCounts, meanwhile: impl FnOnce()) {
        let changes = counts.ended();
        meanwhile();
        changes.into_iter().for_each(|changes| counts.note_synced(changes));
    }

    #[test]
    fn what_was_there_before_a_sync_is_on_stable_storage_and_what_came_after_its_beginning_is_not() {
        let counts = ChangeCounts::new();
        assert!(!counts.are_synced(counts.begun()), "what an earlier process left");
        sync(&counts, || {});
        assert!(counts.are_synced(counts.begun()));
        sync(&counts, || drop(counts.begin()));
        assert!(!counts.are_synced(counts.begun()));
        sync(&counts, || {});
        assert!(counts.are_synced(counts.begun()));
    }

    #[test]
    fn what_is_under_way_may_be_seen_and_counts_once_a_sync_began_after_it() {
        let counts = ChangeCounts::new();
        let under_way = counts.begin();
        let seen = counts.begun();
        sync(&counts, || drop(under_way));
        assert!(!counts.are_synced(seen));
        sync(&counts, || {});
        assert!(counts.are_synced(seen));
    }
}
