//! What a target has to do with the ranges that are written back and with those that are read ahead, which are requests as any
//! others: see [`crate::write_back`] and [`crate::read_ahead`].

use super::{NOBODY, Queue, Queued, Target};
use crate::prices::Prices;
use crate::read_ahead::Piece;
use crate::write_back::{Chunk, Manner, WriteBack};
use isonomia_policy::device::chunks::{self, SMALL_READ};
use isonomia_policy::device::read_ahead;
use isonomia_policy::{self as policy, Access, Nature, RequestId, ServedBy, Submission};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_units::{Bytes, JobId, Nanos};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// Whoever uses a target, or reads from its device, counts as long as this after the last time.
const LATELY: Nanos = Nanos::from_secs(1);
/// How long a chunk of what is written back takes while nobody waits for the device.
const CHUNK_TIME_LONG: Nanos = Nanos::from_millis(16);
/// And so many are under way of each job.
const CHUNKS_LONG: usize = 4;
/// A write that takes no longer than this was left in the host's memory, …
const KEPT_TIME_MAX: Nanos = Nanos::from_micros(60);
/// … but for the time that bytes take at this rate: copied and summed on a busy processor.
const KEPT_BYTES_PER_NS: u64 = 4;

impl Target {
    /// How what `job` has written is to be cut into chunks.
    pub fn manner(&self, now: Nanos, job: JobId) -> Manner {
        let queue = self.queue();
        let is_lately = |at: Nanos| at > Nanos::ZERO && now.since(at) < LATELY;
        let is_shared = queue.users.iter().any(|(user, at)| *user != job && *user != NOBODY && is_lately(*at));
        let class = queue.dispatcher.latency(now).map(|report| report.target);
        drop(queue);
        if class.is_some() || is_lately(Nanos(self.read_at.load(Ordering::Relaxed))) {
            let read = self.prices.as_ref().map(|prices| prices.time_of(Access::ReadRandom, SMALL_READ));
            let time_max = chunks::time_max(read, class);
            return Manner { time_max, chunks_max: None, is_counted: is_shared || class.is_some() };
        }
        Manner { time_max: CHUNK_TIME_LONG, chunks_max: Some(CHUNKS_LONG), is_counted: is_shared }
    }

    /// Whether a write that took so long to be served left its bytes in the host's memory, to be brought to the device later:
    /// what it took says nothing of the device then. It may take longer if it `is_behind` a write past the page cache, for which it waits.
    pub fn is_kept(&self, took: Nanos, is_behind: bool, header: &RequestHeader) -> bool {
        let most = KEPT_TIME_MAX + Nanos(u64::from(header.len) / KEPT_BYTES_PER_NS);
        let may_keep = self.write_back.as_ref().is_some_and(WriteBack::keeps_pages);
        may_keep && (took <= most || is_behind) && !self.is_past_cache(Op::Write, header)
    }

    /// Queues a range that is to be written back; gives it back if the queue is full, or does not know its job.
    pub fn enqueue_chunk(&self, now: Nanos, chunk: Box<Chunk>) -> Result<(), Box<Chunk>> {
        let is_by_time = self.prices.as_ref().is_some_and(Prices::is_by_time);
        let work = if is_by_time { chunk.unpaid } else { self.cost(1, chunk.bytes) };
        let mut queue = self.queue();
        // Where bytes are counted, the write was charged for them.
        let cost = if is_by_time { queue.dispatcher.worth().of(chunk.predicted).max(Nanos(1)) } else { Nanos(1) };
        // It is no small request, however small it is.
        let (owed, bytes) = (Nanos::ZERO, Bytes(0));
        let submission =
            Submission { job: chunk.job, cost, owed, work, bytes, nature: Nature::OWN, is_counted: chunk.is_counted };
        queue.note_user(now, chunk.job);
        if let Err(Queued::WriteBack(chunk)) = queue.dispatcher.enqueue(now, submission, Queued::WriteBack(chunk)) {
            return Err(chunk);
        }
        self.waiting.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether a short read of `job` may have its block read with it: the job is alone, or pays for the time that it takes, and nobody has a time in
    /// which requests are to be served.
    pub fn may_read_blocks(&self, now: Nanos, job: JobId) -> bool {
        let pays = || {
            let is_by_time = self.prices.as_ref().is_some_and(Prices::is_by_time);
            is_by_time && self.queue().dispatcher.latency(now).is_none()
        };
        pays() || self.read_ahead_manner(now, job) == read_ahead::Manner::AtOnce
    }

    /// How a stream of `job` is to be read ahead: while others use the target in pieces, which take no longer than chunks.
    pub fn read_ahead_manner(&self, now: Nanos, job: JobId) -> read_ahead::Manner {
        let Manner { time_max, is_counted: is_shared, .. } = self.manner(now, job);
        let Some(prices) = self.prices.as_ref().filter(|_| is_shared) else { return read_ahead::Manner::AtOnce };
        let time_of = |bytes| prices.time_of(Access::ReadSequential, bytes);
        read_ahead::Manner::InPieces(chunks::piece_bytes(time_max, time_of).0)
    }

    /// Queues a part of what is read ahead; false if the queue is full, or does not know its job.
    pub fn enqueue_piece(&self, now: Nanos, piece: Piece) -> bool {
        let prices = self.prices.as_ref().filter(|prices| prices.is_by_time());
        // Where bytes are counted, the reads are charged for them.
        let cost = prices.map_or(Nanos(1), |prices| prices.predict(Access::ReadSequential, piece.bytes()));
        // It is no small request, however small it is.
        let (job, work, bytes) = (piece.job, piece.work, Bytes(0));
        let cost = cost.max(Nanos(1));
        let submission =
            Submission { job, cost, owed: Nanos::ZERO, work, bytes, nature: Nature::OWN, is_counted: true };
        let is_queued = self.queue().dispatcher.enqueue(now, submission, Queued::ReadAhead(Box::new(piece))).is_ok();
        self.waiting.fetch_add(usize::from(is_queued), Ordering::Release);
        is_queued
    }

    /// A range is being written back, or read ahead, from now on.
    pub fn begin_chunk(&self, now: Nanos, id: RequestId) {
        if self.prices.is_some() {
            self.queue().dispatcher.enter(now, id);
        }
    }

    /// A range of `job` was written back or read ahead, by the device or, if there was nothing to do, by nobody. Gives what
    /// the job is charged, and what it was given of the device's time.
    pub fn end_chunk(&self, now: Nanos, id: RequestId, job: JobId, by: ServedBy) -> Option<policy::Served> {
        let mut queue = self.queue();
        let served = queue.dispatcher.complete(now, id, by)?;
        queue.service_ns_total += served.service.0;
        queue.note_device_time(job, &served);
        Some(served)
    }

    /// What each job had of the device's time since this was asked before.
    pub fn take_device_times(&self) -> HashMap<JobId, Nanos> {
        std::mem::take(&mut self.queue().device_times)
    }
}

impl Queue {
    /// A request of `job` has ended.
    pub(super) fn note_device_time(&mut self, job: JobId, served: &policy::Served) {
        if let Some(attributed) = served.attributed {
            *self.device_times.entry(job).or_default() += attributed;
        }
    }

    /// `job` queues something.
    pub(super) fn note_user(&mut self, now: Nanos, job: JobId) {
        let [latest, before] = &mut self.users;
        if latest.0 != job {
            (*before, latest.0) = (*latest, job);
        }
        latest.1 = now;
    }
}
