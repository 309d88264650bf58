//! What programs do to a store before its power is cut: operations from a seed, and the log of them.

use crate::objects::SLOTS;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// Names of files; those with a slash need their directory.
const FILES: [&str; 9] = ["a", "b", "c", "d", "e", "d0/a", "d0/b", "d1/a", "d1/b"];
const DIRS: [&str; 2] = ["d0", "d1"];
/// Where new versions of files are prepared.
const TEMPORARY: [&str; 2] = ["new1", "new2"];
/// Names of symbolic links.
const SYMLINKS: [&str; 2] = ["s0", "d1/s1"];
const XATTRS: [&str; 2] = ["user.one", "user.two"];
/// The largest file, about.
const SIZE_MAX: u64 = 40_000;

/// References that are held at most, about.
const HELD_MAX: usize = 6;

/// One operation on a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// The store is opened for the first time.
    Begin,
    /// Opens a file, creating it if need be, and with `truncate` cutting it to nothing.
    Open {
        name: String,
        truncate: bool,
    },
    Write {
        name: String,
        offset: u64,
        size_bytes: u64,
    },
    Append {
        name: String,
        size_bytes: u64,
    },
    Resize {
        name: String,
        size_bytes: u64,
    },
    /// The space below a part of a file is changed.
    Space {
        name: String,
        offset: u64,
        size_bytes: u64,
        what: SpaceOperation,
    },
    /// A file is made without a name, written, and then given one.
    CreateUnnamed {
        name: String,
        size_bytes: u64,
    },
    /// A symbolic link is made, or removed if there is one.
    Symlink {
        name: String,
    },
    Fsync {
        name: String,
        data_only: bool,
    },
    /// `fsync` of the root directory.
    FsyncNames,
    /// The oldest of the references that opens took is given back.
    Close,
    Rename {
        from: String,
        to: String,
    },
    Exchange {
        one: String,
        other: String,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        name: String,
    },
    MakeDir {
        name: String,
    },
    RemoveDir {
        name: String,
    },
    SetMode {
        name: String,
        mode: u32,
    },
    SetTime {
        name: String,
    },
    SetXattr {
        name: String,
        key: String,
        value: String,
    },
    RemoveXattr {
        name: String,
        key: String,
    },
    /// Something is done to the detached object in this slot.
    Object {
        slot: usize,
        what: ObjectOperation,
    },
    /// What a server does every second.
    Periodic,
    /// What a server does every few seconds: it puts names and attributes on stable storage.
    PeriodicSync,
    /// What it does beside that: it puts files that are not being written, and their checksums, on stable storage.
    Settle,
    /// The kernel writes files of the store's back early, as it may at any time; the number says which.
    Writeback {
        number: u32,
    },
    /// The kernel writes everything back: from here on a power cut is what a kill of the server is.
    WriteAllBack,
    /// The server is stopped, in order (everything is on stable storage then) or not, and started again.
    Restart {
        is_clean: bool,
    },
}

/// What can be done to space; a file grows only by the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpaceOperation {
    /// The part becomes a hole.
    Punch,
    /// The part becomes zeros.
    Zero,
    /// The part becomes zeros, and the file ends behind it at the earliest.
    ZeroAndGrow,
    /// The part has room, and the file ends behind it at the earliest.
    AllocateAndGrow,
}

impl SpaceOperation {
    const ALL: [Self; 4] = [Self::Punch, Self::Zero, Self::ZeroAndGrow, Self::AllocateAndGrow];

    /// Whether it can move the end of the file.
    pub fn grows(self) -> bool {
        matches!(self, Self::ZeroAndGrow | Self::AllocateAndGrow)
    }
}

/// One operation on a detached object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectOperation {
    Write { offset: u64, size_bytes: u64 },
    Sync,
    Cut { size_bytes: u64 },
    Remove,
}

/// What the choice of the next operations depends on.
pub struct Present {
    /// Names of files that exist, with their sizes.
    pub files: Vec<(String, u64)>,
    /// Directories that exist.
    pub dirs: Vec<String>,
    /// How many references are held.
    pub held: usize,
    /// Symbolic links that exist.
    pub symlinks: Vec<String>,
    /// Extended attributes that exist: file and name.
    pub xattrs: Vec<(String, String)>,
    /// Sizes of the detached objects.
    pub objects: [u64; SLOTS],
}

/// The next few operations; each can be carried out if those before it were.
pub fn next(present: &Present, chance: &mut impl Rng) -> Vec<Operation> {
    if chance.random_bool(0.2) {
        return on_object(present, chance);
    }
    let free: Vec<&str> = FILES.into_iter().filter(|name| present.may_create(name)).collect();
    let Some((name, size)) = present.files.choose(chance).cloned() else {
        return create(free[0], chance);
    };
    let other = present.files.choose(chance).map(|(name, _)| name.clone()).filter(|other| *other != name);
    let open = |name: &str, truncate| Operation::Open { name: name.to_owned(), truncate };
    let mut plan = match (chance.random_range(0..100), free.choose(chance)) {
        (0..14, Some(new)) => create(new, chance),
        (0..22, _) => {
            let offset = chance.random_range(0..=size.saturating_sub(1));
            vec![open(&name, false), write(&name, offset, chance)]
        }
        (22..27, _) if size < SIZE_MAX => {
            let size_bytes = some_size(chance);
            vec![open(&name, false), Operation::Append { name: name.clone(), size_bytes }]
        }
        (27..31, _) if size < SIZE_MAX => {
            vec![open(&name, false), write(&name, size + chance.random_range(1..20_000), chance)]
        }
        (22..34, _) => vec![open(&name, false), space(&name, size, chance)],
        (34..48, _) => replace_by_rename(&name, chance),
        (48..57, _) => {
            let mut plan = vec![open(&name, true)];
            plan.extend((0..chance.random_range(0..3)).map(|_| write(&name, 0, chance)));
            plan
        }
        (57..63, _) => {
            let mut plan = vec![Operation::Unlink { name: name.clone() }];
            plan.extend(create(&name, chance));
            plan
        }
        (63..67, _) if other.is_some() => {
            vec![Operation::Exchange { one: name.clone(), other: other.unwrap_or_default() }]
        }
        (63..70, Some(new)) => vec![Operation::Link { from: name.clone(), to: (*new).to_owned() }],
        (70..74, Some(new)) => vec![Operation::Rename { from: name.clone(), to: (*new).to_owned() }],
        (74..78, _) => vec![Operation::Unlink { name: name.clone() }],
        (78..84, _) => {
            let size_bytes = chance.random_range(0..=size + size / 4 + 2);
            let mut plan = vec![open(&name, false), Operation::Resize { name: name.clone(), size_bytes }];
            if chance.random_bool(0.5) {
                plan.push(write(&name, size_bytes + chance.random_range(0..9000), chance));
            }
            plan
        }
        (84..90, _) => vec![attribute(&name, present, chance)],
        (90..92, Some(new)) => {
            vec![Operation::CreateUnnamed { name: (*new).to_owned(), size_bytes: some_size(chance) }]
        }
        (90..94, _) => directory(present, chance),
        (94..96, _) => (0..3).flat_map(|_| [Operation::Periodic, writeback(chance)]).collect(),
        (96..98, _) => vec![Operation::Restart { is_clean: chance.random_bool(0.5) }],
        _ => vec![Operation::WriteAllBack],
    };
    // The kernel may put any part of it on the disk before the rest.
    if chance.random_bool(0.4) {
        plan.push(writeback(chance));
    }
    let touched = plan.iter().rev().find_map(Operation::file).map(str::to_owned);
    match touched
        .filter(|touched| !plan.contains(&Operation::Unlink { name: touched.clone() }) || has_open(&plan, touched))
    {
        Some(name) if chance.random_bool(0.4) => {
            plan.push(Operation::Fsync { name, data_only: chance.random_bool(0.5) })
        }
        _ => {}
    }
    if chance.random_bool(0.08) {
        plan.push(Operation::FsyncNames);
    }
    if chance.random_bool(0.15) {
        plan.push(Operation::Periodic);
    }
    if chance.random_bool(0.04) {
        plan.push(Operation::PeriodicSync);
    }
    if chance.random_bool(0.1) {
        plan.push(Operation::Settle);
    }
    if present.held > HELD_MAX || (present.held > 0 && chance.random_bool(0.4)) {
        plan.push(Operation::Close);
    }
    plan
}

fn on_object(present: &Present, chance: &mut impl Rng) -> Vec<Operation> {
    let slot = chance.random_range(0..SLOTS);
    let size = present.objects[slot];
    let of_slot = |what| Operation::Object { slot, what };
    let offset = if size < SIZE_MAX && chance.random_bool(0.6) { size } else { chance.random_range(0..=size) };
    let write = ObjectOperation::Write { offset, size_bytes: some_size(chance) };
    let cut = ObjectOperation::Cut { size_bytes: chance.random_range(0..=size) };
    let mut plan = match chance.random_range(0..10) {
        0..6 => vec![of_slot(write)],
        6 => vec![of_slot(cut)],
        7 => vec![of_slot(cut), of_slot(write)],
        8 => vec![of_slot(ObjectOperation::Write { offset: size + chance.random_range(0..9000), size_bytes: 5000 })],
        _ if size > 0 => vec![of_slot(ObjectOperation::Remove), of_slot(write)],
        _ => vec![of_slot(write)],
    };
    if chance.random_bool(0.4) {
        plan.push(writeback(chance));
    }
    if chance.random_bool(0.4) {
        plan.push(of_slot(ObjectOperation::Sync));
    }
    if chance.random_bool(0.2) {
        plan.push(Operation::Settle);
    }
    plan
}

fn create(name: &str, chance: &mut impl Rng) -> Vec<Operation> {
    let mut plan = vec![Operation::Open { name: name.to_owned(), truncate: false }];
    plan.extend((0..chance.random_range(0..3)).map(|_| write(name, 0, chance)));
    plan
}

fn replace_by_rename(name: &str, chance: &mut impl Rng) -> Vec<Operation> {
    let temporary = TEMPORARY[chance.random_range(0..2)].to_owned();
    let mut plan = vec![Operation::Open { name: temporary.clone(), truncate: true }, write(&temporary, 0, chance)];
    if chance.random_bool(0.7) {
        plan.push(Operation::Fsync { name: temporary.clone(), data_only: chance.random_bool(0.5) });
    }
    plan.push(Operation::Rename { from: temporary, to: name.to_owned() });
    plan
}

fn attribute(name: &str, present: &Present, chance: &mut impl Rng) -> Operation {
    let name = name.to_owned();
    match (chance.random_range(0..6), present.xattrs.choose(chance)) {
        (0, _) => Operation::SetMode { name, mode: chance.random_range(0..0o1000) },
        (1, _) => Operation::SetTime { name },
        (2, Some((name, key))) => Operation::RemoveXattr { name: name.clone(), key: key.clone() },
        _ => {
            let key = XATTRS[chance.random_range(0..2)].to_owned();
            let value = "x".repeat(chance.random_range(1..300)) + &chance.random_range(0..1000).to_string();
            Operation::SetXattr { name, key, value }
        }
    }
}

fn directory(present: &Present, chance: &mut impl Rng) -> Vec<Operation> {
    let link = SYMLINKS[chance.random_range(0..2)];
    if chance.random_bool(0.4) && present.has_place(link) {
        return vec![Operation::Symlink { name: link.to_owned() }];
    }
    let name = DIRS[chance.random_range(0..2)].to_owned();
    let inside = format!("{name}/");
    if !present.dirs.contains(&name) {
        return vec![Operation::MakeDir { name }];
    }
    // Emptied first, all names are free afterwards.
    let files = present.files.iter().filter(|(file, _)| file.starts_with(&inside));
    let mut plan: Vec<_> = files.map(|(file, _)| Operation::Unlink { name: file.clone() }).collect();
    let links = present.symlinks.iter().filter(|link| link.starts_with(&inside));
    plan.extend(links.map(|link| Operation::Symlink { name: link.clone() }));
    plan.push(Operation::RemoveDir { name });
    plan
}

fn write(name: &str, offset: u64, chance: &mut impl Rng) -> Operation {
    Operation::Write { name: name.to_owned(), offset, size_bytes: some_size(chance) }
}

fn space(name: &str, size: u64, chance: &mut impl Rng) -> Operation {
    let what = SpaceOperation::ALL[chance.random_range(0..SpaceOperation::ALL.len())];
    let offset = chance.random_range(0..=size);
    Operation::Space { name: name.to_owned(), offset, size_bytes: some_size(chance), what }
}

fn some_size(chance: &mut impl Rng) -> u64 {
    match chance.random_range(0..4) {
        0 => chance.random_range(1..200),
        1 => 4096 * chance.random_range(1..4),
        _ => chance.random_range(1..20_000),
    }
}

fn writeback(chance: &mut impl Rng) -> Operation {
    Operation::Writeback { number: chance.random() }
}

fn has_open(plan: &[Operation], wanted: &str) -> bool {
    plan.iter().any(|operation| matches!(operation, Operation::Open { name, .. } if name == wanted))
}

impl Present {
    /// Whether the directory of `name` is there.
    fn has_place(&self, name: &str) -> bool {
        name.split_once('/').is_none_or(|(dir, _)| self.dirs.iter().any(|there| there == dir))
    }

    fn may_create(&self, name: &str) -> bool {
        self.has_place(name) && !self.files.iter().any(|(there, _)| there == name)
    }
}

impl Operation {
    /// The file that it leaves behind changed, by its name afterwards.
    fn file(&self) -> Option<&str> {
        match self {
            Self::Open { name, .. }
            | Self::Write { name, .. }
            | Self::Append { name, .. }
            | Self::Resize { name, .. }
            | Self::Space { name, .. }
            | Self::CreateUnnamed { name, .. }
            | Self::Fsync { name, .. }
            | Self::Unlink { name }
            | Self::SetMode { name, .. }
            | Self::SetTime { name }
            | Self::SetXattr { name, .. }
            | Self::RemoveXattr { name, .. } => Some(name),
            Self::Rename { to, .. } | Self::Link { to, .. } => Some(to),
            Self::Exchange { one, .. } => Some(one),
            _ => None,
        }
    }
}
