//! Options of `isonomia volume`.

use super::{ServerOptions, WholeOptions};
use clap::{Args, Subcommand};

/// See which server has which volume, make one on a server of your choice, and move one to another server
///
/// A volume is a directory directly below the root of a cluster. `mkdir` makes one, too, on the server that its name leads to.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia volume list
  isonomia volume create scratch --server io03
  isonomia volume move scratch --to io04")]
pub struct VolumeOptions {
    #[command(subcommand)]
    pub command: VolumeCommand,
}

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    List(VolumeListOptions),
    Create(VolumeCreateOptions),
    Move(VolumeMoveOptions),
}

/// Print the volumes, and the server of each, as the server that is asked knows them
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia volume list
  isonomia volume list --json | jq '.volumes[] | select(.server == \"io03\").name'")]
pub struct VolumeListOptions {
    #[command(flatten)]
    pub server: ServerOptions,
    /// Print volumes and servers as JSON
    #[arg(long)]
    pub json: bool,
}

/// Make a volume on a server of your choice
///
/// Whoever may make a directory in the root may do so; the volume is its maker's. The server is the one that --server names
/// as the cluster file does; an address after --server only says whom to ask.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia volume create scratch --server io03
  isonomia volume create scratch --server tcp:io01:7411 --server io03   io01 is asked
  isonomia volume create shared --server io01 --mode 1777")]
pub struct VolumeCreateOptions {
    /// Name of the volume: that of a directory in the root
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The same as a name after --server
    #[arg(long, value_name = "NAME")]
    pub on: Option<String>,
    /// Permissions in octal digits; the umask does not count
    #[arg(long, default_value = "755", value_parser = octal)]
    pub mode: u32,
    #[command(flatten)]
    pub whole: WholeOptions,
}

/// Move a volume to another server
///
/// Nobody is served in the volume meanwhile: programs wait for up to 15 s, and then get EBUSY. So it is refused while files in it
/// are open. The servers do it, whatever becomes of this command and of them: given again, it goes on to watch. Given with the
/// server that the volume comes from, the move is given up. Allowed to the server's user and to root.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia volume move scratch --to io04
  isonomia volume list --json | jq '.volumes[] | select(.moving)'")]
pub struct VolumeMoveOptions {
    /// Name of the volume
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Name of the server in the cluster file
    #[arg(long, value_name = "SERVER")]
    pub to: String,
    #[command(flatten)]
    pub server: ServerOptions,
}

fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o1777 => Ok(mode),
        _ => Err("permissions are octal digits from 0 to 1777".to_owned()),
    }
}
