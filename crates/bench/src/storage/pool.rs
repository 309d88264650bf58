//! The files that contests read and write: one set without us and one through us, of the same sizes, side by side in
//! the same file system.

use crate::harness::Harness;
use crate::server::ServerProcess;
use crate::storage::place::Place;
use anyhow::{Context, Result};
use isonomia_client::{Claims, Client, ClientConfig, Ino, OpenHow, access};
use isonomia_units::Nanos;
use rustix::fs::{Advice, AtFlags, Mode, OFlags, StatxFlags};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const FILL_BYTES: u64 = 1 << 20;
const FILE_MODE: u32 = 0o600;
const TIMEOUT: Nanos = Nanos(60_000_000_000);
/// A tree that is deeper than this is none of ours.
const TREE_DEPTH_MAX: u32 = 16;

/// Files of one size.
#[derive(Clone, Debug)]
pub struct Pool {
    pub files: usize,
    pub file_bytes: u64,
    /// Where those lie that we have nothing to do with.
    plain: PathBuf,
}

impl Pool {
    /// Below `place`, nothing of it filled yet.
    pub fn new(place: &Place, files: usize, file_bytes: u64) -> Self {
        Self { files, file_bytes, plain: place.dir().join("plain") }
    }

    /// The files in `plain`, of which nothing goes through us.
    #[cfg(test)]
    pub fn of_plain(plain: PathBuf, files: usize, file_bytes: u64) -> Self {
        Self { files, file_bytes, plain }
    }

    /// Where programs find the files without us.
    pub fn plain(&self) -> &Path {
        &self.plain
    }

    /// Names of the files, the same in both sets.
    pub fn names(&self) -> Vec<String> {
        (0..self.files).map(name).collect()
    }

    /// Makes and fills the files without us.
    pub fn fill_plain(&self, session: &Harness) -> Result<()> {
        std::fs::create_dir(&self.plain).with_context(|| format!("cannot create {}", self.plain.display()))?;
        let block = block();
        for name in self.names() {
            session.check()?;
            let open = File::create_new(self.plain.join(&name))?;
            for offset in self.offsets() {
                open.write_all_at(&block[..self.len(offset)], offset).with_context(|| name.clone())?;
            }
            open.sync_all()?;
        }
        Ok(())
    }

    /// Makes and fills the files through us; their inodes.
    pub fn fill_served(&self, session: &Harness, server: &ServerProcess) -> Result<Vec<Ino>> {
        let claims = Claims { job: Some("fill".to_owned()), ..Claims::default() };
        let address = server.endpoints().unix.clone();
        let client = Client::new(ClientConfig { addresses: vec![address], timeout: TIMEOUT, claims, key_file: None });
        let how =
            OpenHow { access: access::WRITE, create: true, exclusive: true, mode: FILE_MODE, ..OpenHow::default() };
        let block = block();
        (0..self.files)
            .map(|number| {
                session.check()?;
                let file = client.open(Ino::ROOT, name(number).as_bytes(), &how)?;
                for offset in self.offsets() {
                    client.write_at(&file, offset, &block[..self.len(offset)])?;
                }
                client.sync(&file, false)?;
                let ino = Ino(file.capability.ino);
                client.release(ino, 0)?;
                Ok(ino)
            })
            .collect()
    }

    fn offsets(&self) -> impl Iterator<Item = u64> + use<> {
        (0..self.file_bytes).step_by(FILL_BYTES as usize)
    }

    fn len(&self, offset: u64) -> usize {
        FILL_BYTES.min(self.file_bytes - offset) as usize
    }
}

fn name(number: usize) -> String {
    format!("data-{number}")
}

fn block() -> Vec<u8> {
    (0..FILL_BYTES).map(|i| (i % 251) as u8).collect()
}

/// Brings everything below these directories to stable storage, and has the kernel forget it: what is read next comes
/// from the device. Other files' pages stay, as other programs may need them.
pub fn forget(dirs: &[PathBuf]) -> Result<()> {
    for dir in dirs {
        let opened = File::open(dir).with_context(|| dir.display().to_string())?;
        rustix::fs::syncfs(&opened)?;
    }
    let forget = &mut |file: OwnedFd| Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?);
    dirs.iter().try_for_each(|dir| for_each_file(dir, TREE_DEPTH_MAX, forget))
}

/// Files whose pages the kernel is to forget again and again: they stay open, since on a busy file system in user space it takes
/// longer to open all of them than a contest takes.
pub struct Cached(Vec<OwnedFd>);

impl Cached {
    /// All files below these directories.
    pub fn open(dirs: &[PathBuf]) -> Result<Self> {
        let mut files = Vec::new();
        let keep = &mut |file| {
            files.push(file);
            Ok(())
        };
        dirs.iter().try_for_each(|dir| for_each_file(dir, TREE_DEPTH_MAX, keep))?;
        Ok(Self(files))
    }

    /// Has the kernel forget the files that nobody has written to since `since`: it would begin to write back what it has of the
    /// others, all at once. Nobody is asked but the kernel: a file system of which that does not know when a file was changed keeps
    /// nothing of it that could be written back.
    pub fn forget_unchanged(&self, since: SystemTime) -> Result<()> {
        let since_s = since.duration_since(UNIX_EPOCH)?.as_secs();
        for file in &self.0 {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            let found = rustix::fs::statx(file, c"", flags, StatxFlags::MTIME)?;
            // Whole seconds tell enough: who writes, writes all the time.
            if u64::try_from(found.stx_mtime.tv_sec).unwrap_or(0) < since_s {
                rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?;
            }
        }
        Ok(())
    }
}

fn for_each_file(dir: &Path, depth: u32, act: &mut dyn FnMut(OwnedFd) -> Result<()>) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 0 {
            for_each_file(&entry.path(), depth - 1, act)?;
        } else if kind.is_file() {
            // A file may have gone since the directory was read.
            let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::CLOEXEC;
            if let Ok(file) = rustix::fs::open(entry.path(), flags, Mode::empty()) {
                act(file)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{ReadWriteFlags, preadv2};
    use std::io::IoSliceMut;

    fn is_in_memory(file: &File) -> bool {
        preadv2(file, &mut [IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT).is_ok()
    }

    #[test]
    fn what_was_read_is_forgotten_and_what_was_written_meanwhile_is_not() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("below");
        std::fs::create_dir(&dir).unwrap();
        let make = |name| {
            std::fs::write(dir.join(name), [1; 4096]).unwrap();
            let file = File::options().read(true).write(true).open(dir.join(name)).unwrap();
            file.sync_all().unwrap();
            file
        };
        let (read, written) = (make("read"), make("written"));
        let long_ago = SystemTime::now() - std::time::Duration::from_secs(100);
        read.set_modified(long_ago).unwrap();
        let began = SystemTime::now() - std::time::Duration::from_secs(10);
        let cached = Cached::open(&[home.path().to_owned()]).unwrap();
        read.sync_all().unwrap();
        assert!(is_in_memory(&read) && is_in_memory(&written));
        cached.forget_unchanged(began).unwrap();
        if is_in_memory(&read) {
            return isonomia_testbed::skip("a file system that is in memory");
        }
        assert!(is_in_memory(&written));
    }
}
