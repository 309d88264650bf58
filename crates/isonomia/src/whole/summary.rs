//! What several servers say, as one.

use super::Seen;
use isonomia_proto::control::{JobStatus, MemberList, RateStatus, ShadowStatus, Status};
use serde::Serialize;
use std::collections::BTreeMap;

/// The state of a whole cluster at about one moment: what `isonomia status --json` prints. Fields are added, not renamed.
#[derive(Debug, Serialize)]
pub struct Report<'s> {
    /// Name of the file system.
    pub cluster: &'s str,
    /// Epoch of the cluster file.
    pub epoch: u32,
    /// Name of the root server.
    pub root: &'s str,
    /// The policy that all are to follow, if anybody has answered.
    pub policy: Option<PolicyReport<'s>>,
    /// By number.
    pub servers: Vec<ServerReport<'s>>,
    /// Jobs over all servers that have answered: shares are of the whole, counts are summed, latencies are those of the
    /// server where they are longest.
    pub jobs: Vec<JobStatus>,
    /// How those fare that rules give rates, over all servers that have answered: what they were served is summed, what they waited is
    /// that of the server where it is longest.
    pub rates: Vec<RateStatus>,
    /// What another policy would give, of the servers that have one: that of the first of them, if they differ.
    pub shadow: Option<ShadowStatus>,
}

/// A policy, and its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyReport<'s> {
    /// Canonical form.
    pub policy: &'s str,
    /// The draw.
    pub draw: &'s str,
    /// 0 as long as none was set for the cluster: then each server has what it was started with.
    pub version: u64,
}

/// One server of it.
#[derive(Debug, Serialize)]
pub struct ServerReport<'s> {
    /// Its name.
    pub name: &'s str,
    /// Its number.
    pub number: u16,
    /// Whether it has answered.
    pub state: State,
    /// Why it is away.
    pub reason: Option<&'s str>,
    /// What it said.
    pub status: Option<&'s Status>,
}

/// Whether a server has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It has.
    Answers,
    /// Not in time.
    Away,
}

/// What servers said, as one.
pub fn report<'s>(members: &'s MemberList, seen: &'s [Seen]) -> Report<'s> {
    let statuses: Vec<&Status> = seen.iter().filter_map(Seen::status).collect();
    let server = |seen: &'s Seen| ServerReport {
        name: &seen.member.name,
        number: seen.member.number,
        state: if seen.found.is_ok() { State::Answers } else { State::Away },
        reason: seen.found.as_ref().err().map(String::as_str),
        status: seen.status(),
    };
    Report {
        cluster: &members.name,
        epoch: members.epoch,
        root: &members.root,
        policy: policy(&statuses),
        servers: seen.iter().map(server).collect(),
        jobs: jobs(&statuses),
        rates: rates(&statuses),
        shadow: shadow(&statuses),
    }
}

/// The newest policy of the cluster that any server follows.
fn policy<'s>(statuses: &[&'s Status]) -> Option<PolicyReport<'s>> {
    let of = |status: &&'s Status| {
        let cluster = status.cluster.as_ref()?;
        let report = PolicyReport { policy: &status.policy, draw: &status.draw, version: cluster.policy_version };
        Some((!cluster.policy_deviates, report))
    };
    let newest = statuses.iter().filter_map(of).max_by_key(|(follows, report)| (*follows, report.version));
    newest.map(|(_, report)| report)
}

/// One job's service within the window, as all servers gave it.
#[derive(Clone, Copy, Default)]
struct Service {
    data_ns: u64,
    metadata_ns: u64,
}

/// The jobs of several servers: who it is says a job's name, user, group, and what it is within.
pub fn jobs(statuses: &[&Status]) -> Vec<JobStatus> {
    let key = |job: &JobStatus| (job.job.clone(), job.user.clone(), job.group.clone(), job.within.clone());
    let mut jobs: BTreeMap<_, (JobStatus, Service)> = BTreeMap::new();
    let mut total = Service::default();
    // Servers on which anything is due to anybody count alike.
    let owing = statuses.iter().filter(|status| status.jobs.iter().any(|job| job.share_due > 0.0)).count().max(1);
    for job in statuses.iter().flat_map(|status| &status.jobs) {
        let due = job.share_due / owing as f64;
        total.data_ns += job.data_service_ns;
        total.metadata_ns += job.metadata_service_ns;
        let service = Service { data_ns: job.data_service_ns, metadata_ns: job.metadata_service_ns };
        match jobs.get_mut(&key(job)) {
            None => _ = jobs.insert(key(job), (JobStatus { share_due: due, ..job.clone() }, service)),
            Some((sum, sum_service)) => {
                sum_service.data_ns += service.data_ns;
                sum_service.metadata_ns += service.metadata_ns;
                add(sum, job);
                sum.share_due += due;
            }
        }
    }
    let part = |of: u64, total: u64| if total == 0 { 0.0 } else { of as f64 / total as f64 };
    let finish = |(job, service): (JobStatus, Service)| {
        // As each server says it: of the metadata service only for who used nothing else.
        let share_received = match service.data_ns {
            0 => part(service.metadata_ns, total.metadata_ns),
            ns => part(ns, total.data_ns),
        };
        JobStatus { share_received, data_service_ns: service.data_ns, metadata_service_ns: service.metadata_ns, ..job }
    };
    jobs.into_values().map(finish).collect()
}

/// What another policy would give over several servers.
fn shadow(statuses: &[&Status]) -> Option<ShadowStatus> {
    let mut all: Option<ShadowStatus> = None;
    for one in statuses.iter().filter_map(|status| status.shadow.as_ref()) {
        let Some(sum) = &mut all else {
            all = Some(one.clone());
            continue;
        };
        for job in one.jobs.iter().filter(|_| one.policy == sum.policy) {
            match sum.jobs.iter_mut().find(|known| (&known.job, &known.user) == (&job.job, &job.user)) {
                Some(known) => {
                    (known.had_ns, known.would_ns) = (known.had_ns + job.had_ns, known.would_ns + job.would_ns)
                }
                None => sum.jobs.push(job.clone()),
            }
        }
        sum.divide();
    }
    all
}

/// The classes of rules of several servers.
fn rates(statuses: &[&Status]) -> Vec<RateStatus> {
    let mut all: Vec<RateStatus> = Vec::new();
    for rate in statuses.iter().flat_map(|status| &status.rates) {
        let same = |known: &&mut RateStatus| (&known.rule, &known.class) == (&rate.rule, &rate.class);
        let Some(sum) = all.iter_mut().find(same) else {
            all.push(rate.clone());
            continue;
        };
        sum.part += rate.part;
        sum.per_s += rate.per_s;
        sum.bytes_total += rate.bytes_total;
        sum.operations_total += rate.operations_total;
        sum.queued += rate.queued;
        sum.is_held |= rate.is_held;
        sum.held_ns_total = sum.held_ns_total.max(rate.held_ns_total);
        for job in &rate.jobs {
            match sum.jobs.iter_mut().find(|known| (&known.job, &known.user) == (&job.job, &job.user)) {
                Some(known) => known.held_ns_total = known.held_ns_total.max(job.held_ns_total),
                None => sum.jobs.push(job.clone()),
            }
        }
    }
    all
}

/// Adds what another server says of the same job, but for shares.
fn add(sum: &mut JobStatus, job: &JobStatus) {
    sum.nodes = sum.nodes.max(job.nodes);
    sum.priority = sum.priority.max(job.priority);
    if sum.proof != job.proof {
        // One server that does not know for certain is enough.
        sum.proof = "claim".to_owned();
    }
    sum.clients += job.clients;
    sum.throughput_bytes_per_s += job.throughput_bytes_per_s;
    sum.requests_per_s += job.requests_per_s;
    sum.queued += job.queued;
    if let Some(phase) = &job.phase {
        sum.phase.get_or_insert_default().add(phase);
    }
    if let Some(lateness) = &job.lateness {
        sum.lateness.get_or_insert_default().add(lateness);
    }
    sum.latency_p50_us = sum.latency_p50_us.max(job.latency_p50_us);
    sum.latency_p99_us = sum.latency_p99_us.max(job.latency_p99_us);
    sum.latency_max_us = sum.latency_max_us.max(job.latency_max_us);
    sum.read_bytes_total += job.read_bytes_total;
    sum.written_bytes_total += job.written_bytes_total;
    sum.requests_total += job.requests_total;
    sum.service_ns_total += job.service_ns_total;
    sum.data_service_ns_total += job.data_service_ns_total;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::{sample_job, sample_status};
    use isonomia_proto::control::{LatenessStatus, PhaseStatus};

    fn status(jobs: Vec<JobStatus>) -> Status {
        Status { jobs, ..sample_status() }
    }

    fn job(name: &str, due: f64, data_ns: u64, metadata_ns: u64) -> JobStatus {
        JobStatus { data_service_ns: data_ns, metadata_service_ns: metadata_ns, ..sample_job(name, 2, due, 7) }
    }

    #[test]
    fn shares_are_of_the_whole() {
        let first = status(vec![job("a", 0.5, 600, 0), job("b", 0.5, 200, 5)]);
        let second = status(vec![job("a", 1.0, 200, 0), job("c", 0.0, 0, 15)]);
        let idle = status(vec![]);
        let all = jobs(&[&first, &second, &idle]);
        let found: Vec<_> =
            all.iter().map(|job| (job.job.as_str(), job.share_due, job.share_received, job.clients)).collect();
        assert_eq!(found, [("a", 0.75, 0.8, 4), ("b", 0.25, 0.2, 2), ("c", 0.0, 0.75, 2)]);
        let due: f64 = all.iter().map(|job| job.share_due).sum();
        assert!((due - 1.0).abs() < 1e-9);
        assert_eq!((all[0].written_bytes_total, all[0].data_service_ns_total), (14 << 20, 14_000_000));
        assert!(jobs(&[]).is_empty());
    }

    #[test]
    fn phases_of_a_job_are_those_of_all_servers() {
        let running = |received_ns, fair_ns| PhaseStatus { received_ns, fair_ns, ..PhaseStatus::default() };
        let ended = LatenessStatus { phases_total: 3, late_total: 1, late_ns_total: 5 };
        let on = |phase, lateness| JobStatus { phase, lateness, ..job("a", 0.5, 1, 1) };
        let (first, second) = (on(Some(running(7, 3)), None), on(Some(running(1, 5)), Some(ended)));
        let all = jobs(&[&status(vec![first]), &status(vec![second]), &status(vec![on(None, Some(ended))])]);
        assert_eq!(all[0].phase, Some(running(8, 8)), "ahead here, behind there");
        assert_eq!(all[0].lateness, Some(LatenessStatus { phases_total: 6, late_total: 2, late_ns_total: 10 }));
        let table = crate::table::jobs_or_none(&all, true);
        let cells: Vec<_> = table.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(cells, ["a", "ada", "8", "ns", "8", "ns", "-", "6", "2", "10", "ns"], "{table}");
    }

    #[test]
    fn jobs_of_one_name_and_two_users_are_two() {
        let other = JobStatus { user: "bob".into(), ..job("a", 0.5, 1, 1) };
        assert_eq!(jobs(&[&status(vec![job("a", 0.5, 1, 1)]), &status(vec![other])]).len(), 2);
    }

    #[test]
    fn the_newest_policy_that_is_followed_is_the_clusters() {
        let with = |policy: &str, version, deviates| {
            let mut status = status(vec![]);
            status.policy = policy.to_owned();
            status.cluster = Some(crate::metrics::tests::sample_cluster(version, deviates));
            status
        };
        let (old, new, own) = (with("fifo", 3, false), with("job-fair", 4, false), with("size-fair", 5, true));
        assert_eq!(policy(&[&old, &new, &own]).map(|found| (found.policy, found.version)), Some(("job-fair", 4)));
        assert_eq!(policy(&[&own]).map(|found| found.version), Some(5));
        assert_eq!(policy(&[]), None);
    }
}
