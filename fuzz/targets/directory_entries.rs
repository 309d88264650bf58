//! Directory listings: what decodes is names that a file system can have, and encodes to the same bytes.

#![no_main]

use isonomia_proto::NAME_LEN_MAX;
use isonomia_proto::fs::DirEntry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(entries) = DirEntry::decode_all(bytes) else { return };
    let mut again = Vec::new();
    for entry in &entries {
        assert!((1..=NAME_LEN_MAX).contains(&entry.name.len()));
        assert!(!entry.name.contains(&0) && !entry.name.contains(&b'/'));
        entry.encode(&mut again);
    }
    assert_eq!(again, bytes);
});
