//! Connections that are being set up: what has come of their hello, whose turn it is to be admitted, and why some are
//! turned away.

use crate::identity::{Inadmissible, Peer};
use crate::jobs::TooManyJobs;
use crate::pools::Origin;
use crate::rejections::Rejection;
use crate::usage::Exceeded;
use isonomia_proto::setup::{self, BadFrame, Hello};
use isonomia_transport::key::{Key, Nonce, Prover};
use isonomia_units::Nanos;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};

/// A connection that is being set up.
pub struct Pending {
    /// Unix socket or TCP.
    pub socket: OwnedFd,
    /// Who it is, if the kernel knows; on TCP, for whom the key would stand.
    pub peer: Peer,
    /// Whose share of the places it has.
    pub origin: Origin,
    /// What it has to prove, and this server's part of that.
    pub key: Option<(Key, Nonce)>,
    /// What has come of its hello.
    pub heard: Vec<u8>,
    /// What it said, and this server's proof for its answer.
    pub hello: Option<(Box<Hello>, [u8; 32])>,
    /// When it is closed if it has not said hello, and admitted by numbers if it has.
    pub deadline: Nanos,
}

impl Pending {
    /// The hello in `body`, and the server's own proof.
    pub fn check(&self, body: &[u8]) -> Result<(Box<Hello>, [u8; 32]), TurnedAway> {
        let hello = setup::decode_hello(body)?;
        let Some((key, nonce)) = &self.key else { return Ok((Box::new(hello), [0; 32])) };
        if !key.check(Prover::Client, &hello.nonce, nonce, &hello.proof) {
            return Err(TurnedAway::WrongKey);
        }
        let proof = key.prove(Prover::Server, &hello.nonce, nonce);
        Ok((Box::new(hello), proof))
    }
}

/// The user that the kernel vouches for.
pub fn uid_of(peer: &Peer) -> Option<u32> {
    match peer {
        Peer::Local(credentials) => Some(credentials.uid),
        Peer::Keyed(_) => None,
    }
}

/// Connections that have said hello, one of each origin in turn.
#[derive(Default)]
pub struct Ready {
    turns: VecDeque<Origin>,
    waiting: BTreeMap<Origin, VecDeque<u64>>,
}

impl Ready {
    /// One more of `origin`.
    pub fn push(&mut self, origin: Origin, id: u64) {
        let waiting = self.waiting.entry(origin).or_default();
        if waiting.is_empty() {
            self.turns.push_back(origin);
        }
        waiting.push_back(id);
    }

    /// It has gone meanwhile.
    pub fn remove(&mut self, origin: Origin, id: u64) {
        let Some(waiting) = self.waiting.get_mut(&origin) else { return };
        waiting.retain(|other| *other != id);
        if waiting.is_empty() {
            self.waiting.remove(&origin);
            self.turns.retain(|other| *other != origin);
        }
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Whose turn it is.
    pub fn pop(&mut self) -> Option<u64> {
        let origin = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&origin)?;
        let id = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&origin);
        } else {
            self.turns.push_back(origin);
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
    /// What it says of itself cannot be, or is not for it to say.
    #[error(transparent)]
    Identity(#[from] Inadmissible),
    /// Its user has as much as he may.
    #[error(transparent)]
    Usage(#[from] Exceeded),
    /// There is no place for its job.
    #[error(transparent)]
    Jobs(#[from] TooManyJobs),
    /// It does not know the key.
    #[error("the key is not the server's")]
    WrongKey,
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
            Self::System(_) => Rejection::System,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_origin_is_admitted_in_turn() {
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
        assert!(ready.waiting.is_empty() && ready.turns.is_empty());
    }
}
