//! Request headers: whatever passes the check is within every limit that buffers are sized by.

#![no_main]

use isonomia_proto::request::{Op, RequestHeader};
use isonomia_proto::{PATH_LEN_MAX, PAYLOAD_LEN_MAX, XATTR_VALUE_LEN_MAX};
use libfuzzer_sys::fuzz_target;
use zerocopy::FromBytes;

fuzz_target!(|bytes: &[u8]| {
    let Ok((header, _)) = RequestHeader::read_from_prefix(bytes) else { return };
    let Ok(op) = header.check() else { return };
    assert_eq!(op as u16, header.op);
    assert!(header.names_len() <= 2 * PATH_LEN_MAX + XATTR_VALUE_LEN_MAX);
    assert!(header.payload_len(op) <= PAYLOAD_LEN_MAX);
    // Of these it is a number for which nobody has a buffer.
    let is_number = matches!(op, Op::ReserveAppend | Op::TellSize | Op::Release);
    assert!(header.len as usize <= PAYLOAD_LEN_MAX || is_number);
    // Both capabilities that a header has room for are what stands there, and nothing of one is in the other.
    let (first, second) = (header.capability(), header.second_capability());
    let again = RequestHeader::with_capability(op, &first).with_second_capability(&second);
    assert_eq!((again.capability(), again.second_capability()), (first, second));
});
