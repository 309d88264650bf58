//! Whether the root server is there: if it is not, this one answers for the root directory from its copy of the table, to
//! those who only read.

use super::Driver;
use crate::clock;
use isonomia_units::{Nanos, ServerId};

/// A root server that has said nothing for this long is away: it answers a question each second.
const AWAY_AFTER: Nanos = Nanos::from_secs(4);

/// When the root server was heard last.
#[derive(Debug)]
pub struct RootContact {
    heard_at: Nanos,
    is_away: bool,
}

impl RootContact {
    /// Of a server that starts at `now`.
    pub fn new(now: Nanos) -> Self {
        Self { heard_at: now, is_away: false }
    }

    /// `from` has said something.
    pub fn heard(&mut self, from: ServerId, root: ServerId) {
        if from == root {
            self.heard_at = clock::now();
        }
    }

    /// Whether it was away at the last look.
    pub fn is_away(&self) -> bool {
        self.is_away
    }
}

impl Driver {
    /// Notices that the root server has gone, or is back.
    pub(super) fn look_for_root(&mut self) {
        let map = self.config.map();
        let is_away = self.config.number != map.root().number && clock::now().since(self.root.heard_at) >= AWAY_AFTER;
        if is_away == self.root.is_away {
            return;
        }
        self.root.is_away = is_away;
        let root = &map.root().name;
        if is_away {
            tracing::warn!(%root, "the root server is away: its directory is listed from a copy, which may be old");
        } else {
            tracing::info!(%root, "the root server is back, and lists its directory itself");
        }
        if let Err(error) = self.tell_store() {
            tracing::error!(%error, "the names of volumes cannot be stored");
        }
    }
}
