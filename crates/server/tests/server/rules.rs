//! Rules of the policy `tbf` on real servers: what they select, that a rate is one of all servers together, who was held.

use crate::controller::Ended;
use crate::running::cluster::{Cluster, in_memory};
use crate::running::switching::{EXCLUSIVE, POLICIES, append};
use crate::running::{ask, create, start};
use isonomia_client::{Address, Claims, Client, Ino};
use isonomia_policy::{Draw, PREFIXES_MAX};
use isonomia_proto::control::{ControlReply, ControlRequest, RateStatus};
use isonomia_units::Nanos;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const REQUEST: usize = 64 << 10;

fn set(address: &Address, policy: &str, instead_of: Option<&str>) -> ControlReply {
    let instead_of = instead_of.map(str::to_owned);
    let policy = policy.to_owned();
    ask(address, &ControlRequest::SetPolicy { policy, draw: None, only_here: false, instead_of })
}

/// Waits until `found` gives something.
fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

fn as_job(addresses: Vec<Address>, key: &str, job: &str) -> Client {
    let claims = Claims { job: Some(job.to_owned()), ..Claims::default() };
    Client::new(isonomia_client::ClientConfig {
        addresses,
        timeout: Nanos::from_secs(60),
        claims,
        key_file: Some(key.to_owned()),
    })
}

fn rate<'r>(rates: &'r [RateStatus], rule: &str) -> Option<&'r RateStatus> {
    rates.iter().find(|rate| rate.rule == rule)
}

#[test]
fn rules_look_at_operations_paths_and_jobs() {
    let running = start(|config| {
        config.trust_clients = true;
        config.policy = "tbf{free@job:free=exempt,slow@path:/slow&op:write=2MiB/s,made@job:maker&op:metadata=50ops/s,\
                         reads@op:read=1GiB/s,burst=256KiB}"
            .parse()
            .unwrap();
    });
    let client = |job: &str| as_job(vec![running.addresses[0].clone()], &running.key_file, job);
    let maker = client("other");
    maker.mkdir(Ino::ROOT, b"slow", 0o777).unwrap();
    maker.mkdir(Ino::ROOT, b"slow/deep", 0o777).unwrap();
    maker.mkdir(Ino::ROOT, b"slower", 0o777).unwrap();
    let write = |client: &Client, path: &str, count: usize| {
        let how = isonomia_client::OpenHow { exclusive: false, ..create() };
        let file = client.open(Ino::ROOT, path.as_bytes(), &how).unwrap();
        for at in 0..count {
            assert_eq!(client.write_at(&file, (at * REQUEST) as u64, &[1; REQUEST]).unwrap(), REQUEST);
        }
        let mut back = vec![0; REQUEST];
        assert_eq!(client.read_at(&file, 0, &mut back).unwrap(), REQUEST);
    };
    let status = || running.server().status();
    write(&client("other"), "slower/file", 8);
    write(&client("free"), "slow/deep/free", 8);
    let rates = status().rates;
    let slow = rate(&rates, "slow").unwrap();
    assert_eq!((slow.bytes_total, slow.held_ns_total), (0, 0), "neither a path that begins alike nor who is exempt");
    assert_eq!(rate(&rates, "reads").unwrap().bytes_total, REQUEST as u64, "who is exempt is so of all later rules");
    // 8 requests of 64 KiB, of which 4 are in the burst; two targets' worth of which have half of the rate at first. Those of a client
    // that the machine keeps waiting are due when they come: it goes on until it was held.
    let (limited, mut written) = (client("limited"), 0);
    let slow = eventually("who writes more than that is held", || {
        write(&limited, "slow/deep/file", 8);
        written += 8 * REQUEST as u64;
        let rates = status().rates;
        let slow = rate(&rates, "slow").unwrap();
        assert_eq!(slow.bytes_total, written);
        (slow.held_ns_total > 50_000_000).then(|| slow.clone())
    });
    assert_eq!((slow.class.as_str(), slow.rate.as_str()), ("everybody", "2MiB/s"));
    assert_eq!(slow.jobs[0].job, "limited");
    assert_eq!(rate(&status().rates, "made"), None);
    let (maker, mut made_total) = (client("maker"), 0);
    let made = eventually("who makes more than that is held", || {
        for at in made_total..made_total + 20 {
            maker.mkdir(Ino::ROOT, format!("m{at}").as_bytes(), 0o755).unwrap();
        }
        made_total += 20;
        let rates = status().rates;
        let made = rate(&rates, "made").unwrap();
        assert_eq!(made.operations_total, made_total);
        (made.held_ns_total > 100_000_000).then(|| made.clone())
    });
    assert_eq!(made.class, "job:maker");
    // A directory that gets another name is followed.
    maker.rename(Ino::ROOT, b"slower", Ino::ROOT, b"slow/moved", isonomia_client::RenameHow::Replace).unwrap();
    let other = client("other");
    let file =
        other.open(Ino::ROOT, b"slow/moved/file", &isonomia_client::OpenHow { exclusive: false, ..create() }).unwrap();
    other.write_at(&file, 0, &[1; REQUEST]).unwrap();
    assert_eq!(rate(&status().rates, "slow").unwrap().bytes_total, written + REQUEST as u64);
}

#[test]
fn a_lottery_has_no_strict_shares_and_says_so() {
    let running = start(|config| config.draw = Draw::Lottery);
    let warnings_of = |policy: &str, draw: Option<Draw>| {
        let (policy, draw) = (policy.to_owned(), draw.map(|draw| draw.to_string()));
        let set = ControlRequest::SetPolicy { policy, draw, only_here: false, instead_of: None };
        match ask(&running.addresses[0], &set) {
            ControlReply::Policy { policy, warnings, .. } => (policy, warnings),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(warnings_of("user-fair", None).1, [""; 0]);
    let (policy, warnings) = warnings_of("user-fair+strict", None);
    assert_eq!(policy, "user-then-job-fair+strict");
    assert!(warnings.len() == 1 && warnings[0].contains("virtual-time"), "{warnings:?}");
    assert_eq!(warnings_of("user-fair+strict", Some(Draw::VirtualTime)).1, [""; 0]);
    assert_eq!(warnings_of("user-fair+strict", None).1, [""; 0], "the draw stays");
}

#[test]
fn rules_are_set_only_instead_of_what_was_seen_and_what_is_strange_is_told() {
    let running = start(|_| {});
    let address = &running.addresses[0];
    let old = running.server().status().policy;
    let refused = set(address, "tbf{job:a=1MB/s}", Some("fifo"));
    assert!(matches!(&refused, ControlReply::Error(reason) if reason.contains("changed meanwhile")), "{refused:?}");
    let policy = "tbf{gone@path:/gone=1MB/s,all@user:*=1GB/s,never@user:ada&job:x=1MB/s}";
    let reply = set(address, policy, Some(&old));
    let ControlReply::Policy { warnings, .. } = reply else { panic!("{reply:?}") };
    let has = |parts: [&str; 2]| warnings.iter().any(|text| parts.iter().all(|part| text.contains(part)));
    assert!(has(["rule gone", "no directory /gone"]) && has(["rule never", "rule all"]), "{warnings:?}");
    for (bad, part) in [
        ("tbf{a@job:a=0B/s}", "zero"),
        ("tbf{a@job:a=1MB/s,b@job:a=2MB/s}", "set twice"),
        ("tbf{a@job:a=1MB/s,a@job:b=2MB/s}", "two rules have this name"),
    ] {
        let reply = set(address, bad, None);
        assert!(matches!(&reply, ControlReply::Error(reason) if reason.contains(part)), "{bad}: {reply:?}");
    }
}

#[test]
fn a_rate_applies_to_two_servers_together() {
    const RATE: f64 = 8.0 * 1024.0 * 1024.0;
    /// Servers tell each other at this interval. Parts may sum to more than the rate for twice as long, and by this part at any time.
    const INTERVAL_S: f64 = 0.02;
    const FLOOR: f64 = 1.0 / 64.0;
    let cluster = Cluster::start_as(&in_memory(), 2, "exchange = \"20ms\"", "1", |config| {
        config.policy = "tbf{all@job:*=8MiB/s,burst=64KiB}".parse().unwrap();
        config.trust_clients = true;
    });
    let volumes = cluster.volume_on_each();
    let is_over = AtomicBool::new(false);
    let rates = || {
        let statuses = cluster.servers.iter().flatten().map(isonomia_server::Server::status);
        let of = |status: isonomia_proto::control::Status| {
            status.rates.into_iter().find(|rate| rate.class == "job:both").unwrap_or_default()
        };
        statuses.map(of).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        // Three times as many on the first server as on the second: and more than one there, which a busy machine may keep from asking,
        // so that its part goes to the other server, until it asks again.
        for (server, thread) in (0..9).map(|thread| (0, thread)).chain((0..3).map(|thread| (1, thread))) {
            let claims = Claims { job: Some("both".to_owned()), ..Claims::default() };
            let client = cluster.client_as(vec![cluster.configs[server].listen[0].clone()], claims);
            let (path, is_over) = (format!("{}/{thread}", volumes[server]), &is_over);
            scope.spawn(move || {
                let file = client.open(Ino::ROOT, path.as_bytes(), &create()).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    client.write_at(&file, 0, &[7; REQUEST]).unwrap();
                }
            });
        }
        // Ends the writers also if something is wrong.
        let _ended = Ended(&is_over);
        let moved = || rates().iter().map(|rate| rate.bytes_total).sum::<u64>() as f64;
        eventually("both servers hold the job", || rates().iter().all(|rate| rate.held_ns_total > 0).then_some(()));
        let parts = || rates().iter().map(|rate| rate.part).collect::<Vec<f64>>();
        let sum = || parts().iter().sum::<f64>();
        // The parts follow the demand.
        let settled = || Some(parts()).filter(|parts| parts[0] > 1.5 * parts[1] && parts.iter().sum::<f64>() < 1.1);
        let measured = eventually("what both servers serve is bounded", || {
            let parts = eventually("the first server has most of the rate", settled);
            let (from, before) = (Instant::now(), moved());
            let (mut is_as_told, mut looked) = (true, from);
            while from.elapsed() < Duration::from_secs(2) {
                std::thread::park_timeout(Duration::from_millis(10));
                is_as_told &= sum() < 1.0 + FLOOR + 1e-3 && looked.elapsed().as_secs_f64() < 2.0 * INTERVAL_S;
                looked = Instant::now();
            }
            let bytes = moved() - before;
            let span = from.elapsed().as_secs_f64();
            let bound =
                RATE * (span + 2.0 * INTERVAL_S) * (1.0 + FLOOR) + 2.0 * (64 << 10) as f64 + 2.0 * REQUEST as f64;
            // The bound is for servers that hear each other at each interval. A machine that is too busy for that shows it by parts that sum
            // to more for longer, or by looks that come as late as that: then it is measured again.
            let is_bounded = bytes <= bound;
            (is_bounded || is_as_told).then_some((is_bounded, bytes, span, bound, parts))
        });
        let (is_bounded, bytes, span, bound, parts) = measured;
        assert!(is_bounded, "{bytes} bytes in {span} s, {bound} allowed; parts {parts:?}");
        let statuses = rates();
        assert!(statuses.iter().all(|rate| rate.jobs.iter().any(|job| job.job == "both")), "{statuses:?}");
        println!("{:.3} of the rate; parts {parts:.3?}", bytes / span / RATE);
    });
}

#[test]
fn a_rule_for_a_directory_follows_the_names_of_volumes() {
    let cluster = Cluster::start_as(&in_memory(), 2, "", "1", |config| {
        config.policy = "tbf{named@path:/named=1GiB/s}".parse().unwrap();
        config.trust_clients = true;
    });
    // The server that has it hears from the root server that it has another name.
    let [_, volume] = cluster.volume_on_each();
    let client = cluster.client(1, false);
    let file = client.open(Ino::ROOT, format!("{volume}/file").as_bytes(), &create()).unwrap();
    let charged = || {
        let rates = cluster.servers[1].as_ref().unwrap().status().rates;
        let before = rate(&rates, "named").map_or(0, |rate| rate.bytes_total);
        assert_eq!(client.write_at(&file, 0, &[1; REQUEST]).unwrap(), REQUEST);
        let rates = cluster.servers[1].as_ref().unwrap().status().rates;
        rate(&rates, "named").map_or(0, |rate| rate.bytes_total) > before
    };
    assert!(!charged());
    let rename = |from: &str, to: &str| {
        let how = isonomia_client::RenameHow::NoReplace;
        cluster.client(0, false).rename(Ino::ROOT, from.as_bytes(), Ino::ROOT, to.as_bytes(), how).unwrap();
    };
    rename(&volume, "named");
    eventually("the rule is for a file that was open before", || charged().then_some(()));
    rename("named", "renamed");
    eventually("and is so no more", || (!charged()).then_some(()));
}

#[test]
fn a_policy_beside_the_other_tells_what_it_would_give_and_gives_nothing() {
    let running = start(|config| {
        config.policy = "fifo".parse().unwrap();
        config.trust_clients = true;
        config.targets =
            vec![isonomia_server::TargetConfig { bandwidth: "40MiB/s".parse().ok(), ..Default::default() }];
    });
    let address = running.addresses[0].clone();
    let shadow = |policy: Option<&str>| ask(&address, &ControlRequest::SetShadow { policy: policy.map(str::to_owned) });
    assert_eq!(running.server().status().shadow, None);
    assert!(
        matches!(shadow(Some("of-tomorrow")), ControlReply::Error(reason) if reason.contains("not part of a policy"))
    );
    for (policy, part) in [("exclusive", "exclusive phases"), ("gift", "in no cluster")] {
        assert!(matches!(shadow(Some(policy)), ControlReply::Error(reason) if reason.contains(part)), "{policy}");
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (job, thread) in [("many", 0), ("many", 1), ("many", 2), ("many", 3), ("many", 4), ("few", 0)] {
            let client = as_job(vec![address.clone()], &running.key_file, job);
            let is_over = &is_over;
            scope.spawn(move || {
                let file = client.open(Ino::ROOT, format!("{job}-{thread}").as_bytes(), &create()).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    client.write_at(&file, 0, &[7; REQUEST]).unwrap();
                }
            });
        }
        assert_eq!(shadow(Some("job-fair")), ControlReply::Done);
        let few = |status: &isonomia_proto::control::ShadowStatus| {
            status.jobs.iter().find(|job| job.job == "few").cloned().unwrap_or_default()
        };
        let found = eventually("the shadow tells that few would have about half", || {
            let status = running.server().status().shadow?;
            let few = few(&status);
            (status.jobs.len() == 2 && (0.4..0.6).contains(&few.share_would) && few.share_had < 0.3).then_some(status)
        });
        assert_eq!(found.policy, "job-fair");
        // It stays when the policy that is followed changes, and gives nothing by itself.
        set(&address, "user-fair", None);
        eventually("it stays", || running.server().status().shadow.filter(|status| !status.jobs.is_empty()).map(drop));
        assert_eq!(shadow(None), ControlReply::Done);
        assert_eq!(running.server().status().shadow, None);
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_policy_beside_the_other_has_rules_for_directories_of_its_own() {
    // As many directories as there can be.
    let many = |count: usize| {
        let rules: Vec<String> = (0..count).map(|at| format!("path:/d{at}=1GB/s")).collect();
        format!("tbf{{{}}}", rules.join(","))
    };
    let running = start(|config| {
        config.policy = "tbf{path:/b=1GiB/s}".parse().unwrap();
        config.trust_clients = true;
        config.targets =
            vec![isonomia_server::TargetConfig { bandwidth: "40MiB/s".parse().ok(), ..Default::default() }];
    });
    let address = running.addresses[0].clone();
    let shadow = |policy: &str| ask(&address, &ControlRequest::SetShadow { policy: Some(policy.to_owned()) });
    let too_many =
        format!("64 directories, and those of the policy that is followed 1 (allowed: {PREFIXES_MAX} together)");
    assert!(matches!(shadow(&many(64)), ControlReply::Error(reason) if reason.contains(&too_many)));
    assert_eq!(running.server().status().shadow, None);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for dir in ["a", "b"] {
            let client = as_job(vec![address.clone()], &running.key_file, dir);
            client.mkdir(Ino::ROOT, dir.as_bytes(), 0o755).unwrap();
            let is_over = &is_over;
            scope.spawn(move || {
                let file = client.open(Ino::ROOT, format!("{dir}/file").as_bytes(), &create()).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    client.write_at(&file, 0, &[7; REQUEST]).unwrap();
                }
            });
        }
        let would = || {
            let jobs = running.server().status().shadow?.jobs;
            let a = jobs.iter().find(|job| job.job == "a").filter(|_| jobs.len() == 2)?;
            (a.share_had > 0.3).then_some(a.share_would)
        };
        // The rule of the policy that is followed has the same index as this one, and is for the other directory.
        assert_eq!(shadow("tbf{path:/a=1MiB/s}"), ControlReply::Done);
        eventually("the shadow limits what lies below its directory", || would().filter(|share| *share < 0.2));
        let client = as_job(vec![address.clone()], &running.key_file, "mover");
        client.rename(Ino::ROOT, b"a", Ino::ROOT, b"c", isonomia_client::RenameHow::Replace).unwrap();
        eventually("which it does no more under another name", || would().filter(|share| *share > 0.4));
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(matches!(set(&address, &many(64), None), ControlReply::Policy { .. }));
    assert_eq!(running.server().status().shadow, None, "the policy that is followed goes first");
}

#[test]
fn decisions_are_recorded_for_a_while() {
    let running = start(|_| {});
    let address = &running.addresses[0];
    let path = running.dir.path().join("decisions.jsonl");
    let to = |path: &std::path::Path, span| Some((path.to_str().unwrap().to_owned(), span));
    let record = |to| ask(address, &ControlRequest::Record { to });
    let refused = |reply: ControlReply, part: &str| {
        assert!(matches!(&reply, ControlReply::Error(reason) if reason.contains(part)), "{part}: {reply:?}");
    };
    refused(record(None), "no decisions are being recorded");
    refused(record(to(std::path::Path::new("here"), 1)), "no absolute path");
    refused(record(to(&path, 0)), "no time to record for");
    refused(record(to(&path.join("x"), 1_000_000_000)), "cannot create");
    assert_eq!(record(to(&path, 3_600_000_000_000)), ControlReply::Done);
    refused(record(to(&path, 1_000_000_000)), "already");
    running.serves();
    assert_eq!(record(None), ControlReply::Done);
    let lines = std::fs::read_to_string(&path).unwrap();
    assert!(lines.ends_with('\n') && lines.contains("\"call\":\"complete\""), "{lines}");
    // One that nobody ends is ended by the server.
    let path = running.dir.path().join("short.jsonl");
    assert_eq!(record(to(&path, 1_000_000)), ControlReply::Done);
    running.serves();
    let ended = || matches!(record(None), ControlReply::Error(reason) if reason.contains("no decisions")).then_some(());
    eventually("its time is over", || {
        std::fs::metadata(&path).ok().filter(|found| found.len() > 0).and_then(|_| ended())
    });
}

#[test]
fn no_request_is_lost_doubled_or_stalled_while_policies_change() {
    let running = start(|config| config.trust_clients = true);
    let address = running.addresses[0].clone();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = ["a", "b", "c", "d"]
            .into_iter()
            .enumerate()
            .map(|(at, job)| {
                let client = as_job(vec![running.addresses[at % 2].clone()], &running.key_file, job);
                let is_over = &is_over;
                scope.spawn(move || append(&client, "", job, is_over))
            })
            .collect();
        let requests = || running.server().status().jobs.iter().map(|job| job.requests_total).min().unwrap_or(0);
        for round in 0..3 {
            for from in POLICIES.into_iter().chain([EXCLUSIVE]) {
                for draw in [Some("lottery".to_owned()), Some("virtual-time".to_owned())] {
                    let policy = from.to_owned();
                    let reply =
                        ask(&address, &ControlRequest::SetPolicy { policy, draw, only_here: false, instead_of: None });
                    assert!(matches!(reply, ControlReply::Policy { .. }), "{from}: {reply:?}");
                }
                let before = requests();
                eventually(&format!("round {round}: every job goes on under {from}"), || {
                    (running.server().status().jobs.len() == 4 && requests() > before + 4).then_some(())
                });
            }
        }
        is_over.store(true, Ordering::Relaxed);
        for writer in writers {
            assert!(writer.join().unwrap() > 0);
        }
    });
    assert_eq!(running.server().status().refused_total, 0);
}
