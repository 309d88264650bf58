//! Packs: sets of jobs that run together, one pack after the other on an I/O node (ICS'20 §5.2).
//!
//! [`make_packs`] is Algorithm 1. It guarantees that the jobs of a pack fit the compute nodes (Eq. 5) and, for
//! packs of several jobs, that their I/O occupation is at most the sensibility (Eq. 4). [`assign`] puts packs on
//! I/O nodes, longest first; [`execute`] runs each of them by list scheduling.
//!
//! Choices where the paper is silent: packs are tried by decreasing compute nodes in use, sorted anew after each
//! job, ties in the order of making; First-Fit is the same sort with an infinite sensibility; packs are assigned by
//! their length without contention; a job that alone exceeds a sensibility below 1 gets a pack of its own.

use crate::order::Order;
use crate::schedule::{App, Outcome, SPAN_MAX, ScheduleError, schedule};
use isonomia_units::Nanos;
use std::cmp::Reverse;

/// A job that needs compute nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Compute nodes, at least 1: Q.
    pub nodes: u32,
    /// What it does there; `release` counts from the start of its pack.
    pub app: App,
}

/// How much I/O a pack may have (S).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sensibility {
    /// As much as there is: First-Fit.
    Infinite,
    /// The workload's own I/O load, [`alpha`].
    Alpha,
    /// At most this, greater than 0, times the length of the pack.
    Limit(f64),
}

/// Jobs that run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Positions of the jobs, in the order in which they were put in.
    pub jobs: Vec<usize>,
    /// Compute nodes in use: P^Pack.
    pub nodes: u32,
    /// Length without contention: T^Pack.
    pub alone: Nanos,
    /// I/O time of all jobs together.
    pub io: Nanos,
}

/// Where a pack runs and what became of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRun {
    /// The pack.
    pub pack: Pack,
    /// From its begin to its last completion.
    pub time: Nanos,
    /// Outcomes of its jobs, as [`Pack::jobs`] has them, from the begin of the pack.
    pub jobs: Vec<Outcome>,
}

/// Why jobs cannot be packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A job that can never run.
    #[error("job {job} needs {needed} compute nodes (allowed: 1 to {nodes}, the machine)")]
    Nodes {
        /// Its position.
        job: usize,
        /// What it asks for.
        needed: u32,
        /// What there is.
        nodes: u32,
    },
    /// A job that does nothing.
    #[error("job {job} neither computes nor does I/O (allowed: at least one iteration of some length)")]
    Nothing {
        /// Its position.
        job: usize,
    },
    /// The times do not fit the clock.
    #[error("the jobs may last longer than {} years together", SPAN_MAX.0 / (365 * 24 * 3_600_000_000_000))]
    Span,
}

impl Pack {
    /// Average I/O occupation: L^Pack, the share of its length without contention that its I/O takes.
    pub fn occupation(&self) -> f64 {
        self.io.0 as f64 / self.alone.0 as f64
    }
}

impl PackRun {
    /// The worst stretch of its jobs.
    pub fn max_stretch(&self) -> f64 {
        self.jobs.iter().map(Outcome::stretch).fold(1.0, f64::max)
    }
}

/// The workload's I/O load (Eq. 6): the I/O occupation that a schedule without gaps would have on `nodes` compute
/// nodes. Not negative; zero if there is no job.
pub fn alpha(jobs: &[Job], nodes: u32) -> f64 {
    let io: f64 = jobs.iter().map(|job| job.app.io_alone().as_secs_f64()).sum();
    let area: f64 = jobs.iter().map(|job| f64::from(job.nodes) * job.app.alone().as_secs_f64()).sum();
    if area > 0.0 { f64::from(nodes) * io / area } else { 0.0 }
}

/// Puts `jobs` into packs for partitions of `nodes` compute nodes (Algorithm 1). The packs come in the order of
/// their making. O(jobs × packs).
///
/// # Errors
/// A job needs more compute nodes than there are, or none, or does nothing.
pub fn make_packs(jobs: &[Job], nodes: u32, sensibility: Sensibility) -> Result<Vec<Pack>, PackError> {
    check(jobs, nodes)?;
    let limit = match sensibility {
        Sensibility::Infinite => f64::INFINITY,
        Sensibility::Alpha => alpha(jobs, nodes),
        Sensibility::Limit(limit) => limit,
    };
    let mut longest_first: Vec<usize> = (0..jobs.len()).collect();
    longest_first.sort_by_key(|&job| Reverse(jobs[job].app.alone()));
    let mut packs: Vec<Pack> = Vec::new();
    // Positions in `packs` by decreasing nodes in use, then as they were made: S_P.
    let mut fullest_first: Vec<usize> = Vec::new();
    for job in longest_first {
        let needed = jobs[job].nodes;
        let io = jobs[job].app.io_alone();
        // Full packs come first, and are the most: they are skipped at once.
        let roomy = fullest_first.partition_point(|&pack| packs[pack].nodes > nodes - needed);
        let fits = |pack: &Pack| (pack.io + io).0 as f64 <= limit * pack.alone.0 as f64;
        let rank = match fullest_first[roomy..].iter().position(|&pack| fits(&packs[pack])) {
            Some(at) => roomy + at,
            None => {
                packs.push(Pack { jobs: Vec::new(), nodes: 0, alone: jobs[job].app.alone(), io: Nanos::ZERO });
                fullest_first.push(packs.len() - 1);
                fullest_first.len() - 1
            }
        };
        let chosen = fullest_first[rank];
        let pack = &mut packs[chosen];
        pack.jobs.push(job);
        pack.nodes += needed;
        pack.io += io;
        let grown = (Reverse(packs[chosen].nodes), chosen);
        let to = fullest_first[..rank].partition_point(|&pack| (Reverse(packs[pack].nodes), pack) < grown);
        fullest_first[to..=rank].rotate_right(1);
    }
    Ok(packs)
}

fn check(jobs: &[Job], nodes: u32) -> Result<(), PackError> {
    for (job, Job { nodes: needed, app }) in jobs.iter().enumerate() {
        if !(1..=nodes).contains(needed) {
            return Err(PackError::Nodes { job, needed: *needed, nodes });
        }
        if app.alone() == Nanos::ZERO {
            return Err(PackError::Nothing { job });
        }
    }
    let span = jobs.iter().fold(Nanos::ZERO, |span, job| span + job.app.alone());
    if span > SPAN_MAX { Err(PackError::Span) } else { Ok(()) }
}

/// Runs `pack` by `order` on its I/O node.
///
/// # Errors
/// As [`schedule()`]; applications are numbered as in the pack.
pub fn execute(jobs: &[Job], pack: Pack, order: Order) -> Result<PackRun, ScheduleError> {
    // Ties go by id, which is the position among all jobs, not the order in which the pack was filled.
    let mut by_id = pack.jobs.clone();
    by_id.sort_unstable();
    let apps: Vec<App> = by_id.iter().map(|&job| jobs[job].app).collect();
    let schedule = schedule(&apps, order)?;
    let outcome = |job: &usize| schedule.apps[by_id.partition_point(|other| other < job)];
    let outcomes = pack.jobs.iter().map(outcome).collect();
    Ok(PackRun { time: schedule.makespan(), jobs: outcomes, pack })
}

/// Which of `machines` each task runs on, by longest processing time first: the longest task that is left goes to
/// the machine that is free first; ties go to the lower number. The makespan is at most 4/3 − 1/(3 machines) of
/// the best (Graham 1969). Tasks of a machine run in the order of `lpt`'s rule, longest first.
///
/// # Panics
/// If there is no machine.
pub fn assign(tasks: &[Nanos], machines: u32) -> Vec<u32> {
    assert!(machines > 0, "tasks need a machine");
    let mut free_first: std::collections::BinaryHeap<_> =
        (0..machines).map(|machine| Reverse((Nanos::ZERO, machine))).collect();
    let mut assigned = vec![0; tasks.len()];
    for task in longest_first(tasks) {
        if let Some(mut first) = free_first.peek_mut() {
            let Reverse((free, machine)) = *first;
            assigned[task] = machine;
            *first = Reverse((free + tasks[task], machine));
        }
    }
    assigned
}

/// Positions of `tasks`, longest first, ties as they come.
pub fn longest_first(tasks: &[Nanos]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|&task| Reverse(tasks[task]));
    order
}
