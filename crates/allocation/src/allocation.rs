//! What a scheme decides: a rate for each application at each of its targets.

use crate::fair::bsip_shares;
use crate::{Problem, TargetIndex, Targets};
use std::ops::{Add, AddAssign, Sub};
use std::sync::Arc;

/// Coupons: bandwidth owed, in millionths of one target for one decision interval (GIFT §3.2; the size of one is
/// the published prototype's).
///
/// An application with s targets that is throttled by the share d is owed s·d targets. Integers, so that the
/// ledger is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Coupons(pub u64);

/// How the progress of an application is counted when its targets serve it at different rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Progress {
    /// It goes on at the rate of its slowest target, and what the others give beyond that is wasted (GIFT §2).
    #[default]
    MinRate,
    /// A target that runs ahead has its part done sooner; nothing it gives is wasted.
    Banked,
}

/// What one application gets.
#[derive(Clone, Debug, PartialEq)]
pub struct AppAllocation {
    /// The application.
    pub name: Arc<str>,
    /// Its share of one target under synchronous progress: the least of its rates.
    pub share: f64,
    /// What it would get under [`bsip`](crate::bsip).
    pub fair_share: f64,
    /// Coupons issued to it in this decision.
    pub coupon_issued: Coupons,
    /// Coupons of its that this decision redeems.
    pub coupon_redeemed: Coupons,
}

/// What becomes of one target's bandwidth.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetUse {
    /// The target.
    pub name: Arc<str>,
    /// Bandwidth that contributes to the progress of applications.
    pub used: f64,
    /// The rest of its capacity: idle, or given without use.
    pub wasted: f64,
}

/// Rates of applications at targets, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    targets: Arc<Targets>,
    apps: Vec<AppAllocation>,
    start: Vec<u32>,
    at: Vec<u32>,
    rates: Vec<f64>,
    progress: Progress,
}

/// By how much, as a part, sums of rates may be more than a capacity.
const ROUNDING: f64 = 1e-9;

/// Rates that no targets can give.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RateError {
    /// There is not one for each demand.
    #[error("{rates} rates (allowed: one for each of the {demands} demands)")]
    Count {
        /// How many were given.
        rates: usize,
        /// How many demands there are.
        demands: usize,
    },
    /// One is none.
    #[error("application `{app}`: rate {rate} at target `{target}` (allowed: a number that is not negative)")]
    NoRate {
        /// The application.
        app: Arc<str>,
        /// The target.
        target: Arc<str>,
        /// What was given.
        rate: f64,
    },
    /// A target gives more than it has.
    #[error("target `{target}` gives {given} (allowed: its capacity, {capacity}, at most)")]
    TooMuch {
        /// The target.
        target: Arc<str>,
        /// The sum of its rates.
        given: f64,
        /// What it has.
        capacity: f64,
    },
}

impl Coupons {
    /// Coupons for one whole target.
    pub const TARGET: Self = Self(1_000_000);

    /// The coupons that `targets`, a bandwidth in targets, makes up in full; none for a negative one.
    pub fn from_targets(targets: f64) -> Self {
        // Bandwidths come out of sums of fractions: a coupon that is there but for rounding is there.
        Self((targets * Self::TARGET.0 as f64 + 1e-4).floor() as u64)
    }

    /// The bandwidth, in targets.
    pub fn targets(self) -> f64 {
        self.0 as f64 / Self::TARGET.0 as f64
    }
}

impl Add for Coupons {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Coupons {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sub for Coupons {
    type Output = Self;
    /// Saturates at zero.
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl Allocation {
    /// One share for each application of `problem`, at all of its targets.
    pub(crate) fn synchronous(problem: &Problem, shares: &[f64], fair_shares: &[f64]) -> Self {
        let spread = |(targets, &share): (&[u32], &f64)| std::iter::repeat_n(share, targets.len());
        let rates = problem.members.by_app().zip(shares).flat_map(spread).collect();
        Self::from_rates(problem, rates, fair_shares, Progress::MinRate)
    }

    /// What a scheme of one's own decides: a rate for each demand of `problem`, application by application in the order of
    /// [`Problem::apps`], as a part of the bandwidth that capacities are counted in.
    ///
    /// # Errors
    /// There is not one for each, one is negative or no number, or a target gives more than it has.
    pub fn of_rates(problem: &Problem, rates: Vec<f64>, progress: Progress) -> Result<Self, RateError> {
        let demands = problem.members.app_targets();
        if rates.len() != demands.len() {
            return Err(RateError::Count { rates: rates.len(), demands: demands.len() });
        }
        let targets = problem.targets();
        let mut given = vec![0.0; targets.len()];
        for (app, range) in problem.apps().iter().zip(problem.members.app_start().windows(2)) {
            for at in range[0] as usize..range[1] as usize {
                let (rate, target) = (rates[at], demands[at]);
                if !(rate.is_finite() && rate >= 0.0) {
                    let target = targets.name(TargetIndex(target)).clone();
                    return Err(RateError::NoRate { app: app.name.clone(), target, rate });
                }
                given[target as usize] += rate;
            }
        }
        for (target, given) in targets.iter().zip(given) {
            let capacity = targets.capacity(target);
            if given > capacity * (1.0 + ROUNDING) {
                return Err(RateError::TooMuch { target: targets.name(target).clone(), given, capacity });
            }
        }
        Ok(Self::from_rates(problem, rates, &bsip_shares(problem), progress))
    }

    /// One rate for each demand of `problem`, application by application.
    pub(crate) fn from_rates(problem: &Problem, rates: Vec<f64>, fair_shares: &[f64], progress: Progress) -> Self {
        let start = problem.members.app_start().to_vec();
        let share =
            |range: &[u32]| rates[range[0] as usize..range[1] as usize].iter().copied().fold(f64::INFINITY, f64::min);
        let shares = start.windows(2).map(share);
        let apps =
            problem.apps().iter().zip(shares).zip(fair_shares).map(|((app, share), &fair_share)| AppAllocation {
                name: app.name.clone(),
                share,
                fair_share,
                coupon_issued: Coupons(0),
                coupon_redeemed: Coupons(0),
            });
        Self {
            targets: problem.targets().clone(),
            apps: apps.collect(),
            at: problem.members.app_targets().to_vec(),
            start,
            rates,
            progress,
        }
    }

    pub(crate) fn apps_mut(&mut self) -> &mut [AppAllocation] {
        &mut self.apps
    }

    /// What each application gets, in the order of their names.
    pub fn apps(&self) -> &[AppAllocation] {
        &self.apps
    }

    /// What the application called `name` gets. O(log n).
    pub fn app(&self, name: &str) -> Option<&AppAllocation> {
        self.position(name).map(|at| &self.apps[at])
    }

    /// The rates of the application called `name` at its targets. O(log n).
    pub fn rates(&self, name: &str) -> impl Iterator<Item = (TargetIndex, f64)> {
        let range = match self.position(name) {
            Some(at) => self.start[at] as usize..self.start[at + 1] as usize,
            None => 0..0,
        };
        self.at[range.clone()].iter().map(|&target| TargetIndex(target)).zip(self.rates[range].iter().copied())
    }

    /// The rate of the application called `app` at the target called `target`, 0 where it has nothing to do.
    pub fn rate(&self, app: &str, target: &str) -> f64 {
        let target = self.targets.index(target);
        self.rates(app).find(|(at, _)| Some(*at) == target).map_or(0.0, |(_, rate)| rate)
    }

    /// The rate of the application at this position, in the order of the names, at `target`; 0 where it has nothing to do. O(log
    /// targets of the application).
    pub fn rate_at(&self, app: usize, target: TargetIndex) -> f64 {
        let range = self.start[app] as usize..self.start[app + 1] as usize;
        let at = self.at[range.clone()].binary_search(&target.0);
        at.map_or(0.0, |at| self.rates[range][at])
    }

    /// How progress is counted.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The targets that were allocated.
    pub fn targets(&self) -> &Arc<Targets> {
        &self.targets
    }

    /// What becomes of each target, in the order of their names; a target where no one has anything to do is
    /// wasted whole.
    pub fn target_uses(&self) -> Vec<TargetUse> {
        let mut used = vec![0.0; self.targets.len()];
        for (app, range) in self.apps.iter().zip(self.start.windows(2)) {
            for at in range[0] as usize..range[1] as usize {
                used[self.at[at] as usize] += match self.progress {
                    Progress::MinRate => app.share,
                    Progress::Banked => self.rates[at],
                };
            }
        }
        let use_of = |(target, used): (TargetIndex, f64)| TargetUse {
            name: self.targets.name(target).clone(),
            used,
            wasted: (self.targets.capacity(target) - used).max(0.0),
        };
        self.targets.iter().zip(used).map(use_of).collect()
    }

    /// Bandwidth of all targets that contributes to progress (GIFT §2, effective system I/O bandwidth), in targets.
    pub fn effective_bandwidth(&self) -> f64 {
        match self.progress {
            Progress::MinRate => {
                let width = |range: &[u32]| f64::from(range[1] - range[0]);
                self.apps.iter().zip(self.start.windows(2)).map(|(app, range)| app.share * width(range)).sum()
            }
            Progress::Banked => self.rates.iter().sum(),
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.apps.binary_search_by(|app| app.name.as_ref().cmp(name)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::App;

    #[test]
    fn rates_of_ones_own_are_checked() {
        let targets = Arc::new(Targets::new([("t1", 1.0), ("t2", 2.0)]).unwrap());
        let apps = vec![App::at("A", &targets, &["t1"]).unwrap(), App::at("B", &targets, &["t1", "t2"]).unwrap()];
        let problem = Problem::new(targets, apps).unwrap();
        let of = |rates: &[f64]| Allocation::of_rates(&problem, rates.to_vec(), Progress::Banked);
        let allocation = of(&[0.25, 0.75, 2.0]).unwrap();
        assert_eq!((allocation.rate("B", "t2"), allocation.effective_bandwidth()), (2.0, 3.0));
        let error = |rates: &[f64]| of(rates).unwrap_err().to_string();
        assert_eq!(error(&[0.5]), "1 rates (allowed: one for each of the 3 demands)");
        assert!(error(&[0.5, 0.6, 0.0]).starts_with("target `t1` gives 1.1 (allowed: its capacity, 1,"));
        assert!(error(&[0.5, 0.5, -1.0]).starts_with("application `B`: rate -1 at target `t2`"));
        assert!(error(&[0.5, f64::NAN, 0.0]).starts_with("application `B`: rate NaN at target `t1`"));
    }
}
