//! Writes past the page cache of the host, beside others.

use crate::scratch::open;
use isonomia_proto::fs::Timestamp;
use isonomia_proto::space::SpaceChange;
use isonomia_store::checksum::BLOCK_BYTES as BLOCK;
use isonomia_store::{Bounds, Cached, Caller, Check, Store, StoreConfig, StoreError, WriteMode};
use isonomia_testbed::skip;
use isonomia_units::{Ino, TargetId};
use proptest::prelude::*;
use std::path::Path;

const NOW: Timestamp = Timestamp::from_secs(1);
/// As large as a file of the model may be.
/// Tries to see what lasts as long as one write.
const ROUNDS_MAX: u32 = 1_000;
const SIZE_MAX: usize = 80 * BLOCK;

/// A directory on a disk, if there is one.
fn disk_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A store of so many targets, all of which take writes past the page cache where they can.
fn config(dir: &Path, targets: u16) -> StoreConfig {
    let mut config = crate::scratch::config(dir, targets);
    config.default_layout.stripe_bytes = 4 * BLOCK as u64;
    config.direct_on_request = (0..targets).map(TargetId).collect();
    config
}

/// Whether this file system takes such writes.
fn takes_direct(store: &Store) -> bool {
    let takes = store.objects().takes_direct(TargetId(0));
    if !takes {
        skip("the file system does not say that it writes past the page cache");
    }
    takes
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        offset: usize,
        len: usize,
        fill: u8,
        is_direct: bool,
    },
    Append {
        len: usize,
        fill: u8,
    },
    Read {
        offset: usize,
        len: usize,
    },
    Resize {
        size: usize,
    },
    Space {
        offset: usize,
        len: usize,
        what: u8,
    },
    Sync,
    Settle,
    /// Without a clean close.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let range = || {
        let blocks = (0..60usize, 1..20usize).prop_map(|(at, len)| (at * BLOCK, len * BLOCK));
        let bytes = (0..60 * BLOCK, 1..20 * BLOCK);
        prop_oneof![3 => blocks, 1 => bytes]
    };
    prop_oneof![
        8 => (range(), 1u8.., any::<bool>()).prop_map(|((offset, len), fill, is_direct)| {
            Step::Write { offset, len, fill, is_direct }
        }),
        1 => (1..3 * BLOCK, 1u8..).prop_map(|(len, fill)| Step::Append { len, fill }),
        6 => range().prop_map(|(offset, len)| Step::Read { offset, len }),
        2 => (0..60 * BLOCK).prop_map(|size| Step::Resize { size }),
        2 => (range(), 0..3u8).prop_map(|((offset, len), what)| Step::Space { offset, len, what }),
        1 => Just(Step::Sync),
        1 => Just(Step::Settle),
        1 => Just(Step::Restart),
    ]
}

struct World {
    config: StoreConfig,
    store: Option<Store>,
    ino: Ino,
    model: Vec<u8>,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(targets: u16, checksums: bool) -> Self {
        let dir = disk_dir();
        let mut config = config(dir.path(), targets);
        config.checksums = checksums;
        config.bounds = Bounds { objects: 3, sums_bytes: 4096, ..Bounds::default() };
        let store = Store::open(&config).unwrap();
        let ino = open(&store, "file").ino;
        Self { config, store: Some(store), ino, model: Vec::new(), _dir: dir }
    }

    fn put(&mut self, offset: usize, len: usize, fill: u8) {
        self.model.resize(self.model.len().max(offset + len), 0);
        self.model[offset..offset + len].fill(fill);
    }

    fn step(&mut self, step: &Step) {
        let (store, ino) = (self.store.as_ref().unwrap(), self.ino);
        match *step {
            Step::Write { offset, len, fill, is_direct } => {
                let mode = if is_direct { WriteMode::Direct } else { WriteMode::Usual };
                assert_eq!(store.write_as(mode, ino, offset as u64, &vec![fill; len], NOW).unwrap(), len);
                self.put(offset, len, fill);
            }
            Step::Append { len, fill } => {
                let end = self.model.len();
                if end + len > SIZE_MAX {
                    return;
                }
                assert_eq!(store.append(ino, &vec![fill; len], NOW).unwrap(), (end as u64, len));
                self.put(end, len, fill);
            }
            Step::Read { offset, len } => self.compare(offset, len),
            Step::Resize { size } => {
                store.set_size(ino, size as u64, NOW).unwrap();
                self.model.resize(size, 0);
            }
            Step::Space { offset, len, what } => {
                let (how, grows) = match what {
                    0 => (SpaceChange::PunchHole, false),
                    1 => (SpaceChange::ZeroRange { keep_size: false }, true),
                    _ => (SpaceChange::Allocate { keep_size: false }, true),
                };
                match store.change_space(ino, offset as u64, len as u64, how, NOW) {
                    Err(StoreError::NotSupported) => return,
                    changed => changed.unwrap(),
                }
                let end = if grows { offset + len } else { (offset + len).min(self.model.len()) };
                let from = if what == 2 { self.model.len() } else { offset };
                if from < end {
                    self.put(from, end - from, 0);
                }
            }
            Step::Sync => store.fsync(ino, false).unwrap(),
            Step::Settle => {
                store.flush_dirty().unwrap();
                (0..2).for_each(|_| store.settle().unwrap());
            }
            Step::Restart => {
                self.store = None;
                self.store = Some(Store::open(&self.config).unwrap());
            }
        }
    }

    fn compare(&self, offset: usize, len: usize) {
        let store = self.store.as_ref().unwrap();
        let expected = self.model.get(offset..).unwrap_or_default();
        let expected = &expected[..expected.len().min(len)];
        let (mut bytes, mut cached) = (vec![0xee; len], vec![0xee; len]);
        if let Cached::Read(len) = store.read_cached(self.ino, offset as u64, &mut cached).unwrap() {
            assert!(cached[..len] == *expected, "what is in memory, {len} bytes at {offset}");
        }
        let read = store.read(self.ino, offset as u64, &mut bytes).unwrap();
        assert!(bytes[..read] == *expected, "{read} bytes at {offset} of {}", self.model.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_writes_in_both_ways_and_changes_between_them_leave_what_a_vector_has(
        targets in 1..3u16,
        checksums in any::<bool>(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut world = World::new(targets, checksums);
        steps.iter().for_each(|step| world.step(step));
        world.compare(0, SIZE_MAX + BLOCK);
        world.step(&Step::Restart);
        world.compare(0, SIZE_MAX + BLOCK);
        prop_assert_eq!(world.store.as_ref().unwrap().objects().checksum_status().damaged_total, 0);
    }
}

/// Descriptors of this process for a file below `dir`: all, and those past the page cache.
fn descriptors(dir: &Path) -> (usize, usize) {
    let objects = dir.join("target0/objects");
    let (mut all, mut direct) = (0, 0);
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let Ok(to) = std::fs::read_link(entry.path()) else { continue };
        if !to.starts_with(&objects) || to.is_dir() {
            continue;
        }
        all += 1;
        let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
        let info = std::fs::read_to_string(info).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or_default();
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap_or_default();
        direct += usize::from(flags & libc::O_DIRECT as u32 != 0);
    }
    (all, direct)
}

#[test]
fn a_second_descriptor_has_a_place_of_its_own_and_takes_none_of_others() {
    const PLACES: usize = 12;
    let dir = disk_dir();
    let mut config = config(dir.path(), 1);
    config.bounds.objects = PLACES;
    let store = Store::open(&config).unwrap();
    if !takes_direct(&store) {
        return;
    }
    let bytes = vec![7; 4 * BLOCK];
    let files: Vec<Ino> = (0..PLACES).map(|number| open(&store, &format!("f{number}")).ino).collect();
    for ino in &files {
        store.write(*ino, 0, &bytes, NOW).unwrap();
    }
    assert_eq!(descriptors(dir.path()), (PLACES, 0), "all places are used");
    let first = files[0];
    store.write_as(WriteMode::Direct, first, 0, &bytes, NOW).unwrap();
    assert_eq!(descriptors(dir.path()), (PLACES, 1), "another file was closed for it");
    // It is in use all the time, and so are as many others as there are places for, so it stays open.
    let mut closed = 0;
    for round in 0..400 {
        store.write_as(WriteMode::Direct, first, 0, &bytes, NOW).unwrap();
        store.write(files[1 + round % (PLACES - 2)], 0, &bytes, NOW).unwrap();
        let (all, direct) = descriptors(dir.path());
        assert!(all <= PLACES + 1, "{all}");
        closed += usize::from(direct == 0);
    }
    assert!(closed < 4, "closed {closed} times of 400");
    // All that are written so at once.
    for ino in &files {
        store.write_as(WriteMode::Direct, *ino, 0, &bytes, NOW).unwrap();
        assert!(descriptors(dir.path()).0 <= PLACES + 1);
    }
    for ino in &files {
        store.write(*ino, 0, &bytes, NOW).unwrap();
    }
    assert!(descriptors(dir.path()).0 >= PLACES - 1, "no place is left unused");
    // What was removed leaves its places to others.
    for (number, ino) in files.iter().enumerate() {
        store.unlink(&Caller::ROOT, Ino::ROOT, format!("f{number}").as_bytes(), NOW).unwrap();
        store.release(*ino).unwrap();
    }
    let files: Vec<Ino> = (0..PLACES).map(|number| open(&store, &format!("g{number}")).ino).collect();
    for ino in &files {
        store.write(*ino, 0, &bytes, NOW).unwrap();
    }
    assert_eq!(descriptors(dir.path()), (PLACES, 0));
}

#[test]
fn an_object_that_is_another_file_by_now_is_not_opened_a_second_time() {
    let dir = disk_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    if !takes_direct(&store) {
        return;
    }
    let ino = open(&store, "file").ino;
    store.write(ino, 0, &[1; BLOCK], NOW).unwrap();
    let object = crate::damage::objects(dir.path(), 0).remove(0);
    std::fs::remove_file(&object).unwrap();
    std::fs::write(&object, [9; BLOCK]).unwrap();
    store.write_as(WriteMode::Direct, ino, 0, &vec![2; 64 * BLOCK], NOW).unwrap();
    assert!(std::fs::read(&object).unwrap() == [9; BLOCK]);
    let mut back = [0; BLOCK];
    store.read(ino, 0, &mut back).unwrap();
    assert_eq!(back, [2; BLOCK]);
}

#[test]
fn what_goes_past_the_page_cache_is_not_in_it_and_other_writes_to_the_file_are() {
    let dir = disk_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    if !takes_direct(&store) {
        return;
    }
    let ino = open(&store, "file").ino;
    let is_cached = |offset: usize| store.read_cached(ino, offset as u64, &mut [0; BLOCK]).unwrap();
    store.write(ino, 0, &[1; BLOCK], NOW).unwrap();
    assert_eq!(is_cached(0), Cached::Read(BLOCK));
    store.write_as(WriteMode::Direct, ino, 4 * BLOCK as u64, &vec![2; 64 * BLOCK], NOW).unwrap();
    assert_eq!((is_cached(0), is_cached(20 * BLOCK)), (Cached::Read(BLOCK), Cached::WouldWait));
    store.write_as(WriteMode::Direct, ino, 0, &vec![3; 64 * BLOCK], NOW).unwrap();
    assert_eq!(is_cached(0), Cached::WouldWait);
    let mut back = vec![0; 64 * BLOCK];
    store.read(ino, 0, &mut back).unwrap();
    assert!(back == vec![3; 64 * BLOCK]);
}

#[test]
fn who_writes_beside_a_write_past_the_page_cache_is_told_that_he_may_wait() {
    let dir = disk_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    if !takes_direct(&store) {
        return;
    }
    let ino = open(&store, "file").ino;
    let bytes = vec![1; 2048 * BLOCK];
    store.write(ino, 0, &bytes[..BLOCK], NOW).unwrap();
    assert!(!store.write_waits(ino));
    // This thread may not run while one of them is written.
    let is_told = (0..ROUNDS_MAX).any(|_| {
        let is_told = std::thread::scope(|scope| {
            let writer = scope.spawn(|| store.write_as(WriteMode::Direct, ino, 0, &bytes, NOW).unwrap());
            let mut is_told = false;
            while !is_told && !writer.is_finished() {
                is_told = store.write_waits(ino);
            }
            assert_eq!(writer.join().unwrap(), bytes.len());
            is_told
        });
        assert!(!store.write_waits(ino));
        is_told
    });
    assert!(is_told, "8 MiB are written again and again, and nobody is told");
}

/// What a check finds out about the file system it finds by reading.
#[test]
fn a_check_without_repair_writes_nothing_to_targets() {
    let dir = disk_dir();
    let mut config = config(dir.path(), 2);
    config.direct = vec![TargetId(1)];
    Store::open(&config).unwrap().close().unwrap();
    let changed = || config.targets.iter().map(|target| std::fs::metadata(&target.dir).unwrap().modified().unwrap());
    let before: Vec<_> = changed().collect();
    Check { repair: false, data: true, finding: &mut |_| {}, progress: &mut |_, _| {} }.run(&config).unwrap();
    assert!(changed().eq(before));
}
