//! One client connection, as the workers see it, the requests that come on it, and what a stream is in the middle of: the
//! connection has its stream's state, that has the request, and the request knows where it came from.

use crate::changes::{Change, Changes};
use crate::identity::Credentials;
use crate::jobs::Job;
use crate::sessions::{MountKey, Session, SessionKey};
use crate::stream::{self, Head, Moved, StreamEnd};
use crate::usage::Permit;
use isonomia_policy::{Access, Nature, RequestId};
use isonomia_proto::request::{Op, RequestHeader, flag};
use isonomia_transport::region::{SLOT_LEN, ServerRegion};
use isonomia_transport::seal::{Forged, PART_LEN_MAX, Seals, TAG_LEN};
use isonomia_units::{Bytes, Nanos};
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
    /// The mount of which its process is a client.
    pub mount: Option<MountKey>,
    /// How requests travel.
    pub way: Way,
    /// Of a stream whose frames have tags: what they are made and checked with, by whoever receives or sends on the stream.
    pub seals: Option<Mutex<Seals>>,
    /// Tells sequential requests from others.
    pub cursors: Cursors,
    /// Its permit among those of its user, given back with the last reference to this.
    pub permit: Permit,
    /// What its requests are changing.
    pub changes: Changes,
    /// Set once; nothing is admitted or answered afterwards.
    pub is_closed: AtomicBool,
}

/// A request that waits for its turn, or is served.
#[derive(Debug)]
pub struct Pending {
    /// Where it came from.
    pub connection: Arc<Connection>,
    /// Its slot in shared memory; 0 on a stream.
    pub slot: usize,
    /// What it asks, already checked.
    pub header: RequestHeader,
    /// Its operation.
    pub op: Op,
    /// Its names, if they had to be taken off a stream.
    pub names: Vec<u8>,
    /// When it came.
    pub arrived: Nanos,
    /// What it is charged.
    pub cost: Nanos,
    /// The part of it that settles what earlier requests turned out to cost: see [`crate::debts`].
    pub owed: Nanos,
    /// What it is worth whatever a device makes of it: see [`isonomia_policy::Submission::work`].
    pub work: Nanos,
    /// What it does to a device.
    pub access: Access,
    /// The bytes that it is charged for: of a read those that the file had when it came.
    pub bytes: Bytes,
    /// Bytes that are not asked for, and are read in the same request of the device: see [`crate::short_reads`].
    pub neighbours: Bytes,
    /// What it does, as rules look at it.
    pub nature: Nature,
    /// How long serving it took; nothing of reads and writes, which are charged for their bytes.
    pub took: Nanos,
    /// It is served by a thread that may wait for the device; of a write that was, whether it did.
    pub is_for_device: bool,
    /// It is being served, and may change something.
    pub change: Option<Change>,
}

impl Pending {
    /// To be called before it is served; false if its connection was closed before, and it must not be. Until it is dropped
    /// others wait for what it changes.
    pub fn begin(&mut self) -> bool {
        // A sync changes nothing that others see, and may take long.
        if matches!(self.op, Op::Read | Op::Fsync) {
            return !self.connection.is_closed();
        }
        self.change = self.connection.changes.begin(&self.connection.is_closed);
        self.change.is_some()
    }
}

/// What a connection is in the middle of.
#[derive(Debug)]
pub enum StreamState {
    /// Taking in the head of a request.
    Head(Head),
    /// A request is queued; nothing is read.
    Queued,
    /// A request's turn has come, and it waits for memory, under a number: [`crate::stalls`].
    Waiting(u64),
    /// A write's turn has come, and its payload is not all here.
    Payload(Box<Stalled>),
    /// A reply is not all gone.
    Reply {
        /// What is left of it.
        rest: Vec<u8>,
        /// When something last moved.
        since: Nanos,
    },
}

/// A write whose client stalls.
#[derive(Debug)]
pub struct Stalled {
    /// The request.
    pub pending: Pending,
    /// The arbiter's name for it.
    pub id: RequestId,
    /// When the emulated device is done.
    pub finish_at: Option<Nanos>,
    /// Its payload so far, and room for the rest and a tag.
    pub payload: Vec<u8>,
    /// How far that has come.
    pub arrival: Arrival,
    /// When something last moved.
    pub since: Nanos,
}

/// Bytes of a reply besides its payload at most: its header, and tags.
pub const KEPT_BESIDE: usize = 1 << 10;

impl StreamState {
    /// Bytes that are kept for a client who stalls.
    pub fn kept_bytes(&self) -> usize {
        match self {
            Self::Payload(stalled) => stalled.pending.header.len as usize,
            Self::Reply { rest, .. } => rest.len(),
            Self::Head(_) | Self::Queued | Self::Waiting(_) => 0,
        }
    }

    /// Since when this waits for the client in the middle of something; nothing between two requests. Of a payload or a
    /// reply it is when something last moved. A head is so short that all of it has to come at once.
    pub fn waits_since(&self) -> Option<Nanos> {
        match self {
            Self::Head(head) => head.begun_at,
            Self::Queued | Self::Waiting(_) => None,
            Self::Payload(stalled) => Some(stalled.since),
            Self::Reply { since, .. } => Some(*since),
        }
    }
}

/// How far a payload has come, if in parts with tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes that are there and have been checked.
    opened: usize,
    /// With those of the part that is on its way, and of its tag. The next part replaces the tag.
    filled: usize,
}

impl Arrival {
    /// Goes on receiving a payload from `connection`, into a buffer of its length and that of a tag.
    pub fn go_on(&mut self, connection: &Connection, buffer: &mut [u8], spin: bool) -> Result<Moved, StreamEnd> {
        let tag_len = connection.tag_len();
        let len = buffer.len() - tag_len;
        while self.opened < len {
            let part_len = if tag_len > 0 { PART_LEN_MAX.min(len - self.opened) } else { len };
            let end = self.opened + part_len + tag_len;
            if stream::receive(&connection.socket, &mut buffer[..end], &mut self.filled, spin)? == Moved::Part {
                return Ok(Moved::Part);
            }
            connection.open(&mut buffer[self.opened..end])?;
            self.opened += part_len;
            self.filled = self.opened;
        }
        Ok(Moved::All)
    }
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
            mount: None,
            way: Way::Stream(Mutex::new(StreamState::Queued)),
            seals: None,
            cursors: Cursors::default(),
            permit,
            changes: Changes::default(),
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
        let mut progress = Progress::default();
        let part = |offset: u64, flags| RequestHeader {
            offset,
            flags,
            len: 512 << 10,
            ..RequestHeader::new(Op::Write, Ino(9))
        };
        assert!(!progress.is_continued(Op::Write, &part(0, 0)));
        assert!(progress.is_continued(Op::Write, &part(512 << 10, flag::CONTINUED)));
        assert!(!progress.is_continued(Op::Write, &part(1024 << 10, flag::CONTINUED)), "a second mebibyte");
        assert!(!progress.is_continued(Op::Write, &part(0, flag::CONTINUED)), "not adjacent");
        assert!(!progress.is_continued(Op::Read, &part(512 << 10, flag::CONTINUED)), "another operation");
    }

    #[test]
    fn crumbs_are_no_parts() {
        let mut progress = Progress::default();
        let part = |offset: u64, len| RequestHeader {
            offset,
            len,
            flags: flag::CONTINUED,
            ..RequestHeader::new(Op::Write, Ino(9))
        };
        let is_continued: Vec<bool> = (0..4).map(|at| progress.is_continued(Op::Write, &part(at, 1))).collect();
        assert_eq!(is_continued, [false; 4]);
        // From the middle to where the next stripe begins, and on.
        assert!(!progress.is_continued(Op::Write, &part((1 << 20) - 5, 5)));
        assert!(progress.is_continued(Op::Write, &part(1 << 20, 256 << 10)));
        assert!(progress.is_continued(Op::Write, &part((1 << 20) + (256 << 10), 3)), "the last may be short");
        assert!(!progress.is_continued(Op::Write, &part((1 << 20) + (256 << 10) + 3, 3)), "and is the last");
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
