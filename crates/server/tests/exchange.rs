//! The policy holds over several servers, whichever of them a job's files are on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use isonomia_client::{Claims, Ino};
use isonomia_units::Nanos;
use running::cluster::{Cluster, in_memory};
use running::create;
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

/// The share of the job of 16 nodes on both of two servers, beside a job of 8 nodes on each, when the cluster file has this line.
fn share_of_the_largest(line: &str) -> f64 {
    let cluster = Cluster::start_as(&in_memory(), 2, line, "[{ bandwidth = \"20MiB/s\" }]", |config| {
        config.policy = "size-fair".parse().unwrap();
        config.trust_clients = true;
    });
    let maker = cluster.client(0, false);
    let mut volumes: [Option<String>; 2] = [None, None];
    for number in 0..40 {
        let name = format!("v{number}");
        let made = maker.mkdir(Ino::ROOT, name.as_bytes(), 0o755).unwrap();
        volumes[cluster.has(Ino(made.attr.ino).volume())].get_or_insert(name);
        if volumes.iter().all(Option::is_some) {
            break;
        }
    }
    let volumes = volumes.map(|name| name.expect("forty volumes are on both servers"));
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
                scope.spawn(move || {
                    let file = client.open(Ino::ROOT, path.as_bytes(), &create()).unwrap();
                    while !is_over.load(Ordering::Relaxed) {
                        client.write_at(&file, 0, &[7; REQUEST]).unwrap();
                    }
                });
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
