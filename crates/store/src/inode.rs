//! An inode in memory.
//!
//! Locks, in the order in which they may be taken: [`Inode::data`], then the store's `namespace`, then the inode's
//! record (a leaf, held for a copy only). The namespace lock is held for writing by whoever changes records in the
//! database, so records need no lock of their own against each other.

use crate::StoreError;
use crate::object::ObjectsId;
use crate::object_file::ObjectFile;
use crate::record::{BLOCKS_UNKNOWN, Body, Record};
use crate::sparse::Space;
use crate::sums::Sums;
use isonomia_proto::fs::{Attr, Layout, Timestamp};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The size in memory may be above that of the record in the database, and the database knows it.
pub(crate) const DIRTY: u16 = 1;
/// No name is left; the record is gone from the database.
pub(crate) const UNLINKED: u16 = 2;
/// The objects are gone, or are about to go: no more data operations.
pub(crate) const RECLAIMED: u16 = 4;
/// Set-id bits are set: a write must clear them.
pub(crate) const SET_ID: u16 = 8;
/// Object files may exist.
pub(crate) const OBJECTS: u16 = 16;
/// Every block of the objects has a checksum.
pub(crate) const SUMS: u16 = 64;
/// The database has an entry for it: checksums on stable storage may be older than the objects. See `settle`.
pub(crate) const UNSETTLED: u16 = 128;
/// That entry is from before an unclean stop: a block and its checksum may disagree without damage.
pub(crate) const SUSPECT: u16 = 256;

/// So may be the times; then it is dirty as well.
pub(crate) const UNFLUSHED: u16 = 512;
/// It was created without a name, and may be given one.
pub(crate) const MAY_BE_NAMED: u16 = 32;
/// The host could not write bytes that were acknowledged, and nobody who asked for an `fsync` knows it yet.
pub(crate) const LOST_WRITES: u16 = 1024;

pub(crate) struct Inode {
    pub ino: u64,
    pub generation: u32,
    /// Where the bytes of a regular file are.
    pub layout: Option<Arc<Layout>>,
    /// Its objects were used since [`OpenObjects`](crate::object) last looked for one to close: they are not closed then.
    pub recent: AtomicBool,
    /// Open references of sessions. Grows under the namespace lock only.
    pub refs: AtomicU32,
    /// Writes and reads share it; appends, truncation, opening objects, and flushing own it.
    pub data: RwLock<Objects>,
    size: AtomicU64,
    /// What a record may say is the size: bytes are on stable storage up to there, or it was set by `truncate`. Changes
    /// under the owned namespace lock only.
    stable_size: AtomicU64,
    /// Records that it had, or ought to have had, since it was loaded.
    records: AtomicU64,
    /// How many of those a sync of the database covered.
    synced_records: AtomicU64,
    /// What the objects take.
    pub space: Space,
    /// Time of the last write since the record was last changed, ns since the epoch; [`UNTOUCHED`] for none.
    touched: AtomicI64,
    flags: AtomicU16,
    /// Objects that were created, a bit each.
    created: Box<[AtomicU8]>,
    /// Of each object.
    pub sums: Box<[Sums]>,
    /// Written to since this was last cleared.
    pub written: AtomicBool,
    record: RwLock<Record>,
}

/// The open object files of an inode, by index in the layout.
pub(crate) struct Objects {
    pub id: ObjectsId,
    pub open: Vec<Option<ObjectFile>>,
    /// Which of them are known to have a directory entry on stable storage, if they exist.
    pub entry_synced: Vec<bool>,
    /// They are known to have nothing beyond the end of the file.
    pub is_trimmed: bool,
    /// Of each of them: the size of the file when what it had then was last brought to stable storage.
    synced_sizes: Vec<u64>,
    /// How often the size was set.
    pub resizes: u64,
}

impl Objects {
    fn new(id: ObjectsId, count: usize, size: u64) -> Self {
        let open = (0..count).map(|_| None).collect();
        let synced_sizes = vec![size; count];
        Self { id, open, entry_synced: vec![false; count], is_trimmed: false, synced_sizes, resizes: 0 }
    }

    /// Takes other objects instead, none of which exists yet.
    pub fn become_those_of(&mut self, id: ObjectsId) {
        let resizes = self.resizes;
        *self = Self { resizes, ..Self::new(id, self.open.len(), 0) };
    }

    /// The size was set to this.
    fn resized(&mut self, size: u64) {
        self.resizes += 1;
        self.all_synced(size);
    }

    /// Object `index` was brought to stable storage as it was, or newer, when the file had `size` bytes.
    pub fn synced(&mut self, index: usize, size: u64) {
        self.synced_sizes[index] = self.synced_sizes[index].max(size);
    }

    /// All of them were.
    pub fn all_synced(&mut self, size: u64) {
        self.synced_sizes.fill(size);
    }

    /// Up to which size the file is on stable storage.
    pub fn synced_size(&self) -> u64 {
        self.synced_sizes.iter().copied().min().unwrap_or(0)
    }
}

const UNTOUCHED: i64 = i64::MIN;

impl Inode {
    pub fn new(ino: u64, record: Record) -> Self {
        let layout = match &record.body {
            Body::Regular(layout) => Some(layout.clone()),
            _ => None,
        };
        let count = layout.as_ref().map_or(0, |l| l.targets.len());
        let objects = Objects::new(record.objects, count, record.size);
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(record.has_objects, OBJECTS) | flag(record.has_sums, SUMS);
        let created = (0..count.div_ceil(8)).map(|i| AtomicU8::new(*record.created.get(i).unwrap_or(&0))).collect();
        let inode = Self {
            ino,
            generation: record.generation,
            layout,
            recent: AtomicBool::new(true),
            refs: AtomicU32::new(0),
            data: RwLock::new(objects),
            size: AtomicU64::new(record.size),
            stable_size: AtomicU64::new(record.size),
            records: AtomicU64::new(1),
            synced_records: AtomicU64::new(0),
            space: Space::of(record.blocks),
            touched: AtomicI64::new(UNTOUCHED),
            flags: AtomicU16::new(flags),
            created,
            sums: (0..count).map(|_| Sums::default()).collect(),
            written: AtomicBool::new(false),
            record: RwLock::new(record),
        };
        inode.note_set_id();
        inode
    }

    /// Unreferenced inodes may leave memory if nothing is lost with them.
    pub fn evictable(inode: &Arc<Self>) -> bool {
        Arc::strong_count(inode) == 1
            && inode.refs.load(Relaxed) == 0
            && !inode.has(UNFLUSHED | LOST_WRITES)
            && !inode.sums.iter().any(Sums::is_dirty)
    }

    pub fn flags(&self) -> u16 {
        self.flags.load(Acquire)
    }

    pub fn has(&self, flag: u16) -> bool {
        self.flags() & flag != 0
    }

    /// Sets a flag; true if it was clear.
    pub fn set(&self, flag: u16) -> bool {
        self.flags.fetch_or(flag, AcqRel) & flag == 0
    }

    /// Clears a flag; true if it was set.
    pub fn clear(&self, flag: u16) -> bool {
        self.flags.fetch_and(!flag, AcqRel) & flag != 0
    }

    /// Whether object `index` was created: if there is no such file, it is lost.
    pub fn was_created(&self, index: usize) -> bool {
        self.created[index / 8].load(Acquire) & 1 << (index % 8) != 0
    }

    /// The objects are others now, none of which was created. The caller owns [`Inode::data`].
    pub fn forget_created(&self) {
        self.created.iter().for_each(|bits| bits.store(0, Release));
        self.sums.iter().for_each(|sums| sums.lock().reset());
    }

    pub fn set_created(&self, index: usize) {
        self.created[index / 8].fetch_or(1 << (index % 8), AcqRel);
    }

    pub fn size(&self) -> u64 {
        self.size.load(Acquire)
    }

    /// After a write up to `end`.
    pub fn grow(&self, end: u64) {
        if end > self.size.load(Relaxed) {
            self.size.fetch_max(end, AcqRel);
        }
    }

    /// The size that the record has now; the caller owns [`Inode::data`] and the namespace lock.
    pub fn resize(&self, objects: &mut Objects, size: u64) {
        self.size.store(size, Release);
        self.stable_size.store(size, Release);
        objects.resized(size);
    }

    /// The size of an inode that was just loaded, and whose dirty record says that it was flushed.
    pub fn set_flushed(&self, size: u64) {
        self.size.store(size, Release);
        self.set(DIRTY);
    }

    pub fn stable_size(&self) -> u64 {
        self.stable_size.load(Acquire)
    }

    /// Bytes up to `size` are on stable storage; the caller owns the namespace lock.
    pub fn raise_stable_size(&self, size: u64) {
        self.stable_size.fetch_max(size, AcqRel);
    }

    pub fn touch(&self, now: Timestamp) {
        let ns = now.secs.saturating_mul(1_000_000_000).saturating_add(i64::from(now.nanos)).max(UNTOUCHED + 1);
        self.touched.store(ns, Relaxed);
    }

    /// A look at the stored record; size and time of the last write may be newer in [`Inode::current`].
    pub fn record(&self) -> RwLockReadGuard<'_, Record> {
        self.record.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record with everything folded in that it may say: see `dirty_inodes` for the size.
    pub fn current(&self) -> Record {
        let mut record = self.record().clone();
        self.fold_times(&mut record.mtime, &mut record.ctime);
        record.size = self.stable_size();
        record.has_objects = self.has(OBJECTS);
        record.blocks = self.space.blocks().unwrap_or(BLOCKS_UNKNOWN);
        record.has_sums = self.has(SUMS);
        if record.has_objects {
            record.created = self.created.iter().map(|bits| bits.load(Acquire)).collect();
        }
        record
    }

    /// Without what a file's objects take since it was last flushed: see [`crate::Store::attr`].
    pub fn attr(&self) -> Attr {
        let record = self.record();
        let mut attr = record.attr(self.ino);
        if let Body::Regular(_) = record.body {
            self.fold_times(&mut attr.mtime, &mut attr.ctime);
            attr.size_bytes = self.size();
        }
        attr
    }

    fn fold_times(&self, mtime: &mut Timestamp, ctime: &mut Timestamp) {
        let touched = self.touched.load(Relaxed);
        if touched != UNTOUCHED {
            let nanos = touched.rem_euclid(1_000_000_000) as u32;
            let time = Timestamp::new(touched.div_euclid(1_000_000_000), nanos).unwrap_or_default();
            *mtime = time;
            *ctime = time.max(*ctime);
        }
    }

    /// Takes over a record that the database has accepted.
    pub fn replace(&self, record: Record) {
        let mut slot = self.record.write().unwrap_or_else(PoisonError::into_inner);
        *slot = record;
        drop(slot);
        self.records.fetch_add(1, AcqRel);
        self.note_set_id();
    }

    /// Something has changed that the record on stable storage must say, or recovery takes an object for a stranger's.
    pub fn note_unrecorded(&self) {
        self.records.fetch_add(1, AcqRel);
    }

    /// Records that it had, for [`Inode::note_synced`]: taken before a sync of the database begins.
    pub fn records(&self) -> u64 {
        self.records.load(Acquire)
    }

    /// A sync of the database covered the first `records` of its records.
    pub fn note_synced(&self, records: u64) {
        self.synced_records.fetch_max(records, AcqRel);
    }

    /// Whether its record is on stable storage, and has the size that the file has.
    pub fn is_size_synced(&self) -> bool {
        self.synced_records.load(Acquire) == self.records() && self.stable_size() == self.size()
    }

    /// The time of the last write, to be handed to [`Inode::forget_touch`] after a record with it was stored.
    pub fn touched(&self) -> i64 {
        self.touched.load(Relaxed)
    }

    /// Forgets the time `seen` of the last write, which is in the record by now, unless there was another write meanwhile.
    pub fn forget_touch(&self, seen: i64) {
        // Losing the race means that a newer write's time is to be kept.
        let _ = self.touched.compare_exchange(seen, UNTOUCHED, Relaxed, Relaxed);
    }

    fn note_set_id(&self) {
        let record = self.record();
        let regular = matches!(record.body, Body::Regular(_));
        if regular && crate::permission::after_write(record.mode) != record.mode {
            self.set(SET_ID);
        } else {
            self.clear(SET_ID);
        }
    }

    /// The layout of a regular file.
    pub fn regular(&self) -> Result<&Arc<Layout>, StoreError> {
        match &self.layout {
            Some(layout) => Ok(layout),
            None if self.record().is_dir() => Err(StoreError::IsDirectory),
            None => Err(StoreError::Invalid),
        }
    }

    pub fn share_data(&self) -> RwLockReadGuard<'_, Objects> {
        self.data.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn own_data(&self) -> RwLockWriteGuard<'_, Objects> {
        self.data.write().unwrap_or_else(PoisonError::into_inner)
    }
}
