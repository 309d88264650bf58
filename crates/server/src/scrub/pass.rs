//! A pass over a target's objects: when the next range is due, and looking at it when its turn has come.

use super::{Pass, State, job_info};
use crate::clock;
use crate::core::Core;
use crate::jobs::Served;
use crate::target::{Scrubbing, Target};
use isonomia_store::{ScrubNext, ScrubPass};
use isonomia_units::{Bytes, JobInfo, Nanos};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two looks at records without an object.
const SEARCH_EVERY: Nanos = Nanos::from_millis(10);
/// Between a failure of the database, or of finding room for the job, and the next attempt.
const RETRY_AFTER: Nanos = Nanos::from_secs(60);
/// The longest sleep of the thread.
const SLEEP_MAX: Nanos = Nanos::from_secs(60);
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
    fn ranges_are_spread_evenly_over_the_period() {
        let (began_at, period) = (Nanos(1_000), Nanos(400));
        let due_at: Vec<u64> = (0..4).map(|done| due(began_at, period, done * 8, 8, 32).0).collect();
        assert_eq!(due_at, [1_100, 1_200, 1_300, 1_400]);
        // What grew meanwhile does not make it longer.
        assert_eq!(due(began_at, period, 40, 8, 40), Nanos(1_400));
        assert_eq!(due(Nanos::MAX, period, u64::MAX, 8, 1), Nanos::MAX);
    }
}
