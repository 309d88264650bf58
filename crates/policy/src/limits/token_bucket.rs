//! `tbf`: token buckets, each filled with credit at the rate of its rule and emptied by what its class is served.
//!
//! After the token bucket filter of Lustre's network request scheduler (Qian et al., *A Configurable Rule Based
//! Classful Token Bucket Filter Network Request Scheduler for the Lustre File System*, SC 2017), with its two
//! additions: *hard token compensation* (HTC, `realtime`) and *proportional sharing of spare bandwidth* (PSSB,
//! `spare=proportional`). The differences:
//!
//! * Rates are in bytes read and written per second, or in operations. They apply to the whole system and not for each partition of
//!   each target: a target has a [part](Arbiter::set_rate_parts) of each, which follows where the demand is
//!   ([`exchange::rates`](crate::exchange::rates)). The first rule that selects a request decides, not the newest.
//! * A bucket is a *theoretical arrival time*, as in the generic cell rate algorithm: exact at any moment, with nothing
//!   to fill. A request is due when its bucket holds what it counts, or is full. So in any span of time w a class is
//!   served at most rate · w + the burst, or + its largest request if that is larger than the burst.
//! * Requests that are due are served in the order of their deadlines: when they became due. Without `realtime` a bucket
//!   holds at most the burst, so what a late class missed is lost. With it credit is not capped while the class is
//!   busy, and its deadlines stay where they were: it is ahead of all others until it has what it missed. A class that
//!   was idle for [`Tuning::active_window`] starts anew; Lustre lets the credit of idle time grow for ever.
//! * What no rule selects, or one exempts, has no limit: it is due whenever it asks. So is what a server does by itself.
//! * `spare=proportional` never leaves the target idle. First come the `realtime` classes that are due, by their
//!   deadlines; then all, in proportion to their rates (start-time fair queueing of service, whatever it does). Thus for a
//!   capacity C and active rates rᵢ with sum R: if R ≤ C every class receives rᵢ · C / R; otherwise `realtime` classes receive rᵢ, and
//!   the others share the rest in proportion. C need not be known, and may change.
//!
//! Every decision is O(log classes), but for what [`classes`] say.

use crate::arbiter::{Arbiter, EnqueueError, Next, Request};
use crate::exchange::rates::{Parts, RateReport};
use crate::limits::classes::{self, Classes};
use crate::queueing::tag_heap::TagHeap;
use crate::spec::rates::{Allowance, Amount, Spare, TokenBucket};
use crate::{RequestId, Tuning};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use std::sync::Arc;

/// A bucket of a rate in operations holds what the rate gives in this part of a second,
const OPERATIONS_BURST_S: f64 = 0.01;
/// and so many operations at least, Lustre's depth.
const OPERATIONS_BURST_MIN: f64 = 3.0;

pub(crate) struct TokenBuckets {
    classes: Classes<Option<Allowance>, Bucket>,
    tuning: Tuning,
    burst: Bytes,
    spare: Spare,
    parts: Parts,
    /// Classes with something queued by the time that it is due; under `spare=proportional` the `realtime` ones.
    deadlines: TagHeap,
    /// Under `spare=proportional`, classes with something queued by their position in fair queueing.
    fair: TagHeap,
    virtual_time: u128,
}

/// One class's credit.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// What it may have; nothing without a limit.
    amount: Option<Amount>,
    realtime: bool,
    /// The part of the rate that it has here, above 0.
    part: f64,
    /// What it holds, in what the rate counts.
    burst: f64,
    /// When the bucket is or was full: the theoretical arrival time.
    full_at: Nanos,
    /// Time at its rate that one ns of service takes in fair queueing; zero without a limit.
    pace: f64,
    /// Start tag in fair queueing, in ns of service at the class's rate.
    tag: u128,
    /// What it was served.
    served: Served,
}

/// What a class was served since the arbiter was made.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    bytes: u64,
    operations: u64,
}

impl TokenBuckets {
    pub(crate) fn new(spec: &TokenBucket, tuning: Tuning) -> Self {
        let prefixes = spec.prefixes();
        let rules = spec.rules.iter().map(|rule| {
            let mut scope = rule.scope.clone();
            if spec.spare == Spare::Unused {
                scope.operations = Some(scope.operations_under(rule.allowance.as_ref()).to_vec());
            }
            let index = |path: &Arc<str>| prefixes.iter().position(|other| other == path);
            let below = scope.path.as_ref().and_then(index).map(|at| 1 << at);
            classes::Rule { scope, below, is_for_requests: true, value: rule.allowance }
        });
        Self {
            classes: Classes::new(rules.collect(), tuning.active_window),
            tuning,
            burst: spec.burst,
            spare: spec.spare,
            parts: Parts::whole(),
            deadlines: TagHeap::default(),
            fair: TagHeap::default(),
            virtual_time: 0,
        }
    }

    /// Brings the books of a class in line with its queue, at `now` when its first request became the first.
    fn settle(&mut self, now: Nanos, class: u32) {
        let Some(first) = self.classes.first(class) else {
            self.deadlines.remove(class);
            self.fair.remove(class);
            return self.classes.set_hold(now, class, None);
        };
        let bucket = *self.classes.state(class);
        let due = bucket.due(first);
        if self.spare == Spare::Proportional {
            self.fair.set(class, (bucket.tag, JobId(class)));
        }
        if self.spare == Spare::Unused || bucket.realtime {
            let deadline = if bucket.realtime { due } else { due.max(now) };
            self.deadlines.set(class, (u128::from(deadline.0), JobId(class)));
        }
        // Where what is spare is shared, nobody waits because of a rule alone.
        let is_held = self.spare == Spare::Unused && due > now;
        self.classes.set_hold(now, class, is_held.then_some(due));
    }

    /// Serves a class's first request: because it is due, or from what is spare.
    fn dispatch(&mut self, now: Nanos, class: u32, is_spare: bool) -> Next {
        let Some((request, cost)) = self.classes.dispatch(now, class) else { return Next::Idle };
        let bucket = self.classes.state_mut(class);
        bucket.served.bytes += request.bytes.0;
        bucket.served.operations += u64::from(request.nature.operations);
        if is_spare {
            self.virtual_time = self.virtual_time.max(bucket.tag);
        } else {
            let from = if bucket.realtime { bucket.full_at } else { bucket.full_at.max(now) };
            bucket.full_at = from + bucket.span(&request);
        }
        // Service that was due counts in fair queueing, but does not put a class in debt for long.
        let ahead_max = self.virtual_time + u128::from(bucket.fair_span(cost.max(self.tuning.lag_max)).0);
        bucket.tag = (bucket.tag + u128::from(bucket.fair_span(cost).0)).min(ahead_max.max(bucket.tag));
        self.settle(now, class);
        Next::Dispatch(request)
    }
}

impl Bucket {
    fn new(allowance: Option<&Allowance>, part: f64, burst: Bytes, tuning: &Tuning) -> Self {
        let amount = allowance.map(|allowance| allowance.amount);
        let burst = match amount {
            Some(Amount::Operations(rate)) => (rate as f64 * OPERATIONS_BURST_S).max(OPERATIONS_BURST_MIN),
            Some(Amount::Bytes(_)) | None => burst.0 as f64,
        };
        Self {
            amount,
            realtime: allowance.is_some_and(|allowance| allowance.realtime),
            part,
            burst,
            full_at: Nanos::ZERO,
            pace: amount.map_or(0.0, |amount| tuning.bandwidth.bytes_per_s() as f64 / amount.per_s()),
            tag: 0,
            served: Served::default(),
        }
    }

    /// Time that its part of the rate takes for so much of what it counts, rounded up.
    fn time_for(&self, count: f64) -> Nanos {
        let Some(amount) = self.amount else { return Nanos::ZERO };
        Nanos((count * 1e9 / (amount.per_s() * self.part)).ceil() as u64)
    }

    fn span(&self, request: &Request) -> Nanos {
        self.amount.map_or(Nanos::ZERO, |amount| self.time_for(amount.of(request.bytes, request.nature) as f64))
    }

    /// When a request is due that is the first.
    fn due(&self, request: &Request) -> Nanos {
        let depth = self.time_for(self.burst);
        // In this order: with the smallest rates the depth is all the time that there is.
        self.full_at - depth.since(self.span(request))
    }

    /// Time in fair queueing in which the class's rate allows `service`, rounded up.
    fn fair_span(&self, service: Nanos) -> Nanos {
        Nanos((service.0 as f64 * self.pace).ceil() as u64)
    }

    /// Has another part of the rate from now on; what is missing until the bucket is full stays missing.
    fn set_part(&mut self, now: Nanos, part: f64) {
        let left = self.full_at.since(now);
        if left > Nanos::ZERO {
            self.full_at = now + Nanos((left.0 as f64 * self.part / part).ceil() as u64);
        }
        self.part = part;
    }
}

impl Arbiter for TokenBuckets {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        let now = self.classes.advance(now);
        let (burst, tuning, parts) = (self.burst, self.tuning, &self.parts);
        let bucket = |of: Option<(&Option<Allowance>, usize, &Arc<str>)>| {
            let allowance = of.and_then(|(allowance, ..)| allowance.as_ref());
            let part = of.map_or(1.0, |(_, rule, name)| parts.of(rule, name, allowance.map(|known| known.amount)));
            Bucket::new(allowance, part, burst, &tuning)
        };
        let changed = self.classes.set_job(now, job, info, bucket, |bucket| bucket.full_at <= now);
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
            let (virtual_time, lag_max) = (self.virtual_time, self.tuning.lag_max);
            let bucket = self.classes.state_mut(arrival.class);
            let mut owed = bucket.fair_span(lag_max);
            if arrival.returned {
                bucket.full_at = bucket.full_at.max(now);
                owed = Nanos::ZERO;
            }
            bucket.tag = bucket.tag.max(virtual_time.saturating_sub(u128::from(owed.0)));
            self.settle(now, arrival.class);
        }
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        let now = self.classes.advance(now);
        match (self.deadlines.first(), self.fair.first()) {
            (Some(((deadline, _), class)), _) if deadline <= u128::from(now.0) => self.dispatch(now, class, false),
            (_, Some((_, class))) => self.dispatch(now, class, true),
            (Some(((deadline, _), _)), None) => Next::WaitUntil(Nanos(deadline as u64)),
            (None, None) => Next::Idle,
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

    fn set_rate_parts(&mut self, now: Nanos, parts: &Parts) {
        let now = self.classes.advance(now);
        self.parts = parts.clone();
        for class in self.classes.numbers() {
            let Some((rule, name)) = self.classes.rule_of(class) else { continue };
            let part = parts.of(rule, name, self.classes.state(class).amount);
            self.classes.state_mut(class).set_part(now, part);
            self.settle(now, class);
        }
    }

    fn rates(&self, now: Nanos) -> Vec<RateReport> {
        let report = |class: classes::ClassReport<'_, Bucket>| {
            let bucket = class.state;
            Some(RateReport {
                rule: class.rule,
                class: class.name,
                amount: bucket.amount?,
                part: bucket.part,
                bytes: bucket.served.bytes,
                operations: bucket.served.operations,
                queued: class.queued as u64,
                backlog: class.backlog,
                held: class.held,
                is_held: class.is_held,
                jobs: class.jobs,
            })
        };
        self.classes.reports(now).into_iter().filter_map(report).collect()
    }

    fn drain(&mut self) -> Vec<Request> {
        self.deadlines.clear();
        self.fair.clear();
        self.classes.drain()
    }
}
