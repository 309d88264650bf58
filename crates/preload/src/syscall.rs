//! `syscall()`: the calls that programs make by number and that concern the descriptor table or paths, because the C
//! library had no functions for them for years.
//!
//! Others go to the kernel: on a placeholder they give EBADF, on a path under the prefix ENOENT.

use crate::calls::real;
use crate::foreign::{Buffer, CPath, Out};
use crate::{descriptors, dir, exec, kernel_queue, link, open, recycle, stat, transfer};
use libc::c_long;
use std::ffi::{c_int, c_uint};

/// An argument that is a string.
fn path(argument: c_long) -> CPath {
    // SAFETY: `CPath` is transparent; the caller vouches for the argument as the kernel's interface says.
    unsafe { std::mem::transmute(argument) }
}

/// An argument that is memory for a result.
fn out<T>(argument: c_long) -> Out<T> {
    // SAFETY: as in `path`.
    unsafe { std::mem::transmute(argument) }
}

/// An argument that is a list of pointers.
fn list(argument: c_long) -> exec::List {
    argument as usize as exec::List
}

/// An argument that is a buffer to be filled.
fn buffer(argument: c_long) -> Buffer {
    // SAFETY: as in `path`.
    unsafe { std::mem::transmute(argument) }
}

/// Whether a call of this number may make a process. Newer machines have only the last two.
fn makes_process(number: c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(number, libc::SYS_fork | libc::SYS_vfork) {
        return true;
    }
    matches!(number, libc::SYS_clone | libc::SYS_clone3)
}

pub fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long {
    match number {
        libc::SYS_close => descriptors::close(a as c_int).into(),
        libc::SYS_close_range => descriptors::close_range(a as c_uint, b as c_uint, c as c_int).into(),
        libc::SYS_dup => descriptors::dup(a as c_int).into(),
        libc::SYS_dup3 => descriptors::dup3(a as c_int, b as c_int, c as c_int).into(),
        libc::SYS_openat => open::openat(a as c_int, path(b), c as c_int, d as libc::mode_t).into(),
        libc::SYS_renameat2 => link::renameat2(a as c_int, path(b), c as c_int, path(d), e as c_uint).into(),
        libc::SYS_statx => stat::statx(a as c_int, path(b), c as c_int, d as c_uint, out(e)).into(),
        libc::SYS_copy_file_range => {
            transfer::copy_file_range(a as c_int, out(b), c as c_int, out(d), e as usize, f as c_uint) as c_long
        }
        libc::SYS_getdents64 => dir::getdents64(a as c_int, buffer(b), c as usize) as c_long,
        libc::SYS_execve => exec::execve(path(a), list(b), list(c)).into(),
        libc::SYS_execveat => exec::execveat(a as c_int, path(b), list(c), list(d), e as c_int).into(),
        libc::SYS_io_submit => {
            kernel_queue::submit(b, list(c).cast(), |count| real::syscall(number, a, count, c, d, e, f))
        }
        libc::SYS_io_uring_setup => kernel_queue::set_up_ring(|| real::syscall(number, a, b, c, d, e, f)),
        number if makes_process(number) => {
            recycle::begin_generation();
            real::syscall(number, a, b, c, d, e, f)
        }
        _ => real::syscall(number, a, b, c, d, e, f),
    }
}
