//! What stores do with simulated files: cuts, removals, and what a stop leaves.

use crate::doubles::Double;
use crate::file_model::Block;
use crate::files::Record;
use crate::host::State;
use crate::world::{Event, ROOT, World};
use isonomia_cluster::counting::{Act, Places, Report, Wanted};
use isonomia_cluster::node::Input;
use isonomia_cluster::objects::{ObjectsId, Order, What};
use isonomia_units::{Nanos, ServerId, TargetId};
use rand::RngExt;
use std::collections::BTreeSet;

/// How often a server's driver looks for what is to be removed.
const TIDIED_EVERY: Nanos = Nanos::from_secs(2);

impl World {
    /// A process that starts hears from its store what is still to be done.
    pub fn file_start(&mut self, process: usize) {
        let server = self.processes[process].server;
        if let Some(directory) = self.directories.get_mut(&server) {
            let files = directory.names.files.values_mut();
            files.for_each(|record| (record.shortened, record.cuts_before) = (record.cuts, record.cuts));
        }
        if self.double != Double::ForgetsIntents {
            let files: Vec<ObjectsId> =
                self.directories[&server].names.files.values().map(|record| record.objects).collect();
            files.into_iter().for_each(|objects| self.file_writer_gone(process, objects));
        }
        self.at(self.now + TIDIED_EVERY, Event::Tidies(process));
    }

    /// There may be something behind the end of a file that nobody will tell of: it is cut to the size that it has.
    pub fn file_writer_gone(&mut self, process: usize, objects: ObjectsId) {
        let (server, token) = (self.processes[process].server, self.processes[process].token);
        let directory = self.directories.get_mut(&server).filter(|directory| directory.token == token);
        let files = directory.into_iter().flat_map(|directory| directory.names.files.values_mut());
        let mut found = files.filter(|record| record.objects == objects);
        let Some(record) = found.next() else { return };
        record.begin_cut(record.size);
        let Record { cuts: number, size, .. } = *record;
        let intent = self.intent(objects, What::Cut { number }, size);
        self.give(process, Input::Intent { intent, request: None });
    }

    /// The host of a server loses power: what was not synced is there or not, block by block.
    pub fn file_lose_power(&mut self, server: ServerId) {
        self.note(|| format!("server {server} loses power"));
        self.files.power_losses.push(self.now);
        let rng = &mut self.rng;
        let directory = self.directories.get_mut(&server);
        for object in directory.into_iter().flat_map(|directory| directory.objects.objects.values_mut()) {
            let changed: Vec<Block> = object.blocks.keys().chain(object.synced.keys()).copied().collect();
            for block in changed {
                if rng.random_bool(0.5) {
                    match object.synced.get(&block) {
                        Some(value) => _ = object.blocks.insert(block, *value),
                        None => _ = object.blocks.remove(&block),
                    }
                }
            }
            object.synced = object.blocks.clone();
        }
    }

    /// A process looks for what is to be removed.
    pub fn file_tidies(&mut self, process: usize) {
        let server = self.processes[process].server;
        let directory = &self.directories[&server];
        let found: BTreeSet<ObjectsId> = directory.objects.objects.keys().map(|(objects, _)| *objects).collect();
        let orphans: Vec<ObjectsId> = directory.names.orphans.iter().copied().collect();
        for objects in orphans {
            let intent = self.intent(objects, What::Remove { until_secs: 0 }, 0);
            self.give(process, Input::Intent { intent, request: None });
        }
        let files = self.directories[&server].names.files.values();
        let wanted = files.map(|record| {
            let places = self.files.layout.iter().enumerate();
            let places = places.map(|(index, server)| (*server, vec![(index as u32, TargetId(0))]));
            Wanted { objects: record.objects, places: places.collect() }
        });
        let files: Vec<Wanted> = wanted.collect();
        // A count is right when nobody writes any more, which is when it is looked at.
        if !files.is_empty() && self.now >= self.clients_end {
            self.give(process, Input::Counting(Report::Want { round: self.now.0, files }));
        }
        if self.processes[process].state == State::Running {
            self.give(process, Input::AskWanted { objects: found.into_iter().collect() });
            self.at(self.now + TIDIED_EVERY, Event::Tidies(process));
        }
    }

    /// A store does what a volume server wants.
    pub fn file_serves(&mut self, process: usize, from: ServerId, order: Order) {
        let (server, token) = (self.processes[process].server, self.processes[process].token);
        let double = self.double;
        let Some(directory) = self.directories.get_mut(&server).filter(|directory| directory.token == token) else {
            return;
        };
        let Order { objects, what, parts } = order;
        let store = &mut directory.objects;
        let mut highest = 0;
        for part in parts {
            match what {
                What::Cut { number } if !store.removed.contains(&objects) => {
                    let object = store.objects.entry((objects, part.index)).or_default();
                    if number > object.cuts || double == Double::CutsTwice {
                        object.blocks.retain(|block, _| u64::from(*block) < part.size_bytes);
                        object.synced.retain(|block, _| u64::from(*block) < part.size_bytes);
                        object.cuts = object.cuts.max(number);
                    }
                    highest = highest.max(object.cuts);
                }
                What::Cut { number } => highest = highest.max(number),
                What::Remove { .. } => {
                    store.objects.remove(&(objects, part.index));
                    store.removed.insert(objects);
                }
            }
        }
        let takes = self.between(Nanos::from_micros(100), Nanos::from_millis(20));
        self.at(self.now + takes, Event::Served(process, Input::Served { from, objects, what, result: Ok(highest) }));
    }

    /// A store closes an intent.
    pub fn file_closes(&mut self, process: usize, objects: ObjectsId, what: What) {
        let (server, token) = (self.processes[process].server, self.processes[process].token);
        let Some(directory) = self.directories.get_mut(&server).filter(|directory| directory.token == token) else {
            return;
        };
        match what {
            What::Cut { number } => {
                let of = directory.names.files.values_mut().find(|record| record.objects == objects);
                if let Some(record) = of.filter(|record| record.cuts == number) {
                    record.is_cutting = false;
                }
            }
            What::Remove { .. } => _ = directory.names.orphans.remove(&objects),
        }
        self.at(self.now + Nanos::from_micros(100), Event::Served(process, Input::IntentClosed { objects, what }));
    }

    /// A store looks which of these objects belong to no file.
    pub fn file_looks(&mut self, process: usize, asker: ServerId, mut objects: Vec<ObjectsId>) {
        let names = &self.directories[&self.processes[process].server].names;
        objects.retain(|id| !names.files.values().any(|record| record.objects == *id));
        let takes = self.between(Nanos::from_micros(100), Nanos::from_millis(20));
        self.at(self.now + takes, Event::Served(process, Input::NotWanted { asker, objects }));
    }

    /// A store removes objects that nobody wants.
    pub fn file_removes(&mut self, process: usize, unwanted: &[ObjectsId]) {
        let (server, token) = (self.processes[process].server, self.processes[process].token);
        if let Some(directory) = self.directories.get_mut(&server).filter(|directory| directory.token == token) {
            directory.objects.objects.retain(|(objects, _), _| !unwanted.contains(objects));
            directory.objects.removed.extend(unwanted);
        }
    }

    /// A store counts blocks, or keeps what was counted.
    pub fn file_counts(&mut self, process: usize, act: Act) {
        let (server, token) = (self.processes[process].server, self.processes[process].token);
        let Some(directory) = self.directories.get_mut(&server).filter(|directory| directory.token == token) else {
            return;
        };
        match act {
            Act::Count { asker, ask, files } => {
                let objects = &directory.objects.objects;
                let blocks_of = |file: &Places| {
                    let found = file.places.iter().filter_map(|(index, _)| objects.get(&(file.objects, *index)));
                    (file.objects, found.map(|object| object.blocks.len() as u64).sum())
                };
                let counted = files.iter().map(blocks_of).collect();
                let takes = self.between(Nanos::from_micros(100), Nanos::from_millis(20));
                let told = Report::Counted { asker, ask, counted };
                self.at(self.now + takes, Event::Served(process, Input::Counting(told)));
            }
            Act::Keep { counted, .. } => directory.names.counted.extend(counted),
        }
    }

    /// Nothing is left to do, files have the blocks that were counted, and there are objects of files only.
    pub fn check_files_rest(&mut self) {
        let names = &self.directories[&ROOT].names;
        let live: BTreeSet<ObjectsId> = names.files.values().map(|record| record.objects).collect();
        let mut wrong = Vec::new();
        wrong.extend(
            names.files.iter().filter(|(_, file)| file.is_cutting).map(|file| format!("still cutting: {file:?}")),
        );
        wrong.extend(names.orphans.iter().map(|objects| format!("still to be removed: {objects:?}")));
        for record in names.files.values() {
            let objects = self.directories.values().flat_map(|directory| &directory.objects.objects);
            let own = objects.filter(|((objects, _), _)| *objects == record.objects);
            let blocks: usize = own.map(|(_, object)| object.blocks.len()).sum();
            if names.counted.get(&record.objects) != Some(&(blocks as u64)) {
                wrong
                    .push(format!("{record:?} has {blocks} blocks, counted: {:?}", names.counted.get(&record.objects)));
            }
        }
        for (server, directory) in &self.directories {
            let lost = directory.objects.objects.keys().filter(|(objects, _)| !live.contains(objects));
            wrong.extend(lost.map(|object| format!("server {server} has {object:?} of no file")));
        }
        for what in wrong {
            self.violate(what);
        }
    }
}
