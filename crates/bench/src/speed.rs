//! `isonomia-bench speed`: what a number of processes get, and what they get of tmpfs at the same time of day.
//!
//! One crew of workers for each way and number of processes; for every row tmpfs and the ways alternate, so
//! that what else goes on in the machine meets all of them. Throughput is that of all processes from the first
//! call to the last.

use crate::arguments::SpeedOptions;
use crate::crew::Crew;
use crate::harness::Harness;
use crate::host::memory_bytes;
use crate::phases::{Figures, Key, Lane, MIB, PHASES, Phase, READ_BYTES, Sizes, alternate, phases, transfer};
use crate::report::{Must, Report, Row};
use crate::server::{ServerOptions, ServerProcess};
use crate::task::{Direction, FileState, Order, Task};
use crate::way::{Identity, Way, plain_worker};
use anyhow::Result;
use serde::Serialize;

/// Files written by all processes of a row together.
const WRITTEN_BYTES_MAX: u64 = 4 << 30;
const TMPFS: &str = "tmpfs";
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

impl Configuration {
    fn sizes(&self) -> Sizes {
        Sizes { phase_ns: self.phase_ns, written_bytes_max: self.written_bytes_max }
    }
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
    if phases(options.only.as_deref()).is_empty() {
        anyhow::bail!("no row is called like that; there are: {}", PHASES.map(Phase::name).join("; "));
    }
    let harness = Harness::new(common.isonomia.as_deref())?;
    let mut report = Report::new("speed", common, configuration)?;
    let mut figures = Figures::default();
    let log = report.dir().join("server.log");
    let done = measure(&harness, &report.configuration, &log, &mut figures);
    report.error = done.as_ref().err().map(|error| format!("{error:#}"));
    report.rows = rows(&figures);
    report.remarks = figures.remarks;
    report.publish(common.json)?;
    done
}

fn measure(
    harness: &Harness,
    configuration: &Configuration,
    log: &std::path::Path,
    figures: &mut Figures,
) -> Result<()> {
    let tmpfs = harness.scratch().join(TMPFS);
    std::fs::create_dir(&tmpfs)?;
    let server_options = ServerOptions {
        cap: None,
        workers: configuration.server_workers,
        mount: configuration.ways.contains(&Way::Mount),
        ..ServerOptions::default()
    };
    let server = ServerProcess::start(harness, "server", &server_options, log)?;
    let identity = Identity { job: "speed".to_owned(), user: "bench".to_owned(), group: "bench".to_owned(), nodes: 1 };
    let mut number = 0;
    let phases = phases(configuration.only.as_deref());
    touch_memory(harness, configuration.written_bytes_max, &tmpfs)?;
    for repeat in 0..configuration.repeats {
        for &processes in &configuration.clients {
            eprintln!("isonomia-bench: repeat {} of {}, {processes} processes", repeat + 1, configuration.repeats);
            // No two crews use the same names.
            let numbers = number..number + processes;
            number += processes;
            let plain = numbers.clone().map(|number| plain_worker(&harness.programs, &tmpfs, number));
            let mut lanes = vec![Lane::new(TMPFS, Crew::start(TMPFS, plain)?)];
            for way in &configuration.ways {
                let commands: Vec<_> = (number..number + processes)
                    .map(|number| way.worker(&harness.programs, server.endpoints(), &identity, number))
                    .collect();
                number += processes;
                let name = way.to_string();
                lanes.push(Lane::new(&name, Crew::start(&name, commands)?));
            }
            alternate(harness, (&phases, configuration.sizes(), processes), &mut lanes, figures)?;
        }
    }
    Ok(())
}

/// The first use of memory by a virtual machine is slow, and not what is to be measured.
pub fn touch_memory(harness: &Harness, bytes: u64, tmpfs: &std::path::Path) -> Result<()> {
    eprintln!("isonomia-bench: touching {} MiB of memory", bytes / MIB);
    let mut crew = Crew::start(TMPFS, [plain_worker(&harness.programs, tmpfs, u32::MAX)])?;
    let file_bytes = bytes / MIB * MIB;
    let transfer = transfer(Direction::Write, Order::Sequential, MIB, file_bytes, FileState::Fresh);
    let task = Task { operation: transfer, duration_ns: 30_000_000_000, delay_ns: 0 };
    crew.run(harness, &task).map(drop)
}

/// What is asked of a server on the same host.
fn must(phase: Phase, index: usize, processes: u32) -> Option<Must> {
    match (phase, index, processes) {
        (Phase::Write1MiB, _, FEW) => Some(Must::ratio(0.40)),
        (Phase::Read1MiB, _, FEW) => Some(Must::ratio(0.30)),
        (Phase::Write4KiB | Phase::Read4KiB, _, FEW) => Some(Must::ratio(0.10)),
        (Phase::WriteRoundTrip | Phase::ReadRoundTrip, 0, 1) => Some(Must::at_most(15.0)),
        (Phase::Create | Phase::Unlink, _, FEW) => Some(Must::at_least(40_000.0)),
        (Phase::Stat, _, FEW) => Some(Must::at_least(150_000.0)),
        _ => None,
    }
}

/// What is asked of a mount, where every call goes through the kernel and a process behind it.
fn must_mounted(phase: Phase, processes: u32) -> Option<Must> {
    match (phase, processes) {
        (Phase::Write1MiB, FEW) => Some(Must::ratio(0.30)),
        (Phase::Read1MiB, FEW) => Some(Must::ratio(0.20)),
        (Phase::Write4KiB | Phase::Read4KiB, FEW) => Some(Must::ratio(0.03)),
        (Phase::Create, FEW) => Some(Must::at_least(8_000.0)),
        _ => None,
    }
}

fn rows(figures: &Figures) -> Vec<Row> {
    let must = |(phase, index, processes, way): &Key| match way.as_str() {
        "mount" => must_mounted(*phase, *processes),
        way if way.ends_with("-tcp") => None,
        _ => must(*phase, *index, *processes),
    };
    let mut rows = figures.rows(TMPFS, must);
    rows.extend(figures.values.keys().filter_map(|key| calm(figures, key)));
    rows
}

/// What is left of the throughput of few processes when many compete for the cores.
fn calm(figures: &Figures, key: &Key) -> Option<Row> {
    let (phase, index, processes, way) = key;
    if *processes != MANY {
        return None;
    }
    let few = figures.values.get(&(*phase, *index, FEW, way.clone()))?;
    let ratios = figures.values[key].iter().zip(few).map(|(many, few)| many / few).collect();
    let name = format!("{}, {MANY} processes / {FEW}", phase.name());
    let must = (way != TMPFS).then(|| Must::at_least(0.5));
    Some(Row { must, processes: Some(MANY), ..Row::new(name, way, "x", ratios) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_beside_tmpfs_and_many_beside_few() {
        let mut figures = Figures::default();
        for (processes, way, values) in
            [(2, "tmpfs", [100.0, 200.0]), (2, "preload", [50.0, 60.0]), (8, "preload", [20.0, 45.0])]
        {
            figures.values.insert((Phase::Write1MiB, 0, processes, way.to_owned()), values.to_vec());
        }
        let rows = rows(&figures);
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
