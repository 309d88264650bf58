//! Exclusive I/O phases: one application at a time has a server's targets.

use crate::running::cluster::{Cluster, in_memory};
use crate::running::{Running, create, pattern, start};
use isonomia_client::{Address, Claims, Client, ClientConfig, Error, Ino};
use isonomia_cluster::peer::FORMAT;
use isonomia_proto::control::{ControlReply, ControlRequest, ExclusiveJobStatus, Status};
use isonomia_proto::phase::PhaseCall;
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_server::{Server, TargetConfig};
use isonomia_transport::channel::{Channel, Manner};
use isonomia_transport::control::ControlConnection;
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
use rustix::io::Errno;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

fn started(policy: &str) -> Running {
    start(|config| {
        config.policy = policy.parse().unwrap();
        config.trust_clients = true;
        let target = TargetConfig { bandwidth: "400MiB/s".parse().ok(), ..TargetConfig::default() };
        config.targets = vec![target.clone(), target];
    })
}

fn client(running: &Running, job: &str, address: usize) -> Client {
    Client::new(ClientConfig {
        addresses: vec![running.addresses[address].clone()],
        timeout: Nanos::from_secs(60),
        claims: Claims { job: Some(job.to_owned()), ..Claims::default() },
        key_file: Some(running.key_file.clone()),
    })
}

/// Waits until the status is as wanted.
fn wait_for<T>(server: &Server, what: &str, look: impl Fn(&Status) -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(found) = look(&server.status()) {
            return found;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    panic!("never: {what}; {:?}", server.status().exclusive);
}

fn turns(status: &Status, job: &str) -> Option<ExclusiveJobStatus> {
    status.jobs.iter().find(|known| known.job == job)?.exclusive.clone()
}

fn wait_until(server: &Server, job: &str, state: &str) {
    wait_for(server, &format!("{job} is {state}"), |status| turns(status, job).filter(|turns| turns.state == state));
}

/// A thread that writes a file of this name, and reads it back.
fn writer<'s>(scope: &'s std::thread::Scope<'s, '_>, client: &'s Client, name: &'s str) -> ScopedJoinHandle<'s, ()> {
    scope.spawn(move || {
        let data = pattern(700_000, 3);
        let file = client.open(Ino::ROOT, name.as_bytes(), &create()).unwrap();
        assert_eq!(client.write_at(&file, 0, &data).unwrap(), data.len());
        let mut back = vec![0; data.len()];
        assert_eq!(client.read_at(&file, 0, &mut back).unwrap(), data.len());
        assert!(back == data);
    })
}

#[test]
fn others_wait_until_the_program_says_that_its_phase_is_over() {
    let running = started("exclusive{lease=1h,gap=10s}");
    let (first, second) = (client(&running, "first", 0), client(&running, "second", 1));
    first.stat_fs().unwrap();
    first.begin_phase(1 << 20, Some(Nanos::from_secs(9))).unwrap();
    first.begin_phase(0, None).unwrap();
    std::thread::scope(|scope| {
        let thread = writer(scope, &second, "second");
        wait_until(running.server(), "second", "waiting");
        // Metadata is nobody's alone, and whoever has the targets is served.
        second.mkdir(Ino::ROOT, b"dir", 0o755).unwrap();
        let file = first.open(Ino::ROOT, b"first", &create()).unwrap();
        assert_eq!(first.write_at(&file, 0, b"mine").unwrap(), 4);
        first.end_phase().unwrap();
        assert!(!thread.is_finished(), "the outer phase is not over");
        assert_eq!(running.server().status().exclusive.unwrap().holder.unwrap().split('/').nth(1), Some("first"));
        first.end_phase().unwrap();
        thread.join().unwrap();
    });
    let status = running.server().status();
    let node = status.exclusive.clone().unwrap();
    assert_eq!((node.ended_by_program_total, node.ended_by_lease_total, node.is_open), (1, 0, false));
    let second = turns(&status, "second").unwrap();
    assert!(second.waited_ns > 0 && second.waited_max_ns == second.waited_ns && second.stretch > 1.0, "{second:?}");
    assert_eq!(turns(&status, "first").unwrap().phases_total, 1);
}

#[test]
fn phases_of_programs_that_say_nothing_are_found_by_the_gap() {
    let running = started("exclusive{order=shortest-io,lease=10s,gap=2ms}");
    let clients: Vec<_> = (0..4).map(|number| client(&running, &format!("job{number}"), number % 2)).collect();
    let names: Vec<_> = (0..4).map(|number| format!("file{number}")).collect();
    std::thread::scope(|scope| {
        clients.iter().zip(&names).for_each(|(client, name)| drop(writer(scope, client, name)));
    });
    wait_for(running.server(), "the last phase is over", |status| {
        status.exclusive.as_ref().filter(|node| node.holder.is_none()).map(drop)
    });
    let status = running.server().status();
    assert!((0..4).all(|number| turns(&status, &format!("job{number}")).unwrap().phases_total >= 1));
    assert!(status.exclusive.unwrap().ended_by_gap_total >= 4);
}

#[test]
fn who_goes_leaves_the_targets_whether_it_has_said_so_or_not() {
    let running = started("exclusive{lease=1h,gap=1h}");
    for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
        let client = client(&running, name, number % 2);
        std::thread::scope(|scope| drop(writer(scope, &client, name)));
        client.begin_anew();
    }
    assert!(running.server().status().exclusive.unwrap().ended_by_leaving_total >= 2);
}

#[test]
fn who_dies_in_a_phase_blocks_nobody_and_who_hangs_for_the_lease() {
    let running = started("exclusive{lease=1h,gap=10s}");
    let (first, second) = (client(&running, "first", 0), client(&running, "second", 0));
    first.begin_phase(0, None).unwrap();
    std::thread::scope(|scope| {
        let thread = writer(scope, &second, "one");
        wait_until(running.server(), "second", "waiting");
        first.begin_anew();
        thread.join().unwrap();
    });
    let mut control = ControlConnection::connect(&running.addresses[0], None, Nanos::from_secs(20)).unwrap();
    let policy = "exclusive{order=lowest-id,lease=100ms,gap=100ms}".to_owned();
    let set =
        control.ask(&ControlRequest::SetPolicy { policy, draw: None, only_here: false, instead_of: None }).unwrap();
    assert!(matches!(set, ControlReply::Policy { .. }));
    let hangs = client(&running, "hangs", 1);
    hangs.begin_phase(0, None).unwrap();
    std::thread::scope(|scope| drop(writer(scope, &second, "two")));
    assert!(running.server().status().exclusive.unwrap().ended_by_lease_total >= 1);
}

#[test]
fn the_policy_comes_and_goes_under_load_without_losing_a_request() {
    let running = started("job-fair");
    let names: Vec<_> = (0..3).map(|number| format!("load{number}")).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(number, name)| {
                let client = client(&running, name, number % 2);
                scope.spawn(move || {
                    let data = pattern(300_000, number as u8);
                    let mut back = vec![0; data.len()];
                    let file = client.open(Ino::ROOT, name.as_bytes(), &create()).unwrap();
                    for _ in 0..30 {
                        client.begin_phase(0, None).unwrap();
                        assert_eq!(client.write_at(&file, 0, &data).unwrap(), data.len());
                        client.end_phase().unwrap();
                        assert_eq!(client.read_at(&file, 0, &mut back).unwrap(), data.len());
                        assert!(back == data);
                    }
                })
            })
            .collect();
        let mut control = ControlConnection::connect(&running.addresses[0], None, Nanos::from_secs(20)).unwrap();
        let policies =
            ["exclusive{gap=1ms}", "fifo", "exclusive{order=stretch,gap=1ms}", "exclusive{gap=2ms}", "job-fair"];
        for policy in policies.into_iter().cycle() {
            let set =
                ControlRequest::SetPolicy { policy: policy.to_owned(), draw: None, only_here: false, instead_of: None };
            assert!(matches!(control.ask(&set).unwrap(), ControlReply::Policy { .. }));
            std::thread::park_timeout(Duration::from_millis(5));
            if policy == "job-fair" && threads.iter().all(ScopedJoinHandle::is_finished) {
                break;
            }
        }
    });
    let status = running.server().status();
    assert!(status.exclusive.is_none() && status.jobs.iter().all(|job| job.exclusive.is_none()));
    assert!(status.targets.iter().all(|target| target.queued == 0));
}

#[test]
fn a_call_that_says_nothing_is_refused_and_one_that_nobody_needs_does_nothing() {
    let running = started("job-fair");
    let test = client(&running, "test", 0);
    test.begin_phase(5, None).unwrap();
    test.end_phase().unwrap();
    test.end_phase().unwrap();
    for valid in [0, 3, 8] {
        let request = RequestHeader { valid, ..PhaseCall::End.request() };
        assert_eq!(errno_of(&running.addresses[0], request, b""), Errno::INVAL.raw_os_error().unsigned_abs());
    }
    let unreachable = Client::new(ClientConfig {
        addresses: vec!["unix:/nonexistent/socket".parse().unwrap()],
        timeout: Nanos::from_millis(20),
        claims: Claims::default(),
        key_file: None,
    });
    assert!(matches!(unreachable.begin_phase(0, None), Err(Error::TimedOut { .. } | Error::Refused { .. })));
}

/// What a server answers to a request.
fn errno_of(address: &Address, request: RequestHeader, bytes: &[u8]) -> u32 {
    let deadline = Deadline::after(Nanos::from_secs(20));
    let mut channel = Channel::open(address, &Identity::default(), deadline).unwrap();
    channel.stage().copy_from(bytes);
    let slot = channel.send(&request).unwrap();
    channel.wait(slot, Nanos::from_secs(20), Manner::default()).unwrap().errno
}

#[test]
fn what_no_server_would_say_of_phases_is_refused() {
    let cluster = Cluster::start_as(&in_memory(), 2, "", "1", |config| {
        config.policy = "exclusive".parse().unwrap();
    });
    // The format, then a report of no grant, of a process later than that server's, and a grant of nothing that takes nothing
    // back, for an earlier one.
    let process = [[0xff; 9].as_slice(), &[1]].concat();
    let report = |number: u8| [&[FORMAT], &process[..], &[number, 0, 0, 0]].concat();
    let (first, grant) = (report(5), [FORMAT, 9, 0, 0, 0]);
    let future = [&[FORMAT + 1], &first[1..]].concat();
    let answer = |at: usize, kind: u32, from: u64, bytes: &[u8]| {
        let header = RequestHeader::new(Op::Peer, Ino::ROOT);
        let request = RequestHeader { valid: kind, offset: from, len: bytes.len() as u32, ..header };
        errno_of(&cluster.configs[at].listen[0], request, bytes)
    };
    let refused = Errno::PROTO.raw_os_error().unsigned_abs();
    for (from, bytes) in [(1, &first[..]), (3, &first), (2, &first[..5]), (2, &future), (2, &[])] {
        assert_eq!(answer(0, 8, from, bytes), refused, "{from} {bytes:?}");
    }
    // Only the coordinator grants, and it is granted by nobody.
    for (at, from, bytes) in [(0, 1, &grant[..]), (0, 2, &grant), (1, 2, &grant), (1, 1, &grant[..2])] {
        assert_eq!(answer(at, 9, from, bytes), refused, "{at} {from} {bytes:?}");
    }
    let heard = [5, 6, 6, 4, 7].map(|number| answer(0, 8, 2, &report(number)));
    assert_eq!(heard, [0, 0, refused, refused, 0], "what is old or repeated");
    assert_eq!(answer(1, 9, 1, &grant), refused, "for a process that is no more");
    let counted = |at: usize| cluster.servers[at].as_ref().unwrap().status().cluster.unwrap().controller.refused;
    assert!(counted(0) >= 9 && counted(1) >= 3, "{} {}", counted(0), counted(1));
}

/// The server that decides is not the one that has the file.
#[test]
fn the_root_server_decides_for_all_and_without_it_everybody_is_served() {
    let mut cluster = Cluster::start_as(&in_memory(), 2, "", "2", |config| {
        config.policy = "exclusive{lease=1h,gap=1s}".parse().unwrap();
        config.trust_clients = true;
    });
    let client = |job: &str| {
        let claims = Claims { job: Some(job.to_owned()), ..Claims::default() };
        cluster.client_as(vec![cluster.configs[1].listen[0].clone()], claims)
    };
    let (first, second) = (client("first"), client("second"));
    let [_, volume] = cluster.volume_on_each();
    let server = |at: usize, cluster: &Cluster| cluster.servers[at].as_ref().unwrap().status();
    wait_for(cluster.servers[1].as_ref().unwrap(), "the coordinator is heard", |status| {
        status.exclusive.as_ref().filter(|node| !node.is_open && node.coordinator.as_deref() == Some("io1")).map(drop)
    });
    let paths = ["one", "two"].map(|name| format!("{volume}/{name}"));
    // Reaches the second server, whose volume it is.
    let file = first.open(Ino::ROOT, format!("{volume}/own").as_bytes(), &create()).unwrap();
    first.begin_phase(0, None).unwrap();
    first.write_at(&file, 0, b"mine").unwrap();
    std::thread::scope(|scope| {
        let thread = writer(scope, &second, &paths[0]);
        wait_until(cluster.servers[1].as_ref().unwrap(), "second", "waiting");
        assert_eq!(first.write_at(&file, 4, b"still").unwrap(), 5);
        first.end_phase().unwrap();
        thread.join().unwrap();
    });
    assert_eq!(server(1, &cluster).exclusive.unwrap().ended_by_program_total, 1);
    // The coordinator goes away while somebody waits.
    first.begin_phase(0, None).unwrap();
    wait_until(cluster.servers[1].as_ref().unwrap(), "first", "holding");
    let root = cluster.servers[0].take();
    let other = &cluster.servers[1];
    std::thread::scope(|scope| {
        let thread = writer(scope, &second, &paths[1]);
        wait_until(other.as_ref().unwrap(), "second", "waiting");
        root.unwrap().shutdown();
        thread.join().unwrap();
    });
    assert!(server(1, &cluster).exclusive.unwrap().is_open);
    cluster.restart(0);
    wait_for(cluster.servers[1].as_ref().unwrap(), "the coordinator is back", |status| {
        status.exclusive.as_ref().filter(|node| !node.is_open).map(drop)
    });
}
