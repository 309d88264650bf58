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
pub(super) const JOBS: usize = 16;
/// Sizes that are told apart, by factors of two from [`SIZE_MIN_LOG2`].
const SIZES: usize = 16;
/// The smallest, as the logarithm of the nominal work in nanoseconds.
const SIZE_MIN_LOG2: u32 = 9;
/// So much more is a gain, be it by accident.
const ONE_MIN: f64 = 1.05;

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
        ratio_of(self.kinds.as_slice(), other.kinds.as_slice()) * self.time_over(other)
    }

    /// Of each job, how many times as much as here was done of it in `other` in the same time.
    pub(super) fn gains(&self, other: &Self) -> [Gain; JOBS] {
        let of_time = self.time_over(other);
        let all = time_of(self.kinds.as_slice()) / time_of(other.kinds.as_slice());
        std::array::from_fn(|job| {
            let of_job = job * SIZES..(job + 1) * SIZES;
            let (here, there) = (&self.kinds[of_job.clone()], &other.kinds[of_job]);
            let requests = |kinds: &[Kind]| kinds.iter().map(|kind| kind.requests).sum::<u64>() as f64;
            let noise = requests(here).recip() + requests(there).recip();
            let of_part = time_of(there) / time_of(here) * all;
            Gain { ratio: ratio_of(here, there) * of_time, of_part, noise: noise.sqrt() }
        })
    }

    fn time_over(&self, other: &Self) -> f64 {
        let ratio = self.lasted.0 as f64 / other.lasted.0 as f64;
        if ratio.is_finite() && ratio > 0.0 { ratio } else { 1.0 }
    }
}

/// How much more of a job was done, as it seems from so many requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gain {
    ratio: f64,
    /// How many times as large its part of the device's time was.
    of_part: f64,
    /// Standard deviation of its logarithm if requests end at random times; infinite if one of the two has none of the job.
    noise: f64,
}

/// What a gain has to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct GainMin {
    /// So much more at least, …
    pub ratio: f64,
    /// … of so much larger a part of the device's time: where jobs' parts stay the same, the policy decides as it is, …
    pub of_part: f64,
    /// … and so many standard deviations.
    pub deviations: f64,
}

impl Gain {
    pub(super) fn is(&self, least: &GainMin) -> bool {
        let GainMin { ratio, of_part, deviations } = *least;
        self.ratio >= ratio && self.of_part >= of_part && self.ratio.ln() >= deviations * self.noise
    }

    /// Whether there is one at all, as far as these requests tell.
    pub(super) fn is_one(&self) -> bool {
        self.noise.is_finite() && self.ratio > ONE_MIN
    }
}

/// How many times as much as by `these` was done by `those`, whatever time it took; 1 if nothing is known of either.
fn ratio_of(these: &[Kind], those: &[Kind]) -> f64 {
    let laspeyres = at_prices_of(those, these) / time_of(these);
    let paasche = time_of(those) / at_prices_of(these, those);
    let ratio = (laspeyres * paasche).sqrt();
    if ratio.is_finite() && ratio > 0.0 { ratio } else { 1.0 }
}

/// What they were attributed of the device's time, in nanoseconds.
fn time_of(kinds: &[Kind]) -> f64 {
    kinds.iter().map(|kind| kind.attributed_ns as f64).sum()
}

/// Kinds of which `prices` has none are worth what they had of the device here.
fn at_prices_of(kinds: &[Kind], prices: &[Kind]) -> f64 {
    let worth = kinds.iter().zip(prices).map(|(kind, price)| match price.requests {
        0 => kind.attributed_ns as f64,
        requests => kind.requests as f64 * price.attributed_ns as f64 / requests as f64,
    });
    worth.sum()
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
    fn a_job_gains_by_what_is_done_of_it() {
        let gains = second((1000, 400), (500, 1200)).gains(&second((1500, 400), (250, 1600)));
        let [small, large] = [gains[1], gains[2]];
        assert!((small.ratio - 1.5).abs() < 1e-9 && (large.ratio - 0.5).abs() < 1e-9, "{small:?} {large:?}");
        let sure = |ratio| GainMin { ratio, of_part: 1.1, deviations: 3.0 };
        assert!(small.is(&sure(1.2)) && !small.is(&sure(1.6)) && small.is_one() && !large.is_one());
        // Of so few it may be an accident, and of none there is no gain.
        let few = second((10, 400), (0, 1000)).gains(&second((15, 400), (250, 1600)));
        assert!(few[1].is_one() && !few[1].is(&sure(1.2)) && !few[2].is_one() && !few[2].is(&sure(1.0)), "{few:?}");
        // Each has half of the time as before, and the queue in the device is shorter.
        let even = second((1000, 500), (500, 1000)).gains(&second((1500, 333), (320, 1562)));
        assert!(even[1].is_one() && !even[1].is(&sure(1.2)), "{even:?}");
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
