//! The table of volumes in memory: slots by number, by name, and by the version of their last change.

use super::{Slot, Version, VolumeName};
use isonomia_units::VolumeId;
use std::collections::BTreeMap;

/// What every number of a volume stands for, at the root server or as a copy.
///
/// Memory: some 150 bytes for each number that was ever used and the name, so 30 MB at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    slots: BTreeMap<VolumeId, Slot>,
    names: BTreeMap<VolumeName, VolumeId>,
    old_names: BTreeMap<VolumeName, VolumeId>,
    changes: BTreeMap<Version, VolumeId>,
}

impl Table {
    /// The version of the latest change in it.
    pub fn version(&self) -> Version {
        self.changes.last_key_value().map_or(Version::NONE, |(version, _)| *version)
    }

    /// The slot of `number`, if it was ever used.
    pub fn slot(&self, number: VolumeId) -> Option<&Slot> {
        self.slots.get(&number)
    }

    /// The slot with the volume called `name`, whatever is being done with it.
    pub fn named(&self, name: &VolumeName) -> Option<&Slot> {
        self.names.get(name).and_then(|number| self.slots.get(number))
    }

    /// The slot with the volume that was called `old` until now, if its server may still answer for that name.
    pub fn formerly_named(&self, old: &VolumeName) -> Option<&Slot> {
        self.old_names.get(old).and_then(|number| self.slots.get(number))
    }

    /// All slots by number, those without a volume too.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    /// The volumes whose names can be looked up, by name.
    pub fn visible(&self) -> impl Iterator<Item = (&VolumeName, &Slot)> {
        let slots = self.names.iter().filter_map(|(name, number)| Some((name, self.slots.get(number)?)));
        slots.filter(|(_, slot)| slot.visible().is_some())
    }

    /// The slots that changed after `version`, in the order of their changes.
    pub fn since(&self, version: Version) -> impl Iterator<Item = &Slot> {
        self.changes.range(version.next()..).filter_map(|(_, number)| self.slots.get(number))
    }

    /// Takes in `slot` if it is newer than what is there, and says whether it was.
    ///
    /// A copy may for a moment lack a change that took a name from another volume: the later of the two has it.
    pub fn put(&mut self, slot: Slot) -> bool {
        let number = slot.key.number;
        if let Some(old) = self.slots.get(&number) {
            if old.changed >= slot.changed {
                return false;
            }
            self.changes.remove(&old.changed);
            if let Some(volume) = &old.volume {
                leave(&mut self.names, &volume.name, number);
                if let Some(old) = volume.old_name() {
                    leave(&mut self.old_names, old, number);
                }
            }
        }
        if let Some(volume) = &slot.volume {
            let holder = self.names.get(&volume.name).and_then(|holder| self.slots.get(holder));
            if holder.is_none_or(|holder| holder.changed < slot.changed) {
                self.names.insert(volume.name.clone(), number);
            }
            if let Some(old) = volume.old_name() {
                self.old_names.insert(old.clone(), number);
            }
        }
        self.changes.insert(slot.changed, number);
        self.slots.insert(number, slot);
        true
    }
}

/// Takes `name` from `number`, if it still has it.
fn leave(names: &mut BTreeMap<VolumeName, VolumeId>, name: &VolumeName, number: VolumeId) {
    if names.get(name) == Some(&number) {
        names.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Attributes, Phase, Volume, VolumeKey};
    use super::*;
    use isonomia_units::ServerId;

    fn slot(number: u16, changed: u64, name: Option<&str>) -> Slot {
        Slot {
            key: VolumeKey { number: VolumeId(number), generation: 1 },
            changed: Version(changed),
            volume: name.map(|name| Volume {
                name: name.as_bytes().try_into().unwrap(),
                server: ServerId(1),
                attributes: Attributes::default(),
                phase: Phase::Active,
            }),
        }
    }

    fn names(table: &Table) -> Vec<(String, u16)> {
        table.visible().map(|(name, slot)| (name.to_string(), slot.key.number.0)).collect()
    }

    #[test]
    fn a_copy_that_hears_in_any_order_ends_the_same() {
        // `a` is volume 1, is renamed to `b`, and a new volume 2 takes its name.
        let news = [slot(1, 1, Some("a")), slot(1, 2, Some("b")), slot(2, 3, Some("a")), slot(3, 4, None)];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [0, 2, 1, 3]] {
            let mut table = Table::default();
            for index in order {
                table.put(news[index].clone());
            }
            assert_eq!(names(&table), [("a".to_owned(), 2), ("b".to_owned(), 1)], "{order:?}");
            assert_eq!(table.version(), Version(4));
            let since: Vec<_> = table.since(Version(2)).map(|slot| slot.changed.0).collect();
            assert_eq!(since, [3, 4]);
        }
    }

    #[test]
    fn what_is_older_changes_nothing() {
        let mut table = Table::default();
        assert!(table.put(slot(1, 5, Some("new"))));
        let before = table.clone();
        assert!(!table.put(slot(1, 5, Some("other"))));
        assert!(!table.put(slot(1, 4, None)));
        assert_eq!(table, before);
    }
}
