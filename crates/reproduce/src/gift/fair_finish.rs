//! Beyond the paper: fair finish at GIFT's scale, and where half of all time is I/O.
//!
//! *Worse off.* In a closed loop no two runs compare phase by phase: whoever ends sooner meets others later. So an application
//! is called worse off in two ways: as in the paper, if its mean time in I/O is greater in one run; and *in expectation*, if it
//! is so over several runs of the same submissions, each shifted by up to one decision. The first is in good part chance, which
//! POFS against itself shows. What no rule can take away is computed as well: who would be worse off in one run than in another if
//! all that a scheme did were to make everybody's I/O shorter by one factor.

use super::system::{
    Gain, Named, PHASES_MIN, by_event, gift, interval, is_comparable, late_by_replica, loss_by_chance, parameters,
    pofs, pofs_again, pofs_banked, run_all, scheme,
};
use crate::chart::Chart;
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use crate::table::Table;
use isonomia_allocation::{AdapTbfConfig, Priority, Strategy};
use isonomia_sim::fluid::population::Population;
use isonomia_sim::fluid::{Clock, Decisions, Outcome, Parameters, SchemeSpec, Sizes};
use isonomia_units::Nanos;
use serde_json::json;

const DAY: u64 = 86_400;
/// The rows that are computed with 1000 applications too.
const LARGE: [&str; 5] = ["pofs", "pofs-again", "fair-finish-0", "fair-finish-0.2", "history-0.2"];
/// How many times the population's volumes there are in saturation: 65 % of all time is I/O under POFS, half under fair finish.
pub(super) const SATURATED: f64 = 2.5;

/// Fair finish, deciding at each change.
pub(super) fn finish(name: &'static str, guarantee: f64, sizes: Sizes, clock: Clock) -> Named {
    let scheme = SchemeSpec::FairFinish { guarantee, sizes, clock };
    Named { scheme, decisions: Decisions::Event, ..pofs_named(name) }
}

fn pofs_named(name: &'static str) -> Named {
    Named { name, ..pofs() }
}

/// A scheme of targets that decide for themselves at each change.
fn by_target(name: &'static str, word: &str) -> Named {
    Named { decisions: Decisions::Event, ..scheme(name, word, &parameters()) }
}

/// AdapTBF with the same tokens for everybody.
fn alike(name: &'static str, reclaim: f64) -> Named {
    let adaptbf = AdapTbfConfig { priority: Priority::Weight, reclaim, ..AdapTbfConfig::default() };
    scheme(name, "adaptbf", &Parameters { adaptbf, ..parameters() })
}

/// CALCioM, which is told of each phase that begins or ends.
fn coordinated(name: &'static str, strategy: Strategy) -> Named {
    Named { decisions: Decisions::Event, ..scheme(name, "calciom", &Parameters { strategy, ..parameters() }) }
}

fn schemes() -> Vec<Named> {
    let declared = |name, guarantee| finish(name, guarantee, Sizes::Declared, Clock::Open);
    vec![
        pofs(),
        pofs_again(),
        pofs_banked(),
        by_event(Named { name: "processor-sharing", ..pofs_banked() }),
        declared("fair-finish-0", 0.0),
        declared("fair-finish-0.2", 0.2),
        declared("fair-finish-0.5", 0.5),
        declared("fair-finish-0.8", 0.8),
        finish("history-0.2", 0.2, Sizes::History, Clock::Open),
        Named { misprediction: 3.0, ..declared("wrong-by-3-0.2", 0.2) },
        finish("classes-0.2", 0.2, Sizes::None, Clock::Open),
        by_target("srpt", "srpt"),
        by_target("fcfs", "fcfs"),
    ]
}

/// Schemes of others that see the whole at each decision, with POFS first. They take long, and have fewer seeds.
fn peers() -> Vec<Named> {
    vec![
        pofs(),
        Named { name: "gift", ..gift("gift", 0.8, 0.1, 250_000) },
        scheme("adaptbf", "adaptbf", &parameters()),
        alike("adaptbf-alike", 0.1),
        alike("adaptbf-alike-half", 0.5),
        coordinated("calciom", Strategy::Dynamic),
        coordinated("calciom-serialize", Strategy::Serialize),
        coordinated("calciom-interrupt", Strategy::Interrupt),
    ]
}

/// What a scheme is called in the table.
fn words(name: &str) -> &str {
    match name {
        "pofs-again" => "POFS again, submissions up to 10 s later",
        "pofs-banked" => "targets that may run ahead",
        "processor-sharing" => "… deciding at each change (processor sharing)",
        "fair-finish-0" => "fair finish, declared, guarantee 0",
        "fair-finish-0.2" => "… 0.2",
        "fair-finish-0.5" => "… 0.5",
        "fair-finish-0.8" => "… 0.8",
        "history-0.2" => "history, 0.2",
        "wrong-by-3-0.2" => "declared wrongly by up to 3, 0.2",
        "classes-0.2" => "classes by history, 0.2",
        "srpt" => "shortest remaining first at each target",
        "fcfs" => "first come, first served",
        "adaptbf" => "AdapTBF, by nodes",
        "adaptbf-alike" => "… all alike",
        "adaptbf-alike-half" => "… all alike, debts paid back faster",
        "calciom" => "CALCioM, the dynamic choice",
        "calciom-serialize" => "… always serialized",
        "calciom-interrupt" => "… always interrupted",
        "gift" => "GIFT",
        name => name,
    }
}

/// The schemes at one scale, with what each gains over POFS seed by seed.
struct Scale {
    applications: u32,
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    gains: Vec<Gain>,
    outcomes: Vec<Outcome>,
}

impl Scale {
    fn row(&self, name: &str) -> &Row {
        self.rows.iter().find(|row| row.name == name).expect("a scheme of this study")
    }

    fn of(&self, name: &str, measure: fn(&Gain) -> f64) -> Interval {
        interval(&self.row(name).gains, measure)
    }
}

impl Row {
    /// Phases that ended after their end in the fair clock, and all.
    fn late(&self) -> (u64, u64) {
        let sum = |of: fn(&isonomia_sim::fluid::ApplicationOutcome) -> u64| {
            self.outcomes.iter().flat_map(|outcome| &outcome.applications).map(of).sum()
        };
        (sum(|app| app.late_phases), sum(|app| app.judged_phases))
    }
}

fn scale(applications: u32, days: u64, seeds: u64, peer_seeds: u64, context: &Context) -> Result<Scale, Stopped> {
    let population = Population { duration: Nanos::from_secs(days * DAY), ..Population::gift(applications) };
    let is_wanted = |scheme: &Named| applications == 500 || LARGE.contains(&scheme.name);
    let mut rows = Vec::new();
    // What chance takes of an application, seed by seed.
    let mut losses: Vec<f64> = Vec::new();
    let mut add = |schemes: Vec<Named>, seeds: u64, context: &Context| {
        let seeds: Vec<u64> = (1..=seeds).collect();
        let outcomes = run_all(&population, &seeds, &schemes, context, "fair finish")?;
        // POFS, against which everybody is measured, is told of once; beside it is what it is with other chances.
        let is_known = !rows.is_empty();
        if !is_known {
            losses = outcomes.iter().map(|outcomes| loss_by_chance(&outcomes[0], &outcomes[1])).collect();
        }
        for (at, scheme) in schemes.iter().enumerate().skip(usize::from(is_known)) {
            let of = |by_scheme: &Vec<Outcome>| by_scheme[at].clone();
            let gain = |(outcomes, loss): (&Vec<Outcome>, &f64)| Gain::beyond(&outcomes[0], &outcomes[at], *loss);
            let gains = outcomes.iter().zip(&losses).map(gain).collect();
            rows.push(Row { name: scheme.name, gains, outcomes: outcomes.iter().map(of).collect() });
        }
        Ok(())
    };
    add(schemes().into_iter().filter(is_wanted).collect(), seeds, context)?;
    if peer_seeds > 0 {
        add(peers(), peer_seeds, context)?;
    }
    Ok(Scale { applications, rows })
}

/// The item of GIFT's scale.
pub fn at_scale(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (days, seeds, peer_seeds) = if context.quick { (2, 3, 2) } else { (25, 12, 5) };
    let half = scale(500, days, seeds, peer_seeds, context)?;
    let whole = scale(1_000, days, seeds.min(5), 0, context)?;
    let mut data = Data::new(&[
        "applications",
        "scheme",
        "seed",
        "io_time_gain_percent",
        "run_time_gain_percent",
        "effective_bandwidth_gain_percent",
        "throughput_gain_percent",
        "worse_percent",
        "worse_of_all_percent",
        "worse_beyond_chance_percent",
        "late_phases",
        "judged_phases",
        "io_over_fair",
    ]);
    let mut table = Table::new(&[
        "scheme",
        "seeds",
        "I/O time",
        "run time",
        "effective bandwidth",
        "worse",
        "of all",
        "beyond chance",
        "late",
    ]);
    for scale in [&half, &whole] {
        for row in &scale.rows {
            for (seed, (gain, outcome)) in row.gains.iter().zip(&row.outcomes).enumerate() {
                let sum = |of: fn(&isonomia_sim::fluid::ApplicationOutcome) -> u64| {
                    outcome.applications.iter().map(of).sum::<u64>()
                };
                data.push([
                    scale.applications.into(),
                    row.name.into(),
                    (seed as u64 + 1).into(),
                    gain.io.into(),
                    gain.run.into(),
                    gain.bandwidth.into(),
                    gain.throughput.into(),
                    gain.worse.into(),
                    gain.worse_of_all.into(),
                    gain.worse_beyond.into(),
                    sum(|app| app.late_phases).into(),
                    sum(|app| app.judged_phases).into(),
                    outcome.io_over_fair().into(),
                ]);
            }
            if row.name == "pofs" {
                continue;
            }
            let of = |measure: fn(&Gain) -> f64| interval(&row.gains, measure);
            let (late, judged) = row.late();
            let name = if scale.applications == 500 { String::new() } else { ", 1000 applications".to_owned() };
            table.push([
                format!("{}{name}", words(row.name)),
                row.gains.len().to_string(),
                format!("{:.1} %", of(|gain| -gain.io)),
                format!("{:.1} %", of(|gain| -gain.run)),
                format!("{:+.1} %", of(|gain| gain.bandwidth)),
                format!("{:.1} %", of(|gain| gain.worse)),
                format!("{:.1} %", of(|gain| gain.worse_of_all)),
                format!("{:.1} %", of(|gain| gain.worse_beyond)),
                if late == 0 {
                    format!("0 of {judged}")
                } else {
                    format!("{:.1} %", 100.0 * late as f64 / judged as f64)
                },
            ]);
        }
    }
    let chart = |name, title: &str, column: &'static str| {
        Chart::bars(title, ("scheme", ""), (column, "%")).by("applications").named(name)
    };
    Ok(vec![Finding {
        item: "fair-finish",
        title: "fair finish at GIFT's scale".to_owned(),
        configuration: json!({
            "applications": [500, 1_000], "days": days, "seeds": seeds, "seeds_of_peers": peer_seeds, "targets": 64,
        }),
        data,
        table: Some(table),
        charts: vec![
            chart("", "Reduction of I/O time against POFS", "io_time_gain_percent"),
            chart("worse", "Applications worse off than under POFS", "worse_percent"),
        ],
        claims: scale_claims(&half, &whole),
    }])
}

fn scale_claims(half: &Scale, whole: &Scale) -> Vec<Claim> {
    let scales = [half, whole];
    let gains = |name: &str, bound: f64| {
        let test = |scale: &&Scale| {
            Test::above(format!("{} applications", scale.applications), scale.of(name, |gain| gain.io), bound)
                .unit(" %")
        };
        scales.iter().map(test).collect::<Vec<_>>()
    };
    let worse = |measure: fn(&Gain) -> f64| {
        let test = |scale: &&Scale| {
            let what = format!("{} applications", scale.applications);
            Test::below(what, scale.of("history-0.2", measure), 1.0).unit(" %")
        };
        scales.iter().map(test).collect::<Vec<_>>()
    };
    let never_late = |name: &str| {
        let (late, judged) = scales.iter().fold((0, 0), |(late, judged), scale| {
            let (more_late, more_judged) = scale.row(name).late();
            (late + more_late, judged + more_judged)
        });
        [
            Test::between(format!("late, {name}"), Interval::exact(late as f64), 0.0, 0.0),
            Test::above(format!("phases, {name}"), Interval::exact(judged as f64), 500_000.0),
        ]
    };
    let over = |name: &str, times: f64| {
        let gains = &half.row("gift").gains;
        let above = Interval::by(gains.iter().zip(&half.row(name).gains), |(gift, own)| own.io - times * gift.io);
        Test::above(format!("over {times} times GIFT's gain"), above, 0.0).unit(" points")
    };
    vec![
        Claim::ours("fair finish, sizes by history: at least 35 % less I/O time than POFS", gains("history-0.2", 35.0))
            .beside(format!("GIFT {} %", half.of("gift", |gain| gain.io))),
        Claim::ours(
            format!("… with at most 1 % worse off of the applications with {PHASES_MIN} I/O phases or more"),
            worse(|gain| gain.worse),
        )
        .beside(format!("POFS against itself: {} %", half.of("pofs-again", |gain| gain.worse))),
        Claim::ours("… of all applications that did any I/O", worse(|gain| gain.worse_of_all))
            .why("an application with one or two phases is worse off if it met others than before"),
        Claim::ours("… by more than nineteen of twenty lose by chance", worse(|gain| gain.worse_beyond)),
        Claim::ours("fair finish, sizes declared: at least 45 % less I/O time than POFS", gains("fair-finish-0", 45.0))
            .beside(format!(
                "with 500 applications and guarantees 0.2, 0.5, 0.8: {}, {}, {} %",
                half.of("fair-finish-0.2", |gain| gain.io),
                half.of("fair-finish-0.5", |gain| gain.io),
                half.of("fair-finish-0.8", |gain| gain.io)
            )),
        Claim::ours(
            "sizes declared: no phase ends after its end in the fair clock",
            ["fair-finish-0", "fair-finish-0.2"].into_iter().flat_map(never_late).collect(),
        ),
        Claim::ours("sizes by history: at least three times what GIFT gains", vec![over("history-0.2", 3.0)]),
    ]
}

/// Schemes in saturation, with POFS first.
fn saturated_schemes() -> Vec<Named> {
    vec![
        pofs(),
        by_event(Named { name: "processor-sharing", ..pofs_banked() }),
        finish("fair-finish-0", 0.0, Sizes::Declared, Clock::Open),
        finish("fair-finish-0.2", 0.2, Sizes::Declared, Clock::Open),
        finish("fair-finish-0.5", 0.5, Sizes::Declared, Clock::Open),
        finish("accounts-0.2", 0.2, Sizes::Declared, Clock::Accounts),
        finish("history-accounts-0.2", 0.2, Sizes::History, Clock::Accounts),
        finish("closed-0.2", 0.2, Sizes::Declared, Clock::Closed),
        finish("replayed-0.2", 0.2, Sizes::Declared, Clock::Replayed),
    ]
}

/// GIFT's population with so much I/O that half of all time is that.
pub(super) fn saturated(days: u64) -> Population {
    Population { duration: Nanos::from_secs(days * DAY), io_scale: SATURATED, ..Population::gift(500) }
}

/// The mean time in I/O of each application over replicas, where all can be compared with those of the base.
pub(super) fn means_of(base: &[&Outcome], other: &[&Outcome]) -> Vec<(f64, f64)> {
    let mean = |outcomes: &[&Outcome], at: usize| {
        outcomes.iter().map(|outcome| outcome.applications[at].io_s).sum::<f64>() / outcomes.len() as f64
    };
    let is_counted = |at: &usize| {
        let pairs = base.iter().flat_map(|base| other.iter().map(move |other| (base, other)));
        pairs.into_iter().all(|(base, other)| is_comparable(&base.applications[*at], &other.applications[*at]))
    };
    let all = base.first().map_or(0, |outcome| outcome.applications.len());
    (0..all).filter(is_counted).map(|at| (mean(base, at), mean(other, at))).collect()
}

fn percent_worse(means: &[(f64, f64)]) -> f64 {
    100.0 * means.iter().filter(|(base, other)| other > base).count() as f64 / means.len().max(1) as f64
}

/// Of 100 applications, how many would be worse off in one run than in another of the same scheme, if in the other everybody's I/O
/// took less by `gain`, a part of it: `runs` are that scheme's. No rule leaves fewer that gains as much for everybody alike and under
/// which chance does what it does here.
pub(super) fn worse_by_chance(runs: &[&Outcome], gain: f64) -> f64 {
    let next = |at: usize| runs[(at + 1) % runs.len()];
    let pairs = (0..runs.len()).flat_map(|at| means_of(&[runs[at]], &[next(at)]));
    percent_worse(&pairs.map(|(one, other)| (one, other * (1.0 - gain))).collect::<Vec<_>>())
}

/// By how much less of it the I/O of each application takes, on average.
pub(super) fn mean_gain(means: &[(f64, f64)]) -> f64 {
    means.iter().map(|(base, other)| 1.0 - other / base).sum::<f64>() / means.len().max(1) as f64
}

/// The item of saturation.
pub fn saturation(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (days, seeds, replicas) = if context.quick { (4, 3, 2) } else { (25, 40, 4) };
    let population = saturated(days);
    let seeds: Vec<u64> = (1..=seeds).collect();
    let schemes = saturated_schemes();
    // Every scheme in every replica: the first is as submitted, the others are later by up to a decision.
    let all: Vec<Named> =
        schemes.iter().flat_map(|scheme| (0..replicas).map(|replica| late_by_replica(*scheme, replica))).collect();
    let outcomes = run_all(&population, &seeds, &all, context, "saturation")?;
    let of = |seed: usize, scheme: usize| -> Vec<&Outcome> {
        (0..replicas).map(|replica| &outcomes[seed][scheme * replicas + replica]).collect()
    };
    let mut data = Data::new(&[
        "scheme",
        "seed",
        "io_time_gain_percent",
        "worse_percent",
        "worse_in_expectation_percent",
        "worse_than_processor_sharing_percent",
        "worse_than_processor_sharing_by_chance_percent",
        "worse_than_processor_sharing_in_expectation_percent",
        "io_part_of_time_percent",
        "late_percent",
    ]);
    let mut table = Table::new(&[
        "scheme",
        "I/O time",
        "worse in one run",
        "in expectation",
        "than processor sharing, in one run",
        "by chance alone",
        "in expectation",
        "time in I/O",
        "late",
    ]);
    let at = |name: &str| schemes.iter().position(|scheme| scheme.name == name).expect("a scheme of this study");
    let sharing = at("processor-sharing");
    let mut claims_of = Vec::new();
    for (row, scheme) in schemes.iter().enumerate() {
        let [mut io, mut once, mut expected, mut part, mut late] = [const { Vec::new() }; 5];
        let [mut shared_once, mut shared_chance, mut shared_expected] = [const { Vec::new() }; 3];
        for (seed, number) in seeds.iter().enumerate() {
            let (base, shared, other) = (of(seed, 0), of(seed, sharing), of(seed, row));
            // POFS against itself: one replica against the next, and half of them against the other half.
            let is_base = row == 0;
            let pairs = (0..replicas).map(|replica| {
                let against = if is_base { (replica + 1) % replicas } else { replica };
                Gain::over(base[against], other[replica])
            });
            let gains: Vec<Gain> = pairs.collect();
            let mean = |of: fn(&Gain) -> f64| gains.iter().map(of).sum::<f64>() / gains.len() as f64;
            let means = if is_base {
                let (a, b) = base.split_at(replicas / 2);
                means_of(a, b)
            } else {
                means_of(&base, &other)
            };
            io.push(mean(|gain| gain.io));
            once.push(mean(|gain| gain.worse));
            expected.push(percent_worse(&means));
            let beside = (0..replicas).map(|replica| Gain::over(shared[replica], other[replica]).worse);
            shared_once.push(beside.sum::<f64>() / replicas as f64);
            let means = means_of(&shared, &other);
            shared_chance.push(worse_by_chance(&shared, mean_gain(&means)));
            shared_expected.push(percent_worse(&means));
            part.push(100.0 * other[0].io_s() / other[0].run_s());
            late.push(100.0 * other[0].late());
            let last = |values: &[f64]| values[values.len() - 1];
            data.push([
                scheme.name.into(),
                (*number).into(),
                last(&io).into(),
                last(&once).into(),
                last(&expected).into(),
                last(&shared_once).into(),
                last(&shared_chance).into(),
                last(&shared_expected).into(),
                last(&part).into(),
                last(&late).into(),
            ]);
        }
        let [io, once, expected, part, late] = [&io, &once, &expected, &part, &late].map(|values| Interval::of(values));
        let beside_sharing = [&shared_once, &shared_chance, &shared_expected].map(|values| Interval::of(values));
        let name = match scheme.name {
            "pofs" => "POFS against itself",
            "accounts-0.2" => "… 0.2, with accounts",
            "history-accounts-0.2" => "history, 0.2, with accounts",
            "closed-0.2" => "declared, 0.2, clock of the closed system",
            "replayed-0.2" => "declared, 0.2, starts under processor sharing replayed",
            "processor-sharing" => "processor sharing at each target",
            name => words(name),
        };
        // Nothing is compared with itself, and POFS is no gain.
        let beside = |worse: Interval| if row <= sharing { "—".to_owned() } else { format!("{worse:.1} %") };
        table.push([
            name.to_owned(),
            format!("{:.1} %", Interval { mean: -io.mean, ..io }),
            format!("{once:.1} %"),
            format!("{expected:.2} %"),
            beside(beside_sharing[0]),
            beside(beside_sharing[1]),
            beside(beside_sharing[2]),
            format!("{:.0} %", part.mean),
            format!("{:.1} %", late.mean),
        ]);
        claims_of.push((io, once, expected, part, beside_sharing));
    }
    let claim = |name: &str| {
        let (io, once, expected, part, _) = claims_of[at(name)];
        Claim::ours(
            format!(
                "half of all time in I/O, {name}: at least 40 % less I/O time, at most 1 % worse off in expectation"
            ),
            vec![
                Test::above("I/O time", io, 40.0).unit(" %"),
                Test::below("worse in expectation", expected, 1.0).unit(" %"),
                Test::above("time in I/O", part, 50.0).unit(" %"),
            ],
        )
        .beside(format!("worse in a single run {once} %; POFS against itself {} %", claims_of[0].1))
    };
    let claim_beside_sharing = |name: &str| {
        let (.., [once, chance, expected]) = claims_of[at(name)];
        Claim::ours(
            format!(
                "half of all time in I/O, {name}: at most 1 % worse off than under processor sharing, in expectation"
            ),
            vec![Test::below("", expected, 1.0).unit(" %")],
        )
        .beside(format!(
            "in a single run {once} %, and {chance} % by chance alone if everybody gained as much as the mean"
        ))
    };
    Ok(vec![Finding {
        item: "saturation",
        title: "fair finish where half of all time is I/O".to_owned(),
        configuration: json!({
            "applications": 500, "days": days, "seeds": seeds, "replicas": replicas, "io_scale": SATURATED, "targets": 64,
        }),
        data,
        table: Some(table),
        charts: vec![
            Chart::bars(
                "Reduction of I/O time against POFS, half of all time in I/O",
                ("scheme", ""),
                ("io_time_gain_percent", "%"),
            ),
            Chart::bars("Applications worse off in expectation", ("scheme", ""), ("worse_in_expectation_percent", "%"))
                .only("scheme", schemes[1..].iter().map(|scheme| scheme.name))
                .named("worse"),
        ],
        claims: [
            "fair-finish-0",
            "fair-finish-0.2",
            "accounts-0.2",
            "history-accounts-0.2",
            "closed-0.2",
            "replayed-0.2",
        ]
        .into_iter()
        .flat_map(|name| [claim(name), claim_beside_sharing(name)])
        .collect(),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_sim::fluid::ApplicationOutcome;

    #[test]
    fn chance_alone_makes_fewer_worse_the_more_everybody_gains() {
        let run = |io: [f64; 2]| Outcome {
            applications: io
                .map(|io_s| ApplicationOutcome { runs: 3, phases: PHASES_MIN, io_s, ..ApplicationOutcome::default() })
                .into(),
            ..Outcome::default()
        };
        let runs = [run([100.0, 100.0]), run([110.0, 130.0])];
        let runs: Vec<&Outcome> = runs.iter().collect();
        // Of each pair one is worse, in one of the two directions.
        assert_eq!(worse_by_chance(&runs, 0.0), 50.0);
        assert_eq!(worse_by_chance(&runs, 0.1), 25.0);
        assert_eq!(worse_by_chance(&runs, 0.25), 0.0);
        assert!((mean_gain(&[(100.0, 50.0), (100.0, 110.0)]) - 0.2).abs() < 1e-9);
    }
}
