//! `fair-finish`: a target serves one I/O phase after the other, in the order in which fair sharing would have
//! finished them, so that nobody ends later than under fair sharing and most end much sooner.
//!
//! What fair sharing would do is kept in a [`FairClock`](crate::queueing::fair_clock::FairClock). Of the jobs with something queued the next is
//!
//! 1. one that has received less than `guarantee` (g) times what the clock has served of its phase: the floor;
//! 2. otherwise the one that the clock finishes first, and with it the phases that it has finished already.
//!
//! (Friedman and Henderson, *Fairness and efficiency in web server protocols*, SIGMETRICS 2003, with a phase's part at a
//! target instead of a web request. The scheme `FairFinish` of the crate `isonomia-allocation` is the same in
//! fluid; there the theorems are proven that are bounded here for requests.)
//!
//! # Theorems
//!
//! One request in service at a time; a sharing tree of one level; jobs that have something queued at every decision while
//! their phase lasts, and that do not begin a phase before the clock is done with the one before. A *striped* process, which
//! goes round its targets with one request at a time, is no such job.
//!
//! *Time* here is what the target serves: it stands still while the target is idle, and while the turn is *held* for somebody
//! who has nothing queued (below). *Fair sharing* is that of the same phases in this time, each of which comes when the
//! request that is in service at its coming is through, for the clock passes with what is dispatched. So by a usual clock
//! everybody may be later by what was held, and by what is left of the request in service when he comes: fair sharing that
//! had begun with him at once might have ended him before somebody else came. c(j) is the longest request of job j. A
//! request's tag is the least that its job had when it was within what was told, and f the time at which virtual time is f.
//!
//! **1. A phase of job i ends later than under fair sharing by no more than the sum of c(j) over the other jobs, over
//! (1-g),** or by that sum itself with g = 1; sizes as told. *Proof.* The clock, too, serves nobody but those who have
//! something left, so it is this fair sharing. Take the tag f of the last request, the set S of requests with tags up to f, a
//! decision at t before S is dispatched, and t0, the last decision before it at which somebody outside of S was chosen by his
//! tag: nothing of S was queued then, and nobody below the floor. (If there is none, t0 is when all began.) Since then the
//! target has worked on S, on the one request chosen at t0, and on requests by the floor. A job j had received less than g
//! times what the clock had served of it when the last of these was chosen, and no less at t0; the clock is past its requests
//! in S. So outside of S it has received no more than g times what the clock served of it there, and c(j). Let A be the work
//! of S that came since t0; the clock has served all of that by f, and X of others by t. Less than A of S was dispatched. So
//! t - t0 < A + gX + sum of c(j), and X ≤ t - t0 - A if t is not before f, as the clock does not do more than work all the
//! time: t - t0 - A is less than the sum over (1-g), and f - t0 is A at least. The last request counts in A, and its job is
//! not outside of S. With g = 1 take the last request, the virtual time k at which the clock begins it, and t0, the last
//! decision before at which somebody was chosen by his tag, and so nobody was below the floor. Since then only requests that
//! the clock begins by k were chosen, for the floor is given first to whoever the clock has passed first: they are what the
//! clock served by k, and c(j) of each other job at most. (So it is in start-time fair queueing.) ∎
//!
//! The division is needed: beside a heavy phase with a floor of 95 parts in 100 a phase that light jobs with long requests
//! have held up gets on at 5 (`crates/policy/tests/fair_finish_bounds.rs`). At the default of 0.2 it is a quarter more.
//!
//! **2. The floor.** *A job i that has something queued has received at least g times what the clock served of it, less g
//! times the sum of c(j) over the other jobs, whatever anybody told.* *Proof.* Let i be below the floor at t, since virtual
//! time was k. Take t0, the last decision before at which nobody was below the floor. Since then whoever was chosen came
//! below it by k at the latest, but for the one chosen at t0. So each j has received no more than g times what the clock
//! served of it from t0 to k, and c(j), and i exactly what it should by k: t - k is the sum at most, the clock has served i
//! no more than that since, and i is short of g times that. ∎ Who comes back and is forgone what it was owed beyond [`Tuning::lag_max`] has its floor from
//! there on: what it had received before is not counted either. A phase that has received g times all that was told has no
//! floor any more, even if the clock is done with it.
//!
//! **3. Phases over several targets** end with their last part, so both hold for them, of each part in its target's time; no
//! target needs to know of another. If it does ([`Arbiter::set_fair_ends`]), and another's clock takes longer for a phase, its tag is that
//! later time here, and *the part ends later than that by no more than in 1*. *Proof.* That of 1, with these tags: the clock has
//! served all requests of S by f all the more, for it is done with none of them later than by its own tag. ∎ That is of what was told once. A tag
//! that comes down when ends are told again would bring all that the clock has served of the job meanwhile before others. So then it is
//! owed [`Tuning::lag_max`] at most, as if it had not asked, and what is left of it counts as a phase that comes then. Between two tellings a
//! tag is a virtual time, which newcomers slow. So what a job does not need sooner others have, in much the same order on all targets.
//!
//! **4. Sizes.** A phase that turns out longer than was told is told anew, [`GROWTH`](crate::queueing::phases::GROWTH) times
//! as long and a request more at least; one of which nothing is known is told to need
//! [`FIRST_TOLD`](crate::queueing::phases::FIRST_TOLD), and then [`GROWTH_UNKNOWN`](crate::queueing::phases::GROWTH_UNKNOWN)
//! times as much again and again. *Whatever anybody tells, a phase of job i ends later by no more than D(i), the bound of 1,
//! than under fair sharing of phases that are as long as the last thing told of them, and longer by D(j) for each time that
//! the phase of j was told anew.* *Proof.* The proof of 1 holds of a request's tag in the clock, whatever else is in it: what
//! was told and is not there only passes time there. It remains to show that the clock gets to the tag no later than that
//! fair sharing. As long as whoever is in the clock is also in fair sharing, everybody who is in the clock gets there no more
//! than here. The clock leaves out j from when it has served all that was told up to when j is told anew, which is when the
//! last of it is dispatched, so D(j) later at most. Meanwhile fair sharing gives j that much at most, and by so much it has
//! more to do there: it is in fair sharing as long as in the clock. ∎ So *what was told too much is not worked off while the
//! target is idle*: who comes then finds it in the clock, all that is left of it, until 20 ms after the liar's last request
//! ([`Tuning::active_window`]), and what others were put back by it for as long as they have to be served. It is what was
//! told beyond the truth at most. A job that does not ask, or is put off to an end elsewhere that then comes down, is owed
//! [`Tuning::lag_max`] at most afterwards, whatever it told.
//!
//! That a liar does not end sooner *himself* is proven in fluid, and only if the sizes of all others are as told. For
//! requests it is not proven: it was checked in 20,000 random cases among honest ones, but for two requests of each and D.
//!
//! With a tree of *several levels* nobody can promise 1 and be more than fair sharing among users: suppose somebody of user A is
//! served x ahead of his fair time instead of B. If A now begins short phases with as much to do as his share
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
//! same budget: so the target is idle at times while somebody waits, for [`Tuning::hold_max`] at once and a third of all time
//! at most. One whose phase has ended is waited for in vain within [`Tuning::active_window`], for it is not known yet.
//!
//! A decision is O(1) where the job served is the one served before, and O(log n) else, over many decisions, beside what the clock
//! takes; one of them may move as many jobs as were served since. Nothing is moved that may stay: a job that has nothing
//! queued any more keeps its positions until it comes to be first there, for it may be back by then, and a position by the floor is
//! where the job would come to it if it had not been served since it got the position, which is too soon. It gets its true position
//! when it comes up.

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
    /// Jobs with something queued, by tag, and some that had until lately.
    queued: TagHeap<u64>,
    /// The same, by a virtual time before which they are not below the floor.
    floors: TagHeap<u64>,
    /// Jobs in a phase with nothing queued that are worth waiting for, by tag; of these, all that have been first in
    /// [`Self::queued`] since.
    awaited: TagHeap<u64>,
    holds: Holds,
    /// With one level a job's pace in the clock does not change, and neither does the time at which it comes to the floor.
    has_levels: bool,
    /// Whose floor is looked at next.
    looked_at: u32,
    /// By slot: the tag at which other targets' fair sharing is done with the job's phase, as was told last; of none 0.
    elsewhere: Vec<u64>,
}

impl FairFinish {
    pub(crate) fn new(settings: &Settings, tuning: Tuning) -> Self {
        Self {
            roster: Roster::new(&settings.tree, tuning.active_window),
            tuning,
            guarantee: settings.guarantee.micros() as f64 / 1e6,
            phases: Phases::new(&settings.tree, settings.sizes),
            habits: Vec::new(),
            queued: TagHeap::default(),
            floors: TagHeap::default(),
            awaited: TagHeap::default(),
            holds: Holds::new(&tuning),
            has_levels: settings.tree.len() > 1,
            looked_at: 0,
            elsewhere: Vec::new(),
        }
    }

    fn advance(&mut self, now: Nanos) -> Nanos {
        let now = self.roster.advance(now);
        self.phases.clock.at(now);
        while let Some(slot) = self.roster.expire_one() {
            self.queued.remove(slot);
            self.awaited.remove(slot);
            self.phases.end(slot);
        }
        now
    }

    /// The job has something queued: brings it to its positions, unless it has them.
    fn enter(&mut self, slot: u32) {
        let Some(cost) = self.roster.job(slot).first_cost() else { return };
        let account = self.phases.account(slot);
        self.phases.clock.needs(account, cost);
        self.reposition(slot);
        if !(self.phases.clock.knows_floor(account) && self.floors.contains(slot)) {
            self.reposition_by_floor(slot);
        }
    }

    /// Where the job is in the order: where the last of its targets' clocks finishes it.
    fn tag(&mut self, slot: u32) -> u64 {
        self.phases.clock.tag(self.phases.account(slot)).max(self.elsewhere[slot as usize])
    }

    fn reposition(&mut self, slot: u32) {
        let tag = self.tag(slot);
        self.queued.set(slot, (tag, self.roster.job(slot).id));
    }

    /// Brings a job to its position by the floor at the present paces.
    fn reposition_by_floor(&mut self, slot: u32) {
        let floor = self.phases.clock.floor(self.phases.account(slot), self.guarantee);
        self.floors.set(slot, (floor, self.roster.job(slot).id));
    }

    /// Puts the job whose turn is next at its present position by the floor, if it is queued and that may be another one: one whose user's
    /// other jobs have left the clock comes to the floor sooner than was foreseen.
    fn look_again(&mut self) {
        self.looked_at = if (self.looked_at as usize) + 1 < self.habits.len() { self.looked_at + 1 } else { 0 };
        let slot = self.looked_at;
        if self.floors.contains(slot) && !self.phases.clock.knows_floor(self.phases.account(slot)) {
            self.reposition_by_floor(slot);
        }
    }

    /// The first by the floor that is below it.
    fn first_below_floor(&mut self) -> Option<u32> {
        // A few are looked at again at the present paces. The others are moved on by what they were served since they got their
        // positions, at most once for each time that they were.
        let mut left = SMALLEST_MAX;
        while left > 0 {
            let ((due, job), slot) = self.floors.first().filter(|((due, _), _)| *due < self.phases.clock.now())?;
            if !self.roster.job(slot).has_queued() {
                self.floors.remove(slot);
                continue;
            }
            let account = self.phases.account(slot);
            let known = self.phases.clock.floor_as_known(account, self.guarantee);
            if known > due {
                self.floors.set(slot, (known, job));
                continue;
            }
            if self.phases.clock.knows_floor(account) || self.phases.clock.floor(account, self.guarantee) <= due {
                return Some(slot);
            }
            left -= 1;
            self.reposition_by_floor(slot);
        }
        None
    }

    /// Who is next, and by what: a tag of 0 if it is the floor, so that nobody is waited for.
    fn first(&mut self) -> Option<(u64, u32)> {
        if self.has_levels {
            self.look_again();
        }
        if let Some(slot) = self.first_below_floor() {
            return Some((0, slot));
        }
        let mut left = SMALLEST_MAX;
        loop {
            let ((tag, job), slot) = self.queued.first()?;
            if !self.roster.job(slot).has_queued() {
                self.queued.remove(slot);
                if self.habits[slot as usize].is_prompt(self.holds.hold_max()) {
                    self.awaited.set(slot, (tag, job));
                }
                continue;
            }
            if left == 0 || self.tag(slot) <= tag {
                return Some((tag, slot));
            }
            left -= 1;
            self.reposition(slot);
        }
    }

    /// Until when the turn is held for a job that would be before `tag`; `None` if it is not.
    fn hold(&mut self, now: Nanos, tag: u64) -> Option<Nanos> {
        let end = self.holds.end(now, false);
        for _ in 0..SMALLEST_MAX {
            let ((awaited, _), slot) = self.awaited.first()?;
            if awaited >= tag || !self.holds.can_afford() || self.holds.leaves_a_slot(self.roster.in_flight()) {
                return None;
            }
            let in_flight = self.roster.job(slot).in_flight > 0;
            let patience = self.habits[slot as usize].patience(now, in_flight, self.holds.hold_max());
            if let Some(until) = self.holds.until(patience, end, false).filter(|_| now < end) {
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

    /// Puts a job that has nothing queued among the awaited if it is worth it, unless that is to be seen when its turn comes.
    fn consider_awaiting(&mut self, slot: u32) {
        if !self.queued.contains(slot)
            && self.habits[slot as usize].is_prompt(self.holds.hold_max())
            && !self.awaited.contains(slot)
        {
            let tag = self.tag(slot);
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
                self.elsewhere.push(0);
            } else {
                self.habits[slot as usize] = Habit::default();
                self.elsewhere[slot as usize] = 0;
            }
        } else {
            self.phases.change(slot, info);
            self.enter(slot);
        }
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        self.advance(now);
        let Some((slot, queue)) = self.roster.remove_job(job) else { return Vec::new() };
        for heap in [&mut self.queued, &mut self.floors, &mut self.awaited] {
            heap.remove(slot);
        }
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
                // What was told is of the phase before.
                self.elsewhere[slot as usize] = 0;
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
            self.reposition(slot);
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
            self.queued.remove(slot);
        }
        true
    }

    fn set_depth(&mut self, depth: u32) {
        self.holds.set_depth(depth);
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

    fn fair_ends(&self) -> Vec<(JobId, Nanos)> {
        let forecast = self.phases.clock.forecast();
        let of = |slot: u32| {
            let time = self.phases.clock.time_to_end(self.phases.account(slot), &forecast)?;
            Some((self.roster.job(slot).id, Nanos(time.ceil() as u64)))
        };
        let mut ends: Vec<_> = self.roster.slots().filter_map(of).collect();
        ends.sort_unstable_by_key(|(job, _)| *job);
        ends
    }

    fn set_fair_ends(&mut self, now: Nanos, ends: &[(JobId, Nanos)]) {
        self.advance(now);
        let before = std::mem::replace(&mut self.elsewhere, vec![0; self.habits.len()]);
        let forecast = self.phases.clock.forecast();
        for (job, time) in ends {
            if let Some(slot) = self.roster.slot(*job) {
                self.elsewhere[slot as usize] = self.phases.clock.tag_at(*time, &forecast);
            }
        }
        for slot in 0..before.len() as u32 {
            let (old, new) = (before[slot as usize], self.elsewhere[slot as usize]);
            if old == new {
                continue;
            }
            let account = self.phases.account(slot);
            let own = self.phases.clock.tag(account);
            if old > own && new.max(own) < old {
                // It was put off, and comes sooner now: what the clock served of it meanwhile is not all due at once.
                self.phases.clock.forgo(account, self.tuning.lag_max);
            }
            if self.queued.contains(slot) {
                self.reposition(slot);
            }
            if self.awaited.contains(slot) {
                let tag = self.tag(slot);
                self.awaited.set(slot, (tag, self.roster.job(slot).id));
            }
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
        for slot in 0..self.habits.len() as u32 {
            if !self.roster.job(slot).has_queued() && self.queued.contains(slot) {
                self.queued.remove(slot);
                self.consider_awaiting(slot);
            }
        }
        self.queued.clear();
        self.floors.clear();
        self.roster.drain()
    }
}
