//! Targets on a disk, in each of the ways in which their files may go through the page cache.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use isonomia_client::Ino;
use isonomia_server::{PageCache, TargetConfig};
use running::{create, pattern, start};
use std::time::{Duration, Instant};

const MODES: [PageCache; 3] = [PageCache::Auto, PageCache::Always, PageCache::Never];

#[test]
fn bytes_come_back_however_they_go_through_the_page_cache() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut running = start(|config| {
        let target = |(number, cache)| TargetConfig {
            dir: Some(disk.path().join(format!("target{number}"))),
            cache,
            ..TargetConfig::default()
        };
        config.targets = (0..).zip(MODES).map(target).collect();
    });
    // On each target one file that is whole blocks, and one that is not; by each transport.
    let files = || {
        (0..12usize).map(|number| {
            let (len, offset) = if number < 6 { (9 << 20, 0) } else { (3_333_333, 777) };
            (number, format!("f{number}"), pattern(len, number as u8), offset)
        })
    };
    let check = |running: &running::Running| {
        let client = &running.clients()[0];
        for (number, name, data, offset) in files() {
            let how = isonomia_client::OpenHow { create: false, exclusive: false, ..create() };
            let file = client.open(Ino::ROOT, name.as_bytes(), &how).unwrap();
            assert_eq!(usize::from(file.layout.targets[0].0), number % MODES.len());
            let mut back = vec![0xee; data.len() + 100];
            assert_eq!(client.read_at(&file, offset, &mut back).unwrap(), data.len());
            assert!(back[..data.len()] == data[..], "{name}");
        }
    };
    let clients = running.clients();
    for (number, name, data, offset) in files() {
        let client = &clients[number % clients.len()];
        let file = client.open(Ino::ROOT, name.as_bytes(), &create()).unwrap();
        assert_eq!(client.write_at(&file, offset, &data).unwrap(), data.len());
        if number % 4 == 0 {
            client.sync(&file, false).unwrap();
        }
    }
    drop(clients);
    check(&running);
    // What nobody syncs gets to the device all the same, where the server sees to that.
    let give_up_at = Instant::now() + Duration::from_secs(60);
    let dirty = || running.server().status().targets[1..].iter().map(|target| target.dirty_bytes).collect::<Vec<_>>();
    let is_memory = dirty().iter().all(Option::is_none);
    while !is_memory && dirty() != [Some(0), None, Some(0)] {
        assert!(Instant::now() < give_up_at, "{:?}", dirty());
        std::thread::yield_now();
    }
    running.restart();
    check(&running);
    assert_eq!(running.server().status().checksums.damaged_total, 0);
}
