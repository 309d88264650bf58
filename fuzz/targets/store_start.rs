//! A store whose journal, small files, objects or sidecars were changed while it was closed: it opens, and a file has the bytes
//! that were synced, or there is an error; or it says why not, and nothing is another than it was.

#![no_main]

use isonomia_proto::fs::{Timestamp, access};
use isonomia_store::{Caller, OpenError, OpenHow, Store, StoreConfig, StoreError, TargetDir};
use isonomia_units::{Ino, ServerId, TargetId};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Files of the store: empty, less than a block, and of some blocks on both targets.
const LENS: [usize; 4] = [0, 100, 20_000, 50_000];

/// What befalls one file of those in [`Template`].
#[derive(Debug, Arbitrary)]
enum Change {
    Byte {
        file: u8,
        at: u16,
        value: u8,
    },
    Zeros {
        file: u8,
        page: u8,
    },
    Cut {
        file: u8,
        to: u16,
    },
    Grown {
        file: u8,
        by: Vec<u8>,
    },
    Exchanged {
        file: u8,
        other: u8,
    },
    Removed {
        file: u8,
    },
    /// One of the tables of the database.
    TableRemoved {
        file: u8,
    },
}

/// A file of the store by its path, or `None` once it was removed.
type Files = Vec<(PathBuf, Option<Vec<u8>>)>;

/// A store that was closed.
struct Template {
    /// Every file but the tables of the database, which have checksums of their own.
    changeable: Files,
    rest: Files,
    directories: Vec<PathBuf>,
}

fuzz_target!(|changes: Vec<Change>| {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    let template = TEMPLATE.get_or_init(template);
    let (mut files, mut rest) = (template.changeable.clone(), template.rest.clone());
    changes.iter().take(8).for_each(|change| change.make(&mut files, &mut rest));
    let dir = tempfile::tempdir().expect("a directory");
    template.directories.iter().for_each(|path| fs::create_dir_all(dir.path().join(path)).expect("a directory"));
    for (path, bytes) in files.iter().chain(&rest) {
        bytes.iter().for_each(|bytes| fs::write(dir.path().join(path), bytes).expect("a file"));
    }
    match Store::open(&config(dir.path())) {
        Ok(store) => LENS.iter().for_each(|len| expect_content(&store, *len)),
        Err(error) => {
            assert!(error.to_string().contains(&*dir.path().to_string_lossy()), "{error}");
            expect_unchanged(dir.path(), files.iter().chain(&rest), &template.directories, &error);
        }
    }
});

/// What a refused start may make: the lock says who tried, and the rest is made anew where it is missing.
const MADE: [&str; 5] = ["lock", "target.lock", "reserve", "target.synced", "secret"];

fn expect_unchanged<'f>(
    dir: &Path,
    files: impl Iterator<Item = &'f (PathBuf, Option<Vec<u8>>)>,
    directories: &[PathBuf],
    error: &OpenError,
) {
    let mut now = Template { changeable: Vec::new(), rest: Vec::new(), directories: Vec::new() };
    now.take(dir, Path::new(""));
    let found: HashMap<&PathBuf, &Option<Vec<u8>>> =
        now.changeable.iter().chain(&now.rest).map(|(path, bytes)| (path, bytes)).collect();
    let mut known = HashSet::new();
    let may_change = |path: &Path| MADE.iter().any(|name| path.ends_with(name));
    for (path, bytes) in files.filter(|(path, bytes)| bytes.is_some() && !may_change(path)) {
        let mut bytes = bytes.clone();
        cut_zeros(path, bytes.as_mut());
        assert!(found.get(path) == Some(&&bytes), "{} was changed by a start that ended with: {error}", path.display());
        known.insert(path);
    }
    for path in found.keys().filter(|path| !may_change(path)) {
        assert!(known.contains(path), "{} was made by a start that ended with: {error}", path.display());
    }
    let same =
        now.directories.iter().all(|path| directories.contains(path)) && now.directories.len() == directories.len();
    assert!(same, "directories were made or removed by a start that ended with: {error}");
}

/// Of a journal nothing follows but zeros, far too many to copy them each time.
fn cut_zeros(path: &Path, bytes: Option<&mut Vec<u8>>) {
    if path.extension().is_some_and(|extension| extension == "jnl")
        && let Some(bytes) = bytes
    {
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    }
}

fn expect_content(store: &Store, len: usize) {
    let attr = match store.get_attr(&Caller::ROOT, Ino::ROOT, name(len).as_bytes(), true) {
        Ok(attr) => attr,
        Err(StoreError::NotFound) => panic!("the store opened without the file of {len} bytes"),
        Err(_) => return,
    };
    assert_eq!(attr.size_bytes, len as u64);
    let mut found = vec![0xee; len + 1];
    if let Ok(count) = store.read(Ino(attr.ino), 0, &mut found) {
        assert!(count == len && found[..len] == content(len), "{count} of {len} bytes, and wrong ones");
    }
}

impl Change {
    fn make(&self, files: &mut Files, tables: &mut Files) {
        let count = files.len();
        let of = |file: &u8| usize::from(*file) % count;
        match self {
            Self::Byte { file, at, value } => {
                let Some(bytes) = files[of(file)].1.as_mut() else { return };
                let at = usize::from(*at) % bytes.len().max(1);
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = *value);
            }
            Self::Zeros { file, page } => {
                let at = usize::from(*page) * 4096;
                files[of(file)].1.as_mut().into_iter().flatten().skip(at).take(4096).for_each(|byte| *byte = 0);
            }
            Self::Cut { file, to } => {
                files[of(file)].1.as_mut().into_iter().for_each(|bytes| bytes.truncate(usize::from(*to)))
            }
            Self::Grown { file, by } => files[of(file)].1.as_mut().into_iter().for_each(|bytes| bytes.extend(by)),
            Self::Exchanged { file, other } => {
                let taken = files[of(file)].1.clone();
                files[of(file)].1 = std::mem::replace(&mut files[of(other)].1, taken);
            }
            Self::Removed { file } => files[of(file)].1 = None,
            Self::TableRemoved { file } => {
                let at = usize::from(*file) % tables.len();
                tables[at].1 = None;
            }
        }
    }
}

fn config(dir: &Path) -> StoreConfig {
    let targets = (0..2).map(|id| TargetDir { id: TargetId(id), dir: dir.join(format!("target{id}")) }).collect();
    let mut config = StoreConfig::new(dir.join("store"), ServerId(0), targets);
    (config.default_layout.stripe_bytes, config.default_layout.stripe_count) = (4096, 2);
    config
}

fn name(len: usize) -> String {
    format!("file{len}")
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 + 1).collect()
}

fn template() -> Template {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(&config(dir.path())).expect("a store");
    let now = Timestamp::new(1, 0).expect("a time");
    let how = OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o644, ..OpenHow::default() };
    for len in LENS {
        let name = name(len);
        let ino = store.open_file(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &how, now).expect("a file").ino;
        store.write(ino, 0, &content(len), now).expect("written");
        store.fsync(ino, false).expect("synced");
        store.release(ino).expect("released");
    }
    store.close().expect("closed");
    drop(store);
    let mut template = Template { changeable: Vec::new(), rest: Vec::new(), directories: Vec::new() };
    template.take(dir.path(), Path::new(""));
    // The same input is to mean the same the next time.
    template.changeable.sort();
    template.rest.sort();
    template
}

impl Template {
    fn take(&mut self, dir: &Path, below: &Path) {
        for entry in fs::read_dir(dir.join(below)).expect("a directory") {
            let path = below.join(entry.expect("an entry").file_name());
            if dir.join(&path).is_dir() {
                self.take(dir, &path);
                self.directories.push(path);
                continue;
            }
            if path.ends_with("reserve") {
                // It is made anew.
                continue;
            }
            let mut bytes = fs::read(dir.join(&path)).expect("a file");
            let is_journal = path.extension().is_some_and(|extension| extension == "jnl");
            cut_zeros(&path, Some(&mut bytes));
            let is_of_the_engine = path.starts_with("store/db") && !is_journal;
            let files = if is_of_the_engine { &mut self.rest } else { &mut self.changeable };
            files.push((path, Some(bytes)));
        }
    }
}
