//! Operations, drawn at random.

use isonomia_conformance::model::Person;
use isonomia_conformance::{OpenHow, Operation, RenameHow, SLOTS, XattrHow};
use proptest::prelude::*;
use proptest::sample::select;

/// What a case may have.
#[derive(Clone, Copy, Debug)]
pub struct Bits {
    /// Sticky ones too.
    pub sticky: bool,
    /// Sockets too. In a sticky directory that all may write to Linux gives EACCES and not ENXIO to who opens another
    /// user's with `O_CREAT`, whatever `fs.protected_regular` says; a server gives ENXIO.
    pub sockets: bool,
}

fn path() -> impl Strategy<Value = String> {
    let component = prop_oneof![
        20 => select(vec!["a", "b", "c"]).prop_map(str::to_owned),
        1 => Just(".".to_owned()),
        1 => Just("..".to_owned()),
        1 => select(vec![255usize, 256]).prop_map(|n| "n".repeat(n)),
    ];
    (prop::collection::vec(component, 1..4), prop::bool::weighted(0.07))
        .prop_map(|(parts, slash)| parts.join("/") + if slash { "/" } else { "" })
}

impl Bits {
    /// Permissions of files, and what directories have more.
    fn mode(self) -> impl Strategy<Value = u32> {
        let mode = select(vec![0o777u32, 0o777, 0o755, 0o700, 0o600, 0o644, 0o444, 0o000, 0o1777, 0o2775, 0o2777]);
        mode.prop_map(move |mode| if self.sticky { mode } else { mode & !0o1000 })
    }
}

/// What the people do, one after the other: which one, and what. It may begin with a directory of the first one's that all
/// may write to, of the last one's group.
pub fn deeds(people: &[Person], bits: Bits) -> impl Strategy<Value = Vec<(usize, Operation)>> + use<> {
    let group = people.last().and_then(|person| person.groups.last().copied());
    let shared = select(vec![0o777u32, 0o1777, 0o2777, 0o3777]).prop_map(move |mode| {
        let path = || "a".to_owned();
        let mode = if bits.sticky { mode } else { mode & !0o1000 };
        vec![
            (0, Operation::Mkdir { path: path(), mode: 0o777 }),
            (0, Operation::Chown { path: path(), uid: None, gid: group.or(Some(0)) }),
            (0, Operation::Chmod { path: path(), mode }),
        ]
    });
    let beginning = prop_oneof![Just(Vec::new()), shared];
    (beginning, prop::collection::vec(deed(people, bits), 1..80))
        .prop_map(|(beginning, rest)| [beginning, rest].concat())
}

fn deed(people: &[Person], bits: Bits) -> impl Strategy<Value = (usize, Operation)> + use<> {
    (0..people.len(), operation(people, bits))
}

fn open(bits: Bits) -> impl Strategy<Value = Operation> {
    let flags = prop::collection::vec(prop::bool::weighted(0.25), 5);
    (path(), 0..SLOTS, any::<(bool, bool, bool)>(), flags, bits.mode()).prop_map(
        |(path, slot, (read, write, create), flags, mode)| {
            let how = OpenHow {
                read: read || !write,
                write,
                create,
                append: flags[0] && write,
                exclusive: flags[1] && create,
                truncate: flags[2] && write,
                no_follow: flags[3],
                directory: flags[4] && !create,
                mode: mode & 0o1777,
            };
            Operation::Open { slot, path, how }
        },
    )
}

fn operation(people: &[Person], bits: Bits) -> impl Strategy<Value = Operation> + use<> {
    prop_oneof![45 => contents(bits), 30 => names(bits), 12 => attributes(people, bits)]
}

/// What is done with open files.
fn contents(bits: Bits) -> impl Strategy<Value = Operation> {
    use Operation::{
        Close, Duplicate, ListSlot, MapRead, Read, ReadAt, Resize, Seek, SeekEnd, StatSlot, Sync, Truncate, Write,
        WriteAt,
    };
    let slot = 0..SLOTS;
    let offset = prop_oneof![4 => 0u64..40_000, 1 => Just(4096), 1 => Just(1 << 33)];
    let size = prop_oneof![4 => 0u64..40_000, 1 => Just(0), 1 => Just(1 << 40)];
    prop_oneof![
        12 => open(bits),
        1 => slot.clone().prop_map(|slot| Close { slot }),
        1 => (slot.clone(), slot.clone()).prop_map(|(slot, to)| Duplicate { slot, to }),
        3 => (slot.clone(), 0usize..50_000).prop_map(|(slot, len)| Read { slot, len }),
        4 => (slot.clone(), 0usize..20_000, any::<u8>()).prop_map(|(slot, len, fill)| Write { slot, len, fill }),
        2 => (slot.clone(), offset.clone(), 0usize..50_000).prop_map(|(slot, offset, len)| ReadAt { slot, offset, len }),
        2 => (slot.clone(), offset.clone(), 0usize..20_000, any::<u8>())
            .prop_map(|(slot, offset, len, fill)| WriteAt { slot, offset, len, fill }),
        2 => (slot.clone(), 0u64..12, 1usize..50_000).prop_map(|(slot, page, len)| MapRead { slot, page, len }),
        2 => (slot.clone(), offset).prop_map(|(slot, to)| Seek { slot, to }),
        1 => slot.clone().prop_map(|slot| SeekEnd { slot }),
        2 => (slot.clone(), size.clone()).prop_map(|(slot, size)| Resize { slot, size }),
        1 => (path(), size).prop_map(|(path, size)| Truncate { path, size }),
        1 => slot.clone().prop_map(|slot| Sync { slot }),
        1 => slot.clone().prop_map(|slot| StatSlot { slot }),
        1 => slot.prop_map(|slot| ListSlot { slot }),
    ]
}

/// What is done with names.
fn names(bits: Bits) -> impl Strategy<Value = Operation> {
    use Operation::{Link, List, Mkdir, Readlink, Rename, Rmdir, Socket, Stat, Symlink, Unlink};
    let how = select(vec![RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange]);
    prop_oneof![
        3 => (path(), any::<bool>()).prop_map(|(path, follow)| Stat { path, follow }),
        6 => (path(), bits.mode()).prop_map(|(path, mode)| Mkdir { path, mode }),
        1 => (path(), bits.mode()).prop_map(move |(path, mode)| match bits.sockets {
            true => Socket { path, mode: mode & 0o1777 },
            false => Mkdir { path, mode },
        }),
        2 => path().prop_map(|path| Rmdir { path }),
        3 => path().prop_map(|path| Unlink { path }),
        5 => (path(), path(), how).prop_map(|(path, to, how)| Rename { path, to, how }),
        2 => (path(), path()).prop_map(|(path, to)| Link { path, to }),
        2 => (path(), path()).prop_map(|(text, path)| Symlink { text, path }),
        1 => path().prop_map(|path| Readlink { path }),
        2 => path().prop_map(|path| List { path }),
    ]
}

/// What is done with attributes.
fn attributes(people: &[Person], bits: Bits) -> impl Strategy<Value = Operation> + use<> {
    use Operation::{Access, Chmod, Chown, GetXattr, ListXattrs, RemoveXattr, SetXattr, Times};
    let uid = select(people.iter().map(|person| person.uid).collect::<Vec<_>>());
    let groups = people.iter().flat_map(|person| person.groups.iter().copied().chain([person.gid]));
    let gid = select(groups.collect::<Vec<_>>());
    let owners = prop_oneof![
        uid.clone().prop_map(|uid| (Some(uid), None)),
        gid.clone().prop_map(|gid| (None, Some(gid))),
        (uid, gid).prop_map(|(uid, gid)| (Some(uid), Some(gid))),
    ];
    let name = select(vec!["user.a", "user.b"]).prop_map(str::to_owned);
    let how = select(vec![XattrHow::Either, XattrHow::Create, XattrHow::Replace]);
    prop_oneof![
        2 => (path(), 0u32..8).prop_map(|(path, mask)| Access { path, mask }),
        4 => (path(), bits.mode()).prop_map(|(path, mode)| Chmod { path, mode }),
        3 => (path(), owners).prop_map(|(path, (uid, gid))| Chown { path, uid, gid }),
        2 => (path(), 1i64..900_000_000).prop_map(|(path, secs)| Times { path, secs }),
        2 => (path(), name.clone(), 0usize..300, any::<u8>(), how)
            .prop_map(|(path, name, len, fill, how)| SetXattr { path, name, len, fill, how }),
        1 => (path(), name.clone()).prop_map(|(path, name)| GetXattr { path, name }),
        1 => path().prop_map(|path| ListXattrs { path }),
        1 => (path(), name).prop_map(|(path, name)| RemoveXattr { path, name }),
    ]
}
