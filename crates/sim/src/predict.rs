//! What a simulation makes of a live server's record, beside what the server made of it.
//!
//! A record has every request of every job, when it came, when its turn came, and when it ended. Out of it *streams* are made: a request
//! of a job that comes after another one of it has ended is taken to be its successor, and what lies between the two is how
//! long the program computed. The streams are run against the same policy, or another one: each request comes so long after the one before
//! has ended *in the simulation*, as in a closed loop it would have. A target serves one request at a time, each in the part of the device's
//! time that was its own: while n were in service, an n-th of it; where the server does not measure its device, at most
//! what was charged, which is what an emulated one takes.
//!
//! So what is compared is how service is divided and when jobs are done. What is not modelled: that another order makes a device faster or
//! slower, that programs wait for each other, and what servers tell each other if the policy is another one. The record of one server
//! is of that server alone; those of several are [one](read_all). Requests that had not ended by its end, or a change of policy, are left out.

mod merge;
mod reading;

pub use merge::read_all;
pub use reading::read;

use isonomia_policy::{Arbiter, Draw, Method, Nature, Next, PolicySpec, Request, RequestId, Scheme, Tuning, build};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Slices of the time that a plot has.
pub const SLICES: u64 = 100;
/// Who had less than this part of all service does not say until when shares are compared.
const SHARE_COUNTED: f64 = 0.05;

/// One request of the record.
#[derive(Clone, Copy, Debug)]
struct Asked {
    target: usize,
    job: JobId,
    arrived: Nanos,
    cost: Nanos,
    bytes: Bytes,
    nature: Nature,
    /// Its own part of the device's time, once it has ended.
    took: Nanos,
    ended: Option<Nanos>,
}

/// What an arbiter was told besides of requests.
#[derive(Clone, Debug)]
enum Told {
    Job(JobId, JobInfo),
    Expect(JobId, Nanos),
    Rank(JobId, Option<u32>),
    FairEnds(Vec<(JobId, Nanos)>),
    Apportion(Vec<(JobId, f64)>),
    Parts(isonomia_policy::exchange::rates::Parts),
}

#[derive(Debug)]
struct Made {
    policy: PolicySpec,
    draw: Draw,
    seed: u64,
    tuning: Tuning,
}

/// What is in a record.
#[derive(Debug, Default)]
pub struct Record {
    targets: Vec<Made>,
    requests: Vec<Asked>,
    told: Vec<(Nanos, usize, Told)>,
    from: Nanos,
    to: Nanos,
    left_out: u64,
    /// When it began, by its server's clock, and by the time of day in nanoseconds since 1970.
    clock: Option<(Nanos, u64)>,
    /// Of so many servers.
    records: usize,
}

/// A job in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ran {
    /// Part of all service while it was contended: see [`Prediction::share_to_ns`].
    pub share: f64,
    /// From the arrival of the first request that its programs asked for to the end of the last one.
    pub makespan_ns: u64,
    /// Service, in slices of the time.
    pub slices_ns: Vec<u64>,
}

/// A job in the record and in the simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Its name.
    pub job: String,
    /// Its user.
    pub user: String,
    /// Requests that ended in the record.
    pub requests: u64,
    /// As it was recorded.
    pub recorded: Ran,
    /// As it is simulated.
    pub simulated: Ran,
    /// The share in the simulation, less that in the record.
    pub share_difference: f64,
    /// How much longer the simulation takes, as a part of the record's time.
    pub makespan_difference: f64,
}

/// A record beside its simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The policy of the record.
    pub recorded_policy: String,
    /// That of the simulation.
    pub simulated_policy: String,
    /// Servers whose records these are.
    pub records: usize,
    /// Targets of the servers, their metadata services included.
    pub targets: usize,
    /// Requests that had not ended when the record did.
    pub left_out: u64,
    /// Shares are compared from this time of the record on …
    pub share_from_ns: u64,
    /// … up to this one: when the first job of any weight is done, in either run.
    pub share_to_ns: u64,
    /// From the first request to the end of the last one, in the record,
    pub recorded_makespan_ns: u64,
    /// and in the simulation.
    pub simulated_makespan_ns: u64,
    /// The largest difference of shares, without a sign.
    pub share_difference_max: f64,
    /// The largest difference of makespans of jobs that count for when shares are compared, without a sign.
    pub makespan_difference_max: f64,
    /// How long a slice is.
    pub slice_ns: u64,
    /// By name.
    pub jobs: Vec<Compared>,
}

fn is_exclusive(policy: &PolicySpec) -> bool {
    matches!(policy.scheme(), Scheme::Exclusive(_))
}

/// A request of a stream: which one, and how long after the end of the one before it comes; of the first one, after the record's begin.
type Step = (usize, Nanos);

/// Puts each request behind the one that its program waited for, if it was one.
fn streams(record: &Record) -> Vec<Vec<Step>> {
    let mut streams: Vec<Vec<Step>> = Vec::new();
    // Ends, by job, of which nothing has followed yet.
    let mut ended: BTreeMap<JobId, Vec<usize>> = BTreeMap::new();
    let mut ends: BinaryHeap<Reverse<(Nanos, usize, usize)>> = BinaryHeap::new();
    for (at, asked) in record.requests.iter().enumerate() {
        while let Some(Reverse((end, of, stream))) = ends.peek().copied()
            && end <= asked.arrived
        {
            ends.pop();
            ended.entry(record.requests[of].job).or_default().push(stream);
        }
        // What a server does by itself comes when it comes.
        let follows = asked.nature.operation.and_then(|_| ended.get_mut(&asked.job)?.pop());
        let stream = match follows {
            Some(stream) => {
                let before = streams[stream].last().and_then(|(before, _)| record.requests[*before].ended);
                streams[stream].push((at, asked.arrived.since(before.unwrap_or(asked.arrived))));
                stream
            }
            None => {
                streams.push(vec![(at, asked.arrived.since(record.from))]);
                streams.len() - 1
            }
        };
        if let (Some(end), true) = (asked.ended, asked.nature.operation.is_some()) {
            ends.push(Reverse((end, at, stream)));
        }
    }
    streams
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The arbiter of a target is told something: the position in the record.
    Told(usize),
    /// A stream's next request comes.
    Comes(usize),
    /// A target has served a stream's request.
    Ends(usize, usize),
    /// A target is to be asked again.
    Ask(usize),
}

struct Target {
    arbiter: Box<dyn Arbiter>,
    is_busy: bool,
    ask_at: Option<Nanos>,
}

struct Run<'r> {
    record: &'r Record,
    streams: Vec<Vec<Step>>,
    /// How far each is.
    next: Vec<usize>,
    targets: Vec<Target>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    number: u64,
    /// By request: when it came and ended.
    times: Vec<(Nanos, Nanos)>,
    /// The bits of directories in the record, and those that they have in the policy of this run.
    below: Vec<(u64, u64)>,
}

impl Run<'_> {
    fn schedule(&mut self, at: Nanos, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    fn employ(&mut self, now: Nanos, at: usize) {
        let target = &mut self.targets[at];
        if target.is_busy {
            return;
        }
        match target.arbiter.next(now) {
            Next::Dispatch(request) => {
                target.is_busy = true;
                target.ask_at = None;
                // A request is known by its stream: that has one at a time.
                let stream = request.id.0 as usize;
                let (asked, _) = self.streams[stream][self.next[stream]];
                self.schedule(now + self.record.requests[asked].took, Event::Ends(at, stream));
            }
            Next::WaitUntil(until) if target.ask_at != Some(until) => {
                target.ask_at = Some(until);
                self.schedule(until.max(now), Event::Ask(at));
            }
            Next::WaitUntil(_) | Next::Idle => {}
        }
    }

    fn handle(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Told(at) => {
                let (_, target, told) = &self.record.told[at];
                let arbiter = &mut self.targets[*target].arbiter;
                match told {
                    Told::Job(job, info) => arbiter.set_job(now, *job, info),
                    Told::Expect(job, service) => arbiter.expect(now, *job, *service),
                    Told::Rank(job, rank) => arbiter.set_rank(now, *job, *rank),
                    Told::FairEnds(ends) => arbiter.set_fair_ends(now, ends),
                    Told::Apportion(parts) => arbiter.apportion(now, parts),
                    Told::Parts(parts) => arbiter.set_rate_parts(now, parts),
                }
                self.employ(now, *target);
            }
            Event::Comes(stream) => {
                let (asked, _) = self.streams[stream][self.next[stream]];
                self.times[asked].0 = now;
                let Asked { target, job, cost, bytes, mut nature, .. } = self.record.requests[asked];
                let has = |bit: u64| nature.below & bit != 0;
                nature.below = self.below.iter().filter(|(bit, _)| has(*bit)).map(|(_, own)| own).sum();
                let request = Request { id: RequestId(stream as u64), job, cost, bytes, nature };
                // A job that was forgotten meanwhile is one that nothing is known of: it is served at once.
                if self.targets[target].arbiter.enqueue(now, request).is_err() {
                    self.end(now, stream);
                }
                self.employ(now, target);
            }
            Event::Ends(target, stream) => {
                let (asked, _) = self.streams[stream][self.next[stream]];
                let job = self.record.requests[asked].job;
                self.targets[target].arbiter.complete(now, RequestId(stream as u64), job);
                self.targets[target].is_busy = false;
                self.end(now, stream);
                self.employ(now, target);
            }
            Event::Ask(target) => {
                if self.targets[target].ask_at == Some(now) {
                    self.targets[target].ask_at = None;
                    self.employ(now, target);
                }
            }
        }
    }

    fn end(&mut self, now: Nanos, stream: usize) {
        let (asked, _) = self.streams[stream][self.next[stream]];
        self.times[asked].1 = now;
        self.next[stream] += 1;
        if let Some((_, pause)) = self.streams[stream].get(self.next[stream]) {
            let at = now + *pause;
            self.schedule(at, Event::Comes(stream));
        }
    }
}

impl Record {
    /// Everything is there: it is put in order.
    fn settle(&mut self) {
        self.requests.sort_by_key(|asked| asked.arrived);
        self.told.sort_by_key(|(at, ..)| *at);
        self.from = self.requests.iter().map(|asked| asked.arrived).min().unwrap_or(Nanos::ZERO);
        self.to = self.requests.iter().filter_map(|asked| asked.ended).max().unwrap_or(Nanos::ZERO);
    }

    /// The policy that was followed: of exclusive phases, which metadata have no part in, that of the data targets.
    pub fn policy(&self) -> Option<&PolicySpec> {
        let exclusive = self.targets.iter().find(|made| is_exclusive(&made.policy));
        exclusive.or(self.targets.first()).map(|made| &made.policy)
    }

    /// Why this cannot be simulated by `policy`, or by the one that it has.
    pub fn obstacle(&self, policy: Option<&PolicySpec>) -> Option<String> {
        let by = policy.or(self.policy())?;
        if is_exclusive(by) {
            return Some(
                "exclusive phases are granted for all targets together, which are simulated one by one".to_owned(),
            );
        }
        let named = self.policy().map(PolicySpec::prefixes).unwrap_or_default();
        if let Some(path) = by.prefixes().iter().find(|path| !named.contains(path)) {
            return Some(format!("it does not say what lies below {path}, which no rule of its own policy names"));
        }
        // What a controller decided for the policy that it has is in the record.
        let decided = by.allocated().filter(|allocated| allocated.method != Method::Pofs && self.policy() != Some(by));
        decided.map(|allocated| format!("{} is decided by a controller for all servers", allocated.method.word()))
    }

    /// Runs it again, by `policy` or the one that it has.
    pub fn predict(&self, policy: Option<&PolicySpec>) -> Prediction {
        let own = self.policy().cloned().unwrap_or_else(PolicySpec::fifo);
        let policy = policy.unwrap_or(&own);
        let simulated = self.run(policy, *policy == own);
        let recorded: Vec<_> =
            self.requests.iter().map(|asked| (asked.arrived, asked.ended.unwrap_or(self.to))).collect();
        self.compare((&own, policy), &recorded, &simulated)
    }

    /// When each request comes and ends in the simulation.
    fn run(&self, policy: &PolicySpec, is_own: bool) -> Vec<(Nanos, Nanos)> {
        let target = |made: &Made| {
            // One at a time: what it took is its own part of the device's time.
            let tuning = Tuning { parallel: 1, ..made.tuning };
            Target { arbiter: build(policy, made.draw, made.seed, tuning), is_busy: false, ask_at: None }
        };
        let streams = streams(self);
        let next = vec![0; streams.len()];
        let times = vec![(self.from, self.from); self.requests.len()];
        let targets = self.targets.iter().map(target).collect();
        let named = self.policy().map(PolicySpec::prefixes).unwrap_or_default();
        let index = |path: &_| named.iter().position(|other| other == path);
        let below = (0..).zip(&policy.prefixes()).filter_map(|(at, path)| Some((1 << index(path)?, 1 << at))).collect();
        let events = BinaryHeap::new();
        let mut run = Run { record: self, streams, next, targets, events, number: 0, times, below };
        for (at, (when, _, told)) in self.told.iter().enumerate() {
            // What was found out for one policy says nothing of another.
            if is_own || matches!(told, Told::Job(..) | Told::Expect(..)) {
                run.schedule(*when, Event::Told(at));
            }
        }
        for stream in 0..run.streams.len() {
            let at = self.from + run.streams[stream][0].1;
            run.schedule(at, Event::Comes(stream));
        }
        while let Some(Reverse((now, _, event))) = run.events.pop() {
            run.handle(now, event);
        }
        run.times
    }

    fn infos(&self) -> BTreeMap<JobId, JobInfo> {
        let of = |(_, _, told): &(Nanos, usize, Told)| match told {
            Told::Job(job, info) => Some((*job, info.clone())),
            _ => None,
        };
        self.told.iter().filter_map(of).collect()
    }

    fn compare(
        &self,
        (own, policy): (&PolicySpec, &PolicySpec),
        recorded: &[(Nanos, Nanos)],
        simulated: &[(Nanos, Nanos)],
    ) -> Prediction {
        let mut of_job: BTreeMap<JobId, Vec<usize>> = BTreeMap::new();
        for (at, asked) in self.requests.iter().enumerate() {
            of_job.entry(asked.job).or_default().push(at);
        }
        let service = |requests: &[usize]| requests.iter().map(|at| self.requests[*at].took.0).sum::<u64>();
        let all = of_job.values().map(|requests| service(requests)).sum::<u64>().max(1) as f64;
        let counts = |requests: &[usize]| service(requests) as f64 / all >= SHARE_COUNTED;
        // What a server does by itself, and what comes with the end of a program, comes when it came whatever the policy: it says
        // nothing of when a job is done, unless there is nothing else of it.
        let asked_for = |requests: &[usize]| -> Vec<usize> {
            let asked = requests.iter().copied().filter(|at| self.requests[*at].nature.operation.is_some());
            let asked: Vec<_> = asked.collect();
            if asked.is_empty() { requests.to_owned() } else { asked }
        };
        let first = |times: &[(Nanos, Nanos)], of: &[usize]| asked_for(of).iter().map(|at| times[*at].0).min();
        let last = |times: &[(Nanos, Nanos)], of: &[usize]| asked_for(of).iter().map(|at| times[*at].1).max();
        let counted = || of_job.values().filter(|requests| counts(requests));
        let from = counted().filter_map(|requests| first(recorded, requests)).max().unwrap_or(self.from);
        let ends = |times| counted().filter_map(|requests| last(times, requests)).min().unwrap_or(self.to);
        let to = ends(recorded).min(ends(simulated));
        // Jobs that were never there together are compared over all of the time.
        let (from, to) = if from < to { (from, to) } else { (self.from, self.to) };
        let end = simulated.iter().map(|(_, end)| *end).max().unwrap_or(self.to).max(self.to);
        let slice = Nanos(end.since(self.from).0.div_ceil(SLICES).max(1));
        let within = |times: &[(Nanos, Nanos)], requests: &[usize]| {
            let is_in = |at: &&usize| (from..=to).contains(&times[**at].1);
            requests.iter().filter(is_in).map(|at| self.requests[*at].took.0).sum::<u64>() as f64
        };
        let total = |times| of_job.values().map(|requests| within(times, requests)).sum::<f64>().max(1.0);
        let totals = [total(recorded), total(simulated)];
        let ran = |times: &[(Nanos, Nanos)], requests: &[usize], total: f64| {
            let mut slices_ns = vec![0; SLICES as usize];
            for at in requests {
                let slice = times[*at].1.since(self.from).0 / slice.0;
                slices_ns[slice.min(SLICES - 1) as usize] += self.requests[*at].took.0;
            }
            let makespan =
                last(times, requests).unwrap_or(self.from).since(first(times, requests).unwrap_or(self.from));
            Ran { share: within(times, requests) / total, makespan_ns: makespan.0, slices_ns }
        };
        let infos = self.infos();
        let mut makespan_difference_max: f64 = 0.0;
        let mut jobs = Vec::new();
        for (job, requests) in &of_job {
            let (one, other) = (ran(recorded, requests, totals[0]), ran(simulated, requests, totals[1]));
            let name =
                |of: fn(&JobInfo) -> &str| infos.get(job).map_or_else(|| job.to_string(), |info| of(info).to_owned());
            let makespan_difference = other.makespan_ns as f64 / one.makespan_ns.max(1) as f64 - 1.0;
            if counts(requests) {
                makespan_difference_max = makespan_difference_max.max(makespan_difference.abs());
            }
            jobs.push(Compared {
                job: name(|info| &info.name),
                user: name(|info| &info.user),
                requests: requests.len() as u64,
                share_difference: other.share - one.share,
                makespan_difference,
                recorded: one,
                simulated: other,
            });
        }
        jobs.sort_by(|a, b| (&a.job, &a.user).cmp(&(&b.job, &b.user)));
        let all: Vec<usize> = (0..self.requests.len()).collect();
        let makespan = |times: &[(Nanos, Nanos)]| last(times, &all).unwrap_or(self.to).since(self.from).0;
        Prediction {
            recorded_policy: own.to_string(),
            simulated_policy: policy.to_string(),
            records: self.records,
            targets: self.targets.len(),
            left_out: self.left_out,
            share_from_ns: from.since(self.from).0,
            share_to_ns: to.since(self.from).0,
            recorded_makespan_ns: makespan(recorded),
            simulated_makespan_ns: makespan(simulated),
            share_difference_max: jobs.iter().map(|job| job.share_difference.abs()).fold(0.0, f64::max),
            makespan_difference_max,
            slice_ns: slice.0,
            jobs,
        }
    }
}
