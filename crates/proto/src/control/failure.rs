//! Why a server cannot do all that it is there for.

use serde::{Deserialize, Serialize};

/// Why metadata cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataFailure {
    /// The storage of the metadata is full. Changes are possible again when it has room.
    Full,
    /// It failed. Changes are tried again every second.
    Failed,
    /// A sync of them failed. When the storage takes their journal again the server ends: it has to start anew to see what is there.
    Unsynced,
}
