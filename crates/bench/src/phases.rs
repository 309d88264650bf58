//! The rows of tables of speed: what each process does, and what came of it.

use crate::crew::Crew;
use crate::harness::Harness;
use crate::report::{Must, Row};
use crate::task::{Direction, FileState, Log, Operation, Order, Outcome, Task, Transfer};
use anyhow::{Context, Result};
use std::collections::BTreeMap;

pub const MIB: u64 = 1 << 20;
/// The file that a process reads.
pub const READ_BYTES: u64 = 128 * MIB;
/// The file of a process whose single calls are timed.
const ROUND_TRIP_BYTES: u64 = 64 * MIB;
/// Empty files of all processes together.
const FILES_MAX: u64 = 200_000;
/// A call that takes longer is remarked on.
const STALL_NS: u64 = 200_000_000;

/// A row of the table: one timed phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
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

pub const PHASES: [Phase; 9] = [
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
pub type Key = (Phase, usize, u32, String);

/// What each repeat gave.
#[derive(Debug, Default)]
pub struct Figures {
    pub values: BTreeMap<Key, Vec<f64>>,
    pub remarks: Vec<String>,
}

/// What is compared, with its workers.
pub struct Lane {
    pub name: String,
    crew: Crew,
    /// Files that every worker has made.
    files: u64,
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Length of a phase.
    pub phase_ns: u64,
    /// Files written by all processes of a row together.
    pub written_bytes_max: u64,
}

impl Lane {
    /// With these workers.
    pub fn new(name: &str, crew: Crew) -> Self {
        Self { name: name.to_owned(), crew, files: 0 }
    }
}

/// Files are looked at and removed only where some were made.
pub fn phases(only: Option<&str>) -> Vec<Phase> {
    let is_named = |phase: Phase| only.is_none_or(|only| phase.name().contains(only));
    let needs_files = is_named(Phase::Stat) || is_named(Phase::Unlink);
    PHASES.into_iter().filter(|phase| is_named(*phase) || (*phase == Phase::Create && needs_files)).collect()
}

/// Has the lanes alternate in each phase.
pub fn alternate(
    harness: &Harness,
    (phases, sizes, processes): (&[Phase], Sizes, u32),
    lanes: &mut [Lane],
    figures: &mut Figures,
) -> Result<()> {
    for &phase in phases {
        for lane in &mut *lanes {
            let Some(task) = phase.task(sizes, processes, lane.files) else { continue };
            let what = || format!("{} by {processes} processes over {}", phase.name(), lane.name);
            let outcomes = lane.crew.run(harness, &task).with_context(what)?;
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
    Ok(())
}

pub fn transfer(direction: Direction, order: Order, block_bytes: u64, file_bytes: u64, file: FileState) -> Operation {
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

impl Phase {
    pub fn name(self) -> &'static str {
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
    fn task(self, sizes: Sizes, processes: u32, files: u64) -> Option<Task> {
        let each = u64::from(processes);
        let written = sizes.written_bytes_max / each / MIB * MIB;
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
        Some(Task { operation, duration_ns: sizes.phase_ns, delay_ns: 0 })
    }

    /// The figures of a phase, in the units of [`Self::units`].
    pub fn values(self, outcomes: &[Outcome]) -> Vec<f64> {
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

    pub fn units(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Write1MiB | Self::Read1MiB => &[("", "MiB/s")],
            Self::WriteRoundTrip | Self::ReadRoundTrip => &[(", median", "us"), (", 99th percentile", "us")],
            _ => &[("", "op/s")],
        }
    }
}

impl Figures {
    /// A row for each figure, beside those of `baseline`, of which nothing is asked.
    pub fn rows(&self, baseline: &str, must: impl Fn(&Key) -> Option<Must>) -> Vec<Row> {
        let row = |(key, values): (&Key, &Vec<f64>)| {
            let (phase, index, processes, name) = key;
            let (suffix, unit) = phase.units()[*index];
            let row = Row::new(format!("{}{suffix}", phase.name()), name, unit, values.to_vec());
            let row = Row { processes: Some(*processes), ..row };
            if name == baseline {
                return row;
            }
            let beside = self.values.get(&(*phase, *index, *processes, baseline.to_owned()));
            Row { must: must(key), ..row.beside(beside.map_or(&[], Vec::as_slice)) }
        };
        self.values.iter().map(row).collect()
    }
}

/// Of the rows that are compared with a baseline, for each way and repeat the geometric mean of how many times as fast as the baseline they
/// are: times count inversely. Single rows of a fraction of a second vary by tens of percent on virtual machines; their mean varies
/// by a few.
pub fn mean_speeds(rows: &[Row]) -> Vec<Row> {
    let mut logarithms: BTreeMap<&str, Vec<Vec<f64>>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.ratios.is_empty()) {
        let of_way = logarithms.entry(&row.way).or_default();
        let sign = if row.unit == "us" { -1.0 } else { 1.0 };
        for (repeat, ratio) in row.ratios.iter().enumerate() {
            if repeat == of_way.len() {
                of_way.push(Vec::new());
            }
            of_way[repeat].push(sign * ratio.ln());
        }
    }
    let mean = |logarithms: &Vec<f64>| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
    let row = |(way, repeats): (&str, Vec<Vec<f64>>)| {
        Row::new("all rows, geometric mean of speed over the baseline's", way, "x", repeats.iter().map(mean).collect())
    };
    logarithms.into_iter().map(row).collect()
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
    fn means_of_speeds_take_times_inversely_and_repeats_apart() {
        let beside = |unit, values: &[f64], base: &[f64]| Row::new("r", "w", unit, values.to_vec()).beside(base);
        let rows = [
            Row::new("r", "baseline", "ops/s", vec![5.0, 5.0]),
            beside("ops/s", &[10.0, 5.0], &[5.0, 5.0]),
            beside("us", &[1.0, 2.0], &[2.0, 1.0]),
        ];
        let means = mean_speeds(&rows);
        assert_eq!(means.len(), 1);
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
        assert!(near(means[0].values[0], 2.0) && near(means[0].values[1], 0.5_f64.sqrt()), "{:?}", means[0].values);
    }
}
