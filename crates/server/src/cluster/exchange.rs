//! What servers tell each other of their jobs, so that the policy applies over all of them: [`isonomia_policy::exchange`] has the rule.
//!
//! One thread, `exchange`, looks every interval of the cluster file at what each job had of each target here, tells the other
//! servers, and has the arbiters divide by what comes out of all tables. It has connections of its own: nothing waits for it, and it
//! waits for nothing but other servers' connections, each in a thread of its own. A table that comes is kept by the worker that took it in,
//! unless it is older than one that has come.
//!
//! The metadata services of all servers are divided by the policy, too, and apart from the targets: a job that opens many files has no less
//! of the targets for it, as on one server.
//!
//! A table with other jobs than the one before wakes the thread. Servers look at different moments, so without that a new job
//! could count elsewhere only nearly two intervals after it began. The thread is woken so [`EARLY_PER_INTERVAL`] times an interval at
//! most, and then tells others only if its own jobs are other ones than they know.

use super::controller::infos;
use super::links::Links;
use super::peer_tables::{begun, interval_of};
use super::placing::Known;
use super::trial::Trial;
use super::wire::{self, JobTable};
use crate::clock;
use crate::cluster_config::ClusterConfig;
use crate::core::Core;
use isonomia_cluster::map;
use isonomia_policy::PolicySpec;
use isonomia_policy::exchange::{Course, Left, Meters, Table};
use isonomia_transport::handshake::Protection;
use isonomia_units::{Edition, JobInfo, Nanos, Placement, ServerId};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The longest sleep, so that the end of the server and another cluster file are noticed.
const SLEEP_MAX: Nanos = Nanos::from_millis(200);
/// See the module.
const EARLY_PER_INTERVAL: u64 = 8;

/// How often closed files are looked for.
const CLOSED_EVERY: Nanos = Nanos::from_millis(100);
/// How much later than this server others may hear that files are placed by what they tell.
const TOLD_TO_WITHIN: Nanos = Nanos::from_secs(2);

/// What is exchanged of the metadata services.
struct Metadata {
    links: Links,
    meters: Meters,
    course: Course,
    /// What others were told the last time.
    told: Table,
}

/// The thread.
pub struct Exchanger {
    core: Arc<Core>,
    config: ClusterConfig,
    /// Of the last table, of jobs or of rates.
    edition: Edition,
    links: Links,
    /// Others: of two messages that wait for a server, one must not replace the other.
    rate_links: Links,
    settings: map::Exchange,
    meters: Meters,
    course: Course,
    metadata: Metadata,
    /// Of the cluster file.
    servers: usize,
    /// All servers are to tell of their targets, since this one knows.
    telling_since: Option<Nanos>,
    /// What others were told the last time.
    told: Table,
    /// When it looks again: at the interval, and between at the earliest.
    next_at: Nanos,
    early_at: Nanos,
    next_closed_at: Nanos,
    trial: Trial,
}

impl Exchanger {
    /// Of the server that has `core`, whose process is the `process`-th in its directory.
    pub fn new(core: Arc<Core>, config: ClusterConfig, way: (Option<String>, Protection), process: u64) -> Self {
        let settings = config.map().exchange();
        let links_of = || Links::of_the_latest(config.clone(), way.clone());
        let (links, rate_links) = (links_of(), links_of());
        let (metadata_meters, metadata_course) = (Meters::new(1, interval_of(settings)), course(settings));
        let metadata =
            Metadata { links: links_of(), meters: metadata_meters, course: metadata_course, told: Table::default() };
        let meters = meters(&core, settings);
        let (course, told, now) = (course(settings), Table::default(), clock::now());
        Self {
            core,
            config,
            edition: Edition { process, number: 0 },
            links,
            rate_links,
            settings,
            meters,
            course,
            metadata,
            servers: 0,
            telling_since: None,
            told,
            next_at: now,
            early_at: now,
            next_closed_at: now,
            trial: Trial::default(),
        }
    }

    /// Does its part until the server stops.
    pub fn run(&mut self) {
        if let Some(cluster) = self.core.cluster.get() {
            // It is run once.
            let _ = cluster.peer_tables.exchanger.set(std::thread::current());
        }
        while !self.core.is_stopping.load(Ordering::Relaxed) {
            self.forget_closed_files();
            let map = self.config.map();
            let mut settings = map.exchange();
            if map.servers().len() == 1 && self.core.data_targets() == 1 {
                // There is nothing to be fair over, and counting costs each request a little.
                settings.interval = None;
            }
            if (settings, map.servers().len()) != (self.settings, self.servers) || self.servers == 0 {
                self.servers = map.servers().len();
                self.core.rates.be_one_of(&self.core.targets, self.servers, settings.interval);
            }
            if settings != self.settings {
                self.settings = settings;
                self.meters = meters(&self.core, settings);
                self.course = course(settings);
                self.metadata.meters = Meters::new(1, interval_of(settings));
                self.metadata.course = course(settings);
                if let Some(cluster) = self.core.cluster.get() {
                    for is_metadata in [false, true] {
                        *cluster.peer_tables.lock(is_metadata) = begun(settings);
                    }
                }
                for target in &self.core.targets {
                    target.apportion(clock::now(), &[]);
                    target.set_fair_ends(clock::now(), &[]);
                }
            }
            let now = clock::now();
            let sleep = match settings.interval {
                Some(interval) if now >= self.next_at => {
                    self.exchange(now, true);
                    // Those that were missed are not made up for, and half of the time is others'.
                    let done_at = clock::now();
                    self.next_at = (self.next_at + interval).max(done_at + done_at.since(now));
                    continue;
                }
                Some(interval) if self.has_changed() => {
                    if now >= self.early_at {
                        self.exchange(now, false);
                        let done_at = clock::now();
                        let pause = done_at.since(now).max(Nanos(interval.0 / EARLY_PER_INTERVAL));
                        self.early_at = done_at + pause;
                        continue;
                    }
                    self.next_at.min(self.early_at).since(now).min(SLEEP_MAX)
                }
                Some(_) => self.next_at.since(now).min(SLEEP_MAX),
                None => SLEEP_MAX,
            };
            let sleep = self.try_beside(now).map_or(sleep, |at| sleep.min(at.since(now)));
            std::thread::park_timeout(Duration::from_nanos(sleep.0));
        }
    }

    /// Has files forgotten that are closed, ten times a second.
    fn forget_closed_files(&mut self) {
        let now = clock::now();
        if now >= self.next_closed_at {
            self.next_closed_at = now + CLOSED_EVERY;
            if let Some(cluster) = self.core.cluster.get() {
                cluster.placing.forget_closed(|ino| self.core.store.namespace().is_open(ino));
            }
        }
    }

    /// Decides for the policy that has no say; when to do so again.
    fn try_beside(&mut self, now: Nanos) -> Option<Nanos> {
        let cluster = self.core.cluster.get()?;
        self.trial.look(&self.core, &self.config, now, || cluster.peer_tables.copy(now, false))
    }

    fn has_changed(&self) -> bool {
        self.core.cluster.get().is_some_and(|cluster| cluster.peer_tables.has_changed.load(Ordering::Acquire))
    }

    /// Looks, tells, and divides; rates only at the interval, because what is seen of them in a shorter time is chance.
    fn exchange(&mut self, now: Nanos, is_regular: bool) {
        let core = self.core.clone();
        let Some(cluster) = core.cluster.get() else { return };
        // Before the tables are looked at: what comes meanwhile is looked at again.
        cluster.peer_tables.has_changed.store(false, Ordering::Release);
        let policy = core.policy.lock().unwrap_or_else(PoisonError::into_inner).spec.clone();
        // Whoever decides for all targets tells each its parts.
        let is_decided = policy.allocated().is_some();
        let (is_balanced, is_wanted) =
            (cluster.placing.placement() == Placement::Balanced, cluster.placing.wants_to_know());
        if is_decided && !is_wanted {
            return;
        }
        let data = || core.targets.iter().filter(|target| !target.is_metadata());
        let usage: Vec<_> = data().map(|target| target.usage(now)).collect();
        let infos: HashMap<_, _> =
            if usage.iter().all(|usage| usage.is_empty()) && !is_wanted { HashMap::new() } else { infos(&core) };
        let own = self.meters.table(now, usage, |job| infos.get(&job).map(|info| JobInfo::clone(info)));
        let mut free_bytes = cluster.peer_tables.free_bytes();
        if is_regular || !own.table.has_the_jobs_of(&self.told) {
            self.tell(&own.table, free_bytes.get(&self.config.number).map_or(&[], Vec::as_slice), is_balanced);
        }
        let mut told = cluster.peer_tables.copy(now, false);
        if is_wanted {
            let left = told.left(self.config.number, Arc::new(own.table.clone()));
            let silent = self.silent(now, &left, (is_balanced, told.kept_for()));
            free_bytes.retain(|server, _| left.knows(*server));
            cluster.placing.learn(Known { jobs: infos, left, free_bytes, silent });
        }
        if is_decided {
            return;
        }
        let parts = told.join(now, &policy, &own.table, &mut self.course);
        let fair_ends = own.fair_ends(told.fair_ends(now, &own.table));
        for ((target, parts), fair_ends) in data().zip(own.parts(parts)).zip(fair_ends) {
            target.apportion(now, &parts);
            target.set_fair_ends(now, &fair_ends);
        }
        self.divide_metadata(now, &policy, is_regular);
        if is_regular && let Some(table) = core.rates.divide(&core.policy, &core.targets, &core.bell, now) {
            let (map, own) = (self.config.map(), self.config.number);
            let message = wire::encode_rates(self.next_edition(), &table);
            for server in map.servers().iter().filter(|server| server.number != own) {
                self.rate_links.send(server.number, message.clone());
            }
        }
    }

    /// The same for the metadata services, of which each server has one.
    fn divide_metadata(&mut self, now: Nanos, policy: &PolicySpec, is_regular: bool) {
        let core = self.core.clone();
        let service = core.targets.iter().find(|target| target.is_metadata());
        let (Some(cluster), Some(service), true) = (core.cluster.get(), service, self.servers > 1) else { return };
        let usage = service.usage(now);
        let infos = if usage.is_empty() { HashMap::new() } else { infos(&core) };
        let own = self.metadata.meters.table(now, [usage], |job| infos.get(&job).map(|info| JobInfo::clone(info)));
        let (table, told) = (&own.table, &mut self.metadata.told);
        let is_known = !is_regular && table.has_the_jobs_of(told) || table.jobs.is_empty() && told.jobs.is_empty();
        if !is_known {
            *told = table.clone();
            let (_, bytes) = JobTable::encode(self.next_edition(), table, &[]);
            let (map, own) = (self.config.map(), self.config.number);
            for server in map.servers().iter().filter(|server| server.number != own) {
                self.metadata.links.send(server.number, (JobTable::OF_METADATA, bytes.clone()));
            }
        }
        let mut others = cluster.peer_tables.copy(now, true);
        let parts = others.join(now, policy, &own.table, &mut self.metadata.course);
        // Alone it does as the policy says, of which it knows sooner who is there.
        let parts = if others.heard() == 0 { Vec::new() } else { own.parts(parts).pop().unwrap_or_default() };
        service.apportion(now, &parts);
    }

    fn next_edition(&mut self) -> Edition {
        self.edition.number += 1;
        self.edition
    }

    /// Servers that are not heard of although all have been telling for long enough. They do if files are placed by what they tell.
    fn silent(&mut self, now: Nanos, left: &Left, (is_balanced, kept_for): (bool, Nanos)) -> Vec<ServerId> {
        if !is_balanced {
            self.telling_since = None;
            return Vec::new();
        }
        let since = *self.telling_since.get_or_insert(now);
        // Some may have heard later than this one that they are to tell.
        if now.since(since) < kept_for + TOLD_TO_WITHIN {
            return Vec::new();
        }
        let map = self.config.map();
        map.servers().iter().map(|server| server.number).filter(|server| !left.knows(*server)).collect()
    }

    /// Tells the others, once that there is nothing to tell any more, unless they would take this server for away then.
    fn tell(&mut self, table: &Table, free_bytes: &[u64], always: bool) {
        if table.jobs.is_empty() && self.told.jobs.is_empty() && !always {
            return;
        }
        self.told = table.clone();
        let map = self.config.map();
        let (kind, bytes) = JobTable::encode(self.next_edition(), table, free_bytes);
        for server in map.servers().iter().filter(|server| server.number != self.config.number) {
            self.links.send(server.number, (kind, bytes.clone()));
        }
    }
}

fn course(settings: map::Exchange) -> Course {
    Course::new(interval_of(settings))
}

fn meters(core: &Core, settings: map::Exchange) -> Meters {
    Meters::new(core.data_targets(), interval_of(settings))
}
