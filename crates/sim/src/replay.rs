//! A live server's record of decisions, put to the same arbiters again.
//!
//! `isonomia serve --record-decisions FILE` writes one JSON object a line, an
//! [`Entry`]. The replay is exact: virtual time is the recorded time.

use crate::source::SourceError;
use isonomia_policy::trace::{Call, Decision, Entry, Player};
use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;

/// The longest line that is read, in bytes.
const LINE_LEN_MAX: u64 = 1 << 20;

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// Calls that were put.
    pub calls: u64,
    /// Requests that arbiters dispatched.
    pub decisions: u64,
    /// Every dispatched request, as (arbiter, time in ns, request), as it was decided this time.
    #[serde(skip)]
    pub log: Vec<(u32, u64, u64)>,
    /// The first entry whose answer differs.
    pub difference: Option<Difference>,
}

/// An answer that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The line of the record, from 1.
    pub line: usize,
    /// As recorded.
    pub recorded: Entry,
    /// As it is this time.
    pub now: Entry,
}

/// Gives each entry of the record at `path` to `take`, with its line from 1, until that says that it has enough. A last line without
/// an end is left out: the server may have been killed.
///
/// # Errors
/// The file cannot be read, or contains something else than a record; or what `take` says is wrong with an entry. The error names the line.
pub(crate) fn each_entry(
    path: &Path,
    mut take: impl FnMut(usize, Entry) -> Result<ControlFlow<()>, String>,
) -> Result<(), SourceError> {
    let fail = |line: usize, what: String| SourceError { file: path.to_owned(), line, field: String::new(), what };
    let mut file = BufReader::new(File::open(path).map_err(|error| fail(0, error.to_string()))?);
    let mut text = String::new();
    for line in 1.. {
        text.clear();
        let read = std::io::Read::take(&mut file, LINE_LEN_MAX).read_line(&mut text);
        let length = read.map_err(|error| fail(line, error.to_string()))?;
        if !text.ends_with('\n') {
            if length as u64 == LINE_LEN_MAX {
                return Err(fail(line, format!("longer than {LINE_LEN_MAX} bytes, the most allowed")));
            }
            break;
        }
        let entry: Entry = serde_json::from_str(&text).map_err(|error| fail(line, error.to_string()))?;
        if take(line, entry).map_err(|what| fail(line, what))?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Replays the record at `path`. A last line without an end is left out: the server may have been killed.
///
/// # Errors
/// The file cannot be read, or contains something else than a record; the error names the line.
pub fn replay(path: &Path) -> Result<Replay, SourceError> {
    let mut player = Player::default();
    let mut replay = Replay { calls: 0, decisions: 0, log: Vec::new(), difference: None };
    each_entry(path, |line, entry| {
        let now = player.play(&entry).map_err(|error| error.to_string())?;
        replay.calls += 1;
        if let Call::Next { now: at, gave: Decision::Dispatch(request) } = now.call {
            replay.decisions += 1;
            replay.log.push((now.arbiter, at, request));
        }
        if replay.difference.is_none() && now != entry {
            replay.difference = Some(Difference { line, recorded: entry, now });
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(replay)
}
