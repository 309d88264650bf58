//! Paced write-back: what was written is brought to the device all the time, and not much later at once.
//!
//! Left to itself the host keeps written pages for half a minute and up to a fifth of its memory; an `fsync` then has
//! minutes of work before it, and reads wait behind that. So each target counts what was written to each file. After
//! every [`WINDOW_BYTES`], or [`AGE_MAX`] after the first byte, the target's engine has the host write the range that was
//! written to, and waits for it; there are [`THREADS_MAX`] of these at once. Of a file of which very much was written
//! the pages are dropped then, so that one large stream does not take the memory of the host from everybody's reads.
//!
//! # What is guaranteed
//! What is acknowledged and not on the device is at most what the device wrote lately in [`AHEAD`], within
//! [`DIRTY_BYTES_MIN`] and a fraction of the memory, and beyond it one round of requests. Above that the *replies* of
//! writes are held until the device has caught up: their clients have no more than a few requests each, and the target
//! goes on with others'. They are held of jobs only that have more than their part of the bound. That is divided as the policy
//! divides the target, and pages are written in the order in which they came: so the device's time for written pages, of which
//! each job has as much as it has pages waiting, goes by the policy as well.
//!
//! # What it does not do
//! It is no `fsync`: what the file system needs to find the bytes after a power cut is not waited for. Bytes that are
//! overwritten before they get to the device count each time. What programs store to mapped memory is not counted.
//!
//! Where the policy divides the device's time, a write is charged for being served when its turn comes, which is no more than
//! copying it. The device takes its time later, when the pages are written back, and the jobs that wrote them then owe what
//! that time is worth. Where the policy counts bytes, the write was charged for them. An `fsync` pays for what it finds still
//! to be done.

use crate::charge::Charged;
use crate::prices::Prices;
use crate::target::Served;
use isonomia_units::{Bytes, Ino, JobId, Nanos};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of one file that are written back at a time.
const WINDOW_BYTES: u64 = 8 << 20;
/// For each [`WINDOW_BYTES`] no more of the device's time is owed: that it hung is not the fault of one job.
const TIME_MAX: Nanos = Nanos::from_secs(1);
/// What was written is written back after so long in any case.
const AGE_MAX: Nanos = Nanos::from_secs(2);
/// How far what is acknowledged may be ahead of the device, by the rate at which that writes.
const AHEAD: Nanos = Nanos::from_secs(2);
/// However slow the device is, so much may be in memory.
const DIRTY_BYTES_MIN: u64 = 64 << 20;
/// However fast it is, no more than this part of the memory.
const DIRTY_PART: u64 = 8;
/// A file of which more than this part of the memory was written loses its pages once they are on the device.
const LARGE_PART: u64 = 8;
/// Ranges of a target that are written back at once at most.
pub const THREADS_MAX: usize = 4;
/// Files that are counted at once at most. For one more, the job that has most of them loses its first one, whose pages the
/// host then writes at its own pace.
const FILES_MAX: usize = 1 << 16;
/// A file that was not written for this long is forgotten.
const FORGET_AFTER: Nanos = Nanos::from_secs(10);
/// Less than this says nothing about the rate of the device.
const TELLING_BYTES: u64 = 1 << 20;
/// The rate that a device is taken to have until it is measured, in bytes per second.
const RATE_FIRST: u64 = 64 << 20;
/// One measurement changes the rate by a part only.
const WEIGHT: u64 = 8;

/// A range to be written back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The file.
    pub ino: Ino,
    /// From the first byte that was written to behind the last one.
    pub range: Range<u64>,
    /// Bytes that were written in it.
    pub bytes: Bytes,
    /// The pages are to be dropped afterwards.
    pub is_large: bool,
    /// Who wrote how many of them.
    pub writers: Vec<(JobId, u64)>,
}

impl Window {
    /// What each of its writers owes if the device took so long: by bytes a part of what that time is worth, as for
    /// everything that is charged by time.
    pub fn owed(&self, prices: &Prices, took: Nanos) -> impl Iterator<Item = (JobId, Nanos)> {
        // One that was written to for long while the device was busy has more bytes, and may take as much longer.
        let max = TIME_MAX.0.saturating_mul((self.bytes.0 / WINDOW_BYTES).max(1));
        let owed = u128::from(prices.worth_of(took.min(Nanos(max))).0);
        let part = move |bytes: u64| Nanos((owed * u128::from(bytes) / u128::from(self.bytes.0.max(1))) as u64);
        self.writers.iter().map(move |(job, bytes)| (*job, part(*bytes)))
    }
}

/// A request that was served and charged.
#[derive(Debug)]
pub struct Paid {
    /// The request, and its reply.
    pub served: Served,
    /// What it was charged, without what was owed.
    pub charged: Charged,
}

/// Written pages of one target.
#[derive(Debug)]
pub struct WriteBack {
    state: Mutex<State>,
    memory_bytes: u64,
    /// Files of which more was written lose their pages once they are on the device.
    large_bytes: u64,
}

#[derive(Debug)]
struct State {
    files: HashMap<Ino, File>,
    /// The same by who was the first to write to them, in that order.
    firsts: HashMap<JobId, VecDeque<Ino>>,
    /// Files with a window that is to be written back, the earliest first.
    due: VecDeque<Ino>,
    /// Files that were written to and are not due, by when that began, the earliest first. An entry whose file has been due
    /// since says nothing; none stays for longer than [`AGE_MAX`] and the time between two looks.
    waiting: VecDeque<(Nanos, Ino)>,
    jobs: HashMap<JobId, Pages>,
    dirty_bytes: u64,
    held: VecDeque<Paid>,
    threads: usize,
    /// Moving averages of how many bytes a range has, and of how long the device takes for it, in nanoseconds.
    lately: (u64, u64),
    /// Ranges that are being written back.
    writing: usize,
    /// Since when the device has been writing what no measurement of its rate has counted.
    busy_since: Nanos,
    is_stopping: bool,
}

/// What was written to one file and is not being written back yet.
#[derive(Debug, Default)]
struct File {
    range: Range<u64>,
    bytes: u64,
    writers: Vec<(JobId, u64)>,
    since: Nanos,
    is_due: bool,
    written_at: Nanos,
    /// All that was ever written.
    total_bytes: u64,
}

/// A job's.
#[derive(Debug)]
struct Pages {
    dirty_bytes: u64,
    share: f64,
}

impl State {
    fn bound(&self, memory_bytes: u64) -> u64 {
        let (bytes, took_ns) = self.lately;
        let ahead = u128::from(bytes) * u128::from(AHEAD.0) / u128::from(took_ns.max(1));
        ahead.min(u128::from(memory_bytes / DIRTY_PART)).max(u128::from(DIRTY_BYTES_MIN)) as u64
    }

    /// Whether so much of `job` waits for the device that its replies are held.
    fn is_ahead(&self, job: JobId, memory_bytes: u64) -> bool {
        let bound = self.bound(memory_bytes);
        if self.is_stopping || self.dirty_bytes <= bound {
            return false;
        }
        let Some(pages) = self.jobs.get(&job) else { return false };
        let shares: f64 = self.jobs.values().map(|pages| pages.share).sum();
        pages.dirty_bytes as f64 * shares > bound as f64 * pages.share
    }

    /// Makes the file with the oldest bytes due, if these are from `latest` at the latest; false if there is none.
    fn make_oldest_due(&mut self, latest: Nanos) -> bool {
        while let Some((since, ino)) = self.waiting.front().copied() {
            if since > latest {
                return false;
            }
            self.waiting.pop_front();
            if self.files.get(&ino).is_some_and(|file| file.bytes > 0 && !file.is_due && file.since == since) {
                self.make_due(ino);
                return true;
            }
        }
        false
    }

    fn make_due(&mut self, ino: Ino) {
        if let Some(file) = self.files.get_mut(&ino)
            && !std::mem::replace(&mut file.is_due, true)
        {
            self.due.push_back(ino);
        }
    }

    /// Whether a thread more is wanted, which is counted then.
    fn wants_thread(&mut self) -> bool {
        // Those that are not writing are about to look for something.
        let is_wanted = self.threads < (self.writing + self.due.len()).min(THREADS_MAX);
        self.threads += usize::from(is_wanted);
        is_wanted
    }

    /// What these wrote is on the device, or it is not known that it is not.
    fn written(&mut self, writers: &[(JobId, u64)]) {
        for (job, bytes) in writers {
            self.dirty_bytes -= bytes;
            if let Some(pages) = self.jobs.get_mut(job) {
                pages.dirty_bytes -= bytes;
                if pages.dirty_bytes == 0 {
                    self.jobs.remove(job);
                }
            }
        }
    }

    /// Makes room for a file.
    fn forget_one(&mut self) {
        let most = self.firsts.values_mut().max_by_key(|files| files.len());
        if let Some(file) = most.and_then(VecDeque::pop_front).and_then(|ino| self.files.remove(&ino)) {
            self.written(&file.writers);
        }
    }

    fn release(&mut self, memory_bytes: u64) -> Vec<Paid> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let held = std::mem::take(&mut self.held);
        let (held, released): (Vec<Paid>, Vec<Paid>) =
            held.into_iter().partition(|paid| self.is_ahead(paid.served.pending.connection.job.id, memory_bytes));
        self.held = held.into();
        released
    }
}

impl WriteBack {
    /// Of a target on a host with so much memory for the server; whether it keeps pages of files that are not large.
    pub fn new(memory_bytes: u64, keeps_pages: bool) -> Self {
        let state = State {
            files: HashMap::new(),
            firsts: HashMap::new(),
            due: VecDeque::new(),
            waiting: VecDeque::new(),
            jobs: HashMap::new(),
            dirty_bytes: 0,
            held: VecDeque::new(),
            threads: 0,
            lately: (WINDOW_BYTES, WINDOW_BYTES * 1_000_000_000 / RATE_FIRST),
            writing: 0,
            busy_since: Nanos::ZERO,
            is_stopping: false,
        };
        let large_bytes = if keeps_pages { memory_bytes / LARGE_PART } else { 0 };
        Self { state: Mutex::new(state), memory_bytes, large_bytes }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `job` wrote a range of a file. Whether a thread is to be found for [`Self::next`], and whether the reply is to be
    /// held.
    pub fn wrote(&self, now: Nanos, job: JobId, ino: Ino, range: Range<u64>) -> (bool, bool) {
        let bytes = range.end.saturating_sub(range.start);
        let mut state = self.state();
        if bytes == 0 {
            return (false, false);
        }
        if !state.files.contains_key(&ino) {
            if state.files.len() >= FILES_MAX {
                state.forget_one();
            }
            state.firsts.entry(job).or_default().push_back(ino);
        }
        let file = state.files.entry(ino).or_default();
        let is_first = file.bytes == 0;
        if is_first {
            (file.range, file.since) = (range, now);
        } else {
            file.range = file.range.start.min(range.start)..file.range.end.max(range.end);
        }
        file.bytes += bytes;
        file.total_bytes = file.total_bytes.saturating_add(bytes);
        file.written_at = now;
        match file.writers.iter_mut().find(|(writer, _)| *writer == job) {
            Some((_, own)) => *own += bytes,
            None => file.writers.push((job, bytes)),
        }
        let is_full = file.bytes >= WINDOW_BYTES;
        if is_first {
            state.waiting.push_back((now, ino));
        }
        state.jobs.entry(job).or_insert(Pages { dirty_bytes: 0, share: 1.0 }).dirty_bytes += bytes;
        state.dirty_bytes += bytes;
        if is_full {
            state.make_due(ino);
        }
        let is_ahead = state.is_ahead(job, self.memory_bytes);
        if is_ahead && state.due.is_empty() && state.threads == 0 {
            state.make_oldest_due(now);
        }
        (state.wants_thread(), is_ahead)
    }

    /// Keeps the reply of a write until the device has caught up; gives it back if it has.
    pub fn hold(&self, paid: Paid) -> Option<Paid> {
        let mut state = self.state();
        if !state.is_ahead(paid.served.pending.connection.job.id, self.memory_bytes) {
            return Some(paid);
        }
        state.held.push_back(paid);
        None
    }

    /// The next range to be written back, for a thread that then calls [`Self::finished`]; `None` if the thread is to do
    /// something else.
    pub fn next(&self, now: Nanos) -> Option<Window> {
        let mut state = self.state();
        if state.due.is_empty() && state.dirty_bytes > state.bound(self.memory_bytes) / 2 {
            state.make_oldest_due(Nanos::MAX);
        }
        while let Some(ino) = state.due.pop_front() {
            let Some(file) = state.files.get_mut(&ino) else { continue };
            file.is_due = false;
            let bytes = std::mem::take(&mut file.bytes);
            if bytes == 0 {
                continue;
            }
            let is_large = file.total_bytes > self.large_bytes;
            let writers = std::mem::take(&mut file.writers);
            let window = Window { ino, range: file.range.clone(), bytes: Bytes(bytes), is_large, writers };
            if state.writing == 0 {
                state.busy_since = now;
            }
            state.writing += 1;
            return Some(window);
        }
        state.threads -= 1;
        None
    }

    /// There is no thread to be had: [`Self::look`] asks for one again.
    pub fn has_no_thread(&self) {
        self.state().threads -= 1;
    }

    /// A range was written back. The replies that need not be held any more, and how long the device had this to write and
    /// nothing before it.
    pub fn finished(&self, now: Nanos, window: &Window) -> (Vec<Paid>, Nanos) {
        let mut state = self.state();
        state.writing -= 1;
        let took = now.since(state.busy_since);
        state.busy_since = now;
        if window.bytes.0 >= TELLING_BYTES {
            // Not the mean of rates: of ranges that were written together only the first to end seems to take any time.
            let mean = |before: u64, now: u64| before - before / WEIGHT + now / WEIGHT;
            state.lately = (mean(state.lately.0, window.bytes.0), mean(state.lately.1, took.0));
        }
        state.written(&window.writers);
        (state.release(self.memory_bytes), took)
    }

    /// A file was put on stable storage, with what [`Self::take`] gave. The replies that need not be held any more.
    pub fn synced(&self, window: &Window) -> Vec<Paid> {
        let mut state = self.state();
        state.written(&window.writers);
        state.release(self.memory_bytes)
    }

    /// A file is about to be put on stable storage: what is waiting of it is no more to be written back, and counts until
    /// [`Self::synced`].
    pub fn take(&self, ino: Ino) -> Option<Window> {
        let mut state = self.state();
        let file = state.files.get_mut(&ino)?;
        let bytes = std::mem::take(&mut file.bytes);
        let (range, writers) = (file.range.clone(), std::mem::take(&mut file.writers));
        (bytes > 0).then_some(Window { ino, range, bytes: Bytes(bytes), is_large: false, writers })
    }

    /// Makes due what is old, and forgets files that are not written any more; `shares` are those of the policy. Tells how many
    /// threads are to be found for [`Self::next`], and which replies need not be held any more.
    pub fn look(&self, now: Nanos, shares: &[(JobId, f64)]) -> (usize, Vec<Paid>) {
        // Every write takes the lock: what can be done without it is.
        let shares: HashMap<JobId, f64> = shares.iter().copied().collect();
        let mut state = self.state();
        for (job, pages) in &mut state.jobs {
            let share = shares.get(job).copied();
            // A job all of whose replies are held asks for nothing, and has no share at the moment.
            pages.share = share.filter(|share| *share > 0.0).unwrap_or(pages.share);
        }
        let State { files, firsts, due, .. } = &mut *state;
        files.retain(|_, file| file.bytes > 0 || now.since(file.written_at) < FORGET_AFTER);
        due.retain(|ino| files.contains_key(ino));
        firsts.values_mut().for_each(|of_job| of_job.retain(|ino| files.contains_key(ino)));
        firsts.retain(|_, of_job| !of_job.is_empty());
        if now >= AGE_MAX {
            while state.make_oldest_due(now - AGE_MAX) {}
        }
        let threads = std::iter::from_fn(|| state.wants_thread().then_some(())).take(THREADS_MAX).count();
        (threads, state.release(self.memory_bytes))
    }

    /// Holds nothing any more. The replies that were held.
    pub fn stop(&self) -> Vec<Paid> {
        let mut state = self.state();
        state.is_stopping = true;
        state.held.drain(..).collect()
    }

    /// Bytes that were acknowledged and are not known to be on the device, and how many there may be about.
    pub fn dirty(&self) -> (Bytes, Bytes) {
        let state = self.state();
        (Bytes(state.dirty_bytes), Bytes(state.bound(self.memory_bytes)))
    }
}

#[cfg(test)]
mod tests;
