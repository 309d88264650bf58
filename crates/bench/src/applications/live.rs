//! The applications as processes on servers of a cluster, each with capped targets.

use super::course::{ControllerCounts, Course, Ledger};
use super::exchange;
use super::workload::{Application, BLOCK, Layout, STREAMS, TARGETS};
use crate::crew::{Crew, start_ns};
use crate::harness::Harness;
use crate::server::{Cap, GIFT_BANDWIDTH, ServerOptions, ServerProcess};
use crate::task::{Operation, Phases, Task};
use crate::way::{Identity, Way};
use anyhow::{Context, Result, ensure};
use isonomia_proto::ledger::{AccountStatus, LedgerStatus};
use isonomia_proto::striping::Striping;
use isonomia_units::TargetId;
use std::path::Path;

/// [`super::workload::BANDWIDTH`], as servers take it.
pub const CAP: Cap = Cap { bandwidth: GIFT_BANDWIDTH, per_op: "0" };
const NUMBERS_PER_SERVER: usize = 16;
/// The volume that everything is in.
const VOLUME: &str = "work";
/// Nobody takes longer than so many times what his phases take alone: there are fewer at any target.
const STRETCH_MAX: u64 = 20;

/// The directory whose files lie on a target.
fn directory(target: usize) -> String {
    format!("{VOLUME}/target-{target}")
}

/// In a cluster file: how often its controller decides ([`super::DECIDE`]), and how often servers tell each other of their jobs.
fn cluster_keys(policy: &str) -> String {
    let exchange = exchange(policy).map_or("off".to_owned(), |every| format!("{}ms", every.0 / 1_000_000));
    format!("decide = \"100ms\"\nexchange = \"{exchange}\"\ntargets_per_server = {NUMBERS_PER_SERVER}")
}

/// The number that a target has in a system of so many servers.
fn number(target: usize, servers: u16) -> TargetId {
    let each = TARGETS / usize::from(servers);
    TargetId((target / each * NUMBERS_PER_SERVER + target % each) as u16)
}

/// What comes of these applications under `policy` on so many servers. They have `workers` threads, and write their logs to `log`.
pub fn measure(
    harness: &Harness,
    applications: &[Application],
    (layout, servers): (Layout, u16),
    policy: &str,
    (workers, log): (Option<u32>, &Path),
) -> Result<Course> {
    let options = ServerOptions {
        cap: Some(CAP),
        workers,
        cluster: Some(servers),
        cluster_settings: cluster_keys(policy),
        cluster_targets: Some(TARGETS as u16 / servers),
        ..ServerOptions::default()
    };
    let mut server = ServerProcess::start(harness, "applications", &options, log)?;
    server.work_in(VOLUME, Some(1), None)?;
    let directories: Vec<String> = (0..TARGETS).map(directory).collect();
    let on = |target: usize| Striping { targets: vec![number(target, servers)], ..Striping::over(1) };
    server.make_dirs(directories.iter().enumerate().map(|(target, name)| (name.as_str(), Some(on(target)))))?;
    let mut crews = Vec::new();
    for (at, application) in applications.iter().enumerate() {
        let files = application.targets.iter().map(|target| format!("{}/{}", directory(*target), application.name));
        let phases = Phases {
            files: files.collect(),
            streams: STREAMS,
            goes_round: layout == Layout::Striped,
            compute_ns: application.compute_ns,
            blocks: application.blocks,
            block_bytes: BLOCK,
            iterations: application.iterations,
        };
        let task = Task {
            duration_ns: application.iterations * (application.compute_ns + STRETCH_MAX * application.io_ns()),
            operation: Operation::Phases(phases),
            delay_ns: application.start_ns,
        };
        let identity = Identity {
            job: application.name.clone(),
            user: "bench".into(),
            group: "bench".into(),
            nodes: application.nodes,
        };
        let worker = Way::Library.worker(&harness.programs, server.endpoints(), &identity, at as u32);
        let mut crew = Crew::start(&application.name, [worker])?;
        crew.prepare(harness, &task)?;
        crews.push((crew, task));
    }
    server.set_policy(policy)?;
    let origin_ns = start_ns();
    for (crew, _) in &mut crews {
        crew.go(origin_ns)?;
    }
    let mut course = Course::default();
    for ((crew, task), application) in crews.iter_mut().zip(applications) {
        let outcome = crew.collect(harness, task)?.into_iter().next().context("an application without a process")?;
        let phases = outcome.phases_ns.into_iter();
        let phases: Vec<_> = phases.map(|(begin, end)| (begin - origin_ns, end - origin_ns)).collect();
        ensure!(phases.len() as u64 == application.iterations, "{} did not get to its end", application.name);
        course.phases_ns.push(phases);
    }
    let status = server.status()?;
    if let Some(controller) = status.cluster.map(|cluster| cluster.controller).filter(|controller| controller.is_needed)
    {
        ensure!(controller.decisions_total > 0, "nothing was decided under {policy}");
        course.controller = Some(ControllerCounts {
            rounds: controller.rounds_total,
            decisions: controller.decisions_total,
            without_quorum: controller.without_quorum_total,
            failed: controller.failed_total,
            decision_ns: controller.decision_ns,
        });
    }
    if policy.starts_with("gift") {
        course.ledger = Some(sum(&server.ledger()?));
    }
    Ok(course)
}

/// Over all accounts.
fn sum(status: &LedgerStatus) -> Ledger {
    let sum = |of: fn(&AccountStatus) -> u64| status.accounts.iter().map(of).sum::<u64>();
    Ledger {
        coupons_issued: sum(|account| account.issued),
        coupons_redeemed: sum(|account| account.redeemed),
        coupons_compensated: sum(|account| account.compensated),
        outstanding_node_s: sum(|account| account.regret_node_s) as f64,
        awarded_node_s: sum(|account| account.paid_node_s) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_numbered_as_in_the_cluster() {
        let numbers = |servers| (0..TARGETS).map(|target| number(target, servers).0).collect::<Vec<u16>>();
        assert_eq!(numbers(2), [0, 1, 2, 3, 16, 17, 18, 19]);
        assert_eq!(numbers(1), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
