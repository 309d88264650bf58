//! Fig. 13: applications that compute and do I/O, beside a background job of one node.
//!
//! How much I/O the applications do is not published. What is known of their programs is taken from these: who does I/O, and in
//! requests of what size (see [`APPLICATIONS`]). One number is open, the computing between two bursts. It is set
//! so that the slowdown under first-in-first-out is the paper's, and *predicts* the slowdown under size-fair, which is
//! what is judged. Where no amount of I/O gives the paper's slowdown the claim does not hold.
//!
//! The item `writers` asks the same for every number of processes that do I/O at a time, as this decides
//! what first-in-first-out costs: one process among the 56 of the background job gets one request in 57.
//!
//! ResNet-50, the paper's exception, reads ahead while it computes. Its computing and its time per image are set from two
//! ratios of the paper: what synchronous reading costs without a background job, and under first-in-first-out. The
//! slowdowns of asynchronous reading are then predictions. Reading ahead is one batch, and a late batch delays the next
//! only by what cannot be caught up.

use super::server::{BANDWIDTH, BLOCK, PROCESSES_PER_NODE, benchmark, phase, target};
use crate::chart::{Chart, Scale};
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use crate::simulate::simulate;
use isonomia_policy::{Draw, Tuning};
use isonomia_sim::request::{Job, Layout, Op, Phase, Scenario};
use isonomia_units::{Bytes, JobInfo, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use serde_json::json;

/// An application as far as it is known.
#[derive(Clone, Copy, Debug)]
struct Application {
    name: &'static str,
    nodes: u32,
    /// Processes that do I/O at a time.
    writers: u32,
    /// Requests of each of them in one burst.
    requests: u64,
    bytes: Bytes,
    /// The paper's slowdowns, in per cent.
    fifo: f64,
    size_fair: f64,
}

/// NAMD's trajectory is written by one process: three coordinates of four bytes for each of 1,066,628 atoms. WRF's
/// history is collected and written by rank 0 (its default form of I/O). BERT reads files of 48 MB, one
/// process for each of four graphics processors. SPECFEM3D's processes each have files of their own.
const APPLICATIONS: [Application; 4] = [
    Application { name: "NAMD", nodes: 64, writers: 1, requests: 13, bytes: BLOCK, fifo: 60.6, size_fair: 0.1 },
    Application { name: "WRF", nodes: 4, writers: 1, requests: 100, bytes: BLOCK, fifo: 45.3, size_fair: 4.6 },
    Application { name: "BERT", nodes: 4, writers: 16, requests: 48, bytes: BLOCK, fifo: 3.8, size_fair: 1.6 },
    Application { name: "SPECFEM3D", nodes: 16, writers: 896, requests: 20, bytes: BLOCK, fifo: 3.0, size_fair: 0.0 },
];
/// What the paper gives one digit after the point of.
const PRECISION: f64 = 0.05;
/// Bursts of a run.
const BURSTS: u64 = 5;
const WRITERS: [u32; 6] = [1, 4, 16, 64, 256, 896];
/// Requests of each of them in one burst.
const SWEPT_REQUESTS: u64 = 10;
/// When an application may begin, after the background job.
const BEGIN: Nanos = Nanos::from_millis(100);
const FIFO: (&str, Draw) = ("fifo", Draw::VirtualTime);
const TOKENS: (&str, Draw) = ("size-fair", Draw::Lottery);
const VIRTUAL_TIME: (&str, Draw) = ("size-fair", Draw::VirtualTime);

impl Application {
    fn job(&self, compute: Nanos) -> Job {
        let burst = Phase { compute, barrier: true, request: self.bytes, ..phase(Op::Write, self.requests) };
        Job {
            info: JobInfo { nodes: self.nodes, ..JobInfo::new(self.name, "user", "group") },
            processes: self.writers,
            depth: 1,
            targets: vec![0],
            layout: Layout::Striped,
            phases: vec![burst],
            iterations: Some(BURSTS),
            start: Nanos::ZERO,
            stop: Nanos::MAX,
        }
    }

    /// By how much size-fair may slow it down, of its time in I/O: a job of n nodes beside one of 1 has n parts of n + 1.
    fn bound_percent(&self) -> f64 {
        100.0 / f64::from(self.nodes)
    }
}

/// Seconds that `job` takes, alone or with the background job, on `servers` servers.
fn elapsed_s(
    job: &Job,
    policy: Option<(&str, Draw)>,
    (servers, seed): (usize, u64),
    tuning: Tuning,
    context: &Context,
) -> Result<f64, Stopped> {
    let (word, draw) = policy.unwrap_or(FIFO);
    let mut job = Job { targets: (0..servers).collect(), ..job.clone() };
    let mut random = Pcg64::seed_from_u64(seed);
    job.start = Nanos(BEGIN.0 + random.random_range(0..BEGIN.0));
    let all = job.phases.iter().map(|phase| phase.compute.0.max(phase.not_before.0)).max().unwrap_or(0);
    let mut limit = Nanos(all * job.iterations.unwrap_or(1) * 5 / 4 + 500_000_000);
    loop {
        let mut jobs = vec![job.clone()];
        if policy.is_some() {
            let background = benchmark("background", "other", "group", 1, 0, 1);
            jobs.push(Job { stop: limit, targets: (0..servers).collect(), ..background });
        }
        let names = (0..servers).map(|server| format!("server-{server}")).collect();
        let target = |server| isonomia_sim::request::Target { tuning, ..target(server, word, draw) };
        let scenario = Scenario { seed, ..Scenario::whole(limit, names, (0..servers).map(target).collect(), jobs) };
        // The run need not go on when the application has ended: double the time until it has.
        match simulate(&scenario, context)?.jobs[0].elapsed_ns {
            Some(elapsed) => return Ok(elapsed as f64 / 1e9),
            None => limit = Nanos(limit.0.saturating_mul(2)),
        }
    }
}

/// What an application's I/O costs, per burst and seed.
struct Calibrated {
    /// Computing between bursts, so that first-in-first-out costs what it does in the paper; zero if nothing does.
    compute: Nanos,
    /// Part of the time alone that is I/O, in per cent.
    io_percent: f64,
    /// The slowdown under first-in-first-out if it did nothing but I/O.
    most_percent: f64,
}

fn calibrate(application: &Application, seed: u64, context: &Context) -> Result<Calibrated, Stopped> {
    // The background job goes on meanwhile: what a burst takes hardly depends on when it begins.
    let compute = Nanos::from_millis(200);
    let job = application.job(compute);
    let burst_s = |policy| {
        let elapsed = elapsed_s(&job, policy, (1, seed), Tuning::default(), context)?;
        Ok(elapsed / BURSTS as f64 - compute.as_secs_f64())
    };
    let (alone_s, fifo_s): (f64, f64) = (burst_s(None)?, burst_s(Some(FIFO))?);
    let compute_s = ((fifo_s - alone_s) / (application.fifo / 100.0) - alone_s).max(0.0);
    Ok(Calibrated {
        compute: Nanos((compute_s * 1e9) as u64),
        io_percent: 100.0 * alone_s / (alone_s + compute_s),
        most_percent: 100.0 * (fifo_s / alone_s - 1.0),
    })
}

/// Slowdowns in per cent in one seed.
struct Slowdowns {
    calibrated: Calibrated,
    fifo: f64,
    tokens: f64,
    virtual_time: f64,
}

fn slowdowns(application: &Application, seed: u64, context: &Context) -> Result<Slowdowns, Stopped> {
    let calibrated = calibrate(application, seed, context)?;
    let job = application.job(calibrated.compute);
    let elapsed = |policy| elapsed_s(&job, policy, (1, seed), Tuning::default(), context);
    let alone_s = elapsed(None)?;
    let slowdown = |policy| Ok::<f64, Stopped>(100.0 * (elapsed(Some(policy))? / alone_s - 1.0));
    let (fifo, tokens, virtual_time) = (slowdown(FIFO)?, slowdown(TOKENS)?, slowdown(VIRTUAL_TIME)?);
    Ok(Slowdowns { calibrated, fifo, tokens, virtual_time })
}

fn by_seed(application: &Application, seeds: u64, context: &Context) -> Result<Vec<Slowdowns>, Stopped> {
    (1..=seeds).into_par_iter().map(|seed| slowdowns(application, seed, context)).collect()
}

/// Computes the figure, and what hangs on the number of processes that do I/O.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let seeds = if context.quick { 2 } else { 8 };
    let resnet_at = APPLICATIONS.len();
    let columns =
        ["application", "nodes", "writers", "seed", "io_percent", "policy", "slowdown_percent", "paper_percent"];
    let mut data = Data::new(&columns);
    let mut all = Vec::new();
    for (step, application) in APPLICATIONS.iter().enumerate() {
        context.tell("applications", step, resnet_at + 2);
        let found = by_seed(application, seeds, context)?;
        add(&mut data, application, &found);
        all.push((*application, found));
    }
    let mut claims = claims(&all);
    context.tell("applications", resnet_at, resnet_at + 2);
    let resnet: Vec<Resnet> =
        (1..=seeds).into_par_iter().map(|seed| Resnet::run(seed, context)).collect::<Result<_, _>>()?;
    for (seed, found) in (1_u64..).zip(&resnet) {
        let rows = [
            ("ResNet-50, synchronous", "fifo", found.sync_fifo, 100.0),
            ("ResNet-50, synchronous", "size-fair", found.sync_fair, 1.1),
            ("ResNet-50", "fifo", found.async_fifo, 170.0),
            ("ResNet-50", "size-fair", found.async_fair, 12.9),
        ];
        for (name, policy, slowdown, paper) in rows {
            let io = found.io_percent.into();
            data.push([
                name.into(),
                16.into(),
                64.into(),
                seed.into(),
                io,
                policy.into(),
                slowdown.into(),
                paper.into(),
            ]);
        }
    }
    claims.extend(resnet_claims(&resnet));
    context.tell("applications", resnet_at + 1, resnet_at + 2);
    let configuration = json!({ "seeds": (1..=seeds).collect::<Vec<_>>(), "bursts": BURSTS, "draw": "lottery" });
    let x = ("application", "");
    let y = ("slowdown_percent", "slowdown [%]");
    let mut chart =
        Chart::bars("Slowdown beside a background job of one node", x, y).by("policy").y_scale(Scale::Symlog);
    for application in &APPLICATIONS {
        chart = chart.paper_of("fifo", Some(application.name), application.fifo);
        chart = chart.paper_of("size-fair", Some(application.name), application.size_fair);
    }
    for (name, fifo, fair) in [("ResNet-50, synchronous", 100.0, 1.1), ("ResNet-50", 170.0, 12.9)] {
        chart = chart.paper_of("fifo", Some(name), fifo).paper_of("size-fair", Some(name), fair);
    }
    let fig13 = Finding {
        table: None,
        item: "fig13",
        title: "slowdown by a background job of one node".to_owned(),
        configuration: configuration.clone(),
        data,
        charts: vec![chart],
        claims,
    };
    Ok(vec![fig13, writers(seeds, configuration, context)?, pause(configuration_of_pause(), context)?])
}

fn add(data: &mut Data, application: &Application, found: &[Slowdowns]) {
    for (seed, found) in (1_u64..).zip(found) {
        let rows = [
            ("fifo", found.fifo, application.fifo),
            ("size-fair", found.tokens, application.size_fair),
            ("size-fair by virtual time", found.virtual_time, application.size_fair),
        ];
        for (policy, slowdown, paper) in rows {
            data.push([
                application.name.into(),
                application.nodes.into(),
                application.writers.into(),
                seed.into(),
                found.calibrated.io_percent.into(),
                policy.into(),
                slowdown.into(),
                paper.into(),
            ]);
        }
    }
}

/// What each application's slowdown under size-fair is to be, and two claims about all of them.
fn claims(all: &[(Application, Vec<Slowdowns>)]) -> Vec<Claim> {
    let each = |(application, found): &(Application, Vec<Slowdowns>)| {
        let Application { name, nodes, writers, fifo, size_fair, .. } = application;
        let of = |value: fn(&Slowdowns) -> f64| Interval::by(found, value);
        let precision = (size_fair * crate::claims::TOLERANCE).max(PRECISION);
        let processes = if *writers == 1 { "one process".to_owned() } else { format!("{writers} processes") };
        Claim::new(
            format!("{name} on {nodes} nodes, {processes} doing I/O: slowdown under size-fair"),
            format!("{size_fair} % ({fifo} % under fifo)"),
            vec![Test::within("", of(|found| found.tokens), *size_fair, precision).unit(" %")],
        )
        .beside(format!(
            "by virtual time {} %; under fifo {} %; I/O is {} % of its time; with nothing but I/O fifo would cost {} %",
            of(|found| found.virtual_time),
            of(|found| found.fifo),
            of(|found| found.calibrated.io_percent),
            of(|found| found.calibrated.most_percent),
        ))
        .why("computing is set so that fifo costs what it does in the paper, and size-fair is a prediction")
    };
    let bounded = |(application, found): &(Application, Vec<Slowdowns>)| {
        let bound = 100.0 / f64::from(application.nodes + 1);
        Test::below(application.name, Interval::by(found, |found| found.tokens), bound).unit(" %")
    };
    let reduced = |(application, found): &(Application, Vec<Slowdowns>)| {
        let paper = 100.0 * (1.0 - application.size_fair / application.fifo);
        let reduction = Interval::by(found, |found| 100.0 * (1.0 - found.tokens / found.fifo));
        Test::near_percent(application.name, reduction, paper)
    };
    let mut claims: Vec<Claim> = all.iter().map(each).collect();
    claims.push(
        Claim::new(
            "slowdowns under size-fair are within 1/(1+n) on n nodes",
            "all of these four",
            all.iter().map(bounded).collect(),
        )
        .why(
            "the bound holds for who has requests waiting. One process that has one request at a time waits for the one in \
             service each time, whatever its share: that is what NAMD and WRF lose",
        ),
    );
    claims.push(Claim::new(
        "size-fair takes away most of the slowdown",
        "59.1 to 99.8 %",
        all.iter().map(reduced).collect(),
    ));
    claims
}

/// What size-fair would cost by the number of processes that do I/O, if fifo costs what it does in the paper.
fn writers(seeds: u64, configuration: serde_json::Value, context: &Context) -> Result<Finding, Stopped> {
    let seeds = seeds.min(3);
    let columns =
        ["application", "nodes", "writers", "seed", "io_percent", "policy", "slowdown_percent", "paper_percent"];
    let mut data = Data::new(&columns);
    let mut fits = Vec::new();
    for application in &APPLICATIONS {
        let mut possible = Vec::new();
        for writers in WRITERS {
            let with = Application { writers, requests: SWEPT_REQUESTS, ..*application };
            let found = by_seed(&with, seeds, context)?;
            add(&mut data, &with, &found);
            let fifo = Interval::by(&found, |found| found.fifo);
            if fifo.mean >= application.fifo * (1.0 - crate::claims::TOLERANCE) {
                possible.push(writers);
            }
        }
        fits.push(format!("{}: {}", application.name, possible.last().map_or("none".to_owned(), u32::to_string)));
    }
    let chart = |(name, policy, title): (&'static str, &'static str, &str)| {
        let chart =
            Chart::lines(title, ("writers", "processes that do I/O at a time"), ("slowdown_percent", "slowdown [%]"));
        chart.by("application").only("policy", [policy]).x_scale(Scale::Log2).y_scale(Scale::Symlog).named(name)
    };
    let namd = &APPLICATIONS[0];
    let most = |writers: u32| 100.0 * f64::from(PROCESSES_PER_NODE) / f64::from(writers);
    Ok(Finding {
        table: None,
        item: "writers",
        title: "slowdown by the number of processes that do I/O".to_owned(),
        configuration,
        data,
        charts: vec![
            chart(("", "size-fair", "Predicted slowdown under size-fair, if fifo costs what it does in the paper")),
            chart(("fifo", "fifo", "Slowdown under fifo that is reached")),
        ],
        claims: vec![
            Claim::ours(
                "a slowdown as NAMD's under first-in-first-out takes few processes that do I/O",
                vec![
                    Test::below(
                        "the most with all of its 512 processes and nothing but I/O",
                        Interval::exact(most(512)),
                        namd.fifo,
                    )
                    .unit(" %"),
                ],
            )
            .beside(format!("most processes with which fifo costs what it does in the paper: {}", fits.join(", ")))
            .why("n processes beside 56 get n requests of n + 56, and so take 56/n longer"),
        ],
    })
}

/// A run of ResNet-50: 64 graphics processors on 16 nodes, two servers, 128 images of 116 KB each for a step.
struct Resnet {
    io_percent: f64,
    sync_fifo: f64,
    sync_fair: f64,
    async_fifo: f64,
    async_fair: f64,
}

const IMAGES: u64 = 128;
const IMAGE: Bytes = Bytes(116_000);
const READERS: u32 = 64;
const RESNET_NODES: u32 = 16;
const SERVERS: usize = 2;
const STEPS: u64 = 20;
/// The most time that reading an image may take beside the request, and how often the range is halved.
const IMAGE_MAX: Nanos = Nanos::from_millis(4);
const HALVINGS: u32 = 9;
/// Synchronous over asynchronous without a background job, and synchronous under fifo over synchronous (§5.5).
const SYNC_OVER_ASYNC: f64 = 1.621;
const SYNC_FIFO: f64 = 2.0;

impl Resnet {
    /// Reads a step's images, each after some time of its own, computes before (`sync`) or meanwhile.
    fn job(image: Nanos, compute: Nanos, is_sync: bool) -> Job {
        let step = Phase { think: image, barrier: true, request: IMAGE, ..phase(Op::Read, IMAGES) };
        let phases = if is_sync {
            vec![Phase { compute, ..step }]
        } else {
            (0..STEPS).map(|at| Phase { not_before: Nanos(at * compute.0), ..step }).collect()
        };
        Job {
            info: JobInfo { nodes: RESNET_NODES, ..JobInfo::new("ResNet-50", "user", "group") },
            processes: READERS,
            depth: 1,
            targets: vec![0],
            layout: Layout::Striped,
            phases,
            iterations: Some(if is_sync { STEPS } else { 1 }),
            start: Nanos::ZERO,
            stop: Nanos::MAX,
        }
    }

    fn run(seed: u64, context: &Context) -> Result<Self, Stopped> {
        let elapsed = |job: &Job, policy| elapsed_s(job, policy, (SERVERS, seed), Tuning::default(), context);
        // Seconds of reading a step's images, alone or under fifo, with so much time for each image.
        let reading = |image: Nanos, policy| {
            Ok::<f64, Stopped>(elapsed(&Self::job(image, Nanos::ZERO, true), policy)? / STEPS as f64)
        };
        // With c to compute, r to read alone and f under fifo: r = 0.621 c, and c + f = 2 (c + r). More time for each image
        // makes f less for the same r, so it is found by halving.
        let fifo_over_alone = (SYNC_FIFO * SYNC_OVER_ASYNC - 1.0) / (SYNC_OVER_ASYNC - 1.0);
        let (mut low, mut high) = (Nanos::ZERO, IMAGE_MAX);
        for _ in 0..HALVINGS {
            let image = Nanos(u64::midpoint(low.0, high.0));
            let ratio = reading(image, Some(FIFO))? / reading(image, None)?;
            if ratio > fifo_over_alone { low = image } else { high = image }
        }
        let image = low;
        let compute = Nanos((reading(image, None)? / (SYNC_OVER_ASYNC - 1.0) * 1e9) as u64);
        let slowdown = |is_sync: bool, policy| {
            let job = Self::job(image, compute, is_sync);
            // The last batch is computed after it was read.
            let last_s = if is_sync { 0.0 } else { compute.as_secs_f64() };
            Ok::<f64, Stopped>(
                100.0 * ((elapsed(&job, Some(policy))? + last_s) / (elapsed(&job, None)? + last_s) - 1.0),
            )
        };
        Ok(Self {
            io_percent: 100.0 * (1.0 - 1.0 / SYNC_OVER_ASYNC),
            sync_fifo: slowdown(true, FIFO)?,
            sync_fair: slowdown(true, TOKENS)?,
            async_fifo: slowdown(false, FIFO)?,
            async_fair: slowdown(false, TOKENS)?,
        })
    }
}

fn resnet_claims(found: &[Resnet]) -> Vec<Claim> {
    let of = |value: fn(&Resnet) -> f64| Interval::by(found, value);
    let bound = 100.0 / f64::from(RESNET_NODES);
    vec![
        Claim::new(
            "ResNet-50 that reads synchronously",
            "2.0 times as long under fifo, 1.1 % longer under size-fair",
            vec![
                Test::near("fifo", of(|found| found.sync_fifo), 100.0).unit(" %"),
                Test::within("size-fair", of(|found| found.sync_fair), 1.1, 0.22).unit(" %"),
            ],
        )
        .why("fifo and what synchronous reading costs alone set the model; size-fair is a prediction"),
        Claim::new(
            "ResNet-50 that reads ahead is the exception: it loses more, and more than the bound",
            "2.7 times as long under fifo, 12.9 % longer under size-fair, bound 5.9 %",
            vec![
                Test::near("fifo", of(|found| found.async_fifo), 170.0).unit(" %"),
                Test::near("size-fair", of(|found| found.async_fair), 12.9).unit(" %"),
                Test::above("size-fair above the bound", of(|found| found.async_fair), bound).unit(" %"),
            ],
        )
        .why(
            "reading ahead hides reading as long as it is shorter than computing, and size-fair keeps it so: what the \
             paper saw is not the change of what bounds it, as it supposes",
        ),
    ]
}

/// A part of I/O and the window in which a job that pauses stays in the account.
const PAUSE_PARTS: [f64; 5] = [0.1, 0.2, 0.3, 0.4, 0.5];
const WINDOWS_MS: [u64; 2] = [20, 5];

fn configuration_of_pause() -> serde_json::Value {
    json!({ "parts": PAUSE_PARTS, "active_windows_ms": WINDOWS_MS, "draw": "virtual-time", "seeds": [1, 2, 3] })
}

/// Short bursts with short pauses: a job that is back before it counts as gone is owed what it left meanwhile.
fn pause(configuration: serde_json::Value, context: &Context) -> Result<Finding, Stopped> {
    let application = Application { requests: 20, ..APPLICATIONS[2] };
    let burst_s = f64::from(application.writers) * application.requests as f64 * BLOCK.0 as f64 / BANDWIDTH as f64;
    let mut data = Data::new(&["active_window_ms", "io_percent", "seed", "pause_ms", "slowdown_percent"]);
    let mut tests = Vec::new();
    for window_ms in WINDOWS_MS {
        let tuning = Tuning { active_window: Nanos::from_millis(window_ms), ..Tuning::default() };
        for part in PAUSE_PARTS {
            let compute = Nanos((burst_s * (1.0 - part) / part * 1e9) as u64);
            let job = application.job(compute);
            let of_seed = |seed: u64| -> Result<f64, Stopped> {
                let elapsed = |policy| elapsed_s(&job, policy, (1, seed), tuning, context);
                Ok(100.0 * (elapsed(Some(VIRTUAL_TIME))? / elapsed(None)? - 1.0))
            };
            let slowdowns: Vec<f64> = (1..=3).into_par_iter().map(of_seed).collect::<Result<_, _>>()?;
            for (seed, slowdown) in (1_u64..).zip(&slowdowns) {
                let pause_ms = compute.as_secs_f64() * 1e3;
                data.push([window_ms.into(), (100.0 * part).into(), seed.into(), pause_ms.into(), (*slowdown).into()]);
            }
            // With half of its time in I/O it would take 1/4 of that longer.
            if part == PAUSE_PARTS[PAUSE_PARTS.len() - 1] {
                let expected = part * application.bound_percent();
                let what = format!("window {window_ms} ms");
                let measured = Interval::of(&slowdowns);
                tests.push(if window_ms == WINDOWS_MS[0] {
                    Test::below(what, measured, expected / 4.0).unit(" %")
                } else {
                    Test::near(what, measured, expected).unit(" %")
                });
            }
        }
    }
    let chart = Chart::lines(
        "Four nodes beside one, bursts of 15 ms, size-fair by virtual time",
        ("io_percent", "part of the time alone that is I/O [%]"),
        ("slowdown_percent", "slowdown [%]"),
    );
    Ok(Finding {
        table: None,
        item: "pause",
        title: "slowdown by the length of the pauses".to_owned(),
        configuration,
        data,
        charts: vec![chart.by("active_window_ms")],
        claims: vec![
            Claim::ours(
                "a job that pauses for less than the active window is owed what it left, and hardly slowed down",
                tests,
            )
            .why(
                "with half of its time in I/O it pauses for 15 ms, less than the 20 ms for which a job without requests stays \
                 in the account, and is served before the others until it has caught up; with less I/O it pauses for longer \
                 and begins anew",
            ),
        ],
    })
}
