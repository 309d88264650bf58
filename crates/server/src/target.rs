//! One target's queue: the policy's arbiter, the emulated device if the target is capped, and what waits.
//!
//! The metadata service is arbitrated by a queue of the same kind.

use crate::connection::Connection;
use crate::depth::{DEPTH_MAX, Depth, DepthSpec};
use crate::engine::{Engine, Kind};
use crate::jobs::Job;
use crate::scrub;
use isonomia_policy::trace::Journal;
use isonomia_policy::{Arbiter, CappedDevice, CostModel, Draw, Next, PolicySpec, Request, RequestId, Tuning, build};
use isonomia_proto::control::TargetStatus;
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos, Rate, TargetId};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Cost of bytes on a target that is not capped. Shares depend on the ratio of this and the time for an
/// operation only: here an operation weighs as much as 16 KiB.
const NOMINAL_BANDWIDTH: u64 = 8 << 30;
const NOMINAL_PER_OP: Nanos = Nanos(1_907);
/// The least that a request is charged, whatever it says of itself: taking it in, deciding, and answering take that long.
const COST_MIN: Nanos = NOMINAL_PER_OP;

/// A request that waits for its turn, or is served.
#[derive(Debug)]
pub struct Pending {
    /// Where it came from.
    pub connection: Arc<Connection>,
    /// Its slot in shared memory; 0 on a stream.
    pub slot: usize,
    /// What it asks, already checked.
    pub header: RequestHeader,
    /// Its operation.
    pub op: Op,
    /// Its names, if they had to be taken off a stream.
    pub names: Vec<u8>,
    /// When it came.
    pub arrived: Nanos,
    /// What it is charged.
    pub cost: Nanos,
    /// The part of it that settles what earlier requests turned out to cost: see [`crate::debts`].
    pub owed: Nanos,
    /// How long serving it took; nothing of reads and writes, which are charged for their bytes.
    pub took: Nanos,
    /// It is one of those that are in service at its target.
    pub is_in_service: bool,
    /// It is served by a thread that may wait for the device.
    pub is_for_device: bool,
}

/// A request whose turn has come.
#[derive(Debug)]
pub struct Work {
    /// The request.
    pub pending: Pending,
    /// The arbiter's name for it.
    pub id: RequestId,
    /// When the emulated device is done with it; the reply waits until then.
    pub finish_at: Option<Nanos>,
}

/// A request that is served, and whose reply waits for the emulated device.
#[derive(Debug)]
pub struct Served {
    /// The request.
    pub pending: Pending,
    /// The arbiter's name for it.
    pub id: RequestId,
    /// The reply.
    pub reply: ReplyHeader,
    /// The reply's payload, if it has to go out on a stream.
    pub payload: Vec<u8>,
}

/// A range of the scrub, which the server looks at for itself: see [`crate::scrub`].
#[derive(Debug)]
pub struct Scrubbing {
    /// The job of the scrub.
    pub job: Arc<Job>,
    /// What it is charged.
    pub cost: Nanos,
    /// When it was due.
    pub arrived: Nanos,
    /// What was read.
    pub bytes: u64,
}

/// What a worker finds at a target.
#[derive(Debug)]
pub enum Action {
    /// Serve this.
    Serve(Box<Work>),
    /// Answer this: the emulated device is done with it.
    Answer(Box<Served>),
    /// Look at the range of the scrub; the emulated device is done with it at this time.
    Scrub(Option<Nanos>),
    /// The emulated device is done with the range of the scrub.
    Scrubbed(Box<Scrubbing>),
    /// Nothing before this time, unless a request comes.
    WaitUntil(Nanos),
    /// Nothing at all.
    Idle,
}

/// A target.
pub struct Target {
    /// Its number; `None` is the metadata service.
    pub id: Option<TargetId>,
    dir: String,
    cost: CostModel,
    is_capped: bool,
    bandwidth: Option<Rate>,
    tuning: Tuning,
    /// Who serves what would keep a worker waiting.
    pub engine: Engine,
    /// Requests queued or waiting for the device, so that workers pass by an empty target without its lock.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

struct Queue {
    arbiter: Box<dyn Arbiter>,
    device: Option<CappedDevice>,
    pending: Slab<Pending>,
    due: BinaryHeap<Reverse<Due>>,
    /// The policy let the target idle since the last request was served.
    is_held: bool,
    finished: Slab<Served>,
    /// The range of the scrub that is queued or being looked at.
    scrubbing: Option<Scrubbing>,
    /// A range was looked at, and its job's account does not have it yet.
    is_scrub_to_be_told: bool,
    /// When it was last asked, some had to wait because enough are in service, and not because the policy wants it so.
    is_backlogged: bool,
    /// The most that are in service: the queue belongs in the arbiter, where the policy holds, not in the device.
    depth: Depth,
    /// Requests that were dispatched and not completed, without flushes and those that a client keeps waiting.
    in_service: usize,
    requests_total: u64,
    service_ns_total: u64,
}

/// A reply by the time it is due; the smaller key breaks ties. The scrub's has no key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Nanos,
    key: Option<usize>,
}

/// How arbiters are made.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What is fair.
    pub spec: PolicySpec,
    /// How the next request is drawn.
    pub draw: Draw,
    /// Seed of the lottery.
    pub seed: u64,
    /// Where every call of an arbiter is noted, if anywhere.
    pub journal: Option<Journal>,
}

impl Policy {
    fn arbiter(&self, tuning: Tuning) -> Box<dyn Arbiter> {
        match &self.journal {
            Some(journal) => journal.build(&self.spec, self.draw, self.seed, tuning),
            None => build(&self.spec, self.draw, self.seed, tuning),
        }
    }
}

impl Target {
    /// A target that is emulated if `bandwidth` or `per_op` is given.
    pub fn new(
        id: Option<TargetId>,
        dir: String,
        bandwidth: Option<Rate>,
        per_op: Option<Nanos>,
        policy: &Policy,
        workers: usize,
        (is_memory, depth): (bool, DepthSpec),
    ) -> Self {
        let is_capped = bandwidth.is_some() || per_op.is_some();
        // An emulated device serves one request at a time.
        let parallel = if is_capped { 1 } else { workers as u32 };
        let nominal = Rate::new(NOMINAL_BANDWIDTH).expect("constant");
        let cost = CostModel {
            per_op: per_op.unwrap_or(if is_capped { Nanos::ZERO } else { NOMINAL_PER_OP }),
            // A cap on operations alone lets bytes pass as fast as they do without one, but not for free.
            bandwidth: bandwidth.unwrap_or(nominal),
        };
        let tuning = Tuning { parallel, bandwidth: bandwidth.unwrap_or(nominal), ..Tuning::default() };
        let depth = match depth {
            // Of an emulated device the emulation takes one request at a time.
            _ if is_capped => Depth::Fixed(usize::MAX),
            // Nobody waits for memory, and the metadata's database queues nothing.
            DepthSpec::Auto if is_memory || id.is_none() => Depth::Fixed(DEPTH_MAX),
            depth => Depth::new(depth),
        };
        let queue = Queue {
            arbiter: policy.arbiter(tuning),
            device: is_capped.then(CappedDevice::new),
            pending: Slab::new(),
            due: BinaryHeap::new(),
            is_held: false,
            finished: Slab::new(),
            scrubbing: None,
            is_scrub_to_be_told: false,
            is_backlogged: false,
            depth,
            in_service: 0,
            requests_total: 0,
            service_ns_total: 0,
        };
        Self {
            id,
            dir,
            cost,
            is_capped,
            bandwidth,
            tuning,
            engine: Engine::new(DEPTH_MAX, is_memory),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(queue),
        }
    }

    /// Its place among all targets of the server.
    pub fn index(&self) -> usize {
        self.id.map_or(0, |id| usize::from(id.0) + 1)
    }

    /// Whether it is the metadata service.
    pub fn is_metadata(&self) -> bool {
        self.id.is_none()
    }

    /// Whether it emulates a device.
    pub fn is_capped(&self) -> bool {
        self.is_capped
    }

    /// What a request is charged that does `operations` and moves `bytes`; none are counted of a later part of a
    /// transfer. At least [`COST_MIN`].
    pub fn cost(&self, operations: u64, bytes: Bytes) -> Nanos {
        let per_op = Nanos(self.cost.per_op.0.saturating_mul(operations));
        (per_op + self.time_for(bytes)).max(COST_MIN)
    }

    /// What `bytes` are charged.
    pub fn time_for(&self, bytes: Bytes) -> Nanos {
        self.cost.bandwidth.time_for(bytes)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request; gives it back if the queue is full.
    pub fn enqueue(&self, now: Nanos, pending: Pending) -> Result<(), Box<Pending>> {
        let mut queue = self.queue();
        let (job, cost) = (pending.connection.job.id, pending.cost);
        let key = queue.pending.insert(pending);
        match queue.arbiter.enqueue(now, Request { id: RequestId(key as u64), job, cost }) {
            Ok(()) => {
                self.waiting.fetch_add(1, Ordering::Release);
                Ok(())
            }
            Err(_) => Err(Box::new(queue.pending.remove(key))),
        }
    }

    /// Whether a worker need not ask.
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Requests queued or waiting for the device.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// What to do next.
    pub fn next_action(&self, now: Nanos) -> Action {
        let mut queue = self.queue();
        if let Some(Reverse(due)) = queue.due.peek()
            && due.at <= now
        {
            let key = due.key;
            queue.due.pop();
            self.waiting.fetch_sub(1, Ordering::Release);
            let Some(key) = key else {
                return queue.end_scrub(now).map_or(Action::Idle, |scrubbing| Action::Scrubbed(Box::new(scrubbing)));
            };
            let served = queue.finished.remove(key);
            queue.ended(now, &served.pending, served.id);
            return Action::Answer(Box::new(served));
        }
        let due_at = queue.due.peek().map(|Reverse(due)| due.at);
        let earliest = |at: Nanos| Action::WaitUntil(due_at.map_or(at, |due| due.min(at)));
        if let Some(device) = &queue.device {
            // A busy device has nothing to be asked.
            if device.free_at() > now {
                let free_at = device.free_at();
                return if queue.arbiter.queued() == 0 && due_at.is_none() { Action::Idle } else { earliest(free_at) };
            }
        }
        if queue.in_service >= queue.depth.limit() {
            queue.is_backlogged = queue.arbiter.queued() > 0;
            // Whoever completes one asks again.
            return due_at.map_or(Action::Idle, Action::WaitUntil);
        }
        match queue.arbiter.next(now) {
            Next::Dispatch(request) => {
                let is_scrub = request.id == scrub::REQUEST;
                let mut pending = (!is_scrub).then(|| queue.pending.remove(request.id.0 as usize));
                if let Some(pending) = &mut pending
                    && Kind::of(pending.op) != Kind::Flush
                {
                    pending.is_in_service = true;
                    queue.in_service += 1;
                }
                self.waiting.fetch_sub(1, Ordering::Release);
                let is_held = std::mem::take(&mut queue.is_held);
                let others_wait = queue.arbiter.queued() > 0;
                let (arrived, owed) = match (&pending, &queue.scrubbing) {
                    (Some(pending), _) => (pending.arrived, pending.owed),
                    (None, Some(scrubbing)) => (scrubbing.arrived, Nanos::ZERO),
                    (None, None) => (now, Nanos::ZERO),
                };
                let finish_at = queue.device.as_mut().map(|device| {
                    // A gap is this machine's late wake-up if something was waiting, and the policy's if it held.
                    let was_waiting = !is_held && (others_wait || arrived <= device.free_at());
                    // What is settled here did not wait for this device.
                    device.start(now, request.cost.since(owed), was_waiting)
                });
                match pending {
                    Some(pending) => Action::Serve(Box::new(Work { pending, id: request.id, finish_at })),
                    None => Action::Scrub(finish_at),
                }
            }
            Next::WaitUntil(at) => {
                queue.is_backlogged = false;
                queue.is_held = true;
                earliest(at)
            }
            Next::Idle => {
                queue.is_backlogged = false;
                due_at.map_or(Action::Idle, Action::WaitUntil)
            }
        }
    }

    /// Keeps a reply until the emulated device is done.
    pub fn answer_at(&self, at: Nanos, served: Served) {
        let mut queue = self.queue();
        self.waiting.fetch_add(1, Ordering::Release);
        let key = queue.finished.insert(served);
        queue.due.push(Reverse(Due { at, key: Some(key) }));
    }

    /// Queues a range of the scrub, of which there is none yet; false if the queue is full.
    pub fn enqueue_scrub(&self, now: Nanos, scrubbing: Scrubbing) -> bool {
        let mut queue = self.queue();
        let request = Request { id: scrub::REQUEST, job: scrubbing.job.id, cost: scrubbing.cost };
        let is_queued = queue.scrubbing.is_none() && queue.arbiter.enqueue(now, request).is_ok();
        if is_queued {
            queue.scrubbing = Some(scrubbing);
            self.waiting.fetch_add(1, Ordering::Release);
        }
        is_queued
    }

    /// Whether a range of the scrub is queued or being looked at, or was and is not accounted for.
    pub fn is_scrubbed(&self) -> bool {
        let queue = self.queue();
        queue.scrubbing.is_some() || queue.is_scrub_to_be_told
    }

    /// The range that was looked at is accounted for.
    pub fn scrub_is_told(&self) {
        self.queue().is_scrub_to_be_told = false;
    }

    /// `bytes` of the scrub's range were read. Gives the range, unless the emulated device is busy with it until
    /// `finish_at`.
    pub fn end_scrub(&self, now: Nanos, finish_at: Option<Nanos>, bytes: u64) -> Option<Scrubbing> {
        let mut queue = self.queue();
        queue.scrubbing.as_mut()?.bytes = bytes;
        let Some(at) = finish_at.filter(|at| *at > now) else { return queue.end_scrub(now) };
        self.waiting.fetch_add(1, Ordering::Release);
        queue.due.push(Reverse(Due { at, key: None }));
        None
    }

    /// A request that was dispatched does not keep the device busy for now: another one may.
    pub fn set_aside(&self, pending: &mut Pending) {
        if std::mem::take(&mut pending.is_in_service) {
            self.queue().in_service -= 1;
        }
    }

    /// A request that was served is about to be answered.
    pub fn complete(&self, now: Nanos, pending: &Pending, id: RequestId) {
        self.queue().ended(now, pending, id);
    }

    /// Announces a job, or what has changed of it.
    pub fn set_job(&self, now: Nanos, job: JobId, info: &JobInfo) {
        self.queue().arbiter.set_job(now, job, info);
    }

    /// Forgets a job, which has no connections left.
    pub fn remove_job(&self, now: Nanos, job: JobId) {
        let mut queue = self.queue();
        let dropped = queue.arbiter.remove_job(now, job);
        self.waiting.fetch_sub(dropped.len(), Ordering::Release);
        dropped.into_iter().for_each(|request| queue.forget(request.id));
    }

    /// Drops what a closed connection still has queued. Linear in what is queued.
    pub fn cancel(&self, now: Nanos, connection: u64) {
        let mut queue = self.queue();
        let gone: Vec<(usize, JobId)> = queue
            .pending
            .iter()
            .filter(|(_, p)| p.connection.id == connection)
            .map(|(key, p)| (key, p.connection.job.id))
            .collect();
        for (key, job) in gone {
            if queue.arbiter.cancel(now, RequestId(key as u64), job) {
                // Whoever hangs up before it is served still owes what it would have settled.
                let pending = queue.pending.remove(key);
                pending.connection.job.debts.put_back(self.is_metadata(), pending.owed);
                self.waiting.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Changes the policy at once; what is queued stays queued, in its order.
    pub fn set_policy(&self, now: Nanos, policy: &Policy, jobs: &[(JobId, Arc<JobInfo>)]) {
        let mut queue = self.queue();
        let mut arbiter = policy.arbiter(self.tuning);
        for (job, info) in jobs {
            arbiter.set_job(now, *job, info);
        }
        for request in queue.arbiter.drain() {
            // A queue that held these takes them again.
            if arbiter.enqueue(now, request).is_err() {
                queue.forget(request.id);
                self.waiting.fetch_sub(1, Ordering::Release);
            }
        }
        queue.arbiter = arbiter;
    }

    /// Shares due among the jobs that are active here.
    pub fn shares(&self, now: Nanos) -> Vec<(JobId, f64)> {
        self.queue().arbiter.shares(now)
    }

    /// Requests of `job` that wait here.
    pub fn queued_of(&self, job: JobId) -> u64 {
        self.queue().arbiter.queued_of(job) as u64
    }

    /// State for operators.
    pub fn status(&self) -> TargetStatus {
        let queue = self.queue();
        TargetStatus {
            target: self.id.map_or_else(|| "metadata".to_owned(), |id| id.to_string()),
            dir: self.dir.clone(),
            bandwidth_bytes_per_s: self.bandwidth.map(Rate::bytes_per_s),
            per_op_ns: if self.is_capped { self.cost.per_op.0 } else { 0 },
            queued: queue.arbiter.queued() as u64,
            in_service: queue.in_service as u64,
            depth: (!self.is_capped).then_some(queue.depth.settled() as u64),
            requests_total: queue.requests_total,
            service_ns_total: queue.service_ns_total,
        }
    }
}

impl Queue {
    fn ended(&mut self, now: Nanos, pending: &Pending, id: RequestId) {
        self.in_service -= usize::from(pending.is_in_service);
        if pending.is_for_device && pending.is_in_service {
            // What is settled with it was done before.
            self.depth.completed(now, pending.cost.since(pending.owed), self.is_backlogged);
        }
        self.count(now, id, pending.connection.job.id, pending.cost);
    }

    fn end_scrub(&mut self, now: Nanos) -> Option<Scrubbing> {
        let scrubbing = self.scrubbing.take()?;
        self.is_scrub_to_be_told = true;
        self.count(now, scrub::REQUEST, scrubbing.job.id, scrubbing.cost);
        Some(scrubbing)
    }

    fn count(&mut self, now: Nanos, id: RequestId, job: JobId, cost: Nanos) {
        self.requests_total += 1;
        self.service_ns_total += cost.0;
        self.arbiter.complete(now, id, job);
    }

    /// A request that the arbiter has no more.
    fn forget(&mut self, id: RequestId) {
        if id == scrub::REQUEST {
            self.scrubbing = None;
        } else {
            self.pending.try_remove(id.0 as usize);
        }
    }
}

#[cfg(test)]
mod tests;
