//! What one run of the benchmark stands on: its programs, its directory in memory, and the wish to stop.

use crate::clock::now_ns;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The directory in memory that a run works in.
const MEMORY_DIR: &str = "/dev/shm";
/// A sleep that is so much too long was none: somebody stopped this program, and probably others with it.
const LATE_NS_MAX: u64 = 500_000_000;
/// So often a run is made at most until nothing disturbs it.
const TRIES_MAX: u32 = 10;

/// The programs that are run.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `isonomia`.
    pub isonomia: PathBuf,
    /// This one.
    pub bench: PathBuf,
}

/// One run; its directory goes when it is dropped.
pub struct Harness {
    /// The programs.
    pub programs: Programs,
    scratch: tempfile::TempDir,
    is_interrupted: Arc<AtomicBool>,
    /// Time for which this program was stopped, or not let run.
    stopped_ns: AtomicU64,
}

impl Harness {
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
        Ok(Self { programs: Programs { isonomia, bench }, scratch, is_interrupted, stopped_ns: AtomicU64::new(0) })
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

    /// Sleeps for `time`; an error once a signal has come.
    pub fn nap(&self, time: Duration) -> Result<()> {
        let before = now_ns();
        std::thread::sleep(time);
        let late_ns = (now_ns() - before).saturating_sub(time.as_nanos() as u64);
        if late_ns > LATE_NS_MAX {
            self.stopped_ns.fetch_add(late_ns, Ordering::Relaxed);
        }
        self.check()
    }

    /// Repeats a run in which this program was stopped, as somebody may do who measures beside: what it gave says
    /// nothing.
    pub fn undisturbed<T>(&self, mut run: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..TRIES_MAX {
            let before = self.stopped_ns.load(Ordering::Relaxed);
            let done = run();
            self.check()?;
            if self.stopped_ns.load(Ordering::Relaxed) == before {
                return done;
            }
            eprintln!("isonomia-bench: stopped meanwhile; once more");
        }
        bail!("this program was stopped again and again")
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
