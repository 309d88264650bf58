//! The first word of a client on TCP: any bytes are a credential, and what a faultless message of somebody who knows the key
//! carries, or all of it; the server welcomes him, refuses him, or hangs up.

#![no_main]

use isonomia_fuzz::{said_at_the_end, soon, with_server};
use isonomia_proto::PROTOCOL_VERSION;
use isonomia_proto::setup::{self, Answer, Opening, SETUP_HEADER_LEN, SETUP_LEN_MAX};
use isonomia_transport::noise::Initiator;
use isonomia_transport::socket::{connect, receive_frame, send_all};
use libfuzzer_sys::fuzz_target;
use rustix::fd::AsFd;

fuzz_target!(|bytes: &[u8]| {
    let Some(([how, split], bytes)) = bytes.split_first_chunk() else { return };
    let (credential, carried) = bytes.split_at(usize::from(*split).min(bytes.len()));
    with_server(|running| {
        let socket = connect(&running.remote, soon()).expect("connected");
        let challenge = receive_frame(socket.as_fd(), SETUP_LEN_MAX, soon()).expect("a challenge");
        let nonce = [7; 32];
        let prologue = setup::prologue(&challenge, &nonce, credential);
        let (_, message) = Initiator::begin(&running.secret_of_key(), &prologue, carried).expect("a message");
        let message = if how & 1 == 0 { message } else { carried.to_vec() };
        let opening = Opening { version: PROTOCOL_VERSION, nonce, credential: credential.to_vec(), message };
        let _ = send_all(socket.as_fd(), &[&setup::encode(&opening)], soon());
        let said = said_at_the_end(&socket);
        if let Some((header, body)) = said.split_first_chunk::<SETUP_HEADER_LEN>() {
            assert_eq!(setup::body_len(header, SETUP_LEN_MAX), Ok(body.len()));
            let answer = setup::decode::<Answer>(body).expect("an answer");
            assert!(!matches!(answer, Answer::Welcome(_)), "no welcome goes in clear");
        }
    });
});
