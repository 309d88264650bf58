//! What the threads of a server do for paced write-back and for read-ahead: see [`crate::write_back`] and
//! [`crate::read_ahead`].

use crate::clock;
use crate::core::Core;
use crate::engine::Task;
use crate::target::Target;
use crate::write_back::{Paid, WriteBack};
use isonomia_proto::request::{Op, RequestHeader, flag};
use isonomia_store::StoreError;
use isonomia_units::{Bytes, Ino, Nanos, TargetId};
use std::ops::Range;

impl Core {
    /// Counts what a write that was served has left for the device; gives the request back unless its reply is held.
    pub fn pace(&self, target: &Target, now: Nanos, paid: Paid) -> Option<Paid> {
        let Some(pages) = &target.write_back else { return Some(paid) };
        let (pending, reply) = (&paid.served.pending, &paid.served.reply);
        if pending.op != Op::Write || reply.errno != 0 {
            return Some(paid);
        }
        let header = &pending.header;
        // What an append wrote begins where its reply says, and a reply to any other write says how much it was.
        let (offset, len) = match header.flags & flag::APPEND {
            0 => (header.offset, reply.value),
            _ => (reply.value, u64::from(header.len)),
        };
        let range = offset..offset.saturating_add(len);
        let (wants_thread, is_ahead) = pages.wrote(now, pending.connection.job.id, Ino(header.ino), range);
        if wants_thread {
            self.start_write_back(target, pages);
        }
        if is_ahead { pages.hold(paid) } else { Some(paid) }
    }

    /// Brings pages of `target` to the device as long as some are due.
    pub fn write_back(&self, target: &Target) {
        let (Some(pages), Some(id)) = (&target.write_back, target.id) else { return };
        while let Some(window) = pages.next(clock::now()) {
            let extent = self.store.extent(window.ino, id, window.range.clone());
            let written = extent.and_then(|extent| {
                let Some(extent) = extent else { return Ok(()) };
                extent.write_out()?;
                if window.is_large {
                    extent.forget();
                }
                Ok(())
            });
            match written {
                Ok(()) => self.unsynced.written_back(window.ino, window.bytes),
                // It was removed meanwhile.
                Err(StoreError::Stale) => {}
                Err(error) => {
                    tracing::error!(ino = %window.ino, %error, "written pages cannot be brought to the device")
                }
            }
            let now = clock::now();
            let (released, took) = pages.finished(now, &window);
            // Where the policy does not divide the device's time, the write was charged for its bytes.
            if let Some(prices) = target.prices.as_ref().filter(|prices| prices.is_by_time()) {
                for (job, owed) in window.owed(prices, took) {
                    if let Some(job) = self.jobs.find(job) {
                        job.owe(false, owed);
                    }
                }
            }
            self.answer_all(&released, now);
        }
    }

    /// Syncs a file on `target` by `sync`, of which nothing needs to be written back any more then.
    pub fn with_pages_of<T>(&self, ino: Ino, target: Option<TargetId>, sync: impl FnOnce() -> T) -> T {
        let target = target.and_then(|id| self.targets.iter().find(|target| target.id == Some(id)));
        let Some(pages) = target.and_then(|target| target.write_back.as_ref()) else { return sync() };
        let window = pages.take(ino);
        let synced = sync();
        if let Some(window) = window {
            self.answer_all(&pages.synced(&window), clock::now());
        }
        synced
    }

    /// Has old pages of all targets written back: to be called ten times a second or so.
    pub fn pace_all(&self, now: Nanos) {
        for target in &self.targets {
            let Some(pages) = &target.write_back else { continue };
            let shares = if pages.dirty().0 > Bytes(0) { target.shares(now) } else { Vec::new() };
            let (threads, released) = pages.look(now, &shares);
            for _ in 0..threads {
                self.start_write_back(target, pages);
            }
            self.answer_all(&released, now);
        }
    }

    /// Answers what is held, and holds no reply any more: the server stops.
    pub fn hold_no_more(&self) {
        for pages in self.targets.iter().filter_map(|target| target.write_back.as_ref()) {
            self.answer_all(&pages.stop(), clock::now());
        }
    }

    /// Has the host read ahead of a stream that a read belongs to, by which the client was given so many bytes.
    pub fn look_for_stream(&self, target: &Target, header: &RequestHeader, len: u32) {
        let Some(streams) = &target.read_ahead else { return };
        let range = header.offset..header.offset.saturating_add(u64::from(len));
        if let Some(range) = streams.reads(Ino(header.ino), range) {
            // Without a thread to be had the reader waits for the device, as he would anyway.
            let _ = target.engine.submit(self, target.index, Task::ReadAhead(Ino(header.ino), range));
        }
    }

    /// Has the host read a range of a file.
    pub fn read_ahead(&self, target: &Target, ino: Ino, range: Range<u64>) {
        let Some(id) = target.id else { return };
        // Whoever reads what cannot be read finds out.
        if let Ok(Some(extent)) = self.store.extent(ino, id, range) {
            extent.read_ahead();
        }
    }

    fn start_write_back(&self, target: &Target, pages: &WriteBack) {
        if target.engine.submit(self, target.index, Task::WriteBack).is_err() {
            pages.has_no_thread();
        }
    }

    fn answer_all(&self, released: &[Paid], now: Nanos) {
        released.iter().for_each(|paid| self.answer_paid(paid, now));
    }
}
