//! What the controller and 64 servers say to each other in two days, counted in bytes of messages.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use isonomia_controller::{
    Ask, Controller, Decision, Effect, Follower, JobKey, Kept, Load, Moment, PARTS_PER_TARGET, Plan, Report,
    ReportedJob, Settings, Term, Use, Using, Wanted,
};
use isonomia_policy::PolicySpec;
use isonomia_sim::fluid::population::{INTERVAL, Population};
use isonomia_units::{JobInfo, Nanos, ServerId, TargetId};
use std::collections::{BTreeMap, BTreeSet};

const SERVERS: u16 = 64;
const DAYS: u64 = 2;
/// GIFT §5: "less than 4 MB over two days".
const BYTES_MAX: usize = 4_000_000;
/// A header, and the reply that confirms the message. It is no part of [`BYTES_MAX`], which is about what is said: the headers alone
/// of any protocol over TCP would be more, at one message for each server and interval.
const FRAMING_LEN: usize = 128 + 32;
const LOOK_EVERY: Nanos = Nanos::from_millis(500);
const TERM: Term = Term { epoch: 1, number: 70_000 };
const CONTROLLER: ServerId = ServerId(1);

/// Servers of one target each, with messages that take no time.
struct System {
    controller: Controller,
    followers: Vec<Follower>,
    /// What uses the target of each, by job.
    using: Vec<BTreeMap<JobKey, Using>>,
    /// Where something has changed that was perhaps not reported yet.
    changed: BTreeSet<usize>,
    /// What each job has of each target.
    parts: Vec<BTreeMap<JobKey, u32>>,
    bytes: BTreeMap<&'static str, (usize, usize)>,
}

impl System {
    fn new(policy: &str) -> Self {
        let policy: PolicySpec = policy.parse().unwrap();
        let plan = Plan::new(&policy, INTERVAL, Kept::default()).unwrap().unwrap();
        let settings = Settings { term: TERM, interval: INTERVAL };
        let count = usize::from(SERVERS);
        Self {
            controller: Controller::new(Nanos::ZERO, settings, plan, (1..=SERVERS).map(ServerId)),
            followers: vec![Follower::default(); count],
            using: vec![BTreeMap::new(); count],
            changed: BTreeSet::new(),
            parts: vec![BTreeMap::new(); count],
            bytes: BTreeMap::new(),
        }
    }

    fn begin(&mut self, job: &JobInfo, target: u16) {
        let using = Using { job: ReportedJob::from(job), at: vec![(TargetId(target), Use::default())] };
        self.using[usize::from(target)].insert(JobKey::of(job), using);
        self.changed.insert(usize::from(target));
    }

    fn end(&mut self, job: &JobInfo, target: u16) {
        self.using[usize::from(target)].remove(&JobKey::of(job));
        self.changed.insert(usize::from(target));
    }

    /// Each has what it was given, or a fair part until then, and wants more.
    fn using(&self, at: usize) -> Vec<Using> {
        let fair = PARTS_PER_TARGET / self.using[at].len().max(1) as u32;
        let load = |job: &JobKey| {
            let parts = self.parts[at].get(job).copied().unwrap_or(fair);
            Load::of(Nanos(parts.into()), Nanos(PARTS_PER_TARGET.into()), true)
        };
        let with_load = |(job, using): (&JobKey, &Using)| {
            let of = Use { load: load(job), progress: None };
            Using { at: using.at.iter().map(|(target, _)| (*target, of)).collect(), ..using.clone() }
        };
        self.using[at].iter().map(with_load).collect()
    }

    /// The controller's own server speaks to it over no network.
    fn count(&mut self, what: &'static str, server: usize, bytes: usize) {
        let (messages, sum) = self.bytes.entry(what).or_default();
        if server + 1 != usize::from(CONTROLLER.0) {
            (*messages, *sum) = (*messages + 1, *sum + bytes);
        }
    }

    fn look(&mut self, now: Nanos) {
        for at in std::mem::take(&mut self.changed) {
            let using = self.using(at);
            match self.followers[at].look(now, INTERVAL, false, &using) {
                Some(report) => self.report(now, at, report),
                // It is too soon, or nothing else than before.
                None => _ = self.changed.insert(at),
            }
            let is_told = self.followers[at].clone().look(now + INTERVAL, INTERVAL, false, &using).is_none();
            if is_told {
                self.changed.remove(&at);
            }
        }
        let mut effects = Vec::new();
        if self.controller.wake_at() <= now {
            self.controller.tick(Moment { now, wall: now }, &mut effects);
        }
        self.act(now, effects);
    }

    fn report(&mut self, now: Nanos, at: usize, report: Report) {
        self.count(if matches!(report, Report::Same { .. }) { "same" } else { "report" }, at, report.encode().len());
        let mut effects = Vec::new();
        self.controller.report(Moment { now, wall: now }, ServerId(at as u16 + 1), report, &mut effects).unwrap();
        self.act(now, effects);
    }

    fn act(&mut self, now: Nanos, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Ask { to, ask } => {
                    let at = usize::from(to.0) - 1;
                    let what = if matches!(ask, Ask::Nothing { .. }) { "renewal" } else { "ask" };
                    self.count(what, at, ask.encode().len());
                    let using = self.using(at);
                    let report = match self.followers[at].ask(now, CONTROLLER, &ask).unwrap() {
                        Wanted::Answer => self.followers[at].answer(&using),
                        Wanted::Report if !using.is_empty() => self.followers[at].report(now, &using),
                        Wanted::Report | Wanted::Nothing => continue,
                    };
                    self.report(now, at, report);
                }
                Effect::Allocate { to, allocation } => {
                    let at = usize::from(to.0) - 1;
                    self.count("allocation", at, allocation.encode().len());
                    let Decision::Parts(parts) = self.followers[at].take(now, CONTROLLER, allocation).unwrap() else {
                        panic!("an order under gift")
                    };
                    self.parts[at] = parts.iter().map(|((job, _), parts)| (job.clone(), *parts)).collect();
                }
                Effect::Keep(_) => {}
                Effect::Failed(error) => panic!("{error}"),
                Effect::NoQuorum { .. } => panic!("all report"),
            }
        }
    }

    /// What it came to, and each kind.
    fn total(&self) -> usize {
        let (messages, bytes) = self.bytes.values().fold((0, 0), |sum, (count, bytes)| (sum.0 + count, sum.1 + bytes));
        println!("messages and bytes by kind: {:?}", self.bytes);
        println!("{bytes} bytes in {messages} messages, {} with their headers", bytes + messages * FRAMING_LEN);
        bytes
    }
}

/// An application in its I/O phase, which goes on at the rate of its slowest target.
struct Running {
    job: JobInfo,
    targets: Vec<u16>,
    /// What it has to do at each, at full rate.
    left_ns: f64,
}

/// GIFT's 250 applications, which compute and do I/O alternately; each phase lasts as long as the allocations make it.
#[test]
fn two_days_of_gifts_applications_cost_less_than_4_mb() {
    let duration = Nanos::from_secs(DAYS * 86_400);
    let population = Population { duration, ..Population::gift(250) };
    let mut system = System::new("gift");
    // When an application's next phase begins: by time, application, run, and phase.
    let applications = population.draw(1);
    let mut due: BTreeSet<(Nanos, usize, usize, usize)> = BTreeSet::new();
    for (at, application) in applications.iter().enumerate() {
        due.extend(application.runs.first().map(|run| (run.submit + run.phases[0].compute, at, 0, 0)));
    }
    let mut running: BTreeMap<(usize, usize, usize), Running> = BTreeMap::new();
    let (mut now, mut phases, mut used) = (Nanos::ZERO, 0, 0);
    while now < duration {
        now += LOOK_EVERY;
        while let Some(&first @ (begin, at, run, phase)) = due.first()
            && begin <= now
        {
            due.remove(&first);
            let application = &applications[at];
            let job = JobInfo {
                nodes: application.nodes,
                title: Some(application.name.clone()),
                ..JobInfo::new(&format!("{}", at * 10_000 + run), &format!("user{:02}", at % 40), "astro")
            };
            let targets = application.runs[run].targets.clone();
            targets.iter().for_each(|target| system.begin(&job, *target));
            let left_ns = application.runs[run].phases[phase].io.0 as f64;
            running.insert((at, run, phase), Running { job, targets, left_ns });
        }
        system.look(now);
        let over: Vec<_> = running
            .iter_mut()
            .filter_map(|(key, running)| {
                let job = JobKey::of(&running.job);
                let rate = |target: &u16| {
                    let target = usize::from(*target);
                    // Who is not in the allocation yet shares fairly.
                    let fair = PARTS_PER_TARGET / system.using[target].len().max(1) as u32;
                    system.parts[target].get(&job).copied().unwrap_or(fair)
                };
                let slowest = running.targets.iter().map(rate).min().unwrap_or(PARTS_PER_TARGET);
                running.left_ns -= LOOK_EVERY.0 as f64 * f64::from(slowest) / f64::from(PARTS_PER_TARGET);
                (running.left_ns <= 0.0).then_some(*key)
            })
            .collect();
        for key @ (at, run, phase) in over {
            let Running { job, targets, .. } = running.remove(&key).unwrap();
            targets.iter().for_each(|target| system.end(&job, *target));
            phases += 1;
            let (runs, next) = (&applications[at].runs, phase + 1);
            match runs[run].phases.get(next) {
                Some(phase) => _ = due.insert((now + phase.compute, at, run, next)),
                None => {
                    due.extend(
                        runs.get(run + 1).map(|next| (next.submit.max(now) + next.phases[0].compute, at, run + 1, 0)),
                    );
                }
            }
        }
        used += system.using.iter().filter(|using| !using.is_empty()).count();
    }
    let busy = used as f64 / (duration.0 / LOOK_EVERY.0) as f64 / f64::from(SERVERS);
    println!("{phases} phases, servers busy {busy:.2} of the time, {:?}", system.controller.counts());
    let total = system.total();
    assert!(total < BYTES_MAX, "{total} bytes");
    assert!(phases > 1_000 && busy > 0.2, "{phases} phases, and servers that are busy {busy} of the time");
}

/// All servers are busy all the time, with jobs over several of them.
#[test]
fn two_days_of_busy_servers_cost_less_than_4_mb() {
    let mut system = System::new("gift");
    for job in 0..32 {
        let info = JobInfo::new(&format!("job{job}"), &format!("user{job:02}"), "astro");
        (0..8).for_each(|at| system.begin(&info, (job * 2 + at * 7) % SERVERS));
    }
    let mut now = Nanos::ZERO;
    while now < Nanos::from_secs(DAYS * 86_400) {
        system.look(now);
        now = system.controller.wake_at().max(now + LOOK_EVERY);
    }
    assert!(system.parts.iter().all(|parts| parts.len() == 4));
    let total = system.total();
    assert!(total < BYTES_MAX, "{total} bytes");
}
