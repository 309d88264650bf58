//! Options of `isonomia fsck`.

use super::WholeOptions;
use clap::Args;
use std::path::PathBuf;

/// Check the directory of a server that is stopped, and repair what can be; or a cluster that runs
///
/// With a directory: says on standard output what is not as it must be, one finding a line, and what --repair does about it.
/// Nothing is changed without --repair, and a repair removes nothing that could be wanted: what no name leads to gets one in
/// /lost+found, objects that belong to no file are moved to lost+found of their target's directory. Identity files and
/// keys that are lost are made anew from what is left; a database that cannot be read is not repaired. The directory of a server
/// of a cluster is checked in the same way, while the other servers run.
///
/// Without a directory all servers of a running cluster look at the objects that they have of striped files: those of no file are removed, as
/// they are some minutes or hours later without it, and those that cannot be used are named. Servers that do not answer are named too.
///
/// Exit codes: 0 nothing was found, 1 all of it was repaired, 4 something is left, 8 the check could not be done.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia fsck /scratch/isonomia                      names, links, objects: fast
  isonomia fsck --data /scratch/isonomia               every block as well
  isonomia fsck --repair --config /etc/isonomia.toml /scratch/isonomia
  isonomia fsck --server tcp:io01:7411                 a running cluster")]
pub struct FsckOptions {
    /// The server's directory, as in `isonomia serve --dir`
    #[arg(conflicts_with = "server")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub whole: WholeOptions,
    /// The server's configuration file: it says where the targets are, if not below the directory
    #[arg(long, value_name = "FILE", requires = "dir")]
    pub config: Option<PathBuf>,
    /// The cluster file, of a server of a cluster: the same for one
    #[arg(long, value_name = "FILE", conflicts_with = "config", requires = "dir")]
    pub cluster: Option<PathBuf>,
    /// The server's name in the cluster file, if its directory does not say it any more
    #[arg(long, value_name = "NAME", requires = "cluster")]
    pub name: Option<String>,
    /// Repair what can be; a running cluster does so without it
    #[arg(long)]
    pub repair: bool,
    /// Read every block, and verify its checksum
    #[arg(long, requires = "dir")]
    pub data: bool,
    /// Print findings and a summary as JSON objects, one a line
    #[arg(long)]
    pub json: bool,
}
