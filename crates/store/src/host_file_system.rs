//! What file systems of the host can be relied on for, by the numbers that they call themselves (`statfs(2)`). Nothing is
//! relied on where the number is another one.

use rustix::fs::FsWord;
use std::os::fd::AsFd;

const EXT4: FsWord = 0xef53;
const XFS: FsWord = 0x5846_5342;
const BTRFS: FsWord = 0x9123_683e;
const F2FS: FsWord = 0xf2f5_2010;
const TMPFS: FsWord = 0x0102_1994;
const RAMFS: FsWord = 0x8584_58f6;

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
