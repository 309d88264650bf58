//! The events of a fluid run.

mod alone;
mod replay;
mod whole;

use super::backfill::{self, Running, Waiting};
use super::lateness::{FairTimes, Lateness};
use super::outcome::{ApplicationOutcome, ClosedOutcome, GiftDay, GiftOutcome, Outcome, PhaseTimes};
use super::single::{Discipline, Single};
use super::{Decisions, Run, Scenario, SchemeError};
use isonomia_allocation::{ClosedClock, Decide, Progress, SchemeSpec, Sizes, TargetIndex, Targets};
use isonomia_policy::SizeHistory;
use isonomia_units::Nanos;
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
    /// Something happens in the clock of the closed system.
    Clock,
    /// A target decides anew, if its last decision is still this one.
    Change { target: u16, decision: u64 },
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
    /// When it was submitted, or its last I/O phase ended.
    idle_since: Nanos,
    io_time: Nanos,
    /// By which factor the phase's volume is told wrongly; `None` if nothing is told.
    told: Option<f64>,
    /// Targets that decide for themselves and are not done with the phase.
    parts: usize,
    /// What is left at each of the run's targets, in seconds at full rate; empty outside of I/O, and where targets decide
    /// for themselves.
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
    scheme: Option<&'a mut dyn Decide>,
    /// The targets, if each decides for itself.
    singles: Vec<Single>,
    /// What leads their clocks, if it is that of the closed system, and when its next event is scheduled.
    closed: Option<ClosedClock<u32>>,
    /// When phases begin there, by application, if that is replayed; it is not known of those that did not begin.
    replayed: Option<Vec<PhaseTimes>>,
    clock_at: Nanos,
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
    /// Who has nodes, by when the scheduler takes him to end.
    running: BTreeSet<(Nanos, u32)>,
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
    /// When I/O phases began and ended, by application, if that is asked for.
    times: Option<Vec<PhaseTimes>>,
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
    with_engine(scenario, |engine| simulate(engine, observe))
}

/// The same, with the times of each application's I/O phases, in the scenario's order.
///
/// # Errors
/// The scheme cannot decide.
pub fn run_with_times(
    scenario: &Scenario,
    observe: &mut dyn FnMut(Nanos) -> ControlFlow<()>,
) -> Result<(Outcome, Vec<PhaseTimes>), SchemeError> {
    with_engine(scenario, |engine| {
        engine.times = Some(vec![PhaseTimes::default(); scenario.applications.len()]);
        let outcome = simulate(engine, observe)?;
        Ok((outcome, engine.times.take().unwrap_or_default()))
    })
}

fn with_engine<R>(
    scenario: &Scenario,
    run: impl FnOnce(&mut Engine) -> Result<R, SchemeError>,
) -> Result<R, SchemeError> {
    if scenario.decisions == Decisions::Event && Discipline::of(&scenario.scheme)?.is_some() {
        return run(&mut Engine::new(scenario, None)?);
    }
    let mut scheme = scenario.scheme.start(scenario.bandwidth)?;
    run(&mut Engine::new(scenario, Some(&mut scheme))?)
}

/// The same with a scheme of one's own instead of the scenario's, which says how sizes are told and no more.
///
/// # Errors
/// The scheme cannot decide.
pub fn run_with(
    scenario: &Scenario,
    scheme: &mut dyn Decide,
    observe: &mut dyn FnMut(Nanos) -> ControlFlow<()>,
) -> Result<Outcome, SchemeError> {
    simulate(&mut Engine::new(scenario, Some(scheme))?, observe)
}

fn simulate(engine: &mut Engine, observe: &mut dyn FnMut(Nanos) -> ControlFlow<()>) -> Result<Outcome, SchemeError> {
    let scenario = engine.scenario;
    let mut now = Nanos::ZERO;
    let mut events = 0u64;
    let mut interrupted = engine.replay(observe)?;
    while !interrupted && let Some(Reverse((at, _, event))) = engine.events.pop() {
        if at > scenario.duration {
            now = scenario.duration;
            break;
        }
        now = at;
        engine.handle(now, event)?;
        events += 1;
        if events.is_multiple_of(OBSERVED_EVERY) && observe(engine.observed(now)).is_break() {
            interrupted = true;
        }
    }
    Ok(engine.outcome(now, interrupted))
}

impl<'a> Engine<'a> {
    fn new(scenario: &'a Scenario, scheme: Option<&'a mut dyn Decide>) -> Result<Self, SchemeError> {
        let mut singles = Vec::new();
        for _ in 0..if scheme.is_none() { scenario.targets } else { 0 } {
            singles.extend(Discipline::of(&scenario.scheme)?.map(Single::new));
        }
        let names = (0..scenario.targets).map(|target| (format!("{target:05}"), 1.0));
        let targets = Arc::new(Targets::new(names).expect("names that differ, and capacities of 1"));
        let applications = scenario.applications.len();
        let mut engine = Self {
            scenario,
            scheme,
            closed: matches!(scenario.scheme, SchemeSpec::FairFinish { clock, .. } if clock.is_led())
                .then(|| ClosedClock::new(singles.len())),
            replayed: None,
            clock_at: Nanos::MAX,
            singles,
            history: SizeHistory::default(),
            lateness: Lateness::new(scenario.targets, applications),
            days: Vec::new(),
            times: None,
            indices: targets.iter().collect(),
            targets,
            events: BinaryHeap::new(),
            sequence: 0,
            jobs: (0..applications).map(|_| None).collect(),
            sums: vec![Sums::default(); applications],
            queue: VecDeque::new(),
            free_nodes: scenario.nodes,
            running: BTreeSet::new(),
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
                    idle_since: now,
                    io_time: Nanos::ZERO,
                    told: None,
                    parts: 0,
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
            Event::Change { target, decision } if decision == self.singles[usize::from(target)].decision() => {
                self.advance_target(now, target);
                self.decide_at(now, target);
            }
            Event::Change { .. } => {}
            Event::Clock if self.clock_at == now => self.clock_at = Nanos::MAX,
            Event::Clock => {}
            Event::Decide => {
                if self.decide_at == Some(now) {
                    self.decide_at = None;
                    self.decide(now)?;
                }
            }
        }
        self.schedule_clock(now);
        Ok(())
    }

    /// Starts what the scheduler wants started.
    fn start_jobs(&mut self, now: Nanos) {
        // As long as the first fits nobody has to be looked at.
        while let Some(&app) = self.queue.front()
            && self.scenario.applications[app as usize].nodes <= self.free_nodes
        {
            self.queue.pop_front();
            self.start(now, app);
        }
        if self.queue.len() < 2 || self.free_nodes == 0 {
            return;
        }
        let applications = &self.scenario.applications;
        let job = |&(end, app): &(Nanos, u32)| Running { nodes: applications[app as usize].nodes, end };
        let running = self.running.iter().map(job);
        let waiting: Vec<Waiting> = self
            .queue
            .iter()
            .take(backfill::DEPTH_MAX + 1)
            .map(|&app| Waiting { nodes: applications[app as usize].nodes, length: self.estimate(app) })
            .collect();
        let starts = backfill::starts(now, self.free_nodes, running, &waiting);
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
        self.running.insert((estimated_end, app));
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
            Sizes::None => {
                let least = self.history.expect_class(&application.name);
                least.map(|least| least as f64 / volume.0 as f64)
            }
        };
        self.lateness.begin(now, app, application.weight, &run.targets, volume_s);
        if let Some(times) = &mut self.times {
            times[app as usize].began.push(now);
        }
        let is_alone = !self.singles.is_empty();
        let job = self.job(app);
        job.told = told;
        job.io_began = now;
        if is_alone {
            job.parts = run.targets.len();
            self.come(now, app, &run.targets, volume_s, told);
            return;
        }
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
        job.idle_since = now;
        let (phase, io_time, lasted) = (job.phase, job.io_time, now.since(job.started));
        self.counts.done_target_s += rest;
        self.lateness.end(now, app);
        if let Some(closed) = &mut self.closed {
            closed.end(now, app, &mut self.singles);
        }
        if let Some(times) = &mut self.times {
            times[app as usize].ended.push(now);
        }
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
            if let Some(job) = self.jobs[app as usize].take() {
                self.running.remove(&(job.estimated_end, app));
            }
            self.free_nodes += nodes;
            self.counts.jobs_done += 1;
            self.counts.node_ns += u128::from(nodes) * u128::from(lasted.0);
            self.counts.node_hours_done += f64::from(nodes) * lasted.as_secs_f64() / 3600.0;
            if let Some(next) = self.scenario.applications[app as usize].runs.get(run_index + 1) {
                self.schedule(next.submit.max(now), Event::Submit { app });
            }
            self.start_jobs(now);
        }
        if self.scenario.decisions == Decisions::Event && self.singles.is_empty() {
            self.ask(now);
        }
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

    fn outcome(&mut self, now: Nanos, interrupted: bool) -> Outcome {
        let in_io: Vec<u32> = self.in_io.iter().copied().collect();
        for app in in_io {
            self.advance(now, app);
        }
        for single in &mut self.singles {
            self.counts.done_target_s += single.advance(now, |_| {});
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
        let gift = self.scheme.as_ref().and_then(|scheme| scheme.ledger()).map(|ledger| {
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
        let closed = self.closed.as_ref().map(|closed| closed.ended());
        Outcome {
            gift,
            closed: closed.map(|ended| ClosedOutcome { phases: ended.phases, late_phases: ended.late }),
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
