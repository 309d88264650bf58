//! Options of `isonomia cluster`.

use super::number::number;
use clap::{Args, Subcommand};
use isonomia_transport::owner;
use std::ffi::OsString;
use std::path::PathBuf;

/// Check a cluster file, see its servers, try a cluster on one machine
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia cluster check /etc/isonomia/cluster.toml
  isonomia cluster up --servers 4")]
pub struct ClusterOptions {
    #[command(subcommand)]
    pub command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    Check(CheckOptions),
    /// Ask every server of a cluster file whether it is there, and which epoch of the file it has
    ///
    /// Exit codes: 0 all answer and have the file's epoch, 1 otherwise.
    #[command(after_help = "\
Examples:
  isonomia cluster status /etc/isonomia/cluster.toml
  isonomia cluster status cluster.toml --key-file ~/.isonomia-key --json | jq '.servers[] | select(.state != \"answers\")'")]
    Status(MembersOptions),
    /// Have all running servers take a newer cluster file, or say which do not
    ///
    /// The file has to be on the servers' hosts already, where they were started with it. All servers that answer are
    /// asked first whether they would take it; if one would not, none does. Those that do not answer have to be started with
    /// it. Exit codes: 0 all servers of the file have it, 1 otherwise.
    #[command(after_help = "\
Examples:
  isonomia cluster reload /etc/isonomia/cluster.toml
  isonomia cluster reload /etc/isonomia/cluster.toml --key-file ~/.isonomia-key --json")]
    Reload(MembersOptions),
    Up(UpOptions),
    Down(DownOptions),
}

/// Check a cluster file: print its servers, or every contradiction in it
///
/// With --against, also what changes from the file before: what must not change, such as the meaning of a server's number,
/// is an error. Exit codes: 0 no errors, 1 errors, which standard output names with their lines.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia cluster check /etc/isonomia/cluster.toml
  isonomia cluster check new.toml --against /etc/isonomia/cluster.toml
  isonomia cluster check cluster.toml --json | jq .findings")]
pub struct CheckOptions {
    /// The cluster file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The file that servers have until now
    #[arg(long, value_name = "OLD")]
    pub against: Option<PathBuf>,
    /// Print servers and findings as JSON
    #[arg(long)]
    pub json: bool,
}

/// A cluster file, and how its servers are reached.
#[derive(Args, Debug)]
pub struct MembersOptions {
    /// The cluster file
    #[arg(env = "ISONOMIA_CLUSTER", hide_env_values = true, value_name = "FILE")]
    pub file: PathBuf,
    /// File with the key that servers on TCP ask for; only its owner may be able to read it
    #[arg(long, env = "ISONOMIA_KEY_FILE", hide_env_values = true, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// User, by name or number, who may run servers on Unix sockets, besides this user and root
    #[arg(long, env = "ISONOMIA_SERVER_USER", hide_env_values = true, value_name = "USER", value_parser = owner::user)]
    pub server_user: Option<u32>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Start a cluster for trials on this machine
///
/// Writes a cluster file and a key, starts a server for each name (io01, io02, ...) on a Unix socket and a free port of
/// loopback, waits until all are ready, and says how to use them. The servers go on in the background until
/// `isonomia cluster down`. With a cluster file in DIR already, as after `down`, that one is used.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia cluster up --servers 4
  isonomia cluster up --servers 4 --targets 2 --dir ~/trial
  isonomia cluster up --servers 2 -- --policy size-fair --trust-clients")]
pub struct UpOptions {
    /// Number of servers [default: 4, or those of the cluster file in DIR]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=64))]
    pub servers: Option<u16>,
    /// Targets of each server [default: 1, or those of the cluster file in DIR]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=16))]
    pub targets: Option<u16>,
    /// Directory for everything, files included [default: a directory of this user's in $XDG_RUNTIME_DIR or /tmp, with files
    /// in memory]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// More options for each `isonomia serve`
    #[arg(last = true, value_name = "OPTIONS")]
    pub serve: Vec<OsString>,
}

/// End a cluster that `isonomia cluster up` started
///
/// Ends the servers that were started in the directory and are still running, and no other process. Files in the directory
/// are kept; those in memory are gone.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia cluster down
  isonomia cluster down --dir ~/trial")]
pub struct DownOptions {
    /// The directory that `isonomia cluster up` was given
    #[arg(long)]
    pub dir: Option<PathBuf>,
}
