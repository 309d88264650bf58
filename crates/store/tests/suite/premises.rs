//! Which directories a store accepts.

use crate::scratch::{ROOT, at, config, content, open, scratch_dir};
use isonomia_store::{Check, Finding, OpenError, Store, StoreConfig, TargetDir};
use isonomia_testbed::is_root_to;
use isonomia_units::{Ino, ServerId, TargetId};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn a_second_server_is_refused_with_the_pid_of_the_first() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let first = Store::open(&config).unwrap();
    let pid = std::process::id().to_string();
    let refused = Store::open(&config).map(|_| ()).unwrap_err();
    assert!(matches!(&refused, OpenError::InUse { pid: p, dir } if *p == pid && *dir == config.dir), "{refused}");
    assert!(refused.to_string().contains(&format!("process {pid}")));
    // The same target under another store.
    let mut other = crate::scratch::config(&dir.path().join("other"), 1);
    other.targets[0].dir = config.targets[1].dir.clone();
    let refused = Store::open(&other).map(|_| ()).unwrap_err();
    assert!(matches!(&refused, OpenError::InUse { dir, .. } if *dir == config.targets[1].dir), "{refused}");
    drop(first);
    Store::open(&config).unwrap();
}

/// Who could take the lock because the directory was open to him keeps nobody out, and servers exclude each other all the same.
#[test]
fn another_users_lock_counts_for_nothing() {
    if !is_root_to("become another user") {
        return;
    }
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    drop(Store::open(&config).unwrap());
    let lock = config.dir.join("lock");
    let open_to_all = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    open_to_all(&lock, 0o666);
    for dir in config.dir.ancestors().take_while(|above| above.starts_with(dir.path())) {
        open_to_all(dir, 0o755);
    }
    let mut stranger = Command::new("setpriv")
        .args(["--reuid=12345", "--clear-groups", "flock", "--no-fork"])
        .arg(&lock)
        .args(["sh", "-c", "echo locked; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(stranger.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "locked\n");
    let earlier_version = || {
        let file = fs::File::options().read(true).write(true).open(&lock).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map(|()| file)
    };
    let store = Store::open(&config).unwrap();
    assert!(earlier_version().is_err(), "two servers");
    let refused = Store::open(&config).map(drop).unwrap_err();
    assert!(matches!(&refused, OpenError::InUse { pid, .. } if *pid == std::process::id().to_string()), "{refused}");
    drop(store);
    // An earlier version has it now, with the stranger on what it was before.
    let earlier = earlier_version().unwrap();
    let refused = Store::open(&config).map(drop).unwrap_err();
    assert!(matches!(&refused, OpenError::InUse { .. }), "{refused}");
    drop(earlier);
    drop(stranger.stdin.take());
    stranger.wait().unwrap();
    Store::open(&config).unwrap();
    assert_eq!(fs::metadata(&lock).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_does_not_belong_together_is_told_apart() {
    let dir = scratch_dir();
    let good = config(dir.path(), 2);
    drop(Store::open(&good).unwrap());
    let refused = |config: &isonomia_store::StoreConfig| Store::open(config).map(|_| ()).unwrap_err();

    let mut fewer = good.clone();
    fewer.targets.pop();
    assert!(matches!(refused(&fewer), OpenError::TargetMissing { target: TargetId(1), .. }));

    let mut moved = good.clone();
    moved.targets[1].dir = dir.path().join("empty");
    assert!(matches!(refused(&moved), OpenError::TargetLost { target: TargetId(1), .. }));
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    assert!(matches!(refused(&moved), OpenError::TargetLost { target: TargetId(1), .. }));

    let mut swapped = good.clone();
    swapped.targets[0].dir = good.targets[1].dir.clone();
    swapped.targets[1].dir = good.targets[0].dir.clone();
    assert!(matches!(refused(&swapped), OpenError::Mismatch { .. }));

    let mut other_server = good.clone();
    other_server.server = ServerId(7);
    assert!(matches!(refused(&other_server), OpenError::Mismatch { .. }));

    let mut foreign = config(&dir.path().join("foreign"), 1);
    foreign.targets[0].dir = good.targets[0].dir.clone();
    assert!(matches!(refused(&foreign), OpenError::Mismatch { .. }));

    let mut twice = good.clone();
    twice.targets[1].dir = good.targets[0].dir.clone();
    assert!(matches!(refused(&twice), OpenError::Config(_)));

    let mut more = good.clone();
    more.targets.push(TargetDir { id: TargetId(9), dir: dir.path().join("added") });
    drop(Store::open(&more).unwrap());
    assert!(matches!(refused(&good), OpenError::TargetMissing { target: TargetId(9), .. }));

    let identity = good.dir.join("identity");
    let text = std::fs::read_to_string(&identity).unwrap();
    std::fs::write(&identity, text.replace("format 4", "format 1")).unwrap();
    assert!(matches!(refused(&more), OpenError::Format { found, .. } if found == "1"));
    std::fs::write(&identity, text.replace("server 0", "server x")).unwrap();
    assert!(matches!(refused(&more), OpenError::Damaged { .. }));
    std::fs::write(&identity, text).unwrap();
    drop(Store::open(&more).unwrap());
}

#[test]
fn files_go_round_the_targets() {
    let dir = scratch_dir();
    let mut config = config(dir.path(), 3);
    config.default_layout.stripe_count = 1;
    let store = Store::open(&config).unwrap();
    let first = |name: &str| open(&store, name).layout.unwrap().targets[0].0;
    assert_eq!([first("a"), first("b"), first("c"), first("d")], [0, 1, 2, 0]);
}

/// A store that was used and stopped, in order or not.
fn used(dir: &Path, is_closed: bool) -> StoreConfig {
    let config = config(dir, 2);
    let store = Store::open(&config).unwrap();
    for i in 0..200u32 {
        let file = open(&store, &format!("file{i}")).ino;
        store.write(file, 0, &[1; 100], at(2)).unwrap();
        store.release(file).unwrap();
    }
    let last = open(&store, "last").ino;
    store.fsync(last, false).unwrap();
    if is_closed {
        store.close().unwrap();
    }
    config
}

fn journal(config: &StoreConfig) -> PathBuf {
    let mut all = fs::read_dir(config.dir.join("db")).unwrap().map(|entry| entry.unwrap().path());
    all.find(|path| path.extension().is_some_and(|extension| extension == "jnl")).unwrap()
}

/// Everything in `dir` and below it but the lock, which says who tried last.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            all.extend(files(&entry));
        } else if !entry.ends_with("lock") {
            all.push((entry.clone(), fs::read(&entry).unwrap()));
        }
    }
    all.sort();
    all
}

/// The one that a table has now.
fn newest_version(table: &Path) -> PathBuf {
    let current = fs::read(table.join("current")).unwrap();
    table.join(format!("v{}", u64::from_le_bytes(current[..8].try_into().unwrap())))
}

#[test]
fn objects_without_metadata_are_not_taken_for_a_new_store() {
    for is_closed in [true, false] {
        let dir = scratch_dir();
        let config = used(dir.path(), is_closed);
        let objects = |config: &StoreConfig| {
            config.targets.iter().map(|target| files(&target.dir.join("objects"))).collect::<Vec<_>>()
        };
        let before = objects(&config);
        fs::remove_dir_all(&config.dir).unwrap();
        config.targets.iter().for_each(|target| fs::remove_file(target.dir.join("target.identity")).unwrap());
        for _ in 0..2 {
            assert!(damage(&config).contains("has objects in it"));
        }
        assert!(objects(&config) == before);
    }
}

fn damage(config: &StoreConfig) -> String {
    match Store::open(config).map(|_| ()) {
        Err(error @ OpenError::Damaged { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_used_store_lacks_is_not_created_anew() {
    for is_closed in [true, false] {
        let dir = scratch_dir();
        let config = used(dir.path(), is_closed);
        let objects = config.targets[1].dir.join("objects");
        let names = ["db", "secret", "synced", "identity"].map(|name| config.dir.join(name));
        for missing in names.into_iter().chain([objects.clone(), objects.join("2a"), journal(&config)]) {
            let away = dir.path().join("away");
            fs::rename(&missing, &away).unwrap();
            for _ in 0..2 {
                let text = damage(&config);
                let named = if missing.extension().is_some() { missing.parent().unwrap() } else { &missing };
                assert!(text.contains(named.to_str().unwrap()), "{} is missing: {text}", missing.display());
            }
            fs::rename(&away, &missing).unwrap();
        }
        // The engine would make tables anew, and forget that it had others.
        let tables = config.dir.join("db").join("keyspaces");
        let whole = files(&config.dir);
        for missing in ["0", "0/current", "2", "2/current", "6/current", "13", "13/current", ""]
            .map(|name| tables.join(name))
            .into_iter()
            .chain([config.dir.join("db/version"), newest_version(&tables.join("0"))])
        {
            let away = dir.path().join("away");
            fs::rename(&missing, &away).unwrap();
            if missing.ends_with("2") {
                fs::create_dir(&missing).unwrap();
            }
            for _ in 0..2 {
                assert!(damage(&config).contains(missing.to_str().unwrap()), "{}", missing.display());
            }
            if missing.ends_with("2") {
                fs::remove_dir(&missing).unwrap();
            }
            fs::rename(&away, &missing).unwrap();
            assert!(files(&config.dir) == whole, "without {} a refused start changed something", missing.display());
        }
        for emptied in ["identity", "secret", "synced"].map(|name| config.dir.join(name)) {
            let bytes = fs::read(&emptied).unwrap();
            fs::write(&emptied, "").unwrap();
            assert!(damage(&config).contains(emptied.to_str().unwrap()));
            fs::write(&emptied, bytes).unwrap();
        }
        let store = Store::open(&config).unwrap();
        assert_eq!(content(&store, Ino(store.get_attr(&ROOT, Ino::ROOT, b"file7", true).unwrap().ino)), [1; 100]);
    }
}

/// Once nothing at all was left of a store whose count of syncs was 0.
#[test]
fn a_count_of_syncs_that_was_changed_is_refused() {
    for is_closed in [true, false] {
        let dir = scratch_dir();
        let config = used(dir.path(), is_closed);
        let path = config.dir.join("synced");
        let good = fs::read(&path).unwrap();
        let mut other = good.clone();
        other[18] ^= 1;
        let zero = [format!("{:020}", 0).as_bytes(), &good[20..]].concat();
        for changed in [other, zero, format!("{:020}\n", 0).into_bytes()] {
            fs::write(&path, &changed).unwrap();
            let before = files(&config.dir);
            for _ in 0..2 {
                assert!(damage(&config).contains(path.to_str().unwrap()));
                let mut found = Vec::new();
                let mut finding = |finding: &Finding| found.push((finding.kind, finding.repair.is_some()));
                Check { repair: false, data: false, finding: &mut finding, progress: &mut |_, _| {} }
                    .run(&config)
                    .unwrap();
                assert_eq!(found, [("synced", true)]);
            }
            assert!(files(&config.dir) == before, "a refused start changed something");
        }
        // As an earlier version wrote it.
        fs::write(&path, [&good[..20], b"\n"].concat()).unwrap();
        let store = Store::open(&config).unwrap();
        assert_eq!(content(&store, Ino(store.get_attr(&ROOT, Ino::ROOT, b"file7", true).unwrap().ino)), [1; 100]);
        store.close().unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), good.len());
    }
}

#[test]
fn a_journal_that_was_emptied_or_overwritten_is_refused() {
    for is_closed in [true, false] {
        let dir = scratch_dir();
        let config = used(dir.path(), is_closed);
        let path = journal(&config);
        let whole = fs::read(&path).unwrap();
        let end = whole.iter().rposition(|b| *b != 0).unwrap();
        assert!(end > 40_000, "{end}");
        for page in [0, 1, 5, end / 4096 - 1] {
            let mut bytes = whole.clone();
            bytes[page * 4096..][..4096].fill(0);
            fs::write(&path, &bytes).unwrap();
            for _ in 0..2 {
                let text = damage(&config);
                assert!(text.contains(path.to_str().unwrap()), "{text}");
            }
            assert!(fs::read(&path).unwrap() == bytes, "it was changed");
        }
        // Nothing is behind what is lost.
        for len in [0, 20_000] {
            fs::write(&path, &whole[..len]).unwrap();
            let before = files(&config.dir);
            for _ in 0..2 {
                assert!(damage(&config).contains(config.dir.join("db").to_str().unwrap()));
                assert!(files(&config.dir) == before, "a refused start changed something");
            }
        }
        fs::write(&path, &whole).unwrap();
        let store = Store::open(&config).unwrap();
        assert_eq!(store.namespace().read_dir(&ROOT, Ino::ROOT, 0, 1 << 20).unwrap().len(), 203);
    }
}

#[test]
fn a_check_that_repairs_nothing_leaves_a_journal_as_it_is() {
    for is_closed in [true, false] {
        let dir = scratch_dir();
        let config = used(dir.path(), is_closed);
        let path = journal(&config);
        // Half a batch: it is cut off by whoever opens the database.
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.iter().rposition(|b| *b != 0).unwrap() + 1;
        bytes.truncate(end);
        bytes.extend([1, 9, 0, 0, 0, 7]);
        fs::write(&path, &bytes).unwrap();
        let before = files(&config.dir);
        let check = |repair| {
            let mut found = Vec::new();
            let mut finding = |finding: &Finding| found.push(finding.clone());
            let checked = Check { repair, data: true, finding: &mut finding, progress: &mut |_, _| {} }.run(&config);
            assert_eq!((found, checked.unwrap().inodes), (vec![], 202));
        };
        check(false);
        let changed = |before: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
            files(&config.dir).into_iter().filter(|file| !before.contains(file)).map(|(path, _)| path).collect()
        };
        assert_eq!((changed(&before), files(&config.dir).len()), (vec![], before.len()));
        check(true);
        assert!(files(&config.dir) != before);
        assert_eq!(
            Store::open(&config).unwrap().namespace().read_dir(&ROOT, Ino::ROOT, 0, 1 << 20).unwrap().len(),
            203
        );
        // What is missing is the store's own, and not what the check looked at.
        for file in fs::read_dir(config.dir.join("db")).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "jnl") {
                fs::remove_file(file).unwrap();
            }
        }
        let error = Check { repair: false, data: false, finding: &mut |_| {}, progress: &mut |_, _| {} }.run(&config);
        assert!(error.unwrap_err().to_string().starts_with(&format!("{} ", config.dir.join("db").display())));
    }
}

#[test]
fn what_a_power_cut_may_do_to_a_journal_is_no_damage() {
    let dir = scratch_dir();
    let config = used(dir.path(), false);
    let synced = fs::read(journal(&config)).unwrap().iter().rposition(|b| *b != 0).unwrap();
    let store = Store::open(&config).unwrap();
    let start = fs::read(journal(&config)).unwrap().iter().rposition(|b| *b != 0).unwrap().max(synced);
    let value = vec![7; 60_000];
    for i in 0..3 {
        let name = format!("user.{i}");
        store.set_xattr(&ROOT, Ino::ROOT, b"", true, name.as_bytes(), &value, Default::default(), at(3)).unwrap();
    }
    drop(store);
    let path = journal(&config);
    let witnesses = witnesses(&config);
    let whole = fs::read(&path).unwrap();
    // Pages reach the disk in any order: in the middle of one value, and between two.
    for page in [start / 4096 + 3, start / 4096 + 15, start / 4096 + 20] {
        let mut bytes = whole.clone();
        bytes[page * 4096..][..4096].fill(0);
        fs::write(&path, bytes).unwrap();
        witnesses.iter().for_each(|(told, witness)| fs::write(witness, told).unwrap());
        let store = Store::open(&config).unwrap();
        assert_eq!(store.namespace().read_dir(&ROOT, Ino::ROOT, 0, 1 << 20).unwrap().len(), 203);
        drop(store);
    }
}

/// The files that say how much of the database was synced, with their content.
fn witnesses(config: &StoreConfig) -> Vec<(Vec<u8>, PathBuf)> {
    let copies = config.targets.iter().map(|target| target.dir.join("target.synced"));
    copies.chain([config.dir.join("synced")]).map(|path| (fs::read(&path).unwrap(), path)).collect()
}

/// A batch of the journal's that says that nothing was synced, as anybody can write it into an attribute.
fn forged_batch() -> Vec<u8> {
    let (key, value) = (b"synced", [0; 8]);
    let lens = [(key.len() as u16).to_le_bytes().as_slice(), &[8, 0, 0, 0, 8, 0, 0, 0]].concat();
    let items = [&[2, 0, 0][..], &[0; 8], &lens, key, &value].concat();
    let sum = twox_hash::XxHash3_64::oneshot(&items).to_le_bytes();
    [&[1, 1, 0, 0, 0][..], &[0; 8], &items, &[3], &sum, b"FJL\x03"].concat()
}

#[test]
fn what_users_write_is_not_taken_for_a_sync_wherever_the_journal_breaks_off() {
    let dir = scratch_dir();
    let config = used(dir.path(), false);
    let store = Store::open(&config).unwrap();
    let start = fs::read(journal(&config)).unwrap().iter().rposition(|b| *b != 0).unwrap();
    let value = forged_batch().repeat(1000);
    store.set_xattr(&ROOT, Ino::ROOT, b"", true, b"user.a", &value, Default::default(), at(3)).unwrap();
    drop(store);
    let (path, witnesses) = (journal(&config), witnesses(&config));
    let whole = fs::read(&path).unwrap();
    let without_page = |page: usize| {
        let mut bytes = whole.clone();
        bytes[page * 4096..][..4096].fill(0);
        bytes
    };
    for bytes in [whole[..start + 30_000].to_vec(), without_page(start / 4096 + 1), without_page(start / 4096 + 3)] {
        fs::write(&path, bytes).unwrap();
        witnesses.iter().for_each(|(told, witness)| fs::write(witness, told).unwrap());
        let store = Store::open(&config).unwrap();
        assert_eq!(store.namespace().read_dir(&ROOT, Ino::ROOT, 0, 1 << 20).unwrap().len(), 203);
    }
}

#[test]
fn other_users_of_the_host_are_kept_out() {
    let dir = scratch_dir();
    let config = used(dir.path(), true);
    fn open_to_others(path: &Path, found: &mut Vec<String>) {
        let metadata = fs::symlink_metadata(path).unwrap();
        if metadata.mode() & 0o077 != 0 {
            found.push(path.display().to_string());
        }
        if metadata.is_dir() {
            fs::read_dir(path).unwrap().for_each(|entry| open_to_others(&entry.unwrap().path(), found));
        }
    }
    for round in 0..2 {
        drop(Store::open(&config).unwrap());
        drop(Store::open(&config).unwrap());
        let mut found = Vec::new();
        for path in [&config.dir, &config.targets[0].dir, &config.targets[1].dir] {
            open_to_others(path, &mut found);
        }
        assert!(found.is_empty(), "{round}: {found:?}");
        // As an earlier version or an operator left it.
        for name in ["store", "store/lock", "store/db", "target0", "target0/objects", "target1/target.lock"] {
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    // A directory that has other things in it is somebody's to decide.
    fs::write(config.targets[0].dir.join("notes"), "").unwrap();
    drop(Store::open(&config).unwrap());
    assert_eq!(fs::metadata(&config.targets[0].dir).unwrap().mode() & 0o777, 0o755);
    assert_eq!(fs::metadata(config.targets[0].dir.join("objects")).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_first_opening_that_did_not_end_is_begun_anew() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    drop(Store::open(&config).unwrap());
    // What a power cut leaves while the database is created: its journal, and no file that says that it is complete.
    let identity = fs::read_to_string(config.dir.join("identity")).unwrap();
    assert!(identity.contains("state ready\n"), "{identity}");
    fs::write(config.dir.join("identity"), identity.replace("state ready\n", "")).unwrap();
    fs::write(config.dir.join("synced"), "").unwrap();
    fs::remove_file(config.dir.join("db/version")).unwrap();
    let store = Store::open(&config).unwrap();
    let file = open(&store, "file").ino;
    store.fsync(file, false).unwrap();
    drop(store);
    assert_eq!(Store::open(&config).unwrap().get_attr(&ROOT, Ino::ROOT, b"file", true).unwrap().ino, file.0);
}

/// As root only: it takes a second user.
#[test]
fn a_directory_that_another_user_could_exchange_is_refused() {
    if !is_root_to("give a directory away") {
        return;
    }
    for give_away in [|c: &StoreConfig| c.dir.clone(), |c: &StoreConfig| c.targets[0].dir.clone()] {
        let dir = scratch_dir();
        let config = config(dir.path(), 1);
        drop(Store::open(&config).unwrap());
        std::os::unix::fs::chown(give_away(&config), Some(12_345), None).unwrap();
        let refused = Store::open(&config).map(|_| ()).unwrap_err();
        assert!(matches!(&refused, OpenError::Owner { owner: 12_345, .. }), "{refused}");
    }
}

#[test]
fn no_directory_of_a_store_lies_in_another() {
    let dir = scratch_dir();
    let path = dir.path();
    std::os::unix::fs::symlink("store", path.join("link")).unwrap();
    std::os::unix::fs::symlink("target0", path.join("link0")).unwrap();
    for (targets, inner, outer) in [
        (["store/target", "target1"], "store/target", "store"),
        (["link/target", "target1"], "store/target", "store"),
        (["target0", "target0/target1"], "target0/target1", "target0"),
        (["target1/target0", "target1"], "target1/target0", "target1"),
        (["target0", "link0"], "target0", "target0"),
    ] {
        std::fs::create_dir_all(path.join("store")).unwrap();
        std::fs::create_dir_all(path.join("target0")).unwrap();
        let mut config = config(path, 2);
        for (target, at) in config.targets.iter_mut().zip(targets) {
            target.dir = path.join(at);
        }
        let error = Store::open(&config).map(|_| ()).unwrap_err();
        let OpenError::Nested { inner: found, outer: around, .. } = &error else { panic!("{targets:?}: {error}") };
        let real = path.canonicalize().unwrap();
        assert_eq!((found, around), (&real.join(inner), &real.join(outer)), "{error}");
        assert_eq!(std::fs::read_dir(path.join("store")).unwrap().count(), 0, "nothing was created");
    }
    // One that lies so already is opened.
    let mut config = config(path, 1);
    drop(Store::open(&config).unwrap());
    std::fs::rename(path.join("target0"), path.join("store/target0")).unwrap();
    config.targets[0].dir = path.join("store/target0");
    drop(Store::open(&config).unwrap());
}
