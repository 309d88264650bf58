//! Syncs of the directories that objects are in: that an object exists outlives a power cut only if its directory was synced since.
//!
//! What is known of an object goes with it when it leaves memory. So it is counted for each directory, too: where nothing was created
//! since it was last synced, nobody has to do that once more for an object that he has just loaded. When a store is opened all directories
//! are synced: it was closed so, or [`crate::recovery`] has done that. Where the file system need not have done it each counts as one to be
//! synced.

use super::{DIRECTORIES, ObjectPlace, ObjectsId, Targets, directory_name};
use crate::StoreError;
use crate::content::{Content, OBJECTS, Objects};
use isonomia_proto::fs::Layout;
use rustix::fs::{Mode, OFlags};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// The directories of objects of one target.
pub(super) struct Entries(Box<[Directory]>);

struct Directory {
    /// Objects that were created since the store was opened.
    created: AtomicU64,
    /// Those of them that are known to have their entry on stable storage: so many were created before a sync.
    synced: AtomicU64,
}

impl Entries {
    /// Those of a store that is being opened; whether they `are_synced`.
    pub fn new(are_synced: bool) -> Self {
        let created = u64::from(!are_synced);
        let directory = || Directory { created: AtomicU64::new(created), synced: AtomicU64::new(0) };
        Self((0..DIRECTORIES).map(|_| directory()).collect())
    }

    /// An object was.
    pub fn created(&self, place: ObjectPlace) {
        // Not before it is there: a sync that began earlier may not have it.
        self.directory(place).created.fetch_add(1, SeqCst);
    }

    fn directory(&self, place: ObjectPlace) -> &Directory {
        &self.0[ObjectsId::of(place.object).directory()]
    }
}

impl Directory {
    fn are_synced(&self) -> bool {
        self.synced.load(SeqCst) >= self.created.load(SeqCst)
    }
}

impl Targets {
    /// Syncs the directories of the objects whose entries may not have been since they were created.
    pub fn sync_entries(&self, content: &Content, layout: &Layout, objects: &mut Objects) -> Result<(), StoreError> {
        for index in 0..layout.targets.len() {
            if !objects.is_entry_synced(index) && content.has(OBJECTS) {
                let place = content.place(objects.id, layout, index);
                if !self.are_entries_synced(place) {
                    self.sync_directory(place)?;
                }
                objects.set_entry_synced(index, true);
            }
        }
        Ok(())
    }

    /// Whether all objects in the directory of this one have their entries on stable storage.
    pub fn are_entries_synced(&self, place: ObjectPlace) -> bool {
        self.target(place).is_ok_and(|target| target.entries.directory(place).are_synced())
    }

    /// Syncs the directory of an object.
    pub fn sync_directory(&self, place: ObjectPlace) -> Result<(), StoreError> {
        let target = self.target(place)?;
        let directory = target.entries.directory(place);
        let created = directory.created.load(SeqCst);
        let name = directory_name(ObjectsId::of(place.object).directory());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&target.objects, &name, flags, Mode::empty())
            .and_then(rustix::fs::fsync)
            .map_err(|e| StoreError::host(&target.path.join(&name), e))?;
        directory.synced.fetch_max(created, SeqCst);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Entries;
    use crate::Store;
    use crate::checksum::ObjectId;
    use crate::fixture::{config, create, now};
    use crate::object::ObjectPlace;
    use isonomia_units::TargetId;

    #[test]
    fn a_directory_is_synced_when_all_that_was_created_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&config(dir.path())).unwrap();
        // The second file is far enough from the first to have another directory, and the last has the directory of the first.
        let files: Vec<_> = (0..=super::DIRECTORIES).map(|number| create(&store, &format!("f{number}"))).collect();
        let (first, second, same) = (files[0], files[1], files[super::DIRECTORIES]);
        let are_synced = |store: &Store, ino: isonomia_units::Ino| {
            let inode = store.namespace.inode(ino.0).unwrap();
            let place = inode.content.place(inode.share_data().id, inode.layout.as_ref().unwrap(), 0);
            store.objects.targets.are_entries_synced(place)
        };
        store.objects.targets.all[0].entries = Entries::new(true);
        let write = |ino| store.write(ino, 0, b"new", now()).unwrap();
        write(first);
        assert!(!are_synced(&store, first) && !are_synced(&store, same) && are_synced(&store, second));
        store.fsync(first, false).unwrap();
        assert!(are_synced(&store, first) && are_synced(&store, same));
        write(first);
        assert!(are_synced(&store, first), "it was there before");
        write(same);
        assert!(!are_synced(&store, first) && !are_synced(&store, same) && are_synced(&store, second));
    }

    #[test]
    fn nothing_is_taken_for_synced_where_the_host_need_not_have_done_it() {
        for are_synced in [true, false] {
            let entries = Entries::new(are_synced);
            let place = |number| {
                let object = ObjectId { number, generation: 1, index: 0 };
                entries.directory(ObjectPlace { object, target: TargetId(0) }).are_synced()
            };
            assert!((0..256).all(|number| place(number) == are_synced));
        }
    }
}
