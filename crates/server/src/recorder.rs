//! A record of every decision, for those who want to see it again: `record_decisions` from the start, or when an operator asks.
//!
//! One JSON object a line, as [`isonomia_policy::trace::Entry`] is written. Recording takes one lock and some
//! microseconds a call, so it is for trials; a server that does not record has no part of it. A thread of its own writes, so that
//! no request waits for the file; where the file is slower than the requests for long, the record ends.

use crate::clock;
use crate::target::Policy;
use isonomia_policy::trace::{Call, Entry, Journal};
use isonomia_units::Nanos;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Calls after which nothing more is recorded: a file of some gigabytes.
pub const CALLS_MAX: u64 = 20_000_000;
/// Calls that wait to be written, at most: some tens of megabytes.
const WAITING_MAX: usize = 1 << 18;

/// A record that is being written. It is complete, to the last call or to where it had to end, when this was dropped.
#[derive(Debug)]
pub struct Record {
    calls: Arc<Mutex<Calls>>,
    /// Whether all was written that was to be.
    writer: Option<JoinHandle<bool>>,
}

#[derive(Debug)]
struct Calls {
    /// `None` when nothing more is recorded.
    to_writer: Option<SyncSender<Entry>>,
    left: u64,
}

impl Calls {
    fn note(&mut self, entry: &Entry) {
        let Some(to_writer) = &self.to_writer else { return };
        if to_writer.try_send(entry.clone()).is_err() {
            tracing::error!("decisions are recorded no more: the file cannot be written, or not fast enough");
            self.to_writer = None;
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            tracing::warn!(CALLS_MAX, "the record of decisions is full");
            self.to_writer = None;
        }
    }
}

impl Record {
    /// Begins to write to `path`, which is emptied.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::begin(File::create(path)?, WAITING_MAX)
    }

    fn begin(file: File, waiting_max: usize) -> io::Result<Self> {
        let (to_writer, entries) = sync_channel(waiting_max);
        let writer = std::thread::Builder::new().name("recorder".to_owned()).spawn(move || {
            let written = write(file, &entries);
            if let Err(error) = &written {
                tracing::error!(%error, "cannot record decisions any more");
            }
            written.is_ok()
        })?;
        let mut calls = Calls { to_writer: Some(to_writer), left: CALLS_MAX };
        calls.note(&Entry { arbiter: 0, call: Call::Clock { now: clock::now().0, wall_ns: clock::wall_ns() } });
        Ok(Self { calls: Arc::new(Mutex::new(calls)), writer: Some(writer) })
    }

    /// Ends it, and waits for the file. Whether that has all decisions until now, and not only those until it had to end.
    fn finish(&mut self) -> bool {
        let was_going_on = self.calls.lock().unwrap_or_else(PoisonError::into_inner).to_writer.take().is_some();
        // It writes what was noted and ends. If it panicked, it has said so.
        let is_written = self.writer.take().is_some_and(|writer| writer.join().unwrap_or(false));
        was_going_on && is_written
    }

    /// What is noted in it.
    pub fn journal(&self) -> Journal {
        let calls = self.calls.clone();
        Journal::new(move |entry| calls.lock().unwrap_or_else(PoisonError::into_inner).note(entry))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.finish();
    }
}

fn write(file: File, entries: &Receiver<Entry>) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    for entry in entries {
        serde_json::to_writer(&mut file, &entry)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// Whether a file is written by asking a server: FUSE, NFS.
fn is_served(file: &File) -> bool {
    const SERVED: [i64; 2] = [0x6573_5546, 0x6969];
    rustix::fs::fstatfs(file).is_ok_and(|found| SERVED.contains(&found.f_type))
}

/// The longest record that an operator may ask for: an hour, and what the program that ends it may come late.
const RECORD_MAX: Nanos = Nanos::from_secs(3610);

/// A record that an operator wants, and until when, if there is one.
#[derive(Debug, Default)]
pub struct Recording {
    record: Mutex<Option<(Record, Nanos)>>,
}

impl Recording {
    /// Decisions are written to `path` from now on, for so long: `follow` has arbiters made anew.
    ///
    /// # Errors
    /// With the reason why they are not.
    pub fn begin(
        &self,
        (path, span): (&str, Nanos),
        policy: &Mutex<Policy>,
        follow: impl FnOnce(&Policy),
    ) -> Result<(), String> {
        let file = Path::new(path);
        if !file.is_absolute() {
            return Err(format!("{path:?} is no absolute path"));
        }
        if span > RECORD_MAX || span == Nanos::ZERO {
            return Err(format!("{span} is no time to record for (allowed: up to {RECORD_MAX})"));
        }
        let already = || "decisions are being recorded already".to_owned();
        if policy.lock().unwrap_or_else(PoisonError::into_inner).journal.is_some() {
            return Err(already());
        }
        // Not under the policy's lock: who knows what the file system waits for.
        let created = File::create_new(file).map_err(|error| format!("cannot create {path}: {error}"))?;
        if is_served(&created) {
            drop(created);
            // Nothing was written to it.
            let _ = std::fs::remove_file(file);
            return Err(format!(
                "{path} is on a mount that a server stands behind, perhaps this one: name a local file"
            ));
        }
        let record = Record::begin(created, WAITING_MAX).map_err(|error| format!("cannot start a thread: {error}"))?;
        let mut policy = policy.lock().unwrap_or_else(PoisonError::into_inner);
        if policy.journal.is_some() {
            return Err(already());
        }
        policy.journal = Some(record.journal());
        follow(&policy);
        *self.record.lock().unwrap_or_else(PoisonError::into_inner) = Some((record, clock::now() + span));
        tracing::info!(path, "decisions are recorded");
        Ok(())
    }

    /// Ends it; the file is complete then.
    ///
    /// # Errors
    /// Nothing is recorded for an operator, or the record had to end before.
    pub fn end(&self, policy: &Mutex<Policy>, follow: impl FnOnce(&Policy)) -> Result<(), String> {
        let mut policy = policy.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (mut record, _) = record.ok_or("no decisions are being recorded for an operator")?;
        policy.journal = None;
        follow(&policy);
        // Nobody waits for the file but who asked for this.
        drop(policy);
        let is_whole = record.finish();
        tracing::info!("decisions are recorded no more");
        if is_whole { Ok(()) } else { Err("the record had to end early: the server's log says why".to_owned()) }
    }

    /// Ends it if its time is over.
    pub fn end_if_due(&self, now: Nanos, policy: &Mutex<Policy>, follow: impl FnOnce(&Policy)) {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = record.as_ref().is_some_and(|(_, until)| *until <= now);
        drop(record);
        if is_due {
            // Somebody else may have ended it meanwhile.
            let _ = self.end(policy, follow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_policy::{Draw, PolicySpec, Tuning};
    use isonomia_units::{JobId, JobInfo};
    use std::io::Read;

    #[test]
    fn a_file_that_takes_nothing_ends_the_record_and_delays_nobody() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut record = Record::begin(writer.into(), 1_000).unwrap();
        let spec: PolicySpec = "job-fair".parse().unwrap();
        let mut arbiter = record.journal().build(&spec, Draw::VirtualTime, 1, Tuning::default());
        for number in 0..10_000 {
            arbiter.set_job(Nanos::ZERO, JobId(number), &JobInfo::new(&format!("job-{number}"), "u", "g"));
        }
        let mut text = String::new();
        std::thread::scope(|scope| {
            scope.spawn(|| File::from(reader).read_to_string(&mut text).unwrap());
            assert!(!record.finish(), "whoever ends it hears that it is not complete");
        });
        let entries: Vec<Entry> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!((1_000..10_000).contains(&entries.len()), "{} calls, with a pipe of 64 KiB", entries.len());
    }

    #[test]
    fn a_record_that_ended_by_itself_is_not_complete() {
        let begin = || Record::begin(tempfile::tempfile().unwrap(), 1_000).unwrap();
        assert!(begin().finish());
        let mut full = begin();
        full.calls.lock().unwrap().left = 1;
        let spec: PolicySpec = "job-fair".parse().unwrap();
        let _arbiter = full.journal().build(&spec, Draw::VirtualTime, 1, Tuning::default());
        assert!(!full.finish());
        // No space is left on this device.
        let mut refused = Record::begin(File::options().write(true).open("/dev/full").unwrap(), 1_000).unwrap();
        assert!(!refused.finish());
    }
}
