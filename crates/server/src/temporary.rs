//! The directory of a server that was given none: it is gone with the server.

use crate::{StartError, clock};
use std::path::{Path, PathBuf};

/// A fresh directory in memory if there is one, else among the temporary files.
pub fn create() -> Result<PathBuf, StartError> {
    let base = Path::new("/dev/shm");
    let base = if base.is_dir() { base.to_owned() } else { std::env::temp_dir() };
    let unique = clock::now().0;
    let dir = base.join(format!("isonomia-{}-{unique:x}", std::process::id()));
    let created = std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir);
    match created {
        Ok(()) => Ok(dir),
        Err(error) => Err(StartError::System { what: "cannot create a temporary directory", error }),
    }
}

/// Removes it with all that is in it.
pub fn remove(dir: &Path) {
    if let Err(error) = std::fs::remove_dir_all(dir) {
        tracing::warn!(dir = %dir.display(), %error, "cannot remove the temporary directory");
    }
}
