//! Whose the time of a device is while it has several requests in service.
//!
//! While n requests are in service, each is attributed 1/n of every instant: a device that is busy for a second gives away
//! one second, however many it serves at once, and nobody has to know how it works. A request's *attributed time* is
//! what it was given between its begin and its end. Everything is O(1): the integral of 1/n over time is kept, and a
//! request is attributed the difference between its value at both moments.
//!
//! **Nothing is lost and nothing is given twice.** *Whenever nothing is in service, the sum of all attributed times is
//! the time that the device was busy, less than a nanosecond short of it.* Why: between two changes of n, the integral
//! grows by (t + r) / n in units of 2⁻³² ns, rounded down, and the remainder r is added to the next span; n requests
//! are given as much each, so what was given and r together are the time that has passed. With n = 1 the remainder is 0.
//! What a request has beyond whole nanoseconds is added to the next one that ends.
//!
//! **Shares hold in attributed time, whatever the prices.** A request is charged a prediction p when it is dispatched,
//! and the account of its job is corrected by a − p when it ends with the attributed time a
//! ([`Arbiter::correct`](crate::Arbiter::correct)). Let two jobs stay queued while nobody's share changes, and let
//! T = (attributed times of all its dispatched requests, those in service with what they are going to have) / pace for each
//! of them. *Then the two T have grown by the same, but for*
//!
//! * *one request's a / pace, and*
//! * *the errors in service: the sum of |a − p| / pace over those requests of the two jobs that were in service at one
//!   moment. There are never more than the depth of the target.*
//!
//! Why: the tag of a job, by which the virtual-time draw decides, is T but for the errors of its requests in service: a
//! correction moves the tag to where it would be if the charge had been right, and leaves T as it is. So T changes only when
//! a request is dispatched, which needs that the job's tag is not greater than the other's: its T is then ahead of the
//! other by no more than the errors in service of both; afterwards by a / pace more; and until its next dispatch the
//! other's T only grows. Errors do not add up over time: however wrong the model, what is off is off by what is in
//! service. A model that is right makes the second term vanish, which is all that it is good for.
//!
//! **What time is worth.** Requests of a target that memory serves are charged the work of serving them, which is not the
//! device's time: a millisecond of a device that is otherwise idle must not cost a job a thousand reads from memory. So
//! attributed time is charged at a rate, the [`Worth`] of the device's time, which is the same for all: the work of the
//! requests that the device did lately over the time that they were attributed. Together they are charged their work, and
//! among themselves they divide it by time: what is said above holds of time at that rate.
//!
//! What is *not* promised: that attributed time is what a request would have taken alone. On a device that queues what it
//! is given, the small request behind a large one has as long a time in service. That is one more reason for a depth
//! that is no greater than the device needs ([`DepthControl`](crate::DepthControl)). Nor is a job that has nothing queued
//! owed more than the arbiter owes to one that returns.
//!
//! Sharing the time of a processor among those that it serves at once is Kleinrock's (*Time-shared Systems*, JACM 1967).
//! FlashFQ (Shen and Park, USENIX ATC 2013) and SFQ(D) (Jin, Chase, Kaur, SIGMETRICS 2004) bound unfairness for several
//! requests in service by their costs, which there have to be known.

use isonomia_units::Nanos;

/// Parts of a nanosecond that are told apart.
const PARTS: u128 = 1 << 32;

/// The time of one device, divided among the requests that it serves.
#[derive(Clone, Debug, Default)]
pub struct Attribution {
    in_service: u32,
    now: Nanos,
    /// What a request that was in service for all of the time has been given, in 2⁻³² ns.
    given: u128,
    /// What could not be divided, in 2⁻³² ns; less than one for each in service.
    remainder: u128,
    /// What requests that ended had beyond whole nanoseconds, in 2⁻³² ns; less than one nanosecond.
    fraction: u128,
    busy: Nanos,
}

/// A request that is in service; to be handed in when it ends.
#[derive(Debug, PartialEq, Eq)]
pub struct Entered {
    given: u128,
    at: Nanos,
}

impl Entered {
    /// When it began.
    pub fn at(&self) -> Nanos {
        self.at
    }
}

impl Attribution {
    /// A device that has nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// A request is in service from now on. An earlier time than any before counts as the latest.
    pub fn enter(&mut self, now: Nanos) -> Entered {
        self.advance(now);
        self.in_service += 1;
        Entered { given: self.given, at: self.now }
    }

    /// It is no longer. Gives what it is attributed.
    pub fn leave(&mut self, now: Nanos, entered: Entered) -> Nanos {
        self.advance(now);
        self.in_service = self.in_service.saturating_sub(1);
        let parts = self.given.saturating_sub(entered.given) + self.fraction;
        self.fraction = parts % PARTS;
        Nanos(u64::try_from(parts / PARTS).unwrap_or(u64::MAX))
    }

    /// Requests in service.
    pub fn in_service(&self) -> u32 {
        self.in_service
    }

    /// How long anything was in service, up to the latest time that was passed in.
    pub fn busy(&self) -> Nanos {
        self.busy
    }

    fn advance(&mut self, now: Nanos) {
        let passed = now.since(self.now);
        self.now = self.now.max(now);
        if self.in_service > 0 {
            self.busy += passed;
            let parts = u128::from(passed.0) * PARTS + self.remainder;
            self.given += parts / u128::from(self.in_service);
            self.remainder = parts % u128::from(self.in_service);
        }
    }
}

/// A request changes the rate by one part in so many.
const WORTH_MEMORY: f64 = 256.0;

/// What the device's time is worth in work: see the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Worth {
    work_ns: f64,
    attributed_ns: f64,
}

impl Worth {
    /// A request that is worth `work` was attributed so much.
    pub fn note(&mut self, work: Nanos, attributed: Nanos) {
        let fade = 1.0 - 1.0 / WORTH_MEMORY;
        self.work_ns = self.work_ns * fade + work.0 as f64;
        self.attributed_ns = self.attributed_ns * fade + attributed.0 as f64;
    }

    /// Of a nanosecond; 1 before anything is known.
    pub fn rate(&self) -> f64 {
        if self.work_ns > 0.0 && self.attributed_ns > 0.0 { self.work_ns / self.attributed_ns } else { 1.0 }
    }

    /// Of this much time.
    pub fn of(&self, time: Nanos) -> Nanos {
        Nanos((time.0 as f64 * self.rate()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn those_in_service_are_given_equal_parts() {
        let mut device = Attribution::new();
        let first = device.enter(Nanos(100));
        let second = device.enter(Nanos(160));
        assert_eq!(device.leave(Nanos(200), first), Nanos(60 + 20));
        assert_eq!(device.leave(Nanos(210), second), Nanos(20 + 10));
        // Nothing is in service for a while.
        let third = device.enter(Nanos(1_000));
        assert_eq!(device.leave(Nanos(1_007), third), Nanos(7));
        assert_eq!((device.busy(), device.in_service()), (Nanos(117), 0));
    }

    #[test]
    fn all_together_are_charged_their_work_and_divide_it_by_time() {
        let mut worth = Worth::default();
        assert_eq!(worth.of(Nanos(7)), Nanos(7));
        let (mut work, mut charged) = ([0; 2], [0; 2]);
        for at in 0..20_000 {
            // Both are taken for the same; the device takes three times as long for one of them.
            let (kind, attributed) = if at % 2 == 0 { (0, Nanos(1_000_000)) } else { (1, Nanos(3_000_000)) };
            worth.note(Nanos(2_000), attributed);
            work[kind] += 2_000;
            charged[kind] += worth.of(attributed).0;
        }
        let [total, all] = [work, charged].map(|of| of.iter().sum::<u64>() as f64);
        assert!((all / total - 1.0).abs() < 0.01, "{all} of {total}");
        assert!((charged[1] as f64 / charged[0] as f64 / 3.0 - 1.0).abs() < 0.02, "{charged:?}");
    }

    #[test]
    fn a_clock_that_goes_back_stands_still() {
        let mut device = Attribution::new();
        let entered = device.enter(Nanos(100));
        let other = device.enter(Nanos(50));
        assert_eq!(device.leave(Nanos(90), entered), Nanos(0));
        assert_eq!(device.leave(Nanos(110), other), Nanos(10));
    }

    proptest! {
        /// Whatever comes and goes, and in whatever order.
        #[test]
        fn what_is_attributed_is_the_time_that_the_device_was_busy(
            steps in prop::collection::vec((0u64..5_000_000_000, any::<prop::sample::Index>(), 0u8..5), 1..400),
        ) {
            let mut device = Attribution::new();
            let (mut now, mut sum, mut in_service) = (Nanos::ZERO, Nanos::ZERO, Vec::new());
            for (passed, which, ends) in steps {
                now += Nanos(passed);
                if ends < 2 && !in_service.is_empty() {
                    let at = which.index(in_service.len());
                    sum += device.leave(now, in_service.swap_remove(at));
                } else {
                    in_service.push(device.enter(now));
                }
                if in_service.is_empty() {
                    prop_assert!(sum == device.busy() || sum + Nanos(1) == device.busy(), "{} of {}", sum, device.busy());
                }
            }
            in_service.into_iter().for_each(|entered| sum += device.leave(now, entered));
            prop_assert!(sum == device.busy() || sum + Nanos(1) == device.busy(), "{} of {}", sum, device.busy());
        }
    }
}
