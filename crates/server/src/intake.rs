//! Taking requests in: which connections are looked at, and how sleeping workers hear of the others.
//!
//! One worker at a time has the intake. It looks at every *hot* shared-memory connection, one that had a request
//! lately. A connection that goes cold is told so (its region's "away" word): its client rings the socket after
//! its next request, and the ring, like everything that streams send, comes through epoll.
//!
//! What is here knows connections only; [`arrivals`] has requests queued at their targets, [`streams`] goes on with what
//! streams are in the middle of, and [`connections`] begins and ends the connections themselves.

mod arrivals;
mod connections;
mod streams;

use crate::connection::{Connection, Way};
use isonomia_units::Nanos;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::{Arc, PoisonError};

/// How long a connection without requests stays hot.
const HOT_FOR: Nanos = Nanos::from_millis(2);
/// The key in epoll of the event counter that wakes sleeping workers; the other keys are numbers of connections.
pub const BELL: u64 = u64::MAX;

/// Wakes one sleeping worker.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// For nobody yet: whoever sleeps adds it to what he waits for.
    pub fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Wakes one.
    pub fn ring(&self) {
        // If the counter is full, it wakes whoever waits for it anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Whoever was woken has heard it.
    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What the worker that takes requests in needs.
#[derive(Debug, Default)]
pub struct Intake {
    hot: Vec<Hot>,
    events_at: Nanos,
}

#[derive(Debug)]
struct Hot {
    connection: Arc<Connection>,
    active_at: Nanos,
}

impl Intake {
    /// Looks at a connection from now on.
    fn warm(&mut self, connection: Arc<Connection>, now: Nanos) {
        if let Way::Shared(shared) = &connection.way {
            shared.region.come_back();
            if self.hot.iter().all(|hot| hot.connection.id != connection.id) {
                self.hot.push(Hot { connection, active_at: now });
            }
        }
    }

    /// Has what the hot connections have posted taken in by `take`, which says whether there was any; true if there was.
    fn poll(&mut self, now: Nanos, take: impl Fn(&Arc<Connection>) -> bool) -> bool {
        let mut found = false;
        let mut index = 0;
        while let Some(hot) = self.hot.get_mut(index) {
            let connection = &hot.connection;
            let mut keep = !connection.is_closed();
            if keep && take(connection) {
                hot.active_at = now;
                found = true;
            } else if keep && now.since(hot.active_at) > HOT_FOR {
                keep = !leave(connection);
            }
            if keep {
                index += 1;
            } else {
                self.hot.swap_remove(index);
            }
        }
        found
    }

    /// Tells the client of every connection to ring its socket after its next request, because nobody looks at its memory
    /// any more; false if one has posted a request meanwhile.
    fn leave_all(&mut self) -> bool {
        self.hot.retain(|hot| !hot.connection.is_closed() && !leave(&hot.connection));
        self.hot.is_empty()
    }
}

fn leave(connection: &Connection) -> bool {
    let Way::Shared(shared) = &connection.way else { return true };
    let seen = shared.progress.lock().unwrap_or_else(PoisonError::into_inner).seen;
    shared.region.leave(seen)
}
