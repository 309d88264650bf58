//! Memory that stands for mapped files, and clients that misuse it.

use crate::running::{ALICE, MALLORY, READ_WRITE, Running, as_user, can_be_others, create, eventually, pattern, start};
use isonomia_client::{
    Address, Change, Claims, Client, ClientConfig, Error, Ino, OpenFile, OpenHow, SpaceChange, access,
};
use isonomia_proto::mapping::STORES;
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_server::LimitsConfig;
use isonomia_transport::channel::{Channel, Manner};
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
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

/// The memory that the server has.
fn memory(running: &Running) -> Vec<PathBuf> {
    let entries = homes(running).into_iter().flat_map(|home| std::fs::read_dir(home).unwrap());
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Where it keeps such memory from the first on.
fn homes(running: &Running) -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(running.dir.path().join("data/metadata")).unwrap();
    let name = format!("isonomia-mapped-{:x}-{:x}-", metadata.dev(), metadata.ino());
    let entries = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap());
    entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(&name)).map(|entry| entry.path()).collect()
}

/// Waits until the server has given all memory back.
fn until_all_is_given_back(running: &Running) {
    let start = std::time::Instant::now();
    while !memory(running).is_empty() {
        assert!(start.elapsed().as_secs() < 60, "{:?}", memory(running));
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
    // The memory is gone a moment before it is counted as given back.
    eventually("there is memory again", || Mapped::new(&alice, &own[1], 4 << 20, true).is_ok());
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
fn a_descriptor_that_is_not_received_is_the_only_one_on_its_way() {
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], &running.key_file, 20);
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    let identity = Identity { client: 7, ..Identity::default() };
    let long = Nanos::from_secs(20);
    let mut channel = Channel::open(&running.addresses[0], &identity, Deadline::after(long)).unwrap();
    let request =
        RequestHeader { offset: 1, valid: STORES, ..RequestHeader::with_capability(Op::MapFile, &file.capability) };
    let ask = |channel: &mut Channel| loop {
        let slot = channel.send(&request).unwrap();
        let reply = channel.wait(slot, long, Manner::default()).unwrap();
        // A server that has just started.
        if reply.errno != Errno::AGAIN.raw_os_error() as u32 {
            return reply.errno;
        }
    };
    for _ in 0..3 {
        assert_eq!([0; 2].map(|_| ask(&mut channel)), [0, Errno::BUSY.raw_os_error() as u32]);
        assert!(channel.receive_descriptor(long).unwrap().is_some());
    }
    assert_eq!(ask(&mut channel), 0);
    // With the connection goes what was on its way.
    drop(channel);
    until_all_is_given_back(&running);
}

/// As logind does when a user logs out.
#[test]
fn memory_whose_name_is_removed_stays_until_nobody_has_it() {
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], &running.key_file, 20);
    let [file, other] = [b"f", b"g"].map(|name| client.open(Ino::ROOT, name, &create()).unwrap());
    client.write_at(&file, 0, &[1; PAGE]).unwrap();
    let mapped = Mapped::new(&client, &file, PAGE, true).unwrap();
    homes(&running).iter().for_each(|home| std::fs::remove_dir_all(home).unwrap());
    mapped.store(1, 2);
    client.write_at(&file, 2, &[3]).unwrap();
    let again = Mapped::new(&client, &file, PAGE, true).unwrap();
    assert_eq!(([0, 1, 2].map(|at| again.load(at)), read(&client, &file, 0, 3)), ([1, 2, 3], vec![1, 2, 3]));
    let later = Mapped::new(&client, &other, PAGE, true).unwrap();
    drop((mapped, again));
    assert_eq!(read(&client, &file, 0, 3), [1, 2, 3]);
    drop(later);
    until_all_is_given_back(&running);
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
    // It has to connect within the same time.
    let impatient = running.client(&running.addresses[0], &running.key_file, 5);
    assert_eq!(impatient.map_file(&file, 4, true).unwrap_err(), Error::Server(Errno::AGAIN));
    std::thread::scope(|scope| {
        let program = scope.spawn(|| Mapped::new(&client, &file, 4, true).unwrap());
        // It is asked for the mapping, and gives it.
        let mut events = mount.await_mappings(None, 0, Nanos::from_secs(10)).unwrap();
        while events.wanted.is_empty() {
            events = mount.await_mappings(None, events.version, Nanos::from_secs(10)).unwrap();
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

/// What must be in a file, after each of many random steps.
#[test]
fn a_mapped_file_is_what_a_file_is() {
    const LEN_MAX: usize = 5 * PAGE;
    let mut running = start(|_| {});
    for seed in 0..6 {
        let mut state = seed;
        let mut random = |below: usize| {
            // Knuth's linear congruential generator for MMIX.
            state = u64::wrapping_mul(state, 6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let client = running.client(&running.addresses[0], &running.key_file, 20);
        let name = format!("f{seed}");
        let file = client.open(Ino::ROOT, name.as_bytes(), &create()).unwrap();
        let mut model: Vec<u8> = Vec::new();
        let mut mapped = None;
        for step in 0..600 {
            let (at, len) = (random(LEN_MAX), 1 + random(2 * PAGE));
            let end = (at + len).min(LEN_MAX);
            let value = random(255) as u8 + 1;
            match random(12) {
                0..=2 => {
                    client.write_at(&file, at as u64, &vec![value; end - at]).unwrap();
                    model.resize(model.len().max(end), 0);
                    model[at..end].fill(value);
                }
                3 if model.len() < LEN_MAX => {
                    client.append(&file, &[value; 7]).unwrap();
                    model.extend([value; 7]);
                }
                4 => {
                    client.set_size(&file.capability, at as u64).unwrap();
                    model.resize(at, 0);
                }
                5 => {
                    let change = Change { size_bytes: Some(at as u64), ..Change::default() };
                    client.set_attr(Ino::ROOT, name.as_bytes(), true, &change).unwrap();
                    model.resize(at, 0);
                }
                6 if random(4) == 0 => {
                    let how = OpenHow { access: READ_WRITE, truncate: true, ..OpenHow::default() };
                    client.open(Ino::ROOT, name.as_bytes(), &how).unwrap();
                    model.clear();
                }
                7 => {
                    let changes = [SpaceChange::PunchHole, SpaceChange::ZeroRange { keep_size: false }];
                    let grows = random(2);
                    client.change_space(&file, changes[grows], at as u64, (end - at) as u64).unwrap();
                    model.resize(model.len().max(end * grows), 0);
                    let (from, to) = (at.min(model.len()), end.min(model.len()));
                    model[from..to].fill(0);
                }
                8 => client.sync(&file, true).unwrap(),
                9 if random(8) == 0 => mapped = None,
                _ => {
                    let mapped = mapped.get_or_insert_with(|| {
                        Mapped::new(&client, &file, 8 * PAGE, true).unwrap_or_else(|error| panic!("{error}"))
                    });
                    // What is stored behind the end is nothing.
                    (at..end).for_each(|at| mapped.store(at, value));
                    let (from, to) = (at.min(model.len()), end.min(model.len()));
                    model[from..to].fill(value);
                }
            }
            if let Some(mapped) = &mapped {
                let wrong = (0..model.len()).find(|at| mapped.load(*at) != model[*at]);
                assert_eq!(wrong, None, "seed {seed}, step {step}: {}", model.len());
            }
            assert!(read(&client, &file, 0, 2 * LEN_MAX) == model, "seed {seed}, step {step}: {}", model.len());
            if step == 400 && seed % 3 == 0 {
                running.restart();
            }
        }
        drop(mapped);
        until_all_is_given_back(&running);
        assert!(read(&client, &file, 0, 2 * LEN_MAX) == model, "seed {seed}");
    }
}

/// Each owner writes and stores to its own part, and must find there what it put there last, while segments begin and end
/// and the end of the file moves.
#[test]
fn nothing_is_lost_while_segments_begin_and_end() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    const PART: usize = PAGE / 2;
    const OWNERS: usize = 3;
    const ROUNDS: usize = 5;
    let running = start(|_| {});
    let client = || running.client(&running.addresses[0], &running.key_file, 20);
    let file = client().open(Ino::ROOT, b"f", &create()).unwrap();
    client().write_at(&file, 0, &[0; OWNERS * PART]).unwrap();
    let (is_over, arrived) = (AtomicBool::new(false), AtomicUsize::new(0));
    struct Ends<'a>(&'a AtomicBool);
    // Also if an owner panics: nobody waits for it.
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let meet = |meeting: usize| {
        arrived.fetch_add(1, Ordering::Relaxed);
        while arrived.load(Ordering::Relaxed) < meeting * OWNERS && !is_over.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        for owner in 0..OWNERS {
            let (client, file, is_over, meet, running) = (client(), &file, &is_over, &meet, &running);
            scope.spawn(move || {
                let _ends = Ends(is_over);
                let start = owner * PART;
                let mut repeat = 0u64;
                let mut put = |by_store: bool| {
                    repeat += 1;
                    let value = repeat as u8 | 1;
                    if by_store {
                        let mapped = Mapped::new(&client, file, OWNERS * PART, true).unwrap();
                        (start..start + PART).for_each(|at| mapped.store(at, value));
                    } else {
                        client.write_at(file, start as u64, &[value; PART]).unwrap();
                    }
                    assert_eq!(
                        read(&client, file, start as u64, PART),
                        [value; PART],
                        "owner {owner}, repeat {repeat}"
                    );
                };
                for round in 0..ROUNDS {
                    meet(2 * round + 1);
                    (0..30).for_each(|repeat| put(repeat % 10 == owner));
                    meet(2 * round + 2);
                    // Until the segment has ended.
                    while !memory(running).is_empty() {
                        put(false);
                    }
                }
            });
        }
        scope.spawn(|| {
            let client = client();
            for repeat in 0u64.. {
                let size = (OWNERS * PART) as u64 + repeat % 7 * 1_000;
                client.set_size(&file.capability, size).unwrap();
                client.write_at(&file, size, b"tail").unwrap();
                client.sync(&file, true).unwrap();
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
    });
    until_all_is_given_back(&running);
}

#[test]
fn memory_is_shared_with_a_server_in_no_cluster_of_which_several_addresses_were_given() {
    let running = start(|_| {});
    let on_tcp = running.addresses[1].clone();
    let also: Address = on_tcp.to_string().replace("127.0.0.1", "localhost").parse().unwrap();
    let maps = |addresses: &[Address]| {
        let client = Client::new(ClientConfig {
            addresses: addresses.to_vec(),
            timeout: Nanos::from_secs(20),
            claims: Claims::default(),
            key_file: Some(running.key_file.clone()),
        });
        let file = client.open(Ino::ROOT, b"file", &OpenHow { exclusive: false, ..create() }).unwrap();
        client.write_at(&file, 0, &[1; PAGE]).unwrap();
        client.map_file(&file, PAGE as u64, true).is_ok()
    };
    assert!(maps(&[on_tcp.clone(), also]));
    // Who gives one address says how.
    assert!(!maps(&[on_tcp]));
}
