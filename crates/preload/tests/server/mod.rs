//! A real server for a test, and programs run against it.

use crate::product::{built, library};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Where the server's files appear.
pub const PREFIX: &str = "/isonomia";
/// How long a program waits for the server, in seconds. Long: machines that test are busy.
const TIMEOUT_S: &str = "60";

/// A server on a directory of its own, ended with the test.
pub struct TestServer {
    process: Child,
    directory: tempfile::TempDir,
}

impl TestServer {
    /// Starts a server and waits until it says that it is ready.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("data");
        std::fs::create_dir(&data).expect("the server's directory");
        let mut process = Command::new(built("isonomia"))
            .arg("serve")
            .arg("--dir")
            .arg(&data)
            .args(["--listen", &address(directory.path())])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("the server's output");
        BufReader::new(stdout).read_line(&mut line).expect("the server's first line");
        assert!(line.contains("\"ready\":true"), "the server says {line:?}");
        Self { process, directory }
    }

    /// A command with the client preloaded.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        self.tell(&mut command);
        command.env("LD_PRELOAD", library());
        command
    }

    /// Where the server is.
    fn tell(&self, command: &mut Command) {
        command.env("ISONOMIA_SERVER", address(self.directory.path())).env("ISONOMIA_TIMEOUT_S", TIMEOUT_S);
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

    /// Kills the server at once.
    pub fn kill(&mut self) {
        self.process.kill().expect("the server can be killed");
        self.process.wait().expect("the server ends");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // It may have been killed by the test.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn address(directory: &Path) -> String {
    format!("unix:{}", directory.join("socket").display())
}
