//! The file system as one process sees it: a session with each server that it needs, and which of them is asked.
//!
//! A process is given addresses of servers: the first that answers is its *home*. Every other that it comes to need is named
//! by a *referral*: the reply of a server that does not have what was asked for, and names the server that has it, as far as it
//! knows. Where a volume was found is remembered, as a hint: a wrong one costs one more referral. So where it is not known which
//! server has something, any server can be asked: if the home is away, another one is.

use crate::Error;
use crate::address_book::{self, AddressBook};
use crate::list::List;
use crate::lock_keeper::LockKeeper;
use crate::own_locks::{OwnLocks, Shared};
use crate::routes::Routes;
use crate::session::{Conduct, Notice, Session, changes};
use crate::unsynced::{MARKS_MAX, Mark, Unsynced};
use isonomia_proto::PATH_LEN_MAX;
use isonomia_proto::request::{Op, ReplyHeader, RequestHeader};
use isonomia_proto::setup::Claims;
use isonomia_transport::address::Address;
use isonomia_transport::channel::Manner;
use isonomia_transport::handshake::Protection;
use isonomia_transport::socket::Deadline;
use isonomia_units::{Ino, Nanos, ServerId};
use rustix::io::Errno;
use rustix::thread::Timespec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Referrals that one operation follows at most: for each of as many symbolic links as a path may have, to the root server
/// and from there to the right one. More lead in a circle.
const REFERRALS_MAX: usize = 80;
/// Where other servers can be asked instead, connecting to the home is given up after this time.
const HOME_PATIENCE: Nanos = Nanos::from_secs(3);
/// Of several addresses, each has this long to answer.
const ADDRESS_PATIENCE: Nanos = Nanos::from_secs(2);

/// How long an operation waits for a volume that moves to another server.
const MOVING_WAIT_MAX: Nanos = Nanos::from_secs(15);
/// Between two looks whether it has.
const MOVING_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What a client must know.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where servers listen, of one file system: the first that answers is asked, and another one while that is away.
    pub addresses: Vec<Address>,
    /// After this long without a sign of life from the server an operation fails.
    pub timeout: Nanos,
    /// Who the job is.
    pub claims: Claims,
    /// The key for servers on TCP.
    pub key_file: Option<String>,
}

/// The file system, as one process sees it. See the crate's documentation.
pub struct Client {
    config: Arc<ClientConfig>,
    book: Arc<AddressBook>,
    /// With the first server that answered.
    home: Session,
    /// With the others that were needed, each by its number.
    others: List<(ServerId, Session)>,
    routes: Routes,
    pub(crate) own_locks: Arc<OwnLocks>,
    /// Of changes of names and attributes.
    pub(crate) changed: Unsynced,
    /// How many I/O phases the process has begun and not ended.
    pub(crate) phases: AtomicU32,
}

impl Client {
    /// A client that connects at its first operation.
    pub fn new(config: ClientConfig) -> Self {
        let config = Arc::new(config);
        let conduct = Conduct::default();
        let book = Arc::new(AddressBook::new(&config.addresses));
        let own_locks = Arc::new(OwnLocks::default());
        let home = Session::new(book.clone(), None, config.clone(), (conduct, own_locks.clone()));
        Self {
            config,
            book,
            home,
            others: List::default(),
            routes: Routes::default(),
            own_locks,
            changed: Unsynced::of_servers(MARKS_MAX),
            phases: AtomicU32::new(0),
        }
    }

    /// The same client, that takes a server also from the user `server_user`, and not only from its own and root.
    pub fn trusting(self, server_user: Option<u32>) -> Self {
        let conduct = Conduct { server_user, ..self.home.conduct() };
        Self { home: self.home.conducted(conduct), ..self }
    }

    /// The same client, whose sessions on TCP are protected like this.
    pub fn protected(self, protection: Protection) -> Self {
        let conduct = Conduct { protection, ..self.home.conduct() };
        Self { home: self.home.conducted(conduct), ..self }
    }

    /// The same client, that tells once for each server what it waits for or why it has no session.
    pub fn telling(self, notice: fn(Notice)) -> Self {
        let conduct = Conduct { notice, ..self.home.conduct() };
        Self { home: self.home.conducted(conduct), ..self }
    }

    /// The same client, in a process that shares locks with others, as this function knows.
    pub fn sharing_locks(self, shared: Shared) -> Self {
        let conduct = Conduct { shared_locks: Some(shared), ..self.home.conduct() };
        Self { home: self.home.conducted(conduct), ..self }
    }

    /// The same client, of a mount: another one of its clients has the locks.
    pub fn of_mount(self, keeper: Arc<LockKeeper>) -> Self {
        let conduct = Conduct { keeper: Some(keeper), ..self.home.conduct() };
        Self { home: self.home.conducted(conduct), ..self }
    }

    /// The same client, whose threads wait like this.
    pub fn waiting(self, manner: Manner) -> Self {
        let conduct = Conduct { manner, ..self.home.conduct() };
        Self { home: self.home.conducted(conduct), ..self }
    }

    /// What it has in common with other clients of its mount.
    pub(crate) fn keeper(&self) -> Option<&LockKeeper> {
        self.home.keeper()
    }

    pub(crate) fn conduct(&self) -> Conduct {
        self.home.conduct()
    }

    /// The configuration.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Must be called in the child of a `fork` before any other operation: the parent's connections are the
    /// parent's. The child has one thread, so nothing else uses the client meanwhile.
    pub fn after_fork_in_child(&self) {
        self.own_locks.forget_all();
        self.phases.store(0, Ordering::Relaxed);
        self.sessions().for_each(Session::after_fork_in_child);
    }

    /// Ends all connections, and with them what the servers keep for this process. To them, connections that are made
    /// afterwards are those of another process. An operation that is under way ends normally, and its connection after it.
    pub fn begin_anew(&self) {
        self.sessions().for_each(Session::begin_anew);
    }

    /// Whether the last request to one of the servers ran into the time-out. Requests whose outcome nobody waits for had
    /// better be left out then: each could take the whole time-out again.
    pub fn is_away(&self) -> bool {
        self.sessions().any(Session::is_away)
    }

    /// Whether this process ever connected.
    pub fn is_known(&self) -> bool {
        self.sessions().any(Session::is_known)
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = &Session> {
        std::iter::once(&self.home).chain(self.others.iter().map(|(_, session)| session))
    }

    /// The session in which an inode is asked for.
    pub(crate) fn session_of(&self, ino: Ino) -> Result<&Session, Error> {
        match self.routes.of_volume(ino.volume()) {
            None => Ok(self.contact()),
            Some(server) => self.session_with(server),
        }
    }

    /// The session in which is asked for what nobody is known to have.
    fn contact(&self) -> &Session {
        if self.home.is_away() { self.stand_in().unwrap_or(&self.home) } else { &self.home }
    }

    /// A session with a server that answers although the home does not.
    fn stand_in(&self) -> Option<&Session> {
        if let Some((_, session)) = self.others.iter().find(|(_, session)| session.has_lines() && !session.is_away()) {
            return Some(session);
        }
        self.config.addresses.iter().filter(|_| self.config.addresses.len() > 1).find_map(|address| {
            let server = self.home.who_answers(address, ADDRESS_PATIENCE)?;
            if self.home.server() != Some(server) && self.book.of(server).is_empty() {
                self.book.learn(server, vec![address.clone()]);
            }
            self.session_with(server).ok()
        })
    }

    /// Sends a request to any server.
    fn transact_anywhere(
        &self,
        request: RequestHeader,
        names: [&[u8]; 2],
        reply: &mut [u8],
    ) -> Result<(ReplyHeader, Mark), Error> {
        if self.config.addresses.len() == 1 && self.others.is_empty() {
            return self.home.transact(request, names, reply);
        }
        if !self.home.is_away()
            && let Some(answer) = self.home.transact_if_reached(request, names, reply, HOME_PATIENCE)?
        {
            return Ok(answer);
        }
        self.contact().transact(request, names, reply)
    }

    /// The server that has an inode, as far as it is known; nothing before the first connection.
    pub fn server_of(&self, ino: Ino) -> Option<ServerId> {
        self.routes.of_volume(ino.volume()).or_else(|| self.home.server())
    }

    /// The session with a server that [`Self::server_of`] gave.
    pub(crate) fn session_at(&self, server: Option<ServerId>) -> Result<&Session, Error> {
        server.map_or(Ok(&self.home), |server| self.session_with(server))
    }

    /// One request with names and without payload, sent to whom it concerns. An errno in the reply is an error here.
    pub(crate) fn transact(
        &self,
        request: RequestHeader,
        names: [&[u8]; 2],
        reply: &mut [u8],
    ) -> Result<ReplyHeader, Error> {
        self.transact_marked(request, names, reply).map(|(header, _)| header)
    }

    /// The same, and under which verifier the reply was given.
    pub(crate) fn transact_marked(
        &self,
        mut request: RequestHeader,
        names: [&[u8]; 2],
        reply: &mut [u8],
    ) -> Result<(ReplyHeader, Mark), Error> {
        // `Symlink` has the text of the link first, and its own path second.
        let path_at = usize::from(request.op == Op::Symlink as u16);
        // What a referral left of the path.
        let mut rest: Option<Box<[u8]>> = None;
        let (mut referrals, mut waits) = (0, None);
        while referrals <= REFERRALS_MAX {
            let mut names = names;
            names[path_at] = rest.as_deref().unwrap_or(names[path_at]);
            let is_from_root = Ino(request.ino) == Ino::ROOT;
            let known = if is_from_root { self.routes.of_path(names[path_at]) } else { None };
            let outcome = match known.or_else(|| self.routes.of_volume(Ino(request.ino).volume())) {
                Some(server) => self.session_with(server)?.transact(request, names, reply),
                None => self.transact_anywhere(request, names, reply),
            };
            match outcome {
                Err(Error::Moving) => {
                    self.wait_for_volume(&mut waits)?;
                    continue;
                }
                Err(Error::Elsewhere { server, rest }) if rest.is_empty() => self.note_route(Ino(request.ino), server),
                Err(Error::Elsewhere { server, rest: left }) if left.len() < PATH_LEN_MAX => {
                    self.routes.learn_path(&left, server);
                    request = request.from_root(path_at, left.len() as u16);
                    rest = Some(left);
                }
                outcome => {
                    if let (Ok((_, mark)), true) = (&outcome, changes(&request)) {
                        self.changed.note(*mark);
                    }
                    return outcome;
                }
            }
            referrals += 1;
        }
        Err(Error::Server(Errno::LOOP))
    }

    /// Does what concerns an inode in the session with its server, wherever that is found to be.
    pub(crate) fn at_server<T>(
        &self,
        ino: Ino,
        mut operation: impl FnMut(&Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut referrals, mut waits) = (0, None);
        while referrals <= REFERRALS_MAX {
            match operation(self.session_of(ino)?) {
                Err(Error::Moving) => {
                    self.wait_for_volume(&mut waits)?;
                    continue;
                }
                Err(Error::Elsewhere { server, .. }) => self.note_route(ino, server),
                outcome => return outcome,
            }
            referrals += 1;
        }
        Err(Error::Server(Errno::LOOP))
    }

    /// Waits before a server is asked again that has the volume on its way. EBUSY when that takes too long.
    fn wait_for_volume(&self, waits: &mut Option<Deadline>) -> Result<(), Error> {
        let until = *waits.get_or_insert_with(|| Deadline::after(MOVING_WAIT_MAX.min(self.config.timeout)));
        if until.left().is_none() {
            return Err(Error::Server(Errno::BUSY));
        }
        // A signal only has it ask sooner.
        let _ = rustix::thread::nanosleep(&MOVING_PAUSE);
        Ok(())
    }

    /// Remembers that `server` is to be asked for `ino`.
    pub(crate) fn note_route(&self, ino: Ino, server: ServerId) {
        self.routes.learn_volume(ino.volume(), server);
    }

    /// The session with the server of this number, whose address another one knows.
    pub(crate) fn session_with(&self, server: ServerId) -> Result<&Session, Error> {
        if self.home.server() == Some(server) {
            return Ok(&self.home);
        }
        if let Some((_, session)) = self.others.iter().find(|(number, _)| *number == server) {
            return Ok(session);
        }
        if self.book.of(server).is_empty() {
            self.book.learn(server, self.addresses_of(server)?);
        }
        let mut conduct = self.home.conduct();
        // Of the server that was named, and of no other.
        conduct.protection.server_name = None;
        let conduct = (conduct, self.own_locks.clone());
        let session = Session::new(self.book.clone(), Some(server), self.config.clone(), conduct);
        let (_, session) =
            self.others.add((server, session), |others| others.iter().find(|(number, _)| *number == server));
        Ok(session)
    }

    fn addresses_of(&self, server: ServerId) -> Result<Vec<Address>, Error> {
        let request = RequestHeader { offset: u64::from(server.0), ..RequestHeader::new(Op::FindServer, Ino::ROOT) };
        let mut reply = vec![0; PATH_LEN_MAX];
        let (header, _) = self.transact_anywhere(request, [b"", b""], &mut reply)?;
        let found = reply.get(..header.payload_len as usize).and_then(address_book::parse);
        found.ok_or_else(|| self.home.malformed())
    }

    /// A reply about `at` that cannot be understood.
    pub(crate) fn malformed(&self, at: Ino) -> Error {
        match self.session_of(at) {
            Ok(session) => session.malformed(),
            Err(error) => error,
        }
    }
}
