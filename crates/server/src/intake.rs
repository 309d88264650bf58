//! Taking requests in: which connections are looked at, and how sleeping workers hear of the others.
//!
//! One worker at a time holds the intake. It looks at every *hot* shared-memory connection, one that had a request
//! lately. A connection that goes cold is told so (its region's "away" word): its client rings the socket after
//! its next request, and the ring, like everything that streams send, comes through epoll.

use crate::clock;
use crate::connection::{Connection, Way};
use crate::core::Core;
use isonomia_units::Nanos;
use rustix::event::{Timespec, epoll};
use rustix::net::RecvFlags;
use std::sync::{Arc, PoisonError, TryLockError};

/// How long a connection without requests stays hot.
const HOT_FOR: Nanos = Nanos::from_millis(2);
/// Between two looks at epoll while workers are awake: one costs as much as serving a small request.
const EPOLL_EVERY: Nanos = Nanos::from_micros(50);
/// A stream that stalls for this long in the middle of a request or a reply is cut.
const STALL_MAX: Nanos = Nanos::from_secs(10);
/// Events taken from epoll at a time.
const EVENTS_MAX: usize = 64;
/// The key in epoll of the event counter that wakes sleeping workers; the other keys are numbers of connections.
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

impl Core {
    /// Shows every client that the server lives, and cuts streams that have stalled for too long.
    pub fn look_after_connections(&self, now: Nanos) {
        for connection in self.connections() {
            match &connection.way {
                Way::Shared(shared) => shared.region.tick(),
                Way::Stream(state) => {
                    let since = state.lock().unwrap_or_else(PoisonError::into_inner).waits_since();
                    if since.is_some_and(|since| now.since(since) > STALL_MAX) {
                        self.close(&connection, Some(&"the client stalls in the middle of a request"));
                    }
                }
            }
        }
    }

    /// Takes in requests, unless another worker is doing so: whether there were any, and what time it is then.
    pub fn take_in(&self, now: Nanos) -> (bool, Nanos) {
        let mut intake = match self.intake.try_lock() {
            Ok(intake) => intake,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return (false, now),
        };
        let posted = intake.poll(self, now);
        let look_at_events = now.since(intake.events_at) >= EPOLL_EVERY;
        if look_at_events {
            intake.events_at = now;
        }
        drop(intake);
        if look_at_events && self.take_events(now, Some(Nanos::ZERO)) {
            // Nobody's request is charged for the time that these took.
            return (true, clock::now());
        }
        (posted, now)
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
                // What the bytes are does not matter: each means that a request was posted. Where they end the client has
                // gone.
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

    /// To be called before the last worker sleeps; false if it must stay awake, because a request has come meanwhile.
    pub fn leave_all(&self) -> bool {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner).leave_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Server, clock};
    use isonomia_proto::request::{Op, ReplyHeader, RequestHeader};
    use isonomia_proto::setup::Role;
    use isonomia_transport::handshake::{Identity, open_stream};
    use isonomia_transport::socket::{Deadline, SocketError, receive_all, send_all};
    use isonomia_units::Ino;
    use rustix::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;
    use zerocopy::IntoBytes;

    fn soon() -> Deadline {
        Deadline::after(Nanos::from_secs(20))
    }

    #[test]
    fn whoever_stalls_in_the_middle_of_a_head_is_cut_and_who_is_silent_between_requests_stays() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        std::fs::write(&key, [7; 32]).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let listen = vec!["tcp:127.0.0.1:0".parse().unwrap()];
        let server = Server::start(Config { listen, key_file: Some(key.clone()), ..Config::default() }).unwrap();
        let identity = Identity { client: 1, key_file: Some(key.display().to_string()), ..Identity::default() };
        let open = || open_stream(&server.addresses()[0], Role::Stream, &identity, soon()).unwrap().socket;
        let (silent, stalled) = (open(), open());
        let request = RequestHeader::new(Op::StatFs, Ino::ROOT);
        send_all(stalled.as_fd(), &[&request.as_bytes()[..10]], soon()).unwrap();
        let waits = |connection: &Arc<Connection>| match &connection.way {
            Way::Stream(state) => state.lock().unwrap().waits_since().is_some(),
            Way::Shared(_) => false,
        };
        let deadline = soon();
        while !server.core.connections().iter().any(waits) {
            assert!(deadline.left().is_some(), "the server takes in what has come");
            std::thread::yield_now();
        }
        server.core.look_after_connections(clock::now() + STALL_MAX + Nanos::from_secs(1));
        assert_eq!(receive_all(stalled.as_fd(), &mut [0], soon()), Err(SocketError::Closed));
        send_all(silent.as_fd(), &[request.as_bytes()], soon()).unwrap();
        receive_all(silent.as_fd(), &mut [0; size_of::<ReplyHeader>()], soon()).unwrap();
    }
}
