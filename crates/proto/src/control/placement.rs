//! How new files are placed, and what is known of the targets.

use serde::{Deserialize, Serialize};

/// How a server of a cluster places new files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlacementStatus {
    /// How targets are chosen, where no directory says otherwise: a word as in the cluster file.
    pub placement: String,
    /// An operator has said so, and not the cluster file.
    pub is_set: bool,
    /// Version of what operators have set that this server has.
    pub version: u64,
    /// The servers have a key in common. Without one files stay on the servers of their volumes.
    pub is_possible: bool,
    /// Open files that this server has placed, and counts.
    pub open_files: u64,
    /// Every target, by number.
    pub targets: Vec<PlacementTarget>,
}

/// What a server knows of a target of any server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlacementTarget {
    /// Its number in the whole system.
    pub target: u16,
    /// The server's name.
    pub server: String,
    /// Which part of its time those who use it leave to one more, 0 to 1; absent while nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<f64>,
    /// Free space, in bytes; absent while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Its server has not been heard of for some intervals: it gets no files while there are others.
    pub is_silent: bool,
    /// It gets no new files.
    pub is_retired: bool,
}
