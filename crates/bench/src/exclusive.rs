//! `isonomia-bench exclusive`: the applications of ICS'20's Table 1 on a live server under `exclusive`, in each of the eight orders,
//! beside the schedule that is computed for the same phases.
//!
//! Each application is a process that computes (sleeps) and then writes its phase in one call, between saying that it begins and
//! that it ends. Times are a hundredth of the paper's, so that a phase is 25 to 100 ms long on a target of 100 MiB/s, and
//! compute phases vary by 5 % (identical phases lock into step, and then a microsecond decides). The schedule meets the very same
//! phases. Both run the same order; what differs is that here there are a device, a server, processes, and messages.

use crate::arguments::ExclusiveOptions;
use crate::crew::{Crew, start_ns};
use crate::harness::Harness;
use crate::report::{Must, Report, Row};
use crate::server::{Cap, GIFT_BANDWIDTH, ServerOptions, ServerProcess};
use crate::task::{Iterations, Operation, Task};
use crate::way::{Identity, Way};
use anyhow::{Context, Result};
use isonomia_planning::{App, Order, schedule_with};
use isonomia_units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

/// Compute and I/O phase in seconds, and iterations: Table 1.
const TABLE_1: [(f64, f64, u32); 5] =
    [(32.0, 10.0, 250), (16.0, 5.0, 500), (8.0, 2.5, 1000), (8.0, 2.5, 1000), (16.0, 5.0, 500)];
/// Times of the table are divided by this, …
const TIME_SCALE: f64 = 100.0;
/// … and iterations by this, or in a quick run by that.
const ITERATION_SCALE: u32 = 10;
const QUICK_ITERATION_SCALE: u32 = 25;
const JITTER: f64 = 0.05;
const CAP: Cap = Cap { bandwidth: GIFT_BANDWIDTH, per_op: "0" };
const BANDWIDTH: u64 = 102_000_000;
/// Nobody takes longer than so many times the time that he takes alone: there are five of them.
const STRETCH_MAX: u64 = 20;

#[derive(Debug, Serialize)]
struct Configuration {
    apps_compute_s_io_s_iterations: [(f64, f64, u32); 5],
    time_scale: f64,
    iteration_scale: u32,
    jitter: f64,
    bandwidth: &'static str,
    seeds: u32,
    server_workers: Option<u32>,
}

/// An application, with the length of each of its compute phases.
struct Application {
    app: App,
    compute_ns: Vec<u64>,
}

impl Application {
    fn alone_ns(&self) -> u64 {
        self.compute_ns.iter().sum::<u64>() + self.app.io_alone().0
    }
}

/// What came of one order.
struct Outcome {
    worst_stretch: f64,
    mean_stretch: f64,
    makespan_s: f64,
}

impl Outcome {
    fn new(applications: &[Application], ends_ns: &[u64]) -> Self {
        let stretches = applications.iter().zip(ends_ns).map(|(one, end)| *end as f64 / one.alone_ns() as f64);
        let stretches: Vec<f64> = stretches.collect();
        Self {
            worst_stretch: stretches.iter().copied().fold(1.0, f64::max),
            mean_stretch: stretches.iter().sum::<f64>() / stretches.len() as f64,
            makespan_s: ends_ns.iter().max().map_or(0.0, |end| *end as f64 / 1e9),
        }
    }
}

fn draw(seed: u64, iteration_scale: u32) -> Vec<Application> {
    let mut chance = Pcg64Mcg::seed_from_u64(seed);
    let nanos = |seconds: f64| Nanos((seconds / TIME_SCALE * 1e9).round() as u64);
    let one = |(compute_s, io_s, iterations): (f64, f64, u32)| {
        let app = App {
            compute: nanos(compute_s),
            io: nanos(io_s),
            iterations: iterations / iteration_scale,
            release: Nanos::ZERO,
        };
        let compute = |_| (app.compute.0 as f64 * chance.random_range(1.0 - JITTER..=1.0 + JITTER)) as u64;
        Application { app, compute_ns: (0..app.iterations).map(compute).collect() }
    };
    TABLE_1.into_iter().map(one).collect()
}

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &ExclusiveOptions) -> Result<()> {
    let common = &options.common;
    let harness = Harness::new(common.isonomia.as_deref())?;
    let iteration_scale = if common.quick { QUICK_ITERATION_SCALE } else { ITERATION_SCALE };
    let configuration = Configuration {
        apps_compute_s_io_s_iterations: TABLE_1,
        time_scale: TIME_SCALE,
        iteration_scale,
        jitter: JITTER,
        bandwidth: CAP.bandwidth,
        seeds: common.repeat,
        server_workers: common.workers,
    };
    let mut report = Report::new("exclusive", common, configuration)?;
    let orders: Vec<Order> = match options.order {
        Some(order) => vec![order],
        None => Order::ALL.to_vec(),
    };
    let mut measured: Vec<Vec<[Outcome; 2]>> = orders.iter().map(|_| Vec::new()).collect();
    let done = (1..=u64::from(common.repeat)).try_for_each(|seed| {
        let applications = draw(seed, iteration_scale);
        orders.iter().zip(&mut measured).try_for_each(|(order, measured)| {
            eprintln!("isonomia-bench: seed {seed}, {order}");
            let live = measure(&harness, &report, &applications, *order).with_context(|| order.to_string())?;
            measured.push([live, simulate(&applications, *order)?]);
            anyhow::Ok(())
        })
    });
    report.error = done.as_ref().err().map(|error: &anyhow::Error| format!("{error:#}"));
    report.rows = orders.iter().zip(&measured).flat_map(|(order, measured)| rows(*order, measured)).collect();
    report.publish(common.json)?;
    done
}

fn measure(
    harness: &Harness,
    report: &Report<Configuration>,
    applications: &[Application],
    order: Order,
) -> Result<Outcome> {
    let options =
        ServerOptions { cap: Some(CAP), workers: report.configuration.server_workers, ..ServerOptions::default() };
    let log = report.dir().join(format!("server-{order}.log"));
    let mut server = ServerProcess::start(harness, &format!("exclusive-{order}"), &options, &log)?;
    let mut crews = Vec::new();
    for (number, application) in applications.iter().enumerate() {
        let name = format!("app-{number}");
        let identity = Identity { job: name.clone(), user: "bench".into(), group: "bench".into(), nodes: 1 };
        let App { io, .. } = application.app;
        let iterations = Iterations {
            file: format!("file-{number}"),
            compute_ns: application.compute_ns.clone(),
            io_ns: io.0,
            bytes: u64::try_from(u128::from(io.0) * u128::from(BANDWIDTH) / 1_000_000_000)?,
        };
        let duration_ns = STRETCH_MAX * application.alone_ns();
        let task = Task { operation: Operation::Iterations(iterations), duration_ns, delay_ns: 0 };
        let worker = Way::Library.worker(&harness.programs, server.endpoints(), &identity, number as u32);
        let mut crew = Crew::start(&name, [worker])?;
        crew.prepare(harness, &task)?;
        crews.push((crew, task));
    }
    // They are known in the order of their names from here on.
    server.set_policy(&format!("exclusive{{order={order},lease=1h,gap=10s}}"))?;
    let origin_ns = start_ns();
    for (crew, _) in &mut crews {
        crew.go(origin_ns)?;
    }
    let mut ends_ns = Vec::new();
    for (crew, task) in &mut crews {
        let outcomes = crew.collect(harness, task)?;
        ends_ns.push(outcomes.iter().map(|outcome| outcome.end_ns).max().unwrap_or(0).saturating_sub(origin_ns));
    }
    Ok(Outcome::new(applications, &ends_ns))
}

fn simulate(applications: &[Application], order: Order) -> Result<Outcome> {
    let apps: Vec<App> = applications.iter().map(|application| application.app).collect();
    let compute = |app: usize, iteration: u32| Nanos(applications[app].compute_ns[iteration as usize]);
    let schedule = schedule_with(&apps, order, compute, |_| ())?;
    let ends_ns: Vec<u64> = schedule.apps.iter().map(|app| app.completion.0).collect();
    Ok(Outcome::new(applications, &ends_ns))
}

fn rows(order: Order, measured: &[[Outcome; 2]]) -> Vec<Row> {
    let row = |name: &str, unit, must, value: &dyn Fn(&[Outcome; 2]) -> f64| Row {
        must,
        ..Row::new(format!("{order}: {name}"), Way::Library, unit, measured.iter().map(value).collect())
    };
    let near = Some(Must::near(1.0, 0.05));
    vec![
        row("worst stretch, live", "x", None, &|[live, _]| live.worst_stretch),
        row("worst stretch, live over computed", "x", near, &|[live, computed]| {
            live.worst_stretch / computed.worst_stretch
        }),
        row("mean stretch, live over computed", "x", near, &|[live, computed]| {
            live.mean_stretch / computed.mean_stretch
        }),
        row("makespan, live over computed", "x", near, &|[live, computed]| live.makespan_s / computed.makespan_s),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_has_the_paper_s_phases_and_the_same_again() {
        let applications = draw(3, ITERATION_SCALE);
        let again = draw(3, ITERATION_SCALE);
        assert_eq!(applications[0].compute_ns, again[0].compute_ns);
        for one in &applications {
            // All applications take the same time alone.
            assert!((10.0..11.0).contains(&(one.alone_ns() as f64 / 1e9)));
            assert!(
                one.compute_ns.iter().all(|compute| compute.abs_diff(one.app.compute.0) * 20 <= one.app.compute.0 + 20)
            );
        }
        let computed = simulate(&applications, Order::Stretch).unwrap();
        assert!(computed.worst_stretch >= computed.mean_stretch && computed.mean_stretch > 1.0, "they wait");
    }
}
