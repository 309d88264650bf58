//! Which sessions have locks or mappings, noted in the database, so that after a start those claim them who had them, and
//! nobody else.
//!
//! A server that starts knows of no locks, and whoever says that he had one may be wrong without knowing it: his connections
//! broke before the stop, another had the lock since, changed the file, and gave the lock up. (NFS 4.1 has the same cases: RFC 8881,
//! §8.4.3.) So a session is noted before it has its first lock or mapping. When it has ended, its note is struck out before what
//! it had is given to anybody else; and at a start, the notes of those who did not come are struck out before anything new is given.
//! A client says in its hello which session it had its locks in ([`Hello::continues`]): if that is still noted, it may claim.
//!
//! A note that is lost (it is not put on stable storage by itself) costs its session its locks, which it is told. A note that
//! stays would let it claim what others had since: so striking out is on stable storage before anything is given away, and is
//! the caretaker's work, which may wait for the storage. What a session gave up in order it does not claim, and no one waits for
//! that.
//!
//! [`Hello::continues`]: isonomia_proto::setup::Hello::continues

use crate::sessions::{Session, SessionKey};
use isonomia_store::{Store, StoreError};
use isonomia_units::Nanos;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long a server that starts waits for those who had locks. Clients that have something to do find it within a fraction of
/// a second, mounts within one or two.
const CLAIMED_WITHIN: Nanos = Nanos::from_secs(5);
/// It waits for so long after each claim, as one session may have thousands of locks,
const CLAIMS_APART: Nanos = Nanos::from_secs(1);
/// and for so long in all.
const CLAIMED_WITHIN_MAX: Nanos = Nanos::from_secs(30);
/// A client that asked while others may still claim asks again after this, if it is not known when that ends.
const ASK_AGAIN: Nanos = Nanos::from_millis(100);
/// What notes begin with, among what is kept of the cluster. The keys of nodes are lower-case letters.
const MARK: &[u8] = b"LOCKS";
/// User, client, and number of the session.
const NOTE_LEN: usize = MARK.len() + 4 + 8 + 8;

/// A session of this server's process or an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Note {
    key: SessionKey,
    number: u64,
}

impl Note {
    fn encode(self) -> [u8; NOTE_LEN] {
        let mut bytes = [0; NOTE_LEN];
        let (mark, rest) = bytes.split_at_mut(MARK.len());
        mark.copy_from_slice(MARK);
        rest[..4].copy_from_slice(&self.key.0.to_be_bytes());
        rest[4..12].copy_from_slice(&self.key.1.to_be_bytes());
        rest[12..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }
}

/// Whether what is kept under this key is a note, or was one in earlier versions.
pub fn is_note(key: &[u8]) -> bool {
    key.starts_with(MARK)
}

/// See the module.
#[derive(Debug)]
pub struct Holders {
    state: Mutex<State>,
    /// Not [`Phase::Open`].
    awaits_claims: AtomicBool,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Keys of notes that were there at the start.
    before: HashSet<Vec<u8>>,
    /// Sessions that were noted and have ended since.
    ended: Vec<(SessionKey, Arc<Session>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Clients are not served yet.
    Closed,
    /// Sessions that are noted may claim.
    Claims {
        /// Until then, or until later if more claims come,
        until: Nanos,
        /// but not longer.
        latest: Nanos,
    },
    /// Nobody claims any more, and what is left of the notes is not struck out yet.
    Striking,
    /// Locks and mappings are given to whoever asks first.
    Open,
    /// The server stops: its notes are for the next one.
    Stopped,
}

impl Default for Holders {
    fn default() -> Self {
        let state = State { phase: Phase::Closed, before: HashSet::new(), ended: Vec::new() };
        Self { state: Mutex::new(state), awaits_claims: AtomicBool::new(true) }
    }
}

impl Holders {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, state: &mut State, phase: Phase) {
        state.phase = phase;
        self.awaits_claims.store(phase != Phase::Open, Ordering::Release);
    }

    /// Reads which sessions are noted. To be called before anybody says hello.
    pub fn load(&self, store: &Store) -> Result<(), StoreError> {
        let keys = store.namespace().cluster_records()?.into_iter().map(|(key, _)| key).filter(|key| is_note(key));
        self.lock().before = keys.collect();
        Ok(())
    }

    /// Clients are served from now on.
    pub fn begin(&self, now: Nanos) {
        let mut state = self.lock();
        let claims = Phase::Claims { until: now + CLAIMED_WITHIN, latest: now + CLAIMED_WITHIN_MAX };
        let phase = if state.before.is_empty() { Phase::Open } else { claims };
        self.enter(&mut state, phase);
    }

    /// The server stops: whoever has locks has them noted from now on, whatever becomes of his session.
    /// If nobody has any, there is nothing to wait for at the next start.
    pub fn stop(&self, store: &Store, is_any_left: bool) -> Result<(), StoreError> {
        let mut state = self.lock();
        let was_open = state.phase == Phase::Open;
        self.enter(&mut state, Phase::Stopped);
        if !was_open || is_any_left {
            return Ok(());
        }
        let keys: Vec<_> =
            store.namespace().cluster_records()?.into_iter().map(|(key, _)| key).filter(|key| is_note(key)).collect();
        store.namespace().change_cluster_records(keys.iter().map(|key| (&key[..], None)))
    }

    /// Whether somebody may still claim what others want.
    pub fn awaits_claims(&self) -> bool {
        self.awaits_claims.load(Ordering::Acquire)
    }

    /// When it is worth asking again for what others may still claim; `None` if nobody may.
    pub fn opens_at(&self, now: Nanos) -> Option<Nanos> {
        if !self.awaits_claims() {
            return None;
        }
        match self.lock().phase {
            Phase::Open => None,
            Phase::Claims { until, .. } => Some(until.max(now + ASK_AGAIN)),
            Phase::Closed | Phase::Striking | Phase::Stopped => Some(now + ASK_AGAIN),
        }
    }

    /// Whether a session of `key` may claim what the one of `number` had at the last stop.
    pub fn may_continue(&self, key: SessionKey, number: u64) -> bool {
        if !self.awaits_claims() {
            return false;
        }
        let state = self.lock();
        matches!(state.phase, Phase::Closed | Phase::Claims { .. })
            && state.before.contains(&Note { key, number }.encode()[..])
    }

    /// Whether `session` may claim now; if so, others wait a little longer.
    pub fn may_claim(&self, session: &Session, now: Nanos) -> bool {
        if !self.awaits_claims() || !session.continues.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.lock();
        let Phase::Claims { until, latest } = &mut state.phase else { return false };
        *until = (*until).max(now + CLAIMS_APART).min(*latest);
        true
    }

    /// Notes a session that is about to have a lock or a mapping, if it is not noted yet.
    pub fn note(&self, store: &Store, key: SessionKey, session: &Session) {
        if !session.begin_note() {
            return;
        }
        let note = Note { key, number: session.number }.encode();
        // Without its note the session loses, if this server stops, what it is given now, and is told of the loss.
        if let Err(error) = store.namespace().change_cluster_records([(&note[..], Some(&[][..]))]) {
            tracing::warn!(%error, uid = key.0, "it cannot be noted that a client has locks");
        }
    }

    /// A session has ended that was noted: what it has is to be given up when its note is struck out.
    pub fn ended(&self, key: SessionKey, session: Arc<Session>) {
        self.lock().ended.push((key, session));
    }

    /// Sessions that have ended, and have not given up what they have.
    pub fn all_ended(&self) -> Vec<(SessionKey, Arc<Session>)> {
        self.lock().ended.clone()
    }

    /// Whether a session of this key has ended, and its note is still there.
    pub fn is_to_be_struck(&self, key: SessionKey) -> bool {
        self.lock().ended.iter().any(|(ended, _)| *ended == key)
    }

    /// The caretaker's part: strikes out the notes of sessions that have ended, and when nobody may claim any more those that
    /// are left of the stop before. Gives the ended sessions, which now are to give up what they have: `has` says whether one
    /// has anything that others could get, `is_unfinished` whether one still changes files, and so keeps all it has until later.
    pub fn strike(
        &self,
        store: &Store,
        now: Nanos,
        (has, is_unfinished): (impl Fn(&Session, SessionKey) -> bool, impl Fn(&Session, SessionKey) -> bool),
    ) -> Result<Vec<(SessionKey, Arc<Session>)>, StoreError> {
        let mut state = self.lock();
        if state.phase == Phase::Stopped {
            return Ok(Vec::new());
        }
        if matches!(state.phase, Phase::Claims { until, .. } if now >= until) {
            self.enter(&mut state, Phase::Striking);
        }
        let is_striking = state.phase == Phase::Striking;
        let (still, ended) =
            std::mem::take(&mut state.ended).into_iter().partition(|(key, session)| is_unfinished(session, *key));
        let ended: Vec<_> = ended;
        state.ended = still;
        let before: Vec<Vec<u8>> = if is_striking { state.before.iter().cloned().collect() } else { Vec::new() };
        drop(state);
        if ended.is_empty() && !is_striking {
            return Ok(ended);
        }
        let notes: Vec<_> =
            ended.iter().map(|(key, session)| Note { key: *key, number: session.number }.encode()).collect();
        let keys = before.iter().map(|key| &key[..]).chain(notes.iter().map(|note| &note[..]));
        let changes = keys.map(|key| (key, None));
        let is_urgent = is_striking || ended.iter().any(|(key, session)| has(session, *key));
        let struck = if is_urgent {
            store.namespace().keep_cluster_records(changes)
        } else {
            store.namespace().change_cluster_records(changes)
        };
        let mut state = self.lock();
        if let Err(error) = struck {
            state.ended.splice(..0, ended);
            return Err(error);
        }
        if is_striking && state.phase == Phase::Striking {
            state.before = HashSet::new();
            self.enter(&mut state, Phase::Open);
        }
        Ok(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::Sessions;
    use isonomia_store::{StoreConfig, TargetDir};
    use isonomia_units::{ServerId, TargetId};

    const KEY: SessionKey = (7, 1);

    fn store(dir: &std::path::Path) -> Store {
        let targets = vec![TargetDir { id: TargetId(0), dir: dir.join("target") }];
        Store::open(&StoreConfig::new(dir.join("metadata"), ServerId(0), targets)).unwrap()
    }

    fn begun(store: &Store) -> Holders {
        let holders = Holders::default();
        holders.load(store).unwrap();
        holders.begin(Nanos::ZERO);
        holders
    }

    fn strike(holders: &Holders, store: &Store, now: Nanos) -> usize {
        holders.strike(store, now, (|_: &Session, _| true, |_: &Session, _| false)).unwrap().len()
    }

    #[test]
    fn those_claim_who_are_noted() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let holders = begun(&store);
        assert!(!holders.awaits_claims(), "nobody ever had a lock");
        let sessions = Sessions::new(100);
        let session = sessions.join(KEY);
        holders.note(&store, KEY, &session);
        holders.note(&store, KEY, &session);

        let next = begun(&store);
        assert!(next.awaits_claims() && next.may_continue(KEY, session.number));
        assert!(!next.may_continue(KEY, session.number + 1) && !next.may_continue((8, 1), session.number));
        let claimant = Sessions::new(200).join(KEY);
        assert!(!next.may_claim(&claimant, Nanos::ZERO), "it did not say which session it continues");
        claimant.continues.store(true, Ordering::Relaxed);
        assert!(next.may_claim(&claimant, Nanos::ZERO));

        // Who does not come in time has lost what he had, also at later starts.
        assert_eq!(strike(&next, &store, Nanos(CLAIMED_WITHIN.0 - 1)), 0);
        assert!(next.awaits_claims());
        strike(&next, &store, CLAIMED_WITHIN);
        assert!(!next.awaits_claims() && !next.may_claim(&claimant, CLAIMED_WITHIN));
        assert!(!begun(&store).awaits_claims());
    }

    #[test]
    fn who_was_cut_off_before_the_stop_claims_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let (holders, sessions) = (begun(&store), Sessions::new(100));
        let session = sessions.join(KEY);
        holders.note(&store, KEY, &session);
        let (ended, left) = sessions.leave(KEY).unwrap();
        assert!(left.was_noted);
        holders.ended(KEY, ended);
        assert!(begun(&store).may_continue(KEY, session.number), "nobody has had what it has");
        assert_eq!(strike(&holders, &store, Nanos::ZERO), 1);
        assert!(!begun(&store).may_continue(KEY, session.number));
        // A session that ends is not noted any more.
        holders.note(&store, KEY, &session);
        assert!(!begun(&store).awaits_claims());
    }

    #[test]
    fn claims_that_go_on_are_waited_for_but_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let sessions = Sessions::new(100);
        begun(&store).note(&store, KEY, &sessions.join(KEY));
        let holders = begun(&store);
        let claimant = Sessions::new(200).join(KEY);
        claimant.continues.store(true, Ordering::Relaxed);
        for half_second in 1..80 {
            let now = Nanos::from_millis(500 * half_second);
            strike(&holders, &store, now);
            assert_eq!(holders.may_claim(&claimant, now), now < CLAIMED_WITHIN_MAX, "after {now}");
        }
    }

    #[test]
    fn a_stop_in_order_keeps_the_notes_of_those_who_have_something() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let sessions = Sessions::new(100);
        let session = sessions.join(KEY);
        let holders = begun(&store);
        holders.note(&store, KEY, &session);
        holders.stop(&store, true).unwrap();
        // Its sessions end afterwards.
        holders.ended(KEY, sessions.leave(KEY).unwrap().0);
        assert_eq!(strike(&holders, &store, Nanos::MAX), 0);
        let unserved = Holders::default();
        unserved.load(&store).unwrap();
        unserved.stop(&store, false).unwrap();
        let next = begun(&store);
        assert!(next.may_continue(KEY, session.number), "one that never served forgets nothing");
        strike(&next, &store, CLAIMED_WITHIN);
        next.note(&store, KEY, &sessions.join(KEY));
        next.stop(&store, false).unwrap();
        assert!(!begun(&store).awaits_claims());
    }
}
