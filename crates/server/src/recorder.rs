//! A record of every decision, for those who want to see it again: `record_decisions` from the start, or when an operator asks.
//!
//! One JSON object a line, as [`isonomia_policy::trace::Entry`] is written. Recording takes one lock and some
//! microseconds a call, so it is for trials; a server that does not record has no part of it.

use crate::core::Core;
use crate::{clock, operator};
use isonomia_policy::trace::{Entry, Journal};
use isonomia_units::Nanos;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Calls after which nothing more is recorded: a file of some gigabytes.
pub const CALLS_MAX: u64 = 20_000_000;

/// A file, until it is full or cannot be written.
struct Recorder {
    file: BufWriter<File>,
    calls: u64,
}

impl Recorder {
    fn note(&mut self, entry: &Entry) {
        if self.calls >= CALLS_MAX {
            return;
        }
        self.calls += 1;
        let written = serde_json::to_writer(&mut self.file, entry)
            .map_err(io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"));
        if let Err(error) = &written {
            tracing::error!(%error, "cannot record decisions any more");
        }
        if self.calls == CALLS_MAX {
            tracing::warn!(CALLS_MAX, "the record of decisions is full");
        }
        if written.is_err() {
            self.calls = CALLS_MAX;
        }
    }
}

/// A journal that is written to `path`, and is complete when the last arbiter that has it is dropped.
pub fn journal(path: &Path) -> io::Result<Journal> {
    Ok(journal_in(File::create(path)?))
}

fn journal_in(file: File) -> Journal {
    let recorder = Mutex::new(Recorder { file: BufWriter::new(file), calls: 0 });
    Journal::new(move |entry| recorder.lock().unwrap_or_else(PoisonError::into_inner).note(entry))
}

/// Whether a file is written by asking a server: FUSE, NFS.
fn is_served(file: &File) -> bool {
    const SERVED: [i64; 2] = [0x6573_5546, 0x6969];
    rustix::fs::fstatfs(file).is_ok_and(|found| SERVED.contains(&found.f_type))
}

/// The longest record that an operator may ask for.
const RECORD_MAX: Nanos = Nanos::from_secs(3600);

/// A record that an operator wants: until when, if there is one.
#[derive(Debug, Default)]
pub struct Recording {
    until: Mutex<Option<Nanos>>,
}

impl Recording {
    /// Decisions are written to `path` from now on, for so long.
    ///
    /// # Errors
    /// With the reason why they are not.
    pub fn begin(&self, core: &Core, path: &str, span: Nanos) -> Result<(), String> {
        let file = Path::new(path);
        if !file.is_absolute() {
            return Err(format!("{path:?} is no absolute path"));
        }
        if span > RECORD_MAX || span == Nanos::ZERO {
            return Err(format!("{span} is no time to record for (allowed: up to {RECORD_MAX})"));
        }
        let already = || "decisions are being recorded already".to_owned();
        if core.policy.lock().unwrap_or_else(PoisonError::into_inner).journal.is_some() {
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
        let mut policy = core.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if policy.journal.is_some() {
            return Err(already());
        }
        policy.journal = Some(journal_in(created));
        operator::follow(core, &policy);
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock::now() + span);
        tracing::info!(path, "decisions are recorded");
        Ok(())
    }

    /// Ends it; the file is complete then.
    ///
    /// # Errors
    /// Nothing is recorded for an operator.
    pub fn end(&self, core: &Core) -> Result<(), String> {
        let mut policy = core.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner).take();
        until.ok_or("no decisions are being recorded for an operator")?;
        policy.journal = None;
        operator::follow(core, &policy);
        tracing::info!("decisions are recorded no more");
        Ok(())
    }

    /// Ends it if its time is over.
    pub fn end_if_due(&self, core: &Core, now: Nanos) {
        let is_due = self.until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| until <= now);
        if is_due {
            // Somebody else may have ended it meanwhile.
            let _ = self.end(core);
        }
    }
}
