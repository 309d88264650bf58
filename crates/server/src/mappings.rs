//! Who has the writable shared mapping of a file: at most one session, and others one after the other.
//!
//! A mapping is given to who asks for it first, and stays with it until it is given back. Its holder is told that others
//! wait: that is all that this table does about it, and a holder that does not answer keeps the others waiting until it
//! disconnects.
//!
//! A server that starts knows of nobody who has a mapping from the server before it. So for a while it gives mappings to
//! those only who may claim theirs: [`crate::holders`].
//!
//! A holder writes what was stored in its mapping to the file under a guard, [`Mappings::pin`]: only the holder gets the guard,
//! and until it is dropped the mapping is not given to another session.
//!
//! A session hears of its mappings by a request that stays unanswered until there is an event, its *listener*: whatever
//! `L` is, it is handed back with what to answer.
//!
//! Sans I/O: time is passed in. A request costs O(log mappings of a session), O(sessions that wait) for the inode, and O([`WANTED_MAX`])
//! for each session that hears of it.

use isonomia_proto::mapping::{LeaseEvents, WANTED_MAX};
use isonomia_units::{Ino, Nanos};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

/// Mappings of one session, had and waited for: a program that maps one more is killed when it touches it.
const MAPPINGS_PER_SESSION_MAX: usize = 1 << 16;
/// Inodes of which anybody has the mapping. Each takes 130 bytes, all of them 130 MiB; and 85 for a session that waits.
const MAPPINGS_MAX: usize = 1 << 20;
/// Mappings of all sessions of one user, had and waited for: other users find room.
const MAPPINGS_PER_USER_MAX: usize = MAPPINGS_MAX / 2;

/// Inodes share so many locks for [`Mappings::pin`]: more than there are workers, mostly.
const FENCES: usize = 32;

/// A session: its user, and its number.
pub type SessionId = (u32, u64);

/// Too many mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// While this lives, nobody else gets the mapping.
pub type Pinned<'a> = RwLockReadGuard<'a, ()>;

/// Why a session does not have a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHolder {
    /// Another session has it.
    Elsewhere,
    /// Nobody has it.
    Nobody,
}

/// A listener, and what it is to be told.
#[derive(Debug, PartialEq, Eq)]
pub struct Delivery<L> {
    /// Whom.
    pub listener: L,
    /// What; `None` if another listens instead.
    pub events: Option<LeaseEvents>,
}

/// See the module.
#[derive(Debug)]
pub struct Mappings<L> {
    table: Mutex<Table<L>>,
    /// By inode: shared while its holder writes back, exclusive while it goes. Locked before the table, in their order.
    fences: [RwLock<()>; FENCES],
    /// Whether any session ever took a mapping: if none did, the end of a session need not look.
    is_used: AtomicBool,
}

#[derive(Debug)]
struct Table<L> {
    /// Who has it, then who waits.
    inodes: HashMap<Ino, VecDeque<SessionId>>,
    sessions: HashMap<SessionId, State<L>>,
    /// How many mappings the sessions of each user have or wait for.
    users: HashMap<u32, usize>,
    /// The last number that was given to a session or a version.
    last: u64,
}

#[derive(Debug)]
struct State<L> {
    number: u64,
    version: u64,
    /// Had or waited for.
    inodes: BTreeSet<Ino>,
    /// Those of them that it has and others wait for.
    wanted: BTreeSet<Ino>,
    listener: Option<(L, Nanos)>,
}

impl<L> Mappings<L> {
    /// No mappings. Numbers of holders are above `start`: the numbers of an earlier server must be below.
    pub fn new(start: u64) -> Self {
        let table = Table { inodes: HashMap::new(), sessions: HashMap::new(), users: HashMap::new(), last: start };
        let fences = std::array::from_fn(|_| RwLock::new(()));
        Self { table: Mutex::new(table), fences, is_used: AtomicBool::new(false) }
    }

    /// Whether anybody has one.
    pub fn are_there_any(&self) -> bool {
        self.is_used.load(Ordering::Acquire) && !self.table().inodes.is_empty()
    }

    /// Whether `session` has any, or waits for one.
    pub fn any_of(&self, session: SessionId) -> bool {
        let has_some = || self.table().sessions.get(&session).is_some_and(|state| !state.inodes.is_empty());
        self.is_used.load(Ordering::Acquire) && has_some()
    }

    fn table(&self) -> MutexGuard<'_, Table<L>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fence(&self, ino: Ino) -> &RwLock<()> {
        &self.fences[(ino.0 % FENCES as u64) as usize]
    }

    /// Keeps the mapping with the session of this number for as long as the guard lives, if it has it.
    pub fn pin(&self, number: u64, ino: Ino) -> Result<Pinned<'_>, NotHolder> {
        let pinned = self.fence(ino).read().unwrap_or_else(PoisonError::into_inner);
        let table = self.table();
        let holder = table.inodes.get(&ino).and_then(|queue| table.sessions.get(queue.front()?));
        match holder {
            Some(state) if state.number == number => Ok(pinned),
            Some(_) => Err(NotHolder::Elsewhere),
            None => Err(NotHolder::Nobody),
        }
    }

    /// The number of `session`, if it has the mapping.
    pub fn number_of_holder(&self, session: SessionId, ino: Ino) -> Option<u64> {
        let table = self.table();
        let holder = table.inodes.get(&ino)?.front().filter(|holder| **holder == session)?;
        table.sessions.get(holder).map(|state| state.number)
    }

    /// Gives `session` the mapping, or makes it wait for it. Whether it has it now, the number of the session, and the
    /// holder's listener if that must hear of it.
    pub fn take(&self, session: SessionId, ino: Ino) -> Result<(bool, u64, Option<Delivery<L>>), TooMany> {
        self.is_used.store(true, Ordering::Release);
        let mut table = self.table();
        let state = table.state(session);
        let (number, is_known) = (state.number, state.inodes.contains(&ino));
        if !is_known && !table.has_room(session, ino) {
            table.forget_if_empty(session);
            return Err(TooMany);
        }
        let told = if is_known { None } else { table.join(session, ino) };
        let holder = table.inodes.get(&ino).and_then(VecDeque::front);
        Ok((holder == Some(&session), number, told))
    }

    /// `session` neither has the mapping nor waits for it any more. Waits for its writes under [`Self::pin`].
    pub fn give(&self, session: SessionId, ino: Ino) -> Vec<Delivery<L>> {
        let _fence = self.fence(ino).write().unwrap_or_else(PoisonError::into_inner);
        let mut table = self.table();
        let told = table.leave(session, ino);
        table.forget_if_empty(session);
        told
    }

    /// `listener` is told of the first change of the session's mappings after version `seen`, or at `until`. Gives who is
    /// to be told now: the listener itself, or the one before it.
    pub fn listen(&self, session: SessionId, seen: u64, until: Nanos, listener: L) -> Option<Delivery<L>> {
        self.is_used.store(true, Ordering::Release);
        let mut table = self.table();
        let state = table.state(session);
        if state.version != seen {
            let events = Some(table.events(session));
            table.forget_if_empty(session);
            return Some(Delivery { listener, events });
        }
        state.listener.replace((listener, until)).map(|(listener, _)| Delivery { listener, events: None })
    }

    /// The session has ended, and has nothing any more. Waits for every write under [`Self::pin`].
    pub fn end(&self, session: SessionId) -> Vec<Delivery<L>> {
        if !self.is_used.load(Ordering::Acquire) {
            return Vec::new();
        }
        if !self.table().sessions.contains_key(&session) {
            return Vec::new();
        }
        let _fences: Vec<_> =
            self.fences.iter().map(|fence| fence.write().unwrap_or_else(PoisonError::into_inner)).collect();
        let mut table = self.table();
        let Some(state) = table.sessions.remove(&session) else { return Vec::new() };
        state.inodes.iter().flat_map(|ino| table.leave(session, *ino)).collect()
    }

    /// Listeners whose time has come.
    pub fn due(&self, now: Nanos) -> Vec<Delivery<L>> {
        if !self.is_used.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut table = self.table();
        let is_due = |state: &State<L>| state.listener.as_ref().is_some_and(|(_, until)| *until <= now);
        let due: Vec<SessionId> =
            table.sessions.iter().filter(|(_, state)| is_due(state)).map(|(session, _)| *session).collect();
        let answer = |session: SessionId| {
            let told = table.answer(session);
            table.forget_if_empty(session);
            told
        };
        due.into_iter().filter_map(answer).collect()
    }
}

impl<L> Table<L> {
    fn state(&mut self, session: SessionId) -> &mut State<L> {
        let last = &mut self.last;
        self.sessions.entry(session).or_insert_with(|| {
            *last += 1;
            State { number: *last, version: *last, inodes: BTreeSet::new(), wanted: BTreeSet::new(), listener: None }
        })
    }

    fn forget_if_empty(&mut self, session: SessionId) {
        if self.sessions.get(&session).is_some_and(|state| state.inodes.is_empty() && state.listener.is_none()) {
            self.sessions.remove(&session);
        }
    }

    /// Whether one more session may have `ino` or wait for it. Those who wait are as many as the sessions at most.
    fn has_room(&self, session: SessionId, ino: Ino) -> bool {
        let of_session = self.sessions.get(&session).map_or(0, |state| state.inodes.len());
        let of_user = self.users.get(&session.0).copied().unwrap_or_default();
        of_session < MAPPINGS_PER_SESSION_MAX
            && of_user < MAPPINGS_PER_USER_MAX
            && (self.inodes.len() < MAPPINGS_MAX || self.inodes.contains_key(&ino))
    }

    /// The last in the queue for `ino`; its holder hears of the first who waits only.
    fn join(&mut self, session: SessionId, ino: Ino) -> Option<Delivery<L>> {
        self.state(session).inodes.insert(ino);
        *self.users.entry(session.0).or_default() += 1;
        // In most cases no other session waits.
        let queue = self.inodes.entry(ino).or_insert_with(|| VecDeque::with_capacity(1));
        queue.push_back(session);
        let holder = queue.front().copied().filter(|_| queue.len() == 2)?;
        self.sessions.get_mut(&holder)?.wanted.insert(ino);
        self.tell(holder)
    }

    /// Out of the queue for `ino`: who is to hear of it.
    fn leave(&mut self, session: SessionId, ino: Ino) -> Vec<Delivery<L>> {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.inodes.remove(&ino);
        }
        let Some(queue) = self.inodes.get_mut(&ino) else { return Vec::new() };
        let Some(at) = queue.iter().position(|other| *other == session) else { return Vec::new() };
        queue.remove(at);
        let (next, is_wanted) = (queue.front().copied(), queue.len() > 1);
        if next.is_none() {
            self.inodes.remove(&ino);
        }
        if let Some(count) = self.users.get_mut(&session.0) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&session.0);
            }
        }
        let Some(next) = next else { return Vec::new() };
        if at > 0 {
            return if is_wanted { Vec::new() } else { Vec::from_iter(self.want_no_more(next, ino)) };
        }
        // Whoever waited longest has it now.
        if is_wanted && let Some(state) = self.sessions.get_mut(&next) {
            state.wanted.insert(ino);
        }
        self.want_no_more(session, ino).into_iter().chain(self.tell(next)).collect()
    }

    /// Nobody wants `ino` of `holder` any more. If there was no room for all that is wanted in what it was told, there is
    /// for one more now.
    fn want_no_more(&mut self, holder: SessionId, ino: Ino) -> Option<Delivery<L>> {
        let wanted = &mut self.sessions.get_mut(&holder)?.wanted;
        let is_event = wanted.remove(&ino) && wanted.len() >= WANTED_MAX;
        if is_event { self.tell(holder) } else { None }
    }

    /// The mappings of `session` have changed; gives its listener, if it has one.
    fn tell(&mut self, session: SessionId) -> Option<Delivery<L>> {
        self.last += 1;
        self.sessions.get_mut(&session)?.version = self.last;
        self.answer(session)
    }

    fn answer(&mut self, session: SessionId) -> Option<Delivery<L>> {
        let (listener, _) = self.sessions.get_mut(&session)?.listener.take()?;
        Some(Delivery { listener, events: Some(self.events(session)) })
    }

    fn events(&self, session: SessionId) -> LeaseEvents {
        let Some(state) = self.sessions.get(&session) else { return LeaseEvents::default() };
        let wanted = state.wanted.iter().take(WANTED_MAX).copied().collect();
        LeaseEvents { session: state.number, version: state.version, wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: SessionId = (0, 1);
    const B: SessionId = (0, 2);
    const C: SessionId = (7, 1);
    const FILE: Ino = Ino(9);
    const SOON: Nanos = Nanos::from_secs(1);

    fn take(mappings: &Mappings<&'static str>, session: SessionId, ino: Ino) -> (bool, Vec<(&'static str, Vec<Ino>)>) {
        let (is_holder, _, told) = mappings.take(session, ino).unwrap();
        (is_holder, told.into_iter().map(heard).collect())
    }

    fn give(mappings: &Mappings<&'static str>, session: SessionId, ino: Ino) -> Vec<(&'static str, Vec<Ino>)> {
        mappings.give(session, ino).into_iter().map(heard).collect()
    }

    fn heard(told: Delivery<&'static str>) -> (&'static str, Vec<Ino>) {
        (told.listener, told.events.unwrap().wanted)
    }

    /// Listens for the next change.
    fn listen(mappings: &Mappings<&'static str>, session: SessionId, name: &'static str) {
        let version = mappings.table().state(session).version;
        assert_eq!(mappings.listen(session, version, SOON, name), None);
    }

    #[test]
    fn one_has_it_and_hears_that_others_wait_who_get_it_in_their_order() {
        let mappings = Mappings::new(100);
        assert_eq!(take(&mappings, A, FILE), (true, vec![]));
        listen(&mappings, A, "a");
        assert_eq!(take(&mappings, B, FILE), (false, vec![("a", vec![FILE])]));
        listen(&mappings, A, "a");
        listen(&mappings, B, "b");
        listen(&mappings, C, "c");
        assert_eq!(take(&mappings, C, FILE), (false, vec![]), "A knows");
        assert_eq!(take(&mappings, A, FILE), (true, vec![]), "to ask again changes nothing");
        assert_eq!(give(&mappings, A, FILE), [("b", vec![FILE])], "B has it, and C waits");
        assert_eq!(
            (take(&mappings, B, FILE).0, take(&mappings, C, FILE).0, take(&mappings, A, FILE).0),
            (true, false, false)
        );
        assert_eq!(give(&mappings, C, FILE), [], "waits no more");
        assert_eq!(give(&mappings, B, FILE), [("a", vec![])]);
    }

    #[test]
    fn to_ask_again_is_no_news_to_anybody() {
        let mappings = Mappings::new(100);
        take(&mappings, A, FILE);
        take(&mappings, B, FILE);
        listen(&mappings, A, "a");
        listen(&mappings, B, "b");
        assert_eq!(take(&mappings, B, FILE), (false, vec![]));
        assert_eq!(take(&mappings, A, FILE), (true, vec![]));
    }

    #[test]
    fn what_is_wanted_beyond_the_news_is_told_as_there_is_room() {
        let mappings = Mappings::new(100);
        let inos = |range: std::ops::Range<usize>| range.map(|ino| Ino(ino as u64)).collect::<Vec<_>>();
        for ino in inos(0..WANTED_MAX + 3) {
            take(&mappings, A, ino);
            take(&mappings, B, ino);
        }
        assert_eq!(mappings.listen(A, 0, SOON, "a").unwrap().events.unwrap().wanted, inos(0..WANTED_MAX));
        listen(&mappings, A, "a");
        assert_eq!(give(&mappings, A, Ino(0)), [("a", inos(1..WANTED_MAX + 1))]);
        listen(&mappings, A, "a");
        assert_eq!(give(&mappings, B, Ino(1)), [("a", inos(2..WANTED_MAX + 2))], "B does not want it any more");
        listen(&mappings, A, "a");
        assert_eq!(give(&mappings, A, Ino(1)), [], "nobody wanted it");
        assert_eq!(give(&mappings, A, Ino(2)), [("a", inos(3..WANTED_MAX + 3))]);
        listen(&mappings, A, "a");
        assert_eq!(give(&mappings, A, Ino(3)), [], "all of them have been told");
    }

    #[test]
    fn who_goes_leaves_all_it_had() {
        let mappings = Mappings::new(100);
        for (session, ino) in [(A, 1), (A, 2), (A, 3), (B, 1), (C, 2), (B, 3), (C, 3)] {
            take(&mappings, session, Ino(ino));
        }
        listen(&mappings, B, "b");
        listen(&mappings, C, "c");
        assert_eq!(mappings.end(A).into_iter().map(heard).collect::<Vec<_>>(), [("b", vec![]), ("c", vec![])]);
        let taken = |session| (1..4).map(|ino| take(&mappings, session, Ino(ino)).0).collect::<Vec<_>>();
        assert_eq!((taken(B), taken(C)), (vec![true, false, true], vec![false, true, false]));
        mappings.end(B);
        mappings.end(C);
        let table = mappings.table();
        assert!(table.inodes.is_empty() && table.sessions.is_empty() && table.users.is_empty());
    }

    #[test]
    fn only_the_present_holder_may_write_back() {
        let mappings = Mappings::<()>::new(100);
        let pin = |number| mappings.pin(number, FILE).map(drop);
        assert_eq!(pin(101), Err(NotHolder::Nobody));
        let [a, b] = [A, B].map(|session| mappings.take(session, FILE).unwrap().1);
        assert_eq!((pin(a), pin(b), pin(0)), (Ok(()), Err(NotHolder::Elsewhere), Err(NotHolder::Elsewhere)));
        assert_eq!([A, B, C].map(|session| mappings.number_of_holder(session, FILE)), [Some(a), None, None]);
        assert_eq!(mappings.pin(a, Ino(1)).map(drop), Err(NotHolder::Nobody), "another inode");
        mappings.give(A, FILE);
        assert_eq!((pin(a), pin(b)), (Err(NotHolder::Elsewhere), Ok(())));
        mappings.end(B);
        assert_eq!(pin(b), Err(NotHolder::Nobody));
    }

    #[test]
    fn a_mapping_does_not_pass_on_while_its_holder_writes_back() {
        type Leave = fn(&Mappings<()>);
        let ways: [Leave; 2] = [|mappings| drop(mappings.give(A, FILE)), |mappings| drop(mappings.end(A))];
        for leave in ways {
            let mappings = Mappings::<()>::new(100);
            let [a, b] = [A, B].map(|session| mappings.take(session, FILE).unwrap().1);
            std::thread::scope(|scope| {
                let pinned = mappings.pin(a, FILE).unwrap();
                let leaves = scope.spawn(|| leave(&mappings));
                // Whether the thread has begun to leave or not: the mapping is still here.
                (0..1_000).for_each(|_| {
                    assert!(!leaves.is_finished() && mappings.table().inodes[&FILE][0] == A);
                    std::thread::yield_now();
                });
                drop(pinned);
            });
            assert!(mappings.pin(b, FILE).is_ok());
        }
    }

    #[test]
    fn who_listens_hears_what_it_does_not_know_or_that_time_has_passed() {
        let mappings = Mappings::new(100);
        take(&mappings, A, FILE);
        take(&mappings, B, FILE);
        let events = mappings.listen(A, 0, SOON, "late").unwrap().events.unwrap();
        assert_eq!((events.session, events.wanted), (101, vec![FILE]));
        assert_eq!(mappings.listen(A, events.version, SOON, "first"), None);
        let told = mappings.listen(A, events.version, SOON, "second");
        assert_eq!(told, Some(Delivery { listener: "first", events: None }));
        assert_eq!(mappings.due(Nanos(SOON.0 - 1)), []);
        assert_eq!(mappings.due(SOON).into_iter().map(heard).collect::<Vec<_>>(), [("second", vec![FILE])]);
        assert_eq!(mappings.due(SOON), []);
    }

    #[test]
    fn who_comes_back_is_another_session() {
        let mappings = Mappings::<()>::new(100);
        let (_, first, _) = mappings.take(A, FILE).unwrap();
        assert_eq!(mappings.take(A, Ino(1)).unwrap().1, first);
        mappings.end(A);
        assert_ne!(mappings.take(A, FILE).unwrap().1, first);
    }

    #[test]
    fn no_session_has_more_than_there_is_room_for() {
        let mappings = Mappings::<()>::new(0);
        for ino in 0..MAPPINGS_PER_SESSION_MAX as u64 {
            mappings.take(A, Ino(ino)).unwrap();
        }
        assert_eq!(mappings.take(A, Ino(u64::MAX)), Err(TooMany));
        assert!(mappings.take(A, Ino(5)).unwrap().0 && mappings.take(B, Ino(u64::MAX)).unwrap().0);
        mappings.give(A, Ino(7));
        assert_eq!(mappings.take(A, Ino(u64::MAX)).map(|(is_holder, ..)| is_holder), Ok(false));
    }

    #[test]
    fn no_user_has_more_than_half_and_a_full_table_lets_others_wait() {
        let mappings = Mappings::<()>::new(0);
        let (half, first) = (MAPPINGS_PER_USER_MAX as u64, |user: u32| Ino(u64::from(user) << 32));
        let take = |session, ino| mappings.take(session, ino).map(|(is_holder, ..)| is_holder);
        for user in [1, 2] {
            let sessions = (0..half).map(|n| n / MAPPINGS_PER_SESSION_MAX as u64);
            for (n, session) in sessions.enumerate() {
                assert_eq!(take((user, session), Ino(first(user).0 + n as u64)), Ok(true));
            }
            assert_eq!(take((user, half), first(7)), Err(TooMany));
        }
        assert_eq!(take(A, first(7)), Err(TooMany));
        assert_eq!(take(A, first(1)), Ok(false), "waits for what somebody has");
        mappings.end((1, 0));
        assert_eq!((take(A, first(1)), take(A, first(7)), take((1, half), first(8))), (Ok(true), Ok(true), Ok(true)));
    }

    proptest! {
        #[test]
        fn the_first_who_asked_and_did_not_go_has_it_and_nobody_misses_news(
            steps in proptest::collection::vec((0..4u8, 0..3u64, 0..3u64), 1..80)
        ) {
            let mappings = Mappings::new(100);
            // Who asked, by inode; and what each session was told last.
            let mut queues: [Vec<u64>; 3] = Default::default();
            let mut told: [(u64, Vec<Ino>); 3] = Default::default();
            for (kind, who, ino) in steps {
                let (session, queue) = ((0, who), &mut queues[ino as usize]);
                let mut answered = Vec::new();
                match kind {
                    0 | 1 => {
                        if !queue.contains(&who) {
                            queue.push(who);
                        }
                        let (is_holder, _, events) = mappings.take(session, Ino(ino)).unwrap();
                        prop_assert_eq!(is_holder, queue[0] == who);
                        answered.extend(events);
                    }
                    2 => {
                        queue.retain(|other| *other != who);
                        answered.extend(mappings.give(session, Ino(ino)));
                    }
                    _ => {
                        queues.iter_mut().for_each(|queue| queue.retain(|other| *other != who));
                        answered.extend(mappings.end(session));
                        told[who as usize] = Default::default();
                    }
                }
                let mut hear = |told_now: Delivery<u64>| {
                    if let Some(events) = told_now.events {
                        told[told_now.listener as usize] = (events.version, events.wanted);
                    }
                };
                answered.into_iter().for_each(&mut hear);
                for who in 0..3 {
                    let version = told[who as usize].0;
                    mappings.listen((0, who), version, SOON, who).into_iter().for_each(&mut |told_now: Delivery<u64>| {
                        if let Some(events) = told_now.events {
                            told[who as usize] = (events.version, events.wanted);
                        }
                    });
                    let version = told[who as usize].0;
                    mappings.listen((0, who), version, SOON, who);
                }
                for who in 0..3 {
                    let is_wanted = |ino: &usize| queues[*ino].len() > 1 && queues[*ino][0] == who;
                    let wanted: BTreeSet<Ino> = (0..3).filter(is_wanted).map(|ino| Ino(ino as u64)).collect();
                    let known = mappings.table().state((0, who)).wanted.clone();
                    prop_assert_eq!(&known, &wanted);
                    // An inode that is given back is wanted no more; whatever is wanted has been told.
                    for ino in wanted {
                        prop_assert!(told[who as usize].1.contains(&ino), "{who} does not know of {ino}");
                    }
                }
                let count: usize = queues.iter().map(Vec::len).sum();
                prop_assert_eq!(mappings.table().users.get(&0).copied().unwrap_or_default(), count);
            }
        }
    }
}
