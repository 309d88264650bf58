//! What a comparison with another file system does not show: references, listings under change, times, bounds,
//! and threads.

use crate::scratch::{ALICE, ROOT, at, config, content, open, scratch_dir};
use isonomia_proto::fs::{Capability, access};
use isonomia_store::{Cached, Caller, MOVE_DEPTH_MAX, OpenHow, RenameHow, SetAttr, Store, StoreError, TimeChange};
use isonomia_units::Ino;
use std::collections::{HashMap, HashSet};
use std::path::Path;

fn objects(dir: &Path) -> usize {
    let count = |path: std::path::PathBuf| std::fs::read_dir(path).unwrap().count();
    let targets = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path().join("objects")).filter(|p| p.is_dir());
    targets.flat_map(|t| std::fs::read_dir(t).unwrap()).map(|low| count(low.unwrap().path())).sum()
}

#[test]
fn a_directory_moves_to_where_the_way_up_is_not_too_long() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    let make = |parent: Ino, name: &[u8]| Ino(store.mkdir(&ROOT, parent, name, 0o755, at(1)).unwrap().ino);
    make(Ino::ROOT, b"moved");
    let mut deepest = Ino::ROOT;
    for _ in 0..MOVE_DEPTH_MAX {
        deepest = make(deepest, b"d");
    }
    let rename = |from, to| store.rename(&ROOT, from, b"moved", to, b"moved", RenameHow::Replace, at(2));
    rename(Ino::ROOT, deepest).unwrap();
    rename(deepest, Ino::ROOT).unwrap();
    let deeper = make(deepest, b"d");
    assert!(matches!(rename(Ino::ROOT, deeper), Err(StoreError::NameTooLong)));
    // Out of it everything can be moved, and files in.
    make(deeper, b"stray");
    store.rename(&ROOT, deeper, b"stray", Ino::ROOT, b"stray", RenameHow::Replace, at(2)).unwrap();
    open(&store, "file");
    store.rename(&ROOT, Ino::ROOT, b"file", deeper, b"file", RenameHow::Replace, at(2)).unwrap();
}

#[test]
fn a_walk_ends_after_so_many_links_and_so_much_of_their_texts() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    store.mkdir(&ROOT, Ino::ROOT, b"a", 0o755, at(1)).unwrap();
    // Each text leads to the link that was made before it.
    for (name, way, links) in [("short", &b""[..], 40), ("long", &b"a/../".repeat(800)[..], 4)] {
        let mut last = "a".to_owned();
        for number in 1..=links + 1 {
            let link = format!("{name}{number}");
            store.symlink(&ROOT, &[way, last.as_bytes()].concat(), Ino::ROOT, link.as_bytes(), at(1)).unwrap();
            let found = store.get_attr(&ROOT, Ino::ROOT, link.as_bytes(), true);
            match found {
                Ok(_) => assert!(number <= links, "{link}"),
                Err(error) => assert!(number > links && matches!(error, StoreError::TooManyLinks), "{link}: {error}"),
            }
            last = link;
        }
    }
}

#[test]
fn an_unlinked_file_lives_until_the_last_reference_goes() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 2)).unwrap();
    let first = open(&store, "f");
    store.write(first.ino, 0, &[7; 10_000], at(2)).unwrap();
    store.namespace().acquire(first.ino).unwrap();
    store.unlink(&ROOT, Ino::ROOT, b"f", at(3)).unwrap();
    assert!(matches!(store.get_attr(&ROOT, Ino::ROOT, b"f", true), Err(StoreError::NotFound)));
    store.release(first.ino).unwrap();
    store.write(first.ino, 10_000, b"more", at(4)).unwrap();
    assert_eq!(content(&store, first.ino).len(), 10_004);
    let attr = store.get_attr(&ROOT, first.ino, b"", true).unwrap();
    assert_eq!((attr.nlink, attr.ctime), (0, at(4)));
    assert_eq!(objects(dir.path()), 2);
    store.release(first.ino).unwrap();
    assert_eq!(objects(dir.path()), 0);
    assert!(matches!(store.read(first.ino, 0, &mut [0; 8]), Err(StoreError::Stale)));
    assert!(matches!(store.namespace().acquire(first.ino), Err(StoreError::Stale)));
    assert!(matches!(store.write(first.ino, 0, b"x", at(5)), Err(StoreError::Stale)));
}

#[test]
fn a_file_without_a_name_is_gone_after_an_unclean_stop() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let store = Store::open(&config).unwrap();
    let file = open(&store, "f");
    store.write(file.ino, 0, &[7; 10_000], at(2)).unwrap();
    store.unlink(&ROOT, Ino::ROOT, b"f", at(3)).unwrap();
    drop(store);
    assert_eq!(objects(dir.path()), 2);
    let store = Store::open(&config).unwrap();
    assert_eq!(objects(dir.path()), 0);
    assert!(matches!(store.namespace().acquire(file.ino), Err(StoreError::Stale)));
    let next = open(&store, "g");
    assert!(next.ino.0 > file.ino.0, "inode numbers are not given out again");
}

#[test]
fn only_what_one_owns_or_may_write_gets_another_name() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    let all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    store.set_attr(&ROOT, Ino::ROOT, b"", true, &all, at(1)).unwrap();
    let member = Caller { uid: 1001, gid: 1001, groups: &[1000] };
    let stranger = Caller { uid: 1002, gid: 1002, groups: &[] };
    // The mode of ALICE's file, and whether she, a member of her group, and a stranger may link it.
    let cases = [
        (0o100_600, [true, false, false]),
        (0o100_000, [true, false, false]),
        (0o100_644, [true, false, false]),
        (0o100_622, [true, false, false]),
        (0o100_660, [true, true, false]),
        (0o100_666, [true, true, true]),
        (0o104_666, [true, false, false]),
        (0o102_676, [true, false, false]),
        (0o102_666, [true, true, true]),
        (0o010_666, [true, false, false]),
    ];
    for (mode, expected) in cases {
        store.mknod(&ALICE, Ino::ROOT, b"file", mode, 0, at(2)).unwrap();
        let change = SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() };
        store.set_attr(&ALICE, Ino::ROOT, b"file", true, &change, at(2)).unwrap();
        let ino = store.get_attr(&ALICE, Ino::ROOT, b"file", true).unwrap().ino;
        for (caller, expected) in [ALICE, member, stranger, ROOT].iter().zip(expected.into_iter().chain([true])) {
            // By its name and, as with a descriptor, by itself.
            for (start, path) in [(Ino::ROOT, &b"file"[..]), (Ino(ino), b"")] {
                let linked = store.link(caller, start, path, false, Ino::ROOT, b"link", at(3));
                let is_refused = matches!(linked, Err(StoreError::NotPermitted));
                assert_eq!(linked.is_ok(), expected, "{mode:o} by {}: {linked:?}", caller.uid);
                assert_eq!(is_refused, !expected, "{mode:o} by {}: {linked:?}", caller.uid);
                if expected {
                    store.unlink(&ROOT, Ino::ROOT, b"link", at(4)).unwrap();
                }
            }
        }
        store.unlink(&ALICE, Ino::ROOT, b"file", at(5)).unwrap();
    }
}

#[test]
fn an_empty_file_makes_no_object() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 2)).unwrap();
    let file = open(&store, "f");
    store.read(file.ino, 0, &mut [0; 100]).unwrap();
    store.set_size(file.ino, 0, at(2)).unwrap();
    store.fsync(file.ino, false).unwrap();
    assert_eq!(objects(dir.path()), 0);
}

#[test]
fn a_listing_neither_skips_nor_repeats_what_stays() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    let mkdir = |name: String| {
        store.mkdir(&ROOT, Ino::ROOT, name.as_bytes(), 0o755, at(1)).unwrap();
    };
    let stay: HashSet<String> = (0..200).map(|i| format!("stay{i}")).collect();
    stay.iter().cloned().for_each(&mkdir);
    (0..200).for_each(|i| mkdir(format!("go{i}")));
    let mut seen: HashMap<String, usize> = HashMap::new();
    let (mut cookie, mut page) = (0, 0);
    loop {
        let entries = store.namespace().read_dir(&ROOT, Ino::ROOT, cookie, 400).unwrap();
        let Some(last) = entries.last() else { break };
        assert!(last.cookie > cookie && last.cookie <= i64::MAX as u64);
        cookie = last.cookie;
        for entry in entries {
            *seen.entry(String::from_utf8(entry.name).unwrap()).or_default() += 1;
        }
        // Whatever else comes and goes meanwhile, also under the same names.
        let churn = page % 200;
        store.rmdir(&ROOT, Ino::ROOT, format!("go{churn}").as_bytes(), at(2)).unwrap();
        mkdir(format!("new{page}"));
        mkdir(format!("go{churn}"));
        page += 1;
    }
    assert!(page > 20, "many pages");
    for name in stay.iter().map(String::as_str).chain([".", ".."]) {
        assert_eq!(seen.get(name), Some(&1), "{name}");
    }
    assert!(matches!(store.namespace().read_dir(&ROOT, Ino::ROOT, 0, 10), Err(StoreError::Invalid)));
}

#[test]
fn times_change_as_posix_says() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 2)).unwrap();
    let times = |path: &str| {
        let attr = store.get_attr(&ROOT, Ino::ROOT, path.as_bytes(), false).unwrap();
        [attr.atime.secs, attr.mtime.secs, attr.ctime.secs]
    };
    store.mkdir(&ROOT, Ino::ROOT, b"d", 0o755, at(10)).unwrap();
    store.mkdir(&ROOT, Ino::ROOT, b"e", 0o755, at(10)).unwrap();
    let how = OpenHow { access: access::WRITE, create: true, mode: 0o644, ..OpenHow::default() };
    let file = store.open_file(&ROOT, Ino::ROOT, b"d/f", &how, at(20)).unwrap();
    assert_eq!((times("d"), times("d/f")), ([10, 20, 20], [20, 20, 20]));
    store.write(file.ino, 0, b"data", at(30)).unwrap();
    assert_eq!((times("d"), times("d/f")), ([10, 20, 20], [20, 30, 30]));
    store.read(file.ino, 0, &mut [0; 4]).unwrap();
    assert_eq!(times("d/f"), [20, 30, 30]);
    let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    store.set_attr(&ROOT, Ino::ROOT, b"d/f", true, &chmod, at(40)).unwrap();
    assert_eq!(times("d/f"), [20, 30, 40]);
    store.set_size(file.ino, 1, at(50)).unwrap();
    assert_eq!(times("d/f"), [20, 50, 50]);
    store.link(&ROOT, Ino::ROOT, b"d/f", true, Ino::ROOT, b"e/g", at(60)).unwrap();
    assert_eq!((times("d/f"), times("d"), times("e")), ([20, 50, 60], [10, 20, 20], [10, 60, 60]));
    store.rename(&ROOT, Ino::ROOT, b"d/f", Ino::ROOT, b"e/h", isonomia_store::RenameHow::Replace, at(70)).unwrap();
    assert_eq!((times("e/h"), times("d"), times("e")), ([20, 50, 70], [10, 70, 70], [10, 70, 70]));
    store.unlink(&ROOT, Ino::ROOT, b"e/g", at(80)).unwrap();
    assert_eq!((times("e/h"), times("e")), ([20, 50, 80], [10, 80, 80]));
    let set = SetAttr { mtime: Some(TimeChange::At(at(-5))), atime: Some(TimeChange::Now), ..SetAttr::default() };
    store.set_attr(&ROOT, Ino::ROOT, b"e/h", true, &set, at(90)).unwrap();
    assert_eq!(times("e/h"), [90, -5, 90]);
    store.release(file.ino).unwrap();
    assert_eq!(times("e/h"), [90, -5, 90]);
}

#[test]
fn a_link_that_leads_out_is_the_clients_to_follow() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    store.symlink(&ROOT, b"/else/where", Ino::ROOT, b"l", at(1)).unwrap();
    store.symlink(&ROOT, b"l/x", Ino::ROOT, b"m", at(1)).unwrap();
    let outside = |path: &[u8]| match store.get_attr(&ROOT, Ino::ROOT, path, true) {
        Err(StoreError::Outside(text)) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(outside(b"l"), "/else/where");
    assert_eq!(outside(b"l/a/../b/"), "/else/where/a/../b/");
    assert_eq!(outside(b"m/y"), "/else/where/x/y");
    store.mkdir(&ROOT, Ino::ROOT, b"d", 0o755, at(1)).unwrap();
    store.symlink(&ROOT, b"../../up/../x", Ino::ROOT, b"d/climbs", at(1)).unwrap();
    store.symlink(&ROOT, b"../..", Ino::ROOT, b"d/above", at(1)).unwrap();
    store.symlink(&ROOT, b"../d", Ino::ROOT, b"d/down", at(1)).unwrap();
    assert_eq!(outside(b"d/climbs/y"), "../up/../x/y");
    assert_eq!(outside(b"d/above"), "..");
    assert_eq!(outside(b"d/above/"), "../");
    assert_eq!(outside(b"d/down/../../z"), "../z");
    // What the caller writes stays at the root, as in every file system.
    for path in [&b"../d"[..], b"d/../../d", b"d/down/.", b"d/down/../d"] {
        assert_eq!(store.get_attr(&ROOT, Ino::ROOT, path, true).unwrap().mode, 0o40_755);
    }
    let lstat = store.get_attr(&ROOT, Ino::ROOT, b"l", false).unwrap();
    assert_eq!((lstat.mode, lstat.size_bytes), (0o120_777, 11));
}

#[test]
fn limits_are_refused_by_name() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    let stat = |path: &[u8]| store.get_attr(&ROOT, Ino::ROOT, path, true).unwrap_err();
    assert!(matches!(stat(&[b'n'; 256]), StoreError::NameTooLong));
    assert!(matches!(stat(&b"a/".repeat(2049)), StoreError::NameTooLong));
    assert!(matches!(stat(b"a\0b"), StoreError::Invalid));
    let file = open(&store, "f").ino;
    assert!(matches!(store.write(file, i64::MAX as u64, b"x", at(2)), Err(StoreError::FileTooLarge)));
    assert!(matches!(store.write(file, u64::MAX, b"x", at(2)), Err(StoreError::FileTooLarge)));
    assert!(matches!(store.set_size(file, 1 << 63, at(2)), Err(StoreError::Invalid)));
    assert!(matches!(store.reserve_append(file, 1 << 63, at(2)), Err(StoreError::FileTooLarge)));
    assert!(matches!(store.read(Ino::ROOT, 0, &mut [0]), Err(StoreError::IsDirectory)));
    assert!(matches!(store.namespace().acquire(Ino(999)), Err(StoreError::Stale)));
    assert_eq!(store.read(file, u64::MAX, &mut [0; 5]).unwrap(), 0);
}

#[test]
fn the_longest_file_has_its_last_byte() {
    // Where files may be as long as offsets.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    let file = open(&store, "f").ino;
    let last = i64::MAX as u64 - 1;
    assert_eq!(store.write(file, last, b"x", at(2)).unwrap(), 1);
    let mut found = [7; 3];
    assert_eq!(store.read(file, last - 1, &mut found).unwrap(), 2);
    assert_eq!(found, [0, b'x', 7]);
    assert!(matches!(store.write(file, last, b"xy", at(3)), Err(StoreError::FileTooLarge)));
}

#[test]
fn capabilities_outlive_the_server_and_cannot_be_made() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let store = Store::open(&config).unwrap();
    open(&store, "f");
    let how = OpenHow { access: access::READ, ..OpenHow::default() };
    let read = store.open_file(&ALICE, Ino::ROOT, b"f", &how, at(2)).unwrap().capability;
    drop(store);
    let store = Store::open(&config).unwrap();
    store.namespace().verify(&read).unwrap();
    store.namespace().verify_access(&read, access::READ).unwrap();
    assert!(matches!(store.namespace().verify_access(&read, access::WRITE), Err(StoreError::BadAccess)));
    let forged = Capability { access: access::WRITE, ..read };
    assert!(matches!(store.namespace().verify_access(&forged, access::WRITE), Err(StoreError::Stale)));
    let mode = std::fs::metadata(dir.path().join("store/secret")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
}

#[test]
fn descriptors_stay_within_their_bound() {
    let dir = scratch_dir();
    let mut config = config(dir.path(), 2);
    config.bounds.objects = 4;
    let store = Store::open(&config).unwrap();
    let files: Vec<Ino> = (0..40).map(|i| open(&store, &format!("f{i}")).ino).collect();
    let here = dir.path().canonicalize().unwrap();
    let open_objects = || {
        let fds =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|e| std::fs::read_link(e.unwrap().path()).ok());
        fds.filter(|path| path.starts_with(&here) && path.extension().is_some_and(|e| e == "0" || e == "1")).count()
    };
    for round in 0..3u8 {
        for (i, ino) in files.iter().enumerate() {
            store.write(*ino, 4096 * u64::from(round), &[i as u8; 4096], at(2)).unwrap();
            assert!(open_objects() <= 4 + 1, "the bound, and the one that is being opened");
        }
    }
    for (i, ino) in files.iter().enumerate() {
        assert_eq!(content(&store, *ino), [i as u8; 3 * 4096]);
        store.fsync(*ino, true).unwrap();
    }
}

#[test]
fn appends_from_many_threads_never_overlap() {
    const THREADS: u8 = 4;
    const EACH: usize = 200;
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 3)).unwrap();
    let file = open(&store, "log").ino;
    // All begin each round together: or one might be done before the next has started.
    let round = std::sync::Barrier::new(THREADS.into());
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            let (store, round) = (&store, &round);
            scope.spawn(move || {
                for i in 0..EACH {
                    round.wait();
                    let (offset, n) = store.append(file, &[t + 1; 100], at(2)).unwrap();
                    assert_eq!((offset % 100, n), (0, 100));
                    if i % 20 == 0 {
                        store.flush_dirty().unwrap();
                    }
                }
            });
        }
    });
    let bytes = content(&store, file);
    assert_eq!(bytes.len(), usize::from(THREADS) * EACH * 100);
    assert!(bytes.chunks(100).all(|record| record.iter().all(|b| *b == record[0])));
    for t in 1..=THREADS {
        assert_eq!(bytes.iter().filter(|b| **b == t).count(), EACH * 100);
    }
}

#[test]
fn threads_that_fight_over_names_leave_a_whole_tree() {
    let dir = scratch_dir();
    let mut config = config(dir.path(), 2);
    // Small caches: inodes are loaded while others remove them.
    config.bounds = isonomia_store::Bounds { inodes: 32, entries: 32, objects: 2, sums_bytes: 4096 };
    let store = Store::open(&config).unwrap();
    std::thread::scope(|scope| {
        for t in 0..4u64 {
            let store = &store;
            scope.spawn(move || {
                let mut random = t + 1;
                for i in 0..2_000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (a, b) = (format!("f{}", random >> 33 & 7), format!("f{}", random >> 40 & 7));
                    let (a, b) = (a.as_bytes(), b.as_bytes());
                    match random >> 50 & 3 {
                        0 => {
                            let file = open(store, std::str::from_utf8(a).unwrap());
                            store.write(file.ino, 0, &[t as u8; 5000], at(i)).unwrap();
                            store.release(file.ino).unwrap();
                        }
                        1 => drop(store.unlink(&ROOT, Ino::ROOT, a, at(i))),
                        2 => drop(store.rename(&ROOT, Ino::ROOT, a, Ino::ROOT, b, Default::default(), at(i))),
                        _ => drop(store.link(&ROOT, Ino::ROOT, a, true, Ino::ROOT, b, at(i))),
                    }
                }
            });
        }
    });
    drop(store);
    let store = Store::open(&config).unwrap();
    let mut names: HashMap<u64, u32> = HashMap::new();
    for entry in store.namespace().read_dir(&ROOT, Ino::ROOT, 0, 1 << 16).unwrap().into_iter().skip(2) {
        *names.entry(entry.ino.0).or_default() += 1;
        assert_eq!(content(&store, entry.ino).len(), 5000);
    }
    for (ino, count) in &names {
        assert_eq!(store.get_attr(&ROOT, Ino(*ino), b"", true).unwrap().nlink, *count);
    }
    assert_eq!(objects(dir.path()), 2 * names.len(), "objects of files that exist, and no others");
}

#[test]
fn space_is_reserved_for_striped_appends() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 2)).unwrap();
    let file = open(&store, "f").ino;
    assert_eq!(store.reserve_append(file, 10_000, at(2)).unwrap().offset, 0);
    assert_eq!(store.reserve_append(file, 5, at(2)).unwrap().offset, 10_000);
    store.write(file, 10_000, b"hello", at(3)).unwrap();
    let bytes = content(&store, file);
    assert!(bytes[..10_000].iter().all(|b| *b == 0));
    assert_eq!(&bytes[10_000..], b"hello");
}

#[test]
fn only_who_may_read_a_directory_lists_it() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    let made = store.mkdir(&ROOT, Ino::ROOT, b"d", 0o750, at(1)).unwrap();
    let listed = |caller: &Caller<'_>| store.namespace().read_dir(caller, Ino(made.ino), 0, 4096).map(|e| e.len());
    assert!(matches!(listed(&ALICE), Err(StoreError::PermissionDenied)));
    assert_eq!(listed(&Caller { uid: 5, gid: 6, groups: &[0] }).unwrap(), 2);
    assert_eq!(store.namespace().path_of(Ino(made.ino)).unwrap(), b"/d");
    assert_eq!(store.namespace().path_of(Ino::ROOT).unwrap(), b"/");
}

#[test]
fn who_may_not_wait_does_not_wait_for_the_database() {
    let dir = scratch_dir();
    let ino = {
        let store = Store::open(&config(dir.path(), 1)).unwrap();
        let ino = Ino(open(&store, "file").attr.ino);
        store.write(ino, 0, &b"content"[..], at(2)).unwrap();
        ino
    };
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    let mut back = [0; 7];
    assert_eq!(store.read_cached(ino, 0, &mut back[..]).unwrap(), Cached::WouldWait, "nothing is known of it yet");
    assert_eq!(store.read_cached(Ino(7777), 0, &mut back[..]).unwrap(), Cached::WouldWait, "nor that it is not there");
    assert_eq!(store.read(ino, 0, &mut back[..]).unwrap(), 7);
    assert!(matches!(store.read_cached(ino, 0, &mut back[..]).unwrap(), Cached::Read(7) | Cached::Unknown));
    assert_eq!(&back, b"content");
}
