//! `mclock`: a reservation, a limit, and a weight for each class.
//!
//! Gulati, Merchant, Varman: *mClock: Handling Throughput Variability for Hypervisor IO Scheduling*, OSDI 2010,
//! Algorithm 1. A class has three tags. Those behind their reservations are served first, by reservation tag; then
//! those below their limits, by weight tag. What is served by weight is not charged to the reservation. The
//! differences:
//!
//! * Tags advance by cost, in bytes of service ([`Tuning::bandwidth`]), not by one a request, and are kept for the
//!   first request of a class (as in the *delayed* tags of the dmClock library).
//! * A limit applies to reserved service too. A class is owed what it missed of its limit while others were served, up
//!   to [`Tuning::lag_max`]: in any span of time w it is served at most limit · (w + lag_max) and one request. (In the
//!   paper what is missed while a request waits is owed without bound.) Limits above reservations are the paper's
//!   presumption; here a policy in which one is not is refused.
//! * Weight tags are in virtual time (start-time fair queueing); the paper's are in wall-clock time and are shifted
//!   when a class returns, to the same end. The service of a reservation puts nobody in debt there for more than
//!   [`Tuning::lag_max`].
//! * A class that returns within [`Tuning::active_window`] keeps what it was owed of its reservation, up to
//!   [`Tuning::lag_max`]: a synchronous process has nothing queued while its answer is on the way.
//!
//! A job without a rule has a weight of one, and neither reservation nor limit. If the reservations of the classes that
//! are queued sum to no more than the target's bandwidth, each class receives its own, but for one request of
//! each class and one that is in service. Every decision is O(log classes).

use crate::arbiter::{Arbiter, EnqueueError, Next, Request};
use crate::limits::classes::{self, Classes};
use crate::queueing::tag_heap::TagHeap;
use crate::spec::rates::Scope;
use crate::spec::scheme::{Qos, Rule};
use crate::{RequestId, Tuning};
use isonomia_units::{JobId, JobInfo, Nanos, Rate};

const WEIGHT_TAG_UNITS_PER_NS: f64 = 65_536.0;

pub(crate) struct MClock {
    classes: Classes<Qos, Tags>,
    tuning: Tuning,
    /// Classes with something queued: those at their limits, by the time that they no longer are;
    limited: TagHeap,
    /// those that are not and have a reservation, by reservation tag;
    reserved: TagHeap,
    /// and all that are not, by weight tag.
    weighted: TagHeap,
    virtual_time: u128,
}

/// One class's tags, each the start of its next request.
#[derive(Clone, Copy, Debug)]
struct Tags {
    reservation: Nanos,
    limit: Nanos,
    weight: u128,
    /// Time at the reserved rate that one ns of service takes, if there is a reservation.
    reserved_pace: Option<f64>,
    /// The same at the limit; zero without one.
    limit_pace: f64,
    /// Units of the weight tag that one ns of service takes.
    weight_pace: f64,
}

impl MClock {
    pub(crate) fn new(rules: &[Rule<Qos>], tuning: Tuning) -> Self {
        let rule = |rule: &Rule<Qos>| {
            let scope = Scope::of(rule.selector.clone());
            classes::Rule { scope, below: None, is_for_requests: false, value: rule.value }
        };
        Self {
            classes: Classes::new(rules.iter().map(rule).collect(), tuning.active_window),
            tuning,
            limited: TagHeap::default(),
            reserved: TagHeap::default(),
            weighted: TagHeap::default(),
            virtual_time: 0,
        }
    }

    /// Brings the books of a class in line with its queue.
    fn settle(&mut self, now: Nanos, class: u32) {
        let tags = *self.classes.state(class);
        let has_queued = self.classes.has_queued(class);
        let may_go = has_queued && tags.limit <= now;
        let set = |heap: &mut TagHeap, is_in: bool, tag: u128| {
            if is_in { heap.set(class, (tag, JobId(class))) } else { heap.remove(class) }
        };
        set(&mut self.limited, has_queued && !may_go, u128::from(tags.limit.0));
        set(&mut self.reserved, may_go && tags.reserved_pace.is_some(), u128::from(tags.reservation.0));
        set(&mut self.weighted, may_go, tags.weight);
    }

    fn dispatch(&mut self, now: Nanos, class: u32, is_reserved: bool) -> Next {
        let Some((request, cost)) = self.classes.dispatch(now, class) else { return Next::Idle };
        let tags = self.classes.state_mut(class);
        if is_reserved {
            tags.reservation += tags.reserved_span(cost);
        } else {
            self.virtual_time = self.virtual_time.max(tags.weight);
        }
        tags.limit = tags.limit.max(now - self.tuning.lag_max) + tags.limit_span(cost);
        let ahead_max = self.virtual_time + tags.weight_span(cost.max(self.tuning.lag_max));
        tags.weight = (tags.weight + tags.weight_span(cost)).min(ahead_max.max(tags.weight));
        self.settle(now, class);
        Next::Dispatch(request)
    }
}

impl Tags {
    fn new(qos: &Qos, bandwidth: Rate) -> Self {
        let pace = |rate: Rate| bandwidth.bytes_per_s() as f64 / rate.bytes_per_s() as f64;
        Self {
            reservation: Nanos::ZERO,
            limit: Nanos::ZERO,
            weight: 0,
            reserved_pace: qos.reservation.map(pace),
            limit_pace: qos.limit.map_or(0.0, pace),
            weight_pace: WEIGHT_TAG_UNITS_PER_NS * 1e6 / qos.weight.micros() as f64,
        }
    }

    /// Time in which the reservation gives `service`, rounded down: a reservation is not less than it says.
    fn reserved_span(&self, service: Nanos) -> Nanos {
        Nanos((service.0 as f64 * self.reserved_pace.unwrap_or(0.0)) as u64)
    }

    /// Time in which the limit allows `service`, rounded up: a limit is not more than it says.
    fn limit_span(&self, service: Nanos) -> Nanos {
        Nanos((service.0 as f64 * self.limit_pace).ceil() as u64)
    }

    fn weight_span(&self, service: Nanos) -> u128 {
        (service.0 as f64 * self.weight_pace) as u128
    }
}

impl Arbiter for MClock {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        let now = self.classes.advance(now);
        let Tuning { bandwidth, lag_max, .. } = self.tuning;
        let changed = self.classes.set_job(
            now,
            job,
            info,
            |of| Tags::new(of.map_or(&Qos::DEFAULT, |(qos, ..)| qos), bandwidth),
            |tags| tags.limit <= now - lag_max,
        );
        changed.into_iter().for_each(|class| self.settle(now, class));
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        let now = self.classes.advance(now);
        let Some((classes, queue)) = self.classes.remove_job(now, job) else { return Vec::new() };
        classes.into_iter().for_each(|class| self.settle(now, class));
        queue
    }

    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError> {
        let now = self.classes.advance(now);
        let arrival = self.classes.enqueue(now, request)?;
        if arrival.first {
            let virtual_time = self.virtual_time;
            let owed = if arrival.returned { Nanos::ZERO } else { self.tuning.lag_max };
            let tags = self.classes.state_mut(arrival.class);
            tags.reservation = tags.reservation.max(now - owed);
            tags.weight = tags.weight.max(virtual_time.saturating_sub(tags.weight_span(owed)));
            self.settle(now, arrival.class);
        }
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        let now = self.classes.advance(now);
        while let Some(((until, _), class)) = self.limited.first()
            && until <= u128::from(now.0)
        {
            self.settle(now, class);
        }
        match (self.reserved.first(), self.weighted.first(), self.limited.first()) {
            (Some(((tag, _), class)), ..) if tag <= u128::from(now.0) => self.dispatch(now, class, true),
            (_, Some((_, class)), _) => self.dispatch(now, class, false),
            (_, None, Some(((until, _), _))) => Next::WaitUntil(Nanos(until as u64)),
            (_, None, None) => Next::Idle,
        }
    }

    fn complete(&mut self, now: Nanos, request: RequestId, job: JobId) {
        let now = self.classes.advance(now);
        self.classes.complete(now, request, job);
    }

    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool {
        let now = self.classes.advance(now);
        let Some(class) = self.classes.cancel(now, request, job) else { return false };
        self.settle(now, class);
        true
    }

    fn queued(&self) -> usize {
        self.classes.queued()
    }

    fn queued_of(&self, job: JobId) -> usize {
        self.classes.queued_of(job)
    }

    fn shares(&self, _now: Nanos) -> Vec<(JobId, f64)> {
        Vec::new()
    }

    fn drain(&mut self) -> Vec<Request> {
        self.limited.clear();
        self.reserved.clear();
        self.weighted.clear();
        self.classes.drain()
    }
}
