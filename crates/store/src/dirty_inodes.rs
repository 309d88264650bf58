//! Files of which the database knows less than memory and objects: those with a dirty record.
//!
//! Whoever writes first puts a dirty record ([`DirtyRecord::Written`]): size and times in the record are no longer all there is to know.
//! Flushing a file ([`Store::flush_inode`]) brings its times to the database, and of its size what is on stable storage with
//! the bytes that led to it. If that is less than the file has, such a record stays ([`DirtyRecord::Flushed`]), or a power cut could leave
//! the size without the bytes. It goes when somebody has synced the objects and flushes then: `fsync`, [`Store::settle`]
//! once the file rests, [`Store::close`]. After the first `fsync` of a program it is still there, on stable storage as the objects are, and
//! the file is as long as these ([`Store::fsync_with_attributes`]).
//!
//! A file with a record that says flushed may leave memory; its size is kept here.

use crate::content::Objects;
use crate::database::DirtyRecord;
use crate::edit::ReclaimList;
use crate::inode::{DIRTY, Inode, SPREAD, UNFLUSHED, UNLINKED};
use crate::{Namespace, Store, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};

/// The inodes that the database has a dirty record of.
#[derive(Default)]
pub(crate) struct DirtyInodes {
    written: HashSet<u64>,
    /// With their sizes.
    flushed: HashMap<u64, u64>,
}

impl DirtyInodes {
    /// Follows the database, which has this dirty record of an inode of `size` bytes now.
    pub fn set(&mut self, ino: u64, record: Option<DirtyRecord>, size: u64) {
        self.written.remove(&ino);
        self.flushed.remove(&ino);
        match record {
            Some(DirtyRecord::Written | DirtyRecord::SizeAtLeast(_)) => drop(self.written.insert(ino)),
            Some(DirtyRecord::Flushed) => drop(self.flushed.insert(ino, size)),
            Some(DirtyRecord::Cut) | None => {}
        }
    }

    /// The size of an inode that was flushed, and whose record has less.
    pub fn size(&self, ino: u64) -> Option<u64> {
        self.flushed.get(&ino).copied()
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = u64> {
        self.written.iter().chain(self.flushed.keys()).copied()
    }
}

/// What the last one says that fails; one that does keeps none of the others.
fn all_of(each: impl Iterator<Item = Result<(), StoreError>>) -> Result<(), StoreError> {
    let mut outcome = Ok(());
    for one in each {
        if one.is_err() {
            outcome = one;
        }
    }
    outcome
}

impl Store {
    /// Brings times of all written files to the database, and sizes as far as their bytes are on stable storage. One that
    /// fails keeps none of the others.
    pub fn flush_dirty(&self) -> Result<(), StoreError> {
        let written: Vec<u64> = self.namespace.dirty_inodes().written.iter().copied().collect();
        // Each file is locked while the database takes its times. A sync that hangs is waited for here, where nobody who reads or writes a
        // file waits for this.
        self.db.wait_for_sync();
        let flushed = written.into_iter().map(|ino| self.flush_dirty_inode(ino, |_, _| {}));
        all_of(flushed)
    }

    /// The same, with all of their sizes, when everything was synced and nobody writes any more.
    pub(crate) fn flush_all(&self) -> Result<(), StoreError> {
        let dirty: Vec<u64> = self.namespace.dirty_inodes().all().collect();
        let flushed =
            dirty.into_iter().map(|ino| self.flush_dirty_inode(ino, |inode, objects| objects.all_synced(inode.size())));
        all_of(flushed)
    }

    fn flush_dirty_inode(&self, ino: u64, before: impl Fn(&Inode, &mut Objects)) -> Result<(), StoreError> {
        match self.namespace.inode(ino) {
            Ok(inode) => {
                before(&inode, &mut inode.own_data());
                self.flush_inode(&inode)
            }
            Err(StoreError::Stale) => {
                self.namespace.forget_dirty(ino);
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Times of one file to the database, and its size as far as its bytes are on stable storage; its dirty record out of it if that
    /// is all.
    pub(crate) fn flush_inode(&self, inode: &Arc<Inode>) -> Result<(), StoreError> {
        self.flush_inode_if(inode, |_| true).map(drop)
    }

    /// The same if `may` says so, after which nothing changes before it is done. Whether it did.
    pub(crate) fn flush_inode_if(
        &self,
        inode: &Arc<Inode>,
        may: impl FnOnce(&Objects) -> bool,
    ) -> Result<bool, StoreError> {
        // Somebody may have the namespace for as long as a hanging device of the database takes. That is waited for here, where
        // nobody who reads or writes the file waits for this.
        drop(self.namespace.own());
        // No write may come between what is stored and the dirty record.
        let objects = inode.own_data();
        if !may(&objects) {
            return Ok(false);
        }
        if let Some(layout) = &inode.layout {
            self.remember_blocks(inode, layout, &objects);
        }
        let _namespace = self.namespace.own();
        if inode.has(UNLINKED) || !inode.has(DIRTY) {
            self.namespace.forget_dirty(inode.ino);
            return Ok(true);
        }
        let synced = self.synced_size(inode, &objects);
        if !inode.has(UNFLUSHED) && synced <= inode.stable_size() {
            return Ok(true);
        }
        let mut edit = self.namespace.edit();
        edit.flush(inode, synced);
        let ReclaimList(_) = edit.commit()?;
        Ok(true)
    }

    /// Up to which size the file's bytes are on stable storage.
    pub(crate) fn synced_size(&self, inode: &Inode, objects: &Objects) -> u64 {
        // Where nothing survives a power cut nothing needs to wait for it. And for the bytes of a spread file nobody here can.
        if self.objects.is_volatile() || inode.has(SPREAD) { inode.size() } else { objects.synced_size() }
    }
}

impl Namespace {
    pub(crate) fn forget_dirty(&self, ino: u64) {
        self.dirty_inodes().set(ino, None, 0);
    }

    pub(crate) fn dirty_inodes(&self) -> MutexGuard<'_, DirtyInodes> {
        self.dirty_inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
