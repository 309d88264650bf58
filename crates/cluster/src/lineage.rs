//! Whose directory a process has: nobody is to take one that is empty, or an older copy of it, for the server's own.
//!
//! Each process that begins with a directory draws a token, and the directory lists those of the processes before it
//! ([`Past`]). Every other server remembers, on stable storage, the instance of each server that it heard last, and says in each message
//! which one of the receiver's that is. A process that another server remembers an instance to, which is neither its own nor
//! one in its past, has a directory without what that instance did, or was replaced by it: it ends. Until it has
//! shown otherwise nobody acts on what it says: each message names the instance before it after which the process
//! comes, and counts if that is the one that the receiver remembers. A process assumes that it is the one right before it, and learns from
//! the first answer if it is not.
//!
//! Numbers alone would not do: a directory that is empty counts from 1 again, and an older copy catches up with each start.
//!
//! A server that never heard of an instance does not miss it. So an older copy is noticed by those who heard of a later process
//! than those in it, and an empty directory by all who ever heard of its server. Hence nobody is served, and no other server is
//! spoken to, before the root server has answered; the root server asks all others, and serves once one has answered. If
//! nobody does, both go on after [`HEARD_WITHIN`], except a server that never heard of the root server: its directory is empty.

use crate::node::{Process, View};
use crate::policy::HEARD_WITHIN;
use isonomia_units::{Nanos, ServerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One process of a server among those that had its directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Higher than that of every process that had the directory before.
    pub number: u64,
    /// Drawn at random: no other one has it.
    pub token: u64,
}

/// The processes that had a directory before this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Those that are listed, in their order.
    pub listed: Vec<Instance>,
    /// All with a lower number count as some of them: they are too many to be listed, or an operator has said so.
    pub all_below: u64,
}

impl Past {
    fn has(&self, instance: Instance) -> bool {
        instance.number < self.all_below || self.listed.contains(&instance)
    }
}

/// What a message is to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// One of the process that is known.
    Known,
    /// One of a process that comes after the one that is known.
    New,
    /// Nobody may act on it.
    Unproven,
    /// The other server knows this instance of the receiver, which has another directory, or is replaced.
    NotOwn(u64),
}

/// What a server knows of the instances of others, and they of its own.
#[derive(Debug)]
pub(crate) struct Lineage {
    own: Instance,
    past: Past,
    /// The instance of each server that was heard last.
    known: BTreeMap<ServerId, Instance>,
    /// The earlier one of this server that others know, where they said so.
    known_to: BTreeMap<ServerId, Instance>,
}

impl Lineage {
    pub fn new(own: Instance, past: Past, known: BTreeMap<ServerId, Instance>) -> Self {
        Self { own, past, known, known_to: BTreeMap::new() }
    }

    /// The instance of `server` that was heard last.
    pub fn known(&self, server: ServerId) -> Option<Instance> {
        self.known.get(&server).copied()
    }

    /// The token of the instance after which `server` is told that this one comes; 0 if it is the first.
    pub fn after(&self, server: ServerId) -> u64 {
        self.known_to.get(&server).or(self.past.listed.last()).map_or(0, |instance| instance.token)
    }

    /// A message of this instance of `from` has come, which says that it comes `after` another one, and that `from` knows `knows`
    /// of this server. True besides if this server now knows better what `from` knows.
    pub fn hear(&mut self, from: ServerId, instance: Instance, after: u64, knows: Option<Instance>) -> (Heard, bool) {
        let heard = match self.known.get(&from) {
            Some(known) if *known == instance => Heard::Known,
            Some(known) if known.token != after => Heard::Unproven,
            _ => Heard::New,
        };
        let Some(knows) = knows.filter(|knows| *knows != self.own) else { return (heard, false) };
        if self.past.has(knows) {
            // Also of one who has shown nothing, or two that both started anew would never learn what to show each other.
            let has_learnt = self.after(from) != knows.token;
            self.known_to.insert(from, knows);
            return (heard, has_learnt);
        }
        // Whoever has another server's directory must not end this one by what stands there.
        (if heard == Heard::Unproven { heard } else { Heard::NotOwn(knows.number) }, false)
    }

    /// Until when `process`, which starts, serves nobody unless it hears of the root server, or, if it is that itself, of another one.
    pub fn silent_until(&self, process: &Process, view: &View, now: Nanos) -> Nanos {
        if process.server == view.root {
            return if view.servers.len() > 1 { now + HEARD_WITHIN } else { now };
        }
        if self.known.contains_key(&view.root) { now + HEARD_WITHIN } else { Nanos::MAX }
    }

    /// What [`Self::hear`] said to be new is taken.
    pub fn take(&mut self, from: ServerId, instance: Instance) {
        self.known.insert(from, instance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: ServerId = ServerId(2);

    fn instance(number: u64, token: u64) -> Instance {
        Instance { number, token }
    }

    fn lineage(own: Instance, listed: &[Instance], all_below: u64) -> Lineage {
        Lineage::new(own, Past { listed: listed.to_vec(), all_below }, BTreeMap::new())
    }

    #[test]
    fn what_others_know_of_a_server_must_be_in_its_past() {
        let (first, second) = (instance(1, 11), instance(2, 12));
        let hear = |lineage: &mut Lineage, knows| lineage.hear(OTHER, instance(1, 99), 0, knows);
        let mut third = lineage(instance(3, 13), &[first, second], 0);
        assert_eq!(third.after(OTHER), 12);
        assert_eq!(hear(&mut third, Some(first)), (Heard::New, true));
        assert_eq!((third.after(OTHER), third.after(ServerId(3))), (11, 12));
        assert_eq!(hear(&mut third, Some(first)), (Heard::New, false));
        assert_eq!(hear(&mut third, Some(instance(3, 13))), (Heard::New, false));
        // An empty directory with the same number, an older copy that was started as often, or more.
        for (own, past) in [(instance(1, 21), &[][..]), (instance(2, 22), &[first]), (instance(7, 23), &[first])] {
            assert_eq!(hear(&mut lineage(own, past, 0), Some(second)), (Heard::NotOwn(2), false), "{own:?}");
        }
        // An operator says so.
        assert_eq!(hear(&mut lineage(instance(9, 24), &[], 9), Some(second)), (Heard::New, true));
        assert_eq!(hear(&mut lineage(instance(9, 24), &[], 9), Some(instance(9, 25))), (Heard::NotOwn(9), false));
    }

    #[test]
    fn a_process_that_has_shown_nothing_ends_nobody_and_is_learnt_from() {
        let (first, second, foreign) = (instance(1, 11), instance(2, 12), instance(5, 55));
        let mut third = lineage(instance(3, 13), &[first, second], 0);
        third.take(OTHER, instance(7, 77));
        // A server of another cluster, say.
        assert_eq!(third.hear(OTHER, instance(8, 88), 66, Some(foreign)), (Heard::Unproven, false));
        // One that started anew as well, and takes this one for the process that it knows.
        assert_eq!(third.hear(OTHER, instance(8, 88), 66, Some(first)), (Heard::Unproven, true));
        assert_eq!(third.after(OTHER), 11);
        assert_eq!(third.hear(OTHER, instance(8, 88), 77, Some(first)), (Heard::New, false));
        assert_eq!(third.hear(OTHER, instance(8, 88), 77, Some(foreign)), (Heard::NotOwn(5), false));
    }

    #[test]
    fn nobody_acts_on_what_a_process_says_that_has_not_shown_whose_it_is() {
        let (first, second) = (instance(1, 11), instance(2, 12));
        let mut own = lineage(instance(1, 5), &[], 0);
        let mut hear = |instance, after| {
            let heard = own.hear(OTHER, instance, after, None).0;
            if heard == Heard::New {
                own.take(OTHER, instance);
            }
            heard
        };
        assert_eq!(hear(first, 0), Heard::New);
        assert_eq!(hear(first, 0), Heard::Known);
        assert_eq!(hear(second, 0), Heard::Unproven);
        assert_eq!(hear(second, 11), Heard::New);
        // What it replaced, what comes late of that, and what has counted as far.
        assert_eq!(hear(first, 0), Heard::Unproven);
        assert_eq!(hear(instance(2, 22), 11), Heard::Unproven);
        assert_eq!(hear(instance(9, 29), 22), Heard::Unproven);
        assert_eq!(hear(second, 11), Heard::Known);
    }
}
