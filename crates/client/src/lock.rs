//! Locks on files, kept by the server.

use crate::{Client, Error};
use isonomia_proto::fs::Capability;
use isonomia_proto::request::{LockReply, Op, RequestHeader, lock};
use isonomia_units::Ino;
use zerocopy::FromBytes;

/// Who owns a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOwner {
    /// This process, or the one of this number among those it speaks for: the lock ends with this process.
    Process(u64),
    /// The open file of this number ([`crate::OpenHow::number`]): the lock ends with the last process that has it.
    File(u64),
}

/// What kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// With other shared ones.
    Shared,
    /// Alone.
    Exclusive,
}

/// What is locked. The two do not see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRange {
    /// The file, as of `flock(2)`.
    Whole,
    /// Bytes from `start` on, as of `fcntl(2)`.
    Bytes {
        /// The first.
        start: u64,
        /// How many; 0 for all that follow.
        len: u64,
    },
}

/// A lock that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its kind.
    pub kind: LockKind,
    /// Its first byte.
    pub start: u64,
    /// Its bytes; 0 for all that follow.
    pub len: u64,
    /// The process that took it, by its number on its host.
    pub pid: u32,
}

impl Client {
    /// Takes a lock, in place of what the owner held of the same bytes. EAGAIN if another's is in the way; `waits` says
    /// that the caller asks again until it has it, and then EDEADLK tells that it never would.
    pub fn lock(
        &self,
        file: &Capability,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
        waits: bool,
    ) -> Result<(), Error> {
        self.lock_for(own_pid(), file, owner, range, kind, waits)
    }

    /// As [`Self::lock`]; who asks what is in the way is told of process `pid`.
    pub fn lock_for(
        &self,
        pid: u32,
        file: &Capability,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
        waits: bool,
    ) -> Result<(), Error> {
        let mut request = RequestHeader { uid: pid, ..request(file, owner, range, Some(kind)) };
        request.valid |= if waits { lock::WAITS } else { 0 };
        self.transact(request, [b"", b""], &mut []).map(|_| ())
    }

    /// Gives up what the owner holds of `range`.
    pub fn unlock(&self, file: &Capability, owner: LockOwner, range: LockRange) -> Result<(), Error> {
        self.transact(request(file, owner, range, None), [b"", b""], &mut []).map(|_| ())
    }

    /// What would keep [`Self::lock`] from taking a lock now. An owner that waited has given up with this.
    pub fn lock_in_the_way(
        &self,
        file: &Capability,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<LockHolder>, Error> {
        let mut request = request(file, owner, range, Some(kind));
        request.valid |= lock::TEST;
        let mut reply = [0; size_of::<LockReply>()];
        self.transact(request, [b"", b""], &mut reply)?;
        let found = LockReply::read_from_bytes(&reply).map_err(|_| self.malformed(Ino(request.ino)))?;
        let kind = match found.kind {
            lock::SHARED => LockKind::Shared,
            lock::EXCLUSIVE => LockKind::Exclusive,
            _ => return Ok(None),
        };
        Ok(Some(LockHolder { kind, start: found.start, len: found.len, pid: found.pid }))
    }
}

fn own_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}

fn request(file: &Capability, owner: LockOwner, range: LockRange, kind: Option<LockKind>) -> RequestHeader {
    let mut request = RequestHeader::with_capability(Op::Lock, file);
    request.valid = match kind {
        Some(LockKind::Shared) => lock::SHARED,
        Some(LockKind::Exclusive) => lock::EXCLUSIVE,
        None => 0,
    };
    match owner {
        LockOwner::Process(number) => request.owner = number,
        LockOwner::File(number) => {
            request.owner = number;
            request.valid |= lock::OPEN_FILE;
        }
    }
    match range {
        LockRange::Whole => request.valid |= lock::WHOLE,
        LockRange::Bytes { start, len } => (request.offset, request.ino2) = (start, len),
    }
    request
}
