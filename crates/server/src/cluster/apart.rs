//! What servers say to each other that is no matter of the thread `cluster`: a worker takes it where it comes in.
//!
//! Most of it is control: short, soon done, and worth nothing when it is late. It waits for no arbiter, where requests of clients would be
//! in front of it, but is answered by the next worker that looks ([`Cluster::answer_control`]), a few messages at a time so that requests of
//! clients wait no longer for it than for each other.

use super::controller::{Heard, LedgerQuestion, give_ledger};
use super::{Cluster, moving, wire};
use crate::connection::Way;
use crate::core::Core;
use crate::target::Pending;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Messages that wait to be answered at most: more than all servers of a cluster send at once. Others wait as requests do.
const WAITING_MAX: usize = 4_096;
/// Messages that a worker answers before it looks after clients again.
const AT_ONCE: usize = 16;

/// Control messages that have come and are not answered.
#[derive(Debug, Default)]
pub struct ControlQueue {
    waiting: Mutex<VecDeque<Pending>>,
    /// Whether there are any: workers look all the time.
    has_some: AtomicBool,
}

impl ControlQueue {
    /// Keeps a message until a worker answers it; gives it back if there are too many.
    pub fn keep(&self, pending: Pending) -> Result<(), Box<Pending>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= WAITING_MAX {
            return Err(Box::new(pending));
        }
        waiting.push_back(pending);
        self.has_some.store(true, Ordering::Release);
        Ok(())
    }

    fn next(&self) -> Option<Pending> {
        if !self.has_some.load(Ordering::Acquire) {
            return None;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let next = waiting.pop_front();
        self.has_some.store(!waiting.is_empty(), Ordering::Release);
        next
    }
}

/// Whether messages of this kind are answered from memory, in a moment.
pub fn is_control(kind: u32) -> bool {
    let of_tables = matches!(kind, wire::JobTable::KIND | wire::JobTable::OF_METADATA | wire::RATE_TABLE);
    of_tables || matches!(kind, wire::PhaseReport::KIND | wire::PhaseGrant::KIND) || Heard::is_kind(kind)
}

impl Cluster {
    /// Answers some of the control messages that have come; whether there were any.
    pub fn answer_control(&self, core: &Core) -> bool {
        let some = std::iter::from_fn(|| self.control.next()).take(AT_ONCE);
        let answered = some.map(|pending| {
            let names = match &pending.connection.way {
                Way::Shared(shared) => shared.region.copy_names(pending.slot, pending.header.names_len()),
                Way::Stream(_) => pending.names.clone(),
            };
            if !pending.connection.is_closed() {
                self.hear_apart(core, &pending, &names);
            }
        });
        answered.count() > 0
    }

    /// Takes such a message, and answers it; false if it is none.
    pub(super) fn hear_apart(&self, core: &Core, pending: &Pending, bytes: &[u8]) -> bool {
        match pending.header.valid {
            wire::WantedPiece::KIND => moving::give_piece(core, pending, bytes),
            wire::JobTable::KIND | wire::JobTable::OF_METADATA | wire::RATE_TABLE => {
                self.told.keep(core, (self.config.number, &self.config.map()), pending, bytes)
            }
            wire::PhaseReport::KIND => self.hear_claims(core, pending, bytes),
            wire::PhaseGrant::KIND => self.hear_grant(core, pending, bytes),
            LedgerQuestion::KIND => give_ledger(core, pending, bytes),
            kind if Heard::is_kind(kind) => {
                self.port.keep(core, (self.config.number, &self.config.map()), pending, bytes);
            }
            _ => return false,
        }
        true
    }
}
