//! Packs against First-Fit (ICS'20 §6.2.3, §6.2.4, Figs. 10 to 15).
//!
//! Everything is a ratio of two schemes on the same workload. Workloads are drawn for a grid of I/O loads, as often as
//! there are seeds; intervals are over seeds. Charts show means in bins of the load that a workload has (Eq. 6), not
//! of the one it was drawn for.

use super::grid::{ALPHA, Cell, FIRST_FIT, Grid, IO_NODES, NODES, ONE, REMAINING, Scheme};
use crate::chart::{Chart, Scale};
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::{Interval, geometric_mean};
use crate::run::{Context, Finding, Stopped};
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
/// Width of a bin of loads, and the last. Loads above it are in no bin; they are in the data and in all means.
const BINS: (f64, f64) = (1.0, 12.0);
/// Geometric means of Fig. 15, in the order of [`IO_NODES`].
pub const PAPER_FIG15: [f64; 3] = [1.09, 0.71, 0.53];
/// How near a geometric mean of ratios counts as the paper's: three points of First-Fit's makespan.
pub const NEAR: f64 = 0.03;
/// What counts as about the same, in points of First-Fit's makespan.
const SAME: f64 = 0.03;

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

    /// [`Self::mean`] of the workloads with loads up to 2, 3 and 5, in words.
    fn by_load(&self, value: impl Fn(&Row) -> f64) -> String {
        let up_to = |alpha_max: f64| {
            let kept = |rows: &Vec<Row>| rows.iter().filter(|row| row[FIRST].alpha <= alpha_max).cloned().collect();
            over_seeds(&self.by_seed.iter().map(kept).collect::<Vec<_>>(), &value)
        };
        format!("loads up to 2: {}, up to 3: {}, up to 5: {}", up_to(2.0), up_to(3.0), up_to(5.0))
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

    /// The figure of `value`, a property of one cell, in every scheme of `schemes`; relative to First-Fit or not.
    fn finding(
        &self,
        item: &'static str,
        title: &str,
        y: &'static str,
        schemes: &[usize],
        value: impl Fn(&Row, usize) -> f64 + Copy,
    ) -> Finding {
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
        let chart = Chart::lines(title, LOAD, ("value", y)).by("scheme").bins(BINS.0, BINS.1);
        bare(item, title, data, chart)
    }
}

const LOAD: (&str, &str) = ("alpha", "I/O load α");

/// A finding without claims so far.
fn bare(item: &'static str, title: &str, data: Data, chart: Chart) -> Finding {
    let configuration = serde_json::Value::Null;
    Finding { item, title: title.to_owned(), configuration, data, table: None, charts: vec![chart], claims: Vec::new() }
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

fn makespan(row: &Row, at: usize) -> f64 {
    row[at].makespan_s[0] / row[FIRST].makespan_s[0]
}

fn fig10(all: &Grids) -> Finding {
    let title = "Fig. 10: makespan over First-Fit's, one I/O node";
    let mut finding = all.finding("fig10", title, "makespan over First-Fit's", &[ONES, ALPHAS, REMAININGS], makespan);
    finding.charts =
        finding.charts.into_iter().map(|chart| chart.paper_of(ONE.name, None::<f64>, PAPER_FIG15[0])).collect();
    let one = all.mean(|row| makespan(row, ONES));
    let softer = all.mean(|row| makespan(row, ALPHAS) / makespan(row, ONES));
    let by_order = all.mean(|row| makespan(row, REMAININGS) / makespan(row, ONES));
    finding.claims = vec![
        Claim::new(
            "with S = 1 the makespan is about 10 % longer than First-Fit's",
            "+10 %; geometric mean 1.09",
            vec![Test::within("all loads", one, PAPER_FIG15[0], NEAR).in_part(1.0, 1.18)],
        )
        .beside(all.by_load(|row| makespan(row, ONES)))
        .why("the loss grows with the load, and the paper does not tell which loads its mean covers"),
        Claim::new(
            "S = alpha softens the loss",
            "less than S = 1",
            vec![Test::below("makespan over that with S = 1", softer, 1.0)],
        ),
        Claim::new(
            "the order inside packs does not matter",
            "no impact",
            vec![Test::within("longest-remaining over fifo", by_order, 1.0, SAME).in_part(0.94, 1.06)],
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
        Claim::new(
            "with S = 1 the stretch is much better than First-Fit's",
            "large gain",
            vec![Test::below("over First-Fit's", one, 0.5).in_part(0.0, 1.0)],
        )
        .beside(format!("with S = alpha {alpha}")),
        Claim::new(
            "with S = 1 the stretch itself is close to 1",
            "close to 1",
            vec![Test::between("geometric mean", itself, 1.0, 1.2).in_part(1.0, 1.4)],
        )
        .beside(format!("waiting is {waiting} of useful node time"))
        .why(
            "packs are filled to an I/O occupation near 1, at which phases queue: jobs wait little on average, but the \
             worst job of a pack, which is what counts, waits long",
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
    let flat = 0.1 * one.mean;
    finding.claims = vec![
        Claim::new(
            "with S = 1 the number of packs grows with the load",
            "grows",
            vec![Test::above("slope for each unit of alpha", one, 0.0)],
        ),
        Claim::new(
            "with S = alpha it is about constant",
            "about constant",
            vec![Test::within("slope for each unit of alpha", alpha, 0.0, flat).in_part(-2.0 * flat, 2.0 * flat)],
        )
        .beside(format!("{low} times First-Fit's packs below a load of 2, {high} from 6 to 10"))
        .why("flat is less than a tenth of the slope with S = 1"),
    ];
    finding
}

fn fig13(all: &Grids) -> Finding {
    let title = "Fig. 13: time over the ideal without contention";
    let value = |row: &Row, at: usize| row[at].over_ideal;
    let mut finding = all.finding("fig13", title, "time over ideal", &[FIRST, ONES, ALPHAS], value);
    finding.charts = finding.charts.into_iter().map(|chart| chart.y_scale(Scale::Log10)).collect();
    let worst =
        |at: usize| Interval::by(&all.by_seed, |rows| rows.iter().map(|row| value(row, at)).fold(0.0, f64::max));
    let [one, alpha, first] = [ONES, ALPHAS, FIRST].map(|at| all.mean(|row| value(row, at)));
    let near = all.mean(|row| value(row, ALPHAS) / value(row, FIRST));
    let within =
        |rows: &Vec<Row>| 100.0 * rows.iter().filter(|row| value(row, ONES) <= 1.2).count() as f64 / rows.len() as f64;
    finding.claims = vec![
        Claim::new(
            "with S = 1 the time is within 20 % of the ideal",
            "within 20 %",
            vec![
                Test::below("geometric mean", one, 1.2),
                Test::below("the worst workload of a grid", worst(ONES), 1.2).in_part(0.0, 1.4),
            ],
        )
        .beside(format!("{} % of the workloads are within it", Interval::by(&all.by_seed, within))),
        Claim::new(
            "First-Fit takes up to ten times the ideal",
            "up to 1000 %",
            vec![Test::near("the worst workload of a grid", worst(FIRST), 10.0)],
        )
        .beside(format!("geometric mean {first}")),
        Claim::new(
            "S = alpha is close to First-Fit",
            "close",
            vec![Test::near("over First-Fit's", near, 1.0).in_part(0.6, 1.4)],
        )
        .beside(format!("{alpha} against {first} times the ideal")),
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
    let mut data = Data::new(&["seed", "alpha_gen", "workload", "alpha", "scheme", "state", "part"]);
    for row in all.rows() {
        for at in [FIRST, ONES, ALPHAS] {
            for (state, part) in parts {
                let cell = &row[at];
                let (load, aim) = (cell.alpha.into(), cell.alpha_gen.into());
                let part = share(row, at, part).into();
                data.push([cell.seed.into(), aim, cell.workload.into(), load, cell.scheme.into(), state.into(), part]);
            }
        }
    }
    let chart = Chart::bars(title, ("state", ""), ("part", "node time over First-Fit's")).by("scheme");
    let mut finding = bare("fig14", title, data, chart);
    let means = [FIRST, ONES].map(|at| parts.map(|(_, part)| all.mean_within(everything, |row| share(row, at, part))));
    let change = |(_, part): (&str, Part)| {
        all.mean_within(everything, |row| 100.0 * (share(row, ONES, part) - share(row, FIRST, part)))
    };
    let [_, delayed, idle] = parts.map(change);
    finding.claims = vec![
        Claim::new(
            "with S = 1 delay turns into idle time",
            "25 % of the time moves from delay to idle, and the 10 % of longer makespan is idle too",
            vec![
                Test::within("delay", delayed, -25.0, 5.0).unit(" points"),
                Test::within("idle", idle, 35.0, 7.0).unit(" points"),
            ],
        )
        .beside(format!("delay {} to {}, idle {} to {}", means[0][1], means[1][1], means[0][2], means[1][2]))
        .why("how much is delay at all follows from the loads, which the paper does not tell"),
    ];
    finding
}

fn fig15(all: &Grids) -> Finding {
    let title = "Fig. 15: makespan with S = 1 over First-Fit's, by I/O nodes";
    let value = |row: &Row, r: usize| row[ONES].makespan_s[r] / row[FIRST].makespan_s[r];
    let label = |r: usize| format!("{} I/O node{}", IO_NODES[r], if r == 0 { "" } else { "s" });
    let mut data = Data::new(&["seed", "alpha_gen", "workload", "alpha", "io_nodes", "value"]);
    for row in all.rows() {
        for (r, io_nodes) in IO_NODES.iter().enumerate() {
            let cell = &row[ONES];
            let (load, aim) = (cell.alpha.into(), cell.alpha_gen.into());
            data.push([cell.seed.into(), aim, cell.workload.into(), load, (*io_nodes).into(), value(row, r).into()]);
        }
    }
    let chart = Chart::lines(title, LOAD, ("value", "makespan over First-Fit's")).by("io_nodes").bins(BINS.0, BINS.1);
    let marked = |chart: Chart, r: usize| chart.paper_of(IO_NODES[r], None::<f64>, PAPER_FIG15[r]);
    let mut finding = bare("fig15", title, data, (0..IO_NODES.len()).fold(chart, marked));
    let means: [Interval; 3] = std::array::from_fn(|r| all.mean(|row| value(row, r)));
    let each = (0..IO_NODES.len()).map(|r| {
        // In part: half of the change from First-Fit's makespan, up to twice of it.
        let change = PAPER_FIG15[r] - 1.0;
        let (a, b) = (1.0 + change / 2.0, 1.0 + change * 2.0);
        let test = Test::within("all loads", means[r], PAPER_FIG15[r], NEAR).in_part(a.min(b), a.max(b));
        let claim = format!("geometric mean of the makespan over First-Fit's with {}", label(r));
        Claim::new(claim, format!("{:.2}", PAPER_FIG15[r]), vec![test])
            .beside(all.by_load(|row| value(row, r)))
            .why("the paper does not tell which loads its mean covers: see the item sensitivity")
    });
    finding.claims = each.collect();
    let ratio = |more: usize, fewer: usize| all.mean(|row| value(row, more) / value(row, fewer));
    finding.claims.push(Claim::new(
        "more I/O nodes favour S = 1",
        "1.09, 0.71, 0.53",
        vec![Test::below("3 over 1", ratio(1, 0), 1.0), Test::below("5 over 3", ratio(2, 1), 1.0)],
    ));
    finding
}
