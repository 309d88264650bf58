//! Fair finish: its theorems, against fair sharing that is simulated here by other means than in the scheme.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::needless_range_loop, reason = "a target is a number in several arrays")]

use isonomia_allocation::{
    App, BadGuarantee, Demand, FIRST_TOLD_S, FairFinish, FairFinishTarget, GROWTH, GROWTH_UNKNOWN, Problem, Progress,
    Targets, pofs,
};
use isonomia_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;
use std::sync::Arc;

const TARGETS: usize = 3;
/// Bytes that a target serves in a second.
const BANDWIDTH: u64 = 1_000_000_000;
/// Rounding of times and bytes, many times over.
const ROUNDING_S: f64 = 1e-5;

/// An I/O phase: when it comes, and the seconds that each target needs for its part.
#[derive(Clone, Debug)]
struct Phase {
    arrival_s: f64,
    weight: f64,
    parts_s: [f64; TARGETS],
    /// What is told of each part is this many times as long; nothing is told if `None`.
    told: Option<f64>,
}

fn phase(arrival_s: f64, parts_s: [f64; TARGETS]) -> Phase {
    Phase { arrival_s, weight: 1.0, parts_s, told: Some(1.0) }
}

/// The phases as long as the last thing told of each part.
fn as_told(phases: &[Phase]) -> Vec<Phase> {
    let of_part = |told: Option<f64>, part: f64| {
        let (mut last, growth) = told.map_or((FIRST_TOLD_S, GROWTH_UNKNOWN), |told| (told * part, GROWTH));
        while last < part - 1e-8 {
            last *= growth;
        }
        if part > 0.0 { last } else { 0.0 }
    };
    let of_phase =
        |phase: &Phase| Phase { parts_s: phase.parts_s.map(|part| of_part(phase.told, part)), ..phase.clone() };
    phases.iter().map(of_phase).collect()
}

/// When fair sharing finishes each part, and what it has served of it at the times `asked`.
fn fair(phases: &[Phase], target: usize, asked: &[f64]) -> (Vec<f64>, Vec<Vec<f64>>) {
    let mut left: Vec<f64> = phases.iter().map(|phase| phase.parts_s[target]).collect();
    let mut ends: Vec<f64> = phases.iter().map(|phase| phase.arrival_s).collect();
    let mut served = Vec::new();
    let mut asked = asked.iter().copied().peekable();
    let mut now = 0.0;
    loop {
        let here: Vec<usize> = (0..left.len()).filter(|&at| left[at] > 0.0 && phases[at].arrival_s <= now).collect();
        let total: f64 = here.iter().map(|&at| phases[at].weight).sum();
        let end = here.iter().map(|&at| now + left[at] * total / phases[at].weight).fold(f64::INFINITY, f64::min);
        let arrivals = phases.iter().map(|phase| phase.arrival_s).filter(|&arrival| arrival > now);
        let next = arrivals.fold(end, f64::min).min(asked.peek().copied().unwrap_or(f64::INFINITY));
        if next == f64::INFINITY {
            return (ends, served);
        }
        for &at in &here {
            left[at] -= (next - now) * phases[at].weight / total;
            if left[at] < 1e-12 {
                (left[at], ends[at]) = (0.0, next);
            }
        }
        now = next;
        if asked.next_if(|&asked| asked <= now).is_some() {
            served.push(left.iter().zip(phases).map(|(left, phase)| phase.parts_s[target] - left).collect());
        }
    }
}

/// What happened under fair finish: when each part was done, and at each decision the time and what each part had received.
struct Run {
    ends: Vec<[f64; TARGETS]>,
    received: Vec<(f64, Vec<[f64; TARGETS]>)>,
}

fn run(guarantee: f64, phases: &[Phase]) -> Run {
    let targets = Arc::new(Targets::new((0..TARGETS).map(|at| (format!("t{at}"), 1.0))).unwrap());
    let indices: Vec<_> = targets.iter().collect();
    let mut scheme = FairFinish::new(guarantee, Rate::new(BANDWIDTH).unwrap()).unwrap();
    let mut left: Vec<[f64; TARGETS]> = phases.iter().map(|phase| phase.parts_s).collect();
    let mut run = Run { ends: phases.iter().map(|phase| [phase.arrival_s; TARGETS]).collect(), received: Vec::new() };
    let mut now = Nanos::ZERO;
    for _ in 0..20_000 {
        let now_s = now.as_secs_f64();
        let has_come = |phase: &Phase| phase.arrival_s <= now_s + 1e-9;
        let apps = phases.iter().zip(&left).enumerate().filter(|(_, (phase, _))| has_come(phase));
        let apps = apps.map(|(at, (phase, left))| {
            let told = |(target, &left): (usize, &f64)| {
                let remaining = phase.told.map(|told| Bytes(((left * told * BANDWIDTH as f64).ceil() as u64).max(1)));
                (left > 0.0).then(|| Demand { target: indices[target], remaining })
            };
            let demands = left.iter().enumerate().filter_map(told).collect();
            App { demands, weight: phase.weight, ..App::new(format!("{at:03}"), []) }
        });
        let apps: Vec<App> = apps.filter(|app| !app.demands.is_empty()).collect();
        let problem = Problem::new(targets.clone(), apps).unwrap();
        let allocation = scheme.allocate(now, &problem);
        for (target, used) in allocation.target_uses().iter().enumerate() {
            let is_wanted = problem.apps().iter().any(|app| app.demands.iter().any(|at| at.target == indices[target]));
            assert!((used.used - if is_wanted { 1.0 } else { 0.0 }).abs() < 1e-9, "work is conserved: {used:?}");
        }
        let received = |(phase, left): (&Phase, &[f64; TARGETS])| {
            std::array::from_fn(|target| phase.parts_s[target] - left[target])
        };
        run.received.push((now_s, phases.iter().zip(&left).map(received).collect()));
        let rate = |at: usize, target: usize| allocation.rate(&format!("{at:03}"), &format!("t{target}"));
        let end = |at: usize, target: usize| match rate(at, target) {
            rate if rate > 0.0 => now + Nanos((left[at][target] / rate * 1e9).ceil() as u64),
            _ => Nanos::MAX,
        };
        let each = || (0..phases.len()).flat_map(|at| (0..TARGETS).map(move |target| (at, target)));
        let arrivals = phases.iter().map(|phase| Nanos((phase.arrival_s * 1e9) as u64)).filter(|&at| at > now);
        let ends = each().map(|(at, target)| end(at, target));
        let next = arrivals.chain(ends).chain(scheme.next_change()).min().unwrap();
        if next == Nanos::MAX {
            return run;
        }
        let seconds = next.since(now).as_secs_f64();
        for (at, target) in each() {
            let (rate, left) = (rate(at, target), &mut left[at][target]);
            if *left > 0.0 {
                *left -= rate * seconds;
                if *left < 1e-8 {
                    *left = 0.0;
                    run.ends[at][target] = next.as_secs_f64();
                }
            }
        }
        now = next;
    }
    panic!("it does not end");
}

/// Two that come together, one of 3 and one of 1, and one of 1 that comes later.
#[test]
fn one_after_the_other_by_hand() {
    let phases = [phase(0.0, [3.0, 0.0, 0.0]), phase(0.0, [1.0, 0.0, 0.0]), phase(1.5, [1.0, 0.0, 0.0])];
    let ends = |guarantee| run(guarantee, &phases).ends.iter().map(|ends| ends[0]).collect::<Vec<f64>>();
    let near = |found: Vec<f64>, expected: [f64; 3]| {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < ROUNDING_S), "{found:?}, not {expected:?}");
    };
    near(ends(0.0), [5.0, 1.0, 2.5]);
    near(ends(1.0), [5.0, 2.25, 3.75]);
    // The long one keeps half of its fair half: 0.375 of 1.5 for 4/3 s, and what it was ahead of that is counted.
    near(ends(0.5), [5.0, 4.0 / 3.0, 2.5 + 1.0 / 12.0]);
    let refused = FairFinish::new(1.5, Rate::new(1).unwrap()).map(|_| ());
    assert_eq!(refused, Err(BadGuarantee(1.5)));
}

#[test]
fn a_part_that_was_told_too_short_waits_for_the_others() {
    let mut phases = [phase(0.0, [4.0, 0.0, 0.0]), phase(0.0, [3.0, 0.0, 0.0])];
    phases[0].told = Some(0.6);
    let ends = run(0.0, &phases).ends;
    // Served first up to 2.4, then told to be 3, and then to be longer than the other one.
    assert!((ends[1][0] - 6.0).abs() < ROUNDING_S && (ends[0][0] - 7.0).abs() < ROUNDING_S, "{ends:?}");
    phases[0].told = None;
    let ends = run(0.0, &phases).ends;
    // Up to 1, 2, and then to be 4.
    assert!((ends[1][0] - 5.0).abs() < ROUNDING_S && (ends[0][0] - 7.0).abs() < ROUNDING_S, "{ends:?}");
}

/// When the first phase's part at the first target is done, with the truth and with what is `told` instead.
fn truth_and_lie(guarantee: f64, phases: &[Phase], told: Option<f64>) -> [f64; 2] {
    let mut lying = phases.to_vec();
    lying[0].told = told;
    [phases, &lying].map(|phases| run(guarantee, phases).ends[0][0])
}

/// Why theorem 5 asks for the others' sizes: nothing is told of b. Overtaken, it is in the clock for longer, so the floor of
/// c, which ends last, is lower meanwhile, and a has what c has not.
#[test]
fn among_wrong_sizes_a_lie_may_pay_by_the_floor() {
    let mut phases = [1.8, 0.5, 2.9].map(|part| phase(0.0, [part, 0.0, 0.0]));
    phases[1].told = None;
    let [truth, lie] = truth_and_lie(0.9, &phases, None);
    assert!((truth - 3.772_73).abs() < 1e-4 && (lie - 3.727_27).abs() < 1e-4, "{truth} and {lie}: 1.2 % sooner");
    phases[1].told = Some(1.0);
    let [truth, lie] = truth_and_lie(0.9, &phases, None);
    assert!(lie >= truth - ROUNDING_S, "{lie} instead of {truth}, if b tells the truth");
}

/// The same without a floor: b tells eleven times too much. If a tells still more, b is done at once and so leaves the clock
/// before c comes, which then has a later position than a.
#[test]
fn among_wrong_sizes_a_lie_may_pay_by_the_clock() {
    let mut phases = [phase(0.0, [11.0, 0.0, 0.0]), phase(0.0, [1.0, 0.0, 0.0]), phase(10.0, [4.0, 0.0, 0.0])];
    phases[1].told = Some(11.1);
    let [truth, lie] = truth_and_lie(0.0, &phases, Some(11.2 / 11.0));
    assert!((truth - 15.0).abs() < ROUNDING_S && (lie - 12.0).abs() < ROUNDING_S, "{truth} and {lie}: a fifth sooner");
    phases[1].told = Some(1.0);
    let [truth, lie] = truth_and_lie(0.0, &phases, Some(11.2 / 11.0));
    assert!(lie >= truth - ROUNDING_S, "{lie} instead of {truth}, if b tells the truth");
}

/// a comes back as soon as it is served. In the fair clock it then has half of 2.5 left, so its next phase ends after b's.
#[test]
fn an_account_makes_the_next_phase_wait_for_the_one_before() {
    let targets = Arc::new(Targets::new([("t", 1.0)]).unwrap());
    let app = |name: &str, began: u64, tenths: u64| {
        let demand = Demand { target: targets.index("t").unwrap(), remaining: Some(Bytes(tenths)) };
        App { demands: vec![demand], began: Nanos::from_millis(began), ..App::new(name, []) }
    };
    for (has_accounts, expected) in [(false, [1.0, 0.0]), (true, [0.0, 1.0])] {
        let scheme = FairFinish::new(0.0, Rate::new(10).unwrap()).unwrap();
        let mut scheme = if has_accounts { scheme.with_accounts() } else { scheme };
        let mut rates = |now: u64, apps: Vec<App>| {
            let problem = Problem::new(targets.clone(), apps).unwrap();
            let allocation = scheme.allocate(Nanos::from_millis(now), &problem);
            ["a", "b"].map(|name| allocation.rate(name, "t"))
        };
        assert_eq!(rates(0, vec![app("a", 0, 25), app("b", 0, 40)]), [1.0, 0.0]);
        // Tags: b 4; a 1.25 + 2.5, or 2.5 + 2.5.
        assert_eq!(rates(2_500, vec![app("a", 2_500, 25), app("b", 0, 40)]), expected);
        // Alone it does not wait, and what the clock owed is over at 5 + 4.
        assert_eq!(rates(9_000, vec![app("a", 9_000, 25)]), [1.0, 0.0]);
    }
}

/// The condition of theorem 6. With weight 4 at once the next phase would be first.
#[test]
fn who_comes_back_with_another_weight_has_it_when_the_clock_is_done_with_the_phase_before() {
    let mut target = FairFinishTarget::new(0.0, 1.0).unwrap().with_accounts();
    let first = |target: &FairFinishTarget<char>| target.rates().find(|(_, rate)| *rate == 1.0).map(|(key, _)| *key);
    target.come('a', 1.0, Some(2.5));
    target.come('b', 1.0, Some(4.0));
    target.divide();
    target.advance(Nanos::from_millis(2_500));
    target.leave(&'a');
    target.come('a', 4.0, Some(2.5));
    target.divide();
    assert_eq!(first(&target), Some('b'), "4, and 1.25 + 1.25 + 2.5");
    target.advance(Nanos::from_secs(9));
    ['a', 'b'].iter().for_each(|key| target.leave(key));
    target.come('b', 1.0, Some(1.0));
    target.come('a', 4.0, Some(2.0));
    target.divide();
    assert_eq!(first(&target), Some('a'), "2 / 4 is before 1 / 1");
}

fn arb_phases() -> impl Strategy<Value = Vec<Phase>> {
    let part = prop_oneof![Just(0.0), (1u32..40).prop_map(|tenths| f64::from(tenths) / 10.0)];
    let parts = proptest::collection::vec(part, TARGETS).prop_map(|parts| [parts[0], parts[1], parts[2]]);
    let one = (0u32..60, 1u32..5, parts).prop_map(|(tenths, weight, parts_s)| Phase {
        arrival_s: f64::from(tenths) / 10.0,
        weight: f64::from(weight),
        parts_s,
        told: Some(1.0),
    });
    proptest::collection::vec(one, 1..9)
}

/// Phases of which anything is told: of two in six the truth.
fn arb_told_phases() -> impl Strategy<Value = Vec<Phase>> {
    let told = prop_oneof![
        2 => Just(Some(1.0)),
        2 => (0.1f64..1.0).prop_map(Some),
        1 => (1.0f64..12.0).prop_map(Some),
        1 => Just(None),
    ];
    (arb_phases(), proptest::collection::vec(told, 9)).prop_map(|(mut phases, told)| {
        phases.iter_mut().zip(told).for_each(|(phase, told)| phase.told = told);
        phases
    })
}

/// An application on one target: it computes and then needs the target for so long, again and again.
#[derive(Clone, Debug)]
struct Application {
    weight: f64,
    /// Seconds of computing, and of the target.
    phases: Vec<(f64, f64)>,
}

fn arb_applications() -> impl Strategy<Value = Vec<Application>> {
    let phase = (0u32..20, 1u32..40).prop_map(|(compute, io)| (f64::from(compute) / 10.0, f64::from(io) / 10.0));
    let one = (1u32..5, proptest::collection::vec(phase, 1..6))
        .prop_map(|(weight, phases)| Application { weight: f64::from(weight), phases });
    proptest::collection::vec(one, 1..6)
}

/// When each application's phases come and end, with accounts, if each begins to compute again when its phase has ended.
fn closed_loop(guarantee: f64, applications: &[Application]) -> Vec<Vec<(f64, f64)>> {
    let mut target = FairFinishTarget::<usize>::new(guarantee, 1.0).unwrap().with_accounts();
    let nanos = |seconds: f64| Nanos((seconds * 1e9).ceil() as u64);
    let mut phases: Vec<Vec<(f64, f64)>> = vec![Vec::new(); applications.len()];
    // Of the present phase, if there is one.
    let mut left: Vec<Option<f64>> = vec![None; applications.len()];
    let mut rates = vec![0.0f64; applications.len()];
    let mut comes: Vec<Option<Nanos>> = applications.iter().map(|app| Some(nanos(app.phases[0].0))).collect();
    let mut now = Nanos::ZERO;
    for _ in 0..20_000 {
        for (at, app) in applications.iter().enumerate() {
            let number = phases[at].len();
            if left[at].take_if(|left| *left < 1e-8).is_some() {
                target.leave(&at);
                phases[at][number - 1].1 = now.as_secs_f64();
                comes[at] = app.phases.get(number).map(|(compute, _)| now + nanos(*compute));
            }
            if comes[at].is_some_and(|comes| comes <= now) {
                let (_, size) = app.phases[phases[at].len()];
                (comes[at], left[at]) = (None, Some(size));
                phases[at].push((now.as_secs_f64(), f64::INFINITY));
                target.come(at, app.weight, Some(size));
            }
        }
        target.divide();
        rates.fill(0.0);
        target.rates().for_each(|(at, rate)| rates[*at] = rate);
        let end = |(left, rate): (&Option<f64>, &f64)| {
            left.filter(|_| *rate > 0.0).map(|left| now + nanos(left / rate).max(Nanos(1)))
        };
        let ends = left.iter().zip(&rates).filter_map(end);
        let Some(next) = comes.iter().flatten().copied().chain(ends).chain(target.next_change()).min() else {
            return phases;
        };
        let seconds = next.since(now).as_secs_f64();
        left.iter_mut().zip(&rates).for_each(|(left, rate)| *left = left.map(|left| left - rate * seconds));
        now = next;
        target.advance(now);
    }
    panic!("it does not end");
}

/// When fair sharing ends the same phases, if an application has its weight while it has any, and they wait for each other.
fn fair_queues(applications: &[Application], came: &[Vec<(f64, f64)>]) -> Vec<Vec<f64>> {
    let mut ends: Vec<Vec<f64>> = vec![Vec::new(); applications.len()];
    let mut left: Vec<f64> = applications.iter().map(|app| app.phases[0].1).collect();
    let mut now = 0.0;
    loop {
        let is_there = |at: usize| came[at].get(ends[at].len()).is_some_and(|(came, _)| *came <= now);
        let here: Vec<usize> = (0..applications.len()).filter(|&at| is_there(at)).collect();
        let total: f64 = here.iter().map(|&at| applications[at].weight).sum();
        let next_end = here.iter().map(|&at| now + left[at] * total / applications[at].weight);
        let arrivals = came.iter().flatten().map(|(came, _)| *came).filter(|came| *came > now);
        let next = arrivals.chain(next_end).fold(f64::INFINITY, f64::min);
        if next == f64::INFINITY {
            return ends;
        }
        for at in here {
            left[at] -= (next - now) * applications[at].weight / total;
            if left[at] < 1e-9 {
                ends[at].push(next);
                left[at] = applications[at].phases.get(ends[at].len()).map_or(0.0, |(_, io)| *io);
            }
        }
        now = next;
    }
}

fn arb_guarantee() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(1.0), (1u32..10).prop_map(|tenths| f64::from(tenths) / 10.0)]
}

proptest! {
    /// Theorem 2. What is told is up to a byte more than the truth.
    #[test]
    fn nobody_ends_later_than_under_fair_sharing(phases in arb_phases(), guarantee in arb_guarantee()) {
        let ends = run(guarantee, &phases).ends;
        let mut phase_ends = vec![0.0f64; phases.len()];
        for target in 0..TARGETS {
            let (fair, _) = fair(&phases, target, &[]);
            for (at, fair) in fair.iter().enumerate() {
                let end = ends[at][target];
                prop_assert!(end <= fair + ROUNDING_S, "part {at} at {target}: {end}, fair {fair}");
                phase_ends[at] = phase_ends[at].max(*fair);
            }
        }
        for (ends, fair) in ends.iter().zip(phase_ends) {
            prop_assert!(ends.iter().copied().fold(0.0, f64::max) <= fair + ROUNDING_S);
        }
    }

    /// The other end of the guarantee.
    #[test]
    fn with_the_whole_guarantee_it_is_fair_sharing(phases in arb_phases()) {
        let ends = run(1.0, &phases).ends;
        for target in 0..TARGETS {
            for (end, fair) in ends.iter().zip(fair(&phases, target, &[]).0) {
                prop_assert!((end[target] - fair).abs() <= ROUNDING_S, "{} and {fair}", end[target]);
            }
        }
    }

    /// Theorem 3, whatever is told. No clock has more in it than the others' parts as they were told last.
    #[test]
    fn everybody_keeps_the_guaranteed_part(phases in arb_told_phases(), guarantee in arb_guarantee()) {
        let received = run(guarantee, &phases).received;
        let times: Vec<f64> = received.iter().map(|(now, _)| *now).collect();
        for at in 0..phases.len() {
            let mut larger = as_told(&phases);
            larger[at].parts_s = phases[at].parts_s;
            for target in 0..TARGETS {
                for ((now, received), fair) in received.iter().zip(fair(&larger, target, &times).1) {
                    let (received, fair) = (received[at][target], fair[at]);
                    prop_assert!(received >= guarantee * fair - ROUNDING_S, "{at} at {now}: {received} of {fair}");
                }
            }
        }
    }

    /// Theorem 4, and the first half of theorem 5: whatever is told, everybody is done when fair sharing would have him done if
    /// every part were as long as the last thing told of it.
    #[test]
    fn everybody_is_done_as_if_what_was_told_were_true(phases in arb_told_phases(), guarantee in arb_guarantee()) {
        let ends = run(guarantee, &phases).ends;
        let told = as_told(&phases);
        for target in 0..TARGETS {
            for (at, bound) in fair(&told, target, &[]).0.into_iter().enumerate() {
                let end = ends[at][target];
                prop_assert!(end <= bound + ROUNDING_S, "{at} at {target}: {end}, bound {bound}");
            }
        }
    }

    /// Theorem 5 without a floor, whatever the others tell: what comes later has no part in it.
    #[test]
    fn without_a_floor_and_later_comers_no_lie_has_a_part_done_sooner(
        phases in arb_told_phases(), told in proptest::option::of(0.1f64..12.0),
    ) {
        let mut phases = phases;
        phases[0].told = Some(1.0);
        phases[0].arrival_s = phases.iter().map(|phase| phase.arrival_s).fold(0.0, f64::max);
        let honest = run(0.0, &phases).ends;
        phases[0].told = told;
        let ends = run(0.0, &phases).ends;
        for (target, (end, honest)) in ends[0].iter().zip(honest[0]).enumerate() {
            prop_assert!(*end >= honest - ROUNDING_S, "at {target}: {end}, with the truth {honest}");
        }
    }

    /// Theorem 5: with whatever he tells of his parts, or nothing, nobody has one done sooner than with the truth, if the
    /// others tell the truth.
    #[test]
    fn no_lie_has_a_part_done_sooner(
        phases in arb_phases(), guarantee in arb_guarantee(), told in proptest::option::of(0.1f64..12.0),
    ) {
        let honest = run(guarantee, &phases).ends;
        let mut phases = phases;
        phases[0].told = told;
        let ends = run(guarantee, &phases).ends;
        for (target, (end, honest)) in ends[0].iter().zip(honest[0]).enumerate() {
            prop_assert!(*end >= honest - ROUNDING_S, "at {target}: {end}, with the truth {honest}");
        }
    }

    /// Theorem 6: whoever comes back sooner has the weight of one still, so everybody is done by the time at which fair sharing
    /// with a queue for each application would have him done.
    #[test]
    fn with_accounts_nobody_is_late_for_those_who_come_back(
        applications in arb_applications(), guarantee in arb_guarantee(),
    ) {
        let came = closed_loop(guarantee, &applications);
        for (at, (phases, fair)) in came.iter().zip(fair_queues(&applications, &came)).enumerate() {
            for (number, ((_, end), fair)) in phases.iter().zip(fair).enumerate() {
                prop_assert!(*end <= fair + ROUNDING_S, "phase {number} of {at}: {end}, fair {fair}");
            }
        }
    }
}

#[test]
fn a_phase_of_the_same_application_is_another_one() {
    let targets = Arc::new(Targets::new([("t", 1.0)]).unwrap());
    let app = |name: &str, began: u64, bytes: u64| {
        let demand = Demand { target: targets.index("t").unwrap(), remaining: Some(Bytes(bytes)) };
        App { demands: vec![demand], began: Nanos::from_secs(began), ..App::new(name, []) }
    };
    let mut scheme = FairFinish::new(0.0, Rate::new(10).unwrap()).unwrap();
    let mut decide = |now: u64, apps: Vec<App>| {
        let problem = Problem::new(targets.clone(), apps).unwrap();
        let allocation = scheme.allocate(Nanos::from_secs(now), &problem);
        problem.apps().iter().map(|app| allocation.rate(&app.name, "t")).collect::<Vec<f64>>()
    };
    assert_eq!(decide(0, vec![app("a", 0, 10), app("b", 0, 20)]), [1.0, 0.0]);
    // a is done and back: in the fair clock b has had half a second, and needs 1.5 more; a needs 2.
    assert_eq!(decide(1, vec![app("a", 1, 20), app("b", 0, 20)]), [0.0, 1.0]);
    assert_eq!(decide(3, vec![app("a", 1, 20)]), [1.0]);
    let problem = Problem::new(targets.clone(), vec![app("a", 1, 20)]).unwrap();
    assert_eq!(pofs(&problem, Progress::Banked).rate("a", "t"), 1.0);
}
