//! What has bytes on targets: a regular file of this store, or a detached object ([`crate::detached`]).
//!
//! Both have objects that are opened, summed, settled, looked through and given back in the same way, and it is this that
//! they have in common. What differs is what the database keeps of them, and who may change it ([`Owner`]): of a file that
//! is an [`Inode`](crate::inode::Inode), which has one of these and stands for it wherever bytes do not matter. A detached
//! object is content of one object, whose place in the file that it is of nobody here knows.
//!
//! One word has the flags of both, so that a write looks at one.
//!
//! What is kept of each object is made when it is first needed: of files that are only looked at, and of spread ones, whose
//! objects are elsewhere, memory has nothing that grows with their layout but a bit for each object.

use crate::object::{ObjectPlace, ObjectsId};
use crate::object_file::ObjectFile;
use crate::sparse::space::Space;
use crate::sums::Sums;
use isonomia_proto::fs::Layout;
use isonomia_units::Ino;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The objects are gone, or are about to go: no more data operations.
pub(crate) const RECLAIMED: u16 = 4;
/// Object files may exist.
pub(crate) const OBJECTS: u16 = 16;
/// Every block of the objects has a checksum.
pub(crate) const SUMS: u16 = 64;
/// The database has an entry for it: checksums on stable storage may be older than the objects. See `settle`.
pub(crate) const UNSETTLED: u16 = 128;
/// That entry is from before an unclean stop: a block and its checksum may disagree without damage.
pub(crate) const SUSPECT: u16 = 256;
/// The host could not write bytes that were acknowledged, and nobody who asked for an `fsync` knows it yet.
pub(crate) const LOST_WRITES: u16 = 1024;

/// What the content is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// The file with this inode.
    File(u64),
    /// A detached object.
    Detached(ObjectPlace),
}

pub(crate) struct Content {
    pub owner: Owner,
    /// Where the bytes are; nothing for what is no regular file. A detached object has one target in it, and nothing that
    /// says which of the bytes of a file they are.
    pub layout: Option<Arc<Layout>>,
    /// What the first object is called by.
    first_index: usize,
    /// Its objects were used since [`OpenObjects`](crate::open_objects) last looked for one to close: they are not closed then.
    pub recent: AtomicBool,
    /// Writes and reads share it; appends, truncation, opening objects, and flushing own it.
    pub data: RwLock<Objects>,
    size: AtomicU64,
    /// Records that it had, or ought to have had, since it was loaded.
    records: AtomicU64,
    /// How many of those a sync of the database covered.
    synced_records: AtomicU64,
    /// What the objects take.
    pub space: Space,
    flags: AtomicU16,
    /// Objects that were created, a bit each.
    created: Box<[AtomicU8]>,
    /// Of each object.
    sums: OnceLock<Box<[Sums]>>,
    /// How often the host could not write bytes that were acknowledged.
    lost_writes: AtomicU64,
    /// Written to since this was last cleared.
    pub written: AtomicBool,
    /// Writes past the page cache that are under way.
    direct_writes: AtomicUsize,
}

/// A write past the page cache that is under way.
pub(crate) struct DirectWrite<'c>(&'c Content);

impl Drop for DirectWrite<'_> {
    fn drop(&mut self) {
        self.0.direct_writes.fetch_sub(1, AcqRel);
    }
}

/// What is known of content when it is loaded.
pub(crate) struct Loaded<'a> {
    pub objects: ObjectsId,
    pub first_index: usize,
    pub size: u64,
    pub blocks: u64,
    pub flags: u16,
    /// As in a record.
    pub created: &'a [u8],
}

/// The open object files, by index in the layout.
pub(crate) struct Objects {
    pub id: ObjectsId,
    count: usize,
    /// As long as one has to be for the last that is open.
    open: Vec<Option<ObjectFile>>,
    /// Which of them are known to have a directory entry on stable storage, if they exist; likewise.
    entry_synced: Vec<bool>,
    creations: u64,
    /// They are known to have nothing beyond the end.
    pub is_trimmed: bool,
    /// The size when what all of them had then was last brought to stable storage,
    all_synced_size: u64,
    /// and of each of them, if they differ.
    synced_sizes: Vec<u64>,
    /// How often the size was set.
    pub resizes: u64,
}

impl Objects {
    fn new(id: ObjectsId, count: usize, size: u64) -> Self {
        Self {
            id,
            count,
            open: Vec::new(),
            entry_synced: Vec::new(),
            creations: 0,
            is_trimmed: false,
            all_synced_size: size,
            synced_sizes: Vec::new(),
            resizes: 0,
        }
    }

    /// How many the layout has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Object `index`, if it is open.
    pub fn object(&self, index: usize) -> Option<&ObjectFile> {
        self.open.get(index)?.as_ref()
    }

    /// Object `index` is open now.
    pub fn put(&mut self, index: usize, object: ObjectFile) {
        if self.open.len() <= index {
            self.open.resize_with(index + 1, || None);
        }
        self.open[index] = Some(object);
    }

    pub fn close(&mut self, index: usize) {
        self.open.get_mut(index).map(Option::take);
    }

    pub fn close_all(&mut self) {
        self.open.clear();
    }

    /// Whether object `index`, if it exists, is known to have a directory entry on stable storage.
    pub fn is_entry_synced(&self, index: usize) -> bool {
        self.entry_synced.get(index) == Some(&true)
    }

    /// How often one was created.
    pub fn creations(&self) -> u64 {
        self.creations
    }

    /// Object `index` was created, and its directory was not synced yet.
    pub fn entry_created(&mut self, index: usize) {
        self.creations += 1;
        self.set_entry_synced(index, false);
    }

    pub fn set_entry_synced(&mut self, index: usize, is_synced: bool) {
        if self.entry_synced.len() <= index {
            self.entry_synced.resize(index + 1, false);
        }
        self.entry_synced[index] = is_synced;
    }

    /// Takes other objects instead, none of which exists yet.
    pub fn become_those_of(&mut self, id: ObjectsId) {
        let resizes = self.resizes;
        *self = Self { resizes, ..Self::new(id, self.count, 0) };
    }

    /// The size was set to this.
    pub fn resized(&mut self, size: u64) {
        self.resizes += 1;
        self.all_synced(size);
    }

    /// Object `index` was brought to stable storage as it was, or newer, when the size was this.
    pub fn synced(&mut self, index: usize, size: u64) {
        if self.count == 1 {
            self.all_synced_size = self.all_synced_size.max(size);
            return;
        }
        if self.synced_sizes.is_empty() {
            self.synced_sizes = vec![self.all_synced_size; self.count];
        }
        self.synced_sizes[index] = self.synced_sizes[index].max(size);
    }

    /// All of them were.
    pub fn all_synced(&mut self, size: u64) {
        self.synced_sizes = Vec::new();
        self.all_synced_size = size;
    }

    /// Up to which size they are on stable storage.
    pub fn synced_size(&self) -> u64 {
        self.synced_sizes.iter().copied().min().unwrap_or(self.all_synced_size)
    }
}

impl Content {
    pub fn new(owner: Owner, layout: Option<Arc<Layout>>, loaded: &Loaded<'_>) -> Self {
        let count = layout.as_ref().map_or(0, |layout| layout.targets.len());
        let created = (0..count.div_ceil(8)).map(|i| AtomicU8::new(*loaded.created.get(i).unwrap_or(&0))).collect();
        Self {
            owner,
            layout,
            first_index: loaded.first_index,
            recent: AtomicBool::new(true),
            data: RwLock::new(Objects::new(loaded.objects, count, loaded.size)),
            size: AtomicU64::new(loaded.size),
            records: AtomicU64::new(1),
            synced_records: AtomicU64::new(0),
            space: Space::of(loaded.blocks),
            flags: AtomicU16::new(loaded.flags),
            created,
            sums: OnceLock::new(),
            lost_writes: AtomicU64::new(0),
            written: AtomicBool::new(false),
            direct_writes: AtomicUsize::new(0),
        }
    }

    /// A write past the page cache begins, and ends with what this gives.
    pub fn begin_direct_write(&self) -> DirectWrite<'_> {
        self.direct_writes.fetch_add(1, AcqRel);
        DirectWrite(self)
    }

    /// Whether one is under way: the host may keep other writes to the file waiting until the device is done.
    pub fn is_written_directly(&self) -> bool {
        self.direct_writes.load(Acquire) > 0
    }

    /// What nobody uses may leave memory if nothing is lost with it.
    pub fn is_evictable(content: &Arc<Self>) -> bool {
        Arc::strong_count(content) == 1 && !content.has(LOST_WRITES) && !content.has_dirty_sums()
    }

    /// The checksums of each object.
    pub fn sums(&self) -> &[Sums] {
        let count = self.layout.as_ref().map_or(0, |layout| layout.targets.len());
        self.sums.get_or_init(|| (0..count).map(|_| Sums::default()).collect())
    }

    /// Whether there are checksums in memory that the sidecars do not have.
    pub fn has_dirty_sums(&self) -> bool {
        self.sums.get().is_some_and(|sums| sums.iter().any(Sums::is_dirty))
    }

    /// Part of [`ObjectStore::note_lost_writes`](crate::ObjectStore::note_lost_writes), which all others call.
    pub fn count_lost_writes(&self) {
        self.lost_writes.fetch_add(1, AcqRel);
        self.set(LOST_WRITES);
    }

    /// How often that was.
    pub fn lost_writes(&self) -> u64 {
        self.lost_writes.load(Acquire)
    }

    /// The inode that messages are to tell of: for a detached object the number in its name.
    pub fn ino(&self) -> Ino {
        match self.owner {
            Owner::File(ino) => Ino(ino),
            Owner::Detached(place) => Ino(place.object.number),
        }
    }

    /// Where object `index` is.
    pub fn place(&self, id: ObjectsId, layout: &Layout, index: usize) -> ObjectPlace {
        id.place(layout, index, self.first_index)
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

    /// The objects are others now, none of which was created. The caller owns [`Content::data`].
    pub fn forget_created(&self) {
        self.created.iter().for_each(|bits| bits.store(0, Release));
        self.sums.get().into_iter().flatten().for_each(|sums| sums.lock().reset());
    }

    pub fn set_created(&self, index: usize) {
        self.created[index / 8].fetch_or(1 << (index % 8), AcqRel);
    }

    /// As a record has it.
    pub fn created(&self) -> Box<[u8]> {
        self.created.iter().map(|bits| bits.load(Acquire)).collect()
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

    /// The caller owns [`Content::data`].
    pub fn set_size(&self, size: u64) {
        self.size.store(size, Release);
    }

    /// Something has changed that the record on stable storage must say, or recovery takes an object for a stranger's.
    pub fn note_unrecorded(&self) {
        self.records.fetch_add(1, AcqRel);
    }

    /// Records that it had, for [`Content::note_synced`]: taken before a sync of the database begins.
    pub fn records(&self) -> u64 {
        self.records.load(Acquire)
    }

    /// A sync of the database covered the first `records` of its records.
    pub fn note_synced(&self, records: u64) {
        self.synced_records.fetch_max(records, AcqRel);
    }

    /// Whether its record is on stable storage.
    pub fn is_record_synced(&self) -> bool {
        self.synced_records.load(Acquire) == self.records()
    }

    pub fn share_data(&self) -> RwLockReadGuard<'_, Objects> {
        self.data.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn own_data(&self) -> RwLockWriteGuard<'_, Objects> {
        self.data.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::TargetId;

    #[test]
    fn what_is_only_looked_at_takes_no_memory_for_each_target() {
        let targets = (0..1000).map(TargetId).collect();
        let layout = Arc::new(Layout { stripe_bytes: Layout::STRIPE_ALIGN_BYTES, targets, grows: false });
        let id = ObjectsId { number: 7, generation: 1 };
        let loaded = Loaded { objects: id, first_index: 0, size: 5, blocks: 0, flags: OBJECTS, created: &[1] };
        let content = Arc::new(Content::new(Owner::File(7), Some(layout), &loaded));
        assert!(Content::is_evictable(&content) && content.was_created(0) && !content.was_created(999));
        let mut objects = content.own_data();
        assert_eq!((objects.synced_size(), objects.count()), (5, 1000));
        assert!(objects.object(999).is_none() && !objects.is_entry_synced(999));
        objects.close(999);
        objects.resized(9);
        objects.become_those_of(ObjectsId { number: 8, generation: 1 });
        assert_eq!(objects.open.capacity() + objects.entry_synced.capacity() + objects.synced_sizes.capacity(), 0);
        drop(objects);
        content.forget_created();
        assert!(content.sums.get().is_none());
        let mut objects = content.own_data();
        (0..1000).for_each(|index| objects.synced(index, 8));
        assert_eq!(objects.synced_size(), 8);
        objects.set_entry_synced(3, true);
        assert!(objects.is_entry_synced(3) && !objects.is_entry_synced(2) && !objects.is_entry_synced(4));
        assert_eq!(content.sums().len(), 1000);
    }
}
