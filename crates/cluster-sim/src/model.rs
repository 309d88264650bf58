//! The root directory as one process on one host would see it: what the answers of a cluster are compared with.

use crate::linear::{Outcome, State};
use isonomia_cluster::request::RenameHow;
use isonomia_cluster::volumes::VolumeKey;
use std::collections::{BTreeMap, BTreeSet};

/// A name in the root: few of them, so that operations meet.
pub type Name = u8;
/// A file in a volume.
pub type FileName = u8;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `mkdir`.
    Make(Name),
    /// `rmdir`.
    Remove(Name),
    /// `rename`.
    Rename(Name, Name, RenameHow),
    /// Have another server have this volume.
    Move(Name),
    /// Which volume has this name?
    LookUp(Name),
    /// Which server has this volume? Asked by number.
    WhereIs(VolumeKey),
    /// Make a file in this volume.
    Put(VolumeKey, FileName),
    /// Remove a file from this volume.
    Delete(VolumeKey, FileName),
}

/// What a client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// It is done.
    Done,
    /// This volume.
    Volume(VolumeKey),
    /// ENOENT.
    NotFound,
    /// EEXIST.
    Exists,
    /// ENOTEMPTY.
    NotEmpty,
    /// Another errno, and nothing happened.
    Failed,
}

/// A volume whose making had no answer yet is known by the operation that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Id {
    Known(VolumeKey),
    MadeBy(usize),
}

/// The root directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Root {
    names: BTreeMap<Name, Id>,
    files: BTreeSet<(Id, FileName)>,
    /// Volumes that ever were: none of them comes again.
    gone: BTreeSet<VolumeKey>,
}

impl Root {
    /// `id` turns out to be `key`.
    fn bind(&mut self, id: Id, key: VolumeKey) -> bool {
        if id == Id::Known(key) {
            return true;
        }
        let is_other = self.gone.contains(&key) || self.names.values().any(|other| *other == Id::Known(key));
        if matches!(id, Id::Known(_)) || is_other {
            return false;
        }
        for other in self.names.values_mut().filter(|other| **other == id) {
            *other = Id::Known(key);
        }
        let files = std::mem::take(&mut self.files);
        self.files = files.into_iter().map(|(of, file)| (if of == id { Id::Known(key) } else { of }, file)).collect();
        true
    }

    fn remove(&mut self, name: Name) -> Got {
        match self.names.get(&name) {
            None => Got::NotFound,
            Some(id) if self.files.iter().any(|(of, _)| of == id) => Got::NotEmpty,
            Some(id) => {
                if let Id::Known(key) = id {
                    self.gone.insert(*key);
                }
                self.names.remove(&name);
                Got::Done
            }
        }
    }

    fn rename(&mut self, from: Name, to: Name, how: RenameHow) -> Got {
        let Some(id) = self.names.get(&from).copied() else { return Got::NotFound };
        match (self.names.get(&to).copied(), how) {
            (None, RenameHow::Exchange) => return Got::NotFound,
            (Some(_), RenameHow::NoReplace) => return Got::Exists,
            (Some(other), _) if other == id => return Got::Done,
            (Some(other), RenameHow::Exchange) => {
                self.names.insert(from, other);
            }
            (Some(_), RenameHow::Replace) => match self.remove(to) {
                Got::Done => _ = self.names.remove(&from),
                other => return other,
            },
            (None, _) => _ = self.names.remove(&from),
        }
        self.names.insert(to, id);
        Got::Done
    }
}

impl State for Root {
    type Asked = Asked;
    type Result = Got;

    fn apply(&self, index: usize, asked: &Asked, result: Option<&Got>) -> Outcome<Self> {
        let mut next = self.clone();
        if result == Some(&Got::Failed) {
            return Outcome::Fits(next);
        }
        let got = match *asked {
            Asked::Make(name) => match (self.names.get(&name), result) {
                (Some(_), _) => Got::Exists,
                (None, result) => {
                    next.names.insert(name, Id::MadeBy(index));
                    match result {
                        Some(Got::Volume(key)) if next.bind(Id::MadeBy(index), *key) => Got::Volume(*key),
                        _ => Got::Done,
                    }
                }
            },
            Asked::Remove(name) => next.remove(name),
            Asked::Rename(from, to, how) => next.rename(from, to, how),
            Asked::Move(name) if self.names.contains_key(&name) => Got::Done,
            Asked::LookUp(name) => match (self.names.get(&name), result) {
                (None, _) => Got::NotFound,
                (Some(id), Some(Got::Volume(key))) if next.bind(*id, *key) => Got::Volume(*key),
                (Some(_), _) => Got::Exists,
            },
            Asked::WhereIs(key) if self.has(key) => Got::Volume(key),
            Asked::Put(key, file) if self.has(key) => {
                next.files.insert((Id::Known(key), file));
                Got::Done
            }
            Asked::Delete(key, file) if self.has(key) => {
                next.files.remove(&(Id::Known(key), file));
                Got::Done
            }
            Asked::Move(_) | Asked::WhereIs(_) | Asked::Put(..) | Asked::Delete(..) => Got::NotFound,
        };
        if result.is_none_or(|result| *result == got) { Outcome::Fits(next) } else { Outcome::Differs }
    }
}

impl Root {
    fn has(&self, key: VolumeKey) -> bool {
        self.names.values().any(|id| *id == Id::Known(key))
    }
}
