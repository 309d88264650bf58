//! A scheme of one's own: the application with the fewest nodes has every target that it wants to itself.

use isonomia_allocation::{Allocation, Problem, Progress};
use isonomia_sim::fluid::{Decide, Decisions, Scenario, SchemeError, SchemeSpec, population::Population, run, run_with};
use isonomia_units::{Nanos, Rate};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

struct FewestNodesFirst;

impl Decide for FewestNodesFirst {
    fn allocate(&mut self, _now: Nanos, problem: &Problem) -> Result<Allocation, SchemeError> {
        let mut order: Vec<usize> = (0..problem.apps().len()).collect();
        order.sort_by_key(|&app| problem.apps()[app].nodes);
        let mut given = BTreeSet::new();
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); order.len()];
        for app in order {
            let demands = problem.apps()[app].demands.iter();
            rates[app] = demands.map(|demand| if given.insert(demand.target) { 1.0 } else { 0.0 }).collect();
        }
        Allocation::of_rates(problem, rates.concat(), Progress::Banked).map_err(|error| SchemeError::Own(error.to_string()))
    }
}

fn main() -> Result<(), SchemeError> {
    let population = Population { duration: Nanos::from_secs(86_400), ..Population::gift(100) };
    let scenario = Scenario {
        duration: population.duration,
        interval: Nanos::from_secs(10),
        decisions: Decisions::Event,
        scheme: SchemeSpec::Pofs(Progress::Banked),
        targets: population.targets,
        bandwidth: Rate::new(102_000_000).expect("not zero"),
        nodes: population.nodes,
        estimate: 1.5,
        misprediction: 1.0,
        applications: population.draw(1).into(),
    };
    let shared = run(&scenario, &mut |_| ControlFlow::Continue(()))?;
    let own = run_with(&scenario, &mut FewestNodesFirst, &mut |_| ControlFlow::Continue(()))?;
    println!("time in I/O: {:.1} s under fair shares, {:.1} s under one's own scheme", shared.io_s(), own.io_s());
    println!("phases later than in their fair clocks: {:.1} %", 100.0 * own.late());
    Ok(())
}
