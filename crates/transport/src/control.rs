//! An operator's connection: questions and answers in JSON.

use crate::address::Address;
use crate::handshake::{self, Connection, HandshakeError, Identity};
use crate::seal::{Direction, TAG_LEN};
use crate::socket::{self, Deadline, SocketError};
use isonomia_proto::control::{ControlReply, ControlRequest};
use isonomia_proto::setup::{self, CONTROL_REPLY_LEN_MAX, Role};
use isonomia_units::Nanos;
use rustix::fd::AsFd;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No connection.
    #[error("cannot reach a server at {address}: {error}")]
    Connect {
        /// The server's address.
        address: String,
        /// Why.
        error: HandshakeError,
    },
    /// The connection broke.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Frames of an answer come in an order that makes no sense.
    #[error("the frames of the answer are out of order")]
    OutOfOrder,
    /// The answer is not the JSON that is expected.
    #[error("malformed answer")]
    Json(#[from] serde_json::Error),
}

/// A frame around `body` and its tag.
pub fn seal_frame(sealer: &mut Direction, body: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(body.len() + TAG_LEN);
    sealer.seal(&mut sealed, body);
    setup::frame(&sealed)
}

/// An open connection for control.
#[derive(Debug)]
pub struct ControlConnection {
    connection: Connection,
    timeout: Nanos,
}

impl ControlConnection {
    /// Connects; every later question may take `timeout` as well.
    pub fn connect(address: &Address, key_file: Option<&str>, timeout: Nanos) -> Result<Self, ControlError> {
        Self::open(address, &Identity { key_file: key_file.map(str::to_owned), ..Identity::default() }, timeout)
    }

    /// As [`Self::connect`], also to a server of [`Identity::server_user`].
    pub fn open(address: &Address, identity: &Identity, timeout: Nanos) -> Result<Self, ControlError> {
        let connection = handshake::open_stream(address, Role::Control, identity, Deadline::after(timeout))
            .map_err(|error| ControlError::Connect { address: address.to_string(), error })?;
        Ok(Self { connection, timeout })
    }

    /// Every later question may take this long.
    pub fn answer_within(&mut self, timeout: Nanos) {
        self.timeout = timeout;
    }

    /// Asks, and waits for the answer; that to [`ControlRequest::Status`] is put together from all its frames.
    pub fn ask(&mut self, request: &ControlRequest) -> Result<ControlReply, ControlError> {
        let deadline = Deadline::after(self.timeout);
        let Connection { socket, seals, .. } = &mut self.connection;
        let socket = socket.as_fd();
        let question = serde_json::to_vec(request)?;
        let frame = match seals {
            Some(seals) => seal_frame(&mut seals.sealer, &question),
            None => setup::frame(&question),
        };
        socket::send_all(socket, &[&frame], deadline)?;
        let mut receive = || -> Result<ControlReply, ControlError> {
            let len_max = CONTROL_REPLY_LEN_MAX + seals.as_ref().map_or(0, |_| TAG_LEN);
            let mut body = socket::receive_frame(socket, len_max, deadline)?;
            let text = match seals {
                Some(seals) => seals.opener.open_whole(&mut body).map_err(SocketError::from)?,
                None => &mut body,
            };
            Ok(serde_json::from_slice(text)?)
        };
        let mut status = match receive()? {
            ControlReply::Status(status) => status,
            other => return Ok(other),
        };
        loop {
            let ControlReply::Jobs { jobs, is_last } = receive()? else { return Err(ControlError::OutOfOrder) };
            status.jobs.extend(jobs);
            if is_last {
                return Ok(ControlReply::Status(status));
            }
        }
    }
}
