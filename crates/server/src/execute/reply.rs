//! The payload of a reply, while an operation puts it together, and its end.

use crate::refusal::Refusal;
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader};
use isonomia_store::StoreError;

/// Where an operation puts its reply's payload.
pub struct Reply<'a> {
    /// Where the client finds it.
    pub room: &'a mut [u8],
    /// So much of it is filled.
    pub len: usize,
    /// Of the reply's header.
    pub value: u64,
    /// The same.
    pub cuts: u64,
}

impl<'a> Reply<'a> {
    /// Room for a payload.
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { room, len: 0, value: 0, cuts: 0 }
    }

    /// Puts these bytes after the others.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let room = self.room.get_mut(self.len..self.len + bytes.len()).ok_or(StoreError::Invalid)?;
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Puts what a caller has room for `len_max` bytes for, if that is not 0; `value` tells the length either way.
    pub fn put_if_wanted(&mut self, bytes: &[u8], len_max: u32) -> Result<(), StoreError> {
        self.value = bytes.len() as u64;
        match len_max as usize {
            0 => Ok(()),
            len_max if bytes.len() > len_max => Err(StoreError::Range),
            _ => self.put(bytes),
        }
    }
}

/// The edge at which an error becomes an errno. An error that is the storage's fault is told in the log.
pub fn finish(header: &RequestHeader, op: Op, outcome: Result<(), Refusal>, mut reply: Reply<'_>) -> ReplyHeader {
    let refusal = match outcome {
        Ok(()) => return ReplyHeader { cuts: reply.cuts, ..ReplyHeader::ok(header.seq, reply.value, reply.len) },
        Err(refusal) => refusal,
    };
    reply.len = 0;
    let Refusal::Store(error) = &refusal else { return ReplyHeader::error(header.seq, refusal.errno()) };
    if let StoreError::Outside(path) = error {
        if reply.put(path).is_err() {
            return ReplyHeader::error(header.seq, StoreError::NameTooLong.errno());
        }
    } else if let StoreError::Elsewhere { server, rest } = error {
        if reply.put(rest).is_err() {
            return ReplyHeader::error(header.seq, StoreError::NameTooLong.errno());
        }
        reply.value = u64::from(server.0);
    } else if matches!(error, StoreError::Io { .. } | StoreError::Meta(_) | StoreError::Damaged(_)) {
        tracing::error!(op = op.name(), ino = header.ino, %error, "storage failed");
    }
    let (value, payload_len) = (reply.value, reply.len as u32);
    ReplyHeader { value, payload_len, ..ReplyHeader::error(header.seq, error.errno()) }
}
