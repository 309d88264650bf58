//! Every subcommand and option, once.

use crate::device::DeviceOptions;
use crate::storage::{Cache, Device};
use crate::way::Way;
use clap::{Args, Parser, Subcommand};
use isonomia_client::Address;
use isonomia_planning::Order;
use std::path::PathBuf;

/// More client processes than this say nothing more about one machine.
const CLIENTS_MAX: i64 = 64;

/// Measure Isonomia on this machine
///
/// Without a command: speed, fairness, and overhead.
#[derive(Debug, Parser)]
#[command(name = "isonomia-bench", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Speed(SpeedOptions),
    Fairness(FairnessOptions),
    Cluster(ClusterOptions),
    Overhead(OverheadOptions),
    Applications(ApplicationsOptions),
    Exchange(ExchangeOptions),
    Exclusive(ExclusiveOptions),
    Peers(PeersOptions),
    Placement(PlacementOptions),
    Programs(ProgramsOptions),
    Storage(StorageOptions),
    /// Mount an emulated device whose latencies overlap, until standard input ends
    Device(DeviceOptions),
    #[command(hide = true)]
    Calls(CallsOptions),
    #[command(hide = true)]
    Worker(WorkerOptions),
}

impl Arguments {
    /// What is to be done, in order.
    pub fn commands(self) -> Vec<Command> {
        let with_defaults = |name| Self::parse_from(["isonomia-bench", name]).command;
        match self.command {
            Some(command) => vec![command],
            None => ["speed", "fairness", "overhead"].into_iter().filter_map(with_defaults).collect(),
        }
    }
}

/// What every measurement takes.
#[derive(Args, Debug)]
pub struct CommonOptions {
    /// Directory for results; each run makes one below it, named after the time
    #[arg(long, default_value = "out/bench")]
    pub out: PathBuf,
    /// How many times each row is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Shorter phases: for a first look, not for conclusions
    #[arg(long)]
    pub quick: bool,
    /// Print the results as JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// The program isonomia [default: beside this program]
    #[arg(long, value_name = "PATH")]
    pub isonomia: Option<PathBuf>,
    /// Worker threads of the server [default: its own default]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,
}

/// Throughput, operations per second, and round trips, with tmpfs beside them
#[derive(Args, Debug)]
pub struct SpeedOptions {
    #[command(flatten)]
    pub common: CommonOptions,
    /// Numbers of client processes
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,2,4,8",
        value_parser = clap::value_parser!(u32).range(1..=CLIENTS_MAX))]
    pub clients: Vec<u32>,
    /// Only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// How the clients reach the server
    #[arg(long, value_name = "WAY,..", value_delimiter = ',', default_value = "preload,library")]
    pub ways: Vec<Way>,
}

/// Shares of jobs that compete for a capped target
#[derive(Args, Debug)]
pub struct FairnessOptions {
    #[command(flatten)]
    pub common: CommonOptions,
    /// How the clients reach the server
    #[arg(long, default_value = "preload")]
    pub way: Way,
    /// Only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
}

/// What several servers are as one file system: shares over four of them, what more of them give, and what a cluster costs
#[derive(Args, Debug)]
pub struct ClusterOptions {
    #[command(flatten)]
    pub common: CommonOptions,
    /// Only what is called like this: shares, scaling, speed
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Of speed, only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub rows: Option<String>,
}

/// What fio gets of storage that takes its time, through us and without us; takes root
#[derive(Args, Debug)]
pub struct StorageOptions {
    #[command(flatten)]
    pub common: CommonOptions,
    /// What to measure on
    #[arg(
        long = "device",
        value_name = "DEVICE,..",
        value_delimiter = ',',
        default_value = "parallel,serial,channels,flash,disk,glusterfs,glusterfs-delayed"
    )]
    pub devices: Vec<Device>,
    /// Directory for files on a disk, removed at the end [default: that for results]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Directory in which the server's metadata are, for the time of the measurement [default: beside the data]
    #[arg(long, value_name = "DIR")]
    pub metadata_dir: Option<PathBuf>,
    /// How the server's files go through the host's page cache, as `isonomia serve --cache` takes it [default: its own]
    #[arg(long, value_name = "HOW")]
    pub cache: Option<Cache>,
    /// Only contests whose name contains this: throughput, sharing, tail, hang
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Of throughput, only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub rows: Option<String>,
}

/// What the preload library adds to calls that do not concern it
#[derive(Args, Debug)]
pub struct OverheadOptions {
    #[command(flatten)]
    pub common: CommonOptions,
}

/// I/O phases of applications on one or two servers with eight capped targets, live and simulated: GIFT, its rivals, coflow and fair-finish
///
/// --repeat says how many seeds. A policy takes about a minute for each, all of them a quarter of an hour; with --runs only so
/// many are measured now, and --resume goes on:
///
///   isonomia-bench applications --repeat 5 --runs 10
///   isonomia-bench applications --repeat 5 --runs 10 --resume out/bench/20261123T020000Z
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct ApplicationsOptions {
    #[command(flatten)]
    pub common: CommonOptions,
    /// Only these settings, beside pofs
    #[arg(long, value_name = "NAME;..", value_delimiter = ';')]
    pub only: Vec<String>,
    /// Servers that the eight targets are divided among: 1 or 2
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=2))]
    pub servers: u16,
    /// Seconds that the phases of each application take alone [default: 40, with --quick 10]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u16).range(5..=3600))]
    pub length: Option<u16>,
    /// Measure at most so many runs, a policy in a seed each; 0 makes the table anew
    #[arg(long, value_name = "N")]
    pub runs: Option<u32>,
    /// Measure what is missing in this directory of an earlier run, and make its table
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
}

/// Two jobs on one capped target under fifo, the default policy, GIFT and token buckets (ThemisIO, Fig. 12)
#[derive(Args, Debug)]
pub struct PeersOptions {
    #[command(flatten)]
    pub common: CommonOptions,
}

/// How soon and how steadily jobs have their shares of two servers together, by how often these tell each other (ThemisIO §5.6)
#[derive(Args, Debug)]
#[command(after_help = "Example: isonomia-bench exchange --repeat 5 --intervals-ms 10,500")]
pub struct ExchangeOptions {
    #[command(flatten)]
    pub common: CommonOptions,
    /// Intervals at which servers tell each other of their jobs, in milliseconds
    #[arg(long, value_name = "MS,..", value_delimiter = ',', default_value = "10,50,200,500",
        value_parser = clap::value_parser!(u64).range(10..=10_000))]
    pub intervals_ms: Vec<u64>,
}

/// Applications that alternate on one capped target, live and computed, in each order of exclusive I/O phases
#[derive(Args, Debug)]
pub struct ExclusiveOptions {
    #[command(flatten)]
    pub common: CommonOptions,
    /// Only this order
    #[arg(long, value_name = "ORDER")]
    pub order: Option<Order>,
}

/// A job with a file for each process beside another job: each way to choose the targets of its files (TAPP-IO)
#[derive(Args, Debug)]
#[command(after_help = "Example: isonomia-bench placement --repeat 5")]
pub struct PlacementOptions {
    #[command(flatten)]
    pub common: CommonOptions,
}

/// How long real programs take beside a background job of one node, under several policies (ThemisIO §5.5)
#[derive(Args, Debug)]
#[command(
    after_help = "Example: isonomia-bench programs --repeat 5 --only LAMMPS\n\nPrograms that are not installed are left out \
    and named: Debian has them as lammps, openmpi-bin, python3-h5py-mpi, and gcc and make."
)]
pub struct ProgramsOptions {
    #[command(flatten)]
    pub common: CommonOptions,
    /// Only programs whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
}

/// One process that makes calls for `overhead`, told by its parent when
#[derive(Args, Debug)]
pub struct CallsOptions {
    /// The file to open and to read
    #[arg(long)]
    pub path: PathBuf,
}

/// One client process, told by its parent what to do
#[derive(Args, Debug)]
pub struct WorkerOptions {
    /// Its number among its siblings
    #[arg(long)]
    pub number: u32,
    /// Use plain files below this directory
    #[arg(long, required_unless_present = "server", conflicts_with = "server")]
    pub path: Option<PathBuf>,
    /// Use the client library on this server
    #[arg(long)]
    pub server: Option<Address>,
    #[arg(long)]
    pub key_file: Option<String>,
    #[arg(long)]
    pub job: Option<String>,
    #[arg(long)]
    pub user: Option<String>,
    #[arg(long)]
    pub group: Option<String>,
    #[arg(long)]
    pub nodes: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(arguments: &[&str]) -> String {
        Arguments::try_parse_from([&["isonomia-bench"], arguments].concat()).unwrap_err().to_string()
    }

    #[test]
    fn nonsense_is_refused_with_what_is_allowed() {
        assert!(error_of(&["speed", "--repeat", "0"]).contains("1..=100"));
        assert!(error_of(&["speed", "--clients", "2,0"]).contains("1..=64"));
        assert!(error_of(&["speed", "--ways", "nfs"]).contains("preload, library, preload-tcp, library-tcp, mount"));
        assert!(error_of(&["fairness", "--way", "tmpfs"]).contains("possible values"));
        assert!(error_of(&["fariness"]).contains("fairness"));
        assert!(error_of(&["worker", "--number", "0"]).contains("--path"));
    }

    #[test]
    fn without_a_command_everything_is_measured() {
        let commands = Arguments::try_parse_from(["b"]).unwrap().commands();
        assert!(matches!(commands[..], [Command::Speed(_), Command::Fairness(_), Command::Overhead(_)]));
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let parsed = Arguments::try_parse_from(["b", "speed", "--clients", "1,3", "--ways", "library"]).unwrap();
        let Some(Command::Speed(options)) = parsed.command else { unreachable!("speed was parsed") };
        assert_eq!(options.clients, [1, 3]);
        assert_eq!(options.ways, [Way::Library]);
    }
}
