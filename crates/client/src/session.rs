//! A client's side of its session with a server: its connections, shared by its threads.
//!
//! A thread takes a line out of a bounded pool for the time of one operation, so there are as many connections as
//! operations ever ran at once, and a thread that ends leaves nothing behind. A line that breaks is thrown away;
//! what may safely be repeated is sent again on a new one until the time-out.

mod claim;
mod kinds;
mod reach;

use crate::address_book::AddressBook;
use crate::lock_keeper::LockKeeper;
use crate::own_locks::{OwnLocks, Shared};
use crate::unsynced::Mark;
use crate::{ClientConfig, Error};
use isonomia_proto::request::{ReplyHeader, RequestHeader};
use isonomia_transport::channel::Manner;
use isonomia_transport::handshake::Protection;
use isonomia_transport::key::fresh_nonce;
use isonomia_transport::line::Line;
use isonomia_transport::socket::{Deadline, SocketError};
use isonomia_units::{Ino, Nanos, ServerId};
use rustix::io::Errno;
use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Connections of one process at most; further threads wait for one to be free.
const LINES_MAX: usize = 64;
/// Stands for the number of a server that is not known.
const SERVER_UNKNOWN: u32 = u32::MAX;

/// How a process behaves towards servers, besides what is in its [`ClientConfig`].
#[derive(Clone)]
pub(crate) struct Conduct {
    /// How its threads wait.
    pub manner: Manner,
    /// Who may run the server, besides this user and root.
    pub server_user: Option<u32>,
    /// How connections on TCP are protected.
    pub protection: Protection,
    /// Is told, once for each server, why operations wait or fail.
    pub notice: fn(Notice),
    /// What knows of locks that this process shares with others.
    pub shared_locks: Option<Shared>,
    /// What the client has in common with others of its mount.
    pub keeper: Option<Arc<LockKeeper>>,
}

/// Why operations wait or fail, in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// There is no session, and each operation fails with an error that says the same.
    Refused(&'a str),
    /// Operations wait, or fail with errors that do not say this.
    Warning(&'a str),
}

impl Notice<'_> {
    /// The line.
    pub fn text(&self) -> &str {
        match self {
            Self::Refused(text) | Self::Warning(text) => text,
        }
    }
}

impl Default for Conduct {
    fn default() -> Self {
        let (manner, protection) = (Manner::default(), Protection::default());
        Self { manner, server_user: None, protection, notice: |_| {}, shared_locks: None, keeper: None }
    }
}

/// The connections of this process to one server.
pub(crate) struct Session {
    book: Arc<AddressBook>,
    /// Made from the address that answered last, which is tried first.
    chosen: AtomicU64,
    /// The server was not chosen: the first one that answers is it.
    is_home: bool,
    /// The server's number: which it must have, or which it has.
    server: AtomicU32,
    config: Arc<ClientConfig>,
    conduct: Conduct,
    own_locks: Arc<OwnLocks>,
    /// The number of the session of the server's in which this process has its locks; 0 before the first.
    claimed_in: AtomicU64,
    /// A thread is claiming these locks.
    is_claiming: AtomicBool,
    /// A notice was given, and the same one is not given again.
    has_noticed: AtomicBool,
    /// This process among all clients; drawn at the first connection.
    number: AtomicU64,
    /// How often [`Session::begin_anew`] was called: lines that were connected before are not used any more.
    beginnings: AtomicU64,
    /// The server has refused another line, and none was lost since: asking again is of no use.
    is_full: AtomicBool,
    /// Threads that are connecting a line.
    connecting: AtomicU32,
    /// Whether an operation ran into the time-out, and none was answered since.
    is_away: AtomicBool,
    lines: Box<[PoolEntry]>,
}

/// One entry of the pool.
struct PoolEntry {
    busy: AtomicBool,
    /// Whether `line` is there: a hint, for choosing.
    connected: AtomicBool,
    /// [`Session::beginnings`] as it was when `line` was connected. As `line`, it belongs to the thread that took the entry.
    beginnings: AtomicU64,
    line: UnsafeCell<Option<Line>>,
}

// SAFETY: `line` is touched only by the thread that changed `busy` from false to true (see `Session::take`), or by
// the only thread of a forked child.
unsafe impl Sync for PoolEntry {}

thread_local! {
    /// Where this thread found a line last. Plain data without a destructor, so it may be touched at any time.
    static LAST_ENTRY: Cell<usize> = const { Cell::new(0) };
}

/// An entry taken by this thread, given back when dropped.
pub(crate) struct Taken<'a> {
    session: &'a Session,
    entry: &'a PoolEntry,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.is_of_before() {
            self.hang_up();
        }
        self.entry.busy.store(false, Ordering::Release);
    }
}

pub(crate) use claim::claimed;
pub(crate) use kinds::changes;
use kinds::{may_repeat, needs_locks};

impl Session {
    /// A session with the server of this number, or with the first that answers at the addresses that were given; from then on
    /// with that one. It connects at its first operation.
    pub fn new(
        book: Arc<AddressBook>,
        server: Option<ServerId>,
        config: Arc<ClientConfig>,
        (conduct, own_locks): (Conduct, Arc<OwnLocks>),
    ) -> Self {
        let entry = || PoolEntry {
            busy: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            beginnings: AtomicU64::new(0),
            line: UnsafeCell::new(None),
        };
        let lines = (0..LINES_MAX).map(|_| entry()).collect();
        Self {
            book,
            chosen: AtomicU64::new(0),
            is_home: server.is_none(),
            server: AtomicU32::new(server.map_or(SERVER_UNKNOWN, |server| u32::from(server.0))),
            config,
            conduct,
            own_locks,
            claimed_in: AtomicU64::new(0),
            is_claiming: AtomicBool::new(false),
            has_noticed: AtomicBool::new(false),
            number: AtomicU64::new(0),
            beginnings: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            connecting: AtomicU32::new(0),
            is_away: AtomicBool::new(false),
            lines,
        }
    }

    /// The same session, that has not connected yet, with another conduct.
    pub fn conducted(self, conduct: Conduct) -> Self {
        Self { conduct, ..self }
    }

    pub fn conduct(&self) -> Conduct {
        self.conduct.clone()
    }

    pub fn keeper(&self) -> Option<&LockKeeper> {
        self.conduct.keeper.as_deref()
    }

    pub fn manner(&self) -> Manner {
        self.conduct.manner
    }

    pub fn timeout(&self) -> Nanos {
        self.config.timeout
    }

    /// Must be called in the child of a `fork` before any other operation: the parent's connections are the
    /// parent's. The child has one thread, so nothing else uses the client meanwhile.
    pub fn after_fork_in_child(&self) {
        self.number.store(0, Ordering::Relaxed);
        self.claimed_in.store(0, Ordering::Relaxed);
        self.is_claiming.store(false, Ordering::Relaxed);
        self.connecting.store(0, Ordering::Relaxed);
        for entry in &self.lines {
            // SAFETY: the child has only this thread; whatever the parent's threads were doing, they are not here.
            // Dropping closes and unmaps the child's copies and sends nothing.
            unsafe { *entry.line.get() = None };
            entry.connected.store(false, Ordering::Relaxed);
            entry.busy.store(false, Ordering::Relaxed);
        }
    }

    /// Ends all connections, and with them what the server keeps for this process. To the server, connections that are made
    /// afterwards are those of another process. An operation that is under way ends normally, and its connection after it.
    pub fn begin_anew(&self) {
        self.number.store(0, Ordering::Relaxed);
        self.claimed_in.store(0, Ordering::Relaxed);
        self.beginnings.fetch_add(1, Ordering::Release);
        for entry in &self.lines {
            if !entry.busy.swap(true, Ordering::Acquire) {
                drop(Taken { session: self, entry });
            }
        }
    }

    /// One request with names and without payload; under which verifier the reply was given. An errno in the reply is an error
    /// here.
    pub fn transact(
        &self,
        request: RequestHeader,
        names: [&[u8]; 2],
        reply: &mut [u8],
    ) -> Result<(ReplyHeader, Mark), Error> {
        let outcome = self.transact_if_reached(request, names, reply, self.config.timeout)?;
        outcome.ok_or_else(|| self.timed_out())
    }

    /// The same if the server can be reached within `patience`. If not, the request may be sent to another one that can
    /// serve it.
    pub fn transact_if_reached(
        &self,
        request: RequestHeader,
        names: [&[u8]; 2],
        reply: &mut [u8],
        patience: Nanos,
    ) -> Result<Option<(ReplyHeader, Mark)>, Error> {
        let deadline = Deadline::after_about(patience.min(self.config.timeout));
        let mut taken = match self.take_line(deadline) {
            Err(Error::TimedOut { .. }) => return Ok(None),
            taken => taken?,
        };
        loop {
            let line = match taken.line(deadline) {
                Err(Error::TimedOut { .. }) => return Ok(None),
                line => line?,
            };
            // A server that ended while nobody used the line has not had the request, which may go to the next one then, though
            // it must not be sent twice.
            if !may_repeat(&request) && line.is_ended() && deadline.left().is_some() {
                taken.hang_up();
                continue;
            }
            if needs_locks(&request) {
                self.check_locks(Ino(request.ino))?;
            }
            let mark = Mark::of(line);
            match line.exchange(&request, names, reply, self.config.timeout, self.conduct.manner) {
                Ok((header, of_error)) => return self.checked(header, of_error).map(|header| Some((header, mark))),
                Err(error) => {
                    taken.hang_up();
                    self.after_loss(error, may_repeat(&request), deadline)?;
                }
            }
        }
    }

    /// Whether the last request ran into the time-out. Requests whose outcome nobody waits for had better be left out then:
    /// each would take the whole time-out again.
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Notes that the server has answered.
    pub fn note_answer(&self) {
        if self.is_away() {
            self.is_away.store(false, Ordering::Relaxed);
        }
    }

    /// An error reply, which came with this payload, becomes an error.
    pub fn checked(&self, header: ReplyHeader, payload: Box<[u8]>) -> Result<ReplyHeader, Error> {
        self.note_answer();
        if header.errno == 0 {
            return Ok(header);
        }
        // The kernel's own bounds of error numbers; a peer may send anything.
        if !(1..4096).contains(&header.errno) {
            return Err(self.malformed());
        }
        let errno = Errno::from_raw_os_error(header.errno as i32);
        if errno == Errno::REMCHG {
            let server = ServerId(u16::try_from(header.value).map_err(|_| self.malformed())?);
            let is_itself = self.server() == Some(server);
            return Err(if is_itself { Error::Moving } else { Error::Elsewhere { server, rest: payload } });
        }
        if errno == Errno::REMOTE && !payload.is_empty() {
            return Err(Error::Outside(payload));
        }
        Err(Error::Server(errno))
    }

    /// Whether to send a request again after its line broke: `Ok` if so, else the error of the operation.
    pub fn after_loss(&self, error: SocketError, may_repeat: bool, deadline: Deadline) -> Result<(), Error> {
        match error {
            SocketError::TimedOut => Err(self.timed_out()),
            SocketError::Frame(_) => Err(self.malformed()),
            _ if may_repeat && deadline.left().is_some() => Ok(()),
            _ if may_repeat => Err(self.timed_out()),
            _ => Err(Error::Lost(self.address())),
        }
    }

    /// EIO if a lock of the file was lost.
    pub fn check_locks(&self, ino: Ino) -> Result<(), Error> {
        self.own_locks.check(ino)?;
        self.keeper().map_or(Ok(()), |keeper| keeper.check(ino))
    }

    pub fn malformed(&self) -> Error {
        Error::Protocol(self.address())
    }

    pub fn timed_out(&self) -> Error {
        self.is_away.store(true, Ordering::Relaxed);
        let seconds = self.config.timeout.0.div_ceil(1_000_000_000);
        Error::TimedOut { address: self.address(), seconds }
    }

    /// Takes an entry and connects it. Where the server lets its user have no more lines, its threads share those that
    /// there are.
    pub fn take_line(&self, deadline: Deadline) -> Result<Taken<'_>, Error> {
        loop {
            let mut taken = self.take(deadline)?;
            match taken.line(deadline) {
                Ok(_) => return Ok(taken),
                Err(Error::Refused { .. }) if self.comes_to_have_lines(deadline) => {
                    self.is_full.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether there is a line; waits for the threads that are connecting one.
    fn comes_to_have_lines(&self, deadline: Deadline) -> bool {
        loop {
            // Read before the lines are looked at: a thread that is no longer connecting by now has its line there.
            let is_connecting = self.connecting.load(Ordering::Acquire) > 0;
            if self.has_lines() {
                return true;
            }
            if !is_connecting || deadline.left().is_none() {
                return false;
            }
            (self.conduct.manner.before_sleep)();
            rustix::thread::sched_yield();
        }
    }

    pub fn has_lines(&self) -> bool {
        self.lines.iter().any(|entry| entry.connected.load(Ordering::Relaxed))
    }

    /// Takes an entry that is connected, if one is free.
    pub fn take_connected(&self) -> Option<Taken<'_>> {
        self.take_first(std::iter::once(LAST_ENTRY.get()).chain(0..LINES_MAX), true)
    }

    /// Takes the first of these entries that is free, and connected if it must be.
    fn take_first(&self, indices: impl Iterator<Item = usize>, must_be_connected: bool) -> Option<Taken<'_>> {
        for index in indices {
            let Some(entry) = self.lines.get(index) else { continue };
            let is_chosen = !must_be_connected || entry.connected.load(Ordering::Relaxed);
            if is_chosen && !entry.busy.load(Ordering::Relaxed) && !entry.busy.swap(true, Ordering::Acquire) {
                LAST_ENTRY.set(index);
                return Some(Taken { session: self, entry });
            }
        }
        None
    }

    /// Takes an entry: the one this thread had last if it is free, else one that is connected, else any.
    pub fn take(&self, deadline: Deadline) -> Result<Taken<'_>, Error> {
        loop {
            // The thread may have used another client of this process last, so the entry may have no line in this one.
            let is_full = self.is_full.load(Ordering::Relaxed) && self.has_lines();
            let any = || self.take_first(0..if is_full { 0 } else { LINES_MAX }, false);
            if let Some(taken) = self.take_connected().or_else(any) {
                return Ok(taken);
            }
            deadline.left().ok_or_else(|| self.timed_out())?;
            (self.conduct.manner.before_sleep)();
            rustix::thread::sched_yield();
        }
    }

    /// Whether this process ever connected.
    pub fn is_known(&self) -> bool {
        self.number.load(Ordering::Relaxed) != 0
    }

    /// The number of the server, once it is known.
    pub fn server(&self) -> Option<ServerId> {
        u16::try_from(self.server.load(Ordering::Relaxed)).ok().map(ServerId)
    }

    fn notice(&self, notice: Notice) {
        if !self.has_noticed.swap(true, Ordering::Relaxed) {
            (self.conduct.notice)(notice);
        }
    }

    /// The number of this process, the same for all its connections.
    fn number(&self) -> Result<u64, Errno> {
        let known = self.number.load(Ordering::Relaxed);
        if known != 0 {
            return Ok(known);
        }
        let nonce = fresh_nonce()?;
        let fresh =
            u64::from_le_bytes([nonce[0], nonce[1], nonce[2], nonce[3], nonce[4], nonce[5], nonce[6], nonce[7]]);
        let fresh = fresh | 1;
        Ok(self.number.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(fresh))
    }
}

impl Taken<'_> {
    /// Whether the client began anew since the line was connected.
    fn is_of_before(&self) -> bool {
        self.entry.beginnings.load(Ordering::Relaxed) != self.session.beginnings.load(Ordering::Relaxed)
    }

    /// The line of this entry, connected if need be.
    pub fn line(&mut self, deadline: Deadline) -> Result<&mut Line, Error> {
        if self.is_of_before() {
            self.hang_up();
        }
        // SAFETY: `busy` is ours until drop, and `&mut self` hands out one reference at a time.
        let line = unsafe { &mut *self.entry.line.get() };
        match line {
            Some(line) => Ok(line),
            None => {
                self.entry.beginnings.store(self.session.beginnings.load(Ordering::Acquire), Ordering::Relaxed);
                self.session.connecting.fetch_add(1, Ordering::Relaxed);
                let connected = self.session.connect_and_claim(deadline);
                self.entry.connected.store(connected.is_ok(), Ordering::Relaxed);
                self.session.connecting.fetch_sub(1, Ordering::Release);
                Ok(line.insert(connected?))
            }
        }
    }

    /// Drops the line: after an error, a late reply to the failed request could be taken for the reply to the next one.
    pub fn hang_up(&mut self) {
        self.entry.connected.store(false, Ordering::Relaxed);
        self.session.is_full.store(false, Ordering::Relaxed);
        // SAFETY: as in `line`.
        unsafe { *self.entry.line.get() = None };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claims, Client};
    use isonomia_proto::request::Op;

    fn config(timeout: Nanos) -> ClientConfig {
        let addresses = vec!["unix:/nonexistent/isonomia.sock".parse().unwrap()];
        ClientConfig { addresses, timeout, claims: Claims::default(), key_file: None }
    }

    fn session_with_nobody() -> Session {
        let config = config(Nanos::from_millis(50));
        let conduct = Conduct::default();
        Session::new(Arc::new(AddressBook::new(&config.addresses)), None, Arc::new(config), (conduct, Arc::default()))
    }

    #[test]
    fn a_thread_that_comes_from_another_session_takes_a_line_that_is_connected() {
        let session = session_with_nobody();
        session.lines[3].connected.store(true, Ordering::Relaxed);
        LAST_ENTRY.set(5);
        let deadline = Deadline::after(Nanos::from_secs(1));
        let first = session.take(deadline).unwrap();
        assert_eq!(LAST_ENTRY.get(), 3);
        let second = session.take(deadline).unwrap();
        assert_eq!(LAST_ENTRY.get(), 0, "the connected one is busy");
        drop((first, second));
        session.take(deadline).unwrap();
        assert_eq!(LAST_ENTRY.get(), 3);
    }

    #[test]
    fn a_session_that_begins_anew_is_another_to_the_server() {
        let session = session_with_nobody();
        let deadline = Deadline::after(Nanos::from_secs(1));
        let before = session.number().unwrap();
        session.lines[3].connected.store(true, Ordering::Relaxed);
        let taken = session.take(deadline).unwrap();
        session.begin_anew();
        assert!(!session.is_known() && taken.is_of_before());
        assert!(session.lines[3].connected.load(Ordering::Relaxed), "in use until it is given back");
        drop(taken);
        assert!(!session.lines.iter().any(|entry| entry.connected.load(Ordering::Relaxed)));
        assert_ne!(session.number().unwrap(), before);
    }

    #[test]
    fn a_wait_is_told_once() {
        static TOLD: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
        let client = Client::new(config(Nanos::from_millis(1_900)))
            .telling(|told| TOLD.lock().unwrap().push(told.text().to_owned()));
        (0..2).for_each(|_| drop(client.get_attr(Ino::ROOT, b"", true)));
        let told = TOLD.lock().unwrap();
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("waiting for a server at unix:/nonexistent/isonomia.sock, 2 s at most: No such file")
        );
    }

    #[test]
    fn each_address_that_was_tried_is_named() {
        let addresses = ["unix:/nonexistent/a", "unix:/nonexistent/b"].map(|text| text.parse().unwrap());
        let config = ClientConfig { addresses: addresses.into(), ..config(Nanos::from_millis(50)) };
        let error = Client::new(config).get_attr(Ino::ROOT, b"", true).unwrap_err();
        assert_eq!(error.errno(), Errno::TIMEDOUT);
        assert!(error.to_string().contains("unix:/nonexistent/a,unix:/nonexistent/b"), "{error}");
    }

    #[test]
    fn a_server_that_never_comes_ends_in_a_timeout() {
        let session = session_with_nobody();
        let error = session.transact(RequestHeader::new(Op::GetAttr, Ino::ROOT), [b"", b""], &mut []).unwrap_err();
        assert_eq!(error.errno(), Errno::TIMEDOUT);
        assert!(session.is_away());
        session.note_answer();
        assert!(!session.is_away());
        assert!(error.to_string().contains("unix:/nonexistent/isonomia.sock"));
    }
}
