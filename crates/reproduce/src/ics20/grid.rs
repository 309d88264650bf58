//! The workloads of ICS'20 §6.2 on a grid of I/O loads, packed by each scheme and run.

use crate::run::{Context, Stopped};
use isonomia_planning::{Job, Machine, Order, Plan, PlanError, Recipe, Sensibility, Sizes, alpha, plan};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use serde::Serialize;

/// Compute nodes of an I/O node: P.
pub const NODES: u32 = 2048;
/// Numbers of I/O nodes of Fig. 15: R.
pub const IO_NODES: [u32; 3] = [1, 3, 5];
/// First, last, and step of `α_gen`, in hundredths.
const ALPHAS: (u32, u32, usize) = (50, 1000, 25);
const WORKLOADS: u32 = 10;
/// A quick grid has each fourth load and three workloads.
const QUICK: (usize, u32) = (4, 3);

/// How jobs are packed, and in which order packs do I/O.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scheme {
    /// Its word in data and plots.
    pub name: &'static str,
    sensibility: Sensibility,
    order: Order,
}

const fn scheme(name: &'static str, sensibility: Sensibility, order: Order) -> Scheme {
    Scheme { name, sensibility, order }
}

/// The baseline, which everything is normalised to.
pub const FIRST_FIT: Scheme = scheme("first-fit", Sensibility::Infinite, Order::Fifo);
/// Make-Pack with S = 1.
pub const ONE: Scheme = scheme("sensibility-1", Sensibility::Limit(1.0), Order::Fifo);
/// Make-Pack with S = α.
pub const ALPHA: Scheme = scheme("sensibility-alpha", Sensibility::Alpha, Order::Fifo);
/// Make-Pack with S = 1, longest remaining first inside packs.
pub const REMAINING: Scheme =
    scheme("sensibility-1-longest-remaining", Sensibility::Limit(1.0), Order::LongestRemaining);

/// Which workloads to draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Every fourth load and a third of the workloads only.
    pub quick: bool,
    /// How job sizes are spread.
    pub sizes: Sizes,
    /// Standard deviation of the jobs' I/O load.
    pub deviation: f64,
}

/// One workload under one scheme.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Of the whole grid.
    pub seed: u64,
    /// What the workload was drawn for.
    pub alpha_gen: f64,
    /// Which of those.
    pub workload: u32,
    /// What the workload has: Eq. 6.
    pub alpha: f64,
    /// The scheme's word.
    pub scheme: &'static str,
    /// How many packs it made.
    pub packs: usize,
    /// On 1, 3 and 5 I/O nodes.
    pub makespan_s: [f64; 3],
    /// Mean over packs of the worst stretch.
    pub mean_max_stretch: f64,
    /// Time of all packs over their length without contention.
    pub over_ideal: f64,
    /// Node-seconds of work, on one I/O node as the two that follow.
    pub useful: f64,
    /// Node-seconds of waiting for I/O.
    pub delayed: f64,
    /// Node-seconds without work.
    pub idle: f64,
}

impl Grid {
    /// The paper's, with the choices named in [`Recipe`].
    pub fn paper(quick: bool) -> Self {
        let Recipe { sizes, deviation, .. } = Recipe::paper(1.0);
        Self { quick, sizes, deviation }
    }

    /// Draws every workload of `seed` and runs it under `schemes`: rows by load, workload, and scheme, in order.
    /// Uses all cores; the result does not depend on how many there are.
    ///
    /// # Errors
    /// The context was told to stop.
    pub fn run(&self, seed: u64, schemes: &[Scheme], context: &Context) -> Result<Vec<Cell>, Stopped> {
        let (thin, workloads) = if self.quick { QUICK } else { (1, WORKLOADS) };
        let alphas = (ALPHAS.0..=ALPHAS.1).step_by(ALPHAS.2 * thin);
        let points: Vec<(u32, u32)> = alphas.flat_map(|alpha| (0..workloads).map(move |n| (alpha, n))).collect();
        let rows: Vec<Vec<Cell>> = points
            .into_par_iter()
            .map(|(alpha_hundredths, workload)| {
                context.go_on()?;
                Ok(self.workload(seed, alpha_hundredths, workload, schemes))
            })
            .collect::<Result<_, _>>()?;
        Ok(rows.concat())
    }

    fn workload(&self, seed: u64, alpha_hundredths: u32, workload: u32, schemes: &[Scheme]) -> Vec<Cell> {
        let alpha_gen = f64::from(alpha_hundredths) / 100.0;
        let recipe = Recipe { sizes: self.sizes, deviation: self.deviation, ..Recipe::paper(alpha_gen) };
        // A stream of its own for each workload, so that they do not depend on each other.
        let stream = u128::from(alpha_hundredths) << 32 | u128::from(workload);
        let jobs = recipe.draw(&mut Pcg64::new(u128::from(seed), stream));
        let alpha = alpha(&jobs, NODES);
        let cells = schemes.iter().map(|scheme| {
            // The recipe keeps jobs far within every limit of a plan.
            let run = run(&jobs, scheme).ok()?;
            Some(Cell { seed, alpha_gen, workload, alpha, ..run })
        });
        cells.flatten().collect()
    }
}

fn run(jobs: &[Job], scheme: &Scheme) -> Result<Cell, PlanError> {
    let machine = Machine { nodes: NODES, io_nodes: 1, sensibility: scheme.sensibility, order: scheme.order };
    let mut plan = plan(jobs, &machine)?;
    let time = plan.node_time(jobs, &machine);
    let [useful, delayed, idle] = [time.useful, time.delayed, time.idle].map(|node_ns| node_ns as f64 / 1e9);
    Ok(Cell {
        seed: 0,
        alpha_gen: 0.0,
        workload: 0,
        alpha: plan.alpha,
        scheme: scheme.name,
        packs: plan.packs.len(),
        makespan_s: IO_NODES.map(|io_nodes| makespan_s(&mut plan, io_nodes)),
        mean_max_stretch: plan.mean_max_stretch(),
        over_ideal: plan.over_ideal(),
        useful,
        delayed,
        idle,
    })
}

fn makespan_s(plan: &mut Plan, io_nodes: u32) -> f64 {
    plan.spread(io_nodes);
    plan.makespan().as_secs_f64()
}
