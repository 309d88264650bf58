//! What is decided for all servers at once, and followed by each: [`isonomia_controller`] says what by whom and when.
//!
//! One thread, `controller`, has this server's follower and, if it is the one that decides, the controller. It has connections
//! of its own, so that nothing else waits behind them. Allocations go to the arbiters as parts
//! ([`isonomia_policy::Arbiter::apportion`]), which divide what there is and leave nothing idle: a job that does not use its
//! part leaves it to the others. What a job has of this server's targets it has of its metadata service, too.

mod etcd;
mod lease;
mod ledger;
mod port;

use super::links::Links;
use crate::clock;
use crate::cluster_config::ClusterConfig;
use crate::core::Core;
use crate::target::Target;
use etcd::Etcd;
use isonomia_controller::{
    Allocation, Controller, Counts, Decision, Effect, Follower, JobKey, Kept, KnownJobs, LOOK_FOR_PHASES_EVERY, Moment,
    PARTS_PER_TARGET, Plan, Reached, Refused, Settings, Term, Using, Wanted, metadata_parts, parts, ranks,
};
use isonomia_policy::exchange::Meters;
use isonomia_policy::{PolicySpec, Scheme};
use isonomia_proto::control::ControllerStatus;
use isonomia_transport::handshake::Protection;
use isonomia_units::{JobId, JobInfo, Nanos, ServerId, TargetId};
use lease::Lease;
use ledger::LedgerError;
pub use ledger::{LedgerQuestion, give_ledger};
pub use port::{Heard, Port};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The longest sleep, so that the end of the server, another cluster file and another policy are noticed.
const SLEEP_MAX: Nanos = Nanos::from_millis(200);
/// After a failure of the store or of the ledger nothing is decided for this long;
const RETRY_AFTER: Nanos = Nanos::from_secs(10);
/// or for this long, if it may be over in a moment.
const RETRY_SOON: Nanos = Nanos::from_secs(1);

/// The thread.
pub struct Commander {
    core: Arc<Core>,
    config: ClusterConfig,
    links: Links,
    inbox: Receiver<(ServerId, Heard)>,
    /// What this server says to itself.
    own: VecDeque<Heard>,
    /// Of this process, among those that had the directory.
    instance: u64,
    follower: Follower,
    /// Jobs that have a rank in an order over all targets.
    ranked: HashSet<JobId>,
    followed: Option<Followed>,
    controller: Option<Controller>,
    /// How far the last one of this process came.
    reached: Reached,
    /// Nothing is decided before.
    retry_at: Nanos,
    coordination: Option<Coordination>,
    sent_bytes: u64,
    decision_ns: u64,
    /// Why nothing was decided the last time that this server was to.
    error: Option<String>,
}

/// An etcd that says who is the controller, and keeps the ledger for whoever that is next.
struct Coordination {
    /// As the cluster file has it.
    endpoints: Vec<Arc<str>>,
    etcd: Etcd,
    lease: Arc<Lease>,
}

/// The policy that is decided by a controller.
struct Followed {
    spec: PolicySpec,
    interval: Nanos,
    /// [`Port::policies`] when it was set.
    policies: u64,
    meters: Meters,
    look_at: Nanos,
    /// It goes by what jobs have at the moment ([`Plan::is_pulled`]).
    is_pulled: bool,
}

impl Followed {
    fn look_every(&self) -> Nanos {
        if self.is_pulled { LOOK_FOR_PHASES_EVERY } else { isonomia_controller::look_every(self.interval) }
    }
}

impl Commander {
    /// Of the server that has `core`, whose process is the `instance`-th in its directory. Nothing if there is one already.
    pub fn new(
        core: Arc<Core>,
        config: ClusterConfig,
        way: (Option<String>, Protection),
        instance: u64,
    ) -> Option<Self> {
        let inbox = core.cluster.get()?.port.take()?;
        let links = Links::new(config.clone(), way);
        Some(Self {
            core,
            config,
            links,
            inbox,
            own: VecDeque::new(),
            instance,
            follower: Follower::default(),
            ranked: HashSet::new(),
            followed: None,
            controller: None,
            reached: Reached::default(),
            retry_at: Nanos::ZERO,
            coordination: None,
            sent_bytes: 0,
            decision_ns: 0,
            error: None,
        })
    }

    /// Does its part until the server stops.
    pub fn run(&mut self) {
        while !self.core.is_stopping.load(Ordering::Relaxed) {
            let now = clock::now();
            self.follow_policy(now);
            self.take_office(now);
            self.look(now);
            self.decide(now);
            if self.follower.expire(now) {
                tracing::warn!("the controller's allocation was not renewed: targets share fairly");
                self.share_fairly();
            }
            self.show(now);
            if let Some(outside) = self.core.outside.get() {
                outside.refresh();
            }
            match self.next() {
                Ok(Some((from, heard))) => self.take(from, heard),
                Ok(None) => {}
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn next(&mut self) -> Result<Option<(ServerId, Heard)>, RecvTimeoutError> {
        if let Some(heard) = self.own.pop_front() {
            return Ok(Some((self.config.number, heard)));
        }
        let mut wake_at = clock::now() + SLEEP_MAX;
        if let Some(followed) = &self.followed {
            let controller = self.controller.as_ref().map(Controller::wake_at);
            let dues = [Some(followed.look_at), controller, self.follower.ends_at()];
            wake_at = dues.into_iter().flatten().fold(wake_at, Nanos::min);
        }
        self.inbox.recv_timeout(Duration::from_nanos(wake_at.since(clock::now()).0)).map(Some)
    }

    /// Takes notice of the policy that this server has.
    fn follow_policy(&mut self, now: Nanos) {
        let policies = self.core.cluster.get().map_or(0, |cluster| cluster.port.policies());
        let spec = self.core.policy.lock().unwrap_or_else(PoisonError::into_inner).spec.clone();
        let is_decided = Plan::is_needed(&spec);
        let decide = self.config.map().control().decide;
        let interval = Plan::interval(&spec, decide);
        match &self.followed {
            Some(followed) if (&followed.spec, followed.interval, followed.policies) == (&spec, interval, policies) => {
                return;
            }
            None if !is_decided => return,
            _ => {}
        }
        // Its arbiters are new: nothing of what was decided is in them, but for what came in between.
        if self.follower.ends_at().is_some() {
            self.share_fairly();
        }
        self.follower.forget();
        self.ranked.clear();
        self.resign();
        (self.retry_at, self.followed, self.error) = (now, None, None);
        if is_decided {
            let is_pulled = matches!(spec.scheme(), Scheme::Coflow(_));
            let meters = Meters::new(0, interval);
            let mut followed = Followed { spec, interval, policies, meters, look_at: now, is_pulled };
            // It looks back as far as ever, however often.
            followed.meters = Meters::new(self.core.data_targets(), isonomia_controller::look_every(interval));
            self.followed = Some(followed);
        }
    }

    /// Is the controller no more. If it becomes that again in the same term, it goes on where it stopped.
    fn resign(&mut self) {
        if let Some(controller) = self.controller.take() {
            self.reached = controller.reached();
        }
    }

    /// Asks the etcd that the cluster file names who decides, if it names one.
    fn coordinate(&mut self) {
        let map = self.config.map();
        let wanted = &map.control().etcd;
        if self.coordination.as_ref().map_or(&[][..], |coordination| &coordination.endpoints) == &wanted[..] {
            return;
        }
        self.coordination = None;
        self.tell_lease();
        let own = map.server(self.config.number).filter(|_| !wanted.is_empty());
        let Some(own) = own.map(|server| server.name.to_string()) else { return };
        let etcd = || Etcd::new(wanted.clone(), map.name());
        let core = self.core.clone();
        let is_stopping = move || core.is_stopping.load(Ordering::Relaxed);
        match Lease::start(is_stopping, etcd(), own, map.control().decide) {
            Ok(lease) => {
                self.coordination = Some(Coordination { endpoints: wanted.clone(), etcd: etcd(), lease });
                self.tell_lease();
            }
            Err(error) => tracing::error!(%error, "cannot start a thread: this server decides nothing"),
        }
    }

    /// Who has the lease is who decides about anything else, too.
    fn tell_lease(&self) {
        let lease = self.coordination.as_ref().map(|coordination| coordination.lease.clone());
        self.core.cluster.get().into_iter().for_each(|cluster| cluster.port.set_lease(lease.clone()));
    }

    /// The term in which this server is the controller, if it is.
    fn term(&self, now: Nanos) -> Option<Term> {
        let map = self.config.map();
        let epoch = map.epoch().0;
        if let Some(coordination) = &self.coordination {
            return Some(Term { epoch, number: coordination.lease.own_term(now)? });
        }
        let is_named = map.controller().number == self.config.number && map.control().etcd.is_empty();
        is_named.then_some(Term { epoch, number: self.instance })
    }

    /// Becomes the controller, or is it no more.
    fn take_office(&mut self, now: Nanos) {
        self.coordinate();
        let term = self.term(now);
        if self.controller.as_ref().map(Controller::term) == term {
            return;
        }
        self.resign();
        let (Some(term), Some(followed)) = (term, &self.followed) else { return };
        if now < self.retry_at {
            return;
        }
        let (spec, interval) = (followed.spec.clone(), followed.interval);
        let kept = if Plan::has_ledger(&spec) { self.take_ledger(term) } else { Ok(Kept::default()) };
        match kept.and_then(|kept| Ok(Plan::new(&spec, interval, kept)?)) {
            Ok(Some(plan)) => {
                let settings = Settings { term, interval };
                let servers = self.servers();
                tracing::info!(?term, policy = %spec, "this server is the controller");
                self.controller = Some(Controller::new(clock::now(), settings, plan, servers).after(self.reached));
                self.error = None;
            }
            Ok(None) => {}
            Err(error) => {
                let because = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, because, "nothing is decided, and targets share fairly");
                self.cannot_decide(&error);
            }
        }
    }

    /// Tries again later, and lets another server try meanwhile if that may help.
    fn cannot_decide(&mut self, error: &LedgerError) {
        let now = clock::now();
        self.error = Some(error.to_string());
        self.retry_at = now + if error.is_passing() { RETRY_SOON } else { RETRY_AFTER };
        if let Some(coordination) = self.coordination.as_ref().filter(|_| !error.is_passing()) {
            tracing::warn!("this server gives up being the controller, so that another one is");
            coordination.lease.give_up(now);
        }
    }

    fn servers(&self) -> Vec<ServerId> {
        self.config.map().servers().iter().map(|server| server.number).collect()
    }

    /// What jobs use now; and says so if the controller does not know it.
    fn look(&mut self, now: Nanos) {
        let Some(followed) = self.followed.as_mut().filter(|followed| followed.look_at <= now) else { return };
        followed.look_at = now + followed.look_every();
        let (interval, is_pulled) = (followed.interval, followed.is_pulled);
        let using = self.using(now);
        if let Some(report) = self.follower.look(now, interval, is_pulled, &using)
            && let Some(to) = self.controller_of_cluster()
        {
            self.send(to, Heard::Report(Box::new(report)));
        }
    }

    fn controller_of_cluster(&self) -> Option<ServerId> {
        self.core.cluster.get()?.port.decider(self.config.number, &self.config.map(), clock::now())
    }

    /// Which jobs used which targets in the last while.
    fn using(&mut self, now: Nanos) -> Vec<Using> {
        let Some(followed) = &mut self.followed else { return Vec::new() };
        let data = || self.core.targets.iter().filter(|target| !target.is_metadata());
        let usage: Vec<_> = data().map(|target| target.usage(now)).collect();
        let infos = infos(&self.core);
        let own = followed.meters.table(now, usage, |job| infos.get(&job).map(|info| JobInfo::clone(info)));
        let progress = |target: &Target| if followed.is_pulled { target.progress(now) } else { Vec::new() };
        Using::of(&own, data().map(|target| (target.id, progress(target))))
    }

    /// Does what is due as the controller.
    fn decide(&mut self, now: Nanos) {
        let servers = self.servers();
        let Some(controller) = self.controller.as_mut().filter(|controller| controller.wake_at() <= now) else {
            return;
        };
        controller.set_servers(now, servers);
        let (mut effects, before) = (Vec::new(), controller.counts());
        controller.tick(moment(now), &mut effects);
        self.act(effects, now, before);
    }

    fn take(&mut self, from: ServerId, heard: Heard) {
        let now = clock::now();
        // It may be another one since this was last looked at.
        self.follow_policy(now);
        let taken = match heard {
            Heard::Ask(ask) => self.follower.ask(now, from, &ask).map(|wanted| {
                // Somebody decides.
                self.error = None;
                if wanted == Wanted::Nothing {
                    return;
                }
                let using = self.using(now);
                let report = match wanted {
                    Wanted::Report if using.is_empty() => return,
                    Wanted::Report => self.follower.report(now, &using),
                    _ => self.follower.answer(&using),
                };
                self.send(from, Heard::Report(Box::new(report)));
            }),
            Heard::Report(report) => {
                // Who is the controller no more, or not yet, is asked in vain.
                let Some(controller) = &mut self.controller else { return };
                let (mut effects, before) = (Vec::new(), controller.counts());
                let taken = controller.report(moment(now), from, *report, &mut effects);
                self.act(effects, now, before);
                taken
            }
            // Allocations under another policy than this server's say nothing about it.
            Heard::Allocation(_) if self.followed.is_none() => return,
            Heard::Allocation(allocation) => self.follow(now, from, allocation),
        };
        if let Err(error) = taken
            && let Some(cluster) = self.core.cluster.get()
        {
            cluster.port.refuse(from, &error);
        }
    }

    fn follow(&mut self, now: Nanos, from: ServerId, allocation: Allocation) -> Result<(), Refused> {
        let known = by_key(&self.core);
        match self.follower.take(now, from, allocation) {
            Ok(Decision::Parts(told)) => {
                let parts = parts(told.iter().map(|((job, target), told)| (job, *target, *told)), &known);
                self.apportion(now, parts);
            }
            Ok(Decision::Ranks(told)) => {
                let ranks = ranks(told.iter().map(|(job, rank)| (job, *rank)), &known);
                self.rank(now, &ranks);
            }
            Err(refused @ Refused::NotCurrent { .. }) => {
                // It is told everything when the controller knows.
                let using = self.using(now);
                let report = self.follower.report(now, &using);
                self.send(from, Heard::Report(Box::new(report)));
                return Err(refused);
            }
            Err(refused) => return Err(refused),
        }
        Ok(())
    }

    fn act(&mut self, effects: Vec<Effect>, begun: Nanos, before: Counts) {
        if self.controller.as_ref().is_some_and(|controller| controller.counts().decisions > before.decisions) {
            self.decision_ns = clock::now().since(begun).0;
        }
        for effect in effects {
            match effect {
                Effect::Keep(changes) => {
                    if let Err(error) = self.keep(changes) {
                        // What was decided is not sent, and the ledger is read again.
                        tracing::error!(%error, "the ledger cannot be stored: nothing is decided");
                        self.resign();
                        self.cannot_decide(&error);
                        return;
                    }
                }
                Effect::Ask { to, ask } => self.send(to, Heard::Ask(ask)),
                Effect::Allocate { to, allocation } => self.send(to, Heard::Allocation(allocation)),
                Effect::Failed(error) => tracing::error!(%error, "nothing is decided in this interval"),
                Effect::NoQuorum { reported, of } => {
                    tracing::warn!(reported, of, "too few servers report: nothing is decided in this interval");
                }
            }
        }
    }

    fn send(&mut self, to: ServerId, heard: Heard) {
        if to == self.config.number {
            return self.own.push_back(heard);
        }
        let message = heard.encode();
        self.sent_bytes += message.1.len() as u64;
        self.links.send(to, message);
    }

    /// Has the arbiters divide by the policy's tree alone.
    fn share_fairly(&mut self) {
        let now = clock::now();
        if self.ranked.is_empty() {
            self.apportion(now, BTreeMap::new());
        } else {
            self.rank(now, &BTreeMap::new());
        }
    }

    /// Has the arbiters divide by these parts, and by the policy's tree where there are none.
    fn apportion(&self, now: Nanos, parts: BTreeMap<TargetId, Vec<(JobId, f64)>>) {
        if let Some(outside) = self.core.outside.get() {
            let jobs: BTreeMap<JobId, Arc<JobInfo>> =
                self.core.jobs.all().iter().map(|job| (job.id, job.info())).collect();
            // The targets are on one device: a job's part of that is the mean of what it has of them.
            let whole = self.core.data_targets().max(1) as f64 * f64::from(PARTS_PER_TARGET);
            outside.allow(parts.values().flatten().filter_map(|(job, part)| Some((&**jobs.get(job)?, part / whole))));
        }
        apportion(&self.core, now, parts);
    }

    /// Has the arbiters serve jobs in the order that was computed over all targets; those that are not in it, in their own.
    fn rank(&mut self, now: Nanos, ranks: &BTreeMap<JobId, u32>) {
        let before = std::mem::replace(&mut self.ranked, ranks.keys().copied().collect());
        for target in &self.core.targets {
            before.iter().filter(|id| !ranks.contains_key(id)).for_each(|id| target.set_rank(now, *id, None));
            ranks.iter().for_each(|(id, rank)| target.set_rank(now, *id, Some(*rank)));
        }
    }

    /// Tells operators how it stands.
    fn show(&self, now: Nanos) {
        let Some(cluster) = self.core.cluster.get() else { return };
        let map = self.config.map();
        let name_of = |server: ServerId| map.server(server).map_or_else(|| server.to_string(), |s| s.name.to_string());
        let known = self.follower.controller();
        let counts = self.controller.as_ref().map(Controller::counts).unwrap_or_default();
        let status = ControllerStatus {
            is_needed: self.followed.is_some(),
            is_here: self.controller.is_some(),
            server: known.filter(|_| self.followed.is_some()).map(|(server, _)| name_of(server)),
            term: known.map_or(0, |(_, term)| term.number),
            version: self.follower.version(),
            valid_ns: self.follower.ends_at().map_or(0, |ends_at| ends_at.since(now).0),
            interval_ns: self.followed.as_ref().map_or(0, |followed| followed.interval.0),
            rounds_total: counts.rounds,
            decisions_total: counts.decisions,
            without_quorum_total: counts.without_quorum,
            failed_total: counts.failed,
            absent: counts.absent as u32,
            jobs: counts.jobs as u32,
            decision_ns: self.decision_ns,
            sent_bytes: self.sent_bytes,
            error: self.error.clone(),
            ..ControllerStatus::default()
        };
        let mut shown = cluster.port.shown();
        let decisions = (status.term, counts.decisions, self.controller.is_some());
        if shown.ledger_of != decisions {
            let plan = self.controller.as_ref().map(Controller::plan).filter(|plan| plan.gift().is_some());
            shown.ledger = plan.map(|plan| Arc::new(plan.kept().clone()));
            let budget = plan.and_then(|plan| plan.gift()?.config().regret_budget);
            shown.budget_node_s = budget.and_then(|budget| u64::try_from(budget.0 / 1_000_000_000).ok());
            shown.ledger_of = decisions;
        }
        shown.status = status;
    }
}

/// Has the arbiters of the targets, and that of the metadata service, divide by these parts of the targets.
pub(super) fn apportion(core: &Core, now: Nanos, mut parts: BTreeMap<TargetId, Vec<(JobId, f64)>>) {
    let of_metadata = metadata_parts(&parts);
    for target in &core.targets {
        if target.is_metadata() {
            target.apportion(now, &of_metadata);
        } else {
            target.apportion(now, &target.id.and_then(|id| parts.remove(&id)).unwrap_or_default());
        }
    }
}

/// That time, and the time of day, which only people go by.
pub fn moment(now: Nanos) -> Moment {
    let wall = clock::wall();
    Moment { now, wall: Nanos(wall.secs.unsigned_abs().saturating_mul(1_000_000_000) + u64::from(wall.nanos)) }
}

/// Who the jobs are.
pub fn infos(core: &Core) -> HashMap<JobId, Arc<JobInfo>> {
    core.jobs.all().into_iter().map(|job| (job.id, job.info())).collect()
}

/// The jobs that each name stands for.
pub fn by_key(core: &Core) -> KnownJobs {
    let mut known = KnownJobs::new();
    for (id, info) in infos(core) {
        known.entry(JobKey::of(&info)).or_default().push(id);
    }
    known
}
