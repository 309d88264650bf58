//! Holds, call by call: when the turn is held, for how long, and what a job that does not come loses.

use isonomia_policy::{Arbiter, Draw, Nature, Next, Request, RequestId, Tuning, build};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos, Rate};

const PROMPT: JobId = JobId(1);
const BUSY: JobId = JobId(2);
const COST: Nanos = Nanos::from_micros(100);
const THINK: Nanos = Nanos::from_micros(20);
/// Holds without the arrears that are free: the first nanosecond counts.
const AT_ONCE: Tuning = Tuning {
    active_window: Nanos::from_millis(20),
    hold_max: Nanos::from_micros(500),
    lag_free: Nanos::ZERO,
    lag_max: Nanos::from_millis(50),
    parallel: 1,
    bandwidth: Rate::new(1_000_000_000).expect("constant"),
};

struct Bench {
    arbiter: Box<dyn Arbiter>,
    now: Nanos,
    id: u64,
}

impl Bench {
    /// `PROMPT` is due four times as much as `BUSY`, which always has a request queued.
    fn new(policy: &str) -> Self {
        let spec = policy.parse().expect("a policy");
        let mut arbiter = build(&spec, Draw::VirtualTime, 0, AT_ONCE);
        arbiter.set_job(Nanos::ZERO, PROMPT, &JobInfo { nodes: 4, ..JobInfo::new("prompt", "", "") });
        arbiter.set_job(Nanos::ZERO, BUSY, &JobInfo::new("busy", "", ""));
        Self { arbiter, now: Nanos::ZERO, id: 0 }
    }

    fn issue(&mut self, job: JobId) {
        self.id += 1;
        let request = Request { id: RequestId(self.id), job, cost: COST, bytes: Bytes(0), nature: Nature::WRITE };
        self.arbiter.enqueue(self.now, request).expect("the job is known");
    }

    /// Serves what is next, keeping `BUSY` backlogged; the job served, or until when the turn is held.
    fn serve(&mut self) -> Result<JobId, Nanos> {
        while self.arbiter.queued_of(BUSY) < 2 {
            self.issue(BUSY);
        }
        match self.arbiter.next(self.now) {
            Next::Dispatch(request) => {
                self.now += COST;
                self.arbiter.complete(self.now, request.id, request.job);
                Ok(request.job)
            }
            Next::WaitUntil(until) => Err(until),
            Next::Idle => unreachable!("requests are queued"),
        }
    }

    /// Lets `PROMPT` issue its next request `THINK` after each of its `count` services.
    fn return_promptly(&mut self, count: usize) -> usize {
        let (mut served, mut holds) = (0, 0);
        self.issue(PROMPT);
        while served < count {
            match self.serve() {
                Ok(PROMPT) => {
                    served += 1;
                    if served < count {
                        self.now += THINK;
                        self.issue(PROMPT);
                    }
                }
                Ok(_) => {}
                Err(_) => holds += 1,
            }
        }
        holds
    }
}

#[test]
fn small_arrears_are_caught_up_with_instead_of_waited_for() {
    let mut bench = Bench::new("job-fair");
    let spec = "job-fair".parse().expect("a policy");
    bench.arbiter = build(&spec, Draw::VirtualTime, 0, Tuning { lag_free: COST + COST, ..AT_ONCE });
    for job in [PROMPT, BUSY] {
        bench.arbiter.set_job(Nanos::ZERO, job, &JobInfo::new("job", "", ""));
    }
    assert_eq!(bench.return_promptly(8), 0, "one request behind");
    // Absent for two turns, it is two requests behind, and nothing is held.
    assert_eq!([bench.serve(), bench.serve()], [Ok(BUSY); 2]);
    // Back, it catches up.
    (0..3).for_each(|_| bench.issue(PROMPT));
    assert_eq!([bench.serve(), bench.serve()], [Ok(PROMPT); 2]);
}

#[test]
fn the_turn_of_a_job_that_is_behind_is_held_until_it_returns() {
    let mut bench = Bench::new("size-fair");
    bench.return_promptly(6);
    let until = bench.serve().expect_err("it is due back soon");
    assert!(until > bench.now + THINK && until <= bench.now + Tuning::default().hold_max);
    bench.now += THINK;
    bench.issue(PROMPT);
    assert_eq!(bench.serve(), Ok(PROMPT));
}

#[test]
fn a_job_that_does_not_come_loses_its_turn_and_what_it_was_owed() {
    let mut bench = Bench::new("size-fair");
    bench.return_promptly(6);
    bench.now = bench.serve().expect_err("it is due back soon");
    assert_eq!(bench.serve(), Ok(BUSY));
    assert_eq!(bench.serve(), Ok(BUSY), "it is not waited for a second time");
    for absence in 0..2 {
        bench.issue(PROMPT);
        assert_eq!(bench.serve(), Ok(PROMPT));
        bench.now += Tuning::default().hold_max;
        assert_eq!(bench.serve(), Ok(BUSY), "a late return earns no trust, absence {absence}");
    }
    bench.return_promptly(12);
    assert!(bench.serve().is_err(), "prompt returns earn it back");
}

/// What it was owed is forgiven: with many requests at once it gets 4 : 1 from there on, and no arrears.
#[test]
fn arrears_do_not_outlive_a_missed_turn() {
    let mut bench = Bench::new("size-fair");
    bench.return_promptly(6);
    bench.now = bench.serve().expect_err("it is due back soon");
    assert_eq!(bench.serve(), Ok(BUSY));
    (0..20).for_each(|_| bench.issue(PROMPT));
    let order: Vec<JobId> = (0..11).map_while(|_| bench.serve().ok()).collect();
    let expected = [&[PROMPT; 5][..], &[BUSY], &[PROMPT; 4], &[BUSY]].concat();
    assert_eq!(order, expected, "four each, and the tie at the end of the first round goes to the lower id");
}

#[test]
fn trust_is_earned_back_by_twice_as_many_prompt_returns_after_each_miss() {
    let mut bench = Bench::new("size-fair");
    bench.arbiter.set_job(Nanos::ZERO, PROMPT, &JobInfo { nodes: 1_000_000, ..JobInfo::new("prompt", "", "") });
    bench.return_promptly(6);
    for prompt_returns in [2, 4, 8, 16] {
        bench.now = bench.serve().expect_err("it is due back soon");
        assert_eq!(bench.serve(), Ok(BUSY));
        for returns in 0..=prompt_returns {
            let held = bench.serve();
            assert_eq!(held, Ok(BUSY), "the first return is late; {returns} of {prompt_returns}");
            bench.now += THINK;
            bench.issue(PROMPT);
            assert_eq!(bench.serve(), Ok(PROMPT));
        }
    }
}

#[test]
fn nobody_is_waited_for_under_fifo_or_without_anticipation_or_before_it_is_known() {
    assert_eq!(Bench::new("fifo").return_promptly(1), 0);
    let mut bench = Bench::new("fifo");
    bench.return_promptly(6);
    assert_eq!(bench.serve(), Ok(BUSY));
    let mut unknown = Bench::new("size-fair");
    unknown.return_promptly(1);
    assert!(unknown.serve().is_ok());
    let mut off = Bench::new("size-fair");
    let spec = "size-fair".parse().expect("a policy");
    off.arbiter = build(&spec, Draw::VirtualTime, 0, Tuning { hold_max: Nanos::ZERO, ..Tuning::default() });
    off.arbiter.set_job(Nanos::ZERO, PROMPT, &JobInfo { nodes: 4, ..JobInfo::new("prompt", "", "") });
    off.arbiter.set_job(Nanos::ZERO, BUSY, &JobInfo::new("busy", "", ""));
    off.return_promptly(6);
    assert_eq!(off.serve(), Ok(BUSY));
}

#[test]
fn a_removed_or_idle_job_is_not_waited_for() {
    let mut bench = Bench::new("size-fair");
    bench.return_promptly(6);
    assert!(bench.serve().is_err());
    bench.arbiter.remove_job(bench.now, PROMPT);
    assert_eq!(bench.serve(), Ok(BUSY));

    let mut bench = Bench::new("size-fair");
    bench.return_promptly(6);
    bench.now += Tuning::default().active_window;
    assert_eq!(bench.serve(), Ok(BUSY));
    assert_eq!(bench.arbiter.shares(bench.now), [(BUSY, 1.0)]);
}

/// Switching the policy of a live target: out of one arbiter, into another, nothing lost, order kept.
#[test]
fn the_policy_changes_live_without_dropping_a_request() {
    let mut bench = Bench::new("size-fair");
    for job in [PROMPT, BUSY, BUSY, PROMPT] {
        bench.issue(job);
    }
    let queued = bench.arbiter.drain();
    assert_eq!(queued.iter().map(|request| request.id.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!((bench.arbiter.queued(), bench.arbiter.next(bench.now)), (0, Next::Idle));
    let mut next = Bench::new("fifo");
    for request in &queued {
        next.arbiter.enqueue(Nanos::ZERO, *request).expect("the job is known");
    }
    let order = [(); 4].map(|()| next.arbiter.next(Nanos::ZERO));
    assert_eq!(order[..], queued.into_iter().map(Next::Dispatch).collect::<Vec<_>>()[..]);
}
