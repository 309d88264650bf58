//! The cluster file, and what follows from it: which servers there are, where they are reached, what each has.
//!
//! The file is the same on every server. It has an [`Epoch`], which grows with each change; a peer with an older one is told
//! so. A server is a *number*, which is in what lies on disk and never changes its meaning, and a *name*, by which people
//! and configuration know it. What clients need goes over the wire as [`Map::encode`] has it: the description and not what
//! follows from it, so that a thousand servers of one line are as short as that line.
//!
//! **Targets** are numbered in the whole system: server *s* has the numbers from (*s* − 1) × *n* on, in the order in which its
//! targets are listed, where *n* is the file's `targets_per_server`. So a target that is added behind the others
//! renumbers none, one that is given up stays in the list as retired, and the number alone tells the server.
//!
//! [`Map::read`] finds every contradiction and not only the first; [`Map::difference`] says what a newer file changes, and
//! what it must not.

mod check;
mod control;
mod difference;
mod file;
mod findings;

pub use control::Control;
pub use findings::{BadMap, Finding, Severity};

use crate::hash;
use crate::hosts::HOSTS_MAX;
use findings::Findings;
use isonomia_units::{Address, Nanos, Placement, ServerId, TargetId};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The most servers of a cluster: as many as there are numbers.
pub const SERVERS_MAX: usize = HOSTS_MAX;
/// The longest cluster file, in bytes; what [`Map::encode`] gives is not longer either.
pub const FILE_LEN_MAX: usize = 1 << 20;
/// The most addresses of one server.
pub const ADDRESSES_MAX: usize = 8;
/// The most targets of one server.
pub const TARGETS_MAX: u16 = 256;
/// How many numbers each server has for its targets, if the file does not say.
pub const TARGETS_PER_SERVER_DEFAULT: u16 = 16;
/// The longest path of a directory, in bytes.
pub const PATH_LEN_MAX: usize = 4096;

/// What is wrong with the settings of a target, and what is allowed: whoever has targets knows.
pub type SettingsCheck<'a> = &'a dyn Fn(&toml::Table) -> Result<(), String>;

/// Which version of the cluster file this is: 1 or more, and more with each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u32);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A cluster without contradictions.
#[derive(Clone, Debug)]
pub struct Map {
    description: Description,
    /// By number.
    servers: Vec<Server>,
    /// Where in [`Self::servers`] a name is.
    by_name: BTreeMap<Arc<str>, usize>,
    /// Where in [`Self::servers`] the root server is.
    root: usize,
    /// Where in [`Self::servers`] the one is that decides over all.
    controller: usize,
}

/// One server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Server {
    /// By which it is known on disk and on the wire.
    pub number: ServerId,
    /// By which people know it.
    pub name: Arc<str>,
    /// Where it listens: 1 to [`ADDRESSES_MAX`] of them, in the order in which a client tries them.
    pub listen: Vec<Address>,
    /// Where its metadata lie. Not known to clients.
    pub dir: Option<PathBuf>,
    /// In the order of their numbers; at least one.
    pub targets: Vec<Target>,
    /// The router behind which it is.
    pub router: Option<Arc<str>>,
    /// The rack in which it is.
    pub rack: Option<Arc<str>>,
    /// Its share of new volumes; 0 for none.
    pub weight: f64,
    /// It serves what it has and gets nothing new.
    pub retired: bool,
}

/// One target of a server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Target {
    /// Its number in the whole system.
    pub id: TargetId,
    /// Where its objects lie; below the server's directory if absent. Not known to clients.
    pub dir: Option<PathBuf>,
    /// It serves what it has and gets nothing new.
    pub retired: bool,
    /// What else the file says of it: the keys of a target in a server's own configuration, which reads them. Not known
    /// to clients.
    pub settings: Arc<toml::Table>,
}

/// How servers are fair together: what each makes of what the others' jobs have. No matter of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// They tell each other of their jobs so often; `None`: each is fair by itself.
    pub interval: Option<Nanos>,
    /// By who is there, and not by what they received.
    pub is_by_presence: bool,
}

impl Exchange {
    /// The shortest interval.
    pub const INTERVAL_MIN: Nanos = Nanos::from_millis(10);
    /// The longest.
    pub const INTERVAL_MAX: Nanos = Nanos::from_secs(10);
    /// ThemisIO §5.6: reasonable for real applications.
    pub const INTERVAL_DEFAULT: Nanos = Nanos::from_millis(500);
}

impl Default for Exchange {
    fn default() -> Self {
        Self { interval: Some(Self::INTERVAL_DEFAULT), is_by_presence: false }
    }
}

/// What a file says, before host lists are expanded. What is skipped is of no use to other hosts.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Description {
    name: String,
    epoch: u32,
    root: Option<String>,
    targets_per_server: u16,
    #[serde(skip)]
    exchange: Exchange,
    #[serde(skip)]
    control: Control,
    #[serde(skip)]
    placement: Placement,
    groups: Vec<Group>,
}

/// Servers that are described together.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Group {
    /// A host list.
    names: String,
    /// Of the first name.
    number: u32,
    /// With `{name}` in them.
    listen: Vec<String>,
    #[serde(skip)]
    dir: Option<String>,
    targets: Vec<TargetDescription>,
    router: Option<Arc<str>>,
    rack: Option<Arc<str>>,
    weight: f64,
    retired: bool,
    /// Where in the file it begins, if it comes from a file.
    #[serde(skip)]
    line: Option<usize>,
}

/// The targets of one position in the lists of a group's servers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct TargetDescription {
    #[serde(skip)]
    dir: Option<String>,
    retired: bool,
    #[serde(skip)]
    settings: Arc<toml::Table>,
}

impl Map {
    /// Reads the text of a cluster file: the map, unless one of the findings is an error, and all that was found.
    /// Settings of targets are not looked at: see [`Self::read_with`].
    pub fn read(text: &str) -> (Option<Self>, Vec<Finding>) {
        Self::read_with(text, &|_| Ok(()))
    }

    /// The same; `settings` says what is wrong with [`Target::settings`].
    pub fn read_with(text: &str, settings: SettingsCheck<'_>) -> (Option<Self>, Vec<Finding>) {
        let mut findings = Findings::default();
        let map =
            file::read(text, settings, &mut findings).and_then(|description| check::build(description, &mut findings));
        (map, findings.sorted())
    }

    /// Reads the text of a cluster file.
    ///
    /// # Errors
    /// With all that is wrong.
    pub fn parse(text: &str) -> Result<Self, BadMap> {
        match Self::read(text) {
            (Some(map), _) => Ok(map),
            (None, findings) => Err(BadMap::new(findings)),
        }
    }

    /// What clients and other servers are sent: all but directories and settings of targets, at most [`FILE_LEN_MAX`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Of numbers and texts there is nothing that cannot be written to memory.
        postcard::to_stdvec(&self.description).unwrap_or_default()
    }

    /// What [`Self::encode`] gave, from a peer who may lie.
    ///
    /// # Errors
    /// If it is none, or contradicts itself.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMap> {
        let mut findings = Findings::default();
        let description = match postcard::take_from_bytes::<Description>(bytes) {
            _ if bytes.len() > FILE_LEN_MAX => Err(format!("{} bytes, more than {FILE_LEN_MAX}", bytes.len())),
            Ok((description, [])) => Ok(description),
            Ok((_, rest)) => Err(format!("{} bytes follow it", rest.len())),
            Err(error) => Err(error.to_string()),
        };
        let map = match description {
            Ok(description) => check::build(description, &mut findings),
            Err(reason) => {
                findings.error(None, format!("no description of a cluster: {reason}"));
                None
            }
        };
        map.ok_or_else(|| BadMap::new(findings.sorted()))
    }

    /// A number that tells files of one epoch apart that say different things to clients.
    pub fn fingerprint(&self) -> u64 {
        SipHasher24::new_with_key(b"isonomia cluster").hash(&self.encode())
    }

    /// What changes from this file to `new`, and what must not change: see [`Finding`].
    pub fn difference(&self, new: &Self) -> Vec<Finding> {
        let mut findings = Findings::default();
        difference::difference(self, new, &mut findings);
        findings.sorted()
    }

    /// A number that tells the file system from those of other names, for as long as it is there. Not 0.
    pub fn file_system(&self) -> u64 {
        SipHasher24::new_with_key(b"isonomia by name").hash(self.name().as_bytes()).max(1)
    }

    /// The name of the file system.
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// The version of the file.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.description.epoch)
    }

    /// How many numbers each server has for its targets.
    pub fn targets_per_server(&self) -> u16 {
        self.description.targets_per_server
    }

    /// How the servers are fair together.
    pub fn exchange(&self) -> Exchange {
        self.description.exchange
    }

    /// How targets of new files are chosen, unless an operator or a directory says otherwise. No matter of clients.
    pub fn placement(&self) -> Placement {
        self.description.placement
    }

    /// Who decides over all servers, and how often.
    pub fn control(&self) -> &Control {
        &self.description.control
    }

    /// The server that decides over all, if no etcd says which one does.
    pub fn controller(&self) -> &Server {
        &self.servers[self.controller]
    }

    /// All servers, by number; at least one.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The server that has the root and the table of volumes.
    pub fn root(&self) -> &Server {
        &self.servers[self.root]
    }

    /// The server of this number.
    pub fn server(&self, number: ServerId) -> Option<&Server> {
        let at = self.servers.binary_search_by_key(&number, |server| server.number).ok()?;
        self.servers.get(at)
    }

    /// The server of this name.
    pub fn named(&self, name: &str) -> Option<&Server> {
        self.by_name.get(name).and_then(|&at| self.servers.get(at))
    }

    /// The target of this number, and whose it is.
    pub fn target(&self, id: TargetId) -> Option<(&Server, &Target)> {
        let before = id.0 / self.description.targets_per_server;
        let server = self.server(ServerId(before.checked_add(1)?))?;
        let target = server.targets.get(usize::from(id.0 % self.description.targets_per_server))?;
        Some((server, target))
    }

    /// The server that a new volume of this name is made on, if nobody names one: see [`hash::choose`]. `None` if none takes
    /// new volumes.
    pub fn home(&self, volume: &[u8]) -> Option<&Server> {
        self.home_by(volume, |_| 1.0)
    }

    /// The same, with weights that are multiplied by `factor`: of [`crate::load`].
    pub fn home_by(&self, volume: &[u8], factor: impl Fn(ServerId) -> f64) -> Option<&Server> {
        let servers = self.servers.iter().map(|server| (server.number, server.share() * factor(server.number)));
        self.server(hash::choose(volume, servers)?)
    }
}

/// Equal if they say the same, in whatever words, and about directories and settings too.
impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        self.epoch() == other.epoch() && self.says_as(other)
    }
}

impl Map {
    /// Whether all but the epoch is the same.
    fn says_as(&self, other: &Self) -> bool {
        (self.name(), self.root, self.targets_per_server()) == (other.name(), other.root, other.targets_per_server())
            && (self.exchange(), self.control(), self.placement())
                == (other.exchange(), other.control(), other.placement())
            && self.servers == other.servers
    }
}

impl Server {
    /// Its weight among those that a new volume may go to.
    pub fn share(&self) -> f64 {
        if self.retired { 0.0 } else { self.weight }
    }
}

#[cfg(test)]
mod tests;
