//! What file systems of the host can be relied on for, by the numbers that they call themselves (`statfs(2)`). Nothing is
//! relied on where the number is another one.

use crate::OpenError;
use rustix::fs::FsWord;
use std::os::fd::AsFd;
use std::path::Path;

const EXT4: FsWord = 0xef53;
const XFS: FsWord = 0x5846_5342;
const BTRFS: FsWord = 0x9123_683e;
const F2FS: FsWord = 0xf2f5_2010;
const TMPFS: FsWord = 0x0102_1994;
const RAMFS: FsWord = 0x8584_58f6;
/// All file systems in user space.
const FUSE: FsWord = 0x6573_5546;

/// Whether a file system, of which `file` is one, lies in memory; `path` is what an error tells of.
///
/// # Errors
/// The host does not tell what file system it is.
pub fn is_volatile(file: impl AsFd, path: &Path) -> Result<bool, OpenError> {
    let found = rustix::fs::fstatfs(file).map_err(|e| OpenError::io(path, e))?;
    Ok(matches!(found.f_type, TMPFS | RAMFS))
}

/// Whether the host asks a program for all that is done in the file system of a directory; false where that cannot be told.
pub(crate) fn is_in_user_space(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|found| found.f_type == FUSE)
}

/// Whether `syncfs` puts names on stable storage as well as bytes. Linux passes by most file systems in user space (`fuse_sync_fs`), and some
/// on the network.
pub(crate) fn syncs_names(file: impl AsFd) -> bool {
    number_of(file).is_some_and(|number| matches!(number, EXT4 | XFS | BTRFS | F2FS | TMPFS | RAMFS))
}

/// Whether bytes that replace others go to where these are on the device, and the file system commits a journal of its own for those
/// that come to a new place.
pub(crate) fn overwrites_in_place(file: impl AsFd) -> bool {
    number_of(file).is_some_and(|number| matches!(number, EXT4 | XFS))
}

fn number_of(file: impl AsFd) -> Option<FsWord> {
    rustix::fs::fstatfs(file).ok().map(|found| found.f_type)
}
