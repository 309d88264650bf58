//! The file system of one server: an inode-based namespace with permissions, and object files on targets.
//!
//! # What it guarantees
//! * POSIX semantics as a local Linux file system has them, apart from what is listed below.
//! * A change of the namespace that returned survives a kill of the server; what was followed by [`Store::fsync`]
//!   also survives a power failure. After a kill, sizes and modification times of files that were being written
//!   are taken from their objects.
//! * An unlinked file lives on until [`Store::release`] has given back its last reference, or until the store is
//!   opened again.
//! * Memory is bounded ([`Bounds`]), except for what is in use: referenced inodes.
//! * Every method may be called from any number of threads.
//!
//! # What differs from a local file system
//! * Access times are changed by `utimes` only. Times are the caller's (`now`): nothing here reads a clock.
//! * Every write clears the set-id bits, root's too: it comes with a capability, not with a user.
//! * The space in use is taken to be the size, holes included.
//! * A symbolic link with an absolute text, or one that climbs above the root, cannot be followed here:
//!   [`StoreError::Outside`] tells the client.
//! * Fifos, sockets, and device nodes exist as names; opening one fails with `ENXIO`.
//! * Of extended attributes there are those of users (`user.`) only.
//! * Cut files whose times are to stay (`truncate` to the same size) get new ones all the same.
//!
//! # Where what is
//! `walk` goes from paths to inodes; `namespace`, `rename`, `open`, `attr`, and `xattr` change metadata through `edit`,
//! one atomic change of database and memory; `data` moves bytes through `object`; `database` documents the bytes on disk,
//! `premises` the directories around them, `recovery` what happens after an unclean stop.

mod attr;
mod cache;
mod capability;
mod config;
mod data;
mod database;
mod directory;
mod edit;
mod error;
mod inode;
mod namespace;
mod object;
mod open;
mod permission;
mod placement;
#[cfg(test)]
mod power_cut;
mod premises;
mod record;
mod recovery;
mod rename;
mod reserve;
mod walk;
mod xattr;

pub use attr::{SetAttr, TimeChange};
pub use config::{
    Bounds, CACHED_ENTRIES_MAX, CACHED_INODES_MAX, DefaultLayout, OPEN_OBJECTS_MAX, StoreConfig, TargetDir,
};
pub use database::DATABASE_FILES_MAX;
pub use error::{OpenError, StoreError};
pub use namespace::LINKS_MAX;
pub use open::{OpenHow, Opened};
pub use permission::{Caller, MAY_EXECUTE, MAY_READ, MAY_WRITE};
pub use rename::RenameHow;
pub use walk::SYMLINKS_MAX;
pub use xattr::{XATTRS_BYTES_MAX, XattrHow};

use cache::Cache;
use capability::Sealer;
use database::Database;
use directory::CachedEntry;
use inode::Inode;
use object::Targets;
use placement::Placement;
use premises::Premises;
use reserve::Reserve;
use siphasher::sip::SipHasher13;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The version of everything on disk; see `database` and `premises`.
pub const FORMAT_VERSION: u32 = 2;
/// The largest file, as everywhere under Linux.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// One server's file system. See the [crate] for what it guarantees.
pub struct Store {
    server: isonomia_units::ServerId,
    db: Database,
    inodes: Cache<Arc<Inode>>,
    entries: Cache<CachedEntry>,
    namespace: RwLock<Numbers>,
    /// Of every inode and object that is created until the store is closed.
    generation: u32,
    names: SipHasher13,
    sealer: Sealer,
    placement: Placement,
    targets: Targets,
    reserve: Reserve,
    /// Inodes that the database has a mark for.
    marked: Mutex<HashSet<u64>>,
    _premises: Premises,
}

/// Numbers of inodes and objects: those from `next` to `reserved` are ours to give out, whatever happens.
struct Numbers {
    next: u64,
    reserved: u64,
}

impl Store {
    fn share_namespace(&self) -> RwLockReadGuard<'_, Numbers> {
        self.namespace.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn own_namespace(&self) -> RwLockWriteGuard<'_, Numbers> {
        self.namespace.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inode; [`StoreError::Stale`] if there is none. The caller holds the namespace lock.
    fn load(&self, ino: u64) -> Result<Arc<Inode>, StoreError> {
        if let Some(inode) = self.inodes.get(ino, |_| true) {
            return Ok(inode);
        }
        let mut record = self.db.record(ino)?.ok_or(StoreError::Stale)?;
        self.placement.intern(&mut record);
        Ok(self.inodes.get_or_put(ino, Arc::new(Inode::new(ino, record))))
    }

    /// The inode, for callers without the namespace lock.
    fn inode(&self, ino: u64) -> Result<Arc<Inode>, StoreError> {
        if let Some(inode) = self.inodes.get(ino, |_| true) {
            return Ok(inode);
        }
        // Under the lock, or an inode that is being removed could come back.
        let _namespace = self.share_namespace();
        self.load(ino)
    }
}
