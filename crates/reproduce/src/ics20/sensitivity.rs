//! How much Fig. 15 depends on what the paper leaves open: how job sizes are spread, what "variance 0.1" means, and
//! over which loads the geometric mean is taken.

use super::grid::{FIRST_FIT, Grid, IO_NODES, ONE};
use super::packs::{NEAR, PAPER_FIG15, Row, over_seeds, rows_by_seed};
use crate::chart::Chart;
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::{Interval, geometric_mean};
use crate::run::{Context, Finding, Stopped};
use isonomia_planning::Sizes;
use serde_json::json;

const SEEDS: u64 = 5;
const QUICK_SEEDS: u64 = 2;
/// Greatest loads up to which means are taken; the paper's axis is not told.
const ALPHA_MAX: [f64; 8] = [1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, f64::INFINITY];
/// What stands for all loads where a number is needed: more than any workload has.
const ALL_LOADS: f64 = 15.0;

/// One reading of the paper: a distribution of sizes, a deviation, and the greatest load.
struct Case {
    reading: String,
    /// By I/O nodes, in the order of [`IO_NODES`].
    means: [Interval; 3],
}

/// Fig. 15's means under every combination.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let seeds = if context.quick { QUICK_SEEDS } else { SEEDS };
    let mut data = Data::new(&["reading", "alpha_max", "io_nodes", "seed", "mean"]);
    let mut cases = Vec::new();
    for sizes in Sizes::ALL {
        for (deviation, word) in [(0.1f64.sqrt(), "√0.1"), (0.1, "0.1")] {
            let grid = Grid { quick: context.quick, sizes, deviation };
            let reading = format!("{} sizes, deviation {word}", sizes.name());
            let by_seed = rows_by_seed(&grid, seeds, &[FIRST_FIT, ONE], &format!("sensitivity: {reading}"), context)?;
            for alpha_max in ALPHA_MAX {
                let load = if alpha_max.is_finite() { format!("loads to {alpha_max}") } else { "all loads".to_owned() };
                let kept = up_to(&by_seed, alpha_max);
                let value = |row: &Row, r: usize| row[1].makespan_s[r] / row[0].makespan_s[r];
                for (r, io_nodes) in IO_NODES.into_iter().enumerate() {
                    for (seed, rows) in kept.iter().enumerate() {
                        let mean = geometric_mean(rows.iter().map(|row| value(row, r)));
                        let alpha_max = alpha_max.min(ALL_LOADS);
                        data.push([
                            reading.clone().into(),
                            alpha_max.into(),
                            io_nodes.into(),
                            seed.into(),
                            mean.into(),
                        ]);
                    }
                }
                let means = std::array::from_fn(|r| over_seeds(&kept, |row| value(row, r)));
                cases.push(Case { reading: format!("{reading}, {load}"), means });
            }
        }
    }
    let chart = |at: usize| {
        let (name, word) = [("", "1 I/O node"), ("3", "3 I/O nodes"), ("5", "5 I/O nodes")][at];
        let x = ("alpha_max", "greatest load in the mean (15: all)");
        Chart::lines(format!("Fig. 15 by what is left open: {word}"), x, ("mean", "makespan over First-Fit's"))
            .by("reading")
            .only("io_nodes", [IO_NODES[at]])
            .paper(None::<f64>, PAPER_FIG15[at])
            .named(name)
    };
    Ok(vec![Finding {
        table: None,
        item: "sensitivity",
        title: "Sensitivity of Fig. 15: geometric mean of the makespan over First-Fit's".to_owned(),
        configuration: json!({ "seeds": (0..seeds).collect::<Vec<_>>(), "quick_grid": context.quick }),
        data,
        charts: [0, 1, 2].map(chart).into(),
        claims: claims(&cases),
    }])
}

/// The workloads with loads up to `alpha_max`, of the seeds that have any.
fn up_to(by_seed: &[Vec<Row>], alpha_max: f64) -> Vec<Vec<Row>> {
    let within = |rows: &Vec<Row>| rows.iter().filter(|row| row[0].alpha <= alpha_max).cloned().collect();
    by_seed.iter().map(within).filter(|rows: &Vec<Row>| !rows.is_empty()).collect()
}

fn claims(cases: &[Case]) -> Vec<Claim> {
    // A mean that is not sure is as far as it may be.
    let distance = |case: &&Case| {
        case.means
            .iter()
            .zip(PAPER_FIG15)
            .map(|(mean, paper)| (mean.mean - paper).abs() + mean.half)
            .fold(0.0, f64::max)
    };
    let nearest = cases.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let falls = |case: &&Case| case.means[0].mean > case.means[1].mean && case.means[1].mean > case.means[2].mean;
    let falling = 100.0 * cases.iter().filter(falls).count() as f64 / cases.len() as f64;
    let range = |r: usize| {
        let all = || cases.iter().map(|case| case.means[r].mean);
        format!("{:.2} to {:.2}", all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max))
    };
    let mut claims = vec![
        Claim::new(
            "more I/O nodes favour S = 1, whatever is chosen",
            "1.09, 0.71, 0.53",
            vec![Test::above("of the readings", Interval::exact(falling), 100.0).in_part(50.0, 100.0).unit(" %")],
        )
        .beside([0, 1, 2].map(range).join(", ")),
    ];
    claims.extend(nearest.map(|case| {
        let test = |r: usize| {
            let what = format!("{} I/O node{}", IO_NODES[r], if r == 0 { "" } else { "s" });
            Test::within(what, case.means[r], PAPER_FIG15[r], NEAR)
        };
        Claim::new(
            "some reading of what is left open gives the paper's three means",
            "1.09, 0.71, 0.53",
            [0, 1, 2].map(test).into(),
        )
        .beside(format!("nearest of {} readings is {}", cases.len(), case.reading))
        .why("this asks which reading comes near, and is no reason to choose it")
    }));
    claims
}
