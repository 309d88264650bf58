//! What processors leave of a fast device, against what can be worked out by hand.

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails the test")]

use isonomia_sim::request::{Outcome, run};
use isonomia_sim::scenario::{self, Scenarios, parse};
use isonomia_sim::source::SourceError;
use std::ops::ControlFlow;
use std::path::Path;

const TWO: &str = "[processors]\ncount = 2\nper_request = \"30us\"\n";
/// It takes any number of requests at once.
const FAST: &str = "latency = \"5us\"\nbandwidth = \"100GB/s\"\n";

fn parsed(processors: &str, targets: &str, jobs: &str) -> Result<Scenarios, SourceError> {
    let text = format!(
        "duration = \"1200ms\"\nmeasure_from = \"200ms\"\nslowdown = false\npolicy = \"job-fair\"\n{processors}{targets}{jobs}"
    );
    parse(Path::new("test.toml"), &text, None)
}

fn outcome(processors: &str, targets: &str, jobs: &str) -> Outcome {
    let points = parsed(processors, targets, jobs).unwrap().points;
    let [scenario::Point { scenario: scenario::Scenario::Request { scenario, .. }, .. }] = &points[..] else {
        panic!("one scenario at request level")
    };
    run(scenario, &mut |_| ControlFlow::Continue(()))
}

fn target(name: &str, server: &str, device: &str) -> String {
    format!("[[target]]\nname = \"{name}\"\nserver = \"{server}\"\ndepth = 256\n{device}")
}

fn job(name: &str, processes: u32, request: &str) -> String {
    format!("[[job]]\nname = \"{name}\"\nprocesses = {processes}\nop = \"read\"\nrequest = \"{request}\"\n")
}

/// Requests per second of a job of so many processes.
fn rate(processors: &str, targets: &str, processes: u32, request: &str) -> f64 {
    outcome(processors, targets, &job("job", processes, request)).jobs[0].requests as f64
}

#[track_caller]
fn assert_near(found: f64, due: f64) {
    assert!((found / due - 1.0).abs() < 0.01, "{found} instead of {due}");
}

/// One process waits for the processor and for the device, 35 us; many have two processors of 30 us each.
#[test]
fn requests_of_a_fast_device_are_as_many_as_the_processors_take() {
    let device = target("t", "server", FAST);
    assert_near(rate(TWO, &device, 1, "4KiB"), 1e6 / 35.0);
    assert_near(rate(TWO, &device, 2, "4KiB"), 2e6 / 35.0);
    assert_near(rate(TWO, &device, 32, "4KiB"), 2e6 / 30.0);
    assert_near(rate("[processors]\nper_request = \"30us\"\n", &device, 32, "4KiB"), 1e6 / 30.0);
    assert_near(rate("", &device, 1, "4KiB"), 1e6 / 5.0);
}

/// 5 ms for 16 processes at once are 3,200 in a second, of which each takes 30 us of a processor besides.
#[test]
fn a_slow_device_hardly_needs_them() {
    let device = target("t", "server", "latency = \"5ms\"\nbandwidth = \"100GB/s\"\n");
    assert_near(rate(TWO, &device, 16, "4KiB"), 16e6 / 5030.0);
}

/// 1 MB at 1 GB/s are a millisecond, and 30 us.
#[test]
fn bytes_are_copied() {
    let copied = format!("{TWO}bandwidth = \"1GB/s\"\n");
    assert_near(rate(&copied, &target("t", "server", FAST), 8, "1MB"), 2e6 / 1030.0);
}

/// A job of two targets has twice as much where they are of two servers.
#[test]
fn each_server_has_its_own() {
    let of_one = [target("a", "server", FAST), target("b", "server", FAST)].concat();
    let of_two = [target("a", "server", FAST), target("b", "other", FAST)].concat();
    assert_near(rate(TWO, &of_one, 64, "4KiB"), 2e6 / 30.0);
    assert_near(rate(TWO, &of_two, 64, "4KiB"), 4e6 / 30.0);
}

/// Of what the processors leave, two jobs that both ask for more have half each.
#[test]
fn what_they_leave_is_shared() {
    let jobs = [job("few", 8, "4KiB"), job("many", 32, "4KiB")].concat();
    let depth = target("t", "server", FAST).replace("256", "4");
    let outcome = outcome(TWO, &depth, &jobs);
    assert!((outcome.jobs[0].share - 0.5).abs() < 0.03, "{}", outcome.jobs[0].share);
    let all: u64 = outcome.jobs.iter().map(|job| job.requests).sum();
    assert_near(all as f64, 2e6 / 30.0);
}

#[test]
fn impossible_ones_are_refused() {
    let device = target("t", "server", FAST);
    for (text, named) in [
        ("[processors]\ncount = 0\nper_request = \"1us\"\n", "count"),
        ("[processors]\ncount = 2\n", "per_request"),
        ("[processors]\nper_request = \"1us\"\nspeed = 3\n", "speed"),
    ] {
        let error = parsed(text, &device, &job("job", 1, "4KiB")).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}
