//! Volumes: the directories directly below the root, and who has which of them.
//!
//! The *table of volumes* says of every number of a volume what it stands for. It is decided by one server, the root server
//! ([`crate::node`] drives [`root`]); every other server has a *copy* of it that may be old ([`copy`]), and the server that
//! has a volume (its *volume server*) does what the table says of it ([`hosted`]).
//!
//! The table has a [`Slot`] for each number that was ever used. A slot is never taken away, so there are at most 65,535, and
//! whoever knows the table as it was at some version needs nothing but the slots that changed since: there is no log of
//! changes that could be too short, and no whole copy that would not fit into one message.

pub mod copy;
pub mod hosted;
pub mod root;
mod table;

pub use table::Table;

use isonomia_units::{ServerId, VolumeId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest name of a volume in bytes, as of any other name in a directory.
pub const NAME_LEN_MAX: usize = 255;

/// How often the table was changed: each change has a version of its own, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

impl Version {
    /// The version of a table in which nothing ever was.
    pub const NONE: Self = Self(0);

    /// The one after this one. There are enough of them for every nanosecond of 584 years.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A name that a directory may have: 1 to [`NAME_LEN_MAX`] bytes, no `/`, no NUL, neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct VolumeName(Box<[u8]>);

/// Why bytes are not a name of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Nothing, or longer than [`NAME_LEN_MAX`].
    #[error("a name of {0} bytes: 1 to {NAME_LEN_MAX} are allowed")]
    Length(usize),
    /// A `/` or NUL in it, or `.` or `..`.
    #[error("a name with `/` or NUL in it, or `.` or `..`")]
    Reserved,
}

impl VolumeName {
    /// The name as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&[u8]> for VolumeName {
    type Error = BadName;

    fn try_from(bytes: &[u8]) -> Result<Self, BadName> {
        if bytes.is_empty() || bytes.len() > NAME_LEN_MAX {
            return Err(BadName::Length(bytes.len()));
        }
        if bytes == b"." || bytes == b".." || bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(BadName::Reserved);
        }
        Ok(Self(bytes.into()))
    }
}

impl TryFrom<Vec<u8>> for VolumeName {
    type Error = BadName;

    fn try_from(bytes: Vec<u8>) -> Result<Self, BadName> {
        Self::try_from(&bytes[..])
    }
}

impl From<VolumeName> for Vec<u8> {
    fn from(name: VolumeName) -> Self {
        name.0.into_vec()
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// One volume of all times: a number is used again, with the next generation, after all the others were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeKey {
    /// What the inodes in it have in their upper 16 bits; never [`VolumeId::ROOT`].
    pub number: VolumeId,
    /// How many volumes had this number before, plus 1.
    pub generation: u32,
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.generation)
    }
}

/// What one number of a volume stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The number, and the volume of all times that has it or had it last.
    pub key: VolumeKey,
    /// The version of the table that this slot is in since.
    pub changed: Version,
    /// The volume; `None` where there is none any more.
    pub volume: Option<Volume>,
}

/// A volume as the table knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its name in the root.
    pub name: VolumeName,
    /// The server that has its names, permissions, locks and mappings.
    pub server: ServerId,
    /// What its directory was made with.
    pub attributes: Attributes,
    /// What is being done with it.
    pub phase: Phase,
}

/// What a directory is made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits, with the umask applied.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Where a volume is in its life. All but [`Phase::Active`] are *intents*: the root server has recorded what it wants, and
/// what the volume server says to it decides what comes next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The volume server shall make the directory. The name is taken, and nobody sees it yet.
    Creating,
    /// It is there.
    Active,
    /// The volume server shall remove the directory if it is empty. The name stands for it until it has.
    Removing {
        /// The volume, in [`Phase::Prepared`], that gets the name at the moment at which this one goes: `rename` onto an empty
        /// directory.
        successor: Option<VolumeId>,
    },
    /// Its server shall not answer for its name any more, because it is about to get that of another one: several
    /// servers take part in that, and nobody may see the one half of it without the other.
    Prepared {
        /// The volume that has the name that it will get.
        with: VolumeId,
        /// That one gets this one's name; else it is removed.
        exchange: bool,
    },
    /// It has its name already, and the volume server shall know it by that. Until it does, neither name is answered for.
    Renaming {
        /// What it was called before.
        old: VolumeName,
    },
    /// Its server shall serve nobody in it any more, and keep it as it is, so that `to` can get it.
    Leaving {
        /// The server that will have it.
        to: ServerId,
    },
    /// Its server shall get it from `from`, and serve nobody in it yet.
    Arriving {
        /// The server that has it until then.
        from: ServerId,
    },
}

/// What a volume server says to an intent, once and for all: it is on stable storage before it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The directory is there.
    Made,
    /// There is none, and for this volume of all times there never will be one: the errno of the file system.
    NotMade(i32),
    /// It is gone.
    Removed,
    /// It stays: the errno of the file system, such as ENOTEMPTY.
    NotRemoved(i32),
    /// Its name is not answered for any more.
    Prepared,
    /// It is known by its new name.
    Renamed,
    /// Nobody is served in it any more, and nothing in it changes.
    Frozen,
    /// It is served as before: the errno, such as EBUSY of a volume that is in use.
    NotFrozen(i32),
    /// All of it is here.
    Fetched,
    /// Not all of it is here, and what is will go: the errno of the file system, such as ENOSPC.
    NotFetched(i32),
    /// A part of it may be here. It is told to nobody: so a server knows after a stop what to go on with, or to remove.
    Fetching,
}

impl Attributes {
    /// What a directory is made with.
    pub const fn new(mode: u32, uid: u32, gid: u32) -> Self {
        Self { mode, uid, gid }
    }
}

impl Volume {
    /// The name that it had before, as long as its server may still answer for that.
    pub fn old_name(&self) -> Option<&VolumeName> {
        if let Phase::Renaming { old } = &self.phase { Some(old) } else { None }
    }
}

impl Slot {
    /// Whether this is the volume `key` on `server`, and not on its way.
    pub fn is_at(&self, key: VolumeKey, server: ServerId) -> bool {
        let is_there = |volume: &Volume| {
            volume.server == server && !matches!(volume.phase, Phase::Leaving { .. } | Phase::Arriving { .. })
        };
        self.key == key && self.visible().is_some_and(is_there)
    }

    /// The volume, if its name can be looked up: made, and not gone yet.
    pub fn visible(&self) -> Option<&Volume> {
        self.volume.as_ref().filter(|volume| volume.phase != Phase::Creating)
    }

    /// The volume, if the root server waits for its volume server.
    pub fn intent(&self) -> Option<&Volume> {
        self.volume.as_ref().filter(|volume| volume.phase != Phase::Active)
    }
}

impl Outcome {
    /// Whether the directory is there.
    pub const fn is_there(self) -> bool {
        match self {
            Self::NotMade(_) | Self::Removed | Self::NotFetched(_) | Self::Fetching => false,
            Self::Made | Self::NotRemoved(_) | Self::Prepared | Self::Renamed => true,
            Self::Frozen | Self::NotFrozen(_) | Self::Fetched => true,
        }
    }
}
