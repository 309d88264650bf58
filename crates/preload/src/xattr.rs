//! Extended attributes: those of the `user.` namespace are the server's to keep; others are refused with ENOTSUP, which
//! copying programs take for "none".

use crate::calls::real;
use crate::foreign::{Buffer, CPath, Data};
use crate::serve::{by_fd, by_path, refusal};
use isonomia_client::{Capability, Client, Error, XattrHow};
use libc::{AT_FDCWD, size_t, ssize_t};
use rustix::io::Errno;
use std::ffi::c_int;

/// Longer values and lists there are none, so no more of a buffer is used.
const LEN_MAX: usize = 64 << 10;

/// The inode that is meant: a path below a directory, and whether a symbolic link at its end is followed.
type At<'a> = (Capability, &'a [u8], bool);

fn text<'a>(name: CPath) -> Result<&'a [u8], Error> {
    name.bytes().ok_or(refusal(Errno::FAULT))
}

fn room<'a>(buffer: Buffer, len: size_t) -> Result<&'a mut [u8], Error> {
    buffer.bytes(len.min(LEN_MAX)).ok_or(refusal(Errno::FAULT))
}

fn get(client: &Client, (at, path, follow): At, name: CPath, value: Buffer, len: size_t) -> Result<ssize_t, Error> {
    client.get_xattr(at, path, follow, text(name)?, room(value, len)?).map(|len| len as ssize_t)
}

fn list(client: &Client, (at, path, follow): At, names: Buffer, len: size_t) -> Result<ssize_t, Error> {
    client.list_xattrs(at, path, follow, room(names, len)?).map(|len| len as ssize_t)
}

fn set(
    client: &Client,
    (at, path, follow): At,
    name: CPath,
    value: Data,
    len: size_t,
    flags: c_int,
) -> Result<c_int, Error> {
    let how = XattrHow::from_flags(flags).ok_or(refusal(Errno::INVAL))?;
    if len > LEN_MAX {
        return Err(refusal(Errno::TOOBIG));
    }
    let value = value.bytes(len).ok_or(refusal(Errno::FAULT))?;
    client.set_xattr(at, path, follow, text(name)?, value, how).map(|()| 0)
}

fn remove(client: &Client, (at, path, follow): At, name: CPath) -> Result<c_int, Error> {
    client.remove_xattr(at, path, follow, text(name)?).map(|()| 0)
}

macro_rules! by_path_and_by_fd {
    ($($serve:ident: $path:ident $link:ident $fd:ident ($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
        pub fn $path(path: CPath, $($arg: $ty),*) -> $ret {
            let serve = |client: &'static Client, at, path: &[u8]| $serve(client, (at, path, true), $($arg),*);
            by_path(AT_FDCWD, path, serve, |_, path| real::$path(path, $($arg),*))
        }

        pub fn $link(path: CPath, $($arg: $ty),*) -> $ret {
            let serve = |client: &'static Client, at, path: &[u8]| $serve(client, (at, path, false), $($arg),*);
            by_path(AT_FDCWD, path, serve, |_, path| real::$link(path, $($arg),*))
        }

        pub fn $fd(fd: c_int, $($arg: $ty),*) -> $ret {
            by_fd(
                fd,
                |client, file_ref| {
                    if file_ref.flags() & libc::O_PATH != 0 {
                        return Err(refusal(Errno::BADF));
                    }
                    $serve(client, (file_ref.capability()?, b"", false), $($arg),*)
                },
                || real::$fd(fd, $($arg),*),
            )
        }
    )*};
}

by_path_and_by_fd! {
    get: getxattr lgetxattr fgetxattr (name: CPath, value: Buffer, len: size_t) -> ssize_t;
    set: setxattr lsetxattr fsetxattr (name: CPath, value: Data, len: size_t, flags: c_int) -> c_int;
    list: listxattr llistxattr flistxattr (names: Buffer, len: size_t) -> ssize_t;
    remove: removexattr lremovexattr fremovexattr (name: CPath) -> c_int;
}
