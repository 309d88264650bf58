//! An object in a directory of its own, against a vector of bytes, and with damage.

use super::*;
use crate::checksum::{ObjectId, entry_offset};
use isonomia_memory::{Expected, SharedBytes};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

const OBJECT: ObjectId = ObjectId { number: 7, generation: 1, index: 0 };

/// An object in a directory of its own.
struct Scratch {
    dir: tempfile::TempDir,
    place: OwnedFd,
    object: ObjectFile,
    sums: Sums,
    watch: Watch,
    is_suspect: bool,
    fence: crate::Fence,
}

impl Scratch {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let place = rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap();
        std::fs::create_dir(dir.path().join("07")).unwrap();
        let flags = OFlags::RDWR | OFlags::CREATE;
        let object = rustix::fs::openat(&place, "object", flags, Mode::from_raw_mode(0o600)).unwrap();
        let sums = Sums::default();
        sums.lock().start_anew();
        Self {
            dir,
            place,
            object: object.into(),
            sums,
            watch: Watch::default(),
            is_suspect: false,
            fence: crate::Fence::default(),
        }
    }

    fn place(&self) -> Place<'_> {
        Place { dir: self.place.as_fd(), object: OBJECT, is_suspect: self.is_suspect, fence: &self.fence }
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks {
            object: Some(&self.object),
            sums: &self.sums,
            place: self.place(),
            watch: &self.watch,
            known: None,
            may_wait: true,
            mode: WriteMode::Usual,
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        assert_eq!(self.blocks().write(offset, bytes), (bytes.len(), None));
    }

    /// The same from memory that another process could change.
    fn write_shared(&self, offset: u64, bytes: &[u8]) {
        let mut memory = bytes.to_vec();
        assert_eq!(self.blocks().write(offset, shared(&mut memory)), (bytes.len(), None));
    }

    /// As after a stop: nothing in memory, with or without the sidecar brought up to date.
    fn restart(&mut self, is_clean: bool) {
        if is_clean {
            self.sums.lock().write_back(&self.place()).unwrap();
        }
        self.sums = Sums::default();
    }

    /// Changes what is on disk behind our back.
    fn file(&self, name: &str) -> std::fs::File {
        std::fs::OpenOptions::new().read(true).write(true).open(self.dir.path().join(name)).unwrap()
    }

    fn flip(&self, name: &str, offset: u64) {
        let file = self.file(name);
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
    }

    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, BlockFault> {
        let mut bytes = vec![0xee; len];
        let mut memory = bytes.clone();
        let read = self.blocks().read(offset, &mut bytes).map(|()| bytes);
        let read_shared = self.blocks().read(offset, shared(&mut memory)).map(|()| memory);
        assert!(read == read_shared, "the same into memory that another process could change");
        match self.read_comparing(offset, len) {
            Ok(Some((bytes, _))) => assert!(read == Ok(bytes), "the same for who compares"),
            Ok(None) | Err(_) => assert!(read.is_err(), "who compares finds nothing wrong in what is right"),
        }
        read
    }

    /// As who compares blocks that he takes out of memory that another process could change: the bytes, and how many blocks he compared;
    /// `None` if some disagree.
    fn read_comparing(&self, offset: u64, len: usize) -> Result<Option<(Vec<u8>, usize)>, BlockFault> {
        let (mut memory, mut sums) = (vec![0xee; len], vec![0xee; Expected::sums_len(len)]);
        let (memory, told) = (shared(&mut memory), shared(&mut sums));
        let expected = Expected::new(told);
        self.blocks().read(offset, Sink::from(memory).comparing(&expected))?;
        let (told, mut agrees) = (told.to_vec(), true);
        let (told, _) = told.as_chunks();
        let mut bytes = vec![0; len];
        memory.copy_to_with_sums(&mut bytes, |number, sum| {
            agrees &= number >= expected.count() || told[number] == sum.to_ne_bytes();
        });
        Ok(agrees.then_some((bytes, expected.count())))
    }

    fn damage_at(&self, offset: u64, len: usize) -> u64 {
        match self.read(offset, len) {
            Err(BlockFault::Damaged { offset, .. }) => offset,
            other => panic!("{other:?}"),
        }
    }
}

fn shared(memory: &mut [u8]) -> SharedBytes<'_> {
    // SAFETY: borrowed for as long as the result, and used through that alone.
    unsafe { SharedBytes::new(NonNull::from(&mut *memory).cast(), memory.len()) }
}

#[derive(Clone, Debug)]
enum Step {
    /// Of own memory, or (`true`) of shared.
    Write(u64, usize, u8, bool),
    Read(u64, usize),
    /// As the host does it, or (`false`) not.
    Zero(u64, u64, bool),
    Resize(u64),
    Restart,
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    // Around page 0 of the sidecar, whose entries end at block 504, and with ends at and beside those of blocks.
    let edge = prop_oneof![0u64..6, 500u64..508]
        .prop_flat_map(|block| (Just(block), prop_oneof![Just(0), 1u64..4096, Just(4095)]))
        .prop_map(|(block, within)| block * BLOCK + within);
    let len = prop_oneof![1usize..200, 4000usize..9000, Just(4096), Just(1 << 16), Just((1 << 17) + 5000)];
    prop_oneof![
        4 => (edge.clone(), len.clone(), any::<u8>(), any::<bool>())
            .prop_map(|(at, len, byte, is_shared)| Step::Write(at, len, byte, is_shared)),
        2 => (edge.clone(), len).prop_map(|(at, len)| Step::Read(at, len)),
        1 => (edge.clone(), 1u64..20_000, any::<bool>()).prop_map(|(at, len, works)| Step::Zero(at, len, works)),
        1 => edge.prop_map(Step::Resize),
        1 => Just(Step::Restart),
        1 => Just(Step::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reads_what_was_written(steps in proptest::collection::vec(step(), 1..24)) {
        let mut scratch = Scratch::new();
        let mut model: Vec<u8> = Vec::new();
        for step in steps {
            match step {
                Step::Write(at, len, byte, is_shared) => {
                    let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(byte)).collect();
                    if is_shared { scratch.write_shared(at, &bytes) } else { scratch.write(at, &bytes) }
                    model.resize(model.len().max(at as usize + len), 0);
                    model[at as usize..at as usize + len].copy_from_slice(&bytes);
                }
                Step::Read(at, len) => {
                    let want: Vec<u8> = (at as usize..at as usize + len).map(|i| *model.get(i).unwrap_or(&0)).collect();
                    prop_assert!(scratch.read(at, len) == Ok(want), "at {}", at);
                }
                Step::Zero(at, len, works) => {
                    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let change = || match works {
                        true => rustix::fs::fallocate(&scratch.object, punch, at, len),
                        false => Err(Errno::IO),
                    };
                    let outcome = scratch.blocks().zero(at, len, &change);
                    prop_assert_eq!(outcome.is_ok(), works);
                    let end = (at + len).min(model.len() as u64);
                    if works && at < end {
                        model[at as usize..end as usize].fill(0);
                    }
                }
                Step::Resize(len) => {
                    prop_assert_eq!(scratch.blocks().resize(len), Ok(()));
                    model.resize(len as usize, 0);
                }
                Step::Restart => scratch.restart(true),
                Step::Forget => {
                    let mut writing = scratch.sums.lock();
                    writing.write_back(&scratch.place()).unwrap();
                    writing.forget();
                }
            }
        }
        prop_assert!(scratch.read(0, model.len()) == Ok(model));
        let last = scratch.watch.meter.bytes();
        scratch.sums = Sums::default();
        prop_assert!(last < 1 << 17 && scratch.watch.meter.bytes() == 0, "memory is accounted for");
    }
}

#[test]
fn every_kind_of_damage_is_told_apart_from_a_hole() {
    let mut scratch = Scratch::new();
    scratch.write(0, &[1; 3 * BLOCK_BYTES]);
    scratch.write(10 * BLOCK, &[2; 2 * BLOCK_BYTES + 100]);
    scratch.restart(true);
    assert_eq!(scratch.read(3 * BLOCK, 7 * BLOCK_BYTES), Ok(vec![0; 7 * BLOCK_BYTES]));
    for (offset, part) in [(BLOCK + 5, 1), (5 * BLOCK, 5), (12 * BLOCK + 99, 12)] {
        scratch.flip("object", offset);
        assert_eq!(scratch.damage_at(0, 13 * BLOCK_BYTES), part * BLOCK, "a changed bit at {offset}");
        assert_eq!(scratch.damage_at(offset, 1), part * BLOCK);
        scratch.flip("object", offset);
    }
    scratch.file("object").set_len(11 * BLOCK).unwrap();
    assert_eq!(scratch.damage_at(0, 13 * BLOCK_BYTES), 11 * BLOCK, "cut at a block");
    assert!(scratch.read(0, 11 * BLOCK_BYTES).is_ok());
    let absent = Blocks { object: None, ..scratch.blocks() };
    let mut buf = [9; BLOCK_BYTES];
    assert!(matches!(absent.read(0, &mut buf), Err(BlockFault::Damaged { what: "missing", .. })));
    assert_eq!((absent.read(3 * BLOCK, &mut buf), buf), (Ok(()), [0; BLOCK_BYTES]), "a hole needs no object");
}

#[test]
fn damage_of_the_sidecar_is_no_licence_to_believe() {
    let mut scratch = Scratch::new();
    scratch.write(0, &[1; 700 * BLOCK_BYTES]);
    scratch.restart(true);
    let good = std::fs::read(scratch.dir.path().join("07/0000000000000007.00000001.0.sum")).unwrap();
    for (what, damage) in [
        ("a bit of the header", &(|s: &Scratch| s.flip("07/0000000000000007.00000001.0.sum", 20)) as &dyn Fn(&Scratch)),
        ("a bit of an entry", &|s: &Scratch| s.flip("07/0000000000000007.00000001.0.sum", entry_offset(600) + 3)),
        ("cut", &|s: &Scratch| s.file("07/0000000000000007.00000001.0.sum").set_len(entry_offset(600)).unwrap()),
        ("cut to nothing", &|s: &Scratch| s.file("07/0000000000000007.00000001.0.sum").set_len(0).unwrap()),
        ("missing", &|s: &Scratch| {
            std::fs::remove_file(s.dir.path().join("07/0000000000000007.00000001.0.sum")).unwrap()
        }),
    ] {
        damage(&scratch);
        scratch.restart(false);
        assert!(matches!(scratch.read(600 * BLOCK, 1), Err(BlockFault::Damaged { .. })), "{what}");
        scratch.is_suspect = true;
        scratch.restart(false);
        assert_eq!(scratch.read(600 * BLOCK, 2), Ok(vec![1; 2]), "suspect, {what}");
        scratch.is_suspect = false;
        scratch.restart(false);
        std::fs::write(scratch.dir.path().join("07/0000000000000007.00000001.0.sum"), &good).unwrap();
    }
}

#[test]
fn a_part_of_a_damaged_block_is_not_written_and_a_whole_one_heals() {
    let mut scratch = Scratch::new();
    scratch.write(0, &[1; 2 * BLOCK_BYTES]);
    scratch.restart(true);
    scratch.flip("object", 10);
    let (written, fault) = scratch.blocks().write(100, &[2; 50]);
    assert!(matches!((written, fault), (0, Some(BlockFault::Damaged { offset: 0, .. }))));
    assert!(matches!(scratch.blocks().resize(100), Err(BlockFault::Damaged { offset: 0, .. })));
    let (written, fault) = scratch.blocks().write(BLOCK, &[3; 2 * BLOCK_BYTES]);
    assert_eq!((written, fault), (2 * BLOCK_BYTES, None));
    assert_eq!(scratch.damage_at(0, 1), 0);
    scratch.write(0, &[4; BLOCK_BYTES]);
    assert_eq!(scratch.read(0, 1), Ok(vec![4]));
}

#[test]
fn stale_entries_of_a_suspect_object_are_renewed_and_those_that_agree_are_kept() {
    let mut scratch = Scratch::new();
    scratch.write(0, &[1; 4 * BLOCK_BYTES]);
    scratch.restart(true);
    scratch.write(BLOCK + 7, &[2; 10]);
    scratch.write(9 * BLOCK, &[3; 10]);
    scratch.restart(false);
    assert_eq!(scratch.damage_at(0, 4 * BLOCK_BYTES), BLOCK);
    scratch.is_suspect = true;
    let mut found = 0;
    scratch.blocks().verify(0, 10, |_, _| found += 1).unwrap();
    assert_eq!((found, scratch.watch.renewed.load(Relaxed)), (0, 2));
    scratch.restart(true);
    scratch.is_suspect = false;
    scratch.blocks().verify(0, 10, |_, _| found += 1).unwrap();
    assert_eq!((found, scratch.read(BLOCK + 6, 3)), (0, Ok(vec![1, 2, 2])));
    scratch.flip("object", 2 * BLOCK);
    scratch.flip("object", 3 * BLOCK);
    let mut found = Vec::new();
    scratch.blocks().verify(0, 10, |offset, _| found.push(offset / BLOCK)).unwrap();
    assert_eq!(found, [2, 3]);
}

#[test]
fn writers_and_readers_of_one_block_see_no_damage() {
    let scratch = Scratch::new();
    scratch.write(0, &[0; 2 * BLOCK_BYTES]);
    std::thread::scope(|scope| {
        for thread in 0..2u8 {
            let scratch = &scratch;
            scope.spawn(move || {
                for i in 0..2000u64 {
                    scratch.write(i * 37 % 7000 + u64::from(thread), &[thread; 300]);
                }
            });
            scope.spawn(move || {
                for i in 0..2000u64 {
                    scratch.blocks().read(i * 41 % 8000, &mut [0; 150]).unwrap();
                }
            });
        }
    });
    assert!(scratch.read(0, 2 * BLOCK_BYTES).is_ok());
}

#[test]
fn who_compares_is_told_the_sums_of_whole_blocks_that_were_written() {
    let mut scratch = Scratch::new();
    let bytes: Vec<u8> = (0..300 * BLOCK_BYTES + 10).map(|at| ((at * at) >> 5) as u8).collect();
    scratch.write(0, &bytes);
    let compared = |scratch: &Scratch, offset: u64, len: usize| match scratch.read_comparing(offset, len) {
        Ok(Some((read, count))) => {
            assert!(read == bytes[offset as usize..][..len]);
            count
        }
        other => panic!("{:?}", other.map(|_| ())),
    };
    for is_new in [true, false] {
        assert_eq!(compared(&scratch, 0, 300 * BLOCK_BYTES), 300);
        assert_eq!(compared(&scratch, 7 * BLOCK, 9 * BLOCK_BYTES), 9);
        assert_eq!(compared(&scratch, 290 * BLOCK, 10 * BLOCK_BYTES + 10), 10, "not the part at the end");
        assert_eq!(compared(&scratch, BLOCK + 1, 9 * BLOCK_BYTES), 0, "no block begins where the memory does");
        assert_eq!(compared(&scratch, 0, BLOCK_BYTES - 1), 0);
        if is_new {
            scratch.restart(true);
        }
    }
    scratch.flip("object", 80 * BLOCK + 9);
    assert_eq!(scratch.read_comparing(0, 300 * BLOCK_BYTES), Ok(None));
    assert_eq!(scratch.damage_at(0, 300 * BLOCK_BYTES), 80 * BLOCK);
    assert_eq!(compared(&scratch, 81 * BLOCK, 5 * BLOCK_BYTES), 5);
    scratch.write(310 * BLOCK, &[1; BLOCK_BYTES]);
    assert_eq!(
        scratch.read_comparing(305 * BLOCK, 6 * BLOCK_BYTES).map(|read| read.unwrap().1),
        Ok(0),
        "a hole has none"
    );
}

#[test]
fn who_compares_beside_a_writer_gets_what_was_written_or_looks_again() {
    let scratch = Scratch::new();
    scratch.write(0, &[0; 16 * BLOCK_BYTES]);
    std::thread::scope(|scope| {
        scope.spawn(|| (1..300u32).for_each(|round| scratch.write_shared(0, &[round as u8; 16 * BLOCK_BYTES])));
        scope.spawn(|| {
            for _ in 0..300 {
                let Some((bytes, count)) = scratch.read_comparing(0, 16 * BLOCK_BYTES).unwrap() else { continue };
                let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
                assert_eq!((count, blocks.len()), (16, 16));
                assert!(blocks.iter().all(|block| block.iter().all(|byte| *byte == block[0])), "a block of two writes");
            }
        });
    });
}
