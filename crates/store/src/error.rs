//! What can go wrong, and the one module where it becomes an errno.

use crate::volumes::change::VolumeChange;
use isonomia_units::{Ino, ServerId, TargetId};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Why an operation on the file system failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A component of the path, or the directory it starts from, does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("the name exists")]
    Exists,
    /// A component that must be a directory is not.
    #[error("not a directory")]
    NotDirectory,
    /// The operation does not work on directories.
    #[error("is a directory")]
    IsDirectory,
    /// The directory still has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// Permission bits refuse it.
    #[error("permission denied")]
    PermissionDenied,
    /// Only the owner or root may do it.
    #[error("operation not permitted")]
    NotPermitted,
    /// A name over 255 bytes or a path over 4,096.
    #[error("name or path too long")]
    NameTooLong,
    /// More symbolic links on the way than [`crate::SYMLINKS_MAX`], or one where none is allowed.
    #[error("too many symbolic links")]
    TooManyLinks,
    /// The walk met a symbolic link with an absolute text, or one that climbs above the root; where that leads is
    /// known to the client only. Holds the text with what was left of the path: absolute, or from the root on with `..`
    /// first.
    #[error("the path leaves the file system at a symbolic link")]
    Outside(Vec<u8>),
    /// Another server has it, or knows who has: what is left of the path there, from the root on; empty if what was asked for
    /// was no path.
    #[error("on server {server}")]
    Elsewhere {
        /// The server.
        server: ServerId,
        /// The path.
        rest: Box<[u8]>,
    },
    /// A change of a volume's name, which all servers make together.
    #[error("concerns a volume: {0:?}")]
    OfVolume(VolumeChange),
    /// An argument that no state of the file system would accept.
    #[error("invalid argument")]
    Invalid,
    /// The inode is gone, or the capability is not one of ours.
    #[error("stale handle")]
    Stale,
    /// An object was asked for on this target, which is none of this server's.
    #[error("target {0} is another server's")]
    OtherTarget(TargetId),
    /// Bytes were asked for by the inode of a file that has none here (`spread`).
    #[error("the file's bytes are in objects that are asked for by their places")]
    Spread,
    /// A spread file is to be cut, as the server of its volume does with [`crate::Store::begin_cut`], and then this done again.
    #[error("objects on other servers are to be cut first")]
    MustCut {
        /// The file.
        ino: Ino,
        /// The size that it is to have.
        size_bytes: u64,
    },
    /// The bytes were written before a cut, or while one is under way: they are to be written again.
    #[error("the file was cut meanwhile")]
    CutMeanwhile,
    /// Who had locks before the server was started may still come for them.
    #[error("those who had locks before the server was started are waited for")]
    AwaitsClaims,
    /// The storage is full.
    #[error("no space left")]
    NoSpace,
    /// The file would grow beyond 2^63 − 1 bytes or what a target's file system can have.
    #[error("file too large")]
    FileTooLarge,
    /// The capability does not allow this access.
    #[error("not open for this access")]
    BadAccess,
    /// The root, `.` or `..` where a changeable name is needed.
    #[error("busy")]
    Busy,
    /// The names lie on different file systems.
    #[error("crosses file systems")]
    CrossDevice,
    /// The inode has [`crate::LINKS_MAX`] names already.
    #[error("too many hard links")]
    LinksMax,
    /// A node (fifo, socket, device) that a server cannot open.
    #[error("no such device")]
    NoDevice,
    /// The inode has no extended attribute of this name.
    #[error("no such attribute")]
    NoAttribute,
    /// A name of an extended attribute that is empty or longer than 255 bytes, or a value or a list that is longer than
    /// the room for it.
    #[error("name or result out of range")]
    Range,
    /// An extended attribute of a namespace that is not kept here.
    #[error("not supported")]
    NotSupported,
    /// Nobody wants it any more (ECANCELED).
    #[error("not wanted any more")]
    Canceled,
    /// A value of an extended attribute over 64 KiB.
    #[error("value too long")]
    TooBig,
    /// The host file system under a target failed.
    #[error("{}: {}", path.display(), .r#source)]
    Io {
        /// The file that was used.
        path: PathBuf,
        /// What the host said. Spelled so that `source()` does not say again what the message says.
        r#source: io::Error,
    },
    /// The metadata database failed.
    #[error("metadata: {0}")]
    Meta(fjall::Error),
    /// Bytes of a file are lost, or not those that were written.
    #[error("inode {ino} is damaged at {offset}: {} ({what})", path.display())]
    Corrupt {
        /// The file.
        ino: Ino,
        /// Where in the file, to the block.
        offset: u64,
        /// The object.
        path: PathBuf,
        /// What was found.
        what: &'static str,
    },
    /// A record in the metadata database cannot be read.
    #[error("metadata of inode {0} is damaged")]
    Damaged(Ino),
}

impl StoreError {
    /// The errno that a program gets to see.
    pub fn errno(&self) -> u32 {
        let errno = match self {
            Self::NotFound => Errno::NOENT,
            Self::Exists => Errno::EXIST,
            Self::NotDirectory => Errno::NOTDIR,
            Self::IsDirectory => Errno::ISDIR,
            Self::NotEmpty => Errno::NOTEMPTY,
            Self::PermissionDenied => Errno::ACCESS,
            Self::NotPermitted => Errno::PERM,
            Self::NameTooLong => Errno::NAMETOOLONG,
            Self::TooManyLinks => Errno::LOOP,
            Self::Outside(_) => Errno::REMOTE,
            Self::Elsewhere { .. } => Errno::REMCHG,
            Self::OfVolume(_) => Errno::XDEV,
            Self::Invalid => Errno::INVAL,
            Self::Stale => Errno::STALE,
            Self::OtherTarget(_) | Self::Spread => Errno::STALE,
            Self::MustCut { .. } | Self::CutMeanwhile | Self::AwaitsClaims => Errno::AGAIN,
            Self::NoSpace => Errno::NOSPC,
            Self::FileTooLarge => Errno::FBIG,
            Self::BadAccess => Errno::BADF,
            Self::Busy => Errno::BUSY,
            Self::CrossDevice => Errno::XDEV,
            Self::LinksMax => Errno::MLINK,
            Self::NoDevice => Errno::NXIO,
            Self::NoAttribute => Errno::NODATA,
            Self::Range => Errno::RANGE,
            Self::NotSupported => Errno::OPNOTSUPP,
            Self::Canceled => Errno::CANCELED,
            Self::TooBig => Errno::TOOBIG,
            Self::Io { source, .. } | Self::Meta(fjall::Error::Io(source)) => host_errno(source),
            Self::Meta(_) | Self::Damaged(_) | Self::Corrupt { .. } => Errno::IO,
        };
        errno.raw_os_error().unsigned_abs()
    }

    pub(crate) fn elsewhere(server: ServerId, rest: &[u8]) -> Self {
        Self::Elsewhere { server, rest: rest.into() }
    }

    pub(crate) fn host(path: &Path, errno: Errno) -> Self {
        match errno {
            Errno::NOSPC => Self::NoSpace,
            Errno::FBIG => Self::FileTooLarge,
            _ => Self::Io { path: path.to_owned(), source: errno.into() },
        }
    }
}

/// Errors about the storage itself keep their number; whatever else the host says is the server's trouble, not the
/// program's.
fn host_errno(error: &io::Error) -> Errno {
    match Errno::from_io_error(error) {
        Some(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::FBIG)) => errno,
        _ => Errno::IO,
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another server has the directory.
    #[error("{} is in use by another server (process {pid})", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// What the lock file says of its holder.
        pid: String,
    },
    /// A process of another host had the directory, and did not give it up.
    #[error(
        "process {pid} on host {host} has {} and did not give it up: if it is to be replaced, start with --take-over",
        dir.display()
    )]
    Elsewhere {
        /// The directory.
        dir: PathBuf,
        /// The other host.
        host: String,
        /// The process there.
        pid: u32,
    },
    /// While this process waited until it could have the directory, another one began to wait for it.
    #[error("{} is being taken over by another process as well, the {instance}. that had it", dir.display())]
    TakenOver {
        /// The directory.
        dir: PathBuf,
        /// The number of the other process.
        instance: u64,
    },
    /// The configuration names no target, more than a layout can, one twice, or a stripe that is not a positive
    /// multiple of 4096.
    #[error("configuration: {0}")]
    Config(&'static str),
    /// The directory of a target lies in another one of the store, or another one in it, or is it.
    #[error(
        "target {target} cannot be added: {} lies in {} (allowed: for metadata and each target a directory beside those of \
         the others)",
        inner.display(),
        outer.display()
    )]
    Nested {
        /// The target.
        target: TargetId,
        /// The directory inside, without symbolic links.
        inner: PathBuf,
        /// The one around it.
        outer: PathBuf,
    },
    /// No target is on the file system of the metadata, and that is so small that it could be full for good: removing files
    /// would give no room there.
    #[error(
        "{} is on a file system of {total_bytes} bytes with metadata alone: once full, it could not be emptied (allowed: at \
         least {least_bytes} bytes, or a target on the same file system)",
        dir.display()
    )]
    Cramped {
        /// The directory of the metadata.
        dir: PathBuf,
        /// Size of its file system.
        total_bytes: u64,
        /// What it must have.
        least_bytes: u64,
    },
    /// A target that this store was created with is not configured.
    #[error("{} was created with target {target}, which is not configured", dir.display())]
    TargetMissing {
        /// The store's directory.
        dir: PathBuf,
        /// The absent target.
        target: TargetId,
    },
    /// The directory of a target that belongs to this store is empty or gone.
    #[error("{} does not hold target {target} of this store: is its file system mounted?", dir.display())]
    TargetLost {
        /// The target's directory.
        dir: PathBuf,
        /// The target.
        target: TargetId,
    },
    /// A directory says that it is something else.
    #[error("{} is {found}, not {expected}", dir.display())]
    Mismatch {
        /// The directory.
        dir: PathBuf,
        /// What its identity file says.
        found: String,
        /// What the configuration says.
        expected: String,
    },
    /// A directory belongs to a user who could exchange what is in it.
    #[error("{} belongs to user {owner}: the directories of a server are its own user's, or root's", dir.display())]
    Owner {
        /// The directory.
        dir: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The directory was written by an incompatible version.
    #[error("{} has format {found}; this version reads {}", dir.display(), crate::FORMAT_VERSION)]
    Format {
        /// The directory.
        dir: PathBuf,
        /// Its format.
        found: String,
    },
    /// Something that a store that was used before must have is missing or spoilt.
    #[error("{} {what}: this store is damaged; nothing was changed. Put back what is missing, or see what `isonomia fsck` can repair", path.display())]
    Damaged {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The metadata were put back from a copy that is older than what lies on a target.
    #[error(
        "{} is older than the files of this store: it ends at sync {number}, and {} tells of {known}. Files that were made \
         since would be removed: run `isonomia fsck --repair` first, which sets them aside",
        dir.display(),
        path.display()
    )]
    Older {
        /// The store's directory.
        dir: PathBuf,
        /// Syncs that the metadata had.
        number: u64,
        /// The file that knows of more.
        path: PathBuf,
        /// How many.
        known: u64,
    },
    /// The host refused a file operation.
    #[error("{}: {}", path.display(), .r#source)]
    Io {
        /// The file.
        path: PathBuf,
        /// What the host said. Spelled so that `source()` does not say again what the message says.
        r#source: io::Error,
    },
    /// The metadata database cannot be opened or read.
    #[error("the metadata in {} cannot be read: {}", dir.display(), .r#source)]
    Recovery {
        /// The store's directory.
        dir: PathBuf,
        /// What failed; spelled as above.
        r#source: StoreError,
    },
}

/// By hand: what is derived would give as the source what the message says already.
impl From<fjall::Error> for StoreError {
    fn from(error: fjall::Error) -> Self {
        Self::Meta(error)
    }
}

impl OpenError {
    /// What is missing or spoilt, if that is why.
    pub(crate) fn damage(self) -> Result<String, Self> {
        match self {
            Self::Damaged { path, what } => Ok(format!("{} {what}", path.display())),
            other => Err(other),
        }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), source: source.into() }
    }
}
