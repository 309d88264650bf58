//! `isonomia-bench cluster`: what several servers are as one file system.
//!
//! * *Shares*: jobs whose files are striped over four capped servers, each of which decides for itself.
//! * *Scaling*: what the same processes get of more and more capped servers.
//! * *Speed*: what a cluster of one server and one of two cost, beside a server that is in no cluster, row by row.

use crate::arguments::ClusterOptions;
use crate::contest::{Contest, Contestant, Received};
use crate::crew::Crew;
use crate::harness::Harness;
use crate::host::memory_bytes;
use crate::phases::{Figures, Key, Lane, MIB, PHASES, Phase, Sizes, alternate, mean_speeds, phases};
use crate::report::{Must, Report, Row, keep};
use crate::server::{Cap, ServerOptions, ServerProcess};
use crate::speed::touch_memory;
use crate::task::Direction;
use crate::way::{Endpoints, Identity, Way};
use anyhow::{Context, Result};
use isonomia_proto::striping::Striping;
use serde::Serialize;
use std::path::PathBuf;

const KIB: u64 = 1 << 10;
/// Servers that jobs share.
const SHARED: u16 = 4;
/// Of each of them: slow enough that two cores have time to spare for all.
const SHARED_CAP: Cap = Cap { bandwidth: "64MiB/s", per_op: "10us" };
/// Such that every request goes to all of them.
const SHARED_STRIPE_BYTES: u64 = 256 * KIB;
/// Numbers of servers that are compared; the first is what the others are compared with.
const SCALED: [u16; 4] = [1, 2, 4, 8];
/// Of each of them.
const SCALED_CAP: Cap = Cap { bandwidth: "32MiB/s", per_op: "10us" };
/// Processes, with one request under way each, whatever the number of servers.
const SCALED_PROCESSES: u32 = 16;
/// The file of each process of a contest.
const FILE_BYTES: u64 = 8 * MIB;
/// Processes whose speed is compared.
const SPEED_PROCESSES: [u32; 2] = [1, 2];
/// Files written by all processes of a row of speed together.
const WRITTEN_BYTES_MAX: u64 = 2 << 30;
/// What is compared in speed.
const ALONE: &str = "no cluster";
/// The same a second time, in a server of its own: what it differs by is chance.
const AGAIN: &str = "no cluster, again";
const OF_ONE: &str = "1 server";
const OF_TWO: &str = "2 servers";
const STRIPED: &str = "2 servers, striped";

#[derive(Debug, Serialize)]
struct Configuration {
    repeats: u32,
    shared_servers: u16,
    shared_bandwidth: &'static str,
    shared_stripe_bytes: u64,
    scaled_bandwidth: &'static str,
    scaled_processes: u32,
    contest_ns: u64,
    settling_ns: u64,
    file_bytes: u64,
    phase_ns: u64,
    written_bytes_max: u64,
    /// Of speed, those whose names contain this.
    rows: Option<String>,
    server_workers: Option<u32>,
}

/// What everything stands on.
struct Bench<'a> {
    harness: &'a Harness,
    configuration: &'a Configuration,
    logs: PathBuf,
    rows: &'a mut Vec<Row>,
    remarks: &'a mut Vec<String>,
    /// Of names of servers, no two of which are the same.
    started: u32,
}

type Part = fn(&mut Bench) -> Result<()>;

const PARTS: [(&str, Part); 3] = [("shares", |b| b.shares()), ("scaling", |b| b.scaling()), ("speed", |b| b.speed())];

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &ClusterOptions) -> Result<()> {
    let common = &options.common;
    let is_wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let wanted: Vec<_> = PARTS.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    if wanted.is_empty() {
        anyhow::bail!("nothing is called like that; there are: {}", PARTS.map(|(name, _)| name).join("; "));
    }
    if phases(options.rows.as_deref()).is_empty() {
        anyhow::bail!("no row of speed is called like that; there are: {}", PHASES.map(Phase::name).join("; "));
    }
    let harness = Harness::new(common.isonomia.as_deref())?;
    let configuration = Configuration {
        repeats: common.repeat,
        shared_servers: SHARED,
        shared_bandwidth: SHARED_CAP.bandwidth,
        shared_stripe_bytes: SHARED_STRIPE_BYTES,
        scaled_bandwidth: SCALED_CAP.bandwidth,
        scaled_processes: SCALED_PROCESSES,
        contest_ns: if common.quick { 1_500_000_000 } else { 5_000_000_000 },
        settling_ns: if common.quick { 500_000_000 } else { 1_000_000_000 },
        file_bytes: FILE_BYTES,
        phase_ns: if common.quick { 100_000_000 } else { 300_000_000 },
        written_bytes_max: WRITTEN_BYTES_MAX.min(memory_bytes("MemAvailable") / 8),
        rows: options.rows.clone(),
        server_workers: common.workers,
    };
    let mut report = Report::new("cluster", common, configuration)?;
    let (mut rows, mut remarks) = (Vec::new(), Vec::new());
    let mut bench = Bench {
        harness: &harness,
        configuration: &report.configuration,
        logs: report.dir().to_owned(),
        rows: &mut rows,
        remarks: &mut remarks,
        started: 0,
    };
    let done = wanted.iter().try_for_each(|(name, part)| part(&mut bench).with_context(|| (*name).to_owned()));
    report.error = done.as_ref().err().map(|error| format!("{error:#}"));
    report.rows = rows;
    report.remarks = remarks;
    report.publish(common.json)?;
    done
}

fn contestant(job: &str, processes: u32) -> Contestant {
    let identity = Identity { job: job.to_owned(), user: job.to_owned(), group: "bench".to_owned(), nodes: 1 };
    Contestant { identity, processes, block_bytes: MIB, delay_ns: 0 }
}

fn verb(direction: Direction) -> &'static str {
    if direction == Direction::Read { "read" } else { "write" }
}

impl Bench<'_> {
    /// Starts servers whose files are, if they are several, striped over all.
    fn start(&mut self, cluster: Option<u16>, cap: Option<Cap>, mount: bool) -> Result<ServerProcess> {
        self.started += 1;
        let options = ServerOptions {
            cap,
            mount,
            cluster,
            workers: self.configuration.server_workers,
            ..ServerOptions::default()
        };
        let name = format!("server-{}", self.started);
        ServerProcess::start(self.harness, &name, &options, &self.logs.join(format!("{name}.log")))
    }

    fn striped(&mut self, count: u16, stripe_bytes: u64, cap: Cap) -> Result<ServerProcess> {
        let mut servers = self.start(Some(count), Some(cap), false)?;
        let striping = Striping { stripe_bytes, ..Striping::over(usize::from(count)) };
        servers.work_in("striped", Some(1), Some(&striping))?;
        Ok(servers)
    }

    fn say(&self, repeat: u32, what: &str) {
        eprintln!("isonomia-bench: repeat {} of {}, {what}", repeat + 1, self.configuration.repeats);
    }

    fn contest(
        &self,
        policy: &'static str,
        direction: Direction,
        jobs: Vec<Contestant>,
        servers: &mut ServerProcess,
    ) -> Result<Vec<Received>> {
        let Configuration { contest_ns: duration_ns, settling_ns, file_bytes, .. } = *self.configuration;
        let contest = Contest { policy, direction, jobs, duration_ns, settling_ns };
        contest.run(self.harness, servers, Way::Preload, file_bytes)
    }

    /// Jobs that compete for all servers at once.
    fn shares(&mut self) -> Result<()> {
        let mut servers = self.striped(SHARED, SHARED_STRIPE_BYTES, SHARED_CAP)?;
        for repeat in 0..self.configuration.repeats {
            for (policy, direction) in [
                ("job-fair", Direction::Write),
                ("job-fair", Direction::Read),
                ("user-fair", Direction::Write),
                ("fifo", Direction::Write),
            ] {
                self.say(repeat, &format!("1:4 {policy} {}", verb(direction)));
                self.one_against_four(policy, direction, &mut servers)?;
            }
            for policy in ["size-fair", "fifo"] {
                self.say(repeat, &format!("4 nodes : 1 {policy}"));
                self.four_nodes_against_one(policy, &mut servers)?;
            }
        }
        Ok(())
    }

    fn one_against_four(
        &mut self,
        policy: &'static str,
        direction: Direction,
        servers: &mut ServerProcess,
    ) -> Result<()> {
        let jobs = vec![contestant("one", 1), contestant("four", 4)];
        let received = self.contest(policy, direction, jobs, servers)?;
        let what = format!("{policy}, 1 : 4 processes, 1 MiB {} over {SHARED} servers", verb(direction));
        let mut add = |name: &str, unit, must, value| {
            keep(self.rows, Row { must, ..Row::new(format!("{what}: {name}"), Way::Preload, unit, vec![value]) });
        };
        let must = (policy != "fifo").then(|| Must::near(50.0, 2.0));
        add("share of the one", "%", must, 100.0 * received[0].share);
        add("share of the one of the service", "%", must, 100.0 * received[0].service_share);
        let on = received[0].service_share_on.iter().copied();
        add("the least on one server", "%", None, 100.0 * on.clone().fold(1.0, f64::min));
        add("the greatest on one server", "%", None, 100.0 * on.fold(0.0, f64::max));
        let both: f64 = received.iter().map(Received::throughput).sum();
        add("both together", "MiB/s", None, both / MIB as f64);
        Ok(())
    }

    /// Two processes each, so that nothing but the policy tells them apart.
    fn four_nodes_against_one(&mut self, policy: &'static str, servers: &mut ServerProcess) -> Result<()> {
        let mut jobs = vec![contestant("large", 2), contestant("small", 2)];
        jobs[0].identity.nodes = 4;
        let received = self.contest(policy, Direction::Write, jobs, servers)?;
        let must = (policy != "fifo").then(|| Must::near(4.0, 0.1));
        let ratio = received[0].bytes as f64 / received[1].bytes.max(1) as f64;
        let name = format!("{policy}, 4 nodes : 1 node, 1 MiB write over {SHARED} servers: ratio");
        keep(self.rows, Row { must, ..Row::new(name, Way::Preload, "x", vec![ratio]) });
        Ok(())
    }

    /// The same processes on more and more servers.
    fn scaling(&mut self) -> Result<()> {
        for repeat in 0..self.configuration.repeats {
            let mut of_one: Vec<f64> = Vec::new();
            for count in SCALED {
                let mut servers = self.striped(count, MIB, SCALED_CAP)?;
                for (index, direction) in [Direction::Write, Direction::Read].into_iter().enumerate() {
                    let verb = verb(direction);
                    self.say(repeat, &format!("{verb} on {count} servers"));
                    let jobs = vec![contestant("all", SCALED_PROCESSES)];
                    let received = self.contest("fifo", direction, jobs, &mut servers)?;
                    let throughput = received[0].throughput() / MIB as f64;
                    if of_one.len() == index {
                        of_one.push(throughput);
                    }
                    let must = (count > SCALED[0]).then(|| Must::ratio(0.95));
                    let name = format!("1 MiB {verb} on {count} capped servers, beside {count} times one");
                    let row = Row::new(name, Way::Preload, "MiB/s", vec![throughput]);
                    let row = row.beside(&[of_one[index] * f64::from(count)]);
                    keep(self.rows, Row { must, processes: Some(SCALED_PROCESSES), ..row });
                }
            }
        }
        Ok(())
    }

    /// What being a cluster costs.
    fn speed(&mut self) -> Result<()> {
        let Configuration { repeats, phase_ns, written_bytes_max, .. } = *self.configuration;
        let sizes = Sizes { phase_ns, written_bytes_max };
        let rows = phases(self.configuration.rows.as_deref());
        let tmpfs = self.harness.scratch().join("touched");
        std::fs::create_dir(&tmpfs)?;
        touch_memory(self.harness, written_bytes_max, &tmpfs)?;
        for way in [Way::Preload, Way::Mount] {
            let is_mount = way == Way::Mount;
            let mut alone = self.start(None, None, is_mount)?;
            alone.work_in("work", None, None)?;
            let mut again = self.start(None, None, is_mount)?;
            again.work_in("work", None, None)?;
            let mut one = self.start(Some(1), None, is_mount)?;
            one.work_in("work", Some(1), None)?;
            let mut two = self.start(Some(2), None, is_mount)?;
            let striping = Striping::over(2);
            let mut in_two = |name, server, striping| -> Result<Endpoints> {
                two.work_in(name, Some(server), striping)?;
                Ok(two.endpoints().clone())
            };
            // The first process does not use the root server, which costs it more.
            let of_two = [in_two("on-2", 2, None)?, in_two("on-1", 1, None)?];
            let striped = in_two("striped", 2, Some(&striping))?;
            let contenders: [(&str, &[Endpoints]); 5] = [
                (ALONE, std::slice::from_ref(alone.endpoints())),
                (AGAIN, std::slice::from_ref(again.endpoints())),
                (OF_ONE, std::slice::from_ref(one.endpoints())),
                (OF_TWO, &of_two),
                (STRIPED, std::slice::from_ref(&striped)),
            ];
            let mut figures = Figures::default();
            let mut number = 0;
            let mut done = Ok(());
            for repeat in 0..repeats {
                for processes in SPEED_PROCESSES {
                    self.say(repeat, &format!("speed over {way}, {processes} processes"));
                    let mut lanes = Vec::new();
                    for (name, endpoints) in &contenders {
                        let numbers = number..number + processes;
                        number += processes;
                        let identity = contestant("speed", processes).identity;
                        let commands = numbers.zip(endpoints.iter().cycle()).map(|(number, endpoints)| {
                            way.worker(&self.harness.programs, endpoints, &identity, number)
                        });
                        lanes.push(Lane::new(name, Crew::start(name, commands)?));
                    }
                    // Who is first has the caches of who was last.
                    lanes.rotate_left(repeat as usize % contenders.len());
                    done = alternate(self.harness, (&rows, sizes, processes), &mut lanes, &mut figures);
                    if done.is_err() {
                        break;
                    }
                }
            }
            let mut found = figures.rows(ALONE, must);
            // Of the tails of round trips nothing is asked, and they are not in the mean.
            let asked: Vec<Row> = found.iter().filter(|row| !row.name.contains("99th")).cloned().collect();
            found.extend(mean_speeds(&asked).into_iter().map(|row| match row.way.as_str() {
                OF_ONE => Row { must: Some(Must::at_least(0.97)), ..row },
                _ => row,
            }));
            self.rows.extend(found.into_iter().map(|row| Row { way: format!("{way}, {}", row.way), ..row }));
            self.remarks.append(&mut figures.remarks);
            done?;
        }
        Ok(())
    }
}

/// What is asked of a cluster beside a server that is in none.
fn must((phase, index, _, name): &Key) -> Option<Must> {
    let (_, unit) = phase.units()[*index];
    let (least, most) = match name.as_str() {
        OF_ONE => (0.97, 1.03),
        OF_TWO => (0.8, 1.25),
        _ => return None,
    };
    match (unit, index) {
        // The tail of a few thousand calls says more of the host than of us.
        ("us", 1) => None,
        ("us", _) => Some(Must::ratio_at_most(most)),
        _ => Some(Must::ratio(least)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_not_be_longer_and_rates_not_lower() {
        let of = |phase, index, name: &str| must(&(phase, index, 1, name.to_owned()));
        let row = |must, ratio: f64| Row { must, ..Row::new("r", "w", "u", vec![ratio]) }.beside(&[1.0]).is_met();
        assert_eq!(row(of(Phase::Write1MiB, 0, OF_ONE), 0.96), Some(false));
        assert_eq!(row(of(Phase::Write1MiB, 0, OF_TWO), 0.96), Some(true));
        assert_eq!(row(of(Phase::ReadRoundTrip, 0, OF_ONE), 1.05), Some(false));
        assert_eq!(row(of(Phase::ReadRoundTrip, 0, OF_ONE), 0.7), Some(true));
        assert!(of(Phase::ReadRoundTrip, 1, OF_ONE).is_none() && of(Phase::Stat, 0, STRIPED).is_none());
    }
}
