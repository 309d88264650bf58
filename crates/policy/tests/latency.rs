//! A latency class on models of devices, in virtual time: bulk jobs that always have requests, and a job of small ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use isonomia_policy::{Arbiter, Draw, LatencyReport, Nature, Next, Request, RequestId, Tuning, build};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const BULK: JobId = JobId(0);
const QUICK: JobId = JobId(1);

/// A device that serves `channels` requests at once, and the others after them.
#[derive(Clone, Copy)]
struct Device {
    channels: usize,
    /// Whether it takes any of those that wait, or the first.
    orders: bool,
    /// How long a request takes, in ms, that is begun while so many are in the device.
    service_ms: fn(in_device: usize, random: f64) -> f64,
}

/// Disks of an array, or servers of a file system: any number at once, each in its own time.
const ARRAY: Device = Device { channels: usize::MAX, orders: false, service_ms: |_, random| 4.5 + random };
/// Flash with channels; a tenth of the requests takes three times as long.
const CHANNELS: Device = Device { channels: 16, orders: false, service_ms: |_, random| jittery(1.0, random) };
/// One arm, whose seeks are shorter the more it can choose from.
const DISK: Device =
    Device { channels: 1, orders: true, service_ms: |in_device, _| 2.0 + 8.0 / (in_device as f64).sqrt() };
/// Flash that collects garbage: one request of 250 takes 20 ms.
const PAUSES: Device =
    Device { channels: 16, orders: false, service_ms: |_, random| if random < 0.004 { 20.0 } else { 0.2 } };

fn jittery(mean_ms: f64, random: f64) -> f64 {
    mean_ms * if random < 0.1 { 2.5 } else { 0.5 + random / 1.5 }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Issue { job: JobId },
    Finish { id: u64 },
    Ask,
}

/// Closed loops at one target, which may have `depth` requests in service.
struct Run {
    arbiter: Box<dyn Arbiter>,
    device: Device,
    depth: usize,
    /// From a completion to the next request of the quick job, in ms on average.
    think_ms: f64,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    random: Pcg64,
    /// By the request's name: its job, and when it came.
    requests: Vec<(JobId, Nanos)>,
    in_service: usize,
    /// In the device, and not begun there.
    waiting: Vec<u64>,
    served: [Vec<Nanos>; 2],
    /// The quick job's processes stay away.
    is_quiet: bool,
    /// When the arbiter is asked again, if nothing happens before.
    ask_at: Nanos,
    /// A bulk request costs this much; one of the quick job 3 us.
    bulk_cost: Nanos,
}

impl Run {
    fn new(policy: &str, device: Device, depth: usize, (bulk, quick): (usize, usize)) -> Self {
        let arbiter =
            build(&policy.parse().unwrap(), Draw::VirtualTime, 1, Tuning { parallel: 16, ..Tuning::default() });
        let mut run = Self {
            arbiter,
            device,
            depth,
            think_ms: 5.0,
            now: Nanos::ZERO,
            events: BinaryHeap::new(),
            sequence: 0,
            random: Pcg64::seed_from_u64(3),
            requests: Vec::new(),
            in_service: 0,
            waiting: Vec::new(),
            served: [Vec::new(), Vec::new()],
            is_quiet: false,
            ask_at: Nanos::ZERO,
            // On a disk, where seeks are what takes long, all cost the same.
            bulk_cost: Nanos::from_micros(if device.orders { 3 } else { 120 }),
        };
        for (job, name, processes) in [(BULK, "bulk", bulk), (QUICK, "quick", quick)] {
            run.arbiter.set_job(Nanos::ZERO, job, &JobInfo::new(name, name, "g"));
            (0..processes).for_each(|_| run.schedule(Nanos::ZERO, Event::Issue { job }));
        }
        run
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// Goes on for so long; gives the quick job's 99th percentile in ms, and bulk requests per second.
    fn go(&mut self, time: Nanos) -> (f64, f64) {
        let end = self.now + time;
        self.served = [Vec::new(), Vec::new()];
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= end
        {
            let Some(Reverse((at, _, event))) = self.events.pop() else { unreachable!("there is one") };
            self.now = at;
            self.handle(event);
            self.serve();
        }
        self.now = end;
        let quick = &mut self.served[1];
        quick.sort_unstable();
        let p99 = quick.get(quick.len() * 99 / 100).map_or(0.0, |latency| latency.as_secs_f64() * 1e3);
        (p99, self.served[0].len() as f64 / time.as_secs_f64())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Issue { job } if job == QUICK && self.is_quiet => {
                self.schedule(self.now + Nanos::from_millis(100), Event::Issue { job });
            }
            Event::Issue { job } => {
                let id = RequestId(self.requests.len() as u64);
                self.requests.push((job, self.now));
                let bytes = Bytes(if job == QUICK { 4 << 10 } else { 1 << 20 });
                let cost = if job == QUICK { Nanos::from_micros(3) } else { self.bulk_cost };
                self.arbiter.enqueue(self.now, Request { id, job, cost, bytes, nature: Nature::WRITE }).unwrap();
            }
            Event::Finish { id } => {
                let (job, came) = self.requests[id as usize];
                self.in_service -= 1;
                self.arbiter.complete(self.now, RequestId(id), job);
                self.served[job.0 as usize].push(self.now.since(came));
                let random = self.random.random::<f64>();
                let think_ms = if job == QUICK { self.think_ms * (0.5 + random) } else { 0.0 };
                self.schedule(self.now + Nanos((think_ms * 1e6) as u64), Event::Issue { job });
                if let Some(next) = self.next_in_device() {
                    self.begin(next);
                }
            }
            Event::Ask => {}
        }
    }

    fn next_in_device(&mut self) -> Option<u64> {
        let last = self.waiting.len().checked_sub(1)?;
        let at = if self.device.orders { self.random.random_range(0..=last) } else { 0 };
        Some(self.waiting.remove(at))
    }

    fn begin(&mut self, id: u64) {
        let takes_ms = (self.device.service_ms)(self.in_service, self.random.random());
        self.schedule(self.now + Nanos((takes_ms * 1e6) as u64), Event::Finish { id });
    }

    fn serve(&mut self) {
        while self.in_service < self.depth {
            match self.arbiter.next(self.now) {
                Next::Dispatch(request) => {
                    self.in_service += 1;
                    if self.in_service - self.waiting.len() <= self.device.channels {
                        self.begin(request.id.0);
                    } else {
                        self.waiting.push(request.id.0);
                    }
                }
                Next::WaitUntil(at) => {
                    assert!(at > self.now);
                    if self.ask_at <= self.now || at < self.ask_at {
                        self.ask_at = at;
                        self.schedule(at, Event::Ask);
                    }
                    return;
                }
                Next::Idle => return,
            }
        }
    }

    fn report(&self) -> LatencyReport {
        self.arbiter.latency(self.now).unwrap()
    }
}

const LONG: Nanos = Nanos::from_secs(12);

/// The quick job's p99 in ms and bulk requests per second: without the class, and with it.
fn contest(device: Device, depth: usize, class: &str) -> ([f64; 2], [f64; 2], Run) {
    let results = ["", class].map(|class| {
        let mut run = Run::new(&format!("user-fair{class}"), device, depth, (128, 4));
        if device.orders {
            // It wants much less than its share.
            run.think_ms = 100.0;
        }
        run.go(LONG);
        let (p99, rate) = run.go(LONG);
        (p99, rate, run)
    });
    let [(p99, rate, _), (p99_class, rate_class, run)] = results;
    ([p99, p99_class], [rate, rate_class], run)
}

#[test]
fn on_flash_a_class_meets_its_target_and_bulk_keeps_the_rest() {
    let ([before, after], [rate, rate_class], run) = contest(CHANNELS, 64, "+latency{p99=4ms,user:quick}");
    assert!(before > 5.0 && after <= 4.4, "{before} ms, with the class {after} ms");
    let report = run.report();
    assert!(report.others_max.is_some_and(|max| (4..64).contains(&max)), "{report:?}");
    assert!(rate_class > 0.6 * rate, "{rate_class} of {rate}: {report:?}");
    let lost = 1.0 - rate_class / rate;
    assert!(report.lost.is_some_and(|estimate| (estimate - lost).abs() < 0.1), "{lost} {report:?}");
    assert_eq!(report.unreachable, None);
}

#[test]
fn small_requests_of_anybody_are_a_class_too() {
    let ([before, after], _, run) = contest(CHANNELS, 64, "+latency{p99=4ms,size<=16KiB}");
    assert!(before > 5.0 && after <= 4.4, "{before} ms, with the class {after} ms: {:?}", run.report());
}

#[test]
fn on_a_disk_a_class_is_as_quick_as_it_can_be() {
    let ([before, after], [rate, rate_class], run) = contest(DISK, 32, "+latency{p99=90ms,user:quick}");
    assert!(before > 3.0 * after && after <= 90.0, "{before} ms, with the class {after} ms: {:?}", run.report());
    // That takes the arm's choice from it, which is what the class costs.
    let lost = 1.0 - rate_class / rate;
    assert!(run.report().lost.is_some_and(|estimate| (estimate - lost).abs() < 0.15), "{lost}: {:?}", run.report());
}

#[test]
fn pauses_of_the_device_are_not_taken_for_the_others() {
    let ([_, after], [rate, rate_class], run) = contest(PAUSES, 64, "+latency{p99=5ms,user:quick}");
    assert!(after <= 5.0, "{after} ms: {:?}", run.report());
    assert!(rate_class > 0.8 * rate, "{rate_class} of {rate}: {:?}", run.report());
}

#[test]
fn where_the_device_alone_takes_longer_nobody_is_held_back() {
    let ([before, after], [rate, rate_class], run) = contest(ARRAY, 64, "+latency{p99=2ms,user:quick}");
    let report = run.report();
    let unreachable = report.unreachable.unwrap();
    assert!(unreachable.alone.is_some_and(|alone| (5_000..5_600).contains(&(alone.0 / 1000))), "{report:?}");
    assert_eq!((report.others_max, report.lost), (None, Some(0.0)), "{report:?}");
    assert!(rate_class > 0.9 * rate, "{rate_class} of {rate}");
    assert!(after < before * 1.1);
}

#[test]
fn a_class_that_wants_all_there_is_costs_no_more_than_half() {
    let [plain, class] = ["user-fair", "user-fair+latency{p99=1ms,user:quick}"].map(|policy| {
        let mut run = Run::new(policy, DISK, 32, (128, 8));
        run.think_ms = 0.0;
        run.go(LONG);
        let (_, bulk) = run.go(LONG);
        (bulk, bulk + run.served[1].len() as f64 / LONG.as_secs_f64())
    });
    assert!(class.1 > 0.45 * plain.1 && class.0 > 0.45 * class.1, "bulk and all: {class:?} of {plain:?}");
}

#[test]
fn where_the_target_is_out_of_reach_the_sacrifice_is_bounded() {
    let ([before, after], [rate, rate_class], run) = contest(DISK, 32, "+latency{p99=1ms,user:quick}");
    let report = run.report();
    assert!(report.unreachable.is_some_and(|unreachable| unreachable.alone.is_some_and(|alone| alone.0 > 1_000_000)));
    assert!(rate_class > 0.45 * rate, "{rate_class} of {rate}: {report:?}");
    assert!(before > 1.5 * after, "{before} ms, with the class {after} ms: {report:?}");
}

#[test]
fn what_is_not_used_any_more_is_given_back_at_once() {
    let mut run = Run::new("user-fair+latency{p99=4ms,user:quick}", CHANNELS, 64, (128, 4));
    let (_, rate) = {
        run.is_quiet = true;
        run.go(Nanos::from_secs(5))
    };
    run.is_quiet = false;
    run.go(LONG);
    assert!(run.report().others_max.is_some());
    run.is_quiet = true;
    run.go(Nanos::from_secs(2));
    assert_eq!(run.report().others_max, None);
    let (_, alone) = run.go(Nanos::from_secs(5));
    assert!(alone > 0.98 * rate, "{alone} of {rate}");
    // And it is known when it is needed again.
    run.is_quiet = false;
    let (p99, _) = run.go(Nanos::from_secs(3));
    assert!(p99 < 8.0 && run.report().others_max.is_some_and(|max| max < 64), "{p99} ms: {:?}", run.report());
}

#[test]
fn a_class_that_finds_the_device_for_itself_holds_nobody_back() {
    let mut run = Run::new("user-fair+latency{p99=1ms,user:quick}", ARRAY, 64, (0, 4));
    run.go(LONG);
    let report = run.report();
    assert_eq!((report.others_max, report.unreachable), (None, None));
    assert!(report.p99.is_some_and(|p99| p99 > Nanos::from_millis(5)) && report.requests_total > 1_000, "{report:?}");
}

#[test]
fn who_is_named_and_wants_more_than_a_share_gets_the_share() {
    // Many processes without a pause: what comes beyond the share is not what the others are held back for.
    for policy in ["user-fair", "user-fair+latency{p99=4ms,user:quick}"] {
        let mut run = Run::new(policy, CHANNELS, 64, (128, 128));
        run.think_ms = 0.0;
        run.go(Nanos::from_secs(5));
        let (_, bulk) = run.go(Nanos::from_secs(10));
        let quick = run.served[1].len() as f64 / 10.0;
        // A small request costs a fortieth of a large one.
        assert!((quick / 40.0 / bulk - 1.0).abs() < 0.05, "{policy}: {quick} small, {bulk} large a second");
    }
}
