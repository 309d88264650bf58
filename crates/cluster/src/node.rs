//! What one server does for the cluster: inputs in, effects out.
//!
//! The server that drives a [`Node`] gives it everything that happens ([`Input`]) and the time, one after the other, and
//! does what it says ([`Effect`]), in that order. Which clock the time is from does not matter as long as it never goes back:
//! nothing is compared with another server's. It is called with [`Input::Time`] when [`Node::wake_at`] has come.
//!
//! # What is guaranteed
//! * **Nothing is said before what it rests upon is stored.** Effects that come after an [`Effect::Store`] are delayed until
//!   [`Input::Stored`] has reported that one, all of them: answers, messages, and work of the file system. What a
//!   server has told anybody is there after any stop.
//! * **Every request is answered**: by [`Effect::Answer`], once, and when its deadline has come at the latest. (A process that
//!   stops answers nothing.)
//! * **Nothing is lost with a message.** Every [`LOOK_EVERY`] a server asks the root server for news, and looks at
//!   what the table tells it to do; what was done is told again. Both are done for as long as the table says so, and not a moment longer.
//! * **An older epoch is refused**, and whoever hears of a newer one serves no requests until it has that file.
//! * **A server that starts has the cluster's policy before it serves** ([`crate::policy`]), if the root server is there.
//! * **A process that another one has replaced is refused, and so is one whose directory is empty or an older copy**: by what
//!   every other server remembers of its server on stable storage ([`crate::lineage`]). A replaced one says nothing to clients itself once its time as owner of its directory is over ([`Input::Owned`]); what it
//!   decides before it notices is stored nowhere, and so is never said.
//! * Memory is bounded: by the table (65,535 slots), [`REQUESTS_MAX`], and [`DELAYED_MAX`].
//!
//! # Restart
//! [`Node::start`] takes all records that were ever stored; what was being done goes on. There is no other recovery: the
//! same events that repeat what a lost message said repeat what a stop cut off.

mod counting;
mod interface;
mod moving;
mod objects;
mod policy;

pub use interface::{BadView, Effect, Input, Process, StartError, StoreId, View};

use crate::lineage::{Heard, Lineage, Past};
use crate::load::{Load, Loads};
use crate::objects::{Errands, ObjectsId, What};
use crate::peer::{Envelope, Message};
use crate::policy::Known;
use crate::records::{self, Change, Record, Stored};
use crate::request::{Answer, Refusal, Request, RequestId};
use crate::volumes::copy::{Copy, Taken};
use crate::volumes::hosted::{Host, Hosted, Todo};
use crate::volumes::root::{Decisions, Root, page_of};
use crate::volumes::{Outcome, Slot, Table, Version, VolumeKey, VolumeName};
use isonomia_units::{Nanos, ServerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How often a server asks for news and looks at what it has to do.
pub const LOOK_EVERY: Nanos = crate::volumes::copy::PULL_EVERY;
/// Requests without an answer; further ones are refused ([`Refusal::Busy`]).
pub const REQUESTS_MAX: usize = 4096;
/// Effects that are delayed; further messages are dropped, and said again at the next look.
pub const DELAYED_MAX: usize = 2 * REQUESTS_MAX;

/// Whether this server decides the table or keeps a copy.
#[derive(Debug)]
enum Role {
    Root(Root),
    Other(Copy),
}

/// One server of a cluster.
#[derive(Debug)]
pub struct Node {
    process: Process,
    view: View,
    /// The newest epoch that anybody spoke of, and who did.
    heard_of: (u64, ServerId),
    is_superseded: bool,
    owned_until: Nanos,
    role: Role,
    hosted: Hosted,
    /// What data servers have to do for this one.
    errands: Errands,
    /// What the store does for volume servers.
    serving: BTreeSet<(ServerId, ObjectsId, What)>,
    policy: Known,
    /// How full and how busy this server is, and, on the root server, the others.
    load: Option<Load>,
    loads: Loads,
    /// The version of the policy that the server was told to follow: it is on stable storage.
    follows: u64,
    /// Until when a server that starts waits for others.
    starting_until: Nanos,
    lineage: Lineage,
    /// When it was last called.
    now: Nanos,
    /// Up to where each server knows the table, as far as the root server knows.
    known: BTreeMap<ServerId, Version>,
    last_store: StoreId,
    stored: StoreId,
    /// Effects that wait for a store.
    delayed: VecDeque<(StoreId, Effect)>,
    /// What was decided for this server's own volumes in this very call.
    own: VecDeque<Slot>,
    /// Requests without an answer.
    deadlines: BTreeMap<RequestId, Nanos>,
    by_deadline: BTreeSet<(Nanos, RequestId)>,
    next_look: Nanos,
}

impl Node {
    /// A server that starts, with the past of its directory, the cluster file that it was given, and all that it ever stored.
    pub fn start(
        (process, past): (Process, Past),
        view: View,
        records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
        now: Nanos,
        effects: &mut Vec<Effect>,
    ) -> Result<Self, StartError> {
        let stored = Stored::read(records)?;
        if view.epoch < stored.epoch {
            return Err(StartError::OlderEpoch { given: view.epoch, stored: stored.epoch });
        }
        if !view.servers.contains(&process.server) {
            return Err(StartError::NotMember { server: process.server, epoch: view.epoch });
        }
        let role = if process.server == view.root {
            view.has_servers_of(&stored.table)?;
            Role::Root(Root::new(stored.table, stored.last_number))
        } else {
            Role::Other(Copy::new(stored.copy, process.instance.token))
        };
        let lineage = Lineage::new(process.instance, past, stored.instances);
        let mut node = Self {
            process,
            heard_of: (view.epoch, process.server),
            is_superseded: false,
            owned_until: Nanos::ZERO,
            role,
            hosted: Hosted::new(stored.hosts),
            errands: Errands::default(),
            serving: BTreeSet::new(),
            policy: Known::new(stored.policy),
            load: None,
            loads: Loads::new(now),
            follows: 0,
            starting_until: lineage.silent_until(&process, &view, now),
            lineage,
            now,
            known: BTreeMap::new(),
            last_store: StoreId(0),
            stored: StoreId(0),
            delayed: VecDeque::new(),
            own: VecDeque::new(),
            deadlines: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            next_look: now,
            view,
        };
        if node.view.epoch > stored.epoch {
            node.store(vec![Record::Epoch(node.view.epoch).put()], effects);
        }
        if let Role::Root(root) = &mut node.role {
            let mut decisions = Decisions::default();
            root.let_go(&mut decisions);
            node.decide(decisions, effects);
        }
        if let Some(policy) = node.policy.policy().cloned() {
            // It is on stable storage: at once, before anything is served.
            node.release(Effect::FollowPolicy(policy), effects);
        }
        node.look(now, effects);
        Ok(node)
    }

    /// When [`Input::Time`] is due at the latest.
    pub fn wake_at(&self) -> Nanos {
        self.by_deadline.first().map_or(self.next_look, |(deadline, _)| self.next_look.min(*deadline))
    }

    /// The table of volumes, or what is known of it. It may show what is not stored yet: for status and guesses, not for
    /// answers to clients, which [`Request`] gets.
    pub fn table(&self) -> &Table {
        match &self.role {
            Role::Root(root) => root.table(),
            Role::Other(copy) => copy.table(),
        }
    }

    /// What it knows of the policy.
    pub fn policy(&self) -> &Known {
        &self.policy
    }

    /// How full and how busy servers are: on the root server all, elsewhere this one.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// The volumes that this server has.
    pub fn hosted(&self) -> &Hosted {
        &self.hosted
    }

    /// The epoch of the cluster file that it has.
    pub fn epoch(&self) -> u64 {
        self.view.epoch
    }

    /// Whether `name` is a volume's or about to be: nothing else in the root may be called so. On the root server only; whoever
    /// makes something else there asks and makes it without giving the node an input in between.
    pub fn is_taken(&self, name: &VolumeName) -> bool {
        matches!(&self.role, Role::Root(root) if root.is_taken(name))
    }

    /// The names that this server may lead clients by without asking the node, each with its volume and who has that: of its own
    /// volumes, and for the rest what it would tell a client to try first. For any other name, and for one of another
    /// server's volumes that turns out to be called otherwise, the node is to be asked ([`Request::LookUp`]); on the
    /// root server that may take until it is known what a name stands for.
    pub fn names(&self) -> impl Iterator<Item = (&VolumeName, VolumeKey, ServerId)> {
        let own = self.process.server;
        let is_settled = move |name: &VolumeName, slot: &Slot, server: ServerId| match &self.role {
            Role::Root(root) => !root.is_in_doubt(name),
            Role::Other(_) if server == own => self.hosted.named(name).is_some_and(|host| slot.is_at(host.key, own)),
            Role::Other(_) => true,
        };
        let known = self.table().visible().filter_map(|(name, slot)| Some((name, slot, slot.volume.as_ref()?.server)));
        let settled = known.filter(move |(name, slot, server)| is_settled(name, slot, *server));
        settled.map(|(name, slot, server)| (name, slot.key, server))
    }

    /// Whether clients may be answered: this process owns its directory, and has the newest cluster file that it heard of.
    pub fn may_serve(&self, now: Nanos) -> Result<(), Refusal> {
        if self.is_superseded || now >= self.owned_until {
            return Err(Refusal::NotOwner);
        }
        if self.heard_of.0 > self.view.epoch {
            return Err(Refusal::EpochBehind);
        }
        if now < self.starting_until { Err(Refusal::Starting) } else { Ok(()) }
    }

    /// Whether a newer cluster file could be taken now.
    pub fn accepts(&self, view: &View) -> Result<(), BadView> {
        if view.epoch <= self.view.epoch {
            return Err(BadView::NotNewer { given: view.epoch, own: self.view.epoch });
        }
        if view.root != self.view.root {
            return Err(BadView::OtherRoot { given: view.root, own: self.view.root });
        }
        view.has_servers_of(self.table())
    }

    /// Takes in what happened at `now`, and adds what is to be done to `effects`.
    pub fn handle(&mut self, now: Nanos, input: Input, effects: &mut Vec<Effect>) {
        self.now = now;
        match input {
            _ if self.is_superseded => {
                if let Input::Request { id, .. } = input {
                    effects.push(Effect::Answer { id, result: Err(Refusal::NotOwner) });
                }
            }
            Input::Time => {}
            Input::Message { from, envelope } => self.message(now, from, envelope, effects),
            Input::Request { id, deadline, request } => self.request(now, (id, deadline), request, effects),
            Input::Stored(id) => {
                self.stored = self.stored.max(id);
                while self.delayed.front().is_some_and(|(store, _)| *store <= self.stored) {
                    if let Some((_, effect)) = self.delayed.pop_front() {
                        self.release(effect, effects);
                    }
                }
            }
            Input::Worked { number, result } => match self.hosted.done(number, result) {
                Some((host, true)) => self.carried(&host, effects),
                Some((host, false)) => self.store(vec![Record::Host(host).put()], effects),
                None => {}
            },
            Input::Intent { intent, request } => self.intend(now, intent, request, effects),
            Input::IntentClosed { objects, what } => self.closed(objects, what, effects),
            Input::Served { from, objects, what, result } => self.served(from, (objects, what), result, effects),
            Input::AskWanted { objects } => self.ask_wanted(objects, effects),
            Input::NotWanted { asker, objects } => self.looked_wanted(now, asker, objects, effects),
            Input::Counting(told) => self.told_of_counts(told, effects),
            Input::View(view) => {
                if self.accepts(&view).is_ok() {
                    self.view = view;
                    self.store(vec![Record::Epoch(self.view.epoch).put()], effects);
                    self.look(now, effects);
                }
            }
            Input::Owned { until } => self.owned_until = until,
            Input::Load(load) => {
                self.load = Some(load);
                self.loads.tell(self.process.server, load, now);
            }
        }
        self.expire(now, effects);
        self.do_own(effects);
        if now >= self.next_look && !self.is_superseded {
            self.look(now, effects);
        }
    }

    fn expire(&mut self, now: Nanos, effects: &mut Vec<Effect>) {
        while let Some(&(deadline, id)) = self.by_deadline.first()
            && deadline <= now
        {
            self.release(Effect::Answer { id, result: Err(Refusal::TimedOut) }, effects);
            self.errands.forget(id);
            if let Role::Root(root) = &mut self.role {
                let mut decisions = Decisions::default();
                root.forget(id, &mut decisions);
                self.decide(decisions, effects);
            }
        }
    }

    /// Asks for news, and does and tells what the table says.
    fn look(&mut self, now: Nanos, effects: &mut Vec<Effect>) {
        self.next_look = now + LOOK_EVERY;
        let (epoch, from) = self.heard_of;
        if epoch > self.view.epoch {
            effects.push(Effect::FetchView { epoch, from });
        }
        self.pull(effects);
        if self.process.server == self.view.root && now < self.starting_until {
            let others: Vec<ServerId> = self.view.servers.iter().copied().filter(|it| *it != self.view.root).collect();
            others.into_iter().for_each(|server| self.send(server, Message::Begins, effects));
        }
        let own: Vec<Slot> = self.table().slots().filter(|slot| self.concerns(slot)).cloned().collect();
        self.own.extend(own);
        self.do_own(effects);
        self.order_again(effects);
    }

    fn pull(&mut self, effects: &mut Vec<Effect>) {
        if let Role::Other(copy) = &mut self.role {
            let (ask, known) = copy.ask();
            let (policy, load) = (self.policy.version(), self.load);
            self.send(self.view.root, Message::Pull { ask, known, policy, load }, effects);
        }
    }

    fn request(&mut self, now: Nanos, (id, deadline): (RequestId, Nanos), request: Request, effects: &mut Vec<Effect>) {
        if let Err(refusal) = self.admit(now, id, deadline) {
            return effects.push(Effect::Answer { id, result: Err(refusal) });
        }
        match &mut self.role {
            Role::Root(_) if matches!(request, Request::SetPolicy { .. }) => self.set_policy(id, request, effects),
            Role::Root(root) => {
                let mut decisions = Decisions::default();
                root.request(id, request, |server| self.view.servers.contains(&server), &mut decisions);
                self.decide(decisions, effects);
            }
            Role::Other(_) => {
                let result = self.hosted_or_known(&request);
                self.emit(Effect::Answer { id, result }, effects);
            }
        }
    }

    /// Notes a request that will be answered later, if there may be one more.
    fn admit(&mut self, now: Nanos, id: RequestId, deadline: Nanos) -> Result<(), Refusal> {
        self.may_serve(now)?;
        if self.deadlines.len() >= REQUESTS_MAX {
            return Err(Refusal::Busy);
        }
        self.deadlines.insert(id, deadline);
        self.by_deadline.insert((deadline, id));
        Ok(())
    }

    /// The answer of a server that does not decide the table.
    fn hosted_or_known(&self, request: &Request) -> Result<Answer, Refusal> {
        let table = self.table();
        let (own, slot, referred) = match request {
            Request::List { since } => return Ok(Answer::Listed(page_of(table, None, *since))),
            Request::LookUp { name, referred } => (self.hosted.named(name), table.named(name), *referred),
            Request::WhereIs { number, referred } => (self.hosted.get(*number), table.slot(*number), *referred),
            Request::Make { .. } | Request::Remove { .. } | Request::Rename { .. } => (None, None, true),
            Request::Move { .. } | Request::SetPolicy { .. } => (None, None, true),
        };
        // A volume that was made is nobody's to see before the root server has said so.
        let is_seen =
            |host: &&Host| table.slot(host.key.number).is_some_and(|slot| slot.is_at(host.key, self.process.server));
        if let Some(host) = own.filter(is_seen) {
            return Ok(Answer::Volume { key: host.key, server: self.process.server });
        }
        let guess = slot.and_then(Slot::visible).map(|volume| volume.server);
        Err(Refusal::Refer(
            guess.filter(|server| !referred && *server != self.process.server).unwrap_or(self.view.root),
        ))
    }

    fn message(&mut self, now: Nanos, from: ServerId, envelope: Envelope, effects: &mut Vec<Effect>) {
        let is_refusal = envelope.is_refusal();
        let Envelope { from: claimed, to, instance, after, knows, epoch, message } = envelope;
        if claimed != from || to != self.process.server {
            return;
        }
        let (heard, has_learnt) = self.lineage.hear(from, instance, after, knows);
        if let Heard::NotOwn(by) = heard {
            return self.supersede(by, effects);
        }
        if heard == Heard::Unproven {
            if !is_refusal {
                self.send(from, Message::Unproven, effects);
            }
            return;
        }
        if epoch < self.view.epoch {
            if !is_refusal {
                self.send(from, Message::Outdated, effects);
            }
            return;
        }
        if has_learnt && from == self.view.root {
            // What was asked was not heard.
            self.pull(effects);
        }
        if epoch > self.heard_of.0 {
            self.heard_of = (epoch, from);
            effects.push(Effect::FetchView { epoch, from });
        }
        if self.heard_of.0 > self.view.epoch || !self.view.servers.contains(&from) {
            return;
        }
        if heard == Heard::New {
            self.lineage.take(from, instance);
            self.store(vec![Record::Instance(from, instance).put()], effects);
        }
        if self.process.server == self.view.root {
            self.starting_until = Nanos::ZERO;
        }
        match (message, &mut self.role) {
            // Nobody is to take what a process says that was replaced for the latest.
            (Message::Pull { .. }, Role::Root(_)) if now >= self.owned_until => {}
            (Message::Pull { ask, known, policy, load }, Role::Root(root)) => {
                self.known.insert(from, known);
                if let Some(load) = load {
                    self.loads.tell(from, load, now);
                }
                let page = root.page(Some(ask), known);
                self.policy_of(from, policy, effects);
                let policy = self.policy.version();
                self.send(from, Message::News { page, policy }, effects);
            }
            (Message::Outcome { key, instruction, outcome, known }, Role::Root(root)) => {
                self.known.insert(from, known);
                let mut decisions = Decisions::default();
                root.outcome(from, (key, instruction), outcome, &mut decisions);
                self.decide(decisions, effects);
            }
            (Message::Policy(policy), Role::Other(_)) if from == self.view.root => self.take_policy(policy, effects),
            (Message::News { page, policy }, Role::Other(copy)) if from == self.view.root => {
                if policy <= self.follows && page.ask.is_some_and(|ask| ask.token == self.process.instance.token) {
                    self.starting_until = Nanos::ZERO;
                }
                let taken = copy.take(page);
                self.heard_news(taken, effects);
            }
            (Message::Begins, _) => self.pull(effects),
            (Message::Order(order), _) => self.ordered(from, order, effects),
            (Message::Did { objects, what, result }, _) => self.did(from, (objects, what), result, effects),
            (Message::AskWanted { objects }, _) => self.asked_wanted(from, objects, effects),
            (Message::NotWanted { objects }, _) => self.emit(Effect::RemoveUnwanted { objects }, effects),
            (Message::Counting(said), _) => self.heard_of_counts(from, said, effects),
            // From a server that takes this one for another.
            _ => {}
        }
    }

    /// This process is none of this server, or none any more.
    fn supersede(&mut self, by: u64, effects: &mut Vec<Effect>) {
        self.is_superseded = true;
        let pending: Vec<RequestId> = self.deadlines.keys().copied().collect();
        for id in pending {
            self.release(Effect::Answer { id, result: Err(Refusal::NotOwner) }, effects);
        }
        self.delayed.clear();
        effects.push(Effect::Stop { by });
    }

    /// Stores news of the table, and does what they say.
    fn heard_news(&mut self, taken: Taken, effects: &mut Vec<Effect>) {
        if taken.ask_again {
            self.pull(effects);
        }
        let mut changes: Vec<Change> = taken.dropped.iter().map(|number| records::forget_copy(*number)).collect();
        changes.extend(taken.stored.iter().map(|slot| Record::Copy(slot.clone()).put()));
        if !changes.is_empty() {
            // Before anything is done: a server that starts again knows what was being done, and says nothing of it.
            self.store(changes, effects);
        }
        let own: Vec<Slot> = taken.stored.into_iter().filter(|slot| self.concerns(slot)).collect();
        self.own.extend(own);
    }

    /// Carries out instructions of this server. On the root server the end of one may be the beginning of another one, for
    /// which a request waits: there are as many rounds as requests wait.
    fn do_own(&mut self, effects: &mut Vec<Effect>) {
        while let Some(slot) = self.own.pop_front() {
            self.look_at(&slot, effects);
        }
    }

    fn look_at(&mut self, slot: &Slot, effects: &mut Vec<Effect>) {
        match self.hosted.look_at(self.process.server, slot) {
            Todo::Nothing => {}
            Todo::Kept(host) => self.store(vec![Record::Host(host).put()], effects),
            Todo::Work(work) => self.emit(Effect::Work(work), effects),
            Todo::Begun(host, work) => {
                self.store(vec![Record::Host(host).put()], effects);
                self.emit(Effect::Work(work), effects);
            }
            Todo::Carried(host) => self.carried(&host, effects),
            Todo::Tell(outcome) => self.tell((slot.key, slot.changed), outcome, effects),
        }
    }

    fn carried(&mut self, host: &Host, effects: &mut Vec<Effect>) {
        self.store(vec![Record::Host(host.clone()).put()], effects);
        self.tell((host.key, host.instruction), host.outcome, effects);
    }

    fn tell(&mut self, (key, instruction): (VolumeKey, Version), outcome: Outcome, effects: &mut Vec<Effect>) {
        match &mut self.role {
            Role::Root(root) => {
                let mut decisions = Decisions::default();
                root.outcome(self.process.server, (key, instruction), outcome, &mut decisions);
                self.decide(decisions, effects);
            }
            Role::Other(copy) => {
                let known = copy.known();
                self.send(self.view.root, Message::Outcome { key, instruction, outcome, known }, effects);
            }
        }
    }

    /// Stores what the root server decided, tells it to whom it concerns, and does its own part.
    fn decide(&mut self, decisions: Decisions, effects: &mut Vec<Effect>) {
        let Role::Root(root) = &self.role else { return };
        if let Some(first) = decisions.changed.first() {
            let before = Version(first.changed.0 - 1);
            let mut changes: Vec<Change> =
                decisions.changed.iter().map(|slot| Record::Table(slot.clone()).put()).collect();
            changes.push(Record::LastNumber(root.last()).put());
            let intents = decisions.changed.iter().filter_map(|slot| Some(slot.intent()?.server));
            let concerned: BTreeSet<ServerId> = intents.chain(decisions.concerned).collect();
            let pages: Vec<_> = (concerned.iter().filter(|server| **server != self.process.server))
                .map(|server| {
                    (*server, root.page(None, self.known.get(server).map_or(before, |known| before.min(*known))))
                })
                .collect();
            self.store(changes, effects);
            for (server, page) in pages {
                let policy = self.policy.version();
                self.send(server, Message::News { page, policy }, effects);
            }
        }
        for (id, result) in decisions.answers {
            self.emit(Effect::Answer { id, result }, effects);
        }
        let own: Vec<Slot> = decisions.changed.into_iter().filter(|slot| self.concerns(slot)).collect();
        self.own.extend(own);
    }

    fn store(&mut self, changes: Vec<Change>, effects: &mut Vec<Effect>) {
        self.last_store = StoreId(self.last_store.0 + 1);
        effects.push(Effect::Store { id: self.last_store, changes });
    }

    fn send(&mut self, to: ServerId, message: Message, effects: &mut Vec<Effect>) {
        let Process { server: from, instance } = self.process;
        if self.now < self.starting_until && self.view.root != to && self.view.root != from {
            // Only once the root server has heard of it: nobody else is to remember a process that has another's directory.
            return;
        }
        let (after, knows) = (self.lineage.after(to), self.lineage.known(to));
        let envelope = Envelope { from, to, instance, after, knows, epoch: self.view.epoch, message };
        if self.delayed.len() < DELAYED_MAX {
            self.emit(Effect::Send(envelope), effects);
        }
    }

    /// Does `effect` when everything that was stored before is on stable storage.
    fn emit(&mut self, effect: Effect, effects: &mut Vec<Effect>) {
        if self.stored < self.last_store {
            self.delayed.push_back((self.last_store, effect));
        } else {
            self.release(effect, effects);
        }
    }

    fn release(&mut self, effect: Effect, effects: &mut Vec<Effect>) {
        if let Effect::Answer { id, .. } = &effect {
            // It may have been answered when its time was over.
            let Some(deadline) = self.deadlines.remove(id) else { return };
            self.by_deadline.remove(&(deadline, *id));
        }
        if let Effect::FollowPolicy(policy) = &effect {
            self.follows = policy.version;
        }
        effects.push(effect);
    }
}
