//! A server, a mount of it, and actors, all gone with the test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How long programs wait for the server, in seconds. Long: machines that test are busy.
const TIMEOUT_S: &str = "60";

pub struct TestServer {
    process: Child,
    home: tempfile::TempDir,
}

pub struct TestMount {
    process: Child,
    place: PathBuf,
}

/// Whether mounts are possible here; says why not.
pub fn can_mount() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        eprintln!("without the mount: /dev/fuse cannot be opened: {error}");
    }
    device.is_ok()
}

impl TestServer {
    /// Starts a server and waits until it says that it is ready.
    pub fn start() -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        for name in ["data", "mount"] {
            std::fs::create_dir(home.path().join(name)).expect("a directory");
        }
        let mut command = built("isonomia");
        command.arg("serve").arg("--dir").arg(home.path().join("data")).args(["--listen", &address(home.path())]);
        Self { process: start(command), home }
    }

    pub fn address(&self) -> String {
        address(self.home.path())
    }

    pub fn mount(&self) -> TestMount {
        let place = self.home.path().join("mount");
        let mut command = built("isonomia");
        command.args(["mount", "--foreground", "--server", &self.address()]).arg(&place);
        TestMount { process: start(command), place }
    }

    /// An actor as any program.
    pub fn actor(&self) -> Command {
        built("isonomia-conformance-actor")
    }

    /// An actor with the preload client in it.
    pub fn preloaded_actor(&self) -> Command {
        let mut command = built("isonomia");
        let actor = self.actor();
        command.args(["run", "--server", &self.address(), "--prefix", "/isonomia", "--"]).arg(actor.get_program());
        command
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl TestMount {
    pub fn path(&self) -> &Path {
        &self.place
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.process),
            rustix::process::Signal::TERM,
        );
        let _ = self.process.wait();
    }
}

fn address(home: &Path) -> String {
    format!("unix:{}", home.join("socket").display())
}

/// A program of the build, without an environment that says who the job is.
fn built(name: &str) -> Command {
    let test = std::env::current_exe().expect("the test's own path");
    let program = test.parent().and_then(Path::parent).expect("a directory").join(name);
    assert!(program.exists(), "{} is missing: cargo build --workspace", program.display());
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["ISONOMIA_", "SLURM_", "PBS_", "OMPI_"].iter().any(|ours| name.starts_with(ours)) {
            command.env_remove(&*name);
        }
    }
    command.env("ISONOMIA_TIMEOUT_S", TIMEOUT_S);
    command
}

/// Starts a program and waits for its first line, which says that it is ready.
fn start(mut command: Command) -> Child {
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let output = process.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("its first line");
    assert!(line.contains("\"ready\":true"), "{command:?} says {line:?}");
    process
}
