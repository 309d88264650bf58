//! Who asks, and where the data lives.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The longest job or group name that is kept; longer ones are refused where they enter.
pub const NAME_LEN_MAX: usize = 255;

/// A job as one server knows it: a small dense number handed out at admission, valid until the job is gone.
///
/// The job's name is in [`JobInfo::name`]; names come from schedulers and are opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u32);

/// A POSIX user id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UserId(pub u32);

/// A POSIX group id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u32);

/// A storage target (in Lustre's words an OST), unique in the whole system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TargetId(pub u16);

/// A server, unique in the whole system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId(pub u16);

/// A volume: a directory directly below the root, with everything in it, unique in the whole system. [`Self::ROOT`] is what
/// is in no such directory, and on a server without others it is everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeId(pub u16);

/// An inode number. Its upper 16 bits name the volume that the inode is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ino(pub u64);

/// Who a job is, as far as sharing is concerned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// The scheduler's name for the job, with its cluster: opaque text.
    pub name: Arc<str>,
    /// The user that the job is charged to.
    pub user: Arc<str>,
    /// The group (account, project) that the job is charged to.
    pub group: Arc<str>,
    /// Compute nodes, at least 1: the job's size.
    pub nodes: u32,
    /// Priority, at least 1; larger is more.
    pub priority: u32,
    /// `None`: all of this is believed. Otherwise user and group are, and that the job is the one of this name or a part
    /// of it, empty if no job is proven; name, nodes, and priority are only claimed. What is claimed divides what is
    /// proven and never adds to it: all jobs within one proof count together as one job of one node and priority 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Arc<str>>,
    /// What its user calls the job, which the next run of the same application is likely to be called too. A claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Arc<str>>,
    /// The program that the job runs, without its directory. A claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<Arc<str>>,
}

impl Ino {
    /// The root directory of the file system.
    pub const ROOT: Self = Self(1);

    /// The inode `number` of `volume`; `number` must fit 48 bits.
    pub const fn new(volume: VolumeId, number: u64) -> Self {
        debug_assert!(number < 1 << 48);
        Self((volume.0 as u64) << 48 | number)
    }

    /// The volume that this inode is in.
    pub const fn volume(self) -> VolumeId {
        VolumeId((self.0 >> 48) as u16)
    }
}

impl VolumeId {
    /// What is in no directory below the root.
    pub const ROOT: Self = Self(0);
}

impl JobInfo {
    /// A job of one node and priority 1, all of it believed.
    pub fn new(name: &str, user: &str, group: &str) -> Self {
        let (name, user, group) = (name.into(), user.into(), group.into());
        Self { name, user, group, nodes: 1, priority: 1, within: None, title: None, executable: None }
    }

    /// The same job, claimed within the proven job `within`, or within none if that is empty.
    pub fn claimed_within(self, within: &str) -> Self {
        Self { within: Some(within.into()), ..self }
    }

    /// The name that is believed; empty if no job is proven.
    pub fn proven_name(&self) -> &Arc<str> {
        self.within.as_ref().unwrap_or(&self.name)
    }
}

macro_rules! display_inner {
    ($($ty:ty),*) => {$(
        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_inner!(JobId, UserId, GroupId, TargetId, ServerId, VolumeId, Ino);
