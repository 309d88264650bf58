//! The jobs of one target: their queues, who is active, and the sharing tree over the active ones.
//!
//! A job is *active* while it has requests queued or in flight, and for a while after its last one ended
//! ([`Tuning::active_window`](crate::Tuning::active_window)), so that a process that issues one request at a
//! time stays in the account between two of them. Shares are computed over the active jobs only: an idle job's
//! share goes to the others within the window.

use crate::arbiter::{EnqueueError, Request};
use crate::nature::Nature;
use crate::queueing::slots::Slots;
use crate::queueing::tree::{Leaf, ShareTree};
use crate::spec::Level;
use crate::{COST_MAX, RequestId};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::VecDeque;

/// The most requests that one arbiter queues.
pub const QUEUED_MAX: usize = 1 << 20;

/// A share that leaves nothing worth mentioning to others.
const SHARE_ALONE: f64 = 1.0 - 1e-12;

/// No slot.
const NOBODY: u32 = u32::MAX;

/// One job.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) in_flight: u32,
    leaf: Leaf,
    /// Requests with their arrival numbers.
    queue: VecDeque<(u64, Request)>,
    /// Since when nothing is queued or in flight; meaningless while something is.
    idle_since: Nanos,
    /// The jobs that became idle just before and after it; [`NOBODY`] at the ends and while it is not in the list.
    idle_before: u32,
    idle_after: u32,
    /// Whether it is in the list of idle jobs that are still active.
    resting: bool,
    present: bool,
}

/// Jobs by slot. A slot is a small number, reused after a job is gone.
pub(crate) struct Roster {
    slots: Slots,
    jobs: Vec<Job>,
    vacant: Vec<u32>,
    tree: ShareTree,
    /// The ends of the list of jobs that are idle and still active, the one idle for longest first.
    idle_first: u32,
    idle_last: u32,
    /// When the first of them becomes inactive.
    expiry: Nanos,
    active_window: Nanos,
    queued: usize,
    in_flight: u32,
    arrivals: u64,
    now: Nanos,
}

/// What an enqueue changed.
pub(crate) struct Arrival {
    pub(crate) slot: u32,
    /// Its position among all arrivals.
    pub(crate) number: u64,
    /// Nothing of the job was queued before.
    pub(crate) first: bool,
    /// The job was not active before.
    pub(crate) activated: bool,
}

impl Roster {
    pub(crate) fn new(levels: &[Level], active_window: Nanos) -> Self {
        Self {
            slots: Slots::default(),
            jobs: Vec::new(),
            vacant: Vec::new(),
            tree: ShareTree::new(levels),
            idle_first: NOBODY,
            idle_last: NOBODY,
            expiry: Nanos::MAX,
            active_window,
            queued: 0,
            in_flight: 0,
            arrivals: 0,
            now: Nanos::ZERO,
        }
    }

    /// Takes notice of the time; it never runs backwards.
    pub(crate) fn advance(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        self.now
    }

    /// Makes one job inactive whose window has passed; `None` once there is no more.
    pub(crate) fn expire_one(&mut self) -> Option<u32> {
        if self.expiry > self.now {
            return None;
        }
        let slot = self.idle_first;
        self.rouse(slot);
        self.tree.deactivate(self.jobs[slot as usize].leaf);
        Some(slot)
    }

    /// Adds a job, or moves it in the tree. Returns its slot and whether it is new.
    pub(crate) fn set_job(&mut self, id: JobId, info: &JobInfo) -> (u32, bool) {
        if let Some(slot) = self.slots.get(id) {
            let old = self.jobs[slot as usize].leaf;
            let active = self.tree.is_active(old);
            // In this order: a node above both stays, and what it was charged.
            let leaf = self.tree.insert(info, slot);
            self.tree.remove(old);
            if active {
                self.tree.activate(leaf);
            }
            self.jobs[slot as usize].leaf = leaf;
            return (slot, false);
        }
        let slot = self.vacant.pop().unwrap_or(self.jobs.len() as u32);
        let job = Job {
            id,
            in_flight: 0,
            leaf: self.tree.insert(info, slot),
            queue: VecDeque::new(),
            idle_since: self.now,
            idle_before: NOBODY,
            idle_after: NOBODY,
            resting: false,
            present: true,
        };
        if slot as usize == self.jobs.len() {
            self.jobs.push(job);
        } else {
            self.jobs[slot as usize] = job;
        }
        self.slots.insert(id, slot);
        (slot, true)
    }

    /// Removes a job; returns its slot and its queue.
    pub(crate) fn remove_job(&mut self, id: JobId) -> Option<(u32, Vec<Request>)> {
        let slot = self.slots.remove(id)?;
        self.rouse(slot);
        let job = &mut self.jobs[slot as usize];
        job.present = false;
        let queue: Vec<_> = std::mem::take(&mut job.queue).into_iter().map(|(_, request)| request).collect();
        self.tree.remove(job.leaf);
        self.queued -= queue.len();
        self.in_flight -= job.in_flight;
        self.vacant.push(slot);
        Some((slot, queue))
    }

    pub(crate) fn enqueue(&mut self, request: Request) -> Result<Arrival, EnqueueError> {
        let (id, job) = (request.id, request.job);
        let Some(slot) = self.slots.get(job) else { return Err(EnqueueError::UnknownJob { job, request: id }) };
        if self.queued >= QUEUED_MAX {
            return Err(EnqueueError::QueueFull { job, request: id });
        }
        self.rouse(slot);
        let job = &mut self.jobs[slot as usize];
        let first = job.queue.is_empty();
        job.queue.push_back((self.arrivals, request));
        self.arrivals += 1;
        self.queued += 1;
        let activated = first && !self.tree.is_active(job.leaf);
        if activated {
            self.tree.activate(job.leaf);
        }
        Ok(Arrival { slot, number: self.arrivals - 1, first, activated })
    }

    /// The oldest queued request of a job goes into service. Returns it with what it is charged, and whether
    /// more are queued behind it.
    pub(crate) fn dispatch(&mut self, slot: u32) -> Option<(Request, Nanos, bool)> {
        let job = &mut self.jobs[slot as usize];
        let (_, request) = job.queue.pop_front()?;
        job.in_flight += 1;
        self.in_flight += 1;
        self.queued -= 1;
        Some((request, charged(&request), !job.queue.is_empty()))
    }

    /// A queued request of a job goes into service, by its position among all arrivals. Returns it with what it is charged. Linear in
    /// the job's queue, unless it is the oldest.
    pub(crate) fn dispatch_at(&mut self, slot: u32, number: u64) -> Option<(Request, Nanos)> {
        let job = &mut self.jobs[slot as usize];
        let at = job.place_of(number)?;
        let (_, request) = job.queue.remove(at)?;
        job.in_flight += 1;
        self.in_flight += 1;
        self.queued -= 1;
        Some((request, charged(&request)))
    }

    /// A request in service has ended; the job's slot, unless it is gone.
    pub(crate) fn complete(&mut self, id: JobId) -> Option<u32> {
        let slot = self.slots.get(id)?;
        let job = &mut self.jobs[slot as usize];
        job.in_flight = job.in_flight.checked_sub(1)?;
        self.in_flight -= 1;
        self.rest(slot);
        Some(slot)
    }

    /// Drops a queued request; the job's slot, the request's position among all arrivals, and what it does, if it was there.
    pub(crate) fn cancel(&mut self, request: RequestId, id: JobId) -> Option<(u32, u64, Nature)> {
        let slot = self.slots.get(id)?;
        let job = &mut self.jobs[slot as usize];
        let at = job.queue.iter().position(|(_, queued)| queued.id == request)?;
        let (number, request) = job.queue.remove(at)?;
        self.queued -= 1;
        self.rest(slot);
        Some((slot, number, request.nature))
    }

    /// Every queued request in arrival order.
    pub(crate) fn drain(&mut self) -> Vec<Request> {
        let mut all: Vec<(u64, Request)> = Vec::with_capacity(self.queued);
        for slot in 0..self.jobs.len() {
            if self.jobs[slot].has_queued() {
                all.extend(self.jobs[slot].queue.drain(..));
                self.rest(slot as u32);
            }
        }
        self.queued = 0;
        all.sort_unstable_by_key(|(arrival, _)| *arrival);
        all.into_iter().map(|(_, request)| request).collect()
    }

    pub(crate) fn job(&self, slot: u32) -> &Job {
        &self.jobs[slot as usize]
    }

    /// See [`ShareTree::pace`].
    pub(crate) fn pace(&self, slot: u32) -> f64 {
        self.tree.pace(self.jobs[slot as usize].leaf)
    }

    /// See [`ShareTree::apportion`].
    pub(crate) fn apportion(&mut self, parts: &[(JobId, f64)]) {
        let leaf = |job: JobId| Some(self.jobs[self.slots.get(job)? as usize].leaf);
        let parts: Vec<_> = parts.iter().filter_map(|(job, part)| Some((leaf(*job)?, *part))).collect();
        self.tree.apportion(&parts);
    }

    /// See [`ShareTree::charge`].
    pub(crate) fn charge(&mut self, slot: u32, start: u128, span: impl Fn(f64) -> u128) {
        self.tree.charge(self.jobs[slot as usize].leaf, start, span);
    }

    /// See [`ShareTree::correct`].
    pub(crate) fn correct(&mut self, slot: u32, is_more: bool, span: impl Fn(f64) -> u128) {
        self.tree.correct(self.jobs[slot as usize].leaf, is_more, span);
    }

    /// Whether no other job is active.
    pub(crate) fn is_alone(&self, slot: u32) -> bool {
        self.tree.share(self.jobs[slot as usize].leaf) > SHARE_ALONE
    }

    /// See [`ShareTree::start`].
    pub(crate) fn start(&self, slot: u32) -> u128 {
        self.tree.start(self.jobs[slot as usize].leaf)
    }

    /// See [`ShareTree::changes`].
    pub(crate) fn changes(&self) -> u64 {
        self.tree.changes()
    }

    /// See [`ShareTree::active_weight`].
    pub(crate) fn active_weight(&self) -> f64 {
        self.tree.active_weight()
    }

    /// The slot of a job that is known.
    pub(crate) fn slot(&self, id: JobId) -> Option<u32> {
        self.slots.get(id)
    }

    /// The slots of all jobs that are known.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        let is_there = |(_, job): &(usize, &Job)| job.present;
        self.jobs.iter().enumerate().filter(is_there).map(|(slot, _)| slot as u32)
    }

    /// Requests in service, those of removed jobs left out.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    pub(crate) fn queued_of(&self, id: JobId) -> usize {
        self.slots.get(id).map_or(0, |slot| self.jobs[slot as usize].queue.len())
    }

    /// Shares as they stand at `now`, which may be later than the last call that could change anything.
    pub(crate) fn shares(&self, now: Nanos) -> Vec<(JobId, f64)> {
        let mut tree = self.tree.clone();
        let present = || self.jobs.iter().filter(|job| job.present);
        for job in present() {
            if !job.is_busy() && job.idle_since + self.active_window <= now {
                tree.deactivate(job.leaf);
            }
        }
        let active = present().filter(|job| tree.is_active(job.leaf));
        let mut shares: Vec<_> = active.map(|job| (job.id, tree.share(job.leaf))).collect();
        shares.sort_unstable_by_key(|(job, _)| *job);
        shares
    }

    /// Notes that a job may have become idle. Time does not run backwards, so the end of the list is its position.
    fn rest(&mut self, slot: u32) {
        let (now, last) = (self.now, self.idle_last);
        let job = &mut self.jobs[slot as usize];
        if !job.present || job.is_busy() {
            return;
        }
        job.idle_since = now;
        job.resting = true;
        job.idle_before = last;
        if last == NOBODY {
            self.idle_first = slot;
            self.expiry = now + self.active_window;
        } else {
            self.jobs[last as usize].idle_after = slot;
        }
        self.idle_last = slot;
    }

    /// Takes a job out of the list of idle ones, if it is in.
    fn rouse(&mut self, slot: u32) {
        let job = &mut self.jobs[slot as usize];
        if !job.resting {
            return;
        }
        job.resting = false;
        let before = std::mem::replace(&mut job.idle_before, NOBODY);
        let after = std::mem::replace(&mut job.idle_after, NOBODY);
        if after == NOBODY {
            self.idle_last = before;
        } else {
            self.jobs[after as usize].idle_before = before;
        }
        if before == NOBODY {
            self.idle_first = after;
            let first = self.jobs.get(after as usize);
            self.expiry = first.map_or(Nanos::MAX, |first| first.idle_since + self.active_window);
        } else {
            self.jobs[before as usize].idle_after = after;
        }
    }
}

impl Job {
    /// Its queued requests, with their positions among all arrivals, ascending.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (u64, &Request)> {
        self.queue.iter().map(|(number, request)| (*number, request))
    }

    /// A queued request, by its position among all arrivals.
    pub(crate) fn request_at(&self, number: u64) -> Option<&Request> {
        self.queue.get(self.place_of(number)?).map(|(_, request)| request)
    }

    fn place_of(&self, number: u64) -> Option<usize> {
        match self.queue.front() {
            Some((first, _)) if *first == number => Some(0),
            _ => self.queue.binary_search_by_key(&number, |(number, _)| *number).ok(),
        }
    }

    /// Its oldest queued request's cost as it is charged.
    pub(crate) fn first_cost(&self) -> Option<Nanos> {
        self.queue.front().map(|(_, request)| charged(request))
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    fn is_busy(&self) -> bool {
        self.in_flight > 0 || !self.queue.is_empty()
    }
}

/// What a request is charged.
pub(crate) fn charged(request: &Request) -> Nanos {
    request.cost.clamp(Nanos(1), COST_MAX)
}
