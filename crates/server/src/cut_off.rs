//! The clients of a mount are cut off before the locks of its programs are given up.
//!
//! A mount has a client for each user and job, and asks for the locks of all its programs through one of them. When the session of
//! that one has ended others may have the locks, while programs that believe they have them go on through the other clients. So these
//! are cut off first: their connections are closed, and what they were changing is waited for. They come again on new
//! connections, and ask on each of them, before anything else, in the session that has the locks, whether these are lost.

use crate::core::Core;
use crate::locks::Scope;
use crate::sessions::{MountKey, Session};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

/// The mounts of whose clients some have been cut off, and still change something.
#[derive(Debug, Default)]
pub struct UnfinishedMounts(HashSet<MountKey>);

impl Core {
    /// Closes the connections of the other clients of mounts that are about to lose their locks. The caretaker's part.
    /// O(connections), if there are such mounts.
    pub fn cut_off_mounts(&self) -> UnfinishedMounts {
        let mut ended = self.holders.all_ended();
        ended.retain(|(_, session)| session.mount.get().is_some() && self.has_locks(session));
        if ended.is_empty() {
            return UnfinishedMounts::default();
        }
        let uncut = ended.iter().filter(|(_, session)| !session.is_cut_off.load(Ordering::Acquire));
        let mounts: HashMap<MountKey, _> =
            uncut.clone().filter_map(|(key, session)| Some((*session.mount.get()?, *key))).collect();
        let connections = self.unfinished.of_mounts(&mounts);
        connections.iter().for_each(|connection| self.close(connection, None));
        uncut.for_each(|(_, session)| session.is_cut_off.store(true, Ordering::Release));
        if !connections.is_empty() {
            let (mounts, connections) = (mounts.len(), connections.len());
            tracing::info!(mounts, connections, "mounts lost the sessions that have their locks, and are cut off");
        }
        UnfinishedMounts(self.unfinished.mounts())
    }

    fn has_locks(&self, session: &Session) -> bool {
        self.locks.has_any(Scope::Session(session.number))
    }

    /// Whether other clients of the ended session's mount are to be cut off yet, or are among those that still change something.
    pub fn is_mount_unfinished(&self, session: &Session, unfinished: &UnfinishedMounts) -> bool {
        let is_cut_off = || session.is_cut_off.load(Ordering::Acquire);
        let mount = session.mount.get().filter(|_| self.has_locks(session));
        mount.is_some_and(|mount| !is_cut_off() || unfinished.0.contains(mount))
    }

    /// Whether the session of this number has ended, and its locks stay as long as other clients of its mount change something.
    pub fn is_kept_by_mount(&self, session: u64) -> bool {
        let ended = self.holders.all_ended().into_iter().find(|(_, ended)| ended.number == session);
        let mount = ended.and_then(|(_, session)| session.mount.get().copied());
        mount.is_some_and(|mount| self.unfinished.mounts().contains(&mount))
    }
}
