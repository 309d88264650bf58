//! Opening files: `open`, `openat`, `creat`, and their variants.

use crate::calls::real;
use crate::description::Description;
use crate::foreign::CPath;
use crate::serve::{by_path, refusal};
use crate::{connection, hint, hook, number, placeholder, table, umask};
use isonomia_client::{Capability, Client, Error, FileKind, Ino, OpenHint, OpenHow, access};
use libc::mode_t;
use rustix::io::Errno;
use std::ffi::c_int;

/// Status flags that `F_GETFL` shows of what was asked for at the open.
const STATUS_FLAGS: c_int = libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_DIRECT
    | libc::O_NOATIME
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_TMPFILE
    | libc::O_PATH;

/// Bits of [`access`] for an open with `flags`.
fn access_of(flags: c_int) -> u32 {
    match flags & (libc::O_ACCMODE | libc::O_PATH) {
        libc::O_RDONLY => access::READ,
        libc::O_WRONLY => access::WRITE,
        libc::O_RDWR => access::READ | access::WRITE,
        _ => 0,
    }
}

/// Opens `path` below `at` and gives the program a placeholder.
pub fn open_ours(
    client: &'static Client,
    at: Capability,
    path: &[u8],
    flags: c_int,
    mode: mode_t,
) -> Result<c_int, Error> {
    let has = |flag: c_int| flags & flag == flag;
    let path_only = has(libc::O_PATH);
    // As in the kernel, a file without a name is one to write to.
    let unnamed = has(libc::O_TMPFILE) && !path_only;
    if unnamed && (has(libc::O_CREAT) || access_of(flags) & access::WRITE == 0) {
        return Err(refusal(Errno::INVAL));
    }
    if has(libc::O_CREAT) && path.is_empty() {
        return Err(refusal(if has(libc::O_EXCL) { Errno::EXIST } else { Errno::ISDIR }));
    }
    let how = OpenHow {
        access: access_of(flags),
        create: has(libc::O_CREAT) && !path_only,
        exclusive: has(libc::O_EXCL) && !path_only,
        truncate: has(libc::O_TRUNC) && !path_only,
        directory: has(libc::O_DIRECTORY) && !unnamed,
        no_follow: has(libc::O_NOFOLLOW),
        unnamed,
        path_only,
        mode: mode & 0o7777 & !umask::current(),
        number: number::fresh().map_err(refusal)?,
        hint: if has(libc::O_CREAT) { hint::find(client, at, path) } else { OpenHint::default() },
    };
    let file = client.open(at, path, &how)?;
    let ino = Ino(file.capability.ino);
    let give_up = |errno| {
        // The error that led here matters more than one of giving back.
        let _ = client.release(ino, how.number);
        refusal(errno)
    };
    // Pipes, sockets, and devices are names here; what they name lives in no kernel that could be asked.
    if !path_only && !matches!(file.attr.kind(), FileKind::Regular | FileKind::Directory) {
        return Err(give_up(Errno::NXIO));
    }
    let status = (flags & (libc::O_ACCMODE | STATUS_FLAGS)) as u32;
    let (fd, mapping) = placeholder::create(&file, how.number, status, has(libc::O_CLOEXEC)).map_err(give_up)?;
    let installed = table::install(fd, Description::publish(file, mapping, Some(client)));
    installed.map(|()| fd).map_err(|errno| {
        // SAFETY: the descriptor is fresh and nobody else knows it.
        unsafe { rustix::io::close(fd) };
        refusal(errno)
    })
}

/// The shape of every hook here; a descriptor of the kernel's ends what the number may have stood for.
fn open_at(dir: c_int, path: CPath, flags: c_int, mode: mode_t, real: impl FnOnce(c_int, CPath) -> c_int) -> c_int {
    if let Some(again) = path.bytes().and_then(named_descriptor) {
        return reopen(again, flags);
    }
    by_path(
        dir,
        path,
        |client, at, path| open_ours(client, at, path, flags, mode),
        |dir, path| table::fresh(real(dir, path)),
    )
}

/// The descriptor of ours that `/dev/stdin`, `/dev/fd/N`, or `/proc/self/fd/N` names.
pub fn named_descriptor(path: &[u8]) -> Option<c_int> {
    let number = match path {
        b"/dev/stdin" => 0,
        b"/dev/stdout" => 1,
        b"/dev/stderr" => 2,
        _ => {
            let digits = path.strip_prefix(b"/dev/fd/").or_else(|| path.strip_prefix(b"/proc/self/fd/"))?;
            std::str::from_utf8(digits).ok()?.parse().ok()?
        }
    };
    table::is_ours(number).then_some(number)
}

/// A new open file of the inode behind `fd`, as the kernel makes one for such names.
#[cold]
fn reopen(fd: c_int, flags: c_int) -> c_int {
    let opened = table::find(fd).ok_or(refusal(Errno::BADF)).and_then(|file_ref| {
        open_ours(connection::client()?, file_ref.capability()?, b"", flags & !(libc::O_CREAT | libc::O_EXCL), 0)
    });
    hook::returned(opened)
}

pub fn open(path: CPath, flags: c_int, mode: mode_t) -> c_int {
    open_at(libc::AT_FDCWD, path, flags, mode, |_, path| real::open(path, flags, mode))
}

pub fn openat(dir: c_int, path: CPath, flags: c_int, mode: mode_t) -> c_int {
    open_at(dir, path, flags, mode, |dir, path| real::openat(dir, path, flags, mode))
}

pub fn __open_2(path: CPath, flags: c_int) -> c_int {
    open_at(libc::AT_FDCWD, path, flags, 0, |_, path| real::__open_2(path, flags))
}

pub fn __open64_2(path: CPath, flags: c_int) -> c_int {
    open_at(libc::AT_FDCWD, path, flags, 0, |_, path| real::__open64_2(path, flags))
}

pub fn __openat_2(dir: c_int, path: CPath, flags: c_int) -> c_int {
    open_at(dir, path, flags, 0, |dir, path| real::__openat_2(dir, path, flags))
}

pub fn __openat64_2(dir: c_int, path: CPath, flags: c_int) -> c_int {
    open_at(dir, path, flags, 0, |dir, path| real::__openat64_2(dir, path, flags))
}

const CREATE: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

pub fn creat(path: CPath, mode: mode_t) -> c_int {
    open_at(libc::AT_FDCWD, path, CREATE, mode, |_, path| real::creat(path, mode))
}
