//! The cluster's policy as this server follows it or not, and the operators who wait for it to be decided.

use super::settings::Settings;
use super::wire::Verdict;
use isonomia_cluster::request::RequestId;
use isonomia_policy::{Draw, PolicySpec};
use isonomia_proto::control::ControlReply;
use std::collections::HashMap;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What this server follows. Taken before the server's own policy, which is set under it.
#[derive(Debug, Default)]
pub struct Standing {
    now: Mutex<Followed>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Followed {
    /// Of the cluster's policy that this server has; 0 if there is none.
    version: u64,
    /// Which of those that were set it is: see [`Settings::mark`].
    mark: u64,
    /// The draw of that.
    draw: Option<Draw>,
    deviates: bool,
}

/// Operators who wait for the decision, on the root server.
#[derive(Debug, Default)]
pub struct Operators {
    waiting: HashMap<RequestId, SyncSender<Verdict>>,
    asked: u64,
}

impl Operators {
    /// Theirs are numbers that users' requests never get to.
    const FIRST: u64 = 1 << 63;

    /// One more waits for `answer`; the number of his request.
    pub fn add(&mut self, answer: SyncSender<Verdict>) -> RequestId {
        self.asked += 1;
        let id = RequestId(Self::FIRST | self.asked);
        self.waiting.insert(id, answer);
        id
    }

    /// Answers request `id`, if it is an operator's.
    pub fn answer(&mut self, id: RequestId, verdict: impl FnOnce() -> Verdict) -> bool {
        let Some(answer) = self.waiting.remove(&id) else { return false };
        // He may have gone.
        let _ = answer.try_send(verdict());
        true
    }
}

impl Standing {
    fn lock(&self) -> MutexGuard<'_, Followed> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version of the cluster's policy that this server has, and whether it does not follow that.
    pub fn told(&self) -> (u64, bool) {
        let followed = self.lock();
        (followed.version, followed.deviates)
    }

    /// The draw of the cluster's policy, if there is one.
    pub fn draw(&self) -> Option<Draw> {
        self.lock().draw
    }

    /// An operator sets the policy of this server alone, by `apply`.
    pub fn deviate(&self, apply: impl FnOnce() -> ControlReply) -> ControlReply {
        let mut followed = self.lock();
        let reply = apply();
        followed.deviates = true;
        reply
    }

    /// The cluster has this from now on, as `version`: `apply` has the targets follow its policy.
    pub fn follow(&self, version: u64, settings: Result<Settings, String>, apply: impl FnOnce(PolicySpec, Draw)) {
        let mut followed = self.lock();
        match settings {
            Ok(Settings { policy: Some((draw, spec)), mark, .. }) if mark == 0 || mark != followed.mark => {
                apply(spec, draw);
                *followed = Followed { version, mark, draw: Some(draw), deviates: false };
            }
            // Another setting has changed.
            Ok(_) => followed.version = version,
            Err(error) => {
                tracing::error!(%error, version, "the cluster's policy is none that this server knows: it keeps its own");
                (followed.version, followed.deviates) = (version, true);
            }
        }
    }
}
