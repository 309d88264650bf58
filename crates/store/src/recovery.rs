//! Opening a store: new, after a clean stop, or after one that was not.
//!
//! After an unclean stop these are left over, and dealt with in this order:
//! * Files that were being written have dirty records (table `marks`). The size in the record is a lower bound; objects that reach further
//!   were written after it, so the size becomes what they say, and the times become theirs. A file that was being cut
//!   says so in its dirty record: its objects are cut to the size in the record. A spread file has the size that was told
//!   last, and its objects are to be cut to that ([`crate::spread`]).
//! * Files without a name that were still open, or whose removal was under way, stand in `orphans` and `nameless`: their
//!   objects and extended attributes are removed.
//! * Objects that no file refers to, and that are not detached, are removed: those of files whose creation a power cut undid.
//! * Detached objects are kept. One that was being cut is cut once more before it is used ([`crate::detached`]).

use crate::cache::Cache;
use crate::capability::CapabilitySigner;
use crate::content::Owner;
use crate::database::{self, Database, DirtyRecord};
use crate::detached::Detached;
use crate::emergency_space::EmergencySpace;
use crate::inode::Inode;
use crate::layouts::Layouts;
use crate::moving::Passages;
use crate::object::{DIRECTORIES, ObjectPlace, ObjectsId, Targets, file_size, is_volatile};
use crate::owner::database_dir;
use crate::premises::Premises;
use crate::protect::{Protection, Unsettled};
use crate::record::{BLOCKS_UNKNOWN, Body, Record};
use crate::removal::Removal;
use crate::spread::Cuts;
use crate::witness::Witness;
use crate::{Numbers, OpenError, Store, StoreConfig, StoreError, directories};
use isonomia_proto::fs::{FileKind, MODE_PERMISSION_MASK, Timestamp};
use isonomia_units::Ino;
use siphasher::sip::SipHasher13;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// Files whose objects are known at a time at most, when those that nobody knows are looked for.
const KNOWN_MAX: usize = 4 << 20;
/// After so many objects each the log tells how far the search is.
const LOOKED_AT_LOGGED: u64 = 100_000;

impl Store {
    /// Opens the store in `config.dir`, or creates it there, and recovers what an unclean stop left. The
    /// directories stay locked until the store is dropped.
    ///
    /// Dropping a store without [`Store::close`] is an unclean stop.
    pub fn open(config: &StoreConfig) -> Result<Self, OpenError> {
        config.check()?;
        directories::check(config)?;
        let mut premises = Premises::enter(config)?;
        let witness = Witness::open(&config.dir, &config.targets, premises.is_new, &premises.secret.capability)?;
        database::check(config, &witness)?;
        let space = Arc::new(EmergencySpace::open(&config.dir, directories::is_apart(config))?);
        let targets = Targets::open(config)?;
        let fail = |source| OpenError::Recovery { dir: config.dir.clone(), source };
        let db = Database::open(config, space.clone(), witness)?;
        db.refuse_older(&config.dir)?;
        let has_root = db.record(Ino::ROOT.0).map_err(fail)?.is_some();
        if !has_root && !premises.is_new {
            return Err(OpenError::damaged(&database_dir(&config.dir), "has no root directory"));
        }
        if !has_root {
            let created = rustix::fs::stat(&config.dir).map_err(|e| OpenError::io(&config.dir, e))?;
            let now = host_time(created.st_mtime, created.st_mtime_nsec);
            create_root(&db, config, premises.generation, now).map_err(fail)?;
        }
        let unsettled = db.unsettled().map_err(fail)?;
        let was_closed = db.reopen().map_err(fail)?;
        let mut cut_at_start = Cuts::new();
        if has_root && !was_closed {
            cut_at_start = recover(&db, &targets, config, &unsettled).map_err(fail)?;
        }
        let protection = Protection::new(config.checksums, config.bounds.sums_bytes);
        suspect(&db, &protection, &unsettled).map_err(fail)?;
        db.keep_witness().map_err(fail)?;
        if premises.is_new {
            premises.note_ready(&config.dir)?;
        }
        if space.admit().is_err() {
            tracing::warn!(server = config.server.0, "the storage is full: nothing may grow until there is room");
        }
        let cuts = db.cuts().map_err(fail)?;
        let next = db.next_number().map_err(fail)?.unwrap_or(Ino::ROOT.0 + 1);
        Ok(Self {
            inodes: Cache::new(config.bounds.inodes, Inode::evictable),
            objects: Cache::new(config.bounds.inodes, Detached::is_evictable),
            removals: RwLock::new(()),
            entries: Cache::new(config.bounds.entries, |_| true),
            // What is left of the last reservation may have been used: a new one is made at the first creation.
            generation: premises.generation,
            namespace: RwLock::new(Numbers { next, reserved: next }),
            whereabouts: OnceLock::new(),
            found_here: Default::default(),
            passages: Passages::default(),
            names_in_the_making: Mutex::default(),
            names: SipHasher13::new_with_key(&premises.secret.names),
            signer: CapabilitySigner::new(&premises.secret.capability),
            layouts: Layouts::new(&config.targets, config.default_layout),
            removal: Removal::new(targets.are_volatile()? && is_volatile(&premises.dir, &config.dir)?),
            targets,
            emergency_space: space,
            counts: AtomicU64::new(0),
            protection,
            dirty_inodes: Mutex::default(),
            cuts: Mutex::new(cuts.into_iter().collect()),
            cut_at_start,
            loose: Mutex::default(),
            has_loose: AtomicBool::new(db.has_loose().map_err(fail)?),
            is_recovered: has_root && !was_closed,
            db,
            premises,
        })
    }
}

fn create_root(db: &Database, config: &StoreConfig, generation: u32, now: Timestamp) -> Result<(), StoreError> {
    let (ino, bits) = (Ino::ROOT.0, config.root_mode & MODE_PERMISSION_MASK);
    let body = Body::Directory { parent: ino, name: Arc::from([]) };
    let root = Record::new((ino, generation), (FileKind::Directory, bits), config.root_owner, body, now);
    let mut change = db.change();
    change.put_record(Ino::ROOT.0, &root);
    change.commit()?;
    db.sync(false)
}

/// Does what a stop left undone. A stop on the way leaves less of the same. Tells which spread files are to be cut to the size that they
/// have, with the numbers of those cuts.
fn recover(db: &Database, targets: &Targets, config: &StoreConfig, unsettled: &[Owner]) -> Result<Cuts, StoreError> {
    // After a kill of the server sizes are those of what the host has in memory: before the database has them for good,
    // storage must have the bytes.
    targets.sync_all()?;
    let (resized, cuts) = recover_dirty(db, targets, unsettled)?;
    let removed = remove_orphans(db, targets)?;
    let unknown = remove_unknown(db, targets)?;
    let mut change = db.change();
    change.put_loose();
    change.commit()?;
    db.sync(true)?;
    if resized + removed + unknown > 0 {
        tracing::info!(server = config.server.0, resized, removed, unknown, "recovered");
    }
    Ok(cuts)
}

fn remove_orphans(db: &Database, targets: &Targets) -> Result<usize, StoreError> {
    let orphans = db.orphans()?;
    for (id, layout) in &orphans {
        targets.remove_objects(*id, layout)?;
        let mut change = db.change();
        change.remove_orphan(*id);
        change.commit()?;
    }
    for ino in db.nameless()? {
        let mut change = db.change();
        change.remove_xattrs(ino)?;
        change.remove_nameless(ino);
        change.commit()?;
    }
    Ok(orphans.len())
}

fn recover_dirty(db: &Database, targets: &Targets, unsettled: &[Owner]) -> Result<(usize, Cuts), StoreError> {
    let mut begun = Cuts::new();
    let dirty = db.dirty_records()?;
    for (ino, dirty_record) in &dirty {
        let mut change = db.change();
        if let Some(mut record) = db.record(*ino)?
            && let Some(cuts) = record.spread
        {
            if let DirtyRecord::Told(size) = dirty_record {
                record.size = record.size.max(*size);
            }
            // Objects may have more than that, wherever they are.
            record.spread = Some(cuts + 1);
            change.put_cut(*ino, cuts + 1);
            begun.insert(*ino, cuts + 1);
            change.put_record(*ino, &record);
        } else if let Some(mut record) = db.record(*ino)? {
            if let (DirtyRecord::Cut, Body::Regular(layout)) = (dirty_record, &record.body) {
                targets.trim(record.objects, layout, record.size)?;
            }
            // The first objects of a file that was being written for the first time had checksums.
            record.has_sums |= !record.has_objects && unsettled.binary_search(&Owner::File(*ino)).is_ok();
            take_from_objects(&mut record, targets, *dirty_record == DirtyRecord::Flushed)?;
            change.put_record(*ino, &record);
        }
        change.remove_dirty_record(*ino);
        change.commit()?;
    }
    Ok((dirty.len(), begun))
}

/// Objects can be longer than the record says, and never shorter unless the bytes that they lack are zeros.
fn take_from_objects(record: &mut Record, targets: &Targets, has_times: bool) -> Result<(), StoreError> {
    let Body::Regular(layout) = &record.body else { return Ok(()) };
    record.blocks = BLOCKS_UNKNOWN;
    for index in 0..layout.targets.len() {
        let place = record.objects.place(layout, index, 0);
        let Some(stat) = targets.stat_object(place)? else { continue };
        if !record.has_objects {
            record.has_objects = true;
            record.created = vec![0; layout.targets.len().div_ceil(8)].into();
        }
        record.created[index / 8] |= 1 << (index % 8);
        record.size = record.size.max(file_size(layout, index, stat.st_size as u64));
        if !has_times {
            let changed = host_time(stat.st_mtime, stat.st_mtime_nsec);
            record.mtime = record.mtime.max(changed);
            record.ctime = record.ctime.max(changed);
        }
    }
    Ok(())
}

/// Removes objects that no file refers to, and of which no record tells: a power cut undid their creation.
fn remove_unknown(db: &Database, targets: &Targets) -> Result<usize, StoreError> {
    let mut files: usize = 0;
    db.each_record(|_, record| files += usize::from(record.has_objects))?;
    db.detached_after(None, |_, _| {
        files += 1;
        true
    })?;
    // Each pass looks at as many directories as there is memory for what belongs there.
    let directories = (DIRECTORIES * KNOWN_MAX / files.max(1)).clamp(1, DIRECTORIES);
    let (mut removed, mut seen) = (0, 0);
    for first in (0..DIRECTORIES).step_by(directories) {
        let pass = first..first + directories;
        let mut known = HashSet::new();
        db.each_record(|_, record| {
            if record.has_objects && pass.contains(&record.objects.directory()) {
                known.insert(record.objects);
            }
        })?;
        let mut detached: HashSet<ObjectPlace> = HashSet::new();
        db.detached_after(None, |place, _| {
            if pass.contains(&ObjectsId::of(place.object).directory()) {
                detached.insert(place);
            }
            true
        })?;
        for directory in pass.take_while(|directory| *directory < DIRECTORIES) {
            removed += targets.remove_others(directory, |place| {
                seen += 1;
                if seen % LOOKED_AT_LOGGED == 0 {
                    tracing::info!(objects = seen, "looking for objects of no file");
                }
                known.contains(&ObjectsId::of(place.object)) || detached.contains(&place)
            })?;
        }
    }
    Ok(removed)
}

/// What was being written has checksums that need not agree.
fn suspect(db: &Database, protection: &Protection, unsettled: &[Owner]) -> Result<(), StoreError> {
    let mut all = protection.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
    let mut change = db.change();
    for owner in unsettled {
        let has_sums = match owner {
            Owner::File(ino) => db.record(*ino)?.is_some_and(|record| record.has_sums),
            Owner::Detached(place) => db.detached(*place)?.is_some_and(|record| record.has_sums),
        };
        if has_sums {
            all.insert(*owner, Unsettled { suspect: Some(0) });
        } else {
            change.remove_unsettled(*owner);
        }
    }
    change.commit()
}

fn host_time(secs: i64, nanos: impl TryInto<u32>) -> Timestamp {
    nanos.try_into().ok().and_then(|nanos| Timestamp::new(secs, nanos)).unwrap_or_default()
}
