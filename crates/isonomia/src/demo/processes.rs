//! The processes of the demo: each ends when its guard is dropped, and with the demo however that ends.

use super::DemoJob;
use crate::ready;
use anyhow::{Context, Result, bail, ensure};
use isonomia_transport::address::Address;
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);
/// Size of each process's file.
pub const FILE_MIB: u64 = 128;
/// One `dd` after the other, each over the same file; the first that fails ends it.
const DD_LOOP: &str = "while dd if=/dev/zero of=\"$1\" bs=1M count=\"$2\" conv=notrunc status=none; do :; done; exit 1";
/// Standard error of a job that failed is shown up to this length.
const COMPLAINT_LEN_MAX: u64 = 4096;

/// A server of the demo's own, with its directory in memory.
pub struct ServerProcess {
    group: ProcessGroup,
    address: Address,
    /// Holds the socket.
    _dir: tempfile::TempDir,
}

impl ServerProcess {
    /// Starts a server with one emulated target, and waits until it listens. Its log goes to `out`.
    pub fn start(out: &Path, bandwidth: &str, per_op: &str, patience: Duration) -> Result<Self> {
        let dir = tempfile::tempdir().context("no temporary directory for the server's socket")?;
        let address: Address = format!("unix:{}/server.sock", dir.path().display()).parse()?;
        let log_path = out.join("server.log");
        let log = File::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
        let mut command = own_program()?;
        command.args(["serve", "--policy", "fifo", "--trust-clients", "--listen", &address.to_string()]);
        command.args(["--bandwidth", bandwidth, "--per-op", per_op]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut group = ProcessGroup::start(&mut command)?;
        let is_ready = ready::wait(&mut group.child, patience);
        ensure!(is_ready, "the server did not start; its log is {}", log_path.display());
        Ok(Self { group, address, _dir: dir })
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Ends it, so that it cleans up after itself.
    pub fn stop(&mut self) {
        self.group.end();
    }
}

/// The processes of one job, each writing its own file.
pub struct JobProcesses {
    name: &'static str,
    groups: Vec<ProcessGroup>,
}

impl JobProcesses {
    /// Starts all of them.
    pub fn start(server: &Address, job: &DemoJob) -> Result<Self> {
        let mut groups = Vec::new();
        for process in 0..job.processes {
            let mut command = own_program()?;
            command.args(["run", "--server", &server.to_string(), "--prefix", "/isonomia", "--timeout", "10s"]);
            command.args(["--job", job.name, "--user", job.user, "--nodes", &job.nodes.to_string()]);
            let file = format!("/isonomia/{}-{process}", job.name);
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
