//! Fig. 12: two jobs of one node on one server, under ThemisIO, GIFT, and token buckets.
//!
//! GIFT runs as the paper's port of it ([`GiftPort`]), every μ = 0.5 s, and what it allocates is drawn by statistical tokens. Token buckets give each job half of the server, and what is spare in proportion (PSSB). Where in an interval
//! of GIFT the second job comes is drawn anew for each seed.
//!
//! Job 2's throughput is sampled each second over the 30 s that it runs; the paper does not say that its first samples are
//! left out, and names latency to fair sharing as a measure.

use super::server::{BANDWIDTH, benchmark, deviation, gb_per_s, median, on_one_server};
use super::sharing::Course;
use crate::chart::Chart;
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::gift_port::GiftPort;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use crate::simulate::simulate_with;
use isonomia_policy::{Arbiter, Draw, PolicySpec, Tuning, build};
use isonomia_units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use serde_json::json;

/// Between two decisions of the port (§5.4).
const INTERVAL: Nanos = Nanos::from_millis(500);
/// By how many per cent ThemisIO's sustained throughput, and job 2's, is above GIFT's and token buckets'; and job 2's
/// deviation below.
const PAPER_PEAK: [f64; 2] = [13.5, 13.7];
const PAPER_JOB2: [f64; 2] = [7.9, 14.7];
const PAPER_DEVIATION: [f64; 2] = [19.5, 40.4];

/// What one run gives, in GB/s and MB/s.
#[derive(Clone, Copy)]
struct Sample {
    /// Of both jobs together, the middle of the seconds in which both are there.
    total: f64,
    /// Of job 2, the same.
    job2: f64,
    /// Of job 2 over all of its seconds.
    deviation_mb: f64,
}

fn sample(setting: &Setting, seed: u64, context: &Context) -> Result<Sample, Stopped> {
    let Course { from, to, end } = Course::of(context.quick);
    let jobs = vec![benchmark("job1", "a", "group", 1, 0, end), benchmark("job2", "b", "group", 1, from, to)];
    let scenario = on_one_server(&setting.policy, setting.draw, seed, jobs, end, (from, to));
    let first_decision = Nanos(Pcg64::seed_from_u64(seed).random_range(0..INTERVAL.0));
    let gift = GiftPort::new(1, INTERVAL, first_decision);
    let arbiter = |policy: &PolicySpec, draw: Draw, seed: u64, tuning: Tuning| -> Box<dyn Arbiter> {
        let inner = build(policy, draw, seed, tuning);
        if setting.is_gift { gift.arbiter(0, inner) } else { inner }
    };
    let outcome = simulate_with(&scenario, &arbiter, context)?;
    let [first, second] = [0, 1].map(|job| gb_per_s(&outcome, job, (from, to)));
    let total: Vec<f64> = first.iter().zip(&second).map(|(a, b)| a + b).collect();
    Ok(Sample { total: median(&total), job2: median(&second), deviation_mb: 1000.0 * deviation(&second) })
}

struct Setting {
    name: &'static str,
    policy: String,
    draw: Draw,
    is_gift: bool,
}

/// Positions in the settings.
const THEMIS: usize = 0;
const PEERS: [usize; 2] = [1, 2];

/// Computes the figure.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let seeds = if context.quick { 4 } else { 10 };
    let setting = |name, policy: &str, draw| Setting { name, policy: policy.to_owned(), draw, is_gift: false };
    let buckets = format!("tbf{{job:*={}B/s,spare=proportional}}", BANDWIDTH / 2);
    let settings = [
        setting("job-fair, tokens", "job-fair", Draw::Lottery),
        Setting { is_gift: true, ..setting("gift", "priority-fair", Draw::Lottery) },
        setting("token buckets", &buckets, Draw::VirtualTime),
        setting("job-fair, virtual time", "job-fair", Draw::VirtualTime),
        setting("fifo", "fifo", Draw::VirtualTime),
    ];
    let cells: Vec<(usize, u64)> = (0..settings.len()).flat_map(|at| (1..=seeds).map(move |seed| (at, seed))).collect();
    let samples: Vec<Sample> =
        cells.par_iter().map(|(at, seed)| sample(&settings[*at], *seed, context)).collect::<Result<_, Stopped>>()?;
    let mut data = Data::new(&["setting", "seed", "total_gb_per_s", "job2_gb_per_s", "job2_deviation_mb_per_s"]);
    for ((at, seed), sample) in cells.iter().zip(&samples) {
        data.push([
            settings[*at].name.into(),
            (*seed).into(),
            sample.total.into(),
            sample.job2.into(),
            sample.deviation_mb.into(),
        ]);
    }
    let by_setting: Vec<&[Sample]> = samples.chunks(seeds as usize).collect();
    let of = |at: usize, value: fn(&Sample) -> f64| Interval::by(by_setting[at], value);
    // By how many per cent ThemisIO by tokens is above a peer in the same seed.
    let above = |at: usize, value: fn(&Sample) -> f64| {
        Interval::by(by_setting[THEMIS].iter().zip(by_setting[at]), |(own, peer)| {
            100.0 * (value(own) / value(peer) - 1.0)
        })
    };
    let tests = |value: fn(&Sample) -> f64, papers: [f64; 2], sign: f64| -> Vec<Test> {
        let test = |(at, paper): (usize, f64)| {
            let measured = above(at, value);
            Test::near(format!("against {}", settings[at].name), measured, sign * paper).unit(" %")
        };
        PEERS.into_iter().zip(papers).map(test).collect()
    };
    let all = |value: fn(&Sample) -> f64| {
        (0..settings.len()).map(|at| format!("{} {}", settings[at].name, of(at, value))).collect::<Vec<_>>().join(", ")
    };
    let deviation = |sample: &Sample| sample.deviation_mb;
    let order = |a: usize, b: usize| {
        let pairs = by_setting[a].iter().zip(by_setting[b]);
        let ratio = Interval::by(pairs, |(a, b)| a.deviation_mb / b.deviation_mb);
        Test::below(format!("{} over {}", settings[a].name, settings[b].name), ratio, 1.0)
    };
    let claims = vec![
        Claim::new(
            "sustained throughput above that of GIFT and of token buckets",
            "19.8 GB/s, 13.5 % and 13.7 % more",
            tests(|sample| sample.total, PAPER_PEAK, 1.0),
        )
        .beside(format!("in GB/s: {}", all(|sample| sample.total)))
        .why(
            "while jobs have requests queued, neither GIFT's decisions nor buckets that give away what is spare leave the \
             server idle; what the paper's ports lose is not in the algorithms",
        ),
        Claim::new(
            "job 2's throughput above that under GIFT and token buckets",
            "10.2 GB/s, 7.9 % and 14.7 % more",
            tests(|sample| sample.job2, PAPER_JOB2, 1.0),
        )
        .beside(format!("in GB/s: {}", all(|sample| sample.job2)))
        .why("both give it half of the server, as ThemisIO does"),
        Claim::new(
            "job 2's throughput deviates least under ThemisIO, more under GIFT, most under token buckets",
            "504, 626, 845 MB/s",
            vec![order(THEMIS, PEERS[0]), order(PEERS[0], PEERS[1])],
        )
        .beside(format!("in MB/s: {}", all(deviation)))
        .why(
            "GIFT's deviation is the first second, of which job 2 waits for a decision; a draw by tokens has noise that \
             buckets, which count bytes, have not",
        ),
        Claim::new(
            "by how much job 2's deviation is lower",
            "19.5 % and 40.4 %",
            tests(deviation, PAPER_DEVIATION, -1.0),
        ),
    ];
    let x = ("setting", "");
    Ok(vec![Finding {
        table: None,
        item: "fig12",
        title: "two jobs of one node".to_owned(),
        configuration: json!({ "seeds": (1..=seeds).collect::<Vec<_>>(), "gift_interval_ms": INTERVAL.0 / 1_000_000 }),
        data,
        charts: vec![
            Chart::bars("Deviation of job 2's throughput", x, ("job2_deviation_mb_per_s", "MB/s"))
                .paper(Some("job-fair, tokens"), 504.0)
                .paper(Some("gift"), 626.0)
                .paper(Some("token buckets"), 845.0),
            Chart::bars("Throughput of both jobs", x, ("total_gb_per_s", "GB/s"))
                .named("throughput")
                .paper(Some("job-fair, tokens"), 19.8)
                .paper(Some("gift"), 19.8 / 1.135)
                .paper(Some("token buckets"), 19.8 / 1.137),
        ],
        claims,
    }])
}
