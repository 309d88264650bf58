//! The scrub: a pass over all objects in each period, so that damage is found while nobody reads them.
//!
//! Each data target has a pass of its own and at most one range of it queued or being looked at: as the request of a job
//! called [`JOB`] of the server's own user, of one node and priority 1, the least that there is. It is arbitrated and
//! charged like any other; so it gets at most what the policy owes to one such job that always has one request waiting,
//! and more only where nobody else wants it. It is known as a job while a range is under way and a minute longer.
//!
//! The thread of the scrub says when a range is due, and the worker whose turn it finds looks at it. Bytes are spread evenly over
//! the period; a pass that is late catches up as far as its share allows, and one that is later than the period is
//! followed by the next at once. Passes begin anew when the server starts.

pub mod pass;
pub mod period;

use crate::jobs::Job;
use crate::names::{self, Who};
use crate::target::Target;
use isonomia_proto::control::ScrubStatus;
use isonomia_store::ScrubPass;
use isonomia_units::{JobInfo, Nanos, TargetId};
use period::ScrubPeriod;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

/// What the job is called.
pub const JOB: &str = "scrub";

/// The passes of a server; none by default.
#[derive(Debug, Default)]
pub struct Scrub {
    period: Option<Nanos>,
    /// By number of the data target.
    passes: Vec<Pass>,
    thread: OnceLock<Thread>,
    verified_bytes: AtomicU64,
    damaged: AtomicU64,
}

#[derive(Debug)]
struct Pass {
    state: Mutex<State>,
    /// As in [`ScrubPass`], for who must not wait for a range.
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    /// Passes that came to their end.
    ended: AtomicU64,
    /// When the last one did, in nanoseconds of the monotonic clock; 0 if none has.
    ended_at: AtomicU64,
}

#[derive(Debug)]
struct State {
    began_at: Nanos,
    pass: ScrubPass,
    has_ended: bool,
    /// Nothing is done before.
    wait_until: Nanos,
    /// The job, while a range is queued or being looked at.
    under_way: Option<Arc<Job>>,
}

impl Scrub {
    /// Passes over `targets` data targets that begin at `now`; none without a period.
    pub fn new(ScrubPeriod(period): ScrubPeriod, targets: &[TargetId], now: Nanos) -> Self {
        let targets = if period.is_some() { targets } else { &[] };
        let passes = targets.iter().map(|target| Pass::new(*target, now)).collect();
        Self { period, passes, ..Self::default() }
    }

    /// Whether there is anything to do.
    pub fn is_on(&self) -> bool {
        self.period.is_some()
    }

    /// How far it is.
    pub fn status(&self, now: Nanos) -> ScrubStatus {
        let sum = |of: fn(&Pass) -> &AtomicU64| self.passes.iter().map(|pass| of(pass).load(Ordering::Relaxed)).sum();
        let least = |of: fn(&Pass) -> &AtomicU64| self.passes.iter().map(|pass| of(pass).load(Ordering::Relaxed)).min();
        let (done, total): (u64, u64) = (sum(|pass| &pass.done_bytes), sum(|pass| &pass.total_bytes));
        ScrubStatus {
            period_s: self.period.map(Nanos::as_secs_f64),
            progress: if total == 0 { 0.0 } else { done as f64 / total as f64 },
            passes_total: least(|pass| &pass.ended).unwrap_or(0),
            last_pass_age_s: least(|pass| &pass.ended_at)
                .filter(|at| *at > 0)
                .map(|at| now.since(Nanos(at)).as_secs_f64()),
            verified_bytes_total: self.verified_bytes.load(Ordering::Relaxed),
            damaged_total: self.damaged.load(Ordering::Relaxed),
        }
    }

    fn wake(&self) {
        self.thread.get().map(Thread::unpark);
    }

    fn pass_of(&self, target: &Target) -> Option<&Pass> {
        self.passes.get(target.index.checked_sub(1)?)
    }
}

impl Pass {
    fn new(target: TargetId, now: Nanos) -> Self {
        let pass = ScrubPass::new(target);
        let state = State { began_at: now, pass, has_ended: false, wait_until: now, under_way: None };
        Self {
            state: Mutex::new(state),
            done_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            ended_at: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, pass: &ScrubPass) {
        self.done_bytes.store(pass.done_bytes(), Ordering::Relaxed);
        self.total_bytes.store(pass.total_bytes(), Ordering::Relaxed);
    }
}

/// The job that the scrub's requests are charged to.
pub fn job_info() -> JobInfo {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    JobInfo::new(JOB, &names::look_up(Who::User(uid)), &names::look_up(Who::Group(gid)))
}
