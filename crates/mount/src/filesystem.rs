//! The kernel's requests: each is handed to the file that knows, and its outcome given back.
//!
//! After ENOSYS the kernel asks no more, and does without.

use crate::affinity::follow_program;
use crate::attr::file_attr;
use crate::clients::{Caller, Clients, Need};
use crate::closed::Closed;
use crate::created::Created;
use crate::handle::Handles;
use crate::lock::{Asked, Locks, is_of_whole_file};
use crate::mapping::WAITING_MAX;
use crate::mappings::Mappings;
use crate::nodes::Nodes;
use crate::options::Options;
use crate::poller::Poller;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek,
    ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use isonomia_client::{Attr, Client, FileKind, Node};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The most that the kernel sends or asks for in one request.
const TRANSFER_LEN_MAX: u32 = 1 << 20;
/// Asynchronous requests that the kernel has under way at once: faults that wait for a mapping, and beside them as many
/// others, among them the writes that another mount's faults wait for.
const BACKGROUND_MAX: u16 = WAITING_MAX + 64;
/// The kernel counts time-outs in ticks of its clock, 1 to 10 ms, and rounds up.
const TICK: Duration = Duration::from_nanos(1);
/// Inode numbers are never used twice.
const GENERATION: Generation = Generation(0);
/// Block size in which `statfs` counts.
const STATFS_BLOCK_BYTES: u32 = 4096;

/// The file system, as `fuser` calls it.
pub struct MountedFiles {
    pub(crate) clients: Arc<Clients>,
    pub(crate) handles: Handles,
    pub(crate) locks: Locks,
    pub(crate) closed: Closed,
    pub(crate) mappings: Arc<Mappings>,
    pub(crate) nodes: Nodes,
    /// Whether the server wants to see proofs of this mount's.
    pub(crate) needs_proofs: bool,
    poller: Arc<Poller>,
    /// Where the kernel checks permissions, and keeps no attributes that it could do so by.
    created: Option<Created>,
    attr_timeout: Duration,
    entry_timeout: Duration,
}

/// An outcome in the program's words.
pub type Outcome<T> = Result<T, rustix::io::Errno>;

impl MountedFiles {
    /// Serves through `clients`, for a kernel that `checks` permissions, too, or does not.
    pub fn new(
        clients: Arc<Clients>,
        mappings: Arc<Mappings>,
        poller: Arc<Poller>,
        (needs_proofs, checks): (bool, bool),
        options: &Options,
    ) -> Self {
        Self {
            locks: Locks::new(clients.clone()),
            clients,
            handles: Handles::default(),
            closed: Closed::default(),
            mappings,
            nodes: Nodes::default(),
            needs_proofs,
            poller,
            created: (checks && options.attr_timeout.is_zero()).then(Created::default),
            attr_timeout: options.attr_timeout,
            entry_timeout: options.entry_timeout,
        }
    }

    /// The client for a request whose outcome hangs on what the caller may do.
    pub(crate) fn permitted(&self, request: &Request) -> Outcome<Arc<Client>> {
        follow_program(request.pid());
        self.clients.of(caller(request), Need::Permission)
    }

    /// The client that a transfer on an open file is charged to. The kernel's own requests, such as writing back
    /// mapped pages, are the opener's.
    pub(crate) fn charged(&self, request: &Request, opener: &Arc<Client>) -> Outcome<Arc<Client>> {
        match caller(request) {
            Caller { pid: 0, .. } => Ok(opener.clone()),
            _ => self.told(request),
        }
    }

    /// The client for a request whose outcome is the same for everybody.
    pub(crate) fn told(&self, request: &Request) -> Outcome<Arc<Client>> {
        follow_program(request.pid());
        self.clients.of(caller(request), Need::Sharing)
    }

    fn entry(&self, outcome: Outcome<Node>, reply: ReplyEntry) {
        match outcome {
            Ok(Node { attr, capability }) => {
                self.nodes.answered(&capability);
                let attr_timeout = self.attr_timeout.max(found_timeout(&attr));
                reply.entry_with_ttls(&attr_timeout, &self.entry_timeout, &file_attr(&attr), GENERATION);
            }
            Err(errno) => reply.error(code(errno)),
        }
    }

    /// A file that the thread of `request` created and has open.
    fn created(&self, request: &Request, outcome: Outcome<(Attr, FileHandle)>, reply: ReplyCreate) {
        match outcome {
            Ok((attr, handle)) => {
                // One time for both: the shorter is right for either.
                let timeout = self.attr_timeout.min(self.entry_timeout);
                if let Some(created) = &self.created {
                    created.note(Instant::now(), request.pid(), attr);
                }
                reply.created(&timeout, &file_attr(&attr), GENERATION, handle, of_file());
            }
            Err(errno) => reply.error(code(errno)),
        }
    }

    fn attributes(&self, outcome: Outcome<Attr>, reply: ReplyAttr) {
        match outcome {
            Ok(attr) => reply.attr(&self.attr_timeout.max(found_timeout(&attr)), &file_attr(&attr)),
            Err(errno) => reply.error(code(errno)),
        }
    }
}

fn caller(request: &Request) -> Caller {
    Caller { pid: request.pid(), uid: request.uid(), gid: request.gid() }
}

fn code(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

fn empty(outcome: Outcome<()>, reply: ReplyEmpty) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(code(errno)),
    }
}

fn opened(outcome: Outcome<FileHandle>, flags: FopenFlags, reply: ReplyOpen) {
    match outcome {
        Ok(handle) => reply.opened(handle, flags),
        Err(errno) => reply.error(code(errno)),
    }
}

/// Answers with what `fill` puts into `size` bytes, or with its length if there are none.
fn in_room(size: u32, reply: ReplyXattr, fill: impl FnOnce(&mut [u8]) -> Outcome<usize>) {
    let size = size.min(TRANSFER_LEN_MAX) as usize;
    crate::data::with_buffer(size, |room| match fill(room) {
        Ok(len) if size == 0 => reply.size(len as u32),
        Ok(len) => reply.data(&room[..len]),
        Err(errno) => reply.error(code(errno)),
    });
}

/// How long the kernel is to believe at least what it was told. Having found a directory, it checks whether the caller may search
/// it, and would ask again; so a directory's attributes last until its clock has moved on. The root is never looked up, only asked
/// for, at the beginning of every path.
/// Those of other files may not: programs agree on a file, open it, and look how long it is.
fn found_timeout(attr: &Attr) -> Duration {
    match attr.kind() {
        FileKind::Directory => TICK,
        _ => Duration::ZERO,
    }
}

/// Data pass the page cache by, and several transfers on one file may be under way.
fn of_file() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

impl Filesystem for MountedFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            // `open` cuts the file itself, so that opening and cutting are one operation.
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            // Mapped pages that another client changed are dropped when the change is noticed.
            InitFlags::FUSE_AUTO_INVAL_DATA,
            // The server takes set-id bits from files that are written or given away.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            // Since Linux 6.6; before, only private mappings are possible.
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            // The server keeps the locks, of bytes and of whole files.
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
        ];
        for flag in wanted {
            // A kernel without it does without it.
            let _ = config.add_capabilities(flag);
        }
        let refused = |nearest| io::Error::other(format!("fuser allows {nearest}"));
        config.set_max_write(TRANSFER_LEN_MAX).map_err(refused)?;
        config.set_max_background(BACKGROUND_MAX).map_err(|nearest| refused(nearest.into()))?;
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _serving = self.poller.serving();
        self.entry(self.look_up(request, parent, name.as_bytes()), reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        self.nodes.forget(ino, count);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _serving = self.poller.serving();
        let known = self.created.as_ref().and_then(|created| created.take(Instant::now(), request.pid(), ino.0));
        self.attributes(known.map_or_else(|| self.get_attr(request, ino), Ok), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _serving = self.poller.serving();
        let change = crate::names::change(mode, uid, gid, size, atime, mtime);
        self.attributes(self.set_attr(request, ino, handle, &change), reply);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let _serving = self.poller.serving();
        match self.link_text(request, ino) {
            Ok(text) => reply.data(&text),
            Err(errno) => reply.error(code(errno)),
        }
    }

    fn mknod(&self, r: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, rdev: u32, reply: ReplyEntry) {
        let _serving = self.poller.serving();
        self.entry(self.make_node(r, parent, name.as_bytes(), mode, rdev), reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let _serving = self.poller.serving();
        self.entry(self.make_directory(request, parent, name.as_bytes(), mode), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _serving = self.poller.serving();
        empty(self.remove(request, parent, name.as_bytes()), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _serving = self.poller.serving();
        empty(self.remove_directory(request, parent, name.as_bytes()), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, text: &Path, reply: ReplyEntry) {
        let _serving = self.poller.serving();
        self.entry(self.make_symlink(request, parent, name.as_bytes(), text.as_os_str().as_bytes()), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _serving = self.poller.serving();
        empty(self.move_name(request, (parent, name.as_bytes()), (to, to_name.as_bytes()), flags), reply);
    }

    fn link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _serving = self.poller.serving();
        self.entry(self.make_link(request, ino, parent, name.as_bytes()), reply);
    }

    fn access(&self, request: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let _serving = self.poller.serving();
        empty(self.may_access(request, ino, mask.bits() as u32), reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let _serving = self.poller.serving();
        match self.capacity() {
            Ok(all) => {
                let blocks = |bytes| bytes / u64::from(STATFS_BLOCK_BYTES);
                reply.statfs(
                    blocks(all.total_bytes),
                    blocks(all.free_bytes),
                    blocks(all.available_bytes),
                    all.inodes_total,
                    all.inodes_free,
                    STATFS_BLOCK_BYTES,
                    crate::names::NAME_LEN_MAX,
                    STATFS_BLOCK_BYTES,
                );
            }
            Err(errno) => reply.error(code(errno)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _serving = self.poller.serving();
        self.created(request, self.create_file(request, parent, Some(name.as_bytes()), mode, flags), reply);
    }

    fn tmpfile(&self, request: &Request, parent: INodeNo, mode: u32, _umask: u32, flags: i32, reply: ReplyCreate) {
        let _serving = self.poller.serving();
        self.created(request, self.create_file(request, parent, None, mode, flags), reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _serving = self.poller.serving();
        opened(self.open_file(request, ino, flags.0), of_file(), reply);
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _serving = self.poller.serving();
        // A read of a program's comes with an owner of locks, the reading of a page for a mapping without one.
        if owner.is_none() {
            return self.load_page(request, handle, offset, size, reply);
        }
        crate::data::with_buffer(size as usize, |buffer| match self.read_file(request, handle, offset, buffer) {
            Ok(len) => reply.data(&buffer[..len]),
            Err(errno) => reply.error(code(errno)),
        });
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _serving = self.poller.serving();
        match self.write_file(request, handle, offset, data, how, flags.0) {
            Ok(len) => reply.written(len as u32),
            Err(errno) => reply.error(code(errno)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let _serving = self.poller.serving();
        // Everything written is at the server.
        if let Ok(handle) = self.handles.get(handle) {
            self.locks.descriptor_closed(&handle, owner);
        }
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        whole: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _serving = self.poller.serving();
        self.close(handle, whole);
        reply.ok();
    }

    fn fsync(&self, request: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let _serving = self.poller.serving();
        empty(self.sync(request, handle, data_only), reply);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let _serving = self.poller.serving();
        opened(self.open_directory(request, ino), FopenFlags::empty(), reply);
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let _serving = self.poller.serving();
        match self.list(handle, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(code(errno)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let _serving = self.poller.serving();
        self.close(handle, None);
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let _serving = self.poller.serving();
        empty(self.sync(request, handle, data_only), reply);
    }

    fn setxattr(&self, r: &Request, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, _: u32, reply: ReplyEmpty) {
        let _serving = self.poller.serving();
        empty(self.set_value(r, ino, name.as_bytes(), value, flags), reply);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _serving = self.poller.serving();
        in_room(size, reply, |room| self.value(request, ino, name.as_bytes(), room));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _serving = self.poller.serving();
        in_room(size, reply, |room| self.value_names(request, ino, room));
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _serving = self.poller.serving();
        empty(self.remove_value(request, ino, name.as_bytes()), reply);
    }

    fn getlk(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        let _serving = self.poller.serving();
        let asked = Asked { owner, start, end, kind, pid: 0, waits: false };
        match self.handles.get(handle).and_then(|handle| self.locks.in_the_way(&handle, &asked)) {
            Ok(found) => reply.locked(found.start, found.end, found.kind, found.pid),
            Err(errno) => reply.error(code(errno)),
        }
    }

    fn setlk(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let _serving = self.poller.serving();
        let asked = Asked { owner, start, end, kind, pid, waits };
        let (number, answer) = (handle, move |outcome| empty(outcome, reply));
        match (self.handles.get(handle), is_of_whole_file(request, number, owner)) {
            (Ok(handle), Some(is_whole)) => self.locks.set(handle, request.pid(), asked, is_whole, answer),
            (Err(errno), _) => answer(Err(errno)),
            (_, None) => answer(Err(rustix::io::Errno::IO)),
        }
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let _serving = self.poller.serving();
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        let _serving = self.poller.serving();
        // The kernel then says that files are always ready.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(&self, r: &Request, _: INodeNo, handle: FileHandle, at: u64, len: u64, mode: i32, reply: ReplyEmpty) {
        let _serving = self.poller.serving();
        empty(self.change_space(r, handle, at, len, mode), reply);
    }

    fn lseek(&self, r: &Request, _: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let _serving = self.poller.serving();
        match self.seek(r, handle, offset, whence) {
            Ok(found) => reply.offset(found),
            Err(errno) => reply.error(code(errno)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _serving = self.poller.serving();
        match self.copy(request, (from, from_offset), (to, to_offset), len) {
            Ok(len) => reply.written(len as u32),
            Err(errno) => reply.error(code(errno)),
        }
    }
}
