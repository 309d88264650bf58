//! The depth of a device that several jobs share, found by trial, with the arbiter that decides who is next: what a job of one
//! process has of what is due to it, and what all have together.
//!
//! Closed loops of processes before a device in virtual time. Devices differ in what a deeper queue is good for: nothing, more
//! of them at once, or, as at a parallel file system whose servers are busy with messages rather than with bytes, less work for
//! each request.

#![allow(clippy::unwrap_used, reason = "a policy that cannot be read fails the test")]

use isonomia_policy::{
    Action, Depth, DepthSpec, Dispatcher, Draw, Nature, RequestId, ServedBy, Submission, Tuning, build,
};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const WORK: Nanos = Nanos::from_micros(2);
const SECOND: u64 = 1_000_000_000;

/// Serves so many at once, in the order in which they come.
#[derive(Clone, Copy)]
struct Device {
    channels: usize,
    /// How long one takes a channel, if so many are in service as it comes, itself among them.
    takes_us: fn(in_service: usize) -> f64,
}

/// A disk with one arm, and a server with one core: what comes second waits for what came first.
const SERIAL: Device = Device { channels: 1, takes_us: |_| 100.0 };
const SIDE_BY_SIDE: Device = Device { channels: 1_000, takes_us: |_| 1_000.0 };
const FEW_CHANNELS: Device = Device { channels: 4, takes_us: |_| 1_000.0 };
/// Servers that wait for each other's messages: the more there are in service, the less of this each one costs.
const FILE_SYSTEM: Device = Device { channels: 1, takes_us: |in_service| 45.0 + 60.0 / (in_service as f64).sqrt() };

/// The same, where that is nearly all there is to do.
const CHATTY: Device = Device { channels: 1, takes_us: |in_service| 20.0 + 200.0 / (in_service as f64).sqrt() };

/// Processes of a job, and how long each pauses between two requests, give or take half.
#[derive(Clone, Copy)]
struct Load {
    processes: u32,
    pause_us: f64,
}

const ONE: Load = Load { processes: 1, pause_us: 20.0 };

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A process of this job has its next request.
    Comes(JobId),
    /// A request has ended.
    Ends(RequestId, JobId),
    /// The dispatcher is to be asked again.
    Asks,
}

struct Contest {
    device: Device,
    dispatcher: Dispatcher<JobId>,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    free_at: Vec<u64>,
    done: [u64; 2],
    /// Processes of either job that are to end with their request.
    leaving: [u32; 2],
    pauses_us: [f64; 2],
    random: Pcg64,
}

impl Contest {
    fn new(device: Device, policy: &str) -> Self {
        let mut arbiter = build(&policy.parse().unwrap(), Draw::default(), 0, Tuning::default());
        for job in [JobId(0), JobId(1)] {
            arbiter.set_job(Nanos::ZERO, job, &JobInfo::new(&job.to_string(), "u", "g"));
        }
        Self {
            device,
            dispatcher: Dispatcher::new(arbiter, None, Depth::new(DepthSpec::Auto)),
            now: 0,
            events: BinaryHeap::new(),
            count: 0,
            free_at: vec![0; device.channels],
            done: [0; 2],
            leaving: [0; 2],
            pauses_us: [0.0; 2],
            random: Pcg64::seed_from_u64(7),
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    fn join(&mut self, job: u32, load: Load) {
        self.pauses_us[job as usize] = load.pause_us;
        for _ in 0..load.processes {
            self.at(self.now, Event::Comes(JobId(job)));
        }
    }

    /// Requests per second of either job over so many seconds.
    fn go(&mut self, seconds: f64) -> [f64; 2] {
        let (before, end) = (self.done, self.now + (seconds * SECOND as f64) as u64);
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= end) {
            let Reverse((at, _, event)) = self.events.pop().unwrap();
            self.now = at;
            match event {
                Event::Comes(job) => {
                    let (cost, work, bytes, nature) = (WORK, WORK, Bytes(4096), Nature::OWN);
                    let request = Submission { job, cost, owed: Nanos::ZERO, work, bytes, nature, is_counted: true };
                    self.dispatcher.enqueue(Nanos(at), request, job).unwrap();
                }
                Event::Ends(id, job) => {
                    self.dispatcher.complete(Nanos(at), id, ServedBy::Device).unwrap();
                    let of = job.0 as usize;
                    self.done[of] += 1;
                    if self.leaving[of] > 0 {
                        self.leaving[of] -= 1;
                    } else {
                        let pause_us = self.pauses_us[of] * (0.5 + self.random.random::<f64>());
                        self.at(at + (pause_us * 1e3) as u64, Event::Comes(job));
                    }
                }
                Event::Asks => {}
            }
            self.serve();
        }
        self.now = end;
        [0, 1].map(|job| (self.done[job] - before[job]) as f64 / seconds)
    }

    fn serve(&mut self) {
        loop {
            match self.dispatcher.next(Nanos(self.now)) {
                Action::Serve(dispatch) => {
                    self.dispatcher.enter(Nanos(self.now), dispatch.id);
                    let takes_us = (self.device.takes_us)(self.dispatcher.in_service());
                    let takes_ns = takes_us * 1e3 * (0.9 + 0.2 * self.random.random::<f64>());
                    let channel = self.free_at.iter_mut().min().unwrap();
                    *channel = self.now.max(*channel) + takes_ns as u64;
                    let ends = *channel;
                    self.at(ends, Event::Ends(dispatch.id, dispatch.request));
                }
                Action::WaitUntil(at) => return self.at(at.0, Event::Asks),
                Action::Idle => return,
                Action::Answer(never) => match never {},
            }
        }
    }

    fn depth(&self) -> usize {
        self.dispatcher.depth().settled()
    }
}

/// Requests per second of one process alone, and of a job of `many` alone.
fn alone(device: Device, load: Load) -> f64 {
    let mut contest = Contest::new(device, "job-fair");
    contest.join(0, load);
    contest.go(10.0);
    contest.go(5.0)[0]
}

/// Of what is due to the first, the rates, and the depth: half of what both get is due, or what it gets alone.
fn contest(device: Device, loads: [Load; 2]) -> (f64, [f64; 2], usize) {
    let mut contest = Contest::new(device, "job-fair");
    contest.join(0, loads[0]);
    contest.join(1, loads[1]);
    contest.go(5.0);
    let rates = contest.go(20.0);
    let due = alone(device, loads[0]).min((rates[0] + rates[1]) / 2.0);
    (rates[0] / due, rates, contest.depth())
}

#[test]
fn one_process_has_what_is_due_beside_any_number() {
    for device in [SERIAL, FILE_SYSTEM] {
        for processes in [4, 32, 100] {
            let (of_due, rates, depth) = contest(device, [ONE, Load { processes, ..ONE }]);
            assert!(of_due >= 0.97, "1 : {processes} has {of_due} of what is due: {rates:?}, depth {depth}");
        }
    }
}

/// What all of them do together is then less, but more than half of what was seen before that one came.
#[test]
fn what_is_given_up_for_one_process_has_a_bound() {
    for device in [FILE_SYSTEM, CHATTY] {
        for processes in [4, 32, 100] {
            let mut contest = Contest::new(device, "job-fair");
            contest.join(1, Load { processes, ..ONE });
            contest.go(10.0);
            let most = contest.go(5.0)[1];
            contest.join(0, ONE);
            contest.go(5.0);
            let [one, many] = contest.go(60.0);
            let depth = contest.depth();
            assert!(one + many > 0.5 * most, "1 : {processes}: {one} and {many} of {most}, depth {depth}");
            // Still, it has more than its part of the requests in service would be.
            assert!(one > 1.5 * (one + many) / f64::from(processes + 1), "1 : {processes}: {one} and {many}");
        }
    }
}

/// Whom a shallower depth would give nothing, nobody waits for: not where requests are served side by side, and not for a job
/// that asks for little.
#[test]
fn nobody_is_held_back_in_vain() {
    for (device, all) in [(SIDE_BY_SIDE, 33.0 / 1_020e-6), (FEW_CHANNELS, 4.0 / 1_000e-6)] {
        let (of_due, rates, depth) = contest(device, [ONE, Load { processes: 32, ..ONE }]);
        assert!(of_due >= 0.9 && rates[0] + rates[1] > 0.93 * all, "{rates:?}, depth {depth}");
    }
    let many = Load { processes: 32, ..ONE };
    let most = alone(FILE_SYSTEM, many);
    let seldom = Load { processes: 1, pause_us: 10_000.0 };
    let (_, rates, depth) = contest(FILE_SYSTEM, [seldom, many]);
    assert!(rates[0] + rates[1] > 0.9 * most, "{rates:?} of {most}, depth {depth}");
}

/// Nor is one job held back that all others have left.
#[test]
fn who_is_left_alone_has_the_device_back() {
    let many = Load { processes: 32, ..ONE };
    let mut contest = Contest::new(FILE_SYSTEM, "job-fair");
    contest.join(0, ONE);
    contest.join(1, many);
    // Until trials are far apart.
    contest.go(60.0);
    let shared = contest.depth();
    contest.leaving[0] = 1;
    contest.go(1.0);
    let rate = contest.go(1.0)[1];
    let most = alone(FILE_SYSTEM, many);
    assert!(shared <= 3 && rate > 0.95 * most, "{rate} of {most}, depth {shared} and {}", contest.depth());
}

/// Where nothing is due to anybody, the most is done.
#[test]
fn a_policy_that_owes_no_shares_keeps_nobody_waiting() {
    let many = Load { processes: 32, ..ONE };
    let mut contest = Contest::new(FILE_SYSTEM, "fifo");
    contest.join(0, ONE);
    contest.join(1, many);
    contest.go(20.0);
    let all: f64 = contest.go(5.0).iter().sum();
    let most = alone(FILE_SYSTEM, many);
    assert!(all > 0.9 * most, "{all} of {most}, depth {}", contest.depth());
}
