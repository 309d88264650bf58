//! Syncing the journal of the database while others append to it.
//!
//! fjall keeps everybody from the journal while it syncs it. Who commits would wait for the device then, whoever had asked for the sync;
//! and of many threads that commit and sync, one after the other would, as each syncs before the next could commit. So the journal
//! is synced here by a descriptor of its own, and fjall is asked only to hand to the host what was committed.
//!
//! The journal in use is the one with the highest number. fjall syncs it before it begins the next one, whose number is higher by one.
//! Should it fail in between, it may go on with the old one: so that is synced once more here. Journals of which all
//! is in tables are removed, the oldest first.

use crate::host_file_system::overwrites_in_place;
use crate::journal;
use crate::journal_room::JournalRoom;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// How much of a journal is written again at once.
const COPIED_BYTES: usize = 1 << 20;

/// The journal of an open database.
#[derive(Debug)]
pub(crate) struct JournalSync {
    dir: PathBuf,
    /// Whether its journals get room ahead.
    has_room_ahead: bool,
    newest: Mutex<Newest>,
}

#[derive(Debug)]
struct Newest {
    number: u64,
    /// It is kept from one sync to the next: Linux tells each open file of bytes that could not be written since it was opened
    /// (`errseq_t`), and one that is opened later may hear nothing.
    file: File,
    /// None where it is not to be had.
    room: Option<JournalRoom>,
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
        // Elsewhere it makes no difference, and cannot be had: what is opened to append to has each write at its end, whatever its flags are made
        // later, where a file system in user space opens a file of its own for it.
        Self::open_where(dir, |file| overwrites_in_place(file))
    }

    fn open_where(dir: &Path, has_room_ahead: impl Fn(&File) -> bool) -> Result<Self, Errno> {
        let mut newest = None;
        for (number, _) in journal::numbered(dir).map_err(errno)? {
            // fjall writes old ones to tables from its start on, and removes them.
            let Some(file) = open(dir, number)? else { continue };
            // What the host has in memory of an earlier process is not on stable storage before this.
            rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&file))?;
            newest = Some((number, file));
        }
        let (number, file) = newest.ok_or(Errno::NOENT)?;
        let has_room_ahead = has_room_ahead(&file);
        let room = has_room_ahead.then(|| room(&file, &journal::path(dir, number), true)).flatten();
        Ok(Self { dir: dir.to_owned(), has_room_ahead, newest: Mutex::new(Newest { number, file, room }) })
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

    /// Writes what is in all journals once more, and syncs them. Nobody may change the database meanwhile. O(bytes of the journals).
    ///
    /// For a start after a stop that was no clean one: a process before may have ended because a sync failed. What the host could not write then
    /// it has in memory still, and takes for written: whoever opens the journal later is told nothing, and by a sync that succeeds the
    /// end of a journal would be on stable storage, and not what is before it.
    pub fn write_again(&self) -> Result<(), Errno> {
        for (_, path) in journal::numbered(&self.dir).map_err(errno)? {
            // fjall removes those of which all is in tables.
            let file = match File::options().read(true).write(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(errno)?,
            };
            let (mut bytes, mut at) = (vec![0; COPIED_BYTES], 0);
            loop {
                let read = rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut bytes[..], at))?;
                let read = &bytes[..read];
                if read.is_empty() {
                    break;
                }
                // Zeros need no second writing, as a hole reads the same; and it takes no space.
                let last = read.iter().rposition(|byte| *byte != 0);
                if let Some(last) = last {
                    file.write_all_at(&read[..=last], at).map_err(errno)?;
                }
                at += read.len() as u64;
            }
            rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&file))?;
        }
        Ok(())
    }

    /// Whether [`Self::make_room`] is to be called.
    pub fn is_short_of_room(&self) -> bool {
        // Whoever syncs looks himself.
        self.newest.try_lock().is_ok_and(|newest| newest.room.as_ref().is_some_and(JournalRoom::is_scarce))
    }

    /// Sees to it that a sync needs no more of the file system than to write what there is. Nobody may change the database meanwhile.
    pub fn make_room(&self) {
        let Ok(mut newest) = self.newest.try_lock() else { return };
        let Newest { number, file, room } = &mut *newest;
        if let Some(Err(e)) = room.as_mut().map(|room| room.extend(file)) {
            tracing::info!(error = %e, number = *number, "the journal of the metadata has no room ahead, and syncs of it take longer");
        }
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

    fn newest(&self, number: u64, file: File) -> Newest {
        let room = self.has_room_ahead.then(|| room(&file, &journal::path(&self.dir, number), false)).flatten();
        Newest { number, file, room }
    }

    /// The journal after this one, of those that are there.
    fn next(&self, newest: &Newest) -> Result<Option<Newest>, Errno> {
        let next = |number| Ok(open(&self.dir, number)?.map(|file| self.newest(number, file)));
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

/// Of a journal that is to have some.
fn room(journal: &File, path: &Path, is_quiet: bool) -> Option<JournalRoom> {
    let room = JournalRoom::of(journal, path, is_quiet);
    room.unwrap_or_else(|e| {
        tracing::info!(error = %e, journal = %path.display(), "the journal of the metadata gets no room ahead, and syncs of it take longer");
        None
    })
}

fn open(dir: &Path, number: u64) -> Result<Option<File>, Errno> {
    let path = journal::path(dir, number);
    let open = |more| rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC | more, Mode::empty());
    // Where there is none no descriptor is needed to see that. The time of an access is a change, for which the file system may wait for its device,
    // and to map the file is an access. Only the owner may have it left out.
    let opened = rustix::fs::stat(&path).and_then(|_| match open(OFlags::NOATIME) {
        Err(Errno::PERM) => open(OFlags::empty()),
        opened => opened,
    });
    match opened {
        Ok(fd) => Ok(Some(fd.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

fn sync(file: &File) -> Result<(), SyncFailure> {
    rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file)).map_err(SyncFailure::Lost)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emergency_space::EmergencySpace;
    use crate::engine::{Engine, MetadataFailure, Table, UNSYNCED, Write};
    use crate::fence::Loss;
    use crate::fixture::config;
    use crate::journal_room::JOURNAL_BYTES;
    use fjall::{Database, Keyspace, KeyspaceCreateOptions};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::{Duration, Instant};

    #[test]
    fn what_is_written_again_is_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let (db, table, journal) = open_database(dir.path());
        (0..3_000).for_each(|number| put(&db, &table, number, &[7; 1_000]));
        db.persist(fjall::PersistMode::SyncAll).unwrap();
        journal.make_room();
        let journals = || -> Vec<_> {
            let paths = journal::numbered(dir.path()).unwrap().into_iter().map(|(_, path)| path);
            paths
                .map(|path| (std::fs::read(&path).unwrap(), std::fs::metadata(&path).unwrap().modified().unwrap()))
                .collect()
        };
        let before = journals();
        journal.write_again().unwrap();
        let after = journals();
        assert_eq!(
            before.iter().map(|(bytes, _)| bytes).collect::<Vec<_>>(),
            after.iter().map(|(bytes, _)| bytes).collect::<Vec<_>>()
        );
        assert!(before[0].0.len() > 3 << 20 && before[0].1 < after[0].1, "it was not written");
        // What is appended afterwards follows.
        put(&db, &table, 3_000, &[8; 1_000]);
        journal.sync().unwrap();
        drop((db, table, journal));
        let (_db, table, _journal) = open_database(dir.path());
        assert_eq!(table.iter().count(), 3_001);
    }

    fn open_database(dir: &Path) -> (Database, Keyspace, JournalSync) {
        open_database_where(dir, |_| true)
    }

    fn open_database_where(dir: &Path, has_room_ahead: impl Fn(&File) -> bool) -> (Database, Keyspace, JournalSync) {
        let db = Database::builder(dir).worker_threads(1).open().unwrap();
        // Its memory is written to tables only where a test says so.
        let options = || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX);
        let table = db.keyspace("numbers", options).unwrap();
        (db, table, JournalSync::open_where(dir, has_room_ahead).unwrap())
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
    fn a_journal_is_left_as_it_is_where_room_ahead_makes_no_difference() {
        let dir = tempfile::tempdir().unwrap();
        for process in 0..3u64 {
            let (db, table, sync) = open_database_where(dir.path(), |_| false);
            let len = || sync.newest.lock().unwrap().file.metadata().unwrap().len();
            assert_eq!(len() == JOURNAL_BYTES, process == 0, "fjall gives a new one its length");
            put(&db, &table, process, b"entry");
            sync.sync().unwrap();
            assert_eq!(len() == JOURNAL_BYTES, process == 0);
            assert!(sync.newest.lock().unwrap().room.is_none() && !sync.is_short_of_room());
            assert_eq!(entries(dir.path()).0.len() as u64, process + 1);
        }
    }

    #[test]
    fn each_journal_has_zeros_ahead_and_all_of_its_entries() {
        let dir = tempfile::tempdir().unwrap();
        let mut numbers = Vec::new();
        for process in 0..2u8 {
            let (db, table, sync) = open_database(dir.path());
            // More than a journal takes, all of which is in tables then, and a little of the next one.
            for i in 0..75 {
                put(&db, &table, i, &vec![process + 1; 1 << 20]);
                if i == 69 {
                    table.rotate_memtable_and_wait().unwrap();
                }
                sync.sync().unwrap();
                sync.make_room();
                assert!(!sync.is_short_of_room() && sync.newest.lock().unwrap().room.is_some());
                numbers.push(sync.newest.lock().unwrap().number);
            }
            let (found, are_whole) = entries(dir.path());
            assert!(are_whole && found.iter().all(|(_, value)| value.iter().all(|byte| *byte > 0)));
            assert!((0..75u64).all(|i| table.get(i.to_be_bytes()).unwrap().unwrap()[..] == vec![process + 1; 1 << 20]));
        }
        numbers.dedup();
        assert_eq!(numbers.len(), 3, "one for each process, and one in between: {numbers:?}");
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
    fn changes_that_are_made_while_others_make_room_are_all_there() {
        const THREADS: u64 = 4;
        const CHANGES: u64 = 1_000;
        let dir = tempfile::tempdir().unwrap();
        let (db, space) = (dir.path().join("db"), Arc::new(EmergencySpace::open(dir.path(), false).unwrap()));
        let value = |number: u64| vec![1 + (number % 250) as u8; 600];
        let engine = Engine::open(db.clone(), space.clone(), config(dir.path()).fence()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let engine = &engine;
                scope.spawn(move || {
                    for number in (0..CHANGES).map(|number| number * THREADS + thread) {
                        let (key, value) = (number.to_be_bytes().to_vec().into(), Some(value(number).into()));
                        engine.commit(&[Write { table: Table::Numbers, key, value }]).unwrap();
                        if number % 64 == thread {
                            engine.sync().unwrap();
                        }
                        engine.make_room();
                    }
                });
            }
        });
        engine.make_room();
        engine.with_journal(|journal| assert!(!journal.is_short_of_room()));
        drop(engine);
        let engine = Engine::open(db, space, config(dir.path()).fence()).unwrap();
        for number in 0..THREADS * CHANGES {
            let found = engine.get(Table::Numbers, number.to_be_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(&value(number)[..]), "{number}");
        }
    }

    #[test]
    fn nothing_is_changed_any_more_after_a_sync_that_failed() {
        let dir = tempfile::tempdir().unwrap();
        let (db, space) = (dir.path().join("db"), Arc::new(EmergencySpace::open(dir.path(), false).unwrap()));
        let fence = config(dir.path()).fence();
        let engine = Engine::open(db, space, fence.clone()).unwrap();
        let put = |value: &[u8]| {
            engine.commit(&[Write { table: Table::Numbers, key: b"key".into(), value: Some(value.into()) }])
        };
        put(b"before").unwrap();
        engine.sync().unwrap();
        engine.with_journal(JournalSync::spoil);
        put(b"not synced yet").unwrap();
        assert!(engine.sync().is_err());
        assert!(put(b"after").is_err() && engine.sync().is_err());
        assert_eq!(engine.failure(), Some(MetadataFailure::Unsynced));
        assert!(!engine.heal().unwrap() && put(b"after").is_err());
        // While the storage takes nothing there is no use in a new start.
        let mark = dir.path().join(UNSYNCED);
        std::fs::create_dir(&mark).unwrap();
        assert!(engine.end_if_unsynced().is_err() && fence.is_valid());
        std::fs::remove_dir(&mark).unwrap();
        engine.end_if_unsynced().unwrap();
        assert!(mark.exists() && !fence.is_valid());
        assert_eq!(fence.wait_for_end(), Some(Loss::Unsynced));
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
