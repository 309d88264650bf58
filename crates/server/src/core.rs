//! What all threads of a server share: the store, the targets, the connections, and which workers look after them.
//!
//! Nothing in here knows what is done with it. That is in the modules that use this one: [`crate::intake`] takes requests in
//! and queues them, [`crate::service`] serves and answers them, [`mod@crate::execute`] does what they ask.

use crate::backup::Backups;
use crate::clock;
use crate::cluster::Cluster;
use crate::connection::{Connection, Pending};
use crate::fetches::Fetches;
use crate::first_writes::FirstWrites;
use crate::histories::Histories;
use crate::holders::Holders;
use crate::intake::{BELL, Bell, Intake};
use crate::jobs::Jobs;
use crate::locks::Locks;
use crate::mappings::Mappings;
use crate::operation::is_for_data;
use crate::outside::Outside;
use crate::phases::Phases;
use crate::prefixes::Prefixes;
use crate::processors::Processors;
use crate::rates::Rates;
use crate::recorder::Recording;
use crate::rejections::Rejections;
use crate::release_queue::ReleaseQueue;
use crate::scrub::Scrub;
use crate::segments::Segments;
use crate::sessions::Sessions;
use crate::shadow::Shadowing;
use crate::stalls::Stalls;
use crate::substitutes::{Serving, worker_number};
use crate::target::{Policy, Target};
use crate::unfinished::Unfinished;
use crate::unsynced::Unsynced;
use isonomia_proto::request::{NO_TARGET, Op, RequestHeader};
use isonomia_store::Store;
use isonomia_transport::key::fresh_nonce;
use isonomia_transport::socket;
use isonomia_units::{Nanos, TargetId};
use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::thread::Thread;

/// After this long with short requests only, one worker serves them.
const SHORT_FOR: Nanos = Nanos::from_millis(2);
/// Whoever was called is awake after this time, in general, and has taken its part: then another one may be called.
const CALL_EVERY: Nanos = Nanos::from_micros(200);
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
    /// Wakes a worker.
    pub bell: Bell,
    connections: RwLock<HashMap<u64, Arc<Connection>>>,
    /// Client processes, and what they have.
    pub sessions: Sessions,
    /// What executing processes left to their next programs.
    pub release_queue: ReleaseQueue,
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
    /// Where what is learnt of applications' phases is kept.
    pub histories: Histories,
    /// Who has the targets, under a policy of exclusive phases.
    pub phases: Phases,
    /// Writes to files that rest.
    pub first_writes: FirstWrites,
    /// What an fsync would have to flush.
    pub unsynced: Unsynced,
    /// Who may claim locks and mappings after a start.
    pub holders: Holders,
    /// What is left to do of connections that have ended.
    pub unfinished: Unfinished,
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
    /// Reads that workers have under way.
    pub fetches: Fetches,
    /// A worker waits for a device.
    pub is_worker_waiting: AtomicBool,
    /// When a long piece of work was last begun, or a worker called for help, in nanoseconds of the monotonic clock.
    long_at: AtomicU64,
    /// When another worker was last called, in the same.
    called_at: AtomicU64,
    /// All workers.
    pub workers: usize,
    /// What they do at the moment.
    pub serving: Serving,
    /// Where they run.
    pub processors: Processors,
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
        let bell = Bell::new()?;
        epoll::add(
            &poll,
            bell.as_fd(),
            epoll::EventData::new_u64(BELL),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?;
        let rates = Rates::new(&targets);
        let phases = Phases::default();
        phases.adopt(policy.io_node.as_ref());
        let unsynced = Unsynced::new(!store.objects().is_volatile());
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
            release_queue: ReleaseQueue::default(),
            caretaker: OnceLock::new(),
            scrub,
            cluster: OnceLock::new(),
            sockets: OnceLock::new(),
            outside: OnceLock::new(),
            backups: Backups::default(),
            histories: Histories::default(),
            phases,
            first_writes: FirstWrites::default(),
            unsynced,
            locks: Locks::default(),
            holders: Holders::default(),
            unfinished: Unfinished::default(),
            mappings: Mappings::new(clock::wall_number()),
            segments: Segments::default(),
            stalls: Stalls::default(),
            awake: AtomicUsize::new(workers),
            asleep: AtomicUsize::new(0),
            arrivals: AtomicU64::new(0),
            fetches: Fetches::new(workers),
            is_worker_waiting: AtomicBool::new(false),
            long_at: AtomicU64::new(0),
            called_at: AtomicU64::new(0),
            workers,
            serving: Serving::new(workers),
            processors: Processors::new(workers),
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
        self.bell.ring();
    }

    /// The connection of this number.
    pub fn connection(&self, id: u64) -> Option<Arc<Connection>> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Every connection.
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// There is one more connection.
    pub fn add_connection(&self, connection: Arc<Connection>) {
        self.connections.write().unwrap_or_else(PoisonError::into_inner).insert(connection.id, connection);
    }

    /// This connection is there no more.
    pub fn remove_connection(&self, id: u64) {
        self.connections.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Whether the other end of a connection of any of these sessions is there. O(connections).
    pub fn is_any_there(&self, sessions: &[u64]) -> bool {
        let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
        let mut theirs = connections.values().filter(|connection| sessions.contains(&connection.session.number));
        theirs.any(|connection| !connection.is_closed() && !socket::is_ended(connection.socket.as_fd()))
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
        let Some(number) = worker_number() else { return work() };
        self.long_at.store(clock::now().0, Ordering::Relaxed);
        if !self.serving.count_out(number) {
            return work();
        }
        self.look_away();
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

    /// A worker has more to answer than it gets on with: one that sleeps is woken, one of many at a time, and none is to spare for a while.
    /// (The caller, which looks at the events as well, may hear the bell first; then it calls again.)
    pub fn call_for_help(&self, now: Nanos) {
        self.long_at.store(now.0, Ordering::Relaxed);
        let called_at = self.called_at.load(Ordering::Relaxed);
        let is_due = now.since(Nanos(called_at)) >= CALL_EVERY && self.asleep.load(Ordering::Relaxed) > 0;
        if is_due && self.called_at.compare_exchange(called_at, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.ring();
        }
    }

    /// Counts out the workers that have been serving one request for long: what they wait for nobody foresaw, and if it was
    /// the only one that looked after the connections, another is to do so.
    pub fn count_out_who_waits(&self, now: Nanos) {
        for number in self.serving.who_waits(now) {
            if self.serving.count_out_since(number, now) {
                self.processors.leave(number);
                self.look_away();
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
    fn look_away(&self) {
        if self.awake.fetch_sub(1, Ordering::AcqRel) == 1 && self.asleep.load(Ordering::Acquire) > 0 {
            self.ring();
        }
    }
}

impl Core {
    /// Which file system this server is one of: see [`Welcome`](isonomia_proto::setup::Welcome).
    pub fn file_system(&self) -> u64 {
        match self.cluster.get() {
            Some(cluster) => cluster.file_system(),
            None => self.store.number_of_its_own(),
        }
    }

    /// Where a server listens, each address in a line of its own; nothing if it is unknown here. A server that is in no cluster
    /// says of itself what its clients may not know: on which sockets they have shared memory with it, should they be on its host.
    pub fn addresses_of(&self, server: u64) -> Option<String> {
        match self.cluster.get() {
            Some(cluster) => cluster.addresses_of(server),
            None => self.sockets.get().filter(|_| server == 0).cloned(),
        }
    }
}
