//! A copy of a database to look at, so that the one in the store stays what it is.
//!
//! Whoever opens a database changes it: what follows the last whole batch of the journal is cut off, and the rest of it goes to
//! tables sooner or later. A check that repairs nothing is to leave all that as it was found. Tables are never changed once they are
//! written, and are much the larger part, so the copy has links to them.

use crate::OpenError;
use crate::durable::random_number;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Directories below each other at most.
const DEPTH_MAX: usize = 8;
/// What the directory of a keyspace has its tables in.
const TABLES: &str = "tables";

/// See the module. Gone when it is dropped.
pub(super) struct Apart(PathBuf);

impl Apart {
    /// Among the temporary files.
    pub fn of(database: &Path) -> Result<Self, OpenError> {
        let name = format!("isonomia-fsck-{:016x}", random_number(database)?);
        let apart = Self(std::env::temp_dir().join(name));
        let fail = |e| OpenError::io(&apart.0, e);
        fs::DirBuilder::new().mode(0o700).create(&apart.0).map_err(fail)?;
        let database = fs::canonicalize(database).map_err(|e| OpenError::io(database, e))?;
        copy(&database, &apart.0, DEPTH_MAX).map_err(fail)?;
        Ok(apart)
    }

    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// What a file of the copy is a copy of, if it is one.
    pub fn named(&self, path: PathBuf, database: &Path) -> PathBuf {
        match path.strip_prefix(&self.0) {
            Ok(rest) if rest.as_os_str().is_empty() => database.to_owned(),
            Ok(rest) => database.join(rest),
            Err(_) => path,
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // Links are removed, and not what they lead to.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() && depth > 0 {
            fs::create_dir(&to)?;
            copy(&from, &to, depth - 1)?;
        } else if from.parent().is_some_and(|parent| parent.ends_with(TABLES)) {
            symlink(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}
