//! Closing and duplicating descriptors. The kernel does it for real on the placeholder; the table follows.

use crate::calls::real;
use crate::hook::fail;
use crate::{internal, table};
use std::ffi::{c_int, c_uint};

/// The table after the kernel made `to` a duplicate of `from`.
pub fn duplicated(from: c_int, to: c_int) -> c_int {
    if to < 0 {
        return to;
    }
    let Some(file_ref) = table::find(from) else { return table::fresh(to) };
    match table::install(to, file_ref) {
        Ok(()) => to,
        Err(errno) => {
            // SAFETY: the duplicate is of no use without its entry, and the program does not know it yet.
            unsafe { rustix::io::close(to) };
            fail(errno)
        }
    }
}

pub fn close(fd: c_int) -> c_int {
    if table::is_ours(fd) {
        // Out of the table before the number can be given to another thread.
        let file_ref = table::remove(fd);
        let closed = real::close(fd);
        drop(file_ref);
        return closed;
    }
    match internal::guard(fd) {
        Ok(()) => real::close(fd),
        Err(errno) => fail(errno),
    }
}

pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
        let highest = c_int::try_from(last).unwrap_or(c_int::MAX);
        for fd in table::ours_between(c_int::try_from(first).unwrap_or(c_int::MAX), highest) {
            drop(table::remove(fd));
        }
    }
    if first > last {
        return real::close_range(first, last, flags);
    }
    internal::around(first, last)
        .into_iter()
        .map(|(first, last)| real::close_range(first, last, flags))
        .min()
        .unwrap_or(0)
}

/// Done by [`close_range`]: the C library's function would close descriptors of this library's own as well.
pub fn closefrom(first: c_int) {
    close_range(first.max(0) as c_uint, c_uint::MAX, 0);
}

pub fn dup(fd: c_int) -> c_int {
    duplicated(fd, real::dup(fd))
}

pub fn dup2(from: c_int, to: c_int) -> c_int {
    if let Err(errno) = internal::guard(to) {
        return fail(errno);
    }
    let made = real::dup2(from, to);
    if from == to { made } else { duplicated(from, made) }
}

pub fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if let Err(errno) = internal::guard(to) {
        return fail(errno);
    }
    duplicated(from, real::dup3(from, to, flags))
}

// Calls that give the program a descriptor of the kernel's. If its number is in the table, the placeholder with that number
// was closed by a call that no hook saw: its entry is removed here.

pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    table::fresh(real::socket(domain, kind, protocol))
}

pub fn pipe(ends: *mut [c_int; 2]) -> c_int {
    let made = real::pipe(ends);
    fresh_pair(made, ends)
}

pub fn pipe2(ends: *mut [c_int; 2], flags: c_int) -> c_int {
    let made = real::pipe2(ends, flags);
    fresh_pair(made, ends)
}

fn fresh_pair(made: c_int, ends: *mut [c_int; 2]) -> c_int {
    if made == 0 {
        // SAFETY: the real function has just filled the two numbers.
        for end in unsafe { *ends } {
            table::fresh(end);
        }
    }
    made
}
