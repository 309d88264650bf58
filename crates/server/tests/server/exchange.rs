//! The policy applies over several servers, whichever of them a job's files are on.

use crate::running::cluster::{Cluster, in_memory};
use crate::running::{MALLORY, as_user, ask, can_be_others, create};
use isonomia_client::{Claims, Client, Ino};
use isonomia_cluster::peer::FORMAT;
use isonomia_proto::control::{ControlReply, ControlRequest};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_transport::channel::{Channel, Manner};
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A request; the emulated devices take 6 ms for it.
const REQUEST: usize = 128 << 10;
/// Requests that a job has outstanding on each server that it uses.
const OUTSTANDING: usize = 4;

/// What each job received of all servers.
fn received(cluster: &Cluster) -> BTreeMap<String, Nanos> {
    let mut received: BTreeMap<String, Nanos> = BTreeMap::new();
    for status in cluster.servers.iter().flatten().map(isonomia_server::Server::status) {
        for job in status.jobs {
            *received.entry(job.job).or_default() += Nanos(job.service_ns_total);
        }
    }
    received
}

/// Writes to a file, one request after the other.
fn write_until(client: &Client, path: &str, is_over: &AtomicBool) {
    let file = client.open(Ino::ROOT, path.as_bytes(), &create()).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        client.write_at(&file, 0, &[7; REQUEST]).unwrap();
    }
}

/// The share of the job of 16 nodes on both of two servers, beside a job of 8 nodes on each, when the cluster file has this line.
fn share_of_the_largest(line: &str) -> f64 {
    let cluster = Cluster::start_as(&in_memory(), 2, line, "[{ bandwidth = \"20MiB/s\" }]", |config| {
        config.policy = "size-fair".parse().unwrap();
        config.trust_clients = true;
    });
    let volumes = cluster.volume_on_each();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (job, nodes, servers) in [("large", 16, &[0, 1][..]), ("first", 8, &[0]), ("second", 8, &[1])] {
            for (server, thread) in
                servers.iter().flat_map(|server| (0..OUTSTANDING).map(move |thread| (*server, thread)))
            {
                let claims = Claims { job: Some(job.to_owned()), nodes: Some(nodes), ..Claims::default() };
                let client = cluster.client_as(vec![cluster.configs[server].listen[0].clone()], claims);
                let path = format!("{}/{job}-{thread}", volumes[server]);
                let is_over = &is_over;
                scope.spawn(move || write_until(&client, &path, is_over));
            }
        }
        // Counted in service, so that a slow machine changes nothing.
        let until = |served: Nanos| {
            let deadline = Instant::now() + Duration::from_secs(100);
            loop {
                let received = received(&cluster);
                let all = ["large", "first", "second"].map(|job| received.get(job).copied().unwrap_or_default());
                if all[1].min(all[2]) >= served || Instant::now() > deadline {
                    return all.map(|received| received.0 as f64);
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
        };
        let before = until(Nanos::from_millis(400));
        let after = until(Nanos::from_millis(1400));
        is_over.store(true, Ordering::Relaxed);
        let had: Vec<f64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        had[0] / had.iter().sum::<f64>()
    })
}

/// ThemisIO Fig. 5, live.
#[test]
fn a_job_on_two_servers_has_its_share_of_both_together() {
    for line in ["exchange = \"50ms\"", "exchange = \"50ms\"\nexchange_by = \"presence\""] {
        let share = share_of_the_largest(line);
        assert!((0.46..0.54).contains(&share), "{line}: {share:.3} of both, where half is due");
    }
}

#[test]
fn servers_that_do_not_exchange_are_fair_each_by_itself() {
    let share = share_of_the_largest("exchange = \"off\"");
    assert!((0.62..0.70).contains(&share), "{share:.3} of both, where each gives two thirds");
}

/// Under `fair-finish`: a job has all of one server's target, and half of the other's, so there fair sharing is done with its phase later. The
/// first one's arbiter hears of that, as the record of its decisions says; nobody's parts are told.
#[test]
fn a_target_hears_when_fair_sharing_ends_a_phase_on_another_server() {
    let lines = "exchange = \"20ms\"";
    let cluster = Cluster::start_as(&in_memory(), 2, lines, "[{ bandwidth = \"20MiB/s\" }]", |config| {
        config.policy = "fair-finish{sizes=declared}".parse().unwrap();
    });
    let volumes = cluster.volume_on_each();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("decisions.jsonl");
    let record = |to| ask(&cluster.configs[0].listen[0], &ControlRequest::Record { to });
    assert_eq!(record(Some((path.to_str().unwrap().to_owned(), 3_600_000_000_000))), ControlReply::Done);
    let is_over = AtomicBool::new(false);
    let recorded = std::thread::scope(|scope| {
        for (job, server) in [("both", 0), ("both", 1), ("one", 1)] {
            for thread in 0..OUTSTANDING {
                let claims = Claims { job: Some(job.to_owned()), ..Claims::default() };
                let client = cluster.client_as(vec![cluster.configs[server].listen[0].clone()], claims);
                let path = format!("{}/{job}-{thread}", volumes[server]);
                let is_over = &is_over;
                scope.spawn(move || write_until(&client, &path, is_over));
            }
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        let recorded = loop {
            let recorded = std::fs::read_to_string(&path).unwrap();
            let is_told = |line: &str| line.contains("\"set-fair-ends\"") && line.contains("\"ends\":[[");
            if recorded.lines().any(is_told) || Instant::now() > deadline {
                break recorded;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        };
        is_over.store(true, Ordering::Relaxed);
        recorded
    });
    let told: Vec<&str> = recorded.lines().filter(|line| line.contains("\"set-fair-ends\"")).collect();
    assert!(told.iter().any(|line| line.contains("\"ends\":[[")), "{told:?}");
    let parts = recorded.lines().find(|line| line.contains("\"apportion\"") && line.contains("\"parts\":[["));
    assert_eq!(parts, None, "nobody would go by them");
    assert_eq!(record(None), ControlReply::Done);
}

/// Of the metadata services of both servers, which each alone would divide as it divides its targets.
#[test]
fn a_job_that_uses_two_metadata_services_has_its_share_of_both_together() {
    let lines = "exchange = \"50ms\"\nexchange_by = \"presence\"";
    let cluster = Cluster::start_as(&in_memory(), 2, lines, "1", |config| {
        config.policy = "size-fair".parse().unwrap();
        config.trust_clients = true;
    });
    let volumes = cluster.volume_on_each();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (job, nodes, server) in [("large", 16, 0), ("large", 16, 1), ("first", 8, 0), ("second", 8, 1)] {
            let claims = Claims { job: Some(job.to_owned()), nodes: Some(nodes), ..Claims::default() };
            let client = cluster.client_as(vec![cluster.configs[server].listen[0].clone()], claims);
            let (path, is_over) = (volumes[server].clone(), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    client.get_attr(Ino::ROOT, path.as_bytes(), true).unwrap();
                }
            });
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        for server in cluster.servers.iter().flatten() {
            let due = || {
                let jobs = server.status().jobs;
                let both = jobs.iter().filter(|job| job.share_due > 0.0).map(|job| (job.job.clone(), job.share_due));
                both.collect::<BTreeMap<_, _>>()
            };
            while due().get("large").is_none_or(|share| (share - 0.5).abs() > 0.02) {
                assert!(Instant::now() < deadline, "{:?}", due());
                std::thread::park_timeout(Duration::from_millis(10));
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// The kinds of messages that have a table of jobs, and one of rates.
const JOBS: u32 = 3;
const RATES: u32 = 7;

/// What a server answers to a table that says that it comes from server `from`, and how many it has heard of jobs then.
fn answer_to_a_table(cluster: &Cluster, (from, kind): (u64, u32), bytes: &[u8]) -> (u32, u32) {
    let deadline = Deadline::after(Nanos::from_secs(20));
    let mut channel = Channel::open(&cluster.configs[0].listen[0], &Identity::default(), deadline).unwrap();
    channel.stage().copy_from(bytes);
    let request =
        RequestHeader { valid: kind, offset: from, len: bytes.len() as u32, ..RequestHeader::new(Op::Peer, Ino::ROOT) };
    let slot = channel.send(&request).unwrap();
    let reply = channel.wait(slot, Nanos::from_secs(20), Manner::default()).unwrap();
    (reply.errno, cluster.servers[0].as_ref().unwrap().status().cluster.unwrap().tables_heard)
}

#[test]
fn only_servers_tell_of_jobs() {
    let cluster = Cluster::start_as(&in_memory(), 2, "exchange = \"10s\"", "1", |_| {});
    // The format, process and number, and then a window without jobs.
    let table = [FORMAT, 4, 5, 9, 0, 0, 0];
    let errno = |errno: Errno| errno.raw_os_error().unsigned_abs();
    if can_be_others() {
        let (refused, heard) = as_user(MALLORY, || answer_to_a_table(&cluster, (2, JOBS), &table));
        assert!(refused != 0 && heard == 0, "an ordinary user is answered {refused}, and {heard} count");
    }
    for (from, bytes) in
        [(1, &table[..]), (3, &table), (2, &table[..2]), (2, &[FORMAT + 1, 4, 5, 9, 0, 0, 0]), (2, &[])]
    {
        assert_eq!(answer_to_a_table(&cluster, (from, JOBS), bytes), (errno(Errno::PROTO), 0), "{from} {bytes:?}");
    }
    assert_eq!(answer_to_a_table(&cluster, (2, JOBS), &table), (0, 1));
}

#[test]
fn a_table_that_is_old_or_repeated_is_refused() {
    let cluster = Cluster::start_as(&in_memory(), 2, "exchange = \"10s\"", "1", |_| {});
    let refused = || cluster.servers[0].as_ref().unwrap().status().cluster.unwrap().controller.refused;
    let before = refused();
    let old = Errno::PROTO.raw_os_error().unsigned_abs();
    for kind in [JOBS, RATES] {
        // Of jobs: none in a window. Of rates: no rows of a policy.
        let rest = if kind == JOBS { &[9, 0, 0, 0][..] } else { &[9, 0] };
        let answer =
            |process, number| answer_to_a_table(&cluster, (2, kind), &[&[FORMAT, process, number], rest].concat()).0;
        assert_eq!([answer(4, 5), answer(4, 7)], [0, 0]);
        assert_eq!([answer(4, 7), answer(4, 6), answer(3, 8)], [old; 3]);
        assert_eq!([answer(5, 1), answer(4, 9)], [0, old]);
    }
    assert_eq!(refused() - before, 8);
}
