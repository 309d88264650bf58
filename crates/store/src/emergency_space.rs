//! Space for the metadata when the disk is full.
//!
//! A database whose journal cannot be written refuses every change from then on, also those that would free space. So
//! `<dir>/reserve` has blocks that nobody else can take, a thirty-second of the file system and at most
//! [`SPACE_BYTES_MAX`]. Where no target is on that file system, and so no object that is removed gives room there, it is a
//! quarter, and at most [`APART_BYTES_MAX`]: as much as the database needs to remove what fills it. When little else is left ([`EmergencySpace::grow`] looks now and then) or a target says that it is
//! full, the file goes, and until there is room again whatever would grow the store fails with `ENOSPC`; removing,
//! renaming, and overwriting go on.
//!
//! Overwriting means blocks that are there: a hole of a sparse file grows the store as the end of a file does. What was
//! written is counted without a look at what it met, so that the free space is looked at often enough.
//!
//! A file system that does not even tell how much is left, as a network file system does not whose servers are away, is not full: what
//! is wrong with it is told by whatever is tried there.
//!
//! It is no guarantee: other programs can take the blocks that were let go, and compacting a large database can need
//! more. Then changes fail with `ENOSPC` until there is room, when the database is opened anew (`engine`); nothing that
//! was acknowledged is lost.

use crate::{OpenError, StoreError};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

const SPACE_BYTES_MAX: u64 = 64 << 20;
const APART_BYTES_MAX: u64 = 1 << 30;
const NAME: &str = "reserve";

pub(crate) struct EmergencySpace {
    dir: OwnedFd,
    path: PathBuf,
    bytes: u64,
    /// Bytes by which the store grew at most, by its own account.
    grown: AtomicU64,
    /// The blocks were let go: nothing may grow.
    spent: AtomicBool,
    changing: Mutex<()>,
}

impl EmergencySpace {
    /// Lets go what an earlier run reserved in `dir`, so that opening the store has room; `is_apart` where no target is on the
    /// same file system.
    pub fn open(dir: &Path, is_apart: bool) -> Result<Self, OpenError> {
        let space = Self::beside(dir, is_apart)?;
        space.let_go();
        Ok(space)
    }

    /// The same for somebody who changes nothing in `dir`.
    pub fn beside(dir: &Path, is_apart: bool) -> Result<Self, OpenError> {
        let fail = |e| OpenError::io(dir, e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(dir, flags, Mode::empty()).map_err(fail)?;
        let host = rustix::fs::fstatvfs(&fd).map_err(fail)?;
        let total = host.f_blocks * host.f_frsize;
        let bytes = if is_apart { (total / 4).min(APART_BYTES_MAX) } else { (total / 32).min(SPACE_BYTES_MAX) };
        let (grown, spent, changing) = (AtomicU64::new(0), AtomicBool::new(true), Mutex::new(()));
        Ok(Self { dir: fd, path: dir.to_owned(), bytes, grown, spent, changing })
    }

    /// Whether nothing may grow, as far as is known.
    pub fn is_spent(&self) -> bool {
        self.spent.load(Relaxed)
    }

    /// Fails when nothing may grow, or when it cannot be told whether there is room again; takes the blocks back when there is.
    pub fn admit(&self) -> Result<(), StoreError> {
        if !self.spent.load(Relaxed) {
            return Ok(());
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.spent.load(Relaxed) {
            if self.free_bytes()? < self.bytes + 2 * self.low_bytes() {
                return Err(StoreError::NoSpace);
            }
            self.take().map_err(|errno| match errno {
                Errno::DQUOT => StoreError::NoSpace,
                errno => StoreError::host(&self.path, errno),
            })?;
            self.spent.store(false, Relaxed);
        }
        Ok(())
    }

    /// Notes that the store is about to grow by `bytes` at most, and looks now and then how much is left.
    pub fn grow(&self, bytes: u64) {
        let step = (self.low_bytes() / 4).max(1);
        let before = self.grown.fetch_add(bytes, Relaxed);
        if before / step != before.wrapping_add(bytes) / step {
            self.look();
        }
    }

    /// With less than this left beside the blocks, they are let go; they are taken again when there is twice as much.
    fn low_bytes(&self) -> u64 {
        self.bytes.min(SPACE_BYTES_MAX) / 2
    }

    /// Lets the blocks go if there is next to nothing else left.
    pub fn look(&self) {
        if self.spent.load(Relaxed) || !self.has_less_than(self.low_bytes()) {
            return;
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.spent.swap(true, Relaxed) {
            tracing::warn!(reserve_bytes = self.bytes, "the storage is full: nothing may grow until there is room");
            self.let_go();
        }
    }

    /// What is left on the file system for ordinary users.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        let host = rustix::fs::fstatvfs(&self.dir).map_err(|errno| StoreError::host(&self.path, errno))?;
        Ok(host.f_bavail * host.f_frsize)
    }

    /// Whether less than this is left, as far as the file system tells.
    pub fn has_less_than(&self, bytes: u64) -> bool {
        self.free_bytes().is_ok_and(|free| free < bytes)
    }

    fn take(&self) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, NAME, flags, Mode::from_raw_mode(0o600))?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            // A host without reservations: then the early look has to do.
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => other,
        }
    }

    fn let_go(&self) {
        // Failing to remove it leaves less room, and nothing else to do about it.
        let _ = rustix::fs::unlinkat(&self.dir, NAME, AtFlags::empty());
    }
}
