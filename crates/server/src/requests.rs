//! Requests whose turn has come: in service, served, and what they were charged.

use crate::connection::Pending;
use isonomia_policy::RequestId;
use isonomia_proto::request::ReplyHeader;
use isonomia_proto::{XATTR_LIST_LEN_MAX, XATTR_VALUE_LEN_MAX};
use isonomia_transport::region::SLOT_LEN;
use isonomia_units::Nanos;

/// Room for the reply of anything that is no read: the longest are those about extended attributes.
pub const REPLY_LEN_MAX: usize = XATTR_VALUE_LEN_MAX;
const _: () = assert!(REPLY_LEN_MAX >= XATTR_LIST_LEN_MAX && REPLY_LEN_MAX <= SLOT_LEN);

/// A request whose turn has come.
#[derive(Debug)]
pub struct Work {
    /// The request.
    pub pending: Pending,
    /// The dispatcher's name for it; known from when its turn has come.
    pub id: RequestId,
    /// When the emulated device is done with it; the reply waits until then.
    pub finish_at: Option<Nanos>,
}

/// A request that is served, and whose reply waits for the emulated device.
#[derive(Debug)]
pub struct Served {
    /// The request.
    pub pending: Pending,
    /// The dispatcher's name for it.
    pub id: RequestId,
    /// The reply.
    pub reply: ReplyHeader,
    /// The reply's payload, if it has to go out on a stream.
    pub payload: Vec<u8>,
}

/// What a request was charged in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Without what it settled.
    pub service: Nanos,
    /// It is the time that it had of a real device.
    pub is_by_time: bool,
}
