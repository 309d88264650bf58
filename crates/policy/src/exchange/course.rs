//! What is remembered from one exchange to the next, so that chance has no part in the parts: what targets can do, and what jobs received
//! of what was meant for them.
//!
//! **Capacity.** A target for which somebody waits is never idle of its own will, but what is counted of it in a tenth of a second is less than
//! all of it when its server was delayed for a moment. Parts that followed that would change all the time. So a target is taken to do
//! all that it can, 1, when somebody begins to wait for it, and from one window later on what it did at best of late
//! ([`HORIZON_MIN`]): of a target that is slower than it should be, this is soon what it does.
//!
//! **Correction.** Where the same jobs bid for the same targets for some time, each is known to have received, of all targets,
//! more or less than was meant for it: because a server was delayed, or a target does not do what was expected of it. A job that
//! received less by a part e of what was meant bids [`GAIN`] · e more (e is [`ERROR_MAX`] at most), one that received more, less. What was meant
//! is scaled to what all of them received, so that the errors are of the division alone.
//!
//! *That it does not swing.* What a job has of everything grows at most in proportion to what it bids. So an error that was e on the
//! average of the span looked back over changes what comes next by [`GAIN`] · e at most, in the other direction; the average of what comes next
//! over any such span is off by [`GAIN`] · e at most. However late tables are, each span's error is at most half of the largest of those before
//! it, beside what chance adds: it dies away. And chance that does not depend on the past is made greater by it by little:
//! the span is four intervals at least, or ten of the shortest, so the variance from interval to interval grows by [`GAIN`]²/4 at most,
//! while that of longer times is reduced by up to (1 + [`GAIN`])².
//!
//! Nothing is corrected across a change: as soon as another job bids, or one bids elsewhere, or other shares are due, what was received
//! before was meant for something else, and all begins anew.

use super::Identity;
use super::market::{Entry, Market};
use isonomia_units::{Nanos, ServerId};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What part of an error is corrected.
const GAIN: f64 = 0.5;
/// No error is taken to be larger than this part of what was meant.
const ERROR_MAX: f64 = 0.5;
/// Errors are averaged over so many intervals, or the window of a table if that is longer.
const AVERAGED_OVER: u64 = 4;
/// What a target can do is what it did at best in about this time, or in [`HORIZON_FOR`] intervals if that is longer.
const HORIZON_MIN: Nanos = Nanos::from_secs(1);
const HORIZON_FOR: u64 = 8;
/// A correction below this part is none: parts that do not change are not divided anew.
const NEGLIGIBLE: f64 = 1e-4;

/// Whose target it is (`None`: the server's own), and which of them.
pub(super) type Key = (Option<ServerId>, usize);

/// Of one server. It is for one [`Exchange`](super::Exchange) and one interval.
#[derive(Debug)]
pub struct Course {
    interval: Nanos,
    capacities: BTreeMap<Key, Capacity>,
    steady: Option<Steady>,
}

#[derive(Debug)]
struct Capacity {
    contended_since: Nanos,
    seen_at: Nanos,
    value: f64,
}

/// Since when nothing has changed, and what each job received since then, in targets: the mean of late.
#[derive(Debug)]
struct Steady {
    what: u64,
    since: Nanos,
    averaged_at: Nanos,
    received: BTreeMap<Identity, f64>,
}

/// The jobs of one moment, by number.
pub(super) struct Present<'a> {
    pub(super) jobs: &'a [Identity],
    pub(super) due: &'a [f64],
    pub(super) targets: &'a [Vec<Entry>],
    pub(super) keys: &'a [Key],
    /// Over which time was counted what they used.
    pub(super) window: Nanos,
}

impl Course {
    /// Nothing is known. Tables come every `interval`.
    pub fn new(interval: Nanos) -> Self {
        Self { interval, capacities: BTreeMap::new(), steady: None }
    }

    /// What each target can do, 0 to 1.
    pub(super) fn capacities(&mut self, now: Nanos, present: &Present<'_>) -> Vec<f64> {
        let horizon = HORIZON_MIN.max(Nanos(self.interval.0.saturating_mul(HORIZON_FOR)));
        let is_contended = |entries: &[Entry]| entries.iter().any(|entry| entry.is_short);
        let contended: BTreeMap<&Key, &Vec<Entry>> =
            present.keys.iter().zip(present.targets).filter(|(_, entries)| is_contended(entries)).collect();
        self.capacities.retain(|key, _| contended.contains_key(key));
        let of = |key: &Key| {
            let Some(entries) = contended.get(key) else { return 1.0 };
            let new = Capacity { contended_since: now, seen_at: now, value: 1.0 };
            let known = self.capacities.entry(*key).or_insert(new);
            if now.since(known.contended_since) > present.window {
                let did = entries.iter().map(|entry| entry.used).sum::<f64>().min(1.0);
                let weight = (now.since(known.seen_at).0 as f64 / horizon.0 as f64).min(1.0);
                known.value = did.max(known.value + (did - known.value) * weight);
            }
            known.seen_at = now;
            known.value
        };
        present.keys.iter().map(of).collect()
    }

    /// What each job bids, given its `money`: more if it received less than was meant, which the market finds with that money.
    pub(super) fn bids(
        &mut self,
        now: Nanos,
        present: &Present<'_>,
        market: &Market,
        money: &[f64],
        keep: &[f64],
    ) -> Vec<f64> {
        let mut received = vec![0.0; money.len()];
        for entry in present.targets.iter().flatten() {
            received[entry.job] += entry.used;
        }
        let what = fingerprint(present, market);
        let window = present.window.max(self.interval);
        let steady = match &mut self.steady {
            Some(steady) if steady.what == what => steady,
            _ => {
                let since = now;
                self.steady = Some(Steady { what, since, averaged_at: now, received: BTreeMap::new() });
                return money.to_vec();
            }
        };
        // What was counted before the change was not meant for this.
        if now.since(steady.since) < window + self.interval {
            return money.to_vec();
        }
        let beyond = Nanos(self.interval.0.saturating_mul(AVERAGED_OVER)).since(window);
        let weight = (now.since(steady.averaged_at).0 as f64 / (beyond.0 as f64).max(1.0)).min(1.0);
        for (job, received) in present.jobs.iter().zip(&received) {
            let mean = steady.received.entry(job.clone()).or_insert(*received);
            *mean += (received - *mean) * weight;
        }
        steady.averaged_at = now;
        let means: Vec<f64> = present.jobs.iter().map(|job| steady.received[job]).collect();
        corrected(money, &means, &market.totals(money, keep, present.targets))
    }
}

/// Who bids for what, and what is due to them.
fn fingerprint(present: &Present<'_>, market: &Market) -> u64 {
    let mut all: Vec<(&Key, &Identity)> = Vec::new();
    for ((key, entries), bidders) in present.keys.iter().zip(present.targets).zip(market.bidders()) {
        let bidding = entries.iter().zip(bidders).filter(|(_, bids)| **bids);
        all.extend(bidding.map(|(entry, _)| (key, &present.jobs[entry.job])));
    }
    // Rows come in the order of what was received.
    all.sort_unstable();
    let mut hasher = DefaultHasher::new();
    all.hash(&mut hasher);
    let due: BTreeMap<&Identity, u64> =
        present.jobs.iter().zip(present.due).map(|(job, due)| (job, due.to_bits())).collect();
    due.hash(&mut hasher);
    hasher.finish()
}

/// The money of those who bid, more or less of it by what they `received` of what was `meant`.
fn corrected(money: &[f64], received: &[f64], meant: &[f64]) -> Vec<f64> {
    let of_bidders =
        |values: &[f64]| values.iter().zip(money).filter(|(_, money)| **money > 0.0).map(|(value, _)| value).sum();
    let (all_received, all_meant): (f64, f64) = (of_bidders(received), of_bidders(meant));
    if all_received <= 0.0 || all_meant <= 0.0 {
        return money.to_vec();
    }
    let of = |((money, received), meant): ((&f64, &f64), &f64)| {
        let meant = meant * all_received / all_meant;
        if *money <= 0.0 || meant <= 0.0 {
            return *money;
        }
        let error = (1.0 - received / meant).clamp(-ERROR_MAX, ERROR_MAX);
        if (GAIN * error).abs() < NEGLIGIBLE { *money } else { money * (1.0 + GAIN * error) }
    };
    money.iter().zip(received).zip(meant).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_received_less_than_was_meant_bids_more_by_half_of_that() {
        let bids = corrected(&[0.5, 0.25, 0.25, 0.0], &[1.0, 0.4, 0.6, 0.3], &[1.0, 0.5, 0.5, 0.3]);
        let expected = [0.5, 0.25 * 1.1, 0.25 * 0.9, 0.0];
        assert!(bids.iter().zip(expected).all(|(bid, expected)| (bid - expected).abs() < 1e-12), "{bids:?}");
        // All have less because a server was delayed: nobody is to have another part for that.
        assert_eq!(corrected(&[0.5, 0.5], &[0.45, 0.45], &[0.5, 0.5]), [0.5, 0.5]);
        // A job that cannot use more is not given ever more.
        let bids = corrected(&[0.5, 0.5], &[0.01, 1.0], &[0.505, 0.505]);
        assert!(bids[0] <= 0.5 * (1.0 + GAIN * ERROR_MAX), "{bids:?}");
    }
}
