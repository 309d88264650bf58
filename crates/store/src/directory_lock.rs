//! The locks (`flock`) of the directories of a store, in files that hold the process id of whoever has them.

use crate::OpenError;
use rustix::fs::{FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

const TRIES: u32 = 20;
const TRIED_EVERY: Duration = Duration::from_millis(5);

/// Locks the file `name` in `dir`; it is created if there is none.
pub(crate) fn take(dir: &Path, name: &str) -> Result<OwnedFd, OpenError> {
    let path = dir.join(name);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).map_err(|e| OpenError::io(&path, e))?;
    match try_lock(&fd) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let pid = fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
            let users = [0, rustix::process::geteuid().as_raw(), owner(dir)?];
            return Err(match holder(&fd).filter(|(_, uid)| !users.contains(uid)) {
                Some((pid, uid)) => OpenError::Locked { path, pid, uid },
                None => OpenError::InUse { dir: dir.to_owned(), pid },
            });
        }
        Err(e) => return Err(OpenError::io(&path, e)),
    }
    let mut file = File::from(fd);
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(|e| OpenError::io(&path, e))?;
    Ok(file.into())
}

/// The user whom the directory belongs to.
fn owner(dir: &Path) -> Result<u32, OpenError> {
    Ok(fs::metadata(dir).map_err(|e| OpenError::io(dir, e))?.uid())
}

/// Locks it, or with `replace` another file that takes its place if somebody has locked it; whether that was so.
pub(crate) fn take_or_replace(dir: &Path, name: &str, replace: bool) -> Result<(OwnedFd, bool), OpenError> {
    match take(dir, name) {
        Err(OpenError::InUse { .. } | OpenError::Locked { .. }) if replace => {
            let fresh = format!("{name}.{}", std::process::id());
            let fd = take(dir, &fresh)?;
            fs::rename(dir.join(&fresh), dir.join(name)).map_err(|e| OpenError::io(&dir.join(name), e))?;
            Ok((fd, true))
        }
        locked => Ok((locked?, false)),
    }
}

/// Takes a lock that is free, or becomes so in a moment: a program that the last holder was just starting has the holder's
/// descriptors until it runs.
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
    let place = format!("{major:02x}:{minor:02x}:{}", file.st_ino);
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Those who wait have an arrow before the kind.
        let [_, "FLOCK", _, _, pid, at, ..] = words[..] else { return None };
        if at == place { pid.parse().ok().filter(|pid| *pid != 0) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
