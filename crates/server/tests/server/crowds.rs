//! Hostile users in crowds: whatever one user, or a stranger on the network, takes, others get in and are served.
//!
//! A user is a thread with a user id of its own, which is what the kernel tells the server. So these tests need root.

use crate::running::{Running, as_user, create, pattern, start};
use isonomia_client::{Address, Ino};
use isonomia_proto::control::{ControlReply, ControlRequest, Status};
use isonomia_proto::setup::{self, Claims, Hello, Role};
use isonomia_server::TargetConfig;
use isonomia_testbed::is_root_to;
use isonomia_transport::channel::Channel;
use isonomia_transport::control::ControlConnection;
use isonomia_transport::descriptor::Parked;
use isonomia_transport::handshake::{HandshakeError, Identity, open_shared};
use isonomia_transport::socket::{self, Deadline, connect};
use isonomia_units::Nanos;
use rustix::fd::AsFd;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

const HOSTILE: u32 = 1_000_001;
const VICTIM: u32 = 1_000_002;

fn soon() -> Deadline {
    Deadline::after(Nanos::from_secs(20))
}

/// A server that other users reach; none where this process may not be other users.
fn open_to_all(change: impl FnOnce(&mut isonomia_server::Config)) -> Option<Running> {
    if !is_root_to("be several users") {
        return None;
    }
    let running = start(change);
    std::fs::set_permissions(running.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(running)
}

fn identity(client: u64, job: &str) -> Identity {
    let claims = Claims { job: Some(job.to_owned()), ..Claims::default() };
    Identity { client, claims, ..Identity::default() }
}

fn status(address: &Address) -> Status {
    let mut control = ControlConnection::connect(address, None, Nanos::from_secs(20)).unwrap();
    let ControlReply::Status(status) = control.ask(&ControlRequest::Status).unwrap() else { panic!("no status") };
    *status
}

/// A user and root get in and are served.
fn everybody_else_is_served(running: &Running) {
    as_user(VICTIM, || {
        let channel = Channel::open(&running.addresses[0], &identity(1, "victim"), soon());
        assert!(channel.is_ok(), "{}", channel.unwrap_err());
        status(&running.addresses[0]);
    });
    status(&running.addresses[0]);
    running.serves();
}

#[test]
fn connections_that_never_say_hello_keep_nobody_out() {
    let Some(running) = open_to_all(|_| {}) else { return };
    let of = |address: &Address| -> Vec<Parked> { (0..1_100).map(|_| connect(address, soon()).unwrap()).collect() };
    let local = as_user(HOSTILE, || of(&running.addresses[0]));
    let remote = as_user(HOSTILE, || of(&running.addresses[1]));
    everybody_else_is_served(&running);
    assert!(running.server().status().refused["displaced"] >= 2_000 - 600);
    drop((local, remote));
}

#[test]
fn a_frame_that_is_announced_and_does_not_come_keeps_nobody_out() {
    let Some(running) = open_to_all(|_| {}) else { return };
    let opened: Vec<Parked> = as_user(HOSTILE, || {
        let begin = |_| {
            let socket = connect(&running.addresses[0], soon()).unwrap();
            socket::send_all(socket.as_fd(), &[b"ISON\0\0\x01\0", &[0; 100]], soon()).unwrap();
            socket
        };
        (0..1_100).map(begin).collect()
    });
    everybody_else_is_served(&running);
    drop(opened);
}

#[test]
fn control_connections_that_are_kept_keep_nobody_out() {
    let Some(running) = open_to_all(|_| {}) else { return };
    let connect = || ControlConnection::connect(&running.addresses[0], None, Nanos::from_secs(20)).unwrap();
    let mut own = connect();
    let opened: Vec<_> = as_user(HOSTILE, || (0..1_100).map(|_| connect()).collect());
    everybody_else_is_served(&running);
    assert!(own.ask(&ControlRequest::Status).is_ok(), "an operator's connection is not displaced by a user's");
    drop(opened);
}

#[test]
fn a_user_gets_half_of_the_connections_and_is_told_so() {
    let Some(running) = open_to_all(|config| config.limits.connections = Some(60)) else { return };
    let open = |client| open_shared(&running.addresses[0], &identity(client, "j"), soon());
    let (opened, refused) = as_user(HOSTILE, || {
        let mut opened = Vec::new();
        loop {
            match open(opened.len() as u64) {
                Ok(connection) => opened.push(connection),
                Err(refused) => return (opened, refused),
            }
            assert!(opened.len() <= 60, "never refused");
        }
    });
    assert_eq!(opened.len(), 30);
    let text = refused.to_string();
    assert!(text.contains("user 1000001 has 30 connections") && text.contains("limits.connections"), "{text}");
    everybody_else_is_served(&running);
    assert_eq!(running.server().status().refused["connections"], 1);
    drop(opened);
    // What was given back can be had again.
    as_user(HOSTILE, || {
        let deadline = soon();
        while open(1).is_err() {
            assert!(deadline.left().is_some(), "slots are not given back");
        }
    });
}

/// Where a region is mapped in this process.
struct RegionMap {
    range: Range<u64>,
    inode: u64,
    resident_kib: u64,
}

fn region_maps() -> Vec<RegionMap> {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = text.lines();
    let mut maps = Vec::new();
    while let Some(line) = lines.find(|line| line.contains("memfd:isonomia-channel")) {
        let words: Vec<_> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        maps.push(RegionMap {
            range: address(start)..address(end),
            inode: words[4].parse().unwrap(),
            resident_kib: resident.trim().trim_end_matches(" kB").parse().unwrap(),
        });
    }
    maps
}

#[test]
fn a_user_shares_so_much_memory_and_none_that_is_not_used() {
    let Some(running) = open_to_all(|config| config.limits.memory = "20MiB".parse().ok()) else { return };
    let (opened, refused) = as_user(HOSTILE, || {
        let mut opened = Vec::new();
        loop {
            match open_shared(&running.addresses[0], &identity(opened.len() as u64, "j"), soon()) {
                Ok(connection) => opened.push(connection),
                Err(refused) => return (opened, refused),
            }
            assert!(opened.len() <= 20, "never refused");
        }
    });
    assert_eq!(opened.len(), 9, "10 MiB suffice for 9 regions of a mebibyte and a page");
    let HandshakeError::Refused(text) = refused else { panic!("{refused}") };
    assert!(text.contains("bytes of shared memory") && text.contains("limits.memory_per_user"), "{text}");
    everybody_else_is_served(&running);
    // Of each region the server has touched its first page alone.
    let maps = region_maps();
    // Other tests of this process have regions, too, and use them.
    let own: Vec<u64> = opened.iter().map(|(_, region)| region.buffer(0).address() as u64).collect();
    let inodes = own.iter().map(|at| maps.iter().find(|map| map.range.contains(at)).unwrap().inode);
    for inode in inodes {
        let of_one: Vec<_> = maps.iter().filter(|map| map.inode == inode).map(|map| map.resident_kib).collect();
        assert_eq!(of_one.len(), 2, "both sides map each region");
        assert!(of_one.iter().all(|kib| *kib <= 64), "{of_one:?} KiB of an idle region are resident");
    }
}

#[test]
fn a_process_shares_the_connections_that_it_may_have_among_its_threads() {
    let Some(running) = open_to_all(|config| {
        config.limits.connections_per_user = Some(2);
        // So slow that all threads want one at once.
        config.targets = vec![TargetConfig { bandwidth: "50MiB/s".parse().ok(), ..TargetConfig::default() }];
    }) else {
        return;
    };
    as_user(VICTIM, || {
        let client = running.client(&running.addresses[0], &running.key_file, 20);
        std::thread::scope(|scope| {
            for thread in 0..8u8 {
                let client = &client;
                scope.spawn(move || {
                    let file = client.open(Ino::ROOT, &[b'a' + thread], &create()).unwrap();
                    assert_eq!(client.write_at(&file, 0, &pattern(1 << 20, thread)).unwrap(), 1 << 20);
                });
            }
        });
    });
    let status = running.server().status();
    assert!(status.refused["connections"] > 0, "the threads never wanted more than they may have");
    assert!(status.connections <= 2, "{} connections", status.connections);
}

#[test]
fn names_of_jobs_without_end_are_bounded_and_their_status_is_told_whole() {
    let Some(running) = open_to_all(|_| {}) else { return };
    // As long as a name may be, and twice as long in JSON.
    let name = |number: u64| format!("{number:04}{}", "\"".repeat(250));
    let open = |number| open_shared(&running.addresses[0], &identity(number, &name(number)), soon());
    let opened: Vec<_> = as_user(HOSTILE, || {
        let opened = (0..1_024).map(|number| open(number).unwrap()).collect();
        let refused = open(1_024).unwrap_err().to_string();
        assert!(refused.contains("has 1024 jobs") && refused.contains("limits.jobs_per_user"), "{refused}");
        opened
    });
    everybody_else_is_served(&running);
    let all = as_user(VICTIM, || status(&running.addresses[0]));
    let of_hostile = all.jobs.iter().filter(|job| job.user == HOSTILE.to_string());
    assert_eq!(of_hostile.filter(|job| job.clients == 1).count(), 1_024);
    assert!(all.jobs.is_sorted_by(|a, b| (&a.job, &a.user) < (&b.job, &b.user)));
    drop(opened);
    // The jobs of before make room for others.
    as_user(HOSTILE, || {
        for number in 2_000..4_000 {
            let deadline = soon();
            while open(number).is_err() {
                assert!(deadline.left().is_some(), "idle jobs make no room");
            }
        }
    });
    assert!(status(&running.addresses[0]).jobs.len() <= 1_024 + 3);
}

#[test]
fn who_does_not_take_an_answer_delays_nobody() {
    let Some(running) = open_to_all(|_| {}) else { return };
    let name = |number: u64| format!("{number:04}{}", "x".repeat(250));
    let open = |number| open_shared(&running.addresses[0], &identity(number, &name(number)), soon()).unwrap();
    let opened: Vec<_> = as_user(HOSTILE, || (0..1_000).map(open).collect());
    let question = setup::frame(&serde_json::to_vec(&ControlRequest::Status).unwrap());
    let deaf: Vec<_> = as_user(HOSTILE, || {
        let ask = |_| {
            let socket = connect(&running.addresses[0], soon()).unwrap();
            socket::send_all(
                socket.as_fd(),
                &[&setup::encode(&Hello::new(Role::Control, 1)), &question, &question],
                soon(),
            )
            .unwrap();
            socket
        };
        (0..8).map(ask).collect()
    });
    everybody_else_is_served(&running);
    drop((opened, deaf));
}

#[test]
fn a_flood_of_connects_by_one_user_fails_none_of_anothers() {
    let Some(running) = open_to_all(|_| {}) else { return };
    let (is_over, end) = (AtomicBool::new(false), soon());
    std::thread::scope(|scope| {
        let (address, is_over) = (&running.addresses[0], &is_over);
        let flood = move |once: &(dyn Fn(u64) + Sync)| {
            as_user(HOSTILE, || {
                let repeats = (0..).take_while(|_| !is_over.load(Ordering::Relaxed) && end.left().is_some());
                repeats.for_each(once);
            });
        };
        // The flood's own connections are displaced or refused, which it does not look at.
        scope.spawn(move || flood(&|_| drop(connect(address, soon()))));
        scope.spawn(move || {
            flood(&|number| drop(open_shared(address, &identity(number, &format!("job {number}")), soon())))
        });
        let failed: Vec<String> = as_user(VICTIM, || {
            let try_once = |_| ControlConnection::connect(&running.addresses[0], None, Nanos::from_secs(20)).err();
            (0..50).filter_map(try_once).map(|error| error.to_string()).collect()
        });
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(failed, [""; 0]);
    });
}

#[test]
fn what_is_refused_counts_by_reason() {
    let Some(running) = open_to_all(|_| {}) else { return };
    let socket = connect(&running.addresses[0], soon()).unwrap();
    socket::send_all(socket.as_fd(), &[b"GET / HTTP/1.1\r\n\r\n"], soon()).unwrap();
    socket::receive_frame(socket.as_fd(), setup::SETUP_LEN_MAX, soon()).unwrap();
    let long = identity(1, &"x".repeat(300));
    assert!(matches!(open_shared(&running.addresses[0], &long, soon()), Err(HandshakeError::Refused(_))));
    let key = running.dir.path().join("other");
    std::fs::write(&key, [8; 32]).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let wrong = ControlConnection::connect(&running.addresses[1], key.to_str(), Nanos::from_secs(20));
    assert!(wrong.is_err());
    let refused = running.server().status().refused;
    assert_eq!((refused["protocol"], refused["identity"], refused["key"]), (1, 1, 1), "{refused:?}");
}
