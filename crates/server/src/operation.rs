//! What kind of operation a request is of: whose queue it waits in, what it may be charged for, who may serve it.

use isonomia_proto::request::Op;

/// Whether an operation is for the target with the data, and not for the metadata service.
pub fn is_for_data(op: Op) -> bool {
    let space = matches!(op, Op::Fallocate | Op::SeekData | Op::SeekHole | Op::MapFile);
    space || matches!(op, Op::Read | Op::Write | Op::Fsync | Op::ReserveAppend)
}

/// Whether the payload is data of a file.
pub fn reads_or_writes(op: Op) -> bool {
    matches!(op, Op::Read | Op::Write)
}

/// What no program asks for by itself, and what others may wait for: no rule is to hold it.
pub fn is_housekeeping(op: Op) -> bool {
    let of_sessions = matches!(op, Op::Release | Op::ReleaseMany | Op::Adopt | Op::HandOver);
    let of_mappings = matches!(op, Op::AwaitMappings | Op::GiveMapping | Op::TakeMapping);
    let of_servers =
        matches!(op, Op::Peer | Op::FindServer | Op::FindObjects | Op::TellSize | Op::Delegate | Op::PathOf);
    // Others wait for an unlock, and for the end of a phase.
    of_sessions || of_mappings || of_servers || matches!(op, Op::Lock | Op::Phase)
}

/// Whether serving an operation can take long: another worker then looks after the connections.
pub fn is_slow(op: Op) -> bool {
    matches!(op, Op::Fsync | Op::Fallocate | Op::MapFile)
}
