//! What is learnt of applications' phases is kept, and no file that is there instead keeps a server from serving.

use crate::running::cluster::{Cluster, in_memory};
use crate::running::{ALICE, Running, as_user, ask, can_be_others, create, pattern, start};
use isonomia_client::{Address, Client, Ino, OpenHow};
use isonomia_policy::{HISTORY_FORMAT, SizeHistory};
use isonomia_proto::control::{ApplicationStatus, ControlReply, ControlRequest};
use isonomia_server::{METADATA, TargetConfig};
use isonomia_store::Loss;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn started(targets: usize) -> Running {
    start(|config| {
        config.policy = "fair-finish{sizes=history}".parse().unwrap();
        config.trust_clients = true;
        config.targets = vec![TargetConfig::default(); targets];
    })
}

fn file_of(running: &Running, name: &str) -> PathBuf {
    running.dir.path().join("data/metadata/history").join(name)
}

fn known(running: &Running) -> Vec<ApplicationStatus> {
    known_at(&running.addresses[0])
}

/// What is known of the job `test` by the data target that it uses.
fn known_at(address: &Address) -> Vec<ApplicationStatus> {
    match ask(address, &ControlRequest::Applications) {
        ControlReply::Applications(list) => {
            assert_eq!(list.others, 0);
            list.applications
                .into_iter()
                .filter(|known| known.target != "metadata" && known.application == "test")
                .collect()
        }
        other => panic!("{other:?}"),
    }
}

fn phase(running: &Running) -> ApplicationStatus {
    phase_at(&running.addresses[0], &running.client(&running.addresses[0], &running.key_file, 20))
}

/// A phase of the job `test`, until it is over; what is known of the job then.
fn phase_at(address: &Address, client: &Client) -> ApplicationStatus {
    let before = known_at(address).first().map_or(0, |known| known.phases_total);
    let file = client.open(Ino::ROOT, b"file", &OpenHow { exclusive: false, ..create() }).unwrap();
    client.write_at(&file, 0, &pattern(100_000, 1)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(known) = known_at(address).pop().filter(|known| known.phases_total > before) {
            return known;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    panic!("the phase does not end");
}

#[test]
fn what_was_learnt_is_known_after_an_orderly_stop() {
    let mut running = started(1);
    let first = phase(&running);
    assert_eq!((first.phases_total, first.expectation_error), (1, None));
    let second = phase(&running);
    assert!(second.expectation_error.is_some() && second.expected_ns > 0, "{second:?}");
    for phases in 2..4 {
        let before = known(&running);
        running.restart();
        assert_eq!(known(&running), before);
        let mode = |name: &str| fs::metadata(file_of(&running, name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(""), mode("target-0"), mode("metadata")), (0o700, 0o600, 0o600));
        assert_eq!(phase(&running).phases_total, phases + 1);
    }
    if can_be_others() {
        let asked = as_user(ALICE, || ask(&running.addresses[0], &ControlRequest::Applications));
        assert!(matches!(&asked, ControlReply::Error(reason) if reason.contains("root")), "{asked:?}");
    }
}

#[test]
fn a_file_that_cannot_be_used_is_put_aside_and_what_is_learnt_begins_anew() {
    let mut running = started(4);
    phase(&running);
    running.stop();
    let name = |number: usize| format!("target-{number}");
    // The file that was written is on one of them.
    let right = (0..4).find_map(|number| fs::read(file_of(&running, &name(number))).ok()).unwrap();
    let mut damaged = right.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let mut newer = right.clone();
    newer[8..12].copy_from_slice(&(HISTORY_FORMAT + 1).to_le_bytes());
    let mut older = right;
    older[8..12].copy_from_slice(&(HISTORY_FORMAT - 1).to_le_bytes());
    let unusable = [damaged, newer, older, Vec::new()];
    let put = |running: &Running| {
        unusable.iter().enumerate().for_each(|(at, content)| fs::write(file_of(running, &name(at)), content).unwrap());
    };
    put(&running);
    running.restart();
    assert_eq!(known(&running), []);
    assert_eq!(phase(&running).phases_total, 1, "it goes on");
    running.stop();
    for (at, content) in unusable.iter().enumerate() {
        assert_eq!(&fs::read(file_of(&running, &format!("target-{at}.unusable-1"))).unwrap(), content);
    }
    let kept = (0..4).find_map(|number| fs::read(file_of(&running, &name(number))).ok()).unwrap();
    assert_eq!(SizeHistory::import(&kept).unwrap().len(), 1);
    // Where there is no room for more, the files stay as they are.
    for at in 0..4 {
        (2..10)
            .for_each(|number| fs::write(file_of(&running, &format!("target-{at}.unusable-{number}")), b"").unwrap());
    }
    put(&running);
    running.restart();
    phase(&running);
    running.stop();
    for (at, content) in unusable.iter().enumerate() {
        assert_eq!(&fs::read(file_of(&running, &name(at))).unwrap(), content);
        assert_eq!(fs::read(file_of(&running, &format!("target-{at}.unusable-9"))).unwrap(), b"");
    }
}

#[test]
fn whatever_is_there_instead_a_server_serves() {
    let mut running = started(1);
    phase(&running);
    running.stop();
    let dir = file_of(&running, "");
    // A directory where the file was.
    fs::remove_file(dir.join("target-0")).unwrap();
    fs::create_dir(dir.join("target-0")).unwrap();
    running.restart();
    assert_eq!(phase(&running).phases_total, 1);
    running.stop();
    assert!(dir.join("target-0.unusable-1").is_dir() && dir.join("target-0").is_file());
    // A file where the directory was.
    fs::remove_dir_all(&dir).unwrap();
    fs::write(dir.parent().unwrap().join("history"), b"no directory").unwrap();
    running.restart();
    assert_eq!(phase(&running).phases_total, 1);
    running.stop();
    assert_eq!(fs::read(dir.parent().unwrap().join("history")).unwrap(), b"no directory");
}

#[test]
fn where_there_is_no_room_nothing_is_written() {
    let mut running = started(1);
    phase(&running);
    running.stop();
    let kept = fs::read(file_of(&running, "target-0")).unwrap();
    // A server that cannot have its reserve takes the disk for full.
    let reserve = running.dir.path().join("data/metadata/reserve");
    fs::remove_file(&reserve).unwrap_or_default();
    fs::create_dir(&reserve).unwrap();
    running.restart();
    assert_eq!(phase(&running).phases_total, 2, "what is there can be overwritten");
    running.stop();
    assert_eq!(fs::read(file_of(&running, "target-0")).unwrap(), kept);
    fs::remove_dir(&reserve).unwrap();
    running.restart();
    assert_eq!(phase(&running).phases_total, 2);
    running.stop();
    assert_ne!(fs::read(file_of(&running, "target-0")).unwrap(), kept);
}

#[test]
fn who_has_the_directory_next_goes_on_and_who_had_it_writes_nothing_more() {
    let mut cluster = Cluster::start_as(&in_memory(), 1, "", "1", |config| {
        config.policy = "fair-finish{sizes=history}".parse().unwrap();
        config.trust_clients = true;
    });
    let address = cluster.configs[0].listen[0].clone();
    let metadata = cluster.dir.path().join("io1").join(METADATA);
    phase_at(&address, &cluster.client(0, false));
    cluster.restart(0);
    let first = known_at(&address);
    assert_eq!(first[0].phases_total, 1);
    // One more, that is not written yet. Then a process on another host takes over.
    phase_at(&address, &cluster.client(0, false));
    let other = |state: &str| {
        let record = fs::read_to_string(metadata.join("owner")).unwrap();
        let of = |line: &str| match line.split_once(' ') {
            Some(("instance", _)) => "instance 7".to_owned(),
            Some(("token", _)) => "token 00000000000000fe".to_owned(),
            Some(("host", _)) => "host elsewhere".to_owned(),
            Some(("boot", _)) => "boot another".to_owned(),
            Some(("state", _)) => format!("state {state}"),
            _ => line.to_owned(),
        };
        let lines: Vec<String> = record.lines().map(of).collect();
        fs::write(metadata.join("owner"), lines.join("\n") + "\n").unwrap();
    };
    other("open");
    let fence = cluster.servers[0].as_ref().unwrap().fence();
    fence.renew();
    assert_eq!(fence.wait_for_end(), Some(Loss::Replaced(7)));
    let history = || -> Vec<Vec<u8>> {
        let entries = fs::read_dir(metadata.join("history")).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    };
    let taken_over = history();
    cluster.servers[0] = None;
    assert_eq!(history(), taken_over);
    // That one gave it up.
    other("closed");
    cluster.restart(0);
    assert_eq!(cluster.servers[0].as_ref().unwrap().fence().instance(), Some(8));
    let known = known_at(&address);
    // Unless the machine was so slow that the second phase was written when it was due.
    assert!(known == first || known[0].phases_total == 2, "{known:?}");
    assert!(phase_at(&address, &cluster.client(0, false)).expectation_error.is_some());
}
