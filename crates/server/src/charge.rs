//! What requests are charged.
//!
//! Whatever moves bytes is charged for them, in either direction, and nothing is for free: a request costs at least
//! what serving it costs this server. Most of it is known when the request comes ([`ahead`]). What a real device takes for
//! reads and writes is a prediction ([`crate::prices`]), and corrected when they end, and so is what it takes to flush. The
//! length of a reply, that somebody connected, and, where the policy does not divide the device's time, what an fsync finds
//! to flush, and how long that took, is owed, and charged with the next request ([`crate::debts`]).

use crate::connection::{Connection, Pending, Way};
use crate::core::Core;
use crate::engine::Kind;
use crate::execute;
use crate::jobs::Job;
use crate::operation::{is_housekeeping, is_slow, reads_or_writes};
use crate::requests::Charged;
use crate::target::Target;
use isonomia_policy::{Access, CostModel, Nature, Operation};
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader};
use isonomia_units::{Bytes, Ino, Nanos};

/// A reply of this length is part of the operation; what is longer is charged for its bytes.
const REPLY_LEN_FREE: u32 = 512;
/// What takes longer than this is no longer what the fixed part of an operation stands for.
const SHORT_MAX: Nanos = Nanos::from_micros(20);
/// What a connection is charged as: operations of the metadata service that take as long as its set-up.
const CONNECT_OPERATIONS: u64 = 32;

/// What a request is charged before it is served.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    /// In all.
    pub cost: Nanos,
    /// The part of it that settles what the job owed.
    pub owed: Nanos,
    /// What it would be charged for without `owed` if no device had to do anything.
    pub work: Nanos,
    /// What it does to a device.
    pub access: Access,
    /// The bytes that it moves, as far as is known.
    pub bytes: Bytes,
}

impl Charge {
    /// Of what is no request of a job.
    pub const NOTHING: Self =
        Self { cost: Nanos::ZERO, owed: Nanos::ZERO, work: Nanos::ZERO, access: Access::ReadRandom, bytes: Bytes(0) };
}

/// What a request is charged before it is served. A read is charged the bytes that it asks for and the file has; a later part of a
/// transfer, its bytes only. Where a device has to be waited for it is what the device is likely to take.
pub fn ahead(
    core: &Core,
    target: &Target,
    connection: &Connection,
    op: Op,
    header: &RequestHeader,
    is_continued: bool,
) -> Charge {
    let job = &connection.job;
    let bytes = match op {
        Op::Read => execute::readable(core, connection, header),
        Op::Write => header.len,
        _ => u32::try_from(header.names_len()).unwrap_or(u32::MAX),
    };
    let bytes = Bytes(bytes.into());
    let operations = if is_continued { 0 } else { header.operations(op).max(1) };
    let owed = job.debts.take(target.is_metadata());
    let work = target.cost(operations, bytes);
    let mut charge = Charge { cost: work + owed, owed, work, access: Access::ReadRandom, bytes };
    let Some(prices) = target.prices.as_ref().filter(|_| reads_or_writes(op)) else { return charge };
    let is_write = op == Op::Write;
    charge.access = Access::new(is_write, connection.cursors.advance(is_write, header));
    if prices.is_by_time() {
        let engine = &target.engine;
        let device = || prices.predict(charge.access, bytes);
        let predicted = if op == Op::Read && engine.may_tell() {
            if job.misses.are_none() { work } else { job.misses.between(device(), work) }
        } else if engine.takes(Kind::of(op)) || target.is_past_cache(op, header) {
            device()
        } else {
            work
        };
        charge.cost = predicted.max(CostModel::nominal().per_op) + owed;
    }
    charge
}

/// Whether a request that took so long to serve is charged for that time, if it is more than its bytes and its fixed part.
/// Of some operations only the host knows how much work they are. Any other is short, unless somebody made it long: a path
/// of a thousand components, or through links that are as long; a lock on a file that has ten thousand.
fn is_timed(op: Op, took: Nanos) -> bool {
    is_slow(op) || matches!(op, Op::Rename | Op::PathOf) || took > SHORT_MAX
}

impl Core {
    /// What a request does, as the policy's rules look at it: `at` is its slot, its operation, and its names if they came on a stream.
    pub fn nature(
        &self,
        connection: &Connection,
        (slot, op, names): (usize, Op, &[u8]),
        header: &RequestHeader,
        is_continued: bool,
    ) -> Nature {
        let operation = match op {
            Op::Read => Operation::Read,
            Op::Write => Operation::Write,
            op if is_housekeeping(op) => return Nature::OWN,
            _ => Operation::Metadata,
        };
        let operations = if is_continued { 0 } else { u32::try_from(header.operations(op)).unwrap_or(u32::MAX) };
        let path = || match &connection.way {
            Way::Shared(shared) if header.path_len > 0 => shared.region.copy_names(slot, header.path_len.into()),
            _ => names.get(..usize::from(header.path_len)).unwrap_or_default().to_vec(),
        };
        let below = self.prefixes.below(&self.store, Ino(header.ino), path);
        Nature { operation: Some(operation), operations, below }
    }

    /// The job owes what only now is known of a request, and is not charged yet.
    pub fn settle(&self, pending: &Pending, reply: &ReplyHeader, charged: Charged) {
        let is_flush = pending.op == Op::Fsync && reply.errno == 0;
        // A file may have grown since a read of it was charged.
        let more =
            if pending.op == Op::Read { u64::from(reply.payload_len).saturating_sub(pending.bytes.0) } else { 0 };
        let is_long = if reads_or_writes(pending.op) { more > 0 } else { reply.payload_len > REPLY_LEN_FREE };
        let is_timed = is_timed(pending.op, pending.took);
        if !is_long && !is_timed {
            return;
        }
        let Some(target) = self.target_of(pending.op, &pending.header) else { return };
        let bytes = match (pending.op, is_long) {
            (Op::Fsync, _) if is_flush => self.unsynced.synced(Ino(pending.header.ino)),
            (Op::MapFile, _) => Bytes(reply.value),
            (Op::Read, _) => Bytes(more),
            (_, true) => Bytes(u64::from(reply.payload_len)),
            (_, false) => Bytes(0),
        };
        if is_flush {
            target.engine.flushed(bytes, pending.took);
        }
        // A write to a capped target has taken the device's time, and a flush of a real one was charged for it.
        let is_charged = is_flush && (target.is_capped() || charged.is_by_time);
        let for_bytes = if is_charged { Nanos::ZERO } else { target.time_for(bytes) };
        let took = if is_timed && !charged.is_by_time { pending.took } else { Nanos::ZERO };
        let for_time = took.since(charged.service + for_bytes);
        pending.connection.job.owe(target.is_metadata(), for_bytes + for_time);
    }

    /// A job has one more connection, which is work that no request asks for.
    pub fn charge_connection(&self, job: &Job) {
        if let Some(metadata) = self.targets.first() {
            job.owe(true, metadata.cost(CONNECT_OPERATIONS, Bytes(0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use isonomia_testbed::skip;
    use isonomia_units::{JobInfo, TargetId};

    #[test]
    fn a_target_hears_what_flushes_of_it_bring() {
        let dir = tempfile::tempdir().unwrap();
        let core = testing::core(dir.path(), false);
        if core.store.objects().is_volatile() {
            return skip("temporary directories are in memory");
        }
        let job = core.jobs.join(JobInfo::new("j", "u", "g")).unwrap().job;
        let header = RequestHeader { target: TargetId(0).0, ..RequestHeader::new(Op::Fsync, Ino(7)) };
        let flush = Pending { op: Op::Fsync, header, ..testing::write(&job) };
        let charged = Charged { service: Nanos::ZERO, is_by_time: true };
        for _ in 0..100 {
            core.unsynced.wrote(Ino(7), Bytes(1 << 20));
            core.settle(&flush, &ReplyHeader::ok(1, 0, 0), charged);
        }
        assert!(core.targets[1].engine.may_flushes_crowd(false));
        assert!(!core.targets[0].engine.may_flushes_crowd(false), "they are of another target");
    }
}
