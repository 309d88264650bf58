//! `set10`: one phase of each set at a time, and sets by their priorities.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use isonomia_policy::{Arbiter, Draw, Nature, Next, Request, RequestId, Tuning, build};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};

const MS: Nanos = Nanos::from_millis(1);

struct Bench {
    arbiter: Box<dyn Arbiter>,
    now: Nanos,
    id: u64,
}

impl Bench {
    fn new(policy: &str, jobs: u32) -> Self {
        let mut arbiter = build(&policy.parse().unwrap(), Draw::VirtualTime, 0, Tuning::default());
        for job in 0..jobs {
            arbiter.set_job(Nanos::ZERO, JobId(job), &JobInfo::new(&format!("j{job}"), "u", "g"));
        }
        Self { arbiter, now: Nanos::ZERO, id: 0 }
    }

    fn issue(&mut self, job: u32, count: u32) {
        for _ in 0..count {
            self.id += 1;
            let request =
                Request { id: RequestId(self.id), job: JobId(job), cost: MS, bytes: Bytes(0), nature: Nature::WRITE };
            self.arbiter.enqueue(self.now, request).unwrap();
        }
    }

    fn serve(&mut self, count: usize) -> Vec<u32> {
        let mut served = Vec::new();
        while served.len() < count {
            match self.arbiter.next(self.now) {
                Next::Dispatch(request) => {
                    self.now += MS;
                    self.arbiter.complete(self.now, request.id, request.job);
                    served.push(request.job.0);
                }
                Next::WaitUntil(until) => self.now = until,
                Next::Idle => panic!("something is queued"),
            }
        }
        served
    }
}

#[test]
fn phases_of_a_set_are_served_one_after_the_other() {
    let mut bench = Bench::new("set10{job:*=30s}", 3);
    for job in [2, 0, 1] {
        bench.issue(job, 3);
    }
    bench.issue(2, 1);
    assert_eq!(bench.serve(10), [2, 2, 2, 2, 0, 0, 0, 1, 1, 1]);
    // Still in their phases, in that order: job 2 is first again.
    bench.issue(1, 2);
    bench.issue(2, 1);
    assert_eq!(bench.serve(3), [2, 1, 1]);
    // After a pause a phase is a new one, at the end.
    bench.issue(0, 1);
    bench.serve(1);
    bench.now += Tuning::default().active_window;
    bench.issue(1, 2);
    bench.issue(0, 2);
    assert_eq!(bench.serve(4), [1, 1, 0, 0]);
}

/// Priorities 1 and 1/10: of eleven requests the set of one second has ten; two jobs in it have no more.
#[test]
fn sets_share_by_their_priorities() {
    let mut bench = Bench::new("set10{job:j0=10s,job:j3=100s,job:*=1s}", 4);
    bench.issue(0, 200);
    bench.issue(1, 60);
    bench.issue(2, 60);
    let served = bench.serve(110);
    let of = |served: &[u32], job| served.iter().filter(|&&of| of == job).count();
    assert_eq!([0, 1, 2].map(|job| of(&served, job)), [10, 60, 40]);
    // Once they have ended, the set of ten seconds has everything; then a tenth of it is for that of hundred.
    bench.serve(30);
    bench.issue(3, 50);
    let served = bench.serve(110);
    assert_eq!(of(&served, 3), 10);
}

#[test]
fn the_characteristic_time_is_learnt_from_the_beginnings_of_phases() {
    let mut bench = Bench::new("set10{job:j0=10s}", 2);
    for beginning in 1..4 {
        bench.now = Nanos::from_secs(beginning);
        bench.issue(1, 2);
        bench.serve(2);
    }
    bench.now = Nanos::from_secs(4);
    // Job 1 begins a phase each second. Unknown, it would be in job 0's set, and come second.
    bench.issue(0, 40);
    bench.issue(1, 20);
    let served = bench.serve(22);
    assert_eq!(served.iter().filter(|&&job| job == 1).count(), 20, "{served:?}");
}

/// What a set of one phase does not use goes to the others at once: the target is never idle for long.
#[test]
fn work_is_conserved() {
    let mut bench = Bench::new("set10{job:j0=1ms}", 2);
    bench.issue(1, 10);
    assert_eq!(bench.serve(10), [1; 10]);
    assert_eq!(bench.now, Nanos::from_millis(10));
    assert_eq!(bench.arbiter.next(bench.now), Next::Idle);
}
