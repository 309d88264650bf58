//! One client connection, as the workers see it.

use crate::identity::Credentials;
use crate::jobs::Job;
use crate::sessions::{Session, SessionKey};
use crate::stream::{self, StreamEnd, StreamState};
use crate::usage::Permit;
use isonomia_proto::request::{Op, RequestHeader, flag};
use isonomia_transport::region::{SLOT_LEN, ServerRegion};
use isonomia_transport::seal::{Forged, Seals, TAG_LEN};
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of one transfer that are charged the cost of one operation, however many requests carry them.
const CONTINUED_LEN_MAX: u64 = 1 << 20;
/// A part of a transfer ends at a multiple of this, or is as long as a part can be, if another one follows.
const PART_ALIGN: u64 = 64 << 10;

/// Where the latest request of a connection ended, of those that read and of those that wrote.
#[derive(Debug, Default)]
pub struct Cursors([Cursor; 2]);

#[derive(Debug, Default)]
struct Cursor {
    ino: AtomicU64,
    end: AtomicU64,
}

impl Cursors {
    /// Moves on to the end of `request`; whether it begins where the one before it ended, or appends. Requests of one
    /// connection are taken in one after the other.
    pub fn advance(&self, is_write: bool, request: &RequestHeader) -> bool {
        let cursor = &self.0[usize::from(is_write)];
        let (ino, begin) = (request.ino, request.offset);
        let is_next = cursor.ino.load(Ordering::Relaxed) == ino && cursor.end.load(Ordering::Relaxed) == begin;
        cursor.ino.store(ino, Ordering::Relaxed);
        cursor.end.store(begin.saturating_add(u64::from(request.len)), Ordering::Relaxed);
        is_next || request.flags & flag::APPEND != 0
    }
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    /// Unique among all connections of this server since its start.
    pub id: u64,
    /// Unix socket or TCP.
    pub socket: OwnedFd,
    /// For permissions.
    pub credentials: Credentials,
    /// See [`Admission`](crate::identity::Admission).
    pub may_ask_for_others: bool,
    /// Whether it needs no proof of what it may: see [`mod@crate::proof`].
    pub is_trusted: bool,
    /// For sharing.
    pub job: Arc<Job>,
    /// The session of its process, and that session's key.
    pub session: Arc<Session>,
    /// See [`Session`].
    pub session_key: SessionKey,
    /// How requests travel.
    pub way: Way,
    /// Of a stream whose frames have tags: what they are made and checked with, by whoever has the stream's turn.
    pub seals: Option<Mutex<Seals>>,
    /// Tells sequential requests from others.
    pub cursors: Cursors,
    /// Its permit among those of its user, given back with the last reference to this.
    pub permit: Permit,
    /// Set once; nothing is admitted or answered afterwards.
    pub is_closed: AtomicBool,
}

/// How requests travel.
#[derive(Debug)]
pub enum Way {
    /// In shared memory.
    Shared(Shared),
    /// As frames on the socket.
    Stream(Mutex<StreamState>),
}

/// The server's side of a shared-memory connection.
#[derive(Debug)]
pub struct Shared {
    /// The memory.
    pub region: ServerRegion,
    /// A bit for each slot whose request is not answered yet.
    pub serving: AtomicU32,
    /// What only the worker that takes requests in touches.
    pub progress: Mutex<Progress>,
}

/// Progress of taking requests from a connection.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests taken so far, wrapping.
    pub seen: u32,
    transfer: Transfer,
}

/// The transfer that the latest request belongs to.
#[derive(Debug, Default)]
pub struct Transfer {
    ino: u64,
    op: u16,
    next_offset: u64,
    len: u64,
    /// Whether the latest part is such that another one may follow.
    is_whole: bool,
}

impl Transfer {
    /// Whether `request` is a later part of one transfer, so that its operation was charged already. A client that
    /// merely says so is not believed: the parts must be adjacent, no more than `CONTINUED_LEN_MAX` in all, and all but
    /// the last must fill a slot or end where a layout can go on elsewhere. Nobody gains by cutting a transfer into
    /// crumbs.
    pub fn is_continued(&mut self, op: Op, request: &RequestHeader) -> bool {
        let len = u64::from(request.len);
        let is_continued = request.flags & flag::CONTINUED != 0
            && self.op == op as u16
            && self.ino == request.ino
            && self.next_offset == request.offset
            && self.is_whole
            && self.len + len <= CONTINUED_LEN_MAX;
        let before = if is_continued { self.len } else { 0 };
        let next_offset = request.offset.saturating_add(len);
        let is_whole = len == SLOT_LEN as u64 || next_offset.is_multiple_of(PART_ALIGN);
        *self = Self { ino: request.ino, op: op as u16, next_offset, len: before + len, is_whole };
        is_continued
    }
}

impl Progress {
    /// See [`Transfer::is_continued`].
    pub fn is_continued(&mut self, op: Op, request: &RequestHeader) -> bool {
        self.transfer.is_continued(op, request)
    }
}

impl Connection {
    /// Whether the connection is finished with.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn seals(&self) -> Option<MutexGuard<'_, Seals>> {
        self.seals.as_ref().map(|seals| seals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Bytes that follow each part of a frame.
    pub fn tag_len(&self) -> usize {
        self.seals.as_ref().map_or(0, |_| TAG_LEN)
    }

    /// Checks a part of a frame that came with its tag, if it has one, and decrypts it; gives the part.
    pub fn open<'a>(&self, bytes: &'a mut [u8]) -> Result<&'a mut [u8], Forged> {
        match self.seals() {
            Some(mut seals) if !bytes.is_empty() => seals.opener.open_whole(bytes),
            _ => Ok(bytes),
        }
    }

    /// Sends a frame, as much of it as the socket takes; gives what is left.
    pub fn send(&self, header: &[u8], payload: &[u8]) -> Result<Vec<u8>, StreamEnd> {
        let mut rest = Vec::new();
        let mut send = |bytes: &[u8]| {
            let sent = if rest.is_empty() { stream::send(&self.socket, bytes)? } else { 0 };
            rest.extend_from_slice(&bytes[sent..]);
            Ok::<(), StreamEnd>(())
        };
        match self.seals() {
            None => send(&[header, payload].concat())?,
            Some(mut seals) => seals.sealer.seal_frame(&mut Vec::new(), header, &[payload], send)?,
        }
        Ok(rest)
    }

    /// A stream of root's with nobody at its other end.
    #[cfg(test)]
    pub fn of_root(job: Arc<Job>, session: Arc<Session>, session_key: SessionKey, permit: Permit) -> Self {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (socket, _) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        Self {
            id: 1,
            socket,
            credentials: Credentials { uid: 0, gid: 0, groups: Vec::new() },
            may_ask_for_others: true,
            is_trusted: true,
            job,
            session,
            session_key,
            way: Way::Stream(Mutex::new(StreamState::Queued)),
            seals: None,
            cursors: Cursors::default(),
            permit,
            is_closed: AtomicBool::new(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::Ino;

    #[test]
    fn only_adjacent_parts_of_one_mebibyte_are_charged_once() {
        let mut turn = Progress::default();
        let part = |offset: u64, flags| RequestHeader {
            offset,
            flags,
            len: 512 << 10,
            ..RequestHeader::new(Op::Write, Ino(9))
        };
        assert!(!turn.is_continued(Op::Write, &part(0, 0)));
        assert!(turn.is_continued(Op::Write, &part(512 << 10, flag::CONTINUED)));
        assert!(!turn.is_continued(Op::Write, &part(1024 << 10, flag::CONTINUED)), "a second mebibyte");
        assert!(!turn.is_continued(Op::Write, &part(0, flag::CONTINUED)), "not adjacent");
        assert!(!turn.is_continued(Op::Read, &part(512 << 10, flag::CONTINUED)), "another operation");
    }

    #[test]
    fn crumbs_are_no_parts() {
        let mut turn = Progress::default();
        let part = |offset: u64, len| RequestHeader {
            offset,
            len,
            flags: flag::CONTINUED,
            ..RequestHeader::new(Op::Write, Ino(9))
        };
        let is_continued: Vec<bool> = (0..4).map(|at| turn.is_continued(Op::Write, &part(at, 1))).collect();
        assert_eq!(is_continued, [false; 4]);
        // From the middle to where the next stripe begins, and on.
        assert!(!turn.is_continued(Op::Write, &part((1 << 20) - 5, 5)));
        assert!(turn.is_continued(Op::Write, &part(1 << 20, 256 << 10)));
        assert!(turn.is_continued(Op::Write, &part((1 << 20) + (256 << 10), 3)), "the last may be short");
        assert!(!turn.is_continued(Op::Write, &part((1 << 20) + (256 << 10) + 3, 3)), "and is the last");
    }

    #[test]
    fn what_begins_where_the_last_one_ended_is_sequential_also_beside_writes_of_another_file() {
        let cursors = Cursors::default();
        let at = |ino, offset| RequestHeader { offset, len: 4096, ..RequestHeader::new(Op::Read, Ino(ino)) };
        assert!(!cursors.advance(false, &at(9, 4096)));
        assert!(!cursors.advance(true, &at(7, 8192)));
        assert!(cursors.advance(false, &at(9, 8192)));
        assert!(cursors.advance(true, &at(7, 12_288)));
        assert!(!cursors.advance(false, &at(9, 8192)), "again");
        assert!(!cursors.advance(false, &at(8, 12_288)), "another file");
        let append = RequestHeader { flags: flag::APPEND, ..at(8, 0) };
        assert!(cursors.advance(true, &append));
    }
}
