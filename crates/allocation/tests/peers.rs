//! AdapTBF and CALCioM: rates that targets can give, work conservation and records where they are claimed, and the choice that
//! loses least.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;

use cases::{Case, arb_case, permuted};
use isonomia_allocation::{
    AdapTbf, AdapTbfConfig, Allocation, App, Calciom, Demand, Problem, Progress, Strategy as Choice,
};
use isonomia_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;

const CHOICES: [Choice; 4] = [Choice::Serialize, Choice::Interrupt, Choice::Interfere, Choice::Dynamic];

/// Between two decisions.
const STEP_S: f64 = 10.0;
/// More than the fewest bytes of a grant whose use is seen, as the rates of [`play`] are cut to whole bytes.
const SEEN_BYTES: f64 = 5000.0;

/// The applications of a case, each from its arrival on, with what `left` says to remain.
fn at(case: &Case, now_s: f64, left: &[Vec<u64>]) -> Problem {
    let targets = case.targets();
    let app = |(at, app): (usize, &cases::CaseApp)| {
        let demand = |(target, &bytes)| (bytes > 0).then_some(Demand { target, remaining: Some(Bytes(bytes)) });
        App {
            demands: targets.iter().zip(&left[at]).filter_map(demand).collect(),
            weight: app.weight,
            nodes: app.nodes,
            began: Nanos((app.arrival * 1e9) as u64),
            ..App::new(format!("a{at:03}"), [])
        }
    };
    let apps = case.apps.iter().enumerate().filter(|(_, app)| app.arrival <= now_s).map(app);
    Problem::new(targets.clone(), apps.filter(|app| !app.demands.is_empty()).collect()).unwrap()
}

/// What a target gives in all, and to how many.
fn given(problem: &Problem, allocation: &Allocation, target: isonomia_allocation::TargetIndex) -> (f64, usize, usize) {
    let rates = problem.apps().iter().filter_map(|app| allocation.rates(&app.name).find(|(at, _)| *at == target));
    rates.fold((0.0, 0, 0), |(sum, served, there), (_, rate)| (sum + rate, served + usize::from(rate > 0.0), there + 1))
}

/// Decides every ten seconds until everybody is done or a bound is reached, and calls `check` with each decision.
fn play(
    case: &Case,
    mut decide: impl FnMut(Nanos, &Problem) -> Allocation,
    mut check: impl FnMut(&Problem, &Allocation),
) {
    let mut left: Vec<Vec<u64>> =
        case.apps.iter().map(|app| app.volumes.iter().map(|bytes| bytes * 1_000_000).collect()).collect();
    for step in 0..200 {
        let now_s = step as f64 * STEP_S;
        let problem = at(case, now_s, &left);
        let allocation = decide(Nanos((now_s * 1e9) as u64), &problem);
        check(&problem, &allocation);
        for app in problem.apps() {
            let at: usize = app.name[1..].parse().unwrap();
            let slowest = allocation.app(&app.name).unwrap().share;
            for (target, rate) in allocation.rates(&app.name) {
                let rate = if allocation.progress() == Progress::MinRate { slowest } else { rate };
                let left = &mut left[at][problem.targets().position(target)];
                *left = left.saturating_sub((rate * STEP_S * 1e6) as u64);
            }
        }
    }
}

fn progress(is_banked: bool) -> Progress {
    if is_banked { Progress::Banked } else { Progress::MinRate }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tokens_are_those_that_there_are_and_records_add_up_to_nothing(case in arb_case(), is_banked: bool) {
        let bandwidth = Rate::new(1_000_000).unwrap();
        let reclaim = case.guarantee;
        let config = AdapTbfConfig { reclaim, progress: progress(is_banked), ..AdapTbfConfig::default() };
        let scheme = std::cell::RefCell::new(AdapTbf::new(config, bandwidth).unwrap());
        let targets = case.targets();
        let mut before = None;
        play(&case, |now, problem| scheme.borrow_mut().allocate(now, problem), |problem, allocation| {
            for target in targets.iter() {
                let (sum, _, there) = given(problem, allocation, target);
                let due = if there > 0 { targets.capacity(target) } else { 0.0 };
                assert!((sum - due).abs() < 1e-9, "{sum} of {due}");
                let position = targets.position(target);
                let records: f64 = (0..case.apps.len()).map(|at| scheme.borrow().record(&format!("a{at:03}"), position)).sum();
                assert!(records.abs() < 1e-6, "{records}");
            }
            // Who used all of his grant keeps, whatever he owes, his part of what he is entitled to. A grant of next to nothing,
            // which a debtor may be left with, does not tell what he wants: he is seen by his next one.
            for app in problem.apps() {
                let used = |target| before.as_ref().is_some_and(|before: &Allocation| {
                    let rate = before.rates(&app.name).find(|(at, _)| *at == target).map(|(_, rate)| rate);
                    rate.is_some_and(|rate| rate * STEP_S * 1e6 >= SEEN_BYTES && (is_banked || before.app(&app.name).unwrap().share >= rate))
                });
                for (target, rate) in allocation.rates(&app.name).filter(|(target, _)| used(*target)) {
                    let there = problem.apps().iter().filter(|other| other.demands.iter().any(|d| d.target == target));
                    let nodes: f64 = there.map(|other| f64::from(other.nodes)).sum();
                    let entitled = targets.capacity(target) * f64::from(app.nodes) / nodes;
                    assert!(rate >= (1.0 - config.reclaim) * entitled - 1e-9, "{rate} of {entitled}");
                }
            }
            before = Some(allocation.clone());
        });
    }

    #[test]
    fn one_has_a_target_at_a_time_and_somebody_always_has(case in arb_case(), is_banked: bool) {
        for choice in CHOICES {
            let mut scheme = Calciom::new(choice, progress(is_banked));
            play(&case, |_, problem| scheme.allocate(problem).unwrap(), |problem, allocation| {
                let mut is_shared = false;
                for target in problem.targets().iter() {
                    let (sum, served, _) = given(problem, allocation, target);
                    assert!(sum <= problem.targets().capacity(target) * (1.0 + 1e-9));
                    is_shared |= served > 1;
                }
                assert!(!is_shared || matches!(choice, Choice::Interfere | Choice::Dynamic));
                assert!(problem.apps().is_empty() || allocation.apps().iter().any(|app| app.share > 0.0));
            });
        }
    }

    /// First come, first served: whoever comes later changes nothing for those who are there.
    #[test]
    fn serialized_nobody_is_delayed_by_who_comes_later(case in arb_case()) {
        let all = std::cell::RefCell::new(Vec::new());
        let mut scheme = Calciom::new(Choice::Serialize, Progress::Banked);
        play(&case, |_, problem| scheme.allocate(problem).unwrap(), |_, allocation| {
            all.borrow_mut().push(allocation.clone());
        });
        let last = case.apps.iter().enumerate().max_by(|a, b| a.1.arrival.total_cmp(&b.1.arrival).then(a.0.cmp(&b.0)));
        let (gone, _) = last.unwrap();
        let mut fewer = case.clone();
        fewer.apps[gone].volumes.fill(0);
        let mut scheme = Calciom::new(Choice::Serialize, Progress::Banked);
        let mut step = 0;
        play(&fewer, |_, problem| scheme.allocate(problem).unwrap(), |problem, allocation| {
            for app in problem.apps() {
                assert!(allocation.rates(&app.name).eq(all.borrow()[step].rates(&app.name)));
            }
            step += 1;
        });
    }

    #[test]
    fn results_do_not_depend_on_the_order_of_applications(case in arb_case(), seed: u64) {
        let problem = case.problem();
        let again = permuted(&problem, seed);
        for choice in CHOICES {
            let of = |problem| Calciom::new(choice, Progress::MinRate).allocate(problem).unwrap();
            assert_eq!(of(&problem), of(&again));
        }
        let of = |problem| AdapTbf::new(AdapTbfConfig::default(), Rate::new(1).unwrap()).unwrap().allocate(Nanos::ZERO, problem);
        assert_eq!(of(&problem), of(&again));
    }
}
