//! `set10`: jobs in sets by the time between their I/O phases; one job of each set at a time.
//!
//! Boito, Pallez, Teylo, Vidal: *IO-Sets: Simple and Efficient Approaches for I/O Bandwidth Management*, IEEE
//! TPDS 34(10), 2023, heuristic Set-10. The *characteristic time* of a job is the mean time from the beginning of
//! one I/O phase to that of the next (w_iter). A job of characteristic time w is in the set j that is nearest to
//! log₁₀ w (in seconds), and the set has priority 10⁻ʲ. Within a set phases are served one after the other, first
//! come first served; the sets that have a phase share the target in proportion to their priorities. So a short,
//! frequent phase hardly notices a long, rare one, which hardly loses by it. The differences:
//!
//! * The characteristic time is declared by a rule, or learnt from the phases seen (a running mean that follows a quarter
//!   of each change); until there are two, it is taken as [`UNKNOWN`]. The paper presumes that it is known.
//! * Sets are numbered from [`SET_MIN`] to [`SET_MAX`]; whatever is beyond is in the last one.
//! * A phase begins with the request that makes a job active and ends when it no longer is: a pause of
//!   [`Tuning::active_window`](crate::Tuning::active_window) divides two phases.
//! * The target is not left idle for exclusivity's sake but for a bounded time: while the job whose phase is served has
//!   nothing queued and is due back soon, its set stays its own, as in [`activity`](super::activity); other sets go on,
//!   unless its own is behind them. If it does not come, the next phase of the set is served in the meantime.
//! * Sharing between sets is start-time fair queueing of requests; the paper's is a fluid split.
//!
//! A decision looks at each set, of which there are a fixed number, and is O(log jobs) in one.

use crate::arbiter::{Arbiter, EnqueueError, Next, Request};
use crate::queueing::activity::{Habit, Patience};
use crate::queueing::holds::Holds;
use crate::queueing::roster::Roster;
use crate::queueing::tag_heap::TagHeap;
use crate::spec::scheme::Rule;
use crate::spec::{Entity, Level};
use crate::{RequestId, Tuning};
use isonomia_units::{JobId, JobInfo, Nanos};

/// The first set: of characteristic times around 1 ms.
const SET_MIN: i32 = -3;
/// The last set: of characteristic times around 10⁶ s, eleven days.
const SET_MAX: i32 = 6;
const SETS: usize = (SET_MAX - SET_MIN + 1) as usize;
/// The characteristic time of a job of which nothing is known.
const UNKNOWN: Nanos = Nanos::from_secs(10);

pub(crate) struct IoSets {
    roster: Roster,
    tuning: Tuning,
    rules: Vec<Rule<Nanos>>,
    /// By slot.
    members: Vec<Member>,
    /// From [`SET_MIN`] on.
    sets: [Set; SETS],
    virtual_time: u128,
    phases: u64,
    holds: Holds,
}

/// The jobs of one set that are in a phase, the one that began it first in front.
#[derive(Default)]
struct Set {
    /// Start tag of its next request, in ns of service times 10^(set − [`SET_MIN`]).
    tag: u128,
    phases: TagHeap,
    /// Those of them that have something queued.
    queued: TagHeap,
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    declared: Option<Nanos>,
    learnt: Option<Nanos>,
    /// When the last phase began.
    begun: Option<Nanos>,
    /// Number of the present phase among all.
    phase: u64,
    set: usize,
    habit: Habit,
}

/// What a set has to offer.
enum Offer {
    Nothing,
    /// The first request of a job.
    Request(u32),
    /// A job that should be back by then.
    Wait(u32, Nanos),
}

/// The index of the set of a characteristic time: w is at least 10^(j − 1/2) s if and only if w² ≥ 10^(2j − 1) s².
fn set_of(characteristic: Nanos) -> usize {
    let square = u128::from(characteristic.0).pow(2);
    (1..SETS).take_while(|&at| square >= 10_u128.pow((2 * (SET_MIN + 9 + at as i32) - 1) as u32)).count()
}

/// Virtual time that `service` takes in a set.
fn span(set: usize, service: Nanos) -> u128 {
    u128::from(service.0) * 10_u128.pow(set as u32)
}

impl IoSets {
    pub(crate) fn new(rules: &[Rule<Nanos>], tuning: Tuning) -> Self {
        Self {
            roster: Roster::new(&[Level::new(Entity::Job)], tuning.active_window),
            tuning,
            rules: rules.to_vec(),
            members: Vec::new(),
            sets: Default::default(),
            virtual_time: 0,
            phases: 0,
            holds: Holds::new(&tuning),
        }
    }

    fn advance(&mut self, now: Nanos) -> Nanos {
        let now = self.roster.advance(now);
        while let Some(slot) = self.roster.expire_one() {
            self.sets[self.members[slot as usize].set].phases.remove(slot);
        }
        now
    }

    fn begin_phase(&mut self, now: Nanos, slot: u32, job: JobId) {
        let member = &mut self.members[slot as usize];
        if let Some(begun) = member.begun.replace(now) {
            let sample = now.since(begun).0;
            member.learnt = Some(Nanos(member.learnt.map_or(sample, |mean| mean.0 - mean.0 / 4 + sample / 4)));
        }
        member.set = set_of(member.declared.or(member.learnt).unwrap_or(UNKNOWN));
        member.phase = self.phases;
        self.phases += 1;
        let set = &mut self.sets[member.set];
        if set.phases.is_empty() {
            set.tag = set.tag.max(self.virtual_time);
        }
        set.phases.set(slot, (u128::from(member.phase), job));
    }

    /// What a set has to offer, given whether anybody can be waited for.
    fn offer(&self, now: Nanos, set: &Set, may_wait: bool) -> Offer {
        let Some((_, holder)) = set.phases.first() else { return Offer::Nothing };
        let habit = &self.members[holder as usize].habit;
        if may_wait && !self.roster.job(holder).has_queued() && habit.is_prompt(self.tuning.hold_max) {
            let in_flight = self.roster.job(holder).in_flight > 0;
            match habit.patience(now, in_flight, self.tuning.hold_max) {
                Patience::Until(until) => return Offer::Wait(holder, until),
                Patience::InFlight => return Offer::Wait(holder, Nanos::MAX),
                Patience::Later | Patience::Overdue => {}
            }
        }
        set.queued.first().map_or(Offer::Nothing, |(_, slot)| Offer::Request(slot))
    }

    /// The job to serve, by the tag of its set; or the one to wait for, and until when.
    fn choose(&self, now: Nanos, may_wait: bool) -> (Option<u32>, Option<(u32, Nanos)>) {
        let mut best: Option<(u128, u32)> = None;
        let mut awaited: Option<(u128, u32, Nanos)> = None;
        for (at, set) in self.sets.iter().enumerate() {
            match self.offer(now, set, may_wait) {
                Offer::Nothing => {}
                Offer::Request(slot) if best.is_none_or(|(tag, _)| set.tag < tag) => best = Some((set.tag, slot)),
                Offer::Request(_) => {}
                Offer::Wait(slot, until) => {
                    let behind = set.tag.saturating_add(span(at, self.tuning.lag_free));
                    if awaited.is_none_or(|(tag, ..)| behind < tag) {
                        awaited = Some((behind, slot, until));
                    }
                }
            }
        }
        let awaited = awaited.filter(|(behind, ..)| best.is_none_or(|(tag, _)| *behind < tag));
        (best.map(|(_, slot)| slot), awaited.map(|(_, slot, until)| (slot, until)))
    }

    /// Notes it if the job that the turn was held for has not come in time.
    fn give_up(&mut self, now: Nanos, end: Nanos) {
        let mut holders = self.sets.iter().filter_map(|set| set.phases.first());
        let Some((_, slot)) = holders.find(|(_, slot)| self.holds.is_for(*slot)) else { return };
        let job = self.roster.job(slot);
        let habit = &mut self.members[slot as usize].habit;
        let in_flight = job.in_flight > 0;
        let is_late = now >= end || habit.patience(now, in_flight, self.tuning.hold_max) == Patience::Overdue;
        if is_late && !job.has_queued() {
            habit.miss(in_flight);
        }
    }

    fn dispatch(&mut self, now: Nanos, slot: u32) -> Next {
        let Some((request, cost, more)) = self.roster.dispatch(slot) else { return Next::Idle };
        self.holds.dispatched(cost);
        let member = &mut self.members[slot as usize];
        member.habit.dispatch(now, self.roster.job(slot).in_flight - 1);
        let set = &mut self.sets[member.set];
        self.virtual_time = self.virtual_time.max(set.tag);
        set.tag += span(member.set, cost);
        if !more {
            set.queued.remove(slot);
        }
        Next::Dispatch(request)
    }
}

impl Arbiter for IoSets {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        self.advance(now);
        let (slot, new) = self.roster.set_job(job, info);
        let declared = self.rules.iter().find(|rule| rule.selector.selects(info)).map(|rule| rule.value);
        if slot as usize == self.members.len() {
            self.members.push(Member::default());
        } else if new {
            self.members[slot as usize] = Member::default();
        }
        self.members[slot as usize].declared = declared;
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        self.advance(now);
        let Some((slot, queue)) = self.roster.remove_job(job) else { return Vec::new() };
        let set = &mut self.sets[self.members[slot as usize].set];
        set.phases.remove(slot);
        set.queued.remove(slot);
        queue
    }

    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError> {
        let now = self.advance(now);
        let arrival = self.roster.enqueue(request)?;
        if arrival.activated {
            self.begin_phase(now, arrival.slot, request.job);
        }
        if arrival.first {
            let member = &mut self.members[arrival.slot as usize];
            member.habit.arrive(now, self.tuning.hold_max);
            let set = &mut self.sets[member.set];
            if set.queued.is_empty() {
                let owed = span(member.set, self.tuning.lag_max);
                set.tag = set.tag.max(self.virtual_time.saturating_sub(owed));
            }
            set.queued.set(arrival.slot, (u128::from(member.phase), request.job));
        }
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        let now = self.advance(now);
        self.holds.pay(now, self.roster.in_flight());
        if self.roster.queued() == 0 {
            self.holds.clear();
            return Next::Idle;
        }
        let end = self.holds.end(now, false);
        let may_wait = self.holds.can_afford() && now < end;
        let (ready, awaited) = self.choose(now, may_wait);
        if let Some((slot, until)) = awaited {
            self.holds.hold(now, slot);
            return Next::WaitUntil(until.min(end));
        }
        self.give_up(now, end);
        ready.map_or(Next::Idle, |slot| self.dispatch(now, slot))
    }

    fn complete(&mut self, now: Nanos, _request: RequestId, job: JobId) {
        let now = self.advance(now);
        self.holds.pay(now, self.roster.in_flight());
        let Some(slot) = self.roster.complete(job) else { return };
        let others = self.roster.job(slot).in_flight;
        self.members[slot as usize].habit.complete(now, others);
    }

    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool {
        self.advance(now);
        let Some((slot, ..)) = self.roster.cancel(request, job) else { return false };
        if !self.roster.job(slot).has_queued() {
            self.sets[self.members[slot as usize].set].queued.remove(slot);
        }
        true
    }

    fn queued(&self) -> usize {
        self.roster.queued()
    }

    fn queued_of(&self, job: JobId) -> usize {
        self.roster.queued_of(job)
    }

    fn shares(&self, _now: Nanos) -> Vec<(JobId, f64)> {
        Vec::new()
    }

    fn drain(&mut self) -> Vec<Request> {
        self.sets.iter_mut().for_each(|set| set.queued.clear());
        self.roster.drain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_is_nearest_in_powers_of_ten() {
        let set = |time| set_of(time) as i32 + SET_MIN;
        for (ms, expected) in
            [(1_000, 0), (3_162, 0), (3_163, 1), (10_000, 1), (31_622, 1), (31_623, 2), (316, -1), (317, 0)]
        {
            assert_eq!(set(Nanos::from_millis(ms)), expected, "{ms} ms");
        }
        let ends =
            [Nanos::ZERO, Nanos::from_micros(3_162), Nanos::from_micros(3_163), Nanos::from_secs(400_000), Nanos::MAX];
        assert_eq!(ends.map(set), [SET_MIN, SET_MIN, -2, SET_MAX, SET_MAX]);
    }
}
