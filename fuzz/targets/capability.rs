//! Capabilities: any bytes are one, and come back as they were; who checks them takes those that he made, and none that
//! differs in any bit that counts.

#![no_main]

use isonomia_proto::fs::{Capability, access};
use isonomia_proto::object::ObjectCapability;
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_store::{ObjectSigner, Store, StoreConfig, TargetDir};
use isonomia_units::{Ino, ServerId, TargetId};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// The time at which all is checked.
const NOW_SECS: u64 = 1_000_000;
/// Of a file's objects.
const TARGETS: [TargetId; 2] = [TargetId(5), TargetId(0)];

fuzz_target!(|bytes: &[u8]| {
    static STORE: LazyLock<Store> = LazyLock::new(store);
    let Some(bytes) = bytes.first_chunk::<{ Capability::LEN }>() else { return };
    let capability = Capability::from_bytes(*bytes);
    assert_eq!(capability.to_bytes(), *bytes);
    let carried = RequestHeader::with_capability(Op::Read, &capability).capability();
    assert_eq!(carried, Capability { reserved: 0, ..capability });
    assert_eq!(carried.is_proven(), capability.mac != 0);

    // The fuzzer sees what codes are compared with: it may learn one for other bytes, but make none fit another.
    let made = STORE.namespace().prove(Ino::ROOT, 1000).expect("the root is there");
    STORE.namespace().verify(&made).expect("it was made here");
    let changed = Capability { mac: made.mac, ..Capability::from_bytes(over(made.to_bytes(), bytes)) };
    assert_eq!(STORE.namespace().verify(&changed).is_ok(), Capability { reserved: 0, ..changed } == made);
    let changed = Capability { mac: made.mac ^ capability.mac, ..made };
    assert_eq!(STORE.namespace().verify(&changed).is_ok(), changed == made);

    let signer = ObjectSigner::new(4, [9; 16]);
    let (first, codes) = signer.sign(((7, 3), &TARGETS), access::READ, 1000, NOW_SECS, 60);
    let made = ObjectCapability { index: 1, target: TARGETS[1].0, mac: codes[1], ..first };
    signer.verify(&made, access::READ, NOW_SECS, 0).expect("it was made here");
    let changed = ObjectCapability { mac: made.mac, ..ObjectCapability::from_bytes(over(made.to_bytes(), bytes)) };
    assert_eq!(signer.verify(&changed, access::READ, NOW_SECS, 0).is_ok(), changed == made);
    let changed = ObjectCapability { mac: [made.mac[0], made.mac[1] ^ capability.mac], ..made };
    assert_eq!(signer.verify(&changed, access::READ, NOW_SECS, 0).is_ok(), changed == made);
    let carried = RequestHeader::of_object(Op::Read, &changed).object_capability();
    assert_eq!(carried, changed);
});

/// `bytes` with the bits turned that are set in `mask`.
fn over<const LEN: usize>(bytes: [u8; LEN], mask: &[u8]) -> [u8; LEN] {
    std::array::from_fn(|at| bytes[at] ^ mask.get(at).copied().unwrap_or(0))
}

fn store() -> Store {
    // What lies in it goes with the directory in which all targets are fuzzed.
    let dir = tempfile::tempdir().expect("a directory").keep();
    let targets = vec![TargetDir { id: TargetId(0), dir: dir.join("target") }];
    Store::open(&StoreConfig::new(dir.join("store"), ServerId(0), targets)).expect("a store")
}
