//! Jobs that compete: their processes run together for some time, and what each received is looked at in the
//! steady part.

use crate::crew::{Crew, start_ns};
use crate::harness::Harness;
use crate::host::ProcessorTimes;
use crate::server::ServerProcess;
use crate::slices::{add, coarser};
use crate::task::{Direction, FileState, Log, Operation, Order, Task, Transfer};
use crate::way::{Identity, Way};
use crate::{clock, statistics};
use anyhow::{Context, Result};
use isonomia_proto::control::Status;
use std::time::Duration;

/// Length of the slices that workers keep.
pub const SLICE_NS: u64 = 10_000_000;
/// Between two looks for an interruption.
const POLL_NS: u64 = 50_000_000;

/// One job of a contest.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// Who it is.
    pub identity: Identity,
    /// Its processes, each with one request under way at a time.
    pub processes: u32,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// It begins so long after the others.
    pub delay_ns: u64,
}

/// Jobs, and for how long.
#[derive(Clone, Debug)]
pub struct Contest {
    /// The policy.
    pub policy: &'static str,
    /// Read or write.
    pub direction: Direction,
    /// The jobs.
    pub jobs: Vec<Contestant>,
    /// From the common start.
    pub duration_ns: u64,
    /// Before the steady part, and (a fifth of it) after.
    pub settling_ns: u64,
}

/// What one job received.
#[derive(Clone, Debug)]
pub struct Received {
    /// Part of the processor time that the host of this virtual machine took meanwhile.
    pub stolen: f64,
    /// Bytes of every slice of [`SLICE_NS`] from the common start.
    pub slices: Vec<u64>,
    /// Bytes in the steady part.
    pub bytes: u64,
    /// Share of the bytes of all jobs in the steady part.
    pub share: f64,
    /// Share of the service cost of all jobs in the steady part, by the server's own account.
    pub service_share: f64,
    /// The same of each server by itself.
    pub service_share_on: Vec<f64>,
    /// Seconds of the steady part.
    pub steady_s: f64,
    /// From the common start to the first request.
    pub first_request_ns: u64,
}

impl Received {
    /// Coefficient of variation of the throughput over slices of 100 ms in the steady part.
    pub fn deviation(&self, contest: &Contest) -> f64 {
        statistics::coefficient_of_variation(&coarser(&self.slices[contest.steady_slices()], 10))
    }

    /// Bytes per second in the steady part.
    pub fn throughput(&self) -> f64 {
        self.bytes as f64 / self.steady_s
    }
}

impl Contest {
    fn steady_ns(&self) -> std::ops::Range<u64> {
        self.settling_ns..self.duration_ns - self.settling_ns / 5
    }

    fn steady_slices(&self) -> std::ops::Range<usize> {
        let steady = self.steady_ns();
        (steady.start / SLICE_NS) as usize..(steady.end / SLICE_NS) as usize
    }

    fn task(&self, job: &Contestant, file_bytes: u64) -> Task {
        let file = if self.direction == Direction::Read { FileState::Filled } else { FileState::Absent };
        let order = if job.block_bytes < 1 << 20 { Order::Random } else { Order::Sequential };
        let log = Log::Slices { slice_ns: SLICE_NS };
        let transfer =
            Transfer { direction: self.direction, order, block_bytes: job.block_bytes, file_bytes, file, log };
        Task {
            operation: Operation::Transfer(transfer),
            duration_ns: self.duration_ns - job.delay_ns,
            delay_ns: job.delay_ns,
        }
    }

    /// Runs it; what each job received, in their order.
    pub fn run(
        &self,
        harness: &Harness,
        server: &mut ServerProcess,
        way: Way,
        file_bytes: u64,
    ) -> Result<Vec<Received>> {
        server.set_policy(self.policy)?;
        let mut crews = Vec::new();
        let mut number = 0;
        for job in &self.jobs {
            let commands: Vec<_> = (number..number + job.processes)
                .map(|number| way.worker(&harness.programs, server.endpoints(), &job.identity, number))
                .collect();
            number += job.processes;
            crews.push(Crew::start(&format!("job {}", job.identity.job), commands)?);
        }
        let tasks: Vec<Task> = self.jobs.iter().map(|job| self.task(job, file_bytes)).collect();
        for (crew, task) in crews.iter_mut().zip(&tasks) {
            crew.prepare(harness, task)?;
        }
        let origin_ns = start_ns();
        for crew in &mut crews {
            crew.go(origin_ns)?;
        }
        let steady = self.steady_ns();
        let times_before = ProcessorTimes::now();
        let before = statuses_at(harness, server, origin_ns + steady.start)?;
        let after = statuses_at(harness, server, origin_ns + steady.end)?;
        let stolen = ProcessorTimes::now().stolen_since(times_before);
        let mut received = Vec::new();
        for (crew, task) in crews.iter_mut().zip(&tasks) {
            let outcomes = crew.collect(harness, task)?;
            let first_ns = outcomes.iter().map(|outcome| outcome.begin_ns).min().context("a job without processes")?;
            let slices = add(outcomes.into_iter().map(|outcome| outcome.slices));
            received.push(Received {
                bytes: slices[self.steady_slices()].iter().sum(),
                slices,
                share: 0.0,
                service_share: 0.0,
                service_share_on: Vec::new(),
                stolen,
                steady_s: (steady.end - steady.start) as f64 / 1e9,
                first_request_ns: first_ns.saturating_sub(origin_ns),
            });
        }
        let service: Vec<Vec<u64>> = self.jobs.iter().map(|job| service_between(&before, &after, job)).collect();
        let total_bytes = received.iter().map(|one| one.bytes).sum();
        let totals: Vec<u64> = (0..after.len()).map(|server| service.iter().map(|of| of[server]).sum()).collect();
        for (one, service) in received.iter_mut().zip(service) {
            one.share = statistics::share(one.bytes, total_bytes);
            one.service_share = statistics::share(service.iter().sum(), totals.iter().sum());
            let on = service.iter().zip(&totals).map(|(part, total)| statistics::share(*part, *total));
            one.service_share_on = on.collect();
        }
        Ok(received)
    }
}

fn statuses_at(harness: &Harness, server: &mut ServerProcess, at_ns: u64) -> Result<Vec<Status>> {
    while clock::now_ns() < at_ns {
        harness.check()?;
        std::thread::sleep(Duration::from_nanos(at_ns.saturating_sub(clock::now_ns()).min(POLL_NS)));
    }
    server.statuses()
}

/// Service cost of a job on each server between two moments.
fn service_between(before: &[Status], after: &[Status], job: &Contestant) -> Vec<u64> {
    let pairs = before.iter().zip(after);
    pairs.map(|(before, after)| service_ns(after, job).saturating_sub(service_ns(before, job))).collect()
}

/// Service cost of a job since the server's start; 0 if the server does not know it.
fn service_ns(status: &Status, job: &Contestant) -> u64 {
    status.jobs.iter().find(|one| one.job == job.identity.job).map_or(0, |one| one.data_service_ns_total)
}
