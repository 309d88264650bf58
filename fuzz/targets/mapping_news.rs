//! What a session is told of its mappings: any bytes are news or not, and news means the same when sent again.

#![no_main]

use isonomia_proto::mapping::{LEASE_EVENTS_LEN_MAX, LeaseEvents, WANTED_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(events) = LeaseEvents::decode(bytes) else { return };
    assert!(bytes.len() <= LEASE_EVENTS_LEN_MAX && events.wanted.len() <= WANTED_MAX);
    assert_eq!(events.encode(), bytes);
});
