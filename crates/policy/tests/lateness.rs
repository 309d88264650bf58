//! A fair clock beside an arbiter: it changes no decision, and tells whose I/O phase ended later than under fair sharing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_policy::exchange::rates::Divider;
use isonomia_policy::{
    Arbiter, Draw, Lateness, Nature, Next, PhaseReport, PolicySpec, Request, RequestId, Tuning, build, with_fair_clock,
};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use proptest::prelude::*;

const COST: Nanos = Nanos::from_micros(100);

fn arbiter(policy: &str) -> Box<dyn Arbiter> {
    let spec: PolicySpec = policy.parse().unwrap();
    let tuning = Tuning::default();
    let mut arbiter = with_fair_clock(build(&spec, Draw::VirtualTime, 1, tuning), &spec, tuning);
    for job in 0..3 {
        arbiter.set_job(Nanos::ZERO, JobId(job), &JobInfo::new(&format!("j{job}"), &format!("u{}", job % 2), "g"));
    }
    arbiter
}

fn request(id: u64, job: u32) -> Request {
    Request { id: RequestId(id), job: JobId(job), cost: COST, bytes: Bytes(0), nature: Nature::WRITE }
}

/// Serves all that is queued, one after the other, from `now` on; gives when it was done.
fn serve(arbiter: &mut dyn Arbiter, mut now: Nanos) -> Nanos {
    for _ in 0..100_000 {
        match arbiter.next(now) {
            Next::Dispatch(request) => {
                now += request.cost;
                arbiter.complete(now, request.id, request.job);
            }
            Next::WaitUntil(until) => now = until.max(now + Nanos(1)),
            Next::Idle => return now,
        }
    }
    panic!("it never ends");
}

/// Job 0 queues 50 requests, then job 1 queues `of_second`; all are served, and the phases are over long after.
fn two_phases(policy: &str, of_second: u64, is_told: bool) -> Vec<Lateness> {
    let mut arbiter = arbiter(policy);
    for (job, requests) in [(0, 50), (1, of_second)] {
        if is_told {
            arbiter.expect(Nanos::ZERO, JobId(job), Nanos(COST.0 * requests));
        }
        (0..requests).for_each(|id| arbiter.enqueue(Nanos::ZERO, request(id, job)).unwrap());
    }
    let end = serve(arbiter.as_mut(), Nanos::ZERO);
    arbiter.lateness(end + Nanos::from_secs(1))
}

/// In the order of arrival the second is begun last at 50 + 9 requests; shared fairly it is done after 20.
#[test]
fn who_waits_behind_a_long_phase_is_late() {
    for is_told in [true, false] {
        let late: Vec<_> = two_phases("fifo", 10, is_told).iter().map(|job| (job.phases, job.late)).collect();
        assert_eq!(late, [(1, 0), (1, 1)], "{is_told}");
    }
    let told = two_phases("fifo", 10, true);
    // The clock is done with it when 20 requests were begun, the last of them at 19 times the cost of one.
    assert_eq!(told[1].late_by, Nanos(COST.0 * (59 - 19)));
}

/// What a server tells of rates, and what it is told, passes the clock and a latency class.
#[test]
fn rates_are_told_of_and_divided_behind_a_clock() {
    let half = Divider::new(2, None, vec![false]).begin().remove(0);
    for policy in ["tbf{job:*=1MB/s}", "tbf{job:*=1MB/s}+latency{p99=2ms,job:j0}"] {
        let mut arbiter = arbiter(policy);
        let part = |arbiter: &dyn Arbiter| arbiter.rates(Nanos::ZERO).iter().map(|rate| rate.part).collect::<Vec<_>>();
        assert_eq!(part(arbiter.as_ref()), [1.0; 3], "{policy}");
        arbiter.set_rate_parts(Nanos::ZERO, &half);
        assert_eq!(part(arbiter.as_ref()), [0.5; 3], "{policy}");
    }
}

#[test]
fn nobody_is_late_where_shares_are_fair() {
    for policy in
        ["job-fair", "user-then-job-fair", "fair-finish", "fair-finish{guarantee=0.01}", "coflow{guarantee=1}"]
    {
        for is_told in [true, false] {
            let late: u64 = two_phases(policy, 10, is_told).iter().map(|job| job.late).sum();
            assert_eq!(late, 0, "{policy} {is_told}");
        }
    }
}

#[test]
fn a_phase_is_told_beside_what_fair_sharing_would_have_given() {
    let mut arbiter = arbiter("fifo");
    (0..8).for_each(|id| arbiter.enqueue(Nanos::ZERO, request(id, 0)).unwrap());
    (0..8).for_each(|id| arbiter.enqueue(Nanos::ZERO, request(id, 1)).unwrap());
    for at in 0..4 {
        let Next::Dispatch(request) = arbiter.next(Nanos(COST.0 * at)) else { panic!("something is queued") };
        arbiter.complete(Nanos(COST.0 * (at + 1)), request.id, request.job);
    }
    let told: Vec<(u64, u64)> =
        arbiter.phases().iter().map(|PhaseReport { received, fair, .. }| (received.0, fair.0)).collect();
    assert_eq!(told, [(4 * COST.0, 2 * COST.0), (0, 2 * COST.0)]);
    assert!(build(&PolicySpec::fifo(), Draw::VirtualTime, 1, Tuning::default()).phases().is_empty());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Enqueue(u32, u64),
    Next,
    Complete,
    Cancel(u32, u64),
    Pass(u64),
    Leave(u32),
    Expect(u32, u64),
}

fn arb_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u32..3, 0_u64..40).prop_map(|(job, id)| Step::Enqueue(job, id)),
        6 => Just(Step::Next),
        5 => Just(Step::Complete),
        1 => (0_u32..3, 0_u64..40).prop_map(|(job, id)| Step::Cancel(job, id)),
        3 => (0_u64..30_000_000).prop_map(Step::Pass),
        1 => (0_u32..3).prop_map(Step::Leave),
        1 => (0_u32..3, 1_u64..9_000_000).prop_map(|(job, service)| Step::Expect(job, service)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_decision_changes_and_nobody_received_more_than_was_begun(
        steps in prop::collection::vec(arb_step(), 1..300),
        policy in prop::sample::select(vec!["fifo", "size-fair", "user-then-job-fair", "coflow", "set10", "mclock",
            "tbf{job:*=1GB/s}", "job-fair+latency{p99=2ms,job:j1}"]),
    ) {
        let spec: PolicySpec = policy.parse().unwrap();
        let tuning = Tuning::default();
        let mut with = with_fair_clock(build(&spec, Draw::VirtualTime, 1, tuning), &spec, tuning);
        let mut without = build(&spec, Draw::VirtualTime, 1, tuning);
        let mut both = [&mut with, &mut without];
        let info = |job: u32| JobInfo::new(&format!("j{job}"), &format!("u{}", job % 2), "g");
        for arbiter in &mut both {
            (0..3).for_each(|job| arbiter.set_job(Nanos::ZERO, JobId(job), &info(job)));
        }
        let (mut now, mut served, mut number) = (Nanos::ZERO, Vec::new(), 0);
        let mut begun = 0;
        for step in steps {
            let mut answers = Vec::new();
            let mut dispatched = None;
            for arbiter in &mut both {
                answers.push(match step {
                    Step::Enqueue(job, id) => {
                        let request = Request { cost: Nanos(1 + id * 10_000), ..request(number * 64 + id, job) };
                        format!("{:?}", arbiter.enqueue(now, request))
                    }
                    Step::Next => {
                        let next = arbiter.next(now);
                        if let Next::Dispatch(request) = &next {
                            dispatched = Some(*request);
                        }
                        format!("{next:?}")
                    }
                    Step::Complete => {
                        let done: Option<&Request> = served.last();
                        format!("{:?}", done.map(|request| arbiter.complete(now, request.id, request.job)))
                    }
                    Step::Cancel(job, id) => format!("{:?}", arbiter.cancel(now, RequestId(id), JobId(job))),
                    Step::Leave(job) => {
                        let gave = arbiter.remove_job(now, JobId(job));
                        arbiter.set_job(now, JobId(job), &info(job));
                        format!("{gave:?}")
                    }
                    Step::Expect(job, service) => format!("{:?}", arbiter.expect(now, JobId(job), Nanos(service))),
                    Step::Pass(_) => String::new(),
                });
            }
            prop_assert_eq!(&answers[0], &answers[1]);
            match step {
                Step::Pass(ns) => now += Nanos(ns),
                Step::Complete => _ = served.pop(),
                Step::Enqueue(..) => number += 1,
                _ => {}
            }
            if let Some(request) = dispatched {
                served.push(request);
                begun += request.cost.0;
            }
            for phase in both[0].phases() {
                prop_assert!(phase.received.0 <= begun && phase.fair.0 <= begun, "{:?} of {}", phase, begun);
            }
        }
    }
}
