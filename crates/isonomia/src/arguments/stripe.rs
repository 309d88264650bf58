//! Options of `isonomia stripe`.

use super::number::number;
use super::{ServerOptions, prefix};
use clap::{Args, Subcommand};
use isonomia_proto::fs::Layout;
use isonomia_proto::striping::Striping;
use isonomia_units::Placement;
use std::ffi::OsString;

/// See and say how files are striped over servers
///
/// A directory says it for the files that are made in it from then on, and directories that are made in it say the same.
/// Without, a file is on the server of its volume. What a directory or a file says stands in its attribute user.isonomia.layout.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia stripe set --count 4 --size 1MiB /isonomia/scratch
  isonomia stripe get /isonomia/scratch/checkpoint")]
pub struct StripeOptions {
    #[command(subcommand)]
    pub command: StripeCommand,
}

#[derive(Debug, Subcommand)]
pub enum StripeCommand {
    Get(StripeGetOptions),
    Set(StripeSetOptions),
}

/// Print how a file is striped, or files that are made in a directory
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia stripe get /isonomia/scratch
  isonomia stripe get --json /isonomia/scratch/checkpoint | jq .count
  isonomia stripe get /mnt/isonomia/scratch            through a mount")]
pub struct StripeGetOptions {
    /// File or directory: below the prefix, or on a mount
    #[arg(value_name = "PATH")]
    pub path: OsString,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub location: LocationOptions,
}

/// Say how files that are made in a directory are striped, or a file that is empty
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia stripe set --count 4 /isonomia/scratch
  isonomia stripe set --count 2 --size 4MiB --servers io01,io03 /isonomia/scratch/results
  isonomia stripe set --targets 16,32 /isonomia/scratch/pairs  on these, the first stripe on 16
  isonomia stripe set --count 1 /isonomia/scratch/small  on the server of the volume, as by default
  isonomia stripe set --count 8 --grow /isonomia/scratch/logs
  isonomia stripe set --place balanced /isonomia/scratch/checkpoints  on one target, where there is most room")]
pub struct StripeSetOptions {
    /// How many targets a file is on, each of another server as far as there are servers [default: 1]
    #[arg(long, value_name = "N", required_unless_present_any = ["how", "targets"], value_parser = number::<usize>(1..=Layout::TARGETS_MAX as u64))]
    pub count: Option<usize>,
    /// How these are chosen, where not as everywhere in the cluster: volume, hash, round-robin, random, balanced
    #[arg(long = "place", value_name = "HOW")]
    pub how: Option<Placement>,
    /// A file is on one target while it is small, then on four, on sixteen, and so on up to so many: for files of which nobody
    /// knows how large they get. No byte is moved
    #[arg(long, requires = "count")]
    pub grow: bool,
    /// Bytes on one target before the next takes over
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = stripe_size)]
    pub size: u64,
    /// Servers whose targets are used, by their names in the cluster file [default: all]
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub servers: Vec<String>,
    /// The very targets, by their numbers in the whole cluster, in the order of the stripes; `isonomia cluster check`
    /// prints the numbers
    #[arg(long, value_name = "N,N", value_delimiter = ',', conflicts_with_all = ["how", "grow", "servers"], value_parser = number::<u16>(0..=u64::from(u16::MAX)))]
    pub targets: Vec<u16>,
    /// Directory or empty file: below the prefix, or on a mount
    #[arg(value_name = "PATH")]
    pub path: OsString,
    #[command(flatten)]
    pub location: LocationOptions,
}

/// Where paths are.
#[derive(Args, Debug)]
pub struct LocationOptions {
    /// Paths below it are the server's, without a mount [default: /isonomia]
    #[arg(long, env = "ISONOMIA_PREFIX", hide_env_values = true, value_parser = prefix)]
    pub prefix: Option<String>,
    #[command(flatten)]
    pub server: ServerOptions,
}

fn stripe_size(text: &str) -> Result<u64, String> {
    Striping::size(text).map_err(|error| error.to_string())
}
