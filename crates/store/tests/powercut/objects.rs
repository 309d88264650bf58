//! Detached objects in a run: what is done to them, and what must be left of them.
//!
//! Each has a few places at which objects live one after the other. What is removed does not come back: its place is closed
//! for good, and the next one has another number.

use crate::model::{Change, History, Step};
use crate::pattern;
use crate::run::{Run, mode_of};
use crate::verdict::Violation;
use crate::workload::ObjectOperation;
use isonomia_store::checksum::ObjectId;
use isonomia_store::{ObjectPlace, ObjectStat, Store, StoreError};
use isonomia_units::{Ino, TargetId, VolumeId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Objects that live at a time.
pub const SLOTS: usize = 3;
const GENERATION: u32 = 0xd00d;
/// Their files' numbers in the pattern begin here.
const FIRST_FILE: u32 = 0x800;
/// Bytes that are read of an object beyond its end.
const BEYOND: usize = 100;

/// The objects of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Objects {
    lives: Vec<Life>,
    /// Which of them each slot has now.
    now: [Option<usize>; SLOTS],
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Life {
    history: History,
    /// When each cut was, the first of which has the number 1.
    cuts: Vec<Step>,
    removed: Option<Step>,
}

/// The bytes of each life, and the number of its last cut; nothing of one that is closed.
pub type FoundObjects = BTreeMap<usize, Option<(Vec<u8>, u64)>>;

fn place(life: usize, targets: usize) -> ObjectPlace {
    let number = Ino::new(VolumeId(7), 0x1000 + life as u64).0;
    let object = ObjectId { number, generation: GENERATION, index: (life % 5) as u32 };
    ObjectPlace { object, target: TargetId((life % targets) as u16) }
}

impl Objects {
    /// The size of the object in each slot after all that was done.
    pub fn sizes(&self) -> [u64; SLOTS] {
        self.now.map(|life| life.map_or(0, |life| self.lives[life].history.size_after(Step::MAX)))
    }

    /// Does it; true if that put the journal on stable storage.
    pub fn act(
        &mut self,
        store: &Store,
        targets: usize,
        slot: usize,
        operation: ObjectOperation,
        step: Step,
    ) -> Result<bool, StoreError> {
        let life = *self.now[slot].get_or_insert_with(|| {
            let history = History { file: FIRST_FILE + self.lives.len() as u32, ..History::default() };
            self.lives.push(Life { history, cuts: Vec::new(), removed: None });
            self.lives.len() - 1
        });
        let (place, life) = (place(life, targets), &mut self.lives[life]);
        let history = &mut life.history;
        match operation {
            ObjectOperation::Write { offset, size_bytes } => {
                let bytes = pattern::bytes(history.file, step as u32, offset, size_bytes);
                let written = store.objects().write_object_as(mode_of(step), u64::MAX, place, offset, &bytes)?;
                assert_eq!((written.len as u64, written.cuts), (size_bytes, life.cuts.len() as u64));
                history.changes.push((step, Change::Write { offset, size_bytes }));
                Ok(false)
            }
            ObjectOperation::Sync => {
                store.objects().sync_object(place)?;
                history.synced.push(step);
                Ok(false)
            }
            ObjectOperation::Cut { size_bytes } => {
                life.cuts.push(step);
                let number = life.cuts.len() as u64;
                assert_eq!(store.objects().cut_object(place, number, size_bytes)?, number);
                // One that comes late.
                assert_eq!(store.objects().cut_object(place, number, 0)?, number);
                let size_bytes = size_bytes.min(history.size_after(step));
                history.changes.push((step, Change::Resize(size_bytes)));
                Ok(true)
            }
            ObjectOperation::Remove => {
                store.objects().remove_detached(&[place], u64::MAX, 0)?;
                life.removed = Some(step);
                self.now[slot] = None;
                Ok(true)
            }
        }
    }

    /// Everything was put on stable storage.
    pub fn all_synced(&mut self, step: Step) {
        for life in self.now.iter().flatten() {
            self.lives[*life].history.synced.push(step);
        }
    }

    /// What `store` has of all that began before `begun`.
    pub fn find(&self, store: &Store, targets: usize, begun: Step) -> Result<FoundObjects, StoreError> {
        let began = |life: &Life| life.history.changes.first().is_some_and(|(step, _)| *step < begun);
        let lives = self.lives.iter().enumerate().filter(|(_, life)| began(life));
        lives.map(|(life, _)| Ok((life, content(store, place(life, targets))?))).collect()
    }

    /// What is wrong with what was found after a power cut at `position` of `run`.
    pub fn check(
        &self,
        run: &Run,
        position: usize,
        found: &FoundObjects,
        host_sizes: &BTreeSet<u64>,
        violations: &mut Vec<Violation>,
    ) {
        let (done, begun, kept) = (run.done_at(position), run.begun_at(position), run.kept_at(position));
        for (number, content) in found {
            let Life { history, cuts, removed } = &self.lives[*number];
            match (content, removed) {
                (None, Some(removed)) if *removed < begun => {}
                (None, _) => violations.push(Violation::new("closed", format!("object {number} was not removed"))),
                (Some(_), Some(removed)) if *removed < done => {
                    violations.push(Violation::new("returned", format!("object {number} was removed, and is there")));
                }
                (Some((_, last)), _) if *last < cuts.partition_point(|step| *step < done) as u64 => {
                    violations.push(Violation::new("cut", format!("object {number} knows of {last} cuts: {cuts:?}")));
                }
                (Some((content, _)), _) => {
                    if let Err(damage) = history.explain(content, begun, |step| step < done, kept, host_sizes) {
                        let detail = format!("object {number} (file {:x}): {}", history.file, damage.detail);
                        violations.push(Violation::new(damage.kind, detail));
                    }
                }
            }
        }
    }

    /// Those that are there can be written, cut and read.
    pub fn use_them(
        &self,
        store: &Store,
        targets: usize,
        found: &FoundObjects,
        violations: &mut Vec<Violation>,
    ) -> Result<(), StoreError> {
        for (life, found) in found {
            let (place, Some((before, last))) = (place(*life, targets), found) else { continue };
            let size = before.len() as u64;
            store.objects().write_object(place, size + 5000, b"more")?;
            store.objects().cut_object(place, last + 1, size)?;
            store.objects().sync_object(place)?;
            if content(store, place)?.is_none_or(|(after, _)| after != *before) {
                violations.push(Violation::new("written", format!("object {life} cannot be written to and cut")));
            }
        }
        Ok(())
    }
}

fn content(store: &Store, place: ObjectPlace) -> Result<Option<(Vec<u8>, u64)>, StoreError> {
    let (size, cuts) = match store.objects().stat_object(place) {
        Ok(ObjectStat { size_bytes, cuts, .. }) => (size_bytes as usize, cuts),
        Err(StoreError::Stale) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0xee; size + BEYOND];
    let len = store.objects().read_object(place, 0, &mut bytes)?;
    bytes.truncate(len);
    Ok(Some((bytes, cuts)))
}
