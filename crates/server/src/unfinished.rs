//! What is left to do of connections that have ended.
//!
//! A client whose connection breaks sends what was not answered once more, on a new one; a process that has ended gives up its locks.
//! But the first write may still be on its way to the device, and would then overwrite what was written after it: by the client
//! itself, or by whoever got the lock. So what a session had is given up, and a new connection of its process is welcomed, only
//! when such changes ([`crate::changes`]) are made.

use crate::connection::Connection;
use crate::sessions::SessionKey;
use isonomia_transport::socket;
use isonomia_units::Nanos;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A process waits so long for what a connection of it is changing, however often it tries: a device that hangs must not keep it
/// from all others.
pub const FINISHED_WITHIN: Nanos = Nanos::from_secs(10);
/// Open connections of a process of which it is looked, the latest first, whether they have ended.
const LOOKED_AT_MAX: usize = 256;

/// The connections of each session: those that are open, and those that were closed and still change something.
#[derive(Debug, Default)]
pub struct Unfinished {
    table: Mutex<HashMap<SessionKey, Vec<Known>>>,
    /// Whether somebody is held back.
    is_awaited: AtomicBool,
    /// The event counter that tells him to try again.
    bell: OnceLock<OwnedFd>,
}

/// A connection, and when somebody first waited for its end.
#[derive(Debug)]
struct Known(Weak<Connection>, Option<Nanos>);

fn changes_more(connection: &Connection) -> bool {
    connection.is_closed() && connection.changes.are_any_left()
}

impl Unfinished {
    fn table(&self) -> MutexGuard<'_, HashMap<SessionKey, Vec<Known>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has this event counter tell whom [`Self::holds_back`] holds back that a connection was closed. Once.
    pub fn set_bell(&self, bell: OwnedFd) {
        let _ = self.bell.set(bell);
    }

    /// One more connection is served.
    pub fn enter(&self, connection: &Arc<Connection>) {
        self.table().entry(connection.session_key).or_default().push(Known(Arc::downgrade(connection), None));
    }

    /// A connection was closed, and its session has left.
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
        let mut all = table.get(&key).into_iter().flatten().filter_map(|known| known.0.upgrade());
        all.any(|connection| changes_more(&connection))
    }

    /// The same by the session's number. O(connections).
    pub fn has_any_of(&self, session: u64) -> bool {
        let table = self.table();
        let mut all = table.values().flatten().filter_map(|known| known.0.upgrade());
        all.any(|connection| connection.session.number == session && changes_more(&connection))
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
        let mut left_to_look = LOOKED_AT_MAX;
        let mut is_waited_for = |Known(connection, awaited_since): &mut Known| {
            let Some(connection) = connection.upgrade() else { return false };
            let has_ended = if connection.is_closed() {
                connection.changes.are_any_left()
            } else {
                left_to_look = left_to_look.saturating_sub(1);
                left_to_look > 0 && socket::is_ended(connection.socket.as_fd())
            };
            has_ended && now.since(*awaited_since.get_or_insert(now)) < FINISHED_WITHIN
        };
        self.table().get_mut(&key).into_iter().flatten().rev().any(&mut is_waited_for)
    }

    /// Forgets connections that are finished. To be called now and then. O(connections).
    pub fn sweep(&self) {
        let is_kept = |connection: Arc<Connection>| !connection.is_closed() || connection.changes.are_any_left();
        self.table().retain(|_, all| {
            all.retain(|known| known.0.upgrade().is_some_and(is_kept));
            !all.is_empty()
        });
    }
}
