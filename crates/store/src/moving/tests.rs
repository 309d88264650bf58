//! A volume that goes from one store to another one, and back.

use super::*;
use crate::{Caller, OpenHow, SetAttr, StoreConfig, TargetDir, TimeChange, Whereabouts, XattrHow};
use isonomia_proto::fs::{Attr, access};
use isonomia_units::{ServerId, TargetId};
use std::collections::BTreeMap;

const NOW: Timestamp = Timestamp::new(7, 0).unwrap();
const LATER: Timestamp = Timestamp::new(9, 5).unwrap();
const VOLUME: VolumeId = VolumeId(3);

fn store(dir: &tempfile::TempDir, own: u16) -> Store {
    let target =
        |number: u16| TargetDir { id: TargetId(10 * own + number), dir: dir.path().join(format!("{own}-{number}")) };
    let config = StoreConfig::new(dir.path().join(format!("{own}")), ServerId(own), vec![target(0), target(1)]);
    let store = Store::open(&config).unwrap();
    store.namespace().set_whereabouts(Arc::new(Whereabouts {
        own: ServerId(own),
        root: ServerId(1),
        ..Whereabouts::default()
    }));
    store
}

fn path(name: &str) -> Vec<u8> {
    format!("v/{name}").into_bytes()
}

fn fill(store: &Store) {
    let root = &Caller::ROOT;
    store.make_volume(VOLUME, b"v", (0o755, 5, 6), NOW).unwrap();
    store.mkdir(root, Ino::ROOT, &path("dir"), 0o700, NOW).unwrap();
    store.symlink(root, b"dir/large", Ino::ROOT, &path("link"), NOW).unwrap();
    let how = OpenHow { create: true, access: access::READ | access::WRITE, mode: 0o4755, ..OpenHow::default() };
    for (name, parts) in [
        ("empty", &[][..]),
        ("small", &[(0, 5)]),
        ("dir/large", &[(0, 300_000), (5 << 20, 1)]),
        ("dir/hole", &[(1 << 20, 4096)]),
    ] {
        let ino = store.open_file(root, Ino::ROOT, &path(name), &how, NOW).unwrap().ino;
        for (offset, len) in parts {
            let bytes: Vec<u8> = (0..*len).map(|at: usize| (at % 251) as u8 + 1).collect();
            assert_eq!(store.write(ino, *offset, &bytes[..], NOW).unwrap(), *len);
        }
        if name == "dir/hole" {
            store.set_size(ino, 3 << 20, NOW).unwrap();
        }
        let change = SetAttr {
            mode: Some(0o4755),
            atime: Some(TimeChange::At(NOW)),
            mtime: Some(TimeChange::At(LATER)),
            ..SetAttr::default()
        };
        store.set_attr(root, Ino::ROOT, &path(name), true, &change, NOW).unwrap();
        store.release(ino).unwrap();
    }
    store.link(root, Ino::ROOT, &path("small"), false, Ino::ROOT, &path("dir/same"), NOW).unwrap();
    let value = vec![b'x'; 60_000];
    for name in [b"user.one", b"user.two"] {
        store.set_xattr(root, Ino::ROOT, &path("dir"), true, name, &value, XattrHow::Either, NOW).unwrap();
    }
}

/// All that users see of the volume.
fn seen(store: &Store) -> BTreeMap<Vec<u8>, (Attr, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![b"v".to_vec()];
    while let Some(dir) = dirs.pop() {
        let at = store.get_attr(&Caller::ROOT, Ino::ROOT, &dir, true).unwrap();
        all.insert(dir.clone(), (at, store.namespace().list_xattrs(&Caller::ROOT, Ino::ROOT, &dir, true).unwrap()));
        for entry in store.namespace().read_dir(&Caller::ROOT, Ino(at.ino), 0, 1 << 20).unwrap() {
            if matches!(&entry.name[..], b"." | b"..") {
                continue;
            }
            let name = [&dir[..], b"/", &entry.name].concat();
            let mut attr = store.get_attr(&Caller::ROOT, Ino::ROOT, &name, false).unwrap();
            let bytes = match FileKind::from_mode(attr.mode) {
                Some(FileKind::Directory) => {
                    dirs.push(name);
                    continue;
                }
                Some(FileKind::Regular) => {
                    let mut bytes = vec![0; attr.size_bytes as usize];
                    assert_eq!(store.read(Ino(attr.ino), 0, &mut bytes[..]).unwrap(), bytes.len());
                    bytes
                }
                _ => store.namespace().readlink(&Caller::ROOT, Ino::ROOT, &name).unwrap(),
            };
            // What a file takes on its targets is the host's matter.
            attr.blocks = 0;
            all.insert(name, (attr, bytes));
        }
    }
    all
}

/// Every piece comes twice, and after some of them the store that gets them starts anew.
fn moved(from: &Store, mut to: Store, reopened: impl Fn(Store) -> Store) -> Store {
    from.freeze(VOLUME, || true).unwrap();
    to.namespace().skip_numbers(from.namespace().next_number()).unwrap();
    let mut cursor = PieceCursor::BEGIN;
    for number in 0.. {
        assert!(number < 1000, "no end");
        let (piece, next) = from.piece(VOLUME, &cursor).unwrap();
        for _ in 0..2 {
            to.take_piece(VOLUME, &piece, NOW).unwrap();
        }
        assert!(!to.namespace().has_volume(VOLUME).unwrap());
        if number % 3 == 2 {
            to = reopened(to);
        }
        if next == PieceCursor::End {
            break;
        }
        cursor = next;
    }
    to.finish_volume(VOLUME, &from.namespace().volume_record(VOLUME).unwrap()).unwrap();
    from.drop_volume(VOLUME).unwrap();
    to
}

fn is_clean(store: &Store) {
    assert!(!store.namespace().has_volume(VOLUME).unwrap());
    store.db.raw_records(&first(VOLUME).to_be_bytes(), &beyond(VOLUME), |ino, _| panic!("inode {ino:x}")).unwrap();
    store.db.raw_names(&first(VOLUME).to_be_bytes(), &beyond(VOLUME), |_, _, name, _| panic!("{name:?}")).unwrap();
    store.db.raw_xattrs(&first(VOLUME).to_be_bytes(), &beyond(VOLUME), |key, _| panic!("{key:?}")).unwrap();
}

#[test]
fn a_volume_is_the_same_elsewhere_and_back_again() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (store(&dir, 1), store(&dir, 2));
    fill(&one);
    let before = seen(&one);
    assert_eq!(before.len(), 8);
    let again = |number| {
        let dir = &dir;
        move |old: Store| {
            old.close().unwrap();
            drop(old);
            store(dir, number)
        }
    };
    let other = moved(&one, other, again(2));
    is_clean(&one);
    assert_eq!(seen(&other), before);
    // What is made there has a number that nothing ever had.
    let how = OpenHow { create: true, access: access::WRITE, mode: 0o600, ..OpenHow::default() };
    let new = other.open_file(&Caller::ROOT, Ino::ROOT, &path("new"), &how, NOW).unwrap().ino;
    assert!(before.values().all(|(attr, _)| attr.ino != new.0));
    other.release(new).unwrap();
    let with_new = seen(&other);
    let one = moved(&other, one, again(1));
    is_clean(&other);
    assert_eq!(seen(&one), with_new);
    let one = again(1)(one);
    assert_eq!(seen(&one), with_new);
    // Its objects are gone from the other's targets.
    for number in 0..2 {
        let objects = walkdir(&dir.path().join(format!("2-{number}/objects")));
        assert!(objects.is_empty(), "{objects:?}");
    }
}

fn walkdir(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() { found.extend(walkdir(&entry.path())) } else { found.push(entry.path()) }
    }
    found
}

#[test]
fn nothing_is_left_of_a_volume_that_did_not_come() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (store(&dir, 1), store(&dir, 2));
    fill(&one);
    one.set_xattr(&Caller::ROOT, Ino::ROOT, b"v", true, b"user.of", b"its own", XattrHow::Either, NOW).unwrap();
    one.freeze(VOLUME, || true).unwrap();
    other.namespace().skip_numbers(one.namespace().next_number()).unwrap();
    let mut cursor = PieceCursor::BEGIN;
    while cursor != PieceCursor::End {
        let (piece, next) = one.piece(VOLUME, &cursor).unwrap();
        other.take_piece(VOLUME, &piece, NOW).unwrap();
        cursor = next;
    }
    other.drop_volume(VOLUME).unwrap();
    is_clean(&other);
    one.drop_volume(VOLUME).unwrap();
    is_clean(&one);
}

#[test]
fn a_volume_with_open_files_does_not_rest() {
    let dir = tempfile::tempdir().unwrap();
    let one = store(&dir, 1);
    fill(&one);
    let how = OpenHow { access: access::READ, ..OpenHow::default() };
    let ino = one.open_file(&Caller::ROOT, Ino::ROOT, &path("small"), &how, NOW).unwrap().ino;
    assert!(matches!(one.freeze(VOLUME, || true), Err(StoreError::Busy)));
    one.release(ino).unwrap();
    one.freeze(VOLUME, || true).unwrap();
    let passage = one.namespace().passage();
    assert!(matches!(one.freeze(VOLUME, || false), Err(StoreError::Busy)));
    drop(passage);
    one.freeze(VOLUME, || false).unwrap();
}

#[test]
fn no_cut_begins_in_a_closed_volume() {
    let dir = tempfile::tempdir().unwrap();
    let one = store(&dir, 1);
    fill(&one);
    let how = OpenHow { create: true, access: access::WRITE, mode: 0o600, ..OpenHow::default() };
    let layout =
        isonomia_proto::fs::Layout { stripe_bytes: 4096, targets: vec![TargetId(10), TargetId(20)], grows: true };
    let ino = one.open_spread(&Caller::ROOT, Ino::ROOT, &path("wide"), &how, layout.into(), NOW).unwrap().ino;
    one.release(ino).unwrap();
    // Of a file that came nothing is known of those who wrote it.
    let other = moved(&one, store(&dir, 2), |store| store);
    for _ in 0..2 {
        other.note_writer(ino, NOW).unwrap();
        let cut = other.cut_loose(9).unwrap().remove(0);
        assert_eq!(other.finish_cut(ino, cut.number, cut.number, NOW).unwrap(), None);
        other.namespace.inodes.remove(ino.0);
    }
    let one = moved(&other, store(&dir, 3), |store| store);
    let known = one.namespace().whereabouts().unwrap();
    one.freeze(VOLUME, || true).unwrap();
    one.namespace()
        .set_whereabouts(Arc::new(Whereabouts { closed: [(VOLUME, ServerId(2))].into(), ..(*known).clone() }));
    one.namespace().note_loose(ino).unwrap();
    assert_eq!(one.cut_loose(9).unwrap(), []);
    assert!(matches!(one.freeze(VOLUME, || true), Err(StoreError::Busy)), "it has to be cut first");
    one.namespace().set_whereabouts(known);
    assert_eq!(one.cut_loose(9).unwrap().len(), 1);
    assert!(matches!(one.freeze(VOLUME, || true), Err(StoreError::Busy)), "it is being cut");
}

#[test]
fn what_is_not_of_the_volume_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let one = store(&dir, 1);
    let stranger = Ino::new(VolumeId(4), 7).0;
    for piece in [
        Piece { inodes: vec![(stranger, Vec::new())], ..Piece::default() },
        Piece { names: vec![(first(VOLUME) + 1, b"x".to_vec(), stranger, 1)], ..Piece::default() },
        Piece { xattrs: vec![(b"short".to_vec(), Vec::new())], ..Piece::default() },
        Piece { bytes: Some(FileBytes { ino: stranger, offset: 0, bytes: vec![1], record: None }), ..Piece::default() },
    ] {
        assert!(matches!(one.take_piece(VOLUME, &piece, NOW), Err(StoreError::Invalid)), "{piece:?}");
    }
    let damaged = Piece { inodes: vec![(first(VOLUME) + 7, vec![1, 2, 3])], ..Piece::default() };
    assert!(matches!(one.take_piece(VOLUME, &damaged, NOW), Err(StoreError::Damaged(_))));
}
