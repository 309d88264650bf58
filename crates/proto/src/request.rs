//! Requests and replies: fixed headers, the same on shared memory and on TCP.
//!
//! A request is a [`RequestHeader`], then `path_len` and `path2_len` bytes of names (and, where one is set, an extended
//! attribute's value of `len` bytes), then for a write `len` bytes of payload. A reply is a [`ReplyHeader`] and
//! `payload_len` bytes.
//!
//! A path is relative to the inode `ino`; `..` and symbolic links are walked by the server. Where a request *begins*, which
//! is the inode itself if the path is empty, is the root, or an inode with a [`Capability`] of whatever access that the
//! server made out to this user: in `mac`, `access`, `generation` and `holder`. Without it, or with another user's, the
//! answer is EACCES; with one that is no server's, ESTALE. The second path of [`Op::Rename`] and [`Op::Link`] begins at
//! `ino2` with a capability in fields that mean nothing else there ([`RequestHeader::second_capability`]). Sessions whose
//! peer is root or the server's own user need no proof: a kernel did the walk for a mount's.

use crate::fs::{Attr, Capability, Timestamp};
use crate::{PATH_LEN_MAX, PAYLOAD_LEN_MAX, XATTR_VALUE_LEN_MAX};
use isonomia_units::Ino;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes of an inode's number in an [`Op::ReleaseMany`].
pub const INO_LEN: usize = size_of::<u64>();
/// [`RequestHeader::target`] of an [`Op::Fsync`] of what has no data: a directory, or a name of something else.
pub const NO_TARGET: u16 = u16::MAX;
/// Bytes of a range that one operation of an [`Op::Fallocate`] is charged for.
const SPACE_PER_OPERATION: u64 = 1 << 24;
/// Operations that an [`Op::Fallocate`] is charged as at most, beside the first.
const SPACE_OPERATIONS_MAX: u64 = 1 << 10;
/// First field of every request on the wire.
pub const REQUEST_MAGIC: u32 = u32::from_le_bytes(*b"iso1");

macro_rules! ops {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal,)*) => {
        /// What a request asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Op {
            $($(#[doc = $doc])* $name = $code,)*
        }

        impl Op {
            /// Every operation.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The operation with this code.
            pub const fn from_code(code: u16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name in logs and metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

ops! {
    /// Attributes of the path (or of `ino` when the path is empty). `flags`: [`flag::NO_FOLLOW`]; with
    /// [`flag::PATH_ONLY`] with the proof that such an open gives, else without. Reply: [`Node`](crate::fs::Node).
    GetAttr = 1,
    /// Sets what [`valid`] names of the path's (or `ino`'s) attributes. `flags`: [`flag::NO_FOLLOW`]; with
    /// [`flag::AS_OPENED`] the size alone, on the strength of a capability to write. Reply: [`Node`](crate::fs::Node).
    SetAttr = 2,
    /// Opens or creates the path: `len` is the access asked for, `mode`, `flags` [`flag::CREATE`] and others, perhaps with
    /// an [`OpenHint`](crate::hint::OpenHint). Reply: [`OpenReply`], the
    /// [`FileObjects`](crate::object::FileObjects) of a spread file with their codes, and the layout. The session has one more reference to the inode, as the open file `owner`, until [`Op::Release`].
    Open = 3,
    /// Gives back one reference of this session to `ino` as the open file `owner`. With
    /// [`told::BEHIND`](crate::object::told::BEHIND) in `valid` what lies behind the end of a spread file is cut off soon; `len` as in [`Op::TellSize`].
    Release = 4,
    /// Takes one more reference to the inode of a capability as the open file `owner` (after `fork`).
    Adopt = 5,
    /// Reads `len` bytes at `offset`. Reply: the bytes; fewer at the end of the file. With [`flag::OBJECT`] they are those of an
    /// object, as in all operations that know this flag. `valid`: [`reading`].
    Read = 6,
    /// Writes `len` bytes at `offset`; `value` of the reply is how many were written. With [`flag::APPEND`]
    /// it writes at the end of the file; `value` is then the offset, and the payload how many (a `u64`).
    /// With [`flag::WRITE_BACK`] it writes only if the session of number `ino2` (see [`mapping`](crate::mapping)) has the
    /// inode's writable shared mapping when the request's turn has come: EIO if another has it, EAGAIN if nobody has.
    /// With [`flag::OBJECT`] `ino2` is one more than the number of the last cut that the writer knows, or 0: EAGAIN, and
    /// nothing is written, if the object has done a later one. `valid`: [`writing`](crate::writing).
    Write = 7,
    /// Puts the inode's data on `target` and its attributes on stable storage, on the strength of a capability to read or write; with
    /// [`flag::CONTINUED`] only the data, because another target's request brings the attributes. What has no data names
    /// [`NO_TARGET`]. `valid`: [`syncing`](crate::syncing).
    Fsync = 8,
    /// Creates a directory. Reply: [`Node`](crate::fs::Node).
    Mkdir = 9,
    /// Removes an empty directory.
    Rmdir = 10,
    /// Removes a name.
    Unlink = 11,
    /// Renames path (below `ino`) to path2 (below `ino2`), atomically. `flags`: [`flag::NO_REPLACE`], [`flag::EXCHANGE`].
    Rename = 12,
    /// Hard link path2 (below `ino2`) to path (below `ino`). `flags`: [`flag::NO_FOLLOW`]. Reply: [`Node`](crate::fs::Node).
    Link = 13,
    /// Symbolic link path2 (below `ino`) with the text path. Reply: [`Node`](crate::fs::Node).
    Symlink = 14,
    /// Text of a symbolic link.
    Readlink = 15,
    /// Creates a node of the kind in `mode` (fifo, socket, device with `rdev` in `offset`). Reply: [`Node`](crate::fs::Node).
    Mknod = 16,
    /// Entries of the directory `ino` after cookie `offset`, at most `len` bytes of them; with [`flag::AS_OPENED`] on the
    /// strength of a capability to read.
    ReadDir = 17,
    /// Checks `len` (as in `access(2)`: 4 read, 2 write, 1 execute, 0 exists) for the path.
    Access = 18,
    /// Reply: [`crate::fs::FsStat`].
    StatFs = 19,
    /// Reserves `len` bytes at the end of the file for a striped append; `value` is their offset. `target` is any of the
    /// file's. Reply of a spread file: its [`FileEnd`](crate::object::FileEnd) afterwards. EAGAIN while it is being cut, or if
    /// that was cut off again.
    ReserveAppend = 20,
    /// Path of the directory `ino` from the root. Reply: the path.
    PathOf = 21,
    /// Locks bytes from `offset` on, `ino2` of them (0: to the end), as [`lock`] says; `uid` is the process's number on
    /// its host. As on Linux, a shared lock of bytes needs a capability to read, an exclusive one to write, a lock of the
    /// whole file either. The lock is counted for the capability's holder, who gets ENOLCK with too many. EAGAIN if another owner's lock is in the way; EDEADLK if waiting for it could not end.
    /// A server that has just started waits a moment for those who had locks ([`lock::CLAIMED`]): EBUSY for any other lock that
    /// nothing is in the way of, and ESTALE for one that is claimed later, or by a session that does not
    /// [continue](crate::setup::Hello::continues) one that had locks.
    /// With [`lock::TEST`] the reply is a [`LockReply`].
    Lock = 22,
    /// This process is about to execute another program: when its connections end, its references are kept until that
    /// program can have taken its own.
    HandOver = 23,
    /// The extended attribute path2 of the path: `value` is its length. Reply: its value, unless `len` is 0; ERANGE if
    /// that is longer than `len`. `flags`: [`flag::NO_FOLLOW`], as in the three that follow.
    GetXattr = 24,
    /// Sets the extended attribute path2 of the path to the `len` bytes that follow its name. `flags`:
    /// [`flag::NO_REPLACE`], [`flag::MUST_REPLACE`].
    SetXattr = 25,
    /// The names of the path's extended attributes, each with a NUL after it: as [`Op::GetXattr`].
    ListXattrs = 26,
    /// Removes the extended attribute path2 of the path.
    RemoveXattr = 27,
    /// Gives back one reference of this session, as the open file 0, to each of the inodes whose numbers (8 bytes each)
    /// stand instead of the path. It is charged as so many operations.
    ReleaseMany = 28,
    /// Takes the writable shared mapping of the inode of a capability to write: at most one session has it. `value` is 1
    /// if this one has it now; else it is 0, and the session is next after those who asked before it. Reply: a
    /// [`LeaseEvents`](crate::mapping::LeaseEvents) without inodes. ENOLCK if the session has too many; EAGAIN from a server that has
    /// just started, but for a mapping that the session [had](crate::mapping::HAD).
    TakeMapping = 29,
    /// Gives the mapping of `ino` back, or waits for it no more.
    GiveMapping = 30,
    /// Answered when the mappings of this session are no longer as they were at version `offset`: one that it waited for
    /// has become its own, or another session waits for one of its own; and after `ino2` nanoseconds at the latest.
    /// Reply: a [`LeaseEvents`](crate::mapping::LeaseEvents). A second one of a session replaces the first, which gets EAGAIN.
    AwaitMappings = 31,
    /// Changes the space below `ino2` bytes from `offset` on, of the inode of a capability to write: `valid` is a mode of
    /// `fallocate(2)` ([`SpaceChange`](crate::space::SpaceChange)). EOPNOTSUPP if the target's file system cannot.
    Fallocate = 32,
    /// Where the next byte that was written is, at `offset` or behind it: `value`. ENXIO if there is none.
    SeekData = 33,
    /// Where the next hole is, at `offset` or behind it: `value`. Behind its last byte a file has one. ENXIO if `offset`
    /// is not within the file.
    SeekHole = 34,
    /// Makes the capability out to user `uid` as well, who may have it from then on. Reply: [`Capability`].
    Delegate = 35,
    /// Asks for the memory that stands for the first `offset` bytes of the inode of a capability to read and write, or to
    /// read if there is such memory already; `target` is any of the file's. Before the reply a descriptor of the memory is
    /// sent on the connection's socket: for reading, or with [`STORES`](crate::mapping::STORES) for writing as well. `value`
    /// is how many bytes were read for it. ENODEV if there is none for this session; ENOMEM with too much of it; EAGAIN
    /// while a mount has the mapping.
    MapFile = 36,
    /// Where the server of number `offset` listens. Reply: its addresses, each in a line of its own; EHOSTDOWN if there is none. A
    /// server in no cluster tells of its own sockets, of which it may have none.
    FindServer = 37,
    /// A message of `len` bytes, of the kind `valid`, from the server of number `offset` of the same cluster. EACCES from anybody else.
    Peer = 38,
    /// Asks for what it takes to get at the bytes of a spread file, on the strength of the capability of an open file. Reply:
    /// [`FileObjects`](crate::object::FileObjects) with their codes, and in `value` the number of the last cut that made the file shorter, or
    /// of a later one: room that was made before that may be somebody else's. EINVAL of a file that is not spread. With
    /// [`find::END_ONLY`](crate::object::find::END_ONLY) in `valid` the reply is a [`FileEnd`](crate::object::FileEnd): no code is made out.
    FindObjects = 39,
    /// Says of a spread file that it was written to, up to `offset` at most, by objects of which the one with the lowest number of
    /// a last cut had `ino2`, and that `len` blocks of 512 bytes were written since it was said last, at most. `value` of the reply is one of [`told`](crate::object::told); reply: [`FileEnd`](crate::object::FileEnd)
    /// afterwards. With [`told::BEHIND`](crate::object::told::BEHIND) in `valid` what lies behind the end is cut off soon.
    TellSize = 40,
    /// Says that an I/O phase of the job begins or ends ([`PhaseCall`](crate::phase::PhaseCall)). `value` of the reply is 1 if the
    /// server's policy has exclusive phases; if it has not, this does nothing.
    Phase = 41,
}

/// Bits of [`RequestHeader::flags`].
pub mod flag {
    /// Do not follow a symbolic link at the end of the path.
    pub const NO_FOLLOW: u16 = 1;
    /// Create the file when it does not exist.
    pub const CREATE: u16 = 2;
    /// With [`CREATE`]: fail when it exists.
    pub const EXCLUSIVE: u16 = 4;
    /// Cut the file to nothing.
    pub const TRUNCATE: u16 = 8;
    /// The path must be a directory.
    pub const DIRECTORY: u16 = 16;
    /// Write at the end of the file.
    pub const APPEND: u16 = 32;
    /// Rename and SetXattr: fail when the new name exists.
    pub const NO_REPLACE: u16 = 64;
    /// Rename: exchange both names.
    pub const EXCHANGE: u16 = 128;
    /// A later part of a transfer that the client had to split: the per-operation cost was charged with the first. Of an
    /// [`Op::Fsync`](super::Op::Fsync): of the data alone.
    pub const CONTINUED: u16 = 256;
    /// Open without access to the data (`O_PATH`): only the inode's identity is asked for. GetAttr: a proof of having come
    /// there as well.
    pub const PATH_ONLY: u16 = 512;
    /// Fsync: the data and the size only, as in `fdatasync`.
    pub const DATA_ONLY: u16 = 1024;
    /// SetXattr: fail when the name does not exist.
    pub const MUST_REPLACE: u16 = 2048;
    /// Write: what was stored in a writable shared mapping; refused unless the session that it names has the mapping.
    pub const WRITE_BACK: u16 = 4096;
    /// Open: create a file without a name in the directory of the path. With [`EXCLUSIVE`] it never gets one; else
    /// [`Op::Link`](super::Op::Link) with an empty path gives it one.
    pub const UNNAMED: u16 = 8192;
    /// SetAttr of a size, ReadDir: whatever the permissions are now, on the strength of the capability's access.
    pub const AS_OPENED: u16 = 16_384;
    /// Read, Write, Fsync, Fallocate, SeekData, SeekHole: of one object of a spread file, at its own offsets, on the strength of
    /// an [`ObjectCapability`](crate::object::ObjectCapability) ([`RequestHeader::of_object`](super::RequestHeader::of_object)).
    pub const OBJECT: u16 = 32_768;
}

/// Bits of [`RequestHeader::valid`]: what [`Op::SetAttr`] sets.
pub mod valid {
    /// The permission bits.
    pub const MODE: u32 = 1;
    /// The owner.
    pub const UID: u32 = 2;
    /// The group.
    pub const GID: u32 = 4;
    /// The size, in `offset`.
    pub const SIZE: u32 = 8;
    /// The access time.
    pub const ATIME: u32 = 16;
    /// The modification time.
    pub const MTIME: u32 = 32;
    /// The access time, to the server's clock.
    pub const ATIME_NOW: u32 = 64;
    /// The modification time, to the server's clock.
    pub const MTIME_NOW: u32 = 128;
}

/// Bits of [`RequestHeader::valid`] of an [`Op::Read`].
pub mod reading {
    /// The client compares blocks in shared memory, as many as `value` of the reply says; what disagrees it reads again without this.
    pub const COMPARES: u32 = 1;
}

/// Bits of [`RequestHeader::valid`] of an [`Op::Lock`].
pub mod lock {
    /// A shared lock.
    pub const SHARED: u32 = 1;
    /// An exclusive lock. With neither, what the owner has is given up.
    pub const EXCLUSIVE: u32 = 2;
    /// The file as a whole, as of `flock(2)`: such locks and locks of bytes do not see each other.
    pub const WHOLE: u32 = 4;
    /// The owner is the open file of number `owner`, not this process.
    pub const OPEN_FILE: u32 = 8;
    /// Only tell what is in the way. Who asks this waits no more.
    pub const TEST: u32 = 16;
    /// The owner will ask again until it has the lock.
    pub const WAITS: u32 = 32;
    /// The owner had the lock when the server stopped. Given only while it [waits](super::Op::Lock) for those.
    pub const CLAIMED: u32 = 64;
}

/// What is in the way of a lock that was asked for with [`lock::TEST`]; zeros if nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LockReply {
    /// First byte.
    pub start: u64,
    /// Bytes; 0 for all from `start` on.
    pub len: u64,
    /// [`lock::SHARED`] or [`lock::EXCLUSIVE`].
    pub kind: u32,
    /// The process's number on its host.
    pub pid: u32,
}

/// The head of every request: 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RequestHeader {
    /// [`REQUEST_MAGIC`].
    pub magic: u32,
    /// An [`Op`].
    pub op: u16,
    /// Bits of [`flag`].
    pub flags: u16,
    /// Chosen by the client, returned in the reply.
    pub seq: u64,
    /// The inode, or the directory that the path starts from.
    pub ino: u64,
    /// The directory that the second path starts from.
    pub ino2: u64,
    /// Authentication code of the capability, 0 for none.
    pub mac: u64,
    /// Position in the file; a size, a cookie, or a device number for some operations; the second capability's `mac`.
    pub offset: u64,
    /// Bytes to read or written; the access asked for, in an [`Op::Open`] and an [`Op::Access`]; blocks, in an [`Op::TellSize`] and an [`Op::Release`].
    pub len: u32,
    /// Access of the capability.
    pub access: u32,
    /// Mode of what is created or set, with the umask applied; the second capability's access.
    pub mode: u32,
    /// New owner; the process's number for a lock; part of a hint of an open, as the group is; the second capability's
    /// holder; the user of an [`Op::Delegate`].
    pub uid: u32,
    /// New group; the second capability's generation.
    pub gid: u32,
    /// Bits of [`valid`], [`lock`], [`reading`], [`writing`](crate::writing), [`mapping`](crate::mapping), or [`told`](crate::object::told); a mode of an [`Op::Fallocate`].
    pub valid: u32,
    /// New access time.
    pub atime: Timestamp,
    /// New modification time.
    pub mtime: Timestamp,
    /// Length of the path.
    pub path_len: u16,
    /// Length of the second path.
    pub path2_len: u16,
    /// Of an [`Op::Mkdir`] in the root of a cluster: the server that is to have the new volume, 0 for the one that its name
    /// leads to. Of a request for an object: which of the file's it is.
    pub server: u16,
    /// The target of a read, write, sync, or reservation: where the file's layout puts all of the bytes, or that of the
    /// capability for an object, or ESTALE. An append of one request is for files with one target.
    pub target: u16,
    /// The open file (drawn by the client), or whom the process speaks for when it locks.
    pub owner: u64,
    /// Generation of the capability's inode.
    pub generation: u32,
    /// The user that the capability is made out to.
    pub holder: u32,
}

/// The head of every reply: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReplyHeader {
    /// The request's number.
    pub seq: u64,
    /// 0, or the errno of the failure.
    pub errno: u32,
    /// Bytes that follow.
    pub payload_len: u32,
    /// The operation's number: bytes written, the offset of an append, blocks to compare ([`reading::COMPARES`]).
    pub value: u64,
    /// Of an object: the number of its last cut, before what was written. Else 0.
    pub cuts: u64,
}

/// The fixed part of the payload that answers [`Op::Open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpenReply {
    /// What data requests carry from now on.
    pub capability: Capability,
    /// 1 if this open created the file.
    pub created: u32,
    /// 1 if the file is spread.
    pub spread: u32,
    /// The attributes after the open.
    pub attr: Attr,
}

/// A header that cannot be served; the connection that sent it is closed, with this as the reason in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// The first field is not [`REQUEST_MAGIC`].
    #[error("request magic {0:#010x} instead of {REQUEST_MAGIC:#010x}")]
    Magic(u32),
    /// No operation has this code.
    #[error("unknown operation {0}")]
    Op(u16),
    /// Names longer than [`PATH_LEN_MAX`].
    #[error("{op:?} with a path of {len} bytes, {PATH_LEN_MAX} at most")]
    PathLen {
        /// The operation.
        op: Op,
        /// Announced length.
        len: u16,
    },
    /// A payload larger than [`PAYLOAD_LEN_MAX`], or a value larger than [`XATTR_VALUE_LEN_MAX`].
    #[error("{op:?} of {len} bytes, {} at most", len_max(*.op))]
    PayloadLen {
        /// The operation.
        op: Op,
        /// Announced length.
        len: u32,
    },
    /// A time with 10^9 or more nanoseconds.
    #[error("{0:?} with a time of more than 999999999 ns")]
    Time(Op),
}

impl RequestHeader {
    /// Bytes of a header.
    pub const LEN: usize = size_of::<Self>();

    /// An empty request for `op` on `ino`.
    pub fn new(op: Op, ino: Ino) -> Self {
        Self { magic: REQUEST_MAGIC, op: op as u16, ino: ino.0, ..Self::new_zeroed() }
    }

    /// A request on the strength of `capability`.
    pub fn with_capability(op: Op, capability: &Capability) -> Self {
        Self {
            mac: capability.mac,
            access: capability.access,
            generation: capability.generation,
            holder: capability.holder,
            ..Self::new(op, Ino(capability.ino))
        }
    }

    /// The same request of [`Op::Rename`] or [`Op::Link`], whose second path begins at `second`.
    pub fn with_second_capability(self, second: &Capability) -> Self {
        Self {
            ino2: second.ino,
            offset: second.mac,
            mode: second.access,
            gid: second.generation,
            uid: second.holder,
            ..self
        }
    }

    /// The same request, whose path of this index (0: the first) is `len` bytes from the root.
    pub fn from_root(self, path_at: usize, len: u16) -> Self {
        let (path_len, path2_len) = if path_at == 0 { (len, self.path2_len) } else { (self.path_len, len) };
        Self { ino: Ino::ROOT.0, mac: 0, access: 0, generation: 0, holder: 0, path_len, path2_len, ..self }
    }

    /// The capability that the request carries.
    pub fn capability(&self) -> Capability {
        Capability {
            ino: self.ino,
            access: self.access,
            generation: self.generation,
            mac: self.mac,
            holder: self.holder,
            reserved: 0,
        }
    }

    /// Where the second path of an [`Op::Rename`] or [`Op::Link`] begins.
    pub fn second_capability(&self) -> Capability {
        Capability {
            ino: self.ino2,
            access: self.mode,
            generation: self.gid,
            mac: self.offset,
            holder: self.uid,
            reserved: 0,
        }
    }

    /// Checks every limit; what passes can be served without further thought about sizes.
    pub fn check(&self) -> Result<Op, BadRequest> {
        if self.magic != REQUEST_MAGIC {
            return Err(BadRequest::Magic(self.magic));
        }
        let op = Op::from_code(self.op).ok_or(BadRequest::Op(self.op))?;
        for len in [self.path_len, self.path2_len] {
            if usize::from(len) > PATH_LEN_MAX {
                return Err(BadRequest::PathLen { op, len });
            }
        }
        if self.len as usize > len_max(op) {
            return Err(BadRequest::PayloadLen { op, len: self.len });
        }
        if self.atime.nanos >= 1_000_000_000 || self.mtime.nanos >= 1_000_000_000 {
            return Err(BadRequest::Time(op));
        }
        Ok(op)
    }

    /// Bytes of names that follow the header, and of the value that follows the name of an attribute that is set.
    pub fn names_len(&self) -> usize {
        let has_value = self.op == Op::SetXattr as u16 || self.op == Op::Peer as u16;
        let value_len = if has_value { self.len as usize } else { 0 };
        usize::from(self.path_len) + usize::from(self.path2_len) + value_len
    }

    /// How many operations the request is charged as.
    pub fn operations(&self, op: Op) -> u64 {
        match op {
            Op::ReleaseMany => u64::from(self.path_len) / INO_LEN as u64,
            // Of a range as long as can be only a part has any content.
            Op::Fallocate => 1 + (self.ino2 / SPACE_PER_OPERATION).min(SPACE_OPERATIONS_MAX),
            _ => 1,
        }
    }

    /// Bytes of payload that follow the names: only writes have them.
    pub fn payload_len(&self, op: Op) -> usize {
        if op == Op::Write { self.len as usize } else { 0 }
    }
}

impl ReplyHeader {
    /// Bytes of a header.
    pub const LEN: usize = size_of::<Self>();

    /// Success with a number and a payload of `payload_len` bytes.
    pub fn ok(seq: u64, value: u64, payload_len: usize) -> Self {
        Self { seq, errno: 0, payload_len: payload_len as u32, value, cuts: 0 }
    }

    /// Failure.
    pub fn error(seq: u64, errno: u32) -> Self {
        Self { seq, errno, payload_len: 0, value: 0, cuts: 0 }
    }
}

/// The largest [`RequestHeader::len`] of an operation; space for a striped append is only a number, as what was written is.
const fn len_max(op: Op) -> usize {
    match op {
        Op::ReserveAppend | Op::TellSize | Op::Release => u32::MAX as usize,
        Op::SetXattr | Op::Peer => XATTR_VALUE_LEN_MAX,
        _ => PAYLOAD_LEN_MAX,
    }
}

const _: () = assert!(RequestHeader::LEN == 128 && ReplyHeader::LEN == 32);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fresh_request_passes_and_each_broken_limit_is_named() {
        let good = RequestHeader::new(Op::Write, Ino::ROOT);
        assert_eq!(good.check(), Ok(Op::Write));
        assert_eq!(RequestHeader { magic: 7, ..good }.check(), Err(BadRequest::Magic(7)));
        assert_eq!(RequestHeader { op: 999, ..good }.check(), Err(BadRequest::Op(999)));
        assert_eq!(
            RequestHeader { path2_len: 4097, ..good }.check(),
            Err(BadRequest::PathLen { op: Op::Write, len: 4097 })
        );
        assert_eq!(
            RequestHeader { len: (1 << 20) + 1, ..good }.check(),
            Err(BadRequest::PayloadLen { op: Op::Write, len: (1 << 20) + 1 })
        );
        let value =
            RequestHeader { len: 65_536, path_len: 3, path2_len: 6, ..RequestHeader::new(Op::SetXattr, Ino::ROOT) };
        assert_eq!((value.check(), value.names_len()), (Ok(Op::SetXattr), 65_545));
        let error = RequestHeader { len: 65_537, ..value }.check().unwrap_err();
        assert_eq!(error.to_string(), "SetXattr of 65537 bytes, 65536 at most");
    }

    #[test]
    fn a_header_carries_two_capabilities() {
        let of = |n: u32| Capability {
            ino: u64::from(n),
            access: n + 1,
            generation: n + 2,
            mac: u64::MAX - u64::from(n),
            holder: n + 3,
            reserved: 0,
        };
        let header = RequestHeader::with_capability(Op::Rename, &of(10)).with_second_capability(&of(20));
        assert_eq!((header.capability(), header.second_capability()), (of(10), of(20)));
        assert_eq!(header.check(), Ok(Op::Rename));
        let plain = RequestHeader::new(Op::GetAttr, Ino::ROOT);
        assert_eq!((plain.capability(), Capability::ROOT.is_proven()), (Capability::ROOT, false));
    }

    #[test]
    fn codes_are_unique_and_stable() {
        for (i, op) in Op::ALL.iter().enumerate() {
            assert_eq!(*op as usize, i + 1, "{}", op.name());
            assert_eq!(Op::from_code(*op as u16), Some(*op));
        }
    }

    proptest! {
        #[test]
        fn any_128_bytes_are_checked_without_panic(bytes in any::<[u8; 32]>(), tail in any::<[u8; 32]>()) {
            let mut all = [0u8; RequestHeader::LEN];
            for (i, b) in all.iter_mut().enumerate() {
                *b = if i % 2 == 0 { bytes[i / 4] } else { tail[i / 4] };
            }
            let header = RequestHeader::read_from_bytes(&all).unwrap();
            if let Ok(op) = header.check() {
                prop_assert!(header.payload_len(op) <= PAYLOAD_LEN_MAX);
                prop_assert!(header.names_len() <= 2 * PATH_LEN_MAX + XATTR_VALUE_LEN_MAX);
            }
        }
    }
}
