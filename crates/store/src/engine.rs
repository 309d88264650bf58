//! The fjall database under [`crate::database`]: tables of keys and values, atomic batches, and what to do when it fails.
//!
//! fjall refuses every change after a write to its journal failed, as on a full disk. [`Engine::heal`] then opens it anew
//! from what is on disk: all batches that were acknowledged, for the one that failed is cut off if a part of it was
//! written. Until then changes fail with [`StoreError::NoSpace`] if that was the reason. After a failed *sync* there is
//! no healing: the host may have dropped what it could not write, and only a new start reads what is really there. It is time for
//! that when the storage takes what is in the journals ([`Loss::Unsynced`]). While it does not a start would fail, and here there are
//! look-ups at least.

use crate::StoreError;
use crate::durable;
use crate::emergency_space::EmergencySpace;
use crate::fence::{Fence, Loss};
use crate::journal::{self, Journal};
use crate::journal_sync::{JournalSync, SyncFailure};
use fjall::{Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Slice};
use rustix::io::Errno;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, TryLockError};

/// Journals are merged into tables beyond this.
const JOURNAL_BYTES_MAX: u64 = 128 << 20;
/// Memory of one keyspace before it is written out.
const MEMTABLE_BYTES_MAX: u64 = 16 << 20;
/// What an entry takes there besides its key and value, about.
const NODE_BYTES: usize = 96;
const BLOCK_CACHE_BYTES: u64 = 32 << 20;
/// Files of tables kept open at most, besides the few of the journal.
pub const DATABASE_FILES_MAX: usize = 128;
/// One: with more, fjall keeps a second one spinning while the first compacts.
const WORKER_THREADS: usize = 1;
/// With less free space there is no use in opening the database anew.
const ROOM_BYTES_MIN: u64 = 256 << 10;
/// With less free space the journal gets no room ahead.
const ROOM_AHEAD_BYTES_MIN: u64 = 4 << 20;
/// Entries of a batch of a copy.
const COPIED_AT_ONCE: usize = 1024;

/// A keyspace of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Inodes,
    Entries,
    DirtyInodes,
    Orphans,
    Nameless,
    Xattrs,
    Unsettled,
    Numbers,
    Cluster,
    Detached,
    Removed,
    Cuts,
    SpreadOrphans,
    Damaged,
}

const TABLES: [Table; NAMES.len()] = [
    Table::Inodes,
    Table::Entries,
    Table::DirtyInodes,
    Table::Orphans,
    Table::Nameless,
    Table::Xattrs,
    Table::Unsettled,
    Table::Numbers,
    Table::Cluster,
    Table::Detached,
    Table::Removed,
    Table::Cuts,
    Table::SpreadOrphans,
    Table::Damaged,
];

/// So many tables are made with a store. One more comes with another format on disk.
pub(crate) const TABLES_COUNT: usize = NAMES.len();

/// In the order of [`Table`].
const NAMES: [&str; 14] = [
    "inodes",
    "entries",
    "marks",
    "orphans",
    "nameless",
    "xattrs",
    "unsettled",
    "numbers",
    "cluster",
    "detached",
    "removed",
    "cuts",
    "spread_orphans",
    "damaged",
];

/// One change of a batch; without a value the key is removed.
pub(crate) struct Write {
    pub table: Table,
    pub key: Slice,
    pub value: Option<Slice>,
}

pub(crate) struct Engine {
    dir: PathBuf,
    emergency_space: Arc<EmergencySpace>,
    fence: Arc<Fence>,
    state: RwLock<State>,
    /// Shared by all who write to the journal, which fjall does at no other time while nothing has failed.
    commits: RwLock<()>,
    /// One of [`WORKS`], [`FULL`], [`FAILED`], [`LOST`].
    failure: AtomicU8,
}

const WORKS: u8 = 0;
/// A change failed for want of space.
const FULL: u8 = 1;
/// A change failed.
const FAILED: u8 = 2;
/// A sync failed.
const LOST: u8 = 3;
/// A file in the store's directory that is there from the end of a process that could not sync the metadata until the next start.
pub const UNSYNCED: &str = "unsynced";

/// Why the metadata cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataFailure {
    /// There was no room, of which there has to be some.
    Full,
    /// The storage failed, and is tried again.
    Failed,
    /// A sync failed: see [`Loss::Unsynced`].
    Unsynced,
}

enum State {
    Open(Box<Running>),
    /// Closed after a failure: where the journal is to be cut before it is opened again.
    Closed(Option<Journal>),
}

struct Running {
    tables: [Memory; NAMES.len()],
    db: fjall::Database,
    journal: Arc<JournalSync>,
}

/// A keyspace, and how much was put into its memory since it was last told to write that out.
///
/// fjall would do this by itself, but it sends its workers a message with every batch from the limit on until one has
/// acted on it. A worker that is late meets a full queue, and waits for ever where it is the one to empty it.
struct Memory {
    keyspace: Keyspace,
    bytes: AtomicU64,
}

impl Engine {
    /// Opens the database in `dir`, or creates it there.
    pub fn open(dir: PathBuf, emergency_space: Arc<EmergencySpace>, fence: Arc<Fence>) -> Result<Self, StoreError> {
        let open = Running::open(&dir)?;
        Ok(Self {
            dir,
            emergency_space,
            fence,
            state: RwLock::new(State::Open(Box::new(open))),
            commits: RwLock::default(),
            failure: AtomicU8::new(WORKS),
        })
    }

    fn check_fence(&self) -> Result<(), StoreError> {
        self.fence.check().map_err(|errno| StoreError::host(&self.dir, errno))
    }

    /// Whether there may be changes and syncs: not once a sync failed, or somebody else has the store.
    pub fn check_usable(&self) -> Result<(), StoreError> {
        self.check_fence()?;
        if self.failure.load(Acquire) == LOST {
            return Err(StoreError::Meta(fjall::Error::Poisoned));
        }
        Ok(())
    }

    pub fn get(&self, table: Table, key: impl AsRef<[u8]>) -> Result<Option<Slice>, StoreError> {
        self.with(|open| Ok(open.keyspace(table).get(key.as_ref())?))
    }

    /// Calls `each` with the keys and values in `range`, in order, until it says that it is enough.
    pub fn scan(
        &self,
        table: Table,
        range: impl RangeBounds<Vec<u8>>,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.with(|open| {
            for guard in open.keyspace(table).range(range) {
                let (key, value) = guard.into_inner()?;
                if !each(&key, &value)? {
                    break;
                }
            }
            Ok(())
        })
    }

    /// All of it, or an error and none of it.
    pub fn commit(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.check_usable()?;
        let act = |open: &Running| {
            let _commits = self.commits.read().unwrap_or_else(PoisonError::into_inner);
            open.commit(writes)
        };
        self.with(act).or_else(|error| {
            let error = self.note(error);
            // Letting the reserved space go may be enough for the change.
            self.emergency_space.look();
            if self.heal()? { self.with(act).map_err(|error| self.note(error)) } else { Err(error) }
        })
    }

    /// Everything that was committed is on stable storage when this returns. Changes go on meanwhile.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.check_usable()?;
        let hand_over = |open: &Running| {
            open.db.persist(PersistMode::Buffer)?;
            Ok(open.journal.clone())
        };
        let journal = self.with(hand_over).map_err(|error| self.note(error))?;
        // Without the database, which may have to be opened anew before the device is done.
        self.sync_journal(&journal)?;
        // A batch that failed meanwhile is not on stable storage.
        self.with(hand_over).map(drop).map_err(|error| self.note(error))
    }

    /// Makes room ahead in the journal if it is short of that, and nobody changes anything at this moment. Look-ups go on.
    pub fn make_room(&self) {
        let State::Open(open) = &*self.share() else { return };
        let is_short = open.journal.is_short_of_room();
        if !is_short || self.emergency_space.has_less_than(ROOM_AHEAD_BYTES_MIN) || self.check_fence().is_err() {
            return;
        }
        // Who comes later tries it again.
        if let Ok(_alone) = self.commits.try_write()
            && self.failure.load(Acquire) == WORKS
        {
            open.journal.make_room();
        }
    }

    /// Writes what is in the journals once more: see [`JournalSync::write_again`].
    pub fn write_journals_again(&self) -> Result<(), StoreError> {
        let journal = self.with(|open| Ok(open.journal.clone()))?;
        let _alone = self.commits.write().unwrap_or_else(PoisonError::into_inner);
        journal.write_again().map_err(|errno| StoreError::host(&self.dir, errno))
    }

    /// After a sync that failed: ends the right to change anything if the storage takes again what is in the journals, and says there
    /// that it was so. May wait for the storage.
    pub fn end_if_unsynced(&self) -> Result<(), StoreError> {
        if self.failure.load(Acquire) != LOST {
            return Ok(());
        }
        self.check_fence()?;
        if self.emergency_space.free_bytes()? < ROOM_BYTES_MIN {
            return Err(StoreError::NoSpace);
        }
        self.write_journals_again()?;
        let dir = self.dir.parent().unwrap_or(&self.dir);
        durable::write(dir, UNSYNCED, b"")
            .map_err(|error| StoreError::Io { path: dir.join(UNSYNCED), source: std::io::Error::other(error) })?;
        self.fence.end(Some(Loss::Unsynced));
        Ok(())
    }

    fn sync_journal(&self, journal: &JournalSync) -> Result<(), StoreError> {
        match journal.sync() {
            Ok(()) => Ok(()),
            Err(SyncFailure::Before(errno)) => Err(StoreError::host(&self.dir, errno)),
            Err(SyncFailure::Lost(errno)) => {
                self.failure.store(LOST, Release);
                tracing::error!(error = %errno, "the metadata could not be synced, and cannot be changed before the server starts anew");
                Err(StoreError::Meta(fjall::Error::Io(errno.into())))
            }
        }
    }

    /// Why there can be no changes at this moment.
    pub fn failure(&self) -> Option<MetadataFailure> {
        match self.failure.load(Acquire) {
            FULL => Some(MetadataFailure::Full),
            FAILED => Some(MetadataFailure::Failed),
            LOST => Some(MetadataFailure::Unsynced),
            _ => None,
        }
    }

    /// Opens the database anew if a change failed and there is room again; true if that was done.
    pub fn heal(&self) -> Result<bool, StoreError> {
        if !matches!(self.failure.load(Acquire), FULL | FAILED) {
            return Ok(false);
        }
        let journal = match &*self.share() {
            State::Open(open) => Some(open.journal.clone()),
            State::Closed(_) => None,
        };
        // A journal that was removed takes space as long as its descriptor is open.
        journal.iter().for_each(|journal| journal.forget_removed());
        if self.emergency_space.free_bytes()? < ROOM_BYTES_MIN {
            return Ok(false);
        }
        self.check_fence()?;
        // A device that hangs is waited for here, where look-ups go on; below there is hardly anything left to be synced.
        journal.iter().try_for_each(|journal| self.sync_journal(journal))?;
        drop(journal);
        // Not by waiting for the lock: a thread that has it for a look-up may begin another one, which would wait for this
        // thread, and this one for it.
        let mut state = match self.state.try_write() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        // Why the change failed may be that fjall was told of bytes that the host could not write. Nobody would be told of them once the
        // database was opened anew.
        if let State::Open(open) = &*state {
            self.sync_journal(&open.journal)?;
        }
        // A sync may have failed before this had the lock, or somebody else have done it.
        if !matches!(self.failure.load(Acquire), FULL | FAILED) {
            return Ok(false);
        }
        let last = match &mut *state {
            // Where the journal is to be cut is found out before the database is closed: closing may still write the rest of the
            // batch that failed.
            State::Open(_) => journal::look(&self.dir, |_, _, _| ())?.pop(),
            State::Closed(last) => last.take(),
        };
        *state = State::Closed(last);
        if let State::Closed(Some(last)) = &*state {
            last.cut()?;
        }
        *state = State::Open(Box::new(Running::open(&self.dir)?));
        let heals = |failure| (failure != LOST).then_some(WORKS);
        if self.failure.fetch_update(AcqRel, Acquire, heals).is_err() {
            return Ok(false);
        }
        tracing::info!("the metadata can be changed again");
        Ok(true)
    }

    /// Writes what all tables have at this moment into a new database in `dir`, and syncs it; the value of one key there.
    /// Changes go on meanwhile, but no failure is healed. Ends with [`StoreError::Busy`] if `is_stopping` is set.
    pub fn copy_to(
        &self,
        dir: &Path,
        (table, key): (Table, &str),
        is_stopping: &AtomicBool,
    ) -> Result<Option<Slice>, StoreError> {
        self.with(|open| {
            let snapshot = open.db.snapshot();
            let copy = Running::open(dir)?;
            for table in TABLES {
                let mut writes = Vec::new();
                for guard in snapshot.iter(open.keyspace(table)) {
                    let (key, value) = guard.into_inner()?;
                    writes.push(Write { table, key, value: Some(value) });
                    if writes.len() == COPIED_AT_ONCE {
                        if is_stopping.load(Relaxed) {
                            return Err(StoreError::Busy);
                        }
                        copy.commit(&writes)?;
                        writes.clear();
                    }
                }
                copy.commit(&writes)?;
            }
            copy.db.persist(PersistMode::SyncAll)?;
            Ok(copy.keyspace(table).get(key)?)
        })
    }

    fn with<T>(&self, act: impl FnOnce(&Running) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match &*self.share() {
            State::Open(open) => act(open),
            State::Closed(_) => Err(self.note(StoreError::Meta(fjall::Error::Poisoned))),
        }
    }

    #[cfg(test)]
    pub fn with_journal(&self, act: impl FnOnce(&JournalSync)) {
        let act = |open: &Running| {
            act(&open.journal);
            Ok(())
        };
        self.with(act).expect("open");
    }

    fn share(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a failure, and calls one that follows from a full disk by that name.
    fn note(&self, error: StoreError) -> StoreError {
        let is_full = match &error {
            StoreError::Meta(fjall::Error::Io(source)) => {
                matches!(Errno::from_io_error(source), Some(Errno::NOSPC | Errno::DQUOT))
            }
            // Threads of fjall that write out tables fail by themselves; this is all that a later call is told of it.
            StoreError::Meta(fjall::Error::Poisoned) => {
                self.failure.load(Relaxed) == FULL || self.emergency_space.has_less_than(MEMTABLE_BYTES_MAX)
            }
            _ => false,
        };
        let failure = if is_full { FULL } else { FAILED };
        let first = self.failure.compare_exchange(WORKS, failure, AcqRel, Relaxed).is_ok();
        if first {
            tracing::error!(%error, "the metadata cannot be changed until the database was opened anew");
        }
        if is_full { StoreError::NoSpace } else { error }
    }
}

impl Running {
    fn open(dir: &Path) -> Result<Self, StoreError> {
        let db = fjall::Database::builder(dir)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .cache_size(BLOCK_CACHE_BYTES)
            .max_cached_files(Some(DATABASE_FILES_MAX))
            .worker_threads(WORKER_THREADS)
            .open()?;
        let mut tables = Vec::with_capacity(NAMES.len());
        for name in NAMES {
            let keyspace = db.keyspace(name, || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX))?;
            tables.push(Memory { keyspace, bytes: AtomicU64::new(0) });
        }
        let Ok(tables) = tables.try_into() else { unreachable!("one for each name") };
        let journal = Arc::new(JournalSync::open(dir).map_err(|errno| StoreError::host(dir, errno))?);
        Ok(Self { tables, db, journal })
    }

    fn commit(&self, writes: &[Write]) -> Result<(), StoreError> {
        let mut batch = self.db.batch();
        for Write { table, key, value } in writes {
            let memory = &self.tables[*table as usize];
            let bytes = key.len() + value.as_ref().map_or(0, |value| value.len()) + NODE_BYTES;
            memory.bytes.fetch_add(bytes as u64, Relaxed);
            match value {
                Some(value) => batch.insert(&memory.keyspace, key.clone(), value.clone()),
                None => batch.remove(&memory.keyspace, key.clone()),
            }
        }
        batch.commit()?;
        self.tables.iter().for_each(Memory::write_out_when_full);
        Ok(())
    }

    fn keyspace(&self, table: Table) -> &Keyspace {
        &self.tables[table as usize].keyspace
    }
}

impl Memory {
    /// The batch is committed already: a failure here is not its failure, and the next one hears of it.
    fn write_out_when_full(&self) {
        let full = self.bytes.load(Relaxed) >= MEMTABLE_BYTES_MAX;
        if full
            && self.bytes.swap(0, Relaxed) >= MEMTABLE_BYTES_MAX
            && let Err(e) = self.keyspace.rotate_memtable()
        {
            tracing::error!(keyspace = %self.keyspace.name(), error = %e, "metadata cannot be written out");
        }
    }
}
