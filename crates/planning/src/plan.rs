//! A whole plan: jobs in packs, packs on I/O nodes, and what becomes of them.

use crate::order::Order;
use crate::packs::{Job, PackError, PackRun, Sensibility, alpha, assign, execute, longest_first, make_packs};
use crate::schedule::ScheduleError;
use isonomia_units::Nanos;

/// The machine and how it is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Compute nodes of each I/O node (P).
    pub nodes: u32,
    /// I/O nodes (R), at least 1.
    pub io_nodes: u32,
    /// How much I/O a pack may have.
    pub sensibility: Sensibility,
    /// Order of I/O phases inside a pack.
    pub order: Order,
}

/// Jobs in packs on I/O nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Every pack as it ran, in the order of making.
    pub packs: Vec<PackRun>,
    /// For each pack, its I/O node (from 0) and when it begins there.
    pub assigned: Vec<(u32, Nanos)>,
    /// The workload's I/O load, Eq. 6.
    pub alpha: f64,
}

/// Node-nanoseconds by what compute nodes are doing (ICS'20 Fig. 14); their sum is nodes × I/O nodes × makespan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTime {
    /// Computing, or doing I/O.
    pub useful: u128,
    /// Waiting for the I/O node.
    pub delayed: u128,
    /// Without a job, or with one that has ended before its pack, or before the last pack of another I/O node.
    pub idle: u128,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The jobs cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A pack cannot be run.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

/// Packs `jobs`, runs every pack, and assigns the packs to the I/O nodes.
///
/// # Errors
/// As [`make_packs`] and [`schedule`](crate::schedule()).
pub fn plan(jobs: &[Job], machine: &Machine) -> Result<Plan, PlanError> {
    let packs = make_packs(jobs, machine.nodes, machine.sensibility)?;
    let packs: Vec<PackRun> =
        packs.into_iter().map(|pack| execute(jobs, pack, machine.order)).collect::<Result<_, _>>()?;
    let mut plan = Plan { packs, assigned: Vec::new(), alpha: alpha(jobs, machine.nodes) };
    plan.spread(machine.io_nodes);
    Ok(plan)
}

impl Plan {
    /// Assigns the packs to `io_nodes` I/O nodes anew. Their runs stay as they are: I/O nodes do not interact.
    ///
    /// # Panics
    /// If there is no I/O node.
    pub fn spread(&mut self, io_nodes: u32) {
        let lengths: Vec<Nanos> = self.packs.iter().map(|run| run.pack.alone).collect();
        let nodes = assign(&lengths, io_nodes);
        let mut free = vec![Nanos::ZERO; io_nodes as usize];
        self.assigned = nodes.iter().map(|&node| (node, Nanos::ZERO)).collect();
        for pack in longest_first(&lengths) {
            let (node, begin) = &mut self.assigned[pack];
            let free = &mut free[*node as usize];
            *begin = *free;
            *free += self.packs[pack].time;
        }
    }

    /// When the last pack ends.
    pub fn makespan(&self) -> Nanos {
        self.packs.iter().zip(&self.assigned).map(|(run, (_, begin))| *begin + run.time).max().unwrap_or(Nanos::ZERO)
    }

    /// The mean over packs of their worst stretch (ICS'20 Fig. 11); 1 if there is no pack.
    pub fn mean_max_stretch(&self) -> f64 {
        match self.packs.len() {
            0 => 1.0,
            n => self.packs.iter().map(PackRun::max_stretch).sum::<f64>() / n as f64,
        }
    }

    /// Time of all packs over their length without contention (ICS'20 Fig. 13); 1 if there is no pack.
    pub fn over_ideal(&self) -> f64 {
        let alone: f64 = self.packs.iter().map(|run| run.pack.alone.as_secs_f64()).sum();
        let time: f64 = self.packs.iter().map(|run| run.time.as_secs_f64()).sum();
        if alone > 0.0 { time / alone } else { 1.0 }
    }

    /// What the compute nodes of `machine`, for which this plan was made, do until the makespan.
    pub fn node_time(&self, jobs: &[Job], machine: &Machine) -> NodeTime {
        let mut time = NodeTime::default();
        for run in &self.packs {
            for (&job, outcome) in run.pack.jobs.iter().zip(&run.jobs) {
                let nodes = u128::from(jobs[job].nodes);
                let occupied = outcome.completion.since(outcome.release);
                time.useful += nodes * u128::from(outcome.alone.0);
                time.delayed += nodes * u128::from(occupied.since(outcome.alone).0);
            }
        }
        let all = u128::from(machine.nodes) * u128::from(machine.io_nodes) * u128::from(self.makespan().0);
        time.idle = all - time.useful - time.delayed;
        time
    }
}
