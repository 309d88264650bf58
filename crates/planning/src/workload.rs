//! Random workloads (ICS'20 §6.2.2): periodic jobs of low and high I/O load, sized for a given I/O load of the whole.
//!
//! The generator is the caller's, so a seed gives the same jobs again.
//!
//! Choices where the paper is silent: the I/O of a job is a normal variate, drawn again until it lies in the
//! truncation [0.01, 1]; "variance 0.1" is read as that, a standard deviation of √0.1; whether a job is of low load
//! is a coin of its own; the distribution of sizes on powers of two, of which only the mean is given, is one of
//! [`Sizes`].

use crate::packs::Job;
use crate::schedule::App;
use isonomia_units::Nanos;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Normal};

/// Mean I/O load (I/O time over compute time) of a job of low load: μ₁.
const LOW: f64 = 0.1;
/// Mean I/O load of a job of high load: μ₂.
const HIGH: f64 = 0.9;
/// Sizes are powers of two, from 2^0 to 2^11.
const POWERS: usize = 12;
/// Draws of a truncated normal before its mean is taken; a draw is kept with a chance of a half or more.
const DRAWS_MAX: usize = 256;

/// How job sizes are spread around their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sizes {
    /// The chance of 2^j is proportional to r^j.
    Geometric,
    /// j is binomial on 0 to 11.
    Binomial,
    /// The two powers next to the mean.
    Adjacent,
}

/// What workload to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// Compute nodes of an I/O node (P); jobs have at most 2048 whatever it is.
    pub nodes: u32,
    /// I/O load to aim at, greater than 0: `α_gen`. What comes out is [`alpha`](crate::alpha).
    pub alpha: f64,
    /// Standard deviation of a job's I/O load before truncation, greater than 0.
    pub deviation: f64,
    /// Least and greatest I/O load of a job.
    pub truncation: (f64, f64),
    /// How sizes are spread.
    pub sizes: Sizes,
}

impl Recipe {
    /// The paper's set-up with the choices named above.
    pub fn paper(alpha: f64) -> Self {
        Self { nodes: 2048, alpha, deviation: 0.1f64.sqrt(), truncation: (0.01, 1.0), sizes: Sizes::Geometric }
    }

    /// Draws a workload of 25 to 100 jobs with 250 to 1000 iterations, each of 10 to 100 s of compute. The
    /// bandwidth is 1: volumes are seconds.
    pub fn draw(&self, generator: &mut impl Rng) -> Vec<Job> {
        let low_share: f64 = generator.random();
        let jobs = generator.random_range(25..=100);
        let load = low_share * LOW + (1.0 - low_share) * HIGH;
        let mean_nodes = f64::from(self.nodes) * load / (self.alpha * (1.0 + load));
        let chances = self.sizes.chances(mean_nodes);
        (0..jobs).map(|_| self.draw_job(low_share, &chances, generator)).collect()
    }

    fn draw_job(&self, low_share: f64, chances: &[f64; POWERS], generator: &mut impl Rng) -> Job {
        let iterations = generator.random_range(250..=1000);
        let compute_s = generator.random_range(10.0..=100.0);
        let mean = if generator.random_bool(low_share) { LOW } else { HIGH };
        let io_s = compute_s * self.draw_load(mean, generator);
        let nodes = 1 << pick(chances, generator.random());
        let [compute, io] = [compute_s, io_s].map(|s: f64| Nanos((s * 1e9).round() as u64));
        Job { nodes, app: App { compute, io, iterations, release: Nanos::ZERO } }
    }

    fn draw_load(&self, mean: f64, generator: &mut impl Rng) -> f64 {
        let (least, greatest) = self.truncation;
        let draw = |normal: Normal<f64>| (0..DRAWS_MAX).map(move |_| normal.sample(generator));
        let drawn = Normal::new(mean, self.deviation).ok().map(draw);
        let kept = drawn.and_then(|mut all| all.find(|load| (least..=greatest).contains(load)));
        kept.unwrap_or_else(|| mean.clamp(least, greatest))
    }
}

impl Sizes {
    /// Every distribution.
    pub const ALL: [Self; 3] = [Self::Geometric, Self::Binomial, Self::Adjacent];

    /// The distribution's word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Geometric => "geometric",
            Self::Binomial => "binomial",
            Self::Adjacent => "adjacent",
        }
    }

    /// The chance of each 2^j, j from 0, so that the mean is `mean`, or the nearest there is from 1 to 2048.
    fn chances(self, mean: f64) -> [f64; POWERS] {
        let mean = mean.clamp(1.0, (1 << (POWERS - 1)) as f64);
        match self {
            Self::Geometric => geometric(mean),
            Self::Binomial => {
                // The mean of 2^j is (1 + p)^11.
                let trials = POWERS as i32 - 1;
                let p = mean.powf(1.0 / f64::from(trials)) - 1.0;
                let mut choose = 1.0;
                std::array::from_fn(|j| {
                    let j = j as i32;
                    let chance = choose * p.powi(j) * (1.0 - p).powi(trials - j);
                    choose *= f64::from(trials - j) / f64::from(j + 1);
                    chance
                })
            }
            Self::Adjacent => {
                let lower = (mean.log2().floor() as usize).min(POWERS - 2);
                let upper_share = mean / (1 << lower) as f64 - 1.0;
                let mut chances = [0.0; POWERS];
                chances[lower] = 1.0 - upper_share;
                chances[lower + 1] = upper_share;
                chances
            }
        }
    }
}

/// p_j ∝ r^j with r = 2^x such that the mean is `mean`, by bisection.
fn geometric(mean: f64) -> [f64; POWERS] {
    // Beyond these the mean is 1 or 2048 to twelve digits.
    let (mut low, mut high) = (-60.0, 60.0);
    let mut chances = [0.0; POWERS];
    for _ in 0..80 {
        let x: f64 = (low + high) / 2.0;
        // Relative to the largest term, so that nothing overflows.
        let top = if x > 0.0 { x * (POWERS - 1) as f64 } else { 0.0 };
        let terms: [f64; POWERS] = std::array::from_fn(|j| (x * j as f64 - top).exp2());
        let sum: f64 = terms.iter().sum();
        chances = terms.map(|term| term / sum);
        if mean_of(&chances) < mean {
            low = x;
        } else {
            high = x;
        }
    }
    chances
}

fn mean_of(chances: &[f64; POWERS]) -> f64 {
    chances.iter().enumerate().map(|(j, chance)| chance * (1 << j) as f64).sum()
}

/// The index that `at`, in [0, 1), falls on.
fn pick(chances: &[f64; POWERS], at: f64) -> usize {
    let mut sum = 0.0;
    let found = chances.iter().position(|chance| {
        sum += chance;
        at < sum
    });
    // Rounding may leave the sum a little below 1.
    found.unwrap_or_else(|| chances.iter().rposition(|chance| *chance > 0.0).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packs::alpha;
    use rand_pcg::Pcg64;

    #[test]
    fn sizes_have_the_mean_that_is_asked_for() {
        for sizes in Sizes::ALL {
            for mean in [1.0, 1.5, 18.6, 100.0, 1024.0, 1940.0, 2048.0] {
                let chances = sizes.chances(mean);
                assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{sizes:?} {mean}: {chances:?}");
                assert!(chances.iter().all(|chance| *chance >= -1e-12), "{sizes:?} {mean}: {chances:?}");
                assert!((mean_of(&chances) / mean - 1.0).abs() < 1e-6, "{sizes:?} {mean}: {}", mean_of(&chances));
            }
        }
        assert_eq!(mean_of(&Sizes::Adjacent.chances(5000.0)), 2048.0);
    }

    #[test]
    fn picks_follow_the_chances() {
        let chances = Sizes::Adjacent.chances(3.0);
        assert_eq!([0.0, 0.49, 0.51, 0.999_999].map(|at| pick(&chances, at)), [1, 1, 2, 2]);
        assert_eq!(pick(&[0.0; POWERS], 0.5), 0);
    }

    #[test]
    fn workloads_are_within_the_paper_s_bounds_and_come_near_the_load() {
        for sizes in Sizes::ALL {
            let recipe = Recipe { sizes, ..Recipe::paper(4.0) };
            let mut generator = Pcg64::new(7, 0);
            let mut loads = Vec::new();
            for _ in 0..300 {
                let jobs = recipe.draw(&mut generator);
                assert!((25..=100).contains(&jobs.len()));
                for job in &jobs {
                    assert!(job.nodes.is_power_of_two() && job.nodes <= 2048);
                    assert!((250..=1000).contains(&job.app.iterations));
                    assert!((10.0..=100.0).contains(&job.app.compute.as_secs_f64()));
                    let load = job.app.io.0 as f64 / job.app.compute.0 as f64;
                    assert!((0.0099..=1.0001).contains(&load), "{load}");
                }
                loads.push(alpha(&jobs, recipe.nodes));
            }
            loads.sort_by(f64::total_cmp);
            // A ratio of sums of few jobs is skewed; its median is near what was asked for.
            assert!((3.0..6.0).contains(&loads[150]), "{sizes:?}: {}", loads[150]);
        }
    }

    #[test]
    fn a_seed_gives_the_same_jobs() {
        let draw = |seed| Recipe::paper(1.0).draw(&mut Pcg64::new(seed, 0));
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}
