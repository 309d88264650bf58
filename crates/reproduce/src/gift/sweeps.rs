//! Figs. 11 to 14: GIFT's parameters, its coupons over time, and the conditions under which it works.

use super::system::{Gain, Named, gains, gift, interval, is_comparable, pofs, run_all};
use crate::chart::{Chart, Scale};
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use isonomia_sim::fluid::Outcome;
use isonomia_sim::fluid::population::Population;
use isonomia_units::Nanos;
use serde_json::json;

const DAY: u64 = 86_400;
/// GIFT's default N (§3.2).
const WINDOW: u64 = 250_000;
const TAUS: [f64; 4] = [0.1, 0.5, 0.8, 0.95];
const BOUNDS: [f64; 4] = [0.05, 0.1, 0.3, 0.8];
const WINDOWS: [u64; 4] = [25_000, 250_000, 2_500_000, 25_000_000];
const NUMBERS: [u32; 4] = [100, 250, 500, 1000];
const QUARTERS: usize = 4;

/// A gain in per cent, by name.
type Measure = (&'static str, fn(&Gain) -> f64);
const IO: Measure = ("I/O time", |gain| gain.io);
const RUN: Measure = ("run time", |gain| gain.run);
const BANDWIDTH: Measure = ("effective bandwidth", |gain| gain.bandwidth);
const OVER_POFS: &str = "gain over POFS [%]";

/// By how much the gains of one variant are above those of another in the same seeds.
fn above(gains: &[Gain], others: &[Gain], (_, measure): Measure) -> Interval {
    Interval::by(gains.iter().zip(others), |(a, b)| measure(a) - measure(b))
}

fn system(applications: u32, context: &Context) -> (Population, Vec<u64>) {
    let (days, seeds) = if context.quick { (2, 2) } else { (25, 3) };
    let population = Population { duration: Nanos::from_secs(days * DAY), ..Population::gift(applications) };
    (population, (1..=seeds).collect())
}

/// Figs. 11 and 12.
pub fn parameters(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (population, seeds) = system(500, context);
    let mut schemes: Vec<Named> = vec![pofs()];
    schemes.extend(TAUS.map(|tau| gift("tau", tau, 0.1, WINDOW)));
    schemes.extend(BOUNDS.map(|b_thres| gift("b_thres", 0.8, b_thres, WINDOW)));
    schemes.extend(WINDOWS.map(|window| gift("window", 0.8, 0.1, window)));
    let outcomes = run_all(&population, &seeds, &schemes, context, "parameters")?;
    let mut data = Data::new(&["parameter", "value", "seed", "measure", "gain_percent"]);
    let mut at = 1;
    let mut sweep = |name: &'static str, values: &[f64]| -> Vec<(f64, Vec<Gain>)> {
        let mut points = Vec::new();
        for &value in values {
            let gains = gains(&outcomes, at);
            for (seed, gain) in seeds.iter().zip(&gains) {
                for (measure, of) in [IO, BANDWIDTH] {
                    data.push([name.into(), value.into(), (*seed).into(), measure.into(), of(gain).into()]);
                }
            }
            points.push((value, gains));
            at += 1;
        }
        points
    };
    let taus = sweep("tau", &TAUS);
    let bounds = sweep("b_thres", &BOUNDS);
    let windows = sweep("window", &WINDOWS.map(|window| window as f64));
    let chart = |parameter: &'static str, word: &str, unit: &str| {
        let title = format!("Gain over POFS by the {word}");
        let x = format!("{word}{unit}");
        Chart::lines(title, ("value", &x), ("gain_percent", OVER_POFS)).by("measure").only("parameter", [parameter])
    };
    let difference = |measure: Measure| above(&bounds[BOUNDS.len() - 1].1, &bounds[1].1, measure);
    // The window that gains most, and the one that gains least, against the paper's.
    let of_window = |at: usize| above(&windows[at].1, &windows[1].1, IO);
    let flat = |at: usize| {
        let what = format!("N = {} against {}", WINDOWS[at], WINDOWS[1]);
        Test::within(what, of_window(at), 0.0, 1.0).in_part(-3.0, 3.0).unit(" points")
    };
    let points = || taus.iter().chain(&bounds).chain(&windows);
    let worst = points().map(|(_, gains)| interval(gains, IO.1)).min_by(|a, b| a.bounds().0.total_cmp(&b.bounds().0));
    let claims = vec![
        Claim::new(
            "a higher bound of throttling (0.8 against 0.1) gives more effective bandwidth",
            "up to 5 points more",
            vec![Test::near("", difference(BANDWIDTH), 5.0).unit(" points")],
        ),
        Claim::new(
            "… and costs I/O time",
            "2 points less",
            vec![Test::within("", difference(IO), -2.0, 0.5).unit(" points")],
        ),
        Claim::new("the window N does not change the gain in I/O time", "flat", [0, 2, 3].map(flat).into()),
        Claim::new(
            "GIFT gains I/O time whatever the parameters",
            "better than POFS throughout",
            worst.into_iter().map(|least| Test::above("least gain", least, 0.0).unit(" %")).collect(),
        ),
    ];
    let configuration =
        json!({ "applications": 500, "days": population.duration.0 / 1_000_000_000 / DAY, "seeds": seeds });
    let sweeps = Finding {
        table: None,
        item: "fig11",
        title: "GIFT's gain by its parameters".to_owned(),
        configuration: configuration.clone(),
        data,
        charts: vec![
            chart("tau", "redemption rate threshold τ", "").named("tau"),
            chart("b_thres", "bound of throttling", ""),
            chart("window", "window N", " [coupons]").x_scale(Scale::Log10).named("window"),
        ],
        claims,
    };
    Ok(vec![sweeps, regret(&outcomes, &seeds, configuration)])
}

/// Fig. 12: the settings of it among [`TAUS`] and [`BOUNDS`].
fn regret(outcomes: &[Vec<Outcome>], seeds: &[u64], configuration: serde_json::Value) -> Finding {
    // After POFS come the thresholds, then the bounds.
    let settings = [
        ("tau 0.8, bound 0.1", 1 + 2),
        ("tau 0.1, bound 0.1", 1),
        ("tau 0.8, bound 0.8", 1 + TAUS.len() + BOUNDS.len() - 1),
    ];
    let low_at = settings[1].1;
    let mut data =
        Data::new(&["setting", "seed", "day", "issued_target_s", "outstanding_node_hours_max", "paid_node_hours"]);
    for (name, at) in settings {
        for (seed, schemes) in seeds.iter().zip(outcomes) {
            let Some(gift) = &schemes[at].gift else { continue };
            for day in &gift.days {
                data.push([
                    name.into(),
                    (*seed).into(),
                    day.day.into(),
                    day.issued_target_s.into(),
                    day.outstanding_node_hours_max.into(),
                    day.paid_node_hours.into(),
                ]);
            }
        }
    }
    let low =
        |of: &dyn Fn(&Outcome, &Outcome) -> f64| Interval::by(outcomes, |schemes| of(&schemes[0], &schemes[low_at]));
    let most = low(&|_, gift| {
        let days = gift.gift.iter().flat_map(|gift| &gift.days);
        days.map(|day| day.outstanding_node_hours_max).fold(0.0, f64::max)
    });
    let paid = low(&|_, gift| gift.gift.as_ref().map_or(0.0, |gift| gift.paid_node_hours));
    let gained = low(&|base, gift| gift.node_hours_done * (gift.jobs_done as f64 / base.jobs_done as f64 - 1.0));
    let chart = |title: &str, y| Chart::lines(title, ("day", "day"), y).by("setting");
    Finding {
        table: None,
        item: "fig12",
        title: "coupons issued and node-hours owed over time".to_owned(),
        configuration,
        data,
        charts: vec![
            chart("Coupons issued since the beginning", ("issued_target_s", "target-seconds")),
            chart("Node-hours owed at most on each day", ("outstanding_node_hours_max", "node-hours"))
                .paper(None::<f64>, 20.0)
                // The paper's value is hundreds of times as much as what is measured.
                .y_scale(Scale::Log10)
                .named("owed"),
        ],
        claims: vec![
            Claim::new(
                "node-hours outstanding at any time at (0.1, 0.1)",
                "below 20",
                vec![Test::between("most", most, 0.0, 20.0).in_part(0.0, 40.0)],
            ),
            Claim::new("daily awards at (0.1, 0.1) in 24 days", "360 node-hours", vec![Test::near("", paid, 360.0)])
                .why("with the paper's N hardly anybody is throttled, and next to nothing is owed: see Fig. 8"),
            Claim::new(
                "node-hours gained by throughput at (0.1, 0.1)",
                "5800, 2 % of the throughput",
                vec![Test::near("", gained, 5_800.0)],
            )
            .why("how many node-hours 2 % are follows from the size of the machine and the load"),
        ],
    }
}

/// Figs. 13 and 14.
pub fn conditions(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (population, seeds) = system(500, context);
    let schemes = [pofs(), gift("gift", 0.8, 0.1, WINDOW)];
    let outcomes = run_all(&population, &seeds, &schemes, context, "kinds of applications")?;
    let kinds = kinds(&outcomes, &seeds);
    let mut points: Vec<(f64, Vec<Gain>)> = Vec::new();
    let mut data = Data::new(&["applications", "seed", "measure", "gain_percent", "effective_bandwidth_pofs"]);
    for applications in NUMBERS {
        let (population, seeds) = system(applications, context);
        let outcomes = run_all(&population, &seeds, &schemes, context, "numbers of applications")?;
        let gains = gains(&outcomes, 1);
        for ((seed, gain), outcomes) in seeds.iter().zip(&gains).zip(&outcomes) {
            for (measure, of) in [IO, RUN, BANDWIDTH] {
                let base = outcomes[0].effective_bandwidth.into();
                data.push([applications.into(), (*seed).into(), measure.into(), of(gain).into(), base]);
            }
        }
        points.push((f64::from(applications), gains));
    }
    let last = |(_, measure): Measure| interval(&points[NUMBERS.len() - 1].1, measure);
    let rises = |measure: Measure| {
        let more = above(&points[NUMBERS.len() - 1].1, &points[0].1, measure);
        Test::above(format!("{} with 1000 over 100", measure.0), more, 0.0).unit(" points")
    };
    let chart = Chart::lines(
        "Gain over POFS by the number of applications",
        ("applications", "applications"),
        ("gain_percent", OVER_POFS),
    );
    let chart = [(IO, 16.0), (RUN, 7.0), (BANDWIDTH, 30.0)]
        .into_iter()
        .fold(chart.by("measure"), |chart, ((name, _), paper)| chart.paper_of(name, Some(1_000), paper));
    let contention = Finding {
        table: None,
        item: "fig14",
        title: "GIFT's gain by the number of applications".to_owned(),
        configuration: json!({
            "days": population.duration.0 / 1_000_000_000 / DAY, "seeds": seeds, "nodes_per_application": 192.0 / 250.0,
        }),
        data,
        charts: vec![chart],
        claims: vec![
            Claim::new(
                "gains rise from 100 to 1000 applications",
                "I/O time, run time and effective bandwidth rise",
                [IO, RUN, BANDWIDTH].map(rises).into(),
            ),
            Claim::new(
                "gains with 1000 applications",
                "up to 16 / 7 / 30 %",
                vec![
                    Test::near(IO.0, last(IO), 16.0).unit(" %"),
                    Test::near(RUN.0, last(RUN), 7.0).unit(" %"),
                    Test::near(BANDWIDTH.0, last(BANDWIDTH), 30.0).unit(" %"),
                ],
            ),
        ],
    };
    Ok(vec![kinds, contention])
}

/// Fig. 13: GIFT's gain for applications that appear seldom or often, with few or many phases, short or long ones.
fn kinds(outcomes: &[Vec<Outcome>], seeds: &[u64]) -> Finding {
    let names = ["appearances", "I/O phases", "time of a phase"];
    let mut data = Data::new(&["by", "quarter", "seed", "application", "characteristic", "io_time_gain_percent"]);
    // By characteristic and quarter, the mean gain of each seed.
    let mut by: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); QUARTERS]; names.len()];
    for (seed, schemes) in seeds.iter().zip(outcomes) {
        let both = schemes[0].applications.iter().zip(&schemes[1].applications);
        let of =
            |(base, gift): (&isonomia_sim::fluid::ApplicationOutcome, &isonomia_sim::fluid::ApplicationOutcome)| {
                let characteristics = [base.runs as f64, base.phases as f64 / base.runs as f64, base.io_phase_s];
                (base.application.clone(), characteristics, 100.0 * (1.0 - gift.io_s / base.io_s))
            };
        let mut rows: Vec<_> = both.filter(|(base, gift)| is_comparable(base, gift)).map(of).collect();
        for (at, name) in names.iter().enumerate() {
            rows.sort_by(|a, b| a.1[at].total_cmp(&b.1[at]));
            for (quarter, rows) in rows.chunks(rows.len().div_ceil(QUARTERS).max(1)).enumerate() {
                by[at][quarter].push(rows.iter().map(|row| row.2).sum::<f64>() / rows.len() as f64);
                for (application, characteristics, gain) in rows {
                    let characteristic = characteristics[at].into();
                    let number = (quarter + 1).into();
                    data.push([
                        (*name).into(),
                        number,
                        (*seed).into(),
                        application.clone().into(),
                        characteristic,
                        (*gain).into(),
                    ]);
                }
            }
        }
    }
    let test = |(name, quarters): (&&str, &Vec<Vec<f64>>)| {
        let intervals = quarters.iter().map(|gains| Interval::of(gains));
        let least = intervals.min_by(|a, b| a.bounds().0.total_cmp(&b.bounds().0));
        Test::above(format!("least quarter by {name}"), least.unwrap_or(Interval::exact(f64::NAN)), 0.0).unit(" %")
    };
    let x = ("quarter", "quarter, from few to many or from short to long");
    let chart = Chart::bars("Reduction of I/O time under GIFT", x, ("io_time_gain_percent", "%")).by("by");
    Finding {
        table: None,
        item: "fig13",
        title: "GIFT's gain for applications of every kind".to_owned(),
        configuration: json!({ "applications": 500, "seeds": seeds }),
        data,
        charts: vec![chart],
        claims: vec![Claim::new(
            "applications of every kind gain: by appearances, number of phases, length of a phase",
            "improvement across the range",
            names.iter().zip(&by).map(test).collect(),
        )],
    }
}
