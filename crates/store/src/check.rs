//! Checking a store that no server uses, and repairing what can be without destroying anything.
//!
//! What is checked: the identity files and keys (`premises`), that the metadata are not older than the targets know, that
//! every record and entry can be read, that names lead to inodes of their kind, that link counts and the names of
//! directories are right, that every inode has a name and every directory is below the root (`lost`), that extended
//! attributes are of some inode, that the objects that records tell of are there and as long as their checksums say, that no
//! object belongs to nobody, and, if asked for, every block (`objects`).
//!
//! What a stop that was not clean leaves (dirty records, orphans, unsettled files) is not an error: the next start works it off.
//! An object of nobody would be removed by that start as one whose creation a power cut undid; a repair sets it aside in
//! `lost+found` of its target instead.
//!
//! A repair changes the database in one batch and moves files, and removes nothing that could be wanted: what has no name,
//! or is below itself, gets a name in `/lost+found`; a name that leads nowhere goes, for there is nothing behind it. Lost and
//! damaged blocks stay what they are, as nobody has the right ones, and what is found damaged is kept as known ([`crate::known_damage`]); a lost or
//! damaged sidecar is made anew from the object as it is, but for blocks that are known to be damaged, at the next start of the server.
//!
//! Memory: about 70 bytes for each inode, and what is needed for what is repaired.

mod apart;
mod lost;
mod objects;
mod premises;

use crate::database::{self, Change, Database, Entry, ObjectTables};
use crate::directory::entry_key;
use crate::emergency_space::EmergencySpace;
use crate::known_damage::KnownDamage;
use crate::object::Targets;
use crate::owner::database_dir;
use crate::premises::Premises;
use crate::record::{Body, Record};
use crate::witness::Witness;
use crate::{OpenError, StoreConfig, StoreError, directories, root_of};
use apart::Apart;
use isonomia_proto::fs::FileKind;
use isonomia_units::{Ino, VolumeId};
use siphasher::sip::SipHasher13;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

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
    /// Where the name of a directory is.
    parent: Option<u64>,
    has_xattrs: bool,
}

struct Checker<'a, 'c> {
    db: &'a Database,
    tables: &'a ObjectTables,
    targets: &'a Targets,
    known: &'a KnownDamage,
    names: SipHasher13,
    lost_and_found: Option<lost::LostAndFound>,
    change: Change<'a>,
    /// Records that a repair changes.
    records: HashMap<u64, Record>,
    /// Names that it changes or, without an entry, removes, by their keys.
    entries: BTreeMap<Vec<u8>, Option<Entry>>,
    /// Inodes whose record cannot be read.
    unreadable: HashSet<u64>,
    /// The key that orders directories is new: every name is at a wrong position.
    is_keyed_anew: bool,
    check: &'a mut Check<'c>,
    checked: Checked,
}

impl Check<'_> {
    /// Checks the store of `config`, which no server may use meanwhile. If identity files cannot be read, the configuration's
    /// targets are believed to be the store's, and its server the one that they tell of.
    pub fn run(&mut self, config: &StoreConfig) -> Result<Checked, OpenError> {
        config.check()?;
        let mut checked = Checked::default();
        let found = premises::look(config, self, &mut checked)?;
        if found.is_in_the_way {
            return Ok(checked);
        }
        // Whether files can go past the page cache is found by writing, which a check must not.
        let (direct, direct_on_request) = (Vec::new(), Vec::new());
        let config = &StoreConfig { server: found.server, direct, direct_on_request, ..config.clone() };
        let premises = Premises::enter_existing(config)?;
        let witness = Witness::open(&config.dir, &config.targets, false, &premises.secret.capability)?;
        let own = database_dir(&config.dir);
        // Without a database there is nothing to copy, and the check says so.
        let apart = if self.repair || !own.is_dir() { None } else { Some(Apart::of(&own)?) };
        let database = apart.as_ref().map_or(&*own, Apart::dir);
        // What is wrong is so of the store's own.
        let named = |error| match (error, &apart) {
            (OpenError::Damaged { path, what }, Some(apart)) => {
                OpenError::Damaged { path: apart.named(path, &own), what }
            }
            (error, _) => error,
        };
        database::check_used(database, config, &witness).map_err(named)?;
        let space = if self.repair { EmergencySpace::open } else { EmergencySpace::beside };
        let space = Arc::new(space(&config.dir, directories::is_apart(config))?);
        let targets = Targets::open(config)?;
        let db = Arc::new(Database::open_in(database, config, (space, targets.fence.clone()), witness).map_err(named)?);
        let tables = ObjectTables::of(db.clone());
        let fail = |source| OpenError::Recovery { dir: config.dir.clone(), source };
        if self.repair {
            db.left(&config.dir).map_err(fail)?;
        }
        let repair = self.repair;
        let known = KnownDamage::load(&db).map_err(fail)?;
        let mut checker = Checker {
            db: &db,
            tables: &tables,
            targets: &targets,
            known: &known,
            names: SipHasher13::new_with_key(&premises.secret.names),
            lost_and_found: None,
            change: db.change(),
            records: HashMap::new(),
            entries: BTreeMap::new(),
            unreadable: HashSet::new(),
            is_keyed_anew: found.is_keyed_anew,
            check: self,
            checked,
        };
        checker.run().map_err(fail)?;
        let Checker { mut change, records, entries, checked, .. } = checker;
        if repair && checked.repairable > 0 {
            records.iter().for_each(|(ino, record)| change.put_record(*ino, record));
            entries.into_iter().for_each(|(key, entry)| change.set_raw_entry(&key, entry));
            change.commit().map_err(fail)?;
        }
        if repair {
            db.catch_up();
            db.sync().and_then(|()| db.keep_witness()).map_err(fail)?;
        }
        Ok(checked)
    }

    /// Tells of a finding; true if it is to be repaired.
    fn found(&mut self, checked: &mut Checked, finding: &Finding) -> bool {
        *(if finding.repair.is_some() { &mut checked.repairable } else { &mut checked.left }) += 1;
        (self.finding)(finding);
        self.repair && finding.repair.is_some()
    }
}

impl Checker<'_, '_> {
    fn run(&mut self) -> Result<(), StoreError> {
        self.age();
        let mut seen = self.inodes()?;
        self.entries(&mut seen)?;
        self.links(&seen)?;
        self.circles(&seen)?;
        self.xattrs(&seen)?;
        drop(seen);
        self.objects()?;
        self.unknown_objects()
    }

    fn found(&mut self, kind: &'static str, ino: Option<u64>, what: String, repair: Option<String>) -> bool {
        self.check.found(&mut self.checked, &Finding { kind, ino: ino.map(Ino), what, repair })
    }

    /// Whether the metadata are a copy that was put back.
    fn age(&mut self) {
        let Some((known, path)) = self.db.is_behind() else { return };
        let number = self.db.number();
        let what = format!("the metadata are older than {}: they end at sync {number} of {known}", path.display());
        self.found("older", None, what, Some("go on with them, and set aside what they do not know".to_owned()));
    }

    fn inodes(&mut self) -> Result<HashMap<u64, Seen>, StoreError> {
        let (mut seen, mut bad) = (HashMap::new(), Vec::new());
        self.db.each_raw_record(|ino, record| match record {
            Some(record) => {
                let (kind, nlink, has_xattrs) = (record.kind(), record.nlink, record.has_xattrs);
                seen.insert(ino, Seen { kind, nlink, names: 0, directories: 0, parent: None, has_xattrs });
            }
            None => bad.push(ino),
        })?;
        self.checked.inodes = (seen.len() + bad.len()) as u64;
        for ino in bad {
            self.found("record", Some(ino), format!("the record of inode {ino} cannot be read"), None);
            self.unreadable.insert(ino);
        }
        Ok(seen)
    }

    fn entries(&mut self, seen: &mut HashMap<u64, Seen>) -> Result<(), StoreError> {
        let db = self.db;
        let mut directories_named = HashSet::from([Ino::ROOT.0]);
        let (mut wrong, mut misplaced) = (Vec::new(), Vec::new());
        let volumes_here: HashSet<VolumeId> = seen.keys().map(|ino| Ino(*ino).volume()).collect();
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
                // A volume of another server's, whose name is known here.
                None if dir == Ino::ROOT.0
                    && right_key == key
                    && entry.ino == root_of(Ino(entry.ino).volume()).0
                    && !volumes_here.contains(&Ino(entry.ino).volume()) =>
                {
                    if let Some(root) = seen.get_mut(&dir) {
                        root.directories += 1;
                    }
                    return;
                }
                // That was told, and is no reason to forget the name.
                None if parent_is_dir && self.unreadable.contains(&entry.ino) => return,
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
                if child.kind == FileKind::Directory {
                    child.parent = Some(dir);
                    if !matches!(db.record(entry.ino), Ok(Some(record)) if record.is_named(dir, name)) {
                        misplaced.push((entry.ino, dir, name.to_vec()));
                    }
                    if let Some(dir) = seen.get_mut(&dir) {
                        dir.directories += 1;
                    }
                }
            }
        })?;
        for (key, what, right) in wrong {
            let (dir, name) = split_key(&key);
            let text = format!("the name {:?} in {} {what}", String::from_utf8_lossy(name), self.path_of(dir));
            let repair = if right.is_some() { "write it anew" } else { "remove the name" };
            let is_told = self.is_keyed_anew && right.is_some();
            if (is_told && self.check.repair) || self.found("name", None, text, Some(repair.to_owned())) {
                let right_key = entry_key(&self.names, dir, name).encode();
                self.entries.insert(key, None);
                if let Some(entry) = right {
                    self.entries.insert(right_key, Some(entry));
                }
            }
        }
        for (ino, dir, name) in misplaced {
            let what = format!("directory {ino} is {:?} in {}", String::from_utf8_lossy(&name), self.path_of(dir));
            let repair = Some("believe the name".to_owned());
            if self.found("directory", Some(ino), format!("{what}, and says something else"), repair) {
                self.record(ino)?.body = Body::Directory { parent: dir, name: name.into() };
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

    /// Extended attributes of no inode, and inodes that do not say whether they have some.
    fn xattrs(&mut self, seen: &HashMap<u64, Seen>) -> Result<(), StoreError> {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        self.db.each_xattr(|ino| *counts.entry(ino).or_default() += 1)?;
        for ino in self.db.nameless()? {
            counts.remove(&ino);
        }
        for (ino, count) in &counts {
            let (what, repair) = match seen.get(ino) {
                Some(seen) if !seen.has_xattrs => ("has extended attributes, and does not say so", "say so"),
                None if !self.unreadable.contains(ino) => {
                    ("does not exist, and has extended attributes", "remove them")
                }
                _ => continue,
            };
            let what = format!("inode {ino} {what} ({count})");
            if self.found("attributes", Some(*ino), what, Some(repair.to_owned())) {
                match seen.contains_key(ino) {
                    true => self.record(*ino)?.has_xattrs = true,
                    false => self.change.remove_xattrs(*ino)?,
                }
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
