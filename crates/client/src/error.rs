//! What can go wrong between a program and its files, and the errno that each becomes.

use isonomia_units::ServerId;
use rustix::io::Errno;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused or failed, with this errno.
    #[error("{0}")]
    Server(Errno),
    /// The path leads out of the file system through a symbolic link: this is where to, absolute or, with `..` first,
    /// from the file system's root.
    #[error("leads to {}", String::from_utf8_lossy(.0))]
    Outside(Box<[u8]>),
    /// Another server is to be asked; with a path from the root, for what is left of it.
    #[error("on server {server}")]
    Elsewhere {
        /// Its number.
        server: ServerId,
        /// The path; empty if the same request is to be sent there.
        rest: Box<[u8]>,
    },
    /// The volume is on its way to another server: the same one is to be asked again.
    #[error("its volume moves to another server")]
    Moving,
    /// An argument that no server could serve.
    #[error("{0}")]
    Argument(Errno),
    /// No server answered within the time-out.
    #[error("no answer from {address} within {seconds} s")]
    TimedOut {
        /// The server's address.
        address: String,
        /// The time-out.
        seconds: u64,
    },
    /// There is no session with the server, for this reason: it refused, or is none to talk to.
    #[error("no session with {address}: {reason}")]
    Refused {
        /// The server's address.
        address: String,
        /// In the server's words if it refused.
        reason: String,
    },
    /// The connection was lost after a request that must not be sent twice; it may or may not have taken effect.
    #[error("connection to {0} lost during a request")]
    Lost(String),
    /// The server answered nonsense.
    #[error("malformed reply from {0}")]
    Protocol(String),
}

impl Error {
    /// The errno a program sees: decided only here.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Server(errno) | Self::Argument(errno) => *errno,
            Self::Outside(_) => Errno::REMOTE,
            Self::TimedOut { .. } => Errno::TIMEDOUT,
            Self::Refused { .. } => Errno::ACCESS,
            Self::Moving => Errno::BUSY,
            // Clients follow such a reply, and do not tell it.
            Self::Elsewhere { .. } | Self::Lost(_) | Self::Protocol(_) => Errno::IO,
        }
    }
}
