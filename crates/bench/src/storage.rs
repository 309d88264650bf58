//! `isonomia-bench storage`: what programs get of storage that takes its time, through us and without us.
//!
//! The programs are fio's, with plain calls. Both sets of files lie side by side in one file system, and the two take
//! turns, repeat by repeat, in an order that alternates. Before each turn everything written is brought to stable storage
//! and the kernel forgets its pages, so that what is read comes from the device, and no block is read twice within a turn.
//!
//! * [`place`]: an emulated device, a disk of this machine, a GlusterFS.
//! * [`throughput`]: one job, through us and without us.
//! * [`bare`]: calls through somebody who does nothing but hand them over.
//! * [`sharing`]: two jobs under `job-fair`, and one alone under it and under `fifo`.
//! * [`calibration`]: what requests take of processors.
//! * [`prediction`]: what the simulator says of that.
//! * [`tail`]: small reads beside a bulk writer.
//! * [`hang`]: two targets, one of which answers nothing for a while.

mod bare;
mod calibration;
mod fio;
mod hang;
mod place;
mod pool;
mod prediction;
mod sharing;
mod tail;
mod throughput;

use crate::arguments::{CommonOptions, StorageOptions};
use crate::harness::Harness;
use crate::host::ProcessorTimes;
use crate::report::{Must, Report, Row};
use crate::server::{ServerOptions, ServerProcess};
use crate::way::Identity;
use anyhow::{Context, Result, ensure};
use fio::{Done, Fio, Load};
use isonomia_sim::contest::Unpredicted;
use isonomia_units::{Bytes, Nanos};
use place::{Emulated, Place};
use pool::{Cached, Pool};
use prediction::Prediction;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
const WITHOUT_US: &str = "without us";
const THROUGH_US: &str = "through us";
const HANDED_OVER: &str = "handed over";
/// Where the server has its files, or those of its target.
const SERVED: &str = "served";
/// How much longer than its time a program may take: to start, and to bring what it wrote to stable storage.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a device is measured of which contests are simulated.
const PROFILE_S: u64 = 40;
/// See [`PROFILE_S`].
const PROFILE_S_QUICK: u64 = 5;

/// How the server's files go through the page cache of its host: what `isonomia serve --cache` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// Written to the device all the time
    Auto,
    /// At the host's own pace
    Always,
    /// Past it
    Never,
}

impl Cache {
    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// What is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// Emulated: 5 ms, as many requests at once as come
    Parallel,
    /// Emulated: 1 ms and 200 MiB/s, one request at a time
    Serial,
    /// Emulated: 2 ms and 100 MiB/s each, four at a time
    Channels,
    /// Emulated: 80 us, 64 requests at a time
    Flash,
    /// The disk that `--dir` is on
    Disk,
    /// Two replicated bricks on that disk
    Glusterfs,
    /// The same, with bricks that take 5 ms longer for each read and write
    GlusterfsDelayed,
}

impl Device {
    fn name(self) -> &'static str {
        match self {
            Self::Parallel => "5 ms, any number at once",
            Self::Serial => "1 ms, one at a time",
            Self::Channels => "2 ms, four at a time",
            Self::Flash => "80 us, 64 at a time",
            Self::Disk => "disk",
            Self::Glusterfs => "GlusterFS",
            Self::GlusterfsDelayed => "GlusterFS, 5 ms",
        }
    }

    /// What a latency class is to reach beside a bulk writer: some times what a small read takes alone.
    fn latency_target(self) -> Nanos {
        match self {
            Self::Parallel | Self::GlusterfsDelayed => Nanos::from_millis(20),
            Self::Serial | Self::Channels => Nanos::from_millis(5),
            Self::Flash | Self::Disk | Self::Glusterfs => Nanos::from_millis(2),
        }
    }

    /// How it is emulated, if it is. The size is taken of the memory as far as it is written.
    fn emulated(self) -> Option<Emulated> {
        let size = "6GiB";
        match self {
            Self::Parallel => Some(Emulated { latency: "5ms", channels: 0, bandwidth: None, size }),
            Self::Serial => Some(Emulated { latency: "1ms", channels: 1, bandwidth: Some("200MiB/s"), size }),
            Self::Channels => Some(Emulated { latency: "2ms", channels: 4, bandwidth: Some("100MiB/s"), size }),
            Self::Flash => Some(Emulated { latency: "80us", channels: 64, bandwidth: None, size }),
            Self::Disk | Self::Glusterfs | Self::GlusterfsDelayed => None,
        }
    }
}

#[derive(Debug, Serialize)]
struct Configuration {
    repeats: u32,
    devices: Vec<Device>,
    /// Of one turn.
    turn_ns: u64,
    /// How long a device hangs.
    hang_ns: u64,
    files: usize,
    file_bytes: u64,
    server_workers: Option<u32>,
    /// `--cache` of the server; its own default if absent.
    cache: Option<Cache>,
    /// Where the server's metadata are, if not beside its data.
    metadata_dir: Option<PathBuf>,
    only: Option<String>,
    /// Of the throughput.
    rows: Option<String>,
    is_quick: bool,
}

/// A figure of each repeat, and that of the baseline beside it.
#[derive(Clone, Debug)]
struct Figure {
    row: Row,
    values: Vec<f64>,
    baseline: Vec<f64>,
}

/// Figures in the order in which they first came, and of what is not simulated why, with its rows.
#[derive(Debug, Default)]
struct Figures {
    figures: Vec<Figure>,
    not_simulated: Vec<(String, Vec<String>)>,
}

impl Figures {
    /// Adds one repeat to the row that is called so.
    fn keep(
        &mut self,
        name: String,
        way: &str,
        unit: &'static str,
        value: f64,
        beside: Option<f64>,
        must: Option<Must>,
    ) {
        let figures = &mut self.figures;
        let at = figures.iter().position(|one| one.row.name == name && one.row.way == way).unwrap_or_else(|| {
            let row = Row { must, ..Row::new(name, way, unit, Vec::new()) };
            figures.push(Figure { row, values: Vec::new(), baseline: Vec::new() });
            figures.len() - 1
        });
        figures[at].values.push(value);
        figures[at].baseline.extend(beside);
    }

    /// Says of a row why it is not simulated; once, however many repeats there are.
    fn pass_over(&mut self, row: String, reason: String) {
        let at = self.not_simulated.iter().position(|(known, _)| *known == reason).unwrap_or_else(|| {
            self.not_simulated.push((reason, Vec::new()));
            self.not_simulated.len() - 1
        });
        let rows = &mut self.not_simulated[at].1;
        if !rows.contains(&row) {
            rows.push(row);
        }
    }

    fn remarks(&self) -> Vec<String> {
        let remark =
            |(reason, rows): &(String, Vec<String>)| format!("{}: not simulated, as {reason}", rows.join("; "));
        self.not_simulated.iter().map(remark).collect()
    }

    fn rows(self) -> Vec<Row> {
        let finish = |one: Figure| {
            let row = Row { must: one.row.must, ..Row::new(one.row.name, one.row.way, one.row.unit, one.values) };
            if one.baseline.is_empty() { row } else { row.beside(&one.baseline) }
        };
        self.figures.into_iter().map(finish).collect()
    }
}

/// What contests on one device stand on.
struct Bench<'a> {
    session: &'a Harness,
    configuration: &'a Configuration,
    device: Device,
    // The server ends before the place does.
    server: ServerProcess,
    pool: Pool,
    place: Place,
    /// What is simulated of contests.
    prediction: Prediction,
    figures: &'a mut Figures,
}

type Experiment = fn(&mut Bench, u32) -> Result<()>;

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &StorageOptions) -> Result<()> {
    let common = &options.common;
    fio::check()?;
    let session = Harness::new(common.isonomia.as_deref())?;
    let (files, file_bytes) = if common.quick { (16, 4 * MIB) } else { (128, 16 * MIB) };
    let configuration = Configuration {
        repeats: common.repeat,
        devices: options.devices.clone(),
        turn_ns: if common.quick { 500_000_000 } else { 4_000_000_000 },
        hang_ns: if common.quick { 2_000_000_000 } else { 30_000_000_000 },
        files,
        file_bytes,
        server_workers: common.workers,
        cache: options.cache,
        metadata_dir: options.metadata_dir.clone(),
        only: options.only.clone(),
        rows: options.rows.clone(),
        is_quick: common.quick,
    };
    let names = [throughput::NAME, sharing::NAME, tail::NAME, hang::NAME];
    ensure!(
        names.iter().any(|name| configuration.wants(name)),
        "no contest is called like that; there are: {}",
        names.join(", ")
    );
    if let Some(rows) = &configuration.rows {
        ensure!(configuration.wants(throughput::NAME), "--rows is of throughput, which --only leaves out");
        let is_any = configuration.devices.iter().any(|&device| throughput::has_row(&configuration, device, rows));
        ensure!(is_any, "no row of throughput on these devices has {rows:?} in its name");
    }
    let mut report = Report::new("storage", common, configuration)?;
    let below = options.dir.clone().unwrap_or_else(|| report.dir().to_owned());
    let mut figures = Figures::default();
    let done = measure(&session, &report.configuration, common, &below, report.dir(), &mut figures);
    report.error = done.as_ref().err().map(|error| format!("{error:#}"));
    report.remarks = figures.remarks();
    report.rows = figures.rows();
    report.publish(common.json)?;
    done
}

fn measure(
    session: &Harness,
    configuration: &Configuration,
    common: &CommonOptions,
    below: &Path,
    logs: &Path,
    figures: &mut Figures,
) -> Result<()> {
    for &device in &configuration.devices {
        let experiments: Vec<_> =
            experiments(device).into_iter().filter(|(name, _)| configuration.wants(name)).collect();
        if experiments.is_empty() {
            continue;
        }
        let mut bench = Bench::new(session, configuration, device, common, below, logs, figures)?;
        for repeat in 1..=configuration.repeats {
            for (name, experiment) in &experiments {
                eprintln!("isonomia-bench: repeat {repeat} of {}, {}: {name}", configuration.repeats, device.name());
                let before = ProcessorTimes::now();
                experiment(&mut bench, repeat).with_context(|| format!("{}: {name}", device.name()))?;
                bench.keep_stolen(name, before);
            }
        }
    }
    if configuration.devices.contains(&Device::Parallel) && configuration.wants(hang::NAME) {
        hang::run(session, configuration, logs, figures).context(hang::NAME)?;
    }
    Ok(())
}

fn experiments(device: Device) -> Vec<(&'static str, Experiment)> {
    let shared: [(&str, Experiment); 2] = [(sharing::NAME, sharing::run), (tail::NAME, tail::run)];
    let throughput: (&str, Experiment) = (throughput::NAME, throughput::run);
    match device {
        // One request at a time: what there is to divide is told by the shares.
        Device::Serial | Device::Channels => shared.to_vec(),
        _ => [throughput].into_iter().chain(shared).collect(),
    }
}

impl Configuration {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// The time of one turn.
    fn turn(&self) -> Nanos {
        Nanos(self.turn_ns)
    }
}

/// Who jobs say they are.
fn identity(job: &str) -> Identity {
    Identity { job: job.to_owned(), user: job.to_owned(), group: "bench".to_owned(), nodes: 1 }
}

impl<'a> Bench<'a> {
    fn new(
        session: &'a Harness,
        configuration: &'a Configuration,
        device: Device,
        common: &CommonOptions,
        below: &Path,
        logs: &Path,
        figures: &'a mut Figures,
    ) -> Result<Self> {
        let place = match (device.emulated(), device) {
            (Some(emulated), _) => Place::emulated(session, &emulated)?,
            (None, Device::Glusterfs) => Place::gluster(session, below, logs, Nanos::ZERO)?,
            (None, Device::GlusterfsDelayed) => Place::gluster(session, below, logs, Nanos::from_millis(5))?,
            (None, _) => Place::disk(below)?,
        };
        let word = serde_json::to_value(device)?;
        let word = word.as_str().unwrap_or_default();
        let seconds = if configuration.is_quick { PROFILE_S_QUICK } else { PROFILE_S };
        eprintln!("isonomia-bench: measuring {} for {seconds} s", device.name());
        let profile = logs.join(format!("device-profile-{word}.toml"));
        let prediction = Prediction::new(session, place.dir(), seconds, profile, Bytes(configuration.file_bytes))?;
        let pool = Pool::new(&place, configuration.files, configuration.file_bytes);
        let served = place.dir().join(SERVED);
        let (files, targets) = match &configuration.metadata_dir {
            Some(metadata) => (metadata.join(format!("isonomia-bench-{}", std::process::id())), vec![served]),
            None => (served, Vec::new()),
        };
        let options = ServerOptions {
            workers: common.workers,
            cache: configuration.cache.map(Cache::word),
            files: Some(files),
            targets,
            ..ServerOptions::default()
        };
        let name = format!("server-{word}");
        let mut server = ServerProcess::start(session, &name, &options, &logs.join(format!("{name}.log")))?;
        server.set_policy("job-fair")?;
        eprintln!("isonomia-bench: filling {} files on {}, twice", pool.files, device.name());
        pool.fill_plain(session)?;
        pool.fill_served(session, &server)?;
        let mut bench = Self { session, configuration, device, server, pool, place, prediction, figures };
        calibration::run(&mut bench)?;
        Ok(bench)
    }

    /// A row's name on this device.
    fn row(&self, what: &str) -> String {
        format!("{}: {what}", self.device.name())
    }

    fn keep(&mut self, what: &str, way: &str, unit: &'static str, value: f64, beside: Option<f64>, must: Option<Must>) {
        let name = self.row(what);
        self.figures.keep(name, way, unit, value, beside, must);
    }

    /// A contest on this device is not simulated.
    fn pass_over(&mut self, what: &str, reason: &Unpredicted) {
        let row = self.row(what);
        self.figures.pass_over(row, reason.to_string());
    }

    fn keep_stolen(&mut self, name: &str, before: ProcessorTimes) {
        let stolen = 100.0 * ProcessorTimes::now().stolen_since(before);
        self.keep(&format!("{name}: processor time taken by the host"), "", "%", stolen, None, None);
    }

    /// Everything is on stable storage, and nothing of it in the kernel's memory.
    fn forget(&self) -> Result<()> {
        pool::forget(self.place.cached())
    }

    /// The files of the server, of which the kernel is to forget again and again what was read.
    fn cached(&self) -> Result<Cached> {
        let dirs: Vec<_> = self.place.cached().iter().map(|dir| dir.join(SERVED)).collect();
        Cached::open(&dirs)
    }

    /// Starts a load on the files `from..` of the pool.
    fn start(&self, what: &str, load: &Load, job: Option<&str>, from: usize) -> Result<Fio> {
        let job = job.map(|job| (&self.server, job));
        Fio::start(self.session, what, load, job, &self.pool, &self.pool.names()[from..])
    }

    /// What a load does alone.
    fn alone(&self, load: &Load, job: Option<&str>) -> Result<Done> {
        self.session.undisturbed(|| {
            self.forget()?;
            self.start("alone", load, job, 0)?.finish(self.session, self.patience())
        })
    }

    /// What a load of `job` does alone with what is in memory.
    fn again(&self, load: &Load, job: &str) -> Result<Done> {
        self.session.undisturbed(|| self.start("again", load, Some(job), 0)?.finish(self.session, self.patience()))
    }

    fn patience(&self) -> Duration {
        Duration::from_nanos(self.configuration.turn_ns) + PATIENCE
    }
}

/// Directories that a server on two devices has.
fn targets(places: [&Place; 2]) -> Vec<PathBuf> {
    places.map(|place| place.dir().join("target")).to_vec()
}
