//! What is kept of GIFT's ledger from one process to the next, and from one controller to the next: keys and values.
//!
//! | key | value |
//! |---|---|
//! | `COUPONS/a/` account | the account ([`AccountKept`]) |
//! | `COUPONS/p/` number | a regret period that is over ([`PaidPeriod`]); the number is big-endian, in 8 bytes |
//! | `COUPONS/s` | what concerns all accounts |
//!
//! A value is one byte of format and then what `postcard` writes. Changes that are given together are to be stored together,
//! and before what was decided with them is sent.

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
/// The first byte of every value.
const FORMAT: u8 = 1;
/// Regret periods that are remembered; the oldest is forgotten first.
const PERIODS_KEPT: usize = 1_000;

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
}

impl Kept {
    /// What these records are; others are passed by.
    ///
    /// # Errors
    /// A record is none that this program knows: the ledger is never begun anew in silence.
    pub fn read<'r>(records: impl IntoIterator<Item = (&'r [u8], &'r [u8])>) -> Result<Self, BadKept> {
        let mut kept = Self::default();
        for (key, value) in records {
            if let Some(account) = key.strip_prefix(ACCOUNT) {
                let malformed = || BadKept::Malformed(key.escape_ascii().to_string());
                let account = std::str::from_utf8(account).map_err(|_| malformed())?;
                kept.accounts.insert(account.into(), decode(key, value)?);
            } else if key.starts_with(PERIOD) {
                let period: PaidPeriod = decode(key, value)?;
                kept.periods.insert(period.number, period);
            } else if key == SYSTEM {
                kept.system = Some(decode(key, value)?);
            } else if key.starts_with(PREFIX) {
                return Err(BadKept::Malformed(key.escape_ascii().to_string()));
            }
        }
        Ok(kept)
    }

    /// All of it as records.
    pub fn records(&self) -> Vec<Change> {
        let accounts = self.accounts.iter().map(|(name, account)| change_of_account(name, account));
        let periods = self.periods.values().map(|period| (period_key(period.number), Some(encode(period))));
        let system = self.system.iter().map(|system| (SYSTEM.to_vec(), Some(encode(system))));
        accounts.chain(periods).chain(system).collect()
    }

    /// Takes in what has changed of an account.
    pub(crate) fn set_account(&mut self, name: Arc<str>, account: AccountKept, changes: &mut Vec<Change>) {
        changes.push(change_of_account(&name, &account));
        self.accounts.insert(name, account);
    }

    pub(crate) fn set_system(&mut self, system: SystemRecord, changes: &mut Vec<Change>) {
        changes.push((SYSTEM.to_vec(), Some(encode(&system))));
        self.system = Some(system);
    }

    /// Another regret period is over.
    pub(crate) fn add_period(&mut self, ended_s: u64, payments: Vec<Payment>, changes: &mut Vec<Change>) {
        let number = self.periods.last_key_value().map_or(0, |(number, _)| *number) + 1;
        let period = PaidPeriod { number, ended_s, payments };
        changes.push((period_key(number), Some(encode(&period))));
        self.periods.insert(number, period);
        while self.periods.len() > PERIODS_KEPT
            && let Some((oldest, _)) = self.periods.pop_first()
        {
            changes.push((period_key(oldest), None));
        }
    }
}

fn change_of_account(name: &str, account: &AccountKept) -> Change {
    ([ACCOUNT, name.as_bytes()].concat(), Some(encode(account)))
}

fn period_key(number: u64) -> Vec<u8> {
    [PERIOD, &number.to_be_bytes()].concat()
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(value, vec![FORMAT]).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, BadKept> {
    let key = || key.escape_ascii().to_string();
    match value.split_first() {
        Some((&FORMAT, body)) => match postcard::take_from_bytes(body) {
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
        let record = AccountRecord { issued: 9, redeemed: 9, regret: u128::MAX, ..AccountRecord::default() };
        let account = AccountKept { record, user: "ada".into(), group: "astro".into() };
        kept.set_account("user=ada job=lammps".into(), account, &mut changes);
        kept.set_system(SystemRecord { first: 3, ..SystemRecord::default() }, &mut changes);
        (0..PERIODS_KEPT as u64 + 2).for_each(|at| kept.add_period(at, vec![Payment::default()], &mut changes));
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
        let mut newer = records.clone();
        newer[0].1 = Some(vec![FORMAT + 1, 7]);
        let refused = read(&newer).unwrap_err().to_string();
        assert_eq!(
            refused,
            "record COUPONS/a/user=ada job=lammps of the ledger has format Some(2): this program knows 1"
        );
        let mut cut = records;
        cut[0].1.as_mut().unwrap().pop();
        assert!(matches!(read(&cut), Err(BadKept::Malformed(_))));
        assert!(read(&[(b"COUPONS/x".to_vec(), Some(vec![1]))]).is_err());
        assert_eq!(read(&[(b"e".to_vec(), Some(vec![1]))]).unwrap(), Kept::default());
    }
}
