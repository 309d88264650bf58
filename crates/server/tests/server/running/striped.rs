//! Files whose bytes are on several servers of a [`Cluster`], for tests of them.

use super::cluster::Cluster;
use super::{as_user, can_be_others};
use isonomia_client::{Address, Client, Ino, Manner, OpenFile, OpenHow, XattrHow, access};
use isonomia_proto::object::{FileEnd, FileObjects, ObjectCapability};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_proto::striping::XATTR;
use isonomia_transport::handshake::Identity;
use isonomia_transport::line::Line;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

/// Bytes of a stripe in most tests.
pub const STRIPE: usize = 64 << 10;

pub fn create() -> OpenHow {
    OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o644, ..OpenHow::default() }
}

pub fn open(client: &Client, path: &str) -> OpenFile {
    client.open(Ino::ROOT, path.as_bytes(), &create()).unwrap()
}

/// A directory whose files are striped like this.
pub fn striped(client: &Client, dir: &str, how: &str) {
    client.mkdir(Ino::ROOT, dir.as_bytes(), 0o755).unwrap();
    client.set_xattr(Ino::ROOT, dir.as_bytes(), true, XATTR, how.as_bytes(), XattrHow::default()).unwrap();
}

pub fn size(client: &Client, path: &str) -> u64 {
    client.get_attr(Ino::ROOT, path.as_bytes(), true).unwrap().size_bytes
}

pub fn content(client: &Client, path: &str) -> Vec<u8> {
    let file = open(client, path);
    let mut bytes = vec![1; size(client, path) as usize + 100];
    let len = client.read_at(&file, 0, &mut bytes).unwrap();
    bytes.truncate(len);
    client.release(Ino(file.attr.ino), 0).unwrap();
    bytes
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ seed).collect()
}

/// Object files of all servers.
pub fn object_files(cluster: &Cluster) -> Vec<PathBuf> {
    (1..=cluster.servers.len()).flat_map(|number| object_files_of(cluster, number)).collect()
}

pub fn object_files_of(cluster: &Cluster, number: usize) -> Vec<PathBuf> {
    fn below(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                below(&path, found);
            } else if path.extension().is_none_or(|ending| ending != "sum") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    for target in 0..2 {
        below(&cluster.dir.path().join(format!("io{number}")).join(format!("target-{target}/objects")), &mut found);
    }
    found
}

/// How many each server has.
pub fn objects(cluster: &Cluster) -> Vec<usize> {
    (1..=cluster.servers.len()).map(|number| object_files_of(cluster, number).len()).collect()
}

/// Waits for what the servers bring about by themselves.
pub fn comes(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A connection of a session of its own.
pub fn connected(address: &Address) -> Line {
    let identity =
        Identity { client: 5, server_user: Some(rustix::process::geteuid().as_raw()), ..Identity::default() };
    Line::open(address, &identity, Deadline::after(Nanos::from_secs(20))).unwrap()
}

/// The errno of the reply to a request, with what follows it, and its payload.
pub fn asked_on(line: &mut Line, request: &RequestHeader, rest: &[u8]) -> (u32, Vec<u8>) {
    let mut reply = vec![0; 4096];
    let timeout = Nanos::from_secs(20);
    let (header, _) = line.exchange(request, [rest, b""], &mut reply, timeout, Manner::default()).unwrap();
    reply.truncate(header.payload_len as usize);
    (header.errno, reply)
}

/// A capability for each object of an open file, and where that ends.
pub fn capabilities_on(line: &mut Line, file: &OpenFile) -> (Vec<ObjectCapability>, FileEnd) {
    let find = RequestHeader::with_capability(Op::FindObjects, &file.capability);
    let (errno, reply) = asked_on(line, &find, b"");
    assert_eq!(errno, 0);
    let (found, codes, rest) = FileObjects::decode(&reply).unwrap();
    assert_eq!((codes.len(), rest), (file.layout.targets.len(), &b""[..]));
    let each = (0..).zip(&file.layout.targets).zip(codes);
    (each.map(|((index, target), code)| found.capability_for(index, *target, code)).collect(), found.end)
}

/// The same on a connection of its own by user `uid`.
pub fn capabilities(address: &Address, uid: u32, file: &OpenFile) -> (Vec<ObjectCapability>, FileEnd) {
    let find = || capabilities_on(&mut connected(address), file);
    if can_be_others() { as_user(uid, find) } else { find() }
}

/// Where a file ends, by the reply to a request.
pub fn end_in(reply: &[u8]) -> FileEnd {
    FileEnd::read_from_bytes(reply).unwrap()
}

/// [`asked_on`] on a connection of its own by user `uid`.
pub fn asked(address: &Address, uid: u32, request: &RequestHeader, rest: &[u8]) -> (u32, Vec<u8>) {
    let ask = || asked_on(&mut connected(address), request, rest);
    if can_be_others() { as_user(uid, ask) } else { ask() }
}
