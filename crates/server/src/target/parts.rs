//! What a target is told of what its jobs have elsewhere, and tells others.

use super::Target;
use isonomia_policy::exchange::Usage;
use isonomia_units::{JobId, Nanos};
use std::collections::BTreeMap;

impl Target {
    /// What each job had since this was first asked: see [`isonomia_policy::Dispatcher::usage`].
    pub fn usage(&self, now: Nanos) -> BTreeMap<JobId, Usage> {
        self.queue().dispatcher.usage(now)
    }

    /// Divides by other parts than the policy's: see [`isonomia_policy::Arbiter::apportion`].
    pub fn apportion(&self, now: Nanos, parts: &[(JobId, f64)]) {
        self.queue().dispatcher.apportion(now, parts);
    }
}
