//! Figs. 7 to 10: all schemes on one system, GIFT's regret, and who is worse off.

use super::system::{
    Gain, Named, gift, interval, is_comparable, loss_by_chance, parameters, pofs, pofs_again, pofs_banked, run_all,
    scheme,
};
use crate::chart::{Chart, Scale};
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use isonomia_sim::fluid::Outcome;
use isonomia_sim::fluid::population::{INTERVAL, Population};
use isonomia_units::Nanos;
use serde_json::{Value, json};

const DAY: u64 = 86_400;
/// Positions in [`schemes`].
const AGAIN: usize = 1;
const BANKED: usize = 2;
const BSIP: usize = 3;
const MBW: usize = 4;
const RULES: std::ops::Range<usize> = 5..9;
const GIFT: usize = 9;
/// GIFT's default N (§3.2), and greater ones, which let it throttle more.
const WINDOWS: [u64; 5] = [250_000, 2_500_000, 25_000_000, 250_000_000, 2_500_000_000];
/// The part of all I/O that GIFT throttles at least where what it owes is told, in per cent: less is as good as nothing.
const THROTTLED_MIN_PERCENT: f64 = 0.1;
/// "About 2 %" may be 1.5 or 2.5.
const ABOUT: f64 = 0.5;

/// Every scheme, POFS first.
fn schemes() -> Vec<Named> {
    let plain = |name: &'static str| scheme(name, name, &parameters());
    vec![
        pofs(),
        pofs_again(),
        pofs_banked(),
        plain("bsip"),
        plain("mbw"),
        plain("tsa"),
        plain("esa"),
        plain("tmf"),
        plain("rnd"),
        plain("gift"),
        gift("gift-without-throttling", 0.8, 0.0, WINDOWS[0]),
    ]
}

struct Evaluation {
    population: Population,
    seeds: Vec<u64>,
    schemes: Vec<Named>,
    outcomes: Vec<Vec<Outcome>>,
}

impl Evaluation {
    fn run(applications: u32, days: u64, seeds: u64, context: &Context, what: &str) -> Result<Self, Stopped> {
        let population = Population { duration: Nanos::from_secs(days * DAY), ..Population::gift(applications) };
        let seeds: Vec<u64> = (1..=seeds).collect();
        let schemes = schemes();
        let outcomes = run_all(&population, &seeds, &schemes, context, what)?;
        Ok(Self { population, seeds, schemes, outcomes })
    }

    fn configuration(&self) -> Value {
        json!({
            "applications": self.population.applications,
            "targets": self.population.targets,
            "nodes": self.population.nodes,
            "days": self.population.duration.0 / 1_000_000_000 / DAY,
            "load": self.population.load,
            "arrival_shape": self.population.arrival_shape,
            "seeds": self.seeds,
        })
    }

    /// The gains of a scheme, seed by seed.
    fn gains(&self, at: usize) -> Vec<Gain> {
        let gain = |of: &Vec<Outcome>| Gain::beyond(&of[0], &of[at], loss_by_chance(&of[0], &of[AGAIN]));
        self.outcomes.iter().map(gain).collect()
    }

    fn of(&self, at: usize, measure: fn(&Gain) -> f64) -> Interval {
        interval(&self.gains(at), measure)
    }

    /// By how much one scheme's measure is above another's in the same seed.
    fn above(&self, at: usize, other: usize, measure: fn(&Gain) -> f64) -> Interval {
        Interval::by(self.gains(at).iter().zip(&self.gains(other)), |(a, b)| measure(a) - measure(b))
    }

    /// Every scheme and seed.
    fn data(&self) -> Data {
        let mut data = Data::new(&[
            "seed",
            "scheme",
            "io_time_gain_percent",
            "run_time_gain_percent",
            "effective_bandwidth_gain_percent",
            "throughput_gain_percent",
            "worse_percent",
            "worse_by_percent",
            "worse_beyond_chance_percent",
            "much_better_percent",
            "io_s",
            "run_s",
            "effective_bandwidth",
            "jobs_done",
        ]);
        for (seed, outcomes) in self.seeds.iter().zip(&self.outcomes) {
            for (named, outcome) in self.schemes.iter().zip(outcomes) {
                let gain = Gain::beyond(&outcomes[0], outcome, loss_by_chance(&outcomes[0], &outcomes[AGAIN]));
                data.push([
                    (*seed).into(),
                    named.name.into(),
                    gain.io.into(),
                    gain.run.into(),
                    gain.bandwidth.into(),
                    gain.throughput.into(),
                    gain.worse.into(),
                    gain.worse_by.into(),
                    gain.worse_beyond.into(),
                    gain.much_better.into(),
                    outcome.io_s().into(),
                    outcome.run_s().into(),
                    outcome.effective_bandwidth.into(),
                    outcome.jobs_done.into(),
                ]);
            }
        }
        data
    }

    /// Charts with the paper's values for GIFT: I/O time, run time, bandwidth, throughput.
    fn charts(papers: [Option<f64>; 4]) -> Vec<Chart> {
        let measures = [
            ("", "Reduction of I/O time against POFS", "io_time_gain_percent"),
            ("run-time", "Reduction of run time against POFS", "run_time_gain_percent"),
            ("bandwidth", "Increase of effective bandwidth over POFS", "effective_bandwidth_gain_percent"),
            ("throughput", "Increase of throughput over POFS", "throughput_gain_percent"),
        ];
        let chart = |((name, title, column), paper): ((&'static str, &str, &'static str), Option<f64>)| {
            let chart = Chart::bars(title, ("scheme", ""), (column, "%")).named(name);
            paper.map_or(chart.clone(), |paper| chart.paper(Some("gift"), paper))
        };
        measures.into_iter().zip(papers).map(chart).collect()
    }

    /// A claim that GIFT gains about `expected` per cent.
    fn gain_claim(&self, what: &str, paper: &str, expected: f64, measure: fn(&Gain) -> f64) -> Claim {
        let gain = self.of(GIFT, measure);
        let test = if expected > ABOUT / crate::claims::TOLERANCE {
            Test::near("", gain, expected)
        } else {
            Test::within("", gain, expected, ABOUT)
        };
        Claim::new(format!("GIFT against POFS: {what}"), paper, vec![test.unit(" %")])
            .beside(format!("POFS whose targets may run ahead {} %", self.of(BANKED, measure)))
    }

    fn order_claims(&self) -> Vec<Claim> {
        let name = |at: usize| self.schemes[at].name;
        // MBW is to have the highest effective bandwidth of the paper's schemes.
        let higher = |at: usize| {
            let test = Test::above(format!("over {}", name(at)), self.above(MBW, at, |gain| gain.bandwidth), 0.0);
            test.unit(" points")
        };
        let similar = |at: usize| {
            let difference = self.above(at, BSIP, |gain| gain.io);
            Test::within(name(at), difference, 0.0, crate::claims::TOLERANCE_POINTS).unit(" points")
        };
        vec![
            Claim::new(
                "MBW has the highest effective bandwidth of the paper's schemes",
                "MBW highest",
                [BSIP, GIFT].into_iter().chain(RULES).map(higher).collect(),
            ),
            Claim::new("TSA, ESA, TMF and RND are about as BSIP in I/O time", "similar", RULES.map(similar).collect()),
        ]
    }
}

/// Figs. 7, 8 and 9.
pub fn real(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (days, seeds) = if context.quick { (2, 2) } else { (7, 12) };
    let evaluation = Evaluation::run(250, days, seeds, context, "250 applications")?;
    let mut claims = vec![
        evaluation.gain_claim("I/O time", "10 %", 10.0, |gain| gain.io),
        evaluation.gain_claim("effective bandwidth", "more than 17 %", 17.0, |gain| gain.bandwidth),
        evaluation.gain_claim("throughput", "2 %", 2.0, |gain| gain.throughput),
        Claim::new(
            "GIFT is better than BSIP in I/O time",
            "3.5 points",
            vec![Test::near("", evaluation.above(GIFT, BSIP, |gain| gain.io), 3.5).unit(" points")],
        )
        .why("under min-rate BSIP is POFS, so all of GIFT's gain is over BSIP"),
    ];
    claims.extend(evaluation.order_claims());
    let gains = Finding {
        table: None,
        item: "fig7",
        title: "gains over POFS, 250 applications".to_owned(),
        configuration: evaluation.configuration(),
        data: evaluation.data(),
        charts: Evaluation::charts([Some(10.0), None, Some(17.0), Some(2.0)]),
        claims,
    };
    Ok(vec![gains, regret(&evaluation, context)?, fairness(&evaluation)])
}

/// What GIFT owes of all node-hours, and what it throttles of all I/O, in per cent.
fn owed_and_throttled(outcome: &Outcome) -> (f64, f64) {
    let gift = outcome.gift.clone().unwrap_or_default();
    let owed = gift.paid_node_hours + gift.outstanding_node_hours;
    let percent = |part: f64, whole: f64| 100.0 * part / whole.max(1e-9);
    (percent(owed, outcome.node_hours_done), percent(gift.issued_target_s, outcome.io_target_s))
}

/// Fig. 8: node-hours that GIFT owes, for windows from the paper's on to ones that let it throttle.
fn regret(evaluation: &Evaluation, context: &Context) -> Result<Finding, Stopped> {
    let more: Vec<Named> = WINDOWS[1..].iter().map(|window| gift("gift", 0.8, 0.1, *window)).collect();
    let seeds = &evaluation.seeds[..evaluation.seeds.len().min(8)];
    let swept = run_all(&evaluation.population, seeds, &more, context, "regret by window")?;
    let columns = [
        "window",
        "seed",
        "day",
        "owed_percent",
        "throttled_percent",
        "io_time_gain_percent",
        "outstanding_node_hours_max",
    ];
    let mut data = Data::new(&columns);
    let mut found = Vec::new();
    for (at, window) in WINDOWS.into_iter().enumerate() {
        let mut values = Vec::new();
        for (row, seed) in seeds.iter().enumerate() {
            let base = &evaluation.outcomes[row];
            let outcome = if at == 0 { &base[GIFT] } else { &swept[row][at - 1] };
            let (owed, throttled) = owed_and_throttled(outcome);
            let gain = Gain::over(&base[0], outcome).io;
            for day in outcome.gift.iter().flat_map(|gift| &gift.days) {
                let most = day.outstanding_node_hours_max.into();
                data.push([
                    window.into(),
                    (*seed).into(),
                    day.day.into(),
                    owed.into(),
                    throttled.into(),
                    gain.into(),
                    most,
                ]);
            }
            values.push((owed, throttled, gain));
        }
        found.push((window, values));
    }
    let owed = |values: &[(f64, f64, f64)]| Interval::by(values, |value| value.0);
    let throttled = |values: &[(f64, f64, f64)]| Interval::by(values, |value| value.1);
    let bites = found.iter().filter(|(_, values)| throttled(values).mean >= THROTTLED_MIN_PERCENT);
    let test = |(window, values): &(u64, Vec<(f64, f64, f64)>)| {
        Test::near(format!("N = {window}"), owed(values), 0.12).unit(" %")
    };
    let tests: Vec<Test> = bites.map(test).collect();
    let text = |(window, values): &(u64, Vec<(f64, f64, f64)>)| {
        let gain = Interval::by(values, |value| value.2);
        format!("N = {window}: owes {} %, throttles {} % of all I/O, gains {gain} %", owed(values), throttled(values))
    };
    let all = found.iter().map(text).collect::<Vec<_>>().join("; ");
    let claim = "node-hours given each day for coupons that were not redeemed, of all node-hours, where GIFT throttles";
    let paper = "0.12 % awarded daily (0.06 % after two days)";
    let claim = if tests.is_empty() {
        Claim::not_testable(claim, paper, "with no window does it throttle as much as that")
    } else {
        Claim::new(claim, paper, tests)
    };
    let x = ("window", "window N [coupons]");
    let chart = |name, title: &str, y| Chart::lines(title, x, y).x_scale(Scale::Log10).named(name);
    Ok(Finding {
        table: None,
        item: "fig8",
        title: "outstanding node-hours by window".to_owned(),
        configuration: evaluation.configuration(),
        data,
        charts: vec![
            chart("", "Node-hours given for coupons, of all", ("owed_percent", "%")).paper(None::<f64>, 0.12),
            chart("throttled", "I/O that GIFT throttles, of all", ("throttled_percent", "%")),
            chart("gain", "Reduction of I/O time against POFS", ("io_time_gain_percent", "%")).paper(None::<f64>, 10.0),
        ],
        claims: vec![claim.beside(all).why(format!(
            "told are windows with which it throttles {THROTTLED_MIN_PERCENT} % of all I/O at least: with the paper's N              every application is soon forbidden to be throttled, and owes nothing because nothing happens"
        ))],
    })
}

/// Fig. 9: who is better and who worse off than under POFS.
fn fairness(evaluation: &Evaluation) -> Finding {
    let columns = [
        "seed",
        "scheme",
        "application",
        "io_time_gain_percent",
        "run_time_gain_percent",
        "worse_percent",
        "worse_beyond_chance_percent",
    ];
    let mut data = Data::new(&columns);
    for (seed, outcomes) in evaluation.seeds.iter().zip(&evaluation.outcomes) {
        let loss = loss_by_chance(&outcomes[0], &outcomes[AGAIN]);
        for (named, outcome) in evaluation.schemes.iter().zip(outcomes).skip(1) {
            for (base, other) in outcomes[0].applications.iter().zip(&outcome.applications) {
                if is_comparable(base, other) {
                    let gain = 100.0 * (1.0 - other.io_s / base.io_s);
                    let percent = |is_so: bool| if is_so { 100.0 } else { 0.0 };
                    data.push([
                        (*seed).into(),
                        named.name.into(),
                        base.application.clone().into(),
                        gain.into(),
                        (100.0 * (1.0 - other.run_s / base.run_s)).into(),
                        percent(gain < 0.0).into(),
                        percent(gain < -loss).into(),
                    ]);
                }
            }
        }
    }
    let worse = |at: usize| evaluation.of(at, |gain| gain.worse);
    let name = |at: usize| evaluation.schemes[at].name;
    let beyond: Vec<String> = (1..evaluation.schemes.len())
        .map(|at| format!("{} {}", name(at), evaluation.of(at, |gain| gain.worse_beyond)))
        .collect();
    let loss = Interval::by(&evaluation.outcomes, |of| loss_by_chance(&of[0], &of[AGAIN]));
    let mut others = vec![Test::near_percent(name(MBW), worse(MBW), 76.0)];
    others.extend([BSIP].into_iter().chain(RULES).map(|at| Test::above(name(at), worse(at), 45.0).unit(" %")));
    let x = ("scheme", "");
    Finding {
        table: None,
        item: "fig9",
        title: "applications against POFS, one by one".to_owned(),
        configuration: evaluation.configuration(),
        charts: vec![
            Chart::bars("Applications worse off than under POFS", x, ("worse_percent", "of the applications [%]"))
                .paper(Some("gift"), 32.0)
                .paper(Some("mbw"), 76.0),
            Chart::bars("The same, by more than chance does", x, ("worse_beyond_chance_percent", "of the applications [%]"))
                .line("by chance", 5.0)
                .named("beyond-chance"),
        ],
        data,
        claims: vec![
            Claim::new(
                "part of the applications worse off under GIFT than under POFS",
                "32 %",
                vec![Test::near_percent("", worse(GIFT), 32.0)],
            )
            .beside(format!(
                "by chance alone {} % (POFS against itself with submissions {} s late at most), and one of twenty loses {loss} % or \
                 more; as much as that lose, in %: {}",
                worse(AGAIN),
                INTERVAL.as_secs_f64(),
                beyond.join(", ")
            ))
            .why("any time longer than under POFS counts as worse, as in the paper"),
            Claim::new("part of the applications worse off under other schemes", "above 45 %, MBW 76 %", others)
                .why("BSIP is POFS here, and so nobody is worse off"),
            Claim::new(
                "mean loss of those that are worse off under GIFT",
                "1.2 %",
                vec![Test::near("", evaluation.of(GIFT, |gain| gain.worse_by), 1.2).unit(" %")],
            )
            .beside(format!("by chance alone {} %", evaluation.of(AGAIN, |gain| gain.worse_by))),
            Claim::new(
                "applications that gain more than 20 % of their I/O time under GIFT",
                "a third",
                vec![Test::near_percent("", evaluation.of(GIFT, |gain| gain.much_better), 100.0 / 3.0)],
            ),
        ],
    }
}

/// Fig. 10.
pub fn simulated(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (days, seeds) = if context.quick { (2, 2) } else { (25, 5) };
    let evaluation = Evaluation::run(500, days, seeds, context, "500 applications")?;
    let mut claims = vec![
        evaluation.gain_claim("I/O time", "15 %", 15.0, |gain| gain.io),
        evaluation.gain_claim("effective bandwidth", "25 %", 25.0, |gain| gain.bandwidth),
        evaluation.gain_claim("run time", "more than 4 %", 4.0, |gain| gain.run),
        evaluation.gain_claim("throughput", "about 2 %", 2.0, |gain| gain.throughput),
    ];
    claims.extend(evaluation.order_claims());
    Ok(vec![Finding {
        table: None,
        item: "fig10",
        title: "gains over POFS, 500 applications".to_owned(),
        configuration: evaluation.configuration(),
        data: evaluation.data(),
        charts: Evaluation::charts([Some(15.0), Some(4.0), Some(25.0), Some(2.0)]),
        claims,
    }])
}
