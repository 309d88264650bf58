//! Shares hold in the time that a device works for each job, however wrong what requests were charged: see
//! `device::attribution`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_policy::{
    Access, Attribution, CostLearner, CostModel, Draw, Entered, Nature, Next, Request, RequestId, Tuning, build,
};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos, Rate};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// How a device serves what it is given.
#[derive(Clone, Copy, Debug)]
enum Device {
    /// One after the other, in the order they came.
    Queue,
    /// All at once, each in its own time.
    Parallel,
    /// So many at once, any of those that wait next.
    Channels(usize),
}

/// What is charged ahead.
#[derive(Clone, Copy, Debug)]
enum Model {
    /// What the request takes of the device, times a random factor between 1 / this and this, by job and by request.
    Wrong(f64),
    /// What was learnt, from a first guess that has nothing to do with the device.
    Learnt,
}

/// Jobs that never want for requests, at a device that has `depth` of them in service.
struct Contest {
    device: Device,
    model: Model,
    depth: usize,
    draw: Draw,
    /// Bytes of each job's requests and its nodes.
    jobs: Vec<(u64, u32)>,
    seed: u64,
}

struct InService {
    id: u64,
    job: usize,
    bytes: u64,
    charged: Nanos,
    entered: Entered,
    /// What the device still has to do for it.
    left_ns: f64,
    is_begun: bool,
}

/// What came of it.
struct Outcome {
    /// Attributed to each job in all.
    attributed: Vec<f64>,
    /// At each dispatch: the job; and of each request what it was charged, and then attributed.
    dispatches: Vec<(usize, u64)>,
    completed_after: BTreeMap<u64, usize>,
    requests: BTreeMap<u64, (f64, f64)>,
    busy: Nanos,
    now: Nanos,
}

impl Contest {
    fn run(&self, dispatches: usize) -> Outcome {
        let mut random = Pcg64::seed_from_u64(self.seed);
        let mut arbiter = build(&"size-fair".parse().unwrap(), self.draw, self.seed, Tuning::default());
        let mut clock = Attribution::new();
        let guess = CostModel { per_op: Nanos(2_000), bandwidth: Rate::new(8 << 30).unwrap() };
        let mut learner = CostLearner::new(guess);
        let mut now = Nanos::ZERO;
        let mut next_id = 0;
        for (job, (_, nodes)) in self.jobs.iter().enumerate() {
            let info = JobInfo { nodes: *nodes, ..JobInfo::new(&format!("{job}"), "u", "g") };
            arbiter.set_job(now, JobId(job as u32), &info);
        }
        let biases: Vec<f64> = self.jobs.iter().map(|_| random.random_range(-1.0..1.0)).collect();
        let mut in_service: Vec<InService> = Vec::new();
        let mut outcome = Outcome {
            attributed: vec![0.0; self.jobs.len()],
            dispatches: Vec::new(),
            completed_after: BTreeMap::new(),
            requests: BTreeMap::new(),
            busy: Nanos::ZERO,
            now,
        };
        while outcome.dispatches.len() < dispatches {
            for (job, (bytes, _)) in self.jobs.iter().enumerate() {
                while arbiter.queued_of(JobId(job as u32)) < 2 {
                    let charged = match self.model {
                        Model::Wrong(factor) => {
                            let exponent = (biases[job] + random.random_range(-1.0..1.0)) / 2.0;
                            Nanos((service_ns(*bytes) * factor.powf(exponent)) as u64 + 1)
                        }
                        Model::Learnt => learner.model().cost(Bytes(*bytes)),
                    };
                    let request = Request {
                        id: RequestId(next_id),
                        job: JobId(job as u32),
                        cost: charged,
                        bytes: Bytes(0),
                        nature: Nature::WRITE,
                    };
                    arbiter.enqueue(now, request).unwrap();
                    next_id += 1;
                }
            }
            if in_service.len() < self.depth {
                let Next::Dispatch(request) = arbiter.next(now) else { panic!("requests are queued") };
                let job = request.job.0 as usize;
                let bytes = self.jobs[job].0;
                let left_ns = service_ns(bytes) * (0.5 + random.random::<f64>());
                let (id, charged) = (request.id.0, request.cost);
                let entered = clock.enter(now);
                in_service.push(InService { id, job, bytes, charged, entered, left_ns, is_begun: false });
                outcome.dispatches.push((job, id));
                continue;
            }
            let ended = self.pass(&mut in_service, &mut now, &mut random);
            let one = in_service.swap_remove(ended);
            let took = clock.leave(now, one.entered);
            learner.learn(now, Bytes(one.bytes), took);
            arbiter.correct(now, JobId(one.job as u32), one.charged, took);
            arbiter.complete(now, RequestId(one.id), JobId(one.job as u32));
            outcome.attributed[one.job] += took.0 as f64;
            outcome.requests.insert(one.id, (one.charged.0 as f64, took.0 as f64));
            outcome.completed_after.insert(one.id, outcome.dispatches.len());
        }
        for one in in_service {
            let took = clock.leave(now, one.entered);
            outcome.requests.insert(one.id, (one.charged.0 as f64, took.0 as f64));
            outcome.attributed[one.job] += took.0 as f64;
        }
        Outcome { busy: clock.busy(), now, ..outcome }
    }

    /// Lets time pass until a request ends; gives its index.
    fn pass(&self, in_service: &mut [InService], now: &mut Nanos, random: &mut Pcg64) -> usize {
        let begin = |in_service: &mut [InService], at: usize| in_service[at].is_begun = true;
        match self.device {
            Device::Parallel => (0..in_service.len()).for_each(|at| begin(in_service, at)),
            Device::Queue if in_service.iter().all(|one| !one.is_begun) => {
                let first = (0..in_service.len()).min_by_key(|at| in_service[*at].id).unwrap();
                begin(in_service, first);
            }
            Device::Queue => {}
            Device::Channels(channels) => {
                while in_service.iter().filter(|one| one.is_begun).count() < channels.min(in_service.len()) {
                    let waiting: Vec<usize> = (0..in_service.len()).filter(|at| !in_service[*at].is_begun).collect();
                    begin(in_service, waiting[random.random_range(0..waiting.len())]);
                }
            }
        }
        let served = in_service.iter_mut().enumerate().filter(|(_, one)| one.is_begun);
        let ended = served.min_by(|(_, a), (_, b)| a.left_ns.total_cmp(&b.left_ns)).map(|(at, _)| at).unwrap();
        let passed_ns = in_service[ended].left_ns.max(1.0);
        in_service.iter_mut().filter(|one| one.is_begun).for_each(|one| one.left_ns -= passed_ns);
        *now += Nanos(passed_ns as u64);
        ended
    }
}

/// On average.
fn service_ns(bytes: u64) -> f64 {
    80_000.0 + bytes as f64
}

impl Outcome {
    /// The bound of `device::attribution`, at every dispatch: by how much T of one job may be ahead of that of another.
    fn check(&self, nodes: &[u32]) {
        let pace = |job: usize| f64::from(nodes[job]);
        let mut ahead = vec![0.0; nodes.len()];
        let mut open: Vec<(usize, u64)> = Vec::new();
        let (mut error_max, mut largest) = (0.0f64, 0.0f64);
        for (at, (job, id)) in self.dispatches.iter().enumerate() {
            open.retain(|(_, id)| self.completed_after.get(id).is_none_or(|after| *after > at));
            let error = |(job, id): &(usize, u64)| (self.requests[id].0 - self.requests[id].1).abs() / pace(*job);
            error_max = error_max.max(open.iter().map(error).sum());
            let attributed = self.requests[id].1 / pace(*job);
            largest = largest.max(attributed);
            ahead[*job] += attributed;
            open.push((*job, *id));
            let most = ahead.iter().copied().fold(0.0, f64::max);
            let least = ahead.iter().copied().fold(f64::MAX, f64::min);
            // Tags are rounded.
            let bound = error_max + largest + 1_000.0;
            assert!(most - least <= bound, "after {at} dispatches one is {} ns ahead, {bound} allowed", most - least);
        }
    }
}

fn devices() -> impl Strategy<Value = Device> {
    prop_oneof![Just(Device::Queue), Just(Device::Parallel), (1usize..8).prop_map(Device::Channels)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Of any device, with charges that are wrong by up to a hundred in either direction, differently for each job.
    #[test]
    fn who_is_ahead_is_so_by_one_request_and_what_is_wrong_in_service(
        device in devices(),
        depth in 1usize..40,
        factor in 1.0f64..100.0,
        jobs in prop::collection::vec((prop_oneof![Just(4096u64), Just(65_536), Just(1 << 20)], 1u32..5), 2..5),
        seed in any::<u64>(),
    ) {
        let nodes: Vec<u32> = jobs.iter().map(|(_, nodes)| *nodes).collect();
        let contest = Contest { device, model: Model::Wrong(factor), depth, draw: Draw::VirtualTime, jobs, seed };
        let outcome = contest.run(2_000);
        outcome.check(&nodes);
        // The device was never without work.
        prop_assert_eq!(outcome.busy, outcome.now);
        let given: f64 = outcome.attributed.iter().sum();
        prop_assert!((outcome.busy.0 as f64 - given).abs() <= 1.0, "{} of {}", given, outcome.busy.0);
    }
}

/// Shares of attributed time as the nodes are, after a while.
fn assert_shares(contest: &Contest, tolerance: f64) {
    let outcome = contest.run(20_000);
    let total: f64 = outcome.attributed.iter().sum();
    let nodes: u32 = contest.jobs.iter().map(|(_, nodes)| nodes).sum();
    for (job, (_, of)) in contest.jobs.iter().enumerate() {
        let (got, due) = (outcome.attributed[job] / total, f64::from(*of) / f64::from(nodes));
        assert!((got / due - 1.0).abs() <= tolerance, "job {job}: {got} of {due} on {:?}", contest.device);
    }
}

fn three_jobs() -> Vec<(u64, u32)> {
    vec![(4 << 10, 1), (1 << 20, 1), (64 << 10, 2)]
}

#[test]
fn shares_are_exact_in_attributed_time_on_every_device() {
    for device in [Device::Queue, Device::Parallel, Device::Channels(4)] {
        let contest = |model, draw| Contest { device, model, depth: 16, draw, jobs: three_jobs(), seed: 3 };
        assert_shares(&contest(Model::Wrong(100.0), Draw::VirtualTime), 0.03);
        assert_shares(&contest(Model::Learnt, Draw::VirtualTime), 0.005);
        // Right in expectation: a token is the largest cost.
        assert_shares(&contest(Model::Learnt, Draw::Lottery), 0.1);
    }
}

#[test]
fn accesses_have_names_and_indices() {
    for (at, access) in Access::ALL.into_iter().enumerate() {
        assert_eq!(access.index(), at);
    }
    assert_eq!(Access::new(true, false).name(), "write-random");
}
