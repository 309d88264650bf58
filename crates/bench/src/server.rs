//! The server under test: `isonomia serve`, ended when dropped.

use crate::clock::now_ns;
use crate::session::{Session, start};
use crate::way::Endpoints;
use anyhow::{Context, Result, bail, ensure};
use isonomia_client::Address;
use isonomia_proto::control::{ControlReply, ControlRequest, Status};
use isonomia_transport::control::ControlConnection;
use isonomia_transport::key::fresh_nonce;
use isonomia_units::Nanos;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
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
    /// Where its files are; in the session's directory if absent. It is made, and removed at the end.
    pub files: Option<PathBuf>,
    /// Directories of its targets, made and removed in the same way; one target beside its metadata if empty.
    pub targets: Vec<PathBuf>,
}

/// An emulated device.
#[derive(Clone, Copy, Debug)]
pub struct Cap {
    /// `--bandwidth`.
    pub bandwidth: &'static str,
    /// `--per-op`.
    pub per_op: &'static str,
}

/// A running server.
pub struct ServerProcess {
    child: Child,
    mount: Option<Child>,
    dir: PathBuf,
    /// Directories elsewhere.
    files: Vec<PathBuf>,
    endpoints: Endpoints,
    control: Option<ControlConnection>,
}

/// The line that a server prints once it listens.
#[derive(Deserialize)]
struct Announcement {
    listen: Vec<Address>,
}

impl ServerProcess {
    /// Starts a server named `name` with its files in the session's directory; its log goes to `log`.
    pub fn start(session: &Session, name: &str, options: &ServerOptions, log: &Path) -> Result<Self> {
        let dir = session.scratch().join(name);
        std::fs::create_dir(&dir)?;
        let key_file = dir.join("key");
        let mut key = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key_file)?;
        key.write_all(&fresh_nonce()?)?;
        let unix: Address = format!("unix:{}", dir.join("socket").display()).parse()?;
        let mut command = std::process::Command::new(&session.programs.isonomia);
        command.args(["serve", "--trust-clients", "--listen", &unix.to_string(), "--listen", "tcp:127.0.0.1:0"]);
        let data = options.files.clone().unwrap_or_else(|| dir.join("data"));
        command.arg("--dir").arg(&data).arg("--key-file").arg(&key_file);
        if !options.targets.is_empty() {
            let config = dir.join("config.toml");
            std::fs::write(&config, targets(&options.targets))?;
            command.arg("--config").arg(&config);
        }
        if let Some(cap) = options.cap {
            command.args(["--bandwidth", cap.bandwidth, "--per-op", cap.per_op]);
        }
        if let Some(workers) = options.workers {
            command.args(["--workers", &workers.to_string()]);
        }
        let log_file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
        let child = start(&mut command, Signal::TERM)?;
        let endpoints = Endpoints { tcp: unix.clone(), unix, key_file, mount: None };
        // From here on the child is ended whatever happens.
        let files = options.files.iter().chain(&options.targets).cloned().collect();
        let mut server = Self { child, mount: None, dir, files, endpoints, control: None };
        let line = first_line(&mut server.child, session)
            .with_context(|| format!("the server did not start; its log is {}", log.display()))?;
        let announcement: Announcement = serde_json::from_str(&line)?;
        let tcp = announcement.listen.into_iter().find(|address| matches!(address, Address::Tcp(_)));
        server.endpoints.tcp = tcp.context("the server does not listen on TCP")?;
        server.control = Some(ControlConnection::connect(&server.endpoints.unix, None, CONTROL_TIMEOUT)?);
        if options.mount {
            server.mount(session)?;
        }
        Ok(server)
    }

    fn mount(&mut self, session: &Session) -> Result<()> {
        let dir = self.dir.join("mount");
        std::fs::create_dir(&dir)?;
        let mut command = std::process::Command::new(&session.programs.isonomia);
        command.args(["mount", "--foreground", "--server", &self.endpoints.unix.to_string()]).arg(&dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mount = self.mount.insert(start(&mut command, Signal::TERM)?);
        first_line(mount, session).context("the server's files cannot be mounted")?;
        self.endpoints.mount = Some(dir);
        Ok(())
    }

    /// Where it listens.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Its state.
    pub fn status(&mut self) -> Result<Status> {
        match self.ask(&ControlRequest::Status)? {
            ControlReply::Status(status) => Ok(*status),
            other => bail!("the server answers a question for its status by {other:?}"),
        }
    }

    /// Sets its policy.
    pub fn set_policy(&mut self, policy: &str) -> Result<()> {
        let reply = self.ask(&ControlRequest::SetPolicy { policy: policy.to_owned(), draw: None, only_here: false })?;
        ensure!(matches!(reply, ControlReply::Policy { .. }), "policy {policy} is not set: {reply:?}");
        Ok(())
    }

    fn ask(&mut self, request: &ControlRequest) -> Result<ControlReply> {
        let control = self.control.as_mut().context("the server is not connected")?;
        control.ask(request).context("the server does not answer")
    }

    fn stop_all(&mut self) -> Result<()> {
        // The mount first, which needs the server.
        self.mount.as_mut().map_or(Ok(()), |mount| stop("mount", mount))?;
        stop("server", &mut self.child)
    }
}

/// The part of a configuration that names targets.
fn targets(dirs: &[PathBuf]) -> String {
    // A basic string of TOML is quoted as Rust quotes one.
    dirs.iter().map(|dir| format!("[[targets]]\ndir = {:?}\n", dir.display().to_string())).collect()
}

/// The line by which a program says that it is ready.
pub fn first_line(child: &mut Child, session: &Session) -> Result<String> {
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
        session.check()?;
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
