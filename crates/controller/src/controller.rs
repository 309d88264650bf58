//! The one that asks and decides.

use crate::follower::{ROUNDS_AHEAD_MAX, Refused};
use crate::kept::Change;
use crate::message::{Allocation, Ask, Content, Rate, Report, Term};
use crate::plan::{Decided, Given, Plan, PlanError};
use crate::standing::Standing;
use isonomia_units::{Nanos, ServerId, TargetId};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Whoever has not reported after this time is left out of a decision (GIFT §3.5).
pub const TIMEOUT: Nanos = Nanos::from_secs(1);
/// With fewer reports, of those servers that were asked, there is no decision (GIFT §3.5).
pub const QUORUM_PERCENT: usize = 80;
/// Who was silent in so many rounds is not waited for any longer than the part of a time-out that [`Controller::tick`] gives, and counts no
/// more, until he reports. If jobs did I/O there, he is asked in every round all the same.
pub const ABSENT_AFTER: u32 = 3;
/// Where what servers say calls for another order, rounds follow each other no sooner than this.
const SOONEST: Nanos = Nanos::from_millis(50);
/// Such a part of a time-out,
const GRACE_PER_TIMEOUT: u64 = 4;
/// and of an interval.
const GRACE_PER_INTERVAL: u64 = 8;
/// Who is silent, or has jobs, is asked again after this time at the latest.
pub const CHECK_EVERY: Nanos = Nanos::from_secs(60);
/// Who has no jobs, and reports when one begins, is asked again after this time.
pub const IDLE_CHECK_EVERY: Nanos = Nanos::from_secs(300);

/// When something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By a clock that time is counted by, and that is never set.
    pub now: Nanos,
    /// In nanoseconds since 1970, which only what is shown to people goes by.
    pub wall: Nanos,
}

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

/// Where nothing changes, who has jobs is asked after so many intervals,
const ASKED_EVERY: u64 = 6;
/// and told after so many that what he was told goes on.
const RENEWED_EVERY: u64 = 2;

/// How long the controller may hear nothing: a server that has jobs is asked so often at least. Under `plan`s that go by
/// what jobs have at the moment, in every interval; else after six intervals, or as many as a minute has, rounded up: messages go out
/// when an interval begins.
fn asked_every(interval: Nanos, is_pulled: bool) -> Nanos {
    let within_a_minute = CHECK_EVERY.0.div_ceil(interval.0.max(1));
    if is_pulled { interval } else { Nanos(interval.0 * within_a_minute.clamp(1, ASKED_EVERY)) }
}

/// How long a server with jobs may hear nothing: so often it is asked, or what it was told renewed, at least. Two intervals, where it
/// is not asked more often.
pub fn renewed_every(interval: Nanos, is_pulled: bool) -> Nanos {
    Nanos(interval.0 * RENEWED_EVERY).min(asked_every(interval, is_pulled))
}

/// How long an allocation is valid that is renewed after this time: the next message comes within it and a time-out.
pub fn validity(renewed_every: Nanos) -> Nanos {
    renewed_every + Nanos(renewed_every.0 / 2) + TIMEOUT
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
        /// What, if anything: it may only renew.
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
    /// When the last round began.
    begun_at: Nanos,
    collecting: Option<Collecting>,
    /// The last round ended with a decision.
    has_decided: bool,
    counts: Counts,
}

#[derive(Debug)]
struct Member {
    /// Jobs do I/O there, as far as is known.
    is_busy: bool,
    /// Rounds in which it was silent, without a break.
    missed: u32,
    /// When it is asked in any case.
    check_at: Nanos,
    /// The last round in which it was asked; 0 for none.
    asked: u64,
    /// The last round in which it answered; 0 for none.
    answered: u64,
    /// The last round in which what it has was renewed, or it was told something else.
    renewed: u64,
    /// It reported by itself since the last round.
    has_reported: bool,
    /// What is known of it; nothing if it has to tell everything.
    standing: Option<Standing>,
    /// What it was told, and the version of that; nothing if it has to be told everything.
    told: Option<(u64, Given)>,
}

#[derive(Debug)]
struct Collecting {
    until: Nanos,
    /// Until then those are waited for, too, who are absent.
    grace_until: Nanos,
    /// Those who are waited for.
    awaited: BTreeSet<ServerId>,
    /// Those who may report: some are not waited for.
    asked: BTreeSet<ServerId>,
    reported: BTreeSet<ServerId>,
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
            begun_at: now,
            collecting: None,
            has_decided: false,
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
            let new = || Member {
                is_busy: false,
                missed: 0,
                check_at: now,
                asked: 0,
                answered: 0,
                renewed: 0,
                has_reported: false,
                standing: None,
                told: None,
            };
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
        self.collecting.as_ref().map_or(self.next_at, Collecting::ends_at)
    }

    /// Does what is due: begins a round, or ends one in which not all have reported. Who was silent for long, and is asked whether he is
    /// there again, is waited for a quarter of a time-out, or an eighth of an interval if that is less.
    pub fn tick(&mut self, at: Moment, effects: &mut Vec<Effect>) {
        if self.collecting.as_ref().is_some_and(|collecting| collecting.ends_at() <= at.now) {
            self.end_round(at, effects);
        }
        if self.collecting.is_none() && self.next_at <= at.now {
            self.begin_round(at, effects);
        }
    }

    fn begin_round(&mut self, at: Moment, effects: &mut Vec<Effect>) {
        let now = at.now;
        // By when it was due, and not by when it was noticed: else who is to be asked in the next round might be so in the one after.
        let due_at = self.next_at;
        // Those that were missed are not made up for.
        self.next_at = (self.next_at + self.settings.interval).max(now);
        self.begun_at = now;
        self.round += 1;
        self.counts.rounds += 1;
        let (term, round, is_pulled) = (self.settings.term, self.round, self.plan.is_pulled());
        let asked_every = self.asked_every();
        let (mut awaited, mut asked) = (BTreeSet::new(), BTreeSet::new());
        for (to, member) in &mut self.members {
            let is_wanted = is_pulled || member.missed > 0 || member.standing.is_none();
            let is_near = member.answered > 0 && round - member.answered <= u64::from(ROUNDS_AHEAD_MAX);
            if !(member.is_busy && is_wanted || member.check_at <= now) {
                // Far less than a question and its answer, so that who is cut off soon shares fairly.
                // Of who did not answer it is not known whether he still is one to whom it applies.
                let is_heard = member.is_busy && member.missed == 0 && is_near;
                if is_heard && self.has_decided && round - member.renewed >= RENEWED_EVERY {
                    member.renewed = round;
                    effects.push(Effect::Ask { to: *to, ask: Ask::Nothing { tag: term.tag(), round: round as u8 } });
                }
                continue;
            }
            let next = if member.is_absent() { CHECK_EVERY } else { IDLE_CHECK_EVERY };
            member.check_at = due_at + if member.is_busy { asked_every } else { next };
            asked.insert(*to);
            member.asked = round;
            if !member.is_absent() {
                awaited.insert(*to);
            }
            let (wants_all, renews) = (member.standing.is_none(), self.has_decided && member.missed == 0);
            if renews {
                member.renewed = round;
            }
            let ask = if is_near && renews && !wants_all {
                Ask::Next { tag: term.tag(), round: round as u8 }
            } else {
                Ask::Whole { term, round, wants_all, renews }
            };
            effects.push(Effect::Ask { to: *to, ask });
        }
        let grace = Nanos(TIMEOUT.0 / GRACE_PER_TIMEOUT).min(Nanos(self.settings.interval.0 / GRACE_PER_INTERVAL));
        let (until, grace_until) = (now + TIMEOUT, now + grace);
        self.collecting = Some(Collecting { until, grace_until, awaited, asked, reported: BTreeSet::new() });
        self.end_if_complete(at, effects);
    }

    /// When who has jobs is asked again that is heard or told something in this interval.
    fn busy_check_at(&self) -> Nanos {
        self.next_at.since(self.settings.interval) + self.asked_every()
    }

    fn asked_every(&self) -> Nanos {
        asked_every(self.settings.interval, self.plan.is_pulled())
    }

    /// `from` reports: because it was asked, or because something has changed there.
    ///
    /// # Errors
    /// It is too late, or was not asked for.
    pub fn report(
        &mut self,
        at: Moment,
        from: ServerId,
        report: Report,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refused> {
        let (own, known) = (self.settings.term, self.round);
        let busy_check_at = self.busy_check_at();
        let Some(member) = self.members.get_mut(&from) else { return Err(Refused::Another { known: from }) };
        let (is_own, round, told) = match &report {
            Report::Same { tag, round, .. } => (*tag == own.tag() && *round == known as u8, known, u64::from(*round)),
            Report::Changes(changes) if changes.term > own => {
                return Err(Refused::OldTerm { told: own, known: changes.term });
            }
            Report::Changes(changes) => (changes.term == own, changes.round, changes.round),
        };
        if round == 0 {
            (member.is_busy, member.missed) = (true, 0);
            let Report::Changes(changes) = &report else { return Ok(()) };
            let is_late = member.standing.as_ref().is_some_and(|standing| changes.number <= standing.number());
            if is_own && is_late {
                // Or the server has begun anew: it is asked for everything.
                let known = member.standing.take().map_or(0, |standing| standing.number());
                return Err(Refused::Replayed { told: changes.number, known });
            }
            if !is_own {
                // It has not heard of this controller, or begun anew: it is asked for everything.
                member.standing = None;
            }
            // Without what came before it says only that there is something.
            if is_own && (changes.is_whole || member.standing.is_some()) {
                member.hear(&report);
                member.has_reported = true;
                member.check_at = member.check_at.min(busy_check_at);
                if self.plan.is_pulled() {
                    // A phase has begun or ended: the order is another one.
                    self.next_at = self.next_at.min(at.now.max(self.begun_at + SOONEST));
                }
            }
            return Ok(());
        }
        if !is_own || round != known || member.asked != round || member.answered == round {
            return Err(Refused::Replayed { told, known });
        }
        // One that comes when the round has ended counts from the next one on.
        self.collecting.iter_mut().for_each(|collecting| _ = collecting.reported.insert(from));
        (member.answered, member.missed) = (round, 0);
        member.hear(&report);
        if member.is_busy {
            // It may have been asked as one without jobs.
            member.check_at = member.check_at.min(busy_check_at);
        }
        self.end_if_complete(at, effects);
        Ok(())
    }

    fn end_if_complete(&mut self, at: Moment, effects: &mut Vec<Effect>) {
        if self.collecting.as_ref().is_some_and(|collecting| collecting.ends_at() <= at.now) {
            self.end_round(at, effects);
        }
    }

    fn end_round(&mut self, at: Moment, effects: &mut Vec<Effect>) {
        let Some(Collecting { awaited, asked, reported, .. }) = self.collecting.take() else { return };
        let check_at = self.next_at + CHECK_EVERY;
        for server in asked.difference(&reported) {
            if let Some(member) = self.members.get_mut(server) {
                member.missed = member.missed.saturating_add(1);
                member.check_at = member.check_at.min(check_at);
            }
        }
        self.has_decided = false;
        // Who was not asked is taken at its last word.
        let counts =
            |(server, member): &(&ServerId, &Member)| awaited.contains(server) || member.is_busy && !member.is_absent();
        let counted = || self.members.iter().filter(counts);
        let (heard, of) = (counted().filter(|(_, member)| member.missed == 0).count(), counted().count());
        if heard * 100 < of * QUORUM_PERCENT {
            self.counts.without_quorum += 1;
            let is_strange = |server: &ServerId| self.members.get(server).is_some_and(Member::is_strange);
            if asked.iter().any(is_strange) {
                // Whoever begins, after one that is gone perhaps, finds out at once who is there and who is not.
                self.next_at = at.now;
            }
            effects.push(Effect::NoQuorum { reported: heard, of });
            return;
        }
        let known = self.members.iter().filter(|(_, member)| member.missed == 0);
        let known = known.filter_map(|(server, member)| Some((*server, member.standing.as_ref()?))).collect();
        let decided = match self.plan.decide(at, &known) {
            Ok(decided) => decided,
            Err(error) => {
                self.counts.failed += 1;
                effects.push(Effect::Failed(error));
                return;
            }
        };
        let Decided { given, changes, jobs, failed, .. } = decided;
        if !changes.is_empty() {
            effects.push(Effect::Keep(changes));
        }
        if let Some(error) = failed {
            self.counts.failed += 1;
            effects.push(Effect::Failed(error));
            return;
        }
        self.has_decided = true;
        self.counts.decisions += 1;
        self.counts.jobs = jobs;
        self.version += 1;
        let renewed_every = renewed_every(self.settings.interval, self.plan.is_pulled());
        let valid_ms = (validity(renewed_every).0 / 1_000_000) as u32;
        let (term, version) = (self.settings.term, self.version);
        let check_at = self.busy_check_at();
        for (to, given) in given {
            let Some(member) = self.members.get_mut(&to) else { continue };
            let has_reported = std::mem::take(&mut member.has_reported);
            if given.is_empty() {
                // What it has ends by itself.
                member.told = None;
                continue;
            }
            let Some(content) = content(member.told.as_ref(), &given) else { continue };
            (member.told, member.renewed) = (Some((version, given)), self.round);
            if has_reported {
                // It was heard and is told: there is nothing to ask.
                member.check_at = check_at;
            }
            effects.push(Effect::Allocate { to, allocation: Allocation { term, version, valid_ms, content } });
        }
    }
}

impl Collecting {
    /// When the round ends, if nobody else reports.
    fn ends_at(&self) -> Nanos {
        if self.asked.is_subset(&self.reported) {
            Nanos::ZERO
        } else if self.awaited.is_subset(&self.reported) {
            self.grace_until
        } else {
            self.until
        }
    }
}

impl Member {
    /// Nothing has been heard of it, and it may still be there.
    fn is_strange(&self) -> bool {
        self.answered == 0 && self.missed == 1
    }

    fn is_absent(&self) -> bool {
        self.missed >= ABSENT_AFTER
    }

    /// Takes in what the server says, and notices what it does not have.
    fn hear(&mut self, report: &Report) {
        let current = self.told.as_ref().map(|(version, _)| *version);
        let has_told = match report {
            Report::Same { number, version, .. } => {
                self.standing.take_if(|standing| standing.number() as u8 != *number);
                current.is_some_and(|current| current as u8 == *version)
            }
            Report::Changes(changes) => {
                let mut standing = self.standing.take();
                let taken = standing.get_or_insert_default().apply(changes);
                self.standing = standing.filter(|_| taken.is_ok());
                current == Some(changes.version) && !changes.is_whole
            }
        };
        self.told.take_if(|_| !has_told);
        // Whose report is lost may have jobs.
        self.is_busy = self.standing.as_ref().is_none_or(|standing| !standing.is_idle());
    }
}

/// What is to be said to a server that was `told` something that it is now given this; nothing if it is the same.
fn content(told: Option<&(u64, Given)>, given: &Given) -> Option<Content> {
    match (told, given) {
        (Some((_, told)), given) if told == given => None,
        (_, Given::Ranks(ranks)) => Some(Content::Ranks(ranks.clone())),
        (Some((after, Given::Rates(told))), Given::Rates(rates)) => {
            let (rates, gone) = difference(told, rates);
            Some(Content::Rates { after: *after, rates, gone })
        }
        (_, Given::Rates(rates)) => Some(Content::Rates { after: 0, rates: rates.clone(), gone: Vec::new() }),
    }
}

/// What is new, and what is gone; both lists are in order.
fn difference(before: &[Rate], now: &[Rate]) -> (Vec<Rate>, Vec<(u32, TargetId)>) {
    let (mut new, mut gone) = (Vec::new(), Vec::new());
    let key = |rate: &Rate| (rate.job, rate.target);
    let mut old = before.iter().peekable();
    for rate in now {
        while let Some(passed) = old.next_if(|old| key(old) < key(rate)) {
            gone.push(key(passed));
        }
        match old.next_if(|old| key(old).cmp(&key(rate)) == Ordering::Equal) {
            Some(same) if same.parts == rate.parts => {}
            _ => new.push(*rate),
        }
    }
    gone.extend(old.map(key));
    (new, gone)
}
