//! `isonomia stripe`: how files are striped over servers.

use crate::arguments::{LocationOptions, StripeCommand, StripeGetOptions, StripeOptions, StripeSetOptions};
use crate::control::{Control, addresses};
use crate::run::PREFIX_DEFAULT;
use anyhow::{Context, Result, bail};
use isonomia_client::{Client, ClientConfig, FileKind, Ino, XattrHow, identity};
use isonomia_proto::striping::{Striping, TEXT_LEN_MAX, XATTR};
use isonomia_units::{Nanos, Placement, TargetId};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// How long a server may take.
const TIMEOUT: Nanos = Nanos::from_secs(30);

pub fn stripe(options: &StripeOptions) -> Result<()> {
    match &options.command {
        StripeCommand::Get(options) => get(options),
        StripeCommand::Set(options) => set(options),
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Shown {
    /// Whether files are on the server of their volume.
    is_default: bool,
    count: usize,
    size_bytes: u64,
    servers: Vec<String>,
    targets: Vec<u16>,
    /// How targets of new files are chosen, if a directory says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<Placement>,
    /// A file is on one target while it is small.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    grows: bool,
}

fn get(options: &StripeGetOptions) -> Result<()> {
    let location = Location::of(&options.path, &options.location)?;
    let shown = || options.path.display();
    let found = match location.get() {
        Ok(text) => {
            let text = String::from_utf8(text).ok().with_context(|| format!("{}: no layout", shown()))?;
            Some(text.parse::<Striping>().with_context(|| format!("{}", shown()))?)
        }
        Err(Errno::NODATA) => None,
        Err(errno) => return Err(location.error(errno)).with_context(|| format!("{}", shown())),
    };
    let mut out = std::io::stdout().lock();
    if options.json {
        let Striping { count, stripe_bytes: size_bytes, servers, targets, place, grows } =
            found.clone().unwrap_or(Striping::over(1));
        let targets = targets.iter().map(|target| target.0).collect();
        let shown = Shown { is_default: found.is_none(), count, size_bytes, servers, targets, place, grows };
        writeln!(out, "{}", serde_json::to_string_pretty(&shown)?)?;
    } else if let Some(found) = found {
        writeln!(out, "{found}")?;
    } else {
        writeln!(out, "default: on the server of the volume")?;
    }
    Ok(())
}

fn set(options: &StripeSetOptions) -> Result<()> {
    let StripeSetOptions { count, how, grow, size, servers, targets, path, location } = options;
    let count = count.unwrap_or(targets.len().max(1));
    let wanted = Striping {
        count,
        stripe_bytes: *size,
        servers: servers.clone(),
        targets: targets.iter().copied().map(TargetId).collect(),
        place: *how,
        grows: *grow,
    };
    // What no layout can be, by the same words as everywhere.
    let wanted: Striping = wanted.to_string().parse()?;
    let at = Location::of(path, location)?;
    if let Location::Server { .. } = at {
        check_servers(&wanted, location)?;
    }
    let shown = || format!("{}", path.display());
    let (kind, size_bytes) = at.kind().map_err(|errno| at.error(errno)).with_context(shown)?;
    match kind {
        FileKind::Directory => {}
        FileKind::Regular if size_bytes == 0 => {}
        FileKind::Regular => {
            bail!("{}: the file has {size_bytes} bytes (allowed: a directory, an empty file)", shown())
        }
        _ => bail!("{}: neither a directory nor a file (allowed: a directory, an empty file)", shown()),
    }
    at.set(wanted.to_string().as_bytes()).map_err(|errno| at.error(errno)).with_context(shown)
}

/// Names the servers that there are, where one is wanted that there is not.
fn check_servers(wanted: &Striping, location: &LocationOptions) -> Result<()> {
    let known = Control::connect(&location.server)?.volumes()?.servers;
    if let Some(name) = wanted.servers.iter().find(|name| !known.iter().any(|server| server.name == **name)) {
        let names = isonomia_cluster::hosts::compress(known.iter().map(|server| server.name.as_str()));
        bail!("the cluster has no server {name:?} (allowed: {names})");
    }
    let of_these = |name: &String| wanted.servers.is_empty() || wanted.servers.contains(name);
    let there: usize =
        known.iter().filter(|server| of_these(&server.name)).map(|server| usize::from(server.targets)).sum();
    if wanted.count > there {
        bail!("--count {}: there are {there} targets (allowed: 1 to {there})", wanted.count);
    }
    Ok(())
}

/// Where a path is.
enum Location {
    /// On a server that is asked without a mount: from the root.
    Server { client: Box<Client>, path: Vec<u8> },
    /// What the kernel is asked for.
    Kernel(PathBuf),
}

impl Location {
    fn of(path: &OsStr, options: &LocationOptions) -> Result<Self> {
        let prefix = Path::new(options.prefix.as_deref().unwrap_or(PREFIX_DEFAULT));
        let Ok(rest) = Path::new(path).strip_prefix(prefix) else { return Ok(Self::Kernel(path.into())) };
        if rest.components().any(|part| part == Component::ParentDir) {
            bail!("{}: .. in it (allowed: a path below {} without)", path.display(), prefix.display());
        }
        let LocationOptions { server, .. } = options;
        let config = ClientConfig {
            addresses: addresses(server).as_slice().to_vec(),
            timeout: TIMEOUT,
            claims: identity::from_environment(|name| std::env::var(name).ok()),
            key_file: server.reach.key_file.as_ref().map(|path| path.display().to_string()),
        };
        let client =
            Client::new(config).trusting(server.reach.server_user).protected(server.reach.protection.protection());
        Ok(Self::Server { client: Box::new(client), path: rest.as_os_str().as_bytes().to_vec() })
    }

    fn get(&self) -> Result<Vec<u8>, Errno> {
        let mut room = vec![0; TEXT_LEN_MAX];
        let len = match self {
            Self::Server { client, path } => {
                client.get_xattr(Ino::ROOT, path, true, XATTR, &mut room).map_err(|error| error.errno())?
            }
            Self::Kernel(path) => rustix::fs::getxattr(path, XATTR, &mut room)?,
        };
        room.truncate(len);
        Ok(room)
    }

    fn set(&self, value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Server { client, path } => {
                let set = client.set_xattr(Ino::ROOT, path, true, XATTR, value, XattrHow::default());
                set.map_err(|error| error.errno())
            }
            Self::Kernel(path) => rustix::fs::setxattr(path, XATTR, value, XattrFlags::empty()),
        }
    }

    /// What is there, and its size in bytes.
    fn kind(&self) -> Result<(FileKind, u64), Errno> {
        match self {
            Self::Server { client, path } => {
                let attr = client.get_attr(Ino::ROOT, path, true).map_err(|error| error.errno())?;
                Ok((attr.kind(), attr.size_bytes))
            }
            Self::Kernel(path) => {
                let stat = rustix::fs::stat(path)?;
                Ok((FileKind::from_mode(stat.st_mode).unwrap_or(FileKind::Regular), stat.st_size as u64))
            }
        }
    }

    /// What an errno means here.
    fn error(&self, errno: Errno) -> anyhow::Error {
        match errno {
            Errno::OPNOTSUPP => anyhow::anyhow!(
                "files cannot be striped here: it takes a cluster whose servers have a key file in common"
            ),
            Errno::INVAL => anyhow::anyhow!(
                "the cluster has no such servers or not so many targets (`isonomia cluster check` prints them)"
            ),
            Errno::BUSY => anyhow::anyhow!("the file is open, or has bytes (allowed: a directory, an empty file)"),
            errno => errno.into(),
        }
    }
}
