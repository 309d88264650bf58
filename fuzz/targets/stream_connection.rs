//! Connections on TCP of somebody who knows the key: any bytes are requests, which are answered in their order, or end the
//! connection.

#![no_main]

use isonomia_fuzz::{said_at_the_end, soon, with_server};
use isonomia_proto::request::ReplyHeader;
use isonomia_proto::setup::Role;
use isonomia_transport::handshake::open_stream;
use isonomia_transport::socket::send_all;
use libfuzzer_sys::fuzz_target;
use rustix::fd::AsFd;
use zerocopy::{FromBytes, IntoBytes};

fuzz_target!(|bytes: &[u8]| {
    with_server(|running| {
        let socket = open_stream(&running.remote, Role::Stream, &running.identity(), soon()).expect("welcome").socket;
        let (mut rest, mut asked) = (bytes, Vec::new());
        while let Some((header, more)) = running.request(&mut rest) {
            asked.push(header.seq);
            // The server may have ended the connection at an earlier one.
            let _ = send_all(socket.as_fd(), &[header.as_bytes(), more], soon());
        }
        let _ = send_all(socket.as_fd(), &[rest], soon());
        let said = said_at_the_end(&socket);
        let (mut said, mut answered) = (&said[..], Vec::new());
        while let Ok((reply, after)) = ReplyHeader::read_from_prefix(said) {
            answered.push(reply.seq);
            said = after.get(reply.payload_len as usize..).unwrap_or_default();
        }
        assert!(asked.starts_with(&answered) || answered.len() > asked.len(), "{answered:?} to {asked:?}");
    });
});
