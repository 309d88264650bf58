//! Fig. 13: applications that compute and do I/O, beside a background job of one node.
//!
//! The applications' I/O is not published. Each is modelled by its nodes and by the part of its time that it spends
//! in I/O when it is alone, which is swept: equal steps of computing, then one burst of all its processes.

use super::server::{BANDWIDTH, BLOCK, PROCESSES_PER_NODE, benchmark, phase, target};
use crate::claims::{Claim, Verdict};
use crate::data::Data;
use crate::run::{Context, Figure, Finding, Stopped};
use crate::simulate::simulate;
use isonomia_plot::{Line, Plot};
use isonomia_policy::Draw;
use isonomia_sim::request::{Job, Layout, Op, Phase, Scenario};
use isonomia_units::{JobInfo, Nanos};
use serde_json::json;

/// Name, nodes, processes that do I/O on a node, and the paper's slowdowns in per cent.
const APPLICATIONS: [(&str, u32, u32, f64, f64); 4] =
    [("NAMD", 64, 8, 60.6, 0.1), ("WRF", 4, 56, 45.3, 4.6), ("BERT", 4, 4, 3.8, 1.6), ("SPECFEM3D", 16, 56, 3.0, 0.0)];
/// Part of an application's time alone that is I/O.
const PARTS: [f64; 5] = [0.01, 0.05, 0.1, 0.2, 0.5];
const STEPS: u64 = 20;
const REQUESTS: u64 = 20;
/// Rounding of one request in service is allowed on top of the bound.
const TOLERANCE: f64 = 0.2;

/// Computes the figure.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let mut data =
        Data::new(&["application", "nodes", "io_part", "policy", "slowdown_percent", "bound_percent", "paper_percent"]);
    let mut lines = Vec::new();
    let mut claims = Vec::new();
    for (step, (name, nodes, per_node, paper_fifo, paper_fair)) in APPLICATIONS.into_iter().enumerate() {
        context.tell("applications", step, APPLICATIONS.len());
        // A job of n nodes beside one of 1 has n parts of n + 1: I/O takes 1/n longer.
        let bound = 100.0 / f64::from(nodes);
        let mut found = Vec::new();
        for part in PARTS {
            let application = application(name, nodes, per_node, part);
            let alone = elapsed_s(&application, None, context)?;
            let mut slowdown = |policy: &str, paper: f64| -> Result<f64, Stopped> {
                let shared = elapsed_s(&application, Some(policy), context)?;
                let slowdown = 100.0 * (shared / alone - 1.0);
                data.push([
                    name.into(),
                    nodes.into(),
                    part.into(),
                    policy.into(),
                    slowdown.into(),
                    (bound * part).into(),
                    paper.into(),
                ]);
                Ok(slowdown)
            };
            found.push((part, slowdown("fifo", paper_fifo)?, slowdown("size-fair", paper_fair)?));
        }
        let points = |of: fn(&(f64, f64, f64)) -> f64| found.iter().map(|entry| (100.0 * entry.0, of(entry))).collect();
        lines.push(Line { label: format!("{name}, fifo"), points: points(|entry| entry.1), reference: None });
        lines.push(Line { label: format!("{name}, size-fair"), points: points(|entry| entry.2), reference: None });
        let within = found.iter().all(|(part, _, fair)| *fair <= bound * part + TOLERANCE);
        let better = found.iter().all(|(_, fifo, fair)| fair <= fifo);
        let text: Vec<String> =
            found.iter().map(|(part, fifo, fair)| format!("{:.0} %: {fifo:.1} to {fair:.2}", 100.0 * part)).collect();
        claims.push(Claim {
            claim: format!("{name} on {nodes} nodes is slowed down less under size-fair, and within its bound"),
            paper: format!("{paper_fifo} % to {paper_fair} %; bound 1/(1+{nodes})"),
            ours: format!("by part of I/O, in %: {}", text.join(", ")),
            verdict: Verdict::of(within && better, better),
            why: format!(
                "holds if size-fair is never above fifo, and the time of I/O grows by 1/{nodes} at most (the paper's \
                 1/(1+{nodes}) is the loss of throughput), give or take {TOLERANCE} points"
            ),
        });
    }
    Ok(vec![Finding {
        item: "fig13",
        title: "slowdown by a background job of one node".to_owned(),
        configuration: json!({ "steps": STEPS, "requests_per_process_and_step": REQUESTS, "draw": "virtual-time" }),
        data,
        plots: vec![(
            "",
            Figure::Lines(Plot {
                caption: "slowdown beside a background job of one node".to_owned(),
                x: "per cent of the time alone that is I/O",
                y: "slowdown in per cent",
                lines,
            }),
        )],
        claims,
    }])
}

fn application(name: &str, nodes: u32, per_node: u32, part: f64) -> Job {
    let processes = nodes * per_node;
    let burst_s = f64::from(processes) * REQUESTS as f64 * BLOCK.0 as f64 / BANDWIDTH as f64;
    let compute = Nanos((burst_s * (1.0 - part) / part * 1e9) as u64);
    Job {
        info: JobInfo { nodes, ..JobInfo::new(name, "user", "group") },
        processes,
        depth: 1,
        targets: vec![0],
        layout: Layout::Striped,
        phases: vec![Phase { compute, barrier: true, ..phase(Op::Write, REQUESTS) }],
        iterations: Some(STEPS),
        start: Nanos::ZERO,
        stop: Nanos::MAX,
    }
}

/// How long it takes, alone or with the background job under a policy.
fn elapsed_s(application: &Job, policy: Option<&str>, context: &Context) -> Result<f64, Stopped> {
    let mut jobs = vec![application.clone()];
    let alone = application.phases[0].compute.as_secs_f64() * STEPS as f64;
    // Long enough for the slowest: a burst of few processes against many.
    let duration = Nanos::from_secs(10 + (alone * 2.0) as u64 + 20 * u64::from(PROCESSES_PER_NODE));
    if policy.is_some() {
        let mut background = benchmark("background", "other", "group", 1, 0, 1);
        background.stop = duration;
        jobs.push(background);
    }
    let mut scenario = Scenario {
        seed: 1,
        duration,
        slice: Nanos::from_secs(1),
        measure_from: Nanos::ZERO,
        measure_to: duration,
        exchange: None,
        servers: vec!["server-0".to_owned()],
        targets: vec![target(0, policy.unwrap_or("fifo"), Draw::VirtualTime)],
        jobs,
    };
    // The run need not go on when the application has ended: double the time until it has.
    let mut limit = Nanos((alone * 1.1e9) as u64 + 1_000_000_000);
    loop {
        scenario.duration = limit.min(duration);
        scenario.measure_to = scenario.duration;
        let outcome = simulate(&scenario, context)?;
        match outcome.jobs[0].elapsed_ns {
            Some(elapsed) => return Ok(elapsed as f64 / 1e9),
            None if scenario.duration == duration => return Ok(duration.as_secs_f64()),
            None => limit = Nanos(limit.0.saturating_mul(2)),
        }
    }
}
