//! Worked examples; what holds for every order of calls is in `tests/dispatch.rs`.

use super::*;
use crate::{Draw, LATE_MAX, Tuning, build};

const JOB: JobId = JobId(1);
const OTHER: JobId = JobId(2);

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn arbiter(policy: &str) -> Box<dyn Arbiter> {
    let mut arbiter = build(&policy.parse().unwrap(), Draw::default(), 0, Tuning::default());
    for job in [JOB, OTHER] {
        arbiter.set_job(Nanos::ZERO, job, &JobInfo::new(&job.to_string(), "u", "g"));
    }
    arbiter
}

fn emulated() -> Dispatcher<&'static str, &'static str> {
    Dispatcher::new(arbiter("fifo"), Some(CappedDevice::new()), Depth::Fixed(usize::MAX))
}

fn real(policy: &str, depth: usize) -> Dispatcher<&'static str> {
    Dispatcher::new(arbiter(policy), None, Depth::Fixed(depth))
}

fn of(job: JobId, cost_ms: u64) -> Submission {
    Submission {
        job,
        cost: ms(cost_ms),
        owed: Nanos::ZERO,
        work: ms(cost_ms),
        bytes: Bytes(0),
        nature: Nature::WRITE,
        is_counted: true,
    }
}

fn served<R, A>(action: Action<R, A>) -> Dispatch<R> {
    match action {
        Action::Serve(dispatch) => dispatch,
        _ => panic!("a request's turn has come"),
    }
}

#[test]
fn a_reply_waits_until_the_emulated_device_is_done() {
    let mut target = emulated();
    for request in ["first", "second"] {
        target.enqueue(Nanos::ZERO, of(JOB, 100), request).unwrap();
    }
    let first = served(target.next(Nanos::ZERO));
    assert_eq!((first.request, first.finish_at), ("first", Some(ms(100))));
    assert_eq!(target.next(ms(1)), Action::WaitUntil(ms(100)), "the device is busy");
    assert!(target.answer_at(ms(100), first.id, "reply"));
    assert_eq!(target.next(Nanos(ms(100).0 - 1)), Action::WaitUntil(ms(100)));
    assert_eq!((target.in_service(), target.queued()), (1, 1));
    assert_eq!(target.next(ms(100)), Action::Answer("reply"));
    let second = served(target.next(ms(100)));
    assert_eq!((second.request, second.finish_at), ("second", Some(ms(200))));
    assert!(!target.answer_at(ms(100), first.id, "again") || first.id == second.id);
}

#[test]
fn a_late_wake_up_takes_nothing_from_an_emulated_device_and_idleness_is_not_saved_up() {
    let mut target = emulated();
    for request in ["first", "second"] {
        target.enqueue(Nanos::ZERO, of(JOB, 10), request).unwrap();
    }
    let first = served(target.next(Nanos::ZERO));
    target.complete(ms(10), first.id, ServedBy::Device);
    // It waited since before the device was free: the second begins where the first ended.
    let late = ms(10) + LATE_MAX;
    let second = served(target.next(late));
    assert_eq!(second.finish_at, Some(ms(20)));
    target.complete(ms(20), second.id, ServedBy::Device);
    // Nothing waited when the device became free: the third begins when it came.
    let came = ms(20) + Nanos(1);
    target.enqueue(came, of(JOB, 10), "third").unwrap();
    assert_eq!(served(target.next(came)).finish_at, Some(came + ms(10)));
}

#[test]
fn a_gap_that_the_policy_wanted_is_not_made_up_for() {
    // A megabyte is a millisecond here: a request every two.
    let limit = "mclock{job:*=limit:500MB/s}";
    let mut target: Dispatcher<u32, u32> =
        Dispatcher::new(arbiter(limit), Some(CappedDevice::new()), Depth::Fixed(usize::MAX));
    for request in 0..2 {
        target.enqueue(Nanos::ZERO, of(JOB, 1), request).unwrap();
    }
    let first = served(target.next(Nanos::ZERO));
    assert!(target.answer_at(ms(1), first.id, first.request));
    assert_eq!(target.next(ms(1)), Action::Answer(0));
    let Action::WaitUntil(at) = target.next(ms(1)) else { panic!("the job has reached its limit") };
    assert!(at > ms(1) && at.since(ms(1)) <= LATE_MAX, "{at}: no longer than a late wake-up");
    assert_eq!(served(target.next(at)).finish_at, Some(at + ms(1)));
}

#[test]
fn what_is_settled_takes_the_emulated_device_no_time() {
    let mut target = emulated();
    let submission = Submission { owed: ms(60), ..of(JOB, 100) };
    target.enqueue(ms(5), submission, "request").unwrap();
    assert_eq!(served(target.next(ms(5))).finish_at, Some(ms(45)));
}

#[test]
fn no_more_are_in_service_than_the_depth() {
    let mut target = real("fifo", 2);
    for request in ["a", "b", "c", "d"] {
        target.enqueue(Nanos::ZERO, of(JOB, 1), request).unwrap();
    }
    let (a, b) = (served(target.next(Nanos::ZERO)), served(target.next(Nanos::ZERO)));
    assert_eq!(target.next(Nanos::ZERO), Action::Idle, "both slots are taken");
    target.complete(ms(1), b.id, ServedBy::Device);
    let c = served(target.next(ms(1)));
    assert_eq!((c.request, target.in_service(), target.queued()), ("c", 2, 1));
    // A client that stalls does not keep the device busy, and is set aside once.
    target.set_aside(ms(1), a.id);
    target.set_aside(ms(1), a.id);
    assert_eq!(target.in_service(), 1);
    let d = served(target.next(ms(1)));
    assert_eq!(target.in_service(), 2);
    for id in [a.id, a.id, c.id, d.id] {
        target.complete(ms(2), id, ServedBy::Memory);
    }
    assert_eq!((target.in_service(), target.next(ms(2))), (0, Action::Idle));
}

#[test]
fn a_flush_takes_no_slot_of_those_that_read_and_write() {
    let mut target = real("fifo", 1);
    let flush = Submission { is_counted: false, ..of(JOB, 1) };
    target.enqueue(Nanos::ZERO, flush, "flush").unwrap();
    target.enqueue(Nanos::ZERO, of(JOB, 1), "read").unwrap();
    let flush = served(target.next(Nanos::ZERO));
    assert_eq!((flush.request, target.in_service()), ("flush", 0));
    assert_eq!(served(target.next(Nanos::ZERO)).request, "read");
    target.complete(ms(1), flush.id, ServedBy::Device);
    assert_eq!(target.in_service(), 1);
}

#[test]
fn a_name_is_not_used_again_before_the_request_is_completed() {
    let mut target = real("fifo", 8);
    let first = target.enqueue(Nanos::ZERO, of(JOB, 1), "first").unwrap();
    assert_eq!(served(target.next(Nanos::ZERO)).id, first);
    assert_ne!(target.enqueue(Nanos::ZERO, of(JOB, 1), "second").unwrap(), first);
}

#[test]
fn an_unknown_job_gets_its_request_back() {
    let mut target = real("job-fair", 1);
    assert_eq!(target.enqueue(Nanos::ZERO, of(JobId(7), 1), "stranger"), Err("stranger"));
    assert_eq!((target.queued(), target.next(Nanos::ZERO)), (0, Action::Idle));
}

#[test]
fn a_new_policy_gets_what_is_queued_and_gives_back_what_it_does_not_know() {
    let mut target = real("fifo", 1);
    for (job, request) in [(JOB, "a"), (OTHER, "b"), (JOB, "c")] {
        target.enqueue(Nanos::ZERO, of(job, 1), request).unwrap();
    }
    let a = served(target.next(Nanos::ZERO));
    let mut knows_one = build(&"job-fair".parse().unwrap(), Draw::default(), 0, Tuning::default());
    knows_one.set_job(Nanos::ZERO, JOB, &JobInfo::new("one", "u", "g"));
    assert_eq!(target.replace_arbiter(ms(1), knows_one), ["b"]);
    assert_eq!((target.queued(), target.in_service()), (1, 1));
    target.complete(ms(2), a.id, ServedBy::Device);
    assert_eq!(served(target.next(ms(2))).request, "c");
}

#[test]
fn what_hung_up_or_left_is_given_back() {
    let mut target = real("fifo", 1);
    for (job, request) in [(JOB, "a1"), (JOB, "a2"), (OTHER, "b1"), (OTHER, "b2")] {
        target.enqueue(Nanos::ZERO, of(job, 1), request).unwrap();
    }
    let a1 = served(target.next(Nanos::ZERO));
    let mut gone =
        target.cancel(Nanos::ZERO, |request| request.ends_with('1') || request.ends_with('2') && *request < "b");
    gone.sort_unstable();
    assert_eq!(gone, ["a2", "b1"], "a1 is in service");
    assert_eq!(target.remove_job(Nanos::ZERO, OTHER), ["b2"]);
    assert_eq!(target.queued(), 0);
    target.complete(ms(1), a1.id, ServedBy::Device);
    assert_eq!(target.next(ms(1)), Action::Idle);
}

/// 32 requests of 5 ms each, always: as many as come are let in, and no device is told of here but by completions.
#[test]
fn the_depth_is_found_from_completions() {
    let mut target: Dispatcher<u32> = Dispatcher::new(arbiter("fifo"), None, Depth::new(crate::DepthSpec::Auto));
    let mut device: BinaryHeap<Reverse<(Nanos, RequestId)>> = BinaryHeap::new();
    for request in 0..32 {
        target.enqueue(Nanos::ZERO, of(JOB, 1), request).unwrap();
    }
    let mut now = Nanos::ZERO;
    while now < Nanos::from_secs(5) {
        while let Action::Serve(dispatch) = target.next(now) {
            device.push(Reverse((now + ms(5), dispatch.id)));
        }
        let Reverse((at, id)) = device.pop().unwrap();
        now = at;
        target.complete(now, id, ServedBy::Device);
        target.enqueue(now, of(JOB, 1), 0).unwrap();
    }
    assert_eq!(target.depth().settled(), 32);
}

#[test]
fn what_was_charged_ahead_is_corrected_by_the_time_at_the_device() {
    let mut target = real("job-fair", 2);
    // The policy is told 1 ms for either; the device takes 30 ms for those of one job.
    for request in ["a1", "a2", "a3", "a4", "a5"] {
        target.enqueue(Nanos::ZERO, of(JOB, 1), request).unwrap();
        target.enqueue(Nanos::ZERO, of(OTHER, 1), request).unwrap();
    }
    let (slow, quick) = (served(target.next(Nanos::ZERO)), served(target.next(Nanos::ZERO)));
    for one in [&slow, &quick] {
        target.enter(Nanos::ZERO, one.id);
        target.enter(ms(1), one.id);
    }
    let done = target.complete(ms(2), quick.id, ServedBy::Device).unwrap();
    assert_eq!(
        (done.attributed, done.service, done.predicted),
        (Some(ms(1)), ms(1), ms(1)),
        "half of two milliseconds"
    );
    let done = target.complete(ms(31), slow.id, ServedBy::Device).unwrap();
    assert_eq!((done.attributed, done.predicted), (Some(ms(30)), ms(1)));
    assert!(done.service > Nanos(3 * ms(1).0 / 2), "what the device does for all is worth less now: {}", done.service);
    assert_eq!((target.attribution().busy(), target.attribution().in_service()), (ms(31), 0));
    // The other job has all turns until it has had as much.
    for _ in 0..4 {
        let next = served(target.next(ms(31)));
        target.enter(ms(31), next.id);
        assert_eq!(target.complete(ms(31), next.id, ServedBy::Device).unwrap().service, Nanos::ZERO);
    }
    assert_eq!((target.queued_of(JOB), target.queued_of(OTHER)), (4, 0));
}

#[test]
fn what_memory_served_costs_its_work_and_not_what_was_foreseen() {
    let mut target = real("job-fair", 1);
    let foreseen = Submission { cost: ms(50), work: Nanos(2_000), owed: ms(9), ..of(JOB, 1) };
    target.enqueue(Nanos::ZERO, foreseen, "read").unwrap();
    let read = served(target.next(Nanos::ZERO));
    let done = target.complete(ms(1), read.id, ServedBy::Memory).unwrap();
    assert_eq!((done.service, done.predicted, done.attributed), (Nanos(2_000), ms(41), None));
    assert_eq!(target.complete(ms(1), read.id, ServedBy::Memory), None, "it is completed");
}

#[test]
fn the_time_for_which_a_client_keeps_a_request_waiting_is_nobodys() {
    let mut target = real("fifo", 2);
    target.enqueue(Nanos::ZERO, of(JOB, 1), "write").unwrap();
    let write = served(target.next(Nanos::ZERO));
    target.enter(Nanos::ZERO, write.id);
    target.set_aside(ms(3), write.id);
    target.enter(ms(500), write.id);
    let done = target.complete(ms(504), write.id, ServedBy::Device).unwrap();
    assert_eq!((done.attributed, target.attribution().busy()), (Some(ms(7)), ms(7)));
}

#[test]
fn the_oldest_at_the_device_is_known() {
    let mut target = real("fifo", 2);
    for request in ["first", "second", "third"] {
        target.enqueue(Nanos::ZERO, of(JOB, 1), request).unwrap();
    }
    let (first, second) = (served(target.next(ms(1))), served(target.next(ms(1))));
    assert_eq!(target.oldest_at_device(), None, "in service, and not there yet");
    target.enter(ms(2), first.id);
    target.enter(ms(5), second.id);
    target.enter(ms(6), first.id);
    assert_eq!(target.oldest_at_device(), Some(ms(2)));
    target.set_aside(ms(7), first.id);
    assert_eq!(target.oldest_at_device(), Some(ms(5)));
    target.complete(ms(8), second.id, ServedBy::Device).unwrap();
    assert_eq!(target.oldest_at_device(), None);
}

/// Five requests of 10 ms from `now` on, until they are served; gives a time long after.
fn phase(target: &mut Dispatcher<&'static str>, now: Nanos) -> Nanos {
    let mut now = now;
    (0..5).for_each(|_| _ = target.enqueue(now, of(JOB, 10), "part").unwrap());
    for _ in 0..5 {
        let part = served(target.next(now));
        now += ms(10);
        target.complete(now, part.id, ServedBy::Device);
    }
    now + ms(1_000)
}

#[test]
fn what_is_known_of_phases_outlives_a_policy() {
    let mut target = real("fair-finish{sizes=history}", 1);
    let mut now = phase(&mut target, Nanos::ZERO);
    let ended = |target: &mut Dispatcher<&'static str>, now| {
        target.lateness(now).iter().map(|of| (of.job, of.phases, of.late)).collect::<Vec<_>>()
    };
    assert_eq!(ended(&mut target, now), [(JOB, 1, 0)]);
    // One that has neither a clock nor a history comes between.
    for policy in ["fifo", "fair-finish{sizes=history}"] {
        assert!(target.replace_arbiter(now, arbiter(policy)).is_empty());
        assert_eq!(ended(&mut target, now), [(JOB, 1, 0)], "{policy}");
    }
    target.enqueue(now, of(JOB, 10), "first").unwrap();
    assert_eq!(target.phases()[0].expected, Nanos(50_500_000), "as long as the one before");
    let first = served(target.next(now));
    target.complete(now, first.id, ServedBy::Device);
    now = phase(&mut target, now);
    assert_eq!(ended(&mut target, now), [(JOB, 2, 0)]);
    target.remove_job(now, JOB);
    assert_eq!(ended(&mut target, now), []);
}

#[test]
fn what_is_known_of_phases_is_put_back_whatever_the_policy() {
    let mut target = real("fair-finish{sizes=history}", 1);
    let now = phase(&mut target, Nanos::ZERO);
    // Nothing has come since the phase ended.
    let _ = target.lateness(now);
    let kept = target.history().export();
    let known = target.history().latest_before(u64::MAX, 9);
    assert_eq!(known.len(), 1);
    for policy in ["fair-finish{sizes=history}", "fifo"] {
        let mut next = real(policy, 1);
        *next.history() = SizeHistory::import(&kept).unwrap();
        assert!(next.replace_arbiter(Nanos::ZERO, arbiter("fair-finish{sizes=history}")).is_empty());
        assert_eq!(next.history().latest_before(u64::MAX, 9), known, "{policy}");
        next.enqueue(Nanos::ZERO, of(JOB, 10), "first").unwrap();
        assert_eq!(next.phases()[0].expected, Nanos(50_500_000), "as long as the one before, under {policy}");
    }
}
