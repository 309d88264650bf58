//! Syncs of the directories that objects are in: that an object exists outlives a power cut only if its directory was synced since.
//!
//! What is known of an object goes with it when it leaves memory. So it is counted for each directory, too: where nothing was created
//! since it was last synced, nobody has to do that once more for an object that he has just loaded. When a store is opened all directories
//! are synced: it was closed so, or [`crate::recovery`] has done that. File systems in user space may not have done it; there each directory
//! counts as one to be synced.

use super::{DIRECTORIES, ObjectPlace, ObjectsId, Targets, directory_name};
use crate::StoreError;
use crate::content::{Content, OBJECTS, Objects};
use crate::object_file::is_in_user_space;
use isonomia_proto::fs::Layout;
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
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
    /// Those below this directory.
    pub fn of(objects: &OwnedFd) -> Self {
        // Linux syncs such file systems without asking their programs to (`fuse_sync_fs`, but for virtiofs).
        let created = u64::from(is_in_user_space(objects));
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
        self.target(place).is_ok_and(|target| {
            let directory = target.entries.directory(place);
            directory.synced.load(SeqCst) >= directory.created.load(SeqCst)
        })
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
    use crate::Store;
    use crate::fixture::{config, create, now};

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
        let write = |ino| store.write(ino, 0, b"new", now()).unwrap();
        write(first);
        assert!(!are_synced(&store, first) && !are_synced(&store, same) && are_synced(&store, second));
        store.fsync(first, false).unwrap();
        assert!(are_synced(&store, first) && are_synced(&store, same));
        write(first);
        assert!(are_synced(&store, first), "it was there before");
        write(same);
        assert!(!are_synced(&store, first) && !are_synced(&store, same) && are_synced(&store, second));
        store.close().unwrap();
        drop(store);
        store = Store::open(&config(dir.path())).unwrap();
        assert!(files.iter().all(|ino| are_synced(&store, *ino)));
    }
}
