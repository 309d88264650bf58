//! A server in a process of its own, or several that are one file system.

use crate::mount::TestMount;
use crate::product::{built, isonomia, library};
use crate::{TIMEOUT_S, start};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Where the server's files appear to preloaded programs.
pub const PREFIX: &str = "/isonomia";

/// The directory of [`TestServer::start_striped`].
pub const STRIPED: &str = "striped";

/// A server on a directory of its own; or a cluster of them.
#[derive(Debug)]
pub struct TestServer {
    processes: Vec<Child>,
    /// Of a cluster: how many.
    servers: Option<u16>,
    home: tempfile::TempDir,
}

impl TestServer {
    /// Starts a server and waits until it says that it is ready.
    pub fn start() -> Self {
        let mut server = Self::new(tempfile::tempdir(), None);
        server.restart();
        server
    }

    /// Starts a cluster, in whose root the directory [`STRIPED`] is, to which everybody may write: files in it have a stripe of 4 KiB
    /// on each server, round-robin.
    pub fn start_striped(servers: u16) -> Self {
        // In memory: each cut of a file waits for the storage of all servers.
        let mut cluster = Self::new(tempfile::tempdir_in("/dev/shm"), Some(servers));
        let mut file = "name = \"test\"\nepoch = 1\n".to_owned();
        for number in 1..=servers {
            let (dir, listen) = (cluster.path(&format!("data-{number}")), cluster.address_of(number));
            file += &format!(
                "[[server]]\nname = \"io{number}\"\nnumber = {number}\ndir = {dir:?}\nlisten = [{listen:?}]\n"
            );
        }
        std::fs::write(cluster.path("cluster.toml"), file).expect("a cluster file");
        let key = cluster.path("key");
        std::fs::write(&key, [7; 32]).expect("a key");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("permissions");
        cluster.restart();
        let dir = format!("{PREFIX}/{STRIPED}");
        let (count, address) = (servers.to_string(), cluster.address());
        cluster.operate(&["volume", "create", STRIPED, "--on", "io1", "--server", &address]);
        cluster.operate(&["stripe", "set", "--count", &count, "--size", "4KiB", "--server", &address, &dir]);
        cluster.operate(&["run", "--server", &address, "--", "chmod", "777", &dir]);
        cluster
    }

    fn operate(&self, words: &[&str]) {
        let output = isonomia().args(words).output().expect("it starts");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn new(home: std::io::Result<tempfile::TempDir>, servers: Option<u16>) -> Self {
        let home = home.expect("a temporary directory");
        for name in ["data", "mount", "elsewhere", "local"] {
            std::fs::create_dir(home.path().join(name)).expect("a directory");
        }
        // Programs of other users pass through here.
        std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).expect("permissions");
        Self { processes: Vec::new(), servers, home }
    }

    /// Starts the server, again if it ran.
    pub fn restart(&mut self) {
        self.kill();
        let Some(servers) = self.servers else {
            let mut command = isonomia();
            command.arg("serve").arg("--dir").arg(self.path("data")).args(["--listen", &self.address()]);
            self.processes = vec![start(command)];
            return;
        };
        for number in 1..=servers {
            let mut command = isonomia();
            command
                .arg("serve")
                .arg("--cluster")
                .arg(self.path("cluster.toml"))
                .args(["--name", &format!("io{number}")]);
            command.arg("--cluster-key-file").arg(self.path("key"));
            self.processes.push(start(command));
        }
    }

    /// Kills the server at once.
    pub fn kill(&mut self) {
        for mut process in self.processes.drain(..) {
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
        assert!(!self.processes.is_empty(), "a running server");
        for process in &self.processes {
            let pid = rustix::process::Pid::from_child(process);
            rustix::process::kill_process(pid, signal).expect("a signal can be sent");
        }
    }

    /// Mounts it with the given words of `-o`.
    pub fn mount(&self, words: &str) -> TestMount {
        TestMount::start(self, self.mount_point(), words)
    }

    /// Mounts it as user `uid`, whom the server does not trust if it is not the own one.
    pub fn mount_as(&self, uid: u32) -> TestMount {
        TestMount::start_as(uid, self, self.mount_point())
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
        self.address_of(1)
    }

    fn address_of(&self, number: u16) -> String {
        format!("unix:{}", self.path(&format!("socket-{number}")).display())
    }

    /// Where its mount goes.
    pub fn mount_point(&self) -> PathBuf {
        self.path("mount")
    }

    /// Removes what a killed server leaves for the next: the memory of files that programs had mapped.
    fn remove_mapped(&self) {
        let dirs = match self.servers {
            None => vec!["data".to_owned()],
            Some(servers) => (1..=servers).map(|number| format!("data-{number}")).collect(),
        };
        for dir in dirs {
            let Ok(metadata) = std::fs::metadata(self.path(&dir).join("metadata")) else { continue };
            let name = format!("isonomia-mapped-{:x}-{:x}-", metadata.dev(), metadata.ino());
            let is_left = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&name);
            for left in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().filter(is_left) {
                // What cannot be removed stays until the host starts anew, and harms no other test.
                let _ = std::fs::remove_dir_all(left.path());
            }
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
