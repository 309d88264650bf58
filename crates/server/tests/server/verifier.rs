//! Who wrote before the host of a server failed, and syncs afterwards, hears of it: once, for each open file.

use crate::running::cluster::Cluster;
use crate::running::striped::{STRIPE, striped};
use crate::running::{Running, create, pattern, start};
use isonomia_client::{Client, Error, Ino, OpenFile, OpenHow, RenameHow, SpaceChange, access};
use isonomia_server::{Config, store_config};
use isonomia_store::Store;
use rustix::io::Errno;

/// How a server that was running comes to a stop.
#[derive(Clone, Copy, PartialEq)]
enum Stop {
    /// All is on stable storage.
    InOrder,
    /// It is killed.
    Kill,
    /// Its host starts anew.
    Host,
}

/// Makes an orderly stop another one: the last who has the store open leaves it so.
fn leave(config: &Config, stop: Stop) {
    let mut store = store_config(config, config.dir.as_ref().unwrap());
    store.host_start = (stop == Stop::Host).then(|| "another start of the host".to_owned());
    if stop != Stop::InOrder {
        drop(Store::open(&store).unwrap());
    }
}

fn again_after(running: &mut Running, stop: Stop) {
    running.stop();
    leave(&running.config, stop);
    running.restart();
}

fn cluster_again_after(cluster: &mut Cluster, index: usize, stop: Stop) {
    cluster.servers[index] = None;
    leave(&cluster.configs[index], stop);
    cluster.restart(index);
}

/// Whether a sync says that what was written may be lost.
fn is_told(client: &Client, file: &OpenFile, data_only: bool) -> bool {
    match client.sync(file, data_only) {
        Ok(()) => false,
        Err(Error::Server(Errno::IO)) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn each_open_file_that_was_written_hears_once_that_the_host_failed() {
    let mut running = start(|_| ());
    // With the port that was chosen.
    running.config.listen = running.addresses.clone();
    for (number, client) in running.clients().iter().enumerate() {
        let open = |name: &str| {
            let how = OpenHow { exclusive: false, ..create() };
            client.open(Ino::ROOT, format!("{name}{number}").as_bytes(), &how).unwrap()
        };
        let [written, appended, cut, reserved, synced, idle] =
            ["written", "appended", "cut", "reserved", "synced", "idle"].map(open);
        let all = [&written, &appended, &cut, &reserved, &synced, &idle];
        all.iter().for_each(|file| client.sync(file, false).unwrap());
        // It has written nothing itself.
        let second = open("written");
        for stop in [Stop::InOrder, Stop::Kill, Stop::Host] {
            client.write_at(&written, 0, &pattern(600_000, 1)).unwrap();
            client.append(&appended, b"more").unwrap();
            client.truncate(&cut, 9).unwrap();
            client.change_space(&reserved, SpaceChange::Allocate { keep_size: true }, 0, 4096).unwrap();
            client.write_at(&synced, 0, b"on stable storage").unwrap();
            client.sync(&synced, true).unwrap();
            again_after(&mut running, stop);
            let is_lost = stop == Stop::Host;
            for file in [&written, &appended, &cut, &reserved] {
                assert_eq!(is_told(client, file, true), is_lost);
                assert!(!is_told(client, file, true), "once");
                client.write_at(file, 0, b"again").unwrap();
                assert!(!is_told(client, file, true));
            }
            for file in [&synced, &idle, &second] {
                assert!(!is_told(client, file, true));
            }
            // The file was cut, and that has no bytes: a change as of its mode.
            assert_eq!(is_told(client, &idle, false), is_lost);
            assert!(!is_told(client, &written, false), "once for each process");
        }
    }
}

#[test]
fn who_changed_names_hears_of_it_when_a_directory_is_synced() {
    let mut running = start(|_| ());
    let (client, other) =
        (running.client(&running.addresses[0], "", 20), running.client(&running.addresses[0], "", 20));
    let how = OpenHow { access: access::READ, directory: true, ..OpenHow::default() };
    let directory = |client: &Client| client.open(Ino::ROOT, b"", &how).unwrap();
    let file = client.open(Ino::ROOT, b"new", &create()).unwrap();
    client.write_at(&file, 0, b"content").unwrap();
    assert!(!is_told(&client, &file, false));
    client.rename(Ino::ROOT, b"new", Ino::ROOT, b"old", RenameHow::Replace).unwrap();
    again_after(&mut running, Stop::Host);
    assert!(!is_told(&client, &file, true), "its bytes are there");
    assert!(!is_told(&other, &directory(&other), false), "it has changed nothing");
    assert!(is_told(&client, &directory(&client), false));
    assert!(!is_told(&client, &directory(&client), false));
    client.rename(Ino::ROOT, b"old", Ino::ROOT, b"new", RenameHow::Replace).unwrap();
    assert!(!is_told(&client, &directory(&client), false));
}

#[test]
fn a_sync_that_fails_otherwise_leaves_the_news_for_the_next() {
    let mut running = start(|_| ());
    let client = running.client(&running.addresses[0], "", 1);
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    client.write_at(&file, 0, b"lost").unwrap();
    running.stop();
    assert_eq!(client.sync(&file, false).unwrap_err().errno(), Errno::TIMEDOUT);
    leave(&running.config, Stop::Host);
    running.restart();
    // What is written meanwhile is no excuse.
    client.write_at(&file, 4, b"kept").unwrap();
    assert!(is_told(&client, &file, false));
    assert!(!is_told(&client, &file, false));
}

#[test]
fn of_a_file_over_two_servers_the_host_of_either_counts() {
    let mut cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    striped(&client, "v", "count=2 size=64KiB");
    let both = client.open(Ino::ROOT, b"v/both", &create()).unwrap();
    let volume = cluster.has(Ino(both.attr.ino).volume());
    client.sync(&both, false).unwrap();
    for stop in [Stop::Kill, Stop::Host] {
        for index in [0, 1] {
            client.write_at(&both, 0, &pattern(2 * STRIPE, 1)).unwrap();
            cluster_again_after(&mut cluster, index, stop);
            assert_eq!(is_told(&client, &both, true), stop == Stop::Host, "server {index}");
            assert!(!is_told(&client, &both, true), "once");
            client.write_at(&both, 0, &pattern(2 * STRIPE, 2)).unwrap();
            assert!(!is_told(&client, &both, false));
        }
    }
    // To bytes on the volume's server the other one is nothing.
    let servers = both.layout.targets.iter().map(|target| usize::from(target.0 / 16));
    let stripe = servers.into_iter().position(|index| index == volume).unwrap();
    client.write_at(&both, (stripe * STRIPE) as u64, &pattern(100, 3)).unwrap();
    cluster_again_after(&mut cluster, 1 - volume, Stop::Host);
    assert!(!is_told(&client, &both, true));
}
