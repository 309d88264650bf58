//! `isonomia cluster up` and `down`: a cluster of servers of this machine, for trials.
//!
//! Everything lies in one directory: the cluster file, the key, sockets and logs, a record of the processes, and files if
//! the directory was named. Whoever works there has a lock.

mod processes;

use crate::arguments::{DownOptions, UpOptions};
use crate::{ready, serve};
use anyhow::{Context, Result, bail, ensure};
use isonomia_cluster::{Map, hosts};
use isonomia_server::usable_cluster_file;
use processes::{Ended, Processes};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// If neither the options nor a file say how many.
const SERVERS_DEFAULT: u16 = 4;
/// All servers together have this long to be ready, and to end before they are killed.
const PATIENCE: Duration = Duration::from_secs(60);
const KEY_LEN: usize = 32;
/// So much of the end of a log is shown.
const LOG_LEN_MAX: u64 = 2048;

pub fn up(options: &UpOptions) -> Result<ExitCode> {
    let trial = TrialDir::new(options.dir.as_deref())?;
    if let Some(parent) = trial.dir.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("{}", parent.display()))?;
    }
    serve::prepare_directory(&trial.dir, "--dir")?;
    let _lock = trial.lock()?;
    let before = Processes::read(&trial.record())?;
    let running = before.as_ref().map_or_else(Vec::new, Processes::running);
    if !running.is_empty() {
        let names = hosts::compress(running.iter().map(|server| server.name.as_str()));
        bail!("{names} run in {} already; `isonomia cluster down` ends them", trial.dir.display());
    }
    let map = trial.cluster(options)?;
    make_key(&trial.key())?;
    let mut processes = Processes::new()?;
    let mut children = Vec::new();
    let outcome = start(&trial, &map, &options.serve, &mut processes, &mut children);
    if let Err(error) = outcome {
        processes.end(Duration::ZERO);
        for child in &mut children {
            // It was killed, or had ended before.
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(trial.record());
        return Err(error);
    }
    tell(&trial, &map)?;
    Ok(ExitCode::SUCCESS)
}

pub fn down(options: &DownOptions) -> Result<ExitCode> {
    let trial = TrialDir::new(options.dir.as_deref())?;
    let nothing = || format!("no cluster was started in {}; --dir names another directory", trial.dir.display());
    ensure!(trial.record().is_file(), nothing());
    let _lock = trial.lock()?;
    let processes = Processes::read(&trial.record())?.with_context(nothing)?;
    let mut out = std::io::stdout().lock();
    for (name, ended) in processes.end(PATIENCE) {
        let words = match ended {
            Ended::ByItself => "was not running any more",
            Ended::Asked => "ended",
            Ended::Killed => "did not end when asked, and was killed",
            Ended::NotYet => "was killed and has not ended yet",
        };
        writeln!(out, "{name} {words}")?;
    }
    std::fs::remove_file(trial.record()).with_context(|| format!("{}", trial.record().display()))?;
    if trial.is_temporary {
        std::fs::remove_dir_all(&trial.dir).with_context(|| format!("{}", trial.dir.display()))?;
    } else {
        writeln!(out, "files are kept in {}; `isonomia cluster up --dir` serves them again", trial.dir.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts all servers of `map`, and waits until each listens. Those that were started are in `processes` and on disk,
/// whatever comes of it.
fn start(
    trial: &TrialDir,
    map: &Map,
    options: &[std::ffi::OsString],
    processes: &mut Processes,
    children: &mut Vec<Child>,
) -> Result<()> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    for server in map.servers() {
        let log = trial.log(&server.name);
        let mut command = Command::new(&program);
        command.arg("serve").arg("--cluster").arg(trial.file()).args(["--name", &server.name]);
        command.arg("--key-file").arg(trial.key()).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(File::create(&log).with_context(|| format!("cannot write {}", log.display()))?);
        // SAFETY: between fork and exec only one system call is made, and nothing is allocated.
        unsafe {
            // Whoever closes the terminal does not end it.
            command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
        }
        let child = command.spawn().with_context(|| format!("cannot start {}", server.name))?;
        processes.add(&server.name, &child)?;
        children.push(child);
        processes.write(&trial.record())?;
    }
    let begun = Instant::now();
    for (server, child) in map.servers().iter().zip(children) {
        if !ready::wait(child, PATIENCE.saturating_sub(begun.elapsed())) {
            let log = trial.log(&server.name);
            bail!("{} did not start; its log {} ends with\n{}", server.name, log.display(), end_of(&log).trim_end());
        }
    }
    Ok(())
}

fn end_of(log: &Path) -> String {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(LOG_LEN_MAX)))?;
        file.take(LOG_LEN_MAX).read_to_end(&mut text)
    });
    match read {
        Ok(_) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => error.to_string(),
    }
}

fn tell(trial: &TrialDir, map: &Map) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let (count, file) = (map.servers().len(), trial.file());
    writeln!(out, "# {count} servers run; their logs are in {}", trial.dir.display())?;
    for server in map.servers() {
        let addresses: Vec<String> = server.listen.iter().map(ToString::to_string).collect();
        writeln!(out, "# {}: {}", server.name, addresses.join(" "))?;
    }
    let address = map.root().listen.first().context("the root server has no address")?;
    let dir = match trial.is_temporary {
        true => String::new(),
        false => format!(" --dir {}", quoted(&trial.dir.display().to_string())),
    };
    writeln!(out, "# see them: isonomia cluster status {}", quoted(&file.display().to_string()))?;
    writeln!(out, "# end them: isonomia cluster down{dir}")?;
    writeln!(out, "export ISONOMIA_SERVER={}", quoted(&address.to_string()))?;
    writeln!(out, "export ISONOMIA_KEY_FILE={}", quoted(&trial.key().display().to_string()))?;
    Ok(())
}

/// `text` as a word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:=+@%".contains(&byte);
    match text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Where a cluster for trials is.
struct TrialDir {
    dir: PathBuf,
    /// Nobody named it, so files are in memory, and nothing of it is to be kept.
    is_temporary: bool,
}

impl TrialDir {
    fn new(named: Option<&Path>) -> Result<Self> {
        if let Some(dir) = named {
            let dir = std::path::absolute(dir).with_context(|| format!("{}", dir.display()))?;
            return Ok(Self { dir, is_temporary: false });
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let dir = match runtime.filter(|dir| dir.is_absolute() && dir.is_dir()) {
            Some(dir) => dir.join("isonomia-cluster"),
            None => PathBuf::from(format!("/tmp/isonomia-cluster-{}", rustix::process::geteuid().as_raw())),
        };
        Ok(Self { dir, is_temporary: true })
    }

    fn file(&self) -> PathBuf {
        self.dir.join("cluster.toml")
    }

    fn key(&self) -> PathBuf {
        self.dir.join("key")
    }

    fn record(&self) -> PathBuf {
        self.dir.join("processes.json")
    }

    fn log(&self, server: &str) -> PathBuf {
        self.dir.join(format!("{server}.log"))
    }

    /// Whoever has it is the only one who starts or ends servers here.
    fn lock(&self) -> Result<File> {
        let path = self.dir.join("lock");
        let lock = File::create(&path).with_context(|| format!("{}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => bail!("another `isonomia cluster` is at work in {}", self.dir.display()),
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("{}", path.display())),
        }
    }

    /// The cluster file that is here already, or a new one.
    fn cluster(&self, options: &UpOptions) -> Result<Map> {
        let file = self.file();
        if self.is_temporary || !file.exists() {
            let servers = options.servers.unwrap_or(SERVERS_DEFAULT);
            let text = description(&self.dir, servers, options.targets.unwrap_or(1), !self.is_temporary)?;
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            return Ok(usable_cluster_file(&file)?);
        }
        let map = usable_cluster_file(&file)?;
        let servers = map.servers().len();
        if options.servers.is_some_and(|wanted| usize::from(wanted) != servers) {
            bail!("{} has {servers} servers (allowed: as many, or another --dir)", file.display());
        }
        let differs = |wanted: u16| map.servers().iter().any(|server| server.targets.len() != usize::from(wanted));
        if options.targets.is_some_and(differs) {
            bail!(
                "{} has servers with other numbers of targets (allowed: no --targets, or another --dir)",
                file.display()
            );
        }
        Ok(map)
    }
}

/// Makes a key at `path`, unless there is one.
pub fn make_key(path: &Path) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = match file {
        Ok(mut file) => file.write_all(&rand::random::<[u8; KEY_LEN]>()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// A cluster file of so many servers, on sockets in `dir` and ports that are free; with their files below `dir` if they are to be
/// kept, or else in memory.
pub fn description(dir: &Path, servers: u16, targets: u16, is_kept: bool) -> Result<String> {
    let dir = dir.to_str().with_context(|| format!("{} is not UTF-8", dir.display()))?;
    let listeners: Vec<TcpListener> =
        (0..servers).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    let mut text = "# Written by `isonomia cluster up`.\nname = \"trial\"\nepoch = 1\n".to_owned();
    for (number, listener) in (1..).zip(&listeners) {
        let text_of = |text: String| toml::Value::from(text).to_string();
        let name = format!("io{number:02}");
        let socket = text_of(format!("unix:{dir}/{name}.sock"));
        let port = listener.local_addr()?.port();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n[[server]]\nname = \"{name}\"\nnumber = {number}\nlisten = [{socket}, \"tcp:127.0.0.1:{port}\"]\n\
             targets = {targets}\n"
        );
        if is_kept {
            let _ = writeln!(text, "dir = {}", text_of(format!("{dir}/{name}")));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell_are_quoted() {
        assert_eq!(quoted("unix:/run/x-1.sock"), "unix:/run/x-1.sock");
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
    }

    #[test]
    fn what_is_written_is_a_cluster() {
        for is_kept in [false, true] {
            let map = Map::parse(&description(Path::new("/tmp/a \"b\""), 3, 2, is_kept).unwrap()).unwrap();
            assert_eq!((map.servers().len(), map.servers()[2].targets.len()), (3, 2));
            assert_eq!(map.named("io02").unwrap().listen[0].to_string(), "unix:/tmp/a \"b\"/io02.sock");
            assert_eq!(map.root().dir.is_some(), is_kept);
        }
    }
}
