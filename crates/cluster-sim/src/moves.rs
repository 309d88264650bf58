//! What simulated servers do with volumes that move: freeze them, and fetch them piece by piece from one another.

use crate::doubles::Double;
use crate::host::{ENOSPC, State};
use crate::world::{Event, World};
use isonomia_cluster::request::Refusal;
use isonomia_cluster::volumes::hosted::Work;
use isonomia_cluster::volumes::{Version, VolumeKey};
use isonomia_units::{Nanos, ServerId};
use rand::RngExt;

/// errno of a volume that is in use.
const EBUSY: i32 = 16;
/// errno of what nobody wants any more.
const ECANCELED: i32 = 125;

impl World {
    /// A process goes on with a volume that moves.
    pub fn moves(&mut self, process: usize, work: Work) {
        if !self.owns(process) {
            return;
        }
        match work {
            Work::Freeze { key } => {
                let result = if self.rng.random_bool(0.1) { Err(EBUSY) } else { Ok(()) };
                self.has_moved(process, key, result);
            }
            Work::Fetch { key, .. } if self.double == Double::HasNothingFetched => self.has_moved(process, key, Ok(())),
            Work::Fetch { key, from, instruction } => match self.fetches(process, key, from, instruction) {
                Some(result) => self.has_moved(process, key, result),
                None => {
                    self.processes[process].works.push(work);
                    let after = self.between(Nanos::from_millis(1), Nanos::from_millis(1_500));
                    self.at(self.now + after, Event::Works(process));
                }
            },
            _ => {}
        }
    }

    fn has_moved(&mut self, process: usize, key: VolumeKey, result: Result<(), i32>) {
        let server = self.processes[process].server;
        self.note(|| format!("server {server} has done its part of moving {key}: {result:?}"));
        let after = self.between(Nanos::from_micros(10), Nanos::from_millis(5));
        self.at(self.now + after, Event::Worked(process, key.number, result));
    }

    /// Fetches a piece; what came of it all, if that was the last.
    fn fetches(
        &mut self,
        process: usize,
        key: VolumeKey,
        from: ServerId,
        instruction: Version,
    ) -> Option<Result<(), i32>> {
        let running = &self.processes[process];
        let server = running.server;
        let is_wanted = running.node.table().slot(key.number).is_some_and(|slot| slot.changed == instruction);
        let is_full = self.directories[&server].is_full;
        if !is_wanted || is_full {
            // What is here of it already, or still, stays until it is to be dropped.
            return Some(Err(if is_wanted { ENOSPC } else { ECANCELED }));
        }
        let source = self.current(from).filter(|source| self.processes[*source].state == State::Running)?;
        if !self.network.passes(from, server) || !self.network.passes(server, from) {
            return None;
        }
        // It gives nothing of what it serves.
        if self.double != Double::WritesWhatMoves && self.processes[source].node.serves(key) != Err(Refusal::Busy) {
            return None;
        }
        let files = self.directories[&from].volumes.get(&key)?.clone();
        let directory = self.directories.get_mut(&server)?;
        match directory.incoming.remove(&key) {
            Some((wanted, fetched)) if wanted == instruction => {
                directory.volumes.insert(key, fetched);
                Some(Ok(()))
            }
            _ => {
                // What lies here is of another time.
                directory.volumes.remove(&key);
                directory.incoming.insert(key, (instruction, files));
                None
            }
        }
    }
}
