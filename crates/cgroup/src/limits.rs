//! Limits that are set, changed, and removed.

use crate::knob::{Device, Direction, Knob, Layout};
use crate::record::{self, BadRecord, Setting};
use crate::step::{Own, Step, step};
use isonomia_units::Rate;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Groups that have limits at once at most; those of further ones are left out.
pub const GROUPS_MAX: usize = 4_096;

/// A control group: its directory, and the kind of hierarchy that this is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The absolute path of its directory, without line breaks.
    pub dir: PathBuf,
    /// The hierarchy.
    pub layout: Layout,
}

/// What a group may have of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Of reads; without a limit if absent.
    pub read: Option<Rate>,
    /// Of writes; without a limit if absent.
    pub write: Option<Rate>,
}

/// Why limits are not set or not removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// The record cannot be read or written.
    #[error("the record of limits, {path}: {error}")]
    Record {
        /// Its file.
        path: PathBuf,
        /// Why.
        error: Error,
    },
    /// The record is none that this program knows.
    #[error("{path}: {error}")]
    BadRecord {
        /// Its file.
        path: PathBuf,
        /// Which line.
        error: BadRecord,
    },
    /// The kernel refuses.
    #[error("the limit of a control group, {path}: {error}")]
    Group {
        /// The kernel's file.
        path: PathBuf,
        /// Why.
        error: Error,
    },
}

/// What became of the limits of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Limits that were removed.
    pub removed: usize,
    /// Limits that are not there any more, or that somebody else has changed since.
    pub let_go: usize,
}

/// The limits of groups on one device. They are removed when it goes.
#[derive(Debug)]
pub struct Limits {
    record: PathBuf,
    device: Device,
    own: BTreeMap<Setting, Own>,
}

impl Limits {
    /// On `device`, with the record in this file. Removes what an earlier process of that record left.
    ///
    /// # Errors
    /// The record cannot be read or written, or a limit in it cannot be removed.
    pub fn open(record: &Path, device: Device) -> Result<Self, LimitsError> {
        remove(record)?;
        let limits = Self { record: record.to_owned(), device, own: BTreeMap::new() };
        limits.keep_record(&limits.own)?;
        Ok(limits)
    }

    /// Has these groups have these limits, and no others; where somebody else has set one, his stays.
    ///
    /// # Errors
    /// The record cannot be written: nothing has changed. Or the kernel refuses for one group, the first of which is told: a group
    /// that is gone is none of them.
    pub fn set(&mut self, wanted: &BTreeMap<Group, Limit>) -> Result<(), LimitsError> {
        let mut values: BTreeMap<Setting, u64> = BTreeMap::new();
        for (group, limit) in wanted.iter().take(GROUPS_MAX) {
            for (direction, rate) in [(Direction::Read, limit.read), (Direction::Write, limit.write)] {
                let knob = Knob { layout: group.layout, direction };
                let setting = Setting { group: group.dir.clone(), knob, device: self.device };
                values.extend(rate.map(|rate| (setting, rate.bytes_per_s())));
            }
        }
        let settings: BTreeSet<Setting> = self.own.keys().chain(values.keys()).cloned().collect();
        let (mut steps, mut refused, mut is_any_gone) = (Vec::new(), None, false);
        for setting in settings {
            match found(&setting) {
                Ok(found) => {
                    let step = step(self.own.get(&setting), found, values.get(&setting).copied());
                    steps.push((setting, step));
                }
                // A group that is gone has no limits.
                Err(error) if error.kind() == ErrorKind::NotFound => is_any_gone |= self.own.remove(&setting).is_some(),
                Err(error) => _ = refused.get_or_insert(LimitsError::Group { path: setting.file(), error }),
            }
        }
        steps.retain(|(_, step)| *step != Step::Leave);
        if steps.is_empty() && !is_any_gone {
            return refused.map_or(Ok(()), Err);
        }
        // While a limit is changed, the old value and the new one are ours.
        let mut meanwhile = self.own.clone();
        for (setting, step) in &steps {
            if let Step::Set(value) = step {
                meanwhile.entry(setting.clone()).or_default().values.push(*value);
            }
        }
        self.keep_record(&meanwhile)?;
        for (setting, step) in steps {
            let value = match step {
                Step::Set(value) => Some(value),
                _ => None,
            };
            if step != Step::LetGo
                && let Err(error) = put(&setting, value)
            {
                if error.kind() != ErrorKind::NotFound {
                    // What is there is found out the next time.
                    self.own.extend(meanwhile.remove_entry(&setting));
                    refused.get_or_insert(LimitsError::Group { path: setting.file(), error });
                    continue;
                }
                self.own.remove(&setting);
                continue;
            }
            match value {
                Some(value) => _ = self.own.insert(setting, Own { values: vec![value] }),
                None => _ = self.own.remove(&setting),
            }
        }
        self.keep_record(&self.own)?;
        refused.map_or(Ok(()), Err)
    }

    /// How many limits there are.
    pub fn len(&self) -> usize {
        self.own.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// The record is whole at any moment: it is written beside the old one, and replaces that. It need not be on stable storage:
    /// when the host stops, the limits are gone.
    fn keep_record(&self, own: &BTreeMap<Setting, Own>) -> Result<(), LimitsError> {
        keep_record(&self.record, own)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        // What cannot be removed stays in the record.
        let _ = self.set(&BTreeMap::new());
    }
}

/// Removes the limits that the record in this file has, but for those that somebody else has changed since. Without a record
/// there is nothing to remove.
///
/// # Errors
/// The record cannot be read or written, or a limit cannot be removed; the others are.
pub fn remove(record: &Path) -> Result<Removed, LimitsError> {
    let of_record = |error| LimitsError::Record { path: record.to_owned(), error };
    let text = match std::fs::read_to_string(record) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Removed::default()),
        Err(error) => return Err(of_record(error)),
    };
    let own = record::read(&text).map_err(|error| LimitsError::BadRecord { path: record.to_owned(), error })?;
    let (mut left, mut outcome, mut refused) = (BTreeMap::new(), Removed::default(), None);
    for (setting, own) in own {
        let done = found(&setting).and_then(|found| match step(Some(&own), found, None) {
            Step::Remove => put(&setting, None).map(|()| true),
            _ => Ok(false),
        });
        match done {
            Ok(true) => outcome.removed += 1,
            Ok(false) => outcome.let_go += 1,
            Err(error) if error.kind() == ErrorKind::NotFound => outcome.let_go += 1,
            Err(error) => {
                refused.get_or_insert(LimitsError::Group { path: setting.file(), error });
                left.insert(setting, own);
            }
        }
    }
    keep_record(record, &left)?;
    refused.map_or(Ok(outcome), Err)
}

fn keep_record(record: &Path, own: &BTreeMap<Setting, Own>) -> Result<(), LimitsError> {
    let beside = record.with_extension("new");
    let written = std::fs::write(&beside, record::write(own)).and_then(|()| std::fs::rename(&beside, record));
    written.map_err(|error| LimitsError::Record { path: record.to_owned(), error })
}

/// What the kernel has.
fn found(setting: &Setting) -> Result<Option<u64>, Error> {
    Ok(setting.knob.value_in(&std::fs::read_to_string(setting.file())?, setting.device))
}

/// The kernel takes one line for each write.
fn put(setting: &Setting, value: Option<u64>) -> Result<(), Error> {
    let mut file = std::fs::OpenOptions::new().write(true).open(setting.file())?;
    file.write_all(setting.knob.line(setting.device, value).as_bytes())
}
