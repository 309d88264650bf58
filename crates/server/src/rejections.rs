//! Connections that are not served, counted by reason.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a connection is refused or cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// It broke the rules of the protocol, before or after it was set up.
    Protocol,
    /// It does not know the key.
    Key,
    /// Munge does not vouch for it, or not to this server.
    Credential,
    /// It says of itself what cannot be, or asks for a user it may not ask for.
    Identity,
    /// Its user has as many connections as he may have.
    Connections,
    /// Its user shares as much memory with the server as he may.
    Memory,
    /// Its user has as many jobs as he may have.
    Jobs,
    /// Others of the same origin came, and it had not finished its set-up, or asked nothing for the longest time.
    Displaced,
    /// It said nothing for too long.
    Silence,
    /// The system has no descriptor or memory for it.
    System,
}

/// All reasons with their names, in the order of the counts.
const REASONS: [(Rejection, &str); 10] = [
    (Rejection::Protocol, "protocol"),
    (Rejection::Key, "key"),
    (Rejection::Credential, "credential"),
    (Rejection::Identity, "identity"),
    (Rejection::Connections, "connections"),
    (Rejection::Memory, "memory"),
    (Rejection::Jobs, "jobs"),
    (Rejection::Displaced, "displaced"),
    (Rejection::Silence, "silence"),
    (Rejection::System, "system"),
];

/// See the module.
#[derive(Debug, Default)]
pub struct Rejections([AtomicU64; REASONS.len()]);

impl Rejections {
    /// One more.
    pub fn count(&self, rejection: Rejection) {
        self.0[rejection as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// All counts since the start, by the names of the reasons.
    pub fn by_reason(&self) -> BTreeMap<String, u64> {
        let count = |rejection: Rejection| self.0[rejection as usize].load(Ordering::Relaxed);
        REASONS.iter().map(|(rejection, name)| ((*name).to_owned(), count(*rejection))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_count_of_its_own() {
        for (index, (rejection, name)) in REASONS.iter().enumerate() {
            assert_eq!(*rejection as usize, index, "{name}");
            let rejections = Rejections::default();
            rejections.count(*rejection);
            let counts = rejections.by_reason();
            assert_eq!((counts.len(), counts.values().sum::<u64>(), counts[*name]), (REASONS.len(), 1, 1));
        }
    }
}
