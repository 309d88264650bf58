//! A server as a cluster file describes it.

use crate::clock;
use crate::config::{Config, ConfigError, TargetConfig};
use isonomia_cluster::Map;
use isonomia_cluster::map::{BadMap, FILE_LEN_MAX, Finding, Server, Severity, Target};
use isonomia_proto::control::{ClusterStatus, ControllerStatus, ListedServer, MemberList};
use isonomia_store::Ownership;
use isonomia_units::ServerId;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Which server of which cluster this is.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The same for all copies.
    current: Arc<RwLock<Arc<Map>>>,
    /// As the file was when the process started.
    started: Arc<Map>,
    /// This server.
    pub number: ServerId,
    /// The file.
    pub path: PathBuf,
    /// Another process that has the server's directory is to be replaced.
    pub take_over: bool,
}

impl ClusterConfig {
    /// How the process comes to own the server's directory.
    pub(crate) fn ownership(&self) -> Ownership {
        let map = self.map();
        let name = map.server(self.number).map_or_else(String::new, |server| server.name.to_string());
        Ownership::new(name, u64::from(map.epoch().0), self.take_over)
    }

    /// The cluster, as the file is that the server has.
    pub fn map(&self) -> Arc<Map> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has a newer file from now on.
    pub(crate) fn replace(&self, map: Map) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
    }

    /// Reads the file again: what it says now, if this server can go on with that.
    ///
    /// # Errors
    /// With what is wrong.
    pub(crate) fn read_again(&self) -> Result<Map, String> {
        let new = usable_cluster_file(&self.path).map_err(|error| error.to_string())?;
        let old = self.map();
        let mut found = old.difference(&new);
        found.retain(|finding| finding.severity == Severity::Error);
        if !found.is_empty() {
            return Err(format!("{}: {}", self.path.display(), BadMap::new(found)));
        }
        if new.server(self.number).is_none() {
            return Err(format!("{} has server {} no more", self.path.display(), self.number));
        }
        Ok(new)
    }

    /// Whether this server is another one in `new` than the one that was started.
    pub(crate) fn needs_restart(&self, new: &Map) -> bool {
        let own = |map: &Map| {
            map.server(self.number).map(|server| (server.listen.clone(), server.dir.clone(), server.targets.clone()))
        };
        own(&self.started) != own(new)
    }

    /// All servers, and where they listen.
    pub(crate) fn members(&self) -> MemberList {
        let map = self.map();
        let member = |server: &Server| ListedServer {
            name: server.name.to_string(),
            number: server.number.0,
            listen: server.listen.iter().map(ToString::to_string).collect(),
        };
        MemberList {
            name: map.name().to_owned(),
            epoch: map.epoch().0,
            root: map.root().name.to_string(),
            servers: map.servers().iter().map(member).collect(),
        }
    }

    /// What operators are told of it, without volumes and policy.
    pub(crate) fn status(&self) -> ClusterStatus {
        let map = self.map();
        let server = map.server(self.number);
        ClusterStatus {
            name: map.name().to_owned(),
            server: server.map_or_else(String::new, |server| server.name.to_string()),
            root: map.root().name.to_string(),
            epoch: map.epoch().0,
            servers: map.servers().len() as u32,
            fingerprint: format!("{:016x}", map.fingerprint()),
            volumes: Vec::new(),
            policy_version: 0,
            policy_deviates: false,
            exchange_ns: map.exchange().interval.map_or(0, |interval| interval.0),
            tables_heard: 0,
            moves: Vec::new(),
            controller: ControllerStatus::default(),
            placement: map.placement().to_string(),
            clock_s: clock::wall().secs.unsigned_abs(),
        }
    }
}

/// Reads the cluster file at `path`: the map, unless one of the findings is an error, and all that was found.
///
/// # Errors
/// If the file cannot be read.
pub fn read_cluster_file(path: &Path) -> Result<(Option<Map>, Vec<Finding>), ConfigError> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_LEN_MAX as u64 + 1).read_to_string(&mut text))
        .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
    Ok(Map::read_with(&text, &|settings| target_config(settings).map(drop)))
}

/// The same without contradictions.
///
/// # Errors
/// If the file cannot be read, or contradicts itself.
pub fn usable_cluster_file(path: &Path) -> Result<Map, ConfigError> {
    let (map, findings) = read_cluster_file(path)?;
    map.ok_or_else(|| ConfigError::Cluster { path: path.to_owned(), error: BadMap::new(findings) })
}

/// What a cluster file says of a target besides its directory; otherwise what no target has.
fn target_config(settings: &toml::Table) -> Result<TargetConfig, String> {
    settings.clone().try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}

impl Config {
    /// Makes this the configuration of the server `name` of the cluster file at `path`: number, addresses, directory, and
    /// targets are what the file says.
    ///
    /// # Errors
    /// If the file cannot be used, knows no such server, or this configuration says something else already.
    pub fn join(&mut self, path: &Path, name: &str) -> Result<(), ConfigError> {
        let map = usable_cluster_file(path)?;
        let server = map.named(name).ok_or_else(|| {
            let known = map.servers().iter().take(8).map(|server| &*server.name);
            let known = isonomia_cluster::hosts::compress(known);
            ConfigError::UnknownServer { path: path.to_owned(), name: name.to_owned(), known }
        })?;
        let twice =
            |what: &'static str| ConfigError::Contradiction { path: path.to_owned(), name: name.to_owned(), what };
        if self.server != ServerId::default() && self.server != server.number {
            return Err(twice("server"));
        }
        if !self.listen.is_empty() {
            return Err(twice("listen"));
        }
        if !self.targets.is_empty() {
            return Err(twice("targets"));
        }
        if self.dir.is_some() && server.dir.is_some() && self.dir != server.dir {
            return Err(twice("dir"));
        }
        self.server = server.number;
        self.name = Some(name.to_owned());
        self.listen.clone_from(&server.listen);
        // They were looked at when the file was read.
        let of = |target: &Target| target_config(&target.settings).map(|config| (target.dir.clone(), config)).ok();
        let targets = server.targets.iter().filter_map(of);
        self.targets = targets.map(|(dir, config)| TargetConfig { dir, ..config }).collect();
        self.dir = server.dir.clone().or_else(|| self.dir.take());
        let number = server.number;
        let started = Arc::new(map);
        let current = Arc::new(RwLock::new(started.clone()));
        self.cluster = Some(ClusterConfig { current, started, number, path: path.to_owned(), take_over: false });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::Rate;

    const FILE: &str = "name = \"s\"\nepoch = 2\n[[server]]\nname = \"io[1-2]\"\nnumber = 5\n\
                        listen = [\"tcp:{name}:7411\"]\ndir = \"/var/{name}\"\n\
                        targets = [{ dir = \"/d/{name}\", bandwidth = \"1GiB/s\", cache = \"never\" }, { depth = 7 }]\n";

    /// The configuration `own` of a server, as `name` of the cluster file `text`.
    fn joined(text: &str, own: &str, name: &str) -> Result<Config, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.toml");
        std::fs::write(&path, text).unwrap();
        let mut config: Config = toml::from_str(own).unwrap();
        config.join(&path, name).map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn the_file_says_what_the_server_is() {
        let config = joined(FILE, "policy = \"fifo\"", "io2").unwrap();
        assert_eq!(config.server, ServerId(6));
        assert_eq!(config.listen[0].to_string(), "tcp:io2:7411");
        assert_eq!(config.dir.as_deref(), Some(Path::new("/var/io2")));
        assert_eq!(config.targets[0].dir.as_deref(), Some(Path::new("/d/io2")));
        assert_eq!(config.targets[0].bandwidth, Rate::new(1 << 30));
        assert_eq!((config.targets.len(), config.targets[0].cache), (2, crate::PageCache::Never));
        assert_eq!(config.policy.to_string(), "fifo");
        let cluster = config.cluster.unwrap();
        assert_eq!((cluster.number, cluster.map().servers().len()), (ServerId(6), 2));
    }

    #[test]
    fn what_is_said_twice_is_refused() {
        for (own, what) in [
            ("server = 3", "server"),
            ("listen = [\"tcp:a:1\"]", "listen"),
            ("dir = \"/else\"", "dir"),
            ("[[targets]]", "targets"),
        ] {
            let error = joined(FILE, own, "io1").unwrap_err();
            assert!(error.contains(&format!("the configuration has {what} as well")), "{error}");
        }
        joined(FILE, "server = 5\ndir = \"/var/io1\"", "io1").unwrap();
        let without = FILE.replace("dir = \"/var/{name}\"", "");
        assert_eq!(joined(&without, "dir = \"/own\"", "io1").unwrap().dir.as_deref(), Some(Path::new("/own")));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let error = joined(FILE, "", "io3").unwrap_err();
        assert!(error.contains("cluster.toml has no server \"io3\" (allowed: io[1-2])"), "{error}");
        let error = joined(&FILE.replace("depth = 7", "dept = 7"), "", "io1").unwrap_err();
        assert!(error.contains("line 8: target 1: unknown field `dept`, expected one of"), "{error}");
        let error = joined(&FILE.replace("epoch = 2", "epoch = 0").replace("number = 5", "number = 0"), "", "io1");
        let error = error.unwrap_err();
        assert!(error.contains("cluster.toml: epoch: 0") && error.contains("line 3: number: 0"), "{error}");
    }
}
