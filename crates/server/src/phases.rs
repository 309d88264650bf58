//! Exclusive I/O phases: all data targets of a server are one I/O node ([`isonomia_planning::IoNode`]), which one application at a
//! time has under the policy `exclusive`.
//!
//! The targets' arbiters tell it of requests and hold back those of others. Here it is made when such a policy is set, hears
//! where programs say that a phase begins and ends, and wakes a worker when somebody else has the targets.

use crate::clock;
use crate::connection::Connection;
use crate::intake::Bell;
use crate::jobs::Job;
use crate::scrub;
use crate::target::Target;
use isonomia_planning::io_node::{AppState, Declared, Standing};
use isonomia_policy::{PolicySpec, Scheme, SharedIoNode, application_of};
use isonomia_proto::control::{ExclusiveJobStatus, ExclusiveStatus};
use isonomia_proto::phase::PhaseCall;
use isonomia_proto::request::RequestHeader;
use isonomia_units::{Bytes, Nanos, ServerId};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

/// The I/O node of the present policy, if that has one.
#[derive(Debug, Default)]
pub struct Phases {
    /// So that nobody pays for what is not there.
    is_on: AtomicBool,
    node: Mutex<Option<SharedIoNode>>,
    /// [`isonomia_planning::IoNode::changes`] when a worker was last woken for it.
    changes: AtomicU64,
    /// The wall clock when the first node was made.
    process: OnceLock<u64>,
    /// Nodes made.
    made: AtomicU64,
    /// In a cluster.
    publisher: OnceLock<Thread>,
}

impl Phases {
    /// The node that a policy is to have from now on, if it is one with exclusive phases. Nobody has it.
    pub fn begin(&self, spec: &PolicySpec, member: Option<(ServerId, bool)>) -> Option<SharedIoNode> {
        let Scheme::Exclusive(settings) = spec.scheme() else {
            self.is_on.store(false, Ordering::Release);
            *self.lock() = None;
            return None;
        };
        // A later process is told by the wall clock, which is read once, for it may step back; a later node of one by the count.
        let process = *self.process.get_or_init(clock::wall_number);
        let instance = process.wrapping_add(self.made.fetch_add(1, Ordering::Relaxed));
        let node = SharedIoNode::new(settings, instance);
        let now = clock::now();
        {
            let mut node = node.lock();
            let own = node.join(now, &application_of(&scrub::job_info()));
            node.exempt(now, own);
            if let Some((own, is_coordinator)) = member {
                node.set_coordinator(now, own, is_coordinator);
            }
        }
        *self.lock() = Some(node.clone());
        self.is_on.store(true, Ordering::Release);
        Some(node)
    }

    /// The node that the first policy has, if it has one.
    pub fn adopt(&self, node: Option<&SharedIoNode>) {
        *self.lock() = node.cloned();
        self.is_on.store(node.is_some(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Option<SharedIoNode>> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node, if the policy has one.
    pub fn node(&self) -> Option<SharedIoNode> {
        if self.is_on.load(Ordering::Acquire) { self.lock().clone() } else { None }
    }

    /// Wakes a worker if somebody else has the targets than when this was last called.
    pub fn look(&self, bell: &Bell) {
        let Some(node) = self.node() else { return };
        let (changes, has_changed) = {
            let mut node = node.lock();
            node.settle(clock::now());
            (node.changes(), node.has_changed())
        };
        if self.changes.swap(changes, Ordering::AcqRel) != changes {
            bell.ring();
        }
        if has_changed {
            self.publish();
        }
    }

    /// What is new is to be told to other servers.
    pub fn publish(&self) {
        self.publisher.get().into_iter().for_each(Thread::unpark);
    }

    /// The thread that tells other servers.
    pub fn have_published_by(&self, thread: Thread) {
        // There is one.
        let _ = self.publisher.set(thread);
    }

    /// A program says that a phase begins or ends. True if there are phases.
    ///
    /// # Errors
    /// The request says neither, or both.
    pub fn hear(
        &self,
        (bell, targets): (&Bell, &[Target]),
        connection: &Connection,
        header: &RequestHeader,
    ) -> Result<bool, Errno> {
        let call = PhaseCall::read(header).ok_or(Errno::INVAL)?;
        let Some(node) = self.node() else { return Ok(false) };
        let (now, session) = (clock::now(), connection.session.number);
        let application = application_of(&connection.job.info());
        {
            let mut node = node.lock();
            let Some(app) = node.id_of(&application) else { return Ok(true) };
            match call {
                PhaseCall::Begin { bytes, remaining } => {
                    let io = (bytes > 0).then(|| time_of(targets, bytes));
                    node.begin(now, app, session, Declared { io, remaining });
                }
                PhaseCall::End => node.end(now, app, session),
            }
        }
        self.look(bell);
        Ok(true)
    }

    /// A connection of a job was closed; with the last one nobody goes on with its phase.
    pub fn leave(&self, bell: &Bell, job: &Job) {
        let Some(node) = self.node() else { return };
        if job.connections() == 0 {
            let mut node = node.lock();
            if let Some(app) = node.id_of(&application_of(&job.info())) {
                node.leave(clock::now(), app);
            }
        }
        self.look(bell);
    }

    /// A session has ended.
    pub fn forget_session(&self, bell: &Bell, session: u64) {
        let Some(node) = self.node() else { return };
        node.lock().forget_session(clock::now(), session);
        self.look(bell);
    }

    /// State for operators, who are told which server decides for all.
    pub fn status(&self, coordinator: Option<String>) -> Option<ExclusiveStatus> {
        let node = self.node()?;
        let now = clock::now();
        let mut node = node.lock();
        node.settle(now);
        let (rules, endings) = (node.rules(), node.endings());
        let waiting = node.states(now).iter().filter(|state| state.standing == Standing::Waiting).count();
        Some(ExclusiveStatus {
            order: rules.order.to_string(),
            lease_ns: rules.lease.0,
            gap_ns: rules.gap.0,
            is_open: node.is_open(),
            coordinator,
            holder: node.holder().map(|name| shown(name)),
            waiting: waiting as u64,
            ended_by_gap_total: endings.gap,
            ended_by_program_total: endings.told,
            ended_by_lease_total: endings.lease,
            ended_by_crossing_total: endings.crossed,
            ended_by_leaving_total: endings.gone,
        })
    }

    /// What became of each application's phases, by the name that [`application_of`] gives.
    pub fn of_applications(&self) -> HashMap<Arc<str>, AppState> {
        let Some(node) = self.node() else { return HashMap::new() };
        let states = node.lock().states(clock::now());
        states.into_iter().map(|state| (state.application.clone(), state)).collect()
    }
}

/// What an operator sees of the application that a job is a part of.
pub fn status_of(job: &Job, states: &HashMap<Arc<str>, AppState>) -> Option<ExclusiveJobStatus> {
    if states.is_empty() {
        return None;
    }
    let state = states.get(&application_of(&job.info()))?;
    let undisturbed = state.age.since(state.waited);
    Some(ExclusiveJobStatus {
        state: match state.standing {
            Standing::Away => "away",
            Standing::Waiting => "waiting",
            Standing::Holding => "holding",
        }
        .to_owned(),
        age_ns: state.age.0,
        io_ns: state.io.0,
        waited_ns: state.waited.0,
        waited_max_ns: state.waited_max.0,
        phases_total: state.phases,
        stretch: if undisturbed.0 == 0 { 1.0 } else { state.age.0 as f64 / undisturbed.0 as f64 },
    })
}

/// An application's name for people.
fn shown(application: &str) -> String {
    application.replace('\0', "/")
}

/// How long so many bytes take that are spread over all data targets evenly.
fn time_of(targets: &[Target], bytes: u64) -> Nanos {
    let data = || targets.iter().filter(|target| !target.is_metadata());
    let part = bytes.div_ceil(data().count().max(1) as u64);
    data().map(|target| target.time_for(Bytes(part))).max().unwrap_or(Nanos::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_node_has_a_greater_number_although_the_clock_steps_back() {
        let phases = Phases::default();
        // When the first node was made the clock was far ahead.
        phases.process.set(u64::MAX / 2).unwrap();
        let spec = "exclusive".parse().unwrap();
        let number = || phases.begin(&spec, None).unwrap().lock().report(clock::now()).instance;
        assert_eq!([number(), number(), number()], [0, 1, 2].map(|count| u64::MAX / 2 + count));
    }
}
