//! Running the points of a scenario file: on all cores, in any order, with the same results.

use crate::fluid::{self, SchemeError};
use crate::request;
use crate::scenario::{Point, Scenario};
use isonomia_units::Nanos;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

/// A point, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// Its number in the sweep, from 0.
    pub point: usize,
    /// Of the scenario and what was set in it: results of another one are not mixed up with these.
    pub fingerprint: String,
    /// Path and value of each swept setting.
    pub settings: Vec<(String, String)>,
    /// What happened.
    pub outcome: Outcome,
}

/// What happened, at the level of the scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "level", rename_all = "kebab-case")]
pub enum Outcome {
    /// Request by request.
    Request(request::Outcome),
    /// Applications and rates.
    Fluid(fluid::Outcome),
}

impl Outcome {
    /// Whether it was broken off.
    pub fn is_interrupted(&self) -> bool {
        match self {
            Self::Request(outcome) => outcome.interrupted,
            Self::Fluid(outcome) => outcome.interrupted,
        }
    }
}

/// The part `index` of `count` parts of a sweep: every `count`th point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// From 0, below `count`.
    pub index: usize,
    /// At least 1.
    pub count: usize,
}

impl Slice {
    /// Everything.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Whether `point` belongs to it.
    pub fn contains(&self, point: usize) -> bool {
        point % self.count == self.index
    }
}

/// What identifies a point's result: FNV-1a of the scenario's text, the seed given beside it, and the settings.
pub fn fingerprint(text: &str, seed: Option<u64>, settings: &[(String, String)]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |text: &str| {
        for byte in text.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    add(text);
    add(&seed.map_or_else(String::new, |seed| seed.to_string()));
    for (name, value) in settings {
        add(name);
        add(value);
    }
    format!("{hash:016x}")
}

/// Runs one point; `observe` is told the part that is done, 0 to 1, and can break it off.
///
/// # Errors
/// An allocation scheme cannot decide.
pub fn run_point(point: &Point, observe: &mut dyn FnMut(f64) -> ControlFlow<()>) -> Result<Outcome, SchemeError> {
    match &point.scenario {
        Scenario::Request { scenario, slowdown } => Ok(Outcome::Request(run_request(scenario, *slowdown, observe))),
        Scenario::Fluid(scenario) => {
            let part = |now: Nanos| now.0 as f64 / scenario.duration.0 as f64;
            fluid::run(scenario, &mut |now| observe(part(now))).map(Outcome::Fluid)
        }
    }
}

fn run_request(
    scenario: &request::Scenario,
    slowdown: bool,
    observe: &mut dyn FnMut(f64) -> ControlFlow<()>,
) -> request::Outcome {
    let comparisons = if slowdown && scenario.jobs.len() > 1 { scenario.jobs.len() } else { 0 };
    let runs = (1 + comparisons) as f64;
    let part = |run: usize, now: Nanos| (run as f64 + now.0 as f64 / scenario.duration.0 as f64) / runs;
    let mut outcome = request::run(scenario, &mut |now| observe(part(0, now)));
    for job in 0..comparisons {
        if outcome.interrupted {
            break;
        }
        let alone = request::run(&scenario.alone(job), &mut |now| observe(part(1 + job, now)));
        outcome.interrupted = alone.interrupted;
        let (shared, alone) = (&mut outcome.jobs[job], &alone.jobs[0]);
        shared.slowdown = match (shared.elapsed_ns, alone.elapsed_ns) {
            (Some(shared), Some(alone)) if alone > 0 => Some(shared as f64 / alone as f64),
            (None, None) if shared.requests > 0 => Some(alone.requests as f64 / shared.requests as f64),
            _ => None,
        };
    }
    outcome
}

/// Runs the points with the given numbers on `threads` threads. `done` hears of each as it ends, in any order, and
/// of progress in between: the sum over all running points of the part that is done. Once `stop` is set, running
/// points break off and are left out.
pub fn run_points(
    points: &[Point],
    numbers: &[usize],
    threads: usize,
    stop: &AtomicBool,
    done: &mut dyn FnMut(Progress),
) {
    let next = AtomicUsize::new(0);
    let parts: Vec<Mutex<f64>> = numbers.iter().map(|_| Mutex::new(0.0)).collect();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, numbers.len().max(1)) {
            let sender = sender.clone();
            let (next, parts) = (&next, &parts);
            scope.spawn(move || {
                while let Some((at, number)) = take(next, numbers) {
                    let outcome = run_point(&points[number], &mut |part| {
                        *parts[at].lock().unwrap_or_else(PoisonError::into_inner) = part;
                        // Nobody listens once the caller has given up.
                        let _ = sender.send(None);
                        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    });
                    *parts[at].lock().unwrap_or_else(PoisonError::into_inner) = 1.0;
                    let _ = sender.send(Some((number, outcome)));
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for message in receiver {
            match message {
                None => {
                    let sum = parts.iter().map(|part| *part.lock().unwrap_or_else(PoisonError::into_inner)).sum();
                    done(Progress::Part(sum));
                }
                Some((number, outcome)) => done(Progress::Done(number, Box::new(outcome))),
            }
        }
    });
}

fn take(next: &AtomicUsize, numbers: &[usize]) -> Option<(usize, usize)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    numbers.get(at).map(|number| (at, *number))
}

/// How far a sweep is.
#[derive(Debug)]
pub enum Progress {
    /// Points done, with parts of those that run.
    Part(f64),
    /// A point and its outcome.
    Done(usize, Box<Result<Outcome, SchemeError>>),
}
