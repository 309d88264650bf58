//! Files whose bytes are on several servers.

use crate::running::between::{Between, honest};
use crate::running::cluster::Cluster;
use crate::running::striped::{
    STRIPE, asked, capabilities, comes, content, create, object_files, objects, open, pattern, size, striped,
};
use crate::running::{ALICE, MALLORY, as_user, can_be_others};
use isonomia_client::{Change, Client, Error, Extent, Ino, OpenHow, RenameHow, SpaceChange, XattrHow, access};
use isonomia_proto::control::ControlRequest;
use isonomia_proto::object::{FileObjects, ObjectCapability};
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader};
use isonomia_proto::striping::XATTR;
use isonomia_server::Server;
use isonomia_transport::control::ControlConnection;
use isonomia_units::Nanos;
use std::os::unix::fs::{FileExt, MetadataExt};

#[test]
fn what_a_failed_write_counts_was_written() {
    const PART: usize = 4 << 20;
    let cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    client.mkdir(Ino::ROOT, b"v", 0o755).unwrap();
    striped(&client, "v/wide", "count=2 size=4MiB");
    let file = open(&client, "v/wide/file");
    let before = pattern(2 * PART, 1);
    assert_eq!(client.write_at(&file, 0, &before).unwrap(), before.len());
    // A part of a damaged block cannot be written, which fails before the other server has got all that is for it.
    let second = object_files(&cluster).into_iter().find(|path| std::fs::read(path).unwrap()[..] == before[PART..]);
    let object = std::fs::OpenOptions::new().write(true).open(second.unwrap()).unwrap();
    object.write_at(&[!before[PART + 200]], 200).unwrap();
    let after = pattern(PART + 100, 77);
    let written = client.write_at(&file, 0, &after).unwrap_or(0);
    assert!(written <= PART, "{written} bytes");
    let mut found = vec![0; PART];
    assert_eq!(client.read_at(&file, 0, &mut found).unwrap(), PART);
    assert!(found[..written] == after[..written], "{written} bytes were counted");
    // Nor does a read give what did not come.
    let mut found = vec![0xee; PART + 100];
    let len = client.read_at(&file, 0, &mut found).unwrap_or(0);
    assert!(len <= PART, "{len} bytes");
    client.release(Ino(file.attr.ino), 0).unwrap();
}

#[test]
fn a_file_over_two_servers_is_the_same_from_everywhere() {
    let cluster = Cluster::start(2);
    let (near, far) = (cluster.client(0, false), cluster.client(1, true));
    striped(&near, "v", "count=2 size=64KiB");
    let file = open(&near, "v/file");
    let servers: Vec<u16> = file.layout.targets.iter().map(|target| target.0 / 16).collect();
    assert_eq!((file.layout.stripe_bytes, file.layout.targets.len()), (STRIPE as u64, 2));
    assert_ne!(servers[0], servers[1]);
    let data = pattern(10 * STRIPE + 77, 3);
    assert_eq!(near.write_at(&file, 5, &data).unwrap(), data.len());
    assert_eq!(size(&far, "v/file"), 5 + data.len() as u64);
    assert_eq!(content(&far, "v/file"), [&[0; 5], &data[..]].concat());
    assert_eq!(objects(&cluster), [1, 1]);
    near.sync(&file, false).unwrap();
    // Another host writes within the file, and beyond its end.
    let other = open(&far, "v/file");
    let more = pattern(3 * STRIPE, 9);
    assert_eq!(far.write_at(&other, 12 * STRIPE as u64 + 1, &more).unwrap(), more.len());
    assert_eq!(size(&near, "v/file"), 15 * STRIPE as u64 + 1);
    let mut back = vec![0; more.len()];
    assert_eq!(near.read_at(&file, 12 * STRIPE as u64 + 1, &mut back).unwrap(), more.len());
    assert_eq!(back, more);
    // A write that leaves the size as it is changes the time, as the other host sees.
    let before = far.get_attr(Ino::ROOT, b"v/file", true).unwrap().mtime;
    comes(|| {
        near.write_at(&file, 5, &data[..1]).unwrap();
        far.get_attr(Ino::ROOT, b"v/file", true).unwrap().mtime > before
    });
    // Between the two ends nothing was written.
    let mut hole = vec![7; STRIPE];
    assert_eq!(near.read_at(&file, 10 * STRIPE as u64 + 82, &mut hole).unwrap(), STRIPE);
    assert_eq!(hole, vec![0; STRIPE]);
    for (client, file) in [(&near, &file), (&far, &other)] {
        client.release(Ino(file.attr.ino), 0).unwrap();
    }
    far.unlink(Ino::ROOT, b"v/file").unwrap();
    comes(|| objects(&cluster) == [0, 0]);
}

#[test]
fn what_is_cut_off_does_not_come_back() {
    let cluster = Cluster::start(3);
    let (one, other) = (cluster.client(0, false), cluster.client(2, false));
    striped(&one, "v", "count=3 size=64KiB");
    let (file, theirs) = (open(&one, "v/file"), open(&other, "v/file"));
    let data = pattern(9 * STRIPE, 1);
    one.write_at(&file, 0, &data).unwrap();
    assert_eq!(other.read_at(&theirs, 0, &mut vec![0; data.len()]).unwrap(), data.len());
    let cut = 4 * STRIPE + 10;
    assert_eq!(one.set_size(&file.capability, cut as u64).unwrap().size_bytes, cut as u64);
    assert_eq!(other.read_at(&theirs, 0, &mut vec![0; data.len()]).unwrap(), cut);
    // It grows again, by one who did not see it being cut.
    other.write_at(&theirs, 8 * STRIPE as u64, b"end").unwrap();
    let mut expected = data[..cut].to_vec();
    expected.resize(8 * STRIPE, 0);
    expected.extend_from_slice(b"end");
    assert_eq!(content(&one, "v/file"), expected);
    // To nothing, by an open.
    let how = OpenHow { truncate: true, ..create() };
    let again = one.open(Ino::ROOT, b"v/file", &how).unwrap();
    assert_eq!((again.attr.size_bytes, size(&other, "v/file")), (0, 0));
    one.set_size(&again.capability, 100).unwrap();
    assert_eq!(content(&other, "v/file"), [0; 100]);
}

#[test]
fn appends_of_two_hosts_do_not_meet() {
    let cluster = Cluster::start(2);
    let first = cluster.client(0, false);
    striped(&first, "v", "count=2 size=4KiB");
    let (hosts, times, len) = (4, 50, 1000);
    std::thread::scope(|scope| {
        for host in 0..hosts {
            let client = cluster.client(host % 2, host > 1);
            scope.spawn(move || {
                let file = open(&client, "v/log");
                for _ in 0..times {
                    assert_eq!(client.append(&file, &vec![b'a' + host as u8; len]).unwrap().1, len);
                }
            });
        }
    });
    let all = content(&first, "v/log");
    assert_eq!(all.len(), hosts * times * len);
    for record in all.chunks(len) {
        assert!(record.iter().all(|byte| *byte == record[0]));
    }
}

#[test]
fn directories_hand_on_how_files_are_striped() {
    let cluster = Cluster::start(3);
    let client = cluster.client(1, false);
    striped(&client, "v", "count=3 size=128KiB");
    client.mkdir(Ino::ROOT, b"v/sub", 0o755).unwrap();
    let file = open(&client, "v/sub/file");
    assert_eq!((file.layout.targets.len(), file.layout.stripe_bytes), (3, 128 << 10));
    let say = |path: &[u8], text: &[u8]| client.set_xattr(Ino::ROOT, path, true, XATTR, text, XattrHow::default());
    say(b"v/sub", b"count=1").unwrap();
    let file = open(&client, "v/sub/other");
    assert!(file.stripes.is_none());
    for wrong in ["count=7", "servers=io9", "colour=red", "size=5000", "targets=15"] {
        let refused: Error = say(b"v/sub", wrong.as_bytes()).unwrap_err();
        assert_eq!(refused.errno(), rustix::io::Errno::INVAL, "{wrong}");
    }
    say(b"v/sub", b"count=1 servers=io3").unwrap();
    let file = open(&client, "v/sub/third");
    assert_eq!(file.layout.targets[0].0 / 16, 2);
    client.write_at(&file, 0, b"there").unwrap();
    assert_eq!(content(&client, "v/sub/third"), b"there");
}

#[test]
fn a_file_says_how_it_is_striped_and_takes_it_while_it_is_empty() {
    let cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    client.mkdir(Ino::ROOT, b"v", 0o755).unwrap();
    let layout = |path: &[u8]| {
        let mut room = vec![0; 200];
        let len = client.get_xattr(Ino::ROOT, path, true, XATTR, &mut room)?;
        Ok::<_, Error>(String::from_utf8(room[..len].to_vec()).unwrap())
    };
    let say = |path: &[u8], text: &[u8]| client.set_xattr(Ino::ROOT, path, true, XATTR, text, XattrHow::default());
    let plain = open(&client, "v/file");
    assert_eq!(layout(b"v/file").unwrap_err().errno(), rustix::io::Errno::NODATA);
    assert_eq!(say(b"v/file", b"count=2").unwrap_err().errno(), rustix::io::Errno::BUSY, "it is open");
    client.release(Ino(plain.attr.ino), 0).unwrap();
    say(b"v/file", b"count=2 size=64KiB").unwrap();
    let found = layout(b"v/file").unwrap();
    assert!(found.starts_with("count=2 size=64KiB servers=io"), "{found}");
    let mut names = vec![0; 100];
    let len = client.list_xattrs(Ino::ROOT, b"v/file", true, &mut names).unwrap();
    assert_eq!(names[..len], [XATTR, b"\0"].concat());
    let file = open(&client, "v/file");
    let data = pattern(5 * STRIPE, 2);
    client.write_at(&file, 0, &data).unwrap();
    // As programs do that copy attributes once the bytes are there.
    say(b"v/file", b"count=1").unwrap();
    assert_eq!((layout(b"v/file").unwrap(), content(&client, "v/file")), (found, data));
}

#[test]
fn a_server_believes_what_another_one_has_allowed_and_nothing_else() {
    let mut cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    client.mkdir(Ino::ROOT, b"v", 0o777).unwrap();
    let volume = Ino(client.get_attr(Ino::ROOT, b"v", true).unwrap().ino).volume();
    let home = cluster.has(volume);
    let there = format!("count=1 size=64KiB servers=io{}", 2 - home);
    client.set_xattr(Ino::ROOT, b"v", true, XATTR, there.as_bytes(), XattrHow::default()).unwrap();
    let (owner, address) = (ALICE, |cluster: &Cluster, index: usize| cluster.configs[index].listen[0].clone());
    let (near, far) = (address(&cluster, home), address(&cluster, 1 - home));
    let file = if can_be_others() {
        as_user(owner, || {
            let client = cluster.client(home, false).trusting(Some(0));
            let file = open(&client, "v/file");
            client.write_at(&file, 0, b"hers").unwrap();
            file
        })
    } else {
        open(&client, "v/file")
    };
    let find = RequestHeader::with_capability(Op::FindObjects, &file.capability);
    let read =
        |capability: &ObjectCapability| RequestHeader { len: 4, ..RequestHeader::of_object(Op::Read, capability) };
    let write = |capability: &ObjectCapability| RequestHeader { op: Op::Write as u16, ..read(capability) };
    let good = capabilities(&near, owner, &file).0[0];
    if can_be_others() {
        assert_eq!(asked(&far, owner, &read(&good), b""), (0, b"hers".to_vec()));
        assert_eq!(asked(&far, MALLORY, &read(&good), b"").0, rustix::io::Errno::ACCESS.raw_os_error() as u32);
        assert_eq!(asked(&near, MALLORY, &find, b"").0, rustix::io::Errno::ACCESS.raw_os_error() as u32);
        assert_eq!(asked(&far, 0, &read(&good), b"").0, 0, "who could read the disk");
    }
    let stale = rustix::io::Errno::STALE.raw_os_error() as u32;
    let forged = [
        ObjectCapability { mac: [good.mac[0] ^ 1, good.mac[1]], ..good },
        ObjectCapability { mac: [0; 2], ..good },
        ObjectCapability { number: good.number + 1, ..good },
        ObjectCapability { generation: good.generation ^ 1, ..good },
        ObjectCapability { expires_secs: good.expires_secs + 1, ..good },
        ObjectCapability { epoch: good.epoch + 1, ..good },
        ObjectCapability { access: good.access | 4, ..good },
        ObjectCapability { index: 1, ..good },
        // The other target of the server.
        ObjectCapability { target: good.target ^ 1, ..good },
    ];
    let before = objects(&cluster);
    for forged in forged {
        assert_eq!(asked(&far, owner, &read(&forged), b"").0, stale, "{forged:?}");
        assert_eq!(asked(&far, owner, &write(&forged), b"mine").0, stale, "{forged:?}");
    }
    assert_eq!(objects(&cluster), before, "nothing was left where the file has none");
    // What is there is not on the server of the volume.
    assert_eq!(asked(&near, owner, &read(&good), b"").0, stale);
    // Who opened it to read may not write.
    let how = OpenHow { access: access::READ, ..OpenHow::default() };
    let to_read = || cluster.client(home, false).trusting(Some(0)).open(Ino::ROOT, b"v/file", &how).unwrap();
    let opened = if can_be_others() { as_user(owner, to_read) } else { to_read() };
    let reading = capabilities(&near, owner, &opened).0[0];
    assert_eq!(asked(&far, owner, &write(&reading), b"mine").0, rustix::io::Errno::BADF.raw_os_error() as u32);
    let tell = RequestHeader { offset: 9, ..RequestHeader::with_capability(Op::TellSize, &opened.capability) };
    assert_eq!(asked(&near, owner, &tell, b"").0, rustix::io::Errno::BADF.raw_os_error() as u32);
    // The servers that start again believe it still.
    (0..2).for_each(|index| cluster.restart(index));
    assert_eq!(asked(&far, owner, &read(&good), b"").0, 0);
    cluster.client(home, false).unlink(Ino::ROOT, b"v/file").unwrap();
    comes(|| objects(&cluster) == [0, 0]);
}

#[test]
fn who_reads_beyond_the_end_is_told_the_end_and_no_more() {
    let cluster = Cluster::start(2);
    let volume = &cluster.volume_on_each()[0];
    let between = Between::new(&cluster.configs[0].listen[1], honest);
    let (writer, reader) = (cluster.client(0, false), cluster.client_of(vec![between.address.clone()]));
    let how = b"count=2 size=64KiB";
    writer.set_xattr(Ino::ROOT, volume.as_bytes(), true, XATTR, how, XattrHow::default()).unwrap();
    let name = format!("{volume}/file");
    let file = open(&writer, &name);
    writer.write_at(&file, 0, b"four").unwrap();
    let reading = open(&reader, &name);
    let heard = || std::mem::take(&mut *between.heard.lock().unwrap()).len();
    assert!(heard() > 0, "it is between them");
    assert_eq!(reader.read_at(&reading, 4, &mut [0; 100]).unwrap(), 0);
    assert!((1..RequestHeader::LEN + ReplyHeader::LEN + FileObjects::len(2)).contains(&heard()), "no codes");
    // What another one has written since is seen all the same.
    writer.write_at(&file, 4, &pattern(2 * STRIPE, 6)).unwrap();
    let mut found = vec![0; 3 * STRIPE];
    assert_eq!(reader.read_at(&reading, 4, &mut found).unwrap(), 2 * STRIPE);
    assert!(found[..2 * STRIPE] == pattern(2 * STRIPE, 6));
}

#[test]
fn a_piece_lies_on_the_target_of_its_layout_and_on_no_other() {
    let cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    striped(&client, "v", "count=2 size=64KiB");
    let home = cluster.has(Ino(client.get_attr(Ino::ROOT, b"v", true).unwrap().ino).volume());
    let file = open(&client, "v/file");
    let data = pattern(2 * STRIPE, 8);
    client.write_at(&file, 0, &data).unwrap();
    let user = if can_be_others() { 0 } else { ALICE };
    let capabilities = capabilities(&cluster.configs[home].listen[0], user, &file).0;
    let stale = rustix::io::Errno::STALE.raw_os_error() as u32;
    let wrong = |capability: &ObjectCapability| {
        let other = 1 - capability.index;
        // The same server's other target, a piece instead of the other one, and with its code.
        [
            ObjectCapability { target: capability.target ^ 1, ..*capability },
            ObjectCapability { index: other, ..*capability },
            ObjectCapability { index: other, mac: capabilities[usize::from(other)].mac, ..*capability },
            // No target, and no server.
            ObjectCapability { target: capability.target | 15, ..*capability },
            ObjectCapability { target: u16::MAX, ..*capability },
        ]
    };
    let before = object_files(&cluster);
    for (at, capability) in capabilities.iter().enumerate() {
        let server = &cluster.configs[usize::from(capability.target / 16)].listen[0];
        let request =
            |op, capability: &ObjectCapability| RequestHeader { len: 4, ..RequestHeader::of_object(op, capability) };
        for wrong in wrong(capability) {
            for (op, payload) in [(Op::Read, &b""[..]), (Op::Write, b"mine"), (Op::Fsync, b""), (Op::SeekData, b"")] {
                assert_eq!(asked(server, user, &request(op, &wrong), payload).0, stale, "{op:?} {wrong:?}");
            }
            let room = RequestHeader { ino2: 4096, ..request(Op::Fallocate, &wrong) };
            assert_eq!(asked(server, user, &room, b"").0, stale, "{wrong:?}");
        }
        let found = asked(server, user, &request(Op::Read, capability), b"");
        assert_eq!(found, (0, data[at * STRIPE..][..4].to_vec()));
    }
    assert_eq!(object_files(&cluster), before, "no bytes were left anywhere else");
    assert_eq!(content(&client, "v/file"), data);
}

/// Has all servers take the same file with a higher epoch.
fn raise_epoch(cluster: &Cluster, epoch: u32) {
    let file = cluster.dir.path().join("cluster.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let newer = text.replace(&format!("epoch = {}", epoch - 1), &format!("epoch = {epoch}"));
    std::fs::write(&file, &newer).unwrap();
    let fingerprint = format!("{:016x}", isonomia_cluster::Map::parse(&newer).unwrap().fingerprint());
    let mut control = ControlConnection::connect(&cluster.configs[0].listen[0], None, Nanos::from_secs(20)).unwrap();
    control.ask(&ControlRequest::Reload { epoch, fingerprint, is_trial: false }).unwrap();
    let has_it = |server: &Server| server.status().cluster.unwrap().epoch == epoch;
    comes(|| cluster.servers.iter().flatten().all(has_it));
}

#[test]
fn an_open_file_outlasts_the_secret_of_its_epoch() {
    let cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    striped(&client, "v", "count=2 size=64KiB");
    let file = open(&client, "v/file");
    let data = pattern(3 * STRIPE, 4);
    for epoch in 2..5 {
        client.write_at(&file, 0, &data).unwrap();
        raise_epoch(&cluster, epoch);
    }
    // None of what it was opened with is believed any more.
    let mut back = vec![0; data.len()];
    assert_eq!(client.read_at(&file, 0, &mut back).unwrap(), data.len());
    assert_eq!(back, data);
    client.append(&file, b"more").unwrap();
    assert_eq!(size(&client, "v/file"), data.len() as u64 + 4);
}

#[test]
fn objects_of_no_file_go() {
    let cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    striped(&client, "v", "count=2 size=64KiB");
    let file = open(&client, "v/file");
    client.write_at(&file, 0, &[1; 4 * STRIPE]).unwrap();
    let gone = open(&client, "v/gone");
    client.write_at(&gone, 0, &[2; 4 * STRIPE]).unwrap();
    assert_eq!(objects(&cluster), [2, 2]);
    // Removed while it is open: its bytes stay until it is closed, and go then without anybody asking.
    client.unlink(Ino::ROOT, b"v/gone").unwrap();
    assert_eq!(client.read_at(&gone, 3 * STRIPE as u64, &mut [0; STRIPE]).unwrap(), STRIPE);
    client.release(Ino(gone.attr.ino), 0).unwrap();
    comes(|| objects(&cluster) == [1, 1]);
    assert_eq!(client.write_at(&gone, 0, b"late").unwrap_err().errno(), rustix::io::Errno::STALE);
    assert_eq!(objects(&cluster), [1, 1]);
    // Replaced by another one.
    let other = open(&client, "v/other");
    client.write_at(&other, 0, &[3; STRIPE]).unwrap();
    client.release(Ino(other.attr.ino), 0).unwrap();
    client.release(Ino(file.attr.ino), 0).unwrap();
    client.rename(Ino::ROOT, b"v/other", Ino::ROOT, b"v/file", RenameHow::Replace).unwrap();
    comes(|| objects(&cluster).iter().sum::<usize>() == 1);
    assert_eq!(content(&client, "v/file"), [3; STRIPE]);
}

#[test]
fn room_is_made_and_holes_are_punched_on_all_servers() {
    let cluster = Cluster::start(2);
    let client = cluster.client(0, true);
    striped(&client, "v", "count=2 size=64KiB");
    let file = open(&client, "v/file");
    let data = pattern(6 * STRIPE, 6);
    client.write_at(&file, 0, &data).unwrap();
    client.change_space(&file, SpaceChange::PunchHole, STRIPE as u64 / 2, 2 * STRIPE as u64).unwrap();
    let mut expected = data;
    expected[STRIPE / 2..5 * STRIPE / 2].fill(0);
    assert_eq!(content(&client, "v/file"), expected);
    // The middle of the hole is one, wherever exactly the host has it begin and end.
    assert_eq!(client.seek_extent(&file, STRIPE as u64, Extent::Hole).unwrap(), STRIPE as u64);
    let data = client.seek_extent(&file, STRIPE as u64, Extent::Data).unwrap() as usize;
    assert!((2 * STRIPE..=5 * STRIPE / 2).contains(&data), "{data}");
    client.change_space(&file, SpaceChange::Allocate { keep_size: true }, 0, 9 * STRIPE as u64).unwrap();
    assert_eq!(size(&client, "v/file"), 6 * STRIPE as u64);
    client.change_space(&file, SpaceChange::Allocate { keep_size: false }, 0, 7 * STRIPE as u64 + 1).unwrap();
    assert_eq!(size(&client, "v/file"), 7 * STRIPE as u64 + 1);
    expected.resize(7 * STRIPE + 1, 0);
    assert_eq!(content(&client, "v/file"), expected);
    assert!(client.seek_extent(&file, 8 * STRIPE as u64, Extent::Hole).is_err());
}

#[test]
fn a_sparse_file_takes_what_its_objects_do() {
    let cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    striped(&client, "v", "count=2 size=64KiB");
    let blocks = |client: &Client| client.get_attr(Ino::ROOT, b"v/file", true).unwrap().blocks;
    let on_hosts = |cluster: &Cluster| -> u64 {
        object_files(cluster).iter().map(|path| std::fs::metadata(path).unwrap().blocks()).sum()
    };
    let file = open(&client, "v/file");
    client.truncate(&file, 1 << 30).unwrap();
    assert_eq!(blocks(&client), 1);
    // What was written counts at once, as far as it was told, and what the servers have made of it a moment later.
    let data = pattern(3 * STRIPE, 5);
    for at in [1 << 20, 1 << 29, 1 << 20] {
        client.write_at(&file, at, &data).unwrap();
    }
    let told = blocks(&client);
    assert!((3 * STRIPE as u64 / 512..=9 * STRIPE as u64 / 512).contains(&told), "{told}");
    client.change_space(&file, SpaceChange::PunchHole, 1 << 29, 2 * STRIPE as u64).unwrap();
    client.change_space(&file, SpaceChange::Allocate { keep_size: true }, 1 << 30, 8 * STRIPE as u64).unwrap();
    client.close(&file, 0).unwrap();
    let found = on_hosts(&cluster);
    assert!(found >= 12 * STRIPE as u64 / 512, "{found}");
    comes(|| blocks(&client) == found);
    let file = open(&client, "v/file");
    assert_eq!(file.attr.blocks, found);
    client.truncate(&file, 0).unwrap();
    assert_eq!(client.truncate(&file, 1 << 30).unwrap().blocks, 1);
    client.release(Ino(file.attr.ino), 0).unwrap();
}

#[test]
fn the_longest_file_has_its_last_byte() {
    // Its objects are on a host's file system where files may be as long as offsets.
    if !std::path::Path::new("/dev/shm").is_dir() {
        return isonomia_testbed::skip("there is no /dev/shm");
    }
    let cluster = Cluster::start(2);
    let client = cluster.client(0, true);
    striped(&client, "v", "count=3 size=64KiB");
    let file = open(&client, "v/file");
    let last = i64::MAX as u64 - 1;
    assert_eq!(client.write_at(&file, last, b"x").unwrap(), 1);
    assert_eq!(size(&cluster.client(1, false), "v/file"), last + 1);
    let mut found = [7; 3];
    assert_eq!(client.read_at(&file, last - 1, &mut found).unwrap(), 2);
    assert_eq!(found, [0, b'x', 7]);
    // What has room is written, as the kernel does.
    assert_eq!(client.write_at(&file, last, b"xy").unwrap(), 1);
    for offset in [last + 1, u64::MAX] {
        assert_eq!(client.write_at(&file, offset, b"x").unwrap_err().errno(), rustix::io::Errno::FBIG, "at {offset}");
    }
    let cut = |len| client.set_attr(file.capability, b"", true, &Change { size_bytes: Some(len), ..Change::default() });
    assert_eq!(cut(1 << 63).unwrap_err().errno(), rustix::io::Errno::INVAL);
    assert_eq!(size(&client, "v/file"), last + 1);
    // What is between is not looked through stripe by stripe.
    let data = client.seek_extent(&file, 0, Extent::Data).unwrap();
    assert!(data <= last && data > last - (1 << 20), "{data}");
    assert_eq!(client.seek_extent(&file, last, Extent::Hole).unwrap(), last + 1);
    assert_eq!(client.seek_extent(&file, 1, Extent::Hole).unwrap(), 1);
    cut(last).unwrap();
    assert_eq!(size(&client, "v/file"), last);
    client.release(Ino(file.attr.ino), 0).unwrap();
}

#[test]
fn nothing_comes_back_whatever_is_done_at_once() {
    const REGION: usize = 5 * STRIPE / 2;
    let cluster = Cluster::start(3);
    let first = cluster.client(0, false);
    striped(&first, "v", "count=3 size=64KiB");
    drop(open(&first, "v/file"));
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let client = cluster.client(writer, writer == 1);
            scope.spawn(move || {
                let file = open(&client, "v/file");
                for repeat in 0..60 {
                    let data = vec![writer as u8 + 1; 1 + (repeat * 7919) % REGION];
                    let offset = (writer * REGION + (repeat * 104_729) % (REGION - data.len() + 1)) as u64;
                    assert_eq!(client.write_at(&file, offset, &data).unwrap(), data.len());
                }
            });
        }
        let client = cluster.client(2, false);
        scope.spawn(move || {
            let file = open(&client, "v/file");
            for repeat in 0..30 {
                let size = (repeat * 15_485_863) % (3 * REGION);
                client.set_size(&file.capability, size as u64).unwrap();
                // Who reads meanwhile sees what was written there, or that there is nothing.
                let mut bytes = vec![0; 3 * REGION];
                let len = client.read_at(&file, 0, &mut bytes).unwrap();
                let is_right = |(at, byte): (usize, &u8)| *byte == 0 || *byte as usize == at / REGION + 1;
                assert!(bytes[..len].iter().enumerate().all(is_right));
            }
        });
    });
    // All have returned: now the end is cut off, and grows again.
    let (file, other) = (open(&first, "v/file"), cluster.client(1, false));
    let theirs = open(&other, "v/file");
    let last = pattern(2 * STRIPE, 5);
    other.write_at(&theirs, STRIPE as u64 / 2, &last).unwrap();
    first.set_size(&file.capability, STRIPE as u64).unwrap();
    other.write_at(&theirs, 4 * REGION as u64, b"end").unwrap();
    let all = content(&first, "v/file");
    assert_eq!(all.len(), 4 * REGION + 3);
    assert_eq!(all[STRIPE / 2..STRIPE], last[..STRIPE / 2]);
    assert!(all[STRIPE..4 * REGION].iter().all(|byte| *byte == 0));
}
