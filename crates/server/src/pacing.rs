//! What the threads of a server do for paced write-back and for read-ahead: see [`crate::write_back`] and
//! [`crate::read_ahead`].

use crate::clock;
use crate::connection::Pending;
use crate::core::Core;
use crate::engine::Task;
use crate::fetch;
use crate::pages::PagesOf;
use crate::prices::Prices;
use crate::read_ahead::{Piece, ReadAhead};
use crate::requests::Work;
use crate::substitutes::worker_number;
use crate::target::Target;
use crate::write_back::{Chunk, Released, WriteBack, Wrote};
use isonomia_policy::device::read_ahead::{Manner, Read, Seen};
use isonomia_policy::{Access, RequestId, ServedBy};
use isonomia_proto::request::{Op, ReplyHeader, flag};
use isonomia_store::StoreError;
use isonomia_units::{Bytes, JobId, Nanos, TargetId};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A shorter write is not begun to be brought to the device by itself: it is a request of its own there.
const BEGUN_LEN_MIN: u64 = 128 << 10;
/// While so many flushes are under way nothing is.
const BEGUN_FLUSHES_MAX: usize = 4;
/// Nor where a flush takes longer than this: a device that takes long for each request is better given one than several.
const BEGUN_FLUSH_MAX: Nanos = Nanos::from_millis(2);
/// To begin it may take the host so long on average.
const BEGUN_TOOK_MAX: Nanos = Nanos::from_micros(200);

/// Whether a device is given early what is soon to be flushed, where flushes take so long on average, and so many are under way.
fn gains_by_beginning(flush_time: Nanos, flushes: usize) -> bool {
    flush_time <= BEGUN_FLUSH_MAX && flushes < BEGUN_FLUSHES_MAX
}

impl Core {
    /// Counts what a write that was served, and is answered with `reply`, has left for the device. `None` if it has not.
    pub fn count_pages(&self, target: &Target, now: Nanos, pending: &Pending, reply: &ReplyHeader) -> Option<Wrote> {
        let header = &pending.header;
        let leaves_pages = pending.op == Op::Write && reply.errno == 0 && !target.is_past_cache(pending.op, header);
        let pages = target.write_back.as_ref().filter(|_| leaves_pages)?;
        // What an append wrote begins where its reply says, and a reply to any other write says how much it was.
        let (offset, len) = match header.flags & flag::APPEND {
            0 => (header.offset, reply.value),
            _ => (reply.value, u64::from(header.len)),
        };
        let range = offset..offset.saturating_add(len);
        // Who waited for the device is charged for that.
        let is_unpaid = !pending.is_for_device && target.prices.as_ref().is_some_and(Prices::is_by_time);
        let job = pending.connection.job.id;
        let of = PagesOf::request(header);
        let wrote = pages.wrote(now, job, of, range.clone(), pending.work, is_unpaid);
        if wrote.is_synced_soon && len >= BEGUN_LEN_MIN {
            self.begin_to_write(target, now, job, (of, range));
        }
        if wrote.is_due {
            _ = self.queue_chunks(target, pages, job, now);
        }
        Some(wrote)
    }

    /// Has the host begin to write what is soon to be flushed, so that the device does not idle while the rest of it is copied to memory. Only for
    /// a job that is alone with the device, as its time is attributed to nobody, and while few flushes are under way: many keep it busy by
    /// themselves, with larger requests.
    fn begin_to_write(&self, target: &Target, now: Nanos, job: JobId, (of, range): (PagesOf, Range<u64>)) {
        let is_alone = || !target.manner(now, job).is_counted;
        let is_free = || is_alone() && gains_by_beginning(target.engine.flush_time(), target.engine.flushes());
        let (Some(pages), Some(id)) = (&target.write_back, target.id) else { return };
        if !pages.begins.may_ask(BEGUN_TOOK_MAX) || !is_free() {
            return;
        }
        // Who writes waits for this, and it may have to wait for the device: of several workers one at a time.
        let is_worker = worker_number().is_some();
        let is_refused =
            || self.workers < 2 || fetch::are_under_way() || self.is_worker_waiting.swap(true, Ordering::AcqRel);
        if is_worker && is_refused() {
            return;
        }
        pages.begins.measure(BEGUN_TOOK_MAX, || {
            if let Ok(Some(extent)) = of.extent(&self.store, id, &[range]) {
                pages.note_begun(of, job);
                extent.begin_to_write(&self.store);
            }
        });
        if is_worker {
            self.is_worker_waiting.store(false, Ordering::Release);
        }
    }

    /// Queues chunks of what is due of `job`; true if there were any.
    fn queue_chunks(&self, target: &Target, pages: &WriteBack, job: JobId, now: Nanos) -> bool {
        let manner = target.manner(now, job);
        let mut is_queued = false;
        while let Some(chunk) = pages.next(job, manner) {
            match target.enqueue_chunk(now, Box::new(chunk)) {
                Ok(()) => is_queued = true,
                Err(chunk) => self.write_past_arbiter(target, *chunk),
            }
        }
        self.tell_of_arrivals(is_queued);
        is_queued
    }

    /// The device of `target` is kept free for `job`: has more of what it wrote written back at once, rather than wait for its next request.
    /// True if there was any.
    pub fn write_back_more(&self, target: &Target, job: JobId, now: Nanos) -> bool {
        let pages = target.write_back.as_ref().filter(|pages| pages.needs_more(job, target.manner(now, job)));
        pages.is_some_and(|pages| self.queue_chunks(target, pages, job, now))
    }

    /// Sees to it that somebody asks whose turn it is, if something is queued that whoever looked before did not find, or found no slot
    /// for.
    pub fn tell_of_arrivals(&self, is_queued: bool) {
        if is_queued {
            self.has_arrived();
        }
    }

    /// Writes back what no job can be asked to pay for: its job is not known any more, or the queue is full.
    pub fn write_past_arbiter(&self, target: &Target, chunk: Chunk) {
        if let Err(Task::WriteBack(chunk, _)) = self.submit(target, Task::WriteBack(Box::new(chunk), None))
            && let Some(pages) = &target.write_back
        {
            // The host writes it at its own pace.
            self.let_go(target, pages.abandoned(&chunk), clock::now());
        }
    }

    /// Writes back a range whose turn has come, and queues what is next.
    pub fn write_back(&self, target: &Target, chunk: &Chunk, id: Option<RequestId>) {
        let (Some(pages), Some(target_id)) = (&target.write_back, target.id) else { return };
        let begun = clock::now();
        pages.begun(begun);
        if let Some(id) = id {
            target.begin_chunk(begun, id);
        }
        let took = match self.write_out(target_id, chunk) {
            Ok(took) => {
                self.unsynced.written_back(chunk.of.ino(), chunk.bytes);
                if let Some(took) = took.filter(|_| !chunk.is_begun) {
                    pages.looked(chunk.job, chunk.was_clean(took));
                }
                took.unwrap_or(Nanos::ZERO)
            }
            // It was removed meanwhile.
            Err(StoreError::Stale) => Nanos::ZERO,
            Err(error) => {
                if self.store.may_tell_refused() {
                    tracing::error!(ino = %chunk.of.ino(), %error, "written pages cannot be brought to the device");
                }
                Nanos::ZERO
            }
        };
        let now = clock::now();
        // No device is faster than memory: there was nothing to write.
        let by = if took > target.cost(1, chunk.bytes) { ServedBy::Device } else { ServedBy::Memory };
        let served = id.and_then(|id| target.end_chunk(now, id, chunk.job, by));
        let attributed = served.and_then(|served| served.attributed).unwrap_or(took);
        let released = pages.finished(now, chunk, (by == ServedBy::Device).then_some((took, attributed)));
        if let Some(served) = served.filter(|_| target.prices.as_ref().is_some_and(Prices::is_by_time))
            && let Some(job) = self.jobs.find(chunk.job)
        {
            job.charge(served.service);
        }
        self.let_go(target, released, now);
        _ = self.queue_chunks(target, pages, chunk.job, now);
    }

    /// Has the host write a chunk to the device, and tells how long that took; `None` if it was not asked to.
    fn write_out(&self, target: TargetId, chunk: &Chunk) -> Result<Option<Nanos>, StoreError> {
        let is_to_be_written = chunk.is_to_be_written();
        let extent = is_to_be_written.then(|| chunk.of.extent(&self.store, target, &chunk.ranges)).transpose()?;
        let Some(extent) = extent.flatten() else { return Ok(None) };
        let begun = clock::now();
        extent.write_out(&self.store, chunk.is_only_writer)?;
        let took = clock::now().since(begun);
        if chunk.is_large {
            extent.forget();
        }
        Ok(Some(took))
    }

    /// Keeps a request for stable storage until what was written to its file before is written back; gives it back if that is
    /// no more than the request may find left.
    pub fn sync_later(&self, target: &Target, work: Box<Work>) -> Option<Box<Work>> {
        let Some(pages) = &target.write_back else { return Some(work) };
        let now = clock::now();
        let manner = target.manner(now, work.pending.connection.job.id);
        match pages.sync_later(PagesOf::request(&work.pending.header), manner, work) {
            Ok(writers) => {
                writers.into_iter().for_each(|job| _ = self.queue_chunks(target, pages, job, now));
                None
            }
            Err(work) => Some(work),
        }
    }

    /// Syncs a file or an object on `target` by `sync`, of which nothing needs to be written back any more then.
    pub fn with_pages_of<T>(&self, of: PagesOf, target: Option<TargetId>, sync: impl FnOnce() -> T) -> T {
        let target = target.and_then(|id| self.targets.iter().find(|target| target.id == Some(id)));
        let pages = target.and_then(|target| Some((target, target.write_back.as_ref()?)));
        let Some((target, pages)) = pages else { return sync() };
        let taken = pages.take(of);
        let synced = sync();
        if !taken.is_empty() {
            self.let_go(target, pages.synced(of, &taken), clock::now());
        }
        synced
    }

    /// Has old pages of all targets written back: to be called ten times a second or so.
    pub fn pace_all(&self, now: Nanos) {
        for target in &self.targets {
            let Some(pages) = &target.write_back else { continue };
            let shares = if pages.dirty().0 > Bytes(0) { target.shares(now) } else { Vec::new() };
            let (writers, released) = pages.look(now, &shares, &target.take_device_times());
            writers.into_iter().for_each(|job| _ = self.queue_chunks(target, pages, job, now));
            self.let_go(target, released, now);
        }
    }

    /// Answers what is delayed, and delays no reply any more: the server stops.
    pub fn delay_no_more(&self) {
        for target in &self.targets {
            if let Some(pages) = &target.write_back {
                self.let_go(target, pages.stop(), clock::now());
            }
        }
    }

    fn let_go(&self, target: &Target, released: Released, now: Nanos) {
        released.paid.iter().for_each(|paid| self.answer_paid(paid, now));
        for work in released.syncs {
            self.leave(target, Task::Serve(Box::new(work)), &mut Vec::new());
        }
    }

    /// Has the host read ahead of a stream that a read belongs to, by which the client was given so many bytes. Gives the part
    /// of the read's work that was paid for when it was read ahead.
    pub fn look_for_stream(&self, target: &Target, now: Nanos, pending: &Pending, len: u32) -> Nanos {
        let Some(streams) = target.read_ahead.as_ref() else { return Nanos::ZERO };
        let (header, job) = (&pending.header, pending.connection.job.id);
        let (of, len) = (PagesOf::request(header), u64::from(len));
        let range = header.offset..header.offset.saturating_add(len);
        let manner = || target.read_ahead_manner(now, job);
        let is_continued = header.flags & flag::CONTINUED != 0;
        let read = Read { job, range, is_from_memory: !pending.is_for_device, is_continued };
        let Seen { ahead, paid_bytes } = streams.note(of, read, manner);
        let part_of_work = |bytes: u64| {
            Nanos((u128::from(pending.work.0) * u128::from(bytes) / u128::from(pending.bytes.0.max(1))) as u64)
        };
        match ahead {
            Some((range, Manner::AtOnce)) => {
                // Without a thread to be had the reader waits for the device, as he would anyway.
                let _ = self.submit(target, Task::ReadAhead(of, range));
            }
            Some((range, Manner::InPieces(piece_bytes))) => {
                let piece = |start: u64| {
                    let range = start..range.end.min(start.saturating_add(piece_bytes));
                    let work = part_of_work(range.end - range.start);
                    Piece { of, job, range, work }
                };
                let starts = (range.start..range.end).step_by(piece_bytes as usize);
                let queued = starts.take_while(|start| target.enqueue_piece(now, piece(*start))).count();
                self.tell_of_arrivals(queued > 0);
            }
            None => {}
        }
        if target.prices.as_ref().is_some_and(Prices::is_by_time) { part_of_work(paid_bytes) } else { Nanos::ZERO }
    }

    /// A thread that may wait is about to serve a request. It counts as being at the device from now on, unless it waits for
    /// what is read ahead: then another one may replace it.
    pub fn enter(&self, target: &Target, now: Nanos, pending: &mut Pending, id: RequestId) {
        let header = &pending.header;
        let range = header.offset..header.offset.saturating_add(u64::from(header.len));
        let is_reading = |streams: &ReadAhead| streams.is_reading(PagesOf::request(header), &range);
        if pending.op == Op::Read && target.read_ahead.as_ref().is_some_and(is_reading) {
            target.set_aside(now, id);
            self.tell_of_arrivals(!target.is_empty());
        } else {
            target.enter(now, pending, id);
        }
    }

    /// Reads ahead what has its turn.
    pub fn read_piece(&self, target: &Target, piece: &Piece, id: RequestId) {
        let begun = clock::now();
        target.begin_chunk(begun, id);
        target.read_ahead.iter().for_each(|streams| streams.begins(piece));
        if let Some(target_id) = target.id
            && let Ok(Some(extent)) = piece.of.extent(&self.store, target_id, std::slice::from_ref(&piece.range))
        {
            extent.read_ahead();
            extent.wait_until_read();
        }
        target.read_ahead.iter().for_each(|streams| streams.ends(piece));
        let now = clock::now();
        // No device is faster than memory: all of it was there.
        let is_device = now.since(begun) > target.cost(1, piece.bytes());
        let by = if is_device { ServedBy::Device } else { ServedBy::Partly(Nanos::ZERO) };
        let served = target.end_chunk(now, id, piece.job, by);
        if let Some((served, prices)) = served.zip(target.prices.as_ref()).filter(|(_, prices)| prices.is_by_time()) {
            if let Some(attributed) = served.attributed.filter(|_| is_device) {
                prices.learn(now, Access::ReadSequential, piece.bytes(), attributed);
            }
            if let Some(job) = self.jobs.find(piece.job) {
                job.charge(served.service);
            }
        }
    }

    /// Has the host read a range of a file.
    pub fn read_ahead(&self, target: &Target, of: PagesOf, range: Range<u64>) {
        let Some(id) = target.id else { return };
        // Whoever reads what cannot be read finds out.
        if let Ok(Some(extent)) = of.extent(&self.store, id, &[range]) {
            extent.read_ahead();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow array of few channels, which serves one long request sooner than four, and a disk that many flushes keep busy.
    #[test]
    fn slow_devices_and_busy_ones_are_given_nothing_early() {
        let of = |flush_us, flushes| gains_by_beginning(Nanos::from_micros(flush_us), flushes);
        assert_eq!([of(0, 0), of(500, 3), of(2_000, 3)], [true; 3]);
        assert_eq!([of(2_001, 0), of(5_000, 1), of(500, 4), of(500, 32)], [false; 4]);
    }
}
