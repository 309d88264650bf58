//! Requests that come: taken off their connections, charged, and queued at their targets.

use super::BELL;
use crate::charge::{self, Charge};
use crate::clock;
use crate::cluster;
use crate::connection::{Connection, Pending, Progress, StreamState, Way};
use crate::core::Core;
use crate::operation::reads_or_writes;
use crate::target::Target;
use isonomia_proto::request::{BadRequest, Op, RequestHeader};
use isonomia_transport::region::SLOT_LEN;
use isonomia_units::{Bytes, Nanos};
use rustix::event::{Timespec, epoll};
use rustix::net::RecvFlags;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};

/// Between two looks at epoll while workers are awake: one costs as much as serving a small request.
const EPOLL_EVERY: Nanos = Nanos::from_micros(50);
/// Events taken from epoll at a time.
const EVENTS_MAX: usize = 64;

impl Core {
    /// Takes in requests, unless another worker is doing so: whether there were any, and what time it is then.
    pub fn take_in(&self, now: Nanos) -> (bool, Nanos) {
        let mut intake = match self.intake.try_lock() {
            Ok(intake) => intake,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return (false, now),
        };
        let posted = intake.poll(now, |connection| self.take_posted(connection, now));
        let look_at_events = now.since(intake.events_at) >= EPOLL_EVERY;
        if look_at_events {
            intake.events_at = now;
        }
        drop(intake);
        if look_at_events && self.take_events(now, Some(Nanos::ZERO)) {
            // Nobody's request is charged for the time that these took.
            return (true, clock::now());
        }
        (posted, now)
    }

    /// Waits for events for at most `timeout` (`None`: for ever) and handles them; true if there were any.
    pub fn take_events(&self, now: Nanos, timeout: Option<Nanos>) -> bool {
        let mut events: [epoll::Event; EVENTS_MAX] =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; EVENTS_MAX];
        let timeout =
            timeout.map(|t| Timespec { tv_sec: (t.0 / 1_000_000_000) as _, tv_nsec: (t.0 % 1_000_000_000) as _ });
        let count = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok(count) => count,
            Err(_) => return false,
        };
        for event in &events[..count] {
            match event.data.u64() {
                BELL => self.bell.silence(),
                id => self.on_event(id, event.flags, now),
            }
        }
        count > 0
    }

    fn on_event(&self, id: u64, flags: epoll::EventFlags, now: Nanos) {
        let Some(connection) = self.connection(id) else { return };
        match &connection.way {
            Way::Shared(_) => {
                // What the bytes are does not matter: each means that a request was posted. Where they end the client has
                // gone.
                let mut rings = [0; 64];
                let ended = loop {
                    match rustix::net::recv(&connection.socket, &mut rings, RecvFlags::DONTWAIT) {
                        Ok((0, _)) => break true,
                        Ok(_) => {}
                        Err(rustix::io::Errno::AGAIN) => break flags.contains(epoll::EventFlags::HUP),
                        Err(rustix::io::Errno::INTR) => {}
                        Err(_) => break true,
                    }
                };
                if ended {
                    self.close(&connection, None);
                } else {
                    self.intake.lock().unwrap_or_else(PoisonError::into_inner).warm(connection, now);
                }
            }
            Way::Stream(state) => {
                self.advance_stream(&connection, now);
                // While a request is served nothing is read, and so the end not met: but what its client sends once more on
                // another connection must not be served beside it.
                let has_ended =
                    flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
                let is_served = || {
                    let state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    matches!(*state, StreamState::Queued | StreamState::Waiting(_))
                };
                if has_ended && is_served() {
                    self.close(&connection, None);
                }
            }
        }
    }

    /// To be called before the last worker sleeps; false if it must stay awake, because a request has come meanwhile.
    pub fn leave_all(&self) -> bool {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner).leave_all()
    }

    /// Takes in what a shared-memory connection has posted; true if there was anything.
    pub fn take_posted(&self, connection: &Arc<Connection>, now: Nanos) -> bool {
        let Way::Shared(shared) = &connection.way else { return false };
        let mut progress = shared.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = false;
        loop {
            match shared.region.poll(&mut progress.seen, shared.serving.load(Ordering::Acquire)) {
                Ok(None) => return found,
                Ok(Some((slot, header))) => {
                    found = true;
                    shared.serving.fetch_or(1 << slot, Ordering::AcqRel);
                    let queued = check_for_slot(&header)
                        .and_then(|op| self.queue(connection, &mut progress, (slot, header, op, Vec::new()), now));
                    if let Err(reason) = queued {
                        drop(progress);
                        self.close(connection, Some(&reason));
                        return true;
                    }
                }
                Err(violation) => {
                    drop(progress);
                    self.close(connection, Some(&violation));
                    return true;
                }
            }
        }
    }

    /// Queues a request at its target.
    pub(super) fn queue(
        &self,
        connection: &Arc<Connection>,
        progress: &mut Progress,
        arrived: (usize, RequestHeader, Op, Vec<u8>),
        now: Nanos,
    ) -> Result<(), Unqueued> {
        let (slot, header, op, names) = arrived;
        let target = self.target_of(op, &header).ok_or(Unqueued::UnknownTarget(header.target))?;
        let is_continued = reads_or_writes(op) && progress.is_continued(op, &header);
        let is_control = op == Op::Peer && connection.is_trusted && cluster::is_control(header.valid);
        let control = self.cluster.get().filter(|_| is_control).map(|cluster| &cluster.control);
        let charge = control
            .map_or_else(|| charge::ahead(self, target, connection, op, &header, is_continued), |_| Charge::NOTHING);
        let Charge { cost, owed, work, access, bytes } = charge;
        let nature = self.nature(connection, (slot, op, &names), &header, is_continued);
        let connection = connection.clone();
        let took = Nanos::ZERO;
        let pending = Pending {
            connection,
            slot,
            header,
            op,
            names,
            arrived: now,
            cost,
            owed,
            work,
            access,
            bytes,
            nature,
            neighbours: Bytes(0),
            took,
            is_for_device: false,
            change: None,
        };
        let pending = if let Some(control) = control {
            match control.keep(pending) {
                Ok(()) => {
                    self.has_arrived();
                    return Ok(());
                }
                Err(pending) => *pending,
            }
        } else {
            pending
        };
        // What servers say to each other does not wait: it is how a server that starts hears of the policy.
        let let_in = match self.cluster.get().filter(|_| op != Op::Peer) {
            Some(cluster) => cluster.startup_queue.keep(pending),
            None => Some(pending),
        };
        let ready = let_in.and_then(|pending| self.keep_first_write(pending));
        ready.map_or(Ok(()), |pending| self.enqueue(target, pending, now))
    }

    /// Queues a request that had to wait before it could be, unless its connection was closed meanwhile.
    pub(crate) fn queue_kept(&self, pending: Pending) {
        let Some(target) = self.target_of(pending.op, &pending.header) else { return };
        let connection = pending.connection.clone();
        if connection.is_closed() {
            return connection.job.debts.put_back(target.is_metadata(), pending.owed);
        }
        if let Err(reason) = self.enqueue(target, pending, clock::now()) {
            self.close(&connection, Some(&reason));
        } else if connection.is_closed() {
            // Who closed it may have looked for its requests before this one was among them.
            target.cancel(clock::now(), connection.id);
        }
    }

    fn enqueue(&self, target: &Target, pending: Pending, now: Nanos) -> Result<(), Unqueued> {
        target.enqueue(now, pending).map_err(|refused| {
            let refused = &refused.pending;
            refused.connection.job.debts.put_back(target.is_metadata(), refused.owed);
            Unqueued::Full
        })?;
        self.phases.look(&self.bell);
        self.has_arrived();
        Ok(())
    }
}

/// A request that is not queued; its connection is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unqueued {
    #[error(transparent)]
    Bad(#[from] BadRequest),
    #[error("{op:?} of {len} bytes, {SLOT_LEN} at most in shared memory")]
    TooLong { op: Op, len: usize },
    #[error("this server has no target {0}")]
    UnknownTarget(u16),
    #[error("the target's queue is full")]
    Full,
}

fn check_for_slot(header: &RequestHeader) -> Result<Op, Unqueued> {
    let op = header.check()?;
    let len = header.names_len().max(if reads_or_writes(op) { header.len as usize } else { 0 });
    if len <= SLOT_LEN { Ok(op) } else { Err(Unqueued::TooLong { op, len }) }
}
