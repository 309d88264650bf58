//! When and how the power is cut: a place in the log of a run that can be written down.

use crate::image::Order;
use crate::run::Run;
use crate::workload::Operation;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use std::fmt;
use std::str::FromStr;

/// Writes and flushes from a promise on that are cut more often than others.
const NEAR: usize = 12;

/// One power cut, or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Writes and flushes of the run before it.
    pub position: usize,
    pub order: Order,
    /// The power fails again while the store is opened: after so many thousandths of what is written then.
    pub again: Option<(u32, Order)>,
}

impl Cut {
    /// One of all cuts of `run`: those after something was promised, cut, or renamed more often, and some right after
    /// everything was written back, which is what a kill of the server is.
    pub fn choose(run: &Run, chance: &mut impl Rng) -> Self {
        let end = run.done.last().map_or(0, |done| done.ended);
        let risky = |operation: &Operation| {
            use Operation::{Fsync, FsyncNames, Open, Rename, Resize, Unlink, Writeback};
            matches!(
                operation,
                FsyncNames
                    | Fsync { .. }
                    | Open { .. }
                    | Rename { .. }
                    | Resize { .. }
                    | Unlink { .. }
                    | Writeback { .. }
            )
        };
        let done: Vec<_> = run.done.iter().filter(|done| risky(&done.operation) && done.ended > done.begun).collect();
        let whole: Vec<_> = run.done.iter().filter(|done| done.operation == Operation::WriteAllBack).collect();
        if let Some(done) = whole.choose(chance).filter(|_| chance.random_bool(0.08)) {
            return Self { position: done.ended, order: Order::Kept, again: None };
        }
        let position = match (chance.random_range(0..4), done.choose(chance)) {
            (0, Some(done)) => done.ended,
            (1, Some(done)) => done.ended + chance.random_range(0..NEAR),
            (2, Some(done)) => chance.random_range(done.begun..=done.ended),
            _ => chance.random_range(0..=end),
        };
        let order = some_order(chance);
        let again = chance.random_bool(0.2).then(|| (chance.random_range(0..=1000), some_order(chance)));
        Self { position: position.min(end), order, again }
    }
}

fn some_order(chance: &mut impl Rng) -> Order {
    if chance.random_bool(0.5) { Order::Kept } else { Order::Shuffled(chance.random_range(0..1 << 16)) }
}

/// `POSITION[rSEED][+PERMILLE[rSEED]]`.
impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |f: &mut fmt::Formatter<'_>, at: usize, order| match order {
            Order::Kept => write!(f, "{at}"),
            Order::Shuffled(seed) => write!(f, "{at}r{seed}"),
        };
        place(f, self.position, self.order)?;
        let Some((permille, order)) = self.again else { return Ok(()) };
        write!(f, "+")?;
        place(f, permille as usize, order)
    }
}

impl FromStr for Cut {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let place = |text: &str| -> Result<(usize, Order), Self::Err> {
            Ok(match text.split_once('r') {
                Some((at, seed)) => (at.parse()?, Order::Shuffled(seed.parse()?)),
                None => (text.parse()?, Order::Kept),
            })
        };
        let (first, second) = text.split_once('+').map_or((text, None), |(first, second)| (first, Some(second)));
        let (position, order) = place(first)?;
        let again = second.map(place).transpose()?.map(|(permille, order)| (permille as u32, order));
        Ok(Self { position, order, again })
    }
}

#[test]
fn cuts_are_read_as_they_are_written() {
    let orders = [Order::Kept, Order::Shuffled(77)];
    for order in orders {
        for again in [None, Some((500, orders[0])), Some((3, orders[1]))] {
            let cut = Cut { position: 1234, order, again };
            assert_eq!(cut.to_string().parse(), Ok(cut));
        }
    }
}
