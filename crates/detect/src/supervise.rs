//! Looks at every call that the filter stops, and lets it go on.

use crate::calls::{self, Call, PathArgument};
use crate::path::Prefix;
use anyhow::{Context, Result};
use libc::{seccomp_notif, seccomp_notif_resp};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// The longest path, with its NUL.
const PATH_LEN_MAX: usize = libc::PATH_MAX as usize;
/// A page at least: memory is there or not by pages.
const PIECE_LEN: u64 = 4096;

/// What was seen of a command.
#[derive(Debug, Default)]
pub struct Leaks {
    /// Whether anything was watched.
    pub is_watched: bool,
    /// Calls that named a path below the prefix.
    pub count: usize,
}

/// Watches until the command, and everything that it started, has ended. One line of `report` for each leak.
pub fn watch(listener: &Option<OwnedFd>, prefix: &Prefix, report: &mut dyn Write) -> Result<Leaks> {
    let Some(listener) = listener else { return Ok(Leaks::default()) };
    let mut leaks = Leaks { is_watched: true, count: 0 };
    loop {
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        match rustix::event::poll(&mut polled, None) {
            Err(Errno::INTR) => continue,
            polled => polled.context("cannot wait for system calls")?,
        };
        let events = polled[0].revents();
        if events.contains(PollFlags::IN) {
            if let Some(stopped) = receive(listener)? {
                let found = leaked(&stopped, prefix);
                if is_stopped(listener, &stopped) {
                    leaks.count += found.len();
                    for leak in found {
                        writeln!(report, "{leak}").context("cannot report")?;
                    }
                }
                go_on(listener, &stopped)?;
            }
        } else if events.intersects(PollFlags::HUP | PollFlags::ERR) {
            report.flush().context("cannot report")?;
            return Ok(leaks);
        }
    }
}

/// The next stopped call; none if its thread was killed meanwhile.
fn receive(listener: &OwnedFd) -> Result<Option<seccomp_notif>> {
    // SAFETY: zeros are a value of this structure of numbers, and what the kernel asks for.
    let mut stopped: seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is the one that this command fills.
    let received = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut stopped) };
    if received == 0 {
        return Ok(Some(stopped));
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EINTR) => Ok(None),
        _ => Err(error).context("cannot receive a system call"),
    }
}

/// Whether the thread waits in the call still, so that what was read of its memory is what the call names: a signal may
/// have taken it out, and by then it may have put another path at the same address.
fn is_stopped(listener: &OwnedFd, stopped: &seccomp_notif) -> bool {
    // SAFETY: this command reads a number.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const stopped.id) == 0 }
}

fn go_on(listener: &OwnedFd, stopped: &seccomp_notif) -> Result<()> {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut response = seccomp_notif_resp { id: stopped.id, val: 0, error: 0, flags };
    // SAFETY: the structure is the one that this command reads.
    let sent = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response) };
    let error = std::io::Error::last_os_error();
    match (sent, error.raw_os_error()) {
        // The thread was killed, or a signal took it out of the call.
        (0, _) | (_, Some(libc::ENOENT | libc::EINPROGRESS)) => Ok(()),
        _ => Err(error).context("cannot let a system call go on"),
    }
}

/// A line for each path of the call that leads below the prefix.
fn leaked(stopped: &seccomp_notif, prefix: &Prefix) -> Vec<String> {
    let Some(call) = calls::all().find(|call| call.number == stopped.data.nr.into()) else { return Vec::new() };
    let paths = call.paths.iter().filter_map(|argument| leaked_path(stopped, *argument, prefix));
    paths.map(|path| line(call, &path, stopped.pid)).collect()
}

fn leaked_path(stopped: &seccomp_notif, argument: PathArgument, prefix: &Prefix) -> Option<Vec<u8>> {
    let path = read_string(stopped.pid, *stopped.data.args.get(argument.path)?)?;
    let directory = argument.directory.and_then(|index| stopped.data.args.get(index)).map(|fd| *fd as i32);
    let link = match directory.filter(|fd| *fd != libc::AT_FDCWD) {
        Some(fd) => format!("/proc/{}/fd/{fd}", stopped.pid),
        None => format!("/proc/{}/cwd", stopped.pid),
    };
    let base = std::fs::read_link(link).ok();
    prefix.contains(base.as_ref().map(|base| base.as_os_str().as_bytes()), &path).then_some(path)
}

fn line(call: &Call, path: &[u8], pid: u32) -> String {
    let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("leak: {} \"{}\" by {} ({pid})", call.name, path.escape_ascii(), program.trim_end())
}

/// The string at `address` of a process; none if it is not all there.
fn read_string(pid: u32, address: u64) -> Option<Vec<u8>> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut text = Vec::new();
    while text.len() < PATH_LEN_MAX {
        let at = address.checked_add(text.len() as u64)?;
        let mut piece = [0; PIECE_LEN as usize];
        let room = (PIECE_LEN - at % PIECE_LEN) as usize;
        let len = memory.read_at(&mut piece[..room], at).ok().filter(|len| *len > 0)?;
        match piece[..len].iter().position(|b| *b == 0) {
            Some(end) => {
                text.extend_from_slice(&piece[..end]);
                return Some(text);
            }
            None => text.extend_from_slice(&piece[..len]),
        }
    }
    None
}
