//! GIFT: throttle some applications now, so that more bandwidth is of use, and reward them later.
//!
//! [`Gift::decide`] is the paper's Algorithm 1, at the start of each decision interval:
//!
//! 1. Everybody's fair share is the one under [`bsip`](crate::bsip) (line 2).
//! 2. Where that leaves gaps at all targets of an application that is owed coupons, they are redeemed: in part,
//!    in full, several at once; nobody is throttled for it (line 3, §3.3).
//! 3. Throttle-friendly is who redeemed at least τ of the last N coupons issued to it; if the system as a whole did
//!    not, nobody is (lines 4, 5 and 8, §3.2).
//! 4. A linear program gives the shares (line 6, §3.4).
//! 5. Who got less than the fair share gets coupons for the difference (line 7).
//!
//! At the end of each regret period all outstanding coupons are compensated with node time, and the system's window
//! begins anew (§3.2). A period is counted by the time that passes while somebody decides, and what is left of it is kept in the
//! ledger: whoever takes over goes on with that by a clock of his own, whatever time of day he takes it for.
//!
//! Where the paper is silent, and where this deviates:
//!
//! * The window is tested when a decision begins, as Y(k) is defined in §3.2. One decision may so bring the rate
//!   below τ, by what `b_thres` allows at most.
//! * With fewer than N coupons issued, the missing ones count as redeemed ([`Ledger::redemption_rate`]).
//! * A compensated coupon was not redeemed: it stays in its account's window until N newer ones push it out.
//! * Several applications share a gap by progressive filling, in coupons for their weight. The paper gives no order.
//! * Whoever redeems coupons is not throttled in the same decision.
//! * With a budget, throttling is reduced for everybody by one factor as soon as the node time that would be owed
//!   could exceed it; so what a regret period costs never does. If the budget is made smaller than what is owed already, a period pays
//!   as much as it has, the same part to everybody, and the rest is owed on.
//! * The choice among the program's optima, and constraint (3) with "≥": the private module `program` says why.

mod ledger;
mod program;
mod records;

pub use ledger::{Balance, Compensation, Ledger, NodeTime};
pub use records::{AccountRecord, BadLedger, LedgerChanges, SystemRecord};

use crate::fair::bsip_shares;
use crate::filling::fill;
use crate::program::{Matrix, ProgramError, Scratch};
use crate::{Allocation, App, Coupons, Problem};
use isonomia_units::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whose coupons are kept together (GIFT §3.3, last paragraph).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Accounts {
    /// Each application's, by its name.
    #[default]
    ByApp,
    /// Each user's; an application without a user has an account of its own.
    ByUser,
}

/// GIFT's parameters (Table 2) and what surrounds them. The default is the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GiftConfig {
    /// The greatest part of its fair share that an application is throttled by, 0 to 1 (B_thres).
    pub b_thres: f64,
    /// The least redemption rate at which an application, or the system, may be throttled, 0 to 1 (τ).
    pub redemption_rate_min: f64,
    /// The length of an application's receding window (N).
    pub window: Coupons,
    /// The length of the system's receding window.
    pub system_window: Coupons,
    /// The time from one decision to the next, for which a coupon is bandwidth.
    pub interval: Nanos,
    /// The time after which outstanding coupons are compensated.
    pub regret_period: Nanos,
    /// The most node time that one regret period may cost; without limit if `None`.
    pub regret_budget: Option<NodeTime>,
    /// Whose coupons are kept together.
    pub accounts: Accounts,
}

/// A parameter out of its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} {value} (allowed: {allowed})")]
pub struct GiftConfigError {
    name: &'static str,
    value: String,
    allowed: &'static str,
}

/// GIFT with its ledger.
#[derive(Clone, Debug)]
pub struct Gift {
    config: GiftConfig,
    ledger: Ledger,
    /// What is left of the regret period; nothing before it has begun.
    period_left: Option<Nanos>,
    /// What was left by the records.
    kept_left: Option<Nanos>,
    /// When that was last looked at.
    looked_at: Option<Nanos>,
    scratch: Scratch,
}

impl Default for GiftConfig {
    fn default() -> Self {
        Self {
            b_thres: 0.1,
            redemption_rate_min: 0.8,
            // σ = 0.5/√N < 0.001 (§3.2).
            window: Coupons(250_000),
            system_window: Coupons(250_000),
            interval: Nanos::from_secs(10),
            regret_period: Nanos::from_secs(86_400),
            regret_budget: None,
            accounts: Accounts::ByApp,
        }
    }
}

impl GiftConfig {
    fn check(&self) -> Result<(), GiftConfigError> {
        let fail = |name, value: &dyn std::fmt::Display, allowed| {
            Err(GiftConfigError { name, value: value.to_string(), allowed })
        };
        for (name, value) in [("b_thres", self.b_thres), ("redemption_rate_min", self.redemption_rate_min)] {
            if !(0.0..=1.0).contains(&value) {
                return fail(name, &value, "0 to 1");
            }
        }
        for (name, window) in [("window", self.window), ("system_window", self.system_window)] {
            if window == Coupons(0) {
                return fail(name, &0, "at least one coupon");
            }
        }
        for (name, time) in [("interval", self.interval), ("regret_period", self.regret_period)] {
            if time == Nanos::ZERO {
                return fail(name, &0, "a time greater than 0");
            }
        }
        Ok(())
    }

    fn account<'a>(&self, app: &'a App) -> &'a Arc<str> {
        match (self.accounts, &app.user) {
            (Accounts::ByUser, Some(user)) => user,
            _ => &app.name,
        }
    }

    fn worth(&self, app: &App, coupons: Coupons) -> NodeTime {
        NodeTime::of_coupons(coupons, self.interval, app.nodes, app.demands.len())
    }
}

impl Gift {
    /// GIFT with an empty ledger.
    pub fn new(config: GiftConfig) -> Result<Self, GiftConfigError> {
        config.check()?;
        let ledger = Ledger::new(config.window, config.system_window);
        Ok(Self { config, ledger, period_left: None, kept_left: None, looked_at: None, scratch: Scratch::default() })
    }

    /// The parameters.
    pub fn config(&self) -> &GiftConfig {
        &self.config
    }

    /// The accounts.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Takes over coupons that `app` is owed from before.
    pub fn carry(&mut self, app: &App, coupons: Coupons) {
        self.ledger.carry(self.config.account(app), coupons, self.config.worth(app, coupons));
    }

    /// Forgets an account that is owed nothing, so that their number can be bounded; whether there was one. If its application
    /// comes back, it is one without a history: what it did not redeem counts against it no more.
    pub fn forget(&mut self, account: &str) -> bool {
        self.ledger.forget(account)
    }

    /// Ends the regret period if it is over by `now`, and gives what is paid. [`Self::decide`] does so by itself; who
    /// has to act on the payments calls this first.
    ///
    /// The first period begins with the first call of either; a period in which nobody asks ends with the next call. A ledger that
    /// was restored goes on from the first call, or from [`Self::resume`].
    pub fn assess(&mut self, now: Nanos) -> Vec<Compensation> {
        let period = self.config.regret_period;
        let passed = self.looked_at.replace(now).map_or(Nanos::ZERO, |at| now.since(at));
        match self.period_left {
            Some(left) if passed >= left => {
                let beyond = passed.since(left).0 % period.0;
                self.period_left = Some(Nanos(period.0 - beyond));
                self.ledger.assess(self.config.regret_budget)
            }
            Some(left) => {
                self.period_left = Some(left.since(passed));
                Vec::new()
            }
            None => {
                self.period_left = Some(period);
                Vec::new()
            }
        }
    }

    /// Time counts from `now` on.
    pub fn resume(&mut self, now: Nanos) {
        self.looked_at = Some(now);
    }

    /// One decision (Algorithm 1), for the interval that begins `now`.
    ///
    /// Never infeasible, since the fair shares are a solution; an error means that the program's solver gave up, and
    /// then nothing was issued. O(d log d) for d demands if filling the gaps is as good as anything, else a linear
    /// program with a row for each target.
    pub fn decide(&mut self, now: Nanos, problem: &Problem) -> Result<Allocation, ProgramError> {
        self.assess(now);
        let fair = bsip_shares(problem);
        let redeemable = self.redeemable(problem, &fair);
        let width = |app: usize| problem.members.targets_of(app).len() as f64;
        let redeemed: Vec<f64> = redeemable.iter().enumerate().map(|(app, c)| c.targets() / width(app)).collect();
        let mut throttle_max: Vec<f64> = fair.iter().map(|fair| fair * self.config.b_thres).collect();
        let is_system_sound = self.ledger.system_redemption_rate() >= self.config.redemption_rate_min;
        for (app, throttle_max) in throttle_max.iter_mut().enumerate() {
            let may_be_throttled =
                is_system_sound && redeemable[app] == Coupons(0) && self.is_friendly(&problem.apps()[app]);
            if !may_be_throttled {
                *throttle_max = 0.0;
            }
        }
        self.keep_to_budget(problem, &mut throttle_max);
        let inputs = program::Inputs { problem, fair: &fair, redeemed: &redeemed, throttle_max: &throttle_max };
        let shares = program::solve(&inputs, &mut self.scratch)?;

        let mut allocation = Allocation::synchronous(problem, &shares, &fair);
        for (at, (app, entry)) in problem.apps().iter().zip(allocation.apps_mut()).enumerate() {
            let account = self.config.account(app);
            if redeemable[at] > Coupons(0) {
                entry.coupon_redeemed = self.ledger.redeem(account, redeemable[at]);
            }
            let owed = Coupons::from_targets((fair[at] - shares[at]) * width(at));
            if throttle_max[at] > 0.0 && owed > Coupons(0) {
                self.ledger.issue(account, owed, self.config.worth(app, owed));
                entry.coupon_issued = owed;
            }
        }
        Ok(allocation)
    }

    fn is_friendly(&self, app: &App) -> bool {
        let redeems = || self.ledger.redemption_rate(self.config.account(app)) >= self.config.redemption_rate_min;
        app.throttle_friendly.unwrap_or_else(redeems)
    }

    /// The coupons of each application that the gaps under the fair shares have room for (§3.3).
    fn redeemable(&self, problem: &Problem, fair: &[f64]) -> Vec<Coupons> {
        let mut redeemable = vec![Coupons(0); fair.len()];
        let owed = |app: &App| self.ledger.balance(self.config.account(app)).outstanding;
        let mut owing: Vec<usize> = Vec::new();
        // A row for each target and one for each account, which limits what its applications get together.
        let mut room = problem.targets().capacities().to_vec();
        let mut account_rows = BTreeMap::new();
        for (app, targets) in problem.members.by_app().enumerate() {
            targets.iter().for_each(|&target| room[target as usize] -= fair[app]);
        }
        for (at, app) in problem.apps().iter().enumerate() {
            let outstanding = owed(app);
            if outstanding > Coupons(0) {
                owing.push(at);
                account_rows.entry(self.config.account(app)).or_insert_with(|| {
                    room.push(outstanding.targets());
                    room.len() as u32 - 1
                });
            }
        }
        if owing.is_empty() {
            return redeemable;
        }
        let column = |&at: &usize| {
            let targets = problem.members.targets_of(at);
            let account = account_rows[self.config.account(&problem.apps()[at])];
            targets.iter().map(|&target| (target, 1.0)).chain([(account, targets.len() as f64)])
        };
        let matrix = Matrix::new(room.len(), owing.iter().map(column));
        let weights: Vec<f64> = owing.iter().map(|&at| problem.apps()[at].weight).collect();
        let mut extra = vec![0.0; owing.len()];
        fill(&matrix, &mut room, &weights, &mut extra);
        // Rounding may make up one coupon too many; the account has the last word.
        let mut left: BTreeMap<&Arc<str>, Coupons> = BTreeMap::new();
        for (&at, extra) in owing.iter().zip(extra) {
            let app = &problem.apps()[at];
            let left = left.entry(self.config.account(app)).or_insert_with(|| owed(app));
            redeemable[at] = Coupons::from_targets(extra * app.demands.len() as f64).min(*left);
            *left = *left - redeemable[at];
        }
        redeemable
    }

    /// Reduces what each may be throttled by, so that the regret stays within the budget even if all of it is used.
    fn keep_to_budget(&self, problem: &Problem, throttle_max: &mut [f64]) {
        let Some(budget) = self.config.regret_budget else { return };
        let left = budget - self.ledger.total().regret;
        let mut worst = NodeTime(0);
        let mut rounding = NodeTime(0);
        for (app, throttle_max) in problem.apps().iter().zip(throttle_max.iter()).filter(|(_, max)| **max > 0.0) {
            worst += self.config.worth(app, Coupons::from_targets(throttle_max * app.demands.len() as f64));
            rounding += self.config.worth(app, Coupons(2));
        }
        if worst + rounding > left {
            let factor = (left - rounding).0 as f64 / (worst.0 as f64).max(1.0);
            throttle_max.iter_mut().for_each(|max| *max *= factor.min(1.0) * (1.0 - 1e-9));
        }
    }
}
