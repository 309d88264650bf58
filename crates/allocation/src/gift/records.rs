//! The ledger as it is kept: one record for each account, and one for what concerns all of them.
//!
//! Whoever keeps the records writes those that [`Gift::take_changes`] gives together, all or none; then what is read
//! after a stop at any moment is the ledger as it was after some decision, and [`Gift::restore`] goes on from there.

use super::ledger::{Account, Ledger, SystemWindow};
use super::{Balance, Gift, GiftConfig, GiftConfigError, NodeTime};
use crate::Coupons;
use isonomia_units::Nanos;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What is left of a regret period is kept whenever such a part of it has passed: a take-over loses no more.
const KEPT_STEPS: u64 = 256;
/// Lots of all time. At one for each decision, ten times a second, they last for 29 billion years.
const NUMBERS_MAX: u64 = u64::MAX / 2;

/// One account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// Coupons issued.
    pub issued: u64,
    /// Coupons redeemed.
    pub redeemed: u64,
    /// Coupons compensated.
    pub compensated: u64,
    /// What the outstanding ones are worth, in node-nanoseconds.
    pub regret: u128,
    /// Node-nanoseconds given so far.
    pub paid: u128,
    /// Ranges of coupons, by their numbers among those issued, that were compensated.
    pub lapsed: Vec<(u64, u64)>,
    /// The outstanding coupons by the system's lots, oldest first: the lot's number, and how many.
    pub lots: Vec<(u64, u64)>,
}

/// What concerns all accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemRecord {
    /// The lots in the system's window, oldest first: coupons issued, and how many of these were not redeemed.
    pub lots: Vec<(u64, u64)>,
    /// The number of the first of them.
    pub first: u64,
    /// What is left of the regret period in nanoseconds; nothing before the first one.
    pub period_left_ns: Option<u64>,
}

/// Records that have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerChanges {
    /// Accounts, by name.
    pub accounts: Vec<(Arc<str>, AccountRecord)>,
    /// What concerns all, if it has changed.
    pub system: Option<SystemRecord>,
}

/// Records that are no ledger.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadLedger {
    /// An account has lost or made up coupons.
    #[error(
        "account `{account}`: {issued} coupons issued, {redeemed} redeemed, {compensated} compensated, and {lots} in lots \
         (allowed: the lots have what is outstanding)"
    )]
    NotConserved {
        /// The account.
        account: Arc<str>,
        /// Coupons issued.
        issued: u64,
        /// Coupons redeemed.
        redeemed: u64,
        /// Coupons compensated.
        compensated: u64,
        /// Coupons in lots.
        lots: u64,
    },
    /// An account has compensated coupons that it was never issued, or one twice.
    #[error("account `{account}`: coupons {from} to {to} of {issued} were compensated, after those before {before}")]
    NotIssued {
        /// The account.
        account: Arc<str>,
        /// The first of a range of coupons,
        from: u64,
        /// and the one behind it.
        to: u64,
        /// Coupons issued.
        issued: u64,
        /// The end of the range before.
        before: u64,
    },
    /// The system's window has lost or made up coupons.
    #[error("the system's window: {issued} coupons issued in lot {lot}, and {unredeemed} of them not redeemed")]
    BadWindow {
        /// The number of the lot.
        lot: u64,
        /// Coupons issued.
        issued: u64,
        /// Those that were not redeemed.
        unredeemed: u64,
    },
    /// A parameter is out of its range.
    #[error(transparent)]
    Config(#[from] GiftConfigError),
}

impl AccountRecord {
    /// Its balance; `None` if coupons were lost or made up.
    pub fn balance(&self) -> Option<Balance> {
        let outstanding = self.issued.checked_sub(self.redeemed)?.checked_sub(self.compensated)?;
        let lots = self.lots.iter().try_fold(0_u64, |sum, (_, count)| sum.checked_add(*count))?;
        (lots == outstanding).then_some(Balance {
            issued: Coupons(self.issued),
            redeemed: Coupons(self.redeemed),
            compensated: Coupons(self.compensated),
            outstanding: Coupons(outstanding),
            regret: NodeTime(self.regret),
            paid: NodeTime(self.paid),
        })
    }
}

impl Gift {
    /// GIFT with the ledger that these records are.
    ///
    /// # Errors
    /// A parameter is out of its range, or an account or the system's window has lost or made up coupons.
    pub fn restore(
        config: GiftConfig,
        accounts: impl IntoIterator<Item = (Arc<str>, AccountRecord)>,
        system: Option<SystemRecord>,
    ) -> Result<Self, BadLedger> {
        let mut gift = Self::new(config)?;
        if let Some(system) = system {
            // One that was kept under a longer period ends with the present one at the latest.
            gift.period_left = system.period_left_ns.map(|left| Nanos(left).min(config.regret_period));
            gift.kept_left = gift.period_left;
            gift.ledger.system.restore(&system)?;
        }
        for (name, record) in accounts {
            gift.ledger.enter_record(name, &record)?;
        }
        Ok(gift)
    }

    /// What has changed since this was last asked.
    pub fn take_changes(&mut self) -> LedgerChanges {
        let changed = std::mem::take(&mut self.ledger.changed);
        let record = |name: Arc<str>| {
            let record = self.ledger.accounts.get(&name)?.record();
            Some((name, record))
        };
        let mut accounts = Vec::with_capacity(changed.len());
        accounts.extend(changed.into_iter().filter_map(record));
        let step = self.config.regret_period.0 / KEPT_STEPS;
        let is_far = match (self.kept_left, self.period_left) {
            (Some(kept), Some(left)) => left > kept || kept.since(left).0 > step,
            (kept, left) => kept != left,
        };
        let system = (!accounts.is_empty() || is_far).then(|| {
            self.kept_left = self.period_left;
            self.ledger.system.record(self.period_left)
        });
        LedgerChanges { accounts, system }
    }
}

impl Ledger {
    fn enter_record(&mut self, name: Arc<str>, record: &AccountRecord) -> Result<(), BadLedger> {
        let bad = || BadLedger::NotConserved {
            account: name.clone(),
            issued: record.issued,
            redeemed: record.redeemed,
            compensated: record.compensated,
            lots: record.lots.iter().map(|(_, count)| *count).fold(0, u64::saturating_add),
        };
        let balance = record.balance().ok_or_else(bad)?;
        let mut before = 0;
        for &(from, to) in &record.lapsed {
            if !(before <= from && from <= to && to <= record.issued) {
                return Err(BadLedger::NotIssued { account: name, from, to, issued: record.issued, before });
            }
            before = to;
        }
        let mut account = Account {
            balance,
            lapsed: record.lapsed.iter().copied().collect(),
            lots: record.lots.iter().copied().collect(),
        };
        account.forget(self.window);
        self.total.add(&balance);
        self.accounts.insert(name, account);
        Ok(())
    }
}

impl Account {
    fn record(&self) -> AccountRecord {
        let Balance { issued, redeemed, compensated, regret, paid, .. } = self.balance;
        AccountRecord {
            issued: issued.0,
            redeemed: redeemed.0,
            compensated: compensated.0,
            regret: regret.0,
            paid: paid.0,
            lapsed: self.lapsed.iter().copied().collect(),
            lots: self.lots.iter().copied().collect(),
        }
    }
}

impl SystemWindow {
    fn record(&self, period_left: Option<Nanos>) -> SystemRecord {
        let lots = self.lots.iter().map(|lot| (lot.issued, lot.unredeemed)).collect();
        SystemRecord { lots, first: self.first, period_left_ns: period_left.map(|left| left.0) }
    }

    fn restore(&mut self, record: &SystemRecord) -> Result<(), BadLedger> {
        self.first = record.first;
        let mut total = 0_u64;
        for (lot, &(issued, unredeemed)) in (0_u64..).zip(&record.lots) {
            let sum = total.checked_add(issued).filter(|_| unredeemed <= issued);
            let number = record.first.checked_add(lot).filter(|number| *number < NUMBERS_MAX);
            let (Some(sum), Some(lot)) = (sum, number) else {
                return Err(BadLedger::BadWindow { lot: record.first.saturating_add(lot), issued, unredeemed });
            };
            total = sum;
            self.issue(issued);
            self.redeem(lot, issued - unredeemed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, Problem, Targets};
    use std::collections::BTreeMap;

    /// GIFT Fig. 6: A at one target, B there and at another. In every third decision D has a third of both, which leaves a
    /// gap beside A.
    fn problem(at: u64) -> Problem {
        let targets = Arc::new(Targets::new([("t1", 1.0), ("t2", 1.0)]).unwrap());
        let mut apps = vec![App::at("A", &targets, &["t1"]).unwrap()];
        if at % 3 < 2 {
            apps.push(App::at("B", &targets, &["t1", "t2"]).unwrap());
        } else {
            apps.push(App::at("D", &targets, &["t1", "t2"]).unwrap());
            apps.extend(["E", "F"].map(|name| App::at(name, &targets, &["t2"]).unwrap()));
        }
        Problem::new(targets, apps).unwrap()
    }

    #[derive(Default)]
    struct Kept {
        accounts: BTreeMap<Arc<str>, AccountRecord>,
        system: Option<SystemRecord>,
    }

    impl Kept {
        fn keep(&mut self, changes: LedgerChanges) {
            self.accounts.extend(changes.accounts);
            self.system = changes.system.or(self.system.take());
        }
    }

    /// Stopped after any decision and started again from the records, it decides as if it had never been.
    #[test]
    fn who_starts_again_from_the_records_decides_the_same() {
        let config = GiftConfig {
            window: Coupons(400_000),
            system_window: Coupons(500_000),
            regret_period: Nanos::from_secs(170),
            ..GiftConfig::default()
        };
        let mut gift = Gift::new(config).unwrap();
        let mut again = Gift::new(config).unwrap();
        let mut kept = Kept::default();
        for at in 0..60 {
            let (now, problem) = (Nanos::from_secs(10 * at), problem(at));
            let expected = gift.decide(now, &problem).unwrap();
            assert_eq!(again.decide(now, &problem).unwrap(), expected, "decision {at}");
            kept.keep(again.take_changes());
            again = Gift::restore(config, kept.accounts.clone(), kept.system.clone()).unwrap();
            again.resume(now);
            assert_eq!(again.ledger().total(), gift.ledger().total());
            assert!(again.ledger().balances().all(|(_, balance)| balance.is_conserved()));
            assert_eq!(again.ledger().system_redemption_rate(), gift.ledger().system_redemption_rate());
        }
        let total = gift.ledger().total();
        assert!(
            total.issued > Coupons(0) && total.redeemed > Coupons(0) && total.compensated > Coupons(0),
            "{total:?}"
        );
        assert!(again.take_changes() == LedgerChanges::default(), "nothing has changed since");
    }

    /// Whoever takes over may have any clock: a period has its length all the same, but for what is not kept of it.
    #[test]
    fn a_period_is_as_long_by_whichever_clock() {
        let period = Nanos::from_secs(3_600);
        let config = GiftConfig { regret_period: period, ..GiftConfig::default() };
        let (mut gift, mut kept, mut worked, mut ends) = (Gift::new(config).unwrap(), Kept::default(), 0, Vec::new());
        // Each controller decides for some minutes, and the next one's clock is hours before it or behind.
        for (begins_at, decisions) in [(50_000, 60), (1_000, 200), (90_000, 7), (40_000, 900), (0, 400)] {
            let _ = gift.take_changes();
            gift = Gift::restore(config, kept.accounts.clone(), kept.system.clone()).unwrap();
            for at in 0..decisions {
                let before = gift.period_left;
                gift.decide(Nanos::from_secs(begins_at + 10 * at), &problem(at)).unwrap();
                kept.keep(gift.take_changes());
                worked += 10;
                if before.is_some() && gift.period_left > before {
                    ends.push(worked);
                }
            }
        }
        // 15,670 s of work, of which each take-over loses an interval.
        assert_eq!(ends.len(), 4, "{ends:?}");
        assert!((1..).zip(&ends).all(|(count, end)| (count * 3_600..=count * 3_600 + 120).contains(end)), "{ends:?}");
        // It is not written at every decision for this.
        let mut idle = Gift::restore(config, [], kept.system).unwrap();
        idle.assess(Nanos::ZERO);
        let is_kept = |idle: &mut Gift, at| {
            idle.assess(Nanos::from_secs(at));
            idle.take_changes().system.is_some()
        };
        let written = (1..=36).filter(|at| is_kept(&mut idle, 10 * at)).count();
        assert!((15..=18).contains(&written), "{written} times in six minutes");
    }

    #[test]
    fn who_is_owed_nothing_can_be_forgotten() {
        let idle = AccountRecord { issued: 9, redeemed: 7, compensated: 2, paid: 5, ..Default::default() };
        let owed = AccountRecord { issued: 3, lots: vec![(0, 3)], regret: 4, ..Default::default() };
        let accounts = [("idle".into(), idle), ("owed".into(), owed.clone())];
        let mut gift = Gift::restore(GiftConfig::default(), accounts, None).unwrap();
        assert_eq!(["idle", "owed", "idle", "nobody"].map(|name| gift.forget(name)), [true, false, false, false]);
        assert_eq!(Some(*gift.ledger().total()), owed.balance());
    }

    #[test]
    fn an_account_that_lost_coupons_is_refused() {
        let record = AccountRecord { issued: 9, redeemed: 2, compensated: 3, lots: vec![(0, 3)], ..Default::default() };
        let refused = Gift::restore(GiftConfig::default(), [("A".into(), record)], None).unwrap_err().to_string();
        assert!(
            refused.starts_with("account `A`: 9 coupons issued, 2 redeemed, 3 compensated, and 3 in lots"),
            "{refused}"
        );
        for (lapsed, is_good) in [
            (vec![(0, 2), (2, 9)], true),
            (vec![(0, 2), (1, 3)], false),
            (vec![(3, 2)], false),
            (vec![(0, 10)], false),
            (vec![(0, u64::MAX), (0, u64::MAX)], false),
        ] {
            let record = AccountRecord { issued: 9, redeemed: 9, lapsed, ..Default::default() };
            let restored = Gift::restore(GiftConfig::default(), [("A".into(), record.clone())], None);
            assert_eq!(restored.is_ok(), is_good, "{record:?}");
        }
        for (first, lots, is_good) in [
            (7, vec![(5, 5), (5, 0)], true),
            (7, vec![(5, 6)], false),
            (7, vec![(u64::MAX, 0), (1, 0)], false),
            (u64::MAX, vec![(5, 5)], false),
        ] {
            let system = SystemRecord { first, lots, period_left_ns: None };
            let restored = Gift::restore(GiftConfig::default(), [], Some(system.clone()));
            assert_eq!(restored.is_ok(), is_good, "{system:?}");
        }
    }
}
