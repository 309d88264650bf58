//! `exclusive` in scenarios: the targets of a server are one I/O node.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use isonomia_sim::request::{Job, Layout, Op, Phase, Scenario, Target, run};
use isonomia_units::{Bytes, JobInfo, Nanos, Rate};
use std::ops::ControlFlow;

const MIB: u64 = 1 << 20;

/// How long two jobs take that each write 100 MiB to both targets of a server at once, at 100 MiB/s each.
fn elapsed_s(policy: &str) -> Vec<f64> {
    let bandwidth = Rate::new(100 * MIB).unwrap();
    let target = |number| Target::serial(format!("target-{number}"), 0, bandwidth, 0.0, policy.parse().unwrap());
    let job = |name: &str, start: Nanos| Job {
        info: JobInfo::new(name, "u", "g"),
        processes: 4,
        depth: 1,
        targets: vec![0, 1],
        layout: Layout::FilePerProcess,
        phases: vec![Phase { barrier: true, ..Phase::back_to_back(Op::Write, Bytes(MIB), 50) }],
        iterations: Some(1),
        start,
        stop: Nanos::MAX,
    };
    let jobs = vec![job("first", Nanos::ZERO), job("second", Nanos::from_millis(1))];
    let scenario =
        Scenario::whole(Nanos::from_secs(100), vec!["server".to_owned()], (0..2).map(target).collect(), jobs);
    let outcome = run(&scenario, &mut |_| ControlFlow::Continue(()));
    outcome.jobs.iter().map(|job| job.elapsed_ns.unwrap() as f64 / 1e9).collect()
}

#[test]
fn one_job_follows_the_other_on_all_targets_and_loses_a_gap() {
    let near = |time: f64, expected: f64| (time / expected - 1.0).abs() < 0.02;
    let shared = elapsed_s("job-fair");
    assert!(near(shared[0], 2.0) && near(shared[1], 2.0), "{shared:?}");
    let exclusive = elapsed_s("exclusive{gap=100ms}");
    assert!(near(exclusive[0], 1.0) && near(exclusive[1], 2.1), "{exclusive:?}");
}
