//! `isonomia-bench placement`: a job that writes a file with each of its processes, on eight slow targets of four servers, beside a
//! job that keeps two of them busy; the targets of the files are chosen in each of the ways that there are.
//!
//! All ways alternate on the same servers, each with a directory of its own that says how. What counts is the time until the
//! slowest process is done, as with a checkpoint (TAPP-IO §IV.B).

use crate::arguments::PlacementOptions;
use crate::clock::now_ns;
use crate::crew::{Crew, start_ns};
use crate::harness::Harness;
use crate::report::{Must, Report, Row};
use crate::server::{Cap, GIFT_BANDWIDTH, ServerOptions, ServerProcess};
use crate::statistics::{deviation, half_interval};
use crate::task::{Direction, FileState, Log, Operation, Order, Task, Transfer};
use crate::way::{Identity, Way};
use anyhow::{Context, Result, ensure};
use isonomia_proto::striping::Striping;
use isonomia_units::{Placement, TargetId};
use serde::Serialize;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const SERVERS: u16 = 4;
const TARGETS_EACH: u16 = 2;
/// Of each target: slow enough that two cores have time to spare for all.
const CAP: Cap = Cap { bandwidth: GIFT_BANDWIDTH, per_op: "10us" };
/// Numbers of the targets that are busy: the first of the first server, the second of the second.
const BUSY: [u16; 2] = [0, 17];
/// Of the job beside.
const BUSY_PROCESSES: u32 = 4;
/// Four to each target that is idle, and two to each busy one, divides evenly where each target shares by itself; servers that
/// tell each other leave the busy ones to the other job, which has less.
const PROCESSES: u32 = 28;
const FILE_BYTES: u64 = 64 * MIB;
const BLOCK_BYTES: u64 = MIB;
/// Servers tell each other of their targets so often; until they know of the job beside, files wait for `SETTLING_NS`.
const SETTINGS: &str = "placement = \"balanced\"\nexchange = \"100ms\"\n";
const SETTLING_NS: u64 = 1_500_000_000;
/// Nobody takes longer: all files on one busy target would take 40 s.
const SPAN_NS_MAX: u64 = 120_000_000_000;
const POLL: Duration = Duration::from_millis(20);
/// What is compared; the last one is what the others are compared with.
const WAYS: [Placement; 4] = [Placement::Hash, Placement::Random, Placement::RoundRobin, Placement::Balanced];

#[derive(Debug, Serialize)]
struct Configuration {
    repeats: u32,
    servers: u16,
    targets_each: u16,
    bandwidth: &'static str,
    busy_targets: [u16; 2],
    busy_processes: u32,
    processes: u32,
    file_bytes: u64,
    settings: &'static str,
    settling_ns: u64,
    server_workers: Option<u32>,
}

/// What came of one checkpoint.
struct Outcome {
    /// Of all processes, until the slowest was done.
    mib_per_s: f64,
    /// Of the processes.
    slowest_over_fastest: f64,
    /// Of the counts of files on idle targets, and of those on busy ones.
    files: [f64; 2],
}

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &PlacementOptions) -> Result<()> {
    let common = &options.common;
    let harness = Harness::new(common.isonomia.as_deref())?;
    let configuration = Configuration {
        repeats: common.repeat,
        servers: SERVERS,
        targets_each: TARGETS_EACH,
        bandwidth: CAP.bandwidth,
        busy_targets: BUSY,
        busy_processes: BUSY_PROCESSES,
        processes: PROCESSES,
        file_bytes: if common.quick { FILE_BYTES / 4 } else { FILE_BYTES },
        settings: SETTINGS,
        settling_ns: SETTLING_NS,
        server_workers: common.workers,
    };
    let mut report = Report::new("placement", common, configuration)?;
    report.remarks.push(CAP.scale(usize::from(SERVERS * TARGETS_EACH)));
    let mut measured: Vec<Vec<Outcome>> = WAYS.iter().map(|_| Vec::new()).collect();
    let options = ServerOptions {
        cap: Some(CAP),
        cluster: Some(SERVERS),
        cluster_targets: Some(TARGETS_EACH),
        cluster_settings: SETTINGS.to_owned(),
        workers: common.workers,
        ..ServerOptions::default()
    };
    let mut servers = ServerProcess::start(&harness, "placement", &options, &report.dir().join("server.log"))?;
    servers.set_policy("job-fair")?;
    let file_bytes = report.configuration.file_bytes;
    let done = (0..common.repeat).try_for_each(|repeat| {
        // Who is first changes.
        (0..WAYS.len()).try_for_each(|step| {
            let index = (step + repeat as usize) % WAYS.len();
            let way = WAYS[index];
            eprintln!("isonomia-bench: repeat {} of {}, {way}", repeat + 1, common.repeat);
            let name = format!("{way}-{repeat}");
            measured[index].push(measure(&harness, &mut servers, (way, &name), file_bytes).with_context(|| name)?);
            anyhow::Ok(())
        })
    });
    report.error = done.as_ref().err().map(|error: &anyhow::Error| format!("{error:#}"));
    report.rows = rows(&measured);
    report.publish(common.json)?;
    done
}

fn identity(job: &str) -> Identity {
    Identity { job: job.to_owned(), user: job.to_owned(), group: "bench".to_owned(), nodes: 1 }
}

fn task(file_bytes: u64, file: FileState) -> Task {
    let (direction, order, log) = (Direction::Write, Order::Sequential, Log::Totals);
    let transfer = Transfer { direction, order, block_bytes: BLOCK_BYTES, file_bytes, file, log };
    Task { operation: Operation::Transfer(transfer), duration_ns: SPAN_NS_MAX, delay_ns: 0 }
}

fn crew(harness: &Harness, servers: &ServerProcess, job: &str, processes: u32) -> Result<Crew> {
    let of = |number| Way::Preload.worker(&harness.programs, servers.endpoints(), &identity(job), number);
    Crew::start(job, (0..processes).map(of))
}

/// One checkpoint beside the other job, which begins before and is ended after it.
fn measure(
    harness: &Harness,
    servers: &mut ServerProcess,
    (way, name): (Placement, &str),
    file_bytes: u64,
) -> Result<Outcome> {
    let busy = Striping { targets: BUSY.map(TargetId).to_vec(), ..Striping::over(BUSY.len()) };
    servers.work_in(&format!("busy-{name}"), Some(1), Some(&busy))?;
    let mut beside = crew(harness, servers, "beside", BUSY_PROCESSES)?;
    beside.prepare(harness, &task(FILE_BYTES, FileState::Absent))?;
    beside.go(start_ns())?;
    let known_ns = now_ns() + SETTLING_NS;
    while now_ns() < known_ns {
        harness.check()?;
        std::thread::sleep(POLL);
    }
    let placed = Striping { place: Some(way), ..Striping::over(1) };
    servers.work_in(name, Some(1), Some(&placed))?;
    let mut job = crew(harness, servers, name, PROCESSES)?;
    let task = task(file_bytes, FileState::Fresh);
    job.prepare(harness, &task)?;
    let counts = servers.files_by_target(name)?;
    job.go(start_ns())?;
    let outcomes = job.collect(harness, &task)?;
    let bytes: u64 = outcomes.iter().map(|outcome| outcome.bytes).sum();
    ensure!(bytes == u64::from(PROCESSES) * file_bytes, "{bytes} bytes were written");
    let begin_ns = outcomes.iter().map(|outcome| outcome.begin_ns).min().unwrap_or(0);
    let ends_ns = || outcomes.iter().map(|outcome| outcome.end_ns.saturating_sub(begin_ns));
    let (least, most) = (ends_ns().min().unwrap_or(0), ends_ns().max().unwrap_or(0));
    let of = |is_busy: bool| {
        let files = counts.iter().filter(|(target, _)| BUSY.contains(target) == is_busy).map(|(_, files)| *files);
        files.sum::<u64>() as f64
    };
    Ok(Outcome {
        mib_per_s: bytes as f64 / MIB as f64 / (most as f64 / 1e9),
        slowest_over_fastest: most as f64 / least.max(1) as f64,
        files: [of(false), of(true)],
    })
}

fn rows(measured: &[Vec<Outcome>]) -> Vec<Row> {
    let mut rows = Vec::new();
    let of = |outcomes: &[Outcome], value: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(value).collect::<Vec<f64>>();
    let balanced = of(measured.last().map_or(&[], Vec::as_slice), &|outcome| outcome.mib_per_s);
    for (way, outcomes) in WAYS.iter().zip(measured) {
        let throughput = of(outcomes, &|outcome| outcome.mib_per_s);
        let row = |name: &str, unit, values| Row::new(format!("{way}: {name}"), Way::Preload, unit, values);
        rows.push(Row { processes: Some(PROCESSES), ..row("throughput", "MiB/s", throughput.clone()) });
        rows.push(row("mean, half of its 95 % interval", "MiB/s", half_interval(&throughput).into_iter().collect()));
        rows.push(row("deviation of repeats", "MiB/s", vec![deviation(&throughput)]));
        let spread = of(outcomes, &|outcome| outcome.slowest_over_fastest);
        rows.push(row("slowest process over fastest", "x", spread));
        rows.push(row("files on the six idle targets", "", of(outcomes, &|outcome| outcome.files[0])));
        rows.push(row("files on the two busy ones", "", of(outcomes, &|outcome| outcome.files[1])));
        if *way != Placement::Balanced {
            let name = format!("balanced beside {way}: throughput");
            let beside = Row::new(name, Way::Preload, "MiB/s", balanced.clone()).beside(&throughput);
            rows.push(Row { must: Some(Must::ratio(1.0)), ..beside });
        }
    }
    rows
}
