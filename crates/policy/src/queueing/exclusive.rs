//! `exclusive`: one application at a time has all data targets of a server, for a whole I/O phase (ICS'20, CLARISSE's role).
//!
//! Who has them is decided by an [`IoNode`] that the targets of a server share; it is told of every request that comes and
//! ends. Requests of the application that has the node go to an inner arbiter, which divides among its jobs; those of
//! others are held back here. While the node is open, because its coordinator is away, everybody's go to the inner arbiter.
//!
//! What a server does by itself for a job, as writing back what it wrote, is no part of a phase and waits for none: the
//! inner arbiter has it at once. Somebody may wait for that in the middle of his own phase (`fsync` of a file with
//! another's pages), and the phase that it belongs to was over when its writes were acknowledged.
//!
//! An application is what is proven of a job: its user and its name, or the proof that it is claimed within. So nobody gets
//! two positions by two names that he made up.
//!
//! Requests are never refused for want of the node, and never lost: a target that holds some back and has nothing to do
//! asks the node again when who has it may have changed by time ([`IoNode::ask_again_at`]).

use crate::arbiter::{Arbiter, DeviceService, EnqueueError, Next, Request};
use crate::queueing::roster::QUEUED_MAX;
use crate::queueing::virtual_time::VirtualTime;
use crate::spec::scheme::Exclusive as Settings;
use crate::{RequestId, Tuning};
use isonomia_planning::IoNode;
use isonomia_planning::io_node::AppId;
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The I/O node that targets share. Its lock is taken for one call, and nothing else is locked under it.
#[derive(Clone)]
pub struct SharedIoNode(Arc<Mutex<IoNode>>);

impl SharedIoNode {
    /// A node that nobody has used yet; `instance` tells processes of a server apart.
    pub fn new(settings: &Settings, instance: u64) -> Self {
        Self(Arc::new(Mutex::new(IoNode::new(settings.rules, instance))))
    }

    /// The node.
    pub fn lock(&self) -> MutexGuard<'_, IoNode> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedIoNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}

/// The name of the application that a job is a part of, the same on every server: its user, NUL, and what is proven.
pub fn application_of(info: &JobInfo) -> Arc<str> {
    format!("{}\0{}", info.user, info.proven_name()).into()
}

/// See the module.
pub(crate) struct Exclusive {
    node: SharedIoNode,
    inner: VirtualTime,
    jobs: BTreeMap<JobId, Member>,
    /// Positions among all arrivals of those that are queued, held back or not.
    arrivals: BTreeMap<RequestId, u64>,
    next_arrival: u64,
    /// A server's own work, queued or in flight: the inner arbiter's from the beginning, and in no count of a member's.
    own: BTreeSet<RequestId>,
    held: usize,
    /// [`IoNode::changes`] when requests were last sorted.
    changes: u64,
    now: Nanos,
}

struct Member {
    app: AppId,
    name: Arc<str>,
    /// Held back, in the order in which they came.
    held: VecDeque<Request>,
    /// What the inner arbiter has of its requests.
    inner_queued: usize,
    in_flight: u64,
}

impl Member {
    fn outstanding(&self) -> u64 {
        self.held.len() as u64 + self.inner_queued as u64 + self.in_flight
    }
}

impl Exclusive {
    pub(crate) fn new(settings: &Settings, node: SharedIoNode, tuning: Tuning) -> Self {
        Self {
            node,
            inner: VirtualTime::new(&settings.tree, tuning),
            jobs: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            next_arrival: 0,
            own: BTreeSet::new(),
            held: 0,
            changes: 0,
            now: Nanos::ZERO,
        }
    }

    fn advance(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        self.now
    }

    /// Gives the inner arbiter what is to be served now, and takes back what is not.
    fn sort(&mut self, now: Nanos) {
        let node = self.node.clone();
        let node = node.lock();
        if node.changes() == self.changes {
            return;
        }
        self.changes = node.changes();
        if self.jobs.values().any(|member| member.inner_queued > 0 && !node.admits(member.app)) {
            // They came before those that are held back; the last one is in front of the others at the end.
            let (back, stay): (Vec<Request>, Vec<Request>) = self.inner.drain().into_iter().partition(|request| {
                !request.nature.is_own() && self.jobs.get(&request.job).is_some_and(|member| !node.admits(member.app))
            });
            for request in back.into_iter().rev() {
                let Some(member) = self.jobs.get_mut(&request.job) else { continue };
                member.inner_queued -= 1;
                member.held.push_front(request);
                self.held += 1;
            }
            // There was room for them before.
            stay.into_iter().for_each(|request| _ = self.inner.enqueue(now, request));
        }
        let admitted = self.jobs.values_mut().filter(|member| node.admits(member.app));
        let mut free: Vec<Request> = admitted.flat_map(|member| std::mem::take(&mut member.held)).collect();
        drop(node);
        self.held -= free.len();
        free.sort_unstable_by_key(|request| self.arrivals.get(&request.id).copied());
        free.into_iter().for_each(|request| self.pass_on(now, request));
    }

    fn pass_on(&mut self, now: Nanos, request: Request) {
        if self.inner.enqueue(now, request).is_ok()
            && let Some(member) = self.jobs.get_mut(&request.job)
        {
            member.inner_queued += 1;
        }
    }

    /// It is not here any more.
    fn forget(&mut self, request: &Request) {
        self.arrivals.remove(&request.id);
        self.own.remove(&request.id);
    }
}

impl Arbiter for Exclusive {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        let now = self.advance(now);
        self.inner.set_job(now, job, info);
        let name = application_of(info);
        if self.jobs.get(&job).is_some_and(|member| member.name == name) {
            return;
        }
        let mut node = self.node.lock();
        let app = node.join(now, &name);
        match self.jobs.get_mut(&job) {
            Some(member) => {
                for _ in 0..member.outstanding() {
                    node.arrive(now, app);
                    node.finish(now, member.app);
                }
                node.part(now, member.app);
                (member.app, member.name) = (app, name);
                // Who may be served is another question for what it has queued.
                self.changes = node.changes().wrapping_sub(1);
            }
            None => {
                let member = Member { app, name, held: VecDeque::new(), inner_queued: 0, in_flight: 0 };
                self.jobs.insert(job, member);
            }
        }
        drop(node);
        self.sort(now);
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        let now = self.advance(now);
        let Some(member) = self.jobs.remove(&job) else { return Vec::new() };
        let mut queue = self.inner.remove_job(now, job);
        self.held -= member.held.len();
        queue.extend(&member.held);
        queue.iter().for_each(|request| self.forget(request));
        let mut node = self.node.lock();
        for _ in 0..member.outstanding() {
            node.finish(now, member.app);
        }
        node.part(now, member.app);
        queue
    }

    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError> {
        let now = self.advance(now);
        let Request { id, job, .. } = request;
        let Some(member) = self.jobs.get_mut(&job) else { return Err(EnqueueError::UnknownJob { job, request: id }) };
        if self.arrivals.len() >= QUEUED_MAX {
            return Err(EnqueueError::QueueFull { job, request: id });
        }
        if request.nature.is_own() {
            self.inner.enqueue(now, request)?;
            self.own.insert(id);
        } else {
            member.held.push_back(request);
            self.held += 1;
        }
        self.arrivals.insert(id, self.next_arrival);
        self.next_arrival += 1;
        if request.nature.is_own() {
            return Ok(());
        }
        let app = member.app;
        let mut node = self.node.lock();
        node.arrive(now, app);
        if node.changes() == self.changes && node.admits(app) {
            drop(node);
            self.held -= 1;
            if let Some(last) = self.jobs.get_mut(&job).and_then(|member| member.held.pop_back()) {
                self.pass_on(now, last);
            }
        } else {
            drop(node);
            self.sort(now);
        }
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        let now = self.advance(now);
        self.node.lock().settle(now);
        self.sort(now);
        match self.inner.next(now) {
            Next::Dispatch(request) => {
                self.arrivals.remove(&request.id);
                if let Some(member) = self.jobs.get_mut(&request.job).filter(|_| !request.nature.is_own()) {
                    member.inner_queued -= 1;
                    member.in_flight += 1;
                }
                Next::Dispatch(request)
            }
            Next::WaitUntil(at) if self.held > 0 => {
                Next::WaitUntil(at.min(self.node.lock().ask_again_at(now).max(now + Nanos(1))))
            }
            Next::Idle if self.held > 0 => Next::WaitUntil(self.node.lock().ask_again_at(now).max(now + Nanos(1))),
            next => next,
        }
    }

    fn correct(&mut self, now: Nanos, job: JobId, charged: Nanos, took: Nanos) {
        self.inner.correct(now, job, charged, took);
    }

    fn device_served(&mut self, job: JobId, had: DeviceService) {
        self.inner.device_served(job, had);
    }

    fn set_depth(&mut self, depth: u32) {
        self.inner.set_depth(depth);
    }

    fn device_kept_for(&self) -> Option<JobId> {
        self.inner.device_kept_for()
    }

    fn set_aside(&mut self, now: Nanos, request: RequestId, job: JobId, is_at_device: bool) {
        self.inner.set_aside(now, request, job, is_at_device);
    }

    fn complete(&mut self, now: Nanos, request: RequestId, job: JobId) {
        let now = self.advance(now);
        self.inner.complete(now, request, job);
        if self.own.remove(&request) {
            return;
        }
        let Some(member) = self.jobs.get_mut(&job).filter(|member| member.in_flight > 0) else { return };
        member.in_flight -= 1;
        self.node.lock().finish(now, member.app);
    }

    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool {
        let now = self.advance(now);
        let Some(member) = self.jobs.get_mut(&job) else { return false };
        if let Some(at) = member.held.iter().position(|held| held.id == request) {
            member.held.remove(at);
            self.held -= 1;
        } else if self.inner.cancel(now, request, job) {
            if self.own.remove(&request) {
                self.arrivals.remove(&request);
                return true;
            }
            member.inner_queued -= 1;
        } else {
            return false;
        }
        self.arrivals.remove(&request);
        self.node.lock().finish(now, member.app);
        true
    }

    fn queued(&self) -> usize {
        self.held + self.inner.queued()
    }

    fn queued_of(&self, job: JobId) -> usize {
        self.jobs.get(&job).map_or(0, |member| member.held.len()) + self.inner.queued_of(job)
    }

    fn shares(&self, _now: Nanos) -> Vec<(JobId, f64)> {
        Vec::new()
    }

    fn expect(&mut self, now: Nanos, job: JobId, service: Nanos) {
        if let Some(member) = self.jobs.get(&job) {
            self.node.lock().expect(now, member.app, service);
        }
    }

    fn drain(&mut self) -> Vec<Request> {
        let mut all = self.inner.drain();
        let mut node = self.node.lock();
        for member in self.jobs.values_mut() {
            for _ in 0..member.held.len() + member.inner_queued {
                node.finish(self.now, member.app);
            }
            member.inner_queued = 0;
            all.extend(member.held.drain(..));
        }
        drop(node);
        self.held = 0;
        all.sort_unstable_by_key(|request| self.arrivals.get(&request.id).copied());
        all.iter().for_each(|request| self.forget(request));
        all
    }
}

impl Drop for Exclusive {
    /// What it still had, its node knows no more of: another arbiter may share that.
    fn drop(&mut self) {
        let mut node = self.node.lock();
        for member in self.jobs.values() {
            for _ in 0..member.outstanding() {
                node.finish(self.now, member.app);
            }
            node.part(self.now, member.app);
        }
    }
}
