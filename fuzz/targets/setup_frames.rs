//! The frames that open a session: any bytes are an error or a message, and a message means the same when sent again.

#![no_main]

use isonomia_proto::setup::{self, Answer, Challenge, Hello, SETUP_HEADER_LEN, SETUP_LEN_MAX};
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
});

fn expect_round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(message) = setup::decode::<T>(bytes) {
        let frame = setup::encode(&message);
        assert_eq!(setup::decode::<T>(&frame[SETUP_HEADER_LEN..]), Ok(message));
    }
}
