//! Starts after stops of all kinds.

use crate::damage::{is_damage, objects, read_block};
use crate::scratch::{ROOT, at, config, open, scratch_dir};
use isonomia_store::{Store, StoreConfig};
use std::path::{Path, PathBuf};

const BLOCK: usize = 4096;

fn at_start(config: &StoreConfig, host_start: &str) -> StoreConfig {
    StoreConfig { host_start: Some(host_start.to_owned()), ..config.clone() }
}

#[test]
fn the_verifier_changes_when_something_may_have_been_lost() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let verifier = |host_start: &str, is_closed: bool| {
        let store = Store::open(&at_start(&config, host_start)).unwrap();
        let verifier = store.verifier();
        if is_closed {
            store.close().unwrap();
        }
        verifier
    };
    let new = verifier("first", false);
    assert!(new > 0);
    assert_eq!(verifier("first", true), new, "it was killed");
    assert_eq!(verifier("second", false), new, "all was on stable storage when the host was started anew");
    let cut = verifier("third", false);
    assert_ne!(cut, new);
    assert_eq!(verifier("third", false), cut);
    assert_ne!(verifier("first", false), cut, "another host does not have what was in memory here");
    let unknown = verifier("", false);
    assert_ne!(verifier("", true), unknown, "nobody knows");
}

/// Where an object's directory is while it is away.
fn away(object: &Path) -> (PathBuf, PathBuf) {
    let directory = object.parent().unwrap();
    (directory.to_owned(), directory.with_extension("away"))
}

/// What was undone by a power cut is forgotten by the start that gets through, whichever it is.
#[test]
fn a_recovery_after_a_power_cut_that_was_cut_off_is_done_again() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let store = Store::open(&at_start(&config, "first")).unwrap();
    let [first, second] = ["first", "second"].map(|name| open(&store, name).ino);
    for ino in [first, second] {
        store.write(ino, 0, &[7; BLOCK], at(2)).unwrap();
    }
    store.flush_dirty().unwrap();
    drop(store);
    let files = objects(dir.path(), 0);
    let of = |ino: u64| files.iter().find(|path| path.to_string_lossy().contains(&format!("{ino:016x}."))).unwrap();
    std::fs::remove_file(of(second.0)).unwrap();
    // The first file's size cannot be told, which ends the start before the second one is looked at.
    let (there, away) = away(of(first.0));
    std::fs::rename(&there, &away).unwrap();
    std::fs::write(&there, "").unwrap();
    assert!(Store::open(&at_start(&config, "second")).is_err());
    std::fs::remove_file(&there).unwrap();
    std::fs::rename(&away, &there).unwrap();
    let store = Store::open(&at_start(&config, "second")).unwrap();
    assert!(read_block(&store, second, 0).unwrap() == [0; BLOCK], "the power cut undid it");
    assert!(read_block(&store, first, 0).unwrap() == [7; BLOCK]);
    drop(store);
    std::fs::remove_file(of(first.0)).unwrap();
    let store = Store::open(&at_start(&config, "second")).unwrap();
    assert!(is_damage(read_block(&store, first, 0)), "only a kill since");
}

#[test]
fn objects_of_no_file_that_cannot_be_removed_keep_nobody_from_his_files() {
    // On a disk, where what was removed waits for the database to be there.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let config = config(dir.path(), 1);
    let store = Store::open(&config).unwrap();
    let [kept, gone] = ["kept", "gone"].map(|name| open(&store, name).ino);
    for ino in [kept, gone] {
        store.write(ino, 0, &[7; BLOCK], at(2)).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let object = |ino: u64| {
        let is_its = |path: &PathBuf| path.to_string_lossy().contains(&format!("{ino:016x}."));
        objects(dir.path(), 0).into_iter().find(is_its)
    };
    let (path, stranger) = (object(gone.0).unwrap(), object(kept.0).unwrap());
    let stranger =
        PathBuf::from(stranger.to_string_lossy().replacen(&format!("{:016x}.", kept.0), "0000000000000fff.", 1));
    let store = Store::open(&config).unwrap();
    store.unlink(&ROOT, isonomia_units::Ino::ROOT, b"gone", at(3)).unwrap();
    drop(store);
    // Neither the object of a file that was removed nor one of a file that never was is what it ought to be.
    std::fs::remove_file(&path).unwrap();
    for dir in [&path, &stranger] {
        std::fs::create_dir(dir).unwrap();
    }
    for _ in 0..2 {
        let store = Store::open(&config).unwrap();
        assert_eq!(read_block(&store, kept, 0).unwrap(), [7; BLOCK]);
    }
    assert!(path.is_dir());
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    drop(Store::open(&config).unwrap());
    assert!(!path.exists(), "it was tried again");
}
