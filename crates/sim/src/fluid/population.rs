//! A population of recurring applications like GIFT's (GIFT §2, Table 1, Fig. 2; §4).
//!
//! The paper gives no table of its applications. What is chosen here: stripe count U{1..8}, I/O phases U{2..8},
//! compute between two of them log-uniform in 2 to 30 min, volume per target log-uniform in 20 to 300 s at full
//! rate, nodes a power of two from 1 to 32. How often an application appears follows Fig. 2a: 18 % 1 to 4 times,
//! 40 % up to 200, 27 % up to 1000, 15 % up to 3000, log-uniform inside; all counts are scaled by one factor so
//! that the runs alone would keep the nodes busy for the part [`Population::load`] of the time. Inter-arrival times
//! of an application's runs are Gamma distributed; a run is not submitted before the one before has ended, as one
//! that builds on its results. Volume and compute time vary between runs (Fig. 2c), and each run's files lie on
//! targets of their own, chosen uniformly.

use super::{Application, Decisions, Phase, Run, Scenario, SchemeSpec};
use isonomia_units::{Nanos, Rate};
use rand::seq::index;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Gamma};
use rand_pcg::Pcg64;
use std::sync::Arc;

/// Bandwidth of a target (GIFT §4), bytes per second.
const BANDWIDTH: u64 = 102_000_000;
/// Between two decisions (GIFT §3.5).
pub const INTERVAL: Nanos = Nanos::from_secs(10);
/// The scheduler takes a job for so many times as long as it would be alone.
const ESTIMATE: f64 = 1.5;
/// The most applications of one population.
pub const APPLICATIONS_MAX: u32 = 100_000;
const STRIPES: std::ops::RangeInclusive<usize> = 1..=8;
const PHASES: std::ops::RangeInclusive<u32> = 2..=8;
const COMPUTE_S: (f64, f64) = (120.0, 1800.0);
const IO_S: (f64, f64) = (20.0, 300.0);
/// Powers of two.
const NODES_LOG2: std::ops::RangeInclusive<u32> = 0..=5;
/// Cumulative part of the applications, and the range of appearances (Fig. 2a).
const APPEARANCES: [(f64, f64, f64); 4] =
    [(0.18, 1.0, 5.0), (0.58, 5.0, 200.0), (0.85, 200.0, 1000.0), (1.0, 1000.0, 3000.0)];

/// What a population is made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Population {
    /// How many applications.
    pub applications: u32,
    /// Targets of the system.
    pub targets: u16,
    /// Nodes of the machine.
    pub nodes: u32,
    /// Time for which there are submissions.
    pub duration: Nanos,
    /// Node time of all runs alone over node time of the machine.
    pub load: f64,
    /// Shape of the Gamma distribution of inter-arrival times; below 1 runs come in bursts.
    pub arrival_shape: f64,
    /// Compute times and volumes of a run are up to this part more or less than the application's.
    pub variation: f64,
    /// Multiplies all I/O volumes.
    pub io_scale: f64,
}

/// An application before its runs.
struct Kind {
    nodes: u32,
    stripes: usize,
    phases: u32,
    compute_s: f64,
    io_s: f64,
    appearances: f64,
}

impl Population {
    /// The paper's simulation: `applications` of them, 64 targets, 25 days, and as many nodes for each application
    /// as its real system has clients (192 for 250).
    pub fn gift(applications: u32) -> Self {
        Self {
            applications,
            targets: 64,
            nodes: (u64::from(applications) * 192).div_ceil(250).max(32) as u32,
            duration: Nanos::from_secs(25 * 86_400),
            load: 1.0,
            arrival_shape: 0.5,
            variation: 0.05,
            io_scale: 1.0,
        }
    }

    /// The applications that `seed` gives.
    pub fn draw(&self, seed: u64) -> Vec<Application> {
        let mut random = Pcg64::seed_from_u64(seed);
        let kinds: Vec<Kind> = (0..self.applications).map(|_| self.draw_kind(&mut random)).collect();
        let alone_s = |kind: &Kind| f64::from(kind.phases) * (kind.compute_s + kind.io_s);
        let asked: f64 = kinds.iter().map(|kind| kind.appearances * alone_s(kind) * f64::from(kind.nodes)).sum();
        let scale = self.load * f64::from(self.nodes) * self.duration.as_secs_f64() / asked.max(1.0);
        let width = (self.applications.max(2) - 1).ilog10() as usize + 1;
        kinds
            .into_iter()
            .enumerate()
            .map(|(at, kind)| Application {
                name: Arc::from(format!("app-{at:0width$}")),
                nodes: kind.nodes,
                weight: 1.0,
                runs: self.draw_runs(&kind, kind.appearances * scale, &mut random),
            })
            .collect()
    }

    /// These applications, drawn from this population, on its system under a scheme that is told the truth.
    pub fn scenario(&self, applications: Arc<[Application]>, scheme: SchemeSpec, decisions: Decisions) -> Scenario {
        Scenario {
            duration: self.duration,
            interval: INTERVAL,
            decisions,
            scheme,
            targets: self.targets,
            bandwidth: Rate::new(BANDWIDTH).expect("not zero"),
            nodes: self.nodes,
            estimate: ESTIMATE,
            misprediction: 1.0,
            applications,
        }
    }

    fn draw_kind(&self, random: &mut impl Rng) -> Kind {
        let nodes = 1 << random.random_range(NODES_LOG2);
        let stripes = random.random_range(STRIPES).min(usize::from(self.targets));
        let phases = random.random_range(PHASES);
        let compute_s = log_uniform(random, COMPUTE_S.0, COMPUTE_S.1);
        let io_s = log_uniform(random, IO_S.0, IO_S.1) * self.io_scale;
        let which: f64 = random.random();
        let (_, low, high) = APPEARANCES.into_iter().find(|(part, ..)| which < *part).unwrap_or(APPEARANCES[3]);
        let appearances = log_uniform(random, low, high);
        Kind { nodes: u32::min(nodes, self.nodes), stripes, phases, compute_s, io_s, appearances }
    }

    fn draw_runs(&self, kind: &Kind, expected: f64, random: &mut impl Rng) -> Vec<Run> {
        // At least one: it is in the set because it ran.
        let mean_s = self.duration.as_secs_f64() / expected.max(1.0);
        let gap = Gamma::new(self.arrival_shape, mean_s / self.arrival_shape);
        let mut runs = Vec::new();
        let mut at_s = random.random::<f64>() * mean_s;
        while at_s < self.duration.as_secs_f64() {
            let mut targets: Vec<u16> =
                index::sample(random, usize::from(self.targets), kind.stripes).iter().map(|at| at as u16).collect();
            targets.sort_unstable();
            let mut vary = |seconds: f64| {
                let factor = 1.0 + self.variation * (2.0 * random.random::<f64>() - 1.0);
                Nanos((seconds * factor * 1e9) as u64).max(Nanos(1))
            };
            let phases =
                (0..kind.phases).map(|_| Phase { compute: vary(kind.compute_s), io: vary(kind.io_s) }).collect();
            runs.push(Run { submit: Nanos((at_s * 1e9) as u64), targets, phases });
            at_s += gap.as_ref().map_or(mean_s, |gap| gap.sample(random));
        }
        runs
    }
}

fn log_uniform(random: &mut impl Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(random.random::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_population_has_the_shape_of_the_paper() {
        let population = Population::gift(500);
        assert_eq!(population.nodes, 384);
        let applications = population.draw(1);
        assert_eq!(applications, population.draw(1));
        assert_ne!(applications, population.draw(2));
        assert!(applications.windows(2).all(|pair| pair[0].name < pair[1].name));
        let node_s: f64 = applications
            .iter()
            .flat_map(|app| app.runs.iter().map(|run| f64::from(app.nodes) * run.alone().as_secs_f64()))
            .sum();
        let load = node_s / (f64::from(population.nodes) * population.duration.as_secs_f64());
        assert!((0.9..1.15).contains(&load), "bursts and single runs aside, the load is as asked: {load}");
        let runs = applications.iter().flat_map(|app| &app.runs);
        assert!(runs.clone().all(|run| run.targets.is_sorted() && (1..=8).contains(&run.targets.len())));
        assert!(runs.clone().all(|run| (2..=8).contains(&run.phases.len())));
        assert!(runs.flat_map(|run| &run.phases).all(|phase| (19..=316).contains(&(phase.io.0 / 1_000_000_000))));
        // GIFT Fig. 2a: few applications make up most of the runs.
        let mut counts: Vec<usize> = applications.iter().map(|app| app.runs.len()).collect();
        counts.sort_unstable();
        let top: usize = counts[350..].iter().sum();
        assert!(top * 10 > counts.iter().sum::<usize>() * 8, "{counts:?}");
    }
}
