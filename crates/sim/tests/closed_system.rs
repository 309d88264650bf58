//! Fair finish with the clock of the closed system: no application's k-th phase ends later than under processor sharing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_allocation::Progress;
use isonomia_sim::fluid::population::Population;
use isonomia_sim::fluid::{Clock, Decisions, Outcome, Scenario, SchemeSpec, Sizes, run_with_ends};
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

fn ends(scenario: &Scenario) -> (Outcome, Vec<Vec<Nanos>>) {
    run_with_ends(scenario, &mut |_| ControlFlow::Continue(())).unwrap()
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
