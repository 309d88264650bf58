//! Who has the writable shared mapping of a file: at most one session, and others one after the other.
//!
//! A mapping is given to who asks for it first, and stays with it until it is given back. Its holder is told that others
//! wait: that is all that this table does about it, and a holder that does not answer keeps the others waiting until it
//! disconnects.
//!
//! A session hears of its mappings by a request that stays unanswered until there is news, its *listener*: whatever
//! `L` is, it is handed back with what to answer.
//!
//! Sans I/O: time is passed in. A request costs O(mappings of a session), and O(sessions that wait) for the inode.

use isonomia_proto::mapping::{News, WANTED_MAX};
use isonomia_units::{Ino, Nanos};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Mappings of one session, had and waited for.
const MAPPINGS_PER_SESSION_MAX: usize = 4_096;
/// Inodes of which anybody has the mapping.
const MAPPINGS_MAX: usize = 1 << 18;

/// A session: the key of a client process.
pub type Session = (u32, u64);

/// Too many mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// A listener, and what it is to be told.
#[derive(Debug, PartialEq, Eq)]
pub struct Told<L> {
    /// Whom.
    pub listener: L,
    /// What; `None` if another listens in its place.
    pub news: Option<News>,
}

/// See the module.
#[derive(Debug)]
pub struct Mappings<L> {
    table: Mutex<Table<L>>,
    /// Whether anybody ever took one, so that sessions without need not look.
    is_used: AtomicBool,
}

#[derive(Debug)]
struct Table<L> {
    /// Who has it, then who waits.
    inodes: HashMap<Ino, VecDeque<Session>>,
    sessions: HashMap<Session, State<L>>,
    /// The last number that was given to a session or a version.
    last: u64,
}

#[derive(Debug)]
struct State<L> {
    number: u64,
    version: u64,
    /// Had or waited for.
    inodes: BTreeSet<Ino>,
    listener: Option<(L, Nanos)>,
}

impl<L> Mappings<L> {
    /// No mappings. Numbers of sessions are above `start`: the numbers of an earlier server must be below.
    pub fn new(start: u64) -> Self {
        let table = Table { inodes: HashMap::new(), sessions: HashMap::new(), last: start };
        Self { table: Mutex::new(table), is_used: AtomicBool::new(false) }
    }

    fn table(&self) -> MutexGuard<'_, Table<L>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives `session` the mapping, or makes it wait for it. Whether it has it now, the number of the session, and the
    /// holder's listener if that must hear of it.
    pub fn take(&self, session: Session, ino: Ino) -> Result<(bool, u64, Option<Told<L>>), TooMany> {
        self.is_used.store(true, Ordering::Release);
        let mut table = self.table();
        let is_full = table.inodes.len() >= MAPPINGS_MAX;
        let state = table.state(session);
        let number = state.number;
        if !state.inodes.contains(&ino) {
            if is_full || state.inodes.len() >= MAPPINGS_PER_SESSION_MAX {
                table.forget_if_empty(session);
                return Err(TooMany);
            }
            state.inodes.insert(ino);
            table.inodes.entry(ino).or_default().push_back(session);
        }
        let Some(queue) = table.inodes.get(&ino) else { return Err(TooMany) };
        let (holder, is_news) = (queue[0], queue.len() == 2);
        let told = if is_news { table.tell(holder) } else { None };
        Ok((holder == session, number, told))
    }

    /// `session` neither has the mapping nor waits for it any more.
    pub fn give(&self, session: Session, ino: Ino) -> Option<Told<L>> {
        let mut table = self.table();
        let told = table.leave(session, ino);
        table.forget_if_empty(session);
        told
    }

    /// `listener` is told of the first change of the session's mappings after version `seen`, or at `until`. Gives who is
    /// to be told now: the listener itself, or the one before it.
    pub fn listen(&self, session: Session, seen: u64, until: Nanos, listener: L) -> Option<Told<L>> {
        self.is_used.store(true, Ordering::Release);
        let mut table = self.table();
        let state = table.state(session);
        if state.version != seen {
            let news = Some(table.news(session));
            table.forget_if_empty(session);
            return Some(Told { listener, news });
        }
        state.listener.replace((listener, until)).map(|(listener, _)| Told { listener, news: None })
    }

    /// The session has ended, and has nothing any more.
    pub fn end(&self, session: Session) -> Vec<Told<L>> {
        if !self.is_used.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut table = self.table();
        let Some(state) = table.sessions.remove(&session) else { return Vec::new() };
        state.inodes.iter().filter_map(|ino| table.leave(session, *ino)).collect()
    }

    /// Listeners whose time has come.
    pub fn due(&self, now: Nanos) -> Vec<Told<L>> {
        if !self.is_used.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut table = self.table();
        let is_due = |state: &State<L>| state.listener.as_ref().is_some_and(|(_, until)| *until <= now);
        let due: Vec<Session> =
            table.sessions.iter().filter(|(_, state)| is_due(state)).map(|(session, _)| *session).collect();
        let answer = |session: Session| {
            let told = table.answer(session);
            table.forget_if_empty(session);
            told
        };
        due.into_iter().filter_map(answer).collect()
    }
}

impl<L> Table<L> {
    fn state(&mut self, session: Session) -> &mut State<L> {
        let last = &mut self.last;
        self.sessions.entry(session).or_insert_with(|| {
            *last += 1;
            State { number: *last, version: *last, inodes: BTreeSet::new(), listener: None }
        })
    }

    fn forget_if_empty(&mut self, session: Session) {
        if self.sessions.get(&session).is_some_and(|state| state.inodes.is_empty() && state.listener.is_none()) {
            self.sessions.remove(&session);
        }
    }

    fn leave(&mut self, session: Session, ino: Ino) -> Option<Told<L>> {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.inodes.remove(&ino);
        }
        let queue = self.inodes.get_mut(&ino)?;
        let at = queue.iter().position(|other| *other == session)?;
        queue.remove(at);
        match queue.front().copied() {
            // Whoever waited longest has it now.
            Some(next) if at == 0 => self.tell(next),
            Some(_) => None,
            None => {
                self.inodes.remove(&ino);
                None
            }
        }
    }

    /// The mappings of `session` have changed; gives its listener, if it has one.
    fn tell(&mut self, session: Session) -> Option<Told<L>> {
        self.last += 1;
        self.sessions.get_mut(&session)?.version = self.last;
        self.answer(session)
    }

    fn answer(&mut self, session: Session) -> Option<Told<L>> {
        let (listener, _) = self.sessions.get_mut(&session)?.listener.take()?;
        Some(Told { listener, news: Some(self.news(session)) })
    }

    fn news(&self, session: Session) -> News {
        let Some(state) = self.sessions.get(&session) else { return News::default() };
        let is_wanted =
            |ino: &&Ino| self.inodes.get(ino).is_some_and(|queue| queue.len() > 1 && queue.front() == Some(&session));
        let wanted = state.inodes.iter().filter(is_wanted).take(WANTED_MAX).copied().collect();
        News { session: state.number, version: state.version, wanted }
    }
}
