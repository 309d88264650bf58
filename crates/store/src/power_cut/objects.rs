//! Power cuts of detached objects and of spread files.

use super::{Machine, ROOT, at};
use crate::checksum::ObjectId;
use crate::{ObjectPlace, OpenHow, StoreError};
use isonomia_proto::fs::{Layout, access};
use isonomia_units::{Ino, TargetId, VolumeId};
use std::sync::Arc;

const PLACE: ObjectPlace = ObjectPlace {
    object: ObjectId { number: Ino::new(VolumeId(7), 0x2a).0, generation: 9, index: 3 },
    target: TargetId(0),
};

impl Machine {
    /// The object has nothing but `byte`, and so many.
    fn object_len(&self, byte: u8) -> usize {
        let mut bytes = vec![0xee; 1 << 20];
        let len = self.store().objects().read_object(PLACE, 0, &mut bytes).unwrap();
        assert!(bytes[..len].iter().all(|found| *found == byte), "the object has other bytes than {byte}");
        len
    }

    fn write_object(&self, byte: u8, range: std::ops::Range<u64>) {
        self.store()
            .objects()
            .write_object(PLACE, range.start, &vec![byte; (range.end - range.start) as usize])
            .unwrap();
    }

    fn spread(&self, name: &str) -> Ino {
        let layout = Arc::new(Layout { stripe_bytes: 4096, targets: vec![TargetId(0), TargetId(77)], grows: false });
        let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
        self.store().open_spread(&ROOT, Ino::ROOT, name.as_bytes(), &how, layout, at(1)).unwrap().ino
    }

    fn size(&self, ino: Ino) -> u64 {
        self.store().get_attr(&ROOT, ino, b"", true).unwrap().size_bytes
    }
}

#[test]
fn an_object_that_was_synced_is_there_and_one_that_was_not_is_nobodys() {
    let mut machine = Machine::new(1);
    machine.write_object(1, 0..10_000);
    machine.cut_power();
    assert_eq!((machine.object_len(1), machine.objects()), (0, 0), "its record is lost");
    machine.write_object(1, 0..10_000);
    machine.store().objects().sync_object(PLACE).unwrap();
    // Written once more, also after it was settled: bytes and checksums on stable storage do not agree.
    for is_settled in [false, true] {
        machine.cut_power();
        assert_eq!(machine.object_len(1), 10_000);
        if is_settled {
            machine.settle();
        }
        machine.write_object(1, 5_000..20_000);
        machine.cut_power();
        assert_eq!(machine.object_len(1), 20_000, "the host wrote it back");
        machine.store().objects().cut_object(PLACE, 1 + u64::from(is_settled), 10_000).unwrap();
    }
}

#[test]
fn a_cut_is_done_once_and_what_was_synced_after_it_stays() {
    let mut machine = Machine::new(1);
    machine.write_object(1, 0..40_000);
    machine.store().objects().sync_object(PLACE).unwrap();
    machine.store().objects().cut_object(PLACE, 5, 6_000).unwrap();
    // Of the database there is what the cut itself synced: that it is to be done.
    machine.cut_power();
    assert_eq!(machine.object_len(1), 6_000);
    machine.cut_power();
    machine.store().objects().cut_object(PLACE, 6, 5_000).unwrap();
    machine.write_object(1, 5_000..30_000);
    machine.store().objects().sync_object(PLACE).unwrap();
    machine.cut_power();
    assert_eq!(machine.object_len(1), 30_000, "written after the cut, and synced");
    for late in 1..=6 {
        assert_eq!(machine.store().objects().cut_object(PLACE, late, 0).unwrap(), 6);
    }
    assert_eq!(machine.object_len(1), 30_000);
    // One that never existed remembers as well.
    let other = ObjectPlace { object: ObjectId { index: 4, ..PLACE.object }, ..PLACE };
    machine.store().objects().cut_object(other, 6, 0).unwrap();
    machine.cut_power();
    assert_eq!(machine.store().objects().write_object(other, 0, b"new").unwrap().cuts, 6);
    assert_eq!(machine.store().objects().cut_object(other, 6, 0).unwrap(), 6);
    assert_eq!(machine.store().objects().stat_object(other).unwrap().size_bytes, 3);
}

#[test]
fn a_cut_that_was_stopped_on_its_way_is_done_before_the_object_is_used() {
    let mut machine = Machine::new(1);
    machine.write_object(1, 0..40_000);
    machine.store().objects().sync_object(PLACE).unwrap();
    machine.settle();
    let path = machine.object_paths().remove(0);
    let whole = std::fs::read(&path).unwrap();
    machine.store().objects().cut_object(PLACE, 1, 6_000).unwrap();
    // The host was about to cut it.
    machine.store = None;
    std::fs::write(&path, &whole).unwrap();
    machine.cut_power();
    assert_eq!(machine.store().objects().stat_object(PLACE).unwrap().size_bytes, 6_000);
    machine.write_object(1, 6_000..9_000);
    assert_eq!(machine.object_len(1), 9_000);
    machine.store().objects().sync_object(PLACE).unwrap();
    machine.cut_power();
    assert_eq!(machine.object_len(1), 9_000);
}

#[test]
fn what_was_removed_stays_so_and_a_late_write_does_not_bring_it_back() {
    let mut machine = Machine::new(1);
    machine.write_object(1, 0..10_000);
    machine.store().objects().sync_object(PLACE).unwrap();
    machine.settle();
    machine.store().objects().remove_detached(&[PLACE], 100, 50).unwrap();
    assert_eq!(machine.objects(), 0);
    for _ in 0..2 {
        machine.cut_power();
        assert!(matches!(machine.store().objects().write_object(PLACE, 0, b"late"), Err(StoreError::Stale)));
        assert_eq!(machine.store().objects().cut_object(PLACE, 3, 0).unwrap(), 3, "nothing is left to cut");
        machine.store().objects().remove_detached(&[PLACE], 100, 50).unwrap();
        assert_eq!(machine.store().objects().forget_removed(100).unwrap(), 0);
    }
    assert_eq!((machine.store().objects().forget_removed(101).unwrap(), machine.objects()), (1, 0));
    // The host loses the removal of the file, and the database keeps it.
    machine.write_object(2, 0..10);
    machine.store().objects().sync_object(PLACE).unwrap();
    let path = machine.object_paths().remove(0);
    machine.store().objects().remove_detached(&[PLACE], 0, 200).unwrap();
    std::fs::write(path, b"back again").unwrap();
    machine.cut_power();
    assert_eq!((machine.objects(), machine.store().objects().detached_objects(None, 9).unwrap()), (0, vec![]));
}

#[test]
fn a_size_that_was_synced_is_there_and_objects_are_cut_to_it() {
    let mut machine = Machine::new(1);
    let ino = machine.spread("file");
    machine.store().tell_size(ino, 10_000, 0, u64::MAX, at(2)).unwrap();
    machine.store().fsync_attributes(ino, true).unwrap();
    machine.store().tell_size(ino, 90_000, 0, u64::MAX, at(3)).unwrap();
    machine.cut_power();
    assert_eq!(machine.size(ino), 10_000, "the rest was in nobody's journal");
    // What its writers did before nobody knows.
    assert!(matches!(machine.store().tell_size(ino, 20_000, 0, u64::MAX, at(4)), Err(StoreError::CutMeanwhile)));
    let [cut] = &machine.store().cut_loose(9).unwrap()[..] else { panic!("one file is to grow") };
    assert_eq!((cut.number, cut.size_bytes), (1, 10_000));
    machine.store().finish_cut(ino, 1, 1, at(4)).unwrap();
    machine.store().tell_size(ino, 20_000, 1, u64::MAX, at(4)).unwrap();
    machine.store().sync().unwrap();
    machine.store().tell_size(ino, 90_000, 1, u64::MAX, at(5)).unwrap();
    machine.cut_power();
    let [cut] = &machine.store().cuts_to_redo().unwrap()[..] else { panic!("one file was being written") };
    assert_eq!((cut.number, cut.size_bytes, machine.size(ino)), (2, 20_000, 20_000));
}

#[test]
fn a_cut_that_was_begun_is_on_stable_storage() {
    let mut machine = Machine::new(1);
    let ino = machine.spread("file");
    machine.store().tell_size(ino, 10_000, 0, u64::MAX, at(2)).unwrap();
    let cut = machine.store().begin_cut(ino, 100, at(3)).unwrap();
    for _ in 0..2 {
        machine.cut_power();
        assert_eq!(machine.store().cuts_to_redo().unwrap(), std::slice::from_ref(&cut));
    }
    machine.store().finish_cut(ino, cut.number, cut.number, at(4)).unwrap();
    // Objects that had done it before the power went may have been written to since.
    assert!(matches!(
        machine.store().tell_size(ino, 50_000, cut.number, u64::MAX, at(5)),
        Err(StoreError::CutMeanwhile)
    ));
    let [cut] = &machine.store().cut_loose(9).unwrap()[..] else { panic!("one file is to grow") };
    assert_eq!((cut.number, cut.size_bytes), (2, 100));
    machine.store().finish_cut(ino, cut.number, cut.number, at(5)).unwrap();
    // Grown again, and synced: nothing cuts that off.
    machine.store().tell_size(ino, 50_000, cut.number, u64::MAX, at(5)).unwrap();
    machine.store().fsync_attributes(ino, false).unwrap();
    machine.cut_power();
    assert_eq!((machine.size(ino), machine.store().cuts_to_redo().unwrap()), (50_000, vec![]));
    assert_eq!(machine.store().begin_cut(ino, 0, at(6)).unwrap().number, 3);
}

#[test]
fn objects_are_to_be_removed_once_it_is_certain_that_nobody_needs_them() {
    let mut machine = Machine::new(1);
    let ino = machine.spread("file");
    machine.store().fsync_attributes(ino, false).unwrap();
    machine.store().release(ino).unwrap();
    machine.remove_name("file");
    machine.cut_power();
    assert!(machine.find("file").is_some(), "the removal was in nobody's journal");
    machine.remove_name("file");
    let told = machine.store().objects_to_remove(None, 9).unwrap();
    machine.cut_power();
    assert_eq!((machine.find("file"), machine.store().objects_to_remove(None, 9).unwrap()), (None, told.clone()));
    told.iter().for_each(|gone| machine.store().namespace().objects_removed((gone.number, gone.generation)).unwrap());
    assert_eq!(machine.store().objects_to_remove(None, 9).unwrap(), []);
}
