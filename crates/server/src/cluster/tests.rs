//! A server whose cluster's thread waits for what does not come.

use super::moving::freeze;
use super::waiting::DECIDED_WITHIN;
use super::*;
use crate::{Config, Server};
use isonomia_client::{Claims, Client, ClientConfig, Ino, LockKind, LockOwner, LockRange, OpenHow, XattrHow, access};
use isonomia_cluster::request::RequestId;
use isonomia_proto::request::Op;
use isonomia_proto::striping::XATTR;
use isonomia_transport::channel::{Channel, Manner};
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;

/// The only server of a cluster, and its directory.
fn alone() -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    let text = format!(
        "name = \"s\"\nepoch = 1\n[[server]]\nname = \"io1\"\nnumber = 1\ndir = \"{at}/io1\"\n\
         listen = [\"unix:{at}/io1.sock\"]\n"
    );
    std::fs::write(dir.path().join("cluster.toml"), text).unwrap();
    let mut config = Config::default();
    config.join(&dir.path().join("cluster.toml"), "io1").unwrap();
    (Server::start(config).unwrap(), dir)
}

/// The two servers of a cluster with a key, and their directory.
fn two() -> ([Server; 2], tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (at, key, file) = (dir.path().display(), dir.path().join("key"), dir.path().join("cluster.toml"));
    std::fs::write(&key, [7; 32]).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = |number: usize| {
        format!(
            "[[server]]\nname = \"io{number}\"\nnumber = {number}\ndir = \"{at}/io{number}\"\n\
             listen = [\"unix:{at}/io{number}.sock\"]\n"
        )
    };
    std::fs::write(&file, format!("name = \"s\"\nepoch = 1\n{}{}", server(1), server(2))).unwrap();
    let start = |number: usize| {
        let mut config = Config { key_file: Some(key.clone()), ..Config::default() };
        config.join(&file, &format!("io{number}")).unwrap();
        Server::start(config).unwrap()
    };
    ([start(1), start(2)], dir)
}

#[test]
fn a_server_whose_clock_is_hours_apart_serves_no_objects_until_it_is_put_right() {
    let (servers, _dir) = two();
    let client = |timeout| {
        let (addresses, claims) = (servers[0].addresses().to_vec(), Claims::default());
        Client::new(ClientConfig { addresses, timeout, claims, key_file: None })
    };
    let (patient, hasty) = (client(Nanos::from_secs(20)), client(Nanos::from_millis(500)));
    patient.make_volume(b"v", 0o755, ServerId(1)).unwrap();
    let striped = b"count=2 size=4KiB";
    patient.set_xattr(Ino::ROOT, b"v", true, XATTR, striped, XattrHow::default()).unwrap();
    let how = OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o644, ..OpenHow::default() };
    let file = patient.open(Ino::ROOT, b"v/file", &how).unwrap();
    assert_eq!(patient.write_at(&file, 0, &[5; 8192]).unwrap(), 8192);
    let ahead_secs = &servers[1].core.cluster.get().unwrap().capabilities.as_ref().unwrap().ahead_secs;
    for hours in [3, -3] {
        ahead_secs.store(hours * 3_600, Ordering::Relaxed);
        assert_eq!(hasty.read_at(&file, 0, &mut [0; 8192]).unwrap_err().errno(), Errno::STALE, "{hours} h");
        // What the other one has nobody is kept from, and names and attributes are there.
        let own = file.layout.targets.iter().position(|target| target.0 < 16).unwrap() as u64;
        assert_eq!(patient.read_at(&file, own * 4096, &mut [0; 4096]).unwrap(), 4096);
        assert_eq!(patient.get_attr(Ino::ROOT, b"v/file", true).unwrap().size_bytes, 8192);
        ahead_secs.store(0, Ordering::Relaxed);
        let mut found = [0; 8192];
        assert_eq!((patient.read_at(&file, 0, &mut found).unwrap(), found), (8192, [5; 8192]), "{hours} h");
    }
}

#[test]
fn no_change_of_a_volume_waits_longer_than_its_time() {
    let (server, dir) = alone();
    let client = || {
        let (addresses, claims) = (server.addresses().to_vec(), Claims::default());
        Client::new(ClientConfig { addresses, timeout: Nanos::from_secs(60), claims, key_file: None })
    };
    client().mkdir(Ino::ROOT, b"before", 0o755).unwrap();
    // The thread opens the cluster file, and nobody writes to that.
    let file = dir.path().join("cluster.toml");
    std::fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let cluster = server.core.cluster.get().unwrap();
    let (answer, reloaded) = sync_channel(1);
    let reload = Reload { epoch: 2, fingerprint: String::new(), is_trial: true };
    cluster.events.try_send(Event::Reload(reload, answer)).unwrap();
    let made = std::thread::scope(|scope| {
        let making = scope.spawn(|| client().mkdir(Ino::ROOT, b"late", 0o755));
        let kept = || cluster.requests.deadline(RequestId(2));
        while kept().is_none() {
            assert!(!making.is_finished(), "it is answered, and not by the thread");
            std::thread::yield_now();
        }
        let deadline = kept().unwrap();
        cluster.expire(&server.core, deadline);
        assert!(kept().is_some(), "the thread has a moment longer");
        cluster.expire(&server.core, deadline + DECIDED_WITHIN);
        assert!(kept().is_none());
        making.join().unwrap()
    });
    assert_eq!(made.unwrap_err().errno(), Errno::TIMEDOUT);
    // The thread goes on: with what comes now, and not with what was given up.
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    drop(rustix::fs::openat(CWD, &file, flags, Mode::empty()).unwrap());
    assert!(reloaded.recv().unwrap().is_err());
    client().mkdir(Ino::ROOT, b"after", 0o755).unwrap();
    assert_eq!(client().get_attr(Ino::ROOT, b"late", true).unwrap_err().errno(), Errno::NOENT);
    client().mkdir(Ino::ROOT, b"late", 0o755).unwrap();
}

#[test]
fn control_messages_wait_for_no_arbiter() {
    let (server, _dir) = alone();
    let metadata = &server.core.targets[0];
    assert!(metadata.usage(clock::now()).is_empty());
    let patience = Nanos::from_secs(20);
    let deadline = Deadline::after(patience);
    let mut channel = Channel::open(&server.addresses()[0], &Identity::default(), deadline).unwrap();
    let mut say = |kind| {
        channel.stage().copy_from(&[u8::MAX]);
        let header = RequestHeader { valid: kind, offset: 2, len: 1, ..RequestHeader::new(Op::Peer, Ino::ROOT) };
        let slot = channel.send(&header).unwrap();
        channel.wait(slot, patience, Manner::default()).unwrap().errno
    };
    // All of them are answered, and refused: the cluster has no such server.
    for kind in (3..=11).filter(|kind| is_control(*kind)) {
        assert_eq!(say(kind), Errno::PROTO.raw_os_error().unsigned_abs(), "{kind}");
    }
    assert!(metadata.usage(clock::now()).is_empty(), "one was queued");
    // What is for the thread that has the volumes waits with the requests of clients.
    say(1);
    assert!(!metadata.usage(clock::now()).is_empty());
    assert_eq!((0..20).filter(|kind| is_control(*kind)).count(), 8);
}

#[test]
fn a_volume_does_not_move_whose_files_are_locked_or_may_be_written() {
    let (server, _dir) = alone();
    let (addresses, claims) = (server.addresses().to_vec(), Claims::default());
    let client = Client::new(ClientConfig { addresses, timeout: Nanos::from_secs(60), claims, key_file: None });
    client.mkdir(Ino::ROOT, b"v", 0o755).unwrap();
    let how = OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() };
    let file = client.open(Ino::ROOT, b"v/file", &how).unwrap().capability;
    let (ino, owner, range) = (Ino(file.ino), LockOwner::Process(0), LockRange::Bytes { start: 0, len: 1 });
    client.lock(&file, owner, range, LockKind::Exclusive, false).unwrap();
    // As after a start of the server: who had it open has claimed the lock, and nothing else.
    client.release(ino, how.number).unwrap();
    let (core, is_busy) = (&server.core, |outcome| matches!(outcome, Err(StoreError::Busy)));
    assert!(is_busy(freeze(core, ino.volume())));
    client.unlock(&file, owner, range).unwrap();
    freeze(core, ino.volume()).unwrap();
    // As after a start, again: the session that had the lock is noted.
    core.holders.load(&core.store).unwrap();
    core.holders.begin(clock::now());
    assert!(matches!(freeze(core, ino.volume()), Err(StoreError::AwaitsClaims)), "somebody may have one");
    core.end_holders(clock::now() + Nanos::from_secs(60)).unwrap();
    let key = (0, 1);
    core.sessions.join(key).add_writer(ino).unwrap();
    assert!(is_busy(freeze(core, ino.volume())));
    core.leave_session(key);
    core.release_due(Nanos::MAX);
    freeze(core, ino.volume()).unwrap();
}

/// What a job is given of the targets it has of the metadata service, and no more when the allocation is over.
#[test]
fn an_allocation_applies_to_the_metadata_service() {
    let (server, _dir) = alone();
    let client = |job: &str| {
        let (addresses, claims) =
            (server.addresses().to_vec(), Claims { job: Some(job.to_owned()), ..Claims::default() });
        Client::new(ClientConfig { addresses, timeout: Nanos::from_secs(60), claims, key_file: None })
    };
    /// However the test ends: who asks without end would keep it from ending.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        for client in ["large", "small"].map(client) {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    client.get_attr(Ino::ROOT, b"", true).unwrap();
                }
            });
        }
        let core = &server.core;
        let number = |name: &str| core.jobs.all().iter().find(|job| &*job.info().name == name).map(|job| job.id);
        let service = core.targets.iter().find(|target| target.is_metadata()).unwrap();
        let target = core.targets.iter().find_map(|target| target.id).unwrap();
        let deadline = clock::now() + Nanos::from_secs(60);
        let [large, small] = ["large", "small"].map(|name| {
            loop {
                assert!(clock::now() < deadline);
                match number(name) {
                    Some(id) => break id,
                    None => std::thread::yield_now(),
                }
            }
        });
        for (parts, due) in [(vec![(large, 900_000.0), (small, 100_000.0)], 0.9), (Vec::new(), 0.5)] {
            super::controller::apportion(core, clock::now(), BTreeMap::from([(target, parts)]));
            // Both have to be active at a time.
            loop {
                assert!(clock::now() < deadline, "{:?}", service.shares(clock::now()));
                let shares: BTreeMap<_, _> = service.shares(clock::now()).into_iter().collect();
                if let (Some(of_large), true) = (shares.get(&large), shares.contains_key(&small)) {
                    assert!((of_large - due).abs() < 1e-3, "{shares:?}");
                    break;
                }
                std::thread::yield_now();
            }
        }
    });
}
