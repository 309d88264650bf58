//! The beginning of a connection, on either transport: any bytes are a frame or end it, and so do any bytes to a connection of
//! control. What the server says are frames.

#![no_main]

use isonomia_fuzz::{as_stranger, said_at_the_end, soon, with_server};
use isonomia_proto::control::ControlReply;
use isonomia_proto::setup::{self, Answer, CONTROL_REPLY_LEN_MAX, Challenge, Role, SETUP_HEADER_LEN};
use isonomia_transport::handshake::{Identity, open_stream};
use isonomia_transport::socket::{connect, send_all};
use libfuzzer_sys::fuzz_target;
use rustix::fd::AsFd;

fuzz_target!(|bytes: &[u8]| {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let [is_remote, is_welcome, is_framed] = [1, 2, 4].map(|bit| how & bit != 0);
    let mut sent = Vec::new();
    for part in bytes.split(|byte| *byte == b'\n') {
        sent.extend(if is_framed { setup::frame(part) } else { part.to_vec() });
    }
    with_server(|running| {
        let address = if is_remote { &running.remote } else { &running.local };
        let identity = if is_remote { running.identity() } else { Identity::default() };
        let open = || match is_welcome {
            // Frames of a connection on this host have no tags.
            true => open_stream(address, Role::Control, &identity, soon()).expect("welcome").socket,
            false => connect(address, soon()).expect("connected"),
        };
        // On TCP whoever knows the key is the server's own user.
        let socket = if is_remote { open() } else { as_stranger(open) };
        // The server may have ended the connection before the last of it.
        let _ = send_all(socket.as_fd(), &[&sent], soon());
        let said = said_at_the_end(&socket);
        let mut said = &said[..];
        while let Some((header, rest)) = said.split_first_chunk::<SETUP_HEADER_LEN>() {
            let len = setup::body_len(header, CONTROL_REPLY_LEN_MAX).expect("a frame");
            let (body, rest) = rest.split_at(len);
            let is_known = match is_welcome {
                true => serde_json::from_slice::<ControlReply>(body).is_ok(),
                false => setup::decode::<Answer>(body).is_ok() || setup::decode::<Challenge>(body).is_ok(),
            };
            assert!(is_known, "{body:?}");
            said = rest;
        }
    });
});
