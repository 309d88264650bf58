//! One target: what the server keeps of it besides its [`Dispatcher`], which decides whose turn it is and when.
//!
//! Here are the lock around the dispatcher, the count by which workers pass by an empty target, what requests cost, and
//! totals for operators. The metadata service is arbitrated by a target of the same kind.

mod chunks;
mod history;
mod parts;
mod policy;

use crate::clock;
use crate::connection::Pending;
use crate::engine::{Engine, Kind};
use crate::jobs::Job;
use crate::operation::reads_or_writes;
use crate::page_cache;
use crate::prices::Prices;
use crate::read_ahead::{Piece, ReadAhead};
use crate::requests::{Served, Work};
use crate::write_back::{Chunk, WriteBack};
use isonomia_policy::device::profile::{DeviceProfile, FittedCost};
use isonomia_policy::{
    Access, CappedDevice, CostModel, DEPTH_MAX, Depth, DepthSpec, Dispatch, Dispatcher, LatencyReport, Lateness,
    Nature, PhaseReport, RequestId, ServedBy, Submission, Tuning, Worth,
};
use isonomia_proto::control::{LatencyStatus, TargetStatus, UnreachableStatus};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_store::WriteMode;
use isonomia_units::{Bytes, JobId, JobInfo, Nanos, Rate, TargetId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use policy::Policy;

/// The requests of a file whose length is told are expected to carry so much each.
const PAYLOAD_EXPECTED: Bytes = Bytes::mib(1);
/// No job.
const NOBODY: JobId = JobId(u32::MAX);

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
    /// Write this back.
    WriteBack(Box<Chunk>, RequestId),
    /// Read this ahead.
    ReadAhead(Box<Piece>, RequestId),
    /// Look at the range of the scrub; the emulated device is done with it at this time.
    Scrub(Option<Nanos>),
    /// The emulated device is done with the range of the scrub.
    Scrubbed(Box<Scrubbing>),
    /// Nothing before this time, unless a request comes.
    WaitUntil(Nanos),
    /// Nothing before this time, as the device is kept free for this job: once each time when that begins. [`Core::write_back_more`](crate::core::Core::write_back_more)
    /// is to follow.
    KeepFree(JobId, Nanos),
    /// Nothing at all.
    Idle,
}

/// A target.
pub struct Target {
    /// Its number, unique in the whole system; `None` is the metadata service.
    pub id: Option<TargetId>,
    /// Its place among all targets of the server.
    pub index: usize,
    dir: String,
    cost: CostModel,
    is_capped: bool,
    bandwidth: Option<Rate>,
    tuning: Tuning,
    /// How long its device takes, where that has to be learnt: not for memory, emulated devices and the metadata service.
    pub prices: Option<Prices>,
    /// The threads that serve what would keep a worker waiting.
    pub engine: Engine,
    /// What was written and is not on the device, where the server sees to that.
    pub write_back: Option<WriteBack>,
    /// Streams of reads, where the server reads ahead of them.
    pub read_ahead: Option<ReadAhead>,
    /// Writes go past the page cache of the host if their programs ask for it, and they are long: see [`crate::page_cache`].
    pub takes_direct: bool,
    /// Requests queued or waiting for the device, so that workers pass by an empty target without its lock.
    waiting: AtomicUsize,
    /// They wait since the device is kept free for a job: no worker can do anything for them.
    is_kept_free: AtomicBool,
    /// When a request last read from the device, in nanoseconds of the monotonic clock.
    read_at: AtomicU64,
    queue: Mutex<Queue>,
}

struct Queue {
    dispatcher: Dispatcher<Queued, Due>,
    /// What each job had of the device's time since somebody asked.
    device_times: HashMap<JobId, Nanos>,
    /// The latest two jobs that queued something, and when.
    users: [(JobId, Nanos); 2],
    /// The range of the scrub that is queued or being looked at, and the dispatcher's name for it.
    scrubbing: Option<(RequestId, Scrubbing)>,
    /// A range was looked at, and its job's account does not have it yet.
    is_scrub_to_be_told: bool,
    requests_total: u64,
    service_ns_total: u64,
}

/// What is queued. Boxed here, so that no request is allocated or copied under the lock.
enum Queued {
    Request(Box<Work>),
    WriteBack(Box<Chunk>),
    ReadAhead(Box<Piece>),
    Scrub,
}

/// What is answered when the emulated device is done.
enum Due {
    Reply(Box<Served>),
    Scrub,
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
        let nominal = CostModel::nominal();
        let cost = CostModel {
            per_op: per_op.unwrap_or(if is_capped { Nanos::ZERO } else { nominal.per_op }),
            // A cap on operations alone lets bytes pass as fast as they do without one, but not for free.
            bandwidth: bandwidth.unwrap_or(nominal.bandwidth),
        };
        let tuning = Tuning { parallel, bandwidth: cost.bandwidth, ..Tuning::default() };
        let is_learnt = id.is_some() && !is_capped && !is_memory;
        let depth = match depth {
            // An emulated device takes one request at a time by itself.
            _ if is_capped => Depth::Fixed(usize::MAX),
            depth if is_learnt => Depth::new(depth),
            // Nobody waits for memory, and the metadata's database queues nothing.
            DepthSpec::Auto => Depth::Fixed(DEPTH_MAX),
            DepthSpec::Fixed(depth) => Depth::Fixed(depth),
        };
        let arbiter = policy.arbiter(id.is_none(), tuning);
        let mut dispatcher = Dispatcher::new(arbiter, is_capped.then(CappedDevice::new), depth);
        dispatcher.set_divides_time(policy.spec.divides_time());
        let queue = Queue {
            dispatcher,
            device_times: HashMap::new(),
            users: [(NOBODY, Nanos::ZERO); 2],
            scrubbing: None,
            is_scrub_to_be_told: false,
            requests_total: 0,
            service_ns_total: 0,
        };
        let prices = is_learnt.then(|| Prices::new([cost; 4]));
        prices.iter().for_each(|prices| prices.set_by_time(policy.spec.divides_time()));
        Self {
            id,
            index: 0,
            dir,
            cost,
            is_capped,
            bandwidth,
            tuning,
            prices,
            engine: Engine::new(DEPTH_MAX, is_memory),
            write_back: None,
            read_ahead: None,
            takes_direct: false,
            waiting: AtomicUsize::new(0),
            is_kept_free: AtomicBool::new(false),
            read_at: AtomicU64::new(0),
            queue: Mutex::new(queue),
        }
    }

    /// Begins with what was measured of its device, where that has to be learnt.
    pub fn expect(&mut self, profile: &DeviceProfile) {
        if let Some(prices) = &mut self.prices {
            let measured = |access| profile.costs.get(&access).map_or(self.cost, FittedCost::model);
            *prices = prices.beginning_with(Access::ALL.map(measured));
        }
    }

    /// What operators call it.
    pub fn name(&self) -> String {
        self.id.map_or_else(|| "metadata".to_owned(), |id| id.to_string())
    }

    /// Whether it is the metadata service.
    pub fn is_metadata(&self) -> bool {
        self.id.is_none()
    }

    /// Whether it emulates a device.
    pub fn is_capped(&self) -> bool {
        self.is_capped
    }

    /// Whether a request is a write that goes past the page cache, and waits for the device.
    pub fn is_past_cache(&self, op: Op, header: &RequestHeader) -> bool {
        self.takes_direct && op == Op::Write && page_cache::is_direct(header)
    }

    /// How a write goes to the host.
    pub fn write_mode(&self, header: &RequestHeader) -> WriteMode {
        if self.is_past_cache(Op::Write, header) { WriteMode::Direct } else { WriteMode::Usual }
    }

    /// What a request is charged that does `operations` and moves `bytes`; none are counted of a later part of a
    /// transfer. At least the nominal cost of an operation, whatever it says of itself: taking it in, deciding, and
    /// answering take that long.
    pub fn cost(&self, operations: u64, bytes: Bytes) -> Nanos {
        let per_op = Nanos(self.cost.per_op.0.saturating_mul(operations));
        (per_op + self.time_for(bytes)).max(CostModel::nominal().per_op)
    }

    /// What `bytes` are charged.
    pub fn time_for(&self, bytes: Bytes) -> Nanos {
        self.cost.bandwidth.time_for(bytes)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request; gives it back if the queue is full.
    pub fn enqueue(&self, now: Nanos, pending: Pending) -> Result<(), Box<Work>> {
        let submission = Submission {
            job: pending.connection.job.id,
            cost: pending.cost,
            owed: pending.owed,
            // It is not known how much a flush has to do.
            work: if Kind::of(pending.op) == Kind::Flush { Nanos::ZERO } else { pending.work },
            bytes: if reads_or_writes(pending.op) { pending.bytes } else { Bytes(0) },
            nature: pending.nature,
            is_counted: Kind::of(pending.op) != Kind::Flush,
        };
        // Its name and when the device is done with it are filled in when its turn comes.
        let work = Box::new(Work { pending, id: RequestId(0), finish_at: None });
        let mut queue = self.queue();
        queue.note_user(now, submission.job);
        if let Err(Queued::Request(work)) = queue.dispatcher.enqueue(now, submission, Queued::Request(work)) {
            return Err(work);
        }
        self.waiting.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether a worker need not ask.
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Requests queued or waiting for the device, unless they wait since it is kept free for a job.
    pub fn waiting(&self) -> usize {
        if self.is_kept_free.load(Ordering::Relaxed) { 0 } else { self.waiting.load(Ordering::Relaxed) }
    }

    /// What to do next.
    pub fn next_action(&self, now: Nanos) -> Action {
        let mut queue = self.queue();
        let next = queue.dispatcher.next(now);
        let is_to_wait = matches!(next, isonomia_policy::Action::WaitUntil(_));
        let kept_for = queue.dispatcher.device_kept_for().filter(|_| is_to_wait);
        let was_kept_free = self.is_kept_free.load(Ordering::Relaxed);
        if was_kept_free != kept_for.is_some() {
            self.is_kept_free.store(kept_for.is_some(), Ordering::Relaxed);
        }
        match next {
            isonomia_policy::Action::Serve(Dispatch { id, request, finish_at }) => {
                self.waiting.fetch_sub(1, Ordering::Release);
                match request {
                    Queued::Request(mut work) => {
                        (work.id, work.finish_at) = (id, finish_at);
                        Action::Serve(work)
                    }
                    Queued::WriteBack(chunk) => Action::WriteBack(chunk, id),
                    Queued::ReadAhead(piece) => Action::ReadAhead(piece, id),
                    Queued::Scrub => Action::Scrub(finish_at),
                }
            }
            isonomia_policy::Action::Answer(due) => {
                self.waiting.fetch_sub(1, Ordering::Release);
                match due {
                    Due::Reply(served) => {
                        queue.count(served.pending.cost);
                        Action::Answer(served)
                    }
                    Due::Scrub => {
                        queue.end_scrub().map_or(Action::Idle, |scrubbing| Action::Scrubbed(Box::new(scrubbing)))
                    }
                }
            }
            isonomia_policy::Action::WaitUntil(at) => match kept_for.filter(|_| !was_kept_free) {
                Some(job) => Action::KeepFree(job, at),
                None => Action::WaitUntil(at),
            },
            isonomia_policy::Action::Idle => Action::Idle,
        }
    }

    /// Keeps a reply until the emulated device is done.
    pub fn answer_at(&self, at: Nanos, served: Served) {
        let (id, due) = (served.id, Due::Reply(Box::new(served)));
        let mut queue = self.queue();
        if queue.dispatcher.answer_at(at, id, due) {
            self.waiting.fetch_add(1, Ordering::Release);
        }
    }

    /// Queues a range of the scrub, of which there is none yet; false if the queue is full.
    pub fn enqueue_scrub(&self, now: Nanos, scrubbing: Scrubbing) -> bool {
        let mut queue = self.queue();
        if queue.scrubbing.is_some() {
            return false;
        }
        let Scrubbing { job, cost, .. } = &scrubbing;
        // It is looked at beside what is read and written, one at a time.
        let (cost, owed, bytes) = (*cost, Nanos::ZERO, Bytes(0));
        let submission =
            Submission { job: job.id, cost, owed, work: Nanos::ZERO, bytes, nature: Nature::OWN, is_counted: false };
        let Ok(id) = queue.dispatcher.enqueue(now, submission, Queued::Scrub) else { return false };
        queue.scrubbing = Some((id, scrubbing));
        self.waiting.fetch_add(1, Ordering::Release);
        true
    }

    /// Whether a range of the scrub is queued, is being looked at, or was looked at and is not accounted for yet.
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
        let (id, scrubbing) = queue.scrubbing.as_mut()?;
        scrubbing.bytes = bytes;
        let id = *id;
        if let Some(at) = finish_at.filter(|at| *at > now) {
            if queue.dispatcher.answer_at(at, id, Due::Scrub) {
                self.waiting.fetch_add(1, Ordering::Release);
            }
            return None;
        }
        let served = queue.dispatcher.complete(now, id, ServedBy::Device);
        if let (Some(served), Some((_, scrubbing))) = (served, &mut queue.scrubbing) {
            scrubbing.cost = served.service;
        }
        queue.end_scrub()
    }

    /// The range of the scrub is being looked at from now on.
    pub fn begin_scrub(&self, now: Nanos) {
        let mut queue = self.queue();
        if let Some((id, _)) = queue.scrubbing.as_ref().filter(|_| self.prices.is_some()) {
            let id = *id;
            queue.dispatcher.enter(now, id);
        }
    }

    /// A request whose turn has come is served by a thread that may wait for the device, from now on.
    pub fn enter(&self, now: Nanos, pending: &mut Pending, id: RequestId) {
        pending.is_for_device = true;
        if pending.op == Op::Read {
            self.read_at.store(now.0, Ordering::Relaxed);
        }
        if self.prices.is_some() {
            self.queue().dispatcher.enter(now, id);
        }
    }

    /// A request that was dispatched does not keep the device busy for now: another one may.
    pub fn set_aside(&self, now: Nanos, id: RequestId) {
        self.queue().dispatcher.set_aside(now, id);
    }

    /// A request that was served is about to be answered; the part of its work that is `unpaid` is charged later, or was before. Gives what
    /// it came to, and what the device's time is worth.
    pub fn complete(
        &self,
        now: Nanos,
        pending: &Pending,
        id: RequestId,
        unpaid: Nanos,
    ) -> Option<(isonomia_policy::Served, Worth)> {
        let by = match pending.is_for_device {
            true => ServedBy::Device,
            false if unpaid > Nanos::ZERO => ServedBy::Partly(pending.work.since(unpaid)),
            false => ServedBy::Memory,
        };
        let mut queue = self.queue();
        let served = queue.dispatcher.complete(now, id, by);
        if let Some(served) = served.as_ref().filter(|_| self.write_back.is_some()) {
            queue.note_device_time(pending.connection.job.id, served);
        }
        queue.count(served.map_or(pending.cost, |served| served.service + pending.owed));
        served.map(|served| (served, queue.dispatcher.worth()))
    }

    /// A request that was dispatched is answered in another way, or not at all.
    pub fn give_up(&self, pending: &Pending, id: RequestId) {
        self.complete(clock::now(), pending, id, Nanos::ZERO);
    }

    /// Announces a job, or what has changed of it.
    pub fn set_job(&self, now: Nanos, job: JobId, info: &JobInfo) {
        self.queue().dispatcher.set_job(now, job, info);
    }

    /// Forgets a job, which has no connections left. Gives back what it had queued to be written back.
    #[must_use]
    pub fn remove_job(&self, now: Nanos, job: JobId) -> Vec<Chunk> {
        let mut queue = self.queue();
        let dropped = queue.dispatcher.remove_job(now, job);
        self.forget(&mut queue, dropped)
    }

    /// Drops what a closed connection still has queued. Linear in what is queued.
    pub fn cancel(&self, now: Nanos, connection: u64) {
        let is_gone = |queued: &Queued| match queued {
            Queued::Request(work) => work.pending.connection.id == connection,
            Queued::WriteBack(_) | Queued::ReadAhead(_) | Queued::Scrub => false,
        };
        let mut queue = self.queue();
        let cancelled = queue.dispatcher.cancel(now, is_gone);
        for queued in &cancelled {
            if let Queued::Request(work) = queued {
                // The request was to pay a debt of its job. It is not served, so the job still owes that.
                work.pending.connection.job.debts.put_back(self.is_metadata(), work.pending.owed);
            }
        }
        self.forget(&mut queue, cancelled);
    }

    /// Changes the policy at once; what is queued stays queued, in its order. Gives back what is to be written back of jobs
    /// that are not known any more.
    #[must_use]
    pub fn set_policy(&self, now: Nanos, policy: &Policy, jobs: &[(JobId, Arc<JobInfo>)]) -> Vec<Chunk> {
        let mut queue = self.queue();
        let mut arbiter = policy.arbiter(self.is_metadata(), self.tuning);
        self.prices.iter().for_each(|prices| prices.set_by_time(policy.spec.divides_time()));
        for (job, info) in jobs {
            arbiter.set_job(now, *job, info);
        }
        let refused = queue.dispatcher.replace_arbiter(now, arbiter);
        queue.dispatcher.set_divides_time(policy.spec.divides_time());
        self.forget(&mut queue, refused)
    }

    /// Drops what was queued. Gives back the chunks: nobody else would have them written.
    fn forget(&self, queue: &mut Queue, dropped: Vec<Queued>) -> Vec<Chunk> {
        self.waiting.fetch_sub(dropped.len(), Ordering::Release);
        let mut chunks = Vec::new();
        for queued in dropped {
            match queued {
                Queued::Scrub => queue.scrubbing = None,
                Queued::WriteBack(chunk) => chunks.push(*chunk),
                // What is not read ahead is read when a request asks for it.
                Queued::Request(_) | Queued::ReadAhead(_) => {}
            }
        }
        chunks
    }

    /// Shares due among the jobs that are active here.
    pub fn shares(&self, now: Nanos) -> Vec<(JobId, f64)> {
        self.queue().dispatcher.shares(now)
    }

    /// How far the phases of the jobs have come, if there is a fair clock.
    pub fn phases(&self) -> Vec<PhaseReport> {
        self.queue().dispatcher.phases()
    }

    /// What came of the jobs' phases, if there is a fair clock.
    pub fn lateness(&self, now: Nanos) -> Vec<Lateness> {
        self.queue().dispatcher.lateness(now)
    }

    /// `job` is going to read or write so much here.
    pub fn expect_phase(&self, now: Nanos, job: JobId, bytes: Bytes) {
        let operations = bytes.0.div_ceil(PAYLOAD_EXPECTED.0);
        let service = self.cost(operations, bytes);
        self.queue().dispatcher.expect(now, job, service);
    }

    /// Requests of `job` that wait here.
    pub fn queued_of(&self, job: JobId) -> u64 {
        self.queue().dispatcher.queued_of(job) as u64
    }

    /// State for operators.
    pub fn status(&self, now: Nanos) -> TargetStatus {
        let dirty = self.write_back.as_ref().map(WriteBack::dirty);
        let queue = self.queue();
        TargetStatus {
            target: self.name(),
            dir: self.dir.clone(),
            bandwidth_bytes_per_s: self.bandwidth.map(Rate::bytes_per_s),
            per_op_ns: if self.is_capped { self.cost.per_op.0 } else { 0 },
            queued: queue.dispatcher.queued() as u64,
            in_service: queue.dispatcher.in_service() as u64,
            latency: queue.dispatcher.latency(now).map(|report| latency_status(&report)),
            depth: (!self.is_capped).then_some(queue.dispatcher.depth().settled() as u64),
            requests_total: queue.requests_total,
            service_ns_total: queue.service_ns_total,
            busy_ns_total: self.prices.is_some().then_some(queue.dispatcher.attribution().busy().0),
            oldest_ns: queue.dispatcher.oldest_at_device().map(|since| now.since(since).0),
            costs: self.prices.as_ref().map(Prices::status).unwrap_or_default(),
            dirty_bytes: dirty.map(|(dirty, _)| dirty.0),
            dirty_bytes_max: dirty.map(|(_, most)| most.0),
        }
    }
}

impl Queue {
    /// A range of the scrub was completed.
    fn end_scrub(&mut self) -> Option<Scrubbing> {
        let (_, scrubbing) = self.scrubbing.take()?;
        self.is_scrub_to_be_told = true;
        self.count(scrubbing.cost);
        Some(scrubbing)
    }

    fn count(&mut self, cost: Nanos) {
        self.requests_total += 1;
        self.service_ns_total += cost.0;
    }
}

/// What an operator hears of a latency class.
fn latency_status(report: &LatencyReport) -> LatencyStatus {
    LatencyStatus {
        target_ns: report.target.0,
        p99_ns: report.p99.map(|p99| p99.0),
        requests_total: report.requests_total,
        over_share_total: report.over_share_total,
        others_max: report.others_max.map(|max| max as u64),
        lost: report.lost,
        unreachable: report.unreachable.map(|reason| UnreachableStatus {
            alone_ns: reason.alone.map(|alone| alone.0),
            beside_one_ns: reason.beside_one.0,
        }),
    }
}

#[cfg(test)]
mod tests;
