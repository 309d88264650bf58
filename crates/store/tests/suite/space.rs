//! A full disk: an error, and nothing lost. Needs root, to mount a small file system, and for one test `mkfs.ext4`; otherwise it is skipped.

use crate::detached::place;
use crate::scratch::{ROOT, at, config, content, open, scratch_dir};
use isonomia_store::{OpenError, Store, StoreConfig, StoreError, VolumeChange, Whereabouts, WriteMode};
use isonomia_testbed::skip;
use isonomia_units::{Ino, TargetId};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A small file system, where the kernel lets this process mount one, and the directory of the file that it is in, if it is in one.
struct SmallDisk(tempfile::TempDir, Option<tempfile::TempDir>);

/// Writes twos to the end of a file until there is no space left; gives how long it is then.
fn fill(store: &Store, ino: Ino) -> u64 {
    let mut size = 0;
    let error = loop {
        match store.write(ino, size, &[2; 65_536], at(3)) {
            Ok(count) => size += count as u64,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::NoSpace) && error.errno() == 28, "{error}");
    assert!(size > 20 << 20, "most of the disk could be used: {size}");
    size
}

/// The file `kept`: 100,000 ones.
fn write_kept(store: &Store) -> Ino {
    let kept = open(store, "kept").ino;
    store.write(kept, 0, &[1; 100_000], at(2)).unwrap();
    kept
}

/// Gives the file `kept` its other name, or that name back.
fn rename_kept(store: &Store, repeat: u64) {
    let (old, new) = if repeat.is_multiple_of(2) { (b"kept", b"away") } else { (b"away", b"kept") };
    store.rename(&ROOT, Ino::ROOT, old, Ino::ROOT, new, Default::default(), at(5)).unwrap();
}

impl SmallDisk {
    /// What is left of the disk, taken by somebody else.
    fn fill(&self) -> PathBuf {
        let path = self.0.path().join("somebody-elses");
        let mut file = std::fs::File::create(&path).unwrap();
        for len in [65_536, 4096, 1] {
            while file.write_all(&[1; 65_536][..len]).is_ok() {}
        }
        path
    }

    fn mount() -> Option<Self> {
        Self::of_mib(32)
    }

    fn of_mib(size: u32) -> Option<Self> {
        let dir = scratch_dir();
        let size = format!("size={size}m");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        if mount.is_ok_and(|out| out.status.success()) {
            return Some(Self(dir, None));
        }
        skip("no small file system can be mounted");
        None
    }

    /// One that lays out blocks when it writes them back, as most do on which stores stand.
    fn ext4_of_mib(size: u64) -> Option<Self> {
        let (dir, beside) = (scratch_dir(), scratch_dir());
        let image = beside.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(size << 20)).unwrap();
        let run = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
        let how = ["-q", "-F", "-b", "4096", "-m", "0", "-N", "4096", "-J", "size=4", "-E", "lazy_itable_init=0"];
        let is_there = run(Command::new("mkfs.ext4").args(how).arg(&image))
            && run(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&image).arg(dir.path()));
        if !is_there {
            skip("no small ext4 can be made and mounted");
        }
        is_there.then_some(Self(dir, Some(beside)))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
        drop(self.1.take());
    }
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount() else { return };
    let config = config(disk.0.path(), 2);
    let store = Store::open(&config).unwrap();
    let kept = write_kept(&store);
    store.fsync(kept, false).unwrap();

    let filler = open(&store, "filler").ino;
    let size = fill(&store, filler);
    assert_eq!(store.get_attr(&ROOT, filler, b"", true).unwrap().size_bytes, size);

    // Metadata keeps working: what frees space, what changes names, and flushing. Growing is refused.
    let how = isonomia_store::OpenHow { access: 2, create: true, mode: 0o600, ..Default::default() };
    for i in 0..200 {
        let refused = store.open_file(&ROOT, Ino::ROOT, b"more", &how, at(4));
        assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
        rename_kept(&store, i);
    }
    store.write(kept, 0, &[3; 4096], at(6)).unwrap();
    store.fsync(filler, false).unwrap();
    drop(store);

    let store = Store::open(&config).unwrap();
    let bytes = content(&store, kept);
    assert_eq!(bytes.len(), 100_000);
    assert!(bytes[..4096].iter().all(|b| *b == 3) && bytes[4096..].iter().all(|b| *b == 1));
    assert_eq!(store.get_attr(&ROOT, Ino::ROOT, b"filler", true).unwrap().size_bytes, size);
    assert!(content(&store, filler).iter().all(|b| *b == 2));
    store.unlink(&ROOT, Ino::ROOT, b"filler", at(7)).unwrap();
    let more = open(&store, "more").ino;
    store.write(more, 0, &[4; 1 << 20], at(8)).unwrap();
    store.close().unwrap();
}

#[test]
fn a_full_disk_takes_no_volume_and_keeps_no_name_for_it() {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = Store::open(&config(disk.0.path(), 1)).unwrap();
    store.namespace().set_whereabouts(Arc::new(Whereabouts::default()));
    let filler = open(&store, "filler").ino;
    fill(&store, filler);
    let make = || store.mkdir(&ROOT, Ino::ROOT, b"volume", 0o755, at(4)).unwrap_err();
    for _ in 0..2 {
        assert!(matches!(make(), StoreError::NoSpace));
    }
    store.unlink(&ROOT, Ino::ROOT, b"filler", at(7)).unwrap();
    store.release(filler).unwrap();
    assert!(matches!(make(), StoreError::OfVolume(VolumeChange::Make { .. })));
}

#[test]
fn holes_are_not_filled_with_what_the_metadata_need() {
    let Some(disk) = SmallDisk::mount() else { return };
    let config = config(disk.0.path(), 2);
    let store = Store::open(&config).unwrap();
    let kept = write_kept(&store);
    let sparse = open(&store, "sparse").ino;
    store.set_size(sparse, 1 << 30, at(2)).unwrap();
    let end = fill(&store, sparse);
    for i in 0..2000u64 {
        // What has its blocks can be written, and names changed; nothing else.
        store.write(sparse, i * 4096 % end / 4096 * 4096, &[3; 4096], at(4)).unwrap();
        store.write(kept, 0, &[1; 4096], at(4)).unwrap();
        let refused = store.write(sparse, (1 << 30) - i * 4096 - 4096, &[4; 4096], at(4));
        assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
        rename_kept(&store, i);
    }
    store.unlink(&ROOT, Ino::ROOT, b"sparse", at(6)).unwrap();
    store.release(sparse).unwrap();
    let more = open(&store, "more").ino;
    store.write(more, 0, &[4; 1 << 20], at(8)).unwrap();
    assert!(content(&store, kept).iter().all(|b| *b == 1));
}

#[test]
fn holes_are_written_until_ext4_is_full_and_again_when_there_is_room() {
    const PIECE: usize = 65_536;
    const STEP: u64 = 2 * PIECE as u64;
    let Some(disk) = SmallDisk::ext4_of_mib(64) else { return };
    let config = config(disk.0.path(), 2);
    let store = Store::open(&config).unwrap();
    let kept = write_kept(&store);
    let room = open(&store, "room").ino;
    assert_eq!(store.write(room, 0, &vec![5; 8 << 20], at(2)).unwrap(), 8 << 20);
    let sparse = open(&store, "sparse").ino;
    store.set_size(sparse, 1 << 30, at(2)).unwrap();
    // Each piece in a hole of its own.
    let (mut whole, mut part) = (0, 0);
    let error = loop {
        match store.write(sparse, whole * STEP + part as u64, &[2; PIECE][part..], at(3)) {
            Ok(len) if part + len == PIECE => (whole, part) = (whole + 1, 0),
            Ok(len) => part += len,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::NoSpace) && whole > 20 << 4, "{error} after {whole} pieces");
    // What was taken has its blocks, though none of it was written back before.
    store.fsync(sparse, false).unwrap();
    for i in 0..100 {
        let refused = store.write(sparse, (1 << 30) - (i + 1) * STEP, &[4; PIECE], at(4));
        assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
        store.write(sparse, i * STEP, &[3; 4096], at(4)).unwrap();
        rename_kept(&store, i);
    }
    store.fsync(sparse, false).unwrap();
    store.unlink(&ROOT, Ino::ROOT, b"room", at(5)).unwrap();
    store.release(room).unwrap();
    for _ in 0..64 {
        let rest = vec![2; PIECE - part];
        assert_eq!(store.write(sparse, whole * STEP + part as u64, &rest, at(6)).unwrap(), rest.len());
        (whole, part) = (whole + 1, 0);
    }
    store.fsync(sparse, false).unwrap();
    store.close().unwrap();
    drop(store);
    let store = Store::open(&config).unwrap();
    let mut found = vec![0; STEP as usize];
    for piece in 0..whole {
        assert_eq!(store.read(sparse, piece * STEP, &mut found[..]).unwrap(), found.len());
        let head = if piece < 100 { 3 } else { 2 };
        assert!(found[..4096].iter().all(|byte| *byte == head), "piece {piece}");
        assert!(found[4096..PIECE].iter().all(|byte| *byte == 2) && found[PIECE..].iter().all(|byte| *byte == 0));
    }
    assert!(content(&store, kept).iter().all(|byte| *byte == 1));
}

/// Others have taken all of it, and what was kept back: what a start writes lies where there is room already.
#[test]
fn a_server_that_was_killed_starts_on_an_ext4_without_a_free_block() {
    let Some(disk) = SmallDisk::ext4_of_mib(64) else { return };
    let config = config(disk.0.path(), 2);
    let store = Store::open(&config).unwrap();
    let kept = write_kept(&store);
    store.sync().unwrap();
    let foreign = disk.fill();
    let names = 0..3_000_u32;
    let make = |name: u32| store.mkdir(&ROOT, Ino::ROOT, format!("{name}").as_bytes(), 0o700, at(4));
    let made = names.take_while(|name| make(*name).is_ok()).count();
    assert!(made < 3_000, "nothing grows any more");
    std::fs::rename(&foreign, disk.0.path().join("before")).unwrap();
    disk.fill();
    // What makes names durable may find no room for more.
    let _ = store.sync();
    drop(store);
    let store = Store::open(&config).unwrap();
    assert!(store.is_recovered() && content(&store, kept).iter().all(|byte| *byte == 1));
}

/// The host says of a write past its page cache that there is no space, and has written what lay before that.
#[test]
fn what_a_write_past_the_page_cache_left_on_a_full_disk_can_be_read() {
    const PIECE: usize = 65_536;
    const WHOLE: usize = 4 * PIECE;
    for is_on_request in [false, true] {
        // So large that the store does not look in time how much is left.
        let Some(disk) = SmallDisk::ext4_of_mib(256) else { return };
        let mut config = config(disk.0.path(), 1);
        let direct = if is_on_request { &mut config.direct_on_request } else { &mut config.direct };
        *direct = vec![TargetId(0)];
        let store = Store::open(&config).unwrap();
        if is_on_request && !store.objects().takes_direct(TargetId(0)) {
            return skip("ext4 does not say that it writes past the page cache");
        }
        let kept = write_kept(&store);
        let file = open(&store, "file").ino;
        for piece in [0, 2] {
            store.write(file, piece * PIECE as u64, &[2; PIECE], at(2)).unwrap();
        }
        store.set_size(file, WHOLE as u64, at(2)).unwrap();
        store.fsync(file, false).unwrap();
        store.fsync(kept, false).unwrap();
        let others = disk.fill();
        let write = |fill| store.write_as(WriteMode::Direct, file, 0, &[fill; WHOLE], at(3));
        match write(3) {
            Err(StoreError::NoSpace) => {}
            Ok(len) => assert!(len < WHOLE, "{len} bytes on a full disk"),
            Err(error) => panic!("{error}"),
        }
        // Each block is what it was, or what it was to be.
        let found = content(&store, file);
        for (number, block) in found.chunks(4096).enumerate() {
            let before = if number / 16 % 2 == 0 { 2 } else { 0 };
            assert!(block.iter().all(|byte| *byte == before) || block.iter().all(|byte| *byte == 3), "block {number}");
        }
        assert!(content(&store, kept).iter().all(|byte| *byte == 1));
        std::fs::remove_file(others).unwrap();
        assert_eq!(write(4).unwrap(), WHOLE);
        store.fsync(file, false).unwrap();
        store.close().unwrap();
        drop(store);
        let store = Store::open(&config).unwrap();
        assert!(content(&store, file) == vec![4; WHOLE]);
        assert!(content(&store, kept) == vec![1; 100_000]);
        assert_eq!(store.objects().checksum_status().damaged_total, 0);
    }
}

#[test]
fn a_disk_full_of_detached_objects_can_be_emptied_and_overwritten() {
    let Some(disk) = SmallDisk::mount() else { return };
    let config = config(disk.0.path(), 2);
    let mut store = Store::open(&config).unwrap();
    let mut end = 0;
    let error = loop {
        match store.objects().write_object(place(1), end, &[2; 65_536]) {
            Ok(written) => end += written.len as u64,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::NoSpace) && end > 20 << 20, "{error} at {end}");
    for round in 1..200 {
        store.objects().write_object(place(1), round * 4096, &[2; 4096]).unwrap();
        assert!(matches!(store.objects().write_object(place(2), 0, b"new"), Err(StoreError::NoSpace)));
        assert!(matches!(store.objects().write_object(place(1), end + (1 << 30), b"far"), Err(StoreError::NoSpace)));
        store.objects().cut_object(place(1), round, end).unwrap();
    }
    store.objects().sync_object(place(1)).unwrap();
    drop(store);
    store = Store::open(&config).unwrap();
    assert_eq!(store.objects().stat_object(place(1)).unwrap().size_bytes, end);
    assert_eq!(store.objects().stat_object(place(2)).unwrap(), Default::default());
    let mut bytes = vec![0; end as usize];
    assert_eq!(store.objects().read_object(place(1), 0, &mut bytes).unwrap() as u64, end);
    assert!(bytes.iter().all(|byte| *byte == 2));
    store.objects().cut_object(place(1), 200, 4096).unwrap();
    store.objects().write_object(place(2), 0, &[3; 1 << 20]).unwrap();
    store.objects().remove_detached(&[place(1), place(2)], 0, 1).unwrap();
    store.objects().write_object(place(0), 0, &vec![4; 20 << 20]).unwrap();
    store.close().unwrap();
}

#[test]
fn the_metadata_come_back_when_there_is_room_again() {
    let Some(disk) = SmallDisk::mount() else { return };
    let config = config(disk.0.path(), 2);
    let store = Store::open(&config).unwrap();
    let mut names = 0;
    for round in 0..3 {
        // Somebody else takes all there is, also what is let go for the metadata.
        let foreign = disk.fill();
        let error = loop {
            match store.mkdir(&ROOT, Ino::ROOT, format!("d{names}").as_bytes(), 0o700, at(4)) {
                Ok(_) => names += 1,
                Err(e) => break e,
            }
        };
        assert!(matches!(error, StoreError::NoSpace), "{error}");
        let (mut here, mut there) = (b"d0".to_vec(), vec![b'n'; 200]);
        let mut refused = 0;
        while refused < 3 {
            match store.rename(&ROOT, Ino::ROOT, &here, Ino::ROOT, &there, Default::default(), at(5)) {
                Ok(()) => std::mem::swap(&mut here, &mut there),
                Err(StoreError::NoSpace) => refused += 1,
                Err(e) => panic!("{e}"),
            }
        }
        std::fs::remove_file(&foreign).unwrap();
        store.heal().unwrap();
        store.mkdir(&ROOT, Ino::ROOT, format!("after{round}").as_bytes(), 0o700, at(6)).unwrap();
        if here != b"d0" {
            store.rename(&ROOT, Ino::ROOT, &here, Ino::ROOT, b"d0", Default::default(), at(7)).unwrap();
        }
    }
    drop(store);
    let store = Store::open(&config).unwrap();
    for name in (0..names).map(|i| format!("d{i}")).chain((0..3).map(|round| format!("after{round}"))) {
        store.get_attr(&ROOT, Ino::ROOT, name.as_bytes(), true).unwrap();
    }
}

/// A store with metadata on `disk` and its target elsewhere.
fn apart(disk: &SmallDisk, elsewhere: &Path) -> StoreConfig {
    let mut config = config(disk.0.path(), 1);
    config.targets[0].dir = elsewhere.join("target");
    config.bounds.inodes = 1000;
    config.bounds.entries = 1000;
    config
}

#[test]
fn metadata_by_themselves_need_room_to_be_removed() {
    let Some(disk) = SmallDisk::of_mib(128) else { return };
    let elsewhere = scratch_dir();
    let config = apart(&disk, elsewhere.path());
    let error = Store::open(&config).map(|_| ()).unwrap_err();
    let OpenError::Cramped { total_bytes, least_bytes, .. } = &error else { panic!("{error}") };
    assert_eq!((*total_bytes, *least_bytes), (128 << 20, 512 << 20), "{error}");
    assert!(!config.targets[0].dir.exists() && !config.dir.exists(), "nothing was created");
    // With a target beside them they may be there.
    drop(Store::open(&self::config(disk.0.path(), 2)).unwrap());
}

#[test]
#[ignore = "run by hand, for changes of the database or of what is kept back for it: takes a minute"]
fn a_disk_full_of_metadata_alone_can_be_emptied() {
    let Some(disk) = SmallDisk::of_mib(512) else { return };
    let elsewhere = scratch_dir();
    let store = Store::open(&apart(&disk, elsewhere.path())).unwrap();
    let name = |number: u32| format!("{number:0240}").into_bytes();
    let mut names = 0;
    let error = loop {
        match store.mkdir(&ROOT, Ino::ROOT, &name(names), 0o700, at(4)) {
            Ok(_) => names += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::NoSpace), "{error}");
    let give_up_at = Instant::now() + Duration::from_secs(60);
    for number in 0..names {
        // Now and then the database has to drop something first, which is somebody else's thread to do.
        while let Err(error) = store.rmdir(&ROOT, Ino::ROOT, &name(number), at(5)) {
            assert!(
                matches!(error, StoreError::NoSpace) && Instant::now() < give_up_at,
                "{number} of {names}: {error}"
            );
            store.heal().unwrap();
        }
    }
    store.sync().unwrap();
}
