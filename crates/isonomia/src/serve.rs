//! `isonomia serve`: a server until a signal ends it.

use crate::arguments::ServeOptions;
use crate::control;
use crate::scrape::Endpoint;
use anyhow::{Context, Result, bail};
use isonomia_server::outside::record_of;
use isonomia_server::{Config, Loss, Server, TargetConfig};
use isonomia_transport::address::Address;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::DirBuilder;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The exit code of a server whose directory is another process's, or the wrong one.
const DIRECTORY_LOST: i32 = 3;
/// That of one that could not sync changes of the metadata, and is to be started anew.
const UNSYNCED: i32 = 4;

pub fn serve(options: &ServeOptions) -> Result<()> {
    let config = configuration(options)?;
    // The database creates files without a mode of ours, which others must not read. The socket's mode is set explicitly.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // Before the start, so that no signal is missed once the server can be seen.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (metrics_address, cgroup) = (config.metrics, config.cgroup.clone());
    let server = Server::start(config)?;
    let record = cgroup.is_some().then(|| record_of(cgroup.as_ref(), server.dir()));
    if let Some(record) = record.clone() {
        unlimit_in_panic(record);
    }
    let metrics = match metrics_address {
        Some(address) => {
            if !address.ip().is_loopback() {
                tracing::warn!(%address, "metrics, with names of jobs and users, are open to the network");
            }
            Some(Endpoint::start(address, server.status_source())?)
        }
        None => None,
    };
    end_with(&server, record)?;
    announce(&server, metrics.as_ref())?;
    let signal = signals.forever().next();
    tracing::info!(signal, "shutting down");
    drop(metrics);
    server.shutdown();
    Ok(())
}

/// Removes the limits of control groups when the program panics: it ends then without going through anything else.
fn unlimit_in_panic(record: PathBuf) {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // If it cannot be done, the next server of this directory does it.
        let _ = isonomia_cgroup::remove(&record);
        others(panic);
    }));
}

/// Ends the program when the server has lost its directory, or relies on it no more: nothing may be written, not even in order to end.
/// The limits of control groups that this `record` has are not in the directory, and go.
fn end_with(server: &Server, record: Option<PathBuf>) -> Result<()> {
    let (fence, dir) = (server.fence(), server.dir().to_owned());
    let watch = move || {
        let code = match fence.wait_for_end() {
            Some(Loss::Replaced(instance)) => {
                tracing::error!(dir = %dir.display(), instance, "another process has taken over: this one ends");
                DIRECTORY_LOST
            }
            Some(Loss::Misplaced) => {
                tracing::error!(dir = %dir.display(), "the directory is the wrong one: the server ends");
                DIRECTORY_LOST
            }
            Some(Loss::Unsynced) => {
                tracing::error!(
                    dir = %dir.display(),
                    "the metadata could not be synced when the storage failed, and now it takes something again: the server ends, \
                     and is to be started anew"
                );
                UNSYNCED
            }
            None => return,
        };
        if let Some(Err(error)) = record.as_deref().map(isonomia_cgroup::remove) {
            tracing::error!(%error, "limits of control groups stay: `isonomia device unlimit` removes them");
        }
        std::process::exit(code);
    };
    std::thread::Builder::new().name("fence".to_owned()).spawn(watch).context("cannot start a thread")?;
    Ok(())
}

/// One line for whoever started the server and waits for it.
fn announce(server: &Server, metrics: Option<&Endpoint>) -> Result<()> {
    let listen: Vec<String> = server.addresses().iter().map(ToString::to_string).collect();
    let line = serde_json::json!({
        "ready": true,
        "listen": listen,
        "dir": server.dir(),
        "pid": std::process::id(),
        "cluster": server.status().cluster,
        "metrics": metrics.map(|endpoint| format!("http://{}/metrics", endpoint.address())),
    });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot say where the server listens")
}

/// The configuration file, overridden by the options.
fn configuration(options: &ServeOptions) -> Result<Config> {
    let mut config = match &options.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    if let Some(path) = &options.cluster {
        let path = std::path::absolute(path).with_context(|| format!("{}", path.display()))?;
        config.join(&path, &options.name.clone().unwrap_or_else(host_name))?;
        if let Some(cluster) = &mut config.cluster {
            cluster.take_over = options.take_over;
        }
    }
    override_with(&mut config.dir, options.dir.clone().map(Some));
    override_with(&mut config.name, options.name.clone().map(Some));
    config.name.get_or_insert_with(host_name);
    override_with(&mut config.auth, options.auth);
    override_with(&mut config.key_file, options.key_file.clone().map(Some));
    override_with(&mut config.cluster_key_file, options.cluster_key_file.clone().map(Some));
    override_with(&mut config.munge_socket, options.munge_socket.clone().map(Some));
    override_with(&mut config.integrity, options.integrity.map(Some));
    override_with(&mut config.policy, options.policy.clone());
    override_with(&mut config.draw, options.draw);
    override_with(&mut config.workers, options.workers.map(Some));
    override_with(&mut config.stripe_count, options.stripe_count);
    override_with(&mut config.stripe_size, options.stripe_size);
    override_with(&mut config.scrub, options.scrub);
    override_with(&mut config.metrics, options.metrics.map(Some));
    override_with(&mut config.record_decisions, options.record_decisions.clone().map(Some));
    config.trust_clients |= options.trust_clients;
    if !options.listen.is_empty() {
        config.listen.clone_from(&options.listen);
    }
    if config.listen.is_empty() {
        let address = control::default_address();
        if let Address::Unix(path) = &address {
            prepare_directory(Path::new(path).parent().unwrap_or(Path::new("/")), "--listen")?;
        }
        config.listen.push(address);
    }
    if let Some(targets) = options.targets {
        config.targets = vec![TargetConfig::default(); usize::from(targets)];
    } else if config.targets.is_empty() {
        config.targets.push(TargetConfig::default());
    }
    for target in &mut config.targets {
        override_with(&mut target.bandwidth, options.bandwidth.map(Some));
        override_with(&mut target.per_op, options.per_op.map(Some));
        override_with(&mut target.depth, options.depth);
        override_with(&mut target.cache, options.cache);
    }
    Ok(config)
}

/// As clusters call their hosts: without the domain.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Makes the directory of the default socket, or makes sure that nobody else can put a socket there: a client finds who
/// listens, but not who should. `option` names another path.
pub fn prepare_directory(dir: &Path, option: &str) -> Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    // Users of the system's own server pass through.
    let mode = if uid == 0 { 0o755 } else { 0o700 };
    let shown = dir.display();
    match DirBuilder::new().mode(mode).create(dir) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => {
            return Err(error)
                .with_context(|| format!("cannot make {shown} for the socket; {option} names another path"));
        }
    }
    let found = std::fs::symlink_metadata(dir).with_context(|| format!("cannot look at {shown}"))?;
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if !found.is_dir() || owner != uid || mode & 0o022 != 0 {
        let kind = if found.is_dir() { "directory" } else { "file" };
        bail!(
            "{shown} is a {kind} of user {owner} with mode {mode:04o}, and the socket would be in it: it must be a directory \
             of this user that nobody else can write to; remove it, or name another path with {option}"
        );
    }
    Ok(())
}

fn override_with<T>(value: &mut T, option: Option<T>) {
    if let Some(option) = option {
        *value = option;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;
    use isonomia_server::ScrubPeriod;
    use isonomia_units::{Nanos, Rate};

    fn configuration_of(arguments: &[&str]) -> Result<Config> {
        let parsed = Arguments::try_parse_from([&["isonomia", "serve"], arguments].concat())?;
        let Command::Serve(options) = parsed.command else { unreachable!("serve was parsed") };
        configuration(&options)
    }

    #[test]
    fn a_directory_for_the_socket_is_ones_own() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("isonomia");
        prepare_directory(&dir, "--listen").unwrap();
        let mode = |bits| std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(bits)).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().mode() & 0o022, 0);
        prepare_directory(&dir, "--listen").unwrap();
        mode(0o777);
        let error = prepare_directory(&dir, "--listen").unwrap_err().to_string();
        assert!(error.contains("mode 0777") && error.contains("--listen"), "{error}");
        mode(0o700);
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(prepare_directory(&link, "--listen").unwrap_err().to_string().contains("is a file of user"));
    }

    #[test]
    fn options_override_the_file_and_the_file_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("isonomia.toml");
        std::fs::write(
            &path,
            "policy = \"fifo\"\nlisten = [\"tcp:127.0.0.1:0\"]\nscrub = \"30d\"\nstripe_size = \"64KiB\"\n\
             [[targets]]\nbandwidth = \"1GiB/s\"\nper_op = \"20us\"\n[[targets]]\n",
        )
        .unwrap();
        let path = path.to_str().unwrap();
        let config =
            configuration_of(&["--config", path, "--policy", "size-fair", "--per-op", "5us", "--scrub", "off"])
                .unwrap();
        assert_eq!(config.scrub, ScrubPeriod(None));
        assert_eq!(config.policy.to_string(), "size-fair");
        assert_eq!(config.listen.len(), 1);
        assert_eq!(config.listen[0].to_string(), "tcp:127.0.0.1:0");
        assert_eq!(config.stripe_size.0, 64 << 10);
        assert_eq!(config.targets.len(), 2);
        assert_eq!(config.targets[0].bandwidth, Rate::new(1 << 30));
        assert_eq!(config.targets[1].bandwidth, None);
        assert!(config.targets.iter().all(|target| target.per_op == Some(Nanos::from_micros(5))));
    }

    #[test]
    fn a_file_with_an_unknown_key_is_refused_with_the_known_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("isonomia.toml");
        std::fs::write(&path, "polcy = \"fifo\"\n").unwrap();
        let error = configuration_of(&["--config", path.to_str().unwrap()]).unwrap_err().to_string();
        assert!(error.contains("polcy") && error.contains("policy") && error.contains("isonomia.toml"), "{error}");
    }

    #[test]
    fn a_cluster_file_says_what_the_server_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.toml");
        std::fs::write(
            &path,
            "name = \"s\"\nepoch = 1\n[[server]]\nname = \"io[1-2]\"\nnumber = 1\nlisten = [\"tcp:{name}:7411\"]\n\
             dir = \"/var/{name}\"\ntargets = 2\n",
        )
        .unwrap();
        let path = path.to_str().unwrap();
        let config = configuration_of(&["--cluster", path, "--name", "io2", "--dir", "/other"]).unwrap();
        assert_eq!((config.server.0, config.listen.len(), config.targets.len()), (2, 1, 2));
        assert_eq!(config.dir.as_deref(), Some(Path::new("/other")));
        assert!(config.cluster.is_some_and(|cluster| cluster.map().name() == "s"));
        for (more, words) in [
            (&["--listen", "unix:/s"][..], "cannot be used with"),
            (&["--targets", "2"], "cannot be used with"),
            (&["--name", "io3"], "no server \"io3\" (allowed: io[1-2])"),
        ] {
            let error = configuration_of(&[&["--cluster", path], more].concat()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(configuration_of(&["--name", "io1"]).unwrap().name.as_deref(), Some("io1"));
        assert_eq!(configuration_of(&[]).unwrap().name, Some(host_name()));
        let error = configuration_of(&["--cluster", path]).unwrap_err().to_string();
        assert!(error.contains(&format!("no server {:?}", host_name())), "{error}");
    }

    #[test]
    fn the_example_of_the_reference_page_is_a_configuration() {
        let page = include_str!("../../../docs/reference/configuration.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("isonomia.toml");
        std::fs::write(&path, example).unwrap();
        let config = configuration_of(&["--config", path.to_str().unwrap()]).unwrap();
        assert_eq!(config.targets.len(), 2);
    }
}
