//! Detached objects: random operations against a model, and what must hold besides.

use crate::damage::{cut, flip, is_damage, objects};
use crate::scratch::{ROOT, at, config, content, open, scratch_dir};
use isonomia_proto::space::{Extent, SpaceChange};
use isonomia_store::checksum::ObjectId;
use isonomia_store::{
    Bounds, Cached, Check, ObjectPlace, ObjectStat, ScrubNext, ScrubPass, Store, StoreConfig, StoreError,
};
use isonomia_units::{Ino, TargetId, VolumeId};
use proptest::prelude::*;
use std::collections::HashMap;
use std::path::Path;

const BLOCK: usize = 4096;
const PLACES: usize = 3;
/// Seconds for which capabilities are valid in here.
const LIFE_SECS: u64 = 10;

/// One of the objects, of files of another volume.
pub fn place(index: usize) -> ObjectPlace {
    let number = Ino::new(VolumeId(7), 0x2a).0;
    let object = ObjectId { number, generation: 9, index: [0, 3, 1023][index] };
    ObjectPlace { object, target: TargetId([0, 1, 0][index]) }
}

#[derive(Clone, Debug)]
enum Op {
    Write {
        object: usize,
        offset: usize,
        len: usize,
        fill: u8,
    },
    Read {
        object: usize,
        offset: usize,
        len: usize,
    },
    /// A cut that follows the last one, or comes as late as this.
    Cut {
        object: usize,
        size: usize,
        late: u64,
    },
    Space {
        object: usize,
        offset: usize,
        len: usize,
        how: SpaceChange,
    },
    Sync {
        object: usize,
    },
    Remove {
        object: usize,
    },
    /// So much time goes by.
    Wait {
        secs: u64,
    },
    Settle,
    Scrub,
    Restart {
        is_clean: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let object = || 0..PLACES;
    let offset = || prop_oneof![0..3 * BLOCK, (0..12usize).prop_map(|block| block * BLOCK), 0..200_000usize];
    let len = || prop_oneof![1..300usize, (1..5usize).prop_map(|blocks| blocks * BLOCK), 1..80_000usize];
    let how = prop_oneof![
        any::<bool>().prop_map(|keep_size| SpaceChange::Allocate { keep_size }),
        any::<bool>().prop_map(|keep_size| SpaceChange::ZeroRange { keep_size }),
        Just(SpaceChange::PunchHole),
    ];
    prop_oneof![
        8 => (object(), offset(), len(), 1u8..).prop_map(|(object, offset, len, fill)| Op::Write { object, offset, len, fill }),
        6 => (object(), offset(), len()).prop_map(|(object, offset, len)| Op::Read { object, offset, len }),
        4 => (object(), prop_oneof![Just(0), offset()], 0..3u64).prop_map(|(object, size, late)| Op::Cut { object, size, late }),
        2 => (object(), offset(), len(), how).prop_map(|(object, offset, len, how)| Op::Space { object, offset, len, how }),
        1 => object().prop_map(|object| Op::Sync { object }),
        1 => object().prop_map(|object| Op::Remove { object }),
        1 => (1..LIFE_SECS).prop_map(|secs| Op::Wait { secs }),
        2 => Just(Op::Settle),
        1 => Just(Op::Scrub),
        2 => any::<bool>().prop_map(|is_clean| Op::Restart { is_clean }),
    ]
}

/// What an object must be.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    cuts: u64,
    /// Since it was removed, until when.
    removed_until: Option<u64>,
}

struct World {
    config: StoreConfig,
    store: Option<Store>,
    models: [Model; PLACES],
    /// Cuts of the file that they are of.
    cuts: u64,
    now_secs: u64,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(checksums: bool) -> Self {
        let dir = scratch_dir();
        let mut config = config(dir.path(), 2);
        config.checksums = checksums;
        config.direct = vec![TargetId(1)];
        config.bounds = Bounds { inodes: 1, entries: 32, objects: 1, sums_bytes: 4096 };
        let store = Some(Store::open(&config).unwrap());
        Self { config, store, models: Default::default(), cuts: 0, now_secs: 1000, _dir: dir }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Write { object, offset, len, fill } => {
                let written = self.store().objects().write_object(place(object), offset as u64, &vec![fill; len]);
                let Some(model) = self.alive(object, &written) else { return };
                let end = offset + len;
                model.bytes.resize(model.bytes.len().max(end), 0);
                model.bytes[offset..end].fill(fill);
                let written = written.unwrap();
                assert_eq!((written.len, written.cuts), (len, model.cuts));
            }
            Op::Read { object, offset, len } => {
                let (mut bytes, mut cached) = (vec![0xee; len], vec![0xee; len]);
                let read = self.store().objects().read_object(place(object), offset as u64, &mut bytes);
                let again = self.store().objects().read_object_cached(place(object), offset as u64, &mut cached);
                let Some(model) = self.alive(object, &read) else { return };
                let expected = model.bytes.get(offset..).unwrap_or_default();
                let expected = &expected[..expected.len().min(len)];
                assert_eq!(&bytes[..read.unwrap()], expected, "object {object} at {offset}");
                if let Cached::Read(len) = again.unwrap() {
                    assert_eq!(&cached[..len], expected);
                }
            }
            Op::Cut { object, size, late } => {
                self.cuts += u64::from(late == 0);
                let number = self.cuts.saturating_sub(late).max(1);
                self.cuts = self.cuts.max(number);
                let cuts = self.store().objects().cut_object(place(object), number, size as u64).unwrap();
                let model = &mut self.models[object];
                if model.removed_until.is_none() && number > model.cuts {
                    model.bytes.truncate(size);
                    model.cuts = number;
                    assert_eq!(cuts, number);
                } else if model.removed_until.is_none() {
                    assert_eq!(cuts, model.cuts);
                }
            }
            Op::Space { object, offset, len, how } => {
                let changed = self.store().objects().change_object_space(place(object), offset as u64, len as u64, how);
                if matches!(changed, Err(StoreError::NotSupported)) {
                    return;
                }
                let Some(model) = self.alive(object, &changed) else { return };
                let end = offset + len;
                if let SpaceChange::Allocate { keep_size: false } | SpaceChange::ZeroRange { keep_size: false } = how {
                    model.bytes.resize(model.bytes.len().max(end), 0);
                }
                let end = end.min(model.bytes.len());
                if !matches!(how, SpaceChange::Allocate { .. }) && offset < end {
                    model.bytes[offset..end].fill(0);
                }
            }
            Op::Sync { object } => {
                let synced = self.store().objects().sync_object(place(object));
                self.alive(object, &synced);
            }
            Op::Remove { object } => {
                let until = self.now_secs + LIFE_SECS;
                self.store().objects().remove_detached(&[place(object)], until, self.now_secs).unwrap();
                self.models[object] = Model { removed_until: Some(until), ..Model::default() };
            }
            Op::Wait { secs } => {
                self.now_secs += secs;
                let mut over = 0;
                for model in &mut self.models {
                    if model.removed_until.is_some_and(|until| until < self.now_secs) {
                        model.removed_until = None;
                        over += 1;
                    }
                }
                assert_eq!(self.store().objects().forget_removed(self.now_secs).unwrap(), over);
            }
            Op::Settle => self.store().settle().unwrap(),
            Op::Scrub => {
                for target in [0, 1] {
                    assert_eq!(scrub(self.store(), TargetId(target)), 0);
                }
            }
            Op::Restart { is_clean } => {
                if is_clean {
                    self.store().close().unwrap();
                }
                self.store = None;
                self.store = Some(Store::open(&self.config).unwrap());
            }
        }
    }

    /// The model, unless the object was removed, and that is what was answered.
    fn alive<T: std::fmt::Debug>(&mut self, object: usize, answer: &Result<T, StoreError>) -> Option<&mut Model> {
        let model = &mut self.models[object];
        if model.removed_until.is_some() {
            assert!(matches!(answer, Err(StoreError::Stale)), "{answer:?}");
            return None;
        }
        Some(model)
    }

    fn compare(&mut self) {
        let mut there = Vec::new();
        for object in 0..PLACES {
            let found = self.store().objects().stat_object(place(object));
            let Some(model) = self.alive(object, &found) else { continue };
            let ObjectStat { size_bytes, blocks, cuts } = found.unwrap();
            assert_eq!((size_bytes, cuts), (model.bytes.len() as u64, model.cuts), "object {object}");
            assert!(blocks * 512 <= 2_000_000);
            let bytes = std::mem::take(&mut model.bytes);
            self.compare_holes(object, &bytes);
            self.models[object].bytes = bytes;
            if cuts > 0 || size_bytes > 0 {
                there.push(place(object));
            }
        }
        let mut listed = Vec::new();
        while let [next] = self.store().objects().detached_objects(listed.last().copied(), 1).unwrap()[..] {
            listed.push(next);
        }
        // One may be there that was written to and cut to nothing, or of which only a beginning failed.
        assert!(there.iter().all(|place| listed.contains(place)), "{there:?} and {listed:?}");
        assert!(listed.iter().all(|listed| (0..PLACES).any(|object| place(object) == *listed)), "{listed:?}");
    }

    /// What is told to be a hole is zeros, and data and holes alternate up to the end.
    fn compare_holes(&self, object: usize, bytes: &[u8]) {
        let seek = |offset: usize, what| match self.store().objects().seek_object(place(object), offset as u64, what) {
            Ok(at) => Some(at as usize),
            Err(StoreError::NoDevice) => None,
            Err(error) => panic!("{error}"),
        };
        let mut at = 0;
        while at < bytes.len() {
            let data = seek(at, Extent::Data).unwrap_or(bytes.len());
            assert!(bytes[at..data].iter().all(|byte| *byte == 0), "object {object}, {at} to {data}");
            let hole = if data < bytes.len() { seek(data, Extent::Hole).unwrap() } else { data };
            assert!(hole > data || data == bytes.len(), "object {object}, {data}");
            at = hole;
        }
        assert_eq!(seek(bytes.len(), Extent::Data), None);
    }
}

/// Damage that a pass finds.
fn scrub(store: &Store, target: TargetId) -> u64 {
    let mut pass = ScrubPass::new(target);
    let mut damaged = 0;
    loop {
        match store.find_to_scrub(&mut pass).unwrap() {
            ScrubNext::Range(_) => damaged += store.scrub(&mut pass).unwrap().damaged,
            ScrubNext::Searching => {}
            ScrubNext::End => return damaged,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn objects_are_as_the_model_says(checksums in prop::bool::weighted(0.8), ops in prop::collection::vec(op(), 1..60)) {
        let mut world = World::new(checksums);
        for op in &ops {
            world.step(op);
        }
        world.compare();
        world.step(&Op::Restart { is_clean: false });
        world.compare();
        world.step(&Op::Settle);
        world.step(&Op::Restart { is_clean: true });
        world.compare();
        world.store = None;
        prop_assert_eq!(check(&world.config), [""; 0]);
    }
}

/// Kinds of what `fsck` finds, all data included.
fn check(config: &StoreConfig) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut finding = |finding: &isonomia_store::Finding| found.push(finding.kind);
    let mut check = Check { repair: false, data: true, finding: &mut finding, progress: &mut |_, _| {} };
    check.run(config).unwrap();
    found
}

fn read_block(store: &Store, place: ObjectPlace, block: usize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![0xee; BLOCK];
    let got = store.objects().read_object(place, (block * BLOCK) as u64, &mut bytes)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// A store with one detached object of nine blocks, at rest.
fn at_rest(dir: &Path) -> StoreConfig {
    let config = config(dir, 2);
    let store = Store::open(&config).unwrap();
    store.objects().write_object(place(1), 0, &[7; 9 * BLOCK]).unwrap();
    store.close().unwrap();
    config
}

#[test]
fn damage_is_an_error_and_what_is_lost_is_not_the_end() {
    for lose in [
        &(|object: &Path| std::fs::remove_file(object).unwrap()) as &dyn Fn(&Path),
        &|object| cut(object, 5 * BLOCK),
        &|object| cut(object, 5 * BLOCK - 1),
        &|object| flip(object, 6 * BLOCK),
        &|object| {
            std::fs::remove_file(object).unwrap();
            std::fs::remove_file(object.with_added_extension("sum")).unwrap();
        },
    ] {
        let dir = scratch_dir();
        let config = at_rest(dir.path());
        lose(&objects(dir.path(), 3)[0]);
        let found = check(&config);
        assert!(matches!(found[0], "block" | "object"), "{found:?}");
        let store = Store::open(&config).unwrap();
        assert!(scrub(&store, TargetId(1)) > 0);
        assert_eq!(scrub(&store, TargetId(0)), 0);
        assert!(is_damage(read_block(&store, place(1), 6)));
        assert!(is_damage(store.objects().read_object(place(1), 0, &mut vec![0; 9 * BLOCK])));
        // What was cut off cannot be missed, and what is written anew is there.
        assert_eq!(store.objects().cut_object(place(1), 1, 0).unwrap(), 1);
        assert_eq!(store.objects().stat_object(place(1)).unwrap().size_bytes, 0);
        store.objects().write_object(place(1), 0, &[8; BLOCK]).unwrap();
        assert_eq!(read_block(&store, place(1), 0).unwrap(), [8; BLOCK]);
        store.close().unwrap();
        drop(store);
        assert_eq!(check(&config), [""; 0]);
    }
}

#[test]
fn what_no_record_tells_of_is_set_aside_or_removed_and_files_and_objects_are_not_confused() {
    let dir = scratch_dir();
    let config = at_rest(dir.path());
    let known = objects(dir.path(), 3)[0].clone();
    // Another stripe of the same file, and the same stripe on another target.
    let strangers = [
        known.with_file_name(known.file_name().unwrap().to_string_lossy().replace(".3", ".2")),
        dir.path().join("target0").join(known.strip_prefix(dir.path().join("target1")).unwrap()),
    ];
    strangers.iter().for_each(|stranger| std::fs::write(stranger, b"stale").unwrap());
    assert_eq!(check(&config), ["unknown object"; 2]);
    let store = Store::open(&config).unwrap();
    let file = open(&store, "file").ino;
    store.write(file, 0, &[1; 10_000], at(2)).unwrap();
    // Without a clean stop.
    drop(store);
    let store = Store::open(&config).unwrap();
    assert!(strangers.iter().all(|stranger| !stranger.exists()));
    assert_eq!(read_block(&store, place(1), 8).unwrap(), [7; BLOCK]);
    assert_eq!(content(&store, file), [1; 10_000]);
    store.unlink(&ROOT, Ino::ROOT, b"file", at(3)).unwrap();
    assert_eq!(store.objects().detached_objects(None, 9).unwrap(), [place(1)]);
}

#[test]
fn a_stale_object_is_not_taken_for_a_new_one() {
    let dir = scratch_dir();
    let config = at_rest(dir.path());
    let known = objects(dir.path(), 3)[0].clone();
    let stale = known.with_file_name(known.file_name().unwrap().to_string_lossy().replace(".3", ".4"));
    std::fs::write(&stale, [9; 100]).unwrap();
    let other = ObjectPlace { object: ObjectId { index: 4, ..place(1).object }, ..place(1) };
    let store = Store::open(&config).unwrap();
    assert_eq!(read_block(&store, other, 0).unwrap(), []);
    store.objects().write_object(other, 50, b"x").unwrap();
    assert_eq!(read_block(&store, other, 0).unwrap(), [&[0; 50][..], b"x"].concat());
}

#[test]
fn places_that_are_not_ones_are_refused() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 2)).unwrap();
    let elsewhere = ObjectPlace { target: TargetId(9), ..place(0) };
    assert!(matches!(store.objects().write_object(elsewhere, 0, b"x"), Err(StoreError::OtherTarget(TargetId(9)))));
    let beyond = ObjectPlace { object: ObjectId { index: 1024, ..place(0).object }, ..place(0) };
    assert!(matches!(store.objects().write_object(beyond, 0, b"x"), Err(StoreError::Invalid)));
    assert!(matches!(store.objects().write_object(place(0), u64::MAX, b"x"), Err(StoreError::FileTooLarge)));
    assert!(matches!(store.objects().cut_object(place(0), 0, 5), Err(StoreError::Invalid)), "no cut has this number");
    assert_eq!(store.objects().detached_objects(None, 9).unwrap(), []);
}

#[test]
fn a_write_that_knows_of_no_later_cut_is_refused_after_one() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 2)).unwrap();
    store.objects().write_object_after(0, place(0), 0, &[1; 100]).unwrap();
    for object in [0, 1] {
        store.objects().cut_object(place(object), 3, 50).unwrap();
        assert!(matches!(
            store.objects().write_object_after(2, place(object), 0, b"late"),
            Err(StoreError::CutMeanwhile)
        ));
        assert!(matches!(store.objects().write_object_after(2, place(object), 0, b""), Err(StoreError::CutMeanwhile)));
    }
    assert_eq!(
        (
            store.objects().stat_object(place(0)).unwrap().size_bytes,
            store.objects().stat_object(place(1)).unwrap().size_bytes
        ),
        (50, 0)
    );
    assert_eq!(store.objects().write_object_after(3, place(0), 50, b"next").unwrap().cuts, 3);
    let mut found = [0; 60];
    assert_eq!(store.objects().read_object(place(0), 0, &mut found[..]).unwrap(), 54);
    assert_eq!(found[..54], [&[1; 50][..], b"next"].concat());
}

#[test]
fn an_extent_of_an_object_is_brought_to_the_device() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 2)).unwrap();
    assert!(store.objects().object_extent(place(0), &[0..10, 20..30]).unwrap().is_none(), "there is no such object");
    store.objects().write_object(place(0), 0, &[1; 9 * BLOCK]).unwrap();
    assert!(
        store.objects().object_extent(place(0), std::slice::from_ref(&(10..10))).unwrap().is_none(),
        "there is nothing of it"
    );
    let extent = store.objects().object_extent(place(0), &[5..10_000, 20_000..70_000]).unwrap().unwrap();
    for what_is_between in [false, true] {
        extent.write_out(&store, what_is_between).unwrap();
    }
    extent.forget();
    extent.read_ahead();
    assert_eq!(read_block(&store, place(0), 8).unwrap(), [1; BLOCK]);
}

#[test]
fn many_threads_write_cut_and_remove_and_nothing_is_torn() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let store = Store::open(&config).unwrap();
    let mut written = HashMap::new();
    std::thread::scope(|scope| {
        let store = &store;
        let writers: Vec<_> = (0..4u8)
            .map(|writer| {
                scope.spawn(move || {
                    let mut done = 0;
                    for round in 0..200u64 {
                        let (offset, fill) = (u64::from(writer) * BLOCK as u64, writer + 1);
                        match store.objects().write_object(place(1), offset, &[fill; BLOCK]) {
                            Ok(written) => done = written.cuts,
                            Err(StoreError::Stale) => break,
                            Err(error) => panic!("{error}"),
                        }
                        if round % 50 == 0 {
                            store.settle().unwrap();
                        }
                    }
                    done
                })
            })
            .collect();
        for number in 1..=20 {
            assert_eq!(store.objects().cut_object(place(1), number, 0).unwrap(), number);
        }
        for (writer, thread) in writers.into_iter().enumerate() {
            written.insert(writer, thread.join().unwrap());
        }
    });
    // What was written after the last cut, and says so, is there.
    for (writer, cuts) in written {
        let block = read_block(&store, place(1), writer).unwrap();
        if cuts == 20 {
            assert_eq!(block, [writer as u8 + 1; BLOCK]);
        } else {
            assert!(block.iter().all(|byte| *byte == 0), "a block of before a cut");
        }
    }
    store.objects().remove_detached(&[place(1)], 0, 5).unwrap();
    store.close().unwrap();
    assert_eq!(objects(dir.path(), 3), [""; 0].map(Path::new));
}

#[test]
fn a_hole_is_punched_into_an_object_that_was_not_open() {
    let mut world = World::new(false);
    for op in [
        Op::Cut { object: 0, size: 20480, late: 0 },
        Op::Write { object: 0, offset: 7047, len: 35, fill: 182 },
        // More are not kept open.
        Op::Write { object: 2, offset: 20480, len: 72465, fill: 156 },
        Op::Space { object: 0, offset: 999, len: 77106, how: SpaceChange::PunchHole },
        Op::Read { object: 0, offset: 1973, len: 8192 },
    ] {
        world.step(&op);
    }
}
