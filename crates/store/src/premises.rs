//! The directories of a store: who may use them, and whether they are the right ones.
//!
//! `<dir>/lock` and `<target dir>/target.lock` are locked (`flock`) for as long as the store is open and contain the
//! process id of the holder. Where other hosts may have the directory, [`crate::owner`] says who has it. `<dir>/identity` and `<target dir>/target.identity` are text, one `key value` a line:
//!
//! | key | in | meaning |
//! |---|---|---|
//! | `format` | both | [`crate::FORMAT_VERSION`] |
//! | `store` | both | a random number that ties targets to their store |
//! | `server` | both | the server's id |
//! | `target` | both | the target's id; in the store's file one line for each target |
//! | `state` | the store's | `ready`, once the store was opened in full |
//!
//! A target can be added to a store by configuring it; one that disappears is an error. So is, once the store is ready,
//! whatever else is missing: nothing is created a second time, and an empty store never replaces a lost one.
//!
//! Directories have mode 0700 and files 0600, so that no other user of the host reads them or takes a lock.

use crate::directory_lock::DirectoryLock;
use crate::secret::Secret;
use crate::{
    FORMAT_VERSION, OpenError, StoreConfig, TargetDir, directory_lock, durable, object, object_file, owner, secret,
    witness,
};
use isonomia_units::{ServerId, TargetId};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

pub(crate) const IDENTITY: &str = "identity";
const IDENTITY_IN_TARGET: &str = "target.identity";
/// What a store's directory has in it, besides files that are being written.
const OURS: [&str; 16] = [
    directory_lock::LOCK,
    directory_lock::TURN,
    IDENTITY,
    "identity.new",
    secret::NAME,
    "secret.new",
    witness::NAME,
    "reserve",
    owner::NAME,
    "owner.new",
    crate::engine::UNSYNCED,
    "unsynced.new",
    // What the server calls the memory of mapped files by.
    "mapped",
    "mapped.new",
    // What it has learnt of applications' phases.
    "history",
    owner::START_OVER,
];
/// What a target has in it.
const OURS_IN_TARGET: [&str; 9] = [
    "target.lock",
    directory_lock::TURN,
    "target.identity",
    "target.identity.new",
    witness::NAME_IN_TARGET,
    "objects",
    "lost+found",
    object_file::PROBE,
    // Measured before, and read by the server.
    "device-profile.toml",
];
/// Mode bits of everybody but the owner.
const OTHERS: u32 = 0o077;

/// The locked directories. Dropping it lets another server in.
pub(crate) struct Premises {
    pub secret: Secret,
    /// Drawn anew each time.
    pub generation: u32,
    /// The store's directory.
    pub dir: OwnedFd,
    pub path: PathBuf,
    /// The store was never opened in full: what is missing may be created.
    pub is_new: bool,
    identity: Identity,
    _locks: Vec<DirectoryLock>,
}

impl Premises {
    /// Locks, creates what is new, and checks what is old.
    pub fn enter(config: &StoreConfig) -> Result<Self, OpenError> {
        create_dir(&config.dir)?;
        let take_over = config.ownership.as_ref().is_some_and(|ownership| ownership.take_over);
        let (dir_lock, is_forced) = directory_lock::take_or_replace(&config.dir, directory_lock::LOCK, take_over)?;
        let mut locks = vec![dir_lock];
        let recorded = Identity::read(&config.dir, IDENTITY)?;
        let identity = match &recorded {
            Some(found) => found.clone(),
            // First of all: what is created next bears its number.
            None => {
                let new = Identity::of_new(config)?;
                new.write(&config.dir, IDENTITY)?;
                new
            }
        };
        if identity.server != config.server.0 {
            return Err(OpenError::Mismatch {
                dir: config.dir.clone(),
                found: format!("of server {}", identity.server),
                expected: format!("of server {}", config.server),
            });
        }
        for known in &identity.targets {
            if !config.targets.iter().any(|t| t.id.0 == *known) {
                return Err(OpenError::TargetMissing { dir: config.dir.clone(), target: TargetId(*known) });
            }
        }
        if let Some(ownership) = &config.ownership {
            owner::claim(&config.dir, ownership, durable::random_number(&config.dir)?, is_forced)?;
        }
        let is_new = !identity.is_ready;
        let secret = Secret::read(&config.dir, is_new)?;
        for target in &config.targets {
            locks.push(enter_target(target, &identity, take_over)?);
        }
        let identity = Identity { targets: config.targets.iter().map(|t| t.id.0).collect(), ..identity };
        if recorded.as_ref() != Some(&identity) {
            identity.write(&config.dir, IDENTITY)?;
        }
        close_to_others(&config.dir, &OURS, true)?;
        let generation = durable::random_number(&config.dir)? as u32;
        let dir = File::open(&config.dir).map_err(|e| OpenError::io(&config.dir, e))?.into();
        Ok(Self { secret, generation, dir, path: config.dir.clone(), is_new, identity, _locks: locks })
    }

    /// As [`Self::enter`], for a store that was used before: nothing is created.
    pub fn enter_existing(config: &StoreConfig) -> Result<Self, OpenError> {
        match Identity::of_store(&config.dir)? {
            Some(_) => Self::enter(config),
            None => Err(OpenError::damaged(&config.dir, "holds no store that was used")),
        }
    }

    /// Says that the store was opened in full: from now on what is missing is damage.
    pub fn note_ready(&mut self, dir: &Path) -> Result<(), OpenError> {
        self.identity.is_ready = true;
        self.is_new = false;
        self.identity.write(dir, IDENTITY)
    }
}

/// Which server's store lies in `dir`, and its targets; nothing if there is none that was ever used.
pub fn known_targets(dir: &Path) -> Result<Option<(ServerId, Vec<TargetId>)>, OpenError> {
    Ok(Identity::of_store(dir)?
        .map(|found| (ServerId(found.server), found.targets.into_iter().map(TargetId).collect())))
}

fn enter_target(target: &TargetDir, store: &Identity, take_over: bool) -> Result<DirectoryLock, OpenError> {
    let known = store.targets.contains(&target.id.0);
    if known && !target.dir.is_dir() {
        return Err(OpenError::TargetLost { dir: target.dir.clone(), target: target.id });
    }
    create_dir(&target.dir)?;
    let (lock, _) = directory_lock::take_or_replace(&target.dir, "target.lock", take_over)?;
    let expected = store.of_its(target);
    match Identity::read(&target.dir, IDENTITY_IN_TARGET)? {
        Some(found) if found == expected => {}
        Some(found) => {
            return Err(OpenError::Mismatch {
                dir: target.dir.clone(),
                found: found.describe(),
                expected: expected.describe(),
            });
        }
        None if known => return Err(OpenError::TargetLost { dir: target.dir.clone(), target: target.id }),
        None if object::is_used(&target.dir)? => {
            return Err(OpenError::damaged(&target.dir, "has objects in it, and no identity that says whose"));
        }
        None => expected.write(&target.dir, IDENTITY_IN_TARGET)?,
    }
    // Before the store knows the target: then they must be there.
    if !known || !store.is_ready {
        object::create_directories(&target.dir)?;
    }
    close_to_others(&target.dir, &OURS_IN_TARGET, false)?;
    Ok(lock)
}

/// Creates the directory in which a store and targets lie, and sees to it that no other user of the host gets in. What
/// is called otherwise than in `ours` is taken for somebody else's: then the mode of one that exists is told and left.
pub fn own_directory(dir: &Path, ours: &[&str]) -> Result<(), OpenError> {
    create_dir(dir)?;
    close_to_others(dir, ours, false)
}

fn create_dir(dir: &Path) -> Result<(), OpenError> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| OpenError::io(dir, e))?;
    for created in missing {
        // A path that ends here is relative to the working directory.
        let parent = created.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(|e| OpenError::io(parent, e))?;
    }
    Ok(())
}

/// Sees to it that no other user of the host gets into `dir`, which has what is called as in `ours`, nor, with `inside`,
/// has anything else opened to him. What belongs to somebody else, or has other things in it, is told and left alone.
fn close_to_others(dir: &Path, ours: &[&str], inside: bool) -> Result<(), OpenError> {
    let fail = |e: io::Error| OpenError::io(dir, e);
    let owner = fs::metadata(dir).map_err(fail)?.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(OpenError::Owner { dir: dir.to_owned(), owner });
    }
    // Where nobody else can get into `dir`, the modes of what is in it are put right without a word in the log.
    let is_reached = mode_of(dir)? & OTHERS != 0;
    let mut is_ours = true;
    for entry in fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let is_database = inside && entry.file_name().to_str().is_some_and(owner::is_database);
        if is_database || ours.iter().any(|known| entry.file_name() == *known) {
            close(&entry.path(), is_reached, inside)?;
        } else {
            is_ours = false;
        }
    }
    if is_reached {
        tell(dir)?;
    }
    if is_ours { set_mode(dir, 0o700) } else { Ok(()) }
}

/// Takes everything from others at `path`, and with `inside` below it: all of it is ours.
fn close(path: &Path, is_reached: bool, inside: bool) -> Result<(), OpenError> {
    let found = fs::symlink_metadata(path).map_err(|e| OpenError::io(path, e))?;
    if found.is_symlink() {
        return Ok(());
    }
    let is_open = found.mode() & OTHERS != 0;
    if is_open && is_reached {
        tell(path)?;
    }
    if found.is_dir() && inside {
        for entry in fs::read_dir(path).map_err(|e| OpenError::io(path, e))? {
            close(&entry.map_err(|e| OpenError::io(path, e))?.path(), is_reached && is_open, inside)?;
        }
    }
    set_mode(path, if found.is_dir() { 0o700 } else { 0o600 })
}

fn mode_of(path: &Path) -> Result<u32, OpenError> {
    Ok(fs::symlink_metadata(path).map_err(|e| OpenError::io(path, e))?.mode())
}

/// Sets the mode of what is open to others, and belongs to the server.
fn set_mode(path: &Path, mode: u32) -> Result<(), OpenError> {
    let fail = |e| OpenError::io(path, e);
    let found = fs::symlink_metadata(path).map_err(fail)?;
    if found.mode() & OTHERS != 0 && found.uid() == rustix::process::geteuid().as_raw() {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fail)?;
    }
    Ok(())
}

fn tell(path: &Path) -> Result<(), OpenError> {
    let mode = format!("{:04o}", mode_of(path)? & 0o7777);
    tracing::warn!(path = %path.display(), mode, "other users of this host could get in");
    Ok(())
}

/// What a store or a target says that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    store: u64,
    server: u16,
    targets: Vec<u16>,
    is_ready: bool,
}

impl Identity {
    /// Of a store that is about to be created; there must be nothing of one.
    fn of_new(config: &StoreConfig) -> Result<Self, OpenError> {
        let database = owner::database_dir(&config.dir);
        let others = [secret::NAME, witness::NAME].map(|name| config.dir.join(name));
        if let Some(found) = std::iter::once(&database).chain(&others).find(|path| path.exists()) {
            let found = found.file_name().unwrap_or_default().display();
            return Err(OpenError::damaged(&config.dir.join(IDENTITY), format!("is missing, though {found} is there")));
        }
        let store = durable::random_number(&config.dir)?;
        Ok(Self { store, server: config.server.0, targets: Vec::new(), is_ready: false })
    }

    /// What the targets of `config` say, if they all say the same.
    pub fn from_targets(config: &StoreConfig) -> Option<Self> {
        let mut targets = config.targets.iter().map(|target| Some((target.id, Self::of_target(&target.dir).ok()??)));
        let mut all = Self { targets: Vec::new(), is_ready: true, ..targets.clone().next()??.1 };
        targets
            .all(|target| {
                target.is_some_and(|(id, target)| {
                    all.targets.push(id.0);
                    (target.store, target.server, target.targets) == (all.store, all.server, vec![id.0])
                })
            })
            .then_some(all)
    }

    /// Of the store in `dir`; nothing if there is none that was ever used.
    pub fn of_store(dir: &Path) -> Result<Option<Self>, OpenError> {
        Ok(Self::read(dir, IDENTITY)?.filter(|identity| identity.is_ready))
    }

    pub fn of_target(dir: &Path) -> Result<Option<Self>, OpenError> {
        Self::read(dir, IDENTITY_IN_TARGET)
    }

    pub fn write_to_store(&self, dir: &Path) -> Result<(), OpenError> {
        self.write(dir, IDENTITY)
    }

    pub fn write_to_target(&self, target: &TargetDir) -> Result<(), OpenError> {
        self.of_its(target).write(&target.dir, IDENTITY_IN_TARGET)
    }

    pub fn server(&self) -> ServerId {
        ServerId(self.server)
    }

    pub fn has(&self, target: TargetId) -> bool {
        self.targets.contains(&target.0)
    }

    /// What `target` says if it is this store's.
    fn of_its(&self, target: &TargetDir) -> Self {
        Self { targets: vec![target.id.0], is_ready: false, ..self.clone() }
    }

    fn describe(&self) -> String {
        let targets: Vec<String> = self.targets.iter().map(u16::to_string).collect();
        format!("target {} of server {} in store {:016x}", targets.join(", "), self.server, self.store)
    }

    fn read(dir: &Path, name: &str) -> Result<Option<Self>, OpenError> {
        let path = dir.join(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(OpenError::io(&path, e)),
        };
        if text.trim().is_empty() {
            return Err(OpenError::damaged(&path, "is empty"));
        }
        let spoilt = |what: &str| OpenError::damaged(&path, format!("has {what}"));
        let damaged = |line: &str| spoilt(&format!("the line {line:?}"));
        let (mut format, mut store, mut server, mut targets, mut is_ready) = (None, None, None, Vec::new(), false);
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("format", value)) => format = Some(value),
                Some(("store", value)) => store = u64::from_str_radix(value, 16).ok(),
                Some(("server", value)) => server = value.parse().ok(),
                Some(("target", value)) => targets.push(value.parse().map_err(|_| damaged(line))?),
                Some(("state", "ready")) => is_ready = true,
                _ => return Err(damaged(line)),
            }
        }
        match format.map(str::parse) {
            Some(Ok(FORMAT_VERSION)) => {}
            Some(Ok(other)) => {
                let found = u32::to_string(&other);
                return Err(OpenError::Format { dir: dir.to_owned(), found });
            }
            _ => return Err(spoilt("no format")),
        }
        match (store, server) {
            (Some(store), Some(server)) => Ok(Some(Self { store, server, targets, is_ready })),
            _ => Err(spoilt("no store or server")),
        }
    }

    fn write(&self, dir: &Path, name: &str) -> Result<(), OpenError> {
        let mut text = format!("format {FORMAT_VERSION}\nstore {:016x}\nserver {}\n", self.store, self.server);
        for target in &self.targets {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "target {target}");
        }
        if self.is_ready {
            text.push_str("state ready\n");
        }
        durable::write(dir, name, text.as_bytes())
    }
}
