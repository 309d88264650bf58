//! What a fluid run gives.

use isonomia_units::Nanos;
use serde::{Deserialize, Serialize};

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// When it ended.
    pub ended_ns: u64,
    /// The observer stopped it before its end.
    pub interrupted: bool,
    /// Decisions that were made, those that could change nothing left out.
    pub decisions: u64,
    /// Runs that ended.
    pub jobs_done: u64,
    /// Part of the nodes' time that jobs had nodes, 0 to 1.
    pub node_utilization: f64,
    /// I/O that was done, as the time one target needs for it.
    pub io_target_s: f64,
    /// I/O done over the time of those targets that applications in I/O phases have files on: the effective
    /// bandwidth (GIFT §4) as a part of what was asked for, 0 to 1. The same for both models of progress: a target
    /// that is done with an application counts as asked for until the application's phase ends.
    pub effective_bandwidth: f64,
    /// I/O done over the time of all targets while anybody was in an I/O phase, 0 to 1.
    pub effective_bandwidth_of_all: f64,
    /// Compute nodes times hours that jobs had, by jobs that ended.
    pub node_hours_done: f64,
    /// GIFT's coupons, under GIFT.
    pub gift: Option<GiftOutcome>,
    /// How I/O phases ended by the clock of the closed system, under a scheme that keeps one.
    #[serde(default)]
    pub closed: Option<ClosedOutcome>,
    /// In the scenario's order.
    pub applications: Vec<ApplicationOutcome>,
}

impl Outcome {
    /// Mean over the applications that ended a run of their mean time in I/O, in seconds; 0 if there is none.
    pub fn io_s(&self) -> f64 {
        self.mean(|app| app.io_s)
    }

    /// The same of their mean time from start to end.
    pub fn run_s(&self) -> f64 {
        self.mean(|app| app.run_s)
    }

    /// The same of how many times longer than alone their I/O phases took.
    pub fn io_slowdown(&self) -> f64 {
        self.mean(|app| app.io_slowdown)
    }

    /// Part of the phases that ended later than in the fair clock, 0 to 1; 0 if there is none.
    pub fn late(&self) -> f64 {
        let sum = |of: fn(&ApplicationOutcome) -> u64| self.applications.iter().map(of).sum::<u64>() as f64;
        let judged = sum(|app| app.judged_phases);
        if judged > 0.0 { sum(|app| app.late_phases) / judged } else { 0.0 }
    }

    /// Mean over the applications of how long their phases took over what they took in the fair clock.
    pub fn io_over_fair(&self) -> f64 {
        self.mean(|app| app.io_over_fair)
    }

    fn mean(&self, of: impl Fn(&ApplicationOutcome) -> f64) -> f64 {
        let values = || self.applications.iter().filter(|app| app.runs > 0).map(&of);
        let count = values().count();
        if count > 0 { values().sum::<f64>() / count as f64 } else { 0.0 }
    }
}

/// What became of GIFT's coupons, as the time of one target that they are worth, and of its regret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GiftOutcome {
    /// Issued in all.
    pub issued_target_s: f64,
    /// Redeemed with bandwidth.
    pub redeemed_target_s: f64,
    /// Compensated with node time at the end of a regret period.
    pub compensated_target_s: f64,
    /// Still owed.
    pub outstanding_target_s: f64,
    /// The node time that what is owed is worth.
    pub outstanding_node_hours: f64,
    /// Node time paid.
    pub paid_node_hours: f64,
    /// Day by day, days without a decision left out.
    pub days: Vec<GiftDay>,
}

/// I/O phases against the clock of the closed system, which tells when fair sharing would have ended them had it been so all along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedOutcome {
    /// Those that ended here and there.
    pub phases: u64,
    /// Of these, those that ended here more than a millionth of a second later.
    pub late_phases: u64,
}

/// When an application's I/O phases began and ended, one after the other; of the last only the first may be known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes {
    /// When they began.
    pub began: Vec<Nanos>,
    /// When they ended.
    pub ended: Vec<Nanos>,
}

/// One day of GIFT's accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GiftDay {
    /// From 0.
    pub day: u64,
    /// Coupons issued by its end, since the beginning.
    pub issued_target_s: f64,
    /// The most that was owed at one time.
    pub outstanding_node_hours_max: f64,
    /// Paid by its end, since the beginning.
    pub paid_node_hours: f64,
}

/// What one application had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApplicationOutcome {
    /// Its name.
    pub application: String,
    /// Its nodes.
    pub nodes: u32,
    /// Runs that ended.
    pub runs: u64,
    /// I/O phases that ended.
    pub phases: u64,
    /// Mean over the I/O phases that ended of their time, in seconds.
    pub io_phase_s: f64,
    /// Mean over the same of how many times longer than alone they took.
    pub io_slowdown: f64,
    /// The largest of these.
    pub io_slowdown_max: f64,
    /// Mean over runs that ended of their time in I/O, in seconds.
    pub io_s: f64,
    /// Mean over runs that ended of their time from start to end, in seconds.
    pub run_s: f64,
    /// Mean over runs that started of their time in the queue, in seconds.
    pub wait_s: f64,
    /// I/O phases that ended here and in the fair clock.
    #[serde(default)]
    pub judged_phases: u64,
    /// Of these, those that ended here more than a millionth of a second later.
    #[serde(default)]
    pub late_phases: u64,
    /// Mean over the same of their time over their time in the fair clock.
    #[serde(default)]
    pub io_over_fair: f64,
    /// The largest of these.
    #[serde(default)]
    pub io_over_fair_max: f64,
}
