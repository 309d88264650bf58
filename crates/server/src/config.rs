//! What an operator sets: one TOML file, unknown keys refused, units in values.

use crate::cluster_config::ClusterConfig;
use crate::limits::LimitsConfig;
use crate::page_cache::PageCache;
use crate::scrub::period::ScrubPeriod;
use isonomia_cluster::map::BadMap;
use isonomia_policy::{DepthSpec, Draw, PolicySpec};
use isonomia_proto::setup::{Auth, Integrity};
use isonomia_transport::address::Address;
use isonomia_units::{Bytes, Nanos, Rate, ServerId};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The policy of a server that is told none. It begins with the user, whom the kernel vouches for: what somebody says of
/// his jobs and their sizes matters to himself alone.
pub const POLICY_DEFAULT: &str = "user-then-size-fair";

/// Everything that `isonomia serve` can be told.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Number of this server, unique in the system.
    pub server: ServerId,
    /// Where metadata lie, and targets without a directory of their own; a fresh temporary directory in memory,
    /// removed at the end, if absent.
    pub dir: Option<PathBuf>,
    /// Addresses to listen on: `unix:PATH` or `tcp:HOST:PORT`.
    pub listen: Vec<Address>,
    /// The server's name, to which munge credentials are bound; that of the host if absent.
    pub name: Option<String>,
    /// How clients on TCP prove who they are.
    pub auth: Auth,
    /// Key that clients on TCP must know: a file of mode 0600. Required to listen on TCP with `auth = "key"`.
    pub key_file: Option<PathBuf>,
    /// Key that the servers of a cluster have in common, and nobody else need know: a file of mode 0600. `key_file` if absent.
    pub cluster_key_file: Option<PathBuf>,
    /// Where the munge daemon listens, if not where its library looks for it.
    pub munge_socket: Option<String>,
    /// What becomes of frames on TCP at least; if absent, codes for clients that are not on this host.
    pub integrity: Option<Integrity>,
    /// The sharing policy.
    pub policy: PolicySpec,
    /// How the next request is drawn.
    #[serde(deserialize_with = "draw_from_text")]
    pub draw: Draw,
    /// Seed of the lottery.
    pub seed: u64,
    /// Believe what clients say of user, group, job, size and priority. For trials only.
    pub trust_clients: bool,
    /// Worker threads; as many as cores, at least 2 and at most 8, if absent.
    pub workers: Option<u32>,
    /// The targets; one if none is named.
    pub targets: Vec<TargetConfig>,
    /// The emulated speed of the metadata service: its time for each operation.
    pub metadata_per_op: Option<Nanos>,
    /// Targets that a new file is striped over.
    pub stripe_count: u16,
    /// Bytes of a stripe: a multiple of 4 KiB.
    pub stripe_size: Bytes,
    /// Sum blocks of files when they are written, and verify them when they are read.
    pub checksums: bool,
    /// How long a pass over all objects in the background takes.
    pub scrub: ScrubPeriod,
    /// Address for Prometheus, such as `127.0.0.1:9180`; none if absent.
    pub metrics: Option<std::net::SocketAddr>,
    /// How much is taken on.
    pub limits: LimitsConfig,
    /// Keep a fair clock beside every arbiter, so that the status tells of each job's I/O phase what fair sharing would have
    /// given.
    pub fair_clock: bool,
    /// File to record every decision in, for a replay; none if absent. For trials only.
    pub record_decisions: Option<PathBuf>,
    /// Limits for programs that write to a local device outside of Isonomia; none if absent.
    pub cgroup: Option<CgroupConfig>,
    /// The cluster that this is a server of; set by [`Self::join`].
    #[serde(skip)]
    pub cluster: Option<ClusterConfig>,
}

/// One target.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetConfig {
    /// Where its objects lie; below [`Config::dir`] if absent.
    pub dir: Option<PathBuf>,
    /// Emulate a device of this bandwidth.
    pub bandwidth: Option<Rate>,
    /// Emulate a device that needs this long for each operation, besides the bytes.
    pub per_op: Option<Nanos>,
    /// Requests that its device has in service at once at most.
    pub depth: DepthSpec,
    /// What `isonomia device profile` found of the device; the file of that name in the directory, if there is one, if
    /// absent.
    pub profile: Option<PathBuf>,
    /// Whether its files go through the page cache of the host.
    pub cache: PageCache,
}

/// What the control groups of jobs are limited by while the controller's allocation applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CgroupConfig {
    /// The device: a file in `/dev`, or MAJOR:MINOR; that on which the first target lies if absent.
    pub device: Option<PathBuf>,
    /// What it reads; without limits if absent.
    pub read: Option<Rate>,
    /// What it writes; without limits if absent.
    pub write: Option<Rate>,
    /// File for the record of the limits that are set, on this host; one for the server's directory in `/run/isonomia-limits` if
    /// absent.
    pub record: Option<PathBuf>,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file does not say what it may say; the message names line, key, and what is allowed.
    #[error("{path}: {error}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What and where.
        error: Box<toml::de::Error>,
    },
    /// The cluster file contradicts itself.
    #[error("{path}: {error}")]
    Cluster {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong.
        error: BadMap,
    },
    /// The cluster file has no such server.
    #[error("{path} has no server {name:?} (allowed: {known})")]
    UnknownServer {
        /// The file.
        path: PathBuf,
        /// Who is missing.
        name: String,
        /// Some that it has.
        known: String,
    },
    /// Two settings say the same thing.
    #[error("{path} says what {name} is, and the configuration has {what} as well (allowed: one of them)")]
    Contradiction {
        /// The cluster file.
        path: PathBuf,
        /// The server.
        name: String,
        /// The key of the configuration.
        what: &'static str,
    },
}

fn draw_from_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Draw, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server: ServerId(0),
            dir: None,
            listen: Vec::new(),
            name: None,
            auth: Auth::default(),
            key_file: None,
            cluster_key_file: None,
            munge_socket: None,
            integrity: None,
            policy: POLICY_DEFAULT.parse().expect("a policy"),
            draw: Draw::default(),
            seed: 1,
            trust_clients: false,
            workers: None,
            targets: Vec::new(),
            metadata_per_op: None,
            stripe_count: 1,
            stripe_size: Bytes::mib(1),
            checksums: true,
            scrub: ScrubPeriod::default(),
            metrics: None,
            limits: LimitsConfig::default(),
            fair_clock: false,
            record_decisions: None,
            cgroup: None,
            cluster: None,
        }
    }
}

impl Config {
    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        toml::from_str(&text).map_err(|e| ConfigError::Parse { path: path.to_owned(), error: Box::new(e) })
    }
}
