//! The directories of a store: who may use them, and whether they are the right ones.
//!
//! `<dir>/lock` and `<target dir>/target.lock` are locked (`flock`) for as long as the store is open and hold the
//! process id of the holder. `<dir>/identity` and `<target dir>/target.identity` are text, one `key value` a line:
//!
//! | key | in | meaning |
//! |---|---|---|
//! | `format` | both | [`crate::FORMAT_VERSION`] |
//! | `store` | both | a random number that ties targets to their store |
//! | `server` | both | the server's id |
//! | `target` | both | the target's id; in the store's file one line for each target |
//!
//! A target can be added to a store by configuring it; one that disappears is an error. `<dir>/secret` (mode 0600)
//! holds 32 random bytes: the key of capabilities, then the key that orders directories.

use crate::{FORMAT_VERSION, OpenError, StoreConfig, TargetDir};
use isonomia_units::TargetId;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The keys of one store.
#[derive(Clone, Copy)]
pub(crate) struct Secret {
    pub capability: [u8; 16],
    pub names: [u8; 16],
}

/// The locked directories. Dropping it lets another server in.
pub(crate) struct Premises {
    pub secret: Secret,
    /// Drawn anew each time.
    pub generation: u32,
    /// The store's directory.
    pub dir: OwnedFd,
    _locks: Vec<OwnedFd>,
}

impl Premises {
    /// Locks, creates what is new, and checks what is old.
    pub fn enter(config: &StoreConfig) -> Result<Self, OpenError> {
        create_dir(&config.dir)?;
        let mut locks = vec![lock(&config.dir, "lock")?];
        let recorded = Identity::read(&config.dir, "identity")?;
        let identity = match &recorded {
            Some(found) => found.clone(),
            None => Identity { store: random_number(&config.dir)?, server: config.server.0, targets: Vec::new() },
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
        for target in &config.targets {
            locks.push(enter_target(target, &identity)?);
        }
        let current = Identity { targets: config.targets.iter().map(|t| t.id.0).collect(), ..identity };
        if recorded.as_ref() != Some(&current) {
            current.write(&config.dir, "identity")?;
        }
        let generation = random_number(&config.dir)? as u32;
        let dir = File::open(&config.dir).map_err(|e| OpenError::io(&config.dir, e))?.into();
        Ok(Self { secret: secret(&config.dir)?, generation, dir, _locks: locks })
    }
}

fn enter_target(target: &TargetDir, store: &Identity) -> Result<OwnedFd, OpenError> {
    const NAME: &str = "target.identity";
    let known = store.targets.contains(&target.id.0);
    if known && !target.dir.is_dir() {
        return Err(OpenError::TargetLost { dir: target.dir.clone(), target: target.id });
    }
    create_dir(&target.dir)?;
    let lock = lock(&target.dir, "target.lock")?;
    let expected = Identity { store: store.store, server: store.server, targets: vec![target.id.0] };
    match Identity::read(&target.dir, NAME)? {
        Some(found) if found == expected => {}
        Some(found) => {
            return Err(OpenError::Mismatch {
                dir: target.dir.clone(),
                found: found.describe(),
                expected: expected.describe(),
            });
        }
        None if known => return Err(OpenError::TargetLost { dir: target.dir.clone(), target: target.id }),
        None => expected.write(&target.dir, NAME)?,
    }
    Ok(lock)
}

fn create_dir(dir: &Path) -> Result<(), OpenError> {
    fs::create_dir_all(dir).map_err(|e| OpenError::io(dir, e))
}

fn lock(dir: &Path, name: &str) -> Result<OwnedFd, OpenError> {
    let path = dir.join(name);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644)).map_err(|e| OpenError::io(&path, e))?;
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let pid = fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
            return Err(OpenError::InUse { dir: dir.to_owned(), pid });
        }
        Err(e) => return Err(OpenError::io(&path, e)),
    }
    let mut file = File::from(fd);
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(|e| OpenError::io(&path, e))?;
    Ok(file.into())
}

fn random_number(dir: &Path) -> Result<u64, OpenError> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes).map_err(|e| OpenError::io(dir, e))?;
    Ok(u64::from_le_bytes(bytes))
}

fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn secret(dir: &Path) -> Result<Secret, OpenError> {
    let path = dir.join("secret");
    let fail = |e: io::Error| OpenError::io(&path, e);
    let mut bytes = [0; 32];
    match File::open(&path) {
        Ok(mut file) => file.read_exact(&mut bytes).map_err(fail)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            fill_random(&mut bytes).map_err(fail)?;
            write_durably(dir, "secret", &bytes, 0o600)?;
        }
        Err(e) => return Err(fail(e)),
    }
    let (mut capability, mut names) = ([0; 16], [0; 16]);
    capability.copy_from_slice(&bytes[..16]);
    names.copy_from_slice(&bytes[16..]);
    Ok(Secret { capability, names })
}

/// Writes a small file so that after a crash it has either its old or its new content.
fn write_durably(dir: &Path, name: &str, content: &[u8], mode: u32) -> Result<(), OpenError> {
    let path = dir.join(format!("{name}.new"));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(mode)).map_err(|e| OpenError::io(&path, e))?;
    let mut file = File::from(fd);
    let written = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&path, dir.join(name)))
        .and_then(|()| File::open(dir)?.sync_all());
    written.map_err(|e| OpenError::io(&path, e))
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    store: u64,
    server: u16,
    targets: Vec<u16>,
}

impl Identity {
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
        let damaged = |found: &str| OpenError::Format { dir: dir.to_owned(), found: found.to_owned() };
        let (mut format, mut store, mut server, mut targets) = (None, None, None, Vec::new());
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("format", value)) => format = Some(value),
                Some(("store", value)) => store = u64::from_str_radix(value, 16).ok(),
                Some(("server", value)) => server = value.parse().ok(),
                Some(("target", value)) => targets.push(value.parse().map_err(|_| damaged(line))?),
                _ => return Err(damaged(line)),
            }
        }
        match format {
            Some(format) if format.parse() == Ok(FORMAT_VERSION) => {}
            other => return Err(damaged(other.unwrap_or("none"))),
        }
        match (store, server) {
            (Some(store), Some(server)) => Ok(Some(Self { store, server, targets })),
            _ => Err(damaged("without a store or server")),
        }
    }

    fn write(&self, dir: &Path, name: &str) -> Result<(), OpenError> {
        let mut text = format!("format {FORMAT_VERSION}\nstore {:016x}\nserver {}\n", self.store, self.server);
        for target in &self.targets {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "target {target}");
        }
        write_durably(dir, name, text.as_bytes(), 0o644)
    }
}
