//! One exclusive I/O node as it lives: all data targets of a server, which one application at a time has for a whole I/O phase
//! (ICS'20 §2, §4.3).
//!
//! It is told of every request that comes ([`IoNode::arrive`]) and ends ([`IoNode::finish`]). So it finds the phases of
//! programs that know nothing of it: a phase begins with a request of an application that has not the node, and ends when the
//! application has left the node idle for the *gap*. A program may say itself where a phase begins and ends
//! ([`IoNode::begin`], [`IoNode::end`]); then no gap ends it, and nobody waits for one at its end.
//!
//! Who gets the node is decided by a [`Coordinator`]: this node's own, or that of another server, which is told and tells by
//! messages ([`IoNode::report`], [`IoNode::hear`]). A grant is not taken back (non-preemptive) but from one of two who wait for each
//! other on two nodes, and it lasts no longer than its *lease* if others wait: whoever delays an application, dead or alive, does
//! so for that long. Who lost a grant in either way waits behind those who wait by then.
//! If the coordinator falls silent for [`SILENCE_MAX`], the node is *open*: everybody is served until it is heard again.
//!
//! No request is kept here, and none is refused: whether those of an application are served now is [`IoNode::admits`], and
//! whoever keeps them back asks again by [`IoNode::ask_again_at`]. There is no I/O in here, and no clock.

mod app;

use crate::coordinator::{AppReport, ClaimReport, Coordinator, NodeGrant, Outdated, Publication, Report};
use crate::order::Order;
use isonomia_units::{Edition, Nanos, OldEdition, ServerId};
use std::collections::BTreeMap;
use std::sync::Arc;

use app::App;
pub use app::{AppState, Standing};

/// A coordinator elsewhere that is silent for this long is away.
pub const SILENCE_MAX: Nanos = Nanos::from_secs(3);
/// A node that has its own coordinator tells that everything after this time, when others do.
const RETOLD_AFTER: Nanos = Nanos(SILENCE_MAX.0 / 3);
/// Sessions of one application that are in a phase which they have declared, at most; those beyond it are not noticed.
pub const SESSIONS_MAX: usize = 65_536;
/// The number of the node under its own coordinator, if it has no other.
const ALONE: ServerId = ServerId(0);

/// How phases are told apart and bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseRules {
    /// Who goes first of those who wait.
    pub order: Order,
    /// The longest that others wait for one grant to end.
    pub lease: Nanos,
    /// How long an application leaves the node idle before its phase is over.
    pub gap: Nanos,
}

/// What an application says of the phase that it begins; nothing, if it does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// How long the phase takes with the node for itself.
    pub io: Option<Nanos>,
    /// How long the application would still take alone, this phase included.
    pub remaining: Option<Nanos>,
}

/// An application at this node, until it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId(u32);

/// Why grants ended, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    /// The application left the node idle.
    pub gap: u64,
    /// It said so.
    pub told: u64,
    /// Others waited, and the lease was over.
    pub lease: u64,
    /// The application and another one had a node each and waited for the other's.
    pub crossed: u64,
    /// It went away, or had no more need of the node when the grant came.
    pub gone: u64,
}

/// See the module.
#[derive(Debug)]
pub struct IoNode {
    rules: PhaseRules,
    instance: u64,
    reports: u64,
    /// When the last one was made.
    reported_at: Nanos,
    /// The report that the last answer knew of.
    answered: u64,
    ids: BTreeMap<Arc<str>, AppId>,
    apps: BTreeMap<AppId, App>,
    next_id: u32,
    holder: Option<Granted>,
    ended: u64,
    /// `None` if the coordinator is elsewhere.
    coordinator: Option<Coordinator>,
    /// The number under which its own coordinator knows it.
    own: ServerId,
    /// When a coordinator elsewhere was heard; `None` as long as the node is open.
    heard_at: Option<Nanos>,
    endings: Endings,
    changes: u64,
    /// A report would say something new.
    has_changed: bool,
    now: Nanos,
}

#[derive(Clone, Debug)]
struct Granted {
    app: AppId,
    grant: NodeGrant,
    since: Nanos,
    /// The application has said that the phase is over; what it has outstanding still belongs to it.
    is_ending: bool,
}

impl IoNode {
    /// A node that nobody has used yet. `instance` tells processes of it apart, later ones by greater numbers; the coordinator is its own.
    pub fn new(rules: PhaseRules, instance: u64) -> Self {
        Self {
            rules,
            instance,
            reports: 0,
            reported_at: Nanos::ZERO,
            answered: 0,
            ids: BTreeMap::new(),
            apps: BTreeMap::new(),
            next_id: 0,
            holder: None,
            ended: 0,
            coordinator: Some(Coordinator::new(rules.order)),
            own: ALONE,
            heard_at: None,
            endings: Endings::default(),
            changes: 0,
            has_changed: false,
            now: Nanos::ZERO,
        }
    }

    /// How phases are told apart and bounded.
    pub fn rules(&self) -> PhaseRules {
        self.rules
    }

    /// From now on the coordinator is this node's own, for other nodes as well, under the number `own`; or another server's. Nothing
    /// changes if it is so already. One that becomes the coordinator knows nothing but its own node: the others' reports say who has
    /// them, and what is granted stays so.
    pub fn set_coordinator(&mut self, now: Nanos, own: ServerId, is_own: bool) {
        let now = self.advance(now);
        if (self.coordinator.is_some(), self.own) == (is_own, own) {
            return;
        }
        self.own = own;
        let next = is_own.then(|| Coordinator::new(self.rules.order));
        let decided = std::mem::replace(&mut self.coordinator, next).is_some();
        // Who has the node keeps it while the next coordinator is waited for: only its silence opens the node.
        self.heard_at = (!is_own && decided && self.holder.is_some()).then_some(now);
        self.has_changed = true;
        if self.is_open() {
            self.open(now);
        }
        self.changes += 1;
        self.ask_for_all(now);
        self.settle(now);
    }

    /// The application of this name, which is known until [`Self::part`] was called as often as this.
    pub fn join(&mut self, now: Nanos, name: &Arc<str>) -> AppId {
        let now = self.advance(now);
        if let Some(id) = self.ids.get(name)
            && let Some(app) = self.apps.get_mut(id)
        {
            app.joined += 1;
            return *id;
        }
        while self.apps.contains_key(&AppId(self.next_id)) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = AppId(self.next_id);
        self.next_id = id.0.wrapping_add(1);
        let app = App::new(now, name);
        self.ids.insert(name.clone(), id);
        self.apps.insert(id, app);
        id
    }

    /// The application of this name, if it is known.
    pub fn id_of(&self, name: &Arc<str>) -> Option<AppId> {
        self.ids.get(name).copied()
    }

    /// The application is served at any time, and never has the node: what a server does for itself.
    pub fn exempt(&mut self, now: Nanos, app: AppId) {
        let now = self.advance(now);
        if let Some(app) = self.apps.get_mut(&app) {
            app.is_exempt = true;
        }
        self.end_if_unwanted(now);
        self.settle(now);
    }

    /// One of those who know the application knows it no more. Its outstanding requests have been reported as finished.
    pub fn part(&mut self, now: Nanos, id: AppId) {
        let now = self.advance(now);
        let Some(app) = self.apps.get_mut(&id) else { return };
        app.joined = app.joined.saturating_sub(1);
        if app.joined > 0 {
            return;
        }
        let name = app.name.clone();
        if self.holder.as_ref().is_some_and(|granted| granted.app == id) {
            self.end_grant(now, |endings| &mut endings.gone);
        }
        if self.apps.get(&id).is_some_and(|app| app.waiting_since.is_some()) {
            self.stop_waiting(now, id);
        }
        self.apps.remove(&id);
        self.ids.remove(&name);
        self.settle(now);
    }

    /// A request of the application has come.
    pub fn arrive(&mut self, now: Nanos, id: AppId) {
        let now = self.advance(now);
        let Some(app) = self.apps.get_mut(&id) else { return };
        app.outstanding += 1;
        self.claim(now, id);
    }

    /// A request of the application has ended, or was taken back.
    pub fn finish(&mut self, now: Nanos, id: AppId) {
        let now = self.advance(now);
        let Some(app) = self.apps.get_mut(&id) else { return };
        app.outstanding = app.outstanding.saturating_sub(1);
        if app.outstanding == 0 {
            app.idle_since = now;
            self.end_if_unwanted(now);
        }
        self.settle(now);
    }

    /// A session of the application begins a phase: from now on until all that did so have ended it, no gap ends it. The latest that
    /// anything is said of it counts.
    pub fn begin(&mut self, now: Nanos, id: AppId, session: u64, declared: Declared) {
        let now = self.advance(now);
        let Some(app) = self.apps.get_mut(&id) else { return };
        if app.sessions.len() < SESSIONS_MAX {
            app.sessions.insert(session);
        }
        app.declared.io = declared.io.or(app.declared.io);
        app.declared.remaining = declared.remaining.or(app.declared.remaining);
        if let Some(granted) = self.holder.as_mut().filter(|granted| granted.app == id) {
            granted.is_ending = false;
        }
        self.claim(now, id);
    }

    /// A session of the application ends its phase. Nothing happens if it has begun none.
    pub fn end(&mut self, now: Nanos, id: AppId, session: u64) {
        let now = self.advance(now);
        let Some(app) = self.apps.get_mut(&id) else { return };
        if !app.sessions.remove(&session) || !app.sessions.is_empty() {
            return self.settle(now);
        }
        if let Some(granted) = self.holder.as_mut().filter(|granted| granted.app == id) {
            granted.is_ending = true;
        }
        self.end_if_unwanted(now);
        self.settle(now);
    }

    /// Nobody is there any more who could go on with the application's phase: if nothing of it is outstanding, it is over.
    pub fn leave(&mut self, now: Nanos, id: AppId) {
        let now = self.advance(now);
        if self.granted().is_some_and(|(granted, app)| granted.app == id && !app.wants()) {
            self.end_grant(now, |endings| &mut endings.gone);
        }
        self.settle(now);
    }

    /// A session is no more, whatever application it belonged to.
    pub fn forget_session(&mut self, now: Nanos, session: u64) {
        let with: Vec<AppId> =
            self.apps.iter().filter(|(_, app)| app.sessions.contains(&session)).map(|(id, _)| *id).collect();
        with.into_iter().for_each(|id| self.end(now, id, session));
    }

    /// How long the application's present phase is going to take, or its next one.
    pub fn expect(&mut self, now: Nanos, id: AppId, io: Nanos) {
        self.advance(now);
        if let Some(app) = self.apps.get_mut(&id) {
            app.declared.io = Some(io);
        }
    }

    /// Whether requests of the application are served now.
    pub fn admits(&self, id: AppId) -> bool {
        self.is_open()
            || self.holder.as_ref().is_some_and(|granted| granted.app == id)
            || self.apps.get(&id).is_none_or(|app| app.is_exempt)
    }

    /// Whether everybody is served, because nobody hears from the coordinator.
    pub fn is_open(&self) -> bool {
        self.coordinator.is_none() && self.heard_at.is_none()
    }

    /// Grows whenever [`Self::admits`] may have changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// When who has the node may change next by time alone: to be asked again then, if not before.
    pub fn ask_again_at(&self, now: Nanos) -> Nanos {
        let silence = self.heard_at.map_or(Nanos::MAX, |at| at + SILENCE_MAX);
        let Some((granted, app)) = self.granted() else { return silence };
        let gap = if app.wants() { now.max(self.now) + self.rules.gap } else { app.idle_since + self.rules.gap };
        gap.min(granted.since + self.rules.lease).min(silence)
    }

    /// Takes notice of the time.
    pub fn settle(&mut self, now: Nanos) {
        self.advance(now);
        if self.has_changed && self.coordinator.is_some() {
            let report = self.report(now);
            let own = self.own;
            if let Some(Ok(publication)) = self.coordinator.as_mut().map(|own_one| own_one.take(now, own, report)) {
                self.take(now, publication);
            }
        }
    }

    /// Whether another server has something to hear at once: a coordinator elsewhere, or, asked once, a node that this one coordinates.
    pub fn has_changed(&mut self) -> bool {
        match &mut self.coordinator {
            None => self.has_changed,
            Some(coordinator) => coordinator.take_recalled(),
        }
    }

    /// All that a coordinator has to know; those who wait come first, the one that has waited longest in front.
    pub fn report(&mut self, now: Nanos) -> Report {
        let now = self.advance(now);
        self.reports += 1;
        (self.reported_at, self.has_changed) = (now, false);
        let is_open = self.is_open();
        let mut applications: Vec<_> = self.apps.values().filter(|app| !app.is_exempt).collect();
        applications.sort_by_key(|app| (app.waiting_since.unwrap_or(Nanos::MAX), app.known_since));
        let of = |app: &&App| {
            let waiting = app.waiting_since.filter(|_| !is_open).map(|since| now.since(since));
            AppReport {
                application: app.name.clone(),
                age_ns: now.since(app.known_since).0,
                io_done_ns: app.io_done.0,
                waited_ns: (app.waited + waiting.unwrap_or(Nanos::ZERO)).0,
                phases: app.phases,
                claim: waiting.filter(|_| app.behind.is_empty()).map(|waiting| ClaimReport {
                    waiting_ns: waiting.0,
                    io_ns: app.declared.io.map(|io| io.0),
                    remaining_ns: app.declared.remaining.map(|remaining| remaining.0),
                }),
            }
        };
        Report {
            instance: self.instance,
            number: self.reports,
            granted: self.holder.as_ref().map(|granted| granted.grant.clone()),
            ended: self.ended,
            applications: applications.iter().map(of).collect(),
        }
    }

    /// A coordinator elsewhere says who has the node. Nothing happens if the coordinator is this node's own.
    ///
    /// # Errors
    /// It is for another process, or came after an answer to a later report, and changes nothing.
    pub fn hear(&mut self, now: Nanos, publication: Publication) -> Result<(), Outdated> {
        let now = self.advance(now);
        let (own, instance, heard) = (self.instance, publication.instance, publication.heard);
        if instance != own {
            return Err(Outdated::OtherProcess { told: instance, own });
        }
        if heard < self.answered {
            let [told, known] = [heard, self.answered].map(|number| Edition { process: own, number });
            return Err(Outdated::Publication(OldEdition { told, known }));
        }
        if self.coordinator.is_some() {
            return Ok(());
        }
        self.answered = heard;
        let was_open = self.heard_at.replace(now).is_none();
        if was_open {
            self.changes += 1;
            self.ask_for_all(now);
        }
        self.take(now, publication);
        Ok(())
    }

    /// Another node's report to this node's own coordinator, and what that node is to be told; `None` if it has none.
    ///
    /// # Errors
    /// It is older than what is known of that node.
    pub fn coordinate(&mut self, now: Nanos, node: ServerId, report: Report) -> Result<Option<Publication>, Outdated> {
        let now = self.advance(now);
        // Its number is its own: no report of another node can stand for this one's.
        if self.coordinator.is_none() || node == self.own {
            return Ok(None);
        }
        // Its own node is none that has fallen silent, however long nothing happens there.
        if now.since(self.reported_at) >= RETOLD_AFTER {
            self.has_changed = true;
            self.settle(now);
        }
        let own = self.own;
        let Some(coordinator) = self.coordinator.as_mut() else { return Ok(None) };
        let said = coordinator.take(now, node, report)?;
        // What it takes back here, because two wait for each other, is over now, and not when something happens here the next time.
        if let Some(publication) = coordinator.publication(own) {
            self.take(now, publication);
        }
        Ok(Some(said))
    }

    /// What other nodes are to be told, by their numbers.
    pub fn publications(&self) -> Vec<(ServerId, Publication)> {
        let Some(coordinator) = &self.coordinator else { return Vec::new() };
        let others = coordinator.nodes().filter(|node| *node != self.own);
        others.filter_map(|node| Some((node, coordinator.publication(node)?))).collect()
    }

    /// Every application, by name.
    pub fn states(&self, now: Nanos) -> Vec<AppState> {
        let now = now.max(self.now);
        let shown = self.ids.values().filter_map(|id| Some((*id, self.apps.get(id)?)));
        let state = |(id, app): (AppId, &App)| {
            let granted_since = self.holder.as_ref().filter(|granted| granted.app == id).map(|granted| granted.since);
            app.state(now, granted_since)
        };
        shown.filter(|(_, app)| !app.is_exempt).map(state).collect()
    }

    /// Grants so far, by how they ended.
    pub fn endings(&self) -> Endings {
        self.endings
    }

    /// Who has the node.
    pub fn holder(&self) -> Option<&Arc<str>> {
        self.granted().map(|(_, app)| &app.name)
    }

    fn granted(&self) -> Option<(&Granted, &App)> {
        let granted = self.holder.as_ref()?;
        Some((granted, self.apps.get(&granted.app)?))
    }

    /// Time does not run backwards. What is over by time ends here; others get the node by [`Self::settle`].
    fn advance(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        let now = self.now;
        if self.heard_at.is_some_and(|at| now.since(at) >= SILENCE_MAX) {
            self.heard_at = None;
            self.open(now);
        }
        let Some((granted, app)) = self.granted() else { return now };
        if !app.wants() && now.since(app.idle_since) >= self.rules.gap {
            self.end_grant(now, |endings| &mut endings.gap);
        } else if now.since(granted.since) >= self.rules.lease
            && self.apps.values().any(|app| app.waiting_since.is_some())
        {
            self.cut(now, |endings| &mut endings.lease);
        }
        now
    }

    /// Ends a phase that is not over: what it still wants is behind those who wait.
    fn cut(&mut self, now: Nanos, why: impl FnOnce(&mut Endings) -> &mut u64) {
        let Some(id) = self.holder.as_ref().map(|granted| granted.app) else { return };
        self.end_grant(now, why);
        self.put_behind(id);
        self.ask(now, id);
    }

    /// The application claims nothing before all who wait now have had their turn. Nobody is behind it: two that were behind each
    /// other would wait for ever.
    fn put_behind(&mut self, id: AppId) {
        self.apps.values_mut().for_each(|app| _ = app.behind.remove(&id));
        let waits = |(other, app): &(&AppId, &App)| **other != id && app.waiting_since.is_some();
        let others = self.apps.iter().filter(waits).map(|(id, _)| *id).collect();
        if let Some(app) = self.apps.get_mut(&id) {
            app.behind = others;
        }
    }

    /// The application needs the node, if it has not got it.
    fn claim(&mut self, now: Nanos, id: AppId) {
        self.ask(now, id);
        self.settle(now);
    }

    fn ask(&mut self, now: Nanos, id: AppId) {
        let is_admitted = self.admits(id);
        let app = self.apps.get_mut(&id).filter(|app| !is_admitted && app.wants() && app.waiting_since.is_none());
        if let Some(app) = app {
            app.waiting_since = Some(now);
            self.has_changed = true;
        }
    }

    fn ask_for_all(&mut self, now: Nanos) {
        let ids: Vec<_> = self.apps.keys().copied().collect();
        ids.into_iter().for_each(|id| self.ask(now, id));
    }

    /// Those who want nothing any more wait for nothing, and a phase that is said to be over is over with its last request.
    fn end_if_unwanted(&mut self, now: Nanos) {
        let unwanted = |app: &App| app.waiting_since.is_some() && (app.is_exempt || !app.wants());
        let gone: Vec<_> = self.apps.iter().filter(|(_, app)| unwanted(app)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.stop_waiting(now, id));
        let Some((granted, app)) = self.granted() else { return };
        if app.is_exempt {
            self.end_grant(now, |endings| &mut endings.gone);
        } else if granted.is_ending && !app.wants() {
            self.end_grant(now, |endings| &mut endings.told);
        }
    }

    /// The application waits no more, and nobody is behind it any more.
    fn stop_waiting(&mut self, now: Nanos, id: AppId) {
        self.has_changed = true;
        for (other, app) in &mut self.apps {
            if *other == id {
                app.stop_waiting(now);
            }
            app.behind.remove(&id);
        }
    }

    fn end_grant(&mut self, now: Nanos, why: impl FnOnce(&mut Endings) -> &mut u64) {
        let Some(granted) = self.holder.take() else { return };
        self.ended = self.ended.max(granted.grant.number);
        self.changes += 1;
        self.has_changed = true;
        *why(&mut self.endings) += 1;
        if let Some(app) = self.apps.get_mut(&granted.app) {
            // The gap at its end is no part of a phase.
            let end = if app.outstanding > 0 { now } else { app.idle_since.max(granted.since) };
            app.io_done += end.since(granted.since);
            app.phases += 1;
            if !app.wants() {
                app.declared = Declared::default();
            }
        }
    }

    /// Everybody is served from now on.
    fn open(&mut self, now: Nanos) {
        self.end_grant(now, |endings| &mut endings.gone);
        for app in self.apps.values_mut() {
            app.stop_waiting(now);
            app.behind.clear();
        }
        self.changes += 1;
    }

    fn take(&mut self, now: Nanos, publication: Publication) {
        if self.holder.as_ref().is_some_and(|granted| granted.grant.number <= publication.recalled) {
            self.cut(now, |endings| &mut endings.crossed);
            return self.settle(now);
        }
        let Some(grant) = publication.grant else { return };
        // One that is granted is not taken back: if the coordinator knows of none, it will hear of this one.
        if self.holder.is_some() || grant.number <= self.ended {
            return;
        }
        let id = self.ids.get(&grant.application).copied();
        if grant.number <= publication.recalled {
            // It was taken back before it came.
            self.ended = grant.number;
            self.endings.crossed += 1;
            self.has_changed = true;
            id.into_iter().for_each(|id| self.put_behind(id));
            return self.settle(now);
        }
        let Some(id) = id.filter(|id| self.apps.get(id).is_some_and(|app| app.wants() && !app.is_exempt)) else {
            self.ended = grant.number;
            self.endings.gone += 1;
            self.has_changed = true;
            return self.settle(now);
        };
        self.stop_waiting(now, id);
        self.changes += 1;
        self.holder = Some(Granted { app: id, grant, since: now, is_ending: false });
    }
}

#[cfg(test)]
mod tests;
