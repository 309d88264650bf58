//! What a target is told of what its jobs have elsewhere, and tells others.

use super::Target;
use isonomia_policy::Progress;
use isonomia_policy::exchange::Usage;
use isonomia_units::{JobId, Nanos};
use std::collections::BTreeMap;

impl Target {
    /// What each job had since this was first asked: see [`isonomia_policy::Dispatcher::usage`].
    pub fn usage(&self, now: Nanos) -> BTreeMap<JobId, Usage> {
        self.queue().dispatcher.usage(now)
    }

    /// How far the jobs' phases have come here: see [`isonomia_policy::Arbiter::progress`].
    pub fn progress(&self, now: Nanos) -> Vec<(JobId, Progress)> {
        self.queue().dispatcher.progress(now)
    }

    /// Places a job in an order: see [`isonomia_policy::Arbiter::set_rank`].
    pub fn set_rank(&self, now: Nanos, job: JobId, rank: Option<u32>) {
        self.queue().dispatcher.set_rank(now, job, rank);
    }

    /// Divides by other parts than the policy's: see [`isonomia_policy::Arbiter::apportion`].
    pub fn apportion(&self, now: Nanos, parts: &[(JobId, f64)]) {
        self.queue().dispatcher.apportion(now, parts);
    }
}
