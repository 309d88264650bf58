//! Devices of channels, against what can be worked out by hand: what a live server has from a device whose latencies
//! overlap.

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails the test")]

use isonomia_sim::request::{Outcome, run};
use isonomia_sim::scenario::{self, parse};
use std::ops::ControlFlow;
use std::path::Path;

fn outcome(text: &str) -> Outcome {
    let points = parse(Path::new("test.toml"), text, None).unwrap().points;
    let [scenario::Point { scenario: scenario::Scenario::Request { scenario, .. }, .. }] = &points[..] else {
        panic!("one scenario at request level")
    };
    run(scenario, &mut |_| ControlFlow::Continue(()))
}

/// Jobs of so many processes that read 4 KiB each, at a device of 5 ms; requests per second of each job.
fn iops(policy: &str, device: &str, processes: &[u32]) -> Vec<f64> {
    let jobs: String = (0..)
        .zip(processes)
        .map(|(job, processes)| {
            format!("[[job]]\nname = \"{job}\"\nprocesses = {processes}\nop = \"read\"\nrequest = \"4KiB\"\n")
        })
        .collect();
    let outcome = outcome(&format!(
        "duration = \"25s\"\nmeasure_from = \"5s\"\nslowdown = false\npolicy = \"{policy}\"\n\
         [[target]]\nname = \"t\"\nlatency = \"5ms\"\nbandwidth = \"10GB/s\"\n{device}{jobs}"
    ));
    outcome.jobs.iter().map(|job| job.requests as f64 / 20.0).collect()
}

fn is_near(measured: f64, due: f64, part: f64) -> bool {
    (measured / due - 1.0).abs() < part
}

/// With one request at a time there would be 200 a second.
#[test]
fn latencies_overlap_and_the_depth_that_takes_is_found() {
    for depth in ["depth = 16\n", "depth = 256\n", "depth = \"auto\"\n", ""] {
        let [all] = iops("job-fair", depth, &[16])[..] else { panic!("one job") };
        assert!(is_near(all, 3_200.0, 0.01), "{depth}: {all}");
    }
    let [all] = iops("job-fair", "depth = 4\n", &[16])[..] else { panic!("one job") };
    assert!(is_near(all, 800.0, 0.01), "four at a time: {all}");
    let [all] = iops("job-fair", "channels = 2\ndepth = 16\n", &[16])[..] else { panic!("one job") };
    assert!(is_near(all, 400.0, 0.01), "two channels: {all}");
}

/// Where the device takes whatever comes, a policy takes nothing from anybody. Trials of half the depth take 3 %.
#[test]
fn a_device_that_is_not_saturated_gives_everybody_all_he_asks_for() {
    for policy in ["fifo", "job-fair"] {
        let served = iops(policy, "", &[1, 32]);
        assert!(is_near(served[0], 200.0, 0.05) && is_near(served[1], 6_400.0, 0.05), "{policy}: {served:?}");
    }
}

/// Eight at a time are 1,600 a second. `fifo` gives each process as much, `job-fair` the job of one process all that it
/// can use, which is one at a time; of one or two at a time, half.
#[test]
fn one_process_has_its_share_beside_thirty_two() {
    for (policy, depth, due) in [
        ("fifo", 8, 1_600.0 / 33.0),
        ("job-fair", 8, 200.0),
        ("fifo", 2, 400.0 / 33.0),
        ("job-fair", 2, 200.0),
        ("job-fair", 1, 100.0),
    ] {
        let served = iops(policy, &format!("depth = {depth}\n"), &[1, 32]);
        let rest = 200.0 * f64::from(depth) - due;
        assert!(is_near(served[0], due, 0.03) && is_near(served[1], rest, 0.03), "{policy}, {depth}: {served:?}");
    }
}

/// Two channels, 1 MiB in 1 ms. The first two have waited 5 ms together, and pass one after the other: 6 and 7 ms. The
/// third takes the channel of the first, the fourth that of the second.
#[test]
fn bytes_pass_one_request_after_the_other_and_keep_the_channel_until_then() {
    let text = |depth: u32| {
        format!(
            "duration = \"1s\"\npolicy = \"fifo\"\n[[target]]\nname = \"t\"\nlatency = \"5ms\"\nchannels = 2\n\
             bandwidth = \"1000MiB/s\"\ndepth = {depth}\n\
             [[job]]\nname = \"a\"\ncount = 4\nrequest = \"1MiB\"\nrequests = 1\n"
        )
    };
    // Whether the queue is in the server or in the device makes no difference to these.
    for depth in [2, 4] {
        let outcome = outcome(&text(depth));
        let took: Vec<u64> = outcome.jobs.iter().map(|job| job.elapsed_ns.unwrap()).collect();
        assert_eq!(took, [6_000_000, 7_000_000, 12_000_000, 13_000_000]);
        let busy = (6.0 + 7.0 + 6.0 + 6.0) / (2.0 * 13.0);
        assert!((outcome.targets[0].utilization - busy).abs() < 1e-9, "{}", outcome.targets[0].utilization);
    }
}

#[test]
fn no_more_bytes_pass_than_the_bandwidth_and_shares_are_of_what_is_charged() {
    let outcome = outcome(
        "duration = \"8s\"\nmeasure_from = \"2s\"\npolicy = \"job-fair\"\n[[target]]\nname = \"t\"\nlatency = \"1ms\"\n\
         jitter = 0.5\nbandwidth = \"500MiB/s\"\n\
         [[job]]\nname = \"large\"\nprocesses = 64\nrequest = \"1MiB\"\n\
         [[job]]\nname = \"small\"\nprocesses = 64\nrequest = \"64KiB\"\n",
    );
    let total: f64 = outcome.jobs.iter().map(|job| job.throughput_bytes_per_s).sum();
    // Jobs that share a device give up to 7 % of it for a depth at which they wait where the policy decides, and of the bytes more
    // than that: where less waits in the device, more of those who are served bring small requests.
    let all = 500.0 * f64::from(1 << 20);
    assert!((0.85 * all..=1.001 * all).contains(&total), "{total}");
    assert!(outcome.targets[0].utilization > 0.85, "{}", outcome.targets[0].utilization);
    assert!((outcome.jobs[0].share - 0.5).abs() < 0.01, "{}", outcome.jobs[0].share);
}

/// Sixteen at once, each in 1.6 ms: an operation takes 100 us of the device's time.
#[test]
fn a_device_that_was_measured_is_simulated_from_its_profile() {
    let dir = tempfile::tempdir().unwrap();
    let profile = "dir = \"/d\"\nis_direct = true\n\
                   [costs.read-random]\nper_op = 100000\nbandwidth = 1000000000000\nerror = 0.01\nparallel = 16\n";
    std::fs::write(dir.path().join("d.toml"), profile).unwrap();
    let path = dir.path().join("scenario.toml");
    let read = |target: &str| {
        let text = format!(
            "duration = \"10s\"\nmeasure_from = \"2s\"\n[[target]]\nname = \"t\"\nprofile = \"d.toml\"\n{target}\
             [[job]]\nname = \"a\"\nprocesses = 32\nop = \"read\"\nrequest = \"4KiB\"\n"
        );
        parse(&path, &text, None).map(|parsed| parsed.points)
    };
    let points = read("depth = 16\n").unwrap();
    let [scenario::Point { scenario: scenario::Scenario::Request { scenario, .. }, .. }] = &points[..] else {
        panic!("one scenario at request level")
    };
    let outcome = run(scenario, &mut |_| ControlFlow::Continue(()));
    let per_s = outcome.jobs[0].requests as f64 / 8.0;
    assert!(is_near(per_s, 10_000.0, 0.01), "{per_s}");
    for (target, named) in [("access = \"write-random\"\n", "read-random"), ("latency = \"1ms\"\n", "latency")] {
        let error = read(target).map(drop).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}
