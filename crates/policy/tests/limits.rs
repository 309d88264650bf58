//! `tbf` and `mclock`: rates in bytes per second that are kept.
//!
//! A byte takes a nanosecond here: a request that costs 1 ms counts 1 MB, and 1 GB/s is all there is.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use isonomia_policy::exchange::rates::Divider;
use isonomia_policy::{Arbiter, Draw, Nature, Next, Operation, Request, RequestId, Tuning, build};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use proptest::prelude::*;

const MS: Nanos = Nanos::from_millis(1);

/// A target that serves one request at a time, and jobs that always have two queued.
struct Bench {
    arbiter: Box<dyn Arbiter>,
    now: Nanos,
    id: u64,
    /// What each dispatch gave to whom, and when.
    log: Vec<(Nanos, u32, Nanos)>,
}

impl Bench {
    fn new(policy: &str) -> Self {
        let arbiter = build(&policy.parse().unwrap(), Draw::VirtualTime, 0, Tuning::default());
        Self { arbiter, now: Nanos::ZERO, id: 0, log: Vec::new() }
    }

    /// Jobs `0..count` of two users each: job 0 and 1 are u0's, and so on.
    fn with_jobs(policy: &str, count: u32) -> Self {
        let mut bench = Self::new(policy);
        (0..count).for_each(|job| bench.add(job));
        bench
    }

    fn add(&mut self, job: u32) {
        self.arbiter.set_job(self.now, JobId(job), &JobInfo::new(&format!("j{job}"), &format!("u{}", job / 2), "g"));
    }

    fn issue(&mut self, job: u32, count: u32, cost: Nanos) {
        for _ in 0..count {
            self.id += 1;
            self.arbiter
                .enqueue(
                    self.now,
                    Request {
                        id: RequestId(self.id),
                        job: JobId(job),
                        cost,
                        bytes: Bytes(cost.0),
                        nature: Nature::WRITE,
                    },
                )
                .unwrap();
        }
    }

    /// Serves what is due now; the job served, or when to ask again.
    fn serve(&mut self) -> Result<u32, Nanos> {
        match self.arbiter.next(self.now) {
            Next::Dispatch(request) => {
                self.log.push((self.now, request.job.0, request.cost));
                self.now += request.cost;
                self.arbiter.complete(self.now, request.id, request.job);
                Ok(request.job.0)
            }
            Next::WaitUntil(until) => Err(until),
            Next::Idle => panic!("something is queued"),
        }
    }

    /// Keeps each of `jobs` backlogged with requests of its cost until `end`.
    fn run(&mut self, jobs: &[(u32, Nanos)], end: Nanos) {
        while self.now < end {
            for &(job, cost) in jobs {
                while self.arbiter.queued_of(JobId(job)) < 2 {
                    self.issue(job, 1, cost);
                }
            }
            if let Err(until) = self.serve() {
                assert!(until > self.now);
                self.now = until;
            }
        }
    }

    /// Part of the time from `from` on that each of `jobs` jobs was served.
    fn parts(&self, jobs: u32, from: Nanos) -> Vec<f64> {
        let inside = || self.log.iter().filter(|(at, ..)| *at >= from);
        let of = |job| inside().filter(|(_, of, _)| *of == job).map(|(.., cost)| cost.0).sum::<u64>();
        (0..jobs).map(|job| of(job) as f64 / self.now.since(from).0 as f64).collect()
    }

    /// The most that a set of jobs received in any span of time, less what `rate` allows in it.
    fn excess(&self, jobs: &[u32], bytes_per_ns: f64) -> f64 {
        let own: Vec<_> = self.log.iter().filter(|(_, job, _)| jobs.contains(job)).collect();
        let mut worst = f64::MIN;
        for from in 0..own.len() {
            let mut sum = 0.0;
            for (at, _, cost) in &own[from..] {
                sum += cost.0 as f64;
                worst = worst.max(sum - bytes_per_ns * at.since(own[from].0).0 as f64);
            }
        }
        worst
    }
}

fn assert_near(found: &[f64], expected: &[f64]) {
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.01), "{found:.4?}, expected {expected:?}");
}

#[test]
fn a_bucket_gives_its_burst_and_then_its_rate() {
    let mut bench = Bench::with_jobs("tbf{job:j0=100MB/s,burst=3MB}", 1);
    bench.issue(0, 6, MS);
    assert_eq!([bench.serve(), bench.serve(), bench.serve()], [Ok(0); 3]);
    // Three are spent at 0, 1, and 2 ms: the fourth has its credit 10 ms after the first.
    assert_eq!(bench.serve(), Err(MS + Nanos::from_millis(9)));
    bench.now = Nanos(10_000_000 - 1);
    assert_eq!(bench.serve(), Err(Nanos::from_millis(10)));
    bench.now = Nanos::from_millis(10);
    assert_eq!([bench.serve(), bench.serve()], [Ok(0), Err(Nanos::from_millis(20))]);
    // After a long pause the burst is there again, and no more.
    bench.now = Nanos::from_secs(9);
    bench.issue(0, 2, MS);
    assert_eq!([bench.serve(), bench.serve(), bench.serve()], [Ok(0); 3]);
    assert!(bench.serve().is_err());
}

#[test]
fn a_request_larger_than_the_burst_goes_when_the_bucket_is_full_and_is_paid_off() {
    let mut bench = Bench::with_jobs("tbf{job:j0=100MB/s,burst=1MB}", 1);
    bench.issue(0, 2, Nanos::from_millis(5));
    assert_eq!([bench.serve(), bench.serve()], [Ok(0), Err(Nanos::from_millis(50))]);
}

#[test]
fn the_smallest_part_of_the_smallest_rate_is_a_limit() {
    let mut bench = Bench::with_jobs("tbf{job:j0=1B/s}", 1);
    let parts = Divider::new(1000, None, vec![false; 1000]).begin();
    bench.arbiter.set_rate_parts(Nanos::ZERO, &parts[0]);
    bench.issue(0, 20, MS);
    let served = (0..20).take_while(|_| bench.serve().is_ok()).count();
    assert!((1..=3).contains(&served), "{served} at once: what is in a bucket, and nothing for years");
}

#[test]
fn rules_tell_operations_and_directories_apart_and_count_operations() {
    let policy = "tbf{free@op:metadata=exempt,a@path:/a=1B/s,job:j0&op:write=10ops/s,burst=0B}";
    let mut bench = Bench::with_jobs(policy, 2);
    let mut ask = |id: u64, job: u32, operation, below| {
        let nature = Nature { operation: Some(operation), operations: 1, below };
        let (id, job) = (RequestId(id), JobId(job));
        bench.arbiter.enqueue(Nanos::ZERO, Request { id, job, cost: MS, bytes: Bytes(1_000_000), nature }).unwrap();
    };
    // Below /a: one goes when its bucket is full, the other one waits for longer than this test.
    ask(1, 1, Operation::Write, 1);
    ask(2, 1, Operation::Read, 1);
    // Five writes of j0, of which a bucket of operations holds three; what follows them of the same job does not wait.
    (10..15).for_each(|id| ask(id, 0, Operation::Write, 0));
    ask(20, 0, Operation::Read, 0);
    ask(21, 0, Operation::Metadata, 1);
    let mut served = Vec::new();
    while let Next::Dispatch(request) = bench.arbiter.next(Nanos::ZERO) {
        served.push(request.id.0);
        bench.arbiter.complete(Nanos::ZERO, request.id, request.job);
    }
    served.sort_unstable();
    assert_eq!(served, [1, 10, 11, 12, 20, 21]);
    assert_eq!(bench.arbiter.next(Nanos::ZERO), Next::WaitUntil(Nanos::from_millis(100)), "a tenth of a second each");
    let reports = bench.arbiter.rates(Nanos::from_millis(50));
    let of = |rule: usize| reports.iter().find(|report| report.rule == rule && report.queued > 0).unwrap();
    assert_eq!((of(2).queued, of(2).held, of(2).operations), (2, Nanos::from_millis(50), 3));
    assert_eq!(of(2).jobs, [(JobId(0), Nanos::from_millis(50))]);
    assert_eq!((of(1).queued, of(1).bytes, of(1).is_held), (1, 1_000_000, true));
}

#[test]
fn jobs_of_a_user_share_a_bucket_and_the_first_rule_decides() {
    let policy = "tbf{job:j3=500MB/s,user:u0=100MB/s,user:*=200MB/s,burst=1MB}";
    let mut bench = Bench::with_jobs(policy, 6);
    let jobs: Vec<_> = (0..6).map(|job| (job, Nanos::from_micros(100))).collect();
    bench.run(&jobs, Nanos::from_secs(2));
    let parts = bench.parts(6, Nanos::ZERO);
    assert_near(&[parts[0] + parts[1], parts[2], parts[3], parts[4] + parts[5]], &[0.1, 0.2, 0.5, 0.2]);
}

#[test]
fn a_job_without_a_rule_gets_what_the_rules_leave() {
    let mut bench = Bench::with_jobs("tbf{job:j0=300MB/s}", 2);
    bench.run(&[(0, MS), (1, MS)], Nanos::from_secs(2));
    assert_near(&bench.parts(2, Nanos::from_millis(100)), &[0.3, 0.7]);
}

#[test]
fn leaving_and_coming_back_does_not_renew_a_limit() {
    for policy in ["tbf{user:u0=100MB/s,burst=3MB}", "mclock{user:u0=limit:100MB/s}"] {
        let mut bench = Bench::with_jobs(policy, 1);
        let mut served = Nanos::ZERO;
        for _ in 0..300 {
            bench.issue(0, 4, MS);
            while bench.serve().is_ok() {
                served += MS;
            }
            bench.arbiter.remove_job(bench.now, JobId(0));
            // Others come and go too.
            bench.add(9);
            bench.arbiter.remove_job(bench.now, JobId(9));
            bench.add(0);
            bench.now += MS;
        }
        assert!(served.0 <= bench.now.0 / 10 + 6_000_000, "{policy}: {served} in {}", bench.now);
    }
}

#[test]
fn a_job_that_changes_its_user_takes_its_requests_along() {
    let mut bench = Bench::with_jobs("tbf{user:u0=1B/s,user:u1=1GB/s,burst=0B}", 3);
    bench.issue(0, 2, MS);
    assert_eq!(bench.serve(), Ok(0));
    bench.issue(2, 1, MS);
    bench.issue(0, 1, MS);
    bench.issue(2, 1, MS);
    bench.arbiter.set_job(bench.now, JobId(0), &JobInfo::new("j0", "u1", "g"));
    bench.run(&[], Nanos::ZERO);
    let order: Vec<_> = (0..4).map(|_| bench.serve()).collect();
    assert_eq!(order, [Ok(0), Ok(2), Ok(0), Ok(2)], "in the order of their arrival");
}

/// Nobody asks for the first 200 ms. Hard token compensation makes up for it, and a plain bucket does not.
#[test]
fn a_realtime_class_is_served_until_it_has_what_it_missed() {
    let part = |policy| {
        let mut bench = Bench::with_jobs(policy, 2);
        bench.issue(0, 2, MS);
        bench.issue(1, 2, MS);
        bench.now = Nanos::from_millis(200);
        bench.run(&[(0, MS), (1, MS)], Nanos::from_secs(1));
        bench.parts(1, Nanos::ZERO)[0]
    };
    assert_near(&[part("tbf{job:j0=400MB/s+realtime}"), part("tbf{job:j0=400MB/s}")], &[0.4, 0.32]);
}

#[test]
fn spare_service_is_shared_in_proportion_to_the_rates() {
    let ms = |count| Nanos::from_millis(count);
    let run = |policy, costs: [Nanos; 3]| {
        let mut bench = Bench::with_jobs(policy, 3);
        let jobs: Vec<_> = (0..3).zip(costs).collect();
        bench.run(&jobs, Nanos::from_secs(4));
        bench.parts(3, ms(100))
    };
    // R = 500 MB/s of 1 GB/s: everybody gets twice its rate, realtime or not, whatever its requests.
    let policy = "tbf{job:j0=100MB/s+realtime,job:j1=100MB/s,job:*=300MB/s,spare=proportional}";
    assert_near(&run(policy, [MS, Nanos::from_micros(50), ms(2)]), &[0.2, 0.2, 0.6]);
    // R = 2.2 GB/s: the realtime class keeps its 400 MB/s, the others share 600 by 600 : 1200.
    let policy = "tbf{job:j0=400MB/s+realtime,job:j1=600MB/s,job:*=1200MB/s,spare=proportional}";
    assert_near(&run(policy, [MS; 3]), &[0.4, 0.2, 0.4]);
    // Without it, all share by their rates.
    let policy = "tbf{job:j0=400MB/s,job:j1=600MB/s,job:*=1GB/s,spare=proportional}";
    assert_near(&run(policy, [MS; 3]), &[0.2, 0.3, 0.5]);
}

#[test]
fn reservations_first_then_weights_below_the_limits() {
    let run = |policy| {
        let mut bench = Bench::with_jobs(policy, 3);
        bench.run(&[(0, MS), (1, MS), (2, Nanos::from_micros(300))], Nanos::from_secs(4));
        bench.parts(3, Nanos::from_millis(200))
    };
    assert_near(&run("mclock{job:j1=weight:2,job:j2=weight:7}"), &[0.1, 0.2, 0.7]);
    assert_near(&run("mclock{job:j2=limit:200MB/s+weight:8}"), &[0.4, 0.4, 0.2]);
    assert_near(&run("mclock{job:j0=reservation:500MB/s,job:j2=limit:200MB/s+weight:8}"), &[0.5, 0.3, 0.2]);
    // A reservation below the share by weight changes nothing.
    assert_near(&run("mclock{job:j0=reservation:100MB/s+weight:2,job:j1=weight:2}"), &[0.4, 0.4, 0.2]);
    assert_near(&run("mclock{job:*=limit:100MB/s,user:*=weight:9}"), &[0.1, 0.1, 0.1]);
}

/// A synchronous process of one request every other millisecond keeps a reservation of 400 MB/s against many.
#[test]
fn a_synchronous_process_receives_its_reservation() {
    let mut bench = Bench::with_jobs("mclock{job:j0=reservation:400MB/s+weight:0.000001}", 2);
    bench.issue(0, 1, MS);
    let mut back_at = None;
    while bench.now < Nanos::from_secs(2) {
        if back_at.is_some_and(|at| at <= bench.now) {
            back_at = None;
            bench.issue(0, 1, MS);
        }
        while bench.arbiter.queued_of(JobId(1)) < 4 {
            bench.issue(1, 1, MS);
        }
        if bench.serve() == Ok(0) {
            back_at = Some(bench.now + Nanos::from_micros(50));
        }
    }
    assert_near(&bench.parts(1, Nanos::from_millis(200)), &[0.4]);
}

#[derive(Clone, Debug)]
struct Load {
    mb_per_s: u32,
    realtime: bool,
    costs_us: Vec<u64>,
}

fn loads() -> impl Strategy<Value = Vec<Load>> {
    let load = (1u32..800, any::<bool>(), proptest::collection::vec(1u64..6_000, 1..4))
        .prop_map(|(mb_per_s, realtime, costs_us)| Load { mb_per_s, realtime, costs_us });
    proptest::collection::vec(load, 1..5)
}

/// Plays `calls`: 0 to 4 issue a request of a job, 5 and 6 serve, the rest let time pass.
fn play(bench: &mut Bench, loads: &[Load], calls: &[(u8, u64)]) -> usize {
    let mut waits = 0;
    for &(call, us) in calls {
        match call {
            0..5 if usize::from(call) < loads.len() => {
                let costs = &loads[usize::from(call)].costs_us;
                bench.issue(u32::from(call), 1, Nanos::from_micros(costs[us as usize % costs.len()]));
            }
            5..7 if bench.arbiter.queued() > 0 => {
                if let Err(until) = bench.serve() {
                    waits += 1;
                    bench.now = if us % 2 == 0 { until } else { bench.now + Nanos::from_micros(us) };
                }
            }
            7 => bench.now += Nanos::from_micros(us),
            _ => {}
        }
    }
    waits
}

proptest! {
    /// In no span of time does a class receive more than its rate allows and its burst or one request; under mClock
    /// also what it missed of its limit, for a bounded time.
    #[test]
    fn limits_are_kept_in_every_span_of_time(
        loads in loads(), burst_kb in 0u64..9_000, calls in proptest::collection::vec((0u8..8, 0u64..30_000), 0..400)
    ) {
        let rules = |rule: fn(&Load) -> String| {
            loads.iter().enumerate().map(|(job, load)| format!("job:j{job}={}", rule(load))).collect::<Vec<_>>().join(",")
        };
        let tbf = format!("tbf{{{},burst={burst_kb}kB}}", rules(|load| format!("{}MB/s", load.mb_per_s)));
        let mclock = format!("mclock{{{}}}", rules(|load| {
            let reservation = if load.realtime { format!("reservation:{}MB/s+", load.mb_per_s) } else { String::new() };
            format!("{reservation}limit:{}MB/s", load.mb_per_s)
        }));
        for (policy, burst, spread) in [(tbf, burst_kb * 1_000, Nanos::ZERO), (mclock, 0, Tuning::default().lag_max)] {
            let mut bench = Bench::with_jobs(&policy, loads.len() as u32);
            play(&mut bench, &loads, &calls);
            for (job, load) in loads.iter().enumerate() {
                let rate = f64::from(load.mb_per_s) / 1e3;
                let most = burst.max(load.costs_us.iter().max().unwrap() * 1_000) as f64 + rate * spread.0 as f64;
                let excess = bench.excess(&[job as u32], rate);
                prop_assert!(excess <= most + 1.0, "{policy}: job {job} is {excess} over its rate, allowed {most}");
            }
        }
    }

    /// The target is never idle while something is queued, unless limits say so.
    #[test]
    fn work_is_conserved(loads in loads(), calls in proptest::collection::vec((0u8..8, 0u64..30_000), 0..300)) {
        let rule = |(job, load): (usize, &Load)| {
            format!("job:j{job}={}MB/s{}", load.mb_per_s, if load.realtime { "+realtime" } else { "" })
        };
        let rules: Vec<_> = loads.iter().enumerate().map(rule).collect();
        let tbf = format!("tbf{{{},job:*=1MB/s,spare=proportional}}", rules.join(","));
        for policy in [tbf.as_str(), "mclock{job:j0=reservation:300MB/s,user:*=weight:2}"] {
            let mut bench = Bench::with_jobs(policy, loads.len() as u32);
            prop_assert_eq!(play(&mut bench, &loads, &calls), 0);
        }
    }

    /// Reservations that sum to the bandwidth or less are received, but for one request of each class and the
    /// one that is served when a reservation falls due.
    #[test]
    fn feasible_reservations_are_met(loads in loads(), spare in 1u32..500, weights in proptest::collection::vec(1u32..1_000, 5)) {
        let sum: u32 = spare + loads.iter().map(|load| load.mb_per_s).sum::<u32>();
        let kb_per_s = |load: &Load| u64::from(load.mb_per_s) * 1_000_000 / u64::from(sum);
        let rule = |(job, load): (usize, &Load)| format!("job:j{job}=reservation:{}kB/s+weight:{}", kb_per_s(load), weights[job]);
        let rules: Vec<_> = loads.iter().enumerate().map(rule).collect();
        let mut bench = Bench::with_jobs(&format!("mclock{{{}}}", rules.join(",")), loads.len() as u32);
        let mut count = 0;
        while bench.now < Nanos::from_millis(400) {
            for (job, load) in loads.iter().enumerate() {
                while bench.arbiter.queued_of(JobId(job as u32)) < 2 {
                    count += 1;
                    bench.issue(job as u32, 1, Nanos::from_micros(load.costs_us[count % load.costs_us.len()]));
                }
            }
            bench.serve().unwrap();
        }
        let largest = |load: &Load| load.costs_us.iter().max().unwrap() * 1_000;
        let each: u64 = loads.iter().map(largest).sum::<u64>() + loads.iter().map(largest).max().unwrap();
        for (job, load) in loads.iter().enumerate() {
            let received = bench.parts(5, Nanos::ZERO)[job] * bench.now.0 as f64;
            let due = kb_per_s(load) as f64 / 1e6 * bench.now.since(Nanos(each)).0 as f64 - largest(load) as f64;
            prop_assert!(received >= due, "job {job}: {received}, reserved {due}");
        }
    }
}
