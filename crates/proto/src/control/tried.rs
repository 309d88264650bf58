//! What operators hear of the rates of rules, and of a policy that has no say.

use serde::{Deserialize, Serialize};

/// What a policy would give that decides beside the one that is followed, over the last one or two seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShadowStatus {
    /// The policy, canonical.
    pub policy: String,
    /// Those that had or would have had anything, by name.
    pub jobs: Vec<ShadowJob>,
}

/// A job under two policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShadowJob {
    /// Its name.
    pub job: String,
    /// Its user.
    pub user: String,
    /// Service that it received.
    pub had_ns: u64,
    /// Service that the other policy would have given it.
    pub would_ns: u64,
    /// The former as a part of what all received,
    pub share_had: f64,
    /// and the latter.
    pub share_would: f64,
}

impl ShadowStatus {
    /// Finds the shares.
    pub fn divide(&mut self) {
        let sum = |of: fn(&ShadowJob) -> u64| self.jobs.iter().map(of).sum::<u64>().max(1) as f64;
        let (had, would) = (sum(|job| job.had_ns), sum(|job| job.would_ns));
        for job in &mut self.jobs {
            (job.share_had, job.share_would) = (job.had_ns as f64 / had, job.would_ns as f64 / would);
        }
    }
}

/// How one class of those that a rule selects fares, since the policy was set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateStatus {
    /// The rule: its name, or what it is for.
    pub rule: String,
    /// Whose requests these are: such as `user:ada`, or `everybody`.
    pub class: String,
    /// What they may have in the whole system, as a policy says it.
    pub rate: String,
    /// The part of it that this server has at present.
    pub part: f64,
    /// What they were served lately in a second: bytes, or operations if the rate is in these.
    pub per_s: f64,
    /// Bytes read and written.
    pub bytes_total: u64,
    /// Operations.
    pub operations_total: u64,
    /// Requests that wait.
    pub queued: u64,
    /// They wait because of the rule.
    pub is_held: bool,
    /// How long they did: on the target where that was longest.
    pub held_ns_total: u64,
    /// The jobs that did, those that did for longest first.
    pub jobs: Vec<HeldJob>,
}

/// A job that waited because of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldJob {
    /// Its name.
    pub job: String,
    /// Its user.
    pub user: String,
    /// For how long.
    pub held_ns_total: u64,
}
