//! The coupons' ledger: what was issued, redeemed, compensated, and is outstanding, and how well it is redeemed.
//!
//! Always and for every account, issued = redeemed + outstanding + compensated. Coupons are redeemed in the order
//! in which they were issued.

use crate::Coupons;
use isonomia_units::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Add, AddAssign, Sub};
use std::sync::Arc;

/// Compute time of nodes, in node-nanoseconds: the currency of regret (GIFT §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTime(pub u128);

/// What one account was paid at the end of a regret period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compensation {
    /// The account: an application or a user.
    pub account: Arc<str>,
    /// The coupons that were outstanding.
    pub coupons: Coupons,
    /// What was given for them.
    pub node_time: NodeTime,
}

/// Coupons and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Coupons issued.
    pub issued: Coupons,
    /// Coupons redeemed with bandwidth.
    pub redeemed: Coupons,
    /// Coupons compensated with node time.
    pub compensated: Coupons,
    /// Coupons still owed.
    pub outstanding: Coupons,
    /// What the outstanding coupons would be compensated with.
    pub regret: NodeTime,
    /// Node time given so far.
    pub paid: NodeTime,
}

/// The accounts of all applications, or users, that ever had coupons. As many as there are names.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub(super) window: u64,
    pub(super) accounts: BTreeMap<Arc<str>, Account>,
    pub(super) total: Balance,
    pub(super) system: SystemWindow,
    /// Accounts that have changed since they were last kept.
    pub(super) changed: BTreeSet<Arc<str>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) balance: Balance,
    /// The coupons, by their number in the account's issues, that were compensated: one range a regret period.
    pub(super) lapsed: VecDeque<(u64, u64)>,
    /// The outstanding coupons: the system's lot that each belongs to, oldest first. What has left the system's window is
    /// one lot.
    pub(super) lots: VecDeque<(u64, u64)>,
}

/// The last coupons issued to anybody since the regret period began (GIFT §3.2, system-level receding window).
#[derive(Clone, Debug)]
pub(super) struct SystemWindow {
    length: u64,
    pub(super) lots: VecDeque<SystemLot>,
    /// The number of the first lot in `lots`.
    pub(super) first: u64,
    issued: u64,
    unredeemed: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SystemLot {
    pub(super) issued: u64,
    pub(super) unredeemed: u64,
}

/// Coupons of before this period: they are in no lot of the system's.
const NO_LOT: u64 = u64::MAX;

impl NodeTime {
    /// `n` node-hours.
    pub const fn from_node_hours(n: u64) -> Self {
        Self(n as u128 * 3_600_000_000_000)
    }

    /// In node-hours, for display and statistics.
    pub fn node_hours(self) -> f64 {
        self.0 as f64 / 3.6e12
    }

    /// What `coupons` are worth to an application with `nodes` nodes and `width` targets: the time by which its I/O
    /// was delayed, bandwidth·time over the number of targets, for all its nodes. Rounded up.
    pub fn of_coupons(coupons: Coupons, interval: Nanos, nodes: u32, width: usize) -> Self {
        let target_time = u128::from(coupons.0) * u128::from(interval.0) * u128::from(nodes);
        Self(target_time.div_ceil(u128::from(Coupons::TARGET.0) * width.max(1) as u128))
    }
}

impl Add for NodeTime {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for NodeTime {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sub for NodeTime {
    type Output = Self;
    /// Saturates at zero.
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl Balance {
    /// Whether nothing was lost or made up.
    pub fn is_conserved(&self) -> bool {
        self.issued == self.redeemed + self.outstanding + self.compensated
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.issued += other.issued;
        self.redeemed += other.redeemed;
        self.compensated += other.compensated;
        self.outstanding += other.outstanding;
        self.regret += other.regret;
        self.paid += other.paid;
    }

    fn subtract(&mut self, other: &Self) {
        self.issued = self.issued - other.issued;
        self.redeemed = self.redeemed - other.redeemed;
        self.compensated = self.compensated - other.compensated;
        self.outstanding = self.outstanding - other.outstanding;
        self.regret = self.regret - other.regret;
        self.paid = self.paid - other.paid;
    }

    fn issue(&mut self, coupons: Coupons, worth: NodeTime) {
        self.issued += coupons;
        self.outstanding += coupons;
        self.regret += worth;
    }

    fn redeem(&mut self, coupons: Coupons, worth: NodeTime) {
        self.redeemed += coupons;
        self.outstanding = self.outstanding - coupons;
        self.regret = self.regret - worth;
    }

    fn compensate(&mut self, coupons: Coupons, worth: NodeTime) {
        self.compensated += coupons;
        self.outstanding = self.outstanding - coupons;
        self.regret = self.regret - worth;
        self.paid += worth;
    }
}

impl Ledger {
    /// An empty ledger whose windows are so many coupons long.
    pub(super) fn new(window: Coupons, system_window: Coupons) -> Self {
        let system =
            SystemWindow { length: system_window.0, lots: VecDeque::new(), first: 0, issued: 0, unredeemed: 0 };
        let (accounts, changed) = (BTreeMap::new(), BTreeSet::new());
        Self { window: window.0, accounts, total: Balance::default(), system, changed }
    }

    /// All accounts together.
    pub fn total(&self) -> &Balance {
        &self.total
    }

    /// The account called `name`; all zeros if it never had coupons.
    pub fn balance(&self, name: &str) -> Balance {
        self.accounts.get(name).map_or_else(Balance::default, |account| account.balance)
    }

    /// Every account with its name, in their order.
    pub fn balances(&self) -> impl Iterator<Item = (&Arc<str>, &Balance)> {
        self.accounts.iter().map(|(name, account)| (name, &account.balance))
    }

    /// The part of the last N coupons issued to the account that it has redeemed (GIFT §3.2, c_i = n_i / N).
    ///
    /// Coupons that were compensated were not redeemed. With fewer than N issued, the missing ones count as redeemed:
    /// otherwise nobody could ever be throttled a first time.
    pub fn redemption_rate(&self, name: &str) -> f64 {
        self.accounts.get(name).map_or(1.0, |account| account.redemption_rate(self.window))
    }

    /// The same for the last N coupons issued to anybody in this regret period.
    pub fn system_redemption_rate(&self) -> f64 {
        self.system.redemption_rate()
    }

    /// Issues coupons; `worth` is what they are compensated with if they are never redeemed.
    pub(super) fn issue(&mut self, name: &Arc<str>, coupons: Coupons, worth: NodeTime) {
        let lot = self.system.issue(coupons.0);
        self.enter(name, coupons, worth, lot);
    }

    /// Coupons of an earlier period, which the system's window does not see.
    pub(super) fn carry(&mut self, name: &Arc<str>, coupons: Coupons, worth: NodeTime) {
        self.enter(name, coupons, worth, NO_LOT);
    }

    fn enter(&mut self, name: &Arc<str>, coupons: Coupons, worth: NodeTime, lot: u64) {
        let account = self.accounts.entry(name.clone()).or_default();
        account.balance.issue(coupons, worth);
        account.lots.push_back((lot, coupons.0));
        account.forget(self.window);
        account.merge_lots(self.system.first);
        self.total.issue(coupons, worth);
        self.changed.insert(name.clone());
    }

    /// Redeems `coupons`, or as many as are outstanding; gives how many.
    ///
    /// The regret goes down by their part of the account's: its coupons are worth the same among each other.
    pub(super) fn redeem(&mut self, name: &str, coupons: Coupons) -> Coupons {
        let Some(account) = self.accounts.get_mut(name) else { return Coupons(0) };
        let outstanding = account.balance.outstanding;
        let coupons = coupons.min(outstanding);
        if coupons == Coupons(0) {
            return coupons;
        }
        self.changed.insert(name.into());
        let worth = NodeTime(account.balance.regret.0 * u128::from(coupons.0) / u128::from(outstanding.0));
        account.balance.redeem(coupons, worth);
        self.total.redeem(coupons, worth);
        account.take_oldest(coupons.0, |lot, taken| self.system.redeem(lot, taken));
        coupons
    }

    /// Forgets an account that is owed nothing, with its history; whether there was one.
    pub(super) fn forget(&mut self, name: &str) -> bool {
        if self.balance(name).outstanding > Coupons(0) {
            return false;
        }
        let Some(account) = self.accounts.remove(name) else { return false };
        self.total.subtract(&account.balance);
        self.changed.remove(name);
        true
    }

    /// Ends the regret period: all that is outstanding is compensated, and the system's window begins anew.
    ///
    /// There may be more of it than the budget has, if that was larger when the coupons were issued. Then each account gets the same
    /// part of what it is owed, its oldest coupons, and the rest stays outstanding.
    pub(super) fn assess(&mut self, budget: Option<NodeTime>) -> Vec<Compensation> {
        let owed = self.total.regret;
        let too_little = budget.filter(|budget| *budget < owed);
        let mut paid = Vec::new();
        for (name, account) in &mut self.accounts {
            let Balance { outstanding, regret, issued, .. } = account.balance;
            // Rounded down, both: all together never cost more.
            let (coupons, node_time) = match too_little {
                Some(budget) => {
                    let coupons = u128::from(outstanding.0).saturating_mul(budget.0) / owed.0;
                    (
                        Coupons(coupons as u64),
                        NodeTime(regret.0.saturating_mul(coupons) / u128::from(outstanding.0.max(1))),
                    )
                }
                None => (outstanding, regret),
            };
            if coupons > Coupons(0) {
                let first = (issued - outstanding).0;
                account.lapsed.push_back((first, first + coupons.0));
                account.take_oldest(coupons.0, |_, _| {});
                account.forget(self.window);
                account.balance.compensate(coupons, node_time);
                self.total.compensate(coupons, node_time);
                self.changed.insert(name.clone());
                paid.push(Compensation { account: name.clone(), coupons, node_time });
            }
        }
        self.system.reset();
        paid
    }
}

impl Account {
    /// So many of the outstanding coupons, the oldest first, are so no more: `each` is told of which lot how many.
    fn take_oldest(&mut self, count: u64, mut each: impl FnMut(u64, u64)) {
        let mut left = count;
        while let Some((lot, outstanding)) = self.lots.front_mut().filter(|_| left > 0) {
            let taken = left.min(*outstanding);
            each(*lot, taken);
            *outstanding -= taken;
            left -= taken;
            if *outstanding == 0 {
                self.lots.pop_front();
            }
        }
    }

    fn redemption_rate(&self, window: u64) -> f64 {
        let begin = self.balance.issued.0.saturating_sub(window);
        let lapsed: u64 = self.lapsed.iter().map(|&(from, to)| to.saturating_sub(from.max(begin))).sum();
        let unredeemed = (lapsed + self.balance.outstanding.0).min(window);
        1.0 - unredeemed as f64 / window as f64
    }

    /// Makes one lot of those that are before the system's lot `first`.
    fn merge_lots(&mut self, first: u64) {
        let is_outside = |lot: u64| lot == NO_LOT || lot < first;
        while let (Some(&(oldest, count)), Some(&(next, more))) = (self.lots.front(), self.lots.get(1))
            && is_outside(oldest)
            && is_outside(next)
        {
            self.lots.pop_front();
            self.lots[0] = (NO_LOT, count + more);
        }
    }

    /// Drops what has left the window.
    pub(super) fn forget(&mut self, window: u64) {
        let begin = self.balance.issued.0.saturating_sub(window);
        while self.lapsed.front().is_some_and(|&(_, to)| to <= begin) {
            self.lapsed.pop_front();
        }
    }
}

impl SystemWindow {
    /// Adds a lot and gives its number.
    pub(super) fn issue(&mut self, coupons: u64) -> u64 {
        self.lots.push_back(SystemLot { issued: coupons, unredeemed: coupons });
        self.issued += coupons;
        self.unredeemed += coupons;
        let number = self.first + self.lots.len() as u64 - 1;
        while let Some(oldest) = self.lots.front().copied().filter(|oldest| self.issued - oldest.issued >= self.length)
        {
            self.issued -= oldest.issued;
            self.unredeemed -= oldest.unredeemed;
            self.lots.pop_front();
            self.first += 1;
        }
        number
    }

    pub(super) fn redeem(&mut self, lot: u64, coupons: u64) {
        let at = lot.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(lot) = at.and_then(|at| self.lots.get_mut(at)) {
            // Records that were not written together may say that more was redeemed than issued.
            let coupons = coupons.min(lot.unredeemed);
            lot.unredeemed -= coupons;
            self.unredeemed -= coupons;
        }
    }

    fn redemption_rate(&self) -> f64 {
        // Of the oldest lot, a part may have left the window: its first coupons, which are the first redeemed.
        let outside = self.issued.saturating_sub(self.length);
        let oldest = self.lots.front();
        let stuck = oldest.map_or(0, |lot| lot.unredeemed.saturating_sub(lot.issued - outside));
        1.0 - (self.unredeemed - stuck) as f64 / self.length as f64
    }

    fn reset(&mut self) {
        self.first += self.lots.len() as u64;
        self.lots.clear();
        self.issued = 0;
        self.unredeemed = 0;
    }
}
