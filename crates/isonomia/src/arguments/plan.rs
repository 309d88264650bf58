//! Options of `isonomia plan`.

use super::number::{number, number_from};
use clap::{ArgGroup, Args, Subcommand};
use isonomia_planning::{Order, Sensibility};
use isonomia_whatif::plan::parse_sensibility;
use std::path::PathBuf;

/// Try I/O schedules and packs of jobs on paper, before any of them runs
///
/// The I/O phases of jobs that share an I/O node exclude each other: one job does its whole phase, then the next.
/// `schedule` tells what each order of phases does to given applications, `pack` which jobs should run together.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia plan schedule --apps apps.csv --policy stretch
  isonomia plan pack --jobs jobs.csv --nodes 2048 --bandwidth 1 --sensibility 1")]
pub struct PlanOptions {
    #[command(subcommand)]
    pub command: PlanCommand,
}

#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    Schedule(ScheduleOptions),
    Pack(PackOptions),
}

/// Schedule applications that compute and do I/O alternately on one exclusive I/O node
///
/// The table has a first line with id,compute_s,io_s,iterations and, if you like, release_s: the length of one
/// compute phase and of one I/O phase without company, and how often they follow each other. Applications begin
/// with compute. Ties go to the lowest id.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia plan schedule --apps apps.csv --policy fifo
  isonomia plan schedule --apps apps.csv --policy stretch --json | jq .max_stretch")]
pub struct ScheduleOptions {
    /// Table of applications (CSV)
    #[arg(long, value_name = "FILE")]
    pub apps: PathBuf,
    /// Whose I/O phase goes next: fifo, lowest-id, longest-io, shortest-io, shortest-remaining,
    /// longest-remaining, bandwidth, stretch
    #[arg(long, value_name = "ORDER")]
    pub policy: Order,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Put jobs into packs that run together, and the packs on I/O nodes
///
/// The table has a first line with id,nodes,iterations,compute_s,volume: compute nodes, and what one iteration
/// computes and moves, the volume in the unit whose rate --bandwidth gives. A pack fits the compute nodes of one
/// I/O node, and its I/O fits S times its length; then packs are assigned longest first.
///
/// A log in the Standard Workload Format (--swf) does not tell of I/O: each job's run time is cut into
/// --iterations, of which the last --io-fraction is I/O at full bandwidth.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("source").required(true).args(["jobs", "swf"])))]
#[command(after_help = "\
Examples:
  isonomia plan pack --jobs jobs.csv --nodes 2048 --bandwidth 1 --io-nodes 3 --sensibility 1
  isonomia plan pack --jobs jobs.csv --nodes 512 --bandwidth 25e9 --sensibility alpha --json
  isonomia plan pack --swf log.swf --nodes 128 --processors-per-node 32 --io-fraction 0.2")]
pub struct PackOptions {
    /// Table of jobs (CSV)
    #[arg(long, value_name = "FILE", requires = "bandwidth")]
    pub jobs: Option<PathBuf>,
    /// Log of jobs in the Standard Workload Format
    #[arg(long, value_name = "FILE")]
    pub swf: Option<PathBuf>,
    /// Compute nodes of each I/O node
    #[arg(long, value_name = "N", value_parser = number_from(1))]
    pub nodes: u32,
    /// Bandwidth of an I/O node, in the unit of the volumes, a second
    #[arg(long, value_name = "RATE", value_parser = positive)]
    pub bandwidth: Option<f64>,
    /// I/O nodes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u32>(1..=65536))]
    pub io_nodes: u32,
    /// I/O that a pack may have, in lengths of the pack: 1, alpha (the jobs' own I/O load), inf (First-Fit), or
    /// another number greater than 0
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_sensibility)]
    pub sensibility: Sensibility,
    /// Whose I/O phase goes next inside a pack, as in `isonomia plan schedule`
    #[arg(long, value_name = "ORDER", default_value = "fifo")]
    pub policy: Order,
    /// With --swf: processors of a compute node
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "jobs", value_parser = number_from(1))]
    pub processors_per_node: u32,
    /// With --swf: iterations of compute and I/O in every job
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "jobs", value_parser = number::<u32>(1..=1_000_000))]
    pub iterations: u32,
    /// With --swf: fraction of a job's run time that is I/O, 0 to 1
    #[arg(long, value_name = "F", default_value_t = 0.1, conflicts_with = "jobs", value_parser = fraction)]
    pub io_fraction: f64,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|number| number.is_finite() && *number > 0.0).ok_or_else(|| "allowed: a number greater than 0".into())
}

fn fraction(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|number| (0.0..=1.0).contains(number)).ok_or_else(|| "allowed: a number from 0 to 1".into())
}
