//! Reads and writes: split where the layout and the connection ask for it, several pieces under way at once.
//!
//! While the server works on one piece, this side copies the next into (or the last out of) the shared memory.

use crate::files::OpenFile;
use crate::session::Session;
use crate::stripes::Position;
use crate::unsynced::Mark;
use crate::{Client, Error};
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader, flag, reading};
use isonomia_proto::{PAYLOAD_LEN_MAX, writing};
use isonomia_transport::channel::{Channel, Manner};
use isonomia_transport::line::Line;
use isonomia_transport::socket::{Deadline, SocketError};
use isonomia_transport::stream::Stream;
use isonomia_units::{Ino, Nanos};
use rustix::io::Errno;

/// What moved before a transfer ended, and why it ended.
struct Progress {
    bytes: usize,
    end: End,
}

enum End {
    /// Everything moved, or the file ended.
    Complete,
    /// The server refused a piece.
    Refused(ReplyHeader),
    /// A piece that was read is not what the server expects: it is to look itself.
    Unlike,
    /// The line broke.
    Broken(SocketError),
}

/// Blocks of reads of so many bytes are compared with their checksums here: shorter ones are compared in the time that it takes to tell
/// the sums.
const COMPARED_LEN_MIN: usize = 32 << 10;

/// The bytes of a transfer: into the program's buffer, or out of it.
pub(crate) enum Side<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8], Purpose),
}

/// What a write is.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Plain,
    /// Past the page caches of servers' hosts, where they can.
    Direct,
    /// To the end of the file.
    Append,
    /// Of what was stored in a mapping, by the session of this number.
    WriteBack(u64),
}

/// One piece of a transfer: a range on one target, small enough for one request.
struct Piece {
    start: usize,
    len: usize,
    slot: usize,
}

impl Side<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Read(buffer) => buffer.len(),
            Self::Write(data, _) => data.len(),
        }
    }

    fn op(&self) -> Op {
        match self {
            Self::Read(_) => Op::Read,
            Self::Write(..) => Op::Write,
        }
    }

    /// Marks a request for a piece of it.
    pub(crate) fn mark(&self, request: &mut RequestHeader) {
        match self {
            Self::Read(_) | Self::Write(_, Purpose::Plain) => {}
            Self::Write(_, Purpose::Direct) => request.valid |= writing::DIRECT,
            Self::Write(_, Purpose::Append) => request.flags |= flag::APPEND,
            Self::Write(_, Purpose::WriteBack(session)) => {
                request.flags |= flag::WRITE_BACK;
                request.ino2 = *session;
            }
        }
    }
}

impl Client {
    pub(crate) fn transfer_read(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        self.transfer(file, offset, Side::Read(buffer))
    }

    pub(crate) fn transfer_write(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize, Error> {
        self.transfer(file, offset, Side::Write(data, Purpose::Plain))
    }

    pub(crate) fn transfer_write_direct(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize, Error> {
        self.transfer(file, offset, Side::Write(data, Purpose::Direct))
    }

    pub(crate) fn transfer_write_back(
        &self,
        file: &OpenFile,
        session: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Error> {
        self.transfer(file, offset, Side::Write(data, Purpose::WriteBack(session)))
    }

    pub(crate) fn transfer_append(&self, file: &OpenFile, data: &[u8]) -> Result<(u64, usize), Error> {
        if data.is_empty() {
            return Ok((file.attr.size_bytes, 0));
        }
        if let Some(stripes) = &file.stripes {
            return self.append_stripes(file, stripes, data);
        }
        if data.len() <= Channel::PAYLOAD_LEN_MAX && file.layout.targets.len() == 1 {
            return self.append_at_once(file, data);
        }
        let len = data.len().min(u32::MAX as usize);
        let mut request = RequestHeader::with_capability(Op::ReserveAppend, &file.capability);
        request.len = len as u32;
        request.target = file.layout.locate(0).0.0;
        let offset = self.transact(request, [b"", b""], &mut [])?.value;
        Ok((offset, self.transfer(file, offset, Side::Write(&data[..len], Purpose::Plain))?))
    }

    /// An append that fits one request: the server finds the end and writes there in one step.
    fn append_at_once(&self, file: &OpenFile, data: &[u8]) -> Result<(u64, usize), Error> {
        let request = piece(file, &Side::Write(data, Purpose::Append), 0, 0, data.len(), true);
        // A write has no names, so its payload goes where they would.
        let mut reply = [0; size_of::<u64>()];
        let (header, mark) = self.transact_marked(request, [data, b""], &mut reply)?;
        file.unsynced.note(mark);
        Ok((header.value, reply.first_chunk().map_or(0, |len| u64::from_le_bytes(*len) as usize)))
    }

    fn transfer(&self, file: &OpenFile, offset: u64, mut side: Side<'_>) -> Result<usize, Error> {
        let total = side.len();
        if total == 0 {
            return Ok(0);
        }
        let Some(room) = (i64::MAX as u64).checked_sub(offset).filter(|room| *room > 0) else {
            return if side.op() == Op::Read { Ok(0) } else { Err(Error::Argument(Errno::FBIG)) };
        };
        let total = total.min(usize::try_from(room).unwrap_or(usize::MAX));
        if let Some(stripes) = &file.stripes {
            // Data servers of a spread file know of no locks.
            self.check_locks(Ino(file.capability.ino))?;
            return match side {
                Side::Read(buffer) => self.read_stripes(file, stripes, offset, &mut buffer[..total]),
                Side::Write(data, Purpose::WriteBack(session)) => {
                    // Data servers of a spread file know of no mappings.
                    let mut request = RequestHeader::with_capability(Op::Write, &file.capability);
                    (request.flags, request.ino2) = (flag::WRITE_BACK, session);
                    request.target = file.layout.locate(0).0.0;
                    self.transact(request, [b"", b""], &mut [])?;
                    self.write_stripes(file, stripes, offset, (&data[..total], Purpose::Plain), Position::Given)
                }
                Side::Write(data, purpose) => {
                    self.write_stripes(file, stripes, offset, (&data[..total], purpose), Position::Given)
                }
            };
        }
        self.at_server(Ino(file.capability.ino), |session| session.transfer(file, offset, &mut side, total))
    }
}

impl Session {
    fn transfer(&self, file: &OpenFile, offset: u64, side: &mut Side<'_>, total: usize) -> Result<usize, Error> {
        let timeout = self.timeout();
        let mut taken = self.take_line(Deadline::after_about(timeout))?;
        let (mut done, mut compares) = (0, true);
        loop {
            let deadline = Deadline::after_about(timeout);
            let line = taken.line(deadline)?;
            self.check_locks(Ino(file.capability.ino))?;
            let mark = Mark::of(line);
            let progress = match line {
                Line::Shared(channel) => {
                    pipeline(channel, file, offset, (&mut *side, compares), done..total, (timeout, self.manner()))
                }
                Line::Tcp(stream) => {
                    (self.manner().before_sleep)();
                    one_by_one(stream, file, offset, side, done..total, timeout)
                }
            };
            done += progress.bytes;
            if progress.bytes > 0 {
                self.note_answer();
                if let Side::Write(..) = side {
                    file.unsynced.note(mark);
                }
            }
            match progress.end {
                End::Complete => return Ok(done),
                // As for `read(2)` and `write(2)`: if something was moved before the failure, that is the result, and the next
                // call fails.
                End::Refused(_) if done > 0 => return Ok(done),
                End::Refused(header) => return self.checked(header, Box::default()).map(|_| 0),
                End::Unlike => compares = false,
                End::Broken(error) => {
                    taken.hang_up();
                    self.after_loss(error, true, deadline)?;
                }
            }
        }
    }
}

/// The request for the piece that starts `start` bytes into a transfer, `room` bytes long at most.
fn piece(file: &OpenFile, side: &Side<'_>, offset: u64, start: usize, room: usize, first: bool) -> RequestHeader {
    let at = offset + start as u64;
    let (target, run) = file.layout.locate(at);
    let len = room.min(usize::try_from(run).unwrap_or(usize::MAX));
    let mut request = RequestHeader::with_capability(side.op(), &file.capability);
    request.offset = at;
    request.len = len as u32;
    request.target = target.0;
    request.flags = if first { 0 } else { flag::CONTINUED };
    side.mark(&mut request);
    request
}

/// Through shared memory: pieces follow each other without waiting, replies are taken in order. With `compares` what is read is compared
/// here.
fn pipeline(
    channel: &mut Channel,
    file: &OpenFile,
    offset: u64,
    (side, compares): (&mut Side<'_>, bool),
    range: std::ops::Range<usize>,
    (timeout, manner): (Nanos, Manner),
) -> Progress {
    let mut pieces: [Piece; Channel::DEPTH] = std::array::from_fn(|_| Piece { start: 0, len: 0, slot: 0 });
    let (mut sent, mut taken, mut posted) = (0, 0, range.start);
    let mut moved = 0;
    let mut end = None;
    loop {
        while end.is_none() && posted < range.end && sent - taken < Channel::DEPTH {
            let room = (range.end - posted).min(Channel::PAYLOAD_LEN_MAX);
            // The cost of an operation is charged once for every PAYLOAD_LEN_MAX bytes, however they are split.
            let first = (posted - range.start).is_multiple_of(PAYLOAD_LEN_MAX);
            let mut request = piece(file, side, offset, posted, room, first);
            let len = request.len as usize;
            match side {
                Side::Write(data, _) => {
                    channel.stage().copy_from(&data[posted..posted + len]);
                }
                Side::Read(_) if compares && len >= COMPARED_LEN_MIN => request.valid = reading::COMPARES,
                Side::Read(_) => {}
            }
            match channel.send(&request) {
                Ok(slot) => pieces[sent % Channel::DEPTH] = Piece { start: posted, len, slot },
                Err(error) => return Progress { bytes: moved, end: End::Broken(error) },
            }
            sent += 1;
            posted += len;
        }
        if taken == sent {
            return Progress { bytes: moved, end: end.unwrap_or(End::Complete) };
        }
        let Piece { start, len, slot } = pieces[taken % Channel::DEPTH];
        taken += 1;
        let header = match channel.wait(slot, timeout, manner) {
            Ok(header) => header,
            Err(error) => return Progress { bytes: moved, end: End::Broken(error) },
        };
        if end.is_some() {
            continue;
        }
        if header.errno != 0 {
            end = Some(End::Refused(header));
            continue;
        }
        let count = match side {
            Side::Read(buffer) => {
                let count = (header.payload_len as usize).min(len);
                let compared = if compares { header.value } else { 0 };
                match channel.take_payload(slot, compared, &mut buffer[start..start + count]) {
                    Some(true) => {}
                    Some(false) => {
                        end = Some(End::Unlike);
                        continue;
                    }
                    None => return Progress { bytes: moved, end: End::Broken(SocketError::Closed) },
                }
                count
            }
            Side::Write(..) => (header.value as usize).min(len),
        };
        moved += count;
        if count < len {
            end = Some(End::Complete);
        }
    }
}

/// Over TCP: one piece after the other.
fn one_by_one(
    stream: &mut Stream,
    file: &OpenFile,
    offset: u64,
    side: &mut Side<'_>,
    range: std::ops::Range<usize>,
    timeout: Nanos,
) -> Progress {
    let mut moved = 0;
    let complete = |bytes| Progress { bytes, end: End::Complete };
    while range.start + moved < range.end {
        let start = range.start + moved;
        let room = (range.end - start).min(PAYLOAD_LEN_MAX);
        let request = piece(file, side, offset, start, room, true);
        let len = request.len as usize;
        let exchanged = match side {
            Side::Read(buffer) => stream.exchange(&request, [b"", b""], &[], &mut buffer[start..start + len], timeout),
            Side::Write(data, _) => stream.exchange(&request, [b"", b""], &data[start..start + len], &mut [], timeout),
        };
        let header = match exchanged {
            Ok((header, _)) if header.errno != 0 => return Progress { bytes: moved, end: End::Refused(header) },
            Ok((header, _)) => header,
            Err(error) => return Progress { bytes: moved, end: End::Broken(error) },
        };
        let count = match side {
            Side::Read(_) => header.payload_len as usize,
            Side::Write(..) => (header.value as usize).min(len),
        };
        moved += count;
        if count < len {
            return complete(moved);
        }
    }
    complete(moved)
}
