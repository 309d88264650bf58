//! What breaks, when, and how it is put right.

use crate::host::{Directory, State};
use crate::network::Network;
use crate::world::{Event, ROOT, TAKE_OVER_AFTER, World};
use isonomia_cluster::node::{Input, View};
use isonomia_units::{Nanos, ServerId};
use rand::RngExt;

/// Something that breaks, or is put right.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A server's process is killed.
    Crash(ServerId),
    /// All are.
    CrashAll,
    /// A server is started, if no process of it is there.
    Restart(ServerId),
    /// A server's process stops for a while.
    Pause(ServerId),
    /// Another process takes over the directory of a server whose process has not said anything for long enough.
    TakeOver(ServerId),
    /// All processes that are paused go on.
    Wake,
    /// Nothing passes from the one to the other.
    Block(ServerId, ServerId),
    /// Clients do not reach a server.
    Hide(ServerId),
    /// Messages are lost, repeated, and delayed: so many of a hundred each.
    Storm(u32, u32, u32),
    /// Storing takes long.
    SlowDisks,
    /// A file system is full, or no longer.
    Full(ServerId, bool),
    /// The operator writes a newer cluster file, perhaps with one server more, and gives it to one server.
    NewEpoch,
    /// Somebody copies a server's directory.
    Copy(ServerId),
    /// A server is started on an empty directory, or on an older copy.
    Misplace(ServerId, bool),
    /// It has its own again.
    PutBack(ServerId),
    /// The network and the disks are well again.
    Calm,
}

/// How many faults there are, beside what follows from them.
const FAULTS_MAX: u32 = 10;

impl World {
    /// Decides what will break between now and `end`.
    pub fn plan(&mut self, end: Nanos) {
        if self.rng.random_bool(0.15) {
            return self.plan_misplaced(end);
        }
        if self.rng.random_bool(0.4) {
            let mut part = || self.rng.random_range(0..=40);
            self.fair = Network { lost: part() / 4, doubled: part(), delayed: part(), ..Network::default() };
            self.network = self.fair.clone();
        }
        let servers: Vec<ServerId> = self.servers().into_iter().collect();
        for _ in 0..self.rng.random_range(0..=FAULTS_MAX) {
            let at = self.between(self.now, end);
            let for_long = self.between(Nanos::from_millis(10), Nanos::from_secs(6));
            let mut any =
                || if self.rng.random_bool(0.4) { ROOT } else { servers[self.rng.random_range(0..servers.len())] };
            let (one, other) = (any(), any());
            let fault = match self.rng.random_range(0..100) {
                0..20 => {
                    self.at(at + for_long, Event::Fault(Fault::Restart(one)));
                    Fault::Crash(one)
                }
                20..25 => Fault::CrashAll,
                25..45 => {
                    let after = TAKE_OVER_AFTER + Nanos::from_secs(1);
                    self.at(at + after, Event::Fault(Fault::TakeOver(one)));
                    self.at(at + after + for_long, Event::Fault(Fault::Wake));
                    Fault::Pause(one)
                }
                45..60 => {
                    self.at(at + for_long, Event::Fault(Fault::Calm));
                    Fault::Block(one, other)
                }
                60..65 => {
                    self.at(at + for_long, Event::Fault(Fault::Calm));
                    Fault::Hide(one)
                }
                65..80 => {
                    self.at(at + for_long, Event::Fault(Fault::Calm));
                    let mut part = |most| self.rng.random_range(0..=most);
                    Fault::Storm(part(40), part(60), part(60))
                }
                80..85 => {
                    self.at(at + for_long, Event::Fault(Fault::Calm));
                    Fault::SlowDisks
                }
                85..90 => {
                    self.at(at + for_long, Event::Fault(Fault::Full(one, false)));
                    Fault::Full(one, true)
                }
                _ => Fault::NewEpoch,
            };
            if let Fault::CrashAll = fault {
                for server in &servers {
                    let after = self.between(Nanos::from_millis(10), Nanos::from_secs(3));
                    self.at(at + after, Event::Fault(Fault::Restart(*server)));
                }
            }
            self.at(at, Event::Fault(fault));
        }
    }

    /// Decides when servers are started on the wrong directory. Nothing else breaks then: an older copy is noticed by those
    /// who know of a later process, and if they cannot be reached, by nobody.
    fn plan_misplaced(&mut self, end: Nanos) {
        let servers: Vec<ServerId> = self.servers().into_iter().collect();
        for _ in 0..self.rng.random_range(1..=4) {
            let server = servers[self.rng.random_range(0..servers.len())];
            let mut at = self.between(self.now, end);
            let is_older = self.rng.random_bool(0.6);
            let mut then = |world: &mut Self, least, most, fault| {
                at += world.between(Nanos::from_millis(least), Nanos::from_millis(most));
                world.at(at, Event::Fault(fault));
            };
            if is_older {
                then(self, 0, 1, Fault::Copy(server));
            }
            for _ in 0..self.rng.random_range(1..=2) {
                then(self, 0, 2_000, Fault::Crash(server));
                then(self, 10, 500, Fault::Restart(server));
            }
            then(self, 0, 4_000, Fault::Misplace(server, is_older));
            // As often as something starts it again that sees it end.
            for _ in 0..self.rng.random_range(0..=5) {
                then(self, 10, 500, Fault::Restart(server));
            }
            then(self, 0, 2_000, Fault::PutBack(server));
        }
    }

    /// Breaks something, or puts it right.
    pub fn fault(&mut self, fault: Fault) {
        self.note(|| format!("--- {fault:?}"));
        match fault {
            Fault::Crash(server) => self.crash(server),
            Fault::CrashAll => {
                for server in self.servers() {
                    self.crash(server);
                }
            }
            Fault::Restart(server) => {
                if self.current(server).is_none() {
                    self.start(server);
                }
            }
            Fault::Pause(server) => {
                if let Some(process) = self.current(server)
                    && self.processes[process].state == State::Running
                {
                    self.processes[process].state = State::Paused;
                }
            }
            Fault::TakeOver(server) => self.take_over(server),
            Fault::Wake => self.wake_all(),
            Fault::Block(from, to) => _ = self.network.blocked.insert((from, to)),
            Fault::Hide(server) => _ = self.network.unreachable.insert(server),
            Fault::Storm(lost, doubled, delayed) => {
                (self.network.lost, self.network.doubled, self.network.delayed) = (lost, doubled, delayed);
            }
            Fault::SlowDisks => self.network.store_takes = Nanos::from_millis(1_500),
            Fault::Full(server, is_full) => {
                if let Some(directory) = self.directories.get_mut(&server) {
                    directory.is_full = is_full;
                }
            }
            Fault::NewEpoch => self.new_epoch(),
            Fault::Copy(server) => {
                if !self.kept.contains_key(&server) {
                    self.copies.insert(server, self.directories[&server].clone());
                }
            }
            Fault::Misplace(server, is_older) => self.misplace(server, is_older),
            Fault::PutBack(server) => self.put_back(server),
            Fault::Calm => self.network = self.fair.clone(),
        }
    }

    /// Everything is put right.
    pub fn heal(&mut self) {
        self.note(|| "--- everything is put right".to_owned());
        self.fair = Network::default();
        self.network = Network::default();
        self.wake_all();
        for server in self.servers() {
            self.put_back(server);
            if let Some(directory) = self.directories.get_mut(&server) {
                directory.is_full = false;
            }
            if self.current(server).is_none() {
                self.start(server);
            }
        }
        self.give_newest(ROOT);
    }

    fn crash(&mut self, server: ServerId) {
        for process in 0..self.processes.len() {
            if self.processes[process].server == server && self.processes[process].state != State::Dead {
                self.end(process);
            }
        }
        if self.files.loses_power && self.rng.random_bool(0.5) {
            self.file_lose_power(server);
        }
    }

    /// If those whose word counts know the process that the directory lacks.
    fn misplace(&mut self, server: ServerId, is_older: bool) {
        let own = &self.directories[&server];
        let asked: Vec<ServerId> =
            self.servers().into_iter().filter(|other| *other != server && (server == ROOT || *other == ROOT)).collect();
        let knows = |other: &ServerId| {
            let process = self.current(*other);
            process.and_then(|process| self.processes[process].node.known_instance(server)).map(|known| known.token)
        };
        let are_known = !asked.is_empty() && asked.iter().all(|other| knows(other) == Some(own.token));
        let empty = Directory { epoch: own.epoch, ..Directory::default() };
        let Some(wrong) = (if is_older { self.copies.get(&server).cloned() } else { Some(empty) }) else { return };
        if !are_known || wrong.token == own.token || !self.kept.is_empty() || self.now >= self.clients_end {
            return;
        }
        self.crash(server);
        if let Some(own) = self.directories.insert(server, wrong) {
            self.kept.insert(server, own);
        }
        self.start(server);
    }

    fn put_back(&mut self, server: ServerId) {
        if let Some(own) = self.kept.remove(&server) {
            self.crash(server);
            self.directories.insert(server, own);
            self.start(server);
        }
    }

    fn take_over(&mut self, server: ServerId) {
        let Some(directory) = self.directories.get(&server) else { return };
        if self.now < directory.renewed + TAKE_OVER_AFTER {
            return;
        }
        if let Some(process) = self.current(server) {
            self.tear(process);
            self.start(server);
        }
    }

    fn wake_all(&mut self) {
        for process in 0..self.processes.len() {
            if self.processes[process].state == State::Paused {
                self.note(|| format!("process {process} goes on"));
                self.processes[process].state = State::Running;
                for event in self.waiting.remove(&process).unwrap_or_default() {
                    self.at(self.now, event);
                }
                // Whatever it was late with, the requests that it has may be answered late now.
                for (_, _, deadline) in self.processes[process].requests.values_mut() {
                    *deadline = (*deadline).max(self.now);
                }
                self.at(self.now, Event::Wakes(process));
            }
        }
    }

    fn new_epoch(&mut self) {
        let Some((epoch, view)) = self.views.last_key_value() else { return };
        let (epoch, mut servers) = (epoch + 1, view.servers.clone());
        if self.rng.random_bool(0.3)
            && let Some(last) = servers.last().copied()
        {
            let server = ServerId(last.0 + 1);
            servers.insert(server);
            self.directories.insert(server, crate::host::Directory { epoch, ..Default::default() });
        }
        let known: Vec<ServerId> = self.servers().into_iter().collect();
        let given = known[self.rng.random_range(0..known.len())];
        self.views.insert(epoch, View { epoch, root: ROOT, servers: servers.clone() });
        for server in servers.into_iter().filter(|server| !known.contains(server)) {
            self.start(server);
        }
        self.give_newest(given);
    }

    fn give_newest(&mut self, server: ServerId) {
        let Some((epoch, view)) = self.views.last_key_value().map(|(epoch, view)| (*epoch, view.clone())) else {
            return;
        };
        if let Some(directory) = self.directories.get_mut(&server) {
            directory.epoch = epoch;
        }
        if let Some(process) = self.current(server)
            && self.processes[process].state == State::Running
        {
            self.give(process, Input::View(view));
        }
    }
}
