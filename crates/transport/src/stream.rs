//! The client's end of TCP: one request after the other on one connection.

use crate::address::Address;
use crate::descriptor::Parked;
use crate::handshake::{self, HandshakeError, Identity};
use crate::monotonic_now;
use crate::patience::Patience;
use crate::seal::{Direction, PART_LEN_MAX, Seals, TAG_LEN};
use crate::socket::{self, Deadline, SocketError, Until};
use isonomia_proto::PATH_LEN_MAX;
use isonomia_proto::request::{ReplyHeader, RequestHeader};
use isonomia_proto::setup::Role;
use isonomia_units::{Nanos, ServerId};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd};
use zerocopy::{FromBytes, IntoBytes};

/// A connection over TCP.
#[derive(Debug)]
pub struct Stream {
    socket: Parked,
    server: ServerId,
    session: u64,
    verifier: u64,
    file_system: u64,
    seals: Option<Seals>,
    /// Parts of a frame with their tags. They are a copy: the program may change its own memory between the two looks at it
    /// that making a tag and sending take.
    sealed: Vec<u8>,
    /// What the socket had no room for, and how much of that was sent since.
    unsent: (Vec<u8>, usize),
    is_broken: bool,
    /// The operation that was last sent.
    operation: u16,
    patience: Patience,
    /// Where the server is asked whether it lives, if time-outs are for servers that do not.
    sign_of_life: Option<Address>,
}

/// A time-out that begins anew as long as the server lives: a request may wait for its turn for longer.
struct WhileAlive<'a> {
    server: Option<&'a Address>,
    timeout: Nanos,
    deadline: Deadline,
}

impl<'a> WhileAlive<'a> {
    fn new(server: Option<&'a Address>, timeout: Nanos) -> Self {
        Self { server, timeout, deadline: Deadline::after(timeout) }
    }
}

impl Until for WhileAlive<'_> {
    fn time_left(&mut self) -> Result<Nanos, SocketError> {
        if self.deadline.left().is_none() {
            let asked_until = Deadline::after(self.timeout.min(SIGN_OF_LIFE_MAX));
            let server = self.server.ok_or(SocketError::TimedOut)?;
            handshake::greets(server, asked_until).map_err(|_| SocketError::TimedOut)?;
            self.deadline = Deadline::after(self.timeout);
        }
        self.deadline.time_left()
    }
}

/// How long a server is given to show that it lives, when a request has had no answer in time.
const SIGN_OF_LIFE_MAX: Nanos = Nanos::from_secs(5);

impl Stream {
    /// Opens a connection; proves who this is and asks the server to do the same.
    pub fn open(address: &Address, identity: &Identity, deadline: Deadline) -> Result<Self, HandshakeError> {
        let connection = handshake::open_stream(address, Role::Stream, identity, deadline)?;
        let server = ServerId(connection.welcome.server);
        Ok(Self {
            socket: connection.socket,
            server,
            session: connection.welcome.session,
            verifier: connection.welcome.verifier,
            file_system: connection.welcome.file_system,
            seals: connection.seals,
            sealed: Vec::new(),
            unsent: (Vec::new(), 0),
            is_broken: false,
            operation: 0,
            patience: Patience::default(),
            sign_of_life: None,
        })
    }

    /// From now on a time-out is the longest silence of the *server*, which is at `address`: as long as it greets those who
    /// connect, waiting goes on.
    pub fn outwait(&mut self, address: &Address) {
        self.sign_of_life = Some(address.clone());
    }

    /// The number of the server.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Whether the server has ended the connection, as far as this host knows.
    pub fn is_ended(&self) -> bool {
        socket::is_ended(self.socket.as_fd())
    }

    /// The number of the session with it.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// The server's verifier.
    pub fn verifier(&self) -> u64 {
        self.verifier
    }

    /// Which file system it is one of.
    pub fn file_system(&self) -> u64 {
        self.file_system
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
        self.send(request, names, payload, timeout)?;
        self.receive(reply, timeout)
    }

    fn send(
        &mut self,
        request: &RequestHeader,
        names: [&[u8]; 2],
        payload: &[u8],
        timeout: Nanos,
    ) -> Result<(), SocketError> {
        self.operation = request.op;
        let socket = self.socket.as_fd();
        let mut until = WhileAlive::new(self.sign_of_life.as_ref(), timeout);
        match &mut self.seals {
            None => socket::send_all(socket, &[request.as_bytes(), names[0], names[1], payload], until),
            Some(Seals { sealer, .. }) => {
                let send = |bytes: &[u8]| socket::send_all(socket, &[bytes], &mut until);
                // What follows a header is names or a payload.
                sealer.seal_frame(&mut self.sealed, request.as_bytes(), &[names[0], names[1], payload], send)
            }
        }
    }

    /// Begins to send a request without names and its payload. What the socket has no room for is kept: [`push_until_readable`]
    /// goes on with it. Nothing else is to be sent before the reply was received.
    pub fn begin(&mut self, request: &RequestHeader, payload: &[u8]) -> Result<(), SocketError> {
        self.operation = request.op;
        let (unsent, sent) = &mut self.unsent;
        unsent.clear();
        *sent = 0;
        match &mut self.seals {
            None => {
                let mut left = socket::send_some(self.socket.as_fd(), [request.as_bytes(), payload])?;
                for part in [request.as_bytes(), payload] {
                    let skipped = left.min(part.len());
                    unsent.extend_from_slice(&part[skipped..]);
                    left -= skipped;
                }
                Ok(())
            }
            Some(Seals { sealer, .. }) => {
                let keep = |bytes: &[u8]| {
                    unsent.extend_from_slice(bytes);
                    Ok::<(), SocketError>(())
                };
                sealer.seal_frame(&mut self.sealed, request.as_bytes(), &[payload], keep)?;
                self.push()
            }
        }
    }

    /// Sends more of what [`Self::begin`] has left, if the socket has room.
    fn push(&mut self) -> Result<(), SocketError> {
        let (unsent, sent) = &mut self.unsent;
        if *sent < unsent.len() {
            *sent += socket::send_some(self.socket.as_fd(), [&unsent[*sent..], &[]])?;
        }
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        self.unsent.1 < self.unsent.0.len()
    }

    /// Receives the reply to what was sent, as [`Self::exchange`] does.
    pub fn receive(&mut self, reply: &mut [u8], timeout: Nanos) -> Result<(ReplyHeader, Box<[u8]>), SocketError> {
        if self.is_broken {
            return Err(SocketError::Closed);
        }
        let socket = self.socket.as_fd();
        let mut opener = self.seals.as_mut().map(|seals| &mut seals.opener);
        let mut header = [0; ReplyHeader::LEN];
        let start = monotonic_now();
        let mut until = WhileAlive::new(self.sign_of_life.as_ref(), timeout);
        if self.patience.expects_long(self.operation) {
            // Receiving would try for a while before it sleeps.
            socket::wait(socket, PollFlags::IN, &mut until)?;
        }
        receive(socket, &mut opener, &mut header, &mut until)?;
        self.patience.note(self.operation, monotonic_now().since(start), false);
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
        receive(socket, &mut opener, room, &mut until)?;
        Ok((header, of_error.into()))
    }
}

/// Goes on with sending what [`Stream::begin`] has left in any of `streams`, until the reply to the first of them comes. A failure of
/// another one its own [`Stream::receive`] tells.
pub fn push_until_readable(streams: &mut [&mut Stream], timeout: Nanos) -> Result<(), SocketError> {
    let address = streams.first().and_then(|stream| stream.sign_of_life.clone());
    let mut until = WhileAlive::new(address.as_ref(), timeout);
    loop {
        for (at, stream) in streams.iter_mut().enumerate() {
            match stream.push() {
                Err(error) if at == 0 => return Err(error),
                Err(_) => (stream.is_broken, stream.unsent.1) = (true, stream.unsent.0.len()),
                Ok(()) => {}
            }
        }
        if !streams.iter().any(|stream| stream.has_unsent()) {
            return Ok(());
        }
        let wanted = |(at, stream): (usize, &&mut Stream)| {
            let reply = if at == 0 { PollFlags::IN } else { PollFlags::empty() };
            let room = if stream.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            (at == 0 || stream.has_unsent()).then(|| (reply | room, at))
        };
        let waits: Vec<(PollFlags, usize)> = streams.iter().enumerate().filter_map(wanted).collect();
        let poll = |(flags, at): &(PollFlags, usize)| PollFd::from_borrowed_fd(streams[*at].socket.as_fd(), *flags);
        let mut polled: Vec<PollFd<'_>> = waits.iter().map(poll).collect();
        if socket::wait_for_first(&mut polled, &mut until)? {
            return Ok(());
        }
    }
}

/// Receives as many bytes as fill `buffer`, in parts with their tags if they have any.
fn receive(
    socket: BorrowedFd<'_>,
    opener: &mut Option<&mut Direction>,
    buffer: &mut [u8],
    mut until: impl Until,
) -> Result<(), SocketError> {
    let Some(opener) = opener else { return socket::receive_all(socket, buffer, until) };
    for part in buffer.chunks_mut(PART_LEN_MAX) {
        let mut tag = [0; TAG_LEN];
        socket::receive_both(socket, [&mut *part, &mut tag], &mut until)?;
        opener.open(part, &tag)?;
    }
    Ok(())
}
