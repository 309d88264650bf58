//! What tests of modules begin with: a store with one target, and a file in it.

use crate::{Caller, OpenHow, Store, StoreConfig, TargetDir};
use isonomia_proto::fs::{Timestamp, access};
use isonomia_units::{Ino, ServerId, TargetId};
use std::os::fd::AsFd;
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

/// Which of the first pages of a file are in the host's memory, and have been read.
pub(crate) fn pages_in_memory(file: impl AsFd, pages: usize) -> Vec<bool> {
    let len = pages * rustix::param::page_size();
    let (read, shared) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
    let mut found = vec![0_u8; pages];
    // SAFETY: a mapping of its own at an address of the host's choosing, which nobody looks into and which ends here.
    unsafe {
        let at = rustix::mm::mmap(std::ptr::null_mut(), len, read, shared, file, 0).unwrap();
        assert_eq!(libc::mincore(at, len, found.as_mut_ptr()), 0);
        rustix::mm::munmap(at, len).unwrap();
    }
    found.into_iter().map(|page| page & 1 == 1).collect()
}
