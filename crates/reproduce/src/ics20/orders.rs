//! The eight orders on the applications of Table 1 (ICS'20 §6.1, Figs. 5 to 8), as they are and with compute phases
//! that vary.
//!
//! Choices where the paper is silent: a jitter of 5 % multiplies each compute phase by a factor that is uniform in
//! 0.95 to 1.05. Identical phases lock into step, so what holds without jitter only is called "in part".

use crate::claims::{Claim, Verdict};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Figure, Finding, Stopped};
use isonomia_planning::{App, Order, Schedule, schedule_with};
use isonomia_plot::{Line, Plot};
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

fn finding(item: &'static str, title: &str, data: Data, plots: Vec<(&'static str, Figure)>) -> Finding {
    let (title, configuration) = (title.to_owned(), serde_json::Value::Null);
    Finding { item, title, configuration, data, plots, claims: Vec::new() }
}

fn by_order(results: &ByBatch, value: impl Fn(&[Result], usize) -> f64) -> Vec<Line> {
    let line = |(at, order): (usize, &Order)| Line {
        label: order.name().to_owned(),
        points: results.iter().map(|(batch, results)| (f64::from(*batch), value(results, at))).collect(),
        reference: None,
    };
    Order::ALL.iter().enumerate().map(line).collect()
}

fn worst(results: &ByBatch) -> Finding {
    let mut data = Data::new(&["batch", "policy", "max_stretch"]);
    for (batch, results) in results {
        for result in results {
            data.push([(*batch).into(), result.order.name().into(), result.max_stretch().into()]);
        }
    }
    let title = "Fig. 5: worst stretch by iteration batches";
    let lines = by_order(results, |results, at| results[at].max_stretch());
    let plot = Plot { caption: title.to_owned(), x: "iteration batches", y: "worst stretch", lines };
    finding("fig5", title, data, vec![("", Figure::Lines(plot))])
}

fn makespans(item: &'static str, title: &str, results: &ByBatch) -> Finding {
    let mut data = Data::new(&["batch", "policy", "makespan_s", "relative_to_fifo"]);
    for (batch, results) in results {
        for result in results {
            let relative = result.makespan_s / results[0].makespan_s;
            data.push([(*batch).into(), result.order.name().into(), result.makespan_s.into(), relative.into()]);
        }
    }
    let lines = by_order(results, |results, at| results[at].makespan_s / results[0].makespan_s);
    let plot = Plot { caption: title.to_owned(), x: "iteration batches", y: "makespan over FIFO's", lines };
    finding(item, title, data, vec![("", Figure::Lines(plot))])
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
    let plot = |(at, order): (usize, &Order)| {
        let line = |app: usize| Line {
            label: format!("application {}", app + 1),
            points: results.iter().map(|(batch, all)| (f64::from(*batch), all[at].stretches[app])).collect(),
            reference: None,
        };
        let caption = format!("Fig. 7: stretch of each application under {order}");
        let lines = (0..TABLE_1.len()).map(line).collect();
        (order.name(), Figure::Lines(Plot { caption, x: "iteration batches", y: "stretch", lines }))
    };
    let plots = Order::ALL.iter().enumerate().map(plot).collect();
    finding("fig7", "Fig. 7: stretch of each application", data, plots)
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
    let line = |(at, order): (usize, &Order)| Line {
        label: order.name().to_owned(),
        points: results.iter().map(|(jitter, seeded)| (f64::from(*jitter), worst_of(seeded, at).mean)).collect(),
        reference: None,
    };
    let lines = Order::ALL.iter().enumerate().map(line).collect();
    let plot = Plot { caption: title.to_owned(), x: "jitter in per cent", y: "worst stretch, mean", lines };
    finding("jitter", title, data, vec![("", Figure::Lines(plot))])
}

fn worst_of(seeded: &[Vec<Result>], at: usize) -> Interval {
    Interval::of(&seeded.iter().map(|results| results[at].max_stretch()).collect::<Vec<_>>())
}

fn makespan_of(seeded: &[Vec<Result>], at: usize) -> Interval {
    Interval::of(&seeded.iter().map(|results| results[at].makespan_s / results[0].makespan_s).collect::<Vec<_>>())
}

fn index(order: Order) -> usize {
    Order::ALL.iter().position(|other| *other == order).unwrap_or(0)
}

fn claims(exact: &ByBatch, jittered: &BySeed) -> Vec<(&'static str, Vec<Claim>)> {
    let last = &exact[exact.len() - 1].1;
    let half = &exact[exact.len() - 2].1;
    let mut makespan: Vec<Claim> = [Order::Stretch, Order::LongestRemaining, Order::ShortestIo, Order::Bandwidth]
        .map(|order| {
            against_fifo(
                order,
                "makespan",
                last[index(order)].makespan_s / last[0].makespan_s,
                1.0,
                jittered,
                makespan_of,
            )
        })
        .into();
    makespan.extend([Order::LongestIo, Order::ShortestRemaining].map(|order| poor_makespan(order, last, jittered)));
    let fairer = [Order::Stretch, Order::Bandwidth, Order::LongestRemaining].map(|order| {
        let fifo = last[0].max_stretch();
        against_fifo(order, "worst stretch", last[index(order)].max_stretch(), fifo, jittered, worst_of)
    });
    let mut stretch = vec![converges(last, half), starvation(last, jittered)];
    stretch.extend(fairer);
    vec![("fig5", stretch), ("fig6", makespan), ("fig7", vec![short_phases_suffer(last, jittered), discrepancy(last)])]
}

fn converges(last: &[Result], half: &[Result]) -> Claim {
    let change = |(a, b): (&Result, &Result)| (a.max_stretch() / b.max_stretch() - 1.0).abs();
    let most = last.iter().zip(half).map(change).fold(0.0, f64::max);
    Claim {
        claim: "the worst stretch converges as iterations grow".to_owned(),
        paper: "steady state after some batches".to_owned(),
        ours: format!("changes by at most {:.2} % in the last doubling", most * 100.0),
        verdict: Verdict::of(most <= CONVERGED, most <= 3.0 * CONVERGED),
        why: format!("at most {:.0} % for every order", CONVERGED * 100.0),
    }
}

/// The two orders with the worst of the worst stretches, and whether they are those of the paper.
fn starvation(last: &[Result], jittered: &BySeed) -> Claim {
    let two_worst = |values: &[f64]| {
        let mut sorted: Vec<usize> = (0..values.len()).collect();
        sorted.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
        let mut two = [sorted[0], sorted[1]];
        two.sort_unstable();
        two
    };
    let expected = [index(Order::LongestIo), index(Order::ShortestRemaining)];
    let exact = two_worst(&last.iter().map(Result::max_stretch).collect::<Vec<_>>());
    let mut all = vec![("exact".to_owned(), exact)];
    all.extend(jittered.iter().map(|(jitter, seeded)| {
        let means: Vec<f64> = (0..Order::ALL.len()).map(|at| worst_of(seeded, at).mean).collect();
        (format!("jitter {jitter} %"), two_worst(&means))
    }));
    let name =
        |(case, two): &(String, [usize; 2])| format!("{case}: {}", two.map(|at| Order::ALL[at].name()).join(", "));
    let holds = all.iter().filter(|(_, two)| *two == expected).count();
    Claim {
        claim: "longest-io and shortest-remaining have the worst maximum stretch".to_owned(),
        paper: "the two worst, up to 1.8".to_owned(),
        ours: format!(
            "{}; {:.2} and {:.2}",
            all.iter().map(name).collect::<Vec<_>>().join("; "),
            last[expected[0]].max_stretch(),
            last[expected[1]].max_stretch()
        ),
        verdict: Verdict::of(holds == all.len(), holds > 0 || exact.iter().any(|at| expected.contains(at))),
        why: "both are the two worst, without and with jitter".to_owned(),
    }
}

fn against_fifo(
    order: Order,
    what: &str,
    exact: f64,
    fifo_exact: f64,
    jittered: &BySeed,
    of: fn(&[Vec<Result>], usize) -> Interval,
) -> Claim {
    let ratio = |interval: Interval, fifo: Interval| interval.mean / fifo.mean;
    let jitter_ratios: Vec<f64> =
        jittered.iter().map(|(_, seeded)| ratio(of(seeded, index(order)), of(seeded, 0))).collect();
    let mut ours = format!("exact {exact:.3} against {fifo_exact:.3}");
    for (jitter, seeded) in jittered {
        ours += &format!("; jitter {jitter} %: {} against {}", of(seeded, index(order)), of(seeded, 0));
    }
    let without = exact / fifo_exact < CLEARLY;
    let with = jitter_ratios.iter().all(|ratio| *ratio < CLEARLY);
    let any = without || jitter_ratios.iter().any(|ratio| *ratio < 1.0);
    let why = match (without, with) {
        (true, true) => "",
        (true, false) => ": the gain of the exact phases does not survive jitter",
        (false, true) => ": without jitter the phases lock into step, and the order hardly matters",
        (false, false) => ": no clear gain in either",
    };
    Claim {
        claim: format!("{order} has a better {what} than fifo"),
        paper: "better than FIFO".to_owned(),
        ours,
        verdict: Verdict::of(without && with, any),
        why: format!("{:.0} % better or more, without and with jitter{why}", (1.0 - CLEARLY) * 100.0),
    }
}

fn poor_makespan(order: Order, last: &[Result], jittered: &BySeed) -> Claim {
    let exact = last[index(order)].makespan_s / last[0].makespan_s;
    let intervals: Vec<_> =
        jittered.iter().map(|(jitter, seeded)| (jitter, makespan_of(seeded, index(order)))).collect();
    let mut ours = format!("exact {exact:.3}");
    for (jitter, interval) in &intervals {
        ours += &format!("; jitter {jitter} %: {interval}");
    }
    let worse = intervals.iter().filter(|(_, interval)| interval.mean > 1.0).count() + usize::from(exact > 1.0);
    Claim {
        claim: format!("{order} has a worse makespan than fifo"),
        paper: "worse than FIFO".to_owned(),
        ours,
        verdict: Verdict::of(worse == intervals.len() + 1, worse > 0),
        why: "more than FIFO's, without and with jitter".to_owned(),
    }
}

fn short_phases_suffer(last: &[Result], jittered: &BySeed) -> Claim {
    let is_short = |result: &&Result| {
        let worst = result.max_stretch();
        result.stretches[2] == worst || result.stretches[3] == worst
    };
    let exact = last.iter().filter(is_short).count();
    let seeded: usize =
        jittered.iter().flat_map(|(_, seeded)| seeded).map(|all| all.iter().filter(is_short).count()).sum();
    let of: usize = jittered.iter().flat_map(|(_, seeded)| seeded).map(Vec::len).sum();
    let but = last.iter().filter(|result| !is_short(result)).map(|result| result.order.name()).collect::<Vec<_>>();
    Claim {
        claim: "applications 3 and 4 suffer most".to_owned(),
        paper: "in general".to_owned(),
        ours: format!("exact: under {exact} of {} orders; with jitter: in {seeded} of {of} runs", last.len()),
        verdict: Verdict::of(2 * exact > last.len() && 2 * seeded > of, exact > 0 || seeded > 0),
        why: format!("one of them has the worst stretch in more than half; not under {}", but.join(", ")),
    }
}

fn discrepancy(last: &[Result]) -> Claim {
    let pair = [Order::LongestIo, Order::ShortestRemaining].map(|order| &last[index(order)]);
    let range =
        |result: &&Result| format!("{} {:.2} to {:.2}", result.order, result.min_stretch(), result.max_stretch());
    let holds = |result: &Result| result.min_stretch() < 1.1 && result.max_stretch() > 1.5;
    Claim {
        claim: "longest-io and shortest-remaining leave some applications undisturbed and starve others".to_owned(),
        paper: "about 1 to 1.8".to_owned(),
        ours: pair.iter().map(range).collect::<Vec<_>>().join("; "),
        verdict: Verdict::of(pair.iter().all(|result| holds(result)), pair.iter().any(|result| holds(result))),
        why: "the least is below 1.1 and the greatest above 1.5, under both".to_owned(),
    }
}
