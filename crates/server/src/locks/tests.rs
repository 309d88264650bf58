//! Locks beside each other, their limits, and a table of bytes to compare them with.

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
    assert_eq!(claim(lock(3, 5, 5, false), 60), Err(Denied::Conflict), "it was not his");
    assert_eq!(ask(lock(3, 5, 5, false), 60), Err(Denied::Conflict));
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
    assert_eq!(acquire(&locks, lock(3, 20, 30, true)), Err(Denied::Conflict));
    acquire(&locks, lock(3, 21, 30, true)).unwrap();
    assert_eq!(acquire(&locks, lock(1, 0, 9, true)), Err(Denied::Conflict), "an upgrade against a reader");
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
    assert_eq!(at(2, 1, 1), Err(Denied::Conflict));
    assert_eq!(at(3, 2, 2), Err(Denied::Conflict));
    assert_eq!(at(1, 3, 3), Err(Denied::Deadlock));
    // Who only asks what is in the way has given up, and who has not asked for a second.
    assert_eq!(locks.conflict(INO, Family::Ranges, &lock(2, 3, 3, true)), Some(lock(3, 3, 3, true)));
    assert_eq!(at(1, 3, 4), Err(Denied::Conflict));
    assert_eq!(at(3, 2, 5), Err(Denied::Deadlock));
    assert_eq!(at(3, 2, 1_500), Err(Denied::Conflict));
}

#[test]
fn owners_that_are_gone_have_nothing() {
    let locks = Locks::default();
    let process = Owner::Process { session: 7, owner: 0 };
    acquire(&locks, Lock { owner: process, ..lock(0, 0, 5, true) }).unwrap();
    acquire(&locks, lock(2, 6, 9, true)).unwrap();
    assert!(locks.has_any(Scope::Session(7)) && locks.has_file_lock(INO, 2) && !locks.has_file_lock(Ino(1), 2));
    locks.release_all([Scope::Session(7)]);
    assert!(!locks.has_any(Scope::Session(7)) && locks.has_file_lock(INO, 2) && locks.are_there_any_of_files());
    locks.release_all([Scope::Session(8), Scope::File(2)]);
    assert!(!locks.are_there_any_of_files());
    assert_eq!(locks.count.load(Ordering::Relaxed), 0);
    let table = locks.table();
    assert!(table.files.is_empty() && table.users.is_empty() && table.scopes.is_empty());
}

#[test]
fn who_ends_costs_what_he_had_locked() {
    let locks = Locks::default();
    for user in 0..2000 {
        let of_user = Lock { user, ..lock(u64::from(user), 0, 9, true) };
        locks.acquire(Ino(u64::from(user)), Family::Ranges, of_user, (false, false), Nanos::ZERO).unwrap();
    }
    (0..1000).for_each(|number| locks.release_all([Scope::File(number)]));
    locks.release_all((1000..1999).map(Scope::File));
    assert_eq!(locks.count.load(Ordering::Relaxed), 1);
    assert_eq!(locks.table().looked_at, 1999);
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
                table.count(Scope::File(1), (Ino(file), Family::Ranges), 0, 1);
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
        assert_eq!(wait(1, 10 + owner), Err(Denied::Conflict));
    }
    assert_eq!(wait(1, 5), Err(Denied::TooMany));
    assert_eq!(wait(1, 10), Err(Denied::Conflict), "who waits already goes on");
    assert_eq!(wait(2, 6), Err(Denied::Conflict));
}

/// What each byte is locked as: by owner, 0 not at all, 1 shared, 2 exclusive.
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
                bytes[other][range.clone()].iter().all(|locked| kind == 0 || kind + locked < 3 || *locked == 0)
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
            let locked = table.files.get(&(INO, Family::Ranges)).cloned().unwrap_or_default();
            prop_assert_eq!(locked.len(), table.users.values().sum::<usize>());
            let runs = |row: &[u8; 24]| row.chunk_by(PartialEq::eq).filter(|run| run[0] != 0).count();
            prop_assert_eq!(locked.len(), bytes.iter().map(runs).sum::<usize>(), "neighbours are one lock");
            let mut scopes = HashMap::new();
            locked.iter().for_each(|lock| *scopes.entry(lock.owner.scope()).or_insert(0) += 1);
            let key = (INO, Family::Ranges);
            let counted = table.scopes.iter().map(|(scope, files)| (*scope, files[&key])).collect();
            prop_assert_eq!(&scopes, &counted);
            prop_assert_eq!(table.open_files, scopes.len());
            for (owner, row) in bytes.iter().enumerate() {
                for (byte, expected) in (0..).zip(row) {
                    let kinds: Vec<u8> = locked
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
