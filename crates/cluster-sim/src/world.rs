//! A cluster in virtual time: events in their order, and what the simulated servers do with them.

use crate::client::{Client, NAMES};
use crate::doubles::Double;
use crate::faults::Fault;
use crate::files::Files;
use crate::host::{Directory, Process, State, local_time};
use crate::linear::Operation;
use crate::model::{Asked, Got, Name};
use crate::network::{Network, Parcel};
use crate::policies::{OPERATOR, Policies};
use isonomia_cluster::load::Load;
use isonomia_cluster::node::{self, Effect, Input, Node, View};
use isonomia_cluster::objects::ObjectsId;
use isonomia_cluster::request::{Answer, Refusal, Request};
use isonomia_cluster::volumes::VolumeKey;
use isonomia_cluster::volumes::hosted::Work;
use isonomia_units::{Nanos, ServerId, VolumeId};
use rand::RngExt;
use rand_pcg::Pcg64;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// How long a process is the owner of its directory after it has said so.
pub const OWNED_FOR: Nanos = Nanos::from_secs(3);
/// How long whoever wants to take over a directory waits after its owner has said something. Longer than [`OWNED_FOR`] on
/// any clock.
pub const TAKE_OVER_AFTER: Nanos = Nanos::from_millis(3_500);
/// How often an owner says so.
const RENEWED_EVERY: Nanos = Nanos::from_secs(1);
/// The root server.
pub const ROOT: ServerId = ServerId(1);

/// What happens in the simulation.
#[derive(Clone, Debug)]
pub enum Event {
    /// A parcel arrives.
    Arrives(Parcel),
    /// A disk has brought to stable storage what this process had stored until now.
    Flushed(usize),
    /// A file system does the oldest work of this process.
    Works(usize),
    /// It reports it.
    Worked(usize, VolumeId, Result<(), i32>),
    /// A process is woken.
    Wakes(usize),
    /// A process says that it owns its directory.
    Renews(usize),
    /// A process has got a newer cluster file.
    Fetched(usize, u64),
    /// A client looks at what it is doing.
    Client(usize),
    /// A client sends an attempt once more.
    Repeats(usize, u64),
    /// The operator sets the policy.
    SetsPolicy,
    /// A process looks what there is to remove.
    Tidies(usize),
    /// A store has done something for a process.
    Served(usize, Input),
    /// A process hears that a writer of these objects is gone.
    WriterGone(usize, ObjectsId),
    /// A client of files looks at what it is doing.
    FileClient(usize),
    /// It sends an attempt once more.
    FileRepeats(usize, u64),
    /// Something breaks, or is put right.
    Fault(Fault),
}

/// The simulation.
pub struct World {
    /// The only source of chance.
    pub rng: Pcg64,
    /// True time.
    pub now: Nanos,
    /// What is wrong with this cluster.
    pub double: Double,
    /// Servers' directories.
    pub directories: BTreeMap<ServerId, Directory>,
    /// Those of servers that have an empty or an older one instead.
    pub kept: BTreeMap<ServerId, Directory>,
    /// Copies as somebody made them earlier.
    pub copies: BTreeMap<ServerId, Directory>,
    /// All processes that ever were.
    pub processes: Vec<Process>,
    /// The cluster files by epoch.
    pub views: BTreeMap<u64, View>,
    /// What connects them.
    pub network: Network,
    /// What it is like when nothing is wrong.
    pub fair: Network,
    /// Names that clients use.
    pub names: Name,
    /// What an operator did.
    pub policies: Policies,
    /// Files, and who uses those.
    pub files: Files,
    /// Who uses volumes.
    pub clients: Vec<Client>,
    /// What clients did.
    pub history: Vec<Operation<Asked, Got>>,
    /// Where each volume of all times was made.
    pub made: BTreeMap<VolumeKey, ServerId>,
    /// What must not be.
    pub violations: Vec<String>,
    /// What happened, if anybody wants to read it.
    pub trace: Option<Vec<String>>,
    /// Parcels wait for processes that are paused.
    pub waiting: BTreeMap<usize, Vec<Event>>,
    /// No client begins anything after this.
    pub clients_end: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64)>>,
    what: BTreeMap<u64, Event>,
    sequence: u64,
}

impl World {
    /// A world without anything in it.
    pub fn new(rng: Pcg64, double: Double, trace: bool) -> Self {
        Self {
            rng,
            now: Nanos::from_secs(1),
            double,
            directories: BTreeMap::new(),
            kept: BTreeMap::new(),
            copies: BTreeMap::new(),
            processes: Vec::new(),
            views: BTreeMap::new(),
            network: Network::default(),
            fair: Network::default(),
            names: NAMES,
            policies: Policies::default(),
            files: Files::default(),
            clients: Vec::new(),
            history: Vec::new(),
            made: BTreeMap::new(),
            violations: Vec::new(),
            trace: trace.then(Vec::new),
            waiting: BTreeMap::new(),
            clients_end: Nanos::MAX,
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// A line for whoever reads the trace.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.6} {}", self.now.as_secs_f64(), line()));
        }
    }

    /// Something must not be.
    pub fn violate(&mut self, what: String) {
        self.note(|| format!("VIOLATION: {what}"));
        self.violations.push(format!("at {:.6} s: {what}", self.now.as_secs_f64()));
    }

    /// `event` happens at `at`.
    pub fn at(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at.max(self.now), self.sequence)));
        self.what.insert(self.sequence, event);
    }

    /// A span between the two, each as likely as the other.
    pub fn between(&mut self, least: Nanos, most: Nanos) -> Nanos {
        Nanos(self.rng.random_range(least.0..=most.0))
    }

    /// Everything that happens until `end`.
    pub fn run_until(&mut self, end: Nanos) {
        while let Some(Reverse((at, sequence))) = self.events.peek().copied()
            && at <= end
            && self.violations.is_empty()
        {
            self.events.pop();
            self.now = at;
            if let Some(event) = self.what.remove(&sequence) {
                self.happens(event);
            }
        }
        self.now = end;
    }

    fn happens(&mut self, event: Event) {
        if let Some(process) = process_of(&event) {
            match self.processes[process].state {
                State::Dead => return,
                State::Paused => return self.waiting.entry(process).or_default().push(event),
                State::Running => {}
            }
        }
        match event {
            Event::Arrives(parcel) => self.arrives(parcel),
            Event::Flushed(process) => self.flushed(process),
            Event::Works(process) => self.works(process),
            Event::Worked(process, number, result) => self.give(process, Input::Worked { number, result }),
            Event::Wakes(process) => {
                if self.processes[process].wakes_at <= self.now {
                    self.give(process, Input::Time);
                }
            }
            Event::Renews(process) => self.renews(process),
            Event::Fetched(process, epoch) => {
                let server = self.processes[process].server;
                if let Some(directory) = self.directories.get_mut(&server) {
                    directory.epoch = directory.epoch.max(epoch);
                }
                let view = self.views[&epoch].clone();
                self.give(process, Input::View(view));
            }
            Event::Client(client) => self.client_looks(client),
            Event::Repeats(client, attempt) => self.client_repeats(client, attempt),
            Event::SetsPolicy => self.sets_policy(),
            Event::Tidies(process) => self.file_tidies(process),
            Event::Served(process, input) => self.give(process, input),
            Event::WriterGone(process, objects) => self.file_writer_gone(process, objects),
            Event::FileClient(client) => self.file_client(client),
            Event::FileRepeats(client, attempt) => self.file_repeats(client, attempt),
            Event::Fault(fault) => self.fault(fault),
        }
    }

    /// Starts a process of `server`, which takes over its directory.
    pub fn start(&mut self, server: ServerId) {
        let clock = self.between(Nanos::ZERO, Nanos::from_secs(100_000));
        let drift_ppm = self.rng.random_range(-200..=200);
        let Some(directory) = self.directories.get_mut(&server) else { return };
        let token = self.rng.random();
        let instance = directory.claim(token);
        directory.renewed = self.now;
        let (past, view) = (self.double.past_of(&directory.past), self.views[&directory.epoch].clone());
        let records = directory.all_records();
        let local = local_time(clock, drift_ppm, self.now);
        let mut effects = Vec::new();
        let started = Node::start((node::Process { server, instance }, past), view, records, local, &mut effects);
        let process = self.processes.len();
        self.note(|| format!("server {server} starts as instance {}, process {process}", instance.number));
        match started {
            Err(error) => self.violate(format!("server {server} cannot start: {error}")),
            Ok(node) => {
                self.processes.push(Process {
                    server,
                    token,
                    node,
                    state: State::Running,
                    pending: Default::default(),
                    works: Vec::new(),
                    requests: BTreeMap::new(),
                    file_requests: BTreeSet::new(),
                    next_request: 0,
                    wakes_at: Nanos::MAX,
                    started: self.now,
                    acknowledged: self.policies.acknowledged,
                    follows: 0,
                    clock,
                    drift_ppm,
                });
                self.do_effects(process, effects);
                self.at(self.now, Event::Renews(process));
                self.schedule(process);
                self.file_start(process);
            }
        }
    }

    /// The process that has the directory of `server`, if it is not dead.
    pub fn current(&self, server: ServerId) -> Option<usize> {
        let owner = |process: &&Process| process.server == server && process.state != State::Dead;
        let found = self.processes.iter().enumerate().rev().find(|(_, process)| owner(process));
        found.map(|(index, _)| index)
    }

    /// Whether this process has its server's directory.
    pub fn owns(&self, process: usize) -> bool {
        let Process { server, token, .. } = self.processes[process];
        self.double == Double::HasNoFence || self.directories[&server].token == token
    }

    /// A process ends: of what it was storing a beginning may be there, and of what its file system was doing anything.
    pub fn end(&mut self, process: usize) {
        self.note(|| format!("process {process} ends"));
        self.processes[process].state = State::Dead;
        self.waiting.remove(&process);
        self.tear(process);
    }

    /// What a process was doing when it lost its directory, or its life.
    pub fn tear(&mut self, process: usize) {
        let pending = std::mem::take(&mut self.processes[process].pending);
        let works = std::mem::take(&mut self.processes[process].works);
        let server = self.processes[process].server;
        if !self.owns(process) {
            return;
        }
        let survive = self.rng.random_range(0..=pending.len());
        for (_, changes) in pending.into_iter().take(survive) {
            if let Some(directory) = self.directories.get_mut(&server) {
                directory.store(&changes, self.double);
            }
        }
        for work in works {
            let is_here = !matches!(work, Work::Freeze { .. } | Work::Fetch { .. });
            if is_here && self.rng.random_bool(0.5) {
                _ = self.does(server, &work);
            }
        }
    }

    /// Gives `input` to a process that runs.
    pub fn give(&mut self, process: usize, mut input: Input) {
        let double = self.double;
        let at = self.now;
        let running = &mut self.processes[process];
        let now = running.local(at);
        let mut effects = Vec::new();
        running.node.handle(now, Input::Time, &mut effects);
        if !matches!(input, Input::Time) {
            let before = effects.len();
            let is_outdated = matches!(&input, Input::Message { envelope, .. }
                if envelope.epoch < running.node.epoch() && !envelope.is_refusal());
            double.hears(&running.node, &mut input);
            let text = self.trace.is_some().then(|| format!("{input:?}"));
            let running = &mut self.processes[process];
            running.node.handle(now, input, &mut effects);
            let says_so = |effect: &Effect| match effect {
                Effect::Send(envelope) => envelope.is_refusal(),
                effect => matches!(effect, Effect::Stop { .. }),
            };
            if is_outdated && !effects[before..].iter().all(says_so) {
                self.violate(format!("process {process} acted upon a message of an older epoch"));
            }
            if let Some(text) = text {
                let server = self.processes[process].server;
                self.note(|| format!("process {process} of server {server} gets {text}"));
            }
        }
        self.do_effects(process, effects);
        self.schedule(process);
    }

    fn schedule(&mut self, process: usize) {
        let running = &mut self.processes[process];
        let wakes_at = running.global(running.node.wake_at());
        if wakes_at != running.wakes_at {
            running.wakes_at = wakes_at;
            self.at(wakes_at, Event::Wakes(process));
        }
        let server = self.processes[process].server;
        let late = self.now.0.saturating_sub(Nanos::from_millis(1).0);
        let overdue = self.processes[process].requests.values().find(|(_, _, deadline)| deadline.0 < late);
        if let Some((client, attempt, _)) = overdue {
            let what = format!("server {server} has not answered attempt {attempt} of client {client} in time");
            self.violate(what);
        }
    }

    fn do_effects(&mut self, process: usize, effects: Vec<Effect>) {
        for effect in effects {
            if self.double.loses(&effect) {
                continue;
            }
            if self.trace.is_some() && !matches!(effect, Effect::Store { .. }) {
                self.note(|| format!("process {process} says {effect:?}"));
            }
            match effect {
                Effect::Store { id, changes } => {
                    let running = &mut self.processes[process];
                    running.pending.push_back((id, changes));
                    let takes = self.network.store_takes;
                    let takes = self.between(Nanos::from_micros(100), takes);
                    self.at(self.now + takes, Event::Flushed(process));
                    if self.double == Double::SpeaksBeforeStoring {
                        let now = self.processes[process].local(self.now);
                        let mut effects = Vec::new();
                        self.processes[process].node.handle(now, Input::Stored(id), &mut effects);
                        self.do_effects(process, effects);
                    }
                }
                Effect::Send(envelope) => self.send_message(envelope),
                Effect::Work(work) => {
                    self.processes[process].works.push(work);
                    let takes = self.between(Nanos::from_micros(100), Nanos::from_millis(20));
                    self.at(self.now + takes, Event::Works(process));
                }
                Effect::Answer { id, result } => {
                    let Some((client, attempt, _)) = self.processes[process].requests.remove(&id) else {
                        self.violate(format!("process {process} answers request {} twice", id.0));
                        continue;
                    };
                    if client == OPERATOR {
                        self.policy_is_set(attempt, result.is_ok());
                    } else if self.processes[process].file_requests.remove(&id) {
                        self.file_reply(process, (client, attempt), result);
                    } else {
                        self.reply(process, (client, attempt), result);
                    }
                }
                Effect::FollowPolicy(policy) => self.follows(process, &policy),
                Effect::CloseIntent { objects, what, .. } => self.file_closes(process, objects, what),
                Effect::Serve { from, order } => self.file_serves(process, from, order),
                Effect::LookWanted { asker, objects } => self.file_looks(process, asker, objects),
                Effect::RemoveUnwanted { objects } => self.file_removes(process, &objects),
                Effect::Counting(act) => self.file_counts(process, act),
                Effect::FetchView { epoch, from } => {
                    let server = self.processes[process].server;
                    if self.network.passes(from, server) && self.network.passes(server, from) {
                        let takes = self.between(Nanos::from_millis(1), Nanos::from_millis(50));
                        self.at(self.now + takes, Event::Fetched(process, epoch));
                    }
                }
                Effect::Stop { .. } => {
                    let Process { server, token, .. } = self.processes[process];
                    if let Some(directory) = self.directories.get_mut(&server).filter(|found| found.token == token) {
                        directory.is_refused = true;
                    }
                    self.processes[process].requests.clear();
                    self.end(process);
                    return;
                }
            }
        }
    }

    fn flushed(&mut self, process: usize) {
        if !self.owns(process) {
            self.processes[process].pending.clear();
            return;
        }
        let server = self.processes[process].server;
        let pending = std::mem::take(&mut self.processes[process].pending);
        let Some((last, _)) = pending.back() else { return };
        let last = *last;
        if let Some(directory) = self.directories.get_mut(&server) {
            for (_, changes) in &pending {
                directory.store(changes, self.double);
            }
        }
        self.check_names();
        self.give(process, Input::Stored(last));
    }

    fn works(&mut self, process: usize) {
        if self.processes[process].works.is_empty() {
            return;
        }
        let work = self.processes[process].works.remove(0);
        if let Work::Freeze { .. } | Work::Fetch { .. } = work {
            return self.moves(process, work);
        }
        if self.owns(process) {
            let result = self.does(self.processes[process].server, &work);
            let takes = self.between(Nanos::from_micros(10), Nanos::from_millis(5));
            self.at(self.now + takes, Event::Worked(process, work.key().number, result));
        }
    }

    /// The file system of `server` does `work`.
    fn does(&mut self, server: ServerId, work: &Work) -> Result<(), i32> {
        let Some(directory) = self.directories.get_mut(&server) else { return Err(crate::host::ENOSPC) };
        let is_new = matches!(work, Work::Make { key, .. } if !directory.volumes.contains_key(key));
        let result = directory.work(work);
        self.note(|| format!("server {server} has done {work:?}: {result:?}"));
        if let Work::Make { key, .. } = work
            && is_new
            && result.is_ok()
        {
            self.check_made(server, *key);
        }
        self.check_names();
        result
    }

    fn renews(&mut self, process: usize) {
        let Process { server, token, .. } = self.processes[process];
        if self.directories[&server].token == token {
            if let Some(directory) = self.directories.get_mut(&server) {
                directory.renewed = self.now;
            }
            let until = self.processes[process].local(self.now) + OWNED_FOR;
            let until = self.double.owned_until(until);
            self.give(process, Input::Owned { until });
            let load = Load::new(self.rng.random_range(0.0..1.0), self.rng.random_range(0.0..1.0));
            self.give(process, Input::Load(load));
            self.at(self.now + RENEWED_EVERY, Event::Renews(process));
        }
    }

    /// A request of a client has come to `process`.
    pub fn request(&mut self, process: usize, (client, attempt): (usize, u64), deadline: Nanos, request: Request) {
        self.check_policy(process);
        let running = &mut self.processes[process];
        running.next_request += 1;
        let id = isonomia_cluster::request::RequestId(running.next_request);
        running.requests.insert(id, (client, attempt, deadline.max(self.now)));
        let local = running.local(deadline);
        if self.double == Double::BelievesCopies
            && let Request::LookUp { name, .. } = &request
            && let Some(slot) = running.node.table().named(name)
            && let Some(volume) = slot.visible()
            && running.server != ROOT
        {
            let answer = Answer::Volume { key: slot.key, server: volume.server };
            return self.do_effects(process, vec![Effect::Answer { id, result: Ok(answer) }]);
        }
        self.give(process, Input::Request { id, deadline: local, request });
    }

    /// Whether a process may serve what is in its volumes.
    pub fn may_serve(&self, process: usize) -> Result<(), Refusal> {
        let running = &self.processes[process];
        running.node.may_serve(running.local(self.now))
    }

    /// All servers of the newest cluster file.
    pub fn servers(&self) -> BTreeSet<ServerId> {
        self.views.last_key_value().map(|(_, view)| view.servers.clone()).unwrap_or_default()
    }
}

/// The process that `event` happens to.
fn process_of(event: &Event) -> Option<usize> {
    match event {
        Event::Flushed(process)
        | Event::Works(process)
        | Event::Worked(process, ..)
        | Event::Wakes(process)
        | Event::Renews(process)
        | Event::Tidies(process)
        | Event::Served(process, _)
        | Event::WriterGone(process, _)
        | Event::Fetched(process, _) => Some(*process),
        Event::Arrives(parcel) => parcel.process(),
        Event::SetsPolicy
        | Event::Client(_)
        | Event::Repeats(..)
        | Event::FileClient(_)
        | Event::FileRepeats(..)
        | Event::Fault(_) => None,
    }
}
