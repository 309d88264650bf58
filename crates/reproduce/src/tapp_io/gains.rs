//! Runs of many seeds, what a placement gains in them, and verdicts on that.

use super::job::{Job, Pattern, Placement};
use super::machine::Machine;
use crate::claims::Verdict;
use crate::interval::Interval;
use crate::run::{Context, Stopped};
use isonomia_units::Bytes;
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A smaller gain, in per cent, prints as none and counts as none: equal placements differ by rounding.
pub const GAIN_MIN: f64 = 0.05;

/// Gigabytes per second by variant and phase, of one seed.
pub type Run = Vec<Vec<f64>>;

/// Jobs of each size in `nodes` with each seed from 1 to `seeds`, on all cores: runs by size and seed.
pub fn run_all(
    machine: &Machine,
    nodes: &[u32],
    seeds: u64,
    (phases, writer_bytes): (u32, Bytes),
    variants: &[(Placement, Pattern)],
    context: &Context,
    what: &str,
) -> Result<Vec<Vec<Run>>, Stopped> {
    // The longest first, so that the cores end together.
    let jobs: Vec<Job> = nodes
        .iter()
        .rev()
        .flat_map(|&nodes| (1..=seeds).map(move |seed| Job { nodes, writer_bytes, phases, seed }))
        .collect();
    let done = AtomicUsize::new(0);
    let run = |job: &Job| {
        context.go_on()?;
        let rates = job.gb_per_s(machine, variants);
        context.tell(what, done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
        Ok(rates)
    };
    let runs: Vec<Run> = jobs.par_iter().with_max_len(1).map(run).collect::<Result<_, Stopped>>()?;
    Ok(runs.chunks(seeds as usize).rev().map(<[Run]>::to_vec).collect())
}

/// The mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation over mean, in per cent.
pub fn deviation_percent(values: &[f64]) -> f64 {
    let mean = mean(values);
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64;
    100.0 * variance.sqrt() / mean
}

/// What variant `of` gains over variant `over` in one run, in per cent (Eq. 2).
pub fn gain_percent(run: &Run, of: usize, over: usize) -> f64 {
    100.0 * (mean(&run[of]) / mean(&run[over]) - 1.0)
}

/// That gain over the seeds.
pub fn gain(runs: &[Run], of: usize, over: usize) -> Interval {
    Interval::of(&runs.iter().map(|run| gain_percent(run, of, over)).collect::<Vec<_>>())
}

/// Whether the whole interval is a gain.
pub fn is_sure(gain: &Interval) -> bool {
    gain.bounds().0 > GAIN_MIN
}

/// Whether the mean is within half of what the paper has.
pub fn is_near(gain: &Interval, paper_percent: f64) -> bool {
    (gain.mean - paper_percent).abs() <= paper_percent / 2.0
}

/// Whether the mean is a quarter at least of what the paper has: the direction holds, and not by a trifle.
pub fn is_part(gain: &Interval, paper_percent: f64) -> bool {
    gain.mean >= paper_percent / 4.0
}

/// `Reproduces` if it holds over every default placement, `InPart` if over some, or if it `partly` does.
pub fn over_defaults(holds: &[bool], partly: bool) -> Verdict {
    Verdict::of(holds.iter().all(|holds| *holds), partly || holds.iter().any(|holds| *holds))
}

/// A gain over each default placement, as text.
pub fn by_default(gains: &[Interval]) -> String {
    let text = |(placement, gain): (&Placement, &Interval)| format!("{gain:.1} % over {}", placement.name());
    Placement::DEFAULTS.iter().zip(gains).map(text).collect::<Vec<_>>().join(", ")
}

/// Powers of two from `least` to `most`; in a quick run every other one, and always both ends.
pub fn sizes(least: u32, most: u32, quick: bool) -> Vec<u32> {
    let all = std::iter::successors(Some(most), |nodes| (*nodes > least).then_some(nodes / 2));
    let mut sizes: Vec<u32> = all.step_by(if quick { 2 } else { 1 }).collect();
    if sizes.last() != Some(&least) {
        sizes.push(least);
    }
    sizes.reverse();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_by_hand() {
        let run = vec![vec![10.0, 30.0], vec![30.0, 30.0]];
        assert_eq!(gain_percent(&run, 1, 0), 50.0);
        assert!((deviation_percent(&run[0]) - 100.0 * 200.0_f64.sqrt() / 20.0).abs() < 1e-9);
        assert_eq!(deviation_percent(&run[1]), 0.0);
        assert_eq!(sizes(8, 64, false), [8, 16, 32, 64]);
        assert_eq!(sizes(8, 64, true), [8, 16, 64]);
        let [near, part, trifle] = [25.0, 10.0, 9.0].map(|mean| Interval { mean, half: 1.0 });
        assert!(is_near(&near, 40.0) && !is_near(&part, 40.0) && is_part(&part, 40.0) && !is_part(&trifle, 40.0));
        assert_eq!(over_defaults(&[true, true], false), Verdict::Reproduces);
        assert_eq!(over_defaults(&[true, false], false), Verdict::InPart);
        assert_eq!(over_defaults(&[false, false], false), Verdict::DoesNot);
    }
}
