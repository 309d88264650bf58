//! What is left to do of connections that have ended.
//!
//! A client whose connection breaks sends what was not answered once more, on a new one; a process that has ended gives up its locks.
//! But the first write may still be on its way to the device, and would then overwrite what was written after it: by the client
//! itself, or by whoever got the lock. So what a session had is given up, and a new connection of its process is welcomed, only
//! when such changes ([`crate::changes`]) are made.

use crate::connection::Connection;
use crate::sessions::SessionKey;
use isonomia_transport::socket;
use rustix::fd::AsFd;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The connections of each session: those that are open, and those that were closed and still change something.
#[derive(Debug, Default)]
pub struct Unfinished(Mutex<HashMap<SessionKey, Vec<Weak<Connection>>>>);

fn changes_more(connection: &Connection) -> bool {
    connection.is_closed() && connection.changes.are_any_left()
}

impl Unfinished {
    fn table(&self) -> MutexGuard<'_, HashMap<SessionKey, Vec<Weak<Connection>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more connection is served.
    pub fn enter(&self, connection: &Arc<Connection>) {
        self.table().entry(connection.session_key).or_default().push(Arc::downgrade(connection));
    }

    /// Whether any connection of the session is as `is_it` says. O(connections of the session).
    fn any(&self, key: SessionKey, is_it: impl Fn(&Connection) -> bool) -> bool {
        let table = self.table();
        table.get(&key).into_iter().flatten().filter_map(Weak::upgrade).any(|connection| is_it(&connection))
    }

    /// Whether connections of this session that were closed still change something.
    pub fn has_any(&self, key: SessionKey) -> bool {
        self.any(key, changes_more)
    }

    /// The same by the session's number. O(connections).
    pub fn has_any_of(&self, session: u64) -> bool {
        let table = self.table();
        let mut all = table.values().flatten().filter_map(Weak::upgrade);
        all.any(|connection| connection.session.number == session && changes_more(&connection))
    }

    /// Whether a new connection of this session has to wait: for such changes, or until it is noticed that an earlier one
    /// has ended, which may have brought some.
    pub fn holds_back(&self, key: SessionKey) -> bool {
        let has_ended = |connection: &Connection| match connection.is_closed() {
            true => connection.changes.are_any_left(),
            false => socket::is_ended(connection.socket.as_fd()),
        };
        self.any(key, has_ended)
    }

    /// Forgets connections that are finished. To be called now and then. O(connections).
    pub fn sweep(&self) {
        let is_kept = |connection: Arc<Connection>| !connection.is_closed() || connection.changes.are_any_left();
        self.table().retain(|_, all| {
            all.retain(|connection| connection.upgrade().is_some_and(is_kept));
            !all.is_empty()
        });
    }
}
