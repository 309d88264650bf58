//! Changing and checking attributes: modes, owners, times, access.

use crate::calls::real;
use crate::foreign::{CPath, In};
use crate::serve::{by_fd, by_path_or_fd, refusal};
use isonomia_client::{Capability, Change, Client, Error, FileKind, TimeChange, Timestamp};
use libc::{AT_FDCWD, gid_t, mode_t, timespec, timeval, uid_t};
use rustix::io::Errno;
use std::ffi::c_int;

const NANOS_PER_MICRO: i64 = 1000;

fn mode_change(mode: mode_t) -> Change {
    Change { mode: Some(mode & 0o7777), ..Change::default() }
}

/// Ids of -1 mean no change.
fn owner_change(uid: uid_t, gid: gid_t) -> Change {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    Change { uid: given(uid), gid: given(gid), ..Change::default() }
}

/// Access and modification time; null for now.
fn time_change(times: In<timespec>) -> Result<Change, Error> {
    let change = |time: &timespec| match time.tv_nsec {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => Ok(Some(TimeChange::Now)),
        nanos => stamp(time.tv_sec, nanos).map(Some),
    };
    match times.slice(2) {
        None => Ok(Change { atime: Some(TimeChange::Now), mtime: Some(TimeChange::Now), ..Change::default() }),
        Some(times) => Ok(Change { atime: change(&times[0])?, mtime: change(&times[1])?, ..Change::default() }),
    }
}

/// As [`time_change`], with microseconds.
fn micros_change(times: In<timeval>) -> Result<Change, Error> {
    let change = |time: &timeval| match time.tv_usec {
        0..1_000_000 => stamp(time.tv_sec, time.tv_usec * NANOS_PER_MICRO).map(Some),
        _ => Err(refusal(Errno::INVAL)),
    };
    match times.slice(2) {
        None => Ok(Change { atime: Some(TimeChange::Now), mtime: Some(TimeChange::Now), ..Change::default() }),
        Some(times) => Ok(Change { atime: change(&times[0])?, mtime: change(&times[1])?, ..Change::default() }),
    }
}

fn seconds_change(times: In<libc::utimbuf>) -> Result<Change, Error> {
    let Some(times) = times.get() else {
        return Ok(Change { atime: Some(TimeChange::Now), mtime: Some(TimeChange::Now), ..Change::default() });
    };
    Ok(Change { atime: Some(stamp(times.actime, 0)?), mtime: Some(stamp(times.modtime, 0)?), ..Change::default() })
}

fn stamp(secs: i64, nanos: i64) -> Result<TimeChange, Error> {
    let nanos = u32::try_from(nanos).ok();
    nanos.and_then(|nanos| Timestamp::new(secs, nanos)).map(TimeChange::At).ok_or(refusal(Errno::INVAL))
}

fn change_at(
    dir: c_int,
    path: CPath,
    flags: c_int,
    change: Result<Change, Error>,
    real: impl FnOnce(c_int, CPath) -> c_int,
) -> c_int {
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let serve = |client: &Client, at: Capability, path: &[u8]| {
        let change = change.clone()?;
        // As on Linux, a symbolic link has no mode of its own.
        if change.mode.is_some() && !follow && client.get_attr(at, path, false)?.kind() == FileKind::Symlink {
            return Err(refusal(Errno::OPNOTSUPP));
        }
        client.set_attr(at, path, follow, &change).map(|_| 0)
    };
    by_path_or_fd(dir, path, flags, serve, real)
}

fn change_path(path: CPath, flags: c_int, change: Result<Change, Error>, real: impl FnOnce(CPath) -> c_int) -> c_int {
    change_at(AT_FDCWD, path, flags, change, |_, path| real(path))
}

fn change_fd(fd: c_int, change: Result<Change, Error>, real: impl FnOnce() -> c_int) -> c_int {
    by_fd(fd, |client, file_ref| client.set_attr(file_ref.capability()?, b"", false, &change?).map(|_| 0), real)
}

const NO_FOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

pub fn chmod(path: CPath, mode: mode_t) -> c_int {
    change_path(path, 0, Ok(mode_change(mode)), |path| real::chmod(path, mode))
}

pub fn lchmod(path: CPath, mode: mode_t) -> c_int {
    change_path(path, NO_FOLLOW, Ok(mode_change(mode)), |path| real::lchmod(path, mode))
}

pub fn fchmod(fd: c_int, mode: mode_t) -> c_int {
    change_fd(fd, Ok(mode_change(mode)), || real::fchmod(fd, mode))
}

pub fn fchmodat(dir: c_int, path: CPath, mode: mode_t, flags: c_int) -> c_int {
    change_at(dir, path, flags, Ok(mode_change(mode)), |dir, path| real::fchmodat(dir, path, mode, flags))
}

pub fn chown(path: CPath, uid: uid_t, gid: gid_t) -> c_int {
    change_path(path, 0, Ok(owner_change(uid, gid)), |path| real::chown(path, uid, gid))
}

pub fn lchown(path: CPath, uid: uid_t, gid: gid_t) -> c_int {
    change_path(path, NO_FOLLOW, Ok(owner_change(uid, gid)), |path| real::lchown(path, uid, gid))
}

pub fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
    change_fd(fd, Ok(owner_change(uid, gid)), || real::fchown(fd, uid, gid))
}

pub fn fchownat(dir: c_int, path: CPath, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
    change_at(dir, path, flags, Ok(owner_change(uid, gid)), |dir, path| real::fchownat(dir, path, uid, gid, flags))
}

pub fn utime(path: CPath, times: In<libc::utimbuf>) -> c_int {
    change_path(path, 0, seconds_change(times), |path| real::utime(path, times))
}

pub fn utimes(path: CPath, times: In<timeval>) -> c_int {
    change_path(path, 0, micros_change(times), |path| real::utimes(path, times))
}

pub fn lutimes(path: CPath, times: In<timeval>) -> c_int {
    change_path(path, NO_FOLLOW, micros_change(times), |path| real::lutimes(path, times))
}

pub fn futimes(fd: c_int, times: In<timeval>) -> c_int {
    change_fd(fd, micros_change(times), || real::futimes(fd, times))
}

pub fn futimesat(dir: c_int, path: CPath, times: In<timeval>) -> c_int {
    match path.bytes() {
        Some(_) => change_at(dir, path, 0, micros_change(times), |dir, path| real::futimesat(dir, path, times)),
        None => change_fd(dir, micros_change(times), || real::futimesat(dir, path, times)),
    }
}

pub fn futimens(fd: c_int, times: In<timespec>) -> c_int {
    change_fd(fd, time_change(times), || real::futimens(fd, times))
}

pub fn utimensat(dir: c_int, path: CPath, times: In<timespec>, flags: c_int) -> c_int {
    match path.bytes() {
        Some(_) => {
            change_at(dir, path, flags, time_change(times), |dir, path| real::utimensat(dir, path, times, flags))
        }
        None => change_fd(dir, time_change(times), || real::utimensat(dir, path, times, flags)),
    }
}

fn check(dir: c_int, path: CPath, mask: c_int, flags: c_int, real: impl FnOnce(c_int, CPath) -> c_int) -> c_int {
    let follow = flags & NO_FOLLOW == 0;
    let serve = |client: &Client, at, path: &[u8]| match u32::try_from(mask) {
        Ok(mask @ 0..=7) => client.access(at, path, mask, follow).map(|()| 0),
        _ => Err(refusal(Errno::INVAL)),
    };
    by_path_or_fd(dir, path, flags, serve, real)
}

pub fn access(path: CPath, mask: c_int) -> c_int {
    check(AT_FDCWD, path, mask, 0, |_, path| real::access(path, mask))
}

pub fn eaccess(path: CPath, mask: c_int) -> c_int {
    check(AT_FDCWD, path, mask, 0, |_, path| real::eaccess(path, mask))
}

pub fn faccessat(dir: c_int, path: CPath, mask: c_int, flags: c_int) -> c_int {
    check(dir, path, mask, flags, |dir, path| real::faccessat(dir, path, mask, flags))
}
