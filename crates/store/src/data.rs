//! The bytes of files: reading, writing, appending, and putting them on stable storage.
//!
//! Writes run at once with each other, as in Linux between different ranges; appends and truncation are alone.
//! Size and times of a written file live in memory, behind a dirty record in the database ([`crate::dirty_inodes`]). The record's size is a
//! lower bound: whatever makes a file shorter brings the new size to the database first.

use crate::blocks::{BlockFault, Blocks, PIECE_BYTES, read_or_zero};
use crate::content::{Content, OBJECTS, Objects, Owner, RECLAIMED, UNSETTLED};
use crate::database::DirtyRecord;
use crate::edit::ReclaimList;
use crate::fence::Fence;
use crate::inode::{DIRTY, Inode, SET_ID, SPREAD, UNFLUSHED, UNLINKED};
use crate::object::{ObjectPlace, spot};
use crate::object_file::{ObjectFile, WriteMode};
use crate::permission::after_write;
use crate::removal::Unused;
use crate::resize::check_alive;
use crate::spread::Reserved;
use crate::{FILE_SIZE_MAX, ObjectStore, Store, StoreError};
use isonomia_memory::{Sink, Source};
use isonomia_proto::fs::{Attr, Layout, Timestamp};
use isonomia_units::{Ino, TargetId};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

/// What became of [`Store::read_cached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// So many bytes were there, as [`Store::read`] says.
    Read(usize),
    /// Not everything is in memory, or somebody changes it, or something is wrong: who may wait is to try again.
    WouldWait,
    /// The host does not tell what is in memory.
    Unknown,
}

/// Why objects cannot be read.
pub(crate) enum ReadFault {
    Store(StoreError),
    /// In the object of this index.
    Block(usize, BlockFault),
}

impl From<StoreError> for ReadFault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Store {
    /// Reads at `offset` into `sink`; returns how many bytes there were, fewer than asked for at the end of the file
    /// only. Holes are zeros.
    pub fn read<'b>(&self, ino: Ino, offset: u64, sink: impl Into<Sink<'b>>) -> Result<usize, StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        let layout = inode.regular()?;
        let sink = sink.into();
        let objects = self.share_objects(&inode, layout, offset, sink.len() as u64, None)?;
        let read = self.objects.read_objects(&inode.content, layout, &objects, offset, sink, true);
        let read = read.map_err(|fault| self.objects.read_error(&inode.content, layout, &objects, fault));
        drop(objects);
        self.objects.trim_sums();
        read
    }

    /// As [`Self::read`], if nothing has to be waited for: see [`Cached`].
    pub fn read_cached<'b>(&self, ino: Ino, offset: u64, sink: impl Into<Sink<'b>>) -> Result<Cached, StoreError> {
        // Looking for it would take the database, which may be on a device that hangs.
        let Some(inode) = self.namespace.inodes.get(ino.0) else { return Ok(Cached::WouldWait) };
        let layout = inode.regular()?;
        let sink = sink.into();
        let Ok(objects) = inode.data.try_read() else { return Ok(Cached::WouldWait) };
        if !range_is_open(layout, &objects, offset, sink.len() as u64) {
            return Ok(Cached::WouldWait);
        }
        match self.objects.read_objects(&inode.content, layout, &objects, offset, sink, false) {
            Ok(len) => Ok(Cached::Read(len)),
            Err(ReadFault::Block(_, BlockFault::Host(Errno::OPNOTSUPP))) => Ok(Cached::Unknown),
            // Whoever may wait finds out what is wrong, and says so.
            Err(_) => Ok(Cached::WouldWait),
        }
    }

    /// Writes `source` at `offset`; returns how many bytes were written, fewer than given only when the storage failed
    /// after the first ones.
    pub fn write<'b>(
        &self,
        ino: Ino,
        offset: u64,
        source: impl Into<Source<'b>>,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        self.write_up_to(ino, offset, (source.into(), WriteMode::Usual), now, |_| u64::MAX)
    }

    /// As [`Self::write`], in this mode.
    pub fn write_as<'b>(
        &self,
        mode: WriteMode,
        ino: Ino,
        offset: u64,
        source: impl Into<Source<'b>>,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        self.write_up_to(ino, offset, (source.into(), mode), now, |_| u64::MAX)
    }

    /// As [`Self::write`], but nothing behind the end that the file has then: it does not grow.
    pub fn write_within<'b>(
        &self,
        ino: Ino,
        offset: u64,
        source: impl Into<Source<'b>>,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        self.write_up_to(ino, offset, (source.into(), WriteMode::Usual), now, |inode| inode.size())
    }

    /// Writes the part of `source` that lies before `end`, which is asked under the lock that keeps the file from being cut.
    fn write_up_to(
        &self,
        ino: Ino,
        offset: u64,
        (source, mode): (Source<'_>, WriteMode),
        now: Timestamp,
        end: impl Fn(&Inode) -> u64,
    ) -> Result<usize, StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        let layout = inode.regular()?;
        check_end(offset, source.len() as u64)?;
        if source.is_empty() {
            return Ok(0);
        }
        let objects = self.share_objects(&inode, layout, offset, source.len() as u64, Some(now))?;
        let len = end(&inode).saturating_sub(offset).min(source.len() as u64) as usize;
        if len == 0 {
            return Ok(0);
        }
        self.before_write(&inode, now)?;
        let written =
            self.objects.write_objects(mode, &inode.content, layout, &objects, offset, source.part(0..len))?;
        inode.touch(now);
        drop(objects);
        self.objects.trim_sums();
        Ok(written)
    }

    /// Writes `source` at the end of the file, alone: returns where, and how many bytes.
    pub fn append<'b>(
        &self,
        ino: Ino,
        source: impl Into<Source<'b>>,
        now: Timestamp,
    ) -> Result<(u64, usize), StoreError> {
        let source = source.into();
        let inode = self.namespace.inode(ino.0)?;
        let layout = inode.regular()?;
        let mut objects = inode.own_data();
        let offset = inode.size();
        check_end(offset, source.len() as u64)?;
        if source.is_empty() {
            return Ok((offset, 0));
        }
        self.before_write(&inode, now)?;
        self.open_range(&inode, layout, &mut objects, offset, source.len() as u64, Some(now))?;
        let written = self.objects.write_objects(WriteMode::Usual, &inode.content, layout, &objects, offset, source)?;
        inode.touch(now);
        drop(objects);
        self.objects.trim_sums();
        Ok((offset, written))
    }

    /// Moves the end of the file by `len` bytes for a writer that will fill them; tells where they begin. They
    /// are zeros until then. After an unclean stop reserved bytes at the end that were never written are gone, but for those of
    /// a spread file. [`StoreError::CutMeanwhile`] while that is being cut.
    pub fn reserve_append(&self, ino: Ino, len: u64, now: Timestamp) -> Result<Reserved, StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        let layout = inode.any_regular()?;
        let mut objects = inode.own_data();
        if inode.has(SPREAD) {
            return self.reserve_told(&inode, len, now);
        }
        let offset = inode.size();
        let end = check_end(offset, len)?;
        self.before_write(&inode, now)?;
        self.check_objects(&inode, layout, &mut objects)?;
        inode.grow(end);
        inode.touch(now);
        Ok(Reserved { offset, cuts: 0 })
    }

    /// Cuts or extends the file on the strength of a capability that was verified.
    pub fn set_size(&self, ino: Ino, size: u64, now: Timestamp) -> Result<Attr, StoreError> {
        if size > FILE_SIZE_MAX {
            return Err(StoreError::Invalid);
        }
        let inode = self.namespace.inode(ino.0)?;
        self.set_inode_size(&inode, size, now)?;
        self.attr(&inode)
    }

    /// Brings everything to stable storage and ends; what needs no recovery at the next open. [`StoreError::Busy`], and
    /// recovery, if a file that has lost a writer cannot be cut.
    pub fn close(&self) -> Result<(), StoreError> {
        let cuts = self.cut_loose(usize::MAX);
        let flushed = self.flush_dirty();
        while self.objects.remove_unused()? > 0 {}
        self.settle_all()?;
        // Who opens it next takes sizes from the database, and looks for nothing that was to be removed.
        if !self.objects.is_volatile() {
            self.objects.targets.sync_all().inspect_err(|_| self.db.forget_verifier())?;
        }
        self.flush_all().and(flushed)?;
        cuts?;
        // After an unclean stop all files are loose, so those are that could not be cut.
        if !self.namespace.loose().is_empty() {
            return Err(StoreError::Busy);
        }
        self.db.close()?;
        self.objects.targets.fence.release()
    }

    /// What says whether this process may change the store, and speak for it.
    pub fn fence(&self) -> &Arc<Fence> {
        &self.objects.targets.fence
    }

    /// What must be known before the first byte changes: that the size in the database is not to be trusted, and
    /// that set-id bits are gone. The caller has the inode's data lock.
    pub(crate) fn before_write(&self, inode: &Arc<Inode>, now: Timestamp) -> Result<(), StoreError> {
        if !inode.written.load(Relaxed) {
            inode.written.store(true, Relaxed);
        }
        if inode.flags() & (UNFLUSHED | SET_ID | RECLAIMED) == UNFLUSHED {
            return Ok(());
        }
        self.before_change(inode)?;
        if inode.has(SET_ID) {
            let _namespace = self.namespace.own();
            let mut edit = self.namespace.edit();
            let record = edit.record(inode);
            record.mode = after_write(record.mode);
            record.ctime = now;
            let ReclaimList(_) = edit.commit()?;
        }
        let _namespace = self.namespace.share();
        check_alive(inode)?;
        if !inode.has(UNFLUSHED) {
            if !inode.has(UNLINKED) {
                let mut change = self.db.change();
                change.put_dirty_record(inode.ino, DirtyRecord::Written);
                change.commit()?;
                self.namespace.dirty_inodes().set(inode.ino, Some(DirtyRecord::Written), 0);
            }
            inode.set(DIRTY | UNFLUSHED);
        }
        Ok(())
    }

    /// The objects for `len` bytes at `offset`, open, shared with others; with the time of a write they are created
    /// where they do not exist.
    fn share_objects<'i>(
        &self,
        inode: &'i Arc<Inode>,
        layout: &Layout,
        offset: u64,
        len: u64,
        write: Option<Timestamp>,
    ) -> Result<RwLockReadGuard<'i, Objects>, StoreError> {
        if !inode.recent.load(Relaxed) {
            inode.recent.store(true, Relaxed);
        }
        let objects = inode.share_data();
        // Who writes may move the end over what a cut that failed has left behind it; who reads sees nothing of that.
        if (objects.is_trimmed || write.is_none()) && range_is_open(layout, &objects, offset, len) {
            return Ok(objects);
        }
        drop(objects);
        let mut objects = inode.own_data();
        self.open_range(inode, layout, &mut objects, offset, len, write)?;
        Ok(RwLockWriteGuard::downgrade(objects))
    }

    fn open_range(
        &self,
        inode: &Arc<Inode>,
        layout: &Layout,
        objects: &mut Objects,
        offset: u64,
        len: u64,
        write: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        if let Some(now) = write {
            self.before_write(inode, now)?;
        } else if inode.has(RECLAIMED) {
            return Err(StoreError::Stale);
        }
        self.check_objects(inode, layout, objects)?;
        let content = &inode.content;
        let mut open = || {
            indices(layout, offset, len).try_for_each(|index| {
                self.objects.targets.open_object(content, layout, objects, index, write.is_some())
            })
        };
        match open() {
            Err(StoreError::NoSpace) if self.objects.makes_room() => open(),
            opened => opened,
        }
    }

    /// Makes the metadata changeable again if a change failed and there is room: to be called now and then.
    pub fn heal(&self) -> Result<(), StoreError> {
        self.db.heal().map(drop)
    }

    /// Ends the right to change the store after a sync of the metadata that failed, once a new start has prospects
    /// ([`Loss::Unsynced`](crate::Loss::Unsynced)): to be called now and then, by who may wait for the storage.
    pub fn end_if_unsynced(&self) -> Result<(), StoreError> {
        self.db.end_if_unsynced()
    }

    /// Puts all changes of the database on stable storage, if there are any, and a note of that.
    pub fn sync(&self) -> Result<(), StoreError> {
        if self.db.has_changed() {
            self.db.sync()?;
        }
        self.db.keep_witness()
    }

    pub(crate) fn reclaim_all(&self, list: ReclaimList) -> Result<(), StoreError> {
        list.0.iter().try_for_each(|inode| self.reclaim(inode))
    }

    /// Has the objects of an inode without names and references removed, and removes its extended attributes.
    pub(crate) fn reclaim(&self, inode: &Arc<Inode>) -> Result<(), StoreError> {
        let mut objects = inode.own_data();
        if !inode.set(RECLAIMED) {
            return Ok(());
        }
        objects.close_all();
        let id = objects.id;
        drop(objects);
        let unused = inode.layout.as_ref().filter(|_| inode.has(OBJECTS));
        let has_xattrs = inode.record().has_xattrs;
        let mut change = self.db.change();
        if has_xattrs {
            change.remove_xattrs(inode.ino)?;
            change.remove_nameless(inode.ino);
        }
        if inode.has(UNSETTLED) {
            change.remove_unsettled(inode.owner);
        }
        if inode.layout.is_some() && unused.is_none() && !inode.has(SPREAD) {
            change.remove_orphan(id);
        }
        change.commit()?;
        self.namespace.inodes.remove(inode.ino);
        self.namespace.forget_dirty(inode.ino);
        self.namespace.forget_cut(inode);
        self.objects.unsettled().remove(&inode.owner);
        if let Some(layout) = unused {
            self.objects.remove_later(Unused { id, layout: layout.clone(), size: inode.size() });
        }
        Ok(())
    }
}

impl ObjectStore {
    /// Whether writes to a target go past the page cache of the host if they ask for it ([`WriteMode::Direct`]).
    pub fn takes_direct(&self, target: TargetId) -> bool {
        self.targets.takes_direct(target)
    }

    pub(crate) fn read_error(
        &self,
        content: &Content,
        layout: &Layout,
        objects: &Objects,
        fault: ReadFault,
    ) -> StoreError {
        match fault {
            ReadFault::Store(error) => error,
            ReadFault::Block(index, fault) => self.block_error(content, layout, objects, index, fault),
        }
    }

    /// What there is at `offset`, up to the end.
    pub(crate) fn read_objects(
        &self,
        content: &Arc<Content>,
        layout: &Layout,
        objects: &Objects,
        offset: u64,
        mut sink: Sink<'_>,
        may_wait: bool,
    ) -> Result<usize, ReadFault> {
        if content.has(RECLAIMED) {
            return Err(StoreError::Stale.into());
        }
        let len = content.size().saturating_sub(offset).min(sink.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = spot(layout, offset + done as u64);
            let run = at.run.min((len - done) as u64) as usize;
            let part = sink.part(done..done + run);
            let read = match self.checked_blocks(content, layout, objects, at.index)? {
                // Its checksums tell, if they can be believed, what of it was never written.
                found if is_lost(content, objects, at.index) && found.as_ref().is_none_or(|b| b.place.is_suspect) => {
                    Err(BlockFault::Damaged { offset: at.offset, what: "missing" })
                }
                Some(blocks) => {
                    if may_wait && run > PIECE_BYTES && !self.is_volatile() {
                        blocks.fetch(at.offset, run as u64);
                    }
                    Blocks { may_wait, ..blocks }.read(at.offset, part)
                }
                None => read_or_zero(objects.object(at.index), at.offset, part, may_wait).map_err(BlockFault::Host),
            };
            read.map_err(|fault| ReadFault::Block(at.index, fault))?;
            done += run;
        }
        Ok(len)
    }

    /// Writes to objects that are open, and lets the end follow.
    pub(crate) fn write_objects(
        &self,
        mode: WriteMode,
        content: &Arc<Content>,
        layout: &Layout,
        objects: &Objects,
        offset: u64,
        source: Source<'_>,
    ) -> Result<usize, StoreError> {
        self.emergency_space.grow(source.len() as u64);
        let _direct = (mode == WriteMode::Direct).then(|| content.begin_direct_write());
        let mut done = 0;
        let mut failure = None;
        while done < source.len() && failure.is_none() {
            let at = spot(layout, offset + done as u64);
            let run = at.run.min((source.len() - done) as u64) as usize;
            let part = source.part(done..done + run);
            let file = objects.object(at.index).ok_or(StoreError::Stale)?;
            if mode == WriteMode::Direct {
                self.targets.open_direct(content, layout, objects, at.index);
            }
            if self.emergency_space.is_spent()
                && !is_allocated(file, at.offset, run as u64)
                && let Err(full) = self.admit()
            {
                failure = Some(full);
                break;
            }
            let (written, fault) = match self.checked_blocks(content, layout, objects, at.index)? {
                Some(blocks) => Blocks { mode, ..blocks }.write(at.offset, part),
                None => {
                    let (written, errno) = file.write(at.offset, part, mode);
                    (written, errno.map(BlockFault::Host))
                }
            };
            done += written;
            if fault == Some(BlockFault::Host(Errno::NOSPC)) && self.makes_room() {
                continue;
            }
            failure = fault.map(|fault| self.block_error(content, layout, objects, at.index, fault));
        }
        content.space.forget();
        if done > 0 {
            content.grow(offset + done as u64);
        }
        match failure {
            Some(e) if done == 0 => Err(e),
            _ => Ok(done),
        }
    }

    pub(crate) fn object_error(&self, place: ObjectPlace, errno: Errno) -> StoreError {
        if errno == Errno::NOSPC {
            self.emergency_space.look();
        }
        StoreError::host(&self.targets.path(place), errno)
    }

    /// Lets the store grow, after making room if nothing else helps.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        match self.emergency_space.admit() {
            Err(StoreError::NoSpace) if self.makes_room() => self.emergency_space.admit(),
            other => other,
        }
    }

    /// Whether there were objects to remove.
    pub(crate) fn makes_room(&self) -> bool {
        let removed = self.remove_some();
        removed.inspect_err(|error| tracing::error!(%error, "cannot make room")).is_ok_and(|count| count > 0)
    }
}

/// Whether an object of a file was created and is not there, though it was looked for: see [`crate::recovery`]. What is known of
/// detached ones is older.
pub(crate) fn is_lost(content: &Content, objects: &Objects, index: usize) -> bool {
    objects.object(index).is_none() && content.was_created(index) && matches!(content.owner, Owner::File(_))
}

pub(crate) fn check_end(offset: u64, len: u64) -> Result<u64, StoreError> {
    offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX).ok_or(StoreError::FileTooLarge)
}

/// The objects that `len` bytes at `offset` touch, each once.
pub(crate) fn indices(layout: &Layout, offset: u64, len: u64) -> impl Iterator<Item = usize> {
    let count = layout.targets.len() as u64;
    let first = offset / layout.stripe_bytes;
    let last = offset.saturating_add(len.saturating_sub(1)) / layout.stripe_bytes;
    let touched = if len == 0 { 0 } else { (last - first + 1).min(count) };
    (first..first + touched).map(move |stripe| (stripe % count) as usize)
}

fn range_is_open(layout: &Layout, objects: &Objects, offset: u64, len: u64) -> bool {
    match &layout.targets[..] {
        [_] => objects.object(0).is_some(),
        _ => indices(layout, offset, len).all(|index| objects.object(index).is_some()),
    }
}

/// Whether `len` bytes at `offset` can be written without more blocks; false also where that cannot be told.
fn is_allocated(file: &ObjectFile, offset: u64, len: u64) -> bool {
    rustix::fs::seek(file, SeekFrom::Hole(offset)).is_ok_and(|hole| hole >= offset + len)
}
