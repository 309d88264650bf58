//! Fig. 7: as many servers as client nodes.

use super::server::{BANDWIDTH, phase, target};
use crate::chart::{Chart, Scale};
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use crate::simulate::simulate;
use isonomia_policy::Draw;
use isonomia_sim::request::{Job, Layout, Op, Scenario};
use isonomia_units::{JobInfo, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

const NUMBERS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const PROCESSES: u32 = 8;
/// The first quarter of 1 GB in blocks of 1 MB: what counts is how files lie, and that is the same in every quarter.
const REQUESTS: u64 = 250;
/// Servers, and the paper's efficiency in per cent.
const PAPER: [(usize, f64); 2] = [(8, 82.0), (128, 68.0)];
/// Points from the paper's efficiency within which it agrees in part.
const NEAR_POINTS: f64 = 10.0;

/// Computes the figure.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (numbers, seeds, requests) =
        if context.quick { (&NUMBERS[..6], 3, REQUESTS / 5) } else { (&NUMBERS[..], 10, REQUESTS) };
    let settings =
        [("even, job-fair", false, "job-fair"), ("hashed, job-fair", true, "job-fair"), ("hashed, fifo", true, "fifo")];
    let cells: Vec<(&str, bool, &str, usize, u64)> = settings
        .into_iter()
        .flat_map(|(name, hashed, policy)| {
            numbers
                .iter()
                .rev()
                .flat_map(move |&servers| (1..=seeds).map(move |seed| (name, hashed, policy, servers, seed)))
        })
        .collect();
    let done = AtomicUsize::new(0);
    let rates: Vec<f64> = cells
        .par_iter()
        .with_max_len(1)
        .map(|&(_, hashed, policy, servers, seed)| {
            let outcome = simulate(&scenario(servers, hashed, policy, requests, seed), context)?;
            context.tell("servers", done.fetch_add(1, Ordering::Relaxed) + 1, cells.len());
            let bytes: u64 = outcome.targets.iter().map(|target| target.bytes).sum();
            Ok(bytes as f64 / (outcome.ended_ns as f64 / 1e9))
        })
        .collect::<Result<_, Stopped>>()?;
    let mut data = Data::new(&["setting", "servers", "seed", "gb_per_s", "efficiency_percent"]);
    let efficiency = |rate: f64, servers: usize| 100.0 * rate / (BANDWIDTH as f64 * servers as f64);
    for (&(name, _, _, servers, seed), &rate) in cells.iter().zip(&rates) {
        data.push([name.into(), servers.into(), seed.into(), (rate / 1e9).into(), efficiency(rate, servers).into()]);
    }
    let of = |setting: &str, number: usize| {
        let those = cells.iter().zip(&rates).filter(|(cell, _)| (cell.0, cell.3) == (setting, number));
        Interval::by(those, |(cell, rate)| efficiency(*rate, cell.3))
    };
    let test = |(servers, paper): (usize, f64)| {
        let test = Test::near_percent(format!("{servers} servers"), of("hashed, fifo", servers), paper);
        test.in_part(paper - NEAR_POINTS, paper + NEAR_POINTS)
    };
    let known = PAPER.into_iter().filter(|(servers, _)| numbers.contains(servers));
    let chart = Chart::lines(
        "Scaling efficiency",
        ("servers", "servers and client nodes"),
        ("efficiency_percent", "of the servers' bandwidth [%]"),
    );
    let chart = PAPER
        .into_iter()
        .fold(chart.by("setting").x_scale(Scale::Log2), |chart, (servers, paper)| chart.paper(Some(servers), paper));
    Ok(vec![Finding {
        table: None,
        item: "fig7",
        title: "scaling efficiency".to_owned(),
        configuration: json!({
            "seeds": (1..=seeds).collect::<Vec<_>>(), "processes_per_node": PROCESSES, "requests": requests,
        }),
        data,
        charts: vec![chart],
        claims: vec![
            Claim::new(
                "efficiency of first-in-first-out",
                "82 % with 8 servers, 68 % with 128",
                known.map(test).collect(),
            )
            .beside(format!(
                "job-fair: 8 servers {} %; files placed evenly: {} %",
                of("hashed, job-fair", 8),
                of("even, job-fair", 8)
            ))
            .why(
                "simulated is the imbalance of placing whole files by hash, counted until the last one is written; the \
                     paper's network is not, and its files lie on all servers or are measured otherwise",
            ),
        ],
    }])
}

fn scenario(servers: usize, is_hashed: bool, policy: &str, requests: u64, seed: u64) -> Scenario {
    let mut random = Pcg64::seed_from_u64(seed);
    let job = |node: usize, random: &mut Pcg64| {
        let target = |process: u32| {
            if is_hashed { random.random_range(0..servers) } else { (node + process as usize) % servers }
        };
        let targets = (0..PROCESSES).map(target).collect();
        Job {
            info: JobInfo { nodes: servers as u32, ..JobInfo::new(&format!("node-{node}"), "user", "group") },
            processes: PROCESSES,
            depth: 1,
            targets,
            layout: Layout::FilePerProcess,
            phases: vec![phase(Op::Write, requests)],
            iterations: Some(1),
            start: Nanos::ZERO,
            stop: Nanos::from_secs(3600),
        }
    };
    let names = (0..servers).map(|server| format!("server-{server}")).collect();
    let targets = (0..servers).map(|server| target(server, policy, Draw::Lottery)).collect();
    let jobs = (0..servers).map(|node| job(node, &mut random)).collect();
    Scenario { seed, slice: Nanos::from_secs(60), ..Scenario::whole(Nanos::from_secs(3600), names, targets, jobs) }
}
