//! Targets on a disk, in each of the ways in which their files may go through the page cache.

use crate::running::{Running, create, pattern, start};
use isonomia_client::Ino;
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_server::{Config, PageCache, TargetConfig, store_config};
use isonomia_testbed::skip;
use isonomia_transport::handshake::{Identity, open_shared};
use isonomia_transport::socket::{Deadline, send_all};
use isonomia_units::{Nanos, TargetId};
use rustix::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The kind of a file system in memory.
const TMPFS_MAGIC: u64 = 0x0102_1994;
const MODES: [PageCache; 3] = [PageCache::Auto, PageCache::Always, PageCache::Never];

/// A server with a target in `disk` for each mode.
fn start_on(disk: &Path) -> Running {
    start(|config| {
        let target = |(number, cache)| TargetConfig {
            dir: Some(disk.join(format!("target{number}"))),
            cache,
            ..TargetConfig::default()
        };
        config.targets = (0..).zip(MODES).map(target).collect();
    })
}

#[test]
fn bytes_come_back_however_they_go_through_the_page_cache() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut running = start_on(disk.path());
    // On each target one file that is whole blocks, and one that is not; by each transport.
    let files = || {
        (0..12usize).map(|number| {
            let (len, offset) = if number < 6 { (9 << 20, 0) } else { (3_333_333, 777) };
            (number, format!("f{number}"), pattern(len, number as u8), offset)
        })
    };
    let check = |running: &Running| {
        let client = &running.clients()[0];
        for (number, name, data, offset) in files() {
            let how = isonomia_client::OpenHow { create: false, exclusive: false, ..create() };
            let file = client.open(Ino::ROOT, name.as_bytes(), &how).unwrap();
            assert_eq!(usize::from(file.layout.targets[0].0), number % MODES.len());
            let mut back = vec![0xee; data.len() + 100];
            assert_eq!(client.read_at(&file, offset, &mut back).unwrap(), data.len());
            assert!(back[..data.len()] == data[..], "{name}");
        }
    };
    let clients = running.clients();
    for (number, name, data, offset) in files() {
        let client = &clients[number % clients.len()];
        let file = client.open(Ino::ROOT, name.as_bytes(), &create()).unwrap();
        assert_eq!(client.write_at(&file, offset, &data).unwrap(), data.len());
        if number % 4 == 0 {
            client.sync(&file, false).unwrap();
        }
    }
    drop(clients);
    check(&running);
    // What nobody syncs gets to the device all the same, where the server sees to that.
    let give_up_at = Instant::now() + Duration::from_secs(60);
    let dirty = || running.server().status().targets[1..].iter().map(|target| target.dirty_bytes).collect::<Vec<_>>();
    let is_memory = dirty().iter().all(Option::is_none);
    while !is_memory && dirty() != [Some(0), None, Some(0)] {
        assert!(Instant::now() < give_up_at, "{:?}", dirty());
        std::thread::yield_now();
    }
    running.restart();
    check(&running);
    assert_eq!(running.server().status().checksums.damaged_total, 0);
}

/// By each transport, of a file on each target.
#[test]
fn what_programs_write_past_the_page_cache_leaves_nothing_to_be_written_back() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut running = start_on(disk.path());
    let dirty = |running: &Running| running.server().status().targets[1].dirty_bytes;
    if dirty(&running).is_none() || !says_how_to_go_past_memory(disk.path()) {
        return skip("nothing goes past the page cache here");
    }
    let data = pattern(3 << 20, 5);
    for client in running.clients() {
        for number in 0..MODES.len() {
            let name = format!("f{number}");
            let how = isonomia_client::OpenHow { exclusive: false, ..create() };
            let file = client.open(Ino::ROOT, name.as_bytes(), &how).unwrap();
            assert_eq!(client.write_direct_at(&file, 0, &data).unwrap(), data.len());
            assert_eq!(client.write_direct_at(&file, 4 << 20, &data).unwrap(), data.len());
            // Not of whole blocks, and short.
            assert_eq!(client.write_direct_at(&file, 777, &data[777..1 << 20]).unwrap(), (1 << 20) - 777);
            let mut back = vec![0; data.len()];
            for offset in [0, 4 << 20] {
                assert_eq!(client.read_at(&file, offset, &mut back).unwrap(), data.len());
                assert!(back == data, "{name}");
            }
            client.sync(&file, false).unwrap();
        }
    }
    running.restart();
    let client = &running.clients()[0];
    let how = isonomia_client::OpenHow { create: false, exclusive: false, ..create() };
    let file = client.open(Ino::ROOT, b"f0", &how).unwrap();
    for offset in (0..32u64).map(|number| number << 18) {
        assert_eq!(client.write_direct_at(&file, offset, &data[..256 << 10]).unwrap(), 256 << 10);
        assert_eq!(dirty(&running), Some(0));
    }
    assert_eq!(running.server().status().checksums.damaged_total, 0);
}

/// As the store finds out.
fn says_how_to_go_past_memory(dir: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let path = dir.join("probe");
    std::fs::write(&path, [1; 4096]).unwrap();
    statx(CWD, &path, AtFlags::empty(), StatxFlags::DIOALIGN).is_ok_and(|told| told.stx_dio_offset_align > 0)
}

/// By that clients know whether to look out for the next reply.
#[test]
fn a_reply_says_whether_it_waited_for_a_device() {
    let running = start(|_| {});
    let client = &running.clients()[0];
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    client.write_at(&file, 0, b"bytes").unwrap();
    let soon = || Deadline::after(Nanos::from_secs(20));
    let (connection, mut region) =
        open_shared(&running.addresses[0], &Identity { client: 7, ..Identity::default() }, soon()).unwrap();
    let mut waited = |header: RequestHeader| {
        let slot = region.next_slot();
        if region.post(&header) {
            send_all(connection.socket.as_fd(), &[&[0]], soon()).unwrap();
        }
        let deadline = soon();
        while !region.is_done(slot) {
            deadline.left().unwrap();
            region.sleep(slot, 1_000_000);
        }
        assert_eq!(region.reply(slot).errno, 0);
        region.is_by_device(slot)
    };
    assert!(!waited(RequestHeader::new(Op::StatFs, Ino::ROOT)));
    assert!(waited(RequestHeader::with_capability(Op::Fsync, &file.capability)));
}

#[test]
fn the_host_reads_ahead_only_where_the_server_does_not() {
    let dirs = [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"].map(tempfile::tempdir_in);
    for dir in dirs.into_iter().flatten() {
        let target =
            |cache: PageCache| TargetConfig { dir: Some(dir.path().to_owned()), cache, ..TargetConfig::default() };
        let config = Config { targets: MODES.map(target).to_vec(), ..Config::default() };
        let store = store_config(&config, dir.path());
        // What is in memory is nowhere else.
        let is_memory = rustix::fs::statfs(dir.path()).unwrap().f_type as u64 == TMPFS_MAGIC;
        let on_device = |number| if is_memory { vec![] } else { vec![TargetId(number)] };
        assert_eq!((store.reads_as_asked, store.direct), (on_device(0), on_device(2)));
        assert_eq!(store.direct_on_request, on_device(0));
    }
}
