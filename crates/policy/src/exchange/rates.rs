//! Rates that apply over all targets of all servers: who may use which part of a rule's rate.
//!
//! A rule of `tbf` gives each of its classes one rate in the whole system, and each target has a *part* of it. A server looks every
//! interval at what each class was served on its targets and whether it had to wait, tells the other servers in a [`Table`], and
//! gives its targets new parts ([`Divider::divide`]).
//!
//! **Whose part is how large.** A location (a server, and on it a target) that is not held by the rule needs what it uses, and
//! [a little](HEADROOM) more. What the others leave is divided among those that are held, in proportion to what they have waiting: in a
//! closed loop that is what the programs have outstanding, which does not depend on the part, so nothing swings. Where nobody is
//! held, all have what they use, and the rest in equal parts.
//!
//! Only where a program uses several locations alternately, it depends on the parts where it waits: nearly always at the location with the
//! smallest part for what is asked of it, and now and then at another one. By what is waiting that location would get all, and be the one with too
//! much the next time. So a location counts as held for the part h of the time in which it was: it needs 1 − h of what it uses, and what it
//! has waiting counts h-fold. Such a stream then has the same at all its locations, where it can go on.
//!
//! **The sum.** Each server has a *claim* on a part of the rate, and tells it. It lowers its claim (at once if it has no demand any more or is held, else [by and by](LOWERED_BY_MIN)), and raises it only by
//! what no other server claims, together with those who want more in proportion to what they lack. Whoever begins has an equal
//! part, 1/n of n servers. So with tables that all servers have, the claims sum to 1 at most. Tables are as old as an interval: two
//! servers may both take what became free between two tables. *Claim:* if every table arrives within one interval, the parts sum to
//! less than 2 + [`FLOOR`] at any time, and to 1 + [`FLOOR`] at most in all but the two intervals after the demand changed: in any span
//! of time w a class is served at most rate · (w + 2 intervals) · (1 + [`FLOOR`]), and one burst for each target. (What is free is 1 at most, and each
//! takes a part of it.) No claim is above 1, and one that could not be raised is as it was, so demand that comes to a server without a claim has its
//! part two intervals later; until then, the burst and [`FLOOR`].
//!
//! A server that is silent for three intervals has no claim any more. One that does not hear more than half of all servers, itself
//! included, may be cut off with those: k servers that hear each other have k/n of the rate then, so that all parts of a network that
//! is cut together have it once. Of two servers, the one that is left has half of it.
//!
//! A class that does not fit the table has an equal part at most, for that is what others take it to have.

use super::{KEPT_FOR, KEPT_MIN};
use crate::spec::rates::{Amount, TokenBucket};
use isonomia_units::{JobId, Nanos, ServerId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The parts of a whole.
const WHOLE: f64 = 1e6;
/// What a location that is not held has more than it uses, as a part of that.
const HEADROOM: f64 = 1.0 / 32.0;
/// No location has less than this part of an equal part of the rate.
pub const FLOOR: f64 = 1.0 / 64.0;
/// A claim is lowered only if it is too large by more than this.
const SLACK: f64 = 1.0 / 128.0;
/// A claim of a class that is not held is lowered by this part of what it is too large: a stream that uses several servers alternately is held at
/// one of them, and needs as much of the others as soon as it goes on. One that is held lowers it by the part of the time in which it is.
const LOWERED_BY_MIN: f64 = 1.0 / 4.0;
/// It is looked at so much at least.
const WINDOW_MIN: Nanos = Nanos::from_millis(100);
/// A class that was held in more than this part of the time would use more than it has,
const HELD_ABOVE: f64 = 1.0 / 16.0;
/// until it is in less than this.
const HELD_BELOW: f64 = 1.0 / 64.0;
/// Rows of one table at most; further ones, of those who use the least, are left out.
pub const ROWS_MAX: usize = 1024;
/// Names of a table take so much at most: it is sent in one message.
const NAMES_LEN_MAX: usize = 32 << 10;

/// How a class fares that a rule gives a rate, at one target.
#[derive(Clone, Debug, PartialEq)]
pub struct RateReport {
    /// The rule, by its index among the policy's.
    pub rule: usize,
    /// Whom of those that it selects the class is of: names of a group, a user, a job, as far as the rule names any; parted by NUL.
    pub class: Arc<str>,
    /// What it may have in the whole system.
    pub amount: Amount,
    /// The part of it that it has here.
    pub part: f64,
    /// Bytes read and written since the arbiter was made.
    pub bytes: u64,
    /// Operations since then.
    pub operations: u64,
    /// Requests queued.
    pub queued: u64,
    /// The sum over time of how many were queued, in request · ns.
    pub backlog: u128,
    /// How long it had something queued and was held by its rule.
    pub held: Nanos,
    /// It is at present.
    pub is_held: bool,
    /// Its jobs that were, and for how long, by number.
    pub jobs: Vec<(JobId, Nanos)>,
}

impl RateReport {
    fn served(&self) -> u64 {
        match self.amount {
            Amount::Bytes(_) => self.bytes,
            Amount::Operations(_) => self.operations,
        }
    }
}

/// The parts of rates that one target has, in millionths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// Of a class that is not named, of a rate in bytes,
    bytes: u32,
    /// and in operations.
    operations: u32,
    /// By rule and class.
    of: Vec<(u32, Arc<str>, u32)>,
}

impl Parts {
    /// All of every rate.
    pub const fn whole() -> Self {
        Self { bytes: WHOLE as u32, operations: WHOLE as u32, of: Vec::new() }
    }

    /// The part of a class.
    pub fn of(&self, rule: usize, class: &str, amount: Option<Amount>) -> f64 {
        let found = self.of.binary_search_by(|(of, name, _)| (*of as usize, &**name).cmp(&(rule, class)));
        let part = match (found, amount) {
            (Ok(at), _) => self.of[at].2,
            (Err(_), Some(Amount::Operations(_))) => self.operations,
            (Err(_), _) => self.bytes,
        };
        f64::from(part.max(1)) / WHOLE
    }
}

/// A class on one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The rule, by its index among the policy's.
    pub rule: u32,
    /// See [`RateReport::class`].
    pub class: Arc<str>,
    /// What it is served in a second while it is not held: bytes or operations.
    pub needed: u64,
    /// What it has waiting while it is held, in the same.
    pub backlog: u64,
    /// It would use more.
    pub is_held: bool,
    /// The part of the rate that the server claims, in millionths.
    pub claim: u32,
}

/// What a server tells of its classes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Of which policy the rules are: tables of different ones have nothing to do with each other.
    pub policy: u64,
    /// By rule and class.
    pub rows: Vec<Row>,
}

/// A number that tells texts of policies apart (FNV-1a).
pub fn fingerprint(policy: &str) -> u64 {
    policy.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

type Key = (u32, Arc<str>);

/// What a location has use for.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    /// What it is served in a second, as a part of the rate, times the part of the time in which it is not held.
    needed: f64,
    /// What it has waiting, times the part of the time in which it is held.
    backlog: f64,
    is_held: bool,
}

/// A class on one target.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    served: u64,
    operations: u64,
    backlog: u128,
    held: Nanos,
    /// Of late.
    per_s: f64,
    queued: f64,
    per_request: f64,
    /// The part of the time in which it is held, 0 to 1,
    held_part: f64,
    /// and whether that is enough to count.
    is_held: bool,
    /// For how long nothing of it was served or waited.
    idle: Nanos,
}

#[derive(Debug)]
struct Own {
    claim: f64,
    amount: Amount,
    seen: Vec<Seen>,
    /// By target: its part of the claim.
    divided: Vec<f64>,
}

/// Divides the rates of the whole system among servers and the targets of one of them.
#[derive(Debug)]
pub struct Divider {
    servers: usize,
    kept_for: Nanos,
    /// By target: it is the metadata service, for which rates in bytes say nothing.
    is_metadata: Vec<bool>,
    policy: u64,
    own: BTreeMap<Key, Own>,
    others: BTreeMap<ServerId, (Nanos, Table)>,
    divided_at: Option<Nanos>,
    begun_at: Option<Nanos>,
}

impl Divider {
    /// Of one of so many servers that tell each other every `interval`, with these targets: whether each is the metadata service.
    /// Without an interval they tell each other nothing, and each has an equal part for ever.
    pub fn new(servers: usize, interval: Option<Nanos>, is_metadata: Vec<bool>) -> Self {
        let kept_for = interval.map_or(Nanos::MAX, |interval| Nanos(interval.0.saturating_mul(KEPT_FOR)).max(KEPT_MIN));
        let (own, others, divided_at, begun_at) = (BTreeMap::new(), BTreeMap::new(), None, None);
        Self { servers: servers.max(1), kept_for, is_metadata, policy: 0, own, others, divided_at, begun_at }
    }

    /// What a class was served here in a second lately: bytes, or operations if its rate is in these.
    pub fn per_s(&self, rule: usize, class: &Arc<str>) -> f64 {
        let own = self.own.get(&(rule as u32, class.clone()));
        own.map_or(0.0, |own| own.seen.iter().map(|seen| seen.per_s).sum())
    }

    /// Keeps the table of another server.
    pub fn tell(&mut self, now: Nanos, server: ServerId, mut table: Table) {
        table.rows.truncate(ROWS_MAX);
        self.others.insert(server, (now, table));
    }

    /// What targets have as long as nothing is known: equal parts. By target.
    pub fn begin(&self) -> Vec<Parts> {
        let data = self.is_metadata.iter().filter(|is_metadata| !**is_metadata).count();
        let equal = |locations: usize| ((WHOLE / (self.servers * locations.max(1)) as f64) as u32).max(1);
        let parts = Parts { bytes: equal(data), operations: equal(self.is_metadata.len()), of: Vec::new() };
        vec![parts; self.is_metadata.len()]
    }

    /// Looks at how the classes of `rules`, those of the policy with this [`fingerprint`], fare on each target
    /// ([`Arbiter::rates`](crate::Arbiter::rates)). Gives what the other servers are to be told, and what each target is.
    ///
    /// O(rows · log rows).
    pub fn divide(
        &mut self,
        now: Nanos,
        (policy, rules): (u64, &TokenBucket),
        reports: &[Vec<RateReport>],
    ) -> (Table, Vec<Parts>) {
        let kept_for = self.kept_for;
        self.others.retain(|_, (told, _)| now.since(*told) <= kept_for);
        if self.policy != policy {
            self.policy = policy;
            self.own.clear();
        }
        let span = self.divided_at.replace(now).map_or(Nanos::ZERO, |at| now.since(at));
        self.look(span, rules, reports);
        let told = self.claim(now);
        let table = self.table(told);
        let mut parts = self.begin();
        for (key, own) in &mut self.own {
            let locations: Vec<usize> =
                (0..own.seen.len()).filter(|at| own.amount.counts_metadata() || !self.is_metadata[*at]).collect();
            // What is used is a part of what the server has.
            let claim = own.claim.max(FLOOR * FLOOR);
            let of = |at: &usize| {
                let demand = own.seen[*at].demand(own.amount);
                Demand { needed: demand.needed / claim, ..demand }
            };
            let demands: Vec<Demand> = locations.iter().map(of).collect();
            let floor = FLOOR / (self.servers * locations.len().max(1)) as f64;
            for (at, wanted) in locations.iter().zip(wanted(&demands)) {
                // Half of the way: of two locations that one stream uses alternately, the slower one is held, and would be the faster one next.
                let of = &mut own.divided[*at];
                *of += (wanted - *of) / 2.0;
                let part = (own.claim * *of).max(floor);
                parts[*at].of.push((key.0, key.1.clone(), ((part * WHOLE) as u32).max(1)));
            }
        }
        (table, parts)
    }

    /// Notes what has changed on each target.
    fn look(&mut self, span: Nanos, rules: &TokenBucket, reports: &[Vec<RateReport>]) {
        let equal = 1.0 / self.servers as f64;
        let targets = self.is_metadata.len();
        let tables = self.others.values().map(|(_, table)| table).filter(|table| table.policy == self.policy);
        // Of whoever is on other servers only, this one claims something too, until it has lowered that.
        let told: BTreeSet<Key> =
            tables.flat_map(|table| &table.rows).map(|row| (row.rule, row.class.clone())).collect();
        let seen: BTreeSet<Key> =
            reports.iter().flatten().map(|report| (report.rule as u32, report.class.clone())).collect();
        self.own.retain(|key, _| told.contains(key) || seen.contains(key));
        for own in self.own.iter_mut().filter(|(key, _)| !seen.contains(key)).map(|(_, own)| own) {
            own.seen.fill(Seen::default());
        }
        for key in told {
            let allowance = rules.rules.get(key.0 as usize).and_then(|rule| rule.allowance.as_ref());
            let Some(amount) = allowance.map(|allowance| allowance.amount) else { continue };
            self.own.entry(key).or_insert_with(|| Own {
                claim: equal,
                amount,
                seen: vec![Seen::default(); targets],
                divided: vec![1.0 / targets.max(1) as f64; targets],
            });
        }
        for (at, report) in reports.iter().enumerate().flat_map(|(at, all)| all.iter().map(move |one| (at, one))) {
            let key = (report.rule as u32, report.class.clone());
            let new = || Own {
                claim: equal,
                amount: report.amount,
                seen: vec![Seen::default(); targets],
                divided: vec![1.0 / targets.max(1) as f64; targets],
            };
            if let Some(seen) = self.own.entry(key).or_insert_with(new).seen.get_mut(at) {
                seen.note(span, report);
            }
        }
    }

    /// Lowers and raises what this server claims. Gives the keys that others are to be told of.
    fn claim(&mut self, now: Nanos) -> Vec<Key> {
        // Those who had no time to say anything have what whoever begins has.
        let is_early = now.since(*self.begun_at.get_or_insert(now)) <= self.kept_for;
        let silent = self.servers.saturating_sub(self.others.len() + 1);
        let heard = if is_early { self.servers } else { self.others.len() + 1 };
        let total = if 2 * heard > self.servers { 1.0 } else { heard as f64 / self.servers as f64 };
        let equal = 1.0 / self.servers as f64;
        let mut told = Vec::new();
        for (key, own) in &mut self.own {
            let demand = own.seen.iter().fold(Demand::default(), |sum, seen| sum.and(seen.demand(own.amount)));
            let rate = own.amount.per_s();
            let row_of = |table: &Table| {
                let found = table.rows.binary_search_by(|row| (row.rule, &row.class).cmp(&(key.0, &key.1)));
                found.ok().filter(|_| table.policy == self.policy).map(|at| table.rows[at].clone())
            };
            let mut demands = vec![demand];
            let mut claims = vec![own.claim];
            for row in self.others.values().map(|(_, table)| row_of(table)) {
                let of = |row: &Row| Demand {
                    needed: row.needed as f64 / rate,
                    backlog: row.backlog as f64,
                    is_held: row.is_held,
                };
                demands.push(row.as_ref().map_or_else(Demand::default, of));
                claims.push(row.map_or(equal, |row| f64::from(row.claim) / WHOLE));
            }
            if demands.iter().all(Demand::is_nothing) {
                // As whoever has never heard of it.
                own.claim = equal.min(total);
                continue;
            }
            told.push(key.clone());
            let wants: Vec<f64> = wanted(&demands).into_iter().map(|part| part * total).collect();
            let is_too_large = wants[0] < own.claim - SLACK;
            let has_ended = demand.is_nothing() || own.seen.iter().all(|seen| seen.idle >= WINDOW_MIN);
            if own.claim > total || is_too_large && has_ended {
                own.claim = wants[0];
            } else if is_too_large {
                let held = own.seen.iter().filter(|seen| seen.is_held).map(|seen| seen.held_part).fold(0.0, f64::max);
                own.claim -= (own.claim - wants[0]) * held.max(LOWERED_BY_MIN);
            } else if wants[0] > own.claim {
                let of_silent = if is_early { silent as f64 * equal } else { 0.0 };
                let free = (total - of_silent - claims.iter().sum::<f64>()).max(0.0);
                let lacks = |at: usize| (wants[at] - claims[at]).max(0.0);
                let all: f64 = (0..wants.len()).map(lacks).sum();
                own.claim += (free * lacks(0) / all.max(f64::MIN_POSITIVE)).min(lacks(0));
            }
        }
        told
    }

    fn table(&mut self, told: Vec<Key>) -> Table {
        let equal = 1.0 / self.servers as f64;
        let row = |key: Key| {
            let own = &self.own[&key];
            let demand = own.seen.iter().fold(Demand::default(), |sum, seen| sum.and(seen.demand(own.amount)));
            Row {
                rule: key.0,
                class: key.1,
                needed: (demand.needed * own.amount.per_s()) as u64,
                backlog: demand.backlog as u64,
                is_held: demand.is_held,
                claim: (own.claim * WHOLE) as u32,
            }
        };
        let mut rows: Vec<Row> = told.into_iter().map(row).collect();
        // Those of whom others would believe what is furthest from the truth come first.
        rows.sort_by_key(|row| std::cmp::Reverse((row.claim, row.is_held, row.needed, row.backlog)));
        let mut len = 0;
        let fits = |row: &Row| {
            len += row.class.len();
            len <= NAMES_LEN_MAX
        };
        let fitting = rows.iter().take(ROWS_MAX).map(fits).take_while(|fits| *fits).count();
        for left_out in rows.drain(fitting..) {
            if let Some(own) = self.own.get_mut(&(left_out.rule, left_out.class)) {
                own.claim = own.claim.min(equal);
            }
        }
        rows.sort_by(|a, b| (a.rule, &a.class).cmp(&(b.rule, &b.class)));
        Table { policy: self.policy, rows }
    }
}

impl Seen {
    fn note(&mut self, span: Nanos, report: &RateReport) {
        let is_new = report.served() < self.served || report.operations < self.operations || span == Nanos::ZERO;
        if is_new {
            // The arbiter was made anew, or nothing is known of the time before.
            *self = Self { per_request: self.per_request, ..Self::default() };
        } else {
            let s = span.as_secs_f64();
            let weight = (span.0 as f64 / WINDOW_MIN.0 as f64).min(1.0);
            let follow = |value: &mut f64, latest: f64| *value += (latest - *value) * weight;
            let served = (report.served() - self.served) as f64;
            let operations = (report.operations - self.operations) as f64;
            if operations > 0.0 {
                self.per_request = served / operations;
            }
            let backlog = report.backlog.saturating_sub(self.backlog);
            self.idle = if operations > 0.0 || backlog > 0 { Nanos::ZERO } else { self.idle + span };
            follow(&mut self.per_s, served / s);
            follow(&mut self.queued, backlog as f64 / span.0 as f64);
            let held = report.held.since(self.held).0 as f64 / span.0 as f64;
            follow(&mut self.held_part, held.min(1.0));
            self.is_held = held > if self.is_held { HELD_BELOW } else { HELD_ABOVE };
        }
        (self.served, self.operations) = (report.served(), report.operations);
        (self.backlog, self.held) = (report.backlog, report.held);
    }

    fn demand(&self, amount: Amount) -> Demand {
        let held = if self.is_held { self.held_part } else { 0.0 };
        let backlog = self.queued * self.per_request.max(1.0) * held;
        Demand { needed: self.per_s / amount.per_s() * (1.0 - held), backlog, is_held: self.is_held }
    }
}

impl Demand {
    fn and(self, other: Self) -> Self {
        let is_held = self.is_held || other.is_held;
        Self { needed: self.needed + other.needed, backlog: self.backlog + other.backlog, is_held }
    }

    fn is_nothing(&self) -> bool {
        self.needed < 1e-6 && self.backlog < 1e-3 && !self.is_held
    }
}

/// How a rate is divided among locations: parts that sum to 1.
fn wanted(demands: &[Demand]) -> Vec<f64> {
    let count = demands.len().max(1) as f64;
    let held = demands.iter().filter(|demand| demand.is_held).count() as f64;
    let need = |demand: &Demand| demand.needed * (1.0 + HEADROOM);
    let needs: f64 = demands.iter().map(need).sum();
    // Those who are held are not left with nothing by those who are not.
    let left = (1.0 - needs).max(held / count / 2.0).max(0.0);
    let scale = if needs > 1.0 - left { (1.0 - left) / needs } else { 1.0 };
    let waiting: f64 = demands.iter().filter(|demand| demand.is_held).map(|demand| demand.backlog.max(1e-9)).sum();
    let part = |demand: &Demand| {
        if held == 0.0 {
            need(demand) * scale + (1.0 - needs * scale) / count
        } else if demand.is_held {
            need(demand) * scale + left * demand.backlog.max(1e-9) / waiting
        } else {
            need(demand) * scale
        }
    };
    demands.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn held(backlog: f64) -> Demand {
        Demand { needed: 0.0, backlog, is_held: true }
    }

    fn used(needed: f64) -> Demand {
        Demand { needed, backlog: 0.0, is_held: false }
    }

    #[test]
    fn who_is_held_shares_what_the_others_do_not_use() {
        let near = |demands: &[Demand], expected: &[f64]| {
            let found = wanted(demands);
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3), "{found:?}, expected {expected:?}");
        };
        near(&[held(3.0), held(1.0)], &[0.75, 0.25]);
        near(&[used(0.32), held(1.0), held(1.0)], &[0.33, 0.335, 0.335]);
        near(&[used(0.0), held(0.2)], &[0.0, 1.0]);
        near(&[used(0.2), used(0.0)], &[0.6031, 0.3969]);
        near(&[used(0.5), used(0.49), held(1.0)], &[0.421, 0.412, 0.167]);
    }

    /// Of `count` servers that hear `heard` others for long, one of a class that wants all that it can get: its claim.
    fn claim_of_one(count: usize, heard: usize, classes: usize) -> f64 {
        let interval = Nanos::from_millis(100);
        let mut divider = Divider::new(count, Some(interval), vec![false]);
        let rules = "tbf{job:*=1MB/s}".parse::<crate::PolicySpec>().unwrap();
        let rules = rules.rates().unwrap();
        let report = |class: usize, at: u64| RateReport {
            rule: 0,
            class: format!("j{class:05}").into(),
            amount: rules.rules[0].allowance.unwrap().amount,
            part: 1.0,
            bytes: at * 1000,
            operations: at,
            queued: 5,
            backlog: u128::from(at) * 500_000_000,
            held: Nanos(at * interval.0),
            is_held: true,
            jobs: Vec::new(),
        };
        let mut sums = 0.0;
        for at in 1..40 {
            let now = Nanos(at * interval.0);
            for other in 0..heard {
                // They have let go of all: what is free is all that is not this server's.
                let none = |class: usize| Row {
                    rule: 0,
                    class: format!("j{class:05}").into(),
                    needed: 0,
                    backlog: 0,
                    is_held: false,
                    claim: 0,
                };
                let rows = (0..classes).map(none).collect();
                divider.tell(now, ServerId(other as u16 + 2), Table { policy: 7, rows });
            }
            let reports: Vec<_> = (0..classes).map(|class| report(class, at)).collect();
            let (table, parts) = divider.divide(now, (7, rules), &[reports]);
            assert!(table.rows.len() <= ROWS_MAX && table.rows.windows(2).all(|two| two[0].class < two[1].class));
            let last = format!("j{:05}", classes - 1);
            sums = parts[0].of(0, &last, Some(rules.rules[0].allowance.unwrap().amount));
        }
        sums
    }

    /// One location has a third and is waited for nearly always, the other has two thirds of which the stream cannot use more than half.
    #[test]
    fn a_stream_over_two_locations_does_not_take_all_from_one_for_the_other() {
        let slow = Demand { needed: 0.05 * 0.33, backlog: 0.95 * 0.95, is_held: true };
        let fast = Demand { needed: 0.97 * 0.33, backlog: 0.03 * 0.03, is_held: true };
        let found = wanted(&[slow, fast]);
        assert!(found[1] > 0.32 && found[0] + found[1] < 1.0 + 1e-9, "{found:?}");
    }

    #[test]
    fn a_cut_network_does_not_have_a_rate_twice() {
        for (servers, heard, expected) in
            [(1, 0, 1.0), (2, 1, 1.0), (2, 0, 0.5), (3, 1, 1.0), (3, 0, 1.0 / 3.0), (4, 1, 0.5), (4, 2, 1.0)]
        {
            let claim = claim_of_one(servers, heard, 1);
            assert!((claim - expected).abs() < 0.02, "{servers} servers, {heard} others heard: {claim}");
        }
    }

    #[test]
    fn a_class_of_which_nobody_is_told_has_an_equal_part() {
        assert!(claim_of_one(2, 1, ROWS_MAX / 2) > 0.9);
        assert!(claim_of_one(2, 1, ROWS_MAX + 10) <= 0.51);
    }

    proptest! {
        #[test]
        fn parts_of_a_rate_are_all_of_it(
            demands in proptest::collection::vec((0.0..2.0f64, 0.0..100.0f64, any::<bool>()), 1..6),
        ) {
            let demands: Vec<_> =
                demands.into_iter().map(|(needed, backlog, is_held)| Demand { needed, backlog, is_held }).collect();
            let parts = wanted(&demands);
            prop_assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-9 && parts.iter().all(|part| *part >= 0.0));
        }
    }
}
