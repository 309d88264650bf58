//! What a volume server does: it sees to it that its file system is as the table says, and tells the root server what came of it.
//!
//! An *instruction* is a slot in another phase than [`Phase::Active`], named by its volume of all times and the version in
//! which it came into the table. The server keeps of each number of a volume the last instruction that it carried out and what
//! came of it ([`Host`]), on stable storage before it says so, also of volumes that are gone (65,535 at most).
//!
//! | what is known of the number | an instruction comes | what is done |
//! |---|---|---|
//! | nothing, an earlier generation, or an earlier instruction | to create or remove | the file system is asked; what it says is recorded, and then told |
//! | nothing, an earlier generation, or an earlier instruction | to hold or rename | recorded, and then told |
//! | this instruction | the same again | what came of it is told again |
//! | a later instruction or generation | one from before | nothing: it was under way for long |
//!
//! So each instruction is carried out once, however often it comes and whenever: one that was answered never acts again. In
//! between, after a stop between the act and its record, it is carried out a second time, and both are such that this does no
//! harm: to make the volume of all times that is there, and to remove the one that is gone, succeed at once.
//!
//! This server also *answers for the names* of its volumes: who was sent here because some copy of the table said so, and
//! finds that the volume has another name now, is sent on to the root server. Of a volume that is being removed
//! nothing is said here, nor for the name of one that is held: the root server has it answered when it is known what came of it.

use super::{Attributes, Outcome, Phase, Slot, Version, VolumeKey, VolumeName};
use isonomia_units::VolumeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Operations of the file system that are under way at once; more wait for the next look at the table.
pub const UNDER_WAY_MAX: usize = 256;

/// What a server keeps of a number of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The volume of all times.
    pub key: VolumeKey,
    /// The last instruction that was carried out.
    pub instruction: Version,
    /// What came of it.
    pub outcome: Outcome,
    /// The name that it has as long as it is there.
    pub name: VolumeName,
}

/// What a server's file system is asked to do. It answers when the change is on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Make the volume's directory. If this very volume of all times is there, all is well.
    Make {
        /// Which.
        key: VolumeKey,
        /// With what.
        attributes: Attributes,
    },
    /// Remove the directory if it is empty, and let nothing be made in it from that moment on. If this volume of all times
    /// is not there, all is well. ENOTEMPTY if it is not empty.
    Remove {
        /// Which.
        key: VolumeKey,
    },
}

/// What is to be done about a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Todo {
    /// Nothing.
    Nothing,
    /// The file system has to work; [`Hosted::done`] when it has.
    Work(Work),
    /// To be stored, then told: the slot's instruction was carried out.
    Carried(Host),
    /// What came of the slot's instruction is told again.
    Tell(Outcome),
}

/// The volumes that this server has, and those that it had.
#[derive(Debug, Default)]
pub struct Hosted {
    hosts: BTreeMap<VolumeId, Host>,
    names: BTreeMap<VolumeName, VolumeId>,
    /// What the file system is doing, by number: one thing at a time for each.
    under_way: BTreeMap<VolumeId, (Slot, Work)>,
}

impl Hosted {
    /// What is in the store.
    pub fn new(hosts: impl IntoIterator<Item = Host>) -> Self {
        let mut hosted = Self::default();
        for host in hosts {
            hosted.put(host);
        }
        hosted
    }

    /// The volume of this number, if this server has it and may say so.
    pub fn get(&self, number: VolumeId) -> Option<&Host> {
        let is_leaving = matches!(self.under_way.get(&number), Some((_, Work::Remove { .. })));
        self.hosts.get(&number).filter(|host| host.outcome.is_there() && !is_leaving)
    }

    /// The volume of this name, if this server has it and may say so.
    pub fn named(&self, name: &VolumeName) -> Option<&Host> {
        self.names.get(name).and_then(|number| self.get(*number))
    }

    /// All volumes that this server has.
    pub fn there(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values().filter(|host| host.outcome.is_there())
    }

    /// What `slot`, which names this server, asks for. [`Todo::Work`] counts as begun, and [`Todo::Carried`] as done.
    pub fn look_at(&mut self, slot: &Slot) -> Todo {
        let Some(volume) = slot.intent() else { return Todo::Nothing };
        let number = slot.key.number;
        if self.under_way.contains_key(&number) {
            return Todo::Nothing;
        }
        if let Some(host) = self.hosts.get(&number) {
            let (known, said) = ((host.key, host.instruction), (slot.key, slot.changed));
            if known >= said {
                return if known == said { Todo::Tell(host.outcome) } else { Todo::Nothing };
            }
        }
        let work = match &volume.phase {
            Phase::Creating => Work::Make { key: slot.key, attributes: volume.attributes },
            Phase::Removing { .. } => Work::Remove { key: slot.key },
            Phase::Held { .. } => return Todo::Carried(self.carried(slot, volume.name.clone(), Outcome::Held)),
            Phase::Renaming { .. } => return Todo::Carried(self.carried(slot, volume.name.clone(), Outcome::Renamed)),
            Phase::Active => return Todo::Nothing,
        };
        if self.under_way.len() == UNDER_WAY_MAX {
            return Todo::Nothing;
        }
        self.under_way.insert(number, (slot.clone(), work.clone()));
        Todo::Work(work)
    }

    /// The file system has done what it was asked for `number`: `Err` with an errno. The record to store, and then to tell.
    pub fn done(&mut self, number: VolumeId, result: Result<(), i32>) -> Option<Host> {
        let (slot, work) = self.under_way.remove(&number)?;
        let outcome = match (work, result) {
            (Work::Make { .. }, Ok(())) => Outcome::Made,
            (Work::Make { .. }, Err(errno)) => Outcome::NotMade(errno),
            (Work::Remove { .. }, Ok(())) => Outcome::Removed,
            (Work::Remove { .. }, Err(errno)) => Outcome::NotRemoved(errno),
        };
        Some(self.carried(&slot, slot.volume.as_ref()?.name.clone(), outcome))
    }

    fn carried(&mut self, slot: &Slot, name: VolumeName, outcome: Outcome) -> Host {
        let host = Host { key: slot.key, instruction: slot.changed, outcome, name };
        self.put(host.clone());
        host
    }

    fn put(&mut self, host: Host) {
        let number = host.key.number;
        if let Some(before) = self.hosts.get(&number)
            && self.names.get(&before.name) == Some(&number)
        {
            self.names.remove(&before.name);
        }
        if host.outcome.is_there() && host.outcome != Outcome::Held {
            self.names.insert(host.name.clone(), number);
        }
        self.hosts.insert(number, host);
    }
}
