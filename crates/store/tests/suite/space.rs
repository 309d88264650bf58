//! A full disk: an error, and nothing lost. Needs root, to mount a small file system; otherwise it says so and passes.

use crate::scratch::{ROOT, at, config, content, open, scratch_dir};
use isonomia_store::{Store, StoreError};
use isonomia_units::Ino;
use std::path::{Path, PathBuf};
use std::process::Command;

struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: &Path, bytes: u64) -> Option<Self> {
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(path).output();
        mount.is_ok_and(|out| out.status.success()).then(|| Self(path.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let dir = scratch_dir();
    let Some(disk) = SmallDisk::mount(dir.path(), 32 << 20) else {
        eprintln!("skipped: no permission to mount a small file system");
        return;
    };
    let config = config(&disk.0, 2);
    let store = Store::open(&config).unwrap();
    let kept = open(&store, "kept").ino;
    store.write(kept, 0, &[1; 100_000], at(2)).unwrap();
    store.fsync(kept, false).unwrap();

    let filler = open(&store, "filler").ino;
    let mut size = 0u64;
    let error = loop {
        match store.write(filler, size, &[2; 65_536], at(3)) {
            Ok(n) => size += n as u64,
            Err(e) => break e,
        }
    };
    assert!(matches!(error, StoreError::NoSpace), "{error}");
    assert_eq!(error.errno(), 28);
    assert!(size > 20 << 20, "most of the disk could be used: {size}");
    assert_eq!(store.get_attr(&ROOT, filler, b"", true).unwrap().size_bytes, size);

    // Metadata keeps working: what frees space, what changes names, and flushing. Growing is refused.
    let how = isonomia_store::OpenHow { access: 2, create: true, mode: 0o600, ..Default::default() };
    for i in 0..200 {
        let refused = store.open_file(&ROOT, Ino::ROOT, b"more", &how, at(4));
        assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
        let (old, new) = if i % 2 == 0 { (b"kept", b"away") } else { (b"away", b"kept") };
        store.rename(&ROOT, Ino::ROOT, old, Ino::ROOT, new, Default::default(), at(5)).unwrap();
    }
    store.write(kept, 0, &[3; 4096], at(6)).unwrap();
    store.fsync(filler, false).unwrap();
    drop(store);

    let store = Store::open(&config).unwrap();
    let bytes = content(&store, kept);
    assert_eq!(bytes.len(), 100_000);
    assert!(bytes[..4096].iter().all(|b| *b == 3) && bytes[4096..].iter().all(|b| *b == 1));
    assert_eq!(store.get_attr(&ROOT, Ino::ROOT, b"filler", true).unwrap().size_bytes, size);
    assert!(content(&store, filler).iter().all(|b| *b == 2));
    store.unlink(&ROOT, Ino::ROOT, b"filler", at(7)).unwrap();
    let more = open(&store, "more").ino;
    store.write(more, 0, &[4; 1 << 20], at(8)).unwrap();
    store.close().unwrap();
}
