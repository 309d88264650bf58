//! Clients that break the rules or break off, and servers that go away: the others never notice.

use crate::running::{Running, create, eventually, identity, pattern, soon, start};
use isonomia_client::{Address, Ino, OpenHow, access};
use isonomia_proto::PROTOCOL_VERSION;
use isonomia_proto::control::{ControlReply, ControlRequest};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_proto::setup::{self, Answer, Challenge, Hello, Integrity, Role, SETUP_LEN_MAX};
use isonomia_server::{Server, TargetConfig};
use isonomia_testbed::skip;
use isonomia_transport::channel::{Channel, Manner};
use isonomia_transport::control::ControlConnection;
use isonomia_transport::handshake::{Protection, open_stream};
use isonomia_transport::region::{ClientRegion, REGION_LEN, SLOT_LEN};
use isonomia_transport::socket::{
    SocketError, connect, receive_frame, receive_frame_with_descriptor, send_all, send_with_descriptor,
};
use isonomia_units::Nanos;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::IntoBytes;

#[test]
fn frames_that_are_none_close_their_connection_only() {
    let running = start(|_| {});
    let hello = setup::encode(&Hello { version: PROTOCOL_VERSION + 1, ..Hello::new(Role::SharedMemory, 1) });
    let mut oversized = setup::SETUP_MAGIC.to_vec();
    oversized.extend_from_slice(&u32::MAX.to_le_bytes());
    let other_version =
        format!("version {} of the protocol, the server version {PROTOCOL_VERSION}", PROTOCOL_VERSION + 1);
    let frames: [(&[u8], &str); 5] = [
        (b"ISON\0\0\0\0", "frame without a body"),
        (b"GET / HTTP/1.1\r\n\r\n", "not with an Isonomia header"),
        (&oversized, "4294967295 bytes, 65536 at most"),
        (&setup::frame(&[0xff; 100]), "does not decode"),
        (&hello, &other_version),
    ];
    for (bytes, reason) in &frames {
        let socket = connect(&running.addresses[0], soon()).unwrap();
        send_all(socket.as_fd(), &[bytes], soon()).unwrap();
        let body = receive_frame(socket.as_fd(), SETUP_LEN_MAX, soon()).unwrap();
        let Answer::Refused(text) = setup::decode(&body).unwrap() else { panic!("welcomed {bytes:?}") };
        assert!(text.contains(reason), "{text}");
        assert_eq!(receive_frame(socket.as_fd(), SETUP_LEN_MAX, soon()), Err(SocketError::Closed));
    }
    assert_eq!(running.server().status().refused_total, frames.len() as u64);
    running.serves();
}

/// From Linux 6.16 on: before, a server cannot refuse to be sent descriptors.
#[test]
fn nobody_can_send_the_server_a_descriptor() {
    let running = start(|_| {});
    let hello = setup::encode(&Hello::new(Role::SharedMemory, 1));
    let socket = connect(&running.addresses[0], soon()).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(6), Some(16)) {
        return skip("this kernel is older than Linux 6.16");
    }
    let refused = send_with_descriptor(socket.as_fd(), &hello, file.as_fd(), soon());
    assert_eq!(refused, Err(SocketError::System(Errno::PERM)));
    send_all(socket.as_fd(), &[&hello], soon()).unwrap();
    let (body, memory) = receive_frame_with_descriptor(socket.as_fd(), SETUP_LEN_MAX, soon()).unwrap();
    assert!(matches!(setup::decode(&body), Ok(Answer::Welcome(_))));
    ClientRegion::map(memory.unwrap()).unwrap();
    let refused = send_with_descriptor(socket.as_fd(), &[0], file.as_fd(), soon());
    assert_eq!(refused, Err(SocketError::System(Errno::PERM)), "once it is welcome, neither");
    running.serves();
}

/// A connection whose memory is the test's own to write to.
fn open_raw(running: &Running) -> (impl AsFd, OwnedFd) {
    let socket = connect(&running.addresses[0], soon()).unwrap();
    send_all(socket.as_fd(), &[&setup::encode(&Hello::new(Role::SharedMemory, 1))], soon()).unwrap();
    let (_, memory) = receive_frame_with_descriptor(socket.as_fd(), SETUP_LEN_MAX, soon()).unwrap();
    (socket, memory.unwrap())
}

#[test]
fn requests_that_break_a_limit_close_their_channel_only() {
    let running = start(|_| {});
    let good = RequestHeader::new(Op::Write, Ino::ROOT);
    let bad = [
        RequestHeader { magic: 1, ..good },
        RequestHeader { op: 77, ..good },
        RequestHeader { len: u32::MAX, ..good },
        RequestHeader { len: SLOT_LEN as u32 + 1, ..good },
        RequestHeader { path_len: u16::MAX, ..good },
        RequestHeader { target: 99, ..good },
    ];
    for header in bad {
        let mut channel = Channel::open(&running.addresses[0], &identity(&running), soon()).unwrap();
        let slot = channel.send(&header).unwrap();
        assert_eq!(
            channel.wait(slot, Nanos::from_secs(20), Manner::default()).unwrap_err(),
            SocketError::Closed,
            "{header:?}"
        );
    }
    assert_eq!(running.server().status().refused_total, bad.len() as u64);
    running.serves();
}

#[test]
fn a_region_that_breaks_the_protocol_is_cut_off() {
    let running = start(|_| {});
    let (socket, memory) = open_raw(&running);
    let mut region = ClientRegion::map(memory).unwrap();
    // A hundred requests at once; the server may have taken the first few as they came.
    for _ in 0..100 {
        region.post(&RequestHeader::new(Op::StatFs, Ino::ROOT));
    }
    let _ = send_all(socket.as_fd(), &[&[0]], soon());
    assert_eq!(receive_frame(socket.as_fd(), SETUP_LEN_MAX, soon()), Err(SocketError::Closed));
    running.serves();
}

#[test]
fn a_client_that_scribbles_on_its_memory_garbles_its_own_bytes_at_most() {
    let running = start(|_| {});
    let client = &running.clients()[0];
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    let (socket, memory) = open_raw(&running);
    let mut region = ClientRegion::map(&memory).unwrap();
    let flags = rustix::mm::MapFlags::SHARED;
    let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: a fresh mapping, which stays until the end of the process.
    let second =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), REGION_LEN, protection, flags, memory.as_fd(), 0) }.unwrap();
    let second = second.expose_provenance();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The buffers: from the second page to the end.
            let words = (second + 4096..second + REGION_LEN).step_by(8);
            for (word, value) in words.cycle().zip(0u64..) {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let word = std::ptr::with_exposed_provenance_mut::<u64>(word);
                // SAFETY: inside of the mapping and aligned; nothing here refers to these bytes otherwise.
                unsafe { word.write_volatile(value & 0x0101_0101_0101_0101) };
            }
        });
        for number in 0..200u64 {
            let mut header = RequestHeader::with_capability(Op::Write, &file.capability);
            (header.len, header.offset, header.seq) = (SLOT_LEN as u32, number % 8 * SLOT_LEN as u64, number);
            let slot = region.next_slot();
            if region.post(&header) {
                send_all(socket.as_fd(), &[&[0]], soon()).unwrap();
            }
            eventually("the write is answered", || region.is_done(slot));
            assert_eq!(region.reply(slot).errno, 0);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut first = vec![0; 8 * SLOT_LEN];
    assert_eq!(client.read_at(&file, 0, &mut first).unwrap(), first.len());
    assert!(first.iter().all(|byte| *byte <= 1), "bytes that were never there");
    let mut again = vec![2; first.len()];
    client.read_at(&file, 0, &mut again).unwrap();
    assert!(first == again, "what was written does not change any more");
    running.serves();
}

#[test]
fn streams_that_stall_or_lie_delay_nobody() {
    let running = start(|_| {});
    let client = &running.clients()[1];
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    let mut header = RequestHeader::with_capability(Op::Write, &file.capability);
    header.len = 1 << 20;
    // A write that announces a mebibyte and sends half of it, on more streams than there are workers.
    let stalled: Vec<_> = (0..8)
        .map(|_| {
            let s = open_stream(&running.addresses[1], Role::Stream, &identity(&running), soon()).unwrap();
            send_all(s.socket.as_fd(), &[header.as_bytes(), &pattern(1 << 19, 1)], soon()).unwrap();
            s
        })
        .collect();
    running.serves();
    // Half a mebibyte later they are served all the same.
    for s in &stalled {
        send_all(s.socket.as_fd(), &[&pattern(1 << 19, 2)], soon()).unwrap();
        let mut reply = [0; 32];
        isonomia_transport::socket::receive_all(s.socket.as_fd(), &mut reply, soon()).unwrap();
        assert_eq!(&reply[8..12], [0; 4], "errno");
    }
    let mut back = vec![0; 1 << 20];
    assert_eq!(client.read_at(&file, 0, &mut back).unwrap(), 1 << 20);
    assert!(back[..1 << 19] == pattern(1 << 19, 1)[..]);
    // Nonsense in the middle of a stream ends it.
    send_all(stalled[0].socket.as_fd(), &[&[0xab; 128]], soon()).unwrap();
    let mut rest = [0; 1];
    let end = isonomia_transport::socket::receive_all(stalled[0].socket.as_fd(), &mut rest, soon());
    assert_eq!(end, Err(SocketError::Closed));
    running.serves();
}

#[test]
fn as_many_as_stall_in_the_middle_of_a_reply_are_all_served() {
    // 64 MiB for those who stall, of which operators leave an eighth: 56 replies of a mebibyte.
    let running = start(|config| config.limits.memory = "128MiB".parse().ok());
    let client = &running.clients()[1];
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    let data = pattern(1 << 20, 7);
    client.write_at(&file, 0, &data).unwrap();
    let mut header = RequestHeader::with_capability(Op::Read, &file.capability);
    header.len = 1 << 20;
    // More than the kernel keeps between the two, of which nobody takes anything before all are there.
    let asked = [header.as_bytes(); 6].concat();
    let deaf: Vec<_> = (0..80)
        .map(|_| {
            let s = open_stream(&running.addresses[1], Role::Stream, &identity(&running), soon()).unwrap();
            send_all(s.socket.as_fd(), &[&asked], soon()).unwrap();
            s
        })
        .collect();
    // Requests of one job get their turns in the order in which they came: once this one is served, all before it had theirs.
    let last = RequestHeader { len: 1, ..header };
    let s = open_stream(&running.addresses[1], Role::Stream, &identity(&running), soon()).unwrap();
    for _ in 0..8 {
        send_all(s.socket.as_fd(), &[last.as_bytes()], soon()).unwrap();
        isonomia_transport::socket::receive_all(s.socket.as_fd(), &mut [0; 33], soon()).unwrap();
    }
    std::thread::scope(|scope| {
        for s in &deaf {
            scope.spawn(|| {
                let mut reply = vec![0; 32 + (1 << 20)];
                for _ in 0..6 {
                    isonomia_transport::socket::receive_all(s.socket.as_fd(), &mut reply, soon()).unwrap();
                    assert_eq!(&reply[8..12], [0; 4], "errno");
                    assert!(reply[32..] == data);
                }
            });
        }
    });
    assert_eq!(running.server().status().refused_total, 0, "nobody was cut off");
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind() {
    let running = start(|config| {
        // Slow enough that requests are queued when the client goes.
        config.targets = vec![TargetConfig { bandwidth: "8MiB/s".parse().ok(), ..TargetConfig::default() }];
    });
    let client = &running.clients()[0];
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    client.unlink(Ino::ROOT, b"f").unwrap();
    let mut channel = Channel::open(&running.addresses[0], &identity(&running), soon()).unwrap();
    for _ in 0..Channel::DEPTH {
        let mut header = RequestHeader::with_capability(Op::Write, &file.capability);
        header.len = SLOT_LEN as u32;
        channel.send(&header).unwrap();
    }
    eventually("the requests are queued", || running.server().status().targets[1].queued > 0);
    drop(channel);
    eventually("they are dropped", || running.server().status().targets[1].queued == 0);
    let job = |name: &str| running.server().status().jobs.into_iter().find(|j| j.job == name).unwrap();
    eventually("the job has no client", || job("interactive").clients == 0);
    assert_eq!(job("test").clients, 1);
    assert_eq!(client.write_at(&file, 0, b"unlinked and open").unwrap(), 17);
}

#[test]
fn open_files_outlive_a_restart_of_the_server() {
    let mut running = start(|_| {});
    let clients = running.clients();
    let file = clients[0].open(Ino::ROOT, b"f", &create()).unwrap();
    let data = pattern(300_000, 3);
    clients[0].write_at(&file, 0, &data).unwrap();
    clients[0].sync(&file, false).unwrap();
    running.restart();
    let mut back = vec![0; data.len()];
    assert_eq!(clients[0].read_at(&file, 0, &mut back).unwrap(), data.len());
    assert!(back == data);
    assert_eq!(clients[0].write_at(&file, 5, b"more").unwrap(), 4);
}

#[test]
fn a_server_that_stays_away_ends_every_operation_in_time() {
    let mut running = start(|_| {});
    let client = running.client(&running.addresses[0], &running.key_file, 1);
    let file = client.open(Ino::ROOT, b"f", &create()).unwrap();
    running.stop();
    assert_eq!(client.write_at(&file, 0, b"x").unwrap_err().errno(), Errno::TIMEDOUT);
    assert_eq!(client.stat_fs().unwrap_err().errno(), Errno::TIMEDOUT);
}

#[test]
fn who_waits_for_his_turn_waits_longer_than_for_a_server_that_is_away() {
    let running = start(|config| {
        config.targets = vec![TargetConfig { bandwidth: "64KiB/s".parse().ok(), ..TargetConfig::default() }];
    });
    // Each takes twice the time-out, and waits for the others beside it. (In shared memory a server shows once a second that it
    // lives.) A server has no more than the time-out to show that it lives, and on a machine that is too busy needs more than a second.
    const TIMEOUT_S: u64 = 3;
    let data = pattern(2 * TIMEOUT_S as usize * (64 << 10), 3);
    let way = |integrity| {
        let client = running.client(&running.addresses[1], &running.key_file, TIMEOUT_S);
        client.protected(Protection { integrity: Some(integrity), ..Protection::default() })
    };
    let ways = [way(Integrity::None), way(Integrity::Mac)];
    std::thread::scope(|scope| {
        for (number, client) in ways.iter().enumerate() {
            let data = &data;
            scope.spawn(move || {
                let file = client.open(Ino::ROOT, format!("slow{number}").as_bytes(), &create()).unwrap();
                assert_eq!(client.write_at(&file, 0, data).unwrap(), data.len());
            });
        }
    });
    let [.., client] = &ways;
    let file = client.open(Ino::ROOT, b"slow1", &OpenHow { access: access::READ, ..OpenHow::default() }).unwrap();
    let mut back = vec![0; data.len()];
    assert_eq!(client.read_at(&file, 0, &mut back).unwrap(), data.len());
    assert!(back == data);
}

#[test]
fn a_second_server_is_refused_by_directory_and_by_address() {
    let running = start(|_| {});
    let mut config = running.config.clone();
    let refusal = |config| Server::start(config).err().expect("refused").to_string();
    let text = refusal(config.clone());
    assert!(text.contains("in use by another server"), "{text}");
    config.dir = Some(running.dir.path().join("elsewhere"));
    let text = refusal(config.clone());
    assert!(text.contains("unix:") && text.contains("in use by another server"), "{text}");
    config.dir = Some(running.dir.path().join("third"));
    let precious = running.dir.path().join("precious");
    std::fs::write(&precious, "notes").unwrap();
    for path in [&precious, running.dir.path()] {
        config.listen = vec![Address::Unix(path.to_str().unwrap().to_owned())];
        let text = refusal(config.clone());
        assert!(text.contains(path.to_str().unwrap()) && text.contains("no socket"), "{text}");
    }
    assert_eq!(std::fs::read(&precious).unwrap(), b"notes");
    config.listen = vec!["tcp:127.0.0.1:0".parse().unwrap(); 65];
    assert_eq!(refusal(config), "65 addresses to listen on, 64 at most");
    running.serves();
}

#[test]
fn the_policy_changes_under_load_without_losing_a_request() {
    let running = start(|config| {
        config.targets = vec![TargetConfig { bandwidth: "200MiB/s".parse().ok(), ..TargetConfig::default() }];
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (running, done) = (&running, &done);
            scope.spawn(move || {
                let client = running.client(&running.addresses[usize::from(thread % 2)], &running.key_file, 20);
                let file = client.open(Ino::ROOT, &[b'a' + thread], &create()).unwrap();
                let data = pattern(200_000, thread);
                let mut back = vec![0; data.len()];
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(client.write_at(&file, 0, &data).unwrap(), data.len());
                    assert_eq!(client.read_at(&file, 0, &mut back).unwrap(), data.len());
                    assert!(back == data);
                }
            });
        }
        let mut control = ControlConnection::connect(&running.addresses[0], None, Nanos::from_secs(20)).unwrap();
        let mut set = |policy: &str, draw: Option<&str>| {
            let draw = draw.map(str::to_owned);
            control
                .ask(&ControlRequest::SetPolicy { policy: policy.to_owned(), draw, only_here: false, instead_of: None })
                .unwrap()
        };
        for policy in ["fifo", "job-fair", "size-fair", "group-user-size-fair", "user-fair{root=2}"].repeat(8) {
            assert!(matches!(set(policy, None), ControlReply::Policy { .. }));
            assert!(matches!(set(policy, Some("lottery")), ControlReply::Policy { .. }));
        }
        let ControlReply::Error(text) = set("fairest", None) else { panic!("accepted") };
        assert!(text.contains("fairest") && text.contains("size"), "{text}");
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(running.server().status().targets[1].queued, 0);
}

#[test]
fn tcp_asks_for_the_key_before_anything_else() {
    let running = start(|_| {});
    let Address::Tcp(endpoint) = &running.addresses[1] else { panic!("the second address is TCP") };
    assert!(endpoint.starts_with("127.0.0.1:"));
    let socket = connect(&running.addresses[1], soon()).unwrap();
    let body = receive_frame(socket.as_fd(), SETUP_LEN_MAX, soon()).unwrap();
    let challenge: Challenge = setup::decode(&body).unwrap();
    assert_ne!(challenge.nonce, [0; 32]);
    // A request instead of a hello.
    send_all(socket.as_fd(), &[RequestHeader::new(Op::StatFs, Ino::ROOT).as_bytes()], soon()).unwrap();
    let body = receive_frame(socket.as_fd(), SETUP_LEN_MAX, soon()).unwrap();
    assert!(matches!(setup::decode(&body), Ok(Answer::Refused(_))));
    running.serves();
}

/// The kernel of a mount knows much by itself, so that the first that a server hears after it was started again may be a change that
/// must not be sent twice.
#[test]
fn a_change_is_sent_to_the_next_server_if_the_one_before_ended_first() {
    let mut running = start(|_| {});
    // It has the same port again.
    running.config.listen.clone_from(&running.addresses);
    let clients = running.clients();
    for (number, client) in clients.iter().enumerate() {
        client.mkdir(Ino::ROOT, format!("{number}").as_bytes(), 0o755).unwrap();
    }
    for round in 0..3 {
        running.restart();
        for (number, client) in clients.iter().enumerate() {
            client.mkdir(Ino::ROOT, format!("{number}/{round}").as_bytes(), 0o755).unwrap();
        }
    }
}
