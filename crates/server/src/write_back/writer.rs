//! What one job has written and is not on the device.

use super::VAIN_MAX;
use super::ranges::Ranges;
use crate::pages::PagesOf;
use isonomia_policy::device::chunks::{CHUNKS_MAX, SHARE_LEAST};
use isonomia_units::Nanos;
use std::collections::VecDeque;

/// A job that was behind its share of the device's time ([`SHARE_LEAST`]) has one chunk more at once if that was so at so many
/// looks in a row: a pause of its own is none of the device's, …
pub(super) const LOOKS_MIN: u32 = 3;
/// … and one that had more than this part of it at as many looks, and was not behind between them, one less, …
const SHARE_MOST: f64 = 1.02;
/// … at once if it had as much as this.
const SHARE_FAR: f64 = 1.5;

/// Of so many chunks that are presumed to be on the device one is written all the same, to find out.
pub(super) const TRY_ONE_OF: u32 = 8;

/// What one job wrote to one file.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// What is in no chunk.
    pub(super) dirty: Ranges,
    /// Where the last chunk ended.
    pub(super) next: u64,
    /// Bytes in chunks.
    pub(super) cut_bytes: u64,
    /// Of those that are dirty so many are due.
    pub(super) due_bytes: u64,
    /// What bringing them to memory did cost and was not charged, in nanoseconds.
    pub(super) unpaid_ns: u64,
    pub(super) since: Nanos,
    pub(super) written_at: Nanos,
    /// All that was ever written.
    pub(super) total_bytes: u64,
    /// What was written since the file was last put on stable storage.
    since_sync_bytes: u64,
    /// What was written between the last two times; 0 if there were none.
    sync_bytes: u64,
    /// The host was told since then to begin to write some of it.
    pub(super) is_begun: bool,
}

/// Who writes more than this between two syncs does not wait for the first part of it.
const SYNC_BYTES_MAX: u64 = 8 << 20;

impl Pages {
    /// So much was written.
    pub(super) fn wrote(&mut self, bytes: u64) {
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        self.since_sync_bytes = self.since_sync_bytes.saturating_add(bytes);
    }

    /// The file is put on stable storage.
    pub(super) fn synced(&mut self) {
        self.is_begun = false;
        // A second one, with nothing to do, says nothing of the next.
        if self.since_sync_bytes > 0 {
            self.sync_bytes = std::mem::take(&mut self.since_sync_bytes);
        }
    }

    /// Whether the file is likely to be put on stable storage when a little more of it is written, as it was the last time.
    pub(super) fn are_synced_soon(&self) -> bool {
        (self.since_sync_bytes + 1..=SYNC_BYTES_MAX).contains(&self.sync_bytes)
    }
}

/// A job that writes.
#[derive(Debug)]
pub(super) struct Writer {
    /// Bytes of its pages, those in chunks among them.
    pub(super) dirty_bytes: u64,
    pub(super) share: f64,
    /// Files of which something is due, the next one first.
    pub(super) due: VecDeque<PagesOf>,
    /// Those that somebody waits for, which go before the others.
    pub(super) urgent: VecDeque<PagesOf>,
    /// Files that have dirty pages and are not due, by when that began, the earliest first. An entry whose file has been due
    /// since says nothing; none stays for longer than [`super::AGE_MAX`] and the time between two looks.
    pub(super) waiting: VecDeque<(Nanos, PagesOf)>,
    /// Its files, in the order in which it first wrote to them.
    pub(super) files: VecDeque<PagesOf>,
    /// Its chunks.
    pub(super) chunks: usize,
    /// As many of them as it takes to have its share.
    pub(super) chunks_needed: usize,
    /// [`Self::chunks`] is as many as are wanted at the moment.
    pub(super) is_enough: bool,
    /// It has one more since the last look, as [`Self::add_chunk`] gives it.
    has_more: bool,
    /// Its chunks in a row for which the host had nothing to write.
    vain: u32,
    /// Chunks that were cut since one that was written to find out whether it has.
    presumed: u32,
    /// Looks in a row at which it was behind its share.
    looks_behind: u32,
    /// Looks at which it had more than its share, since it was behind or had one chunk less.
    looks_ahead: u32,
}

impl Writer {
    pub(super) fn new() -> Self {
        let (due, urgent, waiting, files) = Default::default();
        Self {
            dirty_bytes: 0,
            share: 1.0,
            due,
            urgent,
            waiting,
            files,
            chunks: 0,
            chunks_needed: 1,
            is_enough: false,
            has_more: false,
            vain: 0,
            presumed: 0,
            looks_behind: 0,
            looks_ahead: 0,
        }
    }

    /// Whether the next chunk is presumed to be on the device, as all that was looked at lately was.
    pub(super) fn presumes_clean(&mut self) -> bool {
        if self.vain < VAIN_MAX {
            return false;
        }
        self.presumed = (self.presumed + 1) % TRY_ONE_OF;
        self.presumed != 0
    }

    /// A chunk of it was to be written, and the host had nothing of it to write, or had.
    pub(super) fn looked(&mut self, had_nothing: bool) {
        self.vain = if had_nothing { self.vain.saturating_add(1) } else { 0 };
    }

    /// It has one chunk more at once from now on; false if it has as many as it may have, or had one more since the last look.
    pub(super) fn add_chunk(&mut self) -> bool {
        if self.has_more || self.chunks_needed >= CHUNKS_MAX {
            return false;
        }
        self.chunks_needed += 1;
        (self.has_more, self.is_enough, self.looks_ahead) = (true, false, 0);
        true
    }

    /// Finds how many chunks it takes, from what it had of the device's time and what all had.
    pub(super) fn adapt(&mut self, had_ns: u64, all_ns: u64) {
        let (had, due) = (had_ns as f64, all_ns as f64 * self.share);
        self.has_more = false;
        if had < due * SHARE_LEAST && self.has_due() {
            self.looks_ahead = 0;
            self.looks_behind += 1;
            if self.looks_behind >= LOOKS_MIN {
                self.chunks_needed = (self.chunks_needed + 1).min(CHUNKS_MAX);
                (self.is_enough, self.looks_behind) = (false, 0);
            }
            return;
        }
        self.looks_behind = 0;
        if had > due * SHARE_MOST {
            // One that had too few catches up with what it is owed, and so has a little more than its share for a moment.
            self.looks_ahead += 1;
            if self.looks_ahead >= LOOKS_MIN || had > due * SHARE_FAR {
                self.chunks_needed = (self.chunks_needed - 1).max(1);
                self.looks_ahead = 0;
            }
        }
    }

    pub(super) fn has_due(&self) -> bool {
        !self.urgent.is_empty() || !self.due.is_empty()
    }
}
