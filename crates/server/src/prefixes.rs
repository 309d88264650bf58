//! Which files lie below the directories that rules of the policy name, and those of a policy that decides beside it ([`crate::shadow`]).
//!
//! Policies without such rules cost a request nothing but a look at an empty list. Under one, an operation that names a path is looked
//! at by that path as it is written, from where it begins (`..` is taken back; symbolic links are not followed). One on a file
//! that is open is looked at by the directory in which the file was last found, which the store remembers while the file is in
//! memory. What was found out is kept for each inode: it is found out when the file is opened, and anew after a name has changed.
//!
//! **This waits for nothing**, since it is asked as requests are taken in, by a thread for which those of everybody wait, also of who needs no
//! metadata: a rename may keep the lock of all names for as long as the metadata's device hangs. So directories
//! are looked for in memory alone. Of one that is not there the rest of the request brings it there, and until then
//! it counts as lying where it was found before the last name changed, or else in its volume, or below nothing.
//!
//! A file that was open when the server started, and has not been opened again since, lies in its volume, and without a cluster below nothing. Nor
//! does a server know directories of volumes that another one has: of a file that is spread over several servers the others
//! know the volume alone. Of a file that has no name any more and whose directory is gone, no more is known, and of one with several
//! names that by which it was found, made or renamed last. A request that waits while rules change is judged by what was found out for the rules
//! before.

use isonomia_policy::is_below;
use isonomia_store::Store;
use isonomia_units::Ino;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Inodes that are remembered at most; then all are forgotten.
const REMEMBERED_MAX: usize = 1 << 16;

/// Directories, with the bit of each.
type Named = Arc<[(Arc<str>, u64)]>;

/// See the module.
#[derive(Debug, Default)]
pub struct Prefixes {
    /// There are some.
    are_named: AtomicBool,
    /// Grows when what was found out may be wrong.
    generation: AtomicU64,
    named: RwLock<Named>,
    /// By inode, the directories that it lies below, and the generation in which that was found out.
    known: Mutex<HashMap<u64, (u64, u64)>>,
}

impl Prefixes {
    /// The policy names these from now on, and the one beside it those: not more than [`isonomia_policy::PREFIXES_MAX`] together.
    pub fn set(&self, own: &[Arc<str>], beside: &[Arc<str>]) {
        let bits = (0..u64::BITS).map(|at| 1_u64 << at);
        // Those of a shadow begin with the highest: see `Nature::below`.
        let bits_beside = (0..u64::BITS).rev().map(|at| 1_u64 << at);
        let named = own.iter().cloned().zip(bits).chain(beside.iter().cloned().zip(bits_beside));
        *self.named.write().unwrap_or_else(PoisonError::into_inner) = named.collect();
        self.are_named.store(!(own.is_empty() && beside.is_empty()), Ordering::Release);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.forget();
        // What the bits meant they mean no more.
        known.clear();
    }

    /// A name has changed, and whatever lies below it with it.
    pub fn forget(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Finds out where a file lies that was just opened, when its directory is in memory; it may have been found by another name before.
    pub fn note_opened(&self, store: &Store, ino: Ino) {
        if self.are_named.load(Ordering::Acquire) {
            self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&ino.0);
            self.below(store, ino, Vec::new);
        }
    }

    /// The directories that a request for `path`, from `ino` on, is about: the bits of each, as in [`isonomia_policy::Nature::below`]. `path` is
    /// asked for only if there are any; it is empty for one that is about `ino` itself.
    pub fn below(&self, store: &Store, ino: Ino, path: impl FnOnce() -> Vec<u8>) -> u64 {
        if !self.are_named.load(Ordering::Acquire) {
            return 0;
        }
        let path = path();
        let is_itself = path.is_empty();
        let generation = self.generation.load(Ordering::Acquire);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = if is_itself { known().get(&ino.0).copied() } else { None };
        if let Some((since, below)) = before
            && since == generation
        {
            return below;
        }
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner).clone();
        let found = found(store, ino);
        if let (Some((_, below)), None | Some(Found { is_all: false, .. })) = (before, &found) {
            return below;
        }
        let Some(Found { path: start, is_all }) = found else { return 0 };
        let whole = resolved(&start, &path);
        let below = named.iter().filter(|(prefix, _)| is_below(&whole, prefix)).fold(0, |below, (_, bit)| below | bit);
        if is_itself && is_all {
            let mut known = known();
            if known.len() >= REMEMBERED_MAX {
                known.clear();
            }
            // What was looked for before a change is not what is there after it.
            if self.generation.load(Ordering::Acquire) == generation {
                known.insert(ino.0, (generation, below));
            }
        }
        below
    }
}

/// Where something lies, as far as that is known without a wait.
struct Found {
    /// Of a directory, its path; of anything else, that of the directory it is in.
    path: String,
    /// This server knows no more of it than that.
    is_all: bool,
}

fn found(store: &Store, ino: Ino) -> Option<Found> {
    if let Some(path) = store.namespace().path_in_memory(ino) {
        return Some(Found { path: String::from_utf8_lossy(&path).into_owned(), is_all: true });
    }
    let volumes = store.namespace().whereabouts()?;
    let (name, volume) = volumes.names.iter().find(|(_, volume)| **volume == ino.volume())?;
    let is_elsewhere = volumes.servers.get(volume).is_some_and(|server| *server != volumes.own);
    Some(Found { path: format!("/{}", String::from_utf8_lossy(name)), is_all: is_elsewhere })
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
