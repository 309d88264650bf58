//! Names in directories: looking one up, listing all.
//!
//! An entry's cookie is a 62-bit keyed hash of directory and name. Keyed, so that nobody can choose names that
//! collide; 62 bits, so that it fits the signed offsets of `telldir`. Entries with equal cookies (one pair expected in
//! a directory of two thousand million names) are never parted by the end of a page.

use crate::database::{Database, Entry, EntryKey};
use crate::inode::{Inode, UNLINKED};
use crate::permission::MAY_READ;
use crate::record::Body;
use crate::{Caller, Namespace, StoreError};
use isonomia_proto::NAME_LEN_MAX;
use isonomia_proto::fs::{DirEntry, FileKind};
use isonomia_units::Ino;
use siphasher::sip::SipHasher13;
use std::hash::Hasher as _;
use std::sync::Arc;

const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;
const COOKIE_NAMES: u64 = 3;

/// What the cache remembers of a name; without an entry that it does not exist.
#[derive(Clone)]
pub(crate) struct CachedEntry {
    dir: u64,
    name: Arc<[u8]>,
    entry: Option<Entry>,
}

/// The key of `name` in `dir`, by the hash of the store.
pub(crate) fn entry_key<'n>(names: &SipHasher13, dir: u64, name: &'n [u8]) -> EntryKey<'n> {
    let mut hasher = *names;
    hasher.write_u64(dir);
    hasher.write(name);
    EntryKey { dir, cookie: (hasher.finish() >> 2).max(COOKIE_NAMES), name }
}

impl Namespace {
    /// Entries of the directory `ino` after `cookie` (0: from the start), as many as fit `bytes_max` encoded bytes;
    /// none at the end. Names that exist throughout the listing are given exactly once.
    ///
    /// The caller must be allowed to read the directory; a server that lets a capability decide lists as
    /// [`Caller::ROOT`].
    pub fn read_dir(
        &self,
        caller: &Caller<'_>,
        ino: Ino,
        cookie: u64,
        bytes_max: usize,
    ) -> Result<Vec<DirEntry>, StoreError> {
        let namespace = self.share();
        let dir = self.load(ino.0)?;
        self.check_root_itself(&dir)?;
        let record = dir.record().clone();
        let Body::Directory { parent, .. } = record.body else { return Err(StoreError::NotDirectory) };
        caller.check(&record, MAY_READ)?;
        if dir.has(UNLINKED) {
            return Err(StoreError::NotFound);
        }
        let mut page = Page { entries: Vec::new(), bytes_left: bytes_max, full: false };
        for (at, ino, name) in [(COOKIE_SELF, dir.ino, "."), (COOKIE_PARENT, parent, "..")] {
            if cookie < at {
                page.add(at, Entry { ino, kind: FileKind::Directory }, name.as_bytes());
            }
        }
        let from = cookie.saturating_add(1).max(COOKIE_NAMES);
        if !page.full {
            list(&self.db, dir.ino, from, &mut page)?;
        }
        drop(namespace);
        if page.full && page.entries.is_empty() { Err(StoreError::Invalid) } else { Ok(page.entries) }
    }

    /// The key of `name` in `dir`.
    pub(crate) fn entry_key<'n>(&self, dir: u64, name: &'n [u8]) -> EntryKey<'n> {
        entry_key(&self.cookies, dir, name)
    }

    /// The entry `name` of `dir`. The caller has the namespace lock.
    pub(crate) fn look_up(&self, dir: &Inode, name: &[u8]) -> Result<Option<Entry>, StoreError> {
        if name.len() > NAME_LEN_MAX {
            return Err(StoreError::NameTooLong);
        }
        if dir.has(UNLINKED) {
            return Ok(None);
        }
        let key = self.entry_key(dir.ino, name);
        let known = |cached: &CachedEntry| (cached.dir == dir.ino && *cached.name == *name).then_some(cached.entry);
        if let Some(entry) = self.entries.read(key.cookie, known) {
            return Ok(entry);
        }
        let entry = self.db.entry(key)?;
        self.remember(key, entry);
        Ok(entry)
    }

    /// Keeps what is known of a name. The caller has the namespace lock, and the database agrees.
    pub(crate) fn remember(&self, key: EntryKey<'_>, entry: Option<Entry>) {
        self.entries.put(key.cookie, CachedEntry { dir: key.dir, name: key.name.into(), entry });
    }

    /// Whether `dir` has no names. The caller has the namespace lock.
    pub(crate) fn is_empty(&self, dir: u64) -> Result<bool, StoreError> {
        let mut empty = true;
        self.db.entries(dir, 0, |_, _| {
            empty = false;
            false
        })?;
        Ok(empty)
    }
}

struct Page {
    entries: Vec<DirEntry>,
    bytes_left: usize,
    full: bool,
}

fn list(db: &Database, dir: u64, from: u64, page: &mut Page) -> Result<(), StoreError> {
    db.entries(dir, from, |key, entry| page.add(key.cookie, entry, key.name))
}

impl Page {
    /// Adds an entry; false when there is no room for it.
    fn add(&mut self, cookie: u64, entry: Entry, name: &[u8]) -> bool {
        let Some(left) = self.bytes_left.checked_sub(DirEntry::FIXED_LEN + name.len()).filter(|_| !self.full) else {
            self.full = true;
            // Half of a group with the same cookie: the next page would begin after the group.
            while self.entries.last().is_some_and(|last| last.cookie == cookie) {
                self.entries.pop();
            }
            return false;
        };
        self.bytes_left = left;
        self.entries.push(DirEntry { ino: Ino(entry.ino), cookie, kind: entry.kind, name: name.to_vec() });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_one_cookie_are_not_parted() {
        let entry = Entry { ino: 9, kind: FileKind::Regular };
        let each = DirEntry::FIXED_LEN + 1;
        let mut page = Page { entries: Vec::new(), bytes_left: 3 * each, full: false };
        assert!(page.add(5, entry, b"a"));
        assert!(page.add(7, entry, b"b"));
        assert!(page.add(7, entry, b"c"));
        assert!(!page.add(7, entry, b"d"));
        let names: Vec<_> = page.entries.iter().map(|e| e.name.as_slice()).collect();
        assert_eq!(names, [b"a"]);
    }
}
