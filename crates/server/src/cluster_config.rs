//! A server as a cluster file describes it.

use crate::config::{Config, ConfigError, TargetConfig};
use isonomia_cluster::Map;
use isonomia_cluster::map::{FILE_LEN_MAX, Server};
use isonomia_units::ServerId;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which server of which cluster this is.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The cluster, as its file was when the server started.
    pub map: Arc<Map>,
    /// This server.
    pub number: ServerId,
    /// The file.
    pub path: PathBuf,
}

/// The text of the cluster file at `path`.
///
/// # Errors
/// If it cannot be read, or has more than [`FILE_LEN_MAX`] bytes.
pub fn read_cluster_file(path: &Path) -> Result<String, ConfigError> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_LEN_MAX as u64 + 1).read_to_string(&mut text))
        .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
    Ok(text)
}

/// The targets of a server in its cluster file.
///
/// # Errors
/// If the file says of one what no target has.
pub fn cluster_targets(server: &Server) -> Result<Vec<TargetConfig>, ConfigError> {
    let target = |target: &isonomia_cluster::map::Target| {
        let settings = toml::Table::clone(&target.settings);
        let settings = settings.try_into::<TargetConfig>().map_err(|error| ConfigError::Target {
            target: target.id.0,
            server: server.name.to_string(),
            error: error.message().to_owned(),
        })?;
        Ok(TargetConfig { dir: target.dir.clone(), ..settings })
    };
    server.targets.iter().map(target).collect()
}

impl Config {
    /// Makes this the configuration of the server `name` of the cluster file at `path`: number, addresses, directory, and
    /// targets are what the file says.
    ///
    /// # Errors
    /// If the file cannot be used, knows no such server, or this configuration says something else already.
    pub fn join(&mut self, path: &Path, name: &str) -> Result<(), ConfigError> {
        let map = Map::parse(&read_cluster_file(path)?);
        let map = map.map_err(|error| ConfigError::Cluster { path: path.to_owned(), error })?;
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
        self.listen.clone_from(&server.listen);
        self.targets = cluster_targets(server)?;
        self.dir = server.dir.clone().or_else(|| self.dir.take());
        let number = server.number;
        self.cluster = Some(ClusterConfig { map: Arc::new(map), number, path: path.to_owned() });
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
        assert_eq!((cluster.number, cluster.map.servers().len()), (ServerId(6), 2));
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
        assert!(error.contains("target 65 of io1: unknown field `dept`, expected one of"), "{error}");
        let error = joined(&FILE.replace("epoch = 2", "epoch = 0").replace("number = 5", "number = 0"), "", "io1");
        let error = error.unwrap_err();
        assert!(error.contains("cluster.toml: line 3: number: 0") && error.contains("epoch: 0"), "{error}");
    }
}
