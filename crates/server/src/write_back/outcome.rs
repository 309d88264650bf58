//! What comes of what is told to write-back.

use crate::requests::{Charged, Served, Work};
use isonomia_units::Nanos;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// The part of its work that its chunk is going to be charged for.
    pub unpaid: Nanos,
    /// Something of its job is due: [`WriteBack::next`](super::WriteBack::next) may have a chunk.
    pub is_due: bool,
    /// Its reply is to be delayed.
    pub is_ahead: bool,
    /// More of its file is likely to follow, and then a sync of all of it.
    pub is_synced_soon: bool,
}

/// What need not wait any more.
#[derive(Debug, Default)]
pub struct Released {
    /// Replies that were delayed.
    pub paid: Vec<Paid>,
    /// Requests for stable storage whose files' pages are written.
    pub syncs: Vec<Work>,
}

/// A request that was served and charged.
#[derive(Debug)]
pub struct Paid {
    /// The request, and its reply.
    pub served: Served,
    /// What it was charged, without what was owed.
    pub charged: Charged,
}
