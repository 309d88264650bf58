//! Spread files: those whose bytes are in detached objects ([`crate::detached`]), on targets of any server.
//!
//! A spread file has a name, attributes, and a size here, and no bytes: all of its objects are detached, those on this
//! server's targets too. Clients go to the servers of its targets themselves. Whether a file is spread stands in its record,
//! and not in its layout: a volume can move to the server that has a file's targets, or away from it. Its objects have the
//! number and the generation of its inode for as long as it lives, so whether an object is still wanted is answered by its
//! number ([`Namespace::is_wanted`]).
//!
//! | operation | who calls it, and when |
//! |---|---|
//! | [`Store::open_spread`] | as [`Store::open_file`], with the layout of the file should it be created |
//! | [`Namespace::spread_of`] | what a client needs for the objects: number, generation, layout, size, number of the last cut |
//! | [`Store::tell_size`] | for a writer, before a write returns that may have moved the end, or met a cut that it did not know of |
//! | [`Store::note_writer`] | before somebody is given a capability to write the objects |
//! | [`Namespace::note_loose`], [`Store::cut_loose`] | when a writer is gone who may not have told all |
//! | [`Store::begin_cut`], [`Store::finish_cut`], [`Store::cuts_to_redo`] | to make a file shorter |
//! | [`Store::files_to_count`], [`Store::keep_blocks`] | to have counted what its objects take: the head of `spread::uncounted` |
//! | [`Store::objects_to_remove`], [`Namespace::objects_removed`] | to have objects of removed files removed, until every server has said so |
//! | [`Store::fsync_attributes`] | for `fsync`, once the objects were synced |
//!
//! What needs the bytes, by the inode, is [`StoreError::Spread`].
//!
//! # Size
//! The size is what writers have told, or a cut has left. A size that is told is in the database (behind the file's dirty
//! record) before [`Store::tell_size`] returns, so a kill of the server loses none; the time of the write may be a second old.
//! It is on stable storage after [`Store::fsync_attributes`], and by itself some seconds later. So after a power cut a file
//! has the size that was synced or a later one. Unlike that of a file with bytes here, a size may then be ahead of bytes
//! that were not synced on *their* servers, if those lost power too: such bytes are zeros, as on a file system that writes
//! back data when it likes. What was fsynced has both.
//!
//! # Cuts
//! Cutting takes a number, which the record counts, and three steps. [`Store::begin_cut`] puts the new size, the number, and
//! that there is something to do (table `cuts`) on stable storage: from now on that is the size. Every object is told to cut, until
//! its server has answered. [`Store::finish_cut`] takes the entry away: now the file may grow again. Each step can be
//! repeated, and so a stop of any server in between leaves work that is done again ([`Store::cuts_to_redo`]). A cut to nothing
//! is one like any other: the objects stay, and so do capabilities for them. (Other objects instead, as files with bytes here
//! get, would let a writer who has a capability for the old ones be acknowledged, and his bytes be lost.)
//!
//! Why no acknowledged write is lost, and no old byte comes back:
//! * Objects say with each write which was their last cut, and the writer tells that here, the lowest of those that his write
//!   met. A write before a cut that is told after it was begun is refused ([`StoreError::CutMeanwhile`]). Did the first cut after it make the file shorter, it
//!   was cut off as the program asked, and is done: others may have seen it, so it must not come back. Did that cut leave the size, what is behind
//!   that was seen by nobody and is written again ([`Namespace::was_shortened_after`]). After a start that is not known of earlier
//!   cuts, and the write fails, if it moved the end. A writer tells also if the end did not move and any of the
//!   numbers is not the one that he knows: his idea of the end is older than a cut. If all of them are, the whole write came
//!   before any later cut, as if it had returned before that began.
//! * While objects are being cut the file does not grow. So what an object has beyond the size when the cut reaches it is
//!   nothing that counts; and when the file grows again, by a write further on or by `truncate`, no object has anything beyond
//!   the old size that could show instead of zeros.
//! * After an unclean stop every file with a dirty record gets a cut to the size that is known. Objects may have more:
//!   of writes that were not told, and, after a power cut, of those that were told and not synced.
//!
//! # Writers that are gone
//! What a client wrote behind the end and did not live to tell stays in an object, and would show if the file grew over it. So
//! a file that lost a writer is *loose* ([`Namespace::note_loose`]): it does not grow before a cut to the size that it has was begun
//! ([`Store::cut_loose`]) and done. A write that comes later still is refused by the object: it knows of no cut as late
//! as that one. Who says that a file is loose knows who may write its objects: those to whom a capability for that was given
//! ([`Store::note_writer`]). Of those a store that was not closed has lost all, so from its first unclean stop on every spread
//! file is loose whenever it is loaded, also after clean stops: it may not have been written since. So is one that came with a volume, of
//! which the other store may have known more than its record says. A cut too many costs a moment of the first write. A store that
//! is closed begins the cuts of files that have lost writers since.
//!
//! # Removal
//! The batch that takes the last name away puts the objects into the table `spread_orphans`. They are handed out when no
//! session has the file open any more, after that batch is on stable storage, and stay until [`Namespace::objects_removed`].

mod uncounted;

pub(crate) use uncounted::Uncounted;

use crate::content::Objects;
use crate::data::check_end;
use crate::database::DirtyRecord;
use crate::edit::ReclaimList;
use crate::inode::{CUTTING, DIRTY, Inode, LOOSE, SET_ID, SPREAD, UNLINKED};
use crate::object::{ObjectPlace, ObjectsId, object_size};
use crate::record::BLOCKS_UNKNOWN;
use crate::resize::{check_alive, note_write};
use crate::{Caller, FILE_SIZE_MAX, Namespace, OpenHow, Opened, Store, StoreError};
use isonomia_proto::fs::{Layout, Timestamp};
use isonomia_proto::space::blocks_touched;
use isonomia_units::Ino;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, PoisonError};

/// The objects of a spread file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpreadObjects {
    /// In their names: the number of the file's inode.
    pub number: u64,
    /// In their names: the generation of the file's inode.
    pub generation: u32,
    /// Where they lie.
    pub layout: Arc<Layout>,
}

/// A spread file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Its objects.
    pub objects: SpreadObjects,
    /// Its size.
    pub size_bytes: u64,
    /// The number of its last cut, 0 if there was none.
    pub cuts: u64,
    /// The number of the last cut that made it shorter; that of a later one where this is not known, as after a start.
    pub shortened: u64,
}

/// Room at the end of a file, made for a writer who fills it afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Where it begins.
    pub offset: u64,
    /// The number of a spread file's last cut before, else 0: a later one that makes the file shorter
    /// ([`Spread::shortened`]) may take it away, and it may be somebody else's then.
    pub cuts: u64,
}

/// Objects that are to be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub ino: Ino,
    /// The number of the cut.
    pub number: u64,
    /// The size of the file.
    pub size_bytes: u64,
    /// Its objects.
    pub objects: SpreadObjects,
}

impl SpreadObjects {
    fn new(id: ObjectsId, layout: Arc<Layout>) -> Self {
        Self { number: id.number, generation: id.generation, layout }
    }

    /// Where each of them is.
    pub fn places(&self) -> impl Iterator<Item = ObjectPlace> {
        ObjectsId { number: self.number, generation: self.generation }.places(&self.layout)
    }
}

impl Cut {
    /// Each object, and how long it is to be at most: what [`crate::ObjectStore::cut_object`] is asked for.
    pub fn parts(&self) -> impl Iterator<Item = (ObjectPlace, u64)> {
        let places = self.objects.places().enumerate();
        places.map(|(index, place)| (place, object_size(&self.objects.layout, index, self.size_bytes)))
    }
}

/// Spread files whose objects are still to be cut, with the number of the cut.
pub(crate) type Cuts = HashMap<u64, u64>;

impl Store {
    /// As [`Store::open_file`]; if that creates the file, it is a spread one with `layout`. [`StoreError::Invalid`] for a
    /// layout with a stripe that is not a positive multiple of 4096, no target, or too many.
    pub fn open_spread(
        &self,
        caller: &Caller<'_>,
        at: Ino,
        path: &[u8],
        how: &OpenHow,
        layout: Arc<Layout>,
        now: Timestamp,
    ) -> Result<Opened, StoreError> {
        let is_even = layout.stripe_bytes > 0 && layout.stripe_bytes.is_multiple_of(Layout::STRIPE_ALIGN_BYTES);
        if !is_even || layout.targets.is_empty() || layout.targets.len() > Layout::TARGETS_MAX {
            return Err(StoreError::Invalid);
        }
        self.open_with(caller, at, path, how, Some(layout), now)
    }

    /// Takes the word of a writer that the file reaches to `at_least` and that `blocks` of 512 bytes were written to it `now`, at
    /// most, or [`u64::MAX`] if he does not know; tells its size. `cuts` is the
    /// number of the last cut that the objects had when they were written. [`StoreError::CutMeanwhile`] if that is an older
    /// cut than the file's, or if the file is being cut and would have to grow.
    pub fn tell_size(
        &self,
        ino: Ino,
        at_least: u64,
        cuts: u64,
        blocks: u64,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        if at_least > FILE_SIZE_MAX {
            return Err(StoreError::FileTooLarge);
        }
        let inode = self.namespace.inode(ino.0)?;
        inode.spread()?;
        {
            let _data = inode.share_data();
            if at_least <= inode.size() {
                return self.note_told(&inode, at_least, (cuts, blocks), now);
            }
        }
        // Those who make it grow come one after the other, as what they put into the database must.
        let _data = inode.own_data();
        self.note_told(&inode, at_least, (cuts, blocks), now)
    }

    /// Moves the end by `len` bytes; where it was. The caller owns the data of the inode, which is spread.
    pub(crate) fn reserve_told(&self, inode: &Arc<Inode>, len: u64, now: Timestamp) -> Result<Reserved, StoreError> {
        let (offset, cuts) = (inode.size(), inode.cuts());
        let end = check_end(offset, len)?;
        self.note_told(inode, end, (cuts, blocks_touched(offset, len)), now)?;
        Ok(Reserved { offset, cuts })
    }

    fn note_told(
        &self,
        inode: &Arc<Inode>,
        at_least: u64,
        (cuts, blocks): (u64, u64),
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let grows = at_least > inode.size();
        if cuts < inode.cuts() {
            return Err(StoreError::CutMeanwhile);
        }
        if grows {
            self.namespace.check_may_grow(inode)?;
        }
        self.before_write(inode, now)?;
        self.namespace.uncounted.change(inode, blocks);
        if grows {
            let _namespace = self.namespace.share();
            check_alive(inode)?;
            if !inode.has(UNLINKED) {
                let mut change = self.db.change();
                change.put_dirty_record(inode.ino, DirtyRecord::SizeAtLeast(at_least));
                change.commit()?;
            }
            inode.grow(at_least);
        }
        inode.touch(now);
        Ok(inode.size())
    }

    /// Notes that somebody may write the objects of a spread file from now on, whatever he tells: its set-id bits go.
    pub fn note_writer(&self, ino: Ino, now: Timestamp) -> Result<(), StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        inode.spread()?;
        if inode.has(LOOSE) {
            self.namespace.loose().insert(ino.0);
        }
        if inode.has(SET_ID) {
            let _data = inode.own_data();
            self.before_write(&inode, now)?;
        }
        Ok(())
    }

    /// Begins to cut loose files to the sizes that they have, `max` of them at most; that stands on stable storage when this
    /// returns. One that cannot be cut stays loose, and keeps no other from being cut. Nothing begins in a closed volume: it may
    /// have been copied already. To be called within a [passage](Namespace::passage).
    pub fn cut_loose(&self, max: usize) -> Result<Vec<Cut>, StoreError> {
        let closed = self.namespace.whereabouts();
        let is_closed = |ino: u64| closed.as_ref().is_some_and(|known| known.closed.contains_key(&Ino(ino).volume()));
        let loose: Vec<u64> =
            self.namespace.loose().iter().filter(|ino| !is_closed(**ino)).take(max).copied().collect();
        let mut cuts = Vec::with_capacity(loose.len());
        for ino in loose {
            match self.namespace.cut_if_there(ino) {
                Ok(Some(cut)) => cuts.push(cut),
                Ok(None) => _ = self.namespace.loose().remove(&ino),
                Err(error) => tracing::error!(ino, %error, "a file that has lost a writer cannot be cut"),
            }
        }
        if !cuts.is_empty() && !self.objects.is_volatile() {
            self.db.sync()?;
        }
        Ok(cuts)
    }

    /// Begins to cut a spread file to `size_bytes`, which is not above its size; that stands on stable storage when this
    /// returns. It replaces a cut that was begun before, also of one to the same size: an object that has done that
    /// one may have been written to since.
    pub fn begin_cut(&self, ino: Ino, size_bytes: u64, now: Timestamp) -> Result<Cut, StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        let spread = inode.spread()?;
        let mut objects = inode.own_data();
        if size_bytes > inode.size() {
            return Err(StoreError::Invalid);
        }
        let number = inode.cuts() + 1;
        self.namespace.put_cut(&inode, &mut objects, size_bytes, number, Some(now))?;
        drop(objects);
        if !self.objects.is_volatile() {
            self.db.sync()?;
        }
        Ok(Cut { ino, number, size_bytes, objects: spread })
    }

    /// Notes that all objects have done the cut of this `number`. `highest` is the highest number that one of them told: where
    /// that is above `number`, an older copy of the metadata was put back, no object has done anything, and the file is to
    /// be cut once more, as is told. A cut that is not the file's last changes nothing.
    pub fn finish_cut(&self, ino: Ino, number: u64, highest: u64, now: Timestamp) -> Result<Option<Cut>, StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        let spread = inode.spread()?;
        let mut objects = inode.own_data();
        if self.namespace.cuts().get(&ino.0) != Some(&number) {
            return Ok(None);
        }
        let size_bytes = inode.size();
        if highest > number {
            self.namespace.put_cut(&inode, &mut objects, size_bytes, highest + 1, Some(now))?;
            drop(objects);
            if !self.objects.is_volatile() {
                self.db.sync()?;
            }
            return Ok(Some(Cut { ino, number: highest + 1, size_bytes, objects: spread }));
        }
        let mut change = self.db.change();
        change.remove_cut(ino.0);
        change.commit()?;
        self.namespace.cuts().remove(&ino.0);
        inode.clear(CUTTING);
        self.namespace.uncounted.change(&inode, 0);
        Ok(None)
    }

    /// Cuts that were begun and not finished, on stable storage: to be gone on with after a start, and whenever a server is
    /// back.
    pub fn cuts_to_redo(&self) -> Result<Vec<Cut>, StoreError> {
        let begun: Vec<(u64, u64)> = self.namespace.cuts().iter().map(|(ino, number)| (*ino, *number)).collect();
        let mut cuts = Vec::with_capacity(begun.len());
        for (ino, number) in begun {
            let inode = match self.namespace.inode(ino) {
                Err(StoreError::Stale) => continue,
                inode => inode?,
            };
            let _data = inode.share_data();
            if inode.has(CUTTING) && inode.cuts() == number {
                let objects = inode.spread()?;
                cuts.push(Cut { ino: Ino(ino), number, size_bytes: inode.size(), objects });
            }
        }
        if !cuts.is_empty() && !self.objects.is_volatile() {
            self.db.sync()?;
        }
        Ok(cuts)
    }

    /// Objects of spread files that are gone, behind `after` in order, `max` at most: that nobody needs them stands on stable
    /// storage.
    pub fn objects_to_remove(
        &self,
        after: Option<&SpreadObjects>,
        max: usize,
    ) -> Result<Vec<SpreadObjects>, StoreError> {
        let after = after.map(|objects| ObjectsId { number: objects.number, generation: objects.generation });
        let mut found = Vec::new();
        if max > 0 {
            self.db.spread_orphans(after, |(id, layout)| {
                let is_open = |inode: &Arc<Inode>| Some(inode.refs.load(Relaxed) > 0);
                if self.namespace.inodes.read(id.number, is_open) != Some(true) {
                    found.push(SpreadObjects::new(id, Arc::new(layout)));
                }
                found.len() < max
            })?;
        }
        if !found.is_empty() && !self.objects.is_volatile() {
            self.db.sync()?;
        }
        Ok(found)
    }
}

impl Namespace {
    /// What a client needs to get at the bytes of a spread file; [`StoreError::Invalid`] if it is none.
    pub fn spread_of(&self, ino: Ino) -> Result<Spread, StoreError> {
        let inode = self.inode(ino.0)?;
        let objects = inode.spread()?;
        let _data = inode.share_data();
        Ok(Spread { objects, size_bytes: inode.size(), cuts: inode.cuts(), shortened: inode.shortened() })
    }

    /// Whether the first cut of a spread file after the one of number `cuts` made it shorter; nothing if that is not known, as after a start.
    pub fn was_shortened_after(&self, ino: Ino, cuts: u64) -> Result<Option<bool>, StoreError> {
        let inode = self.inode(ino.0)?;
        let _data = inode.share_data();
        Ok(inode.was_shortened_after(cuts))
    }

    /// Notes that objects of a spread file may have bytes behind its end of which nobody will tell.
    pub fn note_loose(&self, ino: Ino) -> Result<(), StoreError> {
        let inode = self.inode(ino.0)?;
        inode.spread()?;
        let _data = inode.own_data();
        self.loose().insert(ino.0);
        inode.set(LOOSE);
        Ok(())
    }

    /// Forgets the objects of this number and generation, which every server has removed.
    pub fn objects_removed(&self, (number, generation): (u64, u32)) -> Result<(), StoreError> {
        let mut change = self.db.change();
        change.remove_spread_orphan(ObjectsId { number, generation });
        change.commit()
    }

    /// Whether objects of this number and generation are those of a spread file that is there, or open: what the servers that
    /// have them ask ([`crate::ObjectStore::detached_objects`]). Of a file that another server has by now this one knows nothing.
    pub fn is_wanted(&self, number: u64, generation: u32) -> Result<bool, StoreError> {
        match self.inode(number) {
            Ok(inode) => Ok(inode.has(SPREAD) && inode.generation == generation),
            Err(StoreError::Stale) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// [`StoreError::CutMeanwhile`] of a spread file that has to be cut before it grows. The caller owns its data.
    pub(crate) fn check_may_grow(&self, inode: &Inode) -> Result<(), StoreError> {
        if !inode.has(CUTTING | LOOSE) {
            return Ok(());
        }
        if inode.has(LOOSE) {
            self.loose().insert(inode.ino);
        }
        Err(StoreError::CutMeanwhile)
    }

    fn cut_if_there(&self, ino: u64) -> Result<Option<Cut>, StoreError> {
        let cut = || {
            let inode = self.inode(ino)?;
            let spread = inode.spread()?;
            let mut objects = inode.own_data();
            let (size_bytes, number) = (inode.size(), inode.cuts() + 1);
            self.put_cut(&inode, &mut objects, size_bytes, number, None)?;
            Ok(Cut { ino: Ino(ino), number, size_bytes, objects: spread })
        };
        match cut() {
            Ok(cut) => Ok(Some(cut)),
            Err(StoreError::Stale | StoreError::Invalid) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn put_cut(
        &self,
        inode: &Arc<Inode>,
        objects: &mut Objects,
        size_bytes: u64,
        number: u64,
        now: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let _namespace = self.own();
        check_alive(inode)?;
        let (before, size_before) = (inode.cuts(), inode.size());
        let mut edit = self.edit();
        let record = edit.record(inode);
        (record.size, record.spread, record.blocks) = (size_bytes, Some(number), BLOCKS_UNKNOWN);
        if let Some(now) = now {
            note_write(record, now);
        }
        // A file without a name does not come back after a stop.
        if !inode.has(UNLINKED) {
            edit.put_cut(inode, number);
            if inode.has(DIRTY) {
                edit.forget_dirty(inode);
            }
        }
        let ReclaimList(_) = edit.commit()?;
        self.uncounted.cut(inode, (size_before, size_bytes));
        inode.note_cut(before, number, size_bytes < size_before);
        inode.resize(objects, size_bytes);
        self.cuts().insert(inode.ino, number);
        self.loose().remove(&inode.ino);
        inode.set(CUTTING);
        inode.clear(LOOSE);
        Ok(())
    }

    /// The file goes, and its objects with it.
    pub(crate) fn forget_cut(&self, inode: &Inode) {
        if inode.has(CUTTING) {
            self.cuts().remove(&inode.ino);
        }
    }

    /// Numbers of loose files of which somebody is about to write.
    pub(crate) fn loose(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.loose.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cuts(&self) -> MutexGuard<'_, Cuts> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inode {
    /// The objects of a spread file; [`StoreError::Invalid`] of any other.
    fn spread(&self) -> Result<SpreadObjects, StoreError> {
        match &self.layout {
            Some(layout) if self.has(SPREAD) => Ok(SpreadObjects::new(self.record().objects, layout.clone())),
            _ => Err(StoreError::Invalid),
        }
    }

    /// The number of the last cut of a spread file.
    pub(crate) fn cuts(&self) -> u64 {
        self.record().spread.unwrap_or(0)
    }
}
