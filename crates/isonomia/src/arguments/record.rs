//! Options of `isonomia record`.

use super::WholeOptions;
use clap::Args;
use isonomia_units::Nanos;
use std::path::PathBuf;

/// Record every decision of a running server, or of all servers of a cluster, for a while
///
/// The file is written by the server, on its host, and has one JSON object a line. It is complete when the command ends; an interrupt
/// ends it early. In a cluster each server writes one, on its own host, with its name before the ending: io01 writes decisions.io01.jsonl. Printed
/// is a line for each, NAME:PATH, as scp takes it where servers have the names of their hosts. One that is away is named, and the others are
/// recorded. With the name of a server (--server io01) it alone is.
///
/// Recording takes some microseconds for each request, and the policy begins with new accounts when it begins and
/// when it ends; of phases that end meanwhile fair-finish learns nothing. `isonomia sim --trace` says what a simulation makes of it, `isonomia sim --replay` whether it decides the same. Allowed to the
/// server's user and to root.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia record decisions.jsonl --for 60s
  isonomia sim --trace decisions.jsonl --policy job-fair
  isonomia record /var/tmp/decisions.jsonl | xargs -I{} scp {} .   of all servers of a cluster")]
pub struct RecordOptions {
    #[command(flatten)]
    pub whole: WholeOptions,
    /// Where there is nothing yet, on the servers' hosts
    pub file: PathBuf,
    /// For how long, an hour at most
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    pub span: Nanos,
}
