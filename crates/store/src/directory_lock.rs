//! The locks (`flock`) of the directories of a store, in files that contain the process id of whoever has them.
//!
//! The files are closed to other users. But one may have been open to them once, and whoever opened it then can lock it still,
//! and for as long as he likes. His lock counts for nothing: another file replaces that one, closed from the first
//! moment on. Servers of the owner's exclude each other all the same, also those of earlier versions, which know only the one
//! file: who replaces it has locked the new one, and afterwards has looked whether the lock that was in the way is a
//! stranger's still. It does so alone, under a lock on a third file ([`TURN`]), which is never believed to be a stranger's.

use crate::OpenError;
use rustix::fs::{FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that is locked by whoever has the directory of a store's metadata.
pub(crate) const LOCK: &str = "lock";
/// The file that is locked by whoever replaces another one.
pub(crate) const TURN: &str = "lock.turn";
const TRIES: u32 = 20;
const TRIED_EVERY: Duration = Duration::from_millis(5);

/// A file that is locked until this is dropped, also if a program that another thread is just starting has the descriptor still.
pub(crate) struct DirectoryLock(OwnedFd);

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing it, which comes next, does the same but for that program.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Whether `dir` is the directory of the metadata of a store that nobody has any more. False where that cannot be told.
pub fn is_left(dir: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(dir.join(LOCK), flags, Mode::empty());
    file.and_then(|file| try_lock(&file)).is_ok()
}

/// Locks the file `name` in `dir`; it is created if there is none.
pub(crate) fn take(dir: &Path, name: &str) -> Result<DirectoryLock, OpenError> {
    let fd = open(&dir.join(name), OFlags::empty())?;
    if lock(dir, name, &fd)? {
        return note_own(dir, name, fd);
    }
    let turn_path = dir.join(TURN);
    let turn = open(&turn_path, OFlags::NOFOLLOW)?;
    let found = rustix::fs::fstat(&turn).map_err(|e| OpenError::io(&turn_path, e))?;
    if found.st_uid != rustix::process::geteuid().as_raw() || found.st_mode & 0o077 != 0 {
        return Err(OpenError::damaged(&turn_path, "is another user's, or open to others"));
    }
    match try_lock(&turn) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(in_use(dir, name)),
        Err(e) => return Err(OpenError::io(&turn_path, e)),
    }
    // Somebody else may have been there before.
    let old = open(&dir.join(name), OFlags::empty())?;
    if lock(dir, name, &old)? {
        return note_own(dir, name, old);
    }
    let (fd, fresh) = make(dir, name)?;
    let path = dir.join(name);
    let aside = exchange(&fresh, &path).or_else(|e| match e {
        // A file system without.
        Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => replace(&fresh, &path),
        e => Err(e),
    });
    let aside = aside.map_err(|e| OpenError::io(&path, e))?;
    // A server of an earlier version may have opened the old file, and gets its lock if the stranger lets go of it now. It tries for
    // as long as this does.
    match lock(dir, name, &old) {
        Ok(true) => std::thread::sleep(TRIED_EVERY * TRIES),
        Ok(false) => {}
        Err(error) => {
            // What is there now nobody would have locked, and the next server would take it for free.
            rustix::fs::rename(&aside, &path).map_err(|e| OpenError::io(&path, e))?;
            return Err(error);
        }
    }
    rustix::fs::unlink(&aside).map_err(|e| OpenError::io(&aside, e))?;
    Ok(fd)
}

/// Exchanges `fresh` for `path`, which goes there; where the old file is.
fn exchange(fresh: &Path, path: &Path) -> Result<PathBuf, Errno> {
    let cwd = rustix::fs::CWD;
    rustix::fs::renameat_with(cwd, fresh, cwd, path, RenameFlags::EXCHANGE).map(|()| fresh.to_owned())
}

/// The same on file systems that do not exchange: the old file has another name before its own is taken.
fn replace(fresh: &Path, path: &Path) -> Result<PathBuf, Errno> {
    let mut aside = fresh.as_os_str().to_owned();
    aside.push(".old");
    let aside = PathBuf::from(aside);
    match rustix::fs::unlink(&aside) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e),
    }
    rustix::fs::link(path, &aside)?;
    match rustix::fs::rename(fresh, path) {
        Ok(()) => Ok(aside),
        Err(e) => {
            let _ = rustix::fs::unlink(&aside);
            Err(e)
        }
    }
}

/// Locks a file; false if a stranger has it locked.
fn lock(dir: &Path, name: &str, fd: &OwnedFd) -> Result<bool, OpenError> {
    match try_lock(fd) {
        Ok(()) => return Ok(true),
        Err(Errno::WOULDBLOCK) => {}
        Err(e) => return Err(OpenError::io(&dir.join(name), e)),
    }
    let users = [0, rustix::process::geteuid().as_raw(), owner(dir)?];
    match holder(fd).filter(|(_, uid)| !users.contains(uid)) {
        Some((pid, uid)) => {
            let path = dir.join(name);
            tracing::warn!(path = %path.display(), pid, uid, "another user has locked it, which counts for nothing");
            Ok(false)
        }
        None => Err(in_use(dir, name)),
    }
}

fn in_use(dir: &Path, name: &str) -> OpenError {
    let pid = fs::read_to_string(dir.join(name)).unwrap_or_default().trim().to_owned();
    OpenError::InUse { dir: dir.to_owned(), pid }
}

fn open(path: &Path, more: OFlags) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | more;
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(|e| OpenError::io(path, e))
}

/// Who has the lock says so.
fn note_own(dir: &Path, name: &str, fd: OwnedFd) -> Result<DirectoryLock, OpenError> {
    let mut file = File::from(fd);
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(|e| OpenError::io(&dir.join(name), e))?;
    Ok(DirectoryLock(file.into()))
}

/// A file that only this process has ever opened, and has locked, to replace `name`.
fn make(dir: &Path, name: &str) -> Result<(DirectoryLock, PathBuf), OpenError> {
    let fresh = dir.join(format!("{name}.{}", std::process::id()));
    match fs::remove_file(&fresh) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(OpenError::io(&fresh, e)),
        _ => {}
    }
    let fd = open(&fresh, OFlags::EXCL)?;
    try_lock(&fd).map_err(|e| OpenError::io(&fresh, e))?;
    Ok((note_own(dir, name, fd)?, fresh))
}

/// The user whom the directory belongs to.
fn owner(dir: &Path) -> Result<u32, OpenError> {
    Ok(fs::metadata(dir).map_err(|e| OpenError::io(dir, e))?.uid())
}

/// Locks it, or `by_force` another file that replaces it if somebody has locked it; whether that was so.
pub(crate) fn take_or_replace(dir: &Path, name: &str, by_force: bool) -> Result<(DirectoryLock, bool), OpenError> {
    match take(dir, name) {
        Err(OpenError::InUse { .. }) if by_force => {
            let (fd, fresh) = make(dir, name)?;
            fs::rename(&fresh, dir.join(name)).map_err(|e| OpenError::io(&dir.join(name), e))?;
            Ok((fd, true))
        }
        locked => Ok((locked?, false)),
    }
}

/// Takes a lock that is free, or becomes so in a moment: if the last holder was killed, a program that it was just starting has
/// its descriptors until it runs.
fn try_lock(fd: &OwnedFd) -> Result<(), Errno> {
    for _ in 0..TRIES {
        match rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(TRIED_EVERY),
            other => return other,
        }
    }
    Err(Errno::WOULDBLOCK)
}

/// The process that has the lock, and its user, if the kernel tells: it does so of processes that live on this host, in this
/// process's view of them.
fn holder(fd: &OwnedFd) -> Option<(u32, u32)> {
    let file = rustix::fs::fstat(fd).ok()?;
    let pid = holder_among(&fs::read_to_string("/proc/locks").ok()?, &file)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // The real user: whoever started a program that takes another's rights is still who locked.
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok())?;
    Some((pid, uid))
}

/// Of locks as `/proc/locks` tells them, the process with one by `flock` on `file`.
fn holder_among(locks: &str, file: &Stat) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(file.st_dev), rustix::fs::minor(file.st_dev));
    let inode = format!("{major:02x}:{minor:02x}:{}", file.st_ino);
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Those who wait have an arrow before the kind.
        let [_, "FLOCK", _, _, pid, at, ..] = words[..] else { return None };
        if at == inode { pid.parse().ok().filter(|pid| *pid != 0) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_that_was_replaced_can_be_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let old = open(&path, OFlags::empty()).unwrap();
        try_lock(&old).unwrap();
        let ino_of = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        let there = || rustix::fs::stat(&path).unwrap().st_ino;
        for put in [exchange, replace] {
            let (fd, fresh) = make(dir.path(), "lock").unwrap();
            let aside = put(&fresh, &path).unwrap();
            assert_eq!(there(), ino_of(&fd.0));
            rustix::fs::rename(&aside, &path).unwrap();
            assert_eq!(there(), ino_of(&old), "it is locked, and the other one is gone");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn whoever_has_a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let held = take(dir.path(), "lock").unwrap();
        let copy = held.0.try_clone().unwrap();
        assert!(matches!(take(dir.path(), "lock"), Err(OpenError::InUse { .. })));
        drop(held);
        drop(take(dir.path(), "lock").unwrap());
        drop(copy);
    }

    #[test]
    fn the_holder_is_found_among_locks_of_other_kinds_and_files() {
        let file = tempfile::tempfile().unwrap();
        let mut stat = rustix::fs::fstat(&file).unwrap();
        (stat.st_dev, stat.st_ino) = (rustix::fs::makedev(8, 17), 42);
        let locks = "1: POSIX  ADVISORY  WRITE 10 08:11:42 0 EOF\n2: FLOCK  ADVISORY  WRITE 11 08:11:43 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 12 08:11:42 0 EOF\n4: FLOCK  ADVISORY  WRITE 13 08:11:42 0 EOF\n";
        assert_eq!(holder_among(locks, &stat), Some(13));
        assert_eq!(holder_among("4: FLOCK  ADVISORY  WRITE 0 08:11:42 0 EOF", &stat), None);
        assert_eq!(holder_among("nonsense", &stat), None);
    }
}
