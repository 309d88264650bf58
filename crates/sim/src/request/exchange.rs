//! Servers that tell each other their jobs every λ, as live ones do: [`isonomia_policy::exchange`].

use isonomia_policy::exchange::rates::{Divider, Parts as RateParts, RateReport, fingerprint};
use isonomia_policy::exchange::{Course, Exchange, Meters, Rule, Usage};
use isonomia_policy::{PolicySpec, TokenBucket};
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
    course: Course,
}

/// What the arbiter of a target is to be told.
pub(super) struct Told {
    pub(super) target: usize,
    pub(super) parts: Vec<(JobId, f64)>,
    pub(super) fair_ends: Vec<(JobId, Nanos)>,
}

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
            Server {
                meters: Meters::new(targets.len(), interval),
                exchange: Exchange::new(rule, interval),
                course: Course::new(interval),
                targets,
            }
        };
        Self { policy, infos: jobs.collect(), servers: (0..servers).map(server).collect() }
    }

    /// All tell each other what their jobs had by now, which `usage` says of a target.
    pub(super) fn join(&mut self, now: Nanos, mut usage: impl FnMut(usize) -> BTreeMap<JobId, Usage>) -> Vec<Told> {
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
            let joined = server.exchange.join(now, &self.policy, &own[at].table, &mut server.course);
            let parts = own[at].parts(joined);
            let fair_ends = own[at].fair_ends(server.exchange.fair_ends(now, &own[at].table));
            let told = server.targets.iter().zip(parts).zip(fair_ends);
            all.extend(told.map(|((target, parts), fair_ends)| Told { target: *target, parts, fair_ends }));
        }
        all
    }
}

/// How often a server divides rates among its own targets if servers tell each other nothing.
const DIVIDED_EVERY: Nanos = Nanos::from_millis(100);

/// The rates of rules over all servers, as live ones divide them. A table is known to others one interval after it was made, the longest
/// that it takes where none is lost.
pub(super) struct Rates {
    /// How often.
    pub(super) interval: Nanos,
    policy: (u64, TokenBucket),
    /// They tell each other.
    is_told: bool,
    /// By server: its targets.
    servers: Vec<(Vec<usize>, Divider)>,
}

impl Rates {
    /// Of servers that tell each other every `interval`, if they do.
    pub(super) fn new(
        policy: &PolicySpec,
        rules: &TokenBucket,
        interval: Option<Nanos>,
        servers: usize,
        server_of: &[usize],
    ) -> Self {
        let server = |server| {
            let targets: Vec<usize> = (0..server_of.len()).filter(|at| server_of[*at] == server).collect();
            let is_metadata = vec![false; targets.len()];
            (targets, Divider::new(servers, interval, is_metadata))
        };
        let policy = (fingerprint(&policy.to_string()), rules.clone());
        let (is_told, interval) = (interval.is_some(), interval.unwrap_or(DIVIDED_EVERY));
        Self { interval, policy, is_told, servers: (0..servers).map(server).collect() }
    }

    /// What each target has at first.
    pub(super) fn begin(&self) -> Vec<(usize, RateParts)> {
        let of = |(targets, divider): &(Vec<usize>, Divider)| targets.iter().copied().zip(divider.begin()).collect();
        self.servers.iter().flat_map(of as fn(&_) -> Vec<_>).collect()
    }

    /// All divide, and tell each other.
    pub(super) fn divide(
        &mut self,
        now: Nanos,
        mut reports: impl FnMut(usize) -> Vec<RateReport>,
    ) -> Vec<(usize, RateParts)> {
        let (mut tables, mut all) = (Vec::new(), Vec::new());
        for (targets, divider) in &mut self.servers {
            let reports: Vec<_> = targets.iter().map(|at| reports(*at)).collect();
            let (table, parts) = divider.divide(now, (self.policy.0, &self.policy.1), &reports);
            tables.push(table);
            all.extend(targets.iter().copied().zip(parts));
        }
        for (at, (_, divider)) in self.servers.iter_mut().enumerate().filter(|_| self.is_told) {
            for (other, table) in tables.iter().enumerate().filter(|(other, _)| *other != at) {
                divider.tell(now, ServerId(other as u16 + 1), table.clone());
            }
        }
        all
    }
}
