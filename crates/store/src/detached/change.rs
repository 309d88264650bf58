//! What is on stable storage before a detached object changes: creating it, cutting it, removing it.

use super::{Detached, DetachedRecord};
use crate::content::{OBJECTS, Objects, Owner, RECLAIMED, SUMS, SUSPECT, UNSETTLED};
use crate::object::ObjectPlace;
use crate::protect::Unsettled;
use crate::{FILE_SIZE_MAX, ObjectStore, StoreError};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

/// Objects of which [`ObjectStore::forget_removed`] forgets at once that they were removed, at most.
const FORGOTTEN_MAX: usize = 1 << 16;

impl ObjectStore {
    /// What [`crate::Store::before_change`] is for a file.
    pub(super) fn before_detached_change(&self, object: &Detached) -> Result<(), StoreError> {
        let content = &object.content;
        if !content.written.load(Relaxed) {
            content.written.store(true, Relaxed);
        }
        if !content.has(OBJECTS) {
            // Creating it says all.
            return Ok(());
        }
        if content.has(SUMS) && !self.protection.is_on {
            content.clear(SUMS);
            return self.put_record(object, true).inspect_err(|_| {
                content.set(SUMS);
            });
        }
        self.unsettle(content)
    }

    /// Opens an object, and creates it where it was never written. The caller owns its data.
    pub(super) fn create_object(&self, object: &Detached, objects: &mut Objects) -> Result<(), StoreError> {
        let content = &object.content;
        let is_new = !content.was_created(0);
        if is_new {
            self.admit()?;
            let has_sums = self.protection.is_on;
            let mut change = self.db.change();
            change.put_detached(object.place, &DetachedRecord { is_created: true, has_sums, ..object.record() });
            if has_sums {
                self.unsettled().entry(content.owner).or_default();
                change.put_unsettled(content.owner);
            }
            change.commit()?;
            if has_sums {
                content.set(UNSETTLED);
            }
        }
        let opened = self.targets.open_object(content, object.layout(), objects, 0, true);
        if is_new && opened.is_err() && self.protection.is_on {
            // The record says more than there is: what is missing is not to be taken for lost.
            content.set(SUSPECT);
            self.unsettled().insert(content.owner, Unsettled { suspect: Some(0) });
        }
        opened
    }

    /// Brings the record of an object to the database; on stable storage if it `is_synced`.
    fn put_record(&self, object: &Detached, is_synced: bool) -> Result<(), StoreError> {
        let mut change = self.db.change();
        object.put_into(&mut change);
        change.commit()?;
        object.content.note_unrecorded();
        if is_synced && !self.is_volatile() {
            let records = object.content.records();
            self.db.sync()?;
            object.content.note_synced(records);
        }
        Ok(())
    }

    /// Cuts an object to `size_bytes` at most, on stable storage, if `number` is above that of its last cut; tells the number
    /// of its last cut afterwards. An object does not get longer: what it lacks is zeros. One that does not exist remembers
    /// the number, and of one that was removed there is nothing to cut.
    pub fn cut_object(&self, place: ObjectPlace, number: u64, size_bytes: u64) -> Result<u64, StoreError> {
        if number == 0 || size_bytes > FILE_SIZE_MAX {
            return Err(StoreError::Invalid);
        }
        let object = match self.detached(place) {
            Err(StoreError::Stale) => return Ok(number),
            object => object?,
        };
        // A cut that is not done yet is done here.
        let mut objects = match self.own_detached(&object) {
            Err(StoreError::Stale) => return Ok(number),
            objects => objects?,
        };
        let (content, last) = (&object.content, object.cuts());
        if number <= last {
            return Ok(last);
        }
        let is_cut = content.has(OBJECTS) && size_bytes < content.size();
        if is_cut {
            self.before_detached_change(&object)?;
        }
        object.set_cuts(number, is_cut.then_some(size_bytes));
        // Else it would be believed to be done where only memory knows of it.
        self.put_record(&object, true).inspect_err(|_| object.set_cuts(last, None))?;
        if is_cut {
            self.finish_cut_of(&object, &mut objects, size_bytes).inspect_err(|_| objects.is_trimmed = false)?;
        }
        Ok(number)
    }

    /// Does a cut that stands in the record, and takes it out of there. The caller owns the object's data.
    pub(super) fn finish_cut_of(
        &self,
        object: &Detached,
        objects: &mut Objects,
        size_bytes: u64,
    ) -> Result<(), StoreError> {
        let (content, layout) = (&object.content, object.layout());
        content.space.forget();
        if size_bytes < content.size() {
            self.cut_bytes(content, layout, objects, 0, size_bytes, !self.is_volatile())?;
            content.set_size(size_bytes);
            objects.resized(size_bytes);
        }
        object.set_cuts(object.cuts(), None);
        self.put_record(object, false).inspect_err(|_| object.set_cuts(object.cuts(), Some(size_bytes)))
    }

    /// Removes objects, whether they exist or not, on stable storage, and closes their places until a capability for them can be
    /// valid no more: seconds since the epoch, with what clocks may differ by, as the server of the volume says.
    pub fn remove_detached(
        &self,
        places: &[ObjectPlace],
        capabilities_until_secs: u64,
        now_secs: u64,
    ) -> Result<(), StoreError> {
        let mut taken = Vec::with_capacity(places.len());
        for place in places {
            match self.detached(*place) {
                Ok(object) => taken.push(object),
                // Perhaps the file is still there.
                Err(StoreError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        for object in &taken {
            let mut objects = object.content.own_data();
            object.content.set(RECLAIMED);
            objects.close(0);
        }
        let removed = {
            let _removing = self.own_removals();
            let mut change = self.db.change();
            for place in places {
                change.remove_detached(*place);
                change.remove_unsettled(Owner::Detached(*place));
                if capabilities_until_secs >= now_secs {
                    change.put_removed(*place, capabilities_until_secs);
                }
            }
            change.commit().inspect(|()| {
                for place in places {
                    self.detached.remove(*place);
                    self.unsettled().remove(&Owner::Detached(*place));
                }
            })
        };
        removed.inspect_err(|_| {
            for object in &taken {
                object.content.clear(RECLAIMED);
            }
        })?;
        if !self.is_volatile() {
            self.db.sync()?;
        }
        places.iter().try_for_each(|place| {
            self.protection.known.forget_object(&self.db, *place);
            self.targets.remove_object(*place)
        })
    }

    /// Forgets which objects were removed, where no capability can bring them back any more; tells how many. To be called now
    /// and then.
    pub fn forget_removed(&self, now_secs: u64) -> Result<usize, StoreError> {
        let mut over = Vec::new();
        self.db.each_removed(|place, until_secs| {
            if until_secs < now_secs {
                over.push(place);
            }
            over.len() < FORGOTTEN_MAX
        })?;
        let mut change = self.db.change();
        over.iter().for_each(|place| change.remove_removed(*place));
        if !over.is_empty() {
            change.commit()?;
        }
        Ok(over.len())
    }

    pub(super) fn share_removals(&self) -> RwLockReadGuard<'_, ()> {
        self.removals.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn own_removals(&self) -> RwLockWriteGuard<'_, ()> {
        self.removals.write().unwrap_or_else(PoisonError::into_inner)
    }
}
