//! Directory streams.
//!
//! A `DIR *` of ours points to a [`Stream`] that begins with a number no stream of the C library's begins with (that
//! one begins with a descriptor and a lock), so both kinds are told apart by looking.

use crate::calls::real;
use crate::connection::client;
use crate::description::FileRef;
use crate::foreign::{Buffer, CPath, Out};
use crate::hook::returned;
use crate::serve::{by_fd, by_path, refusal};
use crate::{descriptors, open, table};
use isonomia_client::{Capability, Client, DirEntry, Error};
use libc::{DIR, c_long, dirent64};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

const MAGIC: u64 = u64::from_le_bytes(*b"isoDIR\xff\xff");
/// How a directory is opened for listing.
const OPEN_FLAGS: c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;

// Both forms of the structure are one.
const _: () = assert!(size_of::<libc::dirent>() == size_of::<dirent64>());

/// A directory stream of ours.
#[repr(C)]
pub struct Stream {
    magic: u64,
    fd: c_int,
    listing: Mutex<Listing>,
}

struct Listing {
    /// The server's cookie of the last entry, as `telldir` gives it; 0 at the start.
    position: u64,
    /// Entries that the server sent and the program has not seen.
    ahead: VecDeque<DirEntry>,
    /// What `readdir` hands out.
    current: dirent64,
}

/// The stream behind `dir` if it is ours.
fn ours<'a>(dir: *mut DIR) -> Option<&'a Stream> {
    let stream = dir.cast::<Stream>();
    // SAFETY: the caller vouches for an open stream of either kind; both are longer and aligned as a `u64`.
    if dir.is_null() || unsafe { (*stream).magic } != MAGIC {
        return None;
    }
    // SAFETY: the magic number says what it is.
    Some(unsafe { &*stream })
}

fn stream(fd: c_int) -> *mut DIR {
    // SAFETY: zeros are a value of this structure of numbers.
    let current = unsafe { std::mem::zeroed() };
    let listing = Mutex::new(Listing { position: 0, ahead: VecDeque::new(), current });
    Box::into_raw(Box::new(Stream { magic: MAGIC, fd, listing })).cast()
}

impl Stream {
    /// The directory: what the descriptor stands for, as the present user has it.
    fn capability(&self) -> Result<Capability, Error> {
        table::find(self.fd).ok_or(refusal(Errno::BADF))?.capability()
    }

    fn listing(&self) -> MutexGuard<'_, Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listing {
    /// The next entry; `None` at the end.
    fn next(&mut self, stream: &Stream) -> Result<Option<DirEntry>, Error> {
        if self.ahead.is_empty() {
            self.ahead = match client()?.read_open_dir(&stream.capability()?, self.position) {
                // The directory was removed: as in the C library, its stream has ended.
                Err(error) if error.errno() == Errno::NOENT => return Ok(None),
                entries => entries?.into(),
            };
        }
        let entry = self.ahead.pop_front();
        if let Some(entry) = &entry {
            self.position = entry.cookie;
        }
        Ok(entry)
    }

    fn seek(&mut self, position: u64) {
        self.position = position;
        self.ahead.clear();
    }
}

fn fill(entry: &DirEntry, out: &mut dirent64) {
    out.d_ino = entry.ino.0;
    out.d_off = entry.cookie as i64;
    out.d_type = entry.kind.code();
    let name = entry.name.iter().chain(&[0]);
    out.d_name.iter_mut().zip(name).for_each(|(into, byte)| *into = *byte as _);
    let len = std::mem::offset_of!(dirent64, d_name) + entry.name.len() + 1;
    out.d_reclen = len.next_multiple_of(8) as u16;
}

fn next_entry(stream: &Stream) -> *mut dirent64 {
    let mut listing = stream.listing();
    match listing.next(stream) {
        Ok(Some(entry)) => {
            fill(&entry, &mut listing.current);
            &raw mut listing.current
        }
        // The end is told from an error by an untouched errno.
        Ok(None) => std::ptr::null_mut(),
        Err(error) => returned(Err(error)),
    }
}

/// `readdir_r` returns its error instead of setting errno.
fn next_entry_into(stream: &Stream, entry: Out<dirent64>, result: Out<*mut dirent64>) -> c_int {
    let mut listing = stream.listing();
    let stored = listing.next(stream).and_then(|next| match next {
        Some(next) => {
            // SAFETY: zeros are a value of this structure of numbers.
            let mut filled: dirent64 = unsafe { std::mem::zeroed() };
            fill(&next, &mut filled);
            entry.put(filled)?;
            result.put(entry.as_ptr())
        }
        None => result.put(std::ptr::null_mut()),
    });
    stored.map_or_else(|error| error.errno().raw_os_error(), |()| 0)
}

/// Opens the directory `path` below `at` for listing.
fn open_stream(client: &'static Client, at: Capability, path: &[u8]) -> Result<*mut DIR, Error> {
    let fd = open::open_ours(client, at, path, OPEN_FLAGS, 0)?;
    Ok(stream(fd))
}

pub fn opendir(path: CPath) -> *mut DIR {
    by_path(libc::AT_FDCWD, path, open_stream, |_, path| real::opendir(path))
}

pub fn fdopendir(fd: c_int) -> *mut DIR {
    by_fd(
        fd,
        |_, file_ref| {
            // With a reference from now on.
            file_ref.file()?;
            if file_ref.is_directory() { Ok(stream(fd)) } else { Err(refusal(Errno::NOTDIR)) }
        },
        || real::fdopendir(fd),
    )
}

pub fn closedir(dir: *mut DIR) -> c_int {
    let Some(stream) = ours(dir) else { return real::closedir(dir) };
    let fd = stream.fd;
    // SAFETY: the stream was made by `stream` and the program gives it up.
    let mut stream = unsafe { Box::from_raw(dir.cast::<Stream>()) };
    stream.magic = 0;
    drop(stream);
    descriptors::close(fd)
}

pub fn readdir(dir: *mut DIR) -> *mut dirent64 {
    match ours(dir) {
        Some(stream) => next_entry(stream),
        None => real::readdir(dir),
    }
}

pub fn readdir_r(dir: *mut DIR, entry: Out<dirent64>, result: Out<*mut dirent64>) -> c_int {
    match ours(dir) {
        Some(stream) => next_entry_into(stream, entry, result),
        None => real::readdir_r(dir, entry, result),
    }
}

pub fn telldir(dir: *mut DIR) -> c_long {
    match ours(dir) {
        Some(stream) => stream.listing().position as c_long,
        None => real::telldir(dir),
    }
}

pub fn seekdir(dir: *mut DIR, position: c_long) {
    match ours(dir) {
        Some(stream) => stream.listing().seek(position as u64),
        None => real::seekdir(dir, position),
    }
}

pub fn rewinddir(dir: *mut DIR) {
    match ours(dir) {
        Some(stream) => stream.listing().seek(0),
        None => real::rewinddir(dir),
    }
}

pub fn dirfd(dir: *mut DIR) -> c_int {
    match ours(dir) {
        Some(stream) => stream.fd,
        None => real::dirfd(dir),
    }
}

/// Bytes of a record of the kernel's before its name.
const RECORD_HEAD_LEN: usize = 19;

/// Fills `buffer` with records from where the open file is: its offset, as on Linux.
fn read_records(client: &Client, file_ref: &FileRef, buffer: &mut [u8]) -> Result<isize, Error> {
    if !file_ref.is_directory() {
        return Err(refusal(Errno::NOTDIR));
    }
    let mapping = file_ref.mapping()?;
    let _lock = mapping.position().lock();
    let entries = client.read_open_dir(&file_ref.file()?.capability, mapping.offset().load(Ordering::Relaxed))?;
    let is_at_end = entries.is_empty();
    let mut filled = 0;
    for entry in entries {
        let len = (RECORD_HEAD_LEN + entry.name.len() + 1).next_multiple_of(8);
        let Some(record) = buffer.get_mut(filled..filled + len) else { break };
        record.fill(0);
        record[..8].copy_from_slice(&entry.ino.0.to_ne_bytes());
        record[8..16].copy_from_slice(&entry.cookie.to_ne_bytes());
        record[16..18].copy_from_slice(&(len as u16).to_ne_bytes());
        record[18] = entry.kind.code();
        record[RECORD_HEAD_LEN..RECORD_HEAD_LEN + entry.name.len()].copy_from_slice(&entry.name);
        filled += len;
        mapping.offset().store(entry.cookie, Ordering::Relaxed);
    }
    // A buffer in which there is room for not even one record is not the end of the directory.
    if filled == 0 && !is_at_end { Err(refusal(Errno::INVAL)) } else { Ok(filled as isize) }
}

pub fn getdents64(fd: c_int, buffer: Buffer, len: usize) -> isize {
    by_fd(
        fd,
        |client, file_ref| read_records(client, file_ref, buffer.bytes(len).ok_or(refusal(Errno::FAULT))?),
        || real::getdents64(fd, buffer, len),
    )
}

pub fn getdirentries(fd: c_int, buffer: Buffer, len: usize, base: Out<i64>) -> isize {
    let serve = |client: &'static Client, file_ref: &FileRef| {
        base.put(file_ref.mapping()?.offset().load(Ordering::Relaxed) as i64)?;
        read_records(client, file_ref, buffer.bytes(len).ok_or(refusal(Errno::FAULT))?)
    };
    by_fd(fd, serve, || real::getdirentries(fd, buffer, len, base))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_client::{FileKind, Ino};

    #[test]
    fn the_longest_name_fits_an_entry() {
        // SAFETY: zeros are a value of this structure of numbers.
        let mut out: dirent64 = unsafe { std::mem::zeroed() };
        let entry = DirEntry { ino: Ino(5), cookie: 77, kind: FileKind::Symlink, name: vec![b'n'; 255] };
        fill(&entry, &mut out);
        assert_eq!((out.d_ino, out.d_off, out.d_type, out.d_reclen), (5, 77, libc::DT_LNK, 280));
        assert!(out.d_name[..255].iter().all(|c| *c == b'n' as libc::c_char) && out.d_name[255] == 0);
    }
}
