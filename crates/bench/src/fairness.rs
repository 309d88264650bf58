//! `isonomia-bench fairness`: what jobs receive of a server they compete for.
//!
//! The target is capped, so that they compete for it and not for the cores of this machine; one row is taken on
//! an uncapped one too. Shares are of bytes where all requests are alike, and of service cost where they are not.

use crate::arguments::FairnessOptions;
use crate::contest::{Contest, Contestant, Received, SLICE_NS};
use crate::harness::Harness;
use crate::report::{Must, Report, Row, keep};
use crate::server::{Cap, ServerOptions, ServerProcess};
use crate::statistics::time_to_share;
use crate::task::Direction;
use crate::way::{Identity, Way};
use anyhow::{Context, Result};
use serde::Serialize;

/// Slow enough that two cores have time to spare at its full speed.
const CAP: Cap = Cap { bandwidth: "1GiB/s", per_op: "20us" };
const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
/// The file of each process.
const FILE_BYTES: u64 = 32 * MIB;
/// The window in which a newcomer must have its share, in slices, and how nearly.
const WINDOW_SLICES: usize = 5;
const SHARE_TOLERANCE: f64 = 0.05;

#[derive(Debug, Serialize)]
struct Configuration {
    repeats: u32,
    way: Way,
    bandwidth: &'static str,
    per_op: &'static str,
    contest_ns: u64,
    settling_ns: u64,
    file_bytes: u64,
    server_workers: Option<u32>,
}

/// What experiments stand on.
struct Bench<'a> {
    harness: &'a Harness,
    configuration: &'a Configuration,
    capped: ServerProcess,
    uncapped: ServerProcess,
    rows: &'a mut Vec<Row>,
}

type Experiment = fn(&mut Bench) -> Result<()>;

const EXPERIMENTS: [(&str, Experiment); 11] = [
    ("1:4 job-fair, capped, write", |b| b.one_against_four("job-fair", true, Direction::Write)),
    ("1:4 job-fair, capped, read", |b| b.one_against_four("job-fair", true, Direction::Read)),
    ("1:4 job-fair, uncapped, write", |b| b.one_against_four("job-fair", false, Direction::Write)),
    ("1:4 fifo, capped, write", |b| b.one_against_four("fifo", true, Direction::Write)),
    ("4 nodes : 1 size-fair", |b| b.four_nodes_against_one("size-fair")),
    ("4 nodes : 1 fifo", |b| b.four_nodes_against_one("fifo")),
    ("composite", |b| b.composite()),
    ("4 KiB : 1 MiB job-fair", |b| b.small_against_large("job-fair")),
    ("4 KiB : 1 MiB fifo", |b| b.small_against_large("fifo")),
    ("lone job", |b| b.lone()),
    ("newcomer", |b| b.newcomer()),
];

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &FairnessOptions) -> Result<()> {
    let common = &options.common;
    let is_wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let wanted: Vec<_> = EXPERIMENTS.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    if wanted.is_empty() {
        let names = EXPERIMENTS.map(|(name, _)| name).join("; ");
        anyhow::bail!("no row is called like that; there are: {names}");
    }
    let harness = Harness::new(common.isonomia.as_deref())?;
    let configuration = Configuration {
        repeats: common.repeat,
        way: options.way,
        bandwidth: CAP.bandwidth,
        per_op: CAP.per_op,
        contest_ns: if common.quick { 1_200_000_000 } else { 3_000_000_000 },
        settling_ns: if common.quick { 300_000_000 } else { 500_000_000 },
        file_bytes: FILE_BYTES,
        server_workers: common.workers,
    };
    let mut report = Report::new("fairness", common, configuration)?;
    let log = |name: &str| report.dir().join(format!("server-{name}.log"));
    let start = |name: &str, cap| {
        ServerProcess::start(
            &harness,
            name,
            &ServerOptions {
                cap,
                workers: common.workers,
                mount: options.way == Way::Mount,
                ..ServerOptions::default()
            },
            &log(name),
        )
    };
    let (capped, uncapped) = (start("capped", Some(CAP))?, start("uncapped", None)?);
    let mut rows = Vec::new();
    let mut bench =
        Bench { harness: &harness, configuration: &report.configuration, capped, uncapped, rows: &mut rows };
    let done = bench.repeat(&wanted);
    drop(bench);
    report.error = done.as_ref().err().map(|error| format!("{error:#}"));
    report.rows = rows;
    report.publish(common.json)?;
    done
}

fn contestant(job: &str, processes: u32, block_bytes: u64) -> Contestant {
    let identity = Identity { job: job.to_owned(), user: job.to_owned(), group: "bench".to_owned(), nodes: 1 };
    Contestant { identity, processes, block_bytes, delay_ns: 0 }
}

impl Bench<'_> {
    fn repeat(&mut self, wanted: &[(&str, Experiment)]) -> Result<()> {
        for repeat in 1..=self.configuration.repeats {
            for (name, experiment) in wanted {
                eprintln!("isonomia-bench: repeat {repeat} of {}, {name}", self.configuration.repeats);
                experiment(self).with_context(|| (*name).to_owned())?;
            }
        }
        Ok(())
    }

    fn contest(&self, policy: &'static str, jobs: Vec<Contestant>) -> Contest {
        Contest {
            policy,
            direction: Direction::Write,
            jobs,
            duration_ns: self.configuration.contest_ns,
            settling_ns: self.configuration.settling_ns,
        }
    }

    fn run(&mut self, contest: &Contest, is_capped: bool) -> Result<Vec<Received>> {
        let server = if is_capped { &mut self.capped } else { &mut self.uncapped };
        contest.run(self.harness, server, self.configuration.way, self.configuration.file_bytes)
    }

    /// Adds one repeat to a row.
    fn keep(&mut self, name: String, unit: &'static str, must: Option<Must>, value: f64) {
        keep(self.rows, Row { must, ..Row::new(name, self.configuration.way, unit, vec![value]) });
    }

    /// One synchronous process against four.
    fn one_against_four(&mut self, policy: &'static str, is_capped: bool, direction: Direction) -> Result<()> {
        let jobs = vec![contestant("one", 1, MIB), contestant("four", 4, MIB)];
        let contest = Contest { direction, ..self.contest(policy, jobs) };
        let received = self.run(&contest, is_capped)?;
        let cap = if is_capped { "capped" } else { "uncapped" };
        let verb = if direction == Direction::Read { "read" } else { "write" };
        let what = format!("{policy}, 1 : 4 processes, 1 MiB {verb}, {cap}");
        let is_fair = policy != "fifo";
        self.keep(
            format!("{what}: share of the one"),
            "%",
            is_fair.then(|| Must::near(50.0, 2.0)),
            100.0 * received[0].share,
        );
        self.keep(
            format!("{what}: both together"),
            "MiB/s",
            None,
            received.iter().map(Received::throughput).sum::<f64>() / MIB as f64,
        );
        for (one, job) in received.iter().zip(["the one", "the four"]) {
            self.keep(
                format!("{what}: deviation of {job} over 100 ms"),
                "%",
                (is_fair && is_capped).then(|| Must::at_most(2.0)),
                100.0 * one.deviation(&contest),
            );
        }
        self.keep(format!("{what}: processor time taken by the host"), "%", None, 100.0 * received[0].stolen);
        Ok(())
    }

    /// Two processes each, so that nothing but the policy tells them apart.
    fn four_nodes_against_one(&mut self, policy: &'static str) -> Result<()> {
        let mut jobs = vec![contestant("large", 2, MIB), contestant("small", 2, MIB)];
        jobs[0].identity.nodes = 4;
        let contest = self.contest(policy, jobs);
        let received = self.run(&contest, true)?;
        let must = (policy != "fifo").then(|| Must::near(4.0, 0.1));
        let ratio = received[0].bytes as f64 / received[1].bytes.max(1) as f64;
        self.keep(format!("{policy}, 4 nodes : 1 node, 1 MiB write: ratio"), "x", must, ratio);
        Ok(())
    }

    /// ThemisIO Fig. 10: two groups, four users, eight jobs.
    fn composite(&mut self) -> Result<()> {
        // User, group, nodes, share due.
        let table: [(&str, &str, u32, f64); 8] = [
            ("user1", "group1", 1, 1.0 / 6.0),
            ("user1", "group1", 2, 1.0 / 3.0),
            ("user2", "group2", 2, 1.0 / 21.0),
            ("user2", "group2", 3, 1.0 / 14.0),
            ("user2", "group2", 2, 1.0 / 21.0),
            ("user3", "group2", 5, 1.0 / 6.0),
            ("user4", "group2", 1, 1.0 / 24.0),
            ("user4", "group2", 3, 1.0 / 8.0),
        ];
        let jobs = table.iter().enumerate().map(|(index, &(user, group, nodes, _))| {
            let job = format!("job{}", index + 1);
            let identity = Identity { job, user: user.to_owned(), group: group.to_owned(), nodes };
            Contestant { identity, processes: nodes.max(2), block_bytes: MIB, delay_ns: 0 }
        });
        let contest = self.contest("group-user-size-fair", jobs.collect());
        let received = self.run(&contest, true)?;
        let off = received.iter().zip(&table).map(|(one, row)| one.share / row.3 - 1.0);
        let worst = off.map(f64::abs).fold(0.0, f64::max);
        let what = "group-user-size-fair, 8 jobs, 1 MiB write";
        self.keep(format!("{what}: worst job off its due"), "%", Some(Must::at_most(2.0)), 100.0 * worst);
        for (index, (one, row)) in received.iter().zip(&table).enumerate() {
            let due = 100.0 * row.3;
            self.keep(format!("{what}: job {} of {}, due {due:.2}", index + 1, row.0), "%", None, 100.0 * one.share);
        }
        Ok(())
    }

    fn small_against_large(&mut self, policy: &'static str) -> Result<()> {
        let contest = self.contest(policy, vec![contestant("4k", 8, 4 * KIB), contestant("1m", 8, MIB)]);
        let received = self.run(&contest, true)?;
        let must = (policy != "fifo").then(|| Must::near(50.0, 2.0));
        let what = format!("{policy}, 4 KiB : 1 MiB write, 8 processes each");
        self.keep(format!("{what}: service of 4 KiB"), "%", must, 100.0 * received[0].service_share);
        self.keep(format!("{what}: 4 KiB job"), "op/s", None, received[0].throughput() / 4096.0);
        self.keep(format!("{what}: 1 MiB job"), "MiB/s", None, received[1].throughput() / MIB as f64);
        Ok(())
    }

    /// Alone there is nothing to share, and nothing may be lost by it.
    fn lone(&mut self) -> Result<()> {
        for (size, block_bytes) in [("4 KiB", 4 * KIB), ("1 MiB", MIB)] {
            for processes in [1, 4] {
                let mut throughput = |policy| -> Result<f64> {
                    let contest = self.contest(policy, vec![contestant("lone", processes, block_bytes)]);
                    Ok(self.run(&contest, true)?[0].throughput())
                };
                let (fifo, fair) = (throughput("fifo")?, throughput("job-fair")?);
                let name = format!("lone job, {processes} processes, {size} write: job-fair / fifo");
                self.keep(name, "x", Some(Must::at_least(0.98)), fair / fifo);
            }
        }
        Ok(())
    }

    /// A process that comes when another job already has the target to itself.
    fn newcomer(&mut self) -> Result<()> {
        let delay_ns = self.configuration.contest_ns / 2 / SLICE_NS * SLICE_NS;
        let newcomer = Contestant { delay_ns, ..contestant("newcomer", 1, 256 * KIB) };
        let contest = self.contest("job-fair", vec![contestant("resident", 4, 256 * KIB), newcomer]);
        let received = self.run(&contest, true)?;
        let part = &received[1].slices;
        let total: Vec<u64> = part.iter().zip(&received[0].slices).map(|(a, b)| a + b).collect();
        let first_ns = received[1].first_request_ns;
        let first = (first_ns / SLICE_NS) as usize;
        let reached = time_to_share(part, &total, first, WINDOW_SLICES, 0.5, SHARE_TOLERANCE);
        // A share never reached counts as reached at the very end.
        let end_ns = reached.map_or(contest.duration_ns, |slices| (first + slices) as u64 * SLICE_NS);
        let ms = end_ns.saturating_sub(first_ns) as f64 / 1e6;
        let name = "job-fair, newcomer of 1 process to a job of 4, 256 KiB: time to its share";
        self.keep(name.to_owned(), "ms", Some(Must::at_most(100.0)), ms);
        Ok(())
    }
}
