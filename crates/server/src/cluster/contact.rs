//! Whether the root server is there: if it is not, this one answers for the root directory from its copy of the table, to
//! those who only read.

use crate::clock;
use isonomia_cluster::map::Server;
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

    /// Notices that the root server has gone, or is back, on server `own`; whether that is new.
    pub fn look(&mut self, own: ServerId, root: &Server) -> bool {
        let is_away = own != root.number && clock::now().since(self.heard_at) >= AWAY_AFTER;
        if is_away == self.is_away {
            return false;
        }
        self.is_away = is_away;
        let root = &root.name;
        if is_away {
            tracing::warn!(%root, "the root server is away: its directory is listed from a copy, which may be old");
        } else {
            tracing::info!(%root, "the root server is back, and lists its directory itself");
        }
        true
    }
}
