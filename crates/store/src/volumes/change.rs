//! Changes of volumes that all servers have to agree on.

use isonomia_proto::fs::RenameHow;
use isonomia_units::VolumeId;

/// A change of a volume's name that a user wants and may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeChange {
    /// A new one.
    Make {
        /// Its name.
        name: Box<[u8]>,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// An empty one is to go.
    Remove {
        /// Which.
        volume: VolumeId,
    },
    /// One gets another name.
    Rename {
        /// Which.
        volume: VolumeId,
        /// The new name.
        name: Box<[u8]>,
        /// What becomes of a volume that has it already.
        how: RenameHow,
    },
}
