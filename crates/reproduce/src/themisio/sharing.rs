//! Figs. 8 to 12: jobs of the benchmark on one server.

use super::server::{benchmark, deviation, gb_per_s, median, on_one_server};
use crate::claims::{Claim, Verdict};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Figure, Finding, Stopped};
use crate::simulate::simulate;
use isonomia_plot::{Line, Plot};
use isonomia_policy::Draw;
use isonomia_sim::request::{Job, Outcome};
use serde_json::json;

const DRAWS: [Draw; 2] = [Draw::Lottery, Draw::VirtualTime];
/// The second job is there from 15 s for 30 s (§5.3.1); shares are taken from its second second on.
const TOGETHER_S: (u64, u64) = (16, 45);
const END_S: u64 = 60;

/// An experiment: a policy, jobs, and the part that each is due while all are there.
struct Experiment {
    name: &'static str,
    policy: &'static str,
    jobs: Vec<Job>,
    due: Vec<f64>,
}

fn data() -> Data {
    Data::new(&["experiment", "draw", "seed", "time_s", "job", "gb_per_s"])
}

/// Runs an experiment under both draws, and adds its samples; outcomes by draw and seed.
fn run(experiment: &Experiment, seeds: u64, data: &mut Data, context: &Context) -> Result<Vec<Vec<Outcome>>, Stopped> {
    let mut outcomes = Vec::new();
    for draw in DRAWS {
        let mut by_seed = Vec::new();
        for seed in 1..=seeds {
            let scenario = on_one_server(experiment.policy, draw, seed, experiment.jobs.clone(), END_S, TOGETHER_S);
            let outcome = simulate(&scenario, context)?;
            for (at, job) in outcome.jobs.iter().enumerate() {
                for (second, rate) in gb_per_s(&outcome, at, (0, END_S)).into_iter().enumerate() {
                    data.push([
                        experiment.name.into(),
                        draw.to_string().into(),
                        seed.into(),
                        (second as u64 + 1).into(),
                        job.job.clone().into(),
                        rate.into(),
                    ]);
                }
            }
            by_seed.push(outcome);
        }
        outcomes.push(by_seed);
    }
    Ok(outcomes)
}

fn medians(outcome: &Outcome) -> Vec<f64> {
    (0..outcome.jobs.len()).map(|job| median(&gb_per_s(outcome, job, TOGETHER_S))).collect()
}

/// The largest relative error of a job's share over draws and seeds.
fn worst_error(experiment: &Experiment, outcomes: &[Outcome]) -> f64 {
    let errors = outcomes
        .iter()
        .flat_map(|outcome| outcome.jobs.iter().zip(&experiment.due).map(|(job, due)| (job.share / due - 1.0).abs()));
    errors.fold(0.0, f64::max)
}

/// Throughput over time by tokens, first seed.
fn plot(experiment: &Experiment, outcomes: &[Vec<Outcome>]) -> Figure {
    let outcome = &outcomes[0][0];
    let line = |(at, job): (usize, &isonomia_sim::request::JobOutcome)| {
        let rates = gb_per_s(outcome, at, (0, END_S));
        Line {
            label: format!("{} ({} nodes)", job.job, job.nodes),
            points: rates.into_iter().enumerate().map(|(second, rate)| (second as f64 + 1.0, rate)).collect(),
            reference: None,
        }
    };
    Figure::Lines(Plot {
        caption: format!("{}: throughput of each job, statistical tokens", experiment.policy),
        x: "time in seconds",
        y: "GB/s",
        lines: outcome.jobs.iter().enumerate().map(line).collect(),
    })
}

fn share_claim(experiment: &Experiment, outcomes: &[Vec<Outcome>], claim: &str, paper: &str, tolerance: f64) -> Claim {
    let [tokens, virtual_time] = [0, 1].map(|draw| worst_error(experiment, &outcomes[draw]));
    let text = |values: Vec<f64>| values.iter().map(|v| format!("{v:.2}")).collect::<Vec<_>>().join(" : ");
    Claim {
        claim: claim.to_owned(),
        paper: paper.to_owned(),
        ours: format!(
            "{} GB/s by tokens, {} by virtual time; largest error of a share {:.1} and {:.1} %",
            text(medians(&outcomes[0][0])),
            text(medians(&outcomes[1][0])),
            100.0 * tokens,
            100.0 * virtual_time
        ),
        verdict: Verdict::of(tokens.max(virtual_time) <= tolerance, tokens.min(virtual_time) <= tolerance),
        why: format!("holds if every share is within {:.0} % of what is due", 100.0 * tolerance),
    }
}

/// Figs. 8, 9, 10 with 11.
pub fn policies(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let seeds = if context.quick { 1 } else { 5 };
    let resident = |name: &str, user: &str, nodes| benchmark(name, user, "group", nodes, 0, 60);
    let guest = |name: &str, user: &str, nodes| benchmark(name, user, "group", nodes, 15, 45);
    let primitive = [
        Experiment {
            name: "size-fair",
            policy: "size-fair",
            jobs: vec![resident("job1", "a", 4), guest("job2", "b", 1)],
            due: vec![0.8, 0.2],
        },
        Experiment {
            name: "job-fair",
            policy: "job-fair",
            jobs: vec![resident("job1", "a", 4), guest("job2", "b", 1)],
            due: vec![0.5, 0.5],
        },
        Experiment {
            name: "user-fair",
            policy: "user-fair",
            jobs: vec![resident("job1", "a", 2), guest("job2", "a", 2), guest("job3", "b", 1)],
            due: vec![0.25, 0.25, 0.5],
        },
    ];
    let papers = ["17.4 : 4.4 GB/s (3.96:1)", "10.6 : 10.6 GB/s", "10.85 GB/s for both jobs of A, 10.80 for B"];
    let mut fig8 = finding("fig8", "primitive policies", seeds);
    for (experiment, paper) in primitive.iter().zip(papers) {
        let outcomes = run(experiment, seeds, &mut fig8.data, context)?;
        fig8.claims.push(share_claim(experiment, &outcomes, experiment.name, paper, 0.02));
        fig8.plots.push((experiment.name, plot(experiment, &outcomes)));
    }
    let fig9 = composite(
        "fig9",
        "user-then-size-fair",
        &[("user1", "group", 1), ("user1", "group", 2), ("user2", "group", 4), ("user2", "group", 6)],
        vec![0.5 / 3.0, 1.0 / 3.0, 0.2, 0.3],
        ("users equal, 1:2 and 4:6 inside", "10.1 : 9.9 GB/s; 3.4 : 6.7 and 3.9 : 6.0"),
        seeds,
        context,
    )?;
    let fig10 = composite(
        "fig10",
        "group-then-user-then-size-fair",
        &[
            ("user1", "group1", 1),
            ("user1", "group1", 2),
            ("user2", "group2", 2),
            ("user2", "group2", 3),
            ("user2", "group2", 2),
            ("user3", "group2", 2),
            ("user4", "group2", 1),
            ("user4", "group2", 3),
        ],
        vec![
            0.5 / 3.0,
            1.0 / 3.0,
            1.0 / 6.0 * 2.0 / 7.0,
            1.0 / 6.0 * 3.0 / 7.0,
            1.0 / 6.0 * 2.0 / 7.0,
            1.0 / 6.0,
            1.0 / 24.0,
            1.0 / 8.0,
        ],
        ("groups, users inside, sizes inside (2:3:2)", "9.5 : 11.2 GB/s; 3.8 : 3.7 : 3.7; 1.1 : 1.6 : 1.1"),
        seeds,
        context,
    )?;
    Ok(vec![fig8, fig9, fig10])
}

fn finding(item: &'static str, title: &str, seeds: u64) -> Finding {
    Finding {
        item,
        title: title.to_owned(),
        configuration: json!({ "seeds": seeds, "server_gb_per_s": super::server::BANDWIDTH as f64 / 1e9 }),
        data: data(),
        plots: Vec::new(),
        claims: Vec::new(),
    }
}

/// Jobs that are all there from beginning to end.
fn composite(
    item: &'static str,
    policy: &'static str,
    jobs: &[(&str, &str, u32)],
    due: Vec<f64>,
    (claim, paper): (&str, &str),
    seeds: u64,
    context: &Context,
) -> Result<Finding, Stopped> {
    let job = |(at, (user, group, nodes)): (usize, &(&str, &str, u32))| {
        benchmark(&format!("job{}", at + 1), user, group, *nodes, 0, END_S)
    };
    let experiment = Experiment { name: policy, policy, jobs: jobs.iter().enumerate().map(job).collect(), due };
    let mut finding = finding(item, policy, seeds);
    let outcomes = run(&experiment, seeds, &mut finding.data, context)?;
    // Of 21 800 requests a second in 29 s the least job has 4 %: tokens are within 2 % of that in two of three runs.
    finding.claims.push(share_claim(&experiment, &outcomes, claim, paper, 0.05));
    finding.plots.push(("", plot(&experiment, &outcomes)));
    Ok(finding)
}

/// Fig. 12. GIFT has no request-level form here; token buckets have.
pub fn peers(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let seeds = if context.quick { 2 } else { 10 };
    let jobs = || vec![benchmark("job1", "a", "group", 1, 0, 60), benchmark("job2", "b", "group", 1, 15, 45)];
    let rate = super::server::BANDWIDTH / 2;
    let settings = [
        ("job-fair, tokens", "job-fair".to_owned(), Draw::Lottery),
        ("job-fair, virtual time", "job-fair".to_owned(), Draw::VirtualTime),
        ("fifo", "fifo".to_owned(), Draw::VirtualTime),
        // Half of the server for each job, as the paper's user would have to state it.
        ("token buckets", format!("tbf{{job:*={rate}B/s}}"), Draw::VirtualTime),
    ];
    let mut data = Data::new(&["setting", "seed", "peak_gb_per_s", "job2_gb_per_s", "job2_deviation_mb_per_s"]);
    let mut found = Vec::new();
    for (name, policy, draw) in &settings {
        let (mut peaks, mut deviations) = (Vec::new(), Vec::new());
        for seed in 1..=seeds {
            let outcome = simulate(&on_one_server(policy, *draw, seed, jobs(), END_S, TOGETHER_S), context)?;
            let [first, second] = [0, 1].map(|job| gb_per_s(&outcome, job, TOGETHER_S));
            let total: Vec<f64> = first.iter().zip(&second).map(|(a, b)| a + b).collect();
            let (peak, deviation) = (median(&total), 1000.0 * deviation(&second));
            data.push([(*name).into(), seed.into(), peak.into(), median(&second).into(), deviation.into()]);
            peaks.push(peak);
            deviations.push(deviation);
        }
        found.push((*name, Interval::of(&peaks), Interval::of(&deviations)));
    }
    let text = |of: fn(&(&str, Interval, Interval)) -> Interval| {
        found.iter().map(|entry| format!("{} {:.1}", entry.0, of(entry))).collect::<Vec<_>>().join(", ")
    };
    let claims = vec![
        Claim {
            claim: "deviation of job 2's throughput over seconds".to_owned(),
            paper: "504 MB/s of 10.2 GB/s (GIFT 626, TBF 845)".to_owned(),
            ours: format!("in MB/s: {}", text(|entry| entry.2)),
            verdict: Verdict::of(found[0].2.mean <= 504.0 && found[1].2.mean <= found[0].2.mean, true),
            why: "holds if tokens deviate no more than on the paper's machine, and virtual time no more than tokens; \
                  the paper's machine adds noise that a simulation has not"
                .to_owned(),
        },
        Claim {
            claim: "sharing costs no throughput".to_owned(),
            paper: "19.8 GB/s sustained, 13.5 % more than GIFT, 13.7 % more than TBF".to_owned(),
            ours: format!("in GB/s: {}", text(|entry| entry.1)),
            verdict: Verdict::of(false, found[0].1.mean >= 0.99 * found[2].1.mean),
            why: "in part: as much as first-in-first-out, within 1 %. The paper's GIFT and TBF are ports into its server; \
                  what these lose is not simulated, and a bucket that gives its spare tokens away, as Lustre's can, \
                  loses nothing"
                .to_owned(),
        },
    ];
    Ok(vec![Finding {
        item: "fig12",
        title: "two jobs of one node".to_owned(),
        configuration: json!({ "seeds": seeds }),
        data,
        plots: Vec::new(),
        claims,
    }])
}
