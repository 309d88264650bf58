//! What is known of a recurring application from its earlier I/O phases: how long the next one is likely to be.
//!
//! Most applications of a machine run again and again with phases of much the same size (GIFT, Fig. 2c). For each the
//! sizes of its latest phases are kept, and how well they were foretold. What is foretold is rather too much than too
//! little: a phase that turns out longer than was expected loses more under fair finish than one that was expected to be a
//! little longer. Nothing is expected of an application that has not ended a phase yet.
//!
//! An application is known by the name that the caller gives; who may use whose name is up to him. Sizes have any one
//! unit. What is known can be exported as bytes and imported again ([`kept`]).

mod kept;

pub use kept::{BadHistory, HISTORY_BYTES_MAX, HISTORY_FORMAT, HistoryExport};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Sizes that are kept of an application.
pub const SIZES_KEPT: usize = 32;
/// Applications that are remembered; the one that has not done I/O for longest is forgotten first.
pub const APPLICATIONS_KEPT: usize = 65_536;
/// What is foretold is this many hundredths more than the largest of the latest sizes that are no exceptions.
const MARGIN_PERCENT: u64 = 1;
/// One of so many sizes may be an exception: larger than what is foretold.
const EXCEPTION_ONE_IN: usize = 16;

/// Each class of sizes begins at so many times what the one below begins at.
pub const CLASS_FACTOR: u64 = 8;

/// What an application's next phase is expected to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// Its size.
    pub size: u64,
    /// How far expectations of this application were off, as a mean factor of at least 1; `None` before the first
    /// one could be checked.
    pub error: Option<f64>,
    /// How many sizes it is based on.
    pub sizes: usize,
}

/// An application, and what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownApplication {
    /// As the caller calls it.
    pub application: Arc<str>,
    /// When it last ended a phase: as the so manieth of all that were recorded.
    pub recorded: u64,
    /// Phases that it ended since it is remembered.
    pub phases: u64,
    /// What its next one is expected to be.
    pub expected: Expectation,
}

/// The histories of all applications.
#[derive(Clone, Debug, Default)]
pub struct SizeHistory {
    applications: BTreeMap<Arc<str>, Sizes>,
    /// The applications by when they last ended a phase.
    latest: BTreeSet<(u64, Arc<str>)>,
    records: u64,
}

#[derive(Clone, Debug, Default)]
struct Sizes {
    /// One at least, [`SIZES_KEPT`] at most.
    recent: VecDeque<u64>,
    /// Of all that were recorded, the number of the latest of these.
    recorded: u64,
    /// All that were recorded of the application since it is remembered.
    phases: u64,
    /// A running mean of the logarithms of the factors by which expectations were off.
    error_log: Option<f64>,
}

impl SizeHistory {
    /// What is expected of the next phase of `application`; `None` if nothing is known. O(log n) for n applications.
    pub fn expect(&self, application: &str) -> Option<Expectation> {
        self.applications.get(application).and_then(Sizes::expect)
    }

    /// The least size of the class, a power of [`CLASS_FACTOR`], that the next phase of `application` is expected to be in; `None` if
    /// nothing is known. O(log n).
    pub fn expect_class(&self, application: &str) -> Option<u64> {
        self.expect(application).map(|expected| CLASS_FACTOR.pow(expected.size.max(1).ilog(CLASS_FACTOR)))
    }

    /// Phases that were ever recorded: it has changed if this has.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Applications that are remembered.
    pub fn len(&self) -> usize {
        self.applications.len()
    }

    /// Nothing is known.
    pub fn is_empty(&self) -> bool {
        self.applications.is_empty()
    }

    /// Up to `most` applications that ended a phase before the phase of number `before`, the latest first. O(log n + `most`).
    pub fn latest_before(&self, before: u64, most: usize) -> Vec<KnownApplication> {
        let known = |(recorded, name): &(u64, Arc<str>)| {
            let sizes = self.applications.get(name)?;
            let (application, phases) = (name.clone(), sizes.phases);
            Some(KnownApplication { application, recorded: *recorded, phases, expected: sizes.expect()? })
        };
        self.latest.range(..(before, Arc::from(""))).rev().take(most).filter_map(known).collect()
    }

    /// A phase of `application` has ended, with this size. O(log n).
    pub fn record(&mut self, application: &str, size: u64) {
        self.records += 1;
        let (name, mut sizes) =
            self.applications.remove_entry(application).unwrap_or_else(|| (Arc::from(application), Sizes::default()));
        self.latest.remove(&(sizes.recorded, name.clone()));
        sizes.record(size, self.records);
        self.latest.insert((self.records, name.clone()));
        self.applications.insert(name, sizes);
        self.forget_beyond_bound();
    }

    fn forget_beyond_bound(&mut self) {
        if self.applications.len() > APPLICATIONS_KEPT
            && let Some((_, oldest)) = self.latest.pop_first()
        {
            self.applications.remove(&oldest);
        }
    }
}

impl Sizes {
    fn expect(&self) -> Option<Expectation> {
        let mut sizes: Vec<u64> = self.recent.iter().copied().collect();
        sizes.sort_unstable();
        let largest = *sizes.get((sizes.len() - sizes.len() / EXCEPTION_ONE_IN).checked_sub(1)?)?;
        Some(Expectation {
            size: largest.saturating_add(largest / 100 * MARGIN_PERCENT).max(1),
            error: self.error_log.map(f64::exp),
            sizes: sizes.len(),
        })
    }

    fn record(&mut self, size: u64, at: u64) {
        if let Some(expected) = self.expect() {
            let off = (expected.size as f64 / size.max(1) as f64).ln().abs();
            self.error_log = Some(self.error_log.map_or(off, |mean| mean + (off - mean) / 8.0));
        }
        if self.recent.len() == SIZES_KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(size);
        self.recorded = at;
        self.phases += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_phase_is_expected_to_be_like_the_largest_but_for_exceptions() {
        let mut history = SizeHistory::default();
        assert_eq!(history.expect("a"), None);
        [1_000, 1_200, 1_100].iter().for_each(|size| history.record("a", *size));
        let expected = history.expect("a").unwrap();
        assert_eq!((expected.size, expected.sizes), (1_212, 3));
        // 1,000 was expected to be followed by 1,010, and that by 1,212.
        assert!((1.1..1.2).contains(&expected.error.unwrap()), "{expected:?}");
        assert_eq!(history.expect("b"), None);
        (0..14).for_each(|_| history.record("a", 1_000));
        history.record("a", 90_000);
        assert_eq!(history.expect("a").unwrap().size, 1_212, "once does not count");
        (0..SIZES_KEPT).for_each(|_| history.record("a", 500));
        assert_eq!(history.expect("a").unwrap().size, 505, "what is long ago is forgotten");
    }

    #[test]
    fn applications_are_told_of_from_the_latest_on() {
        let mut history = SizeHistory::default();
        ["a", "b", "c", "a"].iter().for_each(|name| history.record(name, 100));
        let of = |known: &[KnownApplication]| {
            known.iter().map(|k| (k.application.to_string(), k.recorded, k.phases)).collect::<Vec<_>>()
        };
        let first = history.latest_before(u64::MAX, 2);
        assert_eq!(of(&first), [("a".to_owned(), 4, 2), ("c".to_owned(), 3, 1)]);
        assert_eq!(first[0].expected, history.expect("a").unwrap());
        assert_eq!(of(&history.latest_before(3, 2)), [("b".to_owned(), 2, 1)]);
        assert_eq!((history.records(), history.len(), history.is_empty()), (4, 3, false));
    }

    #[test]
    fn a_class_begins_at_a_power_of_its_factor() {
        let mut history = SizeHistory::default();
        assert_eq!(history.expect_class("a"), None);
        for (size, least) in [(0, 1), (1, 1), (7, 1), (8, 8), (60, 8), (64, 64), (u64::MAX, 1 << 63)] {
            let name = size.to_string();
            history.record(&name, size);
            assert_eq!(history.expect_class(&name), Some(least), "{size}");
        }
    }

    #[test]
    fn who_was_away_for_longest_is_forgotten_first() {
        let mut history = SizeHistory::default();
        (0..APPLICATIONS_KEPT).for_each(|at| history.record(&at.to_string(), 1));
        history.record("0", 1);
        history.record("new", 1);
        assert!(history.expect("0").is_some() && history.expect("new").is_some() && history.expect("1").is_none());
        assert_eq!((history.applications.len(), history.latest.len()), (APPLICATIONS_KEPT, APPLICATIONS_KEPT));
    }
}
