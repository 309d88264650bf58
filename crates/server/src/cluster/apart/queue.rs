//! Control messages that wait for a worker.

use crate::cluster::controller::Heard;
use crate::cluster::wire;
use crate::connection::Pending;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Messages that wait to be answered at most: more than all servers of a cluster send at once. Others wait as requests do.
const WAITING_MAX: usize = 4_096;

/// Control messages that have come and are not answered.
#[derive(Debug, Default)]
pub struct ControlQueue {
    waiting: Mutex<VecDeque<Pending>>,
    /// Whether there are any: workers look all the time.
    has_some: AtomicBool,
}

impl ControlQueue {
    /// Keeps a message until a worker answers it; gives it back if there are too many.
    pub fn keep(&self, pending: Pending) -> Result<(), Box<Pending>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= WAITING_MAX {
            return Err(Box::new(pending));
        }
        waiting.push_back(pending);
        self.has_some.store(true, Ordering::Release);
        Ok(())
    }

    /// The message that has waited for longest.
    pub fn next(&self) -> Option<Pending> {
        if !self.has_some.load(Ordering::Acquire) {
            return None;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let next = waiting.pop_front();
        self.has_some.store(!waiting.is_empty(), Ordering::Release);
        next
    }
}

/// Whether messages of this kind are answered from memory, in a moment.
pub fn is_control(kind: u32) -> bool {
    let of_tables = matches!(kind, wire::JobTable::KIND | wire::JobTable::OF_METADATA | wire::RATE_TABLE);
    of_tables || matches!(kind, wire::PhaseReport::KIND | wire::PhaseGrant::KIND) || Heard::is_kind(kind)
}
