//! Connections on TCP whose frames have tags: any bytes without a good one end the connection before anything is believed, and any
//! bytes with one are requests, as on [a plain stream](stream_connection.rs).

#![no_main]

use isonomia_fuzz::{said_at_the_end, soon, with_server};
use isonomia_proto::request::{ReplyHeader, RequestHeader};
use isonomia_proto::setup::{Integrity, Role};
use isonomia_transport::handshake::{Identity, Protection, open_stream};
use isonomia_transport::seal::TAG_LEN;
use isonomia_transport::socket::send_all;
use libfuzzer_sys::fuzz_target;
use rustix::fd::AsFd;
use zerocopy::IntoBytes;

fuzz_target!(|bytes: &[u8]| {
    let Some((how, mut bytes)) = bytes.split_first() else { return };
    let integrity = if how & 1 == 0 { Integrity::Mac } else { Integrity::Encrypted };
    with_server(|running| {
        let protection = Protection { integrity: Some(integrity), ..Protection::default() };
        let identity = Identity { protection, ..running.identity() };
        let mut connection = open_stream(&running.remote, Role::Stream, &identity, soon()).expect("welcome");
        let seals = connection.seals.as_mut().expect("frames have tags");
        let mut sent = Vec::new();
        if how & 2 != 0 {
            sent.extend_from_slice(bytes);
            let _ = send_all(connection.socket.as_fd(), &[&sent], soon());
            assert!(said_at_the_end(&connection.socket).is_empty(), "nobody made a tag for it");
            return;
        }
        let mut asked = 0;
        while let Some((header, more)) = running.request(&mut bytes) {
            sent.clear();
            let mut take = |bytes: &[u8]| Ok::<(), ()>(sent.extend_from_slice(bytes));
            seals.sealer.seal_frame(&mut Vec::new(), header.as_bytes(), &[more], &mut take).expect("it is taken");
            asked += 1;
            // The server may have ended the connection at an earlier one.
            let _ = send_all(connection.socket.as_fd(), &[&sent], soon());
        }
        let mut said = said_at_the_end(&connection.socket);
        let (mut rest, mut answered) = (&mut said[..], 0);
        while let Some((header, after)) = rest.split_at_mut_checked(ReplyHeader::LEN + TAG_LEN) {
            let header = seals.opener.open_whole(header).expect("a tag of the server's");
            let reply = <ReplyHeader as zerocopy::FromBytes>::read_from_bytes(header).expect("a header");
            let len = reply.payload_len as usize;
            let Some((payload, after)) = after.split_at_mut_checked(if len > 0 { len + TAG_LEN } else { 0 }) else {
                break;
            };
            if len > 0 {
                seals.opener.open_whole(payload).expect("a tag of the server's");
            }
            (rest, answered) = (after, answered + 1);
        }
        assert!(answered <= asked, "{answered} replies to {asked} of {} bytes", RequestHeader::LEN);
    });
});
