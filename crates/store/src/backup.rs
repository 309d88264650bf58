//! A copy of the metadata, made while the store is used.
//!
//! The copy is what there was at one moment: a snapshot of all tables is written into a new database, while changes go on.
//! It is made under another name and gets its own when all of it is on stable storage, so what is called so is whole.
//!
//! It is put back instead of `<dir>`, with the targets as they are. They know of later syncs ([`crate::witness`]), so
//! `check` comes before the next start. Files that rest are settled first ([`Store::settle`]), so the copy knows how long they are. What it says
//! of files that were being written is as after a power cut at that moment, with the bytes that they have now.

use crate::premises::Premises;
use crate::{Store, StoreError, witness};
use rustix::fs::{Mode, OFlags, RenameFlags};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Of the directory while it is written.
const PART: &str = ".part";

impl Store {
    /// Writes a copy of the metadata to `dir`, which must not exist. Nothing is left of one that fails, or that ends because
    /// `is_stopping` was set. Tells how many syncs the copy has.
    pub fn backup(&self, dir: &Path, is_stopping: &AtomicBool) -> Result<u64, StoreError> {
        let mut part = dir.as_os_str().to_owned();
        part.push(PART);
        let part = PathBuf::from(part);
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |errno: rustix::io::Errno| StoreError::Io { path, source: errno.into() }
        };
        // Before all the work.
        match rustix::fs::lstat(dir) {
            Err(rustix::io::Errno::NOENT) => {}
            Ok(_) => return Err(fail(dir)(rustix::io::Errno::EXIST)),
            Err(errno) => return Err(fail(dir)(errno)),
        }
        rustix::fs::mkdir(&part, Mode::from_raw_mode(0o700)).map_err(fail(&part))?;
        let written = self.write_copy(&part, is_stopping).and_then(|number| {
            let (from, to) = (&part, dir);
            rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, RenameFlags::NOREPLACE)
                .map_err(fail(dir))?;
            sync_file_system(dir)?;
            Ok(number)
        });
        written.inspect_err(|_| {
            if let Err(error) = std::fs::remove_dir_all(&part) {
                tracing::warn!(dir = %part.display(), %error, "what there is of a copy of the metadata cannot be removed");
            }
        })
    }

    fn write_copy(&self, part: &Path, is_stopping: &AtomicBool) -> Result<u64, StoreError> {
        // The copy says of a file what its record says: its size, once it rests.
        self.settle_what_rests()?;
        let number = self.db.copy_to(&part.join("db"), is_stopping)?;
        let write = |name: &str, content: &[u8]| {
            let path = part.join(name);
            std::fs::write(&path, content).map_err(|source| StoreError::Io { path, source })
        };
        write(witness::NAME, &witness::text(number))?;
        for (name, content) in self.premises.files()? {
            write(name, &content)?;
        }
        sync_file_system(part)?;
        Ok(number)
    }
}

impl Premises {
    /// Identity and keys, by the names of their files.
    fn files(&self) -> Result<Vec<(&'static str, Vec<u8>)>, StoreError> {
        let read = |name| {
            let path = self.path.join(name);
            std::fs::read(&path).map(|content| (name, content)).map_err(|source| StoreError::Io { path, source })
        };
        [crate::premises::IDENTITY, crate::secret::NAME].into_iter().map(read).collect()
    }
}

/// Everything below `dir`, and its name.
fn sync_file_system(dir: &Path) -> Result<(), StoreError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let synced = rustix::fs::open(dir, flags, Mode::empty()).and_then(rustix::fs::syncfs);
    synced.map_err(|e| StoreError::Io { path: dir.to_owned(), source: e.into() })
}
