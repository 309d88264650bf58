//! The two fair schemes that the others are measured by: POFS and BSIP.

use crate::{Allocation, Problem, Progress};

/// Per-OST Fair Share (GIFT §2, Fig. 5): each target is divided among the applications at it by weight, whatever
/// they get elsewhere.
///
/// `progress` is the model: [`Progress::MinRate`] is the paper's, in which the surplus of an application's less
/// contended targets is wasted; under [`Progress::Banked`] it is not. The rates are the same. O(d) for d demands.
pub fn pofs(problem: &Problem, progress: Progress) -> Allocation {
    let rates = per_target_shares(problem);
    let fair = least_of_each(problem, &rates);
    Allocation::from_rates(problem, rates, &fair, progress)
}

/// Basic Synchronous I/O Progress (GIFT §2, Fig. 5): an application gets, at each of its targets, its fair share of
/// the most contended one. O(d) for d demands.
pub fn bsip(problem: &Problem) -> Allocation {
    let fair = bsip_shares(problem);
    Allocation::synchronous(problem, &fair, &fair)
}

/// The share of each application under BSIP.
pub(crate) fn bsip_shares(problem: &Problem) -> Vec<f64> {
    least_of_each(problem, &per_target_shares(problem))
}

/// The fair share of each demand: weight over the sum of the weights at the target, of its capacity.
pub(crate) fn per_target_shares(problem: &Problem) -> Vec<f64> {
    let totals = problem.weight_totals();
    let capacities = problem.targets().capacities();
    let mut shares = Vec::with_capacity(problem.members.app_targets().len());
    for (app, targets) in problem.apps().iter().zip(problem.members.by_app()) {
        shares.extend(targets.iter().map(|&at| app.weight * capacities[at as usize] / totals[at as usize]));
    }
    shares
}

fn least_of_each(problem: &Problem, rates: &[f64]) -> Vec<f64> {
    let least =
        |range: &[u32]| rates[range[0] as usize..range[1] as usize].iter().copied().fold(f64::INFINITY, f64::min);
    problem.members.app_start().windows(2).map(least).collect()
}
