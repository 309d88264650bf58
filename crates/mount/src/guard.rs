//! A process that stands guard over a mount whose process may be killed.
//!
//! A thread that has the kernel drop mapped pages waits, whatever signal comes, until pages on their way to the server
//! have been taken: by threads of the same process. If all of them are killed, the one that waits keeps the connection
//! to the kernel open, so that the kernel never notices that nobody serves it: the process does not end, and programs
//! hang. Somebody else has to end the connection.
//!
//! The guard is started before there is a connection, so it keeps none open. The kernel tells it of the death of the
//! mount's main thread by a signal (PR_SET_PDEATHSIG speaks of the *thread* that started a process). A file descriptor
//! of the process (pidfd) would not do: it tells, like everything that a process has open, of the last thread's death
//! only; since Linux 6.15 also with PIDFD_THREAD. What the guard has at hand then is the connection's own file `abort`,
//! opened while the mount lived: it is never another connection's, whatever became of the mount meanwhile. The mount
//! stays where it is, so that programs get ENOTCONN and do not see the directory beneath.

use crate::caller::stat_field;
use crate::mount_point::{self, FILE_SYSTEM_TYPE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{Pid, PidfdFlags, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process whose main thread has ended is usually gone within this time.
const END_MAX: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// The state, in proc_pid_stat(5).
const STATE: usize = 3;
/// Where the file system with a directory for each FUSE connection is, if it is mounted.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
const CONNECTIONS_TYPE: &str = "fusectl";

/// The guard over this process's mount.
#[derive(Debug)]
pub struct Guard {
    process: Child,
}

impl Guard {
    /// Starts a guard over this process: `command` is to call [`stand_guard`] in a process of its own. Must be called by
    /// the main thread, before anything is mounted. A guard that is dropped before it is told of a mount is ended.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let process = command.stdin(Stdio::piped()).stdout(Stdio::null()).current_dir("/").spawn()?;
        Ok(Self { process })
    }

    /// Tells the guard of the mount that it is to end if this process is killed.
    pub fn watch(&mut self, mount_point: &Path) -> io::Result<()> {
        let found = mount_point::topmost(mount_point)?.filter(|found| found.kind == FILE_SYSTEM_TYPE.as_bytes());
        let minor = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?.minor;
        let mut told = self.process.stdin.take().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        writeln!(told, "{minor}")
    }

    /// Ends the guard: the mount is no more.
    pub fn dismiss(mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.process.stdin.is_some() {
            // It would end by itself, but as a child of whoever takes in orphans.
            let _ = self.process.kill().and_then(|()| self.process.wait());
        }
    }
}

/// Stands guard over the mount of this process's parent, whose id must be `parent`, until that has ended; standard input
/// names the mount.
pub fn stand_guard(parent: u32) -> io::Result<()> {
    // A signal to end that is sent to all processes of a service or a terminal is for the mount, and must not end its guard:
    // it is taken here, and the guard ends after the mount.
    let mut signals = Signals::new([SIGUSR1, SIGTERM, SIGINT, SIGHUP])?;
    rustix::process::setsid()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::USR1))?;
    let pid = i32::try_from(parent).ok().and_then(Pid::from_raw).ok_or(Errno::INVAL)?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty());
    if rustix::process::getppid() != Some(pid) {
        // It has ended already, and the id may be another's.
        return Ok(());
    }
    let process = process?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let Ok(minor) = line.trim_end().parse() else {
        // There is no mount.
        return Ok(());
    };
    let abort = open_abort(minor)?;
    // Whatever signal comes, the state of the process is looked at. The first look finds what happened before signals were
    // taken here.
    while !ends(&process)? {
        if has_no_main_thread(parent) {
            tracing::warn!("the process of the mount was killed and does not end: ending its connection to the kernel");
            rustix::io::write(&abort, b"1")?;
            return Ok(());
        }
        signals.wait();
    }
    Ok(())
}

/// Whether the process ends soon.
fn ends(process: &OwnedFd) -> io::Result<bool> {
    let mut wanted = [PollFd::new(process, PollFlags::IN)];
    Ok(rustix::io::retry_on_intr(|| poll(&mut wanted, Some(&END_MAX)))? > 0)
}

/// Whether the main thread of a process has ended, and others have not.
fn has_no_main_thread(parent: u32) -> bool {
    stat_field(parent, STATE).is_some_and(|state| matches!(&*state, "Z" | "X"))
}

/// The file that ends a connection. The user who mounted may open it where the file system of connections is mounted;
/// the administrator anywhere.
fn open_abort(minor: u32) -> io::Result<OwnedFd> {
    let path = format!("{minor}/abort");
    let open =
        |connections: &OwnedFd| rustix::fs::openat(connections, &path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mounted = rustix::fs::openat(CWD, CONNECTIONS, directory, Mode::empty());
    let outcome = mounted.and_then(|connections| open(&connections)).or_else(|_| open(&mount_connections()?));
    outcome.map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("{CONNECTIONS}/{path}: {error} (is {CONNECTIONS_TYPE} mounted?)"))
    })
}

/// The file system of connections, mounted nowhere.
fn mount_connections() -> Result<OwnedFd, Errno> {
    let context = fsopen(CONNECTIONS_TYPE, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}
