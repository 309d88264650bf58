//! What is not what was written is never given out: objects and sidecars that change behind the store's back.

use crate::scratch::{ROOT, at, config, content, open, scratch_dir};
use isonomia_proto::space::{Extent, SpaceChange};
use isonomia_store::{FILE_SIZE_MAX, SCRUB_BYTES_MAX, ScrubNext, ScrubPass, Scrubbed, Store, StoreConfig, StoreError};
use isonomia_testbed::Heard;
use isonomia_units::{Ino, TargetId};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const EIO: u32 = 5;
const BLOCK: usize = 4096;

/// Files below the targets whose name ends in `suffix`, in order.
fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap().to_string_lossy().into_owned();
            if entry.is_dir() && name != "db" {
                dirs.push(entry);
            } else if entry.parent().unwrap().parent().unwrap().ends_with("objects") && name.ends_with(suffix) {
                found.push(entry);
            }
        }
    }
    found.sort();
    found
}

pub fn objects(dir: &Path, index: usize) -> Vec<PathBuf> {
    files(dir, &format!(".{index}"))
}

pub fn flip(path: &Path, offset: usize) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset as u64).unwrap();
}

pub fn cut(path: &Path, len: usize) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len as u64).unwrap();
}

/// A store with one file, at rest.
pub fn at_rest(config: &StoreConfig, bytes: &[u8]) -> Ino {
    let store = Store::open(config).unwrap();
    let file = open(&store, "file");
    store.write(file.ino, 0, bytes, at(2)).unwrap();
    store.release(file.ino).unwrap();
    store.close().unwrap();
    file.ino
}

pub fn read_block(store: &Store, ino: Ino, block: usize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![0xee; BLOCK];
    let got = store.read(ino, (block * BLOCK) as u64, &mut bytes)?;
    bytes.truncate(got);
    Ok(bytes)
}

pub fn is_damage<T: std::fmt::Debug>(result: Result<T, StoreError>) -> bool {
    match result {
        Err(e @ StoreError::Corrupt { .. }) => e.errno() == EIO,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_changed_bit_is_an_error_at_its_block_and_nowhere_else() {
    for targets in [1, 3] {
        let dir = scratch_dir();
        let config = config(dir.path(), targets);
        let ino = at_rest(&config, &[7; 9 * BLOCK]);
        let (index, offset) = if targets == 1 { (0, 4 * BLOCK + 77) } else { (1, BLOCK + 77) };
        flip(&objects(dir.path(), index)[0], offset);
        let store = Store::open(&config).unwrap();
        for block in 0..9 {
            match block {
                4 => assert!(is_damage(read_block(&store, ino, block))),
                _ => assert_eq!(read_block(&store, ino, block).unwrap(), [7; BLOCK]),
            }
        }
        let found = store.read(ino, 100, &mut [0; 8 * BLOCK]).unwrap_err();
        assert!(matches!(&found, StoreError::Corrupt { offset, .. } if *offset == 4 * BLOCK as u64), "{found}");
        assert!(found.to_string().contains("objects/"), "{found}");
        assert_eq!(store.objects().checksum_status().damaged_total, 2);
        // A part of it cannot be written, the whole can, and then it is right.
        assert!(is_damage(store.write(ino, 4 * BLOCK as u64 + 1, b"x", at(3))));
        store.write(ino, 4 * BLOCK as u64, &[8; BLOCK], at(3)).unwrap();
        assert_eq!(read_block(&store, ino, 4).unwrap(), [8; BLOCK]);
    }
}

#[test]
fn the_log_says_which_file_is_damaged_and_where() {
    let dir = scratch_dir();
    let config = config(dir.path(), 3);
    let ino = at_rest(&config, &[7; 9 * BLOCK]);
    let object = objects(dir.path(), 1).remove(0);
    flip(&object, BLOCK + 77);
    let store = Store::open(&config).unwrap();
    let heard = Heard::default();
    assert!(is_damage(tracing::subscriber::with_default(heard.clone(), || read_block(&store, ino, 4))));
    let line = heard.take();
    assert!(line.starts_with("ERROR message=damaged"), "{line}");
    let object = format!("object={} ", object.display());
    for part in [&format!("ino={ino} "), "offset=16384 ", &object, "object_offset=4096 ", "what=\"wrong checksum\""] {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn what_is_lost_does_not_read_as_zeros_and_what_was_never_written_does() {
    for targets in [1, 2] {
        for lose in [
            &(|object: &Path| std::fs::remove_file(object).unwrap()) as &dyn Fn(&Path),
            &|object: &Path| cut(object, 0),
            &|object: &Path| cut(object, BLOCK / 2),
            &|object: &Path| {
                std::fs::remove_file(object).unwrap();
                std::fs::remove_file(object.with_added_extension("sum")).unwrap();
            },
        ] {
            let dir = scratch_dir();
            let config = config(dir.path(), targets);
            let ino = {
                let store = Store::open(&config).unwrap();
                let ino = open(&store, "file").ino;
                store.write(ino, 0, &[1; BLOCK], at(2)).unwrap();
                store.set_size(ino, 40 * BLOCK as u64, at(2)).unwrap();
                store.close().unwrap();
                ino
            };
            let holes = |store: &Store| (1..40).all(|block| read_block(store, ino, block).unwrap() == [0; BLOCK]);
            assert!(holes(&Store::open(&config).unwrap()));
            lose(&objects(dir.path(), 0)[0]);
            let store = Store::open(&config).unwrap();
            assert!(is_damage(read_block(&store, ino, 0)));
            if files(dir.path(), "0.sum").len() == 1 {
                assert!(holes(&store));
            }
            // What is written anew is there; what was lost stays lost.
            store.write(ino, 5 * BLOCK as u64 * u64::from(targets), &[2; BLOCK], at(3)).ok();
            assert!(is_damage(read_block(&store, ino, 0)));
        }
    }
}

#[test]
fn damage_is_noticed_without_a_restart_once_a_file_is_settled() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let store = Store::open(&config).unwrap();
    let ino = open(&store, "file").ino;
    store.write(ino, 0, &[1; 2 * BLOCK], at(2)).unwrap();
    flip(&objects(dir.path(), 0)[0], 3);
    assert!(is_damage(read_block(&store, ino, 0)), "even before: the checksum is in memory");
    flip(&objects(dir.path(), 0)[0], 3);
    assert_eq!(files(dir.path(), ".sum").len(), 0);
    for _ in 0..2 {
        store.flush_dirty().unwrap();
        store.settle().unwrap();
    }
    assert_eq!((files(dir.path(), ".sum").len(), store.objects().checksum_status().unsettled_files), (1, 0));
    // Killed: but this file was at rest.
    drop(store);
    flip(&objects(dir.path(), 0)[0], 3);
    let store = Store::open(&config).unwrap();
    assert!(is_damage(read_block(&store, ino, 0)));
    assert_eq!(read_block(&store, ino, 1).unwrap(), [1; BLOCK]);
}

#[test]
fn who_writes_to_a_file_that_rests_waits_for_the_database_and_nobody_after_him() {
    // Of what is in memory nothing is synced.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    let ino = open(&store, "file").ino;
    assert!(!store.write_waits(ino), "a new file is known as written with its first entry");
    store.write(ino, 0, &[1; BLOCK], at(2)).unwrap();
    assert!(!store.write_waits(ino));
    for _ in 0..2 {
        store.flush_dirty().unwrap();
        store.settle().unwrap();
    }
    assert!(store.write_waits(ino) || store.objects().is_volatile());
    store.write(ino, 0, &[2; BLOCK], at(3)).unwrap();
    assert!(!store.write_waits(ino));
}

#[test]
fn a_kill_in_the_middle_of_writing_makes_no_damage() {
    for targets in [1, 2] {
        let dir = scratch_dir();
        let mut config = config(dir.path(), targets);
        config.bounds.sums_bytes = 4096;
        let mut expected = vec![3; 700 * BLOCK + 9];
        let ino = at_rest(&config, &expected);
        for round in 0..4u8 {
            let store = Store::open(&config).unwrap();
            assert!(content(&store, ino) == expected, "round {round}");
            for i in 0..30 {
                let from = i * 91_003 % expected.len();
                let end = expected.len().min(from + 5000 * (i % 4) + 1);
                expected[from..end].fill(round + 10);
                store.write(ino, from as u64, &expected[from..end], at(3)).unwrap();
                match i % 7 {
                    3 => store.fsync(ino, true).unwrap(),
                    5 => store.settle().unwrap(),
                    6 => {
                        expected.truncate(expected.len() - 3000);
                        store.set_size(ino, expected.len() as u64, at(4)).unwrap();
                    }
                    _ => {}
                }
            }
            drop(store);
            // As where the power fails: of a sidecar anything may be on disk.
            let sidecars = files(dir.path(), ".sum");
            match round {
                1 => sidecars.iter().for_each(|sidecar| flip(sidecar, 1000)),
                2 => sidecars.iter().for_each(|sidecar| cut(sidecar, 1000)),
                3 => sidecars.iter().for_each(|sidecar| flip(sidecar, 30)),
                _ => {}
            }
        }
        let store = Store::open(&config).unwrap();
        assert_eq!(store.objects().checksum_status().unsettled_files, 1);
        assert!(content(&store, ino) == expected);
        store.close().unwrap();
        drop(store);
        flip(&objects(dir.path(), 0)[0], 5);
        let store = Store::open(&config).unwrap();
        assert_eq!(store.objects().checksum_status().unsettled_files, 0);
        assert!(is_damage(read_block(&store, ino, 0)), "it is at rest again");
    }
}

/// Of a file that was being written when the server was killed. After a power cut what was not synced may be gone.
#[test]
fn an_object_that_was_removed_after_a_kill_is_lost_and_not_a_hole() {
    for (checksums, host_start, is_settled) in
        [(true, None, false), (true, None, true), (false, None, false), (true, Some(String::new()), false)]
    {
        let dir = scratch_dir();
        let config = StoreConfig { checksums, host_start, ..config(dir.path(), 2) };
        let store = Store::open(&config).unwrap();
        let ino = open(&store, "file").ino;
        store.write(ino, 0, &[7; 4 * BLOCK], at(2)).unwrap();
        store.flush_dirty().unwrap();
        drop(store);
        std::fs::remove_file(&objects(dir.path(), 0)[0]).unwrap();
        let is_lost = config.host_start.is_none();
        for round in 0..2 {
            let store = Store::open(&config).unwrap();
            if is_settled {
                (0..2).for_each(|_| store.settle().unwrap());
            }
            for block in [0, 2] {
                match is_lost {
                    true => assert!(is_damage(read_block(&store, ino, block)), "{checksums} {is_settled} {round}"),
                    false => assert_eq!(read_block(&store, ino, block).unwrap(), [0; BLOCK], "{checksums} {round}"),
                }
                assert_eq!(read_block(&store, ino, block + 1).unwrap(), [7; BLOCK]);
            }
            assert_eq!(store.objects().checksum_status().damaged_total, if is_lost { 2 } else { 0 });
        }
        let store = Store::open(&config).unwrap();
        let written = store.write(ino, 0, &[9; BLOCK], at(4));
        if is_lost {
            assert!(is_damage(written), "{checksums} {is_settled}: what else was in it would become zeros");
            assert!(is_damage(read_block(&store, ino, 2)), "{checksums} {is_settled}");
            store.write(ino, BLOCK as u64, &[9; BLOCK], at(4)).unwrap();
        } else {
            assert_eq!(written.unwrap(), BLOCK);
        }
    }
}

#[test]
fn a_suspect_file_that_nobody_reads_is_settled_too() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let ino = at_rest(&config, &[1; 600 * BLOCK]);
    let store = Store::open(&config).unwrap();
    store.write(ino, 100, &[2; 50 * BLOCK], at(3)).unwrap();
    drop(store);
    let store = Store::open(&config).unwrap();
    store.settle().unwrap();
    let status = store.objects().checksum_status();
    assert_eq!((status.unsettled_files, status.renewed_total, status.damaged_total), (0, 51, 0));
    drop(store);
    let store = Store::open(&config).unwrap();
    assert_eq!(read_block(&store, ino, 3).unwrap(), [2; BLOCK]);
    assert_eq!(store.objects().checksum_status().renewed_total, 0);
}

#[test]
fn files_written_without_checksums_are_not_compared_with_old_ones() {
    let dir = scratch_dir();
    let on = config(dir.path(), 1);
    let off = StoreConfig { checksums: false, ..on.clone() };
    let ino = at_rest(&on, &[1; 3 * BLOCK]);
    for close in [false, true] {
        let store = Store::open(&off).unwrap();
        store.write(ino, 0, &[2; BLOCK], at(3)).unwrap();
        if close {
            store.close().unwrap();
        }
        drop(store);
        let store = Store::open(&on).unwrap();
        assert_eq!(read_block(&store, ino, 0).unwrap(), [2; BLOCK]);
        store.write(ino, 10, &[3; BLOCK], at(4)).unwrap();
        assert_eq!(content(&store, ino).len(), 3 * BLOCK);
        // New ones have them.
        let other = open(&store, &format!("other{close}")).ino;
        store.write(other, 0, &[4; BLOCK], at(4)).unwrap();
        store.close().unwrap();
        drop(store);
        flip(objects(dir.path(), 0).last().unwrap(), 9);
        assert!(is_damage(read_block(&Store::open(&on).unwrap(), other, 0)));
        assert!(read_block(&Store::open(&off).unwrap(), other, 0).is_ok(), "off is off");
    }
}

#[test]
fn removing_a_file_removes_its_checksums() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    at_rest(&config, &[1; 3 * BLOCK]);
    assert_eq!(files(dir.path(), ".sum").len(), 2);
    let store = Store::open(&config).unwrap();
    store.unlink(&ROOT, Ino::ROOT, b"file", at(3)).unwrap();
    store.close().unwrap();
    assert_eq!(files(dir.path(), "").len(), 0);
}

#[test]
fn what_is_lost_is_not_reported_as_a_hole() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let ino = {
        let store = Store::open(&config).unwrap();
        let ino = open(&store, "file").ino;
        store.write(ino, 8 * BLOCK as u64, &[1; 4 * BLOCK], at(2)).unwrap();
        store.change_space(ino, 9 * BLOCK as u64 - 10, BLOCK as u64, SpaceChange::PunchHole, at(3)).unwrap();
        assert_eq!(store.seek(ino, 0, Extent::Data).unwrap(), 8 * BLOCK as u64);
        store.close().unwrap();
        ino
    };
    let store = Store::open(&config).unwrap();
    let mut expected = [vec![0; 8 * BLOCK], vec![1; 4 * BLOCK]].concat();
    expected[9 * BLOCK - 10..10 * BLOCK - 10].fill(0);
    assert!(content(&store, ino) == expected);
    drop(store);
    cut(&objects(dir.path(), 0)[0], BLOCK);
    let store = Store::open(&config).unwrap();
    assert_eq!(store.seek(ino, 0, Extent::Data).unwrap(), 0);
    assert_eq!(store.seek(ino, 0, Extent::Hole).unwrap(), 12 * BLOCK as u64);
    assert!(is_damage(read_block(&store, ino, 8)));
}

/// Goes through all objects of a target; what was found, and how many ranges there were.
pub fn scrub(store: &Store, target: u16) -> (Scrubbed, u64) {
    let mut pass = ScrubPass::new(TargetId(target));
    let (mut sum, mut ranges) = (Scrubbed::default(), 0);
    // Every call brings it on.
    for _ in 0..10_000 {
        match store.find_to_scrub(&mut pass).unwrap() {
            ScrubNext::Searching => {}
            ScrubNext::Range(bytes) => {
                let found = store.scrub(&mut pass).unwrap();
                assert!((1..=SCRUB_BYTES_MAX).contains(&bytes) && found.bytes <= bytes);
                ranges += 1;
                sum.bytes += found.bytes;
                sum.damaged += found.damaged;
            }
            ScrubNext::End => {
                assert_eq!((pass.done_bytes(), pass.total_bytes() >= sum.bytes), (sum.bytes, true));
                return (sum, ranges);
            }
        }
    }
    panic!("a pass without an end");
}

#[test]
fn files_as_long_as_can_be_that_were_being_written_are_looked_through() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let store = Store::open(&config).unwrap();
    for name in ["a", "b", "c"] {
        let ino = open(&store, name).ino;
        store.set_size(ino, FILE_SIZE_MAX, at(2)).unwrap();
        store.write(ino, 0, &[1; 100], at(2)).unwrap();
    }
    drop(store);
    let store = Store::open(&config).unwrap();
    assert_eq!(scrub(&store, 0), (Scrubbed { bytes: 3 * BLOCK as u64, damaged: 0 }, 3));
}

#[test]
fn a_scrub_looks_at_every_object_once_and_finds_what_is_damaged_and_what_is_lost() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let store = Store::open(&config).unwrap();
    // Directories, and files without an object, have nothing to look at.
    for number in 0..1_500 {
        store.mkdir(&ROOT, Ino::ROOT, format!("d{number}").as_bytes(), 0o755, at(1)).unwrap();
    }
    open(&store, "empty");
    let large = open(&store, "large").ino;
    store.write(large, 0, &vec![1; 300 * BLOCK], at(2)).unwrap();
    let small = open(&store, "small").ino;
    store.write(small, 0, &[2; 10], at(2)).unwrap();
    // What records do not tell of yet is the next pass's; then while files are being written, and when they rest.
    assert_eq!(scrub(&store, 0).0.bytes, 0);
    store.flush_dirty().unwrap();
    for _ in 0..2 {
        let both = [scrub(&store, 0), scrub(&store, 1)];
        assert_eq!(both.map(|(found, _)| found.damaged), [0, 0]);
        assert_eq!(both.map(|(found, _)| found.bytes).iter().sum::<u64>(), 301 * BLOCK as u64);
        assert!(both.iter().map(|(_, ranges)| ranges).sum::<u64>() <= 8, "{both:?}");
        store.settle().unwrap();
        store.settle().unwrap();
    }
    let [first, second] =
        [0, 1].map(|index| objects(dir.path(), index).into_iter().max_by_key(|path| len(path)).unwrap());
    flip(&first, 100 * BLOCK + 1);
    flip(&first, 101 * BLOCK + 1);
    assert_eq!(scrub(&store, 0).0.damaged + scrub(&store, 1).0.damaged, 2);
    drop(store);
    let blocks = len(&second) / BLOCK as u64;
    std::fs::remove_file(&second).unwrap();
    let store = Store::open(&config).unwrap();
    assert_eq!(scrub(&store, 0).0.damaged + scrub(&store, 1).0.damaged, 2 + blocks);
    assert_eq!(store.objects().checksum_status().damaged_total, 2 + blocks);
    // Without its checksums it is one loss.
    std::fs::remove_file(second.with_added_extension("sum")).unwrap();
    drop(store);
    let store = Store::open(&config).unwrap();
    assert_eq!(scrub(&store, 0).0.damaged + scrub(&store, 1).0.damaged, 2 + 1);
}

#[test]
fn a_scrub_goes_on_where_a_file_is_cut_or_removed_meanwhile() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let store = Store::open(&config).unwrap();
    let [cut, removed, last] = ["cut", "removed", "last"].map(|name| {
        let ino = open(&store, name).ino;
        store.write(ino, 0, &vec![3; 200 * BLOCK], at(2)).unwrap();
        store.release(ino).unwrap();
        ino
    });
    store.flush_dirty().unwrap();
    let mut pass = ScrubPass::new(TargetId(0));
    let (mut ranges, mut bytes) = (0, 0);
    loop {
        match store.find_to_scrub(&mut pass).unwrap() {
            ScrubNext::Searching => continue,
            ScrubNext::End => break,
            ScrubNext::Range(_) => {}
        }
        ranges += 1;
        if ranges == 2 {
            store.set_size(cut, 10, at(3)).unwrap();
        }
        if ranges == 4 {
            store.unlink(&ROOT, Ino::ROOT, b"removed", at(3)).unwrap();
        }
        let found = store.scrub(&mut pass).unwrap();
        assert_eq!(found.damaged, 0);
        bytes += found.bytes;
    }
    assert_eq!((ranges, bytes), (2 + 2 + 4, (64 + 64 + 200) * BLOCK as u64));
    assert!(removed < last && store.read(last, 0, &mut [0]).is_ok());
}

#[test]
fn a_scrub_passes_over_holes_and_stops_where_something_became_one() {
    let dir = scratch_dir();
    let config = config(dir.path(), 1);
    let store = Store::open(&config).unwrap();
    let ino = open(&store, "sparse").ino;
    let far = 1 << 40;
    store.write(ino, far, &[1; BLOCK], at(2)).unwrap();
    store.set_size(ino, 4 * far, at(2)).unwrap();
    store.release(ino).unwrap();
    store.close().unwrap();
    let (found, ranges) = scrub(&store, 0);
    assert!(ranges <= 20 && found.damaged == 0 && found.bytes >= BLOCK as u64, "{ranges}, {found:?}");
    drop(store);
    let object = &objects(dir.path(), 0)[0];
    let size = len(object) as usize;
    cut(object, 0);
    cut(object, size);
    let store = Store::open(&config).unwrap();
    assert_eq!(scrub(&store, 0).0.damaged, 1);
}

fn len(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}
