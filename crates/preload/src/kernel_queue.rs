//! Queues that the kernel serves: `io_uring` and Linux AIO. Refused, so that programs do the same with ordinary calls.
//!
//! Neither has functions in the C library. What can be met is met: the functions of liburing and libaio, and the system
//! calls that a program makes through `syscall()`. liburing's own system calls are instructions in its code.
//!
//! * A ring is memory that the program shares with the kernel: which descriptors it will name is not known before. So
//!   making one fails with ENOSYS, the answer of a kernel without rings, at which programs take another way, as they must
//!   on older kernels. (EPERM, the answer where rings are forbidden, is an error to some.)
//! * A queue of Linux AIO is made, because each submission says its descriptors: the first one of ours in a list ends
//!   it, and at the head of a list it fails with ENOSYS, at which those programs that have another way take it.

use crate::calls::real;
use crate::hook::{fail, set_errno};
use crate::{environment, table};
use libc::{c_long, iocb};
use rustix::io::Errno;
use std::ffi::{c_int, c_uint, c_ulong, c_void};

/// The beginning of a list of `count` submissions that contains none of ours; `None` if its head is ours.
fn theirs_first(count: c_long, list: *const *const iocb) -> Option<c_long> {
    if list.is_null() || count <= 0 {
        return Some(count);
    }
    // SAFETY: the caller vouches for `count` entries; the kernel finds the bad ones among them.
    let entries = unsafe { std::slice::from_raw_parts(list, count as usize) };
    let is_ours = |entry: &*const iocb| {
        // SAFETY: as above.
        unsafe { entry.as_ref() }.is_some_and(|entry| table::is_ours(entry.aio_fildes as c_int))
    };
    match entries.iter().position(is_ours) {
        Some(0) => None,
        Some(first) => Some(first as c_long),
        None => Some(count),
    }
}

/// `io_submit` as a system call.
pub fn submit(count: c_long, list: *const *const iocb, real: impl FnOnce(c_long) -> c_long) -> c_long {
    match theirs_first(count, list) {
        Some(count) => real(count),
        None => fail(Errno::NOSYS),
    }
}

/// `io_uring_setup` as a system call.
pub fn set_up_ring(real: impl FnOnce() -> c_long) -> c_long {
    if environment::prefix().is_some() { fail(Errno::NOSYS) } else { real() }
}

/// Functions of libaio and liburing return their errors.
fn negative(errno: Errno) -> c_int {
    set_errno(errno);
    -errno.raw_os_error()
}

/// libaio's, which may be loaded where `dlsym` does not look: it is its system call.
pub fn io_submit(context: c_ulong, count: c_long, list: *const *const iocb) -> c_int {
    match theirs_first(count, list) {
        Some(count) => {
            // SAFETY: the arguments are the caller's, for the kernel to check.
            let submitted = unsafe { libc::syscall(libc::SYS_io_submit, context, count, list) };
            if submitted < 0 { -crate::hook::errno_number() } else { submitted as c_int }
        }
        None => negative(Errno::NOSYS),
    }
}

/// The functions of liburing that make a ring.
fn no_ring(real: impl FnOnce() -> c_int) -> c_int {
    if environment::prefix().is_some() { negative(Errno::NOSYS) } else { real() }
}

pub fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
    no_ring(|| real::io_uring_setup(entries, parameters))
}

pub fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
    no_ring(|| real::io_uring_queue_init(entries, ring, flags))
}

pub fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int {
    no_ring(|| real::io_uring_queue_init_params(entries, ring, parameters))
}

pub fn io_uring_queue_init_mem(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
    memory: *mut c_void,
    len: usize,
) -> c_int {
    no_ring(|| real::io_uring_queue_init_mem(entries, ring, parameters, memory, len))
}
