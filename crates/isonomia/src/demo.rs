//! `isonomia demo`: what the policies do to a small and a large job that compete for one device.
//!
//! Everything is real: server processes, the preload client, `dd` from coreutils. Only devices are emulated,
//! so that the jobs compete for the servers and not for this machine's cores. The servers run throughout; the
//! policy is switched on them. All processes are gone at the end, however it ends.
//!
//! Several servers have together the bandwidth that one has alone, and every file is striped over all of them, so the
//! table is the same.

mod figures;
mod output;
mod plot;
mod processes;

use crate::arguments::DemoOptions;
use crate::control::Control;
use crate::whole;
use anyhow::{Context, Result, ensure};
use figures::{Figures, JobSample, Sample};
use indicatif::{ProgressBar, ProgressStyle};
use isonomia_policy::PolicySpec;
use isonomia_proto::control::Status;
use isonomia_proto::fs::Layout;
use output::{Comparison, Scene};
use processes::{JobProcesses, ServerProcesses};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// All emulated devices together: slow enough that two cores have time left.
const BANDWIDTH_KIB_PER_S: u64 = 512 << 10;
/// What a job's process writes at a time.
const REQUEST_BYTES: u64 = 1 << 20;
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

/// The servers of the demo, each with an emulated device.
#[derive(Clone, Copy, Debug)]
pub struct Servers(u16);

impl Servers {
    fn count(self) -> u16 {
        self.0
    }

    fn are_several(self) -> bool {
        self.0 > 1
    }

    /// Of the device of each.
    fn bandwidth(self) -> String {
        match BANDWIDTH_KIB_PER_S / u64::from(self.0) {
            kib if kib.is_multiple_of(1 << 10) => format!("{}MiB/s", kib >> 10),
            kib => format!("{kib}KiB/s"),
        }
    }

    /// Such that every request goes to all of them.
    fn stripe_bytes(self) -> u64 {
        let part = REQUEST_BYTES / u64::from(self.0);
        part - part % Layout::STRIPE_ALIGN_BYTES
    }
}

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
    let servers = Servers(options.servers);
    let processes = ServerProcesses::start(&options.out, servers, PER_OP, PATIENCE)?;
    let controls = processes.addresses().iter().map(Control::connect_to).collect::<Result<_>>()?;
    let mut stage = Stage {
        controls,
        servers: processes,
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
    stage.servers.stop();
    let comparison = Comparison::new(servers, alone, scenes, started.elapsed());
    let files = comparison.save(&options.out)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}\n\n{}", comparison.headline(), comparison.table())?;
    writeln!(out, "\nPlots and raw data:")?;
    for file in files {
        writeln!(out, "  {}", file.display())?;
    }
    Ok(())
}

/// The running servers, and what is needed to let jobs run against them.
struct Stage {
    /// Of each server.
    controls: Vec<Control>,
    servers: ServerProcesses,
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
        self.set_policy(policy)?;
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
        self.servers.enter(&JOBS[job])
    }

    /// Sets the policy of all servers, and waits until all have it.
    fn set_policy(&mut self, policy: &str) -> Result<()> {
        let spec: PolicySpec = policy.parse()?;
        let set = self.controls[0].set_policy(&spec, None, false, None)?.policy;
        self.until("not all servers have the policy", |status| status.policy == set)
    }

    /// Waits until `is_so` of every server.
    fn until(&mut self, otherwise: &str, is_so: impl Fn(&Status) -> bool) -> Result<()> {
        let start = Instant::now();
        while !self.statuses()?.iter().all(&is_so) {
            ensure!(start.elapsed() < PATIENCE, "{otherwise} after {PATIENCE:?}");
            ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn statuses(&mut self) -> Result<Vec<Status>> {
        self.controls.iter_mut().map(Control::status).collect()
    }

    /// Looks at the servers for `length`, ten times a second.
    fn watch(&mut self, length: Duration, processes: &mut [JobProcesses]) -> Result<Vec<Sample>> {
        let start = Instant::now();
        let mut samples = Vec::new();
        loop {
            samples.push(sample(&self.statuses()?));
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

    /// Ends the jobs, and waits until the servers have seen them go.
    fn clear(&mut self, processes: Vec<JobProcesses>) -> Result<()> {
        drop(processes);
        // Servers of a cluster are clients of each other.
        let ours = |status: &Status| JOBS.map(|ours| status.jobs.iter().find(|job| job.job == ours.name).cloned());
        let are_gone = |status: &Status| ours(status).iter().flatten().all(|job| job.clients == 0 && job.queued == 0);
        self.until("the server still counts clients of jobs that ended", are_gone)
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

/// What servers say of the two jobs together; zeros of one that has not been there yet. The time is that of the first server.
fn sample(statuses: &[Status]) -> Sample {
    let known = whole::jobs(&statuses.iter().collect::<Vec<_>>());
    let jobs = JOBS.map(|job| {
        let found = known.iter().find(|other| other.job == job.name);
        found.map_or(JobSample::default(), |job| JobSample {
            share_due: job.share_due,
            bytes_total: job.read_bytes_total + job.written_bytes_total,
            service_ns_total: job.service_ns_total,
        })
    });
    Sample { time_s: statuses.first().map_or(0.0, |status| status.uptime_s), jobs }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_share_the_bandwidth_and_every_request() {
        let of = |count| (Servers(count).bandwidth(), Servers(count).stripe_bytes());
        assert_eq!(of(1), ("512MiB/s".to_owned(), 1 << 20));
        assert_eq!(of(4), ("128MiB/s".to_owned(), 256 << 10));
        assert_eq!(of(3), ("174762KiB/s".to_owned(), 348_160));
        assert_eq!(of(16), ("32MiB/s".to_owned(), 64 << 10));
    }
}
