//! Jobs from a log in the Standard Workload Format, version 2 (Feitelson's Parallel Workloads Archive).
//!
//! Such a log tells how many processors a job had and how long it ran, but nothing of its I/O. A [`Mapping`] says
//! what to assume: the run time is cut into equal iterations, each of compute and then I/O, and the I/O takes a
//! fraction of it. Jobs that did not run, or whose size is unknown, are left out and counted.

use crate::ids;
use crate::jobs::NamedJob;
use crate::packs::Job;
use crate::schedule::App;
use crate::table::{ROWS_MAX, TIME_S_MAX, TableError, nanos};
use isonomia_units::Nanos;

/// The fields of a line, in order; all are numbers, −1 where unknown.
const FIELDS: [&str; 18] = [
    "job_number",
    "submit_time_s",
    "wait_time_s",
    "run_time_s",
    "allocated_processors",
    "cpu_time_s",
    "used_memory_kb",
    "requested_processors",
    "requested_time_s",
    "requested_memory_kb",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding_job",
    "think_time_s",
];
const JOB_NUMBER: usize = 0;
const RUN_TIME: usize = 3;
const ALLOCATED: usize = 4;
const REQUESTED: usize = 7;

/// What a log does not tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mapping {
    /// Processors of a compute node, at least 1; a job gets as many nodes as its processors need.
    pub processors_per_node: u32,
    /// Iterations of every job, at least 1.
    pub iterations: u32,
    /// Fraction of the run time that is I/O, in 0 to 1.
    pub io_fraction: f64,
}

/// The jobs of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwfJobs {
    /// Those that ran, ascending by number.
    pub jobs: Vec<NamedJob>,
    /// How many had no run time or no known size.
    pub left_out: usize,
}

/// Reads a log for partitions of `nodes` compute nodes.
///
/// # Errors
/// The first line and field that cannot be used.
pub fn read_swf(log: &[u8], nodes: u32, mapping: &Mapping) -> Result<SwfJobs, TableError> {
    let mut rows = Vec::new();
    let mut left_out = 0;
    for (at, line) in log.split(|byte| *byte == b'\n').enumerate() {
        let number = at as u64 + 1;
        let line = std::str::from_utf8(line).map_err(|_| TableError::new(number, None, "not UTF-8".to_owned()))?;
        let line = line.trim();
        if line.is_empty() || line.starts_with(';') {
            continue;
        }
        if rows.len() == ROWS_MAX {
            return Err(TableError::new(number, None, format!("more than {ROWS_MAX} jobs, the most allowed")));
        }
        match read_job(number, line, nodes, mapping)? {
            Some(job) => rows.push((number, job)),
            None => left_out += 1,
        }
    }
    if rows.is_empty() {
        return Err(TableError::new(1, None, "no job that ran (allowed: at least one)".to_owned()));
    }
    Ok(SwfJobs { jobs: ids::sorted(rows, |named| &named.id)?, left_out })
}

fn read_job(line: u64, text: &str, nodes: u32, mapping: &Mapping) -> Result<Option<NamedJob>, TableError> {
    let texts: Vec<&str> = text.split_ascii_whitespace().collect();
    if texts.len() != FIELDS.len() {
        let problem = format!("{} fields (allowed: {}, as the format has them)", texts.len(), FIELDS.len());
        return Err(TableError::new(line, None, problem));
    }
    let refuse = |field: usize, what: &str, allowed: &str| {
        let name = format!("{} ({})", field + 1, FIELDS[field]);
        Err(TableError::value(line, &name, texts[field], what, allowed))
    };
    let mut numbers = [0.0; FIELDS.len()];
    for (field, text) in texts.iter().enumerate() {
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number >= -1.0 => numbers[field] = number,
            _ => return refuse(field, "is not a number of the format", "0 or more, or -1 for unknown"),
        }
    }
    // −1 is unknown: what was asked for is the next best.
    let size = if numbers[ALLOCATED] > 0.0 { ALLOCATED } else { REQUESTED };
    if numbers[size] <= 0.0 || numbers[RUN_TIME] <= 0.0 {
        return Ok(None);
    }
    let needed = (numbers[size] / f64::from(mapping.processors_per_node)).ceil();
    if needed > f64::from(nodes) {
        let what = format!("are {needed} compute nodes");
        return refuse(size, &what, &format!("1 to {nodes}, the compute nodes of an I/O node"));
    }
    let each = numbers[RUN_TIME] / f64::from(mapping.iterations);
    let (compute, io) = match (nanos(each * (1.0 - mapping.io_fraction)), nanos(each * mapping.io_fraction)) {
        (Some(compute), Some(io)) if compute + io > Nanos::ZERO => (compute, io),
        _ => return refuse(RUN_TIME, "is no run time", &format!("1 ns to {TIME_S_MAX} s an iteration")),
    };
    let app = App { compute, io, iterations: mapping.iterations, release: Nanos::ZERO };
    Ok(Some(NamedJob { id: texts[JOB_NUMBER].to_owned(), job: Job { nodes: needed as u32, app } }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPPING: Mapping = Mapping { processors_per_node: 4, iterations: 10, io_fraction: 0.25 };

    fn read(log: &str) -> Result<SwfJobs, TableError> {
        read_swf(log.as_bytes(), 16, &MAPPING)
    }

    fn job(number: &str, run_time: &str, allocated: &str, requested: &str) -> String {
        format!("{number} 0 5 {run_time} {allocated} -1 -1 {requested} 3600 -1 1 3 1 -1 1 -1 -1 -1\n")
    }

    #[test]
    fn run_time_is_cut_into_compute_and_io() {
        let log = format!(
            "; Version: 2.2\n{}\n{}{}{}",
            job("12", "100", "9", "64"),
            job("3", "40", "-1", "4"),
            job("4", "-1", "4", "4"),
            job("5", "0", "-1", "-1")
        );
        let named = |id: &str, nodes, compute, io| NamedJob {
            id: id.to_owned(),
            job: Job {
                nodes,
                app: App {
                    compute: Nanos::from_millis(compute),
                    io: Nanos::from_millis(io),
                    iterations: 10,
                    release: Nanos::ZERO,
                },
            },
        };
        let jobs = vec![named("3", 1, 3000, 1000), named("12", 3, 7500, 2500)];
        assert_eq!(read(&log), Ok(SwfJobs { jobs, left_out: 2 }));
    }

    #[test]
    fn errors_name_line_and_field() {
        let good = job("1", "10", "4", "4");
        for (bad, expected) in [
            ("1 2 3\n".to_owned(), "line 3: 3 fields (allowed: 18"),
            (job("2", "1x", "4", "4"), "line 3, field 4 (run_time_s): \"1x\" is not a number of the format"),
            (job("2", "-7", "4", "4"), "line 3, field 4 (run_time_s): \"-7\" is not a number of the format"),
            (job("2", "NaN", "4", "4"), "line 3, field 4 (run_time_s): \"NaN\" is not a number of the format"),
            (job("2", "1e30", "4", "4"), "line 3, field 4 (run_time_s): \"1e30\" is no run time"),
            (job("2", "10", "65", "4"), "line 3, field 5 (allocated_processors): \"65\" are 17 compute nodes"),
            (job("1", "10", "4", "4"), "line 3, field id: \"1\" is in line 2 already"),
        ] {
            let error = read(&format!("; log\n{good}{bad}")).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{bad}: {error}");
        }
        assert!(read("; nothing\n").unwrap_err().to_string().contains("no job that ran"));
    }

    proptest! {
        #[test]
        fn no_text_panics(log in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_swf(&log, 16, &MAPPING);
        }
    }
}
