//! A server's part in a cluster: drives [`isonomia_cluster::node`] with the store, connections to other servers, and the clock.
//!
//! One thread, `cluster`, has the node. Workers bring it what concerns volumes and what other servers send ([`Cluster::pass`]);
//! it may wait for the storage, and nobody waits for it: a request is answered when the node says so, and by the keeper when
//! its time is over ([`Cluster::expire`]). After every step it tells the store which server has which volume.
//!
//! Some changes of a volume are checked by the volume's server, such as its removal, which needs an empty volume. They are decided
//! by the root server all the same: the volume's server asks it as a client would ([`links::Links::ask`]), and passes the answer
//! on.

mod addresses;
mod apart;
mod capabilities;
mod changes;
mod contact;
mod controller;
mod cutting;
mod exchange;
mod inspection;
mod layouts;
mod links;
mod load;
mod membership;
mod moves;
mod moving;
mod objects;
mod peer_tables;
mod phases;
mod placing;
mod policy;
mod reload;
mod settings;
mod shown;
mod standing;
mod startup_queue;
mod striping;
mod trial;
mod waiting;
pub mod wire;

use crate::clock;
use crate::cluster_config::ClusterConfig;
use crate::connection::Pending;
use crate::core::Core;
use crate::holders;
pub use apart::queue::is_control;
pub use capabilities::CLOCKS_APART_SECS_MAX;
use contact::RootContact;
pub use controller::{Commander, Heard};
pub use exchange::Exchanger;
use isonomia_cluster::Map;
use isonomia_cluster::lineage::{Instance, Past};
use isonomia_cluster::node::{Effect, Input, Node, Process, View};
use isonomia_cluster::peer::Message;
use isonomia_cluster::volumes::hosted::Work;
use isonomia_cluster::volumes::{Attributes, Phase, Version};
use isonomia_proto::request::RequestHeader;
use isonomia_store::{START_OVER, StoreError, VolumeChange, Whereabouts};
use isonomia_transport::handshake::Protection;
use isonomia_units::{Nanos, ServerId};
use links::Links;
pub use membership::{Cluster, Passed, Reload};
use membership::{Event, Events};
use objects::Objects;
pub use phases::Publisher;
use rustix::io::Errno;
use standing::Operators;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use waiting::{DECIDED_WITHIN, Requests, Waiting, answers};
use wire::Verdict;

/// The longest wait for an event, so that the end of the server is noticed.
const WAIT_MAX: Nanos = Nanos::from_millis(200);

/// The thread of [`Cluster`].
pub struct Driver {
    core: Arc<Core>,
    config: ClusterConfig,
    events: Receiver<Event>,
    links: Links,
    node: Node,
    effects: VecDeque<Effect>,
    requests: Arc<Requests<Pending>>,
    objects: Objects,
    operators: Operators,
    /// The newer epoch whose cluster file is missing here, once the log has said so.
    told_epoch: u64,
    /// The newer epoch whose cluster file cannot be taken, once the log has said so.
    refused_epoch: u64,
    /// When to look how full and how busy this server is.
    next_load: Nanos,
    root: RootContact,
    /// Which process it is among those that had the directory.
    pub instance: u64,
    /// This is the first of them.
    is_first: bool,
}

impl Cluster {
    /// Passes a request on that is answered later.
    pub fn pass(&self, core: &Core, pending: Pending, what: Passed) {
        if let Passed::FromPeer(bytes) = &what
            && self.hear_apart(core, &pending, bytes)
        {
            return;
        }
        let RequestHeader { server, offset, valid, .. } = pending.header;
        let is_peer = matches!(what, Passed::FromPeer(_));
        let made = match &what {
            Passed::Change(VolumeChange::Make { name, mode, uid, gid }) => {
                Some((name.clone(), Attributes { mode: *mode, uid: *uid, gid: *gid }))
            }
            _ => None,
        };
        let cut = if let Passed::Cut { ino, .. } = &what { Some(*ino) } else { None };
        let deadline = clock::now() + DECIDED_WITHIN;
        let id = match self.requests.add(Waiting { pending, is_peer, made, cut, deadline }) {
            Ok(id) => id,
            Err(waiting) => return answers::refuse(core, &waiting, Errno::AGAIN),
        };
        let event = match what {
            Passed::Change(change) => Event::Change { id, wanted: ServerId(server), change },
            Passed::Cut { ino, size_bytes } => Event::Cut { id, ino, size_bytes },
            Passed::FromPeer(bytes) => Event::FromPeer { id, from: ServerId(offset as u16), kind: valid, bytes },
        };
        if self.events.try_send(event).is_err() {
            self.requests.fail(core, id, Errno::AGAIN);
        }
    }

    /// Answers requests that were passed on and whose time is over by `now`, with an error. It does not block.
    pub fn expire(&self, core: &Core, now: Nanos) {
        self.requests.expire(core, now);
    }
}

/// Why a server cannot be a part of its cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is kept of the cluster does not fit its file, or cannot be read.
    #[error("{}: {error}", path.display())]
    Node {
        /// The cluster file.
        path: PathBuf,
        /// Why not.
        error: isonomia_cluster::node::StartError,
    },
}

impl Driver {
    /// The part of the cluster that `core`'s server is.
    pub fn new(
        core: Arc<Core>,
        config: ClusterConfig,
        events: Events,
        (key_file, protection): (Option<String>, Protection),
    ) -> Result<Self, JoinError> {
        let mut records = core.store.namespace().cluster_records()?;
        records.retain(|(key, _)| {
            !moves::is_note(key) && !holders::is_note(key) && !key.starts_with(isonomia_controller::PREFIX)
        });
        let line = core.store.fence().line().unwrap_or_default();
        let of = |(number, token)| Instance { number, token };
        let process = Process { server: config.number, instance: of(line.own) };
        let past = Past { listed: line.past.into_iter().map(of).collect(), all_below: line.all_below };
        let instance = process.instance.number;
        let view = view_of(&config.map());
        let mut effects = Vec::new();
        let node = Node::start((process, past), view, records, clock::now(), &mut effects);
        let node = node.map_err(|error| JoinError::Node { path: config.path.clone(), error })?;
        let targets_per_server = config.map().targets_per_server();
        let objects = Objects::new(core.clone(), targets_per_server, events.sender);
        let links = Links::new(config.clone(), (key_file, protection));
        let mut driver = Self {
            core,
            config,
            events: events.received,
            links,
            node,
            effects: effects.into(),
            requests: events.requests,
            objects,
            operators: Operators::default(),
            told_epoch: 0,
            refused_epoch: 0,
            next_load: Nanos::ZERO,
            root: RootContact::new(clock::now()),
            instance,
            is_first: instance == 1,
        };
        driver.give(Input::Owned { until: driver.owned_until() });
        driver.tell_store()?;
        driver.let_clients_in();
        Ok(driver)
    }

    /// Does its part until the server stops.
    pub fn run(&mut self) {
        while !self.core.is_stopping.load(Ordering::Relaxed) {
            let wait = self.node.wake_at().since(clock::now()).min(WAIT_MAX);
            match self.events.recv_timeout(Duration::from_nanos(wait.0)) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.give(Input::Owned { until: self.owned_until() });
            self.look_at_load();
            self.look_for_root();
            self.let_clients_in();
        }
    }

    /// Notices that the root server has gone, or is back: if it is away, the store answers for the root directory.
    fn look_for_root(&mut self) {
        let map = self.config.map();
        if self.root.look(self.config.number, map.root())
            && let Err(error) = self.tell_store()
        {
            tracing::error!(%error, "the names of volumes cannot be stored");
        }
    }

    /// Until when the directory is this process's.
    fn owned_until(&self) -> Nanos {
        self.core.store.fence().left().map_or(Nanos::MAX, |left| clock::now() + left)
    }

    /// Gives the node an input, and does what it says.
    fn give(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.node.handle(clock::now(), input, &mut effects);
        self.effects.extend(effects);
        while let Some(effect) = self.effects.pop_front() {
            let Some(input) = self.act(effect) else { continue };
            let mut effects = Vec::new();
            self.node.handle(clock::now(), input, &mut effects);
            self.effects.extend(effects);
        }
    }

    /// Does one thing, which may be an input again.
    fn act(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Store { id, changes } => {
                let changes = || changes.iter().map(|change| (&change.key[..], change.value.as_deref()));
                let mut is_told = false;
                while let Err(error) = self.core.store.namespace().keep_cluster_records(changes()) {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::error!(%error, "what is decided of volumes cannot be stored; it is tried again");
                    }
                    if self.core.is_stopping.load(Ordering::Relaxed) {
                        return None;
                    }
                    std::thread::park_timeout(Duration::from_nanos(WAIT_MAX.0));
                }
                // Before anybody hears of it.
                if let Err(error) = self.tell_store() {
                    tracing::error!(%error, "the names of volumes cannot be stored");
                }
                Some(Input::Stored(id))
            }
            Effect::Send(envelope) => {
                self.links.send(envelope.to, wire::ToPeer::Message(envelope).encode());
                None
            }
            Effect::Work(work @ (Work::Freeze { .. } | Work::Fetch { .. } | Work::Drop { .. })) => {
                self.begin_move(work)
            }
            Effect::Work(work) => {
                let number = work.key().number;
                Some(Input::Worked { number, result: self.work(&work).map_err(|error| error.errno() as i32) })
            }
            Effect::Answer { id, result } => {
                if let Some(result) = self.cut_answered(id, result)
                    && !self.operators.answer(id, || Verdict::of(result.clone()))
                {
                    self.requests.answer(&self.core, id, &Verdict::of(result));
                }
                None
            }
            Effect::FollowPolicy(policy) => {
                self.follow(&policy);
                None
            }
            effect @ (Effect::CloseIntent { .. }
            | Effect::Serve { .. }
            | Effect::LookWanted { .. }
            | Effect::RemoveUnwanted { .. }) => {
                self.objects.act(effect);
                None
            }
            Effect::Counting(act) => {
                self.objects.count(act);
                None
            }
            Effect::FetchView { epoch, from } => {
                if self.told_epoch < epoch {
                    self.told_epoch = epoch;
                    tracing::warn!(epoch, %from, "there is a newer cluster file: this server changes no volumes before it has that");
                }
                // It may have been brought here meanwhile.
                let new = self.config.read_again().ok().filter(|new| u64::from(new.epoch().0) >= epoch)?;
                let view = view_of(&new);
                if let Err(error) = self.node.accepts(&view) {
                    if self.refused_epoch < epoch {
                        self.refused_epoch = epoch;
                        tracing::error!(epoch, %error, "the newer cluster file cannot be taken: this server serves nobody");
                    }
                    return None;
                }
                self.replace(new);
                tracing::info!(epoch = view.epoch, "the newer cluster file is taken");
                Some(Input::View(view))
            }
            Effect::Stop { by } => {
                tracing::error!(
                    instance = by,
                    "other servers know a process of this server of which its directory knows nothing: it was replaced, or the \
                     directory is empty, an older copy, or another one's. If the directory is to be this server's from now on, make the \
                     file `{START_OVER}` beside its file `owner`, and start the server again"
                );
                self.core.store.fence().refuse(by);
                None
            }
        }
    }

    fn work(&self, work: &Work) -> Result<(), StoreError> {
        let (store, now) = (&self.core.store, clock::wall());
        match work {
            Work::Make { key, attributes: Attributes { mode, uid, gid } } => {
                let slot = self.node.table().slot(key.number).and_then(|slot| slot.volume.as_ref());
                let name = slot.map(|volume| volume.name.as_bytes().to_vec()).ok_or(StoreError::Stale)?;
                store.make_volume(key.number, &name, (*mode, *uid, *gid), now)?;
            }
            Work::Remove { key } => store.remove_volume(key.number, now)?,
            // On threads of their own: `moving`.
            Work::Freeze { .. } | Work::Fetch { .. } | Work::Drop { .. } => return Err(StoreError::Invalid),
        }
        store.sync()
    }

    /// Tells the store who has which volume, and under which name.
    fn tell_store(&self) -> Result<(), StoreError> {
        let (store, table) = (&self.core.store, self.node.table());
        let (own, root) = (self.config.number, self.config.map().root().number);
        let is_root_away = self.root.is_away();
        let mut known = Whereabouts { own, root, is_root_away, ..Whereabouts::default() };
        known.in_doubt = self.node.names_in_doubt().map(|name| name.as_bytes().into()).collect();
        for slot in table.slots() {
            known.closed.extend(self.node.refers_to(slot).map(|server| (slot.key.number, server)));
            let Some(volume) = &slot.volume else { continue };
            known.servers.insert(slot.key.number, volume.server);
            known.names.insert(volume.name.as_bytes().into(), slot.key.number);
            if volume.server == own && volume.phase != Phase::Creating {
                if store.namespace().has_volume(slot.key.number)? {
                    store.namespace().rename_volume(slot.key.number, volume.name.as_bytes(), clock::wall())?;
                } else if self.is_first
                    && volume.phase == Phase::Active
                    && self.node.hosted().get(slot.key.number).is_none()
                {
                    self.end_misplaced(&format!(
                        "volume {} is here, by the table of volumes, and it is not",
                        volume.name
                    ));
                }
            }
        }
        // On other servers, for when the root server is away.
        store.namespace().set_volume_names(&known.names, clock::wall())?;
        self.note_moves();
        if store.namespace().whereabouts().is_none_or(|before| *before != known) {
            store.namespace().set_whereabouts(Arc::new(known));
            // Volumes are where files lie that other servers have.
            self.core.prefixes.forget();
        }
        Ok(())
    }

    /// Ends a server whose directory cannot be its own: other servers would believe what it says.
    fn end_misplaced(&self, why: &str) {
        tracing::error!("{why}: the server's directory is empty, or another one's");
        self.core.store.fence().refuse(self.instance);
    }

    /// Another server knows the table of volumes up to this version.
    fn hear_known(&self, from: ServerId, known: Version) {
        let own = self.node.table().version();
        if self.is_first && self.config.number == self.config.map().root().number && known > own {
            let why = format!("server {from} knows the table of volumes at {}, the root server at {}", known.0, own.0);
            self.end_misplaced(&why);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Change { id, wanted, change } => self.change(id, wanted, &change),
            Event::FromPeer { id, from, kind, bytes } => match wire::ToPeer::decode(kind, &bytes) {
                Ok(wire::ToPeer::Message(envelope)) => {
                    self.root.heard(from, self.config.map().root().number);
                    self.requests.confirm(&self.core, id);
                    let instance = envelope.instance;
                    let known = match envelope.message {
                        Message::Pull { known, .. } | Message::Outcome { known, .. } => Some(known),
                        _ => None,
                    };
                    self.give(Input::Message { from, envelope });
                    // Only from the process that is known to have that server's directory.
                    if let Some(known) = known.filter(|_| self.node.known_instance(from) == Some(instance)) {
                        self.hear_known(from, known);
                    }
                }
                Ok(wire::ToPeer::Request(request)) => self.request(id, request),
                Err(error) => {
                    tracing::warn!(%error, "a server sent what this one does not understand");
                    self.requests.fail(&self.core, id, Errno::PROTO);
                }
            },
            Event::Cut { id, ino, size_bytes } => self.cut(id, ino, size_bytes),
            Event::Objects(done) => self.objects_done(done),
            Event::Loose => self.objects.cut_loose(),
            Event::Reload(reload, answer) => {
                let reply = self.reload(&reload);
                // Nobody receives it if that took too long.
                let _ = answer.try_send(reply);
            }
            Event::Decide(request, answer) => self.decide(request, answer),
            Event::Worked(number, result) => {
                self.give(Input::Worked { number, result });
                if let Err(error) = self.tell_store() {
                    tracing::error!(%error, "the names of volumes cannot be stored");
                }
            }
        }
    }
}

fn view_of(map: &Map) -> View {
    View {
        epoch: u64::from(map.epoch().0),
        root: map.root().number,
        servers: map.servers().iter().map(|server| server.number).collect(),
    }
}

#[cfg(test)]
mod tests;
