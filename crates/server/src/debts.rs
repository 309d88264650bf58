//! What was done for a job and is settled with its next request.
//!
//! Most requests are charged before they are served. What a reply carries, what an fsync finds to flush, and that
//! somebody connects at all is known afterwards only: it is owed, and the next request at the same kind of service is
//! charged for it. Jobs that are only claimed owe together what is owed within the same proof ([`JobInfo::within`]): a
//! new name does not leave a debt behind.
//!
//! [`JobInfo::within`]: isonomia_units::JobInfo::within

use isonomia_units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is owed, in service of the metadata service and of the data targets.
#[derive(Debug, Default)]
pub struct Debts {
    metadata_ns: AtomicU64,
    data_ns: AtomicU64,
}

impl Debts {
    fn of(&self, is_metadata: bool) -> &AtomicU64 {
        if is_metadata { &self.metadata_ns } else { &self.data_ns }
    }

    /// So much more is owed.
    pub fn put_back(&self, is_metadata: bool, cost: Nanos) {
        if cost > Nanos::ZERO {
            self.of(is_metadata).fetch_add(cost.0, Ordering::Relaxed);
        }
    }

    /// Takes all that is owed, to charge it.
    pub fn take(&self, is_metadata: bool) -> Nanos {
        let owed = self.of(is_metadata);
        // Mostly nothing is owed. Reading leaves the cache line shared; an exchange would take it from the other processors.
        if owed.load(Ordering::Relaxed) == 0 { Nanos::ZERO } else { Nanos(owed.swap(0, Ordering::Relaxed)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_charged_once_and_where_it_was_incurred() {
        let debts = Debts::default();
        debts.put_back(true, Nanos(5));
        debts.put_back(true, Nanos(2));
        debts.put_back(false, Nanos(3));
        assert_eq!([true, false, true].map(|is_metadata| debts.take(is_metadata)), [Nanos(7), Nanos(3), Nanos::ZERO]);
    }
}
