//! How a job behaves between its requests, and whether it is worth waiting for.
//!
//! A process that issues one request at a time has nothing queued when its turn comes. If another job always
//! took that turn, a share would belong to whoever keeps a queue. So the arbiter learns each job's *think time*
//! (from a completion to the job's next arrival) and its *residence* (from dispatch to completion), and holds
//! the turn for a job that is behind and due back soon. What that may cost is bounded three times over:
//!
//! * At most [`Tuning::hold_max`] passes between the first refusal and the next dispatch; where a device of unknown
//!   speed serves many at once ([`Arbiter::set_depth`](crate::Arbiter::set_depth)), half of what a request takes there if
//!   that is more, and a slot of it is kept free for the job, the last one, instead of the whole device. Where that is not
//!   enough, the whole device is, for as long as a request of the job takes, 20 ms at most: see [`room`](super::room).
//! * Holds are paid from a budget: a hold costs the service that the target could have given meanwhile
//!   ([`Tuning::parallel`] less the requests in flight, times its length), and half of the service dispatched is
//!   paid in. So holds take at most a third of a target's capacity, whatever the jobs do. Only where a job has the whole of
//!   a device that serves many at once, the time of its own requests is not paid for, but charged to it.
//! * A job that fails to come loses the turn and, where the time of such a device is not divided, what it was owed, and is
//!   not waited for again until it has come back promptly 2, 4, 8, … [`PROMPT_RETURNS_MAX`] times.

use isonomia_units::{Nanos, Rate};

/// Service dispatched for each ns of service that holds may forgo.
pub(crate) const SERVICE_PER_HOLD: u64 = 2;
/// The most prompt returns asked of a job that was waited for in vain.
pub(crate) const PROMPT_RETURNS_MAX: u32 = 64;
/// Think times seen before a job is first waited for.
const SAMPLES_MIN: u32 = 2;

/// The times that govern sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How long a job without requests stays in the account. Default 20 ms: long against the think time of a
    /// process that is doing I/O, short against the 100 ms within which shares must follow a job that leaves.
    pub active_window: Nanos,
    /// The longest hold, and twice the longest think time that is waited for. Zero switches anticipation off.
    /// Default 500 us: a process that fills a 1 MiB buffer and is woken on a busy machine is back in less.
    pub hold_max: Nanos,
    /// Service that a job may be behind before anything is held for it, and that it is still owed after it was waited
    /// for in vain, or more where a device's time is divided: it catches up when it comes. Default 2 ms: a hold idles the target, arrears of this size do
    /// not, and they are a fiftieth of the 100 ms over which throughput is to be even.
    pub lag_free: Nanos,
    /// The most service that a job is still owed when it returns within the window. Default 50 ms: several of
    /// the largest requests of a slow target, and less than the 100 ms over which throughput is to be even.
    pub lag_max: Nanos,
    /// Requests that the target serves at full speed at once, at least 1. Default 1: a device that serves one
    /// after the other. It decides only what a hold is taken to cost; see the crate's page on how many requests
    /// a target should be given at once.
    pub parallel: u32,
    /// Bytes that pass in a time of one second's cost: what converts a rate in bytes to one of service. It is the
    /// [`CostModel`](crate::CostModel)'s bandwidth, so that a request counts its bytes, and an operation as many as could
    /// pass in its time. Default 1 GB/s: a byte a ns.
    pub bandwidth: Rate,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            active_window: Nanos::from_millis(20),
            hold_max: Nanos::from_micros(500),
            lag_free: Nanos::from_millis(2),
            lag_max: Nanos::from_millis(50),
            parallel: 1,
            bandwidth: Rate::new(1_000_000_000).expect("constant"),
        }
    }
}

/// What is known about one job's coming and going.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Habit {
    think: Mean,
    residence: Mean,
    /// The last completion, until the arrival that follows it.
    completed: Option<Nanos>,
    /// When the oldest request in flight was dispatched, as far as is known.
    in_flight_since: Nanos,
    /// Times in a row that the job was waited for in vain.
    misses: u32,
    /// Prompt returns still asked before it is waited for again.
    prompt_returns_due: u32,
    /// A hold for a request in flight ran out; no more holds before the next arrival.
    passed: bool,
}

/// A running mean that follows a quarter of each change.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    value: u64,
    samples: u32,
}

/// When to stop waiting for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It is thinking, and should be back by then at the latest.
    Until(Nanos),
    /// A request of it is in flight and should end, and the job return, within one hold.
    InFlight,
    /// A request of it is in flight for longer than a hold can last.
    Later,
    /// It should have come by now.
    Overdue,
}

impl Habit {
    /// Whether the job returns promptly enough to be waited for at all.
    pub(crate) fn is_prompt(&self, hold_max: Nanos) -> bool {
        self.prompt_returns_due == 0
            && !self.passed
            && self.think.samples >= SAMPLES_MIN
            && self.think.value <= hold_max.0 / 2
    }

    /// The first request of an empty queue has come.
    pub(crate) fn arrive(&mut self, now: Nanos, hold_max: Nanos) {
        self.passed = false;
        let Some(completed) = self.completed.take() else { return };
        let think = now.since(completed);
        // One long pause must not outweigh many returns.
        self.think.add(think.0.min(hold_max.0.saturating_mul(4)));
        if think.0 <= hold_max.0 / 2 {
            if self.prompt_returns_due == 0 {
                self.misses = self.misses.saturating_sub(1);
            }
            self.prompt_returns_due = self.prompt_returns_due.saturating_sub(1);
        }
    }

    /// A request went into service; `others` were in flight already.
    pub(crate) fn dispatch(&mut self, now: Nanos, others: u32) {
        if others == 0 {
            self.in_flight_since = now;
        }
    }

    /// A request in service has ended; `others` are still in flight.
    pub(crate) fn complete(&mut self, now: Nanos, others: u32) {
        self.residence.add(now.since(self.in_flight_since).0);
        self.completed = Some(now);
        if others > 0 {
            self.in_flight_since = now;
        }
    }

    /// How long to wait for the job, which has nothing queued.
    pub(crate) fn patience(&self, now: Nanos, in_flight: bool, hold_max: Nanos) -> Patience {
        if let Some(completed) = self.completed {
            let allowance = self.think.value.saturating_mul(4).saturating_add(hold_max.0 / 8).min(hold_max.0);
            let until = completed + Nanos(allowance);
            if now < until {
                return Patience::Until(until);
            }
        }
        if !in_flight {
            return Patience::Overdue;
        }
        let expected = self.in_flight_since + Nanos(self.residence.value) + Nanos(self.think.value);
        if expected > now + hold_max || now > expected + hold_max { Patience::Later } else { Patience::InFlight }
    }

    /// The job was waited for in vain. Returns whether that was its own doing: it was thinking.
    pub(crate) fn miss(&mut self, in_flight: bool) -> bool {
        if in_flight {
            self.passed = true;
            return false;
        }
        self.misses = (self.misses + 1).min(PROMPT_RETURNS_MAX.ilog2());
        self.prompt_returns_due = 1 << self.misses;
        true
    }
}

impl Mean {
    fn add(&mut self, sample: u64) {
        self.value = match self.samples {
            0 => sample,
            _ => self.value - self.value / 4 + sample / 4,
        };
        self.samples = self.samples.saturating_add(1);
    }
}
