//! Capabilities: any bytes are one, and come back as they were; a server that checks them takes none that it did not make.

#![no_main]

use isonomia_proto::fs::Capability;
use isonomia_proto::request::{Op, RequestHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(bytes) = bytes.first_chunk::<{ Capability::LEN }>() else { return };
    let capability = Capability::from_bytes(*bytes);
    assert_eq!(capability.to_bytes(), *bytes);
    let carried = RequestHeader::with_capability(Op::Read, &capability).capability();
    assert_eq!(carried, Capability { reserved: 0, ..capability });
    assert_eq!(carried.is_proven(), capability.mac != 0);
});
