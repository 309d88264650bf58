//! Where servers listen, for clients that were sent to one of them by its number.

use super::Cluster;
use isonomia_units::ServerId;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Servers that are told of in the log: a client may ask for any number.
const TOLD_MAX: usize = 64;

/// Servers that clients asked for and that the cluster file does not have.
#[derive(Default)]
pub(super) struct Missing(Mutex<BTreeSet<u64>>);

impl Missing {
    /// Tells the operator once of each.
    fn tell(&self, server: u64, epoch: u32) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TOLD_MAX && told.insert(server) {
            tracing::warn!(
                server,
                epoch,
                "a client needs a server that the cluster file does not have: is there still something on it?"
            );
        }
    }
}

impl Cluster {
    /// Where a server listens, each address in a line of its own; nothing if the cluster file does not have it.
    pub fn addresses_of(&self, server: u64) -> Option<String> {
        let map = self.config.map();
        let known = u16::try_from(server).ok().and_then(|number| map.server(ServerId(number)));
        let Some(known) = known else {
            self.missing.tell(server, map.epoch().0);
            return None;
        };
        let lines: Vec<String> = known.listen.iter().map(ToString::to_string).collect();
        Some(lines.join("\n"))
    }
}
