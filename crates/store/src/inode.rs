//! An inode in memory; its bytes are its [`Content`], which it stands for.
//!
//! Locks, in the order in which they may be taken: [`Content::data`], then the store's `namespace`, then the inode's
//! record (a leaf, locked for a copy only). The namespace lock is taken for writing by whoever changes records in the
//! database, so records need no lock of their own against each other.

use crate::StoreError;
use crate::content::{Content, Loaded, OBJECTS, Objects, Owner, SUMS};
use crate::record::{BLOCKS_UNKNOWN, Body, Record};
use isonomia_proto::fs::{Attr, Layout, Timestamp};
use std::ops::Deref;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The size in memory may be above that of the record in the database, and the database knows it.
pub(crate) const DIRTY: u16 = 1;
/// No name is left; the record is gone from the database.
pub(crate) const UNLINKED: u16 = 2;
/// Set-id bits are set: a write must clear them.
pub(crate) const SET_ID: u16 = 8;
/// So may be the times; then it is dirty as well.
pub(crate) const UNFLUSHED: u16 = 512;
/// It was created without a name, and may be given one.
pub(crate) const MAY_BE_NAMED: u16 = 32;
/// Its bytes are in detached objects: see `spread`.
pub(crate) const SPREAD: u16 = 2048;
/// And those are being cut.
pub(crate) const CUTTING: u16 = 4096;

/// And those may have bytes behind the end of which nobody will tell: it does not grow before they are cut.
pub(crate) const LOOSE: u16 = 8192;

pub(crate) struct Inode {
    pub ino: u64,
    pub generation: u32,
    pub content: Arc<Content>,
    /// Open references of sessions. Grows under the namespace lock only.
    pub refs: AtomicU32,
    /// What a record may say is the size: bytes are on stable storage up to there, or it was set by `truncate`. Changes
    /// under the owned namespace lock only.
    stable_size: AtomicU64,
    /// Of a spread file: the number of the last cut that made it shorter, or a later one. Changes under the owned
    /// [`Content::data`].
    shortened: AtomicU64,
    /// Of a spread file: up to the cut of this number it is not known which made it shorter. Changes as that does.
    cuts_before: AtomicU64,
    /// Which of the last cuts did: the last one is bit 0. Changes as that does.
    shortening: AtomicU64,
    /// Time of the last write since the record was last changed, ns since the epoch; [`UNTOUCHED`] for none.
    touched: AtomicI64,
    /// The directory in which it was last found since it is in memory; 0 if in none.
    found_in: AtomicU64,
    record: RwLock<Record>,
}

/// The bytes are much of what an inode is asked for.
impl Deref for Inode {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.content
    }
}

const UNTOUCHED: i64 = i64::MIN;

impl Inode {
    pub fn new(ino: u64, record: Record) -> Self {
        let layout = match &record.body {
            Body::Regular(layout) => Some(layout.clone()),
            _ => None,
        };
        let flag = |set, flag| if set { flag } else { 0 };
        let loaded = Loaded {
            objects: record.objects,
            first_index: 0,
            size: record.size,
            blocks: record.blocks,
            flags: flag(record.has_objects, OBJECTS)
                | flag(record.has_sums, SUMS)
                | flag(record.spread.is_some(), SPREAD),
            created: &record.created,
        };
        let inode = Self {
            ino,
            generation: record.generation,
            content: Arc::new(Content::new(Owner::File(ino), layout, &loaded)),
            refs: AtomicU32::new(0),
            stable_size: AtomicU64::new(record.size),
            touched: AtomicI64::new(UNTOUCHED),
            // Which of them did is not recorded.
            shortened: AtomicU64::new(record.spread.unwrap_or(0)),
            cuts_before: AtomicU64::new(record.spread.unwrap_or(0)),
            shortening: AtomicU64::new(0),
            found_in: AtomicU64::new(0),
            record: RwLock::new(record),
        };
        inode.note_set_id();
        inode
    }

    /// Unreferenced inodes may leave memory if nothing is lost with them.
    pub fn evictable(inode: &Arc<Self>) -> bool {
        Arc::strong_count(inode) == 1
            && inode.refs.load(Relaxed) == 0
            && !inode.has(UNFLUSHED)
            && Content::is_evictable(&inode.content)
    }

    /// It has a name in this directory.
    pub fn note_found_in(&self, dir: u64) {
        // Whoever is looked for by many stays in their caches.
        if self.found_in.load(Relaxed) != dir {
            self.found_in.store(dir, Relaxed);
        }
    }

    /// The directory in which it was last found since it is in memory.
    pub fn found_in(&self) -> Option<u64> {
        Some(self.found_in.load(Relaxed)).filter(|dir| *dir != 0)
    }

    /// The size that the record has now; the caller owns [`Content::data`] and the namespace lock.
    pub fn resize(&self, objects: &mut Objects, size: u64) {
        self.set_size(size);
        self.stable_size.store(size, Release);
        objects.resized(size);
    }

    /// The size of an inode that was just loaded, and whose dirty record says that it was flushed.
    pub fn set_flushed(&self, size: u64) {
        self.set_size(size);
        self.set(DIRTY);
    }

    pub fn stable_size(&self) -> u64 {
        self.stable_size.load(Acquire)
    }

    /// Bytes up to `size` are on stable storage; the caller owns the namespace lock.
    pub fn raise_stable_size(&self, size: u64) {
        self.stable_size.fetch_max(size, AcqRel);
    }

    /// The number of the last cut of a spread file that made it shorter, or of a later one.
    pub fn shortened(&self) -> u64 {
        self.shortened.load(Acquire)
    }

    /// The cut of this number, which comes after the one `before`, does or does not make the file shorter; the caller owns
    /// [`Content::data`].
    pub fn note_cut(&self, before: u64, number: u64, is_shortening: bool) {
        if is_shortening {
            self.shortened.store(number, Release);
        }
        if number != before + 1 {
            self.cuts_before.store(number - 1, Release);
        }
        self.shortening.store(self.shortening.load(Acquire) << 1 | u64::from(is_shortening), Release);
    }

    /// The cut of this number was begun by the start of the store, and did not make the file shorter. For one that is being
    /// loaded.
    pub fn note_cut_at_start(&self, number: u64) {
        if number == self.cuts() {
            self.cuts_before.store(number.saturating_sub(1), Release);
        }
    }

    /// Whether the first cut after the one of number `cuts` made the file shorter; nothing if that is not known, or there is
    /// none.
    pub fn was_shortened_after(&self, cuts: u64) -> Option<bool> {
        let is_known = cuts >= self.cuts_before.load(Acquire);
        let age = u32::try_from(self.cuts().checked_sub(cuts)?.checked_sub(1)?).ok()?;
        let bit = self.shortening.load(Acquire).checked_shr(age)?;
        is_known.then_some(bit & 1 == 1)
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
        // That of a spread file is what was told, whatever its objects have.
        record.size = if self.has(SPREAD) { self.size() } else { self.stable_size() };
        record.has_objects = self.has(OBJECTS);
        record.blocks = self.space.blocks().unwrap_or(BLOCKS_UNKNOWN);
        record.has_sums = self.has(SUMS);
        if record.has_objects {
            record.created = self.created();
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
        self.note_unrecorded();
        self.note_set_id();
    }

    /// Whether its record is on stable storage, and has the size that the file has.
    pub fn is_size_synced(&self) -> bool {
        self.is_record_synced() && self.stable_size() == self.size()
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

    /// The layout of a regular file with bytes in this store.
    pub fn regular(&self) -> Result<&Arc<Layout>, StoreError> {
        if self.has(SPREAD) { Err(StoreError::Spread) } else { self.any_regular() }
    }

    /// The layout of a regular file.
    pub fn any_regular(&self) -> Result<&Arc<Layout>, StoreError> {
        match &self.layout {
            Some(layout) => Ok(layout),
            None if self.record().is_dir() => Err(StoreError::IsDirectory),
            None => Err(StoreError::Invalid),
        }
    }
}
