//! Which client a request goes through: one for each user, group list, and job that uses the mount.
//!
//! The kernel says which user and group, and which thread, a request comes from; `/proc` says the rest. A server
//! checks permissions for that user, and shares by that job, as if the program had connected itself.
//!
//! A mount that serves others besides its own user asks *on their behalf*, which a server allows to root and to its
//! own user. Its own user's requests need no such word: the kernel vouches for the mount itself.
//!
//! What `/proc` said of a thread is believed for as long as it has been true so far, between [`BELIEVED_AT_LEAST`] and
//! [`BELIEVED_AT_MOST`]: a launcher may change to a directory of the mount and then execute a program with another
//! environment. But before an operation that checks permissions, the supplementary groups of anybody but root are read
//! anew.

use crate::{caller, poller};
use isonomia_client::{
    Addresses, Claims, Client, ClientConfig, Error, LockKeeper, Manner, Notice, PRINCIPAL_GROUPS_MAX, Principal,
    Protection,
};
use isonomia_units::Nanos;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A thread that has just appeared is looked at again after this.
const BELIEVED_AT_LEAST: Duration = Duration::from_millis(5);
/// A thread that executes another program, or whose number is given to another, is seen as what it was this long.
const BELIEVED_AT_MOST: Duration = Duration::from_secs(1);
/// Threads that are remembered at once.
const CALLERS_MAX: usize = 4_096;
/// Clients at once, open files aside: users times jobs.
const CLIENTS_MAX: usize = 1_024;
/// A client that nobody used for so long, and through which no file is open, is closed.
const IDLE_FOR: Duration = Duration::from_secs(10);

/// Where and how clients connect.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Servers of one file system.
    pub addresses: Addresses,
    /// The longest wait for it.
    pub timeout: Nanos,
    /// The key for servers on TCP.
    pub key_file: Option<String>,
    /// Who may run the server, besides this user and root.
    pub server_user: Option<u32>,
    /// How connections on TCP are protected.
    pub protection: Protection,
}

/// Who a request comes from, in the kernel's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Thread; 0 for the kernel itself, and for what this process cannot see.
    pub pid: u32,
    /// User, for file access.
    pub uid: u32,
    /// Group, for file access.
    pub gid: u32,
}

/// What an operation's outcome hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// On what the caller may do: its groups must be those of now.
    Permission,
    /// On an open file: permission was given with it, and the caller matters to sharing only.
    Sharing,
}

/// Whom this process is taken for, and speaks for.
#[derive(Clone, Debug)]
pub struct Own {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Whether it asks for others.
    pub speaks_for_others: bool,
    /// The job of callers of its own user who name none.
    pub claims: Claims,
}

/// See the module.
pub struct Clients {
    reach: Reach,
    keeper: Arc<LockKeeper>,
    own: Own,
    callers: RwLock<HashMap<Caller, Known>>,
    clients: Mutex<HashMap<Claims, Open>>,
}

struct Known {
    client: Arc<Client>,
    groups: Vec<u32>,
    /// When it was first seen like this.
    since: Instant,
    /// When `/proc` was last read.
    read_at: Instant,
}

impl Known {
    fn is_believed(&self, now: Instant) -> bool {
        let true_for = self.read_at.duration_since(self.since);
        now.duration_since(self.read_at) < true_for.clamp(BELIEVED_AT_LEAST, BELIEVED_AT_MOST)
    }
}

struct Open {
    client: Arc<Client>,
    last_used: Instant,
}

impl Clients {
    /// No clients as yet.
    ///
    /// # Errors
    /// As [`LockKeeper::new`].
    pub fn new(reach: Reach, own: Own) -> Result<Self, Errno> {
        let keeper = Arc::new(LockKeeper::new()?);
        Ok(Self { reach, keeper, own, callers: RwLock::default(), clients: Mutex::default() })
    }

    /// What the clients have in common, of which the own one has all locks.
    pub fn keeper(&self) -> &LockKeeper {
        &self.keeper
    }

    /// The client of this process itself.
    pub fn own(&self) -> Result<Arc<Client>, Errno> {
        self.client(self.own.claims.clone())
    }

    /// The client for a request of `caller`.
    pub fn of(&self, caller: Caller, need: Need) -> Result<Arc<Client>, Errno> {
        let is_own = (caller.uid, caller.gid) == (self.own.uid, self.own.gid);
        let asks_for = self.own.speaks_for_others && !is_own;
        // Root passes every check whatever its groups.
        let needs_groups = asks_for && caller.uid != 0;
        let now = Instant::now();
        let mut groups = None;
        {
            let callers = self.callers.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = callers.get(&caller).filter(|known| known.is_believed(now)) {
                if need == Need::Sharing || !needs_groups {
                    return Ok(known.client.clone());
                }
                groups = Some(caller::groups(caller.pid).map_err(|_| Errno::ACCESS)?);
                if groups.as_ref() == Some(&known.groups) {
                    return Ok(known.client.clone());
                }
            }
        }
        let groups = match groups {
            Some(groups) => groups,
            None if needs_groups && caller.pid != 0 => caller::groups(caller.pid).map_err(|_| Errno::ACCESS)?,
            None => Vec::new(),
        };
        if groups.len() > PRINCIPAL_GROUPS_MAX {
            return Err(Errno::TOOBIG);
        }
        let mut claims = if caller.pid == 0 { Claims::default() } else { caller::claims(caller.pid, caller.uid) };
        if caller.uid == self.own.uid && claims == Claims::default() {
            claims = self.own.claims.clone();
        }
        if asks_for {
            let principal = Principal { uid: caller.uid, gid: caller.gid, groups: groups.clone() };
            claims.on_behalf_of = Some(principal);
        } else {
            // For its own user the mount is no witness that a server believes: the server looks at the control group itself.
            claims.proven_job = None;
        }
        let client = self.client(claims)?;
        let mut callers = self.callers.write().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS_MAX {
            callers.retain(|_, known| known.is_believed(now));
        }
        let before = callers.remove(&caller).filter(|known| Arc::ptr_eq(&known.client, &client));
        if callers.len() < CALLERS_MAX {
            let since = before.map_or(now, |known| known.since);
            callers.insert(caller, Known { client: client.clone(), groups, since, read_at: now });
        }
        Ok(client)
    }

    /// Forgets threads that were not seen lately, and closes clients that nobody uses. To be called now and then.
    pub fn sweep(&self) {
        let now = Instant::now();
        let mut callers = self.callers.write().unwrap_or_else(PoisonError::into_inner);
        callers.retain(|_, known| now.duration_since(known.read_at) < BELIEVED_AT_MOST);
        drop(callers);
        let idle = |open: &Open| Arc::strong_count(&open.client) == 1 && now.duration_since(open.last_used) > IDLE_FOR;
        let closed: Vec<Open> = self.clients().extract_if(|_, open| idle(open)).map(|(_, open)| open).collect();
        // Closing tells the server, which needs no lock of ours.
        drop(closed);
    }

    fn client(&self, claims: Claims) -> Result<Arc<Client>, Errno> {
        let now = Instant::now();
        let mut clients = self.clients();
        if let Some(open) = clients.get_mut(&claims) {
            open.last_used = now;
            return Ok(open.client.clone());
        }
        if clients.len() >= CLIENTS_MAX {
            clients.retain(|_, open| Arc::strong_count(&open.client) > 1);
        }
        if clients.len() >= CLIENTS_MAX {
            tracing::warn!("{CLIENTS_MAX} users and jobs are using the mount: no more at once");
            return Err(Errno::NFILE);
        }
        let Reach { addresses, timeout, key_file, server_user, protection } = self.reach.clone();
        let addresses = addresses.as_slice().to_vec();
        let client = Client::new(ClientConfig { addresses, timeout, claims: claims.clone(), key_file });
        let client = client.trusting(server_user).protected(protection).telling(tell).of_mount(self.keeper.clone());
        // The program that asked waits for the thread that asks, often on the same core.
        let client = Arc::new(client.waiting(Manner { shares_cores: true, before_sleep: poller::leave }));
        clients.insert(claims, Open { client: client.clone(), last_used: now });
        Ok(client)
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Claims, Open>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts what a client waits for into the log. What failed operations say themselves is there already.
fn tell(notice: Notice) {
    if let Notice::Warning(text) = notice {
        tracing::warn!("{text}");
    }
}

/// The errno of a failure; what a program cannot mend is told in the log.
pub fn errno(error: &Error) -> Errno {
    match error {
        Error::Server(_) | Error::Argument(_) | Error::Outside(_) => {}
        trouble => tracing::warn!(%trouble, "an operation failed"),
    }
    error.errno()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(uid: u32, speaks_for_others: bool) -> Clients {
        let addresses = "unix:/nonexistent/socket".parse().unwrap();
        let protection = Protection::default();
        let reach = Reach { addresses, timeout: Nanos(1), key_file: None, server_user: None, protection };
        Clients::new(reach, Own { uid, gid: 7, speaks_for_others, claims: Claims::default() }).unwrap()
    }

    fn me(uid: u32) -> Caller {
        Caller { pid: rustix::process::getpid().as_raw_nonzero().get() as u32, uid, gid: 7 }
    }

    fn principal(client: &Client) -> Option<(u32, u32)> {
        client.config().claims.on_behalf_of.as_ref().map(|p| (p.uid, p.gid))
    }

    #[test]
    fn others_are_spoken_for_and_the_mounts_own_user_is_not() {
        let all = clients(0, true);
        assert_eq!(principal(&all.of(me(0), Need::Permission).unwrap()), None);
        assert_eq!(principal(&all.of(me(4_321), Need::Permission).unwrap()), Some((4_321, 7)));
        assert_eq!(principal(&all.of(Caller { gid: 8, ..me(0) }, Need::Permission).unwrap()), Some((0, 8)));
        let one = clients(5, false);
        assert_eq!(principal(&one.of(me(5), Need::Permission).unwrap()), None);
    }

    #[test]
    fn one_client_serves_one_user_and_job() {
        let all = clients(0, true);
        let first = all.of(me(4_321), Need::Permission).unwrap();
        assert!(Arc::ptr_eq(&first, &all.of(me(4_321), Need::Permission).unwrap()));
        assert!(Arc::ptr_eq(&first, &all.of(me(4_321), Need::Sharing).unwrap()));
        assert!(!Arc::ptr_eq(&first, &all.of(me(4_322), Need::Permission).unwrap()));
        assert!(!Arc::ptr_eq(&first, &all.of(Caller { gid: 8, ..me(4_321) }, Need::Permission).unwrap()));
    }

    #[test]
    fn what_has_been_true_for_longer_is_believed_for_longer() {
        let client = clients(0, true).of(me(0), Need::Sharing).unwrap();
        let since = Instant::now();
        let believed_for = |true_for_ms: u64, later_ms: u64| {
            let read_at = since + Duration::from_millis(true_for_ms);
            let known = Known { client: client.clone(), groups: Vec::new(), since, read_at };
            known.is_believed(read_at + Duration::from_millis(later_ms))
        };
        assert!(believed_for(0, 4) && !believed_for(0, 6), "just seen");
        assert!(believed_for(100, 90) && !believed_for(100, 110));
        assert!(believed_for(60_000, 900) && !believed_for(60_000, 1_100));
    }

    #[test]
    fn nobody_whose_groups_are_unknown_is_let_through() {
        // Above the largest number that Linux gives to a process.
        let nobody = Caller { pid: (1 << 22) + 1, uid: 4_321, gid: 7 };
        assert_eq!(clients(0, true).of(nobody, Need::Permission).err(), Some(Errno::ACCESS));
    }
}
