//! Shared mappings of files: at most one session has the writable one of a file, for its host's kernel; programs without such
//! a kernel between map memory that the server keeps for them.

use crate::session::Session;
use crate::unsynced::Mark;
use crate::{Client, Error, OpenFile};
use isonomia_proto::fs::Capability;
use isonomia_proto::mapping::{HAD, LEASE_EVENTS_LEN_MAX, LeaseEvents, STORES};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_transport::descriptor::Parked;
use isonomia_transport::line::Line;
use isonomia_transport::socket::Deadline;
use isonomia_units::{Ino, Nanos, ServerId};
use rustix::io::Errno;
use rustix::thread::{Timespec, nanosleep};

/// Between two requests for memory while a mount has the mapping: it gives it back within some of these.
const AGAIN_AFTER: Nanos = Nanos::from_millis(2);

impl Client {
    /// Memory that stands for the first `end` bytes of the file, for all processes of the server's host that map it: a
    /// descriptor to map, for writing as well if `stores`. The memory stays theirs as long as anybody has the descriptor or a
    /// mapping of it. ENODEV if the server is elsewhere, if the file is spread, or if a file that is open for reading only is not in memory
    /// already; ENOMEM if it is too long; EAGAIN if a mount has the mapping and does not give it back in time.
    pub fn map_file(&self, file: &OpenFile, end: u64, stores: bool) -> Result<Parked, Error> {
        if file.stripes.is_some() {
            return Err(Error::Argument(Errno::NODEV));
        }
        let deadline = Deadline::after(self.config().timeout);
        loop {
            match self.map_file_once(file, end, stores) {
                Err(Error::Server(Errno::AGAIN)) if deadline.left().is_some() => {
                    // An interrupted pause is a shorter one.
                    let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: AGAIN_AFTER.0 as _ });
                }
                outcome => return outcome,
            }
        }
    }

    /// Whether the server may have memory that stands for a file like this one: not over TCP, nor if the file is spread.
    pub fn may_share_memory(&self, file: &OpenFile) -> Result<bool, Error> {
        if file.stripes.is_some() {
            return Ok(false);
        }
        self.at_server(Ino(file.capability.ino), Session::is_beside_server)
    }

    fn map_file_once(&self, file: &OpenFile, end: u64, stores: bool) -> Result<Parked, Error> {
        self.at_server(Ino(file.capability.ino), |session| session.map_file(file, end, stores))
    }

    /// Takes the mapping of a file for this session, or waits for it: whether it is there, and the session's number. To
    /// be asked again when [`Self::await_mappings`] tells of a change. `had_it` if the server gave it before, and this
    /// asks whether it is still there: ESTALE if it is not, and others may have had it since. A server that has just started
    /// believes who says so, and answers others with EAGAIN.
    pub fn take_mapping(&self, file: &Capability, had_it: bool) -> Result<(bool, u64), Error> {
        let mut reply = [0; LEASE_EVENTS_LEN_MAX];
        let valid = if had_it { HAD } else { 0 };
        let request = RequestHeader { valid, ..RequestHeader::with_capability(Op::TakeMapping, file) };
        let header = self.transact(request, [b"", b""], &mut reply)?;
        let events = self.events(Ino(file.ino), &reply, header.payload_len)?;
        Ok((header.value != 0, events.session))
    }

    /// Gives the mapping of `ino` back, or waits for it no more.
    pub fn give_mapping(&self, ino: Ino) -> Result<(), Error> {
        self.transact(RequestHeader::new(Op::GiveMapping, ino), [b"", b""], &mut []).map(|_| ())
    }

    /// Writes what was stored in the mapping of a file, as [`Self::write_at`]; the server does so only while the session
    /// of this number has the mapping: not this one's, if whose job is charged is not who took it. EAGAIN if nobody has it
    /// (a server that has just started, or lost the session: to be taken again); EIO if another session has it.
    pub fn write_back(&self, file: &OpenFile, session: u64, offset: u64, data: &[u8]) -> Result<usize, Error> {
        self.transfer_write_back(file, session, offset, data)
    }

    /// How the mappings of the session with `server` (of [`Client::server_of`]) stand once they are no longer as they were at
    /// version `seen`, or after `most`, which is to be shorter than the time-out.
    pub fn await_mappings(&self, server: Option<ServerId>, seen: u64, most: Nanos) -> Result<LeaseEvents, Error> {
        let request = RequestHeader { offset: seen, ino2: most.0, ..RequestHeader::new(Op::AwaitMappings, Ino::ROOT) };
        let mut reply = [0; LEASE_EVENTS_LEN_MAX];
        let session = self.session_at(server)?;
        let (header, _) = session.transact(request, [b"", b""], &mut reply)?;
        reply.get(..header.payload_len as usize).and_then(LeaseEvents::decode).ok_or_else(|| session.malformed())
    }

    fn events(&self, at: Ino, reply: &[u8], len: u32) -> Result<LeaseEvents, Error> {
        reply.get(..len as usize).and_then(LeaseEvents::decode).ok_or_else(|| self.malformed(at))
    }
}

impl Session {
    fn is_beside_server(&self) -> Result<bool, Error> {
        let deadline = Deadline::after(self.timeout());
        Ok(matches!(self.take_line(deadline)?.line(deadline)?, Line::Shared(_)))
    }

    fn map_file(&self, file: &OpenFile, end: u64, stores: bool) -> Result<Parked, Error> {
        let timeout = self.timeout();
        let deadline = Deadline::after(timeout);
        let request = RequestHeader {
            offset: end,
            valid: if stores { STORES } else { 0 },
            target: file.layout.locate(0).0.0,
            ..RequestHeader::with_capability(Op::MapFile, &file.capability)
        };
        let mut taken = self.take_line(deadline)?;
        loop {
            let line = taken.line(deadline)?;
            let mark = Mark::of(line);
            if let Line::Tcp(_) = line {
                return Err(Error::Argument(Errno::NODEV));
            }
            let exchanged = line.exchange(&request, [b"", b""], &mut [], timeout, self.manner());
            let received = exchanged.and_then(|(header, of_error)| match line {
                Line::Shared(channel) if header.errno == 0 => {
                    Ok((header, of_error, channel.receive_descriptor(timeout)?))
                }
                _ => Ok((header, of_error, None)),
            });
            match received {
                Ok((header, of_error, descriptor)) => {
                    self.checked(header, of_error)?;
                    if stores {
                        file.unsynced.note(mark);
                    }
                    return descriptor.ok_or(Error::Argument(Errno::MFILE));
                }
                Err(error) => {
                    taken.hang_up();
                    self.after_loss(error, true, deadline)?;
                }
            }
        }
    }
}
