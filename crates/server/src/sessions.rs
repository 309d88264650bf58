//! The table of sessions: client processes, what each of them has, the limits of that, and its end.
//!
//! A session begins with a process's first connection and ends with its last. A request may still be served while that
//! happens, so whatever is registered for a session may come late: [`Session::reserve`] and [`Reserved::take`] refuse once the session has ended,
//! and its caller undoes what it did. Nothing that a session has outlives it, but for what it hands over to the program
//! that its process executes ([`crate::release_queue`]).
//!
//! References are counted for each session and for each user, over all of the user's sessions. Each takes [`REFERENCE_BYTES`] of
//! the memory for open files that the user of the session's first connection may have ([`crate::usage`]).

use crate::usage::Account;
use isonomia_units::{Ino, VolumeId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// References that one session has at most: its open files.
pub const REFERENCES_PER_SESSION_MAX: u64 = 65_536;
/// References that all sessions of one user have at most, with those that are handed over.
pub const REFERENCES_PER_USER_MAX: u64 = 262_144;

/// Memory that a reference is charged: its entry here, and its inode's in the store and its caches, which stay while it is there.
/// 1.2 to 1.7 KB were measured.
pub const REFERENCE_BYTES: u64 = 2 << 10;

/// Memory that a spread file is charged whose objects a session may write: it stays until the session closes the file or ends.
const WRITER_BYTES: u64 = 64;

/// A session's key: its user, and the number that its process drew.
pub type SessionKey = (u32, u64);

/// A mount: the number that it drew ([`Hello::mount`](isonomia_proto::setup::Hello::mount)), which it tells to servers only. Its
/// clients may come as different users, through a socket and by a key.
pub type MountKey = u64;

/// Why a reference is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The process has gone.
    #[error("the session has ended")]
    Ended,
    /// The session has [`REFERENCES_PER_SESSION_MAX`].
    #[error("{REFERENCES_PER_SESSION_MAX} files are open in the session")]
    Session,
    /// The user's sessions have [`REFERENCES_PER_USER_MAX`].
    #[error("{REFERENCES_PER_USER_MAX} files are open for the user")]
    User,
    /// The user has no memory left for it: [`REFERENCE_BYTES`].
    #[error("the user has no memory left for open files (a part of limits.memory)")]
    Memory,
}

/// A client process: what its connections have in common.
#[derive(Debug)]
pub struct Session {
    /// No other session has or had it, of this server's process or an earlier one; not 0.
    pub number: u64,
    /// It executes another program, which takes over.
    pub hands_over: AtomicBool,
    /// It may claim the locks and mappings that the same process had when the server stopped: [`crate::holders`].
    pub continues: AtomicBool,
    /// The mount that its process is.
    pub mount: OnceLock<MountKey>,
    /// It has ended, and the other clients of its mount are cut off: [`crate::cut_off`].
    pub is_cut_off: AtomicBool,
    state: Mutex<State>,
    user: Arc<References>,
    /// Who is charged for references.
    account: OnceLock<Account>,
}

#[derive(Debug, Default)]
struct State {
    /// How often the session has an inode as the open file of a number.
    references: BTreeMap<(Ino, u64), u64>,
    count: u64,
    /// Of each inode that it has: how often bytes were lost, as far as the session has heard of it.
    heard: HashMap<Ino, u64>,
    /// Spread files whose objects it may write.
    writes: HashSet<Ino>,
    has_ended: bool,
    /// It may have locks or mappings.
    is_noted: bool,
}

/// How many references a user has.
#[derive(Debug, Default)]
struct References(AtomicU64);

/// What a session that ended had, still counted for its user until this is dropped.
#[derive(Debug)]
pub struct Left {
    /// Inodes with the numbers of open files, and how often each was open.
    pub references: Vec<((Ino, u64), u64)>,
    /// Spread files that it had not closed, and whose objects it may have written to without telling.
    pub writes: Vec<Ino>,
    /// It may have locks or mappings, and is noted for them.
    pub was_noted: bool,
    user: Arc<References>,
    account: Option<Account>,
}

impl Drop for Left {
    fn drop(&mut self) {
        let count = self.references.iter().map(|(_, count)| count).sum();
        self.user.0.fetch_sub(count, Ordering::Relaxed);
        let bytes = count * REFERENCE_BYTES + self.writes.len() as u64 * WRITER_BYTES;
        self.account.iter().for_each(|account| account.give_back_for_files(bytes));
    }
}

impl Session {
    fn new(number: u64, user: Arc<References>) -> Self {
        Self {
            number,
            hands_over: AtomicBool::new(false),
            continues: AtomicBool::new(false),
            mount: OnceLock::new(),
            is_cut_off: AtomicBool::new(false),
            state: Mutex::default(),
            user,
            account: OnceLock::new(),
        }
    }

    /// References are charged to this account, unless they are to another one already.
    pub fn charge_to(&self, account: Account) {
        self.account.get_or_init(|| account);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: u64) -> Result<(), ReferenceError> {
        let fits = self.account.get().is_none_or(|account| account.take_for_files(bytes));
        if fits { Ok(()) } else { Err(ReferenceError::Memory) }
    }

    fn give_back(&self, bytes: u64) {
        self.account.get().into_iter().for_each(|account| account.give_back_for_files(bytes));
    }

    /// One more reference to `ino` as the open file `number`, to a file that never lost bytes.
    #[cfg(test)]
    pub fn add_reference(&self, ino: Ino, number: u64) -> Result<(), ReferenceError> {
        self.reserve()?.take(ino, number, 0)
    }

    /// Reserves room for one more reference. To be called before the operation changes anything, because it may be refused.
    pub fn reserve(&self) -> Result<Reserved<'_>, ReferenceError> {
        let mut state = self.state();
        if state.has_ended {
            return Err(ReferenceError::Ended);
        }
        if state.count >= REFERENCES_PER_SESSION_MAX {
            return Err(ReferenceError::Session);
        }
        let more = |count: u64| (count < REFERENCES_PER_USER_MAX).then(|| count + 1);
        self.user.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| ReferenceError::User)?;
        if let Err(error) = self.take(REFERENCE_BYTES) {
            self.user.0.fetch_sub(1, Ordering::Relaxed);
            return Err(error);
        }
        state.count += 1;
        Ok(Reserved { session: self, is_taken: false })
    }

    /// One reference less; false if there was none.
    pub fn release(&self, ino: Ino, number: u64) -> bool {
        let mut state = self.state();
        match state.references.get_mut(&(ino, number)) {
            Some(1) => drop(state.references.remove(&(ino, number))),
            Some(count) => *count -= 1,
            None => return false,
        }
        state.count -= 1;
        let is_last = state.references.range((ino, 0)..=(ino, u64::MAX)).next().is_none();
        let was_writer = is_last && state.writes.remove(&ino);
        if is_last {
            state.heard.remove(&ino);
        }
        self.user.0.fetch_sub(1, Ordering::Relaxed);
        self.give_back(REFERENCE_BYTES + if was_writer { WRITER_BYTES } else { 0 });
        true
    }

    /// Of how many losses of bytes the session has heard, of a file that it has open.
    pub fn heard(&self, ino: Ino) -> Option<u64> {
        self.state().heard.get(&ino).copied()
    }

    /// It has heard of so many.
    pub fn hear(&self, ino: Ino, lost_writes: u64) {
        if let Some(heard) = self.state().heard.get_mut(&ino) {
            *heard = (*heard).max(lost_writes);
        }
    }

    /// The session may write the objects of a spread file until it has given back all references to it.
    pub fn add_writer(&self, ino: Ino) -> Result<(), ReferenceError> {
        let mut state = self.state();
        if state.has_ended {
            return Err(ReferenceError::Ended);
        }
        if state.writes.len() as u64 >= REFERENCES_PER_SESSION_MAX && !state.writes.contains(&ino) {
            return Err(ReferenceError::Session);
        }
        if !state.writes.contains(&ino) {
            self.take(WRITER_BYTES)?;
            state.writes.insert(ino);
        }
        Ok(())
    }

    /// Whether it may write the objects of this file.
    pub fn is_writer(&self, ino: Ino) -> bool {
        self.state().writes.contains(&ino)
    }

    /// The session closes a file to which this server knows of no reference, because it has started since: unless the session
    /// has other references, it writes the file's objects no more. True if it might have written them until now.
    pub fn forget_writer(&self, ino: Ino) -> bool {
        let mut state = self.state();
        let is_open = state.references.range((ino, 0)..=(ino, u64::MAX)).next().is_some();
        let was_writer = !is_open && state.writes.remove(&ino);
        if was_writer {
            self.give_back(WRITER_BYTES);
        }
        was_writer
    }

    /// Whether it may write the objects of files in `volume`.
    fn writes_in(&self, volume: VolumeId) -> bool {
        self.state().writes.iter().any(|ino| ino.volume() == volume)
    }

    /// Whether it has the open file `number` of `ino`.
    pub fn has_reference(&self, ino: Ino, number: u64) -> bool {
        self.state().references.contains_key(&(ino, number))
    }

    /// It is about to have a lock or a mapping. True if it is to be noted for that: it is not yet, and has not ended.
    pub fn begin_note(&self) -> bool {
        let mut state = self.state();
        !state.has_ended && !std::mem::replace(&mut state.is_noted, true)
    }

    /// Whether the process has gone. Who registers something elsewhere looks afterwards: what was registered before is
    /// given up by the end of the session, and what comes later its maker has to undo.
    pub fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    fn end(&self) -> Left {
        let mut state = self.state();
        state.has_ended = true;
        state.count = 0;
        state.heard = HashMap::new();
        let (references, writes) = (std::mem::take(&mut state.references), std::mem::take(&mut state.writes));
        Left {
            references: references.into_iter().collect(),
            writes: writes.into_iter().collect(),
            was_noted: state.is_noted,
            user: self.user.clone(),
            account: self.account.get().cloned(),
        }
    }
}

/// Room for one reference of a session's; given back when this is dropped, unless it was taken.
#[derive(Debug)]
pub struct Reserved<'s> {
    session: &'s Session,
    is_taken: bool,
}

impl Reserved<'_> {
    /// One more reference to `ino` as the open file `number`, which the store has counted already: if this fails, as the session
    /// has ended meanwhile, it is to be given back there. Of losses of bytes up to now,
    /// `lost_writes`, the session need not hear if it did not have the file open.
    pub fn take(mut self, ino: Ino, number: u64, lost_writes: u64) -> Result<(), ReferenceError> {
        let mut state = self.session.state();
        if state.has_ended {
            return Err(ReferenceError::Ended);
        }
        *state.references.entry((ino, number)).or_insert(0) += 1;
        state.heard.entry(ino).or_insert(lost_writes);
        self.is_taken = true;
        Ok(())
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let mut state = self.session.state();
        // The end of a session counts for what it had registered.
        if !state.has_ended {
            state.count -= 1;
        }
        self.session.user.0.fetch_sub(1, Ordering::Relaxed);
        self.session.give_back(REFERENCE_BYTES);
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// With the number of connections of each.
    sessions: HashMap<SessionKey, (Arc<Session>, usize)>,
    users: HashMap<u32, Weak<References>>,
    /// The number of the last session.
    last: u64,
}

impl Sessions {
    /// None yet; the first ones get the numbers after `first`, which is drawn.
    pub fn new(first: u64) -> Self {
        Self(Mutex::new(Table { last: first, ..Table::default() }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of this key, with one more connection.
    pub fn join(&self, key: SessionKey) -> Arc<Session> {
        let mut table = self.table();
        let Table { sessions, users, last } = &mut *table;
        let (session, connections) = sessions.entry(key).or_insert_with(|| {
            let user = users.get(&key.0).and_then(Weak::upgrade).unwrap_or_else(|| {
                users.retain(|_, user| user.strong_count() > 0);
                let user = Arc::default();
                users.insert(key.0, Arc::downgrade(&user));
                user
            });
            *last = last.wrapping_add(1).max(1);
            (Arc::new(Session::new(*last, user)), 0)
        });
        *connections += 1;
        session.clone()
    }

    /// One connection of the session less; with the last it ends, and this is what it had.
    pub fn leave(&self, key: SessionKey) -> Option<(Arc<Session>, Left)> {
        let mut table = self.table();
        let (_, connections) = table.sessions.get_mut(&key)?;
        *connections -= 1;
        if *connections > 0 {
            return None;
        }
        let (session, _) = table.sessions.remove(&key)?;
        drop(table);
        let left = session.end();
        Some((session, left))
    }

    /// Whether any session may write the objects of files in `volume`.
    pub fn any_writes_in(&self, volume: VolumeId) -> bool {
        self.table().sessions.values().any(|(session, _)| session.writes_in(volume))
    }

    /// The sessions that have the open file `number` of `ino`.
    pub fn of_reference(&self, ino: Ino, number: u64) -> Vec<(SessionKey, Arc<Session>)> {
        let table = self.table();
        let all = table.sessions.iter().filter(|(_, (session, _))| session.has_reference(ino, number));
        all.map(|(key, (session, _))| (*key, session.clone())).collect()
    }

    /// Whether any session has the open file `number` of `ino`.
    pub fn any_has_reference(&self, ino: Ino, number: u64) -> bool {
        self.table().sessions.values().any(|(session, _)| session.has_reference(ino, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Limits, LimitsConfig};
    use crate::usage::Usage;

    const KEY: SessionKey = (7, 1);

    #[test]
    fn who_closes_in_order_writes_no_more() {
        let sessions = Sessions::default();
        let session = sessions.join(KEY);
        for (ino, number) in [(5, 1), (5, 2), (6, 1)] {
            session.add_reference(Ino(ino), number).unwrap();
            session.add_writer(Ino(ino)).unwrap();
        }
        assert!(session.release(Ino(5), 1) && session.release(Ino(6), 1));
        // After a start of the server a session may write what it has no reference to.
        session.add_writer(Ino(8)).unwrap();
        session.add_writer(Ino(9)).unwrap();
        assert!(session.forget_writer(Ino(8)) && !session.forget_writer(Ino(8)) && !session.forget_writer(Ino(5)));
        assert!(sessions.any_writes_in(VolumeId::ROOT) && !sessions.any_writes_in(VolumeId(1)));
        assert!(session.is_writer(Ino(9)) && session.forget_writer(Ino(9)) && !session.is_writer(Ino(9)));
        let (ended, left) = sessions.leave(KEY).unwrap();
        assert_eq!(left.writes, [Ino(5)], "it was open once more");
        assert_eq!(ended.add_writer(Ino(7)), Err(ReferenceError::Ended));
    }

    #[test]
    fn references_are_counted_and_end_with_the_last_connection() {
        let sessions = Sessions::default();
        let session = sessions.join(KEY);
        assert!(Arc::ptr_eq(&session, &sessions.join(KEY)));
        session.add_reference(Ino(5), 1).unwrap();
        session.add_reference(Ino(5), 1).unwrap();
        assert!(session.release(Ino(5), 1) && !session.release(Ino(5), 2));
        session.add_reference(Ino(6), 2).unwrap();
        assert!(
            session.has_reference(Ino(5), 1)
                && !session.has_reference(Ino(5), 2)
                && sessions.any_has_reference(Ino(6), 2)
        );
        assert!(sessions.leave(KEY).is_none());
        let (ended, left) = sessions.leave(KEY).unwrap();
        let mut references = left.references.clone();
        references.sort();
        assert_eq!(references, [((Ino(5), 1), 1), ((Ino(6), 2), 1)]);
        assert!(ended.has_ended() && !session.release(Ino(5), 1));
    }

    #[test]
    fn references_take_memory_of_their_user_until_they_are_given_back() {
        // 64 MiB for open files, of which one user has half.
        let config: LimitsConfig = toml::from_str("memory = \"1MiB\"").unwrap();
        let usage = Arc::new(Usage::new(Limits::settle(&config, 20_000, 0, 8 << 30).unwrap()));
        let [permit, of_another] = [7, 8].map(|uid| usage.take(uid, false, 256 << 10).unwrap());
        let sessions = Sessions::default();
        let join = |key, permit: &crate::usage::Permit| {
            let session = sessions.join(key);
            session.charge_to(permit.account());
            session
        };
        let session = join(KEY, &permit);
        let most = (32 << 20) / REFERENCE_BYTES;
        (0..most).for_each(|number| session.add_reference(Ino(5), number).unwrap());
        assert_eq!(session.add_reference(Ino(5), most), Err(ReferenceError::Memory));
        assert_eq!(session.add_writer(Ino(5)), Err(ReferenceError::Memory));
        assert!(usage.take(7, false, 256 << 10).is_ok(), "what it shares with the server is counted apart");
        join((8, 1), &of_another).add_reference(Ino(5), 0).unwrap();
        drop(sessions.leave((8, 1)));
        // Of what one reference gave back.
        assert!(session.release(Ino(5), 0));
        let writers = REFERENCE_BYTES / WRITER_BYTES;
        (0..writers).for_each(|ino| session.add_writer(Ino(ino)).unwrap());
        session.add_writer(Ino(3)).unwrap();
        assert_eq!(session.add_writer(Ino(writers)), Err(ReferenceError::Memory));
        assert!((6..writers).all(|ino| session.forget_writer(Ino(ino))));
        assert_eq!(session.add_reference(Ino(6), 1), Err(ReferenceError::Memory), "some are left");
        assert!((0..5).all(|ino| session.forget_writer(Ino(ino))));
        assert!((1..most).all(|number| session.release(Ino(5), number)), "with them what it may write of the file");
        (0..most).for_each(|number| session.add_reference(Ino(6), number).unwrap());
        let next = join((7, 2), &permit);
        let (_, left) = sessions.leave(KEY).unwrap();
        assert_eq!(next.add_reference(Ino(6), 0), Err(ReferenceError::Memory), "what is handed over counts");
        drop(left);
        next.add_reference(Ino(6), 0).unwrap();
    }

    #[test]
    fn who_has_a_file_open_hears_of_what_is_lost_from_then_on() {
        let sessions = Sessions::default();
        let session = sessions.join(KEY);
        assert_eq!(session.heard(Ino(5)), None);
        session.reserve().unwrap().take(Ino(5), 1, 3).unwrap();
        session.reserve().unwrap().take(Ino(5), 2, 4).unwrap();
        assert_eq!(session.heard(Ino(5)), Some(3), "it was open when that was lost");
        session.hear(Ino(5), 4);
        session.hear(Ino(6), 9);
        assert_eq!((session.heard(Ino(5)), session.heard(Ino(6))), (Some(4), None));
        assert!(session.release(Ino(5), 1));
        assert_eq!(session.heard(Ino(5)), Some(4));
        assert!(session.release(Ino(5), 2));
        assert_eq!(session.heard(Ino(5)), None);
    }

    #[test]
    fn what_comes_after_the_end_is_refused() {
        let sessions = Sessions::default();
        let session = sessions.join(KEY);
        drop(sessions.leave(KEY));
        assert_eq!(session.add_reference(Ino(5), 1), Err(ReferenceError::Ended));
        let next = sessions.join(KEY);
        let reserved = next.reserve().unwrap();
        drop(sessions.leave(KEY));
        assert_eq!(reserved.take(Ino(5), 1, 0), Err(ReferenceError::Ended));
        assert_eq!(next.user.0.load(Ordering::Relaxed), 0);
        let next = sessions.join(KEY);
        assert!(!Arc::ptr_eq(&session, &next));
        next.add_reference(Ino(5), 1).unwrap();
        assert_eq!(next.user.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn each_session_and_each_user_has_a_limit_of_its_own() {
        let sessions = Sessions::default();
        let full: Vec<_> = (0..REFERENCES_PER_USER_MAX / REFERENCES_PER_SESSION_MAX)
            .map(|client| {
                let session = sessions.join((7, client));
                (0..REFERENCES_PER_SESSION_MAX).for_each(|number| session.add_reference(Ino(5), number % 4).unwrap());
                assert_eq!(session.add_reference(Ino(5), 0), Err(ReferenceError::Session));
                session
            })
            .collect();
        let one_more = sessions.join((7, 99));
        assert_eq!(one_more.add_reference(Ino(5), 0), Err(ReferenceError::User));
        sessions.join((8, 1)).add_reference(Ino(5), 0).unwrap();
        let (_, left) = sessions.leave((7, 0)).unwrap();
        assert_eq!(one_more.add_reference(Ino(5), 0), Err(ReferenceError::User), "what is handed over counts");
        drop(left);
        let reserved = one_more.reserve().unwrap();
        assert_eq!(one_more.user.0.load(Ordering::Relaxed), REFERENCES_PER_USER_MAX - REFERENCES_PER_SESSION_MAX + 1);
        drop(reserved);
        one_more.reserve().unwrap().take(Ino(5), 0, 0).unwrap();
        assert!(full[1].release(Ino(5), 3));
    }
}
