//! How the process that had the database before this one stopped, and what may have been lost with it.
//!
//! A process that is killed takes nothing with it: the host's kernel has all that it wrote. A host that loses power takes what was not on
//! stable storage, and so does one that is left behind when the server is started on another host without a clean stop. Which of these
//! it was is told by a text that differs with each start of a host.
//!
//! The *verifier* is a number that stays the same as long as nothing was lost, and is another one afterwards. Clients are told it,
//! and who has written under one and syncs under another knows that his bytes may be gone. It is on stable storage before anybody
//! is told. What it cannot know is that storage lost what it had in memory of its own while the host went on.
//!
//! A host that goes on can fail to write what it had acknowledged, and tells of that once. Who is still to hear of it only the
//! process knows ([`crate::fsync`]), and that ends with it, in order or not. So the first such failure takes the verifier out of the
//! database ([`Database::forget_verifier`]): the next start has another one, and says it to all. So it has after a process that could not sync the
//! database itself, and left word of that in a file ([`UNSYNCED`]).

use super::Database;
use crate::StoreError;
use crate::engine::{Table, UNSYNCED};
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Stands in the database after a clean stop, until the next change.
pub(super) const CLOSED: &str = "closed";
const START: &str = "start";
const VERIFIER: &str = "verifier";

/// What is known of the last stop before the database is changed.
#[derive(Clone, Copy)]
pub struct Left {
    /// It was a clean one.
    was_clean: bool,
    /// Changes could not be synced.
    was_unsynced: bool,
}

/// What is known of the last stop.
pub struct Stop {
    /// It was a clean one.
    pub was_clean: bool,
    /// The host may have been started anew since the store was opened before.
    pub may_be_undone: bool,
    /// See the module.
    pub verifier: u64,
}

impl Database {
    /// To be asked of the store in `dir` before anything is changed. After a stop that was no clean one what is in the journals is on
    /// stable storage when this returns, also what an earlier process could not sync.
    pub fn left(&self, dir: &Path) -> Result<Left, StoreError> {
        let was_unsynced = dir.join(UNSYNCED).exists();
        // That it was closed is there before it is synced; only then the witness is told.
        let is_synced = self.number() <= self.witness.number();
        let was_clean = is_synced && !was_unsynced && self.engine.get(Table::Numbers, CLOSED)?.is_some();
        if !was_clean {
            match self.engine.write_journals_again() {
                // Where everything is written to a new place. Without room it is as it was, and removing something may help.
                Err(error)
                    if [Errno::NOSPC, Errno::DQUOT]
                        .iter()
                        .any(|full| full.raw_os_error().unsigned_abs() == error.errno()) =>
                {
                    tracing::warn!(%error, "there is no room to write the journal of the metadata once more");
                }
                written => written?,
            }
        }
        Ok(Left { was_clean, was_unsynced })
    }

    /// How the last stop was, at a start of the host as `host_start` tells or leaves open; `fresh` becomes the verifier if one is
    /// needed. Says on stable storage that the database is open. At which start stands there only once what may have been undone is
    /// settled ([`Self::note_start`]): a stop before that leaves it open again.
    pub fn reopen(&self, left: Left, host_start: &str, fresh: u64) -> Result<Stop, StoreError> {
        let Left { was_clean, was_unsynced } = left;
        self.is_closed.store(self.engine.get(Table::Numbers, CLOSED)?.is_some(), Relaxed);
        let before = self.engine.get(Table::Numbers, START)?;
        let is_same =
            !was_unsynced && !host_start.is_empty() && before.is_some_and(|before| *before == *host_start.as_bytes());
        let known = self.engine.get(Table::Numbers, VERIFIER)?.filter(|_| was_clean || is_same);
        let known = known.and_then(|bytes| bytes.first_chunk().copied());
        let verifier = known.map_or(fresh, u64::from_le_bytes);
        let mut change = self.change();
        change.put(Table::Numbers, START, if is_same { host_start } else { "" });
        change.put(Table::Numbers, VERIFIER, verifier.to_le_bytes());
        change.commit()?;
        self.sync()?;
        Ok(Stop { was_clean, may_be_undone: !is_same, verifier })
    }

    /// What a process that could not sync left word of is dealt with.
    pub fn settle_unsynced(&self, dir: &Path, left: Left) {
        if left.was_unsynced
            && let Err(error) = std::fs::remove_file(dir.join(UNSYNCED))
        {
            tracing::warn!(%error, file = UNSYNCED, "cannot be removed: clients are told of lost writes after the next start once more");
        }
    }

    /// Notes at which start of the host the store is open. Not on stable storage: a power cut is another start.
    pub fn note_start(&self, host_start: &str) -> Result<(), StoreError> {
        let mut change = self.change();
        change.put(Table::Numbers, START, host_start);
        change.commit()
    }

    /// Bytes that were acknowledged are lost: whatever stop comes next, the start after it has another verifier. Not on stable
    /// storage, for the same reason.
    pub fn forget_verifier(&self) {
        if self.has_no_verifier.load(Acquire) {
            return;
        }
        let mut change = self.change();
        change.remove(Table::Numbers, VERIFIER);
        match change.commit() {
            Ok(()) => self.has_no_verifier.store(true, Release),
            Err(error) => {
                tracing::error!(%error, "that bytes were lost cannot be recorded, and is forgotten if this process ends");
            }
        }
    }

    /// Puts everything on stable storage, and with it that this is a clean stop, unless a change follows.
    pub fn close(&self) -> Result<(), StoreError> {
        let mut change = self.change();
        change.put(Table::Numbers, CLOSED, []);
        change.commit()?;
        self.is_closed.store(true, Relaxed);
        self.sync()?;
        self.keep_witness()
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::UNSYNCED;
    use crate::fixture::{config, create};
    use crate::journal_sync::JournalSync;
    use crate::{MetadataFailure, Store};

    #[test]
    fn who_wrote_before_a_sync_that_failed_is_told_by_another_verifier() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let store = Store::open(&config).unwrap();
        let before = store.verifier();
        create(&store, "a");
        store.end_if_unsynced().unwrap();
        assert!(store.fence().is_valid() && store.metadata_failure().is_none());
        store.db.engine.with_journal(JournalSync::spoil);
        store.sync().unwrap_err();
        assert_eq!(store.metadata_failure(), Some(MetadataFailure::Unsynced));
        store.end_if_unsynced().unwrap();
        assert!(!store.fence().is_valid());
        drop(store);
        let store = Store::open(&config).unwrap();
        let after = store.verifier();
        assert!(store.is_recovered() && after != before && !config.dir.join(UNSYNCED).exists());
        // A kill takes nothing with it.
        drop(store);
        assert_eq!(Store::open(&config).unwrap().verifier(), after);
    }

    #[test]
    fn a_stop_whose_last_sync_failed_is_no_clean_one() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let store = Store::open(&config).unwrap();
        create(&store, "a");
        store.sync().unwrap();
        store.db.engine.with_journal(JournalSync::spoil);
        store.db.close().unwrap_err();
        drop(store);
        assert!(Store::open(&config).unwrap().is_recovered());
    }
}
