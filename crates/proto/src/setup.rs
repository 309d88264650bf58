//! The frames that open a session.
//!
//! On TCP the server speaks first: [`Challenge`]; on a Unix socket the kernel vouches for the peer and the
//! client speaks first. Then the client's [`Hello`], and the server's [`Answer`], on a Unix socket with the shared memory's
//! descriptor attached to a welcome.

use crate::PROTOCOL_VERSION;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// First bytes of every set-up frame.
pub const SETUP_MAGIC: [u8; 4] = *b"ISON";
/// The longest body of a set-up frame, or of a control question.
pub const SETUP_LEN_MAX: usize = 64 << 10;
/// The longest frame of an answer to a control question: room for the status of a thousand targets.
pub const CONTROL_REPLY_LEN_MAX: usize = 16 << 20;
/// Supplementary groups of a [`Principal`] at most: as many as fit a set-up frame with everything else.
pub const PRINCIPAL_GROUPS_MAX: usize = 8 << 10;
/// Bytes of a frame before its body: magic and length.
pub const SETUP_HEADER_LEN: usize = 8;

/// What the connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// File requests through the shared memory that comes with the welcome.
    SharedMemory,
    /// File requests as frames on this connection.
    Stream,
    /// Questions and settings of an operator, in JSON.
    Control,
}

/// What a client says of itself and of the job it belongs to. Servers decide what to believe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claims {
    /// Job name: from an option or from the scheduler's environment.
    pub job: Option<String>,
    /// User name.
    pub user: Option<String>,
    /// Group (account, project).
    pub group: Option<String>,
    /// Compute nodes.
    pub nodes: Option<u32>,
    /// Priority.
    pub priority: Option<u32>,
    /// What the scheduler's environment says of the job's name and nodes.
    pub scheduler: Option<SchedulerJob>,
    /// The user that the client asks for, if it is not its own: a mount asks for all that use it. A server takes
    /// this from root and from its own user only, and refuses the session to others.
    pub on_behalf_of: Option<Principal>,
    /// The job that the client, which asks for another user, found that user's process in by its control group. Counts
    /// only with `on_behalf_of`: of whoever connects the server finds it out itself.
    pub proven_job: Option<String>,
}

/// A user as permissions see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Principal {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, [`PRINCIPAL_GROUPS_MAX`] at most.
    pub groups: Vec<u32>,
}

/// A job as its scheduler's environment variables describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SchedulerJob {
    /// Which scheduler: `slurm`, `pbs`, `lsf`, `flux`, `sge`, `openmpi`.
    pub scheduler: String,
    /// The job's name, with its cluster where the scheduler has several.
    pub job: String,
    /// Compute nodes, if given.
    pub nodes: Option<u32>,
    /// Account or project, if given.
    pub account: Option<String>,
}

/// The server's first word on TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// [`PROTOCOL_VERSION`].
    pub version: u16,
    /// Fresh random bytes.
    pub nonce: [u8; 32],
}

/// The client's first word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`].
    pub version: u16,
    /// What the connection is for.
    pub role: Role,
    /// One number per client process, so that its connections count as one client.
    pub client: u64,
    /// Who the job is.
    pub claims: Claims,
    /// The client's nonce, for the server's proof; zeros on a Unix socket.
    pub nonce: [u8; 32],
    /// HMAC-SHA256 of the key over both nonces; zeros on a Unix socket.
    pub proof: [u8; 32],
    /// Process id and user id as the client sees them: for the log, and used on TCP with `--trust-clients` only.
    pub pid: u32,
    /// See `pid`.
    pub uid: u32,
    /// See `pid`.
    pub gid: u32,
}

impl Hello {
    /// What a client says on a Unix socket that claims nothing.
    pub fn new(role: Role, client: u64) -> Self {
        Self {
            version: PROTOCOL_VERSION,
            role,
            client,
            claims: Claims::default(),
            nonce: [0; 32],
            proof: [0; 32],
            pid: 0,
            uid: 0,
            gid: 0,
        }
    }
}

/// The server accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Number of this server.
    pub server: u16,
    /// The job's name as the server counts it.
    pub job: String,
    /// Largest payload of a request on this connection.
    pub payload_len_max: u32,
    /// Proof that the server knows the key as well; zeros on a Unix socket.
    pub proof: [u8; 32],
}

/// The server's answer to a hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Go on.
    Welcome(Welcome),
    /// The connection is closed after this, for the reason given.
    Refused(String),
}

/// A set-up frame that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadFrame {
    /// The first bytes are not [`SETUP_MAGIC`]: the peer is no Isonomia.
    #[error("frame begins with {0:02x?}, not with an Isonomia header")]
    Magic([u8; 4]),
    /// The body is longer than allowed.
    #[error("frame of {len} bytes, {max} at most")]
    TooLong {
        /// Announced length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// There is no body, and no message is empty.
    #[error("frame without a body")]
    Empty,
    /// The body does not decode.
    #[error("frame does not decode: {0}")]
    Body(String),
    /// The peer speaks another version. The text names both sides: the client is told it by the server.
    #[error("the client speaks version {client} of the protocol, the server version {server}")]
    Version {
        /// The client's.
        client: u16,
        /// The server's.
        server: u16,
    },
}

/// A whole frame around `body`, which must not be longer than `u32::MAX`.
pub fn frame(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(SETUP_HEADER_LEN + body.len());
    out.extend_from_slice(&SETUP_MAGIC);
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(body);
    out
}

/// A whole frame with `message` as its body.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    frame(&postcard::to_stdvec(message).expect("set-up messages serialize into memory"))
}

/// Length of the body that follows `header`: 1 to `len_max`.
pub fn body_len(header: &[u8; SETUP_HEADER_LEN], len_max: usize) -> Result<usize, BadFrame> {
    let [m0, m1, m2, m3, l0, l1, l2, l3] = *header;
    if [m0, m1, m2, m3] != SETUP_MAGIC {
        return Err(BadFrame::Magic([m0, m1, m2, m3]));
    }
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    match len {
        0 => Err(BadFrame::Empty),
        _ if len > len_max => Err(BadFrame::TooLong { len, max: len_max }),
        _ => Ok(len),
    }
}

/// The message in a frame's body.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, BadFrame> {
    postcard::from_bytes(body).map_err(|e| BadFrame::Body(e.to_string()))
}

/// The hello in a frame's body. Of a client that speaks another version nothing but that is read.
pub fn decode_hello(body: &[u8]) -> Result<Hello, BadFrame> {
    match version(body)? {
        PROTOCOL_VERSION => decode(body),
        client => Err(BadFrame::Version { client, server: PROTOCOL_VERSION }),
    }
}

/// The challenge in a frame's body. Of a server that speaks another version nothing but that is read.
pub fn decode_challenge(body: &[u8]) -> Result<Challenge, BadFrame> {
    match version(body)? {
        PROTOCOL_VERSION => decode(body),
        server => Err(BadFrame::Version { client: PROTOCOL_VERSION, server }),
    }
}

/// The version of whoever sent this hello or challenge, which both begin with it in every version of the protocol.
fn version(body: &[u8]) -> Result<u16, BadFrame> {
    postcard::take_from_bytes(body).map(|(version, _)| version).map_err(|e| BadFrame::Body(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            version: PROTOCOL_VERSION,
            role: Role::SharedMemory,
            client: 42,
            claims: Claims { job: Some("j".into()), nodes: Some(4), ..Claims::default() },
            nonce: [1; 32],
            proof: [2; 32],
            pid: 3,
            uid: 4,
            gid: 5,
        }
    }

    #[test]
    fn a_hello_survives_the_wire_and_every_cut_is_an_error() {
        let bytes = encode(&hello());
        let len = body_len(bytes[..8].try_into().unwrap(), SETUP_LEN_MAX).unwrap();
        assert_eq!(len, bytes.len() - 8);
        assert_eq!(decode::<Hello>(&bytes[8..]), Ok(hello()));
        for cut in 8..bytes.len() {
            assert!(decode::<Hello>(&bytes[8..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn lengths_and_magics_are_checked_before_any_body_is_read() {
        let mut header = *b"ISON\xff\xff\xff\xff";
        assert_eq!(
            body_len(&header, SETUP_LEN_MAX),
            Err(BadFrame::TooLong { len: u32::MAX as usize, max: SETUP_LEN_MAX })
        );
        header[0] = b'G';
        assert_eq!(body_len(&header, SETUP_LEN_MAX), Err(BadFrame::Magic(*b"GSON")));
        assert_eq!(body_len(b"ISON\0\0\0\0", SETUP_LEN_MAX), Err(BadFrame::Empty));
    }

    #[test]
    fn of_another_version_nothing_but_its_number_is_read() {
        assert_eq!(decode_hello(&encode(&hello())[8..]), Ok(hello()));
        let (this, other) = (PROTOCOL_VERSION, PROTOCOL_VERSION + 1);
        let bytes = encode(&Hello { version: other, ..hello() });
        for end in [9, 12, bytes.len()] {
            let refused = BadFrame::Version { client: other, server: this };
            assert_eq!(decode_hello(&bytes[8..end]), Err(refused));
            let refused = BadFrame::Version { client: this, server: other };
            assert_eq!(decode_challenge(&bytes[8..end]), Err(refused));
        }
        assert!(matches!(decode_hello(&[]), Err(BadFrame::Body(_))));
    }

    #[test]
    fn the_largest_hello_fits_a_frame() {
        let longest = || Some("x".repeat(isonomia_units::NAME_LEN_MAX));
        let claims = Claims {
            job: longest(),
            user: longest(),
            group: longest(),
            nodes: Some(u32::MAX),
            priority: Some(u32::MAX),
            scheduler: Some(SchedulerJob {
                scheduler: "openmpi".into(),
                job: "x".repeat(isonomia_units::NAME_LEN_MAX),
                nodes: Some(u32::MAX),
                account: longest(),
            }),
            on_behalf_of: Some(Principal {
                uid: u32::MAX,
                gid: u32::MAX,
                groups: vec![u32::MAX; PRINCIPAL_GROUPS_MAX],
            }),
            proven_job: longest(),
        };
        let bytes = encode(&Hello { claims, ..hello() });
        assert!(body_len(bytes[..8].try_into().unwrap(), SETUP_LEN_MAX).is_ok(), "{} bytes", bytes.len());
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (decode::<Hello>(&bytes), decode::<Answer>(&bytes), decode::<Challenge>(&bytes));
        }
    }
}
