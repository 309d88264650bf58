//! The simple throttling schemes that GIFT is compared with: TSA, ESA, TMF, and RND.
//!
//! Each throttles some applications by a fixed part of their fair share, whether that is of use or not, and
//! divides what is left among the others as [`bsip`](crate::bsip) would. There are no coupons.
//!
//! GIFT §4 names the schemes and hardly more; the mechanism follows the published prototype, which compares with the
//! mean. Deviations from it: at exactly the mean nobody is throttled (it throttles everybody under TSA when all are
//! of one size); TMF counts runs, not decision intervals; RND's generator is seeded once, not at every decision.

use crate::fair::bsip_shares;
use crate::{Allocation, Problem};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Whom to throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// TSA, throttle small applications: those at fewer targets than the mean.
    Small,
    /// ESA, expand small applications: throttle those at more targets than the mean.
    Large,
    /// TMF, throttle the most frequent applications: those that have run more often than the mean.
    MostFrequent,
    /// RND, throttle randomly: each application with probability ½, anew at each decision.
    Random,
}

/// A [`Rule`] at work.
#[derive(Clone, Debug)]
pub struct RuleThrottle {
    rule: Rule,
    b_thres: f64,
    chance: Pcg64Mcg,
}

impl RuleThrottle {
    /// Throttles by `b_thres`, clamped to 0..=1, of the fair share; `seed` matters to [`Rule::Random`] only.
    pub fn new(rule: Rule, b_thres: f64, seed: u64) -> Self {
        Self { rule, b_thres: b_thres.clamp(0.0, 1.0), chance: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// One decision. O(d) for d demands.
    pub fn decide(&mut self, problem: &Problem) -> Allocation {
        let is_throttled = self.throttled(problem);
        let fair = bsip_shares(problem);
        let mut left = problem.targets().capacities().to_vec();
        let mut weight_left = vec![0.0; left.len()];
        let mut shares = fair.clone();
        for (app, targets) in problem.members.by_app().enumerate() {
            if is_throttled[app] {
                shares[app] *= 1.0 - self.b_thres;
            }
            for &target in targets {
                if is_throttled[app] {
                    left[target as usize] -= shares[app];
                } else {
                    weight_left[target as usize] += problem.apps()[app].weight;
                }
            }
        }
        for (app, targets) in problem.members.by_app().enumerate().filter(|(app, _)| !is_throttled[*app]) {
            let weight = problem.apps()[app].weight;
            let at = |&target: &u32| left[target as usize] * weight / weight_left[target as usize];
            shares[app] = targets.iter().map(at).fold(f64::INFINITY, f64::min);
        }
        Allocation::synchronous(problem, &shares, &fair)
    }

    fn throttled(&mut self, problem: &Problem) -> Vec<bool> {
        let apps = problem.apps();
        let mean = |count: fn(&crate::App) -> f64| apps.iter().map(count).sum::<f64>() / apps.len() as f64;
        let width = |app: &crate::App| app.demands.len() as f64;
        let runs = |app: &crate::App| app.runs as f64;
        match self.rule {
            Rule::Small => {
                let mean = mean(width);
                apps.iter().map(|app| width(app) < mean).collect()
            }
            Rule::Large => {
                let mean = mean(width);
                apps.iter().map(|app| width(app) > mean).collect()
            }
            Rule::MostFrequent => {
                let mean = mean(runs);
                apps.iter().map(|app| runs(app) > mean).collect()
            }
            Rule::Random => apps.iter().map(|_| self.chance.random()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, Targets};
    use std::sync::Arc;

    /// GIFT Fig. 6, k1: A at one target, B there and at another.
    fn narrow_and_wide(runs_of_b: u64) -> Problem {
        let targets = Arc::new(Targets::new([("t1", 1.0), ("t2", 1.0)]).unwrap());
        let a = App::at("A", &targets, &["t1"]).unwrap();
        let b = App { runs: runs_of_b, ..App::at("B", &targets, &["t1", "t2"]).unwrap() };
        Problem::new(targets, vec![a, b]).unwrap()
    }

    fn shares(rule: Rule, problem: &Problem) -> [f64; 2] {
        let allocation = RuleThrottle::new(rule, 0.3, 7).decide(problem);
        [allocation.app("A").unwrap().share, allocation.app("B").unwrap().share]
    }

    #[test]
    fn who_is_throttled_depends_on_the_rule() {
        assert_eq!(shares(Rule::Small, &narrow_and_wide(1)), [0.35, 0.65]);
        assert_eq!(shares(Rule::Large, &narrow_and_wide(1)), [0.65, 0.35]);
        assert_eq!(shares(Rule::MostFrequent, &narrow_and_wide(1)), [0.5, 0.5]);
        assert_eq!(shares(Rule::MostFrequent, &narrow_and_wide(5)), [0.65, 0.35]);
    }

    #[test]
    fn chance_goes_on_from_decision_to_decision() {
        let problem = narrow_and_wide(1);
        let mut throttle = RuleThrottle::new(Rule::Random, 0.3, 7);
        let mut again = throttle.clone();
        let decisions: Vec<Allocation> = (0..32).map(|_| throttle.decide(&problem)).collect();
        assert!(decisions.iter().all(|decision| *decision == again.decide(&problem)));
        let share = |decision: &Allocation| decision.app("A").unwrap().share.to_bits();
        let kinds: std::collections::BTreeSet<u64> = decisions.iter().map(share).collect();
        assert_eq!(kinds.len(), 3, "throttled alone, expanded, and with B or neither at 0.35 and 0.5");
    }
}
