//! The events of a fluid run.

use super::backfill::{self, Running, Waiting};
use super::lateness::{FairTimes, Lateness};
use super::outcome::{ApplicationOutcome, GiftDay, GiftOutcome, Outcome};
use super::scheme::{Scheme, Sizes};
use super::{Decisions, Run, Scenario, SchemeError};
use isonomia_allocation::{App, Demand, Problem, Progress, TargetIndex, Targets};
use isonomia_policy::SizeHistory;
use isonomia_units::{Bytes, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Events between two calls of the observer.
pub const OBSERVED_EVERY: u64 = 1 << 10;
/// A volume of less than this many seconds at full rate is a rounding error.
const NOTHING_S: f64 = 1e-9;
const DAY: Nanos = Nanos::from_secs(86_400);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An application's next run is submitted.
    Submit { app: u32 },
    /// An application's run has computed and begins I/O.
    BeginIo { app: u32 },
    /// An I/O phase ends, if rates are still those of this decision.
    EndIo { app: u32, decision: u64 },
    /// Rates are decided anew.
    Decide,
}

/// An application's current run.
struct Job {
    run: usize,
    submitted: Nanos,
    started: Nanos,
    /// When the scheduler takes it to end.
    estimated_end: Nanos,
    phase: usize,
    io_began: Nanos,
    io_time: Nanos,
    /// By which factor the phase's volume is told wrongly; `None` if nothing is told.
    told: Option<f64>,
    /// What is left at each of the run's targets, in seconds at full rate; empty outside of I/O.
    left_s: Vec<f64>,
    /// Rates at the same targets, parts of one, since `rated`.
    rates: Vec<f64>,
    rated: Nanos,
}

/// Sums over an application's runs.
#[derive(Clone, Default)]
struct Sums {
    runs: u64,
    started: u64,
    phases: u64,
    io: Nanos,
    run: Nanos,
    wait: Nanos,
    phase: Nanos,
    slowdown: f64,
    slowdown_max: f64,
}

struct Engine<'a> {
    scenario: &'a Scenario,
    scheme: Scheme,
    history: SizeHistory,
    lateness: Lateness,
    targets: Arc<Targets>,
    indices: Vec<TargetIndex>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    jobs: Vec<Option<Job>>,
    sums: Vec<Sums>,
    queue: VecDeque<u32>,
    free_nodes: u32,
    /// In an I/O phase, by application.
    in_io: BTreeSet<u32>,
    progress: Progress,
    decision: u64,
    decide_at: Option<Nanos>,
    /// Who is in I/O, or at which targets, is not what it was at the last decision.
    is_changed: bool,
    /// The next time at which somebody is done at a target.
    change_at: Nanos,
    counts: Counts,
    /// GIFT's accounts, day by day.
    days: Vec<GiftDay>,
}

#[derive(Default)]
struct Counts {
    since: Nanos,
    targets_asked: usize,
    asked_target_s: f64,
    active_s: f64,
    done_target_s: f64,
    node_ns: u128,
    node_hours_done: f64,
    jobs_done: u64,
}

/// Runs `scenario` to its end, or until `observe`, which is told the time every [`OBSERVED_EVERY`] events, breaks
/// it off. A decision is O(d) for d demands of those in I/O, beside the scheme's own.
///
/// # Errors
/// The scheme cannot decide.
pub fn run(scenario: &Scenario, observe: &mut dyn FnMut(Nanos) -> ControlFlow<()>) -> Result<Outcome, SchemeError> {
    let mut engine = Engine::new(scenario)?;
    let mut now = Nanos::ZERO;
    let mut events = 0u64;
    let mut interrupted = false;
    while let Some(Reverse((at, _, event))) = engine.events.pop() {
        if at > scenario.duration {
            now = scenario.duration;
            break;
        }
        now = at;
        engine.handle(now, event)?;
        events += 1;
        if events.is_multiple_of(OBSERVED_EVERY) && observe(now).is_break() {
            interrupted = true;
            break;
        }
    }
    Ok(engine.outcome(now, interrupted))
}

impl<'a> Engine<'a> {
    fn new(scenario: &'a Scenario) -> Result<Self, SchemeError> {
        let names = (0..scenario.targets).map(|target| (format!("{target:05}"), 1.0));
        let targets = Arc::new(Targets::new(names).expect("names that differ, and capacities of 1"));
        let applications = scenario.applications.len();
        let mut engine = Self {
            scenario,
            scheme: scenario.scheme.start(scenario.bandwidth)?,
            history: SizeHistory::default(),
            lateness: Lateness::new(scenario.targets, applications),
            days: Vec::new(),
            indices: targets.iter().collect(),
            targets,
            events: BinaryHeap::new(),
            sequence: 0,
            jobs: (0..applications).map(|_| None).collect(),
            sums: vec![Sums::default(); applications],
            queue: VecDeque::new(),
            free_nodes: scenario.nodes,
            in_io: BTreeSet::new(),
            progress: Progress::MinRate,
            decision: 0,
            decide_at: None,
            is_changed: false,
            change_at: Nanos::MAX,
            counts: Counts::default(),
        };
        for (app, application) in scenario.applications.iter().enumerate() {
            if let Some(run) = application.runs.first() {
                engine.schedule(run.submit, Event::Submit { app: app as u32 });
            }
        }
        Ok(engine)
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn run_of(&self, app: u32, run: usize) -> &'a Run {
        &self.scenario.applications[app as usize].runs[run]
    }

    fn job(&mut self, app: u32) -> &mut Job {
        self.jobs[app as usize].as_mut().expect("an event of a job that runs")
    }

    fn handle(&mut self, now: Nanos, event: Event) -> Result<(), SchemeError> {
        match event {
            Event::Submit { app } => {
                let run = self.sums[app as usize].runs as usize;
                self.jobs[app as usize] = Some(Job {
                    run,
                    submitted: now,
                    started: now,
                    estimated_end: now,
                    phase: 0,
                    io_began: now,
                    io_time: Nanos::ZERO,
                    told: None,
                    left_s: Vec::new(),
                    rates: Vec::new(),
                    rated: now,
                });
                self.queue.push_back(app);
                self.start_jobs(now);
            }
            Event::BeginIo { app } => self.begin_io(now, app),
            Event::EndIo { app, decision } if decision == self.decision => self.end_io(now, app),
            Event::EndIo { .. } => {}
            Event::Decide => {
                if self.decide_at == Some(now) {
                    self.decide_at = None;
                    self.decide(now)?;
                }
            }
        }
        Ok(())
    }

    /// Starts what the scheduler wants started.
    fn start_jobs(&mut self, now: Nanos) {
        if self.queue.is_empty() || self.free_nodes == 0 {
            return;
        }
        let applications = &self.scenario.applications;
        let running = |(app, job): (usize, &Option<Job>)| {
            let job = job.as_ref()?;
            (job.estimated_end > job.started)
                .then_some(Running { nodes: applications[app].nodes, end: job.estimated_end })
        };
        let running: Vec<Running> = self.jobs.iter().enumerate().filter_map(running).collect();
        let waiting: Vec<Waiting> = self
            .queue
            .iter()
            .take(backfill::DEPTH_MAX + 1)
            .map(|&app| Waiting { nodes: applications[app as usize].nodes, length: self.estimate(app) })
            .collect();
        let starts = backfill::starts(now, self.free_nodes, &running, &waiting);
        for at in starts.into_iter().rev() {
            if let Some(app) = self.queue.remove(at) {
                self.start(now, app);
            }
        }
    }

    fn estimate(&self, app: u32) -> Nanos {
        let run = self.jobs[app as usize].as_ref().map_or(0, |job| job.run);
        let alone = self.run_of(app, run).alone();
        Nanos((alone.0 as f64 * self.scenario.estimate) as u64).max(Nanos(1))
    }

    fn start(&mut self, now: Nanos, app: u32) {
        let estimated_end = now + self.estimate(app);
        let run = self.job(app).run;
        let compute = self.run_of(app, run).phases[0].compute;
        self.free_nodes -= self.scenario.applications[app as usize].nodes;
        let job = self.job(app);
        job.started = now;
        job.estimated_end = estimated_end;
        let waited = now.since(job.submitted);
        let sums = &mut self.sums[app as usize];
        sums.started += 1;
        sums.wait += waited;
        self.schedule(now + compute, Event::BeginIo { app });
    }

    fn begin_io(&mut self, now: Nanos, app: u32) {
        let run = self.job(app).run;
        let run = self.run_of(app, run);
        let application = &self.scenario.applications[app as usize];
        let phase = self.job(app).phase;
        let volume = run.phases[phase].io;
        let volume_s = volume.as_secs_f64();
        let told = match self.scenario.scheme.sizes() {
            Sizes::Declared => Some(misprediction(self.scenario.misprediction, app, self.job(app))),
            Sizes::History => {
                let expected = self.history.expect(&application.name);
                expected.map(|expected| expected.size as f64 / volume.0 as f64)
            }
            Sizes::None => None,
        };
        self.lateness.begin(now, app, application.weight, &run.targets, volume_s);
        let job = self.job(app);
        job.told = told;
        job.io_began = now;
        job.left_s = vec![volume_s; run.targets.len()];
        job.rates = vec![0.0; run.targets.len()];
        job.rated = now;
        self.in_io.insert(app);
        self.is_changed = true;
        self.ask(now);
    }

    fn end_io(&mut self, now: Nanos, app: u32) {
        self.advance(now, app);
        self.in_io.remove(&app);
        self.is_changed = true;
        let run_index = self.job(app).run;
        let run = self.run_of(app, run_index);
        let nodes = self.scenario.applications[app as usize].nodes;
        let job = self.job(app);
        let took = now.since(job.io_began);
        let volume = run.phases[job.phase].io;
        let slowdown = took.0 as f64 / volume.0 as f64;
        // What rounding left undone counts as done.
        let rest: f64 = job.left_s.drain(..).sum();
        job.io_time += took;
        job.phase += 1;
        let (phase, io_time, lasted) = (job.phase, job.io_time, now.since(job.started));
        self.counts.done_target_s += rest;
        self.lateness.end(now, app);
        self.history.record(&self.scenario.applications[app as usize].name, volume.0);
        let sums = &mut self.sums[app as usize];
        sums.phases += 1;
        sums.phase += took;
        sums.slowdown += slowdown;
        sums.slowdown_max = sums.slowdown_max.max(slowdown);
        if let Some(next) = run.phases.get(phase) {
            self.schedule(now + next.compute, Event::BeginIo { app });
        } else {
            sums.runs += 1;
            sums.io += io_time;
            sums.run += lasted;
            self.jobs[app as usize] = None;
            self.free_nodes += nodes;
            self.counts.jobs_done += 1;
            self.counts.node_ns += u128::from(nodes) * u128::from(lasted.0);
            self.counts.node_hours_done += f64::from(nodes) * lasted.as_secs_f64() / 3600.0;
            if let Some(next) = self.scenario.applications[app as usize].runs.get(run_index + 1) {
                self.schedule(next.submit.max(now), Event::Submit { app });
            }
            self.start_jobs(now);
        }
        if self.scenario.decisions == Decisions::Event {
            self.ask(now);
        }
    }

    /// A decision is due: at once, or at the next multiple of the interval.
    fn ask(&mut self, now: Nanos) {
        let at = match self.scenario.decisions {
            Decisions::Event => now,
            Decisions::Interval => {
                Nanos(now.0.div_ceil(self.scenario.interval.0).saturating_mul(self.scenario.interval.0))
            }
        };
        if self.decide_at.is_none_or(|decide_at| at < decide_at) {
            self.decide_at = Some(at);
            self.schedule(at, Event::Decide);
        }
    }

    /// Moves what the rates have moved since they were set.
    fn advance(&mut self, now: Nanos, app: u32) {
        let progress = self.progress;
        let job = self.job(app);
        let seconds = now.since(job.rated).as_secs_f64();
        job.rated = now;
        let slowest = slowest(job);
        let mut done = 0.0;
        for (left, rate) in job.left_s.iter_mut().zip(&job.rates) {
            let rate = if progress == Progress::MinRate { slowest } else { *rate };
            let moved = (rate * seconds).min(*left);
            *left -= moved;
            done += moved;
            if *left < NOTHING_S {
                done += std::mem::take(left);
            }
        }
        self.counts.done_target_s += done;
    }

    fn decide(&mut self, now: Nanos) -> Result<(), SchemeError> {
        self.count(now);
        let is_same = !self.is_changed && now < self.change_at;
        if self.in_io.is_empty() {
            self.counts.targets_asked = 0;
            self.scheme.rest(now, &self.targets);
            return Ok(());
        }
        if !(is_same && self.scheme.is_steady()) {
            self.allocate(now)?;
        }
        match self.scenario.decisions {
            Decisions::Interval => self.ask(now + Nanos(1)),
            Decisions::Event if self.change_at < Nanos::MAX => {
                self.decide_at = Some(self.change_at);
                self.schedule(self.change_at, Event::Decide);
            }
            Decisions::Event => {}
        }
        Ok(())
    }

    /// Adds up what was asked for since the last time.
    fn count(&mut self, now: Nanos) {
        let counts = &mut self.counts;
        let seconds = now.since(counts.since).as_secs_f64();
        counts.since = now;
        counts.asked_target_s += counts.targets_asked as f64 * seconds;
        if counts.targets_asked > 0 {
            counts.active_s += seconds;
        }
    }

    fn allocate(&mut self, now: Nanos) -> Result<(), SchemeError> {
        for app in self.in_io.iter().copied().collect::<Vec<u32>>() {
            self.advance(now, app);
            // Its end is at this very moment, and its event would come too late.
            if self.job(app).left_s.iter().all(|left| *left == 0.0) {
                self.end_io(now, app);
            }
        }
        let active: Vec<u32> = self.in_io.iter().copied().collect();
        let mut asked = vec![false; self.indices.len()];
        let apps = active.iter().map(|&app| self.describe(now, app, &mut asked)).collect();
        let problem = Problem::new(self.targets.clone(), apps).expect("applications by different names, with demands");
        let allocation = self.scheme.allocate(now, &problem)?;
        self.note_coupons(now);
        self.progress = allocation.progress();
        self.decision += 1;
        self.is_changed = false;
        self.change_at = self.scheme.next_change().unwrap_or(Nanos::MAX);
        self.counts.targets_asked = asked.iter().filter(|asked| **asked).count();
        for app in active {
            let application = &self.scenario.applications[app as usize];
            let job = self.jobs[app as usize].as_mut().expect("it is in I/O");
            let (run, indices) = (&application.runs[job.run], &self.indices);
            job.rates.fill(0.0);
            let mut rates = allocation.rates(&application.name).peekable();
            for (target, rate) in run.targets.iter().zip(&mut job.rates) {
                let index = indices[usize::from(*target)];
                if let Some((_, given)) = rates.next_if(|(at, _)| *at == index) {
                    *rate = given;
                }
            }
            let (next, end) = ends(job, self.progress);
            self.change_at = self.change_at.min(next);
            if end < Nanos::MAX {
                self.schedule(end, Event::EndIo { app, decision: self.decision });
            }
        }
        Ok(())
    }

    /// The application as schemes see it.
    fn describe(&self, now: Nanos, app: u32, asked: &mut [bool]) -> App {
        let application = &self.scenario.applications[app as usize];
        let job = self.jobs[app as usize].as_ref().expect("it is in I/O");
        let run = self.run_of(app, job.run);
        let volume_s = run.phases[job.phase].io.as_secs_f64();
        let rate = self.scenario.bandwidth.bytes_per_s() as f64;
        let bytes = |seconds: f64| Bytes((seconds * rate).ceil() as u64);
        let told = |seconds: f64| job.told.map(|wrong| Bytes(((seconds * rate * wrong).ceil() as u64).max(1)));
        let mut demands = Vec::with_capacity(run.targets.len());
        let mut left_total = 0.0;
        let mut left_most = 0.0f64;
        for (&target, &left) in run.targets.iter().zip(&job.left_s) {
            left_total += left;
            left_most = left_most.max(left);
            // A target that is done with this application is still one that it holds for its phase.
            asked[usize::from(target)] = true;
            if left > 0.0 {
                demands.push(Demand { target: self.indices[usize::from(target)], remaining: told(left) });
            }
        }
        App {
            demands,
            weight: application.weight,
            nodes: application.nodes,
            runs: self.sums[app as usize].started,
            attained: bytes((volume_s * run.targets.len() as f64 - left_total).max(0.0)),
            // If it were served alone from now on.
            began: job.io_began,
            slowdown: (now.since(job.io_began).as_secs_f64() + left_most) / volume_s,
            ..App::new(application.name.clone(), [])
        }
    }

    /// Keeps what GIFT owed at most in the course of each day, and what it had issued and paid by its end.
    fn note_coupons(&mut self, now: Nanos) {
        let Some(total) = self.scheme.ledger().map(|ledger| *ledger.total()) else { return };
        let day = now.0 / DAY.0;
        if self.days.last().is_none_or(|last| last.day < day) {
            self.days.push(GiftDay { day, ..GiftDay::default() });
        }
        if let Some(last) = self.days.last_mut() {
            last.issued_target_s = total.issued.targets() * self.scenario.interval.as_secs_f64();
            last.outstanding_node_hours_max = last.outstanding_node_hours_max.max(total.regret.node_hours());
            last.paid_node_hours = total.paid.node_hours();
        }
    }

    fn outcome(mut self, now: Nanos, interrupted: bool) -> Outcome {
        let in_io: Vec<u32> = self.in_io.iter().copied().collect();
        for app in in_io {
            self.advance(now, app);
        }
        self.count(now);
        let lateness = self.lateness.finish(now);
        let counts = &self.counts;
        let mut node_ns = counts.node_ns;
        for (job, application) in self.jobs.iter().zip(self.scenario.applications.iter()) {
            if let Some(job) = job.as_ref().filter(|job| job.estimated_end > job.started) {
                node_ns += u128::from(application.nodes) * u128::from(now.since(job.started).0);
            }
        }
        let part = |value: f64, of: f64| if of > 0.0 { value / of } else { 0.0 };
        let mean = |sum: Nanos, count: u64| part(sum.as_secs_f64(), count as f64);
        let application =
            |((application, sums), fair): ((&super::Application, &Sums), &FairTimes)| ApplicationOutcome {
                application: application.name.to_string(),
                nodes: application.nodes,
                runs: sums.runs,
                phases: sums.phases,
                io_phase_s: mean(sums.phase, sums.phases),
                io_slowdown: part(sums.slowdown, sums.phases as f64),
                io_slowdown_max: sums.slowdown_max,
                io_s: mean(sums.io, sums.runs),
                run_s: mean(sums.run, sums.runs),
                wait_s: mean(sums.wait, sums.started),
                judged_phases: fair.judged,
                late_phases: fair.late,
                io_over_fair: part(fair.over_fair, fair.judged as f64),
                io_over_fair_max: fair.over_fair_max,
            };
        let interval_s = self.scenario.interval.as_secs_f64();
        let gift = self.scheme.ledger().map(|ledger| {
            let total = ledger.total();
            GiftOutcome {
                issued_target_s: total.issued.targets() * interval_s,
                redeemed_target_s: total.redeemed.targets() * interval_s,
                compensated_target_s: total.compensated.targets() * interval_s,
                outstanding_target_s: total.outstanding.targets() * interval_s,
                outstanding_node_hours: total.regret.node_hours(),
                paid_node_hours: total.paid.node_hours(),
                days: self.days.clone(),
            }
        });
        Outcome {
            gift,
            ended_ns: now.0,
            interrupted,
            decisions: self.decision,
            jobs_done: counts.jobs_done,
            node_utilization: part(node_ns as f64, f64::from(self.scenario.nodes) * now.0 as f64),
            io_target_s: counts.done_target_s,
            effective_bandwidth: part(counts.done_target_s, counts.asked_target_s),
            effective_bandwidth_of_all: part(counts.done_target_s, counts.active_s * f64::from(self.scenario.targets)),
            node_hours_done: counts.node_hours_done,
            applications: self.scenario.applications.iter().zip(&self.sums).zip(&lateness).map(application).collect(),
        }
    }
}

/// The factor by which a phase's volume is told wrongly: log-uniform, and drawn by what the phase is, so that it is
/// the same at every decision and under every scheme.
fn misprediction(most: f64, app: u32, job: &Job) -> f64 {
    if most <= 1.0 {
        return 1.0;
    }
    let phase = u64::from(app) << 40 ^ (job.run as u64) << 16 ^ job.phase as u64;
    most.powf(2.0 * Pcg32::seed_from_u64(phase).random::<f64>() - 1.0)
}

fn slowest(job: &Job) -> f64 {
    let working = job.rates.iter().zip(&job.left_s).filter(|(_, left)| **left > 0.0);
    working.map(|(rate, _)| *rate).fold(f64::INFINITY, f64::min).min(1.0)
}

/// When the job is done at the next of its targets, and at all of them.
fn ends(job: &Job, progress: Progress) -> (Nanos, Nanos) {
    let slowest = slowest(job);
    let (mut first, mut last) = (Nanos::MAX, Nanos::ZERO);
    for (left, rate) in job.left_s.iter().zip(&job.rates).filter(|(left, _)| **left > 0.0) {
        let rate = if progress == Progress::MinRate { slowest } else { *rate };
        let end = if rate > 0.0 { job.rated + Nanos((left / rate * 1e9).ceil() as u64) } else { Nanos::MAX };
        first = first.min(end);
        last = last.max(end);
    }
    (first, last)
}
