//! The working directory, when it is under the prefix.
//!
//! The kernel cannot be there, so it is left in a directory of `/proc` where nothing can be created and hardly
//! anything has a name: a relative path that this library misses fails instead of meaning another file. Programs
//! started from here learn of the directory by an inherited descriptor of a memory file that contains its inode, with the
//! proof that this user came there.

use crate::calls::real;
use crate::connection::client;
use crate::environment;
use crate::foreign::{CPath, malloc_string};
use crate::hook::{fail, returned};
use crate::placeholder::{self, Memory};
use crate::process;
use crate::serve::{by_fd, by_path, refusal};
use isonomia_client::{Capability, Client, Error, FileKind};
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering, fence};

/// Name of the memory file that contains the capability.
const NAME: &CStr = c"isonomia-cwd";
/// How `/proc/self/fd/N` shows it.
const LINK: &[u8] = b"/memfd:isonomia-cwd";
/// Where the kernel's working directory is meanwhile.
pub const NOWHERE: &CStr = c"/proc/self/fdinfo";
/// Descriptors of this library start here if the limit allows, out of the way of programs that choose numbers.
const DESCRIPTOR_MIN: c_int = 500;

/// Bytes of the memory file: the capability, and when the file was made.
const CONTENT_LEN: usize = Capability::LEN + size_of::<u64>();
/// Capabilities of this many changes of the directory are kept.
const KEPT: usize = 64;
const WORDS: usize = Capability::LEN / size_of::<u64>();

/// When what was found at the start was made.
static MADE_AT: AtomicU64 = AtomicU64::new(0);
/// The number of the change that led to it, 0 for a working directory of the kernel's.
static CURRENT: AtomicU64 = AtomicU64::new(UNKNOWN);
/// Changes so far, begun at least.
static CHANGES: AtomicU64 = AtomicU64::new(0);
/// The capabilities of the latest changes, each in an entry of its own, so that nobody waits who reads one: it may be a
/// signal handler that interrupts a change. What is read while so many others are made is read again.
static CAPABILITIES: [[AtomicU64; WORDS]; KEPT] = [const { [const { AtomicU64::new(0) }; WORDS] }; KEPT];
/// The value of [`CURRENT`] until it is known whether the program was started in a directory of ours.
const UNKNOWN: u64 = u64::MAX;
/// The descriptor that tells the next program.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// The working directory if it is ours.
#[inline]
pub fn current() -> Option<Capability> {
    if CURRENT.load(Ordering::Relaxed) == UNKNOWN {
        at_start();
    }
    loop {
        let change = CURRENT.load(Ordering::Acquire);
        if change == 0 || change == UNKNOWN {
            return None;
        }
        let words = CAPABILITIES[change as usize % KEPT].each_ref().map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if CURRENT.load(Ordering::Relaxed) == change {
            let mut bytes = [0; Capability::LEN];
            bytes.as_chunks_mut().0.copy_from_slice(&words.map(u64::to_ne_bytes));
            return Some(Capability::from_bytes(bytes));
        }
    }
}

/// A library may be initialized, and use a relative path, before this one.
#[cold]
fn at_start() {
    process::adopt_inherited();
}

fn set_current(directory: Capability) {
    let change = CHANGES.fetch_add(1, Ordering::Relaxed) + 1;
    let bytes = directory.to_bytes();
    let (words, _) = bytes.as_chunks();
    for (entry, word) in CAPABILITIES[change as usize % KEPT].iter().zip(words) {
        entry.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
    CURRENT.store(change, Ordering::Release);
}

/// The descriptor that tells the next program, if there is one.
#[inline]
pub fn descriptor() -> Option<c_int> {
    Some(DESCRIPTOR.load(Ordering::Relaxed)).filter(|fd| *fd >= 0)
}

/// Looks whether `fd` tells of a working directory. Several may: the one that was made last counts.
pub fn found(fd: c_int) -> bool {
    if !placeholder::is_link_to(fd, LINK) {
        return false;
    }
    let mut content = [0; CONTENT_LEN];
    // SAFETY: an open descriptor that this library made in a program before.
    let memory = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
    if rustix::io::pread(memory, &mut content, 0) == Ok(CONTENT_LEN) {
        let capability = Capability::from_bytes(std::array::from_fn(|i| content[i]));
        let made_at = u64::from_le_bytes(std::array::from_fn(|i| content[Capability::LEN + i]));
        if made_at >= MADE_AT.load(Ordering::Relaxed) {
            MADE_AT.store(made_at, Ordering::Relaxed);
            set_current(capability);
            close(DESCRIPTOR.swap(fd, Ordering::Relaxed));
            return true;
        }
    }
    close(fd);
    true
}

/// Takes over the working directory that [`found`] has seen, unless the kernel's working directory says that this program
/// was started somewhere else.
pub fn adopt() {
    // Nothing was found.
    let _ = CURRENT.compare_exchange(UNKNOWN, 0, Ordering::Relaxed, Ordering::Relaxed);
    if current().is_some() && !is_nowhere() {
        forget();
    }
}

/// Whether the kernel is where [`enter`] leaves it; the directory may be that of another process, perhaps gone.
fn is_nowhere() -> bool {
    let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 64];
    match rustix::fs::readlinkat_raw(rustix::fs::CWD, c"/proc/self/cwd", &mut buffer) {
        Ok((text, _)) => {
            let text = text.strip_suffix(b" (deleted)").unwrap_or(text);
            text.starts_with(b"/proc/") && text.ends_with(b"/fdinfo")
        }
        Err(_) => false,
    }
}

/// A descriptor that tells a program started with it that it is in `directory`.
pub fn message(directory: Capability) -> Result<c_int, Error> {
    let memory = Memory::create(NAME, CONTENT_LEN).map_err(refusal)?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let made_at = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let content = [&directory.to_bytes()[..], &made_at.to_le_bytes()].concat();
    rustix::io::pwrite(memory.fd(), &content, 0).map_err(refusal)?;
    let inherited = [DESCRIPTOR_MIN, 3].iter().find_map(|min| duplicate_from(&memory, *min));
    inherited.ok_or(refusal(Errno::MFILE))
}

fn enter(directory: Capability) -> Result<(), Error> {
    let inherited = message(directory)?;
    rustix::process::chdir(NOWHERE).map_err(|errno| {
        close(inherited);
        refusal(errno)
    })?;
    set_current(directory);
    close(DESCRIPTOR.swap(inherited, Ordering::Relaxed));
    Ok(())
}

/// A duplicate that the next program inherits.
fn duplicate_from(memory: &Memory, min: c_int) -> Option<c_int> {
    // `rustix` has `fcntl(F_DUPFD)` only with close-on-exec set.
    let duplicate = rustix::io::fcntl_dupfd_cloexec(memory.fd(), min).ok()?;
    let inherited = rustix::io::fcntl_setfd(&duplicate, rustix::io::FdFlags::empty());
    let duplicate = duplicate.into_raw_fd();
    match inherited {
        Ok(()) => Some(duplicate),
        Err(_) => {
            close(duplicate);
            None
        }
    }
}

/// The kernel is in a working directory of its own again.
pub fn forget() {
    CURRENT.store(0, Ordering::Relaxed);
    close(DESCRIPTOR.swap(-1, Ordering::Relaxed));
}

fn close(fd: c_int) {
    if fd >= 0 {
        // SAFETY: a descriptor of this module's own.
        unsafe { rustix::io::close(OwnedFd::from_raw_fd(fd).into_raw_fd()) };
    }
}

/// The directory `path` below `at`, which this process may enter.
pub fn enterable(client: &Client, at: Capability, path: &[u8]) -> Result<Capability, Error> {
    let node = client.look_up(at, path, true)?;
    if node.attr.kind() != FileKind::Directory {
        return Err(refusal(Errno::NOTDIR));
    }
    client.access(node.capability, b"", 1, true)?;
    Ok(node.capability)
}

/// The user of this process is another now, for whom the working directory's capability is `made_out`.
pub fn user_changed(made_out: Capability) {
    // If no descriptor is left, the next program inherits the capability of the former user, which the server will refuse.
    if let Ok(inherited) = message(made_out) {
        close(DESCRIPTOR.swap(inherited, Ordering::Relaxed));
    }
    set_current(made_out);
}

fn enter_checked(client: &Client, at: Capability, path: &[u8]) -> Result<c_int, Error> {
    enter(enterable(client, at, path)?).map(|()| 0)
}

/// The working directory's path, when it is ours.
fn path() -> Option<Result<Vec<u8>, Error>> {
    let (at, prefix) = (current()?, environment::prefix()?);
    Some(client().and_then(|client| absolute(client, prefix.path(), at)))
}

/// The absolute path of the directory `at`.
pub fn absolute(client: &Client, prefix: &[u8], at: Capability) -> Result<Vec<u8>, Error> {
    let mut path = [prefix, &client.path_of(at)?].concat();
    if path.len() > 1 && path.ends_with(b"/") {
        path.pop();
    }
    Ok(path)
}

/// Stores a path in the caller's buffer, or in memory from `malloc` if there is none.
fn store_path(path: &[u8], buffer: *mut c_char, len: usize) -> *mut c_char {
    if buffer.is_null() {
        return if len != 0 && len <= path.len() { fail(Errno::RANGE) } else { malloc_string(path) };
    }
    if len == 0 {
        return fail(Errno::INVAL);
    }
    if len <= path.len() {
        return fail(Errno::RANGE);
    }
    // SAFETY: the caller vouches for `len` bytes, and the path with its NUL is no longer.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(path.as_ptr(), path.len());
        buffer.add(path.len()).write(0);
    }
    buffer
}

pub fn chdir(path: CPath) -> c_int {
    by_path(libc::AT_FDCWD, path, enter_checked, |_, path| {
        let changed = real::chdir(path);
        if changed == 0 {
            forget();
        }
        changed
    })
}

pub fn fchdir(fd: c_int) -> c_int {
    by_fd(
        fd,
        |client, file_ref| enter_checked(client, file_ref.capability()?, b""),
        || {
            let changed = real::fchdir(fd);
            if changed == 0 {
                forget();
            }
            changed
        },
    )
}

pub fn getcwd(buffer: *mut c_char, len: usize) -> *mut c_char {
    match path() {
        None => real::getcwd(buffer, len),
        Some(Ok(path)) => store_path(&path, buffer, len),
        Some(Err(error)) => returned(Err(error)),
    }
}

pub fn __getcwd_chk(buffer: *mut c_char, len: usize, room: usize) -> *mut c_char {
    if current().is_some() { getcwd(buffer, len.min(room)) } else { real::__getcwd_chk(buffer, len, room) }
}

pub fn getwd(buffer: *mut c_char) -> *mut c_char {
    if current().is_some() { getcwd(buffer, libc::PATH_MAX as usize) } else { real::getwd(buffer) }
}

pub fn get_current_dir_name() -> *mut c_char {
    if current().is_some() { getcwd(std::ptr::null_mut(), 0) } else { real::get_current_dir_name() }
}
