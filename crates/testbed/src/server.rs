//! A server in a process of its own.

use crate::mount::TestMount;
use crate::product::{built, isonomia, library};
use crate::{TIMEOUT_S, start};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Where the server's files appear to preloaded programs.
pub const PREFIX: &str = "/isonomia";

/// A server on a directory of its own.
#[derive(Debug)]
pub struct TestServer {
    process: Option<Child>,
    home: tempfile::TempDir,
}

impl TestServer {
    /// Starts a server and waits until it says that it is ready.
    pub fn start() -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        for name in ["data", "mount", "elsewhere", "local"] {
            std::fs::create_dir(home.path().join(name)).expect("a directory");
        }
        // Programs of other users pass through here.
        std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).expect("permissions");
        let mut server = Self { process: None, home };
        server.restart();
        server
    }

    /// Starts the server, again if it ran.
    pub fn restart(&mut self) {
        self.kill();
        let mut command = isonomia();
        command.arg("serve").arg("--dir").arg(self.path("data")).args(["--listen", &self.address()]);
        self.process = Some(start(command));
    }

    /// Kills the server at once.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("the server can be killed");
            process.wait().expect("the server ends");
        }
    }

    /// Stops the process of the server, until [`Self::resume`]: it takes requests, and answers none.
    pub fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// Lets the process go on.
    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let process = self.process.as_ref().expect("a running server");
        let pid = rustix::process::Pid::from_child(process);
        rustix::process::kill_process(pid, signal).expect("a signal can be sent");
    }

    /// Mounts it with the given words of `-o`.
    pub fn mount(&self, words: &str) -> TestMount {
        TestMount::start(self, self.mount_place(), words)
    }

    /// Mounts it as user `uid`, whom the server does not trust if it is not the own one.
    pub fn mount_as(&self, uid: u32) -> TestMount {
        TestMount::start_as(uid, self, self.mount_place())
    }

    /// Mounts it a second time.
    pub fn mount_elsewhere(&self) -> TestMount {
        TestMount::start(self, self.path("elsewhere"), "")
    }

    /// A command with the client preloaded.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        self.tell(&mut command);
        command.env("LD_PRELOAD", library());
        command
    }

    /// As [`Self::command`], with every system call that names a path below the prefix reported to `report`.
    pub fn watched(&self, program: &str, report: &Path) -> Command {
        // The detector itself is not to be preloaded.
        let preload = format!("LD_PRELOAD={}", library().display());
        let mut watched = Command::new(built("isonomia-detect"));
        watched.args(["--prefix", PREFIX, "--report"]).arg(report).args(["--", "env", &preload, program]);
        self.tell(&mut watched);
        watched
    }

    fn tell(&self, command: &mut Command) {
        command.env("ISONOMIA_SERVER", self.address()).env("ISONOMIA_TIMEOUT_S", TIMEOUT_S);
    }

    /// A local directory, to compare with.
    pub fn local(&self) -> PathBuf {
        self.path("local")
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("unix:{}", self.path("socket").display())
    }

    /// Where its mount goes.
    pub fn mount_place(&self) -> PathBuf {
        self.path("mount")
    }

    /// Removes what a killed server leaves for the next: the memory of files that programs had mapped.
    fn remove_mapped(&self) {
        let Ok(place) = std::fs::metadata(self.path("data/metadata")) else { return };
        let name = format!("isonomia-mapped-{:x}-{:x}-", place.dev(), place.ino());
        let is_left = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&name);
        for left in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().filter(is_left) {
            // What cannot be removed stays until the host starts anew, and harms no other test.
            let _ = std::fs::remove_dir_all(left.path());
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
        self.remove_mapped();
    }
}
