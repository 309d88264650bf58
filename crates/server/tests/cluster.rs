//! Several servers as one file system.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use isonomia_client::{Address, Client, Error, Ino, OpenHow, RenameHow, access};
use isonomia_proto::control::{ControlReply, ControlRequest};
use isonomia_server::Server;
use isonomia_transport::control::ControlConnection;
use isonomia_units::{Nanos, ServerId, VolumeId};
use running::cluster::Cluster;
use std::time::{Duration, Instant};

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

#[test]
fn who_hears_of_a_newer_file_takes_it() {
    const PATIENCE: Duration = Duration::from_secs(30);
    let cluster = Cluster::start(2);
    let file = cluster.dir.path().join("cluster.toml");
    let newer = std::fs::read_to_string(&file).unwrap().replace("epoch = 1", "epoch = 2");
    std::fs::write(&file, &newer).unwrap();
    let epochs = || cluster.servers.iter().flatten().map(|server| server.status().cluster.unwrap().epoch).collect();
    let before: Vec<u32> = epochs();
    assert_eq!(before, [1, 1], "nobody was asked");
    let fingerprint = format!("{:016x}", isonomia_cluster::Map::parse(&newer).unwrap().fingerprint());
    let address = &cluster.configs[0].listen[0];
    let mut control = ControlConnection::connect(address, None, Nanos::from_secs(20)).unwrap();
    for (is_trial, is_known) in [(true, false), (false, false), (false, true)] {
        let question = ControlRequest::Reload { epoch: 2, fingerprint: fingerprint.clone(), is_trial };
        let reply = control.ask(&question).unwrap();
        assert_eq!(reply, ControlReply::Reloaded { is_known, needs_restart: false });
    }
    let end = Instant::now() + PATIENCE;
    while epochs() != vec![2, 2] {
        assert!(Instant::now() < end, "the other server does not take it");
        std::thread::sleep(Duration::from_millis(5));
    }
    cluster.client(1, false).mkdir(Ino::ROOT, b"after", 0o755).unwrap();
}
