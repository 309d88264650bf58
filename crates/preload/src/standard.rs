//! `stdin`, `stdout`, and `stderr` when their descriptors are ours.
//!
//! The C library's standard streams read and write inside it, so a program that is started with `> /isonomia/x` and
//! prints would get EBADF. But `stdin`, `stdout`, and `stderr` are variables that may be assigned: while descriptor
//! 0, 1, or 2 is ours, the variable contains a cookie stream (see [`crate::stdio`]) on it.

use crate::stdio::{self, Mode};
use crate::table;
use libc::FILE;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    fn __fpending(stream: *mut FILE) -> usize;
    fn __fpurge(stream: *mut FILE);
}

/// The beginning of the C library's stream, part of its binary interface.
#[repr(C)]
struct FileHead {
    flags: c_int,
    read: [*mut u8; 3],
    write_base: *mut u8,
    write_ptr: *mut u8,
}

/// Bits of [`FileHead::flags`].
const NO_READS: c_int = 0x4;
const NO_WRITES: c_int = 0x8;
const IS_APPENDING: c_int = 0x1000;

/// Lets a flushed stream of ours go the way of `mode` from now on, as `freopen` asks.
pub fn set_direction(stream: *mut FILE, mode: &Mode) {
    let allowed = match mode.flags & libc::O_ACCMODE {
        libc::O_RDONLY => NO_WRITES,
        libc::O_WRONLY => NO_READS,
        _ => 0,
    };
    let appending = if mode.flags & libc::O_APPEND == 0 { 0 } else { IS_APPENDING };
    // SAFETY: the caller vouches for an open stream, which begins with its flags; nobody else may use it meanwhile.
    let flags = unsafe { &mut (*stream.cast::<FileHead>()).flags };
    *flags = *flags & !(NO_READS | NO_WRITES | IS_APPENDING) | allowed | appending;
}

/// The cookie streams for the three descriptors, once they were needed.
static OURS: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 3];
/// What the variables contained before.
static BEFORE: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 3];

/// The variable of a standard descriptor.
fn variable(fd: c_int) -> Option<(usize, *mut *mut FILE)> {
    Some(match fd {
        0 => (0, &raw mut stdin),
        1 => (1, &raw mut stdout),
        2 => (2, &raw mut stderr),
        _ => return None,
    })
}

/// The stream that the variable of `fd` contains.
pub fn current(fd: c_int) -> Option<*mut FILE> {
    // SAFETY: the C library's variables are always there; programs change them without locks, too.
    variable(fd).map(|(_, variable)| unsafe { *variable })
}

/// Whether streams may be made. Not before this library's start: the program's allocator may be starting.
static MAY_CHANGE: AtomicBool = AtomicBool::new(false);

/// Called after descriptor `fd` became ours, or not ours.
#[inline]
pub fn descriptor_changed(fd: c_int, ours: bool) {
    if (0..=2).contains(&fd) && MAY_CHANGE.load(Ordering::Relaxed) {
        change(fd, ours);
    }
}

/// At this library's start: streams for those descriptors that the program before left.
#[cfg_attr(test, allow(dead_code))]
pub fn adopt_inherited() {
    MAY_CHANGE.store(true, Ordering::Relaxed);
    (0..3).filter(|fd| table::is_ours(*fd)).for_each(|fd| change(fd, true));
}

#[cold]
fn change(fd: c_int, ours: bool) {
    let Some((index, variable)) = variable(fd) else { return };
    // SAFETY: as in `current`.
    let now = unsafe { *variable };
    let cookie = OURS[index].load(Ordering::Acquire);
    if !ours {
        // SAFETY: the cookie stream is open as long as it is in `OURS`.
        if !cookie.is_null() && now == cookie && unsafe { __fpending(cookie) } == 0 {
            // Only if the stream's buffer is empty: what is in it is still to be written to where the descriptor leads now.
            // SAFETY: as in `current`.
            unsafe { *variable = BEFORE[index].load(Ordering::Relaxed) };
        }
        return;
    }
    if now == cookie && !cookie.is_null() {
        return;
    }
    let cookie = if cookie.is_null() { make(fd, index) } else { cookie };
    if cookie.is_null() {
        return;
    }
    BEFORE[index].store(now, Ordering::Relaxed);
    if index > 0 {
        move_pending(now, cookie);
    }
    // SAFETY: as in `current`.
    unsafe { *variable = cookie };
}

fn make(fd: c_int, index: usize) -> *mut FILE {
    let Some(mode) = Mode::parse(if index == 0 { b"r" } else { b"w" }) else { return std::ptr::null_mut() };
    let stream = stdio::stream(fd, &mode);
    if index == 2 && !stream.is_null() {
        // SAFETY: a fresh stream.
        unsafe { libc::setvbuf(stream, std::ptr::null_mut(), libc::_IONBF, 0) };
    }
    OURS[index].store(stream, Ordering::Release);
    stream
}

/// Moves what was printed and not yet written from one stream to another, as if the buffer had been kept.
fn move_pending(from: *mut FILE, to: *mut FILE) {
    if from.is_null() {
        return;
    }
    // SAFETY: an open stream; its head is as the binary interface says, and what is pending lies between the two
    // pointers.
    unsafe {
        let pending = __fpending(from);
        let head = from.cast::<FileHead>();
        if pending == 0 || (*head).write_ptr.offset_from((*head).write_base) != pending as isize {
            return;
        }
        libc::fwrite((*head).write_base.cast(), 1, pending, to);
        __fpurge(from);
    }
}

/// Called when a cookie stream is closed.
pub fn stream_closed(stream: *mut FILE) {
    for fd in 0..3 {
        let Some((index, variable)) = variable(fd) else { continue };
        if OURS[index].load(Ordering::Acquire) == stream {
            OURS[index].store(std::ptr::null_mut(), Ordering::Release);
            // SAFETY: as in `current`.
            unsafe {
                if *variable == stream {
                    *variable = BEFORE[index].load(Ordering::Relaxed);
                }
            }
        }
    }
}
