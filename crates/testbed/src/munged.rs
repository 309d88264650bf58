//! A munge daemon of the tests' own: with its own key and socket, and never the system's.

use crate::skipping::{on_search_path, skip};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where Debian has it, which is not on everybody's search path.
const PROGRAM: &str = "/usr/sbin/munged";
/// It starts in milliseconds.
const START_WITHIN: Duration = Duration::from_secs(20);
const KEY: &str = "key";

/// A running munge daemon, ended with this.
#[derive(Debug)]
pub struct Munged {
    process: Option<Child>,
    dir: tempfile::TempDir,
}

/// Whether there is a munge daemon to start; if not, the test is skipped.
pub fn can_munge() -> bool {
    let found = on_search_path("munged") || Path::new(PROGRAM).is_file();
    if !found {
        skip("munge is not installed");
    }
    found
}

impl Munged {
    /// Starts a daemon with a key of its own, and waits until it listens.
    pub fn start() -> Self {
        let mut key = [0; 64];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty()).expect("random bytes");
        Self::with_key(&key)
    }

    /// Starts one with the same key, as on another host of the cluster: neither knows what the other one has decoded.
    pub fn elsewhere(&self) -> Self {
        Self::with_key(&std::fs::read(self.dir.path().join(KEY)).expect("the key"))
    }

    fn with_key(key: &[u8]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // Other users come to the socket as well.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("permissions");
        let path = dir.path().join(KEY);
        std::fs::write(&path, key).expect("a key");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("closed to others");
        let mut munged = Self { process: None, dir };
        munged.restart();
        munged
    }

    /// Starts it, again if it ran.
    pub fn restart(&mut self) {
        self.kill();
        let program = if on_search_path("munged") { "munged" } else { PROGRAM };
        let option = |name: &str, file: &str| format!("--{name}={}", self.dir.path().join(file).display());
        let process = Command::new(program)
            .arg("--foreground")
            .args([option("key-file", KEY), option("socket", "socket"), option("log-file", "log")])
            .args([option("pid-file", "pid"), option("seed-file", "seed")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("munged starts");
        self.process = Some(process);
        let begun = Instant::now();
        while UnixStream::connect(self.path()).is_err() {
            assert!(begun.elapsed() < START_WITHIN, "munged listens");
            std::thread::yield_now();
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Where it listens.
    pub fn socket(&self) -> String {
        self.path().display().to_string()
    }

    /// Ends it.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // The process may hang by intention.
            process.kill().expect("munged can be killed");
            process.wait().expect("munged ends");
            let _ = std::fs::remove_file(self.path());
        }
    }

    /// Stops its process: it listens, and answers nobody.
    pub fn pause(&self) {
        let process = self.process.as_ref().expect("a running munged");
        let pid = rustix::process::Pid::from_child(process);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("a signal can be sent");
    }
}

impl Drop for Munged {
    fn drop(&mut self) {
        self.kill();
    }
}
