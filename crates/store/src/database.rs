//! The metadata on disk: a fjall database in `<dir>/db` with seven keyspaces. Numbers in keys are big-endian, so
//! that keys sort by them.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `inodes` | inode (8) | [`Record`] |
//! | `entries` | directory (8), cookie (8), name | inode (8, little-endian), kind (1) |
//! | `marks` | inode (8) | empty: the file may be longer than its record says, and its times newer; one byte, 1: its objects are to be cut to the size in the record |
//! | `orphans` | number (8) and generation (4) of objects | layout of the file that they were of: no name leads to them, and they are still to be removed |
//! | `nameless` | inode (8) | empty: it has no name, and extended attributes that are still to be removed |
//! | `xattrs` | inode (8), name with its namespace | value of the extended attribute |
//! | `numbers` | `closed` | empty, and there only while the store is closed: the last stop was a clean one |
//! | `numbers` | `next` | lowest number of inodes and objects (without the server) that was never reserved (8, little-endian) |
//!
//! The cookie of an entry is a keyed hash of directory and name ([`crate::directory`]), so one key serves
//! look-ups and listings, and a listing goes on where it was whatever is created or removed meanwhile.
//!
//! A batch is atomic. When it returns, the journal has reached the operating system (fjall's `PersistMode::Buffer`,
//! its default for batches): a killed server loses nothing that it acknowledged. A power failure loses what was not
//! followed by [`Database::sync`].

use crate::StoreError;
use crate::object::ObjectsId;
use crate::record::Record;
use fjall::{Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};
use isonomia_proto::fs::{FileKind, Layout};
use isonomia_units::Ino;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

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

const CLOSED: &str = "closed";

pub(crate) struct Database {
    db: fjall::Database,
    inodes: Table,
    entries: Table,
    marks: Table,
    orphans: Table,
    nameless: Table,
    xattrs: Table,
    numbers: Table,
    /// The database says that the stop was a clean one.
    is_closed: AtomicBool,
    #[cfg(test)]
    synced: std::sync::OnceLock<(std::path::PathBuf, std::path::PathBuf)>,
}

/// A keyspace, and how much was put into its memory since it was last told to write that out.
///
/// fjall would do this by itself, but it sends its workers a message with every batch from the limit on until one has
/// acted on it. A worker that is late meets a full queue, and waits for ever where it is the one to empty it.
struct Table {
    keyspace: Keyspace,
    memory_bytes: AtomicU64,
}

/// A directory entry as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub ino: u64,
    pub kind: FileKind,
}

/// Where an entry stands.
#[derive(Clone, Copy)]
pub(crate) struct EntryKey<'a> {
    pub dir: u64,
    pub cookie: u64,
    pub name: &'a [u8],
}

/// What is known of a file whose record is not all there is to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The size in the record is a lower bound, and the times may be newer.
    Written,
    /// The objects are to be cut to the size in the record.
    Cut,
}

/// Changes that happen together or not at all.
pub(crate) struct Change<'a> {
    database: &'a Database,
    batch: OwnedWriteBatch,
}

impl Database {
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let db = fjall::Database::builder(dir.join("db"))
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .cache_size(BLOCK_CACHE_BYTES)
            .max_cached_files(Some(DATABASE_FILES_MAX))
            .worker_threads(WORKER_THREADS)
            .open()?;
        let table = |name| -> Result<Table, StoreError> {
            let keyspace = db.keyspace(name, || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX))?;
            Ok(Table { keyspace, memory_bytes: AtomicU64::new(0) })
        };
        Ok(Self {
            inodes: table("inodes")?,
            entries: table("entries")?,
            marks: table("marks")?,
            orphans: table("orphans")?,
            nameless: table("nameless")?,
            xattrs: table("xattrs")?,
            numbers: table("numbers")?,
            is_closed: AtomicBool::new(false),
            #[cfg(test)]
            synced: std::sync::OnceLock::new(),
            db,
        })
    }

    pub fn change(&self) -> Change<'_> {
        Change { database: self, batch: self.db.batch() }
    }

    /// Everything that was committed is on stable storage when this returns; `data_only` as in `fdatasync`.
    pub fn sync(&self, data_only: bool) -> Result<(), StoreError> {
        self.db.persist(if data_only { PersistMode::SyncData } else { PersistMode::SyncAll })?;
        #[cfg(test)]
        self.copy_synced();
        Ok(())
    }

    /// Whether the last stop was a clean one. Says so no more, on stable storage.
    pub fn reopen(&self) -> Result<bool, StoreError> {
        let was_closed = self.numbers.keyspace.get(CLOSED)?.is_some();
        self.is_closed.store(was_closed, Relaxed);
        self.change().commit()?;
        self.sync(true)?;
        Ok(was_closed)
    }

    /// Puts everything on stable storage, and with it that this is a clean stop, unless a change follows.
    pub fn close(&self) -> Result<(), StoreError> {
        let mut change = self.change();
        change.put(&self.numbers, CLOSED, []);
        change.commit()?;
        self.is_closed.store(true, Relaxed);
        self.sync(false)
    }

    /// From now on `copy` has what a power cut leaves of `db`, the directory of this database.
    #[cfg(test)]
    pub fn keep_synced(&self, db: &Path, copy: &Path) {
        self.synced.set((db.to_owned(), copy.to_owned())).expect("once");
        self.copy_synced();
    }

    #[cfg(test)]
    fn copy_synced(&self) {
        if let Some((db, copy)) = self.synced.get() {
            crate::power_cut::copy_directory(db, copy);
        }
    }

    pub fn record(&self, ino: u64) -> Result<Option<Record>, StoreError> {
        let Some(bytes) = self.inodes.keyspace.get(ino.to_be_bytes())? else { return Ok(None) };
        Record::decode(&bytes).map(Some).ok_or(StoreError::Damaged(Ino(ino)))
    }

    pub fn entry(&self, key: EntryKey<'_>) -> Result<Option<Entry>, StoreError> {
        let Some(bytes) = self.entries.keyspace.get(key.encode())? else { return Ok(None) };
        Entry::decode(&bytes).map(Some).ok_or(StoreError::Damaged(Ino(key.dir)))
    }

    /// Entries of `dir` with a cookie of at least `from`, in order, until `take` says that it is enough.
    pub fn entries(
        &self,
        dir: u64,
        from: u64,
        mut take: impl FnMut(EntryKey<'_>, Entry) -> bool,
    ) -> Result<(), StoreError> {
        let first = EntryKey { dir, cookie: from, name: &[] }.encode();
        let beyond = EntryKey { dir, cookie: u64::MAX, name: &[] }.encode();
        for guard in self.entries.keyspace.range(first..beyond) {
            let (key, value) = guard.into_inner()?;
            let damaged = || StoreError::Damaged(Ino(dir));
            let (fixed, name) = key.split_first_chunk::<16>().ok_or_else(damaged)?;
            let cookie = fixed[8..].iter().fold(0, |n, b| n << 8 | u64::from(*b));
            let entry = Entry::decode(&value).ok_or_else(damaged)?;
            if !take(EntryKey { dir, cookie, name }, entry) {
                break;
            }
        }
        Ok(())
    }

    /// Inodes whose record may be older than their objects.
    pub fn marks(&self) -> Result<Vec<(u64, Mark)>, StoreError> {
        let mark = |guard: fjall::Guard| {
            let (key, value) = guard.into_inner()?;
            let ino = decode_ino(&key)?;
            match &*value {
                [] => Ok((ino, Mark::Written)),
                [1] => Ok((ino, Mark::Cut)),
                _ => Err(StoreError::Damaged(Ino(ino))),
            }
        };
        self.marks.keyspace.iter().map(mark).collect()
    }

    /// Calls `each` with every inode and its record, in order.
    pub fn each_record(&self, mut each: impl FnMut(u64, Record)) -> Result<(), StoreError> {
        for guard in self.inodes.keyspace.iter() {
            let (key, value) = guard.into_inner()?;
            let ino = decode_ino(&key)?;
            each(ino, Record::decode(&value).ok_or(StoreError::Damaged(Ino(ino)))?);
        }
        Ok(())
    }

    /// The value of the extended attribute `name`.
    pub fn xattr(&self, ino: u64, name: &[u8]) -> Result<Option<fjall::Slice>, StoreError> {
        Ok(self.xattrs.keyspace.get(xattr_key(ino, name))?)
    }

    /// Calls `each` with the name of every extended attribute, in order, and the length of its value.
    pub fn xattrs(&self, ino: u64, mut each: impl FnMut(&[u8], usize)) -> Result<(), StoreError> {
        for guard in self.xattrs.keyspace.prefix(ino.to_be_bytes()) {
            let (key, value) = guard.into_inner()?;
            each(key.get(8..).ok_or(StoreError::Damaged(Ino(ino)))?, value.len());
        }
        Ok(())
    }

    /// Objects that are still to be removed.
    pub fn orphans(&self) -> Result<Vec<(ObjectsId, Layout)>, StoreError> {
        let orphan = |guard: fjall::Guard| {
            let (key, value) = guard.into_inner()?;
            let number = decode_ino(&key)?;
            let damaged = || StoreError::Damaged(Ino(number));
            let generation = key.get(8..).and_then(|rest| rest.try_into().ok()).map(u32::from_be_bytes);
            let id = ObjectsId { number, generation: generation.ok_or_else(damaged)? };
            Ok((id, Layout::decode(&value).map_err(|_| damaged())?))
        };
        self.orphans.keyspace.iter().map(orphan).collect()
    }

    /// Inodes without a name whose extended attributes are still to be removed.
    pub fn nameless(&self) -> Result<Vec<u64>, StoreError> {
        self.nameless.keyspace.iter().map(|guard| decode_ino(&guard.key()?)).collect()
    }

    /// The lowest number that was never reserved.
    pub fn next_number(&self) -> Result<Option<u64>, StoreError> {
        let Some(bytes) = self.numbers.keyspace.get("next")? else { return Ok(None) };
        let bytes = bytes.first_chunk::<8>().ok_or(StoreError::Damaged(Ino(0)))?;
        Ok(Some(u64::from_le_bytes(*bytes)))
    }
}

fn xattr_key(ino: u64, name: &[u8]) -> Vec<u8> {
    [&ino.to_be_bytes(), name].concat()
}

fn orphan_key(id: ObjectsId) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.number.to_be_bytes());
    key[8..].copy_from_slice(&id.generation.to_be_bytes());
    key
}

fn decode_ino(key: &[u8]) -> Result<u64, StoreError> {
    key.first_chunk::<8>().map(|b| u64::from_be_bytes(*b)).ok_or(StoreError::Damaged(Ino(0)))
}

impl<'a> Change<'a> {
    fn put(&mut self, table: &'a Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), value.as_ref());
        table.fill(key.len() + value.len());
        self.batch.insert(&table.keyspace, key, value);
    }

    fn remove(&mut self, table: &'a Table, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        table.fill(key.len());
        self.batch.remove(&table.keyspace, key);
    }

    pub fn put_record(&mut self, ino: u64, record: &Record) {
        self.put(&self.database.inodes, ino.to_be_bytes(), record.encode());
    }

    pub fn remove_record(&mut self, ino: u64) {
        self.remove(&self.database.inodes, ino.to_be_bytes());
    }

    pub fn put_entry(&mut self, key: EntryKey<'_>, entry: Entry) {
        self.put(&self.database.entries, key.encode(), entry.encode());
    }

    pub fn remove_entry(&mut self, key: EntryKey<'_>) {
        self.remove(&self.database.entries, key.encode());
    }

    pub fn put_mark(&mut self, ino: u64, mark: Mark) {
        let value: &[u8] = match mark {
            Mark::Written => &[],
            Mark::Cut => &[1],
        };
        self.put(&self.database.marks, ino.to_be_bytes(), value);
    }

    pub fn remove_mark(&mut self, ino: u64) {
        self.remove(&self.database.marks, ino.to_be_bytes());
    }

    pub fn put_orphan(&mut self, id: ObjectsId, layout: &Layout) {
        let mut bytes = Vec::new();
        layout.encode(&mut bytes);
        self.put(&self.database.orphans, orphan_key(id), bytes);
    }

    pub fn remove_orphan(&mut self, id: ObjectsId) {
        self.remove(&self.database.orphans, orphan_key(id));
    }

    pub fn put_nameless(&mut self, ino: u64) {
        self.put(&self.database.nameless, ino.to_be_bytes(), Vec::new());
    }

    pub fn remove_nameless(&mut self, ino: u64) {
        self.remove(&self.database.nameless, ino.to_be_bytes());
    }

    pub fn put_xattr(&mut self, ino: u64, name: &[u8], value: &[u8]) {
        self.put(&self.database.xattrs, xattr_key(ino, name), value);
    }

    pub fn remove_xattr(&mut self, ino: u64, name: &[u8]) {
        self.remove(&self.database.xattrs, xattr_key(ino, name));
    }

    /// Removes every extended attribute that `ino` has now.
    pub fn remove_xattrs(&mut self, ino: u64) -> Result<(), StoreError> {
        let database = self.database;
        database.xattrs(ino, |name, _| self.remove_xattr(ino, name))
    }

    pub fn put_next_number(&mut self, number: u64) {
        self.put(&self.database.numbers, "next", number.to_le_bytes());
    }

    /// All of it, or an error and none of it.
    pub fn commit(mut self) -> Result<(), StoreError> {
        if self.database.is_closed.load(Relaxed) && self.database.is_closed.swap(false, Relaxed) {
            self.remove(&self.database.numbers, CLOSED);
        }
        self.batch.commit()?;
        let Database { inodes, entries, marks, orphans, nameless, xattrs, numbers, .. } = self.database;
        [inodes, entries, marks, orphans, nameless, xattrs, numbers].into_iter().for_each(Table::write_out_when_full);
        Ok(())
    }
}

impl Table {
    fn fill(&self, bytes: usize) {
        self.memory_bytes.fetch_add((bytes + NODE_BYTES) as u64, Relaxed);
    }

    /// The batch is committed already: a failure here is not its failure, and the next one hears of it.
    fn write_out_when_full(&self) {
        let full = self.memory_bytes.load(Relaxed) >= MEMTABLE_BYTES_MAX;
        if full
            && self.memory_bytes.swap(0, Relaxed) >= MEMTABLE_BYTES_MAX
            && let Err(e) = self.keyspace.rotate_memtable()
        {
            tracing::error!(keyspace = %self.keyspace.name(), error = %e, "metadata cannot be written out");
        }
    }
}

impl EntryKey<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(16 + self.name.len());
        key.extend_from_slice(&self.dir.to_be_bytes());
        key.extend_from_slice(&self.cookie.to_be_bytes());
        key.extend_from_slice(self.name);
        key
    }
}

impl Entry {
    fn encode(self) -> [u8; 9] {
        let mut bytes = [0; 9];
        bytes[..8].copy_from_slice(&self.ino.to_le_bytes());
        bytes[8] = self.kind.code();
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (ino, rest) = bytes.split_first_chunk::<8>()?;
        let [kind] = rest else { return None };
        Some(Self { ino: u64::from_le_bytes(*ino), kind: FileKind::from_code(*kind)? })
    }
}
