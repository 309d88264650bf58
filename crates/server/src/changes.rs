//! Counts what the requests of a connection are changing, so that others can wait for it once the connection is closed
//! ([`crate::unfinished`]).
//!
//! A change is counted before it is seen whether the connection is open, and whoever waits for changes looks at the count after he
//! has seen that it is closed. So a change is either not begun any more, or waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// How many changes are being made.
#[derive(Debug, Default)]
pub struct Changes(Arc<AtomicUsize>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Change(Arc<AtomicUsize>);

impl Changes {
    /// Begins a change, unless the connection `is_closed`.
    pub fn begin(&self, is_closed: &AtomicBool) -> Option<Change> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let change = Change(self.0.clone());
        fence(Ordering::SeqCst);
        (!is_closed.load(Ordering::Acquire)).then_some(change)
    }

    /// Whether any is left; to be asked after the connection was seen closed.
    pub fn are_any_left(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire) > 0
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_not_begun_or_it_is_waited_for() {
        for round in 0..2_000 {
            let (changes, is_closed, is_over) = (Changes::default(), AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    if let Some(_change) = changes.begin(&is_closed) {
                        assert!(!is_over.load(Ordering::Acquire), "round {round}: it came after the end");
                    }
                });
                is_closed.store(true, Ordering::Release);
                while changes.are_any_left() {
                    std::thread::yield_now();
                }
                is_over.store(true, Ordering::Release);
            });
            assert!(changes.begin(&is_closed).is_none() && !changes.are_any_left());
        }
    }
}
