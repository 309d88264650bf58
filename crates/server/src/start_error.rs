//! Why a server does not start.

use crate::directory_check::BadDirectory;
use crate::listen::ListenError;
use crate::munge::NoLibrary;
use isonomia_store::OpenError;
use isonomia_transport::key::KeyError;
use std::io;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The directory cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// A directory cannot keep files.
    #[error(transparent)]
    Directory(#[from] BadDirectory),
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Munge cannot be used.
    #[error(transparent)]
    Munge(#[from] NoLibrary),
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(String),
    /// The system refused something else.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}
