//! Mappings of files: private ones are copies; shared ones map memory that the server keeps for the file, for all processes
//! of its host, or, where there is no such memory and the program only reads, are copies as well.
//!
//! A copy is taken when the mapping is made; what others write afterwards does not appear in it, which POSIX leaves open
//! for private mappings and `docs/SEMANTICS.md` says of shared ones. A shared copy must not become writable later, for its
//! changes would reach nobody: `mprotect` refuses that with EACCES, as the kernel does for a file that is open for reading
//! only. Nor must it grow.
//!
//! Memory of the server's is mapped as any file is: the kernel does with it what the program asks for, in all processes,
//! across forks. What is left to do here is `msync`: only the server can bring what was stored to the file.

use crate::calls::real;
use crate::connection;
use crate::description::FileRef;
use crate::foreign::Opaque;
use crate::hook::{self, fail, returned};
use crate::serve::{by_fd, refusal};
use crate::spin::Spin;
use isonomia_client::{Client, Error, FileKind, OpenFile, Unsynced};
use libc::{off64_t, size_t};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes read at a time.
const PIECE_LEN: usize = 1 << 20;
/// Shared mappings that are remembered; beyond that none are made.
const AREAS_MAX: usize = 4_096;

/// A shared mapping of a file of ours.
#[derive(Clone)]
struct Area {
    /// First address.
    start: usize,
    /// The one after the last.
    end: usize,
    what: What,
}

#[derive(Clone)]
enum What {
    Copy,
    /// Memory of the server's that stands for this file, from this offset on.
    Memory(Arc<OpenFile>, u64),
}

static AREAS: Spin<Vec<Area>> = Spin::new(Vec::new());
static AREA_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The lock of the list, for [`crate::process`].
pub fn lock_before_fork() {
    AREAS.acquire();
}

/// See [`lock_before_fork`].
pub fn unlock_after_fork() {
    AREAS.release();
}

/// What a program asks `mmap` for.
#[derive(Clone, Copy)]
struct Wanted {
    address: Opaque,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
}

/// Maps the file where the program wants it.
fn map(client: &Client, file_ref: &FileRef, wanted: Wanted, real: impl Fn(Wanted) -> Opaque) -> Result<Opaque, Error> {
    let Wanted { len, protection, flags, offset, .. } = wanted;
    let sharing = flags & (libc::MAP_SHARED | libc::MAP_PRIVATE);
    let is_shared = match sharing {
        libc::MAP_PRIVATE => false,
        // Both bits are MAP_SHARED_VALIDATE.
        0 => return Err(refusal(Errno::INVAL)),
        _ => true,
    };
    let page_len = rustix::param::page_size() as i64;
    if len == 0 || offset < 0 || offset % page_len != 0 {
        return Err(refusal(Errno::INVAL));
    }
    let file = file_ref.file()?;
    if file.attr.kind() != FileKind::Regular {
        return Err(refusal(Errno::NODEV));
    }
    let access = file_ref.flags() & libc::O_ACCMODE;
    if access == libc::O_WRONLY {
        return Err(refusal(Errno::ACCESS));
    }
    if !is_shared {
        return map_copy(client, file, wanted, real);
    }
    // What cannot even be read is to become something else later.
    let stores = protection & libc::PROT_WRITE != 0 || protection == libc::PROT_NONE && access == libc::O_RDWR;
    if stores && access == libc::O_RDONLY {
        return Err(refusal(Errno::ACCESS));
    }
    if AREA_COUNT.load(Ordering::Relaxed) >= AREAS_MAX {
        return Err(refusal(Errno::NOMEM));
    }
    // The directory of the host's memory may be one that nothing is executed from.
    let is_program = protection & libc::PROT_EXEC != 0 && !stores;
    let backed = OpenFile { unsynced: Unsynced::default(), ..file.clone() };
    let mapped =
        if is_program { Err(refusal(Errno::NODEV)) } else { map_memory(client, &backed, wanted, stores, &real) };
    let may_copy = |error: &Error| {
        // A program that may write, and on whose host there is memory for the file but not enough, would read what is old.
        !stores && (access == libc::O_RDONLY || error.errno() == Errno::NODEV)
    };
    let (memory, what) = match mapped {
        Err(error) if may_copy(&error) => (map_copy(client, file, wanted, real)?, What::Copy),
        mapped => {
            // An `fsync` of the file is for what is stored as well.
            file.unsynced.note_all(&backed.unsynced);
            (mapped?, What::Memory(Arc::new(backed), offset as u64))
        }
    };
    remember(Area { start: memory.0 as usize, end: end_of(memory.0 as usize, len), what });
    Ok(memory)
}

/// Maps the memory that stands for the file, in all processes of the server's host.
fn map_memory(
    client: &Client,
    file: &OpenFile,
    wanted: Wanted,
    stores: bool,
    real: impl Fn(Wanted) -> Opaque,
) -> Result<Opaque, Error> {
    let end = (wanted.offset as u64).saturating_add(wanted.len as u64);
    let descriptor = client.map_file(file, end, stores)?;
    let mapped = real(Wanted { fd: rustix::fd::AsFd::as_fd(&descriptor).as_raw_fd(), ..wanted });
    if mapped.0 == libc::MAP_FAILED { Err(refusal(last_errno())) } else { Ok(mapped) }
}

fn last_errno() -> Errno {
    Errno::from_raw_os_error(hook::errno_number())
}

/// Makes a copy of the file where the program wants its mapping.
fn map_copy(
    client: &Client,
    file: &OpenFile,
    wanted: Wanted,
    real: impl Fn(Wanted) -> Opaque,
) -> Result<Opaque, Error> {
    let Wanted { len, protection, flags, offset, .. } = wanted;
    let anonymous = flags & !libc::MAP_SHARED_VALIDATE | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let memory = real(Wanted { protection: writable, flags: anonymous, fd: -1, offset: 0, ..wanted });
    if memory.0 == libc::MAP_FAILED {
        return Err(refusal(last_errno()));
    }
    // SAFETY: the mapping was just made, writable, of this length; the program does not know it yet.
    let bytes = unsafe { std::slice::from_raw_parts_mut(memory.0.cast::<u8>(), len) };
    if let Err(error) = fill(client, file, bytes, offset as u64) {
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::munmap(memory.0, len) };
        return Err(error);
    }
    // SAFETY: as above; the bytes are not touched any more.
    let protected = unsafe { libc::syscall(libc::SYS_mprotect, memory.0, len, protection) };
    if protected != 0 {
        return Err(refusal(last_errno()));
    }
    Ok(memory)
}

/// Reads the file into `bytes`; what lies behind its end stays zero.
fn fill(client: &Client, file: &OpenFile, bytes: &mut [u8], offset: u64) -> Result<(), Error> {
    let mut at = offset;
    for piece in bytes.chunks_mut(PIECE_LEN) {
        let read = client.read_at(file, at, piece)?;
        if read < piece.len() {
            return Ok(());
        }
        at += read as u64;
    }
    Ok(())
}

fn end_of(start: usize, len: usize) -> usize {
    start.saturating_add(len.next_multiple_of(rustix::param::page_size()))
}

impl Area {
    /// The part of it from `start` to `end`, if there is any.
    fn part(&self, start: usize, end: usize) -> Option<Self> {
        let (start, end) = (self.start.max(start), self.end.min(end));
        let what = match &self.what {
            What::Copy => What::Copy,
            What::Memory(file, offset) => What::Memory(file.clone(), offset + start.saturating_sub(self.start) as u64),
        };
        (start < end).then_some(Self { start, end, what })
    }
}

fn remember(area: Area) {
    let mut areas = AREAS.lock();
    areas.push(area);
    AREA_COUNT.store(areas.len(), Ordering::Relaxed);
}

/// Takes what lies from `start` on out of the list; gives it.
fn forget(start: usize, len: usize) -> Vec<Area> {
    let end = end_of(start, len);
    let mut areas = AREAS.lock();
    let mut rest = Vec::with_capacity(areas.len() + 1);
    let mut forgotten = Vec::new();
    for area in areas.drain(..) {
        forgotten.extend(area.part(start, end));
        rest.extend([area.part(0, start), area.part(end, usize::MAX)].into_iter().flatten());
    }
    *areas = rest;
    AREA_COUNT.store(areas.len(), Ordering::Relaxed);
    forgotten
}

/// The areas that lie, in whole or in part, from `start` on.
fn meet(start: usize, len: usize) -> Vec<Area> {
    if AREA_COUNT.load(Ordering::Relaxed) == 0 {
        return Vec::new();
    }
    let end = end_of(start, len);
    AREAS.lock().iter().filter(|area| area.start < end && start < area.end).cloned().collect()
}

fn is_copy(area: &Area) -> bool {
    matches!(area.what, What::Copy)
}

pub fn mmap(address: Opaque, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off64_t) -> Opaque {
    let wanted = Wanted { address, len, protection, flags, fd, offset };
    if flags & libc::MAP_FIXED != 0 && AREA_COUNT.load(Ordering::Relaxed) > 0 {
        forget(address.0 as usize, len);
    }
    let made = |w: Wanted| real::mmap(w.address, w.len, w.protection, w.flags, w.fd, w.offset);
    if flags & libc::MAP_ANONYMOUS != 0 {
        return made(wanted);
    }
    by_fd(fd, |client, file_ref| map(client, file_ref, wanted, made), || made(wanted))
}

pub fn munmap(address: *mut c_void, len: size_t) -> c_int {
    if AREA_COUNT.load(Ordering::Relaxed) > 0 {
        forget(address as usize, len);
    }
    real::munmap(address, len)
}

pub fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
    let is_refused = protection & libc::PROT_WRITE != 0 && meet(address as usize, len).iter().any(is_copy);
    if is_refused { fail(Errno::ACCESS) } else { real::mprotect(address, len, protection) }
}

pub fn mremap(address: *mut c_void, len: size_t, new_len: size_t, flags: c_int, new_address: Opaque) -> Opaque {
    let areas = if new_len > len { meet(address as usize, len.max(1)) } else { Vec::new() };
    // What a copy would grow by is not the file's, and the memory reaches as far as somebody asked for.
    let grown = areas.iter().try_for_each(|area| match &area.what {
        What::Copy => Err(refusal(Errno::NOMEM)),
        What::Memory(file, offset) => {
            let end = offset + (address as usize).saturating_add(new_len).saturating_sub(area.start) as u64;
            // The mapping keeps the access that it has.
            connection::client()?.map_file(file, end, false).map(drop)
        }
    });
    if let Err(error) = grown {
        return returned(Err(error));
    }
    let moved = real::mremap(address, len, new_len, flags, new_address);
    if moved.0 != libc::MAP_FAILED && AREA_COUNT.load(Ordering::Relaxed) > 0 {
        let to = moved.0 as usize;
        let before = forget(address as usize, len);
        if to != address as usize {
            forget(to, new_len);
        }
        let new_end = end_of(to, new_len);
        for Area { start, end, what } in before {
            let is_last = end == end_of(address as usize, len);
            let (start, end) = (start - address as usize + to, end - address as usize + to);
            let area = Area { start, end: if is_last { new_end } else { end.min(new_end) }, what };
            if area.start < area.end {
                remember(area);
            }
        }
    }
    moved
}

pub fn msync(address: *mut c_void, len: size_t, flags: c_int) -> c_int {
    let checked = real::msync(address, len, flags);
    if checked != 0 || flags & libc::MS_SYNC == 0 {
        return checked;
    }
    let mut files: Vec<Arc<OpenFile>> = Vec::new();
    for area in meet(address as usize, len) {
        if let What::Memory(file, _) = area.what
            && !files.iter().any(|other| other.capability.ino == file.capability.ino)
        {
            files.push(file);
        }
    }
    returned(files.iter().try_for_each(|file| connection::client()?.sync_mapped(file)).map(|()| 0))
}

impl hook::Failure for Opaque {
    const FAILED: Self = Self(libc::MAP_FAILED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_remembered_until_they_are_unmapped() {
        let page = rustix::param::page_size();
        let meets = |start, len| !meet(start, len).is_empty();
        remember(Area { start: 16 * page, end: end_of(16 * page, 4 * page - 1), what: What::Copy });
        assert!(meets(19 * page, 1) && !meets(20 * page, 1) && !meets(15 * page, page));
        assert_eq!(forget(17 * page, 1).len(), 1);
        assert!(meets(16 * page, 1) && !meets(17 * page, page) && meets(18 * page, 1));
        assert_eq!(AREA_COUNT.load(Ordering::Relaxed), 2);
        forget(0, usize::MAX - page);
        assert_eq!(AREA_COUNT.load(Ordering::Relaxed), 0);
    }
}
