//! Stores that were damaged on purpose.

use super::*;
use crate::{Caller, OpenHow, Store, TargetDir};
use isonomia_proto::fs::{Timestamp, access};
use isonomia_units::{ServerId, TargetId};
use std::path::{Path, PathBuf};

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
        // A name that leads nowhere, one at a wrong position, and a count that is wrong.
        change.put_entry(store.namespace.entry_key(dir, b"gone"), Entry { ino: 999, kind: FileKind::Regular });
        let mut key = store.namespace.entry_key(dir, b"file").encode();
        change.set_raw_entry(&key, None);
        key[9] ^= 1;
        change.set_raw_entry(&key, Some(Entry { ino: file, kind: FileKind::Regular }));
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
        change.remove_entry(store.namespace.entry_key(Ino::ROOT.0, b"d"));
        change.remove_entry(store.namespace.entry_key(dir, b"file"));
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

fn create(store: &Store, path: &str, content: &[u8]) {
    let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
    let ino = store.open_file(&ROOT, Ino::ROOT, path.as_bytes(), &how, at(4)).unwrap().ino;
    store.write(ino, 0, content, at(4)).unwrap();
    store.release(ino).unwrap();
}

#[test]
fn metadata_that_were_put_back_are_not_used_before_they_were_checked() {
    for is_running in [false, true] {
        let scratch = Scratch::new();
        let (metadata, backup) = (scratch.config.dir.clone(), scratch.dir.path().join("backup"));
        let store = Store::open(&scratch.config).unwrap();
        create(&store, "before", &[1; 5_000]);
        if is_running {
            // A snapshot, and no further stop or start before the damage.
            store.sync().unwrap();
        } else {
            store.close().unwrap();
        }
        crate::power_cut::copy_directory(&metadata, &backup);
        create(&store, "after", &[9; 5_000]);
        if is_running {
            store.sync().unwrap()
        } else {
            store.close().unwrap()
        }
        drop(store);
        crate::power_cut::copy_directory(&backup, &metadata);
        for _ in 0..2 {
            let refused = Store::open(&scratch.config).map(drop).unwrap_err();
            assert!(matches!(&refused, OpenError::Older { .. }), "{refused}");
            assert!(refused.to_string().contains("isonomia fsck --repair"), "{refused}");
        }
        // Two objects and, once the file was settled, their sidecars.
        let unknown = if is_running { 2 } else { 4 };
        let found = [vec![("older", true)], vec![("unknown object", true); unknown]].concat();
        assert_eq!(scratch.check(false, false), found);
        assert!(Store::open(&scratch.config).is_err(), "it was looked at only");
        assert_eq!(scratch.check(true, true), found);
        assert_eq!(scratch.check(false, true), []);
        assert!(matches!(scratch.content("after"), Err(StoreError::NotFound)));
        assert_eq!(scratch.content("before").unwrap(), [1; 5_000]);
        assert_eq!(files(&scratch.dir.path().join("target0/lost+found")), unknown / 2);
    }
}

#[test]
fn circles_of_directories_are_broken() {
    for length in [1, 2, 4] {
        let scratch = Scratch::new();
        let path = |depth: usize| -> String { ["d", "d/b", "d/b/c", "d/b/c/e"][depth - 1].to_owned() };
        scratch.with(|store| {
            for depth in 2..=length {
                store.mkdir(&ROOT, Ino::ROOT, path(depth).as_bytes(), 0o755, at(2)).unwrap();
            }
            let ino = |path: &str| store.get_attr(&ROOT, Ino::ROOT, path.as_bytes(), true).unwrap().ino;
            let (first, last) = (ino("d"), ino(&path(length)));
            let mut change = store.db.change();
            change.remove_entry(store.namespace.entry_key(Ino::ROOT.0, b"d"));
            change
                .put_entry(store.namespace.entry_key(last, b"again"), Entry { ino: first, kind: FileKind::Directory });
            let mut links = |ino: u64, by: i32| {
                let mut record = store.db.record(ino).unwrap().unwrap();
                record.nlink = record.nlink.strict_add_signed(by);
                if ino == first {
                    record.body = Body::Directory { parent: last, name: b"again"[..].into() };
                }
                change.put_record(ino, &record);
            };
            links(Ino::ROOT.0, -1);
            links(last, 1);
            if first != last {
                links(first, 0);
            }
            change.commit().unwrap();
        });
        assert_eq!(scratch.check(false, false), [("circle", true)], "{length}");
        assert_eq!(scratch.check(true, false), [("circle", true)], "{length}");
        assert_eq!(scratch.check(false, true), [], "{length}");
        let moved = scratch.with(|store| {
            let listed = store.namespace().read_dir(&ROOT, Ino(lost_and_found(store)), 0, 1 << 16).unwrap();
            listed.into_iter().map(|entry| entry.name).filter(|name| !name.starts_with(b".")).collect::<Vec<_>>()
        });
        let [moved] = &moved[..] else { panic!("{moved:?}") };
        let found = format!("lost+found/{}/file", String::from_utf8_lossy(moved));
        assert_eq!(scratch.content(&found).unwrap(), [7; 20_000]);
    }
}

fn lost_and_found(store: &Store) -> u64 {
    store.get_attr(&ROOT, Ino::ROOT, b"lost+found", true).unwrap().ino
}

#[test]
fn the_root_has_no_other_name_and_a_directory_says_its_own() {
    let scratch = Scratch::new();
    let dir = scratch.ino("d");
    scratch.with(|store| {
        let mut change = store.db.change();
        change
            .put_entry(store.namespace.entry_key(dir, b"root"), Entry { ino: Ino::ROOT.0, kind: FileKind::Directory });
        let mut record = store.db.record(dir).unwrap().unwrap();
        record.body = Body::Directory { parent: dir, name: b"wrong"[..].into() };
        change.put_record(dir, &record);
        change.commit().unwrap();
    });
    assert_eq!(scratch.check(true, false), [("name", true), ("directory", true)]);
    assert_eq!(scratch.check(false, true), []);
    assert_eq!(scratch.with(|store| store.namespace().path_of(Ino(dir)).unwrap()), b"/d");
}

#[test]
fn what_is_called_lost_and_found_and_what_is_in_it_stays() {
    let scratch = Scratch::new();
    let (dir, file) = (scratch.ino("d"), scratch.ino("d/file"));
    scratch.with(|store| {
        create(store, "lost+found", b"a file");
        store.mkdir(&ROOT, Ino::ROOT, b"lost+found~", 0o755, at(2)).unwrap();
        create(store, &format!("lost+found~/inode-{file:x}"), b"another");
        let mut change = store.db.change();
        change.remove_entry(store.namespace.entry_key(dir, b"file"));
        change.commit().unwrap();
    });
    assert_eq!(scratch.check(true, false), [("nameless", true)]);
    assert_eq!(scratch.check(false, true), []);
    assert_eq!(scratch.content("lost+found").unwrap(), b"a file");
    assert_eq!(scratch.content(&format!("lost+found~/inode-{file:x}")).unwrap(), b"another");
    assert_eq!(scratch.content(&format!("lost+found~/inode-{file:x}~")).unwrap(), [7; 20_000]);
}

#[test]
fn extended_attributes_are_of_some_inode_that_says_so() {
    let scratch = Scratch::new();
    let file = scratch.ino("d/file");
    let get = |store: &Store| store.namespace().list_xattrs(&ROOT, Ino(file), b"", true).unwrap();
    scratch.with(|store| {
        store.set_xattr(&ROOT, Ino(file), b"", true, b"user.a", b"1", crate::XattrHow::Either, at(3)).unwrap();
        let mut change = store.db.change();
        change.put_xattr(999, b"user.b", b"2");
        change.put_xattr(999, b"user.c", b"3");
        // One that a stop left, and that the next start removes.
        change.put_xattr(998, b"user.d", b"4");
        change.put_nameless(998);
        let mut record = store.db.record(file).unwrap().unwrap();
        record.has_xattrs = false;
        change.put_record(file, &record);
        change.commit().unwrap();
    });
    assert_eq!(scratch.with(get), b"");
    assert_eq!(scratch.check(false, false), [("attributes", true); 2]);
    assert_eq!(scratch.check(true, false), [("attributes", true); 2]);
    assert_eq!(scratch.check(false, true), []);
    assert_eq!(scratch.with(get), b"user.a\0");
    assert!(scratch.with(|store| store.db.xattr(999, b"user.b").unwrap().is_none()));
}

#[test]
fn identity_keys_and_numbers_that_are_lost_or_spoilt_are_made_anew() {
    for spoil in ["missing", "empty", "zeros", "wrong"] {
        let cases = [
            ("store/identity", "identity"),
            ("target1/target.identity", "identity"),
            ("store/secret", "secret"),
            ("store/synced", "synced"),
        ];
        for (name, kind) in cases {
            let mut scratch = Scratch::new();
            scratch.config.server = ServerId(0);
            let path = scratch.dir.path().join(name);
            match spoil {
                "missing" => std::fs::remove_file(&path).unwrap(),
                "empty" => std::fs::write(&path, "").unwrap(),
                "zeros" => std::fs::write(&path, vec![0; std::fs::read(&path).unwrap().len()]).unwrap(),
                _ => std::fs::write(&path, "something else\n").unwrap(),
            }
            assert!(Store::open(&scratch.config).is_err(), "{spoil} {name}");
            assert_eq!(scratch.check(false, false), [(kind, true)], "{spoil} {name}");
            assert!(Store::open(&scratch.config).is_err(), "{spoil} {name}: it was looked at only");
            // The number is not what the targets know.
            let found = scratch.check(true, false);
            assert_eq!(found[0], (kind, true), "{spoil} {name}");
            assert_eq!(found.len(), 1, "{spoil} {name}: {found:?}");
            assert_eq!(scratch.check(false, true), [], "{spoil} {name}");
            assert_eq!(scratch.content("d/file").unwrap(), [7; 20_000], "{spoil} {name}");
            let listed = scratch.with(|store| store.namespace().read_dir(&ROOT, Ino::ROOT, 0, 1 << 16).unwrap().len());
            assert_eq!(listed, 3, "{spoil} {name}");
        }
    }
}

#[test]
fn identities_that_nobody_can_know_are_left() {
    let scratch = Scratch::new();
    let read = |name: &str| std::fs::read(scratch.dir.path().join(name)).unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(scratch.dir.path().join(name), content).unwrap();
    let (store, target) = (read("store/identity"), read("target1/target.identity"));
    write("store/identity", b"");
    write("target1/target.identity", b"");
    assert_eq!(scratch.check(true, false), [("identity", false)]);
    let other = String::from_utf8(target.clone()).unwrap().replace("store ", "store 1");
    write("target1/target.identity", other.as_bytes());
    assert_eq!(scratch.check(true, false), [("identity", false)]);
    write("target1/target.identity", &target);
    // A newer version's.
    let newer = String::from_utf8(store).unwrap().replace("format ", "format 9");
    write("store/identity", newer.as_bytes());
    let mut check = Check { repair: true, data: false, finding: &mut |_| {}, progress: &mut |_, _| {} };
    assert!(matches!(check.run(&scratch.config), Err(OpenError::Format { .. })));
    assert_eq!(read("store/identity"), newer.as_bytes());
    // A target whose file system is not mounted.
    write("store/identity", b"");
    assert_eq!(scratch.check(true, false), [("identity", true)]);
    let target = scratch.dir.path().join("target1");
    std::fs::rename(&target, scratch.dir.path().join("elsewhere")).unwrap();
    std::fs::create_dir(&target).unwrap();
    let mut check = Check { repair: true, data: false, finding: &mut |_| {}, progress: &mut |_, _| {} };
    assert!(matches!(check.run(&scratch.config), Err(OpenError::TargetLost { .. })));
    assert_eq!(files(&target), 1, "a lock");
}

#[test]
fn a_database_that_lost_what_it_had_is_not_believed() {
    let scratch = Scratch::new();
    let journals = std::fs::read_dir(scratch.config.dir.join("db")).unwrap().map(|entry| entry.unwrap().path());
    let journals = journals.filter(|path| path.extension().is_some_and(|extension| extension == "jnl"));
    journals.for_each(|journal| std::fs::write(journal, "").unwrap());
    for repair in [false, true, true] {
        let mut check = Check { repair, data: false, finding: &mut |_| {}, progress: &mut |_, _| {} };
        let refused = check.run(&scratch.config).map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
    }
    assert!(!scratch.dir.path().join("target0/lost+found").exists());
}

#[test]
fn names_of_volumes_that_other_servers_have_are_no_damage() {
    let scratch = Scratch::new();
    let volume = |name: &[u8], number| (name.into(), isonomia_units::VolumeId(number));
    scratch.with(|store| {
        let (own, root) = (ServerId(1), ServerId(2));
        store.namespace().set_whereabouts(Arc::new(crate::Whereabouts { own, root, ..crate::Whereabouts::default() }));
        store.make_volume(isonomia_units::VolumeId(1), b"own", (0o755, 0, 0), at(3)).unwrap();
        let names = [volume(b"own", 1), volume(b"others", 2)].into();
        store.namespace().set_volume_names(&names, at(3)).unwrap();
    });
    assert_eq!(scratch.check(false, true), []);
}
