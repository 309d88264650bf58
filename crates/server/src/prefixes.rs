//! Which files lie below the directories that rules of the policy name.
//!
//! A policy without such rules costs a request nothing but a look at an empty list. Under one, an operation that names a path is looked
//! at by that path as it is written, from where it begins (`..` is taken back; symbolic links are not followed). One on a file
//! that is open is looked at by the directory in which the file was last found, which the store remembers while the file is in
//! memory. What was found out is kept for each inode, until a name changes or the policy does.
//!
//! A file that was open when the server started, and has not been opened again since, lies below nothing. Nor
//! does a server know directories of volumes that another one has: of a file that is spread over several servers the others
//! know the volume alone. Of a file that has no name any more and whose directory is gone, nothing is known, and of one with several
//! names that by which it was found, made or renamed last. A request that waits while rules change is judged by what was found out for the rules
//! before.

use isonomia_policy::is_below;
use isonomia_units::Ino;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Inodes that are remembered at most; then all are forgotten.
const REMEMBERED_MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug, Default)]
pub struct Prefixes {
    /// There are some.
    are_named: AtomicBool,
    /// Grows when what was found out may be wrong.
    generation: AtomicU64,
    named: RwLock<Arc<[Arc<str>]>>,
    /// By inode, the directories that it lies below.
    known: Mutex<HashMap<u64, u64>>,
}

impl Prefixes {
    /// The policy names these from now on.
    pub fn set(&self, named: Vec<Arc<str>>) {
        let are_named = !named.is_empty();
        *self.named.write().unwrap_or_else(PoisonError::into_inner) = named.into();
        self.are_named.store(are_named, Ordering::Release);
        self.begin_anew();
    }

    /// A name has changed, and whatever lies below it with it.
    pub fn forget(&self) {
        if self.are_named.load(Ordering::Acquire) {
            self.begin_anew();
        }
    }

    fn begin_anew(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.generation.fetch_add(1, Ordering::AcqRel);
        known.clear();
    }

    /// The directories that a request for `path`, from `ino` on, is about: a bit for each of the policy's. `path` is asked for only
    /// if there are any; it is empty for one that is about `ino` itself. `path_of` tells the path of a directory, or of the one
    /// that a file is in, if that is known.
    pub fn below(&self, ino: Ino, path: impl FnOnce() -> Vec<u8>, path_of: impl FnOnce(Ino) -> Option<String>) -> u64 {
        if !self.are_named.load(Ordering::Acquire) {
            return 0;
        }
        let path = path();
        let is_itself = path.is_empty();
        if is_itself && let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&ino.0) {
            return *known;
        }
        let generation = self.generation.load(Ordering::Acquire);
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(start) = path_of(ino) else { return 0 };
        let whole = resolved(&start, &path);
        let bits = named.iter().enumerate().filter(|(_, prefix)| is_below(&whole, prefix));
        let below = bits.fold(0, |below, (at, _)| below | 1 << at);
        if is_itself {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= REMEMBERED_MAX {
                known.clear();
            }
            // What was looked for before a change is not what is there after it.
            if self.generation.load(Ordering::Acquire) == generation {
                known.insert(ino.0, below);
            }
        }
        below
    }
}

/// Where `path` leads from the directory `start`, as it is written.
fn resolved<'a>(start: &'a str, path: &[u8]) -> Cow<'a, str> {
    if path.is_empty() {
        return Cow::Borrowed(start);
    }
    let path = String::from_utf8_lossy(path);
    let mut names: Vec<&str> = Vec::new();
    for name in start.split('/').chain(path.split('/')) {
        match name {
            "" | "." => {}
            ".." => _ = names.pop(),
            name => names.push(name),
        }
    }
    Cow::Owned(format!("/{}", names.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_as_they_are_written() {
        for (start, path, expected) in
            [("/", "a/b", "/a/b"), ("/a/b", "../c//d/.", "/a/c/d"), ("/a", "../../..", "/"), ("/a", "", "/a")]
        {
            assert_eq!(resolved(start, path.as_bytes()), expected, "{start} {path}");
        }
    }
}
