//! Requests that are left to the cluster's thread, and their answers.
//!
//! That thread may wait for the storage, and a client waits for its answer as long as the server shows signs of life. So
//! the requests are kept where others reach them as well: whoever has an answer first gives it, and the keeper, which waits for
//! nothing, ends those whose time is over ([`Requests::expire`]).

pub(super) mod answers;

use isonomia_cluster::request::RequestId;
use isonomia_cluster::volumes::Attributes;
use isonomia_units::{Ino, Nanos};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Requests that wait at most; further ones are told to come again. Each takes some 500 bytes.
const WAITING_MAX: usize = 4_096;
/// A change of a volume is answered within this time. Less than clients wait without a sign of life.
pub(super) const DECIDED_WITHIN: Nanos = Nanos::from_secs(15);
/// The cluster's thread, whose answers say more, has this much longer.
const LATE: Nanos = Nanos::from_secs(1);

/// A request, and for whom it is.
pub(super) struct Waiting<P> {
    pub pending: P,
    /// Another server asks.
    pub is_peer: bool,
    /// The name and the directory of the volume that a user of this server wants.
    pub made: Option<(Box<[u8]>, Attributes)>,
    /// The file that is to be cut for it: where its path led.
    pub cut: Option<Ino>,
    /// When it is to be answered.
    pub deadline: Nanos,
}

/// See the module.
pub(super) struct Requests<P>(Mutex<Table<P>>);

struct Table<P> {
    last: u64,
    waiting: HashMap<RequestId, Waiting<P>>,
    by_deadline: BTreeSet<(Nanos, RequestId)>,
}

impl<P> Requests<P> {
    /// None.
    pub fn new() -> Self {
        Self(Mutex::new(Table { last: 0, waiting: HashMap::new(), by_deadline: BTreeSet::new() }))
    }

    fn table(&self) -> MutexGuard<'_, Table<P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a request until it is taken; gives it back if there are too many.
    pub fn add(&self, waiting: Waiting<P>) -> Result<RequestId, Waiting<P>> {
        let mut table = self.table();
        if table.waiting.len() >= WAITING_MAX {
            return Err(waiting);
        }
        table.last += 1;
        let id = RequestId(table.last);
        table.by_deadline.insert((waiting.deadline, id));
        table.waiting.insert(id, waiting);
        Ok(id)
    }

    /// When a request is to be answered, if it has not been.
    pub fn deadline(&self, id: RequestId) -> Option<Nanos> {
        self.table().waiting.get(&id).map(|waiting| waiting.deadline)
    }

    /// A request that nobody has answered; whoever gets it does.
    pub fn take(&self, id: RequestId) -> Option<Waiting<P>> {
        let mut table = self.table();
        let waiting = table.waiting.remove(&id)?;
        table.by_deadline.remove(&(waiting.deadline, id));
        Some(waiting)
    }

    /// One whose time is over.
    fn take_late(&self, now: Nanos) -> Option<Waiting<P>> {
        let (_, id) = self.table().by_deadline.first().copied().filter(|(deadline, _)| *deadline + LATE <= now)?;
        self.take(id)
    }
}

#[cfg(test)]
mod tests;
