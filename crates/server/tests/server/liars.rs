//! Whatever one user claims, another one is due the same: from the hello to the target's arbiter.
//!
//! The clients ask for other users, which the server grants its own user.

use crate::running::{create, start};
use isonomia_client::{Claims, Client, ClientConfig, Ino, Principal, SchedulerJob};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_server::{Config, TargetConfig};
use isonomia_transport::channel::Channel;
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;

const PATIENCE: Nanos = Nanos::from_secs(20);
const VICTIM: u32 = 1_000_001;
const LIAR: u32 = 1_000_002;
/// One request takes this device longer than the test.
const SLOW: &str = "1KiB/s";

fn claims(uid: u32, job: &str, nodes: u32) -> Claims {
    let scheduler =
        SchedulerJob { scheduler: "slurm".into(), job: job.into(), nodes: Some(nodes), account: Some("root".into()) };
    Claims {
        scheduler: Some(scheduler),
        on_behalf_of: Some(Principal { uid, gid: 1_000_000, groups: Vec::new() }),
        ..Claims::default()
    }
}

/// What the victim's job is due while the liar's `jobs`, of so many `nodes` each, have requests that wait.
fn due_to_the_victim(config: impl FnOnce(&mut Config), jobs: u32, nodes: u32) -> f64 {
    let running = start(|c| {
        c.targets = vec![TargetConfig { bandwidth: Some(SLOW.parse().unwrap()), ..TargetConfig::default() }];
        config(c);
    });
    let address = running.addresses[0].clone();
    let owner = Client::new(ClientConfig {
        addresses: vec![address.clone()],
        timeout: PATIENCE,
        claims: Claims::default(),
        key_file: None,
    });
    let file = owner.open(Ino::ROOT, b"file", &create()).unwrap();
    let everybody = (0..jobs).map(|n| claims(LIAR, &format!("l{n}"), nodes)).chain([claims(VICTIM, "v", 1)]);
    let mut channels: Vec<Channel> = everybody
        .enumerate()
        .map(|(number, claims)| {
            let identity = Identity { client: number as u64 + 1, claims, ..Identity::default() };
            Channel::open(&address, &identity, Deadline::after(PATIENCE)).unwrap()
        })
        .collect();
    for channel in &mut channels {
        for _ in 0..2 {
            let mut request = RequestHeader::with_capability(Op::Write, &file.capability);
            request.len = 64 << 10;
            channel.stage().copy_from(&[1]);
            channel.send(&request).unwrap();
        }
    }
    let deadline = Deadline::after(PATIENCE);
    loop {
        let jobs_now = running.server().status().jobs;
        let victim = jobs_now.iter().find(|job| job.job == "v");
        if jobs_now.iter().map(|job| job.queued).sum::<u64>() > 2 * u64::from(jobs)
            && victim.is_some_and(|v| v.queued > 0)
        {
            // A status is put together bit by bit: the shares in this one may be from before the requests were queued.
            let settled = running.server().status().jobs;
            return settled.iter().find(|job| job.job == "v").unwrap().share_due;
        }
        assert!(deadline.left().is_some(), "the requests do not all wait: {jobs_now:?}");
        std::thread::yield_now();
    }
}

#[test]
fn the_default_policy_gives_users_the_same() {
    assert_eq!(due_to_the_victim(|_| {}, 40, 1), 0.5);
    assert_eq!(due_to_the_victim(|_| {}, 1, 1_000), 0.5);
}

#[test]
fn invented_jobs_and_sizes_gain_nothing_under_other_policies() {
    for policy in ["job-fair", "size-fair", "group{root=9}-then-size-fair"] {
        assert_eq!(due_to_the_victim(|c| c.policy = policy.parse().unwrap(), 40, 1_000), 0.5, "{policy}");
    }
}

#[test]
fn a_server_that_trusts_its_clients_believes_them() {
    let trusting = |policy: &'static str| {
        move |c: &mut Config| {
            c.policy = policy.parse().unwrap();
            c.trust_clients = true;
        }
    };
    assert_eq!(due_to_the_victim(trusting("job-fair"), 4, 1), 0.2);
    assert_eq!(due_to_the_victim(trusting("size-fair"), 1, 999), 0.001);
}
