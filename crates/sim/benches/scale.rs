//! A day of 100,000 applications on 10,000 targets in one process: seconds of simulation per simulated hour, and memory.
//!
//! Prints a JSON line for each scheme whose targets decide for themselves. `cargo bench --bench scale -- HOURS TARGETS
//! APPLICATIONS` takes other numbers.

use isonomia_allocation::Progress;
use isonomia_sim::fluid::population::Population;
use isonomia_sim::fluid::{Clock, Decisions, SchemeSpec, Sizes, run};
use isonomia_units::Nanos;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// The most memory that this process had, in MiB.
fn memory_max_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn main() {
    let given: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let number = |at: usize, default| given.get(at).copied().unwrap_or(default);
    let (hours, targets, applications) = (number(0, 24), number(1, 10_000), number(2, 100_000));
    let applications = u32::try_from(applications).expect("at most 100,000 applications");
    let population = Population {
        duration: Nanos::from_secs(hours * 3_600),
        targets: u16::try_from(targets).expect("at most 65,535 targets"),
        ..Population::gift(applications)
    };
    let drawn: Arc<[_]> = population.draw(1).into();
    let finish = |sizes| SchemeSpec::FairFinish { guarantee: 0.2, sizes, clock: Clock::Accounts };
    for (name, scheme) in [
        ("pofs", SchemeSpec::Pofs(Progress::Banked)),
        ("srpt", SchemeSpec::ShortestFirst),
        ("fair-finish", finish(Sizes::Declared)),
        ("fair-finish, history", finish(Sizes::History)),
    ] {
        let scenario = population.scenario(drawn.clone(), scheme, Decisions::Event);
        let start = Instant::now();
        let outcome = run(&scenario, &mut |_| ControlFlow::Continue(())).expect("a scheme that decides");
        let took_s = start.elapsed().as_secs_f64();
        let phases: u64 = outcome.applications.iter().map(|app| app.phases).sum();
        println!(
            "{{\"bench\":\"scale\",\"scheme\":\"{name}\",\"hours\":{hours},\"targets\":{targets},\"applications\":{applications},\
             \"took_s\":{took_s:.2},\"s_per_hour\":{:.3},\"jobs_done\":{},\"phases\":{phases},\"decisions\":{},\
             \"memory_max_mib\":{}}}",
            took_s / hours as f64,
            outcome.jobs_done,
            outcome.decisions,
            memory_max_mib(),
        );
    }
}
