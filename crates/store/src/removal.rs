//! Objects that no file refers to any more: remembered in the database, and removed once that is on stable storage.
//!
//! The change that takes a file's last name away, or gives it other objects, puts an entry into `orphans` in the same
//! batch. [`ObjectStore::remove_unused`], which the server calls every second, syncs the journal once for all entries that
//! wait, removes their objects, and then drops the entries. Each of these steps can be repeated, so a stop between any
//! two of them leaves nothing but work that is done again.
//!
//! The queue is bounded in entries and in bytes. Whoever finds it full, or the storage, does a part of the work itself:
//! what was freed comes back before anybody is told that there is no space.
//!
//! Where neither the database nor a target survives a power cut there is nothing to wait for: objects go at once.

use crate::object::ObjectsId;
use crate::{ObjectStore, StoreError};
use isonomia_proto::fs::Layout;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Files whose objects wait to be removed at most.
const WAITING_MAX: usize = 1 << 16;
/// Their sizes together at most.
const WAITING_BYTES_MAX: u64 = 1 << 30;
/// Files whose objects are removed after one sync at most.
const REMOVED_AT_ONCE_MAX: usize = 4096;
/// Syncs in one call of [`ObjectStore::remove_unused`] at most: its caller has other things to do.
const SYNCS_AT_ONCE_MAX: usize = 4;

/// Objects that are in `orphans`, and in nobody's use.
pub(crate) struct Unused {
    pub id: ObjectsId,
    pub layout: Arc<Layout>,
    /// Size of the file, for the account.
    pub size: u64,
}

pub(crate) struct Removal {
    waiting: Mutex<Waiting>,
    /// Locked by who is removing.
    removing: Mutex<()>,
    /// Neither the database nor a target survives a power cut: nothing need be synced.
    pub is_volatile: bool,
}

#[derive(Default)]
struct Waiting {
    unused: VecDeque<Unused>,
    bytes: u64,
}

impl Removal {
    pub fn new(is_volatile: bool) -> Self {
        Self { waiting: Mutex::default(), removing: Mutex::default(), is_volatile }
    }

    /// Adds an entry; true if the queue is full.
    fn put(&self, unused: Unused) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.bytes = waiting.bytes.saturating_add(unused.size);
        waiting.unused.push_back(unused);
        waiting.unused.len() > WAITING_MAX || waiting.bytes > WAITING_BYTES_MAX
    }

    fn take(&self) -> Vec<Unused> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.unused.len().min(REMOVED_AT_ONCE_MAX);
        let taken: Vec<Unused> = waiting.unused.drain(..count).collect();
        waiting.bytes = waiting.bytes.saturating_sub(taken.iter().map(|unused| unused.size).sum());
        taken
    }
}

impl ObjectStore {
    /// Removes the objects that wait for it, after the journal was synced: to be called now and then. Tells how many
    /// files they were of; where very many wait, some are left for the next time.
    pub fn remove_unused(&self) -> Result<usize, StoreError> {
        let mut count = 0;
        for _ in 0..SYNCS_AT_ONCE_MAX {
            match self.remove_some()? {
                0 => break,
                some => count += some,
            }
        }
        Ok(count)
    }

    /// Has objects removed whose entry in `orphans` is committed. What fails is told in the log, and done again at the
    /// next opening of the store: the change that made them useless has happened.
    pub(crate) fn remove_later(&self, unused: Unused) {
        let removed = if self.removal.is_volatile {
            self.remove_synced(&[unused])
        } else if self.removal.put(unused) {
            self.remove_some().map(drop)
        } else {
            return;
        };
        if let Err(error) = removed {
            tracing::error!(%error, "cannot remove objects that are not used any more");
        }
    }

    /// The first that wait; 0 if there are none.
    pub(crate) fn remove_some(&self) -> Result<usize, StoreError> {
        let _removing = self.removal.removing.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.removal.take();
        if taken.is_empty() {
            return Ok(0);
        }
        let count = taken.len();
        self.remove_synced(&taken).inspect_err(|_| {
            taken.into_iter().for_each(|unused| {
                self.removal.put(unused);
            });
        })?;
        Ok(count)
    }

    fn remove_synced(&self, taken: &[Unused]) -> Result<(), StoreError> {
        if !self.removal.is_volatile {
            self.db.sync()?;
        }
        let mut change = self.db.change();
        for Unused { id, layout, .. } in taken {
            match self.targets.remove_objects(*id, layout) {
                Ok(()) => {
                    change.remove_orphan(*id);
                    self.protection.known.forget_objects(&self.db, *id);
                }
                // The entry stays for the next opening.
                Err(error) => tracing::error!(%error, "cannot remove an object that is not used any more"),
            }
        }
        change.commit()
    }
}
