//! Runs of the simulator that can be stopped.

use crate::run::{Context, Stopped};
use isonomia_sim::request::{Build, Outcome, Scenario, run_with};
use std::ops::ControlFlow;

/// Runs it request by request, unless the context is told to stop.
pub fn simulate(scenario: &Scenario, context: &Context) -> Result<Outcome, Stopped> {
    simulate_with(scenario, &isonomia_policy::build, context)
}

/// The same with arbiters that `build` makes.
pub fn simulate_with(scenario: &Scenario, build: &Build, context: &Context) -> Result<Outcome, Stopped> {
    let outcome = run_with(scenario, build, &mut |_| match context.go_on() {
        Ok(()) => ControlFlow::Continue(()),
        Err(Stopped) => ControlFlow::Break(()),
    });
    if outcome.interrupted { Err(Stopped) } else { Ok(outcome) }
}
