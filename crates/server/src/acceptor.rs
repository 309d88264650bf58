//! The acceptor: one thread that accepts connections, hears who they are, and hands them to the workers or, if they are
//! operators', to [`crate::control`].
//!
//! It waits for nobody: what a pending connection has said so far is all that is kept of it, and names are looked up and
//! credentials decoded on other threads ([`crate::names`], [`crate::munge`]). It is fair: each origin has a bounded share of the slots for pending connections
//! ([`crate::pools`]), and of those that have said hello one is admitted after the other, round-robin over origins, since that is where the
//! work is. How many connections a user may have is for [`crate::usage`] to say.

use crate::changes::Changes;
use crate::clock;
use crate::connection::{Connection, Cursors, Progress, Shared, StreamState, Way};
use crate::control::Control;
use crate::core::Core;
use crate::identity::{self, Admission, Credentials, Peer};
use crate::inquiries::{self, Found};
use crate::jobs::Job;
use crate::limits::Limits;
use crate::munge::{self, Decoder, Library, NotVouched};
use crate::names::{self, Groups, LookUp, Names, Who};
use crate::pending::{Pending, Proof, Ready, Tcp, TurnedAway, uid_of};
use crate::pools::{Origin, Pools};
use crate::rejections::Rejection;
use crate::stalls::SMALL_LEN;
use crate::status::About;
use crate::stream::{self, Frame, FrameError, Head};
use crate::usage::{Permit, Usage};
use isonomia_proto::setup::{self, Answer, Auth, Challenge, Integrity, Role, Welcome};
use isonomia_proto::{PAYLOAD_LEN_MAX, PROTOCOL_VERSION};
use isonomia_transport::key::fresh_nonce;
use isonomia_transport::region::{REGION_LEN, SLOT_LEN, ServerRegion};
use isonomia_transport::seal::Seals;
use isonomia_transport::socket::{self, Deadline, send_all, send_with_descriptor};
use isonomia_units::Nanos;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt};
use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A connection that has not said hello for this long is closed.
const HELLO_WITHIN: Nanos = Nanos::from_secs(10);
/// Kernel memory for what a stream sends before it is served; the kernel takes twice as much with its own account of it.
const STREAM_BUFFER_LEN: usize = 256 << 10;
/// What a stream is charged: that, and a short payload or reply whose client stalls.
const STREAM_MEMORY_LEN: usize = 2 * STREAM_BUFFER_LEN + SMALL_LEN;
/// Connections accepted from one listener before others are looked at.
const ACCEPT_BATCH: usize = 64;
/// Connections admitted before new ones are looked at: one of these takes as long as accepting ten.
const ADMIT_BATCH: usize = 16;
/// How long nothing is accepted after the system had no descriptor or memory for it.
const PAUSE: Nanos = Nanos::from_millis(100);
/// Between two looks at who has been silent for too long.
const LOOK_EVERY: Nanos = Nanos::from_millis(200);
/// Addresses listened on at most: their keys in epoll are below this, those of connections above.
pub const LISTENERS_MAX: u64 = 64;
/// The key in epoll of the event counter that tells of a name that was found, or of a connection that was closed.
const BELL: u64 = u64::MAX;

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: OwnedFd,
    /// How its clients prove who they are; nothing on a Unix socket, where the kernel vouches for them.
    pub proof: Option<Proof>,
}

/// What is asked of clients on TCP.
#[derive(Debug)]
pub struct Terms {
    /// The name of this server.
    pub name: String,
    /// The least integrity, if the operator has said something.
    pub integrity: Option<Integrity>,
    /// Munge's library, if it vouches for clients.
    pub munge: Option<Library>,
}

/// See the module.
pub struct Acceptor {
    core: Arc<Core>,
    about: Arc<About>,
    control: Arc<Control>,
    usage: Arc<Usage>,
    names: Names,
    /// Of users whom munge vouches for.
    groups: Groups,
    /// If munge vouches for clients.
    decoder: Option<Decoder>,
    name: String,
    integrity: Option<Integrity>,
    listeners: Vec<Listener>,
    /// Whom a key stands for: the owner of this process.
    owner: Credentials,
    epoll: OwnedFd,
    bell: OwnedFd,
    pools: Pools,
    pending: HashMap<u64, Pending>,
    ready: Ready,
    /// Connections that said hello and wait for a name or for groups, or have a credential and find the thread busy.
    waiting: Vec<u64>,
    next_id: u64,
    /// When listeners are looked at again, if they are not.
    paused_until: Option<Nanos>,
    look_at: Nanos,
}

impl Acceptor {
    /// An acceptor at `listeners` that finds names by `look_up`.
    pub fn new(
        core: Arc<Core>,
        about: Arc<About>,
        control: Arc<Control>,
        limits: Limits,
        (listeners, terms): (Vec<Listener>, Terms),
        look_up: impl LookUp,
    ) -> std::io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, listener) in listeners.iter().enumerate() {
            epoll::add(&poll, &listener.socket, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&poll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        core.unfinished.set_bell(bell.try_clone()?);
        let decoder = match terms.munge {
            Some(library) => {
                Some(Decoder::new(move |credential: &[u8]| library.decode(credential), bell.try_clone()?)?)
            }
            None => None,
        };
        let owner = Credentials {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: Vec::new(),
        };
        let sockets: Vec<&str> =
            about.listen.iter().map(String::as_str).filter(|address| address.starts_with("unix:")).collect();
        // It is set once, before anybody can ask for it.
        let _ = core.sockets.set(sockets.join("\n"));
        Ok(Self {
            core,
            about,
            control,
            names: Names::new(look_up, bell.try_clone()?)?,
            groups: names::groups(bell.try_clone()?)?,
            decoder,
            name: terms.name,
            integrity: terms.integrity,
            listeners,
            owner,
            epoll: poll,
            bell,
            pools: Pools::new(limits.pending),
            usage: Arc::new(Usage::new(limits)),
            pending: HashMap::new(),
            ready: Ready::default(),
            waiting: Vec::new(),
            next_id: LISTENERS_MAX,
            paused_until: None,
            look_at: Nanos::ZERO,
        })
    }

    /// Accepts until the server stops.
    pub fn run(&mut self) {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; 64];
        while !self.core.is_stopping.load(Ordering::Relaxed) {
            let wait = if self.ready.is_empty() { LOOK_EVERY } else { Nanos::ZERO };
            let wait = Timespec { tv_sec: 0, tv_nsec: wait.0 as _ };
            let count = epoll::wait(&self.epoll, &mut events[..], Some(&wait)).unwrap_or(0);
            for event in &events[..count] {
                match event.data.u64() {
                    BELL => {
                        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
                        self.hear_munge();
                        self.try_waiting();
                    }
                    listener if listener < LISTENERS_MAX => self.accept_some(listener as usize),
                    id => self.hear(id),
                }
            }
            for _ in 0..ADMIT_BATCH {
                let Some(id) = self.ready.pop() else { break };
                self.admit(id);
            }
            let now = clock::now();
            if now >= self.look_at {
                self.look_at = now + LOOK_EVERY;
                self.look_after(now);
            }
        }
    }

    fn accept_some(&mut self, listener: usize) {
        for _ in 0..ACCEPT_BATCH {
            let Some(Listener { socket, proof }) = self.listeners.get(listener) else { return };
            let (socket, address) = match acceptfrom_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(accepted) => accepted,
                Err(Errno::AGAIN) => return,
                // The client has hung up meanwhile, or the network failed: the next connection may be accepted.
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN | Errno::HOSTUNREACH) => continue,
                Err(errno) => return self.pause(errno),
            };
            let address = address.and_then(|address| SocketAddr::try_from(address).ok());
            match self.begin(socket, address, proof.clone()) {
                Ok(pending) => self.enter(pending),
                Err(errno) => {
                    self.core.rejections.count(Rejection::System);
                    tracing::warn!(%errno, "connection closed during set-up");
                }
            }
        }
    }

    /// Accepts nothing for a while, and does not listen to events of the listeners: the kernel would report those that wait in
    /// its queue again and again.
    fn pause(&mut self, errno: Errno) {
        self.core.rejections.count(Rejection::System);
        tracing::error!(%errno, "cannot accept connections for the moment");
        self.paused_until = Some(clock::now() + PAUSE);
        self.look_at_listeners(epoll::EventFlags::empty());
    }

    fn look_at_listeners(&self, flags: epoll::EventFlags) {
        for (index, listener) in self.listeners.iter().enumerate() {
            // It cannot fail: listeners are in epoll from the start to the end.
            let _ = epoll::modify(&self.epoll, &listener.socket, epoll::EventData::new_u64(index as u64), flags);
        }
    }

    fn begin(&self, socket: OwnedFd, address: Option<SocketAddr>, proof: Option<Proof>) -> Result<Pending, Errno> {
        let (peer, origin, tcp) = match proof {
            None => {
                let credentials =
                    identity::peer_credentials(&socket).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
                let origin = self.origin_of(credentials.uid);
                (Some(Peer::Local(credentials)), origin, None)
            }
            Some(proof) => {
                sockopt::set_tcp_nodelay(&socket, true)?;
                let nonce = fresh_nonce()?;
                let auth = if matches!(proof, Proof::Key(_)) { Auth::Key } else { Auth::Munge };
                let (version, uid, name) = (PROTOCOL_VERSION, self.owner.uid, self.name.clone());
                let challenge = setup::body(&Challenge { version, nonce, auth, uid, name });
                // A fresh socket takes these few bytes at once.
                stream::send(&socket, &setup::frame(&challenge)).map_err(|_| Errno::PIPE)?;
                let ip = address.map(|address| address.ip());
                let is_loopback = ip.is_some_and(|ip| ip.to_canonical().is_loopback());
                let integrity = Integrity::settle(self.integrity, is_loopback);
                let origin = ip.map_or(Origin::Address(0), Origin::from_address);
                let peer = matches!(proof, Proof::Key(_)).then(|| Peer::Keyed(self.owner.clone()));
                (peer, origin, Some(Tcp { proof, challenge, nonce, integrity }))
            }
        };
        let deadline = clock::now() + HELLO_WITHIN;
        Ok(Pending { socket, peer, origin, tcp, heard: Vec::new(), opening: None, hello: None, deadline })
    }

    fn origin_of(&self, uid: u32) -> Origin {
        if self.is_operator(uid) { Origin::Operator } else { Origin::User(uid) }
    }

    fn is_operator(&self, uid: u32) -> bool {
        uid == 0 || uid == self.owner.uid
    }

    /// Gives a connection a permit, and closes the one whose slot that was.
    fn enter(&mut self, pending: Pending) {
        self.next_id += 1;
        let id = self.next_id;
        let data = epoll::EventData::new_u64(id);
        if let Err(errno) = epoll::add(&self.epoll, &pending.socket, data, epoll::EventFlags::IN) {
            self.core.rejections.count(Rejection::System);
            tracing::warn!(%errno, "connection closed during set-up");
            return;
        }
        if let Some(gone) = self.pools.enter(id, pending.origin)
            && let Some(displaced) = self.pending.remove(&gone)
        {
            self.ready.remove(displaced.origin, gone);
            self.waiting.retain(|id| *id != gone);
            self.core.rejections.count(Rejection::Displaced);
            // The client is sent no reason: one without bad intent connects again.
            tracing::warn!(uid = uid_of(displaced.peer.as_ref()), from = ?displaced.origin, "too many connections in set-up");
        }
        self.pending.insert(id, pending);
    }

    fn hear(&mut self, id: u64) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        let outcome = match stream::receive_frame(&pending.socket, &mut pending.heard) {
            Ok(Frame::Part) => return,
            Ok(Frame::End) => return self.leave(id),
            Ok(Frame::Whole(body)) => pending.take(&body),
            Err(FrameError::Bad(bad)) => Err(bad.into()),
            Err(FrameError::System(errno)) => Err(errno.into()),
        };
        if let Err(reason) = outcome {
            return self.refuse(id, &reason);
        }
        // What the client sends from now on is read by the workers, or by the thread of the control connections.
        let _ = epoll::delete(&self.epoll, &pending.socket);
        self.has_spoken(id);
    }

    /// A connection waits from now on for its turn, and for no longer than it may.
    fn has_spoken(&mut self, id: u64) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        let wait = match &pending.hello {
            None => munge::WAIT,
            Some((hello, _)) if hello.role == Role::Control => Nanos::ZERO,
            Some(_) => inquiries::WAIT,
        };
        pending.deadline = clock::now() + wait;
        self.ready.push(pending.origin, id);
    }

    /// Takes what was found out about credentials.
    fn hear_munge(&mut self) {
        while let Some(Ok((id, vouched))) = self.decoder.as_ref().map(Decoder::answer) {
            let Some(pending) = self.pending.get_mut(&id) else { continue };
            match pending.take_vouched(&self.name, vouched) {
                Ok(()) => self.has_spoken(id),
                Err(reason) => self.refuse(id, &reason),
            }
        }
    }

    fn leave(&mut self, id: u64) {
        self.pools.leave(id);
        self.pending.remove(&id);
    }

    fn refuse(&mut self, id: u64, reason: &TurnedAway) {
        if let Some(pending) = self.pending.remove(&id) {
            self.pools.leave(id);
            self.turn_away(&pending.socket, pending.peer.as_ref(), reason);
        }
    }

    fn turn_away(&self, socket: &OwnedFd, peer: Option<&Peer>, reason: &TurnedAway) {
        self.core.refused_total.fetch_add(1, Ordering::Relaxed);
        self.core.rejections.count(reason.rejection());
        tracing::warn!(uid = uid_of(peer), %reason, "connection refused");
        let _ = stream::send(socket, &setup::encode(&Answer::Refused(reason.to_string())));
    }

    /// Has a credential decoded; if too many others wait for that, later.
    fn ask_munge(&mut self, id: u64) {
        let (Some(pending), Some(decoder)) = (self.pending.get(&id), &self.decoder) else { return };
        let Some(opening) = &pending.opening else { return };
        if !decoder.ask(id, &opening.credential, pending.deadline) {
            self.waiting.push(id);
        }
    }

    /// Admits a connection that said hello, or leaves it to wait for a name.
    fn admit(&mut self, id: u64) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        let Some((hello, _)) = &pending.hello else { return self.ask_munge(id) };
        let now = clock::now();
        let Some(peer) = &mut pending.peer else { return };
        if let Peer::Munged(credentials) = &mut *peer
            && hello.role != Role::Control
        {
            match self.groups.get(credentials.uid, now) {
                Found::Known(groups) => credentials.groups = groups.to_vec(),
                Found::Asked if now < pending.deadline => return self.waiting.push(id),
                Found::Asked | Found::Failed | Found::Overloaded => {
                    let reason = TurnedAway::NoGroups(credentials.uid);
                    return self.refuse(id, &reason);
                }
            }
        }
        let is_unnamed = Cell::new(false);
        let name = |who: Who| {
            self.names.get(who, now).unwrap_or_else(|| {
                is_unnamed.set(true);
                who.number()
            })
        };
        let proven_job = |uid| identity::proven_job(&pending.socket, uid);
        let trust = self.about.trust_clients;
        let admission = identity::admit(peer, hello, trust, self.owner.uid, &name, proven_job);
        match admission {
            Ok(_) if is_unnamed.get() && now < pending.deadline => self.waiting.push(id),
            Ok(admission)
                if hello.role != Role::Control
                    && self.core.unfinished.holds_back((admission.credentials.uid, hello.client), now) =>
            {
                if socket::is_ended(pending.socket.as_fd()) {
                    self.leave(id)
                } else {
                    self.waiting.push(id)
                }
            }
            Ok(admission) => {
                let Some(pending) = self.pending.remove(&id) else { return };
                self.pools.leave(id);
                self.welcome(pending, admission);
            }
            Err(reason) => self.refuse(id, &reason.into()),
        }
    }

    /// Connections that wait for names, groups, the thread that decodes, or what earlier ones are changing, try again.
    fn try_waiting(&mut self) {
        for id in std::mem::take(&mut self.waiting) {
            if let Some(pending) = self.pending.get(&id) {
                self.ready.push(pending.origin, id);
            }
        }
    }

    /// Closes those that are silent, and sees whether names and descriptors are there by now.
    fn look_after(&mut self, now: Nanos) {
        let is_silent = |pending: &Pending| pending.hello.is_none() && pending.deadline <= now;
        let silent: Vec<u64> = self.pending.iter().filter(|(_, p)| is_silent(p)).map(|(id, _)| *id).collect();
        for id in silent {
            if self.pending.get(&id).is_some_and(|pending| pending.opening.is_some()) {
                self.refuse(id, &NotVouched::Away("no answer in time".to_owned()).into());
            } else {
                self.core.rejections.count(Rejection::Silence);
                self.leave(id);
            }
        }
        self.try_waiting();
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
            self.look_at_listeners(epoll::EventFlags::IN);
        }
    }
}

impl Acceptor {
    /// Welcomes a connection, and hands it to the workers or to the thread of the control connections.
    fn welcome(&mut self, mut pending: Pending, admission: Admission) {
        let (Some((hello, responder)), Some(peer)) = (pending.hello.take(), pending.peer.take()) else { return };
        let payload_len_max = if hello.role == Role::SharedMemory { SLOT_LEN } else { PAYLOAD_LEN_MAX };
        let integrity = pending.tcp.as_ref().map_or(Integrity::None, |tcp| tcp.integrity.max(hello.integrity));
        let session_key = (admission.credentials.uid, hello.client);
        let session = (hello.role != Role::Control).then(|| self.core.sessions.join(session_key));
        let mount = (hello.mount != 0).then_some(hello.mount);
        session.iter().zip(mount).for_each(|(session, mount)| _ = session.mount.set(mount));
        if let Some(session) = session.as_ref().filter(|_| self.core.holders.may_continue(session_key, hello.continues))
        {
            session.continues.store(true, Ordering::Relaxed);
        }
        let welcome = Welcome {
            session: session.as_ref().map_or(0, |session| session.number),
            server: self.about.server,
            job: admission.job.name.to_string(),
            payload_len_max: payload_len_max as u32,
            integrity,
            verifier: self.core.store.verifier(),
            file_system: self.core.file_system(),
        };
        let (welcome, seals) = match responder.map(|responder| responder.finish(&setup::body(&welcome))) {
            None => (setup::encode(&Answer::Welcome(welcome)), None),
            Some(Ok((message, keys))) => (setup::encode(&Answer::Sealed(message)), Seals::new(&keys, integrity)),
            Some(Err(failed)) => {
                session.inspect(|_| self.core.leave_session(session_key));
                return self.turn_away(&pending.socket, Some(&peer), &failed.into());
            }
        };
        let Some(session) = session else {
            // A client that does not take these few bytes has hung up.
            if stream::send(&pending.socket, &welcome).is_ok() {
                let origin = match &peer {
                    Peer::Local(_) => pending.origin,
                    Peer::Keyed(_) => Origin::Keyed,
                    Peer::Munged(credentials) => self.origin_of(credentials.uid),
                };
                self.control.enter(pending.socket, peer, origin, seals);
            }
            return;
        };
        if let (Some(outside), Peer::Local(vouched)) = (self.core.outside.get(), &peer)
            && hello.claims.on_behalf_of.is_none()
            && let Some(proven) = admission.job.within.as_ref().filter(|within| !within.is_empty())
        {
            let groups = identity::io_groups(&pending.socket, vouched.uid, proven);
            outside.enter(&admission.job.user, proven, groups);
        }
        let (way, memory, permit, job) = match self.prepare(&pending, &peer, hello.role, &admission) {
            Ok(prepared) => prepared,
            Err(reason) => {
                self.core.leave_session(session_key);
                return self.turn_away(&pending.socket, Some(&peer), &reason);
            }
        };
        session.charge_to(permit.account());
        self.next_id += 1;
        let connection = Arc::new(Connection {
            id: self.next_id,
            socket: pending.socket,
            credentials: admission.credentials,
            may_ask_for_others: admission.may_ask_for_others,
            is_trusted: admission.is_trusted,
            job,
            session,
            session_key,
            mount,
            way,
            seals: seals.map(Mutex::new),
            cursors: Cursors::default(),
            permit,
            changes: Changes::default(),
            is_closed: AtomicBool::new(false),
        });
        // Before the client hears that it is connected: it relies on being cut off from then on ([`crate::cut_off`]).
        self.core.unfinished.enter(&connection);
        // A fresh socket takes these few bytes at once.
        let now = Deadline::after(Nanos::ZERO);
        let sent = match &memory {
            Some(memory) => send_with_descriptor(connection.socket.as_fd(), &welcome, memory.as_fd(), now),
            None => send_all(connection.socket.as_fd(), &[&welcome], now),
        };
        if sent.is_err() {
            return self.core.close(&connection, None);
        }
        if let Err(errno) = self.core.adopt(connection) {
            self.core.rejections.count(Rejection::System);
            tracing::warn!(%errno, "connection closed during set-up");
        }
    }

    /// Everything that may be refused.
    fn prepare(
        &self,
        pending: &Pending,
        peer: &Peer,
        role: Role,
        admission: &Admission,
    ) -> Result<(Way, Option<OwnedFd>, Permit, Arc<Job>), TurnedAway> {
        // The user who was proved counts, not the one claimed: with `trust_clients` a client on TCP may claim to be anybody.
        let uid = match peer {
            Peer::Local(_) | Peer::Munged(_) => admission.credentials.uid,
            Peer::Keyed(owner) => owner.uid,
        };
        let take = |memory_bytes: usize| self.usage.take(uid, self.is_operator(uid), memory_bytes as u64);
        let (way, memory, permit) = match role {
            Role::SharedMemory if pending.tcp.is_some() => {
                return Err(TurnedAway::Misuse("shared memory is for Unix sockets; on TCP use a stream"));
            }
            Role::SharedMemory => {
                let permit = take(REGION_LEN)?;
                let (region, memory) = ServerRegion::create()?;
                let shared = Shared { region, serving: AtomicU32::new(0), progress: Mutex::new(Progress::default()) };
                (Way::Shared(shared), Some(memory), permit)
            }
            _ if pending.tcp.is_none() => {
                return Err(TurnedAway::Misuse("streams are for TCP; on a Unix socket use shared memory"));
            }
            _ => {
                let permit = take(STREAM_MEMORY_LEN)?;
                sockopt::set_socket_recv_buffer_size(&pending.socket, STREAM_BUFFER_LEN)?;
                (Way::Stream(Mutex::new(StreamState::Head(Head::default()))), None, permit)
            }
        };
        let job = self.core.join_job(admission.job.clone())?;
        self.core.charge_connection(&job);
        Ok((way, memory, permit, job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Server};
    use isonomia_proto::setup::Claims;
    use isonomia_transport::control::ControlConnection;
    use isonomia_transport::handshake::{Identity, open_shared};

    #[test]
    fn a_name_service_that_does_not_answer_keeps_nobody_out() {
        let dir = tempfile::tempdir().unwrap();
        let address: isonomia_transport::address::Address =
            format!("unix:{}", dir.path().join("s").display()).parse().unwrap();
        let config = Config { listen: vec![address.clone()], ..Config::default() };
        // A name service that does not answer before the end of the test.
        let (_end, hanging) = std::sync::mpsc::channel::<String>();
        let server = Server::start_with(config, move |_| hanging.recv().unwrap_or_default()).unwrap();
        let claims = Claims { job: Some("j".to_owned()), ..Claims::default() };
        let identity = Identity { client: 1, claims, ..Identity::default() };
        std::thread::scope(|scope| {
            let session =
                scope.spawn(|| open_shared(&address, &identity, Deadline::after(Nanos::from_secs(20))).unwrap());
            ControlConnection::connect(&address, None, Nanos::from_secs(20)).unwrap();
            let _session = session.join().unwrap();
            let (jobs, uid) = (server.status().jobs, rustix::process::geteuid().as_raw());
            assert_eq!((jobs.len(), &*jobs[0].user), (1, &*uid.to_string()), "a number for a name");
        });
    }
}
