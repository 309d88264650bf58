//! Fluid runs against what can be worked out by hand, and against what must always hold.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_allocation::{
    AdapTbfConfig, Allocation, Coflow, FairFinish, GiftConfig, Order, Priority, Problem, Progress, Rule,
    Strategy as Choice, Targets, pofs,
};
use isonomia_sim::fluid::population::Population;
use isonomia_sim::fluid::{
    Application, Clock, Decide, Decisions, Outcome, Phase, Run, Scenario, SchemeError, SchemeSpec, Sizes, run, run_with,
};
use isonomia_units::{Nanos, Rate};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::sync::Arc;

const POFS: SchemeSpec = SchemeSpec::Pofs(Progress::MinRate);

fn one_by_one(guarantee: f64, sizes: Sizes) -> SchemeSpec {
    SchemeSpec::FairFinish { guarantee, sizes, clock: Clock::Open }
}

fn s(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

/// An application of one run and one phase.
fn app(name: &str, nodes: u32, submit: u64, targets: &[u16], compute: u64, io: u64) -> Application {
    let phases = vec![Phase { compute: s(compute), io: s(io) }];
    let run = Run { submit: s(submit), targets: targets.to_vec(), phases };
    Application { name: name.into(), nodes, weight: 1.0, runs: vec![run] }
}

fn scenario(scheme: SchemeSpec, decisions: Decisions, applications: Vec<Application>) -> Scenario {
    Scenario {
        duration: s(1_000_000),
        interval: s(10),
        decisions,
        scheme,
        targets: 8,
        bandwidth: Rate::new(102_000_000).unwrap(),
        nodes: 10,
        estimate: 1.0,
        misprediction: 1.0,
        applications: applications.into(),
    }
}

fn outcome(scenario: &Scenario) -> Outcome {
    run(scenario, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Time in I/O of each application.
fn io_s(scheme: SchemeSpec, applications: Vec<Application>) -> Vec<f64> {
    let outcome = outcome(&scenario(scheme, Decisions::Event, applications));
    outcome.applications.iter().map(|app| app.io_s).collect()
}

fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6);
    assert!(near, "{found:?}, expected {expected:?}");
}

#[test]
fn a_phase_waits_for_a_decision_and_then_takes_its_volume() {
    let mut alone = app("a", 4, 3, &[0, 5], 25, 7);
    alone.runs[0].phases.push(Phase { compute: s(25), io: s(7) });
    // Begins at 3 + 25, is decided at 30, ends at 37; begins at 62, is decided at 70, ends at 77.
    let by_interval = outcome(&scenario(POFS, Decisions::Interval, vec![alone.clone()]));
    assert_near(&[by_interval.applications[0].io_s, by_interval.applications[0].run_s], &[9.0 + 15.0, 74.0]);
    assert_eq!((by_interval.ended_ns, by_interval.jobs_done), (s(80).0, 1), "the last decision finds nothing");
    assert_near(&[by_interval.io_target_s], &[28.0]);
    let by_event = outcome(&scenario(POFS, Decisions::Event, vec![alone]));
    assert_near(&[by_event.applications[0].io_s, by_event.applications[0].run_s], &[14.0, 64.0]);
    assert_near(&[by_event.effective_bandwidth, by_event.effective_bandwidth_of_all], &[1.0, 0.25]);
    assert_near(&[by_event.node_utilization], &[4.0 * 64.0 / (10.0 * 67.0)]);
}

#[test]
fn equal_shares_of_one_target_take_as_many_times_longer() {
    for n in 1..=5u64 {
        let applications = (0..n).map(|at| app(&format!("a{at}"), 1, 0, &[3], 10, 20)).collect();
        assert_near(&io_s(POFS, applications), &vec![20.0 * n as f64; n as usize]);
    }
    // The one with less is done at 2 * 10; then the other has the target alone for the 10 that are left.
    assert_near(&io_s(POFS, vec![app("a", 1, 0, &[0], 0, 10), app("b", 1, 0, &[0], 0, 20)]), &[20.0, 30.0]);
    let mut heavy = vec![app("a", 1, 0, &[0], 0, 10), app("b", 1, 0, &[0], 0, 20)];
    heavy[1].weight = 3.0;
    assert_near(&io_s(POFS, heavy), &[30.0, 80.0 / 3.0]);
}

/// b shares its first target with a; on its second it is ahead, until c comes there.
#[test]
fn banked_progress_leaves_a_target_sooner() {
    let applications =
        || vec![app("a", 1, 0, &[0], 0, 10), app("b", 1, 0, &[0, 1], 0, 10), app("c", 1, 10, &[1], 0, 10)];
    assert_near(&io_s(POFS, applications()), &[20.0, 20.0, 15.0]);
    assert_near(&io_s(SchemeSpec::Pofs(Progress::Banked), applications()), &[20.0, 20.0, 10.0]);
}

#[test]
fn an_order_without_a_guarantee_serves_one_after_the_other() {
    let coflow = |guarantee| SchemeSpec::Coflow(Coflow::new(guarantee, Order::Bottleneck).unwrap());
    let applications = || vec![app("a", 1, 0, &[0], 0, 20), app("b", 1, 0, &[0], 0, 10)];
    assert_near(&io_s(coflow(0.0), applications()), &[30.0, 10.0]);
    // b has 3/4 of the target: 10 / 0.75; a then has 20 - 10 / 3 left.
    assert_near(&io_s(coflow(0.5), applications()), &[30.0, 40.0 / 3.0]);
    assert_near(&io_s(coflow(1.0), applications()), &[30.0, 20.0]);
}

fn adaptbf(priority: Priority) -> SchemeSpec {
    SchemeSpec::AdapTbf(AdapTbfConfig { priority, ..AdapTbfConfig::default() })
}

fn calciom(strategy: Choice) -> SchemeSpec {
    SchemeSpec::Calciom { strategy, progress: Progress::MinRate }
}

/// CALCioM's Δ-graphs (IPDPS 2014, §II-C and Fig. 10): A needs 20 s, B comes `dt` later and needs 5 s.
#[test]
fn who_comes_second_waits_interrupts_or_interferes() {
    let of = |strategy, dt| io_s(calciom(strategy), vec![app("a", 1, 0, &[0], 0, 20), app("b", 1, dt, &[0], 0, 5)]);
    for dt in [0, 1, 6, 14] {
        assert_near(&of(Choice::Serialize, dt), &[20.0, 25.0 - dt as f64]);
        assert_near(&of(Choice::Interfere, dt), &[25.0, 10.0]);
    }
    for dt in [1, 6, 14, 19] {
        assert_near(&of(Choice::Interrupt, dt), &[25.0, 5.0]);
    }
    // A is interrupted while B needs less than what is left of A: before 15 s.
    assert_near(&of(Choice::Dynamic, 14), &[25.0, 5.0]);
    assert_near(&of(Choice::Dynamic, 15), &[20.0, 10.0]);
    let mut large = vec![app("a", 5, 0, &[0], 0, 20), app("b", 1, 6, &[0], 0, 5)];
    assert_near(&io_s(calciom(Choice::Dynamic), large.clone()), &[20.0, 19.0]);
    large[1].nodes = 2;
    assert_near(&io_s(calciom(Choice::Dynamic), large), &[25.0, 5.0]);
}

/// Two applications of 3 and 1 nodes have three quarters and one; where a third has a part of one target only, what it cannot use of
/// the other is lent.
#[test]
fn tokens_follow_nodes_and_are_lent() {
    assert_near(
        &io_s(adaptbf(Priority::Weight), vec![app("a", 3, 0, &[0], 0, 15), app("b", 1, 0, &[0], 0, 5)]),
        &[20.0, 10.0],
    );
    assert_near(
        &io_s(adaptbf(Priority::Nodes), vec![app("a", 3, 0, &[0], 0, 15), app("b", 1, 0, &[0], 0, 5)]),
        &[20.0, 20.0],
    );
    let applications = || {
        vec![
            app("a", 1, 0, &[0], 0, 30),
            app("b", 1, 0, &[0], 0, 30),
            app("c", 1, 0, &[0, 1], 0, 30),
            app("d", 1, 0, &[1], 0, 30),
        ]
    };
    let by_interval = |scheme| {
        let outcome = outcome(&scenario(scheme, Decisions::Interval, applications()));
        outcome.applications.iter().map(|app| app.io_s).collect::<Vec<_>>()
    };
    // c has a third of target 0 and so of target 1, of which d has a half for ten seconds, then 1 - 1.25 / 3.
    let ends = by_interval(adaptbf(Priority::Nodes));
    assert_near(&ends[3..], &[10.0 + 25.0 / (1.0 - 1.25 / 3.0)]);
    assert_near(&by_interval(POFS)[3..], &[60.0]);
}

#[test]
fn jobs_wait_for_nodes_and_overtake_where_nobody_is_delayed() {
    let applications = vec![
        app("a", 6, 0, &[0], 90, 10),
        app("b", 8, 1, &[1], 40, 10),
        app("c", 4, 2, &[2], 80, 10),
        app("d", 4, 3, &[3], 90, 10),
        app("e", 2, 4, &[4], 990, 10),
    ];
    let outcome = outcome(&scenario(POFS, Decisions::Event, applications));
    let waits: Vec<f64> = outcome.applications.iter().map(|app| app.wait_s).collect();
    // a runs until 100. b is first in the queue and starts then, with 2 nodes extra. c fits and ends at 92. Then d
    // fits and would end at 192, in b's way; e takes the extra nodes at 92.
    assert_near(&waits, &[0.0, 99.0, 0.0, 147.0, 88.0]);
}

#[test]
fn an_application_submits_its_next_run_when_the_one_before_has_ended() {
    let mut twice = app("a", 1, 0, &[0], 10, 10);
    twice.runs.push(Run { submit: s(5), ..twice.runs[0].clone() });
    let outcome = outcome(&scenario(POFS, Decisions::Event, vec![twice]));
    assert_eq!((outcome.ended_ns, outcome.jobs_done), (s(40).0, 2));
    assert_near(&[outcome.applications[0].wait_s, outcome.applications[0].run_s], &[0.0, 20.0]);
}

/// GIFT Fig. 6, k1, as it goes on: A gives B 15 % of the first target, and gets coupons for it.
#[test]
fn gift_throttles_and_owes() {
    let config = GiftConfig { b_thres: 0.3, ..GiftConfig::default() };
    let applications = vec![app("A", 1, 0, &[0], 0, 35), app("B", 1, 0, &[0, 1], 0, 65)];
    let outcome = outcome(&scenario(SchemeSpec::Gift(config), Decisions::Interval, applications));
    let gift = outcome.gift.as_ref().unwrap();
    assert!(gift.issued_target_s > 0.0);
    assert!(outcome.applications[1].io_s < 130.0, "sooner than at half of the target: {outcome:?}");
}

fn small(seed: u64) -> Vec<Application> {
    let population = Population { duration: s(200_000), targets: 8, nodes: 64, ..Population::gift(12) };
    population.draw(seed)
}

fn specs() -> Vec<SchemeSpec> {
    let config = GiftConfig::default();
    vec![
        POFS,
        SchemeSpec::Pofs(Progress::Banked),
        SchemeSpec::Bsip,
        SchemeSpec::Mbw,
        SchemeSpec::Rule { rule: Rule::Small, b_thres: 0.1, seed: 1 },
        SchemeSpec::Rule { rule: Rule::Random, b_thres: 0.1, seed: 1 },
        SchemeSpec::Gift(config),
        SchemeSpec::Gift(GiftConfig { b_thres: 0.0, ..config }),
        SchemeSpec::TokenBucket(Progress::MinRate),
        adaptbf(Priority::Nodes),
        SchemeSpec::AdapTbf(AdapTbfConfig { progress: Progress::Banked, ..AdapTbfConfig::default() }),
        calciom(Choice::Serialize),
        calciom(Choice::Interrupt),
        calciom(Choice::Dynamic),
        SchemeSpec::Coflow(Coflow::new(0.5, Order::Attained).unwrap()),
        SchemeSpec::Coflow(Coflow::new(0.8, Order::Bssf).unwrap()),
        one_by_one(0.2, Sizes::Declared),
        one_by_one(0.0, Sizes::History),
        one_by_one(0.8, Sizes::None),
        SchemeSpec::FairFinish { guarantee: 0.0, sizes: Sizes::Declared, clock: Clock::Accounts },
    ]
}

/// a and b share a target; c comes when a has half of what it needs in the fair clock.
#[test]
fn fair_finish_ends_nobody_later_than_its_fair_clock() {
    let applications =
        || vec![app("a", 1, 0, &[0], 0, 10), app("b", 1, 0, &[0, 1], 0, 15), app("c", 1, 10, &[0], 0, 2)];
    let with = |scheme| outcome(&scenario(scheme, Decisions::Event, applications()));
    // Fair: c has a third of the target until 16, then a half each for a until 22, and b the rest.
    let fair = with(SchemeSpec::Pofs(Progress::Banked));
    assert_near(&fair.applications.iter().map(|app| app.io_s).collect::<Vec<_>>(), &[22.0, 27.0, 6.0]);
    assert!((fair.io_over_fair() - 1.0).abs() < 1e-6 && fair.late() == 0.0);
    let finish = with(one_by_one(0.0, Sizes::Declared));
    assert_near(&finish.applications.iter().map(|app| app.io_s).collect::<Vec<_>>(), &[10.0, 27.0, 2.0]);
    assert_near(&[finish.io_over_fair()], &[(10.0 / 22.0 + 1.0 + 2.0 / 6.0) / 3.0]);
    let first_come = with(SchemeSpec::Coflow(Coflow::new(0.0, Order::Slowdown).unwrap()));
    assert!(first_come.late() > 0.0, "{first_come:?}");
    let whole = with(one_by_one(1.0, Sizes::None));
    assert_near(&whole.applications.iter().map(|app| app.io_s).collect::<Vec<_>>(), &[22.0, 27.0, 6.0]);
}

/// The first run tells nothing, later ones are as long as it was, or at least of its class.
#[test]
fn history_tells_what_is_not_declared() {
    let recurring = |name: &str, io: u64, runs: u64| {
        let mut app = app(name, 1, 0, &[0], 0, io);
        app.runs = (0..runs).map(|at| Run { submit: s(at * 100), ..app.runs[0].clone() }).collect();
        app
    };
    let io_s_of = |sizes, runs| {
        let scheme = one_by_one(0.0, sizes);
        let applications = vec![recurring("a", 20, runs), recurring("b", 11, runs)];
        let outcome = outcome(&scenario(scheme, Decisions::Event, applications));
        outcome.applications.iter().map(|app| app.io_s).collect::<Vec<f64>>()
    };
    let io_s = |sizes| io_s_of(sizes, 12);
    assert_near(&io_s(Sizes::Declared), &[31.0, 11.0]);
    // a: up to 1, 2, 4, 8, 16 before b has been served as much.
    let unknown = io_s_of(Sizes::None, 1);
    assert!(unknown[1] > 18.0, "{unknown:?}");
    let first = unknown[1];
    // Both are of the class from 8^11 ns on: a up to that, and 1.25 and 1.25^2 times as much, before b has been served as much.
    let least = 8f64.powi(11) / 1e9;
    assert_near(&io_s(Sizes::None), &[31.0, (first + 11.0 * (1.25 * 1.25 * least + 11.0)) / 12.0]);
    assert_near(&io_s(Sizes::History), &[31.0, (first + 11.0 * 11.0) / 12.0]);
}

/// Fair finish as a scheme that sees the whole.
struct Whole(FairFinish);

impl Decide for Whole {
    fn allocate(&mut self, now: Nanos, problem: &Problem) -> Result<Allocation, SchemeError> {
        Ok(self.0.allocate(now, problem))
    }

    fn next_change(&self) -> Option<Nanos> {
        self.0.next_change()
    }

    fn rest(&mut self, now: Nanos, targets: &Arc<Targets>) {
        self.0.allocate(now, &Problem::new(targets.clone(), Vec::new()).unwrap());
    }
}

/// The same for fair shares.
struct Shares;

impl Decide for Shares {
    fn allocate(&mut self, _now: Nanos, problem: &Problem) -> Result<Allocation, SchemeError> {
        Ok(pofs(problem, Progress::Banked))
    }
}

/// What each application had, to within rounding of times to nanoseconds, many times over.
fn assert_alike(alone: &Outcome, whole: &Outcome) {
    let is_near = |a: f64, b: f64| assert!((a - b).abs() <= 1e-6 * b.abs(), "{a}, not {b}");
    assert_eq!(alone.jobs_done, whole.jobs_done);
    for (alone, whole) in alone.applications.iter().zip(&whole.applications) {
        assert_eq!((alone.runs, alone.phases, alone.late_phases), (whole.runs, whole.phases, whole.late_phases));
        is_near(alone.io_s, whole.io_s);
        is_near(alone.run_s, whole.run_s);
    }
    is_near(alone.io_target_s, whole.io_target_s);
    is_near(alone.effective_bandwidth, whole.effective_bandwidth);
    // The fair clocks are looked at until the last event of each, which may be one that changes nothing.
}

#[test]
fn targets_that_decide_for_themselves_decide_as_one_that_sees_the_whole() {
    for seed in 1..=20 {
        // The first run of each: a difference by rounding, once large enough to change who meets whom, would stay.
        let mut applications = small(seed);
        applications.iter_mut().for_each(|application| application.runs.truncate(1));
        applications.iter_mut().for_each(|application| application.runs[0].submit = Nanos::ZERO);
        let mut scenario = scenario(SchemeSpec::Pofs(Progress::Banked), Decisions::Event, applications);
        scenario.nodes = 64;
        let with = |scenario: &Scenario, scheme: &mut dyn Decide| {
            run_with(scenario, scheme, &mut |_| ControlFlow::Continue(())).unwrap()
        };
        assert_alike(&outcome(&scenario), &with(&scenario, &mut Shares));
        // Where nothing is known all are told to be alike, and rounding tells who is first.
        for (guarantee, sizes, clock) in [
            (0.0, Sizes::Declared, Clock::Open),
            (0.3, Sizes::Declared, Clock::Accounts),
            (0.5, Sizes::Declared, Clock::Open),
        ] {
            scenario.scheme = SchemeSpec::FairFinish { guarantee, sizes, clock };
            let scheme = FairFinish::new(guarantee, scenario.bandwidth).unwrap();
            let mut whole = Whole(if clock == Clock::Accounts { scheme.with_accounts() } else { scheme });
            assert_alike(&outcome(&scenario), &with(&scenario, &mut whole));
        }
    }
}

#[test]
fn one_after_the_other_by_what_is_left_or_as_they_came() {
    let applications = || vec![app("a", 1, 0, &[0], 0, 20), app("b", 1, 5, &[0, 1], 0, 10), app("c", 1, 6, &[0], 0, 2)];
    // At 5 b has less than the 15 that a has left, c comes in between, a goes on at 17.
    assert_near(&io_s(SchemeSpec::ShortestFirst, applications()), &[32.0, 12.0, 2.0]);
    assert_near(&io_s(SchemeSpec::FirstCome, applications()), &[20.0, 25.0, 26.0]);
    let refused =
        run(&scenario(SchemeSpec::FirstCome, Decisions::Interval, applications()), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(SchemeError::Interval)));
}

/// Applications of one phase each, that come at random and have exponential sizes: what closed forms say of their mean
/// time at one target, in units of the mean size.
#[test]
fn means_are_those_of_closed_forms() {
    const LOAD: f64 = 0.7;
    const JOBS: u64 = 20_000;
    let open = |seed: u64, size: fn(f64) -> f64| -> Vec<Application> {
        let mut state = seed;
        let mut chance = || {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut now = 0.0;
        (0..JOBS)
            .map(|at| {
                now -= (1.0 - chance()).ln() / LOAD;
                let io = Nanos((size(chance()) * 1e9).max(1.0) as u64);
                let run = Run {
                    submit: Nanos((now * 1e9) as u64),
                    targets: vec![0],
                    phases: vec![Phase { compute: Nanos::ZERO, io }],
                };
                Application { name: format!("{at:05}").into(), nodes: 1, weight: 1.0, runs: vec![run] }
            })
            .collect()
    };
    let exponential = |chance: f64| -(1.0 - chance).ln();
    let constant = |_: f64| 1.0;
    let mean = |scheme: SchemeSpec, size: fn(f64) -> f64| {
        let seeds: Vec<f64> = (1..=4)
            .map(|seed| {
                let mut scenario = scenario(scheme, Decisions::Event, open(seed, size));
                (scenario.nodes, scenario.targets, scenario.duration) = (1_000_000, 1, s(100_000_000));
                outcome(&scenario).io_s()
            })
            .collect();
        let mean = seeds.iter().sum::<f64>() / 4.0;
        let deviation = (seeds.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / 3.0).sqrt();
        // Student's t for three degrees of freedom and 99 %, over the root of four.
        (mean, 5.84 * deviation / 2.0)
    };
    let is_near = |(mean, half): (f64, f64), expected: f64| {
        assert!((mean - expected).abs() <= half && half < 0.15 * expected, "{mean} ± {half}, not {expected}");
    };
    // M/M/1 and M/D/1: processor sharing depends on the mean size only; first come, first served is Pollaczek and Khinchin's.
    is_near(mean(SchemeSpec::Pofs(Progress::Banked), exponential), 1.0 / (1.0 - LOAD));
    is_near(mean(SchemeSpec::Pofs(Progress::Banked), constant), 1.0 / (1.0 - LOAD));
    is_near(mean(SchemeSpec::FirstCome, exponential), 1.0 / (1.0 - LOAD));
    is_near(mean(SchemeSpec::FirstCome, constant), 1.0 + LOAD / (2.0 * (1.0 - LOAD)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn no_phase_is_late_if_sizes_are_known(seed in 0u64..1000, guarantee in 0.0f64..=1.0) {
        let scheme = one_by_one(guarantee, Sizes::Declared);
        let mut scenario = scenario(scheme, Decisions::Event, small(seed));
        scenario.nodes = 64;
        let outcome = outcome(&scenario);
        prop_assert!(outcome.applications.iter().map(|app| app.judged_phases).sum::<u64>() > 100);
        prop_assert_eq!(outcome.late(), 0.0);
        scenario.scheme = SchemeSpec::Coflow(Coflow::new(0.5, Order::Attained).unwrap());
        prop_assert!(self::outcome(&scenario).late() > 0.0, "others have late ones");
    }

    #[test]
    fn nothing_is_lost_and_everything_repeats(seed in 0u64..1000) {
        let applications = small(seed);
        let volume: f64 = applications
            .iter()
            .flat_map(|app| &app.runs)
            .map(|run| run.phases.iter().map(|phase| phase.io.as_secs_f64()).sum::<f64>() * run.targets.len() as f64)
            .sum();
        let runs: usize = applications.iter().map(|app| app.runs.len()).sum();
        for scheme in specs() {
            let mut scenario = scenario(scheme, Decisions::Interval, applications.clone());
            scenario.nodes = 64;
            scenario.duration = s(20_000_000);
            let outcome = outcome(&scenario);
            prop_assert_eq!(&outcome, &self::outcome(&scenario));
            if scheme != SchemeSpec::Mbw {
                prop_assert_eq!(outcome.jobs_done as usize, runs, "{:?}", scheme);
                prop_assert!((outcome.io_target_s / volume - 1.0).abs() < 1e-6, "{:?}", scheme);
            }
            prop_assert!((0.0..=1.0 + 1e-9).contains(&outcome.effective_bandwidth), "{:?}", scheme);
            prop_assert!((0.0..=1.0).contains(&outcome.node_utilization));
            prop_assert!(outcome.applications.iter().all(|app| app.io_slowdown >= 1.0 - 1e-9));
            if let Some(gift) = &outcome.gift {
                let sum = gift.redeemed_target_s + gift.compensated_target_s + gift.outstanding_target_s;
                prop_assert!((gift.issued_target_s - sum).abs() < 1e-6);
            }
        }
    }
}
