//! What holds for every arbiter, whatever the sequence of calls.

use isonomia_policy::{
    Arbiter, Draw, EnqueueError, Nature, Next, PolicySpec, Request, RequestId, Scheme, Tuning, build, shares,
};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const POLICIES: [&str; 8] = [
    "fifo",
    "job-fair",
    "user-fair",
    "size-fair",
    "priority-fair",
    "group-fair{g1=3}-then-job-fair{j2=0.5}",
    "user-then-group-then-size-fair",
    "group-then-user-then-size-fair",
];

/// Those with settings.
const SPECIAL: [&str; 20] = [
    "coflow",
    "coflow{guarantee=0.5,order=slowdown,tree=user-then-size-fair}",
    "coflow{guarantee=1,order=bottleneck,tree=group-fair{g1=3}}",
    "fair-finish",
    "fair-finish{guarantee=0.7,sizes=none,tree=group-fair{g1=3}}",
    "set10",
    "exclusive{order=stretch,lease=100ms,gap=1ms}",
    "exclusive{order=shortest-io,lease=200ms,gap=20ms,tree=user-fair}",
    "set10{user:u1=1ms,group:g0=5min,job:j3=30s}",
    "tbf{user:u1=300MB/s,job:*=100MB/s+realtime,burst=1MB}",
    "tbf{user:u1=300MB/s,spare=unused,burst=0B}",
    "tbf{user:u1=300MB/s,group:*=2GB/s+realtime,spare=proportional}",
    "mclock{user:u1=reservation:100MB/s+limit:200MB/s,group:g0=weight:3,job:*=limit:50MB/s}",
    "mclock{user:*=reservation:400MB/s+weight:0.000001}",
    "fifo+latency{p99=2ms,user:u1}",
    "user-fair+latency{p99=1ms,job:j2,size<=4KiB}",
    "size-fair+latency{p99=100us,group:g1}",
    "coflow+latency{p99=10ms,user:u0,user:u1,user:u2}",
    "tbf{user:u1=300MB/s,job:*=100MB/s+realtime,burst=1MB}+latency{p99=2ms,size<=4KiB}",
    "mclock{user:u1=reservation:100MB/s+limit:200MB/s,group:g0=weight:3}+latency{p99=2ms,user:u1,job:j3}",
];

fn arbiter(policy: &str, draw: Draw) -> Box<dyn Arbiter> {
    build(&policy.parse().expect("a policy"), draw, 7, Tuning::default())
}

fn info(job: u32, variant: u32) -> JobInfo {
    let mut info = JobInfo::new(&format!("j{job}"), &format!("u{}", (job + variant) % 3), &format!("g{}", job % 2));
    info.nodes = 1 + (job * 7 + variant) % 5;
    info.priority = 1 + (job + variant) % 4;
    info
}

#[derive(Clone, Debug)]
enum Step {
    Set { job: u32, variant: u32 },
    Remove { job: u32 },
    Enqueue { job: u32, cost_us: u64 },
    Next,
    CompleteOldest,
    CancelNewest { job: u32 },
    Drain,
    Pass { us: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let job = 0u32..6;
    let step = prop_oneof![
        2 => (job.clone(), 0u32..4).prop_map(|(job, variant)| Step::Set { job, variant }),
        1 => job.clone().prop_map(|job| Step::Remove { job }),
        12 => (job.clone(), 0u64..2_000).prop_map(|(job, cost_us)| Step::Enqueue { job, cost_us }),
        12 => Just(Step::Next),
        10 => Just(Step::CompleteOldest),
        1 => job.prop_map(|job| Step::CancelNewest { job }),
        1 => Just(Step::Drain),
        8 => prop_oneof![0u64..100, 0u64..40_000].prop_map(|us| Step::Pass { us }),
    ];
    proptest::collection::vec(step, 0..300)
}

/// Plays the steps and checks the books after each. Returns the log of decisions.
fn play(policy: &str, draw: Draw, steps: &[Step]) -> Vec<String> {
    let spec: PolicySpec = policy.parse().expect("a policy");
    let mut arbiter = arbiter(policy, draw);
    let window = Tuning::default().active_window;
    let hold_max = Tuning::default().hold_max;
    let mut now = Nanos::ZERO;
    let mut known: BTreeMap<JobId, JobInfo> = BTreeMap::new();
    let mut queued: Vec<Request> = Vec::new();
    let mut in_flight: Vec<Request> = Vec::new();
    // Those that the latency class has precedence for.
    let mut urgent: BTreeSet<RequestId> = BTreeSet::new();
    let mut owes = false;
    let mut used: BTreeMap<JobId, Nanos> = BTreeMap::new();
    let mut refused_since: Option<Nanos> = None;
    // The last time that the arbiter was told.
    let mut told = now;
    let mut log = Vec::new();
    for (sequence, step) in steps.iter().enumerate() {
        match *step {
            Step::Set { job, variant } => {
                let (user, job, mut info) = (info(job, 0).user, JobId(job), info(job, variant));
                if spec.latency().is_some() {
                    // What was queued for one user does not go before or after what is queued for another.
                    info.user = user;
                }
                arbiter.set_job(now, job, &info);
                known.insert(job, info);
            }
            Step::Remove { job } => {
                let job = JobId(job);
                owes |= spec.latency().is_some();
                let (own, others) = queued.iter().partition(|request| request.job == job);
                assert_eq!(arbiter.remove_job(now, job), own);
                queued = others;
                in_flight.retain(|request| request.job != job);
                known.remove(&job);
                used.remove(&job);
            }
            Step::Enqueue { job, cost_us } => {
                let id = RequestId(sequence as u64);
                let request = Request {
                    id,
                    job: JobId(job),
                    cost: Nanos::from_micros(cost_us),
                    bytes: Bytes(cost_us * 8),
                    nature: Nature::WRITE,
                };
                let result = arbiter.enqueue(now, request);
                if known.contains_key(&request.job) {
                    assert_eq!(result, Ok(()));
                    queued.push(request);
                    let info = &known[&request.job];
                    if spec.latency().is_some_and(|class| class.has_job(info) || class.has_size(request.bytes)) {
                        urgent.insert(id);
                    }
                } else {
                    assert_eq!(result, Err(EnqueueError::UnknownJob { job: request.job, request: id }));
                }
            }
            Step::Next => match arbiter.next(now) {
                Next::Dispatch(request) => {
                    let is_urgent = urgent.contains(&request.id);
                    // Whoever left and owes something pays with the turns of what he queued first.
                    let goes_before = |other: &Request| match owes {
                        true => other.id == request.id,
                        false => other.job == request.job && urgent.contains(&other.id) == is_urgent,
                    };
                    let first_of_job = queued.iter().position(goes_before);
                    assert_eq!(first_of_job.map(|at| queued.remove(at)), Some(request), "in order, within a job");
                    in_flight.push(request);
                    refused_since = None;
                    log.push(format!("{request:?}"));
                }
                Next::WaitUntil(until) => {
                    assert!(!queued.is_empty());
                    let since = *refused_since.get_or_insert(now);
                    assert!(now < until, "{now:?} {until:?}");
                    let limits =
                        matches!(spec.scheme(), Scheme::TokenBucket(_) | Scheme::MClock(_) | Scheme::Exclusive(_));
                    let limits = limits || spec.latency().is_some();
                    assert!(limits || until <= since + hold_max, "{now:?} {until:?} since {since:?}");
                    log.push(format!("{until:?}"));
                }
                Next::Idle => assert!(queued.is_empty(), "idle with {queued:?}"),
            },
            Step::CompleteOldest => {
                if !in_flight.is_empty() {
                    let request = in_flight.remove(0);
                    arbiter.complete(now, request.id, request.job);
                    used.insert(request.job, now);
                    told = now;
                }
            }
            Step::CancelNewest { job } => {
                let at = queued.iter().rposition(|request| request.job == JobId(job));
                let id = at.map_or(RequestId(u64::MAX), |at| queued[at].id);
                assert_eq!(arbiter.cancel(now, id, JobId(job)), at.is_some());
                if let Some(at) = at {
                    queued.remove(at);
                    used.insert(JobId(job), now);
                }
            }
            Step::Drain => {
                owes |= spec.latency().is_some();
                assert_eq!(arbiter.drain(), queued);
                queued.drain(..).for_each(|request| {
                    used.insert(request.job, told);
                });
            }
            Step::Pass { us } => now += Nanos::from_micros(us),
        }
        if !matches!(step, Step::Pass { .. } | Step::Drain | Step::CompleteOldest) {
            told = now;
        }
        if queued.is_empty() {
            refused_since = None;
        }
        assert_eq!(arbiter.queued(), queued.len());
        for &job in known.keys() {
            assert_eq!(arbiter.queued_of(job), queued.iter().filter(|request| request.job == job).count());
        }
        let busy: BTreeSet<JobId> = queued.iter().chain(&in_flight).map(|request| request.job).collect();
        let lately = |job: &JobId| used.get(job).is_some_and(|&at| at + window > now);
        let shares = arbiter.shares(now);
        // With a class a job is active until its turns have come that it had already, or were taken back.
        let is_active = |job: &JobId| match spec.latency() {
            Some(_) => shares.iter().any(|(other, _)| other == job),
            None => busy.contains(job) || lately(job),
        };
        let active = known.iter().filter(|(job, _)| is_active(job));
        let due = shares::due(&spec, &active.map(|(&job, info)| (job, info.clone())).collect());
        let due = if spec.levels().is_empty() { Vec::new() } else { due };
        assert_eq!(shares.len(), due.len(), "{shares:?}, due {due:?}");
        for (share, due) in shares.iter().zip(&due) {
            assert!(share.0 == due.0 && (share.1 - due.1).abs() < 1e-12, "{shares:?}, due {due:?}");
        }
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        assert!(shares.is_empty() || (sum - 1.0).abs() < 1e-12, "{sum}");
    }
    log
}

fn dispatch(arbiter: &mut dyn Arbiter, now: &mut Nanos) -> Request {
    loop {
        match arbiter.next(*now) {
            Next::Dispatch(request) => return request,
            Next::WaitUntil(until) => *now = until,
            Next::Idle => unreachable!("requests are queued"),
        }
    }
}

proptest! {
    /// No request lost or doubled, never idle while one waits, bounded waiting, the tree's shares those of the
    /// matrices over exactly the active jobs, and the same decisions from the same calls.
    #[test]
    fn the_books_always_balance(policy in 0..POLICIES.len() + SPECIAL.len(), lottery: bool, steps in steps()) {
        let draw = if lottery { Draw::Lottery } else { Draw::VirtualTime };
        let policy = POLICIES.iter().chain(&SPECIAL).nth(policy).expect("in range");
        let log = play(policy, draw, &steps);
        prop_assert_eq!(log, play(policy, draw, &steps));
    }

    /// While jobs stay queued, normalised service of any two differs by one request of each at most.
    #[test]
    fn service_of_backlogged_jobs_stays_within_a_request_of_each_of_its_due(
        policy in 1..POLICIES.len(),
        costs in proptest::collection::vec(proptest::collection::vec(1u64..5_000, 1..4), 2..7),
        rounds in 1usize..400,
    ) {
        let spec: PolicySpec = POLICIES[policy].parse().expect("a policy");
        let mut arbiter = arbiter(POLICIES[policy], Draw::VirtualTime);
        let mut now = Nanos::ZERO;
        let jobs: BTreeMap<_, _> = (0..costs.len() as u32).map(|job| (JobId(job), info(job, 0))).collect();
        let cost = |job: JobId, count: usize| {
            let own = &costs[job.0 as usize];
            Nanos::from_micros(own[count % own.len()])
        };
        let mut counts = vec![0; costs.len()];
        for (&job, info) in &jobs {
            arbiter.set_job(now, job, info);
        }
        for &job in jobs.keys() {
            for count in 0..2 {
                let request = Request { id: RequestId(count as u64), job, cost: cost(job, count), bytes: Bytes(0), nature: Nature::WRITE };
                arbiter.enqueue(now, request).expect("the job is known");
            }
        }
        let mut service = vec![0.0; costs.len()];
        for round in 0..rounds {
            let request = dispatch(arbiter.as_mut(), &mut now);
            now += request.cost;
            arbiter.complete(now, request.id, request.job);
            let at = request.job.0 as usize;
            service[at] += request.cost.0 as f64;
            counts[at] += 1;
            let following = Request { id: RequestId(2 + round as u64), job: request.job, cost: cost(request.job, counts[at] + 1), bytes: Bytes(0), nature: Nature::WRITE };
            arbiter.enqueue(now, following).expect("the job is known");
        }
        let due = shares::due(&spec, &jobs);
        let largest = |job: JobId| 1e3 * *costs[job.0 as usize].iter().max().expect("costs") as f64;
        for &(a, share_a) in &due {
            for &(b, share_b) in &due {
                let apart = service[a.0 as usize] / share_a - service[b.0 as usize] / share_b;
                let bound = largest(a) / share_a + largest(b) / share_b;
                prop_assert!(apart <= bound * (1.0 + 1e-9), "{a} leads {b} by {apart}, bound {bound}");
            }
        }
    }

    /// A request waits no longer than its job's share of what is ahead of it allows, however many jobs come.
    #[test]
    fn nobody_starves_while_others_come_and_go(newcomers in 1u32..40, cost_us in 1u64..2_000) {
        let mut arbiter = arbiter("job-fair", Draw::VirtualTime);
        let mut now = Nanos::ZERO;
        let cost = Nanos::from_micros(cost_us);
        arbiter.set_job(now, JobId(0), &info(0, 0));
        let patient = Request { id: RequestId(0), job: JobId(0), cost, bytes: Bytes(0), nature: Nature::WRITE };
        arbiter.enqueue(now, patient).expect("the job is known");
        for job in 1..=newcomers {
            arbiter.set_job(now, JobId(job), &info(job, 0));
            arbiter.enqueue(now, Request { id: RequestId(u64::from(job)), job: JobId(job), cost, bytes: Bytes(0), nature: Nature::WRITE }).expect("the job is known");
            if dispatch(arbiter.as_mut(), &mut now) == patient {
                return Ok(());
            }
            now += cost;
        }
        prop_assert_eq!(dispatch(arbiter.as_mut(), &mut now), patient);
    }
}

#[test]
fn ties_go_to_the_lowest_job() {
    let mut arbiter = arbiter("job-fair", Draw::VirtualTime);
    for job in [3, 1, 2] {
        arbiter.set_job(Nanos::ZERO, JobId(job), &info(job, 0));
        let request =
            Request { id: RequestId(0), job: JobId(job), cost: Nanos(5), bytes: Bytes(0), nature: Nature::WRITE };
        arbiter.enqueue(Nanos::ZERO, request).expect("the job is known");
    }
    let mut now = Nanos::ZERO;
    let order = [(); 3].map(|()| dispatch(arbiter.as_mut(), &mut now).job.0);
    assert_eq!(order, [1, 2, 3]);
}

#[test]
fn queues_are_bounded() {
    for policy in ["fifo", "job-fair"] {
        let mut arbiter = arbiter(policy, Draw::VirtualTime);
        arbiter.set_job(Nanos::ZERO, JobId(0), &info(0, 0));
        let request =
            |id| Request { id: RequestId(id), job: JobId(0), cost: Nanos(1), bytes: Bytes(0), nature: Nature::WRITE };
        for id in 0..isonomia_policy::QUEUED_MAX as u64 {
            arbiter.enqueue(Nanos::ZERO, request(id)).expect("the job is known");
        }
        let refused = arbiter.enqueue(Nanos::ZERO, request(u64::MAX));
        assert_eq!(refused, Err(EnqueueError::QueueFull { job: JobId(0), request: RequestId(u64::MAX) }));
        assert!(arbiter.cancel(Nanos::ZERO, RequestId(0), JobId(0)));
        assert_eq!(arbiter.enqueue(Nanos::ZERO, request(u64::MAX)), Ok(()));
    }
}

/// Every weight at its extreme: charges stay finite and the order stays right.
#[test]
fn extreme_weights_and_costs_do_not_overflow() {
    let mut arbiter = arbiter("group-fair{g0=0.000001,g1=1000000}-then-size-fair{j0=0.000001}", Draw::VirtualTime);
    let mut now = Nanos::ZERO;
    for job in 0..4 {
        let info = JobInfo { nodes: u32::MAX, ..info(job, 0) };
        arbiter.set_job(now, JobId(job), &info);
        for id in 0..3 {
            arbiter
                .enqueue(
                    now,
                    Request {
                        id: RequestId(id),
                        job: JobId(job),
                        cost: Nanos::MAX,
                        bytes: Bytes(0),
                        nature: Nature::WRITE,
                    },
                )
                .expect("the job is known");
        }
    }
    let order: Vec<u32> = (0..12).map(|_| dispatch(arbiter.as_mut(), &mut now).job.0).collect();
    assert_eq!(order, [0, 1, 2, 3, 1, 3, 1, 3, 2, 2, 0, 0]);
}
