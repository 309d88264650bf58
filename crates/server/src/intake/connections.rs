//! The beginning and the end of connections, and those that stall for too long in between.

use crate::clock;
use crate::connection::{Connection, StreamState, Way};
use crate::core::Core;
use crate::rejections::Rejection;
use isonomia_units::Nanos;
use rustix::event::epoll;
use rustix::io::Errno;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, PoisonError};

/// A stream that stalls for this long in the middle of a request or a reply is cut.
const STALL_MAX: Nanos = Nanos::from_secs(10);

impl Core {
    /// Serves a connection that is set up, and known to [`Core::unfinished`].
    pub fn adopt(&self, connection: Arc<Connection>) -> Result<(), Errno> {
        let now = clock::now();
        self.add_connection(connection.clone());
        if connection.is_closed() {
            // It was cut off meanwhile, by somebody who did not find it in the table.
            self.remove_connection(connection.id);
            return Ok(());
        }
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let added = epoll::add(&self.epoll, &connection.socket, epoll::EventData::new_u64(connection.id), flags);
        if let Err(errno) = added {
            self.close(&connection, Some(&errno));
            return Err(errno);
        }
        self.warm(connection, now);
        self.ring();
        Ok(())
    }

    /// Looks at a new connection.
    pub fn warm(&self, connection: Arc<Connection>, now: Nanos) {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner).warm(connection, now);
    }

    /// Ends a connection and gives up all it had. `reason` if it is not the client's wish.
    pub fn close(&self, connection: &Arc<Connection>, reason: Option<&dyn std::fmt::Display>) {
        if connection.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(reason) = reason {
            self.refused_total.fetch_add(1, Ordering::Relaxed);
            self.rejections.count(Rejection::Protocol);
            let info = connection.job.info();
            tracing::warn!(job = %info.name, uid = connection.credentials.uid, %reason, "connection closed");
        }
        self.remove_connection(connection.id);
        if let Way::Stream(state) = &connection.way {
            let state =
                std::mem::replace(&mut *state.lock().unwrap_or_else(PoisonError::into_inner), StreamState::Queued);
            self.give_up_stalled(connection.permit.uid(), state);
        }
        // Already gone from epoll when the socket is dropped; this only hastens it.
        let _ = epoll::delete(&self.epoll, &connection.socket);
        let _ = rustix::net::shutdown(&connection.socket, rustix::net::Shutdown::Both);
        // With that of whoever takes memory meanwhile: one of the two sees what the other one did.
        fence(Ordering::SeqCst);
        self.give_back_stall_memory(connection);
        let now = clock::now();
        for target in &self.targets {
            target.cancel(now, connection.id);
        }
        self.leave_session(connection.session_key);
        self.unfinished.ring();
        self.jobs.leave(&connection.job, now);
        self.phases.leave(&self.bell, &connection.job);
    }

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Server};
    use isonomia_proto::request::{Op, ReplyHeader, RequestHeader};
    use isonomia_proto::setup::Role;
    use isonomia_transport::handshake::{HandshakeError, Identity, open_stream};
    use isonomia_transport::socket::{Deadline, SocketError, receive_all, send_all};
    use isonomia_units::Ino;
    use rustix::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;
    use zerocopy::IntoBytes;

    fn soon() -> Deadline {
        Deadline::after(Nanos::from_secs(20))
    }

    /// A server that listens on TCP, with a key.
    struct Served {
        server: Server,
        key_file: String,
        _dir: tempfile::TempDir,
    }

    impl Served {
        fn start() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let key = dir.path().join("key");
            std::fs::write(&key, [7; 32]).unwrap();
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
            let listen = vec!["tcp:127.0.0.1:0".parse().unwrap()];
            let server = Server::start(Config { listen, key_file: Some(key.clone()), ..Config::default() }).unwrap();
            Self { server, key_file: key.display().to_string(), _dir: dir }
        }

        /// The only connection.
        fn connection(&self) -> Arc<Connection> {
            let mut found = None;
            wait("the workers get what was welcomed", || {
                found = self.server.core.connections().pop();
                found.is_some()
            });
            found.unwrap()
        }

        /// A connection of the process that drew the number `client`.
        fn open(&self, client: u64, deadline: Deadline) -> Result<impl AsFd, HandshakeError> {
            let identity = Identity { client, key_file: Some(self.key_file.clone()), ..Identity::default() };
            open_stream(&self.server.addresses()[0], Role::Stream, &identity, deadline).map(|opened| opened.socket)
        }
    }

    fn wait(until: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = soon();
        while !is_so() {
            assert!(deadline.left().is_some(), "{until}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn whoever_stalls_in_the_middle_of_a_head_is_cut_and_who_is_silent_between_requests_stays() {
        let served = Served::start();
        let server = &served.server;
        let (silent, stalled) = (served.open(1, soon()).unwrap(), served.open(1, soon()).unwrap());
        let request = RequestHeader::new(Op::StatFs, Ino::ROOT);
        send_all(stalled.as_fd(), &[&request.as_bytes()[..10]], soon()).unwrap();
        let waits = |connection: &Arc<Connection>| match &connection.way {
            Way::Stream(state) => state.lock().unwrap().waits_since().is_some(),
            Way::Shared(_) => false,
        };
        wait("the server takes in what has come", || server.core.connections().iter().any(waits));
        server.core.look_after_connections(clock::now() + STALL_MAX + Nanos::from_secs(1));
        assert_eq!(receive_all(stalled.as_fd(), &mut [0], soon()), Err(SocketError::Closed));
        send_all(silent.as_fd(), &[request.as_bytes()], soon()).unwrap();
        receive_all(silent.as_fd(), &mut [0; size_of::<ReplyHeader>()], soon()).unwrap();
    }

    #[test]
    fn a_process_is_welcomed_again_when_what_it_was_changing_is_changed() {
        let served = Served::start();
        let first = served.open(1, soon()).unwrap();
        let connection = served.connection();
        // Its turn has come, and its payload not.
        let write = RequestHeader { len: 4096, ..RequestHeader::new(Op::Write, Ino::ROOT) };
        send_all(first.as_fd(), &[write.as_bytes()], soon()).unwrap();
        wait("a write that is served is counted", || connection.changes.are_any_left());
        let change = connection.changes.begin(&connection.is_closed).unwrap();
        drop(first);
        // Whether or not it has been noticed that the connection has ended.
        assert!(served.open(1, Deadline::after(Nanos::from_millis(500))).is_err());
        wait("the client has gone", || connection.is_closed());
        assert!(
            served.open(1, Deadline::after(Nanos::from_millis(500))).is_err(),
            "its write would come after later ones"
        );
        served.open(2, soon()).unwrap();
        std::thread::scope(|scope| {
            let again = scope.spawn(|| served.open(1, soon()));
            drop(change);
            again.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_stream_that_ends_while_its_request_is_served_is_closed() {
        let served = Served::start();
        let client = served.open(1, soon()).unwrap();
        let connection = served.connection();
        let Way::Stream(state) = &connection.way else { panic!("it came on TCP") };
        *state.lock().unwrap() = StreamState::Queued;
        drop(client);
        wait("nothing is read then", || connection.is_closed());
    }
}
