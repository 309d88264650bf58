//! Memory that stands for mapped files, and clients that misuse it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use isonomia_client::{Change, Client, Error, Ino, OpenFile, OpenHow, SpaceChange, access};
use isonomia_server::LimitsConfig;
use running::{ALICE, MALLORY, READ_WRITE, Running, as_user, can_be_others, create, pattern, start};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::path::PathBuf;

const PAGE: usize = 4096;

/// A mapping; unmapped when dropped.
struct Mapped {
    start: *mut u8,
    len: usize,
}

impl Mapped {
    fn new(client: &Client, file: &OpenFile, len: usize, stores: bool) -> Result<Self, Error> {
        let memory = client.map_file(file, len as u64, stores)?;
        Ok(Self::of(memory.as_fd(), len, stores).unwrap())
    }

    fn of(memory: impl AsFd, len: usize, stores: bool) -> Result<Self, Errno> {
        let access = if stores { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, memory, 0) }?;
        Ok(Self { start: start.cast(), len })
    }

    fn load(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: within the mapping.
        unsafe { self.start.add(at).read_volatile() }
    }

    fn store(&self, at: usize, value: u8) {
        assert!(at < self.len);
        // SAFETY: within the mapping, which is writable in the tests that call this.
        unsafe { self.start.add(at).write_volatile(value) }
    }
}

// SAFETY: memory that all processes may use belongs to no thread.
unsafe impl Send for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: made by `of`, and nothing refers to it any more.
        unsafe { rustix::mm::munmap(self.start.cast(), self.len) }.unwrap();
    }
}

/// Where the server keeps such memory, while there is any.
fn homes(running: &Running) -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let place = std::fs::metadata(running.dir.path().join("data/metadata")).unwrap();
    let name = format!("isonomia-mapped-{:x}-{:x}-", place.dev(), place.ino());
    let entries = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap());
    entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(&name)).map(|entry| entry.path()).collect()
}

/// Waits until the server has given all memory back.
fn until_all_is_given_back(running: &Running) {
    let start = std::time::Instant::now();
    while !homes(running).is_empty() {
        assert!(start.elapsed().as_secs() < 60, "{:?}", homes(running));
        std::thread::yield_now();
    }
}

fn read(client: &Client, file: &OpenFile, offset: u64, len: usize) -> Vec<u8> {
    let mut back = vec![0; len];
    let count = client.read_at(file, offset, &mut back).unwrap();
    back.truncate(count);
    back
}

#[test]
fn memory_and_file_are_one_and_the_memory_goes_with_the_last_mapping() {
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], &running.key_file, 20);
    let other = running.client(&running.addresses[0], &running.key_file, 20);
    let far = running.client(&running.addresses[1], &running.key_file, 20);
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    let content = pattern((1 << 20) + 5, 1);
    client.write_at(&file, 0, &content).unwrap();
    assert!(matches!(Mapped::new(&far, &file, PAGE, true), Err(Error::Argument(Errno::NODEV))), "another host's");
    let mapped = Mapped::new(&client, &file, content.len(), true).unwrap();
    assert!((0..content.len()).all(|at| mapped.load(at) == content[at]));
    let again = Mapped::new(&other, &file, 2 * PAGE, false).unwrap();
    mapped.store(PAGE - 1, 77);
    mapped.store(content.len() - 1, 78);
    assert_eq!((again.load(PAGE - 1), again.load(PAGE)), (77, content[PAGE]));
    for reader in [&client, &other, &far] {
        assert_eq!(read(reader, &file, PAGE as u64 - 2, 3), [content[PAGE - 2], 77, content[PAGE]]);
        assert_eq!(read(reader, &file, content.len() as u64 - 1, 3), [78]);
    }
    far.write_at(&file, PAGE as u64, b"far").unwrap();
    assert_eq!([0, 1, 2].map(|at| again.load(PAGE + at)), *b"far");
    let attr = client.set_attr(Ino::ROOT, b"f", true, &Change { size_bytes: Some(10), ..Change::default() }).unwrap();
    assert_eq!((attr.size_bytes, mapped.load(10), mapped.load(PAGE), mapped.load(9)), (10, 0, 0, content[9]));
    drop(mapped);
    client.sync(&file, true).unwrap();
    assert_eq!(homes(&running).len(), 1);
    drop(again);
    until_all_is_given_back(&running);
    assert_eq!(read(&far, &file, 0, 100), content[..10]);
}

#[test]
fn what_was_stored_survives_the_mapping_and_the_server() {
    let mut running = start(|_| {});
    let client = running.client(&running.addresses[0], &running.key_file, 20);
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    client.write_at(&file, 0, &[1; 3 * PAGE]).unwrap();
    let mapped = Mapped::new(&client, &file, 3 * PAGE, true).unwrap();
    mapped.store(0, 2);
    running.restart();
    // Also while there is no server.
    running.stop();
    mapped.store(PAGE, 3);
    running.restart();
    assert_eq!(read(&client, &file, 0, 1), [2]);
    assert_eq!(read(&client, &file, PAGE as u64, 1), [3]);
    client.write_at(&file, 2 * PAGE as u64, b"w").unwrap();
    let again = Mapped::new(&client, &file, 3 * PAGE, true).unwrap();
    assert_eq!([0, PAGE, 2 * PAGE].map(|at| (mapped.load(at), again.load(at))), [(2, 2), (3, 3), (b'w', b'w')]);
    mapped.store(1, 4);
    assert_eq!(again.load(1), 4);
    drop((mapped, again));
    until_all_is_given_back(&running);
    assert_eq!(read(&client, &file, 0, 3), [2, 4, 1]);
    running.restart();
    assert_eq!(read(&client, &file, 0, 3), [2, 4, 1], "in the objects");
}

#[test]
fn memory_is_counted_and_bounded() {
    let limits: LimitsConfig = LimitsConfig { memory_per_user: Some("8MiB".parse().unwrap()), ..Default::default() };
    let running = start(|config| config.limits = limits);
    let client = running.client(&running.addresses[0], &running.key_file, 20);
    let file = |name: &[u8], len: u64| {
        let file = client.open(Ino::ROOT, name, &create()).unwrap();
        client.set_size(&file.capability, len).unwrap();
        file
    };
    let huge = file(b"huge", (1 << 30) + 1);
    assert_eq!(client.map_file(&huge, (1 << 30) + 1, true).unwrap_err(), Error::Server(Errno::NOMEM));
    let first = Mapped::new(&client, &huge, PAGE, true).unwrap();
    // Only what the file has is counted.
    let short = Mapped::new(&client, &file(b"short", 10), 1 << 32, true).unwrap();
    assert_eq!(client.map_file(&huge, 0, true).unwrap_err(), Error::Server(Errno::INVAL));
    if !can_be_others() {
        return;
    }
    // Whoever is not an operator has the limit of a user.
    let alice = running.client_of(ALICE);
    client.set_attr(Ino::ROOT, b"", true, &Change { mode: Some(0o777), ..Change::default() }).unwrap();
    let own: Vec<OpenFile> =
        [b"a", b"b"].iter().map(|name| alice.open(Ino::ROOT, &name[..], &create()).unwrap()).collect();
    for file in &own {
        alice.set_size(&file.capability, 4 << 20).unwrap();
    }
    let mapped = Mapped::new(&alice, &own[0], 4 << 20, true).unwrap();
    assert_eq!(alice.map_file(&own[1], 4 << 20, true).unwrap_err(), Error::Server(Errno::NOMEM));
    let part = Mapped::new(&alice, &own[1], 1 << 20, true).unwrap();
    // A file does not grow beyond what there is memory for where it is mapped.
    let wide = Mapped::new(&alice, &alice.open(Ino::ROOT, b"c", &create()).unwrap(), 64 << 20, true);
    let wide_file = alice.open(Ino::ROOT, b"c", &OpenHow { access: READ_WRITE, ..OpenHow::default() }).unwrap();
    assert_eq!(alice.write_at(&wide_file, 0, b"short").unwrap(), 5);
    assert_eq!(alice.write_at(&wide_file, 32 << 20, b"far").unwrap_err(), Error::Server(Errno::NOSPC));
    drop((mapped, part, wide, first, short));
    until_all_is_given_back(&running);
    assert_eq!(alice.write_at(&wide_file, 32 << 20, b"far").unwrap(), 3);
    drop(Mapped::new(&alice, &own[1], 4 << 20, true).unwrap());
    until_all_is_given_back(&running);
}

#[test]
fn who_may_only_read_cannot_write_and_cannot_begin() {
    if !can_be_others() {
        return;
    }
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], &running.key_file, 20);
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    client.write_at(&file, 0, &[1; PAGE]).unwrap();
    let mallory = running.client_of(MALLORY);
    let how = |access| OpenHow { access, ..OpenHow::default() };
    let theirs = mallory.open(Ino::ROOT, b"f", &how(access::READ)).unwrap();
    assert_eq!(mallory.map_file(&theirs, 1, false).unwrap_err(), Error::Server(Errno::NODEV));
    assert_eq!(mallory.map_file(&file, 1, true).unwrap_err(), Error::Server(Errno::ACCESS), "another's capability");
    let mapped = Mapped::new(&client, &file, PAGE, true).unwrap();
    assert_eq!(mallory.map_file(&theirs, 1, true).unwrap_err(), Error::Server(Errno::BADF));
    let memory = mallory.map_file(&theirs, PAGE as u64, false).unwrap();
    assert_eq!(Mapped::of(&memory, PAGE, true).map(|_| ()), Err(Errno::ACCESS));
    assert_eq!(rustix::io::pwrite(&memory, b"x", 0), Err(Errno::BADF));
    assert_eq!(rustix::fs::ftruncate(&memory, 0), Err(Errno::INVAL));
    let path = format!("/proc/self/fd/{}", memory.as_fd().as_raw_fd());
    let reopened = as_user(MALLORY, || rustix::fs::open(&*path, OFlags::RDWR, Mode::empty()).map(|_| ()));
    assert_eq!(reopened, Err(Errno::ACCESS));
    assert_eq!(as_user(MALLORY, || rustix::fs::fchmod(&memory, Mode::from_raw_mode(0o777))), Err(Errno::PERM));
    let seen = Mapped::of(&memory, PAGE, false).unwrap();
    mapped.store(0, 9);
    assert_eq!(seen.load(0), 9);
    // A reader cannot make it longer at the cost of others either.
    client.set_size(&file.capability, 3 * PAGE as u64).unwrap();
    assert_eq!(mallory.map_file(&theirs, 3 * PAGE as u64, false).unwrap_err(), Error::Server(Errno::NODEV));
    // Nor does a reader keep the mapping from a mount, but sees what comes from there.
    drop((mapped, memory));
    let session = loop {
        if let (true, session) = client.take_mapping(&file.capability, false).unwrap() {
            break session;
        }
    };
    assert_eq!(client.write_back(&file, session, 1, b"mount").unwrap(), 5);
    assert_eq!((seen.load(0), seen.load(1), read(&client, &file, 0, 3)), (9, b'm', b"\x09mo".to_vec()));
    drop(seen);
    until_all_is_given_back(&running);
}

#[test]
fn whoever_cuts_or_keeps_the_memory_harms_no_other_file_and_no_server() {
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], &running.key_file, 20);
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    client.write_at(&file, 0, &[1; 3 * PAGE]).unwrap();
    let memory = client.map_file(&file, 3 * PAGE as u64, true).unwrap();
    rustix::io::pwrite(&memory, b"stored", 0).unwrap();
    rustix::fs::ftruncate(&memory, PAGE as u64).unwrap();
    client.sync(&file, true).unwrap();
    assert_eq!(read(&client, &file, 0, 7), *b"stored\x01");
    assert_eq!(read(&client, &file, PAGE as u64, PAGE), [1; PAGE], "nobody stored that");
    client.write_at(&file, 2 * PAGE as u64, b"written").unwrap();
    assert_eq!(read(&client, &file, 2 * PAGE as u64, 8), *b"written\x01");
    // Far behind the end, in every way there is.
    let wide = client.map_file(&file, 1 << 40, true).unwrap();
    let punch = SpaceChange::PunchHole;
    client.change_space(&file, punch, 3 * PAGE as u64, (1 << 40) - 5).unwrap();
    assert_eq!(client.change_space(&file, punch, i64::MAX as u64, 1 << 40).unwrap_err().errno(), Errno::FBIG);
    assert_eq!(client.set_size(&file.capability, 1 << 40).unwrap_err(), Error::Server(Errno::NOSPC));
    assert_eq!(client.write_at(&file, 1 << 39, b"x").unwrap_err(), Error::Server(Errno::NOSPC));
    assert_eq!(client.write_at(&file, u64::MAX >> 1, b"xx").unwrap_err().errno(), Errno::FBIG);
    drop(wide);
    // Longer than the file, and than what was asked for.
    rustix::fs::ftruncate(&memory, 1 << 40).unwrap();
    rustix::io::pwrite(&memory, b"beyond", 1 << 39).unwrap();
    client.sync(&file, true).unwrap();
    assert_eq!(client.get_attr(file.capability, b"", false).unwrap().size_bytes, 3 * PAGE as u64);
    // What is kept after the end is nothing: the descriptor itself keeps it in use.
    let copy: OwnedFd = rustix::io::fcntl_dupfd_cloexec(&memory, 3).unwrap();
    drop(memory);
    assert_eq!(homes(&running).len(), 1);
    drop(copy);
    until_all_is_given_back(&running);
    assert_eq!(read(&client, &file, 0, 7), *b"stored\x01");
}

#[test]
fn a_mount_and_programs_have_a_mapping_one_after_the_other() {
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], &running.key_file, 20);
    let mount = running.client(&running.addresses[0], &running.key_file, 20);
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    client.write_at(&file, 0, b"file").unwrap();
    let take = || loop {
        match mount.take_mapping(&file.capability, false) {
            Err(Error::Server(Errno::AGAIN)) => std::thread::yield_now(),
            taken => return taken.unwrap().0,
        }
    };
    assert!(take());
    let impatient = running.client(&running.addresses[0], &running.key_file, 1);
    assert_eq!(impatient.map_file(&file, 4, true).unwrap_err(), Error::Server(Errno::AGAIN));
    std::thread::scope(|scope| {
        let program = scope.spawn(|| Mapped::new(&client, &file, 4, true).unwrap());
        // It is asked for the mapping, and gives it.
        let mut news = mount.await_mappings(0, isonomia_units::Nanos::from_secs(10)).unwrap();
        while news.wanted.is_empty() {
            news = mount.await_mappings(news.version, isonomia_units::Nanos::from_secs(10)).unwrap();
        }
        mount.give_mapping(Ino(file.capability.ino)).unwrap();
        let mapped = program.join().unwrap();
        assert!(!take(), "the program has it");
        mapped.store(0, b'F');
    });
    // Nobody has it any more: it comes to the mount, with what was stored.
    while !take() {
        std::thread::yield_now();
    }
    assert_eq!(read(&mount, &file, 0, 9), b"File");
    until_all_is_given_back(&running);
}
