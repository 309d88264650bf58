//! A real server for a test, and programs run against it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
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
        command
            .env("LD_PRELOAD", library())
            .env("ISONOMIA_SERVER", address(self.directory.path()))
            .env("ISONOMIA_TIMEOUT_S", TIMEOUT_S);
        command
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

/// The library, which `cargo test` alone does not build: no test links it.
fn library() -> PathBuf {
    let library = built("libisonomia_preload.so");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a directory");
    let sources = ["preload", "client", "transport", "proto", "units"].map(|name| crates.join(name).join("src"));
    let modified = |path: &Path| path.metadata().and_then(|found| found.modified()).expect("the time of a file");
    for entry in sources.iter().flat_map(|source| std::fs::read_dir(source).expect("the sources")) {
        let source = entry.expect("a source").path();
        assert!(
            modified(&source) <= modified(&library),
            "{} is older than {}: cargo build --workspace",
            library.display(),
            source.display()
        );
    }
    library
}

/// A product of the build, beside this test's executable.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let deps = test.parent().expect("a directory");
    let path = deps.parent().expect("a directory").join(name);
    assert!(path.exists(), "{} is missing: cargo build --workspace", path.display());
    path
}
