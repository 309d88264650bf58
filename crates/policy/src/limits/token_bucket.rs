//! `tbf`: token buckets, each filled with credit at the rate of its rule and emptied by the service of its class.
//!
//! After the token bucket filter of Lustre's network request scheduler (Qian et al., *A Configurable Rule Based
//! Classful Token Bucket Filter Network Request Scheduler for the Lustre File System*, SC 2017), with its two
//! additions: *hard token compensation* (HTC, `realtime`) and *proportional sharing of spare bandwidth* (PSSB,
//! `spare=proportional`). The differences:
//!
//! * Rates are in bytes per second of service ([`Tuning::bandwidth`]), not in requests, and hold for the target,
//!   not for each of its partitions. The first rule that selects a job decides, not the newest.
//! * A bucket is a *theoretical arrival time*, as in the generic cell rate algorithm: exact at any moment, with nothing
//!   to fill. A request is due when its bucket holds its cost, or is full. So in any span of time w a class is
//!   served at most rate · w + the burst, or + its largest request if that is larger than the burst.
//! * Requests that are due are served in the order of their deadlines: when they became due. Without `realtime` a bucket
//!   holds at most the burst, so what a late class missed is lost. With it credit is not capped while the class is
//!   busy, and its deadlines stay where they were: it is ahead of all others until it has what it missed. A class that
//!   was idle for [`Tuning::active_window`] starts anew; Lustre lets the credit of idle time grow for ever.
//! * A job without a rule has no limit: it is due whenever it asks.
//! * `spare=proportional` never leaves the target idle. First come the `realtime` classes that are due, by their
//!   deadlines; then all, in proportion to their rates (start-time fair queueing). Thus for a capacity C and active rates
//!   rᵢ with sum R: if R ≤ C every class receives rᵢ · C / R; otherwise `realtime` classes receive rᵢ, and
//!   the others share the rest in proportion. C need not be known, and may change.
//!
//! Every decision is O(log classes).

use crate::arbiter::{Arbiter, EnqueueError, Next, Request};
use crate::limits::classes::Classes;
use crate::queueing::tag_heap::TagHeap;
use crate::spec::scheme::{Allowance, Spare, TokenBucket};
use crate::{RequestId, Tuning};
use isonomia_units::{JobId, JobInfo, Nanos};

pub(crate) struct TokenBuckets {
    classes: Classes<Allowance, Bucket>,
    tuning: Tuning,
    burst_bytes: f64,
    spare: Spare,
    /// Classes with something queued by the time that it is due; under `spare=proportional` the `realtime` ones.
    deadlines: TagHeap,
    /// Under `spare=proportional`, classes with something queued by their place in fair queueing.
    fair: TagHeap,
    virtual_time: u128,
}

/// One class's credit.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Time at the class's rate that one ns of service takes; zero without a limit.
    pace: f64,
    /// Time that fills the bucket.
    depth: Nanos,
    realtime: bool,
    /// When the bucket is or was full: the theoretical arrival time.
    full_at: Nanos,
    /// Start tag in fair queueing, in ns of service at the class's rate.
    tag: u128,
}

impl TokenBuckets {
    pub(crate) fn new(spec: &TokenBucket, tuning: Tuning) -> Self {
        Self {
            classes: Classes::new(&spec.rules, tuning.active_window),
            tuning,
            burst_bytes: spec.burst.0 as f64,
            spare: spec.spare,
            deadlines: TagHeap::default(),
            fair: TagHeap::default(),
            virtual_time: 0,
        }
    }

    /// Brings the books of a class in line with its queue, at `now` when its first request became the first.
    fn settle(&mut self, now: Nanos, class: u32) {
        if !self.classes.has_queued(class) {
            self.deadlines.remove(class);
            self.fair.remove(class);
            return;
        }
        let bucket = *self.classes.state(class);
        if self.spare == Spare::Proportional {
            self.fair.set(class, (bucket.tag, JobId(class)));
        }
        if self.spare == Spare::Unused || bucket.realtime {
            let needed = bucket.span(self.classes.first_cost(class)).min(bucket.depth);
            let due = bucket.full_at + needed - bucket.depth;
            let deadline = if bucket.realtime { due } else { due.max(now) };
            self.deadlines.set(class, (u128::from(deadline.0), JobId(class)));
        }
    }

    /// Serves a class's first request: because it is due, or from what is spare.
    fn dispatch(&mut self, now: Nanos, class: u32, is_spare: bool) -> Next {
        let Some((request, cost)) = self.classes.dispatch(class) else { return Next::Idle };
        let bucket = self.classes.state_mut(class);
        let span = bucket.span(cost);
        if is_spare {
            self.virtual_time = self.virtual_time.max(bucket.tag);
        } else {
            let from = if bucket.realtime { bucket.full_at } else { bucket.full_at.max(now) };
            bucket.full_at = from + span;
        }
        // Service that was due counts in fair queueing, but does not put a class in debt for long.
        let ahead_max = self.virtual_time + u128::from(bucket.span(cost.max(self.tuning.lag_max)).0);
        bucket.tag = (bucket.tag + u128::from(span.0)).min(ahead_max.max(bucket.tag));
        self.settle(now, class);
        Next::Dispatch(request)
    }
}

impl Bucket {
    fn new(allowance: Option<&Allowance>, burst_bytes: f64, tuning: &Tuning) -> Self {
        let rate = allowance.map_or(f64::INFINITY, |allowance| allowance.rate.bytes_per_s() as f64);
        Self {
            pace: tuning.bandwidth.bytes_per_s() as f64 / rate,
            depth: Nanos((burst_bytes * 1e9 / rate) as u64),
            realtime: allowance.is_some_and(|allowance| allowance.realtime),
            full_at: Nanos::ZERO,
            tag: 0,
        }
    }

    /// Time in which the class's rate allows `service`, rounded up.
    fn span(&self, service: Nanos) -> Nanos {
        Nanos((service.0 as f64 * self.pace).ceil() as u64)
    }
}

impl Arbiter for TokenBuckets {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        let now = self.classes.advance(now);
        let (burst_bytes, tuning) = (self.burst_bytes, self.tuning);
        let (left, joined) = self.classes.set_job(
            job,
            info,
            |allowance| Bucket::new(allowance, burst_bytes, &tuning),
            |bucket| bucket.full_at <= now,
        );
        if let Some(left) = left {
            self.settle(now, left);
            self.settle(now, joined);
        }
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        let now = self.classes.advance(now);
        let Some((class, queue)) = self.classes.remove_job(job) else { return Vec::new() };
        self.settle(now, class);
        queue
    }

    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError> {
        let now = self.classes.advance(now);
        let arrival = self.classes.enqueue(now, request)?;
        if arrival.first {
            let (virtual_time, lag_max) = (self.virtual_time, self.tuning.lag_max);
            let bucket = self.classes.state_mut(arrival.class);
            let mut owed = bucket.span(lag_max);
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

    fn complete(&mut self, now: Nanos, _request: RequestId, job: JobId) {
        let now = self.classes.advance(now);
        self.classes.complete(now, job);
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
        self.deadlines.clear();
        self.fair.clear();
        self.classes.drain()
    }
}
