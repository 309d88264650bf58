//! What sessions that ended had, until the caretaker gives it back: that may wait for the storage, and the end of a
//! connection must not.
//!
//! A process that executes another program leaves its open files to the new program, but not its connections. What it had
//! stays here for [`EXEC_GRACE`]: until the new program has connected and taken references of its own, an open file without a
//! name must not be removed.

use crate::sessions::{Left, SessionKey};
use isonomia_units::{Ino, Nanos, VolumeId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a new program has for that: loading and starting a large one takes tenths of a second.
const EXEC_GRACE: Nanos = Nanos::from_secs(2);
/// Processes whose references are kept at once; beyond that the earliest of the user who has most go early.
const PROCESSES_MAX: usize = 4_096;

/// See the module.
#[derive(Debug, Default)]
pub struct ReleaseQueue {
    waiting: Mutex<VecDeque<Waiting>>,
}

/// What one process left; those that wait stand in the order in which they are due.
#[derive(Debug)]
struct Waiting {
    due: Nanos,
    key: SessionKey,
    left: Left,
}

/// The queue, for this thread alone.
pub struct Locked<'a>(MutexGuard<'a, VecDeque<Waiting>>);

impl Locked<'_> {
    /// Keeps what the process of this session had, for its next program if it has one; gives what has to go instead.
    pub fn keep(&mut self, now: Nanos, key: SessionKey, left: Left, has_next_program: bool) -> Option<Left> {
        if left.references.is_empty() && left.writes.is_empty() {
            return None;
        }
        let waiting = &mut self.0;
        if has_next_program {
            waiting.push_back(Waiting { due: now + EXEC_GRACE, key, left });
        } else {
            waiting.push_front(Waiting { due: Nanos::ZERO, key, left });
        }
        if waiting.len() <= PROCESSES_MAX {
            return None;
        }
        let mut counts: HashMap<u32, usize> = HashMap::new();
        waiting.iter().for_each(|one| *counts.entry(one.key.0).or_default() += 1);
        let (most, _) = counts.into_iter().max_by_key(|(uid, count)| (*count, *uid))?;
        let earliest = waiting.iter().position(|one| one.key.0 == most)?;
        waiting.remove(earliest).map(|one| one.left)
    }
}

impl ReleaseQueue {
    /// While the result is there, nobody looks into it.
    pub fn lock(&self) -> Locked<'_> {
        Locked(self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a process that has gone may have written objects of files in `volume`.
    pub fn any_wrote_in(&self, volume: VolumeId) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().flat_map(|one| &one.left.writes).any(|ino| ino.volume() == volume)
    }

    /// The sessions that had the open file `number` of `ino`.
    pub fn of_reference(&self, ino: Ino, number: u64) -> Vec<SessionKey> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let has_it = |one: &&Waiting| one.left.references.iter().any(|(of, _)| *of == (ino, number));
        waiting.iter().filter(has_it).map(|one| one.key).collect()
    }

    /// Takes out what is due at `now`, but for that of sessions which still change files.
    pub fn due(&self, now: Nanos, is_unfinished: impl Fn(SessionKey) -> bool) -> Vec<Left> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.iter().take_while(|one| one.due <= now).count();
        let (kept, taken): (Vec<_>, Vec<_>) = waiting.drain(..count).partition(|one| is_unfinished(one.key));
        kept.into_iter().rev().for_each(|one| waiting.push_front(one));
        taken.into_iter().map(|one| one.left).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::Sessions;

    /// What a session leaves that had `inos`.
    fn left(inos: &[u64]) -> Left {
        let sessions = Sessions::default();
        let session = sessions.join((7, 1));
        inos.iter().for_each(|ino| session.add_reference(Ino(*ino), 1).unwrap());
        sessions.leave((7, 1)).unwrap().1
    }

    fn inos(left: &Left) -> Vec<u64> {
        left.references.iter().map(|((ino, _), _)| ino.0).collect()
    }

    #[test]
    fn references_outlive_their_process_for_a_while() {
        let queue = ReleaseQueue::default();
        assert!(queue.lock().keep(Nanos::from_secs(1), (1, 1), left(&[7]), true).is_none());
        assert!(queue.lock().keep(Nanos::from_secs(2), (1, 1), left(&[]), true).is_none());
        assert!(queue.due(Nanos::from_millis(2_999), |_| false).is_empty());
        assert_eq!(queue.due(Nanos::from_secs(3), |_| false).iter().map(inos).collect::<Vec<_>>(), [[7]]);
        assert!(queue.due(Nanos::MAX, |_| false).is_empty());
    }

    #[test]
    fn without_a_next_program_they_are_due_at_once() {
        let queue = ReleaseQueue::default();
        assert!(queue.lock().keep(Nanos::from_secs(1), (1, 1), left(&[7]), true).is_none());
        assert!(queue.lock().keep(Nanos::from_secs(1), (1, 1), left(&[8]), false).is_none());
        assert_eq!(queue.due(Nanos::from_secs(1), |_| false).iter().map(inos).collect::<Vec<_>>(), [[8]]);
    }

    #[test]
    fn the_earliest_of_the_user_who_has_most_make_room() {
        let queue = ReleaseQueue::default();
        let (quiet, hostile) = (1, 2);
        assert!(queue.lock().keep(Nanos::ZERO, (quiet, 1), left(&[7]), true).is_none());
        let more = 10..PROCESSES_MAX as u64 + 11;
        let gone: Vec<_> = more.filter_map(|n| queue.lock().keep(Nanos(n), (hostile, 1), left(&[n]), true)).collect();
        assert_eq!(gone.iter().map(inos).collect::<Vec<_>>(), [[10], [11]]);
        let kept = queue.due(Nanos::MAX, |_| false);
        assert_eq!((kept.len(), inos(&kept[0])), (PROCESSES_MAX, vec![7]));
    }
}
