//! Locks, when the server is started again.

use crate::running::{self, Running};
use isonomia_client::{Client, Error, Ino, LockKind, LockOwner, LockRange, OpenFile, OpenHow, access};
use isonomia_proto::request::{Op, RequestHeader, lock as lock_bits};
use isonomia_transport::channel::Manner;
use isonomia_transport::handshake::Identity;
use isonomia_transport::line::Line;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
use rustix::io::Errno;
use std::time::{Duration, Instant};

const ALL: LockRange = LockRange::Whole;
const OWN: LockOwner = LockOwner::Process(0);

fn open(client: &Client, name: &str, number: u64) -> OpenFile {
    let how = OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o644, number, ..OpenHow::default() };
    client.open(Ino::ROOT, name.as_bytes(), &how).unwrap()
}

fn lock(client: &Client, file: &OpenFile, owner: LockOwner, range: LockRange) -> Result<(), Error> {
    client.lock(&file.capability, owner, range, LockKind::Exclusive, false)
}

fn bytes(start: u64, len: u64) -> LockRange {
    LockRange::Bytes { start, len }
}

fn client(running: &Running, timeout_s: u64) -> Client {
    running.client(&running.addresses[0], &running.key_file, timeout_s)
}

#[test]
fn locks_are_had_again_by_their_owners() {
    let mut running = running::start(|_| {});
    let (owner, other) = (client(&running, 20), client(&running, 20));
    let (file, theirs) = (open(&owner, "file", 7), open(&other, "file", 8));
    lock(&owner, &file, OWN, bytes(10, 10)).unwrap();
    lock(&owner, &file, LockOwner::File(7), ALL).unwrap();
    lock(&other, &theirs, OWN, bytes(50, 0)).unwrap();
    lock(&owner, &file, OWN, bytes(30, 10)).unwrap();
    owner.unlock(&file.capability, OWN, bytes(30, 10)).unwrap();
    running.restart();
    std::thread::scope(|scope| {
        // Whoever comes first: nobody gets what may be another's.
        let taken = |range, owner| assert_eq!(lock(&other, &theirs, owner, range).unwrap_err().errno(), Errno::AGAIN);
        scope.spawn(move || taken(bytes(15, 1), OWN));
        owner.write_at(&file, 10, b"locked").unwrap();
    });
    assert_eq!(lock(&other, &theirs, LockOwner::File(8), ALL).unwrap_err().errno(), Errno::AGAIN);
    assert_eq!(lock(&owner, &file, OWN, bytes(99, 1)).unwrap_err().errno(), Errno::AGAIN);
    // What one has one may lock again meanwhile.
    lock(&owner, &file, OWN, bytes(12, 3)).unwrap();
    // What was given up is nobody's.
    lock(&other, &theirs, OWN, bytes(30, 10)).unwrap();
    owner.release(Ino(file.attr.ino), 7).unwrap();
    lock(&other, &theirs, LockOwner::File(8), ALL).unwrap();
}

/// A connection of client `client`, whose session was `continues` before.
fn connected(running: &Running, client: u64, continues: u64) -> Line {
    let identity = Identity { client, continues, ..Identity::default() };
    Line::open(&running.addresses[0], &identity, Deadline::after(Nanos::from_secs(20))).unwrap()
}

/// The errno of the reply to a request for an exclusive lock of the whole file, as `fcntl(2)` has it.
fn asked(line: &mut Line, file: &OpenFile, claimed: u32) -> u32 {
    let mut request = RequestHeader::with_capability(Op::Lock, &file.capability);
    request.valid = lock_bits::EXCLUSIVE | claimed;
    let (reply, _) = line.exchange(&request, [b"", b""], &mut [], Nanos::from_secs(20), Manner::default()).unwrap();
    reply.errno
}

/// Asks until what ended sessions had is given up.
fn comes_to_have(line: &mut Line, file: &OpenFile) {
    let begun = Instant::now();
    while asked(line, file, 0) != 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it stays with who has gone");
        std::thread::yield_now();
    }
}

#[test]
fn who_was_cut_off_before_the_stop_claims_nothing() {
    let mut running = running::start(|_| {});
    let (creator, errno) = (client(&running, 20), |errno: Errno| errno.raw_os_error().unsigned_abs());
    let files = ["cut off", "had by another", "kept"].map(|name| open(&creator, name, 7));
    let [cut_off, by_another, kept] = &files;
    let mut lines = [1, 2, 3].map(|client| connected(&running, client, 0));
    for (line, file) in lines.iter_mut().zip(&files) {
        assert_eq!(asked(line, file, 0), 0);
    }
    let [first, second, third] = lines.each_ref().map(Line::session);
    let [first_line, second_line, mut third_line] = lines;
    // Two of them lose their connections, and another has the lock of one for a while.
    drop((first_line, second_line));
    comes_to_have(&mut third_line, by_another);
    assert_eq!(asked(&mut third_line, by_another, lock_bits::CLAIMED), 0, "what one has one may always claim");
    let mut request = RequestHeader::with_capability(Op::Lock, &by_another.capability);
    request.valid = 0;
    third_line.exchange(&request, [b"", b""], &mut [], Nanos::from_secs(20), Manner::default()).unwrap();
    comes_to_have(&mut third_line, cut_off);
    running.restart();
    let claim = |client, continues, file| asked(&mut connected(&running, client, continues), file, lock_bits::CLAIMED);
    for (client, continues, file) in [(1, first, cut_off), (2, second, by_another)] {
        assert_eq!(claim(client, continues, file), errno(Errno::STALE));
    }
    // Nor does anybody else: it is he who had it, and the session.
    for (client, continues) in [(3, 0), (3, first), (1, third)] {
        assert_eq!(claim(client, continues, kept), errno(Errno::STALE));
    }
    assert_eq!(claim(3, third, kept), 0);
}

#[test]
fn the_locks_of_a_process_that_is_gone_are_in_nobodys_way() {
    let running = running::start(|_| {});
    let other = client(&running, 20);
    let theirs = open(&other, "file", 8);
    for number in 0..50 {
        let owner = client(&running, 20);
        let file = open(&owner, "file", 100 + number);
        lock(&owner, &file, OWN, bytes(10, 10)).unwrap();
        lock(&owner, &file, LockOwner::File(100 + number), ALL).unwrap();
        for (holder, range) in [(OWN, bytes(0, 0)), (LockOwner::File(8), ALL)] {
            assert_eq!(lock(&other, &theirs, holder, range).unwrap_err().errno(), Errno::AGAIN);
        }
        // As at the end of a process, whose parent hears of it afterwards.
        drop(owner);
        for (holder, range) in [(OWN, bytes(0, 0)), (LockOwner::File(8), ALL)] {
            lock(&other, &theirs, holder, range).unwrap();
            other.unlock(&theirs.capability, holder, range).unwrap();
        }
    }
}

#[test]
fn who_comes_too_late_is_told() {
    let mut running = running::start(|_| {});
    let (owner, other) = (client(&running, 20), client(&running, 20));
    let (file, theirs) = (open(&owner, "file", 7), open(&other, "file", 8));
    let beside = open(&owner, "beside", 9);
    lock(&owner, &file, OWN, bytes(0, 5)).unwrap();
    lock(&owner, &file, LockOwner::File(7), ALL).unwrap();
    running.restart();
    // Who had it does not ask for anything.
    lock(&other, &theirs, OWN, bytes(0, 5)).unwrap();
    other.write_at(&theirs, 0, b"mine").unwrap();
    let lost = |outcome: Result<usize, Error>| assert_eq!(outcome.unwrap_err().errno(), Errno::IO);
    lost(owner.write_at(&file, 0, b"his"));
    lost(owner.read_at(&file, 0, &mut [0; 4]));
    lost(owner.append(&file, b"his").map(|(_, len)| len));
    lost(owner.set_size(&file.capability, 0).map(|_| 0));
    owner.write_at(&beside, 0, b"of another file").unwrap();
    // What is given up can be locked anew.
    owner.unlock(&file.capability, OWN, bytes(0, 0)).unwrap();
    lost(owner.read_at(&file, 0, &mut [0; 4]));
    assert_eq!(lock(&owner, &file, OWN, bytes(0, 1)).unwrap_err().errno(), Errno::AGAIN);
    owner.release(Ino(file.attr.ino), 7).unwrap();
    let again = open(&owner, "file", 10);
    let mut found = [0; 9];
    assert_eq!(owner.read_at(&again, 0, &mut found).unwrap(), 4);
    assert_eq!(&found[..4], b"mine");
}

#[test]
fn who_stops_in_order_knows_whether_there_were_locks() {
    let mut running = running::start(|_| {});
    // It waits for less long than a server that has just started.
    let (owner, hasty) = (client(&running, 20), client(&running, 2));
    let (file, theirs) = (open(&owner, "file", 7), open(&hasty, "file", 8));
    lock(&owner, &file, OWN, bytes(0, 5)).unwrap();
    owner.unlock(&file.capability, OWN, bytes(0, 0)).unwrap();
    running.restart();
    lock(&hasty, &theirs, OWN, bytes(0, 5)).unwrap();
    hasty.unlock(&theirs.capability, OWN, bytes(0, 0)).unwrap();
    lock(&owner, &file, OWN, bytes(0, 5)).unwrap();
    for _ in 0..2 {
        running.restart();
        assert_eq!(lock(&hasty, &theirs, OWN, bytes(10, 5)).unwrap_err().errno(), Errno::BUSY);
    }
    // Also of one who was stopped while it waited.
    owner.write_at(&file, 0, b"his").unwrap();
}
