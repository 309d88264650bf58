//! `isonomia demo`: what the policies do to a small and a large job that compete for one device.
//!
//! Everything is real: a server process, the preload client, `dd` from coreutils. Only the device is emulated,
//! so that the jobs compete for the server and not for this machine's cores. One server runs throughout; the
//! policy is switched on it. All processes are gone at the end, however it ends.

mod figures;
mod output;
mod plot;
mod processes;

use crate::arguments::DemoOptions;
use crate::control::Control;
use anyhow::{Context, Result, bail, ensure};
use figures::{Figures, JobSample, Sample};
use indicatif::{ProgressBar, ProgressStyle};
use isonomia_policy::PolicySpec;
use isonomia_proto::control::Status;
use output::{Comparison, Scene};
use processes::{JobProcesses, ServerProcess};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The emulated device: slow enough that two cores have time left.
const BANDWIDTH: &str = "512MiB/s";
const PER_OP: &str = "10us";
const POLICIES: [&str; 3] = ["fifo", "job-fair", "size-fair"];
const SAMPLE_PERIOD: Duration = Duration::from_millis(100);
/// A job's first files are created, its programs loaded: left out of the figures.
const SETTLE_S: f64 = 0.5;
/// What preparing the files takes about, for the progress bar.
const PREPARATION: Duration = Duration::from_secs(2);
/// If preparing the files takes longer than this, something is wrong, or the machine is too busy for a demo.
const PREPARATION_MAX: Duration = Duration::from_secs(30);
/// How long each job runs alone.
const ALONE: Duration = Duration::from_secs(3);
/// The small job joins after this part of a scene: one sees how soon it has its share.
const JOIN_AFTER: f64 = 0.2;
/// Longest wait for processes to start or to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// A job of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DemoJob {
    name: &'static str,
    user: &'static str,
    nodes: u32,
    processes: u32,
}

impl DemoJob {
    /// Bytes of all its files together, with some to spare because its processes are not equally fast.
    fn files_bytes(&self) -> u64 {
        u64::from(self.processes) * (processes::FILE_MIB << 20) * 5 / 4
    }

    fn description(&self) -> String {
        let nodes = if self.nodes == 1 { "node" } else { "nodes" };
        let processes = if self.processes == 1 { "process" } else { "processes" };
        format!("{}: {} {nodes}, {} {processes}", self.name, self.nodes, self.processes)
    }
}

/// In the order of [`Sample::jobs`].
const JOBS: [DemoJob; 2] = [
    DemoJob { name: "small", user: "ada", nodes: 1, processes: 1 },
    DemoJob { name: "large", user: "bob", nodes: 4, processes: 4 },
];
const SMALL: usize = 0;
const LARGE: usize = 1;

pub fn demo(options: &DemoOptions) -> Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make the directory {}", options.out.display()))?;
    let scene = Duration::from_secs(options.seconds);
    let server = ServerProcess::start(&options.out, BANDWIDTH, PER_OP, PATIENCE)?;
    let mut stage = Stage {
        control: Control::connect_to(server.address())?,
        server,
        interrupted,
        progress: Progress::new(PREPARATION + ALONE * 2 + scene * POLICIES.len() as u32),
    };
    let started = Instant::now();
    stage.prepare()?;
    let alone = [stage.play_alone(SMALL)?, stage.play_alone(LARGE)?];
    let mut scenes = Vec::new();
    for policy in POLICIES {
        scenes.push(stage.play(policy, scene)?);
    }
    stage.progress.finish();
    stage.server.stop();
    let comparison = Comparison::new(alone, scenes, started.elapsed());
    let files = comparison.save(&options.out)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}\n\n{}", comparison.headline(), comparison.table())?;
    writeln!(out, "\nPlots and raw data:")?;
    for file in files {
        writeln!(out, "  {}", file.display())?;
    }
    Ok(())
}

/// The running server, and what is needed to let jobs run against it.
struct Stage {
    control: Control,
    server: ServerProcess,
    interrupted: Arc<AtomicBool>,
    progress: Progress,
}

impl Stage {
    /// Lets both jobs write until all files are there, for the first writing of a file takes memory from the
    /// kernel, and later ones do not.
    fn prepare(&mut self) -> Result<()> {
        self.progress.say("preparing the files".to_owned());
        let mut processes = vec![self.enter(LARGE)?, self.enter(SMALL)?];
        let start = Instant::now();
        loop {
            let samples = self.watch(SAMPLE_PERIOD, &mut processes)?;
            let has_all = |(job, data): (&DemoJob, &JobSample)| data.bytes_total >= job.files_bytes();
            if samples.last().is_some_and(|last| JOBS.iter().zip(&last.jobs).all(has_all)) {
                break;
            }
            ensure!(start.elapsed() < PREPARATION_MAX, "the jobs' files are not written after {PREPARATION_MAX:?}");
        }
        self.clear(processes)
    }

    /// One job alone: what it could have.
    fn play_alone(&mut self, job: usize) -> Result<Figures> {
        self.progress.say(format!("{} alone", JOBS[job].name));
        let mut processes = vec![self.enter(job)?];
        let samples = self.watch(ALONE, &mut processes)?;
        self.clear(processes)?;
        let from_s = samples.first().map_or(0.0, |first| first.time_s) + SETTLE_S;
        Ok(figures_from(&samples, from_s, &[job])?[job])
    }

    /// Both jobs under `policy`: the large one first, then the small one joins.
    fn play(&mut self, policy: &'static str, length: Duration) -> Result<Scene> {
        let spec: PolicySpec = policy.parse()?;
        self.control.set_policy(&spec, None, false)?;
        self.progress.say(format!("{policy}: small against large"));
        let alone = length.mul_f64(JOIN_AFTER);
        let mut processes = vec![self.enter(LARGE)?];
        let mut samples = self.watch(alone, &mut processes)?;
        processes.push(self.enter(SMALL)?);
        // The next `watch` begins with a sample as well. It would follow this one too soon to compute a rate between the two,
        // so this one is left out.
        let joined_s = samples.pop().map_or(0.0, |last| last.time_s);
        samples.extend(self.watch(length - alone, &mut processes)?);
        self.clear(processes)?;
        let figures = figures_from(&samples, joined_s + SETTLE_S, &[SMALL, LARGE])?;
        Ok(Scene { policy, figures, samples, joined_s })
    }

    fn enter(&self, job: usize) -> Result<JobProcesses> {
        JobProcesses::start(self.server.address(), &JOBS[job])
    }

    /// Looks at the server for `length`, ten times a second.
    fn watch(&mut self, length: Duration, processes: &mut [JobProcesses]) -> Result<Vec<Sample>> {
        let start = Instant::now();
        let mut samples = Vec::new();
        loop {
            samples.push(sample(&self.control.status()?));
            for job in &mut *processes {
                job.check()?;
            }
            ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
            if start.elapsed() >= length {
                return Ok(samples);
            }
            let next = SAMPLE_PERIOD * samples.len() as u32;
            std::thread::sleep(next.saturating_sub(start.elapsed()));
            self.progress.advance(SAMPLE_PERIOD);
        }
    }

    /// Ends the jobs, and waits until the server has seen them go.
    fn clear(&mut self, processes: Vec<JobProcesses>) -> Result<()> {
        drop(processes);
        let start = Instant::now();
        while self.control.status()?.jobs.iter().any(|job| job.clients > 0 || job.queued > 0) {
            if start.elapsed() > PATIENCE {
                bail!("the server still counts clients of jobs that ended {PATIENCE:?} ago");
            }
            ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// The figures from `from_s` on; an error if one of the `active` jobs stood still.
fn figures_from(samples: &[Sample], from_s: f64, active: &[usize]) -> Result<[Figures; 2]> {
    let figures = figures::figures(samples, from_s).context("the server's clock stands still")?;
    for job in active {
        ensure!(figures[*job].throughput_bytes_per_s > 0.0, "job {} stood still", JOBS[*job].name);
    }
    Ok(figures)
}

/// What the status says of the two jobs; zeros of one that has not been there yet.
fn sample(status: &Status) -> Sample {
    let jobs = JOBS.map(|job| {
        let found = status.jobs.iter().find(|other| other.job == job.name);
        found.map_or(JobSample::default(), |job| JobSample {
            share_due: job.share_due,
            bytes_total: job.read_bytes_total + job.written_bytes_total,
            service_ns_total: job.service_ns_total,
        })
    });
    Sample { time_s: status.uptime_s, jobs }
}

/// A bar on a terminal, a line for each scene elsewhere; both on standard error.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(length: Duration) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {eta:>4} left  {msg}");
            ProgressBar::new(length.as_millis() as u64).with_style(style.unwrap_or(ProgressStyle::default_bar()))
        });
        Self(bar)
    }

    fn say(&self, what: String) {
        match &self.0 {
            Some(bar) => bar.set_message(what),
            None => eprintln!("{what}"),
        }
    }

    fn advance(&self, by: Duration) {
        if let Some(bar) = &self.0 {
            bar.inc(by.as_millis() as u64);
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
