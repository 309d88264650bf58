//! Attributes and times between the server's form and the kernel's.

use fuser::{FileAttr, FileType, INodeNo};
use isonomia_client::{Attr, FileKind, Timestamp};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What programs are advised to read and write at once.
const BLOCK_BYTES: u32 = 1 << 20;

/// The attributes as the kernel takes them.
///
/// Numbers of devices are the same in both forms for majors below 2^12 and minors below 2^20, all that Linux has.
pub fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size_bytes,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind()),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev as u32,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// The kind as the kernel takes it.
pub fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Regular => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
    }
}

/// A time of the server's. One that the kernel's form cannot express is the epoch.
fn system_time(time: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let seconds = if time.secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    seconds.and_then(|seconds| seconds.checked_add(Duration::from_nanos(time.nanos.into()))).unwrap_or(UNIX_EPOCH)
}

/// A time of a request.
///
/// `fuser` 0.18 takes the nanoseconds of a time before 1970 in the wrong direction: -2 s and 0.25 s reach us as 2.25 s
/// before the epoch. So the distance from the epoch, whole and part, is what the kernel sent.
pub fn timestamp(time: SystemTime) -> Timestamp {
    let (secs, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            (0i64.checked_sub_unsigned(before.as_secs()).unwrap_or(i64::MIN), before.subsec_nanos())
        }
    };
    Timestamp::new(secs, nanos).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_any_age_reach_the_kernel() {
        let after = |secs, nanos| UNIX_EPOCH + Duration::new(secs, nanos);
        let of = |secs, nanos| system_time(Timestamp::new(secs, nanos).unwrap());
        assert_eq!(of(7, 5), after(7, 5));
        assert_eq!(of(-2, 250_000_000), UNIX_EPOCH - Duration::from_millis(1_750));
        assert_eq!(of(i64::MIN, 0).duration_since(UNIX_EPOCH).unwrap_err().duration(), Duration::from_secs(1 << 63));
        assert_eq!(of(i64::MAX, 999_999_999), after(i64::MAX as u64, 999_999_999));
    }

    #[test]
    fn times_of_requests_are_what_the_program_said() {
        assert_eq!(timestamp(UNIX_EPOCH + Duration::new(7, 5)), Timestamp::new(7, 5).unwrap());
        // What fuser makes of { tv_sec: -2, tv_nsec: 250_000_000 }.
        assert_eq!(timestamp(UNIX_EPOCH - Duration::new(2, 250_000_000)), Timestamp::new(-2, 250_000_000).unwrap());
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1 << 63)), Timestamp::new(i64::MIN, 0).unwrap());
    }
}
