//! What is not below the root: inodes without a name, and directories that are below themselves.

use super::{Checker, Seen};
use crate::StoreError;
use crate::database::Entry;
use crate::directory::entry_key;
use crate::record::Body;
use isonomia_proto::fs::FileKind;
use isonomia_units::{Ino, VolumeId};
use std::collections::{HashMap, HashSet};

/// The directory for what has no name, in the root.
const LOST_AND_FOUND: &[u8] = b"lost+found";
const LOST_AND_FOUND_MODE: u32 = 0o700;

pub(super) struct LostAndFound {
    ino: u64,
    /// What is in it.
    names: HashSet<Vec<u8>>,
}

impl Checker<'_, '_> {
    /// Directories that have names and are below themselves: nobody comes there from the root. One of each circle moves, and
    /// the others with it.
    pub(super) fn circles(&mut self, seen: &HashMap<u64, Seen>) -> Result<(), StoreError> {
        let is_directory = |ino: &&u64| seen[*ino].kind == FileKind::Directory;
        let mut directories: Vec<u64> = seen.keys().filter(is_directory).copied().collect();
        directories.sort_unstable();
        // They are below the root, or will be, once what stands above them is.
        let mut known = HashSet::from([Ino::ROOT.0]);
        for ino in directories {
            let (mut way, mut at) = (Vec::new(), Some(ino));
            let mut on_way = HashSet::new();
            while let Some(next) = at.filter(|next| !known.contains(next) && on_way.insert(*next)) {
                way.push(next);
                at = seen.get(&next).and_then(|seen| seen.parent);
            }
            // The first directory that was met twice: all from there on are the circle.
            let circle = at.and_then(|met| way.iter().position(|step| *step == met)).map(|first| &way[first..]);
            if let Some(moved) = circle.and_then(|circle| circle.iter().min().copied()) {
                self.break_circle(moved, seen[&moved].parent)?;
            }
            known.extend(way);
        }
        Ok(())
    }

    fn break_circle(&mut self, ino: u64, parent: Option<u64>) -> Result<(), StoreError> {
        let name = format!("inode-{ino:x}");
        let what = format!("directory {ino} is below itself");
        if !self.found("circle", Some(ino), what, Some(format!("move it to /lost+found/{name}"))) {
            return Ok(());
        }
        let Some(parent) = parent else { return Ok(()) };
        let (mut keys, names) = (Vec::new(), self.names);
        self.db.entries(parent, 0, |key, entry| {
            if entry.ino == ino {
                // As it is, and as it is to be.
                keys.extend([key.encode(), entry_key(&names, parent, key.name).encode()]);
            }
            true
        })?;
        self.entries.extend(keys.into_iter().map(|key| (key, None)));
        self.record(parent)?.nlink -= 1;
        self.put_into_lost_and_found(ino, name.as_bytes())
    }

    pub(super) fn put_into_lost_and_found(&mut self, ino: u64, name: &[u8]) -> Result<(), StoreError> {
        let mut lost_and_found = match self.lost_and_found.take() {
            Some(made) => made,
            None => self.make_lost_and_found()?,
        };
        let dir = lost_and_found.ino;
        // Somebody may have called something else so.
        let mut free = name.to_vec();
        while !lost_and_found.names.insert(free.clone()) {
            free.push(b'~');
        }
        self.lost_and_found = Some(lost_and_found);
        let record = self.record(ino)?;
        let kind = record.kind();
        if let Body::Directory { parent, name: own } = &mut record.body {
            (*parent, *own) = (dir, free[..].into());
        } else {
            record.nlink = 1;
        }
        if kind == FileKind::Directory {
            self.record(dir)?.nlink += 1;
        }
        self.entries.insert(entry_key(&self.names, dir, &free).encode(), Some(Entry { ino, kind }));
        Ok(())
    }

    /// The directory that is called so, or a new one.
    fn make_lost_and_found(&mut self) -> Result<LostAndFound, StoreError> {
        let root = Ino::ROOT.0;
        let in_root = self.names_in(root)?;
        let mut free = LOST_AND_FOUND.to_vec();
        while let Some(entry) = in_root.get(&free) {
            if entry.kind == FileKind::Directory {
                let names = self.names_in(entry.ino)?.into_keys().collect();
                return Ok(LostAndFound { ino: entry.ino, names });
            }
            free.push(b'~');
        }
        let number = self.db.next_number()?.unwrap_or(root + 1);
        let new = Ino::new(VolumeId::ROOT, number).0;
        let mut record = self.record(root)?.clone();
        self.record(root)?.nlink += 1;
        record.mode = FileKind::Directory.mode_bits() | LOST_AND_FOUND_MODE;
        (record.nlink, record.has_xattrs) = (2, false);
        record.body = Body::Directory { parent: root, name: free[..].into() };
        self.records.insert(new, record);
        let entry = Entry { ino: new, kind: FileKind::Directory };
        self.entries.insert(entry_key(&self.names, root, &free).encode(), Some(entry));
        self.change.put_next_number(number + 1);
        Ok(LostAndFound { ino: new, names: HashSet::new() })
    }

    /// The names in a directory that a repair leaves there.
    fn names_in(&self, dir: u64) -> Result<HashMap<Vec<u8>, Entry>, StoreError> {
        let mut found = HashMap::new();
        self.db.entries(dir, 0, |key, entry| {
            // One that is written anew is removed from its old directory.
            let right_key = entry_key(&self.names, dir, key.name).encode();
            let changed = [right_key, key.encode()].iter().find_map(|key| self.entries.get(key).copied());
            if let Some(entry) = changed.unwrap_or(Some(entry)) {
                found.insert(key.name.to_vec(), entry);
            }
            true
        })?;
        Ok(found)
    }
}
