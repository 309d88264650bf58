//! What jobs receive when real programs' behaviour closes the loop: no request before the previous one returns.

mod simulator;

use isonomia_policy::CostModel;
use isonomia_units::{Bytes, JobInfo, Nanos, Rate};
use simulator::{Load, Outcome, Scenario, Target};

const TARGETS: [Target; 3] = [Target::Capped, Target::Parallel { jitter: 0.0 }, Target::Parallel { jitter: 0.2 }];
const SLICE: Nanos = Nanos::from_millis(100);

/// Every way to serve with one worker or two.
fn settings() -> impl Iterator<Item = (usize, Target)> {
    [1, 2].into_iter().flat_map(|workers| TARGETS.map(|target| (workers, target)))
}

fn assert_near(outcome: &Outcome, due: &[f64], tolerance: f64, what: &str) {
    let parts = outcome.parts(due.len());
    for (part, due) in parts.iter().zip(due) {
        assert!((part - due).abs() <= tolerance, "{what}: received {parts:.4?}, due {due}");
    }
}

#[test]
fn one_synchronous_process_has_its_share_against_four() {
    for (workers, target) in settings() {
        for service_us in [100, 300, 1000] {
            for think_us in [10, 50] {
                let cost = Nanos::from_micros(service_us);
                let mut loads = vec![Load::new("one", 1, cost), Load::new("four", 4, cost)];
                loads.iter_mut().for_each(|load| load.think = think_us * 800..=think_us * 1_000);
                let outcome = Scenario::new("job-fair", workers, target, loads).run();
                let what = format!("{workers} workers, {target:?}, service {service_us} us, think {think_us} us");
                assert_near(&outcome, &[0.5, 0.5], 0.005, &what);
                let floor = 2.0 / 3.0 * if target == Target::Capped { 1.0 } else { workers as f64 };
                assert!(outcome.throughput(2) >= 0.99 * floor, "{what}: {}", outcome.throughput(2));
            }
        }
    }
}

#[test]
fn four_nodes_to_one_node_are_served_four_to_one() {
    for (workers, target) in settings() {
        for (large, small) in [(4, 4), (4, 1), (8, 2)] {
            let cost = Nanos::from_micros(300);
            let mut loads = vec![Load::new("large", large, cost), Load::new("small", small, cost)];
            loads[0].info.nodes = 4;
            let parts = Scenario::new("size-fair", workers, target, loads).run().parts(2);
            let ratio = parts[0] / parts[1];
            assert!((ratio - 4.0).abs() <= 0.05, "{workers} workers, {target:?}, {large}:{small}: {ratio}");
        }
    }
}

#[test]
fn a_single_process_of_four_nodes_gets_four_to_one_of_a_capped_target() {
    for workers in [1, 2] {
        let cost = Nanos::from_micros(300);
        let mut loads = vec![Load::new("large", 1, cost), Load::new("small", 4, cost)];
        loads[0].info.nodes = 4;
        let outcome = Scenario::new("size-fair", workers, Target::Capped, loads).run();
        assert_near(&outcome, &[0.8, 0.2], 0.005, &format!("{workers} workers"));
        assert!(outcome.throughput(2) >= 0.93, "30 us lost for each 375 us of service: {}", outcome.throughput(2));
    }
}

/// The four-node job thinks for longer than a hold is worth: it gets what it can use, and the target stays busy.
#[test]
fn a_slow_process_does_not_idle_the_target_whatever_its_share() {
    for (workers, target) in settings() {
        for think_us in [400, 2_000, 15_000, 100_000] {
            let cost = Nanos::from_micros(300);
            let mut loads = vec![Load::new("large and slow", 1, cost), Load::new("small", 8, cost)];
            loads[0].info.nodes = 4;
            loads[0].think = think_us * 500..=think_us * 1_500;
            let outcome = Scenario::new("size-fair", workers, target, loads).run();
            let capacity = if target == Target::Capped { 1.0 } else { workers as f64 };
            let what = format!("{workers} workers, {target:?}, think {think_us} us");
            assert!(outcome.throughput(2) >= 0.97 * capacity, "{what}: {}", outcome.throughput(2));
            let alone = 300.0 / (300.0 + think_us as f64);
            let received = outcome.service(0, Nanos::ZERO, outcome.duration) / outcome.duration.0 as f64;
            assert!(received >= 0.45 * alone, "{what}: received {received:.4}, alone it would be {alone:.4}");
        }
    }
}

/// No job can make holds cost more than a third of the target, however it behaves.
#[test]
fn holds_take_a_third_at_most() {
    for (workers, target) in settings() {
        for service_us in [5, 20, 100] {
            let cost = Nanos::from_micros(service_us);
            let mut loads = vec![Load::new("large", 1, cost), Load::new("small", 64, cost)];
            loads[0].info.nodes = 1_000;
            loads[0].think = 150_000..=240_000;
            let outcome = Scenario::new("size-fair", workers, target, loads).run();
            let capacity = if target == Target::Capped { 1.0 } else { workers as f64 };
            let what = format!("{workers} workers, {target:?}, service {service_us} us");
            assert!(outcome.throughput(2) >= 0.66 * capacity, "{what}: {}", outcome.throughput(2));
        }
    }
}

/// ThemisIO Fig. 10: two groups, four users, eight jobs.
#[test]
fn a_composite_of_three_levels_gives_every_job_its_due() {
    let job = |user: &str, group: &str, nodes| JobInfo { nodes, ..JobInfo::new("", user, group) };
    let jobs = [
        (job("user1", "group1", 1), 1.0 / 2.0 / 3.0),
        (job("user1", "group1", 2), 1.0 / 2.0 * 2.0 / 3.0),
        (job("user2", "group2", 2), 1.0 / 6.0 * 2.0 / 7.0),
        (job("user2", "group2", 3), 1.0 / 6.0 * 3.0 / 7.0),
        (job("user2", "group2", 2), 1.0 / 6.0 * 2.0 / 7.0),
        (job("user3", "group2", 5), 1.0 / 6.0),
        (job("user4", "group2", 1), 1.0 / 6.0 / 4.0),
        (job("user4", "group2", 3), 1.0 / 6.0 * 3.0 / 4.0),
    ];
    for (workers, target) in settings() {
        let load = |(info, _): &(JobInfo, f64)| {
            let processes = info.nodes.max(2);
            Load { info: info.clone(), ..Load::new("", processes, Nanos::from_micros(200)) }
        };
        let loads = jobs.iter().map(load).collect();
        let outcome = Scenario::new("group-user-size-fair", workers, target, loads).run();
        for (part, (info, due)) in outcome.parts(8).into_iter().zip(&jobs) {
            let off = (part / due - 1.0).abs();
            assert!(off <= 0.01, "{workers} workers, {target:?}, {info:?}: received {part:.4}, due {due:.4}");
        }
    }
}

#[test]
fn jobs_of_small_and_of_large_requests_share_service() {
    let model = CostModel { per_op: Nanos::from_micros(5), bandwidth: Rate::new(1 << 30).unwrap() };
    for (workers, target) in settings() {
        let loads =
            vec![Load::new("4 KiB", 8, model.cost(Bytes::kib(4))), Load::new("1 MiB", 8, model.cost(Bytes::mib(1)))];
        let outcome = Scenario::new("job-fair", workers, target, loads).run();
        assert_near(&outcome, &[0.5, 0.5], 0.01, &format!("{workers} workers, {target:?}"));
    }
}

#[test]
fn a_lone_job_is_as_fast_as_under_fifo() {
    for (workers, target) in settings() {
        for processes in [1, 4] {
            let run = |policy| {
                let loads = vec![Load::new("alone", processes, Nanos::from_micros(100))];
                Scenario::new(policy, workers, target, loads).run().throughput(1)
            };
            let (fair, fifo) = (run("job-fair"), run("fifo"));
            assert!(fair >= 0.999 * fifo, "{workers} workers, {target:?}, {processes}: {fair} against {fifo}");
        }
    }
}

#[test]
fn a_job_that_comes_or_goes_changes_shares_within_a_tenth_of_a_second() {
    let (comes, goes) = (Nanos::from_millis(1_000), Nanos::from_millis(2_000));
    for (workers, target) in settings() {
        let cost = Nanos::from_micros(300);
        let mut loads = vec![Load::new("first", 1, cost), Load::new("second", 4, cost), Load::new("guest", 2, cost)];
        loads[2].active = comes..=goes;
        let outcome = Scenario::new("job-fair", workers, target, loads).run();
        let what = format!("{workers} workers, {target:?}");
        for (from, due) in [(comes, [1.0 / 3.0; 3]), (goes, [0.5, 0.5, 0.0])] {
            let parts = outcome.parts_between(3, from, from + SLICE);
            for (part, due) in parts.iter().zip(due) {
                assert!((part - due).abs() <= 0.015, "{what}, from {from}: {parts:.4?}, due {due:.4}");
            }
        }
    }
}

#[test]
fn throughput_is_even_over_tenths_of_a_second() {
    for (workers, target) in settings() {
        for service_us in [100, 300, 1_000] {
            let cost = Nanos::from_micros(service_us);
            let loads = vec![Load::new("one", 1, cost), Load::new("four", 4, cost)];
            let outcome = Scenario::new("job-fair", workers, target, loads).run();
            for load in 0..2 {
                let deviation = outcome.deviation(load, SLICE);
                assert!(deviation <= 0.02, "{workers} workers, {target:?}, {service_us} us: {deviation:.4}");
            }
        }
    }
}

/// A job that was alone for a long time owes nothing to one that comes, and is not made to wait for it.
#[test]
fn nobody_pays_for_service_that_nobody_else_wanted() {
    let cost = Nanos::from_millis(1);
    let mut loads = vec![Load::new("resident", 4, cost), Load::new("guest", 4, cost)];
    loads[1].active = Nanos::from_secs(2)..=Nanos::MAX;
    let outcome = Scenario::new("job-fair", 1, Target::Capped, loads).run();
    let parts = outcome.parts_between(2, Nanos::from_secs(2), Nanos::from_millis(2_050));
    assert!((parts[0] - 0.5).abs() <= 0.03, "{parts:?}");
}

/// A synchronous process keeps its part against many, by anticipation, and the target stays busy.
#[test]
fn a_synchronous_process_keeps_what_it_is_guaranteed() {
    for workers in [1, 2] {
        for policy in ["coflow{tree=size-fair}", "coflow{order=slowdown,tree=size-fair}"] {
            let cost = Nanos::from_micros(300);
            let mut loads = vec![Load::new("large", 1, cost), Load::new("small", 8, cost)];
            loads[0].info.nodes = 4;
            let outcome = Scenario::new(policy, workers, Target::Capped, loads).run();
            let parts = outcome.parts(2);
            assert!(parts[0] >= 0.8 * 0.8 - 0.005, "{policy}, {workers} workers: {parts:?}");
            assert!(outcome.throughput(2) >= 0.93, "{policy}, {workers} workers: {}", outcome.throughput(2));
        }
    }
}

/// Two synchronous processes in one set are not served alternately: the phase that began first has the target.
#[test]
fn a_synchronous_phase_has_its_set_to_itself() {
    let mut loads = vec![Load::new("first", 1, Nanos::from_millis(1)), Load::new("second", 1, Nanos::from_millis(1))];
    loads[1].active = Nanos::from_millis(60)..=Nanos::MAX;
    let outcome = Scenario::new("set10{job:*=10s}", 1, Target::Capped, loads).run();
    let parts = outcome.parts(2);
    assert!(parts[0] >= 0.95, "{parts:?}");
    assert!(outcome.throughput(2) >= 0.94, "{}", outcome.throughput(2));
}

/// A synchronous process of frequent phases against eight of rare ones: priorities 1 and 1/100.
#[test]
fn a_synchronous_process_of_a_frequent_set_has_its_priority() {
    let mut loads = vec![Load::new("frequent", 1, Nanos::from_millis(1)), Load::new("rare", 8, Nanos::from_millis(1))];
    loads[0].info.name = "frequent".into();
    let outcome = Scenario::new("set10{job:frequent=1s,job:*=100s}", 1, Target::Capped, loads).run();
    let parts = outcome.parts(2);
    assert!(parts[0] >= 0.97, "{parts:?}");
    assert!(outcome.throughput(2) >= 0.94, "{}", outcome.throughput(2));
}
