//! Extended attributes: not kept, and said so with ENOTSUP, which copying programs take for "none".

use crate::foreign::CPath;
use crate::serve::{by_fd, by_path, refusal};
use libc::{size_t, ssize_t};
use rustix::io::Errno;
use std::ffi::{c_int, c_void};

macro_rules! by_path_and_by_fd {
    ($($path:ident $link:ident $fd:ident ($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
        hook! {
            fn $path(path: CPath, $($arg: $ty),*) -> $ret, real {
                by_path(libc::AT_FDCWD, path, |_, _, _| Err(refusal(Errno::NOTSUP)), |_, path| real(path, $($arg),*))
            }
        }

        hook! {
            fn $link(path: CPath, $($arg: $ty),*) -> $ret, real {
                by_path(libc::AT_FDCWD, path, |_, _, _| Err(refusal(Errno::NOTSUP)), |_, path| real(path, $($arg),*))
            }
        }

        hook! {
            fn $fd(fd: c_int, $($arg: $ty),*) -> $ret, real {
                by_fd(fd, |_, _| Err(refusal(Errno::NOTSUP)), || real(fd, $($arg),*))
            }
        }
    )*};
}

by_path_and_by_fd! {
    getxattr lgetxattr fgetxattr (name: CPath, value: *mut c_void, len: size_t) -> ssize_t;
    setxattr lsetxattr fsetxattr (name: CPath, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    listxattr llistxattr flistxattr (list: *mut c_void, len: size_t) -> ssize_t;
    removexattr lremovexattr fremovexattr (name: CPath) -> c_int;
}
