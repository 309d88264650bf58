//! A mean over seeds and how sure it is.

use std::fmt;

/// Student's t for 95 %, by degrees of freedom from 1 on.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// For more degrees of freedom than the table has; the last entry is within 0.05 of it.
const T_95_LARGE: f64 = 1.96;

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; not a number for a single value.
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
        let t = T_95.get(n - 2).copied().unwrap_or(T_95_LARGE);
        Self { mean, half: t * (variance / n as f64).sqrt() }
    }

    /// The least and greatest value of the interval.
    pub fn bounds(&self) -> (f64, f64) {
        (self.mean - self.half, self.mean + self.half)
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An interval that would print as none gets another digit.
        let digits = f.precision().unwrap_or(if self.half < 0.001 && self.half > 0.0 { 4 } else { 3 });
        write!(f, "{:.digits$}", self.mean)?;
        if self.half.is_nan() { Ok(()) } else { write!(f, " ± {:.digits$}", self.half) }
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
    }

    #[test]
    fn ratios_are_averaged_as_ratios() {
        assert!((geometric_mean([0.5, 2.0]) - 1.0).abs() < 1e-12);
        assert!((geometric_mean([1.0, 8.0]) - 8f64.sqrt()).abs() < 1e-12);
    }
}
