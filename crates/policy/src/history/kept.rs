//! The history as bytes, for whoever keeps it from one process to the next.
//!
//! | bytes | |
//! |---|---|
//! | 8 | `ISOSIZES` |
//! | 4 | the format, [`HISTORY_FORMAT`] |
//! | 8 | phases that were ever recorded, of all applications together |
//! | 4 | how many applications follow |
//! | … | the applications, ascending by name, each as `postcard` writes name, number of its latest phase among all, its phases, error, and sizes from the oldest on |
//! | 8 | XXH3 of all before |
//!
//! Numbers of fixed length are little-endian. An [export](HistoryExport) is taken in portions, between which phases may end: each
//! application is in it as it was at one moment, and nothing that is told of one depends on another. So whoever has a lock around a history
//! never has it for long.
//!
//! What is imported foretells the same as what was exported, and forgets in the same order. Bytes that no export has made are refused,
//! and never lead to more in memory than a history may have: of too many applications those go that were away for longest.

use super::{APPLICATIONS_KEPT, SIZES_KEPT, SizeHistory, Sizes};
use isonomia_units::NAME_LEN_MAX;
use std::ops::Bound;
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// The number of the format. Another one is refused.
pub const HISTORY_FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"ISOSIZES";
const HEADER_LEN: usize = 8 + 4 + 8 + 4;
const CHECKSUM_LEN: usize = 8;
/// The longest name: of a user and of what he runs, with a byte between. One that is longer is not exported.
const APPLICATION_LEN_MAX: usize = 2 * NAME_LEN_MAX + 1;
/// An application at its longest: its name with the length, three numbers of ten bytes at most, the error, and the sizes with their count.
const ENTRY_LEN_MAX: usize = (2 + APPLICATION_LEN_MAX) + 2 * 10 + 9 + (1 + 10 * SIZES_KEPT);
/// No export is longer.
pub const HISTORY_BYTES_MAX: usize = HEADER_LEN + APPLICATIONS_KEPT * ENTRY_LEN_MAX + CHECKSUM_LEN;
/// Applications in one portion.
const PORTION: usize = 128;
/// So many phases are never recorded: there is always a next number.
const RECORDS_MAX: u64 = 1 << 62;
/// More than the logarithm of the largest factor between two sizes.
const ERROR_LOG_MAX: f64 = 45.0;

/// Bytes that are no history which this program knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHistory {
    /// It is longer than any.
    #[error("it is longer than {HISTORY_BYTES_MAX} bytes")]
    TooLong,
    /// It does not begin like one, or is too short.
    #[error("it is no history of sizes")]
    Foreign,
    /// Another version has made it.
    #[error("it has format {0}; this version reads {HISTORY_FORMAT}")]
    Format(u32),
    /// Not all of its bytes are those that were written.
    #[error("its checksum is wrong: it is damaged")]
    Checksum,
    /// An application cannot be read, or there are more or fewer bytes than its applications have.
    #[error("what it says of application {0} cannot be read")]
    Malformed(u32),
    /// A value can not have come about.
    #[error("{what} of application {at} is out of range")]
    OutOfRange {
        /// Which application, from 0.
        at: u32,
        /// Of which value.
        what: &'static str,
    },
}

/// An export under way.
#[derive(Debug, Default)]
pub struct HistoryExport {
    portions: Vec<Vec<u8>>,
    /// The last application that was taken.
    last: Option<Arc<str>>,
    applications: usize,
    records: u64,
}

/// What is kept of an application: name, number of its latest phase, phases, error, and sizes.
type Entry<'b, S> = (&'b str, u64, u64, Option<f64>, S);

impl HistoryExport {
    /// Takes the next portion; true if there may be more.
    pub fn take(&mut self, history: &SizeHistory) -> bool {
        let from = self.last.as_ref().map_or(Bound::Unbounded, |last| Bound::Excluded(last.clone()));
        let most = PORTION.min(APPLICATIONS_KEPT - self.applications);
        let mut taken = 0;
        let mut bytes = Vec::new();
        for (name, sizes) in history.applications.range((from, Bound::Unbounded)).take(most) {
            taken += 1;
            self.last = Some(name.clone());
            if name.len() > APPLICATION_LEN_MAX {
                continue;
            }
            let entry: Entry<'_, _> = (name, sizes.recorded, sizes.phases, sizes.error_log, &sizes.recent);
            // Writing to memory cannot fail.
            bytes = postcard::to_extend(&entry, bytes).unwrap_or_default();
            self.applications += 1;
        }
        self.portions.push(bytes);
        self.records = history.records;
        taken == PORTION
    }

    /// Phases that had been recorded when the last portion was taken.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The bytes, [`HISTORY_BYTES_MAX`] at most.
    pub fn finish(self) -> Vec<u8> {
        let len: usize = self.portions.iter().map(Vec::len).sum();
        let mut bytes = Vec::with_capacity(HEADER_LEN + len + CHECKSUM_LEN);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&HISTORY_FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.records.to_le_bytes());
        bytes.extend_from_slice(&(self.applications as u32).to_le_bytes());
        self.portions.iter().for_each(|portion| bytes.extend_from_slice(portion));
        let checksum = XxHash3_64::oneshot(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

impl SizeHistory {
    /// All of it as bytes.
    pub fn export(&self) -> Vec<u8> {
        let mut export = HistoryExport::default();
        while export.take(self) {}
        export.finish()
    }

    /// The history that was exported as `bytes`.
    ///
    /// # Errors
    /// Another version has made them, or they are not what was exported.
    pub fn import(bytes: &[u8]) -> Result<Self, BadHistory> {
        if bytes.len() > HISTORY_BYTES_MAX {
            return Err(BadHistory::TooLong);
        }
        let (format, rest) =
            bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_first_chunk::<4>()).ok_or(BadHistory::Foreign)?;
        match u32::from_le_bytes(*format) {
            HISTORY_FORMAT => {}
            other => return Err(BadHistory::Format(other)),
        }
        let (content, checksum) = rest.split_last_chunk::<CHECKSUM_LEN>().ok_or(BadHistory::Foreign)?;
        if u64::from_le_bytes(*checksum) != XxHash3_64::oneshot(&bytes[..bytes.len() - CHECKSUM_LEN]) {
            return Err(BadHistory::Checksum);
        }
        let (records, content) = content.split_first_chunk::<8>().ok_or(BadHistory::Foreign)?;
        let (applications, mut content) = content.split_first_chunk::<4>().ok_or(BadHistory::Foreign)?;
        let (records, applications) = (u64::from_le_bytes(*records), u32::from_le_bytes(*applications));
        if records > RECORDS_MAX {
            return Err(BadHistory::OutOfRange { at: 0, what: "the number of phases" });
        }
        let mut history = Self { records, ..Self::default() };
        let mut last: Option<&str> = None;
        for at in 0..applications {
            // No more of it than an entry has at most, so that a count of sizes that is too great takes no memory.
            let window = &content[..content.len().min(ENTRY_LEN_MAX)];
            let (entry, rest): (Entry<'_, Vec<u64>>, &[u8]) =
                postcard::take_from_bytes(window).map_err(|_| BadHistory::Malformed(at))?;
            content = &content[window.len() - rest.len()..];
            let name = entry.0;
            let sizes = Sizes::from_kept(entry, records, at)?;
            if last.is_some_and(|last| last >= name) {
                return Err(BadHistory::OutOfRange { at, what: "the order" });
            }
            last = Some(name);
            let name: Arc<str> = name.into();
            history.latest.insert((sizes.recorded, name.clone()));
            history.applications.insert(name, sizes);
            history.forget_beyond_bound();
        }
        if content.is_empty() { Ok(history) } else { Err(BadHistory::Malformed(applications)) }
    }
}

impl Sizes {
    fn from_kept(entry: Entry<'_, Vec<u64>>, records: u64, at: u32) -> Result<Self, BadHistory> {
        let (name, recorded, phases, error_log, recent) = entry;
        let check = |is_right: bool, what| if is_right { Ok(()) } else { Err(BadHistory::OutOfRange { at, what }) };
        check(name.len() <= APPLICATION_LEN_MAX, "the name")?;
        check((1..=SIZES_KEPT).contains(&recent.len()), "the number of sizes")?;
        check((recent.len() as u64..=recorded).contains(&phases), "the number of phases")?;
        check(recorded <= records, "the latest phase")?;
        check(error_log.is_none_or(|log| (0.0..=ERROR_LOG_MAX).contains(&log)), "the error")?;
        Ok(Self { recent: recent.into(), recorded, phases, error_log })
    }
}

#[cfg(test)]
mod tests;
