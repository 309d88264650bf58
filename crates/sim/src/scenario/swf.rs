//! Applications from a job log in the Standard Workload Format.
//!
//! Such a log tells who ran when, how long, and on how many processors, but nothing of I/O; the `[swf]` table says
//! what to assume. Every job is an application of its own with one run, submitted when the log says; its files lie on
//! targets that are drawn from the seed.

use crate::fluid::{Application, Phase, Run};
use crate::source::{self, Document, SourceError};
use isonomia_planning::{Mapping, TableError, read_swf};
use isonomia_units::Nanos;
use rand::SeedableRng;
use rand::seq::index;
use rand_pcg::Pcg64;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const PHASES_MAX: u32 = 10_000;
/// Of the fields of a line.
const JOB_NUMBER: usize = 0;
const SUBMIT_TIME: usize = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwfText {
    file: String,
    processors_per_node: Option<u32>,
    io_part: f64,
    phases: u32,
    stripes: u16,
}

/// The jobs of the log that `text` names, which lies beside the scenario at `path`.
pub(super) fn read(
    path: &Path,
    document: &Document<'_>,
    text: &SwfText,
    (nodes, targets, seed): (u32, u16, u64),
) -> Result<Vec<Application>, SourceError> {
    let fail = |field: &str, what: String| document.error(&format!("swf.{field}"), what);
    let processors_per_node = text.processors_per_node.unwrap_or(1);
    if processors_per_node == 0 {
        return Err(fail("processors_per_node", "0 processors (allowed: at least 1)".to_owned()));
    }
    if !(text.io_part > 0.0 && text.io_part <= 1.0) {
        return Err(fail("io_part", format!("{} is no part (allowed: above 0, up to 1)", text.io_part)));
    }
    if !(1..=PHASES_MAX).contains(&text.phases) {
        return Err(fail("phases", format!("{} phases (allowed: 1 to {PHASES_MAX})", text.phases)));
    }
    if !(1..=targets).contains(&text.stripes) {
        return Err(fail("stripes", format!("{} targets (allowed: 1 to the system's, {targets})", text.stripes)));
    }
    let log_path = path.parent().unwrap_or(Path::new("")).join(&text.file);
    let log = source::read(&log_path)?;
    let mapping = Mapping { processors_per_node, iterations: text.phases, io_fraction: text.io_part };
    let in_log = |error: TableError| SourceError {
        file: log_path.clone(),
        line: error.line as usize,
        field: error.field.unwrap_or_default(),
        what: error.problem,
    };
    let jobs = read_swf(log.as_bytes(), nodes, &mapping).map_err(in_log)?.jobs;
    let submits = submit_times(&log);
    let mut random = Pcg64::seed_from_u64(seed);
    let application = |named: isonomia_planning::NamedJob| {
        let mut at = index::sample(&mut random, usize::from(targets), usize::from(text.stripes)).into_vec();
        at.sort_unstable();
        let app = named.job.app;
        let phase = Phase { compute: app.compute, io: app.io.max(Nanos(1)) };
        let run = Run {
            submit: submits.get(named.id.as_str()).copied().unwrap_or(Nanos::ZERO),
            targets: at.into_iter().map(|target| target as u16).collect(),
            phases: vec![phase; app.iterations as usize],
        };
        Application {
            name: Arc::from(format!("swf-{}", named.id)),
            nodes: named.job.nodes,
            weight: 1.0,
            runs: vec![run],
        }
    };
    Ok(jobs.into_iter().map(application).collect())
}

/// When each job was submitted; 0 where the log does not know. The log was read before: every line is good.
fn submit_times(log: &str) -> BTreeMap<&str, Nanos> {
    let jobs = log.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(';'));
    let time = |line: &'_ str| -> Option<f64> { line.split_ascii_whitespace().nth(SUBMIT_TIME)?.parse().ok() };
    jobs.filter_map(|line| {
        let seconds = time(line)?.max(0.0);
        Some((line.split_ascii_whitespace().nth(JOB_NUMBER)?, Nanos((seconds * 1e9) as u64)))
    })
    .collect()
}
