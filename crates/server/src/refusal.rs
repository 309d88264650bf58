//! Why a request fails, and the errno that tells it.

use crate::sessions::ReferenceError;
use isonomia_store::StoreError;
use rustix::io::Errno;

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The store says no, or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A limit of the session or its user, or its end.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The request begins at an inode without a proof that its user came there.
    #[error("no proof that the user came to the inode")]
    Unproven,
    /// The capability is made out to another user.
    #[error("another user's capability")]
    OfAnother,
    /// The cluster file does not have this server.
    #[error("no such server in the cluster file")]
    NoSuchServer,
    /// The attributes can be synced only after the bytes of all targets.
    #[error("the bytes of other targets have to be synced before the attributes")]
    TooSoon,
}

impl Refusal {
    /// The errno that a program gets to see.
    pub fn errno(&self) -> u32 {
        let errno = match self {
            Self::Store(error) => return error.errno(),
            Self::Unproven | Self::OfAnother => Errno::ACCESS,
            Self::NoSuchServer => Errno::HOSTDOWN,
            Self::TooSoon => Errno::AGAIN,
            // Nobody is there to see it.
            Self::Reference(ReferenceError::Ended) => Errno::STALE,
            Self::Reference(ReferenceError::Session) => Errno::MFILE,
            Self::Reference(ReferenceError::User | ReferenceError::Memory) => Errno::NFILE,
        };
        errno.raw_os_error().unsigned_abs()
    }
}
