//! What one run of the benchmark stands on: its programs, its directory in memory, and the wish to stop.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The directory in memory that a run works in.
const MEMORY_DIR: &str = "/dev/shm";

/// The programs that are run.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `isonomia`.
    pub isonomia: PathBuf,
    /// This one.
    pub bench: PathBuf,
}

/// One run; its directory goes when it is dropped.
pub struct Session {
    /// The programs.
    pub programs: Programs,
    scratch: tempfile::TempDir,
    is_interrupted: Arc<AtomicBool>,
}

impl Session {
    /// Finds the programs and makes the directory. From here on SIGINT, SIGTERM, and SIGHUP end the run in order.
    pub fn new(isonomia: Option<&Path>) -> Result<Self> {
        let bench = std::env::current_exe().context("cannot tell where this program is")?;
        let isonomia = isonomia.map_or_else(|| bench.with_file_name("isonomia"), Path::to_owned);
        let isonomia = isonomia.canonicalize().with_context(|| {
            format!("no program {}; build it (cargo build --release) or name it with --isonomia", isonomia.display())
        })?;
        let is_interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, is_interrupted.clone())?;
        }
        ensure!(Path::new(MEMORY_DIR).is_dir(), "{MEMORY_DIR} is not there: the comparison needs a tmpfs");
        let scratch = tempfile::Builder::new().prefix("isonomia-bench-").tempdir_in(MEMORY_DIR)?;
        Ok(Self { programs: Programs { isonomia, bench }, scratch, is_interrupted })
    }

    /// The directory in memory.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// An error once a signal has come.
    pub fn check(&self) -> Result<()> {
        if self.is_interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// Starts a child that does not outlive this process (`at_parents_death` is sent to it) and that the terminal's
/// Ctrl-C does not reach: it is ended in order.
pub fn start(command: &mut Command, at_parents_death: Signal) -> Result<Child> {
    command.process_group(0);
    // SAFETY: between fork and exec only one system call is made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || set_parent_process_death_signal(Some(at_parents_death)).map_err(Into::into));
    }
    command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))
}
