//! What connects servers and clients: it delays, loses, repeats and reorders.

use crate::client::Reply;
use crate::files::{Ask, Said};
use crate::model::Asked;
use crate::world::{Event, World};
use isonomia_cluster::node::Input;
use isonomia_cluster::peer::Envelope;
use isonomia_units::{Nanos, ServerId};
use rand::RngExt;
use std::collections::BTreeSet;

/// How things are at the moment.
#[derive(Clone, Debug)]
pub struct Network {
    /// Ways between servers that nothing passes.
    pub blocked: BTreeSet<(ServerId, ServerId)>,
    /// Servers that no client reaches.
    pub unreachable: BTreeSet<ServerId>,
    /// How many messages of a hundred are lost.
    pub lost: u32,
    /// How many of a hundred come twice.
    pub doubled: u32,
    /// How many of a hundred take up to [`Network::slow`].
    pub delayed: u32,
    /// The longest way of a message that is delayed.
    pub slow: Nanos,
    /// How long storing takes at most.
    pub store_takes: Nanos,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            blocked: BTreeSet::new(),
            unreachable: BTreeSet::new(),
            lost: 0,
            doubled: 0,
            delayed: 0,
            slow: Nanos::from_secs(4),
            store_takes: Nanos::from_millis(5),
        }
    }
}

/// What is under way.
#[derive(Clone, Debug)]
pub enum Parcel {
    /// Between servers, for this process.
    Message(usize, Vec<u8>),
    /// Of a client's attempt to this process, with its deadline; whether another server has sent it there.
    Request { process: usize, client: usize, attempt: u64, deadline: Nanos, asked: Asked, referred: bool },
    /// Of a client's attempt that is about a file.
    FileAsk { process: usize, client: usize, attempt: u64, deadline: Nanos, ask: Ask },
    /// To a client, about a file.
    FileSaid { client: usize, attempt: u64, said: Said },
    /// To a client.
    Reply { client: usize, attempt: u64, reply: Reply },
}

impl Parcel {
    /// The process that it goes to.
    pub fn process(&self) -> Option<usize> {
        match self {
            Self::Message(process, _) | Self::Request { process, .. } | Self::FileAsk { process, .. } => Some(*process),
            Self::Reply { .. } | Self::FileSaid { .. } => None,
        }
    }
}

impl Network {
    /// Whether messages of `from` reach `to`.
    pub fn passes(&self, from: ServerId, to: ServerId) -> bool {
        !self.blocked.contains(&(from, to))
    }
}

impl World {
    /// How long something is under way.
    pub fn travels(&mut self) -> Nanos {
        if self.rng.random_range(0..100) < self.network.delayed {
            self.between(Nanos::from_millis(5), self.network.slow)
        } else {
            self.between(Nanos::from_micros(50), Nanos::from_millis(3))
        }
    }

    /// The process that somebody reaches who wants `server`: the one that has its directory, or now and then one that had
    /// it and does not know yet.
    pub fn reached(&mut self, server: ServerId) -> Option<usize> {
        let of = self.processes.iter().enumerate().filter(|(_, process)| process.server == server);
        let alive: Vec<usize> =
            of.filter(|(_, process)| process.state != crate::host::State::Dead).map(|(index, _)| index).collect();
        let last = *alive.last()?;
        Some(if self.rng.random_bool(0.7) { last } else { alive[self.rng.random_range(0..alive.len())] })
    }

    /// A server sends a message.
    pub fn send_message(&mut self, envelope: Envelope) {
        let (from, to) = (envelope.from, envelope.to);
        for _ in 0..self.double.repeats(&envelope) {
            let Some(process) = self.reached(to) else { break };
            let after = self.between(Nanos::from_millis(1), Nanos::from_secs(2));
            self.at(self.now + after, Event::Arrives(Parcel::Message(process, envelope.encode())));
        }
        let copies = if self.rng.random_range(0..100) < self.network.doubled { 2 } else { 1 };
        for _ in 0..copies {
            if !self.network.passes(from, to) || self.rng.random_range(0..100) < self.network.lost {
                self.note(|| format!("lost from {from} to {to}"));
                continue;
            }
            if let Some(process) = self.reached(to) {
                let after = self.travels();
                self.at(self.now + after, Event::Arrives(Parcel::Message(process, envelope.encode())));
            }
        }
    }

    /// Something has come.
    pub fn arrives(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Message(process, bytes) => match Envelope::decode(&bytes) {
                Ok(envelope) => self.give(process, Input::Message { from: envelope.from, envelope }),
                Err(error) => self.violate(format!("a server said what is none of its messages: {error}")),
            },
            Parcel::Request { process, client, attempt, deadline, asked, referred } => {
                self.asked(process, (client, attempt), deadline, asked, referred);
            }
            Parcel::FileAsk { process, client, attempt, deadline, ask } => {
                self.file_asked(process, (client, attempt), deadline, ask);
            }
            Parcel::FileSaid { client, attempt, said } => self.file_hears(client, attempt, said),
            Parcel::Reply { client, attempt, reply } => self.client_hears(client, attempt, reply),
        }
    }
}
