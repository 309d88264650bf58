//! The ways from a client process to its files, and the command line of each.

use crate::harness::Programs;
use clap::ValueEnum;
use isonomia_client::Address;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where served files appear to a preloaded client.
pub const PREFIX: &str = "/isonomia-bench";

/// How clients reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Plain calls, intercepted; shared memory.
    Preload,
    /// The client library called directly; shared memory.
    Library,
    /// Plain calls, intercepted; TCP on this host.
    PreloadTcp,
    /// The client library called directly; TCP on this host.
    LibraryTcp,
    /// Plain calls on a FUSE mount; shared memory behind it.
    Mount,
}

/// Who a worker says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// The job.
    pub job: String,
    /// Its user.
    pub user: String,
    /// The user's group.
    pub group: String,
    /// The job's nodes.
    pub nodes: u32,
}

/// A server's addresses.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// The socket for shared memory.
    pub unix: Address,
    /// The address on TCP.
    pub tcp: Address,
    /// The key for TCP.
    pub key_file: PathBuf,
    /// Where it is mounted, if it was started with a mount.
    pub mount: Option<PathBuf>,
    /// The directory of the root that workers by path work in, if it is not the root itself.
    pub directory: Option<String>,
}

impl Way {
    /// Whether requests go over TCP.
    fn is_tcp(self) -> bool {
        matches!(self, Self::PreloadTcp | Self::LibraryTcp)
    }

    /// Whether calls are intercepted.
    pub fn is_preload(self) -> bool {
        matches!(self, Self::Preload | Self::PreloadTcp)
    }

    /// The command line of worker `number`.
    pub fn worker(self, programs: &Programs, endpoints: &Endpoints, identity: &Identity, number: u32) -> Command {
        let address = if self.is_tcp() { &endpoints.tcp } else { &endpoints.unix };
        let directory = endpoints.directory.as_deref().unwrap_or("");
        if let (Self::Mount, Some(dir)) = (self, &endpoints.mount) {
            let mut command = plain_worker(programs, &dir.join(directory), number);
            // The mount finds them where it finds a scheduler's.
            for (name, value) in [("JOB", &identity.job), ("USER", &identity.user), ("GROUP", &identity.group)] {
                command.env(format!("ISONOMIA_{name}"), value);
            }
            command.env("ISONOMIA_NODES", identity.nodes.to_string());
            return command;
        }
        let number = number.to_string();
        let options = options(address, identity);
        let mut command;
        if self.is_preload() {
            command = Command::new(&programs.isonomia);
            command.arg("run").args(options).args(["--prefix", PREFIX]);
            if self.is_tcp() {
                command.arg("--key-file").arg(&endpoints.key_file);
            }
            command.arg("--").arg(&programs.bench).args(["worker", "--number", &number, "--path"]);
            command.arg(Path::new(PREFIX).join(directory));
        } else {
            command = Command::new(&programs.bench);
            command.args(["worker", "--number", &number]).args(options);
            if self.is_tcp() {
                command.arg("--key-file").arg(&endpoints.key_file);
            }
        }
        command
    }
}

/// What says to a program of ours where the server is and who asks.
fn options(address: &Address, identity: &Identity) -> Vec<String> {
    let mut options = vec!["--server".to_owned(), address.to_string()];
    for (name, value) in [("--job", &identity.job), ("--user", &identity.user), ("--group", &identity.group)] {
        options.extend([name.to_owned(), value.clone()]);
    }
    options.extend(["--nodes".to_owned(), identity.nodes.to_string()]);
    options
}

/// The command line of another program whose files below [`PREFIX`] are served through shared memory.
pub fn preloaded(programs: &Programs, endpoints: &Endpoints, identity: &Identity, program: &str) -> Command {
    let mut command = Command::new(&programs.isonomia);
    command.arg("run").args(options(&endpoints.unix, identity)).args(["--prefix", PREFIX, "--", program]);
    command
}

/// The command line of worker `number` on plain files below `dir`.
pub fn plain_worker(programs: &Programs, dir: &Path, number: u32) -> Command {
    let mut command = Command::new(&programs.bench);
    command.args(["worker", "--number", &number.to_string(), "--path"]).arg(dir);
    command
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preload => "preload",
            Self::Library => "library",
            Self::PreloadTcp => "preload-tcp",
            Self::LibraryTcp => "library-tcp",
            Self::Mount => "mount",
        })
    }
}
