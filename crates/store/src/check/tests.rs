//! Stores that were damaged on purpose.

use super::*;
use crate::{Caller, OpenHow, Store, TargetDir};
use isonomia_proto::fs::{Timestamp, access};
use isonomia_units::TargetId;
use std::path::Path;

const ROOT: Caller<'static> = Caller::ROOT;

fn at(secs: i64) -> Timestamp {
    Timestamp::new(secs, 0).unwrap()
}

struct Scratch {
    dir: tempfile::TempDir,
    config: StoreConfig,
}

impl Scratch {
    /// A store with `/d/file` of 20,000 bytes on two targets, closed.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let target = |i| TargetDir { id: TargetId(i), dir: dir.path().join(format!("target{i}")) };
        let mut config = StoreConfig::new(dir.path().join("store"), ServerId(0), (0..2).map(target).collect());
        config.default_layout.stripe_bytes = 4096;
        config.default_layout.stripe_count = 2;
        let scratch = Self { dir, config };
        scratch.with(|store| {
            store.mkdir(&ROOT, Ino::ROOT, b"d", 0o755, at(1)).unwrap();
            let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
            let ino = store.open_file(&ROOT, Ino::ROOT, b"d/file", &how, at(1)).unwrap().ino;
            store.write(ino, 0, &[7; 20_000], at(2)).unwrap();
            store.release(ino).unwrap();
        });
        scratch
    }

    fn with<T>(&self, act: impl FnOnce(&Store) -> T) -> T {
        let store = Store::open(&self.config).unwrap();
        let value = act(&store);
        store.close().unwrap();
        value
    }

    /// Kinds of what was found, and whether each can be repaired.
    fn check(&self, repair: bool, data: bool) -> Vec<(&'static str, bool)> {
        let mut found = Vec::new();
        let mut finding = |finding: &Finding| found.push((finding.kind, finding.repair.is_some()));
        let mut check = Check { repair, data, finding: &mut finding, progress: &mut |_, _| {} };
        let checked = check.run(&self.config).unwrap();
        assert_eq!(checked.repairable + checked.left, found.len() as u64);
        found
    }

    fn ino(&self, path: &str) -> u64 {
        self.with(|store| store.get_attr(&ROOT, Ino::ROOT, path.as_bytes(), true).unwrap().ino)
    }

    fn content(&self, path: &str) -> Result<Vec<u8>, StoreError> {
        self.with(|store| {
            let attr = store.get_attr(&ROOT, Ino::ROOT, path.as_bytes(), true)?;
            let mut bytes = vec![0; attr.size_bytes as usize];
            store.read(Ino(attr.ino), 0, &mut bytes).map(|_| bytes)
        })
    }

    /// The object of `/d/file` on the first target, or its sidecar.
    fn object(&self, suffix: &str) -> PathBuf {
        let objects = self.dir.path().join("target0/objects");
        let all = std::fs::read_dir(objects).unwrap().flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap());
        let mut all = all.map(|entry| entry.unwrap().path());
        all.find(|path| path.to_string_lossy().ends_with(suffix)).unwrap()
    }
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

#[test]
fn nothing_is_found_in_a_store_that_is_right_also_after_a_kill() {
    let scratch = Scratch::new();
    assert_eq!(scratch.check(false, true), []);
    let store = Store::open(&scratch.config).unwrap();
    let file = Ino(store.get_attr(&ROOT, Ino::ROOT, b"d/file", true).unwrap().ino);
    store.write(file, 5_000, &[8; 9_000], at(3)).unwrap();
    drop(store);
    assert_eq!(scratch.check(true, true), []);
    assert_eq!(scratch.content("d/file").unwrap()[5_000..14_000], [8; 9_000]);
    let nowhere = StoreConfig { dir: scratch.dir.path().join("nowhere"), ..scratch.config.clone() };
    let mut check = Check { repair: true, data: true, finding: &mut |_| {}, progress: &mut |_, _| {} };
    assert!(check.run(&nowhere).is_err() && !nowhere.dir.exists(), "it creates nothing");
}

#[test]
fn names_and_links_are_repaired() {
    let scratch = Scratch::new();
    let (dir, file) = (scratch.ino("d"), scratch.ino("d/file"));
    scratch.with(|store| {
        let mut change = store.db.change();
        // A name that leads nowhere, one in a wrong place, and a count that is wrong.
        change.put_entry(store.entry_key(dir, b"gone"), Entry { ino: 999, kind: FileKind::Regular });
        let mut key = store.entry_key(dir, b"file").encode();
        change.remove_raw_entry(&key);
        key[9] ^= 1;
        change.put_raw_entry(&key, Entry { ino: file, kind: FileKind::Regular });
        let mut record = store.db.record(dir).unwrap().unwrap();
        record.nlink = 9;
        change.put_record(dir, &record);
        change.commit().unwrap();
    });
    assert!(scratch.content("d/file").is_err());
    let found = [("name", true), ("name", true), ("links", true)];
    assert_eq!(scratch.check(false, false), found, "nothing is changed without being asked for");
    assert_eq!(scratch.check(true, false), found);
    assert_eq!(scratch.check(false, true), []);
    assert_eq!(scratch.content("d/file").unwrap(), [7; 20_000]);
}

#[test]
fn what_has_no_name_gets_one() {
    let scratch = Scratch::new();
    let (dir, file) = (scratch.ino("d"), scratch.ino("d/file"));
    scratch.with(|store| {
        let mut change = store.db.change();
        change.remove_entry(store.entry_key(Ino::ROOT.0, b"d"));
        change.remove_entry(store.entry_key(dir, b"file"));
        change.commit().unwrap();
    });
    let found = [("links", true), ("nameless", true), ("nameless", true)];
    assert_eq!(scratch.check(true, false), found);
    assert_eq!(scratch.check(false, true), []);
    assert_eq!(scratch.content(&format!("lost+found/inode-{file:x}")).unwrap(), [7; 20_000]);
    assert_eq!(scratch.ino(&format!("lost+found/inode-{dir:x}")), dir);
}

#[test]
fn lost_and_damaged_blocks_are_told_and_left() {
    let scratch = Scratch::new();
    let object = scratch.object(".0");
    let good = std::fs::read(&object).unwrap();
    let mut bad = good.clone();
    bad[5_000] ^= 1;
    std::fs::write(&object, &bad).unwrap();
    assert_eq!(scratch.check(false, false), [], "blocks are read only when asked for");
    assert_eq!(scratch.check(true, true), [("block", false)]);
    assert_eq!(std::fs::read(&object).unwrap(), bad);
    std::fs::write(&object, &good[..4_096]).unwrap();
    assert_eq!(scratch.check(true, false), [("object", false)]);
    std::fs::remove_file(&object).unwrap();
    assert_eq!(scratch.check(true, false), [("object", false)]);
    std::fs::write(&object, &good).unwrap();
    assert_eq!(scratch.check(false, true), []);
}

#[test]
fn a_lost_sidecar_is_made_anew() {
    for damage in ["removed", "emptied"] {
        let scratch = Scratch::new();
        let sidecar = scratch.object(".0.sum");
        if damage == "removed" {
            std::fs::remove_file(&sidecar).unwrap()
        } else {
            std::fs::write(&sidecar, "").unwrap()
        }
        assert!(scratch.content("d/file").is_err());
        assert_eq!(scratch.check(true, true), [("checksums", true)]);
        assert_eq!(scratch.content("d/file").unwrap(), [7; 20_000]);
        assert_eq!(scratch.check(false, true), []);
    }
}

#[test]
fn objects_of_nobody_are_set_aside_and_an_older_copy_of_the_metadata_can_be_put_back() {
    let scratch = Scratch::new();
    scratch.with(|store| {
        let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
        let ino = store.open_file(&ROOT, Ino::ROOT, b"d/grown", &how, at(1)).unwrap().ino;
        store.write(ino, 0, &[5; 10_000], at(2)).unwrap();
        store.release(ino).unwrap();
    });
    let (metadata, backup) = (scratch.config.dir.clone(), scratch.dir.path().join("backup"));
    crate::power_cut::copy_directory(&metadata, &backup);
    scratch.with(|store| {
        let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
        let ino = store.open_file(&ROOT, Ino::ROOT, b"new", &how, at(4)).unwrap().ino;
        store.write(ino, 0, &[9; 20_000], at(4)).unwrap();
        store.release(ino).unwrap();
        store.unlink(&ROOT, Ino::ROOT, b"d/file", at(4)).unwrap();
        let grown = store.get_attr(&ROOT, Ino::ROOT, b"d/grown", true).unwrap().ino;
        store.append(Ino(grown), &[6; 20_000], at(4)).unwrap();
    });
    crate::power_cut::copy_directory(&backup, &metadata);
    // The removed file's objects are lost, and the new one's are nobody's.
    let found = scratch.check(true, false);
    assert_eq!(found.iter().filter(|(kind, _)| *kind == "unknown object").count(), 4, "{found:?}");
    assert_eq!(found.iter().filter(|found| **found == ("object", false)).count(), 2, "{found:?}");
    assert!(matches!(scratch.content("d/file"), Err(StoreError::Corrupt { .. })), "no zeros");
    assert_eq!(files(&scratch.dir.path().join("target0/lost+found")), 2);
    let kept = std::fs::read_dir(scratch.dir.path().join("target0/lost+found")).unwrap();
    assert!(kept.map(|entry| entry.unwrap().path()).any(|path| std::fs::read(path).unwrap().contains(&9)));
    assert_eq!(scratch.content("d/grown").unwrap(), [5; 10_000]);
    // A new file takes neither number nor objects of the one that the copy does not know.
    scratch.with(|store| {
        let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
        let ino = store.open_file(&ROOT, Ino::ROOT, b"other", &how, at(5)).unwrap().ino;
        store.set_size(ino, 20_000, at(5)).unwrap();
        store.release(ino).unwrap();
    });
    assert_eq!(scratch.content("other").unwrap(), [0; 20_000]);
}
