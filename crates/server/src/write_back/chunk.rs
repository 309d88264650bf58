//! What is written back at once.

use crate::pages::PagesOf;
use isonomia_units::{Bytes, JobId, Nanos};
use std::ops::Range;

/// To see that nothing has to be written takes no longer than this, …
const CLEAN_NS_MAX: u64 = 10_000;
/// … and this for each range.
const CLEAN_RANGE_NS_MAX: u64 = 1_000;

/// How chunks are made at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The device is to take no longer for one.
    pub time_max: Nanos,
    /// Those of one job that may wait or be written at once, at most
    /// [`CHUNKS_MAX`](isonomia_policy::device::chunks::CHUNKS_MAX); `None` for no more than it takes to have
    /// the job's share.
    pub chunks_max: Option<usize>,
    /// They take a slot of the target's depth.
    pub is_counted: bool,
}

/// Ranges of a file to be written back: a request of the job that wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The file or object.
    pub of: PagesOf,
    /// Who wrote them.
    pub job: JobId,
    /// In whole pages, in their order.
    pub ranges: Vec<Range<u64>>,
    /// Bytes of all of them.
    pub bytes: Bytes,
    /// The pages are to be dropped afterwards.
    pub is_large: bool,
    /// What the device is likely to take.
    pub predicted: Nanos,
    /// What bringing them into memory did cost and was not charged.
    pub unpaid: Nanos,
    /// It takes a slot of the target's depth.
    pub is_counted: bool,
    /// Nobody else wrote pages of the file that wait, so what lies between the ranges is nobody else's.
    pub is_only_writer: bool,
    /// The host was told to begin with some of it before: how long the rest takes says nothing of the device.
    pub is_begun: bool,
    /// The host has likely nothing of it to write: it had nothing of the job's last chunks.
    pub is_presumed_clean: bool,
}

impl Chunk {
    /// Whether the host is to be asked to write it.
    pub fn is_to_be_written(&self) -> bool {
        // What is large is to be dropped as well.
        !self.is_presumed_clean || self.is_large
    }

    /// Whether the host had nothing to write, if it took so long: to look through its pages, and no device is as fast.
    pub fn was_clean(&self, took: Nanos) -> bool {
        took.0 <= CLEAN_NS_MAX + CLEAN_RANGE_NS_MAX * self.ranges.len() as u64
    }
}
