//! What clients that announce much and send little cost the server. It runs in the process of this test, whose memory is looked at: so
//! this is the only one here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "server/running/mod.rs"]
mod running;

use isonomia_client::Ino;
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_proto::setup::Role;
use isonomia_transport::handshake::open_stream;
use isonomia_transport::socket::send_all;
use running::{create, eventually, identity, soon, start};
use rustix::fd::AsFd;
use zerocopy::IntoBytes;

#[test]
fn hundreds_of_huge_announcements_take_little_memory() {
    // 128 MiB for those who stall, of which operators leave an eighth.
    let running = start(|config| config.limits.memory = "512MiB".parse().ok());
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let client = &running.clients()[1];
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    let mut header = RequestHeader::with_capability(Op::Write, &file.capability);
    header.len = 1 << 20;
    let before = resident();
    let mut announced = Vec::new();
    for _ in 0..600 {
        let Ok(s) = open_stream(&running.addresses[1], Role::Stream, &identity(&running), soon()) else { continue };
        let _ = send_all(s.socket.as_fd(), &[header.as_bytes(), &[1; 100]], soon());
        announced.push(s);
    }
    assert!(announced.len() > 400, "{} connections", announced.len());
    let grown = || resident().saturating_sub(before);
    eventually("those for whom there is memory have it", || grown() > 100 << 20);
    // Requests of one job get their turns in the order in which they came: once these are served, all others had theirs.
    let small = RequestHeader { len: 1, ..RequestHeader::with_capability(Op::Read, &file.capability) };
    let s = open_stream(&running.addresses[1], Role::Stream, &identity(&running), soon()).unwrap();
    for _ in 0..8 {
        send_all(s.socket.as_fd(), &[small.as_bytes()], soon()).unwrap();
        isonomia_transport::socket::receive_all(s.socket.as_fd(), &mut [0; 32], soon()).unwrap();
    }
    running.serves();
    let grown = grown();
    assert!(grown < 200 << 20, "{} MiB for 600 announcements of 1 MiB", grown >> 20);
    drop((announced, s));
    eventually("every connection is given up", || running.server().status().connections <= 1);
    running.serves();
}
