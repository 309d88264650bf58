//! Rates of rules apply over all targets of several servers, which tell each other every λ what they have use for.

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails the test")]

use isonomia_sim::request::{Outcome, Scenario, run};
use isonomia_sim::scenario::{self, parse};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::path::Path;

const MIB: f64 = (1 << 20) as f64;
/// What the rule allows in all, in MiB/s.
const RATE: f64 = 200.0;
/// Of a bucket, in MiB.
const BURST: f64 = 1.0;
const SLICE_S: f64 = 0.01;

fn read(text: &str) -> Scenario {
    let points = parse(Path::new("test.toml"), text, None).unwrap().points;
    let [scenario::Point { scenario: scenario::Scenario::Request { scenario, .. }, .. }] = &points[..] else {
        panic!("one scenario at request level")
    };
    scenario.clone()
}

fn outcome(text: &str) -> Outcome {
    run(&read(text), &mut |_| ControlFlow::Continue(()))
}

/// Servers of two targets each, every one of which could do the whole rate and more.
fn servers(count: usize, exchange: &str, duration_s: f64) -> String {
    let mut text = format!(
        "duration = \"{duration_s}s\"\nslice = \"10ms\"\nslowdown = false\n{exchange}\n\
         policy = \"tbf{{ada@user:ada=200MiB/s,burst=1MiB}}\"\n"
    );
    for server in 0..count {
        text += &format!(
            "[[target]]\nname = \"t{server}\"\ncount = 2\nserver = \"s{server}\"\nbandwidth = \"1000MiB/s\"\nper_op = \"10us\"\n"
        );
    }
    text
}

/// A job of ada's on both targets of a server.
fn job(name: &str, server: usize, processes: usize, more: &str) -> String {
    format!(
        "[[job]]\nname = \"{name}\"\nuser = \"ada\"\nprocesses = {processes}\nrequest = \"256KiB\"\n\
         targets = [\"t{server}-0\", \"t{server}-1\"]\n{more}\n"
    )
}

/// MiB of all jobs in each slice.
fn slices(outcome: &Outcome) -> Vec<f64> {
    let len = outcome.jobs.iter().map(|job| job.slice_bytes.len()).max().unwrap();
    let of = |at: usize| outcome.jobs.iter().map(|job| job.slice_bytes.get(at).copied().unwrap_or(0)).sum::<u64>();
    (0..len).map(|at| of(at) as f64 / MIB).collect()
}

fn rate(slices: &[f64]) -> f64 {
    slices.iter().sum::<f64>() / (slices.len() as f64 * SLICE_S)
}

#[test]
fn a_rate_is_that_of_the_whole_system_wherever_the_demand_is() {
    for (exchange, settles) in [("exchange = \"10ms\"", 40), ("exchange = \"50ms\"", 60), ("exchange = \"500ms\"", 250)]
    {
        for processes in [[4, 4, 4], [8, 1, 0], [0, 1, 0], [1, 2, 12]] {
            let mut text = servers(3, exchange, 8.0);
            for (server, processes) in processes.into_iter().enumerate().filter(|(_, processes)| *processes > 0) {
                text += &job(&format!("j{server}"), server, processes, "");
            }
            let outcome = outcome(&text);
            let all = slices(&outcome);
            let settled = rate(&all[settles..790]);
            // Never more; and less by what locations that are not held have to spare, which is most where the demand is least even.
            let part = settled / RATE;
            assert!((0.93..1.016).contains(&part), "{exchange} {processes:?}: {part:.3} of the rate");
            // Nothing swings: no tenth of a second has much more or less than another, of any job.
            for job in &outcome.jobs {
                let at = |at: usize| job.slice_bytes.get(at).copied().unwrap_or(0) as f64 / MIB;
                let own: Vec<f64> = (settles..790).map(at).collect();
                let mean = rate(&own);
                let parts: Vec<f64> = own.chunks_exact(50).map(rate).collect();
                let worst = parts.iter().map(|part| (part - mean).abs()).fold(0.0, f64::max);
                assert!(worst < 0.12 * mean + 4.0, "{exchange} {processes:?} {}: {worst:.1} of {mean:.1}", job.job);
            }
        }
    }
}

#[test]
fn one_stream_over_all_targets_has_the_rate() {
    for (exchange, settles) in [("10ms", 100), ("50ms", 100), ("500ms", 500)] {
        for depth in [1, 4] {
            let mut text = servers(2, &format!("exchange = \"{exchange}\""), 12.0);
            text += &format!(
                "[[job]]\nname = \"j\"\nuser = \"ada\"\ndepth = {depth}\nrequest = \"256KiB\"\nlayout = \"striped\"\n\
                 targets = [\"t0-0\", \"t0-1\", \"t1-0\", \"t1-1\"]\n"
            );
            let settled = rate(&slices(&outcome(&text))[settles..1199]);
            assert!((0.93..1.01).contains(&(settled / RATE)), "{exchange}, {depth} under way: {settled:.1} MiB/s");
        }
    }
}

#[test]
fn demand_that_moves_to_another_server_takes_the_rate_along() {
    let mut text = servers(2, "exchange = \"50ms\"", 6.0);
    text += &job("first", 0, 4, "stop = \"3s\"");
    text += &job("second", 1, 4, "start = \"3s\"");
    let all = slices(&outcome(&text));
    assert!((rate(&all[50..290]) / RATE - 1.0).abs() < 0.03, "{}", rate(&all[50..290]));
    assert!((rate(&all[325..590]) / RATE - 1.0).abs() < 0.03, "{}", rate(&all[325..590]));
}

#[test]
fn servers_that_tell_each_other_nothing_have_equal_parts() {
    let mut text = servers(2, "", 4.0);
    text += &job("j", 0, 4, "");
    let settled = rate(&slices(&outcome(&text))[50..399]);
    assert!((settled / (RATE / 2.0) - 1.0).abs() < 0.03, "{settled:.1} MiB/s");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Whatever the demand does: in any span of time no more than the rate in it and two intervals, and a burst and a request
    /// of each target.
    #[test]
    fn the_sum_is_bounded_whatever_the_demand_does(
        count in 1..4usize,
        lambda_ms in prop_oneof![Just(20u32), Just(50), Just(200)],
        jobs in proptest::collection::vec((0..4usize, 1..6usize, 0..1500u32, 100..1500u32, 0..40u32), 1..6),
    ) {
        let mut text = servers(count, &format!("exchange = \"{lambda_ms}ms\""), 3.0);
        for (at, (server, processes, start, stay, think)) in jobs.into_iter().enumerate() {
            let more = format!("start = \"{start}ms\"\nstop = \"{}ms\"\nthink = \"{think}ms\"", start + stay);
            text += &job(&format!("j{at}"), server % count, processes, &more);
        }
        let all = slices(&outcome(&text));
        let targets = 2.0 * count as f64;
        let lambda_s = f64::from(lambda_ms.max(1)) / 1e3;
        let slack = targets * (BURST + 0.25) + RATE * 2.0 * (lambda_s + SLICE_S);
        for from in 0..all.len() {
            let mut sum = 0.0;
            for (at, slice) in all[from..].iter().enumerate() {
                sum += slice;
                let allowed = RATE * (1.0 + 1.0 / 64.0) * (at + 1) as f64 * SLICE_S + slack;
                prop_assert!(sum <= allowed, "{sum:.2} MiB in {} slices from {from}, {allowed:.2} allowed", at + 1);
            }
        }
    }
}
