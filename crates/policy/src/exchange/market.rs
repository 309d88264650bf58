//! Which part of each target a job is to have, so that it has its share of the whole.
//!
//! Targets are goods, and jobs buyers whose money is what the policy owes them. A job spends its money where it gets the
//! most for it; a target's time goes to the bidders in proportion to their bids. In equilibrium the totals are weighted
//! max-min fair: nobody can have more for his share without taking it from somebody who has no more for his. (The totals that
//! are possible form a polymatroid, and of one of those the fair point is the same by max-min and by proportional
//! fairness: Fujishige, *Lexicographically optimal base of a polymatroid*, 1980. The equilibrium of such a market is the
//! proportionally fair point: Eisenberg and Gale, 1959.)
//!
//! It is found by proportional response: each job divides its money among its targets as it was served by them in the
//! round before (Zhang, *Proportional response dynamics in the Fisher market*, 2011: converges for linear utilities,
//! without a step size to choose). The first round's bids, the same everywhere, are the paper's rule.
//!
//! Who bids: on a target where somebody waits for more, those who wait, and those who have more than presence gives them. All others
//! have no use for more: they keep what they use. The bidders divide what the target can do ([`course`](super::course)) and the
//! others leave.

use super::FLOOR;

/// Rounds of bidding at most.
pub const ROUNDS: usize = 100;
/// The bids have settled when none changes by more than this part of all money.
const SETTLED: f64 = 1e-6;

/// A job on a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub job: usize,
    /// The part of the target's time that it had, 0 to 1.
    pub used: f64,
    /// It waited for more.
    pub is_short: bool,
}

/// Who bids for what, and what the others have in any case.
pub(super) struct Market {
    /// By target and entry: the parts that presence gives.
    presence: Vec<Vec<f64>>,
    /// By target and entry.
    is_bidder: Vec<Vec<bool>>,
    /// By target: what is divided among the bidders.
    left: Vec<f64>,
    /// By job: what it has where it does not bid.
    pub kept: Vec<f64>,
    /// By job: it bids somewhere.
    pub bids: Vec<bool>,
}

/// Each job's share divided by the number of its targets, as parts of each target.
pub(super) fn by_presence(due: &[f64], targets: &[Vec<Entry>]) -> Vec<Vec<f64>> {
    equal_bids(due, targets, |_, _| true).iter().map(|bids| divided(bids, 1.0)).collect()
}

impl Market {
    /// `due` has the shares of all jobs that are there, `capacities` what each target can do, 0 to 1.
    pub(super) fn new(due: &[f64], targets: &[Vec<Entry>], capacities: &[f64]) -> Self {
        let presence = by_presence(due, targets);
        let (mut is_bidder, mut left) = (Vec::new(), Vec::new());
        let (mut kept, mut bids) = (vec![0.0; due.len()], vec![false; due.len()]);
        for ((entries, presence), capacity) in targets.iter().zip(&presence).zip(capacities) {
            let is_contended = entries.iter().any(|entry| entry.is_short);
            let bidders: Vec<bool> = entries
                .iter()
                .zip(presence)
                .map(|(entry, presence)| is_contended && (entry.is_short || entry.used > *presence))
                .collect();
            let mut is_kept = 0.0;
            for (entry, is_bidder) in entries.iter().zip(&bidders) {
                if *is_bidder {
                    bids[entry.job] = true;
                } else {
                    is_kept += entry.used;
                    kept[entry.job] += entry.used;
                }
            }
            left.push((capacity - is_kept).max(0.0));
            is_bidder.push(bidders);
        }
        Self { presence, is_bidder, left, kept, bids }
    }

    /// By target and entry: whether the job bids there.
    pub(super) fn bidders(&self) -> &[Vec<bool>] {
        &self.is_bidder
    }

    /// The parts by which those who bid have, with their `money` and what they `keep` of other targets, what is due to them of the whole.
    /// Who does not bid has as much as by presence, should he want it.
    pub(super) fn parts(&self, money: &[f64], keep: &[f64], targets: &[Vec<Entry>]) -> Vec<Vec<f64>> {
        let had = self.settle(money, keep, targets);
        let parts = had.iter().zip(&self.presence).zip(&self.is_bidder);
        parts
            .map(|((had, presence), is_bidder)| {
                let parts = had.iter().zip(presence).zip(is_bidder);
                parts
                    .map(|((had, presence), is_bidder)| if *is_bidder { had.max(FLOOR * presence) } else { *presence })
                    .collect()
            })
            .collect()
    }

    /// What each job has of all targets, where it bids and where it keeps, in targets.
    pub(super) fn totals(&self, money: &[f64], keep: &[f64], targets: &[Vec<Entry>]) -> Vec<f64> {
        let mut totals = self.kept.clone();
        for (had, entries) in self.settle(money, keep, targets).iter().zip(targets) {
            had.iter().zip(entries).for_each(|(had, entry)| totals[entry.job] += had);
        }
        totals
    }

    /// What the bidders have of each target when no bid changes any more.
    fn settle(&self, money: &[f64], keep: &[f64], targets: &[Vec<Entry>]) -> Vec<Vec<f64>> {
        let mut bids = equal_bids(money, targets, |target, entry| self.is_bidder[target][entry]);
        let mut had: Vec<Vec<f64>> = Vec::new();
        for _ in 0..ROUNDS {
            had = bids.iter().zip(&self.left).map(|(bids, left)| divided(bids, *left)).collect();
            let mut totals = keep.to_vec();
            for (had, entries) in had.iter().zip(targets) {
                had.iter().zip(entries).for_each(|(had, entry)| totals[entry.job] += had);
            }
            let mut change: f64 = 0.0;
            for ((bids, had), entries) in bids.iter_mut().zip(&had).zip(targets) {
                for ((bid, had), entry) in bids.iter_mut().zip(had).zip(entries).filter(|((bid, _), _)| **bid > 0.0) {
                    let total = totals[entry.job];
                    let next = if total > 0.0 { money[entry.job] * had / total } else { *bid };
                    change = change.max((next - *bid).abs());
                    *bid = next;
                }
            }
            if change < SETTLED {
                break;
            }
        }
        had
    }
}

/// What each job bids on each of the targets where it does if it divides its money equally.
fn equal_bids(money: &[f64], targets: &[Vec<Entry>], is_bidder: impl Fn(usize, usize) -> bool) -> Vec<Vec<f64>> {
    let mut counts = vec![0_u32; money.len()];
    for (target, entries) in targets.iter().enumerate() {
        for (at, entry) in entries.iter().enumerate() {
            counts[entry.job] += u32::from(is_bidder(target, at));
        }
    }
    let bid = |target: usize, at: usize, entry: &Entry| {
        if is_bidder(target, at) { money[entry.job] / f64::from(counts[entry.job].max(1)) } else { 0.0 }
    };
    let bids = |(target, entries): (usize, &Vec<Entry>)| {
        entries.iter().enumerate().map(|(at, entry)| bid(target, at, entry)).collect()
    };
    targets.iter().enumerate().map(bids).collect()
}

/// `whole` in proportion to the bids.
fn divided(bids: &[f64], whole: f64) -> Vec<f64> {
    let total: f64 = bids.iter().sum();
    bids.iter().map(|bid| if total > 0.0 { whole * bid / total } else { 0.0 }).collect()
}
