//! Paced write-back: what was written is brought to the device continuously, instead of much later and all at once; and each
//! range of it when the turn of the job that wrote it comes.
//!
//! Left to itself the host keeps written pages for half a minute and up to a fifth of its memory; an `fsync` then has
//! minutes of work before it, and reads wait behind that. So each target knows which pages of each file each job has written.
//! They are *due* after every [`WINDOW_BYTES`], unless they lie so scattered that they are better waited for, or [`AGE_MAX`] after
//! the first byte, or when somebody wants the file on stable storage. What is due is cut into *chunks*, and a chunk is a request of the job that wrote it: it waits in the target's
//! arbiter like any other, counts in its depth, and is charged for the time that the device had it. A thread of the
//! target's engine then has the host write the range, and waits for it. Of a file of which very much was written
//! the pages are dropped then, so that one large stream does not take the memory of the host from everybody's reads.
//!
//! # Whose a page is
//! Each job's pages of a file are kept apart, so a chunk has one owner and nobody pays for another's. Where two jobs wrote the
//! same page, each has it, and the second to have it written finds nothing left to do and pays for that little.
//!
//! # How long a chunk takes
//! As long as [`Manner`] says; how many bytes that is, is learnt from the last chunks ([`CostLearner`]). While somebody reads from
//! the device chunks are short, so that the next request waits for no more than the few that are in service: a job has
//! one at once, and more only while it is behind its share of the device's time. Where one job alone uses the target, its
//! chunks are large and take no slot of the depth, so that its writes to memory do not wait for the device.
//!
//! # What is charged
//! Where the policy divides the device's time, a write to memory is charged for what of it overwrites pages that
//! wait already, and the chunk for all that is new. Where the chunk turns out to have nothing to write (the file was cut, the
//! host wrote it before) it is charged what was left out. So bytes are charged once. Where the policy counts bytes,
//! the write was charged for them; its chunks wait for the job's turn, and cost nothing.
//!
//! # What is guaranteed
//! What is acknowledged and not on the device is at most what the device wrote lately in [`AHEAD`] ([`DIRTY_BYTES_FIRST`] until it
//! has written anything), within [`DIRTY_BYTES_MIN`] and a fraction of the memory, and beyond it one round of requests. Above that the *replies* of
//! writes are delayed until the device has caught up: their clients have no more than a few requests each, and the target
//! goes on with others'. They are delayed of jobs only that have more than their part of the bound. That is divided as the policy
//! divides the target.
//!
//! Where the host had nothing to write of a job's last [`VAIN_MAX`] chunks, as file systems on a network write what they are given at
//! once, it is asked for one of eight only, and the others count as written. Should the host keep pages of that job after all, seven such
//! chunks wait for it to write them by itself, or for an `fsync`, until the eighth shows it.
//!
//! A file that is synced after a few writes each time is begun to be written before it is: see `docs/decisions/0040`.
//!
//! An `fsync` that finds more than the device writes in the time of one chunk waits until what was written to its file before
//! has gone in chunks, without keeping a thread; what it finds then is what came meanwhile. A chunk whose job is not known
//! any more goes to the device past the arbiter.
//!
//! # What it does not do
//! It is no `fsync`: what the file system needs to find the bytes after a power cut is not waited for. What programs store
//! to mapped memory is not counted.

mod chunk;
mod outcome;
mod ranges;
mod writer;

use crate::advice::TimedAdvice;
use crate::pages::PagesOf;
use crate::requests::Work;
pub use chunk::{Chunk, Manner};
use isonomia_policy::device::chunks::{self, CHUNKS_MAX};
use isonomia_policy::{CostLearner, CostModel};
use isonomia_units::{Bytes, JobId, Nanos, Rate};
pub use outcome::{Paid, Released, Wrote};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use writer::{Pages, Writer};

/// Bytes of one file that are waited for until they are written back, and the most in one chunk.
const WINDOW_BYTES: u64 = chunks::BYTES_MAX;
/// While the ranges have fewer bytes than this on average they are not written back yet: what is written next is likely to join
/// them.
const SCATTERED_BYTES: u64 = 64 << 10;
/// Ranges in one chunk at most.
const CHUNK_RANGES_MAX: u64 = 64;
/// However scattered it is, what was written is written back after this time.
const AGE_MAX: Nanos = Nanos::from_secs(2);
/// How far what is acknowledged may be ahead of the device, by the rate at which that writes.
const AHEAD: Nanos = Nanos::from_secs(2);
/// However slow the device is, so much may be in memory.
const DIRTY_BYTES_MIN: u64 = 64 << 20;
/// And so much until it is measured: a burst is no reason to wait for a device that may be fast.
const DIRTY_BYTES_FIRST: u64 = 512 << 20;
/// However fast it is, no more than this part of the memory.
const DIRTY_PART: u64 = 8;
/// A file of which more than this part of the memory was written loses its pages once they are on the device.
const LARGE_PART: u64 = 8;
/// Pages of a job in a file count as one; so many are known at once. For one more, the job that has most of them loses its first
/// one, whose pages the host then writes at its own pace.
const FILES_MAX: usize = 1 << 16;
/// A file that was not written for this long is forgotten.
const FORGET_AFTER: Nanos = Nanos::from_secs(10);
/// Less than this says nothing about the rate of the device.
const TELLING_BYTES: u64 = 1 << 20;
/// The rate at which chunks are taken to be written until that is measured, in bytes per second.
const RATE_FIRST: u64 = 64 << 20;
/// After so many chunks for which there was nothing to write, the file system is taken to keep nothing that could be: it writes
/// as it is told, as one on a network may.
const VAIN_MAX: u32 = 16;
/// One measurement changes the rate by a part only.
const WEIGHT: u64 = 8;

/// Written pages of one target.
#[derive(Debug)]
pub struct WriteBack {
    state: Mutex<State>,
    memory_bytes: u64,
    /// Files of which more was written lose their pages once they are on the device.
    large_bytes: u64,
    /// What it takes the host to begin to write.
    pub begins: TimedAdvice,
}

#[derive(Debug)]
struct State {
    files: BTreeMap<(PagesOf, JobId), Pages>,
    writers: BTreeMap<JobId, Writer>,
    dirty_bytes: u64,
    delayed: VecDeque<Paid>,
    syncs: Vec<Sync>,
    /// How long one range takes, waiting for others at the device included.
    times: CostLearner,
    /// What of the device's time it is given.
    costs: CostLearner,
    /// Moving averages of how many bytes were written back, and of how long the device took for them, in nanoseconds.
    lately: (u64, u64),
    /// The same of what is not in them yet.
    measured: (u64, u64),
    /// Chunks that are being written.
    writing: usize,
    /// Chunks in a row for which there was nothing to write.
    vain: u32,
    /// Since when the device has been writing what no measurement of its rate has counted.
    busy_since: Nanos,
    is_stopping: bool,
}

/// A request for stable storage.
#[derive(Debug)]
struct Sync {
    of: PagesOf,
    /// Bytes of the file's pages that are written first.
    left_bytes: u64,
    work: Box<Work>,
}

impl State {
    fn bound(&self, memory_bytes: u64) -> u64 {
        let (bytes, took_ns) = self.lately;
        let ahead = u128::from(bytes) * u128::from(AHEAD.0) / u128::from(took_ns.max(1));
        ahead.min(u128::from(memory_bytes / DIRTY_PART)).max(u128::from(DIRTY_BYTES_MIN)) as u64
    }

    /// Whether so much of `job` waits for the device that its replies are delayed.
    fn is_ahead(&self, job: JobId, memory_bytes: u64) -> bool {
        let bound = self.bound(memory_bytes);
        if self.is_stopping || self.dirty_bytes <= bound {
            return false;
        }
        let Some(writer) = self.writers.get(&job) else { return false };
        let writing = self.writers.values().filter(|writer| writer.dirty_bytes > 0);
        let shares: f64 = writing.map(|writer| writer.share).sum();
        writer.dirty_bytes as f64 * shares > bound as f64 * writer.share
    }

    /// Makes due what `job` has of a file; `is_urgent` if somebody waits for it.
    fn make_due(&mut self, of: PagesOf, job: JobId, is_urgent: bool) {
        let (Some(pages), Some(writer)) = (self.files.get_mut(&(of, job)), self.writers.get_mut(&job)) else { return };
        let was_due = pages.due_bytes > 0;
        if was_due && !is_urgent {
            return;
        }
        pages.due_bytes = pages.dirty.bytes();
        if pages.due_bytes == 0 || was_due && writer.urgent.contains(&of) {
            return;
        }
        if is_urgent {
            writer.due.retain(|one| *one != of);
            writer.urgent.push_back(of);
        } else {
            writer.due.push_back(of);
        }
    }

    /// Makes the file with the oldest pages of `job` due, if these are from `latest` at the latest; false if there is none.
    fn make_oldest_due(&mut self, job: JobId, latest: Nanos) -> bool {
        while let Some((since, of)) = self.writers.get(&job).and_then(|writer| writer.waiting.front().copied()) {
            if since > latest {
                return false;
            }
            self.writers.get_mut(&job).map(|writer| writer.waiting.pop_front());
            let is_waiting = |pages: &Pages| pages.dirty.bytes() > 0 && pages.due_bytes == 0 && pages.since == since;
            if self.files.get(&(of, job)).is_some_and(is_waiting) {
                self.make_due(of, job, false);
                return true;
            }
        }
        false
    }

    /// So much of `job` is on the device, or it is not known that it is not.
    fn written(&mut self, of: PagesOf, job: JobId, bytes: u64) {
        self.dirty_bytes -= bytes;
        if let Some(writer) = self.writers.get_mut(&job) {
            writer.dirty_bytes -= bytes;
        }
        for sync in self.syncs.iter_mut().filter(|sync| sync.of == of) {
            sync.left_bytes = sync.left_bytes.saturating_sub(bytes);
        }
    }

    /// Makes room for a file.
    fn forget_one(&mut self) {
        let Some((&job, writer)) = self.writers.iter_mut().max_by_key(|(_, writer)| writer.files.len()) else { return };
        let Some(of) = writer.files.pop_front() else { return };
        let Some(pages) = self.files.remove(&(of, job)) else { return };
        // What is in chunks counts until they are written.
        self.written(of, job, pages.dirty.bytes());
    }

    fn release(&mut self, memory_bytes: u64) -> Released {
        let mut released = Released::default();
        if !self.delayed.is_empty() {
            let delayed = std::mem::take(&mut self.delayed);
            let is_ahead = |paid: &Paid| self.is_ahead(paid.served.pending.connection.job.id, memory_bytes);
            let (delayed, paid): (Vec<Paid>, Vec<Paid>) = delayed.into_iter().partition(is_ahead);
            (self.delayed, released.paid) = (delayed.into(), paid);
        }
        let syncs = self.syncs.extract_if(.., |sync| sync.left_bytes == 0);
        released.syncs = syncs.map(|sync| *sync.work).collect();
        released
    }

    /// The first chunk of what is due of `job`.
    fn cut(&mut self, job: JobId, manner: Manner, large_bytes: u64) -> Option<Chunk> {
        let (times, costs) = (self.times.model(), self.costs.model());
        let is_vain = self.vain >= VAIN_MAX;
        let fits = |ranges: u64, bytes: u64| {
            let is_short = is_vain || predict(&times, ranges, bytes) <= manner.time_max;
            ranges <= CHUNK_RANGES_MAX && bytes <= WINDOW_BYTES && is_short
        };
        let writer = self.writers.get_mut(&job)?;
        loop {
            let queue = if writer.urgent.is_empty() { &mut writer.due } else { &mut writer.urgent };
            let of = queue.front().copied()?;
            let waits = |pages: &Pages| pages.dirty.bytes() + pages.cut_bytes > 0;
            let is_only_writer = !pages_of(&self.files, of).any(|(writer, pages)| writer != job && waits(pages));
            let Some(pages) = self.files.get_mut(&(of, job)).filter(|pages| pages.due_bytes > 0) else {
                queue.pop_front();
                continue;
            };
            let before = pages.dirty.bytes();
            let ranges = pages.dirty.take(pages.next, chunks::BYTES_MIN, fits);
            let bytes = before - pages.dirty.bytes();
            pages.next = ranges.last().map_or(0, |range| range.end);
            let is_begun = pages.is_begun;
            pages.is_begun &= pages.dirty.bytes() > 0;
            pages.due_bytes = pages.due_bytes.saturating_sub(bytes).min(pages.dirty.bytes());
            pages.cut_bytes += bytes;
            let unpaid_ns = (u128::from(pages.unpaid_ns) * u128::from(bytes) / u128::from(before.max(1))) as u64;
            pages.unpaid_ns -= unpaid_ns;
            if pages.due_bytes == 0 {
                queue.pop_front();
                if pages.dirty.bytes() > 0 {
                    // What came since is as old as this at most.
                    pages.since = pages.written_at;
                    writer.waiting.push_back((pages.since, of));
                }
            }
            if bytes == 0 {
                continue;
            }
            writer.chunks += 1;
            let predicted = predict(&costs, ranges.len() as u64, bytes);
            // A chunk that is long because it is likely to find nothing is charged ahead as a short one: what is given back later keeps back
            // others who come meanwhile.
            let predicted = if is_vain { predicted.min(manner.time_max) } else { predicted };
            let is_presumed_clean = writer.presumes_clean();
            return Some(Chunk {
                of,
                job,
                bytes: Bytes(bytes),
                is_large: pages.total_bytes > large_bytes,
                predicted,
                ranges,
                unpaid: Nanos(unpaid_ns),
                is_counted: manner.is_counted,
                is_only_writer,
                is_begun,
                is_presumed_clean,
            });
        }
    }
}

impl WriteBack {
    /// Of a target on a host with so much memory for the server; whether it keeps pages of files that are not large.
    pub fn new(memory_bytes: u64, keeps_pages: bool) -> Self {
        let bandwidth = Rate::new(RATE_FIRST).expect("a constant that is not 0");
        let guess = CostModel { per_op: Nanos::ZERO, bandwidth };
        let state = State {
            files: BTreeMap::new(),
            writers: BTreeMap::new(),
            dirty_bytes: 0,
            delayed: VecDeque::new(),
            syncs: Vec::new(),
            times: CostLearner::new(guess),
            costs: CostLearner::new(guess),
            lately: (WINDOW_BYTES, WINDOW_BYTES * AHEAD.0 / DIRTY_BYTES_FIRST),
            measured: (0, 0),
            writing: 0,
            vain: 0,
            busy_since: Nanos::ZERO,
            is_stopping: false,
        };
        let large_bytes = if keeps_pages { memory_bytes / LARGE_PART } else { 0 };
        Self { state: Mutex::new(state), memory_bytes, large_bytes, begins: TimedAdvice::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a write may leave pages in memory.
    pub fn keeps_pages(&self) -> bool {
        self.large_bytes > 0
    }

    /// `job` wrote a range of a file, which was `work` to do, of which nothing is charged yet if it `is_unpaid`.
    pub fn wrote(&self, now: Nanos, job: JobId, of: PagesOf, range: Range<u64>, work: Nanos, is_unpaid: bool) -> Wrote {
        let mut state = self.state();
        if range.is_empty() {
            return Wrote { unpaid: Nanos::ZERO, is_due: false, is_ahead: false, is_synced_soon: false };
        }
        let key = (of, job);
        let is_known = state.files.contains_key(&key);
        if !is_known && state.files.len() >= FILES_MAX {
            state.forget_one();
        }
        let State { files, writers, dirty_bytes, .. } = &mut *state;
        let writer = writers.entry(job).or_insert_with(Writer::new);
        if !is_known {
            writer.files.push_back(of);
        }
        let pages = files.entry(key).or_default();
        if pages.dirty.bytes() == 0 {
            pages.since = now;
            writer.waiting.push_back((now, of));
        }
        let new_bytes = pages.dirty.insert(&range);
        let touched = (range.end.div_ceil(4096) - range.start / 4096).max(1) * 4096;
        let unpaid_ns =
            if is_unpaid { (u128::from(work.0) * u128::from(new_bytes) / u128::from(touched)) as u64 } else { 0 };
        pages.unpaid_ns = pages.unpaid_ns.saturating_add(unpaid_ns);
        pages.wrote(range.end - range.start);
        let is_synced_soon = pages.are_synced_soon();
        pages.written_at = now;
        let bytes = pages.dirty.bytes();
        let is_full = bytes >= WINDOW_BYTES && pages.dirty.count() * SCATTERED_BYTES <= bytes;
        writer.dirty_bytes += new_bytes;
        *dirty_bytes += new_bytes;
        if is_full {
            state.make_due(of, job, false);
        }
        let is_ahead = state.is_ahead(job, self.memory_bytes);
        let writer = &state.writers[&job];
        let is_due = !writer.is_enough && (is_ahead || writer.has_due());
        let is_synced_soon = is_synced_soon && state.vain < VAIN_MAX;
        Wrote { unpaid: Nanos(unpaid_ns), is_due, is_ahead, is_synced_soon }
    }

    /// Keeps the reply of a write until the device has caught up; gives it back if it has.
    pub fn delay(&self, paid: Paid) -> Option<Paid> {
        let mut state = self.state();
        if !state.is_ahead(paid.served.pending.connection.job.id, self.memory_bytes) {
            return Some(paid);
        }
        state.delayed.push_back(paid);
        None
    }

    /// The next chunk of `job`, if something is due and not enough of them wait already. [`Self::finished`] or
    /// [`Self::abandoned`] follows.
    pub fn next(&self, job: JobId, manner: Manner) -> Option<Chunk> {
        let mut state = self.state();
        let writer = state.writers.get_mut(&job)?;
        writer.is_enough = writer.chunks >= manner.chunks_max.unwrap_or(writer.chunks_needed).min(CHUNKS_MAX);
        if writer.is_enough {
            return None;
        }
        if !writer.has_due() && state.dirty_bytes > state.bound(self.memory_bytes) / 2 {
            state.make_oldest_due(job, Nanos::MAX);
        }
        state.cut(job, manner, self.large_bytes)
    }

    /// The device is kept free for `job`, since one slot of it does not help it to its share. If it has something due that waits for nothing but
    /// its chunks, it has one chunk more at once from now on, and no other one before the next [look](Self::look). [`Self::next`] has it.
    pub fn needs_more(&self, job: JobId, manner: Manner) -> bool {
        if manner.chunks_max.is_some() {
            return false;
        }
        let mut state = self.state();
        let writer = state.writers.get_mut(&job).filter(|writer| writer.has_due() && writer.chunks > 0);
        writer.is_some_and(Writer::add_chunk)
    }

    /// The host was told to begin to write some of what `job` wrote to a file.
    pub fn note_begun(&self, of: PagesOf, job: JobId) {
        self.state().files.entry((of, job)).and_modify(|pages| pages.is_begun = true);
    }

    /// A chunk's turn has come, and it is about to be written.
    pub fn begun(&self, now: Nanos) {
        let mut state = self.state();
        if state.writing == 0 {
            state.busy_since = now;
        }
        state.writing += 1;
    }

    /// A chunk that was begun is written. How long that took, and what it was given of the device's time; `None` if that had
    /// nothing to do. What need not wait any more.
    pub fn finished(&self, now: Nanos, chunk: &Chunk, device: Option<(Nanos, Nanos)>) -> Released {
        let mut state = self.state();
        state.writing -= 1;
        if !chunk.is_begun {
            state.vain = if device.is_none() { state.vain.saturating_add(1) } else { 0 };
        }
        if let Some((lasted, attributed)) = device.filter(|_| !chunk.is_begun) {
            let took = now.since(state.busy_since);
            state.busy_since = state.busy_since.max(now);
            let ranges = chunk.ranges.len().max(1) as u64;
            let bytes = Bytes(chunk.bytes.0 / ranges);
            // Those past the depth wait for each other, and nobody for them.
            let lasted = if chunk.is_counted { lasted } else { attributed };
            state.times.learn(now, bytes, Nanos(lasted.0 / ranges));
            state.costs.learn(now, bytes, Nanos(attributed.0 / ranges));
            state.measured.0 += chunk.bytes.0;
            state.measured.1 += took.0;
            if state.measured.0 >= TELLING_BYTES {
                // Not the mean of rates: of chunks that were written together only the first to end seems to take any time.
                let mean = |before: u64, now: u64| before - before / WEIGHT + now / WEIGHT;
                let (bytes, took_ns) = std::mem::take(&mut state.measured);
                state.lately = (mean(state.lately.0, bytes), mean(state.lately.1, took_ns));
            }
        }
        drop(state);
        self.abandoned(chunk)
    }

    /// The host was to write a chunk of `job` to the device, and had nothing of it to write, or had.
    pub fn looked(&self, job: JobId, had_nothing: bool) {
        if let Some(writer) = self.state().writers.get_mut(&job) {
            writer.looked(had_nothing);
        }
    }

    /// A chunk is not going to be written, or was. What need not wait any more.
    pub fn abandoned(&self, chunk: &Chunk) -> Released {
        let mut state = self.state();
        if let Some(pages) = state.files.get_mut(&(chunk.of, chunk.job)) {
            pages.cut_bytes = pages.cut_bytes.saturating_sub(chunk.bytes.0);
        }
        if let Some(writer) = state.writers.get_mut(&chunk.job) {
            writer.chunks -= 1;
            writer.is_enough = false;
        }
        state.written(chunk.of, chunk.job, chunk.bytes.0);
        state.release(self.memory_bytes)
    }

    /// A file is wanted on stable storage: keeps the request until what is waiting of the file is written, and tells whose
    /// chunks are to be looked for. Gives it back if what is waiting takes the device no longer than one chunk.
    pub fn sync_later(&self, of: PagesOf, manner: Manner, work: Box<Work>) -> Result<Vec<JobId>, Box<Work>> {
        let mut state = self.state();
        let writers: Vec<JobId> = writers_of(&state, of);
        let (mut ranges, mut left_bytes) = (0, 0);
        for pages in writers.iter().filter_map(|job| state.files.get(&(of, *job))) {
            ranges += pages.dirty.count();
            left_bytes += pages.dirty.bytes() + pages.cut_bytes;
        }
        let is_vain = state.vain >= VAIN_MAX;
        if state.is_stopping || is_vain || predict(&state.times.model(), ranges, left_bytes) <= manner.time_max {
            return Err(work);
        }
        writers.iter().for_each(|job| state.make_due(of, *job, true));
        state.syncs.push(Sync { of, left_bytes, work });
        Ok(writers)
    }

    /// A file is about to be put on stable storage: what is waiting of it is no more to be written back, and counts until
    /// [`Self::synced`].
    pub fn take(&self, of: PagesOf) -> Vec<(JobId, Bytes)> {
        let mut state = self.state();
        let mut taken = Vec::new();
        for job in writers_of(&state, of) {
            let Some(pages) = state.files.get_mut(&(of, job)) else { continue };
            let bytes = pages.dirty.bytes();
            pages.dirty.clear();
            pages.synced();
            (pages.due_bytes, pages.unpaid_ns) = (0, 0);
            if bytes > 0 {
                taken.push((job, Bytes(bytes)));
            }
        }
        taken
    }

    /// A file was put on stable storage, with what [`Self::take`] gave. What need not wait any more.
    pub fn synced(&self, of: PagesOf, taken: &[(JobId, Bytes)]) -> Released {
        let mut state = self.state();
        taken.iter().for_each(|(job, bytes)| state.written(of, *job, bytes.0));
        state.release(self.memory_bytes)
    }

    /// Makes due what is old, and forgets files that are not written any more; `shares` are those of the policy, and
    /// `times` what each job had of the device's time since the last look. Tells whose chunks are to be looked for, and what
    /// need not wait any more.
    pub fn look(&self, now: Nanos, shares: &[(JobId, f64)], times: &HashMap<JobId, Nanos>) -> (Vec<JobId>, Released) {
        // Every write takes the lock: what can be done without it is.
        let shares: HashMap<JobId, f64> = shares.iter().copied().collect();
        let all_times_ns = times.values().map(|time| time.0).sum();
        let mut state = self.state();
        let State { files, writers, .. } = &mut *state;
        files
            .retain(|_, pages| pages.dirty.bytes() + pages.cut_bytes > 0 || now.since(pages.written_at) < FORGET_AFTER);
        for (job, writer) in writers.iter_mut() {
            let share = shares.get(job).copied();
            // A job all of whose replies are delayed asks for nothing, and has no share at the moment.
            writer.share = share.filter(|share| *share > 0.0).unwrap_or(writer.share);
            writer.adapt(times.get(job).map_or(0, |time| time.0), all_times_ns);
            writer.files.retain(|of| files.contains_key(&(*of, *job)));
            writer.due.retain(|of| files.contains_key(&(*of, *job)));
            writer.urgent.retain(|of| files.contains_key(&(*of, *job)));
        }
        writers.retain(|_, writer| writer.dirty_bytes > 0 || writer.chunks > 0 || !writer.files.is_empty());
        let jobs: Vec<JobId> = writers.keys().copied().collect();
        if now >= AGE_MAX {
            for job in &jobs {
                while state.make_oldest_due(*job, now - AGE_MAX) {}
            }
        }
        (jobs, state.release(self.memory_bytes))
    }

    /// Keeps nothing any more. What was kept.
    pub fn stop(&self) -> Released {
        let mut state = self.state();
        state.is_stopping = true;
        let syncs = state.syncs.drain(..).map(|sync| *sync.work).collect();
        Released { paid: state.delayed.drain(..).collect(), syncs }
    }

    /// Bytes that were acknowledged and are not known to be on the device, and how many there may be about.
    pub fn dirty(&self) -> (Bytes, Bytes) {
        let state = self.state();
        (Bytes(state.dirty_bytes), Bytes(state.bound(self.memory_bytes)))
    }
}

/// What the device takes for so many ranges.
fn predict(model: &CostModel, ranges: u64, bytes: u64) -> Nanos {
    Nanos(model.per_op.0.saturating_mul(ranges)) + model.bandwidth.time_for(Bytes(bytes))
}

/// Who has written to a file.
fn writers_of(state: &State, of: PagesOf) -> Vec<JobId> {
    pages_of(&state.files, of).map(|(job, _)| job).collect()
}

fn pages_of(files: &BTreeMap<(PagesOf, JobId), Pages>, of: PagesOf) -> impl Iterator<Item = (JobId, &Pages)> {
    files.range((of, JobId(0))..=(of, JobId(u32::MAX))).map(|((_, job), pages)| (*job, pages))
}

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
