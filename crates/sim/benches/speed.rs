//! Decisions a second in simulation: closed-loop jobs of one process and of many, with virtual time and tokens.
//!
//! Prints a JSON line for each setting: the median, least, and greatest of the repeats.

use isonomia_sim::request::{Scenario, run};
use isonomia_sim::scenario::{self, Scenario::Request};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

const REPEATS: usize = 5;

fn read(policy: &str, draw: &str, jobs: u32, processes: u32) -> Scenario {
    let text = format!(
        "duration = \"4s\"\npolicy = \"{policy}\"\ndraw = \"{draw}\"\n\
         [[target]]\nname = \"t\"\ncount = 4\nbandwidth = \"4GiB/s\"\nper_op = \"1us\"\n\
         [[job]]\nname = \"j\"\ncount = {jobs}\nprocesses = {processes}\nrequest = \"8KiB\"\nthink = \"5us\"\n"
    );
    let scenarios = scenario::parse(Path::new("bench.toml"), &text, None).expect("a scenario");
    match scenarios.points.into_iter().next().expect("one point").scenario {
        Request { scenario, .. } => scenario,
        other => unreachable!("{other:?}"),
    }
}

fn main() {
    for (policy, draw) in [("fifo", "virtual-time"), ("job-fair", "virtual-time"), ("size-fair", "lottery")] {
        for (jobs, processes) in [(2, 8), (16, 8), (200, 4)] {
            let scenario = read(policy, draw, jobs, processes);
            let mut per_s: Vec<f64> = (0..REPEATS)
                .map(|_| {
                    let start = Instant::now();
                    let outcome = run(&scenario, &mut |_| ControlFlow::Continue(()));
                    outcome.decisions as f64 / start.elapsed().as_secs_f64()
                })
                .collect();
            per_s.sort_by(f64::total_cmp);
            println!(
                "{{\"bench\":\"simulated_decisions\",\"policy\":\"{policy}\",\"draw\":\"{draw}\",\"jobs\":{jobs},\
                 \"processes\":{processes},\"per_s_median\":{:.0},\"per_s_min\":{:.0},\"per_s_max\":{:.0}}}",
                per_s[REPEATS / 2],
                per_s[0],
                per_s[REPEATS - 1]
            );
        }
    }
}
