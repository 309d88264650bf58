//! Objects of files that several servers have parts of: what a volume server has data servers do with them.
//!
//! A volume server has the names and sizes of files, data servers have their bytes, in *objects*, and know neither names nor
//! sizes. To make a file shorter, or to remove it, all data servers of the file have to do something, and some of them may be away.
//! The volume server's store records what it wants before anything is sent (its *intents*), and keeps it until all have answered;
//! this module has the intents that are being worked off ([`Errands`]), and no state that a stop could lose: a server that starts
//! is given them by its store again.
//!
//! | event at the volume server | what is done |
//! |---|---|
//! | an intent is recorded | each data server is told its parts ([`Order`]) |
//! | a look ([`crate::node::LOOK_EVERY`]) | those that have not answered are told again, [`TOLD_AT_ONCE_MAX`] at most |
//! | a data server has done it | it is told no more; when it was the last, the store is told to close the intent |
//! | a data server could not | whoever waits hears its errno; it is told again at the next look |
//! | the store has closed it | whoever waits is answered |
//! | a later intent for the same objects | it replaces the earlier one and its waiting requests |
//! | an answer to an earlier intent | nothing |
//! | the deadline of who waits | ETIMEDOUT; the intent stays, and is worked off when the server is back |
//!
//! | event at the data server | what is done |
//! |---|---|
//! | an order | its store does it, once: a cut has a number, and an object takes only a higher one than its last |
//! | the same order while it is being done | nothing: it is answered once, and the order comes again |
//! | the store has done it, on stable storage | the volume server is told |
//!
//! # Why nothing is lost or comes back
//! * An order follows an intent on stable storage, so nothing is cut or removed that the volume server could want again.
//! * A cut that comes late or twice does nothing: its number is not above the object's last one. What was written after a cut
//!   is never cut by it.
//! * An intent is closed when every data server has said, of this very intent, that it is done on stable storage.
//!
//! # Objects that nobody refers to
//! A stop between the first write to an object and the record of the file leaves an object without a file. Each server looks
//! through its objects slowly and asks ([`crate::node::Input::AskWanted`]): the server of the volume that is in the number, or the root
//! server about volumes that are none any more. Both answer only while they are sure to own their directories, and only
//! what is not wanted: an object's number is never given out again, so that stays true however late it is heard.

use crate::counting::Counts;
use crate::request::RequestId;
use isonomia_units::{ServerId, TargetId, VolumeId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Intents that are worked off at once; the store keeps further ones for later.
pub const ERRANDS_MAX: usize = 4096;
/// Orders that one look sends again.
pub const TOLD_AT_ONCE_MAX: usize = 512;
/// Orders that a data server works on at once; further ones are dropped, and come again.
pub const SERVED_AT_ONCE_MAX: usize = 1024;
/// Objects of one file on one server: a layout has no more targets.
pub const PARTS_MAX: usize = 1024;
/// Files that one question is about.
pub const ASKED_MAX: usize = 1024;

/// The objects of one file of all times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectsId {
    /// In their names; the upper 16 bits are the volume's number.
    pub number: u64,
    /// In their names.
    pub generation: u32,
}

/// One object, or what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Index of the stripe.
    pub index: u32,
    /// The target that it is on.
    pub target: TargetId,
    /// How long it is to be at most, if it is cut.
    pub size_bytes: u64,
}

/// What is to be done with the objects of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum What {
    /// Cut each to its size.
    Cut {
        /// Counts the cuts of this file, from 1 on.
        number: u64,
    },
    /// Remove them.
    Remove {
        /// Until when a capability for them can be valid: seconds since 1970.
        until_secs: u64,
    },
}

/// What one data server shall do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The objects.
    pub objects: ObjectsId,
    /// What to do with them.
    pub what: What,
    /// Those that the server has, [`PARTS_MAX`] at most.
    pub parts: Vec<Part>,
}

/// An intent that is on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The objects.
    pub objects: ObjectsId,
    /// What is to be done with them.
    pub what: What,
    /// Who has which of them.
    pub parts: BTreeMap<ServerId, Vec<Part>>,
}

/// What came of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Others have not answered yet, or nobody asked.
    Waits,
    /// All have: the store may close the intent. The highest number of a last cut that one of them told.
    Done(u64),
    /// This one could not; these wait for it.
    Failed(Vec<RequestId>),
}

/// What has to be said again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Again {
    /// To data servers.
    pub orders: Vec<(ServerId, Order)>,
    /// To the store: intents that are done, with the highest number of a last cut.
    pub done: Vec<(ObjectsId, What, u64)>,
}

/// Intents that are being worked off.
#[derive(Debug, Default)]
pub struct Errands {
    errands: BTreeMap<ObjectsId, Errand>,
    /// The last one that was told again.
    told: Option<ObjectsId>,
    /// What they are asked besides.
    pub counts: Counts,
}

#[derive(Debug)]
struct Errand {
    what: What,
    /// Who has not answered.
    left: BTreeMap<ServerId, Vec<Part>>,
    highest: u64,
    waiting: BTreeSet<RequestId>,
}

impl ObjectsId {
    /// The volume that the file is in.
    pub const fn volume(self) -> VolumeId {
        VolumeId((self.number >> 48) as u16)
    }
}

impl What {
    /// Which of two intents for the same objects is the later one: a higher cut, and the removal after all of them.
    const fn rank(self) -> u64 {
        match self {
            Self::Cut { number } => number,
            Self::Remove { .. } => u64::MAX,
        }
    }
}

impl Errand {
    fn orders(&self, objects: ObjectsId) -> impl Iterator<Item = (ServerId, Order)> {
        let order = move |parts: &Vec<Part>| Order { objects, what: self.what, parts: parts.clone() };
        self.left.iter().map(move |(server, parts)| (*server, order(parts)))
    }
}

impl Errands {
    /// Begins to work off `intent`, for which `request` may wait. The orders to send; `None` if there is too much to do. One that
    /// is worked off already is not begun again, but waited for.
    pub fn begin(&mut self, intent: Intent, request: Option<RequestId>) -> Option<Vec<(ServerId, Order)>> {
        let Intent { objects, what, parts } = intent;
        let is_full = self.errands.len() >= ERRANDS_MAX;
        let errand = match self.errands.get_mut(&objects) {
            Some(errand) if errand.what.rank() >= what.rank() => {
                errand.waiting.extend(request);
                return Some(Vec::new());
            }
            Some(errand) => {
                (errand.what, errand.left, errand.highest) = (what, parts, 0);
                errand
            }
            None if is_full => return None,
            None => {
                let errand = Errand { what, left: parts, highest: 0, waiting: BTreeSet::new() };
                self.errands.entry(objects).or_insert(errand)
            }
        };
        errand.waiting.extend(request);
        Some(errand.orders(objects).collect())
    }

    /// `from` says what came of an order: the number of the last cut of its objects, the highest of them, or an errno.
    pub fn answered(&mut self, from: ServerId, objects: ObjectsId, what: What, result: Result<u64, i32>) -> Progress {
        let Some(errand) = self.errands.get_mut(&objects).filter(|errand| errand.what == what) else {
            return Progress::Waits;
        };
        match result {
            Ok(highest) => {
                if errand.left.remove(&from).is_none() {
                    return Progress::Waits;
                }
                errand.highest = errand.highest.max(highest);
                if errand.left.is_empty() { Progress::Done(errand.highest) } else { Progress::Waits }
            }
            Err(_) => Progress::Failed(std::mem::take(&mut errand.waiting).into_iter().collect()),
        }
    }

    /// The store has closed the intent; who waited for that.
    pub fn close(&mut self, objects: ObjectsId, what: What) -> BTreeSet<RequestId> {
        match self.errands.get(&objects) {
            Some(errand) if errand.what == what => {
                self.errands.remove(&objects).map(|errand| errand.waiting).unwrap_or_default()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Nobody waits for the answer of `request` any more.
    pub fn forget(&mut self, request: RequestId) {
        for errand in self.errands.values_mut() {
            errand.waiting.remove(&request);
        }
    }

    /// What has to be said again: orders, and intents that the store has not closed, [`TOLD_AT_ONCE_MAX`] of them at a time.
    pub fn again(&mut self) -> Again {
        let after = self.told.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let later = self.errands.range((after, std::ops::Bound::Unbounded));
        let earlier = self.errands.iter().filter(|(objects, _)| self.told.is_some_and(|told| **objects <= told));
        let (Again { mut orders, mut done }, mut told) = (Again::default(), None);
        for (objects, errand) in later.chain(earlier) {
            if errand.left.is_empty() {
                done.push((*objects, errand.what, errand.highest));
            }
            orders.extend(errand.orders(*objects));
            told = Some(*objects);
            if orders.len() + done.len() >= TOLD_AT_ONCE_MAX {
                break;
            }
        }
        self.told = told;
        Again { orders, done }
    }

    /// How many intents are being worked off.
    pub fn len(&self) -> usize {
        self.errands.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.errands.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTS: ObjectsId = ObjectsId { number: 3 << 48 | 7, generation: 1 };

    fn intent(what: What, servers: &[u16]) -> Intent {
        let parts = vec![Part { index: 0, target: TargetId(0), size_bytes: 0 }];
        Intent {
            objects: OBJECTS,
            what,
            parts: servers.iter().map(|server| (ServerId(*server), parts.clone())).collect(),
        }
    }

    fn told(orders: &[(ServerId, Order)]) -> Vec<u16> {
        orders.iter().map(|(server, _)| server.0).collect()
    }

    #[test]
    fn who_has_not_answered_is_told_again() {
        let mut errands = Errands::default();
        let cut = What::Cut { number: 1 };
        assert_eq!(told(&errands.begin(intent(cut, &[1, 2]), Some(RequestId(5))).unwrap()), [1, 2]);
        assert_eq!(errands.answered(ServerId(1), OBJECTS, cut, Ok(1)), Progress::Waits);
        assert_eq!(told(&errands.again().orders), [2]);
        assert_eq!(errands.answered(ServerId(1), OBJECTS, cut, Ok(1)), Progress::Waits, "twice");
        assert_eq!(errands.answered(ServerId(2), OBJECTS, cut, Err(5)), Progress::Failed(vec![RequestId(5)]));
        assert_eq!(errands.answered(ServerId(2), OBJECTS, cut, Ok(3)), Progress::Done(3));
        let done = vec![(OBJECTS, cut, 3)];
        assert_eq!(errands.again(), Again { orders: vec![], done }, "until the store has closed it");
        assert!(errands.close(OBJECTS, cut).is_empty());
        assert!(errands.is_empty());
    }

    #[test]
    fn a_later_cut_replaces_an_earlier_one_and_its_waiting_requests() {
        let mut errands = Errands::default();
        let [first, second] = [1, 2].map(|number| What::Cut { number });
        errands.begin(intent(first, &[1]), Some(RequestId(1)));
        assert_eq!(told(&errands.begin(intent(second, &[1]), Some(RequestId(2))).unwrap()), [1]);
        assert_eq!(told(&errands.begin(intent(first, &[1]), Some(RequestId(3))).unwrap()), [0; 0]);
        assert_eq!(errands.answered(ServerId(1), OBJECTS, first, Ok(1)), Progress::Waits);
        assert_eq!(errands.answered(ServerId(1), OBJECTS, second, Ok(2)), Progress::Done(2));
        assert!(errands.close(OBJECTS, first).is_empty());
        assert_eq!(errands.close(OBJECTS, second), [1, 2, 3].map(RequestId).into());
    }

    #[test]
    fn many_are_told_some_at_a_time_and_too_many_refused() {
        let mut errands = Errands::default();
        let cut = What::Cut { number: 1 };
        for number in 0..=ERRANDS_MAX as u64 {
            let objects = ObjectsId { number, ..OBJECTS };
            let begun = errands.begin(Intent { objects, ..intent(cut, &[1]) }, None);
            assert_eq!(begun.is_some(), number < ERRANDS_MAX as u64);
        }
        let mut seen = BTreeSet::new();
        for _ in 0..ERRANDS_MAX / TOLD_AT_ONCE_MAX {
            seen.extend(errands.again().orders.iter().map(|(_, order)| order.objects));
        }
        assert_eq!(seen.len(), ERRANDS_MAX);
    }
}
