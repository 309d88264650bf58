//! The frames that open a connection: any bytes are an error or a message, and a message means the same when sent again.

#![no_main]

use isonomia_proto::setup::{
    self, Answer, Bound, CREDENTIAL_LEN_MAX, Challenge, Hello, Opening, SERVER_NAME_LEN_MAX, SETUP_HEADER_LEN,
    SETUP_LEN_MAX,
};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = bytes.first_chunk::<SETUP_HEADER_LEN>() {
        if let Ok(len) = setup::body_len(header, SETUP_LEN_MAX) {
            assert!(len <= SETUP_LEN_MAX);
        }
    }
    expect_round_trip::<Hello>(bytes);
    expect_round_trip::<Answer>(bytes);
    expect_round_trip::<Challenge>(bytes);
    expect_round_trip::<Opening>(bytes);
    expect_round_trip::<Bound>(bytes);
    if let Ok(challenge) = setup::decode_challenge(bytes) {
        assert!(challenge.name.len() <= SERVER_NAME_LEN_MAX);
    }
    if let Ok(opening) = setup::decode_opening(bytes) {
        assert!(opening.credential.len() <= CREDENTIAL_LEN_MAX);
    }
    let _ = setup::decode_bound(bytes);
});

fn expect_round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(message) = setup::decode::<T>(bytes) {
        let frame = setup::encode(&message);
        assert_eq!(setup::decode::<T>(&frame[SETUP_HEADER_LEN..]), Ok(message));
    }
}
