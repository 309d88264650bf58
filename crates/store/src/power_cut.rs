//! Tests with power cuts in the worst order: of the database only what was synced is left, of the objects everything.
//! So nothing may have happened to an object that the synced part of the database does not allow for.

use crate::{Caller, OpenHow, Opened, Store, StoreConfig, TargetDir};
use isonomia_proto::fs::{Timestamp, access};
use isonomia_units::{Ino, ServerId, TargetId};
use std::path::PathBuf;
use std::process::Command;

const ROOT: Caller<'static> = Caller::ROOT;
const MALLORY: Caller<'static> = Caller { uid: 1000, gid: 1000, groups: &[] };

fn at(secs: i64) -> Timestamp {
    Timestamp::new(secs, 0).unwrap()
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
        let mut machine = Self { dir, config, store: None };
        machine.start();
        machine
    }

    fn start(&mut self) {
        let store = Store::open(&self.config).unwrap();
        store.db.keep_synced(&self.config.dir.join("db"), &self.dir.path().join("synced"));
        self.store = Some(store);
    }

    fn cut_power(&mut self) {
        self.store = None;
        let db = self.config.dir.join("db");
        std::fs::remove_dir_all(&db).unwrap();
        let copied = Command::new("cp").arg("-a").arg(self.dir.path().join("synced")).arg(&db).status().unwrap();
        assert!(copied.success());
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
    let generation = machine.store().generation;
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
    store.verify_access(&capability, access::WRITE).unwrap();
    // As from a run whose metadata were replaced by older ones.
    let other = store.sealer.seal(ino.0, capability.generation ^ 1, capability.access);
    assert!(matches!(store.verify(&other), Err(crate::StoreError::Stale)));
    assert!(matches!(store.verify_access(&other, access::READ), Err(crate::StoreError::Stale)));
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
