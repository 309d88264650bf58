//! Copies of the metadata that are made while the store is used.

use crate::scratch::{ROOT, at, config, content, open, scratch_dir};
use isonomia_store::{Check, Finding, OpenError, Store, StoreConfig, StoreError};
use isonomia_units::Ino;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// More than are copied at a time.
const BEFORE: usize = 1_500;
static GOES_ON: AtomicBool = AtomicBool::new(false);

fn make(store: &Store, name: &str, len: usize) {
    let ino = open(store, "temporary").ino;
    store.write(ino, 0, &vec![7; len], at(2)).unwrap();
    store.release(ino).unwrap();
    let (root, to) = (Ino::ROOT, name.as_bytes());
    store.rename(&ROOT, root, b"temporary", root, to, Default::default(), at(3)).unwrap();
}

fn find(store: &Store, name: &str) -> Option<Vec<u8>> {
    store.get_attr(&ROOT, Ino::ROOT, name.as_bytes(), true).ok().map(|attr| content(store, Ino(attr.ino)))
}

fn repair(config: &StoreConfig) -> Vec<String> {
    let mut kinds = Vec::new();
    let mut finding = |finding: &Finding| kinds.push(finding.kind.to_owned());
    Check { repair: true, data: true, finding: &mut finding, progress: &mut |_, _| {} }.run(config).unwrap();
    kinds.dedup();
    kinds
}

#[test]
fn a_copy_that_is_made_while_files_are_made_can_be_put_back() {
    for is_closed in [true, false] {
        let dir = scratch_dir();
        let (config, copy) = (config(dir.path(), 2), dir.path().join("copy"));
        let store = Store::open(&config).unwrap();
        (0..BEFORE).for_each(|number| make(&store, &format!("before{number}"), number));
        let is_made = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // At least one after the copy: then there is something that it does not know.
                for number in 0usize.. {
                    let is_last = is_made.load(Relaxed);
                    make(&store, &format!("during{number}"), 5_000);
                    if is_last {
                        break;
                    }
                }
            });
            store.backup(&copy, &GOES_ON).unwrap();
            is_made.store(true, Relaxed);
        });
        store.sync().unwrap();
        if is_closed {
            store.close().unwrap();
        }
        drop(store);
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o700);
        fs::rename(&config.dir, dir.path().join("damaged")).unwrap();
        fs::rename(&copy, &config.dir).unwrap();
        assert!(matches!(Store::open(&config).map(drop), Err(OpenError::Older { .. })));
        assert_eq!(repair(&config), ["older", "unknown object"]);
        assert_eq!(repair(&config), [""; 0]);
        let store = Store::open(&config).unwrap();
        for number in 0..BEFORE {
            assert_eq!(find(&store, &format!("before{number}")).unwrap(), vec![7; number]);
        }
        let during: Vec<_> = (0usize..).map_while(|number| find(&store, &format!("during{number}"))).collect();
        assert!(during.iter().all(|content| *content == vec![7; 5_000]));
        // Those of one moment: none is there that came after one that is not, but the one that was being made.
        let listed = store.namespace().read_dir(&ROOT, Ino::ROOT, 0, 1 << 20).unwrap();
        let others = listed.len() - BEFORE - during.len() - listed.iter().filter(|entry| entry.name[0] == b'.').count();
        assert!(others <= 1, "{others}");
    }
}

/// What was written a moment before the copy and is gone since cannot be read; it is not empty.
#[test]
fn a_file_that_was_removed_after_the_copy_is_damaged_and_not_empty() {
    let dir = scratch_dir();
    let (config, copy) = (config(dir.path(), 2), dir.path().join("copy"));
    let store = Store::open(&config).unwrap();
    make(&store, "kept", 5_000);
    make(&store, "removed", 5_000);
    store.backup(&copy, &GOES_ON).unwrap();
    store.unlink(&ROOT, Ino::ROOT, b"removed", at(4)).unwrap();
    store.close().unwrap();
    drop(store);
    fs::rename(&config.dir, dir.path().join("damaged")).unwrap();
    fs::rename(&copy, &config.dir).unwrap();
    repair(&config);
    let store = Store::open(&config).unwrap();
    assert_eq!(find(&store, "kept").unwrap(), vec![7; 5_000]);
    let removed = store.get_attr(&ROOT, Ino::ROOT, b"removed", true).unwrap();
    assert_eq!(removed.size_bytes, 5_000);
    assert!(matches!(store.read(Ino(removed.ino), 0, &mut [0; 5_000]), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_copy_replaces_nothing_and_leaves_no_part() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    (0..BEFORE).for_each(|number| drop(open(&store, &format!("file{number}"))));
    let copy = dir.path().join("copy");
    let is_stopping = AtomicBool::new(true);
    assert!(matches!(store.backup(&copy, &is_stopping), Err(StoreError::Busy)));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "store and target");
    fs::write(&copy, "").unwrap();
    let refused = store.backup(&copy, &GOES_ON).unwrap_err();
    assert!(refused.to_string().contains(copy.to_str().unwrap()), "{refused}");
    let refused = store.backup(&dir.path().join("nowhere/copy"), &GOES_ON).unwrap_err();
    assert!(refused.to_string().contains("nowhere/copy"), "{refused}");
    assert_eq!(fs::read(&copy).unwrap(), b"");
    fs::remove_file(&copy).unwrap();
    store.backup(&copy, &GOES_ON).unwrap();
}
