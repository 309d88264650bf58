//! Request level: closed-loop client processes, targets with devices, and a dispatcher for each target, as in a live
//! server.
//!
//! A process issues a request, waits until it is served, thinks, and issues the next one. A job's processes go
//! through the same phases, with or without a barrier at the end of each. What is not modelled: the network, and where in a
//! file a request falls.

mod channels;
mod decided;
mod engine;
mod events;
mod exchange;
mod load_dependence;
mod measure;
mod processors;
pub(crate) mod profiled;
mod ranks;

pub use engine::{Build, OBSERVED_EVERY, run, run_recorded, run_with};
pub use load_dependence::LoadDependence;
pub use measure::{GiftCoupons, JobOutcome, Latency, Outcome, TargetOutcome};
pub use processors::Processors;

use isonomia_policy::exchange::Rule;
use isonomia_policy::{Access, CostModel, Depth, DepthSpec, Draw, Operation, PolicySpec, QUEUED_MAX, Tuning};
use isonomia_units::{Bytes, JobInfo, Nanos, Rate};
use std::num::NonZeroU32;

/// The most client streams (processes times requests that each has outstanding) in one scenario: an arbiter can
/// queue them all.
pub const STREAMS_MAX: usize = QUEUED_MAX;
/// The most targets in one scenario.
pub const TARGETS_MAX: usize = 4096;
/// The most throughput samples in one scenario, over all jobs.
pub const SLICES_MAX: u64 = 1 << 24;

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Seed of think times, device jitter, and lotteries.
    pub seed: u64,
    /// When the run ends, if the jobs have not ended before.
    pub duration: Nanos,
    /// Length of the throughput samples.
    pub slice: Nanos,
    /// Shares, throughputs and latencies are of completions after this time …
    pub measure_from: Nanos,
    /// … up to this one.
    pub measure_to: Nanos,
    /// Servers tell each other their jobs at this interval (ThemisIO §3.1, λ), and under `coflow` how far the jobs'
    /// phases have come; `None`: each knows its own only.
    pub exchange: Option<Nanos>,
    /// What they make of it, but under `coflow`.
    pub exchange_rule: Rule,
    /// A controller decides for all targets, as in a live cluster: how often, unless the policy says so. Without, targets under such a
    /// policy share by its tree, and those under `coflow` have an order each, or that of the exchange.
    pub decide: Option<Nanos>,
    /// A fair clock runs beside every arbiter, and tells how many I/O phases end later than in it.
    pub fair_clock: bool,
    /// What each server has of processors; `None`: requests take no time of any.
    pub processors: Option<Processors>,
    /// Names of the servers.
    pub servers: Vec<String>,
    /// At most [`TARGETS_MAX`].
    pub targets: Vec<Target>,
    /// With at most [`STREAMS_MAX`] streams together.
    pub jobs: Vec<Job>,
}

/// A target: a device, and the dispatcher in front of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Index of its server.
    pub server: usize,
    /// What serves.
    pub device: Device,
    /// What is fair.
    pub policy: PolicySpec,
    /// How the next request is drawn.
    pub draw: Draw,
    /// The times that govern sharing; `parallel` and `bandwidth` are taken from the device.
    pub tuning: Tuning,
}

impl Target {
    /// One that serves request after request at `bandwidth`, each up to the fraction `jitter` slower or faster, with
    /// virtual time and the times of sharing that a server has if it is told nothing.
    pub fn serial(name: String, server: usize, bandwidth: Rate, jitter: f64, policy: PolicySpec) -> Self {
        let device = Device::Lanes(Lanes { bandwidth, per_op: Nanos::ZERO, workers: 1, jitter });
        Self { name, server, device, policy, draw: Draw::VirtualTime, tuning: Tuning::default() }
    }
}

/// What serves the requests of a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Device {
    /// One whose speed the server was told: a capped target.
    Lanes(Lanes),
    /// One that serves in parallel, and of which the server knows nothing: a disk, flash, an array, a parallel file
    /// system.
    Channels(Channels),
}

/// A device of `workers` lanes. Each serves one request at a time, in the time for an operation and for its bytes
/// at an equal part of the bandwidth. The server gives it as many requests as it has lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lanes {
    /// Of all lanes together.
    pub bandwidth: Rate,
    /// Time of an operation without bytes.
    pub per_op: Nanos,
    /// Requests served at once, at least 1.
    pub workers: u32,
    /// A service takes up to this fraction more or less, 0 to 1 exclusive.
    pub jitter: f64,
}

/// A device whose latencies overlap. A request is on its way for a while, takes one of the channels, spends the latency of its
/// access and the time of its bytes there, and then they pass what all channels have in common, one request's after the other's. What
/// finds no channel free waits in the device, in the order it came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channels {
    /// Channels, or `None` for as many as there are requests.
    pub count: Option<NonZeroU32>,
    /// What requests take, by [`Access::index`].
    pub times: [ChannelTimes; 4],
    /// How much more of their latency they take where others are on channels.
    pub load_dependence: LoadDependence,
    /// Of what all channels have in common, or `None` if that is no limit.
    pub bandwidth: Option<Rate>,
    /// A latency is up to this fraction more or less, 0 to 1 exclusive.
    pub jitter: f64,
    /// How many requests the server gives it at once.
    pub depth: DepthSpec,
}

/// What requests of one access take on their way to a channel, and on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelTimes {
    /// From when the server gives it a request until the request can take a channel: what threads, a network, or the
    /// host's file system take besides the device.
    pub transit: Nanos,
    /// Time of an operation without bytes, more than 0.
    pub latency: Nanos,
    /// At which bytes pass, or `None` if that is no limit.
    pub bandwidth: Option<Rate>,
}

/// How many requests a server takes a device to serve at full speed that it knows nothing of: its workers. This is the
/// least that a live server has.
const WORKERS_OF_A_SERVER: u32 = 2;

impl Device {
    /// What a request is charged: of lanes the lane's time, of channels what a server charges that knows nothing of them,
    /// where it does not find out.
    pub fn cost_model(&self) -> CostModel {
        match self {
            Self::Lanes(lanes) => {
                let lane = lanes.bandwidth.bytes_per_s() / u64::from(lanes.workers.max(1));
                CostModel { per_op: lanes.per_op, bandwidth: Rate::new(lane.max(1)).unwrap_or(lanes.bandwidth) }
            }
            Self::Channels(_) => CostModel::nominal(),
        }
    }

    /// Whether the server has to find out what it takes.
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Channels(_))
    }

    /// [`Tuning::parallel`] of its target.
    fn parallel(&self) -> u32 {
        match self {
            Self::Lanes(lanes) => lanes.workers,
            Self::Channels(_) => WORKERS_OF_A_SERVER,
        }
    }

    /// How many requests its target has in service.
    fn depth(&self) -> Depth {
        match self {
            Self::Lanes(lanes) => Depth::Fixed(lanes.workers as usize),
            Self::Channels(channels) => Depth::new(channels.depth),
        }
    }
}

/// A job: processes that all do the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Who it is.
    pub info: JobInfo,
    /// Client processes, at least 1.
    pub processes: u32,
    /// Requests that a process has outstanding at once, at least 1.
    pub depth: u32,
    /// Indices of the targets that it uses, at least one.
    pub targets: Vec<usize>,
    /// How requests fall on the targets.
    pub layout: Layout,
    /// What each process does, in this order; at least one phase.
    pub phases: Vec<Phase>,
    /// How often the phases are gone through; `None` for ever.
    pub iterations: Option<u64>,
    /// When it starts.
    pub start: Nanos,
    /// When it issues its last request at the latest.
    pub stop: Nanos,
}

/// How a process's requests fall on the job's targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One after the other over all targets, each process beginning with the next one.
    #[default]
    Striped,
    /// Each process on one target.
    FilePerProcess,
}

/// What requests do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Bytes to the client.
    Read,
    /// Bytes from the client.
    #[default]
    Write,
    /// No bytes.
    Metadata,
}

impl Op {
    /// As rules of a policy know it.
    pub const fn operation(self) -> Operation {
        match self {
            Self::Read => Operation::Read,
            Self::Write => Operation::Write,
            Self::Metadata => Operation::Metadata,
        }
    }
}

/// One step of a process's life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Computes for this long first.
    pub compute: Nanos,
    /// The phase's first request is issued at this time after the job's start at the earliest.
    pub not_before: Nanos,
    /// What its requests do.
    pub op: Op,
    /// They begin where others ended.
    pub is_sequential: bool,
    /// Bytes of each.
    pub request: Bytes,
    /// How many requests each stream issues; `None` without end.
    pub requests: Option<u64>,
    /// From a completion to the next request.
    pub think: Nanos,
    /// Thinking takes up to this fraction more or less, 0 to 1.
    pub think_jitter: f64,
    /// No stream goes on before all streams of the job are here.
    pub barrier: bool,
}

impl Phase {
    /// `requests` of each stream, one after the other without a pause, as soon as it may begin; nobody waits for others.
    pub fn back_to_back(op: Op, request: Bytes, requests: u64) -> Self {
        Self {
            compute: Nanos::ZERO,
            not_before: Nanos::ZERO,
            op,
            is_sequential: false,
            request,
            requests: Some(requests),
            think: Nanos::ZERO,
            think_jitter: 0.0,
            barrier: false,
        }
    }

    /// What one of its requests does to a device.
    fn access(&self) -> Access {
        Access::new(self.op == Op::Write, self.is_sequential)
    }

    /// Bytes that one of its requests moves.
    fn bytes(&self) -> Bytes {
        if self.op == Op::Metadata { Bytes(0) } else { self.request }
    }
}

impl Scenario {
    /// Jobs on targets, measured from the beginning until `duration`, in one sample: each target decides for itself, no table of jobs is
    /// exchanged, no clock runs beside, and processors take no time. The seed is 1.
    pub fn whole(duration: Nanos, servers: Vec<String>, targets: Vec<Target>, jobs: Vec<Job>) -> Self {
        Self {
            seed: 1,
            duration,
            slice: duration,
            measure_from: Nanos::ZERO,
            measure_to: duration,
            exchange: None,
            exchange_rule: Rule::default(),
            decide: None,
            fair_clock: false,
            processors: None,
            servers,
            targets,
            jobs,
        }
    }

    /// The same with one job alone: what it could have.
    #[must_use]
    pub fn alone(&self, job: usize) -> Self {
        Self { jobs: vec![self.jobs[job].clone()], ..self.clone() }
    }
}
