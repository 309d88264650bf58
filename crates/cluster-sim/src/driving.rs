//! What simulated clients and the part of a server that talks to them do.

use crate::client::{AGAIN_AFTER, Current, PATIENCE, REFERRALS_MAX, Reply, may_repeat, volume_name};
use crate::doubles::Double;
use crate::host::{ENOTEMPTY, State};
use crate::linear::Operation;
use crate::model::{Asked, Got};
use crate::network::Parcel;
use crate::world::{Event, ROOT, World};
use isonomia_cluster::hash;
use isonomia_cluster::request::{Answer, Refusal, Request};
use isonomia_cluster::volumes::{Attributes, VolumeKey};
use isonomia_units::{Nanos, ServerId};
use rand::RngExt;

impl World {
    /// A client begins something, or gives up what it is doing.
    pub fn client_looks(&mut self, client: usize) {
        if let Some(current) = &self.clients[client].current {
            if current.deadline <= self.now {
                self.note(|| format!("client {client} gives up"));
                self.finish(client, None);
            }
            return;
        }
        if self.clients[client].left == 0 || self.now >= self.clients_end {
            return;
        }
        self.clients[client].left -= 1;
        let asked = self.clients[client].choose(self.names, &mut self.rng);
        let server = match &asked {
            Asked::Put(volume, _) | Asked::Delete(volume, _) => self.clients[client].seen.get(volume).copied(),
            _ => None,
        };
        let server = server.unwrap_or_else(|| self.any_server());
        self.begin(client, asked, server);
    }

    /// A client begins `asked` at `server`.
    pub fn begin(&mut self, client: usize, asked: Asked, server: ServerId) {
        self.note(|| format!("client {client} begins {asked:?} at server {server}"));
        let index = self.history.len();
        self.history.push(Operation { called: self.now, returned: None, asked: asked.clone() });
        let deadline = self.now + PATIENCE;
        self.clients[client].current = Some(Current { index, asked, deadline, attempt: 0, server, referrals: 0 });
        self.at(deadline, Event::Client(client));
        self.attempt(client, false);
    }

    fn any_server(&mut self) -> ServerId {
        if self.rng.random_bool(0.5) {
            return ROOT;
        }
        let servers: Vec<ServerId> = self.servers().into_iter().collect();
        servers[self.rng.random_range(0..servers.len())]
    }

    fn attempt(&mut self, client: usize, referred: bool) {
        self.clients[client].attempts += 1;
        let attempt = self.clients[client].attempts;
        let Some(current) = &mut self.clients[client].current else { return };
        current.attempt = attempt;
        let Current { asked, deadline, server, .. } = current.clone();
        if may_repeat(&asked) {
            self.at(self.now + AGAIN_AFTER, Event::Repeats(client, attempt));
        }
        if self.network.unreachable.contains(&server) {
            return;
        }
        if let Some(process) = self.reached(server) {
            let after = self.travels();
            let parcel = Parcel::Request { process, client, attempt, deadline, asked, referred };
            self.at(self.now + after, Event::Arrives(parcel));
        }
    }

    /// A client has waited for an answer and asks again, if it may and there was none.
    pub fn client_repeats(&mut self, client: usize, attempt: u64) {
        let server = self.any_server();
        if let Some(current) = &mut self.clients[client].current
            && current.attempt == attempt
        {
            if may_repeat(&current.asked) {
                current.server = server;
            }
            current.referrals = 0;
            self.attempt(client, false);
        }
    }

    /// A server's process has a request of a client.
    pub fn asked(
        &mut self,
        process: usize,
        (client, attempt): (usize, u64),
        deadline: Nanos,
        asked: Asked,
        referred: bool,
    ) {
        let request = match asked {
            Asked::Make(name) => {
                let servers: Vec<ServerId> = self.servers().into_iter().collect();
                let any = servers[self.rng.random_range(0..servers.len())];
                let (running, letter) = (&self.processes[process], [b'a' + name]);
                let local = running.local(self.now);
                let weights = servers.iter().map(|server| (*server, running.node.loads().factor(*server, local)));
                let by_load = hash::choose(&letter, weights).filter(|_| self.rng.random_bool(0.5));
                let server = by_load.unwrap_or(any);
                Request::Make { name: volume_name(name), server, attributes: Attributes::new(0o755, 1, 1) }
            }
            Asked::Remove(name) => Request::Remove { name: volume_name(name), found: None },
            Asked::Rename(from, to, how) => {
                Request::Rename { from: volume_name(from), found: None, to: volume_name(to), how }
            }
            Asked::Move(name) => {
                let servers: Vec<ServerId> = self.servers().into_iter().collect();
                let to = servers[self.rng.random_range(0..servers.len())];
                Request::Move { name: volume_name(name), found: None, to }
            }
            Asked::LookUp(name) => Request::LookUp { name: volume_name(name), referred },
            Asked::WhereIs(volume) => Request::WhereIs { number: volume.number, referred },
            Asked::Put(volume, file) | Asked::Delete(volume, file) => {
                let may = self.may_serve(process).and_then(|()| self.serves(process, volume));
                let running = &self.processes[process];
                let directory = self.directories.get_mut(&running.server);
                let files = directory.filter(|directory| directory.token == running.token);
                let reply = match (may, files.and_then(|directory| directory.volumes.get_mut(&volume))) {
                    (Err(Refusal::NotFound), _) | (Ok(()), None) => Reply::Got(Got::NotFound),
                    (Err(refusal), _) => Reply::Refused(refusal),
                    (Ok(()), Some(files)) => {
                        if matches!(asked, Asked::Put(..)) {
                            files.insert(file);
                        } else {
                            files.remove(&file);
                        }
                        Reply::Got(Got::Done)
                    }
                };
                return self.say(process, (client, attempt), reply);
            }
        };
        self.request(process, (client, attempt), deadline, request);
    }

    /// Whether a process serves what is in this volume.
    fn serves(&self, process: usize, volume: VolumeKey) -> Result<(), Refusal> {
        let running = &self.processes[process];
        if self.double == Double::WritesWhatMoves && self.directories[&running.server].volumes.contains_key(&volume) {
            return Ok(());
        }
        running.node.serves(volume)
    }

    /// A node has answered a client's request.
    pub fn reply(&mut self, process: usize, to: (usize, u64), result: Result<Answer, Refusal>) {
        let reply = match result {
            Ok(Answer::Volume { key, server }) => Reply::Volume(key, server),
            Ok(Answer::Done | Answer::Listed(_) | Answer::PolicySet { .. }) => Reply::Got(Got::Done),
            Err(Refusal::NotFound) => Reply::Got(Got::NotFound),
            Err(Refusal::Exists) => Reply::Got(Got::Exists),
            Err(Refusal::FileSystem(ENOTEMPTY)) => Reply::Got(Got::NotEmpty),
            Err(Refusal::FileSystem(_)) => Reply::Got(Got::Failed),
            Err(refusal) => Reply::Refused(refusal),
        };
        self.say(process, to, reply);
    }

    fn say(&mut self, process: usize, (client, attempt): (usize, u64), reply: Reply) {
        self.send_back(process, Parcel::Reply { client, attempt, reply });
    }

    /// Sends a client its answer, if the process that answers still runs and is not cut off.
    pub(crate) fn send_back(&mut self, process: usize, parcel: Parcel) {
        let server = self.processes[process].server;
        if self.processes[process].state == State::Running && !self.network.unreachable.contains(&server) {
            let after = self.travels();
            self.at(self.now + after, Event::Arrives(parcel));
        }
    }

    /// A client has an answer.
    pub fn client_hears(&mut self, client: usize, attempt: u64, reply: Reply) {
        let Some(current) = &mut self.clients[client].current else { return };
        if current.attempt != attempt {
            return;
        }
        let got = match (reply, current.asked.clone()) {
            (Reply::Refused(Refusal::Refer(server)), _) => {
                current.server = server;
                current.referrals += 1;
                if current.referrals > REFERRALS_MAX {
                    return self.violate(format!("client {client} is sent about without end"));
                }
                return self.attempt(client, true);
            }
            (Reply::Refused(Refusal::TimedOut), _) => None,
            (Reply::Refused(_), _) => {
                let again = self.now + Nanos::from_millis(50);
                return self.at(again, Event::Repeats(client, attempt));
            }
            (Reply::Volume(key, _), Asked::WhereIs(asked)) if key != asked => Some(Got::NotFound),
            (Reply::Volume(key, server), _) => {
                self.clients[client].seen.insert(key, server);
                Some(Got::Volume(key))
            }
            (Reply::Got(got), _) => Some(got),
        };
        self.finish(client, got);
    }

    fn finish(&mut self, client: usize, got: Option<Got>) {
        let Some(current) = self.clients[client].current.take() else { return };
        self.note(|| format!("client {client} has {got:?} for {:?}", current.asked));
        self.history[current.index].returned = got.map(|got| (self.now, got));
        let pause = self.between(Nanos::from_millis(1), Nanos::from_millis(900));
        self.at(self.now + pause, Event::Client(client));
    }
}
