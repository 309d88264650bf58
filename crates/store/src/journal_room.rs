//! Room ahead in the journal of the database: its length, blocks on the device, and pages in memory.
//!
//! A file system commits a journal of its own when it syncs a file that has become longer, or has come to a block that had no place on the
//! device yet, and that takes two or three times as long as the sync of bytes that replace others. So the journal is longer than its entries, and what
//! comes next is full of zeros. The database takes them for the end, as it does the hole in a journal that it has just
//! begun.
//!
//! fjall gives a journal its length when it begins it, and appends to one of an earlier process, which is as long as its entries. Its descriptor is
//! found among those of the process, and duplicated: both have one position and one set of flags.

use crate::resident::Resident;
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// As long as fjall makes a journal that it begins; when the entries have come there, it begins the next one.
pub(crate) const JOURNAL_BYTES: u64 = 64 << 20;
/// So many zeros are written at once: who changes metadata waits for that.
const PIECE_BYTES: u64 = 256 << 10;
/// More are written when there are fewer than this ahead.
const AHEAD_BYTES_MIN: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct JournalRoom {
    /// A duplicate of fjall's.
    descriptor: File,
    /// Where the zeros end that were written, or more than that will not be.
    zeros_end: u64,
    /// What the next entries are written over, and the page that the last one ends in. Else whoever commits a change might wait for the
    /// device to read that page, once the host has dropped its page cache.
    resident: Option<Resident>,
}

impl JournalRoom {
    /// That of the `journal` at `path`. If it is appended to, and `is_quiet`, as nobody but the caller uses the database yet, it is as long
    /// from now on as one that fjall begins. None if it is appended to else, or was that long before: then fjall begins the next one soon.
    pub fn of(journal: &File, path: &Path, is_quiet: bool) -> Result<Option<Self>, Errno> {
        let found = descriptors(journal, path)?;
        // One that was opened anew is fjall's. Who synced this journal before fjall was opened anew may have a duplicate of the one it had then.
        let descriptor = match found.iter().position(|(_, flags)| flags.contains(OFlags::APPEND)) {
            Some(anew) => &found[anew],
            None if found.len() == 1 => &found[0],
            None => return Err(Errno::BADF),
        };
        let (descriptor, flags) = (descriptor.0.try_clone().map_err(|e| errno(&e))?, descriptor.1);
        if flags.contains(OFlags::APPEND) {
            // Of two that did this at once one would take the new length for the end of the entries.
            if !is_quiet || descriptor.metadata().map_err(|e| errno(&e))?.len() >= JOURNAL_BYTES {
                return Ok(None);
            }
            rustix::fs::seek(&descriptor, SeekFrom::End(0))?;
            rustix::fs::fcntl_setfl(&descriptor, flags - OFlags::APPEND)?;
            rustix::fs::ftruncate(&descriptor, JOURNAL_BYTES)?;
        }
        Ok(Some(Self { descriptor, zeros_end: 0, resident: None }))
    }

    /// Whether the entries come soon to where there are no zeros.
    pub fn is_scarce(&self) -> bool {
        self.zeros_end < JOURNAL_BYTES && self.position().is_ok_and(|end| end + AHEAD_BYTES_MIN > self.zeros_end)
    }

    /// Writes more of them. Nobody may write entries meanwhile. `journal`, the same file, is to be read from; nothing is written over anything but
    /// a hole or zeros.
    pub fn extend(&mut self, journal: &File) -> Result<(), Errno> {
        let begin = self.zeros_end.max(self.position()?);
        let end = (begin + PIECE_BYTES).min(JOURNAL_BYTES).max(begin);
        // Where that fails it is not tried again.
        self.zeros_end = JOURNAL_BYTES;
        let mut bytes = vec![0; (end - begin) as usize];
        journal.read_exact_at(&mut bytes, begin).map_err(|e| errno(&e))?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Err(Errno::EXIST);
        }
        self.descriptor.write_all_at(&bytes, begin).map_err(|e| errno(&e))?;
        self.zeros_end = end;
        // Two of them could be more than this process may lock. Without any there is room all the same.
        self.resident = None;
        self.resident = Resident::new(journal, self.position()?, end).ok();
        Ok(())
    }

    /// Where the entries end: fjall hands them to the host with each change.
    fn position(&self) -> Result<u64, Errno> {
        rustix::fs::seek(&self.descriptor, SeekFrom::Current(0))
    }
}

/// Duplicates of all descriptors of this process by which it writes to the file, and their flags.
fn descriptors(journal: &File, path: &Path) -> Result<Vec<(File, OFlags)>, Errno> {
    let identity = |file: &Metadata| (file.dev(), file.ino());
    let known = identity(&journal.metadata().map_err(|e| errno(&e))?);
    let this_process = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").map_err(|e| errno(&e))? {
        let link = entry.map_err(|e| errno(&e))?.path();
        let Some(number) = link.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A duplicate may have got a number that another thread has closed since the list was read, or that comes later in it.
        if found.iter().any(|(duplicate, _): &(File, OFlags)| duplicate.as_raw_fd() == number) {
            continue;
        }
        // By the name first, as a file of a device that hangs may be among the others. And a duplicate of one with POSIX locks
        // would end these once it is closed.
        let is_of_that_name = std::fs::read_link(&link).is_ok_and(|target| target.file_name() == path.file_name());
        if !is_of_that_name || !link.metadata().is_ok_and(|file| identity(&file) == known) {
            continue;
        }
        // One that is closed meanwhile is none.
        let duplicate = match rustix::process::pidfd_getfd(&this_process, number, PidfdGetfdFlags::empty()) {
            Ok(duplicate) => File::from(duplicate),
            Err(Errno::BADF) => continue,
            Err(e) => return Err(e),
        };
        let flags = rustix::fs::fcntl_getfl(&duplicate)?;
        let is_written_by = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        if is_written_by && duplicate.metadata().is_ok_and(|file| identity(&file) == known) {
            found.push((duplicate, flags));
        }
    }
    Ok(found)
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::pages_in_memory;
    use rustix::fs::Advice;
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A journal with these entries, as fjall opens one of an earlier process or begins one, and to be read from.
    fn journal(dir: &Path, entries: &[u8], is_old: bool) -> (PathBuf, File, File) {
        let path = dir.join("7.jnl");
        std::fs::write(&path, if is_old { entries } else { b"" }).unwrap();
        let mut writer = OpenOptions::new().write(!is_old).append(is_old).open(&path).unwrap();
        if !is_old {
            writer.set_len(JOURNAL_BYTES).unwrap();
            writer.write_all(entries).unwrap();
        }
        (path.clone(), writer, File::open(path).unwrap())
    }

    #[test]
    fn zeros_are_ahead_of_entries_and_never_over_them() {
        for is_old in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let (path, mut writer, journal) = journal(dir.path(), b"first ", is_old);
            assert!(!is_old || JournalRoom::of(&journal, &path, false).unwrap().is_none());
            let mut room = JournalRoom::of(&journal, &path, is_old).unwrap().unwrap();
            assert!(room.is_scarce());
            room.extend(&journal).unwrap();
            assert!(!room.is_scarce());
            writer.write_all(b"second").unwrap();
            writer.write_all(&vec![b'-'; (PIECE_BYTES - AHEAD_BYTES_MIN) as usize]).unwrap();
            assert!(room.is_scarce());
            room.extend(&journal).unwrap();
            assert!(!room.is_scarce());
            writer.write_all(b"third").unwrap();
            let found = std::fs::read(&path).unwrap();
            assert!(found.len() as u64 == JOURNAL_BYTES && found.starts_with(b"first second---"));
            assert_eq!(found.iter().filter(|byte| **byte != 0).count() as u64, 17 + PIECE_BYTES - AHEAD_BYTES_MIN);
        }
    }

    #[test]
    fn where_the_next_entries_come_is_kept_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut writer, journal) = journal(dir.path(), &vec![b'-'; 150_000], false);
        let mut room = JournalRoom::of(&journal, &path, false).unwrap().unwrap();
        for bytes in [1, 220_000, 300_000] {
            writer.write_all(&vec![b'-'; bytes]).unwrap();
            room.extend(&journal).unwrap();
            let page = rustix::param::page_size() as u64;
            let (first, end) = (room.position().unwrap() / page, room.zeros_end / page);
            journal.sync_all().unwrap();
            rustix::fs::fadvise(&journal, 0, None, Advice::DontNeed).unwrap();
            let there = pages_in_memory(&journal, end as usize);
            if there[0] {
                isonomia_testbed::skip("the host keeps files in memory here");
                return;
            }
            assert!(there[first as usize..].iter().all(|is_there| *is_there), "from {first}: {there:?}");
        }
    }

    #[test]
    fn nothing_is_written_where_something_is() {
        let dir = tempfile::tempdir().unwrap();
        let (path, writer, journal) = journal(dir.path(), b"entries", false);
        let mut room = JournalRoom::of(&journal, &path, false).unwrap().unwrap();
        writer.write_all_at(b"!", PIECE_BYTES / 2).unwrap();
        let before = std::fs::read(&path).unwrap();
        assert_eq!(room.extend(&journal), Err(Errno::EXIST));
        assert!(!room.is_scarce() && std::fs::read(&path).unwrap() == before);
    }

    #[test]
    fn it_is_found_while_other_descriptors_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let (path, _writer, journal) = journal(dir.path(), b"entries", false);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    drop(journal.try_clone().unwrap());
                }
            });
            let rooms: Vec<_> =
                (0..2000).map(|_| JournalRoom::of(&journal, &path, false).is_ok_and(|room| room.is_some())).collect();
            is_done.store(true, Ordering::Relaxed);
            assert!(rooms.iter().all(|is_found| *is_found));
        });
    }

    #[test]
    fn only_the_descriptor_that_is_written_by_now_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (path, writer, journal) = journal(dir.path(), b"entries", false);
        let of_before = JournalRoom::of(&journal, &path, false).unwrap().unwrap();
        assert!(JournalRoom::of(&journal, &path, false).is_err(), "either of the two may be the one");
        drop(writer);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(14).unwrap();
        let mut anew = OpenOptions::new().append(true).open(&path).unwrap();
        anew.write_all(b"more").unwrap();
        let room = JournalRoom::of(&journal, &path, true).unwrap().unwrap();
        assert_eq!((room.position(), of_before.position()), (Ok(18), Ok(7)));
        // It is never known where the next one comes in a journal of full length that is appended to.
        let _appending = OpenOptions::new().append(true).open(&path).unwrap();
        assert!(JournalRoom::of(&journal, &path, true).unwrap().is_none());
    }
}
