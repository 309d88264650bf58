//! What the store must hold after a run of operations, and what of it may be missing after a power cut.
//!
//! **Names and attributes** change one after the other in the journal of the store's database, so after a power cut they
//! are those after some number of operations: at least as many as the last one that put all of them on stable storage.
//!
//! **Bytes** of a file are not ordered with them. What a file had when it was last put on stable storage is there, unless
//! a later operation changed it: then every byte is the old one, or one that a later write put in its place. A cut
//! ([`Change::Resize`]) is an edge that cannot be mixed over: what lies behind it is gone once anything later is seen, or
//! once the journal has it for good.
//!
//! **A size** that was not put on stable storage is not ahead of the bytes, unless the host has an object like that: ext4
//! may show the new size of a file and not yet its bytes.

use crate::pattern::{self, Origin};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The index of an operation in a run.
pub type Step = usize;

/// What is known of an inode besides its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    pub mode: u32,
    /// The values of extended attributes by their names.
    pub xattrs: BTreeMap<String, String>,
}

/// All names, what they lead to, and their attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Paths of directories with their modes.
    pub dirs: BTreeMap<String, u32>,
    /// Paths of files with their inodes.
    pub files: BTreeMap<String, u64>,
    /// Paths of symbolic links with what they say.
    pub symlinks: BTreeMap<String, String>,
    pub attributes: BTreeMap<u64, Attributes>,
}

impl Names {
    /// What is different in `found`, for people.
    pub fn difference(&self, found: &Self) -> String {
        let mut lines = Vec::new();
        differences("directory", &self.dirs, &found.dirs, &mut lines);
        differences("link", &self.symlinks, &found.symlinks, &mut lines);
        differences("name", &self.files, &found.files, &mut lines);
        differences("inode", &self.attributes, &found.attributes, &mut lines);
        lines.join("; ")
    }
}

fn differences<K: Ord + std::fmt::Display, V: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: &BTreeMap<K, V>,
    found: &BTreeMap<K, V>,
    lines: &mut Vec<String>,
) {
    for (key, value) in expected {
        match found.get(key) {
            None => lines.push(format!("{what} {key} is missing")),
            Some(other) if other != value => lines.push(format!("{what} {key} has {other:?}, not {value:?}")),
            Some(_) => {}
        }
    }
    let more = found.keys().filter(|key| !expected.contains_key(key));
    lines.extend(more.map(|key| format!("{what} {key} should not exist")));
}

/// Something that happened to the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    Write {
        offset: u64,
        size_bytes: u64,
    },
    /// Zeros that were asked for, which are as much as what was written.
    Zeros {
        offset: u64,
        size_bytes: u64,
    },
    Resize(u64),
}

/// The life of one file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// The number that its bytes carry.
    pub file: u32,
    pub changes: Vec<(Step, Change)>,
    /// Operations that put its bytes on stable storage.
    pub synced: Vec<Step>,
    /// Those of them that the store was asked for, with all attributes.
    pub fsynced: Vec<Step>,
}

/// Bytes that may be at `start` of a file.
struct Layer {
    start: u64,
    bytes: Vec<u8>,
}

impl Layer {
    fn at(&self, offset: u64) -> Option<u8> {
        self.bytes.get(offset.checked_sub(self.start)? as usize).copied()
    }
}

/// How found bytes break the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// One word of what it is, to count by.
    pub kind: &'static str,
    pub detail: String,
    /// Up to where the bytes are right.
    good_bytes: u64,
}

impl History {
    /// The size after every operation up to and with `last`.
    pub fn size_after(&self, last: Step) -> u64 {
        self.changes.iter().take_while(|(step, _)| *step <= last).fold(0, |size, (_, change)| change.size_after(size))
    }

    /// Whether `found` may be the content of the file after a power cut, given that the operations before `begun` had
    /// begun, those in `done` had ended, and those before `kept` are in the journal for good, and that the host has objects
    /// of files of `host_sizes`.
    pub fn explain(
        &self,
        found: &[u8],
        begun: Step,
        done: impl Fn(Step) -> bool,
        kept: Step,
        host_sizes: &BTreeSet<u64>,
    ) -> Result<(), Damage> {
        let stable = self.synced.iter().rposition(|step| done(*step)).map(|index| self.synced[index]);
        let is_stable = |step: Step| stable.is_some_and(|stable| step <= stable);
        let split = self.changes.partition_point(|(step, _)| is_stable(*step));
        let before = self.content(split);
        let later: Vec<_> = self.changes[split..].iter().filter(|(step, _)| *step < begun).copied().collect();
        let is_edge = |change: &Change| matches!(change, Change::Resize(_));
        let edges = later.iter().filter(|(_, change)| is_edge(change)).count();
        let kept_edges = later.iter().filter(|(step, change)| *step < kept && is_edge(change)).count();
        let mut best: Option<Damage> = None;
        for crossed in kept_edges..=edges {
            match self.explain_up_to(found, &before, &later, crossed, host_sizes) {
                Ok(()) => return Ok(()),
                Err(damage) if best.as_ref().is_none_or(|best| best.good_bytes < damage.good_bytes) => {
                    best = Some(damage);
                }
                Err(_) => {}
            }
        }
        let mut damage = best.expect("the first try failed");
        let later: Vec<String> = later.iter().map(|(step, change)| format!("{step}: {change:?}")).collect();
        damage.detail += &format!(
            "; stable after operation {stable:?} with {} bytes, later changes: [{}]",
            before.len(),
            later.join(", ")
        );
        Err(damage)
    }

    /// What a change puts into the file, and where.
    fn written(&self, step: Step, change: Change) -> Option<(u64, Vec<u8>)> {
        match change {
            Change::Write { offset, size_bytes } => {
                Some((offset, pattern::bytes(self.file, step as u32, offset, size_bytes)))
            }
            Change::Zeros { offset, size_bytes } => Some((offset, vec![0; size_bytes as usize])),
            Change::Resize(_) => None,
        }
    }

    /// The content after the first `count` changes.
    fn content(&self, count: usize) -> Vec<u8> {
        let mut content = Vec::new();
        for (step, change) in &self.changes[..count] {
            let size = content.len() as u64;
            content.resize(change.size_after(size) as usize, 0);
            if let Some((offset, new)) = self.written(*step, *change) {
                content[offset as usize..offset as usize + new.len()].copy_from_slice(&new);
            }
        }
        content
    }

    /// Whether `found` can be what there is when the first `crossed` resizes of `later` took effect, no later one did,
    /// and of the writes between any or none.
    fn explain_up_to(
        &self,
        found: &[u8],
        before: &[u8],
        later: &[(Step, Change)],
        crossed: usize,
        host_sizes: &BTreeSet<u64>,
    ) -> Result<(), Damage> {
        let mut layers = vec![Layer { start: 0, bytes: before.to_vec() }];
        // From here on there may be nothing: it was cut off, or never there.
        let mut bare_from = before.len() as u64;
        let (mut size_min, mut size_max) = (bare_from, bare_from);
        let mut resizes = 0;
        // What was written since the last resize: where the size is more than that made it, one of these is the end.
        let mut young = layers.len();
        for (step, change) in later {
            match *change {
                Change::Resize(_) if resizes == crossed => break,
                Change::Resize(size) => {
                    resizes += 1;
                    bare_from = bare_from.min(size);
                    for layer in &mut layers {
                        layer.bytes.truncate(size.saturating_sub(layer.start) as usize);
                    }
                    (size_min, size_max) = (size, size);
                    young = layers.len();
                }
                written => {
                    layers.extend(self.written(*step, written).map(|(start, bytes)| Layer { start, bytes }));
                    size_max = written.size_after(size_max);
                }
            }
        }
        let size = found.len() as u64;
        for (offset, byte) in (0u64..).zip(found) {
            let is_right = layers.iter().any(|layer| layer.at(offset) == Some(*byte))
                || (*byte == 0 && offset >= bare_from && offset < size_max);
            if !is_right && offset < size_max {
                let expected = layers.iter().rev().find(|layer| layer.at(offset).is_some());
                return Err(self.damage(found, offset, expected));
            }
        }
        let wrong_size = |kind| {
            let detail = format!("the size is {size}, not from {size_min} to {size_max}");
            Err(Damage { kind, detail, good_bytes: size.min(size_max) })
        };
        if size < size_min {
            return wrong_size(if size == 0 { "emptied" } else { "short" });
        }
        if size > size_max {
            return wrong_size("long");
        }
        let has_end = |layer: &Layer| layer.at(size - 1) == found.last().copied();
        if size > size_min && !layers[young..].iter().any(has_end) && !host_sizes.contains(&size) {
            let detail = format!("the size is {size}, and its last bytes are zeros that nobody wrote");
            return Err(Damage { kind: "size-without-bytes", detail, good_bytes: size });
        }
        Ok(())
    }

    fn damage(&self, found: &[u8], offset: u64, expected: Option<&Layer>) -> Damage {
        let origin = pattern::origin(found, offset);
        let kind = match origin {
            Origin::Zeros => "zeros",
            Origin::Written { file, .. } if file != self.file => "foreign",
            Origin::Written { offset: at, .. } if at != offset / 16 * 16 => "misplaced",
            Origin::Written { .. } => "stale",
            Origin::Unknown => "torn",
        };
        let expected = expected.map_or(Origin::Zeros, |layer| {
            let mut whole = vec![0; layer.start as usize];
            whole.extend_from_slice(&layer.bytes);
            pattern::origin(&whole, offset)
        });
        let detail = format!("at {offset} of {} bytes there is {origin} instead of {expected}", found.len());
        Damage { kind, detail, good_bytes: offset }
    }
}

impl Change {
    fn size_after(self, size: u64) -> u64 {
        match self {
            Self::Write { offset, size_bytes } | Self::Zeros { offset, size_bytes } => size.max(offset + size_bytes),
            Self::Resize(size) => size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written whole and synced (operations 1 and 2), overwritten in the middle (3), cut (4), written again (5).
    fn history() -> History {
        History {
            file: 1,
            changes: vec![
                (1, Change::Write { offset: 0, size_bytes: 10_000 }),
                (3, Change::Write { offset: 4000, size_bytes: 1000 }),
                (4, Change::Resize(2000)),
                (5, Change::Write { offset: 3000, size_bytes: 3000 }),
            ],
            synced: vec![2],
            fsynced: vec![2],
        }
    }

    fn verdict(found: &[u8], begun: Step) -> &'static str {
        verdict_kept(found, begun, 0)
    }

    fn verdict_kept(found: &[u8], begun: Step, kept: Step) -> &'static str {
        let host_sizes = BTreeSet::from([4000]);
        let explained = history().explain(found, begun, |step| step < begun, kept, &host_sizes);
        explained.map_or_else(|damage| damage.kind, |()| "right")
    }

    #[test]
    fn what_was_synced_is_there_until_it_is_changed() {
        let stable = pattern::bytes(1, 1, 0, 10_000);
        assert_eq!(verdict(&stable, 3), "right");
        assert_eq!(verdict(&stable, 6), "right");
        assert_eq!(verdict(&vec![0; 10_000], 3), "zeros");
        assert_eq!(verdict(&stable[..9999], 6), "short");
        assert_eq!(verdict(&[], 4), "emptied");
        assert_eq!(verdict(&[&stable[..], &[0]].concat(), 4), "long");
        assert_eq!(verdict(&pattern::bytes(2, 1, 0, 10_000), 3), "foreign");
        assert_eq!(verdict(&pattern::bytes(1, 1, 16, 10_000), 3), "misplaced");
        let mut torn = stable.clone();
        torn[4000..4512].copy_from_slice(&pattern::bytes(1, 3, 4000, 512));
        assert_eq!(verdict(&torn, 4), "right", "a part of the later write");
        assert_eq!(verdict(&torn, 3), "stale", "before that write began");
    }

    #[test]
    fn a_cut_is_an_edge() {
        let stable = pattern::bytes(1, 1, 0, 10_000);
        let mut rewritten = vec![0; 6000];
        rewritten[..2000].copy_from_slice(&stable[..2000]);
        assert_eq!(verdict(&rewritten[..2000], 6), "right");
        assert_eq!(verdict_kept(&rewritten[..2000], 6, 5), "right");
        assert_eq!(verdict_kept(&stable, 6, 4), "right");
        assert_eq!(verdict_kept(&stable, 6, 5), "stale", "the cut was kept for good");
        assert_eq!(verdict(&rewritten, 6), "size-without-bytes");
        assert_eq!(verdict(&rewritten[..4000], 6), "right", "the host's doing");
        rewritten[3000..].copy_from_slice(&pattern::bytes(1, 5, 3000, 3000));
        assert_eq!(verdict(&rewritten, 6), "right");
        assert_eq!(verdict(&rewritten, 5), "zeros", "nobody wrote behind the cut yet");
        rewritten[2000..3000].copy_from_slice(&stable[2000..3000]);
        assert_eq!(verdict(&rewritten, 6), "stale", "cut off, and written after");
    }

    #[test]
    fn differences_are_named() {
        let mut names = Names::default();
        names.files.insert("a".to_owned(), 1);
        let mut found = names.clone();
        assert_eq!(names.difference(&found), "");
        found.files.insert("a".to_owned(), 2);
        found.dirs.insert("d".to_owned(), 0o755);
        assert_eq!(names.difference(&found), "directory d should not exist; name a has 2, not 1");
    }
}
