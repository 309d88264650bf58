//! What clients ask a server about volumes, and the answers.

use crate::volumes::copy::Page;
use crate::volumes::{Attributes, Version, VolumeKey, VolumeName};
use isonomia_units::{ServerId, VolumeId};
use serde::{Deserialize, Serialize};

/// A request of a client, as the server that received it calls it. A server never has two of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What a client asks for. The server has checked what the client may do in the root directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Make a volume; the root server does. [`Answer::Volume`].
    Make {
        /// Its name.
        name: VolumeName,
        /// The server that will have it.
        server: ServerId,
        /// What its directory is made with.
        attributes: Attributes,
    },
    /// Remove an empty volume; the root server does. [`Answer::Done`].
    Remove {
        /// Its name.
        name: VolumeName,
        /// The volume that the client found by that name, if it has looked: it is that one or none.
        found: Option<VolumeId>,
    },
    /// Rename a volume; the root server does. [`Answer::Done`].
    Rename {
        /// Its name.
        from: VolumeName,
        /// As in [`Request::Remove`].
        found: Option<VolumeId>,
        /// What it will be called.
        to: VolumeName,
        /// What becomes of a volume of that name.
        how: RenameHow,
    },
    /// Have another server have a volume; the root server does. It takes as long as copying takes; asked again meanwhile, it
    /// is the same move. Asked to go back to the server that it comes from, it is given up. [`Answer::Done`].
    Move {
        /// Its name.
        name: VolumeName,
        /// As in [`Request::Remove`].
        found: Option<VolumeId>,
        /// The server that will have it.
        to: ServerId,
    },
    /// Which volume has this name, and which server that. [`Answer::Volume`].
    LookUp {
        /// The name.
        name: VolumeName,
        /// Another server has sent the client here: whoever does not know for certain names the root server.
        referred: bool,
    },
    /// Which server has the volume of this number. [`Answer::Volume`].
    WhereIs {
        /// The number.
        number: VolumeId,
        /// As in [`Request::LookUp`].
        referred: bool,
    },
    /// Set the sharing policy of the cluster; the root server does. Whoever asks has made sure that the text is one.
    /// [`Answer::PolicySet`].
    SetPolicy {
        /// Its text, [`crate::policy::TEXT_BYTES_MAX`] at most.
        text: Box<str>,
    },
    /// What changed in the table after a version, as far as this server knows. [`Answer::Listed`].
    List {
        /// The version; [`Version::NONE`] for everything.
        since: Version,
    },
}

/// What becomes of a volume that has the new name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameHow {
    /// It is removed if it is empty.
    Replace,
    /// The request fails.
    NoReplace,
    /// It gets the old name.
    Exchange,
}

/// What a request got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done, and on stable storage.
    Done,
    /// A volume, and the server that has it.
    Volume {
        /// The volume.
        key: VolumeKey,
        /// The server.
        server: ServerId,
    },
    /// A part of the table; the rest is after [`Page::upto`], unless it is complete.
    Listed(Page),
    /// The policy is set, and this is its version. The others hear of it.
    PolicySet {
        /// The version.
        version: u64,
    },
}

/// Why a request got nothing. The errno that programs see is in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another server is to be asked (EREMCHG, followed by the client).
    #[error("server {0} is to be asked")]
    Refer(ServerId),
    /// There is no such volume (ENOENT).
    #[error("no such volume")]
    NotFound,
    /// There is one already (EEXIST).
    #[error("there is a volume of that name")]
    Exists,
    /// All 65,535 numbers are in use (ENOSPC).
    #[error("there are as many volumes as there can be")]
    NoNumbers,
    /// Too much is under way (EAGAIN); the client may ask again.
    #[error("too much is under way")]
    Busy,
    /// The server that shall have the volume is not in the cluster file (ENODEV).
    #[error("no such server")]
    UnknownServer,
    /// What the volume server's file system said: an errno, such as ENOTEMPTY or ENOSPC.
    #[error("the server that has the volume answered errno {0}")]
    FileSystem(i32),
    /// The time is over (ETIMEDOUT). What was begun may be done later, or never.
    #[error("no answer in time")]
    TimedOut,
    /// There is a newer cluster file, which this server does not have yet (EAGAIN).
    #[error("this server waits for a newer cluster file")]
    EpochBehind,
    /// This server has just started, and does not know yet whether its policy is the cluster's (EAGAIN).
    #[error("this server has not heard of the root server yet")]
    Starting,
    /// The text of a policy is too long (EINVAL).
    #[error("a policy of {0} bytes: {max} are allowed", max = crate::policy::TEXT_BYTES_MAX)]
    PolicyTooLong(usize),
    /// This server cannot tell at the moment whether another process has taken over its directory (EAGAIN).
    #[error("this server is not sure to be the owner of its directory")]
    NotOwner,
}
