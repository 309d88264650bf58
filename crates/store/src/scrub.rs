//! Looking through all objects of a target while the store is in use, a range at a time, so that damage is noticed while
//! there is still a copy somewhere.
//!
//! A pass goes through the records of files in the order of inodes, then through those of detached objects, and not through
//! directories: an object that is gone is noticed as well. What a range is, when its turn comes and how fast a pass goes is the caller's to say; a [`ScrubPass`]
//! lives in memory only, and so a pass begins anew when the store is opened.
//!
//! A range is looked at as a read would look at it: its blocks are shared with readers and writers meanwhile, and bytes
//! that the host has in memory are taken from there. Holes are passed over. Objects without checksums are looked at for being there only.
//! Files that come while a pass goes on, with inodes that it has passed, are the next one's.

use crate::blocks::BlockFault;
use crate::checksum::{BLOCK_BYTES, blocks_in};
use crate::content::{Content, RECLAIMED};
use crate::object::{ObjectPlace, object_size};
use crate::record::{BLOCKS_UNKNOWN, Body, Record};
use crate::{Namespace, ObjectStore, Store, StoreError};
use isonomia_proto::fs::Layout;
use isonomia_units::TargetId;
use std::sync::{Arc, RwLockWriteGuard};

/// Bytes that one call of [`Store::scrub`] looks at, at most.
pub const SCRUB_BYTES_MAX: u64 = 256 << 10;
/// Records that one call of [`Store::find_to_scrub`] looks at, at most.
const RECORDS_MAX: usize = 1024;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// How far a pass over the objects of one target is.
#[derive(Debug)]
pub struct ScrubPass {
    target: TargetId,
    stage: Stage,
    next: Next,
    total_bytes: u64,
    done_bytes: u64,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// The first object that is not before this inode and, of this inode, this index.
    File(u64, usize),
    /// The first detached object behind this one, or the first of all.
    DetachedAfter(Option<ObjectPlace>),
    /// This one.
    Detached(ObjectPlace),
}

#[derive(Debug)]
enum Stage {
    /// Finding out how much there is.
    Counting,
    Searching,
    /// In the object `next`.
    Within {
        block: u64,
        blocks: u64,
    },
}

/// What a pass does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubNext {
    /// [`Store::scrub`] is to be called; it reads about so many bytes, at least 1 and at most [`SCRUB_BYTES_MAX`].
    Range(u64),
    /// [`Store::find_to_scrub`] is to be called again.
    Searching,
    /// The pass has come to its end.
    End,
}

/// What one range was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes that were looked at.
    pub bytes: u64,
    /// Blocks that are damaged, and objects that are lost or whose checksums are.
    pub damaged: u64,
}

impl ScrubPass {
    /// A pass over `target` from the beginning.
    pub fn new(target: TargetId) -> Self {
        Self { target, stage: Stage::Counting, next: Next::File(0, 0), total_bytes: 0, done_bytes: 0 }
    }

    /// Whose objects they are.
    pub fn target(&self) -> TargetId {
        self.target
    }

    /// Bytes that were looked at.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes
    }

    /// Bytes in all, as records said when the pass began; never fewer than were looked at.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.max(self.done_bytes)
    }

    /// What this pass would have of an object of a file with `record`.
    fn bytes_of(&self, record: &Record, layout: &Layout, index: usize) -> Option<u64> {
        let is_created = record.created.get(index / 8).is_some_and(|bits| bits & 1 << (index % 8) != 0);
        let is_here = record.has_objects && is_created && layout.targets[index] == self.target;
        let taken_bytes = if record.blocks == BLOCKS_UNKNOWN { u64::MAX } else { record.blocks.saturating_mul(512) };
        let bytes = object_size(layout, index, record.size).min(taken_bytes);
        // An object of which the record knows no byte yet costs a look as well.
        is_here.then(|| blocks_in(bytes).max(1) * BLOCK)
    }

    fn leave_object(&mut self) {
        self.next = match self.next {
            Next::File(ino, index) => Next::File(ino, index + 1),
            Next::Detached(place) | Next::DetachedAfter(Some(place)) => Next::DetachedAfter(Some(place)),
            Next::DetachedAfter(None) => Next::DetachedAfter(None),
        };
        self.stage = Stage::Searching;
    }
}

impl Store {
    /// Finds what `pass` looks at next, in the records of some files: no object is touched.
    pub fn find_to_scrub(&self, pass: &mut ScrubPass) -> Result<ScrubNext, StoreError> {
        if let Stage::Within { block, blocks } = pass.stage {
            return Ok(ScrubNext::Range(run(block, blocks) * BLOCK));
        }
        let (found, is_end) = match pass.next {
            Next::File(ino, index) => self.namespace.find_file_to_scrub(pass, ino, index)?,
            Next::DetachedAfter(after) => self.objects.find_detached_to_scrub(pass, after)?,
            Next::Detached(place) => self.objects.find_detached_to_scrub(pass, Some(place))?,
        };
        if let Some(bytes) = found {
            pass.stage = Stage::Within { block: 0, blocks: bytes / BLOCK };
            return self.find_to_scrub(pass);
        }
        if !is_end {
            return Ok(ScrubNext::Searching);
        }
        match (&pass.stage, pass.next) {
            (_, Next::File(..)) => pass.next = Next::DetachedAfter(None),
            (Stage::Counting, _) => (pass.stage, pass.next) = (Stage::Searching, Next::File(0, 0)),
            _ => return Ok(ScrubNext::End),
        }
        Ok(ScrubNext::Searching)
    }

    /// Looks at the range that [`Self::find_to_scrub`] found. Damage goes to the log, and is counted as that which readers
    /// meet. After an error the pass goes on with the next object.
    pub fn scrub(&self, pass: &mut ScrubPass) -> Result<Scrubbed, StoreError> {
        let Stage::Within { block, blocks } = pass.stage else { return Ok(Scrubbed::default()) };
        let run = run(block, blocks);
        let looked_at = match pass.next {
            Next::File(ino, index) => {
                self.namespace.inode(ino).and_then(|inode| self.objects.scrub_range(&inode.content, index, block, run))
            }
            Next::Detached(place) => {
                self.objects.detached(place).and_then(|object| self.objects.scrub_range(&object.content, 0, block, run))
            }
            Next::DetachedAfter(_) => Ok((Scrubbed::default(), None)),
        };
        let looked_at = match looked_at {
            Ok(looked_at) => Ok(looked_at),
            // Removed meanwhile.
            Err(StoreError::Stale) => Ok((Scrubbed::default(), None)),
            Err(error) => Err(error),
        };
        self.objects.trim_sums();
        match looked_at {
            Ok((scrubbed, rest)) => {
                pass.done_bytes += scrubbed.bytes;
                match rest {
                    Some((block, blocks)) => pass.stage = Stage::Within { block, blocks },
                    None => pass.leave_object(),
                }
                Ok(scrubbed)
            }
            Err(error) => {
                pass.leave_object();
                Err(error)
            }
        }
    }
}

impl Namespace {
    /// Looks for an object of a file, in some records; how many bytes it has, if there is one, and whether these were the
    /// last.
    fn find_file_to_scrub(
        &self,
        pass: &mut ScrubPass,
        from: u64,
        first_index: usize,
    ) -> Result<(Option<u64>, bool), StoreError> {
        let is_counting = matches!(pass.stage, Stage::Counting);
        let (mut looked_at, mut is_end, mut found) = (0, true, None);
        self.db.records_from(from, |ino, record| {
            if looked_at == RECORDS_MAX {
                is_end = false;
                return false;
            }
            looked_at += 1;
            pass.next = Next::File(ino + 1, 0);
            let Some(record) = record else { return true };
            let Body::Regular(layout) = &record.body else { return true };
            let first_index = if ino == from { first_index } else { 0 };
            for index in first_index..layout.targets.len() {
                let Some(bytes) = pass.bytes_of(&record, layout, index) else { continue };
                if is_counting {
                    // Of a file that was being written at an unclean stop its length is all that is known.
                    pass.total_bytes = pass.total_bytes.saturating_add(bytes);
                } else {
                    found = Some(bytes);
                    pass.next = Next::File(ino, index);
                    return false;
                }
            }
            true
        })?;
        Ok((found, is_end))
    }
}

impl ObjectStore {
    /// The same for detached objects. How long one is, its host has to be asked, which is done for one at a time.
    fn find_detached_to_scrub(
        &self,
        pass: &mut ScrubPass,
        after: Option<ObjectPlace>,
    ) -> Result<(Option<u64>, bool), StoreError> {
        let is_counting = matches!(pass.stage, Stage::Counting);
        let (mut looked_at, mut is_end, mut found) = (0, true, Vec::new());
        self.db.detached_after(after, |place, record| {
            if looked_at == RECORDS_MAX || !is_counting && !found.is_empty() {
                is_end = false;
                return false;
            }
            looked_at += 1;
            pass.next = Next::DetachedAfter(Some(place));
            if place.target == pass.target && record.is_some_and(|record| record.is_created) {
                found.push(place);
            }
            true
        })?;
        let mut next = None;
        for place in found {
            let size = self.targets.stat_object(place)?.map_or(0, |stat| stat.st_size as u64);
            let bytes = blocks_in(size).max(1) * BLOCK;
            if is_counting {
                pass.total_bytes = pass.total_bytes.saturating_add(bytes);
            } else {
                (pass.next, next) = (Next::Detached(place), Some(bytes));
            }
        }
        Ok((next, is_end && next.is_none()))
    }

    /// Looks at `run` blocks of an object from `first` on, or from where the hole there ends; what was found, and, if there
    /// is more of the object, the next block and how many it has.
    fn scrub_range(
        &self,
        content: &Arc<Content>,
        index: usize,
        first: u64,
        run: u64,
    ) -> Result<(Scrubbed, Option<(u64, u64)>), StoreError> {
        let nothing = Ok((Scrubbed::default(), None));
        let Some(layout) = content.layout.clone() else { return nothing };
        let mut objects = content.share_data();
        if objects.object(index).is_none() {
            drop(objects);
            let mut owned = content.own_data();
            if !content.has(RECLAIMED) {
                self.targets.open_object(content, &layout, &mut owned, index, false)?;
            }
            objects = RwLockWriteGuard::downgrade(owned);
        }
        // Removed, or cut to nothing, meanwhile.
        if content.has(RECLAIMED) || !content.was_created(index) {
            return nothing;
        }
        let mut damaged = 0;
        let mut tell = |offset, what| {
            damaged += 1;
            self.block_error(content, &layout, &objects, index, BlockFault::Damaged { offset, what });
        };
        let Some(blocks) = self.checked_blocks(content, &layout, &objects, index)? else {
            if objects.object(index).is_none() {
                tell(0, "missing");
            }
            return Ok((Scrubbed { bytes: 0, damaged }, None));
        };
        let fail = |fault| self.block_error(content, &layout, &objects, index, fault);
        // Holes are passed over by asking the host where data begin: a hole can be so long that reading it would take years.
        let found = blocks.count().and_then(|count| Ok((count, blocks.next_written(first)?)));
        let (count, first) = match found {
            Ok((count, Some(next))) if next < count => (count, next),
            Ok(_) => return nothing,
            Err(BlockFault::Damaged { offset, what }) => {
                tell(offset, what);
                return Ok((Scrubbed { bytes: 0, damaged }, None));
            }
            Err(fault) => return Err(fail(fault)),
        };
        let run = run.min(count - first);
        blocks.verify(first, run as usize, &mut tell).map_err(fail)?;
        let next = first + run;
        Ok((Scrubbed { bytes: run * BLOCK, damaged }, (next < count).then_some((next, count))))
    }
}

/// Blocks that are looked at in one go of an object with `blocks` of them, from `block` on: at least one, for what an object
/// has is known only when it was looked at.
fn run(block: u64, blocks: u64) -> u64 {
    blocks.saturating_sub(block).clamp(1, SCRUB_BYTES_MAX / BLOCK)
}
