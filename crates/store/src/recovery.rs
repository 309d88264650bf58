//! Opening a store: new, after a clean stop, or after one that was not.
//!
//! After an unclean stop these are left over, and dealt with in this order:
//! * Files that were being written have dirty records (table `marks`). The size in the record is a lower bound; objects that reach further
//!   were written after it, so the size becomes what they say, and the times become theirs. A file that was being cut
//!   says so in its dirty record: its objects are cut to the size in the record. A spread file has the size that was told
//!   last, and its objects are to be cut to that ([`crate::spread`]).
//! * Files without a name that were still open, or whose removal was under way, stand in `orphans` and `nameless`: their
//!   objects and extended attributes are removed.
//! * Objects that no file refers to, and that are not detached, are removed: those of files whose creation a power cut undid. Not
//!   while a record cannot be read: its objects are known to nobody else.
//! * Detached objects are kept. One that was being cut is cut once more before it is used ([`crate::detached`]).
//!
//! A record that cannot be read keeps nothing else from being recovered; its file cannot be opened, and `check` tells of it.
//!
//! # Objects that are missing
//! A record says which of a file's objects were created. One that is not there reads as an error, whether the file has checksums
//! or not: what was in it is lost. But of a file that was being written (it has a dirty record, or is unsettled) the record may
//! have come to stable storage, and the object's entry in its directory not: no `fsync` of it ended since that object was created, and as on any file
//! system what was written is not there. So after a power cut such an object counts as never created, and reads as a hole.
//!
//! Whether there was one the host tells: its kernel still has everything that the process before this one did if it was not
//! started since ([`Database::reopen`]). Then the server was killed, no entry of a directory can be missing, and a missing object was
//! removed by somebody: it stays created. No stop makes good bytes an error that way, whatever it was:
//! * *Killed*: an object's file exists before a record can say so, and is removed after the record was changed.
//! * *The host lost power, or its start is not known*: objects of files that were being written count as never created. Those of
//!   others were synced with their entries before the dirty record and the entry of `unsettled` went. Without checksums there are no
//!   such entries, and a file whose size was set before it was written has no dirty record once its times are stored: of that,
//!   if it was never synced, an object that is missing reads as an error, and can be written again.
//! * *The targets' storage failed and the host went on*, or somebody mounted them anew: objects that are missing then were not
//!   synced, or are lost, and an error for what is in no object takes nobody's good bytes.
//!
//! An object that ends too early is judged likewise, as far as its checksums tell ([`crate::shortened`]).

pub(crate) mod leftovers;

use crate::cache::Cache;
use crate::capability::CapabilitySigner;
use crate::checksum::blocks_in;
use crate::content::Owner;
use crate::database::{self, Database, DirtyRecord, ObjectTables, Stop};
use crate::detached::Detached;
use crate::emergency_space::EmergencySpace;
use crate::host_file_system::is_volatile;
use crate::inode::Inode;
use crate::known_damage::KnownDamage;
use crate::layouts::Layouts;
use crate::moving::Passages;
use crate::object::{DIRECTORIES, ObjectPlace, ObjectsId, Targets, file_size, object_size};
use crate::object_syncs::ObjectSyncs;
use crate::owner::database_dir;
use crate::premises::Premises;
use crate::protect::{Protection, Unsettled};
use crate::record::{BLOCKS_UNKNOWN, Body, Record};
use crate::recovery::leftovers::Left;
use crate::removal::Removal;
use crate::shortened;
use crate::spread::{Cuts, Uncounted};
use crate::witness::Witness;
use crate::{Namespace, Numbers, ObjectStore, OpenError, Store, StoreConfig, StoreError, directories, durable};
use isonomia_proto::fs::{FileKind, MODE_PERMISSION_MASK, Timestamp};
use isonomia_proto::setup::VERIFIER_MAX;
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
        database::check(config, &witness, premises.is_new)?;
        let space = Arc::new(EmergencySpace::open(&config.dir, directories::is_apart(config))?);
        let targets = Targets::open(config)?;
        let fail = |source| OpenError::Recovery { dir: config.dir.clone(), source };
        let db = Database::open(config, (space.clone(), targets.fence.clone()), witness)?;
        db.refuse_older(&config.dir)?;
        let left = db.left(&config.dir).map_err(fail)?;
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
        // Not 0, and no longer than it may be.
        let fresh = durable::random_number(&config.dir)? % VERIFIER_MAX + 1;
        let Stop { was_clean, may_be_undone, verifier } = db.reopen(left, &config.host_start(), fresh).map_err(fail)?;
        let mut recovered = Recovered::default();
        if has_root && !was_clean {
            recovered = recover(&db, &targets, config, &unsettled, may_be_undone).map_err(fail)?;
        }
        db.settle_unsynced(&config.dir, left);
        db.note_start(&config.host_start()).map_err(fail)?;
        let known = KnownDamage::load(&db).map_err(fail)?;
        let protection = Protection::new(config.checksums, config.bounds.sums_bytes, known);
        suspect(&db, &protection, &unsettled).map_err(fail)?;
        db.keep_witness().map_err(fail)?;
        if premises.is_new {
            db.keep_first_witness().map_err(fail)?;
            premises.note_ready(&config.dir)?;
        }
        if let Err(error) = space.admit() {
            tracing::warn!(server = config.server.0, %error, "nothing may grow until there is room");
        }
        let cuts = db.cuts().map_err(fail)?;
        let next = db.next_number().map_err(fail)?.unwrap_or(Ino::ROOT.0 + 1);
        let db = Arc::new(db);
        let objects = ObjectStore {
            db: ObjectTables::of(db.clone()),
            removal: Removal::new(targets.are_volatile()? && is_volatile(&premises.dir, &config.dir)?),
            targets,
            syncs: ObjectSyncs::default(),
            emergency_space: space.clone(),
            protection,
            detached: Cache::new(config.bounds.inodes, Detached::is_evictable),
            removals: RwLock::new(()),
            counts: AtomicU64::new(0),
        };
        let namespace = Namespace {
            db: db.clone(),
            inodes: Cache::new(config.bounds.inodes, Inode::evictable),
            entries: Cache::new(config.bounds.entries, |_| true),
            // What is left of the last reservation may have been used: a new one is made at the first creation.
            generation: premises.generation,
            numbers: RwLock::new(Numbers { next, reserved: next }),
            whereabouts: OnceLock::new(),
            found_here: Default::default(),
            passages: Passages::default(),
            names_in_the_making: Mutex::default(),
            cookies: SipHasher13::new_with_key(&premises.secret.names),
            signer: CapabilitySigner::new(&premises.secret.capability),
            layouts: Layouts::new(&config.targets, config.default_layout),
            dirty_inodes: Mutex::default(),
            cuts: Mutex::new(cuts.into_iter().collect()),
            cut_at_start: recovered.cuts,
            loose: Mutex::default(),
            uncounted: Uncounted::default(),
            has_loose: AtomicBool::new(db.has_loose().map_err(fail)?),
            emergency_space: space,
            unsettled: objects.protection.unsettled.clone(),
        };
        let store = Self { namespace, objects, db, is_recovered: has_root && !was_clean, verifier, premises };
        store.settle_shortened(&recovered.shortened);
        Ok(store)
    }
}

fn create_root(db: &Database, config: &StoreConfig, generation: u32, now: Timestamp) -> Result<(), StoreError> {
    let (ino, bits) = (Ino::ROOT.0, config.root_mode & MODE_PERMISSION_MASK);
    let body = Body::Directory { parent: ino, name: Arc::from([]) };
    let root = Record::new((ino, generation), (FileKind::Directory, bits), config.root_owner, body, now);
    let mut change = db.change();
    change.put_record(Ino::ROOT.0, &root);
    change.commit()?;
    db.sync()
}

/// What is still to be done, or known, after [`recover`].
#[derive(Default)]
pub(crate) struct Recovered {
    /// Which spread files are to be cut to the size that they have, with the numbers of those cuts.
    cuts: Cuts,
    /// Whose objects somebody has cut.
    shortened: Vec<Owner>,
}

/// Does what a stop left undone; with `may_be_undone` also of what was done before it without a sync. A stop on the way leaves
/// less of the same.
pub(crate) fn recover(
    db: &Database,
    targets: &Targets,
    config: &StoreConfig,
    unsettled: &[Owner],
    may_be_undone: bool,
) -> Result<Recovered, StoreError> {
    // After a kill of the server sizes are those of what the host has in memory: before the database has them for good,
    // storage must have the bytes.
    targets.sync_all().inspect_err(|_| db.forget_verifier())?;
    let (resized, cuts) = recover_dirty(db, targets, unsettled, may_be_undone)?;
    let shortened = if may_be_undone {
        forget_missing(db, targets, unsettled)?;
        shortened::believe_ends(db, targets, unsettled)?;
        Vec::new()
    } else if config.checksums {
        shortened::find(db, targets, unsettled)?
    } else {
        Vec::new()
    };
    let removed = remove_orphans(db, targets)?;
    let unknown = remove_unknown(db, targets)?;
    let mut change = db.change();
    change.put_loose();
    change.commit()?;
    db.sync()?;
    if resized + removed + unknown > 0 {
        tracing::info!(server = config.server.0, resized, removed, unknown, "recovered");
    }
    Ok(Recovered { cuts, shortened })
}

fn remove_orphans(db: &Database, targets: &Targets) -> Result<usize, StoreError> {
    let orphans = db.orphans()?;
    let mut left = Left::default();
    for (id, layout) in &orphans {
        // Who may not remove anything any more would take each of them for one that cannot be removed.
        targets.check_fence()?;
        if left.goes_on(targets.remove_objects(*id, layout))? {
            let mut change = db.change();
            change.remove_orphan(*id);
            change.remove_all_damaged(*id)?;
            change.commit()?;
        }
    }
    left.tell();
    for ino in db.nameless()? {
        let mut change = db.change();
        change.remove_xattrs(ino)?;
        change.remove_nameless(ino);
        change.commit()?;
    }
    Ok(orphans.len())
}

fn recover_dirty(
    db: &Database,
    targets: &Targets,
    unsettled: &[Owner],
    may_be_undone: bool,
) -> Result<(usize, Cuts), StoreError> {
    let mut begun = Cuts::new();
    let dirty = db.dirty_records()?;
    for (ino, dirty_record) in &dirty {
        let mut change = db.change();
        let Some(record) = legible(db, *ino)? else { continue };
        if let Some(mut record) = record.clone()
            && let Some(cuts) = record.spread
        {
            if let DirtyRecord::SizeAtLeast(size) = dirty_record {
                record.size = record.size.max(*size);
            }
            // Objects may have more than that, wherever they are.
            (record.spread, record.blocks) = (Some(cuts + 1), BLOCKS_UNKNOWN);
            change.put_cut(*ino, cuts + 1);
            begun.insert(*ino, cuts + 1);
            change.put_record(*ino, &record);
        } else if let Some(mut record) = record {
            if let (DirtyRecord::Cut, Body::Regular(layout)) = (dirty_record, &record.body) {
                targets.trim(record.objects, layout, record.size)?;
                for (index, place) in record.objects.places(layout).enumerate() {
                    change.remove_damaged_from(place, blocks_in(object_size(layout, index, record.size)))?;
                }
            }
            // The first objects of a file that was being written for the first time had checksums.
            record.has_sums |= !record.has_objects && unsettled.binary_search(&Owner::File(*ino)).is_ok();
            take_from_objects(&mut record, targets, *dirty_record == DirtyRecord::Flushed)?;
            if may_be_undone {
                forget_missing_of(&mut record, db, targets)?;
            }
            change.put_record(*ino, &record);
        }
        change.remove_dirty_record(*ino);
        change.commit()?;
    }
    Ok((dirty.len(), begun))
}

/// What is known of an inode, if that can be read.
pub(crate) fn legible(db: &Database, ino: u64) -> Result<Option<Option<Record>>, StoreError> {
    match db.record(ino) {
        Ok(record) => Ok(Some(record)),
        Err(StoreError::Damaged(_)) => {
            tracing::error!(ino, "the record of a file that was being written cannot be read");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Takes objects that a power cut undid for ones that were never created, of files that were being written.
fn forget_missing(db: &Database, targets: &Targets, unsettled: &[Owner]) -> Result<(), StoreError> {
    for owner in unsettled {
        if let Owner::File(ino) = owner
            && let Some(Some(mut record)) = legible(db, *ino)?
            && record.spread.is_none()
            && forget_missing_of(&mut record, db, targets)?
        {
            let mut change = db.change();
            change.put_record(*ino, &record);
            change.commit()?;
        }
    }
    Ok(())
}

fn forget_missing_of(record: &mut Record, db: &Database, targets: &Targets) -> Result<bool, StoreError> {
    let Body::Regular(layout) = &record.body else { return Ok(false) };
    let mut is_changed = false;
    for index in 0..layout.targets.len() {
        let bit = 1 << (index % 8);
        if record.created.get(index / 8).is_none_or(|bits| bits & bit == 0) {
            continue;
        }
        let place = record.objects.place(layout, index, 0);
        // One that was known to be lost before the stop stays lost.
        if targets.stat_object(place)?.is_none() && !db.has_damage(place)? {
            let object = targets.path(place);
            tracing::warn!(object = %object.display(), "an object of a file that was being written did not outlive the stop");
            // Of its checksums there may be some.
            targets.remove_object(place)?;
            record.created[index / 8] &= !bit;
            is_changed = true;
        }
    }
    Ok(is_changed)
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
    let (mut files, mut unreadable) = (0, 0);
    db.each_raw_record(|_, record| match record {
        Some(record) => files += usize::from(record.has_objects),
        None => unreadable += 1,
    })?;
    if unreadable > 0 {
        tracing::error!(unreadable, "objects of no file are left where they are: records cannot be read");
        return Ok(0);
    }
    db.detached_after(None, |_, _| {
        files += 1;
        true
    })?;
    // Each pass looks at as many directories as there is memory for what belongs there.
    let directories = (DIRECTORIES * KNOWN_MAX / files.max(1)).clamp(1, DIRECTORIES);
    let (mut removed, mut seen, mut left) = (0, 0, Left::default());
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
            removed += targets.remove_others(directory, &mut left, |place| {
                seen += 1;
                if seen % LOOKED_AT_LOGGED == 0 {
                    tracing::info!(objects = seen, "looking for objects of no file");
                }
                known.contains(&ObjectsId::of(place.object)) || detached.contains(&place)
            })?;
        }
    }
    left.tell();
    Ok(removed)
}

/// What was being written has checksums that need not agree.
fn suspect(db: &Database, protection: &Protection, unsettled: &[Owner]) -> Result<(), StoreError> {
    let mut all = protection.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
    let mut change = db.change();
    for owner in unsettled {
        let has_sums = match owner {
            Owner::File(ino) => match legible(db, *ino)? {
                Some(record) => record.is_some_and(|record| record.has_sums),
                None => continue,
            },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, OpenHow, TargetDir};
    use isonomia_proto::fs::access;
    use isonomia_units::{ServerId, TargetId};

    #[test]
    fn who_lost_the_directory_does_not_take_objects_for_ones_that_cannot_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let target = TargetDir { id: TargetId(0), dir: dir.path().join("target") };
        let mut store = Store::open(&StoreConfig::new(dir.path().join("store"), ServerId(0), vec![target])).unwrap();
        // As on a disk, where what was removed waits for the database to be there.
        store.objects.removal.is_volatile = false;
        let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
        let now = Timestamp::new(1, 0).unwrap();
        let ino = store.open_file(&Caller::ROOT, Ino::ROOT, b"gone", &how, now).unwrap().ino;
        store.write(ino, 0, b"bytes", now).unwrap();
        store.unlink(&Caller::ROOT, Ino::ROOT, b"gone", now).unwrap();
        assert_eq!(store.db.orphans().unwrap().len(), 1);
        store.fence().end(None);
        assert!(remove_orphans(&store.db, &store.objects.targets).is_err());
    }
}
