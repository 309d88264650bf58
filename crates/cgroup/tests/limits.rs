//! Limits in directories that look like control groups, and in real ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use isonomia_cgroup::{Device, Direction, Group, Knob, Layout, Limit, Limits, Removed, remove};
use isonomia_testbed::{is_root_to, skip};
use isonomia_units::Rate;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const DISK: Device = Device { major: 8, minor: 0 };
const WRITES: Knob = Knob { layout: Layout::V1, direction: Direction::Write };

/// A group in which the kernel's files are plain ones: what was written last is what they begin with.
fn group(home: &Path, name: &str, layout: Layout) -> Group {
    let dir = home.join(name);
    fs::create_dir(&dir).unwrap();
    for direction in [Direction::Read, Direction::Write] {
        fs::write(dir.join(Knob { layout, direction }.file()), "").unwrap();
    }
    Group { dir, layout }
}

fn writes(rate: u64) -> Limit {
    Limit { write: Rate::new(rate), ..Limit::default() }
}

fn reads(rate: u64) -> Limit {
    Limit { read: Rate::new(rate), ..Limit::default() }
}

fn file(group: &Group, direction: Direction) -> PathBuf {
    group.dir.join(Knob { layout: group.layout, direction }.file())
}

#[test]
fn what_is_written_is_what_the_kernel_reads() {
    let home = tempfile::tempdir().unwrap();
    let record = home.path().join("record");
    let (old, new) = (group(home.path(), "old", Layout::V1), group(home.path(), "new", Layout::V2));
    let mut limits = Limits::open(&record, DISK).unwrap();
    let both = Limit { read: Rate::new(2_000), write: Rate::new(1_000) };
    limits.set(&BTreeMap::from([(old.clone(), both), (new.clone(), reads(3_000))])).unwrap();
    assert_eq!(fs::read(file(&old, Direction::Read)).unwrap(), b"8:0 2000\n");
    assert_eq!(fs::read(file(&old, Direction::Write)).unwrap(), b"8:0 1000\n");
    assert_eq!(fs::read(file(&new, Direction::Read)).unwrap(), b"8:0 rbps=3000\n");
    assert_eq!(limits.len(), 3);
    // Of two limits one goes, and one is another.
    limits.set(&BTreeMap::from([(old.clone(), writes(4_000))])).unwrap();
    assert!(fs::read(file(&old, Direction::Read)).unwrap().starts_with(b"8:0 0\n"));
    assert_eq!(fs::read(file(&old, Direction::Write)).unwrap(), b"8:0 4000\n");
    assert!(fs::read(file(&new, Direction::Read)).unwrap().starts_with(b"8:0 rbps=max\n"));
    drop(limits);
    assert!(fs::read(file(&old, Direction::Write)).unwrap().starts_with(b"8:0 0\n"));
    assert_eq!(fs::read(&record).unwrap(), b"isonomia limits 1\n");
}

#[test]
fn limits_of_others_are_not_touched() {
    let home = tempfile::tempdir().unwrap();
    let record = home.path().join("record");
    let [before, later] = ["before", "later"].map(|name| group(home.path(), name, Layout::V1));
    fs::write(file(&before, Direction::Write), "8:0 77\n").unwrap();
    let mut limits = Limits::open(&record, DISK).unwrap();
    let wanted = BTreeMap::from([(before.clone(), writes(1_000)), (later.clone(), writes(1_000))]);
    limits.set(&wanted).unwrap();
    fs::write(file(&later, Direction::Write), "8:0 88\n").unwrap();
    limits.set(&wanted).unwrap();
    drop(limits);
    assert_eq!(fs::read(file(&before, Direction::Write)).unwrap(), b"8:0 77\n");
    assert_eq!(fs::read(file(&later, Direction::Write)).unwrap(), b"8:0 88\n");
}

#[test]
fn a_group_that_goes_is_forgotten() {
    let home = tempfile::tempdir().unwrap();
    let record = home.path().join("record");
    let [gone, stays] = ["gone", "stays"].map(|name| group(home.path(), name, Layout::V1));
    let mut limits = Limits::open(&record, DISK).unwrap();
    let wanted = BTreeMap::from([(gone.clone(), writes(1_000)), (stays, writes(1_000))]);
    limits.set(&wanted).unwrap();
    fs::remove_dir_all(&gone.dir).unwrap();
    limits.set(&wanted).unwrap();
    assert_eq!(limits.len(), 1);
    assert_eq!(fs::read_to_string(&record).unwrap().lines().count(), 2);
}

#[test]
fn what_a_killed_process_left_is_removed() {
    let home = tempfile::tempdir().unwrap();
    let record = home.path().join("record");
    let [ours, theirs] = ["ours", "theirs"].map(|name| group(home.path(), name, Layout::V1));
    let mut limits = Limits::open(&record, DISK).unwrap();
    limits.set(&BTreeMap::from([(ours.clone(), writes(1_000)), (theirs.clone(), writes(1_000))])).unwrap();
    // As after a kill: nobody removes anything.
    std::mem::forget(limits);
    fs::write(file(&theirs, Direction::Write), "8:0 99\n").unwrap();
    assert_eq!(remove(&record).unwrap(), Removed { removed: 1, let_go: 1 });
    assert!(fs::read(file(&ours, Direction::Write)).unwrap().starts_with(b"8:0 0\n"));
    assert_eq!(fs::read(file(&theirs, Direction::Write)).unwrap(), b"8:0 99\n");
    assert_eq!(remove(&record).unwrap(), Removed::default());
    assert_eq!(remove(&home.path().join("none")).unwrap(), Removed::default());
    // A kill between the record and the kernel: what the record has need not have been set.
    fs::write(file(&ours, Direction::Write), "8:0 1000\n").unwrap();
    fs::write(&record, format!("isonomia limits 1\nv1 write 8:0 1000,2000 {}\n", ours.dir.display())).unwrap();
    assert_eq!(remove(&record).unwrap(), Removed { removed: 1, let_go: 0 });
    fs::write(&record, "something else\n").unwrap();
    let error = Limits::open(&record, DISK).unwrap_err().to_string();
    assert!(error.ends_with("line 1 of the record of limits cannot be read: \"something else\""), "{error}");
}

/// A real group of cgroup v1; gone with this value.
struct Real(PathBuf);

impl Drop for Real {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A disk of this host.
fn disk() -> Option<Device> {
    let disks = fs::read_dir("/sys/block").ok()?.filter_map(Result::ok);
    let of = |dir: PathBuf| fs::read_to_string(dir.join("dev")).ok()?.trim().parse().ok();
    disks.filter(|disk| disk.path().join("device").exists()).find_map(|disk| of(disk.path()))
}

#[test]
fn the_kernel_takes_limits_and_gives_them_up() {
    if !is_root_to("make control groups") {
        return;
    }
    let real = Real(format!("/sys/fs/cgroup/blkio/isonomia-test-{}", std::process::id()).into());
    let Some(disk) = disk() else { return skip("there is no disk") };
    if fs::create_dir(&real.0).is_err() || !real.0.join(WRITES.file()).exists() {
        return skip("the blkio controller of cgroup v1 is not there");
    }
    let home = tempfile::tempdir().unwrap();
    let record = home.path().join("record");
    let group = Group { dir: real.0.clone(), layout: Layout::V1 };
    let read = || fs::read_to_string(real.0.join(WRITES.file())).unwrap();
    let mut limits = Limits::open(&record, disk).unwrap();
    for rate in [1 << 20, 2 << 20] {
        limits.set(&BTreeMap::from([(group.clone(), writes(rate))])).unwrap();
        assert_eq!(read(), format!("{disk} {rate}\n"));
    }
    std::mem::forget(limits);
    let limits = Limits::open(&record, disk).unwrap();
    assert_eq!(read(), "");
    drop(limits);
    // Somebody else's stays.
    fs::write(real.0.join(WRITES.file()), format!("{disk} 4096")).unwrap();
    let mut limits = Limits::open(&record, disk).unwrap();
    limits.set(&BTreeMap::from([(group, writes(1 << 20))])).unwrap();
    drop(limits);
    assert_eq!(read(), format!("{disk} 4096\n"));
}
