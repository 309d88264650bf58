//! Fig. 14: three jobs whose files lie apart on two servers, which exchange their job tables every λ.

use super::server::{benchmark, deviation, target};
use crate::chart::Chart;
use crate::claims::{Claim, TOLERANCE, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use crate::simulate::simulate;
use isonomia_policy::Draw;
use isonomia_policy::exchange::Rule;
use isonomia_sim::request::{Outcome, Scenario};
use isonomia_units::Nanos;
use serde_json::json;

const LAMBDAS_MS: [u64; 4] = [10, 50, 200, 500];
const NODES: [u32; 3] = [16, 8, 8];
const DUE: [f64; 3] = [0.5, 0.25, 0.25];
const INTERVALS: u64 = 20;
/// Shares this near to what is due are taken for fair: four standard deviations of tokens in 10 ms are more.
const NEAR: f64 = 0.08;

/// Interval of the paper by which shares are fair with the shortest exchange, and with the others.
const PAPER_FAIR_AT: (f64, f64) = (5.0, 2.0);

/// Computes the figure.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let seeds = if context.quick { 3 } else { 20 };
    let mut data = Data::new(&["lambda_ms", "seed", "interval", "job1_percent", "job2_percent", "job3_percent"]);
    let (mut firsts, mut deviations) = (Vec::new(), Vec::new());
    for lambda_ms in LAMBDAS_MS {
        let (mut first, mut spread) = (Vec::new(), Vec::new());
        for seed in 1..=seeds {
            let outcome = simulate(&scenario(lambda_ms, seed), context)?;
            let shares: Vec<[f64; 3]> = (0..INTERVALS as usize).map(|at| shares(&outcome, at)).collect();
            for (at, shares) in shares.iter().enumerate() {
                let [a, b, c] = shares.map(|share| (100.0 * share).into());
                data.push([lambda_ms.into(), seed.into(), (at as u64 + 1).into(), a, b, c]);
            }
            let fair = shares.iter().position(|shares| shares.iter().zip(DUE).all(|(a, b)| (a - b).abs() <= NEAR));
            // One that never is counts as fair after the end.
            first.push(fair.map_or(INTERVALS as f64 + 1.0, |at| at as f64 + 1.0));
            let after: Vec<f64> = shares[2..].iter().map(|shares| shares[0]).collect();
            spread.push(100.0 * deviation(&after));
        }
        firsts.push(Interval::of(&first));
        deviations.push(spread);
    }
    let fair_at = |at: usize, paper: f64| {
        Test::within(format!("{} ms", LAMBDAS_MS[at]), firsts[at], paper, tolerance(paper)).in_part(1.0, paper + 1.0)
    };
    let ratio = |at: usize| {
        let pairs = deviations[at].iter().zip(&deviations[at + 1]);
        Test::above(
            format!("{} over {} ms", LAMBDAS_MS[at], LAMBDAS_MS[at + 1]),
            Interval::by(pairs, |(a, b)| a / b),
            1.0,
        )
    };
    let points: Vec<String> = LAMBDAS_MS
        .iter()
        .zip(&deviations)
        .map(|(lambda_ms, spread)| format!("{lambda_ms} ms: {}", Interval::of(spread)))
        .collect();
    let y = ("job1_percent", "of both servers' service [%]");
    let chart = Chart::lines("Share of job 1 (16 of 32 nodes), statistical tokens", ("interval", "interval"), y);
    Ok(vec![Finding {
        table: None,
        item: "fig14",
        title: "global fairness with a delay".to_owned(),
        configuration: json!({
            "nodes": NODES, "seeds": (1..=seeds).collect::<Vec<_>>(), "intervals": INTERVALS, "draw": "lottery",
        }),
        data,
        charts: vec![chart.by("lambda_ms").paper(None::<f64>, 100.0 * DUE[0])],
        claims: vec![
            Claim::new(
                "global fairness by the second interval with 50 ms and more",
                "second interval at 50, 200, 500 ms",
                vec![fair_at(1, PAPER_FAIR_AT.1), fair_at(2, PAPER_FAIR_AT.1), fair_at(3, PAPER_FAIR_AT.1)],
            )
            .why(format!("fair is when all shares are within {:.0} points of what is due", 100.0 * NEAR)),
            Claim::new(
                "with 10 ms it takes more",
                "fifth interval at 10 ms",
                vec![fair_at(0, PAPER_FAIR_AT.0).in_part(2.5, 10.0)],
            )
            .why("an exchange costs nothing here, so that 10 ms are no harder than 500"),
            Claim::new("a shorter interval has a higher variance", "higher", vec![ratio(0), ratio(1), ratio(2)])
                .beside(format!("deviation of job 1's share in points: {}", points.join(", "))),
        ],
    }])
}

/// Half an interval, unless that is more than what claims are given of their values.
fn tolerance(paper: f64) -> f64 {
    f64::min(0.5, TOLERANCE * paper)
}

fn shares(outcome: &Outcome, interval: usize) -> [f64; 3] {
    let service = |job: usize| outcome.jobs[job].slice_service_ns.get(interval).copied().unwrap_or(0) as f64;
    let total: f64 = (0..3).map(service).sum();
    [0, 1, 2].map(|job| if total > 0.0 { service(job) / total } else { 0.0 })
}

fn scenario(lambda_ms: u64, seed: u64) -> Scenario {
    let lambda = Nanos::from_millis(lambda_ms);
    let mut jobs: Vec<_> = NODES
        .iter()
        .enumerate()
        .map(|(at, nodes)| benchmark(&format!("job{}", at + 1), "user", "group", *nodes, 0, 60))
        .collect();
    jobs[0].targets = vec![0, 1];
    jobs[2].targets = vec![1];
    let servers = vec!["server-0".to_owned(), "server-1".to_owned()];
    let targets = (0..2).map(|server| target(server, "size-fair", Draw::Lottery)).collect();
    Scenario {
        seed,
        slice: lambda,
        exchange: Some(lambda),
        exchange_rule: Rule::Presence,
        ..Scenario::whole(Nanos(lambda.0 * INTERVALS), servers, targets, jobs)
    }
}
