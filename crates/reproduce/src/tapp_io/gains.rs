//! Runs of many seeds, and what a placement gains in them.

use super::job::{Job, Pattern, Placement};
use super::machine::Machine;
use crate::claims::Test;
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Stopped};
use isonomia_units::Bytes;
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A smaller gain, in per cent, prints as none and counts as none: equal placements differ by rounding.
const GAIN_MIN: f64 = 0.05;

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
    Interval::by(runs, |run| gain_percent(run, of, over))
}

/// That there is a gain.
pub fn is_gain(what: impl Into<String>, gain: Interval) -> Test {
    Test::above(what, gain, GAIN_MIN).unit(" %")
}

/// The gain over each default placement: a row for each size, seed, and default of `defaults`, positions of variants.
pub fn gain_rows(sized: &[(u32, &[Run])], of: usize, defaults: &[(usize, &'static str)]) -> Data {
    let mut data = Data::new(&["nodes", "seed", "default", "gain_percent"]);
    for (nodes, runs) in sized {
        for (seed, run) in (1_u64..).zip(*runs) {
            for (over, name) in defaults {
                data.push([(*nodes).into(), seed.into(), (*name).into(), gain_percent(run, of, *over).into()]);
            }
        }
    }
    data
}

/// A gain over each of these defaults, as text.
pub fn beside(gains: &[(&str, Interval)]) -> String {
    gains.iter().map(|(name, gain)| format!("{gain} % over {name}")).collect::<Vec<_>>().join(", ")
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
    }
}
