//! Attributes: the `stat` family of today's and of older C libraries, and `statx`.

use crate::calls::real;
use crate::description::FileRef;
use crate::foreign::{CPath, Out};
use crate::serve::{by_fd, by_path, by_path_or_fd};
use isonomia_client::{Attr, Client, Error, Timestamp};
use std::ffi::{c_int, c_uint};

/// Device number of every file under the prefix: of the anonymous kind, and higher than the kernel's counting goes.
const DEVICE_MINOR: c_uint = 0xf_1505;
/// What `st_blksize` advises: large requests, which programs such as cp and cat follow.
const BLOCK_SIZE: libc::blksize_t = 1 << 20;

// The 64-bit variants share their structures and therefore their code.
const _: () = assert!(size_of::<libc::stat>() == size_of::<libc::stat64>());

fn stat_of(attr: &Attr) -> libc::stat {
    // SAFETY: zeros are a value of this structure of numbers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = libc::makedev(0, DEVICE_MINOR);
    stat.st_ino = attr.ino;
    stat.st_nlink = attr.nlink.into();
    stat.st_mode = attr.mode;
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_rdev = attr.rdev;
    stat.st_size = attr.size_bytes as i64;
    stat.st_blksize = BLOCK_SIZE;
    stat.st_blocks = attr.blocks as i64;
    (stat.st_atime, stat.st_atime_nsec) = (attr.atime.secs, attr.atime.nanos.into());
    (stat.st_mtime, stat.st_mtime_nsec) = (attr.mtime.secs, attr.mtime.nanos.into());
    (stat.st_ctime, stat.st_ctime_nsec) = (attr.ctime.secs, attr.ctime.nanos.into());
    stat
}

fn statx_of(attr: &Attr) -> libc::statx {
    let time = |time: Timestamp| {
        // SAFETY: as in `stat_of`.
        let mut stamp: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        (stamp.tv_sec, stamp.tv_nsec) = (time.secs, time.nanos);
        stamp
    };
    // SAFETY: as in `stat_of`.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    statx.stx_mask = libc::STATX_BASIC_STATS;
    statx.stx_blksize = BLOCK_SIZE as u32;
    statx.stx_nlink = attr.nlink;
    statx.stx_uid = attr.uid;
    statx.stx_gid = attr.gid;
    statx.stx_mode = attr.mode as u16;
    statx.stx_ino = attr.ino;
    statx.stx_size = attr.size_bytes;
    statx.stx_blocks = attr.blocks;
    statx.stx_atime = time(attr.atime);
    statx.stx_mtime = time(attr.mtime);
    statx.stx_ctime = time(attr.ctime);
    statx.stx_rdev_major = libc::major(attr.rdev);
    statx.stx_rdev_minor = libc::minor(attr.rdev);
    statx.stx_dev_minor = DEVICE_MINOR;
    statx
}

fn stat_path(path: CPath, follow: bool, out: Out<libc::stat>, real: impl FnOnce(CPath) -> c_int) -> c_int {
    let serve = |client: &Client, at, path: &[u8]| answer(client.get_attr(at, path, follow), out);
    by_path(libc::AT_FDCWD, path, serve, |_, path| real(path))
}

fn stat_at(
    dir: c_int,
    path: CPath,
    out: Out<libc::stat>,
    flags: c_int,
    real: impl FnOnce(c_int, CPath) -> c_int,
) -> c_int {
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    by_path_or_fd(dir, path, flags, |client, at, path| answer(client.get_attr(at, path, follow), out), real)
}

fn stat_fd(fd: c_int, out: Out<libc::stat>, real: impl FnOnce() -> c_int) -> c_int {
    by_fd(fd, |client, file_ref| answer(client.get_attr(file_ref.capability()?, b"", false), out), real)
}

fn answer(attr: Result<Attr, Error>, out: Out<libc::stat>) -> Result<c_int, Error> {
    out.put(stat_of(&attr?)).map(|()| 0)
}

pub fn stat(path: CPath, out: Out<libc::stat>) -> c_int {
    stat_path(path, true, out, |path| real::stat(path, out))
}

pub fn lstat(path: CPath, out: Out<libc::stat>) -> c_int {
    stat_path(path, false, out, |path| real::lstat(path, out))
}

pub fn fstat(fd: c_int, out: Out<libc::stat>) -> c_int {
    stat_fd(fd, out, || real::fstat(fd, out))
}

pub fn fstatat(dir: c_int, path: CPath, out: Out<libc::stat>, flags: c_int) -> c_int {
    stat_at(dir, path, out, flags, |dir, path| real::fstatat(dir, path, out, flags))
}

// Programs linked against a C library before 2.33 call these; `version` names the structure's form.

pub fn __xstat(version: c_int, path: CPath, out: Out<libc::stat>) -> c_int {
    stat_path(path, true, out, |path| real::__xstat(version, path, out))
}

pub fn __lxstat(version: c_int, path: CPath, out: Out<libc::stat>) -> c_int {
    stat_path(path, false, out, |path| real::__lxstat(version, path, out))
}

pub fn __fxstat(version: c_int, fd: c_int, out: Out<libc::stat>) -> c_int {
    stat_fd(fd, out, || real::__fxstat(version, fd, out))
}

pub fn __fxstatat(version: c_int, dir: c_int, path: CPath, out: Out<libc::stat>, flags: c_int) -> c_int {
    stat_at(dir, path, out, flags, |dir, path| real::__fxstatat(version, dir, path, out, flags))
}

pub fn statx(dir: c_int, path: CPath, flags: c_int, mask: c_uint, out: Out<libc::statx>) -> c_int {
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let serve = |client: &Client, at, path: &[u8]| out.put(statx_of(&client.get_attr(at, path, follow)?)).map(|()| 0);
    by_path_or_fd(dir, path, flags, serve, |dir, path| real::statx(dir, path, flags, mask, out))
}

pub fn ftok(path: CPath, project: c_int) -> libc::key_t {
    let serve = |client: &Client, at, path: &[u8]| {
        let stat = stat_of(&client.get_attr(at, path, true)?);
        // As the C library makes it: 8 bits of the project, 8 of the device, 16 of the inode.
        let key = (project as u32) << 24 | ((stat.st_dev & 0xff) as u32) << 16 | (stat.st_ino & 0xffff) as u32;
        Ok(key as libc::key_t)
    };
    by_path(libc::AT_FDCWD, path, serve, |_, path| real::ftok(path, project))
}

pub fn isfdtype(fd: c_int, kind: c_int) -> c_int {
    let serve = |client: &Client, file_ref: &FileRef| {
        let mode = client.get_attr(file_ref.capability()?, b"", false)?.mode;
        Ok(c_int::from(mode & libc::S_IFMT == kind as u32))
    };
    by_fd(fd, serve, || real::isfdtype(fd, kind))
}

/// Whether `path` names anything, be it a dangling link.
pub fn exists(path: CPath) -> bool {
    // SAFETY: zeros are a value of this structure of numbers.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    lstat(path, Out::new(&mut found)) == 0
}

/// Whether `path` leads to a directory.
pub fn is_directory(path: CPath) -> bool {
    // SAFETY: zeros are a value of this structure of numbers.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    stat(path, Out::new(&mut found)) == 0 && found.st_mode & libc::S_IFMT == libc::S_IFDIR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_arrives() {
        let attr = Attr {
            ino: 7,
            size_bytes: 1 << 40,
            blocks: 9,
            atime: Timestamp::new(1, 2).unwrap(),
            mtime: Timestamp::new(-3, 4).unwrap(),
            ctime: Timestamp::new(5, 6).unwrap(),
            mode: libc::S_IFCHR | 0o640,
            nlink: 2,
            uid: 10,
            gid: 11,
            rdev: libc::makedev(4, 300),
        };
        let stat = stat_of(&attr);
        let statx = statx_of(&attr);
        assert_eq!((stat.st_ino, stat.st_size, stat.st_blocks, stat.st_nlink), (7, 1 << 40, 9, 2));
        assert_eq!((stat.st_mode, stat.st_uid, stat.st_gid), (libc::S_IFCHR | 0o640, 10, 11));
        assert_eq!((stat.st_mtime, stat.st_mtime_nsec), (-3, 4));
        assert_eq!((statx.stx_mtime.tv_sec, statx.stx_mtime.tv_nsec), (-3, 4));
        assert_eq!((statx.stx_ino, statx.stx_size, u32::from(statx.stx_mode)), (7, 1 << 40, stat.st_mode));
        assert_eq!(libc::makedev(statx.stx_rdev_major, statx.stx_rdev_minor), stat.st_rdev);
        assert_eq!(libc::makedev(statx.stx_dev_major, statx.stx_dev_minor), stat.st_dev);
    }
}
