//! Syncs of objects, of each one after the other.
//!
//! The host tells of bytes that it could not write to one of those who ask, whoever that is: descriptors of one object share what it has
//! to say. So between the failure of a sync and the note of it ([`ObjectStore::note_lost_writes`]) nobody else may sync the same
//! object and be told that all is well. Who comes meanwhile waits, and looks at the notes afterwards. Those who wait
//! share the next sync ([`GroupCommit`]), so that many who sync one file wait no longer than for two.

use crate::ObjectStore;
use crate::content::Content;
use crate::group_commit::GroupCommit;
use crate::object::ObjectPlace;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of objects that somebody syncs at this moment.
#[derive(Debug, Default)]
pub(crate) struct ObjectSyncs(Mutex<HashMap<ObjectPlace, Arc<GroupCommit>>>);

impl ObjectSyncs {
    fn all(&self) -> MutexGuard<'_, HashMap<ObjectPlace, Arc<GroupCommit>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectStore {
    /// Has `sync` put an object on stable storage, or relies on somebody else's that begins after this. Once it returns, failures of
    /// whoever synced the object before are noted with its content.
    pub(crate) fn sync_object_by(
        &self,
        content: &Content,
        place: ObjectPlace,
        sync: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let group = self.syncs.all().entry(place).or_default().clone();
        let synced = group.sync(|| sync().inspect_err(|e| self.note_lost_writes(content, place, None, *e)));
        let mut all = self.syncs.all();
        // This one's and the table's.
        if Arc::strong_count(&group) == 2 {
            all.remove(&place);
        }
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, OpenHow, Store, StoreConfig, TargetDir};
    use isonomia_proto::fs::{Timestamp, access};
    use isonomia_units::{Ino, ServerId, TargetId};
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::mpsc;

    #[test]
    fn nobody_is_told_that_all_is_well_before_a_failure_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let target = TargetDir { id: TargetId(0), dir: dir.path().join("target") };
        let store = Store::open(&StoreConfig::new(dir.path().join("store"), ServerId(0), vec![target])).unwrap();
        let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
        let now = Timestamp::new(1, 0).unwrap();
        let ino: Ino = store.open_file(&Caller::ROOT, Ino::ROOT, b"f", &how, now).unwrap().ino;
        store.write(ino, 0, b"lost", now).unwrap();
        let inode = store.namespace.inode(ino.0).unwrap();
        let layout = inode.layout.clone().unwrap();
        let place = inode.content.place(inode.share_data().id, &layout, 0);
        let (began, has_begun) = mpsc::channel();
        let has_second_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                store.objects.sync_object_by(&inode.content, place, || {
                    began.send(()).unwrap();
                    // The host has told of the failure, and it is not noted yet.
                    let is_waited_for = || store.objects.syncs.all()[&place].waiting() > 0;
                    while !is_waited_for() && !has_second_ended.load(SeqCst) {
                        std::thread::yield_now();
                    }
                    Err(Errno::IO)
                })
            });
            has_begun.recv().unwrap();
            let told = store.fsync_target_after(ino, Some(TargetId(0)), &mut Some(0));
            has_second_ended.store(true, SeqCst);
            assert!(told.is_err(), "what was lost is known by now");
            assert_eq!(first.join().unwrap(), Err(Errno::IO));
        });
        assert_eq!(store.objects.syncs.all().len(), 0);
    }
}
