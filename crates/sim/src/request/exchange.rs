//! Servers that tell each other their jobs every λ, as live ones do: [`isonomia_policy::exchange`].

use isonomia_policy::PolicySpec;
use isonomia_policy::exchange::{Exchange, Meters, Rule, Usage};
use isonomia_units::{JobId, JobInfo, Nanos, ServerId};
use std::collections::BTreeMap;

/// All servers. A table is there as soon as it is sent.
pub(super) struct Servers {
    policy: PolicySpec,
    infos: Vec<JobInfo>,
    servers: Vec<Server>,
}

struct Server {
    /// Their numbers in the scenario.
    targets: Vec<usize>,
    meters: Meters,
    exchange: Exchange,
}

/// What the arbiter of a target is to be told.
pub(super) type Parts = (usize, Vec<(JobId, f64)>);

impl Servers {
    /// `server_of` tells of each target whose it is.
    pub(super) fn new(
        policy: PolicySpec,
        (rule, interval): (Rule, Nanos),
        servers: usize,
        server_of: &[usize],
        jobs: impl Iterator<Item = JobInfo>,
    ) -> Self {
        let server = |server| {
            let targets: Vec<usize> = (0..server_of.len()).filter(|at| server_of[*at] == server).collect();
            Server { meters: Meters::new(targets.len(), interval), exchange: Exchange::new(rule, interval), targets }
        };
        Self { policy, infos: jobs.collect(), servers: (0..servers).map(server).collect() }
    }

    /// All tell each other what their jobs had by now, which `usage` says of a target.
    pub(super) fn join(&mut self, now: Nanos, mut usage: impl FnMut(usize) -> BTreeMap<JobId, Usage>) -> Vec<Parts> {
        let infos = &self.infos;
        let mut own = Vec::new();
        for Server { targets, meters, .. } in &mut self.servers {
            let usage = targets.iter().map(|at| usage(*at));
            own.push(meters.table(now, usage, |job| infos.get(job.0 as usize).cloned()));
        }
        let mut all = Vec::new();
        for (at, server) in self.servers.iter_mut().enumerate() {
            for (other, own) in own.iter().enumerate().filter(|(other, _)| *other != at) {
                // Its own tables make sense.
                let _ = server.exchange.tell(now, ServerId(other as u16 + 1), own.table.clone());
            }
            let parts = own[at].parts(server.exchange.join(now, &self.policy, &own[at].table));
            all.extend(server.targets.iter().copied().zip(parts));
        }
        all
    }
}
