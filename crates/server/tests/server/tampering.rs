//! Somebody between client and server changes, cuts, repeats, swaps and reads what goes by: nothing of it is believed.

use crate::running::between::{Between, Deed, Way, honest, once};
use crate::running::{Running, create, pattern, start};
use isonomia_client::{Client, ClientConfig, Ino, Integrity, Protection};
use isonomia_proto::control::ControlRequest;
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_proto::setup::{Claims, Role, SETUP_HEADER_LEN};
use isonomia_transport::control::ControlConnection;
use isonomia_transport::handshake::{HandshakeError, Identity, open_stream};
use isonomia_transport::seal::TAG_LEN;
use isonomia_transport::socket::{Deadline, SocketError};
use isonomia_transport::stream::Stream;
use isonomia_units::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PATIENCE: Nanos = Nanos::from_secs(20);
const HEADER_LEN: usize = RequestHeader::LEN + TAG_LEN;

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

fn identity(running: &Running, integrity: Option<Integrity>) -> Identity {
    Identity {
        client: 1,
        key_file: Some(running.key_file.clone()),
        protection: Protection { integrity, ..Protection::default() },
        ..Identity::default()
    }
}

/// Bytes of the client's opening, and of the server's challenge and answer, found by listening to one set-up.
fn set_up(running: &Running, integrity: Integrity) -> [usize; 2] {
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let counted = counts.clone();
    let between = Between::new(&running.addresses[1], move || {
        let counted = counted.clone();
        Box::new(move |way, bytes| {
            counted[usize::from(way == Way::Down)].fetch_add(bytes.len(), Ordering::SeqCst);
            Some(std::mem::take(bytes))
        })
    });
    Stream::open(&between.address, &identity(running, Some(integrity)), soon()).unwrap();
    counts.map(|count| count.load(Ordering::SeqCst))
}

/// What becomes of one exchange, of a request with `payload`, while somebody does `deed` to it.
fn exchange(
    running: &Running,
    integrity: Integrity,
    request: &RequestHeader,
    payload: &[u8],
    deed: impl FnOnce() -> Deed + Send + 'static,
) -> Result<Vec<u8>, SocketError> {
    let mut deed = Some(deed);
    let between = Between::new(&running.addresses[1], move || deed.take().map_or_else(honest, |deed| deed()));
    let mut stream = Stream::open(&between.address, &identity(running, Some(integrity)), soon()).unwrap();
    let mut reply = vec![0; 64 << 10];
    let (header, _) = stream.exchange(request, [b"", b""], payload, &mut reply, PATIENCE)?;
    assert_eq!(header.errno, 0);
    reply.truncate(header.payload_len as usize);
    Ok(reply)
}

#[test]
fn frames_that_were_changed_cut_repeated_or_swapped_end_the_connection() {
    let running = start(|_| {});
    let client = running.client(&running.addresses[0], &running.key_file, 20);
    let file = client.open(Ino::ROOT, b"file", &create()).unwrap();
    let content = pattern(4096, 7);
    client.write_at(&file, 0, &content).unwrap();
    let mut read = RequestHeader::with_capability(Op::Read, &file.capability);
    read.len = 4096;
    let mut write = RequestHeader::with_capability(Op::Write, &file.capability);
    (write.len, write.offset) = (4096, 4096);
    for integrity in [Integrity::Mac, Integrity::Encrypted] {
        let [up, down] = set_up(&running, integrity);
        assert_eq!(exchange(&running, integrity, &read, b"", honest).unwrap(), content);
        let flip = |way, at: usize| move || once(way, at, 1, |bytes| bytes[0] ^= 0x10);
        for at in [0, 20, 127, 128, HEADER_LEN - 1] {
            assert!(exchange(&running, integrity, &read, b"", flip(Way::Up, up + at)).is_err(), "{integrity} {at}");
        }
        // The reply's header, its tag, the payload, and its tag.
        for at in [8, 33, 50, 4_000, 4_096 + 32 + 2 * TAG_LEN - 1] {
            let forged = exchange(&running, integrity, &read, b"", flip(Way::Down, down + at));
            assert!(matches!(forged, Err(SocketError::Forged(_))), "{integrity} {at}: {forged:?}");
        }
        for at in [0, 100, HEADER_LEN, HEADER_LEN + 2_000, HEADER_LEN + 4_096 + TAG_LEN - 1] {
            let written = exchange(&running, integrity, &write, &content, flip(Way::Up, up + at));
            assert!(written.is_err(), "{integrity} {at}");
        }
        // Part of a frame is missing, and what follows it replaces it.
        let cut = move || once(Way::Up, up + 5, 1, Vec::clear);
        assert!(exchange(&running, integrity, &write, &content, cut).is_err(), "{integrity}: cut");
        // The same frame twice: the second is no request.
        let twice = move || once(Way::Up, up, HEADER_LEN, |bytes| bytes.extend_from_within(..));
        let first = exchange(&running, integrity, &read, b"", twice);
        assert!(first.is_ok_and(|read| read == content), "{integrity}: the first of them is good");
        let swap = move || once(Way::Up, up, 2 * HEADER_LEN, |bytes| bytes.rotate_left(HEADER_LEN));
        assert!(exchange(&running, integrity, &write, &content, swap).is_err(), "{integrity}: swapped");
    }
    assert_eq!(client.get_attr(Ino::ROOT, b"file", true).unwrap().size_bytes, 4096, "nothing was written");
    assert!(running.server().status().refused_total > 0);
}

#[test]
fn a_client_goes_on_on_a_new_connection_and_reads_and_writes_what_it_ought_to() {
    let running = start(|c| c.integrity = Some(Integrity::Mac));
    let [up, _] = set_up(&running, Integrity::Mac);
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let between = Between::new(&running.addresses[1], move || match counted.fetch_add(1, Ordering::SeqCst) {
        0 => once(Way::Up, up + 5_000, 1, |bytes| bytes[0] ^= 1),
        _ => honest(),
    });
    let client = running.client(&between.address, &running.key_file, 20);
    let file = client.open(Ino::ROOT, b"file", &create()).unwrap();
    let content = pattern(3 << 20, 9);
    assert_eq!(client.write_at(&file, 0, &content).unwrap(), content.len());
    let mut back = vec![0; content.len()];
    assert_eq!(client.read_at(&file, 0, &mut back).unwrap(), back.len());
    assert!(back == content, "every byte is what was written");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[test]
fn a_set_up_that_was_changed_anywhere_fails() {
    let running = start(|c| c.integrity = Some(Integrity::Encrypted));
    let [up, down] = set_up(&running, Integrity::None);
    let tries = |way, len: usize| (4..len).step_by(3).map(move |at| (way, at));
    for (way, at) in tries(Way::Up, up).chain(tries(Way::Down, down)) {
        // A length that is too great would have the other side wait for more.
        let mut deed = Some(once(way, at, 1, |bytes| bytes[0] ^= 1));
        let between = Between::new(&running.addresses[1], move || deed.take().unwrap_or_else(honest));
        let deadline = Deadline::after(Nanos::from_millis(if at < 2 * SETUP_HEADER_LEN { 200 } else { 20_000 }));
        let error = open_stream(&between.address, Role::Stream, &identity(&running, None), deadline);
        // What was meant is either not understood or not believed.
        assert!(error.is_err(), "{way:?} {at}");
    }
}

#[test]
fn the_stricter_side_decides_and_what_is_encrypted_cannot_be_read() {
    const MARK: &[u8] = b"a text that somebody on the network would know again";
    let cases = [
        (Integrity::None, Some(Integrity::None), Integrity::None),
        (Integrity::None, Some(Integrity::Mac), Integrity::Mac),
        (Integrity::Mac, Some(Integrity::None), Integrity::Mac),
        (Integrity::Mac, Some(Integrity::Encrypted), Integrity::Encrypted),
        (Integrity::Encrypted, None, Integrity::Encrypted),
    ];
    for (server, client, expected) in cases {
        let running = start(|c| c.integrity = Some(server));
        let between = Between::new(&running.addresses[1], honest);
        let connection = open_stream(&between.address, Role::Stream, &identity(&running, client), soon()).unwrap();
        assert_eq!(connection.welcome.integrity, expected);
        let files = Client::new(ClientConfig {
            addresses: vec![between.address.clone()],
            timeout: PATIENCE,
            claims: Claims::default(),
            key_file: Some(running.key_file.clone()),
        });
        let files = files.protected(Protection { integrity: client, ..Protection::default() });
        let file = files.open(Ino::ROOT, b"name-of-a-file", &create()).unwrap();
        files.write_at(&file, 0, MARK).unwrap();
        let mut back = vec![0; MARK.len()];
        files.read_at(&file, 0, &mut back).unwrap();
        assert_eq!(back, MARK);
        let is_readable = expected != Integrity::Encrypted;
        assert_eq!((between.has_heard(MARK), between.has_heard(b"name-of-a-file")), (is_readable, is_readable));
        let mut operator = ControlConnection::open(&between.address, &identity(&running, client), PATIENCE).unwrap();
        let (one, two) =
            (operator.ask(&ControlRequest::Status).unwrap(), operator.ask(&ControlRequest::Status).unwrap());
        assert_eq!(std::mem::discriminant(&one), std::mem::discriminant(&two));
        assert_eq!(between.has_heard(b"refused_total"), is_readable);
    }
}

#[test]
fn another_name_than_the_expected_one_is_refused() {
    let running = start(|c| c.name = Some("one".to_owned()));
    let open = |name: &str| {
        let protection = Protection { server_name: Some(name.to_owned()), ..Protection::default() };
        let identity = Identity { protection, ..identity(&running, None) };
        open_stream(&running.addresses[1], Role::Control, &identity, soon()).map(|_| ())
    };
    assert_eq!(open("one"), Ok(()));
    let (found, expected) = ("one".to_owned(), "two".to_owned());
    assert_eq!(open("two"), Err(HandshakeError::OtherServer { found, expected }));
}

#[test]
fn who_does_not_know_the_key_is_refused_and_refuses() {
    let running = start(|_| {});
    let other = running.dir.path().join("other");
    std::fs::write(&other, [8; 32]).unwrap();
    std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let identity = Identity { key_file: Some(other.display().to_string()), ..identity(&running, None) };
    let refused = open_stream(&running.addresses[1], Role::Control, &identity, soon()).map(|_| ());
    assert_eq!(refused, Err(HandshakeError::Refused("the key is not the server's".to_owned())));
    assert_eq!(running.server().status().refused["key"], 1);
}
