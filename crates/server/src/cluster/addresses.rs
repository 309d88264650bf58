//! Where servers listen, for clients that were sent to one of them by its number.

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
    pub fn tell(&self, server: u16, epoch: u32) {
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
