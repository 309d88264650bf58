//! Taking requests in: which connections are looked at, and how sleeping workers hear of the others.
//!
//! One worker at a time holds the intake. It looks at every *hot* shared-memory connection, one that had a request
//! lately. A connection that goes cold is told so (its region's "away" word): its client rings the socket after
//! its next request, and the ring, like everything that streams send, comes through epoll.

use crate::connection::{Connection, Way};
use crate::core::Core;
use crate::stream::StreamState;
use isonomia_units::Nanos;
use rustix::event::{Timespec, epoll};
use rustix::net::RecvFlags;
use std::sync::{Arc, PoisonError, TryLockError};

/// How long a connection without requests stays hot.
const HOT_FOR: Nanos = Nanos::from_millis(2);
/// Between two looks at epoll while workers are awake: one costs as much as serving a small request.
const EPOLL_EVERY: Nanos = Nanos::from_micros(50);
/// A stalled stream that moves nothing for this long is cut.
const STALL_MAX: Nanos = Nanos::from_secs(10);
/// Events taken from epoll at a time.
const EVENTS_MAX: usize = 64;
/// The bell that wakes sleeping workers, among the keys of epoll; the others are numbers of connections.
pub const BELL: u64 = u64::MAX;

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

    /// Takes in what the hot connections have posted; true if there was anything.
    fn poll(&mut self, core: &Core, now: Nanos) -> bool {
        let mut found = false;
        let mut index = 0;
        while let Some(hot) = self.hot.get_mut(index) {
            let connection = &hot.connection;
            let mut keep = !connection.is_closed();
            if keep && core.take_posted(connection, now) {
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

    /// Leaves all connections to their bells; false if one has posted meanwhile.
    fn leave_all(&mut self) -> bool {
        self.hot.retain(|hot| !hot.connection.is_closed() && !leave(&hot.connection));
        self.hot.is_empty()
    }
}

fn leave(connection: &Connection) -> bool {
    let Way::Shared(shared) = &connection.way else { return true };
    let seen = shared.turn.lock().unwrap_or_else(PoisonError::into_inner).seen;
    shared.region.leave(seen)
}

impl Core {
    /// Shows every client that the server lives, and cuts streams that have stalled for too long.
    pub fn look_after_connections(&self, now: Nanos) {
        for connection in self.connections() {
            match &connection.way {
                Way::Shared(shared) => shared.region.tick(),
                Way::Stream(state) => {
                    let guard = state.lock().unwrap_or_else(PoisonError::into_inner);
                    let since = match &*guard {
                        StreamState::Payload(stalled) => stalled.since,
                        StreamState::Reply { since, .. } => *since,
                        _ => continue,
                    };
                    drop(guard);
                    if now.since(since) > STALL_MAX {
                        self.close(&connection, Some(&"the client stalls in the middle of a transfer"));
                    }
                }
            }
        }
    }

    /// Takes in requests, unless another worker is doing so; true if there were any.
    pub fn take_in(&self, now: Nanos) -> bool {
        let mut intake = match self.intake.try_lock() {
            Ok(intake) => intake,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let posted = intake.poll(self, now);
        let look_at_events = now.since(intake.events_at) >= EPOLL_EVERY;
        if look_at_events {
            intake.events_at = now;
        }
        drop(intake);
        (look_at_events && self.take_events(now, Some(Nanos::ZERO))) || posted
    }

    /// Waits for events for at most `timeout` (`None`: for ever) and handles them; true if there were any.
    pub fn take_events(&self, now: Nanos, timeout: Option<Nanos>) -> bool {
        let mut events: [epoll::Event; EVENTS_MAX] =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; EVENTS_MAX];
        let timeout =
            timeout.map(|t| Timespec { tv_sec: (t.0 / 1_000_000_000) as _, tv_nsec: (t.0 % 1_000_000_000) as _ });
        let count = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok(count) => count,
            Err(_) => return false,
        };
        for event in &events[..count] {
            match event.data.u64() {
                BELL => self.silence_bell(),
                id => self.on_event(id, event.flags, now),
            }
        }
        count > 0
    }

    fn on_event(&self, id: u64, flags: epoll::EventFlags, now: Nanos) {
        let Some(connection) = self.connection(id) else { return };
        match &connection.way {
            Way::Shared(_) => {
                // Bytes are rings; the end of them is the end of the client.
                let mut rings = [0; 64];
                let ended = loop {
                    match rustix::net::recv(&connection.socket, &mut rings, RecvFlags::DONTWAIT) {
                        Ok((0, _)) => break true,
                        Ok(_) => {}
                        Err(rustix::io::Errno::AGAIN) => break flags.contains(epoll::EventFlags::HUP),
                        Err(rustix::io::Errno::INTR) => {}
                        Err(_) => break true,
                    }
                };
                if ended {
                    self.close(&connection, None);
                } else {
                    self.intake.lock().unwrap_or_else(PoisonError::into_inner).warm(connection, now);
                }
            }
            Way::Stream(_) => self.advance_stream(&connection, now),
        }
    }

    /// Looks at a new connection.
    pub fn warm(&self, connection: Arc<Connection>, now: Nanos) {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner).warm(connection, now);
    }

    /// Before the last worker sleeps; false if it must not.
    pub fn leave_all(&self) -> bool {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner).leave_all()
    }
}
