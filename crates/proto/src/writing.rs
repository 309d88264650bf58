//! Bits of [`RequestHeader::valid`](crate::request::RequestHeader::valid) of an [`Op::Write`](crate::request::Op::Write). A server
//! does not look at those that it does not know.

/// The program opened the file with `O_DIRECT`: the server may bring the bytes to the device past its host's page cache. It is no
/// promise of stable storage, as it is none on Linux.
pub const DIRECT: u32 = 1;
