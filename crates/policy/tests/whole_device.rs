//! When the whole of a device is kept free for a job, not only a slot: see `queueing::room`. Processes that each wait for one
//! request at a time, at devices on which a request takes longer the more there are.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_policy::trace::{Call, Entry, Journal, Player};
use isonomia_policy::{
    Action, Arbiter, Depth, DepthSpec, Dispatcher, Draw, Nature, RequestId, ServedBy, Submission, Tuning, build,
};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex};

/// A request beside n - 1 others takes this long, and for each of the others this part of it more.
#[derive(Clone, Copy)]
struct Device {
    alone: Nanos,
    per_other: f64,
}

/// On two processors: alone a third of what eight at once do.
const DISK: Device = Device { alone: Nanos::from_micros(40), per_other: 0.5 };
/// A request takes twice as long beside 32 others, which together do sixteen times as much as one.
const FLASH: Device = Device { alone: Nanos::from_micros(80), per_other: 0.03 };
const PARALLEL: Device = Device { alone: Nanos::from_millis(5), per_other: 0.0 };
/// Here a job has caught up after fewer requests than a trial takes.
const SLOW: Device = Device { alone: Nanos::from_millis(10), per_other: 0.0 };
const THINK: Nanos = Nanos::from_micros(20);
const RUNS_FOR: Nanos = Nanos::from_secs(6);
/// What comes before is not counted.
const STEADY_FROM: Nanos = Nanos::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A process of this job comes with a request.
    Comes(u32),
    Ends(u64),
    /// The dispatcher wanted to be asked again.
    Asked,
}

fn tuning() -> Tuning {
    Tuning { parallel: 2, ..Tuning::default() }
}

struct Outcome {
    /// Requests of each job in a second, and its part of the service.
    rates: Vec<f64>,
    shares: Vec<f64>,
}

impl Outcome {
    fn total(&self) -> f64 {
        self.rates.iter().sum()
    }
}

/// Jobs of so many processes each. The first thinks for as long as `thinks` says after so many requests of it.
fn run(policy: &str, device: Device, depth: DepthSpec, processes: &[u32], thinks: fn(u64) -> Nanos) -> Outcome {
    run_with(policy, device, depth, processes, [thinks, |_| Nanos::ZERO])
}

/// The same. The first job keeps a request of it in service for so long without needing the device, after so many that it had.
fn run_with(
    policy: &str,
    device: Device,
    depth: DepthSpec,
    processes: &[u32],
    [thinks, stalls]: [fn(u64) -> Nanos; 2],
) -> Outcome {
    let arbiter = build(&policy.parse().unwrap(), Draw::VirtualTime, 0, tuning());
    run_on(arbiter, device, depth, processes, [thinks, stalls])
}

/// The same with this arbiter.
fn run_on(
    arbiter: Box<dyn Arbiter>,
    device: Device,
    depth: DepthSpec,
    processes: &[u32],
    [thinks, stalls]: [fn(u64) -> Nanos; 2],
) -> Outcome {
    let mut target: Dispatcher<u32> = Dispatcher::new(arbiter, None, Depth::new(depth));
    let mut events = BinaryHeap::new();
    for (job, count) in processes.iter().enumerate() {
        target.set_job(Nanos::ZERO, JobId(job as u32), &JobInfo::new(&format!("{job}"), "u", "g"));
        (0..*count).for_each(|_| events.push(Reverse((Nanos(1), Event::Comes(job as u32)))));
    }
    let (mut done, mut service) = (vec![0u64; processes.len()], vec![0u64; processes.len()]);
    let mut jobs_in_service: Vec<(RequestId, u32)> = Vec::new();
    while let Some(Reverse((now, event))) = events.pop() {
        if now > RUNS_FOR {
            break;
        }
        match event {
            Event::Comes(job) => {
                let (cost, bytes) = (Nanos::from_micros(30), Bytes::kib(4));
                let submission = Submission {
                    job: JobId(job),
                    cost,
                    owed: Nanos::ZERO,
                    work: cost,
                    bytes,
                    nature: Nature::WRITE,
                    is_counted: true,
                };
                target.enqueue(now, submission, job).unwrap();
            }
            Event::Ends(id) => {
                let at = jobs_in_service.iter().position(|(one, _)| one.0 == id).unwrap();
                let (id, job) = jobs_in_service.swap_remove(at);
                let served = target.complete(now, id, ServedBy::Device).unwrap();
                if now > STEADY_FROM {
                    done[job as usize] += 1;
                    service[job as usize] += served.service.0;
                }
                let think = if job == 0 { thinks(done[0]) } else { THINK };
                events.push(Reverse((now + think, Event::Comes(job))));
            }
            Event::Asked => {}
        }
        loop {
            match target.next(now) {
                Action::Serve(dispatch) if dispatch.request == 0 && stalls(done[0]) > Nanos::ZERO => {
                    target.set_aside(now, dispatch.id);
                    jobs_in_service.push((dispatch.id, dispatch.request));
                    events.push(Reverse((now + stalls(done[0]), Event::Ends(dispatch.id.0))));
                }
                Action::Serve(dispatch) => {
                    target.enter(now, dispatch.id);
                    let beside = jobs_in_service.len() as f64;
                    let takes = device.alone.0 as f64 * (1.0 + device.per_other * beside);
                    jobs_in_service.push((dispatch.id, dispatch.request));
                    events.push(Reverse((now + Nanos(takes as u64), Event::Ends(dispatch.id.0))));
                }
                Action::WaitUntil(at) => break events.push(Reverse((at.max(now + Nanos(1)), Event::Asked))),
                Action::Idle => break,
                Action::Answer(_) => unreachable!("no device is emulated"),
            }
        }
    }
    let (seconds, all) = ((RUNS_FOR - STEADY_FROM).as_secs_f64(), service.iter().sum::<u64>() as f64);
    Outcome {
        rates: done.iter().map(|done| *done as f64 / seconds).collect(),
        shares: service.iter().map(|service| *service as f64 / all).collect(),
    }
}

fn steady(_: u64) -> Nanos {
    THINK
}

fn assert_even(outcome: &Outcome) {
    let due = 1.0 / outcome.shares.len() as f64;
    assert!(outcome.shares.iter().all(|share| (share / due - 1.0).abs() < 0.03), "{:?}", outcome.shares);
}

/// A slot is not enough: beside seven others a request of the one takes more than four times as long.
#[test]
fn who_is_alone_in_a_job_has_his_part_of_a_disk() {
    for depth in [DepthSpec::Fixed(8), DepthSpec::Fixed(16), DepthSpec::Auto] {
        for processes in [&[1, 4][..], &[1, 32], &[2, 32], &[1, 1, 32]] {
            let (fair, fifo) =
                (run("job-fair", DISK, depth, processes, steady), run("fifo", DISK, depth, processes, steady));
            assert_even(&fair);
            assert!(fair.total() >= 0.55 * fifo.total(), "{} of {} requests per second", fair.total(), fifo.total());
        }
    }
}

/// Alone the one does no more, or hardly more beside what all the others do not: then they go on beside him.
#[test]
fn nobody_waits_where_that_gains_nothing() {
    for device in [PARALLEL, SLOW, FLASH] {
        let depth = DepthSpec::Fixed(64);
        let fair = run("job-fair", device, depth, &[1, 32], steady);
        let fifo = run("fifo", device, depth, &[1, 32], steady);
        assert!(fair.total() >= 0.97 * fifo.total(), "{} of {} requests per second", fair.total(), fifo.total());
    }
}

/// Then it has half of the time all the same, on any of them.
#[test]
fn strict_shares_hold_whatever_that_costs_the_others() {
    for device in [DISK, FLASH, PARALLEL, SLOW] {
        for depth in [DepthSpec::Fixed(64), DepthSpec::Auto] {
            let strict = run("job-fair+strict", device, depth, &[1, 32], steady);
            assert_even(&strict);
        }
    }
    let [strict, fair] =
        ["job-fair+strict", "job-fair"].map(|policy| run(policy, PARALLEL, DepthSpec::Fixed(64), &[1, 32], steady));
    assert!(fair.shares[0] < 0.1 && strict.rates[1] < 0.7 * fair.rates[1], "{:?}, {:?}", strict.rates, fair.rates);
}

/// Their parts are no parts of the time, so nobody would pay for it.
#[test]
fn policies_that_do_not_divide_time_keep_a_slot_only() {
    for policy in ["coflow", "fair-finish"] {
        let [held, fifo] = [policy, "fifo"].map(|policy| run(policy, DISK, DepthSpec::Fixed(8), &[1, 32], steady));
        assert!(held.total() >= 0.9 * fifo.total(), "{} of {} requests per second", held.total(), fifo.total());
    }
}

/// Now and then the processor is somebody else's for a while, and he is waited for in vain: the others go on meanwhile, and he catches up.
#[test]
fn who_is_late_at_times_keeps_his_part() {
    fn is_late(requests: u64) -> Nanos {
        if requests % 100 < 99 { THINK } else { Nanos::from_millis(1) }
    }
    for depth in [8, 16] {
        assert_even(&run("job-fair", DISK, DepthSpec::Fixed(depth), &[1, 32], is_late));
    }
}

/// Whose request waits for its own client has nothing of the device, and does not have it kept free.
#[test]
fn who_keeps_a_request_waiting_has_nothing_kept_free() {
    fn stalls(requests: u64) -> Nanos {
        if requests % 8 < 4 { Nanos::ZERO } else { Nanos::from_millis(19) }
    }
    for policy in ["job-fair", "job-fair+strict"] {
        let depth = DepthSpec::Fixed(8);
        let stalled = run_with(policy, DISK, depth, &[1, 32], [steady, stalls]);
        let alone = run(policy, DISK, depth, &[0, 32], steady);
        assert!(stalled.rates[1] >= 0.8 * alone.rates[1], "{policy}: {:?}, {:?}", stalled.rates, alone.rates);
    }
}

/// What an arbiter is told of the device, and of requests that wait for their clients, is in the record.
#[test]
fn what_was_decided_is_decided_again_from_the_record() {
    fn stalls(requests: u64) -> Nanos {
        if requests % 8 < 7 { Nanos::ZERO } else { Nanos::from_millis(1) }
    }
    for policy in ["job-fair", "job-fair+strict"] {
        let entries = Arc::new(Mutex::new(Vec::new()));
        let kept = entries.clone();
        let journal = Journal::new(move |entry| kept.lock().unwrap().push(entry.clone()));
        let arbiter = journal.build(&policy.parse().unwrap(), Draw::VirtualTime, 0, tuning());
        run_on(arbiter, SLOW, DepthSpec::Fixed(8), &[1, 32], [steady, stalls]);
        let mut player = Player::default();
        for entry in &*entries.lock().unwrap() {
            let read: Entry = serde_json::from_str(&serde_json::to_string(entry).unwrap()).unwrap();
            assert_eq!(&player.play(&read).unwrap(), entry, "{policy}");
        }
        // An older record tells less of both calls.
        let mut older = 0;
        for entry in &*entries.lock().unwrap() {
            let later: &[&str] = match entry.call {
                Call::DeviceServed { .. } => &["job", "work"],
                Call::SetAside { .. } => &["is_stalled"],
                _ => continue,
            };
            let mut fields = serde_json::to_value(entry).unwrap();
            assert!(later.iter().all(|field| fields.as_object_mut().unwrap().remove(*field).is_some()), "{entry:?}");
            serde_json::from_value::<Entry>(fields).unwrap();
            older += 1;
        }
        assert!(older > 1_000, "{older}");
    }
}

/// Prompt for as long as it takes to be waited for, and then away: the others lose no more than by a job that comes.
#[test]
fn who_does_not_come_costs_the_others_little() {
    fn teases(requests: u64) -> Nanos {
        if requests % 40 < 39 { THINK } else { Nanos::from_millis(4) }
    }
    let [teased, fair] = [teases, steady].map(|thinks| run("job-fair", DISK, DepthSpec::Fixed(8), &[1, 32], thinks));
    assert!(teased.rates[1] >= 0.97 * fair.rates[1], "{:?}, {:?}", teased.rates, fair.rates);
}
