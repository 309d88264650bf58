//! A mean over seeds and how sure it is.

use serde::Serialize;
use std::fmt;

/// Student's t for 95 %, by degrees of freedom from 1 on.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The same for a normal distribution, which Student's becomes.
const NORMAL_95: f64 = 1.959_963_985;

/// Half the width of a 95 % interval in standard errors of the mean, for 1 degree of freedom or more. Beyond the table it is the
/// expansion of Cornish and Fisher in 1/ν for ν degrees of freedom, with three terms, which is right to 1e-5 there.
fn student_t_95(degrees: usize) -> f64 {
    T_95.get(degrees - 1).copied().unwrap_or_else(|| {
        let (z, v) = (NORMAL_95, degrees as f64);
        let first = (z.powi(3) + z) / 4.0;
        let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
        let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
        z + first / v + second / v.powi(2) + third / v.powi(3)
    })
}

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; not a number for a single value, 0 for one that no seed changes.
    pub half: f64,
}

impl Interval {
    /// Of independent values, one for each seed, assumed to be normal.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        if n < 2 {
            return Self { mean, half: f64::NAN };
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
        Self { mean, half: student_t_95(n - 1) * (variance / n as f64).sqrt() }
    }

    /// Of a function of each seed's value.
    pub fn by<T>(seeds: impl IntoIterator<Item = T>, value: impl FnMut(T) -> f64) -> Self {
        Self::of(&seeds.into_iter().map(value).collect::<Vec<_>>())
    }

    /// A value that no chance has a part in.
    pub const fn exact(value: f64) -> Self {
        Self { mean: value, half: 0.0 }
    }

    /// The least and greatest value of the interval.
    pub fn bounds(&self) -> (f64, f64) {
        (self.mean - self.half, self.mean + self.half)
    }
}

/// A half width that would print as none, and is said by no "±".
const HALF_MIN: f64 = 5e-5;

impl fmt::Display for Interval {
    /// With as many digits as tell, unless a precision is given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or_else(|| self.digits());
        // No "-0".
        let mean = if self.mean.abs() < HALF_MIN { 0.0 } else { self.mean };
        write!(f, "{mean:.digits$}")?;
        if self.half >= HALF_MIN { write!(f, " ± {:.digits$}", self.half) } else { Ok(()) }
    }
}

impl Interval {
    /// Three significant digits of the mean, and one at least of the half width.
    fn digits(&self) -> usize {
        let after_point = |value: f64, significant: i32| {
            let is_none = value.abs() < HALF_MIN || !value.is_finite();
            if is_none { 0 } else { significant - 1 - value.abs().log10().floor() as i32 }
        };
        after_point(self.mean, 3).max(after_point(self.half, 1)).clamp(0, 4) as usize
    }
}

/// The geometric mean of positive values; not a number if there is none.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, n) = values.into_iter().fold((0.0, 0usize), |(sum, n), value| (sum + value.ln(), n + 1));
    (sum / n as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_by_hand() {
        // Mean 2, standard deviation 1, three values: 4.303 / √3.
        let interval = Interval::of(&[1.0, 2.0, 3.0]);
        assert_eq!(interval.mean, 2.0);
        assert!((interval.half - 4.303 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!(format!("{interval:.2}"), "2.00 ± 2.48");
        assert_eq!(format!("{:.1}", Interval::of(&[5.0])), "5.0");
        assert_eq!(Interval::of(&[3.0; 40]).half, 0.0);
        assert_eq!(Interval::by([1, 2, 3], f64::from), interval);
    }

    /// Against the tables of R's `qt(0.975, ν)`.
    #[test]
    fn intervals_of_many_values_are_wider_than_normal_ones() {
        for (degrees, t) in [(30, 2.042_272), (31, 2.039_513), (39, 2.022_691), (60, 2.000_298), (1_000, 1.962_339)] {
            assert!((student_t_95(degrees) - t).abs() < 5e-4, "{degrees}: {}", student_t_95(degrees));
        }
        assert!((student_t_95(39) - 2.022_691).abs() < 1e-5, "{}", student_t_95(39));
    }

    #[test]
    fn digits_tell_and_no_more() {
        let text = |mean, half| Interval { mean, half }.to_string();
        assert_eq!(text(202.71, 5.2), "203 ± 5");
        assert_eq!(text(1.4109, 0.0003), "1.4109 ± 0.0003");
        assert_eq!(text(10.04, 0.6), "10.0 ± 0.6");
        assert_eq!(text(0.5, 0.0), "0.500");
        assert_eq!(text(0.0, 0.0), "0");
        assert_eq!(text(-1e-9, 1e-9), "0");
        assert_eq!(text(99.999, 1e-7), "100.0");
        assert_eq!(text(21.8, f64::NAN), "21.8");
        assert_eq!(Interval::exact(3.96).to_string(), "3.96");
    }

    #[test]
    fn ratios_are_averaged_as_ratios() {
        assert!((geometric_mean([0.5, 2.0]) - 1.0).abs() < 1e-12);
        assert!((geometric_mean([1.0, 8.0]) - 8f64.sqrt()).abs() < 1e-12);
    }
}
