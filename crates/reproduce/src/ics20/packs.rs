//! Packs against First-Fit (ICS'20 §6.2.3, §6.2.4, Figs. 10 to 15).
//!
//! Everything is a ratio of two schemes on the same workload. Workloads are drawn for a grid of I/O loads, as often as
//! there are seeds; intervals are over seeds. Plots show means in bins of the load that a workload has (Eq. 6), not
//! of the one it was drawn for.

use super::grid::{ALPHA, Cell, FIRST_FIT, Grid, IO_NODES, NODES, ONE, REMAINING, Scheme};
use crate::claims::{Claim, Verdict};
use crate::data::Data;
use crate::interval::{Interval, geometric_mean};
use crate::run::{Context, Figure, Finding, Stopped};
use isonomia_plot::{Bars, Line, Plot};
use serde_json::json;

const SEEDS: u64 = 10;
const QUICK_SEEDS: u64 = 3;
/// Every scheme, the baseline first.
const SCHEMES: [Scheme; 4] = [FIRST_FIT, ONE, ALPHA, REMAINING];
const _: () = assert!(FIRST < ONES && ONES < ALPHAS);
/// Positions in [`SCHEMES`].
const FIRST: usize = 0;
const ONES: usize = 1;
const ALPHAS: usize = 2;
const REMAININGS: usize = 3;
/// Width of a bin of loads, and the least number of workloads of a bin that is drawn.
const BIN: f64 = 0.5;
const BIN_WORKLOADS_MIN: usize = 3;
/// Loads above this are in no bin; they are in the data and in all means.
const PLOTTED_MAX: f64 = 12.0;
/// Geometric means of Fig. 15, in the order of [`IO_NODES`].
pub const PAPER_FIG15: [f64; 3] = [1.09, 0.71, 0.53];
/// How near a geometric mean of ratios counts as the paper's.
pub const NEAR: f64 = 0.05;

/// One workload under every scheme of a study, the baseline first.
pub type Row = Vec<Cell>;

/// Figs. 10 to 15.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let seeds = if context.quick { QUICK_SEEDS } else { SEEDS };
    let grid = Grid::paper(context.quick);
    let by_seed = rows_by_seed(&grid, seeds, &SCHEMES, "packs on the grid of loads", context)?;
    let all = Grids { by_seed };
    let configuration = json!({
        "nodes": NODES,
        "bandwidth": 1,
        "sizes": grid.sizes.name(),
        "deviation": grid.deviation,
        "truncation": [0.01, 1.0],
        "quick_grid": grid.quick,
        "seeds": (0..seeds).collect::<Vec<_>>(),
    });
    let findings = [fig10(&all), fig11(&all), fig12(&all), fig13(&all), fig14(&all), fig15(&all)];
    Ok(findings.map(|finding| Finding { configuration: configuration.clone(), ..finding }).into())
}

/// The grid of each seed, in rows.
pub fn rows_by_seed(
    grid: &Grid,
    seeds: u64,
    schemes: &[Scheme],
    what: &str,
    context: &Context,
) -> Result<Vec<Vec<Row>>, Stopped> {
    let mut by_seed = Vec::new();
    for seed in 0..seeds {
        context.tell(what, seed as usize, seeds as usize);
        let cells = grid.run(seed, schemes, context)?;
        by_seed.push(cells.chunks(schemes.len()).map(<[Cell]>::to_vec).collect());
    }
    context.tell(what, seeds as usize, seeds as usize);
    Ok(by_seed)
}

/// The geometric mean over the workloads of each seed, and how sure it is.
pub fn over_seeds(by_seed: &[Vec<Row>], value: impl Fn(&Row) -> f64) -> Interval {
    let means: Vec<f64> = by_seed.iter().map(|rows| geometric_mean(rows.iter().map(&value))).collect();
    Interval::of(&means)
}

/// A kind of node time.
type Part = fn(&Cell) -> f64;

struct Grids {
    by_seed: Vec<Vec<Row>>,
}

impl Grids {
    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.by_seed.iter().flatten()
    }

    fn mean(&self, value: impl Fn(&Row) -> f64) -> Interval {
        over_seeds(&self.by_seed, value)
    }

    /// [`Self::mean`] of the workloads with loads up to 2 and up to 5, in words.
    fn by_load(&self, value: impl Fn(&Row) -> f64) -> String {
        let up_to = |alpha_max: f64| {
            let kept = |rows: &Vec<Row>| rows.iter().filter(|row| row[FIRST].alpha <= alpha_max).cloned().collect();
            over_seeds(&self.by_seed.iter().map(kept).collect::<Vec<_>>(), &value)
        };
        format!("loads up to 2: {}; up to 5: {}", up_to(2.0), up_to(5.0))
    }

    /// The arithmetic mean of `value` over the workloads of each seed whose load is in `range`.
    fn mean_within(&self, range: (f64, f64), value: impl Fn(&Row) -> f64) -> Interval {
        let of_seed = |rows: &Vec<Row>| {
            let within: Vec<f64> =
                rows.iter().filter(|row| (range.0..range.1).contains(&row[FIRST].alpha)).map(&value).collect();
            within.iter().sum::<f64>() / within.len() as f64
        };
        Interval::of(&self.by_seed.iter().map(of_seed).filter(|mean| mean.is_finite()).collect::<Vec<_>>())
    }

    fn line(&self, label: &str, value: impl Fn(&Row) -> f64) -> Line {
        let bins = (PLOTTED_MAX / BIN) as usize;
        let mut binned = vec![Vec::new(); bins];
        for row in self.rows() {
            if let Some(bin) = binned.get_mut((row[FIRST].alpha / BIN) as usize) {
                bin.push(value(row));
            }
        }
        let full = binned.iter().enumerate().filter(|(_, values)| values.len() >= BIN_WORKLOADS_MIN);
        let points =
            full.map(|(bin, values)| ((bin as f64 + 0.5) * BIN, values.iter().sum::<f64>() / values.len() as f64));
        Line { label: label.to_owned(), points: points.collect(), reference: None }
    }

    /// The figure of `value`, a property of one cell, in every scheme of `schemes`; relative to First-Fit or not.
    fn finding(
        &self,
        item: &'static str,
        title: &str,
        y: &'static str,
        schemes: &[usize],
        value: impl Fn(&Row, usize) -> f64 + Copy,
    ) -> Finding {
        let lines = schemes.iter().map(|&at| self.line(SCHEMES[at].name, |row| value(row, at))).collect();
        let plot = Plot { caption: title.to_owned(), x: "I/O load (alpha)", y, lines };
        let mut data = Data::new(&["seed", "alpha_gen", "workload", "alpha", "scheme", "value"]);
        for row in self.rows() {
            for &at in schemes {
                let cell = &row[at];
                let (load, aim) = (cell.alpha.into(), cell.alpha_gen.into());
                data.push([
                    cell.seed.into(),
                    aim,
                    cell.workload.into(),
                    load,
                    cell.scheme.into(),
                    value(row, at).into(),
                ]);
            }
        }
        bare(item, title, data, Figure::Lines(plot))
    }
}

/// A finding without claims so far.
fn bare(item: &'static str, title: &str, data: Data, figure: Figure) -> Finding {
    let configuration = serde_json::Value::Null;
    Finding { item, title: title.to_owned(), configuration, data, plots: vec![("", figure)], claims: Vec::new() }
}

/// The slope of `value` over the load, by least squares over all workloads of a seed, with its interval over seeds.
fn slope(all: &Grids, value: impl Fn(&Row) -> f64) -> Interval {
    let of_seed = |rows: &Vec<Row>| {
        let points: Vec<(f64, f64)> = rows.iter().map(|row| (row[FIRST].alpha, value(row))).collect();
        let n = points.len() as f64;
        let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / n, y + point.1 / n));
        let covariance: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        covariance / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>()
    };
    Interval::of(&all.by_seed.iter().map(of_seed).collect::<Vec<_>>())
}

fn claim(claim: &str, paper: &str, ours: String, verdict: Verdict, why: &str) -> Claim {
    Claim { claim: claim.to_owned(), paper: paper.to_owned(), ours, verdict, why: why.to_owned() }
}

fn makespan(row: &Row, at: usize) -> f64 {
    row[at].makespan_s[0] / row[FIRST].makespan_s[0]
}

fn fig10(all: &Grids) -> Finding {
    let title = "Fig. 10: makespan over First-Fit's, one I/O node";
    let mut finding = all.finding("fig10", title, "makespan over First-Fit's", &[ONES, ALPHAS, REMAININGS], makespan);
    let [one, alpha, remaining] = [ONES, ALPHAS, REMAININGS].map(|at| all.mean(|row| makespan(row, at)));
    finding.claims = vec![
        claim(
            "with S = 1 the makespan is about 10 % longer than First-Fit's",
            "+10 %; geometric mean 1.09",
            format!("{one}; {}", all.by_load(|row| makespan(row, ONES))),
            Verdict::of((one.mean - PAPER_FIG15[0]).abs() <= NEAR, one.mean > 1.0),
            "geometric mean over all loads within 0.05 of 1.09; the loss grows with the load, and the paper does not \
             tell which loads its mean covers",
        ),
        claim(
            "S = alpha softens the loss",
            "less than S = 1",
            format!("{alpha} against {one}"),
            Verdict::of(alpha.bounds().1 < one.bounds().0, alpha.mean < one.mean),
            "intervals apart",
        ),
        claim(
            "the order inside packs does not matter",
            "no impact",
            format!("longest-remaining {remaining} against fifo {one}"),
            Verdict::of((remaining.mean - one.mean).abs() <= 0.02, (remaining.mean - one.mean).abs() <= NEAR),
            "geometric means within 0.02",
        ),
    ];
    finding
}

fn fig11(all: &Grids) -> Finding {
    let title = "Fig. 11: mean over packs of the worst stretch, over First-Fit's";
    let value = |row: &Row, at: usize| row[at].mean_max_stretch / row[FIRST].mean_max_stretch;
    let mut finding = all.finding("fig11", title, "worst stretch over First-Fit's", &[ONES, ALPHAS, REMAININGS], value);
    let [one, alpha] = [ONES, ALPHAS].map(|at| all.mean(|row| value(row, at)));
    let itself = all.mean(|row| row[ONES].mean_max_stretch);
    let everything = (f64::NEG_INFINITY, f64::INFINITY);
    let waiting = all.mean_within(everything, |row| row[ONES].delayed / row[ONES].useful);
    finding.claims = vec![
        claim(
            "with S = 1 the stretch is much better than First-Fit's",
            "large gain",
            format!("{one} of First-Fit's; with S = alpha {alpha}"),
            Verdict::of(one.mean < 0.5, one.bounds().1 < 1.0),
            "half or less",
        ),
        claim(
            "with S = 1 the stretch itself is close to 1",
            "close to 1",
            format!("{itself}; waiting is {waiting} of useful node time"),
            Verdict::of(itself.mean < 1.2, itself.mean < 1.5),
            "geometric mean below 1.2. Packs are filled to an I/O occupation near 1, at which phases queue: jobs wait \
             little on average, but the worst job of a pack, which is what counts, waits long",
        ),
    ];
    finding
}

fn fig12(all: &Grids) -> Finding {
    let title = "Fig. 12: packs over First-Fit's";
    let value = |row: &Row, at: usize| row[at].packs as f64 / row[FIRST].packs as f64;
    let mut finding = all.finding("fig12", title, "packs over First-Fit's", &[ONES, ALPHAS], value);
    let [one, alpha] = [ONES, ALPHAS].map(|at| slope(all, |row| value(row, at)));
    let [low, high] = [(0.0, 2.0), (6.0, 10.0)].map(|range| all.mean_within(range, |row| value(row, ALPHAS)));
    finding.claims = vec![
        claim(
            "with S = 1 the number of packs grows with the load",
            "grows",
            format!("slope {one} for each unit of alpha"),
            Verdict::of(one.bounds().0 > 0.0, one.mean > 0.0),
            "the slope's interval is above 0",
        ),
        claim(
            "with S = alpha it is about constant",
            "about constant",
            format!("slope {alpha}; {low} below a load of 2, {high} from 6 to 10"),
            Verdict::of(alpha.mean.abs() < 0.1 * one.mean, alpha.mean.abs() < 0.25 * one.mean),
            "the slope is less than a tenth of that with S = 1",
        ),
    ];
    finding
}

fn fig13(all: &Grids) -> Finding {
    let title = "Fig. 13: time over the ideal without contention";
    let value = |row: &Row, at: usize| row[at].over_ideal;
    let mut finding = all.finding("fig13", title, "time over ideal", &[FIRST, ONES, ALPHAS], value);
    let one = all.mean(|row| value(row, ONES));
    let worst = |at: usize| all.rows().map(|row| value(row, at)).fold(0.0, f64::max);
    let alpha = all.mean(|row| value(row, ALPHAS));
    let first = all.mean(|row| value(row, FIRST));
    let within = all.rows().filter(|row| value(row, ONES) <= 1.2).count() as f64 / all.rows().count() as f64;
    finding.claims = vec![
        claim(
            "with S = 1 the time is within 20 % of the ideal",
            "within 20 %",
            format!("{one}; within 20 % in {:.1} % of workloads, at worst {:.2}", within * 100.0, worst(ONES)),
            Verdict::of(worst(ONES) <= 1.2, one.mean <= 1.2),
            "every workload within 20 %",
        ),
        claim(
            "First-Fit takes up to ten times the ideal",
            "up to 1000 %",
            format!("{first}; at worst {:.1}", worst(FIRST)),
            Verdict::of((7.0..=13.0).contains(&worst(FIRST)), worst(FIRST) > 2.0),
            "the worst between 7 and 13 times",
        ),
        claim(
            "S = alpha is close to First-Fit",
            "close",
            format!("{alpha} against {first}"),
            Verdict::of((alpha.mean / first.mean - 1.0).abs() < 0.2, (alpha.mean / first.mean - 1.0).abs() < 0.4),
            "geometric means within 20 %",
        ),
    ];
    finding
}

fn fig14(all: &Grids) -> Finding {
    let title = "Fig. 14: what compute nodes do, over First-Fit's total";
    let total = |cell: &Cell| cell.useful + cell.delayed + cell.idle;
    let share = |row: &Row, at: usize, part: Part| part(&row[at]) / total(&row[FIRST]);
    let parts: [(&'static str, Part); 3] =
        [("useful", |cell| cell.useful), ("delayed", |cell| cell.delayed), ("idle", |cell| cell.idle)];
    let everything = (f64::NEG_INFINITY, f64::INFINITY);
    let means =
        [FIRST, ONES, ALPHAS].map(|at| parts.map(|(_, part)| all.mean_within(everything, |row| share(row, at, part))));
    let mut data = Data::new(&["seed", "alpha_gen", "workload", "alpha", "scheme", "useful", "delayed", "idle"]);
    for row in all.rows() {
        for at in [FIRST, ONES, ALPHAS] {
            let cell = &row[at];
            let [useful, delayed, idle] = parts.map(|(_, part)| share(row, at, part).into());
            let (load, aim) = (cell.alpha.into(), cell.alpha_gen.into());
            data.push([cell.seed.into(), aim, cell.workload.into(), load, cell.scheme.into(), useful, delayed, idle]);
        }
    }
    let bar = |(at, means): (usize, &[Interval; 3])| {
        (SCHEMES[at].name.to_owned(), means.iter().map(|interval| interval.mean).collect())
    };
    let bars = Bars {
        caption: title.to_owned(),
        y: "node time over First-Fit's",
        parts: parts.map(|(name, _)| name).into(),
        bars: means.iter().enumerate().map(bar).collect(),
    };
    let mut finding = bare("fig14", title, data, Figure::Bars(bars));
    let low = [FIRST, ONES].map(|at| all.mean_within((0.0, 2.0), |row| share(row, at, parts[1].1)));
    let moved = means[FIRST][1].mean - means[ONES][1].mean;
    let idle = means[ONES][2].mean - means[FIRST][2].mean;
    finding.claims = vec![claim(
        "with S = 1 delay turns into idle time",
        "25 % of the time moves from delay to idle, and the 10 % of longer makespan is idle too",
        format!(
            "delay {} to {}, idle {} to {}; below a load of 2 delay {} to {}",
            means[FIRST][1], means[ONES][1], means[FIRST][2], means[ONES][2], low[0], low[1]
        ),
        Verdict::of((0.15..=0.35).contains(&moved) && idle >= moved, moved > 0.0 && idle > 0.0),
        "15 to 35 % less delay, and at least as much more idle time; how much is delay at all follows from the loads",
    )];
    finding
}

fn fig15(all: &Grids) -> Finding {
    let title = "Fig. 15: makespan with S = 1 over First-Fit's, by I/O nodes";
    let value = |row: &Row, r: usize| row[ONES].makespan_s[r] / row[FIRST].makespan_s[r];
    let label = |r: usize| format!("{} I/O node{}", IO_NODES[r], if r == 0 { "" } else { "s" });
    let lines = (0..IO_NODES.len()).map(|r| all.line(&label(r), |row| value(row, r))).collect();
    let y = "makespan over First-Fit's";
    let plot = Plot { caption: title.to_owned(), x: "I/O load (alpha)", y, lines };
    let mut data = Data::new(&["seed", "alpha_gen", "workload", "alpha", "io_nodes", "value"]);
    for row in all.rows() {
        for (r, io_nodes) in IO_NODES.iter().enumerate() {
            let cell = &row[ONES];
            let (load, aim) = (cell.alpha.into(), cell.alpha_gen.into());
            data.push([cell.seed.into(), aim, cell.workload.into(), load, (*io_nodes).into(), value(row, r).into()]);
        }
    }
    let mut finding = bare("fig15", title, data, Figure::Lines(plot));
    let means: [Interval; 3] = std::array::from_fn(|r| all.mean(|row| value(row, r)));
    let each = (0..IO_NODES.len()).map(|r| {
        claim(
            &format!("geometric mean of the makespan over First-Fit's with {}", label(r)),
            &format!("{:.2}", PAPER_FIG15[r]),
            format!("{}; {}", means[r], all.by_load(|row| value(row, r))),
            Verdict::of(
                (means[r].mean - PAPER_FIG15[r]).abs() <= NEAR,
                (means[r].mean > 1.0) == (PAPER_FIG15[r] > 1.0),
            ),
            "over all loads within 0.05; the direction alone is \"in part\". The paper does not tell which loads its \
             mean covers: see the item sensitivity",
        )
    });
    finding.claims = each.collect();
    finding.claims.push(claim(
        "more I/O nodes favour S = 1",
        "1.09, 0.71, 0.53",
        means.map(|mean| mean.to_string()).join(", "),
        Verdict::of(
            means[1].bounds().1 < means[0].bounds().0 && means[2].bounds().1 < means[1].bounds().0,
            means[2].mean < means[0].mean,
        ),
        "each interval below the one before",
    ));
    finding
}
