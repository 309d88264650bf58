//! The servers of a cluster for trials as processes, and the record of them that outlives who started them.
//!
//! A process is its number and the time when it began, in one run of the host: numbers are used again, and nobody but a
//! server that was started here is ever sent a signal.

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// A killed process has this long to be gone.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// Servers that were started together.
#[derive(Debug, Serialize, Deserialize)]
pub struct Processes {
    /// Which run of the host it was.
    boot: String,
    servers: Vec<ServerProcess>,
}

/// One of them.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServerProcess {
    /// Its name in the cluster file.
    pub name: String,
    pid: i32,
    /// When it began, in the kernel's ticks.
    start_ticks: u64,
}

/// How a server came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Before.
    ByItself,
    /// When it was asked.
    Asked,
    /// When it was killed.
    Killed,
    /// It was killed, and waits for something.
    NotYet,
}

impl Processes {
    /// None so far.
    pub fn new() -> Result<Self> {
        Ok(Self { boot: boot()?, servers: Vec::new() })
    }

    /// What [`Self::write`] left there; `None` if there is nothing.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.with_context(|| format!("cannot read {}", path.display()))?,
        };
        serde_json::from_slice(&text).map(Some).with_context(|| format!("{} is no record of processes", path.display()))
    }

    /// Replaces the file as a whole.
    pub fn write(&self, path: &Path) -> Result<()> {
        let beside = path.with_extension("new");
        std::fs::write(&beside, serde_json::to_vec_pretty(self)?)
            .and_then(|()| std::fs::rename(&beside, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Adds a child that was not waited for.
    pub fn add(&mut self, name: &str, child: &Child) -> Result<()> {
        let pid = Pid::from_child(child).as_raw_nonzero().get();
        let start_ticks = stat(pid).context("a process that was just started is gone")?.start_ticks;
        self.servers.push(ServerProcess { name: name.to_owned(), pid, start_ticks });
        Ok(())
    }

    /// Those that are still there.
    pub fn running(&self) -> Vec<&ServerProcess> {
        self.servers.iter().filter(|server| self.handle(server).is_some()).collect()
    }

    /// Asks all that are there to end, and kills those that have not within `patience`. How each ended, in order.
    pub fn end(&self, patience: Duration) -> Vec<(&str, Ended)> {
        let handles: Vec<Option<OwnedFd>> = self.servers.iter().map(|server| self.handle(server)).collect();
        let send = |handle: &OwnedFd, signal| {
            // An error says that it is gone.
            let _ = pidfd_send_signal(handle, signal);
        };
        handles.iter().flatten().for_each(|handle| send(handle, Signal::TERM));
        let deadline = Instant::now() + patience;
        let mut ended = Vec::new();
        for (server, handle) in self.servers.iter().zip(&handles) {
            let how = match handle {
                None => Ended::ByItself,
                Some(handle) if is_gone_by(handle, deadline) => Ended::Asked,
                Some(handle) => {
                    send(handle, Signal::KILL);
                    let is_gone = is_gone_by(handle, Instant::now() + KILLED_WITHIN);
                    if is_gone { Ended::Killed } else { Ended::NotYet }
                }
            };
            ended.push((server.name.as_str(), how));
        }
        ended
    }

    /// A handle on the process, if it is there: the one that was started, and no other of its number.
    fn handle(&self, server: &ServerProcess) -> Option<OwnedFd> {
        if boot().is_ok_and(|boot| boot != self.boot) {
            return None;
        }
        // First the handle: from then on the number is that of this process.
        let handle = pidfd_open(Pid::from_raw(server.pid)?, PidfdFlags::empty()).ok()?;
        let stat = stat(server.pid).ok()?;
        (stat.start_ticks == server.start_ticks && !stat.is_zombie).then_some(handle)
    }
}

/// Whether the process has ended, which is waited for until `deadline`.
fn is_gone_by(handle: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            found => return found.is_ok_and(|ready| ready > 0),
        }
    }
}

/// What `/proc/PID/stat` says of a process.
struct Stat {
    is_zombie: bool,
    start_ticks: u64,
}

fn stat(pid: i32) -> Result<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The program's name is in parentheses, and may have anything in it.
    let (_, fields) = text.rsplit_once(") ").context("not what the kernel writes")?;
    let mut fields = fields.split(' ');
    let is_zombie = fields.next() == Some("Z");
    // Field 22, and the state was the third.
    let start_ticks = fields.nth(18).and_then(|ticks| ticks.parse().ok()).context("not what the kernel writes")?;
    Ok(Stat { is_zombie, start_ticks })
}

/// Differs from one run of the host to the next.
fn boot() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    Ok(std::fs::read_to_string(path).with_context(|| path.to_owned())?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn those_that_were_started_are_ended_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("processes.json");
        assert!(Processes::read(&path).unwrap().is_none());
        let (mut first, mut second, mut stranger) = (sleeper(), sleeper(), sleeper());
        let mut processes = Processes::new().unwrap();
        for (name, child) in [("first", &first), ("second", &second), ("stranger", &stranger)] {
            processes.add(name, child).unwrap();
        }
        // As if the number had been given to another process since.
        processes.servers[2].start_ticks -= 1;
        second.kill().unwrap();
        second.wait().unwrap();
        processes.write(&path).unwrap();
        let processes = Processes::read(&path).unwrap().unwrap();
        assert_eq!(processes.running().iter().map(|server| &*server.name).collect::<Vec<_>>(), ["first"]);
        let ended = processes.end(Duration::from_secs(20));
        assert_eq!(ended, [("first", Ended::Asked), ("second", Ended::ByItself), ("stranger", Ended::ByItself)]);
        assert!(first.wait().unwrap().code().is_none());
        assert!(stranger.try_wait().unwrap().is_none());
        let after_a_reboot = Processes { boot: "another".to_owned(), ..Processes::read(&path).unwrap().unwrap() };
        assert!(after_a_reboot.running().is_empty());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn whoever_does_not_listen_is_killed() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' TERM; echo; exec sleep 600"]);
        let mut child = shell.stdout(Stdio::piped()).spawn().unwrap();
        // Until it says something.
        crate::ready::wait(&mut child, Duration::from_secs(20));
        let mut processes = Processes::new().unwrap();
        processes.add("deaf", &child).unwrap();
        assert_eq!(processes.end(Duration::from_millis(50)), [("deaf", Ended::Killed)]);
        child.wait().unwrap();
    }
}
