//! `dlopen` of libraries that lie under the prefix.
//!
//! The kernel cannot map a file of ours, so the library is loaded from a copy in a memory file, by its name in
//! `/proc/self/fd`. The C library knows what is loaded by that name: the copy stays open, out of the program's reach, and
//! the same file gets the same name again. A file that has changed since is another library. What it needs of libraries in
//! directories of ours, such as those beside it (`$ORIGIN`), is loaded before: the C library then finds them by the names
//! that they give themselves. They stay.
//!
//! The C library also looks at *who* calls, for the directories that the caller was linked with. So the hook does not call
//! it but goes on to it with another path, as if it had never been there.

use crate::calls::real;
use crate::foreign::{CPath, malloc_string};
use crate::placeholder::{Memory, proc_path};
use crate::route::split_last;
use crate::serve::{Routed, by_path, refusal, route};
use crate::spin::Spin;
use crate::{connection, elf, image};
use isonomia_client::{Attr, Capability, Client, Error, Timestamp};
use object::ReadCache;
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Libraries of one process, ever.
const LIBRARIES_MAX: usize = 1024;
/// Copies have numbers from here on if the limit allows, out of the way of programs that choose numbers.
const DESCRIPTOR_MIN: c_int = 500;
/// Libraries that need libraries that need libraries.
const DEPTH_MAX: usize = 16;

static COPIES: Spin<Vec<Library>> = Spin::new(Vec::new());
static COPY_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The path with which the C library went on last, which it has copied since. Plain data without a destructor.
    static PATH: Cell<*mut c_char> = const { Cell::new(std::ptr::null_mut()) };
}

/// Where a call goes on: what two registers contain when the hook's function returns.
#[repr(C)]
pub struct Onward {
    path: *const c_char,
    function: *mut c_void,
}

/// A library that was copied.
struct Library {
    ino: u64,
    changed: Timestamp,
    copy: RawFd,
}

/// The lock of the list, for [`crate::process`].
pub fn lock_before_fork() {
    COPIES.acquire();
}

/// See [`lock_before_fork`].
pub fn unlock_after_fork() {
    COPIES.release();
}

/// Whether `fd` is a copy's.
#[inline]
pub fn owns_descriptor(fd: c_int) -> bool {
    COPY_COUNT.load(Ordering::Relaxed) > 0 && COPIES.lock().iter().any(|library| library.copy == fd)
}

/// The descriptors of all copies.
pub fn descriptors() -> Vec<c_int> {
    COPIES.lock().iter().map(|library| library.copy).collect()
}

fn known(attr: &Attr) -> Option<RawFd> {
    let copies = COPIES.lock();
    copies.iter().find(|library| library.ino == attr.ino && library.changed == attr.ctime).map(|library| library.copy)
}

/// The descriptor of the copy of the library `path` below `at`, and whether it was there; made if need be, unless it must
/// be there.
fn copy(client: &'static Client, at: Capability, path: &[u8], must_be_there: bool) -> Result<(RawFd, bool), Error> {
    let attr = client.get_attr(at, path, true)?;
    if let Some(copy) = known(&attr) {
        return Ok((copy, true));
    }
    if must_be_there || COPY_COUNT.load(Ordering::Relaxed) >= LIBRARIES_MAX {
        return Err(refusal(Errno::NOENT));
    }
    let memory = image::library(client, at, path)?;
    let fresh = descriptor(&memory).map_err(refusal)?;
    let mut copies = COPIES.lock();
    copies.push(Library { ino: attr.ino, changed: attr.ctime, copy: fresh });
    COPY_COUNT.store(copies.len(), Ordering::Relaxed);
    Ok((fresh, false))
}

/// Loads those of the libraries that `copy`, a copy of `path`, needs which lie under the prefix.
fn load_needed(path: &[u8], copy: RawFd, depth: usize) {
    // SAFETY: copies stay open.
    let Ok(file) = unsafe { BorrowedFd::borrow_raw(copy) }.try_clone_to_owned() else { return };
    let data = ReadCache::new(File::from(file));
    let Some(needs) = elf::needs(&data).filter(|_| depth < DEPTH_MAX) else { return };
    let (origin, _) = split_last(path);
    for name in needs.libraries.iter().filter(|name| !name.contains(&b'/')) {
        let candidates =
            needs.directories.iter().map(|directory| [&at_origin(directory, origin), &b"/"[..], name].concat());
        for candidate in candidates {
            if let Some((needed, was_there)) = copy_of_ours(&candidate) {
                if !was_there {
                    load_needed(&candidate, needed, depth + 1);
                    load(needed);
                }
                break;
            }
        }
    }
}

fn copy_of_ours(path: &[u8]) -> Option<(RawFd, bool)> {
    match route(libc::AT_FDCWD, path) {
        Ok(Routed::Ours { at, path }) => copy(connection::client().ok()?, at, &path, false).ok(),
        _ => None,
    }
}

/// `directory` with the path of the library in it.
fn at_origin(directory: &[u8], origin: &[u8]) -> Vec<u8> {
    let origin = if origin.is_empty() { &b"."[..] } else { origin };
    for name in [&b"$ORIGIN"[..], b"${ORIGIN}"] {
        if let Some(rest) = directory.strip_prefix(name) {
            return [origin, rest].concat();
        }
    }
    directory.to_vec()
}

/// Has the C library load a copy. What it cannot load it will miss, and say so.
fn load(copy: RawFd) {
    let function = real::dlopen();
    if !function.is_null() {
        // SAFETY: the symbol of this name has this signature in the C library's interface.
        let dlopen: extern "C" fn(*const c_char, c_int) -> *mut c_void = unsafe { std::mem::transmute(function) };
        dlopen(proc_path(copy).as_c_str().as_ptr(), libc::RTLD_LAZY);
    }
}

fn descriptor(memory: &Memory) -> Result<RawFd, Errno> {
    let made = rustix::io::fcntl_dupfd_cloexec(memory.fd(), DESCRIPTOR_MIN);
    made.or_else(|_| rustix::io::fcntl_dupfd_cloexec(memory.fd(), 3)).map(IntoRawFd::into_raw_fd)
}

/// Keeps a path for the C library.
fn keep(path: &[u8]) -> *mut c_char {
    let kept = malloc_string(path);
    // SAFETY: from `malloc`, and of no use to anybody any more.
    unsafe { libc::free(PATH.replace(kept).cast()) };
    kept
}

extern "C" fn no_such_function() -> *mut c_void {
    std::ptr::null_mut()
}

pub fn dlopen(path: CPath, flags: c_int) -> Onward {
    let given = path.as_ptr();
    // Only a path with a slash is one, to the C library.
    let other = match path.bytes() {
        Some(text) if text.contains(&b'/') => by_path(
            libc::AT_FDCWD,
            path,
            |client, at, path| {
                let (copy, was_there) = copy(client, at, path, flags & libc::RTLD_NOLOAD != 0)?;
                if !was_there {
                    load_needed(text, copy, 0);
                }
                Ok(keep(proc_path(copy).as_c_str().to_bytes()))
            },
            |_, theirs| match theirs.bytes() {
                Some(text) if theirs.as_ptr() != given => keep(text),
                _ => std::ptr::null_mut(),
            },
        ),
        _ => std::ptr::null_mut(),
    };
    // Where no copy could be made the C library is given the path as it is. It finds nothing there, and its error message has
    // the name that the program knows.
    let path = if other.is_null() { given } else { other.cast_const() };
    let function = real::dlopen();
    let function = if function.is_null() { no_such_function as *mut c_void } else { function };
    Onward { path, function }
}
