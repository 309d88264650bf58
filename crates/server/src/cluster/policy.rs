//! The policy of the cluster at this server: [`isonomia_cluster::policy`] says what is decided where.
//!
//! An operator's wish goes to the root server, and comes back as a policy with a version, as to all others. What is sent and
//! kept is a text of all that operators set ([`super::settings`]), so that a server that was away for several of them has all.
//! An operator may have this server deviate: until the next policy of the cluster, or its own end.

use super::Driver;
use super::membership::{Cluster, Event};
use super::settings::Settings;
use super::wire::Verdict;
use crate::clock;
use crate::core::Core;
use crate::operator;
use isonomia_cluster::node::Input;
use isonomia_cluster::policy::Policy;
use isonomia_cluster::request::Request;
use isonomia_policy::{Draw, PolicySpec};
use isonomia_proto::control::ControlReply;
use isonomia_units::{Nanos, Placement};
use rustix::io::Errno;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// An operator is answered within this time: other operators wait meanwhile.
const SET_WITHIN: Nanos = Nanos::from_secs(3);
/// A root server that is not ready is asked again after this time.
const ASK_AGAIN: Nanos = Nanos::from_millis(20);

impl Cluster {
    /// Has the root server set the policy of the cluster, and waits for its decision.
    ///
    /// # Errors
    /// With the reason why it is not known to be set.
    pub fn set_policy(&self, core: &Core, spec: &PolicySpec, draw: Option<Draw>) -> Result<ControlReply, String> {
        let own = || core.policy.lock().unwrap_or_else(PoisonError::into_inner).draw;
        let draw = draw.or(self.standing.draw()).unwrap_or_else(own);
        let version = self.set(&Settings::policy(draw, spec.clone()), "policy")?;
        Ok(ControlReply::Policy {
            policy: spec.to_string(),
            draw: draw.to_string(),
            version: Some(version),
            warnings: Vec::new(),
        })
    }

    /// Has the root server set how new files are placed, or that they are as the cluster file says, and waits for its decision: the
    /// version.
    ///
    /// # Errors
    /// With the reason why it is not known to be set.
    pub fn set_placement(&self, placement: Option<Placement>) -> Result<u64, String> {
        if self.capabilities.is_none() && placement.is_some_and(|placement| placement != Placement::Volume) {
            return Err(
                "the servers have no key in common (--cluster-key-file, --key-file), without which files stay on the \
                        servers of their volumes (allowed: volume, file)"
                    .to_owned(),
            );
        }
        self.set(&Settings::placement(placement), "placement")
    }

    /// Has the root server set this, which people call `what`, and waits for the version.
    fn set(&self, settings: &Settings, what: &str) -> Result<u64, String> {
        let text: Arc<str> = settings.to_string().into();
        let root = self.config.map().root().name.to_string();
        let deadline = clock::now() + SET_WITHIN;
        loop {
            let (answer, answered) = sync_channel(1);
            let event = Event::Decide(Request::SetPolicy { text: text.as_ref().into() }, answer);
            self.events.try_send(event).map_err(|_| "the server is overloaded: ask again")?;
            let verdict = answered.recv_timeout(Duration::from_nanos(deadline.0.saturating_sub(clock::now().0)));
            let is = |errno: u32, other: Errno| errno == other.raw_os_error().unsigned_abs();
            match verdict {
                Ok(Verdict::PolicySet(version)) => return Ok(version),
                Ok(Verdict::Failed(errno)) if is(errno, Errno::INVAL) => {
                    return Err(format!("{root} refuses a {what} of {} bytes: too long", text.len()));
                }
                // It has just started, and has not heard of the others yet.
                Ok(Verdict::Failed(errno)) if is(errno, Errno::AGAIN) => {
                    if clock::now() + ASK_AGAIN >= deadline {
                        return Err(format!("{root}, the root server, is not ready yet: the {what} stays, ask again"));
                    }
                    std::thread::sleep(Duration::from_nanos(ASK_AGAIN.0));
                }
                _ => {
                    let unsure = "unless it is about to be set";
                    return Err(format!("{root}, the root server, does not answer: the {what} stays, {unsure}"));
                }
            }
        }
    }
}

impl Driver {
    /// An operator wants the root server to decide this.
    pub(super) fn decide(&mut self, request: Request, answer: SyncSender<Verdict>) {
        let root = self.config.map().root().number;
        if self.config.number == root {
            let id = self.operators.add(answer);
            let request = self.whole(request);
            return self.give(Input::Request { id, deadline: clock::now() + SET_WITHIN, request });
        }
        // If too much is being asked, nobody answers, which the operator is told. He may have gone meanwhile, too.
        let _ = self.links.ask(root, request, SET_WITHIN, move |verdict| _ = answer.try_send(verdict));
    }

    /// On the root server: what an operator wants to set, with what else is set.
    pub(super) fn whole(&self, request: Request) -> Request {
        let Request::SetPolicy { text } = request else { return request };
        let known = self.node.policy();
        let before: Settings = known.policy().and_then(|policy| policy.text.parse().ok()).unwrap_or_default();
        // What this server does not understand none will.
        let Ok(change) = text.parse::<Settings>() else { return Request::SetPolicy { text } };
        Request::SetPolicy { text: before.changed(change, known.version() + 1).to_string().into() }
    }

    /// What the root server's node says operators have set.
    pub(super) fn follow(&self, policy: &Policy) {
        if let Some(cluster) = self.core.cluster.get() {
            let settings = policy.text.parse::<Settings>();
            if let Ok(settings) = &settings {
                cluster.placing.set(settings.placement.flatten());
            }
            let apply = |spec, draw| drop(operator::apply(&self.core, spec, Some(draw)));
            cluster.standing.follow(policy.version, settings, apply);
        }
        tracing::info!(version = policy.version, policy = %policy.text, "the cluster has this policy");
    }

    /// Lets clients in once this server may serve them.
    pub(super) fn let_clients_in(&self) {
        let is_starting = self.node.may_serve(clock::now()) == Err(isonomia_cluster::request::Refusal::Starting);
        if let Some(cluster) = self.core.cluster.get().filter(|_| !is_starting) {
            if !cluster.startup_queue.is_open() {
                self.core.holders.begin(clock::now());
            }
            cluster.startup_queue.open().into_iter().for_each(|pending| self.core.queue_kept(pending));
        }
    }
}
