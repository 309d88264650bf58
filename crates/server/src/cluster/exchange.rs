//! What servers tell each other of their jobs, so that the policy holds over all of them: [`isonomia_policy::exchange`] has the rule.
//!
//! One thread, `exchange`, looks every interval of the cluster file at what each job had of each target here, tells the other
//! servers, and has the arbiters divide by what comes out of all tables. It has connections of its own: nothing waits for it, and it
//! waits for nothing but other servers' connections, each in a thread of its own. A table that comes is kept by the worker that took it in.

use super::links::Links;
use super::wire::{self, JobTable, RATE_TABLE};
use crate::clock;
use crate::cluster_config::ClusterConfig;
use crate::core::Core;
use crate::target::Pending;
use isonomia_cluster::{Map, map};
use isonomia_policy::exchange::{Exchange, Meters, Rule, Table};
use isonomia_proto::request::ReplyHeader;
use isonomia_transport::handshake::Protection;
use isonomia_units::{JobInfo, Nanos, ServerId};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest sleep, so that the end of the server and another cluster file are noticed.
const SLEEP_MAX: Nanos = Nanos::from_millis(200);

/// What others told.
#[derive(Debug)]
pub struct Told {
    exchange: Mutex<Exchange>,
}

impl Told {
    /// Nothing yet.
    pub fn new(settings: map::Exchange) -> Self {
        Self { exchange: Mutex::new(begun(settings)) }
    }

    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the table that a server sent, and confirms it.
    pub fn keep(&self, core: &Core, (own, map): (ServerId, &Map), pending: &Pending, bytes: &[u8]) {
        let from = ServerId(pending.header.offset as u16);
        let is_known = map.server(from).is_some() && from != own;
        let unreadable = || "it cannot be read".to_owned();
        let kept = match JobTable::decode(bytes) {
            _ if !is_known => Err("it is no other server of the cluster file".to_owned()),
            _ if pending.header.valid == RATE_TABLE => {
                wire::decode_rates(bytes).map(|table| core.rates.tell(clock::now(), from, table)).ok_or_else(unreadable)
            }
            Some(table) => self.lock().tell(clock::now(), from, table).map_err(|error| error.to_string()),
            None => Err(unreadable()),
        };
        let seq = pending.header.seq;
        let reply = match kept {
            Ok(()) => ReplyHeader::ok(seq, 0, 0),
            Err(error) => {
                tracing::warn!(server = %from, %error, "a server's table of jobs is refused");
                ReplyHeader::error(seq, Errno::PROTO.raw_os_error().unsigned_abs())
            }
        };
        core.answer_late(pending, &reply, &[]);
    }

    /// How many other servers' tables count.
    pub fn heard(&self) -> usize {
        self.lock().heard()
    }

    /// A copy without those who are silent: workers, who keep what comes, do not wait while it is made use of.
    fn copy(&self, now: Nanos) -> Exchange {
        let mut told = self.lock();
        told.forget(now);
        told.clone()
    }
}

fn begun(settings: map::Exchange) -> Exchange {
    let rule = if settings.is_by_presence { Rule::Presence } else { Rule::Received };
    Exchange::new(rule, settings.interval.unwrap_or(map::Exchange::INTERVAL_DEFAULT))
}

/// The thread.
pub struct Exchanger {
    core: Arc<Core>,
    config: ClusterConfig,
    links: Links,
    /// Others: of two messages that wait for a server, one must not take the place of the other.
    rate_links: Links,
    settings: map::Exchange,
    meters: Meters,
    /// Of the cluster file.
    servers: usize,
    /// Others were told of a job the last time.
    has_told: bool,
    next_at: Nanos,
}

impl Exchanger {
    /// Of the server that has `core`.
    pub fn new(core: Arc<Core>, config: ClusterConfig, way: (Option<String>, Protection)) -> Self {
        let settings = config.map().exchange();
        let links = Links::of_the_latest(config.clone(), way.clone());
        let rate_links = Links::of_the_latest(config.clone(), way);
        let meters = meters(&core, settings);
        let next_at = clock::now();
        Self { core, config, links, rate_links, settings, meters, servers: 0, has_told: false, next_at }
    }

    /// Does its part until the server stops.
    pub fn run(&mut self) {
        while !self.core.is_stopping.load(Ordering::Relaxed) {
            let map = self.config.map();
            let mut settings = map.exchange();
            if map.servers().len() == 1 && self.core.data_targets() == 1 {
                // There is nothing to be fair over, and counting costs each request a little.
                settings.interval = None;
            }
            if (settings, map.servers().len()) != (self.settings, self.servers) || self.servers == 0 {
                self.servers = map.servers().len();
                self.core.rates.be_one_of(&self.core, self.servers, settings.interval);
            }
            if settings != self.settings {
                self.settings = settings;
                self.meters = meters(&self.core, settings);
                if let Some(cluster) = self.core.cluster.get() {
                    *cluster.told.lock() = begun(settings);
                }
                self.core.targets.iter().for_each(|target| target.apportion(clock::now(), &[]));
            }
            let now = clock::now();
            let sleep = match settings.interval {
                Some(interval) if now >= self.next_at => {
                    self.exchange(now);
                    // Those that were missed are not made up for, and half of the time is others'.
                    let done_at = clock::now();
                    self.next_at = (self.next_at + interval).max(done_at + done_at.since(now));
                    continue;
                }
                Some(_) => self.next_at.since(now).min(SLEEP_MAX),
                None => SLEEP_MAX,
            };
            std::thread::park_timeout(Duration::from_nanos(sleep.0));
        }
    }

    fn exchange(&mut self, now: Nanos) {
        let core = self.core.clone();
        let Some(cluster) = core.cluster.get() else { return };
        let policy = core.policy.lock().unwrap_or_else(PoisonError::into_inner).spec.clone();
        if policy.allocated().is_some() {
            // Whoever decides for all targets tells each its parts.
            return;
        }
        let data = || core.targets.iter().filter(|target| !target.is_metadata());
        let usage: Vec<_> = data().map(|target| target.usage(now)).collect();
        let infos: HashMap<_, _> = if usage.iter().all(|usage| usage.is_empty()) {
            HashMap::new()
        } else {
            core.jobs.all().into_iter().map(|job| (job.id, job)).collect()
        };
        let own = self.meters.table(now, usage, |job| infos.get(&job).map(|job| JobInfo::clone(&job.info())));
        self.tell(&own.table);
        let parts = cluster.told.copy(now).join(now, &policy, &own.table);
        for (target, parts) in data().zip(own.parts(parts)) {
            target.apportion(now, &parts);
        }
        if let Some(table) = core.rates.divide(&core, now) {
            let (map, own) = (self.config.map(), self.config.number);
            let message = wire::encode_rates(&table);
            for server in map.servers().iter().filter(|server| server.number != own) {
                self.rate_links.send(server.number, message.clone());
            }
        }
    }

    /// Tells the others, once that there is nothing to tell any more.
    fn tell(&mut self, table: &Table) {
        let has_jobs = !table.jobs.is_empty();
        if !has_jobs && !self.has_told {
            return;
        }
        self.has_told = has_jobs;
        let map = self.config.map();
        let (kind, bytes) = JobTable::encode(table);
        for server in map.servers().iter().filter(|server| server.number != self.config.number) {
            self.links.send(server.number, (kind, bytes.clone()));
        }
    }
}

fn meters(core: &Core, settings: map::Exchange) -> Meters {
    Meters::new(core.data_targets(), settings.interval.unwrap_or(map::Exchange::INTERVAL_DEFAULT))
}
