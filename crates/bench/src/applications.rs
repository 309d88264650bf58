//! `isonomia-bench applications`: applications whose I/O phases meet on one server with eight capped targets, live and simulated.
//!
//! Each application is a process that computes (sleeps) and then writes to its targets, two threads to each, with a barrier
//! at the end of the phase; so it goes on when all of its targets have served it. The same applications are simulated
//! request by request with the arbiters that the server has, and under GIFT, which no live server has ([`GiftPort`]). What is
//! looked at is how much less time in I/O there is than under `job-fair`.

use crate::arguments::ApplicationsOptions;
use crate::crew::{Crew, start_ns};
use crate::report::{Must, Report, Row};
use crate::server::{Cap, ServerOptions, ServerProcess};
use crate::session::Session;
use crate::task::{Operation, Phases, Task};
use crate::way::{Identity, Way};
use anyhow::{Context, Result, ensure};
use isonomia_policy::exchange::Rule;
use isonomia_policy::{Arbiter, Draw, PolicySpec, Tuning, build};
use isonomia_reproduce::GiftPort;
use isonomia_sim::request::{Device, Job, Lanes, Layout, Op, Outcome, Phase, Scenario, Target, run_with};
use isonomia_units::{Bytes, JobInfo, Nanos, Rate};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use std::cell::Cell;
use std::ops::ControlFlow;

const TARGETS: usize = 8;
const APPLICATIONS: usize = 14;
const STRIPES_MAX: usize = 4;
/// Threads that an application has at each of its targets, so that it always has a request there.
const STREAMS: u64 = 2;
/// Slow enough that two cores have time to spare with all targets at full speed.
const CAP: Cap = Cap { bandwidth: "32MiB/s", per_op: "0" };
const BANDWIDTH: u64 = 32 << 20;
const BLOCK: u64 = 256 << 10;
/// Shortest and longest, drawn evenly on a logarithmic scale: a hundredth of GIFT's.
const COMPUTE_MS: (f64, f64) = (1_200.0, 9_000.0);
const IO_MS: (f64, f64) = (200.0, 2_000.0);
/// Between two decisions of GIFT: a hundredth of the paper's.
const GIFT_INTERVAL: Nanos = Nanos::from_millis(100);
const FAIR: &str = "job-fair";
const FINISH: &str = "fair-finish{guarantee=0.2,sizes=history}";

#[derive(Debug, Serialize)]
struct Configuration {
    targets: usize,
    applications: usize,
    bandwidth: &'static str,
    block_bytes: u64,
    length_s: f64,
    seeds: u32,
    server_workers: Option<u32>,
}

/// An application.
#[derive(Clone, Debug)]
struct Application {
    name: String,
    targets: Vec<usize>,
    compute_ns: u64,
    /// Of each thread in each phase.
    blocks: u64,
    iterations: u64,
    start_ns: u64,
}

impl Application {
    /// Of a phase alone.
    fn io_ns(&self) -> u64 {
        self.blocks * STREAMS * BLOCK * 1_000_000_000 / BANDWIDTH
    }
}

/// The applications of a seed, each with as many phases as it would get through in `length_s` alone.
fn draw(seed: u64, length_s: f64) -> Vec<Application> {
    let mut chance = Pcg64Mcg::seed_from_u64(seed);
    let log_uniform =
        |chance: &mut Pcg64Mcg, (least, most): (f64, f64)| least * (most / least).powf(chance.random::<f64>());
    let one = |number: usize| {
        let (compute_ms, io_ms) = (log_uniform(&mut chance, COMPUTE_MS), log_uniform(&mut chance, IO_MS));
        let mut free: Vec<usize> = (0..TARGETS).collect();
        let stripes = chance.random_range(1..=STRIPES_MAX);
        let targets = (0..stripes).map(|_| free.swap_remove(chance.random_range(0..free.len()))).collect();
        let block_ms = BLOCK as f64 / BANDWIDTH as f64 * 1e3;
        let compute_ns = (compute_ms * 1e6) as u64;
        Application {
            name: format!("app-{number:02}"),
            targets,
            compute_ns,
            blocks: ((io_ms / block_ms / STREAMS as f64).round() as u64).max(1),
            iterations: (length_s * 1e3 / (compute_ms + io_ms)).ceil().max(2.0) as u64,
            start_ns: chance.random_range(0..compute_ns),
        }
    };
    (0..APPLICATIONS).map(one).collect()
}

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &ApplicationsOptions) -> Result<()> {
    let common = &options.common;
    let session = Session::new(common.isonomia.as_deref())?;
    let length_s = if common.quick { 10.0 } else { 40.0 };
    let configuration = Configuration {
        targets: TARGETS,
        applications: APPLICATIONS,
        bandwidth: CAP.bandwidth,
        block_bytes: BLOCK,
        length_s,
        seeds: common.repeat,
        server_workers: common.workers,
    };
    let mut report = Report::new("applications", common, configuration)?;
    let mut measured = Vec::new();
    let done = (1..=u64::from(common.repeat)).try_for_each(|seed| {
        measured.push(compare(&session, &report, seed, length_s)?);
        Ok(())
    });
    report.error = done.as_ref().err().map(|error: &anyhow::Error| format!("{error:#}"));
    report.rows = rows(&measured);
    report.publish(common.json)?;
    done
}

/// Seconds in I/O of each application.
struct Compared {
    live: [Vec<f64>; 2],
    simulated: [Vec<f64>; 2],
    gift: Vec<f64>,
}

fn compare(session: &Session, report: &Report<Configuration>, seed: u64, length_s: f64) -> Result<Compared> {
    let applications = draw(seed, length_s);
    let simulated = [FAIR, FINISH].map(|policy| simulate(&applications, policy.parse().expect("a policy"), None));
    let gift = simulate(&applications, GiftPort::policy(), Some(GiftPort::new(TARGETS, GIFT_INTERVAL, GIFT_INTERVAL)));
    let mut live = [Vec::new(), Vec::new()];
    for (policy, times) in [FAIR, FINISH].into_iter().zip(&mut live) {
        eprintln!("isonomia-bench: seed {seed}, {policy}");
        *times = measure(session, report, &applications, policy).with_context(|| policy.to_owned())?;
    }
    Ok(Compared { live, simulated, gift })
}

/// The number of a target's file: new files get targets in turn.
fn file(target: usize, rank: usize) -> usize {
    target + rank * TARGETS
}

/// Which files each application writes: the next ones of each of its targets.
fn files(applications: &[Application]) -> (Vec<Vec<String>>, usize) {
    let mut ranks = [0; TARGETS];
    let mut of = |application: &Application| {
        let mut take = |&target: &usize| {
            ranks[target] += 1;
            format!("file-{}", file(target, ranks[target] - 1))
        };
        application.targets.iter().map(&mut take).collect::<Vec<_>>()
    };
    let names = applications.iter().map(&mut of).collect();
    (names, TARGETS * ranks.into_iter().max().unwrap_or(0))
}

fn measure(
    session: &Session,
    report: &Report<Configuration>,
    applications: &[Application],
    policy: &'static str,
) -> Result<Vec<f64>> {
    let name = policy.split('{').next().unwrap_or(policy);
    let dirs = (0..TARGETS).map(|target| session.scratch().join(format!("{name}-target-{target}"))).collect();
    let workers = report.configuration.server_workers;
    let options = ServerOptions { cap: Some(CAP), targets: dirs, workers, ..ServerOptions::default() };
    let mut server = ServerProcess::start(session, name, &options, &report.dir().join(format!("server-{name}.log")))?;
    let (names, count) = files(applications);
    let identity = |job: &str| Identity { job: job.to_owned(), user: "bench".into(), group: "bench".into(), nodes: 1 };
    let worker =
        |job: &str, number: u32| Way::Library.worker(&session.programs, server.endpoints(), &identity(job), number);
    // One after the other, by one process: so each has the target that its number says.
    let make = Task { operation: Operation::Make { files: count as u64 }, duration_ns: 0, delay_ns: 0 };
    Crew::start("files", [worker("files", 0)])?.run(session, &make)?;
    let mut crews = Vec::new();
    for (number, (application, files)) in applications.iter().zip(names).enumerate() {
        let phases = Phases {
            files,
            streams: STREAMS,
            compute_ns: application.compute_ns,
            blocks: application.blocks,
            block_bytes: BLOCK,
            iterations: application.iterations,
        };
        let task = Task {
            // Nobody is served worse than at a twentieth of the speed that he has alone: there are fewer at a target.
            duration_ns: application.iterations * (application.compute_ns + 20 * application.io_ns()),
            operation: Operation::Phases(phases),
            delay_ns: application.start_ns,
        };
        let mut crew = Crew::start(&application.name, [worker(&application.name, number as u32)])?;
        crew.prepare(session, &task)?;
        crews.push((crew, task));
    }
    server.set_policy(policy)?;
    let origin_ns = start_ns();
    for (crew, _) in &mut crews {
        crew.go(origin_ns)?;
    }
    let mut times = Vec::new();
    for (crew, task) in &mut crews {
        let outcomes = crew.collect(session, task)?;
        times.push(outcomes.iter().map(|outcome| outcome.io_ns).sum::<u64>() as f64 / 1e9);
    }
    ensure!(times.iter().all(|time| *time > 0.0), "an application did no I/O");
    Ok(times)
}

fn simulate(applications: &[Application], policy: PolicySpec, gift: Option<GiftPort>) -> Vec<f64> {
    let target = |number: usize| Target {
        name: format!("target-{number}"),
        server: 0,
        device: Device::Lanes(Lanes {
            bandwidth: Rate::new(BANDWIDTH).expect("not zero"),
            per_op: Nanos::ZERO,
            workers: 1,
            jitter: 0.0,
        }),
        policy: policy.clone(),
        draw: Draw::VirtualTime,
        tuning: Tuning::default(),
    };
    let job = |application: &Application| Job {
        info: JobInfo::new(&application.name, "bench", "bench"),
        processes: application.targets.len() as u32 * STREAMS as u32,
        depth: 1,
        targets: application.targets.clone(),
        layout: Layout::FilePerProcess,
        phases: vec![Phase {
            compute: Nanos(application.compute_ns),
            not_before: Nanos::ZERO,
            op: Op::Write,
            request: Bytes(BLOCK),
            requests: Some(application.blocks),
            think: Nanos::ZERO,
            think_jitter: 0.0,
            barrier: true,
        }],
        iterations: Some(application.iterations),
        start: Nanos(application.start_ns),
        stop: Nanos::MAX,
    };
    let duration = Nanos::from_secs(100_000);
    let scenario = Scenario {
        seed: 1,
        duration,
        slice: duration,
        measure_from: Nanos::ZERO,
        measure_to: duration,
        exchange: None,
        exchange_rule: Rule::default(),
        fair_clock: false,
        servers: vec!["server".to_owned()],
        targets: (0..TARGETS).map(target).collect(),
        jobs: applications.iter().map(job).collect(),
    };
    // Arbiters are made in the order of the targets.
    let made = Cell::new(0);
    let arbiter = |policy: &PolicySpec, draw: Draw, seed: u64, tuning: Tuning| -> Box<dyn Arbiter> {
        let inner = build(policy, draw, seed, tuning);
        let target = made.replace(made.get() + 1);
        gift.as_ref().map_or_else(|| build(policy, draw, seed, tuning), |gift| gift.arbiter(target, inner))
    };
    let outcome: Outcome = run_with(&scenario, &arbiter, &mut |_| ControlFlow::Continue(()));
    let computing = |application: &Application| (application.compute_ns * application.iterations) as f64 / 1e9;
    let elapsed = outcome.jobs.iter().map(|job| job.elapsed_ns.expect("its work has an end") as f64 / 1e9);
    elapsed.zip(applications).map(|(elapsed, application)| elapsed - computing(application)).collect()
}

/// How many per cent less time in I/O there is, mean over the applications.
fn gain(fair: &[f64], other: &[f64]) -> f64 {
    100.0 * fair.iter().zip(other).map(|(fair, other)| 1.0 - other / fair).sum::<f64>() / fair.len() as f64
}

fn rows(measured: &[Compared]) -> Vec<Row> {
    let row = |name: &str, unit, must, value: &dyn Fn(&Compared) -> f64| Row {
        must,
        ..Row::new(name.to_owned(), Way::Library, unit, measured.iter().map(value).collect())
    };
    // The mean of ratios of the same application, one to one.
    let ratio = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a / b).sum::<f64>() / a.len() as f64;
    vec![
        row("fair-finish, live: less I/O time than job-fair", "%", Some(Must::at_least(0.0)), &|it| {
            gain(&it.live[0], &it.live[1])
        }),
        row("fair-finish, simulated: less I/O time than job-fair", "%", None, &|it| {
            gain(&it.simulated[0], &it.simulated[1])
        }),
        row("GIFT, simulated: less I/O time than job-fair", "%", None, &|it| gain(&it.simulated[0], &it.gift)),
        row("fair-finish's gain, live, beyond twice GIFT's", "points", Some(Must::at_least(0.0)), &|it| {
            gain(&it.live[0], &it.live[1]) - 2.0 * gain(&it.simulated[0], &it.gift)
        }),
        row("job-fair: I/O time live over simulated", "x", Some(Must::near(1.0, 0.1)), &|it| {
            ratio(&it.live[0], &it.simulated[0])
        }),
        row("fair-finish: I/O time live over simulated", "x", Some(Must::near(1.0, 0.1)), &|it| {
            ratio(&it.live[1], &it.simulated[1])
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_on_the_target_that_is_meant() {
        let applications = draw(1, 10.0);
        let (names, count) = files(&applications);
        let mut all: Vec<String> = Vec::new();
        for (application, names) in applications.iter().zip(names) {
            for (target, name) in application.targets.iter().zip(names) {
                let number: usize =
                    name.strip_prefix("file-").and_then(|number| number.parse().ok()).expect("a number");
                assert!(number < count && number % TARGETS == *target, "{name}");
                all.push(name);
            }
        }
        let files = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), files, "nobody shares a file");
    }

    #[test]
    fn fair_finish_gains_more_than_twice_what_gift_does() {
        let applications = draw(2, 10.0);
        let of = |policy: &str| simulate(&applications, policy.parse().expect("a policy"), None);
        let (fair, finish) = (of(FAIR), of(FINISH));
        let port = GiftPort::new(TARGETS, GIFT_INTERVAL, GIFT_INTERVAL);
        let gift = simulate(&applications, GiftPort::policy(), Some(port));
        let (finish, gift) = (gain(&fair, &finish), gain(&fair, &gift));
        assert!(finish > 10.0 && finish > 2.0 * gift, "{finish} and {gift}");
    }
}
