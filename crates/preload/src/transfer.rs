//! Calls by which the kernel would move the bytes itself: refused, with the errno that makes programs fall
//! back to reading and writing.

use crate::calls::real;
use crate::foreign::Out;
use crate::hook::fail;
use crate::serve::by_fd;
use crate::table::is_ours;
use libc::{off64_t, size_t, ssize_t};
use rustix::io::Errno;
use std::ffi::{c_int, c_uint, c_void};

pub fn sendfile(to: c_int, from: c_int, offset: Out<off64_t>, len: size_t) -> ssize_t {
    if is_ours(to) || is_ours(from) { fail(Errno::INVAL) } else { real::sendfile(to, from, offset, len) }
}

pub fn copy_file_range(
    from: c_int,
    from_offset: Out<off64_t>,
    to: c_int,
    to_offset: Out<off64_t>,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if is_ours(from) || is_ours(to) {
        fail(Errno::XDEV)
    } else {
        real::copy_file_range(from, from_offset, to, to_offset, len, flags)
    }
}

pub fn splice(
    from: c_int,
    from_offset: Out<off64_t>,
    to: c_int,
    to_offset: Out<off64_t>,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if is_ours(from) || is_ours(to) {
        fail(Errno::INVAL)
    } else {
        real::splice(from, from_offset, to, to_offset, len, flags)
    }
}

pub fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int {
    // As for regular files of the kernel's.
    by_fd(
        fd,
        |_, _| Err(isonomia_client::Error::Argument(Errno::PERM)),
        || real::epoll_ctl(epoll, operation, fd, event),
    )
}
