//! Written pages, a dispatcher of the policy, and a device that serves one request after the other, in virtual time: whose the
//! device's time is, how long a read waits, and that each page is written back once.

use super::*;
use isonomia_policy::{Action, Depth, Dispatcher, Draw, RequestId, ServedBy, Submission, Tuning, build};
use isonomia_units::{Ino, JobInfo};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

const MEMORY: u64 = 16 << 30;
const READER: JobId = JobId(1);
const WRITERS: [JobId; 2] = [JobId(2), JobId(3)];
/// What the device takes for an operation, and for a byte.
const PER_OP: Nanos = Nanos::from_millis(1);
const NS_PER_BYTE: u64 = 5;
const READ_BYTES: u64 = 4096;
/// Serving a request from memory.
const MEMORY_TIME: Nanos = Nanos::from_micros(30);
/// Between a reply and the next request of a process.
const THINK: Nanos = Nanos::from_micros(50);
const MANNER: Manner = Manner { time_max: Nanos::from_millis(2), chunks_max: None, is_counted: true };

fn time_of(ranges: u64, bytes: u64) -> Nanos {
    Nanos(PER_OP.0 * ranges + bytes * NS_PER_BYTE)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Write {
    job: JobId,
    ino: u64,
    start: u64,
    end: u64,
}

#[derive(Debug)]
enum Item {
    Read { arrived: Nanos },
    Write(Write),
    Chunk(Chunk),
}

/// What happens next, by its time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Read,
    Write(Write),
    /// The device is done with what has this name.
    Done(u64),
}

struct Simulation {
    now: Nanos,
    pages: WriteBack,
    dispatcher: Dispatcher<Item>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    count: u64,
    /// When the device is done with all that it was given.
    free_at: Nanos,
    at_device: HashMap<u64, (Item, Nanos, Nanos)>,
    /// Writes whose replies are delayed; the process goes on with this one.
    delayed: Vec<Write>,
    /// The next write of each process that goes on and on.
    next_write: fn(Write) -> Option<Write>,
    read_until: Nanos,
    latencies: Vec<Nanos>,
    /// What the device did for each job: the time that its requests took, and what they were attributed.
    times: BTreeMap<JobId, [f64; 2]>,
    device_times: HashMap<JobId, Nanos>,
    /// Pages that were written and are not written back.
    dirty: BTreeSet<(JobId, u64, u64)>,
    longest_chunk: Nanos,
}

impl Simulation {
    fn new(depth: usize, next_write: fn(Write) -> Option<Write>, read_until: Nanos) -> Self {
        let policy = "job-fair".parse().unwrap();
        let mut arbiter = build(&policy, Draw::VirtualTime, 0, Tuning { parallel: 2, ..Tuning::default() });
        for job in [READER, WRITERS[0], WRITERS[1]] {
            arbiter.set_job(Nanos::ZERO, job, &JobInfo::new(&job.to_string(), "u", "g"));
        }
        Self {
            now: Nanos(1),
            pages: WriteBack::new(MEMORY, true),
            dispatcher: Dispatcher::new(arbiter, None, Depth::Fixed(depth)),
            events: BinaryHeap::new(),
            count: 0,
            free_at: Nanos::ZERO,
            at_device: HashMap::new(),
            delayed: Vec::new(),
            next_write,
            read_until,
            latencies: Vec::new(),
            times: BTreeMap::new(),
            device_times: HashMap::new(),
            dirty: BTreeSet::new(),
            longest_chunk: Nanos::ZERO,
        }
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    fn enqueue(&mut self, job: JobId, device: Nanos, work: Nanos, item: Item) -> RequestId {
        let cost = if device > Nanos::ZERO { self.dispatcher.worth().of(device) } else { work };
        let submission = Submission {
            job,
            cost,
            owed: Nanos::ZERO,
            work,
            bytes: Bytes(0),
            nature: isonomia_policy::Nature::WRITE,
            is_counted: true,
        };
        self.dispatcher.enqueue(self.now, submission, item).unwrap()
    }

    fn cut(&mut self) {
        for job in WRITERS {
            while let Some(chunk) = self.pages.next(job, MANNER) {
                for range in &chunk.ranges {
                    for page in range.start / 4096..range.end / 4096 {
                        assert!(
                            self.dirty.remove(&(job, chunk.of.ino().0, page)),
                            "page {page} was written back before"
                        );
                    }
                }
                let (predicted, unpaid) = (chunk.predicted, chunk.unpaid);
                self.enqueue(job, predicted, unpaid, Item::Chunk(chunk));
            }
        }
    }

    fn serve(&mut self, id: RequestId, item: Item) {
        let (ranges, bytes) = match &item {
            Item::Write(_) => (0, 0),
            Item::Read { .. } => (1, READ_BYTES),
            Item::Chunk(chunk) => (chunk.ranges.len() as u64, chunk.bytes.0),
        };
        if let Item::Write(write) = item {
            let bytes = write.end - write.start;
            let work = Nanos(2_000 + bytes / 8);
            let (job, ino) = (write.job, PagesOf::File(Ino(write.ino)));
            let wrote = self.pages.wrote(self.now, job, ino, write.start..write.end, work, true);
            self.dirty.extend((write.start / 4096..write.end.div_ceil(4096)).map(|page| (job, write.ino, page)));
            self.dispatcher.complete(self.now, id, ServedBy::Partly(work.since(wrote.unpaid))).unwrap();
            if let Some(next) = (self.next_write)(write) {
                if wrote.is_ahead {
                    self.delayed.push(next);
                } else {
                    self.at(self.now + MEMORY_TIME + THINK, Event::Write(next));
                }
            }
            return;
        }
        if matches!(item, Item::Chunk(_)) {
            self.pages.begun(self.now);
            self.longest_chunk = self.longest_chunk.max(time_of(ranges, bytes));
        }
        self.dispatcher.enter(self.now, id);
        let begun = self.now;
        self.free_at = self.free_at.max(self.now) + time_of(ranges, bytes);
        self.at_device.insert(id.0, (item, begun, time_of(ranges, bytes)));
        self.at(self.free_at, Event::Done(id.0));
    }

    fn done(&mut self, id: u64) {
        let (item, begun, took) = self.at_device.remove(&id).unwrap();
        let served = self.dispatcher.complete(self.now, RequestId(id), ServedBy::Device).unwrap();
        let job = match item {
            Item::Read { arrived } => {
                self.latencies.push(self.now.since(arrived));
                if self.now < self.read_until {
                    self.at(self.now + THINK, Event::Read);
                }
                READER
            }
            Item::Chunk(chunk) => {
                let device = (self.now.since(begun), served.attributed.unwrap());
                self.pages.finished(self.now, &chunk, Some(device));
                let delayed = std::mem::take(&mut self.delayed);
                for write in delayed {
                    if self.pages.state().is_ahead(write.job, MEMORY) {
                        self.delayed.push(write);
                    } else {
                        self.at(self.now + THINK, Event::Write(write));
                    }
                }
                chunk.job
            }
            Item::Write(_) => unreachable!("it is served at once"),
        };
        let times = self.times.entry(job).or_default();
        times[0] += took.0 as f64;
        *self.device_times.entry(job).or_default() += served.attributed.unwrap();
        times[1] += served.attributed.unwrap().0 as f64;
    }

    /// Until nothing happens any more, or to the end of the time.
    fn run(&mut self, until: Nanos) {
        let mut looked_at = Nanos::ZERO;
        while self.now < until {
            while let Some(Reverse((at, ..))) = self.events.peek()
                && *at <= self.now
            {
                let Some(Reverse((_, _, event))) = self.events.pop() else { break };
                match event {
                    Event::Read => {
                        let item = Item::Read { arrived: self.now };
                        _ = self.enqueue(READER, time_of(1, READ_BYTES), Nanos(2_500), item);
                    }
                    Event::Write(write) => {
                        let work = Nanos(2_000 + (write.end - write.start) / 8);
                        _ = self.enqueue(write.job, Nanos::ZERO, work, Item::Write(write));
                    }
                    Event::Done(id) => self.done(id),
                }
            }
            if self.now.since(looked_at) >= Nanos::from_millis(100) {
                looked_at = self.now;
                let shares = self.dispatcher.shares(self.now);
                self.pages.look(self.now, &shares, &std::mem::take(&mut self.device_times));
            }
            self.cut();
            let next = match self.dispatcher.next(self.now) {
                Action::Serve(dispatch) => {
                    self.serve(dispatch.id, dispatch.request);
                    continue;
                }
                Action::WaitUntil(at) => at.max(self.now + Nanos(1)),
                Action::Answer(_) | Action::Idle => looked_at + Nanos::from_millis(100),
            };
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            self.now = event.map_or(next, |at| at.min(next)).max(self.now);
        }
    }
}

/// The next request of a process that writes a file to its end, and the next one then.
fn stream(write: Write) -> Option<Write> {
    let len = 256 << 10;
    let (ino, start) = if write.end >= 16 << 20 { (write.ino + 100, 0) } else { (write.ino, write.end) };
    Some(Write { ino, start, end: start + len, ..write })
}

fn begin_streams(simulation: &mut Simulation, job: JobId, processes: u64) {
    for ino in 0..processes {
        simulation.at(Nanos(2), Event::Write(Write { job, ino, start: 0, end: 256 << 10 }));
    }
}

#[test]
fn what_is_written_back_and_what_is_read_have_equal_parts_of_the_device() {
    for depth in [1, 2, 4] {
        let end = Nanos::from_secs(20);
        let mut simulation = Simulation::new(depth, stream, end);
        begin_streams(&mut simulation, WRITERS[0], 4);
        for _ in 0..8 {
            simulation.at(Nanos(3), Event::Read);
        }
        // From when the first window is full.
        simulation.run(Nanos::from_secs(2));
        simulation.times.clear();
        simulation.run(end);
        let [read, written] = [READER, WRITERS[0]].map(|job| simulation.times[&job]);
        let shares = [0, 1].map(|of| read[of] / (read[of] + written[of]));
        let is_even = |share: f64| (0.485..=0.515).contains(&share);
        assert!(is_even(shares[1]), "{shares:?} at a depth of {depth}");
        // Of several in service each is attributed as much as the others, however much there is to do for it.
        assert!(depth > 1 || is_even(shares[0]), "{shares:?}");
    }
}

#[test]
fn a_read_waits_for_no_more_than_one_chunk() {
    let end = Nanos::from_secs(20);
    let mut simulation = Simulation::new(1, stream, end);
    begin_streams(&mut simulation, WRITERS[0], 4);
    simulation.at(Nanos(3), Event::Read);
    simulation.run(Nanos::from_secs(2));
    simulation.longest_chunk = Nanos::ZERO;
    simulation.latencies.clear();
    simulation.run(end);
    assert!(simulation.longest_chunk < Nanos(MANNER.time_max.0 * 11 / 10), "{}", simulation.longest_chunk);
    simulation.latencies.sort_unstable();
    let p99 = simulation.latencies[simulation.latencies.len() * 99 / 100];
    let most = simulation.longest_chunk + time_of(1, READ_BYTES);
    assert!(p99 <= most, "{p99} of {most}");
    // Half of the device, less what it is waited for in vain.
    assert!(simulation.latencies.len() > 8_000, "{}", simulation.latencies.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Whatever is written, and in whatever order; `cut` asserts that no page is written back twice.
    #[test]
    fn every_page_that_is_written_is_written_back(
        writes in prop::collection::vec((0..3u64, 0..200u64, 1..300_000u64, 0..2usize, 0..3_000_000u64), 1..60),
        depth in 1usize..5,
    ) {
        let mut simulation = Simulation::new(depth, |_| None, Nanos::from_secs(1));
        let mut at = Nanos(2);
        for (ino, page, len, writer, pause) in writes {
            at += Nanos(pause);
            let start = page * 4096;
            simulation.at(at, Event::Write(Write { job: WRITERS[writer], ino, start, end: start + len }));
        }
        simulation.at(Nanos(3), Event::Read);
        simulation.run(Nanos::from_secs(30));
        prop_assert!(simulation.dirty.is_empty(), "{} pages are left", simulation.dirty.len());
        prop_assert_eq!(simulation.pages.dirty().0, Bytes(0));
        prop_assert!(simulation.at_device.is_empty() && simulation.dispatcher.queued() == 0);
    }
}
