//! The hold that a target is in, if it is in one, and the budget that holds are paid from; see
//! [`activity`](super::activity) for the bounds that this upholds.

use crate::Tuning;
use crate::queueing::activity::{Patience, SERVICE_PER_HOLD};
use isonomia_units::Nanos;

/// On a device that serves many at once a hold may last for this part of what a request takes there, …
const HOLD_PART: u64 = 2;
/// … but no longer, unless [`Tuning::hold_max`] is.
const HOLD_LONGEST: Nanos = Nanos::from_millis(5);
/// Where all of a device is kept free, for as long as one request of a slow disk may take.
const HOLD_ALL_LONGEST: Nanos = Nanos::from_millis(20);
/// A request changes what the others are expected to take by one part in so many.
const WEIGHT: u64 = 16;
/// The budget for holds at the start and at most, in longest holds of an idle target.
const BUDGET_HOLDS_MAX: u64 = 8;

pub(crate) struct Holds {
    current: Option<Hold>,
    /// Service that holds may still forgo, in ns; overdrawn by one hold at most.
    budget: i64,
    budget_max: i64,
    hold_max: Nanos,
    parallel: u32,
    /// The target is a device whose time is divided among those in service, of which there are so many at most.
    depth: Option<u32>,
    /// What requests had of such a device lately, on average.
    attributed: Nanos,
}

/// A worker was refused for the sake of `slot`, and nothing was dispatched since `since`.
#[derive(Clone, Copy, Debug)]
struct Hold {
    since: Nanos,
    /// Until when it has been paid for.
    paid: Nanos,
    slot: u32,
    /// All of a device that serves many at once is kept free, not only a slot …
    keeps_all: bool,
    /// … for a request of the job itself, to which that time is charged.
    is_its_own: bool,
}

impl Holds {
    pub(crate) fn new(tuning: &Tuning) -> Self {
        let parallel = tuning.parallel.max(1);
        let service = tuning.hold_max.0.saturating_mul(BUDGET_HOLDS_MAX).saturating_mul(u64::from(parallel));
        let budget_max = i64::try_from(service).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        Self {
            current: None,
            budget: budget_max,
            budget_max,
            hold_max: tuning.hold_max,
            parallel,
            depth: None,
            attributed: Nanos::ZERO,
        }
    }

    /// Pays for the hold up to now. To be called before the number of requests in flight changes.
    pub(crate) fn pay(&mut self, now: Nanos, in_flight: u32) {
        let longest = self.hold_max();
        if let Some(hold) = &mut self.current {
            let time = now.since(hold.paid).min(longest).0;
            let price = match self.depth {
                Some(_) if hold.is_its_own => 0,
                // A slot that is kept free is a part of the device's time.
                Some(depth) => time.saturating_mul(u64::from(depth.saturating_sub(in_flight))) / u64::from(depth),
                None => time.saturating_mul(u64::from(self.parallel.saturating_sub(in_flight))),
            };
            self.budget -= i64::try_from(price).unwrap_or(i64::MAX).min(self.budget_max);
            hold.paid = now;
        }
    }

    /// A request that costs this went into service: the hold is over, and a part of the service is paid in.
    pub(crate) fn dispatched(&mut self, cost: Nanos) {
        self.current = None;
        self.pay_in(cost);
    }

    /// The device has worked for so long with a request, which is worth so much of what requests are charged: a part of what it took more than
    /// that is paid in, beside what was when it was dispatched.
    pub(crate) fn device_served(&mut self, time: Nanos, worth: Nanos) {
        self.attributed = Nanos(self.attributed.0 - self.attributed.0 / WEIGHT + time.0 / WEIGHT);
        self.pay_in(time.since(worth));
    }

    fn pay_in(&mut self, service: Nanos) {
        let budget_max = self
            .budget_max
            .max(i64::try_from(self.hold_max().0.saturating_mul(BUDGET_HOLDS_MAX)).unwrap_or(i64::MAX / 4));
        self.budget = (self.budget + (service.0 / SERVICE_PER_HOLD) as i64).min(budget_max);
    }

    /// The longest hold. What a job may think for is little or much beside what its requests take.
    pub(crate) fn hold_max(&self) -> Nanos {
        let of_service = |depth: u32| Nanos(self.attributed.0.saturating_mul(depth.into()) / HOLD_PART);
        self.depth.map_or(self.hold_max, |depth| of_service(depth).min(HOLD_LONGEST).max(self.hold_max))
    }

    /// See [`Arbiter::set_depth`](crate::Arbiter::set_depth).
    pub(crate) fn set_depth(&mut self, depth: u32) {
        self.depth = Some(depth.max(1));
    }

    /// Whether the target is such a device.
    pub(crate) fn has_depth(&self) -> bool {
        self.depth.is_some()
    }

    /// Whether a slot is left for the job that is waited for when somebody else takes one.
    pub(crate) fn leaves_a_slot(&self, in_flight: u32) -> bool {
        self.depth.is_some_and(|depth| in_flight + 1 < depth)
    }

    /// Until when to wait for a job of this patience in a hold that ends at `end` at the latest; `None` if it is not waited for. With
    /// `keeps_all` nobody else is served beside it either.
    pub(crate) fn until(&self, patience: Patience, end: Nanos, keeps_all: bool) -> Option<Nanos> {
        match patience {
            Patience::Until(until) => Some(until.min(end)),
            Patience::InFlight | Patience::Later if keeps_all => Some(end),
            // On a device that serves many at once it has a slot, which it will find free.
            Patience::InFlight if !self.has_depth() => Some(end),
            Patience::InFlight | Patience::Later | Patience::Overdue => None,
        }
    }

    /// Nothing is queued that could wait.
    pub(crate) fn clear(&mut self) {
        self.current = None;
    }

    /// Whether there is something in the budget.
    pub(crate) fn can_afford(&self) -> bool {
        self.budget > 0
    }

    /// When a hold that goes on or begins now has to end; one that `keeps_all` lasts as long as a request may.
    pub(crate) fn end(&self, now: Nanos, keeps_all: bool) -> Nanos {
        let longest = if keeps_all { HOLD_ALL_LONGEST } else { self.hold_max() };
        self.current.map_or(now, |hold| hold.since) + longest
    }

    /// Holds the turn for the job in `slot`, from now or as before.
    pub(crate) fn hold(&mut self, now: Nanos, slot: u32) {
        let since = self.current.map_or(now, |hold| hold.since);
        self.current = Some(Hold { since, paid: now, slot, keeps_all: false, is_its_own: false });
    }

    /// The same, and keeps all of the device free for it, not only a slot. If it `is_in_flight`, [`Self::ended`] tells when that is over.
    pub(crate) fn hold_all(&mut self, now: Nanos, slot: u32, is_in_flight: bool) {
        self.hold(now, slot);
        self.current = self.current.map(|hold| Hold { keeps_all: true, is_its_own: is_in_flight, ..hold });
    }

    /// No request of the job in `slot` is in service any more.
    pub(crate) fn ended(&mut self, slot: u32) {
        if let Some(hold) = self.current.as_mut().filter(|hold| hold.slot == slot) {
            hold.is_its_own = false;
        }
    }

    /// For whom all of a device is kept free that serves many at once.
    pub(crate) fn keeps_all_for(&self) -> Option<u32> {
        self.current.filter(|hold| hold.keeps_all).map(|hold| hold.slot)
    }

    /// Whether the turn is held for the job in `slot`.
    pub(crate) fn is_for(&self, slot: u32) -> bool {
        self.current.is_some_and(|hold| hold.slot == slot)
    }
}
