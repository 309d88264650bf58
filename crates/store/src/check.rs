//! Checking a store that no server uses, and repairing what can be without destroying anything.
//!
//! What is checked: the identity files and keys (by opening them), that every record and entry can be read, that names
//! lead to inodes of their kind, that link counts and the names of directories are right, that every inode has a name,
//! that the objects that records tell of are there and as long as their checksums say, that no object belongs to nobody,
//! and, if asked for, every block.
//!
//! What a stop that was not clean leaves (marks, orphans, unsettled files) is not an error: the next start works it off.
//! An object of nobody would be removed by that start as one whose creation a power cut undid; a repair sets it aside in
//! `lost+found` of its target instead.
//!
//! A repair changes the database in one batch and moves files, and removes nothing that could be wanted: a file without a
//! name gets one in `/lost+found`; a name that leads nowhere goes, for there is nothing behind it. Lost and damaged
//! blocks stay what they are, as nobody has the right ones; a lost or damaged sidecar is made anew from the object as it
//! is, at the next start of the server.
//!
//! Memory: about 50 bytes for each inode.

use crate::blocks::{BlockFault, Blocks, Watch};
use crate::database::{Change, Database, Entry};
use crate::directory::entry_key;
use crate::object::{DIRECTORIES, ObjectsId, Targets};
use crate::premises::Premises;
use crate::record::{Body, Record};
use crate::reserve::Reserve;
use crate::sums::{Place, SidecarFault, Sums};
use crate::witness::Witness;
use crate::{OpenError, StoreConfig, StoreError};
use isonomia_proto::fs::{FileKind, Layout};
use isonomia_units::{Ino, ServerId};
use siphasher::sip::SipHasher13;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Blocks that are read in one go.
const BLOCKS_AT_ONCE: u64 = 256;
/// Damaged blocks of one object that are told one by one.
const BLOCKS_TOLD_MAX: usize = 4;
/// After so many objects each [`Check::progress`] is called.
const TOLD_EVERY: u64 = 10_000;
/// The directory for what has no name, in the root.
const LOST_AND_FOUND: &[u8] = b"lost+found";
const LOST_AND_FOUND_MODE: u32 = 0o700;

/// What is to be done, and who hears of it.
pub struct Check<'a> {
    /// Repair what can be.
    pub repair: bool,
    /// Read every block of every file.
    pub data: bool,
    /// Hears of everything that was found.
    pub finding: &'a mut dyn FnMut(&Finding),
    /// Hears now and then how many objects were looked at, of how many.
    pub progress: &'a mut dyn FnMut(u64, u64),
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind it is of, in a word or two; these are stable.
    pub kind: &'static str,
    /// The inode, if it is about one.
    pub ino: Option<Ino>,
    /// What was found where.
    pub what: String,
    /// What a repair does about it, or did; nothing if it cannot be repaired.
    pub repair: Option<String>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Inodes that were looked at.
    pub inodes: u64,
    /// Names.
    pub names: u64,
    /// Objects.
    pub objects: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Findings that were repaired, or would be.
    pub repairable: u64,
    /// Findings that nothing can be done about.
    pub left: u64,
}

/// What is known of an inode while names are counted.
struct Seen {
    kind: FileKind,
    nlink: u32,
    /// Names that lead to it.
    names: u32,
    /// Directories in it.
    directories: u32,
}

struct Checker<'a, 'c> {
    db: &'a Database,
    targets: &'a Targets,
    server: ServerId,
    names: SipHasher13,
    lost_and_found: Option<u64>,
    change: Change<'a>,
    /// Records that a repair changes.
    records: HashMap<u64, Record>,
    check: &'a mut Check<'c>,
    checked: Checked,
}

impl Check<'_> {
    /// Checks the store of `config`, which no server may use meanwhile.
    pub fn run(&mut self, config: &StoreConfig) -> Result<Checked, OpenError> {
        config.check()?;
        let premises = Premises::enter_existing(config)?;
        let witness = Witness::open(&config.dir, false, &premises.secret.capability)?;
        let reserve = Arc::new(Reserve::open(&config.dir)?);
        let targets = Targets::open(&config.targets, config.bounds.objects, config.checksums)?;
        let db = Database::open(config, reserve, witness)?;
        let fail = |source| OpenError::Recovery { server: config.server, source };
        let repair = self.repair;
        let mut checker = Checker {
            db: &db,
            targets: &targets,
            server: config.server,
            names: SipHasher13::new_with_key(&premises.secret.names),
            lost_and_found: None,
            change: db.change(),
            records: HashMap::new(),
            check: self,
            checked: Checked::default(),
        };
        checker.run().map_err(fail)?;
        let Checker { mut change, records, checked, .. } = checker;
        if repair && checked.repairable > 0 {
            records.iter().for_each(|(ino, record)| change.put_record(*ino, record));
            change.commit().map_err(fail)?;
        }
        if repair {
            db.sync(false).and_then(|()| db.keep_witness()).map_err(fail)?;
        }
        Ok(checked)
    }
}

impl Checker<'_, '_> {
    fn run(&mut self) -> Result<(), StoreError> {
        let mut seen = self.inodes()?;
        self.entries(&mut seen)?;
        self.links(&seen)?;
        drop(seen);
        self.objects()?;
        self.unknown_objects()
    }

    fn found(&mut self, kind: &'static str, ino: Option<u64>, what: String, repair: Option<String>) -> bool {
        *(if repair.is_some() { &mut self.checked.repairable } else { &mut self.checked.left }) += 1;
        let is_repaired = self.check.repair && repair.is_some();
        (self.check.finding)(&Finding { kind, ino: ino.map(Ino), what, repair });
        is_repaired
    }

    fn inodes(&mut self) -> Result<HashMap<u64, Seen>, StoreError> {
        let (mut seen, mut bad) = (HashMap::new(), Vec::new());
        self.db.each_raw_record(|ino, record| match record {
            Some(record) => {
                let seed = Seen { kind: record.kind(), nlink: record.nlink, names: 0, directories: 0 };
                seen.insert(ino, seed);
            }
            None => bad.push(ino),
        })?;
        self.checked.inodes = (seen.len() + bad.len()) as u64;
        for ino in bad {
            self.found("record", Some(ino), format!("the record of inode {ino} cannot be read"), None);
        }
        Ok(seen)
    }

    fn entries(&mut self, seen: &mut HashMap<u64, Seen>) -> Result<(), StoreError> {
        let db = self.db;
        let mut directories_named = HashSet::new();
        let mut wrong = Vec::new();
        db.each_entry(|key, entry| {
            self.checked.names += 1;
            let Some(entry) = entry else {
                wrong.push((key.to_vec(), "cannot be read", None));
                return;
            };
            let (dir, name) = split_key(key);
            let parent_is_dir = seen.get(&dir).is_some_and(|seen| seen.kind == FileKind::Directory);
            let child = seen.get(&entry.ino).map(|child| child.kind);
            let right_key = entry_key(&self.names, dir, name).encode();
            let fault = match child {
                None => Some(("leads to no inode", None)),
                Some(_) if !parent_is_dir => Some(("is in no directory", None)),
                Some(kind) if kind == FileKind::Directory && !directories_named.insert(entry.ino) => {
                    Some(("is a second name of a directory", None))
                }
                Some(kind) if kind != entry.kind || right_key != key => {
                    Some(("is of another kind than its inode, or in a wrong place", Some(kind)))
                }
                Some(_) => None,
            };
            if let Some((what, right)) = fault {
                let is_kept = right.is_some();
                wrong.push((key.to_vec(), what, right.map(|kind| Entry { ino: entry.ino, kind })));
                if !is_kept {
                    return;
                }
            }
            if let Some(child) = seen.get_mut(&entry.ino) {
                child.names += 1;
                if child.kind == FileKind::Directory
                    && let Some(dir) = seen.get_mut(&dir)
                {
                    dir.directories += 1;
                }
            }
        })?;
        for (key, what, right) in wrong {
            let (dir, name) = split_key(&key);
            let text = format!("the name {:?} in {} {what}", String::from_utf8_lossy(name), self.path_of(dir));
            let repair = if right.is_some() { "write it anew" } else { "remove the name" };
            if self.found("name", None, text, Some(repair.to_owned())) {
                self.change.remove_raw_entry(&key);
                if let Some(entry) = right {
                    let names = self.names;
                    self.change.put_entry(entry_key(&names, dir, name), entry);
                }
            }
        }
        Ok(())
    }

    /// Link counts, and inodes without a name.
    fn links(&mut self, seen: &HashMap<u64, Seen>) -> Result<(), StoreError> {
        let mut inodes: Vec<_> = seen.iter().collect();
        inodes.sort_unstable_by_key(|(ino, _)| **ino);
        let mut lost = Vec::new();
        for (ino, found) in inodes {
            let is_root = *ino == Ino::ROOT.0;
            if found.names == 0 && !is_root {
                lost.push(*ino);
                continue;
            }
            let right = if found.kind == FileKind::Directory { 2 + found.directories } else { found.names };
            if found.nlink != right {
                let what = format!("inode {ino} has {right} links, and says {}", found.nlink);
                if self.found("links", Some(*ino), what, Some(format!("set the count to {right}"))) {
                    self.record(*ino)?.nlink = right;
                }
            }
        }
        if !seen.contains_key(&Ino::ROOT.0) {
            self.found("record", Some(Ino::ROOT.0), "there is no root directory".to_owned(), None);
            return Ok(());
        }
        for ino in lost {
            let name = format!("inode-{ino:x}");
            let what = format!("inode {ino} has no name");
            if self.found("nameless", Some(ino), what, Some(format!("name it /lost+found/{name}"))) {
                self.put_into_lost_and_found(ino, name.as_bytes())?;
            }
        }
        Ok(())
    }

    /// The record of an inode as the repair leaves it.
    fn record(&mut self, ino: u64) -> Result<&mut Record, StoreError> {
        let stored = match self.records.contains_key(&ino) {
            true => None,
            false => Some(self.db.record(ino)?.ok_or(StoreError::Damaged(Ino(ino)))?),
        };
        Ok(self.records.entry(ino).or_insert_with(|| stored.expect("it was just read")))
    }

    fn make_lost_and_found(&mut self) -> Result<u64, StoreError> {
        let root = Ino::ROOT.0;
        let names = self.names;
        let key = entry_key(&names, root, LOST_AND_FOUND);
        if let Some(entry) = self.db.entry(key)? {
            return if entry.kind == FileKind::Directory { Ok(entry.ino) } else { Err(StoreError::Exists) };
        }
        let number = self.db.next_number()?.unwrap_or(root + 1);
        let new = Ino::new(self.server, number).0;
        let mut record = self.record(root)?.clone();
        self.record(root)?.nlink += 1;
        record.mode = FileKind::Directory.mode_bits() | LOST_AND_FOUND_MODE;
        (record.nlink, record.has_xattrs) = (2, false);
        record.body = Body::Directory { parent: root, name: LOST_AND_FOUND.into() };
        self.records.insert(new, record);
        self.change.put_entry(key, Entry { ino: new, kind: FileKind::Directory });
        self.change.put_next_number(number + 1);
        Ok(new)
    }

    fn put_into_lost_and_found(&mut self, ino: u64, name: &[u8]) -> Result<(), StoreError> {
        let dir = match self.lost_and_found {
            Some(dir) => dir,
            None => self.make_lost_and_found()?,
        };
        self.lost_and_found = Some(dir);
        let record = self.record(ino)?;
        let kind = record.kind();
        if let Body::Directory { parent, name: own } = &mut record.body {
            (*parent, *own) = (dir, name.into());
        } else {
            record.nlink = 1;
        }
        if kind == FileKind::Directory {
            self.record(dir)?.nlink += 1;
        }
        let names = self.names;
        self.change.put_entry(entry_key(&names, dir, name), Entry { ino, kind });
        Ok(())
    }

    /// Objects that records tell of.
    fn objects(&mut self) -> Result<(), StoreError> {
        let unsettled: HashSet<u64> = self.db.unsettled()?.into_iter().collect();
        let mut files = Vec::new();
        self.db.each_raw_record(|ino, record| {
            if record.is_some_and(|record| record.has_objects) {
                files.push(ino);
            }
        })?;
        for (done, ino) in files.iter().enumerate() {
            if (done as u64).is_multiple_of(TOLD_EVERY) {
                (self.check.progress)(done as u64, files.len() as u64);
            }
            let Some(record) = self.db.record(*ino)? else { continue };
            let Body::Regular(layout) = &record.body else { continue };
            for index in 0..layout.targets.len() {
                if record.created.get(index / 8).is_some_and(|bits| bits & 1 << (index % 8) != 0) {
                    self.checked.objects += 1;
                    self.object(*ino, &record, layout, index, unsettled.contains(ino))?;
                }
            }
        }
        Ok(())
    }

    fn object(
        &mut self,
        ino: u64,
        record: &Record,
        layout: &Layout,
        index: usize,
        is_unsettled: bool,
    ) -> Result<(), StoreError> {
        let path = self.targets.path(record.objects, layout, index);
        let about = format!("inode {ino}, {}", path.display());
        let object = self.targets.open_to_read(record.objects, layout, index)?;
        if object.is_none() && !record.has_sums {
            self.found("object", Some(ino), format!("{about} is missing"), None);
        }
        if !record.has_sums || is_unsettled {
            return Ok(());
        }
        let (sums, watch) = (Sums::default(), Watch::default());
        let place = Place {
            dir: self.targets.directory(record.objects, layout, index)?,
            object: record.objects.object(index),
            is_suspect: false,
        };
        let blocks = Blocks { object: object.as_ref(), sums: &sums, place, watch: &watch, may_wait: true };
        match sums.lock().blocks(&blocks.place) {
            Ok(_) => {}
            Err(SidecarFault::Host(errno)) => return Err(StoreError::host(&path, errno)),
            // Believed, they would read as zeros.
            Err(SidecarFault::Damaged(_)) if object.is_none() => {
                self.found("object", Some(ino), format!("{about} is missing, and its checksums"), None);
                return Ok(());
            }
            Err(SidecarFault::Damaged(what)) => {
                let repair = "believe the object as it is, and sum it anew at the next start";
                if self.found("checksums", Some(ino), format!("{about}: {what}"), Some(repair.to_owned())) {
                    self.change.put_unsettled(ino);
                }
                return Ok(());
            }
        }
        let fail = |fault| match fault {
            BlockFault::Host(errno) => StoreError::host(&path, errno),
            BlockFault::Damaged { .. } => StoreError::Damaged(Ino(ino)),
        };
        if blocks.is_short().map_err(fail)? && !self.check.data {
            let what = if object.is_some() { "is shorter than what was written" } else { "is missing" };
            self.found("object", Some(ino), format!("{about} {what}"), None);
        }
        if self.check.data {
            let (mut at, count) = (0, blocks.count().map_err(fail)?);
            let mut damaged = Vec::new();
            while at < count {
                let run = BLOCKS_AT_ONCE.min(count - at);
                blocks.verify(at, run as usize, |offset, what| damaged.push((offset, what))).map_err(fail)?;
                at += run;
                self.checked.bytes += run * crate::checksum::BLOCK_BYTES as u64;
                sums.lock().forget();
            }
            for (offset, what) in damaged.iter().take(BLOCKS_TOLD_MAX) {
                let offset = crate::object::file_offset(layout, index, *offset);
                self.found("block", Some(ino), format!("{about}: {what} at {offset} of the file"), None);
            }
            if damaged.len() > BLOCKS_TOLD_MAX {
                self.found("block", Some(ino), format!("{about}: {} damaged blocks in all", damaged.len()), None);
            }
        }
        Ok(())
    }

    /// Objects and sidecars that no record and no orphan tells of.
    fn unknown_objects(&mut self) -> Result<(), StoreError> {
        let mut known: HashSet<ObjectsId> = self.db.orphans()?.into_iter().map(|(id, _)| id).collect();
        self.db.each_raw_record(|_, record| {
            known.extend(record.filter(|record| record.has_objects).map(|record| record.objects));
        })?;
        // A marked file may have its first object before its record says so.
        for (ino, _) in self.db.marks()? {
            known.extend(self.db.record(ino)?.map(|record| record.objects));
        }
        let mut unknown: Vec<PathBuf> = Vec::new();
        for directory in 0..DIRECTORIES {
            self.targets.each_object(directory, |id, path| {
                if !known.contains(&id) {
                    unknown.push(path);
                }
            })?;
        }
        unknown.sort();
        for path in unknown {
            let what = format!("{} belongs to no file", path.display());
            if self.found("unknown object", None, what, Some("move it to lost+found of its target".to_owned())) {
                self.targets.set_aside(&path)?;
            }
        }
        Ok(())
    }

    /// The path of a directory, or its number.
    fn path_of(&self, dir: u64) -> String {
        let (mut path, mut at) = (String::new(), dir);
        // A damaged tree may have a circle.
        for _ in 0..isonomia_proto::PATH_LEN_MAX {
            if at == Ino::ROOT.0 {
                return if path.is_empty() { "/".to_owned() } else { path };
            }
            let Ok(Some(Record { body: Body::Directory { parent, name }, .. })) = self.db.record(at) else { break };
            path = format!("/{}{path}", String::from_utf8_lossy(&name));
            at = parent;
        }
        format!("inode {dir}")
    }
}

fn split_key(key: &[u8]) -> (u64, &[u8]) {
    let dir = key.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    (dir, key.get(16..).unwrap_or_default())
}

#[cfg(test)]
mod tests;
