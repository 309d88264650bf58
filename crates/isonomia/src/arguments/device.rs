//! Options of `isonomia device`.

use super::number::number;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Measure what keeps files, and take limits of control groups away
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia device profile /scratch/isonomia/target-0
  isonomia device unlimit")]
pub struct DeviceOptions {
    #[command(subcommand)]
    pub command: DeviceCommand,
}

#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    Profile(ProfileOptions),
    Unlimit(UnlimitOptions),
}

/// Remove the limits of control groups that a server of this host has set and did not remove, because it was killed
///
/// A server that starts again with the same directory does so by itself. Limits that somebody else has set, or has changed since, stay.
/// Beside a server that runs, its limits are removed until it decides anew.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia device unlimit
  isonomia device unlimit --json | jq .removed")]
pub struct UnlimitOptions {
    /// Directory with the records of what servers have set
    #[arg(long, default_value = isonomia_server::outside::RECORDS, value_name = "DIR")]
    pub records: PathBuf,
    /// Print what was removed as JSON
    #[arg(long)]
    pub json: bool,
}

/// Measure the device below a directory: what requests cost it, and how many it serves at once
///
/// Reads and writes a file of at most 1GiB that has no name and is gone at the end, at random and in order, in sizes from
/// 4KiB to 1MiB, with 1 to 256 requests in service: past the page cache where the file system can. Others who use the
/// device meanwhile are slowed down, and seen. What is found is printed, and kept in a file from which a server begins
/// to learn what its device takes; docs/guides/operators.md tells more.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia device profile /scratch/isonomia/target-0
  isonomia device profile /scratch --seconds 10 --plot scratch.svg
  isonomia device profile /scratch --out scratch.toml --json | jq .costs")]
pub struct ProfileOptions {
    /// The directory: that of a target, or any on the same file system
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// How long it may take, 1 to 3600
    #[arg(long, default_value_t = 60, value_name = "S", value_parser = number::<u64>(1..=3600))]
    pub seconds: u64,
    /// File for what was found (TOML) [default: device-profile.toml in the directory, where a server finds it]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Draw small requests over requests in service, into a file that ends in .svg or .png
    #[arg(long, value_name = "FILE", value_parser = picture)]
    pub plot: Option<PathBuf>,
    /// Print what was found as JSON
    #[arg(long)]
    pub json: bool,
}

fn picture(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg" | "png") => Ok(path),
        _ => Err("not a picture (allowed: a file that ends in .svg or .png)".to_owned()),
    }
}
