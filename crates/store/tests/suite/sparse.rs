//! Holes, the space that files take, and files without a name, next to a local file where that knows better.

use crate::scratch::{ALICE, ROOT, at, config, content, open, scratch_dir};
use isonomia_proto::fs::access;
use isonomia_proto::space::{Extent, SpaceChange};
use isonomia_store::{OpenHow, SetAttr, Store, StoreError};
use isonomia_units::Ino;
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Of the files that random changes are made to.
const LEN_MAX: u64 = 24 * 4 * KIB;

fn blocks(store: &Store, ino: Ino) -> u64 {
    store.get_attr(&ROOT, ino, b"", true).unwrap().blocks
}

#[test]
fn a_hole_takes_no_space_and_says_that_it_is_one() {
    for targets in [1, 3] {
        let dir = scratch_dir();
        let config = config(dir.path(), targets);
        let mut store = Store::open(&config).unwrap();
        let file = open(&store, "f").ino;
        store.set_size(file, 1 << 30, at(2)).unwrap();
        assert_eq!(blocks(&store, file), 0);
        assert!(matches!(store.seek(file, 0, Extent::Data), Err(StoreError::NoDevice)));
        assert_eq!(store.seek(file, 5, Extent::Hole).unwrap(), 5);
        store.write(file, 512 * MIB, &[7; 8192], at(3)).unwrap();
        assert_eq!(blocks(&store, file), 16);
        store.write(file, 600 * MIB, &[7; 4096], at(3)).unwrap();
        for _ in 0..2 {
            assert_eq!(blocks(&store, file), 24);
            assert_eq!(store.seek(file, 0, Extent::Data).unwrap(), 512 * MIB);
            assert_eq!(store.seek(file, 512 * MIB + 1, Extent::Data).unwrap(), 512 * MIB + 1);
            assert_eq!(store.seek(file, 512 * MIB, Extent::Hole).unwrap(), 512 * MIB + 8192);
            assert_eq!(store.seek(file, 512 * MIB + 8192, Extent::Data).unwrap(), 600 * MIB);
            assert!(matches!(store.seek(file, 600 * MIB + 4096, Extent::Data), Err(StoreError::NoDevice)));
            assert!(matches!(store.seek(file, 1 << 30, Extent::Hole), Err(StoreError::NoDevice)));
            // The same after a kill, and after a clean stop.
            drop(store);
            store = Store::open(&config).unwrap();
        }
        store.change_space(file, 512 * MIB, 8192, SpaceChange::PunchHole, at(4)).unwrap();
        assert_eq!(blocks(&store, file), 8);
        store.close().unwrap();
        drop(store);
        let store = Store::open(&config).unwrap();
        assert_eq!(blocks(&store, file), 8);
        store.set_size(file, 0, at(5)).unwrap();
        assert_eq!(blocks(&store, file), 0);
    }
}

#[test]
fn a_hole_in_next_to_nothing_takes_next_to_nothing() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let mut store = Store::open(&config).unwrap();
    let file = open(&store, "f").ino;
    let size = 1 << 43;
    store.write(file, 0, &[7; 8192], at(2)).unwrap();
    store.write(file, size - 8192, &[7; 8192], at(2)).unwrap();
    for _ in 0..2 {
        // A step for each block that there could be would take minutes, and hundreds of megabytes.
        store.change_space(file, 4096, size - 8192, SpaceChange::PunchHole, at(3)).unwrap();
        assert!(store.objects().checksum_status().memory_bytes < 1 << 20);
        assert_eq!(store.seek(file, 4096, Extent::Data).unwrap(), size - 4096);
        let mut edges = [1; 8192];
        assert_eq!(store.read(file, 0, &mut edges).unwrap(), 8192);
        assert_eq!((edges[..4096] == [7; 4096], edges[4096..] == [0; 4096]), (true, true));
        assert_eq!(store.read(file, size - 8192, &mut edges).unwrap(), 8192);
        assert_eq!((edges[..4096] == [0; 4096], edges[4096..] == [7; 4096]), (true, true));
        store.close().unwrap();
        drop(store);
        store = Store::open(&config).unwrap();
    }
}

#[test]
fn space_is_set_aside_within_the_file_and_behind_it() {
    for targets in [1, 3] {
        let dir = scratch_dir();
        let store = Store::open(&config(dir.path(), targets)).unwrap();
        let file = open(&store, "f").ino;
        let change = |offset, len, how| store.change_space(file, offset, len, how, at(2));
        let size = || store.get_attr(&ROOT, file, b"", true).unwrap().size_bytes;
        change(0, 64 * KIB, SpaceChange::Allocate { keep_size: true }).unwrap();
        assert_eq!((size(), blocks(&store, file)), (0, 128));
        change(0, 32 * KIB + 1, SpaceChange::Allocate { keep_size: false }).unwrap();
        assert_eq!((size(), blocks(&store, file)), (32 * KIB + 1, 128));
        assert_eq!(content(&store, file), vec![0; 32 * 1024 + 1]);
        store.write(file, 0, &[7; 32 << 10], at(3)).unwrap();
        change(4096, 8192, SpaceChange::ZeroRange { keep_size: false }).unwrap();
        change(100 * KIB, 10, SpaceChange::ZeroRange { keep_size: true }).unwrap();
        let mut expected = vec![7; 32 << 10];
        expected[4096..4096 + 8192].fill(0);
        expected.push(0);
        assert_eq!(content(&store, file), expected);
        change(100 * KIB, 10, SpaceChange::ZeroRange { keep_size: false }).unwrap();
        assert_eq!(size(), 100 * KIB + 10);
        assert!(matches!(change(0, 0, SpaceChange::PunchHole), Err(StoreError::Invalid)));
        let beyond = change(i64::MAX as u64, 1, SpaceChange::Allocate { keep_size: true });
        assert!(matches!(beyond, Err(StoreError::FileTooLarge)));
        assert!(matches!(change(u64::MAX, 2, SpaceChange::PunchHole), Err(StoreError::FileTooLarge)));
        let dir = store.mkdir(&ROOT, Ino::ROOT, b"d", 0o755, at(1)).unwrap().ino;
        let of_dir = store.change_space(Ino(dir), 0, 1, SpaceChange::PunchHole, at(2));
        assert!(matches!(of_dir, Err(StoreError::IsDirectory)));
    }
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, u64, u8),
    Space(u64, u64, SpaceChange),
    Resize(u64),
    Reopen,
}

fn change() -> impl Strategy<Value = Change> {
    let part = || {
        (0..LEN_MAX, 1..20 * KIB, any::<bool>()).prop_map(|(offset, len, aligned)| {
            if aligned { (offset & !4095, (len + 4095) & !4095) } else { (offset, len) }
        })
    };
    let how = prop_oneof![
        any::<bool>().prop_map(|keep_size| SpaceChange::Allocate { keep_size }),
        any::<bool>().prop_map(|keep_size| SpaceChange::ZeroRange { keep_size }),
        Just(SpaceChange::PunchHole),
        Just(SpaceChange::PunchHole),
    ];
    prop_oneof![
        4 => (part(), 1u8..).prop_map(|((offset, len), byte)| Change::Write(offset, len, byte)),
        4 => (part(), how).prop_map(|((offset, len), how)| Change::Space(offset, len, how)),
        1 => (0..LEN_MAX).prop_map(Change::Resize),
        1 => Just(Change::Reopen),
    ]
}

/// What `fallocate(2)` does for `how`; on a host that cannot make zeros of a part, in two steps.
fn change_local(file: &std::fs::File, offset: u64, len: u64, how: SpaceChange) {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let flags = |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    let change = |flags| rustix::fs::fallocate(file, flags, offset, len).unwrap();
    match how {
        SpaceChange::Allocate { keep_size } => change(flags(keep_size)),
        SpaceChange::PunchHole => change(punch),
        SpaceChange::ZeroRange { keep_size } => {
            change(punch);
            change(flags(keep_size));
        }
    }
}

#[test]
fn room_behind_a_hole_is_given_back_by_a_cut() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    let file = open(&store, "f").ino;
    store.write(file, 12_288, &[1], at(2)).unwrap();
    let before = blocks(&store, file);
    store.set_size(file, 80 * KIB, at(2)).unwrap();
    store.change_space(file, 68 * KIB, 8_193, SpaceChange::Allocate { keep_size: false }, at(2)).unwrap();
    assert!(blocks(&store, file) > before);
    store.set_size(file, 12_289, at(2)).unwrap();
    assert_eq!(blocks(&store, file), before);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn random_changes_leave_what_they_leave_of_a_local_file(
        changes in proptest::collection::vec(change(), 1..25),
        targets in 1u16..4,
    ) {
        let dir = scratch_dir();
        let config = config(dir.path(), targets);
        let mut store = Store::open(&config).unwrap();
        let ours = open(&store, "f").ino;
        let local = std::fs::File::options().read(true).write(true).create_new(true).open(dir.path().join("local")).unwrap();
        // What hosts call room that was set aside and never written to differs with the place.
        let mut is_exact = targets == 1;
        for change in changes {
            is_exact &= matches!(change, Change::Write(..) | Change::Space(_, _, SpaceChange::PunchHole) | Change::Resize(_));
            match change {
                Change::Write(offset, len, byte) => {
                    let bytes = vec![byte; len as usize];
                    prop_assert_eq!(store.write(ours, offset, &bytes, at(2)).unwrap(), bytes.len());
                    local.write_all_at(&bytes, offset).unwrap();
                }
                Change::Space(offset, len, how) => {
                    store.change_space(ours, offset, len, how, at(2)).unwrap();
                    change_local(&local, offset, len, how);
                }
                Change::Resize(size) => {
                    store.set_size(ours, size, at(2)).unwrap();
                    local.set_len(size).unwrap();
                }
                Change::Reopen => {
                    drop(store);
                    store = Store::open(&config).unwrap();
                }
            }
            let meta = local.metadata().unwrap();
            let mut expected = vec![0; meta.len() as usize];
            local.read_exact_at(&mut expected, 0).unwrap();
            prop_assert_eq!(content(&store, ours), expected);
            prop_assert!(targets > 1 || blocks(&store, ours) == meta.blocks());
            if !is_exact {
                continue;
            }
            // Within its last page an object ends where its last byte is, and the local file goes on.
            for offset in (0..meta.len() + 4096).step_by(4096) {
                let expected = [SeekFrom::Data(offset), SeekFrom::Hole(offset)]
                    .map(|how| rustix::fs::seek(&local, how).map_err(|e| e.raw_os_error() as u32));
                let actual = [Extent::Data, Extent::Hole]
                    .map(|what| store.seek(ours, offset, what).map_err(|e| e.errno()));
                prop_assert_eq!(actual[0], expected[0], "data from {}", offset);
                prop_assert_eq!(actual[1].map(|at| at.div_ceil(4096)), expected[1].map(|at| at.div_ceil(4096)));
            }
        }
        // With stripes of one page each page stands for itself: none is skipped that has a byte in it.
        let bytes = content(&store, ours);
        for (page, content) in bytes.chunks(4096).enumerate() {
            let offset = page as u64 * 4096;
            let is_hole = store.seek(ours, offset, Extent::Hole).unwrap() == offset;
            prop_assert!(!is_hole || content.iter().all(|b| *b == 0), "page {}", page);
            let data = store.seek(ours, offset, Extent::Data);
            prop_assert_eq!(is_hole, data.ok() != Some(offset));
        }
    }
}

fn open_unnamed(store: &Store, exclusive: bool) -> Ino {
    let how =
        OpenHow { access: access::READ | access::WRITE, unnamed: true, exclusive, mode: 0o640, ..OpenHow::default() };
    let opened = store.open_file(&ROOT, Ino::ROOT, b"d", &how, at(2)).unwrap();
    assert!(opened.created);
    assert_eq!((opened.attr.nlink, opened.attr.mode & 0o7777), (0, 0o640));
    opened.ino
}

#[test]
fn a_file_without_a_name_gets_one_or_goes() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let store = Store::open(&config).unwrap();
    store.mkdir(&ROOT, Ino::ROOT, b"d", 0o755, at(1)).unwrap();
    let [named, exclusive, dropped] = [false, true, false].map(|exclusive| open_unnamed(&store, exclusive));
    for ino in [named, exclusive, dropped] {
        store.write(ino, 0, &[7; 10_000], at(3)).unwrap();
    }
    store.set_xattr(&ROOT, named, b"", true, b"user.x", b"y", isonomia_store::XattrHow::Either, at(3)).unwrap();
    let directory = Ino(store.get_attr(&ROOT, Ino::ROOT, b"d", true).unwrap().ino);
    let names: Vec<_> =
        store.namespace().read_dir(&ROOT, directory, 0, 4096).unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, [b".".to_vec(), b"..".to_vec()]);
    let link = |ino, name: &[u8]| store.link(&ROOT, ino, b"", true, Ino::ROOT, name, at(4));
    assert_eq!(link(named, b"d/f").unwrap().nlink, 1);
    assert!(matches!(link(exclusive, b"d/g"), Err(StoreError::NotFound)));
    assert!(matches!(link(named, b"d/f"), Err(StoreError::Exists)));
    assert_eq!(link(named, b"d/g").unwrap().nlink, 2);
    store.write(named, 10_000, b"more", at(5)).unwrap();
    // A name that went does not come back.
    store.unlink(&ROOT, Ino::ROOT, b"d/g", at(5)).unwrap();
    store.release(dropped).unwrap();
    assert!(matches!(link(dropped, b"d/h"), Err(StoreError::Stale)));
    drop(store);
    let store = Store::open(&config).unwrap();
    let found = store.get_attr(&ROOT, Ino::ROOT, b"d/f", true).unwrap();
    assert_eq!((Ino(found.ino), found.nlink, found.size_bytes), (named, 1, 10_004));
    assert_eq!(content(&store, named)[9_999..], *b"\x07more");
    assert_eq!(store.namespace().get_xattr(&ROOT, named, b"", true, b"user.x", <[u8]>::to_vec).unwrap(), b"y");
    assert!(matches!(store.read(exclusive, 0, &mut [0; 8]), Err(StoreError::Stale)));
}

#[test]
fn a_file_without_a_name_needs_a_directory_that_may_be_written() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    store.mkdir(&ROOT, Ino::ROOT, b"d", 0o755, at(1)).unwrap();
    open(&store, "f");
    let how = OpenHow { access: access::WRITE, unnamed: true, mode: 0o600, ..OpenHow::default() };
    let errno = |caller, path: &[u8], how| store.open_file(caller, Ino::ROOT, path, &how, at(2)).unwrap_err().errno();
    assert_eq!(errno(&ALICE, b"d", how), StoreError::PermissionDenied.errno());
    assert_eq!(errno(&ROOT, b"f", how), StoreError::NotDirectory.errno());
    assert_eq!(errno(&ROOT, b"none", how), StoreError::NotFound.errno());
    assert_eq!(errno(&ROOT, b"d", OpenHow { access: access::READ, ..how }), StoreError::Invalid.errno());
    let opened = store.open_file(&ROOT, Ino::ROOT, b"d", &how, at(2)).unwrap();
    let change = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    assert_eq!(store.set_attr(&ROOT, opened.ino, b"", true, &change, at(3)).unwrap().mode & 0o7777, 0o644);
}
