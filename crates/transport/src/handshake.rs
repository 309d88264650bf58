//! The client's part of opening a session.

use crate::address::Address;
use crate::descriptor::Parked;
use crate::key::{Key, KeyError, Prover, fresh_nonce};
use crate::owner::{self, Refusal, Stranger};
use crate::region::{ClientRegion, RegionError};
use crate::socket::{self, Deadline, SocketError};
use isonomia_proto::setup::{self, Answer, Claims, Hello, Role, SETUP_LEN_MAX, Welcome};
use rustix::fd::AsFd;
use rustix::process::{getegid, geteuid, getpid};

/// Why no session was opened.
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
    /// The server does not know the key: it may not be the one it seems to be.
    #[error("the server did not prove that it knows the key")]
    ServerUnproven,
}

/// Who connects.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// One number per client process.
    pub client: u64,
    /// The job.
    pub claims: Claims,
    /// Needed on TCP.
    pub key_file: Option<String>,
    /// Who may run the server on a Unix socket, besides this user and root.
    pub server_user: Option<u32>,
}

/// An open session.
#[derive(Debug)]
pub struct Session {
    /// The connection.
    pub socket: Parked,
    /// What the server answered.
    pub welcome: Welcome,
}

/// Opens a session for requests in shared memory: the address must be a Unix socket's.
pub fn open_shared(
    address: &Address,
    identity: &Identity,
    deadline: Deadline,
) -> Result<(Session, ClientRegion), HandshakeError> {
    let socket = connect(address, identity, deadline)?;
    let hello = setup::encode(&hello(Role::SharedMemory, identity));
    socket::send_all(socket.as_fd(), &[&hello], deadline)?;
    let (body, memory) = socket::receive_frame_with_descriptor(socket.as_fd(), SETUP_LEN_MAX, deadline)?;
    let welcome = decode_answer(&body)?;
    let region = ClientRegion::map(memory.ok_or(RegionError::NotSealed)?)?;
    Ok((Session { socket, welcome }, region))
}

/// Opens a session for requests on the connection itself, or for control.
pub fn open_stream(
    address: &Address,
    role: Role,
    identity: &Identity,
    deadline: Deadline,
) -> Result<Session, HandshakeError> {
    let socket = connect(address, identity, deadline)?;
    let mut hello = hello(role, identity);
    let key = match address {
        Address::Unix(_) => None,
        Address::Tcp(_) => Some(Key::read(identity.key_file.as_deref().ok_or(HandshakeError::KeyMissing)?)?),
    };
    let mut server_nonce = [0; 32];
    if let Some(key) = &key {
        let body = socket::receive_frame(socket.as_fd(), SETUP_LEN_MAX, deadline)?;
        let challenge = setup::decode_challenge(&body).map_err(SocketError::Frame)?;
        server_nonce = challenge.nonce;
        hello.nonce = fresh_nonce().map_err(SocketError::System)?;
        hello.proof = key.prove(Prover::Client, &hello.nonce, &server_nonce);
    }
    socket::send_all(socket.as_fd(), &[&setup::encode(&hello)], deadline)?;
    let welcome = receive_answer(&socket, deadline)?;
    match &key {
        Some(key) if !key.check(Prover::Server, &hello.nonce, &server_nonce, &welcome.proof) => {
            Err(HandshakeError::ServerUnproven)
        }
        _ => Ok(Session { socket, welcome }),
    }
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
        pid: getpid().as_raw_nonzero().get() as u32,
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        ..Hello::new(role, identity.client)
    }
}

fn receive_answer(socket: &Parked, deadline: Deadline) -> Result<Welcome, HandshakeError> {
    decode_answer(&socket::receive_frame(socket.as_fd(), SETUP_LEN_MAX, deadline)?)
}

fn decode_answer(body: &[u8]) -> Result<Welcome, HandshakeError> {
    match setup::decode(body).map_err(SocketError::Frame)? {
        Answer::Welcome(welcome) => Ok(welcome),
        Answer::Refused(reason) => Err(HandshakeError::Refused(reason)),
    }
}
