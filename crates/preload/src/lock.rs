//! Locks: `flock`, `lockf`, and those of `fcntl`, kept by the server.
//!
//! A lock of bytes belongs to the process and ends when it closes *any* descriptor of the file, as POSIX says; `flock`
//! and the `F_OFD` commands lock for the open file, which may be shared. Waiting is asking again, ever more seldom,
//! until a signal interrupts it ([`crate::signals`]).

use crate::calls::real;
use crate::description::FileRef;
use crate::serve::{by_fd, refusal};
use crate::signals::Blocked;
use crate::spin::Spin;
use crate::{connection, seek};
use isonomia_client::{Capability, Client, Error, LockHolder, LockKind, LockOwner, LockRange};
use libc::{c_long, c_short, off64_t};
use rustix::io::Errno;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Between two attempts: the first and the longest pause.
const PAUSE_NS_MIN: u64 = 50_000;
const PAUSE_NS_MAX: u64 = 20_000_000;

/// What this process may have locks of.
static LOCKED: Spin<Locked> = Spin::new(Locked { inos: Vec::new(), keeper: None });
static LOCKED_COUNT: AtomicUsize = AtomicUsize::new(0);

struct Locked {
    /// Inodes of whose bytes it may have locks.
    inos: Vec<u64>,
    /// The client that took the first of them. The server knows the owner of a lock by its client, so that all are this
    /// one's until there are none, even if the process takes another user meanwhile.
    keeper: Option<&'static Client>,
}

/// The client that has locks of bytes.
pub fn keeper() -> Option<&'static Client> {
    LOCKED.lock().keeper
}

/// The lock of the list, for [`crate::process`].
pub fn lock_before_fork() {
    LOCKED.acquire();
}

/// See [`lock_before_fork`].
pub fn unlock_after_fork() {
    LOCKED.release();
}

/// In the child of a fork: locks of bytes are the parent's.
pub fn forget_inherited() {
    let mut locked = LOCKED.lock();
    (locked.inos, locked.keeper) = (Vec::new(), None);
    LOCKED_COUNT.store(0, Ordering::Relaxed);
}

/// Gives the client that is to have the lock.
fn remember(ino: u64, client: &'static Client) -> &'static Client {
    let mut locked = LOCKED.lock();
    if !locked.inos.contains(&ino) {
        locked.inos.push(ino);
        LOCKED_COUNT.store(locked.inos.len(), Ordering::Relaxed);
    }
    locked.keeper.get_or_insert(client)
}

/// Gives the client that has the locks, if there was an entry to forget, and whether it was the last.
fn forget(ino: u64) -> Option<(&'static Client, bool)> {
    let mut locked = LOCKED.lock();
    let index = locked.inos.iter().position(|other| *other == ino)?;
    locked.inos.swap_remove(index);
    LOCKED_COUNT.store(locked.inos.len(), Ordering::Relaxed);
    let was_last = locked.inos.is_empty();
    let keeper = if was_last { locked.keeper.take() } else { locked.keeper };
    keeper.map(|keeper| (keeper, was_last))
}

/// Called when a descriptor of `file_ref` is closed: with it goes what the process has locked of the file's bytes.
#[inline]
pub fn descriptor_closed(file_ref: &FileRef) {
    if LOCKED_COUNT.load(Ordering::Relaxed) > 0 {
        give_up_bytes(file_ref);
    }
}

#[cold]
fn give_up_bytes(file_ref: &FileRef) {
    // As on Linux: closing what only names the file gives up nothing.
    if file_ref.flags() & libc::O_PATH != 0 {
        return;
    }
    let given_up = file_ref.file().and_then(|file| {
        let Some((keeper, was_last)) = forget(file.capability.ino) else { return Ok(()) };
        let all = LockRange::Bytes { start: 0, len: 0 };
        let owner = LockOwner::Process(0);
        keeper.forget_lock(&file.capability, owner, all);
        let given_up = if keeper.is_away() { Ok(()) } else { keeper.unlock(&file.capability, owner, all) };
        if was_last {
            connection::end(keeper);
        }
        given_up
    });
    // A server that is away hears of no locks when it comes back that are forgotten here.
    drop(given_up);
}

/// The client that the server knows `owner` by.
fn client_of(owner: LockOwner, client: &'static Client) -> &'static Client {
    match owner {
        LockOwner::Process(_) => keeper().unwrap_or(client),
        LockOwner::File(_) => client,
    }
}

/// The capability of `file_ref` as `client` may use it, which connected as another user perhaps.
fn capability_for(client: &'static Client, file_ref: &FileRef) -> Result<Capability, Error> {
    let present = file_ref.capability()?;
    match connection::user_of(client) {
        Some(uid) if uid != present.holder => file_ref.make_out(connection::client()?, uid),
        _ => Ok(present),
    }
}

/// Whether `fcntl` locks by this command.
pub fn is_command(command: c_int) -> bool {
    matches!(
        command,
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW
    )
}

/// A command of `fcntl` whose argument points to a `struct flock`.
pub fn by_fcntl(client: &'static Client, file_ref: &FileRef, command: c_int, argument: c_long) -> Result<c_int, Error> {
    let is_of_file = matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    let is_question = matches!(command, libc::F_GETLK | libc::F_OFD_GETLK);
    let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
    // SAFETY: as the C library's interface says, the argument of these commands points to one.
    let Some(flock) = (unsafe { (argument as *mut libc::flock).as_mut() }) else {
        return Err(refusal(Errno::FAULT));
    };
    if is_of_file && flock.l_pid != 0 {
        return Err(refusal(Errno::INVAL));
    }
    let range = range_of(client, file_ref, flock)?;
    let kind = match c_int::from(flock.l_type) {
        libc::F_RDLCK => Some(LockKind::Shared),
        libc::F_WRLCK => Some(LockKind::Exclusive),
        libc::F_UNLCK if !is_question => None,
        _ => return Err(refusal(Errno::INVAL)),
    };
    let owner = if is_of_file { LockOwner::File(file_ref.mapping()?.number()) } else { LockOwner::Process(0) };
    if is_question {
        let client = client_of(owner, client);
        let file = capability_for(client, file_ref)?;
        answer(flock, client.lock_in_the_way(&file, owner, range, kind.unwrap_or(LockKind::Shared))?, is_of_file);
        return Ok(0);
    }
    let access = file_ref.flags() & libc::O_ACCMODE;
    let is_allowed = match kind {
        Some(LockKind::Shared) => access != libc::O_WRONLY,
        Some(LockKind::Exclusive) => access != libc::O_RDONLY,
        None => true,
    };
    if !is_allowed {
        return Err(refusal(Errno::BADF));
    }
    set(client, file_ref, owner, range, kind, waits)
}

/// The bytes that a `struct flock` names.
fn range_of(client: &Client, file_ref: &FileRef, flock: &libc::flock) -> Result<LockRange, Error> {
    let base = match c_int::from(flock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => file_ref.mapping()?.offset().load(Ordering::Relaxed) as i64,
        libc::SEEK_END => client.get_attr(file_ref.capability()?, b"", true)?.size_bytes as i64,
        _ => return Err(refusal(Errno::INVAL)),
    };
    let overflow = || refusal(Errno::OVERFLOW);
    let start = base.checked_add(flock.l_start).ok_or_else(overflow)?;
    // A negative length reaches back.
    let (start, len) =
        if flock.l_len < 0 { (start.saturating_add(flock.l_len), -flock.l_len) } else { (start, flock.l_len) };
    let start = u64::try_from(start).map_err(|_| refusal(Errno::INVAL))?;
    if len > 0 && (start as i64).checked_add(len - 1).is_none() {
        return Err(overflow());
    }
    Ok(LockRange::Bytes { start, len: len as u64 })
}

fn answer(flock: &mut libc::flock, found: Option<LockHolder>, is_of_file: bool) {
    let Some(found) = found else {
        flock.l_type = libc::F_UNLCK as c_short;
        return;
    };
    let kind = if found.kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
    flock.l_type = kind as c_short;
    flock.l_whence = libc::SEEK_SET as c_short;
    flock.l_start = found.start as i64;
    flock.l_len = found.len as i64;
    flock.l_pid = if is_of_file { -1 } else { found.pid as libc::pid_t };
}

fn set(
    client: &'static Client,
    file_ref: &FileRef,
    owner: LockOwner,
    range: LockRange,
    kind: Option<LockKind>,
    waits: bool,
) -> Result<c_int, Error> {
    let file = file_ref.file()?;
    let is_whole = range == LockRange::Whole;
    let Some(kind) = kind else {
        if is_whole {
            file_ref.mapping()?.set_whole_lock(None);
        }
        return client_of(owner, client).unlock(&file.capability, owner, range).map(|()| 0);
    };
    let client = match owner {
        // Before the lock is there, so that no close comes in between.
        LockOwner::Process(_) => remember(file.capability.ino, client),
        LockOwner::File(_) => {
            file_ref.mapping()?.locked().store(1, Ordering::Relaxed);
            client
        }
    };
    let capability = capability_for(client, file_ref)?;
    let mut pause_ns = PAUSE_NS_MIN;
    // Most locks are free: it is made when one is not.
    let mut signals = None;
    loop {
        match client.lock(&capability, owner, range, kind, waits) {
            Err(error) if waits && error.errno() == Errno::AGAIN => {}
            done => {
                if done.is_ok() && is_whole {
                    file_ref.mapping()?.set_whole_lock(Some(kind));
                }
                return done.map(|()| 0);
            }
        }
        if signals.get_or_insert_with(Blocked::new).pause(pause_ns) {
            // Tells the server that the owner waits no more, or it would be taken for a part of a circle for a while. One
            // that cannot be told forgets it by itself.
            let _ = client.lock_in_the_way(&capability, owner, range, kind);
            return Err(refusal(Errno::INTR));
        }
        pause_ns = (pause_ns * 2).min(PAUSE_NS_MAX);
    }
}

pub fn flock(fd: c_int, operation: c_int) -> c_int {
    by_fd(
        fd,
        |client, file_ref| {
            let kind = match operation & !libc::LOCK_NB {
                libc::LOCK_SH => Some(LockKind::Shared),
                libc::LOCK_EX => Some(LockKind::Exclusive),
                libc::LOCK_UN => None,
                _ => return Err(refusal(Errno::INVAL)),
            };
            let owner = LockOwner::File(file_ref.mapping()?.number());
            set(client, file_ref, owner, LockRange::Whole, kind, operation & libc::LOCK_NB == 0)
        },
        || real::flock(fd, operation),
    )
}

/// `lockf` in terms of `fcntl`, from the present offset on.
fn lock_from_here(
    client: &'static Client,
    file_ref: &FileRef,
    fd: c_int,
    command: c_int,
    len: off64_t,
) -> Result<c_int, Error> {
    let (fcntl, kind) = match command {
        libc::F_ULOCK => (libc::F_SETLK, libc::F_UNLCK),
        libc::F_LOCK => (libc::F_SETLKW, libc::F_WRLCK),
        libc::F_TLOCK => (libc::F_SETLK, libc::F_WRLCK),
        libc::F_TEST => (libc::F_GETLK, libc::F_WRLCK),
        _ => return Err(refusal(Errno::INVAL)),
    };
    let mut flock = libc::flock {
        l_type: kind as c_short,
        l_whence: libc::SEEK_SET as c_short,
        l_start: seek::lseek(fd, 0, libc::SEEK_CUR),
        l_len: len,
        l_pid: 0,
    };
    let result = by_fcntl(client, file_ref, fcntl, &raw mut flock as c_long)?;
    if command == libc::F_TEST && c_int::from(flock.l_type) != libc::F_UNLCK {
        return Err(refusal(Errno::ACCESS));
    }
    Ok(result)
}

pub fn lockf(fd: c_int, command: c_int, len: off64_t) -> c_int {
    by_fd(fd, |client, file_ref| lock_from_here(client, file_ref, fd, command, len), || real::lockf(fd, command, len))
}
