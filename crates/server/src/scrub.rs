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

use crate::clock;
use crate::core::Core;
use crate::jobs::{Job, Served};
use crate::names::{self, Who};
use crate::target::{Scrubbing, Target};
use isonomia_proto::control::ScrubStatus;
use isonomia_store::{ScrubNext, ScrubPass};
use isonomia_units::{Bytes, JobInfo, Nanos, TargetId};
use serde::Deserialize;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// What the job is called.
pub const JOB: &str = "scrub";
/// Between two looks at records without an object.
const SEARCH_EVERY: Nanos = Nanos::from_millis(10);
/// Between a failure of the database, or of finding a place for the job, and the next attempt.
const RETRY_AFTER: Nanos = Nanos::from_secs(60);
/// The longest sleep of the thread.
const SLEEP_MAX: Nanos = Nanos::from_secs(60);
/// The shortest period that can be asked for.
const PERIOD_MIN: Nanos = Nanos::from_secs(1);

/// How long a pass over all objects is to take; `None` for no scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPeriod(pub Option<Nanos>);

impl Default for ScrubPeriod {
    fn default() -> Self {
        Self(Some(Nanos::from_secs(7 * 24 * 3600)))
    }
}

/// A text that is no period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a period of the scrub: allowed are off and times of at least 1s, such as 7d or 12h")]
pub struct ParseScrubPeriodError(String);

impl FromStr for ScrubPeriod {
    type Err = ParseScrubPeriodError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self(None));
        }
        let period = text.parse::<Nanos>().ok().filter(|period| *period >= PERIOD_MIN);
        period.map(|period| Self(Some(period))).ok_or_else(|| ParseScrubPeriodError(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for ScrubPeriod {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

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

/// What the thread of the scrub does until the server stops.
pub fn run(core: &Core) {
    let Some(period) = core.scrub.period else { return };
    // Nobody can have been woken yet: nothing is queued.
    let _ = core.scrub.thread.set(std::thread::current());
    let info = job_info();
    while !core.is_stopping.load(Ordering::Relaxed) {
        let now = clock::now();
        let targets = core.targets.iter().filter_map(|target| Some((target, core.scrub.pass_of(target)?)));
        let next = targets.map(|(target, pass)| core.advance_scrub(target, pass, period, &info, now)).min();
        let wait = next.unwrap_or(Nanos::MAX).since(clock::now()).min(SLEEP_MAX);
        std::thread::park_timeout(Duration::from_nanos(wait.0));
    }
}

/// When a range of `next` bytes is due, after `done` of `total`: at the end of its part of the period, so that a server
/// that has little does not begin with a burst.
fn due(began_at: Nanos, period: Nanos, done: u64, next: u64, total: u64) -> Nanos {
    let done = done.saturating_add(next);
    let part = u128::from(period.0) * u128::from(done) / u128::from(total.max(done).max(1));
    began_at + Nanos(u64::try_from(part).unwrap_or(u64::MAX))
}

impl Core {
    /// Queues the next range of `pass` if it is due; the time at which to ask again, unless the thread is woken before.
    fn advance_scrub(&self, target: &Target, pass: &Pass, period: Nanos, info: &JobInfo, now: Nanos) -> Nanos {
        let mut state = pass.state();
        if let Some(job) = state.under_way.take_if(|_| !target.is_scrubbed()) {
            self.jobs.leave(&job, now);
        }
        if state.under_way.is_some() {
            return Nanos::MAX;
        }
        if now < state.wait_until {
            return state.wait_until;
        }
        if state.has_ended {
            (state.began_at, state.has_ended) = (now, false);
            state.pass = ScrubPass::new(state.pass.target());
        }
        let wait = |state: &mut State, until: Nanos| {
            state.wait_until = until;
            until
        };
        let found = self.store.find_to_scrub(&mut state.pass);
        pass.note(&state.pass);
        let bytes = match found {
            Ok(ScrubNext::Range(bytes)) => bytes,
            Ok(ScrubNext::Searching) => return wait(&mut state, now + SEARCH_EVERY),
            Ok(ScrubNext::End) => {
                state.has_ended = true;
                let bytes = Bytes(state.pass.done_bytes());
                let took_s = now.since(state.began_at).as_secs_f64();
                tracing::info!(on = %state.pass.target(), %bytes, took_s, "looked through all objects");
                pass.ended_at.store(now.0, Ordering::Relaxed);
                pass.ended.fetch_add(1, Ordering::Relaxed);
                let next = (state.began_at + period).max(now + SEARCH_EVERY);
                return wait(&mut state, next);
            }
            Err(error) => {
                tracing::error!(%error, "cannot find the objects to look through");
                return wait(&mut state, now + RETRY_AFTER);
            }
        };
        let due = due(state.began_at, period, state.pass.done_bytes(), bytes, state.pass.total_bytes());
        if due > now {
            return wait(&mut state, due);
        }
        let job = match self.join_job(info.clone()) {
            Ok(job) => job,
            Err(error) => {
                tracing::warn!(%error, "objects are not looked through for now");
                return wait(&mut state, now + RETRY_AFTER);
            }
        };
        let cost = target.cost(1, Bytes(bytes));
        if target.enqueue_scrub(now, Scrubbing { job: job.clone(), cost, arrived: now, bytes: 0 }) {
            state.under_way = Some(job);
            drop(state);
            self.arrivals.fetch_add(1, Ordering::Release);
            self.ring();
            return Nanos::MAX;
        }
        self.jobs.leave(&job, now);
        wait(&mut state, now + RETRY_AFTER)
    }

    /// Looks at the range whose turn has come, of at most [`isonomia_store::SCRUB_BYTES_MAX`].
    pub fn serve_scrub(&self, target: &Target, finish_at: Option<Nanos>) {
        let Some(pass) = self.scrub.pass_of(target) else { return };
        let mut bytes = 0;
        target.begin_scrub(clock::now());
        let mut state = pass.state();
        match self.store.scrub(&mut state.pass) {
            Ok(scrubbed) => {
                bytes = scrubbed.bytes;
                self.scrub.verified_bytes.fetch_add(scrubbed.bytes, Ordering::Relaxed);
                self.scrub.damaged.fetch_add(scrubbed.damaged, Ordering::Relaxed);
            }
            Err(error) => tracing::error!(%error, "cannot look at an object"),
        }
        pass.note(&state.pass);
        drop(state);
        if let Some(scrubbing) = target.end_scrub(clock::now(), finish_at, bytes) {
            self.scrubbed(target, &scrubbing, clock::now());
        }
    }

    /// Accounts for a range that was looked at.
    pub fn scrubbed(&self, target: &Target, scrubbing: &Scrubbing, now: Nanos) {
        scrubbing.job.record(&Served {
            read_bytes: scrubbing.bytes,
            written_bytes: 0,
            cost: scrubbing.cost,
            is_metadata: false,
            latency: now.since(scrubbing.arrived),
        });
        target.scrub_is_told();
        self.scrub.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_time_or_off() {
        assert_eq!("off".parse(), Ok(ScrubPeriod(None)));
        assert_eq!("7d".parse(), Ok(ScrubPeriod::default()));
        assert_eq!("90min".parse(), Ok(ScrubPeriod(Some(Nanos::from_secs(5_400)))));
        for text in ["", "0", "on", "-1d", "999ms", "7 weeks"] {
            let error = text.parse::<ScrubPeriod>().unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}'")) && error.contains("7d"), "{error}");
        }
    }

    #[test]
    fn ranges_are_spread_evenly_over_the_period() {
        let (began_at, period) = (Nanos(1_000), Nanos(400));
        let due_at: Vec<u64> = (0..4).map(|done| due(began_at, period, done * 8, 8, 32).0).collect();
        assert_eq!(due_at, [1_100, 1_200, 1_300, 1_400]);
        // What grew meanwhile does not make it longer.
        assert_eq!(due(began_at, period, 40, 8, 40), Nanos(1_400));
        assert_eq!(due(Nanos::MAX, period, u64::MAX, 8, 1), Nanos::MAX);
    }
}
