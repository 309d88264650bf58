//! Who does I/O: applications that are drawn from a seed, with phases that recur.
//!
//! Times are a hundredth of GIFT's: an application computes for 1.2 to 9 s and then does I/O that takes 0.2 to 2 s alone, on one to four of
//! the targets, again and again.

use clap::ValueEnum;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Of all servers together.
pub const TARGETS: usize = 8;
pub const APPLICATIONS: usize = 16;
const STRIPES_MAX: usize = 4;
/// Threads that an application has for each of its targets, so that it always has a request there.
pub const STREAMS: u64 = 2;
/// Of a target, in bytes per second: as in GIFT's paper, and slow enough that two cores have time to spare with all of them at full speed.
pub const BANDWIDTH: u64 = 102_000_000;
/// Bytes of a request: 8 ms of a target, which is long beside how late a busy machine wakes threads.
pub const BLOCK: u64 = 768 << 10;
/// Shortest and longest, drawn evenly on a logarithmic scale: a hundredth of GIFT's.
const COMPUTE_MS: (f64, f64) = (1_200.0, 9_000.0);
const IO_MS: (f64, f64) = (200.0, 2_000.0);
/// The most nodes are two to the power of this; all powers are as likely. Each stands for a hundred: times are a hundredth, and so node
/// time is what it is at the paper's scale.
const NODES_LOG2_MAX: u32 = 5;
const NODES_SCALE: u32 = 100;

/// How an application's requests fall on its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Each thread goes round all targets, so that the application goes on at the rate of the slowest: GIFT's model of progress.
    Striped,
    /// Each thread keeps to one target, which may be done before the others: progress is banked.
    Apart,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Striped => "striped",
            Self::Apart => "apart",
        })
    }
}

/// An application.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    pub name: String,
    pub nodes: u32,
    /// Of the targets, counted from 0 over all servers.
    pub targets: Vec<usize>,
    /// Before each phase.
    pub compute_ns: u64,
    /// Of each thread in each phase.
    pub blocks: u64,
    pub iterations: u64,
    pub start_ns: u64,
}

impl Application {
    /// How long a phase takes alone.
    pub fn io_ns(&self) -> u64 {
        self.blocks * STREAMS * BLOCK * 1_000_000_000 / BANDWIDTH
    }
}

/// The applications of a seed, each with as many phases as it would get through in `length_s` alone.
pub fn draw(seed: u64, length_s: f64) -> Vec<Application> {
    let mut chance = Pcg64Mcg::seed_from_u64(seed);
    let log_uniform =
        |chance: &mut Pcg64Mcg, (least, most): (f64, f64)| least * (most / least).powf(chance.random::<f64>());
    let one = |number: usize| {
        let (compute_ms, io_ms) = (log_uniform(&mut chance, COMPUTE_MS), log_uniform(&mut chance, IO_MS));
        let mut free: Vec<usize> = (0..TARGETS).collect();
        let stripes = chance.random_range(1..=STRIPES_MAX);
        let targets = (0..stripes).map(|_| free.swap_remove(chance.random_range(0..free.len()))).collect();
        let block_ms = BLOCK as f64 / BANDWIDTH as f64 * 1e3;
        let compute_ns = (compute_ms * 1e6) as u64;
        Application {
            name: format!("app-{number:02}"),
            nodes: NODES_SCALE << chance.random_range(0..=NODES_LOG2_MAX),
            targets,
            compute_ns,
            blocks: ((io_ms / block_ms / STREAMS as f64).round() as u64).max(1),
            iterations: (length_s * 1e3 / (compute_ms + io_ms)).ceil().max(2.0) as u64,
            start_ns: chance.random_range(0..compute_ns),
        }
    };
    (0..APPLICATIONS).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_applications_again() {
        let applications = draw(7, 40.0);
        assert_eq!(applications, draw(7, 40.0));
        assert_ne!(applications, draw(8, 40.0));
        for application in &applications {
            let mut targets = application.targets.clone();
            targets.sort_unstable();
            targets.dedup();
            assert!(targets.len() == application.targets.len() && targets.iter().all(|target| *target < TARGETS));
            assert!((150_000_000..2_100_000_000).contains(&application.io_ns()), "{application:?}");
        }
    }
}
