//! Connections that are being set up: what has come of their hello, which is admitted next, and why some are
//! turned away.

use crate::identity::{Credentials, Inadmissible, Peer};
use crate::jobs::TooManyJobs;
use crate::munge::{NotVouched, Vouched};
use crate::pools::Origin;
use crate::rejections::Rejection;
use crate::usage::Exceeded;
use isonomia_proto::setup::{self, BadFrame, Hello, Integrity, Opening};
use isonomia_transport::key::{Nonce, Secret};
use isonomia_transport::noise::{Failed, Responder};
use isonomia_units::Nanos;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};

/// How clients that connect to a listener on TCP prove who they are.
#[derive(Clone)]
pub enum Proof {
    /// They know the secret of a key.
    Key(Secret),
    /// Munge vouches for them.
    Munge,
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Key(_) => "Key(..)",
            Self::Munge => "Munge",
        })
    }
}

/// A connection that is being set up.
pub struct Pending {
    /// Unix socket or TCP.
    pub socket: OwnedFd,
    /// Who it is, as far as that is proven; with a key, for whom the key would stand.
    pub peer: Option<Peer>,
    /// Whose share of the slots it has.
    pub origin: Origin,
    /// On TCP, what this server said.
    pub tcp: Option<Tcp>,
    /// What has come of its first frame.
    pub heard: Vec<u8>,
    /// What it said, if somebody has yet to vouch for it.
    pub opening: Option<Box<Opening>>,
    /// Its hello, and on TCP the handshake that is to be ended with the answer.
    pub hello: Option<(Box<Hello>, Option<Responder>)>,
    /// When it is closed if it has not said hello, and admitted by numbers if it has.
    pub deadline: Nanos,
}

/// What this server said to a client on TCP.
pub struct Tcp {
    /// What the client has to prove.
    pub proof: Proof,
    /// The encoded challenge.
    pub challenge: Vec<u8>,
    /// The random number in it.
    pub nonce: Nonce,
    /// The least integrity that this server takes from a client at that address.
    pub integrity: Integrity,
}

impl Pending {
    /// Takes the client's first word, in the body of a frame. Either there is a hello then, or somebody has to vouch for it.
    pub fn take(&mut self, body: &[u8]) -> Result<(), TurnedAway> {
        match &self.tcp {
            None => self.hello = Some((Box::new(setup::decode_hello(body)?), None)),
            Some(Tcp { proof: Proof::Key(secret), challenge, .. }) => {
                let opening = setup::decode_opening(body)?;
                let begun = begin(secret, challenge, &opening).ok_or(TurnedAway::WrongKey)?;
                self.hello = Some(hello_of(begun)?);
            }
            Some(Tcp { proof: Proof::Munge, .. }) => self.opening = Some(Box::new(setup::decode_opening(body)?)),
        }
        Ok(())
    }

    /// Takes what munge says of the client's credential; then there is a hello, and the peer has no other groups yet than
    /// that which munge names.
    pub fn take_vouched(&mut self, name: &str, vouched: Result<Vouched, NotVouched>) -> Result<(), TurnedAway> {
        let (Some(opening), Some(tcp)) = (self.opening.take(), &self.tcp) else { return Ok(()) };
        let vouched = vouched?;
        let bound = vouched.check(name, &tcp.nonce, &opening.nonce)?;
        let begun = begin(&bound.secret, &tcp.challenge, &opening).ok_or(NotVouched::OtherConnection)?;
        if <[u8; 32]>::from(Sha256::digest(&begun.1)) != bound.hello {
            return Err(NotVouched::OtherConnection.into());
        }
        self.hello = Some(hello_of(begun)?);
        self.peer = Some(Peer::Munged(Credentials { uid: vouched.uid, gid: vouched.gid, groups: Vec::new() }));
        Ok(())
    }
}

fn begin(secret: &Secret, challenge: &[u8], opening: &Opening) -> Option<(Responder, Vec<u8>)> {
    let prologue = setup::prologue(challenge, &opening.nonce, &opening.credential);
    Responder::begin(secret, &prologue, &opening.message).ok()
}

fn hello_of((responder, hello): (Responder, Vec<u8>)) -> Result<(Box<Hello>, Option<Responder>), BadFrame> {
    Ok((Box::new(setup::decode_hello(&hello)?), Some(responder)))
}

/// The user that the kernel or munge vouches for.
pub fn uid_of(peer: Option<&Peer>) -> Option<u32> {
    match peer? {
        Peer::Local(credentials) | Peer::Munged(credentials) => Some(credentials.uid),
        Peer::Keyed(_) => None,
    }
}

/// Connections that have said hello, round-robin over origins.
#[derive(Default)]
pub struct Ready {
    order: VecDeque<Origin>,
    waiting: BTreeMap<Origin, VecDeque<u64>>,
}

impl Ready {
    /// One more of `origin`.
    pub fn push(&mut self, origin: Origin, id: u64) {
        let waiting = self.waiting.entry(origin).or_default();
        if waiting.is_empty() {
            self.order.push_back(origin);
        }
        waiting.push_back(id);
    }

    /// It has gone meanwhile.
    pub fn remove(&mut self, origin: Origin, id: u64) {
        let Some(waiting) = self.waiting.get_mut(&origin) else { return };
        waiting.retain(|other| *other != id);
        if waiting.is_empty() {
            self.waiting.remove(&origin);
            self.order.retain(|other| *other != origin);
        }
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The one to admit next.
    pub fn pop(&mut self) -> Option<u64> {
        let origin = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&origin)?;
        let id = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&origin);
        } else {
            self.order.push_back(origin);
        }
        id
    }
}

/// Why a connection is turned away.
#[derive(Debug, thiserror::Error)]
pub enum TurnedAway {
    /// What came is no set-up frame of this version.
    #[error(transparent)]
    Frame(#[from] BadFrame),
    /// What it says of itself is impossible, or it may not say so.
    #[error(transparent)]
    Identity(#[from] Inadmissible),
    /// Its user has as much as he may.
    #[error(transparent)]
    Usage(#[from] Exceeded),
    /// There is no room for its job.
    #[error(transparent)]
    Jobs(#[from] TooManyJobs),
    /// It does not know the key.
    #[error("the key is not the server's")]
    WrongKey,
    /// Munge does not vouch for it.
    #[error(transparent)]
    NotVouched(#[from] NotVouched),
    /// Nobody could say in time what its user may.
    #[error("the name service does not say in which groups user {0} is: try again")]
    NoGroups(u32),
    /// It cannot be answered.
    #[error(transparent)]
    Handshake(#[from] Failed),
    /// It asks for what is not to be had in this way.
    #[error("{0}")]
    Misuse(&'static str),
    /// The system says.
    #[error(transparent)]
    System(#[from] Errno),
}

impl TurnedAway {
    /// The reason that it counts for.
    pub fn rejection(&self) -> Rejection {
        match self {
            Self::Frame(_) | Self::Misuse(_) => Rejection::Protocol,
            Self::Identity(_) => Rejection::Identity,
            Self::Usage(exceeded) if exceeded.is_memory() => Rejection::Memory,
            Self::Usage(_) => Rejection::Connections,
            Self::Jobs(_) => Rejection::Jobs,
            Self::WrongKey => Rejection::Key,
            Self::NotVouched(_) => Rejection::Credential,
            Self::System(_) | Self::NoGroups(_) | Self::Handshake(_) => Rejection::System,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_admitted_round_robin() {
        let mut ready = Ready::default();
        (0..1_000).for_each(|id| ready.push(Origin::User(7), id));
        ready.push(Origin::User(8), 2_000);
        ready.push(Origin::Operator, 3_000);
        let first: Vec<u64> = std::iter::from_fn(|| ready.pop()).take(4).collect();
        assert_eq!(first, [0, 2_000, 3_000, 1]);
        ready.push(Origin::User(8), 2_001);
        ready.remove(Origin::User(8), 2_001);
        ready.remove(Origin::User(7), 500);
        assert_eq!(std::iter::from_fn(|| ready.pop()).count(), 997);
        assert!(ready.waiting.is_empty() && ready.order.is_empty());
    }
}
