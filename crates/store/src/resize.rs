//! Cutting and extending files.
//!
//! * To nothing: the file gets objects of another number, in one batch with its new size. The old ones are removed
//!   later ([`crate::removal`]): after a power cut there is either all of the old content or none of it.
//! * To less: the new size goes to stable storage, with a dirty record that says that objects are to be cut to it, before the
//!   first object is cut. A stop in between leaves work that recovery does again.
//! * A spread file is cut in steps, with the servers that have its objects: [`crate::spread`].
//! * To more: the size in the record is all there is to it. What objects lack below the size reads as zeros, so none may
//!   have bytes beyond it; see [`Store::check_objects`].

use crate::blocks::{BlockFault, sidecar_fault};
use crate::checksum::blocks_in;
use crate::content::{Content, OBJECTS, Objects, Owner, RECLAIMED, SUMS};
use crate::edit::ReclaimList;
use crate::inode::{DIRTY, Inode, SPREAD, UNLINKED};
use crate::object::{ObjectsId, object_size};
use crate::permission::after_write;
use crate::record::Record;
use crate::removal::Unused;
use crate::sums::SidecarFault;
use crate::{ObjectStore, Store, StoreError};
use isonomia_proto::fs::{Layout, Timestamp};
use isonomia_units::Ino;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Store {
    pub(crate) fn set_inode_size(&self, inode: &Arc<Inode>, size: u64, now: Timestamp) -> Result<(), StoreError> {
        let layout = inode.any_regular()?;
        let mut objects = inode.own_data();
        if inode.has(SPREAD) && size < inode.size() {
            return Err(StoreError::MustCut { ino: Ino(inode.ino), size_bytes: size });
        }
        if size > inode.size() {
            self.namespace.check_may_grow(inode)?;
        }
        if inode.has(OBJECTS) && size == 0 {
            let unused = self.replace_objects(inode, layout, &mut objects, now)?;
            drop(objects);
            self.objects.remove_later(unused);
            return Ok(());
        }
        self.check_objects(inode, layout, &mut objects)?;
        self.before_change(inode)?;
        let is_cut = inode.has(OBJECTS) && size < inode.size();
        self.store_size(inode, &mut objects, size, is_cut, now)?;
        if is_cut {
            self.cut_objects(inode, layout, &mut objects, size)?;
        }
        Ok(())
    }

    /// Gives the file objects of another number, of which there are none yet.
    fn replace_objects(
        &self,
        inode: &Arc<Inode>,
        layout: &Arc<Layout>,
        objects: &mut Objects,
        now: Timestamp,
    ) -> Result<Unused, StoreError> {
        // The record is not to say what the old ones took.
        inode.space.forget();
        let mut numbers = self.namespace.own();
        check_alive(inode)?;
        let number = self.namespace.new_number(&mut numbers, Ino(inode.ino).volume())?;
        let new = ObjectsId { number, generation: self.namespace.generation };
        let unused = Unused { id: objects.id, layout: layout.clone(), size: inode.size() };
        let mut edit = self.namespace.edit();
        edit.orphan(inode, unused.id, layout);
        if inode.has(UNLINKED) {
            edit.orphan(inode, new, layout);
        } else if inode.has(DIRTY) {
            edit.forget_dirty(inode);
        }
        let record = edit.record(inode);
        (record.objects, record.has_objects, record.has_sums, record.size) = (new, false, false, 0);
        record.created = [].into();
        note_write(record, now);
        let ReclaimList(_) = edit.commit()?;
        inode.clear(OBJECTS | SUMS);
        inode.forget_created();
        objects.become_those_of(new);
        inode.resize(objects, 0);
        Ok(unused)
    }

    /// Brings the record with a new size to the database; with a dirty record, on stable storage, if objects are to be cut.
    pub(crate) fn store_size(
        &self,
        inode: &Arc<Inode>,
        objects: &mut Objects,
        size: u64,
        is_cut: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if is_cut {
            inode.space.forget();
        }
        {
            let _namespace = self.namespace.own();
            check_alive(inode)?;
            let mut edit = self.namespace.edit();
            let record = edit.record(inode);
            record.size = size;
            note_write(record, now);
            // A file without a name does not come back after a stop.
            if is_cut && !inode.has(UNLINKED) {
                edit.mark_cut(inode);
            } else if inode.has(DIRTY) && !inode.has(UNLINKED) {
                edit.forget_dirty(inode);
            }
            let ReclaimList(_) = edit.commit()?;
            objects.is_trimmed &= !is_cut;
            // Before anybody else changes the record, or that would bring the old size back.
            inode.resize(objects, size);
        }
        if is_cut && !inode.has(UNLINKED) && !self.objects.removal.is_volatile {
            self.db.sync()?;
        }
        Ok(())
    }

    /// Cuts the objects to a size that stands in the database, and takes the dirty record away that says so.
    fn cut_objects(
        &self,
        inode: &Arc<Inode>,
        layout: &Layout,
        objects: &mut Objects,
        size: u64,
    ) -> Result<(), StoreError> {
        let is_synced = !self.objects.is_volatile() && !inode.has(UNLINKED);
        for index in 0..layout.targets.len() {
            self.objects.cut_bytes(
                &inode.content,
                layout,
                objects,
                index,
                object_size(layout, index, size),
                is_synced,
            )?;
        }
        objects.is_trimmed = true;
        if !inode.has(UNLINKED) {
            let mut change = self.db.change();
            change.remove_dirty_record(inode.ino);
            change.commit()?;
        }
        Ok(())
    }

    /// Cuts what objects have beyond the end of the file, unless that is known to be nothing. There can be something
    /// after a power cut: bytes that were written, and whose size was not.
    pub(crate) fn check_objects(
        &self,
        inode: &Arc<Inode>,
        layout: &Layout,
        objects: &mut Objects,
    ) -> Result<(), StoreError> {
        for index in 0..layout.targets.len() {
            if objects.is_trimmed || !inode.has(OBJECTS) {
                break;
            }
            let wanted = object_size(layout, index, inode.size());
            let found = self.objects.targets.stat_object(inode.place(objects.id, layout, index))?;
            if found.is_some_and(|stat| stat.st_size as u64 > wanted) {
                self.before_change(inode)?;
                let is_synced = !self.objects.is_volatile() && !inode.has(UNLINKED);
                self.objects.cut_bytes(&inode.content, layout, objects, index, wanted, is_synced)?;
                inode.space.forget();
            }
        }
        objects.is_trimmed = true;
        Ok(())
    }
}

impl ObjectStore {
    /// Cuts one object to so many bytes. On stable storage if it `is_synced`: the dirty record of a later write says that the
    /// file is as long as its objects, and a power cut is not to bring back what was cut off.
    pub(crate) fn cut_bytes(
        &self,
        content: &Arc<Content>,
        layout: &Layout,
        objects: &mut Objects,
        index: usize,
        wanted: u64,
        is_synced: bool,
    ) -> Result<(), StoreError> {
        self.targets.open_object(content, layout, objects, index, false)?;
        let fail = |fault| self.block_error(content, layout, objects, index, fault);
        let Some(object) = objects.object(index) else {
            return self.cut_lost(content, layout, objects, index, wanted).map(|_| ());
        };
        let stat = rustix::fs::fstat(object).map_err(|e| fail(BlockFault::Host(e)))?;
        if stat.st_size as u64 <= wanted {
            // Blocks that it lost before that stay lost: one that gets longer would have zeros there.
            let is_short = self.cut_lost(content, layout, objects, index, wanted)?;
            let len = if is_short { stat.st_size as u64 } else { wanted };
            // Hosts free what was set aside behind the end when they are asked to cut to the length that there is. Whether
            // there is any cannot be told from how much there is in all: an object may have holes.
            let times = if stat.st_blocks > 0 { 2 } else { 0 };
            return (0..times)
                .try_for_each(|_| rustix::fs::ftruncate(object.to_change()?, len))
                .map_err(|e| fail(BlockFault::Host(e)));
        }
        let cut = match self.checked_blocks(content, layout, objects, index)? {
            Some(blocks) => blocks.resize(wanted),
            None => object.to_change().and_then(|fd| rustix::fs::ftruncate(fd, wanted)).map_err(BlockFault::Host),
        };
        cut.map_err(fail)?;
        if !is_synced {
            return Ok(());
        }
        // What it fails with may be what was written before: others who have the file open are to hear of that.
        let place = content.place(objects.id, layout, index);
        self.sync_object_by(content, place, || rustix::fs::fdatasync(object)).map_err(|e| fail(BlockFault::Host(e)))
    }

    /// Takes blocks of an object for cut that are lost already: no longer is there anything behind `wanted` bytes that could be
    /// missing. Whether there was any loss.
    fn cut_lost(
        &self,
        content: &Arc<Content>,
        layout: &Layout,
        objects: &Objects,
        index: usize,
        wanted: u64,
    ) -> Result<bool, StoreError> {
        let fail = |fault| self.block_error(content, layout, objects, index, fault);
        let Some(blocks) = self.checked_blocks(content, layout, objects, index)? else { return Ok(false) };
        // Also where the checksums say no more that anything is lost: what comes to be there is a hole.
        blocks.known.iter().for_each(|known| known.cut(blocks_in(wanted)));
        if !blocks.is_short().map_err(fail)? {
            return Ok(false);
        }
        match blocks.sums.lock().cut(&blocks.place, blocks_in(wanted)) {
            Ok(()) => Ok(true),
            // What the file has is an error anyway, and it has less of that.
            Err(SidecarFault::Damaged(_)) if matches!(content.owner, Owner::File(_)) => Ok(true),
            Err(fault) => Err(fail(sidecar_fault(fault, wanted))),
        }
    }
}

/// The caller has the namespace lock.
pub(crate) fn check_alive(inode: &Inode) -> Result<(), StoreError> {
    let is_gone = inode.has(RECLAIMED) || (inode.has(UNLINKED) && inode.refs.load(Relaxed) == 0);
    if is_gone { Err(StoreError::Stale) } else { Ok(()) }
}

/// What a write does to a record besides the size.
pub(crate) fn note_write(record: &mut Record, now: Timestamp) {
    record.mode = after_write(record.mode);
    (record.mtime, record.ctime) = (now, now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreConfig;
    use crate::fixture::{config, create, now};
    use rustix::fs::{Mode, OFlags};
    use std::path::PathBuf;

    const BLOCK: usize = 4096;

    /// A store with a file of seven blocks at rest, and where its object lies.
    fn seven_blocks(config: &StoreConfig) -> (Store, Arc<Inode>, PathBuf) {
        let store = Store::open(config).unwrap();
        let ino = create(&store, "file");
        store.write(ino, 0, &[7; 7 * BLOCK], now()).unwrap();
        (0..2).for_each(|_| store.settle().unwrap());
        let inode = store.namespace.inode(ino.0).unwrap();
        assert!(!inode.has(DIRTY));
        let place = inode.content.place(inode.share_data().id, inode.layout.as_ref().unwrap(), 0);
        let object = store.objects.targets.path(place);
        (store, inode, object)
    }

    #[test]
    fn a_cut_that_a_kill_left_undone_also_cuts_what_was_lost_before() {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig { host_start: Some("the same".to_owned()), ..config(dir.path()) };
        let (store, inode, object) = seven_blocks(&config);
        std::fs::File::options().write(true).open(object).unwrap().set_len(2 * BLOCK as u64).unwrap();
        store.before_change(&inode).unwrap();
        store.store_size(&inode, &mut inode.own_data(), 4 * BLOCK as u64, true, now()).unwrap();
        let ino = Ino(inode.ino);
        drop((store, inode));
        let store = Store::open(&config).unwrap();
        assert_eq!(store.namespace.inode(ino.0).unwrap().size(), 4 * BLOCK as u64);
    }

    #[test]
    fn what_a_host_did_not_cut_off_does_not_come_back() {
        let end = 5 * BLOCK as u64;
        type Grow<'g> = &'g dyn Fn(&Store, Ino);
        let grow: [Grow<'_>; 4] = [
            &|store, ino| assert_eq!(store.write(ino, end, &[9; BLOCK], now()).unwrap(), BLOCK),
            &|store, ino| assert_eq!(store.append(ino, &[9; BLOCK], now()).unwrap().1, BLOCK),
            &|store, ino| assert_eq!(store.reserve_append(ino, 4 * BLOCK as u64, now()).unwrap().offset, 100),
            &|store, ino| store.set_size(ino, end, now()).map(drop).unwrap(),
        ];
        for grow in grow {
            let dir = tempfile::tempdir().unwrap();
            let (store, inode, path) = seven_blocks(&config(dir.path()));
            let ino = Ino(inode.ino);
            let object = |access| rustix::fs::open(&path, access | OFlags::CLOEXEC, Mode::empty()).unwrap().into();
            inode.own_data().put(0, object(OFlags::RDONLY));
            assert!(store.set_size(ino, 100, now()).is_err());
            let mut bytes = [0; BLOCK];
            assert_eq!(store.read(ino, 0, &mut bytes).unwrap(), 100, "what is left can be read");
            assert_eq!(bytes[..100], [7; 100]);
            assert!(store.write(ino, end, &[9; BLOCK], now()).is_err(), "as long as it cannot be cut");
            inode.own_data().put(0, object(OFlags::RDWR));
            grow(&store, ino);
            for block in 0..5 {
                let len = store.read(ino, (block * BLOCK) as u64, &mut bytes).unwrap();
                let from = if block == 0 { 100 } else { 0 };
                let zeros = bytes[..len].get(from..).unwrap_or_default();
                assert!(zeros.iter().all(|byte| matches!(byte, 0 | 9)), "{block}");
            }
            assert_eq!(store.objects().checksum_status().damaged_total, 0);
        }
    }
}
