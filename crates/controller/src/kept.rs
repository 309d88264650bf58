//! What is kept of GIFT's ledger from one process to the next, and from one controller to the next: keys and values.
//!
//! | key | value |
//! |---|---|
//! | `COUPONS/a/` account | the account ([`AccountKept`]) |
//! | `COUPONS/p/` number | a regret period that is over ([`PaidPeriod`]); the number is big-endian, in 8 bytes |
//! | `COUPONS/p/` number page | more payments of it; the page is big-endian, in 4 bytes, and counts from 1 |
//! | `COUPONS/s` | what concerns all accounts |
//! | `COUPONS/t` | the term of the last controller that had it: of two copies of a ledger the one of the later term holds |
//!
//! A value is one byte of format and then what `postcard` writes. Records of the format before are read, too, and written in the present one
//! as they change. Changes that are given together are to be stored together,
//! and before what was decided with them is sent.

use crate::message::Term;
use isonomia_allocation::{AccountRecord, SystemRecord};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What all keys begin with.
pub const PREFIX: &[u8] = b"COUPONS/";
const ACCOUNT: &[u8] = b"COUPONS/a/";
const PERIOD: &[u8] = b"COUPONS/p/";
const SYSTEM: &[u8] = b"COUPONS/s";
const TERM: &[u8] = b"COUPONS/t";
/// The first byte of every value.
const FORMAT: u8 = 2;
/// Its records mean the same, but that of all accounts said by the time of day when the regret period ends.
const FORMAT_BEFORE: u8 = 1;
/// Regret periods that are remembered; the oldest is forgotten first.
const PERIODS_KEPT: usize = 1_000;
/// Payments in one record at most, so that no record is too long for a store.
const PAYMENTS_PER_RECORD: usize = 256;

/// A change of one record; without a value the record goes.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// An account, and whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountKept {
    /// Coupons, and what became of them.
    pub record: AccountRecord,
    /// The user of the job that had it last.
    pub user: Arc<str>,
    /// The group (account, project) of that job.
    pub group: Arc<str>,
}

/// A regret period that is over, and what was paid at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaidPeriod {
    /// Which: they count from 1.
    pub number: u64,
    /// Its end, in seconds since 1970.
    pub ended_s: u64,
    /// By account.
    pub payments: Vec<Payment>,
}

/// What an account is paid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payment {
    /// The account.
    pub account: Arc<str>,
    /// The user of the job that had it last.
    pub user: Arc<str>,
    /// The group of that job.
    pub group: Arc<str>,
    /// Coupons that were outstanding.
    pub coupons: u64,
    /// What is given for them, in node-nanoseconds.
    pub node_ns: u128,
}

/// Records that are no ledger that this program knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKept {
    /// Of another format.
    #[error("record {key} of the ledger has format {format:?}: this program knows {FORMAT}")]
    Format {
        /// Its key.
        key: String,
        /// The first byte.
        format: Option<u8>,
    },
    /// Not what a record looks like.
    #[error("record {0} of the ledger cannot be read")]
    Malformed(String),
}

/// All that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// By name.
    pub accounts: BTreeMap<Arc<str>, AccountKept>,
    /// What concerns all; nothing before the first decision.
    pub system: Option<SystemRecord>,
    /// By number.
    pub periods: BTreeMap<u64, PaidPeriod>,
    /// Of the last controller that had it.
    pub term: Option<Term>,
}

impl Kept {
    /// What these records are; others are passed by.
    ///
    /// # Errors
    /// A record is none that this program knows: the ledger is never begun anew in silence.
    pub fn read<'r>(records: impl IntoIterator<Item = (&'r [u8], &'r [u8])>) -> Result<Self, BadKept> {
        let mut kept = Self::default();
        let mut pages: BTreeMap<Vec<u8>, PaidPeriod> = BTreeMap::new();
        for (key, value) in records {
            if let Some(account) = key.strip_prefix(ACCOUNT) {
                let malformed = || BadKept::Malformed(key.escape_ascii().to_string());
                let account = std::str::from_utf8(account).map_err(|_| malformed())?;
                kept.accounts.insert(account.into(), decode(key, value)?);
            } else if key.starts_with(PERIOD) {
                pages.insert(key.to_vec(), decode(key, value)?);
            } else if key == SYSTEM {
                let mut system: SystemRecord = decode(key, value)?;
                if value.first() == Some(&FORMAT_BEFORE) {
                    // By whose clock is not known: the period begins anew, with all coupons.
                    system.period_left_ns = None;
                }
                kept.system = Some(system);
            } else if key == TERM {
                kept.term = Some(decode(key, value)?);
            } else if key.starts_with(PREFIX) {
                return Err(BadKept::Malformed(key.escape_ascii().to_string()));
            }
        }
        // By period, and of each by page.
        for page in pages.into_values() {
            match kept.periods.get_mut(&page.number) {
                Some(period) => period.payments.extend(page.payments),
                None => _ = kept.periods.insert(page.number, page),
            }
        }
        Ok(kept)
    }

    /// All of it as records.
    pub fn records(&self) -> Vec<Change> {
        let accounts = self.accounts.iter().map(|(name, account)| change_of_account(name, account));
        let periods = self.periods.values().flat_map(changes_of_period);
        let system = self.system.iter().map(|system| (SYSTEM.to_vec(), Some(encode(system))));
        let term = self.term.iter().map(|term| (TERM.to_vec(), Some(encode(term))));
        accounts.chain(periods).chain(system).chain(term).collect()
    }

    /// A controller has it now.
    pub fn set_term(&mut self, term: Term) -> Change {
        self.term = Some(term);
        (TERM.to_vec(), Some(encode(&term)))
    }

    /// Takes in what has changed of an account.
    pub(crate) fn set_account(&mut self, name: Arc<str>, account: AccountKept, changes: &mut Vec<Change>) {
        changes.push(change_of_account(&name, &account));
        self.accounts.insert(name, account);
    }

    /// Forgets an account.
    pub(crate) fn remove_account(&mut self, name: &str, changes: &mut Vec<Change>) {
        self.accounts.remove(name);
        changes.push(([ACCOUNT, name.as_bytes()].concat(), None));
    }

    pub(crate) fn set_system(&mut self, system: SystemRecord, changes: &mut Vec<Change>) {
        changes.push((SYSTEM.to_vec(), Some(encode(&system))));
        self.system = Some(system);
    }

    /// Another regret period is over.
    pub(crate) fn add_period(&mut self, ended_s: u64, payments: Vec<Payment>, changes: &mut Vec<Change>) {
        let number = self.periods.last_key_value().map_or(0, |(number, _)| *number) + 1;
        let period = PaidPeriod { number, ended_s, payments };
        changes.extend(changes_of_period(&period));
        self.periods.insert(number, period);
        while self.periods.len() > PERIODS_KEPT
            && let Some((_, oldest)) = self.periods.pop_first()
        {
            changes.extend(changes_of_period(&oldest).into_iter().map(|(key, _)| (key, None)));
        }
    }
}

fn change_of_account(name: &str, account: &AccountKept) -> Change {
    ([ACCOUNT, name.as_bytes()].concat(), Some(encode(account)))
}

fn changes_of_period(period: &PaidPeriod) -> Vec<Change> {
    let record = |page: u32, payments: &[Payment]| {
        let page = if page == 0 { Vec::new() } else { page.to_be_bytes().to_vec() };
        let key = [PERIOD, &period.number.to_be_bytes(), &page].concat();
        (key, Some(encode(&PaidPeriod { payments: payments.to_vec(), ..*period })))
    };
    let (first, more) = period.payments.split_at(period.payments.len().min(PAYMENTS_PER_RECORD));
    let pages = more.chunks(PAYMENTS_PER_RECORD);
    [record(0, first)].into_iter().chain((1..).zip(pages).map(|(page, payments)| record(page, payments))).collect()
}

pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(value, vec![FORMAT]).unwrap_or_default()
}

pub(crate) fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, BadKept> {
    let key = || key.escape_ascii().to_string();
    match value.split_first() {
        Some((&(FORMAT | FORMAT_BEFORE), body)) => match postcard::take_from_bytes(body) {
            Ok((value, [])) => Ok(value),
            _ => Err(BadKept::Malformed(key())),
        },
        first => Err(BadKept::Format { key: key(), format: first.map(|(format, _)| *format) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(records: &[Change]) -> Result<Kept, BadKept> {
        Kept::read(records.iter().filter_map(|(key, value)| Some((&key[..], value.as_deref()?))))
    }

    #[test]
    fn what_is_kept_is_read_and_what_is_of_another_time_refused() {
        let mut kept = Kept::default();
        let mut changes = Vec::new();
        changes.push(kept.set_term(Term { epoch: 2, number: 9 }));
        let record = AccountRecord { issued: 9, redeemed: 9, regret: u128::MAX, ..AccountRecord::default() };
        let account = AccountKept { record, user: "ada".into(), group: "astro".into() };
        kept.set_account("user=ada job=lammps".into(), account, &mut changes);
        kept.set_system(SystemRecord { first: 3, period_left_ns: Some(5), ..SystemRecord::default() }, &mut changes);
        let payment = |at: usize| Payment { coupons: at as u64, ..Payment::default() };
        let payments = |count: usize| (0..count).map(payment).collect::<Vec<_>>();
        // The first and the last take several records; the first is forgotten.
        let count = |at: usize| if at == 0 || at == PERIODS_KEPT + 1 { PAYMENTS_PER_RECORD * 2 + 1 } else { 1 };
        (0..PERIODS_KEPT + 2).for_each(|at| kept.add_period(at as u64, payments(count(at)), &mut changes));
        let mut records: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (key, value) in changes {
            match value {
                Some(value) => records.insert(key, value),
                None => records.remove(&key),
            };
        }
        let records: Vec<Change> = records.into_iter().map(|(key, value)| (key, Some(value))).collect();
        assert_eq!(read(&records).unwrap(), kept);
        assert_eq!(kept.periods.keys().next(), Some(&3));
        assert_eq!(records.len(), 3 + PERIODS_KEPT + 2);
        let mut newer = records.clone();
        newer[0].1 = Some(vec![FORMAT + 1, 7]);
        let refused = read(&newer).unwrap_err().to_string();
        assert_eq!(
            refused,
            "record COUPONS/a/user=ada job=lammps of the ledger has format Some(3): this program knows 2"
        );
        // A ledger of the format before loses no coupon.
        let mut older = records.clone();
        older.iter_mut().for_each(|(_, value)| value.as_mut().unwrap()[0] = FORMAT_BEFORE);
        let mut migrated = kept.clone();
        migrated.system.iter_mut().for_each(|system| system.period_left_ns = None);
        assert_eq!(read(&older).unwrap(), migrated);
        let mut cut = records;
        cut[0].1.as_mut().unwrap().pop();
        assert!(matches!(read(&cut), Err(BadKept::Malformed(_))));
        assert!(read(&[(b"COUPONS/x".to_vec(), Some(vec![1]))]).is_err());
        assert_eq!(read(&[(b"e".to_vec(), Some(vec![1]))]).unwrap(), Kept::default());
    }
}
