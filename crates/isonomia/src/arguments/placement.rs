//! Options of `isonomia placement`.

use super::{ServerOptions, WholeOptions};
use clap::{Args, Subcommand};
use isonomia_units::Placement;

/// See and say which targets new files of a cluster get
///
/// A file gets its targets when it is made, and keeps them. They are chosen in one of these ways:
/// volume (the server of the file's volume), hash (by the file's number), round-robin, random, balanced (where the job
/// has fewest open files, and other jobs leave most).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia placement get
  isonomia placement set balanced
  isonomia placement status")]
pub struct PlacementOptions {
    #[command(subcommand)]
    pub command: PlacementCommand,
}

#[derive(Debug, Subcommand)]
pub enum PlacementCommand {
    /// Print how targets are chosen where no directory says otherwise, and which servers have another word for it
    #[command(after_help = "\
Examples:
  isonomia placement get
  isonomia placement get --json | jq -r .placement")]
    Get {
        #[command(flatten)]
        whole: WholeOptions,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Say how targets are chosen from now on, on all servers
    ///
    /// The root server records it, and a server that is away has it before it serves again. What there is stays where it is.
    /// A directory may say otherwise: `isonomia stripe set --place`. It takes a key file that all servers have in common.
    /// Allowed to the server's user and to root.
    #[command(after_help = "\
Examples:
  isonomia placement set balanced
  isonomia placement set volume
  isonomia placement set file       as the cluster file says")]
    Set {
        #[command(flatten)]
        server: ServerOptions,
        /// volume, hash, round-robin, random, balanced; or file, for what the cluster file says
        #[arg(value_name = "HOW", value_parser = how)]
        how: How,
    },
    /// Print what a server knows of the targets: what is free on each, and what those who use it leave to one more
    #[command(after_help = "\
Examples:
  isonomia placement status
  isonomia placement status --json --server tcp:io01:7411")]
    Status {
        #[command(flatten)]
        server: ServerOptions,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// A placement, or none of an operator's.
#[derive(Clone, Copy, Debug)]
pub struct How(pub Option<Placement>);

fn how(text: &str) -> Result<How, String> {
    if text == "file" {
        return Ok(How(None));
    }
    text.parse().map(|placement| How(Some(placement))).map_err(|_| format!("allowed: {}, file", Placement::ALLOWED))
}
