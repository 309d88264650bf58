//! Objects of files that several servers have parts of, as clients ask for them.

use crate::fs::Timestamp;
use crate::request::{Op, RequestHeader, flag};
use isonomia_units::{Ino, ServerId, TargetId};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Proof that its holder may use one object of a file, on this target: a server that has it asks nobody else.
///
/// The server of the file's volume makes it out, and any server of the cluster verifies it: `mac` is keyed with a secret that
/// they have in common, over all other fields. It ends by itself, and holders get a new one in time; so who lost a permission
/// loses the objects that long afterwards at the latest.
///
/// Those for the objects of one file, made out at once, differ in `index`, `target` and `mac` only. Target and index are both in
/// it, because the server of a target does not know the file's layout: it could not tell an object that belongs there from one
/// that its holder would like to have there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ObjectCapability {
    /// In the names of the objects.
    pub number: u64,
    /// The first second, since 1970, in which it is valid no more.
    pub expires_secs: u64,
    /// Which of the secrets it is made with.
    pub epoch: u64,
    /// In the names of the objects.
    pub generation: u32,
    /// What the holder may do: bits of [`crate::fs::access`].
    pub access: u32,
    /// The user that it is made out to.
    pub holder: u32,
    /// Which of the file's objects: in its name.
    pub index: u16,
    /// Where that is.
    pub target: u16,
    /// The authentication code over the other fields.
    pub mac: ObjectCode,
}

/// [`ObjectCapability::mac`].
pub type ObjectCode = [u64; 2];

impl ObjectCapability {
    /// Its bytes on the wire.
    pub const LEN: usize = size_of::<Self>();

    /// How many of its first bytes `mac` is a code over: all before it.
    pub const SIGNED_LEN: usize = std::mem::offset_of!(Self, mac);

    /// Its bytes, as on the wire.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        zerocopy::transmute!(self)
    }

    /// What [`Self::to_bytes`] gave.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        zerocopy::transmute!(bytes)
    }
}

/// What a client needs to get at the bytes of a spread file, besides its layout, which never changes. An [`ObjectCode`] for each
/// object follows, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileObjects {
    /// For the first of its objects.
    pub capability: ObjectCapability,
    /// Its end, as it was when the server of its volume said so.
    pub end: FileEnd,
    /// How many numbers each server has for its targets: number *t* is of server *t* / this + 1.
    pub targets_per_server: u32,
    /// How many objects it has: so many codes follow.
    pub count: u32,
}

/// What changes of a spread file while it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileEnd {
    /// Its size.
    pub size_bytes: u64,
    /// The number of its last cut.
    pub cuts: u64,
}

impl FileObjects {
    /// What `bytes` begin with: this, and the codes. `None` if they are shorter.
    pub fn decode(bytes: &[u8]) -> Option<(Self, Vec<ObjectCode>, &[u8])> {
        let (found, rest) = Self::read_from_prefix(bytes).ok()?;
        let codes_len = (found.count as usize).checked_mul(size_of::<ObjectCode>())?;
        let (codes, rest) = rest.split_at_checked(codes_len)?;
        let codes = codes.chunks_exact(size_of::<ObjectCode>()).map(ObjectCode::read_from_bytes);
        Some((found, codes.collect::<Result<_, _>>().ok()?, rest))
    }

    /// How many bytes that is for so many objects.
    pub const fn len(objects: usize) -> usize {
        size_of::<Self>() + objects * size_of::<ObjectCode>()
    }

    /// The capability for one of its objects: the code for it is from the list that follows this.
    pub fn capability_for(&self, index: u16, target: TargetId, mac: ObjectCode) -> ObjectCapability {
        ObjectCapability { index, target: target.0, mac, ..self.capability }
    }
}

/// The server of a target, where each server has so many numbers for its targets, at least one. `None` if no server has such a
/// number.
pub fn server_of(target: TargetId, targets_per_server: u16) -> Option<ServerId> {
    (target.0 / targets_per_server.max(1)).checked_add(1).map(ServerId)
}

/// What an [`Op::FindObjects`] asks for.
pub mod find {
    /// Of [`RequestHeader::valid`](crate::request::RequestHeader::valid): the reply is a [`FileEnd`](super::FileEnd) and nothing else.
    pub const END_ONLY: u32 = 1;
}

/// What becomes of what an [`Op::TellSize`] says.
pub mod told {
    /// The size is what it says, or more.
    pub const TAKEN: u64 = 0;
    /// A cut has begun since objects were written: they will be cut. [`ReplyHeader::cuts`](crate::request::ReplyHeader::cuts)
    /// says of the first one since which it was: [`SHORTENED`], [`KEPT`], or [`UNKNOWN`].
    pub const CUT: u64 = 1;
    /// The file is being cut and does not grow meanwhile: say it again.
    pub const AGAIN: u64 = 2;
    /// It is not known.
    pub const UNKNOWN: u64 = 0;
    /// It made the file shorter.
    pub const SHORTENED: u64 = 1;
    /// It left the size.
    pub const KEPT: u64 = 2;
    /// Of [`RequestHeader::valid`](crate::request::RequestHeader::valid) in the request: objects may have bytes behind the end
    /// that will not be told. They are to be cut off.
    pub const BEHIND: u32 = 1;
}

impl RequestHeader {
    /// A request for an object of a spread file. The parts of the capability that no capability for an inode has are in fields
    /// that mean nothing else there.
    pub fn of_object(op: Op, capability: &ObjectCapability) -> Self {
        Self {
            flags: flag::OBJECT,
            mac: capability.mac[0],
            owner: capability.mac[1],
            atime: Timestamp::from_secs(capability.expires_secs as i64),
            mtime: Timestamp::from_secs(capability.epoch as i64),
            access: capability.access,
            generation: capability.generation,
            holder: capability.holder,
            server: capability.index,
            target: capability.target,
            ..Self::new(op, Ino(capability.number))
        }
    }

    /// Whether it is for an object.
    pub fn is_for_object(&self) -> bool {
        self.flags & flag::OBJECT != 0
    }

    /// The capability of a request for an object.
    pub fn object_capability(&self) -> ObjectCapability {
        ObjectCapability {
            number: self.ino,
            expires_secs: self.atime.secs as u64,
            epoch: self.mtime.secs as u64,
            generation: self.generation,
            access: self.access,
            holder: self.holder,
            index: self.server,
            target: self.target,
            mac: [self.mac, self.owner],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_carries_all_of_an_objects_capability() {
        let capability = ObjectCapability {
            number: 1,
            expires_secs: u64::MAX,
            epoch: 3,
            generation: 4,
            access: 5,
            holder: 6,
            index: 9,
            target: 10,
            mac: [7, u64::MAX],
        };
        let header = RequestHeader::of_object(Op::Write, &capability);
        assert_eq!((header.object_capability(), header.target), (capability, 10));
        assert!(header.is_for_object() && header.check() == Ok(Op::Write));
    }

    #[test]
    fn codes_follow_what_they_are_for_and_their_number_is_not_believed() {
        let found = FileObjects { count: 2, targets_per_server: 16, ..FileObjects::default() };
        let codes: [ObjectCode; 2] = [[1, 2], [3, 4]];
        let bytes = [found.as_bytes(), codes.as_bytes(), b"layout"].concat();
        assert_eq!(FileObjects::decode(&bytes), Some((found, codes.to_vec(), &b"layout"[..])));
        assert_eq!(FileObjects::len(2), bytes.len() - 6);
        assert_eq!(FileObjects::decode(&bytes[..FileObjects::len(2) - 1]), None);
        let many = FileObjects { count: u32::MAX, ..found };
        assert_eq!(FileObjects::decode(&[many.as_bytes(), codes.as_bytes()].concat()), None);
        let second = found.capability_for(1, TargetId(7), codes[1]);
        assert_eq!((second.index, second.target, second.mac), (1, 7, [3, 4]));
    }
}
