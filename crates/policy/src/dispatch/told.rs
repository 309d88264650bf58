//! What a target's arbiter is told beside its requests, and tells of its jobs.

use super::Dispatcher;
use crate::exchange::rates::{Parts, RateReport};
use crate::{Arbiter, LatencyReport, Lateness, PhaseReport, Progress, SizeHistory};
use isonomia_units::{JobId, Nanos};
use std::collections::BTreeMap;

fn add(sum: &mut BTreeMap<JobId, Lateness>, more: Vec<Lateness>) {
    for Lateness { job, phases, late, late_by } in more {
        let of_job = sum.entry(job).or_insert(Lateness { job, phases: 0, late: 0, late_by: Nanos::ZERO });
        of_job.phases += phases;
        of_job.late += late;
        of_job.late_by += late_by;
    }
}

impl<R, A> Dispatcher<R, A> {
    /// Tells what a job's I/O phase is going to need: see [`Arbiter::expect`].
    pub fn expect(&mut self, now: Nanos, job: JobId, service: Nanos) {
        self.arbiter.expect(now, job, service);
        if let Some(shadow) = &mut self.shadow {
            shadow.expect(now, job, service);
        }
    }

    /// How far the jobs' phases have come, and how far they would have under fair sharing: see [`Arbiter::phases`].
    pub fn phases(&self) -> Vec<PhaseReport> {
        self.arbiter.phases()
    }

    /// How far the jobs' phases have come here: see [`Arbiter::progress`].
    pub fn progress(&self, now: Nanos) -> Vec<(JobId, Progress)> {
        self.arbiter.progress(now)
    }

    /// How many of the jobs' phases ended later than under fair sharing, under all arbiters that there were: see
    /// [`Arbiter::lateness`].
    pub fn lateness(&mut self, now: Nanos) -> Vec<Lateness> {
        let mut all = self.lateness_before.clone();
        add(&mut all, self.arbiter.lateness(now));
        all.into_values().collect()
    }

    /// Another arbiter takes over: what was learnt of applications goes to it, and what came of their phases is kept.
    pub(super) fn hand_over_phases(&mut self, now: Nanos, next: &mut dyn Arbiter) {
        add(&mut self.lateness_before, self.arbiter.lateness(now));
        if let Some(history) = self.arbiter.history() {
            self.history = std::mem::take(history);
        }
        if let Some(history) = next.history() {
            *history = std::mem::take(&mut self.history);
        }
    }

    /// What is remembered of the sizes of phases, as of the last call with a time; whoever keeps it for a process that comes after
    /// this one puts it back before the first request.
    pub fn history(&mut self) -> &mut SizeHistory {
        match self.arbiter.history() {
            Some(history) => history,
            None => &mut self.history,
        }
    }

    /// Ranks a job in the order of a policy that has one: see [`Arbiter::set_rank`].
    pub fn set_rank(&mut self, now: Nanos, job: JobId, rank: Option<u32>) {
        self.arbiter.set_rank(now, job, rank);
    }

    /// Tells when fair sharing on other targets is done with jobs' phases: see [`Arbiter::set_fair_ends`]. The arbiter hears of it only if
    /// there are any, or were.
    pub fn set_fair_ends(&mut self, now: Nanos, ends: &[(JobId, Nanos)]) {
        let had_ends = std::mem::replace(&mut self.has_ends, !ends.is_empty());
        if had_ends || self.has_ends {
            self.arbiter.set_fair_ends(now, ends);
        }
    }

    /// Divides by other parts than the policy's: see [`Arbiter::apportion`]. The arbiter hears of it only if there are any, or
    /// were.
    pub fn apportion(&mut self, now: Nanos, parts: &[(JobId, f64)]) {
        let had_parts = std::mem::replace(&mut self.has_parts, !parts.is_empty());
        if had_parts || self.has_parts {
            self.arbiter.apportion(now, parts);
        }
    }

    /// Has the policy that decides beside the one that is followed divide by these parts: see [`Arbiter::apportion`].
    pub fn apportion_shadow(&mut self, now: Nanos, parts: &[(JobId, f64)]) {
        if let Some(shadow) = &mut self.shadow {
            shadow.apportion(now, parts);
        }
    }

    /// Has these parts of the rates of its rules: see [`Arbiter::set_rate_parts`].
    pub fn set_rate_parts(&mut self, now: Nanos, parts: &Parts) {
        self.arbiter.set_rate_parts(now, parts);
    }

    /// How the classes fare that rules give rates: see [`Arbiter::rates`].
    pub fn rates(&self, now: Nanos) -> Vec<RateReport> {
        self.arbiter.rates(now)
    }

    /// How the policy's latency class fares, if it has one.
    pub fn latency(&self, now: Nanos) -> Option<LatencyReport> {
        self.arbiter.latency(now)
    }

    /// The share due to every job that is active: see [`Arbiter::shares`].
    pub fn shares(&self, now: Nanos) -> Vec<(JobId, f64)> {
        self.arbiter.shares(now)
    }
}
