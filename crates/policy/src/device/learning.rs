//! What requests cost a device, learnt from what they were attributed.
//!
//! A request of one [`Access`] is taken to cost a time for the operation and a time for each byte. Both are fitted by
//! least squares to what such requests were [attributed](super::attribution) lately: a sample counts for less and less
//! within [`MEMORY`], though some are remembered where they come slowly and no more than [`SAMPLES_MAX`] where they come
//! fast: a device that became slow gives few new ones. So one that changes
//! (flash that collects garbage, an array that rebuilds, somebody else on the file system) is followed within about a second.
//! Errors count relative to the size, or the large requests alone would decide. Neither time is negative. Where all
//! requests are about as large, only their cost is known and not how it divides: then both times keep their ratio.
//!
//! One request that takes a hundred times as long as the others says little about the next: what a sample says beyond
//! [`OUTLIER`] times the prediction is cut off. Where [`OUTLIERS_MAX`] in a row are so far off in the same direction, it is the
//! device that has changed, and all that was learnt before is forgotten.
//!
//! What this gives is a prediction, and fairness does not depend on it: see [`super::attribution`]. Linux's `blk-iocost`
//! has the same model with constants that somebody measured. No clock and no I/O here.

use super::cost::CostModel;
use isonomia_units::{Bytes, Nanos, Rate};
use serde::{Deserialize, Serialize};

/// A sample that is so old counts e times less than a new one.
const MEMORY: Nanos = Nanos::from_millis(150);
/// Where they come slowly, about so many samples count.
const SAMPLES_MIN: f64 = 32.0;
/// About so many count at most.
const SAMPLES_MAX: f64 = 512.0;
/// More than so many times the prediction, or less than such a part of it, counts as this much …
const OUTLIER: f64 = 4.0;
/// … once so many samples have come.
const SAMPLES_SURE: u32 = 8;
/// So many in a row are none.
const OUTLIERS_MAX: u32 = 8;
/// Requests smaller than this are as important as one of this size.
const BYTES_SMALL: f64 = 16_384.0;
/// Sizes tell the time for a byte apart from that for an operation if their deviation is this part of their mean.
const SPREAD_MIN: f64 = 0.25;

/// What a request does to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// A read that does not begin where the one before it ended.
    ReadRandom,
    /// A read that does.
    ReadSequential,
    /// A write that does not.
    WriteRandom,
    /// A write that does.
    WriteSequential,
}

impl Access {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::ReadRandom, Self::ReadSequential, Self::WriteRandom, Self::WriteSequential];

    /// Of a write, or of a read.
    pub fn new(is_write: bool, is_sequential: bool) -> Self {
        match (is_write, is_sequential) {
            (false, false) => Self::ReadRandom,
            (false, true) => Self::ReadSequential,
            (true, false) => Self::WriteRandom,
            (true, true) => Self::WriteSequential,
        }
    }

    /// Its index in [`Self::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// What it is called in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadRandom => "read-random",
            Self::ReadSequential => "read-sequential",
            Self::WriteRandom => "write-random",
            Self::WriteSequential => "write-sequential",
        }
    }
}

/// Learns what requests of one kind cost.
#[derive(Clone, Debug)]
pub struct CostLearner {
    per_op_ns: f64,
    per_byte_ns: f64,
    is_trained: bool,
    /// That `sums` has, old ones as well.
    samples: u32,
    /// Outliers in a row, and whether they took longer than they should have.
    outliers: (u32, bool),
    latest: Nanos,
    sums: Sums,
    /// Of what was attributed, and of how far the predictions were off; fading as the samples do.
    attributed_ns: f64,
    off_ns: f64,
}

/// Weighted sums over samples of x bytes that took y ns.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    one: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl CostLearner {
    /// Knows nothing but a first guess.
    pub fn new(guess: CostModel) -> Self {
        Self {
            per_op_ns: guess.per_op.0 as f64,
            per_byte_ns: 1e9 / guess.bandwidth.bytes_per_s() as f64,
            is_trained: false,
            samples: 0,
            outliers: (0, false),
            latest: Nanos::ZERO,
            sums: Sums::default(),
            attributed_ns: 0.0,
            off_ns: 0.0,
        }
    }

    /// A request of `bytes` was attributed `took`.
    pub fn learn(&mut self, now: Nanos, bytes: Bytes, took: Nanos) {
        let (x, took_ns) = (bytes.0 as f64, took.0 as f64);
        let predicted_ns = self.per_op_ns + self.per_byte_ns * x;
        let y = self.without_outlier(took_ns, predicted_ns);
        let age = now.since(self.latest);
        self.latest = self.latest.max(now);
        let fading = (-(age.0 as f64) / MEMORY.0 as f64).exp().clamp(1.0 - 1.0 / SAMPLES_MIN, 1.0 - 1.0 / SAMPLES_MAX);
        self.sums.fade_and_add(fading, BYTES_SMALL / (x + BYTES_SMALL), x, y);
        if self.is_trained {
            self.attributed_ns = self.attributed_ns * fading + took_ns;
            self.off_ns = self.off_ns * fading + (took_ns - predicted_ns).abs();
        }
        self.is_trained = true;
        self.samples = self.samples.saturating_add(1);
        self.fit();
    }

    fn without_outlier(&mut self, took_ns: f64, predicted_ns: f64) -> f64 {
        let within = took_ns.clamp(predicted_ns / OUTLIER, predicted_ns * OUTLIER);
        if self.samples < SAMPLES_SURE || within == took_ns {
            self.outliers = (0, false);
            return took_ns;
        }
        let is_longer = took_ns > within;
        let before = if self.outliers.1 == is_longer { self.outliers.0 } else { 0 };
        self.outliers = (before + 1, is_longer);
        if self.outliers.0 < OUTLIERS_MAX {
            return within;
        }
        (self.outliers, self.samples, self.sums) = ((0, false), 0, Sums::default());
        took_ns
    }

    fn fit(&mut self) {
        let Sums { one, x, y, xx, xy } = self.sums;
        let (x, y) = (x / one, y / one);
        let variance = xx / one - x * x;
        let before_ns = self.per_op_ns + self.per_byte_ns * x;
        self.per_byte_ns = if variance > (SPREAD_MIN * x).powi(2) && variance > 1.0 {
            (xy / one - x * y) / variance
        } else if before_ns > 0.0 {
            self.per_byte_ns * (y / before_ns)
        } else {
            0.0
        };
        let per_byte_ns_max = if x > 0.0 { y / x } else { 0.0 };
        self.per_byte_ns = self.per_byte_ns.clamp(0.0, per_byte_ns_max);
        self.per_op_ns = (y - self.per_byte_ns * x).max(0.0);
    }

    /// What it makes of it.
    pub fn model(&self) -> CostModel {
        let bytes_per_s = (1e9 / self.per_byte_ns) as u64;
        let bandwidth = Rate::new(bytes_per_s.max(1)).expect("at least 1").min(CostModel::BANDWIDTH_MAX);
        CostModel { per_op: Nanos(self.per_op_ns.round() as u64), bandwidth }
    }

    /// Whether it has learnt anything: before, it gives its first guess.
    pub fn is_trained(&self) -> bool {
        self.is_trained
    }

    /// How far its predictions were off lately: the sum of the differences, over the sum of what was attributed. `None`
    /// before there was a prediction.
    pub fn error(&self) -> Option<f64> {
        (self.attributed_ns > 0.0).then(|| self.off_ns / self.attributed_ns)
    }
}

impl Sums {
    fn fade_and_add(&mut self, fading: f64, weight: f64, x: f64, y: f64) {
        self.one = self.one * fading + weight;
        self.x = self.x * fading + weight * x;
        self.y = self.y * fading + weight * y;
        self.xx = self.xx * fading + weight * x * x;
        self.xy = self.xy * fading + weight * x * y;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    const GUESS: CostModel =
        CostModel { per_op: Nanos(1_907), bandwidth: Rate::new(8 << 30).expect("a constant that is not 0") };

    /// Requests one after the other, of random sizes among `sizes`.
    struct Device {
        learner: CostLearner,
        now: Nanos,
        random: Pcg64,
    }

    impl Device {
        fn new() -> Self {
            Self { learner: CostLearner::new(GUESS), now: Nanos::ZERO, random: Pcg64::seed_from_u64(5) }
        }

        fn serve(&mut self, time: Nanos, sizes: &[u64], took_ns: impl Fn(f64, f64) -> f64) {
            let end = self.now + time;
            while self.now < end {
                let bytes = sizes[self.random.random_range(0..sizes.len())];
                let took = Nanos(took_ns(bytes as f64, self.random.random()) as u64);
                self.now += took;
                self.learner.learn(self.now, Bytes(bytes), took);
            }
        }

        fn predicts_ns(&self, bytes: u64) -> f64 {
            self.learner.model().cost(Bytes(bytes)).0 as f64
        }
    }

    fn assert_near(found: f64, wanted: f64, tolerance: f64) {
        assert!((found / wanted - 1.0).abs() <= tolerance, "{found} instead of {wanted}");
    }

    /// 80 us and 1 GB/s, give or take a fifth.
    fn flash(bytes: f64, random: f64) -> f64 {
        (80_000.0 + bytes) * (0.8 + 0.4 * random)
    }

    #[test]
    fn operations_and_bytes_are_told_apart() {
        let mut device = Device::new();
        device.serve(Nanos::from_secs(2), &[4 << 10, 64 << 10, 1 << 20], flash);
        assert_near(device.predicts_ns(4 << 10), flash(4096.0, 0.5), 0.1);
        assert_near(device.predicts_ns(1 << 20), flash(1_048_576.0, 0.5), 0.1);
        assert!(device.learner.error().unwrap() < 0.15, "{:?}", device.learner.error());
    }

    #[test]
    fn a_device_that_becomes_ten_times_slower_or_faster_is_followed_within_a_second() {
        for sizes in [&[4 << 10][..], &[4 << 10, 1 << 20]] {
            let mut device = Device::new();
            device.serve(Nanos::from_secs(2), sizes, flash);
            device.serve(Nanos::from_secs(1), sizes, |bytes, random| 10.0 * flash(bytes, random));
            assert_near(device.predicts_ns(4 << 10), 10.0 * flash(4096.0, 0.5), 0.2);
            device.serve(Nanos::from_secs(1), sizes, flash);
            assert_near(device.predicts_ns(4 << 10), flash(4096.0, 0.5), 0.2);
        }
    }

    #[test]
    fn a_slow_disk_is_known_after_a_second_whatever_the_guess() {
        let mut device = Device::new();
        device.serve(Nanos::from_secs(1), &[4 << 10], |_, random| 4e6 + 8e6 * random);
        assert_near(device.predicts_ns(4 << 10), 8e6, 0.3);
    }

    #[test]
    fn pauses_of_the_device_say_little() {
        let mut device = Device::new();
        // Every hundredth request waits for the garbage, a hundred times as long.
        let pausing = |bytes, random: f64| if random < 0.01 { 100.0 * flash(bytes, 0.5) } else { flash(bytes, random) };
        device.serve(Nanos::from_secs(3), &[4 << 10], pausing);
        assert_near(device.predicts_ns(4 << 10), flash(4096.0, 0.5), 0.25);
    }

    #[test]
    fn one_size_tells_nothing_of_another_but_that_it_is_slow_too() {
        let mut device = Device::new();
        device.serve(Nanos::from_secs(1), &[4 << 10, 1 << 20], flash);
        device.serve(Nanos::from_secs(3), &[4 << 10], |bytes, random| 3.0 * flash(bytes, random));
        assert_near(device.predicts_ns(4 << 10), 3.0 * flash(4096.0, 0.5), 0.2);
        let large = device.predicts_ns(1 << 20) / flash(1_048_576.0, 0.5);
        assert!((0.9..=4.0).contains(&large), "{large}");
    }

    proptest! {
        #[test]
        fn nothing_is_negative_and_nothing_overflows(
            samples in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u64>()), 1..200),
        ) {
            let mut learner = CostLearner::new(CostModel { per_op: Nanos::ZERO, bandwidth: Rate::new(1).unwrap() });
            let mut now = Nanos::ZERO;
            for (passed, bytes, took) in samples {
                now += Nanos(u64::from(passed));
                learner.learn(now, Bytes(u64::from(bytes)), Nanos(took));
                let model = learner.model();
                prop_assert!(model.cost(Bytes(0)) <= model.cost(Bytes(1 << 20)));
                prop_assert!(learner.per_op_ns.is_finite() && learner.per_byte_ns.is_finite());
            }
        }
    }
}
