//! `isonomia-bench peers`: ThemisIO's Fig. 12 live. Two jobs of one node share a server under `fifo`, the default policy, GIFT and token
//! buckets.
//!
//! As in the paper (§5.4) the second job comes when a quarter of the first one's time is over, and stays for half of it. Times are a sixth
//! of the paper's, but GIFT decides every half second, as there. Token buckets give each job half of the server: as limits (a bucket as it
//! is in Lustre), and with spare bandwidth in proportion (PSSB), which is what the paper compares with.

use crate::arguments::PeersOptions;
use crate::crew::{Crew, start_ns};
use crate::harness::Harness;
use crate::report::{Must, Report, Row, keep};
use crate::server::{Cap, GIFT_BANDWIDTH, ServerOptions, ServerProcess};
use crate::slices::{add, coarser};
use crate::statistics::{coefficient_of_variation, time_to_share};
use crate::task::{Direction, FileState, Log, Operation, Order, Task, Transfer};
use crate::way::{Identity, Way};
use anyhow::{Context, Result};
use serde::Serialize;

/// As one of GIFT's targets. A request takes 2.6 ms: an emulated device loses what its server is woken too late, from 2 ms on.
const CAP: Cap = Cap { bandwidth: GIFT_BANDWIDTH, per_op: "0" };
const MIB: u64 = 1 << 20;
const BLOCK: u64 = 256 << 10;
/// The file of each process.
const FILE_BYTES: u64 = 16 * MIB;
/// Of each job.
const PROCESSES: u32 = 4;
const SLICE_NS: u64 = 10_000_000;
/// A sample of throughput is so many slices.
const SAMPLE_SLICES: usize = 20;
/// The window in which the second job must have its share, in slices, and how nearly.
const WINDOW_SLICES: usize = 20;
const SHARE_TOLERANCE: f64 = 0.05;
/// Who differs by less is as good: the target's cap is the same for all.
const TIE: f64 = 0.01;

/// Name and policy. The default is compared with each behind it.
const SETTINGS: [(&str, &str); 5] = [
    ("fifo", "fifo"),
    (DEFAULT, DEFAULT),
    ("gift", "gift{decide=500ms}"),
    ("token buckets", "tbf{job:*=51MB/s}"),
    ("token buckets, spare in proportion", "tbf{job:*=51MB/s,spare=proportional}"),
];
const DEFAULT: &str = "user-then-size-fair";

#[derive(Debug, Serialize)]
struct Configuration {
    repeats: u32,
    bandwidth: &'static str,
    block_bytes: u64,
    processes: u32,
    first_s: f64,
    second_from_s: f64,
    second_to_s: f64,
    sample_ms: u64,
    server_workers: Option<u32>,
}

/// When the jobs begin and end, from the common start.
#[derive(Clone, Copy)]
struct Course {
    second_from_ns: u64,
    second_to_ns: u64,
    first_to_ns: u64,
}

impl Course {
    fn new(is_quick: bool) -> Self {
        let first_to_ns = if is_quick { 6_000_000_000 } else { 10_000_000_000 };
        Self { second_from_ns: first_to_ns / 4, second_to_ns: first_to_ns / 4 * 3, first_to_ns }
    }
}

/// What one run gives; throughputs in MiB/s.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    /// Of the first job while it is alone.
    alone: f64,
    /// Of both jobs while both are there.
    both: f64,
    /// Of the second job.
    second: f64,
    /// Of the second job over all samples from its first request to its end: the standard deviation.
    deviation: f64,
    /// From the second job's first request to the end of the window in which it had its share.
    to_share_ms: f64,
}

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &PeersOptions) -> Result<()> {
    let common = &options.common;
    let course = Course::new(common.quick);
    let harness = Harness::new(common.isonomia.as_deref())?;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let configuration = Configuration {
        repeats: common.repeat,
        bandwidth: CAP.bandwidth,
        block_bytes: BLOCK,
        processes: PROCESSES,
        first_s: seconds(course.first_to_ns),
        second_from_s: seconds(course.second_from_ns),
        second_to_s: seconds(course.second_to_ns),
        sample_ms: SAMPLE_SLICES as u64 * SLICE_NS / 1_000_000,
        server_workers: common.workers,
    };
    let mut report = Report::new("peers", common, configuration)?;
    let options =
        ServerOptions { cap: Some(CAP), workers: common.workers, cluster: Some(1), ..ServerOptions::default() };
    let mut server = ServerProcess::start(&harness, "peers", &options, &report.dir().join("server.log"))?;
    let mut rows = Vec::new();
    let done = (1..=common.repeat).try_for_each(|repeat| {
        let mut samples = Vec::new();
        for (name, policy) in SETTINGS {
            eprintln!("isonomia-bench: repeat {repeat} of {}, {name}", common.repeat);
            let sample = measure(&harness, &mut server, policy, course).with_context(|| name.to_owned())?;
            samples.push((name, sample));
        }
        rows_of(&samples).into_iter().for_each(|row| keep(&mut rows, row));
        Ok(())
    });
    report.error = done.as_ref().err().map(|error: &anyhow::Error| format!("{error:#}"));
    report.rows = rows;
    report.publish(common.json)?;
    done
}

fn measure(harness: &Harness, server: &mut ServerProcess, policy: &str, course: Course) -> Result<Sample> {
    server.set_policy(policy)?;
    let mut crews = Vec::new();
    for (job, (from_ns, to_ns)) in
        [("job-1", (0, course.first_to_ns)), ("job-2", (course.second_from_ns, course.second_to_ns))]
    {
        let identity = Identity { job: job.to_owned(), user: job.to_owned(), group: "bench".to_owned(), nodes: 1 };
        let first = crews.len() as u32 * PROCESSES;
        let workers = (first..first + PROCESSES)
            .map(|number| Way::Library.worker(&harness.programs, server.endpoints(), &identity, number));
        let transfer = Transfer {
            direction: Direction::Write,
            order: Order::Sequential,
            block_bytes: BLOCK,
            file_bytes: FILE_BYTES,
            file: FileState::Absent,
            log: Log::Slices { slice_ns: SLICE_NS },
        };
        let operation = Operation::Transfer(transfer);
        let task = Task { operation, duration_ns: to_ns - from_ns, delay_ns: from_ns };
        let mut crew = Crew::start(job, workers)?;
        crew.prepare(harness, &task)?;
        crews.push((crew, task));
    }
    let origin_ns = start_ns();
    for (crew, _) in &mut crews {
        crew.go(origin_ns)?;
    }
    let mut slices = Vec::new();
    let mut first_ns = 0;
    for (crew, task) in &mut crews {
        let outcomes = crew.collect(harness, task)?;
        // Of the second job in the end.
        first_ns =
            outcomes.iter().map(|outcome| outcome.begin_ns).min().context("a job without processes")? - origin_ns;
        slices.push(add(outcomes.into_iter().map(|outcome| outcome.slices)));
    }
    let [first, second] = &slices[..] else { unreachable!("there are two jobs") };
    Ok(sample(first, second, (first_ns / SLICE_NS) as usize, course))
}

/// Of the bytes of either job in each slice, if the second one's first request was in slice `first_request`.
fn sample(first: &[u64], second: &[u64], first_request: usize, course: Course) -> Sample {
    let slice = |ns: u64| (ns / SLICE_NS) as usize;
    let (from, to) = (slice(course.second_from_ns), slice(course.second_to_ns));
    let total: Vec<u64> = add([first.to_vec(), second.to_vec()]);
    let part = |slices: &[u64], range: std::ops::Range<usize>| {
        slices.get(range.start..range.end.min(slices.len())).unwrap_or_default().to_vec()
    };
    let per_s = |bytes: u64| bytes as f64 / MIB as f64 / (SAMPLE_SLICES as f64 * SLICE_NS as f64 / 1e9);
    let mean_of = |slices: Vec<u64>| {
        let bytes = slices.iter().sum::<u64>() as f64;
        bytes / MIB as f64 / (slices.len().max(1) as f64 * SLICE_NS as f64 / 1e9)
    };
    let own = coarser(&part(second, first_request..to), SAMPLE_SLICES);
    let mean = own.iter().sum::<u64>() as f64 / own.len().max(1) as f64;
    // A share that it never has counts as reached at its end.
    let reached = time_to_share(second, &total, first_request, WINDOW_SLICES, 0.5, SHARE_TOLERANCE);
    let slices = reached.unwrap_or(to.saturating_sub(first_request));
    Sample {
        // Its first sample, in which its processes connect, is left out.
        alone: mean_of(part(first, SAMPLE_SLICES..from)),
        both: mean_of(part(&total, first_request..to)),
        second: mean_of(part(second, first_request..to)),
        deviation: per_s((mean * coefficient_of_variation(&own)) as u64),
        to_share_ms: slices as f64 * SLICE_NS as f64 / 1e6,
    }
}

fn rows_of(samples: &[(&str, Sample)]) -> Vec<Row> {
    type Figure = (&'static str, &'static str, fn(&Sample) -> f64, bool);
    const FIGURES: [Figure; 5] = [
        ("throughput of a job alone", "MiB/s", |sample| sample.alone, true),
        ("throughput of both", "MiB/s", |sample| sample.both, true),
        ("throughput of the second", "MiB/s", |sample| sample.second, true),
        ("deviation of the second", "MiB/s", |sample| sample.deviation, false),
        ("time to the second's share", "ms", |sample| sample.to_share_ms, false),
    ];
    let own = samples.iter().find(|(name, _)| *name == DEFAULT).map(|(_, sample)| sample);
    let mut rows = Vec::new();
    for (what, unit, value, more_is_better) in FIGURES {
        for (name, sample) in samples {
            rows.push(Row::new(format!("{name}: {what}"), Way::Library, unit, vec![value(sample)]));
        }
        let is_rival = |name: &str| name != DEFAULT && name != "fifo";
        for (name, sample) in samples.iter().filter(|(name, _)| is_rival(name)) {
            let Some(own) = own else { continue };
            let must = if more_is_better { Must::at_least(1.0 - TIE) } else { Must::at_most(1.0 + TIE) };
            let ratio = value(own) / value(sample).max(f64::MIN_POSITIVE);
            let row = Row::new(format!("{what}, {DEFAULT} over {name}"), Way::Library, "x", vec![ratio]);
            rows.push(Row { must: Some(must), ..row });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_job_is_looked_at_from_its_first_request_on() {
        let course =
            Course { second_from_ns: SLICE_NS * 40, second_to_ns: SLICE_NS * 142, first_to_ns: SLICE_NS * 180 };
        let (all, half) = (2 * MIB, MIB);
        let first: Vec<u64> = (0..180).map(|at| if (42..142).contains(&at) { half } else { all }).collect();
        // It comes in slice 42, has nothing for twenty slices, and then its half.
        let second: Vec<u64> = (0..180).map(|at| if (62..142).contains(&at) { half } else { 0 }).collect();
        let sample = sample(&first, &second, 42, course);
        // Over 100 slices: the second has nothing in twenty of them, in which the first has a half.
        let near = |value: f64, due: f64| assert!((value - due).abs() < 1e-9, "{value}, due {due}");
        near(sample.alone, 200.0);
        near(sample.both, (80.0 * 200.0 + 20.0 * 100.0) / 100.0);
        near(sample.second, 80.0 * 100.0 / 100.0);
        // A window with one slice of nothing has 19 of 39, which is near enough.
        assert_eq!(sample.to_share_ms, 390.0);
        // Of five samples of twenty slices the first is nothing.
        assert!((sample.deviation - 40.0).abs() < 0.1, "{sample:?}");
    }

    #[test]
    fn the_default_is_compared_with_gift_and_token_buckets_in_each_figure() {
        let one = Sample { alone: 100.0, both: 100.0, second: 50.0, deviation: 2.0, to_share_ms: 100.0 };
        let gift = Sample { deviation: 1.0, second: 40.0, ..one };
        let rows = rows_of(&[("fifo", one), (DEFAULT, one), ("gift", gift)]);
        let met: Vec<bool> = rows.iter().filter_map(Row::is_met).collect();
        assert_eq!(met, [true, true, true, false, true]);
    }
}
