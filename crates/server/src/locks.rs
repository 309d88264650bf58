//! Advisory locks on files: byte ranges as of `fcntl(2)` and whole files as of `flock(2)`.
//!
//! The two kinds do not see each other, as on a local Linux file system. An owner's new lock replaces what it held of
//! the same bytes. Nothing waits here: who cannot have a lock is told so and asks again; while it asks, the table
//! knows whom it waits for, so that a circle of waiting owners is found.
//!
//! A server that starts does not know which locks there were when it stopped. For a while it waits for those who had some
//! ([`crate::holders`]): they get theirs again ([`Locks::claim`]), and nobody gets another one meanwhile.
//!
//! Every limit is for one user, so that nobody is refused a lock because others have too many.
//!
//! Sans I/O: time is passed in. A request costs O(locks of the file).

use isonomia_units::{Ino, Nanos, VolumeId};
use std::collections::HashMap;
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

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A client process, by its session, and whoever it is that it speaks for.
    Process {
        /// Number of the session.
        session: u64,
        /// A number of its own choice.
        owner: u64,
    },
    /// An open file, whichever processes hold it.
    File(u64),
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
    /// Who holds it.
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
    Held,
    /// Waiting for it would be waiting for oneself.
    Deadlock,
    /// The user has too many.
    TooMany,
    /// It may be somebody's who has not claimed it yet.
    Early,
    /// It is claimed too late.
    Late,
}

/// All locks of a server.
#[derive(Debug, Default)]
pub struct Locks {
    table: Mutex<Table>,
    /// Locks that are held, so that who ends without any need not look.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<(Ino, Family), Vec<Lock>>,
    waiting: HashMap<Owner, Waiter>,
    /// How many locks each user has that has any.
    users: HashMap<u32, usize>,
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
            Some(_) => Err(Denied::Held),
            None => table.put(ino, family, lock),
        })
    }

    /// Gives `lock`, in place of what its owner held of the same bytes. `waits` if the owner will ask again; `is_early` if others
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
                    return Err(Denied::Held);
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
                return Err(Denied::Held);
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

    /// Gives up what `owner` holds of `span`.
    pub fn release(&self, ino: Ino, family: Family, owner: Owner, span: Span) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.change(|table| table.replace(ino, family, owner, span, None));
        }
    }

    /// Gives up everything that owners hold of whom `is_gone` says so.
    pub fn release_owners(&self, is_gone: impl Fn(Owner) -> bool) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.change(|table| {
            table.files.retain(|_, locks| {
                locks.retain(|lock| !is_gone(lock.owner));
                !locks.is_empty()
            });
            table.waiting.retain(|owner, _| !is_gone(*owner));
            table.users.clear();
            for lock in table.files.values().flatten() {
                *table.users.entry(lock.user).or_insert(0) += 1;
            }
        });
    }

    /// Whether any owner holds a lock of whom `is_one` says so. O(locks).
    pub fn any_of(&self, is_one: impl Fn(Owner) -> bool) -> bool {
        self.are_there_any() && self.table().files.values().flatten().any(|lock| is_one(lock.owner))
    }

    /// Whether `owner` holds any lock on `ino`.
    pub fn has_lock(&self, ino: Ino, owner: Owner) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && {
            let table = self.table();
            [Family::Ranges, Family::Whole]
                .iter()
                .filter_map(|family| table.files.get(&(ino, *family)))
                .any(|locks| locks.iter().any(|lock| lock.owner == owner))
        }
    }
}

impl Table {
    fn conflict(&self, ino: Ino, family: Family, wanted: &Lock) -> Option<Lock> {
        let is_in_the_way = |held: &&Lock| {
            held.owner != wanted.owner && (held.is_exclusive || wanted.is_exclusive) && held.span.meets(wanted.span)
        };
        self.files.get(&(ino, family))?.iter().filter(is_in_the_way).min_by_key(|held| held.span.start).copied()
    }

    /// Gives a lock that nothing is in the way of.
    fn put(&mut self, ino: Ino, family: Family, lock: Lock) -> Result<(), Denied> {
        let of_file = self.files.get(&(ino, family)).map_or(&[][..], |locks| locks);
        let held = of_file.iter().filter(|held| held.user == lock.user).count();
        let of_user = self.users.get(&lock.user).copied().unwrap_or(0);
        if held >= LOCKS_PER_FILE_MAX || of_user >= LOCKS_PER_USER_MAX {
            return Err(Denied::TooMany);
        }
        self.replace(ino, family, lock.owner, lock.span, Some(lock));
        Ok(())
    }

    /// Whether the owner of `lock` has all of that already, or more.
    fn covers(&self, ino: Ino, family: Family, lock: &Lock) -> bool {
        let is_own = |held: &&Lock| held.owner == lock.owner && (held.is_exclusive || !lock.is_exclusive);
        let mut own: Vec<Span> =
            self.files.get(&(ino, family)).into_iter().flatten().filter(is_own).map(|held| held.span).collect();
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

    /// Cuts `span` out of what `owner` holds, and puts `new` there.
    fn replace(&mut self, ino: Ino, family: Family, owner: Owner, span: Span, new: Option<Lock>) {
        let Self { files, users, .. } = self;
        let locks = files.entry((ino, family)).or_default();
        let (mut own, mut kept): (Vec<Lock>, Vec<Lock>) = locks.drain(..).partition(|lock| lock.owner == owner);
        for lock in &own {
            match users.get_mut(&lock.user) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(users.remove(&lock.user)),
            }
        }
        let mut rest = Vec::with_capacity(own.len() + 2);
        for lock in own.drain(..) {
            if !lock.span.meets(span) {
                rest.push(lock);
                continue;
            }
            if lock.span.start < span.start {
                rest.push(Lock { span: Span { last: span.start - 1, ..lock.span }, ..lock });
            }
            if lock.span.last > span.last {
                rest.push(Lock { span: Span { start: span.last + 1, ..lock.span }, ..lock });
            }
        }
        rest.extend(new);
        rest.sort_by_key(|lock| lock.span.start);
        for lock in rest {
            match kept.last_mut() {
                // Neighbours of one owner and kind are one lock.
                Some(before)
                    if before.owner == owner
                        && (before.is_exclusive, before.user) == (lock.is_exclusive, lock.user)
                        && before.span.last.checked_add(1) == Some(lock.span.start) =>
                {
                    before.span.last = lock.span.last;
                }
                _ => {
                    *users.entry(lock.user).or_insert(0) += 1;
                    kept.push(lock);
                }
            }
        }
        if kept.is_empty() {
            files.remove(&(ino, family));
        } else {
            *locks = kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INO: Ino = Ino(9);

    fn lock(owner: u64, start: u64, last: u64, is_exclusive: bool) -> Lock {
        Lock { owner: Owner::File(owner), span: Span { start, last }, is_exclusive, user: 7, pid: owner as u32 }
    }

    fn acquire(locks: &Locks, lock: Lock) -> Result<(), Denied> {
        locks.acquire(INO, Family::Ranges, lock, (false, false), Nanos::ZERO)
    }

    #[test]
    fn after_a_start_those_come_first_who_had_locks() {
        let locks = Locks::default();
        let claim = |lock, now| locks.claim(INO, Family::Ranges, lock, now < 100);
        let ask = |lock, now| locks.acquire(INO, Family::Ranges, lock, (true, now < 100), Nanos(now));
        assert_eq!(ask(lock(1, 0, 9, true), 50), Err(Denied::Early));
        claim(lock(1, 0, 9, true), 50).unwrap();
        claim(lock(2, 10, 19, false), 50).unwrap();
        assert_eq!(claim(lock(3, 5, 5, false), 60), Err(Denied::Held), "it was not his");
        assert_eq!(ask(lock(3, 5, 5, false), 60), Err(Denied::Held));
        // What one has is one's to change.
        ask(lock(1, 2, 5, false), 70).unwrap();
        assert_eq!(ask(lock(1, 2, 5, true), 70), Err(Denied::Early), "another one may claim a shared one");
        assert_eq!(ask(lock(1, 0, 20, false), 70), Err(Denied::Early), "only a part of it");
        // Who comes later finds what he has, and nothing else.
        claim(lock(2, 12, 19, false), 100).unwrap();
        assert_eq!(claim(lock(2, 12, 20, false), 100), Err(Denied::Late));
        assert_eq!(claim(lock(2, 12, 19, true), 100), Err(Denied::Late));
        assert_eq!(claim(lock(3, 50, 60, true), 100), Err(Denied::Late));
        ask(lock(3, 50, 60, true), 100).unwrap();
    }

    #[test]
    fn shared_locks_go_together_and_exclusive_ones_alone() {
        let locks = Locks::default();
        acquire(&locks, lock(1, 0, 9, false)).unwrap();
        acquire(&locks, lock(2, 5, 20, false)).unwrap();
        assert_eq!(acquire(&locks, lock(3, 20, 30, true)), Err(Denied::Held));
        acquire(&locks, lock(3, 21, 30, true)).unwrap();
        assert_eq!(acquire(&locks, lock(1, 0, 9, true)), Err(Denied::Held), "an upgrade against a reader");
        assert_eq!(locks.conflict(INO, Family::Ranges, &lock(4, 0, 99, true)), Some(lock(1, 0, 9, false)));
        assert_eq!(locks.conflict(INO, Family::Whole, &lock(4, 0, 99, true)), None);
        locks.release(INO, Family::Ranges, Owner::File(2), Span::ALL);
        acquire(&locks, lock(1, 0, 9, true)).unwrap();
    }

    #[test]
    fn a_circle_of_waiting_owners_is_found() {
        let locks = Locks::default();
        let at = |byte, owner, now| {
            locks.acquire(INO, Family::Ranges, lock(owner, byte, byte, true), (true, false), Nanos::from_millis(now))
        };
        (1..4).for_each(|n| at(n, n, 0).unwrap());
        assert_eq!(at(2, 1, 1), Err(Denied::Held));
        assert_eq!(at(3, 2, 2), Err(Denied::Held));
        assert_eq!(at(1, 3, 3), Err(Denied::Deadlock));
        // Who only asks what is in the way has given up, and who has not asked for a second.
        assert_eq!(locks.conflict(INO, Family::Ranges, &lock(2, 3, 3, true)), Some(lock(3, 3, 3, true)));
        assert_eq!(at(1, 3, 4), Err(Denied::Held));
        assert_eq!(at(3, 2, 5), Err(Denied::Deadlock));
        assert_eq!(at(3, 2, 1_500), Err(Denied::Held));
    }

    #[test]
    fn owners_that_are_gone_hold_nothing() {
        let locks = Locks::default();
        let process = Owner::Process { session: 7, owner: 0 };
        acquire(&locks, Lock { owner: process, ..lock(0, 0, 5, true) }).unwrap();
        acquire(&locks, lock(2, 6, 9, true)).unwrap();
        assert!(locks.has_lock(INO, process) && !locks.has_lock(Ino(1), process));
        locks.release_owners(|owner| matches!(owner, Owner::Process { session: 7, .. }));
        assert!(!locks.has_lock(INO, process) && locks.has_lock(INO, Owner::File(2)));
        locks.release_owners(|_| true);
        assert_eq!(locks.count.load(Ordering::Relaxed), 0);
        assert!(locks.table().files.is_empty() && locks.table().users.is_empty());
    }

    #[test]
    fn the_locks_of_one_user_cost_nobody_else_any() {
        let locks = Locks::default();
        let of = |user, byte| Lock { user, ..lock(u64::from(user), byte, byte, false) };
        for file in 0..(LOCKS_PER_USER_MAX / LOCKS_PER_FILE_MAX) as u64 {
            let take = |byte| locks.acquire(Ino(file), Family::Ranges, of(1, byte), (false, false), Nanos::ZERO);
            (0..LOCKS_PER_FILE_MAX as u64).for_each(|n| {
                // The whole table at once: what is tested is the limit, not the way to it.
                locks.change(|table| {
                    table.files.entry((Ino(file), Family::Ranges)).or_default().push(of(1, 2 * n));
                    *table.users.entry(1).or_insert(0) += 1;
                });
            });
            assert_eq!(take(1 << 40), Err(Denied::TooMany), "of file {file}");
            locks.acquire(Ino(file), Family::Ranges, of(2, 1 << 40), (false, false), Nanos::ZERO).unwrap();
        }
        let elsewhere = Ino(1 << 20);
        let take = |user| locks.acquire(elsewhere, Family::Ranges, of(user, 0), (false, false), Nanos::ZERO);
        assert_eq!(take(1), Err(Denied::TooMany));
        take(2).unwrap();
        locks.release(Ino(0), Family::Ranges, Owner::File(1), Span { start: 0, last: 0 });
        take(1).unwrap();
    }

    #[test]
    fn the_waiting_of_one_user_cost_nobody_else_their_wait() {
        let locks = Locks::default();
        acquire(&locks, lock(0, 0, 0, true)).unwrap();
        let wait = |user, owner| {
            let lock = Lock { user, ..lock(owner, 0, 0, true) };
            locks.acquire(INO, Family::Ranges, lock, (true, false), Nanos::ZERO)
        };
        for owner in 0..WAITING_PER_USER_MAX as u64 {
            assert_eq!(wait(1, 10 + owner), Err(Denied::Held));
        }
        assert_eq!(wait(1, 5), Err(Denied::TooMany));
        assert_eq!(wait(1, 10), Err(Denied::Held), "who waits already goes on");
        assert_eq!(wait(2, 6), Err(Denied::Held));
    }

    /// What each byte is held as: by owner, 0 not at all, 1 shared, 2 exclusive.
    type Bytes = [[u8; 24]; 3];

    proptest! {
        #[test]
        fn agrees_with_a_table_of_bytes(
            steps in proptest::collection::vec((0..3usize, 0..24u64, 0..24u64, 0..3u8), 1..60)
        ) {
            let locks = Locks::default();
            let mut bytes: Bytes = [[0; 24]; 3];
            for (owner, a, b, kind) in steps {
                let (start, last) = (a.min(b), a.max(b));
                let range = start as usize..=last as usize;
                let wanted = lock(owner as u64, start, last, kind == 2);
                let free = (0..3).filter(|other| *other != owner).all(|other| {
                    bytes[other][range.clone()].iter().all(|held| kind == 0 || kind + held < 3 || *held == 0)
                });
                if kind == 0 {
                    locks.release(INO, Family::Ranges, wanted.owner, wanted.span);
                } else {
                    prop_assert_eq!(acquire(&locks, wanted).is_ok(), free);
                }
                if free {
                    bytes[owner][range].fill(kind);
                }
                let table = locks.table();
                let held = table.files.get(&(INO, Family::Ranges)).cloned().unwrap_or_default();
                prop_assert_eq!(held.len(), table.users.values().sum::<usize>());
                for (owner, row) in bytes.iter().enumerate() {
                    for (byte, expected) in (0..).zip(row) {
                        let kinds: Vec<u8> = held
                            .iter()
                            .filter(|lock| lock.owner == Owner::File(owner as u64))
                            .filter(|lock| lock.span.start <= byte && byte <= lock.span.last)
                            .map(|lock| 1 + u8::from(lock.is_exclusive))
                            .collect();
                        prop_assert_eq!(kinds, if *expected == 0 { vec![] } else { vec![*expected] });
                    }
                }
            }
        }
    }
}
