//! One atomic change of the namespace: first the database, then, if it accepted, memory.

use crate::content::{RECLAIMED, SUSPECT, UNSETTLED};
use crate::database::{Change, DirtyRecord, Entry};
use crate::inode::{CUTTING, DIRTY, Inode, MAY_BE_NAMED, SPREAD, UNFLUSHED, UNLINKED};
use crate::object::ObjectsId;
use crate::record::{Body, Record};
use crate::{Namespace, Numbers, StoreError};
use isonomia_proto::fs::{FileKind, Layout, Timestamp};
use isonomia_units::{Ino, VolumeId};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Numbers are reserved in the database so many at a time; a stop of the server skips the rest.
const NUMBERS_RESERVED: u64 = 1 << 16;

/// What one record or entry adds to the journal, generously.
const CHANGE_BYTES: u64 = 512;

/// A change in the making. It lives under the owned namespace lock.
pub(crate) struct Edit<'s> {
    namespace: &'s Namespace,
    change: Change<'s>,
    updates: Vec<Update>,
    names: Vec<NameChange>,
    dirty_inodes: Vec<(Arc<Inode>, Option<DirtyRecord>)>,
    settled: Vec<Arc<Inode>>,
    /// Bytes of values.
    grown: u64,
}

struct Update {
    inode: Arc<Inode>,
    record: Record,
    touched: i64,
    new: bool,
    is_removed: bool,
    /// To another server.
    moved: bool,
    /// It has its first name, and with it a record.
    named: bool,
}

struct NameChange {
    dir: u64,
    name: Vec<u8>,
    entry: Option<Entry>,
}

/// Inodes whose last name went while nobody had them open: [`crate::Store::reclaim`] them once the namespace lock is given back.
#[must_use]
pub(crate) struct ReclaimList(pub Vec<Arc<Inode>>);

impl Namespace {
    pub(crate) fn edit(&self) -> Edit<'_> {
        Edit {
            namespace: self,
            change: self.db.change(),
            updates: Vec::new(),
            names: Vec::new(),
            dirty_inodes: Vec::new(),
            settled: Vec::new(),
            grown: 0,
        }
    }

    /// A number in `volume` that no inode and no object of this store ever had.
    pub(crate) fn new_number(&self, numbers: &mut Numbers, volume: VolumeId) -> Result<u64, StoreError> {
        if numbers.next == numbers.reserved {
            let reserved = numbers.reserved + NUMBERS_RESERVED;
            let mut change = self.db.change();
            change.put_next_number(reserved);
            change.commit()?;
            // Else numbers that were given out could be given out again after a power failure, while what bears them is
            // on stable storage: objects of another user's file.
            self.db.sync()?;
            numbers.reserved = reserved;
        }
        let number = numbers.next;
        numbers.next += 1;
        Ok(Ino::new(volume, number).0)
    }
}

impl Edit<'_> {
    /// The record of `inode` as it will be: change it.
    pub fn record(&mut self, inode: &Arc<Inode>) -> &mut Record {
        let at = match self.updates.iter().position(|u| u.inode.ino == inode.ino) {
            Some(at) => at,
            None => {
                // Before the record: a write in between is then folded in and stays visible too.
                let touched = inode.touched();
                let record = inode.current();
                self.updates.push(Update {
                    inode: inode.clone(),
                    record,
                    touched,
                    new: false,
                    is_removed: false,
                    moved: false,
                    named: false,
                });
                self.updates.len() - 1
            }
        };
        &mut self.updates[at].record
    }

    /// DirtyInodes content and attributes of a directory as changed.
    pub fn touch_dir(&mut self, dir: &Arc<Inode>, now: Timestamp) {
        let record = self.record(dir);
        (record.mtime, record.ctime) = (now, now);
    }

    /// Adds an inode, without a name as yet.
    pub fn create(&mut self, ino: u64, record: Record) -> Arc<Inode> {
        let inode = Arc::new(Inode::new(ino, record.clone()));
        let touched = inode.touched();
        self.updates.push(Update {
            inode: inode.clone(),
            record,
            touched,
            new: true,
            is_removed: false,
            moved: false,
            named: false,
        });
        inode
    }

    /// Makes `name` in `dir` lead to `inode`, instead of what it led to.
    pub fn enter(&mut self, dir: &Inode, name: &[u8], ino: u64, kind: FileKind) {
        self.names.push(NameChange { dir: dir.ino, name: name.to_vec(), entry: Some(Entry { ino, kind }) });
    }

    /// Takes `name` out of `dir`.
    pub fn leave(&mut self, dir: &Inode, name: &[u8]) {
        self.names.push(NameChange { dir: dir.ino, name: name.to_vec(), entry: None });
    }

    /// Makes `name` lead to `entry` in the directory of this number, or nowhere.
    pub fn name_at(&mut self, dir: u64, name: &[u8], entry: Option<Entry>) {
        self.names.push(NameChange { dir, name: name.to_vec(), entry });
    }

    /// Sets an extended attribute of an inode whose record says that it has some.
    pub fn raw_xattr(&mut self, ino: u64, name: &[u8], value: &[u8]) {
        self.grown += value.len() as u64;
        self.change.put_xattr(ino, name, value);
    }

    /// Removes an inode that nobody has open, with all that is here of it, whatever names it has: it is on another server. The
    /// objects of a spread file stay.
    pub fn move_away(&mut self, inode: &Arc<Inode>) {
        self.record(inode).nlink = 0;
        self.updates
            .iter_mut()
            .filter(|u| u.inode.ino == inode.ino)
            .for_each(|u| (u.is_removed, u.moved) = (true, true));
    }

    /// Says that `inode`, which was created without a name, has one now.
    pub fn name_first(&mut self, inode: &Arc<Inode>) {
        self.record(inode);
        self.updates.iter_mut().filter(|u| u.inode.ino == inode.ino).for_each(|u| u.named = true);
    }

    /// Takes one name away from `inode`; a directory goes with its only one.
    pub fn drop_link(&mut self, inode: &Arc<Inode>, now: Timestamp) {
        let record = self.record(inode);
        record.ctime = now;
        record.nlink = if record.is_dir() { 0 } else { record.nlink.saturating_sub(1) };
        if record.nlink == 0 {
            self.updates.iter_mut().filter(|u| u.inode.ino == inode.ino).for_each(|u| u.is_removed = true);
        }
    }

    /// Sets the extended attribute `name` of `inode`.
    pub fn put_xattr(&mut self, inode: &Arc<Inode>, name: &[u8], value: &[u8]) {
        self.record(inode).has_xattrs = true;
        self.grown += value.len() as u64;
        self.change.put_xattr(inode.ino, name, value);
        if inode.has(UNLINKED) {
            // The file has no record in the database any more, by which recovery would find the attribute to remove it.
            self.change.put_nameless(inode.ino);
        }
    }

    /// Removes the extended attribute `name` of `inode`; `is_last` if it has no other.
    pub fn remove_xattr(&mut self, inode: &Arc<Inode>, name: &[u8], is_last: bool) {
        self.record(inode).has_xattrs = !is_last;
        self.change.remove_xattr(inode.ino, name);
    }

    /// Says that these objects of `inode` are to be removed: no name leads to them after this.
    pub fn orphan(&mut self, inode: &Inode, id: ObjectsId, layout: &Layout) {
        if inode.has(SPREAD) {
            self.change.put_spread_orphan(id, layout);
        } else {
            self.change.put_orphan(id, layout);
        }
    }

    /// Says that the objects of `inode`, a spread file, are to be cut to the size in its record, by the cut of this number.
    pub fn put_cut(&mut self, inode: &Inode, number: u64) {
        self.change.put_cut(inode.ino, number);
    }

    /// Says that the objects of `inode` are to be cut to the size in its record.
    pub fn mark_cut(&mut self, inode: &Arc<Inode>) {
        self.dirty_inodes.push((inode.clone(), Some(DirtyRecord::Cut)));
    }

    /// Says that the record of `inode` has its size.
    pub fn forget_dirty(&mut self, inode: &Arc<Inode>) {
        self.dirty_inodes.push((inode.clone(), None));
    }

    /// Brings the times of `inode` to the record, and its size up to `synced`; the caller owns [`crate::content::Content::data`]. Without a
    /// dirty record after that, if that is all of it.
    pub fn flush(&mut self, inode: &Arc<Inode>, synced: u64) {
        inode.raise_stable_size(synced);
        let size = inode.stable_size();
        self.record(inode).size = size;
        self.dirty_inodes.push((inode.clone(), (size < inode.size()).then_some(DirtyRecord::Flushed)));
    }

    /// Says that the checksums of `inode` are on stable storage with its objects; the caller owns [`crate::content::Content::data`].
    pub fn settle(&mut self, inode: &Arc<Inode>) {
        self.change.remove_unsettled(inode.owner);
        self.settled.push(inode.clone());
    }

    /// Commits to the database; memory follows only if that succeeded.
    pub fn commit(mut self) -> Result<ReclaimList, StoreError> {
        let namespace = self.namespace;
        for update in &self.updates {
            let (inode, record) = (&update.inode, &update.record);
            if update.is_removed {
                self.change.remove_record(inode.ino);
                if inode.has(DIRTY) {
                    self.change.remove_dirty_record(inode.ino);
                }
                if inode.has(UNSETTLED) {
                    self.change.remove_unsettled(inode.owner);
                }
                let is_open = inode.refs.load(Relaxed) > 0;
                match &record.body {
                    Body::Regular(_) if inode.has(SPREAD) && update.moved => self.change.remove_cut(inode.ino),
                    Body::Regular(layout) if inode.has(SPREAD) => {
                        self.change.put_spread_orphan(record.objects, layout);
                        self.change.remove_cut(inode.ino);
                    }
                    Body::Regular(layout) if update.may_have_objects() => {
                        self.change.put_orphan(record.objects, layout);
                    }
                    _ => {}
                }
                if record.has_xattrs && is_open {
                    self.change.put_nameless(inode.ino);
                } else if record.has_xattrs {
                    self.change.remove_xattrs(inode.ino)?;
                }
            } else if update.named {
                self.change.put_record(inode.ino, record);
                if inode.has(SPREAD) {
                    self.change.remove_spread_orphan(record.objects);
                } else {
                    self.change.remove_orphan(record.objects);
                }
                if let (Some(number), true) = (record.spread, inode.has(CUTTING)) {
                    self.change.put_cut(inode.ino, number);
                }
                if record.has_xattrs {
                    self.change.remove_nameless(inode.ino);
                }
                if inode.has(DIRTY) {
                    self.change.put_dirty_record(inode.ino, DirtyRecord::Written);
                }
            } else if !inode.has(UNLINKED) {
                self.change.put_record(inode.ino, record);
            }
        }
        for (inode, record) in &self.dirty_inodes {
            match record {
                Some(record) => self.change.put_dirty_record(inode.ino, *record),
                None => self.change.remove_dirty_record(inode.ino),
            }
        }
        for change in &self.names {
            let key = namespace.entry_key(change.dir, &change.name);
            match change.entry {
                Some(entry) => self.change.put_entry(key, entry),
                None => self.change.remove_entry(key),
            }
        }
        namespace.emergency_space.grow(self.grown + CHANGE_BYTES * (self.updates.len() + self.names.len()) as u64);
        self.change.commit()?;
        for change in &self.names {
            namespace.remember(namespace.entry_key(change.dir, &change.name), change.entry);
        }
        let mut reclaimed = Vec::new();
        for update in self.updates {
            let objects = update.may_have_objects();
            let Update { inode, record, touched, new, is_removed, named, .. } = update;
            inode.replace(record);
            inode.forget_touch(touched);
            if named {
                inode.clear(UNLINKED | MAY_BE_NAMED);
                if inode.has(DIRTY) {
                    inode.set(UNFLUSHED);
                    namespace.dirty_inodes().set(inode.ino, Some(DirtyRecord::Written), 0);
                }
            }
            if new {
                namespace.inodes.put(inode.ino, inode.clone());
            }
            if is_removed {
                inode.set(UNLINKED);
                if inode.refs.load(Relaxed) == 0 {
                    namespace.inodes.remove(inode.ino);
                    namespace.forget_cut(&inode);
                    if objects {
                        reclaimed.push(inode);
                    } else {
                        inode.set(RECLAIMED);
                    }
                }
            }
        }
        for (inode, record) in self.dirty_inodes {
            // Whoever writes next replaces a record that says that the file is cut, or it would be once more.
            inode.clear(if record == Some(DirtyRecord::Flushed) { UNFLUSHED } else { UNFLUSHED | DIRTY });
            namespace.dirty_inodes().set(inode.ino, record, inode.size());
        }
        for inode in self.settled {
            namespace.unsettled().remove(&inode.owner);
            inode.clear(UNSETTLED | SUSPECT);
        }
        Ok(ReclaimList(reclaimed))
    }
}

impl Update {
    fn may_have_objects(&self) -> bool {
        let regular = self.inode.layout.is_some() && !self.inode.has(SPREAD);
        regular && (self.record.has_objects || self.inode.has(DIRTY) || self.inode.refs.load(Relaxed) > 0)
    }
}
