//! What servers say to each other that is no matter of the thread `cluster`: a worker takes it where it comes in.

use super::controller::{Heard, LedgerQuestion, give_ledger};
use super::{Cluster, moving, wire};
use crate::core::Core;
use crate::target::Pending;

impl Cluster {
    /// Takes such a message, and answers it; false if it is none.
    pub(super) fn hear_apart(&self, core: &Core, pending: &Pending, bytes: &[u8]) -> bool {
        match pending.header.valid {
            wire::WantedPiece::KIND => moving::give_piece(core, pending, bytes),
            wire::JobTable::KIND | wire::RATE_TABLE => {
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
