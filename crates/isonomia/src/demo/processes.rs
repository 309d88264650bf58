//! The processes of the demo: each ends when its guard is dropped, and with the demo however that ends.

use super::{DemoJob, Servers};
use crate::cluster::trial::{description, make_key};
use crate::ready;
use anyhow::{Context, Result, bail, ensure};
use isonomia_client::{Claims, Client, ClientConfig, Ino, XattrHow};
use isonomia_proto::striping::{Striping, XATTR};
use isonomia_server::usable_cluster_file;
use isonomia_transport::address::Address;
use isonomia_units::Nanos;
use rustix::process::{Pid, Signal};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);
/// Where jobs see the servers' files.
const PREFIX: &str = "/isonomia";
/// The directory whose files are striped.
const VOLUME: &str = "demo";
const STRIPED: &str = "/isonomia/demo";
/// How long a server may take to make a directory.
const TIMEOUT: Nanos = Nanos::from_secs(10);
/// Size of each process's file.
pub const FILE_MIB: u64 = 128;
/// One `dd` after the other, each over the same file; the first that fails ends it.
const DD_LOOP: &str = "while dd if=/dev/zero of=\"$1\" bs=1M count=\"$2\" conv=notrunc status=none; do :; done; exit 1";
/// Standard error of a job that failed is shown up to this length.
const COMPLAINT_LEN_MAX: u64 = 4096;

/// Servers of the demo's own, with their directories in memory.
pub struct ServerProcesses {
    groups: Vec<ProcessGroup>,
    addresses: Vec<Address>,
    /// Where jobs have their files, as they see it.
    files: &'static str,
    /// Holds sockets, and what makes several servers a cluster.
    _dir: tempfile::TempDir,
}

impl ServerProcesses {
    /// Starts servers with an emulated device each, and waits until they listen. Their logs go to `out`.
    pub fn start(out: &Path, servers: Servers, per_op: &str, patience: Duration) -> Result<Self> {
        let dir = tempfile::tempdir().context("no temporary directory for the servers' sockets")?;
        let (file, key) = (dir.path().join("cluster.toml"), dir.path().join("key"));
        // The address of each, its log, and how it gets to know what it is.
        let mut each: Vec<(Address, PathBuf, Vec<OsString>)> = Vec::new();
        if servers.are_several() {
            make_key(&key)?;
            std::fs::write(&file, description(dir.path(), servers.count(), 1, false)?)?;
            for server in usable_cluster_file(&file)?.servers() {
                let address = server.listen.first().context("a server without an address")?.clone();
                let arguments: [&OsStr; 6] = [
                    "--cluster".as_ref(),
                    file.as_ref(),
                    "--name".as_ref(),
                    OsStr::new(&*server.name),
                    "--key-file".as_ref(),
                    key.as_ref(),
                ];
                let arguments = arguments.map(OsStr::to_owned).into();
                each.push((address, out.join(format!("{}.log", server.name)), arguments));
            }
        } else {
            let address: Address = format!("unix:{}/server.sock", dir.path().display()).parse()?;
            let arguments = vec!["--listen".into(), address.to_string().into()];
            each.push((address, out.join("server.log"), arguments));
        }
        let mut started = Self { groups: Vec::new(), addresses: Vec::new(), files: PREFIX, _dir: dir };
        for (_, log_path, arguments) in &each {
            let log = File::create(log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
            let mut command = own_program()?;
            command.args(["serve", "--policy", "fifo", "--trust-clients"]).args(arguments);
            command.args(["--bandwidth", &servers.bandwidth(), "--per-op", per_op]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
            started.groups.push(ProcessGroup::start(&mut command)?);
        }
        // Servers of a cluster wait for each other, so all are there before one is waited for.
        for ((address, log_path, _), group) in each.into_iter().zip(&mut started.groups) {
            let is_ready = ready::wait(&mut group.child, patience);
            ensure!(is_ready, "a server did not start; its log is {}", log_path.display());
            started.addresses.push(address);
        }
        if servers.are_several() {
            started.files = started.stripe(servers).context("cannot stripe files over the servers")?;
        }
        Ok(started)
    }

    /// Makes a directory whose files are striped over all servers; its path as the jobs see it.
    fn stripe(&self, servers: Servers) -> Result<&'static str> {
        let config = ClientConfig {
            addresses: self.addresses.clone(),
            timeout: TIMEOUT,
            claims: Claims::default(),
            key_file: None,
        };
        let client = Client::new(config);
        client.mkdir(Ino::ROOT, VOLUME.as_bytes(), 0o755)?;
        let count = usize::from(servers.count());
        let striping = Striping { stripe_bytes: servers.stripe_bytes(), ..Striping::over(count) }.to_string();
        client.set_xattr(Ino::ROOT, VOLUME.as_bytes(), true, XATTR, striping.as_bytes(), XattrHow::default())?;
        Ok(STRIPED)
    }

    /// Where each listens.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Starts the processes of a job.
    pub fn enter(&self, job: &DemoJob) -> Result<JobProcesses> {
        let address = self.addresses.first().context("no server")?;
        JobProcesses::start(address, self.files, job)
    }

    /// Ends them, so that they clean up after themselves.
    pub fn stop(&mut self) {
        self.groups.iter_mut().for_each(ProcessGroup::end);
    }
}

/// The processes of one job, each writing its own file.
pub struct JobProcesses {
    name: &'static str,
    groups: Vec<ProcessGroup>,
}

impl JobProcesses {
    /// Starts all of them.
    fn start(server: &Address, files: &str, job: &DemoJob) -> Result<Self> {
        let mut groups = Vec::new();
        for process in 0..job.processes {
            let mut command = own_program()?;
            command.args(["run", "--server", &server.to_string(), "--prefix", PREFIX, "--timeout", "10s"]);
            command.args(["--job", job.name, "--user", job.user, "--nodes", &job.nodes.to_string()]);
            let file = format!("{files}/{}-{process}", job.name);
            command.args(["--", "sh", "-c", DD_LOOP, "sh", &file, &FILE_MIB.to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            groups.push(ProcessGroup::start(&mut command)?);
        }
        Ok(Self { name: job.name, groups })
    }

    /// An error if one of them has ended.
    pub fn check(&mut self) -> Result<()> {
        for group in &mut self.groups {
            if let Some(status) = group.child.try_wait()? {
                let mut complaint = String::new();
                if let Some(stderr) = group.child.stderr.take() {
                    stderr.take(COMPLAINT_LEN_MAX).read_to_string(&mut complaint)?;
                }
                bail!("a process of job {} ended ({status}): {}", self.name, complaint.trim());
            }
        }
        Ok(())
    }
}

/// A child and what it starts, in a process group of their own.
struct ProcessGroup {
    child: Child,
}

impl ProcessGroup {
    fn start(command: &mut Command) -> Result<Self> {
        // Out of the terminal's foreground group: Ctrl-C reaches the demo, which ends the others in order.
        command.process_group(0);
        // SAFETY: between fork and exec only one system call is made, and nothing is allocated.
        unsafe {
            command
                .pre_exec(|| rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).map_err(Into::into));
        }
        let child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { child })
    }

    fn end(&mut self) {
        let group = Pid::from_child(&self.child);
        // An error says that it is gone already.
        let _ = rustix::process::kill_process_group(group, Signal::TERM);
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < GRACE {
            std::thread::sleep(POLL);
        }
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.end();
    }
}

fn own_program() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot tell where this program is")?))
}
