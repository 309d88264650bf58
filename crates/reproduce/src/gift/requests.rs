//! Coflow scheduling request by request, with the arbiters of live servers: whether the fluid result holds where there
//! are requests, queues, and targets that know only what they see.
//!
//! Applications as in the fluid study, a hundredth as long: they compute and then do I/O on one to eight of sixteen
//! targets, with two processes for each of their targets and a barrier at the end of each phase. Placed *apart*, a
//! process keeps to one target (targets may run ahead: the banked model); *striped*, it goes round all of them, so that
//! it advances at the slowest (the min-rate model).

use crate::chart::Chart;
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::gift_port::GiftPort;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use crate::simulate::{simulate, simulate_with};
use crate::table::Table;
use isonomia_policy::PolicySpec;
use isonomia_sim::request::{Job, JobOutcome, Layout, Op, Phase, Scenario, Target};
use isonomia_units::{Bytes, JobInfo, Nanos, Rate};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

const TARGETS: usize = 16;
const APPLICATIONS: usize = 20;
const STRIPES_MAX: usize = 8;
const PROCESSES_PER_TARGET: u32 = 2;
/// Of a request of [`BLOCK`]: 1 ms.
const BANDWIDTH: u64 = 1 << 30;
const BLOCK: Bytes = Bytes::mib(1);
/// Shortest and longest, drawn evenly on a logarithmic scale.
const COMPUTE_MS: (f64, f64) = (1_200.0, 18_000.0);
const IO_MS: (f64, f64) = (200.0, 3_000.0);

struct Setting {
    name: &'static str,
    policy: &'static str,
    exchange_ms: Option<u64>,
}

const fn setting(name: &'static str, policy: &'static str, exchange_ms: Option<u64>) -> Setting {
    Setting { name, policy, exchange_ms }
}

const ATTAINED: &str = "coflow{guarantee=0.8,order=attained}";
const BOTTLENECK: &str = "coflow{guarantee=0.8,order=bottleneck}";
const SLOWDOWN: &str = "coflow{guarantee=0.8,order=slowdown}";

const FINISH: &str = "fair-finish{guarantee=0.2,sizes=history}";
/// The setting that is GIFT, whatever policy stands there.
const GIFT: &str = "gift";
/// Between its decisions: a hundredth of the paper's, as all times are.
const GIFT_INTERVAL: Nanos = Nanos::from_millis(100);

const SETTINGS: [Setting; 16] = [
    setting("job-fair", "job-fair", None),
    setting("fifo", "fifo", None),
    setting("attained", ATTAINED, None),
    setting("attained-10ms", ATTAINED, Some(10)),
    setting("attained-100ms", ATTAINED, Some(100)),
    setting("attained-1s", ATTAINED, Some(1_000)),
    setting("bottleneck", BOTTLENECK, None),
    setting("bottleneck-100ms", BOTTLENECK, Some(100)),
    setting("slowdown", SLOWDOWN, None),
    setting("slowdown-100ms", SLOWDOWN, Some(100)),
    setting("attained-half", "coflow{guarantee=0.5,order=attained}", None),
    setting("attained-half-100ms", "coflow{guarantee=0.5,order=attained}", Some(100)),
    setting("fair-finish", FINISH, None),
    setting("fair-finish-classes", "fair-finish{guarantee=0.2,sizes=none}", None),
    setting(GIFT, "priority-fair", None),
    setting("set10", "set10", None),
];

const LAYOUTS: [(&str, Layout); 2] = [("apart", Layout::FilePerProcess), ("striped", Layout::Striped)];

/// An application, and its time without I/O.
struct Application {
    job: Job,
    compute: Nanos,
}

fn draw(seed: u64, layout: Layout, length: Nanos) -> Vec<Application> {
    let mut chance = Pcg64Mcg::seed_from_u64(seed);
    let mut log_uniform = |(least, most): (f64, f64)| least * (most / least).powf(chance.random::<f64>());
    let times: Vec<(f64, f64)> = (0..APPLICATIONS).map(|_| (log_uniform(COMPUTE_MS), log_uniform(IO_MS))).collect();
    let application = |(number, (compute_ms, io_ms)): (usize, (f64, f64))| {
        let stripes = chance.random_range(1..=STRIPES_MAX);
        let mut free: Vec<usize> = (0..TARGETS).collect();
        let targets: Vec<usize> = (0..stripes).map(|_| free.swap_remove(chance.random_range(0..free.len()))).collect();
        let compute = Nanos::from_micros((compute_ms * 1e3) as u64);
        // A request takes 1 ms of a target; the processes of a target share its work.
        let requests = ((io_ms / f64::from(PROCESSES_PER_TARGET)).round() as u64).max(1);
        let iterations = (length.0 as f64 / ((compute_ms + io_ms) * 1e6)).ceil().max(1.0) as u64;
        let phase = Phase { compute, barrier: true, ..Phase::back_to_back(Op::Write, BLOCK, requests) };
        let job = Job {
            info: JobInfo::new(&format!("app-{number}"), "user", "group"),
            processes: stripes as u32 * PROCESSES_PER_TARGET,
            depth: 1,
            targets,
            layout,
            phases: vec![phase],
            iterations: Some(iterations),
            start: Nanos(chance.random_range(0..compute.0)),
            stop: Nanos(u64::MAX),
        };
        Application { job, compute: Nanos(compute.0 * iterations) }
    };
    times.into_iter().enumerate().map(application).collect()
}

fn scenario(setting: &Setting, jobs: Vec<Job>, length: Nanos) -> Scenario {
    let bandwidth = Rate::new(BANDWIDTH).expect("not zero");
    let policy: PolicySpec = setting.policy.parse().expect("a policy");
    let target = |server| Target::serial(format!("target-{server}"), server, bandwidth, 0.1, policy.clone());
    let servers = (0..TARGETS).map(|server| format!("server-{server}")).collect();
    let targets = (0..TARGETS).map(target).collect();
    let exchange = setting.exchange_ms.map(Nanos::from_millis);
    Scenario { exchange, fair_clock: true, ..Scenario::whole(Nanos(length.0 * 100), servers, targets, jobs) }
}

/// What became of the applications of a run.
#[derive(Serialize, Deserialize)]
struct Measured {
    /// Seconds of I/O of each, over all of its phases.
    io_s: Vec<f64>,
    /// Per cent of the phases, those of each target apart, that ended later than in the fair clock.
    late_percent: f64,
}

fn measure(
    setting: &Setting,
    applications: &[Application],
    length: Nanos,
    context: &Context,
) -> Result<Measured, Stopped> {
    let jobs = applications.iter().map(|application| application.job.clone()).collect();
    let scenario = scenario(setting, jobs, length);
    let outcome = if setting.name == GIFT {
        let port = GiftPort::new(TARGETS, GIFT_INTERVAL, GIFT_INTERVAL);
        // Arbiters are made in the order of the targets.
        let made = Cell::new(0);
        let arbiter = |policy: &_, draw, seed, tuning| {
            port.arbiter(made.replace(made.get() + 1), isonomia_policy::build(policy, draw, seed, tuning))
        };
        simulate_with(&scenario, &arbiter, context)?
    } else {
        simulate(&scenario, context)?
    };
    let io = |(job, application): (&JobOutcome, &Application)| {
        let elapsed = job.elapsed_ns.expect("its work has an end, and the run is long enough");
        (elapsed - application.compute.0) as f64 / 1e9
    };
    let sum = |of: fn(&JobOutcome) -> Option<u64>| outcome.jobs.iter().filter_map(of).sum::<u64>() as f64;
    Ok(Measured {
        io_s: outcome.jobs.iter().zip(applications).map(io).collect(),
        late_percent: 100.0 * sum(|job| job.late_phases) / sum(|job| job.io_phases).max(1.0),
    })
}

/// The item.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (length, seeds) = if context.quick { (Nanos::from_secs(20), 2) } else { (Nanos::from_secs(120), 8) };
    let cells: Vec<(usize, u64, usize)> = (0..LAYOUTS.len())
        .flat_map(|layout| (1..=seeds).flat_map(move |seed| (0..SETTINGS.len()).map(move |at| (layout, seed, at))))
        .collect();
    let done = AtomicUsize::new(0);
    let measured: Vec<Measured> = cells
        .par_iter()
        .map(|(layout, seed, at)| {
            let Setting { name, policy, exchange_ms } = &SETTINGS[*at];
            let key = format!("live {} {name} {policy} {exchange_ms:?} {seed} {length:?}", LAYOUTS[*layout].0);
            let run = || measure(&SETTINGS[*at], &draw(*seed, LAYOUTS[*layout].1, length), length, context);
            let measured = context.once(&key, run)?;
            context.tell("coflow by request", done.fetch_add(1, Ordering::Relaxed) + 1, cells.len());
            Ok(measured)
        })
        .collect::<Result<_, Stopped>>()?;

    let mut data = Data::new(&["layout", "setting", "seed", "io_time_gain_percent", "worse_percent", "late_percent"]);
    let mut gains = vec![vec![Vec::new(); SETTINGS.len()]; LAYOUTS.len()];
    let (mut worse, mut late) = (gains.clone(), gains.clone());
    for (&(layout, seed, at), here) in cells.iter().zip(&measured) {
        let fair = &measured[(layout * seeds as usize + seed as usize - 1) * SETTINGS.len()];
        let pairs = || here.io_s.iter().zip(&fair.io_s);
        let gain: f64 = pairs().map(|(time, fair)| 1.0 - time / fair).sum();
        // Below a hundredth it is the order of single requests.
        let losers = pairs().filter(|(time, fair)| **time > 1.01 * **fair).count();
        let percent = |value: f64| 100.0 * value / APPLICATIONS as f64;
        gains[layout][at].push(percent(gain));
        worse[layout][at].push(percent(losers as f64));
        late[layout][at].push(here.late_percent);
        data.push([
            LAYOUTS[layout].0.into(),
            SETTINGS[at].name.into(),
            seed.into(),
            percent(gain).into(),
            percent(losers as f64).into(),
            here.late_percent.into(),
        ]);
    }
    Ok(vec![Finding {
        table: Some(table([&gains, &worse, &late])),
        item: "requests",
        title: "coflow scheduling request by request".to_owned(),
        configuration: json!({
            "targets": TARGETS, "applications": APPLICATIONS, "seeds": (1..=seeds).collect::<Vec<_>>(),
            "length_s": length.as_secs_f64(), "compute_ms": COMPUTE_MS, "io_ms": IO_MS, "stripes_max": STRIPES_MAX,
            "processes_per_target": PROCESSES_PER_TARGET,
        }),
        data,
        charts: vec![
            Chart::bars("Reduction of I/O time against job-fair", ("setting", ""), ("io_time_gain_percent", "%"))
                .by("layout"),
            Chart::bars("Applications worse off than under job-fair", ("setting", ""), ("worse_percent", "%"))
                .by("layout")
                .named("worse"),
        ],
        claims: claims(&gains, &worse),
    }])
}

/// What each setting gains and costs, in both layouts: gains, applications that are worse off, and phases that are late.
fn table([gains, worse, late]: [&[Vec<Vec<f64>>]; 3]) -> Table {
    let mut table = Table::new(&[
        "policy",
        "orders told every",
        "I/O time, apart",
        "worse",
        "late",
        "I/O time, striped",
        "worse",
        "late",
    ]);
    // The first is what the others are measured against.
    for (at, setting) in SETTINGS.iter().enumerate().skip(1) {
        let policy = if setting.name == GIFT {
            "GIFT, deciding every 100 ms".to_owned()
        } else {
            format!("`{}`", setting.policy)
        };
        let told = setting.exchange_ms.map_or("not at all".to_owned(), |interval| format!("{interval} ms"));
        let io_time = |layout: usize| {
            let less = Interval::of(&gains[layout][at]);
            format!("{:.1} %", Interval { mean: -less.mean, ..less })
        };
        let percent = |of: &[Vec<Vec<f64>>], layout: usize| format!("{:.1} %", Interval::of(&of[layout][at]));
        let (worse, late) = (|layout| percent(worse, layout), |layout| percent(late, layout));
        table.push([policy, told, io_time(0), worse(0), late(0), io_time(1), worse(1), late(1)]);
    }
    table
}

fn claims(gains: &[Vec<Vec<f64>>], worse: &[Vec<Vec<f64>>]) -> Vec<Claim> {
    let at = |name: &str| SETTINGS.iter().position(|setting| setting.name == name).expect("a setting");
    let gain = |layout: usize, name: &str| Interval::of(&gains[layout][at(name)]);
    let above = |layout: usize, name: &str, other: &str| {
        Interval::by(gains[layout][at(name)].iter().zip(&gains[layout][at(other)]), |(a, b)| a - b)
    };
    let listed = |layout: usize, names: &[&str]| {
        let one = |name: &&str| format!("{name} {:.1}", gain(layout, name));
        names.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let both = |names: &[&str]| format!("in %, apart: {}; striped: {}", listed(0, names), listed(1, names));
    let each = |test: &dyn Fn(usize, &str) -> Test| [0, 1].map(|layout| test(layout, LAYOUTS[layout].0)).into();
    let losers = |layout: usize, name: &str| Interval::of(&worse[layout][at(name)]);
    let twice_gift = |layout: usize| {
        let pairs = gains[layout][at("fair-finish")].iter().zip(&gains[layout][at(GIFT)]);
        Interval::by(pairs, |(finish, gift)| finish - 2.0 * gift)
    };
    vec![
        Claim::ours(
            "fair finish by requests, sizes by history: more than twice GIFT's gain",
            each(&|layout, word| Test::above(word, twice_gift(layout), 0.0).unit(" points")),
        )
        .beside(both(&["fair-finish", "fair-finish-classes", GIFT])),
        Claim::ours(
            "… with at most 1 % of the applications worse off than under job-fair, by more than 1 %",
            each(&|layout, word| Test::below(word, losers(layout, "fair-finish"), 1.0).in_part(0.0, 10.0).unit(" %")),
        ),
        Claim::ours(
            "requests and arbiters: less I/O time than under fair shares, without knowledge",
            each(&|layout, word| Test::above(word, gain(layout, "attained"), 0.0).unit(" %")),
        )
        .beside(both(&["slowdown", "bottleneck", "fifo"])),
        Claim::ours(
            "one order over all targets is better than an order for each",
            each(&|layout, word| {
                Test::above(word, above(layout, "attained-100ms", "attained"), 1.0)
                    .in_part(0.0, f64::INFINITY)
                    .unit(" points")
            }),
        )
        .beside(both(&[
            "attained-10ms",
            "attained-100ms",
            "attained-1s",
            "slowdown-100ms",
            "bottleneck-100ms",
        ])),
        Claim::ours(
            "a smaller guarantee gains more",
            each(&|layout, word| Test::above(word, above(layout, "attained-half", "attained"), 0.0).unit(" points")),
        )
        .beside(both(&["attained", "attained-half", "attained-100ms", "attained-half-100ms"])),
        Claim::ours(
            "applications worse off than under job-fair, by more than 1 %",
            each(&|layout, word| Test::below(word, losers(layout, "attained"), 1.0).in_part(0.0, 10.0).unit(" %")),
        )
        .beside(format!(
            "in %: attained-100ms {} and {}, attained-half {} and {}",
            losers(0, "attained-100ms"),
            losers(1, "attained-100ms"),
            losers(0, "attained-half"),
            losers(1, "attained-half")
        )),
    ]
}
