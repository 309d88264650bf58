//! Syncs of the database, of which one does for all who wait.

use super::{Database, SYNCED, Table, Write};
use crate::StoreError;
use crate::change_counts::Committed;
#[cfg(test)]
use std::path::Path;
use std::sync::PoisonError;

impl Database {
    /// Everything that was committed is on stable storage when this returns.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.sync_since(self.committed())
    }

    /// What was committed by now, for [`Self::sync_since`].
    pub fn committed(&self) -> Committed {
        Committed { changes: self.changes.begun(), ticket: self.group.ticket() }
    }

    /// Whether a sync of that would find something to do, which nobody else is about to do.
    pub fn needs_sync(&self, committed: Committed) -> bool {
        !committed.ticket.is_coming && !self.changes.are_synced(committed.changes)
    }

    /// What was committed by then is on stable storage when this returns.
    pub fn sync_since(&self, committed: Committed) -> Result<(), StoreError> {
        self.engine.check_usable()?;
        self.group.sync_since(committed.ticket, || self.changes.are_synced(committed.changes), || self.sync_now())?;
        // Those who waited for the same sync go on already.
        self.engine.make_room();
        Ok(())
    }

    /// Returns once nobody syncs, for a moment at least: what is committed meanwhile may wait for the device.
    pub fn wait_for_sync(&self) {
        self.group.wait_for_end();
    }

    fn sync_now(&self) -> Result<(), StoreError> {
        let changes = self.changes.ended();
        let number = {
            // One after the other, so that the number in the database grows.
            let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
            let value = Some(self.witness.sealed(*number + 1).into());
            self.engine.commit(&[Write { table: Table::Numbers, key: SYNCED.into(), value }])?;
            *number += 1;
            *number
        };
        self.engine.sync()?;
        self.witness.tell(number);
        #[cfg(test)]
        self.copy_synced();
        // Whoever needs no more than this goes on from here.
        changes.into_iter().for_each(|changes| self.changes.note_synced(changes));
        Ok(())
    }

    /// Whether there may be something for a sync.
    pub fn has_changed(&self) -> bool {
        !self.changes.are_synced(self.changes.begun())
    }

    /// From now on `copy` has what a power cut leaves of `db`, the directory of this database.
    #[cfg(test)]
    pub fn keep_synced(&self, db: &Path, copy: &Path) {
        self.synced.set((db.to_owned(), copy.to_owned())).expect("once");
        self.copy_synced();
    }

    #[cfg(test)]
    fn copy_synced(&self) {
        if let Some((db, copy)) = self.synced.get() {
            crate::power_cut::copy_directory(db, copy);
        }
    }
}
