//! Whatever a client lets the server do is charged to its job.

use crate::running::{Running, create, start};
use isonomia_client::{Claims, Ino, XattrHow};
use isonomia_proto::request::{Op, RequestHeader, flag};
use isonomia_server::{PageCache, TargetConfig};
use isonomia_transport::channel::{Channel, Manner};
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
use std::path::Path;

const PATIENCE: Nanos = Nanos::from_secs(20);
/// What an operation costs on a target that is not capped, and a byte: 8 GiB/s.
const OPERATION_NS: u64 = 1_907;
const MIB_NS: u64 = 122_070;
/// Of `linux/magic.h`.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Service that the job of `running`'s clients has received until now.
fn charged_ns(running: &Running) -> u64 {
    running.server().status().jobs.iter().map(|job| job.service_ns_total).sum()
}

/// The part of it at data targets.
fn charged_for_data_ns(running: &Running) -> u64 {
    running.server().status().jobs.iter().map(|job| job.data_service_ns_total).sum()
}

fn channel(running: &Running, job: &str) -> Channel {
    let claims = Claims { job: Some(job.to_owned()), ..Claims::default() };
    let identity = Identity { client: 7, claims, ..Identity::default() };
    Channel::open(&running.addresses[0], &identity, Deadline::after(PATIENCE)).unwrap()
}

#[test]
fn a_thousand_crumbs_cost_a_thousand_operations() {
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], "", 20);
    let file = client.open(Ino::ROOT, b"crumbs", &create()).unwrap();
    let mut channel = channel(&running, "test");
    let before = charged_ns(&running);
    for at in 0..1_000 {
        let mut request = RequestHeader::with_capability(Op::Write, &file.capability);
        (request.offset, request.len, request.flags) = (at, 1, flag::CONTINUED);
        channel.stage().copy_from(&[1]);
        let slot = channel.send(&request).unwrap();
        assert_eq!(channel.wait(slot, PATIENCE, Manner::default()).unwrap().value, 1);
    }
    let cost = charged_ns(&running) - before;
    assert!(cost >= 1_000 * OPERATION_NS, "{cost} ns");
}

#[test]
fn a_large_write_is_one_operation_still() {
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], "", 20);
    let file = client.open(Ino::ROOT, b"large", &create()).unwrap();
    let before = charged_ns(&running);
    assert_eq!(client.write_at(&file, 0, &vec![1; 1 << 20]).unwrap(), 1 << 20);
    let cost = charged_ns(&running) - before;
    assert!((MIB_NS..MIB_NS + 2 * OPERATION_NS).contains(&cost), "{cost} ns");
}

#[test]
fn what_metadata_costs_is_told_apart_from_what_data_does() {
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], "", 20);
    let file = client.open(Ino::ROOT, b"file", &create()).unwrap();
    let (all, data) = (charged_ns(&running), charged_for_data_ns(&running));
    for _ in 0..100 {
        client.get_attr(Ino::ROOT, b"file", true).unwrap();
    }
    assert!(charged_ns(&running) > all);
    assert_eq!(charged_for_data_ns(&running), data);
    client.write_at(&file, 0, &vec![1; 1 << 20]).unwrap();
    assert!(charged_for_data_ns(&running) >= data + MIB_NS);
}

#[test]
fn long_replies_and_long_arguments_cost_their_bytes() {
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], "", 20);
    let crowd = client.mkdir(Ino::ROOT, b"crowd", 0o755).unwrap().attr.ino;
    for number in 0..400 {
        let name = format!("crowd/{number:0>200}");
        client.open(Ino::ROOT, name.as_bytes(), &create()).unwrap();
    }
    let value = vec![7; 60_000];
    let before = charged_ns(&running);
    client.set_xattr(Ino::ROOT, b"crowd", true, b"user.long", &value, XattrHow::default()).unwrap();
    let set = charged_ns(&running) - before;
    assert!(set >= (60_000 * MIB_NS) >> 20, "{set} ns");
    let mut room = vec![0; 60_000];
    client.get_xattr(Ino::ROOT, b"crowd", true, b"user.long", &mut room).unwrap();
    let got = charged_ns(&running) - before - set;
    assert!(got >= (60_000 * MIB_NS) >> 20, "{got} ns");
    let before = charged_ns(&running);
    let (mut names, mut requests, mut cookie) = (0, 0, 0);
    while names < 400 {
        let some = client.read_dir(Ino(crowd), cookie).unwrap();
        cookie = some.last().unwrap().cookie;
        (names, requests) = (names + some.len() as u64, requests + 1);
    }
    let cost = charged_ns(&running) - before;
    assert!(cost >= requests * OPERATION_NS + ((names * 200 * MIB_NS) >> 20), "{cost} ns for {requests} requests");
}

#[test]
fn a_path_that_leads_through_long_links_costs_the_time_that_it_takes() {
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], "", 20);
    client.mkdir(Ino::ROOT, b"a", 0o755).unwrap();
    let there_and_back = b"a/../".repeat(800);
    for number in 0..3 {
        let text = [&there_and_back[..], format!("l{}", number + 1).as_bytes()].concat();
        client.symlink(&text, Ino::ROOT, format!("l{number}").as_bytes()).unwrap();
    }
    client.symlink(b"a", Ino::ROOT, b"l3").unwrap();
    let before = charged_ns(&running);
    for _ in 0..100 {
        client.get_attr(Ino::ROOT, b"l0", true).unwrap();
    }
    let cost = charged_ns(&running) - before;
    // Of the last one it is owed still. No machine goes through 4,800 components in less than 20 us.
    assert!(cost >= 99 * 20_000, "{cost} ns");
}

#[test]
fn whoever_asks_for_a_flush_pays_for_what_there_is_to_flush() {
    // In memory there is nothing to flush.
    let storage = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if rustix::fs::statfs(storage.path()).unwrap().f_type == TMPFS_MAGIC {
        return isonomia_testbed::skip("all directories at hand are in memory");
    }
    let running = start(|config| {
        config.dir = Some(storage.path().join("data"));
        // What our own write-back has brought to the device is not paid for once more.
        config.targets = vec![TargetConfig { cache: PageCache::Always, ..TargetConfig::default() }];
        // Where time is divided, what the device takes is charged, and the host may have written some by then.
        config.policy = "fifo".parse().unwrap();
    });
    let client = running.client(&running.addresses[0], "", 20);
    let file = client.open(Ino::ROOT, b"file", &create()).unwrap();
    client.write_at(&file, 0, &vec![1; 8 << 20]).unwrap();
    let before = charged_ns(&running);
    client.sync(&file, false).unwrap();
    // It is owed until the next request.
    client.write_at(&file, 0, b"1").unwrap();
    let cost = charged_ns(&running) - before;
    assert!(cost >= 8 * MIB_NS, "{cost} ns");
}

#[test]
fn connections_are_charged_to_the_job_that_connects() {
    let running = start(|_| {});
    let connect = || drop(channel(&running, "restless"));
    connect();
    let before = charged_ns(&running);
    (0..100).for_each(|_| connect());
    let cost = charged_ns(&running) - before;
    assert!(cost >= 100 * 32 * OPERATION_NS, "{cost} ns");
}

/// Lets the kernel forget what it has in memory of the objects below `dir`.
fn forget_pages(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            forget_pages(&entry.path());
        } else {
            let file = std::fs::File::open(entry.path()).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    }
}

#[test]
fn what_a_device_takes_is_measured_and_learnt() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = disk.path().to_owned();
    let running = start(|config| config.targets = vec![TargetConfig { dir: Some(dir), ..TargetConfig::default() }]);
    let target = || running.server().status().targets.into_iter().find(|target| target.target == "0").unwrap();
    let metadata = running.server().status().targets.into_iter().find(|target| target.target == "metadata").unwrap();
    assert_eq!((metadata.busy_ns_total, metadata.oldest_ns), (None, None), "what it takes is known");
    if target().busy_ns_total.is_none() {
        return isonomia_testbed::skip("the directory of the build is in memory");
    }
    assert!(target().costs.is_empty(), "nothing was learnt yet");
    let client = running.client(&running.addresses[0], "", 20);
    let file = client.open(Ino::ROOT, b"file", &create()).unwrap();
    client.write_at(&file, 0, &vec![1; 8 << 20]).unwrap();
    client.sync(&file, false).unwrap();
    let busy = target().busy_ns_total.unwrap();
    assert!(busy > 0, "a flush is something to do for the device");
    forget_pages(disk.path());
    let mut block = [0; 4096];
    for at in (0..64).rev() {
        assert_eq!(client.read_at(&file, at << 17, &mut block[..]).unwrap(), 4096);
    }
    let after = target();
    if after.busy_ns_total == Some(busy) {
        return isonomia_testbed::skip("the host does not forget what it has read");
    }
    let learnt = after.costs.iter().find(|cost| cost.access == "read-random").expect("it was learnt");
    assert!(learnt.per_op_ns > 0 && learnt.bandwidth_bytes_per_s != Some(0), "{learnt:?}");
}

#[test]
fn a_fair_clock_tells_of_phases_under_any_policy() {
    for fair_clock in [true, false] {
        let running = start(|config| {
            config.policy = "fifo".parse().unwrap();
            config.fair_clock = fair_clock;
        });
        let client = running.client(&running.addresses[0], "", 20);
        let file = client.open(Ino::ROOT, b"phase", &create()).unwrap();
        // A phase that was over before the status was asked for is followed by another.
        let told = (0..100).find_map(|_| {
            assert_eq!(client.write_at(&file, 0, &vec![1; 1 << 20]).unwrap(), 1 << 20);
            running.server().status().jobs.iter().find_map(|job| job.phase)
        });
        assert_eq!(told.is_some(), fair_clock);
        if let Some(phase) = told {
            assert!(phase.received_ns >= 8 * MIB_NS / 10, "{phase:?}");
            // Alone it is never late.
            assert!(phase.fair_ns > 0 && phase.fair_ns <= phase.received_ns, "{phase:?}");
        }
    }
}
