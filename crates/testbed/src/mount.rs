//! A mount, served by a process of its own.

use crate::product::isonomia;
use crate::server::TestServer;
use crate::skipping::on_search_path;
use crate::{is_root_to, skip, start};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A mount of a server.
#[derive(Debug)]
pub struct TestMount {
    process: Child,
    mount_point: PathBuf,
}

/// Why nothing can be mounted here; `None` if it can.
pub fn why_no_mount() -> Option<String> {
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse cannot be opened: {error}"));
    }
    let needs_program = !rustix::process::geteuid().is_root();
    (needs_program && !on_search_path("fusermount3")).then(|| "fusermount3 is not installed".to_owned())
}

/// Whether mounts are possible here; if not, the test is skipped.
pub fn can_mount() -> bool {
    let reason = why_no_mount();
    reason.iter().for_each(|reason| skip(reason));
    reason.is_none()
}

/// Whether mounts for everybody are possible here, and programs of other users; as [`can_mount`].
pub fn can_mount_for_all() -> bool {
    is_root_to("become other users") && can_mount()
}

impl TestMount {
    pub(crate) fn start(server: &TestServer, mount_point: PathBuf, words: &str) -> Self {
        Self::start_by(isonomia(), server, mount_point, words)
    }

    /// As user `uid`, who must be able to run the program. As root only.
    pub(crate) fn start_as(uid: u32, server: &TestServer, mount_point: PathBuf) -> Self {
        std::os::unix::fs::chown(&mount_point, Some(uid), Some(uid)).expect("the mount point's owner");
        let mut command = isonomia();
        command.uid(uid).gid(uid);
        Self::start_by(command, server, mount_point, "")
    }

    fn start_by(mut command: Command, server: &TestServer, mount_point: PathBuf, words: &str) -> Self {
        command.args(["mount", "--foreground", "--server", &server.address(), "-o", words]).arg(&mount_point);
        Self { process: start(command), mount_point }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Kills the process that serves it.
    pub fn kill(&mut self) {
        self.process.kill().expect("the process can be killed");
        self.process.wait().expect("the process ends");
    }

    /// Stops the process that serves it, until [`Self::resume`]: none of its threads runs any more.
    pub fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
        let pid = rustix::process::Pid::from_child(&self.process);
        let stopped = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED);
        assert!(stopped.is_ok_and(|status| status.is_some_and(|(_, status)| status.stopped())), "the process stops");
    }

    /// Lets the process go on.
    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).expect("a signal can be sent");
    }

    /// Asks the process to end; gives whether it said that all went well.
    pub fn terminate(&mut self) -> bool {
        self.signal(rustix::process::Signal::TERM);
        self.process.wait().expect("the process ends").success()
    }

    /// Waits until the process ends because the mount did.
    pub fn wait(&mut self) -> bool {
        self.process.wait().expect("the process ends").success()
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.terminate();
        }
        // Whatever a failed test left: a mount whose process is gone.
        let _ = rustix::mount::unmount(&self.mount_point, rustix::mount::UnmountFlags::DETACH);
    }
}
