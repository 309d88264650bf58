//! Having memory, or waiting for it, and giving it back.

use super::SMALL_LEN;
use crate::connection::{Connection, StreamState, Way};
use crate::core::Core;
use crate::operation::reads_or_writes;
use crate::requests::Work;
use crate::target::Target;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{Ordering, fence};

impl Core {
    /// Gives a request whose turn has come back if there is memory in case that its client stalls; else it waits for that.
    pub(crate) fn find_stall_memory(&self, target: &Target, work: Box<Work>) -> Option<Box<Work>> {
        let pending = &work.pending;
        let connection = pending.connection.clone();
        let Way::Stream(state) = &connection.way else { return Some(work) };
        let bytes = u64::from(pending.header.len);
        if !reads_or_writes(pending.op) || bytes <= SMALL_LEN as u64 || connection.permit.has_for_stall() {
            return Some(work);
        }
        let nobody_waits = self.stalls.waiting.load(Ordering::SeqCst) == 0;
        if nobody_waits && connection.permit.take_for_stall(bytes) {
            return self.unless_closed(target, &connection, work);
        }
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = connection.permit.uid();
        let mut queue = self.stalls.queue();
        // Before it is tried: what is given back from then on is handed out.
        self.stalls.waiting.fetch_add(1, Ordering::SeqCst);
        let is_first = queue.users.iter().all(|(user, _)| *user != uid);
        if connection.is_closed() || (is_first && connection.permit.take_for_stall(bytes)) {
            self.stalls.waiting.fetch_sub(1, Ordering::SeqCst);
            drop((queue, state));
            return self.unless_closed(target, &connection, work);
        }
        // The client keeps it waiting, not the device.
        target.set_aside(crate::clock::now(), work.id);
        queue.last += 1;
        let number = queue.last;
        match queue.users.iter_mut().find(|(user, _)| *user == uid) {
            Some((_, works)) => drop(works.insert(number, work)),
            None => queue.users.push_back((uid, BTreeMap::from([(number, work)]))),
        }
        *state = StreamState::Waiting(number);
        None
    }

    /// Gives the work back, unless its connection was closed before it had its memory: nobody else would give that back.
    fn unless_closed(&self, target: &Target, connection: &Connection, work: Box<Work>) -> Option<Box<Work>> {
        // With that in `close`: one of the two sees what the other one did.
        fence(Ordering::SeqCst);
        if !connection.is_closed() {
            return Some(work);
        }
        self.give_back_stall_memory(connection);
        target.give_up(&work.pending, work.id);
        None
    }

    /// What a connection's request had is free again.
    pub(crate) fn give_back_stall_memory(&self, connection: &Connection) {
        let had_any = connection.permit.give_back_for_stall();
        if had_any && self.stalls.waiting.load(Ordering::SeqCst) > 0 && self.stalls.hand_out() {
            self.has_arrived();
        }
    }
}
