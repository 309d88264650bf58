//! Putting files on stable storage, and who hears of what could not be put there.
//!
//! The host tells of bytes that it could not write once, to whoever has it sync them, be that a program's `fsync` or our own
//! write-back ([`crate::settle`], [`crate::extent`]). So each loss is counted with the content, and everybody who has the file open
//! hears of it at his next `fsync`, once: whoever counts for him ([`Namespace::lost_writes`]) says of how many he has heard. Who
//! opens the file later hears of what nobody has heard yet. Linux does the same (`errseq_t`, `lib/errseq.c`), but for each
//! description of an open file: here it is for each session. Who has not heard of it when the process ends hears of it by the
//! verifier of the next one (`database::stop`).

use crate::change_counts::Committed;
use crate::content::{Content, LOST_WRITES, OBJECTS, Objects};
use crate::data::indices;
use crate::inode::{DIRTY, Inode, SPREAD};
use crate::object::{ObjectPlace, object_size};
use crate::object_file::ObjectFile;
use crate::{Namespace, ObjectStore, Store, StoreError};
use isonomia_proto::fs::Layout;
use isonomia_units::{Ino, TargetId};
use rustix::io::Errno;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};

impl Store {
    /// Puts the file's bytes, size and times, and everything that was done to the namespace before, on stable
    /// storage, unless it is a spread one: [`Store::fsync_target`] of every target, and [`Store::fsync_attributes`].
    pub fn fsync(&self, ino: Ino, data_only: bool) -> Result<(), StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        if inode.has(SPREAD) {
            return Err(StoreError::Spread);
        }
        for target in inode.layout.iter().flat_map(|layout| &layout.targets) {
            self.fsync_target(ino, Some(*target))?;
        }
        self.fsync_attributes(ino, data_only)
    }

    /// `bytes`, which is [`Self::fsync_target_after`] of the last of the file's targets, and [`Self::fsync_attributes`] at the same time:
    /// what waits for devices waits no longer than for the slowest of them.
    ///
    /// If the bytes of all other targets were synced before, a power cut leaves the file as it is now. The database may tell less of its
    /// size then, but says that the file is as long as its objects ([`crate::dirty_inodes`]).
    pub fn fsync_with_attributes(
        &self,
        ino: Ino,
        data_only: bool,
        bytes: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if self.fsync_together(ino, data_only, bytes)? { Ok(()) } else { self.fsync_attributes(ino, data_only) }
    }

    /// The same while the bytes of other targets are being synced: when all are done, a power cut leaves the file as it is now. False if
    /// that takes [`Self::fsync_attributes`], after all of them.
    pub fn fsync_together(
        &self,
        ino: Ino,
        data_only: bool,
        bytes: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        let Some(layout) = &inode.layout else { return bytes().map(|()| false) };
        let Some((records, committed)) = self.commit_attributes(&inode, layout, data_only) else {
            bytes()?;
            return Ok(data_only && self.is_synced_with_bytes(&inode, layout)?);
        };
        self.objects.sync_at_once(&inode.content, layout, Some(committed), bytes)?;
        inode.note_synced(records);
        Ok(true)
    }

    /// Hands the times of a file to the database before its bytes are synced; how many records it has with that. Nothing if there is no need
    /// for it, if its objects do not tell its size, or if it failed, which is then found once more.
    fn commit_attributes(&self, inode: &Arc<Inode>, layout: &Layout, data_only: bool) -> Option<(u64, Committed)> {
        if inode.has(SPREAD) || data_only && self.is_size_stored(inode, &inode.share_data()) {
            return None;
        }
        // Else it would have no dirty record, by which an object is known that a power cut has undone.
        let leaves_record = |objects: &Objects| {
            self.synced_size(inode, objects) < inode.size()
                || self.objects.new_entries(&inode.content, layout, objects).is_empty()
        };
        if !self.flush_inode_if(inode, leaves_record).ok()? {
            return None;
        }
        if inode.has(DIRTY) && !self.objects.has_end(&inode.content, layout, inode.size()).ok()? {
            return None;
        }
        let records = inode.records();
        Some((records, self.db.committed()))
    }

    /// Whether the file, whose bytes were synced, has its size on stable storage with them. Its objects have their names there
    /// then in any case.
    fn is_synced_with_bytes(&self, inode: &Inode, layout: &Layout) -> Result<bool, StoreError> {
        let mut objects = inode.own_data();
        self.objects.targets.sync_entries(&inode.content, layout, &mut objects)?;
        Ok(self.is_size_stored(inode, &objects))
    }

    /// Whether the file has its size on stable storage, with the bytes.
    fn is_size_stored(&self, inode: &Inode, objects: &Objects) -> bool {
        inode.is_size_synced() && self.synced_size(inode, objects) >= inode.size()
    }

    /// Whether one more line of the log is to say what a device did not take: only some are, between two calls of [`Self::settle`].
    pub fn may_tell_refused(&self) -> bool {
        self.objects.protection.may_tell_refused()
    }

    /// As [`Self::fsync_target_after`], for somebody who hears only what nobody has heard yet.
    pub fn fsync_target(&self, ino: Ino, target: Option<TargetId>) -> Result<(), StoreError> {
        self.fsync_target_after(ino, target, &mut None)
    }

    /// Puts what lies on `target` of the file's bytes on stable storage. [`StoreError::Stale`] if that is not one of the
    /// file's targets, or if there are some and none is named. Fails as well if bytes were lost before, and whoever asks has not
    /// been told: he knows of `heard` such losses ([`crate::Namespace::lost_writes`]), which are brought up to date.
    pub fn fsync_target_after(
        &self,
        ino: Ino,
        target: Option<TargetId>,
        heard: &mut Option<u64>,
    ) -> Result<(), StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        let (layout, target) = match (inode.layout.as_ref(), target) {
            (None, None) => return Ok(()),
            // Its objects are synced where they are.
            (Some(_), None) if inode.has(SPREAD) => return Ok(()),
            (Some(layout), Some(target)) if layout.targets.contains(&target) => (layout, target),
            _ => return Err(StoreError::Stale),
        };
        if inode.has(SPREAD) {
            return Err(StoreError::Spread);
        }
        for index in (0..layout.targets.len()).filter(|index| layout.targets[*index] == target) {
            self.check_objects(&inode, layout, &mut inode.own_data())?;
            self.objects.sync_bytes(&inode.content, layout, index, heard)?;
        }
        Ok(())
    }

    /// Puts the inode's size and times, and everything that was done to the namespace before, on stable storage, once its
    /// bytes are there. With `data_only` not where a program overwrites what it has synced before: the size is on stable storage
    /// then, and a dirty record may stay.
    pub fn fsync_attributes(&self, ino: Ino, data_only: bool) -> Result<(), StoreError> {
        let inode = self.namespace.inode(ino.0)?;
        if let Some(layout) = &inode.layout {
            if self.is_synced_with_bytes(&inode, layout)? && data_only {
                return Ok(());
            }
            self.flush_inode(&inode)?;
        }
        let records = inode.records();
        self.db.sync()?;
        inode.note_synced(records);
        Ok(())
    }
}

impl Namespace {
    /// How often the host could not write bytes of a file that were acknowledged, as far as whoever opens it now is not to hear
    /// of it: as in Linux (`errseq_t`), he hears what nobody has heard yet.
    pub fn lost_writes(&self, ino: Ino) -> u64 {
        let Some(inode) = self.inodes.get(ino.0) else { return 0 };
        inode.lost_writes() - u64::from(inode.has(LOST_WRITES) && inode.lost_writes() > 0)
    }
}

impl ObjectStore {
    /// The host could not write bytes of this object that were acknowledged, as far as is known those in `range`. It tells of that
    /// once; all who have the file open are to hear it, from this process or the next.
    pub(crate) fn note_lost_writes(
        &self,
        content: &Content,
        place: ObjectPlace,
        range: Option<Range<u64>>,
        error: Errno,
    ) {
        let (ino, object) = (content.ino(), self.targets.path(place));
        let (object_offset, end) = (range.as_ref().map(|range| range.start), range.as_ref().map(|range| range.end));
        if self.protection.may_tell_refused() {
            tracing::error!(%ino, object = %object.display(), object_offset, end, %error,
                "what was written cannot be brought to the device and may be lost: fsync tells those who have the file open");
        }
        content.count_lost_writes();
        self.db.forget_verifier();
    }

    /// Whether the object that has the last byte of a file of this size is long enough for it. It may not be where room was given to
    /// somebody who has yet to write there.
    fn has_end(&self, content: &Content, layout: &Layout, size: u64) -> Result<bool, StoreError> {
        let Some(index) = indices(layout, size.saturating_sub(1), size.min(1)).next() else { return Ok(true) };
        let place = content.place(content.share_data().id, layout, index);
        let found = self.targets.stat_object(place)?;
        Ok(found.is_some_and(|stat| stat.st_size as u64 >= object_size(layout, index, size)))
    }

    /// The objects that were created, and whose directories may not have been synced since.
    fn new_entries(&self, content: &Content, layout: &Layout, objects: &Objects) -> Vec<usize> {
        let is_new = |index: &usize| {
            let place = content.place(objects.id, layout, *index);
            let is_synced = objects.is_entry_synced(*index) || self.targets.are_entries_synced(place);
            !is_synced && content.was_created(*index)
        };
        (0..if content.has(OBJECTS) { layout.targets.len() } else { 0 }).filter(is_new).collect()
    }

    /// Has `bytes` put objects of this content on stable storage, and meanwhile puts there that they exist, where that is not known, and what was
    /// `committed` to the database. For each of the two there is a thread, if one is to be had: a thread can ask the host for
    /// one sync at a time.
    pub(crate) fn sync_at_once(
        &self,
        content: &Content,
        layout: &Layout,
        committed: Option<Committed>,
        bytes: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (id, creations, created) = {
            let objects = content.share_data();
            (objects.id, objects.creations(), self.new_entries(content, layout, &objects))
        };
        let sync_entries =
            || created.iter().try_for_each(|index| self.targets.sync_directory(content.place(id, layout, *index)));
        let sync_database = || committed.map_or(Ok(()), |committed| self.db.sync_since(committed));
        // Memory does not keep anybody waiting.
        let waits = !self.is_volatile();
        let (bytes, entries, database) = std::thread::scope(|scope| {
            let entries = spawn(waits && !created.is_empty(), scope, &sync_entries);
            let database = committed.filter(|committed| waits && self.db.needs_sync(*committed));
            let database = spawn(database.is_some(), scope, &sync_database);
            (bytes(), end(entries, &sync_entries), end(database, &sync_database))
        });
        bytes.and(entries)?;
        if !created.is_empty() {
            let mut objects = content.own_data();
            // One that was created meanwhile, which may be one of them that somebody had removed, is not on stable storage.
            if objects.id == id && objects.creations() == creations {
                created.iter().for_each(|index| objects.set_entry_synced(*index, true));
            }
        }
        database
    }

    /// Puts the bytes of one object on stable storage, for somebody who has `heard` of so many losses.
    pub(crate) fn sync_bytes(
        &self,
        content: &Arc<Content>,
        layout: &Layout,
        index: usize,
        heard: &mut Option<u64>,
    ) -> Result<(), StoreError> {
        let (place, size, resizes, object) = {
            let mut objects = content.own_data();
            self.targets.open_object(content, layout, &mut objects, index, false)?;
            // Writers go on while the disk works.
            let object = objects.object(index).map(ObjectFile::shared);
            (content.place(objects.id, layout, index), content.size(), objects.resizes, object)
        };
        let mut failed = None;
        if let Some(fd) = object {
            failed = self.sync_object_by(content, place, || rustix::fs::fdatasync(fd)).err();
        }
        // Whoever had it written back before has taken what the host had to say.
        let lost = content.lost_writes();
        let is_news = content.clear(LOST_WRITES) || heard.is_some_and(|heard| heard < lost);
        if let Some(heard) = heard {
            *heard = lost;
        }
        if is_news {
            return Err(self.object_error(place, failed.unwrap_or(Errno::IO)));
        }
        let mut objects = content.own_data();
        if objects.resizes == resizes {
            objects.synced(index, size);
        }
        Ok(())
    }
}

type Part<'a> = &'a (dyn Fn() -> Result<(), StoreError> + Sync);
type Begun<'scope> = ScopedJoinHandle<'scope, Result<(), StoreError>>;

/// Has a thread do it, if it is needed and there is one to be had.
fn spawn<'scope>(is_needed: bool, scope: &'scope Scope<'scope, '_>, part: Part<'scope>) -> Option<Begun<'scope>> {
    is_needed.then(|| Builder::new().name("sync".to_owned()).spawn_scoped(scope, part).ok()).flatten()
}

/// What came of it; it is done here if no thread did it.
fn end(begun: Option<Begun<'_>>, part: Part<'_>) -> Result<(), StoreError> {
    match begun {
        Some(begun) => begun.join().unwrap_or_else(|panic| resume_unwind(panic)),
        None => part(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TargetDir;
    use crate::fixture::{config, create, now};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    #[test]
    fn everybody_who_has_the_file_open_hears_once_of_bytes_that_were_lost() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&config(dir.path())).unwrap();
        let now = now();
        let ino = create(&store, "f");
        store.write(ino, 0, b"lost", now).unwrap();
        let inode = store.namespace.inode(ino.0).unwrap();
        let place = inode.content.place(inode.share_data().id, inode.layout.as_ref().unwrap(), 0);
        let lose = || store.objects.note_lost_writes(&inode.content, place, None, Errno::IO);
        let sync = |heard: &mut Option<u64>| store.fsync_target_after(ino, Some(TargetId(0)), heard).is_ok();
        let (mut first, mut second) =
            (Some(store.namespace().lost_writes(ino)), Some(store.namespace().lost_writes(ino)));
        assert!(sync(&mut first) && sync(&mut second));
        lose();
        assert!(!sync(&mut first) && sync(&mut first));
        let mut late = Some(store.namespace().lost_writes(ino));
        assert!(sync(&mut late), "it was heard of before he came");
        assert!(!sync(&mut second) && sync(&mut second) && sync(&mut first) && sync(&mut None));
        // While nobody has the file open.
        lose();
        let mut next = Some(store.namespace().lost_writes(ino));
        assert!(!sync(&mut next) && sync(&mut next) && sync(&mut None));
    }

    #[test]
    fn the_database_is_synced_while_bytes_are() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&config(dir.path())).unwrap();
        store.objects.removal.is_volatile = false;
        let ino = create(&store, "f");
        store.write(ino, 0, b"new", now()).unwrap();
        let inode = store.namespace.inode(ino.0).unwrap();
        let (_, committed) = store.commit_attributes(&inode, inode.layout.as_ref().unwrap(), false).unwrap();
        let (before, begun) = (store.db.number(), Instant::now());
        let bytes = || {
            while store.db.number() == before {
                assert!(begun.elapsed() < Duration::from_secs(60), "it waits for the bytes");
                std::thread::yield_now();
            }
            Ok(())
        };
        store.objects.sync_at_once(&inode.content, inode.layout.as_ref().unwrap(), Some(committed), bytes).unwrap();
        assert_eq!(store.db.number(), before + 1);
        assert!(inode.share_data().is_entry_synced(0) && !store.db.needs_sync(committed));
        let fails = || Err(StoreError::Stale);
        let layout = inode.layout.as_ref().unwrap();
        assert!(matches!(store.objects.sync_at_once(&inode.content, layout, None, fails), Err(StoreError::Stale)));
    }

    #[test]
    fn a_new_object_that_changes_no_size_is_synced_before_the_database_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&config(dir.path())).unwrap();
        store.objects.removal.is_volatile = false;
        let ino = create(&store, "f");
        let inode = store.namespace.inode(ino.0).unwrap();
        let layout = inode.layout.as_ref().unwrap();
        store.set_size(ino, 8_192, now()).unwrap();
        store.fsync(ino, false).unwrap();
        store.write(ino, 0, b"new", now()).unwrap();
        assert!(store.commit_attributes(&inode, layout, false).is_none());
        let bytes = || store.fsync_target(ino, Some(layout.targets[0]));
        assert!(!store.fsync_together(ino, false, bytes).unwrap() && !inode.share_data().is_entry_synced(0));
        store.fsync_with_attributes(ino, false, bytes).unwrap();
        assert!(inode.share_data().is_entry_synced(0));
        store.write(ino, 0, b"old", now()).unwrap();
        assert!(store.commit_attributes(&inode, layout, false).is_some());
    }

    #[test]
    fn an_object_that_is_created_while_others_are_synced_is_not_among_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.targets =
            (0..2).map(|id| TargetDir { id: TargetId(id), dir: dir.path().join(id.to_string()) }).collect();
        config.default_layout.stripe_count = 2;
        let mut store = Store::open(&config).unwrap();
        store.objects.removal.is_volatile = false;
        let ino = create(&store, "f");
        let inode = store.namespace.inode(ino.0).unwrap();
        let layout = inode.layout.as_ref().unwrap();
        store.write(ino, 0, b"first", now()).unwrap();
        let are_synced = || [0, 1].map(|index| inode.share_data().is_entry_synced(index));
        // Somebody has removed one, and it is made anew.
        let make_anew = || {
            inode.own_data().entry_created(0);
            Ok(())
        };
        store.objects.sync_at_once(&inode.content, layout, None, make_anew).unwrap();
        assert!(!are_synced()[0]);
        let write = || store.write(ino, layout.stripe_bytes, b"second", now()).map(drop);
        store.objects.sync_at_once(&inode.content, layout, None, write).unwrap();
        assert!(!are_synced()[1]);
        store.fsync(ino, true).unwrap();
        assert_eq!(are_synced(), [true, true]);
    }

    #[test]
    fn a_device_that_takes_nothing_does_not_fill_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&config(dir.path())).unwrap();
        let ino = create(&store, "f");
        let inode = store.namespace.inode(ino.0).unwrap();
        let place = inode.content.place(inode.share_data().id, inode.layout.as_ref().unwrap(), 0);
        let told = || {
            (0..100).for_each(|_| store.objects.note_lost_writes(&inode.content, place, None, Errno::IO));
            (0..100).filter(|_| store.objects.protection.may_tell_refused()).count()
        };
        assert_eq!(told(), 0);
        store.settle().unwrap();
        assert!(store.objects.protection.may_tell_refused(), "there is a line again");
    }

    #[test]
    fn what_was_lost_outlives_the_process_that_was_to_tell_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.host_start = Some("the same".to_owned());
        let now = now();
        // A file whose bytes no host can bring to a device.
        let unlucky = |store: &mut Store, name: &str| {
            // As on a disk.
            store.objects.removal.is_volatile = false;
            let ino = create(store, name);
            store.write(ino, 0, b"lost", now).unwrap();
            let (object, _) = UnixStream::pair().unwrap();
            let inode = store.namespace.inode(ino.0).unwrap();
            inode.own_data().put(0, OwnedFd::from(object).into());
            ino
        };
        type Loss<'a> = &'a dyn Fn(&mut Store);
        let none: Loss<'_> = &|_| {};
        let by_fsync: Loss<'_> = &|store| {
            let ino = unlucky(store, "fsync");
            assert!(
                store.fsync_target(ino, Some(TargetId(0))).is_err(),
                "one has heard, and others may have the file open"
            );
        };
        let by_settling: Loss<'_> = &|store| {
            let ino = unlucky(store, "settle");
            (0..2).for_each(|_| store.settle().unwrap());
            assert!(store.namespace.inode(ino.0).unwrap().has(LOST_WRITES));
        };
        let by_the_last_sync: Loss<'_> = &|store| {
            store.objects.removal.is_volatile = false;
            store.objects.targets.spoil_sync_all();
            assert!(store.close().is_err());
        };
        let at_a_start: Loss<'_> = &|store| {
            store.objects.targets.spoil_sync_all();
            assert!(crate::recovery::recover(&store.db, &store.objects.targets, &config, &[], false).is_err());
        };
        let mut verifier = Store::open(&config).unwrap().verifier();
        let losses = [none, by_fsync, by_settling, by_the_last_sync, at_a_start];
        for (loss, is_lost) in losses.into_iter().zip([false, true, true, true, true]) {
            let mut store = Store::open(&config).unwrap();
            loss(&mut store);
            assert_eq!(store.verifier(), verifier, "as long as this one can tell");
            drop(store);
            let next = Store::open(&config).unwrap().verifier();
            assert_eq!(next != verifier, is_lost);
            verifier = next;
        }
        let mut store = Store::open(&config).unwrap();
        by_fsync(&mut store);
        store.close().unwrap();
        drop(store);
        assert_ne!(Store::open(&config).unwrap().verifier(), verifier, "also after a stop in order");
    }
}
