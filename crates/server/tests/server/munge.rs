//! Users whom munge vouches for, with munge daemons of the tests' own: each has what is his, and nobody else's.

use crate::running::between::{Between, honest};
use crate::running::{ALICE, MALLORY, Running, as_user, can_be_others, create, start};
use isonomia_client::{Address, Claims, Client, ClientConfig, Error, Ino, Integrity, Principal, Protection};
use isonomia_proto::PROTOCOL_VERSION;
use isonomia_proto::control::{ControlReply, ControlRequest};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_proto::setup::{
    self, Answer, Auth, BOUND_LABEL, Bound, Challenge, Hello, Opening, Role, SETUP_HEADER_LEN, SETUP_LEN_MAX,
};
use isonomia_testbed::{Munged, can_munge};
use isonomia_transport::control::ControlConnection;
use isonomia_transport::handshake::{HandshakeError, Identity, open_stream};
use isonomia_transport::munge::{Wish, encode};
use isonomia_transport::noise::Initiator;
use isonomia_transport::socket::{Deadline, connect, receive_frame, send_all};
use isonomia_units::Nanos;
use rustix::fd::AsFd;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

const PATIENCE: Nanos = Nanos::from_secs(20);

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// A server that takes munge's word, where `munged` is the daemon of its host.
fn start_with(munged: &Munged) -> Running {
    start(|config| {
        config.auth = Auth::Munge;
        config.key_file = None;
        config.munge_socket = Some(munged.socket());
        config.name = Some("one".to_owned());
    })
}

fn protection(munged: &Munged) -> Protection {
    Protection { munge_socket: Some(munged.socket()), integrity: Some(Integrity::Mac), ..Protection::default() }
}

fn client(address: &Address, munged: &Munged, claims: Claims) -> Client {
    let (addresses, timeout) = (vec![address.clone()], PATIENCE);
    Client::new(ClientConfig { addresses, timeout, claims, key_file: None }).protected(protection(munged))
}

/// The same with frames as they are.
fn plain(munged: &Munged) -> Protection {
    Protection { integrity: Some(Integrity::None), ..protection(munged) }
}

/// The client of a user on another host, whose daemon is `munged`.
fn client_of(uid: u32, address: &Address, munged: &Munged) -> Client {
    as_user(uid, || {
        let client = client(address, munged, Claims { job: Some("job".to_owned()), ..Claims::default() });
        // The first operation connects.
        client.stat_fs().unwrap();
        client
    })
}

fn errno(result: Result<impl std::fmt::Debug, Error>) -> Errno {
    result.unwrap_err().errno()
}

#[test]
fn each_user_has_his_files_and_his_account_and_names_nobody_else() {
    if !can_munge() || !can_be_others() {
        return;
    }
    let munged = Munged::start();
    let elsewhere = munged.elsewhere();
    let running = start_with(&munged);
    let tcp = &running.addresses[1];
    let own = running.client(&running.addresses[0], "", 20);
    let open_to_all = isonomia_client::Change { mode: Some(0o1777), ..Default::default() };
    own.set_attr(Ino::ROOT, b"", true, &open_to_all).unwrap();
    let [alice, mallory] = [ALICE, MALLORY].map(|uid| client_of(uid, tcp, &elsewhere));
    let private = isonomia_client::OpenHow { mode: 0o600, ..create() };
    let file = alice.open(Ino::ROOT, b"hers", &private).unwrap();
    alice.write_at(&file, 0, &[1; 8192]).unwrap();
    assert_eq!((file.attr.uid, file.attr.gid), (ALICE, ALICE));
    let read = isonomia_client::OpenHow { access: isonomia_client::access::READ, ..Default::default() };
    assert_eq!(errno(mallory.open(Ino::ROOT, b"hers", &read)), Errno::ACCESS);
    assert_eq!(errno(mallory.write_at(&file, 0, b"his")), Errno::ACCESS, "her proof in his hands");
    let his = mallory.open(Ino::ROOT, b"his", &private).unwrap();
    mallory.write_at(&his, 0, &[2; 4096]).unwrap();
    assert_eq!(his.attr.uid, MALLORY);
    let status = running.server().status();
    let written = |uid: u32| {
        let of = |job: &&isonomia_proto::control::JobStatus| job.user == uid.to_string();
        status.jobs.iter().filter(of).map(|job| job.written_bytes_total).sum::<u64>()
    };
    assert_eq!((written(ALICE), written(MALLORY)), (8192, 4096));
    // He is refused who says that he is somebody else, by claims or in the name of another.
    let principal = Principal { uid: ALICE, gid: ALICE, groups: Vec::new() };
    let claims = Claims { on_behalf_of: Some(principal), ..Claims::default() };
    let liar = as_user(MALLORY, || client(tcp, &elsewhere, claims).stat_fs().unwrap_err());
    assert!(liar.to_string().contains("may not ask for others"), "{liar}");
    let claims = Claims { user: Some("root".to_owned()), priority: Some(9), ..Claims::default() };
    as_user(MALLORY, || client(tcp, &elsewhere, claims).stat_fs().map(|_| ())).unwrap();
    assert!(running.server().status().jobs.iter().all(|job| job.user != "root" || job.priority == 1));
    // Root, on a host that has the key, is an operator; others only look.
    let set =
        ControlRequest::SetPolicy { policy: "job-fair".to_owned(), draw: None, only_here: false, instead_of: None };
    let ask = || {
        let identity = Identity { protection: protection(&elsewhere), ..Identity::default() };
        ControlConnection::open(tcp, &identity, PATIENCE).unwrap().ask(&set).unwrap()
    };
    assert!(matches!(as_user(MALLORY, ask), ControlReply::Error(reason) if reason.contains("only the server's user")));
    assert!(!matches!(ask(), ControlReply::Error(_)));
}

#[test]
fn who_stalls_on_every_connection_that_he_has_cuts_nobody_off() {
    if !can_munge() || !can_be_others() {
        return;
    }
    let munged = Munged::start();
    let running = start(|config| {
        config.auth = Auth::Munge;
        config.key_file = None;
        config.munge_socket = Some(munged.socket());
        // 64 MiB for those who stall, of which one user has half.
        config.limits.memory = "128MiB".parse().ok();
    });
    let tcp = &running.addresses[1];
    let open_to_all = isonomia_client::Change { mode: Some(0o1777), ..Default::default() };
    running.client(&running.addresses[0], "", 20).set_attr(Ino::ROOT, b"", true, &open_to_all).unwrap();
    // A write of a mebibyte to a file of his, of which one byte comes.
    let begin = |uid: u32, name: &'static [u8], count: usize| {
        let client = client_of(uid, tcp, &munged);
        let file = client.open(Ino::ROOT, name, &create()).unwrap();
        let mut header = RequestHeader::with_capability(Op::Write, &file.capability);
        header.len = 1 << 20;
        let identity = Identity { protection: plain(&munged), ..Identity::default() };
        let open = || open_stream(tcp, Role::Stream, &identity, soon()).unwrap();
        let (streams, last): (Vec<_>, _) = as_user(uid, || ((0..count).map(|_| open()).collect(), open()));
        streams.iter().for_each(|s| send_all(s.socket.as_fd(), &[header.as_bytes(), &[1]], soon()).unwrap());
        // Requests of one job get their turns in the order in which they came: once this one is served, all before it had theirs.
        header.len = 1;
        send_all(last.socket.as_fd(), &[header.as_bytes(), &[1]], soon()).unwrap();
        isonomia_transport::socket::receive_all(last.socket.as_fd(), &mut [0; 32], soon()).unwrap();
        streams
    };
    let hostile = begin(MALLORY, b"his", 80);
    let local = running.client(&running.addresses[0], "", 20);
    local.stat_fs().unwrap();
    let [hers] = &begin(ALICE, b"hers", 1)[..] else { panic!("one stream") };
    local.stat_fs().unwrap();
    send_all(hers.socket.as_fd(), &[&[1; (1 << 20) - 1]], soon()).unwrap();
    let mut reply = [0; 32];
    isonomia_transport::socket::receive_all(hers.socket.as_fd(), &mut reply, soon()).unwrap();
    assert_eq!(&reply[8..12], [0; 4], "errno");
    assert_eq!(running.server().status().refused_total, 0, "nobody was cut off");
    // Those that wait for others of theirs go when they are told to, and leave nothing behind.
    drop(hostile);
    let deadline = soon();
    while running.server().status().connections > 2 {
        assert!(deadline.left().is_some(), "connections stay");
        std::thread::yield_now();
    }
    let [again] = &begin(MALLORY, b"again", 1)[..] else { panic!("one stream") };
    send_all(again.socket.as_fd(), &[&[1; (1 << 20) - 1]], soon()).unwrap();
    isonomia_transport::socket::receive_all(again.socket.as_fd(), &mut reply, soon()).unwrap();
}

#[test]
fn a_credential_that_is_copied_and_sent_again_is_refused() {
    if !can_munge() {
        return;
    }
    let munged = Munged::start();
    let running = start_with(&munged);
    let between = Between::new(&running.addresses[1], honest);
    client(&between.address, &munged, Claims::default()).stat_fs().unwrap();
    let heard = between.heard.lock().unwrap().clone();
    // The client's first word follows the server's, and has the credential in it.
    let opening = heard
        .windows(SETUP_HEADER_LEN)
        .enumerate()
        .filter_map(|(at, header)| {
            let len = setup::body_len(header.try_into().unwrap(), SETUP_LEN_MAX).ok()?;
            let body = heard.get(at + SETUP_HEADER_LEN..at + SETUP_HEADER_LEN + len)?;
            setup::decode_opening(body).ok().filter(|opening| opening.credential.starts_with(b"MUNGE:"))
        })
        .next()
        .unwrap();
    assert_eq!(send(&running, |_| opening.clone()), "the munge credential was used before");
    // The same of one that no server has seen yet: it is for another connection.
    let stale = opening_for(&running, &munged, 0, |_| {});
    assert_eq!(send(&running, |_| stale.clone()), "the munge credential was made for another connection");
    assert_eq!(running.server().status().refused["credential"], 2);
}

/// What the server answers to an opening that is made of its challenge.
fn send(running: &Running, opening: impl FnOnce(&[u8]) -> Opening) -> String {
    let socket = connect(&running.addresses[1], soon()).unwrap();
    let challenge = receive_frame(socket.as_fd(), SETUP_LEN_MAX, soon()).unwrap();
    send_all(socket.as_fd(), &[&setup::encode(&opening(&challenge))], soon()).unwrap();
    match setup::decode(&receive_frame(socket.as_fd(), SETUP_LEN_MAX, soon()).unwrap()).unwrap() {
        Answer::Refused(reason) => reason,
        Answer::Sealed(_) => "welcome".to_owned(),
        Answer::Welcome(_) => panic!("a welcome in clear"),
    }
}

/// A faultless opening to `challenge`, but for `change`.
fn answer(challenge: &[u8], munged: &Munged, (reader, ttl_s): (u32, u32), change: impl FnOnce(&mut Bound)) -> Opening {
    let said: Challenge = setup::decode_challenge(challenge).unwrap();
    let hello = setup::body(&Hello::new(Role::Control, 1));
    let mut bound = Bound {
        label: BOUND_LABEL,
        version: PROTOCOL_VERSION,
        name: said.name,
        server_nonce: said.nonce,
        client_nonce: [7; 32],
        hello: Sha256::digest(&hello).into(),
        secret: [9; 32],
    };
    change(&mut bound);
    let payload = setup::body(&bound);
    let credential = encode(&munged.socket(), Wish { payload: &payload, reader, ttl_s }, soon()).unwrap();
    let prologue = setup::prologue(challenge, &[7; 32], &credential);
    let (_, message) = Initiator::begin(&[9; 32], &prologue, &hello).unwrap();
    Opening { version: PROTOCOL_VERSION, nonce: [7; 32], credential, message }
}

fn opening_for(running: &Running, munged: &Munged, ttl_s: u32, change: impl FnOnce(&mut Bound)) -> Opening {
    let socket = connect(&running.addresses[1], soon()).unwrap();
    let challenge = receive_frame(socket.as_fd(), SETUP_LEN_MAX, soon()).unwrap();
    answer(&challenge, munged, (own_uid(), ttl_s), change)
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn a_credential_for_another_server_user_time_or_purpose_is_refused() {
    if !can_munge() {
        return;
    }
    let munged = Munged::start();
    let running = start_with(&munged);
    let own = (own_uid(), 0);
    let send_changed = |change: fn(&mut Bound)| send(&running, |challenge| answer(challenge, &munged, own, change));
    assert_eq!(send_changed(|_| {}), "welcome");
    assert_eq!(send_changed(|bound| bound.name = "two".to_owned()), "the munge credential is for the server \"two\"");
    let other_connection = "the munge credential was made for another connection";
    assert_eq!(send_changed(|bound| bound.server_nonce = [1; 32]), other_connection);
    assert_eq!(send_changed(|bound| bound.client_nonce = [1; 32]), other_connection);
    assert_eq!(send_changed(|bound| bound.hello = [1; 32]), other_connection);
    assert_eq!(send_changed(|bound| bound.secret = [1; 32]), other_connection);
    assert!(send_changed(|bound| bound.label = [1; 16]).contains("was made for something else"));
    let unreadable = send(&running, |challenge| answer(challenge, &munged, (own_uid() + 1, 0), |_| {}));
    assert_eq!(unreadable, "the munge credential is for a server of another user");
    let stranger = Munged::start();
    let unknown = send(&running, |challenge| answer(challenge, &stranger, own, |_| {}));
    assert!(unknown.contains("is not valid here"), "{unknown}");
    let none =
        send(&running, |challenge| Opening { credential: Vec::new(), ..answer(challenge, &munged, own, |_| {}) });
    assert!(none.contains("is not valid here"), "{none}");
    let expired = send(&running, |challenge| {
        let opening = answer(challenge, &munged, (own_uid(), 1), |_| {});
        // Munge counts whole seconds.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2_100) {
            std::thread::yield_now();
        }
        opening
    });
    assert!(expired.contains("is of another time"), "{expired}");
}

#[test]
fn without_a_daemon_everybody_hears_so_and_others_are_served() {
    if !can_munge() {
        return;
    }
    let munged = Munged::start();
    let mut of_the_server = munged.elsewhere();
    let running = start_with(&of_the_server);
    let tcp = &running.addresses[1];
    let open = |munged: &Munged| {
        let identity = Identity { protection: protection(munged), ..Identity::default() };
        open_stream(tcp, Role::Control, &identity, soon()).map(|_| ())
    };
    assert_eq!(open(&munged), Ok(()));
    of_the_server.kill();
    let refused = open(&munged).unwrap_err().to_string();
    assert!(refused.contains("the munge daemon on the server's host does not answer"), "{refused}");
    of_the_server.restart();
    assert_eq!(open(&munged), Ok(()));
    // One that hangs is waited for no longer than its thread is needed, and nobody else waits.
    of_the_server.pause();
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| open(&munged).unwrap_err().to_string());
        let local = running.client(&running.addresses[0], "", 20);
        local.stat_fs().unwrap();
        assert!(!refused.is_finished());
        let refused = refused.join().unwrap();
        assert!(refused.contains("does not answer: no answer in time"), "{refused}");
    });
    let protection = Protection { munge_socket: Some("/nonexistent/munge".to_owned()), ..protection(&munged) };
    let identity = Identity { protection, ..Identity::default() };
    let error = open_stream(tcp, Role::Control, &identity, soon()).unwrap_err();
    assert!(matches!(error, HandshakeError::Munge(_)) && error.to_string().contains("/nonexistent/munge"), "{error}");
}

#[test]
fn a_server_of_somebody_else_gets_no_credential() {
    if !can_munge() || !can_be_others() {
        return;
    }
    let munged = Munged::start();
    // A server that user Mallory runs, as far as it says so.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = said.clone();
    let mallory = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut client, _) = listener.accept().unwrap();
        let challenge = Challenge {
            version: PROTOCOL_VERSION,
            nonce: [1; 32],
            auth: Auth::Munge,
            uid: MALLORY,
            name: "one".to_owned(),
        };
        client.write_all(&setup::encode(&challenge)).unwrap();
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        *heard.lock().unwrap() = bytes;
    });
    let identity = Identity { protection: protection(&munged), ..Identity::default() };
    let error = as_user(ALICE, || open_stream(&address, Role::Stream, &identity, soon()).map(|_| ()).unwrap_err());
    mallory.join().unwrap();
    assert!(matches!(error, HandshakeError::Stranger(_)), "{error}");
    assert!(said.lock().unwrap().is_empty(), "nothing was sent");
}
