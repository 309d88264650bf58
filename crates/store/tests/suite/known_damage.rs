//! Damage that was met stays an error, whatever is written elsewhere in the file and however the server stops.

use crate::damage::{at_rest, cut, flip, is_damage, objects, read_block, scrub};
use crate::detached::place;
use crate::scratch::{at, config, scratch_dir};
use isonomia_proto::space::SpaceChange;
use isonomia_store::{Check, Finding, Store, StoreConfig};
use isonomia_units::Ino;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK: usize = 4096;

/// As after a power cut of the host.
fn at_start(config: &StoreConfig, host_start: &str) -> StoreConfig {
    StoreConfig { host_start: Some(host_start.to_owned()), ..config.clone() }
}

fn spoil(object: &Path, block: usize, byte: u8) {
    let file = std::fs::File::options().write(true).open(object).unwrap();
    file.write_all_at(&[byte; BLOCK], (block * BLOCK) as u64).unwrap();
}

/// A store with a file of twelve blocks of sevens, the second of which is found to have other bytes, and that was then written
/// elsewhere.
fn found(config: &StoreConfig, dir: &Path, byte: u8) -> (Ino, Store) {
    let ino = at_rest(config, &[7; 12 * BLOCK]);
    spoil(&objects(dir, 0)[0], 1, byte);
    let store = Store::open(config).unwrap();
    assert!(is_damage(read_block(&store, ino, 1)));
    store.write(ino, 9 * BLOCK as u64, &[8; BLOCK], at(3)).unwrap();
    (ino, store)
}

fn settle(store: &Store) {
    for _ in 0..2 {
        store.flush_dirty().unwrap();
        store.settle().unwrap();
    }
    assert_eq!(store.objects().checksum_status().unsettled_files, 0);
}

#[test]
fn a_damaged_block_that_was_met_is_an_error_after_any_stop() {
    type Meet<'m> = &'m dyn Fn(&StoreConfig, Ino, &Path) -> Store;
    let write = |store: &Store, ino: Ino| store.write(ino, 100, &[8; 50], at(3)).unwrap();
    let meet: [Meet<'_>; 4] = [
        &|config, ino, object| {
            flip(object, BLOCK + 77);
            let store = Store::open(config).unwrap();
            assert!(is_damage(store.read(ino, 0, &mut [0; 12 * BLOCK])));
            write(&store, ino);
            store
        },
        &|config, ino, object| {
            flip(object, BLOCK + 77);
            let store = Store::open(config).unwrap();
            assert_eq!((0..config.targets.len()).map(|i| scrub(&store, i as u16).0.damaged).sum::<u64>(), 1);
            write(&store, ino);
            store
        },
        // It is known from an earlier run.
        &|config, ino, object| {
            flip(object, BLOCK + 77);
            let store = Store::open(config).unwrap();
            assert!(is_damage(store.read(ino, 0, &mut [0; 12 * BLOCK])));
            store.close().unwrap();
            drop(store);
            let store = Store::open(config).unwrap();
            write(&store, ino);
            store
        },
        // It is met while the file is being written.
        &|config, ino, object| {
            let store = Store::open(config).unwrap();
            write(&store, ino);
            flip(object, BLOCK + 77);
            assert!(is_damage(store.read(ino, 0, &mut [0; 12 * BLOCK])));
            store
        },
    ];
    for (case, meet) in meet.iter().enumerate() {
        for (targets, host_start) in [(1, "the same"), (3, "another")] {
            let dir = scratch_dir();
            let config = at_start(&config(dir.path(), targets), "the same");
            let ino = at_rest(&config, &[7; 12 * BLOCK]);
            let damaged = if targets == 1 { 1 } else { 3 };
            drop(meet(&config, ino, &objects(dir.path(), 0)[0]));
            let config = at_start(&config, host_start);
            for round in 0..3 {
                let store = Store::open(&config).unwrap();
                for block in (0..12).rev() {
                    let read = read_block(&store, ino, block);
                    match block {
                        0 => assert_eq!(read.unwrap()[100..150], [8; 50]),
                        _ if block == damaged => assert!(is_damage(read), "{case} {targets} {round}"),
                        _ => assert_eq!(read.unwrap(), [7; BLOCK]),
                    }
                }
                assert!(is_damage(store.write(ino, (damaged * BLOCK) as u64, b"part", at(4))));
                match round {
                    0 => {}
                    1 => settle(&store),
                    // At rest again, and once more written elsewhere.
                    _ => drop(store.write(ino, 100, &[8; 50], at(5)).unwrap()),
                }
            }
            let store = Store::open(&config).unwrap();
            settle(&store);
            assert!(is_damage(read_block(&store, ino, damaged)), "{case} {targets}, looked through");
            store.write(ino, (damaged * BLOCK) as u64, &[9; BLOCK], at(6)).unwrap();
            drop(store);
            assert_eq!(read_block(&Store::open(&config).unwrap(), ino, damaged).unwrap(), [9; BLOCK]);
        }
    }
}

#[test]
fn a_detached_object_is_compared_with_what_was_met_as_well() {
    let dir = scratch_dir();
    let config = at_start(&config(dir.path(), 2), "the same");
    let (store, mut bytes) = (Store::open(&config).unwrap(), [0; BLOCK]);
    store.objects().write_object(place(0), 0, &[7; 4 * BLOCK]).unwrap();
    store.close().unwrap();
    drop(store);
    let object = objects(dir.path(), place(0).object.index as usize).remove(0);
    flip(&object, BLOCK + 77);
    cut(&object, 2 * BLOCK);
    let store = Store::open(&config).unwrap();
    for block in 1..4 {
        assert!(is_damage(store.objects().read_object(place(0), (block * BLOCK) as u64, &mut bytes)));
    }
    store.objects().write_object(place(0), 0, &[8; BLOCK]).unwrap();
    drop(store);
    for host_start in ["another", "yet another"] {
        let store = Store::open(&at_start(&config, host_start)).unwrap();
        assert_eq!(store.objects().stat_object(place(0)).unwrap().size_bytes, 4 * BLOCK as u64);
        for block in 1..4 {
            assert!(is_damage(store.objects().read_object(place(0), (block * BLOCK) as u64, &mut bytes)), "{block}");
        }
    }
    let store = Store::open(&config).unwrap();
    settle(&store);
    assert!(is_damage(store.objects().read_object(place(0), 2 * BLOCK as u64, &mut bytes)));
    store.objects().remove_detached(&[place(0)], 0, 100).unwrap();
    store.objects().write_object(place(0), BLOCK as u64, &[7; BLOCK]).unwrap();
    drop(store);
    assert_eq!(Store::open(&config).unwrap().objects().read_object(place(0), 0, &mut bytes).unwrap(), BLOCK);
}

#[test]
fn what_overwrites_damage_is_right_after_a_kill_whatever_it_is() {
    type Heal<'h> = &'h dyn Fn(&Store, Ino);
    let heal: [(Heal<'_>, u8); 5] = [
        (&|store, ino| assert_eq!(store.write(ino, BLOCK as u64, &[9; BLOCK], at(4)).unwrap(), BLOCK), 9),
        // Just what was found there.
        (&|store, ino| assert_eq!(store.write(ino, BLOCK as u64, &[0; BLOCK], at(4)).unwrap(), BLOCK), 0),
        (
            &|store, ino| {
                assert_eq!(store.write(ino, BLOCK as u64, &[9; BLOCK], at(4)).unwrap(), BLOCK);
                assert_eq!(store.write(ino, BLOCK as u64, &[0; BLOCK], at(4)).unwrap(), BLOCK);
            },
            0,
        ),
        (
            &|store, ino| {
                let (start, len) = (BLOCK as u64, BLOCK as u64);
                store.change_space(ino, start, len, SpaceChange::PunchHole, at(4)).unwrap();
            },
            0,
        ),
        (
            &|store, ino| {
                store.set_size(ino, 100, at(4)).unwrap();
                store.set_size(ino, 12 * BLOCK as u64, at(4)).unwrap();
            },
            0,
        ),
    ];
    for (case, (heal, right)) in heal.iter().enumerate() {
        for host_start in ["the same", "another"] {
            let dir = scratch_dir();
            let config = at_start(&config(dir.path(), 1), "the same");
            let (ino, store) = found(&config, dir.path(), 0);
            heal(&store, ino);
            drop(store);
            let config = at_start(&config, host_start);
            for round in 0..2 {
                let store = Store::open(&config).unwrap();
                assert_eq!(read_block(&store, ino, 1).unwrap(), [*right; BLOCK], "{case} {host_start} {round}");
                settle(&store);
                assert_eq!(store.objects().checksum_status().damaged_total, 0, "{case} {host_start} {round}");
            }
        }
    }
}

#[test]
fn a_power_cut_that_brings_damage_back_does_not_make_it_good() {
    let dir = scratch_dir();
    let config = at_start(&config(dir.path(), 1), "the same");
    let (ino, store) = found(&config, dir.path(), 5);
    store.write(ino, BLOCK as u64, &[9; BLOCK], at(4)).unwrap();
    drop(store);
    // The write had not come to the device.
    spoil(&objects(dir.path(), 0)[0], 1, 5);
    let store = Store::open(&at_start(&config, "another")).unwrap();
    assert!(is_damage(read_block(&store, ino, 1)));
    store.write(ino, BLOCK as u64, &[9; BLOCK], at(5)).unwrap();
    settle(&store);
    // Now it has, and is nothing to be found any more.
    store.write(ino, BLOCK as u64, &[5; BLOCK], at(6)).unwrap();
    drop(store);
    assert_eq!(read_block(&Store::open(&config).unwrap(), ino, 1).unwrap(), [5; BLOCK]);
}

#[test]
fn what_was_known_to_be_lost_is_no_hole_after_a_power_cut() {
    for remove in [false, true] {
        let dir = scratch_dir();
        let config = at_start(&config(dir.path(), 2), "the same");
        let ino = at_rest(&config, &[7; 12 * BLOCK]);
        let object = &objects(dir.path(), 0)[0];
        if remove {
            std::fs::remove_file(object).unwrap();
        } else {
            cut(object, 2 * BLOCK);
        }
        let store = Store::open(&config).unwrap();
        assert!(scrub(&store, 0).0.damaged >= 4);
        store.write(ino, BLOCK as u64, &[8; BLOCK], at(3)).unwrap();
        drop(store);
        for round in 0..3 {
            let store = Store::open(&at_start(&config, &format!("start {round}"))).unwrap();
            if round == 1 {
                settle(&store);
            }
            for block in [4, 6, 8, 10] {
                assert!(is_damage(read_block(&store, ino, block)), "{remove} {round} {block}");
            }
            assert_eq!(read_block(&store, ino, 1).unwrap(), [8; BLOCK]);
            assert_eq!(read_block(&store, ino, 11).unwrap(), [7; BLOCK]);
        }
    }
}

fn check(config: &StoreConfig, repair: bool) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut finding = |finding: &Finding| found.push(finding.kind);
    Check { repair, data: true, finding: &mut finding, progress: &mut |_, _| {} }.run(config).unwrap();
    found
}

#[test]
fn a_check_tells_of_known_damage_and_makes_damage_known() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let (ino, store) = found(&config, dir.path(), 5);
    drop(store);
    // It was being written, and all else would be believed.
    assert_eq!(check(&config, false), ["block"]);
    let store = Store::open(&config).unwrap();
    settle(&store);
    store.close().unwrap();
    drop(store);
    // Made anew, the checksums say the same of it.
    std::fs::remove_file(objects(dir.path(), 0)[0].with_added_extension("sum")).unwrap();
    flip(&objects(dir.path(), 0)[0], 3 * BLOCK);
    assert_eq!(check(&config, true), ["checksums"]);
    let store = Store::open(&config).unwrap();
    assert!(is_damage(read_block(&store, ino, 1)));
    settle(&store);
    assert!(is_damage(read_block(&store, ino, 1)));
    assert!(read_block(&store, ino, 3).is_ok(), "nobody had met it");
    store.close().unwrap();
    drop(store);
    // What a repair meets is known from then on.
    flip(&objects(dir.path(), 0)[0], 4 * BLOCK);
    assert_eq!(check(&config, true), ["block", "block"]);
    let store = Store::open(&config).unwrap();
    store.write(ino, 0, &[6; BLOCK], at(4)).unwrap();
    drop(store);
    let store = Store::open(&config).unwrap();
    for block in [1, 4] {
        assert!(is_damage(read_block(&store, ino, block)), "{block}");
    }
}

/// A file of nine blocks of which the last six are known to be lost, suspect since a power cut.
fn without_its_end(config: &StoreConfig, dir: &Path) -> Ino {
    let ino = at_rest(config, &[7; 9 * BLOCK]);
    cut(&objects(dir, 0)[0], 3 * BLOCK);
    let store = Store::open(config).unwrap();
    (3..9).for_each(|block| assert!(is_damage(read_block(&store, ino, block))));
    store.write(ino, 0, &[8; BLOCK], at(3)).unwrap();
    ino
}

#[test]
fn what_is_known_to_be_lost_goes_with_a_cut_and_does_not_come_back_with_a_hole() {
    for (is_read, shorter) in [(false, 5), (true, 5), (false, 2)] {
        let dir = scratch_dir();
        let ino = without_its_end(&at_start(&config(dir.path(), 1), "the same"), dir.path());
        let config = at_start(&config(dir.path(), 1), "another");
        let store = Store::open(&config).unwrap();
        if is_read {
            (3..9).for_each(|block| assert!(is_damage(read_block(&store, ino, block))));
        }
        store.set_size(ino, (shorter * BLOCK) as u64, at(4)).unwrap();
        store.set_size(ino, 9 * BLOCK as u64, at(5)).unwrap();
        let look = |store: &Store| {
            for block in 1..9 {
                let read = read_block(store, ino, block);
                match block {
                    _ if block >= shorter => assert_eq!(read.unwrap(), [0; BLOCK], "{block}"),
                    1 | 2 => assert_eq!(read.unwrap(), [7; BLOCK]),
                    _ => assert!(is_damage(read), "{block}"),
                }
            }
        };
        look(&store);
        settle(&store);
        look(&store);
        drop(store);
        let store = Store::open(&config).unwrap();
        look(&store);
        settle(&store);
        look(&store);
    }
}

#[test]
fn a_hole_that_is_punched_where_all_is_lost_is_one() {
    for change in [SpaceChange::PunchHole, SpaceChange::ZeroRange { keep_size: true }] {
        let dir = scratch_dir();
        let ino = without_its_end(&at_start(&config(dir.path(), 1), "the same"), dir.path());
        let config = at_start(&config(dir.path(), 1), "another");
        let store = Store::open(&config).unwrap();
        match store.change_space(ino, 4 * BLOCK as u64, 3 * BLOCK as u64, change, at(4)) {
            Ok(()) => {}
            Err(error) => return isonomia_testbed::skip(&format!("this file system punches no holes: {error}")),
        }
        for _ in 0..2 {
            for block in 3..9 {
                let read = read_block(&store, ino, block);
                match block {
                    4..7 => assert_eq!(read.unwrap(), [0; BLOCK], "{block}"),
                    _ => assert!(is_damage(read), "{block}"),
                }
            }
            settle(&store);
        }
    }
}
