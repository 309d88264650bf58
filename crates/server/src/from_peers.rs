//! What other servers send of decisions, jobs, rates and exclusive phases, as bytes and as what they mean: for those who try to break it
//! (`fuzz/targets`). The server itself reads each kind where it is taken in.

use crate::cluster::Heard;
use crate::cluster::wire::{self, JobTable, PhaseGrant, PhaseReport, RATE_TABLE};
use isonomia_controller::{Allocation, Ask, Report};
use isonomia_planning::coordinator;
use isonomia_policy::exchange::{Table, rates};
use isonomia_units::Edition;

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerMessage {
    /// The controller asks.
    Ask(Ask),
    /// A server reports to it.
    Report(Report),
    /// It has decided.
    Allocation(Allocation),
    /// What jobs have.
    Jobs(Edition, Table),
    /// What classes have of the rates of rules.
    Rates(Edition, rates::Table),
    /// Who needs an I/O node.
    Claims(coordinator::Report),
    /// Who has it.
    Grant(coordinator::Publication),
}

/// What a message of this kind means ([`RequestHeader::valid`](isonomia_proto::request::RequestHeader)); nothing if it is refused.
pub fn decode(kind: u32, bytes: &[u8]) -> Option<PeerMessage> {
    match kind {
        JobTable::KIND | JobTable::OF_METADATA => {
            JobTable::decode(bytes).map(|table| PeerMessage::Jobs(table.edition, table.table))
        }
        Heard::ASK => Ask::decode(bytes).ok().map(PeerMessage::Ask),
        Heard::REPORT => Report::decode(bytes).ok().map(PeerMessage::Report),
        Heard::ALLOCATION => Allocation::decode(bytes).ok().map(PeerMessage::Allocation),
        RATE_TABLE => wire::decode_rates(bytes).map(|(edition, table)| PeerMessage::Rates(edition, table)),
        PhaseReport::KIND => PhaseReport::decode(bytes).map(PeerMessage::Claims),
        PhaseGrant::KIND => PhaseGrant::decode(bytes).map(PeerMessage::Grant),
        _ => None,
    }
}
