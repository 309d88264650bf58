//! What was written and has not been put on stable storage: whether it may have been lost since.
//!
//! A server that is killed and started again has all that it acknowledged; one whose host lost power has what was synced. Each
//! connection begins with the server's *verifier*, which is another one after a stop of the second kind (as in NFS). So a reply to a write
//! leaves a [`Mark`] with the open file: which server it was, and its verifier. A sync that ends under another verifier has found
//! out too late: what was written before may be gone. It fails (EIO), once, and what is written afterwards is on its own.
//!
//! Marks belong to the *open file*, not to the process: where processes share one, they may share the marks as well
//! ([`Unsynced::at`]). Those of changes of names and attributes, which a sync of any file or directory brings to stable
//! storage, belong to the client.
//!
//! * Noted *after* the reply and before the program knows of it, taken *before* a sync is sent: a sync that takes a mark began
//!   after that reply, and a write that it may not cover leaves a mark which it does not take.
//! * Marks are put back if a sync fails for another reason.
//! * An older mark of the same server is not replaced: it is the one that a sync is to fail for.
//! * Marks of a server that a sync does not reach are dropped by it: then the file was moved to another server, which it
//!   was not before it was on stable storage there.
//!
//! What it does not know: whether what was written before was on stable storage by other ways when the power failed. Then the
//! error is a false alarm.

use isonomia_proto::setup::VERIFIER_MAX;
use isonomia_transport::line::Line;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Servers of which marks are kept at once at most where there is room of a fixed size for them. Of more servers none are noted,
/// and what is lost on them nobody is told.
pub const MARKS_MAX: usize = 64;
/// A file has marks of more servers than it lies on while it is moved, and so does one whose volume is.
const MARKS_MORE: usize = 3;

/// A server and its verifier, as one number that is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Mark {
    /// Of all replies on this connection.
    pub fn of(line: &Line) -> Self {
        Self::new(line.server().0, line.verifier())
    }

    fn new(server: u16, verifier: u64) -> Self {
        Self(verifier.clamp(1, VERIFIER_MAX) << 16 | u64::from(server))
    }

    fn server(self) -> u16 {
        self.0 as u16
    }

    /// Whether what has the mark may be lost, since the same server answers with another one.
    fn is_lost(self, answered: &[Self]) -> bool {
        answered.iter().any(|other| other.server() == self.server() && *other != self)
    }
}

/// Marks of what is not on stable storage. See the module.
#[derive(Clone)]
pub struct Unsynced(Arc<dyn AsRef<[AtomicU64]> + Send + Sync>);

impl Unsynced {
    /// For what lies on so many servers.
    pub(crate) fn of_servers(count: usize) -> Self {
        let mark = |_| AtomicU64::new(0);
        match count {
            0 | 1 => Self(Arc::new(std::array::from_fn::<_, { 1 + MARKS_MORE }, _>(mark))),
            _ => Self(Arc::new((0..count + MARKS_MORE).map(mark).collect::<Vec<_>>())),
        }
    }

    /// Kept in these words, which others may use as well. They are zeros at first.
    pub fn at(words: Arc<dyn AsRef<[AtomicU64]> + Send + Sync>) -> Self {
        Self(words)
    }

    /// From now on kept where `other` keeps its own.
    pub fn join(&mut self, other: Self) {
        if !std::ptr::eq(self.marks(), other.marks()) {
            self.give_to(&other);
            *self = other;
        }
    }

    /// It is `other`'s from now on what is noted here.
    pub fn give_to(&self, other: &Self) {
        self.take().into_iter().for_each(|mark| other.note(mark));
    }

    /// Notes what `other` has noted as well.
    pub fn note_all(&self, other: &Self) {
        other.look().into_iter().for_each(|mark| self.note(mark));
    }

    fn marks(&self) -> &[AtomicU64] {
        (*self.0).as_ref()
    }

    /// Something was changed, and the reply had this mark.
    pub(crate) fn note(&self, mark: Mark) {
        let is_its = |seen: u64| seen != 0 && Mark(seen).server() == mark.server();
        // Another thread may take a word in between: then a later one is looked for.
        for _ in 0..=self.marks().len() {
            if self.marks().iter().any(|word| is_its(word.load(Ordering::Acquire))) {
                return;
            }
            let Some(free) = self.marks().iter().find(|word| word.load(Ordering::Acquire) == 0) else { return };
            if free.compare_exchange(0, mark.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// What is noted.
    pub(crate) fn look(&self) -> Vec<Mark> {
        self.marks().iter().map(|word| word.load(Ordering::Acquire)).filter(|mark| *mark != 0).map(Mark).collect()
    }

    /// Takes what is noted, for a sync that begins now.
    pub(crate) fn take(&self) -> Vec<Mark> {
        let noted = self.marks().iter().filter(|word| word.load(Ordering::Acquire) != 0);
        noted.map(|word| word.swap(0, Ordering::AcqRel)).filter(|mark| *mark != 0).map(Mark).collect()
    }

    /// The sync failed. What was noted meanwhile is later than this.
    pub(crate) fn put_back(&self, marks: Vec<Mark>) {
        for mark in marks {
            let is_its = |word: &&AtomicU64| Mark(word.load(Ordering::Acquire)).server() == mark.server();
            match self.marks().iter().filter(|word| word.load(Ordering::Acquire) != 0).find(is_its) {
                Some(word) => word.store(mark.0, Ordering::Release),
                None => self.note(mark),
            }
        }
    }
}

/// Whether something with one of the marks `taken` may be lost, since these answered a sync.
pub(crate) fn is_any_lost(taken: &[Mark], answered: &[Mark]) -> bool {
    taken.iter().any(|mark| mark.is_lost(answered))
}

/// Divides marks into those of servers that answered, and others.
pub(crate) fn of_those_who(answered: &[Mark], taken: Vec<Mark>) -> (Vec<Mark>, Vec<Mark>) {
    taken.into_iter().partition(|mark| answered.iter().any(|other| other.server() == mark.server()))
}

impl Default for Unsynced {
    fn default() -> Self {
        Self::of_servers(1)
    }
}

impl fmt::Debug for Unsynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.look()).finish()
    }
}

/// Always equal: marks are no part of what the file is.
impl PartialEq for Unsynced {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Unsynced {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_mark_of_each_server_is_kept_until_it_is_taken() {
        let unsynced = Unsynced::of_servers(3);
        let (old, new, other) = (Mark::new(1, 7), Mark::new(1, 8), Mark::new(2, 7));
        [old, new, other, other].into_iter().for_each(|mark| unsynced.note(mark));
        assert_eq!(unsynced.look(), [old, other]);
        let taken = unsynced.take();
        assert!(is_any_lost(&taken, &[new]) && is_any_lost(&taken, &[old, new]) && !is_any_lost(&taken, &[old, other]));
        assert!(!is_any_lost(&taken, &[Mark::new(3, 9)]), "it was moved");
        assert_eq!(of_those_who(&[new], taken.clone()), (vec![old], vec![other]));
        unsynced.note(new);
        unsynced.put_back(taken);
        assert_eq!(unsynced.take(), [old, other], "the sync that failed is to be told of what was before it");
        assert_eq!(unsynced.take(), []);
    }

    #[test]
    fn of_more_servers_than_there_is_room_for_nothing_is_noted() {
        let unsynced = Unsynced::of_servers(10);
        (1..=1_000).for_each(|server| unsynced.note(Mark::new(server, 1)));
        assert_eq!(unsynced.take().len(), 10 + MARKS_MORE);
        let mark = Mark::new(0, 0);
        unsynced.note(mark);
        assert_eq!(unsynced.take(), [mark], "also of a server that says nothing of use");
    }

    #[test]
    fn what_is_given_to_another_is_his_and_who_joins_him_has_it_as_well() {
        let shared = Unsynced::at(Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
        let mut own = Unsynced::default();
        own.note(Mark::new(1, 7));
        own.give_to(&shared);
        own.note(Mark::new(2, 7));
        own.give_to(&shared);
        assert_eq!(own.look(), []);
        own.join(shared.clone());
        own.join(shared.clone());
        assert_eq!(own.take(), [Mark::new(1, 7), Mark::new(2, 7)]);
        assert_eq!(shared.look(), []);
    }
}
