//! Options of `isonomia backup`.

use super::ServerOptions;
use clap::Args;
use std::path::PathBuf;

/// Copy the metadata of a running server
///
/// The server writes them as they are at one moment, and goes on with everything else. The copy replaces
/// the server's directory `metadata` when that is lost: with the server stopped, and `isonomia fsck --repair` before
/// the next start. Allowed to the server's user and to root.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia backup /backup/metadata
  isonomia backup --server unix:/run/isonomia.sock /backup/metadata-$(date +%F)")]
pub struct BackupOptions {
    #[command(flatten)]
    pub server: ServerOptions,
    /// Where to, on the server's host: nothing may be there yet, and the server's user may write there
    pub dir: PathBuf,
}
