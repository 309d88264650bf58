//! References that client processes held when they executed another program, kept for a moment.
//!
//! Such a process leaves its open files to the new program, but not its connections. Until the new program has
//! connected and taken references of its own, an open file without a name must not go.

use isonomia_units::{Ino, Nanos};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// How long: loading and starting a large program takes tenths of a second.
const KEEP_FOR: Nanos = Nanos::from_secs(2);
/// Processes whose references are kept at once; beyond that the earliest go early.
const PROCESSES_MAX: usize = 4_096;

/// Inodes with the numbers of open files, and how often each was held.
pub type References = Vec<((Ino, u64), u64)>;

/// See the module.
#[derive(Debug, Default)]
pub struct Departed {
    /// In the order in which they are due.
    waiting: Mutex<VecDeque<(Nanos, References)>>,
}

impl Departed {
    /// Keeps what a process held; gives what has to go instead.
    pub fn keep(&self, now: Nanos, references: References) -> Option<References> {
        if references.is_empty() {
            return None;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back((now + KEEP_FOR, references));
        if waiting.len() > PROCESSES_MAX { waiting.pop_front().map(|(_, references)| references) } else { None }
    }

    /// Takes out what is due at `now`.
    pub fn due(&self, now: Nanos) -> Vec<References> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.iter().take_while(|(due, _)| *due <= now).count();
        waiting.drain(..count).map(|(_, references)| references).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_outlive_their_process_for_a_while() {
        let departed = Departed::default();
        assert_eq!(departed.keep(Nanos::from_secs(1), vec![((Ino(7), 1), 2)]), None);
        assert_eq!(departed.keep(Nanos::from_secs(2), vec![]), None);
        assert!(departed.due(Nanos::from_millis(2_999)).is_empty());
        assert_eq!(departed.due(Nanos::from_secs(3)), [vec![((Ino(7), 1), 2)]]);
        assert!(departed.due(Nanos::MAX).is_empty());
    }

    #[test]
    fn the_earliest_make_room() {
        let departed = Departed::default();
        let gone: Vec<_> =
            (0..PROCESSES_MAX as u64 + 2).filter_map(|n| departed.keep(Nanos(n), vec![((Ino(n + 1), 0), 1)])).collect();
        assert_eq!(gone, [vec![((Ino(1), 0), 1)], vec![((Ino(2), 0), 1)]]);
        assert_eq!(departed.due(Nanos::MAX).len(), PROCESSES_MAX);
    }
}
