//! Locks of a mount, of whose clients one has them for all, when that one's connections are cut.

use crate::running::between::{Between, honest};
use crate::running::{self, Running};
use isonomia_client::{
    Address, Client, Error, Ino, LockKeeper, LockKind, LockOwner, LockRange, OpenFile, OpenHow, access,
};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const OWN: LockOwner = LockOwner::Process(0);
const BYTES: LockRange = LockRange::Bytes { start: 0, len: 0 };

/// A mount with two clients, of which the first one has the locks, and another process.
struct Parties {
    running: Running,
    keeper: Arc<Client>,
    beside: Client,
    other: Client,
    /// The keeper's connections break as soon as anything comes on them,
    is_cut: Arc<AtomicBool>,
    /// and for so long nothing is heard of new ones.
    is_silent: Arc<AtomicBool>,
    _between: Between,
}

fn parties() -> Parties {
    let running = running::start(|_| {});
    let (is_cut, is_silent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let between = {
        let (is_cut, is_silent) = (is_cut.clone(), is_silent.clone());
        Between::new(&running.addresses[1], move || {
            let (is_cut, is_silent) = (is_cut.clone(), is_silent.clone());
            let (is_first, mut pass) = (!is_silent.load(Ordering::SeqCst), honest());
            Box::new(move |way, bytes| {
                if is_first && is_cut.load(Ordering::SeqCst) {
                    is_silent.store(true, Ordering::SeqCst);
                    return None;
                }
                while !is_first && is_silent.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                pass(way, bytes)
            })
        })
    };
    let (keeper, beside) = mount(&running, &between.address);
    let other = running.client(&running.addresses[0], &running.key_file, 20);
    Parties { running, keeper, beside, other, is_cut, is_silent, _between: between }
}

/// The clients of a mount: the one that has the locks, which connects to `address`, and another one.
fn mount(running: &Running, address: &Address) -> (Arc<Client>, Client) {
    let mount = Arc::new(LockKeeper::new().unwrap());
    let keeper = Arc::new(running.client(address, &running.key_file, 20).of_mount(mount.clone()));
    mount.keep(&keeper);
    (keeper, running.client(&running.addresses[0], &running.key_file, 20).of_mount(mount))
}

fn open(client: &Client) -> OpenFile {
    let how = OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o644, ..OpenHow::default() };
    client.open(Ino::ROOT, b"file", &how).unwrap()
}

fn lock(client: &Client, file: &OpenFile) -> Result<(), Error> {
    client.lock(&file.capability, OWN, BYTES, LockKind::Exclusive, false)
}

/// Asks until the lock is given up by whoever has it.
fn comes_to_have(client: &Client, file: &OpenFile) {
    let begun = Instant::now();
    while lock(client, file).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it stays with who was cut off");
        std::thread::yield_now();
    }
}

impl Parties {
    /// Cuts the keeper's connections; nothing new of it is heard until [`Self::let_in`].
    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        let keeper = self.keeper.clone();
        // What it asks now is lost, and it waits for an answer on another connection.
        std::thread::spawn(move || keeper.keep_locks());
        while !self.is_silent.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    fn let_in(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
        self.is_silent.store(false, Ordering::SeqCst);
    }
}

#[test]
fn nobody_of_a_mount_that_lost_a_lock_writes_after_others_have_it() {
    let parties = parties();
    let (keepers, besides, others) = (open(&parties.keeper), open(&parties.beside), open(&parties.other));
    lock(&parties.keeper, &keepers).unwrap();
    parties.beside.write_at(&besides, 0, b"mine").unwrap();
    assert_eq!(lock(&parties.other, &others).unwrap_err().errno(), Errno::AGAIN);
    parties.cut();
    comes_to_have(&parties.other, &others);
    parties.other.write_at(&others, 0, b"ours").unwrap();
    std::thread::scope(|scope| {
        // It has not heard of the loss, and neither has the keeper.
        let writes = scope.spawn(|| parties.beside.write_at(&besides, 0, b"late"));
        parties.let_in();
        assert_eq!(writes.join().unwrap().unwrap_err().errno(), Errno::IO);
    });
    assert_eq!(parties.beside.read_at(&besides, 0, &mut [0; 4]).unwrap_err().errno(), Errno::IO);
    let mut found = [0; 4];
    parties.other.read_at(&others, 0, &mut found).unwrap();
    assert_eq!(&found, b"ours");
    // Until it is given up.
    parties.keeper.unlock(&keepers.capability, OWN, BYTES).unwrap();
    parties.other.unlock(&others.capability, OWN, BYTES).unwrap();
    lock(&parties.keeper, &keepers).unwrap();
    parties.beside.write_at(&besides, 0, b"mine").unwrap();
    parties.running.serves();
}

#[test]
fn a_mount_whose_other_connections_break_keeps_its_locks() {
    let mut running = running::start(|_| {});
    let (keeper, beside) = mount(&running, &running.addresses[0]);
    let other = running.client(&running.addresses[0], &running.key_file, 20);
    let (keepers, besides, others) = (open(&keeper), open(&beside), open(&other));
    lock(&keeper, &keepers).unwrap();
    beside.write_at(&besides, 0, b"mine").unwrap();
    beside.begin_anew();
    beside.write_at(&besides, 0, b"mine").unwrap();
    assert_eq!(lock(&other, &others).unwrap_err().errno(), Errno::AGAIN);
    // Nor does a server that starts anew take them: who is there first asks the one that has them to claim them.
    running.restart();
    beside.write_at(&besides, 0, b"mine").unwrap();
    assert_eq!(lock(&other, &others).unwrap_err().errno(), Errno::AGAIN);
}
