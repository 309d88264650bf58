//! What has bytes on targets: a regular file of this store, or a detached object ([`crate::detached`]).
//!
//! Both have objects that are opened, summed, settled, looked through and given back in the same way, and it is this that
//! they have in common. What differs is what the database keeps of them, and who may change it ([`Owner`]): of a file that
//! is an [`Inode`](crate::inode::Inode), which has one of these and stands for it wherever bytes do not matter. A detached
//! object is content of one object, whose place in the file that it is of nobody here knows.
//!
//! One word has the flags of both, so that a write looks at one.

use crate::object::{ObjectPlace, ObjectsId};
use crate::object_file::ObjectFile;
use crate::sparse::Space;
use crate::sums::Sums;
use isonomia_proto::fs::Layout;
use isonomia_units::Ino;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

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
    /// Its objects were used since [`OpenObjects`](crate::object) last looked for one to close: they are not closed then.
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
    pub sums: Box<[Sums]>,
    /// Written to since this was last cleared.
    pub written: AtomicBool,
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
    pub open: Vec<Option<ObjectFile>>,
    /// Which of them are known to have a directory entry on stable storage, if they exist.
    pub entry_synced: Vec<bool>,
    /// They are known to have nothing beyond the end.
    pub is_trimmed: bool,
    /// Of each of them: the size when what it had then was last brought to stable storage.
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
    pub fn resized(&mut self, size: u64) {
        self.resizes += 1;
        self.all_synced(size);
    }

    /// Object `index` was brought to stable storage as it was, or newer, when the size was this.
    pub fn synced(&mut self, index: usize, size: u64) {
        self.synced_sizes[index] = self.synced_sizes[index].max(size);
    }

    /// All of them were.
    pub fn all_synced(&mut self, size: u64) {
        self.synced_sizes.fill(size);
    }

    /// Up to which size they are on stable storage.
    pub fn synced_size(&self) -> u64 {
        self.synced_sizes.iter().copied().min().unwrap_or(0)
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
            sums: (0..count).map(|_| Sums::default()).collect(),
            written: AtomicBool::new(false),
        }
    }

    /// What nobody uses may leave memory if nothing is lost with it.
    pub fn is_evictable(content: &Arc<Self>) -> bool {
        Arc::strong_count(content) == 1 && !content.has(LOST_WRITES) && !content.sums.iter().any(Sums::is_dirty)
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
        self.sums.iter().for_each(|sums| sums.lock().reset());
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
