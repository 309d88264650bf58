//! The virtual-time draw: start-time fair queueing over jobs, with bounded anticipation.
//!
//! Each job has a *tag*, the virtual time at which its next request starts. The queued job with the smallest
//! tag is next (ties: the lowest [`JobId`]), and its tag moves on by cost / pace, where the pace is its share
//! up to a common factor ([`ShareTree::pace`](crate::tree::ShareTree::pace)). Virtual time is the largest tag
//! dispatched so far. (Goyal, Vin, Cheng: *Start-time Fair Queueing*, SIGCOMM 1996; the anticipation is after
//! Iyer and Druschel, SOSP 2001.)
//!
//! * A job that returns within the active window is owed what it missed, up to [`Tuning::lag_max`]; one that was
//!   idle for longer starts at the present virtual time. Nobody is in debt for more than its own last request.
//! * While jobs stay queued, two of them differ in service / share by at most one request each.
//! * A job that is behind by more than [`Tuning::lag_free`], has nothing queued, and is due back soon is waited for; see
//!   [`activity`](crate::activity) for when and for what it may cost. With several workers this also keeps a
//!   job with many processes from running ahead of one whose only request is in service.
//!
//! *The price of anticipation.* Let a job of one process have service time s and think time z. Alone on a
//! target it uses s / (s + z) of it; sharing it half and half with others, it is waited for at most z for every
//! 2 s of service. For z = 50 us and s = 100 us that is a fifth of the target; for 1 MiB requests (s = 1 ms), 2 %.
//! On a target that serves several requests at a time, holding back the others to the pace of a job that cannot
//! use its share costs them what the job does not use. The budget caps all of this at a third.
//!
//! *Arithmetic.* Tags are `u128` in units of 2⁻¹⁶ ns of service at pace 1. They only ever grow by sums, exactly;
//! each increment is rounded once, by less than one part in 2⁵². With the slowest pace, 10⁻¹², a job would need
//! 10¹⁴ s of service to reach the end of the range.

use crate::activity::{Habit, Patience, SERVICE_PER_HOLD};
use crate::arbiter::{Arbiter, EnqueueError, Next, Request};
use crate::roster::Roster;
use crate::spec::Level;
use crate::turns::{SMALLEST_MAX, Turn, Turns};
use crate::{RequestId, Tuning};
use isonomia_units::{JobId, JobInfo, Nanos};

const TAG_UNITS_PER_NS: f64 = 65_536.0;
/// The slowest pace that is told apart; slower jobs are charged at this one.
const PACE_MIN: f64 = 1e-12;
/// The budget for holds at the start and at most, in longest holds of an idle target.
const BUDGET_HOLDS_MAX: u64 = 8;

pub(crate) struct VirtualTime {
    roster: Roster,
    tuning: Tuning,
    /// By slot.
    accounts: Vec<Account>,
    /// Jobs with something queued.
    turns: Turns,
    /// Jobs with nothing queued that are worth waiting for, the one furthest behind first.
    awaited: Turns,
    virtual_time: u128,
    hold: Option<Hold>,
    /// Service that holds may still forgo, in ns; overdrawn by one hold at most.
    budget: i64,
    budget_max: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    tag: u128,
    last_cost: Nanos,
    habit: Habit,
}

/// A worker was refused for the sake of `slot`, and nothing was dispatched since `since`.
#[derive(Clone, Copy, Debug)]
struct Hold {
    since: Nanos,
    /// Until when it has been paid for.
    paid: Nanos,
    slot: u32,
}

impl VirtualTime {
    pub(crate) fn new(levels: &[Level], tuning: Tuning) -> Self {
        Self {
            roster: Roster::new(levels, tuning.active_window),
            tuning,
            accounts: Vec::new(),
            turns: Turns::default(),
            awaited: Turns::default(),
            virtual_time: 0,
            hold: None,
            budget: budget_max(&tuning),
            budget_max: budget_max(&tuning),
        }
    }

    fn advance(&mut self, now: Nanos) -> Nanos {
        let now = self.roster.advance(now);
        while let Some(slot) = self.roster.expire_one() {
            self.forget_awaited(slot);
        }
        now
    }

    /// Virtual time that `service` takes at the job's present pace.
    fn span(&self, slot: u32, service: Nanos) -> u128 {
        let span = service.0 as f64 * TAG_UNITS_PER_NS / self.roster.pace(slot).max(PACE_MIN);
        // The conversion to 64 bits is one instruction, the other one a call.
        if span < u64::MAX as f64 { u128::from(span as u64) } else { span as u128 }
    }

    /// Brings the tag of a job that had nothing queued into the bounds of what it can owe or be owed.
    fn bound_tag(&mut self, slot: u32, activated: bool) {
        let account = self.accounts[slot as usize];
        let bounded = if account.tag > self.virtual_time {
            account.tag.min(self.virtual_time.saturating_add(self.span(slot, account.last_cost)))
        } else if activated {
            self.virtual_time
        } else {
            account.tag.max(self.virtual_time.saturating_sub(self.span(slot, self.tuning.lag_max)))
        };
        self.accounts[slot as usize].tag = bounded;
    }

    fn dispatch(&mut self, now: Nanos, slot: u32) -> Next {
        self.hold = None;
        let Some((request, cost, more)) = self.roster.dispatch(slot) else { return Next::Idle };
        self.budget = (self.budget + (cost.0 / SERVICE_PER_HOLD) as i64).min(self.budget_max);
        let span = self.span(slot, cost);
        let account = &mut self.accounts[slot as usize];
        self.virtual_time = self.virtual_time.max(account.tag);
        account.tag = account.tag.saturating_add(span);
        account.last_cost = cost;
        account.habit.dispatch(now, self.roster.job(slot).in_flight - 1);
        if more {
            self.turns.set(slot, (account.tag, request.job));
        } else {
            self.turns.remove(slot);
            self.consider_awaiting(slot);
        }
        Next::Dispatch(request)
    }

    /// Until when the turn of the job at `front` is held for another one; `None` if it is not.
    fn hold(&mut self, now: Nanos, front: Turn) -> Option<Nanos> {
        if self.budget <= 0 {
            return None;
        }
        let since = self.hold.map_or(now, |hold| hold.since);
        let end = since + self.tuning.hold_max;
        for _ in 0..SMALLEST_MAX {
            let (slot, patience) = self.first_awaited(now, front)?;
            let until = match patience {
                Patience::Until(until) => until.min(end),
                _ => end,
            };
            if now >= end || patience == Patience::Overdue {
                self.give_up(slot, front);
            } else {
                self.hold = Some(Hold { since, paid: now, slot });
                return Some(until);
            }
            if now >= end {
                return None;
            }
        }
        None
    }

    /// The job furthest behind `front` that can be waited for, or that was and is overdue.
    fn first_awaited(&self, now: Nanos, front: Turn) -> Option<(u32, Patience)> {
        if self.awaited.first()?.0.0 >= front.0 {
            return None;
        }
        let behind = self.awaited.smallest().take_while(|(turn, _)| turn.0 < front.0);
        behind
            .filter(|&(turn, slot)| turn.0.saturating_add(self.span(slot, self.tuning.lag_free)) < front.0)
            .map(|(_, slot)| {
                let in_flight = self.roster.job(slot).in_flight > 0;
                (slot, self.accounts[slot as usize].habit.patience(now, in_flight, self.tuning.hold_max))
            })
            .find(|(_, patience)| *patience != Patience::Later)
    }

    /// Stops waiting for a job. If it was waited for and did not come, it loses what it was owed beyond
    /// [`Tuning::lag_free`].
    fn give_up(&mut self, slot: u32, front: Turn) {
        self.forget_awaited(slot);
        if self.hold.is_none_or(|hold| hold.slot != slot) {
            return;
        }
        let in_flight = self.roster.job(slot).in_flight > 0;
        let owed_from = front.0.saturating_sub(self.span(slot, self.tuning.lag_free));
        let account = &mut self.accounts[slot as usize];
        if account.habit.miss(in_flight) {
            account.tag = account.tag.max(owed_from);
        }
    }

    /// Pays for the hold up to now. To be called before the number of requests in flight changes.
    fn pay_hold(&mut self, now: Nanos) {
        if let Some(hold) = &mut self.hold {
            let forgone = u64::from(self.tuning.parallel.max(1).saturating_sub(self.roster.in_flight()));
            let price = now.since(hold.paid).0.min(self.tuning.hold_max.0).saturating_mul(forgone);
            self.budget -= i64::try_from(price).unwrap_or(i64::MAX).min(self.budget_max);
            hold.paid = now;
        }
    }

    /// Puts a job that is active and has nothing queued among the awaited, if it is worth it and not there.
    /// Its tag does not change while it is.
    fn consider_awaiting(&mut self, slot: u32) {
        let job = self.roster.job(slot);
        let account = &self.accounts[slot as usize];
        if account.habit.is_prompt(self.tuning.hold_max) && !self.awaited.contains(slot) {
            self.awaited.set(slot, (account.tag, job.id));
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
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        self.advance(now);
        let Some((slot, queue)) = self.roster.remove_job(job) else { return Vec::new() };
        self.turns.remove(slot);
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
            let account = &mut self.accounts[slot as usize];
            account.habit.arrive(now, self.tuning.hold_max);
            self.turns.set(slot, (account.tag, request.job));
        }
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        let now = self.advance(now);
        self.pay_hold(now);
        let Some((front, slot)) = self.turns.first() else {
            self.hold = None;
            return Next::Idle;
        };
        if !self.awaited.is_empty()
            && let Some(until) = self.hold(now, front)
        {
            return Next::WaitUntil(until);
        }
        self.dispatch(now, slot)
    }

    fn complete(&mut self, now: Nanos, _request: RequestId, job: JobId) {
        let now = self.advance(now);
        self.pay_hold(now);
        let Some(slot) = self.roster.complete(job) else { return };
        let others = self.roster.job(slot).in_flight;
        self.accounts[slot as usize].habit.complete(now, others);
        if !self.roster.job(slot).has_queued() {
            self.consider_awaiting(slot);
        }
    }

    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool {
        self.advance(now);
        let Some(slot) = self.roster.cancel(request, job) else { return false };
        if !self.roster.job(slot).has_queued() {
            self.turns.remove(slot);
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

    fn drain(&mut self) -> Vec<Request> {
        self.turns.clear();
        self.roster.drain()
    }
}

/// The most that can be saved up for holds.
fn budget_max(tuning: &Tuning) -> i64 {
    let service = tuning.hold_max.0.saturating_mul(BUDGET_HOLDS_MAX).saturating_mul(u64::from(tuning.parallel.max(1)));
    i64::try_from(service).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}
