//! Random sequences of operations by several users, on the store and on a real file system: every result, every
//! error number, and the trees at the end must agree, also after the store is opened again without a clean close.

use crate::kernel::{self, Kernel, Who, is_root};
use crate::operation::{HANDLES, Op, op};
use isonomia_proto::fs::{Timestamp, access};
use isonomia_store::{
    Bounds, Caller, OpenHow, RenameHow, SetAttr, Store, StoreConfig, StoreError, TargetDir, TimeChange,
};
use isonomia_testbed::is_root_to;
use isonomia_units::{Ino, ServerId, TargetId};
use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

const USERS: [Who; 3] = [Who(0, 0, &[]), Who(1000, 100, &[200]), Who(1001, 200, &[])];

/// What can be compared of an inode's attributes.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    Attr { mode: u32, nlink: u32, uid: u32, gid: u32, size: Option<u64> },
    Bytes(Vec<u8>),
    At(u64, usize),
    Names(Vec<Vec<u8>>),
}

fn attr_answer(mode: u32, nlink: u64, uid: u32, gid: u32, size: u64) -> Answer {
    let directory = mode & 0o170_000 == 0o040_000;
    // Without group execution it means nothing. The kernel takes it from files that others than members write.
    let mode = if directory || mode & 0o010 != 0 { mode } else { mode & !0o2000 };
    Answer::Attr { mode, nlink: nlink as u32, uid, gid, size: (!directory).then_some(size) }
}

fn store_attr(attr: isonomia_proto::fs::Attr) -> Answer {
    attr_answer(attr.mode, attr.nlink.into(), attr.uid, attr.gid, attr.size_bytes)
}

fn kernel_attr(stat: &rustix::fs::Stat) -> Answer {
    attr_answer(stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid, stat.st_size as u64)
}

struct World {
    dir: tempfile::TempDir,
    config: StoreConfig,
    store: Option<Store>,
    kernel: Kernel,
    handles: [Option<(Ino, Arc<OwnedFd>, u32)>; HANDLES],
    clock: i64,
}

impl World {
    fn new() -> Self {
        let dir = crate::scratch::scratch_dir();
        let reference = dir.path().join("reference");
        std::fs::create_dir(&reference).unwrap();
        rustix::fs::chmod(&reference, Mode::from_raw_mode(0o777)).unwrap();
        let targets = (0..3).map(|i| TargetDir { id: TargetId(i), dir: dir.path().join(format!("t{i}")) }).collect();
        let mut config = StoreConfig::new(dir.path().join("store"), ServerId(0), targets);
        config.default_layout.stripe_bytes = 4096;
        config.default_layout.stripe_count = 2;
        config.direct = vec![TargetId(1)];
        config.bounds = Bounds { inodes: 32, entries: 32, objects: 2, sums_bytes: 4096 };
        config.root_mode = 0o777;
        let owner = std::fs::metadata(&reference).unwrap();
        config.root_owner = {
            use std::os::unix::fs::MetadataExt;
            (owner.uid(), owner.gid())
        };
        let store = Some(Store::open(&config).unwrap());
        let kernel = Kernel::new(&reference);
        if !is_root() {
            std::env::set_current_dir(&reference).unwrap();
        }
        Self { dir, config, store, kernel, handles: Default::default(), clock: 1_000 }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn now(&mut self) -> Timestamp {
        self.clock += 1;
        Timestamp::new(self.clock, 0).unwrap()
    }

    fn kernel<T: Send + 'static>(
        &self,
        who: Who,
        call: impl FnOnce() -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, u32> {
        // The kernel's umask is the process's: operations give the mode as it is to be.
        self.kernel.run(who, call).map_err(|e| e.raw_os_error() as u32)
    }

    /// Runs `op` on both sides and compares. False where a link led above the root: the store leaves that to the
    /// client, the kernel of this comparison stays at its root and may have changed something.
    fn step(&mut self, who: Who, op: &Op) -> bool {
        let (ours, theirs) = self.both(who, op);
        if ours == Err(Errno::REMOTE.raw_os_error() as u32) {
            return false;
        }
        if let (Op::Write { slot, .. } | Op::Append { slot, .. } | Op::Resize { slot, .. }, Ok(answer)) = (op, &ours)
            && let Some((_, fd, _)) = self.handle(*slot, access::WRITE)
            && !matches!(answer, Answer::At(_, 0))
        {
            self.drop_set_id(&fd);
            self.compare_handle(*slot);
        }
        assert_eq!(ours, theirs, "store on the left, kernel on the right: {op:?} as {who:?}");
        true
    }

    fn both(&mut self, who: Who, op: &Op) -> (Result<Answer, u32>, Result<Answer, u32>) {
        let now = self.now();
        let caller = Caller { uid: who.0, gid: who.1, groups: who.2 };
        let root = Ino::ROOT;
        let nothing = |r: Result<(), StoreError>| r.map(|()| Answer::Nothing).map_err(|e| e.errno());
        let attr = |r: Result<isonomia_proto::fs::Attr, StoreError>| r.map(store_attr).map_err(|e| e.errno());
        match op.clone() {
            Op::Open { path, slot, access, create, exclusive, truncate, dir, no_follow, mode } => {
                self.close(slot);
                let how = OpenHow {
                    access,
                    create,
                    exclusive: create && exclusive,
                    truncate,
                    directory: dir,
                    no_follow,
                    unnamed: false,
                    path_only: false,
                    mode,
                    creator: None,
                };
                let ours = self.store().open_file(&caller, root, path.as_bytes(), &how, now).map_err(|e| e.errno());
                let mut flags = match access {
                    1 => OFlags::RDONLY,
                    2 => OFlags::WRONLY,
                    _ => OFlags::RDWR,
                };
                flags |= OFlags::CLOEXEC | OFlags::NONBLOCK;
                for (on, flag) in [
                    (create, OFlags::CREATE),
                    (create && exclusive, OFlags::EXCL),
                    (truncate, OFlags::TRUNC),
                    (dir, OFlags::DIRECTORY),
                    (no_follow, OFlags::NOFOLLOW),
                ] {
                    if on {
                        flags |= flag
                    }
                }
                let theirs = self.kernel(who, move || rustix::fs::open(path, flags, Mode::from_raw_mode(mode)));
                if let (Ok(opened), Ok(fd), true) = (&ours, &theirs, truncate)
                    && !opened.created
                {
                    self.drop_set_id(fd);
                }
                let stat = theirs.as_ref().map(|fd| kernel_attr(&rustix::fs::fstat(fd).unwrap())).map_err(|e| *e);
                let answer = ours.as_ref().map(|o| store_attr(o.attr)).map_err(|e| *e);
                // A hardening of Linux for nodes in sticky directories hides that they cannot be opened.
                let hidden = create && stat == Err(13) && answer == Err(6);
                let answer = if hidden { Err(13) } else { answer };
                match (ours, theirs) {
                    (Ok(opened), Ok(fd)) => {
                        assert_eq!(opened.capability.access, access & 3);
                        self.store().namespace().verify_access(&opened.capability, access).unwrap();
                        if opened.layout.is_some() {
                            self.handles[slot] = Some((opened.ino, Arc::new(fd), access));
                        } else {
                            self.store().release(opened.ino).unwrap();
                        }
                    }
                    (Ok(opened), Err(_)) => self.store().release(opened.ino).unwrap(),
                    _ => {}
                }
                (answer, stat)
            }
            Op::Close { slot } => {
                self.close(slot);
                (Ok(Answer::Nothing), Ok(Answer::Nothing))
            }
            Op::Write { slot, offset, len, fill } => {
                let Some((ino, fd, _)) = self.handle(slot, access::WRITE) else { return same() };
                let bytes = vec![fill; len];
                let ours =
                    self.store().write(ino, offset, &bytes, now).map(|n| Answer::At(offset, n)).map_err(|e| e.errno());
                let theirs =
                    self.kernel(who, move || rustix::io::pwrite(&*fd, &bytes, offset)).map(|n| Answer::At(offset, n));
                (ours, theirs)
            }
            Op::Append { slot, len, fill } => {
                let Some((ino, fd, _)) = self.handle(slot, access::WRITE) else { return same() };
                let bytes = vec![fill; len];
                let ours =
                    self.store().append(ino, &bytes, now).map(|(at, n)| Answer::At(at, n)).map_err(|e| e.errno());
                let theirs = self.kernel(who, move || {
                    let end = rustix::fs::fstat(&fd)?.st_size as u64;
                    rustix::io::pwrite(&*fd, &bytes, end).map(|n| Answer::At(end, n))
                });
                (ours, theirs)
            }
            Op::Read { slot, offset, len } => {
                let Some((ino, fd, _)) = self.handle(slot, access::READ) else { return same() };
                let mut buf = vec![0xee; len];
                let ours = self.store().read(ino, offset, &mut buf).map_err(|e| e.errno());
                let ours = ours.map(|n| {
                    buf.truncate(n);
                    Answer::Bytes(buf)
                });
                let theirs = self.kernel(who, move || {
                    let mut buf = vec![0; len];
                    let n = rustix::io::pread(&*fd, &mut buf[..], offset)?;
                    buf.truncate(n);
                    Ok(Answer::Bytes(buf))
                });
                (ours, theirs)
            }
            Op::Resize { slot, size } => {
                let Some((ino, fd, _)) = self.handle(slot, access::WRITE) else { return same() };
                let ours = nothing(self.store().set_size(ino, size, now).map(|_| ()));
                let theirs = self.kernel(who, move || rustix::fs::ftruncate(&*fd, size)).map(|()| Answer::Nothing);
                (ours, theirs)
            }
            Op::StatHandle { slot } => {
                self.compare_handle(slot);
                same()
            }
            Op::Mkdir { path, mode } => {
                let ours = attr(self.store().mkdir(&caller, root, path.as_bytes(), mode, now));
                let theirs = self.kernel(who, move || rustix::fs::mkdir(&path, Mode::from_raw_mode(mode)));
                (ours.map(|_| Answer::Nothing), theirs.map(|()| Answer::Nothing))
            }
            Op::Rmdir { path } => (
                nothing(self.store().rmdir(&caller, root, path.as_bytes(), now)),
                self.kernel(who, move || rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)).map(|()| Answer::Nothing),
            ),
            Op::Unlink { path } => (
                nothing(self.store().unlink(&caller, root, path.as_bytes(), now)),
                self.kernel(who, move || rustix::fs::unlinkat(CWD, path, AtFlags::empty())).map(|()| Answer::Nothing),
            ),
            Op::Rename { path, path2, how } => {
                let flags = match how {
                    RenameHow::Replace => RenameFlags::empty(),
                    RenameHow::NoReplace => RenameFlags::NOREPLACE,
                    RenameHow::Exchange => RenameFlags::EXCHANGE,
                };
                let ours =
                    nothing(self.store().rename(&caller, root, path.as_bytes(), root, path2.as_bytes(), how, now));
                let theirs = self.kernel(who, move || rustix::fs::renameat_with(CWD, path, CWD, path2, flags));
                (ours, theirs.map(|()| Answer::Nothing))
            }
            Op::Link { path, path2, follow } => {
                // The host may have been told to let users link what is not theirs: the superuser may in any case.
                let (caller, who) =
                    if is_root() && !kernel::protects_links() { (Caller::ROOT, USERS[0]) } else { (caller, who) };
                let flags = if follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                let ours = attr(self.store().link(&caller, root, path.as_bytes(), follow, root, path2.as_bytes(), now));
                let theirs = self.kernel(who, move || {
                    rustix::fs::linkat(CWD, path, CWD, &path2, flags)?;
                    Ok(kernel_attr(&kernel::stat(&path2, false)?))
                });
                (ours, theirs)
            }
            Op::Symlink { text, path } => {
                let ours = attr(self.store().symlink(&caller, text.as_bytes(), root, path.as_bytes(), now));
                let theirs = self.kernel(who, move || rustix::fs::symlink(&text, &path));
                (ours.map(|_| Answer::Nothing), theirs.map(|()| Answer::Nothing))
            }
            Op::Readlink { path } => {
                let ours = self.store().namespace().readlink(&caller, root, path.as_bytes());
                let theirs = self.kernel(who, move || rustix::fs::readlink(path, Vec::new()));
                (ours.map(Answer::Bytes).map_err(|e| e.errno()), theirs.map(|text| Answer::Bytes(text.into_bytes())))
            }
            Op::Socket { path, mode } => {
                let ours =
                    self.store().mknod(&caller, root, path.as_bytes(), 0o140_000 | mode, 0, now).map_err(|e| e.errno());
                let theirs = self.kernel(who, move || {
                    rustix::fs::mknodat(CWD, path, FileType::Socket, Mode::from_raw_mode(mode), 0)
                });
                (ours.map(|_| Answer::Nothing), theirs.map(|()| Answer::Nothing))
            }
            Op::Chmod { path, mode } => {
                let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
                let ours = attr(self.store().set_attr(&caller, root, path.as_bytes(), true, &change, now));
                let theirs = self
                    .kernel(who, move || rustix::fs::chmodat(CWD, &path, Mode::from_raw_mode(mode), AtFlags::empty()));
                (ours.map(|_| Answer::Nothing), theirs.map(|()| Answer::Nothing))
            }
            Op::Chown { path, uid, gid, follow } => {
                if (uid, gid) == (None, None) {
                    return same();
                }
                let change = SetAttr { uid, gid, ..SetAttr::default() };
                let ours = attr(self.store().set_attr(&caller, root, path.as_bytes(), follow, &change, now));
                let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                let (owner, group) = (uid.map(rustix::fs::Uid::from_raw), gid.map(rustix::fs::Gid::from_raw));
                let theirs = self.kernel(who, move || rustix::fs::chownat(CWD, path, owner, group, flags));
                (ours.map(|_| Answer::Nothing), theirs.map(|()| Answer::Nothing))
            }
            Op::Times { path, atime, mtime, follow } => self.times(who, path, atime, mtime, follow, now),
            Op::Stat { path, follow } => {
                let ours = attr(self.store().get_attr(&caller, root, path.as_bytes(), follow));
                (ours, self.kernel(who, move || kernel::stat(&path, follow)).map(|s| kernel_attr(&s)))
            }
            Op::List { path } => {
                let how = OpenHow { access: access::READ, directory: true, ..OpenHow::default() };
                let opened = self.store().open_file(&caller, root, path.as_bytes(), &how, now).map_err(|e| e.errno());
                let ours = opened.map(|opened| {
                    let names = self.list(opened.ino);
                    self.store().release(opened.ino).unwrap();
                    Answer::Names(names)
                });
                let theirs = self.kernel(who, move || kernel::list(&path));
                (ours, theirs.map(|names| Answer::Names(names.into_iter().map(|(name, _)| name).collect())))
            }
        }
    }

    fn times(
        &mut self,
        who: Who,
        path: String,
        atime: Option<Option<i64>>,
        mtime: Option<Option<i64>>,
        follow: bool,
        now: Timestamp,
    ) -> (Result<Answer, u32>, Result<Answer, u32>) {
        if (atime, mtime) == (None, None) {
            return same();
        }
        let caller = Caller { uid: who.0, gid: who.1, groups: who.2 };
        let change = |t: Option<Option<i64>>| {
            t.map(|t| t.map_or(TimeChange::Now, |s| TimeChange::At(Timestamp::new(s, 5).unwrap())))
        };
        let spec = |t: Option<Option<i64>>| match t {
            None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
            Some(None) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
            Some(Some(s)) => Timespec { tv_sec: s, tv_nsec: 5 },
        };
        let set = SetAttr { atime: change(atime), mtime: change(mtime), ..SetAttr::default() };
        let ours = self.store().set_attr(&caller, Ino::ROOT, path.as_bytes(), follow, &set, now);
        let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let name = path.clone();
        let theirs = self.kernel(who, move || rustix::fs::utimensat(CWD, &name, &times, flags));
        if let (Ok(attr), Ok(())) = (&ours, &theirs) {
            let stat = self.kernel(USERS[0], move || kernel::stat(&path, follow)).unwrap();
            if let Some(Some(s)) = atime {
                // The reference may have a newer one: walking through a symbolic link is an access to it.
                assert_eq!(attr.atime.secs, s);
            }
            if let Some(Some(s)) = mtime {
                assert_eq!((attr.mtime.secs, stat.st_mtime), (s, s));
            }
            assert_eq!(attr.ctime, now);
        }
        (ours.map(|_| Answer::Nothing).map_err(|e| e.errno()), theirs.map(|()| Answer::Nothing))
    }

    /// The store clears set-id bits (set-group-id with group execution) whoever writes: so the reference does it here.
    fn drop_set_id(&self, fd: &OwnedFd) {
        let fd = fd.try_clone().unwrap();
        let mode = rustix::fs::fstat(&fd).unwrap().st_mode;
        let gone = if mode & 0o010 == 0 { 0o4000 } else { 0o6000 };
        if FileType::from_raw_mode(mode) == FileType::RegularFile && mode & gone != 0 {
            let kept = Mode::from_raw_mode(mode & 0o7777 & !gone);
            self.kernel(USERS[0], move || rustix::fs::fchmod(fd, kept)).unwrap();
        }
    }

    fn handle(&self, slot: usize, needed: u32) -> Option<(Ino, Arc<OwnedFd>, u32)> {
        self.handles[slot].clone().filter(|(_, _, access)| access & needed != 0)
    }

    fn compare_handle(&self, slot: usize) {
        if let Some((ino, fd, _)) = &self.handles[slot] {
            let ours = store_attr(self.store().get_attr(&Caller::ROOT, *ino, b"", true).unwrap());
            let theirs = kernel_attr(&rustix::fs::fstat(fd).unwrap());
            assert_eq!(ours, theirs, "of an open file");
        }
    }

    fn close(&mut self, slot: usize) {
        if let Some((ino, _, _)) = self.handles[slot].take() {
            self.store().release(ino).unwrap();
        }
    }

    fn list(&self, ino: Ino) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            // Room for one long name: many pages.
            let page = self.store().namespace().read_dir(&Caller::ROOT, ino, cookie, 300).unwrap();
            let Some(last) = page.last() else { break };
            cookie = last.cookie;
            names.extend(page.into_iter().map(|e| e.name));
        }
        names.sort();
        names
    }

    /// Compares everything there is, as root; tells how many regular files that is.
    fn compare_trees(&self) -> usize {
        let (mut inodes, mut files) = (HashMap::new(), HashSet::new());
        let mut todo = vec![(Ino::ROOT, String::from("."))];
        while let Some((dir, path)) = todo.pop() {
            let listed = path.clone();
            let theirs = self.kernel(USERS[0], move || kernel::list(&listed)).unwrap();
            let names: Vec<_> = theirs.iter().map(|(name, _)| name.clone()).collect();
            assert_eq!(self.list(dir), names, "names in {path}");
            for (name, ino) in theirs {
                if name == b"." || name == b".." {
                    continue;
                }
                let child = format!("{path}/{}", String::from_utf8_lossy(&name));
                let attr = self.store().get_attr(&Caller::ROOT, dir, &name, false).unwrap();
                let stat_path = child.clone();
                let stat = self.kernel(USERS[0], move || kernel::stat(&stat_path, false)).unwrap();
                assert_eq!(store_attr(attr), kernel_attr(&stat), "{child}");
                assert_eq!(*inodes.entry(ino).or_insert(attr.ino), attr.ino, "hard links of {child}");
                files.extend((attr.mode & 0o170_000 == 0o100_000).then_some(attr.ino));
                match attr.mode & 0o170_000 {
                    0o040_000 => {
                        assert_eq!(self.store().namespace().path_of(Ino(attr.ino)).unwrap(), &child.as_bytes()[1..]);
                        todo.push((Ino(attr.ino), child));
                    }
                    0o100_000 if attr.size_bytes < 1 << 20 => {
                        let mut ours = vec![0xee; attr.size_bytes as usize + 1];
                        let n = self.store().read(Ino(attr.ino), 0, &mut ours).unwrap();
                        ours.truncate(n);
                        let theirs = self.kernel(USERS[0], move || {
                            let fd = rustix::fs::open(&child, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                            let mut bytes = vec![0; stat.st_size as usize];
                            rustix::io::pread(fd, &mut bytes[..], 0)?;
                            Ok(bytes)
                        });
                        assert!(ours == theirs.unwrap(), "content of a file");
                    }
                    _ => {}
                }
            }
        }
        files.len()
    }

    /// An unclean stop: nothing of what is in memory only survives.
    fn crash(&mut self) {
        self.handles = Default::default();
        drop(self.store.take());
        self.store = Some(Store::open(&self.config).unwrap());
        assert!(self.objects().len() <= self.compare_trees(), "objects without a file");
    }

    /// The numbers that object files are named after.
    fn objects(&self) -> HashSet<u64> {
        let entries = |dir: PathBuf| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let targets = (0..3).flat_map(|target| entries(self.dir.path().join(format!("t{target}/objects"))));
        let name = |object: PathBuf| object.file_name().unwrap().to_str().unwrap().to_owned();
        targets.flat_map(entries).map(|object| u64::from_str_radix(&name(object)[..16], 16).unwrap()).collect()
    }
}

fn same() -> (Result<Answer, u32>, Result<Answer, u32>) {
    (Ok(Answer::Nothing), Ok(Answer::Nothing))
}

fn climbs(op: &Op) -> bool {
    format!("{op:?}").contains("..")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 3_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn behaves_like_a_local_file_system(ops in prop::collection::vec((0usize..8, op()), 1..120)) {
        // Modes are given as they are to be.
        rustix::process::umask(Mode::empty());
        let mut world = World::new();
        for (user, op) in &ops {
            let who = if is_root() {
                USERS[user.saturating_sub(4) % 3]
            } else if !climbs(op) {
                Who(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw(), &[])
            } else {
                continue;
            };
            if !world.step(who, op) {
                return Ok(());
            }
        }
        world.compare_trees();
        world.crash();
        world.compare_trees();
    }
}

/// Cases that chance seldom makes, as a script: user, operation.
#[test]
fn traps_are_avoided_like_by_a_local_file_system() {
    if !is_root_to("be several users") {
        return;
    }
    rustix::process::umask(Mode::empty());
    let mkdir = |path: &str, mode| Op::Mkdir { path: path.into(), mode };
    let rename =
        |path: &str, path2: &str| Op::Rename { path: path.into(), path2: path2.into(), how: RenameHow::Replace };
    let exchange =
        |path: &str, path2: &str| Op::Rename { path: path.into(), path2: path2.into(), how: RenameHow::Exchange };
    let file = |path: &str, mode| Op::Open {
        path: path.into(),
        slot: 0,
        access: access::WRITE,
        create: true,
        exclusive: false,
        truncate: true,
        dir: false,
        no_follow: false,
        mode,
    };
    let unlink = |path: &str| Op::Unlink { path: path.into() };
    let chown = |path: &str, uid, gid| Op::Chown { path: path.into(), uid, gid, follow: true };
    let chmod = |path: &str, mode| Op::Chmod { path: path.into(), mode };
    let script = [
        // Into itself, over an ancestor, over what is not empty, over another kind.
        (0, mkdir("a", 0o755)),
        (0, mkdir("a/b", 0o755)),
        (0, mkdir("a/b/c", 0o755)),
        (0, rename("a", "a/x")),
        (0, rename("a", "a/b/x")),
        (0, rename("a", "a")),
        (0, rename("a/b/c", "a")),
        (0, exchange("a", "a/b")),
        (0, exchange("a/b/c", "a")),
        (0, mkdir("d", 0o755)),
        (0, rename("d", "a")),
        (0, file("f", 0o644)),
        (0, rename("f", "d")),
        (0, rename("d", "f")),
        (0, exchange("f", "a/b")),
        (0, Op::Rmdir { path: "a".into() }),
        (0, Op::Link { path: "a".into(), path2: "l".into(), follow: true }),
        // In a sticky directory only owners remove and rename.
        (0, mkdir("t", 0o1777)),
        (1, file("t/mine", 0o666)),
        (2, unlink("t/mine")),
        (2, rename("t/mine", "t/yours")),
        (2, file("t/yours", 0o666)),
        (2, rename("t/yours", "t/mine")),
        (1, rename("t/mine", "t/yours")),
        (1, rename("t/mine", "t/other")),
        (0, unlink("t/yours")),
        (1, unlink("t/other")),
        // A directory that moves must be its mover's to write, and the search bit counts on the way.
        (1, mkdir("home", 0o777)),
        (0, mkdir("home/root", 0o755)),
        (1, mkdir("home/to", 0o777)),
        (1, rename("home/root", "home/to/root")),
        (1, rename("home/root", "home/renamed")),
        (1, chmod("home", 0o600)),
        (1, file("home/to/x", 0o644)),
        (0, file("home/to/x", 0o644)),
        // Groups: set-group-id directories, giving away, and the bits that go with it.
        (0, mkdir("g", 0o777)),
        (0, chown("g", None, Some(200))),
        (0, chmod("g", 0o2777)),
        (1, mkdir("g/sub", 0o755)),
        (1, file("g/s", 0o2755)),
        (2, file("g/s2", 0o6755)),
        (1, chown("g/s", None, Some(100))),
        (1, chown("g/s", Some(1001), None)),
        (2, chown("g/s2", None, Some(100))),
        (2, chmod("g/s2", 0o6777)),
        (0, chown("g/s2", Some(1000), Some(0))),
        (1, chmod("g/s2", 0o2755)),
        (2, chmod("g/s2", 0o644)),
        // Through links that lead nowhere, and round in a circle.
        (0, Op::Symlink { text: "nowhere".into(), path: "dangling".into() }),
        (0, Op::Symlink { text: "loop".into(), path: "loop".into() }),
        (0, file("loop", 0o644)),
        (0, mkdir("dangling", 0o755)),
        (0, file("dangling", 0o644)),
        (0, Op::Stat { path: "nowhere".into(), follow: false }),
        (0, unlink("dangling/")),
        (0, Op::Rmdir { path: "dangling".into() }),
        (0, rename("dangling", "renamed")),
        (0, Op::Readlink { path: "renamed".into() }),
    ];
    let mut world = World::new();
    for (user, op) in &script {
        assert!(world.step(USERS[*user], op));
        world.compare_trees();
    }
    world.crash();
    world.compare_trees();
}
