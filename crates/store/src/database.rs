//! The metadata on disk: a fjall database in `<dir>/db` with 14 keyspaces. Numbers in keys are big-endian, so
//! that keys sort by them.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `inodes` | inode (8) | [`Record`] |
//! | `entries` | directory (8), cookie (8), name | inode (8, little-endian), kind (1) |
//! | `marks` | inode (8) | empty: the file may be longer than its record says, and its times newer; one byte, 1: its objects are to be cut to the size in the record; 2: it may be longer, and the times are right; 3 and a size (8, little-endian): a spread file has that, its times may be newer |
//! | `orphans` | number (8) and generation (4) of objects | layout of the file that they were of: no name leads to them, and they are still to be removed |
//! | `nameless` | inode (8) | empty: it has no name, and extended attributes that are still to be removed |
//! | `xattrs` | inode (8), name with its namespace | value of the extended attribute |
//! | `numbers` | `closed` | empty, and there only while the store is closed: the last stop was a clean one |
//! | `numbers` | `loose` | empty, and there since the first unclean stop, or spread file that came with a volume: `spread` |
//! | `numbers` | `start` | text that tells the start of the host at which the store was last opened from others: [`crate::recovery`] |
//! | `numbers` | `synced` | number of the last sync (8, little-endian), and its seal (8): [`crate::witness`] |
//! | `numbers` | `verifier` | number (8, little-endian) that is another one after each stop with which something may have been lost, and not there once something was lost without a stop: `stop` |
//! | `unsettled` | inode (8), or place of a detached object (16) | empty: checksums of the objects may be older than the objects ([`crate::settle`]) |
//! | `numbers` | `next` | lowest number of inodes and objects (without the volume) that was never reserved (8, little-endian) |
//! | `cluster` | as `isonomia_cluster::records` says | likewise: what the server keeps of the cluster that it is in |
//! | `detached` | place of a detached object (16) | [`crate::detached::DetachedRecord`] |
//! | `removed` | place of a detached object (16) | until when it is not to come back: seconds since the epoch (8, little-endian) |
//! | `cuts` | inode (8) of a spread file | number of the cut (8, little-endian): its objects are still to be cut to the size in the record ([`crate::spread`]) |
//! | `spread_orphans` | number (8) and generation (4) of objects | layout of the spread file that they were of: no name leads to them, and other servers are still to remove them |
//! | `damaged` | place of an object (16), block (8) | checksum of what was found there instead of what was written (8, little-endian): [`crate::known_damage`] |
//!
//! The place of an object is its number (8), generation (4), index (2), and target (2). The cookie of an entry is a keyed hash of directory and name ([`crate::directory`]), so one key serves
//! look-ups and listings, and a listing goes on where it was whatever is created or removed meanwhile.
//!
//! A batch is atomic. When it returns, the journal has reached the operating system (fjall's `PersistMode::Buffer`,
//! its default for batches): a killed server loses nothing that it acknowledged. A power failure loses what was not
//! followed by [`Database::sync`].

mod objects;
mod stop;
mod sync;
mod whole;

pub(crate) use objects::{ObjectChange, ObjectTables};
pub(crate) use stop::Stop;
pub(crate) use whole::{check, check_used};

use crate::change_counts::ChangeCounts;
use crate::content::Owner;
use crate::emergency_space::EmergencySpace;
use crate::engine::{Engine, MetadataFailure, Table, Write};
use crate::fence::Fence;
use crate::group_commit::GroupCommit;
use crate::owner;
use crate::record::Record;
use crate::witness::{self, Witness};
use crate::{OpenError, StoreConfig, StoreError};
use isonomia_proto::fs::FileKind;
use isonomia_units::Ino;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

const LOOSE: &str = "loose";
/// No key of any other table is like this one, so it can be told in the journal where that is whole.
const SYNCED: &str = "synced";

pub(crate) struct Database {
    engine: Engine,
    witness: Witness,
    changes: ChangeCounts,
    group: GroupCommit,
    /// Of the last sync, in the database.
    number: Mutex<u64>,
    /// The database says that the stop was a clean one.
    is_closed: AtomicBool,
    /// The database has no verifier for the next start: `stop`.
    has_no_verifier: AtomicBool,
    #[cfg(test)]
    synced: std::sync::OnceLock<(std::path::PathBuf, std::path::PathBuf)>,
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
pub(crate) enum DirtyRecord {
    /// The size in the record is a lower bound, and the times may be newer.
    Written,
    /// The size in the record is a lower bound, the times are right.
    Flushed,
    /// The objects are to be cut to the size in the record.
    Cut,
    /// Of a spread file: it is as long as this, if that is more than the record says; the times may be newer.
    SizeAtLeast(u64),
}

/// Key and value of something that the server keeps of its cluster.
pub type ClusterRecord = (Vec<u8>, Vec<u8>);

/// Changes that happen together or not at all.
pub(crate) struct Change<'a> {
    database: &'a Database,
    writes: Vec<Write>,
}

impl Database {
    /// Opens the database in the directory of a store, which [`check`] has seen, or creates it there. One that has less than the
    /// store's own file of `witness` knows to be on stable storage is refused.
    pub fn open(
        config: &StoreConfig,
        (emergency_space, fence): (Arc<EmergencySpace>, Arc<Fence>),
        witness: Witness,
    ) -> Result<Self, OpenError> {
        Self::open_in(&owner::database_dir(&config.dir), config, (emergency_space, fence), witness)
    }

    /// The same in this directory.
    pub fn open_in(
        dir: &Path,
        config: &StoreConfig,
        (emergency_space, fence): (Arc<EmergencySpace>, Arc<Fence>),
        witness: Witness,
    ) -> Result<Self, OpenError> {
        let fail = |source| OpenError::Recovery { dir: config.dir.clone(), source };
        let engine = Engine::open(dir.to_owned(), emergency_space, fence).map_err(fail)?;
        let number = match engine.get(Table::Numbers, SYNCED).map_err(fail)? {
            Some(bytes) => bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).unwrap_or_default(),
            None => 0,
        };
        if number < witness.number() {
            return Err(OpenError::damaged(dir, lacks_syncs(number, &witness)));
        }
        Ok(Self {
            engine,
            witness,
            changes: ChangeCounts::new(),
            group: GroupCommit::default(),
            number: Mutex::new(number),
            is_closed: AtomicBool::new(false),
            has_no_verifier: AtomicBool::new(false),
            #[cfg(test)]
            synced: std::sync::OnceLock::new(),
        })
    }

    /// Refuses metadata that are older than what the targets know.
    pub fn refuse_older(&self, dir: &Path) -> Result<(), OpenError> {
        let number = self.number();
        match self.is_behind() {
            None => Ok(()),
            Some((known, path)) => Err(OpenError::Older { dir: dir.to_owned(), number, path: path.to_owned(), known }),
        }
    }

    /// Whether more syncs are known than the database has, how many, and from which file.
    pub fn is_behind(&self) -> Option<(u64, &Path)> {
        Some(self.witness.highest()).filter(|(known, _)| *known > self.number())
    }

    /// The number of the last sync.
    pub fn number(&self) -> u64 {
        *self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what there is at this moment into a new database in `dir`, unless `is_stopping` is set; the number of the last
    /// sync that it tells of.
    pub fn copy_to(&self, dir: &Path, is_stopping: &AtomicBool) -> Result<u64, StoreError> {
        let number = self.engine.copy_to(dir, (Table::Numbers, SYNCED), is_stopping)?;
        Ok(number.and_then(|bytes| bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))).unwrap_or_default())
    }

    /// Takes what there is for all there was: the next sync has a number that none had.
    pub fn catch_up(&self) {
        let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        *number = (*number).max(self.witness.highest().0);
    }

    pub fn change(&self) -> Change<'_> {
        Change { database: self, writes: Vec::new() }
    }

    /// Opens it anew after a failure, if there is room again; true if that was done.
    pub fn heal(&self) -> Result<bool, StoreError> {
        self.engine.heal()
    }

    /// Why it cannot be changed at this moment.
    pub fn failure(&self) -> Option<MetadataFailure> {
        self.engine.failure()
    }

    /// Ends this process's right to change it after a sync that failed, if a new start has prospects. May wait for the storage.
    pub fn end_if_unsynced(&self) -> Result<(), StoreError> {
        self.engine.end_if_unsynced()
    }

    /// Puts on stable storage how much of the database is.
    pub fn keep_witness(&self) -> Result<(), StoreError> {
        self.witness.keep().map_err(|e| StoreError::host(Path::new(witness::NAME), e))
    }

    /// The same for a store that is new: that it was used may be noted only if that of a sync is.
    pub fn keep_first_witness(&self) -> Result<(), StoreError> {
        self.keep_witness()?;
        if self.witness.number() == 0 {
            return Err(StoreError::host(Path::new(witness::NAME), rustix::io::Errno::IO));
        }
        Ok(())
    }

    pub fn record(&self, ino: u64) -> Result<Option<Record>, StoreError> {
        let Some(bytes) = self.engine.get(Table::Inodes, ino.to_be_bytes())? else { return Ok(None) };
        Record::decode(&bytes).map(Some).ok_or(StoreError::Damaged(Ino(ino)))
    }

    pub fn entry(&self, key: EntryKey<'_>) -> Result<Option<Entry>, StoreError> {
        let Some(bytes) = self.engine.get(Table::Entries, key.encode())? else { return Ok(None) };
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
        self.engine.scan(Table::Entries, first..beyond, |key, value| {
            let damaged = || StoreError::Damaged(Ino(dir));
            let (fixed, name) = key.split_first_chunk::<16>().ok_or_else(damaged)?;
            let cookie = fixed[8..].iter().fold(0, |n, b| n << 8 | u64::from(*b));
            let entry = Entry::decode(value).ok_or_else(damaged)?;
            Ok(take(EntryKey { dir, cookie, name }, entry))
        })
    }

    /// Inodes whose record may be older than their objects.
    pub fn dirty_records(&self) -> Result<Vec<(u64, DirtyRecord)>, StoreError> {
        let mut records = Vec::new();
        self.engine.scan(Table::DirtyInodes, .., |key, value| {
            let ino = decode_ino(key)?;
            let record = match value {
                [] => DirtyRecord::Written,
                [1] => DirtyRecord::Cut,
                [2] => DirtyRecord::Flushed,
                [3, size @ ..] => {
                    let size = size.try_into().map_err(|_| StoreError::Damaged(Ino(ino)))?;
                    DirtyRecord::SizeAtLeast(u64::from_le_bytes(size))
                }
                _ => return Err(StoreError::Damaged(Ino(ino))),
            };
            records.push((ino, record));
            Ok(true)
        })?;
        Ok(records)
    }

    /// Calls `each` with every inode and its record, in order.
    pub fn each_record(&self, mut each: impl FnMut(u64, Record)) -> Result<(), StoreError> {
        self.engine.scan(Table::Inodes, .., |key, value| {
            let ino = decode_ino(key)?;
            each(ino, Record::decode(value).ok_or(StoreError::Damaged(Ino(ino)))?);
            Ok(true)
        })
    }

    /// Calls `each` with inodes from `first` on, in order, and their records if they can be read, until it says that it is
    /// enough.
    pub fn records_from(
        &self,
        first: u64,
        mut each: impl FnMut(u64, Option<Record>) -> bool,
    ) -> Result<(), StoreError> {
        let first = first.to_be_bytes().to_vec();
        self.engine.scan(Table::Inodes, first.., |key, value| Ok(each(decode_ino(key)?, Record::decode(value))))
    }

    /// Calls `each` with inodes from key `from` on, before `beyond`, and their records as they are kept, until it says that it is
    /// enough.
    pub fn raw_records(
        &self,
        from: &[u8],
        beyond: &[u8],
        mut each: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let range = from.to_vec()..beyond.to_vec();
        self.engine.scan(Table::Inodes, range, |key, value| Ok(each(decode_ino(key)?, value)))
    }

    /// The same with keys and values of extended attributes.
    pub fn raw_xattrs(
        &self,
        from: &[u8],
        beyond: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.engine.scan(Table::Xattrs, from.to_vec()..beyond.to_vec(), |key, value| Ok(each(key, value)))
    }

    /// The same with keys, directories, names, and what these lead to.
    pub fn raw_names(
        &self,
        from: &[u8],
        beyond: &[u8],
        mut each: impl FnMut(&[u8], u64, &[u8], Entry) -> bool,
    ) -> Result<(), StoreError> {
        self.engine.scan(Table::Entries, from.to_vec()..beyond.to_vec(), |key, value| {
            let dir = decode_ino(key)?;
            let name = key.get(16..).ok_or(StoreError::Damaged(Ino(dir)))?;
            let entry = Entry::decode(value).ok_or(StoreError::Damaged(Ino(dir)))?;
            Ok(each(key, dir, name, entry))
        })
    }

    /// As [`Self::each_record`], with nothing for a record that cannot be read.
    pub fn each_raw_record(&self, mut each: impl FnMut(u64, Option<Record>)) -> Result<(), StoreError> {
        self.engine.scan(Table::Inodes, .., |key, value| {
            each(decode_ino(key)?, Record::decode(value));
            Ok(true)
        })
    }

    /// Calls `each` with the key of every entry, and the entry if it can be read.
    pub fn each_entry(&self, mut each: impl FnMut(&[u8], Option<Entry>)) -> Result<(), StoreError> {
        self.engine.scan(Table::Entries, .., |key, value| {
            each(key, Entry::decode(value));
            Ok(true)
        })
    }

    /// Calls `each` with the inode of every extended attribute.
    pub fn each_xattr(&self, mut each: impl FnMut(u64)) -> Result<(), StoreError> {
        self.engine.scan(Table::Xattrs, .., |key, _| {
            each(decode_ino(key)?);
            Ok(true)
        })
    }

    /// Whose checksums may be older than their objects, in order.
    pub fn unsettled(&self) -> Result<Vec<Owner>, StoreError> {
        let mut all = Vec::new();
        self.engine.scan(Table::Unsettled, .., |key, _| {
            all.push(objects::decode_owner(key)?);
            Ok(true)
        })?;
        all.sort_unstable();
        Ok(all)
    }

    /// The value of the extended attribute `name`.
    pub fn xattr(&self, ino: u64, name: &[u8]) -> Result<Option<fjall::Slice>, StoreError> {
        self.engine.get(Table::Xattrs, xattr_key(ino, name))
    }

    /// Calls `each` with the name of every extended attribute, in order, and the length of its value.
    pub fn xattrs(&self, ino: u64, mut each: impl FnMut(&[u8], usize)) -> Result<(), StoreError> {
        let (first, beyond) = (xattr_key(ino, &[]), xattr_key(ino + 1, &[]));
        self.engine.scan(Table::Xattrs, first..beyond, |key, value| {
            each(key.get(8..).ok_or(StoreError::Damaged(Ino(ino)))?, value.len());
            Ok(true)
        })
    }

    /// Inodes without a name whose extended attributes are still to be removed.
    pub fn nameless(&self) -> Result<Vec<u64>, StoreError> {
        let mut nameless = Vec::new();
        self.engine.scan(Table::Nameless, .., |key, _| {
            nameless.push(decode_ino(key)?);
            Ok(true)
        })?;
        Ok(nameless)
    }

    /// Everything that is kept of the cluster.
    pub fn cluster_records(&self) -> Result<Vec<ClusterRecord>, StoreError> {
        let mut records = Vec::new();
        self.engine.scan(Table::Cluster, .., |key, value| {
            records.push((key.to_vec(), value.to_vec()));
            Ok(true)
        })?;
        Ok(records)
    }

    /// Whether spread files are loose when they are loaded.
    pub fn has_loose(&self) -> Result<bool, StoreError> {
        Ok(self.engine.get(Table::Numbers, LOOSE)?.is_some())
    }

    /// The lowest number that was never reserved.
    pub fn next_number(&self) -> Result<Option<u64>, StoreError> {
        let Some(bytes) = self.engine.get(Table::Numbers, "next")? else { return Ok(None) };
        let bytes = bytes.first_chunk::<8>().ok_or(StoreError::Damaged(Ino(0)))?;
        Ok(Some(u64::from_le_bytes(*bytes)))
    }
}

fn lacks_syncs(number: u64, witness: &Witness) -> String {
    format!("ends at sync {number}, and {} were done", witness.number())
}

fn xattr_key(ino: u64, name: &[u8]) -> Vec<u8> {
    [&ino.to_be_bytes(), name].concat()
}

fn decode_ino(key: &[u8]) -> Result<u64, StoreError> {
    key.first_chunk::<8>().map(|b| u64::from_be_bytes(*b)).ok_or(StoreError::Damaged(Ino(0)))
}

impl Change<'_> {
    fn put(&mut self, table: Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.writes.push(Write { table, key: key.as_ref().into(), value: Some(value.as_ref().into()) });
    }

    fn remove(&mut self, table: Table, key: impl AsRef<[u8]>) {
        self.writes.push(Write { table, key: key.as_ref().into(), value: None });
    }

    pub fn put_record(&mut self, ino: u64, record: &Record) {
        self.put(Table::Inodes, ino.to_be_bytes(), record.encode());
    }

    #[cfg(test)]
    pub fn spoil_record(&mut self, ino: u64) {
        self.put(Table::Inodes, ino.to_be_bytes(), b"?");
    }

    pub fn remove_record(&mut self, ino: u64) {
        self.remove(Table::Inodes, ino.to_be_bytes());
    }

    pub fn put_entry(&mut self, key: EntryKey<'_>, entry: Entry) {
        self.put(Table::Entries, key.encode(), entry.encode());
    }

    /// Puts or removes the entry that has just this key, right or wrong.
    pub fn set_raw_entry(&mut self, key: &[u8], entry: Option<Entry>) {
        match entry {
            Some(entry) => self.put(Table::Entries, key, entry.encode()),
            None => self.remove(Table::Entries, key),
        }
    }

    pub fn remove_entry(&mut self, key: EntryKey<'_>) {
        self.remove(Table::Entries, key.encode());
    }

    pub fn put_dirty_record(&mut self, ino: u64, record: DirtyRecord) {
        let value = match record {
            DirtyRecord::Written => vec![],
            DirtyRecord::Cut => vec![1],
            DirtyRecord::Flushed => vec![2],
            DirtyRecord::SizeAtLeast(size) => [&[3], &size.to_le_bytes()[..]].concat(),
        };
        self.put(Table::DirtyInodes, ino.to_be_bytes(), value);
    }

    pub fn remove_dirty_record(&mut self, ino: u64) {
        self.remove(Table::DirtyInodes, ino.to_be_bytes());
    }

    pub fn put_nameless(&mut self, ino: u64) {
        self.put(Table::Nameless, ino.to_be_bytes(), Vec::new());
    }

    pub fn remove_nameless(&mut self, ino: u64) {
        self.remove(Table::Nameless, ino.to_be_bytes());
    }

    pub fn put_cluster_record(&mut self, key: &[u8], value: &[u8]) {
        self.put(Table::Cluster, key, value);
    }

    pub fn remove_cluster_record(&mut self, key: &[u8]) {
        self.remove(Table::Cluster, key);
    }

    pub fn put_xattr(&mut self, ino: u64, name: &[u8], value: &[u8]) {
        self.put(Table::Xattrs, xattr_key(ino, name), value);
    }

    pub fn remove_xattr(&mut self, ino: u64, name: &[u8]) {
        self.remove(Table::Xattrs, xattr_key(ino, name));
    }

    /// Removes every extended attribute that `ino` has now.
    pub fn remove_xattrs(&mut self, ino: u64) -> Result<(), StoreError> {
        let database = self.database;
        database.xattrs(ino, |name, _| self.remove_xattr(ino, name))
    }

    /// From now on spread files are loose when they are loaded.
    pub fn put_loose(&mut self) {
        self.put(Table::Numbers, LOOSE, []);
    }

    pub fn put_next_number(&mut self, number: u64) {
        self.put(Table::Numbers, "next", number.to_le_bytes());
    }

    /// All of it, or an error and none of it.
    pub fn commit(mut self) -> Result<(), StoreError> {
        if self.database.is_closed.load(Relaxed) && self.database.is_closed.swap(false, Relaxed) {
            self.remove(Table::Numbers, stop::CLOSED);
        }
        let _under_way = self.database.changes.begin();
        self.database.engine.commit(&self.writes)
    }
}

impl EntryKey<'_> {
    pub fn encode(&self) -> Vec<u8> {
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
