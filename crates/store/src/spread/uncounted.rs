//! What the objects of spread files take: `st_blocks`.
//!
//! A `stat` asks no other server. Once a file rests, the servers of its objects are asked in the background, and what
//! they count together is in its record until it is changed again. From then on an estimate replaces it: what was counted
//! before, and what writers say that they have written since, but no more than the size without holes, unless that much was
//! counted. So a file that was only made longer takes nothing, and one of which nobody has counted anything what its size
//! would take.
//!
//! A file is *uncounted* from a change on, and from the first look at one that was never counted. The changes are those that the volume's
//! server hears of: a writer's word, room at the end, a cut that begins or ends. A writer may keep a write within the size
//! to himself for some milliseconds after he told of another one; therefore a file is counted only when one whole
//! round went by without a change, which is about a second.
//!
//! A file with a size never takes nothing, whatever was counted: programs take one without blocks for one hole, and a
//! writer whose host failed may have left bytes that he told nobody of.
//!
//! After a kill the files that have a dirty record are not counted any more: a change is in there before it is answered, and a
//! count is in the database only after the change before it.

use super::SpreadObjects;
use crate::edit::ReclaimList;
use crate::inode::{Inode, SPREAD};
use crate::sparse::BLOCK_BYTES;
use crate::{Store, StoreError};
use isonomia_units::Ino;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files that are waited for at most. Of others the size tells what they take until they are looked at again.
const FILES_MAX: usize = 1 << 16;
/// Rounds without a change before a file is counted: one of them is whole.
const RESTS_FOR: u64 = 2;
/// A file that is not counted, because a server is away, is asked for again after this power of two of rounds at the latest.
const AGAIN_AFTER_LOG_MAX: u32 = 6;

/// Spread files of which it is not known what their objects take.
#[derive(Default)]
pub(crate) struct Uncounted(Mutex<Files>);

#[derive(Default)]
struct Files {
    since: HashMap<u64, Since>,
    /// How often it was asked what is to be counted.
    round: u64,
}

/// What is known of a file since it was counted.
#[derive(Default)]
struct Since {
    /// What was counted then, if it ever was.
    counted: Option<u64>,
    /// What was written since, at most.
    added: u64,
    /// The round of the last change.
    changed: u64,
    /// The round in which it was asked for last, if it did not change since.
    asked: Option<u64>,
    /// How often that was.
    times: u32,
    /// The first round in which it may be asked for.
    next: u64,
}

impl Since {
    fn blocks(&self, whole: u64) -> u64 {
        self.counted.map_or(whole, |counted| counted.saturating_add(self.added).min(whole.max(counted)))
    }

    fn is_due(&self, round: u64) -> bool {
        round >= (self.changed + RESTS_FOR).max(self.next)
    }

    fn ask(&mut self, round: u64) {
        self.asked = Some(round);
        self.next = round + (1 << self.times.min(AGAIN_AFTER_LOG_MAX));
        self.times = self.times.saturating_add(1);
    }
}

/// What a file of this size takes without holes.
fn whole(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(BLOCK_BYTES)
}

impl Uncounted {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the file, from now on as one that is not counted.
    fn since(&self, inode: &Inode, what: impl FnOnce(&mut Since, u64) -> u64) -> Option<u64> {
        let mut files = self.files();
        let (round, is_full) = (files.round, files.since.len() >= FILES_MAX);
        let counted = inode.space.blocks();
        inode.space.forget();
        let since = match files.since.entry(inode.ino) {
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(entry) => entry.insert(Since { counted, ..Since::default() }),
            Entry::Occupied(entry) => entry.into_mut(),
        };
        Some(what(since, round))
    }

    /// The file was changed: `added` blocks of it were written, at most.
    pub fn change(&self, inode: &Inode, added: u64) {
        self.since(inode, |since, round| {
            (since.changed, since.asked, since.times, since.next) = (round, None, 0, 0);
            since.added = since.added.saturating_add(added);
            since.added
        });
    }

    /// The file is being cut from one size to another one, which may be the same.
    pub fn cut(&self, inode: &Inode, (before, size_bytes): (u64, u64)) {
        self.change(inode, 0);
        if size_bytes < before {
            self.since(inode, |since, _| {
                let left = since.blocks(whole(before)).min(whole(size_bytes));
                (since.counted, since.added) = (Some(left), 0);
                left
            });
        }
    }
}

impl Store {
    /// What a spread file of this size takes, as far as is known; if nobody has counted, that is done soon.
    pub(crate) fn blocks_told(&self, inode: &Inode, size_bytes: u64) -> u64 {
        let whole = whole(size_bytes);
        let counted = inode.space.blocks();
        let known = || self.namespace.uncounted.since(inode, |since, _| since.blocks(whole)).unwrap_or(whole);
        counted.unwrap_or_else(known).max(u64::from(size_bytes > 0))
    }

    /// A writer says late that `blocks` of 512 bytes were written besides what he told of, at most. If the file was counted since, they
    /// are among those.
    pub fn tell_blocks(&self, ino: Ino, blocks: u64) {
        if let Some(since) = self.namespace.uncounted.files().since.get_mut(&ino.0) {
            since.added = since.added.saturating_add(blocks);
        }
    }

    /// Whether the volume of an inode is closed: it is on its way to another server.
    fn closed(&self) -> impl Fn(u64) -> bool {
        let known = self.namespace.whereabouts();
        move |ino| known.as_ref().is_some_and(|known| known.closed.contains_key(&Ino(ino).volume()))
    }

    /// Spread files that rest and whose blocks are to be counted, `max` at most, with the number of this round: for
    /// [`Store::keep_blocks`]. To be called once a second. Files of closed volumes wait.
    pub fn files_to_count(&self, max: usize) -> (u64, Vec<SpreadObjects>) {
        let is_closed = self.closed();
        let (round, due) = {
            let mut files = self.namespace.uncounted.files();
            files.round += 1;
            let round = files.round;
            let due = files.since.iter_mut().filter(|(ino, since)| since.is_due(round) && !is_closed(**ino));
            let asked = due.take(max).map(|(ino, since)| {
                since.ask(round);
                *ino
            });
            (round, asked.collect::<Vec<u64>>())
        };
        let mut found = Vec::with_capacity(due.len());
        for ino in due {
            match self.namespace.inode(ino).and_then(|inode| inode.spread()) {
                Ok(objects) => found.push(objects),
                Err(StoreError::Stale | StoreError::Invalid) => _ = self.namespace.uncounted.files().since.remove(&ino),
                Err(error) => tracing::warn!(ino, %error, "what a file takes cannot be counted"),
            }
        }
        (round, found)
    }

    /// Keeps what servers have counted of files, each by number and generation of its objects, that were asked for in this round and have
    /// not changed since. To be called within a [passage](crate::Namespace::passage).
    pub fn keep_blocks(&self, round: u64, counted: &[((u64, u32), u64)]) -> Result<(), StoreError> {
        let is_closed = self.closed();
        let mut known = Vec::with_capacity(counted.len());
        for ((ino, generation), blocks) in counted {
            let inode = match self.namespace.inode(*ino) {
                Ok(inode) if inode.has(SPREAD) && inode.generation == *generation && !is_closed(*ino) => inode,
                Ok(_) | Err(StoreError::Stale) => continue,
                Err(error) => return Err(error),
            };
            let mut files = self.namespace.uncounted.files();
            if files.since.get(ino).is_some_and(|since| since.asked == Some(round)) {
                files.since.remove(ino);
                inode.space.know(*blocks);
                known.push(inode);
            }
        }
        if known.is_empty() {
            return Ok(());
        }
        let _namespace = self.namespace.own();
        let mut edit = self.namespace.edit();
        for inode in &known {
            // What was changed in between is not counted in there either.
            edit.record(inode);
        }
        let ReclaimList(_) = edit.commit()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_since_is_counted_once_and_no_more_than_the_size() {
        let since = |counted, added| Since { counted, added, ..Since::default() };
        assert_eq!(since(None, 0).blocks(80), 80, "nobody knows");
        assert_eq!((since(Some(0), 0).blocks(80), since(Some(8), 16).blocks(80)), (0, 24));
        assert_eq!(since(Some(8), u64::MAX).blocks(80), 80);
        assert_eq!(since(Some(200), 8).blocks(80), 200, "room behind the end");
    }

    #[test]
    fn a_file_that_cannot_be_counted_is_asked_for_ever_more_seldom() {
        let mut since = Since { changed: 5, ..Since::default() };
        let mut asked = Vec::new();
        for round in 5..300 {
            if since.is_due(round) {
                since.ask(round);
                asked.push(round);
            }
        }
        assert_eq!(asked, [7, 8, 10, 14, 22, 38, 70, 134, 198, 262]);
    }
}
