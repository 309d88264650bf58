//! Fair finish with the clock of the closed system: no application's k-th phase ends later than under processor sharing, with nodes for
//! everybody.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_allocation::Progress;
use isonomia_sim::fluid::population::Population;
use isonomia_sim::fluid::{
    Application, Clock, Decisions, Outcome, Phase, PhaseTimes, Run, Scenario, SchemeSpec, Sizes, run_with_times,
};
use isonomia_units::Nanos;
use std::ops::ControlFlow;

/// Times are whole nanoseconds, and under processor sharing of a closed system what is off by one is off by a second after two days.
/// So phases are compared that end there by this time, and are later by this many seconds.
const COMPARED: Nanos = Nanos::from_secs(60_000);
const ROUNDING_S: f64 = 1e-3;
const SHARED: SchemeSpec = SchemeSpec::Pofs(Progress::Banked);

fn closed(guarantee: f64) -> SchemeSpec {
    SchemeSpec::FairFinish { guarantee, sizes: Sizes::Declared, clock: Clock::Closed }
}

fn replayed(guarantee: f64) -> SchemeSpec {
    SchemeSpec::FairFinish { guarantee, sizes: Sizes::Declared, clock: Clock::Replayed }
}

fn times(scenario: &Scenario) -> (Outcome, Vec<PhaseTimes>) {
    run_with_times(scenario, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn ends(scenario: &Scenario) -> (Outcome, Vec<Vec<Nanos>>) {
    let (outcome, times) = times(scenario);
    (outcome, times.into_iter().map(|times| times.ended).collect())
}

/// Half of all time is I/O, and nobody waits for nodes.
fn saturated(seed: u64, scheme: SchemeSpec) -> Scenario {
    let population =
        Population { duration: Nanos::from_secs(200_000), targets: 8, io_scale: 2.5, ..Population::gift(40) };
    let applications = population.draw(seed).into();
    Scenario { nodes: 40 * 32, ..population.scenario(applications, scheme, Decisions::Event) }
}

/// How many phases are in both and ended under processor sharing in time, and how many of them ended later under `other`.
fn later(shared: &[Vec<Nanos>], other: &[Vec<Nanos>]) -> (usize, usize) {
    let in_both = || shared.iter().zip(other).flat_map(|(shared, other)| shared.iter().zip(other));
    let pairs = || in_both().filter(|(shared, _)| **shared <= COMPARED);
    let is_later = |(shared, other): &(&Nanos, &Nanos)| other.as_secs_f64() > shared.as_secs_f64() + ROUNDING_S;
    (pairs().count(), pairs().filter(is_later).count())
}

#[test]
fn no_phase_ends_later_than_under_processor_sharing_of_the_closed_system() {
    let mut phases = 0;
    for seed in 1..=4 {
        let (_, shared) = ends(&saturated(seed, SHARED));
        for guarantee in [0.0, 0.2, 1.0] {
            let (outcome, closed) = ends(&saturated(seed, closed(guarantee)));
            let (in_both, later) = later(&shared, &closed);
            assert_eq!(later, 0, "of {in_both}, seed {seed}, guarantee {guarantee}");
            assert!(outcome.effective_bandwidth <= 1.0 + 1e-9, "{}", outcome.effective_bandwidth);
            // To the end, against its own clock, which is processor sharing of the same system.
            let ended = outcome.closed.unwrap();
            assert_eq!(ended.late_phases, 0, "{ended:?}");
            assert!(ended.phases > 500, "{ended:?}");
            phases += in_both;
        }
        let open = SchemeSpec::FairFinish { guarantee: 0.2, sizes: Sizes::Declared, clock: Clock::Accounts };
        let (in_both, later) = later(&shared, &ends(&saturated(seed, open)).1);
        assert!(later * 20 > in_both, "with accounts many do: {later} of {in_both}");
    }
    assert!(phases > 1_500, "{phases}");
}

/// A clock that replays the other run is compared with it to the end, and over the phases that ended in both nobody has more I/O.
#[test]
fn no_phase_ends_later_than_in_the_run_that_is_replayed() {
    let seconds = |times: &[Nanos]| times.iter().map(|at| at.as_secs_f64()).sum::<f64>();
    for seed in 1..=4 {
        let (_, shared) = times(&saturated(seed, SHARED));
        let (outcome, replayed) = times(&saturated(seed, replayed(0.2)));
        let mut compared = 0;
        for (shared, replayed) in shared.iter().zip(&replayed) {
            let phases = shared.ended.len().min(replayed.ended.len());
            let pairs = || shared.ended.iter().zip(&replayed.ended);
            let later = pairs().filter(|(shared, other)| other.as_secs_f64() > shared.as_secs_f64() + ROUNDING_S);
            assert_eq!(later.count(), 0, "seed {seed}");
            let io_s = |times: &PhaseTimes| seconds(&times.ended[..phases]) - seconds(&times.began[..phases]);
            assert!(io_s(replayed) <= io_s(shared) + ROUNDING_S * phases as f64, "seed {seed}");
            compared += phases;
        }
        assert!(compared > 500, "{compared}");
        assert_eq!(outcome.closed.unwrap().late_phases, 0);
    }
}

/// With the second phase in time, too, the mean of those that ended is greater, though each of them ended sooner.
#[test]
fn the_mean_of_more_phases_may_be_greater() {
    let nanos = Nanos::from_secs;
    let app = |name: &str, io: &[u64]| {
        let phases = io.iter().map(|&io| Phase { compute: Nanos::ZERO, io: nanos(io) }).collect();
        let run = Run { submit: Nanos::ZERO, targets: vec![0], phases };
        Application { name: name.into(), nodes: 1, weight: 1.0, runs: vec![run] }
    };
    let of = |scheme, duration| {
        let applications = vec![app("a", &[1, 100]), app("b", &[150])].into();
        let scenario = Scenario { duration, applications, ..saturated(1, scheme) };
        let (outcome, times) = times(&scenario);
        (outcome.applications[0].io_phase_s, times[0].ended.clone())
    };
    let (shared, closed) = (of(SHARED, nanos(150)), of(closed(0.0), nanos(150)));
    assert_eq!((shared.1.as_slice(), closed.1.len()), (&[nanos(2)][..], 2));
    assert!(shared.0 == 2.0 && closed.0 > 50.0, "{} and {}", shared.0, closed.0);
    let to_the_end = of(SHARED, nanos(1_000)).1;
    assert!(closed.1.iter().zip(&to_the_end).all(|(closed, shared)| closed < shared), "{closed:?}, {to_the_end:?}");
}
