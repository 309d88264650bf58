//! What every arbiter is: a queue per job, and one question, "whose request goes next?".
//!
//! An arbiter has no clock and no thread. The caller passes `now` (any origin, never running backwards; an
//! earlier time is taken as the latest one seen) and asks [`Arbiter::next`] whenever a worker is free.

use crate::exchange::rates::{Parts, RateReport};
use crate::history::SizeHistory;
use crate::{LatencyReport, Lateness, Nature, PhaseReport, Progress, RequestId, queueing::roster::QUEUED_MAX};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};

/// A request that waits for its turn. Its payload is elsewhere; the arbiter sees only what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's name for it; unique among the requests that are queued or in flight.
    pub id: RequestId,
    /// The job it is charged to.
    pub job: JobId,
    /// Target time it takes, from [`CostModel::cost`](crate::CostModel::cost). Charged as at least 1 ns and at
    /// most [`COST_MAX`](crate::COST_MAX).
    pub cost: Nanos,
    /// What it reads or writes; zero if it does neither. Only a latency class looks at it.
    pub bytes: Bytes,
    /// What it does. Only the rules of `tbf` look at it, and `exclusive`.
    pub nature: Nature,
}

/// What a request had of a device that serves many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceService {
    /// Of its time.
    pub time: Nanos,
    /// What that is worth of what requests are charged.
    pub worth: Nanos,
    /// What the request costs on a device of which nothing is known; zero of what no model says that, as of a flush.
    pub work: Nanos,
}

/// The answer to "whose request goes next?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Serve this request now, and report its end by [`Arbiter::complete`].
    Dispatch(Request),
    /// Requests are queued, but the turn is held for a job that is behind and expected back, or those that are
    /// queued have reached their limits, or a latency class lets no more of them be in service. Ask again at this
    /// time, or as soon as a request is enqueued or completed, whichever comes first.
    WaitUntil(Nanos),
    /// Nothing is queued.
    Idle,
}

/// Why a request was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The job was never announced by [`Arbiter::set_job`], or was removed.
    #[error("request {} names job {job}, which is not known here", request.0)]
    UnknownJob {
        /// The unknown job.
        job: JobId,
        /// The refused request.
        request: RequestId,
    },
    /// [`QUEUED_MAX`] requests wait already.
    #[error("request {} of job {job} is refused: {QUEUED_MAX} requests wait already, the most allowed", request.0)]
    QueueFull {
        /// The job of the refused request.
        job: JobId,
        /// The refused request.
        request: RequestId,
    },
}

/// Decides, request by request, whose I/O a target serves next.
///
/// Requests of one job leave in the order they came, but those that rules of `tbf` tell apart, those of a latency class before the others, and those whose
/// turns pay for what their user owes (`queueing::urgent`) later. Every request that `enqueue` accepted comes back exactly
/// once: from `next`, `cancel`, `remove_job`, or `drain`.
pub trait Arbiter: Send {
    /// Announces `job`, or changes who it is; its queued requests stay, and its weight changes at once.
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo);

    /// Forgets `job` and returns its queued requests in arrival order; empty if the job is unknown. Completions
    /// of its requests still in flight are ignored later.
    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request>;

    /// Queues a request.
    ///
    /// # Errors
    /// The job is unknown, or [`QUEUED_MAX`] requests wait already.
    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError>;

    /// The request to serve now. Never [`Next::Idle`] while a request is queued.
    fn next(&mut self, now: Nanos) -> Next;

    /// A dispatched request of `job` was charged `charged` and turned out to take `took`: the account of the job, and of
    /// those above it, is what it would be if that had been charged. To be called before [`Self::complete`]. Ignored if the
    /// job is unknown, and under policies that count something else than the device's time or serve in an order: `fifo`,
    /// `tbf`, `mclock`, `set10`, `coflow`, `fair-finish`. See [`PolicySpec::divides_time`](crate::PolicySpec::divides_time).
    fn correct(&mut self, _now: Nanos, _job: JobId, _charged: Nanos, _took: Nanos) {}

    /// A request of `job` that has ended had this of the device. Times by which an arbiter judges what was charged are times of the
    /// device, what it lets the device idle is paid by what that did, and whether that pays is judged by what the device does meanwhile. To be
    /// called before [`Self::complete`]. Ignored by whoever ignores [`Self::correct`].
    fn device_served(&mut self, _job: JobId, _had: DeviceService) {}

    /// The target is a device that serves many at once in a way of its own, and is given so many from now on: what a hold
    /// keeps from others is one of these, or all of them for a job that falls far behind all the same. Until this is
    /// called, [`Tuning::parallel`](crate::Tuning::parallel) says what a hold costs. Ignored by whoever holds nothing.
    fn set_depth(&mut self, _depth: u32) {}

    /// For which job, after [`Next::WaitUntil`], all of such a device is kept free, not only one of so many. None for whoever never
    /// does so.
    fn device_kept_for(&self) -> Option<JobId> {
        None
    }

    /// The service of a dispatched request has ended, well or badly. Ignored if the job is unknown.
    fn complete(&mut self, now: Nanos, request: RequestId, job: JobId);

    /// A dispatched request does not keep the target busy for now: its client keeps it waiting, or another request that it needs; or, if it
    /// `is_at_device` all the same, it is one that takes long by itself. [`Arbiter::complete`] follows. Takes notice: a latency class, which looks
    /// at what is in service, and whoever leaves a device idle for what a job has in service.
    fn set_aside(&mut self, _now: Nanos, _request: RequestId, _job: JobId, _is_at_device: bool) {}

    /// Drops a queued request (its client died). False if it is not queued: it was dispatched, or never came.
    /// Linear in the job's queue.
    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool;

    /// Requests queued, all jobs together.
    fn queued(&self) -> usize;

    /// Requests of `job` queued; zero if the job is unknown.
    fn queued_of(&self, job: JobId) -> usize;

    /// The share due to every job that is active at `now`, ascending by job; sums to 1, or is empty.
    /// Always empty under policies that owe nobody a share: `fifo`, `tbf`, `mclock`, `set10`, `exclusive`.
    fn shares(&self, now: Nanos) -> Vec<(JobId, f64)>;

    /// Ranks `job` in the order of a policy that has one, until its present I/O phase ends: the smallest rank is
    /// first. `None` lets the target rank it by itself. No effect under other policies, or if the job is unknown. Whoever
    /// sees all targets of a job gives each the same rank, [`Order::rank`](crate::Order::rank), when it changes.
    fn set_rank(&mut self, _now: Nanos, _job: JobId, _rank: Option<u32>) {}

    /// How long fair sharing, which goes on as far as it has come, would need on this target until it is done with the jobs' phases, ascending by
    /// job; who is not in it has none. Empty under policies without a fair clock that they go by. O(n log n) with n jobs.
    fn fair_ends(&self) -> Vec<(JobId, Nanos)> {
        Vec::new()
    }

    /// Fair sharing on *other* targets is done with these jobs' phases so long from now: nobody needs to be served sooner here than that.
    /// Replaces all that was told before, and of each job counts until its present phase here ends. No effect under policies
    /// that do not go by fair ends; jobs that are not known are passed by. O(n log n).
    fn set_fair_ends(&mut self, _now: Nanos, _ends: &[(JobId, Nanos)]) {}

    /// Divides by other parts than the policy's among these jobs, until this is called again: what they have together by the
    /// policy is divided among them by these parts, and others have beside them what the policy says. For whoever knows
    /// what the jobs have of other targets: see [`exchange`](crate::exchange). Jobs that are not known are passed by; parts are
    /// positive. No effect under policies that owe nobody a share, and under `fair-finish`, which goes by ends ([`Self::set_fair_ends`]).
    fn apportion(&mut self, _now: Nanos, _parts: &[(JobId, f64)]) {}

    /// Has these parts of the rates of its rules from now on. No effect under policies without rates: see
    /// [`exchange::rates`](crate::exchange::rates).
    fn set_rate_parts(&mut self, _now: Nanos, _parts: &Parts) {}

    /// How the classes fare that rules give rates, by rule and name; none under policies without rates.
    fn rates(&self, _now: Nanos) -> Vec<RateReport> {
        Vec::new()
    }

    /// From now on the job's I/O phase needs so much service here; if it is not in one, or sends nothing more in it, its
    /// next one does. No effect under policies that do not go by that, or if the job is unknown.
    fn expect(&mut self, _now: Nanos, _job: JobId, _service: Nanos) {}

    /// How far the phases of the jobs have come, and how far they would have under fair sharing, ascending by job; of those that are in one.
    /// Empty without a fair clock: see [`with_fair_clock`](crate::with_fair_clock).
    fn phases(&self) -> Vec<PhaseReport> {
        Vec::new()
    }

    /// How far the present phases of the jobs have come on this target, ascending by job, for whoever ranks them over several
    /// ([`Arbiter::set_rank`]). Empty under policies without an order.
    fn progress(&self, _now: Nanos) -> Vec<(JobId, Progress)> {
        Vec::new()
    }

    /// How many phases of the jobs ended by `now`, and how many of them later than under fair sharing, ascending by job; of those that
    /// ended one since they are known here. Empty without a fair clock.
    fn lateness(&mut self, _now: Nanos) -> Vec<Lateness> {
        Vec::new()
    }

    /// What is remembered of the sizes of phases, for the arbiter that comes after this one. `None` if this one keeps no history, or
    /// has to decide by its calls alone because they are recorded.
    fn history(&mut self) -> Option<&mut SizeHistory> {
        None
    }

    /// How the policy's latency class fares; `None` if the policy has none.
    fn latency(&self, _now: Nanos) -> Option<LatencyReport> {
        None
    }

    /// Takes out every queued request, in arrival order over all jobs. The jobs stay; one left without requests
    /// counts as idle from the latest time that was passed in. With `set_job` and
    /// `enqueue` on a new arbiter this changes the policy of a live target without dropping a request.
    fn drain(&mut self) -> Vec<Request>;
}
