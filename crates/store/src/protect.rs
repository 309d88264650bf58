//! The blocks of files with their checksums: which files have them, how much memory they take, and what is said of damage.
//!
//! A file has checksums if they were on when the first of its objects was created. With `checksums = off` they are
//! neither made nor looked at, and a file that is written meanwhile loses them for good: they would be wrong.

use crate::blocks::{BlockFault, Blocks, Watch};
use crate::content::{Content, Objects, Owner, SUMS, SUSPECT};
use crate::known_damage::KnownDamage;
use crate::object::file_offset;
use crate::object_file::WriteMode;
use crate::sums::{Place, SidecarFault};
use crate::{ObjectStore, StoreError};
use isonomia_proto::control::ChecksumStatus;
use isonomia_proto::fs::Layout;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Lines in the log between two calls of [`crate::Store::settle`] at most: about damage, and about devices that take nothing.
const LINES_MAX: usize = 20;
/// Entries of the ring that are looked at when one is added: more than one, so that it does not grow by dead ones.
const RING_STEPS: usize = 2;
/// Objects that are looked at for memory to give back, at once.
const PROBES_MAX: usize = 64;

/// What the store knows of checksums beside those of each object.
pub(crate) struct Protection {
    pub is_on: bool,
    pub watch: Watch,
    /// Files that the database says are unsettled.
    pub unsettled: Arc<Mutex<HashMap<Owner, Unsettled>>>,
    pub known: KnownDamage,
    /// Objects whose checksums are in memory, in the order of a clock.
    loaded: Mutex<VecDeque<(Weak<Content>, usize)>>,
    memory_bytes_max: u64,
    damaged_total: AtomicU64,
    /// Lines of damage since the last call of [`Protection::report`].
    lines: AtomicUsize,
    /// The same of what devices did not take.
    refused_lines: AtomicUsize,
}

/// A file whose checksums on stable storage may be older than its objects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unsettled {
    /// Since before an unclean stop: then so many blocks, counted over all objects, were looked at since.
    pub suspect: Option<u64>,
}

impl Protection {
    pub fn new(is_on: bool, memory_bytes_max: u64, known: KnownDamage) -> Self {
        Self {
            is_on,
            watch: Watch::default(),
            unsettled: Arc::default(),
            known,
            loaded: Mutex::default(),
            memory_bytes_max,
            damaged_total: AtomicU64::new(0),
            lines: AtomicUsize::new(0),
            refused_lines: AtomicUsize::new(0),
        }
    }

    pub fn count_damage(&self) {
        self.damaged_total.fetch_add(1, Relaxed);
    }

    /// Whether one more line is to say what a device did not take.
    pub fn may_tell_refused(&self) -> bool {
        self.refused_lines.fetch_add(1, Relaxed) < LINES_MAX
    }

    /// Says how much was not told line by line, and lets new lines be told.
    pub fn report(&self) {
        let lines = self.lines.swap(0, Relaxed);
        if lines > LINES_MAX {
            tracing::error!(count = lines - LINES_MAX, "more damaged blocks were met");
        }
        let refused = self.refused_lines.swap(0, Relaxed);
        if refused > LINES_MAX {
            tracing::error!(count = refused - LINES_MAX, "more of what was written could not be brought to the device");
        }
    }

    fn list(&self, content: &Arc<Content>, index: usize) {
        let mut ring = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        ring.push_back((Arc::downgrade(content), index));
        for _ in 0..RING_STEPS {
            let Some((weak, index)) = ring.pop_front() else { break };
            if weak.strong_count() > 0 {
                ring.push_back((weak, index));
            }
        }
    }
}

impl ObjectStore {
    /// What was found out about checksums since the store was opened.
    pub fn checksum_status(&self) -> ChecksumStatus {
        let unsettled = self.protection.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        ChecksumStatus {
            is_on: self.protection.is_on,
            damaged_total: self.protection.damaged_total.load(Relaxed),
            renewed_total: self.protection.watch.renewed.load(Relaxed),
            unsettled_files: unsettled.len() as u64,
            memory_bytes: self.protection.watch.meter.bytes(),
        }
    }

    /// The blocks of object `index`, if they have checksums.
    pub(crate) fn checked_blocks<'a>(
        &'a self,
        content: &'a Arc<Content>,
        layout: &Layout,
        objects: &'a Objects,
        index: usize,
    ) -> Result<Option<Blocks<'a>>, StoreError> {
        let flags = content.flags();
        // An object that was never created has no blocks.
        if !self.protection.is_on || flags & SUMS == 0 || !content.was_created(index) {
            return Ok(None);
        }
        let sums = &content.sums()[index];
        if sums.is_to_be_listed() {
            self.protection.list(content, index);
        }
        let place = content.place(objects.id, layout, index);
        let dir = self.targets.directory(place)?;
        Ok(Some(Blocks {
            object: objects.object(index),
            sums,
            place: Place { dir, object: place.object, is_suspect: flags & SUSPECT != 0, fence: &self.targets.fence },
            watch: &self.protection.watch,
            known: Some(self.known_damage(place)),
            may_wait: true,
            mode: WriteMode::Usual,
        }))
    }

    /// Whether an object lacks blocks that were written, or nobody can tell.
    pub(crate) fn is_short(
        &self,
        content: &Arc<Content>,
        layout: &Layout,
        objects: &Objects,
    ) -> Result<bool, StoreError> {
        for index in 0..layout.targets.len() {
            if let Some(blocks) = self.checked_blocks(content, layout, objects, index)?
                && blocks.is_short().map_err(|fault| self.block_error(content, layout, objects, index, fault))?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What the program and the log hear of a fault.
    pub(crate) fn block_error(
        &self,
        content: &Content,
        layout: &Layout,
        objects: &Objects,
        index: usize,
        fault: BlockFault,
    ) -> StoreError {
        let place = content.place(objects.id, layout, index);
        let (object_offset, what) = match fault {
            BlockFault::Host(errno) => return self.object_error(place, errno),
            BlockFault::Damaged { offset, what } => (offset, what),
        };
        let path = self.targets.path(place);
        let ino = content.ino();
        let offset = match content.owner {
            Owner::File(_) => file_offset(layout, index, object_offset),
            Owner::Detached(_) => object_offset,
        };
        self.protection.count_damage();
        if self.protection.lines.fetch_add(1, Relaxed) < LINES_MAX {
            tracing::error!(%ino, offset, object = %path.display(), object_offset, what, "damaged");
        }
        StoreError::Corrupt { ino, offset, path, what }
    }

    /// Gives memory of checksums back when there is too much in use. The caller has the lock of none.
    pub(crate) fn trim_sums(&self) {
        if self.protection.watch.meter.bytes() > self.protection.memory_bytes_max {
            self.trim_sums_now();
        }
    }

    #[cold]
    fn trim_sums_now(&self) {
        for _ in 0..PROBES_MAX {
            if self.protection.watch.meter.bytes() <= self.protection.memory_bytes_max {
                return;
            }
            let next = self.protection.loaded.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((weak, index)) = next else { return };
            let Some(content) = weak.upgrade() else { continue };
            let is_gone = !content.sums()[index].is_recent() && self.give_back(&content, index);
            if !is_gone {
                self.protection.loaded.lock().unwrap_or_else(PoisonError::into_inner).push_back((weak, index));
            }
        }
    }

    /// False if the object is in use.
    fn give_back(&self, content: &Arc<Content>, index: usize) -> bool {
        let (Some(layout), Ok(objects)) = (&content.layout, content.data.try_read()) else { return false };
        let Ok(Some(blocks)) = self.checked_blocks(content, layout, &objects, index) else { return false };
        let Some(mut writing) = blocks.sums.try_lock() else { return false };
        if blocks.sums.is_dirty()
            && let Err(fault) = writing.write_back(&blocks.place)
        {
            // The file is unsettled, so what is lost can be made anew: until then it is believed without a check.
            let path = self.targets.path(content.place(objects.id, layout, index));
            let reason = match fault {
                SidecarFault::Host(errno) => errno.to_string(),
                SidecarFault::Damaged(what) => what.to_owned(),
            };
            tracing::error!(object = %path.display(), %reason, "checksums are lost: they cannot be written");
            content.set(SUSPECT);
            let mut unsettled = self.protection.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
            unsettled.entry(content.owner).or_default().suspect = Some(0);
            drop(unsettled);
            writing.start_anew();
        }
        writing.forget();
        blocks.sums.unlist();
        true
    }
}
