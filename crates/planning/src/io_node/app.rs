//! An application at an I/O node: what it wants, and what became of it.

use super::{AppId, Declared};
use isonomia_units::Nanos;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where an application is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It wants nothing of the node, or the node is open.
    Away,
    /// It waits for the node.
    Waiting,
    /// It has the node.
    Holding,
}

/// What an application had of the node, and waited for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppState {
    /// Its name.
    pub application: Arc<str>,
    /// Where it is.
    pub standing: Standing,
    /// For how long it has been known.
    pub age: Nanos,
    /// How long its phases took, the present one included.
    pub io: Nanos,
    /// How long it waited, the present wait included.
    pub waited: Nanos,
    /// The longest wait.
    pub waited_max: Nanos,
    /// Phases that are over.
    pub phases: u64,
}

#[derive(Debug)]
pub(super) struct App {
    pub(super) name: Arc<str>,
    /// Who knows it.
    pub(super) joined: u32,
    pub(super) is_exempt: bool,
    pub(super) known_since: Nanos,
    pub(super) outstanding: u64,
    pub(super) idle_since: Nanos,
    /// Sessions that are in a phase which they have declared.
    pub(super) sessions: BTreeSet<u64>,
    pub(super) declared: Declared,
    pub(super) waiting_since: Option<Nanos>,
    /// Its last grant lasted for the lease: it claims nothing before these have had their turn, whatever the order is.
    pub(super) behind: BTreeSet<AppId>,
    pub(super) waited: Nanos,
    pub(super) waited_max: Nanos,
    pub(super) io_done: Nanos,
    pub(super) phases: u64,
}

impl App {
    pub(super) fn wants(&self) -> bool {
        self.outstanding > 0 || !self.sessions.is_empty()
    }

    pub(super) fn stop_waiting(&mut self, now: Nanos) {
        if let Some(since) = self.waiting_since.take() {
            let waited = now.since(since);
            self.waited += waited;
            self.waited_max = self.waited_max.max(waited);
        }
    }

    /// One that comes now.
    pub(super) fn new(now: Nanos, name: &Arc<str>) -> Self {
        Self {
            name: name.clone(),
            joined: 1,
            is_exempt: false,
            known_since: now,
            outstanding: 0,
            idle_since: now,
            sessions: BTreeSet::new(),
            declared: Declared::default(),
            waiting_since: None,
            behind: BTreeSet::new(),
            waited: Nanos::ZERO,
            waited_max: Nanos::ZERO,
            io_done: Nanos::ZERO,
            phases: 0,
        }
    }

    /// What became of it, if it has had the node since then, or has not got it.
    pub(super) fn state(&self, now: Nanos, granted_since: Option<Nanos>) -> AppState {
        let wait = self.waiting_since.map_or(Nanos::ZERO, |since| now.since(since));
        AppState {
            application: self.name.clone(),
            standing: match (granted_since, self.waiting_since) {
                (Some(_), _) => Standing::Holding,
                (None, Some(_)) => Standing::Waiting,
                (None, None) => Standing::Away,
            },
            age: now.since(self.known_since),
            io: self.io_done + granted_since.map_or(Nanos::ZERO, |since| now.since(since)),
            waited: self.waited + wait,
            waited_max: self.waited_max.max(wait),
            phases: self.phases,
        }
    }
}
