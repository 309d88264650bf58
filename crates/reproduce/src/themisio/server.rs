//! What the experiments have in common: the server, and its benchmark's clients.

use isonomia_policy::Draw;
use isonomia_sim::request::{Job, Layout, Op, Outcome, Phase, Scenario, Target};
use isonomia_units::{Bytes, JobInfo, Nanos, Rate};

/// What the paper measures of one server without competition, read and write together (§5.3.1), bytes per second.
pub const BANDWIDTH: u64 = 21_800_000_000;
/// Bytes of one request.
pub const BLOCK: Bytes = Bytes(1_000_000);
/// Client processes on a node (§5.3.1).
pub const PROCESSES_PER_NODE: u32 = 56;

/// A server of its own, called by its number.
pub fn target(server: usize, policy: &str, draw: Draw) -> Target {
    let bandwidth = Rate::new(BANDWIDTH).expect("not zero");
    let policy = policy.parse().expect("a policy");
    Target { draw, ..Target::serial(format!("server-{server}"), server, bandwidth, 0.0, policy) }
}

/// One request after the other, `requests` of them.
pub fn phase(op: Op, requests: u64) -> Phase {
    Phase::back_to_back(op, BLOCK, requests)
}

/// The benchmark: each process writes 10 MB and reads it back, again and again, between two times in seconds.
pub fn benchmark(name: &str, user: &str, group: &str, nodes: u32, from_s: u64, to_s: u64) -> Job {
    Job {
        info: JobInfo { nodes, ..JobInfo::new(name, user, group) },
        processes: nodes * PROCESSES_PER_NODE,
        depth: 1,
        targets: vec![0],
        layout: Layout::Striped,
        phases: vec![phase(Op::Write, 10), phase(Op::Read, 10)],
        iterations: None,
        start: Nanos::from_secs(from_s),
        stop: Nanos::from_secs(to_s),
    }
}

/// Jobs on one server for so many seconds, measured between two times.
pub fn on_one_server(
    policy: &str,
    draw: Draw,
    seed: u64,
    jobs: Vec<Job>,
    end_s: u64,
    measured_s: (u64, u64),
) -> Scenario {
    Scenario {
        seed,
        slice: Nanos::from_secs(1),
        measure_from: Nanos::from_secs(measured_s.0),
        measure_to: Nanos::from_secs(measured_s.1),
        ..Scenario::whole(Nanos::from_secs(end_s), vec!["server-0".to_owned()], vec![target(0, policy, draw)], jobs)
    }
}

/// Gigabytes per second in each second from `from_s` to `to_s`.
pub fn gb_per_s(outcome: &Outcome, job: usize, (from_s, to_s): (u64, u64)) -> Vec<f64> {
    let bytes = &outcome.jobs[job].slice_bytes;
    (from_s..to_s).map(|second| bytes.get(second as usize).copied().unwrap_or(0) as f64 / 1e9).collect()
}

/// The middle of the values, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        n => sorted[n / 2],
    }
}

/// Standard deviation of the values.
pub fn deviation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_deviations_by_hand() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
        assert_eq!(deviation(&[1.0, 3.0]), 1.0);
    }
}
