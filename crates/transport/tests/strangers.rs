//! A client does not talk to a server that somebody else runs.
//!
//! Needs root, whose threads can be somebody else; elsewhere it is skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use isonomia_proto::setup::Role;
use isonomia_testbed::is_root_to;
use isonomia_transport::address::Address;
use isonomia_transport::handshake::{HandshakeError, Identity, open_shared, open_stream};
use isonomia_transport::owner::Stranger;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, recv, socket_with,
};
use rustix::process::Uid;

/// Nobody, on most systems.
const MALLORY: u32 = 65_534;

/// A socket of Mallory's that listens at `path`.
fn squat(path: &std::path::Path) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    // Only this thread becomes somebody else, and ends.
    std::thread::scope(|scope| {
        let listening = scope.spawn(|| {
            let mallory = Uid::from_raw(MALLORY);
            rustix::thread::set_thread_res_uid(mallory, mallory, mallory).unwrap();
            listen(&socket, 4).unwrap();
        });
        listening.join().unwrap();
    });
    socket
}

#[test]
fn nothing_is_sent_to_a_stranger() {
    if !is_root_to("be two users") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let socket = squat(&path);
    let address: Address = format!("unix:{}", path.display()).parse().unwrap();
    let soon = || Deadline::after(Nanos::from_secs(20));
    let refused = HandshakeError::Stranger(Stranger { found: MALLORY, expected: Some(4_711) });
    let identity = Identity { server_user: Some(4_711), ..Identity::default() };
    assert_eq!(open_shared(&address, &identity, soon()).unwrap_err(), refused);
    assert_eq!(open_stream(&address, Role::Control, &identity, soon()).unwrap_err(), refused);
    for _ in 0..2 {
        let heard = recv(accept(&socket).unwrap(), &mut [0; 64], RecvFlags::empty()).unwrap();
        assert_eq!(heard.0, 0, "the connection was closed without a word");
    }
    // Whom the client was told of is none; there is just nobody who answers.
    let trusting = Identity { server_user: Some(MALLORY), ..Identity::default() };
    let short = Deadline::after(Nanos::from_millis(50));
    assert!(matches!(open_shared(&address, &trusting, short), Err(HandshakeError::Socket(_))));
    let heard = recv(accept(&socket).unwrap(), &mut [0; 64], RecvFlags::empty()).unwrap();
    assert!(heard.0 > 0);
}
