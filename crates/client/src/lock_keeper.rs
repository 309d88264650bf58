//! Several clients of one process, of which one has the locks of all: those of a mount.
//!
//! The server takes the end of that one's session for the end of the locks. Before others get them it ends the connections of all clients
//! of the mount ([`Hello::mount`]), and what was asked on these is done, or never is. So who comes to a new connection asks
//! in the session that has the locks, before anything else, whether that is still there: if not, the locks are lost, and the client that
//! has them comes to know that ([`crate::own_locks`]). Then no client of the mount reads or writes the file any more.
//!
//! A lock that is being asked for is not known yet to those who come to a new connection meanwhile. So whoever asks for one looks
//! afterwards whether anybody came, and then asks himself.
//!
//! [`Hello::mount`]: isonomia_proto::setup::Hello::mount

use crate::own_locks::OwnLocks;
use crate::{Client, Error};
use isonomia_transport::key::fresh_nonce;
use isonomia_transport::socket::Deadline;
use isonomia_units::{Ino, ServerId};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

/// What the clients of one mount have in common.
#[derive(Debug)]
pub struct LockKeeper {
    number: u64,
    client: OnceLock<(Weak<Client>, Arc<OwnLocks>)>,
    /// How many connections were made by the other clients.
    arrivals: AtomicU64,
}

impl LockKeeper {
    /// For a mount of which no client has locks yet.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn new() -> Result<Self, Errno> {
        let [a, b, c, d, e, f, g, h, ..] = fresh_nonce()?;
        let number = u64::from_le_bytes([a, b, c, d, e, f, g, h]) | 1;
        Ok(Self { number, client: OnceLock::new(), arrivals: AtomicU64::new(0) })
    }

    /// From now on `client`, which is of this mount, has the locks. To be called once, before it asks for any.
    pub fn keep(&self, client: &Arc<Client>) {
        let _ = self.client.set((Arc::downgrade(client), client.own_locks.clone()));
    }

    /// The number of the mount; not 0.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// EIO if a lock of the file was lost.
    pub(crate) fn check(&self, ino: Ino) -> Result<(), Error> {
        self.client.get().map_or(Ok(()), |(_, locks)| locks.check(ino))
    }

    /// A client, which has these locks of its own, is connected to `server` anew, and has not asked for anything. Returns once it is known
    /// which locks are lost.
    pub(crate) fn arrived(&self, own: &Arc<OwnLocks>, server: ServerId, deadline: Deadline) -> Result<(), Error> {
        let Some((client, locks)) = self.client.get() else {
            self.count_arrival();
            return Ok(());
        };
        // Its own it has claimed already.
        if Arc::ptr_eq(locks, own) {
            return Ok(());
        }
        self.count_arrival();
        match client.upgrade() {
            Some(client) => client.confirm_locks(server, deadline),
            None => Ok(()),
        }
    }

    fn count_arrival(&self) {
        self.arrivals.fetch_add(1, Ordering::SeqCst);
        // Who notes a lock looks at the arrivals afterwards, and who arrives looks at the locks afterwards: one sees the other.
        fence(Ordering::SeqCst);
    }

    /// To be asked before a lock is asked for, and after it is noted.
    pub(crate) fn arrivals(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.arrivals.load(Ordering::SeqCst)
    }
}
