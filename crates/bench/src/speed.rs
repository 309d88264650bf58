//! `isonomia-bench speed`: what a number of processes get, and what they get of tmpfs at the same time of day.
//!
//! One crew of workers for each way and number of processes; for every row tmpfs and the ways take their turns, so
//! that what else goes on in the machine meets all of them. Throughput is that of all processes from the first
//! call to the last.

use crate::arguments::SpeedOptions;
use crate::crew::Crew;
use crate::host::memory_bytes;
use crate::report::{Must, Report, Row};
use crate::server::{ServerOptions, ServerProcess};
use crate::session::Session;
use crate::task::{Direction, FileState, Log, Operation, Order, Outcome, Task, Transfer};
use crate::way::{Identity, Way, plain_worker};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
/// Files written by all processes of a row together.
const WRITTEN_BYTES_MAX: u64 = 4 << 30;
/// The file that a process reads.
const READ_BYTES: u64 = 128 * MIB;
/// The file of a process whose single calls are timed.
const ROUND_TRIP_BYTES: u64 = 64 * MIB;
/// Empty files of all processes together.
const FILES_MAX: u64 = 200_000;
const TMPFS: &str = "tmpfs";
/// A call that takes longer is remarked on.
const STALL_NS: u64 = 200_000_000;
/// The numbers of processes that are compared to see what happens when they outnumber the cores.
const FEW: u32 = 2;
const MANY: u32 = 8;

#[derive(Debug, Serialize)]
struct Configuration {
    repeats: u32,
    phase_ns: u64,
    clients: Vec<u32>,
    ways: Vec<Way>,
    written_bytes_max: u64,
    read_bytes: u64,
    server_workers: Option<u32>,
    only: Option<String>,
}

/// A row of the table: one timed phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Write1MiB,
    Read1MiB,
    Write4KiB,
    Read4KiB,
    WriteRoundTrip,
    ReadRoundTrip,
    Create,
    Stat,
    Unlink,
}

const PHASES: [Phase; 9] = [
    Phase::Write1MiB,
    Phase::Read1MiB,
    Phase::Write4KiB,
    Phase::Read4KiB,
    Phase::WriteRoundTrip,
    Phase::ReadRoundTrip,
    Phase::Create,
    Phase::Stat,
    Phase::Unlink,
];

/// A figure of a phase: the second of a round trip is its tail.
type Key = (Phase, usize, u32, String);

/// What each repeat gave.
#[derive(Debug, Default)]
struct Figures {
    values: BTreeMap<Key, Vec<f64>>,
    remarks: Vec<String>,
}

/// A way, or tmpfs, with its workers.
struct Lane {
    name: String,
    crew: Crew,
    /// Files that every worker has made.
    files: u64,
}

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &SpeedOptions) -> Result<()> {
    let common = &options.common;
    let written_bytes_max = WRITTEN_BYTES_MAX.min(memory_bytes("MemAvailable") / 4);
    let configuration = Configuration {
        repeats: common.repeat,
        phase_ns: if common.quick { 150_000_000 } else { 500_000_000 },
        clients: options.clients.clone(),
        ways: options.ways.clone(),
        written_bytes_max,
        read_bytes: READ_BYTES,
        server_workers: common.workers,
        only: options.only.clone(),
    };
    if configuration.phases().is_empty() {
        anyhow::bail!("no row is called like that; there are: {}", PHASES.map(Phase::name).join("; "));
    }
    let session = Session::new(common.isonomia.as_deref())?;
    let mut report = Report::new("speed", common, configuration)?;
    let mut figures = Figures::default();
    let log = report.dir().join("server.log");
    let done = measure(&session, &report.configuration, &log, &mut figures);
    report.error = done.as_ref().err().map(|error| format!("{error:#}"));
    report.rows = figures.rows();
    report.remarks = figures.remarks;
    report.publish(common.json)?;
    done
}

fn measure(
    session: &Session,
    configuration: &Configuration,
    log: &std::path::Path,
    figures: &mut Figures,
) -> Result<()> {
    let tmpfs = session.scratch().join(TMPFS);
    std::fs::create_dir(&tmpfs)?;
    let server_options = ServerOptions {
        cap: None,
        workers: configuration.server_workers,
        mount: configuration.ways.contains(&Way::Mount),
        ..ServerOptions::default()
    };
    let server = ServerProcess::start(session, "server", &server_options, log)?;
    let identity = Identity { job: "speed".to_owned(), user: "bench".to_owned(), group: "bench".to_owned(), nodes: 1 };
    let mut number = 0;
    touch_memory(session, configuration, &tmpfs)?;
    for repeat in 0..configuration.repeats {
        for &processes in &configuration.clients {
            eprintln!("isonomia-bench: repeat {} of {}, {processes} processes", repeat + 1, configuration.repeats);
            // No two crews use the same names.
            let numbers = number..number + processes;
            number += processes;
            let plain = numbers.clone().map(|number| plain_worker(&session.programs, &tmpfs, number));
            let mut lanes = vec![Lane { name: TMPFS.to_owned(), crew: Crew::start(TMPFS, plain)?, files: 0 }];
            for way in &configuration.ways {
                let commands: Vec<_> = (number..number + processes)
                    .map(|number| way.worker(&session.programs, server.endpoints(), &identity, number))
                    .collect();
                number += processes;
                let name = way.to_string();
                lanes.push(Lane { crew: Crew::start(&name, commands)?, name, files: 0 });
            }
            for phase in configuration.phases() {
                for lane in &mut lanes {
                    let Some(task) = phase.task(configuration, processes, lane.files) else { continue };
                    let what = || format!("{} by {processes} processes over {}", phase.name(), lane.name);
                    let outcomes = lane.crew.run(session, &task).with_context(what)?;
                    let longest_ns = outcomes.iter().map(|outcome| outcome.longest_ns).max().unwrap_or(0);
                    if longest_ns > STALL_NS {
                        let stall = format!("a call took {} ms: {}", longest_ns / 1_000_000, what());
                        eprintln!("isonomia-bench: {stall}");
                        figures.remarks.push(stall);
                    }
                    if phase == Phase::Create {
                        lane.files = outcomes.iter().map(|outcome| outcome.operations).min().unwrap_or(0);
                    }
                    for (index, value) in phase.values(&outcomes).into_iter().enumerate() {
                        figures.values.entry((phase, index, processes, lane.name.clone())).or_default().push(value);
                    }
                }
            }
        }
    }
    Ok(())
}

/// The first use of memory by a virtual machine is slow, and not what is to be measured.
fn touch_memory(session: &Session, configuration: &Configuration, tmpfs: &std::path::Path) -> Result<()> {
    eprintln!("isonomia-bench: touching {} MiB of memory", configuration.written_bytes_max / MIB);
    let mut crew = Crew::start(TMPFS, [plain_worker(&session.programs, tmpfs, u32::MAX)])?;
    let file_bytes = configuration.written_bytes_max / MIB * MIB;
    let transfer = transfer(Direction::Write, Order::Sequential, MIB, file_bytes, FileState::Fresh);
    let task = Task { operation: transfer, duration_ns: 30_000_000_000, delay_ns: 0 };
    crew.run(session, &task).map(drop)
}

fn transfer(direction: Direction, order: Order, block_bytes: u64, file_bytes: u64, file: FileState) -> Operation {
    Operation::Transfer(Transfer { direction, order, block_bytes, file_bytes, file, log: Log::Totals })
}

fn round_trips(direction: Direction) -> Operation {
    Operation::Transfer(Transfer {
        direction,
        order: Order::Random,
        block_bytes: 4096,
        file_bytes: ROUND_TRIP_BYTES,
        file: FileState::Filled,
        log: Log::Latency,
    })
}

impl Configuration {
    /// The phases that are asked for. Files are looked at and removed only where some were made.
    fn phases(&self) -> Vec<Phase> {
        let is_named = |phase: Phase| self.only.as_ref().is_none_or(|only| phase.name().contains(only.as_str()));
        let needs_files = is_named(Phase::Stat) || is_named(Phase::Unlink);
        PHASES.into_iter().filter(|phase| is_named(*phase) || (*phase == Phase::Create && needs_files)).collect()
    }
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Write1MiB => "write 1 MiB sequential",
            Self::Read1MiB => "read 1 MiB sequential",
            Self::Write4KiB => "write 4 KiB random",
            Self::Read4KiB => "read 4 KiB random",
            Self::WriteRoundTrip => "write 4 KiB round trip",
            Self::ReadRoundTrip => "read 4 KiB round trip",
            Self::Create => "create",
            Self::Stat => "stat",
            Self::Unlink => "unlink",
        }
    }

    /// What each worker does; None if the row is not taken with so many processes.
    fn task(self, configuration: &Configuration, processes: u32, files: u64) -> Option<Task> {
        let each = u64::from(processes);
        let written = configuration.written_bytes_max / each / MIB * MIB;
        let read = READ_BYTES.min(written);
        let is_single = processes == 1;
        let operation = match self {
            Self::Write1MiB => transfer(Direction::Write, Order::Sequential, MIB, written, FileState::Fresh),
            Self::Read1MiB => transfer(Direction::Read, Order::Sequential, MIB, read, FileState::Filled),
            Self::Write4KiB => transfer(Direction::Write, Order::Random, 4096, written, FileState::Fresh),
            Self::Read4KiB => transfer(Direction::Read, Order::Random, 4096, read, FileState::Filled),
            Self::WriteRoundTrip => is_single.then(|| round_trips(Direction::Write))?,
            Self::ReadRoundTrip => is_single.then(|| round_trips(Direction::Read))?,
            Self::Create => Operation::Create { files_max: FILES_MAX / each },
            Self::Stat => Operation::Stat { files },
            Self::Unlink => Operation::Unlink { files },
        };
        Some(Task { operation, duration_ns: configuration.phase_ns, delay_ns: 0 })
    }

    /// The figures of a phase, in the units of [`Self::units`].
    fn values(self, outcomes: &[Outcome]) -> Vec<f64> {
        let begin_ns = outcomes.iter().map(|outcome| outcome.begin_ns).min().unwrap_or(0);
        let end_ns = outcomes.iter().map(|outcome| outcome.end_ns).max().unwrap_or(0);
        let seconds = (end_ns - begin_ns).max(1) as f64 / 1e9;
        let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>() as f64;
        match self {
            Self::Write1MiB | Self::Read1MiB => vec![sum(|outcome| outcome.bytes) / MIB as f64 / seconds],
            Self::WriteRoundTrip | Self::ReadRoundTrip => {
                let latency = outcomes.iter().find_map(|outcome| outcome.latency);
                latency.map_or_else(Vec::new, |l| vec![l.median_ns as f64 / 1e3, l.p99_ns as f64 / 1e3])
            }
            _ => vec![sum(|outcome| outcome.operations) / seconds],
        }
    }

    fn units(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Write1MiB | Self::Read1MiB => &[("", "MiB/s")],
            Self::WriteRoundTrip | Self::ReadRoundTrip => &[(", median", "us"), (", 99th percentile", "us")],
            _ => &[("", "op/s")],
        }
    }

    /// What is asked of a server on the same host.
    fn must(self, index: usize, processes: u32) -> Option<Must> {
        match (self, index, processes) {
            (Self::Write1MiB, _, FEW) => Some(Must::ratio(0.40)),
            (Self::Read1MiB, _, FEW) => Some(Must::ratio(0.30)),
            (Self::Write4KiB | Self::Read4KiB, _, FEW) => Some(Must::ratio(0.10)),
            (Self::WriteRoundTrip | Self::ReadRoundTrip, 0, 1) => Some(Must::at_most(15.0)),
            (Self::Create | Self::Unlink, _, FEW) => Some(Must::at_least(40_000.0)),
            (Self::Stat, _, FEW) => Some(Must::at_least(150_000.0)),
            _ => None,
        }
    }

    /// What is asked of a mount, where every call goes through the kernel and a process behind it.
    fn must_mounted(self, processes: u32) -> Option<Must> {
        match (self, processes) {
            (Self::Write1MiB, FEW) => Some(Must::ratio(0.30)),
            (Self::Read1MiB, FEW) => Some(Must::ratio(0.20)),
            (Self::Write4KiB | Self::Read4KiB, FEW) => Some(Must::ratio(0.03)),
            (Self::Create, FEW) => Some(Must::at_least(8_000.0)),
            _ => None,
        }
    }
}

impl Figures {
    fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.values.iter().map(|(key, values)| self.row(key, values)).collect();
        rows.extend(self.values.keys().filter_map(|key| self.calm(key)));
        rows
    }

    fn row(&self, key: &Key, values: &[f64]) -> Row {
        let (phase, index, processes, way) = key;
        let (suffix, unit) = phase.units()[*index];
        let row = Row::new(format!("{}{suffix}", phase.name()), way, unit, values.to_vec());
        let row = Row { processes: Some(*processes), ..row };
        if way == TMPFS {
            return row;
        }
        let tmpfs = self.values.get(&(*phase, *index, *processes, TMPFS.to_owned()));
        let must = match way.as_str() {
            "mount" => phase.must_mounted(*processes),
            way if way.ends_with("-tcp") => None,
            _ => phase.must(*index, *processes),
        };
        Row { must, ..row.beside(tmpfs.map_or(&[], Vec::as_slice)) }
    }

    /// What is left of the throughput of few processes when many compete for the cores.
    fn calm(&self, key: &Key) -> Option<Row> {
        let (phase, index, processes, way) = key;
        if *processes != MANY {
            return None;
        }
        let few = self.values.get(&(*phase, *index, FEW, way.clone()))?;
        let ratios = self.values[key].iter().zip(few).map(|(many, few)| many / few).collect();
        let name = format!("{}, {MANY} processes / {FEW}", phase.name());
        let must = (way != TMPFS).then(|| Must::at_least(0.5));
        Some(Row { must, processes: Some(MANY), ..Row::new(name, way, "x", ratios) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(bytes: u64, begin_ns: u64, end_ns: u64) -> Outcome {
        Outcome { operations: bytes / 4096, bytes, begin_ns, end_ns, ..Outcome::default() }
    }

    #[test]
    fn throughput_counts_from_the_first_call_to_the_last() {
        let outcomes =
            [outcome(64 * MIB, 1_000_000_000, 1_400_000_000), outcome(32 * MIB, 1_100_000_000, 1_500_000_000)];
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
        assert!(near(Phase::Write1MiB.values(&outcomes)[0], 192.0));
        assert!(near(Phase::Read4KiB.values(&outcomes)[0], 96.0 * 256.0 / 0.5));
    }

    #[test]
    fn rows_stand_beside_tmpfs_and_many_beside_few() {
        let mut figures = Figures::default();
        for (processes, way, values) in
            [(2, "tmpfs", [100.0, 200.0]), (2, "preload", [50.0, 60.0]), (8, "preload", [20.0, 45.0])]
        {
            figures.values.insert((Phase::Write1MiB, 0, processes, way.to_owned()), values.to_vec());
        }
        let rows = figures.rows();
        let of = |name: &str, way: &str, n| {
            rows.iter().find(|r| r.name == name && r.way == way && r.processes == Some(n)).unwrap()
        };
        assert_eq!(of("write 1 MiB sequential", "preload", 2).ratios, [0.5, 0.3]);
        assert!(of("write 1 MiB sequential", "preload", 8).ratios.is_empty());
        assert!(of("write 1 MiB sequential", "tmpfs", 2).must.is_none());
        assert_eq!(of("write 1 MiB sequential, 8 processes / 2", "preload", 8).values, [0.4, 0.75]);
        assert_eq!(rows.len(), 4);
    }
}
