//! `isonomia mount`, and the helper `mount.fuse.isonomia` of mount(8), which is this program by another name.

use crate::arguments::{GuardOptions, HelperArguments, MountOptions, ReachOptions, ServerOptions};
use crate::control;
use anyhow::{Context, Result, bail};
use isonomia_mount::{Guard, Mounted, Options};
use isonomia_transport::handshake::Protection;
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
/// The word by which mount(8) asks to change a mount.
const REMOUNT: &str = "remount";
/// Beginnings of the words in `/proc/mounts` that describe what the kernel did, and are no options of ours.
const KERNELS_WORDS: [&str; 4] = ["user_id=", "group_id=", "max_read=", "blksize="];
const NO_GUARD: &str = "nobody guards the mount: if its process is killed, it may not end";
const NOTHING: &str = "/dev/null";
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
    let mut words: Vec<&str> = arguments.options.iter().flat_map(|words| words.split(',')).collect();
    let remounts = words.contains(&REMOUNT);
    if remounts {
        // For a remount mount(8) hands on the words that the kernel shows of the present mount as well.
        words.retain(|word| *word != REMOUNT && !KERNELS_WORDS.iter().any(|kernels| word.starts_with(kernels)));
    }
    if rustix::process::geteuid().is_root() {
        // mount(8) does not hand on `dev` and `suid`, because they are its defaults: only `nodev` and `nosuid`.
        words.insert(0, "dev,suid");
    }
    let mut words = words.join(",");
    if server.is_none() && !arguments.source.is_empty() {
        // mount(8) looks for this source among what is mounted to find out whether a line of fstab is mounted already.
        words = format!("fsname={},{words}", arguments.source);
    }
    let options = MountOptions {
        server: ServerOptions { server, reach: ReachOptions::default() },
        options: vec![words],
        timeout: None,
        foreground: false,
        log: None,
        background: false,
        dir: arguments.dir.clone(),
    };
    match arguments.fake {
        true => translate(&options).map(drop),
        false if remounts => Ok(isonomia_mount::remount(&options.dir, &translate(&options)?)?),
        false => mount(&options),
    }
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
    let log = options.background.then(|| open_log(options.log.as_deref())).transpose()?;
    // Before the mount, so that it has nothing of it.
    let guard = start_guard(log.as_ref());
    // Before the mount, so that no signal is missed once it can be seen.
    let signals = Signals::new([SIGINT, SIGTERM])?;
    let mounted = isonomia_mount::mount(&options.dir, &translated)?;
    let point = mounted.mount_point().to_owned();
    let guard =
        guard.and_then(|mut guard| guard.watch(&point).map(|()| guard).context("it cannot be told of the mount"));
    announce(&mounted)?;
    if let Some(log) = log {
        leave_terminal(&log)?;
    }
    if let Err(error) = &guard {
        tracing::warn!("{NO_GUARD}: {error:#}");
    }
    unmount_on_signal(signals, &mounted);
    mounted.serve().with_context(|| format!("the mount at {} broke", point.display()))?;
    // The guard would end by itself after this process, and be a zombie until some other process takes notice of it.
    guard.map_or(Ok(()), Guard::dismiss).context("cannot end the guard")
}

/// Stands guard over the mount that started this process.
pub fn guard(options: &GuardOptions) -> Result<()> {
    isonomia_mount::stand_guard(options.pid).context(NO_GUARD)
}

/// Starts the guard. It is given the log, and not this process's standard error: a program that reads that to its end would
/// wait for the guard as well.
fn start_guard(log: Option<&File>) -> Result<Guard> {
    let mut command = this_program()?;
    command.arg("guard").arg(std::process::id().to_string());
    if let Some(log) = log {
        command.stderr(log.try_clone()?);
    }
    Guard::start(&mut command).context("cannot start it")
}

/// A command that starts this program again.
fn this_program() -> Result<Command> {
    let mut command = Command::new(env::current_exe().context("cannot tell where this program is")?);
    command.arg0("isonomia");
    Ok(command)
}

/// The words after `-o` over the environment, the options of their own over both.
fn translate(options: &MountOptions) -> Result<Options> {
    let mut translated = Options::new(control::addresses(&options.server));
    let key_file = options.server.reach.key_file.as_ref();
    translated.key_file = key_file.map(|path| path.to_str().map(str::to_owned).context("not UTF-8")).transpose()?;
    translated.server_user = options.server.reach.server_user;
    translated.protection = options.server.reach.protection.protection();
    options.options.iter().try_for_each(|words| translated.apply(words))?;
    if let Some(seconds) = options.timeout {
        translated.timeout = Nanos::from_secs(seconds);
    }
    // The process that serves the mount goes to the root directory.
    translated.server = control::from_anywhere(&translated.server);
    translated.key_file = match translated.key_file.map(|path| control::absolute(Path::new(&path)).into_os_string()) {
        Some(path) => Some(path.into_string().ok().context("not UTF-8")?),
        None => None,
    };
    Ok(translated)
}

/// Starts this program again, to stay; comes back when it is ready, or has said what is wrong.
fn start_in_background(options: &MountOptions, translated: &Options) -> Result<()> {
    let mut command = this_program()?;
    command.args(["mount", "--background"]);
    command.args(["--server", &translated.server.to_string()]);
    command.args(translated.key_file.iter().flat_map(|path| ["--key-file", path]));
    command.args(translated.server_user.iter().flat_map(|uid| ["--server-user".to_owned(), uid.to_string()]));
    let Protection { integrity, server_name, munge_socket } = &translated.protection;
    command.args(integrity.iter().flat_map(|how| ["--integrity".to_owned(), how.to_string()]));
    command.args(server_name.iter().flat_map(|name| ["--server-name", name]));
    command.args(munge_socket.iter().flat_map(|path| ["--munge-socket", path]));
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
        match child.wait()?.code() {
            // It has told why.
            Some(code) => std::process::exit(code),
            None => bail!("the process that serves the mount at {} was killed", options.dir.display()),
        }
    }
    Ok(())
}

/// One line for whoever started the mount and waits for it.
fn announce(mounted: &Mounted) -> Result<()> {
    let line = serde_json::json!({ "ready": true, "dir": mounted.mount_point(), "pid": std::process::id() });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot say that the mount is ready")
}

/// Where the process in the background says what there is to say.
fn open_log(path: Option<&Path>) -> Result<File> {
    match path {
        Some(path) => OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display())),
        None => OpenOptions::new().write(true).open(NOTHING).with_context(|| format!("cannot open {NOTHING}")),
    }
}

/// Gives up the standard streams, so that a program that started the mount and reads its output sees the end of it; and the
/// working directory, so that what it is on can be unmounted.
fn leave_terminal(log: &File) -> Result<()> {
    let nothing = File::options().read(true).write(true).open(NOTHING);
    let nothing = nothing.with_context(|| format!("cannot open {NOTHING}"))?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(log)?;
    env::set_current_dir("/").context("cannot leave the working directory")
}

fn unmount_on_signal(mut signals: Signals, mounted: &Mounted) {
    let unmounter = mounted.unmounter();
    std::thread::spawn(move || {
        let signal = signals.forever().next();
        tracing::info!(signal, "unmounting");
        match unmounter.unmount() {
            // Serving ends by itself, unless another mount name space, such as a container's, has the mount as well.
            Ok(true) => {}
            Ok(false) => tracing::warn!("programs use the mount: it ends in {GRACE:?} at the latest"),
            Err(error) => tracing::error!(%error, "ending all the same"),
        }
        std::thread::sleep(GRACE);
        std::process::exit(0);
    });
}
