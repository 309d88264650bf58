//! Coflow scheduling with a guarantee: every application keeps a part of its fair share, and the rest goes to
//! one application after the other.
//!
//! An I/O phase over several targets is a coflow with the targets as its ports. On every target each application
//! there keeps `guarantee` times its fair share, which is its part of the target by weight ([`pofs`](crate::pofs)).
//! What is left goes to the application that comes first in the order, among those at the target; so each target
//! is fully used as long as anybody has something to do there. A target that runs ahead banks its progress. There
//! are no coupons.
//!
//! # The bound on the slowdown
//!
//! Let g be the guarantee, and let decisions be made whenever an application comes or is done at a target.
//!
//! 1. *No phase ends later than it would under POFS (banked) on targets of g times the speed, with the same
//!    arrivals.* Say that in both systems an application is active at a target until it is served there. Suppose
//!    that up to some time nobody has been served less at a target here than there. Then whoever is active here is
//!    active there; and when somebody leaves, nobody's fair share falls, so the fair share of an application among
//!    those active here is at least that among those active there. Here it gets at least g times the former, there
//!    g times the latter: it does not fall behind now either. (The argument needs of the fair share only that it
//!    does not fall when somebody leaves; every weighted sharing tree is of that kind.)
//! 2. *With phases that start together, a phase takes at most 1/g times its fair-share time*, because POFS on
//!    targets of g times the speed takes 1/g times as long as on these.
//! 3. *In any environment, a phase is done at the latest when its fair share, among the applications that were in
//!    fact active at each moment, sums up to 1/g of its bytes.* Each moment gives g times the fair share. With a
//!    steady fair share that is 1/g times the fair-share time.
//!
//! What is not true: that with phases starting at different times each one ends within 1/g of the time it would
//! have taken had POFS governed all along. The order may have left more applications unfinished, each with less to
//! do, than POFS would have, and a newcomer then shares with more of them. With decisions at intervals, what an
//! application leaves unused after it was served within one is lost to the others till the next, in all schemes.
//!
//! Sources: the orders are those of Varys (smallest effective bottleneck first), Aalo (least attained service
//! first) and Sincronia (bottleneck-select-scale-iterate); the guarantee is this project's.

use crate::fair::{bsip_shares, per_target_shares};
use crate::{Allocation, Problem, Progress};
use std::str::FromStr;
use std::sync::Arc;

/// Who comes first when the surplus is given out; ties go by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The smallest remaining bottleneck first: the time that the slowest target would need for the remaining bytes
    /// if the application had it alone. Needs remaining bytes.
    Bottleneck,
    /// The least service in this phase first. Needs no knowledge of the future.
    Attained,
    /// The worst slowdown first.
    Slowdown,
    /// Sincronia's order: the target with the most remaining bytes chooses who comes last, then the same without
    /// that one. Needs remaining bytes.
    Bssf,
}

/// The policy `coflow{guarantee, order}`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coflow {
    guarantee: f64,
    order: Order,
}

/// Why a coflow allocation could not be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CoflowError {
    /// A guarantee that is no part of a share.
    #[error("guarantee {0} (allowed: 0 to 1)")]
    BadGuarantee(f64),
    /// The order needs to know what remains.
    #[error("application `{app}`: the bytes that remain at target `{target}` are unknown; order {order} needs them")]
    UnknownRemaining {
        /// The application.
        app: Arc<str>,
        /// The target.
        target: Arc<str>,
        /// The order.
        order: Order,
    },
}

/// An order that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no order (allowed: bottleneck, attained, slowdown, bssf)")]
pub struct ParseOrderError(String);

impl Coflow {
    /// The policy that keeps `guarantee`, 0 to 1, of each fair share.
    pub fn new(guarantee: f64, order: Order) -> Result<Self, CoflowError> {
        if (0.0..=1.0).contains(&guarantee) {
            Ok(Self { guarantee, order })
        } else {
            Err(CoflowError::BadGuarantee(guarantee))
        }
    }

    /// Divides every target. O(d + n log n) for d demands of n applications, O(n (n + d)) with [`Order::Bssf`].
    pub fn allocate(&self, problem: &Problem) -> Result<Allocation, CoflowError> {
        let order = self.ranking(problem)?;
        let capacities = problem.targets().capacities();
        let start = problem.members.app_start();
        let mut rates = per_target_shares(problem);
        let mut surplus = capacities.to_vec();
        for (rate, &target) in rates.iter_mut().zip(problem.members.app_targets()) {
            *rate *= self.guarantee;
            surplus[target as usize] -= *rate;
        }
        for app in order {
            let first = start[app] as usize;
            for (at, &target) in problem.members.targets_of(app).iter().enumerate() {
                rates[first + at] += std::mem::take(&mut surplus[target as usize]).max(0.0);
            }
        }
        Ok(Allocation::from_rates(problem, rates, &bsip_shares(problem), Progress::Banked))
    }

    /// The applications' names, first the one that comes first.
    pub fn order(&self, problem: &Problem) -> Result<Vec<Arc<str>>, CoflowError> {
        Ok(self.ranking(problem)?.into_iter().map(|app| problem.apps()[app].name.clone()).collect())
    }

    fn ranking(&self, problem: &Problem) -> Result<Vec<usize>, CoflowError> {
        let mut order: Vec<usize> = (0..problem.apps().len()).collect();
        // The sort is stable and the applications come by name, so ties go by name.
        match self.order {
            Order::Attained => order.sort_by_key(|&app| problem.apps()[app].attained),
            Order::Slowdown => {
                order.sort_by(|&a, &b| problem.apps()[b].slowdown.total_cmp(&problem.apps()[a].slowdown));
            }
            Order::Bottleneck => {
                let loads = self.loads(problem)?;
                let most = |app: &Vec<f64>| app.iter().copied().fold(0.0, f64::max);
                let bottlenecks: Vec<f64> = loads.iter().map(most).collect();
                order.sort_by(|&a, &b| bottlenecks[a].total_cmp(&bottlenecks[b]));
            }
            Order::Bssf => order = bssf(problem, &self.loads(problem)?),
        }
        Ok(order)
    }

    /// For each demand the time, in units of bytes over a whole target, that it would take alone.
    fn loads(&self, problem: &Problem) -> Result<Vec<Vec<f64>>, CoflowError> {
        let targets = problem.targets();
        let load = |app: &crate::App| {
            let demands = app.demands.iter().map(|demand| match demand.remaining {
                Some(bytes) => Ok(bytes.0 as f64 / targets.capacity(demand.target)),
                None => Err(CoflowError::UnknownRemaining {
                    app: app.name.clone(),
                    target: targets.name(demand.target).clone(),
                    order: self.order,
                }),
            });
            demands.collect()
        };
        problem.apps().iter().map(load).collect()
    }
}

/// Bottleneck-select-scale-iterate (Sincronia, Alg. 1), from the last position to the first: at the target with the
/// greatest load, the application with the least weight for its load there comes last; the others' weights are
/// lowered by what its position has cost them.
fn bssf(problem: &Problem, loads: &[Vec<f64>]) -> Vec<usize> {
    let members = &problem.members;
    let load_at =
        |app: usize, target: u32| members.targets_of(app).binary_search(&target).map_or(0.0, |at| loads[app][at]);
    let mut totals = vec![0.0; problem.targets().len()];
    for (targets, loads) in members.by_app().zip(loads) {
        for (&target, load) in targets.iter().zip(loads) {
            totals[target as usize] += load;
        }
    }
    let mut weights: Vec<f64> = problem.apps().iter().map(|app| app.weight).collect();
    let mut is_ordered = vec![false; weights.len()];
    let mut backwards = Vec::with_capacity(weights.len());
    while backwards.len() < weights.len() {
        let left =
            |target: usize| members.apps_at(target).iter().map(|&app| app as usize).filter(|&app| !is_ordered[app]);
        let candidates = (0..totals.len()).filter(|&target| left(target).next().is_some());
        let Some(bottleneck) = candidates.max_by(|&a, &b| totals[a].total_cmp(&totals[b]).then(b.cmp(&a))) else {
            break;
        };
        let worth = |app: usize| weights[app] / load_at(app, bottleneck as u32);
        // Of equals the last by name comes last, so that ties go by name.
        let Some(last) = left(bottleneck).min_by(|&a, &b| worth(a).total_cmp(&worth(b)).then(b.cmp(&a))) else {
            break;
        };
        let scale = weights[last] / load_at(last, bottleneck as u32);
        for app in left(bottleneck).filter(|&app| app != last).collect::<Vec<_>>() {
            weights[app] = (weights[app] - scale * load_at(app, bottleneck as u32)).max(0.0);
        }
        for (&target, load) in members.targets_of(last).iter().zip(&loads[last]) {
            totals[target as usize] -= load;
        }
        is_ordered[last] = true;
        backwards.push(last);
    }
    backwards.reverse();
    backwards
}

impl FromStr for Order {
    type Err = ParseOrderError;
    fn from_str(text: &str) -> Result<Self, ParseOrderError> {
        [Self::Bottleneck, Self::Attained, Self::Slowdown, Self::Bssf]
            .into_iter()
            .find(|order| order.to_string() == text)
            .ok_or_else(|| ParseOrderError(text.to_owned()))
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bottleneck => "bottleneck",
            Self::Attained => "attained",
            Self::Slowdown => "slowdown",
            Self::Bssf => "bssf",
        })
    }
}
