//! What a target remembers of the sizes of applications' phases.

use super::Target;
use isonomia_policy::{HistoryExport, KnownApplication, SizeHistory};
use isonomia_units::Nanos;

impl Target {
    /// Goes on with what an earlier process learnt.
    pub fn remember(&self, history: SizeHistory) {
        *self.queue().dispatcher.history() = history;
    }

    /// Phases that were ever recorded by `now`.
    pub fn phases_recorded(&self, now: Nanos) -> u64 {
        let mut queue = self.queue();
        // A phase that nothing came after ends once the arbiter is asked.
        let _ = queue.dispatcher.lateness(now);
        queue.dispatcher.history().records()
    }

    /// Takes some more into an export; true if there may be more. The target waits for so long.
    pub fn export_history(&self, export: &mut HistoryExport) -> bool {
        export.take(self.queue().dispatcher.history())
    }

    /// See [`SizeHistory::latest_before`]. The target waits for so long.
    pub fn known_before(&self, before: u64, most: usize) -> Vec<KnownApplication> {
        self.queue().dispatcher.history().latest_before(before, most)
    }

    /// Applications that are remembered.
    pub fn applications_known(&self) -> usize {
        self.queue().dispatcher.history().len()
    }
}
