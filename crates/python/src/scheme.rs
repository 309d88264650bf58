//! Schemes of one's own at fluid level: Python is asked at every decision.

use crate::simulation::load;
use crate::{json, refuse};
use isonomia_allocation::{Allocation, Problem, Progress};
use isonomia_sim::fluid::{Decide, SchemeError, run_with};
use isonomia_sim::scenario::Scenario;
use isonomia_sim::study::Outcome;
use isonomia_units::Nanos;
use pyo3::prelude::*;
use std::ops::ControlFlow;

/// What is left at a target, by its number: bytes, or nothing if they are unknown.
type Demand = (usize, Option<u64>);
/// Name, nodes, weight, runs, bytes received in this phase, slowdown, when the phase began in seconds, and its demands.
type App = (String, u32, f64, u64, u64, f64, f64, Vec<Demand>);

/// A function `(now_s, apps) -> rates`, one rate for each demand, application by application.
struct Asked<'py> {
    decide: Bound<'py, PyAny>,
    progress: Progress,
    is_steady: bool,
    /// What Python raised.
    raised: Option<PyErr>,
}

impl Decide for Asked<'_> {
    fn allocate(&mut self, now: Nanos, problem: &Problem) -> Result<Allocation, SchemeError> {
        let app = |app: &isonomia_allocation::App| -> App {
            let demands = app
                .demands
                .iter()
                .map(|demand| (problem.targets().position(demand.target), demand.remaining.map(|bytes| bytes.0)));
            let began_s = app.began.as_secs_f64();
            let demands = demands.collect();
            (app.name.to_string(), app.nodes, app.weight, app.runs, app.attained.0, app.slowdown, began_s, demands)
        };
        let apps: Vec<App> = problem.apps().iter().map(app).collect();
        let rates = self.decide.call1((now.as_secs_f64(), apps)).and_then(|rates| rates.extract::<Vec<f64>>());
        let rates = rates.map_err(|error| {
            let text = error.to_string();
            self.raised = Some(error);
            SchemeError::Own(text)
        })?;
        Allocation::of_rates(problem, rates, self.progress).map_err(|error| SchemeError::Own(error.to_string()))
    }

    fn is_steady(&self) -> bool {
        self.is_steady
    }
}

/// Simulates a fluid scenario without a sweep (the text, or the file) under a scheme of one's own: the outcome as JSON.
#[pyfunction]
pub fn simulate_scheme(
    py: Python<'_>,
    file: &str,
    text: Option<&str>,
    seed: Option<u64>,
    decide: Bound<'_, PyAny>,
    is_banked: bool,
    is_steady: bool,
) -> PyResult<String> {
    let (_, scenarios) = load(file, text, seed)?;
    let [point] = &scenarios.points[..] else {
        return Err(refuse(format!("{file}: a sweep (allowed: one scenario, as a scheme of one's own may remember)")));
    };
    let Scenario::Fluid(scenario) = &point.scenario else {
        return Err(refuse(format!("{file}: level \"request\" (allowed: \"fluid\", which schemes are for)")));
    };
    let progress = if is_banked { Progress::Banked } else { Progress::MinRate };
    let mut asked = Asked { decide, progress, is_steady, raised: None };
    let mut interrupt = None;
    let outcome = run_with(scenario, &mut asked, &mut |_| match py.check_signals() {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            interrupt = Some(error);
            ControlFlow::Break(())
        }
    });
    match (asked.raised.or(interrupt), outcome) {
        (Some(error), _) => Err(error),
        (None, Ok(outcome)) => json(&Outcome::Fluid(outcome)),
        (None, Err(error)) => Err(refuse(error)),
    }
}
