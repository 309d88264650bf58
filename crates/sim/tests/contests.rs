//! Jobs that compete for a device of which the server knows nothing, against what is due to them.
//!
//! What a job can take is bounded by its processes, each of which has one request under way at a time: one that finds a slot
//! free whenever it comes has as many requests served as it would alone. So what is due to a job is half of what both get,
//! or what it gets alone, whichever is less. From when a request ends until the next one of the same process is with the
//! device, the device has nothing to do, unless it has more requests than it serves at once; then these wait for each
//! other. So of the two, what is due and all that the device can do, a little of the one or of the other is lost.

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails the test")]

use isonomia_sim::request::{Outcome, run};
use isonomia_sim::scenario::{self, parse};
use std::ops::ControlFlow;
use std::path::Path;

const SERIAL: &str = "latency = \"1ms\"\nchannels = 1\nchannel_bandwidth = \"200MiB/s\"\n";
const CHANNELS: &str = "latency = \"2ms\"\nchannels = 4\nchannel_bandwidth = \"100MiB/s\"\n";

const SIX_CHANNELS: &str = "latency = \"2ms\"\nchannels = 6\nchannel_bandwidth = \"100MiB/s\"\n";
const FLASH: &str = "latency = \"200us\"\nchannels = 16\nchannel_bandwidth = \"200MiB/s\"\n";
const ANY_NUMBER: &str = "latency = \"5ms\"\nchannels = 0\nbandwidth = \"10GiB/s\"\n";
const LINK: &str = "latency = \"1ms\"\nchannels = 0\nbandwidth = \"500MiB/s\"\n";

/// A job: bytes of its requests, its processes, and how many requests each of these has under way.
#[derive(Clone, Copy)]
struct Load {
    request: &'static str,
    processes: u32,
    depth: u32,
    /// From the end of a request to the next one, give or take half.
    think_us: u32,
}

const fn load(request: &'static str, processes: u32, depth: u32) -> Load {
    Load { request, processes, depth, think_us: 40 }
}

/// What came of a contest.
struct Received {
    /// Requests per second of either job.
    rates: [f64; 2],
    /// The first one's part of the service.
    share: f64,
    /// What the first one gets of what is due to it.
    of_due: f64,
}

/// Between the seconds `from` and `to` after both have begun at a server that has just started.
fn contest(device: &str, (from, to): (f64, f64), loads: [Load; 2]) -> Received {
    let rate = |outcome: &Outcome, job: usize, seconds: f64| outcome.jobs[job].requests as f64 / seconds;
    let alone = rate(&compete(device, 4.0, 6.0, &loads[..1]), 0, 2.0);
    let outcome = compete(device, from, to, &loads);
    let rates = [0, 1].map(|job| rate(&outcome, job, to - from));
    let due = alone.min((rates[0] + rates[1]) / 2.0);
    Received { rates, share: outcome.jobs[0].share, of_due: rates[0] / due }
}

const ONE: Load = load("4KiB", 1, 1);

/// The device serves so many in a second if it always has enough to do.
#[track_caller]
fn assert_due(device: &str, span: (f64, f64), many: u32, most: f64) {
    let Received { rates, of_due, .. } = contest(device, span, [ONE, load("4KiB", many, 1)]);
    assert!(of_due >= 0.97, "1 : {many} has {of_due} of what is due: {rates:?}");
    let all = rates[0] + rates[1];
    assert!(all > 0.9 * most, "1 : {many}: {all} of {most}");
}

/// One at a time, in 1.02 ms.
#[test]
fn one_process_has_half_of_a_serial_device_from_the_beginning() {
    for many in [4, 32] {
        assert_due(SERIAL, (0.0, 1.0), many, 980.0);
        assert_due(SERIAL, (3.2, 6.4), many, 980.0);
    }
}

/// Channels times one in 2.04 ms. The first half second is for finding how many there are.
#[test]
fn one_process_has_a_channel_for_itself() {
    for many in [4, 32] {
        assert_due(CHANNELS, (0.5, 3.2), many, 1960.0);
        assert_due(CHANNELS, (3.2, 6.4), many, 1960.0);
    }
    assert_due(SIX_CHANNELS, (3.2, 6.4), 32, 2940.0);
}

/// A process that comes back after a fifth of what a request takes is waited for: the machine it runs on is busy.
#[test]
fn one_process_that_is_slow_to_return_has_its_slot_kept() {
    for many in [4, 32] {
        let jobs = [ONE, load("4KiB", many, 1)].map(|load| Load { think_us: 400, ..load });
        let Received { rates, of_due, .. } = contest(CHANNELS, (3.2, 6.4), jobs);
        assert!(of_due >= 0.97, "1 : {many} has {of_due} of what is due: {rates:?}");
    }
}

/// Where many are served at once, a process that can take little does not keep others from the rest.
#[test]
fn one_process_leaves_the_others_what_it_cannot_take() {
    // Alone, each of four processes would have as much as the one.
    let Received { rates, of_due, .. } = contest(FLASH, (3.2, 6.4), [ONE, load("4KiB", 4, 1)]);
    assert!(of_due >= 0.97 && rates[1] > 3.9 * rates[0], "{rates:?}");
    // 16 in 220 us. On its way a request takes a quarter of that, and as many more are in service.
    let Received { rates, of_due, .. } = contest(FLASH, (3.2, 6.4), [ONE, load("4KiB", 32, 1)]);
    assert!(of_due >= 0.8 && rates[0] + rates[1] > 0.9 * 16.0 / 220e-6, "{of_due} of what is due: {rates:?}");
    let Received { rates, of_due, .. } = contest(ANY_NUMBER, (0.5, 1.5), [ONE, load("4KiB", 32, 1)]);
    assert!(of_due >= 0.97 && rates[1] > 0.9 * 32.0 * rates[0], "{rates:?}");
}

/// Small requests and large ones divide the device's time, whatever the depth that trials find: a deeper one gives more
/// bytes to the large ones, which is no gain.
#[test]
fn small_and_large_requests_have_equal_shares_of_the_time() {
    for device in [SERIAL, CHANNELS, SIX_CHANNELS, LINK] {
        for (one, other) in [(load("4KiB", 8, 1), load("256KiB", 8, 4)), (load("4KiB", 32, 1), load("64KiB", 32, 1))] {
            let Received { share, rates, .. } = contest(device, (3.2, 6.4), [one, other]);
            assert!((share - 0.5).abs() < 0.015, "{device} {share}, {rates:?}");
        }
    }
}

fn compete(device: &str, from: f64, to: f64, loads: &[Load]) -> Outcome {
    let jobs: String = (0..)
        .zip(loads)
        .map(|(job, Load { request, processes, depth, think_us })| {
            format!(
                "[[job]]\nname = \"{job}\"\nprocesses = {processes}\ndepth = {depth}\nop = \"read\"\n\
                 request = \"{request}\"\nthink = \"{think_us}us\"\nthink_jitter = 0.5\n"
            )
        })
        .collect();
    let text = format!(
        "duration = \"{to}s\"\nmeasure_from = \"{from}s\"\nslowdown = false\npolicy = \"job-fair\"\n\
         [[target]]\nname = \"t\"\ntransit = \"60us\"\njitter = 0.02\n{device}{jobs}"
    );
    let points = parse(Path::new("test.toml"), &text, None).unwrap().points;
    let [scenario::Point { scenario: scenario::Scenario::Request { scenario, .. }, .. }] = &points[..] else {
        panic!("one scenario at request level")
    };
    run(scenario, &mut |_| ControlFlow::Continue(()))
}
