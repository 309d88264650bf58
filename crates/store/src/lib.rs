//! The file system of one server: an inode-based namespace with permissions, and object files on targets.
//!
//! # What it guarantees
//! * POSIX semantics as a local Linux file system has them, apart from what is listed below.
//! * A change of the namespace that returned survives a kill of the server; what was followed by [`Store::fsync`]
//!   also survives a power failure. After a kill, sizes and modification times of files that were being written
//!   are taken from their objects. Why this holds is [argued below](#why-what-was-synced-is-there).
//! * A read gives the bytes that were written, or [`StoreError::Corrupt`]: blocks have checksums (`blocks`), and why these
//!   are right after any stop is argued in `settle`.
//! * An unlinked file lives on until [`Store::release`] has given back its last reference, or until the store is
//!   opened again.
//! * Memory is bounded ([`Bounds`]), except for what is in use: referenced inodes.
//! * Every method may be called from any number of threads.
//!
//! # What differs from a local file system
//! * Access times are changed by `utimes` only. Times are the caller's (`now`): nothing here reads a clock.
//! * Hard links to files of others are protected as with `fs.protected_hardlinks`, whatever the host does.
//! * Every write clears the set-id bits, root's too: it comes with a capability, not with a user. Set-group-id without
//!   group execution is none, and stays.
//! * The space in use (`st_blocks`) is that of the objects on their hosts, and where a host does not tell its holes a file
//!   is one piece of data.
//! * A symbolic link with an absolute text, or one that climbs above the root, cannot be followed here:
//!   [`StoreError::Outside`] tells the client.
//! * Fifos, sockets, and device nodes exist as names; opening one fails with `ENXIO`.
//! * Of extended attributes there are those of users (`user.`) only.
//! * Cut files whose times are to stay (`truncate` to the same size) get new ones all the same.
//!
//! # Why what was synced is there
//!
//! A power cut leaves of the database a beginning of its journal that reaches at least to the last sync: batches are lost
//! from the end, and whole. Of each object it leaves what was synced, and of what was not any part. Call *S* the state of
//! the database after the batches that are left. That S and the objects fit together follows from four rules.
//!
//! 1. *No name is used twice.* Numbers are synced as reserved before they are given out, so a number that any batch or
//!    object ever had, lost or not, is never given out again (`edit`). Hence what bears a name that S refers to was made
//!    for the file that has it in S. If S says that there are none, whatever lies there is stale and is removed; objects
//!    that S does not refer to at all are removed by recovery.
//! 2. *Objects go after the batch that frees them is synced* (`removal`). The batch that takes the last name away, or
//!    gives the file other objects, is in S, or the objects are all there. Entries in `orphans` go after the objects; a
//!    batch that is lost brings back the entry, and removing what is gone does nothing. Where the host loses a removal
//!    and the batch is in S, the object is nobody's, and recovery removes it.
//! 3. *Objects are cut after the batch with the new size is synced, with a dirty record that says so* (`resize`). If the batch is
//!    not in S, nothing was cut. If the dirty record is in S, recovery cuts all of them once more; nothing that counts is beyond
//!    the size, for that record is replaced before the next write, and in S if that write was synced. If the batch is in S
//!    and the dirty record is not, all objects were cut, on stable storage, before it was taken away: else the dirty record of a later write
//!    would bring the old length and content back.
//! 4. *The size in a record is not ahead of bytes that storage may lack.* It was set by `truncate`, or all bytes that led to
//!    it had been synced when it was written: whatever changes a record meanwhile, by `rename` or `chmod`, leaves that size
//!    in it. Whenever the file has more there is a dirty record, from before the first byte was written (`dirty_inodes`). So for a dirty
//!    file the larger of record and objects is a size that the file had, not below the one that was synced, and objects that
//!    reach so far have the bytes, as the host orders them; for one without one the record is right, and what objects have
//!    beyond it was not synced and is cut before it could be seen (`resize`).
//!
//! `fsync` syncs the objects, the directories of those that are new, writes the record with the size that the file had when
//! it began, and syncs the journal: so S has the record that names the objects with these bytes, and, as batches are lost
//! from the end only, everything that was done to names before. On a directory it syncs the journal.
//!
//! A kill of the server is a power cut that loses nothing: the same rules hold, and the objects of dirty files have all that
//! was written. Recovery syncs them before it believes their sizes, as power may fail next.
//!
//! A file can have its bytes on other servers, and this one can have bytes of files of others: see `spread` and `detached`,
//! which say what holds of those.
//!
//! # Where what is
//! [`Store`] has two parts that do not know each other: [`Namespace`], which opens no object, and [`ObjectStore`], which knows no name.
//! An `impl` of one of them, in whatever module, needs only that one; what needs both is an `impl Store`. What servers want of one
//! alone they ask of that ([`Store::objects`], [`Store::namespace`]).
//!
//! `walk` goes from paths to inodes, `volumes` knows which of them are on other servers, `moving` brings one to another server; `namespace`, `rename`, `open`,
//! `attr`, and `xattr` change metadata through `edit`, one atomic change of database and memory; `dirty_inodes` knows what the database
//! does not know yet. `content` is what files and detached objects have in common; `data` moves bytes through `object`, `sparse` knows of
//! holes, `resize` cuts and extends, `removal` removes; `blocks` reads and writes with
//! checksums, whose bytes `checksum` documents, which `sums` keeps, `protect` watches over, `settle` brings to stable storage, `shortened` looks for after a stop, and `scrub` looks
//! through; `database` documents the bytes on disk, `engine` and `journal` deal with the database itself, `premises` and
//! `witness` with the directories around it, `recovery` with what an unclean stop leaves; `backup` copies the metadata;
//! `check` is for a store that nobody uses.

mod attr;
mod backup;
mod blocks;
mod cache;
mod capability;
mod change_counts;
mod check;
pub mod checksum;
mod config;
mod content;
mod data;
mod database;
mod detached;
mod directories;
mod directory;
mod directory_lock;
mod dirty_inodes;
mod durable;
mod edit;
mod emergency_space;
mod engine;
mod error;
mod extent;
mod fence;
mod first_write;
#[cfg(test)]
mod fixture;
mod fsync;
mod group_commit;
mod holes;
mod host_file_system;
mod host_pages;
mod inode;
pub mod journal;
mod journal_room;
mod journal_sync;
mod known_damage;
mod layouts;
mod moving;
mod namespace;
mod object;
mod object_file;
mod object_syncs;
mod open;
mod open_objects;
mod owner;
mod permission;
#[cfg(test)]
mod power_cut;
mod premises;
mod protect;
mod record;
mod recovery;
mod removal;
mod rename;
mod resident;
mod resize;
mod scrub;
mod secret;
mod settle;
mod shortened;
mod sparse;
mod spread;
mod sums;
mod target_check;
mod volumes;
mod walk;
mod witness;
mod xattr;

pub use attr::{SetAttr, TimeChange};
pub use capability::{OBJECT_CAPABILITY_SECS_MAX, ObjectSigner};
pub use check::{Check, Checked, Finding};
pub use config::{
    Bounds, CACHED_ENTRIES_MAX, CACHED_INODES_MAX, DefaultLayout, OPEN_OBJECTS_MAX, SUMS_BYTES_MAX, StoreConfig,
    TargetDir,
};
pub use data::Cached;
pub use database::ClusterRecord;
pub use detached::{ObjectStat, ObjectWritten};
pub use directories::first_there;
pub use directory_lock::is_left;
pub use durable::{fill_random, write as write_durably};
pub use engine::{DATABASE_FILES_MAX, MetadataFailure};
pub use error::{OpenError, StoreError};
pub use extent::Extent;
pub use fence::{Fence, LEASE, Loss, RENEW_EVERY};
pub use host_file_system::is_volatile;
pub use host_pages::{HostPages, PAGES_LEN_MAX};
pub use isonomia_proto::fs::RenameHow;
pub use layouts::{Creator, NewFile};
pub use moving::{FileBytes, PIECE_BYTES_MAX, Passage, Piece, PieceCursor};
pub use namespace::LINKS_MAX;
pub use object::ObjectPlace;
pub use object_file::WriteMode;
pub use open::{OpenHow, Opened};
pub use owner::{Line, Ownership, START_OVER, database_dir};
pub use permission::{Caller, MAY_EXECUTE, MAY_READ, MAY_WRITE};
pub use premises::{known_targets, own_directory};
pub use rename::MOVE_DEPTH_MAX;
pub use scrub::{SCRUB_BYTES_MAX, ScrubNext, ScrubPass, Scrubbed};
pub use spread::{Cut, Reserved, Spread, SpreadObjects};
pub use volumes::change::VolumeChange;
pub use volumes::{Whereabouts, root_of};
pub use walk::SYMLINKS_MAX;
pub use xattr::{XATTRS_BYTES_MAX, XattrHow};

use cache::Cache;
use capability::CapabilitySigner;
use content::{Owner, SUSPECT, UNSETTLED};
use database::{Database, ObjectTables};
use detached::Detached;
use directory::CachedEntry;
use dirty_inodes::DirtyInodes;
use emergency_space::EmergencySpace;
use inode::{CUTTING, Inode, LOOSE, SPREAD};
use layouts::Layouts;
use moving::Passages;
use object::Targets;
use object_syncs::ObjectSyncs;
use premises::Premises;
use protect::{Protection, Unsettled};
use removal::Removal;
use siphasher::sip::SipHasher13;
use spread::{Cuts, Uncounted};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The version of everything on disk; see `database` and `premises`.
pub const FORMAT_VERSION: u32 = 4;
/// The largest file, as everywhere under Linux.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// One server's file system. See the [crate] for what it guarantees.
///
/// It does what needs both of its parts.
pub struct Store {
    namespace: Namespace,
    objects: ObjectStore,
    /// That of both parts: what has to happen at once is one batch.
    db: Arc<Database>,
    /// The last stop was no clean one.
    is_recovered: bool,
    verifier: u64,
    premises: Premises,
}

/// The names and inodes of a server, in memory and in the database: who may come where, and what is known of a file besides its bytes.
///
/// Of objects it knows how they are called. It opens none, and neither reads nor removes what is in them.
pub struct Namespace {
    db: Arc<Database>,
    inodes: Cache<u64, Arc<Inode>>,
    entries: Cache<u64, CachedEntry>,
    /// The lock of the namespace, with the numbers to be given out.
    numbers: RwLock<Numbers>,
    /// Which server has which volume; nothing if this is the only one.
    whereabouts: OnceLock<RwLock<Arc<Whereabouts>>>,
    found_here: volumes::FoundHere,
    /// What is being done, so that a volume that is to go can be waited for.
    passages: Passages,
    /// Names in the root that all servers are about to give to a volume.
    names_in_the_making: Mutex<HashSet<Box<[u8]>>>,
    /// Of every inode and object that is created until the store is closed.
    generation: u32,
    /// Makes the cookies of names.
    cookies: SipHasher13,
    signer: CapabilitySigner,
    layouts: Layouts,
    dirty_inodes: Mutex<DirtyInodes>,
    cuts: Mutex<Cuts>,
    /// The cuts among those that the last start began, to the sizes that the files had.
    cut_at_start: Cuts,
    loose: Mutex<HashSet<u64>>,
    /// Spread files of which the blocks are to be counted.
    uncounted: Uncounted,
    /// Spread files are loose when they are loaded.
    has_loose: AtomicBool,
    /// That of the objects, where the metadata grow as well.
    emergency_space: Arc<EmergencySpace>,
    /// That of the objects ([`Protection`]): an inode that is loaded is told, and a batch of names can settle one.
    unsettled: Arc<Mutex<HashMap<Owner, Unsettled>>>,
}

/// All objects of a server, of files and detached ones: reading, writing, cutting and removing them, with their checksums.
///
/// It is given `content`, and of the database the tables that are about objects. It knows no name, permission, or record of an inode.
pub struct ObjectStore {
    db: ObjectTables,
    targets: Targets,
    syncs: ObjectSyncs,
    emergency_space: Arc<EmergencySpace>,
    removal: Removal,
    protection: Protection,
    /// Those that are in memory.
    detached: Cache<ObjectPlace, Arc<Detached>>,
    /// Locked by who removes detached objects, and shared by who loads one.
    removals: RwLock<()>,
    /// How often blocks of a file were counted: no two counts have the same number.
    counts: AtomicU64,
}

/// Numbers of inodes and objects: those from `next` to `reserved` are ours to give out, whatever happens.
struct Numbers {
    next: u64,
    reserved: u64,
}

impl Store {
    /// The part that knows no name or inode.
    pub fn objects(&self) -> &ObjectStore {
        &self.objects
    }

    /// The part that opens no object.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Why the metadata cannot be changed at this moment.
    pub fn metadata_failure(&self) -> Option<MetadataFailure> {
        self.db.failure()
    }

    /// Whether the last stop was no clean one.
    pub fn is_recovered(&self) -> bool {
        self.is_recovered
    }

    /// A number, 1 to [`isonomia_proto::setup::VERIFIER_MAX`], that is another one after each stop with which something may have been
    /// lost that was acknowledged: a power cut, or a start on another host after a stop that was no clean one.
    pub fn verifier(&self) -> u64 {
        self.verifier
    }

    /// A number that tells this store from others, for as long as it is there. Not 0.
    pub fn number_of_its_own(&self) -> u64 {
        self.namespace.signer.number_of_store()
    }
}

impl Namespace {
    fn share(&self) -> RwLockReadGuard<'_, Numbers> {
        self.numbers.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> RwLockWriteGuard<'_, Numbers> {
        self.numbers.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn unsettled(&self) -> MutexGuard<'_, HashMap<Owner, Unsettled>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inode; [`StoreError::Stale`] if there is none. The caller has the namespace lock.
    fn load(&self, ino: u64) -> Result<Arc<Inode>, StoreError> {
        if let Some(inode) = self.inodes.get(ino) {
            return Ok(inode);
        }
        let mut record = self.db.record(ino)?.ok_or(StoreError::Stale)?;
        self.layouts.intern(&mut record);
        let inode = Inode::new(ino, record);
        if self.cuts().contains_key(&ino) {
            inode.set(CUTTING);
        }
        if let Some(number) = self.cut_at_start.get(&ino) {
            inode.note_cut_at_start(*number);
        }
        // Also one that is being cut: an object that had done that may have been written to before the stop.
        if inode.has(SPREAD) && (self.has_loose.load(Ordering::Relaxed) || self.loose().contains(&ino)) {
            inode.set(LOOSE);
        }
        if let Some(size) = self.dirty_inodes().size(ino) {
            inode.set_flushed(size);
        }
        if let Some(state) = self.unsettled().get(&Owner::File(ino)) {
            inode.set(if state.suspect.is_some() { UNSETTLED | SUSPECT } else { UNSETTLED });
        }
        Ok(self.inodes.get_or_put(ino, Arc::new(inode)))
    }

    /// The inode, for callers without the namespace lock.
    fn inode(&self, ino: u64) -> Result<Arc<Inode>, StoreError> {
        if let Some(inode) = self.inodes.get(ino) {
            return Ok(inode);
        }
        // Under the lock, or an inode that is being removed could come back.
        let _namespace = self.share();
        self.load(ino)
    }
}
