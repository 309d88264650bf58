//! `fair-finish`: a target serves one I/O phase after the other, in the order in which fair sharing would have
//! finished them, so that nobody ends later than under fair sharing and most end much sooner.
//!
//! What fair sharing would do is kept in a [`FairClock`](crate::queueing::fair_clock::FairClock). Of the jobs with something queued the next is
//!
//! 1. one that has received less than `guarantee` (g) times what the clock has served of its phase: the floor;
//! 2. otherwise the one that the clock finishes first, and with it the phases that it has finished already.
//!
//! (Friedman and Henderson, *Fairness and efficiency in web server protocols*, SIGMETRICS 2003, with a phase's part at a
//! target in the place of a web request. The scheme `FairFinish` of the crate `isonomia-allocation` is the same in
//! fluid; there the theorems are proven that are bounded here for requests.)
//!
//! # Theorems
//!
//! One request in service at a time; a sharing tree of one level; jobs whose queues are not empty while their phase
//! lasts and that do not begin a phase before the clock is done with the one before; sizes as told.
//!
//! **1. A phase ends later than under fair sharing by no more than one request of each job and the one in service when it
//! comes.** *Proof.* As in fluid, take a time f, the set S of requests of phases with tags up to f, and t0, the last time
//! before the one looked at when nothing of S was left in reality. From then on the target works on S but for the
//! request in service at t0, and requests that others have by the floor. Such a job had received less than g times what the
//! clock served of it when it was chosen, and what the clock serves of it is outside of S, as its phase is; so all that it
//! receives is covered by what the clock gives it, but for its last request. So S is behind the clock by no more
//! than one request of each of the others. The clock passes with what is dispatched, so who comes finds
//! it further by what is left of the request in service. ∎
//!
//! **2. The floor.** *A job that stays queued has received at least g times what the clock served of it, less one request
//! of each job*, since whoever is below is served before anybody else, and the floors of all together are at most g of
//! what the target serves. With g = 1 this is fair queueing. ∎
//!
//! **3. Phases over several targets** end with their last part, so both hold for them; no target needs to know of
//! another.
//!
//! **4. Sizes.** A phase that turns out longer than was told is told anew, [`GROWTH`](crate::queueing::phases::GROWTH) times as long; one of which nothing is known
//! is told to need [`FIRST_TOLD`](crate::queueing::phases::FIRST_TOLD), and then [`GROWTH_UNKNOWN`](crate::queueing::phases::GROWTH_UNKNOWN) times as much again and again. So who tells a wrong size
//! delays nobody beyond what fair sharing gives him with the last thing told, and does not end sooner himself: see the
//! scheme in fluid. A job that does not ask is owed [`Tuning::lag_max`] at most when it does, whatever it told.
//!
//! With a tree of *several levels* nobody can promise 1 and be more than fair sharing among users: suppose somebody of user A is
//! served x ahead of his fair time in B's place. If A now begins short phases with as much to do as his share
//! allows until B's fair end, his first one's fair end moves behind that; what was served ahead is of no use, and the target has
//! to do x more by then than it can. There tags are those of the present paces, and what holds for everybody is the floor. A job whose
//! pace has grown since it was served is noticed when all jobs were looked at once, one at each decision, so it may have a
//! request for each job that the target knows less.
//!
//! # In use
//!
//! A phase begins with a job's first request and ends after [`Tuning::active_window`] without any. Phases of one job are one
//! after the other in the clock: who comes back sooner because he was served sooner has the weight of one job, and his next
//! phase begins in the clock when the one before has ended there. Sizes are *declared* ([`Arbiter::expect`]), or expected
//! by the *history* of a job's user and title, or name, which is bounded and belongs to the user: nobody can spoil another's. A
//! job that is first, has nothing queued, and is due back is waited for as in [`virtual_time`](super::virtual_time), from the
//! same budget.

use crate::arbiter::{Arbiter, EnqueueError, Next, Request};
use crate::history::SizeHistory;
use crate::queueing::activity::Habit;
use crate::queueing::fair_clock::PhaseReport;
use crate::queueing::holds::Holds;
use crate::queueing::phases::{Lateness, Phases};
use crate::queueing::roster::Roster;
use crate::queueing::tag_heap::{SMALLEST_MAX, TagHeap};
use crate::spec::scheme::FairFinish as Settings;
use crate::{RequestId, Tuning};
use isonomia_units::{JobId, JobInfo, Nanos};

pub(crate) struct FairFinish {
    roster: Roster,
    tuning: Tuning,
    guarantee: f64,
    phases: Phases,
    /// By slot.
    habits: Vec<Habit>,
    /// Jobs with something queued, by tag.
    turns: TagHeap,
    /// The same, by the virtual time from which they are below the floor.
    floors: TagHeap,
    /// Jobs in a phase with nothing queued that are worth waiting for, by tag.
    awaited: TagHeap,
    holds: Holds,
    /// With one level a job's pace in the clock does not change, and neither does the time at which it comes to the floor.
    has_levels: bool,
    /// Whose floor is looked at next.
    looked_at: u32,
}

impl FairFinish {
    pub(crate) fn new(settings: &Settings, tuning: Tuning) -> Self {
        Self {
            roster: Roster::new(&settings.tree, tuning.active_window),
            tuning,
            guarantee: settings.guarantee.micros() as f64 / 1e6,
            phases: Phases::new(&settings.tree, settings.sizes),
            habits: Vec::new(),
            turns: TagHeap::default(),
            floors: TagHeap::default(),
            awaited: TagHeap::default(),
            holds: Holds::new(&tuning),
            has_levels: settings.tree.len() > 1,
            looked_at: 0,
        }
    }

    fn advance(&mut self, now: Nanos) -> Nanos {
        let now = self.roster.advance(now);
        self.phases.clock.at(now);
        while let Some(slot) = self.roster.expire_one() {
            self.awaited.remove(slot);
            self.phases.end(slot);
        }
        now
    }

    /// The job has something queued: brings it to its places.
    fn enter(&mut self, slot: u32) {
        let Some(cost) = self.roster.job(slot).first_cost() else { return };
        let account = self.phases.account(slot);
        self.phases.clock.needs(account, cost);
        let job = self.roster.job(slot).id;
        self.turns.set(slot, (self.phases.clock.tag(account), job));
        self.floors.set(slot, (self.phases.clock.floor(account, self.guarantee), job));
    }

    /// Nothing of the job is queued any more.
    fn leave(&mut self, slot: u32) {
        self.turns.remove(slot);
        self.floors.remove(slot);
    }

    /// Puts the next job in turn at its present place by the floor, if it is queued: one whose user's other jobs have left the
    /// clock comes to the floor sooner than was foreseen.
    fn look_again(&mut self) {
        self.looked_at = if (self.looked_at as usize) + 1 < self.habits.len() { self.looked_at + 1 } else { 0 };
        let slot = self.looked_at;
        if self.floors.contains(slot) {
            let floor = self.phases.clock.floor(self.phases.account(slot), self.guarantee);
            self.floors.set(slot, (floor, self.roster.job(slot).id));
        }
    }

    /// Who is next, and by what: a tag of 0 if it is the floor, so that nobody is waited for.
    fn first(&mut self) -> Option<(u128, u32)> {
        if self.has_levels {
            self.look_again();
        }
        for _ in 0..SMALLEST_MAX {
            let Some(((due, _), slot)) = self.floors.first().filter(|((due, _), _)| *due < self.phases.clock.now())
            else {
                break;
            };
            let floor = self.phases.clock.floor(self.phases.account(slot), self.guarantee);
            if floor <= due {
                return Some((0, slot));
            }
            self.floors.set(slot, (floor, self.roster.job(slot).id));
        }
        for _ in 0..SMALLEST_MAX {
            let ((tag, _), slot) = self.turns.first()?;
            let present = self.phases.clock.tag(self.phases.account(slot));
            if present <= tag {
                break;
            }
            self.turns.set(slot, (present, self.roster.job(slot).id));
        }
        self.turns.first().map(|((tag, _), slot)| (tag, slot))
    }

    /// Until when the turn is held for a job that would be before `tag`; `None` if it is not.
    fn hold(&mut self, now: Nanos, tag: u128) -> Option<Nanos> {
        let end = self.holds.end(now);
        for _ in 0..SMALLEST_MAX {
            let ((awaited, _), slot) = self.awaited.first()?;
            if awaited >= tag || !self.holds.can_afford() || self.holds.leaves_a_place(self.roster.in_flight()) {
                return None;
            }
            let in_flight = self.roster.job(slot).in_flight > 0;
            let patience = self.habits[slot as usize].patience(now, in_flight, self.holds.hold_max());
            if let Some(until) = self.holds.until(patience, end).filter(|_| now < end) {
                self.holds.hold(now, slot);
                return Some(until);
            }
            self.awaited.remove(slot);
            if self.holds.is_for(slot) {
                self.habits[slot as usize].miss(in_flight);
            }
        }
        None
    }

    fn consider_awaiting(&mut self, slot: u32) {
        if self.habits[slot as usize].is_prompt(self.holds.hold_max()) && !self.awaited.contains(slot) {
            let tag = self.phases.clock.tag(self.phases.account(slot));
            self.awaited.set(slot, (tag, self.roster.job(slot).id));
        }
    }
}

impl Arbiter for FairFinish {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        self.advance(now);
        let (slot, is_new) = self.roster.set_job(job, info);
        if is_new {
            self.phases.open(slot, job, info);
            if slot as usize == self.habits.len() {
                self.habits.push(Habit::default());
            } else {
                self.habits[slot as usize] = Habit::default();
            }
        } else {
            self.phases.change(slot, info);
            self.enter(slot);
        }
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        self.advance(now);
        let Some((slot, queue)) = self.roster.remove_job(job) else { return Vec::new() };
        self.leave(slot);
        self.awaited.remove(slot);
        self.phases.close(slot);
        queue
    }

    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError> {
        let now = self.advance(now);
        let arrival = self.roster.enqueue(request)?;
        let slot = arrival.slot;
        if !arrival.activated {
            self.phases.go_on(slot);
        }
        if arrival.first {
            self.awaited.remove(slot);
            self.habits[slot as usize].arrive(now, self.holds.hold_max());
            if arrival.activated {
                self.phases.begin(slot);
            } else {
                self.phases.clock.forgo(self.phases.account(slot), self.tuning.lag_max);
            }
            self.enter(slot);
        }
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        let now = self.advance(now);
        self.holds.pay(now, self.roster.in_flight());
        let Some((tag, slot)) = self.first() else {
            self.holds.clear();
            return Next::Idle;
        };
        if !self.awaited.is_empty()
            && let Some(until) = self.hold(now, tag)
        {
            return Next::WaitUntil(until);
        }
        let Some((request, cost, more)) = self.roster.dispatch(slot) else { return Next::Idle };
        self.holds.dispatched(cost);
        let others = self.roster.job(slot).in_flight - 1;
        self.habits[slot as usize].dispatch(now, others);
        self.phases.serve(slot, cost, !more);
        if more {
            self.enter(slot);
        } else {
            self.leave(slot);
            self.consider_awaiting(slot);
        }
        Next::Dispatch(request)
    }

    fn complete(&mut self, now: Nanos, _request: RequestId, job: JobId) {
        let now = self.advance(now);
        self.holds.pay(now, self.roster.in_flight());
        let Some(slot) = self.roster.complete(job) else { return };
        let others = self.roster.job(slot).in_flight;
        self.habits[slot as usize].complete(now, others);
        if !self.roster.job(slot).has_queued() {
            self.consider_awaiting(slot);
        }
    }

    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool {
        self.advance(now);
        let Some((slot, ..)) = self.roster.cancel(request, job) else { return false };
        if self.roster.job(slot).has_queued() {
            self.enter(slot);
        } else {
            self.leave(slot);
        }
        true
    }

    fn set_places(&mut self, places: u32) {
        self.holds.set_places(places);
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

    fn expect(&mut self, now: Nanos, job: JobId, service: Nanos) {
        self.advance(now);
        if let Some(slot) = self.roster.slot(job)
            && self.phases.expect(slot, service)
        {
            self.enter(slot);
        }
    }

    fn phases(&self) -> Vec<PhaseReport> {
        self.phases.reports(self.roster.slots())
    }

    fn history(&mut self) -> Option<&mut SizeHistory> {
        Some(self.phases.history())
    }

    fn lateness(&mut self, now: Nanos) -> Vec<Lateness> {
        self.advance(now);
        self.phases.lateness(self.roster.slots())
    }

    fn drain(&mut self) -> Vec<Request> {
        self.turns.clear();
        self.floors.clear();
        self.roster.drain()
    }
}
