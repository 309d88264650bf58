//! What may wait for a device is served here, so that no worker ever does: a bounded pool of threads for each target.
//!
//! A worker serves what is in memory itself: waking another thread takes longer than that. For reads most file systems tell
//! whether the bytes are in memory ([`Cached`]). For everything else the worker guesses, by how long such requests took
//! lately ([`Pace`]); a wrong guess costs a worker the time of one request. What takes the device long in any case, such as an
//! `fsync`, comes here at once. Short reads come here where the kernel does not bring their pages to memory by itself
//! ([`crate::fetch`]).
//!
//! A thread that has served a request asks its target for the next one, so no thread is woken while there is work. Threads
//! are started when they are needed and end when they are not; there are never more than the target may have requests in
//! service, [`FLUSHES_MAX`], and [`CHUNKS_MAX`] for what is written back past the depth. How many flushes a device has
//! at once is found by trial, as the depth is for requests that read and write: a disk does one after the other, an array
//! or a parallel file system all that it is given.
//!
//! [`Cached`]: isonomia_store::Cached

use crate::clock;
use crate::connection::Stalled;
use crate::operation::is_slow;
use crate::pages::PagesOf;
use crate::read_ahead::Piece;
use crate::requests::Work;
use crate::write_back::Chunk;
use isonomia_policy::device::chunks::CHUNKS_MAX;
use isonomia_policy::{Completion, DepthControl, RequestId};
use isonomia_proto::request::Op;
use isonomia_units::{JobId, Nanos};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Flushes and the like that are served at once at most, besides requests that read and write.
pub const FLUSHES_MAX: usize = 128;
/// As many at first.
const FLUSHES_FIRST: usize = 16;
/// What a flush is worth to whoever looks for the best number of them: it is not known how much it brought to the device.
const FLUSH_WORK: Nanos = Nanos::from_micros(1);
/// Jobs of which is known when they had a flush served.
const REMEMBERED_JOBS_MAX: usize = 1_024;
/// Stands for the job of the scrub, which has none.
const NOBODY: JobId = JobId(u32::MAX);
/// A thread without work for this long ends.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// A worker may wait this long for a request: less than the cost of handing it to another thread, and of its coming back.
const WAIT_MAX: Nanos = Nanos::from_micros(60);
/// And this long where another worker looks after the connections meanwhile.
const SOON_MAX: Nanos = Nanos(3 * WAIT_MAX.0);
/// The time that the bytes themselves take, at this rate, is left out.
const BYTES_PER_NS: u64 = 1;
/// Weight of one request in the average, as its inverse: one that takes long by chance does not change a guess.
const WEIGHT: u64 = 8;

/// Something to be served by a thread that may wait.
#[derive(Debug)]
pub enum Task {
    /// A request whose turn has come.
    Serve(Box<Work>),
    /// A write whose client had stalled, and whose payload has come.
    Stalled(Box<Stalled>),
    /// A range of the scrub; the emulated device is done with it at this time.
    Scrub(Option<Nanos>),
    /// A range that was written is to be brought to the device. It has no dispatcher's name if it bypasses the arbiter.
    WriteBack(Box<Chunk>, Option<RequestId>),
    /// A range of a file is to be read ahead, for a job that uses the target alone.
    ReadAhead(PagesOf, Range<u64>),
    /// A piece of such a range whose turn has come, for a job that shares the target.
    Piece(Box<Piece>, RequestId),
}

impl Task {
    /// Whether it may take the device long by itself, must not keep reads and writes waiting, and counts among the flushes
    /// of which there is a best number. Write-back is none of these: a chunk has its place among those that read and write.
    fn is_flush(&self) -> bool {
        match self {
            Self::Serve(work) => Kind::of(work.pending.op) == Kind::Flush,
            Self::Stalled(_) | Self::ReadAhead(..) | Self::Piece(..) | Self::WriteBack(..) => false,
            Self::Scrub(_) => true,
        }
    }

    /// Whose it is.
    fn job(&self) -> Option<JobId> {
        match self {
            Self::Serve(work) => Some(work.pending.connection.job.id),
            Self::Stalled(stalled) => Some(stalled.pending.connection.job.id),
            Self::WriteBack(chunk, _) => Some(chunk.job),
            Self::Piece(piece, _) => Some(piece.job),
            Self::Scrub(_) | Self::ReadAhead(..) => None,
        }
    }
}

/// Requests that take about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes come.
    Read,
    /// Bytes go.
    Write,
    /// The metadata's, and locks.
    Other,
    /// The device is told to do something, or asked: always served by a thread that may wait.
    Flush,
}

impl Kind {
    /// The kind of an operation.
    pub fn of(op: Op) -> Self {
        match op {
            Op::Read => Self::Read,
            Op::Write | Op::ReserveAppend => Self::Write,
            op if is_slow(op) => Self::Flush,
            _ => Self::Other,
        }
    }
}

/// How long requests of one kind take.
#[derive(Debug, Default)]
pub struct Pace {
    /// Moving average of the time beyond that for the bytes, in nanoseconds; of longer times four times [`WAIT_MAX`] counts.
    average_ns: AtomicU64,
    is_slow: AtomicBool,
}

impl Pace {
    /// Whether a worker should not wait for such a request.
    pub fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Whether such a request is known to take no longer than handing it to another thread and back does, a few times over.
    fn is_soon(&self) -> bool {
        (1..=SOON_MAX.0).contains(&self.average_ns.load(Ordering::Relaxed))
    }

    /// A request that moved `bytes` took so long.
    pub fn note(&self, took: Nanos, bytes: u64) {
        let beyond = took.since(Nanos(bytes / BYTES_PER_NS)).min(Nanos(4 * WAIT_MAX.0)).0;
        let before = self.average_ns.load(Ordering::Relaxed);
        // Two threads may note at once; what one of them says is lost then.
        let average = before - before / WEIGHT + beyond / WEIGHT;
        if average != before {
            self.average_ns.store(average, Ordering::Relaxed);
        }
        // It takes more to change a guess than to keep it.
        let is_slow = self.is_slow();
        let limit = if is_slow { WAIT_MAX.0 / 2 } else { WAIT_MAX.0 };
        if (average > limit) != is_slow {
            self.is_slow.store(!is_slow, Ordering::Relaxed);
        }
    }
}

/// The threads of one target.
#[derive(Debug)]
pub struct Engine {
    state: Mutex<State>,
    is_wanted: Condvar,
    has_ended: Condvar,
    /// The files are in memory: nothing waits but flushes.
    is_memory: bool,
    /// The host does not tell what of a file is in memory.
    is_opaque: AtomicBool,
    paces: [Pace; 3],
    threads_max: usize,
}

#[derive(Debug)]
struct State {
    requests: VecDeque<Task>,
    flushes: VecDeque<Task>,
    threads: usize,
    idle: usize,
    /// Whose flushes are being served; the scrub's is nobody's.
    flushing: Vec<Option<JobId>>,
    flush_order: FlushOrder,
    /// How many there are to be at most.
    flush_depth: DepthControl,
    is_stopping: bool,
}

/// Whose flush is next: however many a job has waiting, the others' come in between.
#[derive(Debug, Default)]
struct FlushOrder {
    /// The number of the latest flush that was begun.
    count: u64,
    /// That of each job, of the latest [`REMEMBERED_JOBS_MAX`] jobs.
    latest: HashMap<Option<JobId>, u64>,
}

impl FlushOrder {
    /// Which of those that wait: one whose job has fewest in service, of these jobs the one that was served longest ago, and
    /// of its flushes the earliest.
    fn next(&self, waiting: impl Iterator<Item = Option<JobId>>, serving: &[Option<JobId>]) -> Option<usize> {
        let others = |job| serving.iter().filter(|one| **one == job).count();
        // Who was forgotten was served before all who are remembered.
        let latest = |job| self.latest.get(&job).copied().unwrap_or(0);
        waiting.enumerate().min_by_key(|(_, job)| (others(*job), latest(*job))).map(|(next, _)| next)
    }

    /// A flush of `job` is begun.
    fn begun(&mut self, job: Option<JobId>) {
        self.count += 1;
        self.latest.insert(job, self.count);
        if self.latest.len() > REMEMBERED_JOBS_MAX
            && let Some(oldest) = self.latest.iter().min_by_key(|(_, at)| **at).map(|(job, _)| *job)
        {
            self.latest.remove(&oldest);
        }
    }
}

impl State {
    fn new() -> Self {
        Self {
            requests: VecDeque::new(),
            flushes: VecDeque::new(),
            threads: 0,
            idle: 0,
            flushing: Vec::new(),
            flush_order: FlushOrder::default(),
            flush_depth: DepthControl::new(FLUSHES_FIRST, FLUSHES_MAX),
            is_stopping: false,
        }
    }

    fn put(&mut self, task: Task) {
        if task.is_flush() { self.flushes.push_back(task) } else { self.requests.push_back(task) }
    }

    /// Flushes that may be begun now.
    fn flushes_to_spare(&self) -> usize {
        self.flush_depth.limit().saturating_sub(self.flushing.len())
    }

    fn take(&mut self, now: Nanos) -> Option<Task> {
        if let Some(task) = self.requests.pop_front() {
            return Some(task);
        }
        if self.flushes_to_spare() == 0 {
            return None;
        }
        let next = self.flush_order.next(self.flushes.iter().map(Task::job), &self.flushing)?;
        let task = self.flushes.remove(next)?;
        let job = task.job();
        self.flush_order.begun(job);
        if self.flushing.is_empty() {
            self.flush_depth.begun(now, job.unwrap_or(NOBODY));
        }
        self.flushing.push(job);
        Some(task)
    }

    /// Tasks that a thread would find.
    fn waiting(&self) -> usize {
        self.requests.len() + self.flushes.len().min(self.flushes_to_spare())
    }
}

impl Engine {
    /// Of a target that may have `depth_max` requests in service.
    pub fn new(depth_max: usize, is_memory: bool) -> Self {
        Self {
            state: Mutex::new(State::new()),
            is_wanted: Condvar::new(),
            has_ended: Condvar::new(),
            is_memory,
            is_opaque: AtomicBool::new(false),
            paces: Default::default(),
            threads_max: depth_max + FLUSHES_MAX + CHUNKS_MAX,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long requests of this kind take; `None` where it does not matter.
    pub fn pace(&self, kind: Kind) -> Option<&Pace> {
        match kind {
            Kind::Read | Kind::Write if self.is_memory => None,
            Kind::Read => Some(&self.paces[0]),
            Kind::Write => Some(&self.paces[1]),
            Kind::Other => Some(&self.paces[2]),
            Kind::Flush => None,
        }
    }

    /// Whether the host may tell what is in memory.
    pub fn may_tell(&self) -> bool {
        !self.is_memory && !self.is_opaque.load(Ordering::Relaxed)
    }

    /// The host does not tell what is in memory.
    pub fn cannot_tell(&self) {
        self.is_opaque.store(true, Ordering::Relaxed);
    }

    /// Whether a worker leaves such a request to this.
    pub fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Flush || self.pace(kind).is_some_and(Pace::is_slow)
    }

    /// Whether such a request is done soon enough that one worker may wait for it itself.
    pub fn is_soon(&self, kind: Kind) -> bool {
        self.pace(kind).is_some_and(Pace::is_soon)
    }

    /// Has a thread serve `task`: one that there is, or one that `start` starts, and that does [`Self::run`]. Gives the task
    /// back where there is no thread and none can be started.
    pub fn submit(&self, start: impl FnOnce() -> io::Result<()>, task: Task) -> Result<(), Task> {
        let mut state = self.state();
        if state.idle <= state.waiting() && state.threads < self.threads_max && !state.is_stopping {
            match start() {
                Ok(()) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    tracing::error!(%error, "cannot start a thread that serves a target");
                    return Err(task);
                }
                // The threads that there are will serve it.
                Err(_) => {}
            }
        }
        if state.threads == 0 {
            return Err(task);
        }
        state.put(task);
        if state.idle > 0 {
            self.is_wanted.notify_one();
        }
        Ok(())
    }

    /// The next task; `None` if the thread is to end.
    fn take(&self) -> Option<Task> {
        let mut state = self.state();
        loop {
            if let Some(task) = state.take(clock::now()) {
                return Some(task);
            }
            if state.is_stopping {
                return self.end_thread(state);
            }
            state.idle += 1;
            let (locked, timeout) =
                self.is_wanted.wait_timeout(state, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
            state = locked;
            state.idle -= 1;
            if timeout.timed_out() && state.waiting() == 0 {
                return self.end_thread(state);
            }
        }
    }

    /// Counts a thread out, under the same lock under which it found nothing to do: so no task is left to a thread that ends.
    fn end_thread(&self, mut state: MutexGuard<'_, State>) -> Option<Task> {
        state.threads -= 1;
        self.has_ended.notify_all();
        None
    }

    /// Whether a thread would find a task.
    pub fn has_waiting(&self) -> bool {
        self.state().waiting() > 0
    }

    fn end_flush(&self, now: Nanos, job: Option<JobId>) {
        let mut state = self.state();
        let (in_service, is_backlogged) = (state.flushing.len(), !state.flushes.is_empty());
        let (job_or_nobody, work, attributed) = (job.unwrap_or(NOBODY), FLUSH_WORK, None);
        let done = Completion { job: job_or_nobody, work, attributed, in_service, is_backlogged };
        state.flush_depth.completed(now, done);
        if let Some(at) = state.flushing.iter().position(|one| *one == job) {
            state.flushing.swap_remove(at);
        }
        for _ in 0..state.flushes.len().min(state.flushes_to_spare()) {
            self.is_wanted.notify_one();
        }
    }

    /// What a thread does until it is to end: `serve` serves a task, with a buffer of the thread's own, and `go_on` what else
    /// the target has for a thread that may wait.
    pub fn run(&self, serve: impl Fn(Task, &mut Vec<u8>), go_on: impl Fn(&mut Vec<u8>)) {
        let mut scratch = Vec::new();
        let panicking = Panicking(self);
        while let Some(task) = self.take() {
            let flush = task.is_flush().then(|| task.job());
            serve(task, &mut scratch);
            if let Some(job) = flush {
                self.end_flush(clock::now(), job);
            }
            go_on(&mut scratch);
        }
        std::mem::forget(panicking);
    }

    /// Lets the threads end once nothing is left to serve, and waits for them.
    pub fn stop(&self) {
        let mut state = self.state();
        state.is_stopping = true;
        self.is_wanted.notify_all();
        while state.threads > 0 {
            state = self.has_ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Counts a thread out that panicked, so that nobody waits for its end.
struct Panicking<'a>(&'a Engine);

impl Drop for Panicking<'_> {
    fn drop(&mut self) {
        self.0.end_thread(self.0.state());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::{Bytes, Ino};

    #[test]
    fn a_single_slow_request_changes_no_guess() {
        let pace = Pace::default();
        for _ in 0..100 {
            pace.note(Nanos::from_micros(3), 4096);
        }
        pace.note(Nanos::from_millis(30), 4096);
        assert!(!pace.is_slow());
        for _ in 0..4 {
            pace.note(Nanos::from_millis(5), 4096);
        }
        assert!(pace.is_slow(), "five of them do");
        for _ in 0..100 {
            pace.note(Nanos::from_micros(3), 4096);
        }
        assert!(!pace.is_slow(), "and it changes back");
    }

    #[test]
    fn a_device_is_waited_for_by_a_worker_only_once_it_is_known_to_be_fast() {
        let pace = Pace::default();
        assert!(!pace.is_soon());
        for _ in 0..100 {
            pace.note(Nanos::from_micros(100), 4096);
        }
        assert!(pace.is_slow() && pace.is_soon());
        for _ in 0..100 {
            pace.note(Nanos::from_millis(1), 4096);
        }
        assert!(!pace.is_soon());
    }

    #[test]
    fn write_back_takes_no_place_of_a_flush() {
        let mut state = State::new();
        state.flush_depth = DepthControl::new(1, 1);
        let chunk = Chunk {
            of: PagesOf::File(Ino(1)),
            job: JobId(1),
            ranges: Vec::new(),
            bytes: Bytes(0),
            is_large: false,
            predicted: Nanos::ZERO,
            unpaid: Nanos::ZERO,
            is_counted: true,
            is_presumed_clean: false,
        };
        (0..CHUNKS_MAX).for_each(|_| state.put(Task::WriteBack(Box::new(chunk.clone()), None)));
        state.put(Task::Scrub(None));
        assert_eq!(state.waiting(), CHUNKS_MAX + 1);
        let taken: Vec<Task> = std::iter::from_fn(|| state.take(Nanos::ZERO)).collect();
        assert!(matches!(taken.last(), Some(Task::Scrub(_))), "{taken:?}");
        assert_eq!(taken.len(), CHUNKS_MAX + 1);
    }

    #[test]
    fn many_flushes_of_one_job_delay_those_of_others_by_one_each() {
        let (a, b, c) = (Some(JobId(1)), Some(JobId(2)), None);
        let mut waiting = vec![a, a, a, a, a, b, b, c];
        let mut order_of_jobs = FlushOrder::default();
        let mut order = Vec::new();
        // One at a time, so that none is in service when the next is looked for.
        while let Some(next) = order_of_jobs.next(waiting.iter().copied(), &[]) {
            let job = waiting.remove(next);
            order_of_jobs.begun(job);
            order.push(job);
        }
        assert_eq!(order, [a, b, c, a, b, a, a, a]);
        // Who comes again and again does not get ahead of who waits.
        assert_eq!(order_of_jobs.next([a, b].into_iter(), &[]), Some(1));
        order_of_jobs.begun(b);
        assert_eq!(order_of_jobs.next([b, a].into_iter(), &[]), Some(1));
        assert_eq!(order_of_jobs.next([b, a].into_iter(), &[a]), Some(0), "which has one in service already");
        (0..2 * REMEMBERED_JOBS_MAX as u32).for_each(|job| order_of_jobs.begun(Some(JobId(job))));
        assert_eq!(order_of_jobs.latest.len(), REMEMBERED_JOBS_MAX);
    }

    #[test]
    fn large_requests_may_take_their_time() {
        let pace = Pace::default();
        for _ in 0..100 {
            pace.note(Nanos::from_micros(250), 256 << 10);
        }
        assert!(!pace.is_slow());
        for _ in 0..100 {
            pace.note(Nanos::from_micros(500), 256 << 10);
        }
        assert!(pace.is_slow());
    }
}
