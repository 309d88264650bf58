//! The arbiter of one exclusive I/O node: one application has it at a time, for one whole I/O phase.
//!
//! Guarantees: a grant is never taken back (non-preemptive, ICS'20 §4.3), the node is never left idle while a
//! claim waits (list scheduling, §5.1), and the same calls give the same grants. Applications that never finish
//! their phase are the caller's to time out, by [`Grants::complete`].

use crate::order::{Claim, Order, Urgency};
use isonomia_units::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The most claims that wait at one I/O node.
pub const CLAIMS_MAX: usize = 1 << 20;

/// The answer to "whose I/O phase goes next?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextGrant {
    /// This application has the node from now on until [`Grants::complete`].
    Grant(u32),
    /// This application still has the node.
    Taken(u32),
    /// Nobody waits.
    Idle,
}

/// [`CLAIMS_MAX`] claims wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the I/O phase of application {app} is refused: {CLAIMS_MAX} wait already, the most allowed")]
pub struct ClaimsFull {
    /// Who was refused.
    pub app: u32,
}

/// Who waits for one exclusive I/O node, and who has it.
#[derive(Debug)]
pub struct Grants {
    order: Order,
    holder: Option<u32>,
    waiting: Waiting,
}

/// Claims as fits the order.
#[derive(Debug)]
enum Waiting {
    /// In the order of asking, which is the order in which they come.
    Arrival(VecDeque<(Nanos, u32)>),
    /// By an urgency that stays as it is.
    Sorted(BinaryHeap<Reverse<(Urgency, u32)>>),
    /// Searched at each decision.
    Changing(Vec<(Nanos, Claim)>),
}

impl Grants {
    /// A node that nobody waits for.
    pub fn new(order: Order) -> Self {
        let waiting = match order {
            Order::Fifo => Waiting::Arrival(VecDeque::new()),
            order if order.changes_while_waiting() => Waiting::Changing(Vec::new()),
            _ => Waiting::Sorted(BinaryHeap::new()),
        };
        Self { order, holder: None, waiting }
    }

    /// The application asks for an I/O phase at `now`. It must not be waiting already.
    ///
    /// # Errors
    /// [`CLAIMS_MAX`] claims wait already.
    pub fn enqueue(&mut self, now: Nanos, claim: Claim) -> Result<(), ClaimsFull> {
        if self.waiting() >= CLAIMS_MAX {
            return Err(ClaimsFull { app: claim.app });
        }
        match &mut self.waiting {
            Waiting::Arrival(queue) => {
                // Only those of the same instant, who go by id, may come in another order than they leave.
                let later = queue.iter().rev().take_while(|other| **other > (now, claim.app)).count();
                queue.insert(queue.len() - later, (now, claim.app));
            }
            Waiting::Sorted(heap) => heap.push(Reverse((self.order.urgency(now, now, &claim), claim.app))),
            Waiting::Changing(list) => list.push((now, claim)),
        }
        Ok(())
    }

    /// Who has the node at `now`: whoever had it, else the most urgent claim. O(log n), or O(n) under the orders
    /// that change while claims wait; O(1) under FIFO.
    pub fn next(&mut self, now: Nanos) -> NextGrant {
        if let Some(app) = self.holder {
            return NextGrant::Taken(app);
        }
        self.holder = match &mut self.waiting {
            Waiting::Arrival(queue) => queue.pop_front().map(|(_, app)| app),
            Waiting::Sorted(heap) => heap.pop().map(|Reverse((_, app))| app),
            Waiting::Changing(list) => {
                let rank = |(since, claim): &(Nanos, Claim)| (self.order.urgency(now, *since, claim), claim.app);
                let first = (0..list.len()).min_by_key(|&at| rank(&list[at]));
                first.map(|at| list.swap_remove(at).1.app)
            }
        };
        self.holder.map_or(NextGrant::Idle, NextGrant::Grant)
    }

    /// The holder's phase has ended. False, and nothing happens, if `app` does not have the node.
    pub fn complete(&mut self, app: u32) -> bool {
        let had = self.holder == Some(app);
        if had {
            self.holder = None;
        }
        had
    }

    /// The application has the node by an earlier grant, which somebody else gave. It must not wait.
    pub fn resume(&mut self, app: u32) {
        self.holder = Some(app);
    }

    /// The application waits no more. Nothing happens if it does not wait. O(n).
    pub fn withdraw(&mut self, app: u32) {
        match &mut self.waiting {
            Waiting::Arrival(queue) => queue.retain(|(_, other)| *other != app),
            Waiting::Sorted(heap) => heap.retain(|Reverse((_, other))| *other != app),
            Waiting::Changing(list) => list.retain(|(_, claim)| claim.app != app),
        }
    }

    /// Claims that wait.
    pub fn waiting(&self) -> usize {
        match &self.waiting {
            Waiting::Arrival(queue) => queue.len(),
            Waiting::Sorted(heap) => heap.len(),
            Waiting::Changing(list) => list.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(app: u32) -> Claim {
        let span = Nanos(10);
        Claim { app, release: Nanos::ZERO, io: span, remaining: span, io_done: span, work_done: span }
    }

    #[test]
    fn one_has_the_node_until_it_is_done() {
        for order in Order::ALL {
            let mut grants = Grants::new(order);
            assert_eq!(grants.next(Nanos(0)), NextGrant::Idle);
            for app in [2, 1, 3] {
                grants.enqueue(Nanos(5), claim(app)).unwrap();
            }
            // All are alike: the lowest id goes.
            assert_eq!(grants.next(Nanos(6)), NextGrant::Grant(1), "{order}");
            assert_eq!(grants.next(Nanos(7)), NextGrant::Taken(1));
            assert!(!grants.complete(2));
            assert_eq!(grants.next(Nanos(8)), NextGrant::Taken(1));
            assert!(grants.complete(1));
            assert_eq!(grants.next(Nanos(9)), NextGrant::Grant(2));
            assert_eq!(grants.waiting(), 1);
        }
    }

    #[test]
    fn who_is_worst_off_changes_while_claims_wait() {
        // Ten of work in 40 and in 20 at first; once both have waited long, the older one's lead is less than the
        // other's lack of work.
        let old = Claim { work_done: Nanos(20), ..claim(1) };
        let young = Claim { release: Nanos(30), work_done: Nanos(9), ..claim(2) };
        for (now, first) in [(50, 1), (500, 2)] {
            let mut grants = Grants::new(Order::Stretch);
            grants.enqueue(Nanos(50), old).unwrap();
            grants.enqueue(Nanos(50), young).unwrap();
            assert_eq!(grants.next(Nanos(now)), NextGrant::Grant(first), "at {now}");
        }
    }
}
