//! What a run gives: figures per job and target, and throughput over time.

use super::{Device, Scenario};
use hdrhistogram::Histogram;
use isonomia_policy::Lateness;
use isonomia_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// Latencies are told apart to three digits.
const LATENCY_DIGITS: u8 = 3;

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// When it ended.
    pub ended_ns: u64,
    /// The observer stopped it before its end.
    pub interrupted: bool,
    /// Requests that arbiters dispatched.
    pub decisions: u64,
    /// Length of the throughput samples.
    pub slice_ns: u64,
    /// In the scenario's order.
    pub jobs: Vec<JobOutcome>,
    /// In the scenario's order.
    pub targets: Vec<TargetOutcome>,
    /// What became of GIFT's coupons, if a controller decided by it.
    #[serde(default)]
    pub coupons: Option<GiftCoupons>,
}

/// GIFT's ledger at the end of a run, over all applications. A coupon is a millionth of a target for one decision interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GiftCoupons {
    /// Issued in all.
    pub issued: u64,
    /// Redeemed with bandwidth.
    pub redeemed: u64,
    /// Compensated with node time at the end of a regret period.
    pub compensated: u64,
    /// Still owed.
    pub outstanding: u64,
    /// What is still owed, as node time.
    pub outstanding_node_s: f64,
    /// Node time that was given.
    pub paid_node_s: f64,
}

/// What one job had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// Its name.
    pub job: String,
    /// Its user.
    pub user: String,
    /// Its group.
    pub group: String,
    /// Its nodes.
    pub nodes: u32,
    /// Bytes read and written in the measured span.
    pub bytes: u64,
    /// Requests served in the measured span.
    pub requests: u64,
    /// Its part of the service of all jobs in the measured span, 0 to 1; 0 when there was none. Service is the time of lanes,
    /// and of a device of channels what requests are charged.
    pub share: f64,
    /// Bytes over the part of the measured span in which the job was there.
    pub throughput_bytes_per_s: f64,
    /// Standard deviation of the throughput over whole slices of the same part.
    pub throughput_deviation_bytes_per_s: f64,
    /// Of the requests of the measured span.
    pub latency: Latency,
    /// Requests served from beginning to end.
    pub requests_total: u64,
    /// From the job's start to its last completion, if it got through all its phases.
    pub elapsed_ns: Option<u64>,
    /// How many times longer than alone it took, or how many times fewer requests it got through.
    pub slowdown: Option<f64>,
    /// I/O phases that ended, each target's parts of them counted apart, if a fair clock ran.
    #[serde(default)]
    pub io_phases: Option<u64>,
    /// Of these, those whose last request was begun when the fair clock had served all of the phase.
    #[serde(default)]
    pub late_phases: Option<u64>,
    /// By how much on the whole, from the end in the clock to the beginning of the last request.
    #[serde(default)]
    pub late_ns: Option<u64>,
    /// Bytes in each slice.
    #[serde(skip)]
    pub slice_bytes: Vec<u64>,
    /// Service time in each slice.
    #[serde(skip)]
    pub slice_service_ns: Vec<u64>,
    /// When all streams had come to the barrier at the end of a phase, phase by phase.
    #[serde(skip)]
    pub barriers_ns: Vec<u64>,
}

/// From issue to completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Exact mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

/// What one target did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetOutcome {
    /// Its name.
    pub target: String,
    /// Requests served.
    pub requests: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Part of the time until the end in which its lanes or channels were busy, 0 to 1; where channels are without number,
    /// in which bytes passed.
    pub utilization: f64,
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub job: usize,
    pub target: usize,
    pub bytes: Bytes,
    pub issued: Nanos,
    /// What the job had of the target.
    pub service: Nanos,
    /// How long it kept a lane or a channel, or where those are without number, the bandwidth.
    pub busy: Nanos,
    pub at: Nanos,
}

pub(super) struct Measure<'a> {
    scenario: &'a Scenario,
    jobs: Vec<JobMeasure>,
    targets: Vec<(u64, u64, u64)>,
}

struct JobMeasure {
    outcome: JobOutcome,
    latency: Histogram<u64>,
    latency_sum_ns: u128,
    latency_max: Nanos,
    service_ns: u64,
    last: Nanos,
}

impl<'a> Measure<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let job = |job: &super::Job| JobMeasure {
            outcome: JobOutcome {
                job: job.info.name.to_string(),
                user: job.info.user.to_string(),
                group: job.info.group.to_string(),
                nodes: job.info.nodes,
                ..JobOutcome::default()
            },
            latency: Histogram::new(LATENCY_DIGITS).expect("a number of digits that is allowed"),
            latency_sum_ns: 0,
            latency_max: Nanos::ZERO,
            service_ns: 0,
            last: Nanos::ZERO,
        };
        Self {
            scenario,
            jobs: scenario.jobs.iter().map(job).collect(),
            targets: vec![(0, 0, 0); scenario.targets.len()],
        }
    }

    pub(super) fn complete(&mut self, done: &Completion) {
        let job = &mut self.jobs[done.job];
        let (bytes, service) = (done.bytes.0, done.service.0);
        let target = &mut self.targets[done.target];
        *target = (target.0 + 1, target.1 + bytes, target.2 + done.busy.0);
        job.outcome.requests_total += 1;
        job.last = done.at;
        // A completion on the border belongs to the slice that it ends.
        let slice = (done.at.0.saturating_sub(1) / self.scenario.slice.0) as usize;
        for (sums, value) in [(&mut job.outcome.slice_bytes, bytes), (&mut job.outcome.slice_service_ns, service)] {
            if sums.len() <= slice {
                sums.resize(slice + 1, 0);
            }
            sums[slice] += value;
        }
        if done.at > self.scenario.measure_from && done.at <= self.scenario.measure_to {
            let latency = done.at.since(done.issued);
            job.outcome.bytes += bytes;
            job.outcome.requests += 1;
            job.service_ns += service;
            // It grows with what is recorded, so that nothing is out of range.
            let _ = job.latency.record(latency.0);
            job.latency_sum_ns += u128::from(latency.0);
            job.latency_max = job.latency_max.max(latency);
        }
    }

    /// All streams of a job are at the barrier.
    pub(super) fn gather(&mut self, now: Nanos, job: usize) {
        self.jobs[job].outcome.barriers_ns.push(now.0);
    }

    /// What came of the jobs' phases at one target.
    pub(super) fn count_phases(&mut self, lateness: Vec<Lateness>) {
        for job in &mut self.jobs {
            let counts = [&mut job.outcome.io_phases, &mut job.outcome.late_phases, &mut job.outcome.late_ns];
            counts.into_iter().for_each(|count| _ = count.get_or_insert(0));
        }
        for Lateness { job, phases, late, late_by } in lateness {
            let outcome = &mut self.jobs[job.0 as usize].outcome;
            let counts = [&mut outcome.io_phases, &mut outcome.late_phases, &mut outcome.late_ns];
            counts
                .into_iter()
                .zip([phases, late, late_by.0])
                .for_each(|(count, more)| *count = count.map(|n| n + more));
        }
    }

    /// The figures of a run that ended at `ended`; `finished` says which jobs got through all their phases.
    pub(super) fn outcome(self, ended: Nanos, interrupted: bool, decisions: u64, finished: &[bool]) -> Outcome {
        let scenario = self.scenario;
        let service_total: u64 = self.jobs.iter().map(|job| job.service_ns).sum();
        let jobs = self.jobs.into_iter().zip(&scenario.jobs).zip(finished).map(|((measure, job), finished)| {
            let mut outcome = measure.outcome;
            outcome.elapsed_ns = finished.then(|| measure.last.since(job.start).0);
            let end = if *finished { measure.last } else { job.stop.min(ended) };
            let from = job.start.max(scenario.measure_from);
            let to = end.min(scenario.measure_to).max(from);
            let seconds = to.since(from).as_secs_f64();
            outcome.throughput_bytes_per_s = if seconds > 0.0 { outcome.bytes as f64 / seconds } else { 0.0 };
            outcome.throughput_deviation_bytes_per_s = deviation(&outcome.slice_bytes, scenario.slice, from, to);
            outcome.share = if service_total > 0 { measure.service_ns as f64 / service_total as f64 } else { 0.0 };
            let quantile = |q| measure.latency.value_at_quantile(q).min(measure.latency_max.0);
            if outcome.requests > 0 {
                outcome.latency = Latency {
                    mean_ns: measure.latency_sum_ns as f64 / outcome.requests as f64,
                    p50_ns: quantile(0.5),
                    p95_ns: quantile(0.95),
                    p99_ns: quantile(0.99),
                    max_ns: measure.latency_max.0,
                };
            }
            outcome
        });
        let targets = self.targets.iter().zip(&scenario.targets).map(|((requests, bytes, busy), target)| {
            let lanes = match &target.device {
                Device::Lanes(lanes) => lanes.workers,
                Device::Channels(channels) => channels.count.map_or(1, NonZeroU32::get),
            };
            let lanes_ns = ended.0 as f64 * f64::from(lanes);
            TargetOutcome {
                target: target.name.clone(),
                requests: *requests,
                bytes: *bytes,
                utilization: if lanes_ns > 0.0 { *busy as f64 / lanes_ns } else { 0.0 },
            }
        });
        Outcome {
            ended_ns: ended.0,
            interrupted,
            decisions,
            slice_ns: scenario.slice.0,
            jobs: jobs.collect(),
            targets: targets.collect(),
            coupons: None,
        }
    }
}

/// Standard deviation of the rate over the slices that lie wholly in `from..to`; 0 for fewer than two.
fn deviation(slices: &[u64], slice: Nanos, from: Nanos, to: Nanos) -> f64 {
    let first = from.0.div_ceil(slice.0) as usize;
    let last = (to.0 / slice.0) as usize;
    if last < first + 2 {
        return 0.0;
    }
    let seconds = slice.as_secs_f64();
    let rate = |at: usize| slices.get(at).copied().unwrap_or(0) as f64 / seconds;
    let count = (last - first) as f64;
    let mean = (first..last).map(rate).sum::<f64>() / count;
    ((first..last).map(|at| (rate(at) - mean).powi(2)).sum::<f64>() / count).sqrt()
}
