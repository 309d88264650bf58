//! Detached objects: those of files whose names and sizes another server has, or this one without their bytes
//! ([`crate::spread`]).
//!
//! A detached object is known by its [`ObjectPlace`]: number and generation of the file's objects, index of the stripe, and
//! target. The server that has it knows no name, layout, size, or time of the file, and asks nobody: what it lets happen is
//! what a capability allows ([`crate::ObjectSigner`]), which the caller has verified. Offsets are those of the object.
//!
//! | operation | what it does |
//! |---|---|
//! | [`ObjectStore::write_object`], [`ObjectStore::write_object_after`], [`ObjectStore::write_object_as`] | writes; creates the object if there is none; tells the number of its last cut |
//! | [`ObjectStore::read_object`] | reads; short at the end of the object; holes are zeros |
//! | [`ObjectStore::sync_object`] | brings its bytes, and that it exists, to stable storage |
//! | [`ObjectStore::cut_object`] | cuts what lies behind a size, once for each number |
//! | [`ObjectStore::remove_detached`] | removes objects, and keeps late writes from bringing them back |
//! | [`ObjectStore::stat_object`], [`ObjectStore::object_blocks`] | its end, the blocks that it takes, the number of its last cut |
//! | [`ObjectStore::seek_object`], [`ObjectStore::change_object_space`] | `SEEK_DATA`, `SEEK_HOLE`; `fallocate` |
//! | [`ObjectStore::object_extent`] | a range of it for the engine that brings pages to the device |
//! | [`ObjectStore::detached_objects`] | all there are, a few at a time, to ask the servers of their files whether they are still wanted |
//! | [`ObjectStore::forget_removed`] | drops what is remembered of those that were removed, when its time is over |
//!
//! # What it guarantees
//! * What is guaranteed of the bytes of files is guaranteed here, by the same code: a detached object is [`Content`] of one
//!   object. Blocks have checksums, which are settled as those of files are; scrub and `check` look at it.
//! * The length of an object is what its host says, and is nowhere else: no power cut can leave a record that says
//!   otherwise. Where the checksums say that the object had more, it does: what is lost is damage, not the end.
//! * What [`ObjectStore::sync_object`] covered is there after a power cut: the object's bytes, its entry in the directory, and the
//!   batch with its record, without which recovery would take the object for nobody's.
//! * An object is found by its record in the table `detached`, whatever the volume in its number is: a volume that moves
//!   leaves its objects where they are. Numbers of files and of detached objects do not meet, for a number is given out
//!   once in a volume.
//!
//! # Cuts
//! A cut has a number, which the server of the file's volume counts, and which every object of the file is told, those that
//! do not exist as well. An object takes only a cut with a higher number than its last, so a message that is late or comes
//! twice does nothing. The number is on stable storage, with the size to cut to, before the first byte goes; after the cut,
//! which is brought to stable storage too, the size is taken out of the record again. A stop in between leaves a record that
//! says that the cut is not done: it is done again before the object is used, and nothing that was written behind it can be
//! lost by that, for the record without the size is in the journal before whatever a later write or sync puts there.
//!
//! A writer hears the number of the object's last cut with each write. It tells the server of the volume, which has the
//! size: a write that went to an object before a cut, and is told after it, is to be done again
//! ([`StoreError::CutMeanwhile`]). So no acknowledged write is lost to a cut that was answered before.
//!
//! A writer also says of which cut it knows, and an object that has done a later one refuses the write. What was sent before
//! a cut and comes after it is either of a writer who is gone, or was meant for a place that may be another's by now.
//!
//! # Removal
//! A removal takes the record away and puts that on stable storage before the file goes: a power cut leaves an object with
//! its record, or one of nobody, which recovery removes.
//!
//! A late write with a capability that is still valid would bring the object back. The caller says until when a capability
//! can be; until then the table `removed` says that the place is closed ([`StoreError::Stale`]). When that is over, a write
//! is refused because its capability is. So what is remembered is bounded by the removals of files that were in use within
//! the life of a capability. A server whose clock goes back, or runs ahead of the others by more than what they allow each
//! other, can still bring an object back; nobody can read it, as its number is never given out again, and it takes space
//! until the pass over [`ObjectStore::detached_objects`] has asked for it.

mod change;
mod record;

pub(crate) use record::DetachedRecord;

use crate::blocks::{BlockFault, Blocks};
use crate::checksum::{BLOCK_BYTES, blocks_in};
use crate::content::{Content, Loaded, OBJECTS, Objects, Owner, RECLAIMED, SUMS, SUSPECT, UNSETTLED};
use crate::data::{Cached, ReadFault, check_end};
use crate::database::ObjectChange;
use crate::object::{ObjectPlace, ObjectsId};
use crate::object_file::WriteMode;
use crate::record::BLOCKS_UNKNOWN;
use crate::{FILE_SIZE_MAX, ObjectStore, StoreError};
use isonomia_memory::{Sink, Source};
use isonomia_proto::fs::Layout;
use isonomia_proto::space::{Extent, SpaceChange};
use rustix::io::Errno;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

/// Indices of stripes are below this.
const INDEX_END: u32 = Layout::TARGETS_MAX as u32;

/// A detached object in memory.
pub(crate) struct Detached {
    pub place: ObjectPlace,
    pub content: Arc<Content>,
    /// Number of the last cut. It changes under the owned [`Content::data`], as what follows.
    cuts: AtomicU64,
    /// How long that cut makes it, or [`FINISHED`].
    unfinished: AtomicU64,
}

/// No object is so long.
const FINISHED: u64 = u64::MAX;

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectWritten {
    /// Bytes that were written: fewer than given only when the storage failed after the first ones.
    pub len: usize,
    /// The number of the object's last cut, 0 if there was none: what was written came after it.
    pub cuts: u64,
}

/// What is known of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStat {
    /// Where it ends; 0 if there is none.
    pub size_bytes: u64,
    /// What it takes, in blocks of 512 bytes.
    pub blocks: u64,
    /// The number of its last cut.
    pub cuts: u64,
}

impl Detached {
    fn new(place: ObjectPlace, record: DetachedRecord, unsettled: u16) -> Self {
        let layout =
            Arc::new(Layout { stripe_bytes: Layout::STRIPE_ALIGN_BYTES, targets: vec![place.target], grows: false });
        let flag = |set, flag| if set { flag } else { 0 };
        let loaded = Loaded {
            objects: ObjectsId::of(place.object),
            first_index: place.object.index as usize,
            size: 0,
            blocks: BLOCKS_UNKNOWN,
            flags: flag(record.is_created, OBJECTS) | flag(record.has_sums, SUMS) | unsettled,
            created: &[u8::from(record.is_created)],
        };
        Self {
            place,
            content: Arc::new(Content::new(Owner::Detached(place), Some(layout), &loaded)),
            cuts: AtomicU64::new(record.cuts),
            unfinished: AtomicU64::new(record.unfinished.unwrap_or(FINISHED)),
        }
    }

    pub fn is_evictable(object: &Arc<Self>) -> bool {
        Arc::strong_count(object) == 1 && Content::is_evictable(&object.content)
    }

    pub fn layout(&self) -> &Layout {
        self.content.layout.as_ref().expect("it was made with one")
    }

    fn cuts(&self) -> u64 {
        self.cuts.load(Acquire)
    }

    fn unfinished(&self) -> Option<u64> {
        Some(self.unfinished.load(Acquire)).filter(|size| *size != FINISHED)
    }

    fn set_cuts(&self, cuts: u64, unfinished: Option<u64>) {
        self.cuts.store(cuts, Release);
        self.unfinished.store(unfinished.unwrap_or(FINISHED), Release);
    }

    fn record(&self) -> DetachedRecord {
        DetachedRecord {
            is_created: self.content.was_created(0),
            has_sums: self.content.has(SUMS),
            cuts: self.cuts(),
            unfinished: self.unfinished(),
        }
    }

    /// Has `change` say of the object what is true now.
    pub fn put_into(&self, change: &mut ObjectChange<'_>) {
        let record = self.record();
        if record == DetachedRecord::default() {
            change.remove_detached(self.place);
        } else {
            change.put_detached(self.place, &record);
        }
    }
}

impl ObjectStore {
    /// The object at `place`, whether it exists or not; [`StoreError::Stale`] if it was removed, [`StoreError::OtherTarget`] if
    /// the target is none of this server's.
    pub(crate) fn detached(&self, place: ObjectPlace) -> Result<Arc<Detached>, StoreError> {
        if let Some(object) = self.detached.get(place) {
            return Ok(object);
        }
        if place.object.index >= INDEX_END {
            return Err(StoreError::Invalid);
        }
        if !self.targets.has(place.target) {
            return Err(StoreError::OtherTarget(place.target));
        }
        // Or one that is being removed could come back.
        let _loading = self.share_removals();
        let record = match self.db.detached(place)? {
            Some(record) => record,
            None if self.db.removed_until(place)?.is_some() => return Err(StoreError::Stale),
            None => DetachedRecord::default(),
        };
        let unsettled = match self.unsettled().get(&Owner::Detached(place)) {
            Some(state) if state.suspect.is_some() => UNSETTLED | SUSPECT,
            Some(_) => UNSETTLED,
            None => 0,
        };
        Ok(self.detached.get_or_put(place, Arc::new(Detached::new(place, record, unsettled))))
    }

    /// Reads at `offset` of an object into `sink`; returns how many bytes there were, fewer than asked for at the end of the
    /// object only. Holes are zeros; an object that does not exist has its end at 0.
    pub fn read_object<'b>(
        &self,
        place: ObjectPlace,
        offset: u64,
        sink: impl Into<Sink<'b>>,
    ) -> Result<usize, StoreError> {
        let object = self.detached(place)?;
        let (content, layout) = (&object.content, object.layout());
        let objects = self.share_detached(&object, false)?;
        let read = self.read_objects(content, layout, &objects, offset, sink.into(), true);
        let read = read.map_err(|fault| self.read_error(content, layout, &objects, fault));
        drop(objects);
        self.trim_sums();
        read
    }

    /// As [`Self::read_object`], if nothing has to be waited for: see [`Cached`].
    pub fn read_object_cached<'b>(
        &self,
        place: ObjectPlace,
        offset: u64,
        sink: impl Into<Sink<'b>>,
    ) -> Result<Cached, StoreError> {
        let object = self.detached(place)?;
        let content = &object.content;
        let Ok(objects) = content.data.try_read() else { return Ok(Cached::WouldWait) };
        if objects.object(0).is_none() || !objects.is_trimmed {
            return Ok(Cached::WouldWait);
        }
        match self.read_objects(content, object.layout(), &objects, offset, sink.into(), false) {
            Ok(len) => Ok(Cached::Read(len)),
            Err(ReadFault::Block(_, BlockFault::Host(Errno::OPNOTSUPP))) => Ok(Cached::Unknown),
            Err(_) => Ok(Cached::WouldWait),
        }
    }

    /// Writes `source` at `offset` of an object, which is created if it does not exist.
    pub fn write_object<'b>(
        &self,
        place: ObjectPlace,
        offset: u64,
        source: impl Into<Source<'b>>,
    ) -> Result<ObjectWritten, StoreError> {
        self.write_object_after(u64::MAX, place, offset, source)
    }

    /// The same for a writer who knows of no cut later than the one of number `known`; [`StoreError::CutMeanwhile`], and
    /// nothing is written, if the object has done a later one.
    pub fn write_object_after<'b>(
        &self,
        known: u64,
        place: ObjectPlace,
        offset: u64,
        source: impl Into<Source<'b>>,
    ) -> Result<ObjectWritten, StoreError> {
        self.write_object_as(WriteMode::Usual, known, place, offset, source)
    }

    /// As [`Self::write_object_after`], in this mode.
    pub fn write_object_as<'b>(
        &self,
        mode: WriteMode,
        known: u64,
        place: ObjectPlace,
        offset: u64,
        source: impl Into<Source<'b>>,
    ) -> Result<ObjectWritten, StoreError> {
        let source = source.into();
        check_end(offset, source.len() as u64)?;
        let object = self.detached(place)?;
        if object.cuts() > known {
            return Err(StoreError::CutMeanwhile);
        }
        if source.is_empty() {
            return Ok(ObjectWritten { len: 0, cuts: object.cuts() });
        }
        let objects = self.share_detached(&object, true)?;
        // From here on nobody cuts it.
        if object.cuts() > known {
            return Err(StoreError::CutMeanwhile);
        }
        self.before_detached_change(&object)?;
        let len = self.write_objects(mode, &object.content, object.layout(), &objects, offset, source)?;
        let cuts = object.cuts();
        drop(objects);
        self.trim_sums();
        Ok(ObjectWritten { len, cuts })
    }

    /// Whether who writes to the object next may have to wait for the device: see [`crate::Store::write_waits`].
    pub fn is_object_written_directly(&self, place: ObjectPlace) -> bool {
        self.detached.get(place).is_some_and(|object| object.content.is_written_directly())
    }

    /// Puts an object's bytes, and that there is such an object, on stable storage. One that does not exist has none.
    pub fn sync_object(&self, place: ObjectPlace) -> Result<(), StoreError> {
        let object = self.detached(place)?;
        let (content, layout) = (&object.content, object.layout());
        if content.has(RECLAIMED) {
            return Err(StoreError::Stale);
        }
        let records = content.records();
        let is_recorded = !content.is_record_synced() && object.record() != DetachedRecord::default();
        let committed = is_recorded.then(|| self.db.committed());
        self.sync_at_once(content, layout, committed, || self.sync_bytes(content, layout, 0, &mut None))?;
        if is_recorded {
            content.note_synced(records);
        }
        Ok(())
    }

    /// The end of an object, what it takes, and the number of its last cut.
    pub fn stat_object(&self, place: ObjectPlace) -> Result<ObjectStat, StoreError> {
        let object = self.detached(place)?;
        let objects = self.share_detached(&object, false)?;
        let (size_bytes, cuts) = (object.content.size(), object.cuts());
        drop(objects);
        Ok(ObjectStat { size_bytes, blocks: self.blocks(&object.content, object.layout())?, cuts })
    }

    /// What an object takes, in blocks of 512 bytes; 0 of one that does not exist.
    pub fn object_blocks(&self, place: ObjectPlace) -> Result<u64, StoreError> {
        let object = self.detached(place)?;
        self.blocks(&object.content, object.layout())
    }

    /// Where the next `what` begins, at `offset` of an object or behind it; [`StoreError::NoDevice`] (ENXIO) if `offset` is at
    /// its end or beyond, or only a hole is left of it.
    pub fn seek_object(&self, place: ObjectPlace, offset: u64, what: Extent) -> Result<u64, StoreError> {
        let object = self.detached(place)?;
        let mut objects = self.own_detached(&object)?;
        if offset >= object.content.size() {
            return Err(StoreError::NoDevice);
        }
        self.seek_objects(&object.content, object.layout(), &mut objects, offset, what)
    }

    /// Changes the space below `len` bytes at `offset` of an object, as [`crate::Store::change_space`] does in a file; tells the number
    /// of its last cut.
    pub fn change_object_space(
        &self,
        place: ObjectPlace,
        offset: u64,
        len: u64,
        how: SpaceChange,
    ) -> Result<u64, StoreError> {
        let end = check_end(offset, len)?;
        if len == 0 {
            return Err(StoreError::Invalid);
        }
        let object = self.detached(place)?;
        let (content, layout) = (&object.content, object.layout());
        let mut objects = self.own_detached(&object)?;
        let grows = self.admit_space(end, len, how, content)?;
        match how {
            SpaceChange::PunchHole => self.targets.open_object(content, layout, &mut objects, 0, false)?,
            _ => self.create_object(&object, &mut objects)?,
        }
        self.before_detached_change(&object)?;
        let changed = self.change_object(content, layout, &objects, 0, offset..end, how, grows);
        content.space.forget();
        if grows && changed.is_ok() {
            content.grow(end);
        }
        // What failed may have moved the end.
        objects.is_trimmed = changed.is_ok();
        changed.map(|()| object.cuts())
    }

    /// Detached objects behind `after`, in order, `max` at most: for a slow pass that asks the servers of their volumes
    /// which of them are still wanted.
    pub fn detached_objects(&self, after: Option<ObjectPlace>, max: usize) -> Result<Vec<ObjectPlace>, StoreError> {
        let mut found = Vec::new();
        if max > 0 {
            self.db.detached_after(after, |place, _| {
                found.push(place);
                found.len() < max
            })?;
        }
        Ok(found)
    }

    /// The object open, if it exists, and its end known; to be written, it exists.
    fn share_detached<'o>(
        &self,
        object: &'o Arc<Detached>,
        is_written: bool,
    ) -> Result<RwLockReadGuard<'o, Objects>, StoreError> {
        let content = &object.content;
        if !content.recent.load(Relaxed) {
            content.recent.store(true, Relaxed);
        }
        let objects = content.share_data();
        let keeps_sums = self.protection.is_on || !content.has(SUMS);
        let is_ready = objects.object(0).is_some() || !is_written && !content.has(OBJECTS);
        if objects.is_trimmed && is_ready && (keeps_sums || !is_written) && !content.has(RECLAIMED) {
            return Ok(objects);
        }
        drop(objects);
        let mut objects = self.own_detached(object)?;
        if is_written {
            self.before_detached_change(object)?;
            match self.create_object(object, &mut objects) {
                Err(StoreError::NoSpace) if self.makes_room() => self.create_object(object, &mut objects)?,
                created => created?,
            }
        } else {
            self.targets.open_object(content, object.layout(), &mut objects, 0, false)?;
        }
        Ok(RwLockWriteGuard::downgrade(objects))
    }

    /// The object alone, its end known.
    fn own_detached<'o>(&self, object: &'o Arc<Detached>) -> Result<RwLockWriteGuard<'o, Objects>, StoreError> {
        let mut objects = object.content.own_data();
        if object.content.has(RECLAIMED) {
            return Err(StoreError::Stale);
        }
        if !objects.is_trimmed {
            self.find_end(object, &mut objects)?;
            if let Some(size) = object.unfinished() {
                self.finish_cut_of(object, &mut objects, size)?;
            }
            objects.is_trimmed = true;
        }
        Ok(objects)
    }

    /// Looks how long an object is. The caller owns its data.
    fn find_end(&self, object: &Detached, objects: &mut Objects) -> Result<(), StoreError> {
        let (content, layout) = (&object.content, object.layout());
        self.targets.open_object(content, layout, objects, 0, false)?;
        let size = match objects.object(0) {
            Some(fd) => rustix::fs::fstat(fd).map_err(|e| self.object_error(object.place, e))?.st_size as u64,
            None => 0,
        };
        let fail = |fault| self.block_error(content, layout, objects, 0, fault);
        let end = match self.checked_blocks(content, layout, objects, 0)? {
            Some(blocks) if !blocks.place.is_suspect && blocks.is_short().map_err(fail)? => match blocks.count() {
                Ok(count) => count * BLOCK_BYTES as u64,
                // Nobody knows how long it was, but that it was.
                Err(BlockFault::Damaged { .. }) if objects.object(0).is_none() => FILE_SIZE_MAX,
                Err(BlockFault::Damaged { .. }) => size,
                Err(fault) => return Err(fail(fault)),
            },
            // What was known to be lost was in it.
            Some(Blocks { known: Some(known), place, .. }) if place.is_suspect => {
                known.last_lost(blocks_in(size)).map_or(size, |last| (last + 1) * BLOCK_BYTES as u64)
            }
            _ => size,
        };
        content.set_size(end);
        Ok(())
    }
}
