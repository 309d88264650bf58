//! A store in a directory of its own.

use isonomia_proto::fs::{Timestamp, access};
use isonomia_store::{Caller, OpenHow, Opened, Store, StoreConfig, TargetDir};
use isonomia_units::{Ino, ServerId, TargetId};
use std::path::Path;

pub const ROOT: Caller<'static> = Caller::ROOT;
pub const ALICE: Caller<'static> = Caller { uid: 1000, gid: 1000, groups: &[] };

pub fn at(secs: i64) -> Timestamp {
    Timestamp::new(secs, 0).unwrap()
}

/// A directory for one test, in memory where there is any.
pub fn scratch_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("isonomia-store").tempdir_in(base).unwrap()
}

pub fn config(dir: &Path, targets: u16) -> StoreConfig {
    let target = |i| TargetDir { id: TargetId(i), dir: dir.join(format!("target{i}")) };
    let mut config = StoreConfig::new(dir.join("store"), ServerId(0), (0..targets).map(target).collect());
    config.default_layout.stripe_bytes = 4096;
    config.default_layout.stripe_count = usize::from(targets);
    config
}

/// Opens for reading and writing, creating what does not exist.
pub fn open(store: &Store, path: &str) -> Opened {
    let how = OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o644, ..OpenHow::default() };
    store.open_file(&ROOT, Ino::ROOT, path.as_bytes(), &how, at(1)).unwrap()
}

pub fn content(store: &Store, ino: Ino) -> Vec<u8> {
    let size = store.get_attr(&ROOT, ino, b"", true).unwrap().size_bytes as usize;
    let mut bytes = vec![0xee; size + 1];
    assert_eq!(store.read(ino, 0, &mut bytes).unwrap(), size, "a read ends where the file ends");
    bytes.truncate(size);
    bytes
}
