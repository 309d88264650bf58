//! What may wait for a device is served here, so that workers need not: a bounded pool of threads for each target.
//!
//! A worker serves what is in memory itself: waking another thread takes longer than that. For reads most file systems tell
//! whether the bytes are in memory ([`Cached`]). For everything else the worker guesses, by how long such requests took
//! lately ([`Pace`]); a wrong guess costs a worker the time of one request. What takes the device long in any case, such as an
//! `fsync`, comes here at once, unless it is the only one and they take hardly longer than handing it over does. Short reads
//! come here where the kernel does not bring their pages to memory by itself ([`crate::fetch`]).
//!
//! A thread that has served a request asks its target for the next one, so no thread is woken while there is work. Threads
//! are started when they are needed and end when they are not; there are never more than the target may have requests in
//! service, [`FLUSHES_MAX`], and [`CHUNKS_MAX`] for what is written back past the depth. How many flushes a device has
//! at once is found by trial, as the depth is for requests that read and write: a disk does one after the other, an array
//! or a parallel file system all that it is given.
//!
//! [`Cached`]: isonomia_store::Cached

mod pace;

use crate::clock;
use crate::connection::Stalled;
use crate::pages::PagesOf;
use crate::read_ahead::Piece;
use crate::requests::Work;
use crate::write_back::Chunk;
use isonomia_policy::device::chunks::CHUNKS_MAX;
use isonomia_policy::{Completion, DepthControl, RequestId};
use isonomia_units::{Bytes, JobId, Nanos};
pub use pace::{Kind, Pace};
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
/// Flushes that bring so much each to the device, on average, may be too many at once even if one job has all of them. Of those that
/// bring less the kernel does many together, and none should wait.
const CROWDING_MIN: u64 = 128 << 10;
/// Once the average is below this they no longer count as too many. It is far lower, so that a mix of large and small flushes does not
/// switch back and forth.
const CROWDING_STILL: u64 = CROWDING_MIN / 4;
/// Weight of one flush in averages, as its inverse.
const FLUSH_WEIGHT: u64 = 32;
/// What one flush counts as in them at most, whatever it brings, …
const FLUSH_BYTES_MAX: u64 = 4 * CROWDING_MIN;
/// … and however long it takes: a device that has hung once is not slow for hundreds of flushes.
const FLUSH_TIME_MAX: Nanos = Nanos::from_millis(20);
/// Jobs of which is known when they had a flush served.
const REMEMBERED_JOBS_MAX: usize = 1_024;
/// Stands for the job of the scrub, which has none.
const NOBODY: JobId = JobId(u32::MAX);
/// A thread without work for this long ends.
const IDLE_MAX: Duration = Duration::from_secs(5);
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
    /// What waits in [`crate::first_writes`].
    FirstWrites,
}

impl Task {
    /// Whether it may take the device long by itself, must not keep reads and writes waiting, and counts among the flushes
    /// of which there is a best number. Write-back is none of these: a chunk has its place among those that read and write.
    fn is_flush(&self) -> bool {
        match self {
            Self::Serve(work) => Kind::of(work.pending.op) == Kind::Flush,
            Self::Stalled(_) | Self::ReadAhead(..) | Self::Piece(..) | Self::WriteBack(..) | Self::FirstWrites => false,
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
            Self::Scrub(_) | Self::ReadAhead(..) | Self::FirstWrites => None,
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
    paces: [Pace; 4],
    /// Moving average of the bytes that a flush brings to the device.
    flush_bytes: AtomicU64,
    /// And of how long one takes, in nanoseconds.
    flush_ns: AtomicU64,
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
        self.begin_flush(now, task.job());
        Some(task)
    }

    fn begin_flush(&mut self, now: Nanos, job: Option<JobId>) {
        self.flush_order.begun(job);
        if self.flushing.is_empty() {
            self.flush_depth.begun(now, job.unwrap_or(NOBODY));
        }
        self.flushing.push(job);
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
            flush_bytes: AtomicU64::new(0),
            flush_ns: AtomicU64::new(0),
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
            Kind::Flush => Some(&self.paces[3]),
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
        // One is there for a flush that waits for its turn, which may come while all others are busy.
        let wanted = state.waiting().max(usize::from(!state.flushes.is_empty()));
        if state.idle <= wanted && state.threads < self.threads_max && !state.is_stopping {
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
        let is_one_idle = state.idle > 0;
        // The thread that is woken needs the lock at once.
        drop(state);
        if is_one_idle {
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
            // A flush that waits for others waits for a thread as well.
            if timeout.timed_out() && state.requests.is_empty() && state.flushes.is_empty() {
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

    /// How long a flush takes on average.
    pub fn flush_time(&self) -> Nanos {
        Nanos(self.flush_ns.load(Ordering::Relaxed))
    }

    /// Flushes that are served or wait.
    pub fn flushes(&self) -> usize {
        let state = self.state();
        state.flushing.len() + state.flushes.len()
    }

    /// Counts a flush of `job` in that a worker serves by itself, if there is no other; [`Self::end_flush`] follows.
    pub fn begin_only_flush(&self, now: Nanos, job: JobId) -> bool {
        let mut state = self.state();
        let is_only = state.flushes.is_empty() && state.flushing.is_empty();
        if is_only {
            state.begin_flush(now, Some(job));
        }
        is_only
    }

    /// A flush has brought so much to the device, and took so long.
    pub fn flushed(&self, bytes: Bytes, took: Nanos) {
        let follow = |average: &AtomicU64, value: u64| {
            let before = average.load(Ordering::Relaxed);
            // Of two flushes that end at the same moment one may be lost; an average can bear that.
            average.store(before - before / FLUSH_WEIGHT + value / FLUSH_WEIGHT, Ordering::Relaxed);
        };
        follow(&self.flush_bytes, bytes.0.min(FLUSH_BYTES_MAX));
        follow(&self.flush_ns, took.min(FLUSH_TIME_MAX).0);
    }

    /// Whether several flushes at once may be too many, even if all are of one job; `so_far` is the answer last time.
    pub fn may_flushes_crowd(&self, so_far: bool) -> bool {
        self.flush_bytes.load(Ordering::Relaxed) >= if so_far { CROWDING_STILL } else { CROWDING_MIN }
    }

    /// A flush of `job` has been served, by a thread that is about to take `taking` tasks.
    pub fn end_flush(&self, now: Nanos, job: Option<JobId>, taking: usize) {
        let mut state = self.state();
        let (in_service, is_backlogged) = (state.flushing.len(), !state.flushes.is_empty());
        let (job_or_nobody, work, attributed) = (job.unwrap_or(NOBODY), FLUSH_WORK, None);
        let done = Completion { job: job_or_nobody, work, attributed, in_service, is_backlogged };
        let may_be_crowded = self.may_flushes_crowd(state.flush_depth.may_be_crowded());
        state.flush_depth.set_may_be_crowded(may_be_crowded);
        state.flush_depth.completed(now, done);
        if let Some(at) = state.flushing.iter().position(|one| *one == job) {
            state.flushing.swap_remove(at);
        }
        let waiting = state.flushes.len().min(state.flushes_to_spare());
        let idle = state.idle;
        drop(state);
        for _ in 0..idle.min(waiting.saturating_sub(taking)) {
            self.is_wanted.notify_one();
        }
    }

    /// What a thread does until it is to end: `serve` serves a task, with a buffer of the thread's own, and `go_on` what else
    /// the target has for a thread that may wait. What counts among the flushes it returns, to be queued with the others.
    pub fn run(&self, serve: impl Fn(Task, &mut Vec<u8>), go_on: impl Fn(&mut Vec<u8>) -> Option<Task>) {
        let mut scratch = Vec::new();
        let panicking = Panicking(self);
        while let Some(task) = self.take() {
            let flush = task.is_flush().then(|| task.job());
            serve(task, &mut scratch);
            if let Some(job) = flush {
                self.end_flush(clock::now(), job, 1);
            }
            if let Some(task) = go_on(&mut scratch) {
                // Nobody is woken for it, as this thread takes one now.
                self.state().put(task);
            }
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
    use isonomia_units::Ino;
    use std::sync::mpsc;

    fn chunk() -> Chunk {
        Chunk {
            of: PagesOf::File(Ino(1)),
            job: JobId(1),
            ranges: Vec::new(),
            bytes: Bytes(0),
            is_large: false,
            predicted: Nanos::ZERO,
            unpaid: Nanos::ZERO,
            is_counted: true,
            is_only_writer: true,
            is_begun: false,
            is_presumed_clean: false,
        }
    }

    #[test]
    fn a_worker_serves_a_flush_only_where_no_other_is_served_or_waits() {
        let now = Nanos::ZERO;
        let engine = Engine::new(4, false);
        assert!(engine.begin_only_flush(now, JobId(1)));
        assert!(!engine.begin_only_flush(now, JobId(2)), "one is being served");
        engine.state().put(Task::Scrub(None));
        engine.end_flush(now, Some(JobId(1)), 0);
        assert!(!engine.begin_only_flush(now, JobId(1)), "one waits");
        assert!(engine.state().take(now).is_some());
        engine.end_flush(now, None, 1);
        assert!(engine.begin_only_flush(now, JobId(2)));
    }

    #[test]
    fn a_flush_that_waits_for_a_workers_is_begun_once_that_has_ended() {
        let (now, engine) = (Nanos::ZERO, Engine::new(4, false));
        engine.state().flush_depth = DepthControl::new(1, 1);
        assert!(engine.begin_only_flush(now, JobId(1)));
        let (flushed, has_flushed) = mpsc::channel();
        let (finish, is_to_finish) = mpsc::channel();
        let is_to_finish = Mutex::new(is_to_finish);
        let serve = |task: Task, _: &mut Vec<u8>| match task {
            Task::Scrub(_) => flushed.send(()).unwrap(),
            // Other requests keep their threads.
            _ => is_to_finish.lock().unwrap().recv().unwrap(),
        };
        std::thread::scope(|scope| {
            let start = || {
                scope.spawn(|| engine.run(serve, |_| None));
                Ok(())
            };
            engine.submit(start, Task::Scrub(None)).unwrap();
            while engine.state().idle == 0 {
                std::thread::yield_now();
            }
            assert_eq!(engine.state().flushes.len(), 1, "there is to be one at a time");
            engine.submit(start, Task::WriteBack(Box::new(chunk()), None)).unwrap();
            while !engine.state().requests.is_empty() {
                std::thread::yield_now();
            }
            engine.end_flush(now, Some(JobId(1)), 0);
            // Before a thread that nobody wakes would look by itself.
            let is_begun = has_flushed.recv_timeout(IDLE_MAX / 2);
            finish.send(()).unwrap();
            engine.stop();
            assert!(is_begun.is_ok(), "though the thread that waited for it is busy");
        });
    }

    #[test]
    fn a_flush_that_hung_is_forgotten_sooner_than_a_device_that_is_slow() {
        let engine = Engine::new(4, false);
        let after = |flushes: u32, took: Nanos| {
            (0..flushes).for_each(|_| engine.flushed(Bytes(0), took));
            engine.flush_time()
        };
        let fast = after(200, Nanos::from_micros(400));
        assert!(fast > Nanos::from_micros(390), "{fast:?}");
        assert!(after(1, Nanos::from_secs(30)) < Nanos::from_millis(2));
        assert!(after(100, Nanos::from_millis(5)) > Nanos::from_millis(4));
    }

    #[test]
    fn flushes_of_much_may_crowd_and_those_of_little_not() {
        let engine = Engine::new(4, false);
        let mut may = false;
        let mut after = |flushes: u32, bytes: u64| {
            (0..flushes).for_each(|_| engine.flushed(Bytes(bytes), Nanos::ZERO));
            may = engine.may_flushes_crowd(may);
            may
        };
        assert!(!after(1000, 64 << 10));
        assert!(after(100, 256 << 10));
        assert!(after(1000, 64 << 10), "what they bring changes from one to the next");
        assert!(!after(200, 4096));
        assert!(!after(1, 1 << 30), "one says little of the others");
    }

    #[test]
    fn write_back_takes_no_place_of_a_flush() {
        let mut state = State::new();
        state.flush_depth = DepthControl::new(1, 1);
        (0..CHUNKS_MAX).for_each(|_| state.put(Task::WriteBack(Box::new(chunk()), None)));
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
}
