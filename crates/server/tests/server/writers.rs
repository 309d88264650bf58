//! Writers of files over several servers that come too late, fail, or are gone.

use crate::running::between::{Between, Way};
use crate::running::cluster::Cluster;
use crate::running::striped::{
    asked, asked_on, capabilities, capabilities_on, comes, connected, content, create, end_in, object_files, open,
    pattern, size, striped,
};
use crate::running::{ALICE, can_be_others};
use isonomia_client::{Client, ClientConfig, Ino, OpenHow, RenameHow, XattrHow, access};
use isonomia_proto::object::told;
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_proto::striping::XATTR;
use isonomia_units::{Nanos, ServerId};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn room_that_was_cut_off_is_another_appends() {
    let cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    striped(&client, "v", "count=2 size=4KiB");
    let home = cluster.has(Ino(client.get_attr(Ino::ROOT, b"v", true).unwrap().ino).volume());
    let file = open(&client, "v/log");
    client.append(&file, b"first").unwrap();
    let (near, user) = (cluster.configs[home].listen[0].clone(), if can_be_others() { 0 } else { ALICE });
    // Another host reserves room, and is slow to fill it.
    let reserve = RequestHeader {
        len: 6,
        target: file.layout.targets[0].0,
        ..RequestHeader::with_capability(Op::ReserveAppend, &file.capability)
    };
    let (errno, reply) = asked(&near, user, &reserve, b"");
    let end = end_in(&reply);
    assert_eq!((errno, end.size_bytes, end.cuts), (0, 11, 0));
    let capability = capabilities(&near, user, &file).0[0];
    client.set_size(&file.capability, 5).unwrap();
    assert_eq!(client.append(&file, b"second").unwrap(), (5, 6));
    let target = file.layout.targets[0];
    let data = cluster.configs[usize::from(target.0 / 16)].listen[0].clone();
    let late =
        RequestHeader { offset: 5, len: 6, ino2: end.cuts + 1, ..RequestHeader::of_object(Op::Write, &capability) };
    assert_eq!(asked(&data, user, &late, b"THIEF!").0, rustix::io::Errno::AGAIN.raw_os_error() as u32);
    assert_eq!(content(&client, "v/log"), b"firstsecond");
}

#[test]
fn a_write_that_was_seen_does_not_come_back_after_a_cut() {
    let cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    client.make_volume(b"v", 0o755, ServerId(1)).unwrap();
    client.set_xattr(Ino::ROOT, b"v", true, XATTR, b"count=1 size=4KiB servers=io2", XattrHow::default()).unwrap();
    // What the writer says to the server of the volume, and not to that of the bytes, is delayed.
    let (delayed, tells) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_delayed, has_told) = (delayed.clone(), tells.clone());
    let between = Between::new(&cluster.configs[0].listen[1], move || {
        let (is_delayed, has_told) = (is_delayed.clone(), has_told.clone());
        Box::new(move |way, bytes| {
            while way == Way::Up && is_delayed.load(Ordering::SeqCst) {
                has_told.store(true, Ordering::SeqCst);
                std::thread::yield_now();
            }
            Some(std::mem::take(bytes))
        })
    });
    let writer = cluster.client_of(vec![between.address.clone()]);
    let file = open(&writer, "v/file");
    writer.write_at(&file, 0, b"old").unwrap();
    delayed.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        // One of these tells: those that follow another one within milliseconds need not.
        let writing = scope.spawn(|| {
            loop {
                let written = writer.write_at(&file, 0, b"new");
                if written.is_err() || tells.load(Ordering::SeqCst) {
                    return written;
                }
            }
        });
        comes(|| content(&client, "v/file") == b"new" && tells.load(Ordering::SeqCst));
        let other = open(&client, "v/file");
        client.set_size(&other.capability, 0).unwrap();
        assert_eq!(content(&client, "v/file"), b"");
        delayed.store(false, Ordering::SeqCst);
        assert_eq!(writing.join().unwrap().unwrap(), 3);
    });
    assert_eq!(content(&client, "v/file"), b"");
}

#[test]
fn the_file_that_is_cut_is_the_one_that_is_opened() {
    let mut cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    striped(&client, "v", "count=2 size=4KiB");
    let home = cluster.has(Ino(client.get_attr(Ino::ROOT, b"v", true).unwrap().ino).volume());
    for name in ["v/file", "v/other"] {
        let file = open(&client, name);
        client.write_at(&file, 0, &pattern(10_000, 3)).unwrap();
        client.release(Ino(file.attr.ino), 0).unwrap();
    }
    let wanted = client.get_attr(Ino::ROOT, b"v/file", true).unwrap().ino;
    // The cut is begun, and not done before the other server is back.
    cluster.servers[1 - home] = None;
    let opener = cluster.client(home, false);
    let opening = std::thread::spawn(move || {
        opener.open(Ino::ROOT, b"v/file", &OpenHow { truncate: true, ..create() }).map(|file| (opener, file))
    });
    comes(|| size(&client, "v/file") == 0);
    client.rename(Ino::ROOT, b"v/file", Ino::ROOT, b"v/moved", RenameHow::Replace).unwrap();
    client.rename(Ino::ROOT, b"v/other", Ino::ROOT, b"v/file", RenameHow::Replace).unwrap();
    cluster.restart(1 - home);
    let (_opener, opened) = opening.join().unwrap().unwrap();
    assert_eq!((opened.attr.ino, opened.attr.size_bytes, opened.created), (wanted, 0, false));
    assert_eq!((size(&client, "v/moved"), size(&client, "v/file")), (0, 10_000));
}

#[test]
fn what_a_writer_who_is_gone_left_behind_the_end_does_not_show() {
    let mut cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    striped(&client, "v", "count=2 size=4KiB");
    let home = cluster.has(Ino(client.get_attr(Ino::ROOT, b"v", true).unwrap().ino).volume());
    let file = open(&client, "v/file");
    client.write_at(&file, 0, b"told").unwrap();
    let target = file.layout.targets[0];
    let (near, data) = (cluster.configs[home].listen[0].clone(), usize::from(target.0 / 16));
    let data = cluster.configs[data].listen[0].clone();
    let longest = |cluster: &Cluster| {
        let lens = object_files(cluster).into_iter().map(|path| std::fs::metadata(path).map_or(0, |of| of.len()));
        lens.max().unwrap_or(0)
    };
    let grown = [&b"told"[..], &[0; 4092]].concat();
    let find = RequestHeader::with_capability(Op::FindObjects, &file.capability);
    let tell = |request: RequestHeader| RequestHeader { op: Op::TellSize as u16, ..request };
    let behind = tell(RequestHeader { ino2: u64::MAX, valid: told::BEHIND, ..find });
    let mut stays = None;
    for (case, goes) in ["its process ends", "it asks for it", "the server is started again"].into_iter().enumerate() {
        // It writes, and does not tell.
        let mut line = connected(&near);
        let (capabilities, end) = capabilities_on(&mut line, &file);
        assert_eq!(end.size_bytes, 4, "{goes}");
        let write = |offset| RequestHeader {
            offset,
            len: 5,
            ino2: end.cuts + 1,
            ..RequestHeader::of_object(Op::Write, &capabilities[0])
        };
        assert_eq!(asked(&data, 0, &write(100), b"ghost").0, 0, "{goes}");
        assert_eq!(longest(&cluster), 105, "{goes}");
        match case {
            0 => drop(line),
            1 => {
                assert_eq!(asked_on(&mut line, &behind, b"").0, 0);
                // Or its end would have the file cut once more, at any time.
                stays = Some(line);
            }
            _ => cluster.restart(home),
        }
        comes(|| longest(&cluster) == 4);
        // What was sent before comes too late.
        assert_eq!(asked(&data, 0, &write(200), b"ghost").0, rustix::io::Errno::AGAIN.raw_os_error() as u32, "{goes}");
        client.set_size(&file.capability, 4096).unwrap();
        assert_eq!(content(&client, "v/file"), grown, "{goes}");
        client.set_size(&file.capability, 4).unwrap();
    }
    drop(stays);
    // Who closes in order leaves nothing to be cut.
    let cuts = |client: &Client| {
        let mut line = connected(&near);
        let file = client.open(Ino::ROOT, b"v/file", &OpenHow { access: access::READ, ..OpenHow::default() }).unwrap();
        let (_, end) = capabilities_on(&mut line, &file);
        client.release(Ino(file.attr.ino), 0).unwrap();
        end.cuts
    };
    client.release(Ino(file.attr.ino), 0).unwrap();
    let before = cuts(&client);
    let other = cluster.client(1, false);
    let file = open(&other, "v/file");
    other.write_at(&file, 9, b"more").unwrap();
    other.release(Ino(file.attr.ino), 0).unwrap();
    drop(other);
    assert_eq!((cuts(&client), size(&client, "v/file")), (before, 13));
}

#[test]
fn what_is_written_to_objects_is_brought_to_the_device_in_time() {
    let cluster = Cluster::start_in(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")), 2);
    let client = cluster.client(0, false);
    striped(&client, "v", "count=2 size=64KiB");
    let file = open(&client, "v/file");
    let dirty = || {
        let servers = cluster.servers.iter().flatten().map(|server| server.status().targets);
        servers.flatten().filter_map(|target| target.dirty_bytes).collect::<Vec<_>>()
    };
    let data = pattern(4 << 20, 5);
    let write = || assert_eq!(client.write_at(&file, 0, &data).unwrap(), data.len());
    write();
    if dirty().is_empty() {
        // The files are in memory.
        return;
    }
    // Who looks late finds it on the device already, and writes it once more.
    let is_dirty = || dirty().iter().sum::<u64>() > 1 << 20;
    comes(|| {
        is_dirty() || {
            write();
            is_dirty()
        }
    });
    // Nobody asks for it.
    comes(|| dirty().iter().sum::<u64>() == 0);
    client.write_at(&file, 0, &data).unwrap();
    client.sync(&file, false).unwrap();
    assert_eq!(dirty().iter().sum::<u64>(), 0, "what was synced is there");
    assert_eq!(content(&client, "v/file"), data);
}

#[test]
fn a_server_that_is_away_keeps_nobody_from_others() {
    /// More than a client has connections to one server.
    const WRITERS: usize = 70;
    let mut cluster = Cluster::start(2);
    let client = cluster.client(0, false);
    // On the server whose lines are taken first.
    client.make_volume(b"v", 0o755, ServerId(1)).unwrap();
    striped(&client, "v/wide", "count=2 size=4KiB");
    // The server is back before the time-out of those who are many is over, and after that of the one that is hasty.
    let waiting = |timeout_s| {
        let client = Client::new(ClientConfig { timeout: Nanos::from_secs(timeout_s), ..client.config().clone() });
        let file = open(&client, "v/wide/file");
        client.write_at(&file, 0, &pattern(8192, 1)).unwrap();
        (client, file)
    };
    let ((patient, file), (hasty, same)) = (waiting(60), waiting(8));
    cluster.servers[1] = None;
    let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                begun.fetch_add(1, Ordering::SeqCst);
                let outcome = patient.write_at(&file, 0, &pattern(8192, 2));
                ended.fetch_add(1, Ordering::SeqCst);
                assert_eq!(outcome.unwrap(), 8192, "the server came back in time");
            });
        }
        comes(|| begun.load(Ordering::SeqCst) == WRITERS);
        for _ in 0..500 {
            patient.get_attr(Ino::ROOT, b"v/wide/file", true).unwrap();
        }
        assert_eq!(ended.load(Ordering::SeqCst), 0, "it waited for them");
        // What lies before the part that is away is written.
        let outcome = hasty.write_at(&same, 0, &pattern(8192, 3));
        assert!(outcome.as_ref().map_or_else(|error| error.errno() == Errno::TIMEDOUT, |len| *len == 4096));
        cluster.restart(1);
    });
}
