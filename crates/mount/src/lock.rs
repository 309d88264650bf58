//! Locks of bytes (`fcntl`) and of whole files (`flock`), kept by the server for all its clients.
//!
//! The kernel names the owner of a lock: a process, or an open file. Its names are valid for the mount as a whole, so all
//! locks are asked for through one client, the mount's own, whichever client opened the file ([`LockKeeper`]); they end with the
//! mount at the latest. A process's locks of bytes end when it closes any descriptor of the file, an open file's when that is
//! closed.
//!
//! Nothing waits in here: who has to is handed to [`crate::waiting`].
//!
//! [`LockKeeper`]: isonomia_client::LockKeeper

use crate::clients::{Clients, errno};
use crate::filesystem::Outcome;
use crate::handle::Handle;
use crate::waiting::{Waiter, Waiting};
use fuser::{FileHandle, LockOwner, Request};
use isonomia_client::{Client, LockKind, LockOwner as Owner, LockRange};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The last byte in the kernel's words: whatever the file's end becomes.
const LAST_BYTE: u64 = i64::MAX as u64;
/// The kernel tells of a closed file without waiting until its lock is given up. A program that asks right afterwards, and
/// does not want to wait, would be told that the file is locked: so such a request is tried for this long before it fails.
const CLOSING_MAX: Duration = Duration::from_millis(5);

/// A server that starts anew waits some seconds for those who had locks. Between two looks whether it did.
const KEPT_EVERY: Duration = Duration::from_secs(1);

/// A lock as the kernel asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// For whom.
    pub owner: LockOwner,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK`, or `F_UNLCK`.
    pub kind: i32,
    /// The process, for who asks; 0 when a lock is given up.
    pub pid: u32,
    /// Whether to wait for it.
    pub waits: bool,
}

/// What is in the way, in the kernel's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// `F_UNLCK` if nothing is.
    pub kind: i32,
    /// Whose it is.
    pub pid: u32,
}

/// See the module.
pub struct Locks {
    clients: Arc<Clients>,
    client: OnceLock<Arc<Client>>,
    taken: Arc<Taken>,
    waiting: Waiting,
}

/// What may be locked through this mount, so that closing other files asks no server.
#[derive(Default)]
struct Taken {
    count: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By inode and owner of locks of bytes: the open file that one was last asked for through.
    bytes: HashMap<(u64, u64), Weak<Handle>>,
    /// How many open files of an inode were locked as a whole.
    whole: HashMap<u64, usize>,
}

/// One lock, to be asked for as often as it takes.
struct Attempt {
    client: Arc<Client>,
    taken: Arc<Taken>,
    handle: Arc<Handle>,
    owner: u64,
    range: LockRange,
    kind: LockKind,
    pid: u32,
    waits: bool,
}

impl Locks {
    /// No locks as yet.
    pub fn new(clients: Arc<Clients>) -> Self {
        Self { clients, client: OnceLock::new(), taken: Arc::default(), waiting: Waiting::default() }
    }

    /// The one client. It stays: the server takes its end for the end of the owners.
    fn client(&self) -> Outcome<&Arc<Client>> {
        if self.client.get().is_none() {
            let client = self.clients.own()?;
            self.clients.keeper().keep(&client);
            let kept = Arc::downgrade(&client);
            // Two threads that come here first get the same one.
            if self.client.set(client).is_ok() {
                let keep = move || {
                    while let Some(client) = kept.upgrade() {
                        client.keep_locks();
                        drop(client);
                        std::thread::park_timeout(KEPT_EVERY);
                    }
                };
                // Without it locks are kept while programs ask for any.
                let _ = std::thread::Builder::new().name("locks".to_owned()).spawn(keep);
            }
        }
        self.client.get().ok_or(Errno::IO)
    }

    /// What keeps `asked` from being given.
    pub fn in_the_way(&self, handle: &Handle, asked: &Asked) -> Outcome<Found> {
        let kind = kind_of(asked.kind)?.ok_or(Errno::INVAL)?;
        let (file, owner) = (&handle.file.capability, Owner::Process(asked.owner.0));
        let found = self.client()?.lock_in_the_way(file, owner, bytes_of(asked), kind).map_err(|e| errno(&e))?;
        Ok(match found {
            None => Found { start: 0, end: LAST_BYTE, kind: libc::F_UNLCK, pid: 0 },
            Some(found) => Found {
                start: found.start,
                end: if found.len == 0 { LAST_BYTE } else { (found.start + (found.len - 1)).min(LAST_BYTE) },
                kind: if found.kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK },
                pid: found.pid,
            },
        })
    }

    /// Takes a lock, or gives one up; `answer` is called when that is decided, perhaps by another thread. `thread` is the
    /// caller's, whose signals end its waiting.
    pub fn set(
        &self,
        handle: Arc<Handle>,
        thread: u32,
        asked: Asked,
        is_whole: bool,
        answer: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let range = if is_whole { LockRange::Whole } else { bytes_of(&asked) };
        let owner = asked.owner.0;
        let (client, kind) = match (self.client(), kind_of(asked.kind)) {
            (Ok(client), Ok(kind)) => (client, kind),
            (Err(errno), _) | (_, Err(errno)) => return answer(Err(errno)),
        };
        let Some(kind) = kind else {
            let outcome = client.unlock(&handle.file.capability, Owner::Process(owner), range).map_err(|e| errno(&e));
            answer(outcome);
            return self.waiting.ask_now();
        };
        let may_be_closing = is_whole && self.taken.is_whole_elsewhere(&handle);
        let (pid, waits, taken) = (asked.pid, asked.waits, self.taken.clone());
        let attempt = Attempt { client: client.clone(), taken, handle, owner, range, kind, pid, waits };
        match attempt.make() {
            Err(Errno::AGAIN) if waits || may_be_closing => {
                // As on Linux: who waits for another kind of lock of a file gives up the one that it has.
                if waits && is_whole {
                    let _ = client.unlock(&attempt.handle.file.capability, Owner::Process(owner), range);
                }
                let until = (!waits).then(|| Instant::now() + CLOSING_MAX);
                let attempt = Arc::new(attempt);
                let given_up = attempt.clone();
                let answer = move |outcome| {
                    if outcome == Err(Errno::INTR) {
                        given_up.give_up();
                    }
                    answer(outcome);
                };
                self.waiting.add(Waiter::new(thread, until, move || attempt.make(), answer));
            }
            outcome => answer(outcome),
        }
    }

    /// `owner` closed a descriptor of the file: with it go the bytes that it has locked.
    pub fn descriptor_closed(&self, handle: &Handle, owner: LockOwner) {
        if self.taken.is_empty() {
            return;
        }
        if self.taken.table().bytes.remove(&(handle.file.capability.ino, owner.0)).is_some() {
            self.give_up(handle, owner.0, LockRange::Bytes { start: 0, len: 0 });
        }
        self.taken.recount();
    }

    /// The last descriptor of an open file is gone. `whole` is who locked the file as a whole; of those who locked bytes
    /// only the open file itself has not given up before.
    pub fn file_closed(&self, handle: &Arc<Handle>, whole: Option<LockOwner>) {
        if self.taken.is_empty() {
            return;
        }
        if let Some(owner) = whole {
            self.give_up(handle, owner.0, LockRange::Whole);
        }
        let left = self.taken.forget(handle);
        left.into_iter().for_each(|owner| self.give_up(handle, owner, LockRange::Bytes { start: 0, len: 0 }));
        self.taken.recount();
    }

    fn give_up(&self, handle: &Handle, owner: u64, range: LockRange) {
        if let Ok(client) = self.client() {
            // A server that cannot be told hears of no such lock when it comes back.
            let _ = client.unlock(&handle.file.capability, Owner::Process(owner), range);
        }
        self.waiting.ask_now();
    }
}

impl Attempt {
    fn make(&self) -> Outcome<()> {
        // Before the lock is there, so that no close comes in between.
        self.taken.remember(&self.handle, self.owner, self.range);
        let file = &self.handle.file.capability;
        let locked =
            self.client.lock_for(self.pid, file, Owner::Process(self.owner), self.range, self.kind, self.waits);
        locked.map_err(|e| errno(&e))
    }

    /// Tells the server that the owner waits no more, or it would be taken for a part of a circle for a while.
    fn give_up(&self) {
        let file = &self.handle.file.capability;
        // A server that cannot be told forgets it by itself.
        let _ = self.client.lock_in_the_way(file, Owner::Process(self.owner), self.range, self.kind);
    }
}

impl Taken {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn recount(&self) {
        let table = self.table();
        self.count.store(table.bytes.len() + table.whole.len(), Ordering::Release);
    }

    fn remember(&self, handle: &Arc<Handle>, owner: u64, range: LockRange) {
        let ino = handle.file.capability.ino;
        let mut table = self.table();
        match range {
            LockRange::Bytes { .. } => {
                table.bytes.insert((ino, owner), Arc::downgrade(handle));
                let mut owners = handle.lockers.bytes.lock().unwrap_or_else(PoisonError::into_inner);
                if !owners.contains(&owner) {
                    owners.push(owner);
                }
            }
            LockRange::Whole => {
                if !handle.lockers.whole.swap(true, Ordering::Relaxed) {
                    *table.whole.entry(ino).or_insert(0) += 1;
                }
            }
        }
        self.count.store(table.bytes.len() + table.whole.len(), Ordering::Release);
    }

    /// Whether another open file of the inode was locked as a whole.
    fn is_whole_elsewhere(&self, handle: &Handle) -> bool {
        let own = usize::from(handle.lockers.whole.load(Ordering::Relaxed));
        !self.is_empty() && self.table().whole.get(&handle.file.capability.ino).is_some_and(|all| *all > own)
    }

    /// Forgets what was locked through `handle`; gives the owners of bytes that have not given them up.
    fn forget(&self, handle: &Arc<Handle>) -> Vec<u64> {
        let ino = handle.file.capability.ino;
        let mut table = self.table();
        if handle.lockers.whole.load(Ordering::Relaxed)
            && let Some(count) = table.whole.get_mut(&ino)
        {
            *count -= 1;
            if *count == 0 {
                table.whole.remove(&ino);
            }
        }
        let mut owners = std::mem::take(&mut *handle.lockers.bytes.lock().unwrap_or_else(PoisonError::into_inner));
        // An owner that has since locked bytes through another open file keeps its locks: they go when that one is closed.
        owners.retain(|owner| {
            let is_last = table.bytes.get(&(ino, *owner)).is_some_and(|last| std::ptr::eq(last.as_ptr(), &**handle));
            is_last && table.bytes.remove(&(ino, *owner)).is_some()
        });
        owners
    }
}

fn kind_of(kind: i32) -> Outcome<Option<LockKind>> {
    match kind {
        libc::F_RDLCK => Ok(Some(LockKind::Shared)),
        libc::F_WRLCK => Ok(Some(LockKind::Exclusive)),
        libc::F_UNLCK => Ok(None),
        _ => Err(Errno::INVAL),
    }
}

fn bytes_of(asked: &Asked) -> LockRange {
    let len = if asked.end >= LAST_BYTE { 0 } else { (asked.end + 1).saturating_sub(asked.start) };
    LockRange::Bytes { start: asked.start, len }
}

/// Whether the request is one of `flock(2)`, which `fuser` 0.18 does not tell. `None` if the kernel's message is not where
/// it is expected.
pub fn is_of_whole_file(request: &Request, handle: FileHandle, owner: LockOwner) -> Option<bool> {
    /// Of `struct fuse_in_header`, which is what a [`Request`] is a view of, and of `struct fuse_lk_in` behind it.
    const HEADER_LEN: usize = 40;
    const LOCK_LEN: usize = 48;
    const FLAGS_AT: usize = 40;
    const FUSE_LK_FLOCK: u32 = 1;
    const _: () = assert!(size_of::<Request>() == HEADER_LEN);
    let message = std::ptr::from_ref(request).addr() + HEADER_LEN;
    // SAFETY: `fuser` has read the kernel's message into one buffer, whose address it gave to read(2), has found a whole
    // `fuse_lk_in` behind the header there, and keeps the buffer as it is until the operation returns.
    let bytes = unsafe { std::ptr::with_exposed_provenance::<[u8; LOCK_LEN]>(message).read_unaligned() };
    let number = |at: usize| bytes[at..].first_chunk().map(|number| u64::from_ne_bytes(*number));
    let is_where_expected = number(0) == Some(handle.0) && number(8) == Some(owner.0);
    let flags = bytes[FLAGS_AT..].first_chunk().map(|flags| u32::from_ne_bytes(*flags))?;
    is_where_expected.then_some(flags & FUSE_LK_FLOCK != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_the_kernels() {
        let asked = |start, end| Asked { owner: LockOwner(7), start, end, kind: libc::F_WRLCK, pid: 1, waits: false };
        assert_eq!(bytes_of(&asked(5, 5)), LockRange::Bytes { start: 5, len: 1 });
        assert_eq!(bytes_of(&asked(0, LAST_BYTE)), LockRange::Bytes { start: 0, len: 0 });
        assert_eq!(bytes_of(&asked(9, LAST_BYTE - 1)), LockRange::Bytes { start: 9, len: LAST_BYTE - 9 });
        assert_eq!(kind_of(3), Err(Errno::INVAL));
    }
}
