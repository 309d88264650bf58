//! Where jobs wait for nodes: what no order of I/O can promise there (theorem 8 of fair finish), and what one can that knows when
//! jobs would start (theorem 9).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_allocation::Progress;
use isonomia_sim::fluid::{
    Application, Clock, Decisions, Phase, PhaseTimes, Run, Scenario, SchemeSpec, Sizes, run_with_times,
};
use isonomia_units::{Nanos, Rate};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::ops::ControlFlow;

/// Times are whole nanoseconds.
const ROUNDING_S: f64 = 1e-4;
const SHARED: SchemeSpec = SchemeSpec::Pofs(Progress::Banked);

fn finish(guarantee: f64, clock: Clock) -> SchemeSpec {
    SchemeSpec::FairFinish { guarantee, sizes: Sizes::Declared, clock }
}

/// Knows all of what is to come.
fn knowing() -> SchemeSpec {
    finish(0.2, Clock::Replayed)
}

/// Rules that end something sooner than processor sharing does, and do not know what is to come.
fn rules() -> [SchemeSpec; 6] {
    let finish = |clock| finish(0.2, clock);
    [
        finish(Clock::Open),
        finish(Clock::Accounts),
        finish(Clock::Closed),
        SchemeSpec::FairFinish { guarantee: 0.2, sizes: Sizes::None, clock: Clock::Open },
        SchemeSpec::ShortestFirst,
        SchemeSpec::FirstCome,
    ]
}

/// Submitted at a time, on one target: what it computes and then does of I/O, in seconds.
fn run(submit_s: f64, target: u16, phases: &[(f64, f64)]) -> Run {
    let nanos = |seconds: f64| Nanos((seconds * 1e9) as u64);
    let phases = phases.iter().map(|&(compute, io)| Phase { compute: nanos(compute), io: nanos(io) }).collect();
    Run { submit: nanos(submit_s), targets: vec![target], phases }
}

fn app(name: &str, nodes: u32, runs: Vec<Run>) -> Application {
    Application { name: name.into(), nodes, weight: 1.0, runs }
}

fn times(scheme: SchemeSpec, nodes: u32, applications: &[Application]) -> Vec<PhaseTimes> {
    let scenario = Scenario {
        duration: Nanos::from_secs(100_000),
        interval: Nanos::from_secs(10),
        decisions: Decisions::Event,
        scheme,
        targets: 4,
        bandwidth: Rate::new(102_000_000).unwrap(),
        nodes,
        estimate: 1.5,
        misprediction: 1.0,
        applications: applications.into(),
    };
    run_with_times(&scenario, &mut |_| ControlFlow::Continue(())).unwrap().1
}

fn ends_s(times: &PhaseTimes) -> Vec<f64> {
    times.ended.iter().map(|end| end.as_secs_f64()).collect()
}

/// By how much each application's phases end later than there, at most.
fn later_s(times: &[PhaseTimes], there: &[PhaseTimes]) -> Vec<f64> {
    let later = |(times, there): (&PhaseTimes, &PhaseTimes)| {
        assert_eq!(times.ended.len(), there.ended.len(), "all comes to its end");
        let pairs = ends_s(times).into_iter().zip(ends_s(there));
        pairs.map(|(end, there)| end - there).fold(f64::MIN, f64::max)
    };
    times.iter().zip(there).map(later).collect()
}

/// Theorem 8a. Two applications of one node each have a phase of 10 s at one target, and compute for 1,000 s in their next runs. In one
/// world nobody else comes. In the other, which is the same until 19.5 s, somebody comes who needs both nodes.
#[test]
fn who_ends_a_phase_sooner_harms_whom_nobody_could_foresee() {
    let again = |name, target| app(name, 1, vec![run(0.0, 0, &[(0.0, 10.0)]), run(0.0, target, &[(1_000.0, 1.0)])]);
    let alone = [again("a", 1), again("b", 2)];
    let [a, b] = alone.clone();
    let with_other = [a, b, app("d", 2, vec![run(19.5, 0, &[(1.0, 10.0)])])];
    let shared = [times(SHARED, 2, &alone), times(SHARED, 2, &with_other)];
    assert_eq!(shared[1][2].ended, [Nanos::from_secs(31)], "it starts at 20, when both have ended");
    for rule in rules() {
        let (here, there) = (times(rule, 2, &alone), times(rule, 2, &with_other));
        // Until somebody comes nothing tells one world from the other.
        let sooner = here.iter().map(|times| times.ended[0]).min().unwrap();
        assert!(sooner < Nanos::from_millis(19_500), "{rule:?}: {sooner:?}");
        assert!(there.iter().any(|times| times.ended[0] == sooner));
        let later = later_s(&here, &shared[0]);
        assert!(later.iter().all(|later| *later < ROUNDING_S), "{rule:?} is right if nobody comes: {later:?}");
        let later = later_s(&there, &shared[1]);
        assert!(later[2] > 900.0, "{rule:?} is wrong if somebody comes: {later:?}");
    }
}

/// Theorem 8b: the same with somebody whose phase whoever waited meets. Under processor sharing no phase but the first two waits for
/// anything; so with all knowledge, too, either nobody ends sooner or one application in four has more I/O.
#[test]
fn in_some_systems_no_order_gains_anything_without_harm() {
    let again = |name, target| app(name, 1, vec![run(0.0, 0, &[(0.0, 10.0)]), run(0.0, target, &[(1_000.0, 1.0)])]);
    let other = app("d", 2, vec![run(19.999, 0, &[(100.0, 10.0)])]);
    let long = app("e", 1, vec![run(0.0, 0, &[(1_105.0, 30.0)])]);
    let applications = [again("a", 1), again("b", 2), other, long];
    let io_s = |times: &[PhaseTimes]| -> Vec<f64> {
        let io = |times: &PhaseTimes| {
            ends_s(times).iter().sum::<f64>() - times.began.iter().map(|began| began.as_secs_f64()).sum::<f64>()
        };
        times.iter().map(io).collect()
    };
    let shared = io_s(&times(SHARED, 3, &applications));
    let expected = [21.0, 21.0, 10.0, 30.0];
    assert!(shared.iter().zip(expected).all(|(io, expected)| (io - expected).abs() < ROUNDING_S), "{shared:?}");
    for rule in rules().into_iter().chain([knowing()]) {
        let io = io_s(&times(rule, 3, &applications));
        assert!(io[0].min(io[1]) < 20.5, "{rule:?} ends somebody sooner: {io:?}");
        let worse = io.iter().zip(&shared).filter(|(io, shared)| **io > **shared + ROUNDING_S).count();
        assert!(worse > 0, "{rule:?}: {io:?}");
    }
}

/// Submitted at times that are known, one node each, so that nobody can be overtaken.
fn queued(seed: u64) -> Vec<Application> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut draw = |most: f64| most * random.random::<f64>();
    let one = |at: u64| {
        let (submit, target) = (draw(200.0), draw(3.0) as u16);
        let phases: Vec<_> = (0..3).map(|_| (draw(20.0), 1.0 + draw(20.0))).collect();
        app(&format!("{at:02}"), 1, vec![run(submit, target, &phases)])
    };
    (0..30).map(one).collect()
}

/// Theorem 9, for a queue whose order depends on nothing.
#[test]
fn with_the_starts_replayed_no_phase_is_later_where_the_order_of_jobs_is_fixed() {
    let (mut sooner_s, mut later_without) = (0.0, 0);
    for seed in 1..=20 {
        let applications = queued(seed);
        let shared = times(SHARED, 6, &applications);
        let is_later =
            |scheme| later_s(&times(scheme, 6, &applications), &shared).into_iter().any(|by| by > ROUNDING_S);
        for guarantee in [0.0, 0.3, 1.0] {
            assert!(!is_later(finish(guarantee, Clock::Replayed)), "seed {seed}, guarantee {guarantee}");
        }
        later_without += u32::from(is_later(finish(0.0, Clock::Closed)));
        let replayed = times(finish(0.0, Clock::Replayed), 6, &applications);
        let sum = |times: &[PhaseTimes]| times.iter().flat_map(ends_s).sum::<f64>() / 90.0;
        sooner_s += (sum(&shared) - sum(&replayed)) / 20.0;
    }
    assert!(sooner_s > 5.0, "phases end sooner on average: {sooner_s}");
    assert!(later_without > 0, "the clock of the closed system knows no starts");
}
