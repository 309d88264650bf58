//! Layouts: what decodes encodes to the same bytes, and finds a target for every byte of a file.

#![no_main]

use isonomia_proto::fs::Layout;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, &[u8])| {
    let (offset, bytes) = input;
    let Ok(layout) = Layout::decode(bytes) else { return };
    let mut again = Vec::new();
    layout.encode(&mut again);
    assert_eq!(again, bytes);
    let offset = offset >> 1;
    let (target, run) = layout.locate(offset);
    assert!(run > 0 && layout.targets.contains(&target));
});
