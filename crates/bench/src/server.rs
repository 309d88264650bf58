//! The servers under test: `isonomia serve`, one alone or several as a cluster, ended when dropped.

use crate::clock::now_ns;
use crate::harness::{Harness, start};
use crate::way::Endpoints;
use anyhow::{Context, Result, bail, ensure};
use isonomia_client::{Address, Claims, Client, ClientConfig, FileKind, Ino, OpenHow, XattrHow, access};
use isonomia_proto::control::{ControlReply, ControlRequest, Status};
use isonomia_proto::ledger::LedgerStatus;
use isonomia_proto::striping::{Striping, XATTR};
use isonomia_transport::control::ControlConnection;
use isonomia_transport::key::fresh_nonce;
use isonomia_units::{Nanos, ServerId};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A server that does not listen by then will not.
const START_NS_MAX: u64 = 20_000_000_000;
/// From SIGTERM to SIGKILL.
const STOP_NS_MAX: u64 = 20_000_000_000;
const POLL: Duration = Duration::from_millis(5);
/// Servers of a cluster have a new policy by then.
const POLICY_NS_MAX: u64 = 10_000_000_000;
/// Permissions of directories that are made.
const DIR_MODE: u32 = 0o755;
/// A server that is alive answers questions within this time.
const CONTROL_TIMEOUT: Nanos = Nanos(20_000_000_000);

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Emulated device, as `isonomia serve` takes it; none for an uncapped target.
    pub cap: Option<Cap>,
    /// Worker threads; its own default if absent.
    pub workers: Option<u32>,
    /// Whether its files are mounted too.
    pub mount: bool,
    /// Where its files are; in the harness's directory if absent. It is made, and removed at the end.
    pub files: Option<PathBuf>,
    /// Directories of its targets, made and removed in the same way; one target beside its metadata if empty.
    pub targets: Vec<PathBuf>,
    /// `--cache`; the server's own default if absent.
    pub cache: Option<&'static str>,
    /// So many servers as a cluster, on sockets of this host alone; one that is in no cluster if absent. `files` and `targets` are
    /// for the latter.
    pub cluster: Option<u16>,
    /// Lines of the cluster file besides those that name the servers.
    pub cluster_settings: String,
    /// Targets of each server of a cluster; one if absent.
    pub cluster_targets: Option<u16>,
    /// `--draw`; the server's own default if absent.
    pub draw: Option<&'static str>,
}

/// An emulated device.
#[derive(Clone, Copy, Debug)]
pub struct Cap {
    /// `--bandwidth`.
    pub bandwidth: &'static str,
    /// `--per-op`.
    pub per_op: &'static str,
}

/// That of a storage target in GIFT's evaluation.
pub const GIFT_BANDWIDTH: &str = "102MB/s";

impl Cap {
    /// What a report says of a cap that is not GIFT's: `targets` of them at that are more than two cores carry.
    pub fn scale(self, targets: usize) -> String {
        let per_s = |text: &str| isonomia_units::text::parse_rate(text).map_or(0.0, |rate| rate.bytes_per_s() as f64);
        let part = per_s(self.bandwidth) / per_s(GIFT_BANDWIDTH);
        format!(
            "{targets} targets of {} each, {part:.2} of GIFT's {GIFT_BANDWIDTH}: shares and ratios of times do not depend on it, \
             throughput does",
            self.bandwidth
        )
    }
}

/// A running server, or several that are one file system.
pub struct ServerProcess {
    children: Vec<Child>,
    mount: Option<Child>,
    dir: PathBuf,
    /// Directories elsewhere.
    files: Vec<PathBuf>,
    endpoints: Endpoints,
    /// One to each, in the order of `children`.
    controls: Vec<ControlConnection>,
}

/// The line that a server prints once it listens.
#[derive(Deserialize)]
struct Announcement {
    listen: Vec<Address>,
}

impl ServerProcess {
    /// Starts servers with their files in the directory `name` of the harness's; logs go to `log`, that of the second server
    /// of a cluster to the same with `.2` behind it, and so on.
    pub fn start(harness: &Harness, name: &str, options: &ServerOptions, log: &Path) -> Result<Self> {
        let dir = harness.scratch().join(name);
        std::fs::create_dir(&dir)?;
        let key_file = dir.join("key");
        let mut key = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key_file)?;
        key.write_all(&fresh_nonce()?)?;
        let count = options.cluster.unwrap_or(1);
        let sockets =
            (1..=count).map(|number| format!("unix:{}", dir.join(format!("socket-{number}")).display()).parse());
        let sockets = sockets.collect::<Result<Vec<Address>, _>>()?;
        let unix = sockets.first().context("a cluster without servers")?.clone();
        let files = options.files.iter().chain(&options.targets).cloned().collect();
        let endpoints = Endpoints { tcp: unix.clone(), unix: unix.clone(), key_file, mount: None, directory: None };
        // From here on children are ended whatever happens.
        let mut server = Self { children: Vec::new(), mount: None, dir, files, endpoints, controls: Vec::new() };
        if options.cluster.is_some() {
            std::fs::write(server.dir.join("cluster.toml"), cluster_file(&sockets, options))?;
        }
        let log_of =
            |number: u16| if number == 1 { log.to_owned() } else { log.with_extension(format!("log.{number}")) };
        for (number, socket) in (1..=count).zip(&sockets) {
            let mut command = server.command(harness, options, (number, socket))?;
            let log = log_of(number);
            let log_file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
            server.children.push(start(&mut command, Signal::TERM)?);
        }
        for (number, socket) in (1..=count).zip(&sockets) {
            let line = first_line(&mut server.children[usize::from(number) - 1], harness)
                .with_context(|| format!("a server did not start; its log is {}", log_of(number).display()))?;
            let announcement: Announcement = serde_json::from_str(&line)?;
            let tcp = announcement.listen.into_iter().find(|address| matches!(address, Address::Tcp(_)));
            server.endpoints.tcp = tcp.unwrap_or(unix.clone());
            server.controls.push(ControlConnection::connect(socket, None, CONTROL_TIMEOUT)?);
        }
        if options.mount {
            server.mount(harness)?;
        }
        Ok(server)
    }

    /// What starts the server of this number.
    fn command(
        &self,
        harness: &Harness,
        options: &ServerOptions,
        (number, socket): (u16, &Address),
    ) -> Result<std::process::Command> {
        let mut command = std::process::Command::new(&harness.programs.isonomia);
        command.args(["serve", "--trust-clients"]).arg("--key-file").arg(&self.endpoints.key_file);
        if options.cluster.is_some() {
            command.arg("--cluster").arg(self.dir.join("cluster.toml")).args(["--name", &server_name(number)]);
            command.arg("--dir").arg(self.dir.join(format!("data-{number}")));
        } else {
            command.args(["--listen", &socket.to_string(), "--listen", "tcp:127.0.0.1:0"]);
            command.arg("--dir").arg(options.files.clone().unwrap_or_else(|| self.dir.join("data")));
        }
        if !options.targets.is_empty() {
            let config = self.dir.join("config.toml");
            std::fs::write(&config, targets(&options.targets))?;
            command.arg("--config").arg(&config);
        }
        if let Some(cap) = options.cap {
            command.args(["--bandwidth", cap.bandwidth, "--per-op", cap.per_op]);
        }
        if let Some(draw) = options.draw {
            command.args(["--draw", draw]);
        }
        if let Some(cache) = options.cache {
            command.args(["--cache", cache]);
        }
        if let Some(workers) = options.workers {
            command.args(["--workers", &workers.to_string()]);
        }
        Ok(command)
    }

    /// Has workers that are started from now on work in this new directory of the root: in a cluster a volume of the server with
    /// this number, whose files are striped if that is wanted.
    pub fn work_in(&mut self, directory: &str, server: Option<u16>, striping: Option<&Striping>) -> Result<()> {
        let client = self.client();
        match server {
            Some(server) => client.make_volume(directory.as_bytes(), DIR_MODE, ServerId(server))?,
            None => client.mkdir(Ino::ROOT, directory.as_bytes(), DIR_MODE)?,
        };
        if let Some(striping) = striping {
            stripe(&client, directory, striping)?;
        }
        self.endpoints.directory = Some(directory.to_owned());
        Ok(())
    }

    /// On which targets the striped files of this directory lie, and how many on each.
    pub fn files_by_target(&self, directory: &str) -> Result<BTreeMap<u16, u64>> {
        let client = self.client();
        let dir = client.look_up(Ino::ROOT, directory.as_bytes(), true)?;
        let mut counts = BTreeMap::new();
        for entry in client.read_dir(dir.capability, 0)?.iter().filter(|entry| entry.kind == FileKind::Regular) {
            let how = OpenHow { access: access::READ, ..OpenHow::default() };
            let file = client.open(dir.capability, &entry.name, &how)?;
            file.layout.targets.iter().for_each(|target| *counts.entry(target.0).or_default() += 1);
            client.release(Ino(file.attr.ino), 0)?;
        }
        Ok(counts)
    }

    /// Makes these directories, each after the one that it is in, with files striped as is said.
    pub fn make_dirs<'p>(&self, paths: impl IntoIterator<Item = (&'p str, Option<Striping>)>) -> Result<()> {
        let client = self.client();
        for (path, striping) in paths {
            client.mkdir(Ino::ROOT, path.as_bytes(), DIR_MODE).with_context(|| path.to_owned())?;
            if let Some(striping) = striping {
                stripe(&client, path, &striping).with_context(|| path.to_owned())?;
            }
        }
        Ok(())
    }

    fn client(&self) -> Client {
        Client::new(ClientConfig {
            addresses: vec![self.endpoints.unix.clone()],
            timeout: CONTROL_TIMEOUT,
            claims: Claims::default(),
            key_file: None,
        })
    }

    fn mount(&mut self, harness: &Harness) -> Result<()> {
        let dir = self.dir.join("mount");
        std::fs::create_dir(&dir)?;
        let mut command = std::process::Command::new(&harness.programs.isonomia);
        command.args(["mount", "--foreground", "--server", &self.endpoints.unix.to_string()]).arg(&dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mount = self.mount.insert(start(&mut command, Signal::TERM)?);
        first_line(mount, harness).context("the server's files cannot be mounted")?;
        self.endpoints.mount = Some(dir);
        Ok(())
    }

    /// Where it listens.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Its state, or that of the first server of several.
    pub fn status(&mut self) -> Result<Status> {
        let first = self.controls.first_mut().context("the server is not connected")?;
        status(first)
    }

    /// The state of each server.
    pub fn statuses(&mut self) -> Result<Vec<Status>> {
        self.controls.iter_mut().map(status).collect()
    }

    /// GIFT's ledger, which the first server has.
    pub fn ledger(&mut self) -> Result<LedgerStatus> {
        let first = self.controls.first_mut().context("the server is not connected")?;
        match ask(first, &ControlRequest::Ledger)? {
            ControlReply::Ledger(ledger) => Ok(*ledger),
            other => bail!("the server answers a question for its ledger by {other:?}"),
        }
    }

    /// Sets the policy, and waits until all servers have it.
    pub fn set_policy(&mut self, policy: &str) -> Result<()> {
        let first = self.controls.first_mut().context("the server is not connected")?;
        let request =
            ControlRequest::SetPolicy { policy: policy.to_owned(), draw: None, only_here: false, instead_of: None };
        let reply = ask(first, &request)?;
        let ControlReply::Policy { policy: set, .. } = reply else { bail!("policy {policy} is not set: {reply:?}") };
        let deadline_ns = now_ns() + POLICY_NS_MAX;
        while !self.statuses()?.iter().all(|status| status.policy == set) {
            ensure!(now_ns() < deadline_ns, "policy {policy} is not set on all servers");
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn stop_all(&mut self) -> Result<()> {
        // The mount first, which needs the server.
        self.mount.as_mut().map_or(Ok(()), |mount| stop("mount", mount))?;
        // All at once, for servers of a cluster tell each other that they go.
        for child in &self.children {
            // Not waited for yet, so the number is the child's.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        self.children.iter_mut().try_for_each(|child| stop("server", child))
    }
}

fn stripe(client: &Client, path: &str, striping: &Striping) -> Result<()> {
    let value = striping.to_string();
    Ok(client.set_xattr(Ino::ROOT, path.as_bytes(), true, XATTR, value.as_bytes(), XattrHow::default())?)
}

fn status(control: &mut ControlConnection) -> Result<Status> {
    match ask(control, &ControlRequest::Status)? {
        ControlReply::Status(status) => Ok(*status),
        other => bail!("the server answers a question for its status by {other:?}"),
    }
}

fn ask(control: &mut ControlConnection, request: &ControlRequest) -> Result<ControlReply> {
    control.ask(request).context("the server does not answer")
}

fn server_name(number: u16) -> String {
    format!("io{number}")
}

/// A cluster of servers that listen on these sockets.
fn cluster_file(sockets: &[Address], options: &ServerOptions) -> String {
    let ServerOptions { cluster_settings, cluster_targets, .. } = options;
    let mut text = format!("name = \"bench\"\nepoch = 1\n{cluster_settings}\n");
    let targets = cluster_targets.unwrap_or(1);
    for (number, socket) in (1..).zip(sockets) {
        let name = server_name(number);
        // A basic string of TOML is quoted as Rust quotes one.
        text += &format!("[[server]]\nname = {name:?}\nnumber = {number}\nlisten = [{:?}]\n", socket.to_string());
        text += &format!("targets = {targets}\n");
    }
    text
}

/// The part of a configuration that names targets.
fn targets(dirs: &[PathBuf]) -> String {
    // A basic string of TOML is quoted as Rust quotes one.
    dirs.iter().map(|dir| format!("[[targets]]\ndir = {:?}\n", dir.display().to_string())).collect()
}

/// The line by which a program says that it is ready.
pub fn first_line(child: &mut Child, harness: &Harness) -> Result<String> {
    let stdout = child.stdout.take().context("it has no standard output")?;
    let (sender, receiver) = mpsc::channel();
    // Ends with the program at the latest, for then the pipe is closed.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line).map(|_| line);
        // Nobody receives if the program took too long.
        let _ = sender.send(read);
    });
    let deadline_ns = now_ns() + START_NS_MAX;
    while now_ns() < deadline_ns {
        harness.check()?;
        match receiver.recv_timeout(POLL) {
            Ok(line) => return Ok(line?).and_then(|line| if line.is_empty() { bail!("it ended") } else { Ok(line) }),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("it ended"),
        }
    }
    bail!("it says nothing")
}

/// Ends a program by SIGTERM, or by SIGKILL if it does not obey.
pub fn stop(name: &str, child: &mut Child) -> Result<()> {
    let deadline_ns = now_ns() + STOP_NS_MAX;
    // Not waited for yet, so the number is the child's.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    while child.try_wait()?.is_none() {
        if now_ns() > deadline_ns {
            eprintln!("isonomia-bench: the {name} does not end within {} s of SIGTERM", STOP_NS_MAX / 1_000_000_000);
            child.kill()?;
            child.wait()?;
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let stopped = self.stop_all();
        let removed = self.files.iter().chain([&self.dir]).try_for_each(std::fs::remove_dir_all);
        if let Err(error) = stopped.and_then(|()| Ok(removed?)) {
            eprintln!("isonomia-bench: cannot clean up after the server: {error:#}");
        }
    }
}
