//! Cluster files, host lists, and what a peer sends of a cluster: read, or refused.

#![no_main]

use isonomia_cluster::{Map, hosts};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(map) = Map::decode(bytes) {
        let again = Map::decode(&map.encode()).expect("what was decoded is decoded again");
        assert_eq!(again.fingerprint(), map.fingerprint());
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(names) = hosts::expand(text) {
        let short = hosts::compress(names.iter().map(String::as_str));
        assert_eq!(hosts::expand(&short).as_ref(), Ok(&names), "by {short}");
    }
    if let (Some(map), _) = Map::read(text) {
        let others = Map::decode(&map.encode()).expect("what is sent is understood");
        assert_eq!(others.servers().len(), map.servers().len());
        assert_eq!(map.difference(&map), []);
    }
});
