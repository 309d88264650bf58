//! The rates of the policy's rules at this server: its targets' parts of them, and who is held by which.
//!
//! [`isonomia_policy::exchange::rates`] says how a rate is divided. Here are what other servers told of it, and the time: the keeper
//! divides ten times a second, in a cluster whose servers tell each other of their jobs the exchange does so, as often as they do.

use crate::intake::Bell;
use crate::jobs::{Job, Jobs};
use crate::target::{Policy, Target};
use isonomia_policy::exchange::rates::{Divider, Parts, RateReport, Table, fingerprint};
use isonomia_policy::{RateRule, Scope};
use isonomia_proto::control::{HeldJob, RateStatus};
use isonomia_units::{JobId, Nanos, ServerId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Classes that operators are told of at most: those that were held for longest.
const STATUS_ROWS_MAX: usize = 256;
/// Jobs of each of them.
const STATUS_JOBS_MAX: usize = 16;

/// See the module. Taken after the policy and before a target's dispatcher.
#[derive(Debug)]
pub struct Rates {
    divider: Mutex<Divider>,
    /// The exchange divides, and not the keeper.
    is_exchanged: AtomicBool,
}

impl Rates {
    /// Of a server of its own.
    pub fn new(targets: &[Target]) -> Self {
        let divider = Mutex::new(divider(1, None, targets));
        Self { divider, is_exchanged: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Divider> {
        self.divider.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server is one of so many, which tell each other of their jobs every `interval`, if they do.
    pub fn be_one_of(&self, targets: &[Target], servers: usize, interval: Option<Nanos>) {
        let mut own = self.lock();
        self.is_exchanged.store(interval.is_some(), Ordering::Release);
        *own = divider(servers, interval, targets);
        give(targets, &own.begin());
    }

    /// The arbiters were made anew, and have equal parts until more is known.
    pub fn begin(&self, targets: &[Target]) {
        give(targets, &self.lock().begin());
    }

    /// Keeps what another server told.
    pub fn tell(&self, now: Nanos, server: ServerId, table: Table) {
        self.lock().tell(now, server, table);
    }

    /// As [`Self::divide`], unless the exchange does it.
    pub fn divide_alone(&self, policy: &Mutex<Policy>, targets: &[Target], bell: &Bell, now: Nanos) {
        if !self.is_exchanged.load(Ordering::Acquire) {
            self.divide(policy, targets, bell, now);
        }
    }

    /// Divides anew. Gives what the other servers are to be told; nothing under a policy without rates.
    pub fn divide(&self, policy: &Mutex<Policy>, targets: &[Target], bell: &Bell, now: Nanos) -> Option<Table> {
        // Locked to the end: what is found out is about these rules.
        let policy = policy.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = policy.spec.rates()?;
        let mut divider = self.lock();
        let reports: Vec<_> = targets.iter().map(|target| target.rates(now)).collect();
        let (table, parts) = divider.divide(now, (fingerprint(&policy.spec.to_string()), rules), &reports);
        give(targets, &parts);
        // Whose turn it is may come sooner than whoever sleeps until then believes.
        bell.ring();
        Some(table)
    }

    /// Who is served how much by which rule, and who was held.
    pub fn status(&self, policy: &Mutex<Policy>, jobs: &Jobs, targets: &[Target], now: Nanos) -> Vec<RateStatus> {
        let spec = policy.lock().unwrap_or_else(PoisonError::into_inner).spec.clone();
        let Some(rates) = spec.rates() else { return Vec::new() };
        let mut classes: BTreeMap<(usize, Arc<str>), RateStatus> = BTreeMap::new();
        let names = names(jobs);
        let reports = |target: &Target| {
            // Of a rate in bytes the metadata service has a part that nobody uses.
            let is_counted = |report: &RateReport| report.amount.counts_metadata();
            let is_metadata = target.is_metadata();
            target.rates(now).into_iter().filter(move |report| !is_metadata || is_counted(report)).collect::<Vec<_>>()
        };
        for report in targets.iter().flat_map(reports) {
            let Some(rule) = rates.rules.get(report.rule) else { continue };
            let status = classes.entry((report.rule, report.class.clone())).or_insert_with(|| begun(rule, &report));
            add(status, &report, &names);
        }
        let divider = self.lock();
        for ((rule, class), status) in &mut classes {
            status.per_s = divider.per_s(*rule, class);
        }
        let mut all: Vec<_> = classes.into_values().collect();
        all.sort_by_key(|status| (!status.is_held, std::cmp::Reverse(status.held_ns_total)));
        all.truncate(STATUS_ROWS_MAX);
        all
    }
}

fn divider(servers: usize, interval: Option<Nanos>, targets: &[Target]) -> Divider {
    Divider::new(servers, interval, targets.iter().map(Target::is_metadata).collect())
}

fn give(targets: &[Target], parts: &[Parts]) {
    let now = crate::clock::now();
    targets.iter().zip(parts).for_each(|(target, parts)| target.set_rate_parts(now, parts));
}

fn names(jobs: &Jobs) -> BTreeMap<JobId, (String, String)> {
    let of = |job: Arc<Job>| {
        let info = job.info();
        (job.id, (info.name.to_string(), info.user.to_string()))
    };
    jobs.all().into_iter().map(of).collect()
}

/// Whom a class of a rule is of.
fn whom(scope: &Scope, class: &str) -> String {
    let of = |(selector, name): (&isonomia_policy::Selector, &str)| format!("{}:{name}", selector.entity.word());
    let all: Vec<_> = scope.who.iter().zip(class.split('\0')).map(of).collect();
    if all.is_empty() { "everybody".to_owned() } else { all.join("&") }
}

fn begun(rule: &RateRule, report: &RateReport) -> RateStatus {
    RateStatus {
        rule: rule.label(),
        class: whom(&rule.scope, &report.class),
        rate: report.amount.to_string(),
        ..RateStatus::default()
    }
}

/// Adds what one target has of a class. A class that several targets hold at once is held as long as on the one where that was longest.
fn add(status: &mut RateStatus, report: &RateReport, names: &BTreeMap<JobId, (String, String)>) {
    status.part += report.part;
    status.bytes_total += report.bytes;
    status.operations_total += report.operations;
    status.queued += report.queued;
    status.is_held |= report.is_held;
    status.held_ns_total = status.held_ns_total.max(report.held.0);
    for (job, held) in &report.jobs {
        let Some((job, user)) = names.get(job) else { continue };
        match status.jobs.iter_mut().find(|known| known.job == *job && known.user == *user) {
            Some(known) => known.held_ns_total = known.held_ns_total.max(held.0),
            None => status.jobs.push(HeldJob { job: job.clone(), user: user.clone(), held_ns_total: held.0 }),
        }
    }
    status.jobs.sort_by_key(|job| std::cmp::Reverse(job.held_ns_total));
    status.jobs.truncate(STATUS_JOBS_MAX);
}
