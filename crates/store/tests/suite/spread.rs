//! Spread files: what their server keeps of them, and that what their servers do together loses nothing.

use crate::scratch::{ROOT, at, config, open, scratch_dir};
use isonomia_proto::fs::{Layout, access};
use isonomia_store::{
    Cut, ObjectPlace, ObjectWritten, OpenHow, SetAttr, Spread, SpreadObjects, Store, StoreConfig, StoreError, TargetDir,
};
use isonomia_units::{Ino, ServerId, TargetId};
use proptest::prelude::*;
use std::sync::Arc;

const STRIPE: u64 = 4096;
/// The target of the other server.
const THERE: TargetId = TargetId(100);

fn layout() -> Arc<Layout> {
    Arc::new(Layout { stripe_bytes: STRIPE, targets: vec![TargetId(0), THERE, TargetId(1)], grows: false })
}

fn how() -> OpenHow {
    OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o4644, ..OpenHow::default() }
}

fn create(store: &Store, name: &str) -> Ino {
    store.open_spread(&ROOT, Ino::ROOT, name.as_bytes(), &how(), layout(), at(1)).unwrap().ino
}

fn size(store: &Store, ino: Ino) -> u64 {
    store.get_attr(&ROOT, ino, b"", true).unwrap().size_bytes
}

/// Tells the server of all targets that the cut is done.
fn finish(store: &Store, cut: &Cut) {
    assert_eq!(store.finish_cut(cut.ino, cut.number, cut.number, at(9)).unwrap(), None);
}

#[test]
fn a_spread_file_has_a_size_and_no_bytes() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let store = Store::open(&config).unwrap();
    let opened = store.open_spread(&ROOT, Ino::ROOT, b"file", &how(), layout(), at(1)).unwrap();
    let ino = opened.ino;
    assert_eq!(opened.layout, Some(layout()));
    assert!(matches!(store.write(ino, 0, b"x", at(2)), Err(StoreError::Spread)));
    assert!(matches!(store.read(ino, 0, &mut [0; 1]), Err(StoreError::Spread)));
    assert!(matches!(store.append(ino, b"x", at(2)), Err(StoreError::Spread)));
    assert!(matches!(store.fsync(ino, false), Err(StoreError::Spread)));
    assert!(matches!(store.fsync_target(ino, Some(THERE)), Err(StoreError::Spread)));
    assert_eq!(store.tell_size(ino, 10_000, 0, u64::MAX, at(5)).unwrap(), 10_000);
    assert_eq!(store.tell_size(ino, 9_000, 0, u64::MAX, at(6)).unwrap(), 10_000);
    let attr = store.get_attr(&ROOT, ino, b"", true).unwrap();
    assert_eq!((attr.size_bytes, attr.blocks, attr.mtime), (10_000, 20, at(6)));
    assert_eq!(attr.mode & 0o7777, 0o644, "who writes clears the set-id bits");
    assert_eq!(store.set_size(ino, 20_000, at(7)).unwrap().size_bytes, 20_000);
    store.fsync_attributes(ino, true).unwrap();
    store.fsync_attributes(ino, true).unwrap();
    let Spread { objects, size_bytes, cuts, .. } = store.namespace().spread_of(ino).unwrap();
    assert_eq!((objects.number, size_bytes, cuts), (ino.0, 20_000, 0));
    let is_wanted = |generation| store.namespace().is_wanted(objects.number, generation).unwrap();
    assert_eq!([0, 1].map(|other| is_wanted(objects.generation ^ other)), [true, false]);
    let own = open(&store, "own").ino;
    assert!(matches!(store.namespace().spread_of(own), Err(StoreError::Invalid)));
    assert!(!store.namespace().is_wanted(own.0, opened.capability.generation).unwrap());
    assert!(matches!(store.tell_size(own, 5, 0, u64::MAX, at(7)), Err(StoreError::Invalid)));
    for (stripe_bytes, count) in [(0, 1), (5000, 1), (STRIPE, 0), (STRIPE, 1025)] {
        let layout = Arc::new(Layout { stripe_bytes, targets: vec![THERE; count], grows: false });
        let refused = store.open_spread(&ROOT, Ino::ROOT, b"bad", &how(), layout, at(1));
        assert!(matches!(refused, Err(StoreError::Invalid)));
    }
    store.close().unwrap();
    drop(store);
    let store = Store::open(&config).unwrap();
    assert_eq!((size(&store, ino), store.namespace().layout(ino).unwrap()), (20_000, layout()));
    assert_eq!(store.cuts_to_redo().unwrap(), [], "it was a clean stop");
}

#[test]
fn a_size_that_was_told_survives_a_kill_and_objects_are_cut_to_it() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let mut store = Store::open(&config).unwrap();
    let (told, flushed, cut) = (create(&store, "told"), create(&store, "flushed"), create(&store, "cut"));
    store.tell_size(flushed, 5_000, 0, u64::MAX, at(5)).unwrap();
    store.flush_dirty().unwrap();
    for end in [70_000, 60_000, 80_000] {
        store.tell_size(told, end, 0, u64::MAX, at(6)).unwrap();
    }
    store.tell_size(cut, 80_000, 0, u64::MAX, at(6)).unwrap();
    let begun = store.begin_cut(cut, 10_000, at(7)).unwrap();
    assert_eq!((begun.number, begun.size_bytes), (1, 10_000));
    assert_eq!(store.namespace().was_shortened_after(cut, 0).unwrap(), Some(true));
    for start in 0..2 {
        drop(store);
        store = Store::open(&config).unwrap();
        assert_eq!([told, flushed, cut].map(|ino| size(&store, ino)), [80_000, 5_000, 10_000]);
        let mut redo = store.cuts_to_redo().unwrap();
        redo.sort_by_key(|cut| cut.ino.0);
        let redo: Vec<_> = redo.iter().map(|cut| (cut.ino, cut.number, cut.size_bytes)).collect();
        assert_eq!(redo, [(told, 1, 80_000), (cut, 1, 10_000)]);
        // The start that began a cut knows what that was, and a later one does not.
        assert_eq!(store.namespace().was_shortened_after(told, 0).unwrap(), (start == 0).then_some(false));
        // What was written before it is to be written again, and nothing grows meanwhile.
        assert!(matches!(store.tell_size(told, 5, 0, u64::MAX, at(8)), Err(StoreError::CutMeanwhile)));
        assert!(matches!(store.tell_size(told, 90_000, 1, u64::MAX, at(8)), Err(StoreError::CutMeanwhile)));
        assert!(matches!(store.set_size(told, 90_000, at(8)), Err(StoreError::CutMeanwhile)));
        assert_eq!(store.get_attr(&ROOT, told, b"", true).unwrap().size_bytes, 80_000);
    }
    let redo = store.cuts_to_redo().unwrap();
    redo.iter().for_each(|cut| finish(&store, cut));
    // It had been begun before the last stop: an object that had done it may have been written to since.
    assert!(matches!(store.tell_size(told, 90_000, 1, u64::MAX, at(8)), Err(StoreError::CutMeanwhile)));
    let cuts = store.cut_loose(9).unwrap();
    assert_eq!((cuts.len(), cuts[0].ino, cuts[0].number, cuts[0].size_bytes), (1, told, 2, 80_000));
    finish(&store, &cuts[0]);
    assert_eq!(store.tell_size(told, 90_000, 2, u64::MAX, at(8)).unwrap(), 90_000);
    store.close().unwrap();
    drop(store);
    assert_eq!(Store::open(&config).unwrap().cuts_to_redo().unwrap(), []);
}

#[test]
fn a_cut_is_begun_by_who_may_and_repeated_as_often_as_need_be() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 2)).unwrap();
    let ino = create(&store, "file");
    store.tell_size(ino, 5 * STRIPE + 77, 0, u64::MAX, at(2)).unwrap();
    // Programs' ways to cut: after the checks, and before anything was done.
    let truncate = OpenHow { truncate: true, create: false, ..how() };
    let refused = store.open_file(&ROOT, Ino::ROOT, b"file", &truncate, at(3)).unwrap_err();
    assert!(matches!(refused, StoreError::MustCut { ino: named, size_bytes: 0 } if named == ino), "{refused}");
    let change = SetAttr { size: Some(7), ..SetAttr::default() };
    let refused = store.set_attr(&ROOT, Ino::ROOT, b"file", true, &change, at(3)).unwrap_err();
    assert!(matches!(refused, StoreError::MustCut { size_bytes: 7, .. }), "{refused}");
    let nobody = isonomia_store::Caller { uid: 5, gid: 5, groups: &[] };
    let refused = store.set_attr(&nobody, Ino::ROOT, b"file", true, &change, at(3)).unwrap_err();
    assert!(matches!(refused, StoreError::PermissionDenied), "{refused}");
    assert!(matches!(store.begin_cut(ino, 6 * STRIPE, at(3)), Err(StoreError::Invalid)), "that is no cut");

    let cut = store.begin_cut(ino, 4 * STRIPE + 1, at(3)).unwrap();
    let cut = Cut { number: 2, ..cut };
    assert_eq!(store.begin_cut(ino, 4 * STRIPE + 1, at(3)).unwrap(), cut);
    let parts: Vec<(u32, TargetId, u64)> =
        cut.parts().map(|(place, size)| (place.object.index, place.target, size)).collect();
    assert_eq!(parts, [(0, TargetId(0), 2 * STRIPE), (1, THERE, STRIPE + 1), (2, TargetId(1), STRIPE)]);
    // To less, before the first was done.
    let less = store.begin_cut(ino, 7, at(4)).unwrap();
    assert_eq!((less.number, store.cuts_to_redo().unwrap()), (3, vec![less.clone()]));
    finish(&store, &cut);
    assert_eq!(store.cuts_to_redo().unwrap().len(), 1, "that was an older one");
    finish(&store, &less);
    finish(&store, &less);
    assert_eq!((size(&store, ino), store.cuts_to_redo().unwrap()), (7, vec![]));
    store.set_attr(&ROOT, Ino::ROOT, b"file", true, &change, at(5)).unwrap();
    store.tell_size(ino, 100, 3, u64::MAX, at(6)).unwrap();
    // To the size that it has: a writer did not live to tell.
    let same = store.begin_cut(ino, 100, at(7)).unwrap();
    assert_eq!((same.number, same.size_bytes), (4, 100));
    // An object that was cut by newer metadata than these.
    let again = store.finish_cut(ino, 4, 8, at(8)).unwrap().unwrap();
    assert_eq!((again.number, again.size_bytes), (9, 100));
    finish(&store, &again);
    assert_eq!(store.namespace().spread_of(ino).unwrap().cuts, 9);
}

#[test]
fn who_made_room_learns_whether_it_was_cut_off() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let store = Store::open(&config).unwrap();
    let ino = create(&store, "file");
    let first = store.reserve_append(ino, 1_000, at(2)).unwrap();
    assert_eq!((first.offset, first.cuts, store.namespace().spread_of(ino).unwrap().shortened), (0, 0, 0));
    // To the size that it has: all that was made stands.
    finish(&store, &store.begin_cut(ino, 1_000, at(3)).unwrap());
    let found = store.namespace().spread_of(ino).unwrap();
    assert_eq!((found.cuts, found.shortened), (1, 0));
    let second = store.reserve_append(ino, 1_000, at(4)).unwrap();
    assert_eq!((second.offset, second.cuts), (1_000, 1));
    finish(&store, &store.begin_cut(ino, 500, at(5)).unwrap());
    let found = store.namespace().spread_of(ino).unwrap();
    assert_eq!((found.cuts, found.shortened), (2, 2));
    assert_eq!(store.reserve_append(ino, 1, at(6)).unwrap().offset, 500);
    // Where it is not known it may be any of them.
    finish(&store, &store.begin_cut(ino, 501, at(7)).unwrap());
    store.close().unwrap();
    drop(store);
    let found = Store::open(&config).unwrap().namespace().spread_of(ino).unwrap();
    assert_eq!((found.cuts, found.shortened), (3, 3));
}

#[test]
fn a_file_that_lost_a_writer_grows_only_after_a_cut() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let mut store = Store::open(&config).unwrap();
    let (ino, set_id) = (create(&store, "file"), create(&store, "set-id"));
    let refused = |outcome| assert!(matches!(outcome, Err(StoreError::CutMeanwhile)));
    let grow = |store: &Store, cuts| store.tell_size(ino, 90_000, cuts, u64::MAX, at(3)).map(drop);
    store.tell_size(ino, 70_000, 0, u64::MAX, at(2)).unwrap();
    store.note_writer(ino, at(2)).unwrap();
    assert_eq!(store.cut_loose(9).unwrap(), []);
    store.namespace().note_loose(ino).unwrap();
    refused(grow(&store, 0));
    refused(store.set_size(ino, 90_000, at(3)).map(drop));
    assert_eq!(store.tell_size(ino, 70_000, 0, u64::MAX, at(3)).unwrap(), 70_000, "what does not grow may be told");
    let cuts = store.cut_loose(9).unwrap();
    assert_eq!((cuts[0].ino, cuts[0].number, cuts[0].size_bytes, cuts.len()), (ino, 1, 70_000, 1));
    refused(grow(&store, 1));
    finish(&store, &cuts[0]);
    assert_eq!(store.cut_loose(9).unwrap(), []);
    store.reserve_append(ino, 1, at(4)).unwrap();
    // A stop in order keeps it in mind.
    store.namespace().note_loose(ino).unwrap();
    store.close().unwrap();
    drop(store);
    store = Store::open(&config).unwrap();
    let cuts = store.cuts_to_redo().unwrap();
    assert_eq!((cuts[0].ino, cuts[0].number, cuts[0].size_bytes, cuts.len()), (ino, 2, 70_001, 1));
    finish(&store, &cuts[0]);
    // After any other nobody knows who wrote, also not of a file of which nothing was told.
    drop(store);
    store = Store::open(&config).unwrap();
    assert_eq!((store.cuts_to_redo().unwrap(), store.cut_loose(9).unwrap()), (vec![], vec![]), "nobody writes it");
    refused(grow(&store, 2));
    finish(&store, &store.cut_loose(9).unwrap()[0]);
    grow(&store, 3).unwrap();
    // Those of which nobody has written are loose also after clean stops.
    store.close().unwrap();
    drop(store);
    store = Store::open(&config).unwrap();
    store.set_attr(&ROOT, set_id, b"", true, &SetAttr { mode: Some(0o6755), ..SetAttr::default() }, at(5)).unwrap();
    store.note_writer(set_id, at(6)).unwrap();
    assert_eq!(store.get_attr(&ROOT, set_id, b"", true).unwrap().mode & 0o7777, 0o755);
    assert_eq!(store.cut_loose(9).unwrap()[0].ino, set_id);
    // One that is gone needs none.
    store.namespace().note_loose(ino).unwrap();
    store.unlink(&ROOT, Ino::ROOT, b"file", at(7)).unwrap();
    assert_eq!(store.cut_loose(9).unwrap(), []);
}

#[test]
fn objects_of_removed_files_are_told_until_they_are_gone() {
    let dir = scratch_dir();
    let config = config(dir.path(), 2);
    let mut store = Store::open(&config).unwrap();
    let unnamed = OpenHow { unnamed: true, create: false, ..how() };
    let [one, held, other] = ["one", "held", "other"].map(|name| create(&store, name));
    let nameless = store.open_spread(&ROOT, Ino::ROOT, b"", &unnamed, layout(), at(1)).unwrap().ino;
    let named = store.open_spread(&ROOT, Ino::ROOT, b"", &unnamed, layout(), at(1)).unwrap().ino;
    store.tell_size(named, 70_000, 0, u64::MAX, at(2)).unwrap();
    store.link(&ROOT, named, b"", false, Ino::ROOT, b"named", at(2)).unwrap();
    store.tell_size(one, 5, 0, u64::MAX, at(2)).unwrap();
    store.begin_cut(one, 0, at(2)).unwrap();
    for (ino, name) in [(one, "one"), (other, "other")] {
        store.release(ino).unwrap();
        store.unlink(&ROOT, Ino::ROOT, name.as_bytes(), at(3)).unwrap();
    }
    store.unlink(&ROOT, Ino::ROOT, b"held", at(3)).unwrap();
    let told = |store: &Store, after: Option<&SpreadObjects>| -> Vec<u64> {
        let all = store.objects_to_remove(after, 9).unwrap();
        assert!(all.iter().all(|objects| objects.layout == layout()));
        all.iter().map(|objects| objects.number).collect()
    };
    assert_eq!(told(&store, None), [one.0, other.0]);
    let first = store.objects_to_remove(None, 1).unwrap();
    assert_eq!((first.len(), told(&store, first.first())), (1, vec![other.0]));
    let is_wanted = |ino: Ino| store.namespace().is_wanted(ino.0, first[0].generation).unwrap();
    assert_eq!([held, one].map(is_wanted), [true, false]);
    assert_eq!(store.cuts_to_redo().unwrap(), [], "there is nothing to be cut any more");
    // A file that is open without a name is cut like any other.
    store.tell_size(held, 100, 0, u64::MAX, at(4)).unwrap();
    let cut = store.begin_cut(held, 50, at(4)).unwrap();
    assert_eq!(store.cuts_to_redo().unwrap(), std::slice::from_ref(&cut));
    finish(&store, &cut);
    first.iter().for_each(|gone| store.namespace().objects_removed((gone.number, gone.generation)).unwrap());
    assert_eq!(told(&store, None), [other.0]);
    store.release(held).unwrap();
    assert_eq!(told(&store, None), [held.0, other.0]);
    drop(store);
    // Nobody has it open any more.
    store = Store::open(&config).unwrap();
    assert_eq!(told(&store, None), [held.0, other.0, nameless.0]);
    let [cut] = &store.cuts_to_redo().unwrap()[..] else { panic!("one was written and got its first name") };
    assert_eq!((cut.ino, cut.size_bytes), (named, 70_000));
    let gone = store.objects_to_remove(None, 9).unwrap();
    gone.iter().for_each(|gone| store.namespace().objects_removed((gone.number, gone.generation)).unwrap());
    assert_eq!(told(&store, None), []);
    assert!(store.namespace().is_wanted(named.0, gone[0].generation).unwrap());
}

/// Two servers, one file, a writer, and messages that are late, come twice, and are cut off by kills.
struct Cluster {
    configs: [StoreConfig; 2],
    stores: [Option<Store>; 2],
    ino: Ino,
    objects: SpreadObjects,
    /// Nothing where either is right.
    model: Vec<Option<u8>>,
    /// What the writer knows, or knew once.
    known: (u64, u64),
    write: Option<Write>,
    cut: Option<(Cut, Vec<usize>)>,
    /// Messages that may come once more.
    sent: Vec<(ObjectPlace, u64, u64)>,
    /// What a writer who is gone had begun to write, and of which cut he knew.
    abandoned: Option<(Write, u64)>,
    clock: i64,
    _dir: tempfile::TempDir,
}

/// A write that has not returned.
#[derive(Clone, Copy)]
struct Write {
    offset: u64,
    len: u64,
    fill: u8,
    done: u64,
    /// How far any attempt before this one came.
    reached: u64,
    /// The lowest and the highest number of a cut that it met.
    cuts: (u64, u64),
    /// The least size that a cut beside it left.
    limit: u64,
}

impl Write {
    fn again(self) -> Self {
        Self { done: 0, reached: self.reached.max(self.done), cuts: (u64::MAX, 0), ..self }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Learn,
    Write { offset: u64, len: u64, fill: u8 },
    GoOn,
    Abandon,
    LateWrite { by: u64 },
    Cut { size: u64 },
    CutOne { which: usize },
    Late { which: usize },
    Extend { by: u64 },
    Kill { server: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Learn),
        5 => (0..40_000u64, 1..20_000u64, 1u8..).prop_map(|(offset, len, fill)| Step::Write { offset, len, fill }),
        20 => Just(Step::GoOn),
        1 => Just(Step::Abandon),
        2 => (0..20_000u64).prop_map(|by| Step::LateWrite { by }),
        3 => prop_oneof![Just(0), 0..60_000u64].prop_map(|size| Step::Cut { size }),
        8 => (0..3usize).prop_map(|which| Step::CutOne { which }),
        3 => any::<usize>().prop_map(|which| Step::Late { which }),
        1 => (1..30_000u64).prop_map(|by| Step::Extend { by }),
        1 => (0..2usize).prop_map(|server| Step::Kill { server }),
    ]
}

impl Cluster {
    fn new() -> Self {
        let dir = scratch_dir();
        let here = config(&dir.path().join("here"), 2);
        let target = TargetDir { id: THERE, dir: dir.path().join("there/target") };
        let there = StoreConfig::new(dir.path().join("there/store"), ServerId(1), vec![target]);
        let configs = [here, there];
        let stores = [0, 1].map(|server: usize| Some(Store::open(&configs[server]).unwrap()));
        let ino = create(stores[0].as_ref().unwrap(), "file");
        let objects = stores[0].as_ref().unwrap().namespace().spread_of(ino).unwrap().objects;
        let (model, sent) = (Vec::new(), Vec::new());
        Self {
            configs,
            stores,
            ino,
            objects,
            model,
            known: (0, 0),
            write: None,
            cut: None,
            sent,
            abandoned: None,
            clock: 10,
            _dir: dir,
        }
    }

    fn server(&self, place: ObjectPlace) -> &Store {
        self.stores[usize::from(place.target == THERE)].as_ref().unwrap()
    }

    fn volume(&self) -> &Store {
        self.stores[0].as_ref().unwrap()
    }

    /// Where the byte at `offset` is, and how many from there on.
    fn place(&self, offset: u64) -> (ObjectPlace, u64, u64) {
        let (stripe, within) = (offset / STRIPE, offset % STRIPE);
        let place = self.objects.places().nth((stripe % 3) as usize).unwrap();
        (place, stripe / 3 * STRIPE + within, STRIPE - within)
    }

    fn step(&mut self, step: &Step) {
        self.clock += 1;
        let now = at(self.clock);
        match *step {
            Step::Learn if self.write.is_none() => {
                let Spread { size_bytes, cuts, .. } = self.volume().namespace().spread_of(self.ino).unwrap();
                self.known = (size_bytes, cuts);
                self.compare();
            }
            Step::Write { offset, len, fill } if self.write.is_none() => {
                let limit = self.cut.as_ref().map_or(u64::MAX, |(cut, _)| cut.size_bytes);
                self.write = Some(Write { offset, len, fill, done: 0, reached: 0, cuts: (0, 0), limit }.again());
            }
            Step::GoOn => self.go_on_writing(),
            Step::Abandon => {
                let Some(write) = self.write else { return };
                self.unsettle_write();
                self.write = None;
                self.abandoned = Some((write, self.known.1));
                self.volume().namespace().note_loose(self.ino).unwrap();
            }
            Step::LateWrite { by } => {
                // Behind the end, where nobody is to see it.
                let Some((write, known)) = self.abandoned else { return };
                let (place, at, run) = self.place(self.model.len() as u64 + by);
                let bytes = vec![write.fill; run as usize];
                match self.server(place).objects().write_object_after(known, place, at, &bytes[..]) {
                    Ok(_) | Err(StoreError::CutMeanwhile) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Cut { size } if size <= self.model.len() as u64 => {
                let cut = self.volume().begin_cut(self.ino, size, now).unwrap();
                self.model.truncate(size as usize);
                self.begin(cut);
            }
            Step::CutOne { which } => {
                let Some((cut, left)) = &mut self.cut else { return };
                if !left.is_empty() {
                    let (place, size) = cut.parts().nth(left.remove(which % left.len())).unwrap();
                    let number = cut.number;
                    self.sent.push((place, number, size));
                    assert_eq!(self.server(place).objects().cut_object(place, number, size).unwrap(), number);
                } else {
                    finish(self.stores[0].as_ref().unwrap(), cut);
                    self.cut = None;
                }
            }
            Step::Late { which } if !self.sent.is_empty() => {
                let (place, number, size) = self.sent[which % self.sent.len()];
                assert!(self.server(place).objects().cut_object(place, number, size).unwrap() >= number);
            }
            Step::Extend { by } => {
                let size = self.model.len() as u64 + by;
                match self.volume().set_size(self.ino, size, now) {
                    // Not the byte that a write which has not returned put there: that one is in the way.
                    Ok(_) => {
                        self.model.resize(size as usize, Some(0));
                        self.unsettle_write();
                    }
                    Err(error) => {
                        assert!(matches!(error, StoreError::CutMeanwhile), "{error}");
                        self.cut_loose();
                        assert!(self.cut.is_some(), "nothing keeps it from growing");
                    }
                }
            }
            Step::Kill { server } => {
                self.stores[server] = None;
                self.stores[server] = Some(Store::open(&self.configs[server]).unwrap());
                if server == 0 {
                    self.cut = None;
                    if let [cut] = &self.volume().cuts_to_redo().unwrap()[..] {
                        self.begin(cut.clone());
                    }
                }
            }
            _ => {}
        }
    }

    /// What the server does now and then.
    fn cut_loose(&mut self) {
        if let [cut] = &self.volume().cut_loose(9).unwrap()[..] {
            self.begin(cut.clone());
        }
    }

    fn begin(&mut self, cut: Cut) {
        assert_eq!(cut.size_bytes, self.model.len() as u64);
        if let Some(write) = &mut self.write {
            write.limit = write.limit.min(cut.size_bytes);
        }
        self.cut = Some((cut, vec![0, 1, 2]));
    }

    /// What a write under way has put where the file ends by now, or ends further on by now, may be seen or not.
    fn unsettle_write(&mut self) {
        if let Some(Write { offset, done, reached, .. }) = self.write {
            let end = (offset + done.max(reached)).min(self.model.len() as u64);
            self.model.get_mut(offset as usize..end as usize).unwrap_or_default().fill(None);
        }
    }

    fn go_on_writing(&mut self) {
        let Some(write) = self.write else { return };
        let Write { offset, len, fill, done, cuts: (lowest, highest), limit, .. } = write;
        if done < len {
            let (place, at, run) = self.place(offset + done);
            let part = run.min(len - done);
            let bytes = vec![fill; part as usize];
            let outcome = self.server(place).objects().write_object_after(self.known.1, place, at, &bytes[..]);
            if let Err(StoreError::CutMeanwhile) = outcome {
                let Spread { size_bytes, cuts, .. } = self.volume().namespace().spread_of(self.ino).unwrap();
                assert!(cuts > self.known.1);
                self.known = (size_bytes, cuts);
                self.write = Some(write.again());
                return;
            }
            let ObjectWritten { len: written, cuts } = outcome.unwrap();
            assert_eq!(written as u64, part);
            let cuts = (lowest.min(cuts), highest.max(cuts));
            self.write = Some(Write { done: done + part, cuts, ..write });
            return self.unsettle_write();
        }
        let end = offset + len;
        let (known_size, known_cuts) = self.known;
        // What it is sure to leave: a cut beside it may have come after it.
        let mut kept = end.min(limit);
        if end > known_size || (lowest, highest) != (known_cuts, known_cuts) {
            match self.volume().tell_size(self.ino, end, lowest, u64::MAX, at(self.clock)) {
                Ok(size) => self.known = (size, lowest),
                Err(StoreError::CutMeanwhile) => {
                    self.write = Some(write.again());
                    return self.cut_loose();
                }
                Err(error) => panic!("{error}"),
            }
            let size = self.model.len().max(end as usize);
            self.model.resize(size, Some(0));
            kept = end;
        }
        assert!(kept <= self.model.len() as u64, "a write that nobody will see");
        self.model.get_mut(offset as usize..kept as usize).unwrap_or_default().fill(Some(fill));
        self.write = None;
    }

    fn content(&self) -> Vec<u8> {
        let size = self.volume().namespace().spread_of(self.ino).unwrap().size_bytes;
        let mut bytes = vec![0; size as usize];
        let mut done = 0;
        while done < size {
            let (place, at, run) = self.place(done);
            let part = &mut bytes[done as usize..(done + run).min(size) as usize];
            self.server(place).objects().read_object(place, at, part).unwrap();
            done += run;
        }
        bytes
    }

    fn end(&mut self) {
        while self.write.is_some() || self.cut.is_some() {
            self.step(&Step::CutOne { which: 0 });
            self.step(&Step::GoOn);
        }
    }

    fn compare(&self) {
        let found = self.content();
        assert_eq!(found.len(), self.model.len());
        let wrong = (0..found.len()).find(|at| self.model[*at].is_some_and(|byte| byte != found[*at]));
        assert_eq!(wrong.map(|at| (at, found[at], self.model[at])), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn no_acknowledged_write_is_lost_and_no_old_byte_comes_back(steps in prop::collection::vec(step(), 1..200)) {
        let mut cluster = Cluster::new();
        for step in &steps {
            cluster.step(step);
        }
        cluster.end();
        cluster.compare();
        // Nothing is hidden behind the end.
        let size = cluster.model.len() as u64 + 50_000;
        if let Err(error) = cluster.volume().set_size(cluster.ino, size, at(9)) {
            prop_assert!(matches!(error, StoreError::CutMeanwhile));
            cluster.cut_loose();
            cluster.end();
            cluster.volume().set_size(cluster.ino, size, at(9)).unwrap();
        }
        cluster.model.resize(cluster.model.len() + 50_000, Some(0));
        cluster.compare();
    }
}
