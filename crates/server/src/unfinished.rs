//! Changes that are still being made when their connection ends.
//!
//! A client whose connection breaks sends what was not answered once more, on a new one; a process that has ended gives up its locks.
//! But the first write may still be on its way to the device, and would then overwrite what was written after it: by the client
//! itself, or by whoever got the lock. So nothing goes on for that process before such changes are made: its next connection
//! is welcomed, and what it had is given up, only afterwards.
//!
//! A request counts from before it is seen that its connection is open ([`Changes::begin`]), and whoever ends a connection looks
//! at the count after closing it ([`Unfinished::connection_closed`]): so either it is given up, or it is waited for.

use crate::sessions::SessionKey;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many changes a connection's requests are making.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<AtomicUsize>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Change<'c>(&'c Changes);

impl Changes {
    /// Begins a change, unless the connection `is_closed`.
    pub fn begin(&self, is_closed: &AtomicBool) -> Option<Change<'_>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let change = Change(self);
        fence(Ordering::SeqCst);
        (!is_closed.load(Ordering::Acquire)).then_some(change)
    }

    fn are_being_made(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// What connections of each session had not finished when they were closed.
#[derive(Debug, Default)]
pub struct Unfinished(Mutex<HashMap<SessionKey, Vec<Changes>>>);

impl Unfinished {
    fn table(&self) -> MutexGuard<'_, HashMap<SessionKey, Vec<Changes>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of this session was marked as closed.
    pub fn connection_closed(&self, key: SessionKey, changes: &Changes) {
        fence(Ordering::SeqCst);
        if changes.are_being_made() {
            let mut table = self.table();
            // Of those that nobody asks for any more.
            table.retain(|_, all| all.iter().any(Changes::are_being_made));
            table.entry(key).or_default().push(changes.clone());
        }
    }

    /// Whether a connection of the session that was closed still changes anything.
    pub fn has_any(&self, key: SessionKey) -> bool {
        let mut table = self.table();
        let Some(all) = table.get_mut(&key) else { return false };
        all.retain(Changes::are_being_made);
        let has_any = !all.is_empty();
        if !has_any {
            table.remove(&key);
        }
        has_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SessionKey = (7, 1);

    #[test]
    fn what_goes_on_after_the_end_is_waited_for() {
        let (unfinished, changes, is_closed) = (Unfinished::default(), Changes::default(), AtomicBool::new(false));
        let change = changes.begin(&is_closed).unwrap();
        assert!(!unfinished.has_any(KEY), "the connection is open");
        is_closed.store(true, Ordering::Release);
        unfinished.connection_closed(KEY, &changes);
        assert!(changes.begin(&is_closed).is_none());
        assert!(unfinished.has_any(KEY) && !unfinished.has_any((7, 2)));
        // Another one of the session, with nothing under way.
        unfinished.connection_closed(KEY, &Changes::default());
        assert!(unfinished.has_any(KEY));
        drop(change);
        assert!(!unfinished.has_any(KEY));
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let (unfinished, is_closed) = (Unfinished::default(), AtomicBool::new(false));
        for client in 0..100 {
            let changes = Changes::default();
            let change = changes.begin(&is_closed);
            unfinished.connection_closed((7, client), &changes);
            drop(change);
        }
        assert_eq!(unfinished.table().len(), 1);
    }

    #[test]
    fn a_change_is_given_up_or_waited_for() {
        for round in 0..2_000 {
            let (unfinished, changes, is_closed) = (Unfinished::default(), Changes::default(), AtomicBool::new(false));
            let (is_made, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    if let Some(_change) = changes.begin(&is_closed) {
                        assert!(!is_over.load(Ordering::Acquire), "round {round}: it came after the end");
                        is_made.store(true, Ordering::Release);
                    }
                });
                is_closed.store(true, Ordering::Release);
                unfinished.connection_closed(KEY, &changes);
                while unfinished.has_any(KEY) {
                    std::thread::yield_now();
                }
                is_over.store(true, Ordering::Release);
            });
        }
    }
}
