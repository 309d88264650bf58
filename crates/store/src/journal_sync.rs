//! Syncing the journal of the database while others append to it.
//!
//! fjall keeps everybody from the journal while it syncs it. Who commits would wait for the device then, whoever had asked for the sync;
//! and of many threads that commit and sync, one after the other would, as each syncs before the next could commit. So the journal
//! is synced here by a descriptor of its own, and fjall is asked only to hand to the host what was committed.
//!
//! The journal in use is the one with the highest number. fjall syncs it before it begins the next one, whose number is higher by one.
//! Should it fail in between, it may go on with the old one: so that is synced once more here. Journals of which all
//! is in tables are removed, the oldest first.

use crate::journal;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// As long as fjall makes a journal that it begins.
const JOURNAL_BYTES: u64 = 64 << 20;

/// The journal of an open database.
#[derive(Debug)]
pub(crate) struct JournalSync {
    dir: PathBuf,
    newest: Mutex<Newest>,
}

#[derive(Debug)]
struct Newest {
    number: u64,
    /// It is kept from one sync to the next: Linux tells each open file of bytes that could not be written since it was opened
    /// (`errseq_t`), and one that is opened later may hear nothing.
    file: File,
}

/// Why the journal could not be synced.
#[derive(Debug)]
pub(crate) enum SyncFailure {
    /// It was not tried.
    Before(Errno),
    /// The host may have dropped what it could not write.
    Lost(Errno),
}

impl JournalSync {
    /// Of the database in `dir`, which this process just opened, and which nobody changes yet.
    pub fn open(dir: &Path) -> Result<Self, Errno> {
        let mut newest = None;
        for (number, _) in journal::numbered(dir).map_err(errno)? {
            // fjall writes old ones to tables from its start on, and removes them.
            let Some(file) = open(dir, number)? else { continue };
            // What the host has in memory of an earlier process is not on stable storage before this.
            rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&file))?;
            newest = Some((number, file));
        }
        let (number, file) = newest.ok_or(Errno::NOENT)?;
        if let Err(e) = make_room_ahead(&file, &journal::path(dir, number)) {
            tracing::info!(error = %e, number, "the journal of the metadata grows with each entry, and syncs of it take longer");
        }
        Ok(Self { dir: dir.to_owned(), newest: Mutex::new(Newest { number, file }) })
    }

    /// What fjall has handed to the host before is on stable storage when this returns; the times of the journal's file are not: for
    /// them a file system would have to commit a journal of its own.
    pub fn sync(&self) -> Result<(), SyncFailure> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(next) = self.next(&newest).map_err(SyncFailure::Before)? {
            sync(&newest.file)?;
            *newest = next;
        }
        sync(&newest.file)
    }

    /// Lets go of a journal that fjall has removed, as all of it is in tables.
    pub fn forget_removed(&self) {
        // Whoever syncs lets go of it himself.
        let Ok(mut newest) = self.newest.try_lock() else { return };
        while newest.file.metadata().is_ok_and(|file| file.nlink() == 0)
            && let Ok(Some(next)) = self.next(&newest)
        {
            *newest = next;
        }
    }

    /// The journal after this one, of those that are there.
    fn next(&self, newest: &Newest) -> Result<Option<Newest>, Errno> {
        let next = |number| Ok(open(&self.dir, number)?.map(|file| Newest { number, file }));
        // fjall removes the oldest first, so while this one is there, so is the next.
        let found = next(newest.number + 1)?;
        if found.is_some() || newest.file.metadata().map_err(errno)?.nlink() > 0 {
            return Ok(found);
        }
        for (number, _) in journal::numbered(&self.dir).map_err(errno)? {
            if number > newest.number
                && let Some(found) = next(number)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

fn open(dir: &Path, number: u64) -> Result<Option<File>, Errno> {
    let path = journal::path(dir, number);
    // Where there is none no descriptor is needed to see that.
    let opened =
        rustix::fs::stat(&path).and_then(|_| rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()));
    match opened {
        Ok(fd) => Ok(Some(fd.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

fn sync(file: &File) -> Result<(), SyncFailure> {
    rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file)).map_err(SyncFailure::Lost)
}

/// fjall opens a journal of an earlier process so that all it writes is appended, and each entry makes the file longer. A file
/// system commits a journal of its own for that at each sync, which takes a device two or three times as long. So the journal gets as
/// much room ahead as one that fjall begins, and fjall's descriptor writes to where the entries end. A file system still commits
/// for a sync with which the entries have come to a block that has no place on the device yet.
fn make_room_ahead(journal: &File, path: &Path) -> Result<(), Errno> {
    let identity = |file: &Metadata| (file.dev(), file.ino());
    let known = journal.metadata().map_err(errno)?;
    if known.len() >= JOURNAL_BYTES {
        // fjall begins the next one soon.
        return Ok(());
    }
    let this_process = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    for entry in std::fs::read_dir("/proc/self/fd").map_err(errno)? {
        let link = entry.map_err(errno)?.path();
        let Some(number) = link.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok()) else {
            continue;
        };
        // By the name first, as a file of a device that hangs may be among the others. And a duplicate of one with POSIX locks
        // would end these once it is closed.
        let is_of_that_name = std::fs::read_link(&link).is_ok_and(|target| target.file_name() == path.file_name());
        if !is_of_that_name || !link.metadata().is_ok_and(|file| identity(&file) == identity(&known)) {
            continue;
        }
        // The duplicate shares position and flags with fjall's.
        let fd = File::from(rustix::process::pidfd_getfd(&this_process, number, PidfdGetfdFlags::empty())?);
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        if flags.contains(OFlags::APPEND) && identity(&fd.metadata().map_err(errno)?) == identity(&known) {
            rustix::fs::seek(&fd, SeekFrom::End(0))?;
            rustix::fs::fcntl_setfl(&fd, flags - OFlags::APPEND)?;
            return rustix::fs::ftruncate(&fd, JOURNAL_BYTES);
        }
    }
    Err(Errno::BADF)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emergency_space::EmergencySpace;
    use crate::engine::{Engine, Table, Write};
    use crate::fixture::config;
    use fjall::{Database, Keyspace, KeyspaceCreateOptions};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::{Duration, Instant};

    fn open_database(dir: &Path) -> (Database, Keyspace, JournalSync) {
        let db = Database::builder(dir).worker_threads(1).open().unwrap();
        // Its memory is written to tables only where a test says so.
        let options = || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX);
        let table = db.keyspace("numbers", options).unwrap();
        (db, table, JournalSync::open(dir).unwrap())
    }

    fn put(db: &Database, table: &Keyspace, number: u64, value: &[u8]) {
        let mut batch = db.batch();
        batch.insert(table, number.to_be_bytes(), value);
        batch.commit().unwrap();
    }

    type Entry = (Vec<u8>, Vec<u8>);

    /// Keys and values as they stand in the journals, and whether all of these are whole.
    fn entries(dir: &Path) -> (Vec<Entry>, bool) {
        let mut entries = Vec::new();
        let journals = journal::look(dir, |_, key, value| entries.push((key.to_vec(), value.to_vec()))).unwrap();
        entries.retain(|(key, _)| key.len() == 8);
        (entries, journals.iter().all(|journal| journal.resumes_at.is_none()))
    }

    /// fjall removes a journal a moment after all of it is in tables.
    fn wait_until_removed(dir: &Path, number: u64) {
        let begun = Instant::now();
        while journal::path(dir, number).exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "journal {number} is still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn entries_of_a_later_process_follow_those_of_an_earlier_one_and_have_room_ahead() {
        let dir = tempfile::tempdir().unwrap();
        let expected = |count: u64| (0..count).map(|i| (i.to_be_bytes().to_vec(), vec![i as u8; i as usize])).collect();
        for process in 0..4u64 {
            let (db, table, sync) = open_database(dir.path());
            assert_eq!(sync.newest.lock().unwrap().file.metadata().unwrap().len(), JOURNAL_BYTES);
            for i in process * 100..(process + 1) * 100 {
                assert_eq!(table.get(i.to_be_bytes()).unwrap(), None);
                put(&db, &table, i, &vec![i as u8; i as usize]);
            }
            sync.sync().unwrap();
            assert_eq!(sync.newest.lock().unwrap().file.metadata().unwrap().len(), JOURNAL_BYTES);
            assert_eq!(entries(dir.path()), (expected((process + 1) * 100), true));
            assert!((0..(process + 1) * 100).all(|i| table.get(i.to_be_bytes()).unwrap().unwrap().len() == i as usize));
        }
    }

    #[test]
    fn the_journal_that_is_synced_is_the_one_that_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (db, table, sync) = open_database(dir.path());
        let newest = || journal::numbered(dir.path()).unwrap().pop().unwrap().0;
        let first = newest();
        // Longer than a journal, twice. What is in tables is removed.
        for i in 0..140 {
            put(&db, &table, i, &vec![0; 1 << 20]);
            if i % 70 == 69 {
                table.rotate_memtable_and_wait().unwrap();
            }
        }
        assert_eq!(newest(), first + 2);
        assert_eq!(sync.newest.lock().unwrap().number, first);
        wait_until_removed(dir.path(), first + 1);
        sync.sync().unwrap();
        let synced = sync.newest.lock().unwrap();
        assert_eq!(synced.number, newest());
        assert_eq!(
            synced.file.metadata().unwrap().ino(),
            std::fs::metadata(journal::path(dir.path(), newest())).unwrap().ino()
        );
    }

    #[test]
    fn a_journal_that_was_removed_is_let_go_of() {
        let dir = tempfile::tempdir().unwrap();
        let (db, table, sync) = open_database(dir.path());
        (0..70).for_each(|i| put(&db, &table, i, &vec![0; 1 << 20]));
        sync.forget_removed();
        let first = sync.newest.lock().unwrap().number;
        assert!(journal::path(dir.path(), first).exists());
        table.rotate_memtable_and_wait().unwrap();
        wait_until_removed(dir.path(), first);
        sync.forget_removed();
        assert_eq!(sync.newest.lock().unwrap().number, first + 1);
    }

    #[test]
    fn syncs_go_on_while_journals_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let (db, table, sync) = open_database(dir.path());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for i in 0..150 {
                    put(&db, &table, i, &vec![i as u8; 1 << 20]);
                    if i % 35 == 34 || i == 149 {
                        table.rotate_memtable_and_wait().unwrap();
                    }
                }
                is_over.store(true, SeqCst);
            });
            while !is_over.load(SeqCst) && !writer.is_finished() {
                sync.sync().unwrap();
            }
        });
        sync.sync().unwrap();
        let newest = journal::numbered(dir.path()).unwrap().pop().unwrap().0;
        assert!(newest >= 2);
        assert_eq!(sync.newest.lock().unwrap().number, newest);
    }

    #[test]
    fn nothing_is_changed_any_more_after_a_sync_that_failed() {
        let dir = tempfile::tempdir().unwrap();
        let (db, space) = (dir.path().join("db"), Arc::new(EmergencySpace::open(dir.path(), false).unwrap()));
        let engine = Engine::open(db, space, config(dir.path()).fence()).unwrap();
        let put = |value: &[u8]| {
            engine.commit(&[Write { table: Table::Numbers, key: b"key".into(), value: Some(value.into()) }])
        };
        put(b"before").unwrap();
        engine.sync().unwrap();
        engine.with_journal(JournalSync::spoil);
        put(b"not synced yet").unwrap();
        assert!(engine.sync().is_err());
        assert!(put(b"after").is_err() && engine.sync().is_err());
        assert!(!engine.heal().unwrap());
        assert!(put(b"after").is_err());
        assert_eq!(engine.get(Table::Numbers, b"key").unwrap().as_deref(), Some(&b"not synced yet"[..]));
    }

    impl JournalSync {
        /// From now on the device takes nothing.
        pub fn spoil(&self) {
            let (socket, _) = UnixStream::pair().unwrap();
            self.newest.lock().unwrap().file = File::from(OwnedFd::from(socket));
        }
    }
}
