//! Calls by which the kernel would move or map the bytes itself: refused, with the errno that makes programs fall
//! back to reading and writing.

use crate::foreign::{Opaque, Out};
use crate::hook::{self, fail};
use crate::serve::by_fd;
use crate::table::is_ours;
use libc::{off64_t, size_t, ssize_t};
use rustix::io::Errno;
use std::ffi::{c_int, c_uint, c_void};

macro_rules! with_offsets {
    ($($sendfile:ident $mmap:ident;)*) => {$(
        hook! {
            fn $sendfile(to: c_int, from: c_int, offset: Out<off64_t>, len: size_t) -> ssize_t, real {
                if is_ours(to) || is_ours(from) { fail(Errno::INVAL) } else { real(to, from, offset, len) }
            }
        }

        hook! {
            fn $mmap(
                address: Opaque, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off64_t,
            ) -> Opaque, real {
                if flags & libc::MAP_ANONYMOUS == 0 && is_ours(fd) {
                    fail(Errno::NODEV)
                } else {
                    real(address, len, protection, flags, fd, offset)
                }
            }
        }
    )*};
}

with_offsets! {
    sendfile mmap;
    sendfile64 mmap64;
}

impl hook::Failure for Opaque {
    const FAILED: Self = Self(libc::MAP_FAILED);
}

hook! {
    fn copy_file_range(
        from: c_int, from_offset: Out<off64_t>, to: c_int, to_offset: Out<off64_t>, len: size_t, flags: c_uint,
    ) -> ssize_t, real {
        if is_ours(from) || is_ours(to) {
            fail(Errno::XDEV)
        } else {
            real(from, from_offset, to, to_offset, len, flags)
        }
    }
}

hook! {
    fn splice(
        from: c_int, from_offset: Out<off64_t>, to: c_int, to_offset: Out<off64_t>, len: size_t, flags: c_uint,
    ) -> ssize_t, real {
        if is_ours(from) || is_ours(to) {
            fail(Errno::INVAL)
        } else {
            real(from, from_offset, to, to_offset, len, flags)
        }
    }
}

hook! {
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int, real {
        // As for regular files of the kernel's.
        by_fd(fd, |_, _| Err(isonomia_client::Error::Argument(Errno::PERM)), || real(epoll, operation, fd, event))
    }
}
