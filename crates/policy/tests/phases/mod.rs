//! I/O phases on one target, under a policy, and under fair sharing that is simulated here by other means than a policy's.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use isonomia_policy::{Arbiter, Draw, Nature, Next, Request, RequestId, Tuning, build};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use proptest::prelude::*;

/// Rounding of a request's end, in ns.
pub const ROUNDING: f64 = 1_000.0;

/// A target that serves one request at a time.
pub struct Bench {
    /// It decides.
    pub arbiter: Box<dyn Arbiter>,
    /// The time.
    pub now: Nanos,
    id: u64,
}

impl Bench {
    pub fn new(policy: &str) -> Self {
        let arbiter = build(&policy.parse().unwrap(), Draw::VirtualTime, 0, Tuning::default());
        Self { arbiter, now: Nanos::ZERO, id: 0 }
    }

    /// Jobs of one name are one application.
    pub fn add(&mut self, job: u32, name: &str, user: &str, nodes: u32) {
        let info = JobInfo { nodes, ..JobInfo::new(name, user, "g") };
        self.arbiter.set_job(self.now, JobId(job), &info);
    }

    pub fn issue(&mut self, job: u32, requests: u32, cost: Nanos) {
        for _ in 0..requests {
            self.id += 1;
            let request =
                Request { id: RequestId(self.id), job: JobId(job), cost, bytes: Bytes(0), nature: Nature::WRITE };
            self.arbiter.enqueue(self.now, request).unwrap();
        }
    }

    /// A phase of equal requests that says how long it is.
    pub fn declared(&mut self, job: u32, requests: u32, cost: Nanos) {
        self.arbiter.expect(self.now, JobId(job), Nanos(cost.0 * u64::from(requests)));
        self.issue(job, requests, cost);
    }

    pub fn serve(&mut self) -> u32 {
        let Next::Dispatch(request) = self.arbiter.next(self.now) else { panic!("a request is queued") };
        self.complete(request)
    }

    fn complete(&mut self, request: Request) -> u32 {
        self.now += request.cost;
        self.arbiter.complete(self.now, request.id, request.job);
        request.job.0
    }

    pub fn serve_all(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.serve()).collect()
    }

    pub fn pause(&mut self) {
        self.now += Tuning::default().active_window;
    }
}

/// An I/O phase of a job of its own.
#[derive(Clone, Debug)]
pub struct Phase {
    pub arrival_ms: u32,
    pub user: u32,
    pub nodes: u32,
    pub requests: u32,
    pub cost_us: u64,
    /// What is told is so many times the truth; nothing is if `None`.
    pub told: Option<f64>,
    /// Its requests are told of and sent so many at a time, instead of all at once.
    pub cut: Option<u32>,
    /// Requests of each of the job's earlier phases, which were over before the first one of these phases.
    pub earlier: Vec<u32>,
}

impl Phase {
    pub fn size_ns(&self) -> f64 {
        f64::from(self.requests) * self.cost_us as f64 * 1e3
    }
}

/// Up to seven phases, each of a user of its own.
pub fn arb_phases() -> impl Strategy<Value = Vec<Phase>> {
    let one = (0u32..80, 1u32..5, 1u32..40, 100u64..3_000).prop_map(|(arrival_ms, nodes, requests, cost_us)| Phase {
        arrival_ms,
        user: 0,
        nodes,
        requests,
        cost_us,
        told: Some(1.0),
        cut: None,
        earlier: Vec::new(),
    });
    proptest::collection::vec(one, 1..8).prop_map(|mut phases| {
        phases.iter_mut().zip(0..).for_each(|(phase, at)| phase.user = at);
        phases
    })
}

/// A guarantee; the small ones more often, for which bounds are narrower.
pub fn arb_guarantee() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.000_001), Just(1.0), (1u32..=20).prop_map(|parts| f64::from(parts) / 20.0)]
}

/// What is told of a phase: so many times the truth, or nothing.
pub fn arb_told() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![2 => Just(Some(1.0)), 2 => (1.0f64..8.0).prop_map(Some), 1 => (0.05f64..1.0).prop_map(Some), 1 => Just(None)]
}

/// What is fair.
#[derive(Clone, Copy, Debug)]
pub enum Tree {
    /// `size-fair`: jobs by their nodes.
    Sizes,
    /// `user-then-size-fair`: users alike, and a user's jobs by their nodes.
    UsersThenSizes,
}

impl Tree {
    /// The parts of those that are here, in their order; they add up to 1.
    fn parts(self, phases: &[Phase], here: &[usize]) -> Vec<f64> {
        let nodes = |of: &dyn Fn(&Phase) -> bool| -> f64 {
            here.iter().map(|&at| &phases[at]).filter(|phase| of(phase)).map(|phase| f64::from(phase.nodes)).sum()
        };
        let mut users: Vec<u32> = here.iter().map(|&at| phases[at].user).collect();
        users.sort_unstable();
        users.dedup();
        let part = |&at: &usize| {
            let Phase { user, nodes: own, .. } = phases[at];
            match self {
                Self::Sizes => f64::from(own) / nodes(&|_| true),
                Self::UsersThenSizes => f64::from(own) / nodes(&|phase| phase.user == user) / users.len() as f64,
            }
        };
        here.iter().map(part).collect()
    }
}

/// What came of phases. Times are in ns of service: they pass while the target serves, and not while it is idle or waits for
/// somebody.
pub struct Course {
    /// When each came: at the first decision after that, for a request in service is not interrupted.
    pub came: Vec<f64>,
    /// When each ended.
    pub ends: Vec<f64>,
    /// Times, and what each phase had been served by then.
    pub served: Vec<(f64, Vec<f64>)>,
    /// At the same times: of each phase that had something queued, what its arbiter says that fair sharing would have served.
    pub clock: Vec<Vec<Option<f64>>>,
    /// Of each that had come by the first decision: when fair sharing ends it, as its arbiter said then.
    pub foretold: Vec<Option<f64>>,
}

/// What comes of phases under fair sharing.
pub struct Fair {
    /// When each ends.
    pub ends: Vec<f64>,
    /// What each was served at the times that were asked for.
    pub served: Vec<Vec<f64>>,
}

/// Fair sharing by a tree of phases of these sizes that come at the times `came`; what it has served is told of the times
/// `asked`, ascending.
pub fn fair(tree: Tree, phases: &[Phase], sizes: &[f64], came: &[f64], asked: &[f64]) -> Fair {
    let mut left = sizes.to_vec();
    let mut fair = Fair { ends: vec![0.0; phases.len()], served: Vec::new() };
    let mut asked = asked.iter().copied().peekable();
    let mut now = 0.0;
    loop {
        let here: Vec<usize> = (0..left.len()).filter(|&at| left[at] > 0.0 && came[at] <= now).collect();
        let parts = tree.parts(phases, &here);
        let ends = here.iter().zip(&parts).map(|(&at, part)| now + left[at] / part);
        let arrivals = came.iter().copied().filter(|&came| came > now);
        let next = arrivals.chain(ends).chain(asked.peek().copied()).fold(f64::INFINITY, f64::min);
        if next == f64::INFINITY {
            return fair;
        }
        for (&at, part) in here.iter().zip(&parts) {
            left[at] -= (next - now) * part;
            if left[at] < 1e-3 {
                (left[at], fair.ends[at]) = (0.0, next);
            }
        }
        now = next;
        while asked.next_if(|&asked| asked <= now).is_some() {
            fair.served.push(left.iter().zip(sizes).map(|(left, size)| size - left).collect());
        }
    }
}

/// How long the phases are.
pub fn sizes(phases: &[Phase]) -> Vec<f64> {
    phases.iter().map(Phase::size_ns).collect()
}

/// What comes of them under a policy.
pub fn run(policy: &str, phases: &[Phase]) -> Course {
    run_beside(policy, phases, &[])
}

/// The same; before the first decision the arbiter is told so long fair sharing takes on another target until it ends each.
pub fn run_beside(policy: &str, phases: &[Phase], elsewhere: &[f64]) -> Course {
    let mut bench = Bench::new(policy);
    for (phase, job) in phases.iter().zip(0..) {
        bench.add(job, &format!("j{job}"), &format!("u{}", phase.user), phase.nodes);
        for requests in &phase.earlier {
            bench.issue(job, *requests, Nanos::from_micros(phase.cost_us));
            bench.serve_all(*requests as usize);
            bench.pause();
        }
    }
    let begin = bench.now;
    let arrival = |at: usize| begin + Nanos::from_millis(u64::from(phases[at].arrival_ms));
    let mut unsent: Vec<u32> = phases.iter().map(|phase| phase.requests).collect();
    let (mut queued, mut served) = (vec![0u32; phases.len()], vec![0.0; phases.len()]);
    let nothing = || vec![0.0; phases.len()];
    let (served_by, clock, foretold) = (Vec::new(), Vec::new(), vec![None; phases.len()]);
    let mut course = Course { came: nothing(), ends: nothing(), served: served_by, clock, foretold };
    // In service time.
    let mut now = 0.0;
    loop {
        for (at, phase) in phases.iter().enumerate() {
            if queued[at] > 0 || unsent[at] == 0 || arrival(at) > bench.now {
                continue;
            }
            if unsent[at] == phase.requests {
                course.came[at] = now;
            }
            let count = phase.cut.unwrap_or(phase.requests).min(unsent[at]);
            if let Some(told) = phase.told {
                let told = f64::from(count) * phase.cost_us as f64 * 1e3 * told;
                bench.arbiter.expect(bench.now, JobId(at as u32), Nanos(told.ceil() as u64));
            }
            bench.issue(at as u32, count, Nanos::from_micros(phase.cost_us));
            (queued[at], unsent[at]) = (count, unsent[at] - count);
        }
        if course.served.is_empty() {
            for (job, end) in bench.arbiter.fair_ends() {
                course.foretold[job.0 as usize] = Some(end.0 as f64);
            }
            let ends: Vec<_> = (0..).zip(elsewhere).map(|(job, end)| (JobId(job), Nanos(*end as u64))).collect();
            bench.arbiter.set_fair_ends(bench.now, &ends);
        }
        if bench.arbiter.queued() > 0 {
            let job = match bench.arbiter.next(bench.now) {
                Next::Dispatch(request) => bench.complete(request) as usize,
                Next::WaitUntil(until) => {
                    bench.now = until;
                    continue;
                }
                Next::Idle => panic!("a request is queued"),
            };
            queued[job] -= 1;
            let cost = phases[job].cost_us as f64 * 1e3;
            now += cost;
            served[job] += cost;
            course.ends[job] = now;
            course.served.push((now, served.clone()));
            let mut clock = vec![None; phases.len()];
            for report in bench.arbiter.phases() {
                let at = report.job.0 as usize;
                clock[at] = (queued[at] > 0).then_some(report.fair.0 as f64);
            }
            course.clock.push(clock);
        } else if let Some(next) = (0..phases.len()).filter(|&at| unsent[at] > 0).map(arrival).min() {
            bench.now = bench.now.max(next);
        } else {
            return course;
        }
    }
}

/// One request of each but this one.
pub fn of_others(phases: &[Phase], at: usize) -> f64 {
    phases.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, phase)| phase.cost_us as f64 * 1e3).sum()
}

/// One request of each, and the longest once more.
pub fn of_each(phases: &[Phase]) -> f64 {
    let costs = || phases.iter().map(|phase| phase.cost_us as f64 * 1e3);
    costs().sum::<f64>() + costs().fold(0.0, f64::max)
}

/// By how much `fair-finish` with this guarantee may have a phase end after its clock, by its theorem 1.
pub fn late_at_most(phases: &[Phase], at: usize, guarantee: f64) -> f64 {
    of_others(phases, at) / if guarantee < 1.0 { 1.0 - guarantee } else { 1.0 }
}

/// The longest that a phase is told to be by anybody in its course, or a bound of it, and how often it is told anew at most.
pub fn told_last(phase: &Phase) -> (f64, u32) {
    let (size, cost) = (phase.size_ns(), phase.cost_us as f64 * 1e3);
    if let Some(cut) = phase.cut {
        return (size, phase.requests.div_ceil(cut) - 1);
    }
    let trained = phase.earlier.first().map(|requests| f64::from(*requests) * cost);
    let (first, growth) = match phase.told.map(|told| (size * told).ceil()).or(trained) {
        Some(told) => (told, 1.25),
        None => (1e6, 2.0),
    };
    // At least so much is told; what is remembered of equal phases is a little more than they were.
    let (mut told, mut anew) = (first, 0);
    while told < size {
        told = (told * growth).max(((told / cost + 1e-9).floor() + 1.0) * cost);
        anew += 1;
    }
    let last = if anew > 0 { (size * growth).max(size + cost) } else { first };
    (if trained.is_some() { last.max(1.02 * first) } else { last }, anew)
}

/// How long fair sharing has to take phases to be for everybody to end, under `fair-finish` with this guarantee, as by theorem 4.
pub fn sizes_as_told(phases: &[Phase], guarantee: f64) -> Vec<f64> {
    let size = |(at, phase): (usize, &Phase)| {
        let (last, anew) = told_last(phase);
        last + f64::from(anew) * late_at_most(phases, at, guarantee)
    };
    phases.iter().enumerate().map(size).collect()
}
