//! Problems for the tests: the paper's example, and random ones.

#![allow(dead_code, reason = "each test program uses a part")]

use isonomia_allocation::{App, Demand, Problem, Targets};
use isonomia_units::Bytes;
use proptest::prelude::*;
use std::sync::Arc;

/// The decision instances k1, k2 and k3 of GIFT Fig. 6.
pub fn fig6(instance: u32) -> Problem {
    let targets = Arc::new(Targets::new([("t1", 1.0), ("t2", 1.0)]).unwrap());
    let app = |name: &str, at: &[&str]| App::at(name, &targets, at).unwrap();
    let mut apps = vec![app("A", &["t1"]), app("B", &["t1", "t2"])];
    if instance > 1 {
        apps.push(app("C", &["t1"]));
        apps.extend(["D", "E", "F"].map(|name| app(name, &["t2"])));
    }
    Problem::new(targets, apps).unwrap()
}

/// A random problem.
#[derive(Clone, Debug)]
pub struct Case {
    pub capacities: Vec<f64>,
    pub apps: Vec<CaseApp>,
    pub guarantee: f64,
}

/// An application of a [`Case`].
#[derive(Clone, Debug)]
pub struct CaseApp {
    /// Bytes at each target; 0 where it has nothing to do. Not all are 0.
    pub volumes: Vec<u64>,
    pub weight: f64,
    pub arrival: f64,
    pub user: u8,
    pub nodes: u32,
    pub throttle_friendly: Option<bool>,
}

impl Case {
    pub fn targets(&self) -> Arc<Targets> {
        let named = self.capacities.iter().enumerate().map(|(at, &capacity)| (format!("t{at:03}"), capacity));
        Arc::new(Targets::new(named).unwrap())
    }

    /// All applications at once, whatever their arrivals.
    pub fn problem(&self) -> Problem {
        self.problem_of(|_| true)
    }

    /// The applications that `is_in`, by position.
    pub fn problem_of(&self, is_in: impl Fn(usize) -> bool) -> Problem {
        let targets = self.targets();
        let app = |(at, case): (usize, &CaseApp)| {
            let demand =
                |(target, &bytes): (_, &u64)| (bytes > 0).then_some(Demand { target, remaining: Some(Bytes(bytes)) });
            App {
                demands: targets.iter().zip(&case.volumes).filter_map(demand).collect(),
                weight: case.weight,
                user: Some(format!("u{}", case.user).into()),
                nodes: case.nodes,
                throttle_friendly: case.throttle_friendly,
                ..App::new(format!("a{at:03}"), [])
            }
        };
        let apps = self.apps.iter().enumerate().filter(|(at, _)| is_in(*at)).map(app).collect();
        Problem::new(targets.clone(), apps).unwrap()
    }
}

/// 1 to 7 applications on 1 to 5 targets.
pub fn arb_case() -> impl Strategy<Value = Case> {
    (1_usize..6, 1_usize..8).prop_flat_map(|(targets, apps)| arb_case_of(targets, apps))
}

/// `apps` applications on `targets` targets; a third of their demands is at any one.
pub fn arb_case_of(targets: usize, apps: usize) -> impl Strategy<Value = Case> {
    let capacity = prop_oneof![3 => Just(1.0), 1 => 0.25_f64..2.0];
    let volume = prop_oneof![Just(0_u64), 1_u64..200];
    let weight = prop_oneof![3 => Just(1.0), 1 => 0.5_f64..4.0];
    let arrival = prop_oneof![Just(0.0), 0.0_f64..300.0];
    let friendly = prop_oneof![Just(None), Just(Some(true)), Just(Some(false))];
    let app = (prop::collection::vec(volume, targets), 0..targets, weight, arrival, 0_u8..3, 1_u32..20, friendly);
    let app = app.prop_map(|(mut volumes, always, weight, arrival, user, nodes, throttle_friendly)| {
        volumes[always] = volumes[always].max(1);
        CaseApp { volumes, weight, arrival, user, nodes, throttle_friendly }
    });
    let parts = (prop::collection::vec(capacity, targets), prop::collection::vec(app, apps), 0.0_f64..=1.0);
    parts.prop_map(|(capacities, apps, guarantee)| Case { capacities, apps, guarantee })
}

/// The same problem with its applications and their demands in another order.
pub fn permuted(problem: &Problem, seed: u64) -> Problem {
    let mut apps = problem.apps().to_vec();
    let mut state = seed | 1;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for at in (1..apps.len()).rev() {
        apps.swap(at, below(at + 1));
    }
    apps.iter_mut().for_each(|app| app.demands.reverse());
    Problem::new(problem.targets().clone(), apps).unwrap()
}
