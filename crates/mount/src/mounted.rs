//! A mount from its beginning to its end.

use crate::clients::{Clients, Own, Reach};
use crate::filesystem::MountedFiles;
use crate::mappings::Mappings;
use crate::mount_point::{self, FILE_SYSTEM_TYPE, MountPointError};
use crate::options::Options;
use crate::poller::Poller;
use fuser::{Config, MountOption, Session, SessionACL};
use isonomia_client::{Address, Ino, identity};
use std::io;
use std::num::NonZero;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The kernel's poller to file systems of programs.
const DEVICE: &str = "/dev/fuse";
/// Between two looks for clients that nobody uses.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// A mount that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point.
    #[error(transparent)]
    MountPoint(#[from] MountPointError),
    /// The kernel has no FUSE, or this container does not show it.
    #[error("{DEVICE} cannot be opened: {error}{hint}", hint = hint(.error))]
    Device {
        /// Why.
        error: io::Error,
    },
    /// The server does not answer, or refuses.
    #[error("{0}")]
    Server(isonomia_client::Error),
    /// The system refused.
    #[error("cannot mount at {path}: {error}", path = .path.display())]
    System {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; load the module with `modprobe fuse`, or give the container the device",
        io::ErrorKind::PermissionDenied => "; ordinary users can mount where its mode is 666",
        _ => "",
    }
}

/// A mount that stands, and is not served as yet: programs that use it wait.
pub struct Mounted {
    fuse: Session<MountedFiles>,
    clients: Arc<Clients>,
    mappings: Arc<Mappings>,
    mount_point: PathBuf,
}

/// Ends a mount from another thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mount_point: PathBuf,
}

/// Mounts at `path`. The server must answer: a mount of nothing is an error now, not at the first program.
pub fn mount(path: &Path, options: &Options) -> Result<Mounted, MountError> {
    let mount_point = mount_point::prepare(path)?;
    std::fs::OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| MountError::Device { error })?;
    let uid = rustix::process::geteuid().as_raw();
    let speaks_for_others = uid == 0 || options.allow_other;
    let own = Own {
        uid,
        gid: rustix::process::getegid().as_raw(),
        speaks_for_others,
        claims: identity::from_environment(|name| std::env::var(name).ok()),
    };
    let reach = Reach {
        addresses: options.server.clone(),
        timeout: options.timeout,
        key_file: options.key_file.clone(),
        server_user: options.server_user,
        protection: options.protection.clone(),
    };
    let system = |errno: rustix::io::Errno| MountError::System { path: mount_point.clone(), error: errno.into() };
    let clients = Arc::new(Clients::new(reach, own).map_err(system)?);
    let own = clients.own().map_err(system)?;
    let root = own.look_up(Ino::ROOT, b"", false).map_err(MountError::Server)?;
    let poller = Poller::new(std::thread::available_parallelism().map_or(1, NonZero::get));
    let mappings = Arc::new(Mappings::new(clients.clone(), options.timeout));
    let checks = kernel_checks(options, speaks_for_others);
    let proofs_and_checks = (root.capability.is_proven(), checks);
    let files = MountedFiles::new(clients.clone(), mappings.clone(), poller.clone(), proofs_and_checks, options);
    let fuse =
        Session::new(files, &mount_point, &config(options, checks)).map_err(|error| refusal(&mount_point, error))?;
    let device = fuse.as_fd().try_clone_to_owned();
    poller.open(device.map_err(|error| MountError::System { path: mount_point.clone(), error })?);
    Ok(Mounted { fuse, clients, mappings, mount_point })
}

/// Whether the kernel is to check permissions, too. The server checks whoever looks up, opens or changes something, but of
/// some things it never hears: who opens a FIFO or a device, connects to a socket, watches a file, follows a link in a
/// directory for all, or looks up a name that the kernel remembers.
///
/// To a server on TCP, the user of a mount that speaks for nobody else may be one with another number. What belongs to that
/// one the kernel would take for a stranger's.
fn kernel_checks(options: &Options, speaks_for_others: bool) -> bool {
    let is_the_same_user =
        speaks_for_others || options.server.as_slice().iter().all(|address| matches!(address, Address::Unix(_)));
    is_the_same_user || options.default_permissions || !options.entry_timeout.is_zero()
}

fn config(options: &Options, kernel_checks: bool) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone().unwrap_or_else(|| options.server.as_slice()[0].to_string())),
        // `fuser` gives `Subtype` to fusermount3 only; this reaches the kernel too.
        MountOption::CUSTOM(format!("subtype={}", FILE_SYSTEM_TYPE.trim_start_matches("fuse."))),
        MountOption::NoAtime,
    ];
    let either = |set, yes, no| if set { yes } else { no };
    config.mount_options.extend([
        either(options.read_only, MountOption::RO, MountOption::RW),
        either(options.dev, MountOption::Dev, MountOption::NoDev),
        either(options.suid, MountOption::Suid, MountOption::NoSuid),
        either(options.no_exec, MountOption::NoExec, MountOption::Exec),
    ]);
    if kernel_checks {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    config
}

/// What a user can do about it, where that is known.
fn refusal(mount_point: &Path, error: io::Error) -> MountError {
    if error.kind() == io::ErrorKind::NotFound {
        return MountPointError::FusermountMissing.into();
    }
    // What fusermount3 says comes with its end of line.
    let error = match error.raw_os_error() {
        Some(_) => error,
        None => io::Error::new(error.kind(), error.to_string().trim_end().to_owned()),
    };
    MountError::System { path: mount_point.to_owned(), error }
}

impl Mounted {
    /// What ends this mount.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter { mount_point: self.mount_point.clone() }
    }

    /// Where it is mounted: an absolute path.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Serves programs until the mount ends.
    pub fn serve(self) -> io::Result<()> {
        let Self { fuse, clients, mappings, mount_point } = self;
        mappings.start(fuse.notifier());
        let (end, ended) = mpsc::channel::<()>();
        let sweeper = std::thread::Builder::new().name("sweeper".to_owned()).spawn(move || {
            while ended.recv_timeout(SWEEP_EVERY) == Err(RecvTimeoutError::Timeout) {
                clients.sweep();
            }
        })?;
        let outcome = run(fuse);
        drop(end);
        // It has no result but its end.
        let _ = sweeper.join();
        if is_aborted(&outcome) && !mount_point::is_ours(&mount_point) {
            // It was unmounted, and ended while the kernel handed over one of its last requests.
            return Ok(());
        }
        if outcome.is_err() {
            // Whatever broke, programs must not wait for a mount that nobody serves. It may be gone already.
            let _ = mount_point::detach(&mount_point, true);
        }
        outcome
    }
}

fn is_aborted(outcome: &io::Result<()>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionAborted)
}

/// Serves the kernel to the end without `fuser`'s unmounting after it: by then somebody has unmounted, and what is at
/// the mount point now, if anything, is not ours (`fuser` 0.18 does not tell).
fn run(fuse: Session<MountedFiles>) -> io::Result<()> {
    let background = Box::leak(Box::new(fuse.spawn()?));
    let finished = std::thread::spawn(|| Ok(()));
    let guard = std::mem::replace(&mut background.guard, finished);
    guard.join().unwrap_or_else(|_| Err(io::Error::other("a thread that serves requests panicked")))
}

impl Unmounter {
    /// Unmounts. If programs use the mount, it vanishes for others and ends with the last of them; then this gives
    /// false.
    pub fn unmount(&self) -> Result<bool, MountPointError> {
        if !mount_point::is_ours(&self.mount_point) {
            // Somebody else was first.
            return Ok(true);
        }
        match mount_point::detach(&self.mount_point, false) {
            Ok(()) => Ok(true),
            Err(MountPointError::Busy(_)) => mount_point::detach(&self.mount_point, true).map(|()| false),
            Err(error) => Err(error),
        }
    }
}
