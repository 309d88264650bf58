//! Rings at pipes, which say nothing until somebody writes to them; and a core whose one worker is the test.

use super::ring::Ring;
use super::*;
use crate::connection::{Connection, Pending};
use crate::limits::{Limits, LimitsConfig};
use crate::pages::PagesOf;
use crate::read_ahead::ReadAhead;
use crate::target::Action;
use crate::testing;
use crate::usage::Usage;
use isonomia_policy::device::read_ahead::short::{self, AROUND_BYTES, BLOCK_BYTES};
use isonomia_policy::device::read_ahead::{Manner, Read};
use isonomia_policy::{Access, DepthSpec, Nature};
use isonomia_proto::fs::Capability;
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_store::{Caller, HostPages, OpenHow, PAGES_LEN_MAX};
use isonomia_testbed::skip;
use isonomia_units::{Bytes, Ino, JobInfo, TargetId};
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::ReadWriteFlags;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn all() -> OwnedFd {
    epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()
}

fn ring(all: &OwnedFd) -> Option<Ring> {
    Ring::new(4, all).inspect_err(|error| skip(&format!("no io_uring: {error}"))).ok()
}

fn came(ring: &mut Ring) -> Vec<u64> {
    let mut names = Vec::new();
    ring.take(|name| names.push(name));
    names
}

/// What never comes by itself stands for a device that hangs.
fn pipe() -> (Arc<OwnedFd>, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    (Arc::new(reader), writer)
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up_at = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < give_up_at, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn who_asked_hears_of_what_has_come_and_of_nothing_else() {
    let all = all();
    let Some(mut ring) = ring(&all) else { return };
    let (reader, writer) = pipe();
    assert!(ring.ask(7, HostPages { file: reader.clone(), offset: u64::MAX, len: 1 }));
    assert!(ring.has_untaken() && Arc::strong_count(&reader) == 2, "it stays open until the kernel has it");
    ring.submit().unwrap();
    assert!(!ring.has_untaken() && Arc::strong_count(&reader) == 1);
    assert!(!ring.wait(Nanos::ZERO) && came(&mut ring).is_empty());
    rustix::io::write(&writer, b"x").unwrap();
    let mut names = Vec::new();
    until("it comes", || {
        ring.wait(Nanos::from_millis(1));
        names.extend(came(&mut ring));
        !names.is_empty()
    });
    assert_eq!(names, [7]);
    // What other threads wait for wakes this one, too.
    let (for_all, rung) = pipe();
    epoll::add(&all, &for_all, epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
    rustix::io::write(&rung, b"x").unwrap();
    assert!(ring.wait(Nanos::from_secs(30)));
}

#[test]
fn a_ring_takes_no_more_than_it_was_made_for_and_ends_whatever_is_under_way() {
    let all = all();
    let Some(mut ring) = ring(&all) else { return };
    let (reader, _writer) = pipe();
    let pages = HostPages { file: reader, offset: u64::MAX, len: PAGES_LEN_MAX };
    assert!((0..4).all(|name| ring.ask(name, pages.clone())) && !ring.ask(4, pages));
    ring.submit().unwrap();
    assert!(came(&mut ring).is_empty());
}

/// A server's core without threads, whose one worker is the test.
pub struct Fixture {
    pub core: Arc<Core>,
    connection: Arc<Connection>,
    file: Capability,
    _dir: tempfile::TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap())
    }

    fn on(dir: tempfile::TempDir) -> Self {
        let core = testing::core(dir.path(), false);
        let store = &core.store;
        let how = OpenHow { access: 3, create: true, mode: 0o600, ..OpenHow::default() };
        let opened = store.open_file(&Caller::ROOT, Ino::ROOT, b"file", &how, clock::wall()).unwrap();
        let file = opened.capability;
        store.write(Ino(file.ino), 0, &[5; 4096], clock::wall()).unwrap();
        let limits = Limits::settle(&LimitsConfig::default(), 20_000, 0, 8 << 30).unwrap();
        let info = JobInfo::new("j", "u", "g");
        let job = core.jobs.join(info.clone()).unwrap().job;
        core.targets[1].set_job(Nanos::ZERO, job.id, &info);
        let permit = Arc::new(Usage::new(limits)).take(0, false, 0).unwrap();
        let connection = Arc::new(Connection::of_root(job, core.sessions.join((0, 7)), (0, 7), permit));
        Self { core, connection, file, _dir: dir }
    }

    /// A read of the file, whose turn has come.
    fn read(&self) -> Box<Work> {
        let target = &self.core.targets[1];
        let pending = Pending {
            connection: self.connection.clone(),
            slot: 0,
            header: RequestHeader { len: 4096, ..RequestHeader::with_capability(Op::Read, &self.file) },
            op: Op::Read,
            names: Vec::new(),
            arrived: clock::now(),
            cost: target.cost(1, Bytes(4096)),
            owed: Nanos::ZERO,
            work: target.cost(1, Bytes(4096)),
            access: Access::new(false, true),
            bytes: Bytes(4096),
            took: Nanos::ZERO,
            nature: Nature::WRITE,
            neighbours: Bytes(0),
            is_for_device: false,
            change: None,
        };
        target.enqueue(clock::now(), pending).unwrap();
        let Action::Serve(work) = target.next_action(clock::now()) else { panic!("it is the only one") };
        work
    }

    fn in_service(&self) -> u64 {
        self.core.targets[1].status(clock::now()).in_service
    }
}

#[test]
fn what_a_worker_has_under_way_is_answered_once_whether_it_is_kept_waiting_or_not() {
    let fixture = Fixture::new();
    let (core, target) = (&fixture.core, &fixture.core.targets[1]);
    core.begin_fetches(0);
    if !core.fetches.are_on() {
        return skip("no io_uring");
    }
    // Asked for and answered by the worker.
    assert!(core.fetch(target, fixture.read(), false).is_ok() && are_under_way() && gathered() == Some(1));
    until("it comes", || core.advance_fetches(&mut Vec::new()));
    assert!(!are_under_way());
    assert_eq!(fixture.in_service(), 0);
    // Taken from it by who sees that it waits, and answered by a thread.
    let fixture = Fixture::new();
    let (core, target) = (&fixture.core, &fixture.core.targets[1]);
    core.begin_fetches(0);
    assert!(core.fetch(target, fixture.read(), false).is_ok());
    core.rescue_from(0);
    until("a thread serves it", || fixture.in_service() == 0);
    assert!(are_under_way(), "the kernel's word on it is still to come");
    until("it comes", || core.advance_fetches(&mut Vec::new()));
    assert!(!are_under_way());
    // Left by a worker that ends.
    let fixture = Fixture::new();
    let (core, target) = (&fixture.core, &fixture.core.targets[1]);
    core.begin_fetches(0);
    assert!(core.fetch(target, fixture.read(), false).is_ok());
    core.end_fetches();
    until("a thread serves it", || fixture.in_service() == 0);
    core.targets[1].engine.stop();
}

#[test]
fn a_read_that_the_host_has_begun_is_one_for_the_device_however_soon_it_comes() {
    let fixture = Fixture::new();
    let (core, target) = (&fixture.core, &fixture.core.targets[1]);
    core.begin_fetches(0);
    if !core.fetches.are_on() {
        return skip("no io_uring");
    }
    // All of it is in memory.
    let is_for_device = |is_begun| {
        assert!(core.fetch(target, fixture.read(), is_begun).is_ok());
        OWN.with_borrow_mut(|own| own.as_mut().unwrap().advance(core)).unwrap();
        let is_entered = core.fetches.table(0).iter().flatten().all(|fetch| fetch.entered.is_some());
        until("it comes", || core.advance_fetches(&mut Vec::new()));
        is_entered
    };
    assert!((0..50).all(|_| is_for_device(true)));
    until("one comes at once", || !is_for_device(false));
}

#[test]
fn a_worker_that_has_more_to_answer_than_it_gets_on_with_wakes_another() {
    let fixture = Fixture::new();
    let (core, target) = (&fixture.core, &fixture.core.targets[1]);
    core.begin_fetches(0);
    if !core.fetches.are_on() {
        return skip("no io_uring");
    }
    core.asleep.store(1, Ordering::SeqCst);
    core.awake.store(2, Ordering::SeqCst);
    let is_rung = || core.take_events(clock::now(), Some(Nanos::ZERO));
    let answer_all = |count| {
        (0..count).for_each(|_| assert!(core.fetch(target, fixture.read(), false).is_ok()));
        until("they come", || {
            core.advance_fetches(&mut Vec::new());
            !are_under_way()
        });
    };
    answer_all(ANSWERED_MAX);
    if !target.engine.may_tell() {
        return skip("the host does not tell what is in memory");
    }
    assert!(!is_rung() && core.has_worker_to_spare(clock::now()), "one is enough");
    // What is in memory comes at once, all of it, on most file systems.
    until("another one is woken", || {
        answer_all(2 * ANSWERED_MAX);
        is_rung()
    });
    // One at a time is called.
    let now = clock::now() + Nanos::from_secs(1);
    core.call_for_help(now);
    assert!(is_rung() && !core.has_worker_to_spare(now));
    core.call_for_help(now + Nanos::from_micros(199));
    assert!(!is_rung());
    core.call_for_help(now + Nanos::from_micros(200));
    assert!(is_rung());
    core.asleep.store(0, Ordering::SeqCst);
    core.call_for_help(now + Nanos::from_secs(1));
    assert!(!is_rung(), "nobody sleeps");
}

#[test]
fn where_the_host_does_not_tell_what_is_in_memory_the_kernel_is_not_asked_again() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return skip("no /dev/shm") };
    let file = std::fs::File::create_new(dir.path().join("probe")).unwrap();
    rustix::io::pwrite(&file, b"x", 0).unwrap();
    let read = rustix::io::preadv2(&file, &mut [std::io::IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT);
    if !matches!(read, Err(Errno::OPNOTSUPP | Errno::BADF)) {
        return skip("the host tells of a file system in memory, too");
    }
    let fixture = Fixture::on(dir);
    let (core, target) = (&fixture.core, &fixture.core.targets[1]);
    core.begin_fetches(0);
    if !core.fetches.are_on() {
        return skip("no io_uring");
    }
    assert!(target.engine.may_tell() && core.fetch(target, fixture.read(), false).is_ok());
    until("it comes", || core.advance_fetches(&mut Vec::new()));
    assert!(!target.engine.may_tell());
    until("a thread serves it", || fixture.in_service() == 0);
    target.engine.stop();
}

#[test]
fn a_thread_hands_over_what_a_ring_can_take_only() {
    let fixture = Fixture::new();
    let (core, target) = (&fixture.core, &fixture.core.targets[1]);
    let mut work = fixture.read();
    assert!(!core.is_for_worker(target, &work), "no worker has a ring");
    core.begin_fetches(0);
    if !core.fetches.are_on() {
        return skip("no io_uring");
    }
    assert!(core.is_for_worker(target, &work));
    work.pending.header.offset = 4096;
    assert!(!core.is_for_worker(target, &work), "there is nothing to wait for");
    core.end_fetches();
    work.pending.header.offset = 0;
    assert!(!core.is_for_worker(target, &work));
}

#[test]
fn what_is_handed_to_workers_that_have_ended_is_served() {
    let fixture = Fixture::new();
    let (core, target) = (&fixture.core, &fixture.core.targets[1]);
    core.fetches.hand(target.index, fixture.read());
    core.leave_handed();
    core.is_stopping.store(true, Ordering::SeqCst);
    core.hand_to_worker(target, fixture.read());
    assert!(core.fetches.next_handed().is_none());
    until("threads serve them", || fixture.in_service() == 0);
    target.engine.stop();
}

#[test]
fn what_is_handed_over_is_begun_once() {
    let fixture = Fixture::new();
    assert!(fixture.core.fetches.next_handed().is_none());
    fixture.core.hand_to_worker(&fixture.core.targets[1], fixture.read());
    assert!(matches!(fixture.core.fetches.next_handed(), Some((1, _))));
    assert!(fixture.core.fetches.next_handed().is_none());
}

#[test]
fn of_a_block_that_a_slow_device_reads_what_is_in_memory_is_dropped_first() {
    let fixture = Fixture::new();
    let (core, policy) = (&fixture.core, testing::policy("job-fair"));
    let mut target = Target::new(Some(TargetId(0)), String::new(), None, None, &policy, 1, (false, DepthSpec::Auto));
    target.read_ahead = Some(ReadAhead::default());
    let ino = Ino(fixture.file.ino);
    core.store.write(ino, 0, &[5; AROUND_BYTES as usize], clock::wall()).unwrap();
    core.store.fsync(ino, false).unwrap();
    let mut work = fixture.read();
    let Some(pages) = execute::host_pages(core, &fixture.connection, &work.pending.header) else {
        return skip("nobody waits for it");
    };
    let block = pages.block(BLOCK_BYTES).unwrap();
    let another = HostPages { offset: pages.offset + 2 * pages.len, ..pages.clone() };
    let read =
        Read { job: fixture.connection.job.id, range: 0..BLOCK_BYTES, is_from_memory: true, is_continued: false };
    let (streams, prices) = (target.read_ahead.as_ref().unwrap(), target.prices.as_ref().unwrap());
    for is_slow in [false, true] {
        let took = if is_slow { Nanos(100 * short::SLOW.0) } else { Nanos(short::SLOW.0 / 100) };
        (0..100).for_each(|_| prices.learn(clock::now(), Access::ReadRandom, Bytes(4096), took));
        block.forget();
        another.read(&mut [0; 4096]);
        if block.cached_bytes() != Some(4096) {
            return skip("the host does not tell what is in memory, or keeps it");
        }
        // What was served allows for it.
        streams.note(PagesOf::File(ino), read.clone(), || Manner::AtOnce);
        assert_eq!(core.block_of(&target, &mut work, &pages).map(|block| block.len), Some(BLOCK_BYTES));
        let left = if is_slow { 0 } else { 4096 };
        assert_eq!(block.cached_bytes(), Some(left));
        assert_eq!(work.pending.neighbours, Bytes(BLOCK_BYTES - left - 4096));
    }
}
