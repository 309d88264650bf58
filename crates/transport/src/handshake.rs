//! The client's part of opening a connection.

use crate::address::Address;
use crate::descriptor::Parked;
use crate::key::{Key, KeyError, Secret, fresh_nonce};
use crate::munge::{self, MungeError};
use crate::noise::{Failed, Initiator};
use crate::owner::{self, Refusal, Stranger};
use crate::region::{ClientRegion, RegionError};
use crate::seal::Seals;
use crate::socket::{self, Deadline, SocketError};
use isonomia_proto::PROTOCOL_VERSION;
use isonomia_proto::setup::{
    self, Answer, Auth, BOUND_LABEL, Bound, Challenge, Claims, Hello, Integrity, Opening, ParseIntegrityError, Role,
    SETUP_LEN_MAX, Welcome,
};
use rustix::fd::AsFd;
use rustix::process::{getegid, geteuid, getpid};
use sha2::{Digest, Sha256};

/// Why no connection was opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The connection failed; trying again may help.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// It is a server of somebody's whom this client does not trust.
    #[error(transparent)]
    Stranger(#[from] Stranger),
    /// The server's memory is not what it must be.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The server said no.
    #[error("{0}")]
    Refused(String),
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// TCP needs a key, and none was named.
    #[error("a server on TCP asks for a key, and no key file is set")]
    KeyMissing,
    /// The server asks for another proof than a key.
    #[error(
        "the server asks for a munge credential, and a key file is set: leave out --key-file and ISONOMIA_KEY_FILE"
    )]
    KeyUnwanted,
    /// There is no credential for the server.
    #[error(transparent)]
    Munge(#[from] MungeError),
    /// It is another server than the one that was asked for.
    #[error("{found:?} listens there, and not {expected:?} (--server-name, ISONOMIA_SERVER_NAME)")]
    OtherServer {
        /// What it is called.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// The server does not know the key or cannot read the credential, or somebody between it and us changes what is said: it
    /// may not be the one it seems to be.
    #[error("the server did not prove that it knows the key or may read the credential")]
    ServerUnproven,
}

/// Who connects.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// One number per client process.
    pub client: u64,
    /// The number of its session with this server before, or 0.
    pub continues: u64,
    /// The mount that it belongs to, or 0: [`Hello::mount`].
    pub mount: u64,
    /// The job.
    pub claims: Claims,
    /// Needed on TCP.
    pub key_file: Option<String>,
    /// Who may run the server, besides this user and root; with a key, whoever knows it.
    pub server_user: Option<u32>,
    /// How connections on TCP are protected.
    pub protection: Protection,
}

/// How connections on TCP are protected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// The least that is taken; if nothing is said, codes for a server that is not on this host.
    pub integrity: Option<Integrity>,
    /// The name of the server; any if nothing is said.
    pub server_name: Option<String>,
    /// Where the munge daemon of this host listens, if not at [`munge::SOCKET_DEFAULT`].
    pub munge_socket: Option<String>,
}

impl Protection {
    /// What the environment asks for; `get` gives a variable's value. Empty variables count as absent.
    pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Result<Self, ParseIntegrityError> {
        let text = |name| get(name).filter(|value| !value.is_empty());
        Ok(Self {
            integrity: text(INTEGRITY).map(|value| value.parse()).transpose()?,
            server_name: text(SERVER_NAME),
            munge_socket: text(MUNGE_SOCKET),
        })
    }
}

/// The variable that says what becomes of frames on TCP at least.
pub const INTEGRITY: &str = "ISONOMIA_INTEGRITY";
/// The variable that says how the server is called.
pub const SERVER_NAME: &str = "ISONOMIA_SERVER_NAME";
/// The variable that says where the munge daemon of this host listens.
pub const MUNGE_SOCKET: &str = "ISONOMIA_MUNGE_SOCKET";

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    /// The connection.
    pub socket: Parked,
    /// What the server answered.
    pub welcome: Welcome,
    /// For frames after that; nothing if they go as they are.
    pub seals: Option<Seals>,
}

/// Opens a connection for requests in shared memory: the address must be a Unix socket's.
pub fn open_shared(
    address: &Address,
    identity: &Identity,
    deadline: Deadline,
) -> Result<(Connection, ClientRegion), HandshakeError> {
    let socket = connect(address, identity, deadline)?;
    let hello = setup::encode(&hello(Role::SharedMemory, identity));
    socket::send_all(socket.as_fd(), &[&hello], deadline)?;
    let (body, memory) = socket::receive_frame_with_descriptor(socket.as_fd(), SETUP_LEN_MAX, deadline)?;
    let welcome = decode_answer(&body)?;
    let region = ClientRegion::map(memory.ok_or(RegionError::NotSealed)?)?;
    Ok((Connection { socket, welcome, seals: None }, region))
}

/// Opens a connection for requests on the stream itself, or for control.
pub fn open_stream(
    address: &Address,
    role: Role,
    identity: &Identity,
    deadline: Deadline,
) -> Result<Connection, HandshakeError> {
    let socket = connect(address, identity, deadline)?;
    let hello = hello(role, identity);
    match address {
        Address::Unix(_) => {
            socket::send_all(socket.as_fd(), &[&setup::encode(&hello)], deadline)?;
            let welcome = decode_answer(&socket::receive_frame(socket.as_fd(), SETUP_LEN_MAX, deadline)?)?;
            Ok(Connection { socket, welcome, seals: None })
        }
        Address::Tcp(_) => open_tcp(socket, hello, identity, deadline),
    }
}

/// Whether a server on TCP greets whoever connects. That it is the one that was meant is not proven: nothing is said to it.
pub fn greets(address: &Address, deadline: Deadline) -> Result<(), SocketError> {
    let socket = socket::connect(address, deadline)?;
    socket::receive_frame(socket.as_fd(), SETUP_LEN_MAX, deadline).map(drop)
}

fn open_tcp(
    socket: Parked,
    mut hello: Hello,
    identity: &Identity,
    deadline: Deadline,
) -> Result<Connection, HandshakeError> {
    let Protection { integrity, server_name, .. } = &identity.protection;
    hello.integrity = Integrity::settle(*integrity, socket::is_loopback(socket.as_fd()));
    let said = socket::receive_frame(socket.as_fd(), SETUP_LEN_MAX, deadline)?;
    let challenge = setup::decode_challenge(&said).map_err(SocketError::Frame)?;
    if let Some(expected) = server_name.as_ref().filter(|expected| **expected != challenge.name) {
        return Err(HandshakeError::OtherServer { found: challenge.name, expected: expected.clone() });
    }
    let nonce = fresh_nonce().map_err(SocketError::System)?;
    let hello_bytes = setup::body(&hello);
    let (secret, credential) = match (challenge.auth, &identity.key_file) {
        (Auth::Key, None) => return Err(HandshakeError::KeyMissing),
        (Auth::Key, Some(path)) => (Key::read(path)?.secret(), Vec::new()),
        (Auth::Munge, Some(_)) => return Err(HandshakeError::KeyUnwanted),
        (Auth::Munge, None) => bind(&challenge, nonce, &hello_bytes, identity, deadline)?,
    };
    let unproven = |Failed| HandshakeError::ServerUnproven;
    let prologue = setup::prologue(&said, &nonce, &credential);
    let (noise, message) = Initiator::begin(&secret, &prologue, &hello_bytes).map_err(unproven)?;
    let opening = setup::encode(&Opening { version: PROTOCOL_VERSION, nonce, credential, message });
    socket::send_all(socket.as_fd(), &[&opening], deadline)?;
    let answer = socket::receive_frame(socket.as_fd(), SETUP_LEN_MAX, deadline)?;
    let sealed = match setup::decode(&answer).map_err(SocketError::Frame)? {
        Answer::Sealed(message) => message,
        Answer::Refused(reason) => return Err(HandshakeError::Refused(reason)),
        Answer::Welcome(_) => return Err(HandshakeError::ServerUnproven),
    };
    let (welcome, keys) = noise.finish(&sealed).map_err(unproven)?;
    let welcome: Welcome = setup::decode(&welcome).map_err(SocketError::Frame)?;
    if welcome.integrity < hello.integrity {
        return Err(HandshakeError::ServerUnproven);
    }
    Ok(Connection { socket, seals: Seals::new(&keys, welcome.integrity), welcome })
}

/// Binds this user to the server by a credential: gives the secret that is in it, and the credential.
fn bind(
    challenge: &Challenge,
    client_nonce: [u8; 32],
    hello: &[u8],
    identity: &Identity,
    deadline: Deadline,
) -> Result<(Secret, Vec<u8>), HandshakeError> {
    // What the server says of its user is not proven. But nobody else can read the credential.
    owner::check_user(challenge.uid, identity.server_user)?;
    let bound = Bound {
        label: BOUND_LABEL,
        version: PROTOCOL_VERSION,
        name: challenge.name.clone(),
        server_nonce: challenge.nonce,
        client_nonce,
        hello: Sha256::digest(hello).into(),
        secret: fresh_nonce().map_err(SocketError::System)?,
    };
    let socket = identity.protection.munge_socket.as_deref().unwrap_or(munge::SOCKET_DEFAULT);
    let wish = munge::Wish { payload: &setup::body(&bound), reader: challenge.uid, ttl_s: 0 };
    Ok((bound.secret, munge::encode(socket, wish, deadline)?))
}

/// Connects, and makes sure that it is a server to talk to: until then nothing is sent.
fn connect(address: &Address, identity: &Identity, deadline: Deadline) -> Result<Parked, HandshakeError> {
    let socket = socket::connect(address, deadline)?;
    if matches!(address, Address::Unix(_)) {
        owner::check(socket.as_fd(), identity.server_user).map_err(|refusal| match refusal {
            Refusal::System(errno) => SocketError::System(errno).into(),
            Refusal::Stranger(stranger) => HandshakeError::Stranger(stranger),
        })?;
    }
    Ok(socket)
}

fn hello(role: Role, identity: &Identity) -> Hello {
    Hello {
        claims: identity.claims.clone(),
        continues: identity.continues,
        mount: identity.mount,
        pid: getpid().as_raw_nonzero().get() as u32,
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        ..Hello::new(role, identity.client)
    }
}

fn decode_answer(body: &[u8]) -> Result<Welcome, HandshakeError> {
    match setup::decode(body).map_err(SocketError::Frame)? {
        Answer::Welcome(welcome) => Ok(welcome),
        Answer::Refused(reason) => Err(HandshakeError::Refused(reason)),
        Answer::Sealed(_) => Err(HandshakeError::ServerUnproven),
    }
}
