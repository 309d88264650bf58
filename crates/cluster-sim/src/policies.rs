//! A simulated operator who sets the policy of the cluster now and then.

use crate::world::{Event, ROOT, World};
use isonomia_cluster::policy::{HEARD_WITHIN, Policy};
use isonomia_cluster::request::Request;
use isonomia_units::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Who asks for it, instead of a client's number.
pub const OPERATOR: usize = usize::MAX;
/// How long the operator waits for an answer.
const PATIENCE: Nanos = Nanos::from_secs(2);

/// What the operator did, and what became of it.
#[derive(Debug, Default)]
pub struct Policies {
    asked: u64,
    /// Those that the operator was told are set.
    told: BTreeSet<u64>,
    /// The last one of them.
    last_told: Option<u64>,
    /// The version of each that the root server has followed.
    versions: BTreeMap<Box<str>, u64>,
    /// The highest version of those that the operator was told are set.
    pub acknowledged: u64,
}

impl World {
    /// The operator sets the policy.
    pub fn sets_policy(&mut self) {
        if self.now >= self.clients_end {
            return;
        }
        self.policies.asked += 1;
        let number = self.policies.asked;
        self.note(|| format!("operator sets policy {number}"));
        if let Some(process) = self.current(ROOT)
            && self.processes[process].state == crate::host::State::Running
        {
            let text = number.to_string().into();
            self.request(process, (OPERATOR, number), self.now + PATIENCE, Request::SetPolicy { text });
        }
        let pause = self.between(PATIENCE, Nanos::from_secs(8));
        self.at(self.now + pause, Event::SetsPolicy);
    }

    /// The operator has an answer.
    pub fn policy_is_set(&mut self, number: u64, is_set: bool) {
        self.note(|| format!("operator hears of policy {number}: {is_set}"));
        if is_set {
            self.policies.told.insert(number);
            self.policies.last_told = Some(number);
            let version = self.policies.versions.get(number.to_string().as_str()).copied();
            self.policies.acknowledged = self.policies.acknowledged.max(version.unwrap_or(u64::MAX));
        }
    }

    /// A process follows a policy from now on.
    pub fn follows(&mut self, process: usize, policy: &Policy) {
        if self.processes[process].server == ROOT {
            self.policies.versions.insert(policy.text.clone(), policy.version);
        }
        if policy.version < self.processes[process].follows {
            self.violate(format!("process {process} goes back to version {} of the policy", policy.version));
        }
        self.processes[process].follows = policy.version;
    }

    /// A process that has started, and heard of the root server, serves by the policy that was set before.
    pub fn check_policy(&mut self, process: usize) {
        let running = &self.processes[process];
        let is_early = self.now < running.started + HEARD_WITHIN;
        if is_early && self.may_serve(process).is_ok() && running.follows < running.acknowledged {
            let (follows, acknowledged) = (running.follows, running.acknowledged);
            self.violate(format!(
                "process {process} serves by policy {follows} and started after policy {acknowledged}"
            ));
        }
    }

    /// All follow one policy: the last one that the operator was told is set, or one of which he was told nothing.
    pub fn check_policies_rest(&mut self) {
        let mut wrong = Vec::new();
        let all: Vec<_> = (self.servers().into_iter())
            .filter_map(|server| self.current(server))
            .map(|process| (self.processes[process].follows, self.processes[process].node.policy().policy().cloned()))
            .collect();
        if let Some(first) = all.first() {
            wrong.extend(
                all.iter().filter(|other| *other != first).map(|other| format!("policies {first:?} and {other:?}")),
            );
            let number = first.1.as_ref().and_then(|policy| policy.text.parse::<u64>().ok());
            let is_lost =
                number.is_none_or(|number| self.policies.told.contains(&number)) && number != self.policies.last_told;
            if is_lost {
                wrong.push(format!("policy {number:?} is followed, and {:?} was set last", self.policies.last_told));
            }
        }
        for what in wrong {
            self.violate(what);
        }
    }
}
