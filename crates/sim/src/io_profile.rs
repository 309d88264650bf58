//! A job's I/O as a table, such as one made from a Darshan log.
//!
//! A CSV file with the columns `start_s,op,request_bytes,requests` in any order and one row for each phase:
//! seconds from the job's start before which the phase does not begin, `read`, `write` or `metadata`, the bytes of
//! one request, and how many of them each process issues. Rows are in the order of time. All processes do the same.

use crate::request::{Op, Phase};
use crate::source::{self, SourceError};
use isonomia_units::{Bytes, Nanos};
use std::path::Path;

/// The most phases in one profile.
pub const PHASES_MAX: usize = 1 << 20;
/// The longest time in a profile, a hundred years: beyond it is a slip in the unit.
const START_S_MAX: f64 = 100.0 * 366.0 * 86_400.0;

const COLUMNS: [&str; 4] = ["start_s", "op", "request_bytes", "requests"];

/// The phases of the profile at `path`.
///
/// # Errors
/// The file cannot be read, lacks a column, or has a value that does not fit; the error names its line and column.
pub fn load(path: &Path) -> Result<Vec<Phase>, SourceError> {
    parse(path, &source::read(path)?)
}

/// The phases that `text`, which came from `path`, describes.
///
/// # Errors
/// As for [`load`].
pub fn parse(path: &Path, text: &str) -> Result<Vec<Phase>, SourceError> {
    let fail = |line: u64, field: &str, what: String| SourceError {
        file: path.to_owned(),
        line: line as usize,
        field: field.to_owned(),
        what,
    };
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| fail(1, "", error.to_string()))?.clone();
    if let Some(unknown) = header.iter().find(|name| !COLUMNS.contains(name)) {
        return Err(fail(1, unknown, format!("is no column (allowed: {})", COLUMNS.join(", "))));
    }
    let mut columns = [0; 4];
    for (at, name) in columns.iter_mut().zip(COLUMNS) {
        *at = header
            .iter()
            .position(|column| column == name)
            .ok_or_else(|| fail(1, name, format!("the column is missing (needed: {})", COLUMNS.join(", "))))?;
    }
    let mut phases: Vec<Phase> = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            fail(line, "", error.to_string())
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let field = |column: usize| record.get(columns[column]).unwrap_or("");
        let bad = |column: usize, what: &str| fail(line, COLUMNS[column], format!("{:?} {what}", field(column)));
        let start_s: f64 = field(0).parse().map_err(|_| bad(0, "is no number of seconds"))?;
        if !(0.0..=START_S_MAX).contains(&start_s) {
            return Err(bad(0, "is no time (allowed: 0 to a hundred years, in seconds)"));
        }
        let op = match field(1) {
            "read" => Op::Read,
            "write" => Op::Write,
            "metadata" => Op::Metadata,
            _ => return Err(bad(1, "is no operation (allowed: read, write, metadata)")),
        };
        let request: u64 = field(2).parse().map_err(|_| bad(2, "is no whole number of bytes"))?;
        if (request == 0) != (op == Op::Metadata) {
            return Err(bad(2, "does not fit the operation (metadata has 0 bytes, reads and writes have more)"));
        }
        let requests: u64 = field(3).parse().map_err(|_| bad(3, "is no whole number of requests"))?;
        if requests == 0 {
            return Err(bad(3, "is no phase (allowed: at least 1 request)"));
        }
        let not_before = Nanos((start_s * 1e9).round() as u64);
        if phases.last().is_some_and(|last| last.not_before > not_before) {
            return Err(bad(0, "is before the row above (rows are in the order of time)"));
        }
        if phases.len() == PHASES_MAX {
            return Err(fail(line, "", format!("more than {PHASES_MAX} phases, the most allowed")));
        }
        phases.push(Phase {
            compute: Nanos::ZERO,
            not_before,
            op,
            is_sequential: false,
            request: Bytes(request),
            requests: Some(requests),
            think: Nanos::ZERO,
            think_jitter: 0.0,
            barrier: true,
        });
    }
    if phases.is_empty() {
        return Err(fail(0, "", "no phase in it".to_owned()));
    }
    Ok(phases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_phases() {
        let text = "# from a log\nstart_s, op, request_bytes, requests\n0.5,write,1048576,3\n0.5,metadata,0,2\n";
        let phases = parse(Path::new("p.csv"), text).unwrap();
        assert_eq!(phases.len(), 2);
        assert_eq!((phases[0].not_before, phases[0].request), (Nanos::from_millis(500), Bytes::mib(1)));
        assert_eq!((phases[1].op, phases[1].requests), (Op::Metadata, Some(2)));
    }

    #[test]
    fn what_cannot_be_used_is_named_with_line_and_column() {
        let header = "start_s,op,request_bytes,requests\n";
        for (rows, expected) in [
            ("x,write,1,1", "p.csv:2: start_s: \"x\""),
            ("-1,write,1,1", "p.csv:2: start_s: \"-1\""),
            ("nan,write,1,1", "p.csv:2: start_s"),
            ("0,write,1,1\n0,append,1,1", "p.csv:3: op: \"append\""),
            ("0,write,0,1", "p.csv:2: request_bytes"),
            ("0,metadata,5,1", "p.csv:2: request_bytes"),
            ("0,read,-5,1", "p.csv:2: request_bytes"),
            ("0,read,5,0", "p.csv:2: requests"),
            ("1,read,5,1\n0.5,read,5,1", "p.csv:3: start_s"),
            ("0,read,5", "p.csv:2: "),
            ("", "p.csv: no phase"),
        ] {
            let error = parse(Path::new("p.csv"), &format!("{header}{rows}\n")).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{rows}: {error}");
        }
        let error = parse(Path::new("p.csv"), "start_s,op,bytes,requests\n").unwrap_err();
        assert_eq!((error.line, error.field.as_str()), (1, "bytes"));
        let error = parse(Path::new("p.csv"), "start_s,op,requests\n").unwrap_err();
        assert_eq!((error.line, error.field.as_str()), (1, "request_bytes"));
    }
}
