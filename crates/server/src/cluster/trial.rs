//! What a controller would decide under the policy that decides beside the one that is followed ([`crate::shadow`]).
//!
//! Each server that has such a policy computes it by itself, from its own jobs and what the others tell of theirs in the exchange
//! ([`super::exchange`]), with the plan that a controller has. It applies its own targets' parts to the arbiters that have no say, and sends nothing. So
//! it is known what the policy would give, while nothing depends on it and nobody else has to take part.
//!
//! The ledger of such a plan begins empty, and is gone with it: coupons that are owed in truth are not in it, and none of its own are
//! ever owed. While the policy that is followed is decided by a controller as well, servers do not tell each other of their jobs: then it goes by
//! this server's alone.

use super::controller::{by_key, infos, moment};
use crate::clock;
use crate::cluster_config::ClusterConfig;
use crate::core::Core;
use isonomia_controller::{Given, JobKey, Kept, Plan, Standing, Using, look_every, metadata_parts, parts};
use isonomia_policy::PolicySpec;
use isonomia_policy::exchange::{Exchange, Meters};
use isonomia_units::{JobInfo, Nanos, ServerId, TargetId};
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub struct Trial {
    /// [`crate::shadow::Shadowing::sets`] when the plan was made.
    sets: u64,
    tried: Option<Tried>,
}

struct Tried {
    plan: Plan,
    interval: Nanos,
    meters: Meters,
    next_at: Nanos,
    /// What uses targets is looked at between decisions as well: who does I/O now counts.
    look_at: Nanos,
    own: Vec<Using>,
    /// It could not be decided once, which was told.
    has_failed: bool,
}

impl Trial {
    /// Does what is due at `now`; when it is to be called again, if there is anything to try. `told` gives what other servers told.
    pub fn look(
        &mut self,
        core: &Core,
        config: &ClusterConfig,
        now: Nanos,
        told: impl FnOnce() -> Exchange,
    ) -> Option<Nanos> {
        let sets = core.shadowing.sets();
        if self.sets != sets {
            self.sets = sets;
            self.tried = core.shadowing.spec().and_then(|spec| Tried::begin(core, config, &spec, now));
        }
        let tried = self.tried.as_mut()?;
        if tried.look_at <= now {
            tried.look_at = now + look_every(tried.interval);
            tried.own = tried.using(core, now);
        }
        if tried.next_at <= now {
            // Those that were missed are not made up for.
            tried.next_at = (tried.next_at + tried.interval).max(now);
            tried.decide(core, config, now, &told());
            // Of this thread's time half at least is left to the policy that is followed.
            let done = clock::now();
            tried.next_at = tried.next_at.max(done + done.since(now));
        }
        Some(tried.look_at.min(tried.next_at))
    }
}

impl Tried {
    /// Nothing if it is a policy that targets decide by themselves.
    fn begin(core: &Core, config: &ClusterConfig, spec: &PolicySpec, now: Nanos) -> Option<Self> {
        let interval = Plan::interval(spec, config.map().control().decide);
        // Orders over all targets are tried by each target for itself.
        spec.allocated()?;
        let plan = Plan::new(spec, interval, Kept::default())
            .inspect_err(|error| tracing::warn!(%error, policy = %spec, "what is tried beside cannot be decided"));
        let meters = Meters::new(core.data_targets(), look_every(interval));
        // First it is seen who is there.
        let next_at = now + look_every(interval);
        Some(Self { plan: plan.ok()??, interval, meters, next_at, look_at: now, own: Vec::new(), has_failed: false })
    }

    /// Which of this server's jobs use which of its targets.
    fn using(&mut self, core: &Core, now: Nanos) -> Vec<Using> {
        let data = || core.targets.iter().filter(|target| !target.is_metadata());
        let usage: Vec<_> = data().map(|target| target.usage(now)).collect();
        let infos = infos(core);
        let own = self.meters.table(now, usage, |job| infos.get(&job).map(|info| JobInfo::clone(info)));
        Using::of(&own, data().map(|target| (target.id, Vec::new())))
    }

    fn decide(&mut self, core: &Core, config: &ClusterConfig, now: Nanos, told: &Exchange) {
        let (map, number) = (config.map(), config.number);
        let per_server = map.targets_per_server();
        let id = |server: ServerId, index: u16| {
            let before = server.0.checked_sub(1)?.checked_mul(per_server)?;
            before.checked_add(index).map(TargetId)
        };
        let others = told.tables().filter(|(server, _)| *server != number).map(|(server, table)| {
            let ids = (0..per_server).map(|index| id(server, index));
            (server, Standing::of(&Using::of_table(table, ids)))
        });
        let mut standing: BTreeMap<ServerId, Standing> = others.collect();
        standing.insert(number, Standing::of(&self.own));
        let known = standing.iter().map(|(server, standing)| (*server, standing)).collect();
        let decided = self.plan.decide(moment(now), &known);
        let decided = decided.and_then(|mut decided| decided.failed.take().map_or(Ok(decided), Err));
        if let Err(error) = &decided
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tracing::warn!(%error, "what is tried beside could not be decided: nothing is shown of it");
        }
        let given = decided.map(|decided| decided.given).unwrap_or_default();
        let rates = match given.get(&number) {
            Some(Given::Rates(rates)) => &rates[..],
            _ => &[],
        };
        let names: Vec<JobKey> = self.own.iter().map(|using| JobKey::from(&using.job)).collect();
        let given = rates.iter().filter_map(|rate| Some((names.get(rate.job as usize)?, rate.target, rate.parts)));
        let mut parts = parts(given, &by_key(core));
        let of_metadata = metadata_parts(&parts);
        for target in &core.targets {
            if target.is_metadata() {
                target.apportion_shadow(now, &of_metadata);
            } else {
                target.apportion_shadow(now, &target.id.and_then(|id| parts.remove(&id)).unwrap_or_default());
            }
        }
    }
}
