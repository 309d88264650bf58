//! What a store that lost its power must still hold, and do.

use crate::bench::Bench;
use crate::model::{Attributes, Names};
use crate::objects::FoundObjects;
use crate::pattern;
use crate::run::{Run, time_of};
use isonomia_proto::fs::{FileKind, access};
use isonomia_store::{Caller, OpenHow, Store, StoreConfig, StoreError};
use isonomia_testbed::Heard;
use isonomia_units::Ino;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const ROOT: Caller<'static> = Caller::ROOT;
/// The longest listing of a directory.
const LISTING_BYTES_MAX: usize = 1 << 16;
/// Files made after every power cut.
const NEW_FILES: usize = 4;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// One word of what it is, to count by.
    pub kind: &'static str,
    pub detail: String,
}

impl Violation {
    pub fn new(kind: &'static str, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

/// What is found in a store.
#[derive(Default)]
struct Found {
    names: Names,
    contents: BTreeMap<u64, Vec<u8>>,
    mtimes: BTreeMap<u64, i64>,
    links: BTreeMap<u64, u32>,
}

/// Opens the store on the mounted file system of `bench`, whose power was cut at `position` of `run`, and says what
/// is wrong with it.
pub fn judge(bench: &Bench, run: &Run, position: usize) -> Vec<Violation> {
    let config = bench.config();
    let host_sizes = host_sizes(&config);
    let store = match Store::open(&config) {
        Ok(store) => store,
        Err(error) => return vec![Violation::new("open", format!("the store does not open: {error}"))],
    };
    let mut violations = Vec::new();
    let found = match find_all(&store) {
        Ok(found) => found,
        Err(error) => return vec![Violation::new("read", format!("the store cannot be read: {error}"))],
    };
    check_names(run, position, &found, &mut violations);
    check_contents(run, position, &found, &host_sizes, &mut violations);
    let (targets, begun) = (config.targets.len(), run.begun_at(position));
    let objects = match run.objects.find(&store, targets, begun) {
        Ok(objects) => objects,
        Err(error) => return vec![Violation::new("read", format!("detached objects cannot be read: {error}"))],
    };
    run.objects.check(run, position, &objects, &host_sizes, &mut violations);
    if let Err(error) = run.objects.use_them(&store, targets, &objects, &mut violations) {
        violations.push(Violation::new("use", format!("detached objects cannot be used: {error}")));
    }
    if let Err(error) = use_it(&store, run, position, &found, &mut violations) {
        violations.push(Violation::new("use", format!("the store cannot be used: {error}")));
    }
    drop(store);

    let heard = Heard::default();
    let again = tracing::subscriber::with_default(heard.clone(), || Store::open(&config));
    let again = match again {
        Ok(store) => store,
        Err(error) => {
            violations.push(Violation::new("reopen", format!("the store does not open twice: {error}")));
            return violations;
        }
    };
    let said = heard.take();
    // The files of `use_it` were synced, the others recovered: nothing is left to do.
    if !said.is_empty() {
        violations.push(Violation::new("repair", format!("the second open still has to say: {said}")));
    }
    match find_all(&again) {
        Ok(second) => {
            for (ino, content) in &found.contents {
                if second.contents.get(ino) != Some(content) {
                    violations.push(Violation::new("drift", format!("inode {ino} is another one at the second open")));
                }
            }
        }
        Err(error) => violations.push(Violation::new("reread", format!("the store cannot be read twice: {error}"))),
    }
    match run.objects.find(&again, targets, begun) {
        Ok(second) if contents(&second) == contents(&objects) => {}
        Ok(_) => violations.push(Violation::new("drift", "detached objects are others at the second open")),
        Err(error) => violations.push(Violation::new("reread", format!("detached objects, the second time: {error}"))),
    }
    let detached = again.objects().detached_objects(None, usize::MAX).map_or(0, |all| all.len());
    let (objects, files) = (objects_of(&config), found.contents.len() + NEW_FILES + detached);
    if objects.len() > files {
        violations.push(Violation::new("left-over", format!("{files} files have objects of more: {objects:?}")));
    }
    violations
}

fn contents(found: &FoundObjects) -> Vec<Option<&[u8]>> {
    found.values().map(|found| found.as_ref().map(|(content, _)| &content[..])).collect()
}

/// The first two parts of the names of all objects and their checksums: the same for all that are of one file.
fn objects_of(config: &StoreConfig) -> BTreeSet<String> {
    let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let names = object_paths(config).into_iter().filter_map(name);
    names.map(|name| name.split('.').take(2).collect::<Vec<_>>().join(".")).collect()
}

/// The least size of a file with each of the objects, as the host has it.
fn host_sizes(config: &StoreConfig) -> BTreeSet<u64> {
    let (stripe, targets) = (config.default_layout.stripe_bytes, config.targets.len() as u64);
    let size = |path: PathBuf| {
        // Sidecars end otherwise.
        let index: u64 = path.extension()?.to_str()?.parse().ok()?;
        let len = path.metadata().ok()?.len();
        let last = len.checked_sub(1)?;
        // A detached object is so long itself.
        let is_detached = path.file_name()?.to_str()?.starts_with("0007");
        Some(if is_detached { len } else { (last / stripe * targets + index) * stripe + last % stripe + 1 })
    };
    object_paths(config).into_iter().filter_map(size).collect()
}

fn object_paths(config: &StoreConfig) -> Vec<PathBuf> {
    let entries = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let directories = config.targets.iter().flat_map(|target| entries(target.dir.join("objects")));
    directories.flat_map(entries).collect()
}

fn check_names(run: &Run, position: usize, found: &Found, violations: &mut Vec<Violation>) {
    let (synced, begun) = (run.kept_at(position), run.begun_at(position));
    if !run.names[synced..=begun].contains(&found.names) {
        let earlier = run.names[..synced].iter().rposition(|names| *names == found.names);
        let difference = run.names[synced].difference(&found.names);
        let (kind, what) = match earlier {
            Some(step) => ("names-lost", format!("they are those before operation {step}")),
            None => ("names", "they never were like that".to_owned()),
        };
        let detail = format!("names are not those between operations {synced} and {begun}, {what}: {difference}");
        violations.push(Violation::new(kind, detail));
    }
    for (ino, links) in &found.links {
        let names = found.names.files.values().filter(|named| *named == ino).count() as u32;
        if *links != names {
            violations.push(Violation::new("links", format!("inode {ino} has {names} names and counts {links}")));
        }
    }
}

fn check_contents(
    run: &Run,
    position: usize,
    found: &Found,
    host_sizes: &BTreeSet<u64>,
    violations: &mut Vec<Violation>,
) {
    let (done, begun) = (run.done_at(position), run.begun_at(position));
    for (ino, content) in &found.contents {
        let names: Vec<&String> = found.names.files.iter().filter(|(_, named)| *named == ino).map(|(n, _)| n).collect();
        let Some(history) = run.histories.get(ino) else {
            violations.push(Violation::new("stranger", format!("inode {ino} at {names:?} was never made")));
            continue;
        };
        let synced = history.synced.iter().rev().find(|step| **step < done);
        if let Err(damage) = history.explain(content, begun, |step| step < done, run.kept_at(position), host_sizes) {
            let promise = synced.map_or("none".to_owned(), |step| format!("{:?}", run.done[*step].operation));
            let detail = format!("file {} (inode {ino}) at {names:?}: {} (by {promise})", history.file, damage.detail);
            violations.push(Violation::new(damage.kind, detail));
            continue;
        }
        // A time is the caller's when it was synced and nothing was done to it since.
        let times = &run.times[ino];
        if let Some(synced) = synced.filter(|synced| history.fsynced.contains(synced))
            && let Some((last, Some(secs))) = times.iter().rev().find(|(step, _)| *step < begun)
            && last <= synced
            && found.mtimes[ino] != *secs
        {
            let detail = format!("inode {ino} at {names:?} has {} instead of {secs}", found.mtimes[ino]);
            violations.push(Violation::new("time", detail));
        }
    }
}

/// New files have new numbers, and nothing in them that nobody wrote; old ones can be written.
fn use_it(
    store: &Store,
    run: &Run,
    position: usize,
    found: &Found,
    violations: &mut Vec<Violation>,
) -> Result<(), StoreError> {
    let done = run.done_at(position);
    let now = time_of(run.done.len());
    for index in 0..NEW_FILES {
        let name = format!("after{index}");
        let how = OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
        let opened = store.open_file(&ROOT, Ino::ROOT, name.as_bytes(), &how, now)?;
        let ino = opened.ino;
        if let Some((step, _)) = run.numbers.iter().find(|(step, number)| *step < done && *number == ino.0) {
            let detail = format!("the new file has inode number {ino}, which operation {step} was told");
            violations.push(Violation::new("number", detail));
        }
        let bytes = pattern::bytes(0xfff, index as u32, 6000, 3000);
        store.write(ino, 6000, &bytes, now)?;
        store.set_size(ino, 30_000, now)?;
        store.fsync(ino, false)?;
        let content = content(store, ino)?;
        let (before, after) = (&content[..6000], &content[9000..]);
        let stranger = (0..).zip(before).find(|(_, byte)| **byte != 0);
        let stranger = stranger.or_else(|| (9000..).zip(after).find(|(_, byte)| **byte != 0));
        if let Some((offset, _)) = stranger {
            let origin = pattern::origin(&content, offset);
            violations.push(Violation::new("leak", format!("a new file has at {offset} {origin}")));
        }
        if content[6000..9000] != bytes || content.len() != 30_000 {
            violations.push(Violation::new("written", "what is written to a new file is not read"));
        }
        store.release(ino)?;
    }
    // Not one of no bytes: cutting it to that again would leave something to remove.
    if let Some((name, ino)) = found.names.files.iter().find(|(_, ino)| !found.contents[ino].is_empty()) {
        let size = found.contents[ino].len() as u64;
        let (offset, _) = store.append(Ino(*ino), b"more", now)?;
        store.set_size(Ino(*ino), size, now)?;
        store.fsync(Ino(*ino), true)?;
        if offset != size || content(store, Ino(*ino))? != found.contents[ino] {
            violations.push(Violation::new("written", format!("{name} cannot be appended to and cut")));
        }
    }
    Ok(())
}

fn find_all(store: &Store) -> Result<Found, StoreError> {
    let mut found = Found::default();
    find_in(store, Ino::ROOT, "", &mut found)?;
    Ok(found)
}

fn find_in(store: &Store, dir: Ino, prefix: &str, found: &mut Found) -> Result<(), StoreError> {
    for entry in store.namespace().read_dir(&ROOT, dir, 0, LISTING_BYTES_MAX)? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        if name == "." || name == ".." {
            continue;
        }
        let path = format!("{prefix}{name}");
        let by_name = store.get_attr(&ROOT, dir, &entry.name, false)?;
        let attr = store.get_attr(&ROOT, entry.ino, b"", false)?;
        if by_name.ino != entry.ino.0 || attr != by_name {
            return Err(StoreError::Damaged(entry.ino));
        }
        if entry.kind == FileKind::Directory {
            found.names.dirs.insert(path.clone(), attr.mode);
            find_in(store, entry.ino, &format!("{path}/"), found)?;
            continue;
        }
        if entry.kind == FileKind::Symlink {
            let text = store.namespace().readlink(&ROOT, entry.ino, b"")?;
            found.names.symlinks.insert(path, String::from_utf8_lossy(&text).into_owned());
            continue;
        }
        found.names.files.insert(path, attr.ino);
        found.names.attributes.insert(attr.ino, Attributes { mode: attr.mode, xattrs: xattrs(store, entry.ino)? });
        found.contents.insert(attr.ino, content(store, entry.ino)?);
        found.mtimes.insert(attr.ino, attr.mtime.secs);
        found.links.insert(attr.ino, attr.nlink);
    }
    Ok(())
}

fn xattrs(store: &Store, ino: Ino) -> Result<BTreeMap<String, String>, StoreError> {
    let listing = store.namespace().list_xattrs(&ROOT, ino, b"", false)?;
    let keys = listing.split(|byte| *byte == 0).filter(|key| !key.is_empty());
    keys.map(|key| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(key), store.namespace().get_xattr(&ROOT, ino, b"", false, key, text)?))
    })
    .collect()
}

fn content(store: &Store, ino: Ino) -> Result<Vec<u8>, StoreError> {
    let size = store.get_attr(&ROOT, ino, b"", true)?.size_bytes as usize;
    let mut bytes = vec![0xee; size + 1];
    let len = store.read(ino, 0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}
