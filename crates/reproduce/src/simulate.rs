//! Runs of the simulator that can be stopped.

use crate::run::{Context, Stopped};
use isonomia_sim::request::{Outcome, Scenario, run};
use std::ops::ControlFlow;

/// Runs it request by request, unless the context is told to stop.
pub fn simulate(scenario: &Scenario, context: &Context) -> Result<Outcome, Stopped> {
    let outcome = run(scenario, &mut |_| match context.go_on() {
        Ok(()) => ControlFlow::Continue(()),
        Err(Stopped) => ControlFlow::Break(()),
    });
    if outcome.interrupted { Err(Stopped) } else { Ok(outcome) }
}
