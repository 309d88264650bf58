//! The server's side of a TCP connection, never waiting for the client.
//!
//! Requests come one after the other. The head of a request is taken off the socket at once, its payload only
//! when its turn has come, so until then it waits in the client and in the kernel's bounded buffers. A client
//! that stalls in the middle of a payload or does not take its reply is put aside with what it has
//! ([`StreamState`](crate::connection::StreamState)), and continued when its socket is ready. Set-up frames of connections
//! through shared memory come in here as well.

use isonomia_proto::request::{BadRequest, Op, RequestHeader};
use isonomia_proto::setup::{self, BadFrame, SETUP_HEADER_LEN, SETUP_LEN_MAX};
use isonomia_transport::seal::Forged;
use isonomia_units::Nanos;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use zerocopy::FromBytes;

/// Attempts to go on with a payload before the client is put aside.
const SPINS: u32 = 100;
/// Memory for a set-up frame grows by this at a time, as its bytes come: an announced length takes none.
const FRAME_STEP: usize = 4 << 10;

/// What has come of a request's head: header and names.
#[derive(Debug, Default)]
pub struct Head {
    bytes: Vec<u8>,
    /// The header is among them; it has been checked, and its tag was taken off.
    has_header: bool,
    /// When the first of it was taken in.
    pub begun_at: Option<Nanos>,
}

/// Why a stream is cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamEnd {
    /// The client hung up.
    #[error("closed by the client")]
    Closed,
    /// What it sent is no request.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// What came was changed on its way, or was not sent by the client.
    #[error(transparent)]
    Forged(#[from] Forged),
    /// The system says.
    #[error("{0}")]
    System(Errno),
}

/// How far a transfer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// All of it.
    All,
    /// The socket has no more, or takes no more, for now.
    Part,
}

/// Receives into `buffer[*filled..]`, as much as is there, with a short spin for what is on its way.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8], filled: &mut usize, spin: bool) -> Result<Moved, StreamEnd> {
    let mut idle = 0;
    while *filled < buffer.len() {
        match rustix::net::recv(socket, &mut buffer[*filled..], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Err(StreamEnd::Closed),
            Ok((n, _)) => {
                *filled += n;
                idle = 0;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if spin && idle < SPINS => {
                idle += 1;
                rustix::thread::sched_yield();
            }
            Err(Errno::AGAIN) => return Ok(Moved::Part),
            Err(errno) => return Err(StreamEnd::System(errno)),
        }
    }
    Ok(Moved::All)
}

/// Sends `bytes`; gives how many went.
pub fn send(socket: &impl AsFd, bytes: &[u8]) -> Result<usize, StreamEnd> {
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(socket, &bytes[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(n) => sent += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(StreamEnd::Closed),
            Err(errno) => return Err(StreamEnd::System(errno)),
        }
    }
    Ok(sent)
}

/// What came of a set-up frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// Its body.
    Whole(Vec<u8>),
    /// More of it is to come.
    Part,
    /// The client hung up.
    End,
}

/// No set-up frame comes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// What came is none.
    #[error(transparent)]
    Bad(#[from] BadFrame),
    /// The system says.
    #[error(transparent)]
    System(#[from] Errno),
}

/// Goes on taking in a set-up frame, of which `heard` has come. Room is made for what comes, not for what is announced.
pub fn receive_frame(socket: &impl AsFd, heard: &mut Vec<u8>) -> Result<Frame, FrameError> {
    loop {
        let wanted = match heard.first_chunk::<SETUP_HEADER_LEN>() {
            None => SETUP_HEADER_LEN,
            Some(header) => SETUP_HEADER_LEN + setup::body_len(header, SETUP_LEN_MAX)?,
        };
        let filled = heard.len();
        if filled == wanted {
            return Ok(Frame::Whole(std::mem::take(heard).split_off(SETUP_HEADER_LEN)));
        }
        heard.resize(wanted.min(filled + FRAME_STEP), 0);
        let outcome = rustix::net::recv(socket, &mut heard[filled..], RecvFlags::DONTWAIT).map(|(got, _)| got);
        heard.truncate(filled + outcome.unwrap_or(0));
        match outcome {
            Ok(0) | Err(Errno::CONNRESET) => return Ok(Frame::End),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Frame::Part),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// How long the tags of a session are, and what checks one and takes it off.
type Tags<'a> = (usize, &'a dyn Fn(&mut [u8]) -> Result<(), Forged>);

/// Goes on taking in a head, each part of which is followed by a tag of `tag_len` bytes and checked by `open`; the request when
/// it is complete.
pub fn receive_head(
    socket: &impl AsFd,
    head: &mut Head,
    now: Nanos,
    (tag_len, open): Tags<'_>,
) -> Result<Option<(RequestHeader, Op, Vec<u8>)>, StreamEnd> {
    let Head { bytes: head, has_header, begun_at } = head;
    let with_tag = |len| if len > 0 { len + tag_len } else { 0 };
    loop {
        let mut wanted = with_tag(RequestHeader::LEN);
        if !*has_header && head.len() == wanted {
            open(head)?;
            head.truncate(RequestHeader::LEN);
            *has_header = true;
        }
        if *has_header && let Ok((header, _)) = RequestHeader::read_from_prefix(head.as_slice()) {
            let op = header.check()?;
            wanted = RequestHeader::LEN + with_tag(header.names_len());
            if head.len() == wanted {
                let mut names = head.split_off(RequestHeader::LEN);
                *has_header = false;
                head.clear();
                *begun_at = None;
                if !names.is_empty() {
                    open(&mut names)?;
                    names.truncate(header.names_len());
                }
                return Ok(Some((header, op, names)));
            }
        }
        let mut filled = head.len();
        head.resize(wanted, 0);
        let moved = receive(socket, head, &mut filled, false);
        head.truncate(filled);
        if moved? == Moved::Part {
            if filled > 0 {
                begun_at.get_or_insert(now);
            }
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_proto::setup::Integrity;
    use isonomia_transport::noise::Keys;
    use isonomia_transport::seal::{Seals, TAG_LEN};
    use isonomia_units::Ino;
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::cell::RefCell;
    use zerocopy::IntoBytes;

    const PLAIN: Tags<'_> = (0, &|_| Ok(()));

    fn pair() -> (rustix::fd::OwnedFd, rustix::fd::OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_head_is_put_together_from_any_pieces() {
        let header = RequestHeader { path_len: 3, path2_len: 2, ..RequestHeader::new(Op::Rename, Ino::ROOT) };
        let bytes = [header.as_bytes(), b"abcde"].concat();
        for step in [1, 7, 128, 200] {
            let (client, server) = pair();
            let mut head = Head::default();
            let mut got = None;
            for (at, piece) in (5..).zip(bytes.chunks(step)) {
                assert!(got.is_none());
                send(&client, piece).unwrap();
                got = receive_head(&server, &mut head, Nanos(at), PLAIN).unwrap();
                assert_eq!(head.begun_at, got.is_none().then_some(Nanos(5)));
            }
            assert_eq!(got, Some((header, Op::Rename, b"abcde".to_vec())), "in steps of {step}");
        }
    }

    #[test]
    fn a_head_with_tags_is_believed_part_by_part() {
        let keys = Keys { send: [1; 32], receive: [1; 32] };
        let header = RequestHeader { path_len: 3, path2_len: 2, ..RequestHeader::new(Op::Rename, Ino::ROOT) };
        for integrity in [Integrity::Mac, Integrity::Encrypted] {
            let seals = || Seals::new(&keys, integrity).unwrap();
            let mut bytes = Vec::new();
            let mut sealer = seals().sealer;
            sealer.seal(&mut bytes, header.as_bytes());
            sealer.seal(&mut bytes, b"abcde");
            for (changed, step) in [(None, 1), (None, 100), (None, 400), (Some(20), 400), (Some(150), 400)] {
                let mut bytes = bytes.clone();
                changed.into_iter().for_each(|at: usize| bytes[at] ^= 1);
                let (client, server) = pair();
                let opener = RefCell::new(seals().opener);
                let open = |part: &mut [u8]| opener.borrow_mut().open_whole(part).map(|_| ());
                let mut head = Head::default();
                let mut got = Ok(None);
                for piece in bytes.chunks(step) {
                    assert_eq!(got, Ok(None));
                    send(&client, piece).unwrap();
                    got = receive_head(&server, &mut head, Nanos(5), (TAG_LEN, &open));
                }
                let expected = match changed {
                    None => Ok(Some((header, Op::Rename, b"abcde".to_vec()))),
                    Some(_) => Err(StreamEnd::Forged(Forged)),
                };
                assert_eq!(got, expected, "{integrity} in steps of {step}, changed at {changed:?}");
            }
        }
    }

    #[test]
    fn a_set_up_frame_takes_the_room_of_what_has_come() {
        let (client, server) = pair();
        let whole = setup::frame(&vec![7; SETUP_LEN_MAX]);
        let mut heard = Vec::new();
        send(&client, &whole[..100]).unwrap();
        assert_eq!(receive_frame(&server, &mut heard), Ok(Frame::Part));
        assert!(heard.len() == 100 && heard.capacity() <= 3 * FRAME_STEP, "{}", heard.capacity());
        send(&client, &whole[100..]).unwrap();
        assert_eq!(receive_frame(&server, &mut heard), Ok(Frame::Whole(whole[SETUP_HEADER_LEN..].to_vec())));
        assert!(heard.is_empty());
        drop(client);
        assert_eq!(receive_frame(&server, &mut heard), Ok(Frame::End));
    }

    #[test]
    fn the_payload_stays_in_the_socket() {
        let (client, server) = pair();
        let header = RequestHeader { len: 4, ..RequestHeader::new(Op::Write, Ino::ROOT) };
        send(&client, &[header.as_bytes(), b"data"].concat()).unwrap();
        assert!(receive_head(&server, &mut Head::default(), Nanos::ZERO, PLAIN).unwrap().is_some());
        let mut payload = [0; 4];
        assert_eq!(receive(&server, &mut payload, &mut 0, false), Ok(Moved::All));
        assert_eq!(&payload, b"data");
    }

    proptest! {
        #[test]
        fn random_bytes_end_the_stream_or_wait_for_more(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let (client, server) = pair();
            send(&client, &bytes).unwrap();
            match receive_head(&server, &mut Head::default(), Nanos::ZERO, PLAIN) {
                Ok(got) => prop_assert!(got.is_none() && bytes.len() < RequestHeader::LEN),
                Err(StreamEnd::Bad(_)) => prop_assert!(bytes.len() >= RequestHeader::LEN),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
