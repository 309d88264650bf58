//! Where the memory lies that stands for mapped files: a directory of this server's in the host's memory, `/dev/shm`, and the
//! names in it.
//!
//! The names of the directory follow from the place of the metadata, so that a server finds what the one before it left: always
//! the same ones until the host starts anew, when all memory is gone. Everybody may make a directory there, so there are
//! several names, and one counts only if it is the server's own and closed to others. It is there while there are segments.

use isonomia_units::Ino;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the host keeps files in its memory.
const MEMORY_DIR: &str = "/dev/shm";
/// What `statfs` says of file systems in memory: `TMPFS_MAGIC` of Linux's `include/uapi/linux/magic.h`.
const TMPFS: i64 = 0x0102_1994;
/// Names that the directory may have.
const NAMES: u32 = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct Home {
    /// None where the host has no memory for files.
    names: Vec<PathBuf>,
    /// While there are segments.
    dir: Option<(Arc<OwnedFd>, PathBuf)>,
}

impl Home {
    /// That of the server whose metadata lie in `metadata`.
    pub fn of(metadata: &Path) -> Self {
        let names = names(metadata).unwrap_or_else(|reason| {
            tracing::warn!(%reason, "programs cannot have writable shared mappings");
            Vec::new()
        });
        Self { names, dir: None }
    }

    /// The directory, if there is one.
    pub fn find(&mut self) -> Option<Arc<OwnedFd>> {
        if self.dir.is_none() {
            self.dir = self.names.iter().find_map(|path| own(path));
        }
        self.dir.as_ref().map(|(dir, _)| dir.clone())
    }

    /// The directory; made under the first name that no other user has taken.
    pub fn open(&mut self) -> Option<Arc<OwnedFd>> {
        let make = |path: &PathBuf| {
            rustix::fs::mkdir(path, Mode::RWXU).ok()?;
            own(path)
        };
        if self.find().is_none() {
            self.dir = self.names.iter().find_map(make);
        }
        self.find()
    }

    /// Removes the directory, if nothing is in it.
    pub fn leave(&mut self) {
        if let Some((_, path)) = self.dir.take() {
            let _ = rustix::fs::rmdir(&path);
        }
    }
}

fn names(metadata: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |errno: Errno| format!("{MEMORY_DIR}: {errno}");
    if rustix::fs::statfs(MEMORY_DIR).map_err(failed)?.f_type as i64 != TMPFS {
        return Err(format!("{MEMORY_DIR} is no file system in memory"));
    }
    let stat = rustix::fs::stat(metadata).map_err(|errno| format!("{}: {errno}", metadata.display()))?;
    let name = |number| format!("{MEMORY_DIR}/isonomia-mapped-{:x}-{:x}-{number}", stat.st_dev, stat.st_ino).into();
    Ok((0..NAMES).map(name).collect())
}

/// The directory of this name, if it is the server's own and closed to other users.
fn own(path: &Path) -> Option<(Arc<OwnedFd>, PathBuf)> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let dir = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&dir).ok()?;
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0;
    is_own.then(|| (Arc::new(dir), path.to_owned()))
}

/// Of the segment of an inode: no other inode ever has both numbers.
pub fn name(ino: Ino, generation: u32) -> String {
    format!("{:016x}.{generation:08x}", ino.0)
}

/// The inode and its generation that [`name`] made the text of.
pub fn parse(text: &str) -> Option<(Ino, u32)> {
    let (ino, generation) = text.split_once('.')?;
    let parsed = (Ino(u64::from_str_radix(ino, 16).ok()?), u32::from_str_radix(generation, 16).ok()?);
    (name(parsed.0, parsed.1) == text).then_some(parsed)
}

/// All names in the directory.
pub fn names_in(dir: &OwnedFd) -> Vec<String> {
    let read = rustix::fs::Dir::read_from(dir).inspect_err(|errno| {
        tracing::error!(%errno, "cannot look for the memory of mapped files");
    });
    let entries = read.into_iter().flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    names.filter(|name| name != "." && name != "..").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_inodes_and_nothing_else_is_a_name() {
        assert_eq!(parse(&name(Ino(0x15a), 0x3f0c_29d1)), Some((Ino(0x15a), 0x3f0c_29d1)));
        for other in ["", ".", "15a.3f0c29d1", "000000000000015A.3f0c29d1", "000000000000015a.3f0c29d1.0", "x.y"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_directory_that_others_made_or_may_enter_is_none_of_ours() {
        let base = tempfile::tempdir().unwrap();
        let names: Vec<PathBuf> = (0..3).map(|number| base.path().join(number.to_string())).collect();
        let mut home = Home { names: names.clone(), dir: None };
        assert!(home.find().is_none());
        rustix::fs::mkdir(&names[0], Mode::RWXU | Mode::RGRP).unwrap();
        rustix::fs::chmod(&names[0], Mode::RWXU | Mode::RGRP).unwrap();
        std::os::unix::fs::symlink(base.path(), &names[1]).unwrap();
        assert!(home.find().is_none());
        assert!(home.open().is_some() && names[2].is_dir());
        home.leave();
        assert!(!names[2].exists() && names[0].exists());
    }
}
