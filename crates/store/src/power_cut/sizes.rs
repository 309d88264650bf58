//! Sizes and times after stops: a size is not ahead of bytes that a power cut took, and a kill takes nothing.

use super::{Machine, ROOT, at};
use crate::{RenameHow, SetAttr, TimeChange};
use isonomia_proto::fs::Attr;
use isonomia_units::Ino;
use std::collections::BTreeMap;
use std::path::PathBuf;

impl Machine {
    fn kill(&mut self) {
        self.store = None;
        self.start();
    }

    /// Cuts the power, and leaves of objects no more than they had then.
    fn cut_power_with(&mut self, lengths: &BTreeMap<PathBuf, u64>) {
        self.store = None;
        for (path, length) in self.lengths() {
            let length = lengths.get(&path).copied().unwrap_or(0).min(length);
            std::fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
        }
        self.cut_power();
    }

    fn lengths(&self) -> BTreeMap<PathBuf, u64> {
        let paths = self.object_paths().into_iter();
        paths.map(|path| (path.clone(), std::fs::metadata(path).unwrap().len())).collect()
    }

    fn attr(&self, name: &str) -> Attr {
        self.store().get_attr(&ROOT, Ino::ROOT, name.as_bytes(), true).unwrap()
    }

    fn set(&self, name: &str, change: SetAttr) {
        self.store().set_attr(&ROOT, Ino::ROOT, name.as_bytes(), true, &change, at(8)).unwrap();
    }
}

/// Everything that writes a record, and syncs no object.
fn disturb(machine: &Machine, name: &str, ino: Ino) {
    let store = machine.store();
    machine.set(name, SetAttr { mode: Some(0o640), ..SetAttr::default() });
    store.set_xattr(&ROOT, ino, b"", true, b"user.a", b"1", crate::XattrHow::Either, at(8)).unwrap();
    store.link(&ROOT, ino, b"", false, Ino::ROOT, b"second", at(8)).unwrap();
    store.flush_dirty().unwrap();
    store.write(ino, 0, &[1; 10], at(9)).unwrap();
    machine.set(name, SetAttr { mtime: Some(TimeChange::Now), ..SetAttr::default() });
    machine.rename(name, "moved", RenameHow::Replace);
    machine.release_all(&[ino]);
    store.db.sync().unwrap();
}

#[test]
fn a_size_is_not_ahead_of_bytes_that_were_never_synced() {
    for targets in [1, 3] {
        for synced in [0, 5_000] {
            let mut machine = Machine::new(targets);
            let ino = machine.synced("file", 1, synced);
            let lengths = machine.lengths();
            machine.store().write(ino, synced as u64, &[1; 20_000], at(3)).unwrap();
            disturb(&machine, "file", ino);
            assert_eq!(machine.len_of("moved", 1), Some(synced + 20_000));
            machine.cut_power_with(&lengths);
            assert_eq!(machine.len_of("moved", 1), Some(synced));
        }
    }
}

#[test]
fn a_size_is_there_with_bytes_that_were_synced() {
    for targets in [1, 3] {
        for way in ["fsync", "settle", "close"] {
            let mut machine = Machine::new(targets);
            let ino = machine.open("file");
            machine.store().write(ino, 0, &[1; 25_000], at(3)).unwrap();
            disturb(&machine, "file", ino);
            match way {
                "fsync" => machine.store().fsync(ino, true).unwrap(),
                "settle" => machine.settle(),
                _ => machine.store().close().unwrap(),
            }
            assert_eq!(machine.store().db.dirty_records().unwrap(), [], "{way}");
            assert_eq!(machine.store().namespace.dirty_inodes().all().count(), 0, "{way}");
            let lengths = machine.lengths();
            machine.cut_power_with(&lengths);
            assert_eq!(machine.len_of("moved", 1), Some(25_000), "{way}");
        }
    }
}

#[test]
fn what_is_synced_together_with_its_attributes_is_there() {
    for targets in [1, 3] {
        let mut machine = Machine::new(targets);
        // As a server does it for a program.
        let sync = |machine: &Machine, ino: Ino, data_only| {
            let all: Vec<_> = machine.config.targets.iter().map(|target| target.id).collect();
            let (last, others) = all.split_last().unwrap();
            others.iter().for_each(|target| machine.store().fsync_target(ino, Some(*target)).unwrap());
            let bytes = || machine.store().fsync_target(ino, Some(*last));
            machine.store().fsync_with_attributes(ino, data_only, bytes).unwrap();
        };
        let (grown, reserved, again) = (machine.open("grown"), machine.open("reserved"), machine.open("again"));
        machine.store().write(grown, 0, &[1; 25_000], at(3)).unwrap();
        sync(&machine, grown, false);
        machine.store().write(reserved, 0, &[1; 100], at(3)).unwrap();
        machine.store().reserve_append(reserved, 30_000, at(4)).unwrap();
        sync(&machine, reserved, true);
        for end in [9_000, 18_000, 27_000] {
            machine.store().append(again, &[1; 9_000], at(5)).unwrap();
            sync(&machine, again, true);
            assert_eq!(machine.attr("again").size_bytes, end);
        }
        let lengths = machine.lengths();
        machine.store().append(again, &[1; 9_000], at(6)).unwrap();
        machine.cut_power_with(&lengths);
        assert_eq!((machine.len_of("grown", 1), machine.len_of("again", 1)), (Some(25_000), Some(27_000)));
        assert_eq!((machine.attr("grown").mtime, machine.attr("reserved").size_bytes), (at(3), 30_100));
    }
}

#[test]
fn what_is_synced_into_room_that_was_made_before_is_there() {
    for targets in [1, 3] {
        let mut machine = Machine::new(targets);
        let ino = machine.open("file");
        let store = machine.store();
        store.set_size(ino, 8_192, at(2)).unwrap();
        store.fsync(ino, false).unwrap();
        // The size is on stable storage; that there is an object is not.
        store.write(ino, 0, &[7; 4_096], at(3)).unwrap();
        store.fsync(ino, true).unwrap();
        machine.cut_power();
        let ino = machine.find("file").unwrap();
        assert!(machine.content(ino)[..4_096] == [7; 4_096], "{targets} targets");
    }
}

#[test]
fn an_append_during_a_sync_is_not_taken_for_synced() {
    for targets in [1, 3] {
        let mut machine = Machine::new(targets);
        let ino = machine.open("file");
        let store = machine.store();
        store.write(ino, 0, &[1; 5_000], at(3)).unwrap();
        for target in store.namespace().layout(ino).unwrap().targets.iter() {
            store.fsync_target(ino, Some(*target)).unwrap();
        }
        let lengths = machine.lengths();
        store.append(ino, &[1; 20_000], at(3)).unwrap();
        store.fsync_attributes(ino, true).unwrap();
        machine.cut_power_with(&lengths);
        assert_eq!(machine.len_of("file", 1), Some(5_000));
        // Nor is one that came after a cut, whatever was synced before.
        let ino = machine.open("file");
        let store = machine.store();
        let targets = store.namespace().layout(ino).unwrap().targets.clone();
        targets.iter().for_each(|target| store.fsync_target(ino, Some(*target)).unwrap());
        store.set_size(ino, 1_000, at(4)).unwrap();
        let lengths = machine.lengths();
        store.append(ino, &[1; 20_000], at(5)).unwrap();
        store.fsync_attributes(ino, true).unwrap();
        machine.cut_power_with(&lengths);
        assert_eq!(machine.len_of("file", 1), Some(1_000));
    }
}

#[test]
fn a_kill_takes_no_size_and_no_time() {
    for targets in [1, 3] {
        let mut machine = Machine::new(targets);
        let ino = machine.open("file");
        machine.store().write(ino, 0, &[1; 25_000], at(3)).unwrap();
        disturb(&machine, "file", ino);
        machine.kill();
        assert_eq!(machine.len_of("moved", 1), Some(25_000));
        assert_eq!(machine.attr("moved").mtime, at(8), "it was set after the last write");
        // And of one that nobody flushed.
        let ino = machine.open("copy");
        machine.store().write(ino, 0, &[1; 9_000], at(3)).unwrap();
        machine.set("copy", SetAttr { mtime: Some(TimeChange::At(at(1))), ..SetAttr::default() });
        machine.kill();
        assert_eq!((machine.len_of("copy", 1), machine.attr("copy").mtime), (Some(9_000), at(1)));
    }
}

#[test]
fn what_was_flushed_may_leave_memory_and_keeps_its_size() {
    const FILES: usize = 300;
    let mut machine = Machine::new(2);
    machine.store = None;
    machine.config.bounds.inodes = 1;
    machine.config.checksums = false;
    machine.start();
    for number in 0..FILES {
        let ino = machine.open(&format!("file{number}"));
        machine.store().write(ino, 0, &vec![1; 1 + number], at(3)).unwrap();
        machine.release_all(&[ino]);
    }
    let left = (0..FILES).filter(|number| machine.store().namespace.inodes.get(2 + *number as u64).is_some()).count();
    assert!(left < FILES / 2, "{left} are in memory");
    let sizes = |machine: &Machine| -> Vec<usize> {
        (0..FILES).map(|number| machine.len_of(&format!("file{number}"), 1).unwrap()).collect()
    };
    assert_eq!(sizes(&machine), (1..=FILES).collect::<Vec<_>>());
    machine.set("file7", SetAttr { mode: Some(0o640), ..SetAttr::default() });
    let appended = machine.find("file8").unwrap();
    machine.store().append(appended, &[1; 10], at(4)).unwrap();
    machine.kill();
    let expected: Vec<usize> = (0..FILES).map(|number| if number == 8 { 19 } else { 1 + number }).collect();
    assert_eq!(sizes(&machine), expected);
}

#[test]
fn a_change_of_attributes_during_a_cut_does_not_bring_the_old_size_back() {
    let mut machine = Machine::new(1);
    let ino = machine.synced("file", 1, 40_000);
    let inode = machine.store().namespace.load(ino.0).unwrap();
    machine.store().store_size(&inode, &mut inode.own_data(), 6_000, true, at(3)).unwrap();
    machine.set("file", SetAttr { mode: Some(0o640), ..SetAttr::default() });
    drop(inode);
    machine.cut_power();
    assert_eq!(machine.len_of("file", 1), Some(6_000));
}
