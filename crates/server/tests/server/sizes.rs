//! What programs say of the sizes of their I/O phases reaches the policy that goes by it.

use crate::running::{Running, create, pattern, start};
use isonomia_client::{Claims, Client, ClientConfig, Ino, OpenFile};
use isonomia_proto::space::SpaceChange;
use isonomia_server::TargetConfig;
use isonomia_units::Nanos;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// What a client says of a phase, and on how many targets.
type Say = fn(&Client, &OpenFile);

fn started(targets: usize) -> Running {
    start(|config| {
        config.policy = "fair-finish".parse().unwrap();
        config.trust_clients = true;
        // So slow that a phase goes on while it is looked at.
        config.targets = vec![TargetConfig { bandwidth: "2MiB/s".parse().ok(), ..TargetConfig::default() }; targets];
    })
}

/// What the policy expects of a job's phase that begins with what is said, in seconds of a target of 2 MiB/s.
fn expected_s(targets: usize, say: Say) -> f64 {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        // Who is kept from looking until the phase is over looks at another one.
        if let Some(expected_s) = seen_s(targets, say) {
            return expected_s;
        }
        assert!(Instant::now() < deadline, "no phase was seen");
    }
}

/// The same, of one that goes on for two seconds; nothing if it was not seen.
fn seen_s(targets: usize, say: Say) -> Option<f64> {
    let running = started(targets);
    let client = Client::new(ClientConfig {
        addresses: vec![running.addresses[0].clone()],
        timeout: Nanos::from_secs(60),
        claims: Claims { job: Some("teller".to_owned()), ..Claims::default() },
        key_file: Some(running.key_file.clone()),
    });
    let file = client.open(Ino::ROOT, b"file", &create()).unwrap();
    say(&client, &file);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let data = pattern(4 * MIB as usize, 3);
            assert_eq!(client.write_at(&file, 0, &data).unwrap(), data.len());
        });
        while !writer.is_finished() {
            let status = running.server().status();
            // The first request has been begun.
            let mut phases = status.jobs.iter().filter_map(|job| job.phase).filter(|phase| phase.received_ns > 0);
            if let Some(phase) = phases.next_back() {
                return Some(phase.expected_ns as f64 / 1e9);
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        None
    })
}

#[test]
fn room_that_is_made_ahead_is_going_to_be_written() {
    let grown = expected_s(1, |client, file| {
        client.set_size(&file.capability, 40 * MIB).unwrap();
    });
    assert!((20.0..20.5).contains(&grown), "{grown} s for 40 MiB");
    let room = expected_s(1, |client, file| {
        client.change_space(file, SpaceChange::Allocate { keep_size: false }, 0, 60 * MIB).unwrap()
    });
    assert!((30.0..30.5).contains(&room), "{room} s for 60 MiB");
    let shrunk = expected_s(1, |client, file| {
        client.set_size(&file.capability, 40 * MIB).unwrap();
        client.set_size(&file.capability, MIB).unwrap();
    });
    assert!((20.0..20.5).contains(&shrunk), "{shrunk} s: what becomes shorter says nothing");
}

#[test]
fn a_phase_that_a_program_begins_has_the_size_that_it_says() {
    let one = expected_s(1, |client, _| client.begin_phase(50 * MIB, None).unwrap());
    assert!((25.0..25.5).contains(&one), "{one} s for 50 MiB");
    let silent = expected_s(1, |client, _| client.begin_phase(0, None).unwrap());
    assert!(silent < 5.0, "{silent} s, and nothing was said");
    let of_two = expected_s(2, |client, _| client.begin_phase(50 * MIB, None).unwrap());
    assert!((12.5..13.0).contains(&of_two), "{of_two} s for half of it, the file being on one target");
}
