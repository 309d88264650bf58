//! What a simulation leaves: a table, CSV and JSON files, and a plot of throughput over time.

use crate::plot::{Line, Plot};
use crate::table;
use anyhow::{Context, Result};
use isonomia_sim::request::JobOutcome;
use isonomia_sim::study::PointResult;
use isonomia_units::Nanos;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const MIB: f64 = 1024.0 * 1024.0;
/// Lines that a plot can hold and be read.
const LINES_MAX: usize = 12;

/// One line for each job of each point.
pub fn table(results: &BTreeMap<usize, PointResult>) -> String {
    let settings: Vec<&str> = results
        .values()
        .next()
        .map_or(Vec::new(), |result| result.settings.iter().map(|(name, _)| name.as_str()).collect());
    let figures =
        ["job", "user", "nodes", "share", "throughput", "deviation", "requests", "p50", "p99", "took", "slowdown"];
    let header: Vec<&str> = settings.iter().copied().chain(figures).collect();
    let left: Vec<usize> = (0..settings.len() + 2).collect();
    let mut table = table::plain(&header, &left);
    for result in results.values() {
        for job in &result.outcome.jobs {
            let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            let values = result.settings.iter().map(|(_, value)| value.clone());
            table.add_row(values.chain([
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
            ]));
        }
    }
    table::lines(&table)
}

/// Saves one run; gives what was written.
pub fn save_run(dir: &Path, scenario: &Path, result: &PointResult) -> Result<Vec<PathBuf>> {
    let paths = ["sim.json", "jobs.csv", "slices.csv", "throughput.png", "throughput.svg"].map(|name| dir.join(name));
    let [json, jobs, slices, png, svg] = &paths;
    let whole = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "scenario": scenario.display().to_string(),
        "fingerprint": result.fingerprint,
        "outcome": result.outcome,
    });
    save_atomically(json, &serde_json::to_vec_pretty(&whole)?)?;
    save_atomically(jobs, &jobs_csv([result].into_iter())?)?;
    save_atomically(slices, &slices_csv(result)?)?;
    plot(result).save(png, svg)?;
    Ok(paths.into())
}

/// Saves the table of all points that are there; gives what was written.
pub fn save_sweep(dir: &Path, results: &BTreeMap<usize, PointResult>) -> Result<Vec<PathBuf>> {
    let path = dir.join("sweep.csv");
    save_atomically(&path, &jobs_csv(results.values())?)?;
    Ok(vec![path])
}

/// Nobody ever sees half of a file, whichever of several tasks writes it.
pub fn save_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    std::fs::write(&partial, bytes).with_context(|| format!("cannot write {}", partial.display()))?;
    std::fs::rename(&partial, path).with_context(|| format!("cannot write {}", path.display()))
}

fn jobs_csv<'a>(results: impl Iterator<Item = &'a PointResult>) -> Result<Vec<u8>> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    for (at, result) in results.enumerate() {
        let settings = || result.settings.iter();
        if at == 0 {
            let header = ["point"].into_iter().chain(settings().map(|(name, _)| name.as_str())).chain(COLUMNS);
            csv.write_record(header)?;
        }
        for job in &result.outcome.jobs {
            let row = [result.point.to_string()].into_iter().chain(settings().map(|(_, value)| value.clone()));
            csv.write_record(row.chain(figures(job)))?;
        }
    }
    Ok(csv.into_inner()?)
}

const COLUMNS: [&str; 17] = [
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
];

fn figures(job: &JobOutcome) -> [String; COLUMNS.len()] {
    [
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
        job.elapsed_ns.map_or_else(String::new, |elapsed| elapsed.to_string()),
        job.slowdown.map_or_else(String::new, |slowdown| slowdown.to_string()),
    ]
}

fn slices_csv(result: &PointResult) -> Result<Vec<u8>> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(["time_s", "job", "bytes", "service_ns"])?;
    for job in &result.outcome.jobs {
        for (at, (bytes, service)) in job.slice_bytes.iter().zip(&job.slice_service_ns).enumerate() {
            let end_s = Nanos(result.outcome.slice_ns * (at as u64 + 1)).as_secs_f64();
            csv.write_record([end_s.to_string(), job.job.clone(), bytes.to_string(), service.to_string()])?;
        }
    }
    Ok(csv.into_inner()?)
}

fn plot(result: &PointResult) -> Plot {
    let slice_s = Nanos(result.outcome.slice_ns).as_secs_f64();
    let line = |job: &JobOutcome| {
        let point = |(at, bytes): (usize, &u64)| ((at as f64 + 1.0) * slice_s, *bytes as f64 / slice_s / MIB);
        Line {
            label: job.job.clone(),
            points: job.slice_bytes.iter().enumerate().map(point).collect(),
            reference: None,
        }
    };
    let jobs = &result.outcome.jobs;
    let note = if jobs.len() > LINES_MAX { format!(" (the first {LINES_MAX} jobs)") } else { String::new() };
    Plot {
        caption: format!("throughput of each job{note}"),
        x: "time in seconds",
        y: "throughput in MiB/s",
        lines: jobs.iter().take(LINES_MAX).map(line).collect(),
    }
}
