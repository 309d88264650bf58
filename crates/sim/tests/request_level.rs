//! Runs at request level against what can be worked out by hand, and against themselves.

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails the test")]

use isonomia_sim::request::{Outcome, Scenario, run};
use isonomia_sim::scenario::{self, parse};
use isonomia_units::Nanos;
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::path::Path;

/// 1 MiB takes 1 ms to within a nanosecond, and an operation 100 us.
const DEVICE: &str = "bandwidth = \"1000MiB/s\"\nper_op = \"100us\"\n";
const SERVICE: Nanos = Nanos(1_100_000);

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

#[test]
fn one_process_alone_takes_service_and_think_time_for_each_request() {
    let text = format!(
        "duration = \"10s\"\n[[target]]\nname = \"t\"\n{DEVICE}\
         [[job]]\nname = \"a\"\nrequest = \"1MiB\"\nrequests = 100\nthink = \"900us\"\n"
    );
    let outcome = outcome(&text);
    let job = &outcome.jobs[0];
    assert_eq!((job.requests_total, outcome.decisions), (100, 100));
    assert_eq!(job.elapsed_ns, Some(100 * SERVICE.0 + 99 * 900_000));
    assert_eq!((job.latency.mean_ns, job.latency.max_ns), (SERVICE.0 as f64, SERVICE.0));
    assert_eq!((job.latency.p50_ns, job.latency.p99_ns), (SERVICE.0, SERVICE.0));
    assert!((outcome.targets[0].utilization - 100.0 * 1.1 / 199.1).abs() < 1e-9);
}

/// A closed queue of n processes that do not think: each waits for the n - 1 others.
#[test]
fn processes_that_do_not_think_wait_for_all_others() {
    for (workers, processes) in [(1u64, 1u64), (1, 5), (2, 6), (4, 4)] {
        // The lanes share the bandwidth: a service takes its bytes that much longer.
        let service = 100_000 + workers * 1_000_000;
        let text = format!(
            "duration = \"60s\"\npolicy = \"fifo\"\n[[target]]\nname = \"t\"\nworkers = {workers}\n{DEVICE}\
             [[job]]\nname = \"a\"\nrequest = \"1MiB\"\nprocesses = {processes}\nrequests = 50\n"
        );
        let outcome = outcome(&text);
        let rounds = 50 * processes / workers;
        assert_eq!(outcome.jobs[0].elapsed_ns, Some(rounds * service), "{workers} workers, {processes} processes");
        assert_eq!(outcome.jobs[0].latency.max_ns, processes / workers * service);
    }
}

/// Two jobs with one request each, by hand: the first is served at once, the second waits for it.
#[test]
fn two_requests_at_one_moment_are_served_one_after_the_other() {
    let job = |name: &str| format!("[[job]]\nname = \"{name}\"\nrequest = \"1MiB\"\nrequests = 1\n");
    let text = format!(
        "duration = \"1s\"\nslice = \"1ms\"\n[[target]]\nname = \"t\"\n{DEVICE}{}{}",
        job("first"),
        job("second")
    );
    let outcome = outcome(&text);
    assert_eq!(outcome.jobs[0].elapsed_ns, Some(1_100_000));
    assert_eq!(outcome.jobs[1].elapsed_ns, Some(2_200_000));
    assert_eq!(outcome.jobs[0].slice_bytes, [0, 1 << 20]);
    assert_eq!(outcome.jobs[1].slice_bytes, [0, 0, 1 << 20]);
    assert_eq!(outcome.ended_ns, 2_200_000);
}

#[test]
fn a_barrier_stops_the_fast_until_the_slow_are_there() {
    // Two targets, the second twice as slow; file per process, so one process on each.
    let text = "duration = \"60s\"\n\
        [[target]]\nname = \"fast\"\nbandwidth = \"1000MiB/s\"\n[[target]]\nname = \"slow\"\nbandwidth = \"500MiB/s\"\n\
        [[job]]\nname = \"a\"\nprocesses = 2\nlayout = \"file-per-process\"\niterations = 3\n\
        [[job.phase]]\ncompute = \"10ms\"\nrequest = \"1MiB\"\nrequests = 5\nbarrier = true\n";
    let with = outcome(text);
    assert_eq!(with.jobs[0].elapsed_ns, Some(3 * (10_000_000 + 5 * 2_000_000)));
    assert_eq!(with.targets[0].requests, 15);
    let without = outcome(&text.replace("barrier = true", "barrier = false"));
    assert_eq!(without.jobs[0].elapsed_ns, with.jobs[0].elapsed_ns, "the slow process sets the end");
    assert!(without.jobs[0].latency.max_ns == 2_000_000);
}

#[test]
fn shares_follow_the_policy_and_not_the_number_of_processes() {
    for (policy, due) in [("fifo", 1.0 / 3.0), ("job-fair", 0.5), ("size-fair", 0.8)] {
        let text = format!(
            "duration = \"4s\"\nmeasure_from = \"500ms\"\npolicy = \"{policy}\"\n[[target]]\nname = \"t\"\n{DEVICE}\
             [[job]]\nname = \"large\"\nnodes = 4\nrequest = \"256KiB\"\nthink = \"20us\"\nprocesses = 2\n\
             [[job]]\nname = \"small\"\nrequest = \"256KiB\"\nthink = \"20us\"\nprocesses = 4\n"
        );
        let outcome = outcome(&text);
        assert!((outcome.jobs[0].share - due).abs() < 0.005, "{policy}: {}", outcome.jobs[0].share);
        assert!((outcome.jobs[0].share + outcome.jobs[1].share - 1.0).abs() < 1e-12);
    }
}

/// A job held to 300 MiB/s of 1000, whatever its processes ask for, on one lane and on four.
#[test]
fn a_rate_in_bytes_is_one_of_the_device() {
    for workers in [1, 4] {
        let text = format!(
            "duration = \"4s\"\nmeasure_from = \"1s\"\npolicy = \"mclock{{job:held=limit:300MiB/s}}\"\n\
             [[target]]\nname = \"t\"\nbandwidth = \"1000MiB/s\"\nworkers = {workers}\n\
             [[job]]\nname = \"held\"\nrequest = \"1MiB\"\nprocesses = 8\n"
        );
        let rate = outcome(&text).jobs[0].throughput_bytes_per_s / f64::from(1 << 20);
        assert!((rate - 300.0).abs() < 6.0, "{workers} lanes: {rate} MiB/s");
    }
}

/// ThemisIO §5.6: files apart on two servers, sizes 16:8:8. Without an exchange the large job has 2/3 of both.
#[test]
fn an_exchange_of_job_tables_gives_global_shares() {
    let text = |exchange: &str| {
        format!(
            "duration = \"3s\"\nmeasure_from = \"1s\"\npolicy = \"size-fair\"\n{exchange}\n\
             [[target]]\nname = \"t0\"\nserver = \"s0\"\n{DEVICE}[[target]]\nname = \"t1\"\nserver = \"s1\"\n{DEVICE}\
             [[job]]\nname = \"a\"\nnodes = 16\nprocesses = 16\nrequest = \"1MiB\"\n\
             [[job]]\nname = \"b\"\nnodes = 8\nprocesses = 8\nrequest = \"1MiB\"\ntargets = [\"t0\"]\n\
             [[job]]\nname = \"c\"\nnodes = 8\nprocesses = 8\nrequest = \"1MiB\"\ntargets = [\"t1\"]\n"
        )
    };
    for (exchange, due) in [("", [2.0 / 3.0, 1.0 / 6.0, 1.0 / 6.0]), ("exchange = \"200ms\"", [0.5, 0.25, 0.25])] {
        let outcome = outcome(&text(exchange));
        for (job, due) in outcome.jobs.iter().zip(due) {
            assert!((job.share - due).abs() < 0.01, "{exchange}: {} has {}, due {due}", job.job, job.share);
        }
    }
}

/// `a` is on both targets and has t0 to itself; `b` comes to t1 after 50 ms. A target that ranks by what it sees gives
/// both alternately until they received 32, 64, 128, … ms: `b` waits for `a` twice, until 192 and until 384 ms. With one
/// order, `a` is as far as it is on t0, and `b` only waits while both count as equal: from 114 to 128, and from 192 to
/// 256 ms.
#[test]
fn an_exchange_of_progress_gives_one_order_on_all_targets() {
    let text = |exchange: &str| {
        format!(
            "duration = \"10s\"\npolicy = \"coflow{{guarantee=0.000001,order=attained}}\"\nslowdown = false\n{exchange}\n\
             [[target]]\nname = \"t\"\ncount = 2\n{DEVICE}\
             [[job]]\nname = \"a\"\nprocesses = 2\ndepth = 2\nlayout = \"file-per-process\"\nrequest = \"1MiB\"\nrequests = 200\n\
             [[job]]\nname = \"b\"\nstart = \"50ms\"\ntargets = [\"t-1\"]\ndepth = 2\nrequest = \"1MiB\"\nrequests = 91\n"
        )
    };
    for (exchange, due_ms) in [("", 406.0), ("exchange = \"1ms\"", 278.0)] {
        let took_ms = outcome(&text(exchange)).jobs[1].elapsed_ns.unwrap() as f64 / 1e6;
        assert!((took_ms - due_ms).abs() < 15.0, "{exchange}: b took {took_ms} ms, {due_ms} by hand");
    }
}

/// GIFT Fig. 6, first decision: A at one target, B there and at another. A is throttled by 0.3 of its half of the first, and B gets
/// that, of which the ledger has the coupons.
#[test]
fn a_controller_decides_over_all_targets_and_keeps_the_ledger() {
    let text = |policy: &str| {
        format!(
            "duration = \"19s\"\nmeasure_from = \"10100ms\"\npolicy = \"{policy}\"\nslowdown = false\n\
             [[target]]\nname = \"t0\"\nserver = \"s0\"\n{DEVICE}[[target]]\nname = \"t1\"\nserver = \"s1\"\n{DEVICE}\
             [[job]]\nname = \"A\"\ntargets = [\"t0\"]\nprocesses = 4\nrequest = \"1MiB\"\n\
             [[job]]\nname = \"B\"\nlayout = \"file-per-process\"\nprocesses = 8\nrequest = \"1MiB\"\n"
        )
    };
    for (policy, due, issued) in [("pofs", 0.25, None), ("gift{throttle=0.3}", 0.35 / 2.0, Some(150_000))] {
        let outcome = outcome(&text(policy));
        let share = outcome.jobs[0].share;
        assert!((share - due).abs() < 0.002, "{policy}: A has {share}, due {due}");
        assert_eq!(outcome.coupons.map(|coupons| coupons.issued), issued, "{policy}");
    }
}

/// As above, but A does little, one request after the other with pauses: that it is given less than its half would cost it nothing, and so
/// it gets no coupons.
#[test]
fn who_does_little_is_owed_nothing() {
    let text = |think: &str| {
        format!(
            "duration = \"19s\"\npolicy = \"gift{{throttle=0.3}}\"\nslowdown = false\n\
             [[target]]\nname = \"t0\"\nserver = \"s0\"\n{DEVICE}[[target]]\nname = \"t1\"\nserver = \"s1\"\n{DEVICE}\
             [[job]]\nname = \"A\"\ntargets = [\"t0\"]\nrequest = \"64KiB\"\n{think}\
             [[job]]\nname = \"B\"\nlayout = \"file-per-process\"\nprocesses = 8\nrequest = \"1MiB\"\n"
        )
    };
    let issued = |think: &str| outcome(&text(think)).coupons.unwrap().issued;
    assert_eq!([issued(""), issued("think = \"100ms\"\n")], [150_000, 0]);
}

/// As in [`an_exchange_of_progress_gives_one_order_on_all_targets`], but looked at every 50 ms, and decided every 100 ms.
#[test]
fn a_controller_gives_coflow_one_order_on_all_targets() {
    let text = |decide: &str| {
        format!(
            "duration = \"10s\"\npolicy = \"coflow{{guarantee=0.000001,order=attained}}\"\nslowdown = false\n{decide}\n\
             [[target]]\nname = \"t\"\ncount = 2\n{DEVICE}\
             [[job]]\nname = \"a\"\nprocesses = 2\ndepth = 2\nlayout = \"file-per-process\"\nrequest = \"1MiB\"\nrequests = 2000\n\
             [[job]]\nname = \"b\"\nstart = \"500ms\"\ntargets = [\"t-1\"]\ndepth = 2\nrequest = \"1MiB\"\nrequests = 910\n"
        )
    };
    let [alone, decided] = ["", "decide = \"100ms\""].map(|decide| outcome(&text(decide)).jobs[1].elapsed_ns.unwrap());
    assert!(decided < alone * 4 / 5, "b took {decided} ns with one order, {alone} ns with one for each target");
}

#[test]
fn a_decision_needs_a_policy_that_is_decided() {
    let error = |head: &str| {
        let text = format!(
            "duration = \"1s\"\n{head}\n[[target]]\nname = \"t\"\n{DEVICE}[[job]]\nname = \"a\"\nrequest = \"4KiB\"\n"
        );
        parse(Path::new("test.toml"), &text, None).unwrap_err().to_string()
    };
    assert!(error("policy = \"job-fair\"\ndecide = \"1s\"").contains("such as gift or coflow"));
    assert!(error("policy = \"gift\"\ndecide = \"1ms\"").contains("allowed: 100ms to 600s"));
    assert!(error("policy = \"coflow\"\ndecide = \"1s\"\nexchange = \"1s\"").contains("allowed: one of them"));
}

#[test]
fn the_observer_can_break_off_and_what_was_done_is_kept() {
    let text =
        format!("duration = \"1000s\"\n[[target]]\nname = \"t\"\n{DEVICE}[[job]]\nname = \"a\"\nrequest = \"4KiB\"\n");
    let outcome = run(&read(&text), &mut |_| ControlFlow::Break(()));
    assert!(outcome.interrupted && outcome.jobs[0].requests_total > 10_000);
}

fn mixed(seed: u64, policy: &str, draw: &str) -> String {
    format!(
        "seed = {seed}\nduration = \"500ms\"\npolicy = \"{policy}\"\ndraw = \"{draw}\"\n\
         [[target]]\nname = \"t\"\ncount = 3\nworkers = 2\njitter = 0.2\n{DEVICE}\
         [[job]]\nname = \"a\"\ncount = 3\nprocesses = 4\ndepth = 2\nrequest = \"64KiB\"\nthink = \"50us\"\n\
         think_jitter = 0.5\n[[job]]\nname = \"b\"\nprocesses = 3\nnodes = 4\n\
         [[job.phase]]\nrequest = \"1MiB\"\nrequests = 7\nbarrier = true\n[[job.phase]]\nop = \"metadata\"\nrequests = 9\n"
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_same_seed_gives_the_same_run_and_nothing_is_lost(
        seed in 0u64..1000,
        policy in prop::sample::select(vec!["fifo", "job-fair", "size-fair", "user-then-size-fair"]),
        draw in prop::sample::select(vec!["virtual-time", "lottery"]),
    ) {
        let text = mixed(seed, policy, draw);
        let (first, again) = (outcome(&text), outcome(&text));
        prop_assert_eq!(&first, &again);
        let served: u64 = first.jobs.iter().map(|job| job.requests_total).sum();
        prop_assert_eq!(served, first.targets.iter().map(|target| target.requests).sum::<u64>());
        prop_assert!(served <= first.decisions && first.decisions <= served + 6, "at most a request a lane in service");
        let moved: u64 = first.jobs.iter().flat_map(|job| &job.slice_bytes).sum();
        prop_assert_eq!(moved, first.targets.iter().map(|target| target.bytes).sum::<u64>());
        prop_assert!(first.targets.iter().all(|target| target.utilization <= 1.0 + 1e-9));
        let b = &first.jobs[3];
        prop_assert_eq!(b.requests_total, 3 * (7 + 9));
    }
}

#[test]
fn another_seed_gives_another_run() {
    assert_ne!(outcome(&mixed(1, "job-fair", "lottery")), outcome(&mixed(2, "job-fair", "lottery")));
}

/// A job of 40 requests has the disk when one of 10 comes: in the order of arrival the second is late, and shared fairly or served first it
/// is not. The clock tells the same of every policy.
#[test]
fn lateness_is_told_of_every_policy() {
    let of = |policy: &str, fair_clock: bool| {
        outcome(&format!(
            "duration = \"10s\"\npolicy = \"{policy}\"\nfair_clock = {fair_clock}\n\
             [[target]]\nname = \"disk\"\nbandwidth = \"1GiB/s\"\n\
             [[job]]\nname = \"large\"\ndepth = 40\n[[job.phase]]\nrequest = \"1MiB\"\nrequests = 1\n\
             [[job]]\nname = \"small\"\nstart = \"1ms\"\ndepth = 10\n[[job.phase]]\nrequest = \"1MiB\"\nrequests = 1\n"
        ))
    };
    let late = |policy: &str| {
        let outcome = of(policy, true);
        outcome.jobs.iter().map(|job| (job.io_phases.unwrap(), job.late_phases.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(late("fifo"), [(1, 0), (1, 1)]);
    for policy in ["job-fair", "fair-finish", "coflow{guarantee=1}"] {
        assert_eq!(late(policy), [(1, 0), (1, 0)], "{policy}");
    }
    // In the clock the second is done when 20 requests or so were begun, in reality it begins its last one as the 50th.
    let millis = of("fifo", true).jobs[1].late_ns.unwrap() / 1_000_000;
    assert!((25..=32).contains(&millis), "{millis}");
    let (with, without) = (of("fifo", true), of("fifo", false));
    assert_eq!((with.decisions, with.ended_ns), (without.decisions, without.ended_ns));
    assert_eq!(without.jobs[1].io_phases, None);
}
