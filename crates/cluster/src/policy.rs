//! The sharing policy of the cluster: one text with a version, decided by the root server.
//!
//! An operator sets it through any server. The root server gives it the next version, records it, and sends it to all; who has an
//! older one, because he was away, hears of that with the news of the table, and a server that starts answers no client
//! before it has what the root server has, or has waited for [`HEARD_WITHIN`].
//!
//! Versions count and follow no clock. If another server knows a higher one than the root server, whose directory was
//! put back from a backup then, the root server's text gets a version above that.

use isonomia_units::Nanos;
use serde::{Deserialize, Serialize};

/// The longest text of a policy in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 14;
/// How long a server that starts waits for the root server before it serves with what it has.
pub const HEARD_WITHIN: Nanos = Nanos::from_secs(5);

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Higher than that of every policy before; 1 or more.
    pub version: u64,
    /// What the operator wrote, [`TEXT_BYTES_MAX`] at most.
    pub text: Box<str>,
}

/// What a server knows of the policy.
#[derive(Debug, Default)]
pub struct Known {
    policy: Option<Policy>,
    /// The highest version that anybody has told.
    highest: u64,
}

impl Known {
    /// What is in the store.
    pub fn new(policy: Option<Policy>) -> Self {
        Self { highest: policy.as_ref().map_or(0, |policy| policy.version), policy }
    }

    /// The policy that this server has, if one was ever set.
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// Its version; 0 if there is none.
    pub fn version(&self) -> u64 {
        self.policy.as_ref().map_or(0, |policy| policy.version)
    }

    /// On the root server: an operator sets `text`. What is to be stored and sent to all.
    pub fn set(&mut self, text: Box<str>) -> Policy {
        self.highest = self.highest.saturating_add(1);
        let policy = Policy { version: self.highest, text };
        self.policy = Some(policy.clone());
        policy
    }

    /// On the root server: another one has `version`. What is to be stored and sent to all, if the own one has to get above that.
    pub fn heard_of(&mut self, version: u64) -> Option<Policy> {
        self.highest = self.highest.max(version);
        let text = self.policy.as_ref().filter(|policy| policy.version < version)?.text.clone();
        Some(self.set(text))
    }

    /// On another one: the root server has `policy`. Whether it is to be stored and followed.
    pub fn take(&mut self, policy: &Policy) -> bool {
        let is_newer = policy.version > self.version();
        if is_newer {
            *self = Self::new(Some(policy.clone()));
        }
        is_newer
    }
}
