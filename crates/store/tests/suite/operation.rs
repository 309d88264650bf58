//! The operations of the comparison with a local file system.

use isonomia_store::RenameHow;
use proptest::prelude::*;

/// Files that are open at once.
pub const HANDLES: usize = 3;

#[derive(Clone, Debug)]
pub enum Op {
    Open {
        path: String,
        slot: usize,
        access: u32,
        create: bool,
        exclusive: bool,
        truncate: bool,
        dir: bool,
        no_follow: bool,
        mode: u32,
    },
    Close {
        slot: usize,
    },
    Write {
        slot: usize,
        offset: u64,
        len: usize,
        fill: u8,
    },
    Append {
        slot: usize,
        len: usize,
        fill: u8,
    },
    Read {
        slot: usize,
        offset: u64,
        len: usize,
    },
    Resize {
        slot: usize,
        size: u64,
    },
    StatHandle {
        slot: usize,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Rmdir {
        path: String,
    },
    Unlink {
        path: String,
    },
    Rename {
        path: String,
        path2: String,
        how: RenameHow,
    },
    Link {
        path: String,
        path2: String,
        follow: bool,
    },
    Symlink {
        text: String,
        path: String,
    },
    Readlink {
        path: String,
    },
    Socket {
        path: String,
        mode: u32,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Chown {
        path: String,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    },
    Times {
        path: String,
        atime: Option<Option<i64>>,
        mtime: Option<Option<i64>>,
        follow: bool,
    },
    Stat {
        path: String,
        follow: bool,
    },
    List {
        path: String,
    },
}

fn path() -> impl Strategy<Value = String> {
    let component = prop_oneof![
        20 => prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned),
        1 => Just(".".to_owned()),
        2 => Just("..".to_owned()),
        1 => prop::sample::select(vec![255usize, 256]).prop_map(|n| "n".repeat(n)),
    ];
    (prop::collection::vec(component, 1..4), prop::bool::weighted(0.07))
        .prop_map(|(parts, slash)| parts.join("/") + if slash { "/" } else { "" })
}

fn mode() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => prop::sample::select(vec![0o777u32, 0o755, 0o700, 0o644, 0o666, 0o070, 0o007, 0o000]),
        1 => prop::sample::select(vec![0o1777u32, 0o2775, 0o2777, 0o4755, 0o6755, 0o2644, 0o3777]),
    ]
}

/// Any operation, likely enough to hit what others made.
pub fn op() -> impl Strategy<Value = Op> {
    let slot = 0..HANDLES;
    let offset = prop_oneof![0u64..40_000, Just(4096), Just(8192), Just(1 << 33)];
    let size = prop_oneof![0u64..40_000, Just(0), Just(4096), Just(12_288), Just(i64::MAX as u64 + 1)];
    let owner = prop::option::of(prop::sample::select(vec![0u32, 1000, 1001]));
    let group = prop::option::of(prop::sample::select(vec![0u32, 100, 200]));
    let time = prop::option::of(prop::option::of(0i64..2_000_000_000));
    let flags = (
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.2),
    );
    let how =
        prop::sample::select(vec![RenameHow::Replace, RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange]);
    prop_oneof![
        6 => (path(), slot.clone(), 0u32..4, flags, mode()).prop_map(|(path, slot, access, f, mode)| Op::Open {
            path, slot, access: access.max(1), create: f.0, exclusive: f.1, truncate: f.2, dir: f.3 && !f.0, no_follow: f.4, mode
        }),
        1 => slot.clone().prop_map(|slot| Op::Close { slot }),
        4 => (slot.clone(), offset.clone(), 0usize..20_000, any::<u8>()).prop_map(|(slot, offset, len, fill)| Op::Write { slot, offset, len, fill }),
        2 => (slot.clone(), 0usize..10_000, any::<u8>()).prop_map(|(slot, len, fill)| Op::Append { slot, len, fill }),
        3 => (slot.clone(), offset, 0usize..50_000).prop_map(|(slot, offset, len)| Op::Read { slot, offset, len }),
        2 => (slot.clone(), size).prop_map(|(slot, size)| Op::Resize { slot, size }),
        1 => slot.prop_map(|slot| Op::StatHandle { slot }),
        5 => (path(), mode()).prop_map(|(path, mode)| Op::Mkdir { path, mode }),
        2 => path().prop_map(|path| Op::Rmdir { path }),
        3 => path().prop_map(|path| Op::Unlink { path }),
        5 => (path(), path(), how).prop_map(|(path, path2, how)| Op::Rename { path, path2, how }),
        2 => (path(), path(), any::<bool>()).prop_map(|(path, path2, follow)| Op::Link { path, path2, follow }),
        2 => (path(), path()).prop_map(|(text, path)| Op::Symlink { text, path }),
        1 => path().prop_map(|path| Op::Readlink { path }),
        1 => (path(), mode()).prop_map(|(path, mode)| Op::Socket { path, mode }),
        3 => (path(), mode()).prop_map(|(path, mode)| Op::Chmod { path, mode }),
        2 => (path(), owner, group, any::<bool>()).prop_map(|(path, uid, gid, follow)| Op::Chown { path, uid, gid, follow }),
        1 => (path(), time.clone(), time, any::<bool>()).prop_map(|(path, atime, mtime, follow)| Op::Times { path, atime, mtime, follow }),
        2 => (path(), any::<bool>()).prop_map(|(path, follow)| Op::Stat { path, follow }),
        2 => path().prop_map(|path| Op::List { path }),
    ]
}
