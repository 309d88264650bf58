//! POFS, BSIP, and coflow: the worked examples, feasibility, work conservation, and the bound on the slowdown.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;

use cases::{Case, arb_case, fig6, permuted};
use isonomia_allocation::{Allocation, App, Coflow, Demand, Order, Problem, Progress, bsip, pofs};
use isonomia_units::Bytes;
use proptest::prelude::*;

const ORDERS: [Order; 4] = [Order::Bottleneck, Order::Attained, Order::Slowdown, Order::Bssf];

fn shares(allocation: &Allocation) -> Vec<f64> {
    allocation.apps().iter().map(|app| app.share).collect()
}

#[test]
fn pofs_and_bsip_waste_half_of_the_second_target_of_fig_6() {
    let problem = fig6(1);
    for allocation in [bsip(&problem), pofs(&problem, Progress::MinRate)] {
        assert_eq!(shares(&allocation), [0.5, 0.5]);
        assert_eq!(allocation.effective_bandwidth(), 1.5);
        assert_eq!(allocation.target_uses()[1].wasted, 0.5);
    }
    let banked = pofs(&problem, Progress::Banked);
    assert_eq!(banked.rate("B", "t2"), 1.0);
    assert_eq!(banked.effective_bandwidth(), 2.0);
    assert_eq!(bsip(&problem).rate("B", "t2"), 0.5);
}

#[test]
fn coflow_keeps_the_guarantee_and_serves_in_order() {
    let mut apps = fig6(1).apps().to_vec();
    let remaining = [40, 30];
    for (app, bytes) in apps.iter_mut().zip(remaining) {
        app.demands.iter_mut().for_each(|demand| demand.remaining = Some(Bytes(bytes)));
    }
    let problem = Problem::new(fig6(1).targets().clone(), apps).unwrap();
    let coflow = Coflow::new(0.5, Order::Bottleneck).unwrap();
    assert_eq!(coflow.order(&problem).unwrap().iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["B", "A"]);
    let allocation = coflow.allocate(&problem).unwrap();
    assert_eq!(shares(&allocation), [0.25, 0.75]);
    assert_eq!((allocation.rate("B", "t1"), allocation.rate("B", "t2")), (0.75, 1.0));
    assert_eq!(allocation.effective_bandwidth(), 2.0);
    let error = coflow.allocate(&fig6(1)).unwrap_err().to_string();
    assert!(error.contains("`A`") && error.contains("`t1`") && error.contains("bottleneck"), "{error}");
    assert!(Coflow::new(1.1, Order::Attained).is_err() && Coflow::new(f64::NAN, Order::Attained).is_err());
}

/// The bottleneck is t1 with 9; C has the most there for its weight, 4, and goes last. That scales the weights to
/// 1 - 2/4 for A and 1 - 3/4 for B. Then it is t2 with 8, where 0.25/3 for B is less than 0.5/5 for A.
#[test]
fn bssf_orders_from_the_last() {
    let targets = fig6(1).targets().clone();
    let app = |name: &str, bytes: &[(&str, u64)]| {
        let at = |&(target, bytes): &(&str, u64)| Demand {
            target: targets.index(target).unwrap(),
            remaining: Some(Bytes(bytes)),
        };
        App { demands: bytes.iter().map(at).collect(), ..App::new(name, []) }
    };
    let apps = vec![app("A", &[("t1", 2), ("t2", 5)]), app("B", &[("t1", 3), ("t2", 3)]), app("C", &[("t1", 4)])];
    let problem = Problem::new(targets.clone(), apps).unwrap();
    let order = Coflow::new(0.0, Order::Bssf).unwrap().order(&problem).unwrap();
    assert_eq!(order.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["A", "B", "C"]);
}

proptest! {
    #[test]
    fn targets_are_never_overbooked_and_banked_schemes_use_them_all(case in arb_case()) {
        let problem = case.problem();
        let coflow = |order| Coflow::new(case.guarantee, order).unwrap().allocate(&problem).unwrap();
        let banked: Vec<Allocation> = ORDERS.into_iter().map(coflow).chain([pofs(&problem, Progress::Banked)]).collect();
        for allocation in banked {
            for (target, used) in allocation.target_uses().into_iter().enumerate() {
                let index = problem.targets().index(&used.name).unwrap();
                let capacity = problem.targets().capacity(index);
                let is_wanted = case.apps.iter().any(|app| app.volumes[target] > 0);
                let due = if is_wanted { capacity } else { 0.0 };
                prop_assert!((used.used - due).abs() < 1e-9, "{} of {}", used.used, due);
            }
        }
        for used in bsip(&problem).target_uses() {
            let index = problem.targets().index(&used.name).unwrap();
            prop_assert!(used.used <= problem.targets().capacity(index) + 1e-9);
        }
    }

    #[test]
    fn coflow_never_goes_below_the_guarantee(case in arb_case()) {
        let problem = case.problem();
        let fair = pofs(&problem, Progress::Banked);
        for order in ORDERS {
            let allocation = Coflow::new(case.guarantee, order).unwrap().allocate(&problem).unwrap();
            for app in problem.apps() {
                for ((_, rate), (_, fair)) in allocation.rates(&app.name).zip(fair.rates(&app.name)) {
                    prop_assert!(rate >= case.guarantee * fair - 1e-12);
                }
            }
        }
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(case in arb_case(), seed in any::<u64>()) {
        let (problem, other) = (case.problem(), permuted(&case.problem(), seed));
        prop_assert_eq!(bsip(&problem), bsip(&other));
        prop_assert_eq!(pofs(&problem, Progress::Banked), pofs(&other, Progress::Banked));
        for order in ORDERS {
            let coflow = Coflow::new(case.guarantee, order).unwrap();
            prop_assert_eq!(coflow.allocate(&problem), coflow.allocate(&other));
        }
    }

    /// No phase ends later than under POFS on targets of `guarantee` times the speed.
    #[test]
    fn a_phase_takes_at_most_its_fair_share_time_over_the_guarantee(case in arb_case()) {
        let guarantee = case.guarantee.max(0.05);
        let slow = completions(&case, guarantee, |problem| pofs(problem, Progress::Banked));
        for order in ORDERS {
            let coflow = Coflow::new(guarantee, order).unwrap();
            let ours = completions(&case, 1.0, |problem| coflow.allocate(problem).unwrap());
            for (ours, bound) in ours.iter().zip(&slow) {
                prop_assert!(*ours <= bound * (1.0 + 1e-6) + 1e-6, "{order}: {ours} > {bound}");
            }
        }
    }
}

/// When each application of `case` is done, in a fluid run with targets of `speed` bytes per unit of time and a
/// decision whenever somebody comes or is done somewhere.
fn completions(case: &Case, speed: f64, decide: impl Fn(&Problem) -> Allocation) -> Vec<f64> {
    let targets = case.targets();
    let mut left: Vec<Vec<f64>> = case.apps.iter().map(|app| app.volumes.iter().map(|&v| v as f64).collect()).collect();
    let mut done = vec![0.0; case.apps.len()];
    let mut now = 0.0;
    loop {
        let mut apps = Vec::new();
        let mut next_arrival = f64::INFINITY;
        for (at, app) in case.apps.iter().enumerate().filter(|(at, _)| left[*at].iter().any(|&left| left > 0.0)) {
            if app.arrival > now {
                next_arrival = app.arrival.min(next_arrival);
                continue;
            }
            let served = app.volumes.iter().sum::<u64>() as f64 - left[at].iter().sum::<f64>();
            let demand = |(target, &left): (_, &f64)| {
                (left > 0.0).then(|| Demand { target, remaining: Some(Bytes(left.ceil() as u64)) })
            };
            let demands = targets.iter().zip(&left[at]).filter_map(demand).collect();
            let attained = Bytes(served as u64);
            apps.push(App { demands, weight: app.weight, attained, ..App::new(format!("a{at:03}"), []) });
        }
        if apps.is_empty() && next_arrival.is_infinite() {
            return done;
        }
        let allocation = decide(&Problem::new(targets.clone(), apps).unwrap());
        let rates: Vec<(usize, usize, f64)> = (0..case.apps.len())
            .flat_map(|at| {
                let rates: Vec<_> = allocation.rates(&format!("a{at:03}")).collect();
                rates.into_iter().map(move |(target, rate)| (at, target, rate * speed))
            })
            .map(|(at, target, rate)| (at, targets.iter().position(|other| other == target).unwrap(), rate))
            .collect();
        let ends = rates.iter().filter(|rate| rate.2 > 0.0).map(|&(at, target, rate)| left[at][target] / rate);
        let step = ends.fold(next_arrival - now, f64::min);
        now += step;
        for (at, target, rate) in rates {
            left[at][target] -= rate * step;
            if left[at][target] < 1e-6 {
                left[at][target] = 0.0;
                done[at] = now;
            }
        }
    }
}
