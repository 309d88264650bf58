//! What a server holds of the controller's decisions.

use crate::message::{Allocation, Ask, Content, Term};
use isonomia_units::{Nanos, ServerId};

/// Why something that came is not heeded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is a later controller.
    #[error("it is of term {}.{}, and {}.{} is known", told.epoch, told.number, known.epoch, known.number)]
    OldTerm {
        /// The sender's.
        told: Term,
        /// The highest that was heard of.
        known: Term,
    },
    /// Two servers with one term.
    #[error("server {known} has this term already")]
    Another {
        /// Whose term it is.
        known: ServerId,
    },
    /// It came before, or something later did.
    #[error("number {told} came after {known}")]
    Replayed {
        /// Round or version that was told.
        told: u64,
        /// The latest that is known.
        known: u64,
    },
    /// It refers to an allocation that is not held.
    #[error("it is as version {told}, and version {held} is held")]
    NotHeld {
        /// The version it refers to.
        told: u64,
        /// The version that is held; 0 for none.
        held: u64,
    },
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    controller: Option<ServerId>,
    term: Term,
    round: u64,
    /// The latest that came, held or not.
    version: u64,
    held: Option<Held>,
    asked_at: Option<Nanos>,
}

#[derive(Clone, Debug)]
struct Held {
    term: Term,
    /// Of the message that said it in full.
    version: u64,
    ends_at: Nanos,
}

impl Follower {
    /// Who the controller is, as far as is known, and its term.
    pub fn controller(&self) -> Option<(ServerId, Term)> {
        Some((self.controller?, self.term))
    }

    /// The version of the present controller's allocation that is held; 0 for none.
    pub fn version(&self) -> u64 {
        self.held.as_ref().filter(|held| held.term == self.term).map_or(0, |held| held.version)
    }

    /// When the allocation ends that is held.
    pub fn ends_at(&self) -> Option<Nanos> {
        self.held.as_ref().map(|held| held.ends_at)
    }

    /// When the controller last asked.
    pub fn asked_at(&self) -> Option<Nanos> {
        self.asked_at
    }

    /// `from` is the controller with this term, by the cluster file or by whoever decides that.
    ///
    /// # Errors
    /// Another one is known to be.
    pub fn hear_of(&mut self, from: ServerId, term: Term) -> Result<(), Refused> {
        if term < self.term {
            return Err(Refused::OldTerm { told: term, known: self.term });
        }
        if term > self.term {
            // What is held stays until it ends, or the new controller says something.
            (self.term, self.round, self.version, self.asked_at) = (term, 0, 0, None);
            self.controller = Some(from);
        }
        match self.controller {
            Some(known) if known != from => Err(Refused::Another { known }),
            _ => {
                self.controller = Some(from);
                Ok(())
            }
        }
    }

    /// The controller asks for a report.
    ///
    /// # Errors
    /// It is not to be answered.
    pub fn ask(&mut self, now: Nanos, from: ServerId, ask: &Ask) -> Result<(), Refused> {
        self.hear_of(from, ask.term)?;
        if ask.round <= self.round {
            return Err(Refused::Replayed { told: ask.round, known: self.round });
        }
        self.round = ask.round;
        self.asked_at = Some(now);
        Ok(())
    }

    /// The controller has decided: what is to be followed from now on, if it is not what is followed already.
    ///
    /// # Errors
    /// It is not to be followed.
    pub fn take(&mut self, now: Nanos, from: ServerId, allocation: Allocation) -> Result<Option<Content>, Refused> {
        self.hear_of(from, allocation.term)?;
        if allocation.version <= self.version {
            return Err(Refused::Replayed { told: allocation.version, known: self.version });
        }
        self.version = allocation.version;
        let ends_at = now + Nanos::from_millis(u64::from(allocation.valid_ms));
        if let Content::As(told) = allocation.content {
            let term = self.term;
            return match &mut self.held {
                Some(held) if (held.term, held.version) == (term, told) => {
                    held.ends_at = ends_at;
                    Ok(None)
                }
                _ => Err(Refused::NotHeld { told, held: self.version() }),
            };
        }
        self.held = Some(Held { term: self.term, version: allocation.version, ends_at });
        Ok(Some(allocation.content))
    }

    /// Ends an allocation that was not renewed in time; whether one has ended, so that targets are to share fairly.
    pub fn expire(&mut self, now: Nanos) -> bool {
        self.held.take_if(|held| held.ends_at <= now).is_some()
    }

    /// Gives up what is held: the server follows another policy now, or begins anew with this one.
    pub fn forget(&mut self) {
        self.held = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IO1: ServerId = ServerId(1);
    const IO2: ServerId = ServerId(2);

    fn term(number: u64) -> Term {
        Term { epoch: 1, number }
    }

    fn allocation(number: u64, version: u64, content: Content) -> Allocation {
        Allocation { term: term(number), version, valid_ms: 100, content }
    }

    fn rates() -> Content {
        Content::Rates { jobs: Vec::new(), rates: Vec::new() }
    }

    #[test]
    fn what_is_old_is_refused() {
        let mut follower = Follower::default();
        let now = Nanos::from_secs(1);
        follower.ask(now, IO1, &Ask { term: term(5), round: 1 }).unwrap();
        let replayed = follower.ask(now, IO1, &Ask { term: term(5), round: 1 });
        assert_eq!(replayed, Err(Refused::Replayed { told: 1, known: 1 }));
        assert!(follower.take(now, IO1, allocation(5, 2, rates())).unwrap().is_some());
        for version in [1, 2] {
            let replayed = follower.take(now, IO1, allocation(5, version, rates()));
            assert_eq!(replayed, Err(Refused::Replayed { told: version, known: 2 }));
        }
        let other = follower.ask(now, IO2, &Ask { term: term(5), round: 2 });
        assert_eq!(other, Err(Refused::Another { known: IO1 }));
        let (old, known) = (term(4), term(5));
        let refused = follower.take(now, IO2, allocation(4, 9, rates())).unwrap_err();
        assert_eq!(refused, Refused::OldTerm { told: old, known });
        assert_eq!(refused.to_string(), "it is of term 1.4, and 1.5 is known");
        // A later controller counts anew.
        assert!(follower.take(now, IO2, allocation(6, 1, rates())).unwrap().is_some());
        assert_eq!(follower.controller(), Some((IO2, term(6))));
    }

    #[test]
    fn what_is_not_renewed_ends() {
        let mut follower = Follower::default();
        let at = Nanos::from_millis;
        follower.take(at(0), IO1, allocation(1, 1, rates())).unwrap();
        assert!(!follower.expire(at(99)));
        assert_eq!(follower.take(at(99), IO1, allocation(1, 2, Content::As(1))), Ok(None));
        assert!(!follower.expire(at(198)) && follower.version() == 1);
        assert!(follower.expire(at(199)) && follower.version() == 0 && !follower.expire(at(200)));
        let refused = follower.take(at(200), IO1, allocation(1, 3, Content::As(1)));
        assert_eq!(refused, Err(Refused::NotHeld { told: 1, held: 0 }));
    }
}
