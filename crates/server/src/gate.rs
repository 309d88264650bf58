//! The gate: one thread that accepts connections, hears their hello, and either hands them to the workers or
//! answers an operator's questions.
//!
//! It waits for nobody: a connection has [`HELLO_WITHIN`] to say hello, and what it has said so far is all that is
//! kept of it. At most [`PENDING_MAX`] connections are at the gate at once.

use crate::clock;
use crate::connection::{Connection, Shared, Turn, Way};
use crate::core::Core;
use crate::identity::{self, Credentials, Inadmissible, Peer};
use crate::jobs::TooManyJobs;
use crate::operator;
use crate::status::About;
use crate::stream::{self, Moved, StreamEnd, StreamState};
use isonomia_proto::setup::{self, Answer, BadFrame, Challenge, Hello, Role, SETUP_HEADER_LEN, SETUP_LEN_MAX, Welcome};
use isonomia_proto::{PAYLOAD_LEN_MAX, PROTOCOL_VERSION};
use isonomia_transport::key::{Key, Nonce, Prover, fresh_nonce};
use isonomia_transport::region::{RegionError, SLOT_LEN, ServerRegion};
use isonomia_units::Nanos;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, accept_with, recvmsg, sockopt};
use std::collections::HashMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Connections that have not said hello, or are operators', at once.
const PENDING_MAX: usize = 1_024;
/// A connection that says nothing for this long is closed.
const HELLO_WITHIN: Nanos = Nanos::from_secs(10);
/// An operator who asks nothing for this long is let go.
const OPERATOR_WITHIN: Nanos = Nanos::from_secs(600);
/// Kernel memory for what a stream sends ahead of its turn.
const STREAM_BUFFER_LEN: usize = 256 << 10;
/// Keys of listeners in epoll; connections have larger ones.
const LISTENERS_MAX: u64 = 64;
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: OwnedFd,
    /// The key that its clients must know; none on a Unix socket, where the kernel vouches for them.
    pub key: Option<Key>,
}

/// See the module.
pub struct Gate {
    core: Arc<Core>,
    about: Arc<About>,
    listeners: Vec<Listener>,
    /// Whom a key stands for: the owner of this process.
    owner: Credentials,
    epoll: OwnedFd,
    pending: HashMap<u64, Guest>,
    next_id: u64,
}

/// A connection at the gate.
struct Guest {
    socket: OwnedFd,
    peer: Peer,
    key: Option<(Key, Nonce)>,
    heard: Vec<u8>,
    memory: Option<OwnedFd>,
    is_operator: bool,
    deadline: Nanos,
}

/// Why a connection is turned away.
#[derive(Debug, thiserror::Error)]
enum TurnedAway {
    #[error("{0}")]
    Frame(#[from] BadFrame),
    #[error("{0}")]
    Identity(#[from] Inadmissible),
    #[error("{0}")]
    Jobs(#[from] TooManyJobs),
    #[error("{0}")]
    Region(#[from] RegionError),
    #[error("the key is not the server's")]
    WrongKey,
    #[error("{0}")]
    Misuse(&'static str),
    #[error("{0}")]
    System(#[from] Errno),
}

/// Whether a guest stays at the gate.
enum Next {
    Stay,
    Gone,
}

impl Gate {
    /// A gate at `listeners`.
    pub fn new(core: Arc<Core>, about: Arc<About>, listeners: Vec<Listener>) -> Result<Self, Errno> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, listener) in listeners.iter().enumerate() {
            epoll::add(&poll, &listener.socket, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
        }
        let owner = Credentials {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: Vec::new(),
        };
        Ok(Self { core, about, listeners, owner, epoll: poll, pending: HashMap::new(), next_id: LISTENERS_MAX })
    }

    /// Serves the gate until the server stops.
    pub fn run(&mut self) {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; 64];
        while !self.core.is_stopping.load(Ordering::Relaxed) {
            let count = epoll::wait(&self.epoll, &mut events[..], Some(&LOOK_EVERY)).unwrap_or(0);
            for event in &events[..count] {
                match event.data.u64() {
                    listener if listener < LISTENERS_MAX => self.accept(listener as usize),
                    guest => self.hear(guest),
                }
            }
            let now = clock::now();
            self.pending.retain(|_, guest| guest.deadline > now);
        }
    }

    fn accept(&mut self, listener: usize) {
        let Some(Listener { socket, key }) = self.listeners.get(listener) else { return };
        let accepted = match accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(errno) => {
                tracing::error!(%errno, "cannot accept a connection");
                return;
            }
        };
        if self.pending.len() >= PENDING_MAX {
            tracing::warn!("connection closed: {PENDING_MAX} others are waiting to be let in");
            return;
        }
        let guest = match self.receive_guest(accepted, key.clone()) {
            Ok(guest) => guest,
            Err(errno) => {
                tracing::warn!(%errno, "connection closed during set-up");
                return;
            }
        };
        self.next_id += 1;
        let id = self.next_id;
        if epoll::add(&self.epoll, &guest.socket, epoll::EventData::new_u64(id), epoll::EventFlags::IN).is_ok() {
            self.pending.insert(id, guest);
        }
    }

    fn receive_guest(&self, socket: OwnedFd, key: Option<Key>) -> Result<Guest, Errno> {
        let deadline = clock::now() + HELLO_WITHIN;
        let (peer, key) = match key {
            None => {
                let credentials =
                    identity::peer_credentials(&socket).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
                (Peer::Local(credentials), None)
            }
            Some(key) => {
                sockopt::set_tcp_nodelay(&socket, true)?;
                let nonce = fresh_nonce()?;
                let challenge = setup::encode(&Challenge { version: PROTOCOL_VERSION, nonce });
                // A fresh socket takes these few bytes at once.
                stream::send(&socket, &challenge).map_err(|_| Errno::PIPE)?;
                (Peer::Keyed(self.owner.clone()), Some((key, nonce)))
            }
        };
        Ok(Guest { socket, peer, key, heard: Vec::new(), memory: None, is_operator: false, deadline })
    }

    fn hear(&mut self, id: u64) {
        let Some(mut guest) = self.pending.remove(&id) else { return };
        match self.attend(&mut guest) {
            Ok(Next::Stay) => {
                self.pending.insert(id, guest);
            }
            Ok(Next::Gone) => {}
            Err(reason) => {
                self.core.refused_total.fetch_add(1, Ordering::Relaxed);
                let uid = match &guest.peer {
                    Peer::Local(c) => Some(c.uid),
                    Peer::Keyed(_) => None,
                };
                tracing::warn!(uid, %reason, "connection refused");
                let answer = setup::encode(&Answer::Refused(reason.to_string()));
                let _ = stream::send(&guest.socket, &answer);
            }
        }
    }

    /// Hears what there is; answers and hands over once a frame is complete.
    fn attend(&mut self, guest: &mut Guest) -> Result<Next, TurnedAway> {
        loop {
            let wanted = match guest.heard.first_chunk::<SETUP_HEADER_LEN>() {
                None => SETUP_HEADER_LEN,
                Some(header) => SETUP_HEADER_LEN + setup::body_len(header, SETUP_LEN_MAX)?,
            };
            if guest.heard.len() == wanted && wanted > SETUP_HEADER_LEN {
                let body = guest.heard.split_off(SETUP_HEADER_LEN);
                guest.heard.clear();
                if guest.is_operator {
                    let reply = operator::answer(&self.core, &self.about, &guest.peer, &body);
                    let frame = setup::frame(&reply);
                    if stream::send(&guest.socket, &frame).map_err(|_| Errno::PIPE)? < frame.len() {
                        return Err(TurnedAway::Misuse("an operator does not take the answer"));
                    }
                    guest.deadline = clock::now() + OPERATOR_WITHIN;
                    continue;
                }
                return self.welcome(guest, &setup::decode(&body)?);
            }
            let mut filled = guest.heard.len();
            guest.heard.resize(wanted, 0);
            let moved = receive_with_memory(&guest.socket, &mut guest.heard, &mut filled, &mut guest.memory);
            guest.heard.truncate(filled);
            match moved {
                Ok(Moved::All) => {}
                Ok(Moved::Part) => return Ok(Next::Stay),
                Err(StreamEnd::Closed) => return Ok(Next::Gone),
                Err(StreamEnd::System(errno)) => return Err(errno.into()),
                Err(StreamEnd::Bad(_)) => return Err(TurnedAway::Misuse("not a set-up frame")),
            }
        }
    }

    fn welcome(&mut self, guest: &mut Guest, hello: &Hello) -> Result<Next, TurnedAway> {
        setup::check_version(hello.version)?;
        let mut proof = [0; 32];
        if let Some((key, nonce)) = &guest.key {
            if !key.check(Prover::Client, &hello.nonce, nonce, &hello.proof) {
                return Err(TurnedAway::WrongKey);
            }
            proof = key.prove(Prover::Server, &hello.nonce, nonce);
        }
        let admission = identity::admit(&guest.peer, hello, self.about.trust_clients, self.owner.uid)?;
        let payload_len_max = if hello.role == Role::SharedMemory { SLOT_LEN } else { PAYLOAD_LEN_MAX };
        let welcome = setup::encode(&Answer::Welcome(Welcome {
            server: self.about.server,
            job: admission.job.name.to_string(),
            payload_len_max: payload_len_max as u32,
            proof,
        }));
        let way = match hello.role {
            Role::Control => {
                stream::send(&guest.socket, &welcome).map_err(|_| Errno::PIPE)?;
                guest.is_operator = true;
                guest.deadline = clock::now() + OPERATOR_WITHIN;
                return self.attend(guest);
            }
            Role::SharedMemory => {
                let memory = guest.memory.take().ok_or(TurnedAway::Misuse("no shared memory came with the hello"))?;
                let region = ServerRegion::map(memory)?;
                Way::Shared(Shared { region, serving: AtomicU32::new(0), turn: Mutex::new(Turn::default()) })
            }
            Role::Stream if guest.key.is_none() => {
                return Err(TurnedAway::Misuse("streams are for TCP; on a Unix socket use shared memory"));
            }
            Role::Stream => {
                sockopt::set_socket_recv_buffer_size(&guest.socket, STREAM_BUFFER_LEN)?;
                Way::Stream(Mutex::new(StreamState::Head(Vec::new())))
            }
        };
        let socket = guest.socket.try_clone().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::MFILE))?;
        let _ = epoll::delete(&self.epoll, &guest.socket);
        let (job, is_news) = self.core.jobs.join(admission.job)?;
        if is_news {
            self.core.announce(&job);
        }
        self.next_id += 1;
        let process_key = (admission.credentials.uid, hello.client);
        let connection = Arc::new(Connection {
            id: self.next_id,
            socket,
            credentials: admission.credentials,
            may_ask_for_others: admission.may_ask_for_others,
            job,
            process: self.core.join_process(process_key),
            process_key,
            way,
            is_closed: AtomicBool::new(false),
        });
        stream::send(&connection.socket, &welcome).map_err(|_| Errno::PIPE)?;
        self.core.adopt(connection)?;
        Ok(Next::Gone)
    }
}

/// Receives into `buffer[*filled..]`, and a descriptor if one is attached.
fn receive_with_memory(
    socket: &impl AsFd,
    buffer: &mut [u8],
    filled: &mut usize,
    memory: &mut Option<OwnedFd>,
) -> Result<Moved, StreamEnd> {
    while *filled < buffer.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(socket, &mut [IoSliceMut::new(&mut buffer[*filled..])], &mut ancillary, flags) {
            Ok(message) if message.bytes == 0 => return Err(StreamEnd::Closed),
            Ok(message) => *filled += message.bytes,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Ok(Moved::Part),
            Err(Errno::CONNRESET) => return Err(StreamEnd::Closed),
            Err(errno) => return Err(StreamEnd::System(errno)),
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                *memory = descriptors.next();
            }
        }
    }
    Ok(Moved::All)
}
