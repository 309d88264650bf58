//! Bits of [`RequestHeader::valid`](crate::request::RequestHeader::valid) of an [`Op::Fsync`](crate::request::Op::Fsync).

/// Those of the file's other targets are under way at the same time. EAGAIN if the attributes can be synced only after the bytes of all
/// targets: when those are done, it is to be asked once more without this.
pub const TOGETHER: u32 = 1;
