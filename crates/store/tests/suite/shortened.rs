//! Objects that are cut while no server uses them, and those that a server cuts itself before it is killed.

use crate::damage::{cut, is_damage, objects, read_block};
use crate::detached::place;
use crate::scratch::{ROOT, at, config, content, open, scratch_dir};
use isonomia_store::{Store, StoreConfig};
use isonomia_units::Ino;

const BLOCK: usize = 4096;
const BLOCKS: usize = 40;

fn at_start(config: &StoreConfig, host_start: &str) -> StoreConfig {
    StoreConfig { host_start: Some(host_start.to_owned()), ..config.clone() }
}

/// A file of sevens that came to rest, and a store that has begun to write it again.
fn written_again(config: &StoreConfig) -> (Ino, Store) {
    let store = Store::open(config).unwrap();
    let ino = open(&store, "file").ino;
    store.write(ino, 0, &[7; BLOCKS * BLOCK], at(2)).unwrap();
    store.release(ino).unwrap();
    store.close().unwrap();
    drop(store);
    let store = Store::open(config).unwrap();
    store.write(ino, 0, &[8; BLOCK], at(3)).unwrap();
    (ino, store)
}

fn size(store: &Store, ino: Ino) -> usize {
    store.get_attr(&ROOT, ino, b"", true).unwrap().size_bytes as usize
}

#[test]
fn what_is_cut_off_after_a_kill_is_lost_and_not_zeros() {
    for targets in [1, 2] {
        let dir = scratch_dir();
        let config = config(dir.path(), targets);
        let (ino, store) = written_again(&config);
        drop(store);
        cut(&objects(dir.path(), 0)[0], 3 * BLOCK);
        let count = usize::from(targets);
        let is_lost = |block: usize| block.is_multiple_of(count) && block / count >= 3;
        for round in 0..2 {
            let store = Store::open(&config).unwrap();
            assert_eq!(size(&store, ino), BLOCKS * BLOCK);
            for block in 0..BLOCKS {
                match block {
                    0 => assert_eq!(read_block(&store, ino, 0).unwrap(), [8; BLOCK]),
                    _ if is_lost(block) => assert!(is_damage(read_block(&store, ino, block)), "{block}, {round}"),
                    _ => assert_eq!(read_block(&store, ino, block).unwrap(), [7; BLOCK], "{block}, {round}"),
                }
            }
        }
        let store = Store::open(&config).unwrap();
        // What is written behind it makes zeros of none of it.
        store.write(ino, (BLOCKS * BLOCK) as u64, &[9; BLOCK], at(4)).unwrap();
        assert!(is_damage(read_block(&store, ino, 3 * count)));
        store.write(ino, (3 * count * BLOCK) as u64, &[9; BLOCK], at(6)).unwrap();
        assert_eq!(read_block(&store, ino, 3 * count).unwrap(), [9; BLOCK]);
    }
}

#[test]
fn what_is_cut_off_a_detached_object_after_a_kill_is_lost() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let store = Store::open(&config).unwrap();
    store.objects().write_object(place(0), 0, &[7; BLOCKS * BLOCK]).unwrap();
    store.close().unwrap();
    drop(store);
    let store = Store::open(&config).unwrap();
    store.objects().write_object(place(0), 0, &[8; BLOCK]).unwrap();
    drop(store);
    cut(&objects(dir.path(), place(0).object.index as usize)[0], 3 * BLOCK);
    for _ in 0..2 {
        let store = Store::open(&config).unwrap();
        assert_eq!(store.objects().stat_object(place(0)).unwrap().size_bytes, (BLOCKS * BLOCK) as u64);
        let mut bytes = [0; BLOCK];
        for (block, fill) in [8, 7, 7].into_iter().enumerate() {
            assert_eq!(store.objects().read_object(place(0), (block * BLOCK) as u64, &mut bytes).unwrap(), BLOCK);
            assert_eq!(bytes, [fill; BLOCK]);
        }
        assert!(is_damage(store.objects().read_object(place(0), 3 * BLOCK as u64, &mut bytes)));
    }
}

#[test]
fn what_the_server_cut_off_itself_is_not_lost() {
    // Also to where an object has nothing left, which its sidecar need not say.
    for (targets, left) in [(1, 5), (2, 5), (2, 1), (3, 2)] {
        let dir = scratch_dir();
        let config = config(dir.path(), targets);
        let (ino, store) = written_again(&config);
        store.set_size(ino, (left * BLOCK) as u64, at(4)).unwrap();
        drop(store);
        for _ in 0..2 {
            let store = Store::open(&config).unwrap();
            assert_eq!(size(&store, ino), left * BLOCK);
            let expected = [vec![8; BLOCK], vec![7; (left - 1) * BLOCK]].concat();
            assert!(content(&store, ino) == expected);
            store.set_size(ino, (BLOCKS * BLOCK) as u64, at(5)).unwrap();
            assert!(content(&store, ino)[left * BLOCK..].iter().all(|byte| *byte == 0));
            store.set_size(ino, (left * BLOCK) as u64, at(6)).unwrap();
            assert_eq!(store.objects().checksum_status().damaged_total, 0);
        }
    }
}

#[test]
fn what_a_power_cut_took_is_not_lost_at_the_next_kill_either() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let (ino, store) = written_again(&at_start(&config, "first"));
    drop(store);
    cut(&objects(dir.path(), 0)[0], 3 * BLOCK);
    for round in 0..3 {
        let store = Store::open(&at_start(&config, "second")).unwrap();
        let bytes = content(&store, ino);
        assert_eq!(bytes.len(), BLOCKS * BLOCK);
        assert!(bytes[3 * BLOCK..].iter().all(|byte| *byte == 0), "{round}");
        if round == 1 {
            (0..2).for_each(|_| store.settle().unwrap());
        }
        assert_eq!(store.objects().checksum_status().damaged_total, 0);
    }
}

#[test]
fn what_is_cut_off_a_file_that_has_lost_it_already_is_not_missing_any_more() {
    for left in [1, 3, 10] {
        let dir = scratch_dir();
        let config = config(dir.path(), 1);
        let (ino, store) = written_again(&config);
        drop(store);
        cut(&objects(dir.path(), 0)[0], 3 * BLOCK);
        let store = Store::open(&config).unwrap();
        assert!(is_damage(read_block(&store, ino, 3)));
        store.set_size(ino, (left * BLOCK) as u64, at(4)).unwrap();
        let check = |store: &Store| {
            store.set_size(ino, (BLOCKS * BLOCK) as u64, at(5)).unwrap();
            for block in 0..BLOCKS {
                match block {
                    _ if block >= left => assert_eq!(read_block(store, ino, block).unwrap(), [0; BLOCK], "{block}"),
                    _ if block >= 3 => assert!(is_damage(read_block(store, ino, block)), "{block}"),
                    _ => assert!(read_block(store, ino, block).is_ok(), "{block}"),
                }
            }
            store.set_size(ino, (left * BLOCK) as u64, at(6)).unwrap();
        };
        check(&store);
        drop(store);
        for _ in 0..2 {
            let store = Store::open(&config).unwrap();
            assert_eq!(size(&store, ino), left * BLOCK, "{left}");
            check(&store);
        }
    }
}

#[test]
fn a_file_that_lost_its_last_block_is_no_longer_than_it_was() {
    const SIZE: usize = 10_000;
    for targets in [1, 2] {
        let dir = scratch_dir();
        let config = config(dir.path(), targets);
        let store = Store::open(&config).unwrap();
        let ino = open(&store, "file").ino;
        store.write(ino, 0, &[7; SIZE], at(2)).unwrap();
        store.release(ino).unwrap();
        store.close().unwrap();
        drop(store);
        let store = Store::open(&config).unwrap();
        store.write(ino, 0, &[8; 10], at(3)).unwrap();
        drop(store);
        cut(&objects(dir.path(), 0)[0], BLOCK);
        for _ in 0..2 {
            let store = Store::open(&config).unwrap();
            assert_eq!(size(&store, ino), SIZE);
            assert!(is_damage(read_block(&store, ino, 2)));
        }
    }
}
