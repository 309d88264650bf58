//! What spread files take: told by writers until it is counted.

use crate::scratch::{ROOT, at, config, scratch_dir};
use isonomia_proto::fs::{Layout, access};
use isonomia_proto::space::SpaceChange;
use isonomia_store::{OpenHow, SpreadObjects, Store};
use isonomia_units::{Ino, TargetId};
use std::sync::Arc;

const GIB: u64 = 1 << 30;
/// What one GiB takes without holes.
const WHOLE: u64 = GIB / 512;

fn create(store: &Store, name: &str) -> Ino {
    let layout = Layout { stripe_bytes: 4096, targets: vec![TargetId(0), TargetId(1)], grows: false };
    let how = OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o644, ..OpenHow::default() };
    store.open_spread(&ROOT, Ino::ROOT, name.as_bytes(), &how, Arc::new(layout), at(1)).unwrap().ino
}

fn blocks(store: &Store, ino: Ino) -> u64 {
    store.get_attr(&ROOT, ino, b"", true).unwrap().blocks
}

/// Asks what is to be counted until there is something, for some rounds.
fn asked(store: &Store) -> Option<(u64, Vec<SpreadObjects>)> {
    (0..4).map(|_| store.files_to_count(9)).find(|(_, files)| !files.is_empty())
}

/// Counts what is to be counted, as the servers of the objects do; what that was.
fn count(store: &Store) -> Vec<u64> {
    let (round, files) = asked(store).unwrap();
    let blocks_of = |objects: &SpreadObjects| {
        let found = objects.places().map(|place| store.objects().object_blocks(place).unwrap()).sum();
        ((objects.number, objects.generation), found)
    };
    let counted: Vec<_> = files.iter().map(blocks_of).collect();
    store.keep_blocks(round, &counted).unwrap();
    counted.into_iter().map(|(_, blocks)| blocks).collect()
}

#[test]
fn a_spread_file_takes_what_was_written_and_not_its_size() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let mut store = Store::open(&config).unwrap();
    let ino = create(&store, "file");
    assert_eq!(blocks(&store, ino), 0);
    assert_eq!(store.set_size(ino, GIB, at(2)).unwrap().blocks, 1, "one without any would be taken for one hole");
    assert_eq!(asked(&store), None, "nothing was written");
    // A writer's word counts at once, and what is written twice, twice.
    let places: Vec<_> = store.namespace().spread_of(ino).unwrap().objects.places().collect();
    for _ in 0..2 {
        store.objects().write_object(places[1], 8 << 20, &[7; 8192][..]).unwrap();
        store.tell_size(ino, 100 << 20, 0, 16, at(3)).unwrap();
    }
    assert_eq!(blocks(&store, ino), 32);
    assert_eq!(count(&store), [16]);
    assert_eq!(blocks(&store, ino), 16);
    assert_eq!(asked(&store), None, "it is counted");
    // Room that is made behind the end, and a hole.
    store.objects().change_object_space(places[0], GIB, 1 << 20, SpaceChange::Allocate { keep_size: true }).unwrap();
    store.tell_size(ino, 0, 0, 2048, at(4)).unwrap();
    assert_eq!((blocks(&store, ino), count(&store)), (2064, vec![2064]));
    store.objects().change_object_space(places[1], 8 << 20, 4096, SpaceChange::PunchHole).unwrap();
    store.tell_size(ino, 0, 0, 0, at(5)).unwrap();
    assert_eq!((blocks(&store, ino), count(&store), blocks(&store, ino)), (2064, vec![2056], 2056));
    // Room at the end, which its writer does not tell of.
    assert_eq!(store.reserve_append(ino, 100, at(6)).unwrap().offset, GIB);
    assert_eq!(blocks(&store, ino), 2064);
    assert_eq!(count(&store), [2056]);
    store.close().unwrap();
    drop(store);
    store = Store::open(&config).unwrap();
    assert_eq!((blocks(&store, ino), asked(&store)), (2056, None), "the record has it");
}

#[test]
fn what_has_changed_since_it_was_asked_for_is_not_believed() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 2)).unwrap();
    let ino = create(&store, "file");
    let objects = store.namespace().spread_of(ino).unwrap().objects;
    let id = (objects.number, objects.generation);
    store.set_size(ino, GIB, at(2)).unwrap();
    store.tell_size(ino, 0, 0, 8, at(3)).unwrap();
    assert_eq!(store.files_to_count(9).1, [], "a round must go by without a change");
    let (round, files) = store.files_to_count(9);
    assert_eq!(files, [objects]);
    store.tell_size(ino, 0, 0, 8, at(4)).unwrap();
    store.keep_blocks(round, &[(id, 8)]).unwrap();
    assert_eq!(blocks(&store, ino), 16);
    let (round, _) = asked(&store).unwrap();
    store.keep_blocks(round - 1, &[(id, 88)]).unwrap();
    store.keep_blocks(round, &[((id.0, id.1 ^ 1), 88), ((id.0 + 1, id.1), 88)]).unwrap();
    assert_eq!(blocks(&store, ino), 16);
    store.keep_blocks(round, &[(id, 12)]).unwrap();
    assert_eq!(blocks(&store, ino), 12);
    // Nor is anybody asked for what is gone.
    store.tell_size(ino, 0, 0, 8, at(5)).unwrap();
    store.unlink(&ROOT, Ino::ROOT, b"file", at(6)).unwrap();
    store.release(ino).unwrap();
    assert_eq!(asked(&store), None);
}

#[test]
fn a_cut_takes_blocks_away_and_a_kill_the_count() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let mut store = Store::open(&config).unwrap();
    let (cut, killed) = (create(&store, "cut"), create(&store, "killed"));
    for ino in [cut, killed] {
        store.set_size(ino, GIB, at(2)).unwrap();
        store.tell_size(ino, 0, 0, 800, at(3)).unwrap();
    }
    for (size, left) in [(10_000, 20), (0, 0)] {
        let begun = store.begin_cut(cut, size, at(4)).unwrap();
        assert_eq!(blocks(&store, cut), left);
        store.finish_cut(cut, begun.number, begun.number, at(5)).unwrap();
        assert_eq!(blocks(&store, cut), left);
    }
    store.set_size(cut, GIB, at(6)).unwrap();
    assert_eq!((blocks(&store, cut), blocks(&store, killed)), (1, 800));
    assert_eq!(count(&store), [0, 0], "nothing was written in fact");
    assert_eq!((blocks(&store, cut), blocks(&store, killed)), (1, 1));
    store.tell_size(killed, 0, 0, 8, at(7)).unwrap();
    drop(store);
    store = Store::open(&config).unwrap();
    assert_eq!((blocks(&store, cut), blocks(&store, killed)), (1, WHOLE), "a writer's word is no count");
    assert_eq!(count(&store), [0]);
    assert_eq!(blocks(&store, killed), 1);
}
