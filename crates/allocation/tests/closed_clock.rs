//! Fair finish with the clock of the closed system: its theorem, against fair sharing of the closed system that is simulated here by
//! other means.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_allocation::{ClosedClock, FairFinishTarget, Think};
use isonomia_units::Nanos;
use proptest::prelude::*;

const TARGETS: usize = 3;
/// Rounding of times to nanoseconds, many times over.
const ROUNDING_S: f64 = 1e-5;
const STEPS_MAX: usize = 20_000;

/// It computes, then needs the targets for so long, and so on.
#[derive(Clone, Debug)]
struct Application {
    weight: f64,
    phases: Vec<Phase>,
}

#[derive(Clone, Debug)]
struct Phase {
    think: Think,
    /// Seconds of each target; not all are 0.
    parts_s: [f64; TARGETS],
}

/// When each application's phases end under fair sharing of all targets, for ever.
fn shared(applications: &[Application]) -> Vec<Vec<f64>> {
    let mut ends: Vec<Vec<f64>> = vec![Vec::new(); applications.len()];
    let mut left = vec![[0.0f64; TARGETS]; applications.len()];
    let comes_at = |at: usize, number: usize, end: f64| {
        let phase = applications[at].phases.get(number);
        phase.map(|Phase { think, .. }| end.max(think.not_before.as_secs_f64()) + think.time.as_secs_f64())
    };
    let mut comes: Vec<Option<f64>> = (0..applications.len()).map(|at| comes_at(at, 0, 0.0)).collect();
    let mut now = 0.0f64;
    loop {
        for at in 0..applications.len() {
            if comes[at].is_some_and(|comes| comes <= now) {
                (comes[at], left[at]) = (None, applications[at].phases[ends[at].len()].parts_s);
            }
        }
        let total = |target: usize| -> f64 {
            (0..left.len()).filter(|&at| left[at][target] > 0.0).map(|at| applications[at].weight).sum()
        };
        let totals: [f64; TARGETS] = std::array::from_fn(total);
        let parts = || (0..left.len()).flat_map(|at| (0..TARGETS).map(move |target| (at, target)));
        let end = |(at, target): (usize, usize)| {
            (left[at][target] > 0.0).then(|| now + left[at][target] * totals[target] / applications[at].weight)
        };
        let next = parts().filter_map(end).chain(comes.iter().flatten().copied()).fold(f64::INFINITY, f64::min);
        if next == f64::INFINITY {
            return ends;
        }
        for (at, application) in applications.iter().enumerate() {
            let is_in_io = left[at] != [0.0; TARGETS];
            for target in 0..TARGETS {
                if left[at][target] > 0.0 {
                    left[at][target] -= (next - now) * application.weight / totals[target];
                    if left[at][target] < 1e-9 {
                        left[at][target] = 0.0;
                    }
                }
            }
            if is_in_io && left[at] == [0.0; TARGETS] {
                ends[at].push(next);
                comes[at] = comes_at(at, ends[at].len(), next);
            }
        }
        now = next;
    }
}

/// What happened under fair finish with this clock.
struct Finished {
    ends: Vec<Vec<f64>>,
    /// Parts of phases that were early when they came.
    early: usize,
    late_in_clock: u64,
    in_clock: u64,
}

/// `told` is how many times as long as it is each part is told to be.
fn finished(guarantee: f64, applications: &[Application], told: f64) -> Finished {
    let target = || FairFinishTarget::<usize>::new(guarantee, 1.0).unwrap().with_closed_clock();
    let mut targets: Vec<_> = (0..TARGETS).map(|_| target()).collect();
    let mut clock = ClosedClock::new(TARGETS);
    let mut seen = Finished { ends: vec![Vec::new(); applications.len()], early: 0, late_in_clock: 0, in_clock: 0 };
    let mut left = vec![[0.0f64; TARGETS]; applications.len()];
    let mut rates = vec![[0.0f64; TARGETS]; applications.len()];
    let mut idle_since = vec![Nanos::ZERO; applications.len()];
    let nanos = |seconds: f64| Nanos((seconds * 1e9).ceil() as u64);
    let comes_at = |at: usize, number: usize, end: Nanos| {
        applications[at].phases.get(number).map(|phase| end.max(phase.think.not_before) + phase.think.time)
    };
    let mut comes: Vec<Option<Nanos>> = (0..applications.len()).map(|at| comes_at(at, 0, Nanos::ZERO)).collect();
    let mut now = Nanos::ZERO;
    for _ in 0..STEPS_MAX {
        (0..TARGETS).for_each(|target| clock.advance_target(now, target as u32, &mut targets));
        targets.iter_mut().for_each(|target| target.advance(now));
        for (at, application) in applications.iter().enumerate() {
            let was_in_io = left[at] != [0.0; TARGETS];
            for target in 0..TARGETS {
                if left[at][target] > 0.0 && left[at][target] < 1e-8 {
                    left[at][target] = 0.0;
                    targets[target].leave(&at);
                    clock.settle(now, target as u32, &mut targets);
                }
            }
            if was_in_io && left[at] == [0.0; TARGETS] {
                clock.end(now, at, &mut targets);
                seen.ends[at].push(now.as_secs_f64());
                (idle_since[at], comes[at]) = (now, comes_at(at, seen.ends[at].len(), now));
            }
            if comes[at].is_some_and(|comes| comes <= now) {
                let Phase { think, parts_s } = &application.phases[seen.ends[at].len()];
                // What it took is seen, as a server would.
                let begun = idle_since[at].max(think.not_before);
                let think = Think { time: now.since(begun), ..*think };
                let wanted = || (0..TARGETS).filter(|&target| parts_s[target] > 0.0);
                let parts: Vec<_> =
                    wanted().map(|target| (target as u32, application.weight, told * parts_s[target])).collect();
                let ids = clock.begin(now, at, think, &parts, &mut targets);
                for (target, id) in wanted().zip(ids) {
                    seen.early += usize::from(!targets[target].as_mut().has_come(id));
                    targets[target].come_expected(at, id, application.weight, Some(told * parts_s[target]));
                }
                (comes[at], left[at]) = (None, *parts_s);
            }
        }
        rates.fill([0.0; TARGETS]);
        for (number, target) in targets.iter_mut().enumerate() {
            target.divide();
            target.rates().for_each(|(at, rate)| rates[*at][number] = rate);
        }
        (0..TARGETS).for_each(|target| clock.settle(now, target as u32, &mut targets));
        for (number, rates) in (0..TARGETS).map(|target| (target, rates.iter().map(move |rates| rates[target]))) {
            let is_wanted = left.iter().any(|left| left[number] > 0.0);
            let given: f64 = rates.sum();
            assert!((given - f64::from(u8::from(is_wanted))).abs() < 1e-9, "work is conserved: {given} at {number}");
        }
        let parts = || left.iter().zip(&rates).flat_map(|(left, rates)| left.iter().zip(rates));
        let ends = parts().filter(|(left, rate)| **left > 0.0 && **rate > 0.0);
        let ends = ends.map(|(left, rate)| now + nanos(left / rate).max(Nanos(1)));
        let changes = targets.iter().filter_map(FairFinishTarget::next_change).chain(clock.next_change());
        let Some(next) = comes.iter().flatten().copied().chain(ends).chain(changes).min() else {
            seen.in_clock = clock.ended().phases;
            seen.late_in_clock = clock.ended().late;
            return seen;
        };
        let seconds = next.since(now).as_secs_f64();
        for (left, rates) in left.iter_mut().zip(&rates) {
            left.iter_mut().zip(rates).for_each(|(left, rate)| *left = (*left - rate * seconds).max(left.min(1e-9)));
        }
        now = next;
    }
    panic!("it does not end");
}

fn phase(think_s: f64, parts_s: [f64; TARGETS]) -> Phase {
    let think = Think { not_before: Nanos::ZERO, time: Nanos((think_s * 1e9) as u64) };
    Phase { think, parts_s }
}

/// a needs 1 and comes back at once, b needs 4. Fair sharing ends a at 2, 4, 6, and b at 7.
#[test]
fn who_comes_back_early_waits_for_whom_fair_sharing_would_have_served() {
    let a = Application { weight: 1.0, phases: vec![phase(0.0, [1.0, 0.0, 0.0]); 3] };
    let b = Application { weight: 1.0, phases: vec![phase(0.0, [4.0, 0.0, 0.0])] };
    let applications = [a, b];
    let near = |found: &[Vec<f64>], expected: [&[f64]; 2]| {
        let pairs = || found.iter().zip(expected).flat_map(|(found, expected)| found.iter().zip(expected));
        assert!(pairs().all(|(found, expected)| (found - expected).abs() < ROUNDING_S), "{found:?}");
        assert_eq!(pairs().count(), 4, "{found:?}");
    };
    near(&shared(&applications), [&[2.0, 4.0, 6.0], &[7.0]]);
    // At 1 the second of a is early, until 2 in the clock: b has 1. Then a's tag is before b's, and so again at 4.
    let seen = finished(0.0, &applications, 1.0);
    near(&seen.ends, [&[1.0, 3.0, 5.0], &[7.0]]);
    assert_eq!((seen.early, seen.in_clock, seen.late_in_clock), (2, 4, 0));
}

/// The same, but a comes back to a target at which nobody is: what is early is served at once.
#[test]
fn a_target_does_not_wait_for_the_clock() {
    let a = Application { weight: 1.0, phases: vec![phase(0.0, [1.0, 0.0, 0.0]), phase(0.0, [0.0, 2.0, 0.0])] };
    let b = Application { weight: 1.0, phases: vec![phase(0.0, [4.0, 0.0, 0.0])] };
    let seen = finished(0.0, &[a, b], 1.0);
    let pairs = || seen.ends.iter().flatten().zip([1.0, 3.0, 5.0]);
    assert!(pairs().all(|(end, expected)| (end - expected).abs() < ROUNDING_S), "{:?}", seen.ends);
    assert_eq!((seen.early, seen.in_clock), (1, 3));
}

fn arb_applications() -> impl Strategy<Value = Vec<Application>> {
    let part = prop_oneof![Just(0.0), (1u32..40).prop_map(|tenths| f64::from(tenths) / 10.0)];
    let parts = proptest::collection::vec(part, TARGETS).prop_map(|parts| [parts[0], parts[1], parts[2]]);
    let parts = parts.prop_filter("a phase has something to do", |parts| *parts != [0.0; TARGETS]);
    let think = (0u64..20, prop_oneof![3 => Just(0u64), 1 => 0u64..200]).prop_map(|(time, not_before)| Think {
        not_before: Nanos::from_millis(100 * not_before),
        time: Nanos::from_millis(100 * time),
    });
    let phase = (think, parts).prop_map(|(think, parts_s)| Phase { think, parts_s });
    let one = (1u32..5, proptest::collection::vec(phase, 1..7))
        .prop_map(|(weight, phases)| Application { weight: f64::from(weight), phases });
    proptest::collection::vec(one, 1..7)
}

proptest! {
    /// Theorem 7.
    #[test]
    fn no_phase_ends_later_than_in_the_closed_system_shared_fairly(
        applications in arb_applications(),
        guarantee in prop_oneof![Just(0.0), Just(1.0), (1u32..10).prop_map(|tenths| f64::from(tenths) / 10.0)],
    ) {
        let seen = finished(guarantee, &applications, 1.0);
        for (at, (ends, shared)) in seen.ends.iter().zip(shared(&applications)).enumerate() {
            prop_assert_eq!(ends.len(), shared.len());
            for (number, (end, shared)) in ends.iter().zip(shared).enumerate() {
                prop_assert!(*end <= shared + ROUNDING_S, "phase {number} of {at}: {end}, fair {shared}");
            }
        }
        prop_assert_eq!((seen.late_in_clock, seen.in_clock as usize), (0, seen.ends.iter().map(Vec::len).sum()));
    }

    /// Whatever is told, all of it is done, and the clock comes to its end.
    #[test]
    fn with_wrong_sizes_everybody_is_served(
        applications in arb_applications(), guarantee in prop_oneof![Just(0.0), Just(0.3)], told in 0.1f64..4.0,
    ) {
        let seen = finished(guarantee, &applications, told);
        let phases: usize = applications.iter().map(|application| application.phases.len()).sum();
        prop_assert_eq!((seen.ends.iter().map(Vec::len).sum::<usize>(), seen.in_clock as usize), (phases, phases));
    }
}
