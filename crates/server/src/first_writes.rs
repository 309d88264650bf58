//! Writes to files that rest: each waits here, before it is queued at its target, until stable storage has it that the file is being
//! written ([`Store::begin_writing`]). One sync of the metadata does for all that wait; at the target each would wait for one
//! with a place of the target's depth, and those of others behind it.
//!
//! What waits is bounded by what a connection may have under way, and by the number of connections.
//!
//! [`Store::begin_writing`]: isonomia_store::Store::begin_writing

mod begin;

use crate::connection::Pending;
use std::sync::{Mutex, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub struct FirstWrites(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Pending>,
    /// A thread takes what waits, until nothing does.
    is_served: bool,
}

impl FirstWrites {
    /// Keeps a write. Where no thread takes what waits `start` has one do so; the write is given back if there is none.
    fn keep(&self, pending: Pending, start: impl FnOnce() -> bool) -> Option<Pending> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_served && !start() {
            return Some(pending);
        }
        state.is_served = true;
        state.waiting.push(pending);
        None
    }

    /// What waits; there is nobody any more who takes it if that is nothing.
    fn take(&self) -> Vec<Pending> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_served = !state.waiting.is_empty();
        std::mem::take(&mut state.waiting)
    }
}
