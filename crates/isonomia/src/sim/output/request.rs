//! A run at request level: a row for each job, and its throughput over time.

use super::Rows;
use crate::table;
use anyhow::Result;
use isonomia_plot::{Line, Plot};
use isonomia_sim::request::{JobOutcome, Outcome};
use isonomia_units::Nanos;

const MIB: f64 = 1024.0 * 1024.0;
/// Lines that a plot can have and be read.
const LINES_MAX: usize = 12;
/// The first columns of the table, which are no numbers.
pub const TEXT_COLUMNS: usize = 2;

const SHOWN: [&str; 11] =
    ["job", "user", "nodes", "share", "throughput", "deviation", "requests", "p50", "p99", "took", "slowdown"];
const SAVED: [&str; 20] = [
    "job",
    "user",
    "group",
    "nodes",
    "share",
    "throughput_bytes_per_s",
    "throughput_deviation_bytes_per_s",
    "bytes",
    "requests",
    "requests_total",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p95_ns",
    "latency_p99_ns",
    "latency_max_ns",
    "elapsed_ns",
    "slowdown",
    "io_phases",
    "late_phases",
    "late_ns",
];

/// For people.
pub fn shown(outcome: &Outcome) -> Rows {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let row = |job: &JobOutcome| {
        let row: [String; SHOWN.len()] = [
            job.job.clone(),
            job.user.clone(),
            job.nodes.to_string(),
            table::percent(job.share),
            table::throughput(job.throughput_bytes_per_s),
            table::throughput(job.throughput_deviation_bytes_per_s),
            job.requests.to_string(),
            Nanos(job.latency.p50_ns).to_string(),
            Nanos(job.latency.p99_ns).to_string(),
            or_dash(job.elapsed_ns.map(|elapsed| Nanos(elapsed).to_string())),
            or_dash(job.slowdown.map(|slowdown| format!("{slowdown:.3}"))),
        ];
        row.into()
    };
    Rows { header: &SHOWN, rows: outcome.jobs.iter().map(row).collect() }
}

/// For programs.
pub fn saved(outcome: &Outcome) -> Rows {
    let or_empty = |text: Option<String>| text.unwrap_or_default();
    let row = |job: &JobOutcome| {
        let row: [String; SAVED.len()] = [
            job.job.clone(),
            job.user.clone(),
            job.group.clone(),
            job.nodes.to_string(),
            job.share.to_string(),
            job.throughput_bytes_per_s.to_string(),
            job.throughput_deviation_bytes_per_s.to_string(),
            job.bytes.to_string(),
            job.requests.to_string(),
            job.requests_total.to_string(),
            job.latency.mean_ns.to_string(),
            job.latency.p50_ns.to_string(),
            job.latency.p95_ns.to_string(),
            job.latency.p99_ns.to_string(),
            job.latency.max_ns.to_string(),
            or_empty(job.elapsed_ns.map(|elapsed| elapsed.to_string())),
            or_empty(job.slowdown.map(|slowdown| slowdown.to_string())),
            or_empty(job.io_phases.map(|phases| phases.to_string())),
            or_empty(job.late_phases.map(|late| late.to_string())),
            or_empty(job.late_ns.map(|late| late.to_string())),
        ];
        row.into()
    };
    Rows { header: &SAVED, rows: outcome.jobs.iter().map(row).collect() }
}

/// What each job had in each slice.
pub fn slices_csv(outcome: &Outcome) -> Result<Vec<u8>> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(["time_s", "job", "bytes", "service_ns"])?;
    for job in &outcome.jobs {
        for (at, (bytes, service)) in job.slice_bytes.iter().zip(&job.slice_service_ns).enumerate() {
            let end_s = Nanos(outcome.slice_ns * (at as u64 + 1)).as_secs_f64();
            csv.write_record([end_s.to_string(), job.job.clone(), bytes.to_string(), service.to_string()])?;
        }
    }
    Ok(csv.into_inner()?)
}

/// Throughput over time.
pub fn plot(outcome: &Outcome) -> Plot {
    let slice_s = Nanos(outcome.slice_ns).as_secs_f64();
    let line = |job: &JobOutcome| {
        let point = |(at, bytes): (usize, &u64)| ((at as f64 + 1.0) * slice_s, *bytes as f64 / slice_s / MIB);
        Line {
            label: job.job.clone(),
            points: job.slice_bytes.iter().enumerate().map(point).collect(),
            reference: None,
        }
    };
    let note = if outcome.jobs.len() > LINES_MAX { format!(" (the first {LINES_MAX} jobs)") } else { String::new() };
    Plot {
        caption: format!("throughput of each job{note}"),
        x: "time in seconds",
        y: "throughput in MiB/s",
        lines: outcome.jobs.iter().take(LINES_MAX).map(line).collect(),
    }
}
