//! Where the memory lies that stands for mapped files: a directory of this server's in the host's memory, `/dev/shm`, and the
//! names in it.
//!
//! Everybody may make a directory there, under any name that he can guess. So this one's name ends in a random number, which is
//! kept beside the metadata before there is such a directory: a server finds what the one before it left, until the host starts
//! anew, when all memory is gone. A directory counts only if it is the server's own and closed to others. Whoever has seen the
//! name can take it once the directory is gone; then there is another name. The directory stays for as long as the server runs,
//! so that nobody can do so again and again.

use isonomia_store::{fill_random, write_durably};
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
/// The file beside the metadata that has the random number: 32 hexadecimal digits.
const KEPT_IN: &str = "mapped";
const DIGITS: usize = 32;
/// Names that are tried at once, at most: each one was free a moment before.
const TRIES: u32 = 4;

/// See the module.
#[derive(Debug, Default)]
pub struct Home {
    /// None where the host has no memory for files.
    naming: Option<Naming>,
    dir: Option<(Arc<OwnedFd>, PathBuf)>,
}

/// What its names are made of.
#[derive(Debug)]
struct Naming {
    metadata: PathBuf,
    /// All but the random number.
    stem: String,
}

impl Home {
    /// That of the server whose metadata lie in `metadata`.
    pub fn of(metadata: &Path) -> Self {
        let naming = Naming::of(metadata, Path::new(MEMORY_DIR)).inspect_err(|reason| {
            tracing::warn!(%reason, "programs cannot have writable shared mappings");
        });
        Self { naming: naming.ok(), dir: None }
    }

    /// The directory, if there is one.
    pub fn find(&mut self) -> Option<Arc<OwnedFd>> {
        if self.dir.is_none() {
            self.dir = self.naming.as_ref().and_then(|naming| own(&naming.kept()?));
        }
        self.dir.as_ref().map(|(dir, _)| dir.clone())
    }

    /// The directory; made if there is none.
    pub fn open(&mut self) -> Option<Arc<OwnedFd>> {
        if self.find().is_none() {
            self.dir = self.naming.as_ref().and_then(Naming::make);
        }
        self.find()
    }

    /// The directory is not there any more.
    pub fn forget(&mut self) {
        self.dir = None;
    }
}

impl Drop for Home {
    /// Removes the directory, if nothing is in it.
    fn drop(&mut self) {
        if let Some((_, path)) = self.dir.take() {
            let _ = rustix::fs::rmdir(&path);
        }
    }
}

impl Naming {
    fn of(metadata: &Path, memory: &Path) -> Result<Self, String> {
        let shown = memory.display();
        let found = rustix::fs::statfs(memory).map_err(|errno| format!("{shown}: {errno}"))?;
        if found.f_type as i64 != TMPFS {
            return Err(format!("{shown} is no file system in memory"));
        }
        let stat = rustix::fs::stat(metadata).map_err(|errno| format!("{}: {errno}", metadata.display()))?;
        let stem = format!("{shown}/isonomia-mapped-{:x}-{:x}-", stat.st_dev, stat.st_ino);
        Ok(Self { metadata: metadata.to_owned(), stem })
    }

    /// The name that is kept.
    fn kept(&self) -> Option<PathBuf> {
        let number = std::fs::read_to_string(self.metadata.join(KEPT_IN)).ok()?;
        let is_one = number.len() == DIGITS && number.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_one.then(|| format!("{}{number}", self.stem).into())
    }

    /// Makes the directory under the name that is kept, or under another one where that is taken. Any other trouble another name
    /// would have as well, and each costs a sync.
    fn make(&self) -> Option<(Arc<OwnedFd>, PathBuf)> {
        let mut kept = self.kept();
        for _ in 0..=TRIES {
            let path = kept.take().or_else(|| self.draw())?;
            match rustix::fs::mkdir(&path, Mode::RWXU) {
                Ok(()) => return own(&path),
                Err(Errno::EXIST) => {}
                Err(errno) => {
                    tracing::warn!(path = %path.display(), %errno, "there is no directory for the memory of mapped files");
                    return None;
                }
            }
        }
        None
    }

    /// Another name, which is kept from now on.
    fn draw(&self) -> Option<PathBuf> {
        let mut number = [0; DIGITS / 2];
        let drawn = fill_random(&mut number).map_err(|error| error.to_string());
        let number = format!("{:0width$x}", u128::from_le_bytes(number), width = DIGITS);
        let kept = drawn.and_then(|()| {
            write_durably(&self.metadata, KEPT_IN, number.as_bytes()).map_err(|error| error.to_string())
        });
        match kept {
            Ok(()) => Some(format!("{}{number}", self.stem).into()),
            Err(error) => {
                tracing::warn!(error, "there is no name for the memory of mapped files");
                None
            }
        }
    }
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
    fn another_name_is_drawn_only_where_one_is_taken() {
        let (metadata, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let gone = memory.path().join("gone");
        let naming = Naming { metadata: metadata.path().to_owned(), stem: format!("{}/mapped-", gone.display()) };
        assert!(naming.make().is_none());
        let kept = naming.kept().unwrap();
        assert!(naming.make().is_none());
        assert_eq!(naming.kept().unwrap(), kept, "another name would do no better");
        std::fs::create_dir_all(&kept).unwrap();
        let (_, made) = naming.make().unwrap();
        assert_ne!(made, kept);
        assert_eq!(naming.kept().unwrap(), made);
    }

    #[test]
    fn a_directory_that_others_made_or_may_enter_is_none_of_ours() {
        if Naming::of(Path::new("/"), Path::new(MEMORY_DIR)).is_err() {
            return isonomia_testbed::skip("there is no file system in memory");
        }
        let (metadata, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in(MEMORY_DIR).unwrap());
        let home = || Home { naming: Some(Naming::of(metadata.path(), memory.path()).unwrap()), dir: None };
        let made = || std::fs::read_dir(memory.path()).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        // What could be known of a name before.
        for number in 0..16 {
            let stem = home().naming.as_ref().unwrap().stem.clone();
            std::fs::write(format!("{stem}{number}"), "").unwrap();
        }
        let mut first = home();
        assert!(first.find().is_none());
        assert!(first.open().is_some());
        let path = first.naming.as_ref().unwrap().kept().unwrap();
        assert_eq!(made().len(), 17);
        // The next server finds it, also where this one was killed.
        std::mem::forget(first);
        assert!(home().find().is_some());
        assert!(!path.exists(), "nothing was in it");
        // The name is known now.
        for squat in [
            &(|| rustix::fs::mkdir(&path, Mode::RWXU).and_then(|()| rustix::fs::chmod(&path, Mode::RWXU | Mode::RGRP)))
                as &dyn Fn() -> Result<(), Errno>,
            &|| rustix::fs::symlink(memory.path(), &path),
        ] {
            squat().unwrap();
            let mut next = home();
            assert!(next.find().is_none());
            let dir = next.open().unwrap();
            assert_eq!(rustix::fs::fstat(&dir).unwrap().st_mode & 0o777, 0o700);
            let other = next.naming.as_ref().unwrap().kept().unwrap();
            assert!(other != path && other.is_dir());
            drop(next);
            std::fs::remove_dir(&path).or_else(|_| std::fs::remove_file(&path)).unwrap();
            std::fs::write(metadata.path().join(KEPT_IN), path.to_str().unwrap().rsplit('-').next().unwrap()).unwrap();
        }
    }
}
