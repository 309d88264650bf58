//! Which of a server's messages is the latest, where each replaces the one before.
//!
//! A message may come twice, or after one that was sent later: over another connection, or from a process that has ended since. Each
//! has an [`Edition`], and whoever receives it admits only what is later than all that came before ([`Editions`]).
//!
//! Numbers of processes may go back if a directory is restored from a backup. So a server that nothing was admitted of for
//! [`FORGOTTEN_AFTER`] may begin anywhere.

use crate::{Nanos, ServerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A server that nothing was admitted of for this long may begin anywhere.
pub const FORGOTTEN_AFTER: Nanos = Nanos::from_secs(10);

/// The number of a message among those of its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Edition {
    /// Which process of the sender says it: later ones have greater numbers.
    pub process: u64,
    /// Which of its messages it is: later ones have greater numbers.
    pub number: u64,
}

impl std::fmt::Display for Edition {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}", self.process, self.number)
    }
}

/// A message that came before, or after a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is number {told}, and {known} has come")]
pub struct OldEdition {
    /// Its number.
    pub told: Edition,
    /// The latest that is known.
    pub known: Edition,
}

/// The latest of each server.
#[derive(Clone, Debug, Default)]
pub struct Editions {
    known: BTreeMap<ServerId, (Nanos, Edition)>,
}

impl Editions {
    /// Notes that a message of `from` has come.
    ///
    /// # Errors
    /// It is not later than those before, and does not count.
    pub fn admit(&mut self, now: Nanos, from: ServerId, told: Edition) -> Result<(), OldEdition> {
        match self.known.get(&from) {
            Some(&(at, known)) if told <= known && now.since(at) < FORGOTTEN_AFTER => Err(OldEdition { told, known }),
            _ => {
                self.known.insert(from, (now, told));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_or_repeated_is_not_admitted() {
        let mut editions = Editions::default();
        let mut admit = |at_s, server, process, number| {
            editions.admit(Nanos::from_secs(at_s), ServerId(server), Edition { process, number }).is_ok()
        };
        assert!(admit(1, 1, 5, 7) && admit(1, 1, 5, 9), "numbers may be left out");
        assert!(!admit(2, 1, 5, 9) && !admit(2, 1, 5, 8), "repeated, and late");
        assert!(admit(2, 2, 1, 1), "servers count by themselves");
        assert!(admit(3, 1, 6, 1) && !admit(4, 1, 5, 10), "a later process begins anew, and an earlier one is over");
        assert!(!admit(12, 1, 5, 11) && admit(13, 1, 4, 1), "after a silence anything is news");
    }

    #[test]
    fn it_is_said_what_is_old() {
        let [told, known] = [3, 4].map(|number| Edition { process: 2, number });
        assert_eq!(OldEdition { told, known }.to_string(), "it is number 2.3, and 2.4 has come");
    }
}
