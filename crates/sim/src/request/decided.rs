//! What a controller decides for all servers, as a live one does: over reports that are made in the same way, by the same plan, and
//! followed in the same way ([`isonomia_controller`]).
//!
//! Messages take no time and none is lost, every server is asked every time, and nothing expires.

use super::measure::GiftCoupons;
use isonomia_allocation::AccountRecord;
use isonomia_controller::{Given, JobKey, Kept, KnownJobs, Moment, Plan, Standing, Using, look_every, parts};
use isonomia_policy::exchange::{Meters, Usage};
use isonomia_policy::{PolicySpec, Progress};
use isonomia_units::{JobId, JobInfo, Nanos, ServerId, TargetId};
use std::collections::BTreeMap;

/// The controller, and what each server reports to it.
pub(super) struct Controller {
    plan: Plan,
    /// Between two looks at what jobs have.
    pub(super) look_every: Nanos,
    interval: Nanos,
    decide_at: Nanos,
    infos: Vec<JobInfo>,
    known: KnownJobs,
    servers: Vec<Server>,
}

struct Server {
    /// Their numbers in the scenario.
    targets: Vec<usize>,
    meters: Meters,
}

/// What a target is to be told.
pub(super) enum Told {
    /// Parts of it.
    Parts(usize, Vec<(JobId, f64)>),
    /// The places of jobs in an order over all targets.
    Places(usize, BTreeMap<JobId, u32>),
}

impl Controller {
    /// Under `policy`, every `decide` unless the policy says how often; nothing if there is nothing to decide for all servers.
    /// `server_of` tells of each target whose it is.
    pub(super) fn new(
        policy: &PolicySpec,
        decide: Nanos,
        servers: usize,
        server_of: &[usize],
        jobs: impl Iterator<Item = JobInfo>,
    ) -> Option<Self> {
        let interval = Plan::interval(policy, decide);
        // Without anything kept there is no ledger that could be wrong.
        let plan = Plan::new(policy, interval, Kept::default()).ok().flatten()?;
        let look_every = look_every(interval);
        let infos: Vec<JobInfo> = jobs.collect();
        let mut known = KnownJobs::new();
        for (number, info) in (0..).zip(&infos) {
            known.entry(JobKey::of(info)).or_default().push(JobId(number));
        }
        let server = |server| {
            let targets: Vec<usize> = (0..server_of.len()).filter(|at| server_of[*at] == server).collect();
            Server { meters: Meters::new(targets.len(), look_every), targets }
        };
        let servers = (0..servers).map(server).collect();
        Some(Self { plan, look_every, interval, decide_at: interval, infos, known, servers })
    }

    /// Looks at what jobs had by now, which `usage` says of a target, and decides if it is time to. `progress` says how far the
    /// jobs' phases have come on a target.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        mut usage: impl FnMut(usize) -> BTreeMap<JobId, Usage>,
        progress: impl Fn(usize) -> Vec<(JobId, Progress)>,
    ) -> Vec<Told> {
        let is_due = now >= self.decide_at;
        let is_pulled = self.plan.is_pulled();
        let mut standings = BTreeMap::new();
        for (number, Server { targets, meters }) in (1..).zip(&mut self.servers) {
            let usage = targets.iter().map(|at| usage(*at));
            let own = meters.table(now, usage, |job| self.infos.get(job.0 as usize).cloned());
            // At other times it is only looked, so that the tables are of a while.
            if is_due {
                let progress = |at: usize| if is_pulled { progress(at) } else { Vec::new() };
                let targets = targets.iter().map(|at| (Some(TargetId(*at as u16)), progress(*at)));
                standings.insert(ServerId(number), Standing::of(&Using::of(&own, targets)));
            }
        }
        if !is_due {
            return Vec::new();
        }
        self.decide_at += self.interval;
        // A live server tells nothing to those who have nobody to report, and one that cannot decide leaves everything as it is.
        standings.retain(|_, standing| !standing.is_idle());
        let at = Moment { now, wall: now };
        let Ok(decided) = self.plan.decide(at, &standings.iter().map(|(server, of)| (*server, of)).collect()) else {
            return Vec::new();
        };
        let mut told = Vec::new();
        for (server, given) in decided.given {
            let Some(Server { targets, .. }) = self.servers.get(usize::from(server.0) - 1) else { continue };
            let Some(standing) = standings.get(&server) else { continue };
            match given {
                Given::Rates(rates) => {
                    let given: Vec<_> = rates
                        .iter()
                        .filter_map(|rate| Some((standing.job(rate.job)?, rate.target, rate.parts)))
                        .collect();
                    let mut parts = parts(given.iter().map(|(job, target, parts)| (job, *target, *parts)), &self.known);
                    told.extend(
                        targets
                            .iter()
                            .map(|at| Told::Parts(*at, parts.remove(&TargetId(*at as u16)).unwrap_or_default())),
                    );
                }
                Given::Ranks(ranks) => {
                    let order: Vec<_> =
                        ranks.iter().filter_map(|(job, rank)| Some((standing.job(*job)?, *rank))).collect();
                    let places = isonomia_controller::ranks(order.iter().map(|(job, rank)| (job, *rank)), &self.known);
                    told.extend(targets.iter().map(|at| Told::Places(*at, places.clone())));
                }
            }
        }
        told
    }

    /// What became of GIFT's coupons, under GIFT.
    pub(super) fn coupons(&self) -> Option<GiftCoupons> {
        self.plan.gift()?;
        let records = || self.plan.kept().accounts.values().map(|account| &account.record);
        let sum = |of: fn(&AccountRecord) -> u64| records().map(of).sum::<u64>();
        let node_s = |of: fn(&AccountRecord) -> u128| records().map(of).sum::<u128>() as f64 / 1e9;
        let (issued, redeemed) = (sum(|record| record.issued), sum(|record| record.redeemed));
        let compensated = sum(|record| record.compensated);
        Some(GiftCoupons {
            issued,
            redeemed,
            compensated,
            outstanding: issued - redeemed - compensated,
            outstanding_node_s: node_s(|record| record.regret),
            paid_node_s: node_s(|record| record.paid),
        })
    }
}
