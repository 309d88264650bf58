//! The eight orders on the applications of Table 1 (ICS'20 §6.1, Figs. 5 to 8), as they are and with compute phases
//! that vary.
//!
//! Choices where the paper is silent: a jitter of 5 % multiplies each compute phase by a factor that is uniform in
//! 0.95 to 1.05. Identical phases lock into step, so what holds without jitter only is called "in part".

use crate::chart::{Chart, Scale};
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use isonomia_planning::{App, Order, Schedule, schedule_with};
use isonomia_units::Nanos;
use rand::RngExt;
use rand_pcg::Pcg64;
use rayon::prelude::*;
use serde_json::json;

/// Compute and I/O phase in seconds, and iterations of one batch: Table 1.
const TABLE_1: [(f64, f64, u32); 5] =
    [(32.0, 10.0, 250), (16.0, 5.0, 500), (8.0, 2.5, 1000), (8.0, 2.5, 1000), (16.0, 5.0, 500)];
/// Batches of Figs. 5 to 8; the last is what claims are read from.
const BATCHES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const QUICK_BATCHES: [u32; 5] = [1, 2, 4, 8, 16];
/// Jitter of the compute phases, in per cent.
const JITTERS: [u32; 2] = [5, 20];
const SEEDS: u64 = 20;
const QUICK_SEEDS: u64 = 5;
/// A change of the worst stretch from half the batches to all of them that counts as none.
const CONVERGED: f64 = 0.02;
/// How much better than FIFO counts as clearly better.
const CLEARLY: f64 = 0.98;
/// The worst stretch of the two poor orders in the paper, which gives one digit after the point.
const PAPER_WORST: f64 = 1.8;
const PAPER_PRECISION: f64 = 0.05;
/// What is rounded to the paper's "about 1".
const UNDISTURBED: (f64, f64) = (1.0, 0.1);

/// What came out for one order.
#[derive(Clone, Debug)]
struct Result {
    order: Order,
    stretches: Vec<f64>,
    makespan_s: f64,
}

impl Result {
    fn max_stretch(&self) -> f64 {
        self.stretches.iter().copied().fold(1.0, f64::max)
    }

    fn min_stretch(&self) -> f64 {
        self.stretches.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Figs. 5 to 8 and the same under jitter.
pub fn run(context: &Context) -> std::result::Result<Vec<Finding>, Stopped> {
    let (batches, seeds): (&[u32], u64) = if context.quick { (&QUICK_BATCHES, QUICK_SEEDS) } else { (&BATCHES, SEEDS) };
    let what = "orders on Table 1";
    let steps = batches.len() + JITTERS.len();
    let mut exact = Vec::new();
    for (step, &batch) in batches.iter().enumerate() {
        context.tell(what, step, steps);
        exact.push((batch, all_orders(batch, None, context)?));
    }
    let batch = batches[batches.len() - 1];
    let mut jittered = Vec::new();
    for (step, &jitter) in JITTERS.iter().enumerate() {
        context.tell(what, batches.len() + step, steps);
        let seeded: Vec<Vec<Result>> = (0..seeds)
            .into_par_iter()
            .map(|seed| all_orders(batch, Some((f64::from(jitter) / 100.0, seed)), context))
            .collect::<std::result::Result<_, _>>()?;
        jittered.push((jitter, seeded));
    }
    context.tell(what, steps, steps);
    let configuration = json!({
        "apps_compute_s_io_s_iterations": TABLE_1,
        "batches": batches,
        "jitter_batch": batch,
        "jitter_percent": JITTERS,
        "seeds": (0..seeds).collect::<Vec<_>>(),
    });
    let mut findings = vec![
        worst(&exact),
        makespans("fig6", "Fig. 6: makespan relative to FIFO", &exact),
        each_app(&exact),
        makespans("fig8", "Fig. 8, which shows what Fig. 6 shows: makespan relative to FIFO", &exact),
        jitter(&jittered, batch),
    ];
    let mut claims = claims(&exact, &jittered);
    for finding in &mut findings {
        finding.configuration = configuration.clone();
        let own = claims.iter().position(|(item, _)| *item == finding.item);
        finding.claims = own.map(|at| claims.remove(at).1).unwrap_or_default();
    }
    Ok(findings)
}

fn all_orders(batch: u32, jitter: Option<(f64, u64)>, context: &Context) -> std::result::Result<Vec<Result>, Stopped> {
    let nanos = |seconds: f64| Nanos((seconds * 1e9).round() as u64);
    let apps = TABLE_1.map(|(compute_s, io_s, iterations)| App {
        compute: nanos(compute_s),
        io: nanos(io_s),
        iterations: iterations * batch,
        release: Nanos::ZERO,
    });
    let one = |order| {
        context.go_on()?;
        let schedule = with_jitter(&apps, order, jitter);
        let stretches = schedule.apps.iter().map(isonomia_planning::Outcome::stretch).collect();
        Ok(Result { order, stretches, makespan_s: schedule.makespan().as_secs_f64() })
    };
    Order::ALL.into_iter().map(one).collect()
}

/// Every order meets the same phases: they are drawn for each application on a stream of its own.
fn with_jitter(apps: &[App], order: Order, jitter: Option<(f64, u64)>) -> Schedule {
    let schedule = match jitter {
        None => schedule_with(apps, order, |app, _| apps[app].compute, |_| ()),
        Some((jitter, seed)) => {
            let mut generators: Vec<Pcg64> =
                (0..apps.len()).map(|app| Pcg64::new(u128::from(seed), app as u128)).collect();
            let compute = |app: usize, _| {
                let factor = generators[app].random_range(1.0 - jitter..=1.0 + jitter);
                Nanos((apps[app].compute.0 as f64 * factor).round() as u64)
            };
            schedule_with(apps, order, compute, |_| ())
        }
    };
    // Table 1 times the batches is far within every limit.
    schedule.unwrap_or(Schedule { apps: Vec::new() })
}

type ByBatch = [(u32, Vec<Result>)];
type BySeed = [(u32, Vec<Vec<Result>>)];

fn finding(item: &'static str, title: &str, data: Data, charts: Vec<Chart>) -> Finding {
    let (title, configuration) = (title.to_owned(), serde_json::Value::Null);
    Finding { item, title, configuration, data, table: None, charts, claims: Vec::new() }
}

const BATCH: (&str, &str) = ("batch", "iteration batches");

fn worst(results: &ByBatch) -> Finding {
    let mut data = Data::new(&["batch", "policy", "max_stretch"]);
    for (batch, results) in results {
        for result in results {
            data.push([(*batch).into(), result.order.name().into(), result.max_stretch().into()]);
        }
    }
    let title = "Fig. 5: worst stretch by iteration batches";
    let chart = Chart::lines(title, BATCH, ("max_stretch", "worst stretch")).by("policy").x_scale(Scale::Log2);
    finding("fig5", title, data, vec![chart])
}

fn makespans(item: &'static str, title: &str, results: &ByBatch) -> Finding {
    let mut data = Data::new(&["batch", "policy", "makespan_s", "relative_to_fifo"]);
    for (batch, results) in results {
        for result in results {
            let relative = result.makespan_s / results[0].makespan_s;
            data.push([(*batch).into(), result.order.name().into(), result.makespan_s.into(), relative.into()]);
        }
    }
    let y = ("relative_to_fifo", "makespan over FIFO's");
    finding(item, title, data, vec![Chart::lines(title, BATCH, y).by("policy").x_scale(Scale::Log2)])
}

fn each_app(results: &ByBatch) -> Finding {
    let mut data = Data::new(&["batch", "policy", "app", "stretch"]);
    for (batch, results) in results {
        for result in results {
            for (app, stretch) in result.stretches.iter().enumerate() {
                data.push([(*batch).into(), result.order.name().into(), (app + 1).into(), (*stretch).into()]);
            }
        }
    }
    let last = results.last().map_or(1, |(batch, _)| *batch);
    let title = "Fig. 7: stretch of each application";
    let chart = Chart::bars(format!("{title}, {last} batches"), ("policy", ""), ("stretch", "stretch"));
    finding("fig7", title, data, vec![chart.by("app").only("batch", [last])])
}

fn jitter(results: &BySeed, batch: u32) -> Finding {
    let mut data =
        Data::new(&["jitter_percent", "seed", "batch", "policy", "max_stretch", "makespan_s", "relative_to_fifo"]);
    for (jitter, seeded) in results {
        for (seed, results) in seeded.iter().enumerate() {
            for result in results {
                data.push([
                    (*jitter).into(),
                    seed.into(),
                    batch.into(),
                    result.order.name().into(),
                    result.max_stretch().into(),
                    result.makespan_s.into(),
                    (result.makespan_s / results[0].makespan_s).into(),
                ]);
            }
        }
    }
    let title = "Worst stretch and makespan with compute phases that vary";
    let x = ("policy", "");
    let charts = vec![
        Chart::bars("Worst stretch by jitter in %", x, ("max_stretch", "worst stretch")).by("jitter_percent"),
        Chart::bars("Makespan by jitter in %", x, ("relative_to_fifo", "makespan over FIFO's"))
            .by("jitter_percent")
            .named("makespan"),
    ];
    finding("jitter", title, data, charts)
}

/// A measure of an order under jitter, over FIFO's in the same run.
fn over_fifo(seeded: &[Vec<Result>], at: usize, of: fn(&Result) -> f64) -> Interval {
    Interval::by(seeded, |results| of(&results[at]) / of(&results[0]))
}

fn index(order: Order) -> usize {
    Order::ALL.iter().position(|other| *other == order).unwrap_or(0)
}

fn claims(exact: &ByBatch, jittered: &BySeed) -> Vec<(&'static str, Vec<Claim>)> {
    let last = &exact[exact.len() - 1].1;
    let half = &exact[exact.len() - 2].1;
    let makespan = |result: &Result| result.makespan_s;
    let better = |order| better_than_fifo(order, "makespan", last, jittered, makespan);
    let mut makespans: Vec<Claim> =
        [Order::Stretch, Order::LongestRemaining, Order::ShortestIo, Order::Bandwidth].map(better).into();
    makespans.extend([Order::LongestIo, Order::ShortestRemaining].map(|order| {
        let tests = without_and_with(order, last, jittered, makespan, |what, ratio| Test::above(what, ratio, 1.0));
        Claim::new(format!("{order} has a worse makespan than fifo"), "worse than FIFO", tests)
    }));
    let mut stretch = vec![converges(last, half), starvation(last, jittered)];
    stretch.extend(
        [Order::Stretch, Order::Bandwidth, Order::LongestRemaining]
            .map(|order| better_than_fifo(order, "worst stretch", last, jittered, Result::max_stretch)),
    );
    vec![("fig5", stretch), ("fig6", makespans), ("fig7", vec![short_phases_suffer(last, jittered), discrepancy(last)])]
}

/// A test of the ratio to FIFO for the exact phases and for each jitter.
fn without_and_with(
    order: Order,
    last: &[Result],
    jittered: &BySeed,
    of: fn(&Result) -> f64,
    test: impl Fn(String, Interval) -> Test,
) -> Vec<Test> {
    let exact = Interval::exact(of(&last[index(order)]) / of(&last[0]));
    let mut tests = vec![test("over FIFO's, exact".to_owned(), exact)];
    let with = |(jitter, seeded): &(u32, Vec<Vec<Result>>)| {
        test(format!("jitter {jitter} %"), over_fifo(seeded, index(order), of))
    };
    tests.extend(jittered.iter().map(with));
    tests
}

fn better_than_fifo(order: Order, what: &str, last: &[Result], jittered: &BySeed, of: fn(&Result) -> f64) -> Claim {
    let tests = without_and_with(order, last, jittered, of, |what, ratio| {
        Test::below(what, ratio, CLEARLY).in_part(f64::NEG_INFINITY, 1.0)
    });
    Claim::new(format!("{order} has a better {what} than fifo"), "clearly better than FIFO", tests)
}

fn converges(last: &[Result], half: &[Result]) -> Claim {
    let change = |(a, b): (&Result, &Result)| (a.max_stretch() / b.max_stretch() - 1.0).abs();
    let most = last.iter().zip(half).map(change).fold(0.0, f64::max);
    let change = Interval::exact(100.0 * most);
    Claim::new(
        "the worst stretch converges as iterations grow",
        "steady state after some batches",
        vec![Test::below("largest change of any order in the last doubling", change, 100.0 * CONVERGED).unit(" %")],
    )
}

/// Whether the two orders that starve some are the two worst: the better of them over the worst of the others.
fn starvation(last: &[Result], jittered: &BySeed) -> Claim {
    let expected = [index(Order::LongestIo), index(Order::ShortestRemaining)];
    let margin = |results: &[Result]| {
        let (poor, others): (Vec<_>, Vec<_>) = results.iter().enumerate().partition(|(at, _)| expected.contains(at));
        let poor = poor.iter().map(|(_, result)| result.max_stretch()).fold(f64::INFINITY, f64::min);
        poor / others.iter().map(|(_, result)| result.max_stretch()).fold(0.0, f64::max)
    };
    let mut tests = vec![Test::above("over the worst of the others, exact", Interval::exact(margin(last)), 1.0)];
    tests.extend(jittered.iter().map(|(jitter, seeded)| {
        Test::above(format!("jitter {jitter} %"), Interval::by(seeded, |results| margin(results)), 1.0)
    }));
    let worst = expected.map(|at| last[at].max_stretch()).into_iter().fold(0.0, f64::max);
    tests.push(Test::within("worst stretch", Interval::exact(worst), PAPER_WORST, PAPER_PRECISION));
    Claim::new("longest-io and shortest-remaining have the worst maximum stretch", "the two worst, up to 1.8", tests)
}

fn short_phases_suffer(last: &[Result], jittered: &BySeed) -> Claim {
    let is_short = |result: &&Result| {
        let worst = result.max_stretch();
        result.stretches[2] == worst || result.stretches[3] == worst
    };
    let part = |results: &[Result]| 100.0 * results.iter().filter(is_short).count() as f64 / results.len() as f64;
    let mut tests = vec![Test::above("of the orders, exact", Interval::exact(part(last)), 50.0).unit(" %")];
    tests.extend(jittered.iter().map(|(jitter, seeded)| {
        Test::above(format!("jitter {jitter} %"), Interval::by(seeded, |results| part(results)), 50.0).unit(" %")
    }));
    let but = last.iter().filter(|result| !is_short(result)).map(|result| result.order.name()).collect::<Vec<_>>();
    Claim::new("applications 3 and 4 suffer most", "in general", tests).why(format!(
        "one of them has the worst stretch under more than half of the orders; not under {}",
        but.join(", ")
    ))
}

fn discrepancy(last: &[Result]) -> Claim {
    let tests = [Order::LongestIo, Order::ShortestRemaining].iter().flat_map(|order| {
        let result = &last[index(*order)];
        let [least, greatest] = [result.min_stretch(), result.max_stretch()].map(Interval::exact);
        [
            Test::within(format!("{order}, least"), least, UNDISTURBED.0, UNDISTURBED.1),
            Test::within(format!("{order}, greatest"), greatest, PAPER_WORST, PAPER_PRECISION),
        ]
    });
    Claim::new(
        "longest-io and shortest-remaining leave some applications undisturbed and starve others",
        "about 1 to 1.8",
        tests.collect(),
    )
}
