//! `isonomia-detect`: runs a command and reports every system call of it, and of all that it starts, that names a path
//! below a prefix.
//!
//! Under the preload client no such call may reach the kernel, which knows nothing of the prefix: one that does is a
//! hook that is missing. The tests run programs under this detector.
//!
//! A seccomp filter stops the calls that take paths ([`filter`], [`calls`]); a thread of this program looks at the path
//! of each ([`supervise`]), reports it if it leads below the prefix by its text ([`path`]), and lets the call go on. So
//! the program does what it does without a detector, only slower. No privileges are needed; set-id bits of programs
//! count for nothing.
//!
//! The exit code is the command's own; 97 if there were leaks, 98 if the command could not be watched.

mod calls;
mod filter;
mod path;
mod supervise;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// There were leaks.
const LEAKED: u8 = 97;
/// The command could not be watched.
const FAILED: u8 = 98;
/// What a shell adds to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;

/// Run a command and report its system calls that name a path below a prefix
#[derive(Debug, Parser)]
#[command(name = "isonomia-detect", version, max_term_width = 100)]
struct Arguments {
    /// The directory that no system call may name
    #[arg(long, default_value = "/isonomia")]
    prefix: PathBuf,
    /// Append reports to this file instead of standard error
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Command and arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("isonomia-detect: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(arguments: &Arguments) -> Result<u8> {
    let prefix = path::Prefix::new(&arguments.prefix).context("the prefix must be an absolute path below /")?;
    let mut report: Box<dyn Write + Send> = match &arguments.report {
        Some(file) => Box::new(
            std::fs::File::options()
                .append(true)
                .create(true)
                .open(file)
                .with_context(|| format!("cannot open {}", file.display()))?,
        ),
        None => Box::new(std::io::stderr()),
    };
    let [program, rest @ ..] = arguments.command.as_slice() else { anyhow::bail!("no command is given") };
    let (here, there) = filter::connection()?;
    let supervisor = std::thread::spawn(move || {
        let listener = filter::receive(&here)?;
        supervise::watch(&listener, &prefix, &mut report)
    });
    let mut command = Command::new(program);
    command.args(rest);
    filter::install_in(&mut command, there)?;
    let started = command.spawn();
    // The other end of the connection goes with the command.
    drop(command);
    let status =
        started.with_context(|| format!("cannot run {}", program.display())).and_then(|mut child| Ok(child.wait()?));
    let leaks = supervisor.join().ok().context("the supervisor ended early")?;
    let status = status?;
    let leaks = leaks?;
    ensure!(leaks.is_watched, "the system does not let system calls be watched");
    Ok(if leaks.count > 0 {
        LEAKED
    } else {
        let code = status.code().unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or(0));
        u8::try_from(code).unwrap_or(FAILED)
    })
}
