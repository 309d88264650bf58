//! Opening the addresses that a server listens on.

use crate::acceptor::Listener;
use crate::pending::Proof;
use isonomia_transport::address::Address;
use isonomia_transport::socket::{Deadline, SocketError, connect};
use isonomia_units::Nanos;
use nix::libc;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use std::net::{SocketAddr, ToSocketAddrs};

/// Connections that the kernel keeps until the acceptor takes them; `net.core.somaxconn` may make it fewer.
const BACKLOG: i32 = 4_096;

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Somebody listens there.
    #[error("{0} is in use by another server; listen elsewhere (--listen)")]
    InUse(Address),
    /// Something else has that path.
    #[error("{0}: a file is there that is no socket; move it away, or listen elsewhere")]
    NoSocket(Address),
    /// TCP without a key.
    #[error("{0} needs a key file (--key-file) or --auth munge: clients on TCP prove who they are")]
    KeyMissing(Address),
    /// The host's name means nothing.
    #[error("cannot resolve {0}")]
    Resolve(Address),
    /// The system refused.
    #[error("cannot listen on {address}: {errno}")]
    System {
        /// The address.
        address: Address,
        /// Why.
        errno: Errno,
    },
}

impl ListenError {
    /// Whether the address is of another host.
    pub(crate) fn is_of_another_host(&self) -> bool {
        matches!(self, Self::System { errno: Errno::ADDRNOTAVAIL, .. })
    }
}

/// Listens on `address`, on TCP for clients that give `proof` of who they are; gives the socket and the address with the port that was chosen if it asked for port 0.
pub fn open(address: &Address, proof: Option<&Proof>) -> Result<(Listener, Address), ListenError> {
    let system = |errno| ListenError::System { address: address.clone(), errno };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match address {
        Address::Unix(path) => {
            clear_stale(address, path)?;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(system)?;
            bind(&socket, &SocketAddrUnix::new(path.as_str()).map_err(system)?).map_err(system)?;
            refuse_descriptors(&socket);
            // Everybody may connect: the kernel says who it is, and the store checks permissions.
            rustix::fs::chmod(path.as_str(), Mode::from_raw_mode(0o666)).map_err(system)?;
            listen(&socket, BACKLOG).map_err(system)?;
            Ok((Listener { socket, proof: None }, address.clone()))
        }
        Address::Tcp(endpoint) => {
            let proof = proof.ok_or_else(|| ListenError::KeyMissing(address.clone()))?;
            let target: SocketAddr = endpoint
                .to_socket_addrs()
                .ok()
                .and_then(|mut all| all.next())
                .ok_or_else(|| ListenError::Resolve(address.clone()))?;
            let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(system)?;
            sockopt::set_socket_reuseaddr(&socket, true).map_err(system)?;
            bind(&socket, &target).map_err(|errno| match errno {
                Errno::ADDRINUSE => ListenError::InUse(address.clone()),
                other => system(other),
            })?;
            listen(&socket, BACKLOG).map_err(system)?;
            let chosen = rustix::net::getsockname(&socket).map_err(system)?;
            let chosen = SocketAddr::try_from(chosen).map_err(|_| system(Errno::AFNOSUPPORT))?;
            Ok((Listener { socket, proof: Some(proof.clone()) }, Address::Tcp(chosen.to_string())))
        }
    }
}

/// Has the kernel refuse descriptors that clients send, on `socket` and on all connections that are accepted from it. They
/// have none to send, and closing a stranger's can take as long as he likes: a TCP connection that lingers, a file of
/// his own FUSE file system.
fn refuse_descriptors(socket: &OwnedFd) {
    /// From Linux 6.16 on; not yet in every C library.
    const SO_PASSRIGHTS: libc::c_int = 83;
    let off: libc::c_int = 0;
    // SAFETY: the kernel reads an integer of this size.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if outcome != 0 {
        tracing::warn!(
            "this kernel is older than Linux 6.16: a user can stop the server by descriptors that do not close"
        );
    }
}

/// Removes the socket that a server left behind when it was killed; nothing else.
fn clear_stale(address: &Address, path: &str) -> Result<(), ListenError> {
    if rustix::fs::lstat(path).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) != FileType::Socket) {
        return Err(ListenError::NoSocket(address.clone()));
    }
    match connect(address, Deadline::after(Nanos::from_secs(1))) {
        // Its queue is full, and it does not get to it.
        Ok(_) | Err(SocketError::TimedOut) => Err(ListenError::InUse(address.clone())),
        Err(SocketError::System(Errno::CONNREFUSED)) => {
            rustix::fs::unlink(path).map_err(|errno| ListenError::System { address: address.clone(), errno })
        }
        Err(_) => Ok(()),
    }
}
