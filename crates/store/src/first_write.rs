//! The first write to a file that rests: what is to be on stable storage before the first byte changes.
//!
//! A file that rests gets an entry in `unsettled`, and the journal is synced ([`crate::settle`] has the rule). Who writes would
//! have to wait for that, though one sync is enough for any number of files: so a server has it done for all that are about to
//! be written to at once ([`Store::begin_writing`]), and the write finds it done.

use crate::content::{Content, OBJECTS, RECLAIMED, SUMS, UNSETTLED};
use crate::edit::ReclaimList;
use crate::inode::{Inode, SPREAD};
use crate::object::ObjectPlace;
use crate::{ObjectStore, Store, StoreError};
use isonomia_units::Ino;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Store {
    /// What must be on stable storage before the first byte of `inode` changes: that its checksums are about to, or that
    /// it has none any more. The caller has [`Content::data`].
    pub(crate) fn before_change(&self, inode: &Arc<Inode>) -> Result<(), StoreError> {
        if !inode.written.load(Relaxed) {
            inode.written.store(true, Relaxed);
        }
        if inode.has(SPREAD) {
            return Ok(());
        }
        if inode.has(SUMS) && !self.objects.protection.is_on {
            return self.give_up_sums(inode);
        }
        self.objects.unsettle(&inode.content)
    }

    /// Checksums are off: after a write they would be wrong.
    fn give_up_sums(&self, inode: &Arc<Inode>) -> Result<(), StoreError> {
        let _namespace = self.namespace.own();
        inode.clear(SUMS);
        let mut edit = self.namespace.edit();
        edit.record(inode);
        let committed = edit.commit().and_then(|ReclaimList(_)| self.db.sync());
        committed.inspect_err(|_| {
            inode.set(SUMS);
        })
    }

    /// Whether the next write to the file would sync the database first. Of a file that was not looked up lately it is not known;
    /// false then.
    pub fn rests(&self, ino: Ino) -> bool {
        // Where nothing rests nothing is looked up for each write.
        self.objects.waits_at_rest()
            && self
                .namespace
                .inodes
                .get(ino.0)
                .is_some_and(|inode| !inode.has(SPREAD) && self.objects.rests(&inode.content))
    }

    /// Whether who writes to the file next has to wait for the database, as [`Self::rests`] says, or for the device, as the host lets
    /// nobody else write where somebody does past the page cache. Of a file that was not looked up lately it is not known; true then.
    pub fn write_waits(&self, ino: Ino) -> bool {
        !self.objects.is_volatile()
            && self
                .namespace
                .inodes
                .get(ino.0)
                .is_none_or(|inode| inode.is_written_directly() || self.objects.rests(&inode.content))
    }

    /// Whether somebody writes to the file past the page cache.
    pub fn is_written_directly(&self, ino: Ino) -> bool {
        self.namespace.inodes.get(ino.0).is_some_and(|inode| inode.is_written_directly())
    }

    /// Has it on stable storage that these files and objects are being written, for those that rest, by one sync of the
    /// database: the next write to each need not wait for one, unless the file comes to rest again before. One that somebody has
    /// for himself at the moment or is about to, as who cuts it does, is left to its write.
    pub fn begin_writing(&self, files: &[Ino], objects: &[ObjectPlace]) -> Result<(), StoreError> {
        let inodes: Vec<_> = files.iter().filter_map(|ino| self.namespace.inodes.get(ino.0)).collect();
        let detached: Vec<_> = objects.iter().filter_map(|place| self.objects.detached.get(*place)).collect();
        let of_files = inodes.iter().filter(|inode| !inode.has(SPREAD)).map(|inode| &*inode.content);
        let contents = of_files.chain(detached.iter().map(|object| &*object.content));
        let (shared, to_be_told): (Vec<_>, Vec<_>) = contents
            .filter_map(|content| Some((content.data.try_read().ok()?, content)))
            .filter(|(_, content)| self.objects.rests(content) && !content.has(RECLAIMED))
            .unzip();
        // The write is to come: who settles what was not written lately leaves these alone once.
        to_be_told.iter().for_each(|content| content.written.store(true, Relaxed));
        let told = self.objects.unsettle_all(&to_be_told);
        drop(shared);
        told
    }
}

impl ObjectStore {
    /// The same for an object.
    pub fn object_rests(&self, place: ObjectPlace) -> bool {
        self.waits_at_rest() && self.detached.get(place).is_some_and(|object| self.rests(&object.content))
    }

    /// Whether the first write to what rests waits for anything.
    fn waits_at_rest(&self) -> bool {
        !self.is_volatile() && self.protection.is_on
    }

    fn rests(&self, content: &Content) -> bool {
        self.waits_at_rest() && content.has(OBJECTS) && self.is_to_be_unsettled(content)
    }

    fn is_to_be_unsettled(&self, content: &Content) -> bool {
        let will_have_sums = self.protection.is_on && (content.has(SUMS) || !content.has(OBJECTS));
        will_have_sums && !content.has(UNSETTLED)
    }

    /// Notes that content changes from now on, if it rests. The caller has [`Content::data`].
    pub(crate) fn unsettle(&self, content: &Content) -> Result<(), StoreError> {
        if self.is_to_be_unsettled(content) { self.unsettle_all(&[content]) } else { Ok(()) }
    }

    /// The same for several, all of which are to be unsettled. The caller has the data of each.
    fn unsettle_all(&self, contents: &[&Content]) -> Result<(), StoreError> {
        if contents.is_empty() {
            return Ok(());
        }
        let mut change = self.db.change();
        for content in contents {
            // Before the database: an entry for content that is removed meanwhile is then found and removed.
            self.unsettled().entry(content.owner).or_default();
            change.put_unsettled(content.owner);
        }
        let is_synced = contents.iter().any(|content| content.has(OBJECTS)) && !self.is_volatile();
        let told = change.commit().and_then(|()| if is_synced { self.db.sync() } else { Ok(()) });
        // Memory has entries of what is marked only: by another one, content that is loaded again would pass for told, and what is settled
        // at a stop would never be all. Somebody else may have told of the same content meanwhile, or failed to.
        let mut unsettled = self.unsettled();
        for content in contents {
            if told.is_ok() {
                unsettled.entry(content.owner).or_default();
                content.set(UNSETTLED);
            } else if !content.has(UNSETTLED) {
                unsettled.remove(&content.owner);
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::ObjectId;
    use crate::fixture::{config, create, now};
    use crate::{Ownership, StoreConfig};
    use isonomia_units::{Nanos, TargetId};

    const COUNT: usize = 20;

    /// A store that takes its directory for a disk, and files in it that rest.
    fn at_rest(dir: &std::path::Path) -> (Store, Vec<Ino>) {
        at_rest_in(&config(dir))
    }

    fn at_rest_in(config: &StoreConfig) -> (Store, Vec<Ino>) {
        let mut store = Store::open(config).unwrap();
        store.objects.removal.is_volatile = false;
        let files: Vec<Ino> = (0..COUNT).map(|number| create(&store, &format!("file {number}"))).collect();
        assert!(files.iter().all(|ino| store.write(*ino, 0, b"first", now()).is_ok()));
        (0..2).for_each(|_| store.settle().unwrap());
        assert!(files.iter().all(|ino| store.rests(*ino) && store.write_waits(*ino)));
        (store, files)
    }

    #[test]
    fn one_sync_does_for_all_that_are_about_to_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let (store, files) = at_rest(dir.path());
        let before = store.db.number();
        store.begin_writing(&files, &[]).unwrap();
        assert_eq!(store.db.number(), before + 1);
        assert!(!files.iter().any(|ino| store.rests(*ino) || store.write_waits(*ino)));
        store.begin_writing(&files, &[]).unwrap();
        assert!(files.iter().all(|ino| store.write(*ino, 0, b"again", now()).is_ok()));
        assert_eq!(store.db.number(), before + 1, "nobody has to sync any more");
        // A stop that is no clean one finds all of them.
        drop(store);
        let store = Store::open(&config(dir.path())).unwrap();
        assert_eq!(store.objects().checksum_status().unsettled_files, COUNT as u64);
    }

    #[test]
    fn what_is_about_to_be_written_and_is_not_comes_to_rest_again() {
        let dir = tempfile::tempdir().unwrap();
        let (store, files) = at_rest(dir.path());
        store.begin_writing(&files, &[]).unwrap();
        assert_eq!(store.objects().checksum_status().unsettled_files, COUNT as u64);
        (0..2).for_each(|_| store.settle().unwrap());
        assert_eq!(store.objects().checksum_status().unsettled_files, 0);
        assert!(files.iter().all(|ino| store.rests(*ino)));
    }

    #[test]
    fn what_could_not_be_told_is_not_taken_for_told() {
        let dir = tempfile::tempdir().unwrap();
        // One fence for the database and the targets.
        let ownership = Some(Ownership { wait: Nanos(1), ..Ownership::new("io1".to_owned(), 3, false) });
        let (store, files) = at_rest_in(&StoreConfig { ownership, ..config(dir.path()) });
        let told = store.begin_writing(&files[..1], &[]);
        assert!(told.is_ok() && !store.rests(files[0]));
        // From now on the database takes nothing.
        store.fence().end(None);
        assert!(store.begin_writing(&files, &[]).is_err());
        assert!(store.write(files[1], 0, b"again", now()).is_err());
        assert_eq!(store.objects().checksum_status().unsettled_files, 1, "what was told before stays");
        assert!(!store.rests(files[0]) && files[1..].iter().all(|ino| store.rests(*ino)));
    }

    #[test]
    fn what_is_about_to_be_written_outlasts_a_look_for_what_was_not() {
        let dir = tempfile::tempdir().unwrap();
        let (store, files) = at_rest(dir.path());
        store.begin_writing(&files, &[]).unwrap();
        store.settle().unwrap();
        assert!(!files.iter().any(|ino| store.rests(*ino)));
    }

    #[test]
    fn a_file_that_somebody_has_for_himself_is_left_to_its_write_and_keeps_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (store, files) = at_rest(dir.path());
        let inode = store.namespace.inode(files[0].0).unwrap();
        let owned = inode.own_data();
        store.begin_writing(&files, &[]).unwrap();
        assert!(store.rests(files[0]) && !files[1..].iter().any(|ino| store.rests(*ino)));
        drop(owned);
        let before = store.db.number();
        store.write(files[0], 0, b"again", now()).unwrap();
        assert_eq!(store.db.number(), before + 1);
    }

    #[test]
    fn an_object_of_a_spread_file_rests_as_a_file_does() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&config(dir.path())).unwrap();
        store.objects.removal.is_volatile = false;
        let place = ObjectPlace { object: ObjectId { number: 7, generation: 1, index: 0 }, target: TargetId(0) };
        let objects = store.objects();
        objects.write_object(place, 0, &b"first"[..]).unwrap();
        assert!(!objects.object_rests(place));
        (0..2).for_each(|_| store.settle().unwrap());
        assert!(objects.object_rests(place));
        store.begin_writing(&[], &[place]).unwrap();
        let number = store.db.number();
        assert!(!objects.object_rests(place));
        objects.write_object(place, 0, &b"again"[..]).unwrap();
        assert_eq!(store.db.number(), number);
    }
}
