//! Whose pages the host has in memory: what paced write-back ([`crate::write_back`]) and read-ahead ([`crate::read_ahead`]) know
//! of a target's files and objects apart from each other.

use isonomia_proto::request::RequestHeader;
use isonomia_store::checksum::ObjectId;
use isonomia_store::{Extent, ObjectPlace, Store, StoreError};
use isonomia_units::{Ino, TargetId};
use std::ops::Range;

/// A file with bytes here, or an object of one whose server may be another one, at the offsets of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PagesOf {
    /// A file.
    File(Ino),
    /// An object of a spread file.
    Object(ObjectId),
}

impl PagesOf {
    /// What a request to read, write or sync is for.
    pub fn request(header: &RequestHeader) -> Self {
        match header.is_for_object() {
            true => Self::Object(ObjectPlace::of(&header.object_capability()).object),
            false => Self::File(Ino(header.ino)),
        }
    }

    /// The inode of the file.
    pub fn ino(self) -> Ino {
        match self {
            Self::File(ino) => ino,
            Self::Object(object) => Ino(object.number),
        }
    }

    /// What of `ranges` lies on `target`, if there is anything.
    pub fn extent(self, store: &Store, target: TargetId, ranges: &[Range<u64>]) -> Result<Option<Extent>, StoreError> {
        match self {
            Self::File(ino) => store.extent(ino, target, ranges),
            Self::Object(object) => store.objects().object_extent(ObjectPlace { object, target }, ranges),
        }
    }
}
