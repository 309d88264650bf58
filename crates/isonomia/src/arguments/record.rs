//! Options of `isonomia record`.

use super::ServerOptions;
use clap::Args;
use isonomia_units::Nanos;
use std::path::PathBuf;

/// Record every decision of a running server for a while
///
/// The file is written by the server, on its host, and has one JSON object a line. It is complete when the command ends; an interrupt
/// ends it early. Recording takes some microseconds for each request, and the policy begins with new accounts when it begins and
/// when it ends. `isonomia sim --trace` says what a simulation makes of it, `isonomia sim --replay` whether it decides the same. Allowed to the
/// server's user and to root.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia record decisions.jsonl --for 60s
  isonomia sim --trace decisions.jsonl --policy job-fair")]
pub struct RecordOptions {
    #[command(flatten)]
    pub server: ServerOptions,
    /// Where there is nothing yet, on the server's host
    pub file: PathBuf,
    /// For how long, an hour at most
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    pub span: Nanos,
}
