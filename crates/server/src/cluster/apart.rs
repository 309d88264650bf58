//! What servers say to each other that is no matter of the thread `cluster`: a worker takes it where it comes in.
//!
//! Most of it is control: short, soon done, and worth nothing when it is late. It waits for no arbiter, where requests of clients would be
//! in front of it, but is answered by the next worker that looks ([`Cluster::answer_control`]), a few messages at a time so that requests of
//! clients wait no longer for it than for each other.

pub mod queue;

use super::controller::{Heard, LedgerQuestion, give_ledger};
use super::membership::Cluster;
use super::{moving, wire};
use crate::connection::{Pending, Way};
use crate::core::Core;

/// Messages that a worker answers before it looks after clients again.
const AT_ONCE: usize = 16;

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
                let own = (self.config.number, &*self.config.map());
                let reply = self.peer_tables.keep(&core.rates, &self.port, own, pending, bytes);
                core.answer_late(pending, &reply, &[]);
            }
            wire::PhaseReport::KIND => self.hear_claims(core, pending, bytes),
            wire::PhaseGrant::KIND => self.hear_grant(core, pending, bytes),
            LedgerQuestion::KIND => give_ledger(core, pending, bytes),
            kind if Heard::is_kind(kind) => {
                let reply = self.port.keep((self.config.number, &self.config.map()), pending, bytes);
                core.answer_late(pending, &reply, &[]);
            }
            _ => return false,
        }
        true
    }
}
