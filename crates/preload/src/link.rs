//! Names: links, directories, nodes, removal, renaming.

use crate::calls::real;
use crate::foreign::{Buffer, CPath, Out};
use crate::hook::fail;
use crate::serve::{by_path, by_path_or_fd, by_paths, refusal};
use crate::{open, table, umask};
use isonomia_client::{Capability, Client, Error, FileKind, RenameHow};
use libc::{AT_FDCWD, dev_t, mode_t, size_t, ssize_t};
use rustix::io::Errno;
use std::ffi::{c_int, c_uint};

/// The prefix itself can be neither made nor removed.
fn named(path: &[u8], otherwise: Errno) -> Result<&[u8], Error> {
    if path.is_empty() { Err(refusal(otherwise)) } else { Ok(path) }
}

fn make_dir(client: &Client, at: Capability, path: &[u8], mode: mode_t) -> Result<c_int, Error> {
    client.mkdir(at, named(path, Errno::EXIST)?, mode & 0o7777 & !umask::current()).map(|_| 0)
}

fn make_node(client: &Client, at: Capability, path: &[u8], mode: mode_t, device: dev_t) -> Result<c_int, Error> {
    let path = named(path, Errno::EXIST)?;
    let kind = if mode & libc::S_IFMT == 0 { libc::S_IFREG } else { mode & libc::S_IFMT };
    match kind {
        libc::S_IFREG | libc::S_IFIFO | libc::S_IFSOCK | libc::S_IFCHR | libc::S_IFBLK => {}
        libc::S_IFDIR => return Err(refusal(Errno::PERM)),
        _ => return Err(refusal(Errno::INVAL)),
    }
    client.mknod(at, path, kind | mode & 0o7777 & !umask::current(), device).map(|_| 0)
}

fn remove_file(client: &Client, at: Capability, path: &[u8]) -> Result<c_int, Error> {
    client.unlink(at, named(path, Errno::ISDIR)?).map(|()| 0)
}

fn remove_dir(client: &Client, at: Capability, path: &[u8]) -> Result<c_int, Error> {
    client.rmdir(at, named(path, Errno::BUSY)?).map(|()| 0)
}

fn remove_any(client: &Client, at: Capability, path: &[u8]) -> Result<c_int, Error> {
    match client.get_attr(at, path, false)?.kind() {
        FileKind::Directory => remove_dir(client, at, path),
        _ => remove_file(client, at, path),
    }
}

fn rename_ours(
    client: &Client,
    from: (Capability, &[u8]),
    to: (Capability, &[u8]),
    how: RenameHow,
) -> Result<c_int, Error> {
    let (from_path, to_path) = (named(from.1, Errno::BUSY)?, named(to.1, Errno::BUSY)?);
    client.rename(from.0, from_path, to.0, to_path, how).map(|()| 0)
}

fn link_ours(
    client: &Client,
    from: (Capability, &[u8]),
    to: (Capability, &[u8]),
    follow: bool,
) -> Result<c_int, Error> {
    client.link(from.0, from.1, follow, to.0, named(to.1, Errno::EXIST)?).map(|_| 0)
}

fn symlink_ours(client: &Client, text: CPath, at: Capability, path: &[u8]) -> Result<c_int, Error> {
    let text = text.bytes().ok_or(refusal(Errno::FAULT))?;
    let text = if text.is_empty() { return Err(refusal(Errno::NOENT)) } else { text };
    client.symlink(text, at, named(path, Errno::EXIST)?).map(|_| 0)
}

fn read_link(client: &Client, at: Capability, path: &[u8], buffer: Buffer, len: size_t) -> Result<ssize_t, Error> {
    if len == 0 {
        return Err(refusal(Errno::INVAL));
    }
    let text = client.readlink(at, path)?;
    let kept = text.len().min(len);
    let buffer = buffer.bytes(kept).ok_or(refusal(Errno::FAULT))?;
    buffer.copy_from_slice(&text[..kept]);
    Ok(kept as ssize_t)
}

pub fn mkdir(path: CPath, mode: mode_t) -> c_int {
    by_path(AT_FDCWD, path, |client, at, path| make_dir(client, at, path, mode), |_, path| real::mkdir(path, mode))
}

pub fn mkdirat(dir: c_int, path: CPath, mode: mode_t) -> c_int {
    by_path(dir, path, |client, at, path| make_dir(client, at, path, mode), |dir, path| real::mkdirat(dir, path, mode))
}

pub fn rmdir(path: CPath) -> c_int {
    by_path(AT_FDCWD, path, remove_dir, |_, path| real::rmdir(path))
}

pub fn unlink(path: CPath) -> c_int {
    by_path(AT_FDCWD, path, remove_file, |_, path| real::unlink(path))
}

pub fn unlinkat(dir: c_int, path: CPath, flags: c_int) -> c_int {
    let remove = if flags & libc::AT_REMOVEDIR != 0 { remove_dir } else { remove_file };
    by_path(dir, path, remove, |dir, path| real::unlinkat(dir, path, flags))
}

pub fn remove(path: CPath) -> c_int {
    by_path(AT_FDCWD, path, remove_any, |_, path| real::remove(path))
}

pub fn rename(from: CPath, to: CPath) -> c_int {
    by_paths(
        (AT_FDCWD, from),
        (AT_FDCWD, to),
        |client, from, to| rename_ours(client, from, to, RenameHow::Replace),
        |(_, from), (_, to)| real::rename(from, to),
    )
}

pub fn renameat(from_dir: c_int, from: CPath, to_dir: c_int, to: CPath) -> c_int {
    by_paths(
        (from_dir, from),
        (to_dir, to),
        |client, from, to| rename_ours(client, from, to, RenameHow::Replace),
        |(from_dir, from), (to_dir, to)| real::renameat(from_dir, from, to_dir, to),
    )
}

pub fn renameat2(from_dir: c_int, from: CPath, to_dir: c_int, to: CPath, flags: c_uint) -> c_int {
    let how = match flags {
        0 => Ok(RenameHow::Replace),
        libc::RENAME_NOREPLACE => Ok(RenameHow::NoReplace),
        libc::RENAME_EXCHANGE => Ok(RenameHow::Exchange),
        _ => Err(refusal(Errno::INVAL)),
    };
    by_paths(
        (from_dir, from),
        (to_dir, to),
        |client, from, to| rename_ours(client, from, to, how.clone()?),
        |(from_dir, from), (to_dir, to)| real::renameat2(from_dir, from, to_dir, to, flags),
    )
}

pub fn link(from: CPath, to: CPath) -> c_int {
    by_paths(
        (AT_FDCWD, from),
        (AT_FDCWD, to),
        |client, from, to| link_ours(client, from, to, false),
        |(_, from), (_, to)| real::link(from, to),
    )
}

/// The descriptor of ours whose file gets one more name: given itself, or by its name in `/proc`.
fn linked_descriptor(from_dir: c_int, from: CPath, flags: c_int) -> Option<c_int> {
    match from.bytes()? {
        b"" if flags & libc::AT_EMPTY_PATH != 0 => table::is_ours(from_dir).then_some(from_dir),
        path if flags & libc::AT_SYMLINK_FOLLOW != 0 => open::named_descriptor(path),
        _ => None,
    }
}

pub fn linkat(from_dir: c_int, from: CPath, to_dir: c_int, to: CPath, flags: c_int) -> c_int {
    if let Some(file_ref) = linked_descriptor(from_dir, from, flags).and_then(table::find) {
        let serve =
            |client: &Client, at, path: &[u8]| link_ours(client, (file_ref.capability()?, b""), (at, path), false);
        return by_path(to_dir, to, serve, |_, _| fail(Errno::XDEV));
    }
    let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
    by_paths(
        (from_dir, from),
        (to_dir, to),
        |client, from, to| link_ours(client, from, to, follow),
        |(from_dir, from), (to_dir, to)| real::linkat(from_dir, from, to_dir, to, flags),
    )
}

pub fn symlink(text: CPath, path: CPath) -> c_int {
    by_path(
        AT_FDCWD,
        path,
        |client, at, path| symlink_ours(client, text, at, path),
        |_, path| real::symlink(text, path),
    )
}

pub fn symlinkat(text: CPath, dir: c_int, path: CPath) -> c_int {
    by_path(
        dir,
        path,
        |client, at, path| symlink_ours(client, text, at, path),
        |dir, path| real::symlinkat(text, dir, path),
    )
}

fn read_link_at(
    dir: c_int,
    path: CPath,
    buffer: Buffer,
    len: size_t,
    real: impl FnOnce(c_int, CPath) -> ssize_t,
) -> ssize_t {
    // An empty path means the descriptor, without being asked.
    let flags = libc::AT_EMPTY_PATH;
    by_path_or_fd(dir, path, flags, |client, at, path| read_link(client, at, path, buffer, len), real)
}

pub fn readlink(path: CPath, buffer: Buffer, len: size_t) -> ssize_t {
    by_path(
        AT_FDCWD,
        path,
        |client, at, path| read_link(client, at, path, buffer, len),
        |_, path| real::readlink(path, buffer, len),
    )
}

pub fn readlinkat(dir: c_int, path: CPath, buffer: Buffer, len: size_t) -> ssize_t {
    read_link_at(dir, path, buffer, len, |dir, path| real::readlinkat(dir, path, buffer, len))
}

pub fn __readlink_chk(path: CPath, buffer: Buffer, len: size_t, room: size_t) -> ssize_t {
    by_path(
        AT_FDCWD,
        path,
        |client, at, path| read_link(client, at, path, buffer, len.min(room)),
        |_, path| real::__readlink_chk(path, buffer, len, room),
    )
}

pub fn __readlinkat_chk(dir: c_int, path: CPath, buffer: Buffer, len: size_t, room: size_t) -> ssize_t {
    read_link_at(dir, path, buffer, len.min(room), |dir, path| real::__readlinkat_chk(dir, path, buffer, len, room))
}

pub fn mknod(path: CPath, mode: mode_t, device: dev_t) -> c_int {
    by_path(
        AT_FDCWD,
        path,
        |client, at, path| make_node(client, at, path, mode, device),
        |_, path| real::mknod(path, mode, device),
    )
}

pub fn mknodat(dir: c_int, path: CPath, mode: mode_t, device: dev_t) -> c_int {
    by_path(
        dir,
        path,
        |client, at, path| make_node(client, at, path, mode, device),
        |dir, path| real::mknodat(dir, path, mode, device),
    )
}

// Programs linked against a C library before 2.33 call these two.

pub fn __xmknod(version: c_int, path: CPath, mode: mode_t, device: Out<dev_t>) -> c_int {
    by_path(
        AT_FDCWD,
        path,
        |client, at, path| make_node(client, at, path, mode, device.get()?),
        |_, path| real::__xmknod(version, path, mode, device),
    )
}

pub fn __xmknodat(version: c_int, dir: c_int, path: CPath, mode: mode_t, device: Out<dev_t>) -> c_int {
    by_path(
        dir,
        path,
        |client, at, path| make_node(client, at, path, mode, device.get()?),
        |dir, path| real::__xmknodat(version, dir, path, mode, device),
    )
}

pub fn mkfifo(path: CPath, mode: mode_t) -> c_int {
    by_path(
        AT_FDCWD,
        path,
        |client, at, path| make_node(client, at, path, libc::S_IFIFO | mode & 0o7777, 0),
        |_, path| real::mkfifo(path, mode),
    )
}

pub fn mkfifoat(dir: c_int, path: CPath, mode: mode_t) -> c_int {
    by_path(
        dir,
        path,
        |client, at, path| make_node(client, at, path, libc::S_IFIFO | mode & 0o7777, 0),
        |dir, path| real::mkfifoat(dir, path, mode),
    )
}
