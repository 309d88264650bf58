//! `isonomia mount`, and the helper `mount.fuse.isonomia` of mount(8), which is this program by another name.

use crate::arguments::{HelperArguments, MountOptions, ServerOptions};
use crate::control;
use anyhow::{Context, Result, bail};
use isonomia_mount::{Mounted, Options};
use isonomia_units::Nanos;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::env;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const HELPER: &str = "mount.fuse.isonomia";
/// Sources of mount(8) that name no server.
const NO_SOURCE: [&str; 3] = ["isonomia", "none", ""];
/// After SIGTERM, programs that use the mount have this long to end before their files fail.
const GRACE: Duration = Duration::from_secs(5);

/// Whether this program was started by mount(8).
pub fn is_helper() -> bool {
    env::args_os().next().is_some_and(|name| Path::new(&name).file_name() == Some(HELPER.as_ref()))
}

/// Mounts as mount(8) asks.
pub fn help(arguments: &HelperArguments) -> Result<()> {
    let server = match arguments.source.as_str() {
        source if NO_SOURCE.contains(&source) => None,
        source => Some(source.parse().with_context(|| format!("{source} is no address of a server"))?),
    };
    let options = MountOptions {
        server: ServerOptions { server, key_file: None },
        options: arguments.options.clone(),
        timeout: None,
        foreground: false,
        log: None,
        background: false,
        dir: arguments.dir.clone(),
    };
    if arguments.fake { translate(&options).map(drop) } else { mount(&options) }
}

/// Mounts; in the foreground comes back when the mount has ended.
pub fn mount(options: &MountOptions) -> Result<()> {
    let translated = translate(options)?;
    if !options.foreground && !options.background {
        return start_in_background(options, &translated);
    }
    if options.background {
        // The terminal's signals are not for us.
        rustix::process::setsid().context("cannot leave the session of the terminal")?;
    }
    // Before the mount, so that no signal is missed once it can be seen.
    let signals = Signals::new([SIGINT, SIGTERM])?;
    let mounted = isonomia_mount::mount(&options.dir, &translated)?;
    announce(&mounted)?;
    if options.background {
        leave_terminal(options.log.as_deref())?;
    }
    unmount_on_signal(signals, &mounted);
    let place = mounted.place().to_owned();
    mounted.serve().with_context(|| format!("the mount at {} broke", place.display()))
}

/// The words after `-o` over the environment, the options of their own over both.
fn translate(options: &MountOptions) -> Result<Options> {
    let mut translated = Options::new(control::address(&options.server));
    let key_file = options.server.key_file.as_ref();
    translated.key_file = key_file.map(|path| path.to_str().map(str::to_owned).context("not UTF-8")).transpose()?;
    options.options.iter().try_for_each(|words| translated.apply(words))?;
    if let Some(seconds) = options.timeout {
        translated.timeout = Nanos::from_secs(seconds);
    }
    Ok(translated)
}

/// Starts this program again, to stay; comes back when it is ready, or has said what is wrong.
fn start_in_background(options: &MountOptions, translated: &Options) -> Result<()> {
    let mut command = Command::new(env::current_exe().context("cannot tell where this program is")?);
    command.arg0("isonomia").args(["mount", "--background"]);
    command.args(["--server", &translated.server.to_string()]);
    command.args(translated.key_file.iter().flat_map(|path| ["--key-file", path]));
    command.args(options.options.iter().flat_map(|words| ["-o", words]));
    command.args(options.timeout.iter().flat_map(|seconds| ["--timeout".to_owned(), format!("{seconds}s")]));
    if let Some(log) = &options.log {
        command.arg("--log").arg(log);
    }
    command.arg("--").arg(&options.dir).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start the process that serves the mount")?;
    let output = child.stdout.take().context("the process that serves the mount has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.is_empty() {
        // It has told why.
        child.wait()?;
        bail!("{} is not mounted", options.dir.display());
    }
    Ok(())
}

/// One line for whoever started the mount and waits for it.
fn announce(mounted: &Mounted) -> Result<()> {
    let line = serde_json::json!({ "ready": true, "dir": mounted.place(), "pid": std::process::id() });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot say that the mount is ready")
}

/// Whoever started the mount waits no longer for output, and no directory is kept from being unmounted.
fn leave_terminal(log: Option<&Path>) -> Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    match log {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            rustix::stdio::dup2_stderr(&file.with_context(|| format!("cannot write {}", path.display()))?)?;
        }
        None => rustix::stdio::dup2_stderr(&nothing)?,
    }
    env::set_current_dir("/").context("cannot leave the working directory")
}

fn unmount_on_signal(mut signals: Signals, mounted: &Mounted) {
    let unmounter = mounted.unmounter();
    std::thread::spawn(move || {
        let signal = signals.forever().next();
        tracing::info!(signal, "unmounting");
        match unmounter.unmount() {
            // Serving ends by itself.
            Ok(true) => return,
            Ok(false) => tracing::warn!("programs use the mount: it ends in {GRACE:?} at the latest"),
            Err(error) => tracing::error!(%error, "ending all the same"),
        }
        std::thread::sleep(GRACE);
        std::process::exit(0);
    });
}
