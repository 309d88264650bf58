//! Time of one decision: a request enqueued, picked, and completed, with n jobs active.
//!
//! Prints a JSON line for each draw, regime, and n: the median, least, and greatest ns per decision of the
//! repeats. In the regime `backlogged` every job always has something queued; in `synchronous` the job that was
//! picked has nothing queued until its next request, as with one process per job. Each is measured with and without a
//! fair clock beside the arbiter. Clock: the process's own.
//! The rates of the policies that have any are so high that nobody waits for them. Where it says `declared`, each job says
//! ahead of every [`PHASE`] requests how long they take.
//! Arguments are parts of what a line is about, as in `fair-finish synchronous ' 1000 jobs'`: only lines are measured that
//! have them all.

use isonomia_policy::{
    Action, Arbiter, Depth, Dispatch, Dispatcher, Draw, Nature, Next, Request, RequestId, ServedBy, Submission, Tuning,
    build, with_fair_clock,
};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use std::hint::black_box;
use std::time::Instant;

/// Short repeats, and many: most of them are over before another process takes the core.
const REPEATS: usize = 151;
const DECISIONS: u64 = 10_000;
/// Repeats that are not counted: in them every job comes up several times.
const WARM_UPS: usize = 10;
const COST: Nanos = Nanos::from_micros(10);
/// Requests of which a job says together how long they take, if it does.
const PHASE: u64 = 100;

const SPECIAL: [&str; 13] = [
    "coflow{order=attained,tree=user-then-size-fair}",
    "coflow{order=slowdown,tree=user-then-size-fair}",
    "coflow{order=bottleneck,tree=user-then-size-fair}",
    "fair-finish",
    "fair-finish{sizes=none}",
    "fair-finish{tree=user-then-size-fair}",
    "fair-finish{sizes=history,tree=user-then-size-fair}",
    "tbf{user:*=1TB/s}",
    "tbf{job:*=1TB/s+realtime,spare=proportional}",
    "tbf{job:*&op:read=1TB/s,user:*&op:write&path:/a=1TB/s,group:*&op:write=1TB/s}",
    "mclock",
    "mclock{job:*=reservation:1MB/s+limit:1TB/s}",
    "set10",
];

/// What a job does while it is measured.
#[derive(Clone, Copy)]
struct Regime {
    is_backlogged: bool,
    is_declared: bool,
    has_clock: bool,
}

/// The queue depth of each job, and of the whole, is constant while this runs. `issued` is by job.
fn decide(arbiter: &mut dyn Arbiter, clock: &mut u64, regime: Regime, issued: &mut [u64]) {
    for _ in 0..DECISIONS {
        *clock += COST.0;
        let now = Nanos(*clock);
        let picked = match black_box(arbiter.next(now)) {
            Next::Dispatch(picked) => picked,
            Next::WaitUntil(until) => {
                *clock = until.0;
                continue;
            }
            Next::Idle => unreachable!("requests are queued"),
        };
        let following = Request { id: RequestId(*clock), ..picked };
        if regime.is_declared {
            let issued = &mut issued[picked.job.0 as usize];
            if issued.is_multiple_of(PHASE) {
                arbiter.expect(now, picked.job, Nanos(COST.0 * PHASE));
            }
            *issued += 1;
        }
        if regime.is_backlogged {
            arbiter.enqueue(now, following).expect("the job is known");
            arbiter.complete(now, picked.id, picked.job);
        } else {
            arbiter.complete(now, picked.id, picked.job);
            arbiter.enqueue(now, following).expect("the job is known");
        }
    }
}

fn measure(policy: &str, draw: Draw, is_backlogged: bool, jobs: u32) {
    for has_clock in [false, true] {
        measure_one(policy, draw, Regime { is_backlogged, is_declared: false, has_clock }, jobs);
    }
}

/// Whether the command's arguments ask for this.
fn is_wanted(label: &str) -> bool {
    std::env::args().skip(1).filter(|part| !part.starts_with('-')).all(|part| label.contains(&part))
}

fn measure_one(policy: &str, draw: Draw, regime: Regime, jobs: u32) {
    let Regime { is_backlogged, is_declared, has_clock } = regime;
    let name = if is_backlogged { "backlogged" } else { "synchronous" };
    let kinds =
        [(is_declared, " declared"), (has_clock, " clock")].map(|(is, kind)| if is { kind } else { "" }).concat();
    if !is_wanted(&format!("{policy} {draw} {name} {jobs} jobs{kinds}")) {
        return;
    }
    let spec = policy.parse().expect("a policy");
    let mut arbiter = build(&spec, draw, 1, Tuning::default());
    if has_clock {
        arbiter = with_fair_clock(arbiter, &spec, Tuning::default());
    }
    let depth = if is_backlogged { 2 } else { 1 };
    for job in 0..jobs {
        let name = |prefix: &str, of: u32| format!("{prefix}{}", job % of);
        let mut info = JobInfo::new(&name("j", jobs), &name("u", 40), &name("g", 7));
        info.nodes = 1 + job % 16;
        arbiter.set_job(Nanos::ZERO, JobId(job), &info);
        for id in 0..depth {
            let request =
                Request { id: RequestId(id), job: JobId(job), cost: COST, bytes: Bytes(0), nature: Nature::WRITE };
            arbiter.enqueue(Nanos::ZERO, request).expect("the job is known");
        }
    }
    // Not all at once.
    let mut issued: Vec<u64> = (0..u64::from(jobs)).map(|job| job % PHASE).collect();
    let mut clock = 0;
    for _ in 0..WARM_UPS {
        decide(arbiter.as_mut(), &mut clock, regime, &mut issued);
    }
    let mut ns: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let begin = Instant::now();
            decide(arbiter.as_mut(), &mut clock, regime, &mut issued);
            begin.elapsed().as_nanos() as f64 / DECISIONS as f64
        })
        .collect();
    ns.sort_by(f64::total_cmp);
    println!(
        "{{\"policy\":\"{policy}\",\"draw\":\"{draw}\",\"regime\":\"{name}\",\"jobs\":{jobs},\"declared\":{is_declared},\
         \"fair_clock\":{has_clock},\
         \"ns_per_decision_median\":{:.1},\"ns_min\":{:.1},\"ns_max\":{:.1},\"repeats\":{REPEATS}}}",
        ns[REPEATS / 2],
        ns[0],
        ns[REPEATS - 1]
    );
}

/// A request that goes through a target's dispatcher, with a shadow or without.
fn measure_shadow(policy: &str, shadow: Option<&str>, jobs: u32) {
    if !is_wanted(&format!("{policy} shadow {jobs} jobs")) {
        return;
    }
    let arbiter = |policy: &str| {
        let mut arbiter = build(&policy.parse().expect("a policy"), Draw::VirtualTime, 1, Tuning::default());
        for job in 0..jobs {
            arbiter.set_job(Nanos::ZERO, JobId(job), &JobInfo::new(&format!("j{job}"), "u", "g"));
        }
        arbiter
    };
    let mut dispatcher: Dispatcher<u32> = Dispatcher::new(arbiter(policy), None, Depth::Fixed(1));
    dispatcher.set_shadow(Nanos::ZERO, shadow.map(arbiter));
    let submission = |job: u32| {
        let (owed, bytes, nature, is_counted) = (Nanos::ZERO, Bytes(4096), Nature::WRITE, true);
        Submission { job: JobId(job), cost: COST, owed, work: COST, bytes, nature, is_counted }
    };
    for job in (0..jobs).flat_map(|job| [job, job]) {
        dispatcher.enqueue(Nanos::ZERO, submission(job), job).expect("the job is known");
    }
    let mut clock = 0;
    let mut decide = |count: u64| {
        for _ in 0..count {
            clock += COST.0;
            let now = Nanos(clock);
            if let Action::Serve(Dispatch { id, request: job, .. }) = black_box(dispatcher.next(now)) {
                dispatcher.complete(now, id, ServedBy::Device);
                dispatcher.enqueue(now, submission(job), job).expect("the job is known");
            }
        }
    };
    decide(10 * DECISIONS);
    let mut ns: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let begin = Instant::now();
            decide(DECISIONS);
            begin.elapsed().as_nanos() as f64 / DECISIONS as f64
        })
        .collect();
    ns.sort_by(f64::total_cmp);
    let shadow = shadow.unwrap_or("none");
    println!(
        "{{\"policy\":\"{policy}\",\"shadow\":\"{shadow}\",\"jobs\":{jobs},\"ns_per_request_median\":{:.1},\"ns_min\":{:.1}}}",
        ns[REPEATS / 2],
        ns[0],
    );
}

fn main() {
    for jobs in [10, 1_000] {
        for shadow in [None, Some("job-fair"), Some("user-then-size-fair"), Some("tbf{job:*=1TB/s}")] {
            measure_shadow("size-fair", shadow, jobs);
        }
    }
    for jobs in [10, 100, 1_000, 10_000] {
        measure("fifo", Draw::VirtualTime, true, jobs);
        for policy in SPECIAL {
            for backlogged in [true, false] {
                measure(policy, Draw::VirtualTime, backlogged, jobs);
            }
        }
        for policy in ["fair-finish", "fair-finish{tree=user-then-size-fair}"] {
            for is_backlogged in [true, false] {
                let regime = Regime { is_backlogged, is_declared: true, has_clock: false };
                measure_one(policy, Draw::VirtualTime, regime, jobs);
            }
        }
        for policy in ["size-fair", "group-then-user-then-size-fair"] {
            for draw in [Draw::VirtualTime, Draw::Lottery] {
                for backlogged in [true, false] {
                    measure(policy, draw, backlogged, jobs);
                }
            }
        }
    }
}
