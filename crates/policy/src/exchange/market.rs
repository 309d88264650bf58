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

use super::FLOOR;

/// Rounds of bidding at most.
pub const ROUNDS: usize = 100;
/// The bids have settled when none changes by more than this part of all money.
const SETTLED: f64 = 1e-6;

/// A job on a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub job: usize,
    /// The part of the target's time that it had.
    pub used: f64,
    /// It waited for more.
    pub is_short: bool,
}

/// Each job's money divided by the number of its targets, as parts of each target.
pub(super) fn by_presence(due: &[f64], targets: &[Vec<Place>]) -> Vec<Vec<f64>> {
    let bids = equal_bids(due, targets);
    bids.iter().map(|bids| divided(bids, 1.0)).collect()
}

/// The parts by which the jobs that are short have what is due to them of the whole. Who is not short has what he used, and as
/// much as by presence should he want it.
pub(super) fn by_receipt(due: &[f64], targets: &[Vec<Place>]) -> Vec<Vec<f64>> {
    let mut bids = equal_bids(due, targets);
    let presence: Vec<Vec<f64>> = bids.iter().map(|bids| divided(bids, 1.0)).collect();
    // What is to be divided among those who are short, and what the others have in any case.
    let left: Vec<f64> = targets
        .iter()
        .map(|places| places.iter().filter(|place| place.is_short).map(|place| place.used).sum::<f64>())
        .collect();
    let mut kept = vec![0.0; due.len()];
    for place in targets.iter().flatten().filter(|place| !place.is_short) {
        kept[place.job] += place.used;
    }
    for (bids, places) in bids.iter_mut().zip(targets) {
        bids.iter_mut().zip(places).filter(|(_, place)| !place.is_short).for_each(|(bid, _)| *bid = 0.0);
    }
    let mut had: Vec<Vec<f64>> = Vec::new();
    for _ in 0..ROUNDS {
        had = bids.iter().zip(&left).map(|(bids, left)| divided(bids, *left)).collect();
        let mut totals = kept.clone();
        for (had, places) in had.iter().zip(targets) {
            had.iter().zip(places).for_each(|(had, place)| totals[place.job] += had);
        }
        let mut change: f64 = 0.0;
        for ((bids, had), places) in bids.iter_mut().zip(&had).zip(targets) {
            for ((bid, had), place) in bids.iter_mut().zip(had).zip(places).filter(|(_, place)| place.is_short) {
                let total = totals[place.job];
                let next = if total > 0.0 { due[place.job] * had / total } else { *bid };
                change = change.max((next - *bid).abs());
                *bid = next;
            }
        }
        if change < SETTLED {
            break;
        }
    }
    let part = |place: &Place, had: f64, presence: f64| {
        if place.is_short { had.max(FLOOR * presence) } else { place.used.max(presence) }
    };
    let parts = had.iter().zip(&presence).zip(targets);
    parts
        .map(|((had, presence), places)| {
            let parts = places.iter().zip(had).zip(presence);
            parts.map(|((place, had), presence)| part(place, *had, *presence)).collect()
        })
        .collect()
}

/// What each job bids on each of its targets if it divides its money equally.
fn equal_bids(due: &[f64], targets: &[Vec<Place>]) -> Vec<Vec<f64>> {
    let mut counts = vec![0_u32; due.len()];
    targets.iter().flatten().for_each(|place| counts[place.job] += 1);
    let bid = |place: &Place| due[place.job] / f64::from(counts[place.job]);
    targets.iter().map(|places| places.iter().map(bid).collect()).collect()
}

/// `whole` in proportion to the bids.
fn divided(bids: &[f64], whole: f64) -> Vec<f64> {
    let total: f64 = bids.iter().sum();
    bids.iter().map(|bid| if total > 0.0 { whole * bid / total } else { 0.0 }).collect()
}
