//! Extended attributes: random sequences of operations by several users on the store and on a real file system must
//! agree in every result and every error number; then the limits, and what becomes of them with their inode.

use crate::kernel::{Kernel, Who, is_root};
use crate::scratch::{ALICE, ROOT, at, config, open, scratch_dir};
use isonomia_proto::fs::{FileKind, access};
use isonomia_store::{Caller, OpenHow, RenameHow, SetAttr, Store, StoreConfig, StoreError, XATTRS_BYTES_MAX, XattrHow};
use isonomia_testbed::skip;
use isonomia_units::Ino;
use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

const USERS: [Who; 2] = [Who(0, 0, &[]), Who(1000, 100, &[])];
/// A link to `f`, and a socket, are there from the beginning.
const PATHS: [&str; 6] = ["f", "g", "d", "d/f", "link", "socket"];
const NAMES: [&str; 4] = ["user.a", "user.b", "user.a.longer", "user."];
const LEN_MAX: usize = 4096;

#[derive(Clone, Debug)]
enum Op {
    Set { path: usize, follow: bool, name: usize, value: Vec<u8>, how: XattrHow },
    Get { path: usize, follow: bool, name: usize },
    List { path: usize, follow: bool },
    Remove { path: usize, follow: bool, name: usize },
    SetOpen { name: usize, value: Vec<u8> },
    RemoveOpen { name: usize },
    Open { path: usize },
    Close,
    Create { path: usize },
    Mkdir { path: usize },
    Unlink { path: usize },
    Rmdir { path: usize },
    Rename { from: usize, to: usize },
    Link { from: usize, to: usize },
    Chmod { path: usize, mode: u32 },
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let path = || 0..PATHS.len();
    let name = || 0..NAMES.len();
    let value = || proptest::collection::vec(any::<u8>(), 0..200);
    let how = prop::sample::select(vec![XattrHow::Either, XattrHow::Either, XattrHow::Create, XattrHow::Replace]);
    let mode = prop::sample::select(vec![0o777u32, 0o755, 0o444, 0o000, 0o1777]);
    prop_oneof![
        8 => (path(), any::<bool>(), name(), value(), how)
            .prop_map(|(path, follow, name, value, how)| Op::Set { path, follow, name, value, how }),
        4 => (path(), any::<bool>(), name()).prop_map(|(path, follow, name)| Op::Get { path, follow, name }),
        3 => (path(), any::<bool>()).prop_map(|(path, follow)| Op::List { path, follow }),
        4 => (path(), any::<bool>(), name()).prop_map(|(path, follow, name)| Op::Remove { path, follow, name }),
        2 => (name(), value()).prop_map(|(name, value)| Op::SetOpen { name, value }),
        1 => name().prop_map(|name| Op::RemoveOpen { name }),
        2 => path().prop_map(|path| Op::Open { path }),
        1 => Just(Op::Close),
        3 => path().prop_map(|path| Op::Create { path }),
        2 => path().prop_map(|path| Op::Mkdir { path }),
        2 => path().prop_map(|path| Op::Unlink { path }),
        1 => path().prop_map(|path| Op::Rmdir { path }),
        2 => (path(), path()).prop_map(|(from, to)| Op::Rename { from, to }),
        2 => (path(), path()).prop_map(|(from, to)| Op::Link { from, to }),
        2 => (path(), mode).prop_map(|(path, mode)| Op::Chmod { path, mode }),
        1 => Just(Op::Crash),
    ]
}

struct World {
    _dir: tempfile::TempDir,
    config: StoreConfig,
    store: Option<Store>,
    kernel: Kernel,
    /// What stands before a path: nothing for root, whose thread has the directory as its root.
    reference: PathBuf,
    open: Option<(Ino, Arc<OwnedFd>)>,
    clock: i64,
}

type Outcome = Result<Vec<u8>, u32>;

impl World {
    fn new() -> Self {
        let dir = scratch_dir();
        let reference = dir.path().join("reference");
        std::fs::create_dir(&reference).unwrap();
        rustix::fs::chmod(&reference, Mode::from_raw_mode(0o777)).unwrap();
        let mut config = config(dir.path(), 2);
        config.root_mode = 0o777;
        // So that they come back from the database.
        config.bounds.inodes = 32;
        let store = Some(Store::open(&config).unwrap());
        let kernel = Kernel::new(&reference);
        let reference = if is_root() { PathBuf::new() } else { reference };
        let world = Self { _dir: dir, config, store, kernel, reference, open: None, clock: 1_000 };
        world.store().symlink(&ROOT, b"f", Ino::ROOT, b"link", at(1)).unwrap();
        world.store().mknod(&ROOT, Ino::ROOT, b"socket", FileKind::Socket.mode_bits() | 0o777, 0, at(1)).unwrap();
        let (link, socket) = (world.reference.join("link"), world.reference.join("socket"));
        let made = world.kernel.run(USERS[0], move || {
            rustix::fs::symlink("f", link)?;
            rustix::fs::mknodat(CWD, socket, FileType::Socket, Mode::from_raw_mode(0o777), 0)
        });
        made.unwrap();
        world
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn kernel(&self, who: Who, call: impl FnOnce() -> Result<Vec<u8>, Errno> + Send + 'static) -> Outcome {
        self.kernel.run(who, call).map_err(|e| e.raw_os_error() as u32)
    }

    fn step(&mut self, who: Who, op: &Op) {
        let (ours, theirs) = self.both(who, op.clone());
        assert_eq!(ours, theirs, "store on the left, kernel on the right: {op:?} as {who:?}");
    }

    fn both(&mut self, who: Who, op: Op) -> (Outcome, Outcome) {
        self.clock += 1;
        let now = at(self.clock);
        let caller = &Caller { uid: who.0, gid: who.1, groups: who.2 };
        let at_root = |path: usize| (Ino::ROOT, PATHS[path].as_bytes());
        let reference = self.reference.clone();
        let there = |path: usize| reference.join(PATHS[path]);
        let done = |result: Result<(), StoreError>| result.map(|()| Vec::new()).map_err(|e| e.errno());
        let nothing = |()| Vec::new();
        match op {
            Op::Set { path, follow, name, value, how } => {
                let (dir, text) = at_root(path);
                let name = NAMES[name];
                let ours = done(self.store().set_xattr(caller, dir, text, follow, name.as_bytes(), &value, how, now));
                if ours.is_ok() {
                    assert_eq!(self.store().get_attr(&ROOT, dir, text, follow).unwrap().ctime, now);
                }
                let flags = match how {
                    XattrHow::Create => XattrFlags::CREATE,
                    XattrHow::Replace => XattrFlags::REPLACE,
                    XattrHow::Either | XattrHow::Neither => XattrFlags::empty(),
                };
                let set = if follow { rustix::fs::setxattr } else { rustix::fs::lsetxattr };
                let place = there(path);
                (ours, self.kernel(who, move || set(place, name, &value, flags).map(nothing)))
            }
            Op::Get { path, follow, name } => {
                let (dir, text) = at_root(path);
                let name = NAMES[name];
                let ours =
                    self.store().namespace().get_xattr(caller, dir, text, follow, name.as_bytes(), <[u8]>::to_vec);
                let place = there(path);
                (ours.map_err(|e| e.errno()), self.kernel(who, move || value(&place, name, follow)))
            }
            Op::List { path, follow } => {
                let (dir, text) = at_root(path);
                let ours = self.store().namespace().list_xattrs(caller, dir, text, follow).map_err(|e| e.errno());
                let place = there(path);
                (ours.map(sorted), self.kernel(who, move || names(&place, follow)))
            }
            Op::Remove { path, follow, name } => {
                let (dir, text) = at_root(path);
                let name = NAMES[name];
                let ours = done(self.store().namespace().remove_xattr(caller, dir, text, follow, name.as_bytes(), now));
                let remove = if follow { rustix::fs::removexattr } else { rustix::fs::lremovexattr };
                let place = there(path);
                (ours, self.kernel(who, move || remove(place, name).map(nothing)))
            }
            Op::SetOpen { name, value } => {
                let Some((ino, fd)) = self.open.clone() else { return same() };
                let name = NAMES[name];
                let how = XattrHow::Either;
                let ours = done(self.store().set_xattr(caller, ino, b"", true, name.as_bytes(), &value, how, now));
                (
                    ours,
                    self.kernel(who, move || rustix::fs::fsetxattr(fd, name, &value, XattrFlags::empty()).map(nothing)),
                )
            }
            Op::RemoveOpen { name } => {
                let Some((ino, fd)) = self.open.clone() else { return same() };
                let name = NAMES[name];
                let ours = done(self.store().namespace().remove_xattr(caller, ino, b"", true, name.as_bytes(), now));
                (ours, self.kernel(who, move || rustix::fs::fremovexattr(fd, name).map(nothing)))
            }
            Op::Open { path } => {
                self.close();
                let (dir, text) = at_root(path);
                let how = OpenHow { access: access::READ, no_follow: true, ..OpenHow::default() };
                let ours = self.store().open_file(&ROOT, dir, text, &how, now);
                let place = there(path);
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let theirs = self.kernel.run(USERS[0], move || rustix::fs::open(place, flags, Mode::empty()));
                assert_eq!(ours.is_ok(), theirs.is_ok(), "{ours:?} {theirs:?}");
                if let (Ok(opened), Ok(fd)) = (ours, theirs) {
                    self.open = Some((opened.ino, Arc::new(fd)));
                }
                same()
            }
            Op::Close => {
                self.close();
                same()
            }
            Op::Create { path } => {
                let (dir, text) = at_root(path);
                let how = OpenHow { create: true, exclusive: true, mode: 0o666, ..OpenHow::default() };
                let ours = self.store().open_file(&ROOT, dir, text, &how, now);
                if let Ok(opened) = &ours {
                    self.store().release(opened.ino).unwrap();
                }
                let place = there(path);
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let theirs = move || rustix::fs::open(place, flags, Mode::from_raw_mode(0o666)).map(|_| Vec::new());
                (done(ours.map(drop)), self.kernel(USERS[0], theirs))
            }
            Op::Mkdir { path } => {
                let (dir, text) = at_root(path);
                let ours = done(self.store().mkdir(&ROOT, dir, text, 0o777, now).map(drop));
                let place = there(path);
                (ours, self.kernel(USERS[0], move || rustix::fs::mkdir(place, Mode::from_raw_mode(0o777)).map(nothing)))
            }
            Op::Unlink { path } => {
                let (dir, text) = at_root(path);
                let ours = done(self.store().unlink(&ROOT, dir, text, now));
                let place = there(path);
                (ours, self.kernel(USERS[0], move || rustix::fs::unlink(place).map(nothing)))
            }
            Op::Rmdir { path } => {
                let (dir, text) = at_root(path);
                let ours = done(self.store().rmdir(&ROOT, dir, text, now));
                let place = there(path);
                (ours, self.kernel(USERS[0], move || rustix::fs::rmdir(place).map(nothing)))
            }
            Op::Rename { from, to } => {
                let ((dir, text), (dir2, text2)) = (at_root(from), at_root(to));
                let ours = done(self.store().rename(&ROOT, dir, text, dir2, text2, RenameHow::Replace, now));
                let (place, place2) = (there(from), there(to));
                (ours, self.kernel(USERS[0], move || rustix::fs::rename(place, place2).map(nothing)))
            }
            Op::Link { from, to } => {
                let ((dir, text), (dir2, text2)) = (at_root(from), at_root(to));
                let ours = done(self.store().link(&ROOT, dir, text, false, dir2, text2, now).map(drop));
                let (place, place2) = (there(from), there(to));
                let link = move || rustix::fs::linkat(CWD, place, CWD, place2, AtFlags::empty()).map(nothing);
                (ours, self.kernel(USERS[0], link))
            }
            Op::Chmod { path, mode } => {
                let (dir, text) = at_root(path);
                let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
                let ours = done(self.store().set_attr(&ROOT, dir, text, true, &change, now).map(drop));
                let place = there(path);
                (ours, self.kernel(USERS[0], move || rustix::fs::chmod(place, Mode::from_raw_mode(mode)).map(nothing)))
            }
            Op::Crash => {
                self.open = None;
                drop(self.store.take());
                self.store = Some(Store::open(&self.config).unwrap());
                same()
            }
        }
    }

    fn close(&mut self) {
        if let Some((ino, _)) = self.open.take() {
            self.store().release(ino).unwrap();
        }
    }
}

fn same() -> (Outcome, Outcome) {
    (Ok(Vec::new()), Ok(Vec::new()))
}

fn value(place: &PathBuf, name: &str, follow: bool) -> Result<Vec<u8>, Errno> {
    let mut room = [0; LEN_MAX];
    let len = if follow {
        rustix::fs::getxattr(place, name, &mut room[..])?
    } else {
        rustix::fs::lgetxattr(place, name, &mut room[..])?
    };
    Ok(room[..len].to_vec())
}

fn names(place: &PathBuf, follow: bool) -> Result<Vec<u8>, Errno> {
    let mut room = [0; LEN_MAX];
    let len = if follow {
        rustix::fs::listxattr(place, &mut room[..])?
    } else {
        rustix::fs::llistxattr(place, &mut room[..])?
    };
    Ok(sorted(room[..len].to_vec()))
}

/// The names in one order: file systems have none.
fn sorted(list: Vec<u8>) -> Vec<u8> {
    let mut names: Vec<_> = list.split_inclusive(|b| *b == 0).filter(|name| name.starts_with(b"user.")).collect();
    names.sort_unstable();
    names.concat()
}

#[test]
fn behave_like_those_of_a_local_file_system() {
    // Linux before 6.6 has none on tmpfs.
    if rustix::fs::setxattr(scratch_dir().path(), "user.probe", b"", XattrFlags::empty()).is_err() {
        return skip("the file system to compare with keeps no extended attributes");
    }
    rustix::process::umask(Mode::empty());
    let own = Who(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw(), &[]);
    let config =
        ProptestConfig { cases: 64, max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(ops in prop::collection::vec((0usize..2, op()), 1..150))| {
        let mut world = World::new();
        for (user, op) in &ops {
            world.step(if is_root() { USERS[*user] } else { own }, op);
        }
    });
}

fn set(store: &Store, ino: Ino, name: &str, value: &[u8]) -> Result<(), StoreError> {
    store.set_xattr(&ROOT, ino, b"", true, name.as_bytes(), value, XattrHow::Either, at(9))
}

fn get(store: &Store, ino: Ino, name: &str) -> Result<Vec<u8>, StoreError> {
    store.namespace().get_xattr(&ROOT, ino, b"", true, name.as_bytes(), <[u8]>::to_vec)
}

#[test]
fn limits_are_refused_by_name() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    let ino = open(&store, "f").ino;
    let longest = format!("user.{}", "n".repeat(250));
    set(&store, ino, &longest, &[7; 65_536]).unwrap();
    assert_eq!(get(&store, ino, &longest).unwrap(), [7; 65_536]);
    assert!(matches!(set(&store, ino, &format!("{longest}n"), b""), Err(StoreError::Range)));
    assert!(matches!(get(&store, ino, ""), Err(StoreError::Range)));
    assert!(matches!(set(&store, ino, "user.big", &[0; 65_537]), Err(StoreError::TooBig)));
    for other in ["trusted.a", "security.capability", "system.posix_acl_access", "User.a", "user"] {
        assert!(matches!(set(&store, ino, other, b"x"), Err(StoreError::NotSupported)), "{other}");
        assert!(matches!(get(&store, ino, other), Err(StoreError::NotSupported)), "{other}");
    }
    // As many values as there is room for, and not one byte more.
    for name in ["user.2", "user.3"] {
        set(&store, ino, name, &[0; 65_536]).unwrap();
    }
    let names_len = longest.len() + 1 + 3 * "user.2\0".len();
    let left = XATTRS_BYTES_MAX - 3 * 65_536 - names_len;
    assert!(matches!(set(&store, ino, "user.4", &vec![0; left + 1]), Err(StoreError::NoSpace)));
    set(&store, ino, "user.4", &vec![0; left]).unwrap();
    set(&store, ino, "user.4", &vec![1; left]).unwrap();
    assert!(matches!(set(&store, ino, "user.5", b""), Err(StoreError::NoSpace)));
}

#[test]
fn a_list_is_never_longer_than_a_program_can_ask_for() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    let ino = open(&store, "f").ino;
    let name = |i: u32| format!("user.{i:0>250}");
    for i in 0..256 {
        set(&store, ino, &name(i), b"").unwrap();
    }
    assert!(matches!(set(&store, ino, "user.one.more", b""), Err(StoreError::NoSpace)));
    assert_eq!(store.namespace().list_xattrs(&ROOT, ino, b"", true).unwrap().len(), 65_536);
    store.namespace().remove_xattr(&ROOT, ino, b"", true, name(7).as_bytes(), at(10)).unwrap();
    set(&store, ino, "user.one.more", b"").unwrap();
}

#[test]
fn in_a_sticky_directory_only_the_owner_sets_them() {
    let dir = scratch_dir();
    let store = Store::open(&config(dir.path(), 1)).unwrap();
    store.mkdir(&ROOT, Ino::ROOT, b"tmp", 0o777, at(1)).unwrap();
    let set = |path: &[u8]| store.set_xattr(&ALICE, Ino::ROOT, path, true, b"user.a", b"x", XattrHow::Either, at(2));
    set(b"tmp").unwrap();
    let sticky = SetAttr { mode: Some(0o1777), ..SetAttr::default() };
    store.set_attr(&ROOT, Ino::ROOT, b"tmp", true, &sticky, at(3)).unwrap();
    assert!(matches!(set(b"tmp"), Err(StoreError::NotPermitted)));
    let own = SetAttr { uid: Some(ALICE.uid), ..SetAttr::default() };
    store.set_attr(&ROOT, Ino::ROOT, b"tmp", true, &own, at(4)).unwrap();
    set(b"tmp").unwrap();
}
