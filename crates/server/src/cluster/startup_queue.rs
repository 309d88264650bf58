//! Requests of clients that came before this server may serve any: a server that has just started waits until it has the
//! cluster's policy ([`isonomia_cluster::policy`]).
//!
//! They are bounded as those in the queues of targets are: by what a connection may have under way, and by the number of connections.

use crate::connection::Pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub struct StartupQueue {
    is_open: AtomicBool,
    waiting: Mutex<Vec<Pending>>,
}

impl StartupQueue {
    /// Keeps `pending` until the server may serve clients; gives it back if it may by now.
    pub fn keep(&self, pending: Pending) -> Option<Pending> {
        if self.is_open.load(Ordering::Acquire) {
            return Some(pending);
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody opens it while this is locked.
        if self.is_open.load(Ordering::Acquire) {
            return Some(pending);
        }
        waiting.push(pending);
        None
    }

    /// Whether the server may serve clients: then it stays so.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// The server may serve clients from now on. Gives what has waited, in the order in which it came.
    pub fn open(&self) -> Vec<Pending> {
        if self.is_open.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_open.store(true, Ordering::Release);
        std::mem::take(&mut waiting)
    }
}
