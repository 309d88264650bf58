//! The events of a run, one after the other.

mod device;

use super::channels::State as ChannelsState;
use super::decided::{Controller, Told};
use super::events::{Event, Scheduled};
use super::exchange::{Rates, Servers};
use super::measure::{Completion, Measure, Outcome};
use super::processors::State as ProcessorsState;
use super::ranks::Ranks;
use super::{Channels, Device, Layout, Phase, Scenario};
use isonomia_policy::trace::Journal;
use isonomia_policy::{
    Action, Arbiter, CostLearner, CostModel, Dispatch, Dispatcher, Draw, Nature, PolicySpec, RequestId, Scheme,
    ServedBy, SharedIoNode, Submission, Tuning, build, build_on, with_fair_clock,
};
use isonomia_units::{Bytes, JobId, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::ControlFlow;

/// Events between two calls of the observer.
pub const OBSERVED_EVERY: u64 = 1 << 16;

/// So long after its last request a phase is over, whatever the tuning.
const LONG_AFTER: Nanos = Nanos::from_secs(86_400);

/// How arbiters are made: by a target's policy and draw, a seed, and its tuning.
pub type Build<'b> = dyn Fn(&PolicySpec, Draw, u64, Tuning) -> Box<dyn Arbiter> + 'b;

/// One process, or one of several requests that it has outstanding: a stream has one at a time.
struct Stream {
    job: u32,
    phase: u32,
    iteration: u64,
    /// Requests issued in this phase.
    issued: u64,
    /// Requests issued in all.
    total: u64,
    /// The dispatcher's name for its request, once its turn has come.
    id: RequestId,
    /// What its request is charged, and when it was issued, the device was given it, and a lane or a channel took it.
    cost: Nanos,
    issued_at: Nanos,
    begun_at: Nanos,
    taken_at: Nanos,
    random: Pcg32,
}

struct TargetState {
    dispatcher: Dispatcher<u32>,
    /// Of a device of channels.
    channels: ChannelsState,
    /// What was learnt of such a device, by access, if the policy divides its time.
    learners: Option<[CostLearner; 4]>,
    /// When it is asked again because of a hold.
    ask_at: Option<Nanos>,
    /// Places in an order over all targets that the controller has told it.
    placed: BTreeMap<JobId, u32>,
    random: Pcg32,
}

struct JobState {
    streams: u32,
    first_stream: u32,
    /// Streams that wait at the barrier.
    at_barrier: u32,
    done: u32,
    /// Cost by phase and by position among the job's targets.
    costs: Vec<Vec<Nanos>>,
}

struct Engine<'a> {
    scenario: &'a Scenario,
    events: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    streams: Vec<Stream>,
    targets: Vec<TargetState>,
    /// Of each server, if they are simulated.
    processors: Vec<ProcessorsState>,
    jobs: Vec<JobState>,
    exchange: Option<Servers>,
    rates: Option<Rates>,
    ranks: Option<Ranks>,
    controller: Option<Controller>,
    measure: Measure<'a>,
    decisions: u64,
}

/// Runs `scenario` to its end, or until `observe`, which is told the time every [`OBSERVED_EVERY`] events, breaks
/// it off. O(log n) an event, with n streams.
pub fn run(scenario: &Scenario, observe: &mut dyn FnMut(Nanos) -> ControlFlow<()>) -> Outcome {
    run_with(scenario, &build, observe)
}

/// The same, with every call of the arbiters noted in `journal`, in the form of a live server's record.
pub fn run_recorded(
    scenario: &Scenario,
    journal: &Journal,
    observe: &mut dyn FnMut(Nanos) -> ControlFlow<()>,
) -> Outcome {
    run_with(scenario, &|policy, draw, seed, tuning| journal.build(policy, draw, seed, tuning), observe)
}

/// The same, with arbiters that `build` makes: for policies that no live server has.
pub fn run_with(scenario: &Scenario, build: &Build, observe: &mut dyn FnMut(Nanos) -> ControlFlow<()>) -> Outcome {
    let mut engine = Engine::new(scenario, build);
    let mut now = Nanos::ZERO;
    let mut events = 0u64;
    let mut interrupted = false;
    while let Some(Reverse(Scheduled { at, event, .. })) = engine.events.pop() {
        if at > scenario.duration {
            now = scenario.duration;
            break;
        }
        now = at;
        engine.handle(now, event);
        events += 1;
        if events.is_multiple_of(OBSERVED_EVERY) && observe(now).is_break() {
            interrupted = true;
            break;
        }
    }
    let finished: Vec<bool> = engine.jobs.iter().map(|job| job.done == job.streams).collect();
    if scenario.fair_clock {
        for target in &mut engine.targets {
            // Phases that nothing followed have ended, too.
            engine.measure.count_phases(target.dispatcher.lateness(now + LONG_AFTER));
        }
    }
    let coupons = engine.controller.as_ref().and_then(Controller::coupons);
    Outcome { coupons, ..engine.measure.outcome(now, interrupted, engine.decisions, &finished) }
}

impl<'a> Engine<'a> {
    fn new(scenario: &'a Scenario, build: &Build) -> Self {
        let (mut exchange, mut ranks) = (None, None);
        if let Some((interval, target)) = scenario.exchange.zip(scenario.targets.first()) {
            if let Scheme::Coflow(coflow) = target.policy.scheme() {
                let (jobs, targets) = (scenario.jobs.len(), scenario.targets.len());
                ranks = Some(Ranks::new(coflow.order, target.tuning.active_window, jobs, targets));
            } else {
                let infos = scenario.jobs.iter().map(|job| job.info.clone());
                let server_of: Vec<usize> = scenario.targets.iter().map(|target| target.server).collect();
                let how = (scenario.exchange_rule, interval);
                exchange = Some(Servers::new(target.policy.clone(), how, scenario.servers.len(), &server_of, infos));
            }
        }
        let is_one_policy = scenario.targets.windows(2).all(|two| two[0].policy == two[1].policy);
        let policy = scenario.targets.first().map(|target| &target.policy).filter(|_| is_one_policy);
        let rates = policy.and_then(|policy| Some((policy, policy.rates()?))).map(|(policy, rules)| {
            let server_of: Vec<usize> = scenario.targets.iter().map(|target| target.server).collect();
            Rates::new(policy, rules, scenario.exchange, scenario.servers.len(), &server_of)
        });
        let controller = policy.zip(scenario.decide).and_then(|(policy, decide)| {
            let server_of: Vec<usize> = scenario.targets.iter().map(|target| target.server).collect();
            let infos = scenario.jobs.iter().map(|job| job.info.clone());
            Controller::new(policy, decide, scenario.servers.len(), &server_of, infos)
        });
        let mut nodes: BTreeMap<usize, SharedIoNode> = BTreeMap::new();
        let target = |(at, target): (usize, &super::Target)| {
            let bandwidth = target.device.cost_model().bandwidth;
            let tuning = Tuning { parallel: target.device.parallel(), bandwidth, ..target.tuning };
            let seed = scenario.seed.wrapping_add(at as u64);
            let mut arbiter = match target.policy.scheme() {
                // All targets of a server are one I/O node, which decides for itself.
                Scheme::Exclusive(settings) => {
                    let node = nodes.entry(target.server).or_insert_with(|| SharedIoNode::new(settings, 0));
                    build_on(Some(node), &target.policy, target.draw, seed, tuning)
                }
                _ => build(&target.policy, target.draw, seed, tuning),
            };
            if scenario.fair_clock {
                arbiter = with_fair_clock(arbiter, &target.policy, tuning);
            }
            let mut dispatcher = Dispatcher::new(arbiter, None, target.device.depth());
            dispatcher.set_divides_time(target.policy.divides_time());
            TargetState {
                dispatcher,
                channels: ChannelsState::default(),
                learners: (target.device.is_unknown() && target.policy.divides_time())
                    .then(|| [CostModel::nominal(); 4].map(CostLearner::new)),
                ask_at: None,
                placed: BTreeMap::new(),
                random: Pcg32::seed_from_u64(scenario.seed.wrapping_mul(0x9e37_79b9).wrapping_add(at as u64)),
            }
        };
        let targets = scenario.targets.iter().enumerate().map(target).collect();
        let mut engine = Self {
            scenario,
            events: BinaryHeap::new(),
            sequence: 0,
            streams: Vec::new(),
            targets,
            processors: scenario.servers.iter().map(|_| ProcessorsState::default()).collect(),
            jobs: Vec::new(),
            exchange,
            rates,
            ranks,
            controller,
            measure: Measure::new(scenario),
            decisions: 0,
        };
        engine.add_jobs();
        if let Some(interval) = engine.exchanged_every() {
            let begun = engine.rates.as_ref().map(Rates::begin).unwrap_or_default();
            for (target, parts) in begun {
                engine.targets[target].dispatcher.set_rate_parts(Nanos::ZERO, &parts);
            }
            engine.join(Nanos::ZERO);
            engine.schedule(interval, Event::Exchange);
        }
        if engine.controller.is_some() {
            engine.look(Nanos::ZERO);
        }
        engine
    }

    fn add_jobs(&mut self) {
        for (index, job) in self.scenario.jobs.iter().enumerate() {
            let first_stream = self.streams.len() as u32;
            let streams = job.processes * job.depth;
            self.schedule(job.start, Event::Start { job: index as u32 });
            for _ in 0..streams {
                let seed = self.scenario.seed.rotate_left(32) ^ self.streams.len() as u64;
                self.streams.push(Stream {
                    job: index as u32,
                    phase: 0,
                    iteration: 0,
                    issued: 0,
                    total: 0,
                    id: RequestId(0),
                    cost: Nanos::ZERO,
                    issued_at: Nanos::ZERO,
                    begun_at: Nanos::ZERO,
                    taken_at: Nanos::ZERO,
                    random: Pcg32::seed_from_u64(seed),
                });
            }
            let cost_of = |bytes: Bytes| {
                let cost = |target: &usize| self.scenario.targets[*target].device.cost_model().cost(bytes);
                job.targets.iter().map(cost).collect()
            };
            let costs = job.phases.iter().map(|phase| cost_of(phase.bytes())).collect();
            self.jobs.push(JobState { streams, first_stream, at_barrier: 0, done: 0, costs });
        }
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse(Scheduled { at, number: self.sequence, event }));
    }

    fn handle(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Start { job } => self.start(now, job),
            Event::Issue { stream } => self.issue(now, stream),
            Event::Processed { target, stream } => self.processed(now, target, stream),
            Event::Reach { target, stream } => self.reach(now, target, stream),
            Event::Transfer { target, stream } => self.transfer(now, target, stream),
            Event::Finish { target, stream } => self.finish(now, target, stream),
            Event::Ask { target } => {
                // Another request may have come meanwhile, and the time of asking have changed.
                if self.targets[target as usize].ask_at == Some(now) {
                    self.targets[target as usize].ask_at = None;
                    self.employ(now, target);
                }
            }
            Event::Exchange => {
                self.join(now);
                for told in self.ranks.as_mut().map(|ranks| ranks.join(now)).unwrap_or_default() {
                    self.targets[told.target].dispatcher.set_rank(now, told.job, Some(told.rank));
                }
                if let Some(interval) = self.exchanged_every()
                    && !self.events.is_empty()
                {
                    self.schedule(now + interval, Event::Exchange);
                }
            }
            Event::Look => self.look(now),
        }
    }

    /// Servers look at what their jobs have, and follow what the controller decides of it.
    fn look(&mut self, now: Nanos) {
        let (targets, Some(controller)) = (&mut self.targets, &mut self.controller) else { return };
        let targets = RefCell::new(targets);
        let usage = |at: usize| targets.borrow_mut()[at].dispatcher.usage(now);
        let progress = |at: usize| targets.borrow()[at].dispatcher.progress(now);
        let (told, every) = (controller.look(now, usage, progress), controller.look_every);
        for told in told {
            match told {
                Told::Parts(at, parts) => self.targets[at].dispatcher.apportion(now, &parts),
                Told::Places(at, places) => {
                    let told = std::mem::replace(&mut self.targets[at].placed, places);
                    let target = &mut self.targets[at];
                    let gone = told.keys().filter(|job| !target.placed.contains_key(job));
                    gone.for_each(|job| target.dispatcher.set_rank(now, *job, None));
                    let TargetState { placed, dispatcher, .. } = target;
                    placed.iter().for_each(|(job, place)| dispatcher.set_rank(now, *job, Some(*place)));
                }
            }
        }
        if self.jobs.iter().any(|job| job.done < job.streams) {
            self.schedule(now + every, Event::Look);
        }
    }

    /// Servers put together what each has seen; the first time, they begin to look.
    fn join(&mut self, now: Nanos) {
        let targets = &mut self.targets;
        let joined = self.exchange.as_mut().map(|servers| servers.join(now, |at| targets[at].dispatcher.usage(now)));
        for told in joined.unwrap_or_default() {
            let dispatcher = &mut self.targets[told.target].dispatcher;
            dispatcher.apportion(now, &told.parts);
            dispatcher.set_fair_ends(now, &told.fair_ends);
        }
        let targets = &mut self.targets;
        let divided = self.rates.as_mut().map(|rates| rates.divide(now, |at| targets[at].dispatcher.rates(now)));
        for (target, parts) in divided.unwrap_or_default() {
            self.targets[target].dispatcher.set_rate_parts(now, &parts);
            // What is due may have become so earlier.
            self.employ(now, target as u32);
        }
    }

    /// How often servers look at what they have to divide.
    fn exchanged_every(&self) -> Option<Nanos> {
        self.scenario.exchange.or(self.rates.as_ref().map(|rates| rates.interval))
    }

    fn start(&mut self, now: Nanos, job: u32) {
        let spec = &self.scenario.jobs[job as usize];
        for target in &spec.targets {
            self.targets[*target].dispatcher.set_job(now, JobId(job), &spec.info);
        }
        self.declare(now, job);
        let state = &self.jobs[job as usize];
        for stream in state.first_stream..state.first_stream + state.streams {
            self.enter_phase(now, stream);
        }
    }

    /// The job's streams are about to enter the same phase together: its size is told at each target.
    fn declare(&mut self, now: Nanos, job: u32) {
        let (spec, state) = (&self.scenario.jobs[job as usize], &self.jobs[job as usize]);
        let streams = state.first_stream..state.first_stream + state.streams;
        let phase = self.streams[streams.start as usize].phase as usize;
        let Some(requests) = spec.phases[phase].requests else { return };
        let mut needs = vec![Nanos::ZERO; spec.targets.len()];
        for stream in streams {
            let from = self.streams[stream as usize].total;
            for number in 0..requests.min(needs.len() as u64) {
                let at = position(spec.layout, stream - state.first_stream, from + number, spec);
                // What is left after as many for each target goes to the first ones.
                let of_these = (requests - number).div_ceil(needs.len() as u64);
                needs[at] += Nanos(state.costs[phase][at].0.saturating_mul(of_these));
            }
        }
        for (target, need) in spec.targets.iter().zip(needs).filter(|(_, need)| *need > Nanos::ZERO) {
            self.targets[*target].dispatcher.expect(now, JobId(job), need);
        }
    }

    /// The stream begins the phase that it is set to.
    fn enter_phase(&mut self, now: Nanos, stream: u32) {
        let state = &self.streams[stream as usize];
        let job = &self.scenario.jobs[state.job as usize];
        let phase = &job.phases[state.phase as usize];
        let at = (now + phase.compute).max(job.start + phase.not_before);
        self.schedule(at, Event::Issue { stream });
    }

    fn issue(&mut self, now: Nanos, stream: u32) {
        let state = &mut self.streams[stream as usize];
        let job = &self.scenario.jobs[state.job as usize];
        if now > job.stop {
            return;
        }
        let position = position(job.layout, stream - self.jobs[state.job as usize].first_stream, state.total, job);
        let work = self.jobs[state.job as usize].costs[state.phase as usize][position];
        let target = job.targets[position];
        let phase = &job.phases[state.phase as usize];
        let bytes = phase.bytes();
        let cost = match &self.targets[target].learners {
            Some(learners) => {
                let time = learners[phase.access().index()].model().cost(bytes);
                self.targets[target].dispatcher.worth().of(time)
            }
            None => work,
        };
        state.issued += 1;
        state.total += 1;
        state.issued_at = now;
        state.cost = cost;
        let job = JobId(state.job);
        if let Some(ranks) = &mut self.ranks {
            ranks.arrive(now, target, job);
        }
        let operation = Some(phase.op.operation());
        let nature = Nature { operation, operations: 1, below: 0 };
        let submission = Submission { job, cost, owed: Nanos::ZERO, work, bytes, nature, is_counted: true };
        let queued = self.targets[target].dispatcher.enqueue(now, submission, stream);
        // The job was announced, and no arbiter can be given more than all streams.
        debug_assert!(queued.is_ok());
        self.employ(now, target as u32);
    }

    /// Gives the device what the policy wants served.
    fn employ(&mut self, now: Nanos, target: u32) {
        loop {
            let state = &mut self.targets[target as usize];
            match state.dispatcher.next(now) {
                Action::Serve(Dispatch { id, request: stream, .. }) => {
                    self.decisions += 1;
                    state.ask_at = None;
                    self.streams[stream as usize].id = id;
                    self.begin(now, target, stream);
                }
                Action::WaitUntil(at) => {
                    let at = at.max(now + Nanos(1));
                    if state.ask_at != Some(at) {
                        state.ask_at = Some(at);
                        self.schedule(at, Event::Ask { target });
                    }
                    return;
                }
                Action::Idle => return,
                Action::Answer(never) => match never {},
            }
        }
    }

    fn phase_of(&self, stream: u32) -> &'a Phase {
        let state = &self.streams[stream as usize];
        &self.scenario.jobs[state.job as usize].phases[state.phase as usize]
    }

    fn finish(&mut self, now: Nanos, target: u32, stream: u32) {
        let phase = self.phase_of(stream);
        let state = &self.streams[stream as usize];
        let (job, id) = (state.job, state.id);
        let at = &mut self.targets[target as usize];
        let served = at.dispatcher.complete(now, id, ServedBy::Device);
        let cost = served.map_or(state.cost, |served| served.service);
        if let (Some(learners), Some(attributed)) = (&mut at.learners, served.and_then(|served| served.attributed)) {
            learners[phase.access().index()].learn(now, phase.bytes(), attributed);
        }
        let (service, busy) = match &self.scenario.targets[target as usize].device {
            Device::Lanes(_) => (now.since(state.begun_at), now.since(state.begun_at)),
            Device::Channels(Channels { count: Some(_), .. }) => (cost, now.since(state.taken_at)),
            Device::Channels(channels) => {
                (cost, channels.bandwidth.map_or(Nanos::ZERO, |rate| rate.time_for(phase.bytes())))
            }
        };
        self.measure.complete(&Completion {
            job: job as usize,
            target: target as usize,
            bytes: phase.bytes(),
            issued: state.issued_at,
            service,
            busy,
            at: now,
        });
        if let Some(ranks) = &mut self.ranks {
            ranks.complete(now, target as usize, JobId(job), service);
        }
        if let Device::Channels(channels) = &self.scenario.targets[target as usize].device
            && let Some(next) = self.targets[target as usize].channels.release()
        {
            self.wait_in_channel(now, channels, target, next);
        }
        self.go_on(now, stream);
        self.employ(now, target);
    }

    /// The stream's request was served: the next request, or the next phase.
    fn go_on(&mut self, now: Nanos, stream: u32) {
        let state = &mut self.streams[stream as usize];
        let phase = &self.scenario.jobs[state.job as usize].phases[state.phase as usize];
        if phase.requests.is_none_or(|requests| state.issued < requests) {
            let think = jittered(phase.think, phase.think_jitter, &mut state.random);
            self.schedule(now + think, Event::Issue { stream });
            return;
        }
        let job = state.job;
        if !phase.barrier {
            self.leave_phase(now, stream);
            return;
        }
        let gathered = &mut self.jobs[job as usize];
        gathered.at_barrier += 1;
        if gathered.at_barrier == gathered.streams {
            gathered.at_barrier = 0;
            self.measure.gather(now, job as usize);
            let streams = gathered.first_stream..gathered.first_stream + gathered.streams;
            for stream in streams {
                self.leave_phase(now, stream);
            }
            if self.jobs[job as usize].done == 0 {
                self.declare(now, job);
            }
        }
    }

    fn leave_phase(&mut self, now: Nanos, stream: u32) {
        let state = &mut self.streams[stream as usize];
        let job = &self.scenario.jobs[state.job as usize];
        state.issued = 0;
        state.phase += 1;
        if state.phase as usize == job.phases.len() {
            state.phase = 0;
            state.iteration += 1;
            if job.iterations.is_some_and(|iterations| state.iteration >= iterations) {
                self.jobs[state.job as usize].done += 1;
                return;
            }
        }
        self.enter_phase(now, stream);
    }
}

/// Which of the job's targets a stream's `total`th request falls on.
fn position(layout: Layout, stream: u32, total: u64, job: &super::Job) -> usize {
    let along = match layout {
        Layout::Striped => u64::from(stream) + total,
        Layout::FilePerProcess => u64::from(stream / job.depth),
    };
    (along % job.targets.len() as u64) as usize
}

fn jittered(time: Nanos, jitter: f64, random: &mut Pcg32) -> Nanos {
    if jitter == 0.0 {
        return time;
    }
    let factor = 1.0 + jitter * (2.0 * random.random::<f64>() - 1.0);
    Nanos((time.0 as f64 * factor).round() as u64)
}
