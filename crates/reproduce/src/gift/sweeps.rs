//! Figs. 11 to 14: GIFT's parameters, its coupons over time, and the conditions under which it works.

use super::system::{Gain, Named, gains, gift, interval, is_comparable, pofs, run_all, scheme};
use crate::claims::{Claim, Verdict};
use crate::data::Data;
use crate::run::{Context, Figure, Finding, Stopped};
use isonomia_plot::{Line, Plot};
use isonomia_sim::fluid::Outcome;
use isonomia_sim::fluid::population::Population;
use isonomia_units::Nanos;
use serde_json::json;

const DAY: u64 = 86_400;
/// GIFT's default N (§3.2).
const WINDOW: u64 = 250_000;
const TAUS: [f64; 5] = [0.1, 0.3, 0.5, 0.8, 0.95];
const BOUNDS: [f64; 5] = [0.05, 0.1, 0.3, 0.5, 0.8];
const WINDOWS: [u64; 4] = [25_000, 250_000, 2_500_000, 25_000_000];
const NUMBERS: [u32; 4] = [100, 250, 500, 1000];

/// What a gain is for a line of a plot.
type Measure = (&'static str, fn(&Gain) -> f64);
const IO: Measure = ("I/O time", |gain| gain.io);
const RUN: Measure = ("run time", |gain| gain.run);
const BANDWIDTH: Measure = ("effective bandwidth", |gain| gain.bandwidth);

fn system(applications: u32, context: &Context) -> (Population, Vec<u64>) {
    let (days, seeds) = if context.quick { (2, 2) } else { (25, 3) };
    let population = Population { duration: Nanos::from_secs(days * DAY), ..Population::gift(applications) };
    (population, (1..=seeds).collect())
}

/// Gains of each variant by its parameter, as lines.
fn lines(points: &[(f64, Vec<Gain>)], measures: &[Measure]) -> Vec<Line> {
    let line = |(label, measure): &Measure| Line {
        label: (*label).to_owned(),
        points: points.iter().map(|(x, gains)| (*x, interval(gains, *measure).mean.max(0.0))).collect(),
        reference: None,
    };
    measures.iter().map(line).collect()
}

fn spread(points: &[(f64, Vec<Gain>)], (_, measure): Measure) -> f64 {
    let means = || points.iter().map(|(_, gains)| interval(gains, measure).mean);
    means().fold(f64::MIN, f64::max) - means().fold(f64::MAX, f64::min)
}

/// Figs. 11 and 12.
pub fn parameters(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (population, seeds) = system(500, context);
    let mut schemes: Vec<Named> = vec![pofs()];
    schemes.extend(TAUS.map(|tau| gift("tau", tau, 0.1, WINDOW)));
    schemes.extend(BOUNDS.map(|b_thres| gift("b_thres", 0.8, b_thres, WINDOW)));
    schemes.extend(WINDOWS.map(|window| gift("window", 0.8, 0.1, window)));
    let outcomes = run_all(&population, &seeds, &schemes, context, "parameters")?;
    let mut data =
        Data::new(&["parameter", "value", "seed", "io_time_gain_percent", "effective_bandwidth_gain_percent"]);
    let mut at = 1;
    let mut sweep = |name: &'static str, values: &[f64]| -> Vec<(f64, Vec<Gain>)> {
        let mut points = Vec::new();
        for &value in values {
            let gains = gains(&outcomes, at);
            for (seed, gain) in seeds.iter().zip(&gains) {
                data.push([name.into(), value.into(), (*seed).into(), gain.io.into(), gain.bandwidth.into()]);
            }
            points.push((value, gains));
            at += 1;
        }
        points
    };
    let taus = sweep("tau", &TAUS);
    let bounds = sweep("b_thres", &BOUNDS);
    let windows = sweep("window", &WINDOWS.map(|window| window as f64));
    let plot = |caption: &str, x: &'static str, points: &[(f64, Vec<Gain>)]| {
        let lines = lines(points, &[IO, BANDWIDTH]);
        Figure::Lines(Plot { caption: caption.to_owned(), x, y: "gain over POFS in per cent", lines })
    };
    let difference = |measure: Measure| {
        let mean = |at: usize| interval(&bounds[at].1, measure.1).mean;
        mean(BOUNDS.len() - 1) - mean(1)
    };
    let (more_bandwidth, more_io) = (difference(BANDWIDTH), difference(IO));
    let flat = spread(&windows, IO);
    let worst = taus.iter().chain(&bounds).chain(&windows).map(|(_, gains)| interval(gains, IO.1).mean);
    let worst = worst.fold(f64::MAX, f64::min);
    let claims = vec![
        Claim {
            claim: "a higher bound of throttling (0.8 against 0.1) gives more effective bandwidth".to_owned(),
            paper: "up to 5 points more".to_owned(),
            ours: format!("{more_bandwidth:+.1} points"),
            verdict: Verdict::of((1.0..=10.0).contains(&more_bandwidth), more_bandwidth > 0.0),
            why: "holds from 1 to 10 points more; in part if it is more".to_owned(),
        },
        Claim {
            claim: "… and costs I/O time".to_owned(),
            paper: "2 points less".to_owned(),
            ours: format!("{more_io:+.1} points"),
            verdict: Verdict::of((-4.0..=0.0).contains(&more_io), more_io < 0.0),
            why: "holds from 4 to 0 points less".to_owned(),
        },
        Claim {
            claim: "the window N does not change the gain in I/O time".to_owned(),
            paper: "flat".to_owned(),
            ours: format!("{flat:.1} points between the least and the greatest"),
            verdict: Verdict::of(flat <= 1.0, flat <= 3.0),
            why: "holds within 1 point; in part within 3".to_owned(),
        },
        Claim {
            claim: "GIFT gains I/O time whatever the parameters".to_owned(),
            paper: "better than POFS throughout".to_owned(),
            ours: format!("at least {worst:.1} %"),
            verdict: Verdict::of(worst > 0.0, false),
            why: "holds if every mean is a gain".to_owned(),
        },
    ];
    let configuration =
        json!({ "applications": 500, "days": population.duration.0 / 1_000_000_000 / DAY, "seeds": seeds });
    let sweeps = Finding {
        item: "fig11",
        title: "GIFT's gain by its parameters".to_owned(),
        configuration: configuration.clone(),
        data,
        plots: vec![
            ("tau", plot("gain by redemption rate threshold", "redemption rate threshold", &taus)),
            ("b-thres", plot("gain by bound of throttling", "bound of throttling", &bounds)),
            ("window", plot("gain by window", "window in coupons", &windows)),
        ],
        claims,
    };
    Ok(vec![sweeps, regret(&population, &seeds, configuration, context)?])
}

/// Fig. 12.
fn regret(
    population: &Population,
    seeds: &[u64],
    configuration: serde_json::Value,
    context: &Context,
) -> Result<Finding, Stopped> {
    let settings =
        [("tau 0.8, bound 0.1", 0.8, 0.1), ("tau 0.1, bound 0.1", 0.1, 0.1), ("tau 0.8, bound 0.8", 0.8, 0.8)];
    let schemes: Vec<Named> =
        [pofs()].into_iter().chain(settings.map(|(name, tau, bound)| gift(name, tau, bound, WINDOW))).collect();
    let outcomes = run_all(population, seeds, &schemes, context, "coupons over time")?;
    let mut data =
        Data::new(&["setting", "seed", "day", "issued_target_s", "outstanding_node_hours_max", "paid_node_hours"]);
    let (mut issued, mut owed) = (Vec::new(), Vec::new());
    for (at, (name, ..)) in settings.iter().enumerate() {
        for (seed, schemes) in seeds.iter().zip(&outcomes) {
            let Some(gift) = &schemes[at + 1].gift else { continue };
            for day in &gift.days {
                data.push([
                    (*name).into(),
                    (*seed).into(),
                    day.day.into(),
                    day.issued_target_s.into(),
                    day.outstanding_node_hours_max.into(),
                    day.paid_node_hours.into(),
                ]);
            }
            if *seed == seeds[0] {
                let line = |of: fn(&isonomia_sim::fluid::GiftDay) -> f64| Line {
                    label: (*name).to_owned(),
                    points: gift.days.iter().map(|day| (day.day as f64 + 1.0, of(day))).collect(),
                    reference: None,
                };
                issued.push(line(|day| day.issued_target_s));
                owed.push(line(|day| day.outstanding_node_hours_max));
            }
        }
    }
    let low = |of: &dyn Fn(&Outcome, &Outcome) -> f64| {
        let values: Vec<f64> = outcomes.iter().map(|schemes| of(&schemes[0], &schemes[2])).collect();
        crate::interval::Interval::of(&values)
    };
    let most = low(&|_, gift| {
        let days = gift.gift.iter().flat_map(|gift| &gift.days);
        days.map(|day| day.outstanding_node_hours_max).fold(0.0, f64::max)
    });
    let paid = low(&|_, gift| gift.gift.as_ref().map_or(0.0, |gift| gift.paid_node_hours));
    let gained = low(&|base, gift| gift.node_hours_done * (gift.jobs_done as f64 / base.jobs_done as f64 - 1.0));
    let plot = |caption: &str, y: &'static str, lines: Vec<Line>| {
        Figure::Lines(Plot { caption: caption.to_owned(), x: "day", y, lines })
    };
    Ok(Finding {
        item: "fig12",
        title: "coupons issued and node-hours owed over time".to_owned(),
        configuration,
        data,
        plots: vec![
            ("issued", plot("coupons issued since the beginning, first seed", "target-seconds", issued)),
            ("owed", plot("node-hours owed at most on each day, first seed", "node-hours", owed)),
        ],
        claims: vec![
            Claim {
                claim: "node-hours outstanding at any time at (0.1, 0.1)".to_owned(),
                paper: "below 20".to_owned(),
                ours: format!("at most {most:.1}"),
                verdict: Verdict::of(most.mean < 20.0, most.mean < 100.0),
                why: "holds below 20; in part below 100".to_owned(),
            },
            Claim {
                claim: "daily awards at (0.1, 0.1) against node-hours gained by throughput".to_owned(),
                paper: "360 against 5800".to_owned(),
                ours: format!("{paid:.0} against {gained:.0}"),
                verdict: Verdict::of(paid.mean * 10.0 < gained.mean, paid.mean < gained.mean),
                why: "holds if the award is below a tenth of the gain; in part if below it".to_owned(),
            },
        ],
    })
}

/// Figs. 13 and 14.
pub fn conditions(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (population, seeds) = system(500, context);
    let schemes = [pofs(), gift("gift", 0.8, 0.1, WINDOW), scheme("mbw", "mbw", &super::system::parameters())];
    let outcomes = run_all(&population, &seeds, &schemes, context, "kinds of applications")?;
    let kinds = kinds(&outcomes, &seeds);
    let mut points: Vec<(f64, Vec<Gain>)> = Vec::new();
    let mut data = Data::new(&[
        "applications",
        "seed",
        "io_time_gain_percent",
        "run_time_gain_percent",
        "effective_bandwidth_gain_percent",
        "effective_bandwidth_pofs",
    ]);
    for applications in NUMBERS {
        let (population, seeds) = system(applications, context);
        let outcomes = run_all(&population, &seeds, &schemes[..2], context, "numbers of applications")?;
        let gains = gains(&outcomes, 1);
        for ((seed, gain), outcomes) in seeds.iter().zip(&gains).zip(&outcomes) {
            data.push([
                applications.into(),
                (*seed).into(),
                gain.io.into(),
                gain.run.into(),
                gain.bandwidth.into(),
                outcomes[0].effective_bandwidth.into(),
            ]);
        }
        points.push((f64::from(applications), gains));
    }
    let last = |(_, measure): Measure| interval(&points[NUMBERS.len() - 1].1, measure);
    let rises = [IO, RUN, BANDWIDTH].map(|(_, measure)| {
        let means: Vec<f64> = points.iter().map(|(_, gains)| interval(gains, measure).mean).collect();
        means.windows(2).all(|pair| pair[1] >= pair[0] - 0.5)
    });
    let contention = Finding {
        item: "fig14",
        title: "GIFT's gain by the number of applications".to_owned(),
        configuration: json!({
            "days": population.duration.0 / 1_000_000_000 / DAY, "seeds": seeds, "nodes_per_application": 192.0 / 250.0,
        }),
        data,
        plots: vec![(
            "",
            Figure::Lines(Plot {
                caption: "gain over POFS by the number of applications".to_owned(),
                x: "applications",
                y: "per cent",
                lines: lines(&points, &[IO, RUN, BANDWIDTH]),
            }),
        )],
        claims: vec![
            Claim {
                claim: "gains rise from 100 to 1000 applications".to_owned(),
                paper: "I/O time, run time and effective bandwidth rise".to_owned(),
                ours: format!("I/O time {}, run time {}, bandwidth {}", rises[0], rises[1], rises[2]),
                verdict: Verdict::of(rises.iter().all(|rises| *rises), rises.iter().any(|rises| *rises)),
                why: "holds if no step falls by more than half a point".to_owned(),
            },
            Claim {
                claim: "gains with 1000 applications: I/O time, run time, bandwidth".to_owned(),
                paper: "up to 16 / 7 / 30 %".to_owned(),
                ours: format!("{:.1} / {:.1} / {:.1} %", last(IO), last(RUN), last(BANDWIDTH)),
                verdict: Verdict::of(
                    (8.0..=24.0).contains(&last(IO).mean)
                        && (3.5..=10.5).contains(&last(RUN).mean)
                        && (15.0..=45.0).contains(&last(BANDWIDTH).mean),
                    last(IO).mean > 0.0 && last(RUN).mean > 0.0 && last(BANDWIDTH).mean > 0.0,
                ),
                why: "holds if each is within half of the paper's; in part if all are gains".to_owned(),
            },
        ],
    };
    Ok(vec![kinds, contention])
}

/// Fig. 13: GIFT's gain for applications that appear seldom or often, with few or many phases, short or long ones.
fn kinds(outcomes: &[Vec<Outcome>], seeds: &[u64]) -> Finding {
    let mut data =
        Data::new(&["seed", "application", "runs", "phases_per_run", "io_phase_s", "nodes", "io_time_gain_percent"]);
    let mut rows: Vec<[f64; 4]> = Vec::new();
    for (seed, schemes) in seeds.iter().zip(outcomes) {
        for (base, gift) in schemes[0].applications.iter().zip(&schemes[1].applications) {
            if !is_comparable(base, gift) {
                continue;
            }
            let gain = 100.0 * (1.0 - gift.io_s / base.io_s);
            let phases = base.phases as f64 / base.runs as f64;
            data.push([
                (*seed).into(),
                base.application.clone().into(),
                base.runs.into(),
                phases.into(),
                base.io_phase_s.into(),
                base.nodes.into(),
                gain.into(),
            ]);
            rows.push([base.runs as f64, phases, base.io_phase_s, gain]);
        }
    }
    // The mean gain in each quarter of the applications by one characteristic.
    let quarters = |by: usize| -> Vec<f64> {
        rows.sort_by(|a, b| a[by].total_cmp(&b[by]));
        rows.chunks(rows.len().div_ceil(4).max(1))
            .map(|quarter| quarter.iter().map(|row| row[3]).sum::<f64>() / quarter.len() as f64)
            .collect()
    };
    let names = ["appearances", "I/O phases", "time of a phase"];
    let mut quarters = quarters;
    let by: Vec<Vec<f64>> = (0..3).map(&mut quarters).collect();
    let least = by.iter().flatten().copied().fold(f64::MAX, f64::min);
    let line = |(name, values): (&&str, &Vec<f64>)| Line {
        label: format!("by {name}"),
        points: values.iter().enumerate().map(|(at, gain)| (at as f64 + 1.0, gain.max(0.0))).collect(),
        reference: None,
    };
    Finding {
        item: "fig13",
        title: "GIFT's gain for applications of every kind".to_owned(),
        configuration: json!({ "applications": 500, "seeds": seeds }),
        data,
        plots: vec![(
            "",
            Figure::Lines(Plot {
                caption: "reduction of I/O time under GIFT by quarters of the applications".to_owned(),
                x: "quarter, from few to many or from short to long",
                y: "per cent",
                lines: names.iter().zip(&by).map(line).collect(),
            }),
        )],
        claims: vec![Claim {
            claim: "applications of every kind gain: by appearances, number of phases, length of a phase".to_owned(),
            paper: "improvement across the range".to_owned(),
            ours: format!("at least {least:.1} % in every quarter"),
            verdict: Verdict::of(least > 0.0, least > -2.0),
            why: "holds if every quarter gains on average".to_owned(),
        }],
    }
}
