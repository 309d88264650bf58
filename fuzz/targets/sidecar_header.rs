//! Headers of sidecars: what decodes encodes to the same bytes; a header with one changed bit does not decode.

#![no_main]

use isonomia_store::checksum::{BLOCKS_MAX, HEADER_LEN, Header, ObjectId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, u32, u32, u64, u16, &[u8])| {
    let (number, generation, index, blocks, bit, bytes) = input;
    if let Ok(header) = Header::decode(bytes) {
        assert_eq!(header.encode(), bytes[..HEADER_LEN]);
    }
    let header = Header { object: ObjectId { number, generation, index }, blocks: blocks % (BLOCKS_MAX + 1) };
    let mut encoded = header.encode();
    assert_eq!(Header::decode(&encoded), Ok(header));
    let bit = usize::from(bit) % (8 * HEADER_LEN);
    encoded[bit / 8] ^= 1 << (bit % 8);
    assert!(Header::decode(&encoded).is_err());
});
