//! What a device did, and how much that is, compared with what it did at another time.
//!
//! Two spans of time differ in what was done: so many requests of one kind, so many of another. What one is worth beside the
//! other is a price, and the price that counts is the device's time: what requests of the kind were attributed
//! ([`attribution`](super::super::attribution)) on average. Of each span the prices are known that hold in it, and *those of
//! the other span are what its requests are counted at*. For counted at its own, a device does one second of work in each
//! second whatever it does. At the first span's prices the ratio of both is Laspeyres' index of quantities, at the second's
//! Paasche's. Either is off where a queue in the device evens out what requests take; their geometric mean, Fisher's ideal
//! index, is off by less and is exactly the inverse if the spans are swapped: so no two depths can each seem better than
//! the other.
//!
//! Requests are of one kind if they are of one job and about as large. Where only one kind comes, the index is the ratio of
//! their numbers in a second.

use isonomia_units::{JobId, Nanos};

/// Jobs that are told apart; one of a greater number is of a kind with another one.
const JOBS: usize = 16;
/// Sizes that are told apart, by factors of two from [`SIZE_MIN_LOG2`].
const SIZES: usize = 16;
/// The smallest, as the logarithm of the nominal work in nanoseconds.
const SIZE_MIN_LOG2: u32 = 9;

/// Requests of each kind, and what they had of the device.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// How long it took.
    pub(super) lasted: Nanos,
    kinds: Box<[Kind; JOBS * SIZES]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    requests: u64,
    attributed_ns: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { lasted: Nanos::ZERO, kinds: Box::new([Kind::default(); JOBS * SIZES]) }
    }
}

impl Tally {
    pub(super) fn add(&mut self, job: JobId, work: Nanos, attributed: Nanos) {
        let size = work.0.max(1).ilog2().saturating_sub(SIZE_MIN_LOG2).min(SIZES as u32 - 1) as usize;
        let kind = &mut self.kinds[job.0 as usize % JOBS * SIZES + size];
        kind.requests += 1;
        kind.attributed_ns = kind.attributed_ns.saturating_add(attributed.0);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.lasted += other.lasted;
        for (kind, more) in self.kinds.iter_mut().zip(other.kinds.iter()) {
            kind.requests += more.requests;
            kind.attributed_ns = kind.attributed_ns.saturating_add(more.attributed_ns);
        }
    }

    /// How many times as much as here was done in `other` in the same time; 1 if nothing is known of either.
    pub(super) fn ratio(&self, other: &Self) -> f64 {
        let at_own_prices = |tally: &Self| tally.kinds.iter().map(|kind| kind.attributed_ns as f64).sum::<f64>();
        let laspeyres = other.at_prices_of(self) / at_own_prices(self);
        let paasche = at_own_prices(other) / self.at_prices_of(other);
        let of_time = self.lasted.0 as f64 / other.lasted.0 as f64;
        let ratio = (laspeyres * paasche).sqrt() * of_time;
        if ratio.is_finite() && ratio > 0.0 { ratio } else { 1.0 }
    }

    /// Kinds of which `prices` has none are worth what they had of the device here.
    fn at_prices_of(&self, prices: &Self) -> f64 {
        let kinds = self.kinds.iter().zip(prices.kinds.iter());
        let worth = kinds.map(|(kind, price)| match price.requests {
            0 => kind.attributed_ns as f64,
            requests => kind.requests as f64 * price.attributed_ns as f64 / requests as f64,
        });
        worth.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Nanos = Nanos(2_400);
    const LARGE: Nanos = Nanos(33_000);

    /// A second in which so many were done of the small requests of one job and the large ones of another, which take so long.
    fn second(small: (u64, u64), large: (u64, u64)) -> Tally {
        let mut tally = Tally { lasted: Nanos::from_secs(1), ..Tally::default() };
        for (job, work, (requests, us)) in [(JobId(1), SMALL, small), (JobId(2), LARGE, large)] {
            (0..requests).for_each(|_| tally.add(job, work, Nanos::from_micros(us)));
        }
        tally
    }

    #[test]
    fn of_one_kind_the_numbers_count() {
        let ratio = second((1000, 1000), (0, 0)).ratio(&second((1500, 600), (0, 0)));
        assert!((ratio - 1.5).abs() < 1e-9, "{ratio}");
    }

    /// Twice as many bytes and three quarters more of nominal work, and nothing gained: the device is given to somebody else.
    #[test]
    fn another_mix_is_no_gain() {
        let even = second((1000, 500), (500, 1000));
        let uneven = second((200, 500), (900, 1000));
        for ratio in [even.ratio(&uneven), uneven.ratio(&even)] {
            assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
        }
    }

    #[test]
    fn there_and_back_is_one() {
        let (one, other) = (second((900, 600), (300, 1500)), second((500, 900), (700, 1100)));
        let both = one.ratio(&other) * other.ratio(&one);
        assert!((both - 1.0).abs() < 1e-9, "{both}");
    }

    #[test]
    fn of_nothing_nothing_is_known() {
        let nothing = Tally::default();
        assert_eq!((nothing.ratio(&nothing), nothing.ratio(&second((1, 1), (0, 0)))), (1.0, 1.0));
        // Who was not there before is worth what he is now.
        let alone = second((1000, 1000), (0, 0));
        let ratio = alone.ratio(&second((500, 1000), (500, 1000)));
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
    }
}
