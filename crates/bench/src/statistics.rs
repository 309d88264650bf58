//! Figures out of repeats and slices.

use serde::Serialize;

/// A series of repeats in three figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The middle one; the mean of both if their number is even.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Summary {
    /// None if there are no repeats.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
        Some(Self { median, min, max })
    }
}

/// The value that `percent` (0 to 100) of `values` are not above (nearest rank); reorders them. Linear.
pub fn percentile(values: &mut [u64], percent: u64) -> Option<u64> {
    let rank = (values.len() as u64 * percent).div_ceil(100).max(1) as usize - 1;
    if values.is_empty() {
        return None;
    }
    Some(*values.select_nth_unstable(rank).1)
}

/// Standard deviation of a population over its mean; 0 for less than two values or a mean of 0.
pub fn coefficient_of_variation(values: &[u64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<u64>() as f64 / count;
    if values.len() < 2 || mean == 0.0 {
        return 0.0;
    }
    let variance = values.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / count;
    variance.sqrt() / mean
}

/// Standard deviation of a population; 0 for less than two values.
pub fn deviation(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
}

/// Half of the 95 % confidence interval of the mean of a normal population of which these are a sample; none for less than two
/// values.
pub fn half_interval(values: &[f64]) -> Option<f64> {
    (values.len() > 1).then(|| isonomia_reproduce::Interval::of(values).half)
}

/// `part` of `total`, 0 to 1; 0 of nothing.
pub fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

/// Slices from `first` to the *end* of the earliest run of `window` slices in which `part` has its share of
/// `total`: within `tolerance` (relative) of `due`. None if there is no such run.
pub fn time_to_share(
    part: &[u64],
    total: &[u64],
    first: usize,
    window: usize,
    due: f64,
    tolerance: f64,
) -> Option<usize> {
    let part = part.get(first..)?.windows(window);
    let total = total.get(first..)?.windows(window);
    let reached = |(part, total): (&[u64], &[u64])| {
        let share = share(part.iter().sum(), total.iter().sum());
        (share / due - 1.0).abs() <= tolerance
    };
    part.zip(total).position(reached).map(|start| start + window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]), Some(Summary { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Summary::of(&[4.0, 1.0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn percentiles_by_nearest_rank() {
        let mut values: Vec<u64> = (1..=200).rev().collect();
        assert_eq!(percentile(&mut values, 50), Some(100));
        assert_eq!(percentile(&mut values, 99), Some(198));
        assert_eq!(percentile(&mut values, 100), Some(200));
        assert_eq!(percentile(&mut [7], 0), Some(7));
        assert_eq!(percentile(&mut [], 50), None);
    }

    #[test]
    fn variation_is_relative_to_the_mean() {
        assert_eq!(coefficient_of_variation(&[90, 110, 90, 110]), 0.1);
        assert_eq!(coefficient_of_variation(&[5]), 0.0);
        assert_eq!(coefficient_of_variation(&[0, 0]), 0.0);
    }

    #[test]
    fn deviation_is_that_of_all_values() {
        assert_eq!(deviation(&[1.0, 3.0, 1.0, 3.0]), 1.0);
        assert_eq!((deviation(&[7.0]), deviation(&[])), (0.0, 0.0));
    }

    #[test]
    fn an_interval_of_the_mean() {
        // Sample deviation 1.581, over the root of 5 0.707, times 2.776.
        let half = half_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((half - 1.963).abs() < 1e-3, "{half}");
        assert_eq!(half_interval(&[1.0]), None);
    }

    #[test]
    fn a_share_of_nothing_is_nothing() {
        assert_eq!(share(1, 4), 0.25);
        assert_eq!(share(0, 0), 0.0);
    }

    #[test]
    fn a_newcomer_has_reached_its_share_at_the_end_of_the_window() {
        let part = [9, 0, 1, 2, 5, 5, 5, 5];
        let total = [10; 8];
        // From slice 1 on: windows of two hold 1, 3, 7, 10 of 20.
        assert_eq!(time_to_share(&part, &total, 1, 2, 0.5, 0.05), Some(5));
        assert_eq!(time_to_share(&part, &total, 1, 2, 0.5, 0.31), Some(4));
        assert_eq!(time_to_share(&part, &total, 1, 2, 0.9, 0.05), None);
        assert_eq!(time_to_share(&part, &total, 9, 2, 0.5, 0.05), None);
    }
}
