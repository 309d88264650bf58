//! What a server has of the controller's decisions.

use crate::controller::{TIMEOUT, renewed_every, validity};
use crate::message::{Allocation, Ask, Content, JobKey, Report, Term};
use crate::standing::{Reporter, Using};
use isonomia_units::{Nanos, ServerId, TargetId};
use std::collections::BTreeMap;

/// A round of which only the last byte is told is one of so many after the last that was heard of.
pub(crate) const ROUNDS_AHEAD_MAX: u8 = 100;
/// What changes is reported so often in an interval at most: jobs may do I/O now and then.
const REPORTS_PER_INTERVAL: u64 = 4;

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
    /// It goes on from what was asked before, and that was not heard.
    #[error("it goes on from what this server has not heard")]
    Unheard,
    /// It changes an allocation that is not the current one.
    #[error("it changes version {told}, and version {current} is the current one")]
    NotCurrent {
        /// The version it refers to.
        told: u64,
        /// The version of the current one; 0 for none.
        current: u64,
    },
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    controller: Option<ServerId>,
    term: Term,
    round: u64,
    /// The latest that came, followed or not.
    version: u64,
    current: Option<Current>,
    /// When the controller of this term last said something.
    heard_at: Option<Nanos>,
    reporter: Reporter,
    reported_at: Option<Nanos>,
}

#[derive(Clone, Debug)]
struct Current {
    term: Term,
    version: u64,
    /// How long it is valid from the moment on at which it came or was renewed.
    valid: Nanos,
    ends_at: Nanos,
    parts: BTreeMap<(JobKey, TargetId), u32>,
}

/// What a server is to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// Of its targets each job has this part, in parts of [`PARTS_PER_TARGET`](crate::PARTS_PER_TARGET).
    Parts(&'a BTreeMap<(JobKey, TargetId), u32>),
    /// Jobs have these ranks in an order, the least first.
    Ranks(BTreeMap<JobKey, u32>),
}

/// What is to be said to a controller that has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// [`Follower::answer`].
    Answer,
    /// [`Follower::report`], if there are jobs: what the controller renews is not there.
    Report,
    /// Nothing.
    Nothing,
}

impl Follower {
    /// Who the controller is, as far as is known, and its term.
    pub fn controller(&self) -> Option<(ServerId, Term)> {
        Some((self.controller?, self.term))
    }

    /// The version of the present controller's allocation that is followed; 0 for none.
    pub fn version(&self) -> u64 {
        self.current.as_ref().filter(|current| current.term == self.term).map_or(0, |current| current.version)
    }

    /// When the allocation ends that is followed.
    pub fn ends_at(&self) -> Option<Nanos> {
        self.current.as_ref().map(|current| current.ends_at)
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
            // What is followed stays until it ends, or the new controller says something.
            (self.term, self.round, self.version, self.heard_at) = (term, 0, 0, None);
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

    /// The controller asks for a report, which [`Self::answer`] gives; or for none, and only says that what is followed goes on.
    ///
    /// # Errors
    /// It is not to be answered, nor does it renew anything.
    pub fn ask(&mut self, now: Nanos, from: ServerId, ask: &Ask) -> Result<Wanted, Refused> {
        let (round, renews) = match *ask {
            Ask::Whole { term, round, wants_all, renews } => {
                self.hear_of(from, term)?;
                if round <= self.round {
                    return Err(Refused::Replayed { told: round, known: self.round });
                }
                if wants_all {
                    self.reporter.forget();
                }
                (round, renews)
            }
            Ask::Next { tag, round } | Ask::Nothing { tag, round } => {
                if self.round == 0 || self.controller != Some(from) || self.term.tag() != tag {
                    return Err(Refused::Unheard);
                }
                let ahead = round.wrapping_sub(self.round as u8);
                if !(1..=ROUNDS_AHEAD_MAX).contains(&ahead) {
                    return Err(Refused::Replayed { told: u64::from(round), known: self.round });
                }
                (self.round + u64::from(ahead), true)
            }
        };
        self.round = round;
        self.heard_at = Some(now);
        let term = self.term;
        if let Some(current) = self.current.as_mut().filter(|current| renews && current.term == term) {
            current.ends_at = now + current.valid;
        }
        Ok(match ask {
            Ask::Nothing { .. } if self.version() > 0 => Wanted::Nothing,
            Ask::Nothing { .. } => Wanted::Report,
            _ => Wanted::Answer,
        })
    }

    /// What is to be said of `using` to the controller that asked.
    pub fn answer(&mut self, using: &[Using]) -> Report {
        let version = self.version();
        self.reporter.report((self.term, self.round), version, using)
    }

    /// What is to be said of `using` without having been asked, if anything is, under a policy that is decided every `interval`
    /// (`is_pulled`: [`Plan::is_pulled`](crate::Plan::is_pulled)): what has changed, or, if the controller seems to know nothing of
    /// this server, that there are jobs. How far phases have come is asked for; that one has begun or ended is said.
    pub fn look(&mut self, now: Nanos, interval: Nanos, is_pulled: bool, using: &[Using]) -> Option<Report> {
        let is_after = |at: Option<Nanos>, time: Nanos| at.is_none_or(|at| now.since(at) >= time);
        let silence_max = validity(renewed_every(interval, is_pulled));
        let is_forgotten = !using.is_empty() && is_after(self.heard_at, silence_max);
        let has_changed = match is_pulled {
            true => self.reporter.has_other_phases(self.term, using),
            false => self.reporter.has_changed(self.term, using),
        };
        let is_due = has_changed && is_after(self.reported_at, Nanos(interval.0 / REPORTS_PER_INTERVAL))
            || is_forgotten && is_after(self.reported_at, interval.min(TIMEOUT));
        is_due.then(|| self.report(now, using))
    }

    /// What is to be said of `using` without having been asked: something came that this server cannot follow.
    pub fn report(&mut self, now: Nanos, using: &[Using]) -> Report {
        self.reported_at = Some(now);
        let version = self.version();
        self.reporter.report((self.term, 0), version, using)
    }

    /// The controller has decided: what is to be followed from now on.
    ///
    /// # Errors
    /// It is not to be followed.
    pub fn take(&mut self, now: Nanos, from: ServerId, allocation: Allocation) -> Result<Decision<'_>, Refused> {
        self.hear_of(from, allocation.term)?;
        let Allocation { term, version, valid_ms, content } = allocation;
        if version <= self.version {
            return Err(Refused::Replayed { told: version, known: self.version });
        }
        (self.version, self.heard_at) = (version, Some(now));
        let current = self.version();
        let valid = Nanos::from_millis(u64::from(valid_ms));
        let mut parts = BTreeMap::new();
        if let Content::Rates { after: told @ 1.., .. } = content {
            if told != current {
                return Err(Refused::NotCurrent { told, current });
            }
            parts = self.current.take().map(|current| current.parts).unwrap_or_default();
        }
        let key = |number: u32, target: TargetId| Some((self.reporter.job(number)?.clone(), target));
        let mut ranks = None;
        match content {
            Content::Rates { rates, gone, .. } => {
                gone.into_iter().filter_map(|(job, target)| key(job, target)).for_each(|gone| _ = parts.remove(&gone));
                parts.extend(rates.iter().filter_map(|rate| Some((key(rate.job, rate.target)?, rate.parts))));
            }
            Content::Ranks(told) => {
                let named = told.into_iter().filter_map(|(job, rank)| Some((self.reporter.job(job)?.clone(), rank)));
                ranks = Some(named.collect());
            }
        }
        let current = self.current.insert(Current { term, version, valid, ends_at: now + valid, parts });
        Ok(ranks.map_or(Decision::Parts(&current.parts), Decision::Ranks))
    }

    /// Ends an allocation that was not renewed in time; whether one has ended, so that targets are to share fairly.
    pub fn expire(&mut self, now: Nanos) -> bool {
        self.current.take_if(|current| current.ends_at <= now).is_some()
    }

    /// Gives up what is followed: the server follows another policy now, or begins anew with this one.
    pub fn forget(&mut self) {
        self.current = None;
        self.reporter.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Rate, ReportedJob};
    use crate::standing::Use;
    use isonomia_units::JobInfo;

    const IO1: ServerId = ServerId(1);
    const IO2: ServerId = ServerId(2);

    fn term(number: u64) -> Term {
        Term { epoch: 1, number }
    }

    fn allocation(number: u64, version: u64, content: Content) -> Allocation {
        Allocation { term: term(number), version, valid_ms: 100, content }
    }

    fn rates(after: u64, rates: &[(u32, u32)]) -> Content {
        let rate = |&(job, parts): &(u32, u32)| Rate { job, target: TargetId(3), parts };
        Content::Rates { after, rates: rates.iter().map(rate).collect(), gone: Vec::new() }
    }

    fn ask(number: u64, round: u64, renews: bool) -> Ask {
        Ask::Whole { term: term(number), round, wants_all: false, renews }
    }

    #[test]
    fn what_is_old_is_refused() {
        let mut follower = Follower::default();
        let now = Nanos::from_secs(1);
        follower.ask(now, IO1, &ask(5, 1, false)).unwrap();
        let replayed = follower.ask(now, IO1, &ask(5, 1, false));
        assert_eq!(replayed, Err(Refused::Replayed { told: 1, known: 1 }));
        follower.take(now, IO1, allocation(5, 2, rates(0, &[]))).unwrap();
        for version in [1, 2] {
            let replayed = follower.take(now, IO1, allocation(5, version, rates(0, &[])));
            assert_eq!(replayed, Err(Refused::Replayed { told: version, known: 2 }));
        }
        let other = follower.ask(now, IO2, &ask(5, 2, false));
        assert_eq!(other, Err(Refused::Another { known: IO1 }));
        let (old, known) = (term(4), term(5));
        let refused = follower.take(now, IO2, allocation(4, 9, rates(0, &[]))).unwrap_err();
        assert_eq!(refused, Refused::OldTerm { told: old, known });
        assert_eq!(refused.to_string(), "it is of term 1.4, and 1.5 is known");
        // A later controller counts anew.
        follower.take(now, IO2, allocation(6, 1, rates(0, &[]))).unwrap();
        assert_eq!(follower.controller(), Some((IO2, term(6))));
    }

    #[test]
    fn a_round_is_known_by_its_last_byte() {
        let mut follower = Follower::default();
        let now = Nanos::from_secs(1);
        let next = |round| Ask::Next { tag: term(5).tag(), round };
        assert_eq!(follower.ask(now, IO1, &next(1)), Err(Refused::Unheard));
        follower.ask(now, IO1, &ask(5, 250, false)).unwrap();
        follower.ask(now, IO1, &next(4)).unwrap();
        assert!(matches!(follower.answer(&[]), Report::Changes(changes) if changes.round == 260));
        for late in [4, 250, 3, 4 + ROUNDS_AHEAD_MAX + 1] {
            let refused = follower.ask(now, IO1, &next(late));
            assert_eq!(refused, Err(Refused::Replayed { told: u64::from(late), known: 260 }));
        }
        assert_eq!(follower.ask(now, IO2, &next(5)), Err(Refused::Unheard));
        assert_eq!(follower.ask(now, IO1, &Ask::Next { tag: term(6).tag(), round: 5 }), Err(Refused::Unheard));
    }

    #[test]
    fn a_phase_that_begins_or_ends_is_told_of_and_not_how_far_it_has_come() {
        let (mut follower, interval) = (Follower::default(), Nanos::from_millis(500));
        let at = |ms| Nanos::from_secs(1) + Nanos::from_millis(ms);
        let using = |phases: &[(&str, u64)]| {
            let one = |&(name, elapsed_ms): &(&str, u64)| {
                let progress = crate::message::Progress { attained_ms: elapsed_ms / 2, elapsed_ms, remaining_ms: None };
                let job = ReportedJob::from(&JobInfo::new(name, "ada", "astro"));
                Using { job, at: vec![(TargetId(3), progress.into())] }
            };
            phases.iter().map(one).collect::<Vec<_>>()
        };
        follower.ask(at(0), IO1, &ask(5, 1, false)).unwrap();
        let _ = follower.answer(&using(&[("a", 100)]));
        let mut told = |ms, phases: &[(&str, u64)]| follower.look(at(ms), interval, true, &using(phases)).is_some();
        assert!(!told(200, &[("a", 300)]), "it has only come further");
        assert!(told(300, &[("a", 400), ("b", 0)]) && !told(500, &[("a", 600), ("b", 200)]));
        assert!(told(700, &[("a", 0), ("b", 400)]), "another phase");
        assert!(told(900, &[("b", 600)]) && !told(1_100, &[("b", 800)]), "one less");
    }

    #[test]
    fn what_is_not_renewed_ends() {
        let mut follower = Follower::default();
        let at = Nanos::from_millis;
        follower.ask(at(0), IO1, &ask(1, 1, false)).unwrap();
        follower.take(at(0), IO1, allocation(1, 1, rates(0, &[]))).unwrap();
        assert!(!follower.expire(at(50)));
        assert_eq!(
            follower.ask(at(50), IO1, &Ask::Nothing { tag: term(1).tag(), round: 1 }),
            Err(Refused::Replayed { told: 1, known: 1 })
        );
        assert_eq!(follower.ask(at(50), IO1, &Ask::Nothing { tag: term(1).tag(), round: 2 }), Ok(Wanted::Nothing));
        assert!(!follower.expire(at(149)));
        follower.ask(at(99), IO1, &Ask::Next { tag: term(1).tag(), round: 3 }).unwrap();
        assert!(!follower.expire(at(198)) && follower.version() == 1);
        // Who asks without having decided renews nothing.
        follower.ask(at(198), IO1, &ask(1, 4, false)).unwrap();
        assert!(follower.expire(at(199)) && follower.version() == 0 && !follower.expire(at(200)));
        // Whoever is told that it goes on, and has it no more, says so.
        let goes_on = |round| Ask::Nothing { tag: term(1).tag(), round };
        assert_eq!(follower.ask(at(199), IO1, &goes_on(5)), Ok(Wanted::Report));
        assert_eq!(follower.ask(at(199), IO1, &goes_on(5)), Err(Refused::Replayed { told: 5, known: 5 }));
        let refused = follower.take(at(200), IO1, allocation(1, 3, rates(1, &[])));
        assert_eq!(refused, Err(Refused::NotCurrent { told: 1, current: 0 }));
    }

    #[test]
    fn changes_are_made_to_the_current_allocation() {
        let mut follower = Follower::default();
        let now = Nanos::from_secs(1);
        let job = |name| ReportedJob::from(&JobInfo::new(name, "ada", "astro"));
        let using: Vec<_> =
            ["a", "b", "c"].map(|name| Using { job: job(name), at: vec![(TargetId(3), Use::default())] }).into();
        follower.ask(now, IO1, &ask(1, 1, false)).unwrap();
        let Report::Changes(told) = follower.answer(&using) else { unreachable!("it is the first") };
        let [a, b, c] = [0, 1, 2].map(|at| told.jobs[at].0);
        let parts = |decision: Decision| match decision {
            Decision::Parts(parts) => {
                parts.iter().map(|((job, _), parts)| (job.name.to_string(), *parts)).collect::<Vec<_>>()
            }
            Decision::Ranks(_) => unreachable!("it has parts"),
        };
        let first = follower.take(now, IO1, allocation(1, 1, rates(0, &[(a, 10), (b, 20)]))).unwrap();
        assert_eq!(parts(first), [("a".to_owned(), 10), ("b".to_owned(), 20)]);
        let mut changes = rates(1, &[(b, 5), (c, 7), (99, 9)]);
        let Content::Rates { gone, .. } = &mut changes else { unreachable!("it has rates") };
        gone.push((a, TargetId(3)));
        let next = follower.take(now, IO1, allocation(1, 2, changes)).unwrap();
        assert_eq!(parts(next), [("b".to_owned(), 5), ("c".to_owned(), 7)], "who is not known has nothing");
        let refused = follower.take(now, IO1, allocation(1, 4, rates(3, &[])));
        assert_eq!(refused, Err(Refused::NotCurrent { told: 3, current: 2 }));
    }
}
