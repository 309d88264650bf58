//! AdapTBF: token buckets with rates by priority, whose unused tokens the jobs of a target lend one another.
//!
//! M. H. Rashid and D. Dai: *AdapTBF: Decentralized Bandwidth Control via Adaptive Token Borrowing for HPC Storage*, IPDPS 2025.
//! Every target decides for itself, knowing nothing of the others, in three steps at each decision:
//!
//! 1. *By priority.* A job is entitled to the target's bandwidth times its priority over those of all jobs there. Priority is
//!    the number of nodes, or the weight that other schemes go by ([`Priority`]).
//! 2. *Lending.* Who used less than he was granted since the last decision is granted what he used and a bit more
//!    ([`HEADROOM`]), if that is less than what he is entitled to; the rest is lent to those who want more, by priority. Each job has a
//!    *record* at each target: what it lent minus what it borrowed.
//! 3. *Compensation.* Who has lent and now wants more gets it back from those who have borrowed: within one interval if they have as
//!    much, though none of them gives up more than a part of what he is entitled to ([`AdapTbfConfig::reclaim`]).
//!
//! All of a target is granted while anybody has something to do there (*work-conserving*), what nobody wants by priority and
//! without a record. Records of the jobs at a target add up to nothing while none of them ends.
//!
//! Deviations, with their reasons:
//! * The published abstract gives the aims and these steps; the formulas are written anew from them for the fluid limit, in which a
//!   job's demand is not a number of waiting requests: what a job wants is seen in what it used of its last grant. Nearly all of it
//!   ([`SATURATED`]) means more than it was granted.
//! * What a job used is what its remaining bytes have become less by. Where they are unknown it is taken to have used all.
//! * The abstract does not say how fast debts are paid back: `reclaim` is a parameter, and what comes of it is told with the results.
//! * A job is one run of an application; its record ends with it, and what others owe it then is theirs. A job that computes is no job of the target meanwhile: others have its part by priority, and owe it nothing. Its record stays.
//! * The paper divides tokens every 100 ms; here the interval is a parameter, and with a decision at each change tokens
//!   lent are counted by the time for which they were.
//! * The paper's priority is the number of nodes. By weight it is compared with others on equal terms.

use crate::fair::bsip_shares;
use crate::{Allocation, Problem, Progress};
use isonomia_units::{Bytes, Nanos, Rate};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

/// Who used less than this part of his grant did not want more.
pub const SATURATED: f64 = 0.95;
/// Who lends keeps this many times what he used, so that it is seen when he wants more.
pub const HEADROOM: f64 = 1.25;
/// Who used next to nothing keeps this part of what he is entitled to, for the same reason.
const KEPT: f64 = 0.01;
/// A grant of fewer bytes since the last decision is too small to tell from what remains how much of it was used.
const SEEN_BYTES_MIN: f64 = 4096.0;
/// A record of less, in seconds of a target, is rounding.
const NOTHING_S: f64 = 1e-9;

/// What tokens are given by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Compute nodes.
    #[default]
    Nodes,
    /// The weight of the fair share.
    Weight,
}

/// How tokens are given, lent, and given back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdapTbfConfig {
    /// What tokens are given by.
    pub priority: Priority,
    /// The most that is taken for compensation of what somebody is entitled to, 0 to 1; a tenth by default. The more, the
    /// more of a debtor's grants at his other targets is of no use to him under [`Progress::MinRate`].
    pub reclaim: f64,
    /// Within which debts are to be paid back, at least a nanosecond; 10 s by default.
    pub interval: Nanos,
    /// How progress is counted.
    pub progress: Progress,
}

impl Default for AdapTbfConfig {
    fn default() -> Self {
        let interval = Nanos::from_secs(10);
        Self { priority: Priority::Nodes, reclaim: 0.1, interval, progress: Progress::MinRate }
    }
}

/// A part to reclaim that is none.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("reclaim {0} (allowed: 0 to 1)")]
pub struct BadReclaim(pub f64);

/// A priority that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no priority (allowed: nodes, weight)")]
pub struct ParsePriorityError(String);

impl FromStr for Priority {
    type Err = ParsePriorityError;

    fn from_str(text: &str) -> Result<Self, ParsePriorityError> {
        match text {
            "nodes" => Ok(Self::Nodes),
            "weight" => Ok(Self::Weight),
            _ => Err(ParsePriorityError(text.to_owned())),
        }
    }
}

/// The scheme at work on all targets.
#[derive(Clone, Debug)]
pub struct AdapTbf {
    config: AdapTbfConfig,
    bytes_per_s: f64,
    last: Nanos,
    targets: Vec<Ledger>,
}

/// One target's grants and records.
#[derive(Clone, Debug, Default)]
struct Ledger {
    /// By application, in seconds of a target of capacity 1; of its last run here.
    records: BTreeMap<Arc<str>, Record>,
    /// Of the last decision, in the order of names.
    grants: Vec<Grant>,
}

/// What a run of an application has lent.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    run: u64,
    lent_s: f64,
}

#[derive(Clone, Debug)]
struct Grant {
    name: Arc<str>,
    run: u64,
    began: Nanos,
    remaining: Option<Bytes>,
    priority: f64,
    record: f64,
    entitled: f64,
    /// The bandwidth that it makes use of; infinite if that is more than it was granted.
    wanted: f64,
    granted: f64,
    /// What it lends, borrowed if negative.
    lent: f64,
}

impl AdapTbf {
    /// Nobody has lent anything; capacity 1 is `bandwidth`.
    ///
    /// # Errors
    /// The part to reclaim is none.
    pub fn new(config: AdapTbfConfig, bandwidth: Rate) -> Result<Self, BadReclaim> {
        if !(0.0..=1.0).contains(&config.reclaim) {
            return Err(BadReclaim(config.reclaim));
        }
        let bytes_per_s = bandwidth.bytes_per_s() as f64;
        Ok(Self { config, bytes_per_s, last: Nanos::ZERO, targets: Vec::new() })
    }

    /// Divides every target at `now`, which never runs backwards. Every problem is one of the same targets; what was decided
    /// has held since the last one. O(d log n) for d demands and n applications that have ever been at a target, O(d n) at worst
    /// where many want a bit more.
    pub fn allocate(&mut self, now: Nanos, problem: &Problem) -> Allocation {
        let elapsed_s = now.since(self.last).as_secs_f64();
        self.last = now;
        let capacities = problem.targets().capacities();
        self.targets.resize_with(capacities.len(), Ledger::default);
        let mut rates = vec![0.0; problem.members.app_targets().len()];
        for (target, (ledger, &capacity)) in self.targets.iter_mut().zip(capacities).enumerate() {
            ledger.settle(elapsed_s);
            let apps = problem.members.apps_at(target).iter().map(|&app| app as usize);
            let index = |app: usize| problem.members.targets_of(app).partition_point(|&at| (at as usize) < target);
            let grants = apps.clone().map(|app| {
                let (app, index) = (&problem.apps()[app], index(app));
                let mut grant = Grant {
                    name: app.name.clone(),
                    run: app.runs,
                    began: app.began,
                    remaining: app.demands[index].remaining,
                    priority: match self.config.priority {
                        Priority::Nodes => f64::from(app.nodes),
                        Priority::Weight => app.weight,
                    },
                    record: ledger.records.get(&app.name).filter(|it| it.run == app.runs).map_or(0.0, |it| it.lent_s),
                    entitled: 0.0,
                    wanted: f64::INFINITY,
                    granted: 0.0,
                    lent: 0.0,
                };
                if let Ok(at) = ledger.grants.binary_search_by(|old| old.name.cmp(&app.name)) {
                    grant.wanted = ledger.grants[at].wanted_after(elapsed_s, self.bytes_per_s, &grant);
                }
                grant
            });
            let mut grants: Vec<Grant> = grants.collect();
            divide(&mut grants, capacity, &self.config);
            for (app, grant) in apps.zip(&grants) {
                rates[problem.members.app_start()[app] as usize + index(app)] = grant.granted;
            }
            ledger.grants = grants;
        }
        Allocation::from_rates(problem, rates, &bsip_shares(problem), self.config.progress)
    }

    /// What the application called `name` has lent at the target at this position in the order of names, in seconds of a target of
    /// capacity 1, up to the last decision; borrowed if negative.
    pub fn record(&self, name: &str, target: usize) -> f64 {
        self.targets.get(target).and_then(|ledger| ledger.records.get(name)).map_or(0.0, |record| record.lent_s)
    }
}

impl Ledger {
    /// Writes down what was lent since the last decision.
    fn settle(&mut self, elapsed_s: f64) {
        for grant in self.grants.iter().filter(|grant| grant.lent != 0.0 && elapsed_s > 0.0) {
            let record = self.records.entry(grant.name.clone()).or_default();
            if record.run != grant.run {
                *record = Record { run: grant.run, lent_s: 0.0 };
            }
            record.lent_s += grant.lent * elapsed_s;
        }
        self.records.retain(|_, record| record.lent_s.abs() > NOTHING_S);
    }
}

impl Grant {
    /// What the same application wants now, seen in what it used of this grant.
    fn wanted_after(&self, elapsed_s: f64, bytes_per_s: f64, now: &Self) -> f64 {
        if self.began != now.began {
            return f64::INFINITY;
        }
        let (Some(before), Some(after)) = (self.remaining, now.remaining) else { return f64::INFINITY };
        if self.granted * elapsed_s * bytes_per_s < SEEN_BYTES_MIN {
            return self.wanted;
        }
        let used = before.0.saturating_sub(after.0) as f64 / bytes_per_s / elapsed_s;
        if used < SATURATED * self.granted { (used * HEADROOM).max(KEPT * self.entitled) } else { f64::INFINITY }
    }
}

/// The three steps at one target.
fn divide(grants: &mut [Grant], capacity: f64, config: &AdapTbfConfig) {
    let priorities: f64 = grants.iter().map(|grant| grant.priority).sum();
    let mut spare = capacity;
    for grant in grants.iter_mut() {
        grant.entitled = capacity * grant.priority / priorities;
        grant.granted = grant.entitled.min(grant.wanted);
        spare -= grant.granted;
    }
    let unused = spare.max(0.0);
    let left = lend(grants, unused);
    // Of what was offered only so much was taken, of everybody the same part.
    let taken = if unused > 0.0 { 1.0 - left / unused } else { 0.0 };
    for grant in grants.iter_mut() {
        let offered = grant.entitled - grant.granted;
        grant.lent = if offered > 0.0 { offered * taken } else { offered };
    }
    compensate(grants, config);
    for grant in grants.iter_mut() {
        grant.granted += left * grant.priority / priorities;
    }
}

/// Gives `unused` to those who want more, by priority and no more than each wants; gives what nobody wants.
fn lend(grants: &mut [Grant], mut unused: f64) -> f64 {
    // In each round somebody has all he wants, or nothing is left.
    for _ in 0..=grants.len() {
        let priorities: f64 =
            grants.iter().filter(|grant| grant.wanted > grant.granted).map(|grant| grant.priority).sum();
        if priorities <= 0.0 || unused <= 0.0 {
            break;
        }
        let offered = unused;
        for grant in grants.iter_mut().filter(|grant| grant.wanted > grant.granted) {
            let part = offered * grant.priority / priorities;
            if grant.granted + part < grant.wanted {
                grant.granted += part;
                unused -= part;
            } else {
                unused -= grant.wanted - grant.granted;
                grant.granted = grant.wanted;
            }
        }
    }
    unused.max(0.0)
}

/// Those who have lent and want more get it back from those who have borrowed.
fn compensate(grants: &mut [Grant], config: &AdapTbfConfig) {
    let interval_s = config.interval.max(Nanos(1)).as_secs_f64();
    let due = |grant: &Grant| (grant.record / interval_s).min(grant.wanted - grant.granted).max(0.0);
    let payable =
        |grant: &Grant| (-grant.record / interval_s).min(config.reclaim * grant.entitled).min(grant.granted).max(0.0);
    let (dues, payables) = grants.iter().fold((0.0, 0.0), |(a, b), grant| (a + due(grant), b + payable(grant)));
    let paid = f64::min(dues, payables);
    if paid <= 0.0 {
        return;
    }
    for grant in grants {
        let change = due(grant) * paid / dues - payable(grant) * paid / payables;
        grant.granted += change;
        grant.lent -= change;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, Demand, Targets};

    /// Ten seconds between decisions, a target of 1 GB/s.
    const STEP: Nanos = Nanos::from_secs(10);
    const GB: f64 = 1e9;

    struct Loop {
        scheme: AdapTbf,
        targets: Arc<Targets>,
        now: Nanos,
        left: BTreeMap<(&'static str, &'static str), f64>,
    }

    impl Loop {
        fn new() -> Self {
            let bandwidth = Rate::new(GB as u64).unwrap();
            let targets = Arc::new(Targets::new([("t1", 1.0), ("t2", 1.0)]).unwrap());
            Self {
                scheme: AdapTbf::new(AdapTbfConfig { reclaim: 0.5, ..AdapTbfConfig::default() }, bandwidth).unwrap(),
                targets,
                now: Nanos::ZERO,
                left: BTreeMap::new(),
            }
        }

        /// One decision for these applications, of which each goes on as fast as its slowest target for the ten seconds after it.
        fn step(&mut self, apps: &[(&'static str, u32, &[&'static str])]) -> Allocation {
            let app = |&(name, nodes, at): &(&'static str, u32, &[&'static str])| {
                let demand = |target: &&'static str| Demand {
                    target: self.targets.index(target).unwrap(),
                    remaining: Some(Bytes(self.left.get(&(name, target)).copied().unwrap_or(1e15) as u64)),
                };
                App { nodes, demands: at.iter().map(demand).collect(), ..App::new(name, []) }
            };
            let problem = Problem::new(self.targets.clone(), apps.iter().map(app).collect()).unwrap();
            let allocation = self.scheme.allocate(self.now, &problem);
            for (name, _, at) in apps {
                let share = allocation.app(name).unwrap().share;
                for target in *at {
                    *self.left.entry((name, target)).or_insert(1e15) -= share * STEP.as_secs_f64() * GB;
                }
            }
            self.now += STEP;
            allocation
        }
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    #[test]
    fn who_wants_all_he_can_get_has_it_by_nodes() {
        let mut system = Loop::new();
        for _ in 0..3 {
            let allocation = system.step(&[("A", 3, &["t1"]), ("B", 1, &["t1"])]);
            assert_near(allocation.rate("A", "t1"), 0.75);
            assert_near(allocation.rate("B", "t1"), 0.25);
        }
        assert_near(system.step(&[("B", 1, &["t1"])]).rate("B", "t1"), 1.0);
        assert_eq!(system.scheme.record("A", 0), 0.0, "nobody borrows of who is not there");
    }

    /// B has a third of t1 and so does not use its half of t2: it keeps 1.25 times a third, and C has the rest. When B is alone at t1
    /// it gets back what it lent, a sixth at once and half of C's part at most.
    #[test]
    fn unused_tokens_are_lent_and_given_back() {
        let mut system = Loop::new();
        let all: [(_, _, &[&str]); 4] =
            [("A", 1, &["t1"]), ("A2", 1, &["t1"]), ("B", 1, &["t1", "t2"]), ("C", 1, &["t2"])];
        assert_near(system.step(&all).rate("C", "t2"), 0.5);
        for _ in 0..2 {
            let lending = system.step(&all);
            assert_near(lending.rate("B", "t2"), 1.25 / 3.0);
            assert_near(lending.rate("C", "t2"), 1.0 - 1.25 / 3.0);
        }
        // In the first decision after the others have gone B's wish is not seen yet.
        let two: [(_, _, &[&str]); 2] = [("B", 1, &["t1", "t2"]), ("C", 1, &["t2"])];
        assert_near(system.step(&two).rate("B", "t2"), 1.25 / 3.0);
        let lent = 3.0 * 10.0 * (0.5 - 1.25 / 3.0);
        let back = system.step(&two);
        assert_near(system.scheme.record("B", 1), lent);
        assert_near(system.scheme.record("C", 1), -lent);
        assert_near(back.rate("B", "t2"), 0.5 + lent / 10.0);
        assert_near(back.rate("C", "t2"), 0.5 - lent / 10.0);
        assert_near(system.step(&two).rate("B", "t2"), 0.5);
        assert_near(system.scheme.record("B", 1), 0.0);
    }

    #[test]
    fn a_debtor_keeps_a_part_of_what_he_is_entitled_to() {
        let grant = |name: &str, record| Grant {
            name: name.into(),
            run: 1,
            began: Nanos::ZERO,
            remaining: None,
            priority: 1.0,
            record,
            entitled: 0.0,
            wanted: f64::INFINITY,
            granted: 0.0,
            lent: 0.0,
        };
        for (reclaim, granted) in [(0.5, [0.75, 0.25]), (0.0, [0.5, 0.5]), (1.0, [1.0, 0.0])] {
            let mut grants = [grant("lender", 100.0), grant("borrower", -100.0)];
            divide(&mut grants, 1.0, &AdapTbfConfig { reclaim, ..AdapTbfConfig::default() });
            assert_eq!(grants.map(|grant| grant.granted), granted);
        }
        let bad = AdapTbf::new(AdapTbfConfig { reclaim: 1.5, ..AdapTbfConfig::default() }, Rate::new(1).unwrap());
        assert_eq!(bad.unwrap_err().to_string(), "reclaim 1.5 (allowed: 0 to 1)");
    }

    #[test]
    fn what_nobody_wants_is_granted_without_a_record() {
        let mut system = Loop::new();
        // Both B and C have little of t1, and t2 is theirs.
        let all: [(_, _, &[&str]); 3] = [("A", 8, &["t1"]), ("B", 1, &["t1", "t2"]), ("C", 1, &["t1", "t2"])];
        system.step(&all);
        let second = system.step(&all);
        assert_near(second.rate("B", "t2") + second.rate("C", "t2"), 1.0);
        system.step(&all);
        assert_eq!((system.scheme.record("B", 1), system.scheme.record("C", 1)), (0.0, 0.0));
    }
}
