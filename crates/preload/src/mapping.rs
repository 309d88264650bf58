//! Mappings of files: private and read-only shared ones are copies, writable shared ones are refused with ENODEV.
//!
//! A copy is taken when the mapping is made; what others write afterwards does not appear in it, which POSIX leaves open
//! for private mappings and `docs/SEMANTICS.md` says of shared ones. A read-only shared mapping
//! must not become writable later, for its changes would reach nobody: `mprotect` refuses that with EACCES, as the
//! kernel does for a file that is open for reading only.

use crate::calls::real;
use crate::description::Held;
use crate::foreign::Opaque;
use crate::hook::{self, fail};
use crate::serve::{by_fd, refusal};
use crate::spin::Spin;
use isonomia_client::{Client, Error, FileKind};
use libc::{off64_t, size_t};
use rustix::io::Errno;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes read at a time.
const PIECE_LEN: usize = 1 << 20;
/// Read-only shared copies that are remembered; beyond that none are made.
const COPIES_MAX: usize = 4_096;

/// Where read-only shared copies lie: first address and the one after the last.
static COPIES: Spin<Vec<(usize, usize)>> = Spin::new(Vec::new());
static COPY_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The lock of the list, for [`crate::process`].
pub fn lock_before_fork() {
    COPIES.acquire();
}

/// See [`lock_before_fork`].
pub fn unlock_after_fork() {
    COPIES.release();
}

/// What a program asks `mmap` for.
#[derive(Clone, Copy)]
struct Wanted {
    address: Opaque,
    len: usize,
    protection: c_int,
    flags: c_int,
    offset: off64_t,
}

/// Makes a copy of the file where the program wants its mapping.
fn map_copy(client: &Client, held: &Held, wanted: Wanted, real: impl Fn(Wanted) -> Opaque) -> Result<Opaque, Error> {
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
    let file = held.file()?;
    if file.attr.kind() != FileKind::Regular {
        return Err(refusal(Errno::NODEV));
    }
    if held.flags() & libc::O_ACCMODE == libc::O_WRONLY {
        return Err(refusal(Errno::ACCESS));
    }
    if is_shared && protection & libc::PROT_WRITE != 0 {
        return Err(refusal(Errno::NODEV));
    }
    if is_shared && COPY_COUNT.load(Ordering::Relaxed) >= COPIES_MAX {
        return Err(refusal(Errno::NOMEM));
    }
    let anonymous = flags & !libc::MAP_SHARED_VALIDATE | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let memory = real(Wanted { protection: libc::PROT_READ | libc::PROT_WRITE, flags: anonymous, offset: 0, ..wanted });
    if memory.0 == libc::MAP_FAILED {
        return Err(refusal(Errno::from_raw_os_error(hook::errno_number())));
    }
    // SAFETY: the mapping was just made, writable, of this length; the program does not know it yet.
    let bytes = unsafe { std::slice::from_raw_parts_mut(memory.0.cast::<u8>(), len) };
    if let Err(error) = fill(client, held, bytes, offset as u64) {
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::munmap(memory.0, len) };
        return Err(error);
    }
    // SAFETY: as above; the bytes are not touched any more.
    let protected = unsafe { libc::syscall(libc::SYS_mprotect, memory.0, len, protection) };
    if protected != 0 {
        return Err(refusal(Errno::from_raw_os_error(hook::errno_number())));
    }
    if is_shared {
        remember(memory.0 as usize, len);
    }
    Ok(memory)
}

/// Reads the file into `bytes`; what lies behind its end stays zero.
fn fill(client: &Client, held: &Held, bytes: &mut [u8], offset: u64) -> Result<(), Error> {
    let file = held.file()?;
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

fn remember(start: usize, len: usize) {
    let mut copies = COPIES.lock();
    copies.push((start, start + len.next_multiple_of(rustix::param::page_size())));
    COPY_COUNT.store(copies.len(), Ordering::Relaxed);
}

/// Takes what lies from `start` on out of the list.
fn forget(start: usize, len: usize) {
    let end = start.saturating_add(len.next_multiple_of(rustix::param::page_size()));
    let mut copies = COPIES.lock();
    let mut rest = Vec::with_capacity(copies.len() + 1);
    for (from, to) in copies.drain(..) {
        rest.extend([(from, to.min(start)), (from.max(end), to)].into_iter().filter(|(from, to)| from < to));
    }
    *copies = rest;
    COPY_COUNT.store(copies.len(), Ordering::Relaxed);
}

fn meets_a_copy(start: usize, len: usize) -> bool {
    let end = start.saturating_add(len);
    COPIES.lock().iter().any(|(from, to)| *from < end && start < *to)
}

pub fn mmap(address: Opaque, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off64_t) -> Opaque {
    let wanted = Wanted { address, len, protection, flags, offset };
    if flags & libc::MAP_FIXED != 0 && COPY_COUNT.load(Ordering::Relaxed) > 0 {
        forget(address.0 as usize, len);
    }
    if flags & libc::MAP_ANONYMOUS != 0 {
        return real::mmap(address, len, protection, flags, fd, offset);
    }
    let made = |w: Wanted| real::mmap(w.address, w.len, w.protection, w.flags, -1, w.offset);
    by_fd(
        fd,
        |client, held| map_copy(client, held, wanted, made),
        || real::mmap(address, len, protection, flags, fd, offset),
    )
}

pub fn munmap(address: *mut c_void, len: size_t) -> c_int {
    if COPY_COUNT.load(Ordering::Relaxed) > 0 {
        forget(address as usize, len);
    }
    real::munmap(address, len)
}

pub fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
    let is_refused = protection & libc::PROT_WRITE != 0
        && COPY_COUNT.load(Ordering::Relaxed) > 0
        && meets_a_copy(address as usize, len);
    if is_refused { fail(Errno::ACCESS) } else { real::mprotect(address, len, protection) }
}

impl hook::Failure for Opaque {
    const FAILED: Self = Self(libc::MAP_FAILED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_remembered_until_they_are_unmapped() {
        let page = rustix::param::page_size();
        remember(16 * page, 4 * page - 1);
        assert!(meets_a_copy(19 * page, 1) && !meets_a_copy(20 * page, 1) && !meets_a_copy(15 * page, page));
        forget(17 * page, 1);
        assert!(meets_a_copy(16 * page, 1) && !meets_a_copy(17 * page, page) && meets_a_copy(18 * page, 1));
        assert_eq!(COPY_COUNT.load(Ordering::Relaxed), 2);
        forget(0, usize::MAX - page);
        assert_eq!(COPY_COUNT.load(Ordering::Relaxed), 0);
    }
}
