//! The clients of a mount are cut off before the locks of its programs are given up.
//!
//! A mount has a client for each user and job, and asks for the locks of all its programs through one of them. When the session of
//! that one has ended others may have the locks, while programs that believe they have them go on through the other clients. So these
//! are cut off first: their connections are closed, and what they were changing is waited for. They come again on new
//! connections, and ask on each of them, before anything else, in the session that has the locks, whether these are lost.

use crate::core::Core;
use crate::locks::Scope;
use crate::sessions::Session;
use std::sync::atomic::Ordering;

impl Core {
    /// Closes the connections of the other clients of mounts that are about to lose their locks. The caretaker's part.
    pub fn cut_off_mounts(&self) {
        for (key, session) in self.holders.all_ended() {
            let Some(mount) = session.mount.get().filter(|_| self.is_to_be_cut_off(&session)) else { continue };
            for connection in self.unfinished.of_mount_beside(*mount, key) {
                tracing::info!(uid = mount.0, "a mount lost the session that has its locks: a connection is closed");
                self.close(&connection, None);
            }
            session.is_cut_off.store(true, Ordering::Release);
        }
    }

    fn is_to_be_cut_off(&self, session: &Session) -> bool {
        !session.is_cut_off.load(Ordering::Acquire) && self.locks.has_any(Scope::Session(session.number))
    }

    /// Whether other clients of the ended session's mount are to be cut off yet, or were and still change something.
    pub fn is_mount_unfinished(&self, session: &Session) -> bool {
        let mount = session.mount.get();
        mount.is_some_and(|mount| self.is_to_be_cut_off(session) || self.unfinished.has_any_of_mount(*mount))
    }
}
