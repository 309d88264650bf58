//! New files go where their placement says: by what jobs use of targets, and what the cluster file or a directory wants.

use crate::running::cluster::{Cluster, in_memory};
use crate::running::striped::{STRIPE, comes, content, create, objects, open, pattern, striped};
use isonomia_client::{Change, Claims, Client, Extent, Ino, OpenFile, OpenHint, OpenHow};
use isonomia_proto::striping::XATTR;
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Servers of two slow targets each, numbered 0, 1, 16, 17, …
fn cluster(servers: usize, lines: &str) -> Cluster {
    let targets = "[{ bandwidth = \"20MiB/s\" }, { bandwidth = \"20MiB/s\" }]";
    Cluster::start_as(&in_memory(), servers, lines, targets, |config| config.trust_clients = true)
}

fn targets(file: &OpenFile) -> Vec<u16> {
    file.layout.targets.iter().map(|target| target.0).collect()
}

/// On which targets files of this name with numbers behind it are made; they stay open.
fn made(client: &Client, name: &str, count: usize) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for number in 0..count {
        for target in targets(&open(client, &format!("{name}-{number}"))) {
            *counts.entry(target).or_default() += 1;
        }
    }
    counts
}

#[test]
fn files_go_where_others_leave_most() {
    let cluster = cluster(2, "placement = \"balanced\"\nexchange = \"50ms\"");
    let client = cluster.client(0, false);
    client.mkdir(Ino::ROOT, b"v", 0o755).unwrap();
    assert_eq!(made(&client, "v/even", 8), [0, 1, 16, 17].map(|target| (target, 2)).into());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = || {
            cluster
                .client_as(cluster.configs[0].listen.clone(), Claims { job: Some("other".into()), ..Claims::default() })
        };
        let (beside, is_over) = (other(), &is_over);
        striped(&beside, "busy", "targets=17");
        scope.spawn(move || {
            let file = beside.open(Ino::ROOT, b"busy/file", &create()).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                beside.write_at(&file, 0, &[7; 256 << 10]).unwrap();
            }
        });
        let round = Cell::new(0);
        // It takes two looks until the others know of it.
        comes(|| {
            round.set(round.get() + 1);
            let later = cluster.client_as(
                cluster.configs[0].listen.clone(),
                Claims { job: Some(format!("later-{}", round.get())), ..Claims::default() },
            );
            let counts = made(&later, &format!("v/round-{}", round.get()), 7);
            // The busy one is worth half of another, and its server three quarters of the other one.
            counts.get(&17).is_none_or(|count| *count <= 1)
                && counts.get(&16).is_none_or(|count| *count <= 2)
                && counts.values().sum::<usize>() == 7
        });
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_server_that_is_silent_gets_no_files() {
    let mut cluster = cluster(2, "placement = \"balanced\"\nexchange = \"50ms\"");
    let client = cluster.client(0, false);
    let own = cluster.volume_on_each()[0].clone();
    cluster.servers[1] = None;
    let round = Cell::new(0);
    comes(|| {
        round.set(round.get() + 1);
        made(&client, &format!("{own}/round-{}", round.get()), 4).keys().all(|target| *target < 16)
    });
}

#[test]
fn a_directory_says_otherwise_than_the_cluster() {
    let cluster = cluster(2, "placement = \"round-robin\"");
    let client = cluster.client(0, false);
    client.mkdir(Ino::ROOT, b"v", 0o755).unwrap();
    assert_eq!(made(&client, "v/in-turn", 8), [0, 1, 16, 17].map(|target| (target, 2)).into());
    for how in ["hash", "random", "balanced"] {
        striped(&client, &format!("v/{how}"), &format!("place={how}"));
        let counts = made(&client, &format!("v/{how}/file"), 40);
        assert!(counts.len() == 4, "{how}: {counts:?}");
    }
    // On the server of the volume, and of spread files there are none.
    striped(&client, "v/volume", "place=volume");
    let file = open(&client, "v/volume/file");
    assert!(file.stripes.is_none());
    let mut text = [0; 100];
    let len = client.get_xattr(Ino::ROOT, b"v/hash", true, XATTR, &mut text).unwrap();
    assert_eq!(&text[..len], b"count=1 size=1MiB place=hash");
    let wrong = client.set_xattr(Ino::ROOT, b"v", true, XATTR, b"place=here", Default::default());
    assert_eq!(wrong.map_err(|error| error.errno()), Err(Errno::INVAL));
}

#[test]
fn a_file_grows_over_more_targets_and_nothing_is_moved() {
    let cluster = Cluster::start(2);
    let (near, far) = (cluster.client(0, false), cluster.client(1, true));
    striped(&near, "v", "count=4 size=64KiB grow=yes");
    let file = open(&near, "v/file");
    let data = pattern(40 * STRIPE + 77, 3);
    let objects_at = |len: usize| {
        near.write_at(&file, 0, &data[..len]).unwrap();
        objects(&cluster).iter().sum::<usize>()
    };
    assert_eq!([objects_at(STRIPE), objects_at(4 * STRIPE), objects_at(5 * STRIPE)], [1, 1, 1]);
    assert_eq!([objects_at(6 * STRIPE), objects_at(data.len())], [2, 4]);
    assert!(content(&far, "v/file") == data);
    // Cut in the middle of a stripe, and grown over the cut.
    let short = 7 * STRIPE + 5;
    let cut = Change { size_bytes: Some(short as u64), ..Change::default() };
    far.set_attr(Ino::ROOT, b"v/file", true, &cut).unwrap();
    assert!(content(&near, "v/file") == data[..short]);
    let other = open(&far, "v/file");
    far.write_at(&other, 30 * STRIPE as u64, &data[..9]).unwrap();
    let whole = content(&near, "v/file");
    assert!(whole[..short] == data[..short] && whole[30 * STRIPE..] == data[..9]);
    assert!(whole[short..30 * STRIPE].iter().all(|byte| *byte == 0), "what was cut off is a hole");
    assert_eq!(far.seek_extent(&other, short as u64 + STRIPE as u64, Extent::Data).unwrap(), 30 * STRIPE as u64);
    let mut text = [0; 200];
    let len = near.get_xattr(Ino::ROOT, b"v/file", true, XATTR, &mut text).unwrap();
    assert!(std::str::from_utf8(&text[..len]).unwrap().ends_with(" grow=yes"));
}

#[test]
fn a_shared_file_has_a_stripe_for_each_of_its_writers() {
    let cluster = cluster(2, "placement = \"balanced\"");
    let client = cluster.client(0, false);
    client.mkdir(Ino::ROOT, b"v", 0o755).unwrap();
    let with = |name: &str, hint: OpenHint| {
        client.open(Ino::ROOT, format!("v/{name}").as_bytes(), &OpenHow { hint, ..create() }).unwrap().layout
    };
    let shared = OpenHint { rank: 0, ranks: 3, shared: true, expected_bytes: 3 << 20 };
    let layout = with("three", shared);
    assert_eq!((layout.targets.len(), layout.stripe_bytes), (3, 1 << 20), "Fig. 1, layout 1");
    let layout = with("many", OpenHint { ranks: 100, expected_bytes: 4 << 20, ..shared });
    assert_eq!((layout.targets.len(), layout.stripe_bytes), (4, 1 << 20), "no more than there are targets");
    let layout = with("unknown", OpenHint { ranks: 4, expected_bytes: 0, ..shared });
    assert_eq!((layout.targets.len(), layout.grows), (4, true));
    assert_eq!(with("own", OpenHint { shared: false, ..shared }).targets.len(), 1, "a file for each");
}
