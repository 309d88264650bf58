//! Fairness over targets that see different jobs, with a delay: λ-delayed fairness (ThemisIO §3.1).
//!
//! A target alone divides its service by the policy over the jobs that use it. What they have of other targets it does not
//! know: of three jobs with 16, 8 and 8 nodes, the first with files on both of two targets and each of the others with
//! files on one, the first has two thirds of everything where half is due (Fig. 5). So every λ, servers tell each other a
//! [`Table`] of their jobs. Each puts all tables together ([`Exchange::join`]), and its arbiters divide by the parts that
//! come out ([`Arbiter::apportion`](crate::Arbiter::apportion)) until the next time.
//!
//! The tables say who is there, what he received, and whether he waited. There are two [`Rule`]s to make parts of
//! them:
//!
//! * [`Rule::Presence`], the paper's: the share of a job by the policy over all jobs of the system, divided by the number of
//!   targets that it uses. A job that needs little of one target loses that part of its share, and one whose targets are
//!   contended by different numbers of jobs has too much of one and too little of another.
//! * [`Rule::Received`], the default here: the parts with which every job has its share of the *whole*, as far as there is a way,
//!   whichever targets it comes from ([`market`]). A job that does not wait for a target is expected to go on using what
//!   it uses of it, and has its share elsewhere; what it has no use for anywhere is its user's first, as the policy's levels say.
//!
//! Jobs are the same on two servers if user and name are. (Where users have no level in the policy, one who names his job otherwise
//! on another server has two: nothing proves there that they are one.)
//!
//! Either rule is a function of the tables alone, the latest ones and (what targets can do, and what jobs received less than was meant:
//! [`Course`]) those before. No server reacts to what another one does about the same change: of n
//! servers that each corrected its own part by what the others gave last, the sum would overshoot by n − 1. Whether a job waits
//! for more depends on the part that it has; two thresholds ([`Meters`]) keep that from changing every time.
//!
//! Under `fair-finish` there are no parts: a row says how long fair sharing takes until it is done with the job's phase, and each target goes by
//! the longest of a job's ([`Exchange::fair_ends`]).
//!
//! A table counts until a newer one comes, or for three λ ([`KEPT_FOR`], [`KEPT_MIN`]): a server that is silent is forgotten,
//! and where nobody else is heard of, the policy applies on each server by itself. Jobs that are new since the last time have what the
//! policy says beside the others, and no job's part is below an eighth of what presence gives it ([`FLOOR`]).

mod course;
mod left;
mod market;
mod meter;
pub mod rates;
#[cfg(test)]
mod tests;

pub use course::Course;
pub use left::Left;
pub use meter::{Meters, Own};

use crate::queueing::tree::{Leaf, ShareTree};
use crate::{Level, PolicySpec, Scheme};
use isonomia_units::{JobInfo, Nanos, ServerId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Intervals for which a table counts,
pub const KEPT_FOR: u64 = 3;
/// and the shortest time: a thread that starts late must not make a server forgotten.
pub const KEPT_MIN: Nanos = Nanos::from_millis(300);
/// Rows of one table at most; further ones, of those who use the least, are left out.
pub const ROWS_MAX: usize = 4096;
/// Targets of one table at most.
pub const TARGETS_MAX: usize = 256;
/// No job's part is below this part of what [`Rule::Presence`] gives it: its programs may need all of their files to go on.
pub const FLOOR: f64 = 1.0 / 8.0;

/// How parts are made of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// By who is there: the paper's.
    Presence,
    /// By what they received and wait for.
    #[default]
    Received,
}

/// What a job had of a target since the target was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Service.
    pub service: Nanos,
    /// The sum of the times that its requests waited for their turns.
    pub waited: Nanos,
    /// How long from now fair sharing is done with its phase, under a policy that goes by it; else zero: [`Arbiter::fair_ends`](crate::Arbiter::fair_ends).
    pub fair_end: Nanos,
}

/// A job on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its index in [`Table::jobs`].
    pub job: u32,
    /// What it received in the window, in nanoseconds of service.
    pub service_ns: u64,
    /// Its requests waited so long that it would use more.
    pub is_short: bool,
    /// [`Usage::fair_end`], in nanoseconds from when the table was made.
    pub fair_end_ns: u64,
}

/// What a server knows of its jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Over which time it was counted, in nanoseconds.
    pub window_ns: u64,
    /// The jobs that used a target in the window.
    pub jobs: Vec<JobInfo>,
    /// By target.
    pub targets: Vec<Vec<Row>>,
}

/// A table that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTable {
    /// It has too many rows.
    #[error("a table of {0} rows, {ROWS_MAX} at most")]
    TooLong(usize),
    /// A row names a job that is not in it.
    #[error("a row names job {job} of {jobs}")]
    UnknownJob {
        /// The job.
        job: u32,
        /// Jobs of the table.
        jobs: usize,
    },
    /// It was counted over no time.
    #[error("a table of no time")]
    NoTime,
    /// It has too many targets.
    #[error("a table of {0} targets, {TARGETS_MAX} at most")]
    TooManyTargets(usize),
}

impl Table {
    /// Refuses what another server should not have said.
    ///
    /// # Errors
    /// It has too many rows or targets, a row of a job that it does not have, or was counted over no time.
    pub fn check(&self) -> Result<(), BadTable> {
        let rows = self.targets.iter().map(Vec::len).sum::<usize>().max(self.jobs.len());
        if rows > ROWS_MAX {
            return Err(BadTable::TooLong(rows));
        }
        if self.targets.len() > TARGETS_MAX {
            return Err(BadTable::TooManyTargets(self.targets.len()));
        }
        if self.window_ns == 0 && rows > 0 {
            return Err(BadTable::NoTime);
        }
        let jobs = self.jobs.len();
        match self.targets.iter().flatten().find(|row| row.job as usize >= jobs) {
            Some(row) => Err(BadTable::UnknownJob { job: row.job, jobs }),
            None => Ok(()),
        }
    }

    /// Whether the same jobs use the same targets by both. Both make sense ([`Self::check`]).
    pub fn has_the_jobs_of(&self, other: &Self) -> bool {
        let users = |table: &Self| -> BTreeSet<(usize, Identity)> {
            let of = |(at, rows): (usize, &Vec<Row>)| {
                rows.iter().map(|row| (at, identity(&table.jobs[row.job as usize]))).collect::<Vec<_>>()
            };
            table.targets.iter().enumerate().flat_map(of).collect()
        };
        users(self) == users(other)
    }
}

/// The tables of the other servers. A copy costs as much as their number.
#[derive(Clone, Debug)]
pub struct Exchange {
    rule: Rule,
    kept_for: Nanos,
    tables: BTreeMap<ServerId, (Nanos, Arc<Table>)>,
}

/// A job is the same on two servers if these are: what is proven of it on its own host is only claimed on others, and a user may
/// have another group there.
type Identity = (Arc<str>, Arc<str>);

fn identity(info: &JobInfo) -> Identity {
    (info.user.clone(), info.name.clone())
}

/// Whether `a` counts, and not `b`, of what two servers say of one job: that which is believed more; among equals the same on
/// every server.
pub fn is_believed_more(a: &JobInfo, b: &JobInfo) -> bool {
    let rank = |info: &JobInfo| match &info.within {
        None => 0,
        Some(within) if *within == info.name => 1,
        Some(within) if !within.is_empty() => 2,
        Some(_) => 3,
    };
    fn key(rank: u32, info: &JobInfo) -> (u32, Option<&str>, &str, u32, u32) {
        (rank, info.within.as_deref(), &info.group, info.nodes, info.priority)
    }
    key(rank(a), a) < key(rank(b), b)
}

impl Exchange {
    /// Without tables. They come every `interval`.
    pub fn new(rule: Rule, interval: Nanos) -> Self {
        let kept_for = Nanos(interval.0.saturating_mul(KEPT_FOR)).max(KEPT_MIN);
        Self { rule, kept_for, tables: BTreeMap::new() }
    }

    /// Keeps the table of a server instead of an older one. Whether other jobs use its targets than did by that.
    ///
    /// # Errors
    /// It makes no sense; the older one stays.
    pub fn tell(&mut self, now: Nanos, server: ServerId, table: Table) -> Result<bool, BadTable> {
        table.check()?;
        let before = self.tables.insert(server, (now, Arc::new(table)));
        let table = &self.tables[&server].1;
        Ok(before.map_or(!table.jobs.is_empty(), |(_, before)| !table.has_the_jobs_of(&before)))
    }

    /// Forgets those who are silent.
    pub fn forget(&mut self, now: Nanos) {
        self.tables.retain(|_, (told, _)| now.since(*told) <= self.kept_for);
    }

    /// How many other servers are heard of.
    pub fn heard(&self) -> usize {
        self.tables.len()
    }

    /// The tables of the other servers.
    pub fn tables(&self) -> impl Iterator<Item = (ServerId, &Table)> {
        self.tables.iter().map(|(server, (_, table))| (*server, &**table))
    }

    /// Puts the tables together with the server's own: the part that each of its rows is to have, by target, as
    /// [`Arbiter::apportion`](crate::Arbiter::apportion) takes them. Empty for each target under policies that owe nobody a share, and under `fair-finish`. `course` is what
    /// is remembered of the times before.
    ///
    /// O(rows · rounds), with [`market::ROUNDS`] at most, and O(rows · log rows).
    pub fn join(&mut self, now: Nanos, policy: &PolicySpec, own: &Table, course: &mut Course) -> Vec<Vec<f64>> {
        self.forget(now);
        let levels = policy.levels();
        // Nobody would go by the parts of a fair clock's tree.
        if levels.is_empty() || matches!(policy.scheme(), Scheme::FairFinish(_)) {
            return vec![Vec::new(); own.targets.len()];
        }
        let mut numbers: BTreeMap<Identity, usize> = BTreeMap::new();
        let mut infos: Vec<&JobInfo> = Vec::new();
        let mut targets: Vec<Vec<market::Entry>> = Vec::new();
        let mut keys: Vec<course::Key> = Vec::new();
        // Its own first, whose parts are wanted.
        let others = self.tables.iter().map(|(server, (_, table))| (Some(*server), &**table));
        for (server, table) in std::iter::once((None, own)).chain(others) {
            let known: Vec<usize> = table
                .jobs
                .iter()
                .map(|info| {
                    let number = *numbers.entry(identity(info)).or_insert_with(|| {
                        infos.push(info);
                        infos.len() - 1
                    });
                    if is_believed_more(info, infos[number]) {
                        infos[number] = info;
                    }
                    number
                })
                .collect();
            let window = (table.window_ns as f64).max(1.0);
            keys.extend((0..table.targets.len()).map(|at| (server, at)));
            targets.extend(table.targets.iter().map(|rows| {
                let entry = |row: &Row| market::Entry {
                    job: known[row.job as usize],
                    used: (row.service_ns as f64 / window).min(1.0),
                    is_short: row.is_short,
                };
                rows.iter().map(entry).collect()
            }));
        }
        let (mut tree, leaves) = active_tree(levels, &infos);
        let due: Vec<f64> = leaves.iter().map(|leaf| tree.share(*leaf)).collect();
        let mut parts = match self.rule {
            Rule::Presence => market::by_presence(&due, &targets),
            Rule::Received => {
                let jobs: Vec<Identity> = infos.iter().map(|info| identity(info)).collect();
                let window = Nanos(own.window_ns);
                let present = course::Present { jobs: &jobs, due: &due, targets: &targets, keys: &keys, window };
                let market = market::Market::new(&due, &targets, &course.capacities(now, &present));
                // What a job has no use for is its user's first, and then its group's.
                for (leaf, bids) in leaves.iter().zip(&market.bids) {
                    if !bids {
                        tree.deactivate(*leaf);
                    }
                }
                let money: Vec<f64> = leaves.iter().map(|leaf| tree.share(*leaf)).collect();
                let keep = handed_up(&tree, &leaves, &money, &market);
                let bids = course.bids(now, &present, &market, &money, &keep);
                market.parts(&bids, &keep, &targets)
            }
        };
        parts.truncate(own.targets.len());
        parts
    }
}

impl Exchange {
    /// How long from now fair sharing on other targets, its own and those of other servers, is done with the phases of the jobs of the
    /// server's own rows, by target and row; zero if it is, or nothing is known of it. What others told is so much nearer as it is old. Empty
    /// for each target if nobody goes by it. O(rows · log rows).
    pub fn fair_ends(&self, now: Nanos, own: &Table) -> Vec<Vec<Nanos>> {
        /// The latest end of a job, on which target of which table, and the latest on any other.
        #[derive(Clone, Copy, Default)]
        struct Latest {
            end: u64,
            at: (usize, usize),
            other: u64,
        }
        let of_all: Vec<(u64, &Table)> = std::iter::once((0, own))
            .chain(self.tables.values().map(|(told, table)| (now.since(*told).0, &**table)))
            .collect();
        let mut latest: BTreeMap<Identity, Latest> = BTreeMap::new();
        for (number, (age, table)) in of_all.iter().enumerate() {
            for (target, rows) in table.targets.iter().enumerate() {
                for row in rows.iter().filter(|row| row.fair_end_ns > *age) {
                    let end = row.fair_end_ns - age;
                    let of_job = latest.entry(identity(&table.jobs[row.job as usize])).or_default();
                    let at = (number, target);
                    // Jobs that are one may have several rows of a target.
                    if of_job.end == 0 || of_job.at == at {
                        (of_job.end, of_job.at) = (of_job.end.max(end), at);
                    } else if end > of_job.end {
                        *of_job = Latest { end, at, other: of_job.end };
                    } else {
                        of_job.other = of_job.other.max(end);
                    }
                }
            }
        }
        if latest.is_empty() {
            return vec![Vec::new(); own.targets.len()];
        }
        let of_row = |target: usize, row: &Row| {
            let latest = latest.get(&identity(&own.jobs[row.job as usize]));
            Nanos(latest.map_or(0, |of| if of.at == (0, target) { of.other } else { of.end }))
        };
        let of_target = |(target, rows): (usize, &Vec<Row>)| rows.iter().map(|row| of_row(target, row)).collect();
        own.targets.iter().enumerate().map(of_target).collect()
    }
}

/// The share of each of these jobs if all of them are active; `levels` is not empty. O(jobs · log jobs).
pub fn due(levels: &[Level], infos: &[&JobInfo]) -> Vec<f64> {
    let (tree, leaves) = active_tree(levels, infos);
    leaves.iter().map(|leaf| tree.share(*leaf)).collect()
}

fn active_tree(levels: &[Level], infos: &[&JobInfo]) -> (ShareTree, Vec<Leaf>) {
    let mut tree = ShareTree::new(levels);
    tree.reserve(infos.len());
    let leaves: Vec<Leaf> = (0..).zip(infos).map(|(slot, info)| tree.insert(info, slot)).collect();
    leaves.iter().for_each(|leaf| tree.activate(*leaf));
    (tree, leaves)
}

/// What each bidder has where it does not bid; what those have who bid nowhere counts for the bidders below the nearest node
/// above them, in proportion to their money: it came out of the same share.
fn handed_up(tree: &ShareTree, leaves: &[Leaf], money: &[f64], market: &market::Market) -> Vec<f64> {
    let mut money_below: BTreeMap<u32, f64> = BTreeMap::new();
    for (leaf, money) in leaves.iter().zip(money).filter(|(_, money)| **money > 0.0) {
        tree.inner_above(*leaf).for_each(|node| *money_below.entry(node).or_default() += money);
    }
    let mut used_below: BTreeMap<u32, f64> = BTreeMap::new();
    for ((leaf, _), kept) in leaves.iter().zip(&market.bids).zip(&market.kept).filter(|((_, bids), _)| !**bids) {
        if let Some(node) = tree.inner_above(*leaf).find(|node| money_below.contains_key(node)) {
            *used_below.entry(node).or_default() += kept;
        }
    }
    let of_others = |leaf: &Leaf, money: f64| -> f64 {
        let nodes = tree.inner_above(*leaf);
        nodes.filter_map(|node| Some(used_below.get(&node)? * money / money_below.get(&node)?)).sum()
    };
    let bidders = leaves.iter().zip(money).zip(&market.kept);
    bidders.map(|((leaf, money), kept)| if *money > 0.0 { kept + of_others(leaf, *money) } else { *kept }).collect()
}
