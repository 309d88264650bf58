//! `isonomia-bench programs`: how long real programs take beside a background job of one node (ThemisIO §5.5, Fig. 13).
//!
//! Each [`Program`] is run alone and then beside processes that write without a pause, under each of several policies, on one capped
//! server, which is in a cluster of one because `gift` and `coflow` need a controller. The program's job has so many nodes; nobody else is
//! there. Compared is the whole time of the program with that alone in the same repeat. What is not installed is left out and named.

use crate::arguments::ProgramsOptions;
use crate::clock::now_ns;
use crate::crew::{Crew, start_ns};
use crate::harness::{Harness, start};
use crate::report::{Must, Report, Row, keep};
use crate::server::{Cap, GIFT_BANDWIDTH, ServerOptions, ServerProcess};
use crate::task::{Direction, FileState, Log, Operation, Order, Task, Transfer};
use crate::way::{Identity, PREFIX, Way, preloaded};
use anyhow::{Context, Result, anyhow, bail, ensure};
use isonomia_plot::{Bars, Series};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// As one of GIFT's targets.
const CAP: Cap = Cap { bandwidth: GIFT_BANDWIDTH, per_op: "100us" };
/// Of each program's job; that in the background has one.
const NODES: u32 = 16;
/// Processes in the background, with one request under way each, and what that is: small, for a program that has one small request under
/// way at a time waits for the one in service, whatever the policy, and the target is slow while programs compute at full speed.
const BACKGROUND_PROCESSES: u32 = 4;
const BACKGROUND_BLOCK_BYTES: u64 = 64 << 10;
const BACKGROUND_FILE_BYTES: u64 = 8 << 20;
/// They begin so long before a program.
const BACKGROUND_LEAD: Duration = Duration::from_millis(500);
/// The longest that a program may take.
const PROGRAM_NS_MAX: u64 = 300_000_000_000;
const POLL: Duration = Duration::from_millis(2);
/// The directory in which programs work: on the server's prefix.
const DIRECTORY: &str = "programs";
/// Two ranks that share few cores yield to each other.
const MPI: &str = "mpirun.openmpi --oversubscribe --mca mpi_yield_when_idle 1 -np 2";
/// Debian's, which has parallel HDF5.
const PYTHON: &str = "/usr/bin/python3";
const ENVIRONMENT: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("H5PY_ALWAYS_USE_MPI", "1"),
    // There are as many ranks as cores.
    ("OPENBLAS_NUM_THREADS", "1"),
];

/// The first is what is compared with: nobody is in the background, so that the policy does not matter.
const ALONE: &str = "alone";
const SETTINGS: [(&str, &str); 5] = [
    (ALONE, "size-fair"),
    ("fifo", "fifo"),
    (FAIR, "size-fair"),
    ("gift", "gift{tree=size-fair,decide=500ms}"),
    ("coflow", "coflow{tree=size-fair}"),
];
const FAIR: &str = "size-fair";

/// Scripts for `bash`, in an empty directory. `$INPUTS` has the files of [`INPUTS`].
struct Program {
    name: &'static str,
    /// What says by its exit code whether the program can be run here.
    needs: &'static str,
    prepare: &'static str,
    run: &'static str,
}

const PROGRAMS: [Program; 4] = [
    Program {
        name: "LAMMPS with checkpoints",
        needs: "command -v mpirun.openmpi && command -v lmp",
        prepare: "",
        run: "$MPI lmp -log none -screen none -in $INPUTS/lammps-checkpoint.in -var size 10",
    },
    Program {
        name: "parallel h5py",
        needs: "command -v mpirun.openmpi && $PYTHON -c 'import h5py, mpi4py; assert h5py.get_config().mpi'",
        prepare: "",
        run: "$MPI $PYTHON $INPUTS/checkpoints.py checkpoints.h5",
    },
    Program {
        name: "small files",
        needs: "command -v md5sum && command -v split",
        prepare: "head -c 4915200 /dev/urandom | split -b 16384 -a 3 - part-",
        run: "md5sum part-*",
    },
    Program {
        name: "a compile",
        needs: "command -v make && command -v cc && command -v ar && command -v awk",
        prepare: r##"
            for i in {1..12}; do
                awk -v n=$i 'BEGIN {
                    print "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>"
                    for (f = 0; f < 100; f++)
                        printf "long f%d_%d(long x) { long y = %d; while (x > 0) y += x--; return y; }\n", n, f, f
                }' > part$i.c
            done
            printf 'libparts.a: $(patsubst %%.c,%%.o,$(wildcard *.c))\n\tar rcs $@ $^\n' > Makefile"##,
        run: "make -j2",
    },
];

/// By name, what programs are given.
const INPUTS: [(&str, &str); 2] = [
    ("lammps-checkpoint.in", include_str!("../../../tests/acceptance/programs/lammps-checkpoint.in")),
    ("checkpoints.py", include_str!("../programs/checkpoints.py")),
];

#[derive(Debug, Serialize)]
struct Configuration {
    repeats: u32,
    nodes: u32,
    bandwidth: &'static str,
    per_op: &'static str,
    background_processes: u32,
    background_block_bytes: u64,
    policies: [(&'static str, &'static str); 5],
    server_workers: Option<u32>,
}

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &ProgramsOptions) -> Result<()> {
    let common = &options.common;
    let is_wanted = |program: &&Program| options.only.as_ref().is_none_or(|only| program.name.contains(only.as_str()));
    let wanted: Vec<&Program> = PROGRAMS.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let names = PROGRAMS.each_ref().map(|program| program.name).join("; ");
        bail!("no program is called like that; there are: {names}");
    }
    let harness = Harness::new(common.isonomia.as_deref())?;
    let configuration = Configuration {
        repeats: common.repeat,
        nodes: NODES,
        bandwidth: CAP.bandwidth,
        per_op: CAP.per_op,
        background_processes: BACKGROUND_PROCESSES,
        background_block_bytes: BACKGROUND_BLOCK_BYTES,
        policies: SETTINGS,
        server_workers: common.workers,
    };
    let mut report = Report::new("programs", common, configuration)?;
    let (mut rows, mut remarks) = (Vec::new(), Vec::new());
    let done = measure(&harness, &wanted, &report, &mut rows, &mut remarks);
    report.error = done.as_ref().err().map(|error| format!("{error:#}"));
    report.rows = rows;
    report.remarks = remarks;
    report.publish(common.json)?;
    if done.is_ok() && !report.rows.is_empty() {
        plot(&report.rows, report.dir())?;
    }
    done
}

fn measure(
    harness: &Harness,
    wanted: &[&Program],
    report: &Report<Configuration>,
    rows: &mut Vec<Row>,
    remarks: &mut Vec<String>,
) -> Result<()> {
    let inputs = harness.scratch().join("inputs");
    std::fs::create_dir(&inputs)?;
    INPUTS.iter().try_for_each(|(name, text)| std::fs::write(inputs.join(name), text))?;
    let output = report.dir().join("programs.log");
    let bench = Bench { harness, inputs: &inputs, output: &output };
    let mut present = Vec::new();
    for program in wanted {
        if bench.is_here(program)? {
            present.push(*program);
        } else {
            remarks.push(format!("{} is left out: it is not installed ({})", program.name, program.needs));
        }
    }
    let Configuration { repeats, server_workers: workers, .. } = report.configuration;
    let options = ServerOptions { cap: Some(CAP), workers, cluster: Some(1), ..ServerOptions::default() };
    let mut server = ServerProcess::start(harness, "programs", &options, &report.dir().join("server.log"))?;
    server.work_in(DIRECTORY, Some(1), None)?;
    for repeat in 0..repeats {
        for program in &present {
            let mut times = [0.0; SETTINGS.len()];
            for step in 0..SETTINGS.len() {
                // Who is first differs from time to time.
                let at = (step + repeat as usize) % SETTINGS.len();
                let (name, policy) = SETTINGS[at];
                eprintln!("isonomia-bench: repeat {} of {repeats}, {}, {name}", repeat + 1, program.name);
                server.set_policy(policy)?;
                let one = || bench.time(&server, program, name != ALONE);
                times[at] = harness.undisturbed(one).with_context(|| format!("{}, {name}", program.name))?;
            }
            for ((name, _), time) in SETTINGS.iter().zip(times) {
                let row = Row::new(program.name, name, "s", vec![time]);
                let row = if *name == ALONE { row } else { row.beside(&[times[0]]) };
                let must = (*name == FAIR).then(|| Must::ratio_at_most(1.0 + slowdown_max()));
                keep(rows, Row { must, ..row });
            }
        }
    }
    Ok(())
}

/// The most that one node in the background may slow a program down that does nothing but I/O (ThemisIO §5.5).
fn slowdown_max() -> f64 {
    1.0 / f64::from(1 + NODES)
}

fn identity(job: &str, nodes: u32) -> Identity {
    Identity { job: job.into(), user: job.into(), group: "bench".into(), nodes }
}

struct Bench<'a> {
    harness: &'a Harness,
    inputs: &'a Path,
    /// What programs say.
    output: &'a Path,
}

impl Bench<'_> {
    /// Seconds that a program takes, from its start to its end, with others writing or alone.
    fn time(&self, server: &ServerProcess, program: &Program, is_beside: bool) -> Result<f64> {
        let served = |script: &str| {
            let identity = identity("program", NODES);
            let mut command = preloaded(&self.harness.programs, server.endpoints(), &identity, "bash");
            command.args(["-c", script]);
            self.succeed(command)
        };
        let dir = format!("{PREFIX}/{DIRECTORY}/work");
        served(&format!("rm -rf {dir} && mkdir {dir} && cd {dir}\n{}", program.prepare))?;
        let _background = if is_beside { Some(self.background(server)?) } else { None };
        let begin_ns = now_ns();
        served(&format!("cd {dir} && {}", program.run))?;
        Ok((now_ns() - begin_ns) as f64 / 1e9)
    }

    fn is_here(&self, program: &Program) -> Result<bool> {
        let mut command = Command::new("bash");
        command.args(["-c", program.needs]);
        Ok(self.end(command)?.success())
    }

    fn succeed(&self, command: Command) -> Result<()> {
        let status = self.end(command)?;
        ensure!(status.success(), "it ended with {status}; what it said is in {}", self.output.display());
        Ok(())
    }

    /// Runs a program to its end.
    fn end(&self, mut command: Command) -> Result<ExitStatus> {
        let output = OpenOptions::new().create(true).append(true).open(self.output)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        command.env("INPUTS", self.inputs).env("MPI", MPI).env("PYTHON", PYTHON).envs(ENVIRONMENT);
        let mut child = start(&mut command, Signal::KILL)?;
        let deadline_ns = now_ns() + PROGRAM_NS_MAX;
        let ended = loop {
            if let Some(status) = child.try_wait()? {
                break Ok(status);
            }
            if let Err(error) = self.harness.check() {
                break Err(error);
            }
            if now_ns() > deadline_ns {
                break Err(anyhow!("it takes longer than {} s", PROGRAM_NS_MAX / 1_000_000_000));
            }
            std::thread::sleep(POLL);
        };
        if ended.is_err() {
            // It has a group of its own, in which all that it started is.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            child.wait()?;
        }
        ended
    }

    /// Processes that write until they are dropped.
    fn background(&self, server: &ServerProcess) -> Result<Crew> {
        let identity = identity("background", 1);
        let worker = |number| Way::Preload.worker(&self.harness.programs, server.endpoints(), &identity, number);
        let mut crew = Crew::start("the background", (0..BACKGROUND_PROCESSES).map(worker))?;
        let transfer = Transfer {
            direction: Direction::Write,
            order: Order::Sequential,
            block_bytes: BACKGROUND_BLOCK_BYTES,
            file_bytes: BACKGROUND_FILE_BYTES,
            file: FileState::Filled,
            log: Log::Totals,
        };
        let task = Task { operation: Operation::Transfer(transfer), duration_ns: 2 * PROGRAM_NS_MAX, delay_ns: 0 };
        crew.prepare(self.harness, &task)?;
        crew.go(start_ns())?;
        self.harness.nap(BACKGROUND_LEAD)?;
        Ok(crew)
    }
}

/// Times alone are 1.
fn plot(rows: &[Row], dir: &Path) -> Result<()> {
    let mut programs: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    programs.dedup();
    let beside = SETTINGS.iter().filter(|(name, _)| *name != ALONE);
    let series = beside.map(|(name, _)| {
        let of = |program: &&str| rows.iter().find(|row| row.name == *program && row.way == *name);
        let median = |program| of(program).and_then(|row| row.ratio_summary).map_or(0.0, |summary| summary.median);
        Series { label: (*name).to_owned(), heights: programs.iter().map(median).collect() }
    });
    let bars = Bars {
        caption: "Programs of 16 nodes beside one node that writes".to_owned(),
        y: "time, in times of that alone",
        series: series.collect(),
        groups: programs.iter().map(|program| (*program).to_owned()).collect(),
        reference: Some(1.0),
    };
    Ok(bars.save(&dir.join("programs.png"), &dir.join("programs.svg"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_one() {
        for (name, policy) in SETTINGS {
            let parsed: Result<isonomia_policy::PolicySpec, _> = policy.parse();
            assert!(parsed.is_ok(), "{name}: {parsed:?}");
        }
    }
}
