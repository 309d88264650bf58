//! Locks that are claimed from a server which has started anew, before anything else is asked of it: [`crate::own_locks`].

use super::{Notice, Session};
use crate::Error;
use crate::own_locks::OwnLock;
use isonomia_proto::PATH_LEN_MAX;
use isonomia_proto::request::{Op, RequestHeader, lock};
use isonomia_transport::line::Line;
use isonomia_transport::socket::{Deadline, SocketError};
use isonomia_units::Ino;
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Looks at what another thread does are this far apart.
const LOOK_EVERY_NS: i64 = 200_000;

thread_local! {
    /// This thread is claiming: what it asks meanwhile on another line has nothing to wait for. Plain data, as in [`super`].
    static IS_CLAIMING: Cell<bool> = const { Cell::new(false) };
}

impl Session {
    /// A connection to the server, which knows of this process's locks as far as they are to be had.
    pub(super) fn connect_and_claim(&self, deadline: Deadline) -> Result<Line, Error> {
        loop {
            let mut line = self.connect(deadline)?;
            match self.claim(&mut line, deadline) {
                Ok(()) => {
                    let arrived = self.keeper().map(|keeper| keeper.arrived(&self.own_locks, line.server(), deadline));
                    match arrived.unwrap_or(Ok(())) {
                        Ok(()) => return Ok(line),
                        // It is not this one that the server refuses.
                        Err(Error::Refused { .. }) if deadline.left().is_some() => pause(),
                        Err(Error::Refused { .. }) => return Err(self.timed_out()),
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => self.after_loss(error, true, deadline)?,
            }
        }
    }

    /// The number of the session in which locks are what this process believes.
    pub fn claimed_in(&self) -> u64 {
        self.claimed_in.load(Ordering::Acquire)
    }

    /// Waits until no thread claims locks: what is noted before is claimed by those that begin later.
    pub fn claims_end(&self) {
        while self.is_claiming.load(Ordering::Acquire) && !IS_CLAIMING.get() {
            pause();
        }
    }

    /// Returns once the server has answered in the session in which this process has its locks, or in another one, in which they have been
    /// claimed. What is asked waits for no storage and for nobody's turn. The server is to be reached until the `deadline`; for its answer is
    /// waited as long as ever, because who hangs up may lose the locks.
    pub fn confirm(&self, deadline: Deadline) -> Result<(), Error> {
        let Some(server) = self.server() else { return Ok(()) };
        let request = RequestHeader { offset: u64::from(server.0), ..RequestHeader::new(Op::FindServer, Ino::ROOT) };
        let mut taken = self.take_line(deadline)?;
        loop {
            let line = taken.line(deadline)?;
            // Whatever the answer is.
            match line.exchange(&request, [b"", b""], &mut [0; PATH_LEN_MAX], self.timeout(), self.manner()) {
                Ok(_) => return Ok(()),
                Err(error) => {
                    taken.hang_up();
                    self.after_loss(error, true, deadline)?;
                }
            }
        }
    }

    fn claim(&self, line: &mut Line, deadline: Deadline) -> Result<(), SocketError> {
        loop {
            if self.claimed_in() == line.session() || IS_CLAIMING.get() {
                return Ok(());
            }
            if !self.is_claiming.swap(true, Ordering::Acquire) {
                IS_CLAIMING.set(true);
                let outcome = if self.claimed_in() == 0 { Ok(()) } else { self.claim_all(line) };
                IS_CLAIMING.set(false);
                if outcome.is_ok() {
                    self.claimed_in.store(line.session(), Ordering::Release);
                }
                self.is_claiming.store(false, Ordering::Release);
                return outcome;
            }
            // Another thread claims them.
            deadline.left().ok_or(SocketError::TimedOut)?;
            pause();
        }
    }

    fn claim_all(&self, line: &mut Line) -> Result<(), SocketError> {
        let (mut adopted, mut lost) = (BTreeSet::new(), 0);
        for own in self.own_locks.of_server(line.server(), self.conduct.shared_locks) {
            let RequestHeader { ino, owner, valid, .. } = own.request;
            let mut errno = 0;
            if valid & lock::OPEN_FILE != 0 && !adopted.contains(&(ino, owner)) {
                // The lock is the open file's, which the server does not know any more.
                errno = self.ask(line, RequestHeader { op: Op::Adopt as u16, ..own.request })?;
                adopted.insert((ino, owner));
            }
            if errno == 0 {
                errno = self.ask(line, claimed(&own))?;
            }
            // Of those of which it is not known whose they are, this one is another server's.
            let is_elsewhere = own.server.is_none() && errno == Errno::REMCHG.raw_os_error().unsigned_abs();
            if errno != 0 && !is_elsewhere {
                self.own_locks.lose(&own);
                lost += 1;
            }
        }
        if lost > 0 {
            let (address, files) = (self.address(), if lost == 1 { "a lock" } else { "locks" });
            let text = format!("the server at {address} has not kept {files}: reads and writes of the file fail");
            (self.conduct.notice)(Notice::Warning(&text));
        }
        Ok(())
    }

    fn ask(&self, line: &mut Line, request: RequestHeader) -> Result<u32, SocketError> {
        let answer = line.exchange(&request, [b"", b""], &mut [], self.timeout(), self.manner())?;
        Ok(answer.0.errno)
    }
}

fn pause() {
    // An interrupted one is shorter.
    let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY_NS });
}

/// The request that claims a lock.
pub(crate) fn claimed(own: &OwnLock) -> RequestHeader {
    let valid = own.request.valid & !lock::WAITS | lock::CLAIMED;
    RequestHeader { valid, ..own.request }
}
