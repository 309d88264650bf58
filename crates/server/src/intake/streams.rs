//! Streams: taking the heads of requests off them, and going on with what was put aside.

use crate::connection::{Connection, Progress, Stalled, StreamState, Way};
use crate::core::Core;
use crate::stream::{self, Head, Moved, StreamEnd};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_units::Nanos;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

impl Core {
    /// Gives up what a stream of user `uid` was in the middle of.
    pub(crate) fn give_up_stalled(&self, uid: u32, state: StreamState) {
        let (pending, id) = match state {
            StreamState::Head(_) | StreamState::Queued | StreamState::Reply { .. } => return,
            StreamState::Waiting(number) => {
                let Some(work) = self.stalls.remove(uid, number) else { return };
                (work.pending, work.id)
            }
            StreamState::Payload(stalled) => (stalled.pending, stalled.id),
        };
        if let Some(target) = self.target_of(pending.op, &pending.header) {
            target.give_up(&pending, id);
        }
    }

    pub(crate) fn end_stream(&self, connection: &Arc<Connection>, end: &StreamEnd) {
        let reason: Option<&dyn std::fmt::Display> = if *end == StreamEnd::Closed { None } else { Some(end) };
        self.close(connection, reason);
    }

    /// Goes on with whatever a stream is in the middle of.
    pub fn advance_stream(&self, connection: &Arc<Connection>, now: Nanos) {
        let Way::Stream(state) = &connection.way else { return };
        let mut guard = lock(state);
        loop {
            match &mut *guard {
                StreamState::Queued | StreamState::Waiting(_) => return,
                StreamState::Head(head) => match receive_head(connection, head, now) {
                    Ok(None) => return,
                    Ok(Some((header, op, names))) => {
                        *guard = StreamState::Queued;
                        drop(guard);
                        let arrived = (0, header, op, names);
                        if let Err(reason) = self.queue(connection, &mut Progress::default(), arrived, now) {
                            self.close(connection, Some(&reason));
                        }
                        return;
                    }
                    Err(end) => {
                        drop(guard);
                        return self.end_stream(connection, &end);
                    }
                },
                StreamState::Reply { rest, since } => match stream::send(&connection.socket, rest) {
                    Ok(0) => return,
                    Ok(sent) if sent < rest.len() => {
                        rest.drain(..sent);
                        *since = now;
                        return;
                    }
                    Ok(_) => {
                        *guard = StreamState::Head(Head::default());
                        self.give_back_stall_memory(connection);
                    }
                    Err(end) => {
                        drop(guard);
                        return self.end_stream(connection, &end);
                    }
                },
                StreamState::Payload(stalled) => {
                    let before = stalled.arrival;
                    let Stalled { payload, arrival, .. } = &mut **stalled;
                    match arrival.go_on(connection, payload, false) {
                        Ok(Moved::Part) => {
                            if stalled.arrival != before {
                                stalled.since = now;
                            }
                            return;
                        }
                        Ok(Moved::All) => {
                            let StreamState::Payload(stalled) = std::mem::replace(&mut *guard, StreamState::Queued)
                            else {
                                return;
                            };
                            drop(guard);
                            let Some(target) = self.target_of(stalled.pending.op, &stalled.pending.header) else {
                                return;
                            };
                            return self.begin_stalled(target, stalled);
                        }
                        Err(end) => {
                            drop(guard);
                            return self.end_stream(connection, &end);
                        }
                    }
                }
            }
        }
    }
}

fn receive_head(
    connection: &Connection,
    head: &mut Head,
    now: Nanos,
) -> Result<Option<(RequestHeader, Op, Vec<u8>)>, StreamEnd> {
    let open = |part: &mut [u8]| connection.open(part).map(|_| ());
    stream::receive_head(&connection.socket, head, now, (connection.tag_len(), &open))
}

fn lock(state: &Mutex<StreamState>) -> MutexGuard<'_, StreamState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
