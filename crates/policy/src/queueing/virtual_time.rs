//! The virtual-time draw: start-time fair queueing over jobs, with bounded anticipation.
//!
//! Each job has a *tag*, the virtual time at which its next request starts. The queued job with the smallest
//! tag is next (ties: the lowest [`JobId`]), and its tag moves on by cost / pace, where the pace is its share
//! up to a common factor ([`ShareTree::pace`](crate::queueing::tree::ShareTree::pace)). Virtual time is the largest tag
//! dispatched so far. (Goyal, Vin, Cheng: *Start-time Fair Queueing*, SIGCOMM 1996; the anticipation is after
//! Iyer and Druschel, SOSP 2001.)
//!
//! * A job that returns within the active window is owed what it missed, up to [`Tuning::lag_max`]; one that was
//!   idle for longer starts at the present virtual time. Nobody is in debt for more than its own last request.
//! * Groups, users, and proofs have tags of their own, which move on with all that is served below them, and a job that
//!   becomes active does not start before those above it. So whoever brings a new job with each request has his
//!   share and no more: the debt is his, not the job's.
//! * While jobs stay queued, two of them differ in service / share by at most one request each.
//! * What a request was charged is corrected when it turns out to have taken another time; the two jobs of the sentence
//!   before then differ by as much as the charges in service are wrong, besides: see
//!   [`attribution`](crate::device::attribution). Where a device's time is charged at another rate
//!   ([`Arbiter::device_served`]), [`Tuning::lag_max`] and [`Tuning::lag_free`] are times of the device.
//! * A job that is behind by more than [`Tuning::lag_free`], has nothing queued, and is due back soon is waited for; see
//!   [`activity`](super::activity) for when and for what it may cost. With several workers this also keeps a
//!   job with many processes from running ahead of one whose only request is in service.
//!
//! *The price of anticipation.* Let a job of one process have service time s and think time z. Alone on a
//! target it uses s / (s + z) of it; sharing it half and half with others, it is waited for at most z for every
//! 2 s of service. For z = 50 us and s = 100 us that is a fifth of the target; for 1 MiB requests (s = 1 ms), 2 %.
//! On a target that serves several requests at a time, holding back the others to the pace of a job that cannot
//! use its share costs them what the job does not use. The budget caps all of this at a third, but for the time of requests
//! of a job that needs the whole of such a device ([`room`](super::room)), which is charged to it.
//!
//! *With a guarantee* (`coflow`). Tags then stand for a part g of each share only: a request served as guaranteed
//! moves its job's tag by cost / pace as above, but virtual time advances by g / (sum of the active paces) for each
//! ns served, whoever is served. A job whose tag is not ahead of virtual time is owed, and the one with the
//! smallest tag is next. When nobody is owed, the first in the [`Surplus`]'s order is, and its tag stays. So a
//! job that stays queued while the target serves W receives at least g · share · (W − one largest request of each
//! job) − one of its own, and:
//!
//! **An I/O phase takes at most 1 / g times what it would take at its fair share, and one request of each job
//! more.** *Why:* let the job's tag be passed by virtual time at some moment. From then until the job is served, only
//! jobs with smaller tags are. Nobody's tag was behind at that moment, or had been for longer, so each of them is served
//! once before its tag passes the job's; the order among the others continues the argument. What they were served is
//! therefore at most one request each, during which virtual time, and so the job's lag, grows by g / (sum of paces) a
//! ns. A job that returns within the window is owed as above, up to [`Tuning::lag_max`] more. What was served is counted,
//! not time: holds delay everybody alike.
//!
//! *Arithmetic.* Tags are `u128` in units of 2⁻¹⁶ ns of service at pace 1. They only ever grow by sums, exactly;
//! each increment is rounded once, by less than one part in 2⁵². With the slowest pace, 10⁻¹², a job would need
//! 10¹⁴ s of service to reach the end of the range.

use crate::arbiter::{Arbiter, DeviceService, EnqueueError, Next, Request};
use crate::queueing::activity::{Habit, Patience};
use crate::queueing::holds::Holds;
use crate::queueing::room::Room;
use crate::queueing::roster::Roster;
use crate::queueing::surplus::{Progress, Surplus};
use crate::queueing::tag_heap::{SMALLEST_MAX, Tag, TagHeap};
use crate::spec::{Level, Weight};
use crate::{COST_MAX, RequestId, Tuning};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::BTreeSet;

const TAG_UNITS_PER_NS: f64 = 65_536.0;
/// The slowest pace that is told apart; slower jobs are charged at this one.
const PACE_MIN: f64 = 1e-12;

pub(crate) struct VirtualTime {
    roster: Roster,
    tuning: Tuning,
    /// By slot.
    accounts: Vec<Account>,
    /// Jobs with something queued.
    queued: TagHeap,
    /// Jobs with nothing queued that are worth waiting for, the one furthest behind first.
    awaited: TagHeap,
    virtual_time: u128,
    holds: Holds,
    /// What a nanosecond of the device is charged, at most 1.
    rate: f64,
    /// What the device has done for all jobs, by what that costs on one of which nothing is known.
    work: Nanos,
    /// Requests in service that wait for their clients or for another request, and not for the device.
    stalled: BTreeSet<RequestId>,
    /// Who is behind has the whole device, whatever that costs.
    is_strict: bool,
    /// Under `coflow`, what is guaranteed and who gets the rest; otherwise everything is guaranteed.
    coflow: Option<(f64, Surplus)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    tag: u128,
    last_cost: Nanos,
    /// [`Roster::changes`] when that was charged.
    charged_at: u64,
    habit: Habit,
    room: Room,
    /// How many of its requests are among the stalled ones.
    stalled: u32,
}

impl VirtualTime {
    pub(crate) fn new(levels: &[Level], tuning: Tuning) -> Self {
        Self {
            roster: Roster::new(levels, tuning.active_window),
            tuning,
            accounts: Vec::new(),
            queued: TagHeap::default(),
            awaited: TagHeap::default(),
            virtual_time: 0,
            holds: Holds::new(&tuning),
            rate: 1.0,
            work: Nanos::ZERO,
            stalled: BTreeSet::new(),
            is_strict: false,
            coflow: None,
        }
    }

    /// Guarantees only a part of each share, and gives the rest to the first in `surplus`.
    pub(crate) fn with_guarantee(self, guarantee: Weight, surplus: Surplus) -> Self {
        Self { coflow: Some((guarantee.micros() as f64 / 1e6, surplus)), ..self }
    }

    /// Keeps the whole of a device for a job that is behind, whatever that costs: see [`PolicySpec::is_strict`](crate::PolicySpec::is_strict).
    pub(crate) fn with_strict_shares(self) -> Self {
        Self { is_strict: true, ..self }
    }

    fn advance(&mut self, now: Nanos) -> Nanos {
        let now = self.roster.advance(now);
        while let Some(slot) = self.roster.expire_one() {
            self.forget_awaited(slot);
            if let Some((_, surplus)) = &mut self.coflow {
                surplus.end(slot);
            }
        }
        now
    }

    /// Virtual time that `service` takes at the job's present pace.
    fn span(&self, slot: u32, service: Nanos) -> u128 {
        span_at(self.roster.pace(slot), service)
    }

    /// Virtual time that so much of the device's time takes at the job's present pace.
    fn span_of_time(&self, slot: u32, time: Nanos) -> u128 {
        self.span(slot, Nanos((time.0 as f64 * self.rate) as u64))
    }

    /// Whether jobs are charged for the time of a device that serves many at once.
    fn divides_devices_time(&self) -> bool {
        self.holds.has_depth() && self.coflow.is_none()
    }

    /// Brings the tag of a job that had nothing queued into the bounds of what it can owe or be owed.
    fn bound_tag(&mut self, slot: u32, activated: bool) {
        let account = &self.accounts[slot as usize];
        let mut bounded = if account.tag > self.virtual_time {
            // At an unchanged pace it is at most one request ahead as it is.
            if account.charged_at == self.roster.changes() {
                return;
            }
            account.tag.min(self.virtual_time.saturating_add(self.span(slot, account.last_cost)))
        } else if activated {
            self.virtual_time
        } else {
            account.tag.max(self.virtual_time.saturating_sub(self.span_of_time(slot, self.tuning.lag_max)))
        };
        if activated {
            bounded = bounded.max(self.roster.start(slot));
        }
        self.accounts[slot as usize].tag = bounded;
    }

    /// Serves the job's first request; as a part of what is not guaranteed if `is_surplus`.
    fn dispatch(&mut self, now: Nanos, slot: u32, is_surplus: bool) -> Next {
        let Some((request, cost, more)) = self.roster.dispatch(slot) else { return Next::Idle };
        self.holds.dispatched(cost);
        let span = if is_surplus { 0 } else { self.span(slot, cost) };
        let account = &mut self.accounts[slot as usize];
        if !is_surplus {
            self.roster.charge(slot, account.tag, |pace| span_at(pace, cost));
        }
        if let Some((guarantee, surplus)) = &mut self.coflow {
            let passed = span_at(self.roster.active_weight() / *guarantee, cost);
            self.virtual_time = self.virtual_time.saturating_add(passed);
            surplus.serve(now, slot, request.job, cost, more);
        } else {
            self.virtual_time = self.virtual_time.max(account.tag);
        }
        account.tag = account.tag.saturating_add(span);
        account.last_cost = cost;
        account.charged_at = self.roster.changes();
        account.habit.dispatch(now, self.roster.job(slot).in_flight - 1);
        if more {
            self.queued.set(slot, (account.tag, request.job));
        } else {
            self.queued.remove(slot);
            self.consider_awaiting(slot);
        }
        Next::Dispatch(request)
    }

    /// Until when the turn of the job at `front` is held for another one; `None` if it is not.
    fn hold(&mut self, now: Nanos, front: Tag) -> Option<Nanos> {
        if !self.holds.can_afford() {
            return None;
        }
        for _ in 0..SMALLEST_MAX {
            let (slot, patience) = self.first_awaited(now, front)?;
            let keeps_all = self.accounts[slot as usize].room.needs_all();
            let end = self.holds.end(now, keeps_all);
            if let Some(until) = self.holds.until(patience, end, keeps_all).filter(|_| now < end) {
                if keeps_all {
                    self.accounts[slot as usize].room.kept();
                    self.holds.hold_all(now, slot, self.has_under_way(slot));
                } else {
                    self.holds.hold(now, slot);
                }
                return Some(until);
            }
            self.give_up(slot, front);
            if now >= end {
                return None;
            }
        }
        None
    }

    /// The job furthest behind `front` that can be waited for, or that was and is overdue.
    fn first_awaited(&self, now: Nanos, front: Tag) -> Option<(u32, Patience)> {
        if self.awaited.first()?.0.0 >= front.0 {
            return None;
        }
        let behind = self.awaited.smallest().take_while(|(key, _)| key.0 < front.0);
        let has_a_slot = self.holds.leaves_a_slot(self.roster.in_flight());
        let room = |slot: u32| &self.accounts[slot as usize].room;
        behind
            .filter(|&(_, slot)| !has_a_slot || room(slot).needs_all())
            .filter(|&(key, slot)| key.0.saturating_add(self.span_of_time(slot, self.tuning.lag_free)) < front.0)
            .map(|(_, slot)| {
                let in_flight = self.has_under_way(slot);
                (slot, self.accounts[slot as usize].habit.patience(now, in_flight, self.holds.hold_max()))
            })
            .find(|&(slot, patience)| {
                patience == Patience::Overdue
                    || self.holds.until(patience, Nanos::MAX, room(slot).needs_all()).is_some()
            })
    }

    /// Whether a request of the job is in service that is served now: not one that is stalled.
    fn has_under_way(&self, slot: u32) -> bool {
        self.roster.job(slot).in_flight > self.accounts[slot as usize].stalled
    }

    /// Stops waiting for a job. If it was waited for and did not come, it loses what it was owed beyond
    /// [`Tuning::lag_free`], except where a device's time is divided: many a job is late there because others have the
    /// processors, and what it lost would be a large part of what is due to it.
    fn give_up(&mut self, slot: u32, front: Tag) {
        self.forget_awaited(slot);
        if !self.holds.is_for(slot) {
            return;
        }
        let in_flight = self.has_under_way(slot);
        let owed_from = front.0.saturating_sub(self.span_of_time(slot, self.tuning.lag_free));
        let divides_devices_time = self.divides_devices_time();
        let account = &mut self.accounts[slot as usize];
        if account.habit.miss(in_flight) && !divides_devices_time {
            account.tag = account.tag.max(owed_from);
        }
    }

    /// Puts a job that is active and has nothing queued among the awaited, if it is worth it and not there.
    /// Its tag does not change while it is.
    fn consider_awaiting(&mut self, slot: u32) {
        let job = self.roster.job(slot);
        let account = &self.accounts[slot as usize];
        if account.habit.is_prompt(self.holds.hold_max()) && !self.awaited.contains(slot) {
            self.awaited.set(slot, (account.tag, job.id));
        }
    }

    /// Nothing of the job is queued any more.
    fn leave(&mut self, slot: u32) {
        self.queued.remove(slot);
        if let Some((_, surplus)) = &mut self.coflow {
            surplus.leave(slot);
        }
    }

    fn forget_awaited(&mut self, slot: u32) {
        self.awaited.remove(slot);
    }
}

impl Arbiter for VirtualTime {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        self.advance(now);
        let (slot, new) = self.roster.set_job(job, info);
        if slot as usize == self.accounts.len() {
            self.accounts.push(Account::default());
        } else if new {
            self.accounts[slot as usize] = Account::default();
        }
        if new && let Some((_, surplus)) = &mut self.coflow {
            surplus.insert(slot);
        }
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        self.advance(now);
        let Some((slot, queue)) = self.roster.remove_job(job) else { return Vec::new() };
        self.leave(slot);
        self.forget_awaited(slot);
        queue
    }

    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError> {
        let now = self.advance(now);
        let arrival = self.roster.enqueue(request)?;
        if arrival.first {
            let slot = arrival.slot;
            self.forget_awaited(slot);
            self.bound_tag(slot, arrival.activated);
            let owed_max = self.divides_devices_time().then(|| self.span_of_time(slot, self.tuning.lag_max));
            let account = &mut self.accounts[slot as usize];
            account.habit.arrive(now, self.holds.hold_max());
            if let Some(owed_max) = owed_max {
                if arrival.activated {
                    account.room.begins();
                }
                let behind = self.virtual_time.saturating_sub(account.tag);
                if self.is_strict {
                    account.room.follow(behind, owed_max);
                } else {
                    account.room.arrived(now, behind, owed_max, self.work);
                }
            }
            self.queued.set(slot, (account.tag, request.job));
            if let Some((_, surplus)) = &mut self.coflow {
                if arrival.activated {
                    surplus.begin(now, slot);
                }
                surplus.enter(now, slot, request.job);
            }
        }
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        let now = self.advance(now);
        self.holds.pay(now, self.roster.in_flight());
        let Some((front, slot)) = self.queued.first() else {
            self.holds.clear();
            return Next::Idle;
        };
        let mut surplus = None;
        let mut due = front;
        if let Some((_, order)) = &mut self.coflow
            && front.0 > self.virtual_time
        {
            surplus = order.first(now);
            due.0 = self.virtual_time;
        }
        if !self.awaited.is_empty()
            && let Some(until) = self.hold(now, due)
        {
            return Next::WaitUntil(until);
        }
        self.dispatch(now, surplus.unwrap_or(slot), surplus.is_some())
    }

    fn correct(&mut self, now: Nanos, job: JobId, charged: Nanos, took: Nanos) {
        self.advance(now);
        let Some(slot) = self.roster.slot(job).filter(|_| self.coflow.is_none()) else { return };
        let [charged, took] = [charged, took].map(|cost| cost.clamp(Nanos(1), COST_MAX));
        let is_more = took > charged;
        let difference = if is_more { took - charged } else { charged - took };
        self.roster.correct(slot, is_more, |pace| span_at(pace, difference));
        let span = self.span(slot, difference);
        let account = &mut self.accounts[slot as usize];
        if is_more {
            account.tag = account.tag.saturating_add(span);
            // It may be so much in debt.
            account.last_cost = account.last_cost.max(took);
        } else {
            account.tag = account.tag.saturating_sub(span);
            if self.roster.is_alone(slot) {
                // What it was charged for nothing, nobody else has to make up for when he comes.
                self.virtual_time = self.virtual_time.min(account.tag);
            }
        }
        for heap in [&mut self.queued, &mut self.awaited] {
            if heap.contains(slot) {
                heap.set(slot, (account.tag, job));
            }
        }
    }

    fn device_served(&mut self, job: JobId, had: DeviceService) {
        let DeviceService { time, worth, work } = had;
        if self.coflow.is_none() && time > Nanos::ZERO {
            self.rate = (worth.0 as f64 / time.0 as f64).min(1.0);
            self.holds.device_served(time, worth);
            self.work += work;
            if let Some(slot) = self.roster.slot(job) {
                self.accounts[slot as usize].room.served();
            }
        }
    }

    fn set_depth(&mut self, depth: u32) {
        self.holds.set_depth(depth);
    }

    fn device_kept_for(&self) -> Option<JobId> {
        self.holds.keeps_all_for().map(|slot| self.roster.job(slot).id)
    }

    fn set_aside(&mut self, now: Nanos, request: RequestId, job: JobId, is_at_device: bool) {
        let now = self.advance(now);
        let Some(slot) = self.roster.slot(job) else { return };
        if !is_at_device && self.has_under_way(slot) && self.stalled.insert(request) {
            self.holds.pay(now, self.roster.in_flight());
            self.accounts[slot as usize].stalled += 1;
            if !self.has_under_way(slot) {
                self.holds.ended(slot);
            }
        }
    }

    fn complete(&mut self, now: Nanos, request: RequestId, job: JobId) {
        let now = self.advance(now);
        self.holds.pay(now, self.roster.in_flight());
        let was_stalled = self.stalled.remove(&request);
        let Some(slot) = self.roster.complete(job) else { return };
        let others = self.roster.job(slot).in_flight;
        let account = &mut self.accounts[slot as usize];
        account.stalled = account.stalled.saturating_sub(was_stalled.into()).min(others);
        account.habit.complete(now, others);
        if !self.has_under_way(slot) {
            self.holds.ended(slot);
        }
        if !self.roster.job(slot).has_queued() {
            self.consider_awaiting(slot);
        }
    }

    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool {
        self.advance(now);
        let Some((slot, ..)) = self.roster.cancel(request, job) else { return false };
        if !self.roster.job(slot).has_queued() {
            self.leave(slot);
        }
        true
    }

    fn queued(&self) -> usize {
        self.roster.queued()
    }

    fn queued_of(&self, job: JobId) -> usize {
        self.roster.queued_of(job)
    }

    fn shares(&self, now: Nanos) -> Vec<(JobId, f64)> {
        self.roster.shares(now)
    }

    fn set_rank(&mut self, now: Nanos, job: JobId, rank: Option<u32>) {
        let now = self.advance(now);
        if let (Some((_, surplus)), Some(slot)) = (&mut self.coflow, self.roster.slot(job)) {
            surplus.set_rank(now, slot, job, rank);
        }
    }

    fn progress(&self, now: Nanos) -> Vec<(JobId, Progress)> {
        let Some((_, surplus)) = &self.coflow else { return Vec::new() };
        let jobs = self.roster.shares(now).into_iter();
        jobs.filter_map(|(job, _)| Some((job, surplus.progress(now, self.roster.slot(job)?)))).collect()
    }

    fn apportion(&mut self, now: Nanos, parts: &[(JobId, f64)]) {
        self.advance(now);
        self.roster.apportion(parts);
    }

    fn drain(&mut self) -> Vec<Request> {
        self.queued.clear();
        if let Some((_, surplus)) = &mut self.coflow {
            surplus.clear();
        }
        self.roster.drain()
    }
}

/// Virtual time that `service` takes at `pace`.
fn span_at(pace: f64, service: Nanos) -> u128 {
    let span = service.0 as f64 * TAG_UNITS_PER_NS / pace.max(PACE_MIN);
    // The conversion to 64 bits is one instruction, the other one a call.
    if span < u64::MAX as f64 { u128::from(span as u64) } else { span as u128 }
}
