//! Options of `isonomia fsck`.

use clap::Args;
use std::path::PathBuf;

/// Check the directory of a server that is stopped, and repair what can be
///
/// Says on standard output what is not as it must be, one finding a line, and what --repair does about it. Nothing is
/// changed without --repair, and a repair removes nothing that could be wanted: what no name leads to gets one in
/// /lost+found, objects that belong to no file are moved to lost+found of their target's directory. Identity files and
/// keys that are lost are made anew from what is left; a database that cannot be read is not repaired. Exit codes: 0
/// nothing was found, 1 all of it was repaired, 4 something is left, 8 the check could not be done.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia fsck /scratch/isonomia                      names, links, objects: fast
  isonomia fsck --data /scratch/isonomia               every block as well
  isonomia fsck --repair --config /etc/isonomia.toml /scratch/isonomia")]
pub struct FsckOptions {
    /// The server's directory, as in `isonomia serve --dir`
    pub dir: PathBuf,
    /// The server's configuration file: it says where the targets are, if not below the directory
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Repair what can be
    #[arg(long)]
    pub repair: bool,
    /// Read every block, and verify its checksum
    #[arg(long)]
    pub data: bool,
    /// Print findings and a summary as JSON objects, one a line
    #[arg(long)]
    pub json: bool,
}
