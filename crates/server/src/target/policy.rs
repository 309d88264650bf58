//! How the arbiters of a server's targets are made.

use isonomia_policy::trace::Journal;
use isonomia_policy::{Arbiter, Draw, PolicySpec, SharedIoNode, Tuning, build_on, with_fair_clock};

/// How arbiters are made.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What is fair.
    pub spec: PolicySpec,
    /// How the next request is drawn.
    pub draw: Draw,
    /// Seed of the lottery.
    pub seed: u64,
    /// Where every call of an arbiter is noted, if anywhere.
    pub journal: Option<Journal>,
    /// What the data targets are together, under a policy of exclusive phases.
    pub io_node: Option<SharedIoNode>,
    /// Whether there is a fair clock beside each.
    pub fair_clock: bool,
}

impl Policy {
    /// Of the metadata service, which nobody has to himself, or of a data target.
    pub(super) fn arbiter(&self, is_metadata: bool, tuning: Tuning) -> Box<dyn Arbiter> {
        let spec = if is_metadata { &self.spec.without_phases() } else { &self.spec };
        let arbiter = build_on(self.io_node.as_ref(), spec, self.draw, self.seed, tuning);
        let arbiter = match &self.journal {
            Some(journal) => journal.record(arbiter, (spec, self.draw, self.seed, tuning)),
            None => arbiter,
        };
        if self.fair_clock { with_fair_clock(arbiter, spec, tuning) } else { arbiter }
    }
}
