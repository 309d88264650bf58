//! The coordinator of exclusive I/O phases (the role of CLARISSE in ICS'20 §2): who has which I/O node, one application at a
//! time, by any of the eight orders.
//!
//! Every I/O node ([`crate::IoNode`]) tells all of its claims each time ([`Report`]), and is told all of what it has to know
//! ([`Publication`]). So it does not matter if a message is lost, comes twice, or comes late: the next one says the same and
//! more. Reports of a process of the node are numbered, and what answers them says which was the last that it knows of: what is older
//! than something that has come is refused. Grants of a node are numbered, too, and a number is never given again.
//!
//! What it adds to the nodes' own knowledge is that an application is judged by what it did and waited on all of them, and
//! that it is in the same position of the order on each where it waits. Times at several nodes add up. Nodes are granted one by one, so two
//! applications that come while their nodes are free may have one each and wait for the other's: then the one that came last
//! gives way, and waits behind the other.
//!
//! But for that no grant is taken back (non-preemptive, §4.3); its lease is kept by the node, which says that it is over. Ages are
//! told, not times of day, so clocks may differ. There is no I/O in here; `now` is the coordinator's own clock.

mod crossing;

use crate::grants::{Grants, NextGrant};
use crate::order::{Claim, Order};
use isonomia_units::{Edition, Nanos, OldEdition, ServerId};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node that has told nothing for this long is forgotten; if it comes back, it says itself who has it.
pub const NODE_FORGOTTEN_AFTER: Nanos = isonomia_units::FORGOTTEN_AFTER;
/// Applications of one report that count; further ones wait until others have gone.
pub const REPORTED_MAX: usize = 4_096;

/// A grant of one I/O node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGrant {
    /// Later grants of the node have greater numbers; from 1.
    pub number: u64,
    /// Who has it.
    pub application: Arc<str>,
}

/// What an application asks for that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimReport {
    /// For how long it has waited.
    pub waiting_ns: u64,
    /// How long its phase takes with the node for itself, if it has said so.
    pub io_ns: Option<u64>,
    /// How long the application would still take alone, this phase included, if it has said so.
    pub remaining_ns: Option<u64>,
}

/// What a node knows of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppReport {
    /// Its name, the same at all nodes.
    pub application: Arc<str>,
    /// For how long the node has known it.
    pub age_ns: u64,
    /// How long its phases took here that are over.
    pub io_done_ns: u64,
    /// How long it waited here, the present wait included.
    pub waited_ns: u64,
    /// Phases that are over.
    pub phases: u64,
    /// What it asks for, if it waits.
    pub claim: Option<ClaimReport>,
}

/// All that a node tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Tells the processes of a node apart: later ones have greater numbers.
    pub instance: u64,
    /// Later reports of a process have greater numbers.
    pub number: u64,
    /// Who has the node now.
    pub granted: Option<NodeGrant>,
    /// Grants up to this number are over.
    pub ended: u64,
    /// Those who wait come first.
    pub applications: Vec<AppReport>,
}

/// All that a node is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    /// The process of the node that it is for.
    pub instance: u64,
    /// The number of that process's latest report that was heard.
    pub heard: u64,
    /// Who has the node, or is to have it.
    pub grant: Option<NodeGrant>,
    /// Grants up to this number are taken back.
    pub recalled: u64,
}

/// Why what was said is not heeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Outdated {
    /// A report that came before, or after a later one.
    #[error("an old report of I/O phases: {0}")]
    Report(OldEdition),
    /// What a node was told that has heard something later.
    #[error("an old grant of I/O phases: {0}")]
    Publication(OldEdition),
    /// It is for a process of this node that is no more.
    #[error("a grant of I/O phases for process {told}, and this is {own}")]
    OtherProcess {
        /// Whom it is for.
        told: u64,
        /// This one.
        own: u64,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Coordinator {
    order: Order,
    nodes: BTreeMap<ServerId, Side>,
    ids: BTreeMap<Arc<str>, u32>,
    names: BTreeMap<u32, Arc<str>>,
    next_id: u32,
    /// A grant was taken back, which its node has not been told.
    has_recalled: bool,
}

/// What is known of a node.
#[derive(Debug)]
struct Side {
    heard_at: Nanos,
    report: Report,
    grants: Grants,
    /// Those in `grants` that wait.
    waiting: Vec<u32>,
    granted: Option<(u64, u32)>,
    number: u64,
    /// The last grant that was taken back.
    recalled: u64,
}

impl Coordinator {
    /// Of nodes that nobody has claimed yet.
    pub fn new(order: Order) -> Self {
        Self {
            order,
            nodes: BTreeMap::new(),
            ids: BTreeMap::new(),
            names: BTreeMap::new(),
            next_id: 0,
            has_recalled: false,
        }
    }

    /// Takes a node's report, and says who has the node. O(claims · n) for n applications.
    ///
    /// # Errors
    /// It is not later than what is known, and changes nothing.
    pub fn take(&mut self, now: Nanos, node: ServerId, report: Report) -> Result<Publication, Outdated> {
        self.forget_silent(now, node);
        let order = self.order;
        let told = Edition { process: report.instance, number: report.number };
        let known = self.nodes.get(&node).filter(|side| now.since(side.heard_at) < NODE_FORGOTTEN_AFTER);
        if let Some(known) = known.map(Side::edition).filter(|known| told <= *known) {
            return Err(Outdated::Report(OldEdition { told, known }));
        }
        let side = self.nodes.entry(node).or_insert_with(|| Side::new(now, order, report.instance));
        side.heard_at = now;
        if side.report.instance != report.instance {
            *side = Side::new(now, order, report.instance);
        }
        let instance = report.instance;
        side.report = report;
        side.report.applications.truncate(REPORTED_MAX);
        self.hear(now, node);
        let nothing = Publication { instance, heard: told.number, grant: None, recalled: 0 };
        Ok(self.publication(node).unwrap_or(nothing))
    }

    /// What `node` is to be told; `None` if nothing is known of it.
    pub fn publication(&self, node: ServerId) -> Option<Publication> {
        let side = self.nodes.get(&node)?;
        let grant =
            side.granted.and_then(|(number, id)| Some(NodeGrant { number, application: self.names.get(&id)?.clone() }));
        let Report { instance, number, .. } = side.report;
        Some(Publication { instance, heard: number, grant, recalled: side.recalled })
    }

    /// Whether a grant was taken back since this was last asked: its node is to be told at once.
    pub fn take_recalled(&mut self) -> bool {
        std::mem::take(&mut self.has_recalled)
    }

    /// The nodes that have told anything lately.
    pub fn nodes(&self) -> impl Iterator<Item = ServerId> {
        self.nodes.keys().copied()
    }

    /// Nodes fall silent when they end; nothing of theirs is kept for ever.
    fn forget_silent(&mut self, now: Nanos, but: ServerId) {
        let before = self.nodes.len();
        self.nodes.retain(|node, side| *node == but || now.since(side.heard_at) < NODE_FORGOTTEN_AFTER);
        if self.nodes.len() < before {
            self.forget_unknown();
        }
    }

    /// Forgets the names that no node tells of any more.
    fn forget_unknown(&mut self) {
        let (nodes, names) = (&self.nodes, &mut self.names);
        self.ids.retain(|name, id| {
            let is_known = nodes.values().any(|side| side.knows(name, *id));
            if !is_known {
                names.remove(id);
            }
            is_known
        });
    }

    fn id_of(&mut self, name: &Arc<str>) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        // They are given out one after the other; one that is still in use is passed over.
        while self.names.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.ids.insert(name.clone(), id);
        self.names.insert(id, name.clone());
        id
    }

    fn hear(&mut self, now: Nanos, node: ServerId) {
        let Some(side) = self.nodes.get(&node) else { return };
        let (granted, ended) = (side.report.granted.clone(), side.report.ended);
        let claimed: Vec<_> = side.report.applications.iter().filter(|app| app.claim.is_some()).cloned().collect();
        // Whoever came first has the lowest id, with those of one time by name.
        let mut all: Vec<_> =
            side.report.applications.iter().map(|app| (Reverse(app.age_ns), app.application.clone())).collect();
        all.sort();
        all.iter().for_each(|(_, name)| _ = self.id_of(name));
        let holder = granted.map(|grant| (grant.number, self.id_of(&grant.application)));
        let claims: Vec<_> = claimed.iter().map(|app| self.claim(now, app)).collect();
        let Some(side) = self.nodes.get_mut(&node) else { return };
        side.number = side.number.max(ended).max(holder.map_or(0, |(number, _)| number));
        if let Some((number, id)) = side.granted
            && number <= ended
        {
            side.grants.complete(id);
            side.granted = None;
        }
        if let Some((number, id)) = holder
            && side.granted.is_none_or(|granted| granted != (number, id) && granted.0 <= number)
        {
            // Granted by another coordinator, or by this one before it started again. What that one sent last may have come
            // before what this one granted meanwhile: then nobody else got the node, and waits still.
            side.granted.into_iter().for_each(|(_, other)| _ = side.grants.complete(other));
            side.grants.resume(id);
            side.granted = Some((number, id));
        }
        let has = side.granted.map(|(_, id)| id);
        let gone: Vec<u32> =
            side.waiting.iter().copied().filter(|id| claims.iter().all(|(_, claim)| claim.app != *id)).collect();
        for id in gone {
            side.grants.withdraw(id);
            side.waiting.retain(|other| *other != id);
        }
        for (since, claim) in claims {
            let is_new = has != Some(claim.app) && !side.waiting.contains(&claim.app);
            if is_new && side.grants.enqueue(since, claim).is_ok() {
                side.waiting.push(claim.app);
            }
        }
        if side.granted.is_none()
            && let NextGrant::Grant(id) = side.grants.next(now)
        {
            side.number += 1;
            side.granted = Some((side.number, id));
            side.waiting.retain(|other| *other != id);
        }
        self.uncross();
        self.forget_unknown();
    }

    /// Takes back what keeps applications waiting for each other in a circle. Each round recalls a grant, so it ends.
    fn uncross(&mut self) {
        loop {
            let holders = |side: &Side| side.granted.filter(|(number, _)| *number > side.recalled).map(|(_, id)| id);
            let mut waits = crossing::Waits::new();
            for side in self.nodes.values() {
                let Some(holder) = holders(side) else { continue };
                side.waiting.iter().for_each(|id| _ = waits.entry(*id).or_default().insert(holder));
            }
            let Some(last) = crossing::who_gives_way(&waits) else { return };
            for side in self.nodes.values_mut() {
                // Where nobody waits for it, it may go on.
                if let Some((number, _)) = side.granted.filter(|(_, id)| *id == last && !side.waiting.is_empty()) {
                    side.recalled = number;
                    self.has_recalled = true;
                }
            }
        }
    }

    /// What is known of a claim from all nodes, and since when it has been made.
    fn claim(&mut self, now: Nanos, told: &AppReport) -> (Nanos, Claim) {
        let app = self.id_of(&told.application);
        let all = || self.nodes.values().flat_map(|side| &side.report.applications);
        let own = || all().filter(|other| other.application == told.application);
        let sum = |of: fn(&AppReport) -> u64| own().map(of).fold(0, u64::saturating_add);
        let age = own().map(|app| app.age_ns).max().unwrap_or(told.age_ns);
        let waiting = own().filter_map(|app| app.claim).map(|claim| claim.waiting_ns).max().unwrap_or(0);
        let io_done = sum(|app| app.io_done_ns).min(age);
        let work_done = age.saturating_sub(sum(|app| app.waited_ns)).max(io_done);
        let (io, remaining) = told.claim.map_or((None, None), |claim| (claim.io_ns, claim.remaining_ns));
        // Nothing said: as its phases were so far, else as those of all were.
        let io = io.or_else(|| mean_io(own())).or_else(|| mean_io(all())).unwrap_or(0);
        // Nothing said: what has run for so long is expected to run for as long again.
        let remaining = remaining.unwrap_or(work_done).max(io);
        let ago = |span: u64| Nanos(now.0.saturating_sub(span));
        let [io, remaining, io_done, work_done] = [io, remaining, io_done, work_done].map(Nanos);
        (ago(waiting), Claim { app, release: ago(age), io, remaining, io_done, work_done })
    }
}

/// How long a phase of these took on average; `None` if none is over.
fn mean_io<'a>(apps: impl Iterator<Item = &'a AppReport>) -> Option<u64> {
    let (io_ns, phases) = apps.fold((0u128, 0u128), |(io_ns, phases), app| {
        (io_ns + u128::from(app.io_done_ns), phases + u128::from(app.phases))
    });
    io_ns.checked_div(phases).map(|mean| u64::try_from(mean).unwrap_or(u64::MAX))
}

impl Side {
    fn new(now: Nanos, order: Order, instance: u64) -> Self {
        let report = Report { instance, number: 0, granted: None, ended: 0, applications: Vec::new() };
        Self {
            heard_at: now,
            report,
            grants: Grants::new(order),
            waiting: Vec::new(),
            granted: None,
            number: 0,
            recalled: 0,
        }
    }

    fn edition(&self) -> Edition {
        Edition { process: self.report.instance, number: self.report.number }
    }

    fn knows(&self, name: &Arc<str>, id: u32) -> bool {
        self.granted.is_some_and(|(_, holder)| holder == id)
            || self.waiting.contains(&id)
            || self.report.applications.iter().any(|app| app.application == *name)
    }
}

#[cfg(test)]
mod tests;
