//! A real server and a real mount of it, both gone with the test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How long programs wait for the server, in seconds. Long: machines that test are busy.
const TIMEOUT_S: &str = "60";

/// A server on a directory of its own.
pub struct TestServer {
    process: Option<Child>,
    home: tempfile::TempDir,
}

/// A mount of a server.
pub struct TestMount {
    process: Child,
    place: PathBuf,
}

/// Whether mounts are possible here; says why not.
pub fn can_mount() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        eprintln!("skipped: /dev/fuse cannot be opened: {error}");
    }
    device.is_ok()
}

impl TestServer {
    /// Starts a server and waits until it says that it is ready.
    pub fn start() -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        for name in ["data", "mount", "elsewhere", "local"] {
            std::fs::create_dir(home.path().join(name)).expect("a directory");
        }
        // Programs of other users pass through here.
        use std::os::unix::fs::PermissionsExt;
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

    /// Mounts it with the given words of `-o`.
    pub fn mount(&self, words: &str) -> TestMount {
        self.mount_at(self.mount_place(), words)
    }

    /// Mounts it a second time.
    pub fn mount_elsewhere(&self) -> TestMount {
        self.mount_at(self.path("elsewhere"), "")
    }

    fn mount_at(&self, place: PathBuf, words: &str) -> TestMount {
        let mut command = isonomia();
        command.args(["mount", "--foreground", "--server", &self.address(), "-o", words]).arg(&place);
        TestMount { process: start(command), place }
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

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl TestMount {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.place
    }

    /// Kills the process that serves it.
    pub fn kill(&mut self) {
        self.process.kill().expect("the process can be killed");
        self.process.wait().expect("the process ends");
    }

    /// Asks the process to end; gives whether it said that all went well.
    pub fn terminate(&mut self) -> bool {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal can be sent");
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
        let _ = rustix::mount::unmount(&self.place, rustix::mount::UnmountFlags::DETACH);
    }
}

/// The program, without an environment that says who the job is.
pub fn isonomia() -> Command {
    let test = std::env::current_exe().expect("the test's own path");
    let directory = test.parent().and_then(Path::parent).expect("a directory");
    let program = directory.join("isonomia");
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
