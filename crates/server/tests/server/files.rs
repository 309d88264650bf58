//! A client and a server in one process, over both transports.

use crate::running::{create, pattern, start};
use isonomia_client::{Change, Extent, Ino, OpenHow, RenameHow, SpaceChange, XattrHow, access};
use isonomia_proto::request::{Op, RequestHeader, reading};
use isonomia_server::TargetConfig;
use isonomia_transport::channel::{Channel, Manner};
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::{Bytes, Nanos};
use rustix::io::Errno;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

const PATIENCE: Nanos = Nanos::from_secs(20);

#[test]
fn bytes_come_back_whatever_the_size_the_offset_and_the_transport() {
    let running = start(|config| {
        config.targets = vec![TargetConfig::default(), TargetConfig::default(), TargetConfig::default()];
        config.stripe_count = 3;
        config.stripe_size = Bytes::kib(64);
    });
    for (number, client) in running.clients().iter().enumerate() {
        for (round, len) in [0, 1, 4096, 65_537, 128 << 10, (1 << 20) + 3, 5 << 20].into_iter().enumerate() {
            let name = format!("f{number}-{round}");
            let file = client.open(Ino::ROOT, name.as_bytes(), &create()).unwrap();
            assert_eq!(file.layout.targets.len(), 3);
            let data = pattern(len, round as u8);
            let offset = 1000 * round as u64;
            assert_eq!(client.write_at(&file, offset, &data).unwrap(), len);
            let mut back = vec![0xee; len + 100];
            assert_eq!(client.read_at(&file, offset, &mut back).unwrap(), len);
            assert!(back[..len] == data[..], "{len} bytes over {}", client.config().addresses[0]);
            let attr = client.get_attr(Ino::ROOT, name.as_bytes(), true).unwrap();
            assert_eq!(attr.size_bytes, if len == 0 { 0 } else { offset + len as u64 });
            client.sync(&file, false).unwrap();
            client.release(Ino(file.capability.ino), 0).unwrap();
        }
    }
}

#[test]
fn names_are_served_over_both_transports() {
    let running = start(|_| {});
    for (number, client) in running.clients().iter().enumerate() {
        let dir = client.mkdir(Ino::ROOT, format!("d{number}").as_bytes(), 0o755).unwrap();
        let at = Ino(dir.attr.ino);
        client.open(at, b"a", &create()).unwrap();
        assert_eq!(client.open(at, b"a", &create()).unwrap_err().errno(), Errno::EXIST);
        client.rename(at, b"a", at, b"b", RenameHow::Replace).unwrap();
        client.link(at, b"b", true, at, b"c").unwrap();
        client.symlink(b"c", at, b"l").unwrap();
        assert_eq!(client.readlink(at, b"l").unwrap(), b"c");
        client.symlink(b"/etc/hostname", at, b"out").unwrap();
        let error = client.get_attr(at, b"out", true).unwrap_err();
        assert_eq!(error, isonomia_client::Error::Outside(b"/etc/hostname".as_slice().into()));
        let mut names: Vec<_> = client.read_dir(at, 0).unwrap().into_iter().map(|e| e.name).collect();
        names.sort();
        assert_eq!(names, [&b"."[..], b"..", b"b", b"c", b"l", b"out"]);
        assert_eq!(client.path_of(at).unwrap(), format!("/d{number}").as_bytes());
        let change = Change { mode: Some(0o600), ..Change::default() };
        assert_eq!(client.set_attr(at, b"b", true, &change).unwrap().mode & 0o777, 0o600);
        assert_eq!(client.get_attr(at, b"l", true).unwrap().nlink, 2);
        assert_eq!(client.rmdir(Ino::ROOT, format!("d{number}").as_bytes()).unwrap_err().errno(), Errno::NOTEMPTY);
        let long = vec![b'x'; 256];
        assert_eq!(client.mkdir(at, &long, 0o755).unwrap_err().errno(), Errno::NAMETOOLONG);
        let path = b"x/".repeat(2048);
        assert_eq!(client.get_attr(at, &path, true).unwrap_err().errno(), Errno::NAMETOOLONG);
        assert!(client.stat_fs().unwrap().total_bytes > 0);
    }
}

/// `ISONOMIA_ENTRIES=2000000` has a directory of so many.
#[test]
fn a_listing_of_many_pages_has_every_name_once() {
    let count: usize = std::env::var("ISONOMIA_ENTRIES").map_or(10_000, |text| text.parse().unwrap());
    let running = start(|_| {});
    let dir = Ino(running.clients()[0].mkdir(Ino::ROOT, b"crowd", 0o755).unwrap().attr.ino);
    let name_of = |number: usize| format!("{number:07}").into_bytes();
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for first in 0..4 {
            let client = running.clients().swap_remove(0);
            scope.spawn(move || {
                for number in (first..count).step_by(4) {
                    client.symlink(b"x", dir, &name_of(number)).unwrap();
                }
            });
        }
    });
    println!("{count} names made in {:?}", begun.elapsed());
    for client in running.clients() {
        let begun = std::time::Instant::now();
        let (mut found, mut cookie, mut pages) = (vec![false; count], 0, 0);
        loop {
            let page = client.read_dir(dir, cookie).unwrap();
            let Some(last) = page.last() else { break };
            (cookie, pages) = (last.cookie, pages + 1);
            for entry in page.iter().filter(|entry| !entry.name.starts_with(b".")) {
                let number: usize = std::str::from_utf8(&entry.name).unwrap().parse().unwrap();
                assert!(!std::mem::replace(&mut found[number], true), "{number} came twice");
            }
        }
        println!("listed in {pages} pages in {:?}", begun.elapsed());
        assert!(pages > 1 && found.iter().all(|is_found| *is_found));
    }
}

#[test]
fn appends_of_many_threads_do_not_overlap() {
    let running = start(|_| {});
    for (number, client) in running.clients().iter().enumerate() {
        let name = format!("log{number}");
        let file = client.open(Ino::ROOT, name.as_bytes(), &create()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let file = &file;
                scope.spawn(move || {
                    for _ in 0..50 {
                        assert_eq!(client.append(file, &[thread; 100]).unwrap().1, 100);
                    }
                });
            }
        });
        let mut all = vec![0; 30_000];
        assert_eq!(client.read_at(&file, 0, &mut all).unwrap(), 20_000);
        assert!(all[..20_000].chunks(100).all(|c| c.iter().all(|b| *b == c[0])));
    }
}

#[test]
fn a_wrong_key_and_a_missing_one_are_refused() {
    let running = start(|_| {});
    let other = running.dir.path().join("other");
    std::fs::write(&other, [8; 32]).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
    let client = running.client(&running.addresses[1], &other.display().to_string(), 20);
    let error = client.stat_fs().unwrap_err();
    assert_eq!(error.errno(), Errno::ACCESS);
    assert!(error.to_string().contains("the key is not the server's"), "{error}");
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(client.stat_fs().unwrap_err().to_string().contains("chmod 600"));
}

#[test]
fn status_says_who_received_what() {
    let running = start(|_| {});
    let client = &running.clients()[0];
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    client.write_at(&file, 0, &pattern(1 << 20, 0)).unwrap();
    let status = running.server().status();
    let job = status.jobs.iter().find(|j| j.job == "test").unwrap();
    assert_eq!(job.written_bytes_total, 1 << 20);
    assert_eq!(job.clients, 1);
    assert_eq!(status.targets.len(), 2);
    assert_eq!(status.targets[1].requests_total, 4);
}

/// What waits for the emulated device is shown in virtual time (`server::target`).
#[test]
fn a_capped_target_charges_what_its_device_would_take() {
    let running = start(|config| {
        config.targets = vec![TargetConfig { bandwidth: "100MiB/s".parse().ok(), ..TargetConfig::default() }];
    });
    let client = &running.clients()[0];
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    client.write_at(&file, 0, &pattern(10 << 20, 0)).unwrap();
    let target = &running.server().status().targets[1];
    assert_eq!((target.bandwidth_bytes_per_s, target.service_ns_total), (Some(100 << 20), 100_000_000));
}

/// Programs read with large buffers, and once more to see the end.
#[test]
fn a_read_is_charged_for_what_the_file_has() {
    let running = start(|config| {
        config.targets = vec![TargetConfig { bandwidth: "100MiB/s".parse().ok(), ..TargetConfig::default() }];
    });
    for (number, client) in running.clients().iter().enumerate() {
        let file = client.open(Ino::ROOT, format!("f{number}").as_bytes(), &create()).unwrap();
        client.write_at(&file, 0, &pattern(1 << 20, 0)).unwrap();
        let service_ns = || running.server().status().targets[1].service_ns_total;
        let written_ns = service_ns();
        let mut buffer = vec![0; 4 << 20];
        assert_eq!(client.read_at(&file, 0, &mut buffer).unwrap(), 1 << 20);
        assert_eq!(client.read_at(&file, 1 << 20, &mut buffer[..128 << 10]).unwrap(), 0);
        // Each request costs something, also one that finds nothing.
        let charged_ns = service_ns() - written_ns;
        assert!((10_000_000..10_100_000).contains(&charged_ns), "{charged_ns}");
    }
}

#[test]
fn extended_attributes_are_served_over_both_transports_and_after_a_restart() {
    let mut running = start(|_| {});
    for (number, client) in running.clients().iter().enumerate() {
        let name = format!("f{number}");
        let (at, path) = (Ino::ROOT, name.as_bytes());
        client.open(at, path, &create()).unwrap();
        let set = |name: &[u8], value: &[u8], how| client.set_xattr(at, path, true, name, value, how);
        let (create, replace) = (XattrHow { create: true, replace: false }, XattrHow { create: false, replace: true });
        let value = pattern(65_536, 3);
        assert_eq!(set(b"user.large", &value, replace).unwrap_err().errno(), Errno::NODATA);
        set(b"user.large", &value, create).unwrap();
        assert_eq!(set(b"user.large", b"", create).unwrap_err().errno(), Errno::EXIST);
        set(b"user.empty", b"", XattrHow::default()).unwrap();
        let get = |name: &[u8], room: &mut [u8]| client.get_xattr(at, path, true, name, room);
        assert_eq!(get(b"user.large", &mut []), Ok(65_536), "how long it is");
        assert_eq!(get(b"user.large", &mut [0; 65_535]).unwrap_err().errno(), Errno::RANGE);
        let mut room = vec![0xee; 70_000];
        assert_eq!(get(b"user.large", &mut room), Ok(65_536));
        assert!(room[..65_536] == value[..] && room[65_536..].iter().all(|b| *b == 0xee));
        assert_eq!(get(b"user.empty", &mut room), Ok(0));
        let list = |room: &mut [u8]| client.list_xattrs(at, path, true, room);
        assert_eq!((list(&mut []), list(&mut room)), (Ok(22), Ok(22)));
        assert_eq!(&room[..22], b"user.empty\0user.large\0");
        assert_eq!(list(&mut [0; 21]).unwrap_err().errno(), Errno::RANGE);
        client.remove_xattr(at, path, true, b"user.empty").unwrap();
        assert_eq!(client.remove_xattr(at, path, true, b"user.empty").unwrap_err().errno(), Errno::NODATA);
        let long = [b"user.".as_slice(), &[b'n'; 251]].concat();
        assert_eq!(set(&long, b"", XattrHow::default()).unwrap_err().errno(), Errno::RANGE);
        assert_eq!(set(b"user.x", &[0; 65_537], XattrHow::default()).unwrap_err().errno(), Errno::TOOBIG);
        assert_eq!(get(b"security.capability", &mut []).unwrap_err().errno(), Errno::OPNOTSUPP);
        client.symlink(b"/else/where", at, format!("l{number}").as_bytes()).unwrap();
        let outside = client.get_xattr(at, format!("l{number}").as_bytes(), true, b"user.a", &mut []).unwrap_err();
        assert_eq!(outside, isonomia_client::Error::Outside(b"/else/where".as_slice().into()));
    }
    running.restart();
    // The port of the other transport is another one now.
    let client = &running.clients()[0];
    for path in [b"f0", b"f1"] {
        assert_eq!(client.get_xattr(Ino::ROOT, path, true, b"user.large", &mut []), Ok(65_536));
    }
}

#[test]
fn many_references_are_given_back_at_once() {
    let running = start(|_| {});
    for client in &running.clients() {
        let open = |name: &[u8]| Ino(client.open(Ino::ROOT, name, &create()).unwrap().capability.ino);
        let inos: Vec<Ino> = (0..100).map(|i| open(format!("f{i}").as_bytes())).collect();
        (0..100).for_each(|i| client.unlink(Ino::ROOT, format!("f{i}").as_bytes()).unwrap());
        let is_there = |ino: &&Ino| client.get_attr(**ino, b"", true).is_ok();
        client.release_many(&inos[..60]).unwrap();
        assert_eq!((inos[..60].iter().filter(is_there).count(), inos[60..].iter().filter(is_there).count()), (0, 40));
        // One that is not there keeps none of the others.
        client.release_many(&inos[50..]).unwrap();
        assert_eq!(inos.iter().filter(is_there).count(), 0);
    }
}

#[test]
fn holes_are_told_made_and_filled() {
    let running = start(|_| {});
    for (number, client) in running.clients().iter().enumerate() {
        let name = format!("sparse{number}");
        let file = client.open(Ino::ROOT, name.as_bytes(), &create()).unwrap();
        let seek = |offset, what| client.seek_extent(&file, offset, what).map_err(|e| e.errno());
        client.set_size(&file.capability, 1 << 30).unwrap();
        assert_eq!(client.get_attr(Ino(file.capability.ino), b"", true).unwrap().blocks, 0);
        assert_eq!(seek(0, Extent::Data), Err(Errno::NXIO));
        assert_eq!(client.write_at(&file, 1 << 20, &[7; 8192]).unwrap(), 8192);
        assert_eq!((seek(0, Extent::Data), seek(1 << 20, Extent::Hole)), (Ok(1 << 20), Ok((1 << 20) + 8192)));
        client.change_space(&file, SpaceChange::PunchHole, 1 << 20, 4096).unwrap();
        assert_eq!(seek(0, Extent::Data), Ok((1 << 20) + 4096));
        client.change_space(&file, SpaceChange::Allocate { keep_size: false }, 1 << 30, 4096).unwrap();
        assert_eq!(client.get_attr(Ino(file.capability.ino), b"", true).unwrap().size_bytes, (1 << 30) + 4096);
        let reader =
            client.open(Ino::ROOT, name.as_bytes(), &OpenHow { access: access::READ, ..OpenHow::default() }).unwrap();
        let refused = client.change_space(&reader, SpaceChange::PunchHole, 0, 1).unwrap_err();
        assert_eq!(refused.errno(), Errno::BADF);
        assert_eq!(client.change_space(&file, SpaceChange::PunchHole, 0, 0).unwrap_err().errno(), Errno::INVAL);
    }
}

#[test]
fn a_file_without_a_name_is_given_one() {
    let running = start(|_| {});
    let client = &running.clients()[0];
    let how = OpenHow { access: access::READ | access::WRITE, unnamed: true, mode: 0o600, ..OpenHow::default() };
    let file = client.open(Ino::ROOT, b"", &how).unwrap();
    assert_eq!(client.write_at(&file, 0, b"bytes").unwrap(), 5);
    assert_eq!(client.link(Ino(file.capability.ino), b"", true, Ino::ROOT, b"named").unwrap().attr.nlink, 1);
    assert_eq!(client.get_attr(Ino::ROOT, b"named", true).unwrap().size_bytes, 5);
    let never = client.open(Ino::ROOT, b"", &OpenHow { exclusive: true, ..how }).unwrap();
    assert_eq!(
        client.link(Ino(never.capability.ino), b"", true, Ino::ROOT, b"never").unwrap_err().errno(),
        Errno::NOENT
    );
}

/// The only object below a directory.
fn object(dir: &Path) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.find_map(|path| match path.is_dir() {
        true => object(&path),
        false => path.extension().is_some_and(|extension| extension == "0").then_some(path),
    })
}

#[test]
fn what_a_client_compares_with_checksums_is_as_safe_as_what_the_server_does() {
    const LEN: usize = 256 << 10;
    let running = start(|_| {});
    let client = &running.clients()[0];
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    let data = pattern(4 * LEN, 3);
    client.write_at(&file, 0, &data).unwrap();
    let identity = Identity { client: 1, ..Identity::default() };
    let mut channel = Channel::open(&running.addresses[0], &identity, Deadline::after(PATIENCE)).unwrap();
    let mut read = |offset: usize, valid: u32, spoil: Option<usize>| {
        let mut request = RequestHeader::with_capability(Op::Read, &file.capability);
        (request.offset, request.len, request.valid) = (offset as u64, LEN as u32, valid);
        let slot = channel.send(&request).unwrap();
        let header = channel.wait(slot, PATIENCE, Manner::default()).unwrap();
        if let Some(at) = spoil {
            let memory = channel.payload(slot, LEN).unwrap().after(at);
            let byte = memory.first(1).to_vec();
            memory.copy_from(&[byte[0] ^ 1]);
        }
        let mut bytes = vec![0; header.payload_len as usize];
        let agrees = channel.take_payload(slot, header.value, &mut bytes).unwrap();
        (header.errno, header.value, agrees, bytes == data[offset..][..bytes.len()])
    };
    assert_eq!(read(0, 0, None), (0, 0, true, true));
    assert_eq!(read(LEN, reading::COMPARES, None), (0, 64, true, true));
    assert_eq!(read(LEN + 1, reading::COMPARES, None), (0, 0, true, true), "no block begins there");
    for spoilt in [0, 5000, LEN - 1] {
        assert_eq!(read(LEN, reading::COMPARES, Some(spoilt)), (0, 64, false, false), "{spoilt}");
    }
    let object = object(&running.dir.path().join("data/target-0/objects")).unwrap();
    let object = std::fs::OpenOptions::new().write(true).open(object).unwrap();
    object.write_all_at(&[data[LEN + 9000] ^ 8], (LEN + 9000) as u64).unwrap();
    assert_eq!(read(LEN, reading::COMPARES, None), (0, 64, false, false));
    assert_eq!(read(LEN, 0, None).0, Errno::IO.raw_os_error().unsigned_abs());
    let damaged = || running.server().status().checksums.damaged_total;
    let before = damaged();
    let mut back = vec![0; data.len()];
    assert_eq!(client.read_at(&file, 0, &mut back).unwrap(), LEN, "up to the damage");
    assert!(client.read_at(&file, LEN as u64, &mut back[LEN..]).is_err());
    assert!(damaged() > before, "who finds that something is wrong has the server look");
    assert_eq!(client.read_at(&file, 2 * LEN as u64, &mut back[2 * LEN..]).unwrap(), 2 * LEN);
    assert!(back[..LEN] == data[..LEN] && back[2 * LEN..] == data[2 * LEN..]);
    object.write_all_at(&data[LEN + 9000..][..1], (LEN + 9000) as u64).unwrap();
    assert_eq!(client.read_at(&file, 0, &mut back).unwrap(), data.len());
    assert!(back == data);
}
