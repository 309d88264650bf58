//! Global fairness with a delay: servers tell each other their jobs every λ (ThemisIO §3.1).
//!
//! Between two exchanges a server shares by the policy over the jobs it has seen itself. At an exchange the tables
//! of all servers are joined, the policy is applied to all jobs, and a job's share is divided by the number of
//! servers that it is active on: what Fig. 5 calls adding token counts. A job that was not active since the last
//! exchange is left out.

use isonomia_policy::{PolicySpec, shares};
use isonomia_units::{JobId, JobInfo};
use std::collections::{BTreeMap, BTreeSet};

/// A share of 1 as a priority.
const SCALE: f64 = 1e9;

/// The tables of all servers.
pub(super) struct Exchange {
    policy: PolicySpec,
    infos: BTreeMap<JobId, JobInfo>,
    /// Jobs in each server's table, and whether they were active since the last exchange.
    tables: Vec<BTreeMap<JobId, bool>>,
}

/// A job's new weight on a server.
pub(super) type Weights = Vec<(JobId, JobInfo)>;

impl Exchange {
    pub(super) fn new(policy: PolicySpec, servers: usize, jobs: impl Iterator<Item = JobInfo>) -> Self {
        let infos = (0..).map(JobId).zip(jobs).collect();
        Self { policy, infos, tables: vec![BTreeMap::new(); servers] }
    }

    /// The policy that servers run with the weights from here.
    pub(super) fn local_policy() -> PolicySpec {
        "priority-fair".parse().expect("a policy")
    }

    /// A request of `job` came to `server`: new weights there if the job is new to it.
    pub(super) fn arrive(&mut self, server: usize, job: JobId) -> Option<Weights> {
        let table = &mut self.tables[server];
        if table.insert(job, true).is_some() {
            return None;
        }
        let known: BTreeMap<JobId, JobInfo> = table.keys().map(|job| (*job, self.infos[job].clone())).collect();
        let due = shares::due(&self.policy, &known);
        Some(due.into_iter().map(|(job, share)| (job, self.weighted(job, share))).collect())
    }

    /// Joins the tables: new weights for every server.
    pub(super) fn join(&mut self) -> Vec<Weights> {
        for table in &mut self.tables {
            table.retain(|_, active| std::mem::take(active));
        }
        let mut servers_of: BTreeMap<JobId, u32> = BTreeMap::new();
        for job in self.tables.iter().flat_map(BTreeMap::keys) {
            *servers_of.entry(*job).or_default() += 1;
        }
        let known: BTreeMap<JobId, JobInfo> = servers_of.keys().map(|job| (*job, self.infos[job].clone())).collect();
        let due: BTreeMap<JobId, f64> = shares::due(&self.policy, &known).into_iter().collect();
        let local = |table: &BTreeMap<JobId, bool>| {
            let jobs: BTreeSet<JobId> = table.keys().copied().collect();
            let weight = |job: JobId| due.get(&job).copied().unwrap_or(0.0) / f64::from(servers_of[&job]);
            jobs.into_iter().map(|job| (job, self.weighted(job, weight(job)))).collect()
        };
        self.tables.iter().map(local).collect()
    }

    fn weighted(&self, job: JobId, share: f64) -> JobInfo {
        JobInfo { priority: ((share * SCALE).round() as u32).max(1), ..self.infos[&job].clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ThemisIO Fig. 5: 16 nodes on both servers, 8 on the first, 8 on the second.
    #[test]
    fn a_job_on_two_servers_has_half_of_its_share_on_each() {
        let infos = [16, 8, 8].map(|nodes| JobInfo { nodes, ..JobInfo::new("", "u", "g") });
        let mut exchange = Exchange::new("size-fair".parse().unwrap(), 2, infos.into_iter());
        let parts = |weights: &Weights| -> Vec<f64> {
            let total: f64 = weights.iter().map(|(_, info)| f64::from(info.priority)).sum();
            weights.iter().map(|(_, info)| f64::from(info.priority) / total).collect()
        };
        let near = |a: Vec<f64>, b: [f64; 2]| assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-8), "{a:?}");
        exchange.arrive(0, JobId(0)).unwrap();
        near(parts(&exchange.arrive(0, JobId(1)).unwrap()), [2.0 / 3.0, 1.0 / 3.0]);
        exchange.arrive(1, JobId(0)).unwrap();
        near(parts(&exchange.arrive(1, JobId(2)).unwrap()), [2.0 / 3.0, 1.0 / 3.0]);
        assert!(exchange.arrive(1, JobId(2)).is_none());
        let weights = exchange.join();
        near(parts(&weights[0]), [0.5, 0.5]);
        near(parts(&weights[1]), [0.5, 0.5]);
        exchange.arrive(0, JobId(1));
        let weights = exchange.join();
        assert_eq!(weights[0].len(), 1, "only what was active since counts");
        assert!(weights[1].is_empty());
    }
}
