//! `isonomia-bench overhead`: what the preload library adds to calls that do not concern it.
//!
//! Two processes of this program, one with the library and one without, alternate in short batches of calls, so that
//! what else goes on in the machine meets both; no server runs. A repeat's figure is the difference of the medians of
//! its batches. For start-up, `true` is started with the library and without, alternately as well.

use crate::arguments::{CallsOptions, OverheadOptions};
use crate::clock::now_ns;
use crate::harness::{Harness, start};
use crate::report::{Must, Report, Row};
use crate::statistics::percentile;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Calls timed together: about a millisecond.
const PREADS: u64 = 3_000;
const OPENS: u64 = 500;
const NS_PER_US: f64 = 1e3;
const PERCENT_MEDIAN: u64 = 50;
/// A program that does nothing.
const NOTHING: &str = "/bin/true";
const WITHOUT: &str = "plain";
const WITH: &str = "preload";

#[derive(Debug, Serialize)]
struct Configuration {
    repeats: u32,
    batches: u32,
    starts: u32,
    preads: u64,
    opens: u64,
}

/// What is timed.
#[derive(Clone, Copy, Debug)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    /// At most, in `unit`.
    must: f64,
}

const FIGURES: [Figure; 3] = [
    Figure { name: "pread of a local file", unit: "ns", must: 20.0 },
    Figure { name: "open and close of a local file", unit: "ns", must: 200.0 },
    Figure { name: "start of a process", unit: "us", must: 2000.0 },
];

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &OverheadOptions) -> Result<()> {
    let common = &options.common;
    let (batches, starts) = if common.quick { (100, 50) } else { (1_000, 500) };
    let configuration = Configuration { repeats: common.repeat, batches, starts, preads: PREADS, opens: OPENS };
    let harness = Harness::new(common.isonomia.as_deref())?;
    let mut report = Report::new("overhead", common, configuration)?;
    let mut medians: [Vec<[f64; 2]>; FIGURES.len()] = Default::default();
    let done = measure(&harness, &report.configuration, &mut medians);
    report.error = done.as_ref().err().map(|error| format!("{error:#}"));
    for (figure, medians) in FIGURES.iter().zip(&medians) {
        let column = |index: usize| medians.iter().map(|pair| pair[index]).collect::<Vec<_>>();
        report.rows.push(Row::new(figure.name, WITHOUT, figure.unit, column(0)));
        report.rows.push(Row::new(figure.name, WITH, figure.unit, column(1)));
        let added = medians.iter().map(|[without, with]| with - without).collect();
        let must = Some(Must::at_most(figure.must));
        report.rows.push(Row { must, ..Row::new(format!("{}, added", figure.name), WITH, figure.unit, added) });
    }
    report.publish(common.json)?;
    done
}

fn measure(
    harness: &Harness,
    configuration: &Configuration,
    medians: &mut [Vec<[f64; 2]>; FIGURES.len()],
) -> Result<()> {
    let library = harness.programs.isonomia.with_file_name("libisonomia_preload.so");
    ensure!(library.exists(), "{} is not there: cargo build --release", library.display());
    let file = harness.scratch().join("file");
    std::fs::write(&file, b"x")?;
    for _ in 0..configuration.repeats {
        let mut callers = [None, Some(library.as_path())].map(|library| Caller::start(harness, &file, library));
        for (index, ask) in [Ask::Pread, Ask::Open].into_iter().enumerate() {
            let mut taken: [Vec<u64>; 2] = Default::default();
            for _ in 0..configuration.batches {
                harness.check()?;
                for (caller, taken) in callers.iter_mut().zip(&mut taken) {
                    let caller = caller.as_mut().map_err(|error| anyhow::anyhow!("{error:#}"))?;
                    taken.push(caller.time(ask)?);
                }
            }
            medians[index].push(taken.map(|mut ns| median(&mut ns) / ask.count() as f64));
        }
        let mut taken: [Vec<u64>; 2] = Default::default();
        for _ in 0..configuration.starts {
            harness.check()?;
            for (library, taken) in [None, Some(library.as_path())].into_iter().zip(&mut taken) {
                taken.push(time_start(library)?);
            }
        }
        medians[FIGURES.len() - 1].push(taken.map(|mut ns| median(&mut ns) / NS_PER_US));
    }
    Ok(())
}

fn median(values: &mut [u64]) -> f64 {
    percentile(values, PERCENT_MEDIAN).unwrap_or(0) as f64
}

/// Nanoseconds from the start of a program to its end being known.
fn time_start(library: Option<&Path>) -> Result<u64> {
    let mut command = Command::new(NOTHING);
    with(&mut command, library);
    let before = now_ns();
    let status = command.status().with_context(|| format!("cannot start {NOTHING}"))?;
    let taken = now_ns() - before;
    ensure!(status.success(), "{NOTHING} failed: {status}");
    Ok(taken)
}

fn with(command: &mut Command, library: Option<&Path>) {
    match library {
        Some(library) => command.env("LD_PRELOAD", library),
        None => command.env_remove("LD_PRELOAD"),
    };
}

/// What a caller is told in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Pread,
    Open,
}

impl Ask {
    const fn letter(self) -> u8 {
        match self {
            Self::Pread => b'p',
            Self::Open => b'o',
        }
    }

    const fn count(self) -> u64 {
        match self {
            Self::Pread => PREADS,
            Self::Open => OPENS,
        }
    }
}

/// A process that makes calls when told to.
struct Caller {
    process: Child,
    told: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Caller {
    fn start(harness: &Harness, file: &Path, library: Option<&Path>) -> Result<Self> {
        let mut command = Command::new(&harness.programs.bench);
        command.args(["calls", "--path"]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        with(&mut command, library);
        let mut process = start(&mut command, Signal::KILL)?;
        let told = process.stdin.take().context("its input")?;
        let answers = BufReader::new(process.stdout.take().context("its output")?);
        Ok(Self { process, told, answers })
    }

    /// Nanoseconds of one batch.
    fn time(&mut self, ask: Ask) -> Result<u64> {
        self.told.write_all(&[ask.letter()])?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim_end().parse().with_context(|| format!("a process that makes calls says {line:?}"))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The process that makes calls: `std` makes them through the C library, where the preload library stands.
pub fn make_calls(options: &CallsOptions) -> Result<()> {
    let file = File::open(&options.path)?;
    let mut told = std::io::stdin().lock();
    let mut answers = std::io::stdout().lock();
    loop {
        let Some(letter) = told.fill_buf()?.first().copied() else { return Ok(()) };
        told.consume(1);
        let before = now_ns();
        if letter == Ask::Pread.letter() {
            for _ in 0..PREADS {
                file.read_at(&mut [0], 0)?;
            }
        } else {
            for _ in 0..OPENS {
                File::open(&options.path)?;
            }
        }
        writeln!(answers, "{}", now_ns() - before)?;
        answers.flush()?;
    }
}
