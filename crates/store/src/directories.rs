//! Whether metadata and targets may lie where the configuration says.
//!
//! Metadata may lie on a small fast device and objects on others. What keeps a full file system from being one for good is
//! that removing files needs little space and gives some back. That holds
//!
//! * where a target is on the file system of the metadata: objects go, and with them comes room; until then there is what
//!   `emergency_space` keeps back;
//! * where the metadata are by themselves and much is kept back: nothing but they themselves can give room there, and the
//!   database writes what was removed before it can drop what that was, to journals of 128 MiB and tables beside them.
//!   So on its own a file system of less than [`APART_BYTES_MIN`] is refused. (Of one of 128 MiB that kept a
//!   thirty-second back and was full of names, three in a hundred could be removed; of one of 256 MiB that kept a quarter back,
//!   nine in ten.)
//! * where no directory lies in another: else one could not be emptied, moved, or put back without the other.
//!
//! A store that lies so already is opened, with a warning: to refuse it would help nobody.

use crate::object::DIRECTORIES_NAME;
use crate::{OpenError, StoreConfig, premises};
use rustix::fs::Stat;
use std::path::{Path, PathBuf};

/// The least file system for metadata alone.
const APART_BYTES_MIN: u64 = 512 << 20;

/// Refuses what a new store, or a new target of a store, may not have; creates nothing.
pub(crate) fn check(config: &StoreConfig) -> Result<(), OpenError> {
    // Whatever is wrong with what is there is told by who enters it.
    let known = premises::known_targets(&config.dir).ok().flatten();
    let is_new = |target| known.as_ref().is_none_or(|(_, targets)| !targets.contains(&target));
    let metadata = resolve(&config.dir);
    let mut all = vec![(None, metadata.clone())];
    for target in &config.targets {
        let dir = resolve(&target.dir);
        for (other, earlier) in &all {
            // Objects may lie beside the metadata, but not around them.
            let around = if other.is_some() { dir.clone() } else { dir.join(DIRECTORIES_NAME) };
            let (inner, outer) = if dir.starts_with(earlier) {
                (dir.clone(), earlier.clone())
            } else if earlier.starts_with(around) {
                (earlier.clone(), dir.clone())
            } else {
                continue;
            };
            let refused = OpenError::Nested { target: target.id, inner, outer };
            if is_new(target.id) || other.is_some() && dir == *earlier {
                return Err(refused);
            }
            tracing::warn!(reason = %refused, "the store is opened because it lies so already");
        }
        all.push((Some(target.id), dir));
    }
    let Some(total_bytes) = size_bytes(&metadata).filter(|bytes| *bytes < APART_BYTES_MIN) else { return Ok(()) };
    if is_apart(config) {
        let refused = OpenError::Cramped { dir: config.dir.clone(), total_bytes, least_bytes: APART_BYTES_MIN };
        if known.is_none() {
            return Err(refused);
        }
        tracing::warn!(reason = %refused, "the store is opened because it lies so already");
    }
    Ok(())
}

/// Whether no target is on the file system of the metadata.
pub(crate) fn is_apart(config: &StoreConfig) -> bool {
    let device = |dir: &Path| first_there(dir).map(|(_, found)| found.st_dev);
    let metadata = device(&config.dir);
    config.targets.iter().all(|target| device(&target.dir) != metadata)
}

fn size_bytes(dir: &Path) -> Option<u64> {
    let (path, _) = first_there(dir)?;
    rustix::fs::statvfs(path).ok().map(|host| host.f_blocks * host.f_frsize)
}

/// What there is of the way to `dir`: itself, or the nearest directory above it.
pub fn first_there(dir: &Path) -> Option<(&Path, Stat)> {
    dir.ancestors().find_map(|path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Some((path, rustix::fs::stat(path).ok()?))
    })
}

/// `dir` without symbolic links, as far as it is there.
fn resolve(dir: &Path) -> PathBuf {
    let Some((there, _)) = first_there(dir) else { return dir.to_owned() };
    let Ok(real) = there.canonicalize() else { return dir.to_owned() };
    // A relative path begins at the working directory, which is not a part of it.
    match dir.strip_prefix(there) {
        Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
        Ok(_) => real,
        Err(_) => real.join(dir),
    }
}
