//! Calls for other kinds of files: terminals, sockets, pipes, queues. A descriptor of ours gets the errno that a regular
//! file gives there, because programs ask in order to learn what a descriptor is; the kernel would say EBADF of a
//! placeholder, which tells them that it is closed.

use crate::foreign::{CPath, Opaque};
use crate::hook::{fail, set_errno};
use crate::serve::by_path;
use crate::table::is_ours;
use libc::{pid_t, size_t, ssize_t};
use rustix::io::Errno;
use std::ffi::{c_char, c_int, c_uint};

/// `ERRNO { name(arguments after the descriptor) -> type; … }`
macro_rules! refuses {
    ($($errno:ident { $($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)* })*) => {$($(
        hook! {
            fn $name(fd: c_int, $($arg: $ty),*) -> $ret, real {
                if is_ours(fd) { fail(Errno::$errno) } else { real(fd, $($arg),*) }
            }
        }
    )*)*};
}

refuses! {
    NOTTY {
        tcgetattr(attributes: Opaque) -> c_int;
        tcsetattr(when: c_int, attributes: Opaque) -> c_int;
        tcgetpgrp() -> pid_t;
        tcsetpgrp(group: pid_t) -> c_int;
        tcgetsid() -> pid_t;
        tcdrain() -> c_int;
        tcflow(action: c_int) -> c_int;
        tcflush(queue: c_int) -> c_int;
        tcsendbreak(duration: c_int) -> c_int;
        ttyname() -> *mut c_char;
        ptsname() -> *mut c_char;
        grantpt() -> c_int;
        unlockpt() -> c_int;
        login_tty() -> c_int;
    }
    NOTSOCK {
        accept(address: Opaque, len: Opaque) -> c_int;
        accept4(address: Opaque, len: Opaque, flags: c_int) -> c_int;
        listen(backlog: c_int) -> c_int;
        shutdown(how: c_int) -> c_int;
        sockatmark() -> c_int;
        getpeername(address: Opaque, len: Opaque) -> c_int;
        getsockname(address: Opaque, len: Opaque) -> c_int;
        getsockopt(level: c_int, option: c_int, value: Opaque, len: Opaque) -> c_int;
        setsockopt(level: c_int, option: c_int, value: Opaque, len: c_uint) -> c_int;
        recv(buffer: Opaque, len: size_t, flags: c_int) -> ssize_t;
        __recv_chk(buffer: Opaque, len: size_t, room: size_t, flags: c_int) -> ssize_t;
        recvfrom(buffer: Opaque, len: size_t, flags: c_int, address: Opaque, address_len: Opaque) -> ssize_t;
        __recvfrom_chk(
            buffer: Opaque, len: size_t, room: size_t, flags: c_int, address: Opaque, address_len: Opaque
        ) -> ssize_t;
        recvmsg(message: Opaque, flags: c_int) -> ssize_t;
        recvmmsg(messages: Opaque, count: c_uint, flags: c_int, timeout: Opaque) -> c_int;
        send(data: Opaque, len: size_t, flags: c_int) -> ssize_t;
        sendto(data: Opaque, len: size_t, flags: c_int, address: Opaque, address_len: c_uint) -> ssize_t;
        sendmsg(message: Opaque, flags: c_int) -> ssize_t;
        sendmmsg(messages: Opaque, count: c_uint, flags: c_int) -> c_int;
    }
    OPNOTSUPP {
        open_by_handle_at(handle: Opaque, flags: c_int) -> c_int;
    }
}

macro_rules! refuses_with_a_result {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        hook! {
            fn $name(fd: c_int, $($arg: $ty),*) -> c_int, real {
                if is_ours(fd) {
                    set_errno(Errno::NOTTY);
                    libc::ENOTTY
                } else {
                    real(fd, $($arg),*)
                }
            }
        }
    )*};
}

refuses_with_a_result! {
    ttyname_r(buffer: Opaque, len: size_t);
    __ttyname_r_chk(buffer: Opaque, len: size_t, room: size_t);
    ptsname_r(buffer: Opaque, len: size_t);
    __ptsname_r_chk(buffer: Opaque, len: size_t, room: size_t);
}

hook! {
    fn tee(from: c_int, to: c_int, len: size_t, flags: c_uint) -> ssize_t, real {
        if is_ours(from) || is_ours(to) { fail(Errno::INVAL) } else { real(from, to, len, flags) }
    }
}

hook! {
    fn name_to_handle_at(dir: c_int, path: CPath, handle: Opaque, mount: Opaque, flags: c_int) -> c_int, real {
        if flags & libc::AT_EMPTY_PATH != 0 && is_ours(dir) && path.bytes().is_some_and(<[u8]>::is_empty) {
            return fail(Errno::OPNOTSUPP);
        }
        let refuse = |_: &isonomia_client::Client, _, _: &[u8]| Err(isonomia_client::Error::Argument(Errno::OPNOTSUPP));
        by_path(dir, path, refuse, |dir, path| real(dir, path, handle, mount, flags))
    }
}

hook! {
    fn inotify_add_watch(queue: c_int, path: CPath, mask: c_uint) -> c_int, real {
        // As where there are no watches left: programs then look from time to time.
        let refuse = |_: &isonomia_client::Client, _, _: &[u8]| Err(isonomia_client::Error::Argument(Errno::NOSPC));
        by_path(libc::AT_FDCWD, path, refuse, |_, path| real(queue, path, mask))
    }
}
