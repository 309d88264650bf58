//! What is left to do of connections that have ended.
//!
//! A client whose connection breaks sends what was not answered once more, on a new one; a process that has ended gives up its locks.
//! But the first write may still be on its way to the device, and would then overwrite what was written after it: by the client
//! itself, or by whoever got the lock. So what a session had is given up, and a new connection of its process is welcomed, only
//! when such changes ([`crate::changes`]) are made.

use crate::connection::Connection;
use crate::sessions::{MountKey, SessionKey};
use isonomia_transport::socket;
use isonomia_units::Nanos;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A process waits so long for what a connection of it is changing, however often it tries: a device that hangs must not keep it
/// from all others.
pub const FINISHED_WITHIN: Nanos = Nanos::from_secs(10);
/// Of so many open connections of a process at most, the latest ones, it is found out whether they have ended: it takes a system
/// call for each.
const LOOKED_AT_MAX: usize = 256;

/// The connections of each session: those that are open, and those that were closed and still change something.
#[derive(Debug, Default)]
pub struct Unfinished {
    table: Mutex<HashMap<SessionKey, Vec<Known>>>,
    /// Whether somebody is held back and has not been told yet to try again.
    is_awaited: AtomicBool,
    /// The event counter that tells it.
    bell: OnceLock<OwnedFd>,
}

#[derive(Debug)]
struct Known {
    connection: Weak<Connection>,
    /// Since when a new connection of the process has been held back for this one.
    awaited_since: Option<Nanos>,
}

fn changes_more(connection: &Connection) -> bool {
    connection.is_closed() && connection.changes.are_any_left()
}

impl Unfinished {
    fn table(&self) -> MutexGuard<'_, HashMap<SessionKey, Vec<Known>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called once: the event counter that is raised when a connection was closed while somebody was held back.
    pub fn set_bell(&self, bell: OwnedFd) {
        let _ = self.bell.set(bell);
    }

    /// One more connection is served.
    pub fn enter(&self, connection: &Arc<Connection>) {
        let known = Known { connection: Arc::downgrade(connection), awaited_since: None };
        self.table().entry(connection.session_key).or_default().push(known);
    }

    /// To be called when a connection was closed. Tells whoever is held back to try again.
    pub fn ring(&self) {
        if self.is_awaited.swap(false, Ordering::SeqCst)
            && let Some(bell) = self.bell.get()
        {
            // It can only be full, and then it has been rung.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// Whether connections of this session that were closed still change something. O(connections of the session).
    pub fn has_any(&self, key: SessionKey) -> bool {
        let table = self.table();
        let mut all = table.get(&key).into_iter().flatten().filter_map(|known| known.connection.upgrade());
        all.any(|connection| changes_more(&connection))
    }

    /// The same by the session's number. O(connections).
    pub fn has_any_of(&self, session: u64) -> bool {
        let table = self.table();
        let mut all = table.values().flatten().filter_map(|known| known.connection.upgrade());
        all.any(|connection| connection.session.number == session && changes_more(&connection))
    }

    /// The open connections of clients of these mounts, but for those of the session that is named with each. O(connections).
    pub fn of_mounts(&self, mounts: &HashMap<MountKey, SessionKey>) -> Vec<Arc<Connection>> {
        let table = self.table();
        let all = table.values().flatten().filter_map(|known| known.connection.upgrade());
        let is_beside = |connection: &Arc<Connection>| {
            let keeper = connection.mount.and_then(|mount| mounts.get(&mount));
            keeper.is_some_and(|key| *key != connection.session_key) && !connection.is_closed()
        };
        all.filter(is_beside).collect()
    }

    /// The mounts of whose clients connections that were closed still change something. O(connections).
    pub fn mounts(&self) -> HashSet<MountKey> {
        let table = self.table();
        let all = table.values().flatten().filter_map(|known| known.connection.upgrade());
        all.filter(|connection| changes_more(connection)).filter_map(|connection| connection.mount).collect()
    }

    /// Whether a new connection of this session has to wait: for such changes, or until it is noticed that an earlier one
    /// has ended, which may have brought some. For none of them longer than [`FINISHED_WITHIN`]. O(connections of the session).
    pub fn holds_back(&self, key: SessionKey, now: Nanos) -> bool {
        if !self.is_there_to_wait_for(key, now) {
            return false;
        }
        self.is_awaited.store(true, Ordering::SeqCst);
        // Whoever closed one before that does not ring.
        self.is_there_to_wait_for(key, now)
    }

    fn is_there_to_wait_for(&self, key: SessionKey, now: Nanos) -> bool {
        let mut looked_at = 0;
        let mut is_waited_for = |known: &mut Known| {
            let Some(connection) = known.connection.upgrade() else { return false };
            let has_ended = if connection.is_closed() {
                connection.changes.are_any_left()
            } else {
                looked_at += 1;
                looked_at <= LOOKED_AT_MAX && socket::is_ended(connection.socket.as_fd())
            };
            has_ended && now.since(*known.awaited_since.get_or_insert(now)) < FINISHED_WITHIN
        };
        let mut is_any = false;
        // All of them, so that the time of each begins now, and not when that of another one is over.
        for known in self.table().get_mut(&key).into_iter().flatten().rev() {
            is_any |= is_waited_for(known);
        }
        is_any
    }

    /// Forgets connections that are finished. To be called now and then. O(connections).
    pub fn sweep(&self) {
        let is_kept = |connection: Arc<Connection>| !connection.is_closed() || connection.changes.are_any_left();
        self.table().retain(|_, all| {
            all.retain(|known| known.connection.upgrade().is_some_and(is_kept));
            !all.is_empty()
        });
    }
}
