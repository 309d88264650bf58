//! Calls for other kinds of files: terminals, sockets, pipes, queues. A descriptor of ours gets the errno that a regular
//! file gives there, because programs ask in order to learn what a descriptor is; the kernel would say EBADF of a
//! placeholder, which tells them that it is closed.

use crate::calls::real;
use crate::foreign::{CPath, Opaque};
use crate::hook::{fail, set_errno};
use crate::serve::by_path;
use crate::table::is_ours;
use libc::{size_t, ssize_t};
use rustix::io::Errno;
use std::ffi::{c_int, c_uint};

/// Functions that return their error.
fn no_terminal(fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if is_ours(fd) {
        set_errno(Errno::NOTTY);
        libc::ENOTTY
    } else {
        real()
    }
}

pub fn ttyname_r(fd: c_int, buffer: Opaque, len: size_t) -> c_int {
    no_terminal(fd, || real::ttyname_r(fd, buffer, len))
}

pub fn __ttyname_r_chk(fd: c_int, buffer: Opaque, len: size_t, room: size_t) -> c_int {
    no_terminal(fd, || real::__ttyname_r_chk(fd, buffer, len, room))
}

pub fn ptsname_r(fd: c_int, buffer: Opaque, len: size_t) -> c_int {
    no_terminal(fd, || real::ptsname_r(fd, buffer, len))
}

pub fn __ptsname_r_chk(fd: c_int, buffer: Opaque, len: size_t, room: size_t) -> c_int {
    no_terminal(fd, || real::__ptsname_r_chk(fd, buffer, len, room))
}

pub fn tee(from: c_int, to: c_int, len: size_t, flags: c_uint) -> ssize_t {
    if is_ours(from) || is_ours(to) { fail(Errno::INVAL) } else { real::tee(from, to, len, flags) }
}

pub fn name_to_handle_at(dir: c_int, path: CPath, handle: Opaque, mount: Opaque, flags: c_int) -> c_int {
    if flags & libc::AT_EMPTY_PATH != 0 && is_ours(dir) && path.bytes().is_some_and(<[u8]>::is_empty) {
        return fail(Errno::OPNOTSUPP);
    }
    let refuse = |_: &isonomia_client::Client, _, _: &[u8]| Err(isonomia_client::Error::Argument(Errno::OPNOTSUPP));
    by_path(dir, path, refuse, |dir, path| real::name_to_handle_at(dir, path, handle, mount, flags))
}

pub fn inotify_add_watch(queue: c_int, path: CPath, mask: c_uint) -> c_int {
    // As where there are no watches left: programs then look from time to time.
    let refuse = |_: &isonomia_client::Client, _, _: &[u8]| Err(isonomia_client::Error::Argument(Errno::NOSPC));
    by_path(libc::AT_FDCWD, path, refuse, |_, path| real::inotify_add_watch(queue, path, mask))
}
