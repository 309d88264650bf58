//! The files that contests read and write: one set without us and one through us, of the same sizes, side by side in
//! the same file system.

use crate::harness::Harness;
use crate::server::ServerProcess;
use crate::storage::place::Place;
use anyhow::{Context, Result};
use isonomia_client::{Claims, Client, ClientConfig, Ino, OpenHow, access};
use isonomia_units::Nanos;
use rustix::fs::{Advice, Mode, OFlags};
use std::fs::{DirEntry, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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
    dirs.iter().try_for_each(|dir| forget_tree(dir, None, TREE_DEPTH_MAX))
}

/// Has the kernel forget the files that nobody has written to since `since`: it would begin to write back what it has of the
/// others, all at once.
pub fn forget_unchanged(dirs: &[PathBuf], since: SystemTime) -> Result<()> {
    dirs.iter().try_for_each(|dir| forget_tree(dir, Some(since), TREE_DEPTH_MAX))
}

fn forget_tree(dir: &Path, unchanged_since: Option<SystemTime>, depth: u32) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 0 {
            forget_tree(&entry.path(), unchanged_since, depth - 1)?;
        } else if kind.is_file() && !was_changed(&entry, unchanged_since) {
            // A file may have gone since the directory was read.
            if let Ok(file) = rustix::fs::open(entry.path(), OFlags::RDONLY | OFlags::NOATIME, Mode::empty()) {
                rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
            }
        }
    }
    Ok(())
}

/// Whether a file was written to since; no, if it has gone meanwhile.
fn was_changed(entry: &DirEntry, since: Option<SystemTime>) -> bool {
    let changed = || entry.metadata().and_then(|metadata| metadata.modified());
    since.is_some_and(|since| changed().is_ok_and(|at| at >= since))
}
