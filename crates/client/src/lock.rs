//! Locks on files, kept by the server.

use crate::lock_keeper::LockKeeper;
use crate::own_locks::OwnLock;
use crate::session::{Session, claimed};
use crate::{Client, Error};
use isonomia_proto::fs::Capability;
use isonomia_proto::request::{LockReply, Op, RequestHeader, lock};
use isonomia_transport::socket::Deadline;
use isonomia_units::{Ino, Nanos, ServerId};
use rustix::io::Errno;
use zerocopy::FromBytes;

/// How long is waited for each server that is asked only so that locks are claimed in time.
const REACHED_WITHIN: Nanos = Nanos::from_secs(1);

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
    /// Takes a lock, which replaces what the owner had of the same bytes. EAGAIN if another's is in the way; `waits` says
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

    /// Asks for what this process has locked of a server that may have started anew, so that it is claimed in time. To be called
    /// every second or so by who has locks and may have nothing else to ask for; it does nothing without any.
    pub fn keep_locks(&self) {
        if self.own_locks.is_empty() {
            return;
        }
        let may_have = |session: &&Session| session.is_known() && self.own_locks.may_be_of(session.server());
        for session in self.sessions().filter(may_have) {
            // One that is away is not waited for while others may start anew.
            let _ = session.confirm(Deadline::after(REACHED_WITHIN));
        }
    }

    /// EIO if a lock of a file was lost, and not given up since.
    pub(crate) fn check_locks(&self, ino: Ino) -> Result<(), Error> {
        self.own_locks.check(ino)?;
        self.keeper().map_or(Ok(()), |keeper| keeper.check(ino))
    }

    /// Returns once it is known whether the locks that this client has at `server` are lost: they are not if the session in which it
    /// has them is still there when this is called.
    ///
    /// # Errors
    /// The server was not reached until the `deadline`, or did not answer within the time-out.
    pub(crate) fn confirm_locks(&self, server: ServerId, deadline: Deadline) -> Result<(), Error> {
        if self.own_locks.is_empty() || !self.own_locks.may_be_of(Some(server)) {
            return Ok(());
        }
        for session in self.sessions().filter(|session| session.is_known() && session.server() == Some(server)) {
            session.confirm(deadline)?;
        }
        Ok(())
    }

    /// Whether this process has this byte of the file locked for itself alone, as of `fcntl(2)`.
    pub fn has_locked_byte(&self, ino: Ino, byte: u64) -> bool {
        self.own_locks.has_byte(ino, byte)
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
        let mut patience = self.patience();
        let mut may_adopt = matches!(owner, LockOwner::File(_));
        loop {
            let before = (self.session_of(Ino(file.ino))?.claimed_in(), self.arrivals());
            match self.transact(request, [b"", b""], &mut []) {
                // A server that has just started waits for those who had locks.
                Err(Error::Server(Errno::BUSY)) if waits => return Err(Error::Server(Errno::AGAIN)),
                Err(Error::Server(Errno::BUSY)) => patience.pause(Errno::BUSY)?,
                // One that was started anew does not know who has which open file.
                Err(Error::Server(Errno::STALE)) if std::mem::take(&mut may_adopt) => {
                    self.adopt(file, request.owner)?;
                }
                outcome => {
                    outcome?;
                    return self.has_locked(request, before);
                }
            }
        }
    }

    /// How many connections other clients of the mount have made.
    fn arrivals(&self) -> u64 {
        self.keeper().map_or(0, LockKeeper::arrivals)
    }

    /// Notes what the server has given while the session was, or became, the one of this number, and since other clients of the mount
    /// had made so many connections.
    fn has_locked(&self, request: RequestHeader, (before, arrivals): (u64, u64)) -> Result<(), Error> {
        let session = self.session_of(Ino(request.ino))?;
        let has_replaced = self.own_locks.put(session.server(), &request);
        // Who claims meanwhile may have looked what there is before this was noted.
        session.claims_end();
        let own = OwnLock { server: session.server(), request, is_lost: false };
        let outcome = if session.claimed_in() == before {
            self.confirm_if_more_arrived(session, &own, arrivals)
        } else {
            // Another thread came to a new session meanwhile, and has not claimed this one.
            self.transact(claimed(&own), [b"", b""], &mut []).map(drop)
        };
        outcome.inspect_err(|_| {
            // The owner is told that he does not have this one. What he had of these bytes before he believes that he has.
            if has_replaced {
                self.own_locks.lose(&own);
            } else {
                self.own_locks.cut(&request);
            }
        })
    }

    /// Somebody may have come to a connection after the session of a lock had ended, and before the lock was noted.
    fn confirm_if_more_arrived(&self, session: &Session, own: &OwnLock, before: u64) -> Result<(), Error> {
        let Some(server) = session.server().filter(|_| self.arrivals() != before) else { return Ok(()) };
        self.confirm_locks(server, Deadline::after(session.timeout()))?;
        if self.own_locks.is_lost(&own.request) { Err(Error::Server(Errno::IO)) } else { Ok(()) }
    }

    /// Gives up what the owner has of `range`.
    pub fn unlock(&self, file: &Capability, owner: LockOwner, range: LockRange) -> Result<(), Error> {
        let request = request(file, owner, range, None);
        // Also if the server cannot be told: then it is started anew, or knows by the end of the session.
        self.own_locks.cut(&request);
        self.transact(request, [b"", b""], &mut []).map(|_| ())
    }

    /// Claims nothing of `range` any more should the server start anew: it was given up, or is by the end of what had it.
    pub fn forget_lock(&self, file: &Capability, owner: LockOwner, range: LockRange) {
        self.own_locks.cut(&request(file, owner, range, None));
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
        let mut patience = self.patience();
        while let Err(error) = self.transact(request, [b"", b""], &mut reply) {
            match error {
                Error::Server(Errno::BUSY) => patience.pause(Errno::BUSY)?,
                error => return Err(error),
            }
        }
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

pub(crate) fn request(file: &Capability, owner: LockOwner, range: LockRange, kind: Option<LockKind>) -> RequestHeader {
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
