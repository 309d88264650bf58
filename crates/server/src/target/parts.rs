//! What a target is told of what its jobs have elsewhere, and tells others.

use super::Target;
use isonomia_policy::Progress;
use isonomia_policy::exchange::Usage;
use isonomia_policy::exchange::rates::{Parts, RateReport};
use isonomia_policy::{Draw, PolicySpec, ShadowReport, build};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Target {
    /// What each job had since this was first asked: see [`isonomia_policy::Dispatcher::usage`].
    pub fn usage(&self, now: Nanos) -> BTreeMap<JobId, Usage> {
        self.queue().dispatcher.usage(now)
    }

    /// How far the jobs' phases have come here: see [`isonomia_policy::Arbiter::progress`].
    pub fn progress(&self, now: Nanos) -> Vec<(JobId, Progress)> {
        self.queue().dispatcher.progress(now)
    }

    /// Ranks a job in an order: see [`isonomia_policy::Arbiter::set_rank`].
    pub fn set_rank(&self, now: Nanos, job: JobId, rank: Option<u32>) {
        self.queue().dispatcher.set_rank(now, job, rank);
    }

    /// Divides by other parts than the policy's: see [`isonomia_policy::Arbiter::apportion`].
    pub fn apportion(&self, now: Nanos, parts: &[(JobId, f64)]) {
        self.queue().dispatcher.apportion(now, parts);
    }

    /// Tells when fair sharing on other targets is done with jobs' phases: see [`isonomia_policy::Arbiter::set_fair_ends`].
    pub fn set_fair_ends(&self, now: Nanos, ends: &[(JobId, Nanos)]) {
        self.queue().dispatcher.set_fair_ends(now, ends);
    }

    /// Has another policy decide beside the one that is followed, or none: see [`isonomia_policy::Shadow`].
    pub fn set_shadow(&self, now: Nanos, policy: Option<(&PolicySpec, Draw, u64)>, jobs: &[(JobId, Arc<JobInfo>)]) {
        let arbiter = policy.map(|(spec, draw, seed)| {
            let mut arbiter = build(spec, draw, seed, self.tuning);
            jobs.iter().for_each(|(job, info)| arbiter.set_job(now, *job, info));
            arbiter
        });
        self.queue().dispatcher.set_shadow(now, arbiter);
    }

    /// Has that one divide by other parts than its own: see [`isonomia_policy::Dispatcher::apportion_shadow`].
    pub fn apportion_shadow(&self, now: Nanos, parts: &[(JobId, f64)]) {
        self.queue().dispatcher.apportion_shadow(now, parts);
    }

    /// What each job had and would have had by that.
    pub fn shadow(&self) -> Option<BTreeMap<JobId, ShadowReport>> {
        self.queue().dispatcher.shadow()
    }

    /// Has these parts of the rates of the policy's rules: see [`isonomia_policy::Arbiter::set_rate_parts`].
    pub fn set_rate_parts(&self, now: Nanos, parts: &Parts) {
        self.queue().dispatcher.set_rate_parts(now, parts);
    }

    /// How those fare that rules give rates: see [`isonomia_policy::Arbiter::rates`].
    pub fn rates(&self, now: Nanos) -> Vec<RateReport> {
        self.queue().dispatcher.rates(now)
    }
}
