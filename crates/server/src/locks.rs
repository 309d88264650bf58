//! Advisory locks on files: byte ranges as of `fcntl(2)` and whole files as of `flock(2)`.
//!
//! The two kinds do not see each other, as on a local Linux file system. An owner's new lock replaces what it had of
//! the same bytes. Nothing waits here: who cannot have a lock is told so and asks again; while it asks, the table
//! knows whom it waits for, so that a circle of waiting owners is found.
//!
//! A server that starts does not know which locks there were when it stopped. For a while it waits for those who had some
//! ([`crate::holders`]): they get theirs again ([`Locks::claim`]), and nobody gets another one meanwhile.
//!
//! Every limit is for one user, so that nobody is refused a lock because others have too many.
//!
//! Sans I/O: time is passed in. A request costs O(locks of the file), and the end of sessions and open files O(locks of the files
//! that these had locked), whatever others have.

use isonomia_units::{Ino, Nanos, VolumeId};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks of one user on one file at most.
pub const LOCKS_PER_FILE_MAX: usize = 16_384;
/// Locks of one user at most.
pub const LOCKS_PER_USER_MAX: usize = 65_536;
/// Owners of one user that wait at once, at most.
pub const WAITING_PER_USER_MAX: usize = 4_096;
/// A waiting owner that has not asked for this long has given up.
const WAITS_FOR: Nanos = Nanos::from_secs(1);
/// Owners on one way through who waits for whom.
const WAY_MAX: usize = 64;

/// Who has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A client process, by its session, or one of the processes that a mount speaks for.
    Process {
        /// Number of the session.
        session: u64,
        /// A number of its own choice.
        owner: u64,
    },
    /// An open file, whichever processes have it.
    File(u64),
}

/// What ends locks when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A session of this number, with all for whom it speaks.
    Session(u64),
    /// The open file of this number.
    File(u64),
}

impl Owner {
    fn scope(self) -> Scope {
        match self {
            Self::Process { session, .. } => Scope::Session(session),
            Self::File(number) => Scope::File(number),
        }
    }
}

/// Which locks see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Byte ranges.
    Ranges,
    /// Whole files.
    Whole,
}

/// Bytes from `start` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` for whatever the file's end becomes.
    pub last: u64,
}

impl Span {
    /// Every byte.
    pub const ALL: Self = Self { start: 0, last: u64::MAX };

    fn meets(self, other: Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }
}

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Who has it.
    pub owner: Owner,
    /// Its bytes.
    pub span: Span,
    /// Whether it excludes shared ones, too.
    pub is_exclusive: bool,
    /// The user for whom it is counted.
    pub user: u32,
    /// Number of the process on its own host, for who asks.
    pub pid: u32,
}

/// Why a lock is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Another owner's lock is in the way.
    Conflict,
    /// Waiting for it would close a circle of waiting owners.
    Deadlock,
    /// The user has too many.
    TooMany,
    /// A client may have had it before the server started, and has not claimed it yet.
    Early,
    /// It is claimed too late.
    Late,
}

/// All locks of a server.
#[derive(Debug, Default)]
pub struct Locks {
    table: Mutex<Table>,
    /// Number of locks that are there: if there are none, the end of a session need not look.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<(Ino, Family), Vec<Lock>>,
    waiting: HashMap<Owner, Waiter>,
    /// How many locks each user has that has any.
    users: HashMap<u32, usize>,
    /// How many locks of what file each scope has that has any.
    scopes: HashMap<Scope, HashMap<(Ino, Family), usize>>,
    /// Of the scopes, those that are open files.
    open_files: usize,
    #[cfg(test)]
    looked_at: usize,
}

/// An owner that waits.
#[derive(Debug)]
struct Waiter {
    /// For whom.
    for_whom: Owner,
    /// The user for whom it is counted.
    user: u32,
    /// When it last asked.
    asked: Nanos,
}

impl Locks {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table();
        let result = change(&mut table);
        self.count.store(table.users.values().sum(), Ordering::Relaxed);
        result
    }

    /// Whether anybody has a lock in `volume`.
    pub fn are_there_any_in(&self, volume: VolumeId) -> bool {
        self.are_there_any() && self.table().files.keys().any(|(ino, _)| ino.volume() == volume)
    }

    /// Whether anybody has a lock.
    pub fn are_there_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Gives a lock again that its owner had when the server stopped, if he may claim any. What he has by now he always may.
    pub fn claim(&self, ino: Ino, family: Family, lock: Lock, may_claim: bool) -> Result<(), Denied> {
        if !may_claim {
            let has = self.table().covers(ino, family, &lock);
            return if has { Ok(()) } else { Err(Denied::Late) };
        }
        self.put(ino, family, lock)
    }

    fn put(&self, ino: Ino, family: Family, lock: Lock) -> Result<(), Denied> {
        self.change(|table| match table.conflict(ino, family, &lock) {
            Some(_) => Err(Denied::Conflict),
            None => table.put(ino, family, lock),
        })
    }

    /// Gives `lock`, which replaces what its owner had of the same bytes. `waits` if the owner will ask again; `is_early` if others
    /// may still claim theirs.
    pub fn acquire(
        &self,
        ino: Ino,
        family: Family,
        lock: Lock,
        (waits, is_early): (bool, bool),
        now: Nanos,
    ) -> Result<(), Denied> {
        self.change(|table| {
            if let Some(other) = table.conflict(ino, family, &lock) {
                if !waits {
                    return Err(Denied::Conflict);
                }
                table.waiting.retain(|_, waiter| now.since(waiter.asked) < WAITS_FOR);
                if table.leads_to(other.owner, lock.owner) {
                    table.waiting.remove(&lock.owner);
                    return Err(Denied::Deadlock);
                }
                let others = table.waiting.iter().filter(|(owner, w)| w.user == lock.user && **owner != lock.owner);
                if others.count() >= WAITING_PER_USER_MAX {
                    return Err(Denied::TooMany);
                }
                let waiter = Waiter { for_whom: other.owner, user: lock.user, asked: now };
                table.waiting.insert(lock.owner, waiter);
                return Err(Denied::Conflict);
            }
            table.waiting.remove(&lock.owner);
            if is_early && !table.covers(ino, family, &lock) {
                return Err(Denied::Early);
            }
            table.put(ino, family, lock)
        })
    }

    /// The lock that would keep `lock` from being given: of several the one with the lowest start. Its owner waits no
    /// more.
    pub fn conflict(&self, ino: Ino, family: Family, lock: &Lock) -> Option<Lock> {
        let mut table = self.table();
        table.waiting.remove(&lock.owner);
        table.conflict(ino, family, lock)
    }

    /// Gives up what `owner` has of `span`.
    pub fn release(&self, ino: Ino, family: Family, owner: Owner, span: Span) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.change(|table| table.replace(ino, family, owner, span, None));
        }
    }

    /// Gives up everything that these have.
    pub fn release_all(&self, gone: impl IntoIterator<Item = Scope>) {
        if self.are_there_any() {
            let gone: HashSet<Scope> = gone.into_iter().collect();
            self.change(|table| table.release_all(&gone));
        }
    }

    /// Whether it has any lock.
    pub fn has_any(&self, scope: Scope) -> bool {
        self.are_there_any() && self.table().scopes.contains_key(&scope)
    }

    /// Whether any open file has a lock.
    pub fn are_there_any_of_files(&self) -> bool {
        self.are_there_any() && self.table().open_files > 0
    }

    /// Whether the open file `number` has any lock on `ino`.
    pub fn has_file_lock(&self, ino: Ino, number: u64) -> bool {
        self.are_there_any() && {
            let table = self.table();
            let files = table.scopes.get(&Scope::File(number));
            files.is_some_and(|files| {
                [Family::Ranges, Family::Whole].iter().any(|family| files.contains_key(&(ino, *family)))
            })
        }
    }
}

impl Table {
    fn conflict(&self, ino: Ino, family: Family, wanted: &Lock) -> Option<Lock> {
        let is_in_the_way = |other: &&Lock| {
            other.owner != wanted.owner && (other.is_exclusive || wanted.is_exclusive) && other.span.meets(wanted.span)
        };
        self.files.get(&(ino, family))?.iter().filter(is_in_the_way).min_by_key(|other| other.span.start).copied()
    }

    /// Gives a lock that nothing is in the way of.
    fn put(&mut self, ino: Ino, family: Family, lock: Lock) -> Result<(), Denied> {
        let of_file = self.files.get(&(ino, family)).map_or(&[][..], |locks| locks);
        let in_file = of_file.iter().filter(|known| known.user == lock.user).count();
        let of_user = self.users.get(&lock.user).copied().unwrap_or(0);
        if in_file >= LOCKS_PER_FILE_MAX || of_user >= LOCKS_PER_USER_MAX {
            return Err(Denied::TooMany);
        }
        self.replace(ino, family, lock.owner, lock.span, Some(lock));
        Ok(())
    }

    /// Whether the owner of `lock` has all of that already, or more.
    fn covers(&self, ino: Ino, family: Family, lock: &Lock) -> bool {
        let is_own = |known: &&Lock| known.owner == lock.owner && (known.is_exclusive || !lock.is_exclusive);
        let mut own: Vec<Span> =
            self.files.get(&(ino, family)).into_iter().flatten().filter(is_own).map(|own| own.span).collect();
        own.sort_by_key(|span| span.start);
        let mut next = lock.span.start;
        for span in own {
            if span.start <= next && span.last >= next {
                match span.last.checked_add(1).filter(|after| *after <= lock.span.last) {
                    Some(after) => next = after,
                    None => return true,
                }
            }
        }
        false
    }

    fn release_all(&mut self, gone: &HashSet<Scope>) {
        let mut locked = HashSet::new();
        for scope in gone {
            let files = self.scopes.remove(scope);
            self.open_files -= usize::from(files.is_some() && matches!(scope, Scope::File(_)));
            locked.extend(files.into_iter().flat_map(HashMap::into_keys));
            if let Scope::File(number) = scope {
                self.waiting.remove(&Owner::File(*number));
            }
        }
        if gone.iter().any(|scope| matches!(scope, Scope::Session(_))) {
            self.waiting.retain(|owner, _| !gone.contains(&owner.scope()));
        }
        let Self { files, users, .. } = self;
        for key in locked {
            let Some(locks) = files.get_mut(&key) else { continue };
            #[cfg(test)]
            {
                self.looked_at += locks.len();
            }
            locks.retain(|lock| {
                let is_kept = !gone.contains(&lock.owner.scope());
                if !is_kept {
                    one_less(users, lock.user);
                }
                is_kept
            });
            if locks.is_empty() {
                files.remove(&key);
            }
        }
    }

    /// Notes that a scope has `count` locks of a file more than before, or less.
    fn count(&mut self, scope: Scope, key: (Ino, Family), before: usize, now: usize) {
        let is_file = usize::from(matches!(scope, Scope::File(_)));
        if now > 0 && !self.scopes.contains_key(&scope) {
            self.open_files += is_file;
        }
        let files = self.scopes.entry(scope).or_default();
        let count = files.entry(key).or_default();
        *count = *count + now - before;
        if *count == 0 {
            files.remove(&key);
            if files.is_empty() {
                self.scopes.remove(&scope);
                self.open_files -= if before > 0 { is_file } else { 0 };
            }
        }
    }

    /// Whether waiting for `from` is waiting for `to`.
    fn leads_to(&self, from: Owner, to: Owner) -> bool {
        let mut at = from;
        for _ in 0..WAY_MAX {
            if at == to {
                return true;
            }
            match self.waiting.get(&at) {
                Some(waiter) => at = waiter.for_whom,
                None => return false,
            }
        }
        false
    }

    /// Cuts `span` out of what `owner` has, and puts `new` there. Neighbours of one owner and kind are one lock.
    fn replace(&mut self, ino: Ino, family: Family, owner: Owner, span: Span, mut new: Option<Lock>) {
        let Self { files, users, .. } = self;
        let locks = files.entry((ino, family)).or_default();
        let beside = Span { start: span.start.saturating_sub(1), last: span.last.saturating_add(1) };
        let (mut taken, mut rest) = (0, Vec::new());
        locks.retain(|lock| {
            if lock.owner != owner || !lock.span.meets(beside) {
                return true;
            }
            taken += 1;
            one_less(users, lock.user);
            match &mut new {
                Some(new) if (new.is_exclusive, new.user) == (lock.is_exclusive, lock.user) => {
                    new.span.start = new.span.start.min(lock.span.start);
                    new.span.last = new.span.last.max(lock.span.last);
                }
                _ => {
                    if lock.span.start < span.start {
                        let last = lock.span.last.min(span.start - 1);
                        rest.push(Lock { span: Span { last, ..lock.span }, ..*lock });
                    }
                    if lock.span.last > span.last {
                        let start = lock.span.start.max(span.last + 1);
                        rest.push(Lock { span: Span { start, ..lock.span }, ..*lock });
                    }
                }
            }
            false
        });
        rest.extend(new);
        rest.iter().for_each(|lock| *users.entry(lock.user).or_insert(0) += 1);
        let put = rest.len();
        locks.append(&mut rest);
        if locks.is_empty() {
            files.remove(&(ino, family));
        }
        self.count(owner.scope(), (ino, family), taken, put);
    }
}

fn one_less(users: &mut HashMap<u32, usize>, user: u32) {
    match users.get_mut(&user) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(users.remove(&user)),
    }
}

#[cfg(test)]
mod tests;
