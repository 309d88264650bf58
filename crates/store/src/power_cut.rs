//! Tests with power cuts in the worst order: of the database only what was synced is left, of the objects everything.
//! So nothing may have happened to an object that the synced part of the database does not allow for.

mod damage;
mod objects;
mod sizes;

use crate::{Caller, OpenHow, Opened, RenameHow, Store, StoreConfig, TargetDir};
use isonomia_proto::fs::{Layout, Timestamp, access};
use isonomia_units::{Ino, ServerId, TargetId};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const ROOT: Caller<'static> = Caller::ROOT;
const MALLORY: Caller<'static> = Caller { uid: 1000, gid: 1000, groups: &[] };

fn at(secs: i64) -> Timestamp {
    Timestamp::new(secs, 0).unwrap()
}

/// Makes `to` a copy of `from`. Starts no program: a child would have the locks of other tests' stores for a moment.
pub(crate) fn copy_directory(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy_directory(&path, &to);
            continue;
        }
        // The journal is mostly a hole, at its end.
        let found = std::fs::metadata(&path).unwrap();
        let mut content = Vec::new();
        let file = std::fs::File::open(&path).unwrap();
        file.take(found.blocks() * 512).read_to_end(&mut content).unwrap();
        std::fs::write(&to, &content).unwrap();
        std::fs::File::options().write(true).open(&to).unwrap().set_len(found.len()).unwrap();
    }
}

/// A store whose power can be cut.
struct Machine {
    dir: tempfile::TempDir,
    config: StoreConfig,
    store: Option<Store>,
}

impl Machine {
    fn new(targets: u16) -> Self {
        let base = [PathBuf::from("/dev/shm"), std::env::temp_dir()].into_iter().find(|dir| dir.is_dir()).unwrap();
        let dir = tempfile::Builder::new().prefix("isonomia-power").tempdir_in(base).unwrap();
        let target = |i| TargetDir { id: TargetId(i), dir: dir.path().join(format!("target{i}")) };
        let mut config = StoreConfig::new(dir.path().join("store"), ServerId(0), (0..targets).map(target).collect());
        config.default_layout.stripe_bytes = 4096;
        config.default_layout.stripe_count = usize::from(targets);
        // The host goes on.
        config.host_start = Some(String::new());
        let mut machine = Self { dir, config, store: None };
        machine.start();
        machine
    }

    fn start(&mut self) {
        let mut store = Store::open(&self.config).unwrap();
        // As on a disk.
        store.objects.removal.is_volatile = false;
        store.db.keep_synced(&self.config.dir.join("db"), &self.dir.path().join("synced"));
        self.store = Some(store);
    }

    fn cut_power(&mut self) {
        self.store = None;
        copy_directory(&self.dir.path().join("synced"), &self.config.dir.join("db"));
        self.start();
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn open_as(&self, caller: &Caller<'_>, name: &str) -> Opened {
        let how = OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
        self.store().open_file(caller, Ino::ROOT, name.as_bytes(), &how, at(1)).unwrap()
    }

    fn open(&self, name: &str) -> Ino {
        self.open_as(&ROOT, name).ino
    }

    /// A file that is on stable storage with so many bytes of `byte`.
    fn synced(&self, name: &str, byte: u8, len: usize) -> Ino {
        let ino = self.open(name);
        self.store().write(ino, 0, &vec![byte; len], at(2)).unwrap();
        self.store().fsync(ino, false).unwrap();
        ino
    }

    fn find(&self, name: &str) -> Option<Ino> {
        self.store().get_attr(&ROOT, Ino::ROOT, name.as_bytes(), true).ok().map(|attr| Ino(attr.ino))
    }

    /// Bytes of a file that has nothing but `byte`; none if it does not exist.
    fn len_of(&self, name: &str, byte: u8) -> Option<usize> {
        let content = self.content(self.find(name)?);
        assert!(content.iter().all(|b| *b == byte), "{name} has other bytes than {byte}");
        Some(content.len())
    }

    fn objects(&self) -> usize {
        self.object_paths().len()
    }

    /// Without sidecars.
    fn object_paths(&self) -> Vec<PathBuf> {
        let entries = |dir: PathBuf| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let targets = self.config.targets.iter().flat_map(|target| entries(target.dir.join("objects")));
        let is_object = |path: &PathBuf| path.extension().is_some_and(|extension| extension != "sum");
        targets.flat_map(|directory| entries(directory).filter(is_object)).collect()
    }

    fn remove_name(&self, name: &str) {
        self.store().unlink(&ROOT, Ino::ROOT, name.as_bytes(), at(3)).unwrap();
    }

    fn rename(&self, from: &str, to: &str, how: RenameHow) {
        self.store().rename(&ROOT, Ino::ROOT, from.as_bytes(), Ino::ROOT, to.as_bytes(), how, at(3)).unwrap();
    }

    /// Brings checksums to stable storage, and all that is in the journal.
    fn settle(&self) {
        let store = self.store();
        store.flush_dirty().unwrap();
        (0..2).for_each(|_| store.settle().unwrap());
        store.db.sync().unwrap();
    }

    fn release_all(&self, inodes: &[Ino]) {
        inodes.iter().for_each(|ino| self.store().release(*ino).unwrap());
    }

    fn content(&self, ino: Ino) -> Vec<u8> {
        let size = self.store().get_attr(&ROOT, ino, b"", true).unwrap().size_bytes as usize;
        let mut bytes = vec![0xee; size];
        assert_eq!(self.store().read(ino, 0, &mut bytes).unwrap(), size);
        bytes
    }
}

#[test]
fn a_number_that_was_given_out_is_never_given_out_again() {
    for targets in [1, 3] {
        let mut machine = Machine::new(targets);
        let secret = machine.open("secret");
        machine.store().write(secret, 0, &[7; 20_000], at(2)).unwrap();
        machine.cut_power();
        let other = machine.open_as(&MALLORY, "other").ino;
        assert_ne!(other, secret);
        machine.store().write(other, 19_999, b"x", at(3)).unwrap();
        assert!(machine.content(other)[..19_999].iter().all(|b| *b == 0), "bytes of a file that is gone");
    }
}

#[test]
fn what_lies_where_an_object_is_to_be_created_is_nobodys() {
    let machine = Machine::new(2);
    let ino = machine.open("file");
    let generation = machine.store().namespace.generation;
    let stale = format!("target0/objects/{:02x}/{:016x}.{generation:08x}.0", ino.0 & 0xff, ino.0);
    std::fs::write(machine.dir.path().join(stale), [7; 100]).unwrap();
    machine.store().write(ino, 50, b"x", at(2)).unwrap();
    assert_eq!(machine.content(ino)[..50], [0; 50]);
    machine.store().set_size(ino, 100, at(2)).unwrap();
    assert_eq!(machine.content(ino)[51..], [0; 49]);
}

#[test]
fn a_capability_is_of_one_generation() {
    let machine = Machine::new(1);
    let Opened { ino, capability, .. } = machine.open_as(&ROOT, "file");
    let store = machine.store();
    store.namespace().verify_access(&capability, access::WRITE).unwrap();
    // As from a run whose metadata were replaced by older ones.
    let other = store.namespace.signer.sign(ino.0, capability.generation ^ 1, capability.access, capability.holder);
    assert!(matches!(store.namespace().verify(&other), Err(crate::StoreError::Stale)));
    assert!(matches!(store.namespace().verify_access(&other, access::READ), Err(crate::StoreError::Stale)));
}

#[test]
fn each_opening_draws_another_generation() {
    let mut machine = Machine::new(1);
    let first = machine.open_as(&ROOT, "a");
    machine.store().close().unwrap();
    machine.store = None;
    machine.start();
    let (again, second) = (machine.open_as(&ROOT, "a"), machine.open_as(&ROOT, "b"));
    assert_eq!(first.capability, again.capability);
    assert_ne!(first.capability.generation, second.capability.generation);
}

#[test]
fn a_file_that_was_replaced_is_whole() {
    for (targets, is_synced) in [(1, false), (3, false), (3, true)] {
        let mut machine = Machine::new(targets);
        let old = machine.synced("target", 1, 20_000);
        let new = machine.synced("temporary", 2, 30_000);
        machine.release_all(&[old, new]);
        machine.rename("temporary", "target", RenameHow::Replace);
        if is_synced {
            assert_eq!(machine.store().objects().remove_unused().unwrap(), 1);
        }
        machine.cut_power();
        if is_synced {
            assert_eq!((machine.len_of("target", 2), machine.find("temporary")), (Some(30_000), None));
            assert_eq!(machine.objects(), usize::from(targets));
        } else {
            assert_eq!((machine.len_of("target", 1), machine.len_of("temporary", 2)), (Some(20_000), Some(30_000)));
        }
    }
}

#[test]
fn files_that_were_exchanged_and_went_come_back_whole() {
    let mut machine = Machine::new(2);
    let both = [machine.synced("a", 1, 20_000), machine.synced("b", 2, 10_000)];
    machine.release_all(&both);
    machine.rename("a", "b", RenameHow::Exchange);
    machine.remove_name("b");
    machine.remove_name("a");
    machine.cut_power();
    assert_eq!((machine.len_of("a", 1), machine.len_of("b", 2)), (Some(20_000), Some(10_000)));
}

#[test]
fn an_unlinked_file_is_whole_or_gone() {
    for is_locked in [false, true] {
        let mut machine = Machine::new(2);
        let ino = machine.synced("file", 1, 20_000);
        if !is_locked {
            machine.release_all(&[ino]);
        }
        machine.remove_name("file");
        machine.cut_power();
        assert_eq!(machine.len_of("file", 1), Some(20_000));
        let ino = machine.open("file");
        machine.remove_name("file");
        assert_eq!(machine.store().objects().remove_unused().unwrap(), 0, "it is open");
        machine.release_all(&[ino]);
        assert_eq!(machine.store().objects().remove_unused().unwrap(), 1);
        machine.cut_power();
        assert_eq!((machine.find("file"), machine.objects()), (None, 0));
    }
}

#[test]
fn a_file_that_was_cut_to_nothing_has_all_of_the_old_or_all_of_the_new() {
    let mut machine = Machine::new(3);
    let ino = machine.synced("file", 1, 20_000);
    let how = OpenHow { access: access::WRITE, truncate: true, ..OpenHow::default() };
    machine.store().open_file(&ROOT, Ino::ROOT, b"file", &how, at(3)).unwrap();
    assert_eq!(machine.content(ino), b"");
    machine.store().write(ino, 0, &[2; 9_000], at(4)).unwrap();
    assert_eq!(machine.len_of("file", 2), Some(9_000));
    machine.cut_power();
    assert_eq!(machine.len_of("file", 1), Some(20_000));
    assert_eq!(machine.objects(), 3, "the new ones are nobody's");

    let ino = machine.open("file");
    machine.store().set_size(ino, 0, at(3)).unwrap();
    machine.store().write(ino, 0, &[2; 9_000], at(4)).unwrap();
    machine.store().fsync(ino, true).unwrap();
    machine.store().set_size(ino, 0, at(5)).unwrap();
    machine.store().write(ino, 0, &[3; 5_000], at(6)).unwrap();
    machine.cut_power();
    assert_eq!(machine.len_of("file", 2), Some(9_000));
    assert_eq!(machine.objects(), 3);
}

#[test]
fn a_file_that_was_cut_to_less_is_not_torn() {
    for steps in 1..=3 {
        let mut machine = Machine::new(3);
        let ino = machine.synced("file", 1, 40_000);
        let inode = machine.store().namespace.load(ino.0).unwrap();
        let layout = inode.layout.clone().unwrap();
        match steps {
            // A stop before the first object is cut, and after one of three.
            1 => machine.store().store_size(&inode, &mut inode.own_data(), 6_000, true, at(3)).unwrap(),
            2 => {
                machine.store().store_size(&inode, &mut inode.own_data(), 6_000, true, at(3)).unwrap();
                let one = Layout { targets: layout.targets[..1].to_vec(), ..(*layout).clone() };
                let id = inode.own_data().id;
                machine.store().objects.targets.trim(id, &one, 4096).unwrap();
            }
            _ => machine.store().set_size(ino, 6_000, at(3)).map(drop).unwrap(),
        }
        drop(inode);
        machine.cut_power();
        assert_eq!(machine.len_of("file", 1), Some(6_000), "{steps}");
        // And again, with nothing left to do.
        machine.cut_power();
        let ino = machine.open("file");
        machine.store().set_size(ino, 40_000, at(4)).unwrap();
        assert_eq!(machine.content(ino)[6_000..], vec![0; 34_000]);
    }
}

#[test]
fn a_cut_is_not_done_again_over_what_was_written_after_it() {
    let mut machine = Machine::new(2);
    let ino = machine.synced("file", 1, 40_000);
    machine.store().set_size(ino, 6_000, at(3)).unwrap();
    machine.store().write(ino, 6_000, &[1; 20_000], at(4)).unwrap();
    machine.store().fsync(ino, false).unwrap();
    machine.cut_power();
    assert_eq!(machine.len_of("file", 1), Some(26_000));
}

#[test]
fn a_size_that_was_synced_stays_whatever_followed() {
    let mut machine = Machine::new(3);
    // Holes at the end, of both kinds.
    let (hole, reserved) = (machine.synced("hole", 1, 5_000), machine.synced("reserved", 1, 5_000));
    machine.store().set_size(hole, 50_000, at(3)).unwrap();
    machine.store().fsync(hole, false).unwrap();
    machine.store().reserve_append(reserved, 30_000, at(3)).unwrap();
    machine.store().fsync(reserved, false).unwrap();
    // The marks get to stable storage by the way.
    for ino in [hole, reserved] {
        machine.store().write(ino, 0, &[1; 10], at(4)).unwrap();
    }
    machine.synced("other", 1, 1);
    machine.cut_power();
    let size = |name| machine.content(machine.find(name).unwrap()).len();
    assert_eq!([size("hole"), size("reserved")], [50_000, 35_000]);
}

#[test]
fn what_was_written_behind_a_synced_end_does_not_come_back() {
    for targets in [1, 3] {
        let mut machine = Machine::new(targets);
        let ino = machine.synced("file", 1, 100);
        machine.store().write(ino, 100, &[2; 30_000], at(3)).unwrap();
        machine.cut_power();
        assert_eq!(machine.len_of("file", 1), Some(100));
        let ino = machine.open("file");
        machine.store().set_size(ino, 20_000, at(4)).unwrap();
        machine.store().write(ino, 30_000, b"x", at(4)).unwrap();
        assert_eq!(machine.content(ino)[100..30_000], vec![0; 29_900]);
    }
}

#[test]
fn objects_of_no_file_are_removed_after_an_unclean_stop() {
    let mut machine = Machine::new(2);
    machine.synced("kept", 1, 20_000);
    let lost = machine.open("lost");
    machine.store().write(lost, 0, &[2; 20_000], at(3)).unwrap();
    assert_eq!(machine.objects(), 4);
    machine.cut_power();
    assert_eq!((machine.find("lost"), machine.objects()), (None, 2));
    machine.cut_power();
    assert_eq!(machine.len_of("kept", 1), Some(20_000));
}

#[test]
fn a_file_without_a_name_leaves_nothing() {
    for is_released in [true, false] {
        let mut machine = Machine::new(2);
        let ino = machine.synced("file", 1, 20_000);
        machine.remove_name("file");
        machine.store().set_size(ino, 6_000, at(3)).unwrap();
        machine.store().set_size(ino, 0, at(3)).unwrap();
        machine.store().write(ino, 0, &[2; 9_000], at(4)).unwrap();
        machine.store().fsync(ino, false).unwrap();
        assert_eq!(machine.content(ino), [2; 9_000]);
        if is_released {
            machine.release_all(&[ino]);
            assert_eq!(machine.store().objects().remove_unused().unwrap(), 2, "the old ones and the new ones");
            assert_eq!(machine.objects(), 0);
        }
        machine.cut_power();
        assert_eq!((machine.find("file"), machine.objects()), (None, 0));
        assert!(machine.store().db.orphans().unwrap().is_empty());
    }
}

#[test]
fn removal_is_not_put_off_beyond_its_bound() {
    let machine = Machine::new(1);
    let ino = machine.synced("file", 1, 10);
    machine.store().set_size(ino, 2 << 30, at(3)).unwrap();
    machine.release_all(&[ino]);
    machine.remove_name("file");
    assert_eq!(machine.objects(), 0);
}

#[test]
fn after_a_clean_stop_nothing_is_left_to_do() {
    let mut machine = Machine::new(2);
    let ino = machine.synced("file", 1, 20_000);
    machine.store().write(ino, 20_000, &[1; 50], at(3)).unwrap();
    machine.release_all(&[ino]);
    let gone = machine.synced("gone", 1, 20_000);
    machine.release_all(&[gone]);
    machine.remove_name("gone");
    machine.store().close().unwrap();
    assert_eq!(machine.objects(), 2);
    machine.cut_power();
    assert_eq!(machine.len_of("file", 1), Some(20_050));
    // That the store was closed in order does not hold for what was written after it was opened again.
    let later = machine.open("later");
    machine.store().write(later, 0, &[1; 50], at(3)).unwrap();
    machine.cut_power();
    assert_eq!(machine.objects(), 2);
}

#[test]
fn a_power_cut_in_the_middle_of_writing_makes_no_damage() {
    for targets in [1, 3] {
        let mut machine = Machine::new(targets);
        let old = machine.synced("old", 1, 50_000);
        machine.release_all(&[old]);
        machine.settle();
        for round in 2..5 {
            // Of the objects everything is left, of checksums and journal nothing that was not synced.
            machine.store().write(old, 9_000, &[1; 30_000], at(3)).unwrap();
            machine.store().write(old, 100, &[round; 7_000], at(3)).unwrap();
            machine.cut_power();
            let found = machine.content(old);
            assert!(found[..100].iter().chain(&found[7_100..]).all(|b| *b == 1) && found.len() == 50_000);
            machine.store().set_size(old, 50_000 - u64::from(round), at(4)).unwrap();
            machine.cut_power();
            assert_eq!(machine.content(old).len(), 50_000 - usize::from(round));
            machine.store().set_size(old, 50_000, at(4)).unwrap();
            machine.store().write(old, 49_990, &[1; 10], at(4)).unwrap();
            machine.store().fsync(old, true).unwrap();
            machine.cut_power();
            assert_eq!(machine.content(old).len(), 50_000);
            machine.settle();
            machine.cut_power();
            assert_eq!(
                (machine.content(old).len(), machine.store().objects().checksum_status().unsettled_files),
                (50_000, 0)
            );
            machine.store().write(old, 50_000 - 10, &[1; 10], at(4)).unwrap();
            machine.store().flush_dirty().unwrap();
        }
        // Cut to nothing and written anew: either the old content or none of it.
        machine.settle();
        machine.store().set_size(old, 0, at(5)).unwrap();
        machine.store().write(old, 0, &[9; 20_000], at(5)).unwrap();
        machine.cut_power();
        assert!(machine.content(old).iter().skip(7_100).all(|b| *b == 1));
        assert_eq!(machine.store().objects().checksum_status().damaged_total, 0);
    }
}

#[test]
fn what_was_cut_takes_no_space_any_more() {
    let mut machine = Machine::new(2);
    for (name, size, blocks) in [("nothing", 0, 0), ("less", 4096, 8)] {
        let ino = machine.synced(name, 1, 20_000);
        machine.store().get_attr(&ROOT, ino, b"", true).unwrap();
        machine.store().set_size(ino, size, at(3)).unwrap();
        machine.release_all(&[ino]);
        machine.store().close().unwrap();
        machine.cut_power();
        assert_eq!(machine.store().get_attr(&ROOT, ino, b"", true).unwrap().blocks, blocks, "{name}");
    }
}
