//! What a munge daemon answers to a client: any bytes are a credential that is text, an error, or nonsense.

#![no_main]

use isonomia_transport::munge::{BODY_LEN_MAX, HEADER_LEN, body_len, credential};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = bytes.first_chunk::<HEADER_LEN>() {
        assert!(body_len(header).is_ok_and(|len| len <= BODY_LEN_MAX) || body_len(header).is_err());
    }
    if let Ok(credential) = credential(bytes) {
        assert!(!credential.is_empty() && credential.iter().all(u8::is_ascii_graphic));
    }
});
