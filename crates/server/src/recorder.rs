//! A record of every decision, for those who want to see it again: `record_decisions`.
//!
//! One JSON object a line, as [`isonomia_policy::trace::Entry`] is written. Recording takes one lock and some
//! microseconds a call, so it is for trials; a server that does not record has no part of it.

use isonomia_policy::trace::{Entry, Journal};
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
    let recorder = Mutex::new(Recorder { file: BufWriter::new(File::create(path)?), calls: 0 });
    Ok(Journal::new(move |entry| recorder.lock().unwrap_or_else(PoisonError::into_inner).note(entry)))
}
