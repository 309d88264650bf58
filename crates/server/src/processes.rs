//! Client processes: what their connections have in common, and what goes with them.

use crate::clock;
use crate::connection::{ClientProcess, Connection};
use crate::core::Core;
use crate::departed::References;
use crate::locks::Owner;
use crate::mapping;
use isonomia_store::StoreError;
use isonomia_units::{Ino, Nanos};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

impl Core {
    /// The client process of this key, with one more connection.
    pub fn join_process(&self, key: (u32, u64)) -> Arc<ClientProcess> {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let process = processes.entry(key).or_insert_with(|| Arc::new(ClientProcess::new()));
        process.connections.fetch_add(1, Ordering::Relaxed);
        process.clone()
    }

    /// One connection of the process less; with the last, the process gives up what it holds.
    pub fn leave_process(&self, key: (u32, u64)) {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(process) = processes.get(&key).cloned() else { return };
        if process.connections.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        let held = process.release_all();
        processes.remove(&key);
        drop(processes);
        let (uid, client) = key;
        self.locks.release_owners(
            |owner| matches!(owner, Owner::Process { uid: u, client: c, .. } if (u, c) == (uid, client)),
        );
        self.end_mappings(key);
        let to_give_back = if process.hands_over.load(Ordering::Relaxed) {
            self.departed.keep(clock::now(), held)
        } else {
            Some(held)
        };
        to_give_back.into_iter().for_each(|references| self.give_back(references));
    }

    /// The process has gone, and its mappings with it.
    fn end_mappings(&self, key: (u32, u64)) {
        self.mappings.end(key).into_iter().for_each(|told| mapping::answer(self, told));
    }

    /// A mapping that was taken while its process went goes, too.
    pub fn end_mappings_if_gone(&self, key: (u32, u64)) {
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_gone = !processes.contains_key(&key);
        drop(processes);
        if is_gone {
            self.end_mappings(key);
        }
    }

    /// Gives back one reference of the process to `ino` as the open file `number`, if it has one.
    pub fn release(&self, connection: &Connection, ino: Ino, number: u64) -> Result<(), StoreError> {
        if connection.process.release(ino, number) {
            self.store.release(ino)?;
            self.file_closed(ino, number);
        }
        Ok(())
    }

    fn give_back(&self, references: References) {
        for ((ino, number), count) in references {
            for _ in 0..count {
                if let Err(error) = self.store.release(ino) {
                    tracing::warn!(%ino, %error, "cannot give back a reference");
                }
            }
            self.file_closed(ino, number);
        }
    }

    /// A process gave up the open file `number`: if it was the last, its locks go.
    pub fn file_closed(&self, ino: Ino, number: u64) {
        let owner = Owner::File(number);
        if !self.locks.holds(ino, owner) {
            return;
        }
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        if !processes.values().any(|process| process.holds(ino, number)) {
            self.locks.release_owners(|other| other == owner);
        }
    }

    /// Gives back what processes held that went long enough before `now`.
    pub fn give_back_departed(&self, now: Nanos) {
        self.departed.due(now).into_iter().for_each(|references| self.give_back(references));
    }
}
