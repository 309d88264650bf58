//! What all threads of a server share: the store, the targets, the connections; and the way of a request through
//! them: taken in, queued at its target, served when its turn has come, answered.

use crate::backup::Backups;
use crate::charge::{Charge, is_for_data, reads_or_writes};
use crate::cluster::{self, Cluster};
use crate::connection::{Connection, Progress, Way};
use crate::departed::Departed;
use crate::holders::Holders;
use crate::intake::{BELL, Intake};
use crate::jobs::Jobs;
use crate::locks::Locks;
use crate::mappings::Mappings;
use crate::outside::Outside;
use crate::phases::Phases;
use crate::prefixes::Prefixes;
use crate::rates::Rates;
use crate::recorder::Recording;
use crate::rejections::{Rejection, Rejections};
use crate::scrub::Scrub;
use crate::segments::Segments;
use crate::sessions::Sessions;
use crate::shadow::Shadowing;
use crate::stalls::Stalls;
use crate::stream::{self, Head, Moved, Stalled, StreamEnd, StreamState};
use crate::substitutes::Serving;
use crate::target::{Pending, Policy, Target};
use crate::unsynced::Unsynced;
use crate::worker;
use crate::{charge, clock};
use isonomia_proto::request::{BadRequest, NO_TARGET, Op, RequestHeader};
use isonomia_proto::{XATTR_LIST_LEN_MAX, XATTR_VALUE_LEN_MAX};
use isonomia_store::Store;
use isonomia_transport::key::fresh_nonce;
use isonomia_transport::region::SLOT_LEN;
use isonomia_transport::socket;
use isonomia_units::{Nanos, TargetId};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::thread::Thread;

/// Room for the reply of anything that is no read: the longest are those about extended attributes.
pub const REPLY_LEN_MAX: usize = XATTR_VALUE_LEN_MAX;
const _: () = assert!(REPLY_LEN_MAX >= XATTR_LIST_LEN_MAX && REPLY_LEN_MAX <= SLOT_LEN);
/// After this long with short requests only, one worker serves them.
const SHORT_FOR: Nanos = Nanos::from_millis(2);
/// Requests that wait, from which on no worker is to spare.
const BACKLOG: usize = 16;

/// See the module.
pub struct Core {
    /// For threads that are started on the way.
    pub own: Weak<Self>,
    /// The files.
    pub store: Store,
    /// The metadata service, then the data targets in the order of their numbers.
    pub targets: Vec<Target>,
    /// Who is served.
    pub jobs: Jobs,
    /// What is fair.
    pub policy: Mutex<Policy>,
    /// Taking requests in.
    pub intake: Mutex<Intake>,
    /// Sockets and the bell.
    pub epoll: OwnedFd,
    bell: OwnedFd,
    connections: RwLock<HashMap<u64, Arc<Connection>>>,
    /// Client processes, and what they hold.
    pub sessions: Sessions,
    /// What executing processes left to their next programs.
    pub departed: Departed,
    /// The thread that gives it back.
    pub caretaker: OnceLock<Thread>,
    /// Who looks through the objects in the background.
    pub scrub: Scrub,
    /// The part in a cluster, if this server is in one.
    pub cluster: OnceLock<Cluster>,
    /// Sockets on which it listens, each in a line of its own.
    pub sockets: OnceLock<String>,
    /// Limits for programs that write to the device outside, if there are to be any.
    pub outside: OnceLock<Outside>,
    /// Who copies the metadata.
    pub backups: Backups,
    /// Who has the targets, under a policy of exclusive phases.
    pub phases: Phases,
    /// What an fsync would have to flush.
    pub unsynced: Unsynced,
    /// Who may claim locks and mappings after a start.
    pub holders: Holders,
    /// Who has locked what.
    pub locks: Locks,
    /// Who has which files mapped, and the requests for lease events.
    pub mappings: Mappings<Pending>,
    /// The memory that stands for files that programs of this host have mapped.
    pub segments: Segments,
    /// Requests that wait for memory in case that their clients stall.
    pub stalls: Stalls,
    /// Workers that look after the connections: neither asleep nor in a long piece of work.
    pub awake: AtomicUsize,
    /// Workers that are asleep or about to be.
    pub asleep: AtomicUsize,
    /// Requests that were ever queued: whoever sleeps last makes sure that this is what it was before it looked
    /// whose turn it is.
    pub arrivals: AtomicU64,
    /// A worker waits for a device.
    pub is_worker_waiting: AtomicBool,
    /// When a long piece of work was last begun, in nanoseconds of the monotonic clock.
    long_at: AtomicU64,
    /// All workers.
    pub workers: usize,
    /// What they do at the moment.
    pub serving: Serving,
    /// Which files the policy's rules look at.
    pub prefixes: Prefixes,
    /// The rates of its rules.
    pub rates: Rates,
    /// The policy that decides beside it.
    pub shadowing: Shadowing,
    /// Since when decisions are recorded for an operator, and until when.
    pub recording: Recording,
    /// Everything ends.
    pub is_stopping: AtomicBool,
    /// Connections refused, or closed for what they sent.
    pub refused_total: AtomicU64,
    /// The same by reason, and those that were displaced by others.
    pub rejections: Rejections,
}

impl Core {
    /// A core without connections.
    pub fn new(
        store: Store,
        targets: Vec<Target>,
        policy: Policy,
        workers: usize,
        jobs: Jobs,
        scrub: Scrub,
    ) -> Result<Arc<Self>, Errno> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&poll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        let rates = Rates::new(&targets);
        let phases = Phases::default();
        phases.adopt(policy.io_node.as_ref());
        let unsynced = Unsynced::new(!store.is_volatile());
        let first_session = fresh_nonce()?.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Ok(Arc::new_cyclic(|own| Self {
            own: own.clone(),
            store,
            targets,
            jobs,
            policy: Mutex::new(policy),
            intake: Mutex::default(),
            epoll: poll,
            bell,
            connections: RwLock::default(),
            sessions: Sessions::new(first_session),
            departed: Departed::default(),
            caretaker: OnceLock::new(),
            scrub,
            cluster: OnceLock::new(),
            sockets: OnceLock::new(),
            outside: OnceLock::new(),
            backups: Backups::default(),
            phases,
            unsynced,
            locks: Locks::default(),
            holders: Holders::default(),
            mappings: Mappings::new(clock::wall_number()),
            segments: Segments::default(),
            stalls: Stalls::default(),
            awake: AtomicUsize::new(workers),
            asleep: AtomicUsize::new(0),
            arrivals: AtomicU64::new(0),
            is_worker_waiting: AtomicBool::new(false),
            long_at: AtomicU64::new(0),
            workers,
            serving: Serving::new(workers),
            prefixes: Prefixes::default(),
            rates,
            shadowing: Shadowing::default(),
            recording: Recording::default(),
            is_stopping: AtomicBool::new(false),
            refused_total: AtomicU64::new(0),
            rejections: Rejections::default(),
        }))
    }

    /// Targets for data: all but the metadata service.
    pub fn data_targets(&self) -> usize {
        self.targets.len() - 1
    }

    /// Wakes one sleeping worker.
    pub fn ring(&self) {
        // If the counter is full, it wakes whoever waits for it anyway.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    pub(crate) fn silence_bell(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// The connection of this number.
    pub fn connection(&self, id: u64) -> Option<Arc<Connection>> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Every connection.
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Serves a connection that is set up.
    pub fn adopt(&self, connection: Arc<Connection>) -> Result<(), Errno> {
        let now = clock::now();
        self.connections.write().unwrap_or_else(PoisonError::into_inner).insert(connection.id, connection.clone());
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let added = epoll::add(&self.epoll, &connection.socket, epoll::EventData::new_u64(connection.id), flags);
        if let Err(errno) = added {
            self.close(&connection, Some(&errno));
            return Err(errno);
        }
        self.warm(connection, now);
        self.ring();
        Ok(())
    }

    /// Whether the other end of a connection of any of these sessions is there. O(connections).
    pub fn is_any_there(&self, sessions: &[u64]) -> bool {
        let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
        let mut theirs = connections.values().filter(|connection| sessions.contains(&connection.session.number));
        theirs.any(|connection| !connection.is_closed() && !socket::is_ended(connection.socket.as_fd()))
    }

    /// Ends a connection and gives up all it held. `reason` if it is not the client's wish.
    pub fn close(&self, connection: &Arc<Connection>, reason: Option<&dyn std::fmt::Display>) {
        if connection.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(reason) = reason {
            self.refused_total.fetch_add(1, Ordering::Relaxed);
            self.rejections.count(Rejection::Protocol);
            let info = connection.job.info();
            tracing::warn!(job = %info.name, uid = connection.credentials.uid, %reason, "connection closed");
        }
        self.connections.write().unwrap_or_else(PoisonError::into_inner).remove(&connection.id);
        if let Way::Stream(state) = &connection.way {
            let state = std::mem::replace(&mut *lock(state), StreamState::Queued);
            self.give_up_stalled(connection.permit.uid(), state);
        }
        // Already gone from epoll when the socket is dropped; this only hastens it.
        let _ = epoll::delete(&self.epoll, &connection.socket);
        let _ = rustix::net::shutdown(&connection.socket, rustix::net::Shutdown::Both);
        // With that of whoever takes memory meanwhile: one of the two sees what the other one did.
        fence(Ordering::SeqCst);
        self.give_back_stall_memory(connection);
        let now = clock::now();
        for target in &self.targets {
            target.cancel(now, connection.id);
        }
        self.leave_session(connection.session_key);
        self.jobs.leave(&connection.job, now);
        self.phases.leave(self, &connection.job);
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
    fn queue(
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
            took,
            is_for_device: false,
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
        // What servers say to each other is what opens the gate.
        let let_in = match self.cluster.get().filter(|_| op != Op::Peer) {
            Some(cluster) => cluster.gate.hold(pending),
            None => Some(pending),
        };
        let_in.map_or(Ok(()), |pending| self.enqueue(target, pending, now))
    }

    /// Queues a request that had to wait until this server may serve.
    pub(crate) fn queue_held(&self, pending: Pending) {
        let Some(target) = self.target_of(pending.op, &pending.header) else { return };
        let connection = pending.connection.clone();
        if let Err(reason) = self.enqueue(target, pending, clock::now()) {
            self.close(&connection, Some(&reason));
        }
    }

    fn enqueue(&self, target: &Target, pending: Pending, now: Nanos) -> Result<(), Unqueued> {
        target.enqueue(now, pending).map_err(|refused| {
            let refused = &refused.pending;
            refused.connection.job.debts.put_back(target.is_metadata(), refused.owed);
            Unqueued::Full
        })?;
        self.phases.look(self);
        self.has_arrived();
        Ok(())
    }

    /// Has a worker look after what was queued.
    pub(crate) fn has_arrived(&self) {
        self.arrivals.fetch_add(1, Ordering::SeqCst);
        // Threads that are no workers queue what follows on a stream.
        if self.awake.load(Ordering::SeqCst) == 0 {
            self.ring();
        }
    }

    pub(crate) fn target_of(&self, op: Op, header: &RequestHeader) -> Option<&Target> {
        match op {
            Op::Fsync if header.target == NO_TARGET => self.targets.first(),
            op if is_for_data(op) => {
                let wanted = TargetId(header.target);
                let found = self.targets.iter().find(|target| target.id == Some(wanted));
                // Of another server, which the client is told of then.
                found.or_else(|| self.cluster.get().and(self.targets.first()))
            }
            _ => self.targets.first(),
        }
    }

    /// Does a long piece of work, while others look after the connections. Of threads that are no workers nobody expects
    /// that they do.
    pub fn take_long(&self, work: impl FnOnce()) {
        let Some(number) = worker::number() else { return work() };
        self.long_at.store(clock::now().0, Ordering::Relaxed);
        if !self.serving.count_out(number) {
            return work();
        }
        self.turn_away();
        work();
        self.worker_has_served(number);
        // A worker that is never short of work keeps its core for milliseconds, and a client whose turn it is
        // cannot bring its next piece: one process would fall behind many for want of the processor.
        rustix::thread::sched_yield();
    }

    /// Whether one worker fewer would do: short requests are served faster than cores are handed over, so a second
    /// worker on a core that a client needs makes every round trip longer.
    pub fn has_worker_to_spare(&self, now: Nanos) -> bool {
        self.awake.load(Ordering::Relaxed) > 1
            && now.since(Nanos(self.long_at.load(Ordering::Relaxed))) > SHORT_FOR
            && self.targets.iter().map(Target::waiting).sum::<usize>() < BACKLOG
    }

    /// Counts out the workers that have been serving one request for long: what they wait for nobody foresaw, and if it was
    /// the only one that looked after the connections, another is to do so.
    pub fn count_out_who_waits(&self, now: Nanos) {
        for number in self.serving.who_waits(now) {
            if self.serving.count_out_since(number, now) {
                self.turn_away();
            }
        }
    }

    /// Worker `number` has served what it began to serve.
    pub fn worker_has_served(&self, number: usize) {
        if self.serving.end(number) {
            self.awake.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A worker looks at no connection for a while; if it was the only one, another is woken to do so.
    fn turn_away(&self) {
        if self.awake.fetch_sub(1, Ordering::AcqRel) == 1 && self.asleep.load(Ordering::Acquire) > 0 {
            self.ring();
        }
    }

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

/// A request that is not queued; its connection is closed.
#[derive(Debug, thiserror::Error)]
enum Unqueued {
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

fn lock(state: &Mutex<StreamState>) -> MutexGuard<'_, StreamState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
