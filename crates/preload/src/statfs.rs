//! The file system as a whole: `statfs`, `statvfs`, `pathconf`.

use crate::calls::real;
use crate::foreign::{CPath, Out};
use crate::serve::{by_fd, by_path, refusal};
use isonomia_client::{Client, Error, FsStat};
use libc::{c_long, statfs as Statfs, statvfs as Statvfs};
use rustix::io::Errno;
use std::ffi::c_int;

/// What `f_type` says: "iso1" read as a number; no file system of the kernel's has it.
const FILE_SYSTEM_TYPE: i64 = 0x6973_6f31;
/// The unit of block counts, in bytes.
const BLOCK_BYTES: u64 = 4096;
const NAME_LEN_MAX: u64 = 255;
const LINKS_MAX: c_long = 127;
const PATH_LEN_MAX: c_long = 4096;

const _: () = assert!(size_of::<Statfs>() == size_of::<libc::statfs64>());
const _: () = assert!(size_of::<Statvfs>() == size_of::<libc::statvfs64>());

fn statfs_of(stat: &FsStat) -> Statfs {
    // SAFETY: zeros are a value of this structure of numbers.
    let mut out: Statfs = unsafe { std::mem::zeroed() };
    out.f_type = FILE_SYSTEM_TYPE;
    out.f_bsize = BLOCK_BYTES as i64;
    out.f_frsize = BLOCK_BYTES as i64;
    out.f_blocks = stat.total_bytes / BLOCK_BYTES;
    out.f_bfree = stat.free_bytes / BLOCK_BYTES;
    out.f_bavail = stat.available_bytes / BLOCK_BYTES;
    out.f_files = stat.inodes_total;
    out.f_ffree = stat.inodes_free;
    out.f_namelen = NAME_LEN_MAX as i64;
    out
}

fn statvfs_of(stat: &FsStat) -> Statvfs {
    // SAFETY: zeros are a value of this structure of numbers.
    let mut out: Statvfs = unsafe { std::mem::zeroed() };
    out.f_bsize = BLOCK_BYTES;
    out.f_frsize = BLOCK_BYTES;
    out.f_blocks = stat.total_bytes / BLOCK_BYTES;
    out.f_bfree = stat.free_bytes / BLOCK_BYTES;
    out.f_bavail = stat.available_bytes / BLOCK_BYTES;
    out.f_files = stat.inodes_total;
    out.f_ffree = stat.inodes_free;
    out.f_favail = stat.inodes_free;
    out.f_namemax = NAME_LEN_MAX;
    out
}

pub fn statfs(path: CPath, out: Out<Statfs>) -> c_int {
    let serve = |client: &Client, at, path: &[u8]| {
        client.get_attr(at, path, true)?;
        out.put(statfs_of(&client.stat_fs()?)).map(|()| 0)
    };
    by_path(libc::AT_FDCWD, path, serve, |_, path| real::statfs(path, out))
}

pub fn fstatfs(fd: c_int, out: Out<Statfs>) -> c_int {
    by_fd(fd, |client, _| out.put(statfs_of(&client.stat_fs()?)).map(|()| 0), || real::fstatfs(fd, out))
}

pub fn statvfs(path: CPath, out: Out<Statvfs>) -> c_int {
    let serve = |client: &Client, at, path: &[u8]| {
        client.get_attr(at, path, true)?;
        out.put(statvfs_of(&client.stat_fs()?)).map(|()| 0)
    };
    by_path(libc::AT_FDCWD, path, serve, |_, path| real::statvfs(path, out))
}

pub fn fstatvfs(fd: c_int, out: Out<Statvfs>) -> c_int {
    by_fd(fd, |client, _| out.put(statvfs_of(&client.stat_fs()?)).map(|()| 0), || real::fstatvfs(fd, out))
}

fn limit(name: c_int) -> Result<c_long, Error> {
    match name {
        libc::_PC_LINK_MAX => Ok(LINKS_MAX),
        libc::_PC_NAME_MAX => Ok(NAME_LEN_MAX as c_long),
        libc::_PC_PATH_MAX => Ok(PATH_LEN_MAX),
        libc::_PC_PIPE_BUF => Ok(libc::PIPE_BUF as c_long),
        libc::_PC_NO_TRUNC | libc::_PC_CHOWN_RESTRICTED => Ok(1),
        libc::_PC_FILESIZEBITS => Ok(64),
        _ => Err(refusal(Errno::INVAL)),
    }
}

pub fn pathconf(path: CPath, name: c_int) -> c_long {
    by_path(libc::AT_FDCWD, path, |_, _, _| limit(name), |_, path| real::pathconf(path, name))
}

pub fn fpathconf(fd: c_int, name: c_int) -> c_long {
    by_fd(fd, |_, _| limit(name), || real::fpathconf(fd, name))
}
