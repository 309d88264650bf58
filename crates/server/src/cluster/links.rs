//! Connections to other servers. Each has a thread for messages, which may be lost, and each question to one a thread of its
//! own for as long as it takes: its answer may depend on messages that come and go meanwhile.

use super::wire::{ToPeer, Verdict};
use crate::cluster_config::ClusterConfig;
use isonomia_cluster::request::Request;
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_proto::setup::Claims;
use isonomia_transport::address::Address;
use isonomia_transport::channel::Manner;
use isonomia_transport::handshake::{HandshakeError, Identity, Protection};
use isonomia_transport::key::fresh_nonce;
use isonomia_transport::line::Line;
use isonomia_transport::socket::{Deadline, SocketError};
use isonomia_units::{Ino, Nanos, ServerId};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Messages that wait for one server at most; further ones are dropped.
const WAITING_MAX: usize = 256;
/// Questions that are asked at once at most.
const QUESTIONS_MAX: usize = 256;
/// How long a server may take to accept a connection, and to confirm a message.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// The job that a server's messages to others count for.
const JOB: &str = "isonomia-cluster";
/// Room for a verdict.
const REPLY_LEN_MAX: usize = 64;

/// Kind and bytes of a message.
type Sent = (u32, Vec<u8>);

/// The ways to other servers.
pub struct Links {
    reach: Arc<Reach>,
    to: HashMap<ServerId, SyncSender<Sent>>,
    questions: Arc<AtomicUsize>,
    waiting_max: usize,
}

/// What is needed to connect.
pub struct Reach {
    config: ClusterConfig,
    identity: Identity,
}

impl Links {
    /// No connection yet.
    pub fn new(config: ClusterConfig, (key_file, protection): (Option<String>, Protection)) -> Self {
        let claims = Claims { job: Some(JOB.to_owned()), ..Claims::default() };
        // All connections of this process are one client's; without randomness each server's number is as good.
        let client = fresh_nonce()
            .map_or(u64::from(config.number.0), |nonce| u64::from_le_bytes(std::array::from_fn(|at| nonce[at])));
        let identity = Identity { client, claims, key_file, protection, ..Identity::default() };
        let reach = Arc::new(Reach { config, identity });
        Self { reach, to: HashMap::new(), questions: Arc::default(), waiting_max: WAITING_MAX }
    }

    /// The same for messages of which the next one replaces those before: a server that is slow gets few, and no old ones.
    pub fn of_the_latest(config: ClusterConfig, way: (Option<String>, Protection)) -> Self {
        Self { waiting_max: 1, ..Self::new(config, way) }
    }

    /// What is needed to reach servers from other threads.
    pub fn reach(&self) -> Arc<Reach> {
        self.reach.clone()
    }

    /// Sends a message if it can: its kind and its bytes.
    pub fn send(&mut self, to: ServerId, message: Sent) {
        let (reach, waiting_max) = (&self.reach, self.waiting_max);
        let queue = self.to.entry(to).or_insert_with(|| {
            let (queue, messages) = sync_channel(waiting_max);
            let reach = reach.clone();
            // If no thread can be started, messages are lost as on a network that is down.
            let _ =
                std::thread::Builder::new().name(format!("peer {to}")).spawn(move || deliver(&reach, to, &messages));
            queue
        });
        // Messages that are dropped are sent again by the protocol.
        let _ = queue.try_send(message);
    }

    /// Asks a server for a change, and gives `answer` what it says; that is not called if too much is being asked.
    pub(super) fn ask(
        &self,
        server: ServerId,
        request: Request,
        patience: Nanos,
        answer: impl FnOnce(Verdict) + Send + 'static,
    ) -> Result<(), Errno> {
        let asked = self.questions.clone();
        if asked.fetch_add(1, Ordering::AcqRel) >= QUESTIONS_MAX {
            asked.fetch_sub(1, Ordering::AcqRel);
            return Err(Errno::AGAIN);
        }
        let (reach, questions) = (self.reach.clone(), self.questions.clone());
        let spawned = std::thread::Builder::new().name(format!("question {server}")).spawn(move || {
            let verdict = question(&reach, server, request, patience);
            questions.fetch_sub(1, Ordering::AcqRel);
            answer(verdict);
        });
        spawned.map(drop).map_err(|_| {
            asked.fetch_sub(1, Ordering::AcqRel);
            Errno::AGAIN
        })
    }
}

/// Delivers messages to a server until there are no more.
fn deliver(reach: &Reach, to: ServerId, messages: &Receiver<Sent>) {
    let mut line = None;
    while let Ok((kind, bytes)) = messages.recv() {
        let was_connected = line.is_some();
        let mut delivered = reach.exchange(&mut line, to, (kind, &bytes), &mut [], PATIENCE);
        if was_connected && matches!(delivered, Err(LinkError::Socket(SocketError::Closed | SocketError::System(_)))) {
            // The server has started again meanwhile: it waits for what others tell it.
            line = None;
            delivered = reach.exchange(&mut line, to, (kind, &bytes), &mut [], PATIENCE);
        }
        if let Err(error) = delivered {
            line = None;
            tracing::debug!(server = %to, %error, "a message to a server is lost");
            // They are as old as this one: what matters will be said again.
            while messages.try_recv().is_ok() {}
        }
    }
}

fn question(reach: &Reach, server: ServerId, request: Request, patience: Nanos) -> Verdict {
    let (mut line, mut reply) = (None, [0; REPLY_LEN_MAX]);
    let (kind, bytes) = ToPeer::Request(request).encode();
    match reach.exchange(&mut line, server, (kind, &bytes), &mut reply, patience) {
        Ok(len) => Verdict::decode(&reply[..len]),
        Err(error) => {
            tracing::warn!(%server, %error, "the root server does not decide");
            Verdict::failed(Errno::TIMEDOUT)
        }
    }
}

/// Why something did not get to a server.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("it is not in the cluster file")]
    Unknown,
    #[error(transparent)]
    Connect(#[from] HandshakeError),
    #[error("it is server {0}")]
    Another(ServerId),
    #[error("it is server {0} of another file system")]
    Foreign(ServerId),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("it answers errno {0}")]
    Refused(u32),
}

impl Reach {
    /// Sends these bytes of this kind over `line`, connected if need be; how long the reply is.
    pub fn exchange(
        &self,
        line: &mut Option<Line>,
        server: ServerId,
        (kind, bytes): (u32, &[u8]),
        reply: &mut [u8],
        patience: Nanos,
    ) -> Result<usize, LinkError> {
        let line = match line {
            Some(line) => line,
            None => line.insert(self.connect(server)?),
        };
        let header = RequestHeader {
            valid: kind,
            offset: u64::from(self.config.number.0),
            len: bytes.len() as u32,
            ..RequestHeader::new(Op::Peer, Ino::ROOT)
        };
        let (reply_header, _) = line.exchange(&header, [bytes, b""], reply, patience, Manner::default())?;
        match reply_header.errno {
            0 => Ok(reply_header.payload_len as usize),
            errno => Err(LinkError::Refused(errno)),
        }
    }

    /// By shared memory where the server is on this host, else over TCP.
    fn connect(&self, server: ServerId) -> Result<Line, LinkError> {
        let map = self.config.map();
        let known = map.server(server).ok_or(LinkError::Unknown)?;
        let mut addresses: Vec<&Address> = known.listen.iter().collect();
        addresses.sort_by_key(|address| matches!(address, Address::Tcp(_)));
        let mut identity = self.identity.clone();
        identity.protection.server_name = Some(known.name.to_string());
        let mut trouble = LinkError::Unknown;
        for address in addresses {
            match Line::open(address, &identity, Deadline::after(PATIENCE)) {
                Ok(line) if line.file_system() != map.file_system() => trouble = LinkError::Foreign(line.server()),
                Ok(line) if line.server() == server => return Ok(line),
                Ok(line) => trouble = LinkError::Another(line.server()),
                Err(error) => trouble = error.into(),
            }
        }
        Err(trouble)
    }
}
