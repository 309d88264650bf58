//! The client's end of TCP: one request after the other on one connection.

use crate::address::Address;
use crate::descriptor::Parked;
use crate::handshake::{self, HandshakeError, Identity};
use crate::socket::{self, Deadline, SocketError};
use isonomia_proto::request::{ReplyHeader, RequestHeader};
use isonomia_proto::setup::Role;
use isonomia_units::{Nanos, ServerId};
use rustix::fd::AsFd;
use zerocopy::{FromBytes, IntoBytes};

/// A connection over TCP.
#[derive(Debug)]
pub struct Stream {
    socket: Parked,
    server: ServerId,
}

impl Stream {
    /// Opens a session; proves knowledge of the key and asks the server to do the same.
    pub fn open(address: &Address, identity: &Identity, deadline: Deadline) -> Result<Self, HandshakeError> {
        let session = handshake::open_stream(address, Role::Stream, identity, deadline)?;
        Ok(Self { socket: session.socket, server: ServerId(session.welcome.server) })
    }

    /// The number of the server.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Sends a request with its names and payload, and receives the reply's payload into `reply`. The server
    /// takes the payload off the socket only when the request's turn has come.
    pub fn exchange(
        &mut self,
        request: &RequestHeader,
        names: [&[u8]; 2],
        payload: &[u8],
        reply: &mut [u8],
        timeout: Nanos,
    ) -> Result<ReplyHeader, SocketError> {
        let socket = self.socket.as_fd();
        let deadline = Deadline::after(timeout);
        socket::send_all(socket, &[request.as_bytes(), names[0], names[1], payload], deadline)?;
        let mut header = [0; ReplyHeader::LEN];
        socket::receive_all(socket, &mut header, deadline)?;
        let header = ReplyHeader::read_from_bytes(&header).map_err(|_| SocketError::Closed)?;
        let Some(room) = reply.get_mut(..header.payload_len as usize) else {
            // A reply larger than what was asked for: nothing after it could be understood.
            return Err(SocketError::Closed);
        };
        socket::receive_all(socket, room, deadline)?;
        Ok(header)
    }
}
