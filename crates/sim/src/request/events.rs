//! What happens in a run, and in which order.

use isonomia_units::Nanos;
use std::cmp::Ordering;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A job is announced to its targets.
    Start { job: u32 },
    /// A stream issues its next request.
    Issue { stream: u32 },
    /// A processor has done what a stream's request needs of it.
    Processed { target: u32, stream: u32 },
    /// A stream's request has come to a device of channels.
    Reach { target: u32, stream: u32 },
    /// A channel is done with a stream's request.
    Transfer { target: u32, stream: u32 },
    /// A target's device has served a stream's request.
    Finish { target: u32, stream: u32 },
    /// The policy of a target held the turn until now.
    Ask { target: u32 },
    /// Servers exchange what they know of their jobs.
    Exchange,
    /// Servers look at what their jobs have, for the controller.
    Look,
}

/// An event by its time; of those at one time the one that was scheduled first.
pub(super) struct Scheduled {
    pub(super) at: Nanos,
    pub(super) number: u64,
    pub(super) event: Event,
}

impl Scheduled {
    /// One comparison decides: most of a simulation's time goes into the order of its events.
    fn key(&self) -> u128 {
        u128::from(self.at.0) << 64 | u128::from(self.number)
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
