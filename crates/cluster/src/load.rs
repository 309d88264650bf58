//! How full and how busy servers are: a new volume goes where there is room.
//!
//! Every server tells the root server with each question ([`crate::peer::Message::Pull`]). What was told counts for [`FRESH_FOR`];
//! who has told nothing for that long is likely to be away, and gets no volume that could be on another server.
//!
//! The choice stays weighted rendezvous hashing ([`crate::hash`]): the operator's weight of a server is multiplied by a
//! factor that is in [`STEPS`] steps, so that a small change sends few names elsewhere.

use isonomia_units::{Nanos, ServerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How long it counts what a server has told.
pub const FRESH_FOR: Nanos = Nanos::from_secs(10);
/// Factors are multiples of one part in so many.
pub const STEPS: f64 = 16.0;
/// One whole, in thousandths.
const WHOLE: u16 = 1_000;

/// What a server tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// How much of the space of its targets is free, in thousandths.
    free_permille: u16,
    /// How much of the time its targets were busy lately, in thousandths.
    busy_permille: u16,
}

impl Load {
    /// From parts of one; beyond 0 and 1 they count as these.
    pub fn new(free: f64, busy: f64) -> Self {
        // A number that is none becomes 0.
        let permille = |part: f64| (part.clamp(0.0, 1.0) * f64::from(WHOLE)).round() as u16;
        Self { free_permille: permille(free), busy_permille: permille(busy) }
    }

    /// What the weight of the server is multiplied by: from 0, if it is full, to 1. Room counts in full; who is busy all the time has
    /// half of the weight that he has at rest.
    pub fn factor(self) -> f64 {
        let part = |permille: u16| f64::from(permille.min(WHOLE)) / f64::from(WHOLE);
        let factor = part(self.free_permille) * (1.0 - part(self.busy_permille) / 2.0);
        (factor * STEPS).ceil() / STEPS
    }
}

/// What servers have told.
#[derive(Debug)]
pub struct Loads {
    /// When this server began to listen to them.
    since: Nanos,
    told: BTreeMap<ServerId, (Nanos, Load)>,
}

impl Loads {
    /// Nobody has told anything before `now`.
    pub fn new(now: Nanos) -> Self {
        Self { since: now, told: BTreeMap::new() }
    }

    /// `server` tells this at `now`.
    pub fn tell(&mut self, server: ServerId, load: Load, now: Nanos) {
        self.told.insert(server, (now, load));
    }

    /// What the weight of `server` is multiplied by at `now`; 0 if it has told nothing lately. Who has told nothing yet counts
    /// as the best of those that have, for as long as others count after they fall silent: all start at the same time, and the first
    /// volumes would be on the root server; and of full disks the one that is not known yet would get them all.
    pub fn factor(&self, server: ServerId, now: Nanos) -> f64 {
        let is_fresh = |at: Nanos| now.since(at) < FRESH_FOR;
        match self.told.get(&server) {
            Some((at, load)) if is_fresh(*at) => load.factor(),
            None if is_fresh(self.since) => {
                let told = self.told.values().filter(|(at, _)| is_fresh(*at)).map(|(_, load)| load.factor());
                told.reduce(f64::max).unwrap_or(1.0)
            }
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn room_counts_in_full_and_work_by_half() {
        for (free, busy, factor) in [
            (1.0, 0.0, 1.0),
            (1.0, 1.0, 0.5),
            (0.5, 0.0, 0.5),
            (0.0, 0.0, 0.0),
            (0.001, 1.0, 1.0 / 16.0),
            (2.0, -1.0, 1.0),
        ] {
            assert_eq!(Load::new(free, busy).factor(), factor, "{free} {busy}");
        }
        assert_eq!(Load::new(f64::NAN, f64::NAN).factor(), 0.0);
    }

    #[test]
    fn what_was_told_counts_for_a_while() {
        let (server, now) = (ServerId(3), Nanos::from_secs(100));
        let mut loads = Loads::new(Nanos(now.0 - FRESH_FOR.0));
        assert_eq!(loads.factor(server, Nanos(now.0 - 1)), 1.0, "it may yet tell");
        assert_eq!(loads.factor(server, now), 0.0);
        loads.tell(server, Load::new(0.25, 0.0), now);
        assert_eq!(loads.factor(server, now), 0.25);
        assert_eq!(loads.factor(server, now + Nanos(FRESH_FOR.0 - 1)), 0.25);
        assert_eq!(loads.factor(server, now + FRESH_FOR), 0.0);
    }

    #[test]
    fn who_is_not_known_yet_is_no_better_than_the_best() {
        let (server, now) = (ServerId(3), Nanos::from_secs(100));
        let mut loads = Loads::new(now);
        loads.tell(ServerId(1), Load::new(0.25, 0.0), now);
        loads.tell(ServerId(2), Load::new(0.5, 0.0), now);
        assert_eq!(loads.factor(server, now), 0.5);
        assert_eq!(loads.factor(server, now + FRESH_FOR), 0.0);
    }

    proptest! {
        #[test]
        fn more_room_and_less_work_is_never_worth_less(
            free in 0.0f64..=1.0, more in 0.0f64..=1.0, busy in 0.0f64..=1.0, less in 0.0f64..=1.0,
        ) {
            let better = Load::new((free + more).min(1.0), busy * less);
            prop_assert!(better.factor() >= Load::new(free, busy).factor());
        }
    }
}
