//! A connection to a server, whichever way its address asks for.

use crate::address::Address;
use crate::channel::{Channel, Manner};
use crate::handshake::{HandshakeError, Identity};
use crate::socket::{Deadline, SocketError};
use crate::stream::Stream;
use isonomia_proto::PATH_LEN_MAX;
use isonomia_proto::request::{ReplyHeader, RequestHeader};
use isonomia_units::{Nanos, ServerId};

/// One connection.
#[derive(Debug)]
pub enum Line {
    /// Through shared memory.
    Shared(Channel),
    /// On TCP.
    Tcp(Stream),
}

impl Line {
    /// Opens a connection to `address`.
    pub fn open(address: &Address, identity: &Identity, deadline: Deadline) -> Result<Self, HandshakeError> {
        match address {
            Address::Unix(_) => Channel::open(address, identity, deadline).map(Self::Shared),
            Address::Tcp(_) => Stream::open(address, identity, deadline).map(Self::Tcp),
        }
    }

    /// From now on a time-out is the longest silence of the server, which is at `address`, and not the longest wait for a reply. In
    /// shared memory it is so always.
    pub fn outwait(&mut self, address: &Address) {
        match self {
            Self::Shared(_) => {}
            Self::Tcp(stream) => stream.outwait(address),
        }
    }

    /// The number of the server.
    pub fn server(&self) -> ServerId {
        match self {
            Self::Shared(channel) => channel.server(),
            Self::Tcp(stream) => stream.server(),
        }
    }

    /// Whether the server has ended the connection, as far as this host knows: nobody would read what is sent. One system call.
    pub fn is_ended(&self) -> bool {
        match self {
            Self::Shared(channel) => channel.is_ended(),
            Self::Tcp(stream) => stream.is_ended(),
        }
    }

    /// The number of the session with it: another one than before if the server keeps nothing any more of what it kept then.
    pub fn session(&self) -> u64 {
        match self {
            Self::Shared(channel) => channel.session(),
            Self::Tcp(stream) => stream.session(),
        }
    }

    /// The server's verifier: another one than before if what it acknowledged, and had not yet put on stable storage, may have been
    /// lost since.
    pub fn verifier(&self) -> u64 {
        match self {
            Self::Shared(channel) => channel.verifier(),
            Self::Tcp(stream) => stream.verifier(),
        }
    }

    /// Which file system the server is one of: the number is the same in every cluster, this is not.
    pub fn file_system(&self) -> u64 {
        match self {
            Self::Shared(channel) => channel.file_system(),
            Self::Tcp(stream) => stream.file_system(),
        }
    }

    /// Sends a request with its names, and receives the reply's payload into `reply`; that of an error, a path perhaps, comes
    /// with the header, and is empty else. [`SocketError::Closed`] also if a payload is longer than there is room for.
    pub fn exchange(
        &mut self,
        request: &RequestHeader,
        names: [&[u8]; 2],
        reply: &mut [u8],
        timeout: Nanos,
        manner: Manner,
    ) -> Result<(ReplyHeader, Box<[u8]>), SocketError> {
        let channel = match self {
            Self::Shared(channel) => channel,
            Self::Tcp(stream) => {
                (manner.before_sleep)();
                return stream.exchange(request, names, &[], reply, timeout);
            }
        };
        let stage = channel.stage();
        stage.copy_from(names[0]);
        stage.after(names[0].len()).copy_from(names[1]);
        let slot = channel.send(request)?;
        let header = channel.wait(slot, timeout, manner)?;
        let len = header.payload_len as usize;
        let payload = channel.payload(slot, len).ok_or(SocketError::Closed)?;
        if header.errno != 0 {
            return if len <= PATH_LEN_MAX { Ok((header, payload.to_vec().into())) } else { Err(SocketError::Closed) };
        }
        payload.copy_to(reply.get_mut(..len).ok_or(SocketError::Closed)?);
        Ok((header, Box::default()))
    }
}
