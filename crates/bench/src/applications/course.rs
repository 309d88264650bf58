//! What came of one policy in one seed, live or simulated: the I/O phases of each application, and GIFT's ledger.

use super::workload::{Application, BANDWIDTH, BLOCK, STREAMS, TARGETS};
use crate::statistics::percentile;
use serde::{Deserialize, Serialize};

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// By application: when each of its I/O phases began and ended, in nanoseconds from the common start.
    pub phases_ns: Vec<Vec<(u64, u64)>>,
    /// Under GIFT.
    pub ledger: Option<Ledger>,
    /// Of the controller, if there was one.
    pub controller: Option<ControllerCounts>,
}

/// GIFT's ledger at the end of a run, over all applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// A million are one target for one decision interval.
    pub coupons_issued: u64,
    pub coupons_redeemed: u64,
    pub coupons_compensated: u64,
    /// What is still owed, as node time.
    pub outstanding_node_s: f64,
    /// Node time that was given at the ends of regret periods.
    pub awarded_node_s: f64,
}

/// What a live controller did in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ControllerCounts {
    pub rounds: u64,
    pub decisions: u64,
    pub without_quorum: u64,
    pub failed: u64,
    /// What the last decision took.
    pub decision_ns: u64,
}

impl Course {
    /// Seconds in I/O of each application.
    pub fn io_s(&self) -> Vec<f64> {
        let sum = |phases: &Vec<(u64, u64)>| phases.iter().map(|(begin, end)| end - begin).sum::<u64>() as f64 / 1e9;
        self.phases_ns.iter().map(sum).collect()
    }

    /// How much too long nine of ten of the applications' sleeps were at most, in milliseconds: threads that this machine lets wait. A
    /// server's threads are as late, and then an emulated device is idle that has work.
    pub fn late_ms(&self, applications: &[Application]) -> f64 {
        let sleeps = applications.iter().zip(&self.phases_ns).flat_map(|(application, phases)| {
            phases.windows(2).map(|two| (two[1].0 - two[0].1).saturating_sub(application.compute_ns))
        });
        percentile(&mut sleeps.collect::<Vec<_>>(), 90).map_or(0.0, |late_ns| late_ns as f64 / 1e6)
    }

    /// I/O done over the time of those targets that applications in I/O phases have files on, 0 to 1: the effective bandwidth
    /// (GIFT §4) as a part of what was asked for.
    pub fn effective_bandwidth(&self, applications: &[Application]) -> f64 {
        let mut changes: Vec<(u64, bool, &Application)> = Vec::new();
        let mut done_ns = 0.0;
        for (application, phases) in applications.iter().zip(&self.phases_ns) {
            for (begin, end) in phases {
                changes.extend([(*begin, true, application), (*end, false, application)]);
                let bytes = application.blocks * STREAMS * BLOCK * application.targets.len() as u64;
                done_ns += bytes as f64 / BANDWIDTH as f64 * 1e9;
            }
        }
        changes.sort_by_key(|(at, begins, _)| (*at, *begins));
        let (mut users, mut before, mut asked_ns) = ([0_i32; TARGETS], 0, 0);
        for (at, begins, application) in changes {
            asked_ns += (at - before) * users.iter().filter(|count| **count > 0).count() as u64;
            before = at;
            application.targets.iter().for_each(|target| users[*target] += if begins { 1 } else { -1 });
        }
        if asked_ns > 0 { done_ns / asked_ns as f64 } else { 0.0 }
    }
}

/// By how many per cent I/O times are less than `base`'s, mean over the applications.
pub fn gain(base: &[f64], other: &[f64]) -> f64 {
    100.0 * base.iter().zip(other).map(|(base, other)| 1.0 - other / base).sum::<f64>() / base.len() as f64
}

/// How many per cent of the applications have an I/O time of more than `bound` times `base`'s.
pub fn worse(base: &[f64], other: &[f64], bound: f64) -> f64 {
    let count = base.iter().zip(other).filter(|(base, other)| **other > bound * **base).count();
    100.0 * count as f64 / base.len() as f64
}

/// How many times longer I/O takes, mean over mean.
pub fn ratio(a: &[f64], b: &[f64]) -> f64 {
    a.iter().sum::<f64>() / b.iter().sum::<f64>()
}

/// The mean of several runs, application by application.
pub fn mean(io_s: impl IntoIterator<Item = Vec<f64>>) -> Vec<f64> {
    let mut runs = 0.0;
    let mut sums: Vec<f64> = Vec::new();
    for run in io_s {
        sums.resize(run.len(), 0.0);
        sums.iter_mut().zip(run).for_each(|(sum, io_s)| *sum += io_s);
        runs += 1.0;
    }
    sums.into_iter().map(|sum| sum / runs).collect()
}

/// By how many times I/O takes longer for whom that is most.
pub fn worst(base: &[f64], other: &[f64]) -> f64 {
    base.iter().zip(other).map(|(base, other)| other / base).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::applications::workload::draw;

    #[test]
    fn targets_that_are_asked_for_count_until_the_phase_ends() {
        let mut application = draw(1, 10.0).remove(0);
        // About a second of each of two targets.
        (application.targets, application.blocks) = (vec![0, 5], BANDWIDTH / BLOCK / STREAMS);
        let other = Application { targets: vec![5], ..application.clone() };
        let course = |phases_ns| Course { phases_ns, ..Course::default() };
        let s = application.io_ns();
        let is = |found: f64, expected: f64| (found - expected).abs() < 1e-6;
        let alone = course(vec![vec![(0, s), (5 * s, 6 * s)], Vec::new()]);
        assert!(is(alone.effective_bandwidth(&[application.clone(), other.clone()]), 1.0));
        // Both take two seconds: three target seconds of the four that were asked for.
        let both = course(vec![vec![(0, 2 * s)], vec![(0, 2 * s)]]);
        assert!(is(both.effective_bandwidth(&[application, other]), 0.75));
        assert!(both.io_s().iter().all(|io_s| is(*io_s, 2.0 * s as f64 / 1e9)));
    }

    #[test]
    fn applications_are_compared_one_by_one() {
        let (base, other) = ([1.0, 2.0, 4.0, 8.0], [0.5, 2.0, 4.1, 8.8]);
        assert!((gain(&base, &other) - 100.0 * (0.5 - 0.025 - 0.1) / 4.0).abs() < 1e-9);
        assert_eq!((worse(&base, &other, 1.05), worse(&base, &other, 1.01)), (25.0, 50.0));
        assert_eq!((worst(&base, &other), ratio(&[1.0, 3.0], &[3.0, 5.0])), (1.1, 0.5));
        assert_eq!(mean([vec![1.0, 2.0], vec![3.0, 4.0]]), [2.0, 3.0]);
    }

    #[test]
    fn nine_of_ten_sleeps_tell_how_late_threads_are() {
        let application = draw(1, 10.0).remove(0);
        let mut at = 0;
        let phase = |late_us: u64| {
            let begin = at + application.compute_ns + late_us * 1_000;
            at = begin + 5;
            (begin, at)
        };
        let phases_ns = vec![[0, 10, 20, 30, 40, 50, 60, 70, 80, 700, 9_000].map(phase).to_vec()];
        let course = Course { phases_ns, ..Course::default() };
        assert_eq!(course.late_ms(std::slice::from_ref(&application)), 0.7);
    }
}
