//! What is decided for all servers at once is what their targets do.

use crate::running::cluster::{Cluster, in_memory};
use crate::running::switching::{DECIDED, EXCLUSIVE, POLICIES, append};
use crate::running::{ask, create};
use isonomia_client::{Claims, Client, Ino};
use isonomia_controller::{Ask, FORMAT, Term};
use isonomia_proto::control::{ControlReply, ControlRequest, ControllerStatus, Status};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_transport::channel::{Channel, Manner};
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A request; the emulated devices take 3 ms for it.
const REQUEST: usize = 64 << 10;
/// Requests that a job has outstanding on each server that it uses.
const OUTSTANDING: usize = 4;
const LONGEST: Duration = Duration::from_secs(60);

/// Servers of one slow target each, of which each has a volume.
struct Running {
    cluster: Cluster,
    volumes: [String; 2],
    load: BTreeMap<String, (Arc<AtomicBool>, Vec<JoinHandle<()>>)>,
}

impl Running {
    fn start(policy: &str, lines: &str) -> Self {
        let cluster = Cluster::start_as(&in_memory(), 2, lines, "[{ bandwidth = \"20MiB/s\" }]", |config| {
            config.policy = policy.parse().unwrap();
            config.trust_clients = true;
        });
        let volumes = cluster.volume_on_each();
        Self { cluster, volumes, load: BTreeMap::new() }
    }

    /// Job `name` writes to these servers until it is ended.
    fn begin(&mut self, name: &str, servers: &[usize]) {
        let is_over = Arc::new(AtomicBool::new(false));
        let pairs = servers.iter().flat_map(|server| (0..OUTSTANDING).map(move |thread| (*server, thread)));
        let threads = pairs.map(|(server, thread)| {
            let claims = Claims { job: Some(name.to_owned()), ..Claims::default() };
            let client: Client = self.cluster.client_as(vec![self.cluster.configs[server].listen[0].clone()], claims);
            let (path, is_over) = (format!("{}/{name}-{thread}", self.volumes[server]), is_over.clone());
            std::thread::spawn(move || {
                let goes_on = || !is_over.load(Ordering::Relaxed);
                while goes_on() {
                    // The server may be away for a while.
                    let Ok(file) = client.open(Ino::ROOT, path.as_bytes(), &create()) else { continue };
                    while goes_on() && client.write_at(&file, 0, &[7; REQUEST]).is_ok() {}
                }
            })
        });
        let threads = threads.collect();
        self.load.insert(name.to_owned(), (is_over, threads));
    }

    fn end(&mut self, name: &str) {
        let (is_over, threads) = self.load.remove(name).unwrap();
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    fn status(&self, server: usize) -> Status {
        self.cluster.servers[server].as_ref().unwrap().status()
    }

    fn controller(&self, server: usize) -> ControllerStatus {
        self.status(server).cluster.unwrap().controller
    }

    /// What each job received of a server's target.
    fn received(&self, server: usize) -> BTreeMap<String, u64> {
        self.status(server).jobs.into_iter().map(|job| (job.job, job.service_ns_total)).collect()
    }

    /// Waits until, over half a second of a server's service, the share of `job` beside `other` is `wanted`. The last one seen if it never is.
    fn share_becomes(&self, server: usize, [job, other]: [&str; 2], wanted: impl Fn(f64) -> bool) -> Result<f64, f64> {
        let deadline = Instant::now() + LONGEST;
        let of = |received: &BTreeMap<String, u64>| [job, other].map(|name| received.get(name).copied().unwrap_or(0));
        let mut share = f64::NAN;
        while Instant::now() < deadline {
            let before = of(&self.received(server));
            let had = loop {
                let after = of(&self.received(server));
                let had = [after[0] - before[0], after[1] - before[1]];
                if had.iter().sum::<u64>() >= Nanos::from_millis(500).0 || Instant::now() > deadline {
                    break had;
                }
                std::thread::park_timeout(Duration::from_millis(10));
            };
            share = had[0] as f64 / had.iter().sum::<u64>() as f64;
            if wanted(share) {
                return Ok(share);
            }
        }
        Err(share)
    }

    fn wait(&self, server: usize, what: impl Fn(&ControllerStatus) -> bool) {
        let deadline = Instant::now() + LONGEST;
        while !what(&self.controller(server)) {
            assert!(Instant::now() < deadline, "{:?}", self.controller(server));
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.load.values().for_each(|(is_over, _)| is_over.store(true, Ordering::Relaxed));
        for (_, (_, threads)) in std::mem::take(&mut self.load) {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }
}

/// The greatest effective bandwidth is that of the job on both targets: beside it the other one has nothing. When the server
/// that decides has gone, the other shares fairly.
#[test]
fn shares_follow_an_allocation_until_it_ends() {
    let mut running = Running::start("mbw", "decide = \"100ms\"\ncontroller = \"io1\"");
    running.begin("both", &[0, 1]);
    running.begin("one", &[1]);
    let share = running.share_becomes(1, ["both", "one"], |share| share > 0.9);
    assert!(share.is_ok(), "{share:?}: {:?}", running.controller(1));
    let here = running.controller(0);
    assert!(here.is_here && here.decisions_total > 0 && here.jobs == 2, "{here:?}");
    let there = running.controller(1);
    assert!(!there.is_here && there.version > 0 && there.server.as_deref() == Some("io1"), "{there:?}");
    // The same controller begins anew with each policy that is set, and its followers take no message of it for an old one.
    let refused = || [0, 1].map(|server| running.controller(server).refused);
    let (before, here) = (refused(), running.cluster.configs[0].listen[0].clone());
    for decide in ["100ms", "110ms"] {
        let policy = format!("mbw{{decide={decide}}}");
        let set = ControlRequest::SetPolicy { policy, draw: None, only_here: false, instead_of: None };
        let reply = ask(&here, &set);
        assert!(matches!(reply, ControlReply::Policy { .. }), "{reply:?}");
        let version = running.controller(1).version;
        running.wait(1, |controller| controller.version > version);
    }
    assert_eq!(refused(), before);
    running.cluster.servers[0] = None;
    let share = running.share_becomes(1, ["both", "one"], |share| (0.4..0.6).contains(&share));
    assert!(share.is_ok(), "{share:?}: {:?}", running.controller(1));
    assert_eq!(running.controller(1).version, 0);
    // It comes back in a later term, and goes on.
    running.cluster.restart(0);
    let share = running.share_becomes(1, ["both", "one"], |share| share > 0.9);
    assert!(share.is_ok(), "{share:?}: {:?}", running.controller(1));
    assert!(running.controller(1).term > there.term);
}

/// GIFT Fig. 6, live: a job on one target is throttled for one on both, and rewarded when others leave a gap.
#[test]
fn a_throttled_job_is_rewarded_later() {
    let gift = "gift{throttle=0.5,window=1000000000,system-window=1000000000,decide=100ms}";
    let mut running = Running::start(gift, "");
    running.begin("one", &[0]);
    running.begin("both", &[0, 1]);
    let share = running.share_becomes(0, ["one", "both"], |share| share < 0.33);
    assert!(share.is_ok(), "{share:?}: {:?}", running.controller(0));
    running.end("both");
    // Of the second target it has a third now, and so of the first: what it leaves there is given for coupons.
    ["x", "y", "z"].into_iter().for_each(|name| running.begin(name, if name == "x" { &[0, 1] } else { &[1] }));
    let share = running.share_becomes(0, ["one", "x"], |share| share > 0.6);
    assert!(share.is_ok(), "{share:?}: {:?}", running.controller(0));
    running.wait(0, |controller| controller.decisions_total > 0);
}

/// What server 2 answers to a message of this kind that says that it comes from server `from`.
fn answer(running: &Running, kind: u32, from: u64, bytes: &[u8]) -> u32 {
    let deadline = Deadline::after(Nanos::from_secs(20));
    let mut channel = Channel::open(&running.cluster.configs[1].listen[0], &Identity::default(), deadline).unwrap();
    channel.stage().copy_from(bytes);
    let len = bytes.len() as u32;
    let request = RequestHeader { valid: kind, offset: from, len, ..RequestHeader::new(Op::Peer, Ino::ROOT) };
    let slot = channel.send(&request).unwrap();
    channel.wait(slot, Nanos::from_secs(20), Manner::default()).unwrap().errno
}

/// What makes no sense, or is of an older term or a stranger's, changes nothing.
#[test]
fn what_is_not_the_controllers_is_refused() {
    let mut running = Running::start("mbw", "decide = \"100ms\"");
    running.begin("both", &[0, 1]);
    running.wait(1, |controller| controller.version > 0);
    let term = running.controller(1).term;
    let proto = Errno::PROTO.raw_os_error().unsigned_abs();
    let ask = |epoch| {
        let term = Term { epoch, number: 0 };
        Ask::Whole { term, round: u64::MAX, wants_all: false, renews: false }.encode()
    };
    for (kind, from, bytes) in [
        (4, 1, vec![]),
        (4, 1, vec![FORMAT + 1, 1, 1, 1]),
        (4, 1, vec![FORMAT, 1, 1]),
        (5, 1, vec![FORMAT, 0xff]),
        (6, 1, vec![FORMAT; 9]),
        (4, 3, ask(1)),
        (4, 2, ask(9)),
    ] {
        assert_eq!(answer(&running, kind, from, &bytes), proto, "{kind} {from} {bytes:?}");
    }
    let refused = running.controller(1).refused;
    assert!(refused >= 7, "{refused}");
    // It is well formed, and late.
    assert_eq!(answer(&running, 4, 1, &ask(1)), 0);
    running.wait(1, |controller| controller.refused > refused);
    assert_eq!(running.controller(1).term, term);
    running.wait(1, |controller| controller.version > 0);
}

/// Under coflow servers are told ranks in the order of all.
#[test]
fn an_order_is_computed_over_all_targets() {
    let mut running = Running::start("coflow{guarantee=0.1}", "decide = \"200ms\"");
    running.begin("both", &[0, 1]);
    running.begin("one", &[1]);
    (0..2).for_each(|server| running.wait(server, |controller| controller.version > 0));
    // What is decided first may be for those alone who came first.
    running.wait(0, |controller| controller.is_here && controller.jobs == 2);
}

/// Over two servers, among all policies: those that a controller decides follow each other and those of a server alone.
#[test]
fn no_request_is_lost_doubled_or_stalled_while_policies_of_a_cluster_change() {
    const JOBS: [&str; 4] = ["a", "b", "c", "d"];
    let running = Running::start("fifo", "decide = \"100ms\"");
    let here = running.cluster.configs[0].listen[0].clone();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|server| {
            JOBS.map(|job| {
                let claims = Claims { job: Some(job.to_owned()), ..Claims::default() };
                let client = running.cluster.client_as(vec![running.cluster.configs[server].listen[0].clone()], claims);
                let (directory, is_over) = (format!("{}/", running.volumes[server]), &is_over);
                scope.spawn(move || append(&client, &directory, job, is_over))
            })
        });
        // Ends the writers also if something is wrong.
        let _ended = Ended(&is_over);
        let least = |server| {
            let jobs = running.status(server).jobs;
            let requests = |name: &&str| jobs.iter().find(|job| job.job == **name).map_or(0, |job| job.requests_total);
            JOBS.iter().map(requests).min().unwrap_or(0)
        };
        // Each decided one comes after one that is not, and before another one.
        let others = POLICIES.into_iter().chain([EXCLUSIVE]);
        let all = others.zip(DECIDED.into_iter().cycle()).flat_map(|(other, decided)| [other, decided]);
        for (at, policy) in all.enumerate() {
            let draw = Some(if at % 3 == 0 { "lottery" } else { "virtual-time" }.to_owned());
            let policy = policy.to_owned();
            let set = ControlRequest::SetPolicy { policy: policy.clone(), draw, only_here: false, instead_of: None };
            let reply = ask(&here, &set);
            let ControlReply::Policy { policy: shown, .. } = &reply else { panic!("{policy}: {reply:?}") };
            for server in 0..2 {
                let deadline = Instant::now() + LONGEST;
                let until = |what: &str, is_so: &dyn Fn() -> bool| {
                    while !is_so() {
                        assert!(Instant::now() < deadline, "{what} on server {server} under {policy}");
                        std::thread::park_timeout(Duration::from_millis(5));
                    }
                };
                until("it is set", &|| running.status(server).policy == *shown);
                // Under `pofs` each target decides for itself.
                if policy.contains("decide=") && !policy.starts_with("pofs") {
                    until("it is decided", &|| running.controller(server).version > 0);
                }
                let before = least(server);
                until("every job goes on", &|| least(server) > before + 2);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        for writer in writers.into_iter().flatten() {
            assert!(writer.join().unwrap() > 0);
        }
    });
    assert_eq!([0, 1].map(|server| running.status(server).refused_total), [0, 0]);
}

/// The greatest effective bandwidth is that of the job on both targets, as above: what decides beside finds it from what the servers tell each
/// other, on one server alone, and nobody gets anything by it.
#[test]
fn what_a_controller_would_decide_is_tried_beside() {
    let mut running = Running::start("job-fair", "");
    running.begin("both", &[0, 1]);
    running.begin("one", &[1]);
    let there = running.cluster.configs[1].listen[0].clone();
    for policy in ["gift", "mbw{decide=100ms}"] {
        let set = ControlRequest::SetShadow { policy: Some(policy.to_owned()) };
        assert_eq!(ask(&there, &set), ControlReply::Done, "{policy}");
    }
    let deadline = Instant::now() + LONGEST;
    loop {
        let shadow = running.status(1).shadow.unwrap();
        let both = shadow.jobs.iter().find(|job| job.job == "both").cloned().unwrap_or_default();
        if both.share_would > 0.9 && both.share_had < 0.7 {
            break;
        }
        assert!(Instant::now() < deadline, "{shadow:?}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let here = running.controller(1);
    assert!(!here.is_needed && here.version == 0 && here.sent_bytes == 0, "{here:?}");
    assert_eq!(running.status(0).shadow, None);
}

/// Ends the load when it goes out of scope.
pub struct Ended<'a>(pub &'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nobody_decides_for_a_server_alone() {
    let config = isonomia_server::Config { policy: "gift".parse().unwrap(), ..isonomia_server::Config::default() };
    let refused = isonomia_server::Server::start(config).err().unwrap().to_string();
    assert!(refused.contains("gift is decided by a cluster's controller"), "{refused}");
}
