//! Several servers as one file system.

use crate::running::cluster::{Cluster, in_memory};
use isonomia_client::{
    Address, Change, Claims, Client, ClientConfig, Error, Ino, OpenHow, RenameHow, TimeChange, Timestamp, XattrHow,
    access,
};
use isonomia_proto::control::{ControlReply, ControlRequest, VolumeEntry};
use isonomia_server::{Config, METADATA, Server};
use isonomia_store::{Loss, START_OVER};
use isonomia_transport::control::ControlConnection;
use isonomia_units::{Nanos, ServerId, VolumeId};
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

/// For what servers tell each other within a second or so.
const PATIENCE: Duration = Duration::from_secs(30);

fn create() -> OpenHow {
    OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o644, ..OpenHow::default() }
}

fn errno(outcome: Result<impl std::fmt::Debug, Error>) -> rustix::io::Errno {
    outcome.unwrap_err().errno()
}

fn names(client: &Client, dir: Ino) -> Vec<String> {
    let entries = client.read_dir(dir, 0).unwrap();
    let mut names: Vec<String> = entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

#[test]
fn one_address_leads_to_all_volumes() {
    let cluster = Cluster::start(3);
    let volumes: Vec<String> = (0..12).map(|number| format!("v{number:02}")).collect();
    let first = cluster.client(0, false);
    for name in &volumes {
        let made = first.mkdir(Ino::ROOT, name.as_bytes(), 0o755).unwrap();
        assert_ne!(Ino(made.attr.ino).volume(), VolumeId::ROOT);
    }
    assert_eq!(errno(first.mkdir(Ino::ROOT, b"v00", 0o755)), rustix::io::Errno::EXIST);
    let data: Vec<u8> = (0..3_000_000u32).map(|at| at as u8).collect();
    for index in 0..3 {
        for is_tcp in [false, true] {
            let client = cluster.client(index, is_tcp);
            assert_eq!(names(&client, Ino::ROOT), volumes);
            for name in &volumes {
                let path = format!("{name}/of-{index}-{is_tcp}");
                let file = client.open(Ino::ROOT, path.as_bytes(), &create()).unwrap();
                assert_eq!(client.write_at(&file, 5, &data).unwrap(), data.len());
                client.sync(&file, false).unwrap();
                let mut back = vec![0; data.len() + 10];
                assert_eq!(client.read_at(&file, 5, &mut back).unwrap(), data.len());
                assert_eq!(back[..data.len()], data);
                client.release(Ino(file.attr.ino), 0).unwrap();
            }
        }
    }
    // They are on several servers, and all servers agree where.
    let volume_of = |name: &String| Ino(first.get_attr(Ino::ROOT, name.as_bytes(), true).unwrap().ino).volume();
    let mut servers: Vec<usize> = volumes.iter().map(|name| cluster.has(volume_of(name))).collect();
    servers.sort_unstable();
    servers.dedup();
    assert!(servers.len() > 1, "all volumes on server {servers:?}");
    for name in &volumes {
        assert_eq!(names(&first, Ino(first.get_attr(Ino::ROOT, name.as_bytes(), true).unwrap().ino)).len(), 6);
    }
}

#[test]
fn another_server_is_asked_while_the_first_that_answered_is_away() {
    let mut cluster = Cluster::start(3);
    let volumes = cluster.client(0, false);
    for (name, server) in [("first", 1), ("second", 2), ("third", 3)] {
        volumes.make_volume(name.as_bytes(), 0o755, ServerId(server)).unwrap();
        volumes.mkdir(Ino::ROOT, format!("{name}/sub").as_bytes(), 0o755).unwrap();
    }
    let nowhere: Address = "unix:/nonexistent/isonomia".parse().unwrap();
    let at = |index: usize, is_tcp| cluster.configs[index].listen[usize::from(is_tcp)].clone();
    let client = cluster.client_of(vec![nowhere, at(2, false), at(1, true)]);
    let look = |path: &str| client.get_attr(Ino::ROOT, path.as_bytes(), true);
    look("third/sub").unwrap();
    cluster.servers[2] = None;
    // The one that answered is away, and nothing is known of these yet.
    look("first/sub").unwrap();
    look("second/sub").unwrap();
    assert_eq!(names(&client, Ino::ROOT), ["first", "second", "third"]);
    client.mkdir(Ino::ROOT, b"second/more", 0o755).unwrap();
    // It comes back, and is asked for what it has.
    cluster.servers[2] = Some(Server::start(cluster.configs[2].clone()).unwrap());
    look("third/sub").unwrap();
}

/// What a client that waits has said.
static SAID: Mutex<String> = Mutex::new(String::new());

#[test]
fn who_is_refused_at_one_address_waits_for_another_one_and_says_why() {
    let mut cluster = Cluster::start(2);
    cluster.servers[1] = None;
    // Without a key the first server is of no use on TCP, and the socket of the second is of use when that server is back.
    let addresses = vec![cluster.configs[0].listen[1].clone(), cluster.configs[1].listen[0].clone()];
    let claims = Claims { job: Some("test".to_owned()), ..Claims::default() };
    let config = ClientConfig { addresses, timeout: Nanos::from_secs(60), claims, key_file: None };
    let client = Client::new(config).telling(|notice| notice.text().clone_into(&mut SAID.lock().unwrap()));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| client.get_attr(Ino::ROOT, b"", true));
        let deadline = Instant::now() + PATIENCE;
        while SAID.lock().unwrap().is_empty() {
            assert!(Instant::now() < deadline, "it says nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        cluster.servers[1] = Some(Server::start(cluster.configs[1].clone()).unwrap());
        waits.join().unwrap().unwrap();
    });
    let said = SAID.lock().unwrap().clone();
    assert!(said.contains("no key file is set") && said.contains("waiting for a server at"), "{said}");
}

#[test]
fn volumes_are_renamed_and_removed_from_anywhere() {
    let cluster = Cluster::start(3);
    let (a, b) = (cluster.client(0, false), cluster.client(2, true));
    for name in ["one", "two", "three", "four"] {
        a.mkdir(Ino::ROOT, name.as_bytes(), 0o755).unwrap();
        b.mkdir(Ino::ROOT, format!("{name}/sub").as_bytes(), 0o755).unwrap();
    }
    let rename = |client: &Client, from: &str, to: &str, how| {
        client.rename(Ino::ROOT, from.as_bytes(), Ino::ROOT, to.as_bytes(), how)
    };
    rename(&b, "one", "uno", RenameHow::Replace).unwrap();
    assert_eq!(names(&a, Ino::ROOT), ["four", "three", "two", "uno"]);
    a.get_attr(Ino::ROOT, b"uno/sub", true).unwrap();
    assert_eq!(errno(b.get_attr(Ino::ROOT, b"one/sub", true)), rustix::io::Errno::NOENT);
    assert_eq!(errno(rename(&a, "two", "three", RenameHow::Replace)), rustix::io::Errno::NOTEMPTY);
    assert_eq!(errno(rename(&a, "two", "three", RenameHow::NoReplace)), rustix::io::Errno::EXIST);
    assert_eq!(errno(rename(&a, "two/sub", "three/sub2", RenameHow::Replace)), rustix::io::Errno::XDEV);
    for name in ["uno", "two", "three", "four"] {
        assert_eq!(errno(b.rmdir(Ino::ROOT, name.as_bytes())), rustix::io::Errno::NOTEMPTY);
        a.rmdir(Ino::ROOT, format!("{name}/sub").as_bytes()).unwrap();
        b.rmdir(Ino::ROOT, name.as_bytes()).unwrap();
        assert_eq!(errno(a.get_attr(Ino::ROOT, name.as_bytes(), true)), rustix::io::Errno::NOENT);
    }
    assert!(names(&b, Ino::ROOT).is_empty());
    // The name is free again, for a file as well.
    b.open(Ino::ROOT, b"uno", &create()).unwrap();
    assert_eq!(errno(a.mkdir(Ino::ROOT, b"uno", 0o755)), rustix::io::Errno::EXIST);
    assert_eq!(names(&a, Ino::ROOT), ["uno"]);
}

#[test]
fn a_path_is_walked_over_several_servers() {
    let cluster = Cluster::start(3);
    let client = cluster.client(1, false);
    let volumes: Vec<String> = (0..9).map(|number| format!("w{number}")).collect();
    for name in &volumes {
        client.mkdir(Ino::ROOT, name.as_bytes(), 0o755).unwrap();
    }
    // Each has a link to the next one.
    for pair in volumes.windows(2) {
        client
            .symlink(format!("../{}/next", pair[1]).as_bytes(), Ino::ROOT, format!("{}/next", pair[0]).as_bytes())
            .unwrap();
    }
    let last = volumes.last().unwrap();
    client.open(Ino::ROOT, format!("{last}/next").as_bytes(), &create()).unwrap();
    let there = client.get_attr(Ino::ROOT, format!("{last}/../{}/next", volumes[0]).as_bytes(), true).unwrap();
    assert_eq!(there.ino, client.get_attr(Ino::ROOT, format!("{last}/next").as_bytes(), true).unwrap().ino);
    let (up, root) =
        (client.get_attr(Ino::ROOT, b"w3/..", true).unwrap(), client.get_attr(Ino::ROOT, b"", true).unwrap());
    assert_eq!((up.ino, up.nlink), (root.ino, root.nlink));
}

#[test]
fn all_is_there_after_all_servers_stopped() {
    let mut cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    for name in ["a", "b", "c", "d"] {
        client.mkdir(Ino::ROOT, name.as_bytes(), 0o755).unwrap();
        let file = client.open(Ino::ROOT, format!("{name}/f").as_bytes(), &create()).unwrap();
        client.write_at(&file, 0, name.as_bytes()).unwrap();
    }
    client.rename(Ino::ROOT, b"d", Ino::ROOT, b"e", RenameHow::Replace).unwrap();
    cluster.restart(1);
    cluster.restart(0);
    for client in [client, cluster.client(1, true)] {
        assert_eq!(names(&client, Ino::ROOT), ["a", "b", "c", "e"]);
        for (name, content) in [("a", b"a"), ("b", b"b"), ("c", b"c"), ("e", b"d")] {
            let how = OpenHow { access: access::READ, ..OpenHow::default() };
            let file = client.open(Ino::ROOT, format!("{name}/f").as_bytes(), &how).unwrap();
            let mut back = [0; 4];
            assert_eq!(client.read_at(&file, 0, &mut back).unwrap(), 1);
            assert_eq!(back[..1], content[..]);
        }
        client.mkdir(Ino::ROOT, b"new", 0o755).unwrap();
        client.rmdir(Ino::ROOT, b"new").unwrap();
    }
}

/// Has both servers take this cluster file of epoch 2 instead of theirs.
fn take_newer_file(cluster: &Cluster, newer: &str) {
    std::fs::write(cluster.dir.path().join("cluster.toml"), newer).unwrap();
    let epochs = || cluster.servers.iter().flatten().map(|server| server.status().cluster.unwrap().epoch).collect();
    let before: Vec<u32> = epochs();
    assert_eq!(before, [1, 1], "nobody was asked");
    let fingerprint = format!("{:016x}", isonomia_cluster::Map::parse(newer).unwrap().fingerprint());
    let address = &cluster.configs[0].listen[0];
    let mut control = ControlConnection::connect(address, None, Nanos::from_secs(20)).unwrap();
    for (is_trial, is_known) in [(true, false), (false, false), (false, true)] {
        let question = ControlRequest::Reload { epoch: 2, fingerprint: fingerprint.clone(), is_trial };
        let reply = control.ask(&question).unwrap();
        assert!(matches!(reply, ControlReply::Reloaded { is_known: known, .. } if known == is_known), "{reply:?}");
    }
    let end = Instant::now() + PATIENCE;
    while epochs() != vec![2, 2] {
        assert!(Instant::now() < end, "the other server does not take it");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn cluster_file(cluster: &Cluster) -> String {
    std::fs::read_to_string(cluster.dir.path().join("cluster.toml")).unwrap()
}

#[test]
fn who_hears_of_a_newer_file_takes_it() {
    let cluster = Cluster::start(2);
    take_newer_file(&cluster, &cluster_file(&cluster).replace("epoch = 1", "epoch = 2"));
    cluster.client(1, false).mkdir(Ino::ROOT, b"after", 0o755).unwrap();
}

#[test]
fn memory_is_shared_with_a_server_whose_socket_comes_last() {
    let cluster = Cluster::start(2);
    let reversed = |line: &str| match line.strip_prefix("listen = [").and_then(|list| list.strip_suffix(']')) {
        Some(list) => format!(
            "listen = [{}]",
            list.split(", ").collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join(", ")
        ),
        None => line.to_owned(),
    };
    let newer: Vec<String> = cluster_file(&cluster).replace("epoch = 1", "epoch = 2").lines().map(reversed).collect();
    let newer = newer.join("\n");
    assert!(newer.contains("listen = [\"tcp:"), "{newer}");
    take_newer_file(&cluster, &newer);
    let client = cluster.client(0, false);
    client.make_volume(b"second", 0o755, ServerId(2)).unwrap();
    let file = client.open(Ino::ROOT, b"second/file", &create()).unwrap();
    assert_eq!(client.write_at(&file, 0, &[1; 4096]).unwrap(), 4096);
    // There is no memory to map over TCP.
    client.map_file(&file, 4096, true).unwrap();
}

#[test]
fn a_socket_of_another_cluster_is_not_taken_for_a_servers_own() {
    let cluster = Cluster::start(2);
    // On this host the other cluster has the socket that a server of the first one has on its own host.
    let other = Cluster::start_called("other", &in_memory(), 2, ("", "2"), |_| {});
    let (own, foreign) = (&cluster.configs[1].listen[0], &other.configs[1].listen[0]);
    let newer = cluster_file(&cluster).replace("epoch = 1", "epoch = 2");
    take_newer_file(&cluster, &newer.replace(&own.to_string(), &foreign.to_string()));
    let client = cluster.client(0, false);
    for client in [&client, &other.client(0, false)] {
        client.make_volume(b"second", 0o755, ServerId(2)).unwrap();
    }
    client.open(Ino::ROOT, b"second/file", &create()).unwrap();
    let looker = cluster.client(1, true);
    assert_eq!(looker.get_attr(Ino::ROOT, b"second/file", true).unwrap().size_bytes, 0);
    assert_eq!(errno(other.client(1, false).get_attr(Ino::ROOT, b"second/file", true)), rustix::io::Errno::NOENT);
}

#[test]
fn a_volume_whose_move_is_given_up_keeps_what_its_directory_has() {
    let mut cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    client.make_volume(b"v", 0o755, ServerId(1)).unwrap();
    client.mkdir(Ino::ROOT, b"v/sub", 0o700).unwrap();
    let long_ago = TimeChange::At(Timestamp::from_secs(1_000_000));
    let change = Change { mode: Some(0o2_751), atime: Some(long_ago), mtime: Some(long_ago), ..Change::default() };
    client.set_attr(Ino::ROOT, b"v", true, &change).unwrap();
    client.set_xattr(Ino::ROOT, b"v", true, b"user.kept", b"value", XattrHow::default()).unwrap();
    let all = |client: &Client| {
        let mut value = [0; 9];
        let len = client.get_xattr(Ino::ROOT, b"v", true, b"user.kept", &mut value).unwrap();
        let attr = client.get_attr(Ino::ROOT, b"v", true).unwrap();
        (attr, value[..len].to_vec(), names(client, Ino(attr.ino)))
    };
    let before = all(&client);
    assert_eq!(
        (before.0.mode & 0o7_777, &before.1[..], &before.2[..]),
        (0o2_751, &b"value"[..], &["sub".to_owned()][..])
    );
    let mut control = ControlConnection::connect(&cluster.configs[0].listen[0], None, Nanos::from_secs(20)).unwrap();
    let mut ask = |request: &ControlRequest| control.ask(request).unwrap();
    let moving = |to, id| ControlRequest::MoveVolume { name: "v".to_owned(), to, id };
    let end = Instant::now() + PATIENCE;
    // There is nobody where it is to go.
    cluster.servers[1] = None;
    assert!(matches!(ask(&moving(2, 1)), ControlReply::VolumeMoved { is_done: false }));
    let is_on = |volume: &VolumeEntry, server: &str| volume.name == "v" && volume.server == server;
    while !matches!(ask(&ControlRequest::Volumes), ControlReply::Volumes(list) if list.volumes.iter().any(|volume| is_on(volume, "io2")))
    {
        assert!(Instant::now() < end, "it does not leave");
        std::thread::sleep(Duration::from_millis(5));
    }
    while !matches!(ask(&moving(1, 2)), ControlReply::VolumeMoved { is_done: true }) {
        assert!(Instant::now() < end, "it does not come back");
    }
    assert_eq!(all(&client), before);
    cluster.servers[1] = Some(Server::start(cluster.configs[1].clone()).unwrap());
    assert_eq!(all(&cluster.client(1, false)), before);
    // All of that goes with it when it does go.
    while !matches!(ask(&moving(2, 3)), ControlReply::VolumeMoved { is_done: true }) {
        assert!(Instant::now() < end, "it does not move");
    }
    assert_eq!(cluster.has(Ino(before.0.ino).volume()), 1);
    assert_eq!(all(&client), before);
}

#[test]
fn memory_is_shared_with_a_server_of_this_host_whose_address_on_tcp_was_given() {
    let cluster = Cluster::start(2);
    let on_tcp: Vec<Address> = cluster.configs.iter().map(|config| config.listen[1].clone()).collect();
    let maps = |client: &Client| {
        let file = client.open(Ino::ROOT, b"first/file", &create()).unwrap();
        assert_eq!(client.write_at(&file, 0, &[1; 4096]).unwrap(), 4096);
        client.map_file(&file, 4096, true).is_ok()
    };
    let client = cluster.client_of(on_tcp.clone());
    client.make_volume(b"first", 0o755, ServerId(1)).unwrap();
    assert!(maps(&client));
    // Who gives one address says how.
    assert!(!maps(&cluster.client_of(on_tcp[..1].to_vec())));
}

#[test]
fn a_server_that_has_a_volume_cannot_be_left_out_of_the_file() {
    let mut cluster = Cluster::start(3);
    let client = cluster.client(0, false);
    client.make_volume(b"third", 0o755, ServerId(3)).unwrap();
    client.mkdir(Ino::ROOT, b"third/sub", 0o755).unwrap();
    // The second one knows that volume, and where it was.
    let address = &cluster.configs[1].listen[0];
    let mut control = ControlConnection::connect(address, None, Nanos::from_secs(20)).unwrap();
    let end = Instant::now() + PATIENCE;
    while !matches!(control.ask(&ControlRequest::Volumes).unwrap(), ControlReply::Volumes(list) if !list.volumes.is_empty())
    {
        assert!(Instant::now() < end, "the second server does not hear of the volume");
        std::thread::sleep(Duration::from_millis(5));
    }
    cluster.servers.iter_mut().for_each(|server| *server = None);
    let whole = cluster_file(&cluster);
    let (newer, _) = whole.split_once("[[server]]\nname = \"io3\"").unwrap();
    let path = cluster.dir.path().join("cluster.toml");
    std::fs::write(&path, newer.replace("epoch = 1", "epoch = 2")).unwrap();
    let start = |index: usize| {
        let mut config = Config { key_file: cluster.configs[index].key_file.clone(), ..Config::default() };
        config.join(&path, &format!("io{}", index + 1)).unwrap();
        Server::start(config)
    };
    let refused = start(0).err().unwrap().to_string();
    assert!(refused.contains("server 3") && refused.contains("\"third\""), "{refused}");
    // What others know of the table may be old, so they begin; who comes for the volume is told that its server is no more.
    let second = start(1).unwrap();
    let client = cluster.client(1, false);
    assert_eq!(errno(client.get_attr(Ino::ROOT, b"third/sub", true)), rustix::io::Errno::HOSTDOWN);
    drop(second);
    // With the file as it was, all is as it was: nothing was stored.
    std::fs::write(&path, whole).unwrap();
    drop(start(0).unwrap());
}

/// Volumes `a` and `b` on two servers change names while others look them up at all servers: what one exchange has done is seen
/// of both names or of neither, by whoever looks later. Between servers of one process there is hardly a moment in which it
/// could be otherwise: that nobody answers too early is tested step by step where it is decided, in the crate `cluster`.
#[test]
fn nobody_sees_half_of_an_exchange() {
    const EXCHANGES: u64 = 40;
    let cluster = Cluster::start(3);
    let first = cluster.client(0, false);
    for (name, server) in [("a", 2), ("b", 3)] {
        first.make_volume(name.as_bytes(), 0o755, ServerId(server)).unwrap();
    }
    let volume_of = |client: &Client, name: &str| {
        Ino(client.get_attr(Ino::ROOT, name.as_bytes(), true).unwrap_or_else(|error| panic!("{name}: {error}")).ino)
            .volume()
    };
    let volume_a = volume_of(&first, "a");
    // Exchanges that were begun, and the last one of which somebody has seen what it did.
    let (begun, seen, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    // Looks that began and ended while one exchange was under way, or between two.
    let looks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for index in [0, 1, 2, 0, 1, 2] {
            let (cluster, begun, seen, is_over, looks) = (&cluster, &begun, &seen, &is_over, &looks);
            scope.spawn(move || {
                let client = cluster.client(index, false);
                for name in ["a", "b"].into_iter().cycle() {
                    if is_over.load(SeqCst) {
                        break;
                    }
                    let (before, known) = (begun.load(SeqCst), seen.load(SeqCst));
                    let is_exchanged = (volume_of(&client, name) == volume_a) != (name == "a");
                    if begun.load(SeqCst) != before {
                        continue;
                    }
                    looks.fetch_add(1, SeqCst);
                    if is_exchanged == (before % 2 == 1) {
                        seen.fetch_max(before, SeqCst);
                    } else {
                        assert!(known < before, "{name} is as it was before exchange {before}, which others have seen");
                    }
                }
            });
        }
        // On a busy machine the observers may sleep through the first exchanges.
        let end = Instant::now() + PATIENCE;
        for exchange in 1.. {
            if exchange > EXCHANGES && looks.load(SeqCst) >= EXCHANGES {
                break;
            }
            begun.store(exchange, SeqCst);
            let result = first.rename(Ino::ROOT, b"a", Ino::ROOT, b"b", RenameHow::Exchange);
            let is_late = Instant::now() > end;
            if result.is_err() || is_late {
                is_over.store(true, SeqCst);
                result.unwrap_or_else(|error| panic!("exchange {exchange}: {error}"));
                panic!("nobody looked while names were changing");
            }
            seen.fetch_max(exchange, SeqCst);
        }
        is_over.store(true, SeqCst);
    });
}

/// A volume replaces an empty one on another server: the name is somebody's all the time.
#[test]
fn a_name_that_is_taken_over_is_never_gone() {
    let cluster = Cluster::start(3);
    let first = cluster.client(0, false);
    first.make_volume(b"stays", 0o755, ServerId(3)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for index in [0, 1, 2] {
            let (cluster, is_over) = (&cluster, &is_over);
            scope.spawn(move || {
                let client = cluster.client(index, false);
                while !is_over.load(SeqCst) {
                    client.get_attr(Ino::ROOT, b"stays", true).unwrap();
                }
            });
        }
        let done = (0..20).try_for_each(|round: u16| {
            first.make_volume(b"comes", 0o755, ServerId(2 + round % 2))?;
            first.rename(Ino::ROOT, b"comes", Ino::ROOT, b"stays", RenameHow::Replace)
        });
        is_over.store(true, SeqCst);
        done.unwrap();
    });
}

#[test]
fn a_directory_that_is_empty_or_older_is_refused_however_often_it_is_started() {
    let mut cluster = Cluster::start(2);
    let dir = cluster.dir.path().join("io2");
    let [older, kept] = ["older", "kept"].map(|name| cluster.dir.path().join(name));
    // Once it serves, the root server has heard of it.
    let serves = |cluster: &Cluster| cluster.client(1, false).get_attr(Ino::ROOT, b"", true).map(drop);
    serves(&cluster).unwrap();
    cluster.servers[1] = None;
    assert!(std::process::Command::new("cp").arg("-a").args([&dir, &older]).status().unwrap().success());
    cluster.restart(1);
    serves(&cluster).unwrap();
    cluster.servers[1] = None;
    std::fs::rename(&dir, &kept).unwrap();
    for is_older in [false, true] {
        if is_older {
            std::fs::rename(&older, &dir).unwrap();
        }
        for start in 0..3 {
            let server = Server::start(cluster.configs[1].clone()).unwrap();
            let deadline = Instant::now() + PATIENCE;
            while server.fence().is_valid() {
                assert!(Instant::now() < deadline, "start {start} is not refused, older: {is_older}");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(server.fence().wait_for_end(), Some(Loss::Misplaced));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
    std::fs::rename(&kept, &dir).unwrap();
    cluster.restart(1);
    serves(&cluster).unwrap();
    cluster.servers[1] = None;
    // An operator has it begin with an empty one: that is its own from then on.
    std::fs::rename(&dir, &kept).unwrap();
    std::fs::create_dir_all(dir.join(METADATA)).unwrap();
    std::fs::write(dir.join(METADATA).join(START_OVER), "").unwrap();
    for _ in 0..2 {
        cluster.restart(1);
        serves(&cluster).unwrap();
    }
}
