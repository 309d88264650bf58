//! What must hold at every moment, and what when everything was put right.

use crate::host::{Directory, State};
use crate::world::{ROOT, World};
use isonomia_cluster::lineage::{Instance, Past};
use isonomia_cluster::node::{self, Node};
use isonomia_cluster::volumes::{Phase, Table, VolumeKey, VolumeName};
use isonomia_units::{Nanos, ServerId};
use std::collections::BTreeMap;

impl World {
    /// The directory that is really a server's, wherever that is now.
    fn own_directory(&self, server: ServerId) -> Option<&Directory> {
        self.kept.get(&server).or(self.directories.get(&server))
    }

    /// The table of volumes on stable storage.
    fn stored_table(&self) -> Option<Table> {
        let directory = self.own_directory(ROOT)?;
        let view = self.views.last_key_value()?.1.clone();
        let instance = Instance { number: u64::MAX, token: 0 };
        let begins = (node::Process { server: ROOT, instance }, Past::default());
        let node = Node::start(begins, view, directory.all_records(), Nanos::ZERO, &mut Vec::new()).ok()?;
        Some(node.table().clone())
    }

    /// No name points to nothing: what stable storage knows as a volume is there, on its server's stable storage.
    pub fn check_names(&mut self) {
        let Some(table) = self.stored_table() else { return };
        for slot in table.slots() {
            let Some(volume) = &slot.volume else { continue };
            let server = if let Phase::Arriving { from } = volume.phase { from } else { volume.server };
            let is_there =
                (self.own_directory(server)).is_some_and(|directory| directory.volumes.contains_key(&slot.key));
            if !is_there && !matches!(volume.phase, Phase::Creating | Phase::Removing { .. }) {
                let name = &volume.name;
                return self.violate(format!("{name} is volume {} of server {server}, which has none", slot.key));
            }
        }
    }

    /// A volume was made: no other one has its number, and it never was before.
    pub fn check_made(&mut self, server: ServerId, key: VolumeKey) {
        if self.kept.contains_key(&server) {
            // In an older copy, which goes on with what was begun then: nobody hears of that.
            return;
        }
        let has = |directory: &crate::host::Directory| {
            directory.volumes.keys().any(|other| other.number == key.number && *other != key)
        };
        if self.directories.values().any(has) {
            self.violate(format!("volume {key} is made at server {server} while another one has its number"));
        }
        if let Some(before) = self.made.insert(key, server) {
            self.violate(format!("volume {key} is made at server {server} and was made at server {before} before"));
        }
        if key.generation > 1 {
            self.violate(format!("volume {key} is made though other numbers were never used"));
        }
    }

    /// Everything has come to rest: all know the same, nothing is left to do, and what is there is what the table says.
    pub fn check_rest(&mut self) {
        let mut wrong = Vec::new();
        let Some(root) = self.current(ROOT) else { return self.violate("there is no root server".to_owned()) };
        let table = self.processes[root].node.table().clone();
        if self.stored_table().as_ref() != Some(&table) {
            wrong.push("the table on stable storage is another one".to_owned());
        }
        let newest = self.views.last_key_value().map_or(0, |(epoch, _)| *epoch);
        wrong.extend(table.slots().filter(|slot| slot.intent().is_some()).map(|slot| format!("left to do: {slot:?}")));
        for server in self.servers() {
            let Some(process) = self.current(server) else {
                wrong.push(format!("server {server} does not run"));
                continue;
            };
            let process = &self.processes[process];
            if process.state != State::Running || process.node.epoch() != newest {
                wrong.push(format!("server {server} is {:?} in epoch {}", process.state, process.node.epoch()));
            }
            if *process.node.table() != table {
                wrong.push(format!("server {server} has another copy: {:?}", process.node.table()));
            }
            let should: BTreeMap<VolumeKey, VolumeName> = (table.slots())
                .filter_map(|slot| Some((slot.key, slot.volume.as_ref()?)))
                .filter(|(_, volume)| volume.server == server)
                .map(|(key, volume)| (key, volume.name.clone()))
                .collect();
            let says: BTreeMap<VolumeKey, VolumeName> =
                process.node.hosted().there().map(|host| (host.key, host.name.clone())).collect();
            if says != should {
                wrong.push(format!("server {server} should have {should:?} and says {says:?}"));
            }
            if !self.directories[&server].volumes.keys().eq(should.keys()) {
                let has = &self.directories[&server].volumes;
                wrong.push(format!("server {server} should have {should:?} and has {has:?}"));
            }
            if let Some(key) = self.directories[&server].incoming.keys().next() {
                wrong.push(format!("server {server} has a part of {key} that nobody wants"));
            }
        }
        for what in wrong {
            self.violate(what);
        }
    }
}
