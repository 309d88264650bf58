//! `isonomia-bench exchange`: how soon and how steadily jobs have their shares of the whole system (ThemisIO §5.6, Fig. 14).
//!
//! Two capped servers under `size-fair`; a job of 16 nodes has files on both, one of 8 nodes on the first, another one of 8 on the
//! second. Each server by itself would give the first job two thirds, where half is due. So an *episode* begins: all jobs are silent until
//! the servers have forgotten them, and then start at one instant, which is at any point of the servers' interval λ. It is looked
//! at in intervals of λ from that instant, as many as fit; a request counts in the one in which it ends.
//!
//! The ways of dividing ([`HOWS`]) have a pair of servers each, started together, and alternate. Requests are small against what a
//! server does in the shortest interval, and each job has several under way on each server, so that what is seen is whom the
//! servers choose, and not how soon a process comes back.

use crate::arguments::ExchangeOptions;
use crate::clock::now_ns;
use crate::crew::{Crew, start_ns};
use crate::harness::Harness;
use crate::report::{Must, Report, Row, keep};
use crate::server::{Cap, GIFT_BANDWIDTH, ServerOptions, ServerProcess};
use crate::slices;
use crate::statistics::deviation;
use crate::task::{Direction, FileState, Log, Operation, Order, Task, Transfer};
use crate::way::{Identity, Way as Reach};
use anyhow::{Context, Result, ensure};
use isonomia_plot::{Line, Plot};
use serde::Serialize;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

const JOBS: usize = 3;
/// Name, nodes, share due, and the servers that its files are on.
const TABLE: [(&str, u32, f64, &[u16]); JOBS] =
    [("16 nodes", 16, 0.5, &[1, 2]), ("8 nodes", 8, 0.25, &[1]), ("8 others", 8, 0.25, &[2])];
/// Of each server, as of one of GIFT's targets: a request takes a quarter of a millisecond.
const CAP: Cap = Cap { bandwidth: GIFT_BANDWIDTH, per_op: "0" };
const BLOCK_BYTES: u64 = 24 << 10;
const FILE_BYTES: u64 = 10 * BLOCK_BYTES;
/// Of a job on each of its servers, with one request under way each.
const PROCESSES: u32 = 4;
/// Shares are asked to be as near as this to what is due, relative to it.
const TOLERANCE: f64 = 0.03;
/// Variation is looked at from this interval on, counted from 0: in the first two the servers find out.
const SETTLED: usize = 2;
/// And besides in windows of so much, whatever λ is.
const WINDOW_NS: u64 = 100_000_000;
/// Servers forget silent jobs after three intervals and this.
const FORGET_NS: u64 = 400_000_000;

/// How shares are divided.
struct How {
    name: &'static str,
    exchange_by: &'static str,
    draw: &'static str,
}

/// The first is ours. The second has the paper's rule instead, the third the paper's tokens, drawn by chance, as well.
const HOWS: [How; 3] = [
    How { name: "received", exchange_by: "received", draw: "virtual-time" },
    How { name: "presence", exchange_by: "presence", draw: "virtual-time" },
    How { name: "presence, lottery", exchange_by: "presence", draw: "lottery" },
];

#[derive(Debug, Serialize)]
struct Configuration {
    repeats: u32,
    jobs_nodes_due_servers: [(&'static str, u32, f64, &'static [u16]); JOBS],
    bandwidth: &'static str,
    block_bytes: u64,
    processes: u32,
    intervals_ms: Vec<u64>,
    server_workers: Option<u32>,
}

/// Bytes of each job in each interval.
type Episode = Vec<[u64; JOBS]>;

/// What is done at one λ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    interval_ns: u64,
    /// In each repeat, of each way.
    episodes: usize,
    intervals: usize,
}

impl Plan {
    /// As many intervals as say something about variation, and the more episodes the shorter they are.
    fn new(interval_ns: u64, is_quick: bool) -> Self {
        let steady_ns: u64 = if is_quick { 500_000_000 } else { 1_000_000_000 };
        let intervals = SETTLED + (steady_ns / interval_ns).max(8) as usize;
        let episodes = match (is_quick, interval_ns) {
            (true, _) => 2,
            (false, 0..50_000_000) => 8,
            (false, 50_000_000..200_000_000) => 6,
            (false, 200_000_000..500_000_000) => 3,
            (false, _) => 2,
        };
        Self { interval_ns, episodes, intervals }
    }

    fn name(&self) -> String {
        format!("{}ms", self.interval_ns / 1_000_000)
    }
}

/// Two servers and the processes of all jobs.
struct Lane {
    how: &'static How,
    /// Each with the number of its job. They end before the servers do.
    crews: Vec<(usize, Crew)>,
    _servers: ServerProcess,
}

impl Lane {
    fn start(harness: &Harness, how: &'static How, plan: &Plan, workers: Option<u32>, logs: &Path) -> Result<Self> {
        let name = format!("{}-{}-{}", plan.name(), how.exchange_by, how.draw);
        let options = ServerOptions {
            cap: Some(CAP),
            workers,
            cluster: Some(2),
            cluster_settings: format!("exchange = \"{}\"\nexchange_by = \"{}\"\n", plan.name(), how.exchange_by),
            draw: Some(how.draw),
            ..ServerOptions::default()
        };
        let mut servers = ServerProcess::start(harness, &name, &options, &logs.join(format!("server-{name}.log")))?;
        servers.set_policy("size-fair")?;
        let mut endpoints = Vec::new();
        for server in 1..=2 {
            servers.work_in(&format!("on-{server}"), Some(server), None)?;
            endpoints.push(servers.endpoints().clone());
        }
        let mut crews = Vec::new();
        let mut number = 0;
        for (job, (name, nodes, _, on)) in TABLE.into_iter().enumerate() {
            let identity = Identity { job: name.into(), user: name.into(), group: "bench".into(), nodes };
            for server in on {
                let endpoint = &endpoints[usize::from(*server) - 1];
                let numbers = number..number + PROCESSES;
                number += PROCESSES;
                let worker = |number| Reach::Preload.worker(&harness.programs, endpoint, &identity, number);
                crews.push((job, Crew::start(&format!("job {name} on server {server}"), numbers.map(worker))?));
            }
        }
        Ok(Self { how, crews, _servers: servers })
    }

    fn episode(&mut self, harness: &Harness, plan: &Plan) -> Result<Episode> {
        let transfer = Transfer {
            direction: Direction::Write,
            order: Order::Random,
            block_bytes: BLOCK_BYTES,
            file_bytes: FILE_BYTES,
            file: FileState::Filled,
            log: Log::Slices { slice_ns: plan.interval_ns },
        };
        let duration_ns = plan.interval_ns * plan.intervals as u64;
        let task = Task { operation: Operation::Transfer(transfer), duration_ns, delay_ns: 0 };
        for (_, crew) in &mut self.crews {
            crew.prepare(harness, &task)?;
        }
        harness.nap(Duration::from_nanos(3 * plan.interval_ns + FORGET_NS))?;
        let origin_ns = start_ns();
        for (_, crew) in &mut self.crews {
            crew.go(origin_ns)?;
        }
        ensure!(now_ns() < origin_ns, "the processes could not be started at one instant");
        let mut of_jobs: [Vec<Vec<u64>>; JOBS] = Default::default();
        for (job, crew) in &mut self.crews {
            of_jobs[*job].extend(crew.collect(harness, &task)?.into_iter().map(|outcome| outcome.slices));
        }
        let of_jobs = of_jobs.map(slices::add);
        Ok((0..plan.intervals).map(|at| std::array::from_fn(|job| of_jobs[job][at])).collect())
    }
}

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &ExchangeOptions) -> Result<()> {
    let common = &options.common;
    let harness = Harness::new(common.isonomia.as_deref())?;
    let configuration = Configuration {
        repeats: common.repeat,
        jobs_nodes_due_servers: TABLE,
        bandwidth: CAP.bandwidth,
        block_bytes: BLOCK_BYTES,
        processes: PROCESSES,
        intervals_ms: options.intervals_ms.clone(),
        server_workers: common.workers,
    };
    let mut report = Report::new("exchange", common, configuration)?;
    let mut rows = Vec::new();
    let done = options.intervals_ms.iter().try_for_each(|ms| {
        let plan = Plan::new(ms * 1_000_000, common.quick);
        at_interval(&harness, &plan, (common.repeat, common.workers), report.dir(), &mut rows)
            .with_context(|| format!("at {}", plan.name()))
    });
    report.error = done.as_ref().err().map(|error: &anyhow::Error| format!("{error:#}"));
    report.rows = rows;
    report.publish(common.json)?;
    done
}

fn at_interval(
    harness: &Harness,
    plan: &Plan,
    (repeats, workers): (u32, Option<u32>),
    dir: &Path,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let start = |how| Lane::start(harness, how, plan, workers, dir);
    let mut lanes = HOWS.iter().map(start).collect::<Result<Vec<Lane>>>()?;
    let mut all: Vec<Vec<Vec<Episode>>> = vec![Vec::new(); HOWS.len()];
    for repeat in 0..repeats {
        eprintln!("isonomia-bench: repeat {} of {repeats}, interval {}", repeat + 1, plan.name());
        let mut of_repeat: Vec<Vec<Episode>> = vec![Vec::new(); HOWS.len()];
        for at in 0..plan.episodes {
            for step in 0..HOWS.len() {
                // Who is first differs from time to time.
                let lane = (step + at + repeat as usize) % HOWS.len();
                let episode = harness.undisturbed(|| lanes[lane].episode(harness, plan));
                of_repeat[lane].push(episode.with_context(|| lanes[lane].how.name)?);
            }
        }
        note(plan, &of_repeat, rows);
        all.iter_mut().zip(of_repeat).for_each(|(all, episodes)| all.push(episodes));
    }
    write_raw(plan, &all, &dir.join(format!("exchange-{}.csv", plan.name())))?;
    for (how, repeats) in HOWS.iter().zip(&all) {
        plot(plan, how, &repeats.concat(), dir)?;
    }
    Ok(())
}

/// The figures of one repeat.
fn note(plan: &Plan, of_repeat: &[Vec<Episode>], rows: &mut Vec<Row>) {
    let name = plan.name();
    let settled = SETTLED..plan.intervals;
    let window = (WINDOW_NS / plan.interval_ns).max(1) as usize;
    let by_presence = &of_repeat[1];
    for (at, (how, episodes)) in HOWS.iter().zip(of_repeat).enumerate() {
        let is_ours = at == 0;
        let mut add = |what: &str, unit, must: Option<Must>, value: f64, baseline: Option<f64>| {
            let row = Row::new(format!("{name}: {what}"), how.name, unit, vec![value]);
            let row = baseline.map_or(row.clone(), |baseline| row.beside(&[baseline]));
            keep(rows, Row { must: must.filter(|_| is_ours), ..row });
        };
        let near = Some(Must::at_most(100.0 * TOLERANCE));
        let second = off(share(episodes, 1..2));
        add("worst job off its share in the second interval", "%", near, 100.0 * second, None);
        let first = first_fair(episodes);
        add("first interval in which all have theirs", "th", Some(Must::at_most(2.0)), first as f64, None);
        add(
            "worst job off its share from the third on",
            "%",
            near,
            100.0 * off(share(episodes, settled.clone())),
            None,
        );
        let least = (plan.interval_ns < WINDOW_NS / 2).then(|| Must::ratio_at_most(1.0));
        let of = |episodes: &[Episode], window| 100.0 * variation(episodes, settled.clone(), window);
        let baseline = |window| (at != 1).then(|| of(by_presence, window));
        add("deviation of shares from interval to interval", "%", least, of(episodes, 1), baseline(1));
        if window > 1 {
            add("deviation of shares from 100 ms to 100 ms", "%", least, of(episodes, window), baseline(window));
        }
        let bytes: u64 = episodes.iter().flatten().flatten().sum();
        let s = (plan.interval_ns * plan.intervals as u64 * episodes.len() as u64) as f64 / 1e9;
        add("both servers together", "MiB/s", None, bytes as f64 / s / f64::from(1 << 20), None);
    }
}

/// The share of each job in these intervals of all episodes together.
fn share(episodes: &[Episode], intervals: Range<usize>) -> [f64; JOBS] {
    let mut sums = [0; JOBS];
    for had in episodes.iter().flat_map(|episode| &episode[intervals.clone()]) {
        sums.iter_mut().zip(had).for_each(|(sum, had)| *sum += had);
    }
    let all = sums.iter().sum::<u64>().max(1);
    sums.map(|sum| sum as f64 / all as f64)
}

/// How far the worst job is off what is due to it, relative to that.
fn off(shares: [f64; JOBS]) -> f64 {
    let off = shares.iter().zip(TABLE).map(|(share, (_, _, due, _))| (share / due - 1.0).abs());
    off.fold(0.0, f64::max)
}

/// The first interval, counted from 1, in which each job has its share over all episodes; one more than there are if there is none.
fn first_fair(episodes: &[Episode]) -> usize {
    let intervals = episodes.first().map_or(0, Vec::len);
    let is_fair = |at: &usize| off(share(episodes, *at..*at + 1)) <= TOLERANCE;
    (0..intervals).find(is_fair).unwrap_or(intervals) + 1
}

/// The standard deviation of a job's share of so many intervals together, relative to its share due; the mean over the jobs.
fn variation(episodes: &[Episode], settled: Range<usize>, window: usize) -> f64 {
    let windows = || episodes.iter().flat_map(|episode| episode[settled.clone()].chunks_exact(window));
    let of = |job: usize| {
        let shares: Vec<f64> = windows().map(|window| share(&[window.to_vec()], 0..window.len())[job]).collect();
        deviation(&shares) / TABLE[job].2
    };
    (0..JOBS).map(of).sum::<f64>() / JOBS as f64
}

fn write_raw(plan: &Plan, all: &[Vec<Vec<Episode>>], path: &Path) -> Result<()> {
    let mut csv = csv::Writer::from_path(path).with_context(|| format!("cannot write {}", path.display()))?;
    csv.write_record(["rule", "repeat", "episode", "interval", "interval_ns", "job", "bytes"])?;
    for (how, repeats) in HOWS.iter().zip(all) {
        for (repeat, episodes) in repeats.iter().enumerate() {
            for (number, episode) in episodes.iter().enumerate() {
                for (at, had) in episode.iter().enumerate() {
                    for ((job, ..), bytes) in TABLE.iter().zip(had) {
                        let numbers = [repeat, number, at + 1].map(|number| number.to_string());
                        let (length, bytes) = (plan.interval_ns.to_string(), bytes.to_string());
                        csv.write_record([how.name, &numbers[0], &numbers[1], &numbers[2], &length, job, &bytes])?;
                    }
                }
            }
        }
    }
    Ok(csv.flush()?)
}

/// As the paper's Fig. 14: shares by interval, of all episodes together.
fn plot(plan: &Plan, how: &How, episodes: &[Episode], dir: &Path) -> Result<()> {
    /// The beginning is what is of interest.
    const SHOWN: usize = 12;
    let shown = plan.intervals.min(SHOWN);
    let line = |job: usize| {
        let (name, _, due, _) = TABLE[job];
        let point = |at: usize| ((at + 1) as f64, 100.0 * share(episodes, at..at + 1)[job]);
        Line {
            label: format!("{name}, {:.0} % due", 100.0 * due),
            points: (0..shown).map(point).collect(),
            reference: Some((0.0, shown as f64, 100.0 * due)),
        }
    };
    let plot = Plot {
        caption: format!("Shares of two servers, interval {}, {}", plan.name(), how.name),
        x: "interval",
        y: "share of all bytes, %",
        lines: (0..JOBS).map(line).collect(),
    };
    let file = |ending: &str| dir.join(format!("exchange-{}-{}-{}.{ending}", plan.name(), how.exchange_by, how.draw));
    Ok(plot.save(&file("png"), &file("svg"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unfair in the first interval, fair in the second on the mean of both episodes, then alternating.
    fn episodes() -> Vec<Episode> {
        let first = vec![[67, 17, 16], [40, 30, 30], [60, 20, 20], [40, 30, 30], [60, 20, 20], [40, 30, 30]];
        let second = vec![[67, 17, 16], [60, 20, 20], [60, 20, 20], [40, 30, 30], [60, 20, 20], [40, 30, 30]];
        vec![first, second]
    }

    #[test]
    fn shares_are_those_of_all_episodes_together() {
        let episodes = episodes();
        assert_eq!(share(&episodes, 1..2), [0.5, 0.25, 0.25]);
        assert_eq!(off(share(&episodes, 1..2)), 0.0);
        assert!((off([0.49, 0.25, 0.26]) - 0.04).abs() < 1e-9, "relative to what is due");
        assert_eq!(first_fair(&episodes), 2);
        assert_eq!(first_fair(&episodes[..1]), 7, "never");
    }

    #[test]
    fn variation_is_relative_to_what_is_due_and_lessens_with_the_window() {
        let episodes = episodes();
        let one = variation(&episodes, SETTLED..6, 1);
        // A tenth of all about the half of all, and a twentieth about the quarter.
        assert!((one - 0.2).abs() < 1e-9, "{one}");
        assert_eq!(variation(&episodes, SETTLED..6, 2), 0.0);
    }

    #[test]
    fn every_interval_is_looked_at_for_long_enough() {
        for ms in [10, 50, 200, 500] {
            let plan = Plan::new(ms * 1_000_000, false);
            assert!(plan.intervals >= SETTLED + 8 && plan.intervals as u64 * plan.interval_ns >= 1_000_000_000);
            assert!(plan.intervals as u64 <= slices::SLICES_MAX && plan.episodes >= 2);
        }
    }
}
