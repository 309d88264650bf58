//! How many accounts a user has at most. A job's title is a claim, so without a bound one user could make any number of them.
//!
//! Those that are owed nothing are forgotten first, of these those whose jobs are not there, and of these those for which
//! nothing has happened for the longest time, as far as the present controller has seen. A user all of whose accounts are
//! owed something gets no further one: his other applications are not throttled, so that nothing is owed to them.

use super::{By, Plan};
use crate::kept::Change;
use isonomia_allocation::Scheme;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Accounts of one user at most.
pub const ACCOUNTS_PER_USER_MAX: usize = 1_024;

impl Plan {
    /// Accounts that jobs of users would need who have as many as they may, and none that can be forgotten.
    pub(super) fn without_room(&self) -> BTreeSet<Arc<str>> {
        let mut without = BTreeSet::new();
        let is_full = |user: &Arc<str>| self.accounts.get(user).is_some_and(|count| *count >= ACCOUNTS_PER_USER_MAX);
        if self.by.is_gift() && self.accounts.values().any(|count| *count >= ACCOUNTS_PER_USER_MAX) {
            let mut room: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
            for job in self.joined.iter().filter(|job| is_full(&job.info.user)) {
                let account = &job.account;
                if self.kept.accounts.contains_key(account) || without.contains(account) {
                    continue;
                }
                let user = &job.info.user;
                match room.entry(user).or_insert_with(|| self.forgettable(user).len()) {
                    0 => _ = without.insert(account.clone()),
                    room => *room -= 1,
                }
            }
        }
        without
    }

    /// Accounts of `user` that may be forgotten, in this order.
    fn forgettable(&self, user: &str) -> Vec<Arc<str>> {
        let idle = self.kept.accounts.iter().filter(|(name, account)| {
            let record = &account.record;
            let is_present = || self.joined.owner(name).is_some();
            &*account.user == user && record.issued == record.redeemed + record.compensated && !is_present()
        });
        let mut idle: Vec<Arc<str>> = idle.map(|(name, _)| name.clone()).collect();
        idle.sort_by_key(|name| self.touched.get(name));
        idle
    }

    /// Has `user` no more accounts than it may have.
    pub(super) fn forget_some(&mut self, user: &Arc<str>, changes: &mut Vec<Change>) {
        let count = self.accounts.get(user).copied().unwrap_or(0);
        let surplus = count.saturating_sub(ACCOUNTS_PER_USER_MAX);
        if surplus == 0 {
            return;
        }
        for name in self.forgettable(user).into_iter().take(surplus) {
            let By::Rates(Scheme::Gift(gift)) = &mut self.by else { return };
            if gift.forget(&name) {
                self.kept.remove_account(&name, changes);
                self.touched.remove(&name);
                self.accounts.entry(user.clone()).and_modify(|count| *count -= 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{decided, standing};
    use super::*;
    use crate::kept::{AccountKept, Kept};
    use isonomia_allocation::{AccountRecord, Coupons};
    use isonomia_units::Nanos;

    /// A user with as many accounts as he may have: one that is owed nothing goes for a new one, and if there is none, his new
    /// application is not throttled.
    #[test]
    fn accounts_of_a_user_are_bounded() {
        let full = |outstanding: u64| {
            let lots = if outstanding > 0 { vec![(0, outstanding)] } else { Vec::new() };
            let record = AccountRecord { issued: 5, redeemed: 5 - outstanding, lots, ..Default::default() };
            let account = AccountKept { record, user: "ada".into(), group: "astro".into() };
            let name = |at: usize| Arc::from(format!("user=ada job={at:04}"));
            let accounts = (0..ACCOUNTS_PER_USER_MAX).map(|at| (name(at), account.clone())).collect();
            Kept { accounts, ..Kept::default() }
        };
        let decide = |kept: Kept| {
            let policy = "gift{throttle=0.3}".parse().unwrap();
            let mut plan = Plan::new(&policy, Nanos::from_secs(10), kept).unwrap().unwrap();
            let decided = decided(&mut plan, 1, &[standing(&[("A", 0, 0), ("B", 0, 0)]), standing(&[("B", 16, 0)])]);
            (decided.issued, decided.changes.iter().filter(|(_, value)| value.is_none()).count(), plan)
        };
        let (issued, forgotten, plan) = decide(full(0));
        assert_eq!((issued, forgotten, plan.kept().accounts.len()), (Coupons(150_000), 1, ACCOUNTS_PER_USER_MAX));
        assert!(!plan.kept().accounts.contains_key("user=ada job=0000"), "the first of those that nothing happened to");
        assert_eq!(plan.gift().unwrap().ledger().balances().count(), ACCOUNTS_PER_USER_MAX);
        let (issued, forgotten, plan) = decide(full(1));
        assert_eq!((issued, forgotten, plan.kept().accounts.len()), (Coupons(0), 0, ACCOUNTS_PER_USER_MAX));
    }
}
