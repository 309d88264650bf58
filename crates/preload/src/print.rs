//! Printing to a descriptor: `dprintf` and its kin, which the C library writes out inside itself.

use crate::calls::real;
use crate::foreign::{CPath, Data, Opaque};
use crate::hook::fail;
use crate::variadic::Arguments;
use crate::{rw, table};
use rustix::io::Errno;
use std::ffi::{c_char, c_int, c_void};

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: CPath, arguments: *mut Arguments) -> c_int;
    fn backtrace_symbols(addresses: *const *mut c_void, count: c_int) -> *mut *mut c_char;
}

/// Writes all of `len` bytes; how many, or -1.
fn write_all(fd: c_int, text: *mut c_char, len: usize) -> c_int {
    let mut written = 0;
    while written < len {
        // SAFETY: within the text.
        let rest: Data = Opaque(unsafe { text.add(written) }.cast()).to_read();
        match rw::write(fd, rest, len - written) {
            count if count > 0 => written += count as usize,
            _ => return -1,
        }
    }
    c_int::try_from(len).unwrap_or(c_int::MAX)
}

fn print(fd: c_int, format: CPath, arguments: *mut Arguments) -> c_int {
    let mut text = std::ptr::null_mut();
    // SAFETY: format and arguments are the caller's and belong together.
    let len = unsafe { vasprintf(&raw mut text, format, arguments) };
    let Ok(count) = usize::try_from(len) else { return -1 };
    let written = write_all(fd, text, count);
    // SAFETY: from `malloc`, by `vasprintf`.
    unsafe { libc::free(text.cast()) };
    written
}

pub fn vdprintf(fd: c_int, format: CPath, arguments: *mut Arguments) -> c_int {
    if table::is_ours(fd) { print(fd, format, arguments) } else { real::vdprintf(fd, format, arguments) }
}

pub fn __vdprintf_chk(fd: c_int, flag: c_int, format: CPath, arguments: *mut Arguments) -> c_int {
    if table::is_ours(fd) { print(fd, format, arguments) } else { real::__vdprintf_chk(fd, flag, format, arguments) }
}

pub fn backtrace_symbols_fd(addresses: *const *mut c_void, count: c_int, fd: c_int) {
    if !table::is_ours(fd) {
        return real::backtrace_symbols_fd(addresses, count, fd);
    }
    // SAFETY: the caller vouches for `count` addresses.
    let lines = unsafe { backtrace_symbols(addresses, count) };
    if lines.is_null() {
        return fail(Errno::NOMEM);
    }
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: as many lines as addresses, each ended by a NUL.
        unsafe {
            let line = *lines.add(index);
            write_all(fd, line, libc::strlen(line));
        }
        write_all(fd, c"\n".as_ptr().cast_mut(), 1);
    }
    // SAFETY: one piece of memory from `malloc`.
    unsafe { libc::free(lines.cast()) };
}
