//! The one that asks and decides.

use crate::follower::Refused;
use crate::kept::Change;
use crate::message::{Allocation, Ask, Content, Report, Term};
use crate::plan::{Decided, Plan, PlanError};
use isonomia_units::{Nanos, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// Whoever has not reported after this time is left out of a decision (GIFT §3.5).
pub const TIMEOUT: Nanos = Nanos::from_secs(1);
/// With fewer reports, of those servers that were asked, there is no decision (GIFT §3.5).
pub const QUORUM_PERCENT: usize = 80;
/// Who was silent in so many rounds is not waited for, and counts no more, until he reports.
pub const ABSENT_AFTER: u32 = 3;
/// Who had nothing to report, or is silent, is asked again after this time at the latest.
pub const CHECK_EVERY: Nanos = Nanos::from_secs(60);

/// How a controller decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which controller it is.
    pub term: Term,
    /// Between the beginnings of two rounds.
    pub interval: Nanos,
}

/// How far a controller has come in its term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The term.
    pub term: Term,
    /// The last round.
    pub round: u64,
    /// The version of the last decision.
    pub version: u64,
}

/// How long an allocation is valid: the next one comes within an interval and a time-out.
pub fn validity(interval: Nanos) -> Nanos {
    interval + Nanos(interval.0 / 2) + TIMEOUT
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// To be put on stable storage, all or none, before anything behind it is sent.
    Keep(Vec<Change>),
    /// To be sent.
    Ask {
        /// To whom.
        to: ServerId,
        /// What.
        ask: Ask,
    },
    /// To be sent.
    Allocate {
        /// To whom.
        to: ServerId,
        /// What.
        allocation: Allocation,
    },
    /// There is no decision in this round, for this reason.
    Failed(PlanError),
    /// There is none because too few have reported.
    NoQuorum {
        /// Who have.
        reported: usize,
        /// Of so many.
        of: usize,
    },
}

/// What a controller has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rounds begun.
    pub rounds: u64,
    /// Decisions.
    pub decisions: u64,
    /// Rounds without one because too few servers reported.
    pub without_quorum: u64,
    /// Rounds without one because the scheme could not decide.
    pub failed: u64,
    /// Servers that were not heard in the last [`ABSENT_AFTER`] rounds.
    pub absent: usize,
    /// Jobs of the last decision.
    pub jobs: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    plan: Plan,
    members: BTreeMap<ServerId, Member>,
    round: u64,
    version: u64,
    next_at: Nanos,
    collecting: Option<Collecting>,
    counts: Counts,
}

#[derive(Clone, Debug)]
struct Member {
    /// Jobs do I/O there.
    is_busy: bool,
    /// Rounds in which it was silent, without a break.
    missed: u32,
    /// When it is asked in any case.
    check_at: Nanos,
    /// What it was told in full, and the version of that.
    told: Option<(u64, Content)>,
}

#[derive(Debug)]
struct Collecting {
    until: Nanos,
    /// Those who are waited for.
    awaited: BTreeSet<ServerId>,
    /// Those who may report: some are not waited for.
    asked: BTreeSet<ServerId>,
    reports: BTreeMap<ServerId, Report>,
}

impl Controller {
    /// Of these servers, from `now` on.
    pub fn new(now: Nanos, settings: Settings, plan: Plan, servers: impl IntoIterator<Item = ServerId>) -> Self {
        let mut controller = Self {
            settings,
            plan,
            members: BTreeMap::new(),
            round: 0,
            version: 0,
            next_at: now,
            collecting: None,
            counts: Counts::default(),
        };
        controller.set_servers(now, servers);
        controller
    }

    /// Goes on with rounds and versions where an earlier controller of the same term stopped: its followers take what is newer only.
    /// What was reached in another term does not matter.
    #[must_use]
    pub fn after(mut self, reached: Reached) -> Self {
        if reached.term == self.settings.term {
            (self.round, self.version) = (reached.round, reached.version);
        }
        self
    }

    /// How far it has come.
    pub fn reached(&self) -> Reached {
        Reached { term: self.settings.term, round: self.round, version: self.version }
    }

    /// The cluster has these servers now. Those that are new are asked in the next round.
    pub fn set_servers(&mut self, now: Nanos, servers: impl IntoIterator<Item = ServerId>) {
        let mut before = std::mem::take(&mut self.members);
        for server in servers {
            let new = || Member { is_busy: false, missed: 0, check_at: now, told: None };
            self.members.insert(server, before.remove(&server).unwrap_or_else(new));
        }
    }

    /// What decides.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Which controller it is.
    pub fn term(&self) -> Term {
        self.settings.term
    }

    /// The version of the last decision.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What it has done.
    pub fn counts(&self) -> Counts {
        let absent = self.members.values().filter(|member| member.is_absent()).count();
        Counts { absent, ..self.counts }
    }

    /// When [`Self::tick`] is to be called.
    pub fn wake_at(&self) -> Nanos {
        self.collecting.as_ref().map_or(self.next_at, |collecting| collecting.until)
    }

    /// Does what is due: begins a round, or ends one in which not all have reported. `wall` is the time in nanoseconds since
    /// 1970, which regret periods end by.
    pub fn tick(&mut self, now: Nanos, wall: Nanos, effects: &mut Vec<Effect>) {
        if self.collecting.as_ref().is_some_and(|collecting| collecting.until <= now) {
            self.end_round(wall, effects);
        }
        if self.collecting.is_none() && self.next_at <= now {
            self.begin_round(now, wall, effects);
        }
    }

    fn begin_round(&mut self, now: Nanos, wall: Nanos, effects: &mut Vec<Effect>) {
        // Those that were missed are not made up for.
        self.next_at = (self.next_at + self.settings.interval).max(now);
        self.round += 1;
        self.counts.rounds += 1;
        let mut collecting = Collecting {
            until: now + TIMEOUT,
            awaited: BTreeSet::new(),
            asked: BTreeSet::new(),
            reports: BTreeMap::new(),
        };
        let ask = Ask { term: self.settings.term, round: self.round };
        for (to, member) in &mut self.members {
            if !(member.is_busy && !member.is_absent() || member.check_at <= now) {
                continue;
            }
            member.check_at = now + CHECK_EVERY;
            collecting.asked.insert(*to);
            if !member.is_absent() {
                collecting.awaited.insert(*to);
            }
            effects.push(Effect::Ask { to: *to, ask });
        }
        self.collecting = Some(collecting);
        self.end_if_complete(wall, effects);
    }

    /// `from` reports.
    ///
    /// # Errors
    /// It is too late, or was not asked for.
    pub fn report(
        &mut self,
        wall: Nanos,
        from: ServerId,
        report: Report,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refused> {
        let own = self.settings.term;
        if report.term > own {
            return Err(Refused::OldTerm { told: own, known: report.term });
        }
        let Some(member) = self.members.get_mut(&from) else { return Err(Refused::Another { known: from }) };
        if report.round == 0 {
            // Its jobs share fairly until the next round.
            (member.is_busy, member.missed) = (true, 0);
            return Ok(());
        }
        let collecting = self.collecting.as_mut().filter(|collecting| collecting.asked.contains(&from));
        let Some(collecting) = collecting.filter(|_| report.term == own && report.round == self.round) else {
            return Err(Refused::Replayed { told: report.round, known: self.round });
        };
        if collecting.reports.contains_key(&from) {
            return Err(Refused::Replayed { told: report.round, known: self.round });
        }
        (member.is_busy, member.missed) = (!report.rows.is_empty(), 0);
        collecting.reports.insert(from, report);
        self.end_if_complete(wall, effects);
        Ok(())
    }

    fn end_if_complete(&mut self, wall: Nanos, effects: &mut Vec<Effect>) {
        let is_complete =
            |collecting: &Collecting| collecting.awaited.iter().all(|server| collecting.reports.contains_key(server));
        if self.collecting.as_ref().is_some_and(is_complete) {
            self.end_round(wall, effects);
        }
    }

    fn end_round(&mut self, wall: Nanos, effects: &mut Vec<Effect>) {
        let Some(Collecting { awaited, asked, reports, .. }) = self.collecting.take() else { return };
        for server in asked.iter().filter(|server| !reports.contains_key(server)) {
            if let Some(member) = self.members.get_mut(server) {
                member.missed = member.missed.saturating_add(1);
            }
        }
        let (reported, of) = (awaited.iter().filter(|server| reports.contains_key(server)).count(), awaited.len());
        if reported * 100 < of * QUORUM_PERCENT {
            self.counts.without_quorum += 1;
            effects.push(Effect::NoQuorum { reported, of });
            return;
        }
        let decided = match self.plan.decide(wall, &reports) {
            Ok(decided) => decided,
            Err(error) => {
                self.counts.failed += 1;
                effects.push(Effect::Failed(error));
                return;
            }
        };
        let Decided { contents, changes, jobs, failed, .. } = decided;
        if !changes.is_empty() {
            effects.push(Effect::Keep(changes));
        }
        if let Some(error) = failed {
            self.counts.failed += 1;
            effects.push(Effect::Failed(error));
            return;
        }
        self.counts.decisions += 1;
        self.counts.jobs = jobs;
        self.version += 1;
        for (to, content) in contents {
            let has_nothing = match &content {
                Content::Rates { rates, .. } => rates.is_empty(),
                Content::Ranks(ranks) => ranks.is_empty(),
                Content::As(_) => true,
            };
            let Some(member) = self.members.get_mut(&to).filter(|_| !has_nothing) else { continue };
            let held = reports.get(&to).map_or(0, |report| report.version);
            let content = match &member.told {
                Some((version, told)) if *version == held && *told == content => Content::As(held),
                _ => {
                    member.told = Some((self.version, content.clone()));
                    content
                }
            };
            let valid_ms = (validity(self.settings.interval).0 / 1_000_000) as u32;
            let (term, version) = (self.settings.term, self.version);
            effects.push(Effect::Allocate { to, allocation: Allocation { term, version, valid_ms, content } });
        }
    }
}

impl Member {
    fn is_absent(&self) -> bool {
        self.missed >= ABSENT_AFTER
    }
}
