//! The frames that open a connection.
//!
//! On a Unix socket the kernel vouches for the peer: the client says [`Hello`], and the server gives its [`Answer`], with the
//! shared memory's descriptor attached to a welcome.
//!
//! On TCP the server speaks first: [`Challenge`]. The client's [`Opening`] has its hello in the first message of a Noise
//! handshake, with a secret that both sides know or come to know: the key's, or that in the client's [`Bound`], which munge
//! made into a credential. The server's welcome comes in the second message. What else was said in clear is what the
//! handshake is about ([`prologue`]), so whoever changes any of it ends the handshake.

use crate::PROTOCOL_VERSION;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::fmt;
use std::str::FromStr;

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
    /// this from root and from its own user only, and refuses the connection to others.
    pub on_behalf_of: Option<Principal>,
    /// What its user calls the job, from an option or from the scheduler's environment.
    pub title: Option<String>,
    /// The program that runs, without its directory.
    pub executable: Option<String>,
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
    /// How clients prove who they are.
    pub auth: Auth,
    /// The user that the server runs as: nobody else is to be able to read a credential.
    pub uid: u32,
    /// The server's name, [`SERVER_NAME_LEN_MAX`] bytes at most.
    pub name: String,
}

/// How a client on TCP proves who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// It knows the key, which stands for the server's own user.
    #[default]
    Key,
    /// The munge daemon of its host vouches for its user and group.
    Munge,
}

/// What becomes of frames on their way over TCP; the later ones include the earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Integrity {
    /// They go as they are.
    #[default]
    None,
    /// A message authentication code with each: nobody can change, repeat, swap or leave out any.
    Mac,
    /// Encrypted as well: nobody can read them.
    Encrypted,
}

/// A text that is no [`Auth`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no way to prove who one is (allowed: key, munge)")]
pub struct ParseAuthError(String);

impl FromStr for Auth {
    type Err = ParseAuthError;

    fn from_str(text: &str) -> Result<Self, ParseAuthError> {
        match text {
            "key" => Ok(Self::Key),
            "munge" => Ok(Self::Munge),
            _ => Err(ParseAuthError(text.chars().take(32).collect())),
        }
    }
}

impl fmt::Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "key",
            Self::Munge => "munge",
        })
    }
}

/// A text that is no [`Integrity`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no integrity (allowed: none, mac, encrypted)")]
pub struct ParseIntegrityError(String);

impl FromStr for Integrity {
    type Err = ParseIntegrityError;

    fn from_str(text: &str) -> Result<Self, ParseIntegrityError> {
        match text {
            "none" => Ok(Self::None),
            "mac" => Ok(Self::Mac),
            "encrypted" => Ok(Self::Encrypted),
            _ => Err(ParseIntegrityError(text.chars().take(32).collect())),
        }
    }
}

impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Mac => "mac",
            Self::Encrypted => "encrypted",
        })
    }
}

impl Integrity {
    /// What is used with a peer at an address: `wanted`, or if nothing is wanted, a code for whoever is not on this host.
    pub fn settle(wanted: Option<Self>, is_loopback: bool) -> Self {
        wanted.unwrap_or(if is_loopback { Self::None } else { Self::Mac })
    }
}

/// The client's first word on TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// [`PROTOCOL_VERSION`].
    pub version: u16,
    /// Fresh random bytes.
    pub nonce: [u8; 32],
    /// What munge made of the client's [`Bound`]; nothing with a key. [`CREDENTIAL_LEN_MAX`] bytes at most.
    pub credential: Vec<u8>,
    /// The first message of the handshake, with the [`Hello`] in it.
    pub message: Vec<u8>,
}

/// What a munge credential is about, besides the user and group that munge puts there: this one attempt to open a connection
/// with this one server. Only the server's user can have it from munge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// [`BOUND_LABEL`]: it was made for this, and not for another program.
    pub label: [u8; 16],
    /// [`PROTOCOL_VERSION`].
    pub version: u16,
    /// The name of the server that it is for.
    pub name: String,
    /// Of the [`Challenge`].
    pub server_nonce: [u8; 32],
    /// Of the [`Opening`].
    pub client_nonce: [u8; 32],
    /// SHA-256 of the encoded [`Hello`].
    pub hello: [u8; 32],
    /// Fresh random bytes, for the handshake: a server that knows them is one that munge takes for the server's user.
    pub secret: [u8; 32],
}

/// First bytes of a [`Bound`].
pub const BOUND_LABEL: [u8; 16] = *b"isonomia munge 1";
/// The longest name of a server.
pub const SERVER_NAME_LEN_MAX: usize = 255;
/// The longest credential: a [`Bound`] of the longest name, as munge encrypts and writes it, is some 900 bytes.
pub const CREDENTIAL_LEN_MAX: usize = 2 << 10;

/// What the two sides said in clear before the first message of the handshake: the body of the challenge, and what the
/// opening has besides the message. The handshake ends with an error if the sides do not agree on it.
pub fn prologue(challenge: &[u8], nonce: &[u8; 32], credential: &[u8]) -> Vec<u8> {
    let mut bytes = b"isonomia tcp 1".to_vec();
    for part in [challenge, nonce, credential] {
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Who the client is and what it wants: its first word on a Unix socket, and on TCP in the first message of the handshake.
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
    /// The number of the session in which the client had its locks ([`Welcome::session`]), so that it may claim them from a server that
    /// has started anew; 0 if it had none before.
    pub continues: u64,
    /// The same number for all clients of one mount, of which one has the locks of all its programs; 0 for other clients. Once that
    /// one's session has ended the server ends the connections of the others before it gives its locks to anybody else.
    pub mount: u64,
    /// The least integrity that the client takes; on a Unix socket it means nothing.
    pub integrity: Integrity,
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
            continues: 0,
            mount: 0,
            integrity: Integrity::None,
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
    /// What becomes of frames after this one: the greater of what the client and the server want.
    pub integrity: Integrity,
    /// The number of the session that the connection is one of, not 0; 0 for an operator's. Where a client's connections have
    /// another number than before, the server has nothing any more of what the client had.
    pub session: u64,
    /// The server's *verifier*, 1 to [`VERIFIER_MAX`], as in NFS: another one than before if what it acknowledged, and had not yet
    /// put on stable storage, may have been lost since.
    pub verifier: u64,
    /// Which file system the server is one of, not 0: all servers of a cluster say the same, those of a cluster of another name
    /// something else, and each that is in none something of its own. Numbers of servers are the same in many clusters.
    pub file_system: u64,
}

/// The highest verifier: with the number of its server it fits 64 bits.
pub const VERIFIER_MAX: u64 = (1 << 48) - 1;

/// The server's answer to a hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Go on. On a Unix socket.
    Welcome(Welcome),
    /// The connection is closed after this, for the reason given.
    Refused(String),
    /// Go on, on TCP: the second message of the handshake, with the [`Welcome`] in it.
    Sealed(Vec<u8>),
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
    frame(&body(message))
}

/// `message` as the body of a frame, or as what a message of the handshake or a credential carries.
pub fn body<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("set-up messages serialize into memory")
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

/// The opening in a frame's body. Of a client that speaks another version nothing but that is read.
pub fn decode_opening(body: &[u8]) -> Result<Opening, BadFrame> {
    let opening: Opening = match version(body)? {
        PROTOCOL_VERSION => decode(body)?,
        client => return Err(BadFrame::Version { client, server: PROTOCOL_VERSION }),
    };
    match opening.credential.len() {
        len if len > CREDENTIAL_LEN_MAX => Err(BadFrame::TooLong { len, max: CREDENTIAL_LEN_MAX }),
        _ => Ok(opening),
    }
}

/// What a credential was made of.
pub fn decode_bound(bytes: &[u8]) -> Result<Bound, BadFrame> {
    let bound: Bound = decode(bytes)?;
    if bound.label != BOUND_LABEL {
        return Err(BadFrame::Body("the credential was made for something else".to_owned()));
    }
    Ok(bound)
}

/// The challenge in a frame's body. Of a server that speaks another version nothing but that is read.
pub fn decode_challenge(body: &[u8]) -> Result<Challenge, BadFrame> {
    let challenge: Challenge = match version(body)? {
        PROTOCOL_VERSION => decode(body)?,
        server => return Err(BadFrame::Version { client: PROTOCOL_VERSION, server }),
    };
    match challenge.name.len() {
        len if len > SERVER_NAME_LEN_MAX => Err(BadFrame::TooLong { len, max: SERVER_NAME_LEN_MAX }),
        _ => Ok(challenge),
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
            continues: 1 << 60,
            mount: 6,
            integrity: Integrity::Mac,
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
            title: longest(),
            executable: longest(),
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
        let hello = Hello { claims, ..hello() };
        let message = postcard::to_stdvec(&hello).unwrap();
        let opening = Opening {
            version: PROTOCOL_VERSION,
            nonce: [7; 32],
            credential: vec![7; CREDENTIAL_LEN_MAX],
            // A public key of 32 bytes, and a code of 16.
            message: vec![7; message.len() + 48],
        };
        for bytes in [encode(&hello), encode(&opening)] {
            assert!(body_len(bytes[..8].try_into().unwrap(), SETUP_LEN_MAX).is_ok(), "{} bytes", bytes.len());
        }
    }

    #[test]
    fn names_and_credentials_have_bounds() {
        let nonce = [7; 32];
        let challenge =
            |len| Challenge { version: PROTOCOL_VERSION, nonce, auth: Auth::Munge, uid: 0, name: "n".repeat(len) };
        let opening = |len| Opening { version: PROTOCOL_VERSION, nonce, credential: vec![7; len], message: vec![] };
        for more in [0, 1] {
            let bytes = encode(&challenge(SERVER_NAME_LEN_MAX + more));
            assert_eq!(decode_challenge(&bytes[8..]).is_ok(), more == 0);
            let bytes = encode(&opening(CREDENTIAL_LEN_MAX + more));
            assert_eq!(decode_opening(&bytes[8..]).is_ok(), more == 0);
        }
    }

    #[test]
    fn what_was_said_in_clear_is_told_apart_however_it_is_divided() {
        let (one, other) = (prologue(b"ab", &[7; 32], b"c"), prologue(b"a", &[7; 32], b"bc"));
        assert_ne!(one, other);
    }

    #[test]
    fn integrity_is_wanted_off_this_host_unless_something_is_said() {
        assert_eq!(Integrity::settle(None, true), Integrity::None);
        assert_eq!(Integrity::settle(None, false), Integrity::Mac);
        for integrity in [Integrity::None, Integrity::Mac, Integrity::Encrypted] {
            assert_eq!(Integrity::settle(Some(integrity), false), integrity);
            assert_eq!(integrity.to_string().parse(), Ok(integrity));
        }
        assert!(Integrity::None < Integrity::Mac && Integrity::Mac < Integrity::Encrypted);
        for auth in [Auth::Key, Auth::Munge] {
            assert_eq!(auth.to_string().parse(), Ok(auth));
        }
        assert!("tls".parse::<Integrity>().unwrap_err().to_string().contains("none, mac, encrypted"));
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (decode::<Hello>(&bytes), decode::<Answer>(&bytes), decode_challenge(&bytes));
            let _ = (decode_opening(&bytes), decode_bound(&bytes));
        }
    }
}
