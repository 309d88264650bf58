//! Simulations at request level in which Python decides whose request goes next, step by step.
//!
//! The engine runs in a thread of its own, and each of its arbiters asks through one channel and waits for the answer on
//! another. When Python lets go of the engine, both are closed: the arbiters then serve the oldest, and the run is
//! broken off.

use crate::simulation::load;
use crate::{json, refuse};
use isonomia_policy::{Arbiter, EnqueueError, Next, QUEUED_MAX, Request, RequestId};
use isonomia_sim::request::{self, Scenario};
use isonomia_sim::scenario;
use isonomia_sim::study::Outcome;
use isonomia_units::{JobId, JobInfo, Nanos};
use pyo3::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often Python is asked whether the user wants to go on.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// A request that waits: its number, its job, the time it takes of the target in nanoseconds, its bytes.
type Waiting = (u64, String, u64, u64);
/// A target that is free: its name, when, and what waits there in the order of arrival.
type Turn = (String, u64, Vec<Waiting>);

/// What arbiters have in common.
struct Link {
    turns: SyncSender<Turn>,
    choices: Receiver<Option<u64>>,
    /// Nobody is there to ask any more.
    is_over: Arc<AtomicBool>,
}

/// An arbiter that asks.
struct Asking {
    target: String,
    jobs: BTreeMap<JobId, JobInfo>,
    queue: Vec<Request>,
    link: Arc<Mutex<Link>>,
}

impl Asking {
    /// The index of the request that goes next.
    fn choose(&self, now: Nanos) -> usize {
        let name = |job: &JobId| self.jobs.get(job).map_or_else(String::new, |info| info.name.to_string());
        let waiting = |request: &Request| (request.id.0, name(&request.job), request.cost.0, request.bytes.0);
        let turn = (self.target.clone(), now.0, self.queue.iter().map(waiting).collect());
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = link.turns.send(turn).ok().and_then(|()| link.choices.recv().ok());
        link.is_over.fetch_or(answer.is_none(), Ordering::Relaxed);
        // If nobody was chosen it is the oldest.
        answer.flatten().and_then(|id| self.queue.iter().position(|request| request.id.0 == id)).unwrap_or(0)
    }
}

impl Arbiter for Asking {
    fn set_job(&mut self, _now: Nanos, job: JobId, info: &JobInfo) {
        self.jobs.insert(job, info.clone());
    }

    fn remove_job(&mut self, _now: Nanos, job: JobId) -> Vec<Request> {
        self.jobs.remove(&job);
        self.queue.extract_if(.., |request| request.job == job).collect()
    }

    fn enqueue(&mut self, _now: Nanos, request: Request) -> Result<(), EnqueueError> {
        if !self.jobs.contains_key(&request.job) {
            return Err(EnqueueError::UnknownJob { job: request.job, request: request.id });
        }
        if self.queue.len() >= QUEUED_MAX {
            return Err(EnqueueError::QueueFull { job: request.job, request: request.id });
        }
        self.queue.push(request);
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        if self.queue.is_empty() {
            return Next::Idle;
        }
        let at = self.choose(now);
        Next::Dispatch(self.queue.remove(at))
    }

    fn complete(&mut self, _now: Nanos, _request: RequestId, _job: JobId) {}

    fn cancel(&mut self, _now: Nanos, request: RequestId, job: JobId) -> bool {
        let found = self.queue.iter().position(|queued| queued.id == request && queued.job == job);
        found.map(|at| self.queue.remove(at)).is_some()
    }

    fn queued(&self) -> usize {
        self.queue.len()
    }

    fn queued_of(&self, job: JobId) -> usize {
        self.queue.iter().filter(|request| request.job == job).count()
    }

    fn shares(&self, _now: Nanos) -> Vec<(JobId, f64)> {
        Vec::new()
    }

    fn drain(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.queue)
    }
}

/// A simulation that waits for Python at every turn.
#[pyclass(module = "isonomia._native")]
pub struct Stepping {
    /// Both until the end.
    choices: Option<SyncSender<Option<u64>>>,
    turns: Option<Mutex<Receiver<Turn>>>,
    engine: Option<std::thread::JoinHandle<request::Outcome>>,
    /// Somebody was asked and has not answered.
    is_asked: bool,
    outcome: Option<String>,
}

#[pymethods]
impl Stepping {
    /// A scenario at request level without a sweep: the text, or the file.
    #[new]
    fn new(file: &str, text: Option<&str>, seed: Option<u64>) -> PyResult<Self> {
        let (_, scenarios) = load(file, text, seed)?;
        let mut points = scenarios.points.into_iter();
        let (Some(point), None) = (points.next(), points.next()) else {
            return Err(refuse(format!("{file}: a sweep (allowed: one scenario)")));
        };
        let scenario::Scenario::Request { scenario, .. } = point.scenario else {
            return Err(refuse(format!("{file}: level \"fluid\" (allowed: \"request\", which arbiters are for)")));
        };
        // One at a time: the engine goes on only after the answer.
        let (turns, told) = sync_channel(1);
        let (choices, chosen) = sync_channel(1);
        let engine = std::thread::spawn(move || run(&scenario, turns, chosen));
        Ok(Self {
            choices: Some(choices),
            turns: Some(Mutex::new(told)),
            engine: Some(engine),
            is_asked: false,
            outcome: None,
        })
    }

    /// Answers the last turn, if there was one, and goes on to the next: nothing at the end.
    fn step(&mut self, py: Python<'_>, choice: Option<u64>) -> PyResult<Option<Turn>> {
        let (Some(choices), Some(turns)) = (&self.choices, &self.turns) else { return Ok(None) };
        if std::mem::replace(&mut self.is_asked, true) {
            // The engine waits for it; if it is gone, the next line says so.
            let _ = choices.send(choice);
        }
        let receive = || turns.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SIGNALS_EVERY);
        loop {
            match py.detach(receive) {
                Ok(turn) => return Ok(Some(turn)),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        (self.choices, self.turns) = (None, None);
        if let Some(Ok(outcome)) = self.engine.take().map(std::thread::JoinHandle::join) {
            self.outcome = Some(json(&Outcome::Request(outcome))?);
        }
        Ok(None)
    }

    /// What came out, as JSON, once there are no more turns.
    fn outcome(&self) -> Option<&str> {
        self.outcome.as_deref()
    }
}

fn run(scenario: &Scenario, turns: SyncSender<Turn>, choices: Receiver<Option<u64>>) -> request::Outcome {
    let is_over = Arc::new(AtomicBool::new(false));
    let link = Arc::new(Mutex::new(Link { turns, choices, is_over: is_over.clone() }));
    let made = Cell::new(0);
    let build = |_: &_, _, _, _| -> Box<dyn Arbiter> {
        // Arbiters are made in the order of the targets.
        let target = scenario.targets.get(made.replace(made.get() + 1)).map_or_else(String::new, |it| it.name.clone());
        Box::new(Asking { target, jobs: BTreeMap::new(), queue: Vec::new(), link: link.clone() })
    };
    let go_on = |over| if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    request::run_with(scenario, &build, &mut |_| go_on(is_over.load(Ordering::Relaxed)))
}
