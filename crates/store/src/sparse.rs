//! Space below a file: which parts of it are data and which are holes, how much the holes save, and changing that.
//!
//! The host's file systems know, for objects are as sparse as what was written to them. What a host does not tell is taken
//! to be data, as POSIX allows; what a host cannot do with the space of an object is refused.
//!
//! Of a spread file its servers know, and are asked once it rests ([`crate::spread`]).
//!
//! Asking the host at every `stat` would cost a call on each target. So an inode in memory remembers what was told
//! ([`space::Space`]) until the file is written to again, and the record has what was true when it was flushed last.

pub(crate) mod space;

use crate::blocks::BlockFault;
use crate::content::{Content, OBJECTS, Objects, RECLAIMED};
use crate::data::is_lost;
use crate::holes::next_data;
use crate::inode::{Inode, SPREAD};
use crate::object::{file_size, object_size, spot};
use crate::{FILE_SIZE_MAX, ObjectStore, Store, StoreError};
use isonomia_proto::fs::{Attr, Layout, Timestamp};
use isonomia_proto::space::{Extent, SpaceChange};
use isonomia_units::Ino;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

/// Stripes that are looked at in search of the end of data; what lies beyond is taken to be data.
const STRIPES_LOOKED_AT_MAX: usize = 1 << 16;
/// Bytes of the blocks that `st_blocks` counts.
pub(crate) const BLOCK_BYTES: u64 = 512;

impl Store {
    /// The attributes of an inode, with the space that it takes.
    ///
    /// The caller has neither the namespace lock nor the inode's data lock.
    pub(crate) fn attr(&self, inode: &Inode) -> Result<Attr, StoreError> {
        let mut attr = inode.attr();
        if inode.has(SPREAD) {
            attr.blocks = self.blocks_told(inode, attr.size_bytes);
        } else if let Some(layout) = &inode.layout {
            attr.blocks = self.objects.blocks(inode, layout)?;
        }
        Ok(attr)
    }

    /// Counts the blocks of a file that is about to be flushed. Where that fails they stay unknown.
    pub(crate) fn remember_blocks(&self, inode: &Inode, layout: &Layout, objects: &Objects) {
        if inode.space.blocks().is_none() && !inode.has(SPREAD) {
            let _ = self.objects.count_now(inode, layout, objects);
        }
    }

    /// Changes the space below `len` bytes at `offset`, on the strength of a capability that was verified.
    ///
    /// The change is alone: readers and writers see the file as before or as after it. When the storage is full a part
    /// of it can be done.
    pub fn change_space(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        how: SpaceChange,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let end = offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX).ok_or(StoreError::FileTooLarge)?;
        if len == 0 {
            return Err(StoreError::Invalid);
        }
        let inode = self.namespace.inode(ino.0)?;
        let layout = inode.regular()?;
        let mut objects = inode.own_data();
        self.before_write(&inode, now)?;
        self.check_objects(&inode, layout, &mut objects)?;
        let grows = self.objects.admit_space(end, len, how, &inode)?;
        let changed = (0..layout.targets.len()).try_for_each(|index| {
            let start = object_size(layout, index, offset);
            let part_len = object_size(layout, index, end) - start;
            if part_len == 0 {
                return Ok(());
            }
            self.objects.targets.open_object(
                &inode.content,
                layout,
                &mut objects,
                index,
                how != SpaceChange::PunchHole,
            )?;
            self.objects.change_object(&inode.content, layout, &objects, index, start..start + part_len, how, grows)
        });
        inode.space.forget();
        if grows && changed.is_ok() {
            inode.grow(end);
        }
        // Some objects may have grown, and the file did not.
        objects.is_trimmed = changed.is_ok();
        inode.touch(now);
        changed
    }

    /// Where the next `what` begins, at `offset` or behind it; [`StoreError::NoDevice`] (ENXIO, as `lseek(2)` has it) if
    /// `offset` is at the end of the file or beyond, or only a hole is left of it.
    pub fn seek(&self, ino: Ino, offset: u64, what: Extent) -> Result<u64, StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        let layout = inode.regular()?.clone();
        let mut objects = inode.own_data();
        if offset >= inode.size() {
            return Err(StoreError::NoDevice);
        }
        self.check_objects(&inode, &layout, &mut objects)?;
        self.objects.seek_objects(&inode.content, &layout, &mut objects, offset, what)
    }
}

impl ObjectStore {
    /// What the objects take, in blocks of 512 bytes.
    pub(crate) fn blocks(&self, content: &Content, layout: &Layout) -> Result<u64, StoreError> {
        match content.space.blocks() {
            Some(blocks) => Ok(blocks),
            None => self.count_now(content, layout, &content.share_data()),
        }
    }

    fn count_now(&self, content: &Content, layout: &Layout, objects: &Objects) -> Result<u64, StoreError> {
        content.space.count(&self.counts, || self.count_blocks(content, layout, objects))
    }

    /// Asks the host for the space of all objects.
    fn count_blocks(&self, content: &Content, layout: &Layout, objects: &Objects) -> Result<u64, StoreError> {
        if !content.has(OBJECTS) || content.has(RECLAIMED) {
            return Ok(0);
        }
        let mut blocks = 0;
        for index in 0..objects.count() {
            let place = content.place(objects.id, layout, index);
            let stat = match objects.object(index) {
                Some(fd) => {
                    let stat = rustix::fs::fstat(fd);
                    Some(stat.map_err(|e| StoreError::host(&self.targets.path(place), e))?)
                }
                None => self.targets.stat_object(place)?,
            };
            blocks += stat.map_or(0, |stat| stat.st_blocks.max(0) as u64 * 512 / BLOCK_BYTES);
        }
        Ok(blocks)
    }

    /// Lets the space below `len` bytes, which end at `end`, change; whether the end moves.
    pub(crate) fn admit_space(
        &self,
        end: u64,
        len: u64,
        how: SpaceChange,
        content: &Content,
    ) -> Result<bool, StoreError> {
        match how {
            SpaceChange::Allocate { keep_size } | SpaceChange::ZeroRange { keep_size } => {
                self.admit()?;
                self.emergency_space.grow(len);
                Ok(!keep_size && end > content.size())
            }
            SpaceChange::PunchHole => Ok(false),
        }
    }

    /// Changes the space below `range` of one object, if it is open.
    #[expect(clippy::too_many_arguments, reason = "an object, and what is to be done with it")]
    pub(crate) fn change_object(
        &self,
        content: &Arc<Content>,
        layout: &Layout,
        objects: &Objects,
        index: usize,
        range: Range<u64>,
        how: SpaceChange,
        grows: bool,
    ) -> Result<(), StoreError> {
        let Some(fd) = objects.object(index) else { return Ok(()) };
        let (start, len) = (range.start, range.end - range.start);
        let change = |flags| rustix::fs::fallocate(fd.to_change()?, flags, start, len);
        let checked = self.checked_blocks(content, layout, objects, index)?;
        let zero = |change: &dyn Fn() -> Result<(), Errno>| match &checked {
            Some(blocks) => blocks.zero(start, len, change),
            None => change().map_err(BlockFault::Host),
        };
        let keep = if grows { FallocateFlags::empty() } else { FallocateFlags::KEEP_SIZE };
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let outcome = match how {
            SpaceChange::Allocate { .. } => change(keep).map_err(BlockFault::Host),
            SpaceChange::PunchHole => zero(&|| change(punch)),
            // Not every host can do it at once. Nobody looks in between.
            SpaceChange::ZeroRange { .. } => zero(&|| match change(FallocateFlags::ZERO_RANGE | keep) {
                Err(Errno::OPNOTSUPP) => change(punch).and_then(|()| change(keep)),
                other => other,
            }),
        };
        outcome.map_err(|fault| match fault {
            BlockFault::Host(Errno::OPNOTSUPP | Errno::NOSYS) => StoreError::NotSupported,
            fault => self.block_error(content, layout, objects, index, fault),
        })
    }

    /// As [`Store::seek`], in objects that have nothing beyond the end, which is behind `offset`.
    pub(crate) fn seek_objects(
        &self,
        content: &Arc<Content>,
        layout: &Layout,
        objects: &mut Objects,
        offset: u64,
        what: Extent,
    ) -> Result<u64, StoreError> {
        let size = content.size();
        (0..layout.targets.len()).try_for_each(|i| self.targets.open_object(content, layout, objects, i, false))?;
        let lost = (0..layout.targets.len()).any(|index| is_lost(content, objects, index));
        if lost || self.is_short(content, layout, objects)? {
            // A lost object is not told as a hole, but as data: a read of it then fails with an error.
            return Ok(if what == Extent::Data { offset } else { size });
        }
        match what {
            Extent::Data => self.next_data(content, layout, objects, offset, size),
            Extent::Hole => self.next_hole(content, layout, objects, offset, size),
        }
    }

    fn next_data(
        &self,
        content: &Content,
        layout: &Layout,
        objects: &Objects,
        offset: u64,
        size: u64,
    ) -> Result<u64, StoreError> {
        let fail = |index, e| self.object_error(content.place(objects.id, layout, index), e);
        let mut nearest = None;
        for index in 0..objects.count() {
            let Some(fd) = objects.object(index) else { continue };
            // Nothing of the object before this is at or behind `offset`.
            let from = object_size(layout, index, offset);
            let at = next_data(fd, from).map_err(|e| fail(index, e))?;
            let Some(at) = at else { continue };
            let in_file = file_size(layout, index, at + 1) - 1;
            nearest = Some(nearest.map_or(in_file, |nearest: u64| nearest.min(in_file)));
        }
        nearest.filter(|at| *at < size).ok_or(StoreError::NoDevice)
    }

    fn next_hole(
        &self,
        content: &Content,
        layout: &Layout,
        objects: &Objects,
        offset: u64,
        size: u64,
    ) -> Result<u64, StoreError> {
        let fail = |index, e| self.object_error(content.place(objects.id, layout, index), e);
        // How far each object is known to be data without a break.
        let mut data_until: Vec<Option<u64>> = vec![None; objects.count()];
        let mut at = offset;
        for _ in 0..STRIPES_LOOKED_AT_MAX {
            if at >= size {
                break;
            }
            let here = spot(layout, at);
            let known = data_until[here.index].filter(|until| *until > here.offset);
            let until = match (known, objects.object(here.index)) {
                (Some(until), _) => until,
                (None, None) => here.offset,
                (None, Some(fd)) => match rustix::fs::seek(fd, SeekFrom::Hole(here.offset)) {
                    Ok(until) => until,
                    Err(Errno::NXIO) => here.offset,
                    Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(size),
                    Err(e) => return Err(fail(here.index, e)),
                },
            };
            data_until[here.index] = Some(until);
            let data = until - here.offset;
            if data < here.run {
                return Ok((at + data).min(size));
            }
            at = at.saturating_add(here.run);
        }
        Ok(size)
    }
}
