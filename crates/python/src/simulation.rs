//! Simulations: all points of a scenario, or some of them, on all cores, until they are done or Ctrl-C.

use crate::{json, refuse};
use isonomia_sim::scenario::{self, Scenarios};
use isonomia_sim::source;
use isonomia_sim::study::{self, Outcome, PointResult, Progress, Slice};
use pyo3::prelude::*;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often Python is asked whether the user wants to go on.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn load(file: &str, text: Option<&str>, seed: Option<u64>) -> PyResult<(String, Scenarios)> {
    let path = Path::new(file);
    let text = match text {
        Some(text) => text.to_owned(),
        None => source::read(path).map_err(refuse)?,
    };
    let scenarios = scenario::parse(path, &text, seed).map_err(refuse)?;
    Ok((text, scenarios))
}

/// What is set in each point of a scenario's sweep, as JSON.
#[pyfunction]
pub fn scenario_points(py: Python<'_>, file: &str, text: Option<&str>) -> PyResult<String> {
    py.detach(|| {
        let (_, scenarios) = load(file, text, None)?;
        json(&scenarios.points.iter().map(|point| &point.settings).collect::<Vec<_>>())
    })
}

/// What each job of a request-level outcome had in each slice: job, bytes, nanoseconds of service.
type Slices = Vec<(String, Vec<u64>, Vec<u64>)>;

fn slices_of(outcome: &Outcome) -> Slices {
    let Outcome::Request(outcome) = outcome else { return Slices::new() };
    let jobs = outcome.jobs.iter();
    jobs.map(|job| (job.job.clone(), job.slice_bytes.clone(), job.slice_service_ns.clone())).collect()
}

/// Simulates a scenario (the text, or the file): results as JSON, each with its slices, of all points or of every
/// `part.1`th from `part.0` on.
#[pyfunction]
pub fn simulate(
    py: Python<'_>,
    file: &str,
    text: Option<&str>,
    seed: Option<u64>,
    part: (usize, usize),
    threads: Option<usize>,
) -> PyResult<String> {
    let slice = Slice { index: part.0, count: part.1 };
    if slice.index >= slice.count {
        return Err(refuse(format!("part {} of {} (allowed: from 0, below the number of parts)", part.0, part.1)));
    }
    py.detach(|| {
        let (text, scenarios) = load(file, text, seed)?;
        let points = &scenarios.points;
        let numbers: Vec<usize> = (0..points.len()).filter(|point| slice.contains(*point)).collect();
        let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let stop = AtomicBool::new(false);
        let mut results: Vec<(PointResult, Slices)> = Vec::new();
        let mut failure = None;
        let mut asked = Instant::now();
        study::run_points(points, &numbers, threads, &stop, &mut |progress| {
            if let Progress::Done(point, outcome) = progress {
                let settings = points[point].settings.clone();
                let fingerprint = study::fingerprint(&text, seed, &settings);
                match *outcome {
                    Ok(outcome) => {
                        let slices = slices_of(&outcome);
                        results.push((PointResult { point, fingerprint, settings, outcome }, slices));
                    }
                    Err(error) => failure = failure.take().or_else(|| Some(refuse(error))),
                }
            }
            if failure.is_none() && asked.elapsed() >= SIGNALS_EVERY {
                failure = Python::attach(|py| py.check_signals()).err();
                asked = Instant::now();
            }
            stop.fetch_or(failure.is_some(), Ordering::Relaxed);
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        results.sort_by_key(|(result, _)| result.point);
        json(&results)
    })
}
