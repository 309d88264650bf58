//! The client's end of TCP: one request after the other on one connection.

use crate::address::Address;
use crate::descriptor::Parked;
use crate::handshake::{self, HandshakeError, Identity};
use crate::seal::{Direction, PART_LEN_MAX, Seals, TAG_LEN};
use crate::socket::{self, Deadline, SocketError};
use isonomia_proto::PATH_LEN_MAX;
use isonomia_proto::request::{ReplyHeader, RequestHeader};
use isonomia_proto::setup::Role;
use isonomia_units::{Nanos, ServerId};
use rustix::fd::{AsFd, BorrowedFd};
use zerocopy::{FromBytes, IntoBytes};

/// A connection over TCP.
#[derive(Debug)]
pub struct Stream {
    socket: Parked,
    server: ServerId,
    seals: Option<Seals>,
    /// Parts of a frame with their tags. They are a copy: the program may change its own memory between the two looks at it
    /// that making a tag and sending take.
    sealed: Vec<u8>,
}

impl Stream {
    /// Opens a session; proves who this is and asks the server to do the same.
    pub fn open(address: &Address, identity: &Identity, deadline: Deadline) -> Result<Self, HandshakeError> {
        let session = handshake::open_stream(address, Role::Stream, identity, deadline)?;
        let server = ServerId(session.welcome.server);
        Ok(Self { socket: session.socket, server, seals: session.seals, sealed: Vec::new() })
    }

    /// The number of the server.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Sends a request with its names and payload, and receives the reply's payload into `reply`; that of an error, a path
    /// perhaps, comes with the header, and is empty else. The server takes the payload off the socket only when the
    /// request's turn has come.
    pub fn exchange(
        &mut self,
        request: &RequestHeader,
        names: [&[u8]; 2],
        payload: &[u8],
        reply: &mut [u8],
        timeout: Nanos,
    ) -> Result<(ReplyHeader, Box<[u8]>), SocketError> {
        let socket = self.socket.as_fd();
        let deadline = Deadline::after(timeout);
        let mut opener = None;
        match &mut self.seals {
            None => socket::send_all(socket, &[request.as_bytes(), names[0], names[1], payload], deadline)?,
            Some(Seals { sealer, opener: own }) => {
                let send = |bytes: &[u8]| socket::send_all(socket, &[bytes], deadline);
                // What follows a header is names or a payload.
                sealer.seal_frame(&mut self.sealed, request.as_bytes(), &[names[0], names[1], payload], send)?;
                opener = Some(own);
            }
        }
        let mut header = [0; ReplyHeader::LEN];
        receive(socket, &mut opener, &mut header, deadline)?;
        let header = ReplyHeader::read_from_bytes(&header).map_err(|_| SocketError::Closed)?;
        let len = header.payload_len as usize;
        let mut of_error = Vec::new();
        let room = match header.errno {
            0 => reply.get_mut(..len),
            _ if len <= PATH_LEN_MAX => {
                of_error.resize(len, 0);
                Some(&mut of_error[..])
            }
            _ => None,
        };
        let Some(room) = room else {
            // A reply larger than what was asked for: nothing after it could be understood.
            return Err(SocketError::Closed);
        };
        receive(socket, &mut opener, room, deadline)?;
        Ok((header, of_error.into()))
    }
}

/// Receives as many bytes as fill `buffer`, in parts with their tags if they have any.
fn receive(
    socket: BorrowedFd<'_>,
    opener: &mut Option<&mut Direction>,
    buffer: &mut [u8],
    deadline: Deadline,
) -> Result<(), SocketError> {
    let Some(opener) = opener else { return socket::receive_all(socket, buffer, deadline) };
    for part in buffer.chunks_mut(PART_LEN_MAX) {
        let mut tag = [0; TAG_LEN];
        socket::receive_both(socket, [&mut *part, &mut tag], deadline)?;
        opener.open(part, &tag)?;
    }
    Ok(())
}
