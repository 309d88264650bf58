//! What a scheme decides: a rate for each application at each of its targets.

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
