//! The eight list-scheduling orders of exclusive I/O phases (ICS'20 §5.1).
//!
//! An [`Order`] says which of several waiting applications does its I/O next, from what is known of each of them
//! ([`Claim`]). [`Order::urgency`] is the whole decision: a pure function that the simulator and a live
//! coordinator share. Ties go to the lowest id.
//!
//! Choices where the paper is silent:
//! * *Bandwidth*: I/O time done over the time since the release, least first.
//! * *Stretch*: the stretch so far, which is the time since the release over the work done, greatest first. The
//!   I/O that is being asked for is not done yet and does not count.
//! * *Remaining* work includes the I/O that is being asked for.

use isonomia_units::Nanos;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Which waiting application goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Who asked first.
    Fifo,
    /// The lowest id.
    LowestId,
    /// The longest I/O phase.
    LongestIo,
    /// The shortest I/O phase.
    ShortestIo,
    /// The least work left, compute and I/O.
    ShortestRemaining,
    /// The most work left, compute and I/O.
    LongestRemaining,
    /// The least I/O time done over time elapsed.
    Bandwidth,
    /// The worst stretch so far.
    Stretch,
}

/// What is known of an application that asks for its next I/O phase.
///
/// All times but `release` are spans without contention; `release` is on the clock that `now` is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who asks; also what breaks ties, lowest first.
    pub app: u32,
    /// When the application was released.
    pub release: Nanos,
    /// Length of the I/O phase that it asks for.
    pub io: Nanos,
    /// Work left, this phase included.
    pub remaining: Nanos,
    /// I/O done so far.
    pub io_done: Nanos,
    /// Compute and I/O done so far.
    pub work_done: Nanos,
}

/// How urgent a claim is: the least goes first.
///
/// Values of one order compare with each other; those of different orders mean different things.
#[derive(Clone, Copy, Debug)]
pub enum Urgency {
    /// A number that does not change while the claim waits.
    Fixed(u64),
    /// A ratio to elapsed time, as numerator and denominator; the denominator is at least 1.
    Ratio(u64, u64),
}

impl Order {
    /// Every order, as the paper lists them, FIFO first.
    pub const ALL: [Self; 8] = [
        Self::Fifo,
        Self::LowestId,
        Self::LongestIo,
        Self::ShortestIo,
        Self::ShortestRemaining,
        Self::LongestRemaining,
        Self::Bandwidth,
        Self::Stretch,
    ];

    /// The order's word on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::LowestId => "lowest-id",
            Self::LongestIo => "longest-io",
            Self::ShortestIo => "shortest-io",
            Self::ShortestRemaining => "shortest-remaining",
            Self::LongestRemaining => "longest-remaining",
            Self::Bandwidth => "bandwidth",
            Self::Stretch => "stretch",
        }
    }

    /// Whether [`Self::urgency`] depends on `now`, so that the order among claims may change while they wait.
    pub const fn changes_while_waiting(self) -> bool {
        matches!(self, Self::Bandwidth | Self::Stretch)
    }

    /// How urgent `claim`, made at `since`, is at `now`. Claims that are equally urgent go by id.
    pub fn urgency(self, now: Nanos, since: Nanos, claim: &Claim) -> Urgency {
        match self {
            Self::Fifo => Urgency::Fixed(since.0),
            Self::LowestId => Urgency::Fixed(0),
            Self::LongestIo => Urgency::Fixed(u64::MAX - claim.io.0),
            Self::ShortestIo => Urgency::Fixed(claim.io.0),
            Self::ShortestRemaining => Urgency::Fixed(claim.remaining.0),
            Self::LongestRemaining => Urgency::Fixed(u64::MAX - claim.remaining.0),
            Self::Bandwidth => match now.since(claim.release) {
                Nanos::ZERO => Urgency::Ratio(0, 1),
                elapsed => Urgency::Ratio(claim.io_done.0, elapsed.0),
            },
            // The inverse of the stretch, so that an application that has done nothing yet needs no infinity.
            Self::Stretch => match now.since(claim.release) {
                Nanos::ZERO => Urgency::Ratio(1, 1),
                elapsed => Urgency::Ratio(claim.work_done.0, elapsed.0),
            },
        }
    }
}

impl Ord for Urgency {
    fn cmp(&self, other: &Self) -> Ordering {
        match (*self, *other) {
            (Self::Fixed(a), Self::Fixed(b)) => a.cmp(&b),
            // Exact: two 64-bit factors fit 128 bits.
            (Self::Ratio(a, b), Self::Ratio(c, d)) => {
                (u128::from(a) * u128::from(d)).cmp(&(u128::from(c) * u128::from(b)))
            }
            (Self::Fixed(_), Self::Ratio(..)) => Ordering::Less,
            (Self::Ratio(..), Self::Fixed(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Urgency {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Urgency {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Urgency {}

/// A word that names no order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no order of I/O phases (allowed: {names})", names = Order::ALL.map(Order::name).join(", "))]
pub struct ParseOrderError(String);

impl FromStr for Order {
    type Err = ParseOrderError;
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|order| order.name() == word).ok_or_else(|| ParseOrderError(word.to_owned()))
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: Claim = Claim {
        app: 0,
        release: Nanos(100),
        io: Nanos(10),
        remaining: Nanos(50),
        io_done: Nanos(20),
        work_done: Nanos(80),
    };

    /// Whether `a`, claimed at 900, goes before `b`, claimed at 800, at time 1100.
    fn goes_first(order: Order, a: Claim, b: Claim) -> bool {
        let now = Nanos(1100);
        order.urgency(now, Nanos(900), &a) < order.urgency(now, Nanos(800), &b)
    }

    #[test]
    fn each_order_looks_at_its_own_figure() {
        let claim = |io, remaining, io_done, work_done| Claim {
            io: Nanos(io),
            remaining: Nanos(remaining),
            io_done: Nanos(io_done),
            work_done: Nanos(work_done),
            ..CLAIM
        };
        let (a, b) = (claim(10, 50, 30, 80), claim(20, 60, 20, 90));
        for (order, a_first) in [
            (Order::Fifo, false),
            (Order::LowestId, false),
            (Order::LongestIo, false),
            (Order::ShortestIo, true),
            (Order::ShortestRemaining, true),
            (Order::LongestRemaining, false),
            (Order::Bandwidth, false),
            (Order::Stretch, true),
        ] {
            assert_eq!(goes_first(order, a, b), a_first, "{order}");
        }
    }

    #[test]
    fn ratios_count_from_the_release() {
        // Both did 20 of I/O; in 1000 and in 500.
        let late = Claim { release: Nanos(600), ..CLAIM };
        assert!(goes_first(Order::Bandwidth, CLAIM, late));
        assert!(goes_first(Order::Stretch, CLAIM, late));
        // Nothing done in some time is the worst stretch; nothing done in no time is none.
        let nothing = Claim { work_done: Nanos::ZERO, ..late };
        assert!(goes_first(Order::Stretch, nothing, CLAIM));
        assert!(goes_first(Order::Stretch, CLAIM, Claim { release: Nanos(1100), ..nothing }));
    }

    #[test]
    fn large_ratios_compare_exactly() {
        let n = u64::MAX;
        assert!(Urgency::Ratio(n - 1, n) < Urgency::Ratio(1, 1));
        assert!(Urgency::Ratio(n - 2, n - 1) < Urgency::Ratio(n - 1, n));
        assert_eq!(Urgency::Ratio(2, 4), Urgency::Ratio(1, 2));
    }

    #[test]
    fn words_are_read_back() {
        for order in Order::ALL {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        let error = "random".parse::<Order>().unwrap_err().to_string();
        assert!(error.contains("\"random\"") && error.contains("fifo, lowest-id, longest-io"), "{error}");
    }
}
