//! The operations, one method each: arguments into a request, reply into a value.
//!
//! `at` is where a path begins: the root ([`Ino::ROOT`]), or an inode that this user came to before, by its capability.
//! Other inodes may be named by their number alone if the server trusts the session ([`Capability::unproven`]).

use crate::stripes::Stripes;
use crate::unsynced::{Mark, Unsynced};
use crate::{Client, Error};
use isonomia_proto::PATH_LEN_MAX;
use isonomia_proto::fs::{Attr, Capability, DirEntry, FsStat, Layout, Node, RenameHow, Timestamp};
use isonomia_proto::hint::OpenHint;
use isonomia_proto::object::{FileObjects, told};
use isonomia_proto::request::{INO_LEN, Op, OpenReply, ReplyHeader, RequestHeader, flag, valid};
use isonomia_proto::space::{Extent, SpaceChange};
use isonomia_units::{Ino, ServerId};
use rustix::io::Errno;
use std::sync::Arc;
use zerocopy::FromBytes;

/// Room for every reply but those of reads and opens: a path, a page of directory entries. Not on the stack, nor is any
/// room for a path: a program's threads may have stacks of 16 KiB in all.
const REPLY_LEN_MAX: usize = 16 << 10;
/// Room for that of an open: with a full layout, and as many codes.
const OPEN_REPLY_LEN_MAX: usize =
    size_of::<OpenReply>() + FileObjects::len(Layout::TARGETS_MAX) + Layout::encoded_len(Layout::TARGETS_MAX);
/// Bytes of directory entries asked for at a time.
const READ_DIR_LEN: u32 = REPLY_LEN_MAX as u32;

/// References given back at once at most: as many as fit into the space of a path.
pub const RELEASE_MAX: usize = (PATH_LEN_MAX - 1) / INO_LEN;

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// Bits of [`crate::access`]; none for a descriptor that only names the inode.
    pub access: u32,
    /// Create the file when it does not exist.
    pub create: bool,
    /// With `create`: fail when it exists.
    pub exclusive: bool,
    /// Cut the file to nothing.
    pub truncate: bool,
    /// Fail unless it is a directory.
    pub directory: bool,
    /// Fail when the path ends in a symbolic link.
    pub no_follow: bool,
    /// Create a file without a name in the directory of the path; with `exclusive` it never gets one.
    pub unnamed: bool,
    /// `O_PATH`: name the inode, ask for no access to it.
    pub path_only: bool,
    /// Permissions of a created file, the umask already applied.
    pub mode: u32,
    /// Number of the open file: what no other open file has, or 0 if it is never locked as such.
    pub number: u64,
    /// What is known of a file that may be created.
    pub hint: OpenHint,
}

/// An open file: everything that later operations on it need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// What data requests carry.
    pub capability: Capability,
    /// Where the bytes lie.
    pub layout: Layout,
    /// The attributes at the time of the open.
    pub attr: Attr,
    /// Whether this open created the file.
    pub created: bool,
    /// Of a spread file.
    pub stripes: Option<Arc<Stripes>>,
    /// What was written and has not been put on stable storage.
    pub unsynced: Unsynced,
}

/// A change of attributes; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// Access time.
    pub atime: Option<TimeChange>,
    /// Modification time.
    pub mtime: Option<TimeChange>,
}

/// A new time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    /// The server's clock decides.
    Now,
    /// This one.
    At(Timestamp),
}

impl Client {
    /// Attributes of `path` below `at`; of `at` itself when `path` is empty.
    pub fn get_attr(&self, at: impl Into<Capability>, path: &[u8], follow: bool) -> Result<Attr, Error> {
        let mut request = RequestHeader::with_capability(Op::GetAttr, &at.into());
        request.flags = if follow { 0 } else { flag::NO_FOLLOW };
        self.for_node(request, path, b"").map(|node| node.attr)
    }

    /// As [`Self::get_attr`], with what lets later operations begin there.
    pub fn look_up(&self, at: impl Into<Capability>, path: &[u8], follow: bool) -> Result<Node, Error> {
        let mut request = RequestHeader::with_capability(Op::GetAttr, &at.into());
        request.flags = flag::PATH_ONLY | if follow { 0 } else { flag::NO_FOLLOW };
        self.for_node(request, path, b"")
    }

    /// Applies `change` to `path` below `at`.
    pub fn set_attr(
        &self,
        at: impl Into<Capability>,
        path: &[u8],
        follow: bool,
        change: &Change,
    ) -> Result<Attr, Error> {
        let mut request = RequestHeader::with_capability(Op::SetAttr, &at.into());
        request.flags = if follow { 0 } else { flag::NO_FOLLOW };
        change.fill(&mut request);
        self.resize(request, path).map(|(attr, _)| attr)
    }

    /// Sets the size of an open file.
    pub fn truncate(&self, file: &OpenFile, size_bytes: u64) -> Result<Attr, Error> {
        let (attr, mark) = self.set_size_marked(&file.capability, size_bytes)?;
        file.unsynced.note(mark);
        Ok(attr)
    }

    /// The same on the strength of its capability, for who syncs nothing by that open file.
    pub fn set_size(&self, capability: &Capability, size_bytes: u64) -> Result<Attr, Error> {
        self.set_size_marked(capability, size_bytes).map(|(attr, _)| attr)
    }

    fn set_size_marked(&self, capability: &Capability, size_bytes: u64) -> Result<(Attr, Mark), Error> {
        let mut request = RequestHeader::with_capability(Op::SetAttr, capability);
        request.flags = flag::AS_OPENED;
        Change { size_bytes: Some(size_bytes), ..Change::default() }.fill(&mut request);
        self.resize(request, b"")
    }

    /// Changes attributes. A spread file does not grow while it is being cut: then that is waited for.
    fn resize(&self, request: RequestHeader, path: &[u8]) -> Result<(Attr, Mark), Error> {
        let mut patience = self.patience();
        loop {
            match self.for_node_marked(request, path, b"") {
                Err(Error::Server(Errno::AGAIN)) => patience.pause(Errno::TIMEDOUT)?,
                outcome => return outcome.map(|(node, mark)| (node.attr, mark)),
            }
        }
    }

    /// Opens `path` below `at`. The server counts one reference to the inode for this process until
    /// [`Self::release`].
    pub fn open(&self, at: impl Into<Capability>, path: &[u8], how: &OpenHow) -> Result<OpenFile, Error> {
        let mut request = RequestHeader::with_capability(Op::Open, &at.into());
        request.len = how.access;
        request.mode = how.mode;
        request.owner = how.number;
        how.hint.write(&mut request);
        for (set, bit) in [
            (how.create, flag::CREATE),
            (how.exclusive, flag::EXCLUSIVE),
            (how.truncate, flag::TRUNCATE),
            (how.directory, flag::DIRECTORY),
            (how.no_follow, flag::NO_FOLLOW),
            (how.path_only, flag::PATH_ONLY),
            (how.unnamed, flag::UNNAMED),
        ] {
            request.flags |= if set { bit } else { 0 };
        }
        let mut reply = vec![0; OPEN_REPLY_LEN_MAX];
        let mut patience = self.patience();
        let (header, mark) = loop {
            match self.with_paths(request, path, b"", &mut reply) {
                // A server that has too much to cut says so before it has done anything.
                Err(Error::Server(Errno::AGAIN)) if how.truncate => patience.pause(Errno::TIMEDOUT)?,
                outcome => break outcome?,
            }
        };
        let malformed = || self.malformed(Ino(request.ino));
        let reply = &reply[..header.payload_len as usize];
        let (fixed, mut rest) = OpenReply::read_from_prefix(reply).map_err(|_| malformed())?;
        let mut stripes = None;
        if fixed.spread != 0 {
            let (objects, codes, layout) = FileObjects::decode(rest).ok_or_else(malformed)?;
            stripes = Some(Arc::new(Stripes::opened(objects, codes).ok_or_else(malformed)?));
            rest = layout;
        }
        let layout = Layout::decode(rest).map_err(|_| malformed())?;
        let (capability, attr, created) = (fixed.capability, fixed.attr, fixed.created != 0);
        // The volume's server, and those who have the objects.
        let servers = if stripes.is_some() { 1 + layout.targets.len() } else { 1 };
        let unsynced = Unsynced::of_servers(servers);
        if created || how.truncate {
            self.changed.note(mark);
            unsynced.note(mark);
        }
        Ok(OpenFile { capability, layout, attr, created, stripes, unsynced })
    }

    /// Gives back one reference to `ino` as the open file `number` (see [`OpenHow::number`]). Nothing is waited for
    /// that could fail in a way the caller can mend.
    pub fn release(&self, ino: Ino, number: u64) -> Result<(), Error> {
        self.give_back(ino, number, 0, 0)
    }

    /// The same of a file that may have been written: with what its server has not been told of that yet ([`Self::must_close`]).
    pub fn close(&self, file: &OpenFile, number: u64) -> Result<(), Error> {
        let valid = if file.stripes.as_ref().is_some_and(|stripes| stripes.owes_cut()) { told::BEHIND } else { 0 };
        let blocks = file.stripes.as_ref().map_or(0, |stripes| stripes.take_untold(0));
        self.give_back(Ino(file.capability.ino), number, valid, blocks)
    }

    /// Whether only [`Self::close`] says all that is to be said when a reference to the file is given back.
    pub fn must_close(file: &OpenFile) -> bool {
        file.stripes.as_ref().is_some_and(|stripes| stripes.owes_cut() || stripes.owes_blocks())
    }

    fn give_back(&self, ino: Ino, number: u64, valid: u32, len: u32) -> Result<(), Error> {
        self.own_locks.file_closed(ino, number);
        self.without_reply(
            RequestHeader { owner: number, valid, len, ..RequestHeader::new(Op::Release, ino) },
            b"",
            b"",
        )
    }

    /// Gives back one reference to each of `inos`, [`RELEASE_MAX`] at most, as the open file 0. Each is tried; the error is
    /// the first one.
    pub fn release_many(&self, inos: &[Ino]) -> Result<(), Error> {
        let mut outcome = Ok(());
        let mut left = inos.to_vec();
        while let Some(first) = left.first() {
            let session = self.session_of(*first)?;
            let is_there = |ino: &mut Ino| self.session_of(*ino).is_ok_and(|other| std::ptr::eq(other, session));
            let numbers: Vec<u8> = left.extract_if(.., is_there).flat_map(|ino| ino.0.to_le_bytes()).collect();
            let path_len = numbers.len() as u16;
            let request = RequestHeader { path_len, ..RequestHeader::new(Op::ReleaseMany, Ino::ROOT) };
            outcome = outcome.and(session.transact(request, [&numbers, b""], &mut []).map(drop));
        }
        outcome
    }

    /// Takes one more reference for this process to an open file of another: after `fork` or `exec`.
    pub fn adopt(&self, capability: &Capability, number: u64) -> Result<(), Error> {
        let request = RequestHeader { owner: number, ..RequestHeader::with_capability(Op::Adopt, capability) };
        self.without_reply(request, b"", b"")
    }

    /// To be called before the process executes another program that inherits open files: the servers keep their
    /// references for a moment after this process's connections have ended with it. Each is told; the error is the first one.
    pub fn hand_over(&self) -> Result<(), Error> {
        let known = self.sessions().filter(|session| session.is_known());
        let told = known.map(|session| {
            session.transact(RequestHeader::new(Op::HandOver, Ino::ROOT), [b"", b""], &mut []).map(drop)
        });
        told.fold(Ok(()), Result::and)
    }

    /// Reads into `buffer` from `offset`; fewer bytes only at the end of the file.
    pub fn read_at(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        self.transfer_read(file, offset, buffer)
    }

    /// Writes all of `data` at `offset`. A number below `data.len()` means that an error stopped it after some
    /// bytes were written; the next call tells the error.
    pub fn write_at(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize, Error> {
        self.transfer_write(file, offset, data)
    }

    /// As [`Self::write_at`], for a program that opened the file with `O_DIRECT`: what of it is long and made of whole blocks goes past
    /// the page caches of servers' hosts, where these can do that.
    pub fn write_direct_at(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize, Error> {
        self.transfer_write_direct(file, offset, data)
    }

    /// Writes `data` at the end of the file as one piece; gives the offset it went to and the bytes written.
    pub fn append(&self, file: &OpenFile, data: &[u8]) -> Result<(u64, usize), Error> {
        self.transfer_append(file, data)
    }

    /// Changes the space below `len` bytes of an open file from `offset` on.
    pub fn change_space(&self, file: &OpenFile, change: SpaceChange, offset: u64, len: u64) -> Result<(), Error> {
        if let Some(stripes) = &file.stripes {
            return self.change_stripes_space(file, stripes, change, offset, len);
        }
        let mut request = RequestHeader::with_capability(Op::Fallocate, &file.capability);
        (request.offset, request.ino2) = (offset, len);
        request.target = file.layout.locate(offset).0.0;
        request.valid = change.mode();
        let (_, mark) = self.with_paths(request, b"", b"", &mut [])?;
        file.unsynced.note(mark);
        Ok(())
    }

    /// Where the next data (`what` [`Extent::Data`]) or hole of an open file begins, at `offset` or behind it. ENXIO if
    /// there is none, and from the end of the file on.
    pub fn seek_extent(&self, file: &OpenFile, offset: u64, what: Extent) -> Result<u64, Error> {
        if let Some(stripes) = &file.stripes {
            return self.seek_stripes(file, stripes, offset, what);
        }
        let op = match what {
            Extent::Data => Op::SeekData,
            Extent::Hole => Op::SeekHole,
        };
        let mut request = RequestHeader::with_capability(op, &file.capability);
        request.offset = offset;
        request.target = file.layout.locate(offset).0.0;
        Ok(self.with_paths(request, b"", b"", &mut [])?.0.value)
    }

    /// Creates a directory.
    pub fn mkdir(&self, at: impl Into<Capability>, path: &[u8], mode: u32) -> Result<Node, Error> {
        let mut request = RequestHeader::with_capability(Op::Mkdir, &at.into());
        request.mode = mode;
        self.for_node(request, path, b"")
    }

    /// Creates a directory in the root of a cluster, a volume, on this server. ENODEV if there is no such server.
    pub fn make_volume(&self, name: &[u8], mode: u32, server: ServerId) -> Result<Node, Error> {
        let request = RequestHeader { mode, server: server.0, ..RequestHeader::new(Op::Mkdir, Ino::ROOT) };
        self.for_node(request, name, b"")
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, at: impl Into<Capability>, path: &[u8]) -> Result<(), Error> {
        self.without_reply(RequestHeader::with_capability(Op::Rmdir, &at.into()), path, b"")
    }

    /// Removes a name that is not a directory's.
    pub fn unlink(&self, at: impl Into<Capability>, path: &[u8]) -> Result<(), Error> {
        self.without_reply(RequestHeader::with_capability(Op::Unlink, &at.into()), path, b"")
    }

    /// Renames atomically.
    pub fn rename(
        &self,
        at: impl Into<Capability>,
        path: &[u8],
        to: impl Into<Capability>,
        to_path: &[u8],
        how: RenameHow,
    ) -> Result<(), Error> {
        let mut request = RequestHeader::with_capability(Op::Rename, &at.into()).with_second_capability(&to.into());
        request.flags = match how {
            RenameHow::Replace => 0,
            RenameHow::NoReplace => flag::NO_REPLACE,
            RenameHow::Exchange => flag::EXCHANGE,
        };
        self.without_reply(request, path, to_path)
    }

    /// Makes `to_path` below `to` a hard link to `path` below `at`.
    pub fn link(
        &self,
        at: impl Into<Capability>,
        path: &[u8],
        follow: bool,
        to: impl Into<Capability>,
        to_path: &[u8],
    ) -> Result<Node, Error> {
        let mut request = RequestHeader::with_capability(Op::Link, &at.into()).with_second_capability(&to.into());
        request.flags = if follow { 0 } else { flag::NO_FOLLOW };
        self.for_node(request, path, to_path)
    }

    /// Creates the symbolic link `path` below `at` with `text`.
    pub fn symlink(&self, text: &[u8], at: impl Into<Capability>, path: &[u8]) -> Result<Node, Error> {
        self.for_node(RequestHeader::with_capability(Op::Symlink, &at.into()), text, path)
    }

    /// The text of a symbolic link.
    pub fn readlink(&self, at: impl Into<Capability>, path: &[u8]) -> Result<Vec<u8>, Error> {
        self.for_bytes(RequestHeader::with_capability(Op::Readlink, &at.into()), path)
    }

    /// Creates a fifo, a socket's name, or a device node; `mode` has the kind.
    pub fn mknod(&self, at: impl Into<Capability>, path: &[u8], mode: u32, rdev: u64) -> Result<Node, Error> {
        let mut request = RequestHeader::with_capability(Op::Mknod, &at.into());
        request.mode = mode;
        request.offset = rdev;
        self.for_node(request, path, b"")
    }

    /// Entries of directory `at`, which this user may read, after `cookie` (0: from the start); none at the end.
    pub fn read_dir(&self, at: impl Into<Capability>, cookie: u64) -> Result<Vec<DirEntry>, Error> {
        self.read_entries(RequestHeader::with_capability(Op::ReadDir, &at.into()), cookie)
    }

    /// As [`Self::read_dir`], of an open directory on the strength of its capability.
    pub fn read_open_dir(&self, capability: &Capability, cookie: u64) -> Result<Vec<DirEntry>, Error> {
        let request = RequestHeader::with_capability(Op::ReadDir, capability);
        self.read_entries(RequestHeader { flags: flag::AS_OPENED, ..request }, cookie)
    }

    fn read_entries(&self, mut request: RequestHeader, cookie: u64) -> Result<Vec<DirEntry>, Error> {
        request.offset = cookie;
        request.len = READ_DIR_LEN;
        let bytes = self.for_bytes(request, b"")?;
        DirEntry::decode_all(&bytes).map_err(|_| self.malformed(Ino(request.ino)))
    }

    /// Checks `mask` (bits 4, 2, 1 as in `access(2)`; 0: existence) for `path`.
    pub fn access(&self, at: impl Into<Capability>, path: &[u8], mask: u32, follow: bool) -> Result<(), Error> {
        let mut request = RequestHeader::with_capability(Op::Access, &at.into());
        request.len = mask;
        request.flags = if follow { 0 } else { flag::NO_FOLLOW };
        self.without_reply(request, path, b"")
    }

    /// Capacity of the file system.
    pub fn stat_fs(&self) -> Result<FsStat, Error> {
        let request = RequestHeader::new(Op::StatFs, Ino::ROOT);
        let bytes = self.for_bytes(request, b"")?;
        FsStat::read_from_bytes(&bytes).map_err(|_| self.malformed(Ino(request.ino)))
    }

    /// Path of directory `at` from the root, beginning with `/`.
    pub fn path_of(&self, at: impl Into<Capability>) -> Result<Vec<u8>, Error> {
        self.for_bytes(RequestHeader::with_capability(Op::PathOf, &at.into()), b"")
    }

    /// The same capability made out to user `uid`, for a process that is going to be that user.
    pub fn delegate(&self, capability: &Capability, uid: u32) -> Result<Capability, Error> {
        let request = RequestHeader { uid, ..RequestHeader::with_capability(Op::Delegate, capability) };
        let bytes = self.for_bytes(request, b"")?;
        Capability::read_from_bytes(&bytes).map_err(|_| self.malformed(Ino(request.ino)))
    }

    fn for_node(&self, request: RequestHeader, path: &[u8], path2: &[u8]) -> Result<Node, Error> {
        self.for_node_marked(request, path, path2).map(|(node, _)| node)
    }

    fn for_node_marked(&self, request: RequestHeader, path: &[u8], path2: &[u8]) -> Result<(Node, Mark), Error> {
        let mut reply = [0; size_of::<Node>()];
        let (header, mark) = self.with_paths(request, path, path2, &mut reply)?;
        let node = Node::read_from_bytes(&reply[..header.payload_len as usize]);
        node.map(|node| (node, mark)).map_err(|_| self.malformed(Ino(request.ino)))
    }

    fn for_bytes(&self, request: RequestHeader, path: &[u8]) -> Result<Vec<u8>, Error> {
        let mut reply = vec![0; REPLY_LEN_MAX];
        let (header, _) = self.with_paths(request, path, b"", &mut reply)?;
        reply.truncate(header.payload_len as usize);
        Ok(reply)
    }

    fn without_reply(&self, request: RequestHeader, path: &[u8], path2: &[u8]) -> Result<(), Error> {
        self.with_paths(request, path, path2, &mut []).map(drop)
    }

    /// Sends a request with names; `reply` receives the payload, whose length is in the header. Under which verifier it came.
    fn with_paths(
        &self,
        mut request: RequestHeader,
        path: &[u8],
        path2: &[u8],
        reply: &mut [u8],
    ) -> Result<(ReplyHeader, Mark), Error> {
        for name in [path, path2] {
            // The kernel counts the terminating NUL in PATH_MAX. Names within a path are the server's to judge.
            if name.len() >= PATH_LEN_MAX {
                return Err(Error::Argument(Errno::NAMETOOLONG));
            }
        }
        request.path_len = path.len() as u16;
        request.path2_len = path2.len() as u16;
        self.transact_marked(request, [path, path2], reply)
    }
}

impl Change {
    fn fill(&self, request: &mut RequestHeader) {
        if let Some(mode) = self.mode {
            request.valid |= valid::MODE;
            request.mode = mode;
        }
        if let Some(uid) = self.uid {
            request.valid |= valid::UID;
            request.uid = uid;
        }
        if let Some(gid) = self.gid {
            request.valid |= valid::GID;
            request.gid = gid;
        }
        if let Some(size_bytes) = self.size_bytes {
            request.valid |= valid::SIZE;
            request.offset = size_bytes;
        }
        match self.atime {
            Some(TimeChange::Now) => request.valid |= valid::ATIME_NOW,
            Some(TimeChange::At(time)) => {
                request.valid |= valid::ATIME;
                request.atime = time;
            }
            None => {}
        }
        match self.mtime {
            Some(TimeChange::Now) => request.valid |= valid::MTIME_NOW,
            Some(TimeChange::At(time)) => {
                request.valid |= valid::MTIME;
                request.mtime = time;
            }
            None => {}
        }
    }
}
