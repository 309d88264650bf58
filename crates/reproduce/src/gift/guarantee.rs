//! Beyond the paper: which guarantee coflow scheduling should give, and whether choosing it for each workload pays.

use super::system::{Gain, Named, coflow, interval, pofs, run_all};
use crate::chart::Chart;
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use isonomia_allocation::Order;
use isonomia_sim::fluid::population::Population;
use isonomia_units::Nanos;
use serde_json::json;

const DAY: u64 = 86_400;
const APPLICATIONS: [u32; 2] = [500, 1_000];
const ORDERS: [(&str, Order); 2] = [("attained", Order::Attained), ("bottleneck", Order::Bottleneck)];
const GUARANTEES: [f64; 4] = [0.0, 0.5, 0.8, 1.0];
/// What is taken without looking at the workload.
const FIXED: usize = 2;
/// A guarantee under which more per cent of the applications are worse off than under POFS is not chosen.
const WORSE_MAX: f64 = 1.0;

/// Gains by population, order, guarantee, and seed.
type Gains = Vec<Vec<Vec<Vec<Gain>>>>;

/// The item.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (days, seed_count) = if context.quick { (2, 2) } else { (12, 4) };
    let seeds: Vec<u64> = (1..=seed_count).collect();
    let mut schemes: Vec<Named> = vec![pofs()];
    for (name, order) in ORDERS {
        schemes.extend(GUARANTEES.map(|guarantee| coflow(name, guarantee, order)));
    }
    let mut data = Data::new(&[
        "case",
        "applications",
        "order",
        "guarantee",
        "seed",
        "io_time_gain_percent",
        "worse_percent",
        "worse_by_percent",
    ]);
    let mut gains: Gains = Vec::new();
    for applications in APPLICATIONS {
        let population = Population { duration: Nanos::from_secs(days * DAY), ..Population::gift(applications) };
        let outcomes = run_all(&population, &seeds, &schemes, context, "guarantees")?;
        let of = |order: usize, guarantee: usize| -> Vec<Gain> {
            let at = 1 + order * GUARANTEES.len() + guarantee;
            outcomes.iter().map(|outcomes| Gain::over(&outcomes[0], &outcomes[at])).collect()
        };
        let by_order = (0..ORDERS.len()).map(|order| (0..GUARANTEES.len()).map(|at| of(order, at)).collect::<Vec<_>>());
        gains.push(by_order.collect());
        for (order, by_guarantee) in gains.last().into_iter().flatten().enumerate() {
            for (at, by_seed) in by_guarantee.iter().enumerate() {
                for (seed, gain) in seeds.iter().zip(by_seed) {
                    data.push([
                        format!("{}, {applications} applications", ORDERS[order].0).into(),
                        applications.into(),
                        ORDERS[order].0.into(),
                        GUARANTEES[at].into(),
                        (*seed).into(),
                        gain.io.into(),
                        gain.worse.into(),
                        gain.worse_by.into(),
                    ]);
                }
            }
        }
    }
    Ok(vec![Finding {
        table: None,
        item: "guarantee",
        title: "which guarantee coflow scheduling should give".to_owned(),
        configuration: json!({ "applications": APPLICATIONS, "days": days, "seeds": seeds, "fixed": GUARANTEES[FIXED] }),
        data,
        charts: vec![
            chart("", "Coflow: reduction of I/O time against POFS", "io_time_gain_percent"),
            chart("worse", "Coflow: applications worse off than under POFS", "worse_percent"),
        ],
        claims: claims(&gains),
    }])
}

fn chart(name: &'static str, title: &str, column: &'static str) -> Chart {
    Chart::lines(title, ("guarantee", "guaranteed part of the fair share"), (column, "%")).by("case").named(name)
}

/// By how many points of I/O time the best guarantee of those that leave few worse off is better than the fixed one.
fn worth_of_choosing(gains: &[Vec<Gain>]) -> Interval {
    let of_seed = |seed: usize| {
        let allowed = gains.iter().filter(|by_seed| by_seed[seed].worse <= WORSE_MAX);
        let best = allowed.map(|by_seed| by_seed[seed].io).fold(gains[FIXED][seed].io, f64::max);
        best - gains[FIXED][seed].io
    };
    Interval::of(&(0..gains[FIXED].len()).map(of_seed).collect::<Vec<_>>())
}

fn claims(gains: &Gains) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (order, (name, _)) in ORDERS.iter().enumerate() {
        let cell = |population: usize, at: usize| {
            let gains = &gains[population][order][at];
            let (io, worse) = (interval(gains, |gain| gain.io).mean, interval(gains, |gain| gain.worse).mean);
            format!("{}: {io:.1} ({worse:.1})", GUARANTEES[at])
        };
        let row = |population: usize| {
            let cells: Vec<String> = (0..GUARANTEES.len()).map(|at| cell(population, at)).collect();
            format!("{} applications {}", APPLICATIONS[population], cells.join(", "))
        };
        let falls = |population: usize| {
            let most = &gains[population][order][0];
            let least = &gains[population][order][GUARANTEES.len() - 1];
            let fall = Interval::by(most.iter().zip(least), |(most, least)| most.io - least.io);
            Test::above(format!("0 over 1 with {} applications", APPLICATIONS[population]), fall, 0.0).unit(" points")
        };
        claims.push(
            Claim::ours(format!("{name}: the smaller the guarantee the more is gained"), vec![falls(0), falls(1)])
                .beside(format!("guarantee: gain in % (worse off in %): {}; {}", row(0), row(1))),
        );
        let choosing = |population: usize| {
            let worth = worth_of_choosing(&gains[population][order]);
            Test::above(format!("{} applications", APPLICATIONS[population]), worth, 2.0).unit(" points")
        };
        claims.push(
            Claim::ours(format!("{name}: a guarantee chosen for each workload gains over {}", GUARANTEES[FIXED]),
                vec![choosing(0), choosing(1)],
            )
            .why(format!(
                "the most that choosing could gain: the best guarantee in hindsight that leaves at most {WORSE_MAX} % worse \
                 off"
            )),
        );
    }
    claims
}
