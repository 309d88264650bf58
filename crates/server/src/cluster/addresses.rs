//! Where servers listen, for clients that were sent to one of them by its number, and how they tell it from servers of other
//! file systems.

use super::Cluster;
use crate::core::Core;
use isonomia_units::ServerId;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Servers that are remembered to have been told of. A client may ask for any number, so beyond these some are told of again, as often
/// as the log takes lines.
const TOLD_MAX: usize = 64;

/// Servers that clients asked for and that the cluster file does not have.
#[derive(Default)]
pub(super) struct Missing(Mutex<BTreeSet<u16>>);

impl Missing {
    /// Tells the operator once of each.
    fn tell(&self, server: u16, epoch: u32) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= TOLD_MAX {
            told.clear();
        }
        if told.insert(server) {
            tracing::warn!(
                server,
                epoch,
                "a client needs a server that the cluster file does not have: is there still something on it?"
            );
        }
    }
}

impl Core {
    /// Which file system this server is one of: see [`Welcome`](isonomia_proto::setup::Welcome).
    pub fn file_system(&self) -> u64 {
        match self.cluster.get() {
            Some(cluster) => cluster.config.map().file_system(),
            None => self.store.number_of_its_own(),
        }
    }

    /// Where a server listens, each address in a line of its own; nothing if it is unknown here. A server that is in no cluster
    /// says of itself what its clients may not know: on which sockets they have shared memory with it, should they be on its host.
    pub fn addresses_of(&self, server: u64) -> Option<String> {
        match self.cluster.get() {
            Some(cluster) => cluster.addresses_of(server),
            None => self.sockets.get().filter(|_| server == 0).cloned(),
        }
    }
}

impl Cluster {
    /// Where a server listens, each address in a line of its own; nothing if the cluster file does not have it.
    pub fn addresses_of(&self, server: u64) -> Option<String> {
        let map = self.config.map();
        // No server ever had a greater number.
        let number = u16::try_from(server).ok()?;
        let Some(known) = map.server(ServerId(number)) else {
            self.missing.tell(number, map.epoch().0);
            return None;
        };
        let lines: Vec<String> = known.listen.iter().map(ToString::to_string).collect();
        Some(lines.join("\n"))
    }
}
