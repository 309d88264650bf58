//! What tests of modules begin with: a store with one target, and a file in it.

use crate::{Caller, OpenHow, Store, StoreConfig, TargetDir};
use isonomia_proto::fs::{Timestamp, access};
use isonomia_units::{Ino, ServerId, TargetId};
use std::path::Path;

/// A store in `dir`, in which nothing is yet.
pub(crate) fn config(dir: &Path) -> StoreConfig {
    let target = TargetDir { id: TargetId(0), dir: dir.join("target") };
    StoreConfig::new(dir.join("store"), ServerId(0), vec![target])
}

/// When everything happens.
pub(crate) fn now() -> Timestamp {
    Timestamp::new(1, 0).unwrap()
}

/// A new, empty file that root may write.
pub(crate) fn create(store: &Store, name: &str) -> Ino {
    let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
    store.open_file(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &how, now()).unwrap().ino
}
