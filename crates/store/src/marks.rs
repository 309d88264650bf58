//! Files of which the database knows less than memory and objects: those with a mark.
//!
//! Whoever writes first puts a mark ([`Mark::Written`]): size and times in the record are no longer all there is to know.
//! Flushing a file ([`Store::flush_inode`]) brings its times to the database, and of its size what is on stable storage with
//! the bytes that led to it. If that is less than the file has, a mark stays ([`Mark::Flushed`]), or a power cut could leave
//! the size without the bytes. It goes when somebody has synced the objects and flushes then: `fsync`, [`Store::settle`]
//! once the file rests, [`Store::close`].
//!
//! A file that is marked as flushed may leave memory; its size is kept here.

use crate::database::Mark;
use crate::edit::Gone;
use crate::inode::{Inode, MARKED, Objects, UNFLUSHED, UNLINKED};
use crate::{Store, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};

/// The inodes that the database has a mark for.
#[derive(Default)]
pub(crate) struct Marks {
    written: HashSet<u64>,
    /// With their sizes.
    flushed: HashMap<u64, u64>,
}

impl Marks {
    /// Follows the database, which has this mark of an inode of `size` bytes now.
    pub fn set(&mut self, ino: u64, mark: Option<Mark>, size: u64) {
        self.written.remove(&ino);
        self.flushed.remove(&ino);
        match mark {
            Some(Mark::Written) => drop(self.written.insert(ino)),
            Some(Mark::Flushed) => drop(self.flushed.insert(ino, size)),
            Some(Mark::Cut) | None => {}
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

impl Store {
    /// Brings times of all written files to the database, and sizes as far as their bytes are on stable storage.
    pub fn flush_dirty(&self) -> Result<(), StoreError> {
        let written: Vec<u64> = self.marks().written.iter().copied().collect();
        written.into_iter().try_for_each(|ino| self.flush_marked(ino, |_, _| {}))
    }

    /// The same, with all of their sizes, when everything was synced and nobody writes any more.
    pub(crate) fn flush_all(&self) -> Result<(), StoreError> {
        let marked: Vec<u64> = self.marks().all().collect();
        marked.into_iter().try_for_each(|ino| self.flush_marked(ino, |inode, objects| objects.all_synced(inode.size())))
    }

    fn flush_marked(&self, ino: u64, before: impl Fn(&Inode, &mut Objects)) -> Result<(), StoreError> {
        match self.inode(ino) {
            Ok(inode) => {
                before(&inode, &mut inode.own_data());
                self.flush_inode(&inode)
            }
            Err(StoreError::Stale) => {
                self.unmark(ino);
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Times of one file to the database, and its size as far as its bytes are on stable storage; its mark out of it if that
    /// is all.
    pub(crate) fn flush_inode(&self, inode: &Arc<Inode>) -> Result<(), StoreError> {
        // No write may come between what is stored and the mark.
        let objects = inode.own_data();
        if let Some(layout) = &inode.layout {
            self.remember_blocks(inode, layout, &objects);
        }
        let _namespace = self.own_namespace();
        if inode.has(UNLINKED) || !inode.has(MARKED) {
            self.unmark(inode.ino);
            return Ok(());
        }
        let synced = self.synced_size(inode, &objects);
        if !inode.has(UNFLUSHED) && synced <= inode.stable_size() {
            return Ok(());
        }
        let mut edit = self.edit();
        edit.flush(inode, synced);
        let Gone(_) = edit.commit()?;
        Ok(())
    }

    /// Up to which size the file's bytes are on stable storage.
    pub(crate) fn synced_size(&self, inode: &Inode, objects: &Objects) -> u64 {
        // Where nothing survives a power cut nothing needs to wait for it.
        if self.is_volatile() { inode.size() } else { objects.synced_size() }
    }

    pub(crate) fn unmark(&self, ino: u64) {
        self.marks().set(ino, None, 0);
    }

    pub(crate) fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
