//! Token buckets (TBF) in the fluid limit: each target serves every class at its rate, as far as it can.

use crate::fair::bsip_shares;
use crate::{Allocation, Problem, Progress};

/// What Lustre's token bucket filter gives when every class always has requests, with proportional sharing of the
/// spare bandwidth (PSSB), so that it is work-conserving, and with hard token compensation (HTC).
///
/// At a target of capacity C whose classes have rates that sum to R:
/// * R ≤ C: every class gets its rate times C/R (PSSB).
/// * R > C: the hard classes ([`App::is_hard`](crate::App::is_hard)) keep their rates, since a late class is served
///   until its debt is paid, and the others share what is left in proportion to theirs. Hard classes that are too
///   much by themselves share C in proportion.
///
/// The class of an application without a rule has its weight as its rate; if nobody has one, that is POFS. TBF knows
/// nothing of an application's other targets, which is why GIFT §3.5 finds it unfair; `progress` says how that is
/// counted. O(d) for d demands. Source: the definitions of Qian et al. (SC'17) as GIFT's and ThemisIO's baselines
/// use them; the request-level buckets are an arbiter's matter.
pub fn token_bucket(problem: &Problem, progress: Progress) -> Allocation {
    let capacities = problem.targets().capacities();
    let rate_of = |app: usize| {
        let app = &problem.apps()[app];
        app.rate.unwrap_or(app.weight)
    };
    let (mut hard, mut soft) = (vec![0.0; capacities.len()], vec![0.0; capacities.len()]);
    for (app, targets) in problem.members.by_app().enumerate() {
        let sums = if problem.apps()[app].is_hard { &mut hard } else { &mut soft };
        for &target in targets {
            sums[target as usize] += rate_of(app);
        }
    }
    let mut rates = Vec::with_capacity(problem.members.app_targets().len());
    for (app, targets) in problem.members.by_app().enumerate() {
        rates.extend(targets.iter().map(|&target| {
            let (capacity, hard, soft) = (capacities[target as usize], hard[target as usize], soft[target as usize]);
            let scale = if hard + soft <= capacity {
                capacity / (hard + soft)
            } else if problem.apps()[app].is_hard {
                (capacity / hard).min(1.0)
            } else {
                (capacity - hard).max(0.0) / soft
            };
            rate_of(app) * scale
        }));
    }
    Allocation::from_rates(problem, rates, &bsip_shares(problem), progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, Targets};
    use std::sync::Arc;

    fn rates(classes: &[(f64, bool)]) -> Vec<f64> {
        let targets = Arc::new(Targets::new([("t", 1.0)]).unwrap());
        let app = |(at, &(rate, is_hard)): (usize, &(f64, bool))| {
            let app = App::at(format!("a{at}"), &targets, &["t"]).unwrap();
            App { rate: Some(rate), is_hard, ..app }
        };
        let apps = classes.iter().enumerate().map(app).collect();
        let problem = Problem::new(targets.clone(), apps).unwrap();
        token_bucket(&problem, Progress::MinRate).apps().iter().map(|app| app.share).collect()
    }

    #[test]
    fn spare_bandwidth_is_shared_in_proportion() {
        assert_eq!(rates(&[(0.1, false), (0.3, true)]), [0.25, 0.75]);
        assert_eq!(rates(&[(0.2, false)]), [1.0]);
    }

    #[test]
    fn hard_classes_keep_their_rates_when_it_is_too_much() {
        assert_eq!(rates(&[(0.75, true), (0.5, false), (1.5, false)]), [0.75, 0.0625, 0.1875]);
        assert_eq!(rates(&[(1.0, true), (3.0, true), (1.0, false)]), [0.25, 0.75, 0.0]);
    }
}
