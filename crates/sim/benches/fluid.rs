//! Time of GIFT's simulated evaluation under each scheme: 500 applications, 64 targets, 25 days, on one core.
//!
//! Prints a JSON line for each scheme with its time and the figures of the run. `cargo bench --bench fluid -- DAYS`
//! takes another number of days.

use isonomia_allocation::{AdapTbfConfig, GiftConfig, Order, Progress, Strategy};
use isonomia_sim::fluid::population::Population;
use isonomia_sim::fluid::{Decisions, Parameters, SCHEMES, SchemeSpec, run};
use isonomia_units::Nanos;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

const APPLICATIONS: u32 = 500;

fn main() {
    let days: u64 = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(25);
    let population = Population { duration: Nanos::from_secs(days * 86_400), ..Population::gift(APPLICATIONS) };
    let applications: Arc<[_]> = population.draw(1).into();
    for name in SCHEMES {
        let parameters = Parameters {
            progress: Progress::MinRate,
            gift: GiftConfig::default(),
            guarantee: 0.8,
            adaptbf: AdapTbfConfig::default(),
            strategy: Strategy::default(),
            order: Order::Bottleneck,
            seed: 1,
        };
        let scheme = SchemeSpec::named(name, &parameters).expect("a scheme").expect("its defaults");
        let decisions = if scheme.is_by_event() { Decisions::Event } else { Decisions::Interval };
        let scenario = population.scenario(applications.clone(), scheme, decisions);
        let start = Instant::now();
        let outcome = run(&scenario, &mut |_| ControlFlow::Continue(())).expect("a scheme that decides");
        let took_s = start.elapsed().as_secs_f64();
        let phases: u64 = outcome.applications.iter().map(|app| app.phases).sum();
        let io_s: f64 = outcome.applications.iter().map(|app| app.io_phase_s * app.phases as f64).sum();
        println!(
            "{{\"bench\":\"fluid\",\"scheme\":\"{name}\",\"days\":{days},\"took_s\":{took_s:.2},\"decisions\":{},\
             \"jobs_done\":{},\"io_phase_s\":{:.2},\"effective_bandwidth\":{:.4},\"of_all\":{:.4},\
             \"node_utilization\":{:.4}}}",
            outcome.decisions,
            outcome.jobs_done,
            io_s / phases.max(1) as f64,
            outcome.effective_bandwidth,
            outcome.effective_bandwidth_of_all,
            outcome.node_utilization,
        );
    }
}
