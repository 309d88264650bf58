//! A policy that decides beside the one that is followed: [`isonomia_policy::Shadow`] has what it can tell.
//!
//! It is this server's alone, off unless an operator wants one, and gone when the server ends. It stays when the policy that is followed
//! changes. If it is one that a controller decides, that is computed here as well, from what servers tell each other of their jobs, and
//! sent to nobody (`cluster::trial`).

use crate::clock;
use crate::jobs::Jobs;
use crate::prefixes::Prefixes;
use crate::target::{Policy, Target};
use isonomia_policy::{PREFIXES_MAX, PolicySpec, Scheme, ShadowReport};
use isonomia_proto::control::{ShadowJob, ShadowStatus};
use isonomia_units::JobId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Which policy it is.
#[derive(Debug, Default)]
pub struct Shadowing {
    spec: Mutex<Option<PolicySpec>>,
    /// How often it was set: its arbiters are new each time.
    sets: AtomicU64,
}

impl Shadowing {
    /// This policy decides beside the other from now on, or none any more.
    ///
    /// # Errors
    /// It has exclusive phases, which only the policy that is followed can have; it goes by decisions for a cluster, and there is none; or
    /// its rules and those of the policy that is followed name too many directories.
    pub fn set(
        &self,
        spec: Option<PolicySpec>,
        policy: &Mutex<Policy>,
        jobs: &Jobs,
        (targets, prefixes): (&[Target], &Prefixes),
        is_in_cluster: bool,
    ) -> Result<(), String> {
        if let Some(spec) = &spec {
            if matches!(spec.scheme(), Scheme::Exclusive(_)) {
                return Err(
                    "exclusive phases end when programs have had their I/O, which under another policy they have at \
                            other times: they cannot be tried beside it (allowed: any policy that shares targets)"
                        .to_owned(),
                );
            }
            if let Some(allocated) = spec.allocated().filter(|_| !is_in_cluster) {
                let word = allocated.method.word();
                return Err(format!("{word} is decided by a cluster's controller, and this server is in no cluster"));
            }
        }
        // Locked to the end: a job that joins meanwhile is announced to the new arbiters.
        let policy = policy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spec) = spec.as_ref().filter(|spec| !fit_together(&policy.spec, spec)) {
            let (own, beside) = (policy.spec.prefixes().len(), spec.prefixes().len());
            return Err(format!(
                "its rules name {beside} directories, and those of the policy that is followed {own} (allowed: {PREFIXES_MAX} together)"
            ));
        }
        *self.spec.lock().unwrap_or_else(PoisonError::into_inner) = spec.clone();
        self.name_prefixes(targets, prefixes, &policy.spec);
        let jobs: Vec<_> = jobs.all().iter().map(|job| (job.id, job.info())).collect();
        for target in targets {
            target.set_shadow(clock::now(), spec.as_ref().map(|spec| (spec, policy.draw, policy.seed)), &jobs);
        }
        match &spec {
            Some(spec) => tracing::info!(policy = %spec, "a policy decides beside the one that is followed"),
            None => tracing::info!("no policy decides beside the one that is followed"),
        }
        self.sets.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// From now on requests are judged for the rules of both policies, `followed` being the one that is followed, whose lock the caller has. Where
    /// both name more directories than can be told apart, that one goes first, and none decides beside it any more.
    pub fn name_prefixes(&self, targets: &[Target], prefixes: &Prefixes, followed: &PolicySpec) {
        let mut spec = self.spec.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = spec.take_if(|spec| !fit_together(followed, spec)) {
            targets.iter().for_each(|target| target.set_shadow(clock::now(), None, &[]));
            self.sets.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(
                policy = %ended, PREFIXES_MAX,
                "it decides beside the policy that is followed no more: the rules of both name too many directories"
            );
        }
        let beside = spec.as_ref().map(PolicySpec::prefixes).unwrap_or_default();
        prefixes.set(&followed.prefixes(), &beside);
    }

    /// How often it was set: whoever tells its arbiters anything tells it again then.
    pub fn sets(&self) -> u64 {
        self.sets.load(Ordering::Acquire)
    }

    /// Which policy it is, if there is one.
    pub fn spec(&self) -> Option<PolicySpec> {
        self.spec.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it would give.
    pub fn status(&self, jobs: &Jobs, targets: &[Target]) -> Option<ShadowStatus> {
        let spec = self.spec()?;
        let of = |is_metadata: bool| {
            let mut sums: BTreeMap<JobId, ShadowReport> = BTreeMap::new();
            let targets = targets.iter().filter(|target| target.is_metadata() == is_metadata);
            for (job, report) in targets.filter_map(|target| target.shadow()).flatten() {
                let sum = sums.entry(job).or_default();
                *sum = ShadowReport { had: sum.had + report.had, would: sum.would + report.would };
            }
            sums.retain(|_, sum| sum.had + sum.would > isonomia_units::Nanos::ZERO);
            sums
        };
        // As shares received: of metadata only where nobody uses anything else.
        let mut sums = of(false);
        if sums.is_empty() {
            sums = of(true);
        }
        // What is proven and what is only claimed to be the same job are one here.
        let mut named: BTreeMap<(String, String), ShadowJob> = BTreeMap::new();
        for job in jobs.all() {
            let Some(sum) = sums.get(&job.id) else { continue };
            let info = job.info();
            let (job, user) = (info.name.to_string(), info.user.to_string());
            let begun = || ShadowJob { job: job.clone(), user: user.clone(), ..ShadowJob::default() };
            let of = named.entry((job.clone(), user.clone())).or_insert_with(begun);
            (of.had_ns, of.would_ns) = (of.had_ns + sum.had.0, of.would_ns + sum.would.0);
        }
        let mut status = ShadowStatus { policy: spec.to_string(), jobs: named.into_values().collect() };
        status.divide();
        Some(status)
    }
}

/// Whether the directories that the rules of both name can be told apart.
fn fit_together(followed: &PolicySpec, beside: &PolicySpec) -> bool {
    followed.prefixes().len() + beside.prefixes().len() <= PREFIXES_MAX
}
