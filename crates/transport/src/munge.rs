//! A credential from the munge daemon of this host: proof to whoever has the same munge key of this process's user and group.
//!
//! The client asks the daemon by its socket, in the words of `libmunge` (version 4 of munge's messages, `m_msg.h`, which all
//! releases of 0.5 have), and does not load that library: it would run in other people's programs by way of their memory
//! allocator and of the functions that the preload library stands before. The server, which is a program of its own, does.

use crate::address::Address;
use crate::socket::{self, Deadline, SocketError};
use isonomia_proto::setup::CREDENTIAL_LEN_MAX;
use isonomia_units::Nanos;
use rustix::fd::AsFd;

/// Where the daemon listens unless something else is said.
pub const SOCKET_DEFAULT: &str = "/run/munge/munge.socket.2";
/// How long the daemon may take for an answer.
const WAIT: Nanos = Nanos::from_secs(5);

const MAGIC: u32 = 0x0060_6d4b;
const VERSION: u8 = 4;
const ENCODE_REQUEST: u8 = 2;
const ENCODE_RESPONSE: u8 = 3;
/// Magic, version, type, number of the attempt, length of the body.
pub const HEADER_LEN: usize = 11;
/// The body of a response: an error's number and text, and a credential with their lengths.
pub const BODY_LEN_MAX: usize = 1 + 1 + 255 + 4 + CREDENTIAL_LEN_MAX;
/// What the daemon says when all went well.
const SUCCESS: u8 = 0;
/// Have the daemon choose cipher and code.
const DEFAULT: u8 = 1;
/// No compression.
const NO_ZIP: u8 = 1 - DEFAULT;
const ANY_GROUP: u32 = u32::MAX;

/// Why there is no credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MungeError {
    /// Nobody answers.
    #[error("the munge daemon at {socket} (ISONOMIA_MUNGE_SOCKET) does not answer: {error}")]
    Away {
        /// Where it was looked for.
        socket: String,
        /// Why.
        error: SocketError,
    },
    /// It says no.
    #[error("the munge daemon gives no credential: {text} (error {number})")]
    Refused {
        /// Its error.
        number: u8,
        /// In its words.
        text: String,
    },
    /// What it says makes no sense.
    #[error("what listens at the munge daemon's socket speaks something else than version {VERSION} of its messages")]
    Nonsense,
}

/// What a credential is to be.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// What is put into it.
    pub payload: &'a [u8],
    /// The only user who can have it decoded.
    pub reader: u32,
    /// Seconds that it is valid for; 0 for as long as the daemon finds right.
    pub ttl_s: u32,
}

/// Has the daemon that listens at `socket` make a credential of this process's user, within some seconds or by `deadline`.
pub fn encode(socket: &str, wish: Wish<'_>, deadline: Deadline) -> Result<Vec<u8>, MungeError> {
    let deadline = deadline.min(Deadline::after(WAIT));
    let away = |error| MungeError::Away { socket: socket.to_owned(), error };
    let connection = socket::connect(&Address::Unix(socket.to_owned()), deadline).map_err(away)?;
    socket::send_all(connection.as_fd(), &[&request(wish)], deadline).map_err(away)?;
    let mut header = [0; HEADER_LEN];
    socket::receive_all(connection.as_fd(), &mut header, deadline).map_err(away)?;
    let mut body = vec![0; body_len(&header)?];
    socket::receive_all(connection.as_fd(), &mut body, deadline).map_err(away)?;
    credential(&body)
}

/// The message that asks for a credential.
fn request(wish: Wish<'_>) -> Vec<u8> {
    let mut body = vec![DEFAULT, DEFAULT, NO_ZIP, 0];
    for number in [wish.ttl_s, wish.reader, ANY_GROUP, wish.payload.len() as u32] {
        body.extend_from_slice(&number.to_be_bytes());
    }
    body.extend_from_slice(wish.payload);
    let mut message = MAGIC.to_be_bytes().to_vec();
    message.extend_from_slice(&[VERSION, ENCODE_REQUEST, 0]);
    message.extend_from_slice(&(body.len() as u32).to_be_bytes());
    message.extend_from_slice(&body);
    message
}

/// Length of the body that follows a response's header, [`BODY_LEN_MAX`] at most.
pub fn body_len(header: &[u8; HEADER_LEN]) -> Result<usize, MungeError> {
    let [m0, m1, m2, m3, version, kind, _, l0, l1, l2, l3] = *header;
    let len = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    let is_known = u32::from_be_bytes([m0, m1, m2, m3]) == MAGIC && (version, kind) == (VERSION, ENCODE_RESPONSE);
    if is_known && len <= BODY_LEN_MAX { Ok(len) } else { Err(MungeError::Nonsense) }
}

/// The credential in a response's body.
pub fn credential(body: &[u8]) -> Result<Vec<u8>, MungeError> {
    let text_of = |bytes: &[u8]| bytes.strip_suffix(&[0]).unwrap_or(bytes).to_vec();
    let [number, text_len, rest @ ..] = body else { return Err(MungeError::Nonsense) };
    let (text, rest) = rest.split_at_checked(usize::from(*text_len)).ok_or(MungeError::Nonsense)?;
    if *number != SUCCESS {
        let text = String::from_utf8_lossy(&text_of(text)).into_owned();
        return Err(MungeError::Refused { number: *number, text });
    }
    let (len, rest) = rest.split_first_chunk().ok_or(MungeError::Nonsense)?;
    let credential = text_of(rest);
    let is_text = credential.iter().all(u8::is_ascii_graphic) && !credential.is_empty();
    if u32::from_be_bytes(*len) as usize == rest.len() && is_text { Ok(credential) } else { Err(MungeError::Nonsense) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_as_munge_documents_it() {
        let asked = request(Wish { payload: b"abc", reader: 1_001, ttl_s: 60 });
        let header = [0x00, 0x60, 0x6d, 0x4b, 4, 2, 0, 0, 0, 0, 23];
        let body = [1, 1, 0, 0, 0, 0, 0, 60, 0, 0, 3, 0xe9, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 3, b'a', b'b', b'c'];
        assert_eq!(asked, [&header[..], &body].concat());
    }

    #[test]
    fn a_response_is_a_credential_an_error_or_nonsense() {
        let header = |version, kind, len: u32| {
            let mut header = [0x00, 0x60, 0x6d, 0x4b, version, kind, 0, 0, 0, 0, 0];
            header[7..].copy_from_slice(&len.to_be_bytes());
            header
        };
        assert_eq!(body_len(&header(4, 3, 20)), Ok(20));
        for (version, kind, len) in [(5, 3, 20), (4, 5, 20), (4, 3, BODY_LEN_MAX as u32 + 1)] {
            assert_eq!(body_len(&header(version, kind, len)), Err(MungeError::Nonsense));
        }
        assert_eq!(credential(b"\x00\x00\x00\x00\x00\x08MUNGE:x\x00"), Ok(b"MUNGE:x".to_vec()));
        let refused = MungeError::Refused { number: 3, text: "no".to_owned() };
        assert_eq!(credential(b"\x03\x03no\x00\x00\x00\x00\x00"), Err(refused));
        for nonsense in
            [&b""[..], b"\x00", b"\x00\x05no", b"\x00\x00\x00\x00\x00\x09MUNGE:x\x00", b"\x00\x00\x00\x00\x00\x00"]
        {
            assert_eq!(credential(nonsense), Err(MungeError::Nonsense), "{nonsense:?}");
        }
    }

    #[test]
    fn a_daemon_that_is_not_there_or_says_nothing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket").display().to_string();
        let ask =
            |deadline| encode(&path, Wish { payload: b"", reader: 0, ttl_s: 0 }, deadline).unwrap_err().to_string();
        let error = ask(Deadline::after(Nanos::from_secs(20)));
        assert!(error.contains(&path) && error.contains("No such file"), "{error}");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = ask(Deadline::after(Nanos::from_millis(50)));
        assert!(error.contains("no answer in time"), "{error}");
    }

    proptest! {
        #[test]
        fn decoding_is_total(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = credential(&body);
        }
    }
}
