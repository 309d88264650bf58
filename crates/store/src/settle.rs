//! Checksums that are right after a stop of any kind. What brings them to stable storage, once a file rests, brings the
//! objects there as well, and so the file's size to its record ([`crate::dirty_inodes`]), whether it has checksums or not.
//!
//! A block and its checksum lie in two files, so no stop of the machine leaves both old or both new for certain.
//! Checksums are therefore believed of files at rest only. A file that is being written has an entry in the keyspace
//! `unsettled`; after an unclean stop such a file is *suspect*: where a block and its checksum disagree the block is
//! believed and gets a new checksum (`blocks`), which the log counts. Of any other file a disagreement is damage.
//!
//! All of this is so of detached objects as well ([`crate::detached`]): "file" stands here for what has content of its own.
//!
//! # The rule
//! Whenever stable storage may have a block that disagrees with the checksum that stable storage has, it also has
//! the file's entry in `unsettled`, or a record that says that the file has no objects, or no record.
//!
//! # How it is kept
//! * *A settled file is written*, cut or extended: the entry is committed and the journal synced before the first byte
//!   changes ([`Store::before_change`], [`crate::first_write`]). So each change from rest to work costs a sync; none is needed where nothing survives
//!   a power cut anyway.
//! * *A new file is written*: the entry is committed, without a sync, before the first object exists. The record that
//!   says that there are objects comes later, and the journal reaches storage from its beginning: whoever finds that
//!   record finds the entry. The same holds of a file that got new objects when it was cut to nothing.
//! * *The entry goes* ([`Store::settle`]) after the object, the sidecar, and the directory entries of both were synced,
//!   if the file was not written since before that began. This is looked at once more where the entry is removed, with
//!   no write under way ([`Content::data`] is owned), and the removal stands in the journal after it.
//! * *fsync* leaves the entry. It syncs no sidecar, and the next write needs no sync of the journal: a database that
//!   writes and syncs alternately pays as much as without checksums.
//!
//! # Case by case
//! * *The server is killed.* The host has every byte that was written and every batch; of the checksums those that were
//!   written back. Files with newer ones in memory were written after their last settling, so they are suspect.
//! * *The power fails.* Of objects and sidecars any pages may be old, new, or, where the host tears them, mixed; the
//!   journal ends anywhere after the last sync. For a file whose entry survived nothing is asked of the checksums: what
//!   was fsynced is read as it is on storage. For a file without an entry there: either it was at rest when the last
//!   sync began and no write of it was let through since; or its entry was removed, after its bytes and checksums were
//!   synced, and they have not changed since; or the journal has not come to the record with its objects.
//! * *The host cannot bring a sidecar to the device*: it says so once. So the checksums are forgotten, and the file is suspect: it
//!   comes to rest when they were made anew and synced. No program hears of that, as no byte of it is lost.
//! * *A sidecar is torn, stale, cut, missing*: of a suspect file, it is made anew. Else it is damage: the object may be
//!   right, but nobody can tell, and `isonomia fsck --repair` is there to decide.
//! * *A second stop before a suspect file was looked through*: it still has its entry, and is suspect again.
//! * *A backup of the metadata put back*: entries are those of the backup. Objects that were written since disagree with
//!   nothing, as their sidecars are their own.
//!
//! # What it does not do
//! Damage to a suspect file that comes between the stop and the look through it is not noticed, but for blocks that are cut off
//! ([`crate::shortened`]), nor is older damage that nobody had met before the stop ([`crate::known_damage`]); nor is a torn block told from a
//! whole one, as on other file systems.

use crate::blocks::{BlockFault, sidecar_fault};
use crate::content::{Content, LOST_WRITES, Objects, Owner, RECLAIMED, SUMS, SUSPECT, UNSETTLED};
use crate::data::is_lost;
use crate::detached::Detached;
use crate::edit::ReclaimList;
use crate::inode::{DIRTY, Inode, UNLINKED};
use crate::object_file::ObjectFile;
use crate::protect::Unsettled;
use crate::{ObjectStore, Store, StoreError};
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

/// Files that are settled at a time at most.
const FILES_MAX: usize = 8192;
/// From so many files on whole file systems are synced, not files.
const SYNC_FILES_MAX: usize = 32;
/// Blocks of suspect files that one call looks at, at most: 256 MiB.
const SUSPECT_BLOCKS_MAX: u64 = 1 << 16;
/// Blocks that are looked at in one go, while nobody can cut the file.
const VERIFY_BLOCKS: u64 = 256;

/// Of [`Store::settle_those`]: also what was written just now.
fn every(content: &Content) -> bool {
    content.written.store(false, Relaxed);
    true
}

/// Files that fail are told at the end: the others are to settle all the same.
#[derive(Default)]
struct Failures(Option<(u64, StoreError)>);

impl Failures {
    fn add(&mut self, error: StoreError) {
        self.0 = Some((self.0.as_ref().map_or(0, |(count, _)| *count) + 1, error));
    }

    fn tell(self, what: &str) {
        if let Some((files, error)) = self.0 {
            tracing::warn!(files, %error, "{what}");
        }
    }
}

/// What is being settled. Who has it keeps it in memory.
enum Settling {
    File(Arc<Inode>),
    Detached(Arc<Detached>),
}

impl Settling {
    fn content(&self) -> &Arc<Content> {
        match self {
            Self::File(inode) => &inode.content,
            Self::Detached(object) => &object.content,
        }
    }
}

impl Store {
    /// Brings files that were not written since the last call to stable storage, with their checksums and sizes. To be
    /// called every few seconds, by a thread that may wait for the storage.
    pub fn settle(&self) -> Result<(), StoreError> {
        self.objects.protection.report();
        self.settle_those(|content| !content.written.swap(false, Relaxed)).map(drop)
    }

    /// The same for all files, when nobody writes any more.
    pub(crate) fn settle_all(&self) -> Result<(), StoreError> {
        // Each round settles some, or there is nothing that can be.
        while self.settle_those(every)? > 0 {}
        Ok(())
    }

    /// The same for all files that rest for as long as this takes.
    pub(crate) fn settle_what_rests(&self) -> Result<(), StoreError> {
        // What is written meanwhile comes up again and again.
        let dirty = self.namespace.dirty_inodes().all().count();
        let files = dirty + self.objects.unsettled().len();
        for _ in 0..=files / FILES_MAX {
            if self.settle_those(every)? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn settling(&self, owner: Owner) -> Result<Settling, StoreError> {
        match owner {
            Owner::File(ino) => self.namespace.inode(ino).map(Settling::File),
            Owner::Detached(place) => self.objects.detached(place).map(Settling::Detached),
        }
    }

    fn settle_those(&self, is_quiet: impl Fn(&Content) -> bool) -> Result<usize, StoreError> {
        let mut waiting: HashMap<Owner, Unsettled> = HashMap::new();
        if self.objects.protection.is_on {
            waiting.clone_from(&self.objects.unsettled());
        }
        for ino in self.namespace.dirty_inodes().all() {
            waiting.entry(Owner::File(ino)).or_default();
        }
        let mut budget = SUSPECT_BLOCKS_MAX;
        let mut quiet = Vec::new();
        let (mut failed, mut unreadable) = (Failures::default(), Failures::default());
        for (owner, state) in waiting {
            let settling = match self.settling(owner) {
                Ok(settling) => settling,
                Err(StoreError::Stale) => {
                    self.objects.settled(owner)?;
                    if let Owner::File(ino) = owner {
                        self.namespace.forget_dirty(ino);
                    }
                    continue;
                }
                Err(error) => {
                    unreadable.add(error);
                    continue;
                }
            };
            let content = settling.content();
            if !is_quiet(content) || content.has(UNLINKED) {
                continue;
            }
            match state.suspect.map_or(Ok(true), |done| self.objects.renew(content, done, &mut budget, false)) {
                Ok(true) => quiet.push(owner),
                Ok(false) => {}
                Err(error) => failed.add(error),
            }
        }
        failed.tell("files that were being written at an unclean stop cannot be looked through");
        unreadable.tell("what is known of files that were written cannot be read");
        let mut count = 0;
        for some in quiet.chunks(FILES_MAX) {
            let some = some.iter().filter_map(|owner| self.settling(*owner).ok()).collect();
            let synced = self.write_back_and_sync(some);
            if !synced.is_empty() {
                // Each file is locked while the database takes the change. A device of the database that hangs is waited for here,
                // where nobody who reads or writes a file waits for this.
                self.db.sync()?;
            }
            for settling in synced {
                count += usize::from(self.let_rest(&settling)?);
            }
        }
        Ok(count)
    }

    /// Looks through what is left of a suspect file of which blocks are lost, and lets it rest: what is lost is damage then.
    pub(crate) fn settle_short(&self, owner: Owner) -> Result<(), StoreError> {
        let settling = self.settling(owner)?;
        tracing::info!(ino = %settling.content().ino(), "looking through all that is left of a file that lacks blocks");
        let mut budget = u64::MAX;
        self.objects.renew(settling.content(), 0, &mut budget, true)?;
        self.write_back_and_sync(vec![settling]).iter().try_for_each(|settling| self.let_rest(settling).map(drop))
    }

    fn let_rest(&self, settling: &Settling) -> Result<bool, StoreError> {
        match settling {
            Settling::File(inode) => self.end_settling(inode),
            Settling::Detached(object) => self.objects.end_settling_detached(object),
        }
    }

    /// Removes entry and dirty record of a file whose objects and checksums were synced, unless it was written since.
    fn end_settling(&self, inode: &Arc<Inode>) -> Result<bool, StoreError> {
        let mut objects = inode.own_data();
        let namespace = self.namespace.own();
        if is_busy(inode) || inode.has(UNLINKED) {
            return Ok(false);
        }
        objects.all_synced(inode.size());
        let mut edit = self.namespace.edit();
        if inode.has(DIRTY) {
            edit.flush(inode, inode.size());
        }
        if inode.has(UNSETTLED) && self.objects.protection.is_on {
            edit.settle(inode);
        }
        let ReclaimList(_) = edit.commit()?;
        drop(namespace);
        self.objects.forget_void(&inode.content, &objects);
        Ok(true)
    }
}

impl ObjectStore {
    /// The same for a detached object.
    fn end_settling_detached(&self, object: &Detached) -> Result<bool, StoreError> {
        let content = &object.content;
        let objects = content.own_data();
        if is_busy(content) || content.has(RECLAIMED) || !content.has(UNSETTLED) {
            return Ok(false);
        }
        let mut change = self.db.change();
        object.put_into(&mut change);
        change.remove_unsettled(content.owner);
        change.commit()?;
        self.unsettled().remove(&content.owner);
        content.clear(UNSETTLED | SUSPECT);
        self.forget_void(content, &objects);
        Ok(true)
    }

    /// What was known to be damaged and was overwritten is on stable storage.
    fn forget_void(&self, content: &Content, objects: &Objects) {
        let Some(layout) = &content.layout else { return };
        for index in (0..layout.targets.len()).filter(|index| content.was_created(*index)) {
            self.known_damage(content.place(objects.id, layout, index)).settled();
        }
    }

    fn settled(&self, owner: Owner) -> Result<(), StoreError> {
        let mut change = self.db.change();
        change.remove_unsettled(owner);
        change.commit()?;
        self.unsettled().remove(&owner);
        Ok(())
    }
}

impl Store {
    /// Writes sidecars back and syncs them with their objects; the files for which that succeeded.
    fn write_back_and_sync(&self, files: Vec<Settling>) -> Vec<Settling> {
        let by_file = files.len() <= SYNC_FILES_MAX;
        let mut done = Vec::with_capacity(files.len());
        let mut failed = Failures::default();
        for settling in files {
            match self.objects.write_back(settling.content(), by_file && !self.objects.is_volatile()) {
                Ok(()) => done.push(settling),
                Err(error) => failed.add(error),
            }
        }
        failed.tell("files cannot be brought to stable storage yet");
        if !by_file
            && !self.objects.is_volatile()
            && let Err(error) = self.objects.targets.sync_all()
        {
            let files = done.len();
            tracing::error!(files, %error,
                "what was written cannot be brought to the device and may be lost: fsync tells those who have the files open");
            // The host tells of it once, and this was the time.
            done.drain(..).for_each(|settling| {
                let content = settling.content();
                content.count_lost_writes();
                self.objects.distrust(content, 0..content.layout.as_ref().map_or(0, |layout| layout.targets.len()));
            });
            self.db.forget_verifier();
        }
        done
    }
}

impl ObjectStore {
    fn write_back(&self, content: &Arc<Content>, sync: bool) -> Result<(), StoreError> {
        let Some(layout) = content.layout.clone() else { return Ok(()) };
        for index in 0..layout.targets.len() {
            // Who is writing ends first, and may be creating it.
            let mut objects = content.own_data();
            if !content.was_created(index) {
                continue;
            }
            self.targets.open_object(content, &layout, &mut objects, index, false)?;
            if is_lost(content, &objects, index) && !content.sums()[index].is_dirty() {
                continue;
            }
            let sidecar = self.checked_blocks(content, &layout, &objects, index)?.map(|blocks| {
                let written_back = blocks.sums.lock().write_back(&blocks.place);
                written_back
                    .map_err(|fault| self.block_error(content, &layout, &objects, index, sidecar_fault(fault, 0)))
            });
            let sidecar = sidecar.transpose()?;
            if !sync {
                continue;
            }
            let object = objects.object(index).map(ObjectFile::shared);
            let place = content.place(objects.id, &layout, index);
            // Writers go on while the disk works.
            drop(objects);
            if let Some(sidecar) = sidecar {
                let synced = rustix::fs::fdatasync::<OwnedFd>(sidecar);
                // No bytes of the program's are lost by that.
                synced.map_err(|e| {
                    self.distrust(content, index..index + 1);
                    self.object_error(place, e)
                })?;
            }
            if let Some(object) = object {
                let synced = self.sync_object_by(content, place, || rustix::fs::fdatasync(object));
                synced.map_err(|e| self.object_error(place, e))?;
            }
            self.targets.sync_directory(place)?;
        }
        Ok(())
    }

    /// Forgets the checksums of some objects, to be made anew: the host could not bring the sidecars to the device, and the next
    /// sync would not say so.
    fn distrust(&self, content: &Arc<Content>, indices: Range<usize>) {
        let _objects = content.own_data();
        if !self.protection.is_on || !content.has(SUMS) || content.has(RECLAIMED) {
            return;
        }
        content.set(SUSPECT);
        self.unsettled().entry(content.owner).or_default().suspect = Some(0);
        for index in indices.filter(|index| content.was_created(*index)) {
            content.sums()[index].lock().start_anew();
        }
    }

    /// Looks through a suspect file, `done` blocks of which were looked at before, and makes new checksums where they
    /// disagree; false if there is more of it than `budget` blocks. If it `is_short` those of blocks behind its end are left.
    fn renew(&self, content: &Arc<Content>, done: u64, budget: &mut u64, is_short: bool) -> Result<bool, StoreError> {
        let Some(layout) = content.layout.clone() else { return Ok(true) };
        content.set(SUSPECT);
        let mut seen = 0;
        let before = self.protection.watch.renewed.load(Relaxed);
        for index in 0..layout.targets.len() {
            if !content.was_created(index) {
                continue;
            }
            let mut at = 0;
            loop {
                let mut objects = content.own_data();
                self.targets.open_object(content, &layout, &mut objects, index, false)?;
                let objects = std::sync::RwLockWriteGuard::downgrade(objects);
                if is_lost(content, &objects, index) {
                    let place = content.place(objects.id, &layout, index);
                    let object = self.targets.path(place);
                    tracing::error!(ino = %content.ino(), object = %object.display(), "an object is missing");
                    // What checksums there are may be older, and are not to say what of it was never written.
                    self.targets.remove_object(place)?;
                    content.sums()[index].lock().reset();
                    break;
                }
                let Some(blocks) = self.checked_blocks(content, &layout, &objects, index)? else { return Ok(true) };
                let fail = |fault| self.block_error(content, &layout, &objects, index, fault);
                if at == 0 && !is_short {
                    blocks.believe_end().map_err(fail)?;
                }
                let end = if is_short { blocks.count_there() } else { blocks.count() }.map_err(fail)?;
                let skipped = done.saturating_sub(seen).min(end - at.min(end));
                (at, seen) = (at + skipped, seen + skipped);
                if at >= end {
                    break;
                }
                if *budget == 0 {
                    self.unsettled().insert(content.owner, Unsettled { suspect: Some(seen) });
                    return Ok(false);
                }
                let run = VERIFY_BLOCKS.min(end - at).min(*budget);
                let tell = |offset, what| drop(fail(BlockFault::Damaged { offset, what }));
                blocks.verify(at, run as usize, tell).map_err(fail)?;
                (at, seen, *budget) = (at + run, seen + run, *budget - run);
                drop(objects);
                self.trim_sums();
            }
        }
        let renewed = self.protection.watch.renewed.load(Relaxed) - before;
        if renewed > 0 {
            tracing::info!(ino = %content.ino(), blocks = renewed, "new checksums: it was being written at an unclean stop");
        }
        Ok(true)
    }

    /// Whether all files lie in memory: nothing survives a power cut, and nothing has to be flushed.
    pub fn is_volatile(&self) -> bool {
        self.removal.is_volatile
    }

    pub(crate) fn unsettled(&self) -> std::sync::MutexGuard<'_, std::collections::HashMap<Owner, Unsettled>> {
        self.protection.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it was written since what it had was brought to stable storage, or not all of that could be.
fn is_busy(content: &Content) -> bool {
    content.written.load(Relaxed) || content.has(LOST_WRITES) || content.has_dirty_sums()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{config, create, now};
    use rustix::fs::{FileType, Mode};
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_record_that_cannot_be_read_keeps_no_other_file_from_anything() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let mut store = Store::open(&config).unwrap();
        // As on a disk.
        store.objects.removal.is_volatile = false;
        let now = now();
        let names = ["spoilt", "first", "second", "third"];
        let inos = names.map(|name| {
            let ino = create(&store, name);
            store.write(ino, 0, name.as_bytes(), now).unwrap();
            store.release(ino).unwrap();
            ino
        });
        let mut change = store.db.change();
        change.spoil_record(inos[0].0);
        change.commit().unwrap();
        store.namespace.inodes.remove(inos[0].0);
        store.flush_dirty().unwrap_or_default();
        (0..2).for_each(|_| store.settle().unwrap());
        let left: Vec<u64> = store.db.dirty_records().unwrap().iter().map(|(ino, _)| *ino).collect();
        assert_eq!(left, [inos[0].0]);
        assert_eq!(store.objects.unsettled().keys().copied().collect::<Vec<_>>(), [Owner::File(inos[0].0)]);
        store.backup(&dir.path().join("copy"), &AtomicBool::new(false)).unwrap();
        assert!(store.close().is_err());
        drop(store);
        for _ in 0..2 {
            let store = Store::open(&config).unwrap();
            for (ino, name) in inos.iter().zip(names).skip(1) {
                let mut bytes = [0; 10];
                let len = store.read(*ino, 0, &mut bytes).unwrap();
                assert_eq!(&bytes[..len], name.as_bytes());
            }
            assert!(store.read(inos[0], 0, &mut [0; 10]).is_err());
        }
    }

    #[test]
    fn checksums_that_cannot_be_synced_are_made_anew_and_no_program_hears_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let mut store = Store::open(&config).unwrap();
        // As on a disk.
        store.objects.removal.is_volatile = false;
        let now = now();
        let ino = create(&store, "file");
        store.write(ino, 0, &[7; 10_000], now).unwrap();
        store.settle_all().unwrap();
        let inode = store.namespace.inode(ino.0).unwrap();
        let place = inode.content.place(inode.share_data().id, inode.layout.as_ref().unwrap(), 0);
        let sidecar = dir.path().join("target/objects").join(place.object.sidecar_name());
        let old = std::fs::read(&sidecar).unwrap();
        store.write(ino, 0, &[8; 10_000], now).unwrap();
        // As when memory was given back: nothing is left to be written, but to be synced.
        inode.sums()[0].lock().write_back(&store.objects.targets.sidecar(place).unwrap()).unwrap();
        std::fs::remove_file(&sidecar).unwrap();
        // This can be opened and not be synced.
        rustix::fs::mknodat(rustix::fs::CWD, &sidecar, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert_eq!(store.settle_those(every).unwrap(), 0);
        assert!(!inode.has(LOST_WRITES));
        store.fsync(ino, false).unwrap();
        // What a device has that did not get the new one.
        std::fs::remove_file(&sidecar).unwrap();
        std::fs::write(&sidecar, old).unwrap();
        store.settle_all().unwrap();
        assert!(!inode.has(UNSETTLED | SUSPECT));
        drop(inode);
        store.release(ino).unwrap();
        store.close().unwrap();
        drop(store);
        let store = Store::open(&config).unwrap();
        let mut bytes = [0; 10_000];
        assert_eq!(store.read(ino, 0, &mut bytes).unwrap(), bytes.len());
        assert_eq!(bytes, [8; 10_000]);
    }
}
